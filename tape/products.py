"""Matrix products of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import forms
from kernels.layouts import spec_of
from kernels.op import Contraction
from kernels.tables import OPS
from tape import recording
from tape.reducing import tensor_of
from tape.tensor import Tensor, as_array, carried, method

_BY_RANKS = {op.ranks[0]: op for op in OPS.values() if isinstance(op, Contraction)}


def _product(op: Contraction, a: Tensor, b: Tensor) -> Tensor:
    """Multiply operands whose shapes fit; mixed float dtypes are cast, recorded."""
    dtype = np.result_type(a.spec.dtype, b.spec.dtype)
    a, b = (x if x.spec.dtype == dtype else recording.to_dtype(x, dtype) for x in (a, b))
    value = np.matmul(as_array(a), as_array(b))
    wants = (a._slot is not None, b._slot is not None)

    def saved(form: forms.Form) -> tuple[Any, ...]:
        by_name = {"a": a._value, "b": b._value}
        return tuple(by_name[name] for name in form.saved)

    return recording.finish(
        op, (a, b), value, lambda: forms.contraction(op, a.spec, b.spec, spec_of(carried(value)), wants), saved, ()
    )


def _checked(name: str, a: Any, b: Any) -> Tensor:
    a, b = tensor_of(a), tensor_of(b)
    shapes = a.spec.shape, b.spec.shape
    op = _BY_RANKS.get((len(shapes[0]), len(shapes[1])))
    if op is None or name not in ("matmul", op.name):
        raise RuntimeError(
            f"{name}: operands of shapes {list(shapes[0])} and {list(shapes[1])}; "
            + ("vectors and matrices only" if name == "matmul" else f"{name} takes {_wanted(name)}, use matmul")
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


@method()
def mm(a: Any, b: Any) -> Tensor:
    """Return the product of an (m, k) and a (k, n) matrix."""
    return _checked("mm", a, b)


@method()
def mv(a: Any, b: Any) -> Tensor:
    """Return the product of an (m, k) matrix and a (k,) vector."""
    return _checked("mv", a, b)


@method()
def dot(a: Any, b: Any) -> Tensor:
    """Return the inner product of two vectors, 0-d."""
    return _checked("dot", a, b)


@method()
def matmul(a: Any, b: Any) -> Tensor:
    """Return the product of vectors and matrices, as ``@`` does."""
    return _checked("matmul", a, b)


def _operator(a: Any, b: Any) -> Any:
    return _checked("matmul", a, b) if isinstance(b, (Tensor, np.ndarray)) else NotImplemented


def _reversed(b: Any, a: Any) -> Any:
    return _checked("matmul", a, b) if isinstance(a, np.ndarray) else NotImplemented


method("__matmul__")(_operator)
method("__rmatmul__")(_reversed)
