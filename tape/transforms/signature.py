"""The arguments of a program, checked against those it was recorded with, before anything runs."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.arrays.specs import Spec
from kernels.programs.recording import program as recipes
from kernels.programs.recording.program import ProgramError
from tape.tensors.pytrees import flattened
from tape.tensors.tensor import Array, Tensor

_KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "biuf"}
"""The kinds of numbers that an argument may be, by the kind of dtype of the recorded number."""
_WORK = 10_000
"""Steps spent on whether two strided arrays share memory; if that is not decided by then, they count as sharing it."""


class Signature:
    """The arguments of a program: their structures and names, which leaves are values and which are fixed."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.positional = [flattened(a)[1] for a in args]
        self.keywords = {name: flattened(a)[1] for name, a in kwargs.items()}
        named = [(f"argument {i}", s) for i, s in enumerate(self.positional)]
        named += [(f"argument {name}", s) for name, s in self.keywords.items()]
        paths = [path for name, structure in named for path in structure.paths(name)]
        self.static: dict[int, Any] = {}
        self.paths = paths
        leaves = self._leaves(args, kwargs)
        self.static = {i: x for i, x in enumerate(leaves) if not is_value(x)}
        self.names = [path for i, path in enumerate(paths) if i not in self.static]
        self.simple = not self.static and not self.keywords and all(s.kind is None for s in self.positional)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the leaves that are values; TypeError for another structure, or another value of a fixed leaf."""
        if self.simple and not kwargs and len(args) == len(self.positional):
            return args
        leaves = self._leaves(args, kwargs)
        for i, kept in self.static.items():
            if leaves[i] is not kept and not _same(leaves[i], kept):
                raise TypeError(
                    f"{self.paths[i]}: got {leaves[i]!r}, but the program was recorded with {kept!r}; record it anew"
                )
        return [x for i, x in enumerate(leaves) if i not in self.static] if self.static else leaves

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if len(args) != len(self.positional) or kwargs.keys() != self.keywords.keys():
            count, names = len(self.positional), list(self.keywords)
            with_names = f" and by name {', '.join(names)}" if names else ""
            got = f" and by name {', '.join(kwargs)}" if kwargs else ""
            raise TypeError(f"program takes {count} arguments{with_names}, got {len(args)}{got}")
        leaves = []
        for i, (structure, argument) in enumerate(zip(self.positional, args, strict=True)):
            leaves += [argument] if structure.kind is None else structure.leaves_of(argument, f"argument {i}")
        for name, structure in self.keywords.items():
            argument = kwargs[name]
            leaves += [argument] if structure.kind is None else structure.leaves_of(argument, f"argument {name}")
        return leaves

    def filled(self, values: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments of this structure, with these values and the fixed leaves."""
        remaining = iter(values)
        leaves = iter([self.static[i] if i in self.static else next(remaining) for i in range(len(self.paths))])
        args = tuple(s.filled([next(leaves) for _ in range(len(s))]) for s in self.positional)
        return args, {name: s.filled([next(leaves) for _ in range(len(s))]) for name, s in self.keywords.items()}

    def gradients(self, gradients: Iterable[Any], differentiable: Sequence[bool]) -> tuple[Any, ...]:
        """Return gradients in the structure of the positional arguments that have some; None for other leaves."""
        if self.simple:
            return tuple(gradients)
        remaining, wants = iter(gradients), iter(differentiable)
        kinds = [i not in self.static and next(wants) for i in range(len(self.paths))]
        leaves, result, at = [next(remaining) if wanted else None for wanted in kinds], [], 0
        for structure in self.positional:
            count = len(structure)
            if any(kinds[at : at + count]):
                result.append(structure.filled(leaves[at : at + count]))
            at += count
        return tuple(result)


def is_value(x: Any) -> bool:
    """Whether an argument is a value that the program computes with: a tensor, an array or a number."""
    if isinstance(x, (Tensor, bool, int, float, np.number, np.bool_)):
        return True
    return hasattr(type(x), "__array__")


def _same(a: Any, b: Any) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # noqa: BLE001 (a user's own comparison)
        return False


def value_of(name: str, argument: Any, spec: Spec) -> Array | float:
    """Return an argument's value, an array of the recorded shape and dtype or a float; TypeError if it does not fit."""
    kind = type(argument)
    if kind is np.ndarray and argument.dtype is spec.dtype and argument.shape == spec.shape:
        return argument  # type: ignore[no-any-return]
    if kind is float and not spec.shape and spec.dtype.kind == "f":
        return argument  # type: ignore[no-any-return]
    value = argument._value if isinstance(argument, Tensor) else argument
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array, whose mask programs do not know; fill it first: x.filled(value)")
    if not spec.shape and np.ndim(value) == 0:
        return _number(name, argument, value, spec)
    try:
        array = np.asarray(value)
    except ValueError as error:  # nested lists of different lengths
        raise TypeError(f"{name}: {error}") from None
    if array.shape != spec.shape or array.dtype.newbyteorder("=") != spec.dtype:
        raise _misfit(name, f"{array.dtype.name}[{', '.join(map(str, array.shape))}]", spec)
    return array


def _number(name: str, argument: Any, value: Any, spec: Spec) -> Array:
    """Return a number as an array: a float may be given as an int or bool, an int and a bool only as themselves."""
    plain = type(value) in (bool, int, float)
    if not plain and not isinstance(value, (np.generic, np.ndarray)):
        raise _misfit(name, type(argument).__name__, spec)
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


def check_written(names: Sequence[str], arguments: Sequence[Any], written: Collection[int]) -> None:
    """Raise unless each argument that is written can be, and is seen by no other argument."""
    for i in written:
        array = _memory(arguments[i])
        if array is None:
            continue
        if not array.flags.writeable:
            raise ProgramError(f"{names[i]}: the program writes to it, and the array is read-only; give a copy")
        if any(step == 0 and n > 1 for n, step in zip(array.shape, array.strides, strict=True)):
            raise ProgramError(
                f"{names[i]}: the program writes to it, and more than one of its elements refer to a single memory "
                "location; give a copy"
            )
        for j, seen in enumerate(arguments):
            if j != i and (seen is arguments[i] or _meet(array, _memory(seen))):
                raise ProgramError(
                    f"{names[i]} is written by the program, and {names[j]} has the same memory, in which a replay "
                    "would not see that; give a copy of one of them"
                )


def share_memory(arguments: Sequence[Any]) -> bool:
    """Whether an element of some argument is one of another, too."""
    tensors = [id(x) for x in arguments if isinstance(x, Tensor)]
    if len({*tensors}) < len(tensors):
        return True
    arrays = [array for array in map(_memory, arguments) if array is not None and array.size]
    open_: list[tuple[int, Array]] = []
    for low, high, array in sorted([(*byte_bounds(x), x) for x in arrays], key=operator.itemgetter(0)):
        open_ = [(end, other) for end, other in open_ if end > low]
        if any(_meet(array, other) for _, other in open_):
            return True
        open_.append((high, array))
    return False


def _memory(argument: Any) -> Array | None:
    """Return the array whose memory a caller would see written; None for numbers."""
    value = argument._value if isinstance(argument, Tensor) else argument
    if isinstance(argument, Tensor) and type(value) is float:
        return np.empty(())
    return value if isinstance(value, np.ndarray) else None


def _meet(a: Array, b: Array | None) -> bool:
    if b is None or not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
