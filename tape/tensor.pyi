# Written by `python -m tape.stubs`; change the records or the methods, not this file.
import builtins
from collections.abc import Iterator
from tape.attributes import Device
from tape.autograd.hooks import Hook, RemovableHandle
from tape.shape import Size
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ReferenceType, ref
import numpy as np
from kernels.forms import Form
from kernels.layouts import Spec, spec_of
from tape.modes import ON_MADE
Array = np.ndarray[Any, Any]
Installed = TypeVar('Installed', bound=Callable[..., Any] | property)
class AccumulateGrad:
    """The slot of a leaf that requires grad: where sweeps deliver its gradient, and the leaf's node in the graph."""
    __slots__ = ('__weakref__', 'grad', 'hooks', 'owner', 'spec')
    spec: Spec
    grad: Tensor | None
    hooks: Any
    'Set where there are some.'
    owner: ReferenceType[Tensor]
    'The leaf: when it is gone, nobody can see the gradient.'

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """Nothing: the graph ends here."""

    def name(self) -> str:
        """Return PyTorch's name of this kind of node."""

    def __repr__(self) -> str:
        ...
class Rare:
    """What few tensors have: the count of writes to the memory, and of computed tensors and former leaves ``.grad``.

    ``leaf`` is the slot of a leaf that requires grad no more; with ``retains`` backward gives a computed tensor its
    gradient.
    """
    __slots__ = ('counter', 'grad', 'leaf', 'retains')
    counter: list[int] | None
    grad: Tensor | None
    leaf: AccumulateGrad | None
    retains: bool

    def __init__(self) -> None:
        ...
class Tensor:
    """An array that knows how it was computed. Make one with ``tape.tensor`` or an operation."""
    __slots__ = ('__weakref__', '_base', '_form', '_offset', '_rare', '_shared', '_slot', '_value', '_views')
    _value: Array | float
    _slot: Any
    _form: Form | Spec
    _offset: int
    _base: Tensor
    _views: list[ReferenceType[Tensor]]
    _shared: bool
    _rare: Rare
    __hash__ = object.__hash__
    @property
    def T(self) -> Tensor:
        """The tensor with its dims reversed, a view."""
    def __abs__(self) -> Tensor:
        ...
    def __add__(self, other: Any, /) -> Tensor:
        ...
    def __and__(self, other: Any, /) -> Tensor:
        ...
    def __array__(self, dtype: Any = None, copy: builtins.bool | None = None) -> Array:
        ...
    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        ...
    __array_priority__: builtins.int
    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **kwargs: Any) -> Any:
        ...
    def __bool__(self) -> builtins.bool:
        ...
    def __deepcopy__(self, memo: dict[builtins.int, Any]) -> Tensor:
        ...
    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: builtins.bool | None = None) -> Any:
        ...
    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        ...
    def __eq__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        ...
    def __float__(self) -> builtins.float:
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
    def __imul__(self, other: Any) -> Tensor:
        ...
    def __index__(self) -> builtins.int:
        ...
    def __int__(self) -> builtins.int:
        ...
    def __ipow__(self, other: Any) -> Tensor:
        ...
    def __isub__(self, other: Any) -> Tensor:
        ...
    def __iter__(self) -> Iterator[Tensor]:
        ...
    def __itruediv__(self, other: Any) -> Tensor:
        ...
    def __le__(self, other: Any, /) -> Tensor:
        ...
    def __len__(self) -> builtins.int:
        ...
    def __lt__(self, other: Any, /) -> Tensor:
        ...
    def __matmul__(self, b: Any) -> Any:
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
    def __pos__(self) -> Any:
        ...
    def __pow__(self, other: Any, /) -> Tensor:
        ...
    def __radd__(self, other: Any, /) -> Tensor:
        ...
    def __rand__(self, other: Any, /) -> Tensor:
        ...
    def __reduce__(self) -> Any:
        ...
    def __repr__(self) -> str:
        ...
    def __rmatmul__(self, a: Any) -> Any:
        ...
    def __rmul__(self, other: Any, /) -> Tensor:
        ...
    def __ror__(self, other: Any, /) -> Tensor:
        ...
    def __rpow__(self, other: Any, /) -> Tensor:
        ...
    def __rsub__(self, other: Any, /) -> Tensor:
        ...
    def __rtruediv__(self, other: Any, /) -> Tensor:
        ...
    def __setitem__(self, key: Any, value: Any) -> None:
        ...
    def __sub__(self, other: Any, /) -> Tensor:
        ...
    def __truediv__(self, other: Any, /) -> Tensor:
        ...
    @property
    def _version(self) -> builtins.int:
        """How often the memory has been written in place."""
    def abs(self) -> Tensor:
        """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as NumPy's do."""
    def abs_(self, *others: Any) -> Tensor:
        """Absolute value; the gradient at 0 is 0, in place."""
    def absolute(self) -> Tensor:
        """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as NumPy's do."""
    def absolute_(self, *others: Any) -> Tensor:
        """Absolute value; the gradient at 0 is 0, in place."""
    def add(self, other: Any, /) -> Tensor:
        """Sum of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def add_(self, other: Any, *, alpha: Any = None) -> Tensor:
        """Sum of two tensors, in place; ``alpha`` multiplies the second."""
    def amax(self, dim: Any = (), keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Largest element over dims; ties share the gradient evenly, as NumPy's amax."""
    def amin(self, dim: Any = (), keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Smallest element over dims; ties share the gradient evenly, as NumPy's amin."""
    def as_strided(self, size: Any, stride: Any, storage_offset: builtins.int = 0) -> Tensor:
        """Return a view of any pattern of the elements in order; strides and offset count elements."""
    def backward(self, gradient: Any = None, retain_graph: builtins.bool | None = None, create_graph: builtins.bool = False, inputs: Any = None) -> None:
        """Add the gradient of this tensor, weighted by ``gradient``, to ``.grad`` of the leaves it was computed from."""
    def bitwise_and(self, other: Any, /) -> Tensor:
        """Bits, or truth, of both; integer and bool tensors only. Shapes broadcast; dtypes promote as NumPy's do."""
    def bitwise_and_(self, *others: Any) -> Tensor:
        """Bits, or truth, of both; integer and bool tensors only, in place."""
    def bitwise_or(self, other: Any, /) -> Tensor:
        """Bits, or truth, of either; integer and bool tensors only. Shapes broadcast; dtypes promote as NumPy's do."""
    def bitwise_or_(self, *others: Any) -> Tensor:
        """Bits, or truth, of either; integer and bool tensors only, in place."""
    def bool(self) -> Tensor:
        """Return the tensor as bool."""
    def clone(self) -> Tensor:
        """Return a copy in memory of its own, recorded."""
    def contiguous(self) -> Tensor:
        """Return the tensor itself if its memory is C-contiguous, else a copy."""
    def copy_(self, other: Any) -> Tensor:
        """Copy values, broadcast, into this tensor."""
    def cos(self) -> Tensor:
        """Cosine of an angle in radians. Shapes broadcast; dtypes promote as NumPy's do."""
    def cos_(self, *others: Any) -> Tensor:
        """Cosine of an angle in radians, in place."""
    def cpu(self) -> Tensor:
        """Return the tensor itself."""
    def cumsum(self, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
        """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64."""
    @property
    def data(self) -> Tensor:
        """The same memory as a tensor without history, whose writes are counted apart."""
    @data.setter
    def data(self, other: Tensor) -> None:
        ...
    def detach(self) -> Tensor:
        """Return a tensor of the same memory, without history."""
    @property
    def device(self) -> Device:
        """Always "cpu"."""
    def dim(self) -> builtins.int:
        """Return the number of dims."""
    def div(self, other: Any, /) -> Tensor:
        """Quotient of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def div_(self, *others: Any) -> Tensor:
        """Quotient of two tensors, in place."""
    def divide(self, other: Any, /) -> Tensor:
        """Quotient of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def divide_(self, *others: Any) -> Tensor:
        """Quotient of two tensors, in place."""
    def dot(self, b: Any) -> Tensor:
        """Return the inner product of two vectors, 0-d."""
    def double(self) -> Tensor:
        """Return the tensor as float64."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, a NumPy dtype."""
    def eq(self, other: Any, /) -> Tensor:
        """True where both are equal. Shapes broadcast; dtypes promote as NumPy's do."""
    def eq_(self, *others: Any) -> Tensor:
        """True where both are equal, in place."""
    def equal(self, other: Tensor) -> builtins.bool:
        """Return whether two tensors have one shape and equal elements; ``x == other`` compares element by element."""
    def exp(self) -> Tensor:
        """Exponential. Shapes broadcast; dtypes promote as NumPy's do."""
    def exp_(self, *others: Any) -> Tensor:
        """Exponential, in place."""
    def expand(self, *sizes: Any) -> Tensor:
        """Return a view with dims of length one repeated; -1 keeps a dim."""
    def fill_(self, value: Any) -> Tensor:
        """Fill with one number, or with a 0-d tensor."""
    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Return the tensor with dims ``start_dim`` to ``end_dim`` run together; itself where there is nothing to do."""
    def flip(self, *dims: Any) -> Tensor:
        """Return a copy with the order of elements reversed along ``dims``."""
    def float(self) -> Tensor:
        """Return the tensor as float32."""
    def ge(self, other: Any, /) -> Tensor:
        """True where the first is greater or equal. Shapes broadcast; dtypes promote as NumPy's do."""
    def ge_(self, *others: Any) -> Tensor:
        """True where the first is greater or equal, in place."""
    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward accumulated; None where there is none."""
    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        ...
    @property
    def grad_fn(self) -> Any:
        """The node that computed this tensor; None for leaves."""
    def greater(self, other: Any, /) -> Tensor:
        """True where the first is greater. Shapes broadcast; dtypes promote as NumPy's do."""
    def greater_(self, *others: Any) -> Tensor:
        """True where the first is greater, in place."""
    def greater_equal(self, other: Any, /) -> Tensor:
        """True where the first is greater or equal. Shapes broadcast; dtypes promote as NumPy's do."""
    def greater_equal_(self, *others: Any) -> Tensor:
        """True where the first is greater or equal, in place."""
    def gt(self, other: Any, /) -> Tensor:
        """True where the first is greater. Shapes broadcast; dtypes promote as NumPy's do."""
    def gt_(self, *others: Any) -> Tensor:
        """True where the first is greater, in place."""
    def index_put_(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """Write values to the elements picked by a tuple of index tensors; with ``accumulate`` add them."""
    def int(self) -> Tensor:
        """Return the tensor as int32."""
    def is_contiguous(self) -> builtins.bool:
        """Return whether the memory is C-contiguous."""
    def is_floating_point(self) -> builtins.bool:
        """Return whether the dtype is floating."""
    def is_inference(self) -> builtins.bool:
        """Return whether the tensor was made in inference mode, or views one that was."""
    @property
    def is_leaf(self) -> builtins.bool:
        """Whether the user made it, or it has no history."""
    def item(self) -> Any:
        """Return the only element as a Python number."""
    def le(self, other: Any, /) -> Tensor:
        """True where the first is less or equal. Shapes broadcast; dtypes promote as NumPy's do."""
    def le_(self, *others: Any) -> Tensor:
        """True where the first is less or equal, in place."""
    def less(self, other: Any, /) -> Tensor:
        """True where the first is less. Shapes broadcast; dtypes promote as NumPy's do."""
    def less_(self, *others: Any) -> Tensor:
        """True where the first is less, in place."""
    def less_equal(self, other: Any, /) -> Tensor:
        """True where the first is less or equal. Shapes broadcast; dtypes promote as NumPy's do."""
    def less_equal_(self, *others: Any) -> Tensor:
        """True where the first is less or equal, in place."""
    def log(self) -> Tensor:
        """Natural logarithm. Shapes broadcast; dtypes promote as NumPy's do."""
    def log_(self, *others: Any) -> Tensor:
        """Natural logarithm, in place."""
    def logical_and(self, other: Any, /) -> Tensor:
        """True where both are nonzero or True. Shapes broadcast; dtypes promote as NumPy's do."""
    def logical_and_(self, *others: Any) -> Tensor:
        """True where both are nonzero or True, in place."""
    def logical_not(self) -> Tensor:
        """True where the tensor is zero or False. Shapes broadcast; dtypes promote as NumPy's do."""
    def logical_not_(self, *others: Any) -> Tensor:
        """True where the tensor is zero or False, in place."""
    def logical_or(self, other: Any, /) -> Tensor:
        """True where one is nonzero or True. Shapes broadcast; dtypes promote as NumPy's do."""
    def logical_or_(self, *others: Any) -> Tensor:
        """True where one is nonzero or True, in place."""
    def long(self) -> Tensor:
        """Return the tensor as int64."""
    def lt(self, other: Any, /) -> Tensor:
        """True where the first is less. Shapes broadcast; dtypes promote as NumPy's do."""
    def lt_(self, *others: Any) -> Tensor:
        """True where the first is less, in place."""
    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor."""
    def masked_fill_(self, mask: Any, value: Any) -> Tensor:
        """Fill where a bool mask, broadcast to this shape, holds with one number, or with a 0-d tensor."""
    def matmul(self, b: Any) -> Tensor:
        """Return the product of vectors and matrices, as ``@`` does."""
    def max(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the maximum of all elements, or of each row along ``dim`` with its place."""
    def maximum(self, other: Any, /) -> Tensor:
        """Larger of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as NumPy's do."""
    def maximum_(self, *others: Any) -> Tensor:
        """Larger of two tensors, element by element; a tie gives each half of the gradient, in place."""
    def mean(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the mean over ``dim`` (an int, a tuple, or None for all); floating tensors only."""
    def min(self, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        """Return the minimum of all elements, or of each row along ``dim`` with its place."""
    def minimum(self, other: Any, /) -> Tensor:
        """Smaller of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as NumPy's do."""
    def minimum_(self, *others: Any) -> Tensor:
        """Smaller of two tensors, element by element; a tie gives each half of the gradient, in place."""
    def mm(self, b: Any) -> Tensor:
        """Return the product of an (m, k) and a (k, n) matrix."""
    def mul(self, other: Any, /) -> Tensor:
        """Product of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def mul_(self, *others: Any) -> Tensor:
        """Product of two tensors, in place."""
    def multiply(self, other: Any, /) -> Tensor:
        """Product of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def multiply_(self, *others: Any) -> Tensor:
        """Product of two tensors, in place."""
    def mv(self, b: Any) -> Tensor:
        """Return the product of an (m, k) matrix and a (k,) vector."""
    @property
    def ndim(self) -> builtins.int:
        """The number of dims."""
    def ne(self, other: Any, /) -> Tensor:
        """True where they differ. Shapes broadcast; dtypes promote as NumPy's do."""
    def ne_(self, *others: Any) -> Tensor:
        """True where they differ, in place."""
    def neg(self) -> Tensor:
        """Tensor with its sign turned. Shapes broadcast; dtypes promote as NumPy's do."""
    def neg_(self, *others: Any) -> Tensor:
        """Tensor with its sign turned, in place."""
    def negative(self) -> Tensor:
        """Tensor with its sign turned. Shapes broadcast; dtypes promote as NumPy's do."""
    def negative_(self, *others: Any) -> Tensor:
        """Tensor with its sign turned, in place."""
    def nelement(self) -> builtins.int:
        """Return the number of elements."""
    def not_equal(self, other: Any, /) -> Tensor:
        """True where they differ. Shapes broadcast; dtypes promote as NumPy's do."""
    def not_equal_(self, *others: Any) -> Tensor:
        """True where they differ, in place."""
    def numel(self) -> builtins.int:
        """Return the number of elements."""
    def numpy(self, *, force: builtins.bool = False) -> Array:
        """Return the value as an array of the same memory; raises if the tensor requires grad, unless ``force``."""
    @property
    def output_nr(self) -> builtins.int:
        """Which output of its node this is."""
    def permute(self, *dims: Any) -> Tensor:
        """Return a view with the dims in the order given."""
    def positive(self) -> Any:
        """The tensor itself. Shapes broadcast; dtypes promote as NumPy's do."""
    def positive_(self, *others: Any) -> Tensor:
        """The tensor itself, in place."""
    def pow(self, other: Any, /) -> Tensor:
        """First tensor raised to the second. Shapes broadcast; dtypes promote as NumPy's do."""
    def pow_(self, *others: Any) -> Tensor:
        """First tensor raised to the second, in place."""
    def power(self, other: Any, /) -> Tensor:
        """First tensor raised to the second. Shapes broadcast; dtypes promote as NumPy's do."""
    def power_(self, *others: Any) -> Tensor:
        """First tensor raised to the second, in place."""
    def reciprocal(self) -> Tensor:
        """One over the tensor. Shapes broadcast; dtypes promote as NumPy's do."""
    def reciprocal_(self, *others: Any) -> Tensor:
        """One over the tensor, in place."""
    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(gradient)`` when backward has this tensor's gradient; a tensor it returns takes its place."""
    def register_post_accumulate_grad_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(x)`` after each time that backward has added to this leaf's ``.grad``."""
    @property
    def requires_grad(self) -> builtins.bool:
        """Whether operations on it are recorded. Settable on leaves."""
    @requires_grad.setter
    def requires_grad(self, value: builtins.bool) -> None:
        ...
    def requires_grad_(self, requires_grad: builtins.bool = True) -> Tensor:
        """Change whether operations on this leaf are recorded; return it."""
    def reshape(self, *shape: Any) -> Tensor:
        """Return a view of another shape where strides allow one, else a copy."""
    def retain_grad(self) -> None:
        """Let backward keep this computed tensor's gradient in ``.grad``."""
    @property
    def retains_grad(self) -> builtins.bool:
        """Whether a computed tensor keeps its gradient."""
    @property
    def shape(self) -> Size:
        """The extents of the dims."""
    def sign(self) -> Tensor:
        """Sign: -1, 0 or 1; the gradient is 0. Shapes broadcast; dtypes promote as NumPy's do."""
    def sign_(self, *others: Any) -> Tensor:
        """Sign: -1, 0 or 1; the gradient is 0, in place."""
    def sin(self) -> Tensor:
        """Sine of an angle in radians. Shapes broadcast; dtypes promote as NumPy's do."""
    def sin_(self, *others: Any) -> Tensor:
        """Sine of an angle in radians, in place."""
    def size(self, dim: builtins.int | None = None) -> Any:
        """Return the shape, or the extent of one dim."""
    @property
    def spec(self) -> Spec:
        """Shape, strides and dtype."""
    def sqrt(self) -> Tensor:
        """Square root. Shapes broadcast; dtypes promote as NumPy's do."""
    def sqrt_(self, *others: Any) -> Tensor:
        """Square root, in place."""
    def square(self) -> Tensor:
        """Square. Shapes broadcast; dtypes promote as NumPy's do."""
    def square_(self, *others: Any) -> Tensor:
        """Square, in place."""
    def squeeze(self, dim: Any = None, *, axis: Any = None) -> Tensor:
        """Return a view without dims of length one, or without ``dim`` where its length is one."""
    def stride(self, dim: builtins.int | None = None) -> Any:
        """Return the strides in elements."""
    def sub(self, other: Any, /) -> Tensor:
        """Difference of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def sub_(self, other: Any, *, alpha: Any = None) -> Tensor:
        """Difference of two tensors, in place; ``alpha`` multiplies the second."""
    def subtract(self, other: Any, /) -> Tensor:
        """Difference of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def subtract_(self, other: Any, *, alpha: Any = None) -> Tensor:
        """Difference of two tensors, in place; ``alpha`` multiplies the second."""
    def sum(self, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
        """Return the sum over ``dim`` (an int, a tuple, or None for all); ints and bools sum to int64."""
    def t(self) -> Tensor:
        """Return a matrix transposed; tensors of less than two dims as they are."""
    def tan(self) -> Tensor:
        """Tangent of an angle in radians. Shapes broadcast; dtypes promote as NumPy's do."""
    def tan_(self, *others: Any) -> Tensor:
        """Tangent of an angle in radians, in place."""
    def tanh(self) -> Tensor:
        """Hyperbolic tangent. Shapes broadcast; dtypes promote as NumPy's do."""
    def tanh_(self, *others: Any) -> Tensor:
        """Hyperbolic tangent, in place."""
    def to(self, *args: Any, dtype: Any = None, device: Any = None, copy: builtins.bool = False) -> Tensor:
        """Return the tensor with another dtype, or itself; the only device is "cpu"."""
    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Return a view with two dims exchanged."""
    def true_divide(self, other: Any, /) -> Tensor:
        """Quotient of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
    def true_divide_(self, *others: Any) -> Tensor:
        """Quotient of two tensors, in place."""
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """Return a view with a dim of length one inserted."""
    def view(self, *shape: Any) -> Tensor:
        """Return a view of another shape; RuntimeError where strides do not allow one."""
    def where(self, condition: Any, other: Any) -> Any:
        """Second tensor where the first, a condition, holds, and the third elsewhere. Shapes broadcast; dtypes promote as NumPy's do."""
    def zero_(self) -> Tensor:
        """Fill with zeros."""
new = object.__new__
_NOTHING = Rare()
def seldom(x: Tensor) -> Rare:
    """Return what few tensors have, to be read."""
def rare(x: Tensor) -> Rare:
    """Return what few tensors have, to be changed."""
def plain(value: Array | float) -> Tensor:
    """Return a tensor without history; the value is shared, not copied."""
def leaf(value: Array | float, *, requires_grad: bool) -> Tensor:
    """Return a tensor without history that may require grad."""
def is_tensor(x: object) -> bool:
    """Return whether an object is a tensor."""
def carried(value: Any) -> Array | float:
    """Return a result as tensors carry it: 0-d float64 as a Python float, everything else as an array."""
def as_array(tensor: Tensor) -> Array:
    """Return the value as an array that the tensor keeps from now on, so that views of it share memory."""
def method(name: str='') -> Callable[[Installed], Installed]:
    """Install a function as a method, or a property as an attribute, of Tensor."""
def attribute(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Install a function of a tensor as a read-only attribute."""
