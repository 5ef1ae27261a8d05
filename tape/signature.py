"""The arguments of a program, checked against those it was recorded with, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from kernels import program as recipes
from kernels.layouts import Spec
from kernels.program import ProgramError
from tape.tensor import Array, Tensor

_KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "biuf"}
"""For a number of each kind of dtype, the kinds that may be given."""
_WORK = 10_000
"""Steps to tell whether two strided arrays meet; beyond, they count as if they did."""


def value_of(name: str, given: Any, spec: Spec) -> Array:
    """Return an argument's value as an array of the recorded shape and dtype; TypeError if it does not fit."""
    value = given._value if isinstance(given, Tensor) else given
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array, whose mask programs do not know; fill it first: x.filled(value)")
    if not spec.shape and np.ndim(value) == 0:
        return _number(name, given, value, spec)
    try:
        array = np.asarray(value)
    except ValueError as error:  # nested lists of different lengths
        raise TypeError(f"{name}: {error}") from None
    if array.shape != spec.shape or array.dtype.newbyteorder("=") != spec.dtype:
        raise _misfit(name, f"{array.dtype.name}[{', '.join(map(str, array.shape))}]", spec)
    return array


def _number(name: str, given: Any, value: Any, spec: Spec) -> Array:
    """Return a number: floats take ints, and bools too; ints only ints; bools only bools."""
    plain = type(value) in (bool, int, float)
    if not plain and not isinstance(value, (np.generic, np.ndarray)):
        raise _misfit(name, type(given).__name__, spec)
    kind = {bool: "b", int: "i", float: "f"}[type(value)] if plain else value.dtype.kind
    fits = kind in _KINDS[spec.dtype.kind]
    if fits and not plain and spec.dtype.kind in "iu":
        fits = np.can_cast(value.dtype, spec.dtype, "safe")
    if not fits:
        raise _misfit(name, type(value).__name__ if plain else f"{value.dtype.name}[]", spec)
    try:
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(spec.dtype) if not plain else np.array(value, spec.dtype)
    except OverflowError as error:
        raise TypeError(f"{name}: {error}; the program was recorded with {recipes.describe(spec)}") from None


def _misfit(name: str, got: str, spec: Spec) -> TypeError:
    article = "" if "[" in got else "an " if got[0] in "aeiou" else "a "
    return TypeError(
        f"{name}: got {article}{got}, but the program was recorded with {recipes.describe(spec)}; record it anew"
    )


def check_written(names: Sequence[str], given: Sequence[Any], written: Collection[int]) -> None:
    """Raise unless each argument that is written can be, and is seen by no other argument."""
    for i in written:
        array = _memory(given[i])
        if array is None:
            continue
        if not array.flags.writeable:
            raise ProgramError(f"{names[i]}: the program writes to it, and the array is read-only; give a copy")
        if any(step == 0 and n > 1 for n, step in zip(array.shape, array.strides, strict=True)):
            raise ProgramError(
                f"{names[i]}: the program writes to it, and more than one of its elements refer to a single memory "
                "location; give a copy"
            )
        for j, other in enumerate(given):
            if j != i and (other is given[i] or _meet(array, _memory(other))):
                raise ProgramError(
                    f"{names[i]} is written by the program, and {names[j]} has the same memory, in which a replay "
                    "would not see that; give a copy of one of them"
                )


def _memory(given: Any) -> Array | None:
    """Return the array whose memory a caller would see written; None for numbers."""
    value = given._value if isinstance(given, Tensor) else given
    if isinstance(given, Tensor) and type(value) is float:
        return np.empty(())
    return value if isinstance(value, np.ndarray) else None


def _meet(a: Array, b: Array | None) -> bool:
    if b is None or not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
