"""Numbers of tensors that code just compares: ``if error.item() < 1e-6``. What decides is the comparison alone.

The bytecode tells what becomes of the number that ``.item()`` or ``float()`` gives: a comparison takes it from the
stack, with something plain on its other side, and nothing else has it; or a local does that comparisons alone read.
"""

from __future__ import annotations

import builtins
import dis
import operator
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.recent_table import Recent
from tape.tensors.bytecode import FLIPPED, reads_locals
from tape.watching.frame_events import MISSING, plain_attribute

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
"""Comparisons, as they are written."""
_NOTHING = frozenset(("CACHE", "EXTENDED_ARG", "PRECALL", "NOP", "RESUME", "NOT_TAKEN", "KW_NAMES"))
"""Instructions that do nothing to the stack, if a call takes what it is prepared of."""
_ITEM, _FLOAT, _ABSOLUTE = "item", float.__name__, abs.__name__
_PLAIN = frozenset(("constant", "local", "cell", "global", "attribute"))
"""What is compared with, where it is read right behind the number."""


class _Value(NamedTuple):
    """A value on the stack: a constant, a variable, an attribute, what a call gives, or the absolute value of that."""

    kind: str
    name: Any = None
    of: Any = None


class _Comparison(NamedTuple):
    """What stands on the left of an operator is compared with another value."""

    operator: str
    other: _Value


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


class _Comparisons(NamedTuple):
    """Of one code object: numbers, by the offsets at which a frame may be while they are asked for; and locals."""

    numbers: dict[int, _Number]
    variables: dict[str, tuple[_Comparison, ...]]


_known: Recent[int, tuple[CodeType, _Comparisons]] = Recent()


def compared_in(frame: FrameType, how: str) -> list[Compared] | None:
    """Return with what a number is compared that ``item`` or ``float`` gives a frame; None if more becomes of it."""
    number = _comparisons(frame.f_code).numbers.get(frame.f_lasti)
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
    for name, comparisons in _comparisons(frame.f_code).variables.items():
        value, others = variables.get(name), [_plain(each.other, frame) for each in comparisons]
        if type(value) in (int, float) and None not in others:
            pairs = zip(comparisons, others, strict=True)
            outcomes[name] = tuple([OPERATORS[each.operator](value, other) for each, other in pairs])
    return outcomes


def _plain(value: _Value, frame: FrameType) -> float | None:
    """Return the number that a value is now; None if it is none, or code would run."""
    number = _evaluated(value, frame)
    number = float(number) if type(number) is np.float64 else number
    return number if type(number) in (int, float) else None


def _evaluated(value: _Value | None, frame: FrameType) -> Any:
    if value is None:
        return MISSING
    if value.kind == "constant":
        return value.name
    if value.kind in ("local", "cell"):
        return frame.f_locals.get(value.name, MISSING)
    if value.kind == "global":
        return frame.f_globals.get(value.name, MISSING)
    return plain_attribute(_evaluated(value.of, frame), value.name) if value.kind == "attribute" else MISSING


def _comparisons(code: CodeType) -> _Comparisons:
    known = _known.get(id(code))
    if known is None or known[0] is not code:
        known = _known[id(code)] = code, _Stack(code).result()
    return known[1]


class _Stack:
    """What is on the stack, as far as it is known, while code runs from one instruction to the next."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.steps = code, [*dis.get_instructions(code)]
        self.values: list[_Value | None] = []
        self.made = Counter[_Value]()
        """How often numbers that calls give, or their absolute values, were on the stack."""
        self.takers: defaultdict[_Value, list[str | _Comparison]] = defaultdict(list)
        """The locals and the comparisons that took them from there."""
        self.stored: defaultdict[str, list[_Value | None]] = defaultdict(list)
        """What locals are given."""
        self.loads = Counter[str]()
        """How often locals are read."""
        self.uses: defaultdict[str, list[_Comparison]] = defaultdict(list)
        """The comparisons that read them."""
        self.unknown: set[str] = set()
        """Those of which more is done."""
        self.changed: set[str] = set()
        """Globals that are stored."""

    def result(self) -> _Comparisons:
        """Return the comparisons."""
        for step in self.steps:
            if step.is_jump_target:
                self.values.clear()
            if step.opname not in _NOTHING:
                _EFFECTS.get(step.opname, _Stack._more)(self, step)
        names = [] if reads_locals(self.code) else self._compared()
        variables = {name: tuple(dict.fromkeys(self.uses[name])) for name in names}
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
        return _Comparisons(numbers, variables)

    def _compared(self) -> list[str]:
        """Return the locals that are stored, and just compared, with what is the same wherever that is done."""
        return [
            name
            for name in self.stored
            if len(self.uses[name]) == self.loads[name]
            and name not in self.unknown
            and all(self._is_fixed(each.other) for each in self.uses[name])
        ]

    def _is_fixed(self, value: _Value) -> bool:
        is_argument = value.kind == "local" and value.name not in self.stored and value.name not in self.unknown
        return is_argument or value.kind == "constant" or (value.kind == "global" and value.name not in self.changed)

    def _more(self, step: dis.Instruction) -> None:
        """Know nothing of the stack behind an instruction that is not looked into."""
        self.values.clear()
        if step.opcode in dis.haslocal:
            self.unknown.update(_names(step))
        elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self.changed.add(step.argval)

    def _constant(self, step: dis.Instruction) -> None:
        self.values.append(_Value("constant", step.argval))

    def _local(self, step: dis.Instruction) -> None:
        for name in _names(step):
            self.loads[name] += 1
            self.values.append(_Value("local", name))

    def _store(self, step: dis.Instruction) -> None:
        for name in _names(step):
            value = self._pop()
            self.stored[name].append(value)
            if value is not None:
                self.takers[value].append(name)

    def _store_and_load(self, step: dis.Instruction) -> None:
        first, second = _names(step)
        self._store(step._replace(argval=first))
        self._local(step._replace(argval=second))

    def _copy(self, step: dis.Instruction) -> None:
        """Have a number on the top twice, as where it is stored and compared: ``(error := x.item()) < 1.0``."""
        number = self.values[-1] if step.arg == 1 and self.values else None
        if number is None or number not in self.made:  # of locals the second would not be told from the first
            self.values.clear()
            return
        self.made[number] += 1
        self.values.append(number)

    def _cell(self, step: dis.Instruction) -> None:
        self.values.append(_Value("cell", step.argval))

    def _global(self, step: dis.Instruction) -> None:
        self.values += [_Value("global", step.argval), *[None] * ((step.arg or 0) & 1)]

    def _null(self, _: dis.Instruction) -> None:
        self.values.append(None)

    def _of_one(self, _: dis.Instruction) -> None:
        self._pop()
        self.values.append(None)

    def _of_two(self, step: dis.Instruction) -> None:
        self._pop()
        self._of_one(step)

    def _pop(self) -> _Value | None:
        return self.values.pop() if self.values else None

    def _attribute(self, step: dis.Instruction) -> None:
        is_method = step.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and bool((step.arg or 0) & 1))
        self.values += [_Value("attribute", step.argval, self._pop()), *[None] * is_method]

    def _call(self, step: dis.Instruction) -> None:
        """Take the arguments, the function, and the place beside it, which is empty or has what it is a method of."""
        arguments = [self._pop() for _ in range(step.arg or 0)]
        both = [self._pop(), self._pop()]
        functions = [value for value in both if value is not None]
        result = _called(step.offset, functions[0], arguments) if len(functions) == 1 else None
        if result is not None:
            self.made[result] += 1
        self.values.append(result)

    def _call_by_names(self, step: dis.Instruction) -> None:
        self._pop()
        self._call(step)

    def _compare(self, step: dis.Instruction) -> None:
        right, left = self._pop(), self._pop()
        for value, other, operator_ in ((left, right, step.argval), (right, left, FLIPPED[step.argval])):
            if value is None or other is None:
                continue
            if value.kind == "local":
                self.uses[value.name].append(_Comparison(operator_, other))
            if other.kind in (("constant", "local") if value is right else _PLAIN):  # the left one was read before
                self.takers[value].append(_Comparison(operator_, other))
        self.values.append(None)


def _names(step: dis.Instruction) -> tuple[str, ...]:
    """Return the locals of an instruction, of which there may be two in one."""
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


def _called(offset: int, function: _Value, arguments: list[_Value | None]) -> _Value | None:
    """Return what a call gives: a number of a tensor, or the absolute value of one."""
    if function.kind == "attribute" and function.name == _ITEM and not arguments:
        return _Value("call", offset, _ITEM)
    if function.kind != "global" or len(arguments) != 1:
        return None
    if function.name == _FLOAT:
        return _Value("call", offset, _FLOAT)
    argument = arguments[0]
    is_absolute = function.name == _ABSOLUTE and argument is not None and argument.kind == "call"
    return _Value("magnitude", None, argument) if is_absolute else None


_EFFECTS: dict[str, Callable[[_Stack, dis.Instruction], None]] = {
    "LOAD_CONST": _Stack._constant,
    "LOAD_SMALL_INT": _Stack._constant,
    "LOAD_FAST": _Stack._local,
    "LOAD_FAST_CHECK": _Stack._local,
    "LOAD_FAST_BORROW": _Stack._local,
    "LOAD_FAST_LOAD_FAST": _Stack._local,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": _Stack._local,
    "STORE_FAST": _Stack._store,
    "STORE_FAST_STORE_FAST": _Stack._store,
    "STORE_FAST_LOAD_FAST": _Stack._store_and_load,
    "LOAD_GLOBAL": _Stack._global,
    "LOAD_DEREF": _Stack._cell,
    "PUSH_NULL": _Stack._null,
    "UNARY_NEGATIVE": _Stack._of_one,
    "UNARY_INVERT": _Stack._of_one,
    "BINARY_OP": _Stack._of_two,
    "BINARY_SUBSCR": _Stack._of_two,
    "LOAD_ATTR": _Stack._attribute,
    "LOAD_METHOD": _Stack._attribute,
    "COPY": _Stack._copy,
    "CALL": _Stack._call,
    "CALL_KW": _Stack._call_by_names,
    "COMPARE_OP": _Stack._compare,
}
