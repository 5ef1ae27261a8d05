"""The steps of a recipe as flat arrays: views are dropped, operands are places in the memory of values, or numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kernels.arrays.specs import Spec
from kernels.foundation.data_classes import dataclass
from kernels.foundation.locks import cached_property
from kernels.kinds.callback import Callback
from kernels.kinds.guard import Guard
from kernels.kinds.loop import LoopMark
from kernels.kinds.view import View
from kernels.kinds.write import Write
from kernels.programs.lowering.node_columns import Columns
from kernels.programs.recording.notifying_structs import HEAD
from kernels.programs.recording.program_words import StepKind
from kernels.programs.rolling.patterns import Patterns
from kernels.programs.rolling.rolled_program import Uncompiled
from kernels.programs.rolling.several_ways import OneWay

Array = np.ndarray[Any, Any]

UNWANTED, WANTED, NOWHERE = 0, 1, 2
"""Of an operand: its gradient is dropped; it is wanted; it is not, and none would lead anywhere."""
_PARTS = 2
"""Operands of a write: the part, and the value."""


@dataclass(slots=True, eq=False)
class Rows:
    """Steps that are no views, in order; what they read are slots, end to end.

    The value of row ``i`` is ``first + i``. Columns of rows: ``op`` is one number for an operation with its parameters;
    ``line`` the step; ``source`` the row, of all, that says the kind. Those of slots: ``value`` is -1 for numbers;
    ``spec`` numbers in the patterns; ``gradient`` as above. The last three have an axis in front for each of the loops
    around the rows: the byte offset, which of the values that loops made, and the number.
    """

    first: int
    op: Array
    line: Array
    source: Array
    starts: Array
    value: Array
    spec: Array
    gradient: Array
    offset: Array
    place: Array
    literal: Array

    def __len__(self) -> int:
        return len(self.op)


class Table:
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

    @property
    def spec(self) -> Array:
        """Numbers of specs in the patterns."""
        return self._spec[: self._count]

    @property
    def node(self) -> Array:
        """Nodes of the recipe."""
        return self._node[: self._count]

    @property
    def is_constant(self) -> Array:
        """Whether a value is a constant."""
        return self._is_constant[: self._count]

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

    def __init__(self, whole: OneWay) -> None:
        recipe, self.whole = whole.recipe, whole
        self.recipe, self.patterns = recipe, Patterns()
        self.columns = Columns(recipe.nodes)
        self.specs = self.columns.of(lambda node: self.patterns.number(node.spec))
        words = np.frombuffer(recipe.steps.words, np.int64)
        starts = np.frombuffer(recipe.steps.starts, np.int64)
        kinds = recipe.steps.kinds
        numbers = words[starts] if len(starts) else starts
        self._check_kinds(kinds, numbers)
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
        self.active = self._active()
        self.rows = self._rows()
        outputs = np.array(recipe.outputs, np.int64)
        self.outputs = self._operands(outputs, np.ones(len(outputs), np.bool_), outputs * 0 - 1)

    def _check_kinds(self, kinds: list[StepKind], numbers: Array) -> None:
        """Raise Uncompiled where a step is of a kind that has no row."""
        for number, kind in enumerate(kinds):
            if self._is_refused(kind):
                at = np.flatnonzero(numbers == number)
                if len(at):
                    raise Uncompiled(f"{kind.op.name} is not compiled", int(self.whole.origins[at[0]]))

    def _is_refused(self, kind: StepKind) -> bool:
        if isinstance(kind.op, Write):
            return kind.count > _PARTS and not kind.op.adds  # places that are looked up may be one several times
        return isinstance(kind.op, Callback)

    def _values(self) -> tuple[Table, Array]:
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
        return Table(self.patterns, spec, node, constants), values

    def _active(self) -> Array:
        """Return which values a gradient leads on from: arguments, and results of which an operand's is wanted."""
        wanted = self._is_wanted()
        active = np.zeros(len(self.table), np.bool_)
        active[: len(self.recipe.arguments)] = True
        active[self.first + self.row[wanted]] = True
        into = self.starts[self.row[wanted & (self.nth > 0) & self.is_write[self.row]]]
        active[self.values[self.columns.base[self.words[into]]]] = True
        return active

    def _is_wanted(self) -> Array:
        """Return whether the gradient of each slot is wanted."""
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
        odd = np.flatnonzero(wanted & (apart | (self.patterns.apart[spec] != 0)))
        if len(odd):
            at = int(row[odd[0]])
            raise Uncompiled("a gradient that stands elsewhere than its value", int(self.steps[at]) if at >= 0 else -1)
        value = np.where(is_node, self.values[base], -1)
        leads = is_node & self.active[value]
        gradient = np.where(wanted, WANTED, np.where(leads, UNWANTED, NOWHERE))
        return Operands(value, np.where(is_node, spec, -1), gradient, np.where(is_node, offset, 0))

    @cached_property
    def _apart(self) -> Array:
        """Whether a node's gradient stands elsewhere than that of its memory.

        Memory that has no gradient before something is written has that of the version from then on, if it is one.
        """
        base, family, wants = self.columns.base, self.columns.family, self.columns.wants
        first, last = np.full(len(base), len(base)), np.full(len(base), -1)
        np.minimum.at(first, base[wants], family[wants])
        np.maximum.at(last, base[wants], family[wants])
        is_one: Array = (first == last) & ~wants
        return (family != base) & ~is_one[base]

    def _rows(self) -> Rows:
        operands = self._operands(self.words, self._is_wanted(), self.row)
        written = operands.value[self.starts[:-1][self.is_write]]
        if (written < self.first).any():
            at = self.steps[self.is_write][written < self.first][0]
            raise Uncompiled("a write to an argument, or to a constant", int(at))
        places, some = self.words < 0, _floats(self.recipe.steps.numbers)
        literal = np.zeros(len(self.words))
        literal[places] = some[~self.words[places]]
        ops = _operations(self.recipe.steps.kinds)[self.kind]
        everyone = np.arange(len(self.kind))
        place = np.zeros(len(self.words), np.int64)
        return Rows(self.first, ops, self.steps, everyone, self.starts, *operands, place, literal)


def _of_kinds(kinds: list[StepKind], cls: type) -> Array:
    return np.array([isinstance(kind.op, cls) for kind in kinds], np.bool_)


def _wanted(kind: StepKind) -> list[bool]:
    """Return which operands' gradients steps of a kind want."""
    wanted = [] if kind.form is None else [*kind.form.wanted][: kind.count]
    return wanted + [False] * (kind.count - len(wanted))


def _floats(numbers: Iterable[Any]) -> Array:
    try:
        return np.array([float(number) for number in numbers])
    except OverflowError:
        raise Uncompiled("a number beyond those of 64 bits") from None


def _operations(kinds: list[StepKind]) -> Array:
    """Return a number for each kind, equal for those of one operation with equal parameters."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault((id(k.op), _key(k.params)), len(numbers)) for k in kinds], np.int64)


def _key(params: Any) -> Any:
    """Return static parameters as a key: equal for equal ones, bit for bit."""
    if isinstance(params, tuple | list):
        return type(params), tuple([_key(p) for p in params])
    if isinstance(params, np.ndarray):
        return params.dtype.str, params.shape, params.tobytes()
    if isinstance(params, slice):
        return slice, _key((params.start, params.stop, params.step))
    if isinstance(params, Spec):
        return Spec, id(params)
    return type(params), repr(params) if isinstance(params, float) else _hashable(params)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
