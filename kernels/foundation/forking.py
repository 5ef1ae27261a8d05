"""Locks that no other thread holds in a child process after a fork."""

from __future__ import annotations

import os
import threading
from typing import Any


def lock() -> Any:
    """Return a lock that a fork waits for; if several nest, the outer one must be made by the later import."""
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made
