"""The form of an instruction whose saved value was copied: other strides of the primal, the same gradients."""

from __future__ import annotations

from kernels.arrays.specs import Spec, Strides, intern_spec
from kernels.instructions import forms, routine_calls
from kernels.instructions.forms import Form, inputs_of
from kernels.native.words import PYTHON
from kernels.records.kinds import Contraction, Elementwise, Reduction, Routine


def restrided(form: Form, place: int, strides: Strides) -> Form:
    """Return the form that reads the saved value at ``place`` with these strides."""
    key = (place, strides)
    found = form.restrided.get(key)
    if found is None:
        found = form.restrided.setdefault(key, _made(form, form.saved[place], strides))
    return found


def _made(form: Form, name: str, strides: Strides) -> Form:
    op, specs, spec = form.op, list(form.specs), form.spec
    if name == "y":
        spec = _turned(spec, strides)
    elif name in inputs_of(op):
        at = inputs_of(op).index(name)
        source = specs[at]
        specs[at] = source and _turned(source, strides)  # None: a constant
    else:
        return form  # places and counts are dense, and so are their copies; what functions save Python reads as it is
    if isinstance(op, Routine):
        return routine_calls.form(form.params[0], tuple(specs), spec, python=form.kind == PYTHON)
    if isinstance(op, Elementwise):
        return forms.elementwise(op, tuple(specs), spec, form.wanted, form.params)
    if isinstance(op, Reduction):
        assert specs[0] is not None
        axes, keepdims = form.params
        return forms.reduction(op, specs[0], spec, axes, keepdims, form.name)
    return _contraction(form, op, specs, spec) if isinstance(op, Contraction) else form


def _contraction(form: Form, op: Contraction, specs: list[Spec | None], spec: Spec) -> Form:
    a, b = specs
    assert a is not None
    assert b is not None
    return forms.contraction(op, a, b, spec, (form.wanted[0], form.wanted[1]))


def _turned(spec: Spec, strides: Strides) -> Spec:
    return intern_spec(spec.shape, strides, spec.dtype, spec.gradient, spec.buffer_size)
