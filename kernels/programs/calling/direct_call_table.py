"""What native code calls a compiled program by: the words that direct_calls_native.py reads."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from kernels.foundation.data_classes import dataclass
from kernels.native import numpy_api
from kernels.native.memory import where
from kernels.native.pool import reused_arrays
from kernels.native.registry import REGISTRY
from kernels.native.words import G_POOLED
from kernels.programs.calling.direct_call_words import (
    D_ALONE,
    D_ARGUMENTS,
    D_ARRAY,
    D_ARRAYS,
    D_BUSY,
    D_CHOSEN,
    D_COUNT,
    D_DOUBLE,
    D_ENTRY,
    D_FIRST,
    D_FLOAT,
    D_FLOAT32,
    D_FORM,
    D_INT,
    D_LARGE,
    D_LEFT_OUT,
    D_NEW,
    D_PLACES,
    D_POOLED,
    D_RELEASES,
    D_RESULTS,
    D_RUN,
    D_STEPS,
    D_TABLE,
    DI_DTYPE,
    DI_KIND,
    DI_NDIM,
    DI_SCRATCH,
    DI_SHAPE,
    DI_STRIDES,
    DK_ARRAY,
    DK_DOUBLE,
    DK_INTEGER,
    DK_SINGLE,
    DR_KIND,
    DR_LARGE,
    DR_NDIM,
    DR_NUMBER,
    DR_SCRATCH,
    DR_SHAPE,
)
from kernels.programs.calling.returned_form import Form
from kernels.programs.calling.workspace import size
from kernels.programs.compiler.compiled_code import CompiledCode

Array = np.ndarray[Any, Any]
LONG = 10_000
"""Elements that a program computes, from which on other threads may run Python meanwhile: some ten microseconds."""
KINDS = {np.dtype("f8"): DK_DOUBLE, np.dtype("f4"): DK_SINGLE, np.dtype("i8"): DK_INTEGER}


@dataclass(frozen=True)
class CallTable:
    """The table of one caller of a program: what the words are made of, all of which they refer to by address.

    ``places`` is the program's table, ``scratch`` has a word for each argument and result, ``busy`` says whether the
    workspace is in use.
    """

    code: CompiledCode
    form: Form
    exactly: bool
    places: Array
    scratch: Array
    busy: Array

    def words(self) -> tuple[Array, Array]:
        """Return the words, and an array of shapes that they refer to."""
        code, scratch = self.code, where(self.scratch)
        specs, count = [*code.arguments, *code.outputs, *code.gradients], len(code.arguments)
        extents = [n for spec in specs for n in (*spec.shape, *spec.strides)]
        numbers = [*self.form.chosen, *self.form.steps, *extents, 0]
        shapes = np.array(numbers, np.int64)
        words, kinds, at = self._head(), list[int](), where(shapes) + 8 * len(self.form.chosen)
        words[D_CHOSEN], words[D_STEPS] = where(shapes), at if self.form.steps else 0
        at += 8 * len(self.form.steps)
        for k, spec in enumerate(specs):
            entry, ndim = [0] * D_ENTRY, len(spec.shape)
            kind = DK_ARRAY if ndim else KINDS.get(spec.dtype, DK_ARRAY)
            if k < count:
                entry[DI_KIND], entry[DI_DTYPE], entry[DI_NDIM] = kind, id(spec.dtype), ndim
                entry[DI_SHAPE], entry[DI_STRIDES], entry[DI_SCRATCH] = at, at + 8 * ndim, scratch + 8 * k
            else:
                kinds.append(DK_ARRAY if kind == DK_INTEGER else kind)
                entry[DR_KIND], entry[DR_NDIM], entry[DR_SHAPE], entry[DR_NUMBER] = kinds[-1], ndim, at, spec.dtype.num
                entry[DR_LARGE] = words[D_LARGE] and size(spec) >= reused_arrays.LARGE
                entry[DR_SCRATCH] = scratch + 8 * k
            words, at = words + entry, at + 16 * ndim
        words[D_ARRAYS], words[D_LEFT_OUT] = kinds.count(DK_ARRAY), self.form.leaves_out(kinds)
        return np.array(words, np.int64), shapes

    def _head(self) -> list[int]:
        code, results, form = self.code, [*self.code.outputs, *self.code.gradients], self.form
        head = [0] * D_FIRST
        head[D_BUSY], head[D_ARGUMENTS], head[D_RESULTS] = where(self.busy), len(code.arguments), len(results)
        head[D_FORM], head[D_ALONE], head[D_COUNT] = form.kind, form.alone, len(form.chosen)
        head[D_RUN], head[D_TABLE] = code.address, where(self.places)
        head[D_PLACES] = len(code.arguments) + len(code.constants)
        head[D_RELEASES] = code.elements >= LONG
        head[D_FLOAT], head[D_DOUBLE], head[D_FLOAT32] = id(float), id(np.float64), id(np.float32)
        head[D_ARRAY] = id(np.ndarray)
        head[D_INT] = 0 if self.exactly else id(int)
        head[D_NEW] = numpy_api.table()[numpy_api.NEW]
        if any(size(spec) >= reused_arrays.LARGE for spec in results):
            head[D_POOLED] = _pooled()
            head[D_LARGE] = head[D_POOLED] != 0
        return head


@functools.cache
def _pooled() -> int:
    """Return the address of what makes an array in memory that is used again; 0 if there is no such memory."""
    reused_arrays.call(int)
    return ctypes.c_int64.from_address(REGISTRY.address + 8 * G_POOLED).value
