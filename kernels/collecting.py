"""The garbage collector left alone while what an import makes is made: all of that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within: in an import there is none, and looking at all that Numba made takes 50 ms.

    What was made joins the oldest objects, as if it had been looked at: it would be, right after, for nothing.
    """
    before = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if before:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
