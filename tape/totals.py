"""Products, counts, truths and places of extrema over dims; reductions without nan; NumPy's functions of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.tables import OPS
from tape import recording, reducing, return_types, routine_calls, shaping
from tape.arithmetic import FUNCTIONS
from tape.dims import dim_of, dims_of, either
from tape.public import implements, public
from tape.reducing import tensor_of
from tape.tensor import Tensor

_PROD: Any = OPS["prod"]
_PROD_DIM: Any = OPS["prod_dim"]
_ANY, _ALL, _COUNT = OPS["any"], OPS["all"], OPS["count_nonzero"]
_ARGMAX, _ARGMIN = OPS["argmax"], OPS["argmin"]
_where: Any = FUNCTIONS["where"]


def where_and_how(x: Tensor, dim: Any, axis: Any, keepdim: Any, keepdims: Any) -> tuple[tuple[int, ...], bool]:
    """Return the axes that a reduction goes over, and whether they stay with length one."""
    axes = dims_of(x, either("dim", dim, "axis", axis, None))
    return axes, bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))


def cast(x: Tensor, dtype: Any) -> Tensor:
    """Return x in a dtype; as it is if none is given."""
    return x if dtype is None or np.dtype(dtype) == x.spec.dtype else recording.to_dtype(x, np.dtype(dtype))


def accumulated(x: Any, dtype: Any) -> Tensor:
    """Return what a sum or product accumulates: ints and bools as int64, if no dtype is given."""
    x = tensor_of(x)
    return cast(x, np.int64 if dtype is None and x.spec.dtype.kind in "iub" else dtype)


def array_like(x: Any) -> Tensor:
    """Return what one of NumPy's functions takes as an array: lists too."""
    return tensor_of(x if isinstance(x, Tensor) else np.asarray(x))


def not_nan(x: Tensor) -> Tensor:
    """Return which elements are numbers."""
    return x == x  # noqa: PLR0124


@public()
def prod(
    x: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the product over ``dim`` (an int, a tuple, or None for all); ints and bools multiply to int64.

    The gradient is exact where elements are zero.

    >>> x = tape.tensor([0.0, 2.0, 3.0], requires_grad=True)
    >>> x.prod().backward()
    >>> x.grad
    tensor([6., 0., 0.])
    """
    x = accumulated(x, dtype)
    op = _PROD if dim is None and axis is None else _PROD_DIM
    dims, keep = where_and_how(x, dim, axis, keepdim, keepdims)
    return routine_calls.call(op, x, dims=dims, keepdim=keep)  # type: ignore[no-any-return]


def _truth(op: Any, x: Any, dim: Any, axis: Any, keepdim: Any, keepdims: Any) -> Tensor:
    x = tensor_of(x)
    dims, keep = where_and_how(x, dim, axis, keepdim, keepdims)
    found = routine_calls.call(op, x, dims=dims, keepdim=keep)
    return cast(found, np.uint8 if x.spec.dtype == np.uint8 else None)


@public()
def any(x: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:  # noqa: A001
    """Return whether an element over ``dim`` is nonzero or True: bool, but uint8 of uint8, as PyTorch has it.

    >>> tape.any(tape.tensor([[0.0, 2.0], [0.0, 0.0]]), 1).tolist()
    [True, False]
    """
    return _truth(_ANY, x, dim, axis, keepdim, keepdims)


@public()
def all(x: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:  # noqa: A001
    """Return whether all elements over ``dim`` are nonzero or True: bool, but uint8 of uint8, as PyTorch has it.

    >>> tape.all(tape.tensor([[0.0, 2.0], [1.0, 3.0]]), 1).tolist()
    [False, True]
    """
    return _truth(_ALL, x, dim, axis, keepdim, keepdims)


@public()
def count_nonzero(x: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return how many elements over ``dim`` are nonzero or True, as int64.

    >>> tape.count_nonzero(tape.tensor([[0.0, 2.0], [1.0, 3.0]]), 1).tolist()
    [1, 2]
    """
    x = tensor_of(x)
    return _counted(x, either("dim", dim, "axis", axis, None), keepdim=False)


def _counted(x: Tensor, dim: Any, *, keepdim: bool) -> Tensor:
    return routine_calls.call(_COUNT, x, dims=dims_of(x, dim), keepdim=keepdim)  # type: ignore[no-any-return, arg-type]


def _extremum_place(op: Any, x: Tensor, dim: Any, keepdim: Any) -> Tensor:
    if x.spec.size == 0 and dim is None:
        raise IndexError(f"{op.name}(): Expected reduction dim to be specified for input.numel() == 0.")
    at = None if dim is None else dim_of(x, dim)
    if at is not None and x.spec.shape and x.spec.shape[at] == 0:
        raise IndexError(f"{op.name}(): Expected reduction dim {at} to have non-zero size.")
    at = at if x.spec.shape else None
    return routine_calls.call(op, x, dim=at, keepdim=bool(keepdim))  # type: ignore[no-any-return]


def _places(op: Any, extremum: str, example: str) -> Any:
    def places(x: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        x = tensor_of(x)
        if x.spec.dtype == np.bool_:
            raise RuntimeError(f"{op.name}(): does not support bool input; convert it first: x.long().{op.name}()")
        keep = either("keepdim", keepdim, "keepdims", keepdims, default=False)
        return _extremum_place(op, x, either("dim", dim, "axis", axis, None), keep)

    places.__name__ = places.__qualname__ = op.name
    places.__doc__ = f"""Return the int64 place of the {extremum} element along ``dim``, or of all elements in order.

    The first of equals; nan counts as {extremum}. IndexError where there is no element.

    >>> tape.{op.name}(tape.tensor([[1.0, 5.0, 3.0], [4.0, 0.0, 2.0]]), 1).tolist()
    {example}
    """
    return public()(places)


argmax = _places(_ARGMAX, "largest", "[1, 0]")
argmin = _places(_ARGMIN, "smallest", "[0, 1]")


@public()
def aminmax(x: Any, *, dim: Any = None, keepdim: Any = None, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the smallest and the largest element, of all or along ``dim``; ties share the gradient evenly.

    >>> tuple(e.tolist() for e in tape.aminmax(tape.tensor([[3.0, 1.0], [2.0, 5.0]]), dim=1))
    ([1.0, 2.0], [3.0, 5.0])
    """
    x = tensor_of(x)
    dims, keep = where_and_how(x, dim, axis, keepdim, keepdims)
    if 0 in (x.spec.shape[i] for i in dims):
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity; "
            f"the shape is {list(x.spec.shape)}"
        )
    return return_types.aminmax(reducing.amin(x, dims, keep), reducing.amax(x, dims, keep))


@public()
def nansum(
    x: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the sum over ``dim`` of what is not nan; nan gets no gradient.

    >>> tape.nansum(tape.tensor([1.0, float('nan'), 3.0]))
    tensor(4.)
    """
    x = tensor_of(x)
    x = _where(not_nan(x), x, 0.0) if x.spec.dtype.kind == "f" else x
    return reducing.sum(x, dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims)


@public()
def nanmean(
    x: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
) -> Tensor:
    """Return the mean over ``dim`` of what is not nan; nan where nothing is left. Floating tensors only.

    >>> tape.nanmean(tape.tensor([1.0, float('nan'), 3.0]))
    tensor(2.)
    """
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(f"nanmean(): expected input to have floating point dtype but got {x.spec.dtype.name}")
    dims, keep = where_and_how(x, dim, axis, keepdim, keepdims)
    count = _counted(not_nan(x), dims, keepdim=keep)
    total = nansum(cast(x, dtype), dims, keep)
    with np.errstate(invalid="ignore"):
        return total / cast(count, total.spec.dtype)


def chosen(a: Any, where: Any, instead: Any) -> Tensor:
    """Return what a reduction of NumPy's with ``where=`` goes over: elsewhere what changes nothing."""
    a = tensor_of(a)
    return a if where is True or where is None else _where(tensor_of(where), a, np.asarray(instead, a.spec.dtype))  # type: ignore[no-any-return]


@implements(np.prod)
def _prod(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    found = prod(chosen(a, where, 1), axis, keepdims, dtype=dtype)
    return found if initial is None else found * initial


@implements(np.nanprod)
def _nanprod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    a = tensor_of(a)
    return prod(chosen(a, not_nan(a), 1), axis, keepdims, dtype=dtype)


@implements(np.any)
def _any(a: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> Tensor:
    return cast(any(chosen(a, where, 0), axis, keepdims), np.bool_)


@implements(np.all)
def _all(a: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> Tensor:
    return cast(all(chosen(a, where, 1), axis, keepdims), np.bool_)


@implements(np.count_nonzero)
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return _counted(tensor_of(a), axis, keepdim=keepdims)


@implements(np.argmax)
def _argmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return _extremum_place(_ARGMAX, tensor_of(a), axis, keepdims)


@implements(np.argmin)
def _argmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return _extremum_place(_ARGMIN, tensor_of(a), axis, keepdims)


@implements(np.nansum)
def _nansum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    return nansum(a, axis, keepdims, dtype=dtype)


@implements(np.nanmean)
def _nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    a = tensor_of(a)
    mean = nanmean if a.spec.dtype.kind == "f" else reducing.mean
    return mean(a if a.spec.dtype.kind == "f" else cast(a, np.float64), axis, keepdims, dtype=dtype)


def _without_nan(over: Any, worst: float) -> Any:
    def extremum(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        a = tensor_of(a)
        if a.spec.dtype.kind != "f":
            return over(a, axis, keepdims)  # type: ignore[no-any-return]
        there = not_nan(a)
        found = over(_where(there, a, worst), axis, keepdims)
        return _where(any(there, axis, keepdims), found, np.nan)  # type: ignore[no-any-return]

    return extremum


implements(np.nanmax)(_without_nan(reducing.amax, -np.inf))
implements(np.nanmin)(_without_nan(reducing.amin, np.inf))


@implements(np.ptp)
def _ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return reducing.amax(a, axis, keepdims) - reducing.amin(a, axis, keepdims)  # type: ignore[no-any-return]


@implements(np.average)
def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    a = tensor_of(a)
    a = a if a.spec.dtype.kind == "f" else cast(a, np.float64)
    if weights is None:
        found = reducing.mean(a, axis, keepdims)
        total = found * 0 + a.spec.size / max(found.spec.size, 1)
    else:
        w = array_like(weights)
        if w.spec.shape != a.spec.shape:
            dims = dims_of(a, axis)
            if axis is None or w.spec.shape != tuple(a.spec.shape[i] for i in dims):
                raise TypeError(f"np.average: weights of shape {w.spec.shape} do not fit {a.spec.shape} over {axis}")
            w = shaping.reshape(w, [n if i in dims else 1 for i, n in enumerate(a.spec.shape)])
            w = shaping.expand(w, a.spec.shape)
        total = reducing.sum(w, axis, keepdims)
        if not np.all(np.asarray(total.detach()._value)):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        found = reducing.sum(a * w, axis, keepdims) / total
    return (found, total) if returned else found
