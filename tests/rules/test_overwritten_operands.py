"""For every record: its operands are parts of memories that are written afterwards, and so is its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.routine import Routine
from kernels.operations import OPS
from kernels.rules.op import Op
from tests.support.record_cases import Array, Case, cases_of

RECORDS = [op for op in OPS.values() if op.differentiable]


def case_of(op: Op) -> Case:
    """Return a small case of a record, with as many dims as there are."""
    found = [case for case in cases_of(op) if case.differentiable]
    return found[0]


def spread(array: Array) -> Array:
    """Return an array of which every second element is given: a part of it is no block of memory."""
    return np.repeat(array, 2, axis=-1) if array.ndim else np.repeat(array[None], 2)


def part(x: Any, rank: int) -> Any:
    return x[..., ::2] if rank else x[0]


OVERWRITES: dict[str, Callable[[list[Any], list[Any], Any], None]] = {
    "bases": lambda bases, _parts, _y: [x.zero_() for x in bases],  # type: ignore[func-returns-value]
    "operands": lambda _bases, parts, _y: [x.zero_() for x in parts],  # type: ignore[func-returns-value]
    "result": lambda _bases, _parts, y: y.zero_(),
    "bases by NumPy": lambda bases, _parts, _y: [x.detach().numpy().fill(0) for x in bases],  # type: ignore[func-returns-value]
    "operands by NumPy": lambda _bases, parts, _y: [x.numpy(force=True).fill(0) for x in parts],  # type: ignore[func-returns-value]
    "result by NumPy": lambda _bases, _parts, y: np.asarray(y.detach()).fill(0),
    "halves": lambda bases, _parts, y: [x[..., :1].zero_() for x in (*bases, y) if x.shape],  # type: ignore[func-returns-value]
}


def gradients(case: Case, overwrite: str | None, *, second: bool = False) -> list[Array]:
    leaves = [tape.tensor(spread(view(x))) for view, x in zip(case.views, case.leaves(np.float64), strict=True)]
    ranks = [view(x).ndim for view, x in zip(case.views, case.leaves(np.float64), strict=True)]
    wanted = [x.requires_grad_() for x in leaves if x.dtype.kind == "f"]
    bases = [x.clone() for x in leaves]
    parts = [part(x, rank) for x, rank in zip(bases, ranks, strict=True)]
    y = case.call(*parts)
    loss = y * y
    if overwrite is not None:
        OVERWRITES[overwrite](bases, parts, y)
    weights = np.random.default_rng(1).uniform(0.5, 1.5, loss.shape)
    found = tape.autograd.grad(loss, wanted, tape.tensor(weights), materialize_grads=True, create_graph=second)
    if second:
        total = sum(((g * g).sum() for g in found), tape.zeros(()))
        found = tape.autograd.grad(total, wanted, materialize_grads=True)
    return [g.numpy() for g in found]


@pytest.mark.parametrize("op", RECORDS, ids=lambda op: op.name)
def test_writes_after_an_operation_change_no_gradient(op: Op) -> None:
    case = case_of(op)
    expected = gradients(case, None)
    for overwrite in OVERWRITES:
        found = gradients(case, overwrite)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"{case.name}, {overwrite}")


@pytest.mark.parametrize("op", [op for op in RECORDS if isinstance(op, Routine)], ids=lambda op: op.name)
def test_all_samples_of_routines(op: Routine) -> None:
    for case in cases_of(op):
        expected = gradients(case, None)
        for overwrite in ("bases", "result"):
            for one, other in zip(gradients(case, overwrite), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"{case.name}, {overwrite}")


@pytest.mark.parametrize("op", [op for op in RECORDS if isinstance(op, Routine)], ids=lambda op: op.name)
def test_second_gradients_after_a_write(op: Routine) -> None:
    case = case_of(op)
    try:
        expected = gradients(case, None, second=True)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        pytest.skip(f"no second gradient: {error}")
    for overwrite in ("operands", "result"):
        for one, other in zip(gradients(case, overwrite, second=True), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10, err_msg=f"{case.name}, {overwrite}")


def array_gradients(case: Case, given: int, way: Callable[[Array], Any], *, overwrite: bool) -> list[Array] | None:
    """Return gradients where operand ``given`` is an array, or a tensor made of one, overwritten after the call."""
    leaves = [view(x) for view, x in zip(case.views, case.leaves(np.float64), strict=True)]
    array = np.array(leaves[given])
    operands: list[Any] = [tape.tensor(x) for x in leaves]
    wanted = [x.requires_grad_() for k, x in enumerate(operands) if x.dtype.kind == "f" and k != given]
    operands[given] = way(array)
    if not wanted or (y := case.call(*operands))._slot is None:
        return None
    loss = y * y
    if overwrite:
        array[...] = 1 if array.dtype.kind == "f" else 0
    weights = np.random.default_rng(1).uniform(0.5, 1.5, loss.shape)
    return [g.numpy() for g in tape.autograd.grad(loss, wanted, tape.tensor(weights), materialize_grads=True)]


WAYS: dict[str, Callable[[Array], Any]] = {
    "array": lambda a: a, "part": lambda a: a[...], "from_numpy": tape.from_numpy, "as_tensor": tape.as_tensor,
}  # fmt: skip


@pytest.mark.parametrize("copied", [0, 1 << 9], ids=["kept", "copied at once"])
@pytest.mark.parametrize("op", [op for op in RECORDS if len(op.inputs) > 1], ids=lambda op: op.name)
def test_arrays_written_after_an_operation_change_no_gradient(
    op: Op, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.tensors.operands.COPIED", copied)
    case = case_of(op)
    for given in range(len(case.views)):
        for name, way in WAYS.items():
            try:
                expected = array_gradients(case, given, way, overwrite=False)
            except TypeError:
                continue  # it takes tensors only
            for _ in range(3 if expected else 0):  # Python's call, and native ones
                found = array_gradients(case, given, way, overwrite=True)
                assert found is not None
                for one, other in zip(found, expected or (), strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"{case.name} {given} {name}")


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "prod": lambda x: x.prod(1), "var": lambda x: x.var(1), "std": lambda x: x.std(), "norm": lambda x: x.norm(),
    "cumprod": lambda x: x.cumprod(1), "cummax": lambda x: x.cummax(1).values, "mode": lambda x: x.mode(1).values,
    "logcumsumexp": lambda x: x.logcumsumexp(1), "median": lambda x: x.median(1).values, "max": lambda x: x.max(),
    "topk": lambda x: x.topk(2, 1).values, "softmax": lambda x: x.softmax(1), "mul": lambda x: x * x * x,
    "matmul": lambda x: x @ x.T, "hypot": lambda x: x.hypot(x * 2.0), "amax": lambda x: x.amax(1),
    "logsumexp": lambda x: x.logsumexp(1), "prod of all": lambda x: x.prod(), "inv": lambda x: tape.linalg.inv(x @ x.T),
}  # fmt: skip


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_strided_leaf_that_is_written_without_gradients(name: str, *, second: bool) -> None:
    values = np.random.default_rng(0).uniform(0.5, 1.5, (3, 8))
    found = []
    for overwritten in (False, True):
        leaf = tape.from_numpy(values.copy()[:, ::2]).requires_grad_()
        loss = (FUNCTIONS[name](leaf) ** 2.0).sum()
        if overwritten:
            with tape.no_grad():
                leaf.mul_(-3.0)
        (g,) = tape.autograd.grad(loss, leaf, create_graph=second)
        found.append(tape.autograd.grad((g * g).sum(), leaf)[0] if second else g)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)


@pytest.mark.parametrize("kind", [bool, np.int32, np.float32])
def test_tensors_of_all_kinds_are_set_to_zero(kind: Any) -> None:
    x = tape.ones(3, dtype=kind)
    assert x.zero_().tolist() == [0, 0, 0]
    assert x.dtype == kind


def test_a_function_that_saves_a_part() -> None:
    class Cube(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3.0 * g * x * x

    leaf = tape.tensor(np.arange(8.0).reshape(2, 4), requires_grad=True)
    x = leaf * 1.0
    y = Cube.apply(x[:, ::2])
    x.mul_(-1.0)
    (g,) = tape.autograd.grad(y.sum(), leaf, create_graph=True)
    expected = np.zeros((2, 4))
    expected[:, ::2] = 3 * np.arange(8.0).reshape(2, 4)[:, ::2] ** 2
    np.testing.assert_array_equal(g.detach(), expected)
    (h,) = tape.autograd.grad(g.sum(), leaf)
    expected[:, ::2] = 6 * np.arange(8.0).reshape(2, 4)[:, ::2]
    np.testing.assert_array_equal(h, expected)
