# Written by `python .ci/stubs.py`; change the records or the methods, not this file.
import builtins
from collections.abc import Iterator
from tape.tensors import dtypes
from tape.tensors.hooks import Hook, RemovableHandle
from tape.random import Generator
from tape.numpy_interface.protocols import Count, Flat
from tape.tensors.dtypes import Size
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeAlias, TypeVar
from weakref import ReferenceType, ref
import numpy as np
from kernels.calls.object_types import extras_type, leaf_type, maker, taker, tensor_type
from kernels.foundation.specs import Spec, spec_of
from kernels.kinds.form import Descriptor
from kernels.kinds.reference_tape import SlotHolder
from tape.tensors.modes import ON_MADE, active, settle
Array = np.ndarray[Any, Any]
Installed = TypeVar('Installed', bound=Callable[..., Any] | property)
@leaf_type
class AccumulateGrad:
    """The slot of a leaf that requires grad: where sweeps deliver its gradient, and the leaf's node in the graph."""
    __slots__ = ('__weakref__', 'grad', 'hooks', 'over', 'owner', 'spec')
    spec: Spec
    grad: Tensor | None
    hooks: Any
    "The leaf's hooks; the attribute is not set where there are none."
    owner: ReferenceType[Tensor]
    'The leaf: when it is gone, nobody can see the gradient.'
    over: bool
    'Set, to True, where the leaf was an input of a finished transform: nobody can differentiate by it any more.'

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """Nothing: the graph ends here."""

    def name(self) -> str:
        """Return PyTorch's name of this kind of node."""

    def __repr__(self) -> str:
        ...
Slot: TypeAlias = int | AccumulateGrad | None
Value: TypeAlias = np.ndarray[Any, Any] | float
@extras_type
class Extras:
    """Attributes that few tensors have, kept apart so that all others stay small.

    ``counter`` counts the writes to the memory. ``grad`` is the ``.grad`` of a computed tensor that ``retains`` its
    gradient, or of a former leaf, whose slot is in ``leaf`` until it requires grad again.
    """
    __slots__ = ('counter', 'grad', 'leaf', 'retains')
    counter: list[int] | None
    grad: Tensor | None
    leaf: AccumulateGrad | None
    retains: bool

    def __init__(self) -> None:
        ...
class Tensor(SlotHolder):
    """An array that knows how it was computed. Make one with ``tape.tensor`` or an operation."""
    __slots__ = ('__weakref__', '_base', '_bytes', '_extras', '_form', '_offset', '_shared', '_value', '_views')
    _value: Value
    _form: Descriptor
    _offset: int
    _base: Tensor
    _views: list[ReferenceType[Tensor]]
    _shared: bool
    _extras: Extras
    _bytes: int
    __hash__ = object.__hash__
    @property
    def H(self) -> Tensor:
        """The matrix transposed, a view."""
    @property
    def T(self) -> Tensor:
        """The tensor with its dims reversed, a view."""
    def __abs__(self, *, out: Tensor | None = None) -> Tensor:
        ...
    def __add__(self, other: Any, /) -> Tensor:
        ...
    def __and__(self, other: Any, /) -> Tensor:
        ...
    def __array__(self, dtype: Any = None, copy: builtins.bool | None = None) -> Array:
        ...
    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        ...
    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        ...
    __array_priority__: builtins.int
    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **kwargs: Any) -> Any:
        ...
    def __bool__(self) -> builtins.bool:
        ...
    def __contains__(self, element: Any) -> builtins.bool:
        ...
    def __copy__(self) -> Tensor:
        ...
    def __deepcopy__(self, memo: dict[builtins.int, Any]) -> Tensor:
        ...
    def __divmod__(self, x2: Any) -> tuple[Tensor, Tensor]:
        ...
    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: builtins.bool | None = None) -> Any:
        ...
    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        ...
    def __eq__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        ...
    def __float__(self) -> builtins.float:
        ...
    def __floordiv__(self, other: Any, /) -> Tensor:
        ...
    def __format__(self, text: str) -> str:
        ...
    def __ge__(self, other: Any, /) -> Tensor:
        ...
    def __getitem__(self, key: Any) -> Tensor:
        ...
    def __gt__(self, other: Any, /) -> Tensor:
        ...
    def __iadd__(self, other: Any) -> Tensor:
        ...
    def __iand__(self, other: Any) -> Tensor:
        ...
    def __ifloordiv__(self, other: Any) -> Tensor:
        ...
    def __ilshift__(self, other: Any) -> Tensor:
        ...
    def __imod__(self, other: Any) -> Tensor:
        ...
    def __imul__(self, other: Any) -> Tensor:
        ...
    def __index__(self) -> builtins.int:
        ...
    def __int__(self) -> builtins.int:
        ...
    def __invert__(self, *, out: Tensor | None = None) -> Tensor:
        ...
    def __ior__(self, other: Any) -> Tensor:
        ...
    def __ipow__(self, other: Any) -> Tensor:
        ...
    def __irshift__(self, other: Any) -> Tensor:
        ...
    def __isub__(self, other: Any) -> Tensor:
        ...
    def __iter__(self) -> Iterator[Tensor]:
        ...
    def __itruediv__(self, other: Any) -> Tensor:
        ...
    def __ixor__(self, other: Any) -> Tensor:
        ...
    def __le__(self, other: Any, /) -> Tensor:
        ...
    def __len__(self) -> builtins.int:
        ...
    def __lshift__(self, other: Any, /) -> Tensor:
        ...
    def __lt__(self, other: Any, /) -> Tensor:
        ...
    def __matmul__(self, other: Any, /) -> Tensor:
        ...
    def __mod__(self, other: Any, /) -> Tensor:
        ...
    def __mul__(self, other: Any, /) -> Tensor:
        ...
    def __ne__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        ...
    def __neg__(self) -> Tensor:
        ...
    def __new__(cls, *args: Any) -> Tensor:
        ...
    def __or__(self, other: Any, /) -> Tensor:
        ...
    __pandas_priority__: builtins.int
    def __pos__(self) -> Tensor:
        ...
    def __pow__(self, other: Any, /) -> Tensor:
        ...
    def __radd__(self, other: Any, /) -> Tensor:
        ...
    def __rand__(self, other: Any, /) -> Tensor:
        ...
    def __rdivmod__(self, x1: Any) -> tuple[Tensor, Tensor]:
        ...
    def __reduce__(self) -> Any:
        ...
    def __repr__(self) -> str:
        ...
    def __reversed__(self) -> Tensor:
        ...
    def __rfloordiv__(self, other: Any, /) -> Tensor:
        ...
    def __rlshift__(self, other: Any, /) -> Tensor:
        ...
    def __rmatmul__(self, other: Any, /) -> Tensor:
        ...
    def __rmod__(self, other: Any, /) -> Tensor:
        ...
    def __rmul__(self, other: Any, /) -> Tensor:
        ...
    def __ror__(self, other: Any, /) -> Tensor:
        ...
    def __round__(self, ndigits: builtins.int | None = None) -> Tensor:
        ...
    def __rpow__(self, other: Any, /) -> Tensor:
        ...
    def __rrshift__(self, other: Any, /) -> Tensor:
        ...
    def __rshift__(self, other: Any, /) -> Tensor:
        ...
    def __rsub__(self, other: Any, /) -> Tensor:
        ...
    def __rtruediv__(self, other: Any, /) -> Tensor:
        ...
    def __rxor__(self, other: Any, /) -> Tensor:
        ...
    def __setitem__(self, key: Any, value: Any) -> None:
        ...
    def __sub__(self, other: Any, /) -> Tensor:
        ...
    def __truediv__(self, other: Any, /) -> Tensor:
        ...
    def __xor__(self, other: Any, /) -> Tensor:
        ...
    def _repr_html_(self) -> str:
        """Return what a notebook shows: shape, dtype, whether it requires grad or what computed it, and values."""
    def _repr_svg_(self) -> str | None:
        """Return the graph behind the tensor as a drawing; None where there is none, or a large one, or no Graphviz."""
    @property
    def _version(self) -> builtins.int:
        """How often the memory has been written in place."""
    def abs(self) -> Tensor:
        """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def abs_(self) -> Tensor:
        """Absolute value; the gradient at 0 is 0, in place."""
    def absolute(self) -> Tensor:
        """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def absolute_(self) -> Tensor:
        """Absolute value; the gradient at 0 is 0, in place."""
    def acos(self) -> Tensor:
        """Angle in radians of this cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def acos_(self) -> Tensor:
        """Angle in radians of this cosine, in place."""
    def acosh(self) -> Tensor:
        """Positive number of this hyperbolic cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def acosh_(self) -> Tensor:
        """Positive number of this hyperbolic cosine, in place."""
    def add(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Sum of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def add_(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Sum of two tensors, in place; ``alpha`` multiplies the second."""
    def addbmm(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """Return beta * input + alpha * the sum of the products of a batch of matrices."""
    def addbmm_(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """Return beta * input + alpha * the sum of the products of a batch of matrices, in place."""
    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Return ``input + value * tensor1 / tensor2``; integers divide as / does."""
    def addcdiv_(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Return ``input + value * tensor1 / tensor2``; integers divide as / does, in place."""
    def addcmul(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Return ``input + value * tensor1 * tensor2``."""
    def addcmul_(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Return ``input + value * tensor1 * tensor2``, in place."""
    def addmm(self, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """Return beta * input + alpha * (mat1 @ mat2), of matrices; the input is expanded to (m, n)."""
    def addmm_(self, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """Return beta * input + alpha * (mat1 @ mat2), of matrices; the input is expanded to (m, n), in place."""
    def addmv(self, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """Return beta * input + alpha * (mat @ vec); the input is expanded to (m,)."""
    def addmv_(self, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """Return beta * input + alpha * (mat @ vec); the input is expanded to (m,), in place."""
    def addr(self, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """Return beta * input + alpha * outer(vec1, vec2); the input is expanded to (m, n)."""
    def addr_(self, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """Return beta * input + alpha * outer(vec1, vec2); the input is expanded to (m, n), in place."""
    def adjoint(self) -> Tensor:
        """Return a view with the last two dims exchanged."""
    def all(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return whether all elements over ``dim`` are nonzero or True: bool, but uint8 of uint8, as PyTorch has it."""
    def allclose(self, other: Any, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
        """Return whether :func:`isclose` holds everywhere."""
    def amax(self, dim: Any = (), keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Largest element over dims; ties share the gradient evenly, as NumPy's amax."""
    def amin(self, dim: Any = (), keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Smallest element over dims; ties share the gradient evenly, as NumPy's amin."""
    def aminmax(self, *, dim: Any = None, keepdim: Any = None, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the smallest and the largest element, of all or along ``dim``; ties share the gradient evenly."""
    def angle(self) -> Tensor:
        """Return the angle of numbers in the plane: pi where they are negative, else 0; nan stays. The gradient is 0."""
    def any(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return whether an element over ``dim`` is nonzero or True: bool, but uint8 of uint8, as PyTorch has it."""
    def arccos(self) -> Tensor:
        """Angle in radians of this cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arccos_(self) -> Tensor:
        """Angle in radians of this cosine, in place."""
    def arccosh(self) -> Tensor:
        """Positive number of this hyperbolic cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arccosh_(self) -> Tensor:
        """Positive number of this hyperbolic cosine, in place."""
    def arcsin(self) -> Tensor:
        """Angle in radians of this sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arcsin_(self) -> Tensor:
        """Angle in radians of this sine, in place."""
    def arcsinh(self) -> Tensor:
        """Number of this hyperbolic sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arcsinh_(self) -> Tensor:
        """Number of this hyperbolic sine, in place."""
    def arctan(self) -> Tensor:
        """Angle in radians of this tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arctan2(self, other: Any) -> Tensor:
        """Angle in radians of the point (b, a); the gradient at the origin is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arctan2_(self, other: Any) -> Tensor:
        """Angle in radians of the point (b, a); the gradient at the origin is 0, in place."""
    def arctan_(self) -> Tensor:
        """Angle in radians of this tangent, in place."""
    def arctanh(self) -> Tensor:
        """Number of this hyperbolic tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def arctanh_(self) -> Tensor:
        """Number of this hyperbolic tangent, in place."""
    def argmax(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the int64 place of the largest element along ``dim``, or of all elements in order."""
    def argmin(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the int64 place of the smallest element along ``dim``, or of all elements in order."""
    def argsort(self, dim: Any = None, descending: Any = False, stable: Any = False, *, axis: Any = None, kind: Any = None) -> Tensor:
        """Return the int64 places of the elements in order along ``dim``, the last by default."""
    def argwhere(self) -> Tensor:
        """Return the int64 places of all elements that are not zero, a row each."""
    def as_strided(self, size: Any, stride: Any, storage_offset: builtins.int = 0) -> Tensor:
        """Return a view of any pattern of the elements in order; strides and offset count elements."""
    def as_strided_(self, size: Any, stride: Any, storage_offset: builtins.int = 0) -> Tensor:
        """Let this tensor show its memory by size and stride; return it. RuntimeError for a leaf that requires grad."""
    def asin(self) -> Tensor:
        """Angle in radians of this sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def asin_(self) -> Tensor:
        """Angle in radians of this sine, in place."""
    def asinh(self) -> Tensor:
        """Number of this hyperbolic sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def asinh_(self) -> Tensor:
        """Number of this hyperbolic sine, in place."""
    def astype(self, dtype: Any, order: str = 'K', casting: Any = 'unsafe', subok: builtins.bool = True, copy: builtins.bool = True) -> Tensor:
        """Return the tensor in another dtype, recorded where both are floating; itself with ``copy=False`` if it has it."""
    def atan(self) -> Tensor:
        """Angle in radians of this tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def atan2(self, other: Any) -> Tensor:
        """Angle in radians of the point (b, a); the gradient at the origin is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def atan2_(self, other: Any) -> Tensor:
        """Angle in radians of the point (b, a); the gradient at the origin is 0, in place."""
    def atan_(self) -> Tensor:
        """Angle in radians of this tangent, in place."""
    def atanh(self) -> Tensor:
        """Number of this hyperbolic tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def atanh_(self) -> Tensor:
        """Number of this hyperbolic tangent, in place."""
    def backward(self, gradient: Any = None, retain_graph: builtins.bool | None = None, create_graph: builtins.bool = False, inputs: Any = None) -> None:
        """Add the gradient of this tensor, weighted by ``gradient``, to ``.grad`` of the leaves it was computed from."""
    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        """Return beta * input + alpha * bmm(batch1, batch2); the input is expanded to (b, m, n)."""
    def baddbmm_(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """Return beta * input + alpha * bmm(batch1, batch2); the input is expanded to (b, m, n), in place."""
    def bernoulli(self, p: Any = None, *, generator: Generator | None = None) -> Tensor:
        """Return 1 with the probabilities that ``input`` holds (or ``p`` everywhere), else 0, in the dtype of ``input``."""
    def bernoulli_(self, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Fill with 1 with probability p, else 0; the gradient of what stood here is 0."""
    def bincount(self, weights: Any = None, minlength: builtins.int = 0) -> Tensor:
        """Return how often each integer from 0 comes (int64), or the sum of its weights; no gradient."""
    def bitwise_and(self, other: Any) -> Tensor:
        """Bits, or truth, of both; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def bitwise_and_(self, other: Any) -> Tensor:
        """Bits, or truth, of both; integer and bool tensors only, in place."""
    def bitwise_left_shift(self, other: Any) -> Tensor:
        """Bits of the first moved up by the second; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def bitwise_left_shift_(self, other: Any) -> Tensor:
        """Bits of the first moved up by the second; integer tensors only, in place."""
    def bitwise_not(self) -> Tensor:
        """Bits, or truth, turned; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def bitwise_not_(self) -> Tensor:
        """Bits, or truth, turned; integer and bool tensors only, in place."""
    def bitwise_or(self, other: Any) -> Tensor:
        """Bits, or truth, of either; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def bitwise_or_(self, other: Any) -> Tensor:
        """Bits, or truth, of either; integer and bool tensors only, in place."""
    def bitwise_right_shift(self, other: Any) -> Tensor:
        """Bits of the first moved down by the second, its sign kept; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def bitwise_right_shift_(self, other: Any) -> Tensor:
        """Bits of the first moved down by the second, its sign kept; integer tensors only, in place."""
    def bitwise_xor(self, other: Any) -> Tensor:
        """Bits, or truth, of one of the two but not both; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def bitwise_xor_(self, other: Any) -> Tensor:
        """Bits, or truth, of one of the two but not both; integer and bool tensors only, in place."""
    def bmm(self, mat2: Any) -> Tensor:
        """Return the products of a batch of matrices, (b, m, k) and (b, k, n): (b, m, n)."""
    def bool(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as bool."""
    def broadcast_to(self, size: Any) -> Tensor:
        """Return a view of a larger shape, in which dims of length one are repeated."""
    def byte(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as uint8."""
    def cbrt(self) -> Tensor:
        """Cube root, of negative numbers too. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def cbrt_(self) -> Tensor:
        """Cube root, of negative numbers too, in place."""
    def ceil(self) -> Tensor:
        """Smallest integer that is not smaller; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def ceil_(self) -> Tensor:
        """Smallest integer that is not smaller; the gradient is 0, in place."""
    def char(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as int8."""
    def cholesky(self, upper: builtins.bool = False) -> Tensor:
        """Return the lower triangular factor L of positive-definite (*, n, n) matrices A = L L^T, or U of A = U^T U."""
    def cholesky_inverse(self, upper: builtins.bool = False) -> Tensor:
        """Return the inverse of A, given by its Cholesky factor, or U with ``upper=True``."""
    def cholesky_solve(self, L: Any, upper: builtins.bool = False) -> Tensor:
        """Return X with A X = ``input``, A given by its Cholesky factor L, or U with ``upper=True``."""
    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Return at most ``chunks`` views of ranges of one length along ``dim``; the last may be shorter."""
    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None."""
    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None, in place."""
    def clamp_max(self, max: Any) -> Tensor:
        """First tensor, but not more than the second; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def clamp_max_(self, max: Any) -> Tensor:
        """First tensor, but not more than the second; a tie gives the first the gradient, in place."""
    def clamp_min(self, min: Any) -> Tensor:
        """First tensor, but not less than the second; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def clamp_min_(self, min: Any) -> Tensor:
        """First tensor, but not less than the second; a tie gives the first the gradient, in place."""
    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None."""
    def clip_(self, min: Any = None, max: Any = None) -> Tensor:
        """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None, in place."""
    def clone(self, *, memory_format: Any = None) -> Tensor:
        """Return a copy in memory of its own, recorded."""
    def compress(self, condition: Any, axis: Any = None) -> Tensor:
        """Return the places along ``axis``, or of the flat tensor, where the condition holds."""
    def conj(self) -> Tensor:
        """Return the tensor itself: there are no complex ones."""
    def conjugate(self) -> Tensor:
        """Return the tensor itself: there are no complex ones."""
    def contiguous(self, memory_format: Any = None) -> Tensor:
        """Return the tensor itself if its memory is C-contiguous, else a copy."""
    def copy(self, order: str = 'C') -> Tensor:
        """Return a copy, recorded: PyTorch's ``clone``."""
    def copy_(self, other: Any) -> Tensor:
        """Copy values, broadcast, into this tensor."""
    def copysign(self, other: Any) -> Tensor:
        """First tensor with the sign of the second; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def copysign_(self, other: Any) -> Tensor:
        """First tensor with the sign of the second; the gradient at 0 is 0, in place."""
    def corrcoef(self) -> Tensor:
        """Return the correlations (N, N) of the rows of x (N, M), which are variables; a 0-d tensor for one row."""
    def cos(self) -> Tensor:
        """Cosine of an angle in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def cos_(self) -> Tensor:
        """Cosine of an angle in radians, in place."""
    def cosh(self) -> Tensor:
        """Hyperbolic cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def cosh_(self) -> Tensor:
        """Hyperbolic cosine, in place."""
    def count_nonzero(self, dim: Any = None, *, axis: Any = None) -> Tensor:
        """Return how many elements over ``dim`` are nonzero or True, as int64."""
    def cov(self, *, correction: builtins.int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
        """Return the covariances (N, N) of the rows of x (N, M), which are variables; a 0-d tensor for one row."""
    def cpu(self, memory_format: Any = None) -> Tensor:
        """Return the tensor itself."""
    def cross(self, other: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
        """Return the vector product along a dim of size 3: the first of that size if not given."""
    def cuda(self, device: Any = 'cuda', non_blocking: builtins.bool = False, memory_format: Any = None) -> Tensor:
        """Raise RuntimeError: the only device is "cpu"."""
    def cummax(self, dim: Any = None, *, axis: Any = None) -> Any:
        """Return the running maximum along ``dim`` and its int64 places: the last of equals, to which the gradient goes."""
    def cummin(self, dim: Any = None, *, axis: Any = None) -> Any:
        """Return the running minimum along ``dim`` and its int64 places: the last of equals, to which the gradient goes."""
    def cumprod(self, dim: Any = None, dtype: Any = None, out: Any = None, *, axis: Any = None) -> Tensor:
        """Return the running product along ``dim``, of the shape of x; ints and bools multiply to int64."""
    def cumprod_(self, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
        """Return the running product along ``dim``, of the shape of x; ints and bools multiply to int64, in place."""
    def cumsum(self, dim: Any = None, dtype: Any = None, out: Any = None, *, axis: Any = None) -> Tensor:
        """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64."""
    def cumsum_(self, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
        """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64, in place."""
    @property
    def data(self) -> Tensor:
        """The same memory as a tensor without history, whose writes are counted apart."""
    @data.setter
    def data(self, other: Tensor) -> None:
        ...
    def deg2rad(self) -> Tensor:
        """Angle in radians of one in degrees. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def deg2rad_(self) -> Tensor:
        """Angle in radians of one in degrees, in place."""
    def det(self) -> Tensor:
        """Return the determinants (*) of (*, n, n) matrices; singular ones have gradients too."""
    def detach(self) -> Tensor:
        """Return a tensor of the same memory, without history; what is a value, as NumPy's scalars, is copied."""
    def detach_(self) -> Tensor:
        """Cut this tensor off its history; return it. RuntimeError for a view: use ``detach()``."""
    @property
    def device(self) -> dtypes.device:
        """Always "cpu"."""
    def diag(self, diagonal: builtins.int = 0) -> Tensor:
        """Return a copy of a diagonal of a matrix, or the matrix with a vector on that diagonal and zeros elsewhere."""
    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1) -> Tensor:
        """Return matrices in two new dims, with the last dim of x on a diagonal and zeros elsewhere."""
    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """Return the matrix with all elements on a diagonal, and zeros elsewhere."""
    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """Return a view of the diagonal of two dims, as the last dim; ``offset`` counts from it towards ``dim2``."""
    def diagonal_scatter(self, src: Any, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """Return a copy with ``src`` on the diagonal of two dims; it has the shape of :func:`diagonal`."""
    def diff(self, n: builtins.int = 1, dim: Any = None, prepend: Any = None, append: Any = None, *, axis: Any = None) -> Tensor:
        """Return the n-th differences of neighbours along ``dim``, the last by default."""
    def digamma(self) -> Tensor:
        """Derivative of the logarithm of the gamma function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def digamma_(self) -> Tensor:
        """Derivative of the logarithm of the gamma function, in place."""
    def dim(self) -> builtins.int:
        """Return the number of dims."""
    def dist(self, other: Any, p: Any = 2) -> Tensor:
        """Return the norm of the difference of two tensors, whose shapes broadcast."""
    def div(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope."""
    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope, in place."""
    def divide(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope."""
    def divide_(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope, in place."""
    def dot(self, tensor: Any) -> Any:
        """Return the inner product of two vectors, 0-d."""
    def double(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as float64."""
    def dsplit(self, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """Return views of equal ranges along the third dim, or of ranges cut at these places."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, a NumPy dtype."""
    def element_size(self) -> builtins.int:
        """Return the number of bytes of an element."""
    def entr(self) -> Tensor:
        """Entropy, -x log x; 0 at 0 and -inf below. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def entr_(self) -> Tensor:
        """Entropy, -x log x; 0 at 0 and -inf below, in place."""
    def eq(self, other: Any) -> Tensor:
        """True where both are equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def eq_(self, other: Any) -> Tensor:
        """True where both are equal, in place."""
    def equal(self, other: Tensor) -> builtins.bool:
        """Return whether two tensors have one shape and equal elements; ``input == other`` compares element by element."""
    def erf(self) -> Tensor:
        """Error function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def erf_(self) -> Tensor:
        """Error function, in place."""
    def erfc(self) -> Tensor:
        """One less the error function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def erfc_(self) -> Tensor:
        """One less the error function, in place."""
    def erfcx(self) -> Tensor:
        """Complementary error function times exp(x x). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def erfcx_(self) -> Tensor:
        """Complementary error function times exp(x x), in place."""
    def erfinv(self) -> Tensor:
        """Number whose error function this is. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def erfinv_(self) -> Tensor:
        """Number whose error function this is, in place."""
    def exp(self) -> Tensor:
        """Exponential. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def exp2(self) -> Tensor:
        """Two raised to the tensor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def exp2_(self) -> Tensor:
        """Two raised to the tensor, in place."""
    def exp_(self) -> Tensor:
        """Exponential, in place."""
    def expand(self, *sizes: Any, size: Any = None) -> Tensor:
        """Return a view with dims of length one repeated; -1 keeps a dim."""
    def expand_as(self, other: Tensor) -> Tensor:
        """Return a view of the shape of another tensor, in which dims of length one are repeated."""
    def expm1(self) -> Tensor:
        """Exponential less one, right for small arguments. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def expm1_(self) -> Tensor:
        """Exponential less one, right for small arguments, in place."""
    def exponential_(self, lambd: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with exponential numbers of the rate lambd; the gradient of what stood here is 0."""
    def fill(self, value: Any) -> None:
        """Write a number to all elements, recorded as ``x.fill_(value)``, and return None, as NumPy does."""
    def fill_(self, value: Any) -> Tensor:
        """Fill with one number, or with a 0-d tensor."""
    def fill_diagonal_(self, fill_value: Any, wrap: builtins.bool = False) -> Tensor:
        """Fill the main diagonal in place; with ``wrap`` it begins again below the first square of a tall matrix."""
    def fix(self) -> Tensor:
        """Integer part, towards zero; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def fix_(self) -> Tensor:
        """Integer part, towards zero; the gradient is 0, in place."""
    @property
    def flat(self) -> Flat:
        """The elements in order: iterated over, indexed and written to as NumPy's ``flat``."""
    @flat.setter
    def flat(self, value: Any) -> None:
        ...
    def flatten(self, start_dim: Any = 0, end_dim: builtins.int = -1, *, order: Any = None) -> Tensor:
        """Return the tensor with dims ``start_dim`` to ``end_dim`` run together; itself where there is nothing to do."""
    def flip(self, *at: Any, dims: Any = None) -> Tensor:
        """Return a copy with the order of elements reversed along ``dims``: ``input.flip(0, 1)`` or ``input.flip((0, 1))``."""
    def fliplr(self) -> Tensor:
        """Return a copy with the columns in reversed order."""
    def flipud(self) -> Tensor:
        """Return a copy with the rows in reversed order."""
    def float(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as float32."""
    def float_power(self, exponent: Any) -> Tensor:
        """Return x raised to the exponent in float64, whatever the dtypes."""
    def float_power_(self, exponent: Any) -> Tensor:
        """Return x raised to the exponent in float64, whatever the dtypes, in place."""
    def floor(self) -> Tensor:
        """Largest integer that is not larger; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def floor_(self) -> Tensor:
        """Largest integer that is not larger; the gradient is 0, in place."""
    def floor_divide(self, other: Any) -> Tensor:
        """Largest integer not larger than the quotient; the gradients are 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def floor_divide_(self, other: Any) -> Tensor:
        """Largest integer not larger than the quotient; the gradients are 0, in place."""
    def fmax(self, other: Any) -> Tensor:
        """Larger of two tensors, or the one that is not nan; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def fmax_(self, other: Any) -> Tensor:
        """Larger of two tensors, or the one that is not nan; a tie gives the first the gradient, in place."""
    def fmin(self, other: Any) -> Tensor:
        """Smaller of two tensors, or the one that is not nan; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def fmin_(self, other: Any) -> Tensor:
        """Smaller of two tensors, or the one that is not nan; a tie gives the first the gradient, in place."""
    def fmod(self, other: Any) -> Tensor:
        """What truncated division leaves, with the sign of the dividend. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def fmod_(self, other: Any) -> Tensor:
        """What truncated division leaves, with the sign of the dividend, in place."""
    def frac(self) -> Tensor:
        """What the integer part leaves, with the sign of the tensor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def frac_(self) -> Tensor:
        """What the integer part leaves, with the sign of the tensor, in place."""
    def frexp(self) -> Any:
        """Return the mantissas, of absolute value in [0.5, 1), and the int32 exponents of two; x is their ``ldexp``."""
    def gather(self, dim: builtins.int, index: Any, *, sparse_grad: builtins.bool = False) -> Tensor:
        """Return ``input[i][index[i][j]]`` for dim 1 and so on: along ``dim`` the index says which place to take."""
    def gcd(self, other: Any) -> Tensor:
        """Greatest common divisor, not negative; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def gcd_(self, other: Any) -> Tensor:
        """Greatest common divisor, not negative; integer tensors only, in place."""
    def ge(self, other: Any) -> Tensor:
        """True where the first is greater or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def ge_(self, other: Any) -> Tensor:
        """True where the first is greater or equal, in place."""
    def ger(self, vec2: Any) -> Any:
        """Return the products (m, n) of each element of a vector with each of another."""
    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward accumulated; None where there is none."""
    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        ...
    @property
    def grad_fn(self) -> Any:
        """The node that computed this tensor; None for leaves."""
    def greater(self, other: Any) -> Tensor:
        """True where the first is greater. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def greater_(self, other: Any) -> Tensor:
        """True where the first is greater, in place."""
    def greater_equal(self, other: Any) -> Tensor:
        """True where the first is greater or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def greater_equal_(self, other: Any) -> Tensor:
        """True where the first is greater or equal, in place."""
    def gt(self, other: Any) -> Tensor:
        """True where the first is greater. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def gt_(self, other: Any) -> Tensor:
        """True where the first is greater, in place."""
    def half(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as float16."""
    def heaviside(self, values: Any) -> Tensor:
        """0 where the first is negative or nan, 1 where it is positive, the second where it is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def heaviside_(self, values: Any) -> Tensor:
        """0 where the first is negative or nan, 1 where it is positive, the second where it is 0, in place."""
    def histc(self, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
        """Return how many elements lie in each of ``bins`` bins from ``min`` to ``max``, in the dtype of x; no gradient."""
    def histogram(self, bins: Any, *, range: Any = None, weight: Any = None, density: builtins.bool = False) -> Any:
        """Return how many elements lie in each bin, and the edges, in the dtype of x; no gradient."""
    def hsplit(self, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """Return views of equal ranges along the columns, or along a vector, or of ranges cut at these places."""
    def hypot(self, other: Any) -> Tensor:
        """Square root of the sum of two squares, without overflow. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def hypot_(self, other: Any) -> Tensor:
        """Square root of the sum of two squares, without overflow, in place."""
    def i0(self) -> Tensor:
        """Modified Bessel function of the first kind of order 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def i0_(self) -> Tensor:
        """Modified Bessel function of the first kind of order 0, in place."""
    def i0e(self) -> Tensor:
        """Modified Bessel function of order 0 times exp(-|x|). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def i0e_(self) -> Tensor:
        """Modified Bessel function of order 0 times exp(-|x|), in place."""
    def i1(self) -> Tensor:
        """Modified Bessel function of the first kind of order 1. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def i1_(self) -> Tensor:
        """Modified Bessel function of the first kind of order 1, in place."""
    def i1e(self) -> Tensor:
        """Modified Bessel function of order 1 times exp(-|x|). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def i1e_(self) -> Tensor:
        """Modified Bessel function of order 1 times exp(-|x|), in place."""
    def igamma(self, other: Any) -> Tensor:
        """Return the regularised lower incomplete gamma function of order x; the gradient goes to ``other`` alone."""
    def igammac(self, other: Any) -> Tensor:
        """Return the regularised upper incomplete gamma function of order x, one less :func:`igamma`."""
    @property
    def imag(self) -> Tensor:
        """Zeros: there are no complex tensors."""
    def index_add(self, dim: builtins.int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
        """Add ``alpha`` times the places of ``source`` along ``dim`` to those that a vector names, in place."""
    def index_add_(self, dim: builtins.int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
        """Add ``alpha`` times the places of ``source`` along ``dim`` to those that a vector names, in place."""
    def index_copy(self, dim: builtins.int, index: Any, source: Any) -> Tensor:
        """Write the places of ``source`` along ``dim`` to those that a vector names, in place; the last one stays."""
    def index_copy_(self, dim: builtins.int, index: Any, source: Any) -> Tensor:
        """Write the places of ``source`` along ``dim`` to those that a vector names, in place; the last one stays."""
    def index_fill(self, dim: builtins.int, index: Any, value: Any) -> Tensor:
        """Write one number, or a 0-d tensor, to the places along ``dim`` that a vector names, in place."""
    def index_fill_(self, dim: builtins.int, index: Any, value: Any) -> Tensor:
        """Write one number, or a 0-d tensor, to the places along ``dim`` that a vector names, in place."""
    def index_put(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """Write values to the elements picked by a tuple of index tensors, in a copy; with ``accumulate`` add them."""
    def index_put_(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """Write values to the elements that index tensors pick, the last one for each; with ``accumulate`` add them."""
    def index_reduce(self, dim: builtins.int, index: Any, source: Any, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
        """Reduce the places of ``source`` along ``dim`` onto those that a vector names, in place."""
    def index_reduce_(self, dim: builtins.int, index: Any, source: Any, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
        """Reduce the places of ``source`` along ``dim`` onto those that a vector names, in place."""
    def index_select(self, dim: builtins.int, index: Any) -> Tensor:
        """Return copies of the places along ``dim`` that an integer vector gives."""
    def inner(self, other: Any) -> Any:
        """Return the sums of products over the last dim of both; the other dims stand side by side."""
    def int(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as int32."""
    def inverse(self) -> Tensor:
        """Return the inverse of (*, n, n) matrices. LinAlgError if one is singular."""
    def invert(self) -> Tensor:
        """Bits, or truth, turned; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def invert_(self) -> Tensor:
        """Bits, or truth, turned; integer and bool tensors only, in place."""
    def is_complex(self) -> builtins.bool:
        """Return False: there are no complex tensors."""
    def is_contiguous(self, memory_format: Any = None) -> builtins.bool:
        """Return whether the memory is C-contiguous."""
    @property
    def is_cpu(self) -> builtins.bool:
        """Whether the memory is the CPU's: always."""
    @property
    def is_cuda(self) -> builtins.bool:
        """What PyTorch's tensors may be and these are not: False."""
    def is_floating_point(self) -> builtins.bool:
        """Return whether the dtype is floating."""
    def is_inference(self) -> builtins.bool:
        """Return whether the tensor was made in inference mode, or views one that was."""
    @property
    def is_leaf(self) -> builtins.bool:
        """Whether the user made it, or it has no history."""
    @property
    def is_meta(self) -> builtins.bool:
        """What PyTorch's tensors may be and these are not: False."""
    @property
    def is_mps(self) -> builtins.bool:
        """What PyTorch's tensors may be and these are not: False."""
    def is_nonzero(self) -> builtins.bool:
        """Return whether the only element is not zero; RuntimeError where there is another number of them."""
    @property
    def is_quantized(self) -> builtins.bool:
        """What PyTorch's tensors may be and these are not: False."""
    def is_same_size(self, other: Any) -> builtins.bool:
        """Return whether two tensors have one shape."""
    def is_signed(self) -> builtins.bool:
        """Return whether the dtype has negative numbers."""
    @property
    def is_sparse(self) -> builtins.bool:
        """What PyTorch's tensors may be and these are not: False."""
    def isclose(self, other: Any, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> Tensor:
        """Return True where ``|input - other| <= atol + rtol |other|``, or both are equal; with ``equal_nan``, both nan."""
    def isfinite(self) -> Tensor:
        """True where the tensor is neither inf nor nan. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def isfinite_(self) -> Tensor:
        """True where the tensor is neither inf nor nan, in place."""
    def isinf(self) -> Tensor:
        """True where the tensor is inf or -inf. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def isinf_(self) -> Tensor:
        """True where the tensor is inf or -inf, in place."""
    def isnan(self) -> Tensor:
        """True where the tensor is nan. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def isnan_(self) -> Tensor:
        """True where the tensor is nan, in place."""
    def isneginf(self) -> Tensor:
        """True where the tensor is -inf. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def isneginf_(self) -> Tensor:
        """True where the tensor is -inf, in place."""
    def isposinf(self) -> Tensor:
        """True where the tensor is inf. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def isposinf_(self) -> Tensor:
        """True where the tensor is inf, in place."""
    def isreal(self) -> Tensor:
        """Return True for each element: there are no complex tensors."""
    def item(self, *args: Any) -> Any:
        """Return the only element as a Python number."""
    @property
    def itemsize(self) -> builtins.int:
        """The number of bytes of an element."""
    def kron(self, other: Any) -> Any:
        """Return the Kronecker product: each element of the first times the whole of the other."""
    def kthvalue(self, k: builtins.int, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the ``k``-th smallest element along ``dim``, counted from 1, and its int64 place."""
    def lcm(self, other: Any) -> Tensor:
        """Least common multiple, not negative; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def lcm_(self, other: Any) -> Tensor:
        """Least common multiple, not negative; integer tensors only, in place."""
    def ldexp(self, other: Any) -> Tensor:
        """Return x times two to the power of ``other``; it does not overflow where the result does not."""
    def ldexp_(self, other: Any) -> Tensor:
        """Return x times two to the power of ``other``; it does not overflow where the result does not, in place."""
    def le(self, other: Any) -> Tensor:
        """True where the first is less or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def le_(self, other: Any) -> Tensor:
        """True where the first is less or equal, in place."""
    def left_shift(self, other: Any) -> Tensor:
        """Bits of the first moved up by the second; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def left_shift_(self, other: Any) -> Tensor:
        """Bits of the first moved up by the second; integer tensors only, in place."""
    def lerp(self, end: Any, weight: Any) -> Tensor:
        """Return the point between x and ``end``: x for weight 0, ``end`` for weight 1, a number or a tensor."""
    def lerp_(self, end: Any, weight: Any) -> Tensor:
        """Return the point between x and ``end``: x for weight 0, ``end`` for weight 1, a number or a tensor, in place."""
    def less(self, other: Any) -> Tensor:
        """True where the first is less. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def less_(self, other: Any) -> Tensor:
        """True where the first is less, in place."""
    def less_equal(self, other: Any) -> Tensor:
        """True where the first is less or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def less_equal_(self, other: Any) -> Tensor:
        """True where the first is less or equal, in place."""
    def lgamma(self) -> Tensor:
        """Logarithm of the absolute value of the gamma function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def lgamma_(self) -> Tensor:
        """Logarithm of the absolute value of the gamma function, in place."""
    def log(self) -> Tensor:
        """Natural logarithm. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def log10(self) -> Tensor:
        """Logarithm to base 10. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def log10_(self) -> Tensor:
        """Logarithm to base 10, in place."""
    def log1p(self) -> Tensor:
        """Logarithm of one plus the tensor, right for small arguments. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def log1p_(self) -> Tensor:
        """Logarithm of one plus the tensor, right for small arguments, in place."""
    def log2(self) -> Tensor:
        """Logarithm to base 2. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def log2_(self) -> Tensor:
        """Logarithm to base 2, in place."""
    def log_(self) -> Tensor:
        """Natural logarithm, in place."""
    def log_ndtr(self) -> Tensor:
        """Logarithm of the area under the normal density up to x. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def log_ndtr_(self) -> Tensor:
        """Logarithm of the area under the normal density up to x, in place."""
    def log_softmax(self, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
        """Return the logarithm of :func:`softmax`, exact where it is small; arguments as there."""
    def logaddexp(self, other: Any) -> Tensor:
        """Logarithm of the sum of the exponentials of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def logaddexp2(self, other: Any) -> Tensor:
        """Logarithm to base 2 of the sum of two raised to two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def logaddexp2_(self, other: Any) -> Tensor:
        """Logarithm to base 2 of the sum of two raised to two tensors, in place."""
    def logaddexp_(self, other: Any) -> Tensor:
        """Logarithm of the sum of the exponentials of two tensors, in place."""
    def logcumsumexp(self, dim: Any = None, *, axis: Any = None) -> Tensor:
        """Return ``log(cumsum(exp(input)))`` along ``dim`` without overflow on the way; floating tensors only."""
    def logdet(self) -> Tensor:
        """Return the logarithms (*) of determinants: nan where negative, -inf where 0."""
    def logical_and(self, other: Any) -> Tensor:
        """True where both are nonzero or True. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def logical_and_(self, other: Any) -> Tensor:
        """True where both are nonzero or True, in place."""
    def logical_not(self) -> Tensor:
        """True where the tensor is zero or False. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def logical_not_(self) -> Tensor:
        """True where the tensor is zero or False, in place."""
    def logical_or(self, other: Any) -> Tensor:
        """True where one is nonzero or True. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def logical_or_(self, other: Any) -> Tensor:
        """True where one is nonzero or True, in place."""
    def logical_xor(self, other: Any) -> Tensor:
        """True where one of the two, but not both, is nonzero or True. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def logical_xor_(self, other: Any) -> Tensor:
        """True where one of the two, but not both, is nonzero or True, in place."""
    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """Return ``log(input / (1 - input))``; with ``eps``, of x clamped to between eps and 1 - eps."""
    def logit_(self, eps: builtins.float | None = None) -> Tensor:
        """Return ``log(input / (1 - input))``; with ``eps``, of x clamped to between eps and 1 - eps, in place."""
    def logsumexp(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return ``log(sum(exp(input)))`` over ``dim`` (an int or a tuple), without overflow on the way."""
    def long(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as int64."""
    def lt(self, other: Any) -> Tensor:
        """True where the first is less. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def lt_(self, other: Any) -> Tensor:
        """True where the first is less, in place."""
    def lu(self, pivot: builtins.bool = True, get_infos: builtins.bool = False) -> Any:
        """Return the packed factors of (*, m, n) matrices and the int32 rows exchanged, from 1: linalg.lu_factor_ex."""
    def lu_solve(self, LU_data: Any, LU_pivots: Any) -> Tensor:
        """Return X with A X = ``input``, A given by ``linalg.lu_factor``."""
    @property
    def mH(self) -> Tensor:
        """The tensor with its last two dims exchanged, a view."""
    @property
    def mT(self) -> Tensor:
        """The tensor with its last two dims exchanged, a view."""
    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor."""
    def masked_fill_(self, mask: Any, value: Any) -> Tensor:
        """Fill where a bool mask, broadcast to this shape, holds with one number, or with a 0-d tensor."""
    def masked_scatter(self, mask: Any, source: Any) -> Tensor:
        """Write the first elements of ``source`` where a bool mask, broadcast to this shape, holds, in place."""
    def masked_scatter_(self, mask: Any, source: Any) -> Tensor:
        """Write the first elements of ``source`` where a bool mask, broadcast to this shape, holds, in place."""
    def masked_select(self, mask: Any) -> Tensor:
        """Return the elements where a bool mask holds, in one dim; x and mask broadcast."""
    def matmul(self, other: Any) -> Tensor:
        """Return the product of vectors, matrices and batches of them, as ``@`` does; batches are broadcast."""
    def matrix_exp(self) -> Tensor:
        """Return the exponentials of (*, n, n) matrices."""
    def matrix_power(self, n: builtins.int) -> Tensor:
        """Return the n-th powers of square matrices; of their inverses if n is negative."""
    def max(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the maximum of all elements, or of each row along ``dim`` with its place."""
    def maximum(self, other: Any) -> Tensor:
        """Larger of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def maximum_(self, other: Any) -> Tensor:
        """Larger of two tensors, element by element; a tie gives each half of the gradient, in place."""
    def mean(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the mean over ``dim`` (an int, a tuple, or None for all); floating tensors only."""
    def median(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the lower median of all elements, nan if one is nan, or of each row along ``dim`` with its int64 place."""
    def min(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the minimum of all elements, or of each row along ``dim`` with its place."""
    def minimum(self, other: Any) -> Tensor:
        """Smaller of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def minimum_(self, other: Any) -> Tensor:
        """Smaller of two tensors, element by element; a tie gives each half of the gradient, in place."""
    def mm(self, mat2: Any) -> Tensor:
        """Return the product of an (m, k) and a (k, n) matrix."""
    def mode(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the most frequent element along ``dim`` (the last), the smallest of several, and its last int64 place."""
    def moveaxis(self, source: Any, destination: Any) -> Tensor:
        """Return a view with dims ``source`` at the places ``destination``; the others keep their order."""
    def movedim(self, source: Any, destination: Any) -> Tensor:
        """Return a view with dims ``source`` at the places ``destination``; the others keep their order."""
    def msort(self) -> Tensor:
        """Return the elements in order along the first dim."""
    def mul(self, other: Any) -> Tensor:
        """Product of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def mul_(self, other: Any) -> Tensor:
        """Product of two tensors, in place."""
    def multiply(self, other: Any) -> Tensor:
        """Product of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def multiply_(self, other: Any) -> Tensor:
        """Product of two tensors, in place."""
    def mv(self, vec: Any) -> Tensor:
        """Return the product of an (m, k) matrix and a (k,) vector."""
    def mvlgamma(self, p: builtins.int) -> Tensor:
        """Return the logarithm of the multivariate gamma function of dimension p; x is above (p - 1) / 2."""
    def mvlgamma_(self, p: builtins.int) -> Tensor:
        """Return the logarithm of the multivariate gamma function of dimension p; x is above (p - 1) / 2, in place."""
    def nan_to_num(self, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
        """Return x with numbers for nan (0), inf and -inf (the largest and smallest of the dtype)."""
    def nan_to_num_(self, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
        """Return x with numbers for nan (0), inf and -inf (the largest and smallest of the dtype), in place."""
    def nanmean(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the mean over ``dim`` of what is not nan; nan where nothing is left. Floating tensors only."""
    def nanmedian(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the lower median of all elements that are not nan, or of each row along ``dim`` with its int64 place."""
    def nanquantile(self, q: Any, dim: Any = None, keepdim: Any = None, *, interpolation: str = 'linear', axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return quantiles, of all or along ``dim``, of the elements that are not nan."""
    def nansum(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the sum over ``dim`` of what is not nan; nan gets no gradient."""
    def narrow(self, dim: builtins.int, start: Any, length: builtins.int) -> Tensor:
        """Return a view of ``length`` places along ``dim``, from ``start`` on, which may be a 0-d integer tensor."""
    def narrow_copy(self, dim: builtins.int, start: Any, length: builtins.int) -> Tensor:
        """Return a copy of :func:`narrow`."""
    @property
    def nbytes(self) -> builtins.int:
        """The number of bytes of all elements."""
    @property
    def ndim(self) -> builtins.int:
        """The number of dims."""
    def ndimension(self) -> builtins.int:
        """Return the number of dims."""
    def ndtr(self) -> Tensor:
        """Area under the normal density up to x. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def ndtr_(self) -> Tensor:
        """Area under the normal density up to x, in place."""
    def ndtri(self) -> Tensor:
        """Number up to which the area under the normal density is x. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def ndtri_(self) -> Tensor:
        """Number up to which the area under the normal density is x, in place."""
    def ne(self, other: Any) -> Tensor:
        """True where they differ. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def ne_(self, other: Any) -> Tensor:
        """True where they differ, in place."""
    def neg(self) -> Tensor:
        """Tensor with its sign turned. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def neg_(self) -> Tensor:
        """Tensor with its sign turned, in place."""
    def negative(self) -> Tensor:
        """Tensor with its sign turned. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def negative_(self) -> Tensor:
        """Tensor with its sign turned, in place."""
    def nelement(self) -> builtins.int:
        """Return the number of elements."""
    def new(self, *args: Any) -> Tensor:
        """Return a tensor of this dtype: of these sizes, not set, or of a list's, an array's or a tensor's elements."""
    def new_empty(self, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
        """Return a tensor whose elements are not set, of the dtype of this one."""
    def new_full(self, size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
        """Return a tensor filled with one number, of the dtype of this one."""
    def new_ones(self, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
        """Return a tensor of ones, of the dtype of this one."""
    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
        """Return a new leaf holding a copy of data, of the dtype of this one."""
    def new_zeros(self, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: builtins.bool = False, pin_memory: builtins.bool = False) -> Tensor:
        """Return a tensor of zeros, of the dtype of this one."""
    def nextafter(self, other: Any) -> Tensor:
        """Next number of the dtype, from the first towards the second; where they are equal, no gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def nextafter_(self, other: Any) -> Tensor:
        """Next number of the dtype, from the first towards the second; where they are equal, no gradient, in place."""
    def nonzero(self, *, as_tuple: builtins.bool = False) -> Any:
        """Return the int64 places of all elements that are not zero: a row each, or with ``as_tuple`` a vector a dim."""
    def norm(self, p: Any = 'fro', dim: Any = None, keepdim: Any = None, dtype: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the norm of all elements, or of vectors over ``dim``: linalg.vector_norm under PyTorch's old name."""
    def normal_(self, mean: builtins.float = 0.0, std: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with normal numbers of this mean and standard deviation; the gradient of what stood here is 0."""
    def not_equal(self, other: Any) -> Tensor:
        """True where they differ. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def not_equal_(self, other: Any) -> Tensor:
        """True where they differ, in place."""
    def numel(self) -> builtins.int:
        """Return the number of elements."""
    def numpy(self, *, force: builtins.bool = False) -> Array:
        """Return the value as an array of the same memory; without ``force`` it raises where a gradient would be lost."""
    def outer(self, vec2: Any) -> Any:
        """Return the products (m, n) of each element of a vector with each of another."""
    @property
    def output_nr(self) -> builtins.int:
        """Which output of its node this is: of a Function with several results, else 0."""
    def permute(self, *order: Any, dims: Any = None) -> Tensor:
        """Return a view with the dims in the order given."""
    def pinverse(self, rcond: builtins.float = 1e-15) -> Tensor:
        """Return the pseudoinverses of matrices: see linalg.pinv."""
    def polygamma(self, n: builtins.int) -> Tensor:
        """Return the n-th derivative of the digamma function; n is an int, RuntimeError below 0."""
    def polygamma_(self, n: builtins.int) -> Tensor:
        """Return the n-th derivative of the digamma function; n is an int, RuntimeError below 0, in place."""
    def positive(self) -> Tensor:
        """The tensor itself. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def positive_(self) -> Tensor:
        """The tensor itself, in place."""
    def pow(self, exponent: Any) -> Tensor:
        """First tensor raised to the second. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def pow_(self, exponent: Any) -> Tensor:
        """First tensor raised to the second, in place."""
    def power(self, exponent: Any) -> Tensor:
        """First tensor raised to the second. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def power_(self, exponent: Any) -> Tensor:
        """First tensor raised to the second, in place."""
    def prod(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the product over ``dim`` (an int, a tuple, or None for all); ints and bools multiply to int64."""
    def ptp(self, axis: Any = None, out: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """Return the largest element less the smallest, over ``axis``."""
    def put(self, index: Any, source: Any, accumulate: builtins.bool = False) -> Tensor:
        """Return a copy with values at the elements of these numbers, in C order; with ``accumulate`` they are added."""
    def put_(self, index: Any, source: Any, accumulate: builtins.bool = False) -> Tensor:
        """Write as many values to the elements of these numbers, in C order; with ``accumulate`` add them."""
    def qr(self, some: builtins.bool = True) -> Any:
        """Return Q and R of matrices, reduced or, with ``some=False``, complete: see linalg.qr."""
    def quantile(self, q: Any, dim: Any = None, keepdim: Any = None, *, interpolation: str = 'linear', axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return quantiles of all elements or along ``dim``; nan where an element is nan."""
    def rad2deg(self) -> Tensor:
        """Angle in degrees of one in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def rad2deg_(self) -> Tensor:
        """Angle in degrees of one in radians, in place."""
    def random_(self, *bounds: Any, low: builtins.int = 0, high: Any = Ellipsis, generator: Generator | None = None) -> Tensor:
        """Fill with integers from low up to, not including, high: ``random_()``, ``random_(to)``, ``random_(from, to)``."""
    def ravel(self, order: Any = None) -> Tensor:
        """Return a tensor's elements in one dim, a view where strides allow one; of a structure a vector and its inverse."""
    @property
    def real(self) -> Tensor:
        ...
    def reciprocal(self) -> Tensor:
        """One over the tensor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def reciprocal_(self) -> Tensor:
        """One over the tensor, in place."""
    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(gradient)`` when backward has this tensor's gradient; a tensor it returns takes its place."""
    def register_post_accumulate_grad_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(x)`` after each time that backward has added to this leaf's ``.grad``."""
    def relu(self) -> Tensor:
        """Tensor where it is positive, else 0; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def relu_(self) -> Tensor:
        """Tensor where it is positive, else 0; the gradient at 0 is 0, in place."""
    def remainder(self, other: Any) -> Tensor:
        """What floor division leaves, with the sign of the divisor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def remainder_(self, other: Any) -> Tensor:
        """What floor division leaves, with the sign of the divisor, in place."""
    def renorm(self, p: Any, dim: builtins.int, maxnorm: Any) -> Tensor:
        """Return x with the slices along ``dim`` whose norm of order p is above ``maxnorm`` made shorter, to this norm."""
    def renorm_(self, p: Any, dim: builtins.int, maxnorm: Any) -> Tensor:
        """Return x with the slices along ``dim`` whose norm of order p is above ``maxnorm`` made shorter, to this norm, in place."""
    def repeat(self, *counts: Any, repeats: Any = None) -> Tensor:
        """Return the tensor so many times along each dim; there may be more dims than it has."""
    def repeat_interleave(self, repeats: Any = None, dim: builtins.int | None = None, *, output_size: builtins.int | None = None) -> Tensor:
        """Return each place along ``dim``, or each element of the flat tensor, ``repeats`` times in a row."""
    @property
    def requires_grad(self) -> builtins.bool:
        """Whether operations on it are recorded. Settable on leaves."""
    @requires_grad.setter
    def requires_grad(self, value: builtins.bool) -> None:
        ...
    def requires_grad_(self, requires_grad: builtins.bool = True) -> Tensor:
        """Change whether operations on this leaf are recorded; return it."""
    def reshape(self, *sizes: Any, shape: Any = None) -> Tensor:
        """Return a view of another shape where strides allow one, else a copy."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """Return the tensor in the shape of another: a view where strides allow one, else a copy."""
    def resize_(self, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
        """Give this tensor another shape, new elements being zeros; return it. RuntimeError if it requires grad."""
    def resize_as_(self, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
        """Give this tensor the shape of another; see :meth:`resize_`."""
    def retain_grad(self) -> None:
        """Let backward keep this computed tensor's gradient in ``.grad``."""
    @property
    def retains_grad(self) -> builtins.bool:
        """Whether a computed tensor keeps its gradient."""
    def right_shift(self, other: Any) -> Tensor:
        """Bits of the first moved down by the second, its sign kept; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def right_shift_(self, other: Any) -> Tensor:
        """Bits of the first moved down by the second, its sign kept; integer tensors only, in place."""
    def rint(self) -> Tensor:
        """Nearest integer, the even one of two; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def rint_(self) -> Tensor:
        """Nearest integer, the even one of two; the gradient is 0, in place."""
    def roll(self, shifts: Any, dims: Any = None) -> Tensor:
        """Return a copy with the elements shifted along ``dims``; what leaves at the end comes in at the front."""
    def rot90(self, k: builtins.int = 1, dims: Any = (0, 1)) -> Tensor:
        """Return a copy turned by ``k`` quarters in the plane of two dims, from the first towards the second."""
    def round(self, decimals: builtins.int = 0) -> Tensor:
        """Return x rounded to ``decimals`` places, half to even; the gradient is 0. Integers stay as they are."""
    def round_(self, *, decimals: builtins.int = 0) -> Tensor:
        """Return x rounded to ``decimals`` places, half to even; the gradient is 0. Integers stay as they are, in place."""
    def rsqrt(self) -> Tensor:
        """One over the square root. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def rsqrt_(self) -> Tensor:
        """One over the square root, in place."""
    def scatter(self, dim: builtins.int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
        """Write ``src``, or one value, to the places ``input[index[i][j]][j]`` for dim 0 and so on, in place."""
    def scatter_(self, dim: builtins.int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
        """Write ``src``, or one value, to the places ``input[index[i][j]][j]`` for dim 0 and so on, in place."""
    def scatter_add(self, dim: builtins.int, index: Any, src: Any) -> Tensor:
        """Add ``src`` to the places ``input[index[i][j]][j]`` for dim 0 and so on, in place; all values for a place add up."""
    def scatter_add_(self, dim: builtins.int, index: Any, src: Any) -> Tensor:
        """Add ``src`` to the places ``input[index[i][j]][j]`` for dim 0 and so on, in place; all values for a place add up."""
    def scatter_reduce(self, dim: builtins.int, index: Any, src: Any, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
        """Reduce all values of ``src`` for a place, chosen as by :func:`scatter_`, to one, in place."""
    def scatter_reduce_(self, dim: builtins.int, index: Any, src: Any, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
        """Reduce all values of ``src`` for a place, chosen as by :func:`scatter_`, to one, in place."""
    def searchsorted(self, input: Any, *, out_int32: builtins.bool = False, right: builtins.bool = False, side: Any = None, sorter: Any = None) -> Tensor:
        """Return where each value would be inserted into rows that are in order, as int64; no gradient."""
    def select(self, dim: builtins.int, index: Any) -> Tensor:
        """Return a view of the place ``index`` along ``dim``, which goes."""
    def select_scatter(self, src: Any, dim: builtins.int, index: builtins.int) -> Tensor:
        """Return a copy with ``src``, which has no such dim, at one place along ``dim``."""
    def sgn(self) -> Tensor:
        """Sign: -1, 0 or 1, and 0 of nan; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sgn_(self) -> Tensor:
        """Sign: -1, 0 or 1, and 0 of nan; the gradient is 0, in place."""
    @property
    def shape(self) -> Size:
        """The extents of the dims."""
    def short(self, memory_format: Any = None) -> Tensor:
        """Return the tensor as int16."""
    def sigmoid(self) -> Tensor:
        """Logistic function, 1 / (1 + exp(-x)). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sigmoid_(self) -> Tensor:
        """Logistic function, 1 / (1 + exp(-x)), in place."""
    def sign(self) -> Tensor:
        """Sign: -1, 0 or 1, and 0 of nan; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sign_(self) -> Tensor:
        """Sign: -1, 0 or 1, and 0 of nan; the gradient is 0, in place."""
    def signbit(self) -> Tensor:
        """True where the sign is minus, that of -0.0 too. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def signbit_(self) -> Tensor:
        """True where the sign is minus, that of -0.0 too, in place."""
    def sin(self) -> Tensor:
        """Sine of an angle in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sin_(self) -> Tensor:
        """Sine of an angle in radians, in place."""
    def sinc(self) -> Tensor:
        """Sine of pi x divided by pi x; 1 at 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sinc_(self) -> Tensor:
        """Sine of pi x divided by pi x; 1 at 0, in place."""
    def sinh(self) -> Tensor:
        """Hyperbolic sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sinh_(self) -> Tensor:
        """Hyperbolic sine, in place."""
    @property
    def size(self) -> Count:
        """The number of elements, as NumPy's attribute; ``x.size()`` and ``x.size(dim)`` are PyTorch's shape and extent."""
    def slice_scatter(self, src: Any, dim: builtins.int = 0, start: Any = None, end: Any = None, step: builtins.int = 1) -> Tensor:
        """Return a copy with ``src``, of the shape of the slice, in a slice along ``dim``."""
    def slogdet(self) -> Any:
        """Return sign and logarithm of the absolute value of determinants: 0 and -inf where singular."""
    def softmax(self, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
        """Return the exponentials divided by their sum along ``dim``, of the shape of x."""
    def sort(self, dim: Any = None, descending: builtins.bool = False, stable: builtins.bool = False, *, axis: Any = None) -> Any:
        """Return the elements in order along ``dim`` (the last) and their int64 places; equal ones keep their order always."""
    @property
    def spec(self) -> Spec:
        """Shape, strides and dtype."""
    def split(self, split_size_or_sections: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Return views of ranges along ``dim``: of one length, the last of which may be shorter, or of lengths given."""
    def split_with_sizes(self, split_sizes: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Return views of ranges of these lengths along ``dim``; they add up to its length."""
    def sqrt(self) -> Tensor:
        """Square root. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sqrt_(self) -> Tensor:
        """Square root, in place."""
    def square(self) -> Tensor:
        """Square. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def square_(self) -> Tensor:
        """Square, in place."""
    def squeeze(self, dim: Any = None, *, axis: Any = None) -> Tensor:
        """Return a view without dims of length one, or without ``dim`` where its length is one."""
    def squeeze_(self, dim: Any = None, *, axis: Any = None) -> Tensor:
        """Take dims of length one from this tensor, or one of them; return it. RuntimeError for a leaf that requires grad."""
    def std(self, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None, axis: Any = None, keepdims: Any = None, ddof: Any = None) -> Tensor:
        """Return the standard deviation over ``dim`` (an int, a tuple, None for all)."""
    def stride(self, dim: builtins.int | None = None) -> Any:
        """Return the strides in elements."""
    @property
    def strides(self) -> tuple[builtins.int, ...]:
        """The steps along the dims in bytes, as NumPy counts them; ``x.stride()`` counts elements."""
    def sub(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Difference of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def sub_(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Difference of two tensors, in place; ``alpha`` multiplies the second."""
    def subtract(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Difference of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def subtract_(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Difference of two tensors, in place; ``alpha`` multiplies the second."""
    def sum(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the sum over ``dim`` (an int, a tuple, or None for all); ints and bools sum to int64."""
    def sum_to_size(self, *size: Any) -> Tensor:
        """Return the sum over the dims in which a tensor of this size would be broadcast to the shape of x."""
    def svd(self, some: builtins.bool = True, compute_uv: builtins.bool = True) -> Any:
        """Return U, S and V (not Vh) of matrices, reduced or, with ``some=False``, complete: see linalg.svd."""
    def swapaxes(self, axis0: builtins.int, axis1: builtins.int) -> Tensor:
        """Return a view with two dims exchanged."""
    def swapaxes_(self, axis0: builtins.int, axis1: builtins.int) -> Tensor:
        """Exchange two dims of this tensor; return it. RuntimeError for a leaf that requires grad."""
    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Return a view with two dims exchanged."""
    def swapdims_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Exchange two dims of this tensor; return it. RuntimeError for a leaf that requires grad."""
    def t(self) -> Tensor:
        """Return a matrix transposed; tensors of less than two dims as they are."""
    def t_(self) -> Tensor:
        """Transpose this matrix; return it. RuntimeError for a leaf that requires grad."""
    def take(self, index: Any = None, axis: Any = None, out: Any = None, mode: str = 'raise', *, indices: Any = None) -> Any:
        """Return the elements at these places of the flat tensor, in the shape of the index; negative from the end."""
    def take_along_dim(self, indices: Any, dim: builtins.int | None = None) -> Tensor:
        """Return the elements that an index picks along ``dim``; x and index broadcast in the other dims."""
    def tan(self) -> Tensor:
        """Tangent of an angle in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def tan_(self) -> Tensor:
        """Tangent of an angle in radians, in place."""
    def tanh(self) -> Tensor:
        """Hyperbolic tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def tanh_(self) -> Tensor:
        """Hyperbolic tangent, in place."""
    def tensor_split(self, indices_or_sections: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Return views of ranges along ``dim``: so many, of nearly one length, or cut at these places."""
    def tile(self, *counts: Any, dims: Any = None) -> Tensor:
        """Return the tensor so many times along each dim; the last dims where fewer are given than it has."""
    def to(self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: builtins.bool = False, copy: builtins.bool = False, memory_format: Any = None) -> Tensor:
        """Return the tensor with another dtype, or itself; the only device is "cpu"."""
    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """Return the tensor itself: the only device is "cpu"."""
    def tobytes(self, order: Any = 'C') -> bytes:
        """Return the bytes of the elements."""
    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
    def topk(self, k: builtins.int, dim: Any = None, largest: builtins.bool = True, sorted: builtins.bool = True, *, axis: Any = None) -> Any:
        """Return the ``k`` largest (or smallest) elements along ``dim``, the last by default, in order, and their places."""
    def trace(self) -> Any:
        """Return the sum of the diagonal of a matrix, 0-d."""
    def transpose(self, *axes: Any, dim0: Any = None, dim1: Any = None) -> Tensor:
        """Return a view with two dims exchanged."""
    def transpose_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Exchange two dims of this tensor; return it. RuntimeError for a leaf that requires grad."""
    def tril(self, diagonal: builtins.int = 0) -> Tensor:
        """Return a copy with zeros outside of the lower triangle, ``diagonal`` above the main one."""
    def tril_(self, diagonal: builtins.int = 0) -> Tensor:
        """Set what is outside of the lower triangle to zero, in place."""
    def triu(self, diagonal: builtins.int = 0) -> Tensor:
        """Return a copy with zeros outside of the upper triangle, ``diagonal`` above the main one."""
    def triu_(self, diagonal: builtins.int = 0) -> Tensor:
        """Set what is outside of the upper triangle to zero, in place."""
    def true_divide(self, other: Any) -> Tensor:
        """Quotient of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def true_divide_(self, other: Any) -> Tensor:
        """Quotient of two tensors, in place."""
    def trunc(self) -> Tensor:
        """Integer part, towards zero; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def trunc_(self) -> Tensor:
        """Integer part, towards zero; the gradient is 0, in place."""
    def type(self, dtype: Any = None) -> Any:
        """Return the name of the type, "torch.DoubleTensor", or the tensor with another dtype, type or name of one."""
    def type_as(self, other: Tensor) -> Tensor:
        """Return the tensor with the dtype of another, or itself."""
    def unbind(self, dim: Any = None, *, axis: Any = None) -> tuple[Tensor, ...]:
        """Return views of all places along ``dim``, the first by default, which goes."""
    def unflatten(self, dim: builtins.int, sizes: Any) -> Tensor:
        """Return a view with one dim taken apart into dims of these sizes; one of them may be -1."""
    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """Return a view of all windows of ``size`` along a dim, ``step`` apart; they stand along a new last dim."""
    def uniform_(self, low: builtins.float = 0.0, high: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with uniform numbers from [low, high); the gradient of what stood here is 0."""
    def unique(self, sorted: builtins.bool = True, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: Any = None) -> Any:
        """Return the different elements, or slices along ``dim``, in order; no gradient."""
    def unique_consecutive(self, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: Any = None) -> Any:
        """Return the elements, or slices along ``dim``, that differ from the one before; no gradient."""
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """Return a view with a dim of length one inserted."""
    def unsqueeze_(self, dim: builtins.int) -> Tensor:
        """Insert a dim of length one into this tensor; return it. RuntimeError for a leaf that requires grad."""
    def var(self, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None, axis: Any = None, keepdims: Any = None, ddof: Any = None) -> Tensor:
        """Return the variance over ``dim`` (an int, a tuple, None for all)."""
    def vdot(self, other: Any) -> Tensor:
        """Return the inner product of two vectors, 0-d."""
    def view(self, *sizes: Any, size: Any = None) -> Tensor:
        """Return a view of another shape; RuntimeError where strides do not allow one."""
    def view_as(self, other: Tensor) -> Tensor:
        """Return a view of the shape of another tensor, which has as many elements."""
    def vsplit(self, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """Return views of equal ranges along the rows, or of ranges cut at these places."""
    def where(self, condition: Any, other: Any) -> Any:
        """Second tensor where the first, a condition, holds, and the third elsewhere. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def xlog1py(self, other: Any) -> Tensor:
        """First tensor times the logarithm of one plus the second; 0 where the first is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def xlog1py_(self, other: Any) -> Tensor:
        """First tensor times the logarithm of one plus the second; 0 where the first is 0, in place."""
    def xlogy(self, other: Any) -> Tensor:
        """First tensor times the logarithm of the second; 0 where the first is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
    def xlogy_(self, other: Any) -> Tensor:
        """First tensor times the logarithm of the second; 0 where the first is 0, in place."""
    def zero_(self) -> Tensor:
        """Fill with zeros."""
new = object.__new__
_NOTHING = Extras()
def holder(slot: Slot, form: Descriptor) -> Tensor:
    """Return a tensor without a value, which keeps the instruction of a slot alive."""
def read_extras(x: Tensor) -> Extras:
    """Return a tensor's extra attributes for reading: shared defaults where it has none."""
def make_extras(x: Tensor) -> Extras:
    """Return a tensor's extra attributes for changing; they are made where it has none."""
def constant_tensor(value: Array | float) -> Tensor:
    """Return a tensor without history; the value is shared, not copied. NumPy's scalars become 0-d arrays."""
made = maker()
taken = taker()
def leaf(value: Array | float, *, requires_grad: bool) -> Tensor:
    """Return a tensor without history that may require grad."""
def root(x: Tensor) -> Tensor:
    """Turn a tensor without history or views into a leaf that requires grad; return it."""
def is_tensor(input: object) -> bool:
    """Return whether an object is a tensor."""
def scalar_or_array(value: Any) -> Value:
    """Return a result as the value of a tensor: 0-d float64 as a Python float, everything else as an array."""
def as_array(tensor: Tensor) -> Array:
    """Return the value as an array that the tensor keeps from now on, so that views of it share memory."""
def method(name: str='') -> Callable[[Installed], Installed]:
    """Install a function as a method, or a property as an attribute, of Tensor."""
def attribute(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Install a function of a tensor as a read-only attribute."""
