"""Run an operation and append it to the tape: one way for each family of records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import forms
from kernels.entries import Instruction, instructions
from kernels.forms import Form
from kernels.layouts import Spec, intern_spec, spec_of
from kernels.op import Copy, Elementwise, Reduction, Select, View
from kernels.tables import OPS
from kernels.views import view_pattern
from kernels.words import TAPE_BITS
from tape import modes
from tape.shape import Size
from tape.tensor import AccumulateGrad, Array, Tensor, as_array, carried, new, plain

Number = (int, float)
_FLOAT64 = np.dtype(np.float64)
_forms: dict[tuple[Any, ...], Form] = {}
_TO_COPY = OPS["to_copy"]
LARGEST = 1 << 53
"""Integers up to here are exact as doubles."""


class Row:
    """What the fast path knows of an operation on operands of these specs."""

    __slots__ = ("both", "compute", "first", "post", "second", "spec")

    def __init__(self, spec: Spec, post: Callable[[Any], Any] | None, compute: Any = None) -> None:
        self.spec = spec
        self.post = post
        self.compute = compute
        self.both: Form | None = None
        self.first: Form | None = None
        self.second: Form | None = None


ROWS: dict[str, dict[Any, Row]] = {}
"""By operation and operands' specs; a Python number has no spec."""


def recorded() -> int:
    """Return how many instructions live on this thread's tape."""
    tape = modes.own_tape()
    tape.collect()
    return sum(1 for _ in instructions(tape.entries))


def locate(slot: int) -> Instruction | None:
    """Return the instruction with this result, on whichever tape; None if it is gone."""
    tape = modes.tapes.get(slot >> TAPE_BITS)
    return None if tape is None else next((i for i in instructions(tape.entries) if i.slot == slot), None)


def cached_form(key: tuple[Any, ...], make: Callable[[], Form]) -> Form:
    """Return the form of a key, made at its first use."""
    form = _forms.get(key)
    if form is None:
        form = _forms.setdefault(key, make())
    return form


def finish(
    op: Any,
    operands: tuple[Any, ...],
    value: Any,
    make: Callable[[], Form],
    saved: Callable[[Form], tuple[Any, ...]],
    key: tuple[Any, ...],
    name: str = "",
) -> Tensor:
    """Return the result as a tensor, recorded if an operand requires grad.

    ``make`` gives the form, found again by ``key``; ``saved(form)`` the values that the tape keeps.
    """
    result = new(Tensor)
    result._value = value = carried(value)
    result._slot = None
    result._form = spec_of(value)
    slots = [o._slot if type(o) is Tensor else None for o in operands]
    wanted = slots.count(None) < len(slots) and value_is_float(value)
    tape = (modes.active() or modes.wanted_tape()) if wanted else None
    if tape is not None:
        specs = tuple([o._form.spec if type(o) is Tensor else None for o in operands])
        wants = tuple([slot is not None for slot in slots])
        form = cached_form((op, specs, result._form, wants, name, *key), make)
        kept = saved(form)
        result._form = form
        result._slot = slot = tape.fresh()
        tape.extend((slot, *slots, *kept, form.code))
        _watch(tape, result, operands)
    if tape is None or modes.active() is None:
        note(op, operands, result, key)
    return result


def _watch(tape: modes.Tape, result: Tensor, operands: tuple[Any, ...]) -> None:
    """Watch for the death of a result whose instruction holds, or alone reaches, large values."""
    sizes = [_bytes(o._form.spec) for o in (result, *operands) if type(o) is Tensor]
    if max(sizes) >= modes.LARGE:
        tape.watch(result, max(sizes))


def _bytes(spec: Spec) -> int:
    return spec.shadow * spec.dtype.itemsize


def note(op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
    """Tell the program being recorded, if there is one, of an operation."""
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.note(op, operands, result, params)


def left(x: Any) -> None:
    """Tell a program being recorded that a value leaves by a way that it cannot follow."""
    recorder = modes.current().recorder
    if recorder is not None and isinstance(x, Tensor):
        recorder.left(x)


def value_is_float(value: Array | float) -> bool:
    """Whether a value is of a floating dtype."""
    return type(value) is float or value.dtype.kind == "f"  # type: ignore[union-attr]


def elementwise(op: Elementwise, *given: Any) -> Tensor:
    """Run an elementwise operation on tensors and Python numbers, by NumPy's promotion and broadcasting."""
    recorder = modes.current().recorder
    if recorder is not None and op.name in FAST and _alike(given):
        return _noted(op, given, recorder)
    if op.scalar and len(given) == 2 and isinstance(given[1], Number) and not isinstance(given[1], bool):  # noqa: PLR2004
        return _with_number(OPS[op.scalar], given[0], given[1])
    operands = tuple(map(operand, given))
    if op.condition and not _is_mask(operands[0]):
        raise RuntimeError(f"{op.name}: the condition must be a bool tensor; write {op.name}(x != 0, ...)")
    check_broadcast(op, operands)
    values = _values(operands)
    value = op.ufunc(*values)
    if any(isinstance(o, Tensor) and o._slot is not None for o in operands) or modes.current().recorder:
        operands = _of_one_dtype(op, operands, carried(value))
        values = _values(operands)

    def make() -> Form:
        specs = tuple(o.spec if isinstance(o, Tensor) else None for o in operands)
        wants = tuple(isinstance(o, Tensor) and o._slot is not None for o in operands)
        return forms.elementwise(op, specs, spec_of(carried(value)), wants)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = dict(zip(op.inputs, map(as_saved, values), strict=True), y=carried(value))
        return tuple(by_name[name] for name in form.saved)

    result = finish(op, operands, value, make, saved, ())
    _remember(op, operands, result)
    return result


FAST: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor] | None]] = {}
"""The printed operators, and those for a number on the left: they serve a program being recorded too."""


def _alike(given: tuple[Any, ...]) -> bool:
    """Whether the operands are what the printed operators take: tensors of one float dtype, or float64 with floats."""
    dtypes = {o._form.spec.dtype if type(o) is Tensor else None for o in given}
    dtypes.discard(None)
    if len(dtypes) != 1 or dtypes.pop().kind != "f":  # type: ignore[union-attr]
        return False
    return all(type(o) is float or type(o) is Tensor for o in given)


def _noted(op: Elementwise, given: tuple[Any, ...], recorder: modes.Observer) -> Tensor:
    before = modes.set_mode(modes.current()._replace(recorder=None))
    try:
        fast, reverse = FAST[op.name]
        result = fast(*given) if type(given[0]) is Tensor or reverse is None else reverse(given[1], given[0])
    finally:
        modes.set_mode(before)
    recorder.note(op, given, result, ())
    return result


def _is_mask(condition: Any) -> bool:
    return condition.spec.dtype == np.bool_ if isinstance(condition, Tensor) else isinstance(condition, bool)


def _values(operands: tuple[Any, ...]) -> list[Any]:
    """Return what NumPy computes on: where dtypes differ, a tensor's Python float must not count as weak."""
    dtypes = {o.spec.dtype for o in operands if isinstance(o, Tensor)}
    if len(dtypes) > 1:
        return [np.asarray(o._value) if isinstance(o, Tensor) else o for o in operands]
    return [o._value if isinstance(o, Tensor) else o for o in operands]


def as_saved(value: Any) -> Any:
    """Return a value as the tape keeps it: a Python number as a float."""
    return float(value) if type(value) is int else value


def _remember(op: Elementwise, operands: tuple[Any, ...], result: Tensor) -> None:
    """Let the fast path know this operation on these specs: tensors of one float dtype, or a Python number."""
    form = result._form
    dtypes = {o.spec.dtype for o in operands if isinstance(o, Tensor)}
    if any(_bytes(o.spec) >= modes.LARGE for o in (result, *operands) if isinstance(o, Tensor)):
        return  # large results are watched
    if len(operands) > 2 or len(dtypes) != 1 or next(iter(dtypes)).kind != "f":  # noqa: PLR2004
        return
    specs = tuple(o.spec if isinstance(o, Tensor) else None for o in operands)
    rows = ROWS.setdefault(op.name, {})
    row = rows.get(specs)
    if row is None:
        row = rows[specs] = Row(spec_of(result._value), _post(result.spec))
    if not isinstance(form, Form):
        return
    second = len(form.wanted) > 1 and form.wanted[1]
    setattr(row, {(True, True): "both", (True, False): "first", (False, True): "second"}[form.wanted[0], second], form)


def _post(spec: Spec) -> Callable[[Any], Any] | None:
    """Return what turns a ufunc's scalar into what tensors carry."""
    if spec.shape != ():
        return None
    return float if spec.dtype == _FLOAT64 else np.asarray


def _with_number(op: Any, x: Any, number: float) -> Tensor:
    """Run an operation whose second operand is a static Python number."""
    x = operand(x)
    if not isinstance(x, Tensor):
        x = plain(x)
    if x.spec.dtype.kind != "f":
        return plain(carried(op.ufunc(x._value, number)))
    p = float(number)
    compute = op.variants[p] if p in op.variants else lambda value: op.ufunc(value, p)
    value = compute(x._value)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = {"x": x._value, "y": carried(value)}
        return tuple(by_name[name] for name in form.saved)

    def make() -> Form:
        return forms.elementwise(op, (x.spec,), spec_of(carried(value)), (True,), (p,))

    result = finish(op, (x,), value, make, saved, (p,))
    if _bytes(x.spec) >= modes.LARGE:
        return result
    row = ROWS[op.name].setdefault((x.spec, p), Row(spec_of(result._value), _post(result.spec), compute))
    if isinstance(result._form, Form):
        row.first = result._form
    return result


def operand(value: Any) -> Any:
    """Return an operand as a tensor or a Python number; arrays are shared, not copied."""
    if isinstance(value, Tensor):
        return value
    if type(value) is float or type(value) is bool:
        return value
    if type(value) is int:
        return value if -LARGEST <= value <= LARGEST else plain(np.asarray(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(carried(native(np.asarray(value))))
    if isinstance(value, Number):
        return float(value) if isinstance(value, float) else int(value)
    raise TypeError(f"an operand is a {type(value).__name__}; tensors take tensors, NumPy arrays and numbers")


def native(array: Array) -> Array:
    """Check that an array can be a tensor's value: numbers of a supported dtype, native and aligned."""
    if not array.dtype.isnative or not array.flags.aligned:
        what = "byte order" if not array.dtype.isnative else "alignment"
        raise TypeError(
            f"array of dtype {array.dtype.str!r} has a foreign {what}; "
            "convert it first: array.astype(array.dtype.newbyteorder('='))"
        )
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:  # noqa: PLR2004
        raise TypeError(f"tensors hold floats, integers and booleans, not dtype {array.dtype}; convert with astype")
    return array


def check_broadcast(op: Any, operands: tuple[Any, ...]) -> None:
    """Raise PyTorch's message, and the operation's name, if shapes do not broadcast."""
    shapes = [o.spec.shape for o in operands if isinstance(o, Tensor)]
    if len(shapes) < 2 or shapes.count(shapes[0]) == len(shapes):  # noqa: PLR2004
        return
    merged: tuple[int, ...] = ()
    for shape in shapes:
        merged = _merge(op, merged, shape)


def _merge(op: Any, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for dim in range(rank - 1, -1, -1):
        if left[dim] != right[dim] and 1 not in (left[dim], right[dim]):
            raise RuntimeError(
                f"{op.name}: The size of tensor a ({left[dim]}) must match the size of tensor b ({right[dim]}) at "
                f"non-singleton dimension {dim}; the shapes are {list(a)} and {list(b)}"
            )
    return tuple(m if n == 1 else n for m, n in zip(left, right, strict=True))


def _of_one_dtype(op: Elementwise, operands: tuple[Any, ...], value: Array | float) -> tuple[Any, ...]:
    """Cast operands, recorded, to the dtype that NumPy computed in; conditions stay boolean."""
    if not op.differentiable or not value_is_float(value):
        return operands
    dtype = _FLOAT64 if type(value) is float else value.dtype  # type: ignore[union-attr]
    cast = [
        o if not isinstance(o, Tensor) or rule is None or o.spec.dtype == dtype else to_dtype(o, dtype)
        for o, rule in zip(operands, op.pullback, strict=True)
    ]
    return tuple(cast)


def to_dtype(x: Tensor, dtype: np.dtype[Any], op: Any = _TO_COPY) -> Tensor:
    """Copy to a dtype, recorded where both are floating."""
    assert isinstance(op, Copy)
    value = np.array(x._value, dtype=dtype, copy=True, order="C")
    return finish(op, (x,), value, lambda: forms.copy(op, x.spec, spec_of(carried(value))), lambda _form: (), ())


def reduction(op: Reduction, x: Tensor, axes: tuple[int, ...], keepdims: bool, name: str = "") -> Tensor:
    """Reduce over axes, normalised; ``name`` is the node's.

    The array is made contiguous first: NumPy's order of summation, and so a sum's last bits, depends on strides.
    """
    array = as_array(x)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    count = math.prod(array.shape[axis] for axis in axes)
    value = op.ufunc.reduce(array, axis=axes, keepdims=keepdims)
    if op.scale:
        with np.errstate(invalid="ignore", divide="ignore"):
            value = value / np.float64(count) if value.dtype == _FLOAT64 else value / value.dtype.type(count)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = {"x": x._value, "y": carried(value), "n": float(count)}
        if op.selects:
            wide = op.ufunc.reduce(array, axis=axes, keepdims=True)
            ties = ((array == wide) | (np.isnan(array) & np.isnan(wide))).sum(axis=axes, keepdims=keepdims)
            by_name["n"] = carried(ties.astype(array.dtype))
        return tuple(by_name[name] for name in form.saved)

    def make() -> Form:
        return forms.reduction(op, x.spec, spec_of(carried(value)), axes, keepdims, name)

    return finish(op, (x,), value, make, saved, (axes, keepdims), name)


def reduction_again(op: Reduction, x: Tensor, like: Form, count: float) -> Tensor | None:
    """Reduce as an earlier call did on a tensor of the same spec; None where that is not all there is to do."""
    tape, slot = modes.active(), x._slot
    if not tape or slot is None:
        return None
    axes, keepdims = like.params
    array = as_array(x)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    value = op.ufunc.reduce(array, axes, None, None, keepdims)  # type: ignore[call-arg]  # its stub wants keywords
    if op.scale:
        value = value / value.dtype.type(count)
    result = new(Tensor)
    result._value = value if like.spec.shape else carried(value)
    result._form = like
    result._slot = fresh = tape.fresh()
    if like.saved:
        tape.extend((fresh, slot, count, like.code))
    else:
        tape.extend((fresh, slot, like.code))
    return result


def select(op: Select, x: Tensor, axis: int, keepdims: bool) -> tuple[Tensor, Tensor]:
    """Return the extremum along an axis and its first place."""
    array = as_array(x)
    wide = np.asarray(op.locate(array, axis=axis, keepdims=True)) if array.ndim else np.zeros((), np.int64)
    value = np.take_along_axis(array, wide, axis) if array.ndim else array.copy()
    indices = np.array(wide if keepdims or not array.ndim else wide.squeeze(axis), np.int64, order="C")
    picked = np.array(value.reshape(indices.shape), order="C")

    def make() -> Form:
        return forms.select(op, x.spec, spec_of(carried(picked)), axis, keepdims)

    values = finish(op, (x,), picked, make, lambda _form: (indices,), (axis, keepdims))
    places = plain(indices)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.note(op, (x,), places, (axis, keepdims, "indices"))
    return values, places


def view(op: View, x: Tensor, params: tuple[Any, ...], key: tuple[Any, ...] | None = None) -> Tensor:
    """Return a view of a tensor; ``key`` stands for params that cannot be hashed."""
    value = op.apply(as_array(x), *params)
    slot, above = x._slot, x._form
    of_view = type(above) is Form and above.is_view
    result = new(Tensor)
    result._value = value
    result._base = x._base if of_view else x
    tape = None if slot is None else modes.active() or modes.wanted_tape()
    if tape is None:
        result._slot = None
        result._form = spec_of(value)
    else:
        form, offset = _view_form(op, above.spec, value, params, key)
        if of_view:
            offset += x._offset
        result._form, result._offset = form, offset
        result._slot = fresh = tape.fresh()
        tape.extend((fresh, slot, offset, form.code))
        _watch(tape, result, ())
    if tape is None or modes.active() is None:
        note(op, (x,), result, params)
    return result


_views: dict[tuple[Any, ...], tuple[Form, int]] = {}


def _view_form(
    op: View, source: Spec, value: Array, params: tuple[Any, ...], key: tuple[Any, ...] | None
) -> tuple[Form, int]:
    found = (op, source, params if key is None else key)
    hit = _views.get(found)
    if hit is None:
        spec, offset = view_pattern(op, source, value, params)
        hit = _views[found] = (forms.view(op, source, spec, params), offset)
    return hit


def size_of(x: Tensor) -> Size:
    """Return the shape as messages print it."""
    return Size(x.spec.shape)


def leaf_of(x: Tensor) -> bool:
    """Whether a tensor is a leaf of the graph: made by the user, or without history."""
    return x._slot is None or type(x._slot) is AccumulateGrad


def dense_spec(spec: Spec) -> Spec:
    """Return the spec of a base tensor of this shape and dtype, C-contiguous."""
    return spec_of(np.empty(spec.shape, spec.dtype)) if spec.shape else intern_spec((), (), spec.dtype, (), 1)
