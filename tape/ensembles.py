"""``tape.ensemble``: a function of many parameter sets, in threads, in processes and on other machines."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
import pickle
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.native.threads import WORKERS
from tape.tensors.pytrees import Structure, flattened, is_structure
from tape.tensors.tensor import Tensor

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
        threads = WORKERS.wanted if WORKERS.wanted > 1 else _processors()
        make = executor or functools.partial(ThreadPoolExecutor, threads, "tape.ensemble")
        self.make = make if self.mine else None
        self.executor: Any = self.make() if self.make is not None else executor
        self.local = isinstance(self.executor, ThreadPoolExecutor)
        self.workers = _workers_of(self.executor)
        self.stop = threading.Event()

    def submit(self, f: Any, sets: Any) -> Future[list[Outcome]]:
        """Have a chunk run."""
        if self.local:
            return self.executor.submit(_called, f, sets, self.to_end, self.stop)  # type: ignore[no-any-return]
        return self.executor.submit(_called_there, f, sets, self.to_end)  # type: ignore[no-any-return]

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


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers_of(executor: Any) -> int:
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


@dataclass
class ParameterRows:
    """Parameter sets that are the rows of arrays, in a structure of a tuple of arguments."""

    structure: Structure
    arrays: list[Any]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def part(self, start: int, stop: int) -> ParameterRows:
        """Return some of the rows."""
        return ParameterRows(self.structure, [x[start:stop] for x in self.arrays])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for i in range(len(self)):
            yield self.structure.filled([x[i] for x in self.arrays])


class Items(list[tuple[Any, ...]]):
    """Parameter sets one by one, as tuples of arguments."""

    def part(self, start: int, stop: int) -> Items:
        """Return some of them."""
        return Items(self[start:stop])


Sets = ParameterRows | Items


def sets_of(batch: Any) -> Sets:
    """Return the parameter sets of a batch; TypeError for what is none."""
    if not _is_array(batch) and hasattr(batch, "__array__"):
        batch = np.asarray(batch)
    if type(batch) is tuple:
        return _rows(batch, "argument ") if batch else Items()
    if _is_array(batch) or (is_structure(batch) and not isinstance(batch, list)):
        return _rows((batch,), "batch")
    if isinstance(batch, (str, bytes)) or not hasattr(batch, "__iter__"):
        raise TypeError(
            f"ensemble: the batch is a {type(batch).__name__}; a batch is a list of parameter sets, or arrays with a "
            "leading axis"
        )
    return Items([x if type(x) is tuple else (x,) for x in batch])


def _is_array(x: Any) -> bool:
    return isinstance(x, (Tensor, np.ndarray))


def _rows(args: tuple[Any, ...], name: str) -> ParameterRows:
    leaves, structure = flattened(args)
    if not leaves:
        raise TypeError("ensemble: there is no array in the batch")
    several = [name + path[1:].replace("]", "", 1) for path in structure.paths()]
    paths = [name + path[3:] for path in structure.paths()] if name == "batch" else several
    for path, x in zip(paths, leaves, strict=True):
        if not _is_array(x) or not x.ndim:
            raise TypeError(
                f"ensemble: {path} is a {type(x).__name__} without a leading axis; a batch is arrays with one, or a "
                "list of parameter sets, each a tuple of arguments"
            )
    lengths = [len(x) for x in leaves]
    if len(set(lengths)) > 1:
        shown = ", ".join(f"{path} has {n}" for path, n in zip(paths, lengths, strict=True))
        raise ValueError(f"ensemble: arrays of different lengths: {shown}")
    return ParameterRows(structure, leaves)


_AHEAD = 2
"""Chunks for each worker that are handed over at a time; of these a worker that dies leaves in doubt."""
_LOST = (BrokenExecutor, CancelledError, ConnectionError, EOFError, TimeoutError)
"""Errors of executors, after which a chunk is run again."""


@dataclass(eq=False)
class _Chunk:
    """Parameter sets from one on, how often they were lost, whether they run alone, and by which executor."""

    start: int
    sets: Any
    lost: int = 0
    alone: bool = False
    by: Any = None


class ChunkRun:
    """Chunks that wait, that run, and that were lost: each of these runs alone, to tell whose fault it is."""

    def __init__(self, f: Any, sets: Sets, pool: Pool, size: int, retries: int, bar: Any) -> None:
        self.pool, self.retries, self.bar = pool, retries, bar
        self.f = f if pool.local else _pickled(f)
        starts = range(0, len(sets), size)
        self.waiting = deque([_Chunk(i, sets.part(i, min(i + size, len(sets)))) for i in starts])
        self.suspects: deque[_Chunk] = deque()
        self.running: dict[Future[list[Outcome]], _Chunk] = {}

    def submit(self) -> None:
        """Hand over as much as is good at a time."""
        if self.suspects:
            if not self.running:
                self.suspects[0].alone = True
                self._start(self.suspects.popleft())
            return
        while self.waiting and len(self.running) < _AHEAD * self.pool.workers:
            self._start(self.waiting.popleft())

    def _start(self, chunk: _Chunk) -> None:
        for again in range(self.retries + 1):
            chunk.by = self.pool.executor
            try:
                self.running[self.pool.submit(self.f, chunk.sets)] = chunk
            except BrokenExecutor as error:
                if again == self.retries:
                    raise
                self.pool.renew(error)
            else:
                return

    def completed(self) -> Iterator[tuple[int, list[Outcome]]]:
        """Yield the outcomes of each chunk, with where it starts, as they are ready."""
        try:
            self.submit()
            while self.running:
                for future in wait_for(self.running, return_when="FIRST_COMPLETED").done:
                    chunk = self.running.pop(future)
                    outcomes = self._outcomes(future, chunk)
                    if outcomes is not None:
                        if self.bar is not None:
                            self.bar.update(len(outcomes))
                        yield chunk.start, outcomes
                self.submit()
        finally:
            for future in self.running:
                future.cancel()
            self.pool.close(wait=not self.running)
            if self.bar is not None:
                self.bar.close()

    def _outcomes(self, future: Future[list[Outcome]], chunk: _Chunk) -> list[Outcome] | None:
        try:
            return future.result()
        except Exception as error:  # noqa: BLE001 (it is the outcome)
            lost = isinstance(error, _LOST) or type(error).__module__.startswith("distributed")
            if not lost:
                return [(False, error)] * len(chunk.sets)
            broken = isinstance(error, BrokenExecutor)
            if broken and chunk.by is self.pool.executor:
                self.pool.renew(error)
            chunk.lost += chunk.alone or not broken
            if chunk.lost > self.retries and len(chunk.sets) == 1:
                return [(False, error)]
            if chunk.lost <= self.retries:
                self.suspects.append(chunk)
            else:  # its halves, each of which may run once more
                count = len(chunk.sets)
                for start, stop in ((0, count // 2), (count // 2, count)):
                    half = chunk.sets.part(start, stop)
                    self.suspects.append(_Chunk(chunk.start + start, half, self.retries))
            return None


def _pickled(f: Any) -> Any:
    try:
        return pickle.dumps(f)
    except Exception:  # noqa: BLE001 (Dask pickles more; others say themselves what is wrong)
        return f


_CHUNKS = 4
"""Chunks for each worker, if none is asked for: what is left at the end is shared out fairly."""


def ensemble(
    f: Callable[..., Any], batch: Any, executor: Any = None, *, chunk: int | None = None, ordered: bool = True,
    progress: bool = False, retries: int = 2, errors: str = "raise",
) -> Iterator[Any]:  # fmt: skip
    """Call ``f``, a program or another function, with each parameter set of a batch; iterate over the results.

    ``batch`` is a list or another iterable of parameter sets: a tuple is the arguments of one call, anything else the
    only argument. Or it is arrays with a leading axis, as for ``vmap``: an array or tensor, or a dict, dataclass or
    named tuple of them, whose rows are the only argument, or a tuple of these, one for each argument.

    ``executor`` is any executor of ``concurrent.futures``, which stays open, or a function that makes one, which is
    shut down in the end: without it, threads, as many as there are processors, or as ``tape.set_num_threads`` was
    told if that is more than one; ``ProcessPoolExecutor(mp_context=...)``,
    ``dask.distributed.Client.get_executor()``, ``mpi4py.futures.MPIPoolExecutor``. All but threads get ``f`` and
    the arguments as pickles; programs are unpickled and made ready once a process. Work begins at once, in chunks
    of ``chunk`` calls, by default four for each worker; of these two are handed over at a time, more as results are
    taken.

    Results come in the order of the batch; with ``ordered=False`` as pairs ``(index, result)``, as they are ready.
    ``progress`` shows a bar if ``tqdm`` is installed. What a call raises is raised, with the number of the parameter
    set as a note, or with ``errors="return"`` stands in the place of its result. A chunk that is lost with its worker
    is run again, alone, at most ``retries`` times, by new workers if they are processes; then its halves are.

    Raises ValueError for arrays of different lengths, TypeError for what is no batch.

    >>> program = tape.record(lambda k, x: (tape.exp(-k * x) ** 2).sum(), 1.0, np.ones(3))
    >>> batch = [(k, np.ones(3)) for k in (0.0, 1.0)]
    >>> [round(value, 3) for value, _ in tape.ensemble(program.value_and_grad, batch)]
    [3.0, 0.406]
    """
    if errors not in ("raise", "return"):
        raise ValueError(f'ensemble: errors is {errors!r}; it may be "raise" or "return"')
    if chunk is not None and chunk < 1:
        raise ValueError(f"ensemble: chunk is {chunk}; it is at least 1")
    sets = sets_of(batch)
    pool = Pool(executor, to_end=errors == "return")
    size = chunk or max(1, math.ceil(len(sets) / (_CHUNKS * pool.workers)))
    run = ChunkRun(f, sets, pool, size, retries, _bar(len(sets)) if progress else None)
    run.submit()
    return _results(run, ordered=ordered, raises=errors == "raise")


def _bar(count: int) -> Any:
    try:
        return importlib.import_module("tqdm.auto").tqdm(total=count, unit="set")
    except ImportError:
        return None


def _results(run: ChunkRun, *, ordered: bool, raises: bool) -> Iterator[Any]:
    ready: dict[int, list[Outcome]] = {}
    at = 0
    for start, outcomes in run.completed():
        if not ordered:
            for i, outcome in enumerate(outcomes, start):
                yield i, _value(i, outcome, raises=raises)
            continue
        ready[start] = outcomes
        while at in ready:
            for outcome in ready.pop(at):
                yield _value(at, outcome, raises=raises)
                at += 1


def _value(index: int, outcome: Outcome, *, raises: bool) -> Any:
    done, value = outcome
    if done or not raises:
        return value
    value.add_note(f"in parameter set {index} of the batch")
    raise value
