"""Functions composed of others, and what a tensor and its dtype are; tensors are real, dense and the CPU's."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tape import return_types, special
from tape.operations import elementwise, joining, solves
from tape.operations.elementwise import FUNCTIONS, floating
from tape.recording import promotion, record, to_python, views
from tape.recording.attributes import to
from tape.tensors.dtypes import Size, dtype_of
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array, attribute, leaf, method

_where: Any = FUNCTIONS["where"]


@public(methods=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Return ``other - alpha * input``.

    >>> tape.rsub(tape.tensor([1.0, 2.0]), 10, alpha=2).tolist()
    [8.0, 6.0]
    """
    return FUNCTIONS["sub"](other, input, alpha=alpha)  # type: ignore[no-any-return]


@public(methods=False)
def threshold(input: Any, threshold: Any, value: Any) -> Tensor:
    """Return x where it is above a number, elsewhere another number, which has no gradient; nan stays.

    >>> tape.threshold(tape.tensor([1.0, 2.0, 3.0]), 2.0, -1.0).tolist()
    [-1.0, -1.0, 3.0]
    """
    input = tensor_of(input)
    return _where(input <= threshold, value, input)  # type: ignore[no-any-return]


@public(methods=False)
def fill(input: Any, value: Any) -> Tensor:
    """Return a tensor of the shape and dtype of x filled with one number, or with a 0-d tensor, which has the gradient.

    >>> tape.fill(tape.zeros(3), 2.0).tolist()
    [2.0, 2.0, 2.0]
    """
    return views.clone(tensor_of(input)).fill_(value)


@public()
def frexp(input: Any) -> Any:
    """Return the mantissas, of absolute value in [0.5, 1), and the int32 exponents of two; x is their ``ldexp``.

    >>> [e.tolist() for e in tape.frexp(tape.tensor([3.0, -0.25]))]
    [[0.75, -0.5], [2, -1]]
    """
    input = tensor_of(input)
    if input.spec.dtype.kind != "f":
        raise RuntimeError(
            f"frexp() only supports floating-point dtypes, not {input.spec.dtype.name}; convert: x.double()"
        )
    record.note_escape(input)
    exponents = np.frexp(as_array(input))[1]
    mantissas = elementwise.ldexp(input, -exponents)
    return return_types.frexp(mantissas, leaf(np.asarray(exponents), requires_grad=False))


@implements(np.frexp)
def _frexp(x: Any) -> tuple[Tensor, Tensor]:
    mantissas, exponents = frexp(floating(x))
    return mantissas, exponents


@implements(np.vander)
@public(methods=False)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 (PyTorch's name)
    """Return the powers of the elements of a vector, a row each, from N - 1 down to 0; N is its length unless given.

    >>> tape.vander(tape.tensor([2.0, 3.0]), 3).tolist()
    [[4.0, 2.0, 1.0], [9.0, 3.0, 1.0]]
    """
    x = tensor_of(x)
    if len(x.spec.shape) != 1:
        raise RuntimeError(f"vander: x must be a one-dimensional tensor; the shape is {list(x.spec.shape)}")
    count = x.spec.size if N is None else N
    if count <= 1:
        if count < 0:
            raise RuntimeError(f"vander: N must be non-negative, not {N}")
        return views.unsqueeze(x, 1)[:, :0] if not count else views.unsqueeze(x, 1) ** 0
    powers = solves.vander(x, count)
    return powers if increasing else powers.flip(1)  # type: ignore[no-any-return]


@public()
def igamma(input: Any, other: Any) -> Tensor:
    """Return the regularised lower incomplete gamma function of order x; the gradient goes to ``other`` alone.

    NotImplementedError where x requires grad, for nobody has written that derivative.

    >>> tape.igamma(1.0, tape.tensor([0.5, 1.0]))
    tensor([0.3935, 0.6321])
    """
    return special.gammainc(input, other)


@public()
def igammac(input: Any, other: Any) -> Tensor:
    """Return the regularised upper incomplete gamma function of order x, one less :func:`igamma`.

    >>> tape.igammac(1.0, tape.tensor([0.5, 1.0]))
    tensor([0.6065, 0.3679])
    """
    return special.gammaincc(input, other)


@public()
def angle(input: Any) -> Tensor:
    """Return the angle of numbers in the plane: pi where they are negative, else 0; nan stays. The gradient is 0.

    >>> tape.angle(tape.tensor([2.0, -3.0]))
    tensor([0.0000, 3.1416])
    """
    input = floating(tensor_of(input))
    half, none = (np.asarray(turn, input.spec.dtype) for turn in (np.pi, 0.0))
    result: Tensor = _where(input != input, input, _where(input < 0, half, none))  # noqa: PLR0124
    return result


implements(np.angle)(lambda z, deg=False: FUNCTIONS["rad2deg"](angle(z)) if deg else angle(z))


@public(methods=False)
def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> Tensor:
    """Return the tensor with places of one value put before and behind: :func:`pad` with its default mode.

    >>> tape.constant_pad_nd(tape.tensor([1.0]), (1, 2), 3.0)
    tensor([3., 1., 3., 3.])
    """
    return joining.pad(input, pad, value=value)


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


implements(np.array_equiv)(lambda a1, a2: np.array_equiv(_values(a1), _values(a2)))
implements(np.result_type)(
    lambda *arrays_and_dtypes: np.result_type(
        *(x.spec.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes)
    )
)


implements(np.imag)(lambda val: leaf(np.zeros(val.spec.shape, val.spec.dtype), requires_grad=False))
implements(np.iscomplex)(lambda x: leaf(np.zeros(x.spec.shape, np.bool_), requires_grad=False))


implements(np.iscomplexobj)(lambda x: False)  # noqa: ARG005 (NumPy's names)
implements(np.isreal)(lambda x: isreal(x))  # noqa: PLW0108 (NumPy's names)


implements(np.isrealobj)(lambda x: True)  # noqa: ARG005
implements(np.real_if_close)(lambda a, tol=100: a)  # noqa: ARG005
