"""``set_quiet``: whether a line on stderr says that native code is being compiled."""

from __future__ import annotations

from kernels.compiler import jit

__all__ = ["set_quiet"]


def set_quiet(mode: bool = True) -> None:
    """Write no line on stderr while native code is compiled; with False, write it again.

    The line comes when compiling takes longer than a second, at the first use of operations on a machine: what is
    compiled is cached on disk. In notebooks there is none. ``TAPE_QUIET=1`` in the environment does the same.

    >>> tape.set_quiet()
    """
    jit.set_quiet(mode)
