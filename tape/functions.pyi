# Written by `python -m tape.tools.stubs`; change the records or the methods, not this file.
from math import nan
from typing import Any
from tape.random import Generator
from tape.tensors.tensor import Tensor
__all__ = ['add', 'subtract', 'sub', 'multiply', 'mul', 'true_divide', 'power', 'pow', 'negative', 'neg', 'positive', 'square', 'sqrt', 'reciprocal', 'absolute', 'abs', 'exp', 'log', 'sin', 'cos', 'tan', 'tanh', 'maximum', 'minimum', 'where', 'less', 'lt', 'less_equal', 'le', 'greater', 'gt', 'greater_equal', 'ge', 'eq', 'not_equal', 'ne', 'logical_not', 'logical_and', 'logical_or', 'bitwise_and', 'bitwise_or', 'logical_xor', 'bitwise_xor', 'invert', 'bitwise_not', 'left_shift', 'bitwise_left_shift', 'right_shift', 'bitwise_right_shift', 'isnan', 'isinf', 'isfinite', 'signbit', 'isposinf', 'isneginf', 'gcd', 'lcm', 'exp2', 'expm1', 'log2', 'log10', 'log1p', 'logaddexp', 'logaddexp2', 'sigmoid', 'rsqrt', 'cbrt', 'arcsin', 'asin', 'arccos', 'acos', 'arctan', 'atan', 'arctan2', 'atan2', 'sinh', 'cosh', 'arcsinh', 'asinh', 'arccosh', 'acosh', 'arctanh', 'atanh', 'hypot', 'deg2rad', 'rad2deg', 'sinc', 'relu', 'clamp_min', 'clamp_max', 'fmax', 'fmin', 'sign', 'sgn', 'copysign', 'heaviside', 'floor', 'ceil', 'rint', 'trunc', 'fix', 'frac', 'floor_divide', 'remainder', 'fmod', 'nextafter', 'erf', 'erfc', 'erfinv', 'erfcx', 'lgamma', 'digamma', 'i0', 'i0e', 'i1', 'i1e', 'ndtr', 'ndtri', 'log_ndtr', 'entr', 'xlogy', 'xlog1py', 'from_dlpack', 'div', 'divide', 'clamp', 'clip', 'round', 'softplus', 'lerp', 'addcmul', 'addcdiv', 'float_power', 'ldexp', 'nan_to_num', 'logit', 'polygamma', 'mvlgamma', 'isclose', 'allclose', 'bmm', 'flip', 'fliplr', 'flipud', 'roll', 'rot90', 'movedim', 'moveaxis', 'swapaxes', 'swapdims', 'adjoint', 'narrow', 'select', 'unbind', 'split', 'split_with_sizes', 'chunk', 'tensor_split', 'hsplit', 'vsplit', 'dsplit', 'prod', 'any', 'all', 'count_nonzero', 'argmax', 'argmin', 'aminmax', 'nansum', 'nanmean', 'dist', 'cdist', 'pdist', 'renorm', 'cosine_similarity', 'pairwise_distance', 'sort', 'argsort', 'msort', 'topk', 'kthvalue', 'unique', 'take', 'gather', 'take_along_dim', 'index_select', 'masked_select', 'nonzero', 'argwhere', 'index_put', 'put', 'masked_fill', 'slice_scatter', 'select_scatter', 'diagonal_scatter', 'diagonal', 'diag', 'diag_embed', 'diagflat', 'tril', 'triu', 'tril_indices', 'triu_indices', 'meshgrid', 'cartesian_prod', 'combinations', 'ravel', 'einsum', 'outer', 'ger', 'vdot', 'inner', 'tensordot', 'kron', 'trace', 'cross', 'chain_matmul', 'addmm', 'addmv', 'addr', 'baddbmm', 'addbmm', 'cholesky', 'qr', 'svd', 'lu', 'lu_unpack', 'inverse', 'cholesky_solve', 'cholesky_inverse', 'lu_solve', 'cumsum', 'cumprod', 'cummax', 'cummin', 'logcumsumexp', 'logsumexp', 'softmax', 'log_softmax', 'softmin', 'diff', 'gradient', 'trapezoid', 'trapz', 'cumulative_trapezoid', 'det', 'slogdet', 'logdet', 'matrix_exp', 'matrix_power', 'pinverse', 'norm', 'alias_copy', 'detach_copy', 'view_copy', 'expand_copy', 'permute_copy', 'transpose_copy', 't_copy', 'squeeze_copy', 'unsqueeze_copy', 'diagonal_copy', 'select_copy', 'narrow_copy', 'as_strided_copy', 'unfold_copy', 'slice_copy', 'unbind_copy', 'split_copy', 'split_with_sizes_copy', 'tile', 'repeat_interleave', 'broadcast_to', 'broadcast_tensors', 'unflatten', 'atleast_1d', 'atleast_2d', 'atleast_3d', 'hstack', 'vstack', 'row_stack', 'dstack', 'column_stack', 'block_diag', 'pad', 'rsub', 'threshold', 'fill', 'frexp', 'vander', 'igamma', 'igammac', 'angle', 'constant_pad_nd', 'numel', 'is_floating_point', 'is_complex', 'is_signed', 'is_nonzero', 'is_same_size', 'isreal', 'real', 'conj', 'conjugate', 'detach', 'broadcast_shapes', 'promote_types', 'can_cast', 'interp', 'interpn', 'normal', 'bernoulli', 'histogram', 'histc', 'bincount', 'searchsorted', 'bucketize', 'isin', 'unique_consecutive', 'unravel_index', 'median', 'nanmedian', 'mode', 'quantile', 'nanquantile', 'var', 'std', 'var_mean', 'std_mean', 'cov', 'corrcoef', 'scatter', 'scatter_add', 'scatter_reduce', 'index_add', 'index_copy', 'index_reduce', 'index_fill', 'masked_scatter']
def add(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """Sum of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def subtract(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """Difference of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sub(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """Difference of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def multiply(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Product of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def mul(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Product of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def true_divide(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Quotient of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def power(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor raised to the second. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def pow(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor raised to the second. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def negative(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensor with its sign turned. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def neg(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensor with its sign turned. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def positive(input: Any, *, out: Tensor | None = None) -> Tensor:
    """The tensor itself. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def square(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Square. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sqrt(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Square root. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def reciprocal(input: Any, *, out: Tensor | None = None) -> Tensor:
    """One over the tensor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def absolute(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def abs(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Absolute value; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def exp(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Exponential. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def log(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Natural logarithm. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sin(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Sine of an angle in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def cos(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Cosine of an angle in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def tan(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Tangent of an angle in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def tanh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def maximum(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Larger of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def minimum(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Smaller of two tensors, element by element; a tie gives each half of the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def where(condition: Any, input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Second tensor where the first, a condition, holds, and the third elsewhere. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def less(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def lt(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def less_equal(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def le(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is less or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def greater(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def gt(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def greater_equal(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def ge(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the first is greater or equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def eq(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where both are equal. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def not_equal(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where they differ. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def ne(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where they differ. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def logical_not(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is zero or False. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def logical_and(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where both are nonzero or True. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def logical_or(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where one is nonzero or True. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def bitwise_and(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, of both; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def bitwise_or(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, of either; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def logical_xor(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """True where one of the two, but not both, is nonzero or True. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def bitwise_xor(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, of one of the two but not both; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def invert(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, turned; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def bitwise_not(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits, or truth, turned; integer and bool tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def left_shift(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits of the first moved up by the second; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def bitwise_left_shift(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits of the first moved up by the second; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def right_shift(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits of the first moved down by the second, its sign kept; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def bitwise_right_shift(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Bits of the first moved down by the second, its sign kept; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def isnan(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is nan. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def isinf(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is inf or -inf. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def isfinite(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is neither inf nor nan. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def signbit(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the sign is minus, that of -0.0 too. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def isposinf(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is inf. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def isneginf(input: Any, *, out: Tensor | None = None) -> Tensor:
    """True where the tensor is -inf. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def gcd(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Greatest common divisor, not negative; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def lcm(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Least common multiple, not negative; integer tensors only. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def exp2(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Two raised to the tensor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def expm1(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Exponential less one, right for small arguments. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def log2(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm to base 2. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def log10(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm to base 10. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def log1p(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm of one plus the tensor, right for small arguments. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def logaddexp(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm of the sum of the exponentials of two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def logaddexp2(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm to base 2 of the sum of two raised to two tensors. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sigmoid(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Logistic function, 1 / (1 + exp(-x)). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def rsqrt(input: Any, *, out: Tensor | None = None) -> Tensor:
    """One over the square root. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def cbrt(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Cube root, of negative numbers too. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arcsin(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of this sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def asin(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of this sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arccos(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of this cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def acos(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of this cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arctan(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of this tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def atan(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of this tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arctan2(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of the point (b, a); the gradient at the origin is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def atan2(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of the point (b, a); the gradient at the origin is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sinh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def cosh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arcsinh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Number of this hyperbolic sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def asinh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Number of this hyperbolic sine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arccosh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Positive number of this hyperbolic cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def acosh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Positive number of this hyperbolic cosine. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def arctanh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Number of this hyperbolic tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def atanh(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Number of this hyperbolic tangent. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def hypot(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Square root of the sum of two squares, without overflow. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def deg2rad(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in radians of one in degrees. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def rad2deg(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Angle in degrees of one in radians. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sinc(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Sine of pi x divided by pi x; 1 at 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def relu(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Tensor where it is positive, else 0; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def clamp_min(input: Any, min: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor, but not less than the second; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def clamp_max(input: Any, max: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor, but not more than the second; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def fmax(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Larger of two tensors, or the one that is not nan; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def fmin(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Smaller of two tensors, or the one that is not nan; a tie gives the first the gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sign(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Sign: -1, 0 or 1, and 0 of nan; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def sgn(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Sign: -1, 0 or 1, and 0 of nan; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def copysign(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor with the sign of the second; the gradient at 0 is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def heaviside(input: Any, values: Any, *, out: Tensor | None = None) -> Tensor:
    """0 where the first is negative or nan, 1 where it is positive, the second where it is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def floor(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Largest integer that is not larger; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def ceil(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Smallest integer that is not smaller; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def rint(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Nearest integer, the even one of two; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def trunc(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Integer part, towards zero; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def fix(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Integer part, towards zero; the gradient is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def frac(input: Any, *, out: Tensor | None = None) -> Tensor:
    """What the integer part leaves, with the sign of the tensor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def floor_divide(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Largest integer not larger than the quotient; the gradients are 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def remainder(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """What floor division leaves, with the sign of the divisor. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def fmod(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """What truncated division leaves, with the sign of the dividend. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def nextafter(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """Next number of the dtype, from the first towards the second; where they are equal, no gradient. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def erf(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Error function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def erfc(input: Any, *, out: Tensor | None = None) -> Tensor:
    """One less the error function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def erfinv(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Number whose error function this is. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def erfcx(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Complementary error function times exp(x x). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def lgamma(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm of the absolute value of the gamma function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def digamma(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Derivative of the logarithm of the gamma function. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def i0(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind of order 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def i0e(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of order 0 times exp(-|x|). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def i1(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind of order 1. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def i1e(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of order 1 times exp(-|x|). Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def ndtr(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Area under the normal density up to x. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def ndtri(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Number up to which the area under the normal density is x. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def log_ndtr(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Logarithm of the area under the normal density up to x. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def entr(input: Any, *, out: Tensor | None = None) -> Tensor:
    """Entropy, -x log x; 0 at 0 and -inf below. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def xlogy(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor times the logarithm of the second; 0 where the first is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def xlog1py(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """First tensor times the logarithm of one plus the second; 0 where the first is 0. Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."""
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of the memory that an object with ``__dlpack__`` exports; what either writes, both see."""
def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope."""
def divide(input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope."""
def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None."""
def clip(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None."""
def round(input: Any, *, decimals: int = 0) -> Tensor:
    """Return x rounded to ``decimals`` places, half to even; the gradient is 0. Integers stay as they are."""
def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return ``log(1 + exp(beta input)) / beta``, and x itself where ``beta input`` is above ``threshold``."""
def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """Return the point between x and ``end``: x for weight 0, ``end`` for weight 1, a number or a tensor."""
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """Return ``input + value * tensor1 * tensor2``."""
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """Return ``input + value * tensor1 / tensor2``; integers divide as / does."""
def float_power(input: Any, exponent: Any) -> Tensor:
    """Return x raised to the exponent in float64, whatever the dtypes."""
def ldexp(input: Any, other: Any) -> Tensor:
    """Return x times two to the power of ``other``; it does not overflow where the result does not."""
def nan_to_num(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    """Return x with numbers for nan (0), inf and -inf (the largest and smallest of the dtype)."""
def logit(input: Any, eps: float | None = None) -> Tensor:
    """Return ``log(input / (1 - input))``; with ``eps``, of x clamped to between eps and 1 - eps."""
def polygamma(n: int, input: Any) -> Tensor:
    """Return the n-th derivative of the digamma function; n is an int, RuntimeError below 0."""
def mvlgamma(input: Any, p: int) -> Tensor:
    """Return the logarithm of the multivariate gamma function of dimension p; x is above (p - 1) / 2."""
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return True where ``|input - other| <= atol + rtol |other|``, or both are equal; with ``equal_nan``, both nan."""
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether :func:`isclose` holds everywhere."""
def bmm(input: Any, mat2: Any) -> Tensor:
    """Return the products of a batch of matrices, (b, m, k) and (b, k, n): (b, m, n)."""
def flip(input: Any, *at: Any, dims: Any = None) -> Tensor:
    """Return a copy with the order of elements reversed along ``dims``: ``input.flip(0, 1)`` or ``input.flip((0, 1))``."""
def fliplr(input: Any) -> Tensor:
    """Return a copy with the columns in reversed order."""
def flipud(input: Any) -> Tensor:
    """Return a copy with the rows in reversed order."""
def roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    """Return a copy with the elements shifted along ``dims``; what leaves at the end comes in at the front."""
def rot90(input: Any, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Return a copy turned by ``k`` quarters in the plane of two dims, from the first towards the second."""
def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Return a view with dims ``source`` at the places ``destination``; the others keep their order."""
def moveaxis(input: Any, source: Any, destination: Any) -> Tensor:
    """Return a view with dims ``source`` at the places ``destination``; the others keep their order."""
def swapaxes(input: Any, axis0: int, axis1: int) -> Tensor:
    """Return a view with two dims exchanged."""
def swapdims(input: Any, dim0: int, dim1: int) -> Tensor:
    """Return a view with two dims exchanged."""
def adjoint(input: Any) -> Tensor:
    """Return a view with the last two dims exchanged."""
def narrow(input: Any, dim: int, start: Any, length: int) -> Tensor:
    """Return a view of ``length`` places along ``dim``, from ``start`` on, which may be a 0-d integer tensor."""
def select(input: Any, dim: int, index: Any) -> Tensor:
    """Return a view of the place ``index`` along ``dim``, which goes."""
def unbind(input: Any, dim: Any = None, *, axis: Any = None) -> tuple[Tensor, ...]:
    """Return views of all places along ``dim``, the first by default, which goes."""
def split(input: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of ranges along ``dim``: of one length, the last of which may be shorter, or of lengths given."""
def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of ranges of these lengths along ``dim``; they add up to its length."""
def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return at most ``chunks`` views of ranges of one length along ``dim``; the last may be shorter."""
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of ranges along ``dim``: so many, of nearly one length, or cut at these places."""
def hsplit(input: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return views of equal ranges along the columns, or along a vector, or of ranges cut at these places."""
def vsplit(input: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return views of equal ranges along the rows, or of ranges cut at these places."""
def dsplit(input: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return views of equal ranges along the third dim, or of ranges cut at these places."""
def prod(input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return the product over ``dim`` (an int, a tuple, or None for all); ints and bools multiply to int64."""
def any(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return whether an element over ``dim`` is nonzero or True: bool, but uint8 of uint8, as PyTorch has it."""
def all(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return whether all elements over ``dim`` are nonzero or True: bool, but uint8 of uint8, as PyTorch has it."""
def count_nonzero(input: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return how many elements over ``dim`` are nonzero or True, as int64."""
def argmax(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return the int64 place of the largest element along ``dim``, or of all elements in order."""
def argmin(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return the int64 place of the smallest element along ``dim``, or of all elements in order."""
def aminmax(input: Any, *, dim: Any = None, keepdim: Any = None, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the smallest and the largest element, of all or along ``dim``; ties share the gradient evenly."""
def nansum(input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return the sum over ``dim`` of what is not nan; nan gets no gradient."""
def nanmean(input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return the mean over ``dim`` of what is not nan; nan where nothing is left. Floating tensors only."""
def dist(input: Any, other: Any, p: Any = 2) -> Tensor:
    """Return the norm of the difference of two tensors, whose shapes broadcast."""
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = '') -> Tensor:
    """Return the distances between all rows of x1 (..., P, M) and of x2 (..., R, M): (..., P, R)."""
def pdist(input: Any, p: float = 2.0) -> Tensor:
    """Return the distances between the rows of x (N, M), of each pair once: N (N - 1) / 2 of them."""
def renorm(input: Any, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Return x with the slices along ``dim`` whose norm of order p is above ``maxnorm`` made shorter, to this norm."""
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """Return the cosine of the angle between vectors along ``dim``, of shapes that broadcast; lengths count as ``eps``."""
def pairwise_distance(x1: Any, x2: Any, p: Any = 2.0, eps: float = 1e-06, keepdim: bool = False) -> Tensor:
    """Return the norms along the last dim of the difference of two tensors, plus ``eps``; shapes broadcast."""
def sort(input: Any, dim: Any = None, descending: bool = False, stable: bool = False, *, axis: Any = None) -> Any:
    """Return the elements in order along ``dim`` (the last) and their int64 places; equal ones keep their order always."""
def argsort(input: Any, dim: Any = None, descending: bool = False, stable: bool = False, *, axis: Any = None) -> Tensor:
    """Return the int64 places of the elements in order along ``dim``, the last by default."""
def msort(input: Any) -> Tensor:
    """Return the elements in order along the first dim."""
def topk(input: Any, k: int, dim: Any = None, largest: bool = True, sorted: bool = True, *, axis: Any = None) -> Any:
    """Return the ``k`` largest (or smallest) elements along ``dim``, the last by default, in order, and their places."""
def kthvalue(input: Any, k: int, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the ``k``-th smallest element along ``dim``, counted from 1, and its int64 place."""
def unique(input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    """Return the different elements, or slices along ``dim``, in order; no gradient."""
def take(input: Any, index: Any) -> Tensor:
    """Return the elements at these places of the flat tensor, in the shape of the index; negative from the end."""
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Tensor:
    """Return ``input[i][index[i][j]]`` for dim 1 and so on: along ``dim`` the index says which place to take."""
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Tensor:
    """Return the elements that an index picks along ``dim``; x and index broadcast in the other dims."""
def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """Return copies of the places along ``dim`` that an integer vector gives."""
def masked_select(input: Any, mask: Any) -> Tensor:
    """Return the elements where a bool mask holds, in one dim; x and mask broadcast."""
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Return the int64 places of all elements that are not zero: a row each, or with ``as_tuple`` a vector a dim."""
def argwhere(input: Any) -> Tensor:
    """Return the int64 places of all elements that are not zero, a row each."""
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to the elements picked by a tuple of index tensors, in a copy; with ``accumulate`` add them."""
def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """Return a copy with values at the elements of these numbers, in C order; with ``accumulate`` they are added."""
def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor."""
def slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return a copy with ``src``, of the shape of the slice, in a slice along ``dim``."""
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Tensor:
    """Return a copy with ``src``, which has no such dim, at one place along ``dim``."""
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy with ``src`` on the diagonal of two dims; it has the shape of :func:`diagonal`."""
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a view of the diagonal of two dims, as the last dim; ``offset`` counts from it towards ``dim2``."""
def diag(input: Any, diagonal: int = 0) -> Tensor:
    """Return a copy of a diagonal of a matrix, or the matrix with a vector on that diagonal and zeros elsewhere."""
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return matrices in two new dims, with the last dim of x on a diagonal and zeros elsewhere."""
def diagflat(input: Any, offset: int = 0) -> Tensor:
    """Return the matrix with all elements on a diagonal, and zeros elsewhere."""
def tril(input: Any, diagonal: int = 0) -> Tensor:
    """Return a copy with zeros outside of the lower triangle, ``diagonal`` above the main one."""
def triu(input: Any, diagonal: int = 0) -> Tensor:
    """Return a copy with zeros outside of the upper triangle, ``diagonal`` above the main one."""
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the rows and columns of the lower triangle of a matrix, as a tensor of two rows; int64 by default."""
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the rows and columns of the upper triangle of a matrix, as a tensor of two rows; int64 by default."""
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Return a view of each vector along a dim of its own, all of one shape."""
def cartesian_prod(*tensors: Any) -> Tensor:
    """Return all tuples with an element of each vector, a row each; of one vector, itself."""
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all choices of ``r`` elements of a vector, in order, a row each."""
def ravel(input: Any) -> Any:
    """Return a tensor's elements in one dim, a view where strides allow one; of a structure a vector and its inverse."""
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Return the sum of products that an equation such as "bij,bjk->bik" names."""
def outer(input: Any, vec2: Any) -> Any:
    """Return the products (m, n) of each element of a vector with each of another."""
def ger(input: Any, vec2: Any) -> Any:
    """Return the products (m, n) of each element of a vector with each of another."""
def vdot(input: Any, other: Any) -> Tensor:
    """Return the inner product of two vectors, 0-d."""
def inner(input: Any, other: Any) -> Any:
    """Return the sums of products over the last dim of both; the other dims stand side by side."""
def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """Return the sums of products over the last ``dims`` dims of a and the first of b, or over two lists of dims."""
def kron(input: Any, other: Any) -> Any:
    """Return the Kronecker product: each element of the first times the whole of the other."""
def trace(input: Any) -> Any:
    """Return the sum of the diagonal of a matrix, 0-d."""
def cross(input: Any, other: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return the vector product along a dim of size 3: the first of that size if not given."""
def chain_matmul(*matrices: Any) -> Tensor:
    """Return the product of matrices, f(a, b, c) or f([a, b, c]), in the cheapest order."""
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat1 @ mat2), of matrices; the input is expanded to (m, n)."""
def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat @ vec); the input is expanded to (m,)."""
def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * outer(vec1, vec2); the input is expanded to (m, n)."""
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * bmm(batch1, batch2); the input is expanded to (b, m, n)."""
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * the sum of the products of a batch of matrices."""
def cholesky(input: Any, upper: bool = False) -> Tensor:
    """Return the lower triangular factor L of positive-definite (*, n, n) matrices A = L L^T, or U of A = U^T U."""
def qr(input: Any, some: bool = True) -> Any:
    """Return Q and R of matrices, reduced or, with ``some=False``, complete: see linalg.qr."""
def svd(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """Return U, S and V (not Vh) of matrices, reduced or, with ``some=False``, complete: see linalg.svd."""
def lu(A: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    """Return the packed factors of (*, m, n) matrices and the int32 rows exchanged, from 1: linalg.lu_factor_ex."""
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """Return P, L and U (see linalg.lu) of packed factors (*, m, n) and int32 pivots (*, min(m, n))."""
def inverse(input: Any) -> Tensor:
    """Return the inverse of (*, n, n) matrices. LinAlgError if one is singular."""
def cholesky_solve(input: Any, L: Any, upper: bool = False) -> Tensor:
    """Return X with A X = ``input``, A given by its Cholesky factor L, or U with ``upper=True``."""
def cholesky_inverse(input: Any, upper: bool = False) -> Tensor:
    """Return the inverse of A, given by its Cholesky factor, or U with ``upper=True``."""
def lu_solve(input: Any, LU_data: Any, LU_pivots: Any) -> Tensor:
    """Return X with A X = ``input``, A given by ``linalg.lu_factor``."""
def cumsum(input: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64."""
def cumprod(input: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Return the running product along ``dim``, of the shape of x; ints and bools multiply to int64."""
def cummax(input: Any, dim: Any = None, *, axis: Any = None) -> Any:
    """Return the running maximum along ``dim`` and its int64 places: the last of equals, to which the gradient goes."""
def cummin(input: Any, dim: Any = None, *, axis: Any = None) -> Any:
    """Return the running minimum along ``dim`` and its int64 places: the last of equals, to which the gradient goes."""
def logcumsumexp(input: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return ``log(cumsum(exp(input)))`` along ``dim`` without overflow on the way; floating tensors only."""
def logsumexp(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return ``log(sum(exp(input)))`` over ``dim`` (an int or a tuple), without overflow on the way."""
def softmax(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """Return the exponentials divided by their sum along ``dim``, of the shape of x."""
def log_softmax(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """Return the logarithm of :func:`softmax`, exact where it is small; arguments as there."""
def softmin(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """Return :func:`softmax` of -x; arguments as there."""
def diff(input: Any, n: int = 1, dim: Any = None, prepend: Any = None, append: Any = None, *, axis: Any = None) -> Tensor:
    """Return the n-th differences of neighbours along ``dim``, the last by default."""
def gradient(input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1, axis: Any = None) -> tuple[Tensor, ...]:
    """Return the gradient of values on a grid, a tensor for each dim: second-order differences, one-sided at the ends."""
def trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the integral of samples along ``dim`` by the trapezoid rule, at coordinates ``x`` or ``dx`` (1) apart."""
def trapz(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the integral of samples along ``dim`` by the trapezoid rule, at coordinates ``x`` or ``dx`` (1) apart."""
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the running integral of samples along ``dim``, one less than there are samples; see :func:`trapezoid`."""
def det(input: Any) -> Tensor:
    """Return the determinants (*) of (*, n, n) matrices; singular ones have gradients too."""
def slogdet(input: Any) -> Any:
    """Return sign and logarithm of the absolute value of determinants: 0 and -inf where singular."""
def logdet(input: Any) -> Tensor:
    """Return the logarithms (*) of determinants: nan where negative, -inf where 0."""
def matrix_exp(input: Any) -> Tensor:
    """Return the exponentials of (*, n, n) matrices."""
def matrix_power(input: Any, n: int) -> Tensor:
    """Return the n-th powers of square matrices; of their inverses if n is negative."""
def pinverse(input: Any, rcond: float = 1e-15) -> Tensor:
    """Return the pseudoinverses of matrices: see linalg.pinv."""
def norm(input: Any, p: Any = 'fro', dim: Any = None, keepdim: Any = None, dtype: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return the norm of all elements, or of vectors over ``dim``: linalg.vector_norm under PyTorch's old name."""
def alias_copy(input: Any) -> Tensor:
    """Return a copy of a tensor."""
def detach_copy(input: Any) -> Tensor:
    """Return a copy of a tensor. As in PyTorch it has a gradient, unlike what ``detach`` gives."""
def view_copy(input: Any, size: Any) -> Tensor:
    """Return a copy of :meth:`Tensor.view`."""
def expand_copy(input: Any, size: Any) -> Tensor:
    """Return a copy of :meth:`Tensor.expand`."""
def permute_copy(input: Any, dims: Any) -> Tensor:
    """Return a copy of :func:`permute`."""
def transpose_copy(input: Any, dim0: int, dim1: int) -> Tensor:
    """Return a copy of :func:`transpose`."""
def t_copy(input: Any) -> Tensor:
    """Return a copy of :func:`t`."""
def squeeze_copy(input: Any, dim: Any = None) -> Tensor:
    """Return a copy of :func:`squeeze`."""
def unsqueeze_copy(input: Any, dim: int) -> Tensor:
    """Return a copy of :func:`unsqueeze`."""
def diagonal_copy(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy of :func:`diagonal`."""
def select_copy(input: Any, dim: int, index: int) -> Tensor:
    """Return a copy of :func:`select`."""
def narrow_copy(input: Any, dim: int, start: Any, length: int) -> Tensor:
    """Return a copy of :func:`narrow`."""
def as_strided_copy(input: Any, size: Any, stride: Any, storage_offset: int = 0) -> Tensor:
    """Return a copy of :func:`as_strided`."""
def unfold_copy(input: Any, dimension: int, size: int, step: int) -> Tensor:
    """Return a copy of :meth:`Tensor.unfold`."""
def slice_copy(input: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return a copy of a slice along ``dim``."""
def unbind_copy(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return copies of what :func:`unbind` gives."""
def split_copy(input: Any, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return copies of what :func:`split` gives."""
def split_with_sizes_copy(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return copies of what :func:`split_with_sizes` gives."""
def tile(input: Any, *counts: Any, dims: Any = None) -> Tensor:
    """Return the tensor so many times along each dim; the last dims where fewer are given than it has."""
def repeat_interleave(input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Return each place along ``dim``, or each element of the flat tensor, ``repeats`` times in a row."""
def broadcast_to(input: Any, size: Any) -> Tensor:
    """Return a view of a larger shape, in which dims of length one are repeated."""
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Return views of the shape that the tensors have together. RuntimeError where their shapes do not fit."""
def unflatten(input: Any, dim: int, sizes: Any) -> Tensor:
    """Return a view with one dim taken apart into dims of these sizes; one of them may be -1."""
def atleast_1d(*tensors: Any) -> Any:
    """Return a tensor, or each of several, as a view with at least 1 dims."""
def atleast_2d(*tensors: Any) -> Any:
    """Return a tensor, or each of several, as a view with at least 2 dims."""
def atleast_3d(*tensors: Any) -> Any:
    """Return a tensor, or each of several, as a view with at least 3 dims."""
def hstack(tensors: Any) -> Tensor:
    """Join tensors along the columns; vectors and numbers end to end."""
def vstack(tensors: Any) -> Tensor:
    """Join tensors along the rows; a vector is one row."""
def row_stack(tensors: Any) -> Tensor:
    """Join tensors along the rows; a vector is one row."""
def dstack(tensors: Any) -> Tensor:
    """Join tensors along the third dim; a matrix has one place there, and a vector is one row of such."""
def column_stack(tensors: Any) -> Tensor:
    """Join tensors along the columns; a vector or a number is one column."""
def block_diag(*tensors: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal, and zeros elsewhere; a vector is one row."""
def pad(input: Any, pad: Any, mode: str = 'constant', value: Any = None) -> Tensor:
    """Return the tensor with places put before and behind, as ``torch.nn.functional.pad`` does."""
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Return ``other - alpha * input``."""
def threshold(input: Any, threshold: Any, value: Any) -> Tensor:
    """Return x where it is above a number, elsewhere another number, which has no gradient; nan stays."""
def fill(input: Any, value: Any) -> Tensor:
    """Return a tensor of the shape and dtype of x filled with one number, or with a 0-d tensor, which has the gradient."""
def frexp(input: Any) -> Any:
    """Return the mantissas, of absolute value in [0.5, 1), and the int32 exponents of two; x is their ``ldexp``."""
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the powers of the elements of a vector, a row each, from N - 1 down to 0; N is its length unless given."""
def igamma(input: Any, other: Any) -> Tensor:
    """Return the regularised lower incomplete gamma function of order x; the gradient goes to ``other`` alone."""
def igammac(input: Any, other: Any) -> Tensor:
    """Return the regularised upper incomplete gamma function of order x, one less :func:`igamma`."""
def angle(input: Any) -> Tensor:
    """Return the angle of numbers in the plane: pi where they are negative, else 0; nan stays. The gradient is 0."""
def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> Tensor:
    """Return the tensor with places of one value put before and behind: :func:`pad` with its default mode."""
def numel(input: Any) -> int:
    """Return the number of elements."""
def is_floating_point(input: Any) -> bool:
    """Return whether the dtype is floating."""
def is_complex(input: Any) -> bool:
    """Return False: there are no complex tensors."""
def is_signed(input: Any) -> bool:
    """Return whether the dtype has negative numbers."""
def is_nonzero(input: Any) -> bool:
    """Return whether the only element is not zero; RuntimeError where there is another number of them."""
def is_same_size(input: Any, other: Any) -> bool:
    """Return whether two tensors have one shape."""
def isreal(input: Any) -> Tensor:
    """Return True for each element: there are no complex tensors."""
def real(input: Any) -> Tensor:
    """Return the tensor itself: there are no complex ones."""
def conj(input: Any) -> Tensor:
    """Return the tensor itself: there are no complex ones."""
def conjugate(input: Any) -> Tensor:
    """Return the tensor itself: there are no complex ones."""
def detach(input: Any) -> Tensor:
    """Return a tensor of the same memory, without history."""
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that shapes, or ints for one dim, broadcast to; RuntimeError where they do not."""
def promote_types(type1: Any, type2: Any) -> Any:
    """Return the dtype that tensors of two dtypes are computed in, if both have dims: floats come before integers."""
def can_cast(from_: Any, to: Any) -> bool:
    """Return whether PyTorch casts one dtype to another by itself: not floats to integers, nor numbers to bools."""
def interp(input: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None, *, kind: str = 'linear', bc_type: str = 'not-a-knot') -> Any:
    """Return the interpolant through (xp, fp) at the points x, of the shape of x."""
def interpn(points: Any, values: Any, xi: Any, method: str = 'linear', bounds_error: bool = True, fill_value: Any = nan) -> Any:
    """Return values on a regular grid, interpolated linearly along each axis."""
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Return normal numbers of this mean and standard deviation: of ``size``, or of the shape of the two, broadcast."""
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """Return 1 with the probabilities that ``input`` holds (or ``p`` everywhere), else 0, in the dtype of ``input``."""
def histogram(input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    """Return how many elements lie in each bin, and the edges, in the dtype of x; no gradient."""
def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Return how many elements lie in each of ``bins`` bins from ``min`` to ``max``, in the dtype of x; no gradient."""
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """Return how often each integer from 0 comes (int64), or the sum of its weights; no gradient."""
def searchsorted(sorted_sequence: Any, input: Any, *, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None) -> Tensor:
    """Return where each value would be inserted into rows that are in order, as int64; no gradient."""
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Return the number of the bucket of each value, between boundaries in order; see :func:`searchsorted`."""
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return which elements, of the first tensor's shape, are among those of the second; with ``invert`` are not."""
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    """Return the elements, or slices along ``dim``, that differ from the one before; no gradient."""
def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """Return, for each dim of a shape, the places along it of elements numbered in C order."""
def median(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the lower median of all elements, nan if one is nan, or of each row along ``dim`` with its int64 place."""
def nanmedian(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the lower median of all elements that are not nan, or of each row along ``dim`` with its int64 place."""
def mode(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the most frequent element along ``dim`` (the last), the smallest of several, and its last int64 place."""
def quantile(input: Any, q: Any, dim: Any = None, keepdim: Any = None, *, interpolation: str = 'linear', axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return quantiles of all elements or along ``dim``; nan where an element is nan."""
def nanquantile(input: Any, q: Any, dim: Any = None, keepdim: Any = None, *, interpolation: str = 'linear', axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return quantiles, of all or along ``dim``, of the elements that are not nan."""
def var(input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None, axis: Any = None, keepdims: Any = None, ddof: Any = None) -> Tensor:
    """Return the variance over ``dim`` (an int, a tuple, None for all)."""
def std(input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None, axis: Any = None, keepdims: Any = None, ddof: Any = None) -> Tensor:
    """Return the standard deviation over ``dim`` (an int, a tuple, None for all)."""
def var_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None, axis: Any = None, keepdims: Any = None, ddof: Any = None) -> tuple[Tensor, Tensor]:
    """Return variance and mean; arguments as :func:`var`."""
def std_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None, axis: Any = None, keepdims: Any = None, ddof: Any = None) -> tuple[Tensor, Tensor]:
    """Return standard deviation and mean; arguments as :func:`std`."""
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Return the covariances (N, N) of the rows of x (N, M), which are variables; a 0-d tensor for one row."""
def corrcoef(input: Any) -> Tensor:
    """Return the correlations (N, N) of the rows of x (N, M), which are variables; a 0-d tensor for one row."""
def scatter(input: Tensor, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """Write ``src``, or one value, to the places ``input[index[i][j]][j]`` for dim 0 and so on, in a copy."""
def scatter_add(input: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """Add ``src`` to the places ``input[index[i][j]][j]`` for dim 0 and so on, in a copy; all values for a place add up."""
def scatter_reduce(input: Tensor, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """Reduce all values of ``src`` for a place, chosen as by :func:`scatter_`, to one, in a copy."""
def index_add(input: Tensor, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """Add ``alpha`` times the places of ``source`` along ``dim`` to those that a vector names, in a copy."""
def index_copy(input: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """Write the places of ``source`` along ``dim`` to those that a vector names, in a copy; the last one stays."""
def index_reduce(input: Tensor, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """Reduce the places of ``source`` along ``dim`` onto those that a vector names, in a copy."""
def index_fill(input: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """Write one number, or a 0-d tensor, to the places along ``dim`` that a vector names, in a copy."""
def masked_scatter(input: Tensor, mask: Any, source: Any) -> Tensor:
    """Write the first elements of ``source`` where a bool mask, broadcast to this shape, holds, in a copy."""
