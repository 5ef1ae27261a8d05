"""Where rows may repeat: tokens say what a row does, and periods are the distances at which tokens come again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Array, Spec
from kernels.foundation.tables import cached_property, dataclass, exact
from kernels.kinds.routine import Callback, Guard, LoopMark
from kernels.kinds.views import View, Write
from kernels.programs.program import HEAD, StepKind
from kernels.programs.rolled_program import Uncompiled
from kernels.programs.several_ways import Predicated
from kernels.programs.task_blocks import Columns


class Patterns:
    """Distinct specs, each with a number; the columns have an entry a spec.

    ``pattern`` is one for specs that are alike in shape, dtype and strides: those of axes of extent 1 tell nothing.
    ``shape`` is one for those alike in shape and dtype. Elements lie from ``low`` to ``high`` bytes from the first one.
    ``apart``: the gradient's strides differ from the value's.
    """

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self._numbers: dict[int, int] = {}
        self._patterns: dict[Any, int] = {}
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._columns = np.zeros((0, 5), np.int64)

    def number(self, spec: Spec) -> int:
        """Return the number of a spec."""
        number = self._numbers.get(id(spec))
        if number is None:
            number = self._numbers[id(spec)] = len(self.specs)
            self.specs.append(spec)
            self._rows.append(self._row(spec))
        return number

    def _row(self, spec: Spec) -> tuple[int, int, int, int, int]:
        extents = [n for n in spec.shape if n != 1]
        strides = tuple([s for s, n in zip(spec.strides, spec.shape, strict=True) if n != 1])
        gradient = tuple([s for s, n in zip(spec.gradient, spec.shape, strict=True) if n != 1])
        reach = [(n - 1) * s for n, s in zip(extents, strides, strict=True)] if spec.size else []
        low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
        pattern = self._patterns.setdefault((spec.shape, spec.dtype.num, strides), len(self._patterns))
        shape = self._patterns.setdefault((spec.shape, spec.dtype.num), len(self._patterns))
        return pattern, shape, low, high + spec.dtype.itemsize * (spec.size > 0), strides != gradient

    def _column(self, place: int) -> Array:
        if len(self._columns) < len(self._rows):
            self._columns = np.array(self._rows, np.int64).reshape(-1, 5)
        return self._columns[:, place]

    pattern = property(lambda self: self._column(0))  # numbers that are equal for equal patterns in memory
    shape = property(lambda self: self._column(1))  # numbers that are equal for equal shapes and dtypes
    low = property(lambda self: self._column(2))  # where the elements begin, in bytes from the first one: not above 0
    high = property(lambda self: self._column(3))  # where the elements end, in bytes from the first one
    apart = property(lambda self: self._column(4))  # whether the gradient has other strides than the value


UNWANTED, WANTED, NOWHERE = 0, 1, 2
"""Of an operand: its gradient is dropped; it is wanted; it is not, and none would lead anywhere."""
_PARTS = 2  # operands of a write: the part, and the value


@dataclass(slots=True, eq=False)
class SlotRead:
    """What a slot reads, as the columns of :class:`StepTable` say; arrays have an axis for each loop around it."""

    value: int
    spec: int
    offset: Array
    place: Array
    literal: Array
    wanted: bool


@dataclass(slots=True, eq=False)
class StepTable:
    """Steps that are no views, in order: columns of rows, and of slots, which are what they read, end to end."""

    first: int  # the value of row ``i`` is ``first + i``
    op: Array  # a number for an operation with its parameters
    line: Array  # the step
    source: Array  # the row, of all, that says the kind
    starts: Array  # where the slots of each row begin
    value: Array  # -1 for numbers
    spec: Array  # in the patterns
    gradient: Array  # UNWANTED, WANTED or NOWHERE
    offset: Array  # in bytes; this and those below have an axis in front for each of the loops around the rows
    place: Array  # which of the values that loops made
    literal: Array  # the number

    def __len__(self) -> int:
        return len(self.op)

    def read(self, slot: int) -> SlotRead:
        """Return what a slot reads."""
        columns = (column[..., slot] for column in (self.offset, self.place, self.literal))
        return SlotRead(int(self.value[slot]), int(self.spec[slot]), *columns, bool(self.gradient[slot] == WANTED))


class ValueTable:
    """What is known of values, by number: ``spec`` in the patterns, ``node`` (-1 of none), ``constants``.

    Arguments come first, then constants, then the results of ``rows``; what loops carry, and constants end to end, are
    added.
    """

    def __init__(self, patterns: Patterns, spec: Array, node: Array, constants: dict[int, Array]) -> None:
        self.patterns, self.constants = patterns, constants
        self._count = len(spec)
        self._spec, self._node = spec, node
        self._is_constant = np.zeros(len(spec), np.bool_)
        self._is_constant[[*constants]] = True

    def __len__(self) -> int:
        return self._count

    spec = property(lambda self: self._spec[: self._count])  # numbers of specs in the patterns
    node = property(lambda self: self._node[: self._count])  # nodes of the recipe
    is_constant = property(lambda self: self._is_constant[: self._count])  # whether a value is a constant

    def add(self, spec: int, node: int, constant: Array | None = None) -> int:
        """Add a value; return its number."""
        if self._count == len(self._spec):
            room = np.zeros(max(self._count, 64), np.int64)
            self._spec, self._node = np.append(self._spec, room), np.append(self._node, room)
            self._is_constant = np.append(self._is_constant, room != 0)
        number = self._count
        self._spec[number], self._node[number], self._is_constant[number] = spec, node, constant is not None
        if constant is not None:
            self.constants[number] = constant
        self._count += 1
        return number


class Operands(NamedTuple):
    """Nodes that are read, as columns of slots."""

    value: Array
    spec: Array
    gradient: Array
    offset: Array


class Extraction:
    """A recipe as ``rows``, a ``table`` of values, and its ``outputs``; ``steps`` are those recorded, of rows."""

    def __init__(self, whole: Predicated) -> None:
        recipe, self.whole = whole.recipe, whole
        self.recipe, self.patterns = recipe, Patterns()
        self.columns = Columns(recipe.nodes)
        self.specs = self.columns.of(lambda node: self.patterns.number(node.spec))
        words = np.frombuffer(recipe.steps.words, np.int64)
        starts = np.frombuffer(recipe.steps.starts, np.int64)
        kinds = recipe.steps.kinds
        numbers = words[starts] if len(starts) else starts
        for number, kind in enumerate(kinds):
            looks_up = isinstance(kind.op, Write) and kind.count > _PARTS  # places that may be one several times
            at = np.flatnonzero(numbers == number)
            if len(at) and (isinstance(kind.op, Callback) or (looks_up and not kind.op.adds)):
                raise Uncompiled(f"{kind.op.name} is not compiled", int(self.whole.origins[at[0]]))
        kept = np.flatnonzero(~_of_kinds(kinds, View)[numbers])
        self.kind, self.kept, self.steps = numbers[kept], kept, whole.origins[kept]
        self.result = words[starts[kept] + 1]
        self.is_write, self.is_guard, self.is_mark = (
            _of_kinds(kinds, cls)[self.kind] for cls in (Write, Guard, LoopMark)
        )
        counts = np.array([kind.count for kind in kinds], np.int64)[self.kind]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.row = np.repeat(np.arange(len(kept)), counts)
        self.nth = np.arange(len(self.row)) - self.starts[self.row]
        self.words = words[starts[kept][self.row] + HEAD + self.nth]
        writes = np.flatnonzero(self.is_write[self.row] & (self.nth == 0))
        self.words[writes] = self.result[self.row[writes]]
        self.table, self.values = self._values()
        self.first = len(self.table) - len(kept)
        wanted = self._is_wanted()
        active = np.zeros(len(self.table), np.bool_)
        active[: len(self.recipe.arguments)] = True
        active[self.first + self.row[wanted]] = True
        into = self.starts[self.row[wanted & (self.nth > 0) & self.is_write[self.row]]]
        active[self.values[self.columns.base[self.words[into]]]] = True
        self.active = active
        self.rows = self._rows()
        outputs = np.array(recipe.outputs, np.int64)
        self.outputs = self._operands(outputs, np.ones(len(outputs), np.bool_), outputs * 0 - 1)

    def _values(self) -> tuple[ValueTable, Array]:
        """Return the table of values, and the value of each node that is none's view; -1 for others."""
        nodes, recipe, base = self.recipe.nodes, self.recipe, self.columns.base
        used = self.columns.base[np.concatenate([self.words[self.words >= 0], np.array(recipe.outputs, np.int64)])]
        values = np.full(len(nodes), -1, np.int64)
        values[recipe.arguments] = np.arange(len(recipe.arguments))
        makes = ~(self.is_write | self.is_guard | self.is_mark)
        made = self.result[makes]
        is_made = np.zeros(len(nodes), np.bool_)
        is_made[made] = True
        rest = np.unique(used[~is_made[used] & (values[used] < 0)]).tolist()
        outer = [*recipe.arguments, *rest]
        values[rest] = np.arange(len(recipe.arguments), len(outer))
        constants = {int(values[node]): nodes[node].constant for node in rest}
        if any(constant is None for constant in constants.values()):
            raise Uncompiled("a value that no step computes")
        if (base[recipe.arguments] != recipe.arguments).any() or (base[made] != made).any():
            raise Uncompiled("a result, or an argument, that is part of another")
        if is_made.sum() != len(made) or (values[made] >= 0).any():
            raise Uncompiled("a value that two steps compute")
        values[made] = len(outer) + np.flatnonzero(makes)
        node = np.concatenate([outer, np.where(makes, self.result, -1)]).astype(np.int64)
        spec = np.where(node >= 0, self.specs[node], -1)
        return ValueTable(self.patterns, spec, node, constants), values

    def _is_wanted(self) -> Array:
        kinds = self.recipe.steps.kinds
        flags = [_wanted(kind) for kind in kinds]
        begins = np.cumsum([0, *[kind.count for kind in kinds]])
        flat = np.array([flag for some in flags for flag in some], np.bool_)
        of_form = flat[begins[self.kind[self.row]] + self.nth] if len(self.row) else np.zeros(0, np.bool_)
        of_form = of_form | self.is_mark[self.row]
        wanted: Array = of_form & (self.words >= 0) & self.columns.wants[self.words * (self.words >= 0)]
        return wanted

    def _operands(self, words: Array, wanted: Array, row: Array) -> Operands:
        """Return what words say; Uncompiled where a gradient is wanted that stands elsewhere than the value."""
        is_node = words >= 0
        nodes = np.where(is_node, words, 0)
        base, offset, spec = (column[nodes] for column in (self.columns.base, self.columns.offset, self.specs))
        wanted = wanted & is_node & self.columns.wants[nodes]
        apart = self._apart[nodes] | (self.columns.buffer_offset[nodes] != offset)
        some = self.patterns.high[spec] > self.patterns.low[spec]
        odd = np.flatnonzero(wanted & some & (apart | (self.patterns.apart[spec] != 0)))
        if len(odd):
            at = int(row[odd[0]])
            raise Uncompiled("a gradient that stands elsewhere than its value", int(self.steps[at]) if at >= 0 else -1)
        value = np.where(is_node, self.values[base], -1)
        leads = is_node & self.active[value]
        gradient = np.where(wanted, WANTED, np.where(leads, UNWANTED, NOWHERE))
        return Operands(value, np.where(is_node, spec, -1), gradient, np.where(is_node, offset, 0))

    @cached_property
    def _apart(self) -> Array:
        """Whether a node's gradient stands elsewhere than that of its memory, or of the first version that has one."""
        base, family, wants = self.columns.base, self.columns.family, self.columns.wants
        first, last = np.full(len(base), len(base)), np.full(len(base), -1)
        np.minimum.at(first, base[wants], family[wants])
        np.maximum.at(last, base[wants], family[wants])
        is_one: Array = (first == last) & ~wants
        return (family != base) & ~is_one[base]

    def _rows(self) -> StepTable:
        operands = self._operands(self.words, self._is_wanted(), self.row)
        written = operands.value[self.starts[:-1][self.is_write]]
        if (written < self.first).any():
            at = self.steps[self.is_write][written < self.first][0]
            raise Uncompiled("a write to an argument, or to a constant", int(at))
        places, some = self.words < 0, _floats(self.recipe.steps.numbers)
        literal = np.zeros(len(self.words))
        literal[places] = some[~self.words[places]]
        known: dict[Any, int] = {}
        keys = [(id(kind.op), _key(kind.params)) for kind in self.recipe.steps.kinds]
        ops = np.array([known.setdefault(key, len(known)) for key in keys], np.int64)[self.kind]
        everyone = np.arange(len(self.kind))
        place = np.zeros(len(self.words), np.int64)
        return StepTable(self.first, ops, self.steps, everyone, self.starts, *operands, place, literal)


def _of_kinds(kinds: list[StepKind], cls: type) -> Array:
    return np.array([isinstance(kind.op, cls) for kind in kinds], np.bool_)


def _wanted(kind: StepKind) -> list[bool]:
    wanted = [] if kind.form is None else [*kind.form.wanted][: kind.count]
    return wanted + [False] * (kind.count - len(wanted))


def _floats(numbers: Sequence[Any]) -> Array:
    try:
        floats = np.array([float(number) for number in numbers])
    except OverflowError:
        raise Uncompiled("a number beyond those of 64 bits") from None
    if any(type(numbers[at]) is int and numbers[at] != floats[at] for at in np.flatnonzero(abs(floats) >= _EXACT)):
        raise Uncompiled("a whole number that no float is")
    return floats


_EXACT = 1 << 53  # smaller integers are floats, too


def _key(params: Any) -> Any:
    """Return static parameters as a key: equal for equal ones, bit for bit."""
    if isinstance(params, tuple | list):
        return type(params), tuple([_key(p) for p in params])
    if isinstance(params, np.ndarray):
        return params.dtype.str, params.shape, params.tobytes()
    try:
        return exact(params)
    except TypeError:
        return _hashable(params)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


_WINDOWS = 4  # from one window to the next that is looked at, as a factor
_LIKELY = 3  # distances of each window that are tried
FEWEST_STEPS = 3  # steps of which a loop is made


class RowSpan(NamedTuple):
    """Rows from ``start`` on that come again after ``period`` rows, ``times`` times in all; ``rest`` more follow.

    Steps of a loop that they may be begin at ``low`` or later.
    """

    start: int
    period: int
    times: int
    rest: int = 0
    low: int = 0

    @property
    def rows(self) -> int:
        """How many rows whole periods cover."""
        return self.period * self.times


def tokens(rows: StepTable, table: ValueTable) -> Array:
    """Return a number for each row: equal for one operation on operands alike, wherever these come from."""
    patterns = np.append(table.patterns.pattern, -1)[rows.spec]
    slot = _mixed(patterns.astype(np.uint64) + _ODD * _nth(rows) + _SALTS[0])
    results = table.spec[rows.first : rows.first + len(rows)]
    result = np.append(table.patterns.pattern, -1)[results]
    row = _mixed(rows.op.astype(np.uint64) * _ODD + result.astype(np.uint64) + _SALTS[1])
    return row + _summed(slot, rows.starts)


def with_distances(names: Array, rows: StepTable) -> Array:
    """Return tokens that tell apart, too, how many rows ago operands were computed, and where gradients stop."""
    numbers = rows.first + np.arange(len(rows)).repeat(np.diff(rows.starts))
    within = (rows.value >= rows.first) & (rows.value < rows.first + len(rows))
    distance = np.where(within, numbers - rows.value, 0)
    stops = (rows.gradient == UNWANTED) & (rows.value >= 0)
    slots = _mixed((2 * distance + stops).astype(np.uint64) + _ODD * _nth(rows) + _SALTS[2])
    return names + _summed(slots, rows.starts)


def with_offsets(names: Array, rows: StepTable) -> Array:
    """Return tokens that tell apart, too, which parts of values are read."""
    offsets = rows.offset.reshape(-1, len(rows.value))[0] if len(rows.value) else rows.value
    return names + _summed(_mixed(offsets.astype(np.uint64) + _ODD * _nth(rows) + _SALTS[3]), rows.starts)


_ODD = np.uint64(0x9E3779B97F4A7C15)
_SALTS = np.array([0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3], np.uint64)
"""What tells apart hashes of operands, operations, distances and offsets: sums of them must not be alike."""
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)


def _mixed(numbers: Array) -> Array:
    """Return hashes of 64 bits (Steele, Lea and Flood 2014)."""
    for shift, factor in _ROUNDS:
        numbers = (numbers ^ (numbers >> shift)) * factor
    mixed: Array = numbers ^ (numbers >> _LAST)
    return mixed


def _nth(rows: StepTable) -> Array:
    places: Array = np.arange(1, len(rows.value) + 1) - np.repeat(rows.starts[:-1], np.diff(rows.starts))
    return places.astype(np.uint64)


def _summed(slots: Array, starts: Array) -> Array:
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(slots, dtype=np.uint64)])
    of_rows: Array = sums[starts[1:]] - sums[starts[:-1]]
    return of_rows


def runs(names: Array, more: Iterable[int] = ()) -> list[RowSpan]:
    """Return the longest run of each likely period, and of ``more``: those that cover most first, then the shortest."""
    longest = (_longest(names, period) for period in {**dict.fromkeys(_periods(names)), **dict.fromkeys(more)})
    return sorted((run for run in longest if run.times >= FEWEST_STEPS), key=lambda run: (-run.rows, run.period))


def _periods(names: Array) -> list[int]:
    """Return the distances at which windows most often come again; long windows see the outer of nested loops."""
    likely: dict[int, None] = {}
    for window in _windows(names):
        order = np.argsort(window, kind="stable")  # of 16 bits: by radix
        alike = window[order[1:]] == window[order[:-1]]
        counts = np.bincount(np.diff(order)[alike], minlength=1)
        for distance in np.argsort(counts)[: -_LIKELY - 1 : -1].tolist():
            if counts[distance] and distance * FEWEST_STEPS <= len(names):
                likely[distance] = None
    return list(likely)


def _windows(names: Array) -> Iterator[Array]:
    """Yield short hashes of windows of one row, of four rows and so on."""
    width = 1
    while width == 1 or 2 * width <= len(names):
        yield (names >> np.uint64(48)).astype(np.uint16)
        for _ in range(_WINDOWS.bit_length() - 1):
            if len(names) <= width:
                return
            names = _mixed(names[:-width] * _ODD + names[width:])
            width *= 2


def _longest(names: Array, period: int) -> RowSpan:
    differ = np.flatnonzero(names[period:] != names[:-period])
    edges = np.concatenate([[-1], differ, [len(names) - period]])
    lengths = np.diff(edges) - 1
    best = int(np.argmax(lengths))
    length = int(lengths[best])
    count = (length + period) // period if length else 0
    return RowSpan(int(edges[best]) + 1, period, count, length + period - count * period)


def phase(run: RowSpan, rows: StepTable, writes: Array, splits: Array) -> int:
    """Return the row where a run's steps best begin: least is passed on, it does as the step before, splits nothing."""
    if not run.rest:
        return run.start
    middle = slice(begin := run.start + run.times // 2 * run.period, begin + run.rest + 1)
    stop = run.start + run.rows + run.rest
    slots = slice(int(rows.starts[run.start]), int(rows.starts[stop]))
    readers = np.arange(run.start, stop).repeat(np.diff(rows.starts[run.start : stop + 1]))
    source = rows.value[slots] - rows.first
    weights = np.zeros(len(rows) + 2, np.int64)
    within = (source >= run.start) & (source < stop)
    for chosen, weight in ((within, 1), (within & writes[slots], _WRITTEN)):
        last = np.full(len(rows), -1, np.int64)
        last[source[chosen]] = readers[chosen]  # the last of equal places stays
        made = np.flatnonzero(last >= 0)
        np.add.at(weights, made + 1, weight)
        np.add.at(weights, last[made] + 1, -weight)
    passed = np.cumsum(weights)[middle] + _WRITTEN * splits[middle]
    fewest = run.start + np.flatnonzero(passed == passed.min())
    first = max(run.start - run.period, run.low)
    ops = rows.op[first : run.start + run.rest + run.period]
    differ = np.concatenate([[0], np.cumsum(ops[run.period :] != ops[: -run.period])])
    begins = fewest[fewest - run.period >= first]
    begins = begins[differ[begins - first] == differ[begins - run.period - first]]
    return int(begins[0] if len(begins) else fewest[0])


_WRITTEN = 1 << 20
"""What it weighs that a write would be in another step than what it writes to, or a loop in two steps."""
