"""Transforms of what is most often given take one short way, in whatever structure, and give what the long one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.sweeps import reverse
from tape import func, value_and_grad
from tape.tensors import pytrees
from tape.transforms import value_and_grad as gradients


def loss(x: Any, w: Any) -> Any:
    return (x * x * w).sum() + tape.sin(x).sum()


def truth(x: Any, w: Any) -> tuple[Any, Any]:
    return 2.0 * x * w + np.cos(x), np.asarray((x * x).sum())


X, W = np.array([0.5, -1.5, 2.0]), 0.75
DX, DW = truth(X, W)


def as_numbers(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: as_numbers(value) for key, value in found.items()}
    if isinstance(found, (tuple, list)):
        return type(found)(map(as_numbers, found))
    return np.asarray(found.detach() if isinstance(found, tape.Tensor) else found).tolist()


def pair(x: Any, w: Any) -> Any:
    return loss(x, w), {"x": x * 2.0, "n": 3}


def of_dict(p: Any) -> Any:
    return loss(p["x"], p["w"])


def of_nest(p: Any) -> Any:
    return loss(p["x"], p["rest"][0])


BOTH, NAMED, NESTED = (DX, DW), {"x": DX, "w": DW}, {"x": DX, "rest": (DW,)}
FORMS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "grad": (func.grad(loss), DX),
    "of the second": (func.grad(loss, 1), DW),
    "of both": (func.grad(loss, (0, 1)), BOTH),
    "in another order": (func.grad(loss, (1, 0)), BOTH[::-1]),
    "by keyword": (lambda x, w: func.grad(lambda x, *, w: loss(x, w))(x, w=w), DX),
    "dict": (lambda x, w: func.grad(of_dict)({"x": x, "w": w}), NAMED),
    "nest": (lambda x, w: func.grad(of_nest)({"x": x, "rest": (w,)}), NESTED),
    "aux": (func.grad(pair, (0, 1), has_aux=True), (BOTH, {"x": 2.0 * X, "n": 3})),
    "value": (lambda x, w: value_and_grad(loss, (0, 1))(x, w)[1], BOTH),
    "value, aux": (lambda x, w: value_and_grad(lambda p: (of_dict(p), 1), has_aux=True)({"x": x, "w": w})[1], NAMED),
    "vjp": (lambda x, w: func.vjp(loss, x, w)[1](one_like(x)), BOTH),
    "vjp of a dict": (lambda x, w: func.vjp(of_dict, {"x": x, "w": w})[1](one_like(x)), (NAMED,)),
    "vjp to a dict": (
        lambda x, w: func.vjp(lambda *p: {"y": loss(*p)}, x, w)[1]({"y": one_like(x)}),
        BOTH,
    ),
}


def one_like(x: Any) -> Any:
    return tape.tensor(1.0) if isinstance(x, tape.Tensor) else 1.0


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, tensors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    call, wanted = FORMS[form]
    given = (tape.tensor(X), tape.tensor(W)) if tensors else (X, W)
    found = call(*given)
    kinds = {type(leaf) for leaf in pytrees.leaves(found)} - {int}
    assert kinds == {tape.Tensor} if tensors else tape.Tensor not in kinds
    _near(as_numbers(found), as_numbers(wanted))
    monkeypatch.setattr(gradients, "evaluated_at", lambda *_: None)
    _near(as_numbers(found), as_numbers(call(*given)))


def _near(found: Any, wanted: Any) -> None:
    assert pytrees.flattened(found)[1] == pytrees.flattened(wanted)[1]
    pairs = zip(pytrees.leaves(found), pytrees.leaves(wanted), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("form", [name for name in FORMS if "aux" not in name or name == "value, aux"])
def test_no_form_takes_the_long_way(form: str, tensors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not reverse.NATIVE:
        pytest.skip("plain Python has one way")

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("the long way")

    call, _ = FORMS[form]
    call(X, W)
    monkeypatch.setattr(gradients, "Evaluation", refused)
    monkeypatch.setattr(func, "Evaluation", refused)
    call(*((tape.tensor(X), tape.tensor(W)) if tensors else (X, W)))


@pytest.mark.parametrize(
    "given", [3, np.float64(3.0), np.float32(3.0), np.array(3.0), np.array([3.0], np.float32), 3.0]
)
def test_numbers_of_any_kind(given: Any) -> None:
    value, found = value_and_grad(lambda x: (x * x * x).sum())(given)
    assert value == 27.0
    assert np.asarray(found).tolist() == np.full(np.shape(given), 27.0).tolist()
    assert np.asarray(found).dtype == (np.float32 if np.asarray(given).dtype == np.float32 else np.float64)
    (pulled,) = func.vjp(lambda x: (x * x * x).sum(), given)[1](np.asarray(2.0, np.asarray(found).dtype))
    assert np.asarray(pulled).tolist() == np.full(np.shape(given), 54.0).tolist()


def test_a_huge_integer_is_refused_as_before() -> None:
    with pytest.raises((OverflowError, ValueError, TypeError)):
        value_and_grad(lambda x: x * x)(10**400)


def test_results_are_the_callers_own() -> None:
    x, cotangent = np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0])
    y, pull = func.vjp(tape.exp, x)
    y[:], wanted = 0.0, np.exp(x) * cotangent
    (first,) = pull(cotangent)
    np.testing.assert_allclose(first, wanted, rtol=1e-15)
    first[:] = 0.0
    np.testing.assert_allclose(pull(cotangent)[0], wanted, rtol=1e-15)
    (same,) = func.vjp(lambda v: v.reshape(3, 1), x)[1](cotangent.reshape(3, 1))
    assert not np.shares_memory(same, cotangent)
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_what_else_requires_grad_is_reached_through_the_result() -> None:
    s, x = tape.tensor(2.0, requires_grad=True), tape.tensor(3.0)
    y, pull = func.vjp(lambda v: v * v * s, x)
    (found,) = pull(tape.tensor(1.0))
    found.backward()
    assert (y.item(), found.item(), s.grad.item()) == (18.0, 12.0, 6.0)  # type: ignore[union-attr]
    _, _, aux = func.vjp(lambda v: (v * v, v * s), x, has_aux=True)
    assert aux.requires_grad


def test_cotangents_of_another_structure_are_refused() -> None:
    pull = func.vjp(lambda x: {"y": x * x}, 3.0)[1]
    with pytest.raises(RuntimeError, match="pytree structure"):
        pull(1.0)
    with pytest.raises(RuntimeError, match="pytree structure"):
        func.vjp(lambda x: x * x, 3.0)[1]({"y": 1.0})
    assert pull({"y": 1.0}) == (6.0,)


def test_a_pull_that_frees_can_be_called_once() -> None:
    pull = func.vjp(lambda x: tape.sin(x) * x, 1.5)[1]
    first = pull(1.0, retain_graph=False)
    assert first == (pytest.approx(np.sin(1.5) + 1.5 * np.cos(1.5)),)
    with pytest.raises(RuntimeError, match="second time"):
        pull(1.0)


def test_nested() -> None:
    second = func.grad(lambda p: func.grad(lambda q: (q["x"] ** 3).sum())(p)["x"].sum())({"x": X})
    np.testing.assert_allclose(second["x"], 6.0 * X)
