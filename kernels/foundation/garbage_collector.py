"""The garbage collector left alone while what an import makes is made: all of that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*, lasting: bool = False) -> Iterator[None]:
    """Collect no garbage within: in an import there is none, and looking at all that Numba made takes 50 ms.

    What is made and ``lasting`` joins the oldest objects, as if it had been looked at: it would be, right after, for
    nothing.
    """
    before = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if before:
            if lasting and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
