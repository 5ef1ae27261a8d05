"""Routines on small rows: kernels compute them, their pullbacks and their pushforwards, as the records say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.routine import Routine, RoutineCall, computed
from kernels.operations import OPS
from tape.autograd import grad
from tape.recording import foreign_calls
from tape.recording.cached_calls import NATIVELY

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4, 5))
SPECIAL = np.array(
    [
        [0.0, -0.0, 1.0, 1.0, -1.0],
        [np.nan, 2.0, np.nan, -np.inf, 0.5],
        [np.inf, 1e300, -1e300, np.inf, 3.0],
        [1e-300, -2e-300, 0.0, 1e-310, 5e-324],
        [-0.0, 0.0, -0.0, 0.0, 0.0],
        [-np.inf] * 5,
    ]
)
DIMS = {"dims": [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (0, 2)], "dim": [0, 1, 2]}
OTHERS: dict[str, dict[str, Any]] = {
    "var": {"correction": 1.0, "keepdim": False}, "std": {"correction": 0.0, "keepdim": True},
    "prod": {"keepdim": True}, "prod_dim": {"keepdim": False}, "vector_norm": {"order": 2.0, "keepdim": False},
    "norm of order 1": {"order": 1.0, "keepdim": True}, "sort": {"descending": False},
    "sort down": {"descending": True}, "topk": {"k": 2, "largest": True}, "topk of all": {"k": 3, "largest": False},
    "kthvalue": {"rank": 1, "keepdim": True}, "median": {"keepdim": False}, "nanmedian": {"keepdim": True},
    "mode": {"keepdim": False}, "standardize": {"eps": 0.1},
}  # fmt: skip
NAMED = {"norm of order 1": "vector_norm", "sort down": "sort", "topk of all": "topk"}
NATIVE = [name for name, op in OPS.items() if isinstance(op, Routine) and (op.native or op.rows) and name != "matmul"]
CASES = [name for name in [*NATIVE, *NAMED] if {"dim", "dims"} & set(OPS[NAMED.get(name, name)].params)]  # type: ignore[attr-defined]


def calls(name: str) -> list[tuple[Any, dict[str, Any]]]:
    """The record, and parameters for each dim or dims."""
    op: Any = OPS[NAMED.get(name, name)]
    what = "dims" if "dims" in op.params else "dim"
    return [(op, {what: d, **OTHERS.get(name, {})}) for d in DIMS[what]]


def test_all_are_here() -> None:
    assert {"cumsum", "softmax", "log_softmax", "prod", "var", "std", "vector_norm", "sort", "topk", "cummax"} <= {
        *CASES
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dtype: Any) -> None:
    x = X.astype(dtype)
    for op, params in calls(name):
        for given in (x, np.asfortranarray(x), x[:, ::2], x[:1, :1, :1]):
            if op.name in ("topk", "kthvalue", "var") and given.size < x.size:
                continue
            found, expected = (computed(op, [given], params), op.forward(given, **params))
            pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
            for a, b in pairs:
                assert a.dtype == b.dtype
                assert a.shape == b.shape
                np.testing.assert_allclose(
                    a, b, rtol=1e-13 if dtype == np.float64 else 2e-6, atol=1e-6 * (dtype != np.float64)
                )


@pytest.mark.parametrize("name", CASES)
def test_special_values(name: str) -> None:
    for op, params in calls(name)[1:2]:
        with np.errstate(all="ignore"):
            found, expected = computed(op, [SPECIAL], params), op.forward(SPECIAL, **params)
        if not isinstance(found, tuple):
            np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-320)
            continue
        np.testing.assert_array_equal(found[0], expected[0])
        if op.name != "topk":  # of equals any
            np.testing.assert_array_equal(found[1], expected[1])
        wide = found[1] if found[1].ndim == SPECIAL.ndim else found[1][:, None]
        picked = np.take_along_axis(SPECIAL, wide, 1).reshape(found[0].shape)
        np.testing.assert_array_equal(picked, found[0])
        np.testing.assert_array_equal(np.signbit(picked), np.signbit(found[0]))


def results(op: Any, x: Any, params: dict[str, Any]) -> Any:
    found = foreign_calls.call(op, x, **params)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("zeros", [False, True], ids=["any", "zeros"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_rule(name: str, dtype: Any, zeros: bool) -> None:
    x = np.asarray(np.where(RNG.random(X.shape) < 0.3, 0.0, X) if zeros else X, dtype)
    close = 1e-12 if dtype == np.float64 else 3e-5
    for op, params in calls(name):
        leaf = tape.tensor(x, requires_grad=True)
        y = results(op, leaf * 1.0, params)
        g = np.asarray(RNG.normal(size=y.shape), dtype)
        y.backward(tape.tensor(g))
        parts = computed(op, [x], params)
        parts = parts if isinstance(parts, tuple) else (parts,)
        values = {"x": x, "y": parts[0], **dict(zip(op.extras, parts[1:], strict=True))}
        with np.errstate(all="ignore"):
            (expected,) = RoutineCall(op, params, (y.shape,)).gradients(g, values, [leaf.spec])
            np.testing.assert_allclose(leaf.grad.numpy(), expected + 0.0, rtol=close, atol=close)


@pytest.mark.parametrize("name", CASES)
def test_tangents_batches_and_higher_orders(name: str) -> None:
    w, t = RNG.normal(size=(2, *X.shape))
    for op, params in calls(name)[-2:]:

        def f(x: Any, op: Any = op, params: dict[str, Any] = params) -> Any:
            return results(op, x, params)

        x = tape.tensor(X, requires_grad=True)
        y = f(x)
        g = RNG.normal(size=(2, *y.shape))
        rows = grad(f(x), x, tape.tensor(g), is_grads_batched=True)[0].numpy()
        for row, one in zip(rows, g, strict=True):
            np.testing.assert_allclose(row, grad(f(x), x, tape.tensor(one))[0].numpy(), rtol=1e-13, atol=1e-14)
        value, tangent = tape.func.jvp(f, (x.detach(),), (tape.tensor(t),))
        np.testing.assert_array_equal(value.numpy(), y.detach().numpy())
        (along,) = grad(f(x), x, tape.tensor(g[0]))
        np.testing.assert_allclose((tangent.numpy() * g[0]).sum(), (along.numpy() * t).sum(), rtol=1e-11, atol=1e-12)
        (first,) = grad(f(x), x, tape.tensor(g[0]), create_graph=True)
        np.testing.assert_allclose(first.detach().numpy(), along.numpy(), rtol=1e-12, atol=1e-14)
        if first.requires_grad and first.grad_fn is not None and "Index" not in first.grad_fn.name():
            (second,) = grad((first * tape.tensor(w)).sum(), x, allow_unused=True)
            if second is not None:
                assert np.isfinite(second.numpy()).all()


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str) -> None:
    op, params = calls(name)[1]

    def loss(x: Any) -> Any:
        return (results(op, x * 1.5, params) ** 2).sum()

    program = tape.record(loss, X)
    other = RNG.normal(size=X.shape)
    for given in (X, other):
        value, (gradient,) = program.value_and_grad(given)
        x = tape.tensor(given, requires_grad=True)
        fresh = loss(x)
        fresh.backward()
        np.testing.assert_allclose(value, fresh.item(), rtol=1e-14 * (not NATIVELY))
        if NATIVELY:
            np.testing.assert_array_equal(gradient, x.grad.numpy())
        np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-13, atol=1e-14)


def test_a_cut_row_contributes_nothing() -> None:
    x = tape.tensor([[np.inf, 1.0], [2.0, 3.0]], requires_grad=True)
    for function in (lambda x: x.prod(1), lambda x: x.var(1), lambda x: x.std(1)):
        x.grad = None
        y = function(x)
        tape.where(tape.tensor([False, True]), y, 0.0).sum().backward()
        assert x.grad[0].tolist() == [0.0, 0.0]
        assert np.isfinite(x.grad[1].numpy()).all()
