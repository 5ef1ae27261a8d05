"""Attributes that are read without running any code of a user's."""

from __future__ import annotations

import types
from collections import namedtuple
from types import ModuleType
from typing import Any

from tape.tensors.tensor import Tensor
from tape.watching.code_reads import is_decided

MISSING: Any = object()
_PLAIN_READS: tuple[Any, ...] = (object.__getattribute__, ModuleType.__getattribute__)
_LINES, _DICTIONARY, _MODULE, _FLAGS = (
    vars(type)[name].__get__ for name in ("__mro__", "__dict__", "__module__", "__flags__")
)
"""What classes say of themselves, past what their metaclasses answer."""
_MADE = 1 << 9
"""The flag of classes that a ``class`` statement makes. It finds builtins' name where its module has none."""
NAMED_FIELD = type(vars(namedtuple("_Named", "a"))["a"])  # noqa: PYI024 (only the class of its fields is wanted)
_MEMBERS = (types.MemberDescriptorType, NAMED_FIELD)
"""What a class has for slots of its objects, and for fields of a named tuple."""
_BOUND = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, classmethod, staticmethod)
_BOUND += (types.ClassMethodDescriptorType, types.BuiltinFunctionType)  # type: ignore[assignment]
"""What becomes a method when it is looked up, by nothing else than the object."""


def bases_of(kind: type) -> tuple[type, ...]:
    """Return a class and those above it."""
    return _LINES(kind)  # type: ignore[no-any-return]


def dictionary_of(kind: type) -> types.MappingProxyType[str, Any]:
    """Return the dictionary of a class."""
    return _DICTIONARY(kind)  # type: ignore[no-any-return]


def module_of(kind: type) -> str:
    """Return the name of the module that a class is of; none of a class that ``exec`` made in a module without one."""
    name = _MODULE(kind)
    return "" if type(name) is not str or (name == "builtins" and _FLAGS(kind) & _MADE) else name


def entry_of_class(kind: type, name: str) -> Any:
    """Return what a class or those above it have by a name; MISSING if nothing."""
    for above in bases_of(kind):
        variables = dictionary_of(above)
        if name in variables:
            return variables[name]
    return MISSING


def variables_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes; None if it has none."""
    for above in bases_of(type(value)):
        entry: Any = dictionary_of(above).get("__dict__")
        if type(entry) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            variables = entry.__get__(value)
            return variables if type(variables) is dict else None
    return None


def member_of(value: Any, name: str) -> Any:
    """Return what an object has in a slot; MISSING if nothing."""
    entry = entry_of_class(type(value), name)
    try:
        return entry.__get__(value) if type(entry) in _MEMBERS else MISSING
    except AttributeError:
        return MISSING


def is_wrapped(value: Any) -> bool:
    """Whether an object is made of a function that it names as ``__wrapped__``."""
    return wrapped_by(value) is not MISSING


def wrapped_by(value: Any) -> Any:
    """Return the function that a function or another object is made of, as ``functools.wraps`` notes it."""
    variables = None if issubclass(type(value), type) else variables_of(value)
    return MISSING if variables is None else variables.get("__wrapped__", MISSING)


def read(value: Any, name: str) -> Any:
    """Return an attribute as Python looks it up; MISSING where there is none, or a user's code would run for it."""
    kind = type(value)
    if issubclass(kind, type):
        return _read_of_class(value, name)
    entry = entry_of_class(kind, name)
    if entry_of_class(kind, "__getattribute__") not in _PLAIN_READS:
        return MISSING
    if type(entry) in _MEMBERS:
        return member_of(value, name)
    variables = variables_of(value)
    if _is_data(entry):
        return entry.__get__(value, kind) if _is_builtin(entry) else MISSING
    if variables is not None and name in variables:
        return variables[name]
    return _bound(entry, value, kind)


def _read_of_class(value: type, name: str) -> Any:
    kind = type(value)
    usual = entry_of_class(kind, "__getattribute__") is type.__getattribute__
    if not usual or _is_data(entry_of_class(kind, name)):
        return MISSING
    return _bound(entry_of_class(value, name), None, value)


def _is_data(entry: Any) -> bool:
    """Whether what a class has by a name takes precedence over what an object has."""
    kind = type(entry)
    return any(entry_of_class(kind, name) is not MISSING for name in ("__set__", "__delete__"))


def _is_builtin(entry: Any) -> bool:
    """Whether an attribute is computed by a package that is taken to stay as it is."""
    return type(entry) is types.GetSetDescriptorType and is_decided(module_of(entry.__objclass__))


def _bound(entry: Any, value: Any, kind: type) -> Any:
    if type(entry) in _BOUND or module_of(type(entry)) == "tape":  # compiled functions, too
        return entry.__get__(value, kind) if hasattr(type(entry), "__get__") else entry
    return entry if entry_of_class(type(entry), "__get__") is MISSING else MISSING


def plain_attribute(value: Any, name: str) -> Any:
    """Return an attribute that stands in an object's dictionary and that no code is run for; else ``MISSING``."""
    kind = type(value)
    if issubclass(kind, Tensor) or entry_of_class(kind, "__getattribute__") not in _PLAIN_READS:
        return MISSING
    if entry_of_class(type(entry_of_class(kind, name)), "__get__") is not MISSING:
        return MISSING
    variables = variables_of(value)
    return MISSING if variables is None else variables.get(name, MISSING)
