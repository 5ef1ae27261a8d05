# Written by `python -m tape.stubs`; change the records or the methods, not this file.
from typing import Any
from tape.tensor import Tensor
__all__ = ['add', 'subtract', 'sub', 'multiply', 'mul', 'divide', 'div', 'true_divide', 'power', 'pow', 'negative', 'neg', 'positive', 'square', 'sqrt', 'reciprocal', 'absolute', 'abs', 'exp', 'log', 'sin', 'cos', 'tan', 'tanh', 'maximum', 'minimum', 'where', 'sign', 'less', 'lt', 'less_equal', 'le', 'greater', 'gt', 'greater_equal', 'ge', 'eq', 'not_equal', 'ne', 'logical_not', 'logical_and', 'logical_or', 'bitwise_and', 'bitwise_or', 'flip', 'from_dlpack', 'cumsum']
def add(a: Any, b: Any, /, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
    """Sum of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def subtract(a: Any, b: Any, /, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
    """Difference of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def sub(a: Any, b: Any, /, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
    """Difference of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def multiply(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Product of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def mul(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Product of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def divide(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Quotient of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def div(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Quotient of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def true_divide(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Quotient of two tensors. Shapes broadcast; dtypes promote as NumPy's do."""
def power(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """First tensor raised to the second. Shapes broadcast; dtypes promote as NumPy's do."""
def pow(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """First tensor raised to the second. Shapes broadcast; dtypes promote as NumPy's do."""
def negative(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Tensor with its sign turned. Shapes broadcast; dtypes promote as NumPy's do."""
def neg(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Tensor with its sign turned. Shapes broadcast; dtypes promote as NumPy's do."""
def positive(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """The tensor itself. Shapes broadcast; dtypes promote as NumPy's do."""
def square(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Square. Shapes broadcast; dtypes promote as NumPy's do."""
def sqrt(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Square root. Shapes broadcast; dtypes promote as NumPy's do."""
def reciprocal(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """One over the tensor. Shapes broadcast; dtypes promote as NumPy's do."""
def absolute(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as NumPy's do."""
def abs(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as NumPy's do."""
def exp(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Exponential. Shapes broadcast; dtypes promote as NumPy's do."""
def log(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Natural logarithm. Shapes broadcast; dtypes promote as NumPy's do."""
def sin(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Sine of an angle in radians. Shapes broadcast; dtypes promote as NumPy's do."""
def cos(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Cosine of an angle in radians. Shapes broadcast; dtypes promote as NumPy's do."""
def tan(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Tangent of an angle in radians. Shapes broadcast; dtypes promote as NumPy's do."""
def tanh(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic tangent. Shapes broadcast; dtypes promote as NumPy's do."""
def maximum(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Larger of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as NumPy's do."""
def minimum(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Smaller of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as NumPy's do."""
def where(c: Any, a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Second tensor where the first, a condition, holds, and the third elsewhere. Shapes broadcast; dtypes promote as NumPy's do."""
def sign(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Sign: -1, 0 or 1; the gradient is 0. Shapes broadcast; dtypes promote as NumPy's do."""
def less(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less. Shapes broadcast; dtypes promote as NumPy's do."""
def lt(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less. Shapes broadcast; dtypes promote as NumPy's do."""
def less_equal(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less or equal. Shapes broadcast; dtypes promote as NumPy's do."""
def le(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less or equal. Shapes broadcast; dtypes promote as NumPy's do."""
def greater(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater. Shapes broadcast; dtypes promote as NumPy's do."""
def gt(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater. Shapes broadcast; dtypes promote as NumPy's do."""
def greater_equal(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater or equal. Shapes broadcast; dtypes promote as NumPy's do."""
def ge(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater or equal. Shapes broadcast; dtypes promote as NumPy's do."""
def eq(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where both are equal. Shapes broadcast; dtypes promote as NumPy's do."""
def not_equal(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where they differ. Shapes broadcast; dtypes promote as NumPy's do."""
def ne(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where they differ. Shapes broadcast; dtypes promote as NumPy's do."""
def logical_not(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is zero or False. Shapes broadcast; dtypes promote as NumPy's do."""
def logical_and(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where both are nonzero or True. Shapes broadcast; dtypes promote as NumPy's do."""
def logical_or(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """True where one is nonzero or True. Shapes broadcast; dtypes promote as NumPy's do."""
def bitwise_and(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, of both; integer and bool tensors only. Shapes broadcast; dtypes promote as NumPy's do."""
def bitwise_or(a: Any, b: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, of either; integer and bool tensors only. Shapes broadcast; dtypes promote as NumPy's do."""
def flip(x: Any, *dims: Any) -> Tensor:
    """Return a copy with the order of elements reversed along ``dims``."""
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of the memory that an object with ``__dlpack__`` exports; what either writes, both see."""
def cumsum(x: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64."""
