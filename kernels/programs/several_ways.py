"""Recorded loops whose iterations go several ways, as loops that go one: what differs is computed, and selected.

If-conversion (Allen, Kennedy, Porterfield and Warren, "Conversion of control dependence to data dependence", POPL
1983). What ways have in common is computed once. The guards that tell them apart become a condition for each, and what
the next iteration starts from is that of the first way whose condition holds; if none does, the loop is over. What a
way that is not taken computes has no gradient, whatever it is, since a select cuts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import BOOL, Array, spec_of
from kernels.kinds.routine import Guard
from kernels.kinds.views import Write
from kernels.operations import OPS
from kernels.operations.views import CLONE, GUARD
from kernels.programs import program
from kernels.programs.program import ProgramNode, RawStep, Recipe, RecipeLoop, StepKind, Steps
from kernels.programs.rolled_program import Uncompiled
from kernels.rules.scalar_loops import NodeRef


class RecipeBuilder:
    """The recipe that is made: of steps of the recorded one, and new ones."""

    def __init__(self, recorded: Recipe) -> None:
        self.recorded, self.recipe = recorded, recorded.copy()
        self.nodes = self.recipe.nodes
        self.steps = self.recipe.steps = Steps()
        self.steps.kinds, self.steps.numbers = [*recorded.steps.kinds], [*recorded.steps.numbers]
        self.origins: list[int] = []
        self._constants: dict[Any, int] = {}
        self._kinds: dict[Any, int] = {}

    def op(self, step: RawStep) -> Any:
        """Return what a step does."""
        return self.steps.kinds[step.kind].op

    def put(self, step: RawStep) -> None:
        """Append a step, of the recorded one at its place."""
        self.steps.add(step.kind, step.result, step.operands)
        self.origins.append(step.at)

    def copy(self, low: int, high: int) -> None:
        """Append recorded steps as they are."""
        for at in range(low, high):
            self.put(self.recorded.steps.raw(at))

    def number(self, kind: StepKind, specs: tuple[Any, ...] = ()) -> int:
        """Return the number of a new kind of steps, whose operands have these specs."""
        key = kind.op, kind.params, kind.count, specs
        if key not in self._kinds:
            self._kinds[key] = len(self.steps.kinds)
            self.steps.kinds.append(kind)
        return self._kinds[key]

    def constant(self, node: int) -> int:
        """Return the constant that stands for all that are the same as this one, bit for bit."""
        entry = self.nodes[node]
        assert entry.constant is not None
        return self._constants.setdefault((entry.spec, entry.constant.tobytes()), node)

    def computed(self, name: str, operands: tuple[int, ...], origin: int) -> int:
        """Return the node of a new step: an operation on nodes of one shape, a condition apart."""
        op, entries = OPS[name], [self.nodes[node] for node in operands]
        last = entries[-1].spec
        spec = spec_of(np.empty(last.shape, last.dtype))
        pairs = zip(op.pullback, operands, strict=True)
        wanted = tuple([rule is not None and self.recipe.wants(node) for rule, node in pairs])
        specs = tuple([entry.spec for entry in entries])
        form = op.form(specs, spec, wanted) if any(wanted) else None
        self.nodes.append(ProgramNode(spec, differentiable=any(wanted)))
        result = len(self.nodes) - 1
        kind = StepKind(op, form, (), len(operands))
        self.put(RawStep(self.number(kind, (*specs, wanted)), result, operands, origin))
        return result


_MOST_WORK = 4  # times the work of the longest way that all may be together
_STEP = 16  # elements that take as long as a step takes besides its elements, about


class Predicated(NamedTuple):
    """A recipe without loops of several ways; ``origins``: for each of its steps that of the recorded one.

    Steps of the recorded one: ``guards``, in order, and those that are ``conditional``: some ways alone do such.
    """

    recipe: Recipe
    origins: Array
    guards: list[int]
    conditional: frozenset[int] = frozenset()


def in_one_way(recipe: Recipe) -> Predicated:
    """Return a recipe whose loops go one way; Uncompiled where ways have too little in common."""
    loops, guards = recipe.steps.loops(), recipe.steps.of_kind(Guard)
    if all(len(loop.bodies) == 1 for loop in loops):
        return Predicated(recipe, np.arange(len(recipe.steps)), guards)
    made, conditional, low = RecipeBuilder(recipe), set[int](), 0
    for loop in loops:
        if len(loop.bodies) > 1:
            if any(loop.begin < other.begin < loop.end for other in loops):
                raise Uncompiled("a loop that a value ends, in one that goes several ways", loop.begin)
            made.copy(low, loop.begin + 1)
            iteration = _Iteration(made, loop.bodies)
            iteration.put()
            conditional |= iteration.conditional()
            low = loop.end
    made.copy(low, len(recipe.steps))
    return Predicated(made.recipe, np.array(made.origins, np.int64), guards, frozenset(conditional))


class _Way:
    """One way through an iteration: its nodes by those recorded, its guards, and what the next starts from."""

    def __init__(self) -> None:
        self.nodes: dict[int, int] = {}
        self.guards: list[tuple[int, ...]] = []  # what is looked at, and what it must be
        self.updates: list[int] = []


class _Iteration:
    """The ways of one loop: their steps as one sequence, then a condition for each way, and what is selected."""

    def __init__(self, made: RecipeBuilder, bodies: Sequence[tuple[int, int]]) -> None:
        self.made, self.bodies, self.first = made, bodies, bodies[0][0]
        self.steps: list[RawStep] = []
        self.users: list[int] = []  # how many ways each of these is part of
        self.places: dict[Any, int] = {}  # where among these is what a kind of step gives of operands
        self.longest = self.work = 0  # the work of the longest way, and of all
        self.known: dict[Any, int] = {}  # conditions and selected nodes, by what they are computed of
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
            condition: int | None = None
            for node, expected in [pair for pair in way.guards if pair not in shared]:
                spec, constant = self.made.nodes[node].spec, self.made.nodes[expected].constant
                if spec.dtype != BOOL or spec.shape or constant is None:
                    raise Uncompiled("a loop whose iterations go several ways by what is no condition", self.first)
                holds = node if constant else self._computed("logical_not", node)
                condition = holds if condition is None else self._computed("logical_and", condition, holds)
            if condition is None:  # it is taken if none before it is
                break
            conditions.append(condition)
        else:
            self._put_guard(conditions)
        taken = ways[: len(conditions) + 1]
        columns = zip(*[way.updates for way in taken], strict=True)
        updates = tuple([self._selected(conditions, column) for column in columns])
        end = made.recorded.steps.raw(self.bodies[0][1])
        made.put(end._replace(operands=updates))

    def conditional(self) -> set[int]:
        """Return the steps that do what some ways alone do; a loop of such may stand for steps of all ways, too."""
        pairs = zip(self.steps, self.users, strict=True)
        some = {id(self.made.op(step)) for step, users in pairs if users < len(self.ways)}
        return {step.at for step in self.steps if id(self.made.op(step)) in some}

    def _way(self, first: int, last: int) -> _Way:
        """Take in the steps of a way that are none of a way before."""
        made, way, work, mine = self.made, _Way(), 0, set[int]()
        recorded = [made.recorded.steps.raw(at) for at in range(first, last)]
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
            key = ("written", step.at) if is_written else (step.kind, *numbers)
            if key not in self.places:
                self.places[key] = len(self.steps)
                self.steps.append(step._replace(result=self._node(way, step.result), operands=operands))
                self.users.append(0)
                self.work += size
            place = self.places[key]
            way.nodes[step.result] = self.steps[place].result
            self.users[place] += place not in mine
            mine.add(place)
        way.updates = [self._node(way, node) for node in made.recorded.steps.raw(last).operands]
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

    def _put_guard(self, conditions: Sequence[int]) -> None:
        """End the loop where no condition holds."""
        one = conditions[0]
        for other in conditions[1:]:
            one = self._computed("logical_or", one, other)
        made, true = self.made, np.ones((), BOOL)
        made.nodes.append(ProgramNode(spec_of(true), constant=true))
        expected = made.constant(len(made.nodes) - 1)
        line = next(made.steps.kinds[step.kind].params for step in self.steps if isinstance(made.op(step), Guard))
        made.put(RawStep(made.number(StepKind(GUARD, None, line, 2)), one, (one, expected), self.first))

    def _selected(self, conditions: Sequence[int], nodes: Sequence[int]) -> int:
        """Return that of the nodes, one a way, whose condition is the first to hold."""
        *others, selected = nodes
        for condition, node in zip(reversed(conditions[: len(others)]), reversed(others), strict=True):
            if node != selected:
                selected = self._computed("where", condition, node, selected)
        return selected

    def _computed(self, name: str, *operands: int) -> int:
        key = name, operands
        if key not in self.known:
            self.known[key] = self.made.computed(name, operands, self.first)
        return self.known[key]


def without_unchanged(recipe: Recipe) -> Recipe:
    """Return a recipe with the same nodes, whose loops carry only what they change."""
    loops = recipe.steps.loops()
    if not loops:
        return recipe
    unchanged = _Unchanged(RecipeBuilder(recipe), loops)
    if unchanged.places:
        unchanged.put()
        return unchanged.made.recipe
    return recipe


class _Unchanged:
    """Finds what loops do not change, inner first. ``places``: those in the loops' marks; ``nodes`` replace phis."""

    def __init__(self, made: RecipeBuilder, loops: list[RecipeLoop]) -> None:
        self.made, self.recipe = made, made.recorded
        self.places: dict[int, set[int]] = {}
        self.nodes: dict[int, int] = {}
        self.copies: set[int] = set()
        self.written = self.recipe.written_bases()
        for loop in reversed(loops):
            self._find(loop)

    def _find(self, loop: RecipeLoop) -> None:
        begin, phis, agains = loop.begin, loop.phis, [again for _, again in loop.bodies]
        updates = list(zip(*[self.recipe.steps.raw(again).operands for again in agains], strict=True))
        pairs = zip(phis, updates, strict=True)
        places = {k for k, (phi, nodes) in enumerate(pairs) if all(self.node(node) == phi for node in nodes)}
        if places:
            self.places |= dict.fromkeys((begin, *agains), places)
        for k in places:
            at = begin - len(phis) + k
            copy = self.recipe.steps.raw(at)
            node, nodes = self.node(copy.operands[0]), self.recipe.nodes
            base, form = self.node(self.recipe.base_of(node)), self.made.steps.kinds[copy.kind].form
            is_whole = nodes[copy.result].spec is nodes[node].spec is nodes[base].spec and nodes[node].offset == 0
            wanted = form is not None and form.wanted[0] and self.node(self.recipe.family_of(node)) == base
            is_same = wanted or not self.recipe.wants(base)
            is_plain = self.made.op(copy) is CLONE and is_whole and is_same
            source = base if is_plain and not {base, copy.result} & self.written else None
            if source is not None:
                self.nodes[phis[k]] = source
                self.copies.add(at)

    def node(self, node: int) -> int:
        """Return the node that is read in place of one; numbers stand for themselves."""
        while node in self.nodes:
            node = self.nodes[node]
        return node

    def put(self) -> None:
        """Put all steps that are left, with their lines."""
        made, lines = self.made, self.recipe.lines
        numbers = [] if lines is None else lines.of_steps(self.recipe.steps).tolist()
        marks = made.recipe.lines = None if lines is None else program.Lines([*lines.table])
        for at in range(len(self.recipe.steps)):
            if at in self.copies:
                continue
            if marks is not None:
                marks.mark(made.steps.head[program.StepWords.used], numbers[at])
            step, places = self.recipe.steps.raw(at), self.places.get(at, ())
            operands = tuple([self.node(o) for k, o in enumerate(step.operands) if k not in places])
            kind = made.steps.kinds[step.kind]
            number = made.number(StepKind(kind.op, None, kind.params, len(operands))) if places else step.kind
            made.put(RawStep(number, self.node(step.result), operands, at))
        for k, entry in enumerate(made.nodes):
            base, family = (None if n is None else self.node(n) for n in (entry.base, entry.family))
            if (base, family) != (entry.base, entry.family):
                made.nodes[k] = replace(entry, base=base, family=family)
        made.steps.fit()
        made.recipe.outputs = [self.node(node) for node in self.recipe.outputs]


_FEWEST = 24  # operations of a line that are worth a loop
_TIMES = 3  # times that a line runs, at least


class Unrolled(NamedTuple):
    """A line of which operations are in no loop: its number, how many these are, how often it ran, and why."""

    line: int
    operations: int
    times: int
    reason: str


def unrolled(recipe: Recipe, straight: Sequence[int]) -> list[Unrolled]:
    """Return the lines, if known, of which many steps outside of loops ran several times; the most first."""
    if recipe.lines is None or len(straight) < _FEWEST:
        return []
    numbers = recipe.lines.of_steps(recipe.steps).tolist()
    by_line: dict[int, list[list[int]]] = {}
    for number, group in itertools.groupby(straight, key=lambda step: numbers[step]):
        by_line.setdefault(number, []).append([*group])
    lines = []
    for number, visits in by_line.items():
        count = sum(map(len, visits))
        times = visits if len(visits) > 1 else _cut(recipe, visits[0])
        if number >= 0 and count >= _FEWEST and len(times) >= _TIMES:
            lines.append(Unrolled(number, count, len(times), _difference(recipe, times)))
    return sorted(lines, key=lambda entry: -entry.operations)


def _cut(recipe: Recipe, steps: list[int]) -> list[list[int]]:
    """Cut steps where the first of them comes again: a line that is the whole body of a loop."""
    operations = [recipe.steps[step].op for step in steps]
    begins = [k for k, op in enumerate(operations) if op is operations[0]]
    return [steps[low:high] for low, high in itertools.pairwise([*begins, len(steps)])]


def _difference(recipe: Recipe, times: list[list[int]]) -> str:
    """Return how two times differ; the first one, which may begin otherwise, is not looked at."""
    for one, other in itertools.pairwise(times[1:]):
        for first, second in zip(one, other, strict=False):
            (before, read), (after, read_then) = _shown(recipe, first), _shown(recipe, second)
            if before != after:
                return f"{before} is {after} at the next time"
            if read != read_then:
                return f"{before} of {read} is of {read_then} at the next time"
        if len(one) != len(other):
            return f"{len(one)} operations are {len(other)} at the next time"
    return "the same operations each time, but what they read, or where it stands, does not change regularly"


def _shown(recipe: Recipe, at: int) -> tuple[str, str]:
    """Return as text what a step does, and what it reads."""
    step, nodes = recipe.steps[at], recipe.nodes
    read = [program.describe(nodes[o.node].spec) if isinstance(o, NodeRef) else "a number" for o in step.operands]
    text = f"{step.op.name}{program.parameters(step.params)} {program.describe(nodes[step.result].spec)}"
    return text, ", ".join(read)
