"""A nonlinear heat equation whose domain is divided between ranks, beside the same in one process.

``mpirun -n 4 python -m tests.support.heat_by_ranks`` compares them on real ranks, and runs an ensemble on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tape
from tape import mpi

POINTS, STEPS, K = 23, 12, 0.2
WHOLE = np.sin(np.arange(POINTS) * 0.7) + 0.1 * np.arange(POINTS)
TARGET = np.cos(np.arange(POINTS) * 0.3)
WAY = np.cos(np.arange(POINTS) * 1.3)


def loss_of(comm: Any, target: Any, *, periodic: bool, width: int) -> Callable[..., Any]:
    """Return the misfit as a function of this rank's points and a diffusivity that all share."""

    def loss(u: Any, k: Any) -> Any:
        k = mpi.shared(k, comm=comm)
        n = len(u)
        for _ in range(STEPS):
            v = mpi.halo_exchange(u, width, periodic=periodic, fill=0.5, comm=comm)
            flux = v[2 * width :] - 2 * u + v[:n]
            u = u + k * flux * (1 + 0.1 * u * u)
        return mpi.total(((u - target) ** 2).sum(), comm=comm)

    return loss


def whole_loss(*, periodic: bool, width: int) -> Callable[..., Any]:
    """Return the same of the whole domain, without communication."""

    def loss(u: Any, k: Any) -> Any:
        for _ in range(STEPS):
            ends = (u[-width:], u[:width]) if periodic else (tape.full((width,), 0.5),) * 2
            v = tape.cat([ends[0], u, ends[1]])
            u = u + k * (v[2 * width :] - 2 * u + v[:POINTS]) * (1 + 0.1 * u * u)
        return ((u - TARGET) ** 2).sum()

    return loss


def derivatives(loss: Callable[..., Any], u: Any, way: Any, total: Callable[[Any], Any]) -> list[Any]:
    """Return value, gradients, a product with the Hessian and the derivative along a direction, as arrays."""
    value, (by_u, by_k) = tape.value_and_grad(loss, (0, 1))(u, K)
    x, k = tape.tensor(u, requires_grad=True), tape.tensor(K, requires_grad=True)
    slope, by = tape.autograd.grad(loss(x, k), (x, k), create_graph=True)
    second = tape.autograd.grad(total((slope * tape.tensor(way)).sum()) + by, (x, k))
    _, pushed = tape.func.jvp(loss, (tape.tensor(u), tape.tensor(K)), (tape.tensor(way), tape.tensor(1.0)))
    return [by_u, second[0].numpy(), value, by_k, second[1].item(), pushed.item()]


def differences(comm: Any, *, periodic: bool = False, width: int = 1) -> float:
    """Return by how much this rank's results differ from one process's, relative to the largest."""
    mine = np.array_split(np.arange(POINTS), comm.Get_size())[comm.Get_rank()]
    loss = loss_of(comm, TARGET[mine], periodic=periodic, width=width)
    ours = derivatives(loss, WHOLE[mine], WAY[mine], lambda part: mpi.total(part, comm=comm))
    one = derivatives(whole_loss(periodic=periodic, width=width), WHOLE, WAY, lambda part: part)
    pairs = zip(ours, [one[0][mine], one[1][mine], *one[2:]], strict=True)
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)


def square(x: float) -> float:
    """Return what an ensemble's worker is asked for."""
    return x * x


def main() -> None:
    """Compare on the ranks that mpirun started."""
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    comm = MPI.COMM_WORLD
    worst = [differences(comm, periodic=periodic, width=width) for periodic in (False, True) for width in (1, 2)]
    grid = comm.Create_cart([comm.Get_size(), 1])
    worst += [differences(grid.Sub([True, False])), differences(grid.Sub([False, True]))]
    assert max(worst) < 1e-12, worst
    collectives = [(getattr(mpi, name)(np.arange(3.0) + comm.rank)) for name in ("allreduce", "reduce", "bcast")]
    assert np.array_equal(collectives[0], comm.size * (np.arange(3.0) + (comm.size - 1) / 2))
    assert np.array_equal(mpi.allreduce(float(comm.rank), MPI.MAX), comm.size - 1)
    gathered = tape.value_and_grad(lambda x: mpi.allgather(x).amax(0).sum())(np.ones(2) * comm.rank)
    assert np.array_equal(gathered[1], np.full(2, comm.size * (comm.rank == comm.size - 1)))
    assert np.array_equal(mpi.sendrecv(np.ones(2), MPI.PROC_NULL, MPI.PROC_NULL), np.zeros(2))
    with MPICommExecutor(comm) as executor:
        if executor is not None:
            assert list(tape.ensemble(square, np.arange(9.0), executor)) == [x * x for x in range(9)]
            print("all equal on", comm.size)  # noqa: T201 (the test reads it)


if __name__ == "__main__":
    main()
