"""Sums, means and extrema over dims, under PyTorch's names and meaning; NumPy's keywords are accepted."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.reduction import Reduction
from kernels.ops.registry import OPS
from kernels.records.op import Op
from tape import return_types
from tape.foundation.dtypes import dtype_of
from tape.operations import operators
from tape.recording import elementwise, promotion
from tape.recording.arguments import dim_of, dims_of, either
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors import modes
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, method

_SUM: Any
_MEAN: Any
_SUM, _MEAN = OPS["sum"], OPS["mean"]
_INTEGERS = "iub"
_LARGEST = 8
"""Bytes of uint64, whose sums int64 does not hold."""


def accumulator(x: Tensor) -> np.dtype[Any]:
    """Return the dtype that integers are summed and multiplied in: int64; of unsigned ones in NumPy uint64."""
    dtype = x._form.spec.dtype
    unsigned = dtype.kind == "u" and (dtype.itemsize == _LARGEST or modes.promotes_as_numpy())
    return np.dtype(np.uint64 if unsigned else np.int64)


def along(op: Op, x: Any, dim: Any, axis: Any, keepdim: Any, keepdims: Any, dtype: Any) -> Tensor:
    """Reduce over dims as users give them."""
    x = tensor_of(x)
    dim = either("dim", dim, "axis", axis, None)
    axes = dims_of(x, dim)
    keep = bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))
    if dtype is not None and dtype_of(dtype) != x.spec.dtype:
        x = promotion.cast(x, dtype_of(dtype))
    assert isinstance(op, Reduction)
    return elementwise.reduction(op, x, axes, keep, "" if dim is None else op.dims_grad_fn)


@method()
@argued
def sum(  # noqa: A001 (PyTorch's and NumPy's name)
    input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the sum over ``dim`` (an int, a tuple, or None for all); ints and bools sum to int64."""
    input = tensor_of(input)
    if dtype is None and input._form.spec.dtype.kind == "u":
        dtype = accumulator(input)
    return along(_SUM, input, dim, axis, keepdim, keepdims, dtype)


@method()
@argued
def mean(
    input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the mean over ``dim`` (an int, a tuple, or None for all); floating tensors only."""
    input = tensor_of(input)
    if dtype is None and input.spec.dtype.kind in _INTEGERS:
        raise RuntimeError(
            f"mean(): could not infer output dtype. Input dtype must be floating point, got {input.spec.dtype.name}; "
            "convert it first: x.double().mean()"
        )
    return along(_MEAN, input, dim, axis, keepdim, keepdims, dtype)


def _extremum(name: str) -> Any:
    pair = getattr(return_types, name)
    over_all, by_rows, pairwise = OPS[f"{name}_all"], OPS[name], operators.FUNCTIONS[f"{name}imum"]

    def extremum(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        input = tensor_of(input)
        dim = either("dim", dim, "axis", axis, None)
        if isinstance(dim, Tensor):
            return pairwise(input, dim)
        keep = bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))
        _not_empty(name, input, dim)
        if dim is None:
            return along(over_all, input, None, None, keepdim, keepdims, None)
        return pair(*elementwise.select(by_rows, input, dim_of(input, dim), keep))  # type: ignore[arg-type]

    extremum.__name__ = extremum.__qualname__ = name
    extremum.__doc__ = f"""Return the {name}imum of all elements, or of each row along ``dim`` with its place.

    With a tensor as second argument: :func:`{name}imum` of both. Ties: ``x.{name}()`` shares the gradient evenly,
    ``x.{name}(dim)`` gives it to the first of equals, as PyTorch does.
    """
    return method(name)(argued(extremum))


def _not_empty(name: str, x: Tensor, dim: Any) -> None:
    shape = x.spec.shape
    if 0 in shape and (dim is None or shape[dim_of(x, dim)] == 0):
        kind = RuntimeError if dim is None else IndexError
        raise kind(f"{name}(): Expected reduction dim to be specified for a non-empty dim; shape {list(shape)}")


def _over(name: str) -> Any:
    op = OPS[name]

    def over(input: Any, dim: Any = (), keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        input = tensor_of(input)
        dim = either("dim", None if dim == () else dim, "axis", axis, None)
        for dim_ in dims_of(input, dim):
            _not_empty(name, input, dim_)
        return along(op, input, dim, None, keepdim, keepdims, None)

    over.__name__ = over.__qualname__ = name
    over.__doc__ = f"{op.doc[:-1]}, as NumPy's {name}."
    return method(name)(argued(over))


max = _extremum("max")  # noqa: A001
min = _extremum("min")  # noqa: A001
amax = _over("amax")
amin = _over("amin")
