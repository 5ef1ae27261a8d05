"""What a program spends its time on, by operation, by what repeats and by line; as tables, and for speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernels.kinds.routine import Unsettled
from kernels.programs.interpreter.machine import CallTimes, call_times
from kernels.programs.recording.flow import Groups, groups_of
from kernels.programs.recording.program import ProgramError, Recipe
from tape.tensors.tensor import Tensor

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_SHOWN = 20
"""Rows of a table; the rest is summed."""


@dataclass(slots=True)
class Entry:
    """What the calls of one group are: how many, the bytes of what they name, nanoseconds forward and back."""

    name: str
    calls: int = 0
    bytes: int = 0
    forward: float = 0.0
    reverse: float = 0.0

    @property
    def nanoseconds(self) -> float:
        """Nanoseconds, forward and back."""
        return self.forward + self.reverse


@dataclass(slots=True)
class Profile:
    """The calls of a program, timed one by one; ``print`` it for tables.

    ``groups`` has entries by operation (pullbacks under their names), by what repeats and, if lines are kept, by line,
    the longest first. ``nanoseconds`` is the sum, ``whole`` what all of it took together, run as usual: times of
    calls are the least of some repetitions, and those of a few nanoseconds are below what a clock can tell.
    """

    groups: dict[str, list[Entry]]
    whole: int
    repetitions: int
    _stacks: list[tuple[tuple[int, ...], float]] = field(repr=False)
    _frames: list[dict[str, Any]] = field(repr=False)

    @property
    def nanoseconds(self) -> float:
        """The times of all calls."""
        return sum(entry.nanoseconds for entry in self.groups["operation"])

    def speedscope(self, path: Any) -> None:
        """Write a file for https://www.speedscope.app: calls in their order, below their lines and what repeats."""
        total = sum(weight for _, weight in self._stacks)
        profile = {
            "type": "sampled",
            "name": "calls",
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": total,
            "samples": [list(stack) for stack, _ in self._stacks],
            "weights": [weight for _, weight in self._stacks],
        }
        file = {"$schema": _SCHEMA, "shared": {"frames": self._frames}, "profiles": [profile], "exporter": "tape"}
        Path(path).write_text(json.dumps(file), encoding="utf-8")

    def __str__(self) -> str:
        calls = sum(entry.calls for entry in self.groups["operation"])
        head = f"{calls:,} calls, {_time(self.nanoseconds)}; together {_time(self.whole)}"
        tables = [_table(f"by {name}", entries, self.nanoseconds) for name, entries in self.groups.items()]
        return "\n\n".join([head, *tables])


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:,.1f} us"


def _table(title: str, entries: list[Entry], total: float) -> str:
    shown = entries[:_SHOWN]
    if rest := entries[_SHOWN:]:
        shown = [*shown, _sum(f"{len(rest)} more", rest)]
    width = max(len(title), *(len(entry.name) for entry in shown)) if shown else len(title)
    lines = [f"{title:<{width}} {'calls':>10} {'bytes':>14} {'forward':>14} {'reverse':>14} {'share':>6}"]
    for e in shown:
        share = f"{100 * e.nanoseconds / total:.0f} %" if total else ""
        times = f"{_time(e.forward):>14} {_time(e.reverse):>14}"
        lines.append(f"{e.name:<{width}} {e.calls:>10,} {e.bytes:>14,} {times} {share:>6}")
    return "\n".join(lines)


def _sum(name: str, entries: Iterable[Entry]) -> Entry:
    total = Entry(name)
    for e in entries:
        total.calls, total.bytes = total.calls + e.calls, total.bytes + e.bytes
        total.forward, total.reverse = total.forward + e.forward, total.reverse + e.reverse
    return total


def profiled(recipe: Recipe, arguments: Sequence[Any], expected: Sequence[Any], *, reverse: bool) -> Profile:
    """Return the profile of a program on these arguments; ProgramError if the results are not those expected."""
    values = [x._value if isinstance(x, Tensor) else x for x in arguments]
    try:
        times = call_times(recipe, values, reverse=reverse)
    except Unsettled:
        msg = "replays leave the way back at equal eigenvalues or singular values to dynamic mode: profile other values"
        raise ProgramError(msg) from None
    results = [*times.outputs, *(g + g.dtype.type(0.0) for g in times.gradients)]
    for result, other in zip(results, expected, strict=True):
        if not np.array_equal(result, other, equal_nan=result.dtype.kind == "f"):
            raise ProgramError("profile: calls that ran one by one gave another result than those of a usual call")
    groups = groups_of(recipe)
    stacks, frames = _stacks(recipe, groups, times)
    return Profile(_entries(recipe, groups, times), times.whole, times.repetitions, stacks, frames)


def _names(recipe: Recipe, groups: Groups) -> list[str]:
    """Return what the pullbacks of each step are called."""
    kinds = [kind.op.name if kind.form is None else kind.form.name for kind in recipe.steps.kinds]
    return [kinds[recipe.steps.words[start]] for start in recipe.steps.starts] if groups.operations else []


def _entries(recipe: Recipe, groups: Groups, times: CallTimes) -> dict[str, list[Entry]]:
    tables: dict[str, list[Entry]] = {}
    pullbacks = _names(recipe, groups)
    for by, names in groups.named().items():
        entries: dict[str, Entry] = {}
        triples = zip(times.steps.tolist(), times.nanoseconds.tolist(), times.bytes.tolist(), strict=True)
        for k, (step, nanoseconds, size) in enumerate(triples):
            forward = k < times.forward
            name = pullbacks[step] if by == "operation" and not forward else names[step]
            entry = entries.setdefault(name, Entry(name))
            entry.calls += 1
            entry.bytes += size
            if forward:
                entry.forward += nanoseconds
            else:
                entry.reverse += nanoseconds
        tables[by] = sorted(entries.values(), key=lambda entry: -entry.nanoseconds)
    return tables


def _stacks(
    recipe: Recipe, groups: Groups, times: CallTimes
) -> tuple[list[tuple[tuple[int, ...], float]], list[dict[str, Any]]]:
    """Return the calls in order, each below what it is in, by numbers of frames, and the frames; like ones joined."""
    frames: dict[tuple[Any, ...], int] = {}
    stacks: list[tuple[tuple[int, ...], float]] = []
    numbers = None if recipe.lines is None else recipe.lines.of_steps(recipe.steps).tolist()
    pullbacks = _names(recipe, groups)
    for k, (step, nanoseconds) in enumerate(zip(times.steps.tolist(), times.nanoseconds.tolist(), strict=True)):
        names: list[tuple[Any, ...]] = [("forward" if k < times.forward else "reverse",)]
        names += [(block,) for block in groups.blocks[step]]
        if recipe.lines is not None and numbers is not None and numbers[step] >= 0:
            file, line, _ = recipe.lines.table[numbers[step]]
            names.append((groups.lines[step], file, line))
        names.append((groups.operations[step] if k < times.forward else pullbacks[step],))
        stack = tuple([frames.setdefault(name, len(frames)) for name in names])
        if stacks and stacks[-1][0] == stack:
            stacks[-1] = stack, stacks[-1][1] + nanoseconds
        else:
            stacks.append((stack, nanoseconds))
    return stacks, [dict(zip(("name", "file", "line"), frame, strict=False)) for frame in frames]
