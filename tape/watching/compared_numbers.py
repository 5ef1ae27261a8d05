"""Numbers of tensors that code compares at once: ``if error.item() < 1e-6``. What decides is the comparison alone.

The bytecode tells what becomes of the number that ``.item()`` or ``float()`` gives: where a comparison takes it from
the stack, with something plain on its other side, nothing else has it.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.recent_table import Recent
from tape.watching.plain_attributes import MISSING, plain_attribute

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_NOTHING = frozenset(("CACHE", "EXTENDED_ARG", "PRECALL", "NOP", "RESUME", "NOT_TAKEN", "KW_NAMES"))
"""Instructions that do nothing to the stack, if a call takes what it is prepared of."""
_ITEM, _FLOAT, _ABSOLUTE = "item", float.__name__, abs.__name__
_PLAIN = frozenset(("constant", "local", "cell", "global", "attribute"))
"""What is compared with, where it is read behind the number."""


class _Value(NamedTuple):
    """A value on the stack: a constant, a variable, an attribute, what a call gives, or the absolute value of that."""

    kind: str
    name: Any = None
    of: Any = None


class Comparison(NamedTuple):
    """A number stands on the left of an ``operator``, and another value on the right; ``absolute``: without its sign.

    ``how`` is the function that gives it, ``item`` or ``float``.
    """

    operator: str
    other: _Value
    absolute: bool
    how: str


class Compared(NamedTuple):
    """What a number is compared with."""

    operator: str
    other: float
    absolute: bool


_known: Recent[int, tuple[CodeType, dict[int, Comparison]]] = Recent()


def compared_in(frame: FrameType, how: str) -> Compared | None:
    """Return with what a number is compared that ``item`` or ``float`` gives a frame; None if it is not, or more."""
    comparison = _comparisons(frame.f_code).get(frame.f_lasti)
    if comparison is None or comparison.how != how:
        return None
    names = [_FLOAT] * (how == _FLOAT) + [_ABSOLUTE] * comparison.absolute
    if any(name in frame.f_globals or frame.f_builtins.get(name) is not getattr(builtins, name) for name in names):
        return None
    other = _evaluated(comparison.other, frame)
    other = float(other) if type(other) is np.float64 else other
    return Compared(comparison.operator, other, comparison.absolute) if type(other) in (int, float) else None


def _evaluated(value: _Value | None, frame: FrameType) -> Any:
    """Return what a value is, now; ``MISSING`` where that is not known, or code would run."""
    if value is None:
        return MISSING
    if value.kind == "constant":
        return value.name
    if value.kind in ("local", "cell"):
        return frame.f_locals.get(value.name, MISSING)
    if value.kind == "global":
        return frame.f_globals.get(value.name, MISSING)
    return plain_attribute(_evaluated(value.of, frame), value.name) if value.kind == "attribute" else MISSING


def _comparisons(code: CodeType) -> dict[int, Comparison]:
    """Return the comparisons of numbers that calls give, by the offsets at which a frame may be while they run."""
    known = _known.get(id(code))
    if known is None or known[0] is not code:
        stack, steps = _Stack(), [*dis.get_instructions(code)]
        for step in steps:
            stack.step(step)
        pairs = zip(steps, [step.offset for step in steps[1:]], strict=False)
        spans = {step.offset: range(step.offset, after) for step, after in pairs}
        comparisons = {at: each for call, each in stack.comparisons.items() for at in spans[call]}
        known = _known[id(code)] = code, comparisons
    return known[1]


class _Stack:
    """What is on the stack, as far as it is known, while code runs from one instruction to the next."""

    def __init__(self) -> None:
        self.values: list[_Value | None] = []
        self.comparisons: dict[int, Comparison] = {}

    def step(self, step: dis.Instruction) -> None:
        """Go through an instruction; behind one that is not known, and where jumps lead, nothing is."""
        if step.is_jump_target:
            self.values.clear()
        if step.opname not in _NOTHING:
            _EFFECTS.get(step.opname, _Stack._unknown)(self, step)

    def _unknown(self, _: dis.Instruction) -> None:
        self.values.clear()

    def _constant(self, step: dis.Instruction) -> None:
        self.values.append(_Value("constant", step.argval))

    def _local(self, step: dis.Instruction) -> None:
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        self.values += [_Value("local", name) for name in names]

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
        is_method = step.opname == "LOAD_METHOD" or (dis.opmap.get("LOAD_METHOD") is None and (step.arg or 0) & 1)
        self.values += [_Value("attribute", step.argval, self._pop()), *[None] * is_method]

    def _call(self, step: dis.Instruction) -> None:
        """Take the arguments, the function, and the place beside it, which is empty or has what it is a method of."""
        arguments = [self._pop() for _ in range(step.arg or 0)]
        both = [self._pop(), self._pop()]
        functions = [value for value in both if value is not None]
        self.values.append(_called(step.offset, functions[0], arguments) if len(functions) == 1 else None)

    def _compare(self, step: dis.Instruction) -> None:
        operator = step.argrepr.removeprefix("bool(").removesuffix(")")
        right, left = self._pop(), self._pop()
        for number, other, how in ((left, right, operator), (right, left, _FLIPPED.get(operator))):
            if number is None or other is None or how not in _FLIPPED or number.kind not in ("call", "magnitude"):
                continue
            if other.kind in (("constant", "local") if number is right else _PLAIN):  # the left one was read before
                call = number if number.kind == "call" else number.of
                self.comparisons[call.name] = Comparison(str(how), other, number.kind == "magnitude", call.of)
        self.values.append(None)


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
    "LOAD_GLOBAL": _Stack._global,
    "LOAD_DEREF": _Stack._cell,
    "PUSH_NULL": _Stack._null,
    "UNARY_NEGATIVE": _Stack._of_one,
    "UNARY_INVERT": _Stack._of_one,
    "BINARY_OP": _Stack._of_two,
    "BINARY_SUBSCR": _Stack._of_two,
    "LOAD_ATTR": _Stack._attribute,
    "LOAD_METHOD": _Stack._attribute,
    "CALL": _Stack._call,
    "COMPARE_OP": _Stack._compare,
}
