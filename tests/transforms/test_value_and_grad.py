"""value_and_grad and the transforms of arrays and structures: what goes in, what comes out, and how they compose."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape import value_and_grad
from tape.errors import DetachWarning
from tape.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp


class Affine(NamedTuple):
    """Named."""

    w: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Layer:
    """A dataclass with fields that are no arrays."""

    w: Any
    b: Any = 0.5
    name: str = "tanh"
    width: int = 2
    act: Callable[..., Any] = np.tanh


@dataclass
class Model:
    """Structures in structures."""

    layers: list[Layer]
    scales: dict[str, Any] = field(default_factory=dict)


W, V, X = np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([0.3, -0.7]), np.array([0.2, 0.9])


def predicted(p: Any, x: Any) -> Any:
    for layer in p.layers:
        x = layer.act(layer.w @ x + layer.b) * layer.width
    return (x * p.scales["out"]).sum() + p.scales["shift"] ** 2


LOSSES: dict[str, tuple[Callable[..., Any], Any]] = {
    "array": (lambda p: (p**3).sum(), V),
    "number": (lambda p: p**3, 1.5),
    "int": (lambda p: p**3, 2),
    "NumPy's number": (lambda p: p**3, np.float64(1.5)),
    "whole array of ints": (lambda p: (p**3).sum(), np.array([1, 2, 3])),
    "dict": (lambda p: ((p["w"] @ X + p["b"]) ** 2).sum() * p["s"], {"w": W, "b": V, "s": 2}),
    "list": (lambda p: (p[0] @ p[1][0]).sum() * p[1][1], [W, (V, 0.5)]),
    "named tuple": (lambda p: ((p.w @ X + p.b) ** 2).sum(), Affine(W, 1.0)),
    "dataclass": (lambda p: predicted(p, X), Model([Layer(W), Layer(W.T, V)], {"out": 1.5, "shift": V[0]})),
    "with None": (lambda p: (p["w"] * 2).sum() + (p["b"] is None), {"w": V, "b": None}),
    "unused": (lambda p: (p["a"] * 2).sum(), {"a": V, "b": W}),
}


def by_differences(f: Callable[..., Any], p: Any) -> Any:
    """Return the gradient by central differences, in the structure of p."""
    from tape.tensors.pytrees import flattened

    leaves, structure = flattened(p)

    def moved(k: int, place: int, step: float) -> float:
        changed = [np.array(x, dtype=np.float64, order="C") for x in leaves]
        changed[k].reshape(-1)[place] += step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = f(structure.filled(tape.tensor(x) for x in changed))
        return float(found.item())

    return structure.filled(
        np.array([(moved(k, i, 1e-5) - moved(k, i, -1e-5)) / 2e-5 for i in range(np.size(x))]).reshape(np.shape(x))
        for k, x in enumerate(leaves)
    )


def as_tensors(p: Any) -> Any:
    from tape.tensors.pytrees import flattened

    leaves, structure = flattened(p)
    return structure.filled(tape.tensor(np.asarray(x, np.float64)) for x in leaves)


def check(found: Any, expected: Any, kind: Any) -> None:
    """Compare two structures, whose leaves are to be of a kind."""
    from tape.tensors.pytrees import flattened

    (leaves, structure), (others, other) = flattened(found), flattened(expected)
    assert structure == other
    for leaf, right in zip(leaves, others, strict=True):
        assert isinstance(leaf, float if kind is np.ndarray and np.ndim(right) == 0 else kind)
        assert np.shape(leaf) == np.shape(right)
        np.testing.assert_allclose(np.asarray(leaf), np.asarray(right), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_structures(name: str) -> None:
    f, p = LOSSES[name]
    expected = by_differences(f, p)
    value, gradient = value_and_grad(f)(p)
    assert isinstance(value, float)
    check(gradient, expected, np.ndarray)
    check(grad(f)(p), expected, np.ndarray)
    for found, kind in ((value_and_grad(f)(as_tensors(p)), tape.Tensor), (value_and_grad(f)(p), np.ndarray)):
        check(found[1], expected, kind)
    value, gradient = value_and_grad(f)(as_tensors(p))
    assert isinstance(value, tape.Tensor)
    assert not value.requires_grad


def test_arguments() -> None:
    def f(scale: Any, p: Any, kind: str, n: int, call: Any, *, power: Any, off: Any = None) -> Any:
        assert (kind, n, call, off) == ("sum", 3, np.sin, None)
        return (call(p) ** power * scale).sum() * n

    rest = ("sum", 3, np.sin)
    value, gradient = value_and_grad(f, argnums=1)(2.0, V, *rest, power=2)
    assert value == pytest.approx(6 * (np.sin(V) ** 2).sum())
    np.testing.assert_allclose(gradient, 12 * np.sin(V) * np.cos(V))
    _, (by_p, by_scale) = value_and_grad(f, argnums=(1, 0))(2.0, V, *rest, power=2)
    np.testing.assert_array_equal(by_p, gradient)
    assert by_scale == pytest.approx(value / 2)
    _, (only,) = value_and_grad(f, argnums=[-4])(2.0, V, *rest, power=2)
    np.testing.assert_array_equal(only, gradient)
    partial = functools.partial(f, power=2)
    assert value_and_grad(lambda p: partial(2.0, p, *rest))(V)[0] == value


@pytest.mark.parametrize("tensors", [False, True])
def test_aux(tensors: bool) -> None:
    def f(p: Any) -> Any:
        return (p["w"] ** 2).sum(), {"twice": p["w"] * 2, "name": "x", "total": p["w"].sum(), "none": None}

    p: Any = {"w": tape.tensor(V) if tensors else V}
    (value, aux), gradient = value_and_grad(f, has_aux=True)(p)
    assert (aux["name"], aux["none"]) == ("x", None)
    np.testing.assert_allclose(np.asarray(gradient["w"]), 2 * V)
    assert isinstance(aux["twice"], tape.Tensor if tensors else np.ndarray)
    assert isinstance(aux["total"], tape.Tensor if tensors else float)
    assert isinstance(value, tape.Tensor if tensors else float)
    found, (value, other) = grad_and_value(f, has_aux=True)(p)
    assert type(other["twice"]) is type(aux["twice"])
    np.testing.assert_array_equal(np.asarray(found["w"]), np.asarray(gradient["w"]))


def test_aux_that_is_wanted_by_others_keeps_its_graph() -> None:
    w = tape.tensor([2.0, 3.0], requires_grad=True)
    x = tape.tensor([0.5, 1.5])
    for transform in (value_and_grad, lambda f, has_aux: lambda a: grad_and_value(f, has_aux=has_aux)(a)[::-1]):
        (_, aux), _ = transform(lambda a: (tape.sin(a).sum(), w * tape.sin(a)), has_aux=True)(x)
        (found,) = tape.autograd.grad(aux.sum(), w)
        np.testing.assert_allclose(found.numpy(), np.sin([0.5, 1.5]))


def test_results_are_the_callers_own() -> None:
    x, c = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    constant = tape.from_numpy(c)
    (_, aux), gradient = value_and_grad(lambda a: ((a * constant).sum(), (a, constant)), has_aux=True)(x)
    for array in (gradient, *aux):
        array[...] = 100.0
    assert (x.tolist(), c.tolist()) == ([1.0, 2.0], [3.0, 4.0])
    assert value_and_grad(lambda a: (a * constant).sum())(x)[0] == 11.0


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a string": (
        lambda: value_and_grad(lambda p: p["w"].sum())({"w": V, "layers": [Affine(V, "x")]}),
        ValueError,
        r"argument 0\['layers'\]\[0\].b",
    ),
    "ints in a structure": (
        lambda: value_and_grad(lambda _, p: p[0].sum(), argnums=1)(1, [np.arange(3)]),
        TypeError,
        r"argument 1\[0\] is an array of dtype int64",
    ),
    "complex": (lambda: value_and_grad(lambda p: p.sum())(np.ones(2) * 1j), TypeError, "argument 0: .*complex128"),
    "a flag": (lambda: value_and_grad(lambda p: p["w"].sum())({"w": True}), ValueError, r"argument 0\['w'\]"),
    "nothing": (lambda: value_and_grad(lambda p: p)({"w": None}), ValueError, "there is no number"),
    "too few": (lambda: value_and_grad(lambda p: p, argnums=1)(V), RuntimeError, "argnum=1, but only 1"),
    "by keyword": (lambda: value_and_grad(lambda p: p)(p=V), RuntimeError, "argnum=0, but only 0"),
    "an array out": (
        lambda: value_and_grad(lambda p: p * 2)(V),
        TypeError,
        r"returned float64 of shape \[2\]; it must return a tensor of one floating element",
    ),
    "a number out": (lambda: value_and_grad(lambda _: 1.0)(V), TypeError, "returned a float"),
    "an int out": (lambda: value_and_grad(lambda p: p.argmax())(V), TypeError, r"returned int64 of shape \[\]"),
    "no aux": (lambda: value_and_grad(lambda p: p.sum(), has_aux=True)(V), RuntimeError, "should be a tuple"),
    "ints as tensors": (
        lambda: value_and_grad(lambda p: p["i"].sum())({"i": tape.arange(3)}),
        RuntimeError,
        "only Tensors of floating point dtype can require gradients",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()


def test_one_element_of_any_shape() -> None:
    value, gradient = value_and_grad(lambda p: (p @ p).reshape(1, 1))(V)
    assert value == pytest.approx(V @ V)
    np.testing.assert_allclose(gradient, 2 * V)
    value, gradient = value_and_grad(lambda p: (p * p).sum())(V.astype(np.float32))
    assert isinstance(value, float)
    assert gradient.dtype == np.float32


@pytest.mark.parametrize("mode", [tape.no_grad, tape.inference_mode, tape.enable_grad])
def test_in_any_mode(mode: Any) -> None:
    with mode():
        for x in (V, tape.tensor(V)):
            value, gradient = value_and_grad(lambda p: (p**3).sum())(x)
            np.testing.assert_allclose(np.asarray(gradient), 3 * V**2)
            np.testing.assert_allclose(np.asarray(grad(lambda p: (p**3).sum())(x)), 3 * V**2)
            np.testing.assert_allclose(np.asarray(jacfwd(lambda p: p**3)(x)), np.diag(3 * V**2))
            assert not getattr(value, "requires_grad", False)


# --- composition ------------------------------------------------------------------------------------------------

POINT = np.array([1.0, 2.0, 3.0])


def cubes(x: Any) -> Any:
    return (x**3).sum()


def times_gradient(x: Any) -> Any:
    """Return 3 x**3, with gradient 9 x**2: the value is taken into account, too, by a factor that is 1."""
    value, gradient = value_and_grad(cubes)(x)
    return (x * gradient * (value / value.detach())).sum()


def expected_of_times_gradient(x: Any) -> Any:
    return 9 * x**2 + 3 * (x**3).sum() * 3 * x**2 / (x**3).sum()


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "backward": lambda x: _by_backward(times_gradient, x),
    "autograd.grad": lambda x: tape.autograd.grad(times_gradient(leaf := x.clone().requires_grad_()), leaf)[0],
    "of a computed tensor": lambda x: tape.autograd.grad(
        times_gradient(1.0 * (leaf := x.clone().requires_grad_())), leaf
    )[0],
    "value_and_grad": lambda x: value_and_grad(times_gradient)(x)[1],
    "value_and_grad of arrays": lambda x: tape.tensor(value_and_grad(times_gradient)(x.numpy())[1]),
    "func.grad": grad(times_gradient),
    "func.vjp": lambda x: vjp(times_gradient, x)[1](tape.tensor(1.0))[0],
    "func.jacrev": jacrev(times_gradient),
    "func.jacfwd": jacfwd(times_gradient),
    "func.jvp": lambda x: tape.stack([jvp(times_gradient, (x,), (e,))[1] for e in tape.eye(3)]),
    "func.linearize": lambda x: tape.stack([linearize(times_gradient, x)[1](e) for e in tape.eye(3)]),
    "vmap of func.grad": lambda x: tape.vmap(grad(times_gradient))(tape.stack([x, x]))[1],
    "vmap of value_and_grad": lambda x: tape.vmap(value_and_grad(times_gradient))(tape.stack([x * 2, x]))[1][1],
    "func.grad of vmap": grad(lambda a: tape.vmap(times_gradient)(a[None]).sum()),
    "functional": lambda x: tape.autograd.functional.jacobian(times_gradient, x),
    "anomaly": lambda x: _in_anomaly(lambda: value_and_grad(times_gradient)(x)[1]),
}


def _by_backward(f: Any, x: Any) -> Any:
    leaf = x.clone().requires_grad_()
    f(leaf).backward()
    return leaf.grad


def _in_anomaly(f: Any) -> Any:
    with tape.autograd.detect_anomaly():
        return f()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", COMPOSED)
def test_composition(name: str) -> None:
    found = COMPOSED[name](tape.tensor(POINT))
    np.testing.assert_allclose(found.detach().numpy(), expected_of_times_gradient(POINT), rtol=1e-12)


def test_the_gradient_that_was_silently_constant() -> None:
    x = tape.tensor(POINT, requires_grad=True)
    (found,) = tape.autograd.grad((x * value_and_grad(cubes)(x)[1]).sum(), x)
    assert found.tolist() == [9.0, 36.0, 81.0]


@pytest.mark.parametrize("x", [tape.tensor(POINT), tape.tensor(POINT, requires_grad=True)], ids=["constant", "leaf"])
def test_closures_over_tensors(x: Any) -> None:
    w = tape.tensor([2.0, -1.0, 0.5], requires_grad=True)
    b = w * 2.0
    value, gradient = value_and_grad(lambda a: (w * a * a + b * a).sum())(x)
    (by_value,) = tape.autograd.grad(value, w, retain_graph=True)
    np.testing.assert_allclose(by_value.numpy(), POINT**2 + 2 * POINT)
    (by_gradient,) = tape.autograd.grad(gradient.sum(), w, retain_graph=True)
    np.testing.assert_allclose(by_gradient.numpy(), 2 * POINT + 2)
    with tape.no_grad():
        value, gradient = value_and_grad(lambda a: (w * a * a).sum())(x)
    assert not value.requires_grad
    assert not gradient.requires_grad


def test_third_derivatives_and_structures() -> None:
    def inner(p: Any) -> Any:
        return (p["a"] ** 4).sum() * p["b"]

    def outer(p: Any) -> Any:
        _, g = value_and_grad(inner)(p)
        return (g["a"] * p["a"]).sum() + g["b"]

    def outermost(p: Any) -> Any:
        _, g = value_and_grad(outer)(p)
        return g["a"].sum() + g["b"] ** 2

    _, found = value_and_grad(outermost)({"a": POINT, "b": 2.0})
    # inner = b s, s = sum a^4; outer = 4 b s + s; outermost = (4 b + 1) sum 4 a^3 + 16 s^2
    s = (POINT**4).sum()
    np.testing.assert_allclose(found["a"], 9 * 12 * POINT**2 + 32 * s * 4 * POINT**3, rtol=1e-12)
    assert found["b"] == pytest.approx(16 * (POINT**3).sum())


def test_hessian_vector_products() -> None:
    v = tape.tensor([1.0, 0.0, 2.0])
    x = tape.tensor(POINT, requires_grad=True)
    _, gradient = value_and_grad(lambda a: (a**4).sum() + a[0] * a[1])(x)
    (found,) = tape.autograd.grad(gradient, x, v)
    expected = np.diag(12 * POINT**2)
    expected[0, 1] = expected[1, 0] = 1
    np.testing.assert_allclose(found.numpy(), expected @ v.numpy())


def test_arrays_that_leave_a_graph_warn() -> None:
    w = tape.tensor([2.0, -1.0, 0.5], requires_grad=True)
    for transform in (value_and_grad, grad, jacrev, jacfwd):
        with pytest.warns(DetachWarning, match="what follows has no gradient by that tensor"):
            transform(lambda a: (w * a).sum())(POINT)
    with tape.no_grad():
        value_and_grad(lambda a: (w * a).sum())(POINT)


# --- arrays in, arrays out --------------------------------------------------------------------------------------


def field_of(p: Any) -> Any:
    return {"y": np.sin(p["w"] @ X), "z": (p["b"] ** 2,)}


def test_jacobians_of_structures_of_arrays() -> None:
    p = {"w": W, "b": 2.0}
    for transform in (jacrev, jacfwd):
        found = transform(field_of)(p)
        assert isinstance(found["y"]["w"], np.ndarray)
        assert found["y"]["w"].shape == (2, 2, 2)
        np.testing.assert_allclose(found["y"]["w"], np.einsum("i,ij,k->ijk", np.cos(W @ X), np.eye(2), X))
        assert found["z"][0]["b"] == 4.0
        assert isinstance(found["z"][0]["b"], float)
        tensors = transform(field_of)(as_tensors(p))
        np.testing.assert_array_equal(tensors["y"]["w"].numpy(), found["y"]["w"])


def test_products_of_arrays() -> None:
    p, direction = {"w": W, "b": 2.0}, {"w": np.ones((2, 2)), "b": 1.0}
    out, pushed = jvp(field_of, (p,), (direction,))
    assert isinstance(out["y"], np.ndarray)
    np.testing.assert_allclose(pushed["y"], np.cos(W @ X) * X.sum())
    assert pushed["z"] == (4.0,)
    out, linear = linearize(field_of, p)
    np.testing.assert_array_equal(linear(direction)["y"], pushed["y"])
    out, pull = vjp(field_of, p)
    (pulled,) = pull({"y": np.ones(2), "z": (3.0,)})
    np.testing.assert_allclose(pulled["w"], np.outer(np.cos(W @ X), X))
    assert pulled["b"] == 12.0
    assert isinstance(out["z"][0], float)


def test_hessians_of_arrays() -> None:
    found = hessian(lambda p: (p["a"] ** 3).sum() * p["b"])({"a": POINT, "b": 2.0})
    np.testing.assert_allclose(found["a"]["a"], np.diag(12 * POINT))
    np.testing.assert_allclose(found["a"]["b"], 3 * POINT**2)
    assert found["b"]["b"] == 0.0


def test_vmap_of_arrays() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    found = tape.vmap(lambda a, s: {"sum": a.sum() * s, "row": a}, in_dims=(0, None))(rows, 2.0)
    assert isinstance(found["sum"], np.ndarray)
    np.testing.assert_array_equal(found["sum"], 2 * rows.sum(1))
    found["row"][...] = 0
    assert rows.sum() == 15
    np.testing.assert_array_equal(tape.vmap(grad(cubes))(rows), 3 * rows**2)
    layers = tape.vmap(lambda q: q.w.sum() * q.b)(Layer(tape.tensor(rows), tape.ones(3)))
    assert layers.tolist() == rows.sum(1).tolist()
