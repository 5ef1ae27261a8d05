"""What objects from outside held."""

from __future__ import annotations

import _io
import array
import builtins
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import itertools
import logging
import operator
import random
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

import numpy as np

from kernels import PACKAGES
from kernels.foundation.specs import word_at
from tape.tensors.bytecode import package_of
from tape.tensors.pytrees import METHODS
from tape.tensors.tensor import Array, Tensor
from tape.watching import frame_events
from tape.watching.frame_events import GENERATORS, MISSING, bases_of, is_decided, member_of, module_of, read

SKIPPED = (*PACKAGES, "numpy", "scipy", "math", "builtins", "functools", "itertools", "operator", "typing")
"""Packages whose functions are not looked into."""
_LOGS = ("logging", "warnings")  # nor of these, which show what they are given
_ABSTRACT = frozenset(("abc", "typing", "collections.abc"))  # modules of classes that read no attributes
_HIDDEN = (METHODS, "_mmap", "__signature__")  # what the house, NumPy or ``help`` notes in objects
_LEVELS = ("level", "disabled", "parent", "manager", "_disable")
"""Attributes of loggers that decide what they log."""
DEEPEST, MOST, PLAIN_IN_ONE = 64, 1 << 16, 16  # numbers and texts in a container count for one object
"""How deep containers and objects stand in one another, and how many parts they have, that a function reads."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))
_PLAIN = frozenset(map(id, PLAIN))
_EXACT = (bool, int, str, bytes, type(None))
"""Those that are as they were if they are equal: not floats, for nan and -0.0."""
_OBJECT, _ARRAY, _METHOD, _TENSOR = object(), object(), object(), object()
"""In snapshots: what is compared by identity; arrays, with contents that are looked at apart; bound functions."""
GETTERS = (operator.attrgetter, operator.methodcaller)
_APART = (type, types.ModuleType, types.FunctionType, types.MethodType, functools.partial, *GETTERS)
"""What leads to code, or to names, which are followed."""
_WHOLE = (types.ModuleType, type, PurePath, *GENERATORS)
_BUILTIN_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
_OURS = (*PACKAGES, "numba", "llvmlite")  # packages of whose objects the attributes are not looked at
_BY_NAME = frozenset(("getattr", "setattr", "hasattr", "delattr", "vars", "dir", "attrgetter", "methodcaller"))
_BY_NAME |= {"__dict__", "__getattribute__", "__reduce_ex__"}
"""What attributes of any name are read by."""
_INTEGERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FEW = 1 << 17  # bytes up to which copies are compared, which is faster
_BLOCK = 1 << 15
_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
BUFFERS = (bytearray, memoryview, array.array, ctypes.Array, ctypes.Structure, ctypes._SimpleCData, np.void)
_REBUILT = frozenset(map(id, (list, tuple, dict, set, frozenset)))
"""Containers that are as they were if another one holds the same."""
_CONTAINERS = _REBUILT | set(map(id, (*BUFFERS, deque, OrderedDict, defaultdict, functools.partial)))
_OPENED = (*_SEQUENCES, *BUFFERS, dict, types.MappingProxyType, types.SimpleNamespace, BaseException, np.ndarray)
_OPENED += (*_APART, Tensor, *GENERATORS)
"""Classes that Python's own code does not make of whose objects all is seen, besides ``object``."""
_FIXED = """
    int bool float complex str bytes NoneType ellipsis NotImplementedType range slice code builtin_function_or_method
    builtin_method method_descriptor wrapper_descriptor method-wrapper classmethod_descriptor getset_descriptor
    member_descriptor property staticmethod classmethod cell types.GenericAlias types.UnionType typing.Union
    typing.TypeVar typing.ParamSpec re.Pattern decimal.Decimal datetime.date datetime.time datetime.datetime
    datetime.timedelta datetime.timezone datetime.tzinfo zoneinfo.ZoneInfo _struct.Struct operator.attrgetter
    operator.itemgetter operator.methodcaller functools._lru_cache_wrapper collections._tuplegetter
    _collections._tuplegetter _thread.lock _thread.RLock _ctypes.CFuncPtr _ctypes.CField ctypes.CField
    _abc._abc_data _dispatcher.Dispatcher
"""
"""Such of which nothing changes that code reads."""


class ArrayContent:
    """What an array from outside held: NumPy may have read it, where no recorder sees that.

    ``trusted`` once operations of tape read it by reference, and each of its elements has changed without another
    effect: then nothing else is taken to read it.
    """

    __slots__ = ("array", "held", "moved", "trusted")

    def __init__(self, array: Array) -> None:
        self.array, self.held, self.trusted = array, array.copy(order="K"), False
        self.moved = np.zeros(array.shape, np.bool_)

    def changed(self) -> bool:
        """Whether the array holds something else now, and that matters."""
        return not self.trusted and not same_memory(self.array, self.held)

    def verify(self, *, live: bool) -> None:
        """Take in that a call with what the array holds now did the same; ``live``: tape reads it by reference."""
        self.moved |= self.array != self.held
        self.held = self.array.copy(order="K")
        self.trusted = live and bool(self.moved.all())


def same_memory(a: Array, b: Array) -> bool:
    """Whether two arrays have the same bits."""
    if a.nbytes < _FEW or not (a.flags.c_contiguous and b.flags.c_contiguous) or a.itemsize not in _INTEGERS:
        return a.tobytes() == b.tobytes()
    bits = _INTEGERS[a.itemsize]
    one, other = a.view(bits).reshape(-1), b.view(bits).reshape(-1)
    return all(
        bool((one[at : at + _BLOCK] == other[at : at + _BLOCK]).all()) for at in range(0, len(one), _BLOCK)
    )  # by parts that stay in the cache


class Same:
    """An object as part of a key or of what is compared: equal to itself alone, and kept alive."""

    __slots__ = ("object",)

    def __init__(self, thing: Any) -> None:
        self.object = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object)


def _shown(key: Any) -> str:
    return repr(key) if is_one_of(type(key), _PLAIN) else f"a {name_of(type(key))}"


def contents_of(snapshots: Iterable[Any], known: Iterable[ArrayContent] = ()) -> list[ArrayContent]:
    """Return the contents of all arrays in snapshots, those in containers and objects, too; ``known`` ones as such."""
    arrays: dict[int, Array] = {}
    for kind, value in itertools.chain(*map(_entries, snapshots)):
        if kind is _ARRAY:
            arrays[id(value)] = value
        elif type(value) is kind and issubclass(kind, np.ndarray):
            arrays[id(value)] = np.ndarray.view(value, np.ndarray)
    before = {id(content.array): content for content in known}
    return [before.get(id(array)) or ArrayContent(array) for array in arrays.values()]


def found_in(expected: Any, kinds: type | tuple[type, ...]) -> list[Any]:
    """Return the tensors, or other objects that are compared by identity, of a snapshot, if of some classes."""
    held = [x for kind, x in _entries(expected) if kind is _OBJECT or kind is _TENSOR]
    return [x for x in held if issubclass(type(x), kinds)]


def _entries(expected: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the kinds and values of a snapshot, of the parts of containers and objects too, but plain values."""
    if type(expected) is tuple:
        kind, value, parts = expected
        yield kind, value
        for _, part in () if type(kind) is object else parts:
            yield from _entries(part)


class Snapshots:
    """Takes what later values are compared with: contents of containers, and of objects what code that is known names.

    No code of a user's runs.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()  # the attributes that code names
        self.met: list[Any] = []  # functions, classes and modules, which are looked at apart
        self.unseen: list[str] = []  # what nobody can compare
        self.reads_any = False  # whether code reads attributes by names that are not written in it
        self._closed: defaultdict[Any, list[tuple[list[Any], int, str]]] = defaultdict(list)
        """By name, the parts of objects that no known code names."""
        self._known: dict[int, Any] = {id(vars(builtins)): vars(builtins)}  # what is looked into, once
        self._count = 0

    def take(self, value: Any, name: str, depth: int = 0) -> Any:
        """Return what a later value is compared with; ``name`` is what it is called."""
        kind = type(value)
        if is_plain(value):
            return value
        if issubclass(kind, Tensor):
            return _TENSOR, value, value._slot is None
        if kind is np.ndarray and not value.dtype.hasobject:
            return _ARRAY, value, (value.shape, value.dtype)
        if issubclass(kind, _APART) or module_of(kind) == "decimal" or frame_events.wrapped_by(value) is not MISSING:
            self.met.append(value)
        if kind is types.MethodType:
            return _METHOD, value.__func__, value.__self__
        if is_opaque(value) or reads_state(value):
            self.unseen.append(f"{name}, a {name_of(kind)}")
        whole = issubclass(kind, _WHOLE) or package_of(module_of(kind)) in _OURS or is_known(value)
        whole = whole and not (is_method(value) or is_one_of(kind, _CONTAINERS))
        if whole or id(value) in self._known:
            return _OBJECT, value, ()
        self._known[id(value)] = value
        held = self._parts(value, name, depth + 1)
        if is_one_of(kind, _REBUILT):  # in another place another one may hold the same
            del self._known[id(value)]
        return (_OBJECT, value, ()) if held is None else (kind, value, held)

    def _parts(self, value: Any, name: str, depth: int) -> list[Any] | None:
        inner, attributes = held_in(value), attributes_of(value)
        are_plain = [is_plain(x) for _, x in inner]
        plain = sum(are_plain)
        self._count += len(inner) - plain + plain // PLAIN_IN_ONE + len(attributes)
        if self._count > MOST or depth > DEEPEST:
            self.unseen.append(f"{name}, which leads to more than {MOST:,} objects, or {DEEPEST} deep,")
            return None
        held = [
            (key, x if as_it_stands else self.take(x, f"{name}[{_shown(key)}]", depth))
            for (key, x), as_it_stands in zip(inner, are_plain, strict=True)
        ]
        modules = {module_of(x) for x in bases_of(type(value))[:-1]} - _ABSTRACT
        stays = any(map(is_decided, modules))  # what its code reads is not known
        return self.attributes(attributes, name, held, depth, named=stays)

    def attributes(
        self, attributes: Iterable[tuple[str, Any]], name: str, held: list[Any], depth: int = 0, *, named: bool = False
    ) -> list[Any]:
        """Take attributes, and look into those that code names, or ``named`` all; the others wait until code does."""
        for key, x in attributes:
            if is_plain(x) or named or self.reads_any or key in self.names:
                held.append((key, self.take(x, f"{name}.{key}", depth)))
            else:
                self._closed[key].append((held, len(held), name))
                held.append((key, (_OBJECT, x, ())))
        return held

    def name(self, names: Iterable[str]) -> None:
        """Take in that code names attributes: what they lead to is looked into."""
        self.names.update(names)
        self.reads_any = self.reads_any or not _BY_NAME.isdisjoint(self.names)
        for key in [key for key in list(self._closed) if self.reads_any or key in self.names]:
            for held, i, name in self._closed.pop(key, ()):
                held[i] = key, self.take(held[i][1][1], f"{name}.{key}")


def is_one_of(kind: type, numbers: frozenset[int]) -> bool:
    """Whether a class is one of those with these numbers; asked for in this way, no metaclass answers."""
    return id(kind) in numbers


def as_it_is(value: Any) -> Any:
    """Return what is compared by identity alone."""
    return value if is_plain(value) else (_OBJECT, value, ())


def is_plain(value: Any) -> bool:
    """Whether a value does not change, and is compared as it is."""
    return is_one_of(type(value), _PLAIN) or value is MISSING or is_scalar(type(value))


def is_scalar(kind: type) -> bool:
    """Whether objects of a class are numbers of NumPy's, which do not change."""
    return issubclass(kind, np.generic) and kind is not np.void and is_decided(module_of(kind))


def opened(value: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a container and the attributes of an object, by keys, in order."""
    return [*held_in(value), *attributes_of(value)]


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes that an object has, by name; not those that are computed."""
    kind = type(value)
    if is_one_of(kind, _CONTAINERS) or issubclass(kind, BUFFERS):
        return []
    variables = [both for both in (frame_events.variables_of(value) or {}).items() if both[0] not in _HIDDEN]
    if issubclass(kind, logging.Logger | logging.Manager):  # not its handlers, nor what it remembers
        return [both for both in variables if both[0] in _LEVELS]
    return [*variables, *[(name, held) for name in slots_of(kind) if (held := member_of(value, name)) is not MISSING]]


_parts_of = operator.attrgetter("func", "args", "keywords")


def held_in(value: Any) -> list[tuple[Any, Any]]:
    """Return what a container holds, by keys, in order."""
    kind = type(value)
    sequence = next((x for x in _SEQUENCES if issubclass(kind, x)), None)
    if sequence is not None:
        parts: list[tuple[Any, Any]] = list(enumerate(sequence.__iter__(value)))
        return [*parts, ("maxlen", deque.maxlen.__get__(value))] if sequence is deque else parts
    if issubclass(kind, dict):
        parts = list(dict.items(value))
        if issubclass(kind, OrderedDict):
            parts += [("order", key) for key in OrderedDict.__iter__(value)]
        factory = member_of(value, "default_factory") if issubclass(kind, defaultdict) else MISSING
        return parts if factory is MISSING else [*parts, ("default_factory", factory)]
    if kind is functools.partial or issubclass(kind, types.MappingProxyType) or is_method(value):
        return list(enumerate(_parts_of(value) if kind is functools.partial else gc.get_referents(value)))
    if issubclass(kind, BUFFERS):
        with contextlib.suppress(ValueError):  # a view that was released
            return [("bytes", np.void.tobytes(value) if kind is np.void else memoryview(value).tobytes())]
    if issubclass(kind, np.ndarray):
        layout = repr((np.ndarray.shape.__get__(value), np.ndarray.strides.__get__(value)))
        items = np.ndarray.tolist(np.ndarray.ravel(value)) if np.ndarray.dtype.__get__(value).hasobject else ()
        return [("layout", layout), *enumerate(items)]
    return []


CACHED = type(functools.lru_cache(abs))
_LINK = next(x for x in gc.get_referents(functools.lru_cache(abs)) if getattr(x, "__name__", "") == "_lru_list_elem")
"""The class of functions with a cache; what stands there behind each key and result, if their number is bounded."""


def cached_by(function: Any) -> list[tuple[Any, Any]]:
    """Return the keys and results that a function with a cache, of class ``CACHED``, holds."""
    held = gc.get_referents(function)[1:]
    links = next(k for k in range(0, len(held), 3) if held[k + 2] is not _LINK)
    return list(zip(held[:links:3], held[1:links:3], strict=True)) or list(dict.items(held[links]))


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that a class and its bases declare."""
    slots = [frame_events.dictionary_of(x).get("__slots__", ()) for x in bases_of(kind)]
    named = [(names,) if type(names) is str else names for names in slots]
    return tuple([name for names in named if type(names) in (list, tuple, dict) for name in names])


def classes_of(kind: type) -> list[type]:
    """Return a class and its bases, as far as they can be changed, and are not taken to stay as they are."""
    stay = (*_OURS, "numpy", "scipy")
    return [x for x in bases_of(kind) if is_made(x) and package_of(module_of(x)) not in stay]


def classes_in(expected: Any) -> dict[int, type]:
    """Return the classes of the objects in a snapshot, and those that are in it themselves, by their numbers."""
    values = [value for kind, value in _entries(expected) if kind is not _METHOD]
    kinds = [x for value in values for x in (type(value), *([value] if issubclass(type(value), type) else ()))]
    return {id(x): x for kind in kinds for each in (kind, type(kind)) for x in classes_of(each)}


_INCIDENTAL = """
    __dict__ __weakref__ __doc__ __module__ __qualname__ __annotations__ __annotate__ __annotate_func__
    __annotations_cache__ __slotnames__ __firstlineno__ __static_attributes__ __parameters__ __orig_bases__ _abc_impl
    __abstractmethods__ __subclasshook__
"""
"""What Python notes in classes."""


def entries_of(kind: type) -> dict[str, Any]:
    """Return what a class has, by name."""
    incidental = _INCIDENTAL.split()
    return {name: x for name, x in frame_events.dictionary_of(kind).items() if name not in incidental}


def function_of(entry: Any) -> types.FunctionType | None:
    """Return the function of which an entry of a class makes methods; None if it is nothing of that kind."""
    kind = type(entry)
    inner = entry.fget if kind is property else entry
    if kind is classmethod or kind is staticmethod:
        inner = entry.__func__
    return inner if type(inner) is types.FunctionType else None


def item_in(expected: Any, key: Any) -> Any:
    """Return what a snapshot has of an item of a container; MISSING where that has to be watched itself."""
    if type(expected) is not tuple or expected[0] not in (list, tuple, dict):
        return MISSING
    part = next((part for name, part in expected[2] if is_same_key(name, key)), MISSING)
    deep = type(part) is tuple and part[0] is _OBJECT and is_one_of(type(part[1]), _CONTAINERS)
    return MISSING if deep else part


def is_method(value: Any) -> bool:
    """Whether a value is a method that is not written in Python, of an object that is no module or class."""
    return issubclass(type(value), _BUILTIN_METHODS) and not issubclass(
        type(value.__self__), (type, types.ModuleType, type(None))
    )


def is_known(value: Any) -> bool:
    """Whether something is part of a package that is taken to stay as it is."""
    kind = type(value)
    if issubclass(kind, type):
        return is_decided(module_of(value))
    if is_made(kind):  # an object; some are part of their package
        holder = sys.modules.get(module_of(kind), types)
        return package_of(module_of(kind)) in SKIPPED and any(x is value for x in vars(holder).values())
    if issubclass(kind, (types.BuiltinFunctionType, types.BuiltinMethodType, np.ufunc)):
        return True
    module = value.__module__ if kind is types.FunctionType else read(value, "__module__") if callable(value) else None
    if module == "builtins":
        module = module_of(kind)
    return type(module) is str and package_of(module) in (*SKIPPED, *_LOGS)


def is_same_key(key: Any, other: Any) -> bool:
    """Whether keys of dictionaries are the same: objects, plain values, or tuples of them. Tensors are objects."""
    if key is other:
        return True
    kind = type(key)
    if kind is not type(other):
        return False
    if kind is tuple:
        return len(key) == len(other) and all(map(is_same_key, key, other))
    return is_one_of(kind, _PLAIN) and bool(key == other)


def unchanged(expected: Any, value: Any) -> bool:
    """Whether a value is what a snapshot was taken of. It runs at each call, and no code of a user's."""
    if type(expected) is not tuple:
        kind = type(expected)
        equal = type(value) is kind and (value == expected if kind in _EXACT else repr(value) == repr(expected))
        return value is expected or bool(equal)
    kind, before, parts = expected
    if type(kind) is object:
        bound = type(value) is types.MethodType and value.__func__ is before and value.__self__ is parts
        same = value is before and (kind is not _ARRAY or (value.shape, value.dtype) == parts)
        same = same and (kind is not _TENSOR or (value._slot is None) == parts)
        return bound if kind is _METHOD else same
    if type(value) is not kind or (value is not before and not is_one_of(kind, _REBUILT)):
        return False
    now: Any = value.items() if kind is dict else opened(value)
    if len(now) != len(parts):
        return False
    for (key, part), (other, x) in zip(parts, now):  # noqa: B905 (as many)
        if not (key is other or is_same_key(key, other)) or not (x is part or unchanged(part, x)):
            return False
    return True


# What nobody can compare: values whose state is not seen without changing it, and functions that read other state.

FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO, io.StringIO, io.BytesIO)
_WRITES = frozenset(("write", "writelines", "flush", "close", "closed", "fileno", "isatty", "name"))
"""Attributes of files that read nothing."""
_STATEFUL = frame_events.CLOCKS | {"sys", "_io", "io"}
_STATELESS = frozenset(("sleep", "fspath", "intern", "getsizeof", "exc_info", "exception", "allocate_lock", "getpid"))
"""Modules with functions that read what is in no object, and those of their functions that read nothing."""
_NOW = ("now", "today", "utcnow")
_READING: tuple[Any, ...] = (importlib.import_module, np.load, np.loadtxt, np.genfromtxt, np.memmap)
_READING += (np.geterr, np.get_printoptions)
"""Functions and classes that are not looked into, and read such."""


class _Written:
    """A class as Python's code makes them."""


def _destroyed_by(kind: type) -> int:
    return word_at(id(kind) + object.__basicsize__ + 32)  # tp_dealloc


_DESTROYED = _destroyed_by(_Written)
_IMMUTABLE = 1 << 8  # the flag of classes that are no one's to change


def is_made(kind: type) -> bool:
    """Whether Python's code made a class."""
    return _destroyed_by(kind) == _DESTROYED and not frame_events.flags_of(kind) & _IMMUTABLE


def _base_of(kind: type) -> type:
    """Return which of the classes that an object is of is none that Python's code made."""
    return next(x for x in bases_of(kind) if not is_made(x))


def is_opaque(value: Any, follows: tuple[tuple[str, Any], ...] = ()) -> bool:
    """Whether code that reads a value may find something else at each call; ``follows``: what it reads of it next."""
    kind = type(value)
    if issubclass(kind, _io._IOBase):
        reads = any(kind is x for x in FILES) and not (follows and follows[0][1] in _WRITES)
        return reads and not value.closed and bool(value.readable())
    base = _base_of(kind)
    if base is object or issubclass(kind, _OPENED):
        return issubclass(kind, random.SystemRandom)
    module = package_of(module_of(base))
    if module in (*_OURS, "numpy", "scipy", "jax", "jaxlib"):
        return frame_events.entry_of_class(base, "__next__") is not MISSING
    name = name_of(base) if module == "builtins" else f"{module}.{name_of(base)}"
    fixed = name in _FIXED.split() or name.endswith("cython_function_or_method")
    return not fixed or bool(follows and follows[0][1] == "locked")


def reads_state(function: Any) -> bool:
    """Whether a function that is not written in Python, or looks things up by name, reads what is in no object."""
    if not issubclass(type(function), types.BuiltinFunctionType):
        return any(function is x for x in _READING)
    holder, name = function.__self__, function.__name__
    if issubclass(type(holder), type):
        return name == "__subclasses__" or (name in _NOW and module_of(holder) == "datetime")
    module = holder.__name__ if type(holder) is types.ModuleType else ""
    return (module in _STATEFUL and name not in _STATELESS) or (module == "builtins" and name in frame_events.READERS)


def name_of(kind: type) -> str:
    """Return the name of a class, past what its metaclass answers."""
    return str(vars(type)["__qualname__"].__get__(kind))
