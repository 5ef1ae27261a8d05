"""Checks of values, as words that native code reads.

A check compares by identity, and in order. What it refers to is kept alive, so that an address stays that of one
object; before memory of an object is read, the class of what may change its class is checked.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import word_at
from kernels.language.jit import bound
from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import CallPlan
from kernels.native.c_api import ArrayObject, TensorObject
from kernels.native.memory import HEADER, row, where
from tape.tensors.tensor import Tensor
from tape.watching import watched
from tape.watching.frame_events import MISSING, NAMED_FIELD, entry_of_class, member_of, variables_of
from tape.watching.snapshots import BUFFERS, ArrayContent, entries_of, opened, slots_of, unchanged
from tape.watching.watched import ClassWatch, CodeWatch, NamesWatch, Unseen, Watch, step

_LOOK_UP, _VERSION = 144, 384
"""Where classes have the function that looks up attributes of objects, and the number of their state."""
_DESCRIBED, _KIND, _AT = 40, 8, 16
"""Where a descriptor of a member has the address of what describes it; what that says of kind and place."""
_REFERENCES = (6, 16)  # the kinds of members that are references


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


@functools.cache
def dictionaries_have_state() -> bool:
    """Whether dictionaries have a number that is another one after each change, those of objects too.

    In Python 3.13 it stays when an attribute is set.
    """
    probe = type("Probe", (), {})()
    variables = vars(probe)
    before = word_at(id(variables) + call_structs.DICT_STATE)
    probe.a = 1
    if word_at(id(variables) + call_structs.DICT_STATE) == before:
        return False
    holder: dict[str, Any] = {"a": 1, "b": 2}
    seen = [word_at(id(holder) + call_structs.DICT_STATE)]
    for name, value in (("a", 3), ("c", 4), ("b", None), ("a", 1)):
        holder[name] = value
        seen.append(word_at(id(holder) + call_structs.DICT_STATE))
    del holder["c"]
    return min(seen) > 0 and word_at(id(holder) + call_structs.DICT_STATE) not in seen and len(set(seen)) == len(seen)


Check = tuple[int, int, int, int]  # kind, where it looks, what for, and what has to be there
_BOUND = (types.FunctionType, staticmethod, classmethod)
"""What a class has of which an attribute is made that depends on nothing else."""
_PYTHONS = (set, deque, OrderedDict, types.MappingProxyType, *BUFFERS)
"""Containers that native code does not look into."""
_PARTIAL = ("func", "args", "keywords")


class Draft:
    """Checks under construction, with what they refer to.

    Methods that return whether they could leave a draft of no use where they could not.
    """

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.entries: dict[int, dict[tuple[int, int], None]] = {}  # names and values, by dictionary
        self.kept: list[Any] = []

    def word(self, holder: Any, at: int, expected: Any) -> None:
        """Check a reference in an object; MISSING stands for none."""
        self.kept.append(expected)
        self.number(holder, at, 0 if expected is MISSING else id(expected))

    def number(self, holder: Any, at: int, expected: int) -> None:
        """Check a word of an object that is a number."""
        self.kept.append(holder)
        self.checks.append((call_structs.CHECK_WORD, id(holder), at, expected))

    def entry(self, holder: dict[Any, Any], name: Any) -> None:
        """Check an entry of a dictionary."""
        expected = holder.get(name, MISSING)
        self.kept += (holder, name, expected)
        entry = id(name), 0 if expected is MISSING else id(expected)
        self.entries.setdefault(id(holder), {}).setdefault(entry, None)

    def item(self, holder: list[Any], k: int) -> None:
        """Check the length of a list, and an item."""
        self.number(holder, HEADER, len(holder))
        self.kept.append(holder[k])
        self.checks.append((call_structs.CHECK_ITEM, id(holder), k, id(holder[k])))

    def contents(self, holder: dict[Any, Any] | list[Any]) -> None:
        """Check all entries of a dictionary, and their order, or all items of a list."""
        kind = call_structs.CHECK_DICT if isinstance(holder, dict) else call_structs.CHECK_LIST
        parts: list[Any] = list(holder.items()) if isinstance(holder, dict) else [(x,) for x in holder]
        words = np.array([[id(x) for x in part] for part in parts], np.int64)
        self.kept += (holder, parts, words)
        self.checks.append((kind, id(holder), len(parts), where(words)))

    def memory(self, place: int, expected: np.ndarray[Any, Any]) -> None:
        """Check bytes of memory, against those of an array."""
        self.kept.append(expected)
        self.checks.append((call_structs.CHECK_BYTES, place, expected.nbytes, where(expected)))

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Check the dtype and the shape of an array."""
        start = id(array)
        self.word(array, ArrayObject.dtype, array.dtype)
        self.memory(start + ArrayObject.ndim, np.array([array.ndim], np.int32))
        self.number(array, ArrayObject.shape, word_at(start + ArrayObject.shape))
        if array.ndim:
            self.memory(word_at(start + ArrayObject.shape), np.array(array.shape, np.int64))

    def state(self, kind: type) -> bool:
        """Check that a class, and those above it, are as they were."""
        at = place_of_version()
        if at == 0 or version_of(kind) == 0:
            return False
        self.number(kind, at, word_at(id(kind) + at))
        return True

    def member(self, holder: Any, name: str) -> bool:
        """Check a slot of an object, or another member of it."""
        at = place_of_member(type(holder), name)
        self.word(holder, at, member_of(holder, name))
        return at != 0

    def partial(self, holder: functools.partial[Any]) -> bool:
        """Check what a partial function is of."""
        return all(self.member(holder, name) for name in _PARTIAL)

    def attributes(self, holder: Any) -> dict[str, Any] | None:
        """Check which dictionary an object has its attributes in; return it, None if there is none."""
        try:
            variables = _attributes(holder, None)
        except AttributeError:
            return None
        if type(variables) is not dict:
            return None
        self.kept += (holder, variables)
        self.checks.append((call_structs.CHECK_ATTRIBUTES, id(holder), 0, id(variables)))
        return variables

    def attribute(self, holder: Any, name: str) -> bool:
        """Check what is looked up as an attribute of an object or of a class."""
        kind = type(holder)
        if type(holder) is np.ndarray and name in ("shape", "ndim", "size", "dtype"):
            self.array(holder)
            return True
        if isinstance(holder, type):
            entry = entry_of_class(holder, name)
            usual = looks_up_alike(kind, type) and entry_of_class(kind, name) is MISSING and entry is not MISSING
            return usual and _is_plain(entry) and self.state(kind) and self.state(holder)
        if not looks_up_alike(kind, object) or not self.state(kind):
            return False
        self.word(holder, TensorObject.type, kind)
        entry = entry_of_class(kind, name)
        if type(entry) is types.MemberDescriptorType:
            return self.member(holder, name)
        variables = self.attributes(holder)
        if variables is not None:
            self.entry(variables, name)
        in_object = variables is not None and name in variables
        return _is_plain(entry, in_object=in_object) and (in_object or entry is not MISSING)

    def parts(self, expected: Any, value: Any) -> bool:
        """Check what a snapshot says of a value beyond its identity."""
        if type(expected) is not tuple:
            return True
        kind, _, parts = expected
        if issubclass(type(value), Tensor):
            self.number(value, TensorObject.slot, word_at(id(value) + TensorObject.slot))
        if isinstance(kind, type):
            inside = zip(parts, opened(value), strict=False)
            return self._container(kind, value) and all(self.parts(part, x) for (_, part), (_, x) in inside)
        if type(value) is np.ndarray and isinstance(parts, tuple) and parts:
            self.array(value)
        return True

    def _container(self, kind: type, value: Any) -> bool:
        if kind is list or kind is dict:
            self.contents(value)
        elif kind is functools.partial:
            return self.partial(value)
        elif kind is not tuple and kind is not frozenset:
            return self._object(kind, value) and self._held(kind, value)
        return True

    def _held(self, kind: Any, value: Any) -> bool:
        if issubclass(kind, (list, dict)) and not issubclass(kind, OrderedDict):
            self.contents(value)
        elif issubclass(kind, np.ndarray):
            self.array(value)
        is_whole = not issubclass(kind, defaultdict) or self.member(value, "default_factory")
        return is_whole and not issubclass(kind, _PYTHONS)

    def _object(self, kind: Any, value: Any) -> bool:
        self.word(value, TensorObject.type, kind)
        variables = variables_of(value)
        if variables is not None:
            if self.attributes(value) is not variables:
                return False
            self.contents(variables)
        names = [name for name in slots_of(kind) if entry_of_class(kind, name) is not MISSING]
        return all(self.member(value, name) for name in names)


def _is_plain(entry: Any, *, in_object: bool = False) -> bool:
    """Whether what a class has by a name is given as it is, as a method, or hidden by what an object has."""
    kind = type(entry)
    if hasattr(kind, "__set__") or hasattr(kind, "__delete__"):
        return kind is NAMED_FIELD
    return in_object or kind in _BOUND or not hasattr(kind, "__get__")


# Watches as checks of words, so that native code sees whether what a function reads from outside is as it was.
#
# A check compares more strictly than a watch does, by identity, and never less so: where one fails, Python looks.

_MOST_BYTES = 1 << 16  # bytes of an array that native code compares; for more, NumPy is faster


class Checks(Draft):
    """The checks of a program's watches, and the watches of which there are none."""

    def __init__(self, watches: Iterable[Watch], contents: Iterable[ArrayContent]) -> None:
        super().__init__()
        self._rest: list[Watch | ArrayContent] = []
        self.holds = True  # whether all was as it was when the checks were made
        for watch in watches:
            if not isinstance(watch, Unseen):
                self._add(watch, _checks_of(watch))
        for content in contents:
            if not content.trusted:
                self._add(content, _checks_of_content(content))
        for holder, entries in self.entries.items():
            words = np.array([len(entries), *itertools.chain(*entries)], np.int64)
            self.kept.append(words)
            state = word_at(holder + call_structs.DICT_STATE) if dictionaries_have_state() else -1
            self.checks.append((call_structs.CHECK_NAMES, holder, where(words), state))

    def _add(self, watch: Watch | ArrayContent, draft: Draft | None) -> None:
        """Take in the checks of a watch; one without, or with one that does not hold, remains Python's."""
        self.holds = self.holds and not watch.changed()
        if draft is None:
            self._rest.append(watch)
        else:
            known = set(self.checks)
            self.checks += [check for check in draft.checks if check not in known]
            self.kept += draft.kept
            for holder, entries in draft.entries.items():
                self.entries.setdefault(holder, {}).update(entries)

    def add_references(self, pairs: Iterable[tuple[Tensor, Any]]) -> None:
        """Check that tensors still have their values."""
        for x, value in pairs:
            self.word(x, TensorObject.value, value)
            self.holds = self.holds and x._value is value

    def words(self, rest: Any, **fields: int) -> np.ndarray[Any, Any]:
        """Return the words of a plan with these fields; ``rest``, which has to be kept, is :attr:`rest`."""
        fields |= {"checks": len(self.checks), "rest": 0 if rest is None else id(rest), "true": id(True)}
        return np.array([*row(CallPlan, **fields), *itertools.chain(*self.checks)], np.int64)

    @property
    def rest(self) -> Callable[[], bool] | None:
        """What tells whether the rest is as it was; None if there is no rest."""
        return functools.partial(_are_current, tuple(self._rest)) if self._rest else None


def native_look(watches: Iterable[Watch], contents: Iterable[ArrayContent]) -> tuple[Callable[[], int], Any] | None:
    """Return native code that tells whether all is as it was, and what is kept for it; None where it is not now."""
    checks = Checks(watches, contents)
    rest = checks.rest
    held = checks.words(rest)
    return (bound("machine_code.direct_calls_native", "current", held), (checks, rest, held)) if checks.holds else None


def _are_current(watches: Sequence[Watch | ArrayContent]) -> bool:
    return not any(watch.changed() for watch in watches)


def _checks_of(watch: Watch) -> Draft | None:
    draft = Draft()
    if type(watch) is CodeWatch:
        place = places_in_functions()[0]
        draft.word(watch.function, place, watch.expected)
        return draft if place else None
    if type(watch) is NamesWatch:
        for name in watch.expected:
            draft.entry(watch.holder, name)
        return draft
    if type(watch) is ClassWatch:
        variables, (_, _, parts) = entries_of(watch.kind), watch.expected
        seen = not watch.changed() and draft.state(watch.kind)
        return draft if seen and all(draft.parts(x, variables.get(name)) for name, x in parts) else None
    if type(watch) is not Watch:
        return None
    value = watch.read()
    if not unchanged(watch.expected, value) or not _located(draft, watch.read):
        return None
    return draft if draft.parts(watch.expected, value) else None


def _located(draft: Draft, read: functools.partial[Any]) -> bool:
    """Check that a value is where it was read; False where native code cannot."""
    holder, *more = read.args or (None,)
    if read.func is watched.content_of:
        draft.word(holder, HEADER, read())
    elif read.func is watched.defaults_of:
        _, *places = places_in_functions()
        for at, defaults in zip(places, (holder.__kwdefaults__, holder.__defaults__), strict=True):
            draft.word(holder, at, MISSING if defaults is None else defaults)
        return 0 not in places
    elif read.func is watched.read_along:
        return _located(draft, holder) and _stepped(draft, holder(), more[0])
    elif read.func is not watched.itself:
        if type(holder) is not dict:
            return False
        draft.entry(holder, more[0])
    return True


def _stepped(draft: Draft, value: Any, steps: Sequence[tuple[str, Any, Any]]) -> bool:
    for kind, key, _ in steps:
        if kind == "attribute":
            if type(value) is types.ModuleType and key in vars(value):
                draft.entry(vars(value), key)
            elif not draft.attribute(value, key):
                return False
        elif type(value) is dict and type(key) is str:
            draft.entry(value, key)
        elif type(value) is list and type(key) is int:
            draft.item(value, key % len(value))
        elif type(value) is not tuple:
            return False
        value = step(value, kind, key)
    return True


def _checks_of_content(content: ArrayContent) -> Draft | None:
    array, held = content.array, content.held
    alike = array.flags.c_contiguous and held.flags.c_contiguous and array.nbytes == held.nbytes
    if type(array) is not np.ndarray or not alike or array.nbytes > _MOST_BYTES:
        return None
    draft = Draft()
    draft.array(array)
    draft.number(array, ArrayObject.data, where(array))
    draft.memory(where(array), held)
    return draft
