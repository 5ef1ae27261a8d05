"""States at loops' heads, and the tests that end a loop.

What the loop may change, and what may decide how it goes on, is reached from its live locals and cells, or from
globals that the code reads which it runs through (``code_reads``). Frames above are suspended; the objects that an
iteration reaches there, it reaches through its own locals too.
"""

from __future__ import annotations

import builtins
import enum
import functools
import itertools
import types
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import kernels
from kernels import PACKAGES
from tape.tensors import dtypes, modes
from tape.tensors.bytecode import CodeStep, ControlFlow, package_of
from tape.tensors.pytrees import METHODS, Structure
from tape.tensors.tensor import Tensor
from tape.watching.frame_events import CLOCKS, REPORTS_INSTRUCTIONS, LoopScope, is_decided, module_of
from tape.watching.snapshots import Same

_DEEPEST = 10
_KERNELS = f"{kernels.__name__}."
_MOST = 1000  # parts that are looked at: items, attributes and variables
_MOST_BYTES = 1 << 20
_VALUES = (bool, int, str, bytes, type(None))
_WHOLE = (np.ufunc, np.dtype, enum.Enum, types.EllipsisType, types.NotImplementedType, types.CodeType)
_WHOLE += (types.WrapperDescriptorType, types.MethodDescriptorType)  # type: ignore[assignment]
_COMPILED = {"tape": "CompiledFunction", "numba": "CPUDispatcher", "numpy": "_ArrayFunctionDispatcher"}
_COMPILED |= {"functools": "_lru_cache_wrapper"}
"""Compiled functions, and those that remember nothing but results: by package and class."""


class LoopState:
    """The Python state at a visit of a head.

    ``template`` is everything but the values of tensors: states with equal templates have their tensors at the same
    places, and the same of them are one object. ``tensors`` are these, ``names`` what they are called; a tensor
    bound to two locals appears twice. ``apart`` is ``template`` without that aliasing. ``reason``: why the state cannot
    be compared.
    """

    __slots__ = ("apart", "names", "reason", "template", "tensors")

    def __init__(
        self, reason: str, template: Any = None, tensors: Iterable[Tensor] = (), names: Iterable[str] = ()
    ) -> None:
        self.reason, self.apart = reason, template
        self.tensors, self.names = list(tensors), list(names)
        numbers = [id(x) for x in self.tensors]
        self.template = template, [numbers.index(number) for number in numbers]


def state_of(
    variables: dict[str, Any], counters: dict[str, Any], location: str, scope: LoopScope | None = None
) -> LoopState:
    """Return a snapshot of variables; of ``counters`` these values are taken in place of their own.

    ``scope`` is the code that runs in the loop: what it reads from outside is compared, too. Code that is reached for
    the first time is added to it.
    """
    scope = scope or LoopScope()
    try:
        while True:
            look, size = _Look(scope), scope.size
            template = look.variables(variables, counters), look.outside()
            if scope.reason or scope.size == size:
                break
    except _NotComparableError as error:
        return LoopState(f"{error} in the loop at {location}")
    if scope.reason:
        return LoopState(f"{scope.reason} in the loop at {location}")
    mode = modes.current()  # what operations do depends on, besides their operands
    around = mode.grad, mode.inference, Same(mode.pack), Same(mode.anomaly), dtypes.get_default_dtype().str
    return LoopState("", (around, template), look.tensors, look.names)


def changed_names(a: Any, b: Any) -> dict[str, Any]:
    """Return the variables in which two states' templates differ, without aliasing, and what they were.

    They are called with attributes and keys as far as the difference goes.
    """
    if a is None or b is None or a[0] != b[0]:
        return {}
    before, after = ({name: part for parts in state[1] for name, part in parts} for state in (a, b))
    pairs = [(name, before[name], after[name]) for name in before.keys() & after.keys()]
    changed = {name + _differing(x, y): x for name, x, y in pairs if x != y and not _are_tensors(x, y)}
    return changed | dict.fromkeys(before.keys() ^ after.keys())


def is_number(snapshot: Any) -> bool:
    """Whether a snapshot is of a number."""
    return isinstance(snapshot, tuple) and snapshot[0] in (int, float)


def _are_tensors(a: Any, b: Any) -> bool:
    """Whether snapshots are of tensors that differ in their memory alone."""
    return isinstance(a, tuple) and isinstance(b, tuple) and a[0] == "tensor" and a[:-1] == b[:-1]


def _differing(a: Any, b: Any) -> str:
    """Return the attributes and keys that lead to where two snapshots differ."""
    if type(a) is not type(b) or not isinstance(a, (list, tuple)) or len(a) != len(b):
        return ""
    is_named = len(a) == len(("name", "value")) and isinstance(a[0], str) and a[0] == b[0]
    name = f".{a[0]}" if is_named else ""
    return name + next((_differing(x, y) for x, y in zip(a, b, strict=True) if x != y), "")


class _NotComparableError(Exception):
    """Something of which no snapshot can be taken; the message says what."""


class _Look:
    __slots__ = ("kept", "memories", "names", "parts", "scope", "seen", "size", "tensors")

    def __init__(self, scope: LoopScope) -> None:
        self.scope = scope
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # what was seen, so that its address stays its own
        self.memories: dict[int, tuple[int, int]] = {}
        """Of each memory that was seen: its number, and the first address."""
        self.parts = self.size = 0

    def variables(self, values: dict[str, Any], counters: dict[str, Any]) -> Any:
        """Return what is compared of locals; of tensors not whether another local holds the same one."""
        return [(name, counters[name] if name in counters else self._local(x, name)) for name, x in values.items()]

    def _local(self, value: Any, name: str) -> Any:
        if not issubclass(type(value), Tensor) or getattr(value._value, "base", None) is not None:
            return self.at(value, name, 0)
        self.parts += 1
        if id(value) not in self.seen:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)
            self._memory(value, value._value)
        return self._tensor(value, name, None)

    def outside(self) -> Any:
        """Return what is compared of globals."""
        return [(name, self.at(value, name, 0)) for name, value in self.scope.globals()]

    def at(self, value: Any, name: str, depth: int) -> Any:
        """Return what is compared of a value, called so."""
        self.parts += 1
        if self.parts > _MOST or depth > _DEEPEST:
            raise _NotComparableError(f"{name} is part of more than can be compared")
        kind = type(value)
        if kind in _VALUES:
            if kind in (str, bytes):
                self._add_bytes(len(value), name)
            return kind, value
        if kind is float or kind is complex:
            return kind, value.hex() if kind is float else (value.real.hex(), value.imag.hex())
        if issubclass(kind, _WHOLE):
            return Same(value)
        if kind is range:  # those of the same numbers are equal
            return kind, value.start, value.stop, value.step
        return self._seen(kind, value, name, depth)

    def _add_bytes(self, count: int, name: str) -> None:
        self.size += count
        if self.size > _MOST_BYTES:
            raise _NotComparableError(f"{name} is larger than what is compared")

    def _seen(self, kind: type, value: Any, name: str, depth: int) -> Any:
        before = self.seen.get(id(value))
        if before is not None:
            return "again", before
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if issubclass(kind, Tensor):
            return self._tensor(value, name, self._memory(value, value._value))
        if issubclass(kind, np.generic):
            return self._array(kind, value, name)
        if kind is np.ndarray:
            return Same(value), value.strides, self._memory(value, value), self._array(kind, value, name)
        if issubclass(kind, (type, types.ModuleType)):
            return self._named(value, name, depth + 1)
        return self._composed(kind, value, name, depth)

    def _tensor(self, value: Tensor, name: str, memory: tuple[int, int] | None) -> Any:
        self.tensors.append(value)
        self.names.append(name)
        return "tensor", type(value), value.spec, value._slot is None, memory

    def _memory(self, holder: Any, value: Any) -> tuple[int, int]:
        owner, address = holder, 0
        if isinstance(value, np.ndarray):
            owner, address = value, value.__array_interface__["data"][0]
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        self.kept.append(owner)
        number, first = self.memories.setdefault(id(owner), (self.parts, address))
        return number, address - first

    def _named(self, value: Any, name: str, depth: int) -> Any:
        module = value.__name__ if isinstance(value, types.ModuleType) else module_of(value)
        package = package_of(module)
        if package in PACKAGES or (isinstance(value, type) and is_decided(module)):
            return Same(value)
        variables = dict(vars(value))
        read = [key for key in variables if self.scope.reads(key)]
        bases = value.__mro__[1:] if isinstance(value, type) else ()
        parts = [(key, self.at(variables[key], f"{name}.{key}", depth)) for key in read]
        return Same(value), parts, [self.at(base, f"{name}.{base.__name__}", depth) for base in bases]

    def _array(self, kind: type, value: Any, name: str) -> tuple[Any, ...]:
        if value.dtype.hasobject:
            raise _NotComparableError(f"{name} is an array of objects")
        self._add_bytes(value.nbytes, name)
        return kind, value.dtype.str, value.shape, value.tobytes()

    def _composed(self, kind: type, value: Any, name: str, depth: int) -> Any:
        if kind.__bases__ == (tuple,) and hasattr(kind, "_fields") and kind.__dict__.get("__slots__") == ():
            return self._sequence(value, name, depth + 1)
        package = kind.__module__.partition(".")[0]
        if kind.__module__.startswith(_KERNELS):  # records of operations, and what native code is made of
            return Same(value)
        if _COMPILED.get(package) == kind.__name__:
            return Same(value), self.at(getattr(value, "__wrapped__", None), name, depth + 1)
        take = _TAKE.get(kind, _Look._object)
        return kind, take(self, value, name, depth + 1)

    def _sequence(self, value: Iterable[Any], name: str, depth: int) -> Any:
        return type(value), [self.at(part, f"{name}[{i}]", depth) for i, part in enumerate(tuple(value))]

    def _items(self, value: dict[Any, Any], name: str, depth: int) -> list[Any]:
        items = []
        for key, part in tuple(value.items()):
            shown = repr(key) if type(key) in _VALUES else f"a {type(key).__name__}"  # of others no code is run
            items.append((self.at(key, f"a key of {name}", depth), self.at(part, f"{name}[{shown}]", depth)))
        return items

    def _function(self, value: types.FunctionType, name: str, depth: int) -> Any:
        if not is_decided(value.__globals__.get("__name__")):
            self.scope.add(value.__code__, value.__globals__, vars(builtins))
        cells = [
            self._cell(cell, f"{variable} of {name}", depth)
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        ]
        defaults = (value.__defaults__, value.__kwdefaults__, value.__dict__)
        return Same(value), Same(value.__code__), cells, self.at(defaults, f"defaults of {name}", depth)

    def _cell(self, cell: types.CellType, name: str, depth: int) -> Any:
        try:
            return Same(cell), self.at(cell.cell_contents, name, depth)
        except ValueError:  # not bound yet
            return Same(cell)

    def _builtin(self, value: types.BuiltinMethodType, name: str, depth: int) -> Any:
        owner = value.__self__
        if str(value.__module__) in CLOCKS or (isinstance(owner, type) and not is_decided(module_of(owner))):
            raise _NotComparableError(f"{name} may return something else at each call")
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            return Same(value)
        return value.__name__, self.at(owner, f"{name}.__self__", depth)

    def _descriptor(self, value: Any, name: str, depth: int) -> Any:
        parts = [getattr(value, part, None) for part in ("fget", "fset", "fdel", "__func__", "func")]
        return [self.at(part, name, depth) for part in parts]

    def _object(self, value: Any, name: str, depth: int) -> Any:
        """Return what is compared of an object of a class: all that it holds must be in its dictionary."""
        kind = type(value)
        slots = any(part.__dict__.get("__slots__") for part in kind.__mro__)
        same_size = kind.__basicsize__ == _Attributes.__basicsize__ and kind.__itemsize__ == 0
        if slots or not same_size or kind.__dictoffset__ != _Attributes.__dictoffset__:
            raise _NotComparableError(f"{name}, a {type(value).__name__}, may change unseen")
        variables = object.__getattribute__(value, "__dict__")
        kinds = self.at(type(value), f"class of {name}", depth)
        held = [both for both in tuple(variables.items()) if both[0] != METHODS]
        return kinds, [(key, self.at(part, f"{name}.{key}", depth)) for key, part in held]


_TAKE: dict[type, Callable[[_Look, Any, str, int], Any]] = {
    list: _Look._sequence,
    tuple: _Look._sequence,
    dict: _Look._items,
    slice: lambda look, x, name, depth: look.at((x.start, x.stop, x.step), name, depth),
    types.FunctionType: _Look._function,
    types.MethodType: lambda look, x, name, depth: (
        look.at(x.__func__, name, depth), look.at(x.__self__, f"{name}.__self__", depth)
    ),
    types.BuiltinMethodType: _Look._builtin,
    functools.partial: lambda look, x, *called: look.at((x.func, x.args, x.keywords, vars(x)), *called),
    Structure: lambda look, x, *called: (Same(x), [look.at(part, *called) for part in (x.kind, x.static, *x.parts)]),
    **dict.fromkeys((functools.cached_property, property, staticmethod, classmethod), _Look._descriptor),
}  # fmt: skip
"""What is compared of an object of a class that is not a user's."""


class _Attributes:
    """A class whose objects hold nothing but attributes."""


# The tests of while loops: compiled twice, before the loop and at the end of its body.
#
# A body's begin is where backward jumps lead, but what runs again is test and body; where the first test fails, the
# body is never reached. With the tests as heads, an iteration is one that the test let begin, and there may be none.


class Test(NamedTuple):
    """The test of a while loop, by the first instructions of its two copies, with the loop's ``body``.

    ``continues`` are the instructions in the body that go back to the ``first`` copy; that is part of the body then.
    """

    first: int
    again: int
    continues: tuple[int, ...]
    body: frozenset[int]


def tests_of(flow: ControlFlow) -> dict[int, Test | None]:
    """Return the heads of loops, to which backward jumps lead, each with the test of a while loop if it has one.

    What ``continue`` alone leads back to is the test of another head.
    """
    heads = flow.heads()
    tests = {head: test for head in heads if (test := _test(flow, head)) is not None}
    continued = defaultdict[int, set[int]](set)
    for test in tests.values():
        continued[test.first].update(test.continues)
    others = {head for head in heads if head not in tests and continued[head] != set(flow.back(head))}
    apart = {head: test for head, test in tests.items() if test.first not in others}
    return {head: apart.get(head) for head in heads if head in tests or head in others}


def _test(flow: ControlFlow, head: int) -> Test | None:
    before, back = flow.before[head], flow.back(head)
    end = max(back) + 1
    again = [i for i in range(head + 1, end) if not is_taken(flow, i, head)]
    pairs = zip(range(head - 1, -1, -1), reversed(again), strict=False)
    same = [*itertools.takewhile(lambda pair: _same(flow.steps[pair[0]], flow.steps[pair[1]]), pairs)]
    if not same:
        return None
    starts = same[-1]
    copies = range(starts[0], head), range(starts[1], end)
    alone = all(i in copy for copy in copies for j in copy[1:] for i in flow.before[j])
    if not alone or any(i not in copies[0] and i not in copies[1] for i in before):
        return None
    whole = [start for start in starts if start == 0 or flow.steps[start].offset != flow.steps[start - 1].offset]
    if not all(start in whole and _is_visible(flow, start) for start in starts):
        return None
    continues = tuple(flow.through(head, flow.before[starts[0]]))
    body = flow.leading_to([*back, *continues], head)
    return Test(*starts, continues, body.union(copies[0]) if continues else body)


def is_taken(flow: ControlFlow, i: int, head: int) -> bool:
    """Whether an instruction only takes a conditional jump's way back to a head, which cannot do that by itself."""
    step, before = flow.steps[i], flow.steps[i - 1]
    return step.name == "JUMP_BACKWARD" and before.target is not None and flow.next[i] == (head,)


def _same(one: CodeStep, other: CodeStep) -> bool:
    """Whether two instructions of a line do the same; jumps may lead elsewhere."""
    if one.line != other.line or (one.target is None) != (other.target is None):
        return False
    does = [(step.name, type(step.value), step.value) for step in (one, other)]
    return one.target is not None or does[0] == does[1]


def _is_visible(flow: ControlFlow, at: int) -> bool:
    """Whether each way to an instruction is reported: in Python 3.11 if it has another line, or is a jump back."""
    if REPORTS_INSTRUCTIONS:
        return True
    line = flow.steps[at].line
    return line is not None and all(i >= at or flow.steps[i].line != line for i in flow.before[at])
