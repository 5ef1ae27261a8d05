"""Numbers that a loop changes, as tensors while it is recorded; what for loops run over."""

from __future__ import annotations

import ctypes
import operator
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from kernels import PACKAGES
from kernels.kinds.views import Gather, Write
from kernels.programs.program import Recipe
from tape.tensors.bytecode import CodeStep, ControlFlow
from tape.tensors.operands import WEAK
from tape.tensors.tensor import Tensor, constant_tensor
from tape.watching.frame_events import MISSING, module_of, plain_attribute
from tape.watching.number_uses import Origin, value_in

# What is computed of such numbers is recorded, as all that is computed of tensors.
#
# No C code reads a number past what such a tensor is asked for: that leaves for Python then, as of all tensors.

_LARGEST = 1 << 53  # below it, integers of tensors are those of Python
_LARGEST_FACTOR = 1 << 26
_TOO_LARGE = "a number of a loop is too large for a tensor"
_OURS = tuple([f"{name}." for name in PACKAGES])
_DIVISIONS = ("__truediv__", "__floordiv__", "__mod__")
_PRODUCT, _POWER = "__mul__", "__pow__"
_CALCULATED = ("__add__", "__sub__", _PRODUCT, *_DIVISIONS)
_OF_NUMPY: dict[Any, Callable[..., Any]] = {np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul}
_SQUARE = 2
_NUMBERS = (int, float, bool, np.float64)
TYPE_READERS = frozenset(("isinstance", "issubclass", "type", "callable", "vars", "dir"))
"""Functions that tell a tensor from a number."""


class LoopNumber(Tensor):
    """A Python number as a tensor: what is computed of it and other numbers is one, too."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, how: str, *inputs: Any, **kwargs: Any) -> Any:
        """Compute as with a number; but for what NumPy's numbers do alike, it leaves for Python."""
        operate = _OF_NUMPY.get(ufunc)
        if operate is not None and {*map(type, inputs)} == {np.float64, LoopNumber}:
            return loop_number(operate(*[x if type(x) is LoopNumber else float(x) for x in inputs]))
        return getattr(ufunc, how)(*map(plain_number, inputs), **kwargs)


WEAK.add(LoopNumber)


def loop_number(value: Any) -> Any:
    """Return a number, or a tensor of one element that is new, as a number of a loop."""
    x = value if isinstance(value, Tensor) else constant_tensor(value if type(value) is float else np.array(value))
    x.__class__ = LoopNumber
    return x


def fits(value: Any) -> bool:
    """Whether a tensor of one element holds a number as Python does."""
    return type(value) is float or -_LARGEST < value < _LARGEST


def plain_number(value: Any) -> Any:
    """Return a number of a loop as Python's, which then leaves for it; anything else as it is."""
    return value.item() if type(value) is LoopNumber else value


def _as_tensors(called: str, *operands: Any) -> Any:
    """Call a method of tensors, as of which native code knows the operands."""
    numbers = [x for x in operands if type(x) is LoopNumber]
    for x in numbers:
        x.__class__ = Tensor  # type: ignore[assignment]
    try:
        return getattr(Tensor, called)(*operands)
    finally:
        for x in numbers:
            x.__class__ = LoopNumber


def _is_integer(x: Any) -> bool:
    return isinstance(x, int) or (type(x) is LoopNumber and x.spec.dtype.kind != "f")


def _reflected(name: str) -> str:
    return f"__r{name[2:]}"


def _calculates(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """Return a method that computes with another operand as Python does with numbers."""
    called = _reflected(name) if reflected else name

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, Tensor) and type(other) is not LoopNumber:
            other_kind, kind = other.spec.dtype, self.spec.dtype
            x = self.to(other_kind) if other_kind.kind == "f" and kind != other_kind else self
            return _as_tensors(called, x, other)
        if type(other) not in _NUMBERS and type(other) is not LoopNumber:
            picks = isinstance(other, (np.ndarray, np.integer)) and other.dtype.kind == "i" and _is_integer(self)
            return getattr(Tensor, called)(self, other) if picks else getattr(self.item(), called)(other)
        divisor = self if reflected else other
        if name in _DIVISIONS and divisor == 0:
            raise ZeroDivisionError("division by zero")
        integers = _is_integer(self) and _is_integer(other) and name != _DIVISIONS[0]
        if integers and name == _PRODUCT and not all(-_LARGEST_FACTOR < x < _LARGEST_FACTOR for x in (self, other)):
            raise OverflowError(_TOO_LARGE)
        if name in _DIVISIONS[1:] and not integers:
            return getattr(operator, name)(*[plain_number(x) for x in ((other, self) if reflected else (self, other))])
        a, b = (x if integers or not isinstance(x, Tensor) else x.double() for x in (self, other))
        result = _as_tensors(called, a, b)
        is_small = (
            not integers or name == _PRODUCT or (type(other) is int and -_LARGEST_FACTOR < other < _LARGEST_FACTOR)
        )
        if not is_small and not -_LARGEST < result < _LARGEST:
            raise OverflowError(_TOO_LARGE)
        return loop_number(result)

    return method


def _operates(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """Return a method that computes with the number, which leaves for Python; a small power of it is a product."""

    def method(self: Any, other: Any) -> Any:
        if name == _POWER and type(other) is int and other == _SQUARE and not reflected:
            return _METHODS[_PRODUCT](self, self)
        a, b = plain_number(self), plain_number(other)
        return getattr(operator, name, divmod)(*((b, a) if reflected else (a, b)))

    return method


def _compares(called: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        result = _as_tensors(called, self, other)
        return loop_number(result) if type(other) in _NUMBERS or type(other) is LoopNumber else result

    return method


_METHODS: dict[str, Callable[..., Any]] = {}
for _name in (*_CALCULATED, _POWER, "__divmod__", "__lshift__", "__rshift__", "__and__", "__or__", "__xor__"):
    _of = _calculates if _name in _CALCULATED else _operates
    _METHODS[_name] = _METHODS[f"__i{_name[2:]}"] = _of(_name)
    _METHODS[_reflected(_name)] = _of(_name, reflected=True)
for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    _METHODS[_name] = _compares(_name)
for _name in ("__round__", "__trunc__", "__floor__", "__ceil__", "__invert__", "__format__", "__repr__", "__str__"):
    _METHODS[_name] = lambda self, *others, _name=_name: getattr(self.item(), _name)(*others)  # the number leaves
for _name in ("__neg__", "__abs__"):
    _METHODS[_name] = lambda self, _name=_name: loop_number(_as_tensors(_name, self))
_METHODS["__hash__"] = lambda self: hash(self.item())


def _of_users(called: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that does as numbers do where users call it; this package's own code has a tensor."""

    def dispatched(self: Any, *others: Any) -> Any:
        is_ours = str(sys._getframe(1).f_globals.get("__name__")).startswith(_OURS)
        return getattr(Tensor, called)(self, *others) if is_ours else method(self, *others)

    return dispatched


for _name, _method in _METHODS.items():
    setattr(LoopNumber, _name, _of_users(_name, _method))


def kept_views(recipe: Recipe, left: Container[int]) -> str:
    """Return why what numbers pick from tensors must be views, which copies stand for; empty if it need not be.

    ``left`` are nodes of tensors that became others.
    """
    steps, written, uses = recipe.steps, defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for at in steps.of_kind(Write):
        written[recipe.base_of(steps.raw(at).result)].append(at)
    picked = list[tuple[int, int, int]]()
    for at in range(len(steps)):
        kind, result, operands, _ = steps.raw(at)
        nodes = [recipe.base_of(node) for node in operands if node >= 0]
        for node in nodes:
            uses[node].append(at)
        if isinstance(steps.kinds[kind].op, Gather) and len(nodes) > 1:
            picked.append((at, result, nodes[0]))
    for at, result, source in picked:
        following = written[source][bisect_right(written[source], at) :][:1]
        if written[result] or result in left or (following and following[0] < max(uses[result], default=at)):
            return "a part of a tensor that a number of the loop picks is written, or read behind a write to the tensor"
    return ""


# What a for loop runs over, and the locals that take it: read from the code, evaluated in a frame.

_MOST_STEPS = 40  # instructions that make what a loop runs over
_SOURCES = {"LOAD_FAST": "local", "LOAD_FAST_CHECK": "local", "LOAD_DEREF": "cell", "LOAD_GLOBAL": "global"}
_TAKEN = dict.fromkeys(("LOAD_CONST", "PUSH_NULL", *_SOURCES), 0)
_TAKEN |= dict.fromkeys(("CALL", "LOAD_ATTR", "LOAD_METHOD"), 1) | dict.fromkeys(("BINARY_SUBSCR", "BINARY_OP"), 2)
"""Instructions that make what a loop runs over: how many values they take from the stack, beside arguments."""
_BUILTINS: dict[str, Any] = {f.__name__: f for f in (range, int, len, zip, enumerate)}
_OPERATORS: dict[str, Any] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv}


def targets_of(flow: ControlFlow, head: int, exits: Iterable[int]) -> tuple[Any, int]:
    """Return the locals that a for loop's values go to, tuples of them where they are unpacked, and where that ends.

    None where they are more than locals, of this loop, or are read where nothing is reported before.
    """

    def taken(at: int) -> tuple[Any, int]:
        step = flow.steps[at]
        if step.name == "STORE_FAST":
            return step.value, at + 1
        if step.name != "UNPACK_SEQUENCE":
            raise ValueError
        names, at = [], at + 1
        for _ in range(step.arg):
            name, at = taken(at)
            names.append(name)
        return tuple(names), at

    try:
        targets, end = taken(head + 1)
    except ValueError:
        return None, -1
    names = {flow.steps[i].value for i in range(head + 1, end) if flow.steps[i].name == "STORE_FAST"}
    if flow.steps[end].offset == flow.steps[end - 1].offset:  # two instructions in one
        names |= {flow.steps[end].value} & names and {None}
        end += 1
    around = [i for i in (head, *exits) if names & flow.live(i)]
    fits = None not in names and not names & flow.always_live and not around
    return (targets, flow.steps[end].offset) if fits else (None, -1)


def values_of(flow: ControlFlow, head: int) -> tuple[int, Origin | None]:
    """Return where the instructions begin that make what a for loop runs over, and that; None if it is not known."""
    end = head - 1
    if flow.steps[end].name != "GET_ITER":
        return head, None
    for start in range(end - 1, max(end - _MOST_STEPS, -1), -1):
        value = _value_of(flow.steps[start:end])
        if value is not None:
            return start, None if flow.targets & set(range(start + 1, head)) else value
    return head, None


def _value_of(steps: list[CodeStep]) -> Origin | None:
    """Return what instructions leave on the stack, if it is one value of known ones."""
    stack: list[Any] = []
    for step in steps:
        name, value = step.name, step.value
        operator_ = "[]" if name == "BINARY_SUBSCR" else value if name == "BINARY_OP" else None
        count = _TAKEN.get(name, 0) + (step.arg if name == "CALL" else 0)
        if name not in _TAKEN or len(stack) < count or operator_ not in (None, "[]", *_OPERATORS):
            return None
        taken = tuple(stack[len(stack) - count :])
        del stack[len(stack) - count :]
        if name == "CALL":
            stack.append(Origin("call", taken[1:], taken[0]))
        elif operator_ is not None:
            stack.append(Origin("operator", operator_, taken))
        elif name != "PUSH_NULL":
            stack.append(Origin("attribute", value, *taken) if taken else Origin(_SOURCES.get(name, "constant"), value))
    return stack[0] if len(stack) == 1 else None


class IteratedValues(NamedTuple):
    """What a for loop runs over: so many values, a tensor if that says how many.

    Of ``parts`` a tuple, else elements of ``items``, a tensor, or numbers from ``start`` on. ``kept`` says why these
    cannot be tensors.
    """

    count: Any
    start: int = 0
    step: int = 1
    items: Any = None
    are_numbers: bool = True
    parts: tuple[Any, ...] = ()
    kept: str = ""

    def are_tensors(self) -> bool:
        """Whether values can be picked by a tensor."""
        return not self.kept and not isinstance(self.count, Tensor) and all(part.are_tensors() for part in self.parts)

    def at(self, index: Any) -> Any:
        """Return the value of an iteration, whose number is a tensor."""
        if self.parts:
            return tuple([part.at(index) for part in self.parts])
        if self.items is None:
            scaled = index if self.step == 1 else index * self.step
            return loop_number(scaled + self.start if self.start else scaled)
        picked = self.items[index]
        return loop_number(picked) if self.are_numbers else picked


def values_in(tree: Origin, frame: FrameType) -> IteratedValues | None:
    """Return what a for loop runs over, evaluated in a frame without running its code; None where that is not plain."""
    if tree.kind != "call":
        return _iterated(_evaluated(tree, frame))
    name = _builtin_of(tree, frame)
    if name == "range":
        numbers = [_evaluated(argument, frame) for argument in tree.name]
        if len(numbers) == 1 and isinstance(numbers[0], Tensor):
            return IteratedValues(numbers[0])
        whole = [int(n) for n in numbers if _is_whole(n)]
        return _iterated(range(*whole)) if len(whole) == len(numbers) else None
    parts = [values_in(argument, frame) for argument in tree.name] if name in ("zip", "enumerate") else []
    if not parts or any(part is None or isinstance(part.count, Tensor) for part in parts):
        return None
    if name == "enumerate":
        parts = [IteratedValues(parts[0].count), parts[0]] if len(parts) == 1 else []  # type: ignore[union-attr]
    kept = next((part.kept for part in parts if part is not None and part.kept), "")
    count = min([part.count for part in parts if part is not None], default=None)
    return None if count is None else IteratedValues(count, parts=tuple(parts), kept=kept)


def _iterated(value: Any) -> IteratedValues | None:
    kind = type(value)
    if kind is range:
        return IteratedValues(len(value), value.start, value.step)
    if isinstance(value, Tensor):
        return IteratedValues(len(value), items=value, are_numbers=False) if value.spec.shape else None
    if kind is np.ndarray and value.ndim:
        fits = value.ndim == 1 and value.dtype in (np.float64, np.int64)
        items = constant_tensor(value) if fits else None
        return IteratedValues(len(value), items=items, kept="" if fits else "they are arrays; a tensor is followed")
    if kind in (list, tuple):
        kinds = {*map(type, value)}
        if kinds in ({float}, {int}):
            return IteratedValues(len(value), items=constant_tensor(np.array(value)))
        return IteratedValues(len(value), kept=f"they are of a {kind.__name__}; a tensor is followed")
    return None


def _evaluated(tree: Origin, frame: FrameType) -> Any:
    if tree.kind == "attribute":
        of = _evaluated(tree.of, frame)
        has_shape = tree.name == "shape" and (type(of) is np.ndarray or isinstance(of, Tensor))
        return tuple(of.shape) if has_shape else plain_attribute(of, tree.name)
    if tree.kind == "operator":
        a, b = [_evaluated(part, frame) for part in tree.of]
        if tree.name == "[]":
            return a[b] if type(a) is tuple and type(b) is int and -len(a) <= b < len(a) else MISSING
        return _OPERATORS[tree.name](a, b) if type(a) is type(b) is int and (b or tree.name != "//") else MISSING
    return value_in(tree, frame) if tree.kind != "call" else _called(tree, frame)


def _called(tree: Origin, frame: FrameType) -> Any:
    name = _builtin_of(tree, frame)
    value = _evaluated(tree.name[0], frame) if len(tree.name) == 1 else MISSING
    if name == "len" and (type(value) in (list, tuple, range, np.ndarray, str) or isinstance(value, Tensor)):
        return len(value)
    if name == "int" and isinstance(value, Tensor):
        return value
    return int(value) if name == "int" and _is_whole(value, of=(int, float, np.integer, np.floating)) else MISSING


def _builtin_of(tree: Origin, frame: FrameType) -> str:
    """Return the name of the builtin function that a call is of; empty if it is of another one."""
    name = tree.of.name if tree.of.kind == "global" else ""
    is_known = name in _BUILTINS and name not in frame.f_globals and frame.f_builtins.get(name) is _BUILTINS[name]
    return name if is_known else ""


def _is_whole(value: Any, of: tuple[type, ...] = (int, np.integer)) -> bool:
    users = module_of(type(value)).partition(".")[0] not in ("builtins", "numpy")
    return isinstance(value, of) and not users


def fill(frame: FrameType, targets: Any, value: Any) -> None:
    """Give the locals of a for loop in a frame a value."""
    if type(targets) is str:
        set_local(frame, targets, value)
        return
    for target, part in zip(targets, value, strict=True):
        fill(frame, target, part)


def set_local(frame: FrameType, name: str, value: Any) -> None:
    """Give a local of a frame that runs another value."""
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
