"""Snapshots of the Python state at the head of a loop, tensors apart, that can be compared later.

What the loop may change, and what may decide how it goes on, is reached from its live locals and cells, or from
globals, attributes and defaults that the function's own code reads: the latter are covered by ``watched``. Frames
above are suspended; the objects that an iteration reaches there, it reaches through its own locals too.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tape.foundation import dtypes
from tape.tensors import modes
from tape.tensors.tensor import Tensor

_DEEPEST = 6
_MOST = 1000
"""Parts that are looked at: items, attributes and variables."""
_MOST_BYTES = 1 << 20
_VALUES = (bool, int, str, bytes, type(None), range)
_WHOLE = (type, types.ModuleType, np.ufunc, np.dtype, enum.Enum, types.EllipsisType, types.NotImplementedType)
_WHOLE += (types.WrapperDescriptorType, types.MethodDescriptorType, types.CodeType)  # type: ignore[assignment]


class State:
    """The Python state at a visit of a head.

    ``template`` is everything but the values of tensors: states with equal templates have their tensors at the same
    places, and the same of them are one object. ``tensors`` are these, ``names`` what they are called. ``reason`` says
    why the state cannot be compared, if so.
    """

    __slots__ = ("names", "reason", "template", "tensors")

    def __init__(
        self, reason: str, template: Any = None, tensors: Iterable[Tensor] = (), names: Iterable[str] = ()
    ) -> None:
        self.reason, self.template = reason, template
        self.tensors, self.names = list(tensors), list(names)

    @property
    def fits(self) -> bool:
        """Whether the state can be compared."""
        return not self.reason


def state_of(variables: dict[str, Any], counters: dict[str, Any], location: str) -> State:
    """Return a snapshot of variables; of ``counters`` these values are taken in place of their own."""
    look = _Look()
    try:
        template = tuple(
            [
                (name, counters[name] if name in counters else look.at(value, name, 0))
                for name, value in variables.items()
            ]
        )
    except _NotComparableError as error:
        return State(f"{error} in the loop at {location}")
    return State("", (_surroundings(), template), look.tensors, look.names)


def _surroundings() -> tuple[Any, ...]:
    """Return what operations do depends on, besides their operands."""
    mode = modes.current()
    return mode.grad, mode.inference, _Same(mode.pack), _Same(mode.anomaly), dtypes.get_default_dtype().str


class _NotComparableError(Exception):
    """Something of which no snapshot can be taken; the message says what."""


class _Same:
    """Equal to that of the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _Look:
    """Takes one snapshot."""

    __slots__ = ("kept", "names", "parts", "seen", "size", "tensors")

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []
        """What was seen, so that its address stays its own."""
        self.parts = self.size = 0

    def at(self, value: Any, name: str, depth: int) -> Any:
        """Return what is compared of a value, called so."""
        self.parts += 1
        if self.parts > _MOST or depth > _DEEPEST:
            raise _NotComparableError(f"{name} is part of more than can be compared")
        kind = type(value)
        if kind in _VALUES:
            return self._plain(kind, value, name)
        if kind is float or kind is complex:
            return kind, _bits(value)
        if isinstance(value, _WHOLE):
            return _Same(value)
        return self._seen(kind, value, name, depth)

    def _plain(self, kind: type, value: Any, name: str) -> tuple[type, Any]:
        if kind in (str, bytes):
            self._add_bytes(len(value), name)
        return kind, value

    def _add_bytes(self, count: int, name: str) -> None:
        self.size += count
        if self.size > _MOST_BYTES:
            raise _NotComparableError(f"{name} is larger than what is compared")

    def _seen(self, kind: type, value: Any, name: str, depth: int) -> Any:
        """Return what is compared of an object that may be met again."""
        before = self.seen.get(id(value))
        if before is not None:
            return "again", before
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            self.names.append(name)
            return "tensor", kind
        if isinstance(value, np.generic):
            return self._array(kind, value, name)
        if kind is np.ndarray:
            return _Same(value), value.strides, self._array(kind, value, name)
        return self._composed(kind, value, name, depth)

    def _array(self, kind: type, value: Any, name: str) -> tuple[Any, ...]:
        if value.dtype.hasobject:
            raise _NotComparableError(f"{name} is an array of objects")
        self._add_bytes(value.nbytes, name)
        return kind, value.dtype.str, value.shape, value.tobytes()

    def _composed(self, kind: type, value: Any, name: str, depth: int) -> Any:
        if _is_named_tuple(kind):
            return self._sequence(value, name, depth + 1)
        if _is_compiled(kind):
            return _Same(value), self.at(getattr(value, "__wrapped__", None), name, depth + 1)
        take = _TAKE.get(kind, _Look._object)
        return kind, take(self, value, name, depth + 1)

    def _sequence(self, value: Iterable[Any], name: str, depth: int) -> Any:
        return type(value), [self.at(part, f"{name}[{i}]", depth) for i, part in enumerate(tuple(value))]

    def _slice(self, value: slice, name: str, depth: int) -> Any:
        return self.at((value.start, value.stop, value.step), name, depth)

    def _method(self, value: types.MethodType, name: str, depth: int) -> Any:
        return self.at(value.__func__, name, depth), self.at(value.__self__, f"{name}.__self__", depth)

    def _partial(self, value: functools.partial[Any], name: str, depth: int) -> Any:
        return self.at((value.func, value.args, value.keywords, vars(value)), name, depth)

    def _items(self, value: dict[Any, Any], name: str, depth: int) -> list[Any]:
        return [
            (self.at(key, f"a key of {name}", depth), self.at(part, f"{name}[{key!r}]", depth))
            for key, part in tuple(value.items())
        ]

    def _function(self, value: types.FunctionType, name: str, depth: int) -> Any:
        """Return what a function remembers: cells, defaults, attributes."""
        cells = [
            self._cell(cell, f"{variable} of {name}", depth)
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        ]
        defaults = (value.__defaults__, value.__kwdefaults__, value.__dict__)
        return _Same(value), _Same(value.__code__), cells, self.at(defaults, f"defaults of {name}", depth)

    def _cell(self, cell: types.CellType, name: str, depth: int) -> Any:
        try:
            return _Same(cell), self.at(cell.cell_contents, name, depth)
        except ValueError:  # not bound yet
            return _Same(cell)

    def _builtin(self, value: types.BuiltinMethodType, name: str, depth: int) -> Any:
        owner = value.__self__
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            return _Same(value)
        return value.__name__, self.at(owner, f"{name}.__self__", depth)

    def _object(self, value: Any, name: str, depth: int) -> Any:
        """Return what is compared of an object of a class: all that it holds must be in its dictionary."""
        if not _holds_only_attributes(type(value)):
            raise _NotComparableError(f"{name}, a {type(value).__name__}, may change unseen")
        variables = object.__getattribute__(value, "__dict__")
        return [(key, self.at(part, f"{name}.{key}", depth)) for key, part in tuple(variables.items())]


_TAKE: dict[type, Callable[[_Look, Any, str, int], Any]] = {
    list: _Look._sequence,
    tuple: _Look._sequence,
    dict: _Look._items,
    slice: _Look._slice,
    types.FunctionType: _Look._function,
    types.MethodType: _Look._method,
    types.BuiltinMethodType: _Look._builtin,
    functools.partial: _Look._partial,
}
"""What is compared of an object of a class that is not a user's."""


def _bits(value: complex) -> Any:
    """Return what is equal for numbers of the same bits, and for nan."""
    return value.hex() if isinstance(value, float) else (value.real.hex(), value.imag.hex())


def _is_named_tuple(kind: type) -> bool:
    return kind.__bases__ == (tuple,) and hasattr(kind, "_fields") and kind.__dict__.get("__slots__") == ()


def _is_compiled(kind: type) -> bool:
    """Whether objects of a class are compiled functions of tape's or Numba's, which remember nothing else."""
    package, name = kind.__module__.partition(".")[0], kind.__name__
    return (package, name) in (("tape", "CompiledFunction"), ("numba", "CPUDispatcher"))


class _Attributes:
    """A class whose objects hold nothing but attributes."""


def _holds_only_attributes(kind: type) -> bool:
    """Whether objects of a class hold nothing beside their dictionary."""
    slots = any(part.__dict__.get("__slots__") for part in kind.__mro__)
    same_size = kind.__basicsize__ == _Attributes.__basicsize__ and kind.__itemsize__ == 0
    return same_size and not slots and kind.__dictoffset__ == _Attributes.__dictoffset__
