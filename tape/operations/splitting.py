"""Parts of a tensor as views: along a dim at a place, in ranges, one by one, and in windows; NumPy's splits too."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tape.operations.rearranging import part
from tape.recording import pick_calls, record
from tape.recording.arguments import dim_of, either, ints_of
from tape.recording.parameters import also
from tape.recording.views import VIEWS
from tape.repeated_calls.call_table import viewing
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, method

_PLACES = also(indices="indices_or_sections", sections="indices_or_sections")


@public()
@viewing("narrow")
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
@viewing("select")
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


@viewing("unbind")
def _unbound(x: Tensor, axis: int, at: int) -> Tensor:
    return _place(x, axis, at, "unbind")


def _place(x: Tensor, axis: int, at: int, name: str) -> Tensor:
    key = (*(slice(None),) * axis, at, Ellipsis)
    return record.view(VIEWS[name], x, (key,), ("place", axis, at))


@public()
def unbind(input: Any, dim: Any = None, *, axis: Any = None) -> tuple[Tensor, ...]:
    """Return views of all places along ``dim``, the first by default, which goes.

    >>> [column.tolist() for column in tape.unbind(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 1)]
    [[1.0, 3.0], [2.0, 4.0]]
    """
    input = tensor_of(input)
    if not input.spec.shape:
        raise IndexError("unbind: Dimension specified as 0 but tensor has no dimensions")
    along = dim_of(input, either("dim", dim, "axis", axis, 0))
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
        sections = pick_calls.integers(sections, "tensor_split").tolist()
    if isinstance(sections, (tuple, list)):
        return _ranges(input, axis, ints_of((sections,)))
    count = operator.index(sections)
    if count <= 0:
        raise RuntimeError(f"tensor_split: number of sections must be larger than 0, got {count}")
    return _ranges(input, axis, _even(n, count))


def _even(n: int, count: int) -> list[int]:
    """Return where so many ranges of nearly one length, the longer ones first, are cut."""
    length, more = divmod(n, count)
    return [k * length + min(k, more) for k in range(1, count)]


def _ranges(x: Tensor, axis: int, cuts: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the ranges between cuts, which count as the ends of slices do: negative ones from the end."""
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

    along.__name__ = along.__qualname__ = name
    where, shape, shapes = _ALONG[name]
    along.__doc__ = f"""Return views of equal ranges along {where}, or of ranges cut at these places.

    >>> [list(part.shape) for part in tape.{name}(tape.zeros{shape}, 2)]
    {shapes}
    """
    return public()(_PLACES(along))


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
        sections = pick_calls.integers(sections, "np.array_split").tolist()
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


@implements(np.vsplit)
def _vsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    x = tensor_of(ary)
    if len(x.spec.shape) < 2:  # noqa: PLR2004
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return _split(x, indices_or_sections, 0)


@implements(np.dsplit)
def _dsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    x = tensor_of(ary)
    if len(x.spec.shape) < 3:  # noqa: PLR2004
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return _split(x, indices_or_sections, 2)


@implements(np.unstack)
def _unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    return unbind(x, axis)
