"""Locks that a child process does not inherit held by a thread that it has not."""

from __future__ import annotations

import os
import threading
from typing import Any


def lock() -> Any:
    """Return a lock that a fork waits for; of several that nest, the outer is made by the later import."""
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made
