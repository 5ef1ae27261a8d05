"""The tests of while loops: compiled twice, before the loop and at the end of its body.

A body's begin is where backward jumps lead, but what runs again is test and body; where the first test fails, the body
is never reached. With the tests as heads, an iteration is one that the test let begin, and there may be none.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from tape.foundation.bytecode import Flow, Step
from tape.watching.frame_events import REPORTS_INSTRUCTIONS


class Test(NamedTuple):
    """The test of a while loop, by the first instructions of its two copies, with the loop's ``body``.

    ``continues`` are the instructions in the body that go back to the ``first`` copy; that is part of the body then.
    """

    first: int
    again: int
    continues: tuple[int, ...]
    body: frozenset[int]


def tests_of(flow: Flow) -> dict[int, Test | None]:
    """Return the heads of loops, to which backward jumps lead, each with the test of a while loop if it has one.

    What ``continue`` alone leads back to is the test of another head.
    """
    heads = flow.heads()
    tests = {head: test for head in heads if (test := _test(flow, head)) is not None}
    others = {head for head in heads if head not in tests and not _is_continued(flow, head, tests)}
    apart = {head: test for head, test in tests.items() if test.first not in others}
    return {head: apart.get(head) for head in heads if head in tests or head in others}


def _is_continued(flow: Flow, head: int, tests: dict[int, Test]) -> bool:
    """Whether what leads back to an instruction are ``continue`` statements of loops whose test it is."""
    continues = [i for test in tests.values() if test.first == head for i in test.continues]
    return set(continues) == set(flow.back(head))


def _test(flow: Flow, head: int) -> Test | None:
    """Return the test of the loop whose body begins here; None if there is none, or lines do not show when it runs."""
    before, back = flow.before(head), flow.back(head)
    end = max(back) + 1
    again = [i for i in range(head + 1, end) if not is_taken(flow, i, head)]
    pairs = zip(range(head - 1, -1, -1), reversed(again), strict=False)
    same = [*itertools.takewhile(lambda pair: _same(flow.steps[pair[0]], flow.steps[pair[1]]), pairs)]
    if not same:
        return None
    starts = same[-1]
    copies = range(starts[0], head), range(starts[1], end)
    alone = all(i in copy for copy in copies for j in copy[1:] for i in flow.before(j))
    if not alone or any(i not in copies[0] and i not in copies[1] for i in before):
        return None
    if not all(_begins_instruction(flow, start) and _is_visible(flow, start) for start in starts):
        return None
    continues = tuple(flow.through(head, flow.before(starts[0])))
    body = flow.leading_to([*back, *continues], head)
    return Test(*starts, continues, body.union(copies[0]) if continues else body)


def is_taken(flow: Flow, i: int, head: int) -> bool:
    """Whether an instruction only takes a conditional jump's way back to a head, which cannot do that by itself."""
    step, before = flow.steps[i], flow.steps[i - 1]
    return step.name == "JUMP_BACKWARD" and before.target is not None and flow.next[i] == (head,)


def _same(one: Step, other: Step) -> bool:
    """Whether two instructions of a line do the same; jumps may lead elsewhere."""
    if one.line != other.line or (one.target is None) != (other.target is None):
        return False
    does = [(step.name, type(step.value), step.value) for step in (one, other)]
    return one.target is not None or does[0] == does[1]


def _begins_instruction(flow: Flow, at: int) -> bool:
    """Whether this is no second half of an instruction of two."""
    return at == 0 or flow.steps[at].offset != flow.steps[at - 1].offset


def _is_visible(flow: Flow, at: int) -> bool:
    """Whether each way to an instruction is reported: in Python 3.11 if it has another line, or is a jump back."""
    if REPORTS_INSTRUCTIONS:
        return True
    line = flow.steps[at].line
    return line is not None and all(i >= at or flow.steps[i].line != line for i in flow.before(at))
