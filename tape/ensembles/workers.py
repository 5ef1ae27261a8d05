"""Where parameter sets are computed: executors, and what they call."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from kernels.threads.workers import WORKERS

Outcome = tuple[bool, Any]
"""Whether a call returned, and what; else what it raised."""


def _called(f: Callable[..., Any], sets: Any, to_end: bool, stop: threading.Event | None = None) -> list[Outcome]:
    """Call a function with each of a chunk's parameter sets; ``to_end``: after one that raised, with the others too."""
    outcomes: list[Outcome] = []
    for args in sets:
        if stop is not None and stop.is_set():
            break
        try:
            outcomes.append((True, f(*args)))
        except Exception as error:  # noqa: BLE001 (the caller's own)
            outcomes.append((False, error))
            if not to_end:
                break
    return outcomes


def _called_there(data: bytes | Callable[..., Any], sets: Any, to_end: bool) -> list[Outcome]:
    """Do so in another process; errors come with their lines, and as what can be sent."""
    f = _unpickled(data) if isinstance(data, bytes) else data
    return [(done, x if done else _sent(x)) for done, x in _called(f, sets, to_end)]


@functools.lru_cache(8)
def _unpickled(data: bytes) -> Any:
    """Return a function, which is kept for the next chunks: what a program is lowered to, too."""
    return pickle.loads(data)  # noqa: S301 (as executors do with what they are given)


def _sent(error: Exception) -> Exception:
    lines = "".join(traceback.format_exception(error)).rstrip()
    try:
        error = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own; it may not be made again from its arguments)
    except Exception:  # noqa: BLE001 (likewise)
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(lines)
    return error


class Pool:
    """An executor, and how another is made if it breaks."""

    def __init__(self, executor: Any, *, to_end: bool) -> None:
        self.to_end = to_end
        self.mine = executor is None or isinstance(executor, type) or not hasattr(executor, "submit")
        if self.mine and executor is not None and not callable(executor):
            raise TypeError(f"ensemble: executor is a {type(executor).__name__}, which has no submit()")
        self.make = (executor or _threads) if self.mine else None
        self.executor: Any = self.make() if self.make is not None else executor
        self.local = isinstance(self.executor, ThreadPoolExecutor)
        self.workers = _workers_of(self.executor)
        self.stop = threading.Event()

    def submit(self, f: Any, sets: Any) -> Future[list[Outcome]]:
        """Have a chunk run."""
        future: Future[list[Outcome]]
        if self.local:
            future = self.executor.submit(_called, f, sets, self.to_end, self.stop)
        else:
            future = self.executor.submit(_called_there, f, sets, self.to_end)
        return future

    def renew(self, error: BaseException) -> None:
        """Take a new executor in place of one that broke; raise the error if it is not known how."""
        if self.make is None:
            if type(self.executor) is not ProcessPoolExecutor:
                raise error
            self.make, self.mine = functools.partial(ProcessPoolExecutor, **_as_made(self.executor)), True
        else:
            self.executor.shutdown(wait=False)
        self.executor = self.make()

    def close(self, *, wait: bool) -> None:
        """Have threads stop after the call that they are in, and shut down an executor that was made here."""
        self.stop.set()
        if self.mine:
            with_cancelling = "cancel_futures" in inspect.signature(self.executor.shutdown).parameters  # not Dask's
            self.executor.shutdown(wait=wait, **({"cancel_futures": True} if with_cancelling else {}))


def _threads() -> Executor:
    """Return as many threads as were asked for, or else as there are processors."""
    return ThreadPoolExecutor(WORKERS.wanted if WORKERS.wanted > 1 else _processors(), "tape.ensemble")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers_of(executor: Any) -> int:
    """Return how many calls an executor runs at a time, as far as it says so."""
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "nthreads"):  # Dask's
        return sum(client.nthreads().values()) or 1
    count = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)  # MPI's
    return count if isinstance(count, int) and count > 0 else _processors()


def _as_made(executor: ProcessPoolExecutor) -> dict[str, Any]:
    """Return the arguments that a pool of processes was made with; it is asked for them in no other way."""
    names = {"max_workers": "_max_workers", "mp_context": "_mp_context", "initializer": "_initializer"}
    names |= {"initargs": "_initargs", "max_tasks_per_child": "_max_tasks_per_child"}
    return {name: getattr(executor, place) for name, place in names.items() if hasattr(executor, place)}
