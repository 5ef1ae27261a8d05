"""Profiles: whose each call is, counts and bytes worked out by hand, and files as speedscope's schema wants them.

No time is compared with another: only what must hold of any.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

import tape
from kernels.programs.machine import call_times
from tape.programs import profiling

pytestmark = pytest.mark.quick

N = 100
DATA = np.linspace(0.1, 1.0, N)


@njit
def squared(x: Any) -> Any:
    return x * x


@njit
def squared_vjp(g: Any, x: Any) -> Any:
    return 2.0 * x * g


def chain(x: Any, k: Any) -> Any:
    for _ in range(50):
        x = x + 0.1 * tape.sin(x * k)
    return x.sum()


def short(x: Any, k: Any) -> Any:
    for _ in range(3):
        x = x * k + tape.exp(-x)
    return (x[1:] * x[:-1]).mean()


def scalars(x: Any, k: Any) -> Any:
    y = x[0] * k
    for _ in range(60):
        y = tape.sqrt(y * y + 1.0) - k / y
    return y


def written(x: Any, k: Any) -> Any:
    y = tape.zeros(N)
    y[1:] = x[1:] * k
    y *= y
    y[np.array([0, 2])] = x[:2]
    return (y * x).sum()


def in_python(x: Any, k: Any) -> Any:
    values, _ = tape.sort(x * k)
    return values[:10].sum() + tape.linalg.norm(tape.stack([x, x * 2.0])) + x.float().sum()


def columns(x: Any, k: Any) -> Any:
    a = x.reshape(10, 10)
    return (tape.linalg.solve(a @ a.T + tape.eye(10), a[0]) * k).sum() + a.max()


FUNCTIONS = [chain, short, scalars, written, in_python, columns]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_belongs_to_an_operation(function: Callable[..., Any], reverse: bool) -> None:
    """Forward they are in the order of the operations, and write to what these make; back in the other order."""
    program = tape.record(function, DATA, 2.0)
    recipe = program._recipe
    times = call_times(recipe, [DATA, 2.0], reverse=reverse)
    owners, split = times.steps.tolist(), times.forward
    assert owners[:split] == sorted(owners[:split])
    assert owners[split:] == sorted(owners[split:], reverse=True)
    assert (split < len(owners)) == reverse
    silent = {step.at for step in recipe.steps if step.form is not None and step.form.is_view}
    assert set(owners[:split]) == set(range(len(recipe.steps))) - silent - _rests(recipe)
    assert (times.nanoseconds >= 0).all()
    assert (times.bytes > 0).all()


def _rests(recipe: Any) -> set[int]:
    """Further results of a routine, which the first step of it computes."""
    steps = [step for step in recipe.steps if step.op.extras and not step.params[1:]]
    return {step.at + k for step in steps for k in range(1, 1 + len(step.op.extras))}


def counts(profile: Any, by: str = "operation") -> dict[str, int]:
    return {entry.name: entry.calls for entry in profile.groups[by]}


def test_calls_and_bytes_counted_by_hand() -> None:
    program = tape.record(lambda x, k: tape.sin(x * k).sum(), DATA, 2.0)
    profile = program.profile(DATA, 2.0)
    assert counts(profile) == {
        "multiply": 1,
        "sin": 1,
        "sum": 2,  # it starts from zero
        "SumBackward0": 3,  # the seed, for which its place is cleared
        "SinBackward0": 1,
        "MulBackward0": 3,  # for x and for k, whose gradient starts from zero
    }
    sizes = {entry.name: entry.bytes for entry in profile.groups["operation"]}
    vector, number = 8 * N, 8
    assert sizes["multiply"] == 2 * vector + number
    assert sizes["sin"] == 2 * vector
    assert sizes["SinBackward0"] == 3 * vector
    assert counts(program.profile(DATA, 2.0, reverse=False)) == {"multiply": 1, "sin": 1, "sum": 2}


def test_loops_and_lines() -> None:
    program = tape.record(lines=True)(chain, DATA, 2.0)
    profile = program.profile(DATA, 2.0)
    first = chain.__code__.co_firstlineno
    lines = counts(profile, "line")
    assert set(lines) == {
        f"{__file__}:{first + 2}: x = x + 0.1 * tape.sin(x * k)",
        f"{__file__}:{first + 3}: return x.sum()",
    }
    assert set(counts(profile, "block")) == {"50 times multiply .. add (4) from 0", "once"}
    for entries in profile.groups.values():
        assert sum(entry.calls for entry in entries) == sum(lines.values())
        np.testing.assert_allclose(sum(entry.nanoseconds for entry in entries), profile.nanoseconds)
        assert entries == sorted(entries, key=lambda entry: -entry.nanoseconds)
    assert (
        profile.groups["operation"][0].name
        == max(profile.groups["operation"], key=lambda entry: entry.forward + entry.reverse).name
    )
    assert profile.whole > 0
    assert profile.repetitions >= 3


@pytest.mark.parametrize("function", FUNCTIONS)
def test_tables_have_all(function: Callable[..., Any]) -> None:
    profile = tape.record(function, DATA, 2.0).profile(DATA, 2.0)
    text = str(profile)
    assert text.splitlines()[0].startswith(f"{sum(counts(profile).values()):,} calls, ")
    for entry in profile.groups["operation"]:
        (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == [entry.name]]
        assert row[1] == f"{entry.calls:,}"


def test_a_long_table_is_cut() -> None:
    entries = [profiling.CallGroup(f"n{k}", k, 1, 1.0, 2.0) for k in range(30)]
    lines = profiling._table("by line", entries, 90.0).splitlines()
    assert len(lines) == 22
    assert lines[-1].split()[:3] == ["10", "more", str(sum(range(20, 30)))]


REQUIRED = {  # as the published schema has it
    "file": {"$schema", "profiles", "shared"},
    "shared": {"frames"},
    "frame": {"name"},
    "sampled": {"type", "name", "unit", "startValue", "endValue", "samples", "weights"},
}
UNITS = {"bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"}


@pytest.mark.parametrize("lines", [False, True])
def test_a_file_for_speedscope(tmp_path: Path, lines: bool) -> None:
    profile = tape.record(lines=lines)(chain, DATA, 2.0).profile(DATA, 2.0)
    path = tmp_path / "chain.speedscope.json"
    profile.speedscope(path)
    file = json.loads(path.read_text(encoding="utf-8"))
    assert file.keys() >= REQUIRED["file"]
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert file["shared"].keys() >= REQUIRED["shared"]
    (sampled,) = file["profiles"]
    assert sampled.keys() == REQUIRED["sampled"]
    assert (sampled["type"], sampled["startValue"]) == ("sampled", 0)
    assert sampled["unit"] in UNITS
    assert len(sampled["samples"]) == len(sampled["weights"])
    np.testing.assert_allclose([sum(sampled["weights"]), sampled["endValue"]], profile.nanoseconds)
    frames = file["shared"]["frames"]
    assert all(frame.keys() >= REQUIRED["frame"] for frame in frames)
    assert len({json.dumps(frame) for frame in frames}) == len(frames)
    used = {k for sample in sampled["samples"] for k in sample}
    assert used == set(range(len(frames)))
    stacks = [[frames[k]["name"] for k in sample] for sample in sampled["samples"]]
    line = [f"{__file__}:{chain.__code__.co_firstlineno + 2}: x = x + 0.1 * tape.sin(x * k)"] * lines
    assert stacks[1] == ["forward", "50 times multiply .. add (4) from 0", *line, "sin"]
    assert [stack[0] for stack in stacks] == sorted(stack[0] for stack in stacks)  # forward, then reverse
    assert {frame["line"] for frame in frames if "line" in frame} == (
        {chain.__code__.co_firstlineno + 2, chain.__code__.co_firstlineno + 3} if lines else set()
    )


def test_operations_of_ones_own_and_nothing_at_all() -> None:
    square = tape.custom(squared, squared_vjp)
    profile = tape.record(lambda x: square(x).sum(), DATA).profile(DATA)
    assert counts(profile).items() >= {"squared": 1, "squaredBackward": 1, "sum": 2, "SumBackward0": 3}.items()
    assert counts(tape.record(lambda x: x, 1.0).profile(2.0, reverse=False)) == {}
    assert "0 calls" in str(tape.record(lambda x: x, 1.0).profile(2.0, reverse=False))


def test_arguments_stay_and_may_be_tensors() -> None:
    def changing(x: Any) -> Any:
        x *= 2.0
        return x.sum()

    program = tape.record(changing, DATA)
    x = DATA.copy()
    program.profile(x, reverse=False)
    assert (x == DATA).all()
    t = tape.tensor(DATA, requires_grad=True)
    profile = tape.record(chain, DATA, 2.0).profile(t, 2.0)
    assert counts(profile)["sin"] == 50
    assert t.grad is None


def test_what_cannot_be_called_cannot_be_profiled() -> None:
    program = tape.record(lambda x: x * 2.0, DATA)
    with pytest.raises(RuntimeError, match="one floating number"):
        program.profile(DATA)
    assert counts(program.profile(DATA, reverse=False)) == {"multiply": 1}
    with pytest.raises(TypeError, match="was recorded with"):
        program.profile(DATA[:3], reverse=False)
    pair = tape.record(lambda x: (x.sum(), x * 2.0), DATA)
    assert counts(pair.profile(DATA))["multiply"] == 1
    assert pair.value_and_grad(DATA, has_aux=True)[0][0] == DATA.sum()


def test_a_program_that_goes_wrong_call_by_call_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, **kwargs: Any) -> Any:
        times = call_times(*args, **kwargs)
        return dataclasses.replace(times, gradients=[g * 1.0001 for g in times.gradients])

    program = tape.record(chain, DATA, 2.0)
    monkeypatch.setattr(profiling, "call_times", wrong)
    with pytest.raises(RuntimeError, match="another result"):
        program.profile(DATA, 2.0)


def test_nan_is_the_same_result() -> None:
    program = tape.record(lambda x: tape.log(x).sum(), DATA)
    with np.errstate(invalid="ignore"):
        assert counts(program.profile(-DATA))["log"] == 1


def test_a_program_with_guards() -> None:
    @tape.compile
    def doubled(x: Any) -> Any:
        while int(x.sum()) < 40:
            x = x * 2.0
        return (x * x).sum()

    for _ in range(4):
        doubled(np.ones(3))
    (program,) = doubled.programs
    assert counts(program.profile(np.ones(3), reverse=False))["guard"] == 5
    with pytest.raises(RuntimeError, match="guard 0 stops the program"):
        program.profile(np.full(3, 2.0), reverse=False)
    shares = {share.name: (share.count, share.bytes) for share in program.memory().groups["operation"]}
    assert shares == {"sum": (6, 48), "multiply": (5, 120)}


def cells(page: str) -> list[tuple[str, ...]]:
    """Return the rows of a page, each as its texts."""
    rows = re.findall(r'<(?:div|summary) class="row">(.*?)</(?:div|summary)>', page)
    return [tuple(map(html.unescape, re.findall(r"<(?:span|b)[^>]*>(.*?)</(?:span|b)>", row))) for row in rows]


def test_a_page_has_the_listing_times_and_memory(tmp_path: Path) -> None:
    program = tape.record(lines=True)(chain, DATA, 2.0)
    profile, use = program.profile(DATA, 2.0), program.memory(reverse=True)
    page = profile.to_html(tmp_path / "chain.html")
    assert (tmp_path / "chain.html").read_text(encoding="utf-8") == page
    assert profile._repr_html_() in page
    rows = cells(page)
    assert rows[0] == ("operation", "line", "times", "forward", "reverse", "bytes")
    assert [row[0] for row in rows[1:3]] == ["program(%0: float64[100], %1: float64[])", "  loop, 50 times"]
    shown = [row[0].strip() for row in rows[3:]]
    lines = [line.strip() for line in str(program).splitlines()]
    first = 1 + lines.index(f"# {__file__}:{chain.__code__.co_firstlineno + 2}: x = x + 0.1 * tape.sin(x * k)")
    assert shown == [*lines[first : first + 4], *lines[-2:]]
    assert [row[1].partition(": ")[2] for row in rows if row[1]][1:] == [
        "x = x + 0.1 * tape.sin(x * k)",
        "return x.sum()",
    ]
    (blocks,) = [[e for e in profile.groups["block"] if e.name.startswith("50 times")]]
    (made,) = [share for share in use.groups["block"] if share.name.startswith("50 times")]
    times = profiling._time(blocks[0].forward), profiling._time(blocks[0].reverse)
    assert rows[2][2:] == ("50", *times, f"{made.bytes:,}")
    assert rows[1][2] == f"{len(program):,}"
    assert rows[1][5] == f"{sum(share.bytes for share in use.groups['block']):,}"
    assert f"block of {use.block:,} bytes" in page
    for text in (str(profile), str(use)):
        assert html.escape(text) in page
    assert "http" not in page
    assert "<script" not in page


@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_of_a_page_add_up(function: Callable[..., Any]) -> None:
    program = tape.record(function, DATA, 2.0)
    page = profiling._Page(program.profile(DATA, 2.0))
    runs, forward, reverse, size = page.sums
    assert runs == len(program)
    np.testing.assert_allclose(forward + reverse, page.profile.nanoseconds)
    assert size == sum(share.bytes for share in page.memory.groups["operation"])
    text = page.text()
    assert text.count("<details") == text.count("</details>")
    assert text.count("<div") == text.count("</div>")


def test_loops_within_loops_are_folded_each() -> None:
    def nested(x: Any, k: Any) -> Any:
        for _ in range(5):
            for _ in range(10):
                x = x * 0.9 + k
            x = tape.tanh(x)
        return x.sum()

    rows = cells(tape.record(nested, DATA, 2.0).profile(DATA, 2.0).to_html())
    assert [(row[0][:18].rstrip(), row[2]) for row in rows[2:7]] == [
        ("  loop, 5 times", "5"),
        ("    loop, 10 times", "10"),
        ("      %2 = multipl", "50"),
        ("      %3 = add %2", "50"),
        ("    %22 = tanh %21", "5"),
    ]


def test_a_page_of_a_recorded_loop_and_without_reverse() -> None:
    @tape.compile(mode="max")
    def halved(x: Any) -> Any:
        while x > 0.01:
            x = x * 0.5
        return x * x

    for v in (1.0, 2.0, 30.0, 400.0):
        halved(v)
    page = halved.profile(9.0).to_html()
    assert "loop_begin" in page
    assert ": x = x * 0.5" in page


def test_what_a_page_shows_is_text() -> None:
    def hostile(x: Any, k: Any) -> Any:
        return tape.where(x < k, x, "</pre><script>&'\"" and k).sum()

    program = tape.record(lines=True)(hostile, DATA, 2.0)
    program._recipe.lines.table[0] = ("<b>.py", 1, program._recipe.lines.table[0][2])
    page = program.profile(DATA, 2.0).to_html()
    assert "<script" not in page
    assert "<b>.py" not in page
    row = next(row for row in cells(page) if "<script>" in row[1])
    assert row[1] == '<b>.py:1: return tape.where(x < k, x, "</pre><script>&\'\\"" and k).sum()'


def test_a_page_of_many_operations_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_MOST_ROWS", 2)
    program = tape.record(short, DATA, 2.0)
    rows = cells(program.profile(DATA, 2.0).to_html())
    assert rows[1][2] == str(len(program))
    assert rows[-2][0].startswith("  ... and ")
