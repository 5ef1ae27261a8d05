"""NumPy's methods of arrays, and its ways to call those that PyTorch's tensors have too: ``x.astype``, ``x.cumsum()``.

Where a method means one thing to PyTorch and another to NumPy, PyTorch's stands: ``x.sort()``, ``x.max(axis=0)`` are
pairs, ``x.std()`` divides by one less than the number of elements, ``x.transpose(0, 1)`` exchanges two dims, and
``x.repeat(2)`` tiles. ``np.f(x)`` always is NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tape.operations import diagonals, elementwise, gather, indexing, matmul, scans, sorting  # noqa: F401 (renewed here)
from tape.operations.elementwise import written
from tape.recording import attributes, record, to_python, views
from tape.recording.arguments import ints_of
from tape.tensors.hooks import NUMPY
from tape.tensors.tensor import Tensor, as_array, attribute, method

_VECTORS = 2


class Count(int):
    """How many elements a tensor has, as an int; called as PyTorch's method it gives the shape or an extent."""

    _of: Tensor

    def __call__(self, dim: int | None = None) -> Any:
        """Return the shape, or the extent of one dim."""
        return attributes.size(self._of, dim)

    def __reduce__(self) -> Any:
        return int, (int(self),)


class _SizeOf(property):
    """Read from a tensor it is a :class:`Count`; from the class the function, as PyTorch's method is."""

    def __get__(self, x: Any, owner: Any = None) -> Any:
        return attributes.size if x is None else super().__get__(x, owner)


def _count(x: Tensor) -> Count:
    """The number of elements, as NumPy's attribute; ``x.size()`` and ``x.size(dim)`` are PyTorch's shape and extent."""
    count = Count(x._form.spec.size)
    count._of = x
    return count


method("size")(_SizeOf(_count))


def _renewed(name: str) -> Callable[[Any], Any]:
    """Replace a method by one that accepts NumPy's arguments too; ``tape``'s function of that name stays PyTorch's."""

    def install(function: Any) -> Any:
        tensor_method = vars(Tensor)[name]
        function.__name__ = function.__qualname__ = name
        if function.__doc__:
            function.__doc__ = (
                f"{tensor_method.__doc__.rstrip() if tensor_method.__doc__ else name}\n\n    {function.__doc__}\n    "
            )
        setattr(Tensor, name, function)
        return tensor_method

    return install


def _scan(name: str) -> None:
    tensor_method, flat = vars(Tensor)[name], NUMPY[getattr(np, name)]

    def scan(x: Tensor, dim: Any = None, dtype: Any = None, out: Any = None, *, axis: Any = None) -> Tensor:
        """Without a dim it runs over all elements in order, as NumPy's method does."""
        if dim is None and axis is None:
            return flat(x, None, dtype, out)  # type: ignore[no-any-return]
        return written(name, out, tensor_method(x, dim, dtype=dtype, axis=axis))  # type: ignore[no-any-return]

    _renewed(name)(scan)


_scan("cumsum")
_scan("cumprod")


def _transpose(x: Tensor, *axes: Any, dim0: Any = None, dim1: Any = None) -> Tensor:
    """As NumPy's: without dims they are reversed; with all of them, or a tuple, they stand in that order."""
    if len(axes) == _VECTORS or dim0 is not None or dim1 is not None:
        dims = {name: d for name, d in (("dim0", dim0), ("dim1", dim1)) if d is not None}
        return views.transpose(x, *axes, **dims)
    if not axes or axes == (None,):
        return x.T
    return views.permute(x, ints_of(axes))


_renewed("transpose")(_transpose)


@_renewed("flatten")
def _flat_copy(x: Tensor, start_dim: Any = 0, end_dim: int = -1, *, order: Any = None) -> Tensor:
    """``x.flatten("F")`` and ``order=`` are NumPy's: a copy of all elements in that order."""
    if isinstance(start_dim, str):
        start_dim, order = 0, start_dim
    return _flat_copy(x, start_dim, end_dim) if order is None else views.clone(NUMPY[np.ravel](x, order))


@_renewed("ravel")
def _flat_view(x: Tensor, order: Any = None) -> Tensor:
    """``order`` is NumPy's."""
    return diagonals.ravel(x) if order is None else NUMPY[np.ravel](x, order)  # type: ignore[no-any-return]


@_renewed("dot")
def _vectors(x: Tensor, tensor: Any) -> Any:
    """Matrices and numbers are taken as NumPy's method takes them."""
    both_vectors = isinstance(tensor, Tensor) and len(x.spec.shape) == len(tensor.spec.shape) == 1
    return _vectors(x, tensor) if both_vectors else NUMPY[np.dot](x, tensor)


@_renewed("round")
def _rounded(x: Tensor, decimals: int = 0) -> Tensor:
    """``x.round(1)`` is NumPy's."""
    return _rounded(x, decimals=decimals)  # type: ignore[no-any-return]


@_renewed("take")
def _taken(
    x: Tensor, index: Any = None, axis: Any = None, out: Any = None, mode: str = "raise", *, indices: Any = None
) -> Any:
    """With ``axis``, ``mode`` or ``indices``: NumPy's."""
    if axis is None and out is None and mode == "raise" and indices is None:
        return _taken(x, index)
    return written("take", out, NUMPY[np.take](x, index if indices is None else indices, axis, mode=mode))


@_renewed("argsort")
def _places(
    x: Tensor, dim: Any = None, descending: Any = False, stable: Any = False, *, axis: Any = None, kind: Any = None
) -> Tensor:
    """``kind`` is NumPy's; equal elements always keep their order."""
    if isinstance(descending, str):  # NumPy's second argument
        kind, descending = descending, False
    del kind
    return _places(x, dim, descending, bool(stable), axis=axis)  # type: ignore[no-any-return]


@_renewed("item")
def _item(x: Tensor, *args: Any) -> Any:
    """With a number, or an index: that of the flat tensor, or that element."""
    if not args:
        return _item(x)
    (key,) = args if len(args) == 1 else (args,)
    return to_python.item(indexing.index(views.reshape(x, -1) if isinstance(key, int) else x, key))


@method()
def astype(
    x: Tensor, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
) -> Tensor:
    """Return the tensor in another dtype, recorded where both are floating; itself with ``copy=False`` if it has it.

    TypeError where ``casting`` does not allow it. ``order`` and ``subok`` are NumPy's and change nothing.

    >>> tape.tensor([1.5, 2.5]).astype(int)
    tensor([1, 2])
    """
    del order, subok
    if not np.can_cast(x.spec.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast tensor data from {x.spec.dtype!r} to {np.dtype(dtype)!r} according to the rule {casting!r}"
        )
    return x if not copy and x.spec.dtype == np.dtype(dtype) else record.to_dtype(x, np.dtype(dtype))


@method()
def copy(x: Tensor, order: str = "C") -> Tensor:
    """Return a copy, recorded: PyTorch's ``clone``.

    >>> tape.tensor([1.0, 2.0]).copy()
    tensor([1., 2.])
    """
    del order
    return views.clone(x)


@method()
def fill(x: Tensor, value: Any) -> None:
    """Write a number to all elements, recorded as ``x.fill_(value)``, and return None, as NumPy does."""
    x.fill_(value)


@method()
def ptp(x: Tensor, axis: Any = None, out: Any = None, keepdims: bool = False) -> Tensor:
    """Return the largest element less the smallest, over ``axis``.

    >>> tape.tensor([1.0, 4.0, 2.0]).ptp()
    tensor(3.)
    """
    return NUMPY[np.ptp](x, axis, out, keepdims)  # type: ignore[no-any-return]


@method()
def compress(x: Tensor, condition: Any, axis: Any = None) -> Tensor:
    """Return the places along ``axis``, or of the flat tensor, where the condition holds.

    >>> tape.tensor([1.0, 4.0, 2.0]).compress([True, False, True])
    tensor([1., 2.])
    """
    return NUMPY[np.compress](condition, x, axis)  # type: ignore[no-any-return]


@method()
def tobytes(x: Tensor, order: Any = "C") -> bytes:
    """Return the bytes of the elements."""
    record.note_escape(x)
    return as_array(x).tobytes(order)


@attribute
def strides(x: Tensor) -> tuple[int, ...]:
    """The steps along the dims in bytes, as NumPy counts them; ``x.stride()`` counts elements."""
    return x.spec.strides


@attribute
def imag(x: Tensor) -> Tensor:
    """Zeros: there are no complex tensors."""
    return NUMPY[np.imag](x)  # type: ignore[no-any-return]


class Flat:
    """The elements of a tensor in order, to be read, written and iterated over: what ``x.flat`` is."""

    __slots__ = ("_of",)

    def __init__(self, x: Tensor) -> None:
        self._of = x

    def __len__(self) -> int:
        return self._of.spec.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(views.reshape(self._of, -1))

    def __getitem__(self, key: Any) -> Tensor:
        return indexing.index(views.reshape(self._of, -1), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers = np.arange(self._of.spec.size)[key]
        indexing.put(self._of, np.asarray(numbers), value if isinstance(value, Tensor) else np.asarray(value), "flat")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(views.reshape(self._of, -1), dtype=dtype)


def _flat(x: Tensor) -> Flat:
    """The elements in order: iterated over, indexed and written to as NumPy's ``flat``."""
    return Flat(x)


def _set_flat(x: Tensor, value: Any) -> None:
    every = np.arange(x.spec.size)
    resize = NUMPY[np.resize] if isinstance(value, Tensor) else np.resize
    indexing.put(x, every, resize(value, every.shape), "flat")


method("flat")(property(_flat, _set_flat))
