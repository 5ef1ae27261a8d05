"""What code reads from outside by name, and the code that ran since a loop was entered.

An iteration is decided by its locals, by what they lead to, and by what the code that it runs through reads elsewhere:
globals, attributes of modules and of classes. What no snapshot shows, such as the clock, makes a loop stay Python.
"""

from __future__ import annotations

import dis
import sys
import types
from collections import namedtuple
from collections.abc import Container, Iterator
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from kernels import PACKAGES
from kernels.foundation.recent_table import Recent
from tape.tensors.tensor import Tensor

_DECIDED = frozenset((*PACKAGES, "numpy", "scipy", "numba", "llvmlite")) | sys.stdlib_module_names
_UNDECIDED = frozenset(("random", "secrets", "uuid", "datetime", "tempfile", "this", "antigravity"))
_CLOCKS = frozenset(("time", "posix", "nt", "gc", "_thread", "_socket", "_uuid", "cython_runtime"))
_READERS = frozenset(("globals", "locals", "eval", "exec", "id", "input", "open", "__import__", "breakpoint"))
"""Builtin functions whose results are in no snapshot."""
_OF_TENSORS = frozenset(("is_leaf", "grad_fn", "grad", "_version", "data_ptr", "retains_grad", "next_functions"))
"""Attributes of tensors that say more than is compared."""
_DYNAMIC = frozenset(("getattr", "setattr", "hasattr", "delattr", "vars", "attrgetter", "methodcaller", "__dict__"))
"""Names by which attributes of any name are read."""
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_STORES = {"STORE_GLOBAL": "stores the global", "DELETE_GLOBAL": "deletes the global", "IMPORT_NAME": "imports"}
_STORES |= {"IMPORT_STAR": "imports"}

_NAMES = frozenset(("__call__",))
"""Attributes that are read without their names."""


class CodeReads(NamedTuple):
    """What code reads by name: globals, attributes of anything. ``reason``: what it does that no snapshot shows.

    ``identities``: whether it looks at which of two objects is which, other than at constants such as None.
    """

    variables: tuple[str, ...]
    names: frozenset[str]
    reason: str
    identities: bool


class _All:
    """Contains everything."""

    def __contains__(self, _: object) -> bool:
        return True


_ALL = _All()
_known: Recent[int, tuple[CodeType, CodeReads]] = Recent()


def is_decided(package: Any) -> bool:
    """Whether a module, by its name, belongs to a package whose functions depend on what they are given alone."""
    first = str(package).partition(".")[0]
    if first.startswith("namedtuple_"):  # what the standard library writes for a named tuple
        return True
    return first in _DECIDED and first not in _UNDECIDED and not str(package).startswith("numpy.random")


def is_clock(module: Any) -> bool:
    """Whether functions of a module, by its name, say something else at each call."""
    return str(module) in _CLOCKS


def is_written(name: str) -> bool:
    """Whether source can hold a name: what rewrites asserts puts others into modules."""
    return not name.startswith("@")


def reads_of(code: CodeType) -> CodeReads:
    """Return what a code object, with those of functions defined in it, reads from outside."""
    known = _known.get(id(code))
    if known is None or known[0] is not code:
        known = _known[id(code)] = code, reads_within(code, _ALL)
    return known[1]


def reads_within(code: CodeType, offsets: Container[int]) -> CodeReads:
    """Return what the instructions at these offsets, and functions that they define, read from outside."""
    variables, names, reasons, identities, before = set[str](), set(_NAMES), list[str](), False, ""
    for step in (step for step in dis.get_instructions(code) if step.offset in offsets):
        value = step.argval
        identities |= step.opname == "CONTAINS_OP" or (step.opname == "IS_OP" and before != "LOAD_CONST")
        before = step.opname
        if isinstance(value, CodeType):
            inner = reads_of(value)
            variables.update(inner.variables)
            names |= inner.names
            reasons += [inner.reason] * bool(inner.reason)
            identities |= inner.identities
        elif step.opname in _GLOBALS and is_written(value):
            variables.add(value)
        elif step.opname in _STORES:
            reasons.append(f"{code.co_qualname} {_STORES[step.opname]} {value}")
        if step.opcode in dis.hasname:
            names.add(value)
    reasons += [f"{code.co_qualname} reads {name} of tensors" for name in sorted(names & _OF_TENSORS)]
    return CodeReads(tuple(sorted(variables)), frozenset(names), reasons[0] if reasons else "", identities)


class Scope:
    """The code that an entry of a loop may run, and the names that it reads; both only grow."""

    __slots__ = ("_seen", "codes", "identities", "names", "reason")

    def __init__(self) -> None:
        self.codes: list[tuple[CodeType, tuple[str, ...], dict[str, Any], dict[str, Any]]] = []
        """Each with the globals that it reads, by name, and the dictionaries of globals and of builtins."""
        self.names: set[str] = set()
        self.reason, self.identities = "", False
        self._seen: set[tuple[int, int]] = set()

    def reads(self, name: str) -> bool:
        """Whether an attribute of a class or module may be read."""
        if name.startswith(("__", "_abc_")):
            return name in _NAMES
        return name in self.names or not _DYNAMIC.isdisjoint(self.names)

    @property
    def size(self) -> tuple[int, int]:
        """What grows when code is added that is not known yet."""
        return len(self.codes), len(self.names)

    def add(
        self, code: CodeType, variables: dict[str, Any], builtins: dict[str, Any], reads: CodeReads | None = None
    ) -> None:
        """Add code that runs with these globals and builtins; ``reads``: if only a part of it counts."""
        key = id(code), id(variables)
        if key not in self._seen:
            self._seen.add(key if reads is None else (0, 0))
            reads = reads or reads_of(code)
            self.codes.append((code, reads.variables, variables, builtins))
            self.names |= reads.names
            self.reason = self.reason or reads.reason
            self.identities |= reads.identities

    def globals(self) -> Iterator[tuple[str, Any]]:
        """Yield the values of all globals that are read, with what they are called, and code that adds more of them."""
        for code, names, variables, builtins in self.codes:
            for name in names:
                if name in variables:
                    yield f"{name} of {code.co_qualname}", variables[name]
                elif name in _READERS and name in builtins:
                    self.reason = self.reason or f"{code.co_qualname} calls {name}"
                elif name in builtins:
                    yield name, builtins[name]


# Attributes that are read without running any code of a user's.

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
