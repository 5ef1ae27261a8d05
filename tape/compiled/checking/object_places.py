"""Where objects have what native checks look at: seen on known objects, 0 where this interpreter has it elsewhere."""

from __future__ import annotations

import ctypes
import functools
import types
from typing import Any

from kernels.native.memory import HEADER
from tape.watching.plain_attributes import entry_of_class

_LOOK_UP, _VERSION = 144, 384
"""Where classes have the function that looks up attributes of objects, and the number of their state."""
_DESCRIBED, _KIND, _AT = 40, 8, 16
"""Where a descriptor of a member has the address of what describes it; what that says of kind and place."""
_REFERENCES = (6, 16)
"""The kinds of members that are references."""


def word_at(address: int) -> int:
    """Return 8 bytes of memory."""
    return ctypes.c_int64.from_address(address).value


def version_of(kind: type) -> int:
    """Return the number of a class's state, 0 if it has none."""
    getattr(kind, "__hash__", None)  # a class gets a number when something is looked up in it
    return ctypes.c_uint32.from_address(id(kind) + _VERSION).value


@functools.cache
def place_of_version() -> int:
    """Return where classes have a number that any change of them, or of a class above them, takes from them."""
    if vars(type)["__basicsize__"].__get__(type) < _VERSION + 8:
        return 0

    class Above:
        value = 1

    class Below(Above):
        pass

    seen = [version_of(Below)]
    changes = (Above, "value", 2), (Below, "other", 3), (Below, "__bases__", (type("Other", (Above,), {}),))
    for kind, name, value in changes:
        setattr(kind, name, value)
        gone = ctypes.c_uint32.from_address(id(Below) + _VERSION).value
        seen.append(version_of(Below))
        if gone in seen[:-1]:
            return 0
    return _VERSION if 0 not in seen and len(set(seen)) == len(seen) and version_of(Below) == seen[-1] else 0


@functools.cache
def _look_up() -> int:
    """Return where classes have the function that looks up attributes."""

    class Usual:
        pass

    class Last:
        def __getattr__(self, name: str) -> Any:
            return name

    class First:
        def __getattribute__(self, name: str) -> Any:
            return name

    usual, last, first = [word_at(id(kind) + _LOOK_UP) for kind in (Usual, Last, First)]
    return _LOOK_UP if usual == word_at(id(object) + _LOOK_UP) and usual not in (last, first) else 0


def looks_up_alike(kind: type, model: type) -> bool:
    """Whether attributes of a class's objects are looked up by the same function as those of another class."""
    at = _look_up()
    return at != 0 and word_at(id(kind) + at) == word_at(id(model) + at)


@functools.cache
def _members_agree() -> bool:
    class Slotted:
        __slots__ = ("a", "b")

    probe = Slotted()
    probe.a, probe.b = 1.5, 2.5  # type: ignore[attr-defined]
    places = [_described(Slotted.__dict__[name]) for name in ("a", "b")]
    return all(places) and [word_at(id(probe) + at) for at in places] == [id(probe.a), id(probe.b)]  # type: ignore[attr-defined]


def _described(member: types.MemberDescriptorType) -> int:
    described = word_at(id(member) + _DESCRIBED)
    kind = ctypes.c_int32.from_address(described + _KIND).value
    return word_at(described + _AT) if kind in _REFERENCES else 0


def place_of_member(kind: type, name: str) -> int:
    """Return where objects of a class have a slot, or another member that is a reference."""
    member = entry_of_class(kind, name)
    return _described(member) if type(member) is types.MemberDescriptorType and _members_agree() else 0


def attributes_of(x: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, the one that look-ups read; None if it has none."""
    try:
        variables = _attributes(x, None)
    except AttributeError:
        return None
    return variables if type(variables) is dict else None


_attributes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyObject_GenericGetDict", ctypes.pythonapi)
)


@functools.cache
def places_in_functions() -> tuple[int, int, int]:
    """Return where functions have their code, keyword defaults and defaults."""

    def one(a: Any = 1.5, *, b: Any = 2.5) -> None:
        """Have defaults of both kinds."""

    def other(a: Any = 3.5, *, b: Any = 4.5) -> None:
        """Have other ones."""

    def place_of(name: str) -> int:
        size = types.FunctionType.__basicsize__
        both = [
            [at for at in range(HEADER, size, 8) if word_at(id(f) + at) == id(getattr(f, name))] for f in (one, other)
        ]
        return both[0][0] if both[0] == both[1] and len(both[0]) == 1 else 0

    return place_of("__code__"), place_of("__kwdefaults__"), place_of("__defaults__")
