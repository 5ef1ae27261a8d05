"""Append an operation that ran to the tape, and notify observers; casts, views, and saved values that hooks pack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import Spec, intern_spec, pattern, spec_of
from kernels.foundation.tables import Recent
from kernels.kinds import reference_tape, views
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, unexposed
from kernels.kinds.views import Copy, View, view_pattern
from kernels.native.structs import LARGE, PYTHON, TAPE_BITS
from kernels.operations import OPS
from kernels.sweeps.reference_pullbacks import contributions
from tape.tensors import grad_modes, modes, tapes
from tape.tensors.bytecode import Run, runs
from tape.tensors.dtypes import Size
from tape.tensors.grad_modes import INFERENCE_SAVED, InferenceSpec
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array, constant_tensor, new, scalar_or_array
from tape.tensors.view_families import is_scalar, join

_forms: Recent[tuple[Any, ...], Form] = Recent()
TO_COPY: Any = OPS["to_copy"]
_WITH_GRADIENT = (8, 4)  # bytes of the floats that have gradients


def recorded() -> int:
    """Return the number of living instructions on this thread's tape."""
    tape = modes.own_tape()
    tape.patience = 0  # search for cycles through hooks too
    while tape.collect():
        pass  # finalizers may have freed more
    return int(tape.entries.count)


def locate(slot: int) -> Instruction | None:
    """Return the instruction with this result, on whichever tape; None if it is gone."""
    tape = tapes.living.get(slot >> TAPE_BITS)
    if tape is None:
        return None
    with tape.reading():  # its own thread may be dropping what is dead
        return reference_tape.locate(tape.entries, slot)


def cached_form(key: tuple[Any, ...], make: Callable[[], Form]) -> Form:
    """Return the form of a key, made at its first use.

    RuntimeError if an instruction of it would keep an inference tensor for its backward.
    """
    form = _forms.get(key)
    if form is None:
        form = make()
        if InferenceSpec in map(type, form.specs) and _saves_inference_tensor(form):
            raise RuntimeError(INFERENCE_SAVED)
        form = _forms.setdefault(key, form)
    return form


def _saves_inference_tensor(form: Form) -> bool:
    return any(type(spec) is InferenceSpec and name in form.saved for name, spec in grad_modes.named(form))


def finish(
    op: Any,
    operands: tuple[Any, ...],
    value: Any,
    params: tuple[Any, ...] = (),
    *,
    name: str = "",
    further: Callable[[str], Any] | None = None,
    notice: tuple[Any, ...] | None = None,
) -> Tensor:
    """Return the result as a tensor, recorded if an operand requires grad.

    The tape keeps what the kind's form saves: values of operands, by the record's names, the result, and of other
    names ``further(name)``. Recorders are notified of ``params``, or of ``notice`` in their place.
    """
    result = new(Tensor)
    result._value = value = scalar_or_array(value)
    result._slot = None
    result._form = spec_of(value)
    slots = [o._slot if isinstance(o, Tensor) else None for o in operands]
    wanted = slots.count(None) < len(slots) and result._form.dtype.kind == "f"
    tape = (modes.active() or modes.wanted_tape()) if wanted else None
    if tape is not None:
        specs = tuple([o._form.spec if isinstance(o, Tensor) else None for o in operands])
        wants = tuple([slot is not None for slot in slots])
        key = (op, specs, result._form, wants, name, *params)
        form = cached_form(key, lambda: op.form(specs, spec_of(value), wants, params, name))
        kept = _kept(form, operands, value, further) if form.saved else ()
        if modes.active() is None and (pack := modes.current().pack) is not None:
            form, kept = packed(form, kept, pack)
        other, kept = unexposed(form, kept)
        tape.record(result, other.code, tuple(slots), kept)
        if other is not form:  # for the tape alone
            result._form = form
        watch(tape, result, operands)
    if tape is None or modes.active() is None:
        if modes.current().inference:
            grad_modes.made(result)
        notify_observers(op, operands, result, params if notice is None else notice)
    if runs.log is not None:
        runs.log.append(Run(op, operands, params if notice is None else notice, (result,)))
    return result


def _kept(form: Form, operands: tuple[Any, ...], value: Any, further: Callable[[str], Any] | None) -> tuple[Any, ...]:
    """Return what the tape keeps, arrays and floats: native code reads nothing else."""
    by_name = {"y": value, **dict(zip(form.op.inputs, operands, strict=False))}
    kept = [by_name[name] if name in by_name or further is None else further(name) for name in form.saved]
    return tuple([x._value if isinstance(x, Tensor) else float(x) if type(x) in (int, bool) else x for x in kept])


def watch(tape: tapes.Tape, result: Tensor, operands: tuple[Any, ...]) -> None:
    """Count bytes at the death of a result whose instruction holds, or alone refers to, large values."""
    most = result._form.spec.bytes
    for o in operands:
        if isinstance(o, Tensor) and o._form.spec.bytes > most:
            most = o._form.spec.bytes
    if most >= LARGE:
        tape.watch(result, most)
        tape.grow(most)


def notify_observers(op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
    """Notify the recorder, and anomaly mode, of an operation."""
    mode = modes.current()
    if mode.recorder is not None:
        mode.recorder.notify(op, operands, result, params)
    mode.notify_anomaly(result._slot)


def note_escape(x: Any) -> None:
    """Notify the recorder that a value escapes: it becomes a Python number or array."""
    if isinstance(x, Tensor) and (recorder := modes.recorder()) is not None:
        recorder.note_escape(x)


def note_number(x: Tensor) -> None:
    """Notify the recorder that the only element of a tensor becomes a Python number."""
    if (recorder := modes.recorder()) is not None:
        recorder.note_number(x)


def note_text(x: Tensor) -> None:
    """Notify the recorder of a compiled function's call that a tensor is printed."""
    if (recorder := modes.recorder()) is not None and recorder.has_guards:
        recorder.note_number(x)


def unset(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return memory that is not set; while a program is recorded, of which it may be a constant, always the same."""
    return np.empty(shape, dtype) if modes.current().recorder is None else np.zeros(shape, dtype)


def note_drawing(generator: Any) -> None:
    """Notify the recorder that a generator is about to be drawn from."""
    if (recorder := modes.recorder()) is not None:
        recorder.note_drawing(generator)


def note_drawn(x: Tensor, draw: Any) -> None:
    """Notify the recorder of a new tensor of random numbers, and of what draws them."""
    if (recorder := modes.recorder()) is not None:
        recorder.note_drawn(x, draw)


def note_unrecorded(x: Any, what: str) -> None:
    """Notify the recorder that a tensor, or None, is used for something, beside its value, that is not recorded."""
    if (x is None or isinstance(x, Tensor)) and (recorder := modes.recorder()) is not None:
        recorder.note_unrecorded(x, what)


def note_raised(op: Any, operands: tuple[Any, ...], params: dict[str, Any], error: Exception) -> None:
    """Notify the recorder that an operation raised by the values of its operands: the caller may catch that."""
    if (recorder := modes.recorder()) is not None:
        recorder.note_raised(op, operands, params, error)


def to_dtype(x: Tensor, dtype: np.dtype[Any], op: Any = TO_COPY) -> Tensor:
    """Copy to a dtype, recorded where both are floating."""
    assert isinstance(op, Copy)
    if x._slot is not None and dtype.kind == "f" and dtype.itemsize not in _WITH_GRADIENT and modes.is_grad_enabled():
        raise RuntimeError(
            f"a tensor that requires grad as {dtype.name}, which has no gradients: only float64 and float32 have; "
            "convert x.detach()"
        )
    return finish(op, (x,), views.cast(dtype, x._value))


def view(op: View, x: Tensor, params: tuple[Any, ...], key: tuple[Any, ...] | None = None) -> Tensor:
    """Return a view of a tensor; ``key`` stands for params that cannot be hashed."""
    if not x._form.spec.shape and not (op.element or op.broadcasts) and modes.given_arrays() and is_scalar(x):
        x = to_dtype(x, x.spec.dtype)  # NumPy's scalars have no views
    slot = x._slot
    result = region(x, op, params, key)
    form: Any = result._form
    active = modes.active()
    tape = None if slot is None else active or modes.wanted_tape()
    if tape is not None:
        tape.record(result, form.code, (slot,), (result._offset,))
        if form.spec.bytes >= LARGE:
            tape.watch(result, form.spec.bytes)
    join(result._base, result)
    if active is None:
        notify_observers(op, (x,), result, params)
    return result


def region(x: Tensor, op: View, params: tuple[Any, ...], key: tuple[Any, ...] | None = None) -> Tensor:
    """Return a view that is not recorded: its memory, and its place in the gradient buffer of its family."""
    value = x._value
    if type(value) is float:
        value = as_array(x)
    above: Any = x._form
    result = new(Tensor)
    result._value = value = op.apply(value, *params)
    hit = _views.get((op, above.spec, params if key is None else key))
    if hit is None:
        hit = _view_form(op, above.spec, value, params, key)
    if type(above) is Form and above.is_view:
        result._base, result._offset = x._base, x._offset + hit[1]
    else:
        result._base, result._offset = x, hit[1]
    result._form, result._slot = hit[0], None
    return result


_views: Recent[tuple[Any, ...], tuple[Form, int]] = Recent()  # forms and offsets of the views that were taken last
_NAMED = 64  # most views of one pattern with forms of their own, which listings name; the others share one
_patterns: Recent[tuple[Any, ...], dict[Any, Form]] = Recent()


def _view_form(
    op: View, source: Spec, value: Array, params: tuple[Any, ...], key: tuple[Any, ...] | None
) -> tuple[Form, int]:
    spec, offset = view_pattern(op, source, value, params)
    spec, name = spec if type(source) is Spec else grad_modes.alike(spec, source), params if key is None else key
    forms_of_pattern = _patterns.setdefault((op, source, spec), {})
    named = name in forms_of_pattern or len(forms_of_pattern) < _NAMED
    form = forms_of_pattern.get(name if named else None)
    if form is None:
        form = forms_of_pattern.setdefault(
            name if named else None, op.form((source,), spec, (True,), params if named else ())
        )
    return _views.setdefault((op, source, name), (form, offset))


def size_of(x: Tensor) -> Size:
    """Return the shape as messages print it."""
    return Size(x.spec.shape)


def leaf_of(x: Tensor) -> bool:
    """Whether a tensor is a leaf of the graph: made by the user, or without history."""
    return x._slot is None or type(x._slot) is AccumulateGrad


def dense_spec(spec: Spec) -> Spec:
    """Return the spec of a base tensor of this shape and dtype, C-contiguous."""
    return spec_of(np.empty(spec.shape, spec.dtype)) if spec.shape else intern_spec((), (), spec.dtype, (), 1)


# Saved values that the user's hooks pack (to disk, compressed) and unpack for backward.

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


class PackedValue:
    """One packed value, with the hook that unpacks it."""

    __slots__ = ("dtype", "packed", "shape", "strides", "unpack")

    def __init__(self, value: Any, hooks: Hooks) -> None:
        array = np.asarray(value)
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.packed = hooks[0](constant_tensor(scalar_or_array(np.array(value))))  # a copy, which nobody else writes to
        self.unpack = hooks[1]

    def value(self) -> Any:
        """Return the unpacked value. TypeError or RuntimeError if the hook returns something else."""
        value = modes.call_user(self.unpack, self.packed)
        if not isinstance(value, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(value).__name__}"
            )
        if value.spec.shape != self.shape:
            raise RuntimeError(
                f"saved tensor unpack_hook returned shape {list(value.spec.shape)} for a tensor of shape "
                f"{list(self.shape)}"
            )
        return self._laid_out(value._value)

    def _laid_out(self, value: Any) -> Any:
        """Return a value with the strides and the dtype from before packing, which the pullbacks expect."""
        if type(value) is float or (value.strides == self.strides and value.dtype == self.dtype) or 0 in self.shape:
            return value
        ends = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        first, last = -sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        memory = np.empty(first + last + self.dtype.itemsize, np.uint8)
        array: Array = np.ndarray(self.shape, self.dtype, memory, first, self.strides)
        array[...] = value
        return array


class Packed:
    """The saved values of one instruction, packed; its pullbacks run in Python."""

    __slots__ = ("form", "values")

    def __init__(self, form: Form, values: tuple[Any, ...], hooks: Hooks) -> None:
        self.form = form
        self.values = [
            PackedValue(v, hooks) if _is_value(form, n) else v for n, v in zip(form.saved, values, strict=True)
        ]

    def unpacked(self, instruction: Instruction) -> Instruction:
        """Return the instruction as it was before its values were packed."""
        saved = tuple(v.value() if isinstance(v, PackedValue) else v for v in self.values)
        return Instruction(
            instruction.start, instruction.stop, instruction.slot, instruction.operands, saved, self.form
        )

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> list[Array | None]:
        """Run the pullbacks on the values unpacked."""
        if gradient is None:
            return [None] * len(instruction.operands)
        spec = self.form.spec
        buffer = np.full((batch, spec.buffer_size) if batch else spec.buffer_size, -0.0, spec.dtype)
        pattern(buffer, spec, 0)[...] = gradient
        return contributions(self.unpacked(instruction), buffer, stash, batch=batch)


def _is_value(form: Form, name: str) -> bool:
    """Whether a saved value is a tensor's, not a number or an index of the operation's own."""
    names = form.op.inputs
    return name == "y" or (name in names and form.specs[names.index(name)] is not None)


def packed(form: Form, values: tuple[Any, ...], hooks: Hooks) -> tuple[Form, tuple[Any, ...]]:
    """Return the form and the saved values of an instruction whose values are packed; a routine unpacks each itself."""
    if form.kind == PYTHON:
        pairs = zip(form.saved, values, strict=True)
        return form, tuple(v if name == "context" else PackedValue(v, hooks) for name, v in pairs)
    if not any(_is_value(form, name) for name in form.saved):
        return form, values
    if form.packed is None:
        form.packed = reference_tape.packed(form)
    return form.packed, (Packed(form, values, hooks),)
