"""Chunks of parameter sets: handed over, waited for, and run again if they are lost with their worker."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.ensembles.workers import Outcome, Pool
from tape.tensors.pytrees import Structure, flattened, is_structure
from tape.tensors.tensor import Tensor

# The parameter sets of a batch: one by one, or as the rows of arrays.


@dataclass
class Rows:
    """Parameter sets that are the rows of arrays, in a structure of a tuple of arguments."""

    structure: Structure
    arrays: list[Any]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def part(self, start: int, stop: int) -> Rows:
        """Return some of the rows."""
        return Rows(self.structure, [x[start:stop] for x in self.arrays])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for i in range(len(self)):
            yield self.structure.filled([x[i] for x in self.arrays])


class Items(list[tuple[Any, ...]]):
    """Parameter sets one by one, as tuples of arguments."""

    def part(self, start: int, stop: int) -> Items:
        """Return some of them."""
        return Items(self[start:stop])


Sets = Rows | Items


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


def _rows(args: tuple[Any, ...], name: str) -> Rows:
    """Return the rows of arguments; ``name`` is what a batch of one argument, or each of several, is called."""
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
    return Rows(structure, leaves)


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


class Run:
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
                for future in wait(self.running, return_when="FIRST_COMPLETED").done:
                    chunk = self.running.pop(future)
                    outcomes = self._outcomes(future, chunk)
                    if outcomes is not None:
                        if self.bar is not None:
                            self.bar.update(len(outcomes))
                        yield chunk.start, outcomes
                self.submit()
        finally:
            self._close()

    def _outcomes(self, future: Future[list[Outcome]], chunk: _Chunk) -> list[Outcome] | None:
        """Return what a chunk gave; None if it is to run again."""
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
            self.suspects.extend([chunk] if chunk.lost <= self.retries else _halves(chunk, self.retries))
            return None

    def _close(self) -> None:
        for future in self.running:
            future.cancel()
        self.pool.close(wait=not self.running)
        if self.bar is not None:
            self.bar.close()


def _halves(chunk: _Chunk, lost: int) -> list[_Chunk]:
    """Return the halves of a chunk; each may run once more."""
    count = len(chunk.sets)
    ends = ((0, count // 2), (count // 2, count))
    return [_Chunk(chunk.start + start, chunk.sets.part(start, stop), lost) for start, stop in ends]


def _pickled(f: Any) -> Any:
    """Return a function as bytes, to be unpickled once a process; as it is if only the executor can pickle it."""
    try:
        return pickle.dumps(f)
    except Exception:  # noqa: BLE001 (Dask pickles more; others say themselves what is wrong)
        return f
