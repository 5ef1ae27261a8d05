"""Python's bytecode as the tracer reads it, the place in the user's code that called, and a log of operations.

What is not known about an instruction is taken at its worst: it may go on everywhere that it could, and reads all
locals.
"""

from __future__ import annotations

import dis
import linecache
import sys
import traceback
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from threading import local
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from kernels import PACKAGES
from kernels.native.structs import NODE_MASK, OWN_CODE, RecorderTables, StepWords
from kernels.programs.program import Lines, Words
from kernels.programs.recording import Tables

_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
ENDS = frozenset((*_JUMPS, "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"))
"""Instructions after which the next one does not follow."""
_PREFIXES = frozenset(("EXTENDED_ARG", "PRECALL", "CACHE", "NOT_TAKEN"))  # what belongs to the next instruction
_SKIPPED = frozenset(("END_FOR", "POP_TOP", "POP_ITER"))
"""What for loops end with: how much of that they jump over depends on the version and the iterator."""
_LOADS = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"))
_PAIRS = {
    f"{one}_{other}": (one, other) for one in ("LOAD_FAST", "STORE_FAST") for other in ("LOAD_FAST", "STORE_FAST")
}
_PAIRS["LOAD_FAST_BORROW_LOAD_FAST_BORROW"] = "LOAD_FAST", "LOAD_FAST"
"""Two instructions in one."""
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
"""Comparisons, and the same with the operands exchanged."""
_READERS = frozenset(("locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "breakpoint"))
"""Functions that read the locals of their caller."""


class CodeStep(NamedTuple):
    """An instruction, or half of one of two: where it is, its name and value, its line, where it may jump.

    ``arg`` is the number that is in the bytecode.
    """

    offset: int
    name: str
    value: Any
    line: int | None
    target: int | None
    arg: int


def steps_of(code: CodeType) -> tuple[list[CodeStep], dict[int, int]]:
    """Return the instructions of a code object, and the number of each by its offset and those of its prefixes."""
    steps: list[CodeStep] = []
    numbers: dict[int, int] = {}
    start: int | None = None
    for step in dis.get_instructions(code):
        numbers[step.offset] = len(steps)
        start = step.offset if start is None else start
        if step.opname not in _PREFIXES:
            jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
            line = step.positions.lineno if step.positions else None
            steps += _single(step, start, line, step.argval if jumps else None)
            start = None
    return steps, numbers


def _single(step: dis.Instruction, start: int, line: int | None, target: int | None) -> Iterator[CodeStep]:
    if step.opname in _PAIRS and isinstance(step.argval, tuple):
        for name, value in zip(_PAIRS[step.opname], step.argval, strict=True):
            yield CodeStep(start, name, value, line, None, 0)
    else:
        name = "LOAD_CONST" if step.opname == "LOAD_SMALL_INT" else step.opname
        value = step.argrepr if step.opname == "BINARY_OP" else step.argval
        value = step.arg if step.opname == "LOAD_SMALL_INT" else value
        name = "LOAD_FAST" if name == "LOAD_FAST_BORROW" else name
        yield CodeStep(start, name, value, line, target, step.arg or 0)


class ControlFlow:
    """The flow of a code object. Instructions are named by their numbers in ``steps``."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.steps, self.number = steps_of(code)
        self.handlers: list[tuple[int, ...]] = self._handlers()  # where each instruction goes on if it raises
        self.next: list[tuple[int, ...]] = [tuple(self._next(i)) for i in range(len(self.steps))]
        """Where it goes on otherwise."""
        self.after = [(*both[0], *both[1]) for both in zip(self.next, self.handlers, strict=True)]
        self.before: list[list[int]] = [[] for _ in self.steps]  # those that it may follow
        for i, after in enumerate(self.after):
            for j in after:
                self.before[j].append(i)
        self.targets = {self.number[step.target] for step in self.steps if step.target is not None}
        self.always_live = frozenset((*code.co_cellvars, *code.co_freevars))
        if reads_locals(code) or any(_reads(step) is None for step in self.steps):
            self.always_live |= frozenset(code.co_varnames)
        self._past: dict[int, set[int]] = {}
        self._live: list[frozenset[str]] | None = None

    def _handlers(self) -> list[tuple[int, ...]]:
        entries: Any = dis.Bytecode(self.code).exception_entries  # type: ignore[attr-defined]
        return [
            tuple([self.number[e.target] for e in entries if e.start <= step.offset < e.end]) for step in self.steps
        ]

    def _next(self, i: int) -> Iterator[int]:
        step = self.steps[i]
        if step.name not in ENDS and i + 1 < len(self.steps):
            yield i + 1
        if step.target is not None:
            target = self.number[step.target]
            yield target
            while self.steps[target].name in _SKIPPED and step.name == "FOR_ITER":
                target += 1
                yield target

    def live(self, i: int) -> frozenset[str]:
        """Return the names of the locals that may be read, from an instruction on, before they are stored."""
        if self._live is None:
            self._live = self._find_live()
        return self._live[i]

    def read_within(self, i: int, region: Container[int]) -> frozenset[str]:
        """Return the names of the locals that are read, from an instruction on, before a region is left."""
        return self._find_live(region)[i]

    def _find_live(self, region: Container[int] | None = None) -> list[frozenset[str]]:
        within = [i for i in range(len(self.steps) - 1, -1, -1) if region is None or i in region]
        live, changed = [frozenset[str]()] * len(self.steps), True
        for i in within:
            live[i] = self.always_live
        while changed:
            changed = False
            for i in within:
                now = self._live_before(i, live)
                if now != live[i]:
                    live[i], changed = now, True
        return live

    def _live_before(self, i: int, live: list[frozenset[str]]) -> frozenset[str]:
        step = self.steps[i]
        after = self.always_live.union(*[live[j] for j in self.next[i]])
        if step.name == "STORE_FAST":
            after -= {step.value}
        return after.union(self.always_live, _reads(step) or (), *[live[j] for j in self.handlers[i]])

    def heads(self) -> list[int]:
        """Return the instructions at which loops begin: some lead back to them."""
        targets = {j for i, after in enumerate(self.next) for j in after if j <= i and j in self.targets}
        return [head for head in sorted(targets) if self.back(head)]

    def back(self, head: int) -> list[int]:
        """Return the instructions that lead back to one.

        A jump backward need not be one: handlers stand at the end of the code, and go on before it.
        """
        return self.through(head, self.before[head])

    def through(self, head: int, steps: Iterable[int]) -> list[int]:
        """Return those instructions that are reached through one alone."""
        if head not in self._past:
            self._past[head] = _reached([0], head, self.after) - {head}
        return [i for i in steps if i not in self._past[head]]

    def body(self, head: int) -> frozenset[int]:
        """Return the instructions from which a head is reached again without passing it, and the head."""
        return self.leading_to(self.back(head), head)

    def leading_to(self, pending: Iterable[int], last: int) -> frozenset[int]:
        """Return the instructions from which some can be reached without passing the last, and that."""
        return frozenset(_reached(pending, last, self.before))


def _reached(begin: Iterable[int], last: int, ways: Sequence[Iterable[int]]) -> set[int]:
    """Return what can be reached by some ways without passing the last, and that."""
    reached, pending = {last}, list(begin)
    while pending:
        i = pending.pop()
        if i not in reached:
            reached.add(i)
            pending += ways[i]
    return reached


def reads_locals(code: CodeType) -> bool:
    """Return whether code names a function that reads the locals of its caller."""
    return not _READERS.isdisjoint(code.co_names)


def _reads(step: CodeStep) -> tuple[str, ...] | None:
    if step.name in _LOADS:
        return (step.value,)
    if step.name == "STORE_FAST" or not touches_locals(step):
        return ()
    return None


def touches_locals(step: CodeStep) -> bool:
    """Return whether an instruction is one of those that read or write a local; cells are always live."""
    return dis.opmap.get(step.name) in dis.haslocal and not step.name.endswith("_DEREF")


# The lines of the user's code from which this package was called.

Frames = tuple[tuple[CodeType, int], ...]  # code and line of each frame, outermost first


def _ours(frame: FrameType) -> bool:
    """Whether a frame runs this package's own code. The printed operators have no module."""
    module = frame.f_globals.get("__name__")
    if module is None:
        return frame.f_code.co_filename.startswith("<tape: ")
    return module.partition(".")[0] in PACKAGES and not module.startswith("tape.examples")


def package_of(module: Any) -> str:
    """Return the package of a module, by its name; none for those whose objects hold what users change."""
    return "" if f"{module}.".startswith("tape.nn.") else str(module).partition(".")[0]


def users_frame(frame: FrameType | None) -> tuple[FrameType | None, int]:
    """Return the user's frame that stands above a frame of ours, and how far."""
    steps = 0
    while frame is not None and _ours(frame):
        frame, steps = frame.f_back, steps + 1
    return frame, steps


def frames() -> Frames:
    """Return the frames of the user's code, and of what called it."""
    frame, _ = users_frame(sys._getframe(1))
    stack = []
    while frame is not None:
        stack.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(stack))


def stack_level() -> int:
    """Return the ``stacklevel`` by which a warning of the function that calls this names the user's line."""
    return users_frame(sys._getframe(1))[1] + 1


def formatted(stack: Frames) -> str:
    """Print frames as Python's tracebacks do."""
    summary = [traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in stack]
    return "".join(traceback.StackSummary.from_list(summary).format())


def line_of(stack: Frames) -> str:
    """Return the innermost line as ``file:number: text``."""
    if not stack:
        return "unknown"
    code, line = stack[-1]
    text = linecache.getline(code.co_filename, line).strip()
    return f"{code.co_filename}:{line}" + (f": {text}" if text else "")


def _lines_of(code: CodeType) -> list[int]:
    """Return the line of each instruction of a code."""
    lines = [code.co_firstlineno] * (len(code.co_code) // 2)
    for low, high, line in code.co_lines():
        if line is not None:
            lines[low // 2 : high // 2] = [line] * ((high - low) // 2)
    return lines


_MOST_CODES = 64  # codes that native code knows


class LineMarks:
    """Marks of the steps of a recording: as of which instruction of the user's code they are.

    Native code marks, too, as long as it is called from the same code.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self._marks, self._known = tables, Words(), Words()
        self._codes: list[CodeType] = []  # the user's, by number
        self._numbers: dict[int, int] = {}  # by id of the code; -1 for this package's own
        self._seen: list[CodeType] = []  # their ids stay theirs
        if tables.words is not None:
            me = ref(self)
            self._mark = lambda: me().mark(sys._getframe(1))  # type: ignore[union-attr]
            tables.words[RecorderTables.marks] = self._marks.head.buffer_info()[0]
            tables.words[RecorderTables.codes] = self._known.head.buffer_info()[0]
            tables.words[RecorderTables.mark] = id(self._mark)

    def mark(self, frame: FrameType) -> None:
        """Mark the steps that follow as of the user's instruction that stands above a frame, or in it."""
        number, above = self._number(frame), frame
        while number < 0 and above.f_back is not None:
            above = above.f_back
            number = self._number(above)
        mark = (number << NODE_MASK.bit_length()) + above.f_lasti if number >= 0 else -1
        self._marks.reserve(2)
        if mark != self._marks.last:
            self._marks.append(array("q", (self._tables.steps.head[StepWords.used], mark)))
        if self._tables.words is not None:
            self._tables.words[RecorderTables.marked] = mark

    def _number(self, frame: FrameType) -> int:
        """Return the number of a frame's code; -1 if it is this package's own."""
        code = frame.f_code
        number = self._numbers.get(id(code))
        if number is None:
            number = self._numbers[id(code)] = -1 if _ours(frame) else len(self._codes)
            self._seen.append(code)
            self._codes += [code] * (number >= 0)
            if len(self._seen) <= _MOST_CODES:
                bits = OWN_CODE if number < 0 else number << NODE_MASK.bit_length()
                self._known.append(array("q", (id(code), bits)))
        return number

    def fill(self, lines: Lines) -> None:
        """Look the marked lines up, and mark steps as of these."""
        begins, marks = np.frombuffer(self._marks.words, np.int64).reshape(-1, 2).T
        codes, of_codes = self._codes, list(map(_lines_of, self._codes))
        starts = np.cumsum([1, *map(len, of_codes)])
        places = np.where(marks < 0, 0, starts[marks >> NODE_MASK.bit_length()] + (marks & NODE_MASK) // 2)
        numbers, known = np.full(starts[-1], -1), dict[tuple[str, int], int]()
        for place in np.flatnonzero(np.bincount(places, minlength=starts[-1])).tolist():
            if place:
                code = int(np.searchsorted(starts, place, "right")) - 1
                line = codes[code].co_filename, of_codes[code][place - starts[code]]
                numbers[place] = known.setdefault(line, len(known))
        lines.table[:] = [(*line, linecache.getline(*line).strip()) for line in known]
        of_marks = numbers[places]
        changes = np.flatnonzero(np.diff(of_marks, prepend=-2))
        lines.begins, lines.numbers = (array("q", column[changes].tolist()) for column in (begins, of_marks))


class Run(NamedTuple):
    """An operation that ran: its operands, its parameters, and its results, one tensor or a pair."""

    op: Any
    operands: tuple[Any, ...]
    params: Any
    results: tuple[Any, ...]


class _Runs(local):
    """The operations that ran in this thread since somebody asked for them; None where nobody does."""

    log: list[Run] | None = None


runs = _Runs()


def log_operation(op: Any, operands: tuple[Any, ...], params: Any, results: tuple[Any, ...]) -> None:
    """Log an operation that ran, if somebody asks."""
    if runs.log is not None:
        runs.log.append(Run(op, operands, params, results))


def log_results(*results: Any) -> None:
    """Log further results of the operation that was logged last."""
    if runs.log is not None:
        runs.log[-1] = runs.log[-1]._replace(results=(*runs.log[-1].results, *results))


def log_incomplete() -> None:
    """Log that the function did more than run operations, such as warn: the log does not describe all of it."""
    if runs.log is not None:
        runs.log.append(Run(None, (), None, ()))
