"""Calls in the table that join tensors (kernels/native/calls/joining_native.py)."""

from __future__ import annotations

import numpy as np

from kernels.arrays import numpy_loops
from kernels.call_cache.entries import Entry, Key, Notification
from kernels.codegen.tasks import UfuncCall, nest_layout
from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Descriptor, Form
from kernels.native.call_structs import BY_ARRAYS, JOINED, CallEntry
from kernels.native.calls.computation import Computation
from kernels.native.memory import where


@dataclass(frozen=True)
class Joined:
    """A tensor that is joined: its form, whether it is wanted, where it begins in the result, and its strides there."""

    form: Descriptor
    wanted: bool
    start: int
    strides: tuple[int, ...]


def enter(op: int, dim: int, joined: list[Joined], form: Descriptor, notification: Notification) -> None:
    """Let native code repeat a join of tensors along a dim."""
    spec, forms, wanted = form.spec, [tensor.form for tensor in joined], [tensor.wanted for tensor in joined]
    index = np.array([len(forms), dim, *[id(f) + want for f, want in zip(forms, wanted, strict=True)]], np.int64)
    hashed = jit.load_module("native.calls.joining_native").hash_words(where(index))
    entry = Entry(Key(op, (forms[0],), (any(wanted),), hashed), form)
    entry.forms += forms[1:]
    entry[CallEntry.second] = BY_ARRAYS
    loop = numpy_loops.find(np.positive, (spec.dtype, spec.dtype))
    layout = []
    for tensor in joined:
        source = tensor.form.spec
        nest = nest_layout(UfuncCall(loop, source.shape, (source.strides, tensor.strides), ()))
        entry.kept.append(nest)
        layout += [where(nest), tensor.start]
    entry.computes(Computation(JOINED, loop, layout=np.array(layout, np.int64)))
    entry.shapes(spec)
    entry.notifies(notification)
    entry.sizes(max(spec.bytes, *[f.spec.bytes for f in forms]), spec.bytes)
    entry.keep(CallEntry.key, index, where(index))
    if any(wanted) and isinstance(form, Form):
        entry.records(form)
    entry.write()
