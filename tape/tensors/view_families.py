"""Families: a base tensor and its views, which share one gradient buffer; and what a write does to them.

A write gives the base a new version, with a new slot. Views of the version before are then stale: at its next use a
stale view is recorded again, as a view of the current version. Families that share memory, as by ``detach()``, have
one list of views, each of which knows its base.
"""

from __future__ import annotations

from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from kernels.calls.object_types import native_or, same_layout
from kernels.foundation.specs import Spec, spec_of
from kernels.foundation.tables import Recent
from kernels.kinds.form import Descriptor, Form
from kernels.kinds.reference_tape import expose, exposed_roots
from kernels.native.structs import LARGE, TAPE_BITS
from kernels.operations import OPS
from tape.tensors import grad_modes, modes
from tape.tensors.tapes import Tape, every, living
from tape.tensors.tensor import Array, Slot, Tensor, as_array, make_extras, read_extras

_AS_STRIDED: Any = OPS["as_strided"]
_FEW = 32
_forms: Recent[tuple[Spec, Spec], Form] = Recent()


@same_layout
class Stale(Tensor):
    """The state of a view whose base was written since: it has no slot, and is renewed when somebody reads that.

    A state told by the class costs nothing where slots are read: :func:`_make_stale` enters it, reading ``_slot``
    leaves it.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name != "_slot":
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        self.__class__ = Tensor  # type: ignore[assignment]
        rebase_view(self)
        return self._slot


def _make_stale(view: Tensor) -> None:
    """Take a view's slot away, until :class:`Stale` gives it another."""
    if read_extras(view).retains:
        forget(view)
    del view._slot
    view.__class__ = Stale


def is_view(x: Tensor) -> bool:
    """Whether a tensor is a view of another, its base."""
    form = x._form
    return type(form) is Form and form.is_view


def is_element(x: Tensor) -> bool:
    """Whether a tensor is a view of one element by an index that gives a scalar in NumPy."""
    form: Any = x._form
    return is_view(x) and form.op.element and not form.spec.shape


def is_scalar(x: Tensor) -> bool:
    """Whether NumPy would give a tensor as a scalar: it has no dims, and is no view of NumPy's, as ``x[0, ...]`` is."""
    return not x._form.spec.shape and (not is_view(x) or is_element(x))


def base_of(x: Tensor) -> Tensor:
    """Return the tensor whose family this one belongs to: its base, or itself."""
    form = x._form
    return x._base if type(form) is Form and form.is_view else x


def join(base: Tensor, view: Tensor) -> None:
    """Register a view with its base, so that a write can make it stale; also of a leaf, which may cease to be one."""
    views = views_of(base)
    views.append(ref(view))
    count = len(views)
    if count > _FEW and count & (count - 1) == 0:  # at powers of two: forget the dead; threads may be adding more
        views[:count] = [reference for reference in views[:count] if reference() is not None]


def views_of(base: Tensor) -> list[ReferenceType[Tensor]]:
    """Return the list of a base's views, which families that share memory have in common."""
    if not hasattr(base, "_views"):
        base._views = []
    return base._views


def forget(x: Tensor) -> None:
    """Remove a tensor from those whose gradients its tape retains."""
    slot = x._slot
    if type(slot) is int and (tape := living.get(slot >> TAPE_BITS)) is not None and tape.retained:
        tape.retained.pop(id(x), None)


def move(x: Tensor, slot: Slot, form: Descriptor) -> None:
    """Give a tensor another slot and form. Besides :func:`record`, nothing else changes the slot of a tensor."""
    forget(x)
    x._slot, x._form = slot, form
    remember(x)


def record(tape: Tape, x: Tensor, form: Form, operands: tuple[Any, ...], saved: tuple[Any, ...] = ()) -> None:
    """Append the instruction of a tensor's new version; its tape retains its gradient under the new slot."""
    is_kept = read_extras(x).retains or x._form.spec.bytes >= LARGE
    if is_kept:
        forget(x)
    tape.record(x, form.code, operands, saved)
    if is_kept:
        remember(x)


def remember(x: Tensor) -> None:
    """Register a tensor that has got a slot: the bytes of a large one, and its retained gradient, if it wants that."""
    size = x._form.spec.bytes
    if size >= LARGE:
        x._bytes = size
    if read_extras(x).retains:
        tape = living.get(x._slot >> TAPE_BITS) if type(x._slot) is int else None
        if tape is not None:
            tape.retain(x)


def invalidate_views(base: Tensor) -> None:
    """Make the views of a base stale: it has a new version."""
    views, others = getattr(base, "_views", None), []
    if not views:
        return
    for reference in views:
        view = reference()
        if view is not None and type(view) is Tensor and is_view(view):  # some have become leaves
            if view._base is base:
                _make_stale(view)
            else:
                others.append(reference)
    views[:] = others


def rebase_view(view: Tensor) -> None:
    """Record a stale view as a view of its base's current version; in any gradient mode, since the base is recorded."""
    base = view._base
    if base._slot is None:
        view._slot = None
    else:
        front = _fronts[id(base)]() if id(base) in _fronts else None
        source = base if front is None or front is view else front
        tape, key = modes.own_tape(), (source.spec, view.spec)
        form = _forms.get(key)
        if form is None:
            form = _forms.setdefault(key, _AS_STRIDED.form(key[:1], key[1]))
        tape.record(view, form.code, (source._slot,), (view._offset,))
        remember(view)
    join(base, view)


def set_rebase_source(view: Tensor) -> None:
    """Let stale views of this tensor's base, which only its views hold, be renewed as views of this tensor."""
    key = id(view._base)  # which lives as long as its views
    _fronts[key] = ref(view, lambda _: _fronts.pop(key, None))


_fronts: dict[int, ReferenceType[Tensor]] = {}


def has_views(base: Tensor, but: Any = None) -> bool:
    """Whether a base has living views of its current version, but for one."""
    views = (reference() for reference in reversed(getattr(base, "_views", None) or ()))
    return any(view is not None and view is not but and is_view(view) and view._base is base for view in views)


def elements_of(base: Tensor, but: Tensor) -> list[Tensor]:
    """Return the living elements, but for one, of a base's current version, and of families that share its memory."""
    views = getattr(base, "_views", None) or ()
    return [x for at in views if (x := at()) is not None and x is not but and type(x) is Tensor and is_element(x)]


def owns_memory_alone(x: Tensor) -> bool:
    """Whether no other tensor, and no array of the user's, shares this one's memory; saved values may."""
    return not is_view(x) and not hasattr(x, "_views") and not hasattr(x, "_shared")


def counter_of(x: Tensor) -> list[int]:
    """Return the count of writes to a tensor's memory, which its family and detached tensors share."""
    form = x._form
    extras = make_extras(x._base if type(form) is Form and form.is_view else x)
    if extras.counter is None:
        extras.counter = [0]
    return extras.counter


def start_family(x: Tensor, *, moved: bool = False) -> None:
    """Make a tensor the base of its own family, leaving the one that it was a view in; its memory counts as shared.

    ``moved``: it has other memory now, which its former views do not share.
    """
    if is_view(x) or hasattr(x, "_views"):
        make_extras(x).counter = counter_of(x)
    if is_view(x) or moved:
        x._views = [] if moved else views_of(x._base)
    x._form = grad_modes.alike(spec_of(x._value), x.spec)
    mark_aliased(x)


def mark_aliased(x: Tensor, source: Tensor | None = None) -> Tensor:
    """Mark a tensor as sharing its memory outside of its family, that of ``source`` if given; return it."""
    x._shared = True
    if source is not None:
        x._views = views_of(base_of(mark_aliased(source)))
    return x


def mark_exported_to_numpy(x: Tensor, holder: Any = None) -> Tensor:
    """Mark a tensor's memory as shared with NumPy arrays of the user's, as long as ``holder`` lives; return the tensor.

    What pullbacks need of that memory is copied, now and when they are recorded.
    """
    array = as_array(x)
    if expose(array, holder):
        protect(array)
    x._shared = True
    return x


def handed_out(x: Tensor) -> Array:
    """Return a tensor's memory as an array for the user; see :func:`shown`."""
    array = np.asarray(memoryview(as_array(x)))  # type: ignore[arg-type]
    mark_exported_to_numpy(x, array.base)
    return array


shown = native_or("shown", lambda _: None)
"""Return the same of a tensor that has its memory for itself, and is part of no graph; None of others."""


def protect(array: Array) -> None:
    """Copy what pullbacks still need of memory that is about to be written, or that others may write from now on."""
    for tape in every():
        if tape.entries:
            with tape.reading():
                tape.saved_values.protect(array)


def is_shown(array: Array) -> bool:
    """Whether NumPy arrays of the user's may share the memory of an array."""
    return any(np.may_share_memory(array, root) for root in exposed_roots())
