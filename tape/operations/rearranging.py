"""Dims and elements in another order, and parts as views; NumPy's functions of these names too."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from kernels.operations import OPS
from tape.operations.elementwise import array_like
from tape.recording import indexed_calls, promotion, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also, dim_of, dims_of, ints_of, with_axis, with_name
from tape.recording.views import VIEWS
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, method

_FLIP: Any = OPS["flip"]
_PAIR = 2


def flipped(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return a copy with the order reversed along these axes."""
    return promotion.cast(_reversed(x, dims), x.spec.dtype, _FLIP) if dims else views.clone(x)


@cached_call()
def _reversed(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return a view with the order reversed along these axes, as NumPy's functions do."""
    rank = len(x.spec.shape)
    return record.view(views.VIEWS["reversed"], x, (tuple(d - rank for d in dims),))


@public()
def flip(input: Any, *at: Any, dims: Any = None) -> Tensor:
    """Return a copy with the order of elements reversed along ``dims``: ``input.flip(0, 1)`` or ``input.flip((0, 1))``.

    >>> tape.flip(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 0, 1).tolist()
    [[4.0, 3.0], [2.0, 1.0]]
    """
    input, wanted = tensor_of(input), ints_of(at if dims is None else (dims,))
    return flipped(input, dims_of(input, wanted) if wanted else ())


@public()
def fliplr(input: Any) -> Tensor:
    """Return a copy with the columns in reversed order.

    >>> tape.fliplr(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[2.0, 1.0], [4.0, 3.0]]
    """
    input = tensor_of(input)
    if len(input.spec.shape) < _PAIR:
        raise RuntimeError(f"fliplr: Input must be >= 2-d, got shape {list(input.spec.shape)}")
    return flipped(input, (1,))


@public()
def flipud(input: Any) -> Tensor:
    """Return a copy with the rows in reversed order.

    >>> tape.flipud(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    input = tensor_of(input)
    if not input.spec.shape:
        raise RuntimeError("flipud: Input must be >= 1-d, got a 0-d tensor")
    return flipped(input, (0,))


@public()
def roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    """Return a copy with the elements shifted along ``dims``; what leaves at the end comes in at the front.

    Without ``dims`` the tensor is rolled as if it were flat. RuntimeError unless there are as many shifts as dims.

    >>> tape.roll(tape.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    input, steps = tensor_of(input), ints_of((shifts,))
    axes = () if dims is None else tuple(dim_of(input, d) for d in ints_of((dims,)))
    if dims is None and len(steps) == 1:
        return views.shaped(_rolled(views.reshape(input, -1), steps, (0,)), input.spec.shape)
    if len(steps) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(steps)}, dims:{len(axes)}")
    if axes and not input.spec.shape:
        raise IndexError(f"roll: Dimension specified as {axes[0]} but tensor has no dimensions")
    return _rolled(input, steps, axes)


def _rolled(x: Tensor, steps: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    result = x
    for step, axis in zip(steps, axes, strict=True):
        n = x.spec.shape[axis]
        at = -step % n if n else 0
        if at:
            result = views.cat([part(result, axis, at, n), part(result, axis, 0, at)], axis)
    return views.clone(x) if result is x else result


@cached_call()
def part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """Return a view of a range along an axis, which lies within the tensor."""
    key = (*(slice(None),) * axis, slice(start, stop), Ellipsis)
    return record.view(views.VIEWS["slice"], x, (key,), ("part", axis, start, stop))


@public()
def rot90(input: Any, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Return a copy turned by ``k`` quarters in the plane of two dims, from the first towards the second.

    >>> tape.rot90(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    return _quarters(tensor_of(input), k, ints_of((dims,)), flipped)


def _quarters(x: Tensor, k: int, plane: tuple[int, ...], flip: Callable[..., Tensor]) -> Tensor:
    if len(plane) != _PAIR:
        raise RuntimeError(f"rot90: expected total rotation dims == 2, but got dims = {len(plane)}")
    if len(x.spec.shape) < _PAIR:
        raise RuntimeError(f"rot90: expected total dims >= 2, but got total dims = {len(x.spec.shape)}")
    a, b = (dim_of(x, d) for d in plane)
    if a == b:
        raise RuntimeError(
            f"rot90: expected rotation dims to be different, but got dim0 = {plane[0]} and dim1 = {plane[1]}"
        )
    if k % 4 == 0:
        return flip(x, ())
    if k % 4 == _PAIR:
        return flip(x, (a, b))
    return flip(views.transpose(x, a, b), (a if k % 4 == 1 else b,))


@public("moveaxis")
@cached_call()
def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Return a view with dims ``source`` at the places ``destination``; the others keep their order.

    >>> tape.movedim(tape.zeros(2, 3, 4), 0, -1).shape
    tape.Size([3, 4, 2])
    """
    input = tensor_of(input)
    moves = (ints_of((source,)), ints_of((destination,)))
    if len(moves[0]) != len(moves[1]):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(moves[0])} dims) should contain the same "
            f"number of dims as destination ({list(moves[1])} dims)"
        )
    sides = [tuple(dim_of(input, d) for d in dims) for dims in moves]
    for name, dims in zip(("source", "destination"), sides, strict=True):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    order = [d for d in range(len(input.spec.shape)) if d not in sides[0]]
    for to, dim in sorted(zip(sides[1], sides[0], strict=True)):
        order.insert(to, dim)
    return views.permute(input, tuple(order) if input.spec.shape else ())


@public()
@cached_call()
def swapaxes(input: Any, axis0: int, axis1: int) -> Tensor:
    """Return a view with two dims exchanged.

    >>> tape.swapaxes(tape.zeros(2, 3, 4), 0, 2).shape
    tape.Size([4, 3, 2])
    """
    return views.transpose(tensor_of(input), axis0, axis1)


@public()
@cached_call()
def swapdims(input: Any, dim0: int, dim1: int) -> Tensor:
    """Return a view with two dims exchanged.

    >>> tape.swapdims(tape.zeros(2, 3, 4), 0, 2).shape
    tape.Size([4, 3, 2])
    """
    return views.transpose(tensor_of(input), dim0, dim1)


@public()
def adjoint(input: Any) -> Tensor:
    """Return a view with the last two dims exchanged.

    >>> tape.adjoint(tape.zeros(4, 2, 3)).shape
    tape.Size([4, 3, 2])
    """
    return _turned(tensor_of(input), "adjoint()")


def _turned(x: Tensor, name: str) -> Tensor:
    rank = len(x.spec.shape)
    if rank == 1:
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor; use x[:, None]"
        )
    return views.transpose(x, -2, -1) if rank else x


def _matrices_turned(x: Tensor) -> Tensor:
    """The tensor with its last two dims exchanged, a view."""
    return _turned(x, "mT")


def _matrix_turned(x: Tensor) -> Tensor:
    """The matrix transposed, a view."""
    rank = len(x.spec.shape)
    if rank not in (0, _PAIR):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {rank}-D tensor; use x.mT")
    return _turned(x, "H")


method("mT")(property(_matrices_turned))
method("mH")(property(_matrices_turned))
method("H")(property(_matrix_turned))


@implements(np.flip, records="reversed")
def _flip(m: Any, axis: Any = None) -> Tensor:
    x = array_like(m)
    rank = len(x.spec.shape)
    return _reversed(x, tuple(range(rank)) if axis is None else normalize_axis_tuple(axis, rank))


@implements(np.fliplr)
def _fliplr(m: Any) -> Tensor:
    x = tensor_of(m)
    if len(x.spec.shape) < _PAIR:
        raise ValueError("Input must be >= 2-d.")
    return _reversed(x, (1,))


@implements(np.flipud)
def _flipud(m: Any) -> Tensor:
    x = tensor_of(m)
    if not x.spec.shape:
        raise ValueError("Input must be >= 1-d.")
    return _reversed(x, (0,))


@implements(np.roll)
def _roll(a: Any, shift: Any, axis: Any = None) -> Tensor:
    x = tensor_of(a)
    steps, axes = np.broadcast_arrays(shift, 0 if axis is None else axis)
    if axis is None:
        return roll(x, int(steps.sum()))
    places = tuple(dim_of(x, int(d)) for d in axes.reshape(-1))
    total = {d: sum(int(s) for s, e in zip(steps.reshape(-1), places, strict=True) if e == d) for d in places}
    return _rolled(x, tuple(total.values()), tuple(total))


implements(np.rot90)(lambda m, k=1, axes=(0, 1): _quarters(tensor_of(m), k, ints_of((tuple(axes),)), _reversed))
implements(np.moveaxis)(lambda a, source, destination: movedim(a, source, destination))  # noqa: PLW0108 (NumPy's names)


@implements(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    x = tensor_of(a)
    at = dim_of(x, axis)
    before = dim_of(x, start, extra=1)
    return movedim(x, at, before - (at < before))


implements(np.swapaxes, records="transpose")(lambda a, axis1, axis2: swapaxes(a, axis1, axis2))  # noqa: PLW0108 (NumPy's names)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def _matrix_transpose(x: Any, /) -> Tensor:
    x = tensor_of(x)
    if len(x.spec.shape) < _PAIR:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {len(x.spec.shape)}")
    return _turned(x, "mT")


def _centre(function: Any, sign: int) -> None:
    """Serve NumPy's fftshift, or its inverse: the halves of dims exchanged."""

    def shift(x: Any, axes: Any = None) -> Tensor:
        x = array_like(x)
        rank = len(x.spec.shape)
        dims = tuple(range(rank)) if axes is None else normalize_axis_tuple(axes, rank, allow_duplicate=True)
        return _roll(x, tuple(sign * (x.spec.shape[d] // 2) for d in dims), dims)

    implements(function)(shift)


_centre(np.fft.fftshift, 1)
_centre(np.fft.ifftshift, -1)


_PLACES = also(indices="indices_or_sections", sections="indices_or_sections")


@public()
@cached_call()
def narrow(input: Any, dim: int, start: Any, length: int) -> Tensor:
    """Return a view of ``length`` places along ``dim``, from ``start`` on, which may be a 0-d integer tensor.

    >>> tape.narrow(tape.arange(5), 0, 1, 3).tolist()
    [1, 2, 3]
    """
    input = tensor_of(input)
    if not input.spec.shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    axis, first, count = dim_of(input, dim), operator.index(start), operator.index(length)
    n = input.spec.shape[axis]
    if count < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {count}.")
    if not -n <= first <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {first})")
    first += n if first < 0 else 0
    if first + count > n:
        raise RuntimeError(f"narrow(): start ({first}) + length ({count}) exceeds dimension size ({n}).")
    return part(input, axis, first, first + count)


@public()
@cached_call()
def select(input: Any, dim: int, index: Any) -> Tensor:
    """Return a view of the place ``index`` along ``dim``, which goes.

    >>> tape.select(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, 0).tolist()
    [1.0, 3.0]
    """
    input = tensor_of(input)
    if not input.spec.shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    axis, at = dim_of(input, dim), operator.index(index)
    n = input.spec.shape[axis]
    if not -n <= at < n:
        raise IndexError(
            f"select(): index {at} out of range for tensor of size {list(input.spec.shape)} at dimension {axis}"
        )
    return _place(input, axis, at % n, "select")


@cached_call()
def _unbound(x: Tensor, axis: int, at: int) -> Tensor:
    return _place(x, axis, at, "unbind")


def _place(x: Tensor, axis: int, at: int, name: str) -> Tensor:
    key = (*(slice(None),) * axis, at, Ellipsis)
    return record.view(VIEWS[name], x, (key,), ("place", axis, at))


@public()
@with_axis
def unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of all places along ``dim``, the first by default, which goes.

    >>> [column.tolist() for column in tape.unbind(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 1)]
    [[1.0, 3.0], [2.0, 4.0]]
    """
    input = tensor_of(input)
    if not input.spec.shape:
        raise IndexError("unbind: Dimension specified as 0 but tensor has no dimensions")
    along = dim_of(input, dim)
    return tuple([_unbound(input, along, k) for k in range(input.spec.shape[along])])


@public()
@also(split_size="split_size_or_sections")
def split(input: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of ranges along ``dim``: of one length, the last of which may be shorter, or of lengths given.

    >>> [part.tolist() for part in tape.split(tape.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    input = tensor_of(input)
    if isinstance(split_size_or_sections, (tuple, list)):
        return split_with_sizes(input, split_size_or_sections, dim)
    axis, n = _extent(input, dim, "split")
    length = operator.index(split_size_or_sections)
    if length < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={length}")
    if length == 0 and n:
        raise RuntimeError(f"split: split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
    return _ranges(input, axis, [*range(0, n, length)][1:] if length else ())


@public()
def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of ranges of these lengths along ``dim``; they add up to its length.

    >>> [part.tolist() for part in tape.split_with_sizes(tape.arange(5), (1, 4))]
    [[0], [1, 2, 3, 4]]
    """
    input, sizes = tensor_of(input), ints_of((split_sizes,))
    axis, n = _extent(input, dim, "split_with_sizes")
    if min(sizes, default=0) < 0:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {axis}), "
            f"but got split_sizes={list(sizes)}"
        )
    ends = np.cumsum(sizes).tolist()
    return tuple(part(input, axis, end - size, end) for end, size in zip(ends, sizes, strict=True))


@public()
def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return at most ``chunks`` views of ranges of one length along ``dim``; the last may be shorter.

    >>> [part.tolist() for part in tape.chunk(tape.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    input = tensor_of(input)
    axis, n = _extent(input, dim, "chunk")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return split(input, -(-n // chunks), axis) if n else tuple(part(input, axis, 0, 0) for _ in range(chunks))


@public()
@_PLACES
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of ranges along ``dim``: so many, of nearly one length, or cut at these places.

    >>> [part.tolist() for part in tape.tensor_split(tape.arange(5), (1, 3))]
    [[0], [1, 2], [3, 4]]
    """
    input = tensor_of(input)
    axis, n = _extent(input, dim, "tensor_split")
    sections = indices_or_sections
    if isinstance(sections, Tensor):
        sections = indexed_calls.integers(sections, "tensor_split").tolist()
    if isinstance(sections, (tuple, list)):
        return _ranges(input, axis, ints_of((sections,)))
    count = operator.index(sections)
    if count <= 0:
        raise RuntimeError(f"tensor_split: number of sections must be larger than 0, got {count}")
    length, more = divmod(n, count)
    return _ranges(input, axis, [k * length + min(k, more) for k in range(1, count)])


def _ranges(x: Tensor, axis: int, cuts: Sequence[int]) -> tuple[Tensor, ...]:
    n = x.spec.shape[axis]
    ranges = []
    for start, stop in zip((0, *cuts), (*cuts, n), strict=True):
        first, last, _ = slice(start, stop).indices(n)
        ranges.append(part(x, axis, first, max(first, last)))
    return tuple(ranges)


def _extent(x: Tensor, dim: int, name: str) -> tuple[int, int]:
    if not x.spec.shape:
        raise RuntimeError(f"{name} expects at least a 1-dimensional tensor")
    axis = dim_of(x, dim)
    return axis, x.spec.shape[axis]


def _named(name: str, axis: int, least: int) -> Any:
    where, shape, shapes = _ALONG[name]
    doc = f"""Return views of equal ranges along {where}, or of ranges cut at these places.

    >>> [list(part.shape) for part in tape.{name}(tape.zeros{shape}, 2)]
    {shapes}
    """

    @public()
    @_PLACES
    @with_name(name, doc)
    def along(input: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
        input = tensor_of(input)
        rank = len(input.spec.shape)
        if rank < least:
            raise RuntimeError(
                f"{name} requires a tensor with at least {least} dimension, but got a tensor with {rank} dimensions!"
            )
        at = 0 if rank == 1 else axis
        n, sections = input.spec.shape[at], indices_or_sections
        if not isinstance(sections, (tuple, list)) and (sections <= 0 or n % sections):
            raise RuntimeError(
                f"{name} attempted to split along dimension {at}, but the size of the dimension {n} is not divisible "
                f"by the split_size {sections}!"
            )
        return tensor_split(input, sections, at)

    return along


_ALONG = {  # where they split; the shape of an example, and those of its two parts
    "hsplit": ("the columns, or along a vector", (3, 4), [[3, 2], [3, 2]]),
    "vsplit": ("the rows", (4, 3), [[2, 3], [2, 3]]),
    "dsplit": ("the third dim", (2, 3, 4), [[2, 3, 2], [2, 3, 2]]),
}
hsplit, vsplit, dsplit = _named("hsplit", 1, 1), _named("vsplit", 0, 2), _named("dsplit", 2, 3)


@method()
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return a view of all windows of ``size`` along a dim, ``step`` apart; they stand along a new last dim.

    The windows may overlap: what is read has its gradients added up, and writing through them raises.

    >>> tape.arange(5).unfold(0, 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    axis, shape = dim_of(x, dimension), x.spec.shape
    n = shape[axis] if shape else 1
    if size < 0:
        raise RuntimeError(f"unfold: size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"unfold: maximum size for tensor at dimension {axis} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"unfold: step is {step} but must be > 0")
    if not shape:
        return part(record.view(VIEWS["unsqueeze"], x, ((1,),)), 0, 0, size)
    return record.view(VIEWS["unfold"], x, ((axis - len(shape), size, step),))


@implements(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    sections = indices_or_sections
    if not isinstance(sections, (int, np.integer)):
        sections = indexed_calls.integers(sections, "np.array_split").tolist()
    elif sections <= 0:
        raise ValueError("number sections must be larger than 0.")
    return list(tensor_split(ary, sections, axis))


@implements(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    x, sections = tensor_of(ary), indices_or_sections
    if isinstance(sections, (int, np.integer)) and sections > 0 and x.spec.shape[dim_of(x, axis)] % sections:
        raise ValueError(f"array split does not result in an equal division: shape {list(x.spec.shape)} by {sections}")
    return _array_split(x, sections, axis)


@implements(np.hsplit)
def _hsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    x = tensor_of(ary)
    if not x.spec.shape:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return _split(x, indices_or_sections, min(len(x.spec.shape) - 1, 1))


def _split_along(axis: int, numpys: Any, least: int) -> None:
    @implements(numpys)
    def split(ary: Any, indices_or_sections: Any) -> list[Tensor]:
        x = tensor_of(ary)
        if len(x.spec.shape) < least:
            raise ValueError(f"{numpys.__name__} only works on arrays of {least} or more dimensions")
        return _split(x, indices_or_sections, axis)


_split_along(0, np.vsplit, 2)
_split_along(2, np.dsplit, 3)


implements(np.unstack)(lambda x, /, *, axis=0: unbind(x, axis))
