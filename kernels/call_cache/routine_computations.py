"""How native code computes reductions, selections and routines that it repeats: a kernel, or what Python computes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernels.arrays.numpy_loops import InnerLoop
from kernels.arrays.specs import Spec, dense
from kernels.call_cache import computations
from kernels.call_cache.computation import Computation
from kernels.codegen.rows.extrema import Pick, pick
from kernels.instructions.form import Form
from kernels.native import words
from kernels.native.words import PICK_CONTEXT, PICK_EXTRA, PICK_RESULT, PICK_SCALE, PYTHON
from kernels.records.kinds import Reduction, Routine, Select
from kernels.records.reduce import counted, reduced

_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


def routine(op: Routine, sources: tuple[Spec, ...], form: Form | Spec, params: dict[str, Any]) -> Computation | None:
    """Return how a routine is computed: by its own forward, on arrays. None of a number, whose rule wants an array."""
    function: Any = partial(op.forward, **params)
    how = op.rows(sources[0].shape, sources[0].dtype, **params) if op.rows is not None else None
    if how is not None:
        function = how.run
    elif op.differentiable:
        function = _quiet(function)
    if not all(source.shape for source in sources):
        if isinstance(form, Form) and form.kind == PYTHON:
            return None
        function = _of_arrays(function)
    if not form.spec.shape and form.spec.dtype != _FLOAT64 and not op.extras:
        function = _array(function)
    picks, context = (), None
    if isinstance(form, Form):
        places = {**{name: k for k, name in enumerate(op.inputs)}, "y": PICK_RESULT, "context": PICK_CONTEXT}
        picks = tuple([places.get(name, PICK_EXTRA) for name in form.saved])
        context = form.params[0]
    if how is not None and sources[0].strides == dense(sources[0].shape, sources[0].dtype.itemsize):
        address, layout = how.kernel()
        loop = InnerLoop(address, 0)
        return Computation(words.KERNEL, loop, layout=layout, count=2, picks=picks, context=context)
    return Computation(words.CALLED, function=function, count=len(sources) + 1, picks=picks, context=context)


def reduction(
    op: Reduction, source: Spec, form: Form | Spec, axes: tuple[int, ...], keepdims: bool
) -> Computation | None:
    """Return how a reduction is computed: by NumPy's loop, or as Python does; None for what has counts of ties."""
    saved = form.saved if isinstance(form, Form) else ()
    if isinstance(op.ufunc, np.ufunc):
        how = computations.reduction(op, source, axes, form.spec, saved, keepdims=keepdims)
        if how is not None:
            return how
    if op.selects and saved:
        return None
    function: Any = partial(reduced, op, axes=axes, keepdims=keepdims)
    if not source.shape:
        function = _of_arrays(function)
    if not form.spec.shape and form.spec.dtype != _FLOAT64:
        function = _array(function)
    places = {"x": 0, "y": PICK_RESULT, "n": PICK_SCALE}
    picks, scale = tuple([places[name] for name in saved]), float(counted(source.shape, axes))
    return Computation(words.CALLED, function=function, count=2, picks=picks, scale=scale)


def select(op: Select, source: Spec, form: Form | Spec, axis: int, keepdims: bool) -> Computation:
    """Return how an extremum and its place are found: by our kernel, or as Python does."""
    picks = (PICK_EXTRA,) if isinstance(form, Form) else ()
    if (
        source.dtype in (_FLOAT64, _FLOAT32)
        and source.size
        and form.spec.strides == dense(form.spec.shape, source.dtype.itemsize)
    ):
        address, layout = Pick(source, axis, largest=op.locate is np.argmax).kernel()
        return Computation(words.KERNEL, InnerLoop(address, 0), layout=layout, count=2, picks=picks)
    function = partial(pick, op.locate, axis=axis, keepdims=keepdims)
    return Computation(words.CALLED, function=_of_arrays(function), count=2, picks=picks)


def _quiet(function: Any) -> Any:
    def run(*operands: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*operands)

    return run


def _of_arrays(function: Any) -> Any:
    return lambda *operands: function(*map(np.asarray, operands))


def _array(function: Any) -> Any:
    return lambda *operands: np.asarray(function(*operands))
