"""Dims and elements in another order: flips, rolls, turns and moved dims; NumPy's functions of these names too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from kernels.operations.registry import OPS
from tape.operations.elementwise import array_like
from tape.recording import promotion, record, views
from tape.recording.arguments import dim_of, dims_of, ints_of
from tape.repeated_calls.call_table import viewing
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, method

_FLIP: Any = OPS["flip"]
_PAIR = 2


def flipped(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return a copy with the order reversed along these axes."""
    return promotion.cast(_reversed(x, dims), x.spec.dtype, _FLIP) if dims else views.clone(x)


@viewing("reversed")
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


@viewing("part")
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
@viewing("movedim")
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
@viewing("swapaxes")
def swapaxes(input: Any, axis0: int, axis1: int) -> Tensor:
    """Return a view with two dims exchanged.

    >>> tape.swapaxes(tape.zeros(2, 3, 4), 0, 2).shape
    tape.Size([4, 3, 2])
    """
    return views.transpose(tensor_of(input), axis0, axis1)


@public()
@viewing("swapdims")
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
    """Roll by shifts along axes, which are broadcast: one shift may serve several axes, or several one axis."""
    x = tensor_of(a)
    steps, axes = np.broadcast_arrays(shift, 0 if axis is None else axis)
    if axis is None:
        return roll(x, int(steps.sum()))
    places = tuple(dim_of(x, int(d)) for d in axes.reshape(-1))
    total = {d: sum(int(s) for s, e in zip(steps.reshape(-1), places, strict=True) if e == d) for d in places}
    return _rolled(x, tuple(total.values()), tuple(total))


@implements(np.rot90)
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    return _quarters(tensor_of(m), k, ints_of((tuple(axes),)), _reversed)


@implements(np.moveaxis)
def _moveaxis(a: Any, source: Any, destination: Any) -> Tensor:
    return movedim(a, source, destination)


@implements(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    x = tensor_of(a)
    at = dim_of(x, axis)
    before = dim_of(x, start, extra=1)
    return movedim(x, at, before - (at < before))


@implements(np.swapaxes, records="transpose")
def _swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    return swapaxes(a, axis1, axis2)


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
