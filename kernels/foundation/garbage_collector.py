"""Keeps the garbage collector off during imports: nothing that an import makes is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*, lasting: bool = False) -> Iterator[None]:
    """Collect no garbage within: an import makes none, and looking at all objects of Numba's takes 50 ms.

    With ``lasting``, what is made joins the oldest generation; else the next collection would look at it in vain.
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
