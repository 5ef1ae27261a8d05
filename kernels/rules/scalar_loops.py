"""Elementwise loops of a record: on scalars, vectorised, and in tasks that threads share."""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from kernels.foundation import specs
from kernels.foundation.specs import FLOAT64, Array, InnerLoop, Spec, Strides, broadcast, loops_readable, spec_of
from kernels.foundation.tables import Recent, dataclass
from kernels.language import jit
from kernels.native import pool
from kernels.native.structs import LARGE
from kernels.rules.loop_printer import KernelOperand, PrintedLoop, run_at
from kernels.rules.op import Symbol, source

# An operation on one double is computed without a call, from an entry of five small words: its kind, with a bit above
# that to accumulate, then where its target and up to three operands stand, in words behind the beginning of the
# machine's memory. ``x1`` is the first operand, of pullbacks the cotangent.


ENTRY = 5  # words of 32 bits
ACCUMULATES = 256
MOST = 1 << 20  # entries of one row: a program checks for interrupts between rows
REACH = 1 << 34  # bytes of memory that an entry can address, by words

FORWARD = (
    "(x1 + x2)", "(x1 - x2)", "(x1 * x2)", "(x1 / x2)", "(-x1)", "(x1)", "(x1 * x1)", "math.sqrt(x1)", "(1.0 / x1)",
)  # fmt: skip
PULLBACK = (
    "x1", "(-x1)", "(x1 * x2)", "(x1 * x3)", "(x1 / x2)", "(x1 / x3)", "((-x1) * ((x2 / x3) / x3))",
    "(x1 * (2.0 * x2))", "(x1 / (2.0 * x2))", "((-x1) * (x2 * x2))",
)  # fmt: skip
KINDS = {key: k for k, key in enumerate([(t, False) for t in FORWARD] + [(t, True) for t in PULLBACK])}
"""The kind of an entry, by the text of its expression and whether it is a pullback."""

_HEAD = """from __future__ import annotations

import math
import numpy as np
from kernels.native.memory import load_f8, load_i4, load_i8, store_f8

MINUS_ZERO = -(1 << 63)


def place(entry, k, base):
    return base + 8 * np.int64(load_i4(entry + 4 * k))


def give(target, accumulates, value):
    if accumulates:
        store_f8(target, load_f8(target) + value)
    else:
        store_f8(target, value)


def run(entries: int, base: int, count: int) -> None:
    for k in range(count):
        entry = entries + {size} * k
        head = np.int64(load_i4(entry))
        kind, accumulates = head & 255, head & 256
        target, first = place(entry, 1, base), place(entry, 2, base)
        x1 = load_f8(first)
"""
_LOAD = "            {name} = load_f8(place(entry, {k}, base))\n"
_STORE = "            store_f8(target, {text})\n"
_GIVE = "            give(target, accumulates, (-0.0) if load_i8(first) == MINUS_ZERO else ({text} + 0.0))\n"


@functools.cache
def address() -> int:
    """Return the address of the native function that runs entries, given their address, the memory's and a count."""
    text = _HEAD.format(size=4 * ENTRY)
    for (expression, pullback), kind in KINDS.items():
        text += f"        {'elif' if kind else 'if'} kind == {kind}:\n"
        for k, name in ((3, "x2"), (4, "x3")):
            if name in expression:
                text += _LOAD.format(name=name, k=k)
        text += (_GIVE if pullback else _STORE).format(text=expression)
    return int(jit.load_source("inlined", text).run.address)


def kind_of(kernel: Any, count: int) -> int | None:
    """Return the kind of entry for a kernel that takes so many places; None if it has to be called as a kernel."""
    if not isinstance(kernel, PrintedLoop) or kernel.steps != 1:
        return None
    return _kind_of(kernel, count)


@functools.lru_cache(1 << 12)
def _kind_of(kernel: PrintedLoop, count: int) -> int | None:
    if count >= ENTRY or kernel.static or kernel.adds:
        return None
    if kernel.scatter is not None or kernel.gather is not None or (kernel.pullback and not kernel.skips):
        return None
    if any(operand.dtype != FLOAT64 or operand.offset is not None for operand in kernel.operands):
        return None
    names = {operand.name: f"x{operand.place}" for operand in kernel.operands}
    expression = kernel.expression
    if expression.specials or expression.exponents or not expression.names <= names.keys():
        return None
    return KINDS.get((source(_renamed(expression, names), FLOAT64), kernel.pullback))


def _renamed(expression: Any, names: dict[str, str]) -> Any:
    if not isinstance(expression, Symbol):
        return expression
    if not expression.parts:
        return Symbol(names[expression.head])
    return Symbol(expression.head, *[_renamed(part, names) for part in expression.parts])


# Large results are computed by our own kernels where that is much faster than the ufunc. Dynamic mode and replays
# choose alike, by operation, dtype and size, and so agree in every bit.


def forward(op: Any, result: Spec, specs: tuple[Spec, ...]) -> PrintedLoop:
    """Return the loop of an elementwise expression over its operands."""
    reads = [
        KernelOperand(name, spec.dtype, k, broadcast(spec.shape, spec.strides, result.shape))
        for k, (name, spec) in enumerate(zip(op.inputs, specs, strict=True), start=1)
    ]
    target = KernelOperand("target", result.dtype, 0, result.strides)
    return PrintedLoop(op.forward, result.shape, (target, *reads), pullback=False)


def same(x: Any) -> Any:
    """Return the operand: a copy."""
    return x


def tie(x: Any, y: Any) -> Any:
    """Count an element that ties with the extremum ``y``; nan ties with nan."""
    return np.where((x == y) | ((x != x) & (y != y)), 1.0, 0.0)


def reduced_shape(shape: Strides, axes: Any, keepdims: Any) -> Strides | None:
    """Return the shape of a reduction's result; None where the axes are not distinct ones of the input."""
    if len(set(axes)) != len(axes) or not all(type(axis) is int and 0 <= axis < len(shape) for axis in axes):
        return None
    return tuple([1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes])


def spread(strides: Strides, rank: int, axes: Strides, keepdims: bool) -> Strides:
    """Return the strides of a reduction's result over the space of its input."""
    remaining = iter(strides)
    kept = [next(remaining) if keepdims or i not in axes else 0 for i in range(rank)]
    return tuple(0 if i in axes else stride for i, stride in enumerate(kept))


_FLOATS, _NUMBERS = (FLOAT64, specs.FLOAT32), (float, int)
_kernels: Recent[tuple[Any, Spec, tuple[Spec, ...]], tuple[int, Array]] = Recent()


def least_of(op: Any) -> int:
    """Return from how many bytes on a kernel computes results: all arrays' of what takes several ufuncs."""
    return 1 if op.composed else LARGE


def suits(op: Any, spec: Spec, sources: tuple[Spec, ...]) -> bool:
    """Whether the kernel computes this: operands of the result's floating dtype, laid out as it is, or numbers."""
    if not op.vector or spec.dtype not in _FLOATS or spec.bytes < least_of(op) or not loops_readable():
        return False
    whole = [s for s in sources if s.shape]
    alike = len(sources) == 1 or all(s.shape == spec.shape and s.strides == spec.strides for s in whole)
    return alike and bool(whole) and all(s.dtype == spec.dtype for s in sources)


def run(op: Any, *operands: Any) -> Array | None:
    """Return the result for operands; None where the ufunc is to compute it."""
    large = next((x for x in operands if type(x) is np.ndarray and x.nbytes >= least_of(op)), None)
    if large is None or large.dtype not in _FLOATS:
        return None
    operands = tuple([np.array(float(x), large.dtype) if type(x) in _NUMBERS else x for x in operands])
    if any(type(x) is not np.ndarray for x in operands):
        return None
    result = pool.call(np.empty_like, large)
    key = (op, spec_of(result), tuple([spec_of(x) for x in operands]))
    if not suits(*key):
        return None
    made = _kernels.get(key)
    if made is None:
        made = _kernels.setdefault(key, forward(*key).kernel())
    run_at(*made, (result, *operands))
    return result


@dataclass(slots=True)
class OperandPlace:
    """Memory that a call uses: a node's value (or its gradient buffer), at an offset."""

    node: int
    gradient: bool = False
    offset: int = 0


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node as an operand, told apart from a Python number."""

    node: int


def node_of(operand: Any) -> int:
    """Return the node of an operand that is one."""
    assert isinstance(operand, NodeRef)
    return operand.node


@dataclass(slots=True)
class KernelCall:
    """A kernel on places, in the order of its pointers; ``accumulate`` adds to the first."""

    kernel: Any
    places: tuple[OperandPlace, ...]
    accumulate: bool = False


@dataclass(slots=True)
class UfuncCall:
    """An inner loop of NumPy's over a nest of strides."""

    loop: InnerLoop
    shape: Strides
    strides: tuple[Strides, ...]
    places: tuple[OperandPlace, ...]


@dataclass(slots=True)
class ConstantFill:
    """Set the elements of a place to one number."""

    place: OperandPlace
    elements: int
    dtype: np.dtype[Any]
    value: float


@dataclass(slots=True)
class ByteComparison:
    """Stop the program where so many bytes of two places differ."""

    size: int
    places: tuple[OperandPlace, OperandPlace]


@dataclass(slots=True)
class Steering:
    """A row that steers a loop: which, and its number or limit; ``saved`` are the nodes that it keeps or restores."""

    kind: int
    places: tuple[OperandPlace, ...]
    number: int = 0
    saved: list[int] = field(default_factory=list)


@dataclass(slots=True)
class PythonCall:
    """Python in a program: ``run`` gets values or gradients of these nodes, and what calls of this run keep."""

    run: Callable[[list[np.ndarray[Any, Any]], dict[int, list[Any]]], None]
    nodes: tuple[tuple[int, bool], ...]  # the nodes, each with whether it is its gradient that is passed
    places: tuple[OperandPlace, ...]  # where they stand: of a gradient, the base


Task = KernelCall | UfuncCall | ConstantFill | ByteComparison | Steering | PythonCall


class Tasks:
    """Tasks in order, as columns: what each calls, whether it adds to its first place, its step, and its places.

    ``calls`` has what is called, each once, with how many places it takes: kernels, and a task for each kind of the
    others. A place is a node, or ``~node`` for the gradient buffer of a base; ``offsets`` has those that are not 0, by
    place. ``step`` is that of tasks that are appended.
    """

    __slots__ = ("_numbers", "adds", "call_numbers", "calls", "counts", "offsets", "places", "step", "steps")

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.counts: list[int] = []
        self.call_numbers, self.adds, self.steps, self.places = array("q"), array("b"), array("q"), array("q")
        self.step = 0
        self.offsets: dict[int, int] = {}
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.call_numbers)

    def number(self, key: Any, call: Any, count: int) -> int:
        """Return the number of a callee, identified by ``key``."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.calls)
            self.calls.append(call)
            self.counts.append(count)
        return number

    def kernel(self, kernel: Any, count: int) -> int:
        """Return the number of a kernel that takes so many places."""
        return self.number(id(kernel), kernel, count)

    def append(self, task: Task) -> None:
        """Append a task."""
        places = (task.place,) if isinstance(task, ConstantFill) else task.places
        callee: Any = task
        key: Any = (id(task),)
        if isinstance(task, KernelCall):
            callee, key = task.kernel, id(task.kernel)
        elif isinstance(task, ConstantFill):
            key = task.elements, task.dtype.num, repr(task.value)
        elif isinstance(task, ByteComparison):
            key = ByteComparison, task.size
        elif isinstance(task, UfuncCall):
            key = task.loop, task.shape, task.strides
        self.call_numbers.append(self.number(key, callee, len(places)))
        self.adds.append(isinstance(task, KernelCall) and task.accumulate)
        self.steps.append(self.step)
        for place in places:
            if place.offset:
                self.offsets[len(self.places)] = place.offset
            self.places.append(~place.node if place.gradient else place.node)


_ZERO = float(np.add.reduce(np.array([-0.0])))
"""What NumPy's sums of negative zeros give: -0.0 if they start from the first element, 0.0 if from 0."""


def initial(ufunc: np.ufunc, spec: Spec, dtype: np.dtype[Any]) -> float:
    """Return what a reduction starts from, as NumPy does."""
    if ufunc is np.add:
        return _ZERO if dtype.kind == "f" and spec.size else 0.0
    if dtype.kind == "f":
        return -math.inf if ufunc is np.maximum else math.inf
    limits = np.iinfo(dtype)
    return limits.min if ufunc is np.maximum else limits.max
