"""Matrix products: of vectors and matrices in native code, of batches of them by NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from kernels.call_cache.entries import Notification
from kernels.foundation.numpy_arrays import silently
from kernels.foundation.specs import spec_of
from kernels.kinds import reduction
from kernels.kinds.form import Form
from kernels.kinds.reduction import Contraction
from kernels.native import pool
from kernels.native.call_structs import OP_MATMUL
from kernels.operations.registry import OPS
from tape.recording import record, routine_calls, views
from tape.recording.promotion import alike, with_tensor
from tape.repeated_calls.call_table import NATIVELY, enter_call, install, key_of, number_of, repeating
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.hooks import public
from tape.tensors.operands import Number, _merge, is_foreign
from tape.tensors.tensor import Tensor, as_array, method, scalar_or_array

_PRODUCTS = {op.ranks[0]: op for op in OPS.values() if isinstance(op, Contraction)}
"""The records of products by the ranks of both operands."""
_BMM: Any = OPS["bmm"]
Method = TypeVar("Method", bound=Callable[..., Any])
_MATRIX = 2
_BATCH = 3


def _multiplying(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a product of two tensors, or of one and an array."""
    number = number_of(name)
    return repeating(number, partial(_enter, number))


def _enter(number: int, result: Any, *args: Any, **named: Any) -> None:
    """Enter a product of matrices and vectors that has been made."""
    if named or type(result) is not Tensor or not any(type(x) is Tensor for x in args):
        return
    operands = tuple([with_tensor(x) if type(x) is np.ndarray else x for x in args])
    if any(type(x) is not Tensor for x in operands):
        return
    a, b = operands
    op = _PRODUCTS.get((len(a.spec.shape), len(b.spec.shape)))
    if op is not None:
        key = key_of(number, operands, (a._form, b._form), 0)

        def how(saved: tuple[str, ...]) -> Any:
            return reduction.computation(a.spec, b.spec, result.spec, saved)

        enter_call(key, operands, result, Notification(op, 2), how)


def _product(op: Contraction, a: Tensor, b: Tensor) -> Tensor:
    """Multiply operands of one dtype whose shapes fit."""
    value = silently(pool.call, np.matmul, as_array(a), as_array(b))
    wants = (a._slot is not None, b._slot is not None)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = {"a": a._value, "b": b._value}
        return tuple(by_name[name] for name in form.saved)

    return record.finish(
        op, (a, b), value, lambda: op.form((a.spec, b.spec), spec_of(scalar_or_array(value)), wants), saved, ()
    )


def _checked(name: str, a: Any, b: Any) -> Tensor:
    a, b = alike(a, b)
    shapes = a.spec.shape, b.spec.shape
    op = _PRODUCTS.get((len(shapes[0]), len(shapes[1])))
    if op is None and name == "matmul":
        return _of_batches(a, b)
    if op is None or name not in ("matmul", op.name):
        raise RuntimeError(
            f"{name}: operands of shapes {list(shapes[0])} and {list(shapes[1])}; {name} takes {_wanted(name)}, "
            "use matmul"
        )
    if shapes[0][-1] != shapes[1][0]:
        raise RuntimeError(_mismatch(op.name, *shapes))
    return _product(op, a, b)


def _wanted(name: str) -> str:
    words = {1: "a vector", 2: "a matrix"}
    op = OPS[name]
    assert isinstance(op, Contraction)
    return " and ".join(words[rank] for rank in op.ranks[0])


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
    """Multiply where an operand has three or more dims; a batch times one matrix is one product of matrices."""
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


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    return routine_calls.call(_BMM, a, b)  # type: ignore[no-any-return]


@argued
def product_of_batches(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of the same extents in front."""
    return _multiplied(a, b)


@public()
@argued
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
    return _multiplied(a, b)


@method()
@_multiplying("mm")
def mm(input: Any, mat2: Any) -> Tensor:
    """Return the product of an (m, k) and a (k, n) matrix.

    >>> tape.mm(tape.eye(2), tape.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    return _checked("mm", input, mat2)


@method()
@_multiplying("mv")
def mv(input: Any, vec: Any) -> Tensor:
    """Return the product of an (m, k) matrix and a (k,) vector.

    >>> tape.mv(tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _checked("mv", input, vec)


@method()
@_multiplying("dot")
def dot(input: Any, tensor: Any) -> Tensor:
    """Return the inner product of two vectors, 0-d.

    >>> tape.dot(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return _checked("dot", input, tensor)


@method()
@_multiplying("matmul")
def matmul(input: Any, other: Any) -> Tensor:
    """Return the product of vectors, matrices and batches of them, as ``@`` does; batches are broadcast.

    >>> tape.matmul(tape.ones(4, 2, 3), tape.ones(3)).shape
    tape.Size([4, 2])
    """
    return _checked("matmul", input, other)


def _operator(self: Any, other: Any, /) -> Tensor:
    foreign = type(other) is not Tensor and (isinstance(other, Number) or is_foreign(other))
    return NotImplemented if foreign else _checked("matmul", self, other)


def _reversed(self: Any, other: Any, /) -> Tensor:
    return NotImplemented if isinstance(other, Number) or is_foreign(other) else _checked("matmul", other, self)


def _product_operator(a: Any, b: Any) -> Any:
    return _operator(a, b) if isinstance(a, Tensor) else _reversed(b, a)


if NATIVELY:
    install(OP_MATMUL, _product_operator, partial(_enter, OP_MATMUL))
else:
    method("__matmul__")(_operator)
    method("__rmatmul__")(_reversed)
