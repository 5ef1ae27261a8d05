"""Random functions with loops: watched visits against a trace of every instruction.

The truth is the sequence of instructions between visits. From equal states, within the bound, and with equal outcomes
of what tensors would decide, it must be the same; the visits and entries themselves must be those of the trace.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import pytest

import tape
from tape.tensors.bytecode import ControlFlow
from tape.watching import loop_states
from tape.watching.frame_events import monitoring
from tape.watching.python_loops import HeadVisit, HeadWatch, PythonLoop, loops_of
from tests.support.representatives import examples

NAMES = "abk"


ASKED = """
class CompiledFunction:
    def __init__(self, source):
        self.source, self.outcomes = source, []
    def __call__(self):
        if len(self.outcomes) >= 300:
            self.outcomes.append(None)
            raise TimeoutError
        self.outcomes.append(self.source.random() < 0.9)
        return self.outcomes[-1]
"""


def oracle_of(seed: int) -> Any:
    """Return what decides in place of tensors, and remembers; it passes for a compiled function of tape's.

    A function ends when it asks too often.
    """
    namespace: dict[str, Any] = {"__name__": "tape.asked"}
    exec(ASKED, namespace)  # noqa: S102 (written above)
    return namespace["CompiledFunction"](random.Random(seed))  # noqa: S311


class Written(NamedTuple):
    """Lines of a random function."""

    lines: list[str]

    def indented(self) -> list[str]:
        """Return the lines as a block."""
        return ["    " + line for line in self.lines] or ["    pass"]


def condition(rng: random.Random) -> str:
    """Return a condition, which a tensor or a counter decides."""
    name, limit = rng.choice(NAMES), rng.choice(["3", "7", "n", "10"])
    compared = f"{name} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {limit}"
    flipped = f"{limit} {rng.choice(['<', '>='])} {name}"
    kinds = ["ask()", "ask()", f"ask() and {compared}", f"{compared} or ask()", compared, flipped, "xs", f"{name} % 3"]
    kinds += [
        "box.n % 3 == 1",
        "Box.shared == 1",
        "tick() == 1",
        "ticks[0] == 1",
        "xs[0]",
        "d.get('b', 0) > 2",
        "cell()",
    ]
    kinds += [
        "d.get('b', 0) > 2",
        "ask()",
        "ask()",
        "t is u",
        "u._value is t._value",
        f"not {compared}",
        f"0 < {compared}",
    ]
    return rng.choice(kinds)


def simple(rng: random.Random, in_loop: bool) -> str:
    """Return a statement of one line."""
    name = rng.choice(NAMES)
    kinds = [f"{name} += 1", f"{name} -= 2", f"{name} = {name} + 3", "xs.append(1)", "xs[1:] = []", f"{name} = 0"]
    kinds += [
        f"{name} = {rng.choice(NAMES)}",
        "t = t + 1.0",
        "box.n += 1",
        "d['a'] = t",
        "ask()",
        "ask()",
        "t = t * 0.5",
        "xs = [q for q in xs]",
        "Box.shared = (Box.shared + 1) % 3",
        "tick()",
        "xs[0] = (xs[0] + 1) % 2",
        "u = t",
        "u = t + 1.0",
        "box.grow()",
    ]
    kinds += ["fail(ask())", "n += 1", "cell()", "d['b'] = d.get('b', 0) + 1"] if rng.random() < 0.3 else []
    kinds += [f"if {condition(rng)}: {rng.choice(['break', 'continue'])}"] * 4 if in_loop else []
    return rng.choice(kinds)


def block(rng: random.Random, depth: int, in_loop: bool) -> list[str]:
    """Return the lines of some statements."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 4)):
        if depth == 0 or rng.random() < 0.55:
            lines.append(simple(rng, in_loop))
        else:
            lines += compound(rng, depth - 1, in_loop)
    return lines


def compound(rng: random.Random, depth: int, in_loop: bool) -> list[str]:
    """Return the lines of a statement with blocks."""
    kind = rng.choice(["while", "while", "forever", "for", "for", "if", "try", "finally", "with", "one line"])
    if kind == "one line":
        return [rng.choice([f"while ask() and ({condition(rng)}): k += 1", "for _ in range(3): ask()"])]
    inside = Written(block(rng, depth, in_loop or kind in ("while", "forever", "for"))).indented()
    other = Written(block(rng, depth, in_loop and kind != "finally")).indented()
    if kind == "while":
        return [f"while {condition(rng)}:", "    ask()", *inside, *(["else:", *other] if rng.random() < 0.2 else [])]
    if kind == "forever":
        return ["while True:", "    ask()", *inside]
    if kind == "for":
        return [
            f"for _ in range({rng.choice(['3', 'n', 'box.n', 'int(n)', 'size', 'd[0]', '1, 5'])}):",
            "    ask()",
            *inside,
        ]
    first, second = {
        "if": (f"if {condition(rng)}:", "else:"),
        "with": ("with swallow():", "if ask():"),
        "finally": ("try:", "finally:"),
        "try": ("try:", "except ValueError:"),
    }[kind]
    return [first, *inside, second, *other]


PLACES: list[tuple[list[str], list[str]]] = [
    (["k += 1", "k += 2", "k -= 1"], ["k < 5", "k >= n", "7 > k", "k != 6", "4 == k", "k % 3", "k", "k <= n"]),
    (["k += 1", "k -= 3"], ["k < 20", "k <= 9", "n * 4 >= k", "size > k", "k > -20"]),
    (["box.grow()", "box.n = (box.n + 1) % 3"], ["box.n == 1", "getattr(box, 'n') == 2"]),
    (["Box.shared = (Box.shared + 1) % 3"], ["Box.shared == 1", "box.shared == 2"]),
    (["tick()", "ticks[0] = 0"], ["ticks[0] == 1", "tick() == 1"]),
    (["cell()"], ["cell() == 1", "cell()"]),
    (["xs.append(1)", "xs[0] = (xs[0] + 1) % 2", "xs[1:] = []"], ["xs[0]", "len(xs) > 3", "len(xs) == 2"]),
    (["u = t", "u = t + 1.0", "t = t + 1.0"], ["t is u"]),
    (["a = b", "b += 1", "a += 1", "b = 0"], ["a < 4", "a == b", "b < 7", "a < b"]),
    (["d['b'] = (d.get('b', 0) + 1) % 4"], ["d.get('b') == 2", "d['b'] == 2"]),
]
"""What changes something, and what that decides."""


def focused(rng: random.Random) -> list[str]:
    """Return a loop in which little changes, which then decides."""
    lines = ["ask()"]
    for updates, conditions in rng.sample([*PLACES[:2] * 3, *PLACES[2:]], rng.choice([1, 1, 2])):
        update = rng.choice(updates)
        lines += [update] if rng.random() < 0.7 else ["if ask():", "    " + update]
        for _ in range(rng.choice([1, 1, 2])):
            lines += [f"if {rng.choice(conditions)}: {rng.choice(['ask()', 'break', 'continue', 'fail(False)'])}"]
    if rng.random() < 0.3:
        rng.shuffle(lines)
        lines = ["ask()", *[line for line in lines if not line.endswith("():") and line[0] != " "]]
    heads = [
        "while True:",
        "while True:",
        "while ask():",
        "for _ in range(12):",
        "for _ in range(n):",
        "while k < 9 and ask():",
    ]
    loop = [rng.choice(heads), *Written(lines).indented()]
    if rng.random() < 0.3:
        loop = ["try:", *Written(loop).indented(), "except ValueError:", "    k = 0"]
    loop = [f"a = b = k = {rng.choice(['0', '1', '-2', '9'])}", *loop]
    return ["for _ in range(3):", *Written(loop).indented(), "    ask()"] if rng.random() < 0.3 else loop


def source_of(seed: int) -> str:
    """Return the text of a random function."""
    rng = random.Random(seed)  # noqa: S311
    lines = block(rng, 3, in_loop=False) if rng.random() < 0.3 else [*focused(rng), *focused(rng)]
    body = Written(lines).indented()
    ending = rng.choice(["return t", "return t", "return k, xs", "pass", "pass"])
    return "\n".join(["def f(ask, fail, swallow, cell, box, t, n, size):", *SETUP, *body, "    " + ending])


SETUP = ["    a = b = k = 0", "    xs = [1]", "    d = {0: 2}", "    u = t"]


ticks = [0]


def tick() -> int:
    """Count in a global."""
    ticks[0] = (ticks[0] + 1) % 3
    return ticks[0]


class Box:
    """Something with an attribute, of its own and of its class."""

    n = shared = 0

    def grow(self) -> None:
        """Count in an attribute."""
        self.n = (self.n + 1) % 3


class Swallow:
    """Swallows some exceptions."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, *_: object) -> bool:
        return kind is IndexError


def fail(wanted: bool) -> None:
    """Raise, if wanted."""
    if not wanted:
        raise ValueError


def arguments(oracle: Any) -> tuple[Any, ...]:
    """Return new arguments of a random function."""
    box, remembered = Box(), [0]

    def cell() -> int:
        remembered[0] = (remembered[0] + 1) % 4
        return remembered[0]

    box.n, Box.shared, ticks[0] = 2, 0, 0
    return oracle, fail, Swallow, cell, box, tape.tensor(0.0), 4, tape.tensor(3)


class Instruction(NamedTuple):
    """One that ran: where, and how many outcomes there were before."""

    offset: int
    outcomes: int


def instructions_of(function: Callable[..., Any], oracle: Any) -> list[Instruction]:
    """Return the instructions that a call runs through."""
    ran: list[Instruction] = []
    follow = traced if monitoring is None else monitored
    follow(function, oracle, lambda offset: ran.append(Instruction(offset, len(oracle.outcomes))))
    return ran


def traced(function: Callable[..., Any], oracle: Any, report: Callable[[int], None]) -> None:
    """Call a random function, and report each of its instructions by a trace function."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            report(frame.f_lasti)
        return local

    sys.settrace(lambda frame, *_: local(frame, "call", None) if frame.f_code is function.__code__ else None)
    try:
        finish(function, oracle)
    finally:
        sys.settrace(None)


def monitored(function: Callable[..., Any], oracle: Any, report: Callable[[int], None]) -> None:
    """Call a random function, and report each of its instructions from Python 3.12 on."""
    tool, event = 0, monitoring.events.INSTRUCTION
    monitoring.use_tool_id(tool, "a debugger")
    try:
        monitoring.register_callback(tool, event, lambda _, offset: report(offset))
        monitoring.set_local_events(tool, function.__code__, event)
        finish(function, oracle)
    finally:
        monitoring.set_local_events(tool, function.__code__, 0)
        monitoring.free_tool_id(tool)


def finish(function: Callable[..., Any], oracle: Any) -> None:
    """Call a random function, which may raise."""
    with contextlib.suppress(ValueError, LookupError, TimeoutError):
        function(*arguments(oracle))


def copies_of(loop: PythonLoop) -> dict[int, int | None]:
    """Return for the offsets in the first copy of a loop's test, and those in the second, the same numbers.

    None for jumps that stand in the second one alone.
    """
    flow = ControlFlow(loop.code)
    for head, test in loop_states.tests_of(flow).items():
        if test is not None and flow.steps[test.again].offset == loop.head:
            end = max(flow.back(head)) + 1
            again = [i for i in range(test.again, end) if not loop_states.is_taken(flow, i, head)]
            copies = range(test.first, head), again
            places = dict[int, int | None].fromkeys(range(test.again, end))
            places |= {i: place for copy in copies for place, i in enumerate(copy)}
            return {at: places[i] for at, i in flow.number.items() if i in places}
    return {}


def entries_of(loop: PythonLoop, ran: list[Instruction]) -> list[list[int]]:
    """Return the places in a trace at which the heads of a loop were visited, those of one entry together."""
    entries: list[list[int]] = []
    within = False
    for i, instruction in enumerate(ran):
        if instruction.offset in loop.heads:
            if not within:
                entries.append([])
            entries[-1].append(i)
        within = instruction.offset in loop.body
    return entries


def left(loop: PythonLoop, place: int, ran: list[Instruction]) -> int:
    """Return where in a trace a loop is left, after a visit."""
    test = copies_of(loop)
    within = (i for i in range(place, len(ran)) if ran[i].offset not in loop.body and ran[i].offset not in test)
    return next(within, len(ran) - 1)


def check(seed: int) -> int:
    """Compare the visits of a random function with its trace; return how many iterations were found alike."""
    namespace: dict[str, Any] = {"Box": Box, "tick": tick, "ticks": ticks}
    exec(compile(source_of(seed), f"<random {seed}>", "exec"), namespace)  # noqa: S102 (made above)
    function = namespace["f"]
    oracle = oracle_of(seed)
    ran = instructions_of(function, oracle)
    visits: list[HeadVisit] = []
    watch = HeadWatch(visits.append)
    watch.call(finish, function, oracle_of(seed))
    assert watch.reason == ""
    alike = 0
    for loop in loops_of(function.__code__).values():
        if not loop.reason:
            ours = [v for v in visits if (v.loop.code, v.loop.head) == (loop.code, loop.head)]  # maybe found anew since
            alike += check_loop(loop, ours, ran, oracle.outcomes)
    return alike


def check_loop(loop: PythonLoop, visits: list[HeadVisit], ran: list[Instruction], outcomes: list[Any]) -> int:
    by_entry: dict[int, list[HeadVisit]] = {}
    for visit in visits:
        by_entry.setdefault(visit.entry, []).append(visit)
    true = entries_of(loop, ran)
    known = list(by_entry.values())
    if is_one_line(loop):  # the first visit of such a loop is not seen
        true = [entry[1:] for entry in true if len(entry) > 1] if [*map(len, known)] != [*map(len, true)] else true
    assert [len(entry) for entry in known] == [len(entry) for entry in true]
    return sum(check_entry(*pair, ran, outcomes) for pair in zip(known, true, strict=True))


def is_one_line(loop: PythonLoop) -> bool:
    """Whether a while loop is on one line."""
    return not loop.is_for


def check_entry(visits: list[HeadVisit], places: list[int], ran: list[Instruction], outcomes: list[Any]) -> int:
    """Check that iterations from equal states, within the bound and with equal outcomes, are equal."""
    known: dict[tuple[Any, ...], list[tuple[HeadVisit, list[int]]]] = {}
    alike, test = 0, copies_of(visits[0].loop)
    assert [v.number for v in visits] == list(range(len(visits)))
    for visit, start, end in zip(visits, places, [*places[1:], left(visits[0].loop, places[-1], ran)], strict=True):
        before = known.setdefault(tuple(outcomes[ran[start].outcomes : ran[end].outcomes]), [])
        offsets = [at for i in ran[start : end + 1] if (at := test.get(i.offset, i.offset)) is not None]
        for first, expected in [*before[:4], *before[-8:]] if not visit.state.reason else ():
            within = first.remaining is None or visit.number - first.number < first.remaining
            if within and first.state.template == visit.state.template:
                assert offsets == expected, (visit.loop, first.number, visit.number)
                alike += 1
        before.append((visit, offsets))
    return alike


@examples(60, 200, pytest.mark.quick)
def test_iterations_from_equal_states_run_through_the_same_instructions(count: int) -> None:
    assert sum(check(seed) for seed in range(count)) > 10 * count
