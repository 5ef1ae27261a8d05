"""The dtype that operands of several dtypes are computed in: PyTorch's between tensors, NumPy's beside arrays.

PyTorch's: floats come before integers, and these before bools, whatever their widths. Within a category tensors
with dims come before those without, and these before Python's numbers. NumPy's, where an operand is NumPy's, in NumPy's
functions and in functions that were given NumPy's arrays: whatever holds the values of all dtypes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tape.foundation import dtypes
from tape.recording import casts
from tape.tensors import modes
from tape.tensors.operands import Number, tensor_of
from tape.tensors.tensor import Tensor

Kind: TypeAlias = tuple[np.dtype[Any], bool] | type
"""The dtype of a tensor or an array, and whether it has dims; or the type of a Python number."""


def of_numpy(operands: Sequence[Any]) -> bool:
    """Whether NumPy's promotion stands for these operands, as the user gave them."""
    return modes.promotes_as_numpy() or (
        not _USUAL.issuperset(map(type, operands))
        and any(isinstance(x, np.generic) or not isinstance(x, (Tensor, np.dtype, *Number)) for x in operands)
    )


_USUAL = frozenset((Tensor, float, int, bool))
"""The usual types of what is not NumPy's."""


def kind_of(x: Any) -> Kind:
    """Return what counts of an operand."""
    if isinstance(x, Tensor):
        return x._form.spec.dtype, bool(x._form.spec.shape)
    if isinstance(x, Number) and not isinstance(x, np.generic):
        return bool if isinstance(x, bool) else int if isinstance(x, int) else float
    return (x if isinstance(x, np.dtype) else np.asarray(x).dtype), True


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """Return the dtype that operands, as the user gave them, are computed in; dtypes stand for tensors with dims."""
    return promoted(tuple(map(kind_of, operands)), numpy=of_numpy(operands), default=dtypes.DEFAULT["dtype"])


@functools.lru_cache(4096)
def promoted(kinds: tuple[Kind, ...], *, numpy: bool, default: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of operands of these kinds; Python's floats are of the ``default`` dtype."""
    ranks: list[list[np.dtype[Any]]] = [[], [], []]
    for kind in kinds:
        if isinstance(kind, tuple):
            ranks[0 if kind[1] or numpy else 1].append(kind[0])
        else:
            ranks[2].append(default if kind is float else np.dtype(kind))
    join = functools.partial(functools.reduce, promote_types)
    dtypes_of_ranks = [np.result_type(*rank) if numpy else join(rank) for rank in ranks if rank]
    return functools.reduce(_before, dtypes_of_ranks)


def _before(first: np.dtype[Any], then: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of what comes first, unless what comes then is of a higher category."""
    return promote_types(first, then) if _CATEGORY[first.kind] < _CATEGORY[then.kind] else first


def promote_types(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Return PyTorch's common dtype of tensors that have dims."""
    if (a.kind == "f") is not (b.kind == "f"):
        return a if a.kind == "f" else b
    return np.promote_types(a, b)


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2}


def can_cast(have: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a result is written to memory of another dtype: not one of a higher category, or as NumPy has it."""
    if modes.promotes_as_numpy():
        return np.can_cast(have, wanted, "same_kind")
    return _CATEGORY[have.kind] <= _CATEGORY[wanted.kind]


def alike(*operands: Any) -> list[Tensor]:
    """Return operands as tensors of the dtype that they are computed in; casts are recorded."""
    tensors = list(map(tensor_of, operands))
    first = tensors[0]._form.spec.dtype
    if all(x._form.spec.dtype is first for x in tensors):
        return tensors
    dtype = common_dtype(*operands)
    return [x if x._form.spec.dtype == dtype else casts.cast(x, dtype) for x in tensors]


def tensors_of(*operands: Any) -> list[Tensor]:
    """Return operands as tensors; of one dtype, NumPy's, where arrays are among them, which nobody sees afterwards."""
    return alike(*operands) if operands and of_numpy(operands) else list(map(tensor_of, operands))
