"""Gradients of gradients: closed forms, differences, PyTorch, and every way of asking for them.

A program takes the library under test; what it finds stands above it, and PyTorch must find it, too. Where PyTorch
refuses or differs on purpose, the program stands in the last of these sections, with a reason.
"""

from __future__ import annotations

import functools
import gc
import math
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tape
from tests.engine.test_hooks import Program, complaint, declare, found_by, leaf, listed, sweep  # noqa: F401 (sweep is a fixture)
from tests.support.pytorch_outcomes import Outcomes, Raised

Array = np.ndarray[Any, Any]
Function = Callable[[Any, Any], Any]
PROGRAMS: list[Any] = []
DEVIATIONS: list[Any] = []
both: Callable[[Any], Callable[[Program], Program]] = functools.partial(declare, PROGRAMS)
ours: Callable[[Any, str], Callable[[Program], Program]] = functools.partial(declare, DEVIATIONS)


def first(lib: Any, y: Any, *inputs: Any, **options: Any) -> Any:
    """Return gradients of a sum that can be differentiated, one of them as it is."""
    found = lib.autograd.grad(y if y.dim() == 0 else y.sum(), inputs, create_graph=True, **options)
    return found[0] if len(inputs) == 1 else found


def orders(lib: Any, function: Function, x: Any, order: int) -> list[Any]:
    """Return the gradients of sums of gradients, up to an order; zeros where there is nothing left to differentiate."""
    found: list[Any] = []
    y = function(lib, x)
    for _ in range(order):
        if not y.requires_grad:
            found.append(lib.zeros_like(x))
            continue
        y = first(lib, y, x, materialize_grads=True)
        found.append(y)
    return found


def close(found: Any, expected: Any) -> bool:
    """Whether lists of numbers agree to 1e-9, and have the same shape."""
    if isinstance(expected, list | tuple):
        alike = isinstance(found, list | tuple) and len(found) == len(expected)
        return alike and all(map(close, found, expected))
    if isinstance(expected, float) or isinstance(found, float):
        return found is not None and bool(np.isclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True))
    return bool(found == expected)


# --- against closed forms, to the fourth order ---

CLOSED: dict[str, tuple[Function, list[Callable[[Array], Any]]]] = {
    "x**4": (lambda _, x: x**4, [lambda x: 4 * x**3, lambda x: 12 * x**2, lambda x: 24 * x, lambda _: 24]),
    "x*x*x*x": (lambda _, x: x * x * x * x, [lambda x: 4 * x**3, lambda x: 12 * x**2, lambda x: 24 * x, lambda _: 24]),
    "x**2.5": (
        lambda _, x: x**2.5,
        [lambda x: 2.5 * x**1.5, lambda x: 3.75 * x**0.5, lambda x: 1.875 * x**-0.5, lambda x: -0.9375 * x**-1.5],
    ),
    "3x+1": (lambda _, x: 3 * x + 1, [lambda _: 3, lambda _: 0, lambda _: 0, lambda _: 0]),
    "exp": (lambda lib, x: lib.exp(x), [np.exp] * 4),
    "sin": (lambda lib, x: lib.sin(x), [np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin]),
    "cos": (lambda lib, x: lib.cos(x), [lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin, np.cos]),
    "log": (
        lambda lib, x: lib.log(x),
        [lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4],
    ),
    "1/x": (
        lambda _, x: 1 / x,
        [lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4, lambda x: 24 / x**5],
    ),
    "reciprocal": (
        lambda lib, x: lib.reciprocal(x),
        [lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4, lambda x: 24 / x**5],
    ),
    "sqrt": (
        lambda lib, x: lib.sqrt(x),
        [lambda x: x**-0.5 / 2, lambda x: x**-1.5 / -4, lambda x: 3 / 8 * x**-2.5, lambda x: -15 / 16 * x**-3.5],
    ),
    "2**x": (
        lambda _, x: 2**x,
        [functools.partial(lambda k, x: math.log(2) ** k * 2**x, k) for k in (1, 2, 3, 4)],
    ),
    "tanh": (
        lambda lib, x: lib.tanh(x),
        [
            lambda x: 1 - np.tanh(x) ** 2,
            lambda x: -2 * np.tanh(x) * (1 - np.tanh(x) ** 2),
            lambda x: (6 * np.tanh(x) ** 2 - 2) * (1 - np.tanh(x) ** 2),
            lambda x: (16 * np.tanh(x) - 24 * np.tanh(x) ** 3) * (1 - np.tanh(x) ** 2),
        ],
    ),
    "exp(x)*sin(x)": (
        lambda lib, x: lib.exp(x) * lib.sin(x),
        [
            lambda x: np.exp(x) * (np.sin(x) + np.cos(x)),
            lambda x: 2 * np.exp(x) * np.cos(x),
            lambda x: 2 * np.exp(x) * (np.cos(x) - np.sin(x)),
            lambda x: -4 * np.exp(x) * np.sin(x),
        ],
    ),
    "abs(x)*x*x": (lambda _, x: abs(x) * x * x, [lambda x: 3 * x**2, lambda x: 6 * x, lambda _: 6, lambda _: 0]),
    "square(x)*x": (
        lambda lib, x: lib.square(x) * x,
        [lambda x: 3 * x**2, lambda x: 6 * x, lambda _: 6, lambda _: 0],
    ),
}


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("shape", [(3,), ()], ids=["array", "number"])
@pytest.mark.parametrize(("function", "derivatives"), CLOSED.values(), ids=CLOSED)
def test_closed_form(function: Function, derivatives: list[Callable[[Array], Any]], shape: tuple[int, ...]) -> None:
    values = np.array([0.7, 1.1, 1.6])[: 3 if shape else 1].reshape(shape)
    x = tape.tensor(values, requires_grad=True)
    for found, derivative in zip(orders(tape, function, x, 4), derivatives, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), np.broadcast_to(derivative(values), shape), rtol=1e-12)


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("name", ["x**4", "exp", "sin", "1/x"])
def test_closed_form_in_float32(name: str) -> None:
    function, derivatives = CLOSED[name]
    x = tape.tensor([0.7, 1.1, 1.6], dtype=tape.float32, requires_grad=True)
    for found, derivative in zip(orders(tape, function, x, 4), derivatives, strict=True):
        assert found.dtype == tape.float32
        values = x.detach().numpy().astype(float)
        np.testing.assert_allclose(found.detach().numpy(), np.broadcast_to(derivative(values), 3), rtol=3e-6)


# --- against differences, and against PyTorch, to the third order ---


def _overwritten(_: Any, x: Any) -> Any:
    y = x * x
    y[1:] = y[:-1] * x[1:]
    y.mul_(x)
    return y


def _written_loop(_: Any, x: Any) -> Any:
    u = x * 1
    for _step in range(3):
        u[1:-1] += 0.1 * (u[2:] * u[:-2] - 2 * u[1:-1])
    return u**2


def _written_chain(lib: Any, x: Any) -> Any:
    y = lib.zeros(4, dtype=lib.float64)
    y[0] = x[0]
    for k in range(1, 4):
        y[k] = y[k - 1] * x[k % 3] + lib.sin(x[0])
    return y**2


def _written_views(_: Any, x: Any) -> Any:
    y = x[:, None] * x
    rows, columns = y[1:], y.T[1:]
    columns[0] *= 2 * x
    rows[:, 0] = columns[:, 1] * x[1:]
    columns += x
    return rows[:, 1:] ** 2 + columns[:, 1:] * y[1, 2]


def _written_twice(_: Any, x: Any) -> Any:
    y = x * x
    y *= y
    y *= y
    return y


def _written_by_indices(lib: Any, x: Any) -> Any:
    y = x * x
    y.index_put_((lib.tensor([0, 0, 2]),), x**3, accumulate=True)
    y[lib.tensor([1, 2])] = x[:2] ** 4
    return y * x


def _filled(lib: Any, x: Any) -> Any:
    y = x**3
    y[0] = 5.0
    y.masked_fill_(lib.tensor([False, True, False]), 2.0)
    return y * x * y


def _conditional(lib: Any, x: Any) -> Any:
    return lib.where(x > 1, x**3, x**2 * lib.sin(x))


def _picked(lib: Any, x: Any) -> Any:
    return x[lib.tensor([0, 0, 2])] ** 3 * x


def _masked(lib: Any, x: Any) -> Any:
    return x[lib.tensor([True, False, True])] ** 3 * x[:2]


def _softmax(lib: Any, x: Any) -> Any:
    e = lib.exp(x[:, None] * x - (x * x).max())
    return (e / e.sum(1, keepdim=True)).log()[:, 0]


def _sliding(_: Any, x: Any) -> Any:
    u = (x[:, None] * x).reshape(9)
    return sum(x[k] * u[k : k + 7] for k in range(3)) ** 2


FUNCTIONS: dict[str, Function] = {
    "slice": lambda _, x: x[1:] ** 3 * x[:-1],
    "slice of slice": lambda _, x: (x * x)[1:][:1] ** 2 * x,
    "stride": lambda _, x: x[::2] ** 3 * x[1],
    "row and column": lambda _, x: (x.reshape(3, 1).T * x.reshape(3, 1)) ** 2,
    "transposed": lambda _, x: (x[:, None] * x).T ** 2 * x,
    "permuted": lambda _, x: (x[:, None, None] * x[None, :, None] * x).permute(2, 0, 1)[1] ** 2,
    "iterated": lambda lib, x: lib.stack([one**3 * x[0] for one in x]),
    "squeezed": lambda _, x: x.unsqueeze(0).squeeze() ** 3,
    "broadcast": lambda _, x: (x[:, None] + x * x) ** 3,
    "broadcast number": lambda _, x: (x * x[0]) ** 2,
    "expanded": lambda _, x: x.expand(2, 3) ** 3,
    "expanded number": lambda _, x: x[0].expand(3) ** 2 * x,
    "strided": lambda _, x: (x * x).as_strided((2, 2), (1, 1)) ** 2,
    "clone": lambda _, x: x.clone() ** 3,
    "sum": lambda _, x: x.sum() ** 3 * x,
    "sum over rows": lambda _, x: (x[:, None] * x).sum(0, keepdim=True) ** 2 * x,
    "mean": lambda _, x: x.mean() ** 3 * x,
    "largest": lambda _, x: (x**3).max() ** 2 * x,
    "largest of rows": lambda _, x: (x[:, None] * x).max(1)[0] ** 2,
    "smallest": lambda _, x: (x[:, None] * x).amin(0) ** 2,
    "mm": lambda _, x: (x[:, None] @ x[None]) @ (x[:, None] * x),
    "mv": lambda _, x: (x[:, None] * x) @ x,
    "vm": lambda _, x: x @ (x[:, None] * x),
    "dot": lambda _, x: x.dot(x) ** 2,
    "cat": lambda lib, x: lib.cat([x * x, x**3]) ** 2,
    "stack": lambda lib, x: lib.stack([x, x * x, x**3], 1) ** 2,
    "quotient": lambda _, x: x / (1 + x * x),
    "power": lambda _, x: x**x,
    "where": _conditional,
    "maximum": lambda lib, x: lib.maximum(x**3, x**2),
    "minimum": lambda lib, x: lib.minimum(x**3, x**2 * x[0]),
    "index array": _picked,
    "mask": _masked,
    "softmax": _softmax,
    "sliding window": _sliding,
    "overwritten": _overwritten,
    "written in a loop": _written_loop,
    "written element by element": _written_chain,
    "written through views of views": _written_views,
    "squared in place": _written_twice,
    "written by index arrays": _written_by_indices,
    "filled": _filled,
}
POINT = np.array([0.7, 1.1, 1.6])


DIRECTION = np.array([0.3, -0.5, 0.8])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_order_is_the_difference_of_the_one_before(name: str) -> None:
    function, step = FUNCTIONS[name], 1e-5
    here = orders(tape, function, leaf(tape, *POINT), 3)
    after, before = (sums(function, POINT + way * DIRECTION) for way in (step, -step))
    for k in range(3):
        slope = float((here[k].detach() * tape.tensor(DIRECTION)).sum())
        assert slope == pytest.approx((after[k] - before[k]) / (2 * step), rel=2e-7, abs=2e-7), f"order {k + 1}"


def sums(function: Function, point: Array) -> list[float]:
    """Return the sum of a function's values, of its gradient and of the gradient of that."""
    x = leaf(tape, *point)
    return [one.sum().item() for one in (function(tape, x), *orders(tape, function, x, 2))]


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ordinary_sweep_of_a_recorded_sweep(name: str) -> None:
    x = leaf(tape, *POINT)
    y = FUNCTIONS[name](tape, x)
    for _ in range(3):
        found = first(tape, y, x)
        (again,) = tape.autograd.grad(y.sum(), x, retain_graph=True)
        np.testing.assert_allclose(again.numpy(), found.detach().numpy(), rtol=1e-12)
        y = found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_with_pytorch(pytorch: Outcomes, name: str) -> None:
    def run(lib: Any) -> list[Any]:
        return [one.tolist() for one in orders(lib, FUNCTIONS[name], leaf(lib, *POINT.tolist()), 3)]

    found, theirs = run(tape), pytorch.or_error(run, name)
    if isinstance(theirs, Raised):
        assert "RuntimeError" in theirs.classes
        assert name in REFUSED, theirs
    else:
        assert close(found, theirs)
        assert name not in REFUSED


REFUSED = {
    "overwritten",
    "written in a loop",
    "written element by element",
    "written through views of views",
    "squared in place",
}
"""What PyTorch says was modified by an in-place operation."""


# --- ways of asking ---


@both([[[9, 56], [2, 24]], [[9, 22], [3, 14]]])
def several_outputs_weights_and_inputs(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    weights = lib.tensor([1.0, 10.0], dtype=lib.float64)
    one = lib.autograd.grad([(x * x * w).sum(), x * w], [x, w], [None, weights], create_graph=True)
    two = lib.autograd.grad([one[0].sum(), one[1]], [x, w], [None, lib.ones(2, dtype=lib.float64)])
    return [listed(*one), listed(*two)]


@both([[6, 16], [[2, 4], [6, 8]]])
def cotangent_that_requires_grad(lib: Any) -> Any:
    x, v = leaf(lib, 1, 2), leaf(lib, 3, 4)
    (one,) = lib.autograd.grad(x * x, x, v, create_graph=True)
    return [listed(one), listed(*lib.autograd.grad(one.sum(), [v, x]))]


@both([[27, 192], [[54, 192], [18, 96]]])
def cotangent_that_is_computed(lib: Any) -> Any:
    x, v = leaf(lib, 1, 2), leaf(lib, 3, 4)
    (one,) = lib.autograd.grad(x**3, x, v * v, create_graph=True)
    one.sum().backward()
    return [listed(one), listed(x.grad, v.grad)]


@both([-3, -2])
def product_with_the_jacobian_by_two_backwards(lib: Any) -> Any:
    x, v = leaf(lib, 1, 2), lib.zeros(2, dtype=lib.float64, requires_grad=True)
    (one,) = lib.autograd.grad(1 / x, x, v, create_graph=True)
    return listed(*lib.autograd.grad(one, v, lib.tensor([3.0, 8.0], dtype=lib.float64)))


@both(["The differentiated Tensor at index 1 appears to not have been used in the graph. Set allow_unused=True"] * 2)
def unused_input(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = (x * x).sum()
    return [
        complaint(lambda: lib.autograd.grad(y, [x, w], create_graph=True)).split(" if this")[0],
        complaint(lambda: lib.autograd.grad(y, [x, w], create_graph=True, allow_unused=False)).split(" if this")[0],
    ]


@both([[[2, 4], None], [[2, 4], [0, 0]], [True, True], [2, 2]])
def unused_input_allowed(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = (x * x).sum()
    none = first(lib, y, x, w, allow_unused=True)
    zeros = first(lib, y, x, w, materialize_grads=True)
    second = lib.autograd.grad(zeros[0].sum() + zeros[1].sum(), x)
    return [listed(*none), listed(*zeros), [one.requires_grad for one in zeros], listed(*second)]


@both([False, None, True])
def gradient_of_a_linear_function(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = first(lib, x * 3, x)
    return [one.requires_grad, one.grad_fn, one.is_leaf]


@both([True, False, True])
def gradient_that_can_be_differentiated(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = first(lib, x**2, x)
    return [one.requires_grad, one.is_leaf, one.grad_fn is not None]


@both([[3, 12], [3, 12], [6, 12]])
def graph_is_retained_by_default(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x**3).sum()
    one, again = first(lib, y, x), first(lib, y, x)
    return listed(one, again, *lib.autograd.grad(again.sum(), x))


@both([[3, 12], [6, 12]])
def gradient_without_retain_graph_can_be_differentiated(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = first(lib, x**3, x, retain_graph=False)
    return listed(one, *lib.autograd.grad(one.sum(), x))


@both([[6, 12], "Trying to backward through the graph a second time", [6, 12]])
def second_backward_frees_its_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = first(lib, x**3, x)
    total = one.sum()
    (found,) = lib.autograd.grad(total, x)
    again = complaint(lambda: lib.autograd.grad(total, x))
    two = first(lib, x**3, x)
    return [listed(found), again, listed(*lib.autograd.grad(two.sum(), x, retain_graph=True))]


@both([[3, 12], [6, 12]])
def gradient_dropped_and_graph_swept_once_more(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x**3
    one = listed(first(lib, y, x))
    y.backward(lib.tensor([2.0, 1.0], dtype=lib.float64))
    return [one, listed(x.grad)]


@both([[3, 12], [3, 12], True])
def the_same_input_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one, other = first(lib, x**3, x, x)
    return [listed(one), listed(other), other.requires_grad]


@both([[6, 24], [12, 24]])
def the_same_output_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x**3).sum()
    (one,) = lib.autograd.grad([y, y], x, create_graph=True)
    return listed(one, *lib.autograd.grad(one.sum(), x))


@both([[3, 5], [2, 2]])
def leaf_among_the_outputs(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (one,) = lib.autograd.grad([x, x * x], x, [lib.ones(2, dtype=lib.float64)] * 2, create_graph=True)
    return listed(one, *lib.autograd.grad(one.sum(), x))


@both([[1, 1], False, [5, 6], [5, 6]])
def output_is_the_input(lib: Any) -> Any:
    x, v = leaf(lib, 1, 2), lib.tensor([5.0, 6.0], dtype=lib.float64)
    y = x * x
    (one,) = lib.autograd.grad(y, y, lib.ones(2, dtype=lib.float64), create_graph=True)
    (other,) = lib.autograd.grad(x, x, v, create_graph=True)
    return [listed(one), one.requires_grad, listed(other), listed(v)]


@both([[3, 12], [6, 12]])
def recorded_under_no_grad(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x**3).sum()
    with lib.no_grad():
        one = first(lib, y, x)
    return listed(one, *lib.autograd.grad(one.sum(), x))


@both([[3, 12], [9, 24]])
def backward_that_creates_a_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    with pytest.warns(UserWarning, match="reference cycle"):
        (x**3).sum().backward(create_graph=True)
    one = listed(x.grad)
    x.grad.sum().backward()
    return [one, listed(x.grad)]


@both([[5, 16], [8, 14], True])
def grad_accumulates_graphs(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    create((x**3).sum())
    create((x**2).sum())
    total, x.grad = x.grad, None
    found = total.requires_grad
    total.sum().backward()
    return [listed(total), listed(x.grad), found]


@both([[5, 16], True, [6, 12]])
def grad_without_a_graph_then_with(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (x**2).sum().backward()
    create((x**3).sum())
    total, x.grad = x.grad, None
    found = total.requires_grad
    total.sum().backward()
    return [listed(total), found, listed(x.grad)]


@both([[5, 16], True, [6, 12]])
def grad_with_a_graph_then_without(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    create((x**3).sum())
    (x**2).sum().backward()
    total, x.grad = x.grad, None
    found = total.requires_grad
    total.sum().backward()
    return [listed(total), found, listed(x.grad)]


@both([[18, 64], None, [6, 16], [12, 32]])
def backward_that_creates_a_graph_of_inputs(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = x * w
    create((y**2).sum(), inputs=[x, y])
    one, mid = x.grad, y.grad
    before = w.grad
    one.sum().backward(inputs=[w])
    return [listed(one), before, listed(mid), listed(w.grad)]


@both([[2, 8], True, [4, 8]])
def retained_gradient_with_a_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    y.retain_grad()
    create((y**2).sum())
    one, x.grad = y.grad, None
    found = one.requires_grad
    one.sum().backward()
    return [listed(one), found, listed(x.grad)]


@both([[0, 0], [8, 12]])
def gradients_of_two_leaves_have_memory_of_their_own(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    create(((x + w) ** 2).sum())
    with lib.no_grad():
        x.grad.zero_()
    return listed(x.grad, w.grad)


@both([[[6, 0, 0], [0, 12, 0], [0, 0, 18]], [72, 144, 216]])
def hessian_by_a_batch_of_cotangents(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    one = first(lib, x**3, x)
    (hessian,) = lib.autograd.grad(one, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True, create_graph=True)
    return listed(hessian, *lib.autograd.grad((hessian * hessian).sum(), x))


def create(y: Any, **options: Any) -> None:
    """Run a backward that creates a graph, and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        y.backward(create_graph=True, **options)


# --- with respect to computed tensors, views and written tensors ---


@both([[3, 48], [[12, 96], [6, 24]]])
def with_respect_to_a_computed_tensor(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    one = first(lib, y**3, y)
    return [listed(one), listed(*lib.autograd.grad(one.sum(), [x, y]))]


@both([[48, 243], [[0, 96, 324], [0, 24, 54], [24, 54]]])
def with_respect_to_a_view(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    v = y[1:]
    one = first(lib, v**3, v)
    return [listed(one), listed(*lib.autograd.grad(one.sum(), [x, y, v]))]


@both([[48, 243], [25, 55]])
def with_respect_to_a_view_by_two_ways(lib: Any) -> Any:
    v = (leaf(lib, 1, 2, 3) ** 2)[1:]
    one = first(lib, v**3, v)
    return listed(one, *lib.autograd.grad(one.sum() + v.sum(), v))


@both([[12, 27], [0, 12, 18], [12, 18]])
def with_respect_to_a_view_of_a_leaf(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    v = x[1:]
    one = first(lib, v**3, v)
    return listed(one, *lib.autograd.grad(one.sum(), [x, v]))


@both([[[6, 16], [1, 4]], [[[6, 8], [2, 4]], [[2, 4], None]]])
def blocks_of_a_hessian_by_parts_of_a_leaf(lib: Any) -> Any:
    p = leaf(lib, 1, 2, 3, 4)
    a, b = p[:2], p[2:]
    both_ = first(lib, a * a * b, a, b)
    blocks = [lib.autograd.grad(one.sum(), [a, b], retain_graph=True, allow_unused=True) for one in both_]
    return [listed(*both_), [listed(*row) for row in blocks]]


@both([[48, 3072], [24, 384]])
def with_respect_to_a_view_of_a_view(lib: Any) -> Any:
    x = leaf(lib, [1, 2], [2, 4])
    v = (x * x).T
    u = v[1]
    one = first(lib, u**3 * v[0], u)
    return listed(one, *lib.autograd.grad(one.sum(), [u]))


@both([[3, 192], [6, 48]])
def with_respect_to_a_written_tensor(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    y *= x
    one = first(lib, y**3, y)
    return listed(one, *lib.autograd.grad(one.sum(), [y]))


@both([[192, 972], [[0, 384, 1296], [48, 108]]])
def with_respect_to_a_written_view(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    v = y[1:]
    v *= 2
    one = first(lib, v**3, v)
    found = lib.autograd.grad(one.sum(), [x, v])
    return [listed(one), listed(*found)]


@both([[192, 972], [[0, 384, 1296], [48, 108]]])
def with_respect_to_a_view_whose_base_was_written(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    v = y[1:]
    y *= 2
    one = first(lib, v**3, v)
    return [listed(one), listed(*lib.autograd.grad(one.sum(), [x, v]))]


@both([[0, 192, 1458], [1, 1, 1], [0, 480, 2430]])
def retained_gradient_of_a_gradient(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    one = first(lib, (x * x)[1:] ** 3, x)
    one.retain_grad()
    one.sum().backward()
    return listed(one, one.grad, x.grad)


@both([[3, 24, 54, 48], [6, 24, 36, 24]])
def through_elements_that_are_read_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3, 4)
    one = first(lib, x.as_strided((3, 2), (1, 1)) ** 3, x)
    return listed(one, *lib.autograd.grad(one.sum(), x))


# --- whole computations ---


@both([[400, -202, 200], [802, -598, 400]])
def product_with_the_hessian_of_rosenbrock(lib: Any) -> Any:
    x, v = leaf(lib, 1, 0, 1), lib.tensor([1.0, 1.0, 2.0], dtype=lib.float64)
    y = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
    one = first(lib, y, x)
    (product,) = lib.autograd.grad(one, x, v, retain_graph=True)
    (again,) = lib.autograd.grad((one * v).sum(), x)
    assert product.tolist() == again.tolist()
    return listed(one, product)


@both([0.3087982095341967, 0.17138323323350985])
def gradient_of_the_norm_of_a_gradient(lib: Any) -> Any:
    w, x = leaf(lib, [0.5, 0.25], [-0.5, 1]), leaf(lib, [1, 2], [0.5, 1])
    losses = []
    for _ in range(2):
        out = lib.tanh(x @ w).sum()
        norm = (first(lib, out, x) ** 2).sum(1).sqrt()
        loss = ((norm - 1) ** 2).mean() + out / 10
        w.grad = x.grad = None
        loss.backward()
        with lib.no_grad():
            w -= w.grad / 2
        losses.append(loss.item())
    return losses


@both([[0.04418867169638782, -0.17263946044810233], 0.7660751028806569])
def gradient_through_steps_of_descent(lib: Any) -> Any:
    w, rate = leaf(lib, 0.5, -0.25), lib.tensor(0.25, dtype=lib.float64, requires_grad=True)
    a = lib.tensor([[1.0, 2.0], [2.0, 1.0], [0.0, 1.0]], dtype=lib.float64)
    p = w
    for _ in range(3):
        p = p - rate * first(lib, ((a @ p - 1) ** 2).mean(), p)
    ((a @ p - 1) ** 2).mean().backward()
    return listed(w.grad, rate.grad)


@both([0.0])
def residual_of_a_differential_equation(lib: Any) -> Any:
    t, k = lib.linspace(0.1, 1, 5, dtype=lib.float64).requires_grad_(), leaf(lib, 1.5)
    u = lib.sin(k * t) * lib.exp(t)
    du = first(lib, u, t)
    ddu = first(lib, du, t)
    ((ddu - 2 * du + (1 + k * k) * u) ** 2).sum().backward()
    return [round(value, 9) + 0.0 for value in listed(k.grad)]


@both([math.cos(0.75), -math.sin(0.75), math.sin(0.75) ** 3 - math.sin(1.5) * math.cos(0.75)])
def product_of_three_orders(lib: Any) -> Any:
    x = leaf(lib, 0.75)
    y = lib.sin(x)
    one = first(lib, y, x)
    two = first(lib, one, x)
    (y * one * two).sum().backward()
    return [*listed(one), *listed(two), *listed(x.grad)]


@both(
    [
        [13.9658203125, -2113.275146484375, -412.3223876953125, 4402.0546875, -23.677734375],
        [3593.036865234375, -1240.3355712890625, -6901.58935546875],
    ]
)
def sliding_window_with_weights(lib: Any) -> Any:
    x, w = leaf(lib, 1, -1, 0.5, 2, 0), leaf(lib, 0.5, 0.25, -1)
    y = sum(w[k] * x[k : k + 3] for k in range(3))
    by_x, by_w = first(lib, y**3, x, w)
    return listed(*lib.autograd.grad((by_x**2).sum() + (by_w**2).sum(), [x, w]))


@both(
    [
        [
            [-0.49977768786064, 0.53142955886958, -0.03165187100894],
            [-0.41582216577676, 0.08884477485138, 0.32697739092539],
        ],
        [
            [0.20586927666971, -0.08605624262207, -0.11981303404764],
            [-0.2400740209041, -0.03966565958992, 0.27973968049402],
        ],
    ]
)
def cross_entropy(lib: Any) -> Any:
    x = leaf(lib, [1, 2, 0], [0.5, -0.5, 0.25])
    e = lib.exp(x - x.max(1, keepdim=True)[0])
    loss = -(e / e.sum(1, keepdim=True))[:, 0].log().sum()
    one = first(lib, loss, x)
    two = first(lib, one * one, x)
    return listed(two, first(lib, two * two, x))


# --- dtypes, numbers, nothing ---


@both([["float32", [6, 16]], ["float64", [1, 4]], ["float32", [18, 96]], ["float64", [2, 16]]])
def two_dtypes(lib: Any) -> Any:
    a, b = lib.tensor([1.0, 2.0], dtype=lib.float32, requires_grad=True), leaf(lib, 3, 4)
    one = first(lib, a * a * b, a, b)
    two = lib.autograd.grad((one[0] * one[1]).sum(), [a, b])
    return [[str(found.dtype).removeprefix("torch."), listed(found)] for found in (*one, *two)]


@both([["float32", [3, 12]], ["float32", [36, 288]], ["float32", [108, 432]]])
def there_and_back_between_dtypes(lib: Any) -> Any:
    a = lib.tensor([1.0, 2.0], dtype=lib.float32, requires_grad=True)
    one = first(lib, a.double() ** 3, a)
    two = first(lib, one.double() * one, a)
    three = first(lib, two, a)
    return [[str(found.dtype).removeprefix("torch."), listed(found)] for found in (one, two, three)]


@both([[2, 4], "float64"])
def cotangent_of_another_dtype(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (one,) = lib.autograd.grad(x * x, x, lib.ones(2, dtype=lib.float64), create_graph=True)
    return [listed(one), str(one.dtype).removeprefix("torch.")]


@both([32, 48, 48, 24, 0])
def number(lib: Any) -> Any:
    x = lib.tensor(2.0, dtype=lib.float64, requires_grad=True)
    return [one.item() for one in orders(lib, lambda _, x: x**4, x, 5)]


@both([(0, 3), (0, 3), (0, 3)])
def nothing_at_all(lib: Any) -> Any:
    x = lib.zeros(0, 3, dtype=lib.float64, requires_grad=True)
    return [tuple(one.shape) for one in orders(lib, lambda _, x: x**4, x, 3)]


@both([[[], [13]], [[], [12]]])
def nothing_and_something(lib: Any) -> Any:
    x, y = lib.zeros(0, dtype=lib.float64, requires_grad=True), leaf(lib, 2)
    one = first(lib, (x * y).sum() + (y**3).sum() + y.sum(), x, y)
    two = lib.autograd.grad(one[0].sum() + one[1].sum(), [x, y])
    return [listed(*one), listed(*two)]


@both([[[[12] * 3] * 2] * 2, [[[12] * 2] * 3] * 2])
def leaves_in_no_order(lib: Any) -> Any:
    expanded = lib.ones(1, 1, dtype=lib.float64).expand(2, 3).requires_grad_()
    turned = lib.ones(2, 3, dtype=lib.float64).T.requires_grad_()
    return [listed(*orders(lib, lambda _, q: (q + 1) ** 3, one, 2)) for one in (expanded, turned)]


# --- threads ---


def elsewhere(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread of its own, or raise what it raises."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()


@both([[5, 80], [30, 960], [150, 2400]])
def each_step_in_a_thread_of_its_own(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = elsewhere(lambda: x * x)
    z = (y * y * x).sum()
    one = elsewhere(lambda: first(lib, z, x))
    two = first(lib, one * y, x)
    return listed(one, two, elsewhere(lambda: lib.autograd.grad(two.sum(), x)[0]))


@both([[4, 32], [12, 48]])
def graph_of_a_thread_that_has_ended(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = elsewhere(lambda: x**4)
    gc.collect()
    one = first(lib, y, x)
    gc.collect()
    return listed(one, *lib.autograd.grad(one.sum(), x))


@both([[4, 32], [12, 48]])
def gradient_of_a_thread_that_has_ended(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = elsewhere(lambda: first(lib, x**4, x))
    gc.collect()
    return listed(one, *lib.autograd.grad(one.sum(), x))


# --- kinks ---


@both([[2.5, 12], [4, 12]])
def tie_of_a_maximum(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    return listed(*orders(lib, lambda lib, x: lib.maximum(x * x, x**3), x, 2))


@both([[0, 8], [0, 2]])
def absolute_value_at_zero(lib: Any) -> Any:
    return listed(*orders(lib, lambda _, x: abs(x) * x, leaf(lib, 0, 4), 2))


@both([[16, 16, 0], [24, 24, 0]])
def tied_largest(lib: Any) -> Any:
    x = leaf(lib, 2, 2, 1)
    return listed(*orders(lib, lambda _, x: (x * x).max() ** 2, x, 2))


@both([[0, 4], [2, 2], [0, 0]])
def square_at_zero(lib: Any) -> Any:
    return listed(*orders(lib, lambda _, x: x**2, leaf(lib, 0, 2), 3))


# --- where we differ ---


@ours([[1, 0.25], [0, -0.03125], [0, 0.01171875]], "a select cuts")
def branch_not_taken(lib: Any) -> Any:
    return listed(*orders(lib, lambda lib, x: lib.where(x > 0.5, lib.sqrt(x), x), leaf(lib, 0, 4), 3))


@ours([[3, 3], [0, 0]], "a select cuts")
def branch_not_taken_of_a_maximum(lib: Any) -> Any:
    return listed(*orders(lib, lambda lib, x: lib.maximum(lib.sqrt(x) - 1, x * 3 + 1), leaf(lib, 0, 4), 2))


@ours([[0, 2], [2, 2]], "a part that nothing is asked of is not multiplied")
def part_not_taken(lib: Any) -> Any:
    return listed(*orders(lib, lambda lib, x: lib.cat([x * x, 1 / x])[:2], leaf(lib, 0, 1), 2))


@ours([30, 480], "values are saved when they are overwritten")
def value_overwritten_between_the_backwards(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    one = first(lib, y**3, x)
    y.zero_()
    return listed(*lib.autograd.grad(one.sum(), x))


@ours([30, 480], "values are saved when they are overwritten")
def leaf_overwritten_between_the_backwards(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = first(lib, (x * x) ** 3, x)
    with lib.no_grad():
        x.zero_()
    return listed(*lib.autograd.grad(one.sum(), x))


@ours([30, 72], "values are saved when they are overwritten")
def cotangent_overwritten_between_the_backwards(lib: Any) -> Any:
    x, v = leaf(lib, 1, 2), lib.tensor([5.0, 6.0], dtype=lib.float64)
    (one,) = lib.autograd.grad(x**3, x, v, create_graph=True)
    v.zero_()
    return listed(*lib.autograd.grad(one.sum(), x))


@ours([36, 288], "values are saved when they are overwritten")
def gradient_overwritten_after_its_use(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one = first(lib, x**3, x)
    square = one * one
    one.zero_()
    return listed(*lib.autograd.grad(square.sum(), x))


@ours([0, 480, 2430], "values are saved when they are overwritten")
def view_overwritten_between_the_backwards(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    v = (x * x)[1:]
    one = first(lib, v**3, x)
    v.mul_(0)
    return listed(*lib.autograd.grad(one.sum(), x))


@ours([[24, 12], [0, 48]], "gradients can be written in place")
def gradient_written_in_place(lib: Any) -> Any:
    x = leaf(lib, 2, 2)
    one = first(lib, x**3, x)
    one[0] = x[1] * one[1]
    return listed(one, *lib.autograd.grad(one.sum(), x))


@ours([0, 96, 324], "autograd.grad leaves .grad alone")
def retained_gradient_of_the_second_backward(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    y.retain_grad()
    first(lib, y[1:] ** 3, x).sum().backward()
    return listed(y.grad)


# --- the tests ---


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program(program: Program, expected: Any) -> None:
    found = found_by(tape, program)
    assert close(found, expected), found


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program_with_pytorch(pytorch: Outcomes, program: Program, expected: Any) -> None:
    found = pytorch(program, program.__name__)
    assert close(found, expected), found


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize(("program", "expected", "why"), DEVIATIONS)
def test_deviation(program: Program, expected: Any, why: str) -> None:
    found = found_by(tape, program)
    assert close(found, expected), (why, found)


@pytest.mark.parametrize(("program", "expected", "why"), DEVIATIONS)
def test_deviation_with_pytorch(pytorch: Outcomes, program: Program, expected: Any, why: str) -> None:
    found = pytorch.or_error(program, program.__name__)
    if isinstance(found, Raised):
        assert "RuntimeError" in found.classes
        return
    assert not close(found, expected), f"PyTorch does the same: {why}"
