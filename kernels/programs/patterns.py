"""Which results of a program depend on which elements of its arguments: sets of these, one for each element of memory.

The sets are a superset: what a step may depend on for some values, it depends on. Nothing depends through comparisons,
integers and indices, which have no derivative. Where an index is a value, any element may be picked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec
from kernels.kinds.elementwise import Contraction, Elementwise, Reduction, Select
from kernels.kinds.routine import Guard, LoopMark, Routine
from kernels.kinds.views import Copy, Gather, Join, View, Write
from kernels.language import jit
from kernels.native.memory import where
from kernels.programs.patterns_native import SetTable
from kernels.programs.program import Recipe, RecipeLoop, Step
from kernels.rules.op import Op
from kernels.rules.scalar_loops import NodeRef

MOST_MEMBERS = 1 << 27
"""Members of all sets together, of 8 bytes each: of a pattern with more there is no use."""
_REMEMBERED = 1 << 14  # unions
_LOOK = 1 << 22  # members, at least, from which on sets that are of no use are dropped
_STEPS_OF_SETS = 8


class DensePatternError(ValueError):
    """A derivative has too many elements that may be other than zero."""


class Sets:
    """Sets of the numbers below ``universe``, as numbers: 0 is empty, ``1 + i`` has the member i."""

    def __init__(self, universe: int) -> None:
        self.universe, count = universe, universe + 1
        native = jit.load_module("programs.patterns_native")
        self._unite, self._add = native.unite.entry_point, native.added_at.entry_point
        self._place = native.place_again.entry_point
        self.head = np.zeros(SetTable.SIZE, np.int64)
        self._blocks: dict[str, Array] = {}
        self._hold("starts", np.concatenate([[0], np.arange(count)]), 4 * count + 64)
        self._hold("hashes", np.zeros(0, np.int64), 4 * count + 64)
        self._hold("pool", np.arange(universe), 4 * count + 64)
        self._hold("memo", np.zeros(0, np.int64), 3 * _REMEMBERED)
        self.head[SetTable.count], self.head[SetTable.used] = count, universe
        self.head[SetTable.sets], self.head[SetTable.room] = 4 * count + 62, 4 * count + 64
        self.head[SetTable.memo_mask] = _REMEMBERED - 1
        self._rehash(8 * count)
        self._next_look = max(_LOOK, 8 * count)

    def _hold(self, name: str, values: Array, room: int) -> None:
        block = np.zeros(room, np.int64)
        block[: len(values)] = values
        self._blocks[name] = block
        self.head[getattr(SetTable, name)] = where(block)

    def _rehash(self, least: int) -> None:
        places = 1 << (least - 1).bit_length()
        self._hold("table", np.zeros(0, np.int64), places)
        self.head[SetTable.mask] = places - 1
        self._place(where(self.head), self.universe + 1)

    def _grow(self, members: int) -> None:
        """Make room for more sets, and for one of so many members."""
        used, count = int(self.head[SetTable.used]), int(self.head[SetTable.count])
        if used + members > MOST_MEMBERS:
            raise DensePatternError(
                f"the pattern of {self.universe:,} unknowns is dense: it has more than {MOST_MEMBERS:,} elements; "
                "take products with the derivative instead (tape.func.jvp, vjp)"
            )
        if used + members > self.head[SetTable.room]:
            room = min(2 * used + 2 * members, MOST_MEMBERS)
            self._hold("pool", self._blocks["pool"][:used], room)
            self.head[SetTable.room] = room
        if count + 2 >= self.head[SetTable.sets]:
            for name in ("starts", "hashes"):
                self._hold(name, self._blocks[name][: count + 1], 2 * count + 64)
            self.head[SetTable.sets] = 2 * count + 62
        if 2 * count >= self.head[SetTable.mask]:
            self._rehash(4 * count)

    @property
    def is_full(self) -> bool:
        """Whether so many sets were made since the last look that most of them may be of no use by now."""
        return bool(self.head[SetTable.used] > self._next_look)

    def keep(self, memory: Iterable[Array]) -> None:
        """Drop all sets but those in some memory, where they get other numbers."""
        arrays, first, numbers = list(memory), self.universe + 1, np.arange(self.head[SetTable.count])
        is_used = np.zeros(len(numbers), np.bool_)
        for array in arrays:
            is_used[array] = True
        used = first + np.flatnonzero(is_used[first:])
        indptr, members = self.rows(used)
        hashes = self._blocks["hashes"][used]
        numbers[used] = np.arange(first, first + len(used))
        for array in arrays:
            array[...] = numbers[array]
        count = first + len(used)
        blocks, end = self._blocks, self.universe + len(members)
        blocks["starts"][first : count + 1] = self.universe + indptr
        blocks["hashes"][first:count] = hashes
        blocks["pool"][self.universe : end] = members
        blocks["memo"][:] = 0
        self.head[SetTable.count], self.head[SetTable.used] = count, end
        self._rehash(len(blocks["table"]))
        self._next_look = max(_LOOK, 2 * end)

    def sizes(self, sets: Array) -> Array:
        """Return how many members sets have."""
        starts = self._blocks["starts"]
        return starts[sets + 1] - starts[sets]

    def united(self, a: Array, b: Array) -> Array:
        """Return the unions of sets, element by element, of operands that NumPy would broadcast."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        x, y = (np.ascontiguousarray(np.broadcast_to(z, shape)) for z in (a, b))
        out = np.empty(shape, np.int64)
        self._until_done(lambda at: self._unite(where(self.head), where(out), where(x), where(y), at, out.size), x, y)
        return out

    def _until_done(self, run: Callable[[int], int], x: Array, y: Array) -> None:
        at, x, y = 0, x.reshape(-1), y.reshape(-1)
        while (at := run(at)) < len(y):
            self._grow(int(self.sizes(x[at : at + 1])[0] + self.sizes(y[at : at + 1])[0]) if len(x) == len(y) else 0)

    def add_at(self, target: Array, at: Array, sets: Array) -> None:
        """Add sets to those of a vector at places, which may come several times."""
        at, sets = np.ascontiguousarray(at).reshape(-1), np.ascontiguousarray(sets).reshape(-1)
        begin = 0
        while True:
            begin = self._add(where(self.head), where(target), where(at), where(sets), begin, at.size)
            if begin == at.size:
                return
            self._grow(int(self.sizes(target[at[begin : begin + 1]])[0] + self.sizes(sets[begin : begin + 1])[0]))

    def along(self, sets: Array, axes: Iterable[int]) -> Array:
        """Return the union over axes, each of which is then of length one: by halves, which makes few sets."""
        for axis in axes:
            while (n := sets.shape[axis]) > 1:
                half = n // 2
                first, second, rest = np.split(sets, [half, 2 * half], axis)
                sets = np.concatenate([self.united(first, second), rest], axis)
            if not n:
                shape = [1 if i == axis % sets.ndim else m for i, m in enumerate(sets.shape)]
                sets = np.zeros(shape, np.int64)
        return sets

    def of_all(self, *operands: Array) -> Array:
        """Return the one union of all sets."""
        return reduce(self.united, [self.along(x.reshape(-1), (0,)).reshape(()) for x in operands], np.zeros((), int))

    def product(self, a: Array, b: Array) -> Array:
        """Return the sets of a matrix product, of vectors, or of batches."""
        left, right = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
        result = self.united(self.along(left, (-1,)), self.along(right, (-2,)))
        result = result[..., 0, :] if a.ndim == 1 else result
        return result[..., 0] if b.ndim == 1 else result

    def rows(self, sets: Array) -> tuple[Array, Array]:
        """Return the members of sets as SciPy's CSR has the columns of rows: where each begins, and the columns."""
        starts, sizes = self._blocks["starts"], self.sizes(sets)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        if indptr[-1] > MOST_MEMBERS:
            self._grow(MOST_MEMBERS)
        places = np.arange(indptr[-1]) + np.repeat(starts[sets] - indptr[:-1], sizes)
        return indptr, self._blocks["pool"][places]


class Dependence:
    """The sets of all memory of a program, as its steps change it. A base has a set for each element of its memory."""

    def __init__(self, recipe: Recipe, unknowns: Sequence[int]) -> None:
        self.recipe, nodes = recipe, recipe.nodes
        sizes = [nodes[node].spec.size for node in unknowns]
        self.sets = Sets(sum(sizes))
        self.memory: dict[int, Array] = {}
        first = 1
        for node, size in zip(unknowns, sizes, strict=True):
            self.part(node)[...] = np.arange(first, first + size).reshape(nodes[node].spec.shape)
            first += size
        self._loops = {loop.begin: loop for loop in recipe.steps.loops()}
        self._last = {} if self._loops else self._last_uses()
        self.run(0, len(recipe.steps))

    def _last_uses(self) -> dict[int, list[int]]:
        """Return by step the memory that no later one uses."""
        steps, base_of, last = self.recipe.steps, self.recipe.base_of, dict[int, int]()
        for at in range(len(steps)):
            raw = steps.raw(at)
            last.update((base_of(node), at) for node in (raw.result, *raw.operands) if node >= 0)
        for node in self.recipe.outputs:
            last.pop(base_of(node), None)
        uses: dict[int, list[int]] = {}
        for base, at in last.items():
            uses.setdefault(at, []).append(base)
        return uses

    def part(self, node: int) -> Array:
        """Return the sets of a value, in its shape: a view of those of its memory."""
        nodes, base = self.recipe.nodes, self.recipe.base_of(node)
        spec, whole = nodes[node].spec, nodes[base].spec
        memory = self.memory.get(base)
        if memory is None:
            memory = self.memory[base] = np.zeros(_extent(whole), np.int64)
        item = whole.dtype.itemsize
        strides = [_STEPS_OF_SETS * (s // item) for s in spec.strides]
        if spec.dtype.itemsize != item:
            raise NotImplementedError("a view of another dtype")
        return np.ndarray(spec.shape, np.int64, memory, _STEPS_OF_SETS * (nodes[node].offset // item), strides)

    def operand(self, operand: Any) -> Array:
        """Return the sets of an operand: of a Python number, an integer or a truth they are empty."""
        if not isinstance(operand, NodeRef) or self.recipe.nodes[operand.node].spec.dtype.kind != "f":
            shape = self.recipe.nodes[operand.node].spec.shape if isinstance(operand, NodeRef) else ()
            return np.broadcast_to(np.int64(0), shape)
        return self.part(operand.node)

    def run(self, begin: int, end: int) -> None:
        """Go through steps."""
        steps, at = self.recipe.steps, begin
        while at < end:
            loop = self._loops.get(at)
            if loop is not None:
                self._repeated(loop)
                at = loop.end + 1
                continue
            step = steps[at]
            self._done(step)
            for base in self._last.get(at, ()):
                self.memory.pop(base, None)
            if self.sets.is_full:
                self.sets.keep(self.memory.values())
            at += 1

    def _repeated(self, loop: RecipeLoop) -> None:
        """Go through the ways of an iteration until what they carry depends on nothing more."""
        changed = True
        while changed:
            changed = False
            for first, again in loop.bodies:
                self.run(first, again)
                for phi, update in zip(loop.phis, self.recipe.steps[again].operands, strict=False):
                    before = self.part(phi)
                    after = self.sets.united(before, self.operand(update))
                    changed |= not np.array_equal(before, after)
                    before[...] = after

    def _done(self, step: Step) -> None:
        op, nodes = step.op, self.recipe.nodes
        if isinstance(op, (Guard, LoopMark)) or (isinstance(op, View) and nodes[step.result].base is not None):
            return
        if isinstance(op, Write):
            self._written(op, step)
            return
        spec = nodes[step.result].spec
        if spec.dtype.kind == "f":
            rule = next((rule for kind, rule in _RESULTS.items() if isinstance(op, kind)), None)
            sets = None if rule is None else rule(self, step)
            if sets is None:
                sets = self.sets.of_all(*map(self.operand, step.operands))
            self.part(step.result)[...] = sets
        elif self.recipe.base_of(step.result) in self.memory:
            self.part(step.result)[...] = 0

    def memory_at(self, step: Step, node: int) -> tuple[Array, Array]:
        """Return the memory of a value, and the places in it that a step names."""
        entry = self.recipe.nodes[node]
        self.part(node)
        return self.memory[self.recipe.base_of(node)], step.params[0] + entry.offset // entry.spec.dtype.itemsize

    def _written(self, op: Write, step: Step) -> None:
        part, value = self.part(step.result), self.operand(step.operands[1])
        if len(step.operands) > 2:  # noqa: PLR2004 (places, which are values)
            part[...] = self.sets.united(part, self.sets.of_all(value))
        elif not step.params:
            part[...] = self.sets.united(part, value) if op.adds else value
        else:
            memory, places = self.memory_at(step, step.result)
            if not op.adds:
                memory[places] = 0
            self.sets.add_at(memory, places, np.broadcast_to(value, places.shape))

    def of(self, nodes: Iterable[int]) -> Array:
        """Return the sets of values, end to end."""
        parts = [self.operand(NodeRef(node)).reshape(-1) for node in nodes]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _extent(spec: Spec) -> int:
    if 0 in spec.shape:
        return 0
    steps = [(n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)]
    if min(steps, default=0) < 0:
        raise NotImplementedError("memory that is shown backwards")
    return sum(steps) // spec.dtype.itemsize + 1


# What a result depends on, by the kind of its operation; None: on all of its operands, each element on all.


def _of_elements(flow: Dependence, step: Step) -> Array:
    pairs = zip(step.operands, step.op.pullback, strict=True)
    return reduce(flow.sets.united, [flow.operand(x) for x, rule in pairs if rule is not None], np.zeros((), np.int64))


def _of_axes(flow: Dependence, step: Step) -> Array:
    axes, sets = step.params[0], flow.operand(step.operands[0])
    if not sets.ndim:
        return sets
    shape = flow.recipe.nodes[step.result].spec.shape
    return flow.sets.along(sets, (axes,) if isinstance(axes, int) else axes).reshape(shape)


def _of_parts(flow: Dependence, step: Step) -> Array:
    assert isinstance(step.op, Join)
    return step.op.join(list(map(flow.operand, step.operands)), axis=step.params[0])  # type: ignore[no-any-return]


def _of_places(flow: Dependence, step: Step) -> Array:
    source = step.operands[0]
    if not step.params or not isinstance(source, NodeRef):  # the places are a value
        return flow.sets.of_all(flow.operand(source))
    memory, places = flow.memory_at(step, source.node)
    return memory[places]  # type: ignore[no-any-return]


def _of_copy(flow: Dependence, step: Step) -> Array:
    return flow.operand(step.operands[0])


def _of_view(flow: Dependence, step: Step) -> Array:
    assert isinstance(step.op, View)
    return step.op.apply(flow.operand(step.operands[0]), *step.params)  # type: ignore[no-any-return]


def _of_product(flow: Dependence, step: Step) -> Array:
    return flow.sets.product(*map(flow.operand, step.operands))


def _of_routine(flow: Dependence, step: Step) -> Array | None:
    """Dense along the axes that a routine names, unless its record says more."""
    op = step.op
    assert isinstance(op, Routine)
    if not op.differentiable:
        return np.zeros((), np.int64)
    params, read = dict(step.params[0]), list(map(flow.operand, step.operands))
    if op.spreads is not None and not step.params[1:]:
        return op.spreads(flow.sets, *read, **params)  # type: ignore[no-any-return]
    axes = params.get("dims", (params["dim"],) if "dim" in params else None)
    several = step.params[1:] or len(op.results) > 1
    if several or not axes or not read[0].ndim or any(sets.shape != read[0].shape for sets in read):
        return None
    sets = reduce(flow.sets.united, [flow.sets.along(sets, axes) for sets in read])
    shape = flow.recipe.nodes[step.result].spec.shape
    return sets if len(shape) == sets.ndim else sets.reshape(shape)


_RESULTS: dict[type[Op], Callable[[Dependence, Step], Array | None]] = {
    Elementwise: _of_elements, Reduction: _of_axes, Select: _of_axes, Join: _of_parts, Gather: _of_places,
    Copy: _of_copy, View: _of_view, Contraction: _of_product, Routine: _of_routine,
}  # fmt: skip


def pattern_of_recipe(recipe: Recipe, unknowns: Sequence[int]) -> tuple[Array, Array, tuple[int, int]]:
    """Return where the derivative of all results by arguments, given as nodes, may be other than zero.

    As SciPy's CSR has it: where each row of the matrix begins, the columns, its shape. The recipe has all iterations.
    DensePatternError if there are too many elements.
    """
    flow = Dependence(recipe, unknowns)
    indptr, indices = flow.sets.rows(flow.of(recipe.outputs))
    return indptr, indices, (len(indptr) - 1, flow.sets.universe)
