"""The lines of the user's code from which this package was called."""

from __future__ import annotations

import linecache
import sys
import traceback
from threading import local
from types import CodeType, FrameType
from typing import Any, NamedTuple

from kernels import PACKAGES

Frames = tuple[tuple[CodeType, int], ...]
"""Code and line of each frame, outermost first."""


def _ours(frame: FrameType) -> bool:
    """Whether a frame runs this package's own code. The printed operators have no module."""
    module = frame.f_globals.get("__name__")
    if module is None:
        return frame.f_code.co_filename.startswith("<tape: ")
    return module.partition(".")[0] in PACKAGES and not module.startswith("tape.examples")


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


class LineTable:
    """Numbers the user's lines from which this package is called; ``lines`` has files, numbers in them, and sources."""

    def __init__(self, lines: list[tuple[str, int, str]]) -> None:
        self.lines = lines
        self._codes: dict[int, tuple[CodeType, bool]] = {}
        """Codes by their ids, and whether they are this package's own."""
        self._numbers: dict[tuple[str, int], int] = {}
        self.known: dict[tuple[int, int], int] = {}
        """The numbers of lines, by the id of the user's code and the instruction: to work out the line takes longer."""

    def number(self, frame: FrameType | None) -> int:
        """Return the number of the user's line that stands above a frame, or in it; -1 where there is none."""
        while frame is not None:
            code = frame.f_code
            known = self._codes.get(id(code))
            if known is None:
                known = self._codes[id(code)] = code, _ours(frame)
            if not known[1]:
                break
            frame = frame.f_back
        else:
            return -1
        key = id(code), frame.f_lasti
        number = self.known.get(key)
        if number is None:
            line = code.co_filename, frame.f_lineno
            number = self.known[key] = self._numbers.setdefault(line, len(self.lines))
            if number == len(self.lines):
                self.lines.append((*line, linecache.getline(*line).strip()))
        return number


# A log of the operations that run in a thread, kept while somebody asks: what a public function consists of.


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


def log_incomplete() -> None:
    """Log that the function did more than run operations, such as warn: the log does not describe all of it."""
    if runs.log is not None:
        runs.log.append(Run(None, (), None, ()))
