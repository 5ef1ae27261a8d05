"""Writes in place: the one door of every operation that changes a tensor."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kernels.foundation.tables import Recent
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import meet
from kernels.native.memory import where
from kernels.native.structs import LARGE, VIEW
from kernels.operations import OPS
from tape import errors
from tape.errors import shorten
from tape.recording import record as recording
from tape.recording.promotion import can_cast
from tape.recording.views import clone
from tape.tensors import grad_modes, modes, tapes, view_families
from tape.tensors.operands import beside, operand
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array
from tape.tensors.view_families import base_of

_COPY: Any = OPS["copy_"]
_PUT: Any = OPS["index_put_"]
_CLONE: Any = OPS["clone"]


def _references(array: Array, whole: Array) -> tuple[int, int]:
    return sys.getrefcount(array), sys.getrefcount(whole)


def _references_alone() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the reference counts of an array that only its tensor holds, and of such a view, as seen by `protect`.

    How many of the references are the call's own differs between versions of Python.
    """
    values = [np.zeros(1)]
    array = whole = values[0]
    alone = _references(array, whole)
    values.append(whole[:])
    array = values[1]
    return alone, _references(array, whole)


_ALONE, _APART = _references_alone()
_FEW = 4  # up to so many living views need not make a write look through the tape for what pullbacks saved


def _shown(x: Tensor, base: Tensor, whole: Array) -> int:
    """Return how many living views of a base but ``x`` refer to its array, themselves referred to by nobody else."""
    views, count = [reference() for reference in getattr(base, "_views", None) or ()], 0
    for view in views:
        array = None if view is None or view is x else view._value
        if isinstance(array, np.ndarray) and array.base is whole:
            count += _references(array, whole)[0] <= _APART[0]
    return count


def check(x: Tensor, name: str, *, reads: bool = False, through: Tensor | None = None) -> None:
    """Raise PyTorch's errors for tensors that must not be written.

    ``reads``: the operation also reads the tensor. ``through``: the tensor of which this is an unrecorded part.
    """
    base, enabled = base_of(x), modes.active() or modes.is_grad_enabled()
    if modes.given_arrays():
        release_elements(base, x)
    seen = x if through is None else through
    if enabled and type(base._slot) is AccumulateGrad:
        recorder = modes.current().recorder
        if recorder is None or not recorder.is_argument(base):
            raise errors.leaf_in_place(is_view=view_families.is_view(x))
        _branch(base)
    elif enabled and base._slot is None and seen is not base and seen._slot is not None:
        raise RuntimeError(errors.LEAF_VIEW_IN_PLACE)  # the base was a leaf when the view was made
    if (x._form.spec.overlaps or base._form.spec.overlaps) and grad_modes.overlapping(x, base):
        raise RuntimeError(f"{name}: {errors.OVERLAP}")
    value = x._value
    if type(value) is not float and not value.flags.writeable:  # type: ignore[union-attr]
        raise RuntimeError(f"{name}: the tensor's memory is a read-only NumPy array's; write into x.clone()")
    if reads and enabled and x is not base and x._slot is None and base._slot is not None:
        view_families.rebase_view(x)  # a view made under no_grad: what is written through it is the family's


def is_value(x: Tensor) -> bool:
    """Whether ``x += y`` gives another value, as of NumPy's scalars in functions given arrays.

    A leaf that an optimizer steps, without gradients, is written.
    """
    if x._form.spec.shape or not modes.given_arrays() or not view_families.is_scalar(x):
        return False
    return type(x._slot) is not AccumulateGrad or modes.is_grad_enabled()


def release_elements(base: Tensor, written: Tensor) -> bool:
    """Give elements of a base that is about to be written memory of their own: in NumPy they are values.

    But for the one that is ``written`` through, by a method of PyTorch's. Return whether there were any.
    """
    elements = view_families.elements_of(base, written)
    for element in elements:
        release(element)
    return bool(elements)


def release(element: Tensor) -> None:
    """Give an element memory of its own."""
    mode, recorder = modes.turned(modes.current(), grad=element._slot is not None), modes.current().recorder
    value = modes.call_under(mode, clone, element)
    element._value = value._value
    view_families.move(element, value._slot, value._form)
    del element._base
    if recorder is not None:
        recorder.released(element, value)


def _branch(x: Tensor) -> None:
    spec, tape = x.spec, modes.own_tape()
    form = recording.cached_form((_CLONE, spec, spec, (True,), ""), lambda: _CLONE.form((spec,), spec))
    view_families.record(tape, x, form, (x._slot,))
    view_families.invalidate_views(x)


def store(x: Tensor, source: Any, name: str, *, fresh: bool = False, item: bool = False, casts: bool = False) -> Tensor:
    """Write a value, broadcast, into a tensor that :func:`check` passed.

    ``fresh``: the value is a new tensor that nobody else holds. ``item``: as in ``x[...] = value``, leading dims of
    length one do not count. ``casts``: floats become integers if the tensor has integers.
    """
    if not fresh and isinstance(source, Tensor) and same(x, source):
        count_write(x)
        return x
    spec = x._form.spec
    value = source
    if not fresh or source._form.spec.shape != spec.shape or source._form.spec.dtype is not spec.dtype:
        casts = casts or (fresh and can_cast(source._form.spec.dtype, spec.dtype))
        try:
            value = value_to_write(source, spec.shape, spec.dtype, name, item=item, casts=casts)
        except Exception as error:
            shorten(error)
            raise
    if fresh and _take(x, value):
        return x
    if not fresh and meets(x, value):
        value = clone(value)
    tape = wanted(x, value)
    notify_overwrite(x, value)
    if type(x._value) is float and view_families.owns_memory_alone(x):
        x._value = float(value._value if isinstance(value, Tensor) else value)
    else:
        protect(x)
        as_array(x)[...] = value._value if isinstance(value, Tensor) else value  # not before: protect counts references
    count_write(x)
    if tape is not None:
        record(x, value, tape)
    notify_written(_COPY, x, value, ())
    return x


def rewrite(x: Tensor, value: Tensor) -> None:
    """Record a write of this value that has already changed the tensor's memory."""
    record(x, value, modes.own_tape())


def store_at(
    x: Tensor, key: Any, places: tuple[Array, Array] | tuple[Tensor], source: Any, name: str, *, adds: bool = False,
    item: bool = True,
) -> None:  # fmt: skip
    """Write a value, broadcast, to the elements that ``key`` picks.

    ``places`` are their indices in the memory and in the gradient, or a tensor of both; without ``adds`` each must be
    there once.
    """
    picked = as_array(places[0]) if isinstance(places[0], Tensor) else places[-1]
    assert isinstance(picked, np.ndarray)
    value = value_to_write(source, picked.shape, x.spec.dtype, name, item=item, casts=item)
    tape = wanted(x, value)
    if meets(x, value):
        value = clone(value)
    for reason in (value, *[index for index in places if isinstance(index, Tensor)]):
        notify_overwrite(x, reason)
    protect(x)
    array, new = as_array(x), value._value if isinstance(value, Tensor) else value
    if adds:
        np.add.at(array, key, new)
    else:
        array[key] = new
    count_write(x)
    op = _PUT if adds else _COPY
    if tape is not None:
        record(x, value, tape, op, picked)
    notify_written(op, x, value, places)


def value_to_write(
    source: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, *, item: bool = False, casts: bool = False
) -> Any:
    """Return a value that can be written to this shape and dtype: a tensor of the dtype, or a number."""
    value = source if type(source) in (Tensor, float) else operand(beside(source, dtype))
    tensor = isinstance(value, Tensor)
    value_shape, kind = (value._form.spec.shape, value._form.spec.dtype) if tensor else ((), np.result_type(value))
    if value_shape != shape and (broadcast := _broadcast(shape, value_shape)) != shape:
        extra, rest = len(value_shape) - len(shape), value_shape[len(value_shape) - len(shape) :]
        if item and extra > 0 and value_shape[:extra] == (1,) * extra and _broadcast(shape, rest) == shape:
            return value_to_write(value.reshape(value_shape[extra:]), shape, dtype, name, casts=casts)
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value_shape)} cannot be broadcast to indexing result of "
            f"shape {list(shape)}"
            if item
            else f"{name}: output with shape {list(shape)} doesn't match the broadcast shape {list(broadcast)}"
        )
    if not casts and not np.can_cast(kind, dtype, "same_kind"):
        raise RuntimeError(f"{name}: result type {kind.name} can't be cast to the desired output type {dtype.name}")
    return recording.to_dtype(value, dtype) if tensor and kind != dtype else value


def _broadcast(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(shape, other)
    except ValueError:
        return other


def wanted(x: Tensor, value: Any) -> tapes.Tape | None:
    """Return the tape to record a write on; None where no gradient is wanted."""
    if base_of(x)._slot is None and (not isinstance(value, Tensor) or value._slot is None):
        return None
    return modes.active() or modes.wanted_tape()


def _take(x: Tensor, value: Tensor) -> bool:
    """Replace memory that a tensor does not share by that of a new value, if possible; pullbacks keep the old one."""
    old, new = x._form.spec, value._form.spec
    if (
        view_families.is_view(x)
        or not view_families.owns_memory_alone(x)
        or value is x
        or view_families.is_view(value)
        or new.shape != old.shape
        or new.strides != old.strides
        or type(new) is not type(old)
        or type(x._slot) is AccumulateGrad
    ):
        return False
    recorder = modes.current().recorder
    if recorder is not None and recorder.is_argument(x):
        return False  # the caller is to see what is written
    if value._slot is None and x._slot is not None:
        if recorder is not None or modes.is_grad_enabled():
            return False
        x._value = value._value  # under no_grad the history stays
    else:
        x._value = value._value
        view_families.move(x, value._slot, value._form)
    count_write(x)
    if recorder is not None:
        recorder.taken(x, value)
    return True


def meets(x: Tensor, value: Any) -> bool:
    """Whether a value is read from the memory that is about to be written."""
    if not isinstance(value, Tensor) or type(value._value) is float:
        return False
    array: Any = value._value
    return np.may_share_memory(array, as_array(x)) and meet(array, as_array(x))


def same(x: Tensor, value: Tensor, part: Array | None = None) -> bool:
    """Whether a value is what already stands there, or in a part there, as at the end of ``x[i] += v``."""
    a, b = x._value if part is None else part, value._value
    if type(a) is float or type(b) is float or base_of(x) is not base_of(value):
        return x is value and part is None
    alike = a.strides == b.strides and a.shape == b.shape  # type: ignore[union-attr]
    return alike and where(a) == where(b)  # type: ignore[arg-type]


def protect(x: Tensor) -> None:
    """Copy what pullbacks still need of the memory that is about to be written."""
    base = base_of(x)
    array, whole = as_array(x), as_array(base)
    if whole.base is None and (array is whole or array.base is whole):
        counted, least = _references(array, whole), _ALONE if array is whole else _APART
        more = counted[1] - least[1] if counted[0] <= least[0] else _FEW + 1
        if more <= 0 or (more <= _FEW and _shown(x, base, whole) == more):
            return
    view_families.protect(array)


def count_write(x: Tensor) -> None:
    """Count a write to the memory."""
    view_families.counter_of(x)[0] += 1


def record(x: Tensor, value: Any, tape: tapes.Tape, op: Any = _COPY, places: Array | None = None) -> None:
    """Append the write: the base gets a new version, whose gradient buffer is that of the version before."""
    base = base_of(x)
    source, slot = (value.spec, value._slot) if isinstance(value, Tensor) else (None, None)
    whole, region, before = base.spec, x.spec, base._slot
    wants = (before is not None, slot is not None)
    source = source if wants[1] else None
    key: Any = (op, whole, region, source, wants)
    picked: Any = (region, None)
    if places is not None:
        key, picked = (op, whole, places.shape, source, wants, "at"), (None, places.shape)
    form = recording.cached_form(key, lambda: op.form((whole, source), whole, wants, picked))
    offset = x._offset if view_families.is_view(x) else 0
    view_families.record(tape, base, form, (before, slot), (offset,) if places is None else (offset, places))
    view_families.invalidate_views(base)


def notify_overwrite(x: Tensor, value: Any) -> None:
    """Notify the recorder, if any, of a write that is about to happen."""
    if (recorder := modes.recorder()) is not None:
        recorder.overwrites(x, value)


def notify_written(op: Any, x: Tensor, value: Any, params: tuple[Any, ...]) -> None:
    """Notify the recorder, if any, of a write that has happened."""
    if (recorder := modes.recorder()) is not None:
        recorder.wrote(op, x, value, params)


# Adding to a part of a tensor in place: nothing is overwritten, so the gradient buffer keeps its gradient.


def accumulate(x: Tensor, value: Any) -> Tensor:
    """Add a value of the same dtype, checked by :func:`fitting`, to a tensor whose memory other tensors may share."""
    if meets(x, value):
        value = clone(value)
    tape = wanted(x, value)
    notify_overwrite(x, value)
    protect(x)
    array = as_array(x)
    np.add(array, value._value if isinstance(value, Tensor) else value, out=array)
    view_families.counter_of(x)[0] += 1
    if tape is not None:
        record(x, value, tape, _PUT)
        whole = base_of(x).spec
        if isinstance(value, Tensor) and view_families.is_view(x) and whole.bytes < LARGE:
            key = (x._form.spec, whole, value.spec, value._slot is None)
            _added[key] = base_of(x)._form  # type: ignore[assignment]
    notify_written(_PUT, x, value, ())
    return x


def add_again(x: Tensor, value: Any) -> bool:
    """Add to a part as an earlier call did on tensors of the same specs; False where there is more to do."""
    tape = modes.tape_beside_recorder()
    if not tape or type(value) is not Tensor:
        return False
    if type(x._slot) is not int or x._form.kind != VIEW:
        return False
    base = x._base
    if tape.given_arrays:
        release_elements(base, x)
    before, source, new = base._slot, value._slot, value._value
    form = _added.get((x._form.spec, base._form.spec, value._form.spec, source is None))
    if form is None or type(before) is not int:
        return False
    if type(new) is not float and new.base is not None and np.may_share_memory(x._value, new):  # type: ignore[union-attr]
        return False
    recorder = modes.recorder()
    if recorder is not None:
        recorder.overwrites(x, value)
    protect(x)
    array: Any = x._value  # not before: protect counts the references to it
    np.add(array, new, array)
    view_families.counter_of(base)[0] += 1
    view_families.record(tape, base, form, (before, source), (x._offset,))
    view_families.invalidate_views(base)
    if recorder is not None:
        recorder.wrote(_PUT, x, value, ())
    return True


_added: Recent[Any, Form] = Recent()
"""Forms of additions to parts of tensors, by the specs of the part, of its base and of what was added."""
