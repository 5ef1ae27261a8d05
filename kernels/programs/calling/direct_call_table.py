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
from kernels.native.pool.pool_structs import LARGE
from kernels.native.registry import REGISTRY
from kernels.native.tape_structs import RegistryTable
from kernels.programs.calling.direct_call_structs import (
    D_ENTRY,
    DK_ARRAY,
    DK_DOUBLE,
    DK_INTEGER,
    DK_SINGLE,
    DirectArgument,
    DirectCall,
    DirectResult,
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
        words[DirectCall.chosen], words[DirectCall.steps] = where(shapes), at if self.form.steps else 0
        at += 8 * len(self.form.steps)
        for k, spec in enumerate(specs):
            entry, ndim = [0] * D_ENTRY, len(spec.shape)
            kind = DK_ARRAY if ndim else KINDS.get(spec.dtype, DK_ARRAY)
            if k < count:
                entry[DirectArgument.kind], entry[DirectArgument.dtype], entry[DirectArgument.ndim] = (
                    kind,
                    id(spec.dtype),
                    ndim,
                )
                entry[DirectArgument.shape], entry[DirectArgument.strides], entry[DirectArgument.scratch] = (
                    at,
                    at + 8 * ndim,
                    scratch + 8 * k,
                )
            else:
                kinds.append(DK_ARRAY if kind == DK_INTEGER else kind)
                (
                    entry[DirectResult.kind],
                    entry[DirectResult.ndim],
                    entry[DirectResult.shape],
                    entry[DirectResult.number],
                ) = kinds[-1], ndim, at, spec.dtype.num
                entry[DirectResult.large] = words[DirectCall.large] and size(spec) >= LARGE
                entry[DirectResult.scratch] = scratch + 8 * k
            words, at = words + entry, at + 16 * ndim
        words[DirectCall.arrays], words[DirectCall.left_out] = kinds.count(DK_ARRAY), self.form.leaves_out(kinds)
        return np.array(words, np.int64), shapes

    def _head(self) -> list[int]:
        code, results, form = self.code, [*self.code.outputs, *self.code.gradients], self.form
        head = [0] * DirectCall.SIZE
        head[DirectCall.busy], head[DirectCall.arguments], head[DirectCall.results] = (
            where(self.busy),
            len(code.arguments),
            len(results),
        )
        head[DirectCall.form], head[DirectCall.alone], head[DirectCall.count] = form.kind, form.alone, len(form.chosen)
        head[DirectCall.run], head[DirectCall.table] = code.address, where(self.places)
        head[DirectCall.places] = len(code.arguments) + len(code.constants)
        head[DirectCall.releases] = code.elements >= LONG
        head[DirectCall.float_type], head[DirectCall.double_type], head[DirectCall.single_type] = (
            id(float),
            id(np.float64),
            id(np.float32),
        )
        head[DirectCall.array_type] = id(np.ndarray)
        head[DirectCall.int_type] = 0 if self.exactly else id(int)
        head[DirectCall.new_array] = numpy_api.table()[numpy_api.NEW]
        if any(size(spec) >= LARGE for spec in results):
            head[DirectCall.pooled] = _pooled()
            head[DirectCall.large] = head[DirectCall.pooled] != 0
        return head


@functools.cache
def _pooled() -> int:
    """Return the address of what makes an array in memory that is used again; 0 if there is no such memory."""
    reused_arrays.call(int)
    return ctypes.c_int64.from_address(REGISTRY.address + 8 * RegistryTable.pooled).value
