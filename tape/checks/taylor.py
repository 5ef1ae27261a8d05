"""Taylor tests, and contracts of functions that are tested.

Neither a Taylor test nor dot products need a Jacobian, so both suit whole simulations: a Taylor test costs a few
runs and one backward.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.checks import finite_differences, first_nonfinite
from tape.checks.finite_differences import Case, Comparison, GradcheckError, filled, pull, random_like
from tape.engine.backward import grad
from tape.engine.custom_function import CHANGED
from tape.func import jvp, vmap
from tape.recording.creation import from_numpy, tensor
from tape.tensors.tensor import Array, Tensor, as_array

_TITLES = {1: "|f(x+h dx) - f(x)|", 2: "|... - h <g, dx>|", 3: "|... - h^2/2 <H dx, dx>|"}
_NOISY = 32.0  # remainders below so many units of rounding are rounding


@dataclass(frozen=True, slots=True)
class TaylorTest:
    """Remainders of Taylor polynomials over shrinking steps; ``str()`` is a table of them.

    Attributes:
        steps: The steps h, each half of the one before.
        remainders: By expected order (1: value alone, 2: with the gradient, 3: with the Hessian), one for each step.
        orders: By expected order, those observed from each step to the next; inf where the second remainder is
            rounding, as for a polynomial that the Taylor polynomial equals.
    """

    steps: tuple[float, ...]
    remainders: dict[int, tuple[float, ...]]
    orders: dict[int, tuple[float, ...]]

    @property
    def order(self) -> float:
        """The smallest order observed of the last column: about 2 for a right gradient, 3 with a right Hessian."""
        return min(self.orders[max(self.orders)])

    def __str__(self) -> str:
        """Return a table, a line for each step."""
        rows = [["h", *(cell for k in self.remainders for cell in (_TITLES[k], "order"))]]
        for n, h in enumerate(self.steps):
            row = [f"{h:.3e}"]
            for k, column in self.remainders.items():
                row += [f"{column[n]:.3e}", f"{self.orders[k][n - 1]:.2f}" if n else ""]
            rows.append(row)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def taylor_test(
    f: Callable[..., Tensor], x: Any, dx: Any = None, *, hessian: bool = False, h: float = 2.0**-7, steps: int = 6,
    verbose: bool = True,
) -> TaylorTest:  # fmt: skip
    """Print how fast Taylor remainders of a function shrink as the step is halved; return them.

    The remainder ``|f(x + h dx) - f(x)|`` has order 1 in h, less ``h <g, dx>`` order 2 if g is the gradient, less
    ``h^2/2 <H dx, dx>`` order 3 if H is the Hessian. A wrong derivative takes the order down by one::

        assert taylor_test(f, x, dx).order > 1.9
        assert taylor_test(f, x, dx, hessian=True).order > 2.9

    Where f is its own Taylor polynomial (linear, or quadratic with the Hessian) remainders are rounding from the
    start: they count as of infinite order, and pass. How large rounding is, is measured.

    Args:
        f: Takes a tensor, or as many as ``x`` has, and returns a tensor of one element.
        x: The point: a tensor, array or number, or a tuple of them. Copies of it are used, float64 unless floating.
        dx: The direction, of the same shapes; random numbers of the size of x's if left out.
        hessian: Whether to test the Hessian too; it needs ``create_graph=True`` to work through f.
        h: The first step.
        steps: How many steps, two at least.
        verbose: Whether to print the table.

    Raises:
        ValueError: ``steps`` is below 2, ``h`` not positive, or the shapes of x and dx differ.
        RuntimeError: f returns more than one element, or nothing that requires grad.
    """
    if steps < 2 or not h > 0:  # noqa: PLR2004 (an order takes two)
        raise ValueError(f"taylor_test: two steps at least, the first one positive; got steps={steps}, h={h}")
    points = _arrays(x)
    directions = _directions(points, dx)
    case = Case(f, tuple(tensor(p, requires_grad=True) for p in points))
    terms = _terms(case, directions, hessian=hessian)
    result = _shrunk(case, directions, terms, tuple(h / 2**k for k in range(steps)))
    if verbose:
        sys.stdout.write(f"{result}\n")
    return result


def _arrays(x: Any) -> list[Array]:
    arrays = [np.array(as_array(v) if isinstance(v, Tensor) else v) for v in finite_differences.as_tuple(x)]
    return [a if a.dtype.kind == "f" else a.astype(np.float64) for a in arrays]


def _directions(points: Sequence[Array], direction: Any) -> list[Array]:
    if direction is None:
        rng = np.random.default_rng(0)
        sizes = [np.abs(p.astype(np.float64)) for p in points]
        return [  # of the size of each element; of zeros that of the largest, or 1
            rng.standard_normal(p.shape) * np.where(size > 0, size, size.max(initial=0.0) or 1.0)
            for p, size in zip(points, sizes, strict=True)
        ]
    directions = _arrays(direction)
    shapes = [p.shape for p in points], [d.shape for d in directions]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the direction has shapes {shapes[1]}, the point {shapes[0]}")
    return directions


def _terms(case: Case, directions: Sequence[Array], *, hessian: bool) -> list[float]:
    """Return f, its slope along the direction, and with the Hessian half its curvature."""
    (value,) = finite_differences.outputs_of(case.func(*case.inputs))
    if value.numel() != 1:
        raise RuntimeError(f"taylor_test: f returned {value.numel()} elements; it must return one")
    gradients = grad(value, case.inputs, create_graph=hessian, allow_unused=True)
    terms = [float(as_array(value).item()), _dot(filled(gradients, case.inputs), directions)]
    if hessian:
        products = [(g * tensor(d)).sum() for g, d in zip(gradients, directions, strict=True) if g is not None]
        slopes = finite_differences.differentiable(products)
        second = grad(slopes, case.inputs, allow_unused=True) if slopes else (None,) * len(directions)
        terms.append(_dot(filled(second, case.inputs), directions) / 2)
    return terms


def _shrunk(case: Case, directions: Sequence[Array], terms: list[float], steps: tuple[float, ...]) -> TaylorTest:
    at = finite_differences.along(lambda: _values(case), [as_array(x) for x in case.inputs], directions)
    noise = float(finite_differences.noise_of(at, steps[-1] / 64)[0])
    values = [at(h)[1].item() for h in steps]
    parts = [[term * h**k for k, term in enumerate(terms)] for h in steps]
    remainders = {
        order: tuple(abs(value - sum(part[:order])) for value, part in zip(values, parts, strict=True))
        for order in range(1, len(terms) + 1)
    }
    rounding = [
        _NOISY * (noise + np.finfo(float).eps * (abs(value) + sum(map(abs, part))))
        for value, part in zip(values, parts, strict=True)
    ]
    orders = {
        order: tuple(
            math.inf if fine <= unit else math.log2(coarse / fine) if coarse > 0 else -math.inf
            for coarse, fine, unit in zip(column, column[1:], rounding[1:], strict=False)
        )
        for order, column in remainders.items()
    }
    return TaylorTest(steps, remainders, orders)


def _dot(left: Sequence[Array], right: Sequence[Array]) -> float:
    return float(sum(np.vdot(a, b) for a, b in zip(left, right, strict=True)))


@dataclass(frozen=True, slots=True)
class DotProducts:
    """The two numbers of :func:`dot_product_test`; ``str()`` is one line.

    Attributes:
        forward: <J v, w>.
        reverse: <v, J^T w>.
        difference: What they differ by, relative to the larger one.
        error: What ``forward`` may be off by, relative likewise: 0 by forward mode, estimated for differences.
    """

    forward: float
    reverse: float
    difference: float
    error: float

    def __str__(self) -> str:
        """Return for example ``<J v, w> = 1.5, <v, J^T w> = 1.5, relative difference 2e-12 (error about 1e-11)``."""
        return (
            f"<J v, w> = {self.forward:.15g}, <v, J^T w> = {self.reverse:.15g}, "
            f"relative difference {self.difference:.1g} (error about {self.error:.1g})"
        )


def dot_product_test(
    f: Callable[..., Any], x: Any, v: Any = None, w: Any = None, *, differences: bool = False, eps: float = 1e-6,
    verbose: bool = True,
) -> DotProducts:  # fmt: skip
    """Print and return <J v, w> and <v, J^T w> of a function's Jacobian J: the transpose that backward applies.

    J^T w is by ``tape.autograd.grad``; J v by ``tape.func.jvp``, to the last digits, or by differences, which share no
    rule with backward::

        result = dot_product_test(f, x)
        assert result.difference < 1e-12 + result.error

    Args:
        f: Takes a tensor, or as many as ``x`` has, and returns a tensor of any shape, or a tuple of them.
        x: The point: a tensor, array or number, or a tuple of them. Copies of it are used, float64 unless floating.
        v: The direction, of x's shapes; random if left out.
        w: The weights, of the shapes of f's floating outputs; random if left out.
        differences: Whether J v is to be by differences. They also serve where forward mode cannot pass f.
        eps: The first step of differences, in units of v.
        verbose: Whether to print the numbers.

    Raises:
        ValueError: The shapes of v or w are not those of x or of what f returns.
        RuntimeError: Nothing that f returns requires grad.
    """
    points = _arrays(x)
    directions = _directions(points, v)
    case = Case(f, tuple(tensor(p, requires_grad=True) for p in points))
    outputs = [o for o in case.run() if o.is_floating_point()]
    weights = random_like(outputs) if w is None else _arrays(w)
    if [a.shape for a in weights] != [tuple(o.shape) for o in outputs]:
        raise ValueError(f"weights of shapes {[a.shape for a in weights]} for {[tuple(o.shape) for o in outputs]}")
    if not finite_differences.differentiable(outputs):
        raise RuntimeError("dot_product_test: nothing that f returns requires grad")
    pairs = [(o, a) for o, a in zip(outputs, weights, strict=True) if o.requires_grad]
    gradients = pull([o for o, _ in pairs], case.inputs, [a.astype(o.dtype) for o, a in pairs])
    reverse = _dot(filled(gradients, case.inputs), directions)
    forward, error = None, 0.0
    with suppress(NotImplementedError):  # where forward mode cannot pass
        forward = None if differences else _dot(finite_differences.push(case, directions), weights)
    if forward is None:
        at = finite_differences.along(lambda: _values(case), [as_array(t) for t in case.inputs], directions)
        flat, noise = np.concatenate([a.reshape(-1) for a in weights]), finite_differences.noise_of(at, eps)
        (estimate,) = finite_differences.projected(at, eps, noise, [flat], [reverse])
        forward, error = estimate.value.item(), estimate.error.item()
    largest = max(abs(forward), abs(reverse)) or 1.0
    result = DotProducts(forward, reverse, abs(forward - reverse) / largest, error / largest)
    if verbose:
        sys.stdout.write(f"{result}\n")
    return result


def _values(case: Case) -> Array:
    return np.concatenate([np.zeros(0), *(as_array(o).reshape(-1) for o in case.run() if o.is_floating_point())])


# Contracts of a backward besides right gradients: what it must not change, and which cotangents it must accept.

_DOUBLE = 1e-10  # noise, relative to the values, below which a function is taken to compute in float64 throughout


def check(comparison: Comparison, *, undefined: bool, batched: bool) -> None:
    """Raise GradcheckError for the first contract that a backward breaks."""
    outputs, inputs = comparison.outputs, comparison.inputs
    if not outputs:
        return
    for k, output in enumerate(outputs if batched else ()):
        check_batched(output, inputs, k)
    gradients = check_linear(comparison)
    check_recorded(comparison, gradients)
    if comparison.precise_to(_DOUBLE):
        check_precision(comparison, gradients)
    check_zero(outputs, inputs)
    if undefined:
        check_undefined(outputs, inputs)
    for difference in first_nonfinite.differences(comparison.case, comparison.close):
        raise GradcheckError(difference)


def check_linear(comparison: Comparison) -> finite_differences.Gradients:
    """Raise unless backward is linear in cotangents and takes strided ones; return gradients."""
    outputs, inputs = comparison.outputs, comparison.inputs
    first = random_like(outputs)
    check_cotangents(outputs, inputs, first)
    second = [np.cos(np.arange(c.size, dtype=c.dtype)).reshape(c.shape) for c in first]
    gradients = pull(outputs, inputs, first)
    base, second_gradients = filled(gradients, inputs), filled(pull(outputs, inputs, second), inputs)
    mixed = filled(pull(outputs, inputs, [1024 * a + b for a, b in zip(first, second, strict=True)]), inputs)
    strided = filled(pull(outputs, inputs, [from_numpy(finite_differences.gapped(c)) for c in first]), inputs)
    for i, (a, b, m, s) in enumerate(zip(base, second_gradients, mixed, strided, strict=True)):
        error = comparison.errors[i]
        if not comparison.close(m, 1024 * a + b, error=1024 * error):
            raise GradcheckError(f"Backward is not linear in grad_output: gradient of input {i}")
        if not comparison.close(s, a, error=error):
            raise GradcheckError(f"Backward depends on the strides of grad_output: gradient of input {i}")
    return gradients


def check_cotangents(outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any]) -> None:
    """Raise if the backward of a Function writes to its cotangents."""
    changed: list[int] = []
    token = CHANGED.set(changed)
    try:
        pull(outputs, inputs, cotangents)
    finally:
        CHANGED.reset(token)
    if changed:
        raise GradcheckError(f"Backward changed grad_output {changed[0]} in place; it must work on copies")


def check_recorded(comparison: Comparison, gradients: finite_differences.Gradients) -> None:
    """Raise unless a recorded backward gives the same gradients. What it raises is left to gradgradcheck."""
    outputs, inputs = comparison.outputs, comparison.inputs
    cotangents = [tensor(c) for c in random_like(outputs)]
    recorded = gradients
    with suppress(Exception):
        recorded = pull(outputs, inputs, cotangents, create_graph=True)
    for i, (r, g) in enumerate(zip(filled(recorded, inputs), filled(gradients, inputs), strict=True)):
        if not comparison.close(r, g, error=comparison.errors[i]):
            raise GradcheckError(f"Backward with create_graph=True gives another gradient of input {i}")


def check_zero(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise unless cotangents of zeros give zeros, of the inputs' dtypes and shapes."""
    for g, x in zip(pull(outputs, inputs, [np.zeros(o.shape, o.dtype) for o in outputs]), inputs, strict=True):
        if g is None:
            continue
        if as_array(g).any():
            raise GradcheckError("backward not multiplied by grad_output")
        if g.dtype != x.dtype:
            raise GradcheckError(f"grad is incorrect type: {g.dtype} for an input of {x.dtype}")
        if tuple(g.shape) != tuple(x.shape):
            raise GradcheckError(f"grad is incorrect size: {tuple(g.shape)} for {tuple(x.shape)}")


def check_precision(comparison: Comparison, gradients: finite_differences.Gradients) -> None:
    """Raise for a float64 gradient that holds float32 numbers only: a cast hides the dtype that backward returned."""
    for i, (g, error) in enumerate(zip(gradients, comparison.errors, strict=True)):
        values = np.zeros(0) if g is None else as_array(g)
        significant = values.dtype == np.float64 and np.abs(values).max(initial=0.0) > error
        if significant and np.array_equal(values, values.astype(np.float32)):
            raise GradcheckError(f"Gradient has dtype mismatch: that of input {i} was rounded to float32 on its way")


def check_undefined(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise unless backward takes each output's cotangent being undefined, others being zeros, for zeros."""
    for k in range(len(outputs) if len(outputs) > 1 else 0):
        others = [o for i, o in enumerate(outputs) if i != k]
        try:
            gradients = pull(others, inputs, [np.zeros(o.shape, o.dtype) for o in others])
        except Exception as error:
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads, but with that of output {k} undefined "
                f"it raised {type(error).__name__}: {error}. check_undefined_grad=False leaves this check out"
            ) from error
        if any(g is not None and as_array(g).any() for g in gradients):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero"
            )


def check_batched(output: Tensor, inputs: Sequence[Tensor], index: int) -> None:
    """Raise unless a batched backward of two cotangents returns the gradients of each."""
    ((first,), second) = random_like([output]), np.cos(np.arange(output.numel(), dtype=output.dtype))
    pair = np.stack([first, second.reshape(output.shape)])
    expected = [filled(pull([output], inputs, [c]), inputs) for c in pair]
    try:
        batched = pull([output], inputs, [pair], is_grads_batched=True)
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}") from error
    for i, (x, got, *alone) in enumerate(zip(inputs, batched, *expected, strict=True)):
        values = np.zeros((2, *x.shape)) if got is None else as_array(got)
        if not np.allclose(values, alone, rtol=1e-5, atol=1e-8):
            raise GradcheckError(
                f"For output {index} and input {i}: batched gradients differ.\nGot:\n{values}\nExpected:\n{alone}"
            )


def check_batched_forward(case: Case) -> None:
    """Raise unless vmap over two tangents of an input returns the derivatives along each."""
    function, primals = finite_differences.forward_function(case)
    for i, x in enumerate(primals):
        pair = [random_like([x])[0], np.cos(np.arange(x.numel())).reshape(x.shape)]
        expected = [finite_differences.push(case, finite_differences.unit_tangents(primals, i, t)) for t in pair]

        def pushed(tangent: Tensor, i: int = i) -> Any:
            tangents = tuple(tangent if k == i else tensor(np.zeros(p.shape, p.dtype)) for k, p in enumerate(primals))
            return jvp(function, primals, tangents)[1]

        try:
            batched = finite_differences.as_tuple(vmap(pushed)(tensor(np.stack(pair).astype(x.dtype))))
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}") from error
        for k, (got, *alone) in enumerate(zip(batched, *expected, strict=True)):
            if not np.allclose(as_array(got), alone, rtol=1e-5, atol=1e-8):
                raise GradcheckError(f"For output {k} and input {i}: batched forward gradients differ")
