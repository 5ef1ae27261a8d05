"""How native code computes calls that it repeats: NumPy's inner loops, or kernels of ours, with their layouts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.numpy_loops import InnerLoop
from kernels.arrays.specs import Spec, broadcast, dense, spec_of
from kernels.arrays.warnings_off import silently
from kernels.call_cache.computation import Computation
from kernels.codegen import vectorized_forward
from kernels.codegen.forward_loops import forward, spread
from kernels.codegen.matmul import matrices
from kernels.codegen.tasks import UfuncCall, initial, nest_layout
from kernels.compiler import jit
from kernels.native import words
from kernels.native.pool import reused_arrays
from kernels.native.words import PICK_RESULT, PICK_SCALE
from kernels.ops.registry import OPS
from kernels.records.kinds import Contraction, Elementwise, Reduction
from kernels.records.scipy_ufuncs import resolved

Specs = tuple[Spec | None, ...]
_FLOAT64, _FLOAT32, _BOOL = np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.bool_)
_INLINE = {("+", 2): words.ADD, ("-", 2): words.SUBTRACT, ("*", 2): words.MULTIPLY, ("/", 2): words.DIVIDE}
"""What native code computes itself of doubles, by sign and how many operands there are."""
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_INT64 = np.iinfo(np.int64)
_EXACT: set[Any] = {
    np.add, np.subtract, np.multiply, np.negative, np.positive, np.absolute, np.sign, np.square, np.minimum, np.maximum,
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.logical_and, np.logical_or,
    np.logical_xor, np.logical_not, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift,
    np.right_shift, np.where,
}  # fmt: skip
"""What never raises, of integers: the loops of powers and quotients do, from within."""
_QUOTIENTS = (np.floor_divide, np.remainder, np.fmod)
"""These do not by a number from 1 on."""


def elementwise(
    op: Elementwise, given: Specs, spec: Spec, saved: tuple[str, ...], number: float | None
) -> Computation | None:
    """Return how an operation on operands of these specs, None of a number, is computed; None where Python is to.

    ``number``: the second operand of an operation that has a record for it.
    """
    record, sources = op, given
    ufunc: Any = op.ufunc
    if number is not None:
        record = OPS[op.scalar]  # type: ignore[assignment]
        ufunc = record.variants.get(number, record.ufunc)
        sources = given[:1] if number in record.variants else given
    names = (*record.inputs, "y")
    picks = tuple([PICK_RESULT if name == "y" else names.index(name) for name in saved])
    divides = ufunc in _QUOTIENTS and given[1:] == (None,)
    dtype = _dtype_of((*given, spec), np.add if divides else ufunc)
    if dtype is None and _compares(op, given, spec):
        return Computation(words.CALLED, function=partial(_compared, ufunc), count=len(sources) + 1, picks=picks)
    if dtype is None or not _is_fresh(spec) or not any(s is not None and s.dtype == dtype for s in given):
        return None  # of masks and numbers alone the default dtype decides
    if all(s is not None and vectorized_forward.suits(op, spec, (s,)) for s in given) and number is None:
        return _by_kernel(op, given, spec, picks)  # type: ignore[arg-type]
    ufunc = resolved(ufunc)
    count, loop = len(sources) + 1, _loop(ufunc, (*[dtype if s is None else s.dtype for s in sources], spec.dtype))
    if loop is None:
        known = isinstance(ufunc, np.ufunc) or (not spec.shape and spec.dtype != _FLOAT64)
        function = partial(silently, partial(reused_arrays.call, ufunc) if spec.bytes >= reused_arrays.LARGE else ufunc)
        return None if known else Computation(words.CALLED, function=function, count=count, picks=picks)
    if not spec.shape and spec.dtype == _FLOAT64:
        kind = words.ONCE if number is not None else _INLINE.get((op.operator, len(op.inputs)), words.ONCE)
        return Computation(kind, loop, count=count, picks=picks)
    strides = tuple([_along(s, spec) for s in (*sources, spec)])
    layout = nest_layout(UfuncCall(loop, spec.shape, strides, ()))
    kind, bounds = words.NEST4 if dtype == _FLOAT32 else words.NEST, None
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        kind, bounds = words.NEST_INT, (1 if divides else int(limits.min), min(int(limits.max), _INT64.max))
    return Computation(kind, loop, layout=layout, count=count, picks=picks, bounds=bounds)


def _by_kernel(op: Elementwise, given: tuple[Spec, ...], spec: Spec, picks: tuple[int, ...]) -> Computation | None:
    """Return how a kernel of ours computes it; None where that is not for these specs together."""
    if not vectorized_forward.suits(op, spec, given):
        return None
    address, layout = forward(op, spec, given).kernel()
    return Computation(words.KERNEL, InnerLoop(address, 0), layout=layout, count=len(given) + 1, picks=picks)


def _compares(op: Elementwise, given: Specs, spec: Spec) -> bool:
    """Whether an operation compares tensors of several dtypes."""
    return op.operator in _COMPARISONS and None not in given and spec.dtype == _BOOL and _is_fresh(spec)


def _compared(ufunc: Any, *values: Any) -> Any:
    """Compare tensors' values, in which a float is a double."""
    return silently(ufunc, *map(np.asarray, values))


def _along(source: Spec | None, spec: Spec) -> tuple[int, ...]:
    """Return an operand's strides along the dims of a result."""
    return (0,) * len(spec.shape) if source is None else broadcast(source.shape, source.strides, spec.shape)


def _dtype_of(specs: Specs, ufunc: Any) -> np.dtype[Any] | None:
    """Return the one dtype of numbers among specs, beside masks; a mask's where there are but masks; None of others."""
    dtypes = {s.dtype for s in specs if s is not None}
    numbers = dtypes - {_BOOL}
    if not numbers:
        return None if None in specs else _BOOL
    found = next(iter(numbers))
    known = ufunc in _EXACT if found.kind in "iu" else found in (_FLOAT64, _FLOAT32)
    return found if len(numbers) == 1 and known else None


def _is_fresh(spec: Spec) -> bool:
    """Whether a result is laid out as NumPy makes arrays."""
    return spec.strides == dense(spec.shape, spec.dtype.itemsize) and spec_of(np.empty(spec.shape, spec.dtype)) is spec


def _loop(ufunc: Any, dtypes: tuple[np.dtype[Any], ...]) -> InnerLoop | None:
    if ufunc is np.where:
        native = jit.load_module("native.calls.choosing_native")
        same = dtypes[0] == _BOOL and len(set(dtypes[1:])) == 1 and dtypes[1] != _BOOL
        choose = {8: native.choose8, 4: native.choose4}.get(dtypes[1].itemsize)
        return InnerLoop(choose.address, 0) if same and choose is not None else None
    try:
        return numpy_loops.find(ufunc, dtypes) if isinstance(ufunc, np.ufunc) else None
    except (LookupError, ValueError):
        return None


def copy(source: Spec, spec: Spec) -> Computation | None:
    """Return how a tensor is copied, to another dtype maybe; None where Python is to."""
    if not _is_fresh(spec):
        return None
    if source.dtype != spec.dtype or spec.dtype == _BOOL:
        return Computation(words.CALLED, function=partial(cast, spec.dtype), count=2)
    if spec.dtype.kind == "f" and spec.dtype not in (_FLOAT64, _FLOAT32):
        return None
    loop = numpy_loops.find(np.positive, (spec.dtype, spec.dtype))
    if not spec.shape and spec.dtype == _FLOAT64:
        return Computation(words.ONCE, loop, count=2)
    layout = nest_layout(UfuncCall(loop, spec.shape, (_along(source, spec), spec.strides), ()))
    return Computation(words.NEST, loop, layout=layout, count=2)


def cast(dtype: np.dtype[Any], value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a dtype, in C order."""
    return silently(np.array, value, dtype=dtype, order="C")  # type: ignore[no-any-return]


def write(source: Spec | None, spec: Spec, shown: np.ndarray[Any, Any]) -> Computation | None:
    """Return how a value, None of a number, is copied to a part of an array of this spec; None where Python is to."""
    dtype = spec.dtype
    if dtype not in (_FLOAT64, _FLOAT32) or not shown.size or spec.overlaps or spec.strides != spec.gradient:
        return None
    if source is not None and (source.dtype != dtype or len(source.shape) > shown.ndim):
        return None
    along = (0,) * shown.ndim if source is None else broadcast(source.shape, source.strides, shown.shape)
    loop = numpy_loops.find(np.positive, (dtype, dtype))
    layout = nest_layout(UfuncCall(loop, shown.shape, (along, shown.strides), ()))
    return Computation(words.NEST4 if dtype == _FLOAT32 else words.NEST, loop, layout=layout, count=2)


def reduction(
    op: Reduction, source: Spec, axes: tuple[int, ...], spec: Spec, saved: tuple[str, ...], *, keepdims: bool
) -> Computation | None:
    """Return how doubles are reduced over axes; None where Python is to."""
    simple = spec.dtype == source.dtype == _FLOAT64 and source.size > 0 and _is_fresh(spec)
    if not simple or source.strides != dense(source.shape, source.dtype.itemsize):
        return None
    places = {"x": 0, "y": PICK_RESULT, "n": PICK_SCALE}
    scale = float(source.size // spec.size) if op.scale else 0.0
    onto = spread(spec.strides, len(source.shape), axes, keepdims=keepdims)
    loop = numpy_loops.find(op.ufunc, (spec.dtype,) * 3)
    layout = nest_layout(UfuncCall(loop, source.shape, (onto, source.strides, onto), ()))
    picks = tuple([places[name] for name in saved])
    start = initial(op.ufunc, source, spec.dtype)
    ties = None
    if op.selects:
        ties = nest_layout(UfuncCall(loop, source.shape, (source.strides, onto, onto), ()))
    return Computation(words.REDUCE, loop, layout=layout, count=3, picks=picks, initial=start, scale=scale, ties=ties)


def product(op: Contraction, a: Spec, b: Spec, spec: Spec, saved: tuple[str, ...]) -> Computation | None:
    """Return how matrices and vectors are multiplied; None where Python is to."""
    del op
    if not a.dtype == b.dtype == spec.dtype or not _is_fresh(spec) or 0 in (a.size, b.size):
        return None
    loop = _loop(np.matmul, (spec.dtype,) * 3)
    if loop is None or spec.dtype.kind != "f":
        return None
    extents, left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.strides)
    layout = np.array([1, *extents, 0, 0, 0, *left, *right, *result], np.int64)
    picks = tuple(["ab".index(name) for name in saved])
    return Computation(words.PRODUCT, loop, layout=layout, count=3, picks=picks)
