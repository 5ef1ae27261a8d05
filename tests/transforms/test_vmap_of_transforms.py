"""Derivatives inside mapped functions, also by what is the same for all examples, against a loop over the examples."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape import func
from tape.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from tape.tensors.tensor import Tensor

pytestmark = pytest.mark.exhaustive

Function = Callable[[Tensor, Tensor], Tensor]


def smooth(x: Tensor, w: Tensor) -> Tensor:
    return (tape.sin(x) * w * w).sum() + (x * w).sum() ** 2


def apart(x: Tensor, w: Tensor) -> Tensor:
    return tape.exp(w * 0.3).sum() * x.sum() + (x * x * x).sum()


def written(x: Tensor, w: Tensor) -> Tensor:
    y = w * 1.0
    y[0] = x.sum() * y[1]
    return (y * y * x).sum()


def joined(x: Tensor, w: Tensor) -> Tensor:
    return (w @ x) * tape.cos(w).sum() + tape.stack([w[0] * w[1], x[1]]).prod()


def asked(f: Function) -> Function:
    def by_leaf(x: Tensor, w: Tensor) -> Tensor:
        leaf = w.detach().requires_grad_()
        return tape.autograd.grad(f(x, leaf), leaf)[0]

    return by_leaf


def pair(f: Function) -> Function:
    return lambda x, w: tape.stack([f(x, w), f(w, x) * 2])


def blocks(f: Function) -> Function:
    return lambda x, w: tape.cat([tape.cat(list(row)) for row in hessian(f, (0, 1))(x, w)])


TRANSFORMS: dict[str, Callable[[Function], Any]] = {
    "value": lambda f: f,
    "grad by x": grad,
    "grad by w": lambda f: grad(f, 1),
    "grad by both": lambda f: lambda x, w: tape.cat(grad(f, (0, 1))(x, w)),
    "jacrev by x": lambda f: jacrev(pair(f)),
    "jacrev by w": lambda f: jacrev(pair(f), 1),
    "jacfwd by x": lambda f: jacfwd(pair(f)),
    "jacfwd by w": lambda f: jacfwd(pair(f), 1),
    "hessian by w": lambda f: hessian(f, 1),
    "hessian by both": blocks,
    "jvp": lambda f: lambda x, w: jvp(f, (x, w), (w, x))[1],
    "jvp, constant": lambda f: lambda x, w: jvp(f, (x, w), (tape.ones(2), tape.ones(2)))[1],
    "jvp by w": lambda f: lambda x, w: jvp(lambda v: f(x, v), (w,), (tape.ones(2),))[1],
    "vjp": lambda f: lambda x, w: tape.cat(vjp(f, x, w)[1](tape.tensor(2.0))),
    "vjp by w": lambda f: lambda x, w: vjp(lambda v: f(x, v), w)[1](x.sum())[0],
    "value_and_grad": lambda f: lambda x, w: tape.value_and_grad(f, (0, 1))(x, w)[1][1],
    "vmap": lambda f: lambda x, w: vmap(lambda a: f(a * x, w))(w),
    "autograd.grad": asked,
}
DIMS = ((0, None), (None, 0), (0, 0))


def squared(f: Function) -> Function:
    return lambda x, w: (f(x, w) ** 2).sum()


def mapped_as_looped(f: Function, dims: tuple[int | None, int | None]) -> None:
    rng = np.random.default_rng(0)
    x, w = (tape.tensor(rng.normal(size=2 if d is None else (3, 2))) for d in dims)
    rows = [f(x if dims[0] is None else x[i], w if dims[1] is None else w[i]).detach() for i in range(3)]
    got = vmap(f, in_dims=dims)(x, w)
    np.testing.assert_allclose(got.detach().numpy(), np.stack([row.numpy() for row in rows]), rtol=1e-9, atol=1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_one_transform(transform: str, dims: tuple[int | None, int | None]) -> None:
    for f in (smooth, apart, written, joined):
        mapped_as_looped(TRANSFORMS[transform](f), dims)


@pytest.mark.parametrize("outer", TRANSFORMS)
def test_a_transform_of_another(outer: str) -> None:
    """Second derivatives by every pair of transforms; what autograd.grad gives has no history, and so no partner."""
    if outer == "autograd.grad":
        pytest.skip("it differentiates once")
    functions = itertools.cycle((smooth, apart, written, joined))
    for inner, dims in itertools.product(TRANSFORMS, DIMS):
        if inner != "autograd.grad":
            mapped_as_looped(TRANSFORMS[outer](squared(TRANSFORMS[inner](next(functions)))), dims)


@pytest.mark.quick
def test_what_all_examples_share_still_leaves_for_python() -> None:
    """A branch on what is the same for all is seen by the transform around, which maps it, or compiles it."""
    x = tape.tensor([1.0, 2.0, 3.0])
    for value in (lambda s: s * 1, grad(lambda v: v * v)):
        with pytest.raises(RuntimeError, match="data-dependent control flow"):
            vmap(lambda s, value=value: vmap(lambda x: x * 2 if value(s) > 3 else x * 3)(x))(x)
        compiled = tape.compile(lambda x, s, value=value: vmap(lambda x: x * 2 if value(s) > 3 else x * 3)(x))
        for s in (1.0, 1.0, 1.0, 4.0, 4.0, -4.0, 4.0):
            assert compiled(np.ones(2), s).tolist() == ([2.0] * 2 if float(value(tape.tensor(s))) > 3 else [3.0] * 2)


@pytest.mark.parametrize("first", [0, 1])
def test_a_gradient_of_a_gradient_leaves_no_graph_behind(first: int) -> None:
    def f(a: Any, b: Any) -> Any:
        return a**2 * b**3

    mixed = func.vmap(func.grad(func.grad(f, first), 1 - first))
    a, b = np.array([1.0, 2.0]), np.array([3.0, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(mixed(a, b), 6 * a * b**2)
    got = mixed(tape.tensor(a), tape.tensor(b))
    assert not got.requires_grad
    x = tape.tensor(a, requires_grad=True)
    mixed(x, tape.tensor(b)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * b**2)
    np.testing.assert_allclose(func.grad(lambda c: mixed(c, tape.tensor(b)).sum())(x.detach()).numpy(), 6 * b**2)


def test_inner_transforms_of_numbers_and_arrays_are_differentiated() -> None:
    """Numbers and arrays that an inner transform is given: an outer one goes through what it returns."""

    def f(a: Any, b: Any) -> Any:
        return (a**2 * b**3).sum()

    a, b = np.array([1.0, 2.0]), np.array([3.0, 0.5])
    assert func.grad(func.grad(lambda a, b: a**2 * b**3, 0), 1)(2.0, 3.0) == 108.0
    inner = [
        lambda b: func.grad(lambda a: f(a, b))(a).sum(),
        lambda b: func.vjp(lambda a: f(a, b), a)[1](1.0)[0].sum(),
        lambda b: func.jvp(lambda a: f(a, b), (a,), (np.ones(2),))[1],
        lambda b: func.linearize(lambda a: f(a, b), a)[1](np.ones(2)),
        lambda b: tape.value_and_grad(lambda a: f(a, b))(a)[1].sum(),
        lambda b: func.jacrev(lambda a: f(a, b))(a).sum(),
        lambda b: func.jacfwd(lambda a: f(a, b))(a).sum(),
    ]
    for each in inner:
        np.testing.assert_allclose(func.grad(each)(b), 6 * a * b**2)
    program = tape.record(lambda b: func.grad(lambda a: f(a, b))(a), b)
    with pytest.raises(RuntimeError, match=r"for a gradient; .*tape.compile"):
        program(b)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["jvp of grad", "vjp of grad", "grad of jvp", "two jvps of grad"])
def test_products_with_hessians_of_what_is_not_mapped(name: str) -> None:
    """Inner transforms' own leaves hold what no example changes: each run makes them anew."""

    def f(x: Any) -> Any:
        return (tape.sin(x) * x**2).sum() + x.prod()

    v, rows = tape.tensor([0.5, 1.0, 2.0]), tape.eye(3)
    third = func.jacrev(func.hessian(f))(v)
    made: dict[str, Any] = {
        "jvp of grad": lambda w: func.jvp(func.grad(f), (v,), (w,))[1],
        "vjp of grad": lambda w: func.vjp(func.grad(f), v)[1](w)[0],
        "grad of jvp": lambda w: func.grad(lambda x: func.jvp(f, (x,), (w,))[1])(v),
        "two jvps of grad": lambda w: tape.vmap(
            lambda u: func.jvp(lambda x: func.jvp(func.grad(f), (x,), (u,))[1], (v,), (w,))[1]
        )(rows),
    }
    expected = third if name.startswith("two") else func.hessian(f)(v)
    np.testing.assert_allclose(tape.vmap(made[name])(rows), expected, rtol=1e-12, atol=1e-14)
    compiled = tape.compile(lambda w: tape.vmap(made[name])(w))  # noqa: PLW0108 (vmap is part of the function)
    for _ in range(0 if name.startswith("two") else 4):  # of which two recordings may differ in their order
        np.testing.assert_allclose(compiled(rows), expected, rtol=1e-12, atol=1e-14)
    x = v.clone().requires_grad_()
    by_leaf = tape.vmap(lambda w: func.jvp(func.grad(f), (x,), (w,))[1])(rows)
    by_leaf.sum().backward()
    np.testing.assert_allclose(x.grad, third.sum((0, 1)), rtol=1e-12)
