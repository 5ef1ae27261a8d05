"""A public function follows from the record of a reduction, a routine or a view: declared here, used as users do."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Reduction
from kernels.kinds.routine import Routine
from kernels.kinds.views import View
from kernels.operations import OPS
from tape.numpy_interface import op_table

Array = np.ndarray[Any, Any]


class Squares:
    """What reduces as a ufunc does."""

    @staticmethod
    def reduce(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return np.add.reduce(x * x, axis=axis, keepdims=keepdims)


def energy() -> Reduction:
    return Reduction(
        name="energy", doc="Sum of squares.", grad_fn="EnergyBackward0", ufunc=Squares,
        pullback=(lambda g, x: 2 * x * g,),
    )  # fmt: skip


def tails(results: tuple[str, ...] = ("y",)) -> Routine:
    def forward(x: Array, *, scale: float = 1.0) -> Any:
        y = scale * np.cumsum(x[..., ::-1], -1)[..., ::-1]
        return y if len(results) == 1 else (y, -x)

    def vjp(g: Array, scale: float) -> Any:
        return scale * np.cumsum(g, -1)

    def vjp_of_two(g_y: Array, g_minus: Array, scale: float) -> Any:
        return scale * np.cumsum(g_y, -1) - g_minus

    return Routine(
        name="tails", doc="Sums from each element on.", grad_fn="TailsBackward0", forward=forward,
        vjp=vjp if len(results) == 1 else vjp_of_two, results=results, samples=(),
    )  # fmt: skip


def every_second() -> View:
    return View(
        name="every_second", doc="Every second element.", grad_fn="EverySecondBackward0",
        apply=lambda x, start=0: x[..., start::2], batch=lambda _size, _shape, start: (start,),
    )  # fmt: skip


@pytest.fixture
def declared() -> Iterator[Callable[..., Any]]:
    """Make the function of a record, which is forgotten afterwards."""
    names: list[str] = []

    def function(op: Any) -> Any:
        names.append(op.name)
        return op_table.function_of(op)

    yield function
    for name in names:
        del OPS[name]


X = np.array([[1.0, -2.0, 3.0, 0.5], [4.0, 5.0, -6.0, 2.0]])


def gradient(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, Array]:
    """Return what a function gives for X, and the gradient with the cotangent 1, 2, 3, ..."""
    x = tape.tensor(X, requires_grad=True)
    y = function(x, *arguments, **named)
    y.backward(tape.arange(1.0, y.numel() + 1).reshape(y.shape))
    assert x.grad is not None
    return y, x.grad.numpy()


def test_of_a_reduction(declared: Callable[..., Any]) -> None:
    function = declared(energy())
    y, x_grad = gradient(function, 0, keepdim=True)
    assert y.tolist() == (X * X).sum(0, keepdims=True).tolist()
    assert x_grad.tolist() == (2 * X * np.arange(1.0, 5.0)).tolist()
    assert function(tape.tensor(X), axis=(0, 1)).item() == (X * X).sum()
    assert list(inspect.signature(function).parameters) == ["input", "dim", "keepdim", "dtype", "axis", "keepdims"]


def test_of_a_routine(declared: Callable[..., Any]) -> None:
    function = declared(tails())
    y, x_grad = gradient(function, scale=2.0)
    assert y.tolist() == (2 * np.cumsum(X[:, ::-1], 1)[:, ::-1]).tolist()
    assert x_grad.tolist() == (2 * np.cumsum(np.arange(1.0, 9.0).reshape(2, 4), 1)).tolist()
    assert str(inspect.signature(function)).startswith("(input: ")
    assert tape.func.vmap(function)(tape.tensor(X)).tolist() == function(tape.tensor(X)).tolist()
    with pytest.raises(TypeError, match=r"tails\(\): scale is static.*got Tensor"):
        function(tape.tensor(X), scale=tape.tensor(2.0))
    with pytest.raises(TypeError, match="unexpected keyword argument 'factor'"):
        function(tape.tensor(X), factor=2.0)


def test_of_a_routine_with_several_results(declared: Callable[..., Any]) -> None:
    function = declared(tails(("y", "minus")))
    x = tape.tensor(X, requires_grad=True)
    found = function(x)
    assert found.minus.tolist() == (-X).tolist()
    (found.y.sum() + 3 * found[1].sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == (np.cumsum(np.ones_like(X), 1) - 3).tolist()


def test_of_a_view(declared: Callable[..., Any]) -> None:
    function = declared(every_second())
    y, x_grad = gradient(function, 1)
    assert y.tolist() == X[:, 1::2].tolist()
    assert x_grad.tolist() == [[0, 1, 0, 2], [0, 3, 0, 4]]
    x = tape.tensor(X)
    function(x).zero_()
    assert x.tolist() == (X * [0, 1, 0, 1]).tolist()
    assert tape.func.vmap(function)(tape.tensor(X)).tolist() == X[:, ::2].tolist()


def test_a_view_without_a_rule_for_batches_is_refused_by_vmap(declared: Callable[..., Any]) -> None:
    function = declared(View(name="first", doc="The first.", grad_fn="FirstBackward0", apply=lambda x: x[:1]))
    with pytest.raises(NotImplementedError, match="vmap: first has no batching rule"):
        tape.func.vmap(function)(tape.tensor(X))


def test_what_is_written_by_hand_stays() -> None:
    assert not {"sum", "amax", "logsumexp"} & op_table.MADE.keys()
    assert all(OPS[name].function for name in op_table.MADE)
