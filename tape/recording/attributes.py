"""Attributes of tensors: shape, dtype, device, requires_grad, data; and conversions to other dtypes."""

from __future__ import annotations

from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from kernels.foundation.specs import spec_of
from kernels.kinds.form import Form
from kernels.operations import OPS
from tape import errors
from tape.recording import promotion, record
from tape.recording.cached_calls import by_alias, cached_call
from tape.recording.creation import by_type
from tape.recording.parameters import with_name
from tape.recording.views import clone
from tape.tensors import dtypes, grad_modes, hooks, modes, view_families
from tape.tensors.dtypes import Size, check_device, check_format, check_gradient, dtype_of, get_default_dtype
from tape.tensors.printing import format_tensor
from tape.tensors.tensor import (
    AccumulateGrad,
    Tensor,
    as_array,
    attribute,
    constant_tensor,
    make_extras,
    method,
    read_extras,
)

_ALIAS = OPS["alias"]


@attribute
def shape(x: Tensor) -> Size:
    """The extents of the dims."""
    return Size(x.spec.shape)


@attribute
def dtype(x: Tensor) -> np.dtype[Any]:
    """The dtype of the elements, a NumPy dtype."""
    return x.spec.dtype


@attribute
def ndim(x: Tensor) -> int:
    """The number of dims."""
    return len(x.spec.shape)


@attribute
def device(x: Tensor) -> dtypes.device:
    """Always "cpu"."""
    del x
    return dtypes.device()


@attribute
def layout(x: Tensor) -> Any:
    """Always ``tape.strided``."""
    del x
    return dtypes.strided


def size(x: Tensor, dim: int | None = None) -> Any:
    """Return the shape, or the extent of one dim."""
    return Size(x.spec.shape) if dim is None else x.spec.shape[_dim_of(x, dim)]


def _dim_of(x: Tensor, dim: int) -> int:
    rank = len(x.spec.shape)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            if rank
            else f"Dimension specified as {dim} but tensor has no dimensions"
        )
    return dim


@method()
def dim(x: Tensor) -> int:
    """Return the number of dims."""
    return len(x.spec.shape)


@method()
def numel(x: Tensor) -> int:
    """Return the number of elements."""
    return x.spec.size


method("nelement")(numel)


@method()
def stride(x: Tensor, dim: int | None = None) -> Any:
    """Return the strides in elements."""
    strides = tuple(s // x.spec.dtype.itemsize for s in x.spec.strides)
    return strides if dim is None else strides[_dim_of(x, dim)]


@method()
def is_contiguous(x: Tensor, memory_format: Any = None) -> bool:
    """Return whether the memory is C-contiguous."""
    if memory_format is not None:
        check_format("is_contiguous", memory_format)
    value = x._value
    return type(value) is float or bool(value.flags.c_contiguous)  # type: ignore[union-attr]


@method()
def is_floating_point(x: Tensor) -> bool:
    """Return whether the dtype is floating."""
    return x.spec.dtype.kind == "f"


@attribute
def is_leaf(x: Tensor) -> bool:
    """Whether the user made it, or it has no history."""
    return record.leaf_of(x)


def _requires_grad(x: Tensor) -> bool:
    """Whether operations on it are recorded. Settable on leaves."""
    return x._slot is not None


def _set_requires_grad(x: Tensor, value: bool) -> None:
    if not record.leaf_of(x):
        if value:
            return
        raise RuntimeError(
            "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
            "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
        )
    if value and x.spec.dtype.kind != "f":
        raise RuntimeError(errors.NO_GRADIENTS.format(x.spec.dtype.name))
    if value:
        check_gradient(x.spec.dtype)
    if not value and type(x._slot) is AccumulateGrad:
        leaf = x._slot
        view_families.start_family(x)
        view_families.move(x, None, x._form)
        extras = make_extras(x)
        extras.leaf, extras.grad = leaf, leaf.grad
        leaf.grad, leaf.owner = None, _NOBODY  # backwards of what was computed from it give it no gradient meanwhile
    elif value and x._slot is None:
        grad_modes.check_requires_grad(x)
        view_families.start_family(x)
        view_families.move(x, _leaf_of(x), x._form)
        modes.note_leaf(x)


_NOBODY: ReferenceType[Any] = ref(set())


def _leaf_of(x: Tensor) -> AccumulateGrad:
    """Return a new leaf slot, or the one that the tensor had before: with its hooks and its gradient."""
    leaf, spec = read_extras(x).leaf, spec_of(x._value)
    if leaf is None or leaf.spec is not spec:
        leaf = AccumulateGrad()
        leaf.spec = spec
    leaf.grad, leaf.owner = read_extras(x).grad, ref(x)
    return leaf


method("requires_grad")(property(_requires_grad, _set_requires_grad))


@method()
def requires_grad_(x: Tensor, requires_grad: bool = True) -> Tensor:
    """Change whether operations on this leaf are recorded; return it."""
    _set_requires_grad(x, requires_grad)
    return x


@method()
@cached_call(by_alias)
def detach(x: Tensor) -> Tensor:
    """Return a tensor of the same memory, without history; what is a value, as NumPy's scalars, is copied."""
    if modes.given_arrays() and view_families.is_element(x):
        x = clone(x)
    result = _data(x)
    make_extras(result).counter = view_families.counter_of(x)
    return result


def _data(x: Tensor) -> Tensor:
    """The same memory as a tensor without history, whose writes are counted apart."""
    result = view_families.mark_aliased(constant_tensor(as_array(x)), x)
    result._form = grad_modes.alike(result.spec, x.spec)
    record.notify_observers(_ALIAS, (x,), result, ((Ellipsis,),))
    return result


def set_data(x: Tensor, other: Tensor) -> None:
    """Let a tensor without history have another's memory: of another shape or dtype, too."""
    if not isinstance(other, Tensor):
        raise TypeError(f"data is set to a Tensor, not a {type(other).__name__}")
    if not record.leaf_of(x):
        raise NotImplementedError("data of a computed tensor cannot be set; use copy_ under no_grad")
    if x._slot is not None and other.spec.dtype.kind != "f":
        raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
    if (recorder := modes.current().recorder) is not None:
        recorder.replaces(x, other)
    alike = other.spec.shape == x.spec.shape and other.spec.dtype == x.spec.dtype
    x._value = as_array(other)
    if not alike and type(x._form) is not Form:
        x._form = spec_of(x._value)
    view_families.start_family(x, moved=True)
    view_families.mark_aliased(x, other)
    if type(x._slot) is AccumulateGrad:
        if alike:
            x._slot.spec = x.spec
        else:
            x._slot = _renewed(x._slot, x)


def _renewed(old: AccumulateGrad, x: Tensor) -> AccumulateGrad:
    leaf = AccumulateGrad()
    leaf.spec, leaf.grad, leaf.owner = spec_of(x._value), old.grad, ref(x)
    if (old_hooks := hooks.existing(old)) is not None:
        hooks.of_leaf(leaf).take(old_hooks)
        old.hooks = hooks.LeafHooks(old.spec)
    hooks.RemovableHandle(hooks.of_leaf(old).tensor, _misled)
    return leaf


def _misled(gradient: Tensor) -> None:
    raise RuntimeError(
        f"a gradient of shape {list(gradient.spec.shape)} has come to a leaf whose data has got another shape or dtype "
        "since: run backward before setting data"
    )


def _no_data(_: Tensor) -> None:
    raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")


method("data")(property(_data, set_data, _no_data))


@method("__len__")
def length(x: Tensor) -> int:
    """Return the extent of the first dim."""
    if not x.spec.shape:
        raise TypeError("len() of a 0-d tensor")
    return x.spec.shape[0]


@method()
def to(
    x: Tensor, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return the tensor with another dtype, or itself; the only device is "cpu".

    Positional arguments are a dtype, a device or a tensor of the dtype wanted, in any order; behind them
    ``non_blocking``, which changes nothing, and ``copy``.
    """
    del non_blocking
    flags = []
    for value in args:
        if isinstance(value, Tensor):
            dtype = value.spec.dtype
        elif isinstance(value, str) and value.partition(":")[0] in ("cpu", "cuda", "mps", "xpu", "meta"):
            device = value
        elif isinstance(value, (bool, np.bool_)):
            flags.append(value)
        elif value is not None:
            dtype = value
    if len(flags) > 1:
        copy = bool(flags[1])
    check_device(device)
    if memory_format is not None:
        check_format("to", memory_format)
    wanted = x.spec.dtype if dtype is None else dtype_of(dtype)
    if wanted == x.spec.dtype:
        return clone(x) if copy else x
    return promotion.cast(x, wanted)


def _converter(name: str, dtype: Any) -> None:
    @method(name)
    @with_name(name, f"Return the tensor as {dtype_of(dtype).name}.")
    def convert(x: Tensor, memory_format: Any = None) -> Tensor:
        return to(x, dtype=dtype, memory_format=memory_format)


for _name, _dtype in (
    ("float", np.float32),
    ("double", np.float64),
    ("half", np.float16),
    ("long", np.int64),
    ("int", np.int32),
    ("bool", np.bool_),
    ("byte", np.uint8),
    ("char", np.int8),
    ("short", np.int16),
):
    _converter(_name, _dtype)


@method()
def cpu(x: Tensor, memory_format: Any = None) -> Tensor:
    """Return the tensor itself."""
    if memory_format is not None:
        check_format("cpu", memory_format)
    return x


@method()
def cuda(x: Tensor, device: Any = "cuda", non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """Raise RuntimeError: the only device is "cpu"."""
    del non_blocking, memory_format
    check_device("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)
    return x


@method("__repr__")
def representation(x: Tensor) -> str:
    """Print as PyTorch does."""
    record.note_text(x)
    name = x._form.name if isinstance(x._form, Form) and not record.leaf_of(x) else ""
    suffix = f"grad_fn=<{name}>" if name else "requires_grad=True" if x._slot is not None else ""
    return format_tensor(np.asarray(x._value), suffix=suffix, default_dtype=get_default_dtype())


_DTYPES = {
    "DoubleTensor": np.float64, "FloatTensor": np.float32, "LongTensor": np.int64, "IntTensor": np.int32,
    "ShortTensor": np.int16, "CharTensor": np.int8, "ByteTensor": np.uint8, "BoolTensor": np.bool_,
}  # fmt: skip


class _TensorType(type):
    """A type whose instances are the tensors of one dtype, and that makes them."""

    dtype: np.dtype[Any]

    def __call__(cls, *args: Any) -> Tensor:
        """Return zeros of a shape given by numbers, or a copy of a sequence, an array or a tensor."""
        return by_type(cls.dtype, args)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x.spec.dtype == cls.dtype


def _made(name: str, dtype: Any) -> _TensorType:
    doc = f"Tensors of {dtype_of(dtype).name}: ``{name}(2, 3)`` makes zeros, ``{name}([1, 2])`` holds the numbers."
    return _TensorType(name, (), {"dtype": dtype_of(dtype), "__doc__": doc, "__module__": __name__})


TYPES = {name: _made(name, dtype) for name, dtype in _DTYPES.items()}
DoubleTensor, FloatTensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, BoolTensor = TYPES.values()
_NAMES = {kind.dtype: f"torch.{name}" for name, kind in TYPES.items()}


@method("type")
@with_name("type")
def type_of(x: Tensor, dtype: Any = None) -> Any:
    """Return the name of the type, "torch.DoubleTensor", or the tensor with another dtype, type or name of one."""
    if dtype is None:
        return _NAMES.get(x.spec.dtype, f"torch.{x.spec.dtype.name}")
    if isinstance(dtype, str) and dtype.startswith("torch."):
        dtype = TYPES.get(dtype.removeprefix("torch."), dtype)
    return to(x, dtype=dtype.dtype if isinstance(dtype, _TensorType) else dtype)


__all__ = [
    "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "IntTensor", "LongTensor", "ShortTensor",
]  # fmt: skip
