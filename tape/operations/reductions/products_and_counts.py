"""Products, counts, truths and places of extrema over dims; reductions without nan."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape import return_types
from tape.operations import sums_and_extrema
from tape.operations.numpy_arguments import cast, not_nan
from tape.operations.operators import FUNCTIONS
from tape.recording import routine_calls
from tape.recording.arguments import dim_of, dims_of, either
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor

_PROD: Any = OPS["prod"]
_PROD_DIM: Any = OPS["prod_dim"]
_ANY, _ALL, _COUNT = OPS["any"], OPS["all"], OPS["count_nonzero"]
_ARGMAX, _ARGMIN = OPS["argmax"], OPS["argmin"]
_where: Any = FUNCTIONS["where"]


def where_and_how(x: Tensor, dim: Any, axis: Any, keepdim: Any, keepdims: Any) -> tuple[tuple[int, ...], bool]:
    """Return the axes that a reduction goes over, and whether they stay with length one."""
    axes = dims_of(x, either("dim", dim, "axis", axis, None))
    return axes, bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))


def accumulated(x: Any, dtype: Any) -> Tensor:
    """Return what a sum or product accumulates: ints and bools as int64, if no dtype is given."""
    x = tensor_of(x)
    return cast(x, sums_and_extrema.accumulator(x) if dtype is None and x.spec.dtype.kind in "iub" else dtype)


@public()
@argued
def prod(
    input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the product over ``dim`` (an int, a tuple, or None for all); ints and bools multiply to int64.

    The gradient is exact where elements are zero.

    >>> x = tape.tensor([0.0, 2.0, 3.0], requires_grad=True)
    >>> x.prod().backward()
    >>> x.grad
    tensor([6., 0., 0.])
    """
    input = accumulated(input, dtype)
    op = _PROD if dim is None and axis is None else _PROD_DIM
    dims, keep = where_and_how(input, dim, axis, keepdim, keepdims)
    return routine_calls.call(op, input, dims=dims, keepdim=keep)  # type: ignore[no-any-return]


def _truth(op: Any, x: Any, dim: Any, axis: Any, keepdim: Any, keepdims: Any) -> Tensor:
    x = tensor_of(x)
    dims, keep = where_and_how(x, dim, axis, keepdim, keepdims)
    truth = routine_calls.call(op, x, dims=dims, keepdim=keep)
    return cast(truth, np.uint8 if x.spec.dtype == np.uint8 else None)


@public()
@argued
def any(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:  # noqa: A001
    """Return whether an element over ``dim`` is nonzero or True: bool, but uint8 of uint8, as PyTorch has it.

    >>> tape.any(tape.tensor([[0.0, 2.0], [0.0, 0.0]]), 1).tolist()
    [True, False]
    """
    return _truth(_ANY, input, dim, axis, keepdim, keepdims)


@public()
@argued
def all(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:  # noqa: A001
    """Return whether all elements over ``dim`` are nonzero or True: bool, but uint8 of uint8, as PyTorch has it.

    >>> tape.all(tape.tensor([[0.0, 2.0], [1.0, 3.0]]), 1).tolist()
    [False, True]
    """
    return _truth(_ALL, input, dim, axis, keepdim, keepdims)


@public()
@argued
def count_nonzero(input: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return how many elements over ``dim`` are nonzero or True, as int64.

    >>> tape.count_nonzero(tape.tensor([[0.0, 2.0], [1.0, 3.0]]), 1).tolist()
    [1, 2]
    """
    input = tensor_of(input)
    return counted(input, either("dim", dim, "axis", axis, None), keepdim=False)


def counted(x: Tensor, dim: Any, *, keepdim: bool) -> Tensor:
    """Return how many elements over dims are nonzero."""
    return routine_calls.call(_COUNT, x, dims=dims_of(x, dim), keepdim=keepdim)  # type: ignore[no-any-return, arg-type]


def extremum_place(op: Any, x: Tensor, dim: Any, keepdim: Any) -> Tensor:
    """Return the place of an extremum, along a dim or of all elements in order."""
    if x.spec.size == 0 and dim is None:
        raise IndexError(f"{op.name}(): Expected reduction dim to be specified for input.numel() == 0.")
    at = None if dim is None else dim_of(x, dim)
    if at is not None and x.spec.shape and x.spec.shape[at] == 0:
        raise IndexError(f"{op.name}(): Expected reduction dim {at} to have non-zero size.")
    at = at if x.spec.shape else None
    return routine_calls.call(op, x, dim=at, keepdim=bool(keepdim))  # type: ignore[no-any-return]


def _places(op: Any, extremum: str, example: str) -> Any:
    def places(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        input = tensor_of(input)
        if input.spec.dtype == np.bool_:
            raise RuntimeError(f"{op.name}(): does not support bool input; convert it first: x.long().{op.name}()")
        keep = either("keepdim", keepdim, "keepdims", keepdims, default=False)
        return extremum_place(op, input, either("dim", dim, "axis", axis, None), keep)

    places.__name__ = places.__qualname__ = op.name
    places.__doc__ = f"""Return the int64 place of the {extremum} element along ``dim``, or of all elements in order.

    The first of equals; nan counts as {extremum}. IndexError where there is no element.

    >>> tape.{op.name}(tape.tensor([[1.0, 5.0, 3.0], [4.0, 0.0, 2.0]]), 1).tolist()
    {example}
    """
    return public()(argued(places))


argmax = _places(_ARGMAX, "largest", "[1, 0]")
argmin = _places(_ARGMIN, "smallest", "[0, 1]")


@public()
def aminmax(input: Any, *, dim: Any = None, keepdim: Any = None, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the smallest and the largest element, of all or along ``dim``; ties share the gradient evenly.

    >>> tuple(e.tolist() for e in tape.aminmax(tape.tensor([[3.0, 1.0], [2.0, 5.0]]), dim=1))
    ([1.0, 2.0], [3.0, 5.0])
    """
    input = tensor_of(input)
    dims, keep = where_and_how(input, dim, axis, keepdim, keepdims)
    if 0 in (input.spec.shape[i] for i in dims):
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity; "
            f"the shape is {list(input.spec.shape)}"
        )
    return return_types.aminmax(sums_and_extrema.amin(input, dims, keep), sums_and_extrema.amax(input, dims, keep))


@public()
def nansum(
    input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the sum over ``dim`` of what is not nan; nan gets no gradient.

    >>> tape.nansum(tape.tensor([1.0, float('nan'), 3.0]))
    tensor(4.)
    """
    input = tensor_of(input)
    input = _where(not_nan(input), input, 0.0) if input.spec.dtype.kind == "f" else input
    return sums_and_extrema.sum(input, dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims)


@public()
def nanmean(
    input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the mean over ``dim`` of what is not nan; nan where nothing is left. Floating tensors only.

    >>> tape.nanmean(tape.tensor([1.0, float('nan'), 3.0]))
    tensor(2.)
    """
    input = tensor_of(input)
    if input.spec.dtype.kind != "f":
        raise RuntimeError(f"nanmean(): expected input to have floating point dtype but got {input.spec.dtype.name}")
    dims, keep = where_and_how(input, dim, axis, keepdim, keepdims)
    count = counted(not_nan(input), dims, keepdim=keep)
    total = nansum(cast(input, dtype), dims, keep)
    with np.errstate(invalid="ignore"):
        return total / cast(count, total.spec.dtype)
