"""The key of a call: structure, dtypes, shapes, values that a recording depends on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import fills
from kernels.foundation.tables import exact
from kernels.kinds.reference_tape import expose
from kernels.machine_code.call_structs import (
    DEEPEST,
    MOST_VALUES,
    S_DICT,
    S_END,
    S_FIXED,
    S_LIST,
    S_TUPLE,
    S_VALUE,
)
from kernels.native.memory import HEADER
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.dtypes import get_default_dtype
from tape.tensors.operands import usable
from tape.tensors.pytrees import LEAF, Structure, flattened
from tape.tensors.tensor import Tensor, as_array, constant_tensor, scalar_or_array
from tape.tensors.view_families import is_view, mark_exported_to_numpy
from tape.transforms.value_and_grad import Signature, share_memory

_STRUCTURE_KINDS: dict[Any, int] = {tuple: S_TUPLE, list: S_LIST, dict: S_DICT}


class Unknown(Exception):  # noqa: N818 (no error: Python does it)
    """A structure that native code does not open."""


class StructureSteps:
    """Steps through structures, with what they refer to; ``fixed``: what leaves have to be that are no values.

    :class:`Unknown` for other structures than tuples, lists and dictionaries by names, and where these are many.
    """

    def __init__(self, fixed: dict[int, Any]) -> None:
        self.words: list[int] = []
        self.kept: list[Any] = [fixed]
        self.values, self.count = 0, 0
        self._kinds: set[Any] = set()
        self._fixed, self._leaf = fixed, 0
        if not _tuples_agree():
            raise Unknown

    @classmethod
    def of_arguments(cls, structure: Structure, fixed: dict[int, Any]) -> StructureSteps:
        """Return the steps through arguments by position."""
        positional, named = structure.parts
        if named.parts:
            raise Unknown
        self = cls(fixed)
        self._parts(positional, 0)
        self.count = len(positional.parts)
        if not 0 < self.values <= MOST_VALUES:
            raise Unknown
        return self

    @classmethod
    def of_gradient(cls, structure: Structure) -> StructureSteps:
        """Return the steps through a structure that is to be made."""
        self = cls({})
        self._one(structure, 0, 0)
        if any(kind not in _STRUCTURE_KINDS for kind in self._kinds):
            raise Unknown
        return self

    def _parts(self, structure: Structure, depth: int) -> None:
        by_name = structure.kind is dict
        for key, part in zip(structure.keys, structure.parts, strict=True):
            if by_name and type(key) is not str:
                raise Unknown
            self._one(part, id(key) if by_name else 0, depth)
        self.words += (S_END, 0, 0, 0)

    def _one(self, structure: Structure, key: int, depth: int) -> None:
        if structure is LEAF:
            number, self._leaf = self._leaf, self._leaf + 1
            if number in self._fixed:
                self.words += (S_FIXED, key, id(self._fixed[number]), 0)
            else:
                self.words += (S_VALUE, key, 0, 0)
                self.values += 1
            return
        kind: Any = structure.kind
        named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
        if depth >= DEEPEST or not (kind in _STRUCTURE_KINDS or named):
            raise Unknown
        self._kinds.add(kind)
        self.kept.append(structure)
        self.words += (S_TUPLE if named else _STRUCTURE_KINDS[kind], key, len(structure.parts), id(kind))
        self._parts(structure, depth + 1)


@functools.cache
def _tuples_agree() -> bool:
    """Check, on a known tuple, that native code finds the items where it looks."""
    probe = 1.5, 2.5
    items = [ctypes.c_int64.from_address(id(probe) + tuple.__basicsize__ + 8 * k).value for k in range(2)]
    return ctypes.c_int64.from_address(id(probe) + HEADER).value == len(probe) and items == [id(x) for x in probe]


# What tells calls of a compiled function apart: everything that its Python code can see without computing with values.
#
# Floats, arrays and tensors are values. Ints, bools, strings, None and all other objects belong to the key.

_FLOATS = (float, np.float64)
_KINDS = "biuf"
_PLAIN = (bool, int, str, bytes, complex, float, type(None))


class CallArguments(NamedTuple):
    """A call taken apart: its key, the leaves that are values, whether a tensor is among them, and all leaves.

    An array or tensor that is given twice is one value; ``again`` has the further places, with its number.
    """

    key: Any
    values: list[Any]
    tensors: bool
    leaves: list[Any]
    places: list[int]
    structure: Structure
    chosen: tuple[list[int], Structure] | None = None
    """The numbers of the values that a gradient is by, and its structure."""
    again: tuple[tuple[int, int], ...] = ()

    @property
    def arrays(self) -> bool:
        """Whether NumPy's arrays or numbers were given, and no tensor: then arrays come out."""
        return bool(self.values) and not self.tensors

    def signature(self) -> Signature:
        """Return the signature of a program that is called in this way."""
        signature = Signature(*self.filled(self.values))
        signature.static = dict(self.fixed)
        signature.names = [signature.paths[i] for i in self.places]
        signature.simple = signature.simple and not signature.static and not self.again
        return signature

    @property
    def is_flat(self) -> bool:
        """Whether each argument is one value, given by position."""
        positional, named = self.structure.parts
        return not len(named) and positional.flat == len(positional) == len(self.values)

    @property
    def fixed(self) -> list[tuple[int, Any]]:
        """The leaves that are no values, with their places."""
        values = {*self.places, *[place for place, _ in self.again]}
        return [(i, x) for i, x in enumerate(self.leaves) if i not in values]

    def filled(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with other values."""
        leaves = list(self.leaves)
        for place, x in zip(self.places, inputs, strict=True):
            leaves[place] = x
        for place, number in self.again:
            leaves[place] = inputs[number]
        args, kwargs = self.structure.filled(leaves)
        return args, kwargs


def call_of(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: Collection[Any],
    traced: Collection[Any],
    alone: Collection[Any] = (),
) -> CallArguments:
    """Take a call apart; ``static`` and ``traced`` are positions and names of arguments that override the rule.

    Each place of what is ``alone`` is a value of its own.
    """
    leaves, structure = flattened((args, kwargs), none=True)
    forced = _forced(args, kwargs, static, traced) if static or traced else {}
    kinds: list[Any] = []
    places: list[int] = []
    tensors = False
    again: list[tuple[int, int]] = []
    seen = dict.fromkeys(map(id, alone), -1)
    for i, x in enumerate(leaves):
        kind = forced[i](x) if i in forced else _kind(x)
        if kind is None:
            kinds.append(_static(x))
        elif isinstance(x, (Tensor, np.ndarray)) and seen.setdefault(id(x), len(places)) not in (-1, len(places)):
            kinds.append(("again", seen[id(x)]))
            again.append((i, seen[id(x)]))
        else:
            kinds.append(kind)
            places.append(i)
            tensors = tensors or isinstance(x, Tensor)
    mode, as_values = modes.current(), modes.given_arrays() or (bool(places) and not tensors)
    key = (structure, _order(structure), tuple(kinds), mode.grad, get_default_dtype(), as_values)
    return CallArguments(key, [leaves[i] for i in places], tensors, leaves, places, structure, again=tuple(again))


def either_way(function: Callable[..., Any], arguments: Collection[Any]) -> tuple[Any, ...]:
    """Return arguments that are named, or whose positions are, by both: calls may give them by either."""
    both = {*arguments}
    if both:
        with contextlib.suppress(TypeError, ValueError):  # of what has no signature
            parameters = inspect.signature(function).parameters.values()
            for at, parameter in enumerate(p for p in parameters if p.kind in _BY_POSITION):
                if at in both or parameter.name in both:
                    both |= {at, parameter.name}
    return tuple(both)


_BY_POSITION = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def _order(structure: Structure) -> tuple[Any, ...]:
    return (structure.keys, *[_order(part) for part in structure.parts if part.kind is not None])


def _kind(x: Any) -> Any:
    """Return what is known of a value before it is computed with; None for what is no value."""
    if isinstance(x, Tensor):
        spec = x.spec
        return "tensor", spec.shape, spec.strides, spec.dtype, x._slot is not None
    if type(x) in _FLOATS:
        return "float"
    if isinstance(x, np.ndarray) and type(x) is np.ndarray and x.dtype.kind in _KINDS:
        return "array", x.shape, x.strides, x.dtype
    if isinstance(x, np.floating):
        return "scalar", x.dtype
    return None


def _traced(x: Any) -> Any:
    """Return the same where ints and bools are values, too."""
    if isinstance(x, (bool, int, np.integer, np.bool_)):
        return "scalar", np.asarray(x).dtype
    return _kind(x)


def _untraced(x: Any) -> None:
    del x


def _static(x: Any) -> Any:
    """Return what stands for an object in a key: its value if it is plain, else the object itself."""
    if isinstance(x, np.generic):
        return type(x), x.tobytes()
    return (type(x), exact(x)) if type(x) in _PLAIN else Same(x)  # a derived class, as of enums, may hold more


class Same:
    """An object as part of a key: equal to itself alone, and kept alive."""

    __slots__ = ("object",)

    def __init__(self, thing: Any) -> None:
        self.object = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object)


def _forced(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], static: Collection[Any], traced: Collection[Any]
) -> dict[int, Any]:
    """Return how leaves are looked at whose argument is named; by the number of the leaf."""
    forced: dict[int, Any] = {}
    at = 0
    for name, value in (*enumerate(args), *kwargs.items()):
        count = len(flattened(value, none=True)[0])
        look = _untraced if name in static else _traced if name in traced else None
        if look is not None:
            forced.update(dict.fromkeys(range(at, at + count), look))
        at += count
    return forced


def shared_input(x: Any) -> Tensor:
    """Return a value that is no tensor as one of the same memory, in which writes are seen."""
    return mark_exported_to_numpy(
        constant_tensor(scalar_or_array(usable(x))) if isinstance(x, np.ndarray) else input_of(x)
    )


def inputs_of(values: Sequence[Any], *, apart: bool) -> list[Tensor]:
    """Return values as the tensors that a recorded function gets; ``apart``: none has memory of the caller's."""
    inputs = list(map(input_of, values))
    return list(map(clone, inputs)) if apart else inputs


def is_separated(values: Sequence[Any]) -> bool:
    """Whether values share memory that their inputs do not: dense arrays, and numbers, are given as they are."""
    as_they_are = all(not isinstance(x, Tensor) and (not isinstance(x, np.ndarray) or fills(x)) for x in values)
    return not as_they_are and share_memory(values)


def input_of(x: Any) -> Tensor:
    """Return a value as the tensor that the function gets: the caller's own, unless it is a part of other memory."""
    if isinstance(x, Tensor):
        return x if type(x._value) is float or (fills(as_array(x)) and not is_view(x)) else clone(x)
    if isinstance(x, np.ndarray):
        array = usable(x if fills(x) else x.copy(order="K"))
        expose(array)
        return constant_tensor(scalar_or_array(array))
    if type(x) in _FLOATS:
        return constant_tensor(float(x))
    return constant_tensor(np.asarray(x))


_PLAIN_TYPES = frozenset((bool, int, float, str, bytes))


class CallShape:
    """The structure of a call's arguments (dicts, lists and tuples), and those of its leaves that are no values."""

    __slots__ = ("_again", "_fixed", "_places", "_structure")

    def __init__(self, call: CallArguments) -> None:
        self._structure, self._places = call.structure, call.places
        self._again = [(i, call.places[number]) for i, number in call.again]
        self._fixed = call.fixed

    @staticmethod
    def suits(call: CallArguments) -> bool:
        """Whether a call has values, in structures that are opened in one way."""
        return bool(call.places) and _is_plain(call.structure)

    def steps(self) -> StructureSteps | None:
        """Return how native code finds the values; None where it does not."""
        if self._again:
            return None
        try:
            return StructureSteps.of_arguments(self._structure, dict(self._fixed))
        except Unknown:
            return None

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return the values of a call; None where something else differs. What they are is not looked at."""
        leaves: list[Any] = []
        if not _opened(self._structure, (args, kwargs), leaves):
            return None
        for i, x in self._fixed:
            other = leaves[i]
            if other is not x and not (type(x) in _PLAIN_TYPES and type(other) is type(x) and exact(other) == exact(x)):
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


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PATH = re.compile(r"argument (\w+)(.*)", re.DOTALL)


def named(function: Callable[..., Any], paths: Sequence[str]) -> list[str]:
    """Return names for leaves of a call, which a signature knows by paths such as ``argument 0['a']``.

    A position becomes the name of the parameter, if that is known; parts follow behind underscores.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # a function of C
        parameters = []
    positional = [p.name for p in parameters if p.kind in _POSITIONAL]
    return [_name(path, positional) for path in paths]


def _name(path: str, positional: Sequence[str]) -> str:
    match = _PATH.fullmatch(path)
    if match is None:
        return path
    head, rest = match.groups()
    if head.isdigit():
        head = positional[int(head)] if int(head) < len(positional) else f"x{head}"
    return "_".join([head, *re.findall(r"\w+", rest)])
