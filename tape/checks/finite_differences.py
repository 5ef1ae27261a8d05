"""Jacobians by finite differences, by sweeps, and how they are compared.

Central differences at a step and at its half give a value extrapolated to step 0 (Richardson); what the two differ
by bounds the truncation. Rounding is measured: eighth differences of values on a fine grid hold nothing else
(Hamming's table). Where either hides a derivative, larger and smaller steps are tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.engine.backward import grad
from tape.func import jvp
from tape.recording.creation import tensor
from tape.tensors.tensor import Array, Tensor, as_array

ATOL, RTOL = 1e-5, 1e-3  # PyTorch's tolerances, which ours never pass unless the caller gives others
SLACK = 1e-6  # the relative error allowed besides the estimated error of the differences
ROUNDED = 1e-12  # likewise, relative to the largest element
OTHER_STEPS = (10.0, 0.1, 100.0, 0.01, 1000.0)
"""Steps tried, in units of the caller's, where that one does not resolve the derivative."""
RESOLVED = 1e-4  # relative error below which a larger step is not worth its evaluations
_GRID = range(-6, 7)
_ROUNDING = 4.0  # bound of the rounding of a difference quotient, in units of noise / step

Evaluate = Callable[[], Array]
Curve = Callable[[float], tuple[float, Array]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Derivatives and bounds of their errors, of one shape; an error may be inf."""

    value: Array
    error: Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a derivative may be from a difference quotient: a part that the caller gives is kept as it is.

    A part that is None follows from the estimated error of the differences, within PyTorch's default.
    """

    atol: float | None
    rtol: float | None

    def around(self, estimate: Estimate, weight: float = 1.0) -> Array:
        """Return the tolerance of each element; ``weight`` multiplies the absolute part."""
        size = np.abs(estimate.value)
        known = estimate.error + ROUNDED * size.max(initial=0.0)
        absolute = np.minimum(ATOL * weight, known) if self.atol is None else self.atol * weight
        relative = np.minimum(RTOL * size, SLACK * size + known) if self.rtol is None else self.rtol * size
        return np.asarray(absolute + relative)

    def accepts(self, computed: Array, estimate: Estimate, weight: float = 1.0) -> Array:
        """Return where a derivative agrees; nan never does."""
        with np.errstate(invalid="ignore"):
            off = np.abs(computed - estimate.value)
        return np.asarray((computed == estimate.value) | (off <= self.around(estimate, weight)))

    def close(self, computed: Array, expected: Array, error: float) -> bool:
        """Whether two computed arrays agree, up to an error of either."""
        value = expected.astype(np.float64)
        return bool(np.all(self.accepts(computed, Estimate(value, np.full(value.shape, error)))))


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Return what a function takes or returns as a tuple: lists too, as PyTorch does."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def scale_of(array: Array) -> Array:
    """Return the unit of each element's step: its size, or 1 for a smaller one."""
    return np.asarray(np.maximum(np.abs(array.astype(np.float64)), 1.0))


@contextmanager
def _moved(memory: Sequence[Array], directions: Sequence[Array], step: float) -> Iterator[float]:
    """Move arrays along directions within the block; yield the step as it was after rounding."""
    before = [m.copy() for m in memory]
    try:
        done = length = 0.0
        for m, b, d in zip(memory, before, directions, strict=True):
            m[...] = b + step * d
            done += float(np.sum((m.astype(np.float64) - b) * d))
            length += float(np.sum(d * d))
        yield done / length if length else step
    finally:
        for m, b in zip(memory, before, strict=True):
            m[...] = b


def along(evaluate: Evaluate, memory: Sequence[Array], directions: Sequence[Array]) -> Curve:
    """Return a curve: ``evaluate()``'s values as a function of the distance that arrays are moved along directions."""

    def at(step: float) -> tuple[float, Array]:
        with _moved(memory, directions, step) as done:
            return done, evaluate()

    return at


def noise_of(at: Curve, step: float) -> Array:
    """Return the size of the rounding errors in each value of a curve, near 0."""
    values = np.stack([at(step / 6 * k)[1] for k in _GRID])
    with np.errstate(all="ignore"):
        eighth = np.abs(np.diff(values, 8, axis=0)).max(axis=0)
    # Errors of up to e appear in an eighth difference as at most 256 e, and hardly ever as less than 32 e in all five.
    rounding = np.finfo(np.float64).eps * np.abs(values).max(axis=0)
    return np.asarray(np.maximum(eighth / 32, rounding))


def _extrapolated(at: Curve, step: float, noise: Array) -> Estimate:
    (far, f_far), (near, f_near) = at(step), at(step / 2)
    (near_below, f_near_below), (far_below, f_far_below) = at(-step / 2), at(-step)
    if far == far_below or near == near_below:  # the step is below the resolution of the inputs
        return Estimate(np.zeros_like(f_far), np.full_like(f_far, math.inf))
    with np.errstate(all="ignore"):
        outer = (f_far - f_far_below) / (far - far_below)
        inner = (f_near - f_near_below) / (near - near_below)
        error = np.abs(inner - outer) + _ROUNDING * noise / (step / 2)
        return Estimate(inner + (inner - outer) / 3, np.where(np.isfinite(error), error, math.inf))


def derivative(at: Curve, step: float, noise: Array, resolved: Callable[[Estimate], bool]) -> Estimate:
    """Return the derivative at 0 of each value of a curve, from the step that resolves it best.

    The first step is the caller's; what it raises passes through. Larger ones may leave the function's domain, and
    are left out if it raises.
    """
    best = _extrapolated(at, step, noise)
    for growth in OTHER_STEPS:
        if resolved(best):
            break
        try:
            with np.errstate(all="ignore"):
                other = _extrapolated(at, step * growth, noise)
        except Exception:  # noqa: BLE001, S112 (outside of its domain a function may raise anything)
            continue
        better = other.error < best.error
        best = Estimate(np.where(better, other.value, best.value), np.where(better, other.error, best.error))
    return best


def precise(estimate: Estimate, expected: Array) -> bool:
    """Whether each derivative is known to a small part of itself, or is 0 where 0 is expected."""
    size = np.maximum(np.abs(estimate.value), np.abs(expected))
    return bool(np.all((estimate.error <= RESOLVED * size) | (size == 0)))


def jacobians(
    evaluate: Evaluate, memory: Sequence[Array], step: float, noise: Array, expected: Sequence[Array]
) -> list[Estimate]:
    """Return, for each array, the derivatives by each of its elements: (elements, values) each.

    ``expected`` are the Jacobians to be checked, of the same shapes: differences are refined where these ask for it.
    """
    estimates = []
    for array, wanted in zip(memory, expected, strict=True):
        units = scale_of(array)
        rows = []
        for place, target in zip(np.ndindex(array.shape), wanted, strict=True):
            direction = np.zeros(array.shape)
            direction[place] = unit = float(units[place])
            at = along(evaluate, [array], [direction])
            row = derivative(at, step, noise, lambda e, t=target * unit: precise(e, t))  # type: ignore[misc]
            rows.append(Estimate(row.value / unit, row.error / unit))
        values, errors = np.array([r.value for r in rows]), np.array([r.error for r in rows])
        shape = (array.size, noise.size)
        estimates.append(Estimate(values.reshape(shape), errors.reshape(shape)))
    return estimates


def projected(
    at: Curve, step: float, noise: Array, weights: Sequence[Array], expected: Sequence[float]
) -> list[Estimate]:
    """Return the derivative at 0 of weighted sums of a curve's values, of shape (1, 1) each; weights in their order."""
    ends = np.cumsum([w.size for w in weights])[:-1]

    def sums(estimate: Estimate) -> list[Estimate]:
        parts = zip(weights, np.split(estimate.value, ends), np.split(estimate.error, ends), strict=True)
        return [Estimate(np.vdot(w, v).reshape(1, 1), np.vdot(np.abs(w), e).reshape(1, 1)) for w, v, e in parts]

    def resolved(estimate: Estimate) -> bool:
        return all(precise(e, np.asarray(x)) for e, x in zip(sums(estimate), expected, strict=True))

    return sums(derivative(at, step, noise, resolved))


# Jacobians by backward and by forward mode, for the checks to compare.
#
# A Jacobian is an array (elements of the input, elements of the output), as PyTorch's gradcheck prints it.

Gradients = tuple[Tensor | None, ...]


class GradcheckError(RuntimeError):
    """Raised by :func:`gradcheck` and :func:`gradgradcheck` for a derivative that is wrong."""


@dataclass(frozen=True, slots=True)
class Case:
    """A function of tensors and other arguments, at a point."""

    func: Callable[..., Any]
    inputs: tuple[Any, ...]

    @property
    def wanted(self) -> list[Tensor]:
        """The inputs that require grad."""
        return [x for x in self.inputs if wants(x)]

    def run(self) -> tuple[Tensor, ...]:
        """Return the outputs. TypeError for one that is no tensor."""
        return outputs_of(self.func(*self.inputs))


def wants(x: Any) -> bool:
    """Whether an argument is a tensor that requires grad."""
    return isinstance(x, Tensor) and x.requires_grad


def outputs_of(result: Any) -> tuple[Tensor, ...]:
    """Return what a function returned as a tuple of tensors."""
    outputs = as_tuple(result)
    for output in outputs:
        if not isinstance(output, Tensor):
            raise TypeError(f"func is to return a Tensor or a tuple of Tensors, not {type(output).__name__}")
    return outputs


def differentiable(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs that require grad."""
    return tuple(o for o in outputs if o.requires_grad)


def random_like(tensors: Sequence[Tensor]) -> list[Array]:
    """Return random weights of either sign, none of them small; those in float64 are not exact in float32."""
    rng = np.random.default_rng(0)
    return [np.asarray(rng.uniform(0.5, 1.5, t.shape) * rng.choice([-1.0, 1.0], t.shape), t.dtype) for t in tensors]


def gapped(x: Array) -> Array:
    """Return a copy of an array that has a gap after each element."""
    return np.repeat(x[..., None], 2, -1)[..., 0]


def pull(outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any], **more: Any) -> Gradients:
    """Return the gradients of the inputs, None where an input is not used; the graph is kept."""
    weights = [c if isinstance(c, Tensor) else tensor(c) for c in cotangents]
    return grad(list(outputs), list(inputs), weights, retain_graph=True, allow_unused=True, **more)


def filled(gradients: Gradients, inputs: Sequence[Tensor]) -> list[Array]:
    """Return gradients as float64 arrays, zeros for None."""
    return [
        np.zeros(x.shape) if g is None else as_array(g).astype(np.float64)
        for g, x in zip(gradients, inputs, strict=True)
    ]


def backward_columns(
    output: Tensor, inputs: Sequence[Tensor], cotangents: Sequence[Array], *, check_dtypes: bool
) -> list[Array]:
    """Return the product of the Jacobian by each input with cotangents of an output, one backward each."""
    blocks = [np.zeros((x.numel(), len(cotangents))) for x in inputs]
    for place, cotangent in enumerate(cotangents):
        gradients = pull([output], inputs, [cotangent.reshape(output.shape).astype(output.dtype)])
        check_attributes(gradients, inputs, check_dtypes=check_dtypes)
        for jacobian, gradient in zip(blocks, filled(gradients, inputs), strict=True):
            jacobian[:, place] = gradient.reshape(-1)
    return blocks


def check_attributes(gradients: Gradients, inputs: Sequence[Tensor], *, check_dtypes: bool) -> None:
    """Raise for a gradient of another shape than its input's, or another dtype."""
    for g, x in zip(gradients, inputs, strict=True):
        if g is not None and tuple(g.shape) != tuple(x.shape):
            raise GradcheckError(f"Analytical gradient has incorrect size: {tuple(g.shape)} for {tuple(x.shape)}")
        if g is not None and check_dtypes and g.dtype != x.dtype:
            raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of {x.dtype}")


@contextmanager
def untouched(tensors: dict[str, Tensor]) -> Iterator[None]:
    """Raise, with the memory put back, if a backward within the block changes a tensor."""
    before = {name: as_array(x).copy() for name, x in tensors.items()}
    failure = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 (raised again, unless it has a cause to be named)
        failure = error
    changed = [name for name, old in before.items() if as_array(tensors[name]).tobytes() != old.tobytes()]
    for name in changed:
        as_array(tensors[name])[...] = before[name]
    if changed:
        raise GradcheckError(f"Backward changed {' and '.join(changed)} in place; it must work on copies") from failure
    if failure is not None:
        raise failure


def forward_function(case: Case) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """Return a function of the inputs that require grad alone, to the floating outputs; and these inputs, detached."""

    def function(*moved: Tensor) -> tuple[Tensor, ...]:
        replacements = iter(moved)
        outputs = outputs_of(case.func(*(next(replacements) if wants(x) else x for x in case.inputs)))
        return tuple(o for o in outputs if o.is_floating_point())

    return function, tuple(x.detach() for x in case.wanted)


def push(case: Case, tangents: Sequence[Array]) -> list[Array]:
    """Return the tangents of the floating outputs for tangents of the inputs that require grad, by forward mode."""
    function, primals = forward_function(case)
    weights = tuple(tensor(np.asarray(t, x.dtype)) for t, x in zip(tangents, primals, strict=True))
    _, pushed = jvp(function, primals, weights)
    return [as_array(t).astype(np.float64) for t in as_tuple(pushed)]


def unit_tangents(inputs: Sequence[Tensor], i: int, values: Array) -> list[Array]:
    """Return tangents of zeros for all inputs but one."""
    return [values.reshape(x.shape) if k == i else np.zeros(x.shape) for k, x in enumerate(inputs)]


def forward_rows(case: Case, sizes: Sequence[int], tangents: Sequence[Sequence[Array]]) -> Table:
    """Return, for each floating output (of these sizes), the product of tangents of each input with the Jacobian."""
    blocks = [[np.zeros((len(along), size)) for along in tangents] for size in sizes]
    for i, of_input in enumerate(tangents):
        for place, values in enumerate(of_input):
            pushed = push(case, unit_tangents(case.wanted, i, values))
            for of_output, tangent in zip(blocks, pushed, strict=True):
                of_output[i][place] = tangent.reshape(-1)
    return blocks


Table = list[list[Array]]
"""For each output and each input, its Jacobian; in fast mode that between a vector on either side, of shape (1, 1)."""

_NOT_REENTRANT = (
    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different "
    "values, although analytical gradient matches numerical gradient. The tolerance for nondeterminism was {}; "
    "nondet_tol gives another."
)


class Comparison:
    """A function at a point, its noise there, and the tolerance for its derivatives.

    ``outputs`` are those that require grad; their graph is kept. ``errors`` are the largest errors of the differences
    with respect to each input: gradients below them may be rounding alone.
    """

    def __init__(
        self, case: Case, eps: float, tolerance: Tolerance, nondet_tol: float, *, check_dtypes: bool, fast: bool
    ) -> None:
        self.case, self.eps, self.tolerance, self.nondet_tol = case, eps, tolerance, nondet_tol
        self.check_dtypes, self.fast = check_dtypes, fast
        self.inputs = case.wanted
        self.memory = [as_array(x) for x in self.inputs]
        results = case.run()
        self.floating = [k for k, o in enumerate(results) if o.is_floating_point()]
        self.sizes = [results[k].numel() for k in self.floating]
        self.outputs = differentiable(results)
        self.judged = [k for k in self.floating if results[k].requires_grad or not self.outputs]
        self.results = [results[k] for k in self.judged]
        units = [scale_of(m) for m in self.memory]
        self.noise = noise_of(along(self.values, self.memory, units), eps)
        self.outputs = differentiable(case.run())  # of memory that has not been moved since
        self.errors = [0.0 for _ in self.inputs]
        self.left = [w.reshape(-1) for w in random_like(self.outputs)]
        self.right = [w * unit for w, unit in zip(random_like(self.inputs), units, strict=True)]

    def values(self) -> Array:
        """Return the judged outputs at the inputs' present values, end to end."""
        outputs = self.case.run()
        now = [outputs[k] for k in self.judged]
        for expected, value in zip(self.results, now, strict=True):
            for attribute, old, new in (
                ("shape", tuple(expected.shape), tuple(value.shape)),
                ("dtype", expected.dtype, value.dtype),
            ):
                if old != new:
                    raise GradcheckError(
                        f"Expected `func` to return outputs with the same {attribute} when inputs are perturbed by "
                        f"{self.eps}, but got: {attribute}s {old} and {new}."
                    )
        return np.concatenate([np.zeros(0), *(as_array(o).reshape(-1) for o in now)])

    def close(self, computed: Array, expected: Array, size: float | None = None, error: float = 0.0) -> bool:
        """Whether two computed arrays agree up to rounding, that of numbers of a size (the largest's), and an error."""
        single = any(x.dtype != np.float64 for x in (*self.inputs, *self.outputs))
        largest = float(np.abs(expected).max(initial=0.0)) if size is None else size
        return self.tolerance.close(computed, expected, (1e-4 if single else 1e-9) * largest + error)

    def precise_to(self, relative: float) -> bool:
        """Whether the values' noise is relatively below a bound."""
        return bool(np.all(self.noise <= relative * np.abs(self.values())))

    def check(self, *, backward: bool, forward: bool) -> None:
        """Raise GradcheckError for the first Jacobian that is wrong."""
        if not self.outputs:
            zeros = [np.zeros((m.size, self.noise.size)) for m in self.memory]
            if any(e.value.any() for e in jacobians(self.values, self.memory, self.eps, self.noise, zeros)):
                raise GradcheckError("Numerical gradient for function expected to be zero")
            return
        tables = [("", self._by_backward())] if backward else []
        if forward:
            tables.append(("computed with forward mode ", self._by_forward()))
        estimates = self._projected(tables[0][1]) if self.fast else self._jacobians(tables[0][1])
        self.errors = [max((e.error.max(initial=0.0) for e in of_input), default=0.0) for of_input in estimates]
        for mode, table in tables:
            for k, jacobian_by_input in enumerate(table):
                for i, jacobian in enumerate(jacobian_by_input):
                    self._compare(mode, k, i, jacobian, estimates[i][k])

    def _by_backward(self) -> Table:
        table = []
        watched = {f"input {i}": x for i, x in enumerate(self.case.inputs) if isinstance(x, Tensor)}
        watched |= {f"output {k}": o for k, o in enumerate(self.outputs)}
        for output, left in zip(self.outputs, self.left, strict=True):
            cotangents = [left] if self.fast else list(np.eye(output.numel()))
            with untouched(watched):
                first, second = [
                    backward_columns(output, self.inputs, cotangents, check_dtypes=self.check_dtypes) for _ in range(2)
                ]
            for one, two in zip(first, second, strict=True):
                if not np.array_equal(one, two, equal_nan=True) and not np.abs(one - two).max() <= self.nondet_tol:
                    raise GradcheckError(_NOT_REENTRANT.format(self.nondet_tol))
            if self.fast:
                first = [np.reshape(np.vdot(v, u), (1, 1)) for v, u in zip(first, self.right, strict=True)]
            table.append(first)
        return table

    def _by_forward(self) -> Table:
        tangents = [[u] if self.fast else list(np.eye(u.size)) for u in self.right]
        rows = forward_rows(self.case, self.sizes, tangents)
        table = [rows[self.floating.index(k)] for k in self.judged]
        if not self.fast:
            return table
        pairs = zip(self.left, table, strict=True)
        return [[np.reshape(np.vdot(v, row), (1, 1)) for row in of_output] for v, of_output in pairs]

    def _jacobians(self, expected: Table) -> list[list[Estimate]]:
        """Return the estimates, for each input and each output."""
        ends = np.cumsum([o.numel() for o in self.outputs])[:-1]
        by_input = [np.concatenate(of_input, axis=1) for of_input in zip(*expected, strict=True)]
        estimates = jacobians(self.values, self.memory, self.eps, self.noise, by_input)
        return [
            [Estimate(v, e) for v, e in zip(np.split(f.value, ends, 1), np.split(f.error, ends, 1), strict=True)]
            for f in estimates
        ]

    def _projected(self, expected: Table) -> list[list[Estimate]]:
        """Return the same in fast mode."""
        wanted = [[row[i].item() for row in expected] for i in range(len(self.memory))]
        curves = [along(self.values, [m], [right]) for m, right in zip(self.memory, self.right, strict=True)]
        pairs = zip(curves, wanted, strict=True)
        return [projected(at, self.eps, self.noise, self.left, numbers) for at, numbers in pairs]

    def _compare(self, mode: str, k: int, i: int, computed: Array, estimate: Estimate) -> None:
        """Raise PyTorch's message, with the place of the largest difference, if a derivative is wrong."""
        weight = float(np.abs(self.left[k]).sum() * np.abs(self.right[i]).sum()) if self.fast else 1.0
        wrong = ~self.tolerance.accepts(computed, estimate, weight)
        if not wrong.any():
            return
        allowed = self.tolerance.around(estimate, weight)
        with np.errstate(all="ignore"):
            excess = np.where(wrong, np.abs(computed - estimate.value) / allowed, -1.0)
        at = _place(np.argmax(np.nan_to_num(excess, nan=np.inf)), excess.shape)
        where = "random projections of the Jacobians, by fast_mode"
        if not self.fast:
            into, out = _place(at[0], self.inputs[i].shape), _place(at[1], self.outputs[k].shape)
            where = f"worst for element {out} of the output and {into} of the input"
        raise GradcheckError(
            f"Jacobian {mode}mismatch for output {k} with respect to input {i},\n"
            f"numerical:{estimate.value}\nanalytical:{computed}\n{where}: numerical {estimate.value[at]:.12g}, "
            f"error about {estimate.error[at]:.1g}, analytical {computed[at]:.12g}, tolerance {allowed[at]:.1g}\n"
        )


def _place(number: int | np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.unravel_index(number, shape))
