"""Matrix products: of vectors and matrices in native code, of batches of them by NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels import forms, pool
from kernels.layouts import spec_of
from kernels.op import Contraction
from kernels.recent import Recent
from kernels.tables import OPS
from tape import recording, repeats, routine_calls, shaping
from tape.operands import Number, _merge, is_foreign
from tape.public import public
from tape.reducing import tensor_of
from tape.tapes import LARGE
from tape.tensor import Tensor, as_array, carried, method

_BMM: Any = OPS["bmm"]
_MATRIX = 2
_BATCH = 3
_BY_RANKS = {op.ranks[0]: op for op in OPS.values() if isinstance(op, Contraction)}


def _product(op: Contraction, a: Tensor, b: Tensor) -> Tensor:
    """Multiply operands whose shapes fit; mixed float dtypes are cast, recorded."""
    dtype = np.result_type(a.spec.dtype, b.spec.dtype)
    a, b = (x if x.spec.dtype == dtype else recording.to_dtype(x, dtype) for x in (a, b))
    value = pool.call(np.matmul, as_array(a), as_array(b))
    wants = (a._slot is not None, b._slot is not None)

    def saved(form: forms.Form) -> tuple[Any, ...]:
        by_name = {"a": a._value, "b": b._value}
        return tuple(by_name[name] for name in form.saved)

    result = recording.finish(
        op, (a, b), value, lambda: forms.contraction(op, a.spec, b.spec, spec_of(carried(value)), wants), saved, ()
    )
    small = max(x.spec.bytes for x in (a, b, result)) < LARGE
    if small and dtype.kind == "f" and repeats.heard():
        recorded = type(result._slot) is int
        _known[a.spec, b.spec, not (recorded and wants[0]), not (recorded and wants[1])] = op, result._form
    return result


def _again(a: Any, b: Any) -> Tensor | None:
    """Multiply as an earlier call did on operands of the same specs; None where that is not all there is to do."""
    tape, recorder = repeats.ears()
    if tape is None or type(a) is not Tensor or type(b) is not Tensor:
        return None
    left, right = (a._slot, b._slot) if tape else (None, None)
    known = _known.get((a._form.spec, b._form.spec, left is None, right is None))
    if known is None:
        return None
    op, form = known
    value = carried(np.matmul(as_array(a), as_array(b)))
    if type(form) is not forms.Form:
        result = repeats.bare(form, value)
    else:
        kept = tuple([(a if name == "a" else b)._value for name in form.saved])
        result = repeats.again(tape, form, [left, right], value, kept)
    if recorder is not None:
        recorder.note(op, (a, b), result, ())
    return result


_known: Recent[Any, tuple[Contraction, Any]] = Recent()
"""Products seen, of operands that are not large, by their specs and which of them are constant: form, or spec."""


def _checked(name: str, a: Any, b: Any) -> Tensor:
    if name == "matmul" and (again := _again(a, b)) is not None:
        return again
    a, b = tensor_of(a), tensor_of(b)
    shapes = a.spec.shape, b.spec.shape
    op = _BY_RANKS.get((len(shapes[0]), len(shapes[1])))
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
        found = _checked("matmul", shaping.reshape(a, (math.prod(rows), k)), b)
        return shaping.reshape(found, (*rows, *right[1:]))
    if len(left) == 1:
        return shaping.squeeze(_of_batches(shaping.unsqueeze(a, 0), b), -2)
    batch = _merge("matmul", left[:-2], right[:-2])
    m, k, n = left[-2], left[-1], right[-1]
    if k != right[-2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{math.prod(batch)}, {k}] but got: "
            f"[{math.prod(batch)}, {right[-2]}]."
        )
    return product_of_batches(_spread(a, (*batch, m, k)), _spread(b, (*batch, k, n)))


def _spread(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.spec.shape == shape else shaping.expand(x, shape)


def product_of_batches(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of the same extents in front."""
    return routine_calls.call(_BMM, a, b)  # type: ignore[no-any-return]


@public()
def bmm(input: Any, mat2: Any) -> Tensor:  # noqa: A002 (PyTorch's name)
    """Return the products of a batch of matrices, (b, m, k) and (b, k, n): (b, m, n).

    >>> tape.bmm(tape.ones(2, 1, 3), tape.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """
    a, b = tensor_of(input), tensor_of(mat2)
    for number, x in enumerate((a, b), 1):
        if len(x.spec.shape) != _BATCH:
            raise RuntimeError(f"bmm: batch{number} must be a 3D tensor; its shape is {list(x.spec.shape)}")
    left, right = a.spec.shape, b.spec.shape
    if right[:2] != (left[0], left[2]):
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{left[0]}, {left[2]}] but got: "
            f"[{right[0]}, {right[1]}]."
        )
    return product_of_batches(a, b)


@method()
def mm(input: Any, mat2: Any) -> Tensor:  # noqa: A002 (PyTorch's name)
    """Return the product of an (m, k) and a (k, n) matrix.

    >>> tape.mm(tape.eye(2), tape.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    return _checked("mm", input, mat2)


@method()
def mv(input: Any, vec: Any) -> Tensor:  # noqa: A002 (PyTorch's name)
    """Return the product of an (m, k) matrix and a (k,) vector.

    >>> tape.mv(tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _checked("mv", input, vec)


@method()
def dot(input: Any, tensor: Any) -> Tensor:  # noqa: A002 (PyTorch's name)
    """Return the inner product of two vectors, 0-d.

    >>> tape.dot(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return _checked("dot", input, tensor)


@method()
def matmul(input: Any, other: Any) -> Tensor:  # noqa: A002 (PyTorch's name)
    """Return the product of vectors, matrices and batches of them, as ``@`` does; batches are broadcast.

    >>> tape.matmul(tape.ones(4, 2, 3), tape.ones(3)).shape
    tape.Size([4, 2])
    """
    return _checked("matmul", input, other)


def _operator(a: Any, b: Any) -> Any:
    if type(b) is not Tensor and (isinstance(b, Number) or is_foreign(b)):
        return NotImplemented
    return _checked("matmul", a, b)


def _reversed(b: Any, a: Any) -> Any:
    return NotImplemented if isinstance(a, Number) or is_foreign(a) else _checked("matmul", a, b)


method("__matmul__")(_operator)
method("__rmatmul__")(_reversed)
