"""The tests of while loops: compiled twice, before the loop and at the end of its body.

A body's begin is where backward jumps lead, but what runs again is test and body; where the first test fails, the body
is never reached. With the tests as heads, an iteration is one that the test let begin, and there may be none.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from tape.foundation.bytecode import Flow, Step


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
    return set(continues) == {i for i in flow.before(head) if i >= head}


def _test(flow: Flow, head: int) -> Test | None:
    """Return the test of the loop whose body begins here; None if there is none, or lines do not show when it runs."""
    before = flow.before(head)
    back = [i for i in before if i >= head]
    end = max(back) + 1
    pairs = zip(reversed(flow.steps[:head]), reversed(flow.steps[head + 1 : end]), strict=False)
    length = sum(1 for _ in itertools.takewhile(lambda pair: _same(*pair), pairs))
    first, again = head - length, end - length
    copies = range(first, head), range(again, end)
    alone = all(i in copy for copy in copies for j in copy[1:] for i in flow.before(j))
    if not length or not alone or any(i not in copies[0] and i not in copies[1] for i in before):
        return None
    if not (_is_visible(flow, first) and _is_visible(flow, again)):
        return None
    continues = tuple([i for i in flow.before(first) if head <= i < again])
    body = flow.leading_to([*back, *continues], head)
    return Test(first, again, continues, body.union(copies[0]) if continues else body)


def _same(one: Step, other: Step) -> bool:
    """Whether two instructions of a line do the same; jumps may lead elsewhere."""
    if one.line != other.line or (one.target is None) != (other.target is None):
        return False
    does = [(step.name, type(step.value), step.value) for step in (one, other)]
    return one.target is not None or does[0] == does[1]


def _is_visible(flow: Flow, at: int) -> bool:
    """Whether each way to an instruction is a traced line: it has another one, or is a jump back."""
    line = flow.steps[at].line
    return line is not None and all(i >= at or flow.steps[i].line != line for i in flow.before(at))
