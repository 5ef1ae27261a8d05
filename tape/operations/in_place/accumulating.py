"""Adding to a part of a tensor in place: nothing is overwritten, so the gradient buffer keeps its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.foundation.recent_table import Recent
from kernels.instructions.form import Form
from kernels.native.pool.pool_structs import LARGE
from kernels.native.tape_structs import VIEW
from kernels.ops.registry import OPS
from tape.operations import writes
from tape.recording.views import clone
from tape.tensors import modes, view_families
from tape.tensors.tensor import Tensor, as_array
from tape.tensors.view_families import base_of

_ADD: Any = OPS["index_put_"]


def accumulate(x: Tensor, value: Any) -> Tensor:
    """Add a value of the same dtype, checked by :func:`fitting`, to a tensor whose memory other tensors may share."""
    if writes.meets(x, value):
        value = clone(value)
    tape = writes.wanted(x, value)
    writes.notify_overwrite(x, value)
    writes.protect(x)
    array = as_array(x)
    np.add(array, value._value if isinstance(value, Tensor) else value, out=array)
    view_families.counter_of(x)[0] += 1
    if tape is not None:
        writes.record(x, value, tape, _ADD)
        whole = base_of(x).spec
        if isinstance(value, Tensor) and view_families.is_view(x) and whole.bytes < LARGE:
            key = (x._form.spec, whole, value.spec, value._slot is None)
            _added[key] = base_of(x)._form  # type: ignore[assignment]
    writes.notify_written(_ADD, x, value, ())
    return x


def add_again(x: Tensor, value: Any) -> bool:
    """Add to a part as an earlier call did on tensors of the same specs; False where there is more to do."""
    tape = modes.active()
    if not tape or type(value) is not Tensor:
        return False
    if tape.given_arrays:
        writes.release_elements(base_of(x), x)
    slot, source = x._slot, value._slot
    if type(slot) is not int or x._form.kind != VIEW:  # type: ignore[union-attr]
        return False
    base, new = x._base, value._value
    before = base._slot
    form = _added.get((x._form.spec, base._form.spec, value._form.spec, source is None))
    if form is None or type(before) is not int:
        return False
    if type(new) is not float and new.base is not None and np.may_share_memory(x._value, new):  # type: ignore[union-attr]
        return False
    writes.protect(x)
    array: Any = x._value  # not before: protect counts the references to it
    np.add(array, new, array)
    view_families.counter_of(base)[0] += 1
    view_families.record(tape, base, form, (before, source), (x._offset,))
    view_families.outdate(base)
    return True


_added: Recent[Any, Form] = Recent()
"""Forms of additions to parts of tensors, by the specs of the part, of its base and of what was added."""
