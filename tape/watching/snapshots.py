"""What objects from outside held, and numbers that were compared."""

from __future__ import annotations

import _io
import array
import builtins
import contextlib
import ctypes
import functools
import gc
import io
import itertools
import mmap
import operator
import random
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from kernels import PACKAGES
from tape.tensors.bytecode import FLIPPED, CodeStep, reads_locals, steps_of, touches_locals
from tape.tensors.pytrees import METHODS
from tape.tensors.tensor import Array, Tensor
from tape.watching.frame_events import (
    GENERATORS,
    MISSING,
    bases_of,
    dictionary_of,
    entry_of_class,
    is_decided,
    member_of,
    module_of,
    of_code,
    plain_attribute,
    read,
    variables_of,
)

SKIPPED = (*PACKAGES, "numpy", "scipy", "math", "builtins", "functools", "itertools", "operator", "typing")
"""Packages whose functions are not looked into."""
DEEPEST = 4
MOST = 256  # parts of a container or object that are looked at
PLAIN = (bool, int, float, complex, str, bytes, type(None))
_PLAIN = frozenset(map(id, PLAIN))
_EXACT = (bool, int, str, bytes, type(None))
"""Those that are as they were if they are equal: not floats, for nan and -0.0."""
_OBJECT, _ARRAY, _METHOD = object(), object(), object()
"""In snapshots: what is compared by identity; arrays, with contents that are looked at apart; bound functions."""
_WHOLE = (Tensor, types.ModuleType, types.FunctionType, type, *GENERATORS)
_OURS = (*PACKAGES, "numba", "llvmlite")  # packages of whose objects the attributes are not looked at
_INTEGERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FEW = 1 << 17  # bytes up to which copies are compared, which is faster
_BLOCK = 1 << 15
_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
BUFFERS = (bytearray, memoryview, array.array, ctypes.Array, ctypes.Structure, ctypes._SimpleCData)
CONTAINERS = frozenset(map(id, (*_SEQUENCES, *BUFFERS, dict, OrderedDict, defaultdict, functools.partial)))
_REBUILT = frozenset(map(id, (list, tuple, dict, set, frozenset)))
"""Containers that are as they were if another one holds the same."""


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


def contents_of(snapshots: Iterable[Any]) -> list[ArrayContent]:
    """Return the contents of all arrays in snapshots, those in containers and objects, too."""
    arrays: dict[int, Array] = {}
    for kind, value in itertools.chain(*map(_entries, snapshots)):
        if kind is _ARRAY:
            arrays[id(value)] = value
        elif type(value) is kind and issubclass(kind, np.ndarray):
            arrays[id(value)] = np.ndarray.view(value, np.ndarray)
    return [ArrayContent(array) for array in arrays.values()]


def found_in(expected: Any, kinds: type | tuple[type, ...]) -> list[Any]:
    """Return the tensors, or other objects of classes that are compared by identity, of a snapshot."""
    return [value for kind, value in _entries(expected) if kind is _OBJECT and issubclass(type(value), kinds)]


def _entries(expected: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the kinds and values of a snapshot, of the parts of containers and objects too, but plain values."""
    if type(expected) is tuple:
        kind, value, parts = expected
        yield kind, value
        for _, part in () if type(kind) is object else parts:
            yield from _entries(part)


def snapshot(value: Any, depth: int = 0) -> Any:
    """Return what a later value is compared with: contents of plain values, containers and objects with attributes.

    Others, and what is nested deeper or holds very many, are compared by identity. No code of a user's runs.
    """
    kind = type(value)
    if is_one_of(kind, _PLAIN) or value is MISSING or is_scalar(kind):
        return value
    if kind is np.ndarray:
        return _ARRAY, value, (value.shape, value.dtype)
    if kind is types.MethodType:
        return _METHOD, value.__func__, value.__self__
    whole = issubclass(kind, _WHOLE) or module_of(kind).partition(".")[0] in _OURS or is_known(value)
    parts = opened(value) if depth < DEEPEST and (is_one_of(kind, CONTAINERS) or not whole) else None
    if parts is None or len(parts) > MOST:
        return _OBJECT, value, ()
    return kind, value, [(key, snapshot(part, depth + 1)) for key, part in parts]


def is_one_of(kind: type, numbers: frozenset[int]) -> bool:
    """Whether a class is one of those with these numbers; asked for in this way, no metaclass answers."""
    return id(kind) in numbers


def is_scalar(kind: type) -> bool:
    """Whether objects of a class are numbers of NumPy's, which do not change."""
    return issubclass(kind, np.generic) and kind is not np.void and is_decided(module_of(kind))


def opened(value: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a container and the attributes of an object, by keys, in order."""
    kind = type(value)
    if kind is dict:
        return list(value.items())
    if kind is list or kind is tuple:
        return list(enumerate(value))
    if kind is functools.partial:
        return list(enumerate((value.func, value.args, value.keywords)))
    variables = [both for both in (variables_of(value) or {}).items() if both[0] != METHODS]
    slots = [(name, held) for name in slots_of(kind) if (held := member_of(value, name)) is not MISSING]
    return [*_held(kind, value), *variables, *slots]


def _held(kind: type, value: Any) -> list[tuple[Any, Any]]:
    sequence = next((x for x in _SEQUENCES if issubclass(kind, x)), None)
    if sequence is not None:
        parts: list[tuple[Any, Any]] = list(enumerate(sequence.__iter__(value)))
        return [*parts, ("maxlen", deque.maxlen.__get__(value))] if sequence is deque else parts
    if issubclass(kind, dict):
        parts = list(dict.items(value))
        if issubclass(kind, OrderedDict):
            parts += [("order", key) for key in OrderedDict.__iter__(value)]
        if issubclass(kind, defaultdict):
            parts.append(("default_factory", member_of(value, "default_factory")))
        return parts
    if issubclass(kind, types.MappingProxyType):
        return list(enumerate(gc.get_referents(value)))
    if issubclass(kind, BUFFERS):
        with contextlib.suppress(ValueError):  # a view that was released
            return [("bytes", memoryview(value).tobytes())]
    if issubclass(kind, np.ndarray):
        return [("layout", repr((np.ndarray.shape.__get__(value), np.ndarray.strides.__get__(value))))]
    return []


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that a class and its bases declare."""
    slots = [dictionary_of(x).get("__slots__", ()) for x in classes_of(kind)]
    named = [(names,) if type(names) is str else names for names in slots]
    return tuple([name for names in named if type(names) in (list, tuple, dict) for name in names])


def classes_of(kind: type) -> list[type]:
    """Return a class and its bases, but those of packages that are taken to stay as they are."""
    return [x for x in bases_of(kind) if not is_decided(module_of(x))]


def classes_in(expected: Any) -> dict[int, type]:
    """Return the classes of the objects in a snapshot, by their numbers."""
    kinds = [kind for kind, _ in _entries(expected) if isinstance(kind, type)]
    return {id(x): x for kind in kinds for x in classes_of(kind)}


def parts_of(kind: type) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the data of a class, and its functions and other descriptors, with their names."""
    named = [
        (name, x)
        for name, x in dictionary_of(kind).items()
        if not name.startswith(("__", "_abc_")) or name == "__call__"
    ]
    described = [entry_of_class(type(x), "__get__") is not MISSING for _, x in named]
    data = [both for both, by_code in zip(named, described, strict=True) if not by_code]
    return data, [both for both, by_code in zip(named, described, strict=True) if by_code]


def item_in(expected: Any, key: Any) -> Any:
    """Return what a snapshot has of an item of a container; MISSING where that has to be watched itself."""
    if type(expected) is not tuple or expected[0] not in (list, tuple, dict):
        return MISSING
    part = next((part for name, part in expected[2] if is_same_key(name, key)), MISSING)
    deep = type(part) is tuple and part[0] is _OBJECT and is_one_of(type(part[1]), CONTAINERS)
    return MISSING if deep else part


def is_known(value: Any) -> bool:
    """Whether something is part of a package that is taken to stay as it is."""
    kind = type(value)
    if issubclass(kind, type):
        return is_decided(module_of(value))
    if issubclass(kind, (types.BuiltinFunctionType, types.BuiltinMethodType, np.ufunc)):
        return True
    module = value.__module__ if kind is types.FunctionType else read(value, "__module__") if callable(value) else None
    if module == "builtins":
        module = module_of(kind)
    return type(module) is str and module.partition(".")[0] in SKIPPED


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


# Values whose state nobody sees without changing it: iterators and files, and sources of true randomness.

_OPAQUE = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, mmap.mmap, random.SystemRandom)
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO, io.StringIO, io.BytesIO)
_WRITES = frozenset(("write", "writelines", "flush", "close", "closed", "fileno", "isatty", "name"))
"""Attributes of files that read nothing."""


def is_opaque(value: Any, follows: tuple[tuple[str, Any], ...] = ()) -> bool:
    """Whether code that reads a value may find something else at each call; ``follows``: what it reads of it next."""
    kind = type(value)
    if issubclass(kind, _io._IOBase):
        reads = any(kind is x for x in _FILES) and not (follows and follows[0][1] in _WRITES)
        return reads and not value.closed and bool(value.readable())
    advance = entry_of_class(kind, "__next__")
    return issubclass(kind, _OPAQUE) or (advance is not MISSING and type(advance) is types.WrapperDescriptorType)


# Numbers of tensors that code just compares: ``if error.item() < 1e-6``. What decides is the comparison alone.
#
# The bytecode tells what becomes of the number that ``.item()`` or ``float()`` gives: a comparison takes it from the
# stack, with something plain on its other side, and nothing else has it; or a local does that comparisons alone read.

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
"""Comparisons, as they are written."""
_NOTHING = frozenset(("NOP", "RESUME", "KW_NAMES"))
"""Instructions that do nothing to the stack, if a call takes what it is prepared of."""
_ITEM, _FLOAT, _ABSOLUTE = "item", float.__name__, abs.__name__
_PLAIN_NUMBERS = frozenset(("constant", "local", "cell", "global", "attribute"))
"""What is compared with, where it is read right behind the number."""


class Origin(NamedTuple):
    """Where a value is from: a constant, a variable, an attribute, a call, or the absolute value of what that gives."""

    kind: str
    name: Any = None
    of: Any = None


class _Comparison(NamedTuple):
    """What stands on the left of an operator is compared with another value."""

    operator: str
    other: Origin


class _Number(NamedTuple):
    """What becomes of a number: ``comparisons``, of its absolute value if ``absolute``; ``how``: item or float."""

    how: str
    absolute: bool
    comparisons: tuple[_Comparison, ...]


class Compared(NamedTuple):
    """A number is on the left of an operator, and another one on its right; ``absolute``: without its sign."""

    operator: str
    other: float
    absolute: bool


_Comparisons = tuple[dict[int, _Number], dict[str, tuple[_Comparison, ...]]]
"""Of one code object: numbers, by the offsets at which a frame may be while they are asked for; and locals."""


def compared_in(frame: FrameType, how: str) -> list[Compared] | None:
    """Return with what a number is compared that ``item`` or ``float`` gives a frame; None if more becomes of it."""
    number = _comparisons(frame.f_code)[0].get(frame.f_lasti)
    if number is None or number.how != how:
        return None
    names = [_FLOAT] * (how == _FLOAT) + [_ABSOLUTE] * number.absolute
    if any(name in frame.f_globals or frame.f_builtins.get(name) is not getattr(builtins, name) for name in names):
        return None
    pairs = [(each.operator, _plain(each.other, frame)) for each in number.comparisons]
    if any(other is None for _, other in pairs):
        return None
    return [Compared(how, other, number.absolute) for how, other in pairs if other is not None]


def outcomes_in(frame: FrameType, variables: dict[str, Any]) -> dict[str, Any]:
    """Return what comparisons give of the locals that are numbers which a frame's code just compares, by name."""
    outcomes = {}
    for name, comparisons in _comparisons(frame.f_code)[1].items():
        value, others = variables.get(name), [_plain(each.other, frame) for each in comparisons]
        if type(value) in (int, float) and None not in others:
            pairs = zip(comparisons, others, strict=True)
            outcomes[name] = tuple([OPERATORS[each.operator](value, other) for each, other in pairs])
    return outcomes


def _plain(value: Origin, frame: FrameType) -> float | None:
    number = value_in(value, frame)
    number = float(number) if type(number) is np.float64 else number
    return number if type(number) in (int, float) else None


def value_in(value: Origin | None, frame: FrameType) -> Any:
    """Return a constant, variable or attribute as a frame has it; MISSING where there is none, or code would run."""
    if value is None:
        return MISSING
    if value.kind == "constant":
        return value.name
    if value.kind in ("local", "cell"):
        return frame.f_locals.get(value.name, MISSING)
    if value.kind == "global":
        return frame.f_globals.get(value.name, MISSING)
    return plain_attribute(value_in(value.of, frame), value.name) if value.kind == "attribute" else MISSING


@of_code
def _comparisons(code: CodeType) -> _Comparisons:
    return _Stack(code).result()


class _Stack:
    """What is on the stack, as far as it is known, while code runs from one instruction to the next."""

    def __init__(self, code: CodeType) -> None:
        self.code, (self.steps, self.numbers) = code, steps_of(code)
        self.values: list[Origin | None] = []
        self.made = Counter[Origin]()
        """How often numbers that calls give, or their absolute values, were on the stack."""
        self.takers: defaultdict[Origin, list[str | _Comparison]] = defaultdict(list)
        """The locals and the comparisons that took them from there."""
        self.stored: defaultdict[str, list[Origin | None]] = defaultdict(list)  # what locals are given
        self.loads = Counter[str]()  # how often locals are read
        self.uses: defaultdict[str, list[_Comparison]] = defaultdict(list)  # the comparisons that read them
        self.unknown: set[str] = set()  # those of which more is done
        self.changed: set[str] = set()  # globals that are stored

    def result(self) -> _Comparisons:
        """Return the comparisons."""
        targets = {self.numbers[step.target] for step in self.steps if step.target is not None}
        for i, step in enumerate(self.steps):
            if i in targets:
                self.values.clear()
            if step.name not in _NOTHING:
                _EFFECTS.get(step.name, _Stack._more)(self, step)
        variables = {
            name: tuple(dict.fromkeys(self.uses[name]))
            for name in (() if reads_locals(self.code) else self.stored)
            if len(self.uses[name]) == self.loads[name]
            and name not in self.unknown
            and all(self._is_fixed(each.other) for each in self.uses[name])
        }
        after = [step.offset for step in self.steps[1:]]
        spans = {step.offset: range(step.offset, end) for step, end in zip(self.steps, after, strict=False)}
        numbers: dict[int, _Number] = {}
        for value, takers in self.takers.items():
            if value not in self.made:
                continue
            call = value if value.kind == "call" else value.of
            known = [(taker,) if isinstance(taker, _Comparison) else variables.get(taker) for taker in takers]
            if len(known) == self.made[value] and None not in known and (call is value or self.made[call] == 1):
                comparisons = tuple(dict.fromkeys(each for some in known for each in some or ()))
                number = _Number(call.of, value.kind == "magnitude", comparisons)
                numbers |= dict.fromkeys(spans[call.name], number)
        return numbers, variables

    def _is_fixed(self, value: Origin) -> bool:
        is_argument = value.kind == "local" and value.name not in self.stored and value.name not in self.unknown
        return is_argument or value.kind == "constant" or (value.kind == "global" and value.name not in self.changed)

    def _more(self, step: CodeStep) -> None:
        """Know nothing of the stack behind an instruction that is not looked into."""
        self.values.clear()
        if touches_locals(step):
            self.unknown.update(step.value if isinstance(step.value, tuple) else (step.value,))
        elif step.name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self.changed.add(step.value)

    def _local(self, step: CodeStep) -> None:
        self.loads[step.value] += 1
        self.values.append(Origin("local", step.value))

    def _store(self, step: CodeStep) -> None:
        value = self._pop()
        self.stored[step.value].append(value)
        if value is not None:
            self.takers[value].append(step.value)

    def _copy(self, step: CodeStep) -> None:
        """Have a number on the top twice, as where it is stored and compared: ``(error := x.item()) < 1.0``."""
        number = self.values[-1] if step.value == 1 and self.values else None
        if number is None or number not in self.made:  # of locals the second would not be told from the first
            self.values.clear()
            return
        self.made[number] += 1
        self.values.append(number)

    def _of_one(self, _: CodeStep) -> None:
        self._pop()
        self.values.append(None)

    def _of_two(self, step: CodeStep) -> None:
        self._pop()
        self._of_one(step)

    def _pop(self) -> Origin | None:
        return self.values.pop() if self.values else None

    def _attribute(self, step: CodeStep) -> None:
        is_method = step.name == "LOAD_METHOD" or (sys.version_info >= (3, 12) and bool(step.arg & 1))
        self.values += [Origin("attribute", step.value, self._pop()), *[None] * is_method]

    def _call(self, step: CodeStep) -> None:
        """Take the arguments, the function, and the place beside it, which is empty or has what it is a method of."""
        if step.name == "CALL_KW":  # the names of arguments
            self._pop()
        arguments = [self._pop() for _ in range(step.value)]
        both = [self._pop(), self._pop()]
        functions = [value for value in both if value is not None]
        result = _called(step.offset, functions[0], arguments) if len(functions) == 1 else None
        if result is not None:
            self.made[result] += 1
        self.values.append(result)

    def _compare(self, step: CodeStep) -> None:
        right, left = self._pop(), self._pop()
        for value, other, operator_ in ((left, right, step.value), (right, left, FLIPPED[step.value])):
            if value is None or other is None:
                continue
            if value.kind == "local":
                self.uses[value.name].append(_Comparison(operator_, other))
            if other.kind in (
                ("constant", "local") if value is right else _PLAIN_NUMBERS
            ):  # the left one was read before
                self.takers[value].append(_Comparison(operator_, other))
        self.values.append(None)


def _called(offset: int, function: Origin, arguments: list[Origin | None]) -> Origin | None:
    if function.kind == "attribute" and function.name == _ITEM and not arguments:
        return Origin("call", offset, _ITEM)
    if function.kind != "global" or len(arguments) != 1:
        return None
    if function.name == _FLOAT:
        return Origin("call", offset, _FLOAT)
    argument = arguments[0]
    is_absolute = function.name == _ABSOLUTE and argument is not None and argument.kind == "call"
    return Origin("magnitude", None, argument) if is_absolute else None


_EFFECTS: dict[str, Callable[[_Stack, CodeStep], None]] = {
    "LOAD_CONST": lambda stack, step: stack.values.append(Origin("constant", step.value)),
    "LOAD_FAST": _Stack._local,
    "LOAD_FAST_CHECK": _Stack._local,
    "STORE_FAST": _Stack._store,
    "LOAD_GLOBAL": lambda stack, step: stack.values.extend([Origin("global", step.value), *[None] * (step.arg & 1)]),
    "LOAD_DEREF": lambda stack, step: stack.values.append(Origin("cell", step.value)),
    "PUSH_NULL": lambda stack, _: stack.values.append(None),
    "UNARY_NEGATIVE": _Stack._of_one,
    "UNARY_INVERT": _Stack._of_one,
    "BINARY_OP": _Stack._of_two,
    "BINARY_SUBSCR": _Stack._of_two,
    "LOAD_ATTR": _Stack._attribute,
    "LOAD_METHOD": _Stack._attribute,
    "COPY": _Stack._copy,
    "CALL": _Stack._call,
    "CALL_KW": _Stack._call,
    "COMPARE_OP": _Stack._compare,
}
