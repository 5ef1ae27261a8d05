"""The time and the memory of a program's steps, as tables, as a page, and for speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from kernels.kinds.routine import Unsettled
from kernels.machine_code.compiled_machine import memory_use
from kernels.programs.machine import CallTimes, call_times
from kernels.programs.program import ProgramError, Recipe, listing_head, listing_line, listing_return
from kernels.programs.steps import Groups, Repeat, flow_of, groups_of, representatives
from tape.tensors.tensor import Tensor

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_SHOWN = 20  # rows of a table; the rest is summed


@dataclass(slots=True)
class CallGroup:
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
    """The calls of a program, timed one by one; ``print`` it for tables, :meth:`to_html` is a page.

    ``groups`` has entries by operation (pullbacks under their names), by what repeats and, if lines are kept, by line,
    the longest first. ``nanoseconds`` is the sum, ``whole`` what all of it took together, run as usual: times of
    calls are the least of some repetitions, and those of a few nanoseconds are below what a clock can tell.
    """

    groups: dict[str, list[CallGroup]]
    whole: int
    repetitions: int
    _recipe: Recipe = field(repr=False)
    _times: CallTimes = field(repr=False)
    _called: list[str] = field(repr=False)
    _reverse: bool = field(repr=False)

    @property
    def nanoseconds(self) -> float:
        """The times of all calls."""
        return sum(entry.nanoseconds for entry in self.groups["operation"])

    def to_html(self, path: Any = None) -> str:
        """Return a page, and write it to a path: the listing with the time and the memory of each operation beside it.

        Operations that repeat, as those of a loop, stand once, below a line with their count that folds them. Bytes are
        those of values and gradients that an operation makes, which is not what it reads; below are the tables of
        ``print(profile)`` and ``print(program.memory(reverse=...))``. The page needs no network and runs no script.
        A notebook shows it.

        >>> import tape
        >>> page = tape.record(lambda x: x.exp(), 1.0).profile(1.0).to_html()
        >>> "%1 = exp %0" in page
        True
        """
        head = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        page = (
            f"{head}\n<title>Profile of {len(self._recipe.steps):,} operations</title>\n{self._repr_html_()}</html>\n"
        )
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the page without its head."""
        return _Page(self).text()

    def speedscope(self, path: Any) -> None:
        """Write a file for https://www.speedscope.app: calls in their order, below their lines and what repeats."""
        stacks, frames = _stacks(self._recipe, groups_of(self._recipe), self._times, self._called)
        samples, weights = [list(stack) for stack, _ in stacks], [weight for _, weight in stacks]
        profile = {
            "type": "sampled", "name": "calls", "unit": "nanoseconds", "startValue": 0, "endValue": sum(weights),
            "samples": samples, "weights": weights,
        }  # fmt: skip
        file = {"$schema": _SCHEMA, "shared": {"frames": frames}, "profiles": [profile], "exporter": "tape"}
        Path(path).write_text(json.dumps(file), encoding="utf-8")

    def __str__(self) -> str:
        tables = [_table(f"by {name}", entries, self.nanoseconds) for name, entries in self.groups.items()]
        return "\n\n".join([self._head(), *tables])

    def _head(self) -> str:
        calls = sum(entry.calls for entry in self.groups["operation"])
        return f"{calls:,} calls, {_time(self.nanoseconds)}; together {_time(self.whole)}"


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:,.1f} us"


def _table(title: str, entries: list[CallGroup], total: float) -> str:
    shown = entries[:_SHOWN]
    if rest := entries[_SHOWN:]:
        columns = zip(*[(e.calls, e.bytes, e.forward, e.reverse) for e in rest], strict=True)
        shown = [*shown, CallGroup(f"{len(rest)} more", *map(sum, columns))]
    width = max(len(title), *(len(entry.name) for entry in shown)) if shown else len(title)
    lines = [f"{title:<{width}} {'calls':>10} {'bytes':>14} {'forward':>14} {'reverse':>14} {'share':>6}"]
    for e in shown:
        share = f"{100 * e.nanoseconds / total:.0f} %" if total else ""
        times = f"{_time(e.forward):>14} {_time(e.reverse):>14}"
        lines.append(f"{e.name:<{width}} {e.calls:>10,} {e.bytes:>14,} {times} {share:>6}")
    return "\n".join(lines)


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
    groups, steps = groups_of(recipe), recipe.steps
    pullbacks = steps.each([kind.op.name if kind.form is None else kind.form.name for kind in steps.kinds])
    names = [(pullbacks if k >= times.forward else groups.operations)[step] for k, step in enumerate(times.steps)]
    entries = _entries(groups, times, names)
    return Profile(entries, times.whole, times.repetitions, recipe, times, names, reverse)


def _entries(groups: Groups, times: CallTimes, called: list[str]) -> dict[str, list[CallGroup]]:
    tables: dict[str, list[CallGroup]] = {}
    for by, names in groups.named().items():
        entries: dict[str, CallGroup] = {}
        triples = zip(times.steps.tolist(), times.nanoseconds.tolist(), times.bytes.tolist(), strict=True)
        for k, (step, nanoseconds, size) in enumerate(triples):
            name = called[k] if by == "operation" else names[step]
            entry = entries.setdefault(name, CallGroup(name))
            entry.calls += 1
            entry.bytes += size
            if k < times.forward:
                entry.forward += nanoseconds
            else:
                entry.reverse += nanoseconds
        tables[by] = sorted(entries.values(), key=lambda entry: -entry.nanoseconds)
    return tables


def _stacks(
    recipe: Recipe, groups: Groups, times: CallTimes, called: list[str]
) -> tuple[list[tuple[tuple[int, ...], float]], list[dict[str, Any]]]:
    """Return the calls in order, each below what it is in, by numbers of frames, and the frames; like ones joined."""
    frames: dict[tuple[Any, ...], int] = {}
    stacks: list[tuple[tuple[int, ...], float]] = []
    numbers = None if recipe.lines is None else recipe.lines.of_steps(recipe.steps).tolist()
    for k, (step, nanoseconds) in enumerate(zip(times.steps.tolist(), times.nanoseconds.tolist(), strict=True)):
        names: list[tuple[Any, ...]] = [("forward" if k < times.forward else "reverse",)]
        names += [(block,) for block in groups.blocks[step]]
        if recipe.lines is not None and numbers is not None and numbers[step] >= 0:
            file, line, _ = recipe.lines.table[numbers[step]]
            names.append((groups.lines[step], file, line))
        names.append((called[k],))
        stack = tuple([frames.setdefault(name, len(frames)) for name in names])
        if stacks and stacks[-1][0] == stack:
            stacks[-1] = stack, stacks[-1][1] + nanoseconds
        else:
            stacks.append((stack, nanoseconds))
    return stacks, [dict(zip(("name", "file", "line"), frame, strict=False)) for frame in frames]


# The page: a row for each operation, those of a loop below a row that folds them.

_STYLE = """
.tape-profile { font: 13px/1.6 ui-monospace, monospace; overflow-x: auto; }
.tape-profile .row { display: grid; grid-template-columns: 38em 30em 5em repeat(3, 10em); gap: 0 1em; }
.tape-profile .row { white-space: pre; }
.tape-profile .row > * { overflow: hidden; text-overflow: ellipsis; }
.tape-profile .row > :nth-child(n + 3) { text-align: right; padding-right: 0.5em;
  background: linear-gradient(to right, #4a8fe780 var(--share, 0%), transparent 0); }
.tape-profile .row > :last-child { background: linear-gradient(to right, #e78f4a80 var(--share, 0%), transparent 0); }
.tape-profile .row:hover { outline: 1px dotted; }
.tape-profile summary { cursor: pointer; font-weight: bold; }
"""
_TITLES = ("operation", "line", "times", "forward", "reverse", "bytes")
_CAPTION = (
    "A loop stands once, with the sums of its iterations; loop_begin has the time of a loop recorded as one. Bars are "
    "shares of all time and of all bytes, which are those of the values and gradients that operations make; they share "
    "a block of {:,} bytes."
)
_MOST_ROWS = 5_000  # of operations; the rest is in the sums alone


class _Page:
    """Writes the page of a profile. Figures of an operation that repeats are the sums of its copies."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.recipe, times = profile, profile._recipe, profile._times
        lines, count = self.recipe.lines, len(self.recipe.steps)
        self.memory = memory_use(self.recipe, reverse=profile._reverse)
        self.numbers = None if lines is None else lines.of_steps(self.recipe.steps)
        self.repeats = flow_of(self.recipe, self.numbers).repeats
        standing = representatives(self.repeats, 0, count)
        forward, back = slice(times.forward), slice(times.forward, None)
        spent = [np.bincount(standing[times.steps[t]], times.nanoseconds[t], count) for t in (forward, back)]
        sizes = np.bincount(standing, self.memory.steps, count)
        self.figures = np.array([np.bincount(standing, minlength=count), *spent, sizes])
        """A column an operation: how often it runs, its nanoseconds forward and back, and bytes."""
        self.sums, self.left, self.line = self.figures.sum(1).tolist(), _MOST_ROWS, -1

    def text(self) -> str:
        """Return the page."""
        titles = "".join(f"<b>{title}</b>" for title in _TITLES)
        head, *constants = listing_head(self.recipe)
        rows = [f'<div class="row">{titles}</div>', self._row(head, self.sums), *map(self._row, constants)]
        rows += self._rows(self.repeats, 0, self.figures.shape[1], "")
        if self.left < 0:
            rows.append(self._row(f"  ... and {-self.left:,} more, which the sums above count"))
        rows.append(self._row(listing_return(self.recipe)))
        tables = [f"<pre>{escape(str(thing))}</pre>" for thing in (self.profile, self.memory)]
        caption = f"<p>{_CAPTION.format(self.memory.block)}</p>"
        return "\n".join([f'<div class="tape-profile"><style>{_STYLE}</style>', *rows, caption, *tables, "</div>"])

    def _rows(self, repeats: Iterable[Repeat], low: int, high: int, indent: str) -> Iterator[str]:
        at = low
        for repeat in repeats:
            yield from self._steps(range(at, repeat.start), indent)
            end = repeat.start + repeat.length
            sums = [repeat.count, *self.figures[1:, repeat.start : end].sum(1).tolist()]
            yield f"<details open>{self._row(f'  {indent}loop, {repeat.count:,} times', sums, kind='summary')}"
            yield from self._rows(repeat.inner, repeat.start, end, f"  {indent}")
            yield "</details>"
            at = repeat.stop
        yield from self._steps(range(at, high), indent)

    def _steps(self, steps: Iterable[int], indent: str) -> Iterator[str]:
        for at in steps:
            self.left -= 1
            if self.left >= 0:
                line, source = -1 if self.numbers is None else int(self.numbers[at]), ""
                if line != self.line and self.recipe.lines is not None:
                    source = self.recipe.lines.text(line, short=True)
                self.line = line
                text = f"{indent}{listing_line(self.recipe, self.recipe.steps[at])}"
                yield self._row(text, self.figures[:, at].tolist(), source)

    def _row(self, text: str, figures: Sequence[float] = (), source: str = "", *, kind: str = "div") -> str:
        """Return a row; the bars behind times are shares of all time, that behind bytes of all bytes."""
        cells = [escape(text), escape(source), "", "", "", ""]
        shares = [0.0] * len(cells)
        if figures:
            runs, forward, reverse, size = figures
            cells[2:] = [f"{runs:,.0f}", _time(forward), _time(reverse), f"{size:,.0f}"]
            spent = (self.sums[1] + self.sums[2]) or 1.0
            shares[3:] = [forward / spent, reverse / spent, size / (self.sums[3] or 1.0)]
        return f'<{kind} class="row">{"".join(map(_cell, cells, shares))}</{kind}>'


def _cell(text: str, share: float) -> str:
    bar = f' style="--share: {100 * share:.1f}%"' if share else ""
    return f"<span{bar}>{text}</span>"
