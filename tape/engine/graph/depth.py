"""Backwards inside backwards: beyond some depth they go on in another thread, where Python's stack begins anew."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")
MOST = 12
"""Most backwards inside each other in one thread: each takes some twenty of the thousand frames that Python allows."""


def elsewhere(function: Callable[[], Result]) -> Result:
    """Run a function in a thread of its own, in this context, and wait for it."""
    context, outcome = contextvars.copy_context(), list[tuple[Any, BaseException | None]]()

    def run() -> None:
        try:
            outcome.append((context.run(function), None))
        except BaseException as error:  # noqa: BLE001 (it is raised again, in the thread that waits)
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="tape backward")
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]
