"""Operations in other forms: in place, and views as copies."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.native.structs import AUGMENTED, MOST_OPERANDS, SCATTERS, WRITES
from kernels.operations import OPS
from tape.errors import shorten
from tape.operations import diagonals, indexing, rearranging, reductions, writes
from tape.operations.elementwise import RUN, filled
from tape.operations.gather import picked_along
from tape.recording import foreign_calls, indexed_calls, views
from tape.recording.cached_calls import cached_call, number_of_op
from tape.recording.indexed_calls import by_items, scatter_call
from tape.recording.parameters import dim_of, in_place_of, ints_of, names_of, parameters_like, printed, with_name
from tape.tensors import grad_modes, view_families
from tape.tensors.hooks import implements, public
from tape.tensors.operands import Number, beside, check_broadcast, is_mask, operand, tensor_of
from tape.tensors.tensor import Tensor, attribute, constant_tensor, method, read_extras

# In-place operations: each is its out-of-place record, followed by a write.

_INPLACE = {
    "+": "iadd", "-": "isub", "*": "imul", "/": "itruediv", "**": "ipow", "&": "iand", "|": "ior", "^": "ixor",
    "<<": "ilshift", ">>": "irshift", "//": "ifloordiv", "%": "imod",
}  # fmt: skip


def _writing(op: Elementwise, name: str) -> Callable[..., Tensor]:
    """Return a function that runs an operation and writes the result to its first operand."""

    def run(x: Tensor, *others: Any) -> Tensor:
        try:
            writes.check(x, name, reads=True)
            return writes.store(x, RUN[op.name](x, *others), name, fresh=not op.identity)
        except Exception as error:
            shorten(error)
            raise

    return _adding(op, run, name) if op.operator == "+" and name == "+=" else run


def _in_place(op: Elementwise, name: str) -> Callable[..., Tensor]:
    adds = op.scaled and op.operator == "+"
    in_place: Callable[..., Tensor] = in_place_of(op, name, _writing(op, "+=" if adds else name))
    in_place.__doc__ = f"{op.doc[:-1]}, in place{'; ``alpha`` multiplies the second' if op.scaled else ''}."
    return in_place


def _adding(op: Elementwise, in_place: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Add in place to memory that other tensors share: the gradient buffer keeps its gradient."""

    def add(x: Tensor, other: Any) -> Tensor:
        if writes.add_again(x, other):
            return x
        if view_families.owns_memory_alone(x) or type(x._value) is float:
            return in_place(x, other)  # type: ignore[no-any-return]
        writes.check(x, name, reads=True)
        spec = x.spec
        if x._slot is not None and view_families.base_of(x)._slot is None:  # a view of what was a leaf
            return in_place(x, other)  # type: ignore[no-any-return]
        value = operand(beside(other, spec.dtype))
        if spec.dtype.kind != "f" or (isinstance(value, Tensor) and value.spec.dtype != spec.dtype):
            return in_place(x, other)  # type: ignore[no-any-return]
        check_broadcast(op.name, (x, value))
        return writes.accumulate(x, writes.value_to_write(value, spec.shape, spec.dtype, name))

    return add


def _augmented(op: Elementwise) -> Callable[..., Any]:
    write = _writing(op, f"{op.operator}=")

    @with_name(f"__{_INPLACE[op.operator]}__", f"{op.doc[:-1]}, in place.")
    def augmented(x: Tensor, other: Any) -> Any:
        try:
            return RUN[op.name](x, other) if writes.is_value(x) else write(x, other)
        except Exception as error:
            shorten(error)
            raise

    return augmented


def _cached(op: Elementwise, in_place: Callable[..., Any], augmented: int = 0) -> Callable[..., Any]:
    """Return a method that does an operation in place, which native code repeats with the calls of that operation."""
    if op.identity or len(op.inputs) > MOST_OPERANDS:
        return in_place
    return cached_call(None, marks=WRITES | augmented, number=number_of_op(op))(in_place)


for _op in list(OPS.values()):
    if isinstance(_op, Elementwise) and names_of(_op) and len(_op.inputs) <= 2:  # noqa: PLR2004
        for _name in names_of(_op):
            method(f"{_name}_")(_cached(_op, _in_place(_op, f"{_name}_")))
        if _op.operator in _INPLACE and len(_op.inputs) == 2:  # noqa: PLR2004
            method(f"__{_INPLACE[_op.operator]}__")(_cached(_op, _augmented(_op), AUGMENTED))


@method()
def copy_(x: Tensor, other: Any) -> Tensor:
    """Copy values, broadcast, into this tensor."""
    if not isinstance(other, (Tensor, np.ndarray, Number, np.generic)):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
    writes.check(x, "copy_")
    return writes.store(x, other, "copy_", casts=True)


@method()
def fill_(x: Tensor, value: Any) -> Tensor:
    """Fill with one number, or with a 0-d tensor."""
    writes.check(x, "fill_")
    value = operand(beside(value, x.spec.dtype))
    if isinstance(value, Tensor) and value.spec.shape:
        rank = len(value.spec.shape)
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {rank} dimensions.")
    return writes.store(x, value, "fill_", casts=True)


@method()
def zero_(x: Tensor) -> Tensor:
    """Fill with zeros."""
    writes.check(x, "zero_")
    return writes.store(x, 0, "zero_", casts=True)


@method()
def masked_fill_(x: Tensor, mask: Any, value: Any) -> Tensor:
    """Fill where a bool mask, broadcast to this shape, holds with one number, or with a 0-d tensor."""
    writes.check(x, "masked_fill_", reads=True)
    mask = operand(mask)
    if not is_mask(mask):
        dtype = mask.spec.dtype.name if isinstance(mask, Tensor) else type(mask).__name__
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {dtype}")
    check_broadcast("masked_fill_", (x, mask))
    writes.value_to_write(mask, x.spec.shape, np.dtype(np.bool_), "masked_fill_")
    value = operand(beside(value, x.spec.dtype))
    if isinstance(value, Tensor) and value.spec.shape:
        rank = len(value.spec.shape)
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {rank} dimension(s)."
        )
    return writes.store(x, filled(x, mask, value), "masked_fill_", fresh=True)


@public()
def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor.

    >>> x = tape.tensor([1.0, -2.0, 3.0])
    >>> tape.masked_fill(x, x < 0, 0.0).tolist()
    [1.0, 0.0, 3.0]
    """
    input = tensor_of(input)
    return filled(input, mask, operand(beside(value, input.spec.dtype)))


@method()
def index_put_(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to the elements that index tensors pick, the last one for each; with ``accumulate`` add them."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError("index_put_: indices is a tuple of tensors, one for each of the first dims")
    return _added_at(x, *indices, values) if accumulate else _put_at(x, *indices, values)


@cached_call(scatter_call(by_items), marks=SCATTERS)
def _put_at(x: Tensor, *items: Any) -> Tensor:
    indexing.assign_at(x, items[:-1], items[-1], "index_put_", item=False)
    return x


@cached_call(scatter_call(by_items, adds=True), marks=SCATTERS)
def _added_at(x: Tensor, *items: Any) -> Tensor:
    indexing.assign_at(x, items[:-1], items[-1], "index_put_", adds=True, item=False)
    return x


@attribute
def _version(x: Tensor) -> int:
    """How often the memory has been written in place."""
    grad_modes.check_counted(x)
    return sum(read_extras(view_families.base_of(x)).counter or ())


# Copies of what views show, repeats and broadcasts: tile, repeat, expand, PyTorch's ``_copy`` functions.


@public("alias_copy", methods=False)
def detach_copy(input: Any) -> Tensor:
    """Return a copy of a tensor. As in PyTorch it has a gradient, unlike what ``detach`` gives.

    >>> tape.detach_copy(tape.ones(2)).tolist()
    [1.0, 1.0]
    """
    return views.clone(tensor_of(input))


def _slice(input: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    x = tensor_of(input)
    return indexing.index(x, (slice(None),) * dim_of(x, dim) + (slice(start, end, step),))


def _copies(view: Any) -> Any:
    return tuple(map(views.clone, view)) if isinstance(view, tuple) else views.clone(view)


_VIEWS: dict[str, tuple[Any, str, str]] = {  # how each is called with PyTorch's arguments; an example of its copy
    "view_copy": (lambda input, size: views.view(tensor_of(input), size), "(tape.arange(2), (2, 1))", "[[0], [1]]"),
    "expand_copy": (lambda input, size: views.expand(tensor_of(input), size), "(tape.ones(1), (1, 1))", "[[1.0]]"),
    "permute_copy": (lambda input, dims: views.permute(tensor_of(input), dims), "(tape.eye(1), (1, 0))", "[[1.0]]"),
    "transpose_copy": (rearranging.swapdims, "(tape.ones(1, 2), 0, 1)", "[[1.0], [1.0]]"),
    "t_copy": (lambda input: views.t(tensor_of(input)), "(tape.ones(1, 2))", "[[1.0], [1.0]]"),
    "squeeze_copy": (lambda input, dim=None: views.squeeze(tensor_of(input), dim), "(tape.ones(1, 2))", "[1.0, 1.0]"),
    "unsqueeze_copy": (lambda input, dim: views.unsqueeze(tensor_of(input), dim), "(tape.ones(2), 0)", "[[1.0, 1.0]]"),
    "diagonal_copy": (diagonals.diagonal, "(tape.eye(2))", "[1.0, 1.0]"),
    "select_copy": (rearranging.select, "(tape.eye(2), 0, 1)", "[0.0, 1.0]"),
    "narrow_copy": (rearranging.narrow, "(tape.arange(4), 0, 1, 2)", "[1, 2]"),
    "as_strided_copy": (
        lambda input, size, stride, storage_offset=0: views.as_strided(tensor_of(input), size, stride, storage_offset),
        "(tape.arange(4), (2,), (2,))",
        "[0, 2]",
    ),
    "unfold_copy": (
        lambda input, dimension, size, step: rearranging.unfold(tensor_of(input), dimension, size, step),
        "(tape.arange(3), 0, 2, 1)",
        "[[0, 1], [1, 2]]",
    ),
    "slice_copy": (_slice, "(tape.arange(5), 0, 1, None, 2)", "[1, 3]"),
    "unbind_copy": (lambda input, dim=0: rearranging.unbind(input, dim), "(tape.eye(2))[1]", "[0.0, 1.0]"),
    "split_copy": (
        lambda input, split_size, dim=0: rearranging.split(input, split_size, dim), "(tape.arange(3), 2)[1]", "[2]",
    ),
    "split_with_sizes_copy": (rearranging.split_with_sizes, "(tape.arange(3), [1, 2])[1]", "[1, 2]"),
}  # fmt: skip
for _name, (_view, _call, _value) in _VIEWS.items():
    _parameters = [p.replace(annotation="Any") if p.annotation is p.empty else p for p in parameters_like(_view)]
    _known = {"copies": _copies, "shown": _view, "__name__": __name__}
    _copy = printed(_name, _parameters, "return copies(shown({all}))", **_known)
    _of_parts = _name in ("unbind_copy", "split_copy", "split_with_sizes_copy")
    _copy.__annotations__["return"] = "tuple[Tensor, ...]" if _of_parts else "Tensor"
    _copy.__doc__ = f"""Return {"copies" if _of_parts else "a copy"} of what ``{_name.removesuffix("_copy")}`` gives.

    >>> tape.{_name}{_call}.tolist()
    {_value}
    """
    public(methods=_name == "narrow_copy")(_copy)


@method()
def repeat(x: Tensor, *counts: Any, repeats: Any = None) -> Tensor:
    """Return the tensor so many times along each dim; there may be more dims than it has.

    >>> tape.tensor([1.0, 2.0]).repeat(2, 2).tolist()
    [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    counts, shape = ints_of(counts if repeats is None else (repeats,)), x.spec.shape
    lead = len(counts) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"repeat: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor; "
            f"got repeats {list(counts)} for shape {list(shape)}"
        )
    full = tuple([n * m for n, m in zip(counts, (1,) * lead + shape, strict=True)])
    if min(counts, default=0) < 0:
        raise RuntimeError(f"repeat: Trying to create tensor with negative dimension {min(full)}: {list(full)}")
    apart = tuple([e for n in (1,) * lead + shape for e in (1, n)])
    wide = tuple([e for n, m in zip(counts, (1,) * lead + shape, strict=True) for e in (n, m)])
    return views.repeated(views.clone(views.expand(views.reshape(x, apart), wide)), full)


@public()
def tile(input: Any, *counts: Any, dims: Any = None) -> Tensor:
    """Return the tensor so many times along each dim; the last dims where fewer are given than it has.

    >>> tape.tile(tape.tensor([1.0, 2.0]), (2,))
    tensor([1., 2., 1., 2.])
    """
    input, counts = tensor_of(input), ints_of(counts if dims is None else (dims,))
    return repeat(input, (1,) * (len(input.spec.shape) - len(counts)) + counts)


@public()
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Return each place along ``dim``, or each element of the flat tensor, ``repeats`` times in a row.

    ``repeats`` is an int, or an integer tensor with one count for each place. Of counts alone: the place that each of
    the results comes from.

    >>> tape.repeat_interleave(tape.tensor([1.0, 2.0]), tape.tensor([1, 2]))
    tensor([1., 2., 2.])
    """
    if repeats is None:
        counts = _counts(input, "repeat_interleave")
        return constant_tensor(np.repeat(np.arange(len(counts)), counts))
    input = tensor_of(input)
    if dim is None:
        input, dim = views.reshape(input, -1), 0
    axis = dim_of(input, dim)
    input = input if input.spec.shape else views.reshape(input, 1)
    count = repeats if isinstance(repeats, int) else _counts(repeats, "repeat_interleave")
    n = input.spec.shape[axis]
    if not isinstance(count, int) and count.ndim and len(count) not in (1, n):
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {len(count)} and "
            f"input.size({axis}) = {n}"
        )
    if np.min(count, initial=0) < 0:
        raise RuntimeError("repeat_interleave: repeats can not be negative")
    result = _repeated(input, axis, count)
    if output_size is not None and output_size != result.spec.shape[axis]:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {result.spec.shape[axis]} but got {output_size}"
        )
    return result


def _counts(repeats: Any, name: str) -> Any:
    counts = indexed_calls.integers(repeats, name)
    if counts.ndim > 1:
        raise RuntimeError(f"{name}: repeats must be 0-dim or 1-dim tensor, got shape {list(counts.shape)}")
    return counts


def _repeated(x: Tensor, axis: int, count: Any) -> Tensor:
    shape = x.spec.shape
    if np.size(count) == 1:
        times = operator.index(np.reshape(count, ())[()])
        apart = views.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        wide = views.clone(views.expand(apart, (*shape[: axis + 1], times, *shape[axis + 1 :])))
        return views.reshape(wide, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))
    return picked_along(x, axis, np.repeat(np.arange(shape[axis]), count))


@implements(np.repeat)
def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    x = tensor_of(a)
    x, at = (x if x.spec.shape and axis is not None else views.reshape(x, -1)), 0 if axis is None else dim_of(x, axis)
    counts = repeats if isinstance(repeats, int) else indexed_calls.integers(repeats, "np.repeat", TypeError)
    if np.min(counts, initial=0) < 0:
        raise ValueError("repeats may not contain negative values.")
    if np.ndim(counts) and np.size(counts) not in (1, x.spec.shape[at]):
        raise ValueError(
            f"operands could not be broadcast together with shape ({x.spec.shape[at]},) ({np.size(counts)},)"
        )
    return _repeated(x, at, counts)


implements(np.tile)(lambda A, reps: tile(A, ints_of((list(reps) if isinstance(reps, np.ndarray) else reps,))))  # noqa: N803


@implements(np.resize)
def _resize(a: Any, new_shape: Any) -> Tensor:
    x, shape = tensor_of(a), ints_of((new_shape,))
    if min(shape, default=0) < 0:
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat, size = views.reshape(x, -1), int(np.prod(shape))
    if not x.spec.size:
        return constant_tensor(np.zeros(shape, x.spec.dtype))
    return views.reshape(picked_along(flat, 0, np.arange(size) % x.spec.size), shape)


_MATRIX, _BOX = 2, 3


@public()
def broadcast_to(input: Any, size: Any) -> Tensor:
    """Return a view of a larger shape, in which dims of length one are repeated.

    >>> tape.broadcast_to(tape.tensor([1.0, 2.0]), (2, 2)).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return views.expand(tensor_of(input), ints_of((size,)))


@public(methods=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Return views of the shape that the tensors have together. RuntimeError where their shapes do not fit.

    >>> [x.shape for x in tape.broadcast_tensors(tape.ones(3, 1), tape.ones(4))]
    [tape.Size([3, 4]), tape.Size([3, 4])]
    """
    operands = tuple(map(tensor_of, tensors[0] if len(tensors) == 1 and _several(tensors[0]) else tensors))
    check_broadcast("broadcast_tensors", operands)
    shape = np.broadcast_shapes(*(x.spec.shape for x in operands))
    return tuple(x if x.spec.shape == shape else views.expand(x, shape) for x in operands)


def _several(x: Any) -> bool:
    return isinstance(x, (tuple, list))


@method()
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """Return a view of the shape of another tensor, in which dims of length one are repeated.

    >>> tape.ones(1, 2).expand_as(tape.zeros(3, 2)).shape
    tape.Size([3, 2])
    """
    return views.expand(x, other.spec.shape)


@method()
def view_as(x: Tensor, other: Tensor) -> Tensor:
    """Return a view of the shape of another tensor, which has as many elements.

    >>> tape.arange(4).view_as(tape.ones(2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    return views.view(x, other.spec.shape)


@method()
def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """Return the tensor in the shape of another: a view where strides allow one, else a copy.

    >>> tape.arange(4).reshape_as(tape.ones(2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    return views.reshape(x, other.spec.shape)


@method()
def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """Return the sum over the dims in which a tensor of this size would be broadcast to the shape of x.

    >>> tape.ones(3, 2).sum_to_size(1, 2)
    tensor([[3., 3.]])
    """
    shape, wanted = x.spec.shape, ints_of(size)
    lead = len(shape) - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, shape[lead:], strict=True)):
        raise RuntimeError(f"sum_to_size: size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    dims = tuple(range(lead)) + tuple(lead + k for k, n in enumerate(wanted) if n != shape[lead + k])
    return views.reshape(reductions.sum(x, dims, keepdim=True), wanted) if dims else x


@public()
def unflatten(input: Any, dim: int, sizes: Any) -> Tensor:
    """Return a view with one dim taken apart into dims of these sizes; one of them may be -1.

    >>> tape.unflatten(tape.ones(6, 2), 0, (3, -1)).shape
    tape.Size([3, 2, 2])
    """
    input = tensor_of(input)
    at, parts = dim_of(input, dim), list(ints_of((sizes,)))
    n = input.spec.shape[at] if input.spec.shape else 1
    if not parts:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if parts.count(-1) > 1:
        raise RuntimeError(f"unflatten: only one dimension can be inferred, got sizes {parts}")
    rest = math.prod(p for p in parts if p != -1)
    if -1 in parts and rest > 0 and n % rest == 0:
        parts[parts.index(-1)] = n // rest
    if -1 in parts or math.prod(parts) != n:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(ints_of((sizes,)))} don't multiply up to the size of dim {at} ({n}) in "
            "the input tensor"
        )
    return views.reshape(input, *input.spec.shape[:at], *parts, *input.spec.shape[at + 1 :])


def _at_least(rank: int) -> Any:
    name = f"atleast_{rank}d"
    doc = f"""Return a tensor, or each of several, as a view with at least {rank} dims.

    >>> tape.{name}(tape.tensor(5.0)).shape
    tape.Size({[1] * rank})
    """

    @public(methods=False)
    @implements(getattr(np, name))
    @with_name(name, doc)
    def atleast(*tensors: Any) -> Any:
        foreign_calls.refuse_result(tensors[0] if tensors else None)
        listed = len(tensors) == 1 and _several(tensors[0])
        results = tuple(of_rank(tensor_of(x), rank) for x in (tensors[0] if listed else tensors))
        return results if listed or len(results) != 1 else results[0]

    return atleast


def of_rank(x: Tensor, rank: int) -> Tensor:
    """Return a tensor with at least 1, 2 or 3 dims: a vector becomes a row, and a matrix gets a last dim."""
    shape = x.spec.shape
    if len(shape) >= rank:
        return x
    if rank == _BOX and len(shape) == _MATRIX:
        return views.reshape(x, (*shape, 1))
    wide = {1: (1,), _MATRIX: (1, *shape), _BOX: (1, *shape, 1)}[rank]
    return views.reshape(x, wide if shape else (1,) * rank)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, _MATRIX, _BOX))


@implements(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    del subok
    shape = np.broadcast_shapes(*(x.spec.shape if isinstance(x, Tensor) else np.shape(x) for x in args))
    return tuple([views.expand(x, shape) if isinstance(x, Tensor) else np.broadcast_to(x, shape) for x in args])
