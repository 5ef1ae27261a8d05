"""Matrix products, and ufuncs called on tensors."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from kernels.foundation.specs import silently
from kernels.kinds.elementwise import Contraction, Elementwise
from kernels.native import pool
from kernels.native.structs import MOST_OPERANDS, OP_MATMUL
from kernels.operations import OPS
from kernels.operations.interpolation import Pattern, pattern_of
from kernels.rules.op import LateUfunc
from tape.errors import shorten
from tape.operations.elementwise import FUNCTIONS, cast, into_array, written
from tape.recording import foreign_calls, record, views
from tape.recording.cached_calls import NATIVELY, cached_call, number_of, number_of_op
from tape.recording.indexed_calls import array_key
from tape.recording.parameters import names_of, taking_out
from tape.recording.promotion import alike
from tape.tensors import modes
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import FUNCTIONS as PUBLIC
from tape.tensors.hooks import NUMPY, RECORDS, public
from tape.tensors.operands import Number, _merge, is_foreign, tensor_of
from tape.tensors.tensor import Tensor, as_array, method

_PRODUCTS = {op.ranks[0]: op for op in OPS.values() if isinstance(op, Contraction)}
"""The records of products by the ranks of both operands."""
_BMM: Any = OPS["bmm"]
MATMUL = number_of("matmul")
_MATRIX = 2
_BATCH = 3


_OPERANDS = {1: "a vector", 2: "a matrix"}


def _checked(name: str, a: Any, b: Any) -> Tensor:
    a, b = alike(a, b)
    shapes = a.spec.shape, b.spec.shape
    op = _PRODUCTS.get((len(shapes[0]), len(shapes[1])))
    if op is None and name == "matmul":
        return _of_batches(a, b)
    if op is None or name not in ("matmul", op.name):
        ranks = OPS[name].ranks[0]  # type: ignore[attr-defined]
        raise RuntimeError(
            f"{name}: operands of shapes {list(shapes[0])} and {list(shapes[1])}; {name} takes "
            f"{' and '.join(_OPERANDS[rank] for rank in ranks)}, use matmul"
        )
    if shapes[0][-1] != shapes[1][0]:
        raise RuntimeError(_mismatch(op.name, *shapes))
    value = silently(pool.call, np.matmul, as_array(a), as_array(b))
    return record.finish(op, (a, b), value)


def _mismatch(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> str:
    if name == "mm":
        return f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})"
    if name == "dot":
        return (
            f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same number of elements, "
            f"but got {a[0]} and {b[0]} elements respectively"
        )
    return f"{name}: size mismatch, got input {list(a)} and {list(b)}"


def _of_batches(a: Tensor, b: Tensor) -> Tensor:
    left, right = a.spec.shape, b.spec.shape
    if not left or not right:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(left)}D and {len(right)}D"
        )
    if len(right) <= _MATRIX:
        rows, k = left[:-1], left[-1]
        flat = matmul(views.reshape(a, (math.prod(rows), k)), b)
        return views.reshape(flat, (*rows, *right[1:]))
    if len(left) == 1:
        return views.squeeze(_of_batches(views.unsqueeze(a, 0), b), -2)
    batch = _merge("matmul", left[:-2], right[:-2])
    m, k, n = left[-2], left[-1], right[-1]
    if k != right[-2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{math.prod(batch)}, {k}] but got: "
            f"[{math.prod(batch)}, {right[-2]}]."
        )
    return product_of_batches(_spread(a, (*batch, m, k)), _spread(b, (*batch, k, n)))


def _spread(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.spec.shape == shape else views.expand(x, shape)


@cached_call()
def product_of_batches(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of the same extents in front."""
    return foreign_calls.call(_BMM, a, b)  # type: ignore[no-any-return]


@public()
@cached_call()
def bmm(input: Any, mat2: Any) -> Tensor:
    """Return the products of a batch of matrices, (b, m, k) and (b, k, n): (b, m, n).

    >>> tape.bmm(tape.ones(2, 1, 3), tape.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """
    a, b = alike(input, mat2)
    for number, x in enumerate((a, b), 1):
        if len(x.spec.shape) != _BATCH:
            raise RuntimeError(f"bmm: batch{number} must be a 3D tensor; its shape is {list(x.spec.shape)}")
    left, right = a.spec.shape, b.spec.shape
    if right[:2] != (left[0], left[2]):
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{left[0]}, {left[2]}] but got: "
            f"[{right[0]}, {right[1]}]."
        )
    return foreign_calls.call(_BMM, a, b)  # type: ignore[no-any-return]


@taking_out
@method()
@cached_call(marks=0)
def mm(input: Any, mat2: Any) -> Tensor:
    """Return the product of an (m, k) and a (k, n) matrix.

    >>> tape.mm(tape.eye(2), tape.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    return _checked("mm", input, mat2)


@taking_out
@method()
@cached_call(marks=0)
def mv(input: Any, vec: Any) -> Tensor:
    """Return the product of an (m, k) matrix and a (k,) vector.

    >>> tape.mv(tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _checked("mv", input, vec)


@taking_out
@method()
@cached_call(marks=0)
def dot(input: Any, tensor: Any) -> Tensor:
    """Return the inner product of two vectors, 0-d.

    >>> tape.dot(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return _checked("dot", input, tensor)


@taking_out
@method()
@cached_call(marks=0, number=MATMUL)
def matmul(input: Any, other: Any) -> Tensor:
    """Return the product of vectors, matrices and batches of them, as ``@`` does; batches are broadcast.

    >>> tape.matmul(tape.ones(4, 2, 3), tape.ones(3)).shape
    tape.Size([4, 2])
    """
    return _checked("matmul", input, other)


# SciPy's sparse matrices. Where they come first SciPy makes an array of the tensor, which is an object that is no array
# then, so that SciPy leaves the product to the tensor (tape/numpy_interface/protocols.py).

_patterns: dict[int, tuple[Any, Pattern]] = {}  # by the number of SciPy's array of columns
_MOST_PATTERNS = 64


def _pattern(matrix: Any) -> Pattern:
    """Return the pattern of SciPy's csr_array: the one of the last product if it has not changed since."""
    columns, starts = matrix.indices, matrix.indptr
    held, known = _patterns.get(id(columns), (None, None))
    if held is not None and known is not None and held() is columns and known.shape == matrix.shape:
        pairs: tuple[tuple[Any, Any], ...] = (known.columns, columns), (known.indptr, starts)
        if all(np.array_equal(before, now) for before, now in pairs):
            return known
    pattern = pattern_of(columns.astype(np.int64), starts.astype(np.int64), matrix.shape)
    for oldest in list(_patterns)[: -_MOST_PATTERNS + 1]:
        _patterns.pop(oldest, None)
    _patterns[id(columns)] = ref(columns), pattern
    return pattern


def is_scipys(x: Any) -> bool:
    """Whether an operand is a sparse matrix of SciPy's."""
    return type(x).__module__.startswith("scipy.sparse") and hasattr(x, "tocsr")


def sparse_product(data: Any, x: Any, pattern: Pattern, *, trans: bool) -> Tensor:
    """Return a sparse matrix, or it transposed, times a vector or a dense matrix. ValueError for other shapes."""
    x, (m, n) = tensor_of(x), pattern.shape[::-1] if trans else pattern.shape
    if len(x.spec.shape) not in (1, 2) or x.spec.shape[0] != n:
        raise ValueError(
            f"matmul: dimension mismatch: the matrix is {m} by {n}, the operand has shape {list(x.spec.shape)}"
        )
    return foreign_calls.call(OPS["spmm"], data, x, pattern=pattern, trans=trans)  # type: ignore[no-any-return, arg-type]


def _with_scipys(matrix: Any, x: Tensor, *, left: bool) -> Tensor:
    """Return SciPy's matrix times a tensor, or with ``left`` a tensor times the matrix."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":  # noqa: PLR2004 (a matrix)
        raise TypeError(f"matmul: a {type(matrix).__name__} of {matrix.ndim} dims and {matrix.dtype} times a tensor")
    is_turned = matrix.format == "csc"  # whose transpose is CSR, of the same memory
    rows = matrix.T if is_turned else matrix.tocsr()
    data = rows.data if rows.data.dtype.kind == "f" else rows.data.astype(x.dtype)
    product = partial(sparse_product, data, pattern=_pattern(rows), trans=is_turned != left)
    return views.t(product(views.t(x))) if left and len(x.spec.shape) > 1 else product(x)


def _operator(self: Any, other: Any, /) -> Tensor:
    if is_scipys(other):
        return _with_scipys(other, self, left=True)
    foreign = type(other) is not Tensor and (isinstance(other, Number) or is_foreign(other))
    return NotImplemented if foreign else _checked("matmul", self, other)


def _reversed(self: Any, other: Any, /) -> Tensor:
    if is_scipys(other):
        return _with_scipys(other, self, left=False)
    return NotImplemented if isinstance(other, Number) or is_foreign(other) else _checked("matmul", other, self)


if NATIVELY:
    cached_call(marks=0, number=OP_MATMUL, slot=True)(
        lambda a, b: _operator(a, b) if isinstance(a, Tensor) else _reversed(b, a)
    )
else:
    method("__matmul__")(_operator)
    method("__rmatmul__")(_reversed)


# ``np.add(tensor, ...)`` and the methods of ufuncs: they find the records, with NumPy's meaning.
#
# A ufunc of ``scipy.special`` finds its record by name. What has no counterpart raises TypeError.

_REMEDY = "use tensor.detach().numpy() where no gradient is needed"
_UFUNCS: dict[Any, Callable[..., Any]] = {}
_LATE: dict[str, tuple[LateUfunc, Callable[..., Any]]] = {}


def _in_numpy(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return a function of several operands as NumPy's: operands of several dtypes, which are not in the table."""
    in_numpy = functools.update_wrapper(partial(modes.call_in_numpy, function), function)
    return cached_call(None, marks=0, number=number)(in_numpy)


for _op in OPS.values():
    if isinstance(_op, Elementwise) and names_of(_op):
        _serves = FUNCTIONS[names_of(_op)[0]]
        if 1 < len(_op.inputs) <= MOST_OPERANDS:
            _serves = _in_numpy(_serves, number_of_op(_op))
        if isinstance(_op.ufunc, LateUfunc):
            _LATE[_op.ufunc.__name__] = _op.ufunc, _serves
        elif isinstance(_op.ufunc, np.ufunc):
            _UFUNCS[_op.ufunc] = _serves

RECORDS[np.matmul] = ("dot", "mv", "vm", "mm", "bmm")
_UFUNCS[np.matmul] = _in_numpy(matmul, MATMUL)
_UFUNCS[np.positive] = lambda x: views.clone(tensor_of(x))  # +x is x itself, as in PyTorch


def _isnan(x: Any) -> Any:
    """Run np.isnan; refuse what SciPy's root finders ask of: their native code goes on after the error of a number."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == _ROOT_FINDERS and x._slot is not None and modes.is_grad_enabled():
        refused = foreign_calls.refusal_of_number(frame, x)
        assert refused is not None
        raise refused
    return FUNCTIONS["isnan"](x)


_ROOT_FINDERS = "scipy.optimize._zeros_py"
_UFUNCS[np.isnan] = _isnan
# What reduces, and what accumulates, as a ufunc's methods do: functions of NumPy's that serve tensors.
_REDUCE = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
           np.logical_and: np.all, np.logical_or: np.any}  # fmt: skip
_ACCUMULATE = {np.add: np.cumsum, np.multiply: np.cumprod}
_RUNNING = {np.maximum: "cummax", np.minimum: "cummin", np.logaddexp: "logcumsumexp"}


def serve(name: str, late: LateUfunc, function: Callable[..., Any]) -> None:
    """Let a function of more than the record serve a ufunc of SciPy's, by the ufunc's own name."""
    _LATE[name] = late, function


_known: dict[np.ufunc, Callable[..., Any] | None] = {}  # what serves the ufuncs that have been asked for


def served(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return what serves a ufunc: a function with NumPy's meaning, else its record; None if there is neither."""
    if ufunc not in _known:
        function = NUMPY.get(ufunc) or _UFUNCS.get(ufunc)
        if function is None and ufunc.__name__ in _LATE:
            late, tensor_function = _LATE[ufunc.__name__]
            function = tensor_function if late.ufunc is ufunc else None
        _known[ufunc] = function
    return _known[ufunc]


@method("__array_ufunc__")
def array_ufunc(_x: Tensor, ufunc: np.ufunc, how: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run a ufunc, or one of its methods, through its record."""
    function = _known.get(ufunc) or served(ufunc)
    try:
        if how == "__call__" and not kwargs and function is not None:
            return function(*inputs)
        return modes.call_in_numpy(_run, ufunc, function, how, inputs, kwargs)
    except Exception as error:
        shorten(error)
        raise


def _run(ufunc: np.ufunc, function: Any, how: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    way = _WAYS.get(how)
    if way is None or (function is None and how in ("__call__", "outer")):
        raise _unknown(ufunc, how)
    out = kwargs.pop("out", None)
    if how == "__call__":
        result = _called(ufunc, function, inputs, kwargs, out)
    else:
        result = way(ufunc, function, inputs, kwargs)
    return written(ufunc.__name__, out, result)


def _unknown(ufunc: np.ufunc, how: str, what: str = "") -> TypeError:
    name = ufunc.__name__ + ("" if how == "__call__" else f".{how}")
    is_scipys = getattr(sys.modules.get("scipy.special"), ufunc.__name__, None) is ufunc
    owner = "np." if getattr(np, ufunc.__name__, None) is ufunc else "scipy.special." if is_scipys else "the ufunc "
    return TypeError(f"{owner}{name}{what} has no record for tensors; {_REMEDY}")


def _called(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    if ufunc in NUMPY:
        return function(*inputs, **kwargs)
    where, dtype = kwargs.pop("where", True), kwargs.pop("dtype", None)
    if kwargs.pop("casting", "same_kind") != "same_kind" or kwargs.pop("order", "K") != "K":
        raise _unknown(ufunc, "__call__", " with casting= or order=")
    kwargs.pop("subok", None)
    if kwargs:
        raise _unknown(ufunc, "__call__", f" with {', '.join(kwargs)}")
    if dtype is not None:
        inputs = tuple([record.to_dtype(tensor_of(x), dtype_of(dtype)) for x in inputs])
    result = function(*inputs)
    if where is True:
        return result
    if out is None:
        raise _unknown(ufunc, "__call__", " with where= but no out=")
    return FUNCTIONS["where"](where, result, out[0])


def _reduce(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Reduce as ``ufunc.reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial, where)``."""
    del function
    (x, *rest) = inputs
    arguments = {"axis": 0, **dict(zip(("axis", "dtype", "out", "keepdims", "initial", "where"), rest, strict=False))}
    arguments = {k: v for k, v in {**arguments, **kwargs}.items() if v is not np._NoValue}
    if ufunc is np.logaddexp and not arguments.keys() - {"axis", "keepdims"}:
        return PUBLIC["logsumexp"](x, arguments["axis"], arguments.get("keepdims", False))
    if ufunc not in _REDUCE:
        raise _unknown(ufunc, "reduce")
    if ufunc in (np.logical_and, np.logical_or):  # NumPy's all and any take no dtype and no initial
        first = arguments.pop("initial", None)
        if arguments.pop("dtype", None) not in (None, bool, np.bool_):
            raise _unknown(ufunc, "reduce", " with dtype=")
        result = NUMPY[_REDUCE[ufunc]](x, **arguments)
        return result if first is None else ufunc(result, first)
    if arguments.get("dtype", ...) is None or ufunc in (np.maximum, np.minimum):
        dtype = arguments.pop("dtype", None)
        x = x if dtype is None else cast(tensor_of(x), dtype)
    return NUMPY[_REDUCE[ufunc]](x, **{k: v for k, v in arguments.items() if v is not None or k == "axis"})


def _accumulate(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del function
    (x, *rest) = inputs
    axis = kwargs.pop("axis", rest[0] if rest else 0)
    if ufunc in _ACCUMULATE:
        return NUMPY[_ACCUMULATE[ufunc]](x, axis=axis, **{k: v for k, v in kwargs.items() if v is not None})
    if ufunc not in _RUNNING or kwargs.get("dtype") is not None:
        raise _unknown(ufunc, "accumulate")
    result = PUBLIC[_RUNNING[ufunc]](x, axis)
    return result[0] if isinstance(result, tuple) else result


def _outer(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = map(tensor_of, inputs)
    spread = views.reshape(a, (*a.spec.shape, *(1,) * len(b.spec.shape)))
    return _called(ufunc, function, (spread, b), kwargs, None)


_REDUCED = {np.multiply: "prod", np.maximum: "amax", np.minimum: "amin"}
"""What ``ufunc.at`` is to the reduction of a scatter."""


def _at(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    del function
    x, key, *values = inputs
    if not isinstance(x, Tensor):
        into_array(ufunc.at, f"np.{ufunc.__name__}.at", inputs, kwargs)
    elif ufunc in (np.add, np.subtract):
        value = values[0] if ufunc is np.add else operator.neg(tensor_of(values[0]))
        x.index_put_(key if isinstance(key, tuple) else (key,), value, accumulate=True)
    elif ufunc in _REDUCED:
        numbers = np.arange(x.spec.size).reshape(x.spec.shape)[array_key(key)]
        value = views.expand(cast(tensor_of(values[0]), x.spec.dtype), numbers.shape)
        source, at = views.reshape(value, -1), tensor_of(numbers.reshape(-1))
        flat = PUBLIC["scatter_reduce"](views.reshape(x, -1), 0, at, source, _REDUCED[ufunc])
        x.copy_(views.reshape(flat, x.spec.shape))
    else:
        raise _unknown(ufunc, "at")


_WAYS: dict[str, Callable[..., Any]] = {
    "__call__": _called,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "outer": _outer,
    "at": _at,
}
