"""Recorded loops whose iterations go several ways, as loops that go one: what differs is computed, and selected.

If-conversion (Allen, Kennedy, Porterfield and Warren, "Conversion of control dependence to data dependence", POPL
1983). What ways have in common is computed once. The guards that tell them apart become a condition for each, and what
the next iteration starts from is that of the first way whose condition holds; if none does, the loop is over. What a
way that is not taken computes has no gradient, whatever it is, since a select cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernels.arrays.specs import spec_of
from kernels.kinds.guard import Guard
from kernels.kinds.loop import LoopBegin
from kernels.kinds.write import Write
from kernels.ops.guards import GUARD
from kernels.programs.recording.loop_marks import bodies_of
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import StepKind
from kernels.programs.rolling.remade_recipe import Remade, Step
from kernels.programs.rolling.rolled_program import Uncompiled

Array = np.ndarray[Any, Any]
_MOST_WORK = 4
"""Times the work of the longest way that all may be together."""
_STEP = 16
"""Elements that take as long as a step takes besides its elements, about."""
_BOOL = np.dtype(np.bool_)


class OneWay(NamedTuple):
    """A recipe without loops of several ways; ``origins``: for each of its steps that of the recorded one.

    Steps of the recorded one: ``guards``, in order, and those that are ``conditional``: some ways alone do such.
    """

    recipe: Recipe
    origins: Array
    guards: list[int]
    conditional: frozenset[int] = frozenset()


def in_one_way(recipe: Recipe) -> OneWay:
    """Return a recipe whose loops go one way; Uncompiled where ways have too little in common."""
    begins, guards = (recipe.steps.of_kind(cls) for cls in (LoopBegin, Guard))
    ways = {at: bodies_of(recipe.steps, at) for at in begins}
    if all(len(bodies) == 1 for bodies in ways.values()):
        return OneWay(recipe, np.arange(len(recipe.steps)), guards)
    made, conditional, low = Remade(recipe), set[int](), 0
    for begin, bodies in ways.items():
        if len(bodies) > 1:
            if any(bodies[0][0] <= other < bodies[-1][1] for other in begins):
                raise Uncompiled("a loop that a value ends, in one that goes several ways", begin)
            made.copy(low, begin + 1)
            iteration = _Iteration(made, bodies)
            iteration.put()
            conditional |= iteration.conditional()
            low = bodies[-1][1] + 1
    made.copy(low, len(recipe.steps))
    return OneWay(made.recipe, np.array(made.origins, np.int64), guards, frozenset(conditional))


class _Way:
    """One way through an iteration: its nodes by those recorded, its guards, and what the next starts from."""

    def __init__(self) -> None:
        self.nodes: dict[int, int] = {}
        self.guards: list[tuple[int, ...]] = []
        """What is looked at, and what it must be."""
        self.updates: list[int] = []


class _Iteration:
    """The ways of one loop: their steps as one sequence, then a condition for each way, and what is selected."""

    def __init__(self, made: Remade, bodies: Sequence[tuple[int, int]]) -> None:
        self.made, self.bodies, self.first = made, bodies, bodies[0][0]
        self.steps: list[Step] = []
        self.users: list[int] = []
        """How many ways each of these is part of."""
        self.places: dict[Any, int] = {}
        """Where among these is what a kind of step gives of operands."""
        self.longest = self.work = 0
        """The work of the longest way, and of all."""
        self.known: dict[Any, int] = {}
        """Conditions and selected nodes, by what they are computed of."""
        self.ways = [self._way(first, last) for first, last in bodies]

    def put(self) -> None:
        """Put all steps of the body."""
        if self.work > _MOST_WORK * self.longest:
            raise Uncompiled("the ways that a loop's iterations go have little in common", self.first)
        made, ways = self.made, self.ways
        shared = set(ways[0].guards).intersection(*[way.guards for way in ways])
        for step in self.steps:
            if not isinstance(made.op(step), Guard) or step.operands in shared:
                made.put(step)
        conditions: list[int] = []
        for way in ways:
            condition = self._condition([pair for pair in way.guards if pair not in shared])
            if condition is None:  # it is taken if none before it is
                break
            conditions.append(condition)
        else:
            self._put_guard(conditions)
        taken = ways[: len(conditions) + 1]
        updates = tuple(
            [self._selected(conditions, column) for column in zip(*[w.updates for w in taken], strict=True)]
        )
        end = made.step(self.bodies[0][1])
        made.put(end._replace(operands=updates))

    def conditional(self) -> set[int]:
        """Return the steps that do what some ways alone do; a loop of such may stand for steps of all ways, too."""
        pairs = zip(self.steps, self.users, strict=True)
        some = {id(self.made.op(step)) for step, users in pairs if users < len(self.ways)}
        return {step.origin for step in self.steps if id(self.made.op(step)) in some}

    def _way(self, first: int, last: int) -> _Way:
        """Take in the steps of a way that are none of a way before."""
        made, way, work, mine = self.made, _Way(), 0, set[int]()
        recorded = [made.step(at) for at in range(first, last)]
        base = made.recorded.base_of
        written = {base(step.result) for step in recorded if isinstance(made.op(step), Write)}
        for step in recorded:
            operands = tuple([self._node(way, o) for o in step.operands])
            if isinstance(made.op(step), Guard):
                way.guards.append(operands)
            size = _STEP + made.nodes[step.result].spec.size
            work += size
            numbers = [o if o >= 0 else repr(made.steps.numbers[~o]) for o in operands]
            is_written = any(base(node) in written for node in (step.result, *step.operands) if node >= 0)
            key = ("written", step.origin) if is_written else (step.kind, *numbers)
            if key not in self.places:
                self.places[key] = len(self.steps)
                self.steps.append(step._replace(result=self._node(way, step.result), operands=operands))
                self.users.append(0)
                self.work += size
            place = self.places[key]
            way.nodes[step.result] = self.steps[place].result
            self.users[place] += place not in mine
            mine.add(place)
        way.updates = [self._node(way, node) for node in made.step(last).operands]
        self.longest = max(self.longest, work)
        return way

    def _node(self, way: _Way, node: int) -> int:
        """Return the node that stands for one of a way; numbers stand for themselves."""
        if node < 0 or node in way.nodes:
            return way.nodes.get(node, node)
        made, entry = self.made, self.made.nodes[node]
        way.nodes[node] = node
        if entry.constant is not None and entry.base is None:
            way.nodes[node] = made.constant(node)
        elif entry.base is not None or entry.family is not None:
            base, family = (None if n is None else self._node(way, n) for n in (entry.base, entry.family))
            if (base, family) != (entry.base, entry.family):
                made.nodes[node] = replace(entry, base=base, family=family)
        return way.nodes[node]

    def _condition(self, guards: Sequence[tuple[int, ...]]) -> int | None:
        """Return whether all guards hold, as a node; None if there are none."""
        condition: int | None = None
        for node, expected in guards:
            spec, constant = self.made.nodes[node].spec, self.made.nodes[expected].constant
            if spec.dtype != _BOOL or spec.shape or constant is None:
                raise Uncompiled("a loop whose iterations go several ways by what is no condition", self.first)
            holds = node if constant else self._computed("logical_not", node)
            condition = holds if condition is None else self._computed("logical_and", condition, holds)
        return condition

    def _put_guard(self, conditions: Sequence[int]) -> None:
        """End the loop where no condition holds."""
        one = conditions[0]
        for other in conditions[1:]:
            one = self._computed("logical_or", one, other)
        made, true = self.made, np.ones((), _BOOL)
        made.nodes.append(Node(spec_of(true), constant=true))
        expected = made.constant(len(made.nodes) - 1)
        line = next(made.steps.kinds[step.kind].params for step in self.steps if isinstance(made.op(step), Guard))
        made.put(Step(made.number(StepKind(GUARD, None, line, 2)), one, (one, expected), self.first))

    def _selected(self, conditions: Sequence[int], nodes: Sequence[int]) -> int:
        """Return that of the nodes, one a way, whose condition is the first to hold."""
        *others, selected = nodes
        for condition, node in zip(reversed(conditions[: len(others)]), reversed(others), strict=True):
            if node != selected:
                selected = self._computed("where", condition, node, selected)
        return selected

    def _computed(self, name: str, *operands: int) -> int:
        """Return the node of an operation, which is done once."""
        key = name, operands
        if key not in self.known:
            self.known[key] = self.made.computed(name, operands, self.first)
        return self.known[key]
