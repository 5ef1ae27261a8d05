"""Programs as data: records by their names, patterns and forms by what they were made from, jitted functions by name.

Importing this teaches ``pickle`` and ``copy`` these kinds. No code is in a pickle.
"""

from __future__ import annotations

import copyreg
import importlib
import pickle
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, view_spec
from kernels.foundation.recent_table import Recent
from kernels.instructions.form import Form
from kernels.kinds.custom import Custom
from kernels.kinds.routine import Routine
from kernels.kinds.view import Part, View
from kernels.ops.registry import OPS
from kernels.programs.recording.program import ProgramError
from kernels.records.op import Op

_forms: Recent[Any, Form] = Recent()
_customs: dict[Any, Custom] = {}


def op_named(name: str) -> Op:
    """Return the record of this name; ProgramError if this version has none."""
    if name not in OPS:
        raise ProgramError(f"the program has the operation {name!r}, which this version of tape does not know")
    return OPS[name]


def part_of(name: str) -> View:
    """Return the view of one result of a routine."""
    op = op_named(name)
    assert isinstance(op, Routine)
    return op.part


def spec_from(shape: Any, strides: Any, dtype: str, gradient: Any, buffer_size: int) -> Spec:
    """Return the one spec of these values."""
    return view_spec(shape, strides, np.dtype(dtype), gradient, buffer_size)


def _of_spec(spec: Spec) -> Any:
    return spec_from, (spec.shape, spec.strides, spec.dtype.str, spec.gradient, spec.buffer_size)


def _of_op(op: Op) -> Any:
    if OPS.get(op.name) is not op:
        raise pickle.PicklingError(f"the operation {op.name!r} is in no table, and cannot be found again by its name")
    return op_named, (op.name,)


def _of_part(op: Part) -> Any:
    return part_of, (op.name,)


def _of_custom(op: Custom) -> Any:
    return custom_from, (op.name, op.grad_fn, _path(op, op.forward), _path(op, op.vjp))


def _path(op: Custom, function: Any) -> tuple[str, str]:
    """Return where a jitted function of the user's is found again."""
    path = function.py_func.__module__, function.py_func.__qualname__
    try:
        value = _imported(*path)
    except (ImportError, AttributeError):
        value = None
    if value is not function:
        raise pickle.PicklingError(
            f"the custom operation {op.name!r} calls {'.'.join(path)}, which is not found by that name; define the "
            "jitted function at the top of a module"
        )
    return path


def _imported(module: str, name: str) -> Any:
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def custom_from(name: str, grad_fn: str, forward: tuple[str, str], vjp: tuple[str, str]) -> Custom:
    """Return the operation of two jitted functions, which are imported."""
    return custom_of(name, grad_fn, _imported(*forward), _imported(*vjp))


def custom_of(name: str, grad_fn: str, forward: Any, vjp: Any) -> Custom:
    """Return the operation of two jitted functions, one for the same two."""
    key = name, grad_fn, forward, vjp
    if key not in _customs:
        if not hasattr(forward, "py_func") or not hasattr(vjp, "py_func"):
            raise TypeError(f"the custom operation {name!r} needs jitted functions; decorate them with numba.njit")
        _customs[key] = Custom(name=name, doc="", pullback=(None,), grad_fn=grad_fn, forward=forward, vjp=vjp)
    return _customs[key]


def _of_form(form: Form) -> Any:
    params = () if form.is_view else form.params
    return form_from, (form.op, form.specs, form.spec, form.wanted, params, form.name)


def form_from(op: Op, specs: Any, spec: Spec, wanted: Any, params: Any, name: str) -> Form:
    """Return the form of an instruction, made anew, once for equal ones."""
    key = (op, specs, spec, wanted, name, pickle.dumps(params))
    form = _forms.get(key)
    return form if form is not None else _forms.setdefault(key, op.form(specs, spec, wanted, params, name))


for _kind in Op.__subclasses__():
    copyreg.pickle(_kind, _of_op)
copyreg.pickle(Part, _of_part)
copyreg.pickle(Custom, _of_custom)
copyreg.pickle(Spec, _of_spec)
copyreg.pickle(Form, _of_form)
