"""Ranks that are threads of one process: communicators with the methods of mpi4py's that `tape.mpi` calls."""

# ruff: noqa: N802 (mpi4py's names)

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from typing import Any

import numpy as np

PATIENCE = 20.0
"""Seconds until a rank that waits gives up."""


class World:
    """What ranks share: mailboxes, and a table where all lay down what the others read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes: dict[Any, Queue[tuple[np.ndarray, threading.Event]]] = {}
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.table: list[Any] = [None] * size

    def box(self, source: int, dest: int, tag: int) -> Queue[tuple[np.ndarray, threading.Event]]:
        """Return the mailbox of what goes from one rank to another; the same for both, who may ask at once."""
        return self.boxes.setdefault((source, dest, tag), Queue())


class Request:
    """Something that is waited for."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.Wait = wait


class Rank:
    """One rank's communicator."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.world.size

    def Issend(self, data: np.ndarray, dest: int, tag: int) -> Request:
        received = threading.Event()
        self.world.box(self.rank, dest, tag).put((data.copy(), received))

        def wait() -> None:
            if not received.wait(PATIENCE):
                raise TimeoutError(f"rank {dest} does not receive from rank {self.rank}")

        return Request(wait)

    def Irecv(self, buffer: np.ndarray, source: int, tag: int) -> Request:
        def wait() -> None:
            try:
                data, received = self.world.box(source, self.rank, tag).get(timeout=PATIENCE)
            except Empty:
                raise TimeoutError(f"rank {source} does not send to rank {self.rank}") from None
            if data.size > buffer.size:
                raise ValueError("message truncated")
            buffer[: data.size] = data
            received.set()

        return Request(wait)

    def allgather(self, x: Any) -> list[Any]:
        self.world.table[self.rank] = x
        self.world.barrier.wait()
        table = list(self.world.table)
        self.world.barrier.wait()
        return table

    def Allgather(self, a: np.ndarray, result: np.ndarray) -> None:
        result[...] = np.stack(self.allgather(a.copy())).reshape(result.shape)

    def Allreduce(self, a: np.ndarray, result: np.ndarray, op: Callable[..., Any] = sum) -> None:
        result[...] = op(self.allgather(a.copy()))

    def Reduce(self, a: np.ndarray, result: np.ndarray, root: int) -> None:
        total = sum(self.allgather(a.copy()))
        if self.rank == root:
            result[...] = total

    def Reduce_scatter_block(self, a: np.ndarray, result: np.ndarray) -> None:
        result[...] = sum(self.allgather(a.copy()))[self.rank]

    def Bcast(self, a: np.ndarray, root: int) -> None:
        a[...] = self.allgather(a.copy())[root]


def on_ranks(size: int, f: Callable[[Any], Any]) -> list[Any]:
    """Call a function with the communicators of so many ranks at once; return the results, or raise the first error."""
    world = World(size)

    def run(rank: int) -> Any:
        try:
            return f(Rank(world, rank))
        except BaseException:
            world.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        futures = [threads.submit(run, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda x: isinstance(x, (threading.BrokenBarrierError, TimeoutError))):
        raise error
    return [future.result() for future in futures]
