"""What steps of a program do: the flow of values between them, and checks of what was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Array, Spec
from kernels.kinds.routine import LOOP_STATE, Guard, LoopAgain, LoopBegin, LoopMark
from kernels.kinds.views import View, Write
from kernels.programs.program import Recipe, Step
from kernels.rules.scalar_loops import NodeRef

_MOST_PERIODS = 48
_MOST_RUNS = 512
_TRIES = 16
_TWO = 2  # copies from which on something repeats
_FEW = 3  # copies by which a start is judged, before all are


class Repeat(NamedTuple):
    """Steps that are followed by as many like them, ``count`` copies end to end; ``inner`` repeat in the first copy."""

    start: int
    length: int
    count: int
    inner: tuple[Repeat, ...] = ()

    @property
    def stop(self) -> int:
        """The step behind the last copy."""
        return self.start + self.length * self.count


def repeats(symbols: Array, sources: Array) -> list[Repeat]:
    """Return the repeats of a program, in order, without overlaps; the longest first come to their right.

    ``symbols`` says what each step does, as a number; ``sources``, a row a step, which step each operand is the result
    of; it is negative for what no step made. Copies do the same steps in the same order. An operand of theirs comes
    from before the first copy, or from always as many steps ago: from the same copy, or from an earlier one, where the
    first copies take theirs from before.
    """
    return _within(symbols, sources, 0, len(symbols))


def representatives(parts: Iterable[Repeat], low: int, high: int) -> Array:
    """Return for each step from ``low`` to ``high`` the one that stands for it: in the first copy of what repeats."""
    steps = np.arange(low, high)
    for part in parts:
        first = representatives(part.inner, part.start, part.start + part.length)
        steps[part.start - low : part.stop - low] = np.tile(first, part.count)
    return steps


def _within(symbols: Array, sources: Array, low: int, high: int) -> list[Repeat]:
    taken = np.zeros(high - low, np.bool_)
    chosen = []
    for period, begin, end in _runs(symbols[low:high]):
        free = np.flatnonzero(~taken[begin:end]) + begin
        for part in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1):
            if len(part) >= _TWO * period:
                for start, count in _regular(sources, low + int(part[0]), low + int(part[-1]) + 1, period):
                    chosen.append((start, period, count))
                    taken[start - low : start - low + period * count] = True
    return [Repeat(*c, tuple(_within(symbols, sources, c[0], c[0] + c[1]))) for c in sorted(chosen)]


def _runs(symbols: Array) -> list[tuple[int, int, int]]:
    """Return periods with the parts that have them, from the longest part on: as far as copies are whole."""
    runs = []
    scores: dict[int, int] = {}
    names, width = np.unique(symbols, return_inverse=True)[1], 1
    while len(names) > width:
        order = np.argsort(names, kind="stable")
        alike = names[order[1:]] == names[order[:-1]]
        distances, counts = np.unique(np.diff(order)[alike], return_counts=True)
        for distance, count in zip(distances.tolist(), counts.tolist(), strict=True):
            scores[distance] = scores.get(distance, 0) + count
        if not len(distances):
            break
        names = np.unique(names[:-width] * (int(names.max()) + 1) + names[width:], return_inverse=True)[1]
        width *= 2
    likely = sorted(scores, key=lambda distance: (-scores[distance], distance))[:_MOST_PERIODS]
    for period in [distance for distance in likely if _TWO * distance <= len(symbols)]:
        same = np.concatenate([[False], symbols[:-period] == symbols[period:], [False]])
        begins, ends = np.flatnonzero(np.diff(same.astype(np.int8))).reshape(-1, 2).T
        for k in np.flatnonzero(ends - begins >= max(period, 2)).tolist():  # so many steps are saved
            begin, end = int(begins[k]), int(ends[k]) + period
            runs.append((-((end - begin) // period * period), period, begin, end))
    return [(period, begin, end) for _, period, begin, end in sorted(runs)[:_MOST_RUNS]]


def _regular(sources: Array, start: int, stop: int, period: int) -> list[tuple[int, int]]:
    """Return where in a part, whose steps have this period, copies with regular operands begin, and how many."""
    regular, least = [], _TWO + (period == 1)  # drawn once, one operation of two is more to read
    for _ in range(_TRIES):
        if (stop - start) // period < least:
            break
        few = sources[start : start + min((stop - start) // period, _FEW) * period]
        copies = _copies(few, start, period)
        if copies.min(initial=len(few)) >= least:
            whole = sources[start : start + (stop - start) // period * period]
            count = int(_copies(whole, start, period).min(initial=len(whole) // period))
            regular.append((start, count))
            start += count * period
        else:
            steps, columns = np.nonzero(copies < least)
            origins = few[steps, columns]
            start = int(np.where(origins >= start, origins + 1, start + steps + 1).max())
    return regular


def _copies(sources: Array, start: int, period: int) -> Array:
    """Return for each operand of the first copy how many copies have it in a regular way."""
    blocks = sources.reshape(-1, period, sources.shape[1])
    count, step = len(blocks), np.arange(period)[:, None]
    nth = np.arange(count)[:, None, None]
    ago = start + nth * period + step - blocks
    usual = ago[min(2, count - 1)]  # by then two-step methods have come to their usual operands
    lag = np.maximum(-((step - usual) // period), 0)
    before = blocks < start
    moving = np.where(nth < lag, before, ago == usual)
    return np.maximum(*(np.cumprod(ways, axis=0).sum(axis=0) for ways in (before, moving)))


class StepFlow(NamedTuple):
    """The steps of a program as numbers."""

    sources: Array  # a row a step: which step made an operand, or wrote to it last; negative if none did
    outputs: list[int]  # of the program's results
    repeats: list[Repeat]


def flow_of(recipe: Recipe, lines: Array | None = None) -> StepFlow:
    """Return the flow of a program; where ``lines`` are known, a number a step, steps of one line are alike only."""
    symbols, (sources, outputs) = _symbols(recipe), _sources(recipe)
    if lines is not None and len(lines):
        symbols = symbols * (int(lines.max()) + 1) + lines
    return StepFlow(sources, outputs, repeats(symbols, sources))


def _symbols(recipe: Recipe) -> Array:
    """Return a number for each step: equal for one operation on operands alike, whatever the parameters."""
    numbers: dict[Any, int] = {}
    symbols = []
    for step in map(recipe.steps.raw, range(len(recipe.steps))):
        kind, spec = recipe.steps.kinds[step.kind], recipe.nodes[step.result].spec
        are_numbers = tuple(word < 0 for word in step.operands)
        key = kind.op.name, kind.form and kind.form.name, spec.shape, spec.dtype, are_numbers
        symbols.append(numbers.setdefault(key, len(numbers)))
    return np.array(symbols, np.int64)


def _sources(recipe: Recipe) -> tuple[Array, list[int]]:
    """Return the steps that operands, and results of the program, come from: negative where no step made them."""
    steps, made, written = recipe.steps, dict[int, int](), dict[int, int]()
    phis = {again: loop.phis for loop in steps.loops() for _, again in loop.bodies}
    sources = np.full((len(steps), max((kind.count for kind in steps.kinds), default=0)), -1, np.int64)

    def source(node: int) -> int:
        base = recipe.base_of(node)
        return max(made.get(node, made.get(base, -2 - node)), written.get(base, -2 - node))

    for number, result, operands, at in map(steps.raw, range(len(steps))):
        for k, node in enumerate(operands):
            if node >= 0:
                sources[at, k] = source(node)
        if at in phis:
            written.update(dict.fromkeys(phis[at], at))
        elif isinstance(steps.kinds[number].op, Write):
            written[recipe.base_of(result)] = at
        elif result not in operands:  # a guard passes on what it looks at
            made[result] = at
    return sources, [source(node) for node in recipe.outputs]


def gradient_sources(recipe: Recipe, flow: StepFlow) -> tuple[Array, list[int]]:
    """Return the steps whose pullbacks the gradients of operands, and of results, go to; views pass them by."""
    steps, passed_on = recipe.steps, np.arange(len(recipe.steps))
    for number, result, operands, at in map(steps.raw, range(len(steps))):
        kind, source = steps.kinds[number], flow.sources[at, 0]
        passes = kind.form is None and isinstance(kind.op, (View, Write))
        if passes and recipe.family_of(result) == recipe.family_of(operands[0]):
            passed_on[at] = passed_on[source] if source >= 0 else source
    made = flow.sources >= 0
    sources = flow.sources.copy()
    sources[made] = passed_on[sources[made]]
    return sources, [int(passed_on[source]) if source >= 0 else source for source in flow.outputs]


def differentiated(recipe: Recipe, sources: Array, outputs: list[int]) -> Array:
    """Return which steps lead, by gradients, from floating arguments to the first output, if that is one float."""
    steps = recipe.steps
    reverse = np.zeros(len(steps), np.bool_)
    spec = recipe.nodes[recipe.outputs[0]].spec if recipe.outputs else None
    if spec is None or spec.size != 1 or spec.dtype.kind != "f" or not recipe.wants(recipe.outputs[0]):
        return reverse
    reached = {outputs[0]}
    for step in map(steps.raw, range(len(steps) - 1, -1, -1)):
        form, at = steps.kinds[step.kind].form, step.at
        if at in reached and form is not None:
            reverse[at] = True
            triples = zip(form.wanted, step.operands, sources[at].tolist(), strict=False)
            reached.update(source for wanted, node, source in triples if wanted and node >= 0 and recipe.wants(node))
    return reverse


class Groups(NamedTuple):
    """By step: its operation, the titles of the repeats around it, outermost first, and its line, if lines are kept."""

    operations: list[str]
    blocks: list[tuple[str, ...]]
    lines: list[str]

    def named(self) -> dict[str, list[str]]:
        """Return the names of each step's groups, by what they are groups of."""
        blocks = [" / ".join(path) or "once" for path in self.blocks]
        named = {"operation": self.operations, "block": blocks}
        return named | ({"line": self.lines} if self.lines else {})


def groups_of(recipe: Recipe) -> Groups:
    """Return the groups of a program's steps."""
    operations = recipe.steps.each([kind.op.name for kind in recipe.steps.kinds])
    numbers = None if recipe.lines is None else recipe.lines.of_steps(recipe.steps)
    blocks: list[tuple[str, ...]] = [()] * len(operations)
    _enter(flow_of(recipe, numbers).repeats, operations, (), blocks)
    lines = [] if recipe.lines is None or numbers is None else [recipe.lines.text(n) for n in numbers.tolist()]
    return Groups(operations, blocks, lines)


def _enter(
    repeats: Iterable[Repeat], operations: list[str], path: tuple[str, ...], blocks: list[tuple[str, ...]]
) -> None:
    for start, length, count, inner in repeats:
        first, last = operations[start], operations[start + length - 1]
        within = (*path, f"{count} times {first} .. {last} ({length}) from {start}")
        blocks[start : start + length] = [within] * length
        _enter(inner, operations, within, blocks)
        blocks[start : start + length * count] = blocks[start : start + length] * count


# Native code takes extents from results, and trusts that operands reach as far: what was recorded does so, what
# somebody wrote need not.


def check(recipe: Recipe) -> None:
    """Raise ValueError for a step whose result, operands, parameters and form do not agree."""
    nodes, steps, checked = recipe.nodes, recipe.steps, set()
    specs = [id(node.spec) for node in nodes]
    constant = [nodes[recipe.base_of(i)].constant is not None for i in range(len(nodes))]
    placed = [any(isinstance(p, np.ndarray) for p in kind.params) for kind in steps.kinds]
    loops = list[Step]()
    for number, result, operands, at in map(steps.raw, range(len(steps))):
        kind = steps.kinds[number]
        key = (number, specs[result], *[specs[o] if o >= 0 else 0 for o in operands])
        if constant[result] and not isinstance(kind.op, (Guard, View)):
            raise ValueError(f"{kind.op.name} writes to a constant")
        if placed[number]:
            _check_places(recipe, steps[at])
        if isinstance(kind.op, LoopMark):
            loops = _check_loop(recipe, steps[at], loops)
        if key not in checked or isinstance(kind.op, Write):
            _check_specs(recipe, steps[at])
            checked.add(key)
    if loops:
        raise ValueError("a loop does not end")


def _check_loop(recipe: Recipe, step: Step, loops: list[Step]) -> list[Step]:
    """Check a mark of a loop; return the loops that are open behind it."""
    nodes, state = recipe.nodes, recipe.nodes[step.result]
    operands = [nodes[o.node] if isinstance(o, NodeRef) else None for o in step.operands]
    if None in operands or state.argument or state.base is not None or state.spec is not LOOP_STATE:
        raise ValueError(f"{step.op.name} has no loop")
    if isinstance(step.op, LoopBegin):
        limit, has_count, counted, line = step.params
        is_limit = limit is None or (type(limit) is int and limit >= 0)
        phis = operands[: len(operands) - (has_count is True)]
        fits = is_limit and type(has_count) is type(counted) is bool and type(line) is str and operands
        if not fits or any(phi is None or phi.base is not None or phi.constant is not None for phi in phis):
            raise ValueError("a loop has no phis")
        return [*loops, step]
    if not loops or loops[-1].result != step.result:
        raise ValueError(f"{step.op.name} is outside of its loop")
    is_begun = isinstance(step.op, LoopAgain) or isinstance(recipe.steps[step.at - 1].op, LoopAgain)
    if not is_begun:
        raise ValueError("a loop has no body")
    if not isinstance(step.op, LoopAgain):
        return loops[:-1]
    begin = loops[-1]
    phis = [nodes[o.node] for o in begin.operands[: len(begin.operands) - begin.params[1]] if isinstance(o, NodeRef)]
    kinds = [[(node.spec.shape, node.spec.dtype) for node in group if node is not None] for group in (phis, operands)]
    if kinds[0] != kinds[1] or step.at + 1 == len(recipe.steps):
        raise ValueError("an iteration does not go on with what the next one starts from")
    return loops


def _check_specs(recipe: Recipe, step: Step) -> None:
    specs = [recipe.nodes[o.node].spec if isinstance(o, NodeRef) else None for o in step.operands]
    op, form, result = step.op, step.form, recipe.nodes[step.result].spec
    shapes = [() if spec is None else spec.shape for spec in specs]
    _check_shape(op, shapes, result, step.params, specs)
    if form is None:
        return
    written = isinstance(op, Write)  # whose form has the spec of the base first
    base = recipe.nodes[recipe.family_of(step.result)].spec if written else result
    of_form, read = form.specs[written:], specs[1:2] if written else specs
    alike = form.op is op and form.spec is base and len(of_form) == len(read)
    if not alike or not all(map(_is_read_alike, of_form, read, form.wanted[written:])):
        raise ValueError(f"{op.name} has a form of other operands")
    if isinstance(op, Write):
        region, shape = form.params
        places = step.params[1].shape if step.params else shapes[2] if shapes[2:] else None
        if shape != places or (shape is None and (region.shape, region.gradient) != (result.shape, result.gradient)):
            raise ValueError(f"{step.op.name} has a form of another part")
    elif op.shaped_by_params:
        _check_shape(op, shapes, result, form.params, specs)


def _is_read_alike(of_form: Spec | None, spec: Spec | None, wanted: bool) -> bool:
    """Whether an operand is as in the form, where its gradient may be laid out otherwise if nobody wants it."""
    if of_form is None or of_form is spec:
        return True
    return not wanted and spec is not None and all(getattr(of_form, t) == getattr(spec, t) for t in _READ)


_READ = "shape", "strides", "dtype"


def _check_shape(op: Any, shapes: Any, spec: Spec, params: tuple[Any, ...], specs: list[Any]) -> None:
    if not op.fits(shapes, params, spec, specs):
        raise ValueError(f"{op.name} of shapes {shapes} with {params} does not have shape {spec.shape}")


def _check_places(recipe: Recipe, step: Step) -> None:
    """Check that places of a gather or write are within the memory, and within the gradient buffer."""
    operand = step.operands[0]
    at = step.result if isinstance(step.op, Write) or not isinstance(operand, NodeRef) else operand.node
    node = recipe.nodes[at]
    base, family = recipe.nodes[recipe.base_of(at)].spec, recipe.nodes[recipe.family_of(at)].spec
    memory, gradient = step.params
    rooms = ((memory, node.offset, base.size), (gradient, node.buffer_offset, family.buffer_size))
    for places, offset, room in rooms:
        if places.dtype != np.int64 or not places.flags.c_contiguous or offset % node.spec.dtype.itemsize:
            raise ValueError(f"{step.op.name} has no places")
        start = offset // node.spec.dtype.itemsize
        if places.size and not (places.min() + start >= 0 and places.max() + start < room):
            raise ValueError(f"{step.op.name} has places outside of {node.spec}")
