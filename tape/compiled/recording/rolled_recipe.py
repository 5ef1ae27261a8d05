"""The recipe of a recorded call with its Python loops as native ones, each with the bodies that are known of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernels.kinds.loop import LOOP_STATE, Guard
from kernels.ops.loops import LOOP_AGAIN, LOOP_BEGIN, LOOP_END
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import Lines, StepKind, Steps, StepWords
from tape.compiled.recording.body_maker import Recorded, bodies_of, copy_of, forget_views, results_of
from tape.compiled.recording.loop_bodies import Body, DoesNotFitError, NativeLoop, Ref, joined, usable
from tape.compiled.recording.loop_spans import Heads, Span, is_within, phis_of
from tape.compiled.recording.sameness import same_kind

Step = tuple[StepKind, int, list[Any], int]
"""A kind, the result, operands (a number in a tuple), and the number of the line."""
Above = Callable[[Any], int]
"""What returns the nodes that bodies of a loop within another one know as those above."""


class Rolled:
    """A recording whose loops are told by their bodies; everything else is as it was recorded."""

    def __init__(self, recording: Any, heads: Heads, spans: Sequence[Span]) -> None:
        self.recording, self.trace, self.spans = recording, heads.trace, spans
        trace, old = self.trace, self.trace.recipe
        self.nodes: list[Node] = []
        self.places: dict[int, int] = {}
        """The nodes by those of the recording."""
        self.at = -1
        """The step that is taken."""
        self.pieces: list[list[Step] | NativeLoop] = []
        self.guards: list[list[Any]] = []
        """Those of each piece."""
        if spans and any(at >= (*trace.starts, 0)[spans[0].start] for at in recording.draws):
            raise DoesNotFitError("random numbers are drawn in it, or behind it")
        starts = [*trace.starts, len(trace.words)]
        for span in spans:
            if any(starts[span.start] <= at < starts[span.stop] for at in recording.kept_calls):
                raise DoesNotFitError("an autograd.Function is called in it, whose backward is to run")
        numbered = old.lines.of_steps(old.steps).tolist() if old.lines is not None else []
        self.recorded = Recorded(recording, heads, numbered)
        self.arguments = [self._place(node) for node in old.arguments]
        self.written = {self.places[node] for node in old.written}
        begin = 0
        for span in spans:
            self._flat(begin, span.start, span.drawn)
            self._loop(span)
            begin = span.stop
        self._flat(begin, len(trace.starts), -1)
        phis = {phi for loop in self.loops for _, phi in loop.phis}
        self.outputs = [self._result(self._place(node), phis) for node in old.outputs]

    def _place(self, node: int) -> int:
        """Return the node that stands for one of the recording."""
        known = self.places.get(node)
        if known is None:
            entry = self.trace.recipe.nodes[node]
            if self._is_hidden(node):
                raise DoesNotFitError("what an iteration made is used behind the loop, and no variable holds it")
            self.trace.check_known(node, self.at)
            base, family = (None if n is None else self._place(n) for n in (entry.base, entry.family))
            self.nodes.append(replace(entry, base=base, family=family))
            known = self.places[node] = len(self.nodes) - 1
        return known

    def _is_hidden(self, node: int) -> bool:
        return is_within(self.spans, self.trace.made.get(node, -1))

    def _flat(self, begin: int, stop: int, left_out: int) -> None:
        """Take steps as they are."""
        steps, trace, guards = [], self.trace, list[Any]()
        for at in range(begin, stop):
            if at == left_out:
                continue
            self.at = at
            if at in trace.guards:
                guards.append(self.recording.guards[trace.guards[at]])
            operands = [self._place(o) if o >= 0 else (trace.recipe.steps.numbers[~o],) for o in trace.operands(at)]
            steps.append((trace.kind(at), self._place(trace.result(at)), operands, self.recorded.line(at)))
        self.pieces.append(steps)
        self.guards.append(guards)

    def _result(self, place: int, phis: set[int]) -> int:
        """Return a result that the way back through loops does not change: a copy, if it is a phi."""
        node = self.nodes[place]
        if (place if node.base is None else node.base) not in phis:
            return place
        self.pieces[-1].append(self._copied(place, -1))  # type: ignore[union-attr]
        return len(self.nodes) - 1

    def _copied(self, place: int, line: int) -> Step:
        """Return the step that copies a node, a new one in C order."""
        node = self.nodes[place]
        family = node if node.family is None else self.nodes[node.family]
        kind, copy = copy_of(node, wanted=node.differentiable or family.differentiable)
        self.nodes.append(copy)
        return kind, len(self.nodes) - 1, [place], line

    def _loop(self, span: Span) -> None:
        """Begin with copies of what the first iteration starts from; what follows reads these."""
        line, phis = self.recorded.line(span.start), phis_of(self.trace, span)
        copies = [self._copied(self._place(span.visits[0].nodes[place]), line) for place in phis]
        numbers = [result for _, result, _, _ in copies]
        self.pieces[-1].extend(copies)  # type: ignore[union-attr]
        count: Ref | None = None if span.count is None else ("outer", self._place(span.count))
        forget_views(self.places, self.trace, self.trace.written(span.start, span.stop))
        self.nodes.append(Node(LOOP_STATE))
        state, bodies = len(self.nodes) - 1, bodies_of(self.recorded, span, phis, self.places)
        outer, where = tuple([("outer", number) for number in numbers]), span.visits[0].line
        loop = NativeLoop(("outer", state), outer, count, span.limit, span.counted, span.apart, where, bodies, line)
        self.pieces.append(loop)
        self.guards.append([])
        written = self.trace.written(span.stop, len(self.trace.starts))
        results = results_of(span, phis)
        self.places |= {node: numbers[k] for node, k in results.items()}
        kept = [node for node in results if node in written]
        if any(self.trace.recipe.nodes[node].argument for node in kept):
            raise DoesNotFitError("it carries an argument that is written behind it")
        forget_views(self.places, self.trace, {*kept})
        if kept:  # what the loop carries stays as it was
            copies = [self._copied(self.places[node], line) for node in kept]
            self.places |= {node: result for node, (_, result, _, _) in zip(kept, copies, strict=True)}
            self.pieces.append(copies)
            self.guards.append([])

    @property
    def loops(self) -> list[NativeLoop]:
        """The loops, in order."""
        return [piece for piece in self.pieces if isinstance(piece, NativeLoop)]

    def join(self, other: Rolled) -> None:
        """Take in the bodies that another call knew, which went the same way outside of loops: these come first."""
        for loop, bodies in zip(self.loops, self._joined(other), strict=True):
            loop.bodies = bodies

    def difference(self, other: Rolled) -> str:
        """Return in what the loops of another call that went the same way outside of these differ, or nothing."""
        try:
            self._joined(other)
        except DoesNotFitError as error:
            return str(error)
        return ""

    def _joined(self, other: Rolled) -> list[list[Body]]:
        return [joined(known.bodies, loop.bodies) for loop, known in zip(self.loops, other.loops, strict=True)]

    def lacks_bodies(self, least: int) -> bool:
        """Whether a loop that runs a certain number of times has no body that was seen so often."""
        return any(loop.counted and not usable(loop.bodies, least) for loop in self.loops)

    def put(self, recording: Any, *, least: int | None) -> None:
        """Give a recording the recipe with loops, of the bodies that were seen so often; of none where that is None."""
        made = _Assembly(self, least)
        recording.recipe, recording.guards = made.recipe, made.guards
        recording.sources, recording.readers = made.sources, made.readers
        recording.path, recording.on_path = tuple(made.path), made.on_path


class _Assembly:
    """Puts the pieces together."""

    def __init__(self, rolled: Rolled, least: int | None) -> None:
        old = rolled.trace.recipe
        self.rolled, self.least, self.nodes, self.steps = rolled, least, list(rolled.nodes), Steps()
        self.lines = None if old.lines is None else Lines([*old.lines.table])
        self.guards: list[Any] = []
        self.path: list[bytes] = []
        """What guards outside of loops expect, and a mark for each loop."""
        self.on_path: list[int] = []
        """Of each guard, where it stands in the path; -1 for those in loops."""
        self._kinds: dict[Any, list[int]] = {}
        self.sources: dict[int, Any] = {}
        self.readers: dict[int, Any] = {}
        for node, place in rolled.places.items():
            self._read(rolled.recording, node, place)
        for piece, guards in zip(rolled.pieces, rolled.guards, strict=True):
            if isinstance(piece, NativeLoop):
                self.path.append(f"loop at {piece.line}: {piece.limit}, {piece.counted}, {piece.apart}".encode())
                self._loop(piece, piece.number, _outer)
            else:
                for step in piece:
                    self._step(*step)
                self.guards += guards
                self.on_path += range(len(self.path), len(self.path) + len(guards))
                self.path += [guard.value for guard in guards]
        self.recipe = Recipe(self.nodes, self.steps, rolled.arguments, rolled.outputs, rolled.written, self.lines)
        self.steps.fit()

    def _read(self, recording: Any, node: int, place: int) -> None:
        if node in recording.all_sources:
            self.sources[place] = recording.all_sources[node]
        if node in recording.all_readers:
            self.readers[place] = recording.all_readers[node]

    def _step(self, kind: StepKind, result: int, operands: Sequence[Any], line: int) -> None:
        steps, kinds, nodes = self.steps, self.steps.kinds, self.nodes
        specs = [nodes[o].spec if type(o) is int else type(o[0]) for o in (result, *operands)]
        known = self._kinds.setdefault((kind.op, *specs), [])  # steps of a kind have operands alike
        number = next((k for k in known if same_kind(kinds[k], kind)), len(kinds))
        if number == len(kinds):
            known.append(number)
            kinds.append(kind)
        if self.lines is not None:
            self.lines.mark(steps.head[StepWords.used], line)
        steps.add(number, result, [o if type(o) is int else steps.number(o[0]) for o in operands])

    def _line_of(self, body: Body, number: int) -> int:
        """Return the number of a line here that has one in the table of the recording that a body is of."""
        known = body.recording.recipe.lines
        if self.lines is None or known is None or number < 0 or body.recording is self.rolled.recording:
            return number
        entry, table = known.table[number], self.lines.table
        if entry not in table:
            table.append(entry)
        return table.index(entry)

    def _loop(self, loop: NativeLoop, line: int, place: Above) -> None:
        """Put a loop that has bodies: its marks and these."""
        bodies, phis, state = usable(loop.bodies, self.least), [place(phi) for phi in loop.phis], place(loop.state)
        if not bodies:
            return
        operands = phis if loop.count is None else [*phis, place(loop.count)]
        params = (loop.limit, loop.count is not None, loop.counted, loop.line)
        self._step(StepKind(LOOP_BEGIN, None, params, len(operands)), state, operands, line)
        for body in bodies:
            self._body(state, phis, body, place)
        self._step(StepKind(LOOP_END, None, (), 0), state, [], line)

    def _body(self, state: int, phis: Sequence[int], body: Body, above: Above) -> None:
        places: dict[Ref, int] = {("phi", k): node for k, node in enumerate(phis)}
        for k, (node, old) in enumerate(body.leaves):
            mine = self.rolled.places.get(old) if body.recording is self.rolled.recording else None
            if mine is None:
                self.nodes.append(node)
                mine = len(self.nodes) - 1
                self._read(body.recording, old, mine)
            places["leaf", k] = mine
        first = len(self.nodes)
        places |= {("local", k): first + k for k in range(len(body.nodes))}

        def place(ref: Ref) -> int:
            return above(ref[1]) if ref[0] == "above" else _outer(ref) if ref[0] == "outer" else places[ref]

        for node, *of in body.nodes:
            base, family = [None if ref is None else place(ref) for ref in of]
            self.nodes.append(replace(node, base=base, family=family))
        guards = iter(body.guards)
        for step in body.steps:
            if isinstance(step, NativeLoop):
                self._loop(step, self._line_of(body, step.number), place)
                continue
            kind, result, operands, line = step
            values = [(o[1],) if o[0] == "number" else place(o) for o in operands]
            self._step(kind, place(result), values, self._line_of(body, line))
            if isinstance(kind.op, Guard):
                self.guards.append(next(guards))
                self.on_path.append(-1)
        self._step(StepKind(LOOP_AGAIN, None, (), len(body.updates)), state, [place(o) for o in body.updates], -1)


def _outer(ref: Ref) -> int:
    """Return the node that is known from outside of all loops."""
    return int(ref[1])


def rolled(recording: Any, heads: Heads) -> tuple[Rolled | None, list[Span], str]:
    """Return a recording with those of its loops that fit, None if none does; these, and why another does not.

    Where an outer loop does not fit, those within it may.
    """
    reason = ""
    while spans := heads.spans():
        whole = _tried(recording, heads, spans)
        if isinstance(whole, Rolled):
            return whole, spans, reason
        apart = [(span, _tried(recording, heads, [span])) for span in spans]
        failed = [(span, tried) for span, tried in apart if isinstance(tried, str)]
        again = {span.line for span, _ in failed if span.apart}
        heads.apart -= again
        if again:
            continue
        reason = reason or next((tried for _, tried in failed), whole)
        if not failed:
            break
        heads.without |= {span.visits[0].entry for span, _ in failed}
    return None, [], reason


def _tried(recording: Any, heads: Heads, spans: Sequence[Span]) -> Rolled | str:
    """Return a recording with these loops, or why they do not fit; loops within them that do not are their steps.

    Before that, variables of these that hold the same tensor at some iterations are one phi, where they always do.
    """
    while True:
        try:
            return Rolled(recording, heads, spans)
        except DoesNotFitError as error:
            if not error.inner:
                return f"the loop at {spans[0].line}: {error}"
            if error.inner in heads.apart:
                heads.apart.discard(error.inner)
            else:
                heads.flat.add(error.inner)
