"""The steps of a program as words, and a recorded program."""

from __future__ import annotations

import copyreg
import functools
import importlib
import os
import pickle
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Array, Spec, view_spec
from kernels.foundation.tables import Recent
from kernels.kinds.form import Form
from kernels.kinds.routine import Custom, LoopAgain, LoopBegin, LoopMark, Routine, custom_of
from kernels.kinds.views import ResultPart, View, Write
from kernels.language import jit
from kernels.language.jit import bound
from kernels.native import c_api
from kernels.native.memory import readable, row, where
from kernels.native.structs import XK_ARRAY, XK_DOUBLE, XK_INTEGER, XK_SINGLE, ExchangedValue, ExchangeHead, StepWords
from kernels.operations import OPS
from kernels.rules.op import Op
from kernels.rules.scalar_loops import NodeRef

# The steps of a program as words: a growable block of integers of 64 bits, and tables of what they stand for.

HEAD = 2  # in front of the operands of each step: the number of its kind, and its result

Operand = int | float  # A node's number, or a Python number


@dataclass(slots=True)
class Step:
    """``result = op(operands, params)``; ``form`` if its gradient was recorded; ``at``: its place among the steps."""

    op: Op
    operands: tuple[Operand | NodeRef, ...]
    result: int
    params: tuple[Any, ...]
    form: Form | None
    at: int = -1


class StepKind(NamedTuple):
    """What steps that do the same have in common: all but their nodes and numbers."""

    op: Op
    form: Form | None
    params: tuple[Any, ...]
    count: int  # operands


class RawStep(NamedTuple):
    """A step as words: the number of its kind, its nodes, or ``~k`` for numbers; ``at``: its place among the steps."""

    kind: int
    result: int
    operands: tuple[int, ...]
    at: int


class Words:
    """A growable block of integers of 64 bits, to which native code appends, too."""

    __slots__ = ("_block", "head")

    def __init__(self) -> None:
        self.head = array("q", bytes(8 * 3))
        """Address of the words, how many there are, and for how many there is room."""
        self.hold(array("q", bytes(8 * FIRST)))

    def hold(self, block: array[int]) -> None:
        """Have the words in this block."""
        self._block = block
        self.head[StepWords.address], self.head[StepWords.room] = block.buffer_info()

    @property
    def words(self) -> array[int]:
        """A copy of the words."""
        return self._block[: self.head[StepWords.used]]

    @property
    def last(self) -> int | None:
        """The last word; None if there is none."""
        used = self.head[StepWords.used]
        return self._block[used - 1] if used else None

    def reserve(self, count: int) -> None:
        """Make room for so many words, and MOST more."""
        used = self.head[StepWords.used]
        if used + count + MOST > self.head[StepWords.room]:
            block = array("q", bytes(8 * (2 * used + count + MOST)))
            block[:used] = self._block[:used]
            self.hold(block)

    def append(self, words: array[int]) -> None:
        """Append words; there is room for MOST more."""
        self.reserve(len(words))
        used = self.head[StepWords.used]
        self._block[used : used + len(words)] = words
        self.head[StepWords.used] = used + len(words)


class Steps(Words, Sequence[Step]):
    """The steps of a program, end to end in one block of words: the number of the kind, the result, the operands.

    An operand is a node, or where it is negative ``~k`` for the Python number ``numbers[k]``. Steps of one kind have
    operands and results of the same specs. Objects for steps are made when one is looked at: a program of a million
    operations would be a million objects, to keep and for Python's collector to look through.
    """

    __slots__ = ("_starts", "kinds", "numbers")

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[StepKind] = []
        self.numbers: list[Any] = []
        nothing = memoryview(array("q"))
        self._starts = nothing, nothing, 0

    @property
    def starts(self) -> memoryview[int]:
        """Where each step begins among the words."""
        (starts, room, at), used = self._starts, self.head[StepWords.used]
        if at != used:
            sizes = [HEAD + kind.count for kind in self.kinds]
            if used - at > _MANY_WORDS and jit.makes_native_code():
                begins, table = np.empty((used - at) // HEAD, np.int64), np.array(sizes, np.int64)
                note = jit.load_module("native.tape_native").step_begins.entry_point
                count = note(self.head[StepWords.address], at, used, where(table), where(begins))
                more = array("q", begins[:count].tobytes())
            else:
                words, first, more = self._block[at:used].tolist(), at, array("q")
                while at < used:
                    more.append(at)
                    at += sizes[words[at - first]]
            before, now = len(starts), len(starts) + len(more)
            if now > len(room):
                room = memoryview(array("q", bytes(16 * now)))
                room[:before] = starts
            room[before:now] = more  # as other threads that do the same write it
            starts = room[:now]
            self._starts = starts, room, used
        return starts

    def number(self, value: Any) -> int:
        """Return the word of a Python number."""
        self.numbers.append(value)
        return -len(self.numbers)

    def add(self, kind: int, result: int, operands: Iterable[int]) -> None:
        """Append a step."""
        self.append(array("q", (kind, result, *operands)))

    def fit(self) -> None:
        """Give back the room for more steps."""
        self.hold(self.words)

    def each(self, of_kinds: Sequence[Any]) -> list[Any]:
        """Return for each step what its kind has in a table of all kinds."""
        words, starts = np.array(self.words, np.int64), np.array(self.starts, np.int64)
        return [of_kinds[kind] for kind in words[starts].tolist()]

    def of_kind(self, cls: type[Op]) -> list[int]:
        """Return the steps whose operation is one of a class."""
        chosen = np.array([isinstance(kind.op, cls) for kind in self.kinds], np.bool_)
        if not chosen.any():
            return []
        words, starts = np.array(self.words, np.int64), np.array(self.starts, np.int64)
        return np.flatnonzero(chosen[words[starts]]).tolist()  # type: ignore[no-any-return]

    def loops(self) -> list[RecipeLoop]:
        """Return the loops in the order of their begins."""
        loops, inside = list[RecipeLoop](), list[RecipeLoop]()
        for at in self.of_kind(LoopMark):
            step = self[at]
            if isinstance(step.op, LoopBegin):
                phis = [operand.node for operand in step.operands[: len(step.operands) - step.params[1]]]
                loops.append(RecipeLoop(at, phis, *step.params, []))
                inside.append(loops[-1])
            elif isinstance(step.op, LoopAgain):
                bodies = inside[-1].bodies
                bodies.append((1 + (bodies[-1][1] if bodies else inside[-1].begin), at))
            else:
                inside.pop()
        return loops

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number, result, words, at = self.raw(range(len(self))[at])
        op, form, params, _ = self.kinds[number]
        operands = tuple(NodeRef(o) if o >= 0 else self.numbers[~o] for o in words)
        return Step(op, operands, result, params, form, at)

    def raw(self, at: int) -> RawStep:
        """Return a step as it stands among the words."""
        start, words = self.starts[at], self._block
        operands = words[start + HEAD : start + HEAD + self.kinds[words[start]].count]
        return RawStep(words[start], words[start + 1], tuple(operands), at)

    def __reduce__(self) -> Any:
        return steps_from, (self.kinds, self.numbers, self.words)


class RecipeLoop(NamedTuple):
    """A recorded loop."""

    begin: int  # the step
    phis: list[int]  # the nodes that it carries
    limit: int | None  # the most iterations, None if there may be any number
    has_count: bool  # whether the last operand of its begin is that number
    counted: bool  # whether no guard ends it
    line: str
    bodies: list[tuple[int, int]]  # the first step of each, and that which ends it

    @property
    def end(self) -> int:
        """The step that ends it."""
        return self.bodies[-1][1] + 1


_MANY_WORDS = 1 << 9  # of which native code finds where steps begin
FIRST = 1 << 10  # words for which there is room at first
MOST = 32  # words for which there is room when Python has appended a step


def steps_from(kinds: list[StepKind], numbers: list[Any], words: array[int]) -> Steps:
    """Return the steps of these words, as pickles hold them."""
    steps = Steps()
    steps.kinds, steps.numbers = kinds, numbers
    steps.hold(words)
    steps.head[StepWords.used] = len(words)
    return steps


@dataclass(slots=True)
class Lines:
    """Steps whose words begin at ``begins[k]`` or later, up to the next, are of line ``numbers[k]`` of the table."""

    table: list[tuple[str, int, str]] = field(default_factory=list)
    """Files, numbers in them, and what stood there when the program was recorded."""
    begins: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))

    def mark(self, begin: int, number: int) -> None:
        """Have the steps from this word on be of a line."""
        if not self.numbers or self.numbers[-1] != number:
            self.begins.append(begin)
            self.numbers.append(number)

    def of_steps(self, steps: Steps) -> Array:
        """Return the number of the line of each step, -1 where it is not known."""
        numbers = np.array([-1, *self.numbers], np.int64)
        return numbers[np.searchsorted(np.array(self.begins, np.int64), np.array(steps.starts), "right")]

    def text(self, number: int, *, short: bool = False) -> str:
        """Return a line as ``file:number: source``, as far as it is known; ``short``: without folders."""
        if number < 0:
            return "unknown"
        path, line, source = self.table[number]
        return f"{os.path.basename(path) if short else path}:{line}" + (f": {source}" if source else "")  # noqa: PTH119 (of any system)


# A recorded program: nodes and steps, its arrays in and out, hooks that run in it, how it is pickled.


class ProgramError(RuntimeError):
    """The recorded program cannot be replayed on these arguments; the message says why."""


@dataclass(slots=True)
class ProgramNode:
    """A value of the program: an argument, a constant, a result, or a view. Results that are alike share one."""

    spec: Spec
    base: int | None = None  # of a view, whose memory it is part of
    offset: int = 0  # in that memory, in bytes
    buffer_offset: int = 0  # of a view's gradient in that of ``family``, in bytes
    differentiable: bool = False  # whether it has a gradient
    family: int | None = None  # the node of its base tensor: of a view of a detached tensor the detached one
    constant: Array | None = None
    argument: bool = False


class Skipped(NamedTuple):
    """Iterations that go on as the ones before, and are not kept: nodes and parts move by what these moved by."""

    count: int  # how many
    step: int  # the step behind the last iteration that is kept,
    node: int  # the node,
    number: int  # and the number
    steps: int  # of an iteration
    nodes: int
    numbers: int
    moved: int  # from this node on, nodes stand for those of the last iterations where later steps read them
    values: Array | None  # the numbers of each iteration; None if they are those of the one before

    def later(self, node: int) -> int:
        """Return a node as it is numbered where these iterations are kept."""
        return node + self.count * self.nodes if node >= self.moved else node


@dataclass(slots=True)
class Recipe:
    """The whole program: nodes in the order they were made, steps, arguments and outputs by node."""

    nodes: list[ProgramNode] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    arguments: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    written: set[int] = field(default_factory=set)  # arguments that it writes to
    lines: Lines | None = None  # the user's lines, where they are kept
    skipped: list[Skipped] = field(default_factory=list)
    """Iterations that are not among the nodes and steps: :func:`kernels.programs.recording.whole` puts them there."""
    frugal: bool = False
    """Whether the way back is to keep as little as it can: a checkpoint stood in what was recorded."""

    def copy(self) -> Recipe:
        """Return another, of the same nodes and steps, for lowering to add nodes to."""
        return replace(self, nodes=[*self.nodes])

    @property
    def length(self) -> int:
        """How many steps there are, with those of iterations that are skipped."""
        return len(self.steps) + sum(skipped.count * skipped.steps for skipped in self.skipped)

    def base_of(self, node: int) -> int:
        """Return the node whose memory a node shares: itself if it is no view."""
        base = self.nodes[node].base
        return node if base is None else base

    def family_of(self, node: int) -> int:
        """Return the node whose gradient a node's is part of: itself if it is no view."""
        family = self.nodes[node].family
        return node if family is None else family

    def written_bases(self) -> set[int]:
        """Return the nodes whose memory steps write to once it is there."""
        return {self.base_of(self.steps.raw(at).result) for at in self.steps.of_kind(Write)}

    def wants(self, node: int) -> bool:
        """Return whether a node has a gradient: its own, or part of its family's."""
        return self.nodes[node].differentiable or self.nodes[self.family_of(node)].differentiable


def listing(recipe: Recipe) -> str:
    """Return the program as text: one line an instruction, below the user's lines, where they are kept."""
    lines = listing_head(recipe)
    numbers, before = (recipe.lines.of_steps(recipe.steps).tolist() if recipe.lines is not None else []), -1
    for step in recipe.steps:
        if recipe.lines is not None and numbers[step.at] != before:
            before = numbers[step.at]
            lines.append(f"  # {recipe.lines.text(before)}")
        lines.append(listing_line(recipe, step))
    return "\n".join([*lines, listing_return(recipe)])


def listing_head(recipe: Recipe) -> list[str]:
    """Return the first line of a listing, and those of constants."""
    heads = [f"{_name(i)}: {describe(recipe.nodes[i].spec)}" for i in recipe.arguments]
    lines = [f"program({', '.join(heads)})"]
    for i, node in enumerate(recipe.nodes):
        if node.constant is not None:
            shown = repr(node.constant.item()) if node.constant.size == 1 else "..."
            lines.append(line(_name(i), "constant", [shown], "", node.spec))
    return lines


def listing_line(recipe: Recipe, step: Step) -> str:
    """Return the line of a step."""
    operands = [_name(o.node) if isinstance(o, NodeRef) else repr(o) for o in step.operands]
    operands = operands[isinstance(step.op, Write) :]
    return line(_name(step.result), step.op.name, operands, parameters(step.params), recipe.nodes[step.result].spec)


def listing_return(recipe: Recipe) -> str:
    """Return the last line."""
    return f"  return {', '.join(map(_name, recipe.outputs))}"


def line(result: str, name: str, operands: Iterable[str], params: str, spec: Spec) -> str:
    """Return one instruction as text."""
    left = f"  {result} = {name} {' '.join(operands)}{params}"
    return f"{left:<44} {describe(spec)}".rstrip()


def describe(spec: Any) -> str:
    """Return dtype and shape as text: ``float64[3, 2]``."""
    return f"{spec.dtype.name}[{', '.join(map(str, spec.shape))}]"


def parameters(params: tuple[Any, ...]) -> str:
    """Return the static parameters of an instruction as text."""
    return "".join(f" {_parameter(p)}" for p in params if p is not None)


def _parameter(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"[{value.size} places]"
    if isinstance(value, Spec):
        return f"to {list(value.shape)}"
    if isinstance(value, tuple) and any(isinstance(p, slice) or p is Ellipsis or p is None for p in value):
        return _index(value)
    return str(value)


def _index(key: tuple[Any, ...]) -> str:
    def part(k: Any) -> str:
        if not isinstance(k, slice):
            return "..." if k is Ellipsis else str(k)
        ends = ["" if e is None else str(e) for e in (k.start, k.stop, k.step)]
        return ":".join(ends if ends[2] else ends[:2])

    shown = key[:-1] if key and key[-1] is Ellipsis and len(key) > 1 else key
    return f"[{', '.join(map(part, shown))}]"


def _name(node: int) -> str:
    return f"%{node}"


# Importing this teaches ``pickle`` and ``copy`` records by their names, patterns and forms by what they were made from,
# and jitted functions by name. No code is in a pickle.

_forms: Recent[Any, Form] = Recent()


def op_named(name: str) -> Op:
    """Return the record of this name; ProgramError if this version has none."""
    if name not in OPS:
        raise ProgramError(f"the program has the operation {name!r}, which this version of tape does not know")
    return OPS[name]


def part_of(name: str) -> View:
    """Return the view of one result of a routine."""
    op = op_named(name)
    assert isinstance(op, Routine)
    return op.part


def spec_from(shape: Any, strides: Any, dtype: str, gradient: Any, buffer_size: int) -> Spec:
    """Return the one spec of these values."""
    return view_spec(shape, strides, np.dtype(dtype), gradient, buffer_size)


def _of_op(op: Op) -> Any:
    if OPS.get(op.name) is not op:
        raise pickle.PicklingError(f"the operation {op.name!r} is in no table, and cannot be found again by its name")
    return op_named, (op.name,)


def _path(op: Custom, function: Any) -> tuple[str, str]:
    path = function.py_func.__module__, function.py_func.__qualname__
    try:
        value = _imported(*path)
    except (ImportError, AttributeError):
        value = None
    if value is not function:
        raise pickle.PicklingError(
            f"the custom operation {op.name!r} calls {'.'.join(path)}, which is not found by that name; define the "
            "jitted function at the top of a module"
        )
    return path


def _imported(module: str, name: str) -> Any:
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def custom_from(name: str, grad_fn: str, forward: tuple[str, str], vjp: tuple[str, str]) -> Custom:
    """Return the operation of two jitted functions, which are imported."""
    return custom_of(name, grad_fn, _imported(*forward), _imported(*vjp))


def _of_form(form: Form) -> Any:
    params = () if form.is_view else form.params
    return form_from, (form.op, form.specs, form.spec, form.wanted, params, form.name)


def form_from(op: Op, specs: Any, spec: Spec, wanted: Any, params: Any, name: str) -> Form:
    """Return the form of an instruction, made anew, once for equal ones."""
    key = (op, specs, spec, wanted, name, pickle.dumps(params))
    form = _forms.get(key)
    return form if form is not None else _forms.setdefault(key, op.form(specs, spec, wanted, params, name))


for _record in Op.__subclasses__():
    copyreg.pickle(_record, _of_op)
copyreg.pickle(ResultPart, lambda op: (part_of, (op.name,)))
copyreg.pickle(Custom, lambda op: (custom_from, (op.name, op.grad_fn, _path(op, op.forward), _path(op, op.vjp))))
copyreg.pickle(Spec, lambda s: (spec_from, (s.shape, s.strides, s.dtype.str, s.gradient, s.buffer_size)))
copyreg.pickle(Form, _of_form)


_KINDS = {np.dtype("f8"): XK_DOUBLE, np.dtype("f4"): XK_SINGLE, np.dtype("i8"): XK_INTEGER}


def value_kind(value: Any) -> int:
    """Return as what native code passes a value of this shape and dtype: as an array, or a number of a kind."""
    return XK_ARRAY if value.shape else _KINDS.get(value.dtype, XK_ARRAY)


_FEW = 64  # the most words that are copied one by one; for more, NumPy's copy is faster


class Exchange:
    """The places of a machine's arguments and results.

    ``enter(*arguments)`` copies floats, ints and arrays of the recorded dtypes and shapes in; it returns 0, and has
    perhaps written some, where others are given. ``leave()`` returns the results, then the gradients, as a tuple:
    floats, and arrays of their own memory. ``whole`` does both, and runs ``rows`` between, if there are any: where they
    stand, how many, and whether other threads may run Python meanwhile. ``exactly``: ints, and arrays in another order
    than C's, are left to Python.
    """

    __slots__ = ("_kept", "enter", "leave", "table", "whole")

    def __init__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        gradients: Sequence[Array],
        rows: tuple[int, int, bool] | None,
        *,
        exactly: bool = False,
    ) -> None:
        self.enter: Callable[..., int] = lambda *_: 0
        self.leave: Callable[[], tuple[Any, ...]] = tuple
        self.whole: Callable[..., Any] | None = None
        everything = [*inputs, *outputs, *gradients]
        if not native() or any(g.dtype.itemsize not in (4, 8) or not g.flags.c_contiguous for g in gradients):
            return
        shapes = np.array([n for array in everything for n in array.shape] or [0], np.int64)
        words, at = [len(inputs), len(outputs) + len(gradients), *_head()], where(shapes)
        for k, value in enumerate(everything):
            kind = value_kind(value)
            whole = value.flags.c_contiguous and value.nbytes % 8 == 0
            words += row(
                ExchangedValue, kind=kind if k < len(inputs) or kind != XK_INTEGER else XK_ARRAY,
                place=where(value), view=id(value), ndim=value.ndim, shape=at,
                dtype=id(value.dtype) if k < len(inputs) else value.dtype.num,
                words=value.nbytes // 8 if whole and value.nbytes <= 8 * _FEW else -1,
                gradient=value.size if k >= len(inputs) + len(outputs) else 0,
                item=0 if k < len(inputs) else value.itemsize,
            )  # fmt: skip
            at += 8 * value.ndim
        self.table = table = np.array(words, np.int64)
        if exactly:
            table[ExchangeHead.int_type] = 0
        self._kept = (everything, shapes)
        self.enter, self.leave = (bound("programs.replay_native", name, table) for name in ("enter", "leave"))
        if rows is not None:
            table[ExchangeHead.rows], table[ExchangeHead.row_count], table[ExchangeHead.releases] = rows
            self.whole = bound("programs.replay_native", "pass_through", table)


def _head() -> list[int]:
    """Return the addresses of types and functions, in the order of the words, and room for the rows."""
    functions = [c_api.table()[place] for place in (c_api.NEW_COPY, c_api.COPY_INTO, c_api.NEW)]
    return [*map(id, (float, np.float64, np.float32, int, np.ndarray)), *functions, 0, 0, 0]


@functools.cache
def native() -> bool:
    """Whether objects stand in memory as native code reads them, and NumPy's functions are where they are called."""
    return readable() and not os.environ.get("TAPE_PLAIN") and jit.makes_native_code() and c_api.agrees()
