"""What code reads from outside by name, and the code that ran since a loop was entered.

An iteration is decided by its locals, by what they lead to, and by what the code that it runs through reads elsewhere:
globals, attributes of modules and of classes. What no snapshot shows, such as the clock, makes a loop stay Python.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Container, Iterator
from types import CodeType
from typing import Any, NamedTuple

from kernels import PACKAGES
from kernels.foundation.recent_table import Recent

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
