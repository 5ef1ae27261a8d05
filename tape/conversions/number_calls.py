"""What turns a tensor into a number: the user, or a function of Python's that computes with numbers.

A conversion sees only the Python frame that is running. The instruction it is at calls the function itself
(``math.sin(t)``), or something that calls it in turn (``list(map(math.sin, ts))``, ``sorted(ts, key=math.exp)``), or
goes through what does (``for y in map(math.sin, ts)``): then the function is among those that the expression names
without calling them.
"""

from __future__ import annotations

import ast
import dis
import functools
import gc
import inspect
import itertools
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

MODULES = ("math", "cmath", "statistics")
"""Python's modules of functions of numbers."""
_WITHOUT_GRADIENT = ("ceil", "floor", "isclose", "isfinite", "isinf", "isnan", "trunc")
"""Functions of numbers whose results have no gradient: what follows loses none."""
_CONVERSIONS = (float, int)
"""What the user calls to have a number."""
_HOLDERS = (
    map, filter, zip, itertools.starmap, itertools.accumulate, functools.partial,
    type(functools.lru_cache(abs)), dict, list, tuple,
)  # fmt: skip
"""Objects in which functions are looked for."""
_OPERATORS = ("BINARY", "COMPARE", "CONVERT", "FORMAT", "STORE")
"""Instructions that make numbers of operands themselves: ``"%f" % t``."""
_DROPPING = ("DELETE", "JUMP_IF", "POP", "RAISE", "RETURN_VALUE", "STORE")
"""Instructions that take from the stack, and leave nothing there."""
_READING = ("LOAD_ATTR", "LOAD_METHOD", "FOR_ITER", "UNPACK", "GET_")
"""Instructions whose results are of what they take from the stack, though these are more."""
_MOST = 64
"""How many things in a holder are looked at."""
_DEEPEST = 3
"""How many holders in one another are looked through."""


class _Step(NamedTuple):
    """An instruction: where it stands in the code; its operand; where its expression begins and ends.

    That is in the source; in code without columns (``python -X no_debug_ranges``) among the instructions, as line -1.
    """

    offset: int
    opname: str
    operand: Any
    begin: tuple[int, int]
    end: tuple[int, int]


class _Path(NamedTuple):
    """A dotted name that an expression loads."""

    names: tuple[str, ...]
    begin: tuple[int, int]
    end: tuple[int, int]


def number_function(frame: types.FrameType, x: Any) -> tuple[str | None, str | None]:
    """Return the name of the function of numbers that a frame gives a tensor to, and which argument that is, if known.

    No name where the user asks for a number himself, or where the function's results have no gradient.
    """
    step = _step(frame)
    if step is None or step.opname.startswith(_OPERATORS):
        return None, None
    paths, calls = _paths(frame.f_code), set()
    if step.opname.startswith("CALL"):
        names = [name for path in paths if path.begin == step.begin for name in _functions(_value(frame, path.names))]
        if names:
            return _with_gradient(names), _argument(frame, step, x)
        calls = {other.begin for other in _steps(frame.f_code) if other.opname.startswith("CALL")}
    within = [path for path in paths if step.begin <= path.begin and path.end <= step.end]
    in_lines = [path for path in paths if step.begin[0] <= path.begin[0] <= step.end[0] and step.begin[0] >= 0]
    for named in (within, in_lines):
        names = [n for path in named if path.begin not in calls for n in _functions(_value(frame, path.names))]
        if names:
            return _with_gradient(names), None
    return None, None


def native_callee(frame: types.FrameType) -> Any:
    """Return the builtin function, method or class that a frame calls by a name, None if it does not."""
    step = _step(frame)
    if step is None or not step.opname.startswith("CALL"):
        return None
    called = [_value(frame, path.names) for path in _paths(frame.f_code) if path.begin == step.begin]
    return next(
        (x for x in called if isinstance(x, (type, types.BuiltinFunctionType, types.MethodDescriptorType))), None
    )


def _argument(frame: types.FrameType, step: _Step, x: Any) -> str | None:
    """Return which argument of a call a tensor is, by place and as it is written."""
    call = _written_call(frame, step)
    if call is None:
        return None
    for i, node in enumerate(call.args):
        known = _value(frame, (node.id,)) is x if isinstance(node, ast.Name) else len(call.args) == 1
        if known and not isinstance(node, ast.Starred):
            return f"argument {i + 1} ({ast.unparse(node)})"
    return None


def _written_call(frame: types.FrameType, step: _Step) -> ast.Call | None:
    """Return a call of a frame's, as its source has it."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[step.begin[0] - 1 : step.end[0]]
    if not lines or step.begin[0] < 0:
        return None
    source = [line.encode() for line in lines]
    source[-1] = source[-1][: step.end[1]]
    source[0] = source[0][step.begin[1] :]
    try:
        node = ast.parse(b"".join(source), mode="eval").body
    except SyntaxError:
        return None
    return node if isinstance(node, ast.Call) else None


def _with_gradient(names: list[str]) -> str | None:
    """Return the first of functions whose results have gradients; conversions are ""."""
    return next((name for name in names if name and name.rpartition(".")[2] not in _WITHOUT_GRADIENT), None)


def _functions(value: Any, deepest: int = _DEEPEST) -> Iterator[str]:
    """Yield the names of functions of numbers that a value is, or holds; "" for a conversion."""
    if value is complex:
        yield "complex"
    elif any(value is conversion for conversion in _CONVERSIONS):
        yield ""
    elif isinstance(value, types.ModuleType):
        if value.__name__ in MODULES:
            yield value.__name__
    elif isinstance(value, types.BuiltinFunctionType):
        if value.__module__ in MODULES:
            yield f"{value.__module__}.{value.__name__}"
    elif isinstance(value, _HOLDERS) and deepest:
        for held in itertools.islice(gc.get_referents(value), _MOST):
            yield from _functions(held, deepest - 1)


def _value(frame: types.FrameType, names: tuple[str, ...]) -> Any:
    """Return what a dotted name is in a frame, as far as no code has to run for that; None where it is not known."""
    spaces = (frame.f_locals, frame.f_globals, frame.f_builtins)
    value = next((space[names[0]] for space in spaces if names[0] in space), None)
    for name in names[1:]:
        is_module = isinstance(value, types.ModuleType)
        value = vars(value).get(name) if is_module else inspect.getattr_static(value, name, None)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
    return value


@functools.lru_cache(256)
def _steps(code: types.CodeType) -> tuple[_Step, ...]:
    """Return the instructions of which the source is known; if it is of none, all of them."""
    steps = []
    for step in dis.get_instructions(code):
        line, last, column, end = step.positions or (None,) * 4
        if line is not None and last is not None and column is not None and end is not None:
            steps.append(_Step(step.offset, step.opname, step.argval, (line, column), (last, end)))
    return tuple(steps or _steps_by_stack(code))


def _steps_by_stack(code: types.CodeType) -> Iterator[_Step]:
    """Yield the instructions: each expression begins where the first of what it takes from the stack does."""
    stack: list[int] = []
    at_targets: dict[Any, list[int]] = {}
    for step in dis.get_instructions(code):
        name, number = step.opname, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        stack = at_targets.get(step.offset, stack)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            effect = dis.stack_effect(step.opcode, number, jump=True)
            at_targets[step.argval] = stack[: len(stack) + effect] if effect < 0 else stack
        effect = dis.stack_effect(step.opcode, number, jump=False)
        taken = max(-effect, 0) + (not name.startswith(_DROPPING) and (effect <= 0 or name.startswith(_READING)))
        taken += name == "SEND"
        begin = min(stack[-taken:], default=step.offset) if taken else step.offset
        yield _Step(step.offset, name, step.argval, (-1, begin), (-1, step.offset))
        made = sys.maxsize if name == "PUSH_NULL" else begin
        stack = [*stack[: max(len(stack) - taken, 0)], *[made] * (taken + effect)]


def _step(frame: types.FrameType) -> _Step | None:
    """Return the instruction at which a frame is."""
    return next((step for step in _steps(frame.f_code) if step.offset == frame.f_lasti), None)


@functools.lru_cache(256)
def _paths(code: types.CodeType) -> tuple[_Path, ...]:
    """Return the dotted names that are loaded, each as far as it is one."""
    paths: list[_Path] = []
    is_open = False  # further attributes are those of the last one
    for step in _steps(code):
        if step.opname.startswith(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
            names = step.operand if isinstance(step.operand, tuple) else (step.operand,)
            paths += [_Path((name,), step.begin, step.end) for name in names]
            is_open = True
        elif is_open and paths[-1].begin == step.begin:
            is_open = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if is_open:
                paths[-1] = _Path((*paths[-1].names, step.operand), step.begin, step.end)
    return tuple(paths)
