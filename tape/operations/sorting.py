"""Scans along a dim, sorts, and unique values."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.operations import OPS
from kernels.rules import op
from tape import return_types
from tape.operations import reductions
from tape.operations.elementwise import array_like, cast, chosen, floating, not_nan, written
from tape.operations.indexing import index
from tape.operations.rearranging import part
from tape.operations.reductions import accumulated
from tape.recording import creation, foreign_calls, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import Dims, dim_of, dims_of, with_axis, with_name
from tape.tensors import dtypes
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Array, Tensor, as_array, leaf, scalar_or_array

# Scans along a dim, softmax, differences and trapezoid rules, under PyTorch's and NumPy's names.

_OPS: dict[str, Any] = OPS


@public()
@cached_call()
@with_axis
def cumsum(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64.

    >>> tape.cumsum(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 1).tolist()
    [[1.0, 3.0], [3.0, 7.0]]
    """
    return along(_OPS["cumsum"], accumulated(input, dtype), dim)  # type: ignore[no-any-return]


@public()
@cached_call()
@with_axis
def cumprod(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """Return the running product along ``dim``, of the shape of x; ints and bools multiply to int64.

    The gradient is exact where elements are zero. That of the gradient then needs memory for the square of the length.

    >>> tape.cumprod(tape.tensor([1.0, 2.0, 3.0, 4.0]), 0).tolist()
    [1.0, 2.0, 6.0, 24.0]
    """
    return along(_OPS["cumprod"], accumulated(input, dtype), dim)  # type: ignore[no-any-return]


def _running(name: str, extremum: str, places: str) -> Any:
    op, kind = _OPS[name], getattr(return_types, name)
    doc = f"""Return the {extremum} element so far along ``dim`` and its int64 place.

    Of equals the place is that of the last, to which the gradient goes.

    >>> tape.{name}(tape.tensor([2.0, 3.0, 1.0, 3.0]), 0).indices.tolist()
    {places}
    """

    @public()
    @cached_call()
    @with_axis
    @with_name(name, doc)
    def running(input: Any, dim: Any) -> Any:
        return kind(*along(op, tensor_of(input), dim))

    return running


cummax = _running("cummax", "largest", "[0, 1, 1, 3]")
cummin = _running("cummin", "smallest", "[0, 0, 2, 2]")


@public()
@cached_call()
@with_axis
def logcumsumexp(input: Any, dim: int) -> Tensor:
    """Return ``log(cumsum(exp(input)))`` along ``dim`` without overflow on the way; floating tensors only.

    The gradient of the gradient needs memory for the square of the length.

    >>> tape.logcumsumexp(tape.tensor([1000.0, 1000.0]), 0)
    tensor([1000.0000, 1000.6931])
    """
    input = tensor_of(input)
    if input.spec.dtype.kind != "f":
        raise NotImplementedError(f'"logcumsumexp" not implemented for {input.spec.dtype.name}; convert it: x.double()')
    return along(_OPS["logcumsumexp"], input, dim)  # type: ignore[no-any-return]


def _flat(function: Any, scan: Any, *, records: str = "", instead: float | None = None) -> None:
    """Let a scan serve NumPy's: over all elements in order if no axis is given, with ``instead`` in place of nan."""

    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = array_like(a)
        if isinstance(axis, (tuple, list)):
            raise TypeError(f"np.{function.__name__}: axis is an int, not {axis}")
        if instead is not None:
            x = chosen(x, not_nan(x), instead)
        flat = axis is None or not x.spec.shape
        x, at = (views.reshape(x, -1) if flat else x), 0 if axis is None else axis
        wide = None if dtype is None or dtype_of(dtype) != np.bool_ else np.int64
        return written(
            function.__name__, out, cast(scan(x if wide is None else cast(x, dtype), at, dtype=wide or dtype), dtype)
        )

    implements(function, records=records)(run)


def _standard(scan: Any, first: float) -> Any:
    """Return a scan as the Array API has it: ``include_initial`` puts the neutral element first."""

    def run(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
        x = tensor_of(x)
        if axis is None and len(x.spec.shape) != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = axis or 0
        scanned = scan(x, axis, dtype=dtype)
        if not include_initial:
            return scanned  # type: ignore[no-any-return]
        at, shape = dim_of(x, axis), scanned.spec.shape
        start = tensor_of(np.full((*shape[:at], 1, *shape[at + 1 :]), first, scanned.spec.dtype))
        return views.cat([start, scanned], at)

    return run


_flat(np.cumsum, cumsum, records="cumsum")
_flat(np.cumprod, cumprod, records="cumprod")
_flat(np.nancumsum, cumsum, instead=0)
_flat(np.nancumprod, cumprod, instead=1)
implements(np.cumulative_sum)(_standard(cumsum, 0))
implements(np.cumulative_prod)(_standard(cumprod, 1))


@public()
@cached_call()
@with_axis
def logsumexp(input: Any, dim: Dims, keepdim: bool = False) -> Tensor:
    """Return ``log(sum(exp(input)))`` over ``dim`` (an int or a tuple), without overflow on the way.

    Rows of -inf give -inf. Integers are computed in the default dtype.

    >>> tape.logsumexp(tape.tensor([1000.0, 1000.0]), 0)
    tensor(1000.6931)
    """
    input = tensor_of(input)
    input = cast(input, None if input.spec.dtype.kind == "f" else dtypes.get_default_dtype())
    return reductions.along(_OPS["logsumexp"], input, dim, keepdim)


def _softened(op: Any, x: Any, dim: Any, dtype: Any) -> Tensor:
    x = cast(tensor_of(x), dtype)
    if x.spec.dtype.kind != "f":
        raise NotImplementedError(
            f'"{op.name}" not implemented for {np.dtype(x.spec.dtype).name}; give dtype=tape.float64'
        )
    return along(op, x, dim)  # type: ignore[no-any-return]


@public()
@cached_call()
@with_axis
def softmax(input: Any, dim: int, dtype: Any = None) -> Tensor:
    """Return the exponentials divided by their sum along ``dim``, of the shape of x.

    The largest of each row is taken away first, so that nothing overflows. NotImplementedError for integers without
    ``dtype``.

    >>> tape.softmax(tape.tensor([[0.0, 0.0], [1000.0, 0.0]]), 1).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    return _softened(_OPS["softmax"], input, dim, dtype)


@public()
@cached_call()
@with_axis
def log_softmax(input: Any, dim: int, dtype: Any = None) -> Tensor:
    """Return the logarithm of :func:`softmax`, exact where it is small; arguments as there.

    >>> tape.log_softmax(tape.tensor([0.0, 1000.0]), 0).tolist()
    [-1000.0, 0.0]
    """
    return _softened(_OPS["log_softmax"], input, dim, dtype)


@public(methods=False)
@with_axis
def softmin(input: Any, dim: int, dtype: Any = None) -> Tensor:
    """Return :func:`softmax` of -x; arguments as there.

    >>> tape.softmin(tape.tensor([0.0, 1000.0]), 0).tolist()
    [1.0, 0.0]
    """
    return _softened(_OPS["softmax"], -tensor_of(input), dim, dtype)


def _part(x: Tensor, at: int, start: Any, stop: Any) -> Any:
    return index(x, (*(slice(None),) * at, slice(start, stop)))


@public()
@with_axis
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return the n-th differences of neighbours along ``dim``, the last by default.

    ``prepend`` and ``append`` are joined to x first. RuntimeError for 0-d tensors and a negative n.

    >>> tape.diff(tape.tensor([1.0, 4.0, 9.0]))
    tensor([3., 5.])
    """
    input = tensor_of(input)
    if not input.spec.shape:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    at = dim_of(input, dim)
    if n == 0:
        return views.clone(input)
    ends = [tensor_of(end) if end is not None else None for end in (prepend, append)]
    if any(end is not None and len(end.spec.shape) != len(input.spec.shape) for end in ends):
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    parts = [end for end in (ends[0], input, ends[1]) if end is not None]
    y: Any = views.cat(parts, at) if len(parts) > 1 else input
    for _ in range(n):
        size = y.spec.shape[at]
        after, before = part(y, at, min(1, size), size), part(y, at, 0, max(size - 1, 0))
        y = after != before if y.spec.dtype == np.bool_ else after - before
    return y  # type: ignore[no-any-return]


@implements(np.diff)
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    a = tensor_of(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if not a.spec.shape:
        raise ValueError("diff requires input that is at least one dimensional")
    at = dim_of(a, axis)

    def end(value: Any) -> Any:
        if value is None or isinstance(value, type(np._NoValue)):
            return None
        value = array_like(value)
        if value.spec.shape:
            return value
        shape = list(a.spec.shape)
        shape[at] = 1
        return views.expand(value, shape)

    return diff(a, n, at, end(prepend), end(append))


@implements(np.ediff1d)
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    ends = [None if e is None else views.reshape(array_like(e), -1) for e in (to_begin, to_end)]
    middle = diff(views.reshape(tensor_of(ary), -1))
    parts = [part for part in (ends[0], middle, ends[1]) if part is not None]
    return views.cat(parts) if len(parts) > 1 else middle


def _slopes(x: Tensor, at: int, spacing: Any, edge_order: int) -> Tensor:
    """Return second-order differences along a dim, one-sided at its ends; spacing is a number or coordinates."""
    if not isinstance(spacing, Tensor):
        middle = (_part(x, at, 2, None) - _part(x, at, None, -2)) / (2.0 * spacing)
        h = (spacing,) * 4
    else:
        steps: Any = diff(spacing)
        shape = [-1 if i == at else 1 for i in range(len(x.spec.shape))]
        below, above = (views.reshape(part, shape) for part in (steps[:-1], steps[1:]))
        middle = (
            _part(x, at, None, -2) * (-above / (below * (below + above)))
            + _part(x, at, 1, -1) * ((above - below) / (below * above))
            + _part(x, at, 2, None) * (below / (above * (below + above)))
        )
        h = (steps[0], steps[1] if edge_order > 1 else None, steps[-1], steps[-2] if edge_order > 1 else None)
    first = [_part(x, at, i, i + 1) for i in range(edge_order + 1)]
    last = [_part(x, at, -1 - i, -i or None) for i in range(edge_order + 1)]
    ends = (_end(first, h[0], h[1]), -_end(last, h[2], h[3]))
    return views.cat([ends[0], middle, ends[1]], at)


def _end(values: list[Any], h: Any, following: Any) -> Any:
    if len(values) == 2:  # noqa: PLR2004
        return (values[1] - values[0]) / h
    both = h + following
    return (
        values[0] * (-(h + both) / (h * both))
        + values[1] * (both / (h * following))
        - values[2] * (h / (following * both))
    )


@public(methods=False)
@with_axis
def gradient(input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Return the gradient of values on a grid, a tensor for each dim: second-order differences, one-sided at the ends.

    ``spacing`` is a number, a list of numbers, or a list of coordinates, one for each dim. RuntimeError where a dim has
    not ``edge_order + 1`` points.

    >>> tape.gradient(tape.tensor([1.0, 4.0, 9.0, 16.0]))[0].tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    input = floating(tensor_of(input))
    dims = dims_of(input, dim)
    name = "torch.gradient"
    if isinstance(spacing, (list, tuple)):
        if len(spacing) != len(dims):
            raise RuntimeError(
                f"{name} expected spacing to be unspecified, a scalar, or a list of length equal to {len(dims)}, the "
                f"number of dims, but got a list of length {len(spacing)}"
            )
        each = [_coordinates(s) for s in spacing]
    else:
        each = [_coordinates(spacing)] * len(dims)
    if edge_order not in (1, 2):
        raise RuntimeError(f"{name} only supports edge_order=1 and edge_order=2.")
    for at, s in zip(dims, each, strict=True):
        n = input.spec.shape[at]
        if n < edge_order + 1:
            raise RuntimeError(f"{name} expected each dimension size to be at least edge_order+1, dim {at} has {n}")
        if isinstance(s, Tensor) and s.spec.shape != (n,):
            raise RuntimeError(f"{name} expected {n} coordinates for dim {at}, got shape {list(s.spec.shape)}")
    return tuple(_slopes(input, at, s, edge_order) for at, s in zip(dims, each, strict=True))


def _coordinates(spacing: Any) -> Any:
    if isinstance(spacing, (Tensor, np.ndarray)):
        return tensor_of(spacing)
    return 1 if spacing is None else spacing


@implements(np.gradient)
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = floating(tensor_of(f))
    dims = dims_of(f, axis)
    if len(varargs) not in (0, 1, len(dims)):
        raise TypeError(f"np.gradient: {len(varargs)} spacings for {len(dims)} axes")
    spacings = varargs if len(varargs) == len(dims) else (varargs or (1.0,)) * len(dims)
    spacing = [
        s if isinstance(s, Tensor) or np.ndim(s) == 0 else tensor_of(np.asarray(s, f.spec.dtype)) for s in spacings
    ]
    for at, s in zip(dims, spacing, strict=True):
        if f.spec.shape[at] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, "
                "at least (edge_order + 1) elements are required."
            )
        if isinstance(s, Tensor) and s.spec.shape and s.spec.shape != (f.spec.shape[at],):
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    slopes = gradient(f, spacing=spacing, dim=dims, edge_order=edge_order)
    return slopes[0] if len(dims) == 1 else slopes


@implements(np.unwrap)
def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Tensor:
    """Take jumps between neighbours out by whole periods, which have no gradient."""
    x = array_like(p)
    if x.spec.dtype.kind != "f" and isinstance(period, int):
        raise TypeError("np.unwrap of a tensor takes no integers with an integer period; convert it first: x.double()")
    x, at = floating(tensor_of(x)), dim_of(x, axis)
    jumps = diff(x.detach(), 1, at)
    within = np.remainder(jumps + period / 2, period) - period / 2
    within = np.where((within == -period / 2) & (jumps > 0), period / 2, within)
    turns = np.where(abs(jumps) < (period / 2 if discont is None else discont), 0.0, within - jumps)
    return x + views.cat([_part(creation.zeros_like(x), at, 0, 1), cumsum(turns, at)], at)


def _pieces(name: str, y: Any, x: Any, dx: Any, dim: Any) -> tuple[Tensor, int]:
    y = floating(tensor_of(y))
    if not y.spec.shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    at = dim_of(y, dim)
    sides = _part(y, at, 1, None) + _part(y, at, None, -1)
    if x is None:
        return sides * (dx / 2), at
    x = tensor_of(x)
    if len(x.spec.shape) == 1 and len(y.spec.shape) > 1:
        if x.spec.shape[0] != y.spec.shape[at]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        x = views.reshape(x, [-1 if i == at else 1 for i in range(len(y.spec.shape))])
    along = at - len(y.spec.shape) + len(x.spec.shape)
    if along < 0 or x.spec.shape[along] != y.spec.shape[at]:
        raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
    return sides * (_part(x, along, 1, None) - _part(x, along, None, -1)) * 0.5, at


def _one(name: str, x: Any, dx: Any) -> Any:
    if x is not None and dx is not None:
        raise TypeError(f"{name}(): give x or dx, not both")
    return 1.0 if dx is None else dx


@public("trapz", methods=False)
def trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the integral of samples along ``dim`` by the trapezoid rule, at coordinates ``x`` or ``dx`` (1) apart.

    Gradients go to samples and coordinates. RuntimeError where there is not one coordinate for each sample.

    >>> tape.trapezoid(tape.tensor([1.0, 2.0, 4.0]), tape.tensor([0.0, 1.0, 3.0]))
    tensor(7.5000)
    """
    step = _one("trapezoid", x, dx)
    y = floating(tensor_of(y))
    if x is None and y.spec.shape and y.spec.shape[at := dim_of(y, dim)]:
        ends = index(y, (*(slice(None),) * at, 0)) + index(y, (*(slice(None),) * at, -1))
        return (reductions.sum(y, at) - ends * 0.5) * step  # type: ignore[no-any-return]
    pieces, at = _pieces("trapezoid", y, x, step, dim)
    return reductions.sum(pieces, at)


@public(methods=False)
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the running integral of samples along ``dim``, one less than there are samples; see :func:`trapezoid`.

    >>> tape.cumulative_trapezoid(tape.tensor([1.0, 2.0, 4.0]), dx=0.5).tolist()
    [0.75, 2.25]
    """
    pieces, at = _pieces("cumulative_trapezoid", y, x, _one("cumulative_trapezoid", x, dx), dim)
    return cumsum(pieces, at)


@implements(np.trapezoid)
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    y = array_like(y)
    return trapezoid(y, array_like(x), dim=axis) if x is not None else trapezoid(y, dx=dx, dim=axis)


# Sorts, and what is picked by rank, under PyTorch's names; NumPy's functions of these names too.
#
# nan counts as larger than all numbers. The gradient goes to the elements picked.


implements(op.picked)(lambda x, places, dim: index(x, op.keys(places, dim)))


@implements(op.placed, op.put)
def _placed(g: Tensor, places: Array, dim: int, length: int) -> Tensor:
    shape = (*g.spec.shape[:dim], length, *g.spec.shape[dim + 1 :])
    target: Any = creation.full(shape, -0.0, dtype=g.spec.dtype)
    return target.index_put_(op.keys(places, dim), g, accumulate=True)  # type: ignore[no-any-return]


def along(op: Any, x: Tensor, dim: Any, **params: Any) -> Any:
    """Call a routine along a dim; a 0-d tensor counts as one of length one."""
    at = dim_of(x, dim)
    if x.spec.shape:
        return foreign_calls.call(op, x, dim=at, **params)
    result = foreign_calls.call(op, views.reshape(x, 1), dim=0, **params)
    if isinstance(result, Tensor):
        return views.reshape(result, ())
    return tuple(views.reshape(y, ()) if y.spec.size == 1 else y for y in result)


def filled(name: str, x: Tensor, dim: Any) -> int:
    """Return the axis of a dim, checked not to be empty."""
    at = dim_of(x, dim)
    if x.spec.shape and x.spec.shape[at] == 0:
        raise IndexError(
            f"{name}(): Expected reduction dim {at} to have non-zero size; the shape is {list(x.spec.shape)}"
        )
    return at


@public()
@cached_call()
@with_axis
def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """Return the elements in order along ``dim`` (the last) and their int64 places; equal ones keep their order always.

    >>> tape.sort(tape.tensor([3.0, 1.0, 2.0])).indices
    tensor([1, 2, 0])
    """
    del stable
    return return_types.sort(*along(_OPS["sort"], tensor_of(input), dim, descending=bool(descending)))


@public()
@cached_call()
@with_axis
def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return the int64 places of the elements in order along ``dim``, the last by default.

    >>> tape.argsort(tape.tensor([3.0, 1.0, 2.0]), descending=True).tolist()
    [0, 2, 1]
    """
    del stable
    input = tensor_of(input)
    return _argsort(input, dim_of(input, dim), descending=bool(descending))


def _argsort(x: Tensor, dim: int, *, descending: bool = False) -> Tensor:
    if not x.spec.shape:
        return leaf(np.zeros((), np.int64), requires_grad=False)
    return foreign_calls.call(_OPS["argsort"], x, dim=dim, descending=descending)  # type: ignore[no-any-return]


@public()
def msort(input: Any) -> Tensor:
    """Return the elements in order along the first dim.

    >>> tape.msort(tape.tensor([[3.0, 1.0], [2.0, 4.0]])).tolist()
    [[2.0, 1.0], [3.0, 4.0]]
    """
    return sort(input, 0).values  # type: ignore[no-any-return]


@public()
@cached_call()
@with_axis
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:  # noqa: A002
    """Return the ``k`` largest (or smallest) elements along ``dim``, the last by default, in order, and their places.

    Places are int64. RuntimeError if there are less than k. Of equal ones at the border any may be picked.

    >>> tape.topk(tape.tensor([3.0, 1.0, 5.0, 2.0]), 2).values.tolist()
    [5.0, 3.0]
    """
    del sorted
    input = tensor_of(input)
    at = dim_of(input, dim)
    length = input.spec.shape[at] if input.spec.shape else 1
    if not 0 <= k <= length:
        raise RuntimeError(f"topk(): selected index k out of range: k is {k}, dim {at} has {length} elements")
    return return_types.topk(*along(_OPS["topk"], input, at, k=int(k), largest=bool(largest)))


@public()
@cached_call()
@with_axis
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the ``k``-th smallest element along ``dim``, counted from 1, and its int64 place.

    >>> tape.kthvalue(tape.tensor([3.0, 1.0, 2.0]), 2).values.item()
    2.0
    """
    input = tensor_of(input)
    at = filled("kthvalue", input, dim)
    if not 1 <= k <= (input.spec.shape[at] if input.spec.shape else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {at}: k is {k}")
    return return_types.kthvalue(*along(_OPS["kthvalue"], input, at, rank=int(k) - 1, keepdim=bool(keepdim)))


def escaped_values(x: Tensor, name: str) -> Array:
    """Return the values of a tensor that decide the shape of a result without a gradient; recorders note an escape."""
    if x._slot is not None:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented; use it on x.detach()")
    record.note_escape(x)
    return as_array(x)


def constant_result(value: Any) -> Tensor:
    """Return an array, or a number, as a tensor without a gradient."""
    array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    return leaf(scalar_or_array(array), requires_grad=False)


@public()
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None  # noqa: A002
) -> Any:  # fmt: skip
    """Return the different elements, or slices along ``dim``, in order; no gradient.

    ``return_inverse`` adds where each element is among them, ``return_counts`` how often each one comes, both int64.
    Each nan is one of its own. NotImplementedError for a tensor that requires grad.

    >>> tuple(e.tolist() for e in tape.unique(tape.tensor([3, 1, 3]), return_counts=True))
    ([1, 3], [1, 2])
    """
    del sorted
    input = tensor_of(input)
    axis = None if dim is None else dim_of(input, dim)
    values, inverse, counts = np.unique(
        escaped_values(input, "unique"), return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    inverse = inverse.reshape(input.spec.shape if axis is None else -1)
    parts = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return constant_result(values) if len(parts) == 1 else tuple(map(constant_result, parts))


def implement_by_values(*functions: Any) -> None:
    """Let functions of NumPy's compute with the values of tensors; their results have no gradient."""

    def served(function: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            name, arguments = function.__name__, [*args, *kwargs.values()]
            values = [escaped_values(x, name) if isinstance(x, Tensor) else x for x in arguments]
            parts = function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
            if not isinstance(parts, tuple):
                return constant_result(parts)
            made = map(constant_result, parts)
            return type(parts)(*made) if hasattr(parts, "_fields") else tuple(made)

        return run

    for function in functions:
        implements(function)(served(function))


implement_by_values(np.unique, np.unique_values, np.unique_counts, np.unique_inverse, np.unique_all)


def _flattened(a: Any, axis: Any) -> tuple[Tensor, int]:
    x = tensor_of(a)
    if axis is None:
        return views.reshape(x, -1), 0
    return x, dim_of(x, axis)


@implements(np.sort, records="sort")
def _sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Tensor:
    del kind, stable
    return sort(*_flattened(a, axis)).values  # type: ignore[no-any-return]


@implements(np.argsort, records="argsort")
def _numpy_argsort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Tensor:
    del kind, stable
    return _argsort(*_flattened(a, axis))


@implements(np.partition)
def _partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Tensor:
    """Sort, which is a valid partition for any ``kth``."""
    _check_places(a, kth, axis)
    return _sort(a, axis, kind)


@implements(np.argpartition)
def _argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Tensor:
    _check_places(a, kth, axis)
    return _numpy_argsort(a, axis, kind)


def _check_places(a: Any, kth: Any, axis: Any) -> None:
    x, dim = _flattened(a, axis)
    n = x.spec.shape[dim] if x.spec.shape else 1
    for k in np.ravel(kth):
        if not -n <= k < n:
            raise ValueError(f"kth(={k}) out of bounds ({n})")
