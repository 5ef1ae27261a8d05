"""Numbers of tensors that code just compares, ``if error.item() < 1e-6``, and texts of tensors that it just shows.

The bytecode tells what becomes of the number that ``.item()`` or ``float()`` gives: a comparison takes it from the
stack, with something plain on its other side, and nothing else has it; or a local does that comparisons alone read.
So it is with texts: ``print``, logging and streams take them, by themselves or as a part of another one.
"""

from __future__ import annotations

import builtins
import operator
import sys
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from tape.tensors.bytecode import ENDS, FLIPPED, CodeStep, reads_locals, steps_of, touches_locals
from tape.watching.frame_events import MISSING, of_code, plain_attribute, read
from tape.watching.snapshots import FILES

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
"""Comparisons, as they are written."""
_NOTHING = frozenset(("NOP", "RESUME", "KW_NAMES"))
"""Instructions that do nothing to the stack, if a call takes what it is prepared of."""
_ITEM, _FLOAT, _ABSOLUTE, _SHOWN = "item", float.__name__, abs.__name__, "shown"
_PLAIN_NUMBERS = frozenset(("constant", "local", "cell", "global", "attribute"))
"""What is compared with, where it is read right behind the number."""
_TEXTS = frozenset(("print", "str", "repr", "ascii", "format", "round"))
"""Builtin functions that keep nothing of their arguments but in what they return."""
_LOGS = frozenset(("debug", "info", "warning", "error", "exception", "critical"))


_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr"))
"""Functions whose second argument is the name of an attribute."""


class Origin(NamedTuple):
    """Where a value is from: a constant, a variable, an attribute, a call, or the absolute value of what that gives.

    A ``shown`` one is made of others, by the instruction there: ``of`` is the function that it calls, if it does, and
    ``file`` where that prints to.
    """

    kind: str
    name: Any = None
    of: Any = None
    file: Any = None


class _Comparison(NamedTuple):
    """What stands on the left of an operator is compared with another value."""

    operator: str
    other: Origin


_DROPPED, _RETURNED = Origin("dropped"), Origin("returned")
_Taker = _Comparison | Origin
"""What takes a value: a comparison, a local that it is stored in, what is made of it to be shown, or the caller."""


class _Number(NamedTuple):
    """What becomes of a number, its absolute value or a text: who takes it. ``how``: item, float or shown."""

    how: str
    absolute: bool
    takers: tuple[_Taker, ...]


class Compared(NamedTuple):
    """A number is on the left of an operator, and another one on its right; ``absolute``: without its sign."""

    operator: str
    other: float
    absolute: bool


_Comparisons = tuple[dict[int, _Number], dict[str, tuple[_Comparison, ...]]]
"""Of one code object: numbers, by the offsets at which a frame may be while they are asked for; and locals."""


def compared_in(frame: FrameType, how: str, streams: Sequence[Any] = ()) -> list[Compared] | None:
    """Return with what a number is compared that ``item`` or ``float`` gives a frame; None if more becomes of it.

    It may be shown besides. ``streams`` are those that ``print`` wrote to when the call began.
    """
    frame = _logging(frame)
    number = _comparisons(frame.f_code)[0].get(frame.f_lasti)
    if number is None or number.how not in (how, _SHOWN):
        return None
    names = [_FLOAT] * (number.how == _FLOAT) + [_ABSOLUTE] * number.absolute
    if not all(_is_builtin(name, frame) for name in names):
        return None
    if not all(_is_shown(taker, frame, streams) for taker in number.takers if isinstance(taker, Origin)):
        return None
    pairs = [(x.operator, _plain(x.other, frame)) for x in number.takers if isinstance(x, _Comparison)]
    if any(other is None for _, other in pairs):
        return None
    return [Compared(how, other, number.absolute) for how, other in pairs if other is not None]


def _logging(frame: FrameType) -> FrameType:
    """Return the frame that logs what one formats for that; other frames are returned."""
    if frame.f_globals.get("__name__") != "logging":
        return frame
    above = frame.f_back
    while above is not None and above.f_code.co_name != "_log":
        above = above.f_back
    while above is not None and above.f_globals.get("__name__") == "logging":
        above = above.f_back
    return above or frame


def _is_builtin(name: str, frame: FrameType) -> bool:
    return name not in frame.f_globals and frame.f_builtins.get(name) is getattr(builtins, name)


def _is_shown(taker: Origin, frame: FrameType, streams: Sequence[Any], inner: CodeType | None = None) -> bool:
    """Whether a text that something takes is seen by nobody but who reads what is printed; of a caller, by its."""
    function = taker.of
    if taker is _RETURNED:
        return frame.f_back is not None and _is_shown_by_caller(frame.f_back, frame.f_code, streams)
    if function is None or function.kind not in ("global", "attribute"):
        return function is None
    if function.kind == "global":
        if function.name in _TEXTS and _is_builtin(function.name, frame):
            written = sys.stdout if taker.file is None else value_in(taker.file, frame)
            return function.name != "print" or _is_written(written, streams)
        called = value_in(function, frame)
        return inner is not None and type(called) is types.FunctionType and called.__code__ is inner
    return _only_shows(function, frame, streams)


def _only_shows(function: Origin, frame: FrameType, streams: Sequence[Any]) -> bool:
    owner = value_in(function.of, frame)
    if function.name in ("write", "writelines"):
        return _is_written(owner, streams)
    method = read(owner, function.name)
    if function.of.kind == "constant":
        return type(owner) is str
    return method is warnings.warn or (function.name in _LOGS and getattr(method, "__module__", None) == "logging")


def _is_shown_by_caller(frame: FrameType, inner: CodeType, streams: Sequence[Any]) -> bool:
    number = _comparisons(frame.f_code)[0].get(frame.f_lasti)
    if number is None or number.how != _SHOWN:
        return False
    call, *takers = [x for x in number.takers if isinstance(x, Origin)]
    return _is_shown(call, frame, streams, inner) and all(_is_shown(x, frame, streams) for x in takers)


def _is_written(stream: Any, streams: Sequence[Any]) -> bool:
    """Whether nobody reads what is written to a stream."""
    known = any(stream is x for x in streams)
    return known or (type(stream) in FILES and not stream.closed and not stream.readable())


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


@of_code
def names_of(code: CodeType) -> set[str]:
    """Return the names of attributes that code reads, those that it hands to ``getattr`` as constants among them."""
    if _BY_NAME.isdisjoint(code.co_names):
        return set(code.co_names)
    stack = _Stack(code)
    stack.result()
    loads = Counter(step.value for step in stack.steps if step.name == "LOAD_GLOBAL")
    constant = Counter(name for name, _ in stack.named)
    plain = {name for name in _BY_NAME if constant[name] == loads[name]}
    return {name for _, name in stack.named} | (set(code.co_names) - plain)


class _Stack:
    """What is on the stack, as far as it is known, while code runs from one instruction to the next."""

    def __init__(self, code: CodeType) -> None:
        self.code, (self.steps, self.numbers) = code, steps_of(code)
        self.values: list[Origin | None] = []
        self.made = Counter[Origin]()
        """How often numbers that calls give, their absolute values, and texts were on the stack."""
        self.takers: defaultdict[Origin, list[_Taker]] = defaultdict(list)
        """What took them, and locals, from there."""
        self.stored: defaultdict[str, list[Origin | None]] = defaultdict(list)  # what stands in locals
        self.loads = Counter[str]()  # how often locals are read
        self.unknown: set[str] = set()  # those of which more is done
        self.changed: set[str] = set()  # globals that are stored
        self.keywords: tuple[str, ...] = ()
        self.named: list[tuple[str, str]] = []  # functions that take names of attributes, and constants that they get
        self.jumped: defaultdict[int, list[list[Origin | None]]] = defaultdict(list)
        """What was on the stack where code jumps from, by the instruction that it jumps to."""
        self.joined: defaultdict[Origin, list[Origin]] = defaultdict(list)
        """Locals and calls that stand for a text, or a number, beside another one."""

    def result(self) -> _Comparisons:
        """Return the comparisons."""
        targets = Counter(self.numbers[step.target] for step in self.steps if step.target is not None)
        for i, step in enumerate(self.steps):
            if i in targets:
                ends = i > 0 and self.steps[i - 1].name in ENDS
                ways = self.jumped[i] + ([] if ends else [self.values])
                self.values = _common(ways) if len(self.jumped[i]) == targets[i] else []
            if step.name not in _NOTHING:
                _EFFECTS.get(step.name, _Stack._more)(self, step)
            elif step.name == "KW_NAMES":
                self.keywords = self.code.co_consts[step.arg]
        self.hidden = reads_locals(self.code)
        after = [step.offset for step in self.steps[1:]]
        spans = {step.offset: range(step.offset, end) for step, end in zip(self.steps, after, strict=False)}
        numbers: dict[int, _Number] = {}
        for value in self.made:
            call = value.of if value.kind == "magnitude" else value
            takers = self._all_takers(value, set()) if call is value or self.made[call] == 1 else None
            if takers is not None:
                how = call.of if call.kind == "call" else _SHOWN
                number = _Number(how, value.kind == "magnitude", takers)
                numbers |= dict.fromkeys(spans[call.name], number)
        variables = {name: self._all_takers(Origin("local", name), set()) for name in self.stored}
        compared = {
            name: tuple([x for x in takers if isinstance(x, _Comparison)])
            for name, takers in variables.items()
            if takers is not None and not any(isinstance(x, Origin) for x in takers)
        }
        return numbers, compared

    def _all_takers(self, value: Origin, known: set[Origin]) -> tuple[_Taker, ...] | None:
        """Return who takes a value in the end; None where that is not known, or a text is compared."""
        known.add(value)
        joined, takers, is_local = self.joined[value], self.takers[value], value.kind == "local"
        is_seen = len(takers) == (self.loads[value.name] if is_local else self.made[value])
        is_lost = is_local and (self.hidden or value.name in self.unknown or value.name not in self.stored)
        if not is_seen or is_lost or not all(self._is_text(x.name) for x in joined if x.kind == "local"):
            return None
        taken: list[_Taker] = [x for x in (value, *joined) if x.kind == _SHOWN]
        for taker in takers:
            if isinstance(taker, _Comparison) or taker is _RETURNED:
                taken.append(taker)
            elif taker is not _DROPPED and taker not in known:
                inner = self._all_takers(taker, known)
                if inner is None:
                    return None
                taken += inner
        compared = [x.other for x in taken if isinstance(x, _Comparison)]
        wrong = value.kind == _SHOWN or (is_local and not all(map(self._is_fixed, compared)))
        asked = value.kind in ("call", "magnitude")  # a number that is asked for is a guard, shown or not
        if (compared and wrong) or (asked and any(isinstance(x, Origin) for x in taken)):
            return None
        return tuple(dict.fromkeys(taken))

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
        value = self._pop(Origin("local", step.value))
        self.stored[step.value].append(value)

    def _copy(self, step: CodeStep) -> None:
        """Have a number on the top twice, as where it is stored and compared: ``(error := x.item()) < 1.0``."""
        number = self.values[-1] if step.value == 1 and self.values else None
        if number is None or number not in self.made:  # of locals the second would not be told from the first
            self.values.clear()
            return
        self.made[number] += 1
        self.values.append(number)

    def _jump(self, step: CodeStep) -> None:
        if step.name != "JUMP_FORWARD":
            self._pop()
        if step.target is not None:
            self.jumped[self.numbers[step.target]].append([*self.values])

    def _of_one(self, _: CodeStep) -> None:
        self._pop()
        self.values.append(None)

    def _function(self, step: CodeStep) -> None:
        """Take code, and what it is made a function with."""
        for _ in range(step.arg.bit_count()):
            self._pop()
        self._of_one(step)

    def _pop(self, taker: _Taker | None = None) -> Origin | None:
        value = self.values.pop() if self.values else None
        if value is not None and taker is not None:
            self.takers[value].append(taker)
        return value

    def _end(self, step: CodeStep) -> None:
        """Drop what is on the top, or give it to the caller."""
        self._pop(_DROPPED if step.name == "POP_TOP" else _RETURNED)
        if step.name == "YIELD_VALUE":
            self.values.append(None)

    def _attribute(self, step: CodeStep) -> None:
        is_method = step.name == "LOAD_METHOD" or (sys.version_info >= (3, 12) and bool(step.arg & 1))
        self.values += [Origin("attribute", step.value, self._pop()), *[None] * is_method]

    def _shown(self, step: CodeStep, count: int, function: Origin | None = None, file: Origin | None = None) -> None:
        """Make something of what is on the top, to be shown."""
        text = Origin(_SHOWN, step.offset, function, file)
        for _ in range(count):
            self._pop(text)
        self.made[text] += 1
        self.values.append(text)

    def _format(self, step: CodeStep) -> None:
        two = step.name == "FORMAT_WITH_SPEC" or (step.name == "FORMAT_VALUE" and bool(step.arg & 4))
        self._shown(step, step.arg if step.name.startswith("BUILD") else 1 + two)

    def _of_two(self, step: CodeStep) -> None:
        """Take two operands: what is made of texts, numbers and constants may be shown, what a text formats as well."""
        left, right = self.values[-2:] if len(self.values) > 1 else (None, None)
        formats = step.value == "%" and left is not None and left.kind == "constant" and type(left.name) is str
        if step.name == "BINARY_OP" and (formats or (self._is_made(left) and self._is_made(right))):
            self._shown(step, 2)
            joined = [x for x in (left, right) if x is not None and (x.kind == "local" or x.of is not None)]
            self.joined[Origin(_SHOWN, step.offset)] += [] if formats else joined
        else:
            self._pop()
            self._of_one(step)

    def _is_made(self, value: Origin | None) -> bool:
        """Whether a value does not change: what is made of numbers, texts and constants, of locals too if they are."""
        if value is None or (value.kind == _SHOWN and value.of is not None and value.of.kind != "global"):
            return False
        return value.kind in ("constant", "local") or value in self.made

    def _is_text(self, name: str, known: tuple[str, ...] = ()) -> bool:
        """Whether all that a local holds does not change."""
        code, stored = self.code, self.stored[name]
        arguments = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & 12).bit_count()
        if name in known:
            return True
        if not stored or name in (*self.unknown, *code.co_varnames[:arguments]):
            return False
        made = [x for x in stored if x is not None and x.kind != "local" and self._is_made(x)]
        beside = [other for x in made for other in (x, *self.joined[x]) if other.kind in (_SHOWN, "local")]
        return len(made) == len(stored) and all(
            self._is_text(x.name, (*known, name)) if x.kind == "local" else x.of is None for x in beside
        )

    def _call(self, step: CodeStep) -> None:
        """Take the arguments, the function, and the place beside it, which is empty or has what it is a method of."""
        if step.name == "CALL_KW":
            names = self._pop()
            self.keywords = () if names is None else names.name
        count, keywords, self.keywords = step.value, self.keywords, ()
        arguments = self.values[-count:] if count else []
        both = self.values[-count - 2 : -count] if count else self.values[-2:]
        functions = [value for value in both if value is not None]
        function = functions[0] if len(functions) == 1 and len(arguments) == count else None
        result = None if function is None else _called(step.offset, function, arguments)
        second = arguments[1] if len(arguments) > 1 else None
        if function is not None and function.name in _BY_NAME and second is not None and second.kind == "constant":
            self.named.append((function.name, str(second.name)))
        if function is None or result is not None:
            del self.values[-count - 2 :]
            self.values.append(result)
            if result is not None:
                self.made[result] += 1
        else:
            files = [x for name, x in zip(reversed(keywords), reversed(arguments), strict=False) if name == "file"]
            if files and files[0] is None:
                function = None  # it is not known where that prints to
            self._shown(step, count, function or Origin("unknown"), files[0] if files else None)
            text = self.values.pop()
            del self.values[-2:]
            self.values.append(text)

    def _compare(self, step: CodeStep) -> None:
        right, left = self._pop(), self._pop()
        for value, other, operator_ in ((left, right, step.value), (right, left, FLIPPED[step.value])):
            if value is None or other is None:
                continue
            if value.kind == "local" or other.kind in (
                ("constant", "local") if value is right else _PLAIN_NUMBERS
            ):  # the left one was read before
                self.takers[value].append(_Comparison(operator_, other))
        self.values.append(None)


def _common(ways: list[list[Origin | None]]) -> list[Origin | None]:
    """Return what is on the stack whichever way code came, as far as it is known in all of them."""
    tops = zip(*map(reversed, ways), strict=False)
    return [first if all(x == first for x in rest) else None for first, *rest in tops][::-1]


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


_JUMPS = [f"POP_JUMP_{way}IF_{test}" for way in ("", "FORWARD_") for test in ("TRUE", "FALSE")]
_FORMATS = "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING", "BUILD_TUPLE"
_EFFECTS: dict[str, Callable[[_Stack, CodeStep], None]] = {
    "LOAD_CONST": lambda stack, step: stack.values.append(Origin("constant", step.value)),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK"), _Stack._local),
    "STORE_FAST": _Stack._store,
    "LOAD_GLOBAL": lambda stack, step: stack.values.extend([*[None] * (step.arg & 1), Origin("global", step.value)]),
    "LOAD_DEREF": lambda stack, step: stack.values.append(Origin("cell", step.value)),
    "PUSH_NULL": lambda stack, _: stack.values.append(None),
    **dict.fromkeys(("POP_TOP", "RETURN_VALUE", "YIELD_VALUE"), _Stack._end),
    **dict.fromkeys(("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_NOT", "TO_BOOL", "GET_ITER"), _Stack._of_one),
    **dict.fromkeys(("SET_FUNCTION_ATTRIBUTE", "BINARY_OP", "BINARY_SUBSCR"), _Stack._of_two),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _Stack._attribute),
    **dict.fromkeys(("CALL", "CALL_KW"), _Stack._call),
    "MAKE_FUNCTION": _Stack._function,
    "COPY": _Stack._copy,
    "COMPARE_OP": _Stack._compare,
    **dict.fromkeys(("JUMP_FORWARD", *_JUMPS), _Stack._jump),
    **dict.fromkeys(_FORMATS, _Stack._format),
}
