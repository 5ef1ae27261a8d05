"""The form of an instruction whose saved value was copied: other strides of the value, the same gradients."""

from __future__ import annotations

from kernels.arrays.specs import Spec, Strides, intern_spec
from kernels.instructions.form import Form


def restrided(form: Form, place: int, strides: Strides) -> Form:
    """Return the form that reads the saved value at ``place`` with these strides."""
    key = (place, strides)
    other = form.restrided.get(key)
    if other is None:
        other = form.restrided.setdefault(key, _made(form, form.saved[place], strides))
    return other


def _made(form: Form, name: str, strides: Strides) -> Form:
    specs, spec, inputs = list(form.specs), form.spec, form.op.inputs
    if name == "y":
        spec = _turned(spec, strides)
    elif name in inputs:
        at = inputs.index(name)
        source = specs[at]
        specs[at] = source and _turned(source, strides)  # None: a constant
    else:
        return form  # indices and counts are dense, as are their copies; Python functions get what they saved
    made: Form = form.op.reformed(form, tuple(specs), spec)
    return made


def _turned(spec: Spec, strides: Strides) -> Spec:
    return intern_spec(spec.shape, strides, spec.dtype, spec.gradient, spec.buffer_size)
