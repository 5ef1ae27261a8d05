"""Methods that turn a tensor itself into a view of its memory: ``transpose_``, ``squeeze_``, ``detach_`` and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape.conversions import attributes
from tape.conversions.creation import sizes_of
from tape.foundation.memory_formats import check_format
from tape.foundation.size import Size
from tape.operations import writes
from tape.operations.parameters import as_method, parameters_like, printed
from tape.operations.shapes import rearranging
from tape.recording import record
from tape.recording import views as shaping
from tape.recording.arguments import either
from tape.tensors import modes, view_families
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, make_extras, method, new


def _base_for(x: Tensor) -> Tensor:
    """Return a view's base; for a base itself a new tensor of its memory, which becomes the base of the family."""
    if view_families.is_view(x):
        return x._base
    counter, views = view_families.counter_of(x), view_families.views_of(x)
    base = new(Tensor)
    base._value, base._form, base._slot, base._views = as_array(x), x._form, x._slot, views
    make_extras(base).counter = counter
    if hasattr(x, "_shared"):
        base._shared = True
    for member in [view for view in (reference() for reference in views) if view is not None]:
        if view_families.is_view(member) and member._base is x:
            member._base = base
    del x._views
    return base


def _become(x: Tensor, name: str, view: Callable[[], Tensor]) -> Tensor:
    """Turn a tensor into a view of its former self; return it."""
    writes.check(x, name)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.becomes_view(x, name)
    if type(x._slot) is AccumulateGrad:  # under no_grad
        attributes.set_data(x, view())
        return x
    made = view()
    if made is not x:
        base = _base_for(x)
        x._value, x._offset, x._base = made._value, made._offset, base
        view_families.move(x, made._slot, made._form)
        view_families.join(base, x)
        if recorder is not None:
            recorder.taken(x, made)
    view_families.counter_of(x)[0] += 1
    return x


def _install(name: str, function: Callable[..., Tensor], doc: str) -> None:
    body = f"return become({{first}}, {name!r}, lambda: function({{all}}))"
    turned = printed(name, parameters_like(function), body, become=_become, function=function)
    turned.__doc__ = f"{doc} RuntimeError for a leaf that requires grad."
    method(name)(as_method(turned))


def _squeezed(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    dims = either("dim", dim, "axis", axis, None)
    return shaping.squeeze(input) if dims is None else shaping.squeeze(input, dims)


for _exchange in (shaping.transpose, rearranging.swapaxes, rearranging.swapdims):  # their parameters' names differ
    _install(f"{_exchange.__name__}_", _exchange, "Exchange two dims of this tensor; return it.")
_install("t_", shaping.t, "Transpose this matrix; return it.")
_install("squeeze_", _squeezed, "Take dims of length one from this tensor, or one of them; return it.")
_install("unsqueeze_", shaping.unsqueeze, "Insert a dim of length one into this tensor; return it.")
_install("as_strided_", shaping.as_strided, "Let this tensor show its memory by size and stride; return it.")


@method()
def detach_(x: Tensor) -> Tensor:
    """Cut this tensor off its history; return it. RuntimeError for a view: use ``detach()``.

    What has been computed from it keeps its gradients.
    """
    if view_families.is_view(x):
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    if (recorder := modes.current().recorder) is not None:
        recorder.note_unrecorded(x, "detach_")
    if record.leaf_of(x):
        attributes.requires_grad_(x, requires_grad=False)
        return x
    counter = view_families.counter_of(x)
    x._views = _base_for(x)._views
    view_families.move(x, None, x.spec)
    view_families.start_family(x)
    make_extras(x).counter = counter
    return x


@method()
def resize_(x: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Give this tensor another shape; return it. Elements stay in their order; new ones are zeros.

    RuntimeError if it requires grad.
    """
    if memory_format is not None:
        check_format("resize_", memory_format)
    if x._slot is not None:
        raise RuntimeError("cannot resize variables that require grad")
    shape = sizes_of("resize_", sizes, size)
    if shape == x.spec.shape:
        return x
    flat, size = np.ascontiguousarray(as_array(x)).reshape(-1), int(np.prod(shape, dtype=np.int64))
    kept = flat[:size] if size <= flat.size else np.concatenate([flat, np.zeros(size - flat.size, flat.dtype)])
    attributes.set_data(x, constant_tensor(kept.reshape(shape)))
    return x


@method()
def resize_as_(x: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """Give this tensor the shape of another; see :meth:`resize_`."""
    return resize_(x, size=the_template.spec.shape, memory_format=memory_format)


@method("new")
def new_(x: Tensor, *args: Any) -> Tensor:
    """Return a tensor of this dtype: of these sizes, not set, or of a list's, an array's or a tensor's elements."""
    dtype = x.spec.dtype
    if all(isinstance(arg, int) for arg in args) or (len(args) == 1 and isinstance(args[0], Size)):
        sizes = args[0] if args and isinstance(args[0], Size) else args
        return constant_tensor(record.unset(sizes or (0,), dtype))
    if len(args) != 1:
        raise TypeError("new() takes sizes, or one list, array or tensor")
    data = args[0]._value if isinstance(args[0], Tensor) else args[0]
    return constant_tensor(np.array(data, dtype=dtype))


new_.__name__ = new_.__qualname__ = "new"
