"""Nested structures of tensors: tuples, named tuples, lists and dicts taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """Return what stands in a nested structure, in order; a dict's by its keys' order."""
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return the structure with a function of each leaf in its place."""
    if isinstance(tree, dict):
        return {key: mapped(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(function, part) for part in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(mapped(function, part) for part in tree)
    return function(tree)


def filled(tree: Any, values: Iterable[Any]) -> Any:
    """Return the structure with these values for its leaves."""
    left: Iterator[Any] = iter(values)
    return mapped(lambda _: next(left), tree)


def alike(a: Any, b: Any) -> bool:
    """Whether two structures differ in their leaves alone."""
    if isinstance(a, dict) or isinstance(b, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return True


def shown(tree: Any) -> str:
    """Return a structure as text, a star for each leaf."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {shown(part)}" for key, part in tree.items()) + "}"
    if isinstance(tree, tuple):
        return "(" + ", ".join(map(shown, tree)) + ("," if len(tree) == 1 else "") + ")"
    return "[" + ", ".join(map(shown, tree)) + "]" if isinstance(tree, list) else "*"


def spread(prefix: Any, tree: Any) -> list[Any] | None:
    """Return, for each leaf of a structure, what stands at its place, or above it, in another; None if they differ."""
    if isinstance(tree, dict) and isinstance(prefix, dict):
        if prefix.keys() != tree.keys():
            return None
        return _joined(spread(prefix[key], tree[key]) for key in tree)
    if isinstance(tree, (tuple, list)) and isinstance(prefix, (tuple, list)):
        if type(prefix) is not type(tree) or len(prefix) != len(tree):
            return None
        return _joined(map(spread, prefix, tree))
    return None if isinstance(prefix, (dict, tuple, list)) else [prefix] * len(leaves(tree))


def _joined(parts: Iterable[list[Any] | None]) -> list[Any] | None:
    found: list[Any] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found
