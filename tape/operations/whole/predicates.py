"""What a tensor and its dtype are, asked with PyTorch's names; tensors here are real, dense and in the CPU's memory."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tape.conversions import to_python
from tape.conversions.attributes import to
from tape.foundation.dtypes import dtype_of
from tape.foundation.size import Size
from tape.recording import promotion, record
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor, as_array, attribute, leaf, method


@public(methods=False)
def numel(input: Any) -> int:
    """Return the number of elements.

    >>> tape.numel(tape.zeros(2, 3))
    6
    """
    return tensor_of(input).spec.size


@public(methods=False)
def is_floating_point(input: Any) -> bool:
    """Return whether the dtype is floating.

    >>> tape.is_floating_point(tape.tensor([1, 2]))
    False
    """
    return tensor_of(input).spec.dtype.kind == "f"


@public()
def is_complex(input: Any) -> bool:
    """Return False: there are no complex tensors.

    >>> tape.is_complex(tape.ones(2))
    False
    """
    del input
    return False


@public()
def is_signed(input: Any) -> bool:
    """Return whether the dtype has negative numbers.

    >>> tape.is_signed(tape.tensor([1, 2])), tape.is_signed(tape.tensor([True]))
    (True, False)
    """
    return tensor_of(input).spec.dtype.kind in "if"


@public()
def is_nonzero(input: Any) -> bool:
    """Return whether the only element is not zero; RuntimeError where there is another number of them.

    >>> tape.is_nonzero(tape.tensor([0.0]))
    False
    """
    return bool(tensor_of(input))


@public()
def is_same_size(input: Any, other: Any) -> bool:
    """Return whether two tensors have one shape.

    >>> tape.is_same_size(tape.ones(2), tape.ones(2, 1))
    False
    """
    return tensor_of(input).spec.shape == tensor_of(other).spec.shape


@public()
def isreal(input: Any) -> Tensor:
    """Return True for each element: there are no complex tensors.

    >>> tape.isreal(tape.tensor([1.0, 2.0])).tolist()
    [True, True]
    """
    return leaf(np.ones(tensor_of(input).spec.shape, np.bool_), requires_grad=False)


@implements(np.real)
@public(methods=False)
def real(input: Any) -> Tensor:
    """Return the tensor itself: there are no complex ones.

    >>> tape.real(tape.tensor([1.0]))
    tensor([1.])
    """
    return tensor_of(input)


method("real")(property(lambda x: x, doc="The tensor itself: there are no complex ones."))


@implements(np.conjugate)
@public("conjugate")
def conj(input: Any) -> Tensor:
    """Return the tensor itself: there are no complex ones.

    >>> tape.conj(tape.tensor([1.0]))
    tensor([1.])
    """
    return tensor_of(input)


@public(methods=False)
def detach(input: Any) -> Tensor:
    """Return a tensor of the same memory, without history.

    >>> tape.detach(tape.ones(1, requires_grad=True))
    tensor([1.])
    """
    return tensor_of(input).detach()


@public(methods=False)
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that shapes, or ints for one dim, broadcast to; RuntimeError where they do not.

    >>> tape.broadcast_shapes((2, 1), (3,))
    tape.Size([2, 3])
    """
    try:
        return Size(np.broadcast_shapes(*shapes))
    except ValueError as error:
        raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {shapes}") from error


@public(methods=False)
def promote_types(type1: Any, type2: Any) -> Any:
    """Return the dtype that tensors of two dtypes are computed in, if both have dims: floats come before integers.

    >>> tape.promote_types(tape.int64, tape.float32).name
    'float32'
    """
    return promotion.promote_types(dtype_of(type1), dtype_of(type2))


@public(methods=False)
def can_cast(from_: Any, to: Any) -> bool:
    """Return whether PyTorch casts one dtype to another by itself: not floats to integers, nor numbers to bools.

    >>> tape.can_cast(tape.float64, tape.float32), tape.can_cast(tape.float64, tape.int64)
    (True, False)
    """
    return promotion.can_cast(dtype_of(from_), dtype_of(to))


@method()
def ndimension(x: Tensor) -> builtins.int:
    """Return the number of dims."""
    return len(x.spec.shape)


@method()
def element_size(x: Tensor) -> builtins.int:
    """Return the number of bytes of an element."""
    return x.spec.dtype.itemsize


@attribute
def itemsize(x: Tensor) -> builtins.int:
    """The number of bytes of an element."""
    return x.spec.dtype.itemsize


@attribute
def nbytes(x: Tensor) -> builtins.int:
    """The number of bytes of all elements."""
    return x.spec.size * x.spec.dtype.itemsize


@method()
def type_as(x: Tensor, other: Tensor) -> Tensor:
    """Return the tensor with the dtype of another, or itself."""
    return to(x, dtype=other.spec.dtype)


@method("__contains__")
def contains(x: Tensor, element: Any) -> builtins.bool:
    """Return whether an element equals a number, or one of those that a tensor broadcasts to."""
    equal = x == element
    if not isinstance(equal, Tensor):
        raise TypeError(f"Tensor.__contains__ takes a tensor or a number, not {type(element).__name__}")
    return builtins.bool(equal.any())


def _fact(name: str, *, value: bool, doc: str) -> None:
    def fact(x: Tensor) -> builtins.bool:
        del x
        return value

    fact.__name__, fact.__doc__ = name, doc
    attribute(fact)


_fact("is_cpu", value=True, doc="Whether the memory is the CPU's: always.")
for _name in ("is_cuda", "is_mps", "is_meta", "is_sparse", "is_quantized"):
    _fact(_name, value=False, doc="What PyTorch's tensors may be and these are not: False.")


def _values(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    record.note_escape(x)
    return as_array(x)


@implements(np.array_equal)
def _array_equal(a1: Any, a2: Any, equal_nan: builtins.bool = False) -> builtins.bool:
    if not (isinstance(a1, Tensor) and isinstance(a2, Tensor)):
        return np.array_equal(_values(a1), _values(a2), equal_nan=equal_nan)
    if not equal_nan:
        return to_python.equal(a1, a2)
    same = a1.spec.shape == a2.spec.shape
    return same and builtins.bool(((a1 == a2) | (np.isnan(a1) & np.isnan(a2))).all())


@implements(np.array_equiv)
def _array_equiv(a1: Any, a2: Any) -> builtins.bool:
    return np.array_equiv(_values(a1), _values(a2))


@implements(np.result_type)
def _result_type(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*(x.spec.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes))


@implements(np.empty_like)
def _empty_like(prototype: Tensor, dtype: Any = None) -> Tensor:
    wanted = prototype.spec.dtype if dtype is None else np.dtype(dtype)
    return leaf(record.unset(prototype.spec.shape, wanted), requires_grad=False)


@implements(np.imag)
def _imag(val: Tensor) -> Tensor:
    return leaf(np.zeros(val.spec.shape, val.spec.dtype), requires_grad=False)


@implements(np.iscomplex)
def _iscomplex(x: Tensor) -> Tensor:
    return leaf(np.zeros(x.spec.shape, np.bool_), requires_grad=False)


@implements(np.iscomplexobj)
def _iscomplexobj(x: Any) -> builtins.bool:
    del x
    return False


@implements(np.isreal)
def _isreal(x: Any) -> Tensor:
    return isreal(x)


@implements(np.isrealobj)
def _isrealobj(x: Any) -> builtins.bool:
    del x
    return True


@implements(np.real_if_close)
def _real_if_close(a: Tensor, tol: float = 100) -> Tensor:
    del tol
    return a
