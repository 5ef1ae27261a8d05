"""`tape.mpi`: ranks that are threads, and real ones, get what one process gets; what does not match is refused."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError
from tape import mpi
from tape.errors import CompileWarning
from tests.conftest import ROOT
from tests.support.heat_by_ranks import differences
from tests.support.ranks_of_threads import on_ranks

pytestmark = pytest.mark.quick
grad = tape.func.grad

# A simulation whose domain is divided: value, gradients, second derivatives, forward mode.


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(("periodic", "width"), [(False, 1), (True, 2)])
def test_a_divided_domain_gives_what_one_process_gives(size: int, width: int, *, periodic: bool) -> None:
    assert max(on_ranks(size, lambda comm: differences(comm, periodic=periodic, width=width))) < 1e-12


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_real_ranks(size: int) -> None:
    if importlib.util.find_spec("mpi4py") is None or shutil.which("mpirun") is None:
        pytest.skip("mpi4py or mpirun is not installed")
    allowed = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    more = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    command = ["mpirun", "-n", str(size), sys.executable, "-m", "tests.support.heat_by_ranks"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **allowed, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"all equal on {size}" in done.stdout


# Each operation beside the same on all ranks' arrays at once, of which every rank's result is a row.

POINTS = np.array([[0.3, -0.5, 0.7], [1.1, 0.2, -0.4], [-0.9, 0.6, 0.8]])
WEIGHTS = np.array([[1.0, 2.0, 3.0], [0.5, 4.0, 1.0], [2.0, 0.1, 0.3]])
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "allreduce": (mpi.allreduce, lambda x: x.sum(0).expand(3, 3)),
    "bcast": (lambda x, comm: mpi.bcast(x, 1, comm=comm), lambda x: x[1].expand(3, 3)),
    "reduce": (
        lambda x, comm: mpi.reduce(x, 2, comm=comm),
        lambda x: tape.cat([tape.zeros(2, 3), x.sum(0).reshape(1, 3)]),
    ),
    "allgather": (
        lambda x, comm: mpi.allgather(x, comm=comm)[::2].sum(0),
        lambda x: (x[0] + x[2]).expand(3, 3),
    ),
    "sendrecv": (
        lambda x, comm: mpi.sendrecv(x, (comm.rank + 1) % 3, (comm.rank - 1) % 3, comm=comm),
        lambda x: x[tape.tensor([2, 0, 1])],
    ),
    "sendrecv of nobody": (
        lambda x, comm: (
            mpi.sendrecv(x, comm.rank + 1 if comm.rank < 2 else None, comm.rank - 1 or 0, comm=comm)
            if comm.rank
            else mpi.sendrecv(x, 1, None, comm=comm)
        ),
        lambda x: tape.cat([tape.zeros(1, 3), x[:2]]),
    ),
    "halo_exchange": (
        lambda x, comm: mpi.halo_exchange(x, periodic=True, comm=comm)[:3],
        lambda x: tape.cat([x.roll(1, 0)[:, 2:], x[:, :2]], 1),
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_what_one_process_computes(name: str) -> None:
    ours, whole = OPERATIONS[name]
    w = tape.tensor(WEIGHTS)

    def loss(x: Any) -> Any:
        return (w * whole(x**2) ** 3).sum()

    def curved(x: Any) -> Any:
        return (grad(loss)(x) * w).sum()

    x = tape.tensor(POINTS)
    expected = [whole(x), grad(loss)(x), grad(curved)(x), tape.func.jvp(whole, (x,), (w,))[1]]

    def on_rank(comm: Any) -> list[Any]:
        x, w = tape.tensor(POINTS[comm.rank]), tape.tensor(WEIGHTS[comm.rank])

        def part(x: Any) -> Any:
            return (w * ours(x**2, comm=comm) ** 3).sum()

        batch = tape.vmap(lambda y: ours(y, comm=comm))(tape.stack([x, 2 * x]))
        assert batch[1].tolist() == ours(2 * x, comm=comm).tolist()
        assert tape.vmap(lambda y: ours(y, comm=comm), in_dims=1)(x.reshape(3, 1)).tolist() == batch[:1].tolist()
        gradients = tape.vmap(grad(part))(tape.stack([x, x])).numpy()
        np.testing.assert_allclose(gradients[1], grad(part)(x).numpy(), rtol=1e-13)
        array = ours(POINTS[comm.rank], comm=comm)
        assert isinstance(array, np.ndarray)
        assert array.tolist() == batch[0].tolist()
        curve = grad(lambda x: (grad(part)(x) * w).sum())(x)
        return [ours(x, comm=comm), grad(part)(x), curve, tape.func.jvp(lambda y: ours(y, comm=comm), (x,), (w,))[1]]

    for got, wanted in zip(zip(*on_ranks(3, on_rank), strict=True), expected, strict=True):
        np.testing.assert_allclose(np.stack([y.detach().numpy() for y in got]), wanted.numpy(), rtol=1e-12)


def test_a_total_is_taken_once_and_a_sum_by_each_rank() -> None:
    def slopes(comm: Any) -> Any:
        x = np.ones(2)
        once = tape.value_and_grad(lambda x: mpi.total((x**2).sum(), comm=comm))(x)
        each = tape.value_and_grad(lambda x: mpi.allreduce((x**2).sum(), comm=comm))(x)
        return once[0], once[1][0], each[0], each[1][0]

    assert on_ranks(3, slopes) == [(6.0, 2.0, 6.0, 6.0)] * 3


def test_numbers_integers_and_single_precision() -> None:
    def gathered(comm: Any) -> Any:
        integers = mpi.halo_exchange(np.arange(6).reshape(2, 3) + 10 * comm.rank, axis=-1, fill=None, comm=comm)
        x = tape.ones(2, dtype=tape.float32, requires_grad=True)
        mpi.join(mpi.halo_exchange(x, 2, fill=7.0, comm=comm).sum(), x).backward()
        return mpi.allreduce(1.5, comm=comm), mpi.bcast(comm.rank, 1, comm=comm), integers.tolist(), x.grad

    (a, b, low, g), (*_, high, _) = on_ranks(2, gathered)
    assert (a, b, g.dtype, g.tolist()) == (3.0, 1, tape.float32, [2.0, 2.0])
    assert (low, high) == ([[0, 1, 2, 10], [3, 4, 5, 13]], [[2, 10, 11, 12], [5, 13, 14, 15]])
    assert mpi.allreduce(2.0, max, comm=on_ranks(1, lambda comm: comm)[0]) == 2.0


# Sends, and what is joined.


def test_a_pipeline() -> None:
    def stage(comm: Any) -> Any:
        x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
        if comm.rank == 0:
            loss = mpi.join(0.0, mpi.send(x**2, 1, comm=comm))
        else:
            loss = (mpi.recv(x, 0, comm=comm) ** 2 * x).sum()
        (g,) = tape.autograd.grad(loss, x, create_graph=True)
        mpi.join(g.sum(), g).backward()
        return g.tolist(), x.grad.tolist()

    x = np.array([1.0, 2.0, 3.0])  # of x**2 squared, times y
    first, second = on_ranks(2, stage)
    assert first == ((4 * x**3 * x).tolist(), (12 * x**2 * x + 4 * x**3).tolist())
    assert second == ((x**4).tolist(), (4 * x**3).tolist())


def test_a_loss_of_one_rank_alone_and_its_curvature() -> None:
    def steps(u: Any, comm: Any) -> Any:
        for _ in range(3):
            v = mpi.halo_exchange(u, comm=comm)
            u = u + 0.1 * (v[2:] - 2 * v[1:-1] + v[:-2]) * u
        return u

    def on_rank(comm: Any, points: Any = None) -> Any:
        u = tape.tensor(np.arange(3.0) + comm.rank if points is None else points, requires_grad=True)
        end = steps(u, comm)
        part = end[1] ** 2 if comm.rank == 0 else mpi.join(0.0, end)
        (g,) = tape.autograd.grad(mpi.total(part, comm=comm), u, create_graph=True)
        return g.detach().numpy(), tape.autograd.grad(mpi.total(g.sum(), comm=comm), u)[0].numpy()

    ((g, h),) = on_ranks(1, lambda comm: on_rank(comm, np.r_[np.arange(3.0), np.arange(3.0) + 1]))
    for i, parts in enumerate(zip(*on_ranks(2, on_rank), strict=True)):
        np.testing.assert_allclose(np.concatenate(parts), (g, h)[i], rtol=1e-12)


def test_second_derivatives_where_much_was_recorded_before() -> None:
    """Tapes drop what is dead between two of them; the tokens on which the way back depends are recorded again."""
    assert max(max(on_ranks(2, lambda comm: [differences(comm) for _ in range(3)]))) < 1e-12


def test_checkpoints_communicate_again() -> None:
    def on_rank(comm: Any, run: Callable[..., Any]) -> Any:
        def step(u: Any) -> Any:
            v = mpi.halo_exchange(u, comm=comm)
            return u + 0.1 * (v[2:] - 2 * v[1:-1] + v[:-2]) * u

        def loss(u: Any) -> Any:
            for _ in range(4):
                u = run(step, u)
            return mpi.total((u**2).sum(), comm=comm)

        return tape.value_and_grad(loss)(np.arange(4.0) + comm.rank)[1].tolist()

    assert on_ranks(2, lambda comm: on_rank(comm, tape.checkpoint)) == on_ranks(
        2, lambda comm: on_rank(comm, lambda f, u: f(u))
    )


# Programs.


def test_compiled_functions_stay_dynamic_and_are_never_stale() -> None:
    def on_rank(comm: Any) -> Any:
        state = np.ones(2)
        inner = tape.compile(lambda v: v[1:-1] + 0.1 * (v[2:] - v[:-2]) ** 2)

        @tape.compile
        def f(x: Any) -> Any:
            return (inner(mpi.halo_exchange(x, comm=comm)) * mpi.allreduce(state, comm=comm)).sum()

        values = []
        for _ in range(6):
            values.append(f(np.ones(2)))
            state += 1
        return values, f.calls["recorded"] + f.calls["dynamic"], "communicates" in f.explain()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        (values, calls, said), other = on_ranks(2, on_rank)
    assert np.allclose(values, np.arange(1, 7) * values[0])
    assert (calls, said, other[0]) == (6, True, values)


def test_programs_refuse() -> None:
    def on_rank(comm: Any) -> Any:
        with pytest.raises(ProgramError, match="do not communicate"):
            tape.record(lambda x: mpi.total(x.sum(), comm=comm), np.ones(3))

    on_ranks(2, on_rank)


# What does not match.


def crossed(comm: Any, operation: Callable[..., Any]) -> None:
    """Have the ranks go back through different communications."""
    x = tape.ones(3, requires_grad=True)
    both = operation(x), operation(2 * x)
    (both[comm.rank] ** 2).sum().backward()


def swapped(x: Any, comm: Any) -> Any:
    """Return what the other of two ranks has."""
    return mpi.sendrecv(x, 1 - comm.rank, 1 - comm.rank, comm=comm)


LEAF = {"requires_grad": True}
REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any], Any]]] = {
    "shapes": (RuntimeError, r"allreduce of float64\[1\].*allreduce of float64\[2\]",
               lambda comm: mpi.allreduce(np.ones(comm.rank + 1), comm=comm)),
    "operations": (RuntimeError, "rank 0: bcast.*rank 1: allgather",
                   lambda comm: (mpi.allgather if comm.rank else mpi.bcast)(np.ones(2), comm=comm)),
    "grad of one": (RuntimeError, "rank 0: allreduce.*which requires grad; rank 1",
                    lambda comm: mpi.allreduce(tape.ones(2, requires_grad=comm.rank == 0), comm=comm)),
    "grad that is not taken": (RuntimeError, "rank 0 sends rank 1 what requires grad",
                               lambda comm: mpi.recv(np.ones(2), 0, comm=comm) if comm.rank
                               else mpi.send(tape.ones(2, **LEAF), 1, comm=comm)),
    "a message": (RuntimeError, r"waits for values float64\[2, 1\] of rank 0",
                  lambda comm: mpi.recv(np.ones((2, 1)), 0, comm=comm) if comm.rank
                  else mpi.send(np.ones(2), 1, comm=comm)),
    "order of sums": (RuntimeError, r"rank 0: gradient allreduce.* no\. \d+; rank 1",
                      lambda comm: crossed(comm, lambda x: mpi.allreduce(x, comm=comm))),
    "order of messages": (RuntimeError, "waits for gradient",
                          lambda comm: crossed(comm, partial(swapped, comm=comm))),
    "a total used otherwise": (RuntimeError, "total: its gradient differs",
                               lambda comm: (mpi.total(tape.ones((), **LEAF), comm=comm) * comm.rank).backward()),
    "what is not shared": (RuntimeError, "shared: the values differ", lambda comm: mpi.shared(comm.rank, comm=comm)),
    "maxima": (NotImplementedError, "allgather", lambda comm: mpi.allreduce(tape.ones(2, **LEAF), max, comm=comm)),
    "any source": (ValueError, "ANY_SOURCE", lambda comm: mpi.recv(np.ones(2), -1, comm=comm)),
    "any tag": (ValueError, "ANY_TAG", lambda comm: mpi.send(np.ones(2), 0, -1, comm=comm)),
    "width": (ValueError, "width 4 of 3 points", lambda comm: mpi.halo_exchange(np.ones((2, 3)), 4, 1, comm=comm)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_match_is_refused(name: str) -> None:
    error, match, f = REFUSED[name]
    with pytest.raises(error, match=match):
        on_ranks(2, f)


def test_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"pip install 'tape-autograd\[mpi\]'"):
        mpi.allreduce(1.0)
