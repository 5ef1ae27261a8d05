"""What a recorder knows, in Python and in native code; iterations that a recording does not keep."""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import Any

import numpy as np

from kernels.calls.object_types import place_of
from kernels.foundation.specs import Array, Spec
from kernels.foundation.tables import exact
from kernels.kinds.form import Form
from kernels.kinds.views import View
from kernels.language import jit
from kernels.native.c_api import NATIVE
from kernels.native.memory import REGISTRY, row, where, word_at
from kernels.native.structs import (
    LEAST_WORDS,
    MOST_REPEATS,
    NODE_MASK,
    RESULT_BYTES,
    STARTS,
    KnownConstant,
    KnownStep,
    NodeObject,
    RecorderTables,
    RegistryTable,
    RepeatSearch,
    RepeatWords,
    StepWords,
)
from kernels.programs.program import Lines, ProgramNode, Recipe, Skipped, StepKind, Steps, Words, native
from kernels.rules.op import Op


class Tables:
    """A recorder's tables: which tensor is which node, the form of each node's tensor, what steps have in common."""

    __slots__ = (
        "_constants", "_fields", "_foreign", "_kept", "_kinds", "_room", "_rows", "finds_repeats", "forms", "known",
        "left", "lost", "nodes", "owned", "results", "search", "serial", "steps", "words",
    )  # fmt: skip

    def __init__(self, nodes: list[Any], steps: Steps) -> None:
        self.nodes, self.steps = nodes, steps
        self.serial = next(_serials) << NODE_MASK.bit_length()
        self.known: dict[int, int] = {}
        self._foreign: list[Any] = []
        """Nodes, by ids, of tensors that another recording has known, and may still know."""
        self.forms: list[Any] = []
        """Form, or spec, of each node's tensor when it was seen last; None where that is not known."""
        self.results: list[Any] = []
        """Tensors that steps have made, for gradients that are taken inside: the last ones, None for others."""
        self.words: Array | None = None  # where native code records, too
        self.owned = Words()
        """The program's own memory, what it writes and arguments': where each part begins and ends."""
        self._kinds: dict[Any, int] = {}
        self._room = _FEW_HELD
        self.search: FoundIterations | None = None
        self.finds_repeats = False
        self.left: set[int] = set()  # nodes of tensors that became others
        self.lost = False  # whether an iteration was needed that was not kept, or a result that was not held

    def connect(self, tensor: type, *, repeats: bool) -> None:
        """Have native code record what it repeats; with ``repeats`` iterations like the one before are not kept."""
        self.finds_repeats = repeats
        if not (NATIVE and native() and has_node_layout()):
            return
        function = jit.load_module("programs.recorder_native").record.address
        self._rows = np.zeros((_ROWS, KnownStep.SIZE), np.int64)
        self.search = FoundIterations(self.nodes, self.steps)
        if not repeats:
            self.search.stop()
        kinds = {"tensor": tensor, "float": float, "int": int, "array": np.ndarray, "node": ProgramNode}
        objects = {f"{name}_type": id(kind) for name, kind in kinds.items()}
        objects |= {"none": id(None), "true": id(True), "false": id(False), "numbers": id(self.steps.numbers)}
        objects |= {name: id(getattr(self, name)) for name in ("known", "nodes", "forms", "results")}
        head, owned = (words.buffer_info()[0] for words in (self.steps.head, self.owned.head))
        self._kept: list[Any] = []
        objects["kept"] = id(self._kept)
        self.words = np.array(
            row(
                RecorderTables, record=function, **objects, serial=self.serial, rows=where(self._rows), mask=_ROWS - 1,
                steps=head, owned=owned, room=_FEW_HELD, thread=get_ident(),
                repeats=where(self.search.words),
            )
        )  # fmt: skip
        self._fields = memoryview(self.words)

    def node_of(self, x: Any) -> int | None:
        """Return the node of a tensor; None if it has none."""
        node: int = getattr(x, "_node", 0)
        if node & ~NODE_MASK == self.serial:
            kept = node & NODE_MASK if self.search is None else self.search.kept(node & NODE_MASK)
            self.lost |= kept is None
            return kept
        return self.known.get(id(x))

    def needs_more(self) -> None:
        """Note that a result was needed that is not held: more are held next time, if they were not now."""
        self.lost |= self.words is not None and bool(self.words[RecorderTables.first]) and self._room < _HELD

    def hold_more(self) -> None:
        """Hold as many results as may be."""
        if self.words is not None:
            self.words[RecorderTables.room] = self._room = _HELD

    def keep_all(self) -> None:
        """Keep all iterations from now on; earlier ones that were not are needed."""
        if self.search is not None:
            self.lost |= bool(self.search.words[RepeatSearch.parts])
            self.search.stop()

    def know(self, x: Any, node: int) -> None:
        """Let a tensor be known by a node."""
        before: int = getattr(x, "_node", 0)
        if before and (known := self.node_of(x)) not in (None, node):
            self.left.add(known)
        if before & ~NODE_MASK in (0, self.serial):
            x._node = self.serial + (node if self.search is None else self.search.number(node))  # noqa: SLF001 (a word for whoever records)
            self._count(not before)
        else:
            self.known[id(x)] = node
            self._foreign.append(x)  # its id stays its own

    def forget(self, x: Any) -> None:
        """Know a tensor no longer."""
        if (known := self.node_of(x)) is not None:
            self.left.add(known)
        if getattr(x, "_node", 0) & ~NODE_MASK == self.serial:
            x._node = 0  # noqa: SLF001
            self._count(-1)
        self.known.pop(id(x), None)

    def _count(self, more: int) -> None:
        if self.words is not None:
            self._fields[RecorderTables.alive] += more

    def made(self, x: Any) -> None:
        """Hold a tensor that a step has made."""
        self.results.append(x)
        if self.words is not None and isinstance(x._value, np.ndarray):  # noqa: SLF001 (as native code counts it)
            self._fields[RecorderTables.room] -= RESULT_BYTES + 8 * x._value.size  # noqa: SLF001
        elif self.words is not None:
            self._fields[RecorderTables.room] -= RESULT_BYTES

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the tensors that are known, within."""
        address = 0 if self.words is None else where(self.words)
        before = word_at(REGISTRY.address + 8 * RegistryTable.recording)
        try:
            if address:
                REGISTRY.set(recording=address)
            yield
        finally:
            if address:
                REGISTRY.set(recording=before)

    def alive(self) -> int | None:
        """Return how many of the tensors that are known are alive, at most; None where nobody counts."""
        return None if self.words is None else int(self.words[RecorderTables.alive])

    def kind(self, op: Op, form: Form | None, params: tuple[Any, ...], specs: tuple[Any, ...]) -> int:
        """Return the number of a kind of steps, by specs or types of operands and result, and by what a form is of."""
        kinds = self.steps.kinds
        key = form and (form.specs, form.spec, form.wanted, form.saved, form.name)
        try:
            number = self._kinds.setdefault((op, key, exact(params), specs), len(kinds))
        except TypeError:  # index arrays have no hash
            number = len(kinds)
        if number == len(kinds):
            kinds.append(StepKind(op, form, params, len(specs) - 1))
            if self.search is not None:
                self.search.count(number, len(specs) - 1)
        return number

    def dtypes(self) -> set[str]:
        """Return the names of the dtypes that steps have."""
        specs = {spec for _, _, _, kinds in self._kinds for spec in kinds if isinstance(spec, Spec)}
        return {_name_of(dtype) for dtype in {spec.dtype for spec in specs}}

    def step_added(self) -> None:
        """Take in a step that was added last, with its nodes."""
        if self.words is not None:
            jit.load_module("programs.repeats_native").step_added.entry_point(where(self.words))

    def nodes_added(self, form: Any = None) -> None:
        """Keep up with nodes that have been added: the last one has this form."""
        self.forms += [None] * (len(self.nodes) - len(self.forms))
        if form is not None:
            self.forms[-1] = form

    def uses(self, array: Array, spec: Spec, node: int, copy: Array) -> None:
        """Let native code know an array, which is held, by a constant's node as long as it holds what a copy does."""
        if self.words is None or not array.flags.forc or array.nbytes != copy.nbytes:
            return
        if not self.words[RecorderTables.constants]:
            self._constants = np.zeros((_ROWS, KnownConstant.SIZE), np.int64)
            self.words[RecorderTables.constants] = where(self._constants)
        constant = np.array(
            row(KnownConstant, data=where(array), spec=id(spec), node=node, copy=where(copy), bytes=array.nbytes)
        )
        enter = jit.load_module("programs.recorder_native").enter_constant.entry_point
        enter(where(self.words), where(constant))

    def repeats(self, op: Op, params: tuple[Any, ...], operands: Sequence[int], result: Any, kind: int) -> None:
        """Let native code record further steps like one, whose result is the last node.

        ``operands`` are words for their forms, as :class:`KnownStep` has them.
        """
        if self.words is None:
            return
        node, views = self.nodes[-1], isinstance(op, View)
        self._kept.append(node)
        of_node = {"node": id(node), "held": len(self._kept) - 1, "shows": views}
        self._enter(op, params if params or not views else None, operands, result, kind, **of_node)

    def repeats_write(
        self, op: Op, params: tuple[Any, ...], operands: Sequence[int], base: Any, kind: int, *, graded: bool
    ) -> None:
        """Let native code record further writes like one, to a tensor of this base."""
        self._enter(op, params, [*operands, _WRITTEN], base, kind, is_graded=graded)

    def _enter(self, op: Op, params: Any, operands: Sequence[int], result: Any, kind: int, **more: int) -> None:
        if self.words is None or len(self._kept) >= _ROWS:
            return
        form, slot, forms = result._form, result._slot, array("q", operands)  # noqa: SLF001 (a tensor's)
        place = 0 if params is None else id(params)
        key = row(
            KnownStep, operation=id(op), form=id(form), params=place, rest=int(type(slot) is int), kind=kind, **more
        )
        words = array("q", key)
        enter = jit.load_module("programs.recorder_native").enter.entry_point
        enter(where(self.words), words.buffer_info()[0], *forms.buffer_info())
        self._kept.append((op, form, params))


@functools.cache
def _name_of(dtype: Any) -> str:
    """Return the name of a dtype, which NumPy takes 30 us to make."""
    return str(dtype.name)


def differing_nodes(ones: list[ProgramNode], others: list[ProgramNode]) -> list[int]:
    """Return where nodes of two programs of as many nodes may differ: all that do, and constants, among others."""
    if not (NATIVE and native() and has_node_layout()):
        pairs = {pair: i for i, pair in enumerate(zip(map(id, ones), map(id, others), strict=True))}
        return list(pairs.values())  # nodes of one form are one object, most often
    out = np.empty(len(ones), np.int64)
    differing = jit.load_module("programs.recorder_native").differing.entry_point
    return out[: differing(id(ones), id(others), id(None), where(out))].tolist()  # type: ignore[no-any-return]


def same_but_views(ones: Steps, others: Steps) -> bool:
    """Whether steps do the same to the same nodes, where parameters of views by indices may be left out in some."""
    known = dict[Any, int]()
    try:
        return len(ones.words) == len(others.words) and _known_by(known, ones) == _known_by(known, others)
    except TypeError:  # index arrays have no hash
        return False


def _known_by(known: dict[Any, int], steps: Steps) -> bytes:
    """Return the words of steps, with kinds that do the same by one number."""
    words, starts, traits = np.array(steps.words), np.array(steps.starts, np.int64), []
    for op, form, params, count in steps.kinds:
        static = () if by_index(op) else params
        traits.append((op, form and (form.specs, form.spec, form.wanted), exact(static), count))
    words[starts] = np.array([known.setdefault(each, len(known)) for each in traits], np.int64)[words[starts]]
    return words.tobytes()


def by_index(op: Any) -> bool:
    """Whether an operation shows a basic index, which the part's spec and where it begins tell as well."""
    return isinstance(op, View) and op.indexes


def index_of(whole: Spec, part: Spec, offset: int) -> tuple[int | slice | None, ...]:
    """Return the basic index whose view begins so many bytes behind the whole; ValueError if there is none."""
    axes, seen = range(len(whole.shape)), [*zip(part.shape, part.strides, strict=True)]
    long = [(m, t) for m, t in seen if m != 1]
    for kept in itertools.combinations(axes, len(long)):
        steps = {axis: _step_along(whole, axis, m, t, part.size) for axis, (m, t) in zip(kept, long, strict=True)}
        if None in steps.values():
            continue
        lengths = {axis: m for axis, (m, _) in zip(kept, long, strict=True)}
        starts = _starts(whole, {axis: (lengths[axis] - 1) * (steps[axis] or 0) for axis in kept}, offset)
        if starts is None and part.size:
            continue
        items: list[int | slice] = [*(starts or [0] * len(axes))]
        for axis in kept:
            items[axis] = _slice(items[axis], lengths[axis], steps[axis])
        key, ends, at = list[int | slice | None](), iter(kept), 0
        for m, _ in seen:
            end = at if m == 1 else next(ends) + 1
            key += [None] if m == 1 else items[at:end]
            at = end
        return (*key, *items[at:])
    raise ValueError(f"no basic index shows {part} of {whole} at {offset}")


def _step_along(whole: Spec, axis: int, count: int, stride: int, size: int) -> int | None:
    """Return the step of a slice of an axis that shows so many elements at this stride; None if there is none."""
    n, s = whole.shape[axis], whole.strides[axis]
    if not size:
        return 1 if count <= n else None
    step, rest = (1, stride) if s == 0 else divmod(stride, s)
    return step if rest == 0 and step and (count - 1) * abs(step) < n else None


def _starts(whole: Spec, spans: dict[int, int], offset: int) -> list[int] | None:
    """Return where each axis is begun, of which some are shown from there so far; None if nothing begins there."""
    starts = [0] * len(whole.shape)
    rest = offset - sum(min((n - 1) * s, 0) for n, s in zip(whole.shape, whole.strides, strict=True))
    for axis in sorted(range(len(starts)), key=lambda axis: -abs(whole.strides[axis])):
        n, s, span = whole.shape[axis], whole.strides[axis], spans.get(axis, 0)
        low, high = max(0, -span), n - 1 - max(0, span)
        if s < 0:
            low, high = n - 1 - high, n - 1 - low
        at = min(max(rest // abs(s) if s else 0, low), high)
        rest -= at * abs(s)
        starts[axis] = n - 1 - at if s < 0 else at
    return starts if rest == 0 else None


def _slice(start: Any, count: int, step: Any) -> slice:
    stop = start + count * step
    return slice(start, stop if stop >= 0 else None, step)


@functools.cache
def has_node_layout() -> bool:
    """Whether nodes are laid out as native code reads them."""
    return place_of(ProgramNode, *NodeObject.FIELDS) == [at for at, _ in NodeObject.FIELDS.values()]


_serials = itertools.count(1)
_FEW_HELD, _HELD = 1 << 20, 1 << 28
"""Bytes of results that are held: at first, and where a gradient that was taken inside needed earlier ones."""
_ROWS = 1 << 11
"""Room for steps that are not alike, of which a recorder knows at most half as many."""
_WRITTEN = 5  # recorder_native.py


class FoundIterations:
    """What native code finds to repeat in a recording, and what nodes stand for then."""

    _head = np.zeros(3, np.int64)  # what an interrupt in ``__init__`` leaves has nothing to give back

    def __init__(self, nodes: list[ProgramNode], steps: Steps) -> None:
        self._nodes, self._steps = nodes, steps
        self._head = np.zeros(3, np.int64)  # the numbers that are saved: StepWords
        self._starts, self._counts = np.zeros(STARTS, np.int64), np.zeros(_KINDS, np.int64)
        self.words = np.zeros(RepeatSearch.SIZE + MOST_REPEATS * RepeatWords.SIZE, np.int64)
        for field, value in {
            RepeatSearch.look: LEAST_WORDS, RepeatSearch.counts: where(self._counts),
            RepeatSearch.starts: where(self._starts),
            RepeatSearch.saved: where(self._head),
        }.items():  # fmt: skip
            self.words[field] = value
        self._fields = memoryview(self.words)  # read in a third of the time

    def stop(self) -> None:
        """Look for no more repeats."""
        self.words[RepeatSearch.boundary], self.words[RepeatSearch.look] = 0, NODE_MASK

    def count(self, kind: int, operands: int) -> None:
        """Say how many operands steps of a kind have."""
        if kind < _KINDS:
            self._counts[kind] = operands
        else:
            self.stop()

    def __del__(self) -> None:
        """Give back the numbers."""
        ctypes.pythonapi.PyMem_RawFree(ctypes.c_void_p(int(self._head[StepWords.address])))

    def rows(self) -> list[Array]:
        """Return what has been found, a :class:`RepeatWords` each."""
        rows = self.words[RepeatSearch.SIZE :].reshape(-1, RepeatWords.SIZE)
        return list(rows[: self.words[RepeatSearch.parts]])

    def kept(self, number: int) -> int | None:
        """Return the node that stands for the number of a tensor; None where it is of an iteration that is not kept."""
        above = NODE_MASK
        for repeat in reversed(self.rows()) if self._fields[RepeatSearch.parts] else ():
            at = number - int(repeat[RepeatWords.shift])
            if at >= repeat[RepeatWords.node]:
                moves = at < repeat[RepeatWords.end] and self._moves(at, int(repeat[RepeatWords.nodes]))
                return None if at >= above or moves else at
            above = int(repeat[RepeatWords.node])
        return number if number < above else None

    def _moves(self, node: int, step: int) -> bool:
        return bool(self._nodes[node].offset != self._nodes[node - step].offset)

    def number(self, node: int) -> int:
        """Return the number of a tensor for its node."""
        for repeat in reversed(self.rows()) if self._fields[RepeatSearch.parts] else ():
            if node >= repeat[RepeatWords.node]:
                return node + int(repeat[RepeatWords.shift])
        return node

    def skipped(self) -> list[Skipped]:
        """Return the iterations that were not kept."""
        made, starts = [], self._steps.starts
        at = np.array(starts, np.int64)
        for repeat in self.rows():
            words, count, numbers = (
                int(repeat[k]) for k in (RepeatWords.words, RepeatWords.skipped, RepeatWords.numbers)
            )
            step = int(np.searchsorted(at, repeat[RepeatWords.word]))
            first = int(np.searchsorted(at, repeat[RepeatWords.word] - words))
            values = None
            if repeat[RepeatWords.saves]:
                place = int(self._head[StepWords.address]) + 8 * int(repeat[RepeatWords.saved])
                values = np.array((ctypes.c_double * (count * numbers)).from_address(place)).reshape(count, -1)
            made.append(
                Skipped(
                    count, step, int(repeat[RepeatWords.end]), int(repeat[RepeatWords.number]), step - first,
                    int(repeat[RepeatWords.nodes]), numbers, int(repeat[RepeatWords.node]),
                    values,
                )
            )  # fmt: skip
        return made


_KINDS = 1 << 10  # kinds of steps that may repeat


def same_skipped(ones: list[Skipped], others: list[Skipped]) -> bool:
    """Whether the same iterations are not kept."""

    def places(skipped: Skipped) -> Any:
        return skipped._replace(values=None), skipped.values is not None and skipped.values.tobytes()

    return list(map(places, ones)) == list(map(places, others))


def whole(recipe: Recipe) -> Recipe:
    """Return a recipe with all iterations."""
    for skipped in reversed(recipe.skipped):
        recipe = with_iterations(recipe, skipped)
    return replace(recipe, skipped=[])


def with_iterations(recipe: Recipe, skipped: Skipped) -> Recipe:
    """Put iterations into a recipe, which has all that come later."""
    steps, nodes, count = recipe.steps, recipe.nodes, skipped.count
    words, starts = np.frombuffer(steps.words, np.int64), np.array([*steps.starts, len(steps.words)], np.int64)
    end, begin, before = (int(starts[skipped.step - k * skipped.steps]) for k in range(3))
    body = words[begin:end]
    made = np.arange(1, count + 1)[:, None] * (body - words[before:begin]) + body
    later = words[end:].copy()
    is_kind = np.zeros(len(words) + 1, np.bool_)
    is_kind[starts] = True
    places = ~is_kind[end:-1]
    later[places & (later >= skipped.moved)] += count * skipped.nodes
    later[places & (later < -skipped.number)] -= count * skipped.numbers
    made_steps = Steps()
    made_steps.kinds, numbers = steps.kinds, steps.numbers
    made_steps.hold(array("q", np.concatenate([words[:end], made.ravel(), later]).tobytes()))
    made_steps.head[StepWords.used] = len(words) + made.size
    one = numbers[skipped.number - skipped.numbers : skipped.number]
    more = one * count if skipped.values is None else skipped.values.ravel().tolist()
    made_steps.numbers = [*numbers[: skipped.number], *more, *numbers[skipped.number :]]

    renumbered = skipped.later
    all_nodes = [
        *nodes[: skipped.node],
        *_more_nodes(nodes, skipped),
        *(_renumbered(n, renumbered) for n in nodes[skipped.node :]),
    ]
    lines = None if recipe.lines is None else _more_lines(recipe.lines, begin, end, count)
    return replace(
        recipe, nodes=all_nodes, steps=made_steps, arguments=[*map(renumbered, recipe.arguments)],
        outputs=[*map(renumbered, recipe.outputs)], written=set(map(renumbered, recipe.written)), lines=lines,
        skipped=[],
    )  # fmt: skip


def _renumbered(node: ProgramNode, renumbered: Any) -> ProgramNode:
    if node.base is None and node.family is None:
        return node
    base, family = (None if at is None else renumbered(at) for at in (node.base, node.family))
    return replace(node, base=base, family=family)


def _more_nodes(nodes: list[ProgramNode], skipped: Skipped) -> Iterator[ProgramNode]:
    """Yield the nodes of iterations: these go on as the last two that are kept."""
    here = nodes[skipped.node - skipped.nodes : skipped.node]
    before = nodes[skipped.node - 2 * skipped.nodes : skipped.node - skipped.nodes]
    for i in range(1, skipped.count + 1):
        for x, y in zip(before, here, strict=True):
            if x is y:
                yield y
                continue
            base, family = (
                None if b is None or a is None else b + i * (b - a) for a, b in ((x.base, y.base), (x.family, y.family))
            )
            offset, buffer = (
                y.offset + i * (y.offset - x.offset),
                y.buffer_offset + i * (y.buffer_offset - x.buffer_offset),
            )
            yield replace(y, base=base, family=family, offset=offset, buffer_offset=buffer)


def _more_lines(lines: Lines, begin: int, end: int, count: int) -> Lines:
    begins, numbers = np.array(lines.begins, np.int64), np.array(lines.numbers, np.int64)
    low, high = np.searchsorted(begins, [begin, end])
    body, size = begins[low:high], end - begin
    more = (body + size * np.arange(1, count + 1)[:, None]).ravel()
    all_begins = np.concatenate([begins[:high], more, begins[high:] + size * count])
    all_numbers = np.concatenate([numbers[:high], np.tile(numbers[low:high], count), numbers[high:]])
    return Lines(lines.table, array("q", all_begins.tolist()), array("q", all_numbers.tolist()))
