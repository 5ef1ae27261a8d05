"""``set_num_threads``, ``get_num_threads``: how many threads run the loops of compiled programs."""

from __future__ import annotations

import operator

from kernels.threads.workers import WORKERS

__all__ = ["get_num_threads", "set_num_threads"]


def set_num_threads(n: int) -> None:
    """Have ``n`` threads run large loops of compiled programs; 1, as at first, has each call run on its own thread.

    A loop over arrays is cut into parts where its steps are independent and it takes longer than some tens of
    microseconds. Results do not depend on ``n``, to the last bit. If several threads call programs at a time, one
    call has the workers, and the others run alone. ``tape.ensemble`` makes ``n`` threads, if that is more than one.
    A process that was forked has one thread, until it asks for more. Raises RuntimeError for what is no positive
    int, as PyTorch does.

    >>> tape.set_num_threads(2)
    >>> tape.get_num_threads()
    2
    >>> tape.set_num_threads(1)
    """
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    count = operator.index(n)
    if count < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    WORKERS.use(count)


def get_num_threads() -> int:
    """Return how many threads run large loops of compiled programs.

    >>> tape.get_num_threads()
    1
    """
    return WORKERS.wanted
