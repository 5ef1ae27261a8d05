"""Locks that survive a fork, data classes made without exec, tables of what was used last, late imports."""

from __future__ import annotations

import dataclasses
import difflib
import gc
import importlib
import itertools
import operator
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, FrozenInstanceError, field
from operator import attrgetter
from types import ModuleType
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform, overload
from weakref import WeakSet

import numpy as np

# Locks that a fork leaves usable, and the garbage collector held still.

Value = TypeVar("Value")


class Lock:
    """A reentrant lock, for ``with``; in a forked process no thread holds it but the one that forked.

    A fork waits for one that is ``waited_for``, which is never forgotten; if such nest, the outer one must be made
    later. Whatever interrupts come, a lock is free in the end: in Python 3.14 ``with`` leaves a lock of ``threading``
    held if an interrupt comes just when that has been taken.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self, *, waited_for: bool = False) -> None:
        self._lock: Any = threading.RLock()
        _locks.add(self)
        if waited_for and hasattr(os, "register_at_fork"):
            take, leave = self._lock.acquire, self._lock.release  # in C, as for interrupts in ``with``
            os.register_at_fork(before=take, after_in_parent=leave, after_in_child=leave)

    def __enter__(self) -> None:
        taken: list[bool] = []
        try:
            taken.extend(map(self._lock.acquire, (True,)))  # all in C: no interrupt comes before it is known
        except BaseException:
            if taken:
                self._lock.release()
            raise

    if sys.version_info[:2] != (3, 14):  # in C, where ``with`` has no such fault: a half of the time
        __enter__: Any = property(operator.attrgetter("_lock.__enter__"))  # type: ignore[no-redef]

    __exit__: Any = property(operator.attrgetter("_lock.__exit__"))
    """In C, since an interrupt may come before the first instruction of a function in Python."""

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Hold it if nobody does, not even this thread; the value says whether that is so."""
        taken: list[bool] = []
        try:
            if not self.is_inside:
                taken.extend(map(self._lock.acquire, (False,)))
            yield any(taken)
        finally:
            if taken and taken[0]:  # calls nothing before, so that no interrupt comes
                self._lock.release()

    @property
    def is_inside(self) -> bool:
        """Whether this thread holds it."""
        inside: bool = self._lock._is_owned()  # noqa: SLF001 (threading has no other question)
        return inside

    def forked(self) -> None:
        """Be free in a new process, unless its one thread is inside."""
        if not self.is_inside:
            self._lock = threading.RLock()


_locks: WeakSet[Lock] = WeakSet()


def _forked() -> None:
    for lock in list(_locks):
        lock.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class cached_property(Generic[Value]):  # noqa: N801 (the name in functools)
    """``functools.cached_property`` without its lock of before Python 3.12, which a fork may leave held."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        if instance is None:
            return self
        value: Value = vars(instance).setdefault(self.name, self.compute(instance))
        return value


@contextmanager
def uncollected(*, lasting: bool = False) -> Iterator[None]:
    """Collect no garbage within, as imports make none; with ``lasting``, what is made joins the oldest generation."""
    before = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if before:
            if lasting and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


# Data classes that are made in a fifth of the time: ``dataclasses`` compiles five or six functions a class, a
# millisecond at import for each of fifty classes. Here what does not depend on the fields' names is shared, and
# ``__init__`` is compiled for its class when the first object is made. ``dataclasses.fields`` and ``replace`` know
# these classes.

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *, frozen: bool = False, eq: bool = True, kw_only: bool = False, slots: bool = False
) -> Callable[[_Class], _Class]:
    """Declare a class of fields, as ``dataclasses.dataclass`` does; it has neither order nor ``__match_args__``."""

    def made(cls: _Class) -> _Class:
        namespace = vars(cls)
        written = {name for name in ("__init__", "__repr__", "__eq__", "__hash__") if name in namespace}
        bare = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=kw_only, slots=slots)
        kind: Any = bare(cls)
        fields = dataclasses.fields(kind)
        methods: dict[str, Any] = {"__init__": _first_init(kind, fields, frozen), "__repr__": _shown}
        if eq:
            methods |= {"__eq__": _same(_values(fields)), "__hash__": _hashed(_values(fields)) if frozen else None}
        for name, method in methods.items():
            if name not in written:
                setattr(kind, name, method)
        if frozen:
            kind.__setattr__, kind.__delattr__ = _refused_write, _refused_delete
        return kind

    return made


def _first_init(kind: Any, fields: tuple[Any, ...], frozen: bool) -> Callable[..., None]:
    """Return the ``__init__`` of a class of which there is no object yet: it compiles the one to come."""

    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        init = _init(kind, fields, frozen)
        if vars(kind).get("__init__") is first:
            kind.__init__ = init
        init(self, *args, **kwargs)

    return first


def _init(kind: Any, fields: tuple[Any, ...], frozen: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    heads, lines, keywords = ["self"], [], []
    for f in fields:
        known[f"_of_{f.name}"] = f.default_factory if f.default is MISSING else f.default
        value = f.name
        if f.default_factory is not MISSING:
            value = f"_of_{f.name}() if {f.name} is _missing else {f.name}" if f.init else f"_of_{f.name}()"
        elif not f.init:
            continue
        default = "" if f.default is f.default_factory is MISSING else f"=_of_{f.name}"
        default = default if f.default_factory is MISSING else "=_missing"
        if f.init:
            (keywords if f.kw_only else heads).append(f"{f.name}{default}")
        lines.append(f"    _set(self, {f.name!r}, {value})" if frozen else f"    self.{f.name} = {value}")
    heads += ["*", *keywords] if keywords else []
    lines += ["    self.__post_init__()"] if hasattr(kind, "__post_init__") else []
    text = f"def __init__({', '.join(heads)}):\n" + "\n".join(lines or ["    pass"])
    exec(text, known)  # noqa: S102 (names of fields, which are identifiers)
    init = known["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _values(fields: tuple[Any, ...]) -> Callable[[Any], Any]:
    names = [f.name for f in fields if f.compare]
    return attrgetter(*names) if names else type


def _same(values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def same(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return same


def _hashed(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed


def _shown(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _refused_write(self: Any, name: str, value: Any) -> None:  # noqa: ARG001
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refused_delete(self: Any, name: str) -> None:  # noqa: ARG001
    raise FrozenInstanceError(f"cannot delete field {name!r}")


Key = TypeVar("Key")
Item = TypeVar("Item")

MOST = 1 << 14
"""Entries of all tables together: some fifty megabytes, or 4,000 to 5,000 operations each on shapes of its own."""


class Recent(dict[Key, Item]):
    """A dictionary that drops every other entry when all of its kind together are full.

    A loop over more shapes than there is room for so finds some again, where without the older half it found none.

    What it held is made again when it is asked for again: nothing may rely on an entry's being there, and whoever
    uses one by address keeps it himself. There is one a module, an operation, or a program: those of programs that are
    gone count no more.
    """

    __slots__ = ("__weakref__",)
    _all: ClassVar[dict[int, weakref.ref[Recent]]] = {}
    _counted = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        number = id(self)
        self._all[number] = weakref.ref(self, lambda _, known=self._all: known.pop(number, None))

    def __setitem__(self, key: Key, item: Item) -> None:
        self._make_room()
        super().__setitem__(key, item)

    def setdefault(self, key: Key, item: Item) -> Item:  # type: ignore[override]
        """Return what stands under a key; the item, if nothing does."""
        self._make_room()
        return super().setdefault(key, item)

    @classmethod
    def tables(cls) -> list[Recent]:
        """Return all tables that there are."""
        return [table for known in list(cls._all.values()) if (table := known()) is not None]

    def _make_room(self) -> None:
        if next(self._counted) >= MOST:
            tables = self.tables()
            for table in tables:
                table.halve()
            Recent._counted = itertools.count(sum(map(len, tables)))

    def halve(self) -> None:
        """Drop every other entry, a single one too: tables of one entry each, one a program, would else stay full."""
        for key in list(self.copy())[::2]:  # of a copy: other threads write meanwhile
            self.pop(key, None)


# Keys of tables: values, with their types, so that 1, True and 1.0 are three, and 0.0 and -0.0 two.

_PLAIN = frozenset((int, bool, str, bytes, type(None), type(Ellipsis)))


def exact(value: Any) -> Any:
    """Return what a table may know a value by, for as long as it likes. TypeError for what can change meanwhile.

    Values that compare equal and mean different things have different keys; nan has one. Objects that equal only
    themselves, as functions do, stand for themselves: the key keeps them.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float or kind is complex:
        return kind, value.hex() if kind is float else repr(value)
    if kind is tuple or kind is slice:
        return (kind, *map(exact, value if kind is tuple else (value.start, value.stop, value.step)))
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    if isinstance(value, np.dtype):
        return kind, value.str
    if kind.__eq__ is object.__eq__ or isinstance(value, type):
        return kind, value
    raise TypeError(f"a {kind.__name__} can change, and so cannot be part of a key")


# Names of a package that are imported at their first use.


def getattr_of(
    package: str, places: Mapping[str, str], instead: Mapping[str, str] | None = None, page: str = ""
) -> Callable[[str], Any]:  # fmt: skip
    """Return the ``__getattr__`` (PEP 562) of a package, for names and the modules that define, or are, them.

    ``instead``: what to use in place of names that are not there, for the error; ``page``: where others are told.
    """
    advice = dict(instead or {})

    def said(name: str) -> str:
        """Return what to use instead, or the nearest names that there are."""
        if name in advice or name.startswith("_"):
            return f": {advice[name]}" if name in advice else ""
        near = difflib.get_close_matches(name, [n for n in dir(sys.modules[package]) if not n.startswith("_")], 2, 0.7)
        nearest = f"; did you mean {' or '.join(f'{package}.{other}' for other in near)}?" if near else ""
        return f"{nearest or ';'} see {page}" if page else nearest

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{said(name)}", name=name)
        place = places[name]
        module = importlib.import_module(place)
        value = getattr(module, name, module) if place == f"{package}.{name}" else getattr(module, name)
        value = module if isinstance(value, ModuleType) else value  # tape.sparse imports another sparse
        setattr(sys.modules[package], name, value)
        return value

    return find
