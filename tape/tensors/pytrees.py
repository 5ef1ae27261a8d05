"""Nested structures, of tensors, arrays and numbers: taken apart and put together again.

Dicts (in the order of their keys), lists, tuples, named tuples and dataclasses are structures, and so is what has a
method ``__structure__``, which takes itself apart (:class:`tape.nn.Module`); everything else is a leaf, and None is a
leaf or part of the structure, as :func:`flattened` is told. Fields of a dataclass that hold neither a structure nor
numbers belong to the structure: strings, functions, flags, and ints unless they are declared ``float``. A dataclass is
rebuilt field by field, frozen or with slots, without ``__init__`` and ``__post_init__``.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from tape.tensors.tensor import Tensor

_WHOLE = (Tensor, np.ndarray, np.generic, float, str)  # types of leaves, which need no further look
_USUAL, _STRING = {Tensor, np.ndarray, float}, {str}


class Structure:
    """A nested structure without its leaves; ``kind`` is None for a leaf itself.

    Structures are equal if they differ in their leaves alone; dicts whatever the order of their keys.
    """

    __slots__ = ("flat", "keys", "kind", "make", "parts", "static")

    def __init__(
        self,
        kind: type | None,
        keys: tuple[Any, ...],
        parts: tuple[Structure, ...],
        static: dict[str, Any],
        make: Callable[[list[Any]], Any],
    ) -> None:
        self.kind, self.keys, self.parts, self.static, self.make = kind, keys, parts, static, make
        self.flat = 0

    def __reduce__(self) -> Any:
        if self.kind is None or self.kind is type(None):
            return "LEAF" if self.kind is None else "NONE"  # by these names
        return Structure, (self.kind, self.keys, self.parts, self.static, self.make)

    def filled(self, values: Iterable[Any]) -> Any:
        """Return the structure with these values for its leaves, in order."""
        if self.kind is None:
            (value,) = values
            return value
        return self._filled(iter(values))

    def _filled(self, values: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(values)
        if self.flat:
            return self.make(list(islice(values, self.flat)))
        return self.make([next(values) if part is LEAF else part._filled(values) for part in self.parts])

    def paths(self, start: str = "") -> list[str]:
        """Return the path of each leaf, as Python writes it: ``['layers'][0].w``."""
        if self.kind is None:
            return [start]
        named = zip(self.keys, self.parts, strict=True)
        return [path for key, part in named for path in part.paths(start + _step(self.kind, key))]

    def leaves_of(self, tree: Any, start: str = "") -> list[Any]:
        """Return the leaves of a tree in this structure's order; TypeError, naming the path, for another tree."""
        if self.kind is None:
            if _opened(tree) is not None:
                raise TypeError(f"{start or 'the structure'} is a {type(tree).__name__}, where a leaf is expected")
            return [tree]
        taken = self.taken(tree)
        if taken is None or not all(_same(value, getattr(tree, name, self)) for name, value in self.static.items()):
            received = f"a {type(tree).__name__}" if _opened(tree) is None else shown(tree)
            raise TypeError(f"{start or 'the structure'} is {received}, where {self} is expected")
        named = zip(self.keys, self.parts, taken, strict=True)
        return [leaf for key, part, subtree in named for leaf in part.leaves_of(subtree, start + _step(self.kind, key))]

    def taken(self, tree: Any) -> list[Any] | None:
        """Return the parts of a tree in this structure's order; None if it has others."""
        if type(tree) is not self.kind:
            return None
        if isinstance(tree, dict):
            return [tree[key] for key in self.keys] if tree.keys() == set(self.keys) else None
        if isinstance(tree, (tuple, list)):
            return list(tree) if len(tree) == len(self.keys) else None
        try:
            return [operator.attrgetter(key)(tree) for key in self.keys]
        except AttributeError:  # a module of others
            return None

    def __len__(self) -> int:
        """Return the number of leaves."""
        return 1 if self.kind is None else sum(map(len, self.parts))

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Structure) or self.kind is not other.kind or len(self.keys) != len(other.keys):
            return False
        other_parts = dict(zip(other.keys, other.parts, strict=True))
        parts = dict(zip(self.keys, self.parts, strict=True))
        return parts == other_parts and _same(self.static, other.static)

    def __hash__(self) -> int:
        return hash((self.kind, frozenset(self.keys)))

    def __str__(self) -> str:
        """Return the structure as text, a star for each leaf."""
        if self.kind is None:
            return "*"
        parts = [str(part) for part in self.parts]
        if issubclass(self.kind, dict):
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(self.keys, parts, strict=True)) + "}"
        if issubclass(self.kind, tuple):
            return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"
        if issubclass(self.kind, list):
            return "[" + ", ".join(parts) + "]"
        if self.kind is type(None):
            return "None"
        named = [f"{key}={part}" for key, part in zip(self.keys, parts, strict=True)]
        return f"{self.kind.__name__}({', '.join(named + [f'{k}={v!r}' for k, v in self.static.items()])})"

    __repr__ = __str__


def _step(kind: type, key: Any) -> str:
    named = hasattr(kind, "_fields") or dataclasses.is_dataclass(kind) or hasattr(kind, "__structure__")
    return f".{key}" if named else f"[{key!r}]"


def _same(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b)
    except Exception:  # noqa: BLE001 (a user's own comparison)
        return False


LEAF = Structure(None, (), (), {}, lambda _: None)
NONE = Structure(type(None), (), (), {}, lambda _: None)

METHODS = "__compiled_methods__"  # where objects hold their compiled methods: part of no structure, and of no state
Opened = tuple[tuple[Any, ...], Sequence[Any], dict[str, Any], Callable[[list[Any]], Any]]
"""The keys of a structure's parts, the parts, the static fields, and a function that rebuilds it from parts."""


def _opened(tree: Any) -> Opened | None:
    if isinstance(tree, _WHOLE):
        return None
    kind = type(tree)
    if kind is dict:
        keys = tuple(tree)
        return keys, tuple(tree.values()), {}, functools.partial(dict_of, keys)
    if isinstance(tree, (tuple, list)):
        fields = getattr(kind, "_fields", None)
        return fields or tuple(range(len(tree))), tree, {}, kind._make if fields else kind
    if isinstance(tree, dict):
        keys = tuple(tree)
        empty = copy.copy(tree)
        for key in tree:
            empty[key] = None
        return keys, tuple(tree.values()), {}, functools.partial(mapping_of, empty, keys)
    if dataclasses.is_dataclass(kind):
        return _opened_dataclass(tree)
    opens = getattr(kind, "__structure__", None)
    return None if opens is None else opens(tree)


def dict_of(keys: tuple[Any, ...], values: list[Any]) -> dict[Any, Any]:
    """Return a dict of these keys."""
    return dict(zip(keys, values, strict=True))


def mapping_of(empty: dict[Any, Any], keys: tuple[Any, ...], values: list[Any]) -> dict[Any, Any]:
    """Return a copy of an empty mapping of the user's class, filled."""
    made = copy.copy(empty)
    for key, value in zip(keys, values, strict=True):
        made[key] = value
    return made


def _opened_dataclass(tree: Any) -> Opened:
    kind = type(tree)
    held = {f.name: (getattr(tree, f.name), f.type) for f in dataclasses.fields(tree) if hasattr(tree, f.name)}
    static = {name: value for name, (value, declared) in held.items() if not _counts(value, str(declared))}
    keys = tuple(name for name in held if name not in static)
    more = {
        name: value
        for name, value in getattr(tree, "__dict__", {}).items()
        if name not in held
        and name != METHODS
        and not _counts(value, "float")  # computed from fields, it may be so no more
        and not isinstance(getattr(kind, name, None), functools.cached_property)
    }
    make = functools.partial(dataclass_of, kind, {**more, **static}, keys)
    return keys, [held[key][0] for key in keys], static, make


def _counts(value: Any, declared: str) -> bool:
    if isinstance(value, _WHOLE):
        return not isinstance(value, str)
    opened = _opened(value)
    if opened is not None:
        return dataclasses.is_dataclass(value) or any(_counts(part, declared) for part in opened[1])
    if type(value) is int:
        return "float" in declared
    return hasattr(type(value), "__array__")


def dataclass_of(kind: Any, static: dict[str, Any], keys: tuple[str, ...], values: list[Any]) -> Any:
    """Return an object of the user's dataclass with these fields, without a call of its constructor."""
    made = object.__new__(kind)
    for name, value in (*static.items(), *zip(keys, values, strict=True)):
        object.__setattr__(made, name, value)
    return made


def flattened(tree: Any, *, none: bool = False) -> tuple[list[Any], Structure]:
    """Return the leaves of a nested structure, in order, and the structure; with ``none`` None is a leaf too."""
    if type(tree) in _USUAL or (none and tree is None):
        return [tree], LEAF
    values: list[Any] = []
    return values, _taken_apart(tree, values, none)


@functools.lru_cache(256)
def _flat(kind: Any, keys: Any) -> Structure:
    names, make = (keys, functools.partial(dict_of, keys)) if kind is dict else (tuple(range(keys)), kind)
    structure = Structure(kind, names, (LEAF,) * len(names), {}, make)
    structure.flat = len(names)
    return structure


def _taken_apart(tree: Any, values: list[Any], none: bool) -> Structure:
    kind: Any = type(tree)
    if kind in (dict, tuple, list):
        inside = tree.values() if kind is dict else tree
        if _USUAL.issuperset(map(type, inside)) and (kind is not dict or _STRING.issuperset(map(type, tree))):
            values += inside
            return _flat(kind, tuple(tree) if kind is dict else len(tree))
    opened = None if kind in _USUAL else _opened(tree)
    if opened is not None:
        keys, parts, static, make = opened
        return Structure(type(tree), keys, tuple([_taken_apart(part, values, none) for part in parts]), static, make)
    if tree is None and not none:
        return NONE
    values.append(tree)
    return LEAF


def is_structure(tree: Any) -> bool:
    """Whether something is a structure, and no leaf."""
    return tree is not None and _opened(tree) is not None


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a nested structure, in order; None is one."""
    return flattened(tree, none=True)[0]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return the structure with a function applied to each leaf; None is one."""
    if isinstance(tree, Tensor):
        return function(tree)
    values, structure = flattened(tree, none=True)
    return structure.filled(map(function, values))


def shown(tree: Any) -> str:
    """Return a structure as text, a star for each leaf."""
    return str(flattened(tree, none=True)[1])


def spread(prefix: Any, structure: Structure) -> list[Any] | None:
    """Return, for each leaf of a structure, the leaf of ``prefix`` at its place or above it; None if they differ."""
    if structure.kind is None or _opened(prefix) is None:
        return [prefix] * len(structure) if _opened(prefix) is None else None
    taken = structure.taken(prefix)
    if taken is None:
        return None
    values: list[Any] = []
    for subtree, part in zip(taken, structure.parts, strict=True):
        below = spread(subtree, part)
        if below is None:
            return None
        values += below
    return values


class Signature:
    """The arguments of a program: their structures and names, which leaves are values and which are fixed.

    With ``none`` None is a leaf, too.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, none: bool = False) -> None:
        self.positional = [flattened(a, none=none)[1] for a in args]
        self.keywords = {name: flattened(a, none=none)[1] for name, a in kwargs.items()}
        named = [(f"argument {i}", s) for i, s in enumerate(self.positional)]
        named += [(f"argument {name}", s) for name, s in self.keywords.items()]
        self.paths = [path for name, structure in named for path in structure.paths(name)]
        self.static = {i: x for i, x in enumerate(self._leaves(args, kwargs)) if not is_value(x)}
        self.names = [path for i, path in enumerate(self.paths) if i not in self.static]
        self.simple = not self.static and not self.keywords and all(s.kind is None for s in self.positional)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the leaves that are values; TypeError for another structure, or another value of a fixed leaf."""
        if self.simple and not kwargs and len(args) == len(self.positional):
            return args
        leaves = self._leaves(args, kwargs)
        for i, kept in self.static.items():
            if type(leaves[i]) is not type(kept) or not _same(leaves[i], kept):
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
        values = (*enumerate(args), *[(name, kwargs[name]) for name in self.keywords])
        for structure, (name, argument) in zip((*self.positional, *self.keywords.values()), values, strict=True):
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
