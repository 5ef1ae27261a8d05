"""Errors that name a remedy: a wrong call raises, its message says what to write, and that, written, works."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.interpolate
import scipy.sparse
import scipy.special
from numba import njit

import tape
import tape.numpy as tnp
from tape import func

pytestmark = [pytest.mark.quick, pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning")]


class Case(NamedTuple):
    """A wrong call, words of its message, and what they say to write, with its result, or part of it."""

    wrong: Callable[[], Any]
    said: str
    right: Callable[[], Any]
    result: Any


def leaf(*values: float) -> tape.Tensor:
    return tape.tensor(list(values) or [1.0, 2.0, 3.0], requires_grad=True)


def slope(f: Callable[[tape.Tensor], Any], *values: float) -> Any:
    """Return the gradient of the sum of what a function computes."""
    x = leaf(*values)
    f(x).sum().backward()
    assert x.grad is not None
    return x.grad


def twice(keep: bool | None = None) -> Any:
    x = leaf()
    y = (x * x).sum()
    y.backward(retain_graph=keep)
    y.backward()
    return x.grad


def written(x: Any) -> Any:
    x += 1.0
    return x


def within_no_grad() -> Any:
    x = leaf()
    with tape.no_grad():
        x += 1.0
    return x.detach()


def filled(x: Any) -> Any:
    array = np.zeros(3)
    array[:] = x
    return array


def filled_by_tape(x: Any) -> Any:
    array = tnp.zeros(3)
    array[:] = x
    return array


def twice_of_compiled() -> Any:
    @njit
    def square(x: Any) -> Any:
        return x * x

    @njit
    def square_vjp(g: Any, x: Any) -> Any:
        return 2.0 * x * g

    return second(tape.custom(square, square_vjp))


class Square(tape.autograd.Function):
    """What the message tells to write in place of a ``tape.custom``."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Multiply by the derivative."""
        (x,) = ctx.saved_tensors
        return 2.0 * x * g


def second(f: Callable[[Any], Any]) -> Any:
    x = leaf()
    (g,) = tape.autograd.grad(f(x).sum(), x, create_graph=True)
    (h,) = tape.autograd.grad(g.sum(), x)
    return h


def of_inference(*, clone: bool) -> Any:
    with tape.inference_mode():
        t = tape.ones(3)
    return slope(lambda x: x * (t.clone() if clone else t))


@njit
def doubled(x: Any) -> Any:
    return 2.0 * x


@njit
def doubled_vjp(g: Any, _x: Any) -> Any:
    return 2.0 * g


@tape.compile
def called_twice(x: Any) -> Any:
    return (x * x).sum()


def loops_after_calls() -> Any:
    for _ in range(3):
        called_twice(np.ones(3))
    return "def program" in called_twice.loops()


def branch(x: Any) -> Any:
    return x if x > 0 else -x


def escaping(x: Any) -> Any:
    return x * x.sum().item()


def halves(a: Any) -> Any:
    a *= 0.5
    return a.sum()


def frozen() -> Any:
    array = np.ones(3)
    array.flags.writeable = False
    return array


STAND = tape.tensor([1.0, -2.0])
COUNTS = tape.tensor([1, 2, 3])
MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])
EYE = scipy.sparse.csr_array(np.eye(3))
GRID = np.arange(3.0)
PROGRAM = tape.record(lambda x: (x * x).sum(), np.ones(3))
X, ONES = leaf(), tape.ones(3)
CASES = {
    "a second backward": Case(twice, "Specify retain_graph=True", lambda: twice(keep=True), [4, 8, 12]),
    "a leaf in place": Case(lambda: written(leaf()), "its clone()", lambda: slope(lambda x: written(x.clone())), ONES),
    "a leaf, not recorded": Case(lambda: written(leaf()), "within tape.no_grad()", within_no_grad, [2, 3, 4]),
    "a part of a leaf": Case(lambda: written(leaf()[1:]), "its clone()", lambda: written(leaf().clone()[1:]), [3, 4]),
    "numpy": Case(leaf().numpy, "Use tensor.detach().numpy()", lambda: leaf().detach().numpy(), [1, 2, 3]),
    "np.array": Case(lambda: np.array([*X]), "tape.tensor([...])", lambda: slope(lambda x: tape.tensor([*x])), ONES),
    "np.array, by import": Case(
        lambda: tape.value_and_grad(lambda x: np.array([*x]).sum())(np.ones(3)),
        "import tape.numpy as np",
        lambda: tape.value_and_grad(lambda x: tnp.array([*x]).sum())(np.ones(3))[1],
        ONES,
    ),
    "an array written": Case(lambda: filled(X), "Write t.detach()", lambda: filled(X.detach()), [1, 2, 3]),
    "an array written, differentiated": Case(
        lambda: tape.value_and_grad(lambda x: filled(x).sum())(np.ones(3)),
        "import tape.numpy as np",
        lambda: tape.value_and_grad(lambda x: filled_by_tape(x).sum())(np.ones(3))[1],
        ONES,
    ),
    "a ufunc into an array": Case(
        lambda: np.sin(X, out=np.zeros(3)),
        "detach() the operands",
        lambda: np.sin(X.detach(), out=np.zeros(3))[0],
        math.sin(1.0),
    ),
    "np.vectorize": Case(
        lambda: np.vectorize(lambda v: v * v)(X),
        "tape.func.vmap(f)(t)",
        lambda: slope(func.vmap(lambda v: v * v)),
        [2, 4, 6],
    ),
    "np.f of a list": Case(
        lambda: np.ravel([*X]), "tape.stack([...])", lambda: slope(lambda x: np.ravel(tape.stack([*x]))), ONES
    ),
    "a method of a ufunc": Case(
        lambda: np.add.reduceat(X, [0]),
        "tensor.detach().numpy()",
        lambda: np.add.reduceat(X.detach().numpy(), [0]),
        [6],
    ),
    "a branch": Case(lambda: bool(X > 0), "write .any() or .all()", lambda: bool((X > 0).all()), True),
    "item": Case(X.item, ".tolist() has all", X.tolist, [1, 2, 3]),
    "float": Case(lambda: float(X), ".tolist()", X.tolist, [1, 2, 3]),
    "several results": Case((X * 2.0).backward, "give gradient=", lambda: slope_by_weights([1.0, 0.0, 2.0]), [2, 0, 4]),
    "no graph": Case(lambda: tape.ones(3).sum().backward(), "requires_grad=True", lambda: slope(tape.sum), ONES),
    "integers with grad": Case(
        lambda: tape.tensor([1, 2], requires_grad=True),
        "give dtype=tape.float64",
        lambda: tape.tensor([1, 2], requires_grad=True, dtype=tape.float64),
        [1, 2],
    ),
    "integers, asked later": Case(
        COUNTS.requires_grad_, "x.double() can", lambda: COUNTS.double().requires_grad_(), [1, 2, 3]
    ),
    "a mean of integers": Case(COUNTS.mean, "x.double().mean()", lambda: COUNTS.double().mean(), 2.0),
    "what is computed": Case(
        lambda: (X * 2.0).requires_grad_(False), "var_no_grad = var.detach()", (X * 2.0).detach, [2, 4, 6]
    ),
    "copy.deepcopy": Case(
        lambda: copy.deepcopy(X * 2.0), "copy x.detach()", lambda: copy.deepcopy((X * 2.0).detach()), [2, 4, 6]
    ),
    "an input that is not used": Case(
        lambda: tape.autograd.grad(X.sum(), leaf()),
        "Set allow_unused=True",
        lambda: tape.autograd.grad(X.sum(), leaf(), allow_unused=True)[0] is None,
        True,
    ),
    "an expanded tensor": Case(
        lambda: tape.ones(1).expand(3).add_(1.0), "clone()", lambda: tape.ones(1).expand(3).clone().add_(1.0), [2, 2, 2]
    ),
    "a view that strides do not allow": Case(
        lambda: tape.ones(2, 3).T.view(6), "Use .reshape(...)", lambda: tape.ones(2, 3).T.reshape(6), tape.ones(6)
    ),
    "a view as another dtype": Case(lambda: X.view(tape.float32), "x.to(dtype)", lambda: X.to(tape.float32), [1, 2, 3]),
    "out=": Case(
        lambda: tape.sin(X, out=tape.zeros(3)),
        "Write out.copy_(sin(...))",
        lambda: slope(lambda x: tape.zeros(3).copy_(tape.sin(x)), 0.0, 0.0, 0.0),
        ONES,
    ),
    "a condition of numbers": Case(
        lambda: tape.where(STAND, STAND, 0.0), "where(x != 0, ...)", lambda: tape.where(STAND != 0, STAND, 0.0), [1, -2]
    ),
    "math.f": Case(lambda: math.sin(X[0]), "write tape.sin(t)", lambda: tape.sin(X[0]), math.sin(1.0)),
    "math.f, without gradient": Case(
        lambda: math.sin(X[0]), "Write .item()", lambda: math.sin(X[0].item()), math.sin(1)
    ),
    "SciPy": Case(
        lambda: scipy.special.logsumexp(X),
        "use tape.special.logsumexp",
        lambda: tape.special.logsumexp(X),
        scipy.special.logsumexp([1, 2, 3]),
    ),
    "SciPy's splines": Case(
        lambda: scipy.interpolate.CubicSpline(GRID, X),
        "use tape.interpolate.CubicSpline",
        lambda: tape.interpolate.CubicSpline(GRID, X)(1.0),
        2.0,
    ),
    "an order of a Bessel function": Case(
        lambda: scipy.special.jv(X, 1.0),
        "detach() it",
        lambda: scipy.special.jv(X.detach(), 1.0)[0],
        scipy.special.jv(1, 1),
    ),
    "outside of an interpolation": Case(
        lambda: tape.interpolate.interp1d(GRID, GRID)(7.0),
        "fill_value='extrapolate'",
        lambda: tape.interpolate.interp1d(GRID, GRID, fill_value="extrapolate")(7.0),
        7.0,
    ),
    "a jitted function, as Python": Case(lambda: doubled(X), ".py_func", lambda: slope(doubled.py_func), [2, 2, 2]),
    "a jitted function, as an operation": Case(
        lambda: doubled(X),
        "tape.custom(forward, vjp)",
        lambda: slope(tape.custom(doubled, doubled_vjp)),
        [2, 2, 2],
    ),
    "a compiled vjp": Case(
        twice_of_compiled, "write it as an autograd.Function", lambda: second(Square.apply), [2, 2, 2]
    ),
    "a Function as an object": Case(
        lambda: Square()(X), "use Square.apply(...)", lambda: slope(Square.apply), [2, 4, 6]
    ),
    "a device": Case(lambda: tape.ones(3, device="cuda"), "give 'cpu'", lambda: tape.ones(3, device="cpu"), ONES),
    "a masked array": Case(lambda: X + MASKED, "give x.filled(number)", lambda: X + MASKED.filled(0.0), [2, 2, 6]),
    "a sparse matrix": Case(lambda: X + EYE, "toarray()", lambda: (X + EYE.toarray())[0], [2, 2, 3]),
    "a tensor of a sparse matrix": Case(
        lambda: tape.tensor(EYE), "give its toarray()", lambda: tape.tensor(EYE.toarray())[0], [1, 0, 0]
    ),
    "a list of tensors": Case(lambda: X * [*X], "tape.stack(...)", lambda: X * tape.stack([*X]), [1, 4, 9]),
    "complex numbers": Case(
        lambda: tape.tensor([1 + 2j]), "z.real and z.imag", lambda: tape.tensor(np.array([1 + 2j]).imag), [2]
    ),
    "a name that is mistyped": Case(lambda: tape.sinn, "did you mean tape.sin", lambda: tape.sin(0.0), 0.0),
    "inference": Case(lambda: of_inference(clone=False), "make a clone", lambda: of_inference(clone=True), ONES),
    "a branch in vmap": Case(
        lambda: func.vmap(branch)(STAND),
        "tape.where",
        lambda: func.vmap(lambda x: tape.where(x > 0, x, -x))(STAND),
        [1, 2],
    ),
    "random numbers in vmap": Case(
        lambda: func.vmap(lambda x: x + tape.rand(()))(STAND),
        "'different' randomness",
        lambda: len(func.vmap(lambda x: x + tape.rand(()), randomness="different")(STAND)),
        2,
    ),
    "value_and_grad of several results": Case(
        lambda: tape.value_and_grad(lambda x: x * x)(np.ones(2)),
        "tape.func.jacrev",
        lambda: func.jacrev(lambda x: x * x)(np.ones(2)).diagonal(),
        [2, 2],
    ),
    "grad of several results": Case(
        lambda: func.grad(lambda x: x * x)(np.ones(2)),
        "jacrev",
        lambda: func.jacrev(lambda x: x * x)(np.ones(2)).diagonal(),
        [2, 2],
    ),
    "another shape": Case(
        lambda: PROGRAM(np.ones(4)),
        "record it anew",
        lambda: tape.record(lambda x: x.sum(), np.ones(4))(np.ones(4)),
        4.0,
    ),
    "a number of a program": Case(
        lambda: tape.record(escaping, np.ones(3))(np.ones(3)),
        "compile it with tape.compile",
        lambda: tape.compile(escaping)(np.ones(3)),
        [3, 3, 3],
    ),
    "what cannot be written": Case(
        lambda: tape.record(halves, np.ones(3))(frozen()),
        "give a copy",
        lambda: tape.record(halves, np.ones(3))(frozen().copy()),
        1.5,
    ),
    "a call of a solution": Case(
        lambda: tape.ode.solve(lambda _t, y: -y, 1.0, (0.0, 1.0))(0.5),
        "with dense=True",
        lambda: round(float(tape.ode.solve(lambda _t, y: -y, 1.0, (0.0, 1.0), dense=True)(0.0)), 9),
        1.0,
    ),
    "a checkpoint that writes": Case(
        lambda: tape.checkpoint(written, X * 1.0).sum().backward(),
        "write to x.clone()",
        lambda: slope(lambda x: tape.checkpoint(lambda y: written(y.clone()), x * 1.0)),
        ONES,
    ),
    "np.nan_to_num in place": Case(
        lambda: np.nan_to_num(X, copy=False), "tensor.nan_to_num_()", (X * 1.0).nan_to_num_, [1, 2, 3]
    ),
    "np.polymul": Case(
        lambda: np.polymul(leaf(0.0, 1.0), leaf(1.0, 1.0)),
        "use np.convolve",
        lambda: np.convolve(leaf(0.0, 1.0), leaf(1.0, 1.0)),
        [0, 1, 1],
    ),
    "the width of a filter": Case(
        lambda: tape.ndimage.gaussian_filter(X, leaf(1.0)[0], order=1),
        "give sigma.detach()",
        lambda: tape.ndimage.gaussian_filter(X, leaf(1.0)[0].detach(), order=1).shape,
        [3],
    ),
    "integers of a transform": Case(
        lambda: func.jacrev(lambda x: x * x)(COUNTS),
        "x.double() can",
        lambda: func.jacrev(lambda x: x * x)(COUNTS.double()).diagonal(),
        [2, 4, 6],
    ),
    "vmap over what is no tensor": Case(
        lambda: func.vmap(lambda x, n: x * n, in_dims=(0, 0))(STAND, 3),
        "None as the respective in_dim",
        lambda: func.vmap(lambda x, n: x * n, in_dims=(0, None))(STAND, 3),
        [3, -6],
    ),
    "a write to what is mapped over": Case(
        lambda: func.vmap(lambda x, y: y.add_(x), in_dims=(0, None))(STAND, tape.zeros(())),
        "Use out-of-place operations",
        lambda: func.vmap(lambda x, y: y + x, in_dims=(0, None))(STAND, tape.zeros(())),
        [1, -2],
    ),
    "noise that nothing tells": Case(
        lambda: tape.uncertainty.laplace(lambda p: p - 1.0, np.ones(2), residuals=True),
        "give noise=",
        lambda: tape.uncertainty.laplace(lambda p: p - 1.0, np.ones(2), residuals=True, noise=1.0).mean,
        [1, 1],
    ),
    "loops of no program": Case(called_twice.loops, "call it first", loops_after_calls, True),
}


def slope_by_weights(weights: list[float]) -> Any:
    x = leaf()
    (x * 2.0).backward(gradient=tape.tensor(weights))
    return x.grad


@pytest.mark.parametrize("name", CASES)
def test_what_a_message_says_works(name: str) -> None:
    case = CASES[name]
    with pytest.raises((RuntimeError, TypeError, ValueError, AttributeError)) as caught:
        case.wrong()
    assert case.said in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    result = case.right()
    found = result.detach().numpy() if isinstance(result, tape.Tensor) else result
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(case.result, float), rtol=1e-12)
