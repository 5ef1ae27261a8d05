"""What calls of a compiled function have in common, so that the values of another one are found at once."""

from __future__ import annotations

from typing import Any

from kernels.foundation.recent_table import exact
from tape.compiled.call_key import Call
from tape.compiled.native_structures import Steps, Unknown
from tape.tensors.pytrees import LEAF, Structure

_PLAIN = frozenset((bool, int, float, str, bytes))


class CallShape:
    """The structure of a call's arguments, and those of its leaves that are no values.

    Only for dicts, lists and tuples: see :meth:`suits`.
    """

    __slots__ = ("_again", "_fixed", "_places", "_structure")

    def __init__(self, call: Call) -> None:
        self._structure, self._places = call.structure, call.places
        self._again = [(i, call.places[number]) for i, number in call.again]
        self._fixed = call.fixed

    @staticmethod
    def suits(call: Call) -> bool:
        """Whether a call has values, in structures that are opened in one way."""
        return bool(call.places) and _is_plain(call.structure)

    def steps(self) -> Steps | None:
        """Return how native code finds the values; None where it does not."""
        if self._again:
            return None
        try:
            return Steps.of_arguments(self._structure, dict(self._fixed))
        except Unknown:
            return None

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return the values of a call; None where something else differs. What they are is not looked at."""
        leaves: list[Any] = []
        if not _opened(self._structure, (args, kwargs), leaves):
            return None
        for i, x in self._fixed:
            other = leaves[i]
            if other is not x and not (type(x) in _PLAIN and type(other) is type(x) and exact(other) == exact(x)):
                return None
        if any(leaves[i] is not leaves[j] for i, j in self._again):
            return None
        return tuple([leaves[i] for i in self._places])


def _is_plain(structure: Structure) -> bool:
    kind = structure.kind
    if kind is None:
        return True
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return (kind in (dict, list, tuple) or named) and all(map(_is_plain, structure.parts))


def _opened(structure: Structure, tree: Any, leaves: list[Any]) -> bool:
    """Append the leaves of a tree of this structure, dicts in this order; False for another one."""
    kind: Any = structure.kind
    if type(tree) is not kind:
        return False
    inside: Any = tree
    if kind is dict:
        if tuple(tree) != structure.keys:
            return False
        inside = tree.values()
    elif len(inside) != len(structure.parts):
        return False
    if structure.flat:
        leaves += inside
        return True
    for part, x in zip(structure.parts, inside, strict=True):
        if part is LEAF:
            leaves.append(x)
        elif not _opened(part, x, leaves):
            return False
    return True
