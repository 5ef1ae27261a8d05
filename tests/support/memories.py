"""Random programs of reads, views and writes over shared memories, and their replica, which only ever copies.

A program is a list of steps, each a tuple of plain data: the kind, then names (ints), numbers and keys; `source`
prints one as a line of Python. `Live` executes these lines with a library of tensors, this one or PyTorch. `Replica`
knows no tensor: a memory is an array of numbers that each write replaces by another, a view is an array of places
in it, and gradients come from `Node`, a reverse mode on arrays that nobody changes.

`python -m tests.support.memories 100000` runs as many programs and prints the first one on which the two disagree.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from types import CodeType
from typing import Any

import numpy as np

import tape
from tape.recording.record import recorded

Array = np.ndarray[Any, Any]
Step = tuple[Any, ...]
Program = list[Step]

LEAF = "leaf Variable that requires grad is being used in an in-place operation"
SHARED = "more than one element of the written-to tensor refers to a single memory location"
SHAPES = "shape|size"
NO_GRAPH = "require"


# --- a reverse mode on arrays that nobody changes ---------------------------------------------------------------


class Node:
    """A flat array, and how a gradient of it becomes gradients of the arrays that it was computed from."""

    __slots__ = ("number", "sources", "value", "wanted")

    numbers = itertools.count()

    def __init__(self, value: Any, *sources: tuple[Node, Callable[[Node], Node]], wanted: bool = False) -> None:
        self.value = np.asarray(value)
        self.sources = [(node, pull) for node, pull in sources if node.wanted]
        self.wanted = wanted or bool(self.sources)
        self.number = next(self.numbers)

    def __add__(self, other: Node) -> Node:
        return Node(self.value + other.value, (self, lambda g: g), (other, lambda g: g))

    def __mul__(self, other: Node) -> Node:
        return Node(self.value * other.value, (self, lambda g: g * other), (other, lambda g: g * self))

    def __getitem__(self, places: Array) -> Node:
        """Gather."""
        size = self.value.size
        return Node(self.value[places], (self, lambda g: spread(g, places, size)))


def spread(a: Node, places: Array, size: int) -> Node:
    """Add each element into its place of an array of zeros."""
    value = np.zeros(size, a.value.dtype)
    np.add.at(value, places, a.value)
    return Node(value, (a, lambda g: g[places]))


def revalued(a: Node, value: Array) -> Node:
    """Return a node of another value that passes gradients on to this one."""
    return Node(value, (a, lambda g: g))


def full(size: int, number: float) -> Node:
    return Node(np.full(size, float(number)))


def sine(a: Node) -> Node:
    return Node(np.sin(a.value), (a, lambda g: g * cosine(a)))


def cosine(a: Node) -> Node:
    return Node(np.cos(a.value), (a, lambda g: g * negative(sine(a))))


def negative(a: Node) -> Node:
    return Node(-a.value, (a, negative))


def tangent(a: Node) -> Node:
    y = Node(np.tanh(a.value), (a, lambda g: g * (full(y.value.size, 1.0) + negative(y * y))))
    return y


def larger(a: Node, b: Node) -> Node:
    return chosen(a.value.real > b.value.real, a, b)


def chosen(mask: Array, a: Node, b: Node) -> Node:
    return Node(
        np.where(mask, a.value, b.value),
        (a, lambda g: g * Node(mask * 1.0)),
        (b, lambda g: g * Node(~mask * 1.0)),
    )


def gradients(roots: list[tuple[Node, Node]], inputs: list[Node]) -> list[Node | None]:
    """Return the gradient by each input of the sum over ``roots`` of value times cotangent."""
    found: dict[Node, Node] = {}
    waiting: list[tuple[int, Node]] = []

    def add(node: Node, g: Node) -> None:
        if node in found:
            found[node] = found[node] + g
        else:
            found[node] = g
            heapq.heappush(waiting, (-node.number, node))

    for root, seed in roots:
        add(root, seed)
    while waiting:
        _, node = heapq.heappop(waiting)
        for origin, pull in node.sources:
            add(origin, pull(found[node]))
    return [found.get(node) for node in inputs]


# --- the language -----------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Node], Node]] = {
    "sin": sine,
    "tanh": tangent,
    "square": lambda a: a * a,
    "clone": lambda a: a[np.arange(a.value.size)],
}
BINARY: dict[str, Callable[[Node, Node], Node]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "maximum": larger,
}
SIGNS: dict[str, Callable[[Node, Node], Node]] = {
    "+": BINARY["add"],
    "-": lambda a, b: a + negative(b),
    "*": BINARY["mul"],
}
VIEWS: dict[str, Callable[..., Array]] = {
    "T": lambda places: places.T,
    "transpose": np.swapaxes,
    "unsqueeze": np.expand_dims,
    "squeeze": lambda places, axis: places.squeeze(axis),
    "expand": lambda places, *shape: np.broadcast_to(places, shape),
    "from": lambda places, start: places[start:],
}
PART = 0
"""The name, given to no tensor of a program, of the view that `x[key] += v` takes."""
LISTS = ("list", "tensor", "array")
PREAMBLE = """\
import numpy as np

import tape


i = tape.tensor(0)


def collect():
    if hasattr(tape, "modes"):
        tape.tensors.modes.own_tape().collect()


def weights(x):
    return tape.linspace(0.5, 1.5, x.numel()).reshape(x.shape)


def second(loss, leaves):
    first = tape.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
    total = sum((g * weights(g)).sum() for g in first)
    if not total.requires_grad:
        return [g * 0.0 for g in first]
    return tape.autograd.grad(total, leaves, retain_graph=True, materialize_grads=True)
"""


@functools.cache
def weights_of(size: int) -> Node:
    return Node(np.linspace(0.5, 1.5, size))


def source(step: Step) -> str:
    """Print a step as a line of Python."""
    kind, *rest = step
    return PRINTERS[kind](*rest)


def _operand(value: float) -> str:
    return f"x{value}" if type(value) is int else repr(value)


def _key(key: Any) -> str:
    """Print a key: ints, slices, None, Ellipsis, and `(form, numbers)` for an advanced part."""
    return ", ".join(map(_part, key))


def _part(part: Any) -> str:
    if isinstance(part, slice):
        ends = ["" if end is None else str(end) for end in (part.start, part.stop, part.step)]
        return ":".join(ends if ends[2] else ends[:2])
    if isinstance(part, tuple):
        form, numbers = part
        return {"list": "{}", "tensor": "tape.tensor({})", "array": "np.array({})"}[form].format(_unnested(numbers))
    return "..." if part is Ellipsis else repr(part)


def _unnested(numbers: Any) -> Any:
    return list(map(_unnested, numbers)) if isinstance(numbers, tuple) else numbers


def plain_key(key: Any) -> tuple[Any, ...]:
    """Return a key as NumPy takes it."""
    return tuple(np.array(part[1]) if isinstance(part, tuple) else part for part in key)


def advanced(key: Any) -> bool:
    """Whether a key picks by integers or booleans, and so copies."""
    return any(isinstance(part, tuple) for part in key)


def _view(name: int, x: int, how: str, args: Any) -> str:
    made = {
        "index": lambda: f"x{x}[{_key(args)}]",
        "row": lambda: f"list(x{x})[{args}]",
        "T": lambda: f"x{x}.T",
        "from": lambda: f"(i.fill_({args[0]}), x{x}[i:])[1]",
    }.get(how, lambda: f"x{x}.{how}({', '.join(map(str, args))})")()
    return f"x{name} = {made}"


def _apply(name: int, op: str, operands: tuple[float, ...]) -> str:
    first, *others = map(_operand, operands)
    if op in SIGNS or op == "@":
        return f"x{name} = {first} {op} {others[0]}"
    if op == "maximum":
        return f"x{name} = tape.maximum({first}, {others[0]})"
    return f"x{name} = {first}.{op}({', '.join(others)})"


PRINTERS: dict[str, Callable[..., str]] = {
    "leaf": lambda n, values: f"x{n} = tape.tensor({values}, requires_grad=True)",
    "buffer": lambda n, values: f"x{n} = tape.tensor({values})",
    "view": _view,
    "reshape": lambda n, x, shape: f"x{n} = x{x}.reshape{shape}",
    "apply": _apply,
    "where": lambda n, mask, a, b: f"x{n} = tape.where(tape.tensor({mask}), {_operand(a)}, {_operand(b)})",
    "part": lambda n, x, key: f"x{n} = x{x}[{_key(key)}]",
    "join": lambda n, how, parts: f"x{n} = tape.{how}([{', '.join(map(_operand, parts))}])",
    "collect": lambda: "collect()",
    "release": lambda x: f"x{x}.requires_grad_(False)",
    "detach": lambda n, x, how: f"x{n} = {how.format(f'x{x}')}",
    "require": lambda x: f"x{x}.requires_grad_()",
    "method": lambda x, op, operands: f"x{x}.{op}_({', '.join(map(_operand, operands))})",
    "operator": lambda x, sign, v: f"x{x} {sign}= {_operand(v)}",
    "assign": lambda x, key, v: f"x{x}[{_key(key)}] = {_operand(v)}",
    "assign_with": lambda x, key, sign, v: f"x{x}[{_key(key)}] {sign}= {_operand(v)}",
    "masked_fill": lambda x, mask, v: f"x{x}.masked_fill_(tape.tensor({mask}), {_operand(v)})",
    "index_put": lambda x, places, v, accumulate: (
        f"x{x}.index_put_(({', '.join(_part(('tensor', p)) for p in places)},), x{v}, accumulate={accumulate})"
    ),
    "grad_mode": lambda mode: f"tape.set_grad_enabled({mode})",
    "backward": lambda x: f"x{x}.backward(weights(x{x}), retain_graph=True)",
    "retain": lambda x: f"x{x}.retain_grad()",
    "observe": lambda x, y: (
        f"seen = tape.autograd.grad(x{x}, x{y}, weights(x{x}), retain_graph=True, allow_unused=True)[0]"
    ),
    "look": lambda x: f"print(x{x}, x{x}.requires_grad, x{x}._version)",
    "forget": lambda x: f"del x{x}",
    "second": lambda x, leaves: f"seen = second(x{x}, [{', '.join(map(_operand, leaves))}])",
    "loss": lambda n, parts: f"x{n} = " + " + ".join(f"(x{x} * weights(x{x})).sum()" for x in parts),
}


def text_of(program: Program) -> str:
    """Print a program that runs as it stands."""
    return PREAMBLE + "\n\n" + "\n".join(map(source, program)) + "\n"


# --- the replica ---------------------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818 (the replica refuses, as the tensors should)
    """The step raises; the text is a pattern of the message."""


@dataclass(eq=False)
class Memory:
    """Numbers that several families may see."""

    values: Array


@dataclass(eq=False)
class Family:
    """A base tensor and its views: one history of the whole memory, in which each recorded write is a new node."""

    memory: Memory
    history: Node
    version: list[int] = field(default_factory=lambda: [0])
    leaf: Handle | None = None
    wanted: bool = False
    writes: int = 0
    released: bool = False


@dataclass(eq=False)
class Handle:
    """A tensor: places in a memory, with the strides of the tensor. A view knows its source and places therein."""

    family: Family
    places: Array
    wanted_at_first: bool
    above: Handle | None = None
    relative: Array = field(default_factory=lambda: np.array([], int))
    born: int = 0
    retains: bool = False
    grad: Any = 0.0
    seen: tuple[int, Node] | None = None

    @property
    def wanted(self) -> bool:
        """Whether it requires grad: as it was made, or since a recorded write to its family."""
        return self.wanted_at_first or self.family.writes > self.born

    @property
    def base(self) -> Handle:
        return self if self.above is None else self.above.base

    @property
    def values(self) -> Array:
        return self.family.memory.values[self.places]

    @property
    def version(self) -> Node:
        """Return the node of what was last recorded as written here; its value may be out of date."""
        if self.seen is None or self.seen[0] != self.family.writes:
            above = self.above
            self.seen = (
                self.family.writes,
                self.family.history[self.places.ravel()] if above is None else above.version[self.relative],
            )
        return self.seen[1]

    @property
    def node(self) -> Node:
        """Return the node of its present value."""
        return revalued(self.version, self.values.ravel())


class Replica:
    """Runs programs without ever changing an array."""

    def __init__(self) -> None:
        self.handles: dict[int, Handle] = {}
        self.leaves: list[Handle] = []
        self.grad = True
        self.observed: list[Array] = []
        self.cuts = False
        self.largest = 0.0
        self.nearest = 1.0

    def run(self, step: Step) -> None:
        """Run a step; raise Refused where tensors should raise."""
        getattr(self, step[0])(*step[1:])

    # Making tensors.

    def leaf(self, name: int, values: Any) -> None:
        self.buffer(name, values)
        self.require(name)

    def buffer(self, name: int, values: Any) -> None:
        self._make(name, Node(np.array(values).ravel()), np.shape(values))

    def require(self, x: int) -> None:
        """Turn a tensor without history into a leaf; a view leaves its family."""
        handle = self.handles[x]
        if handle.wanted:
            return
        if handle.above is not None:
            self.cuts = True
            handle = self.handles[x] = Handle(
                Family(handle.family.memory, full(0, 0.0), handle.family.version), handle.places, wanted_at_first=True
            )
        family = handle.family
        family.history = Node(family.memory.values, wanted=True)
        family.leaf, family.wanted = handle, True
        handle.wanted_at_first, handle.seen = True, None
        self.leaves.append(handle)

    def release(self, x: int) -> None:
        """Let a leaf be none: its views lead to what it was until a recorded write."""
        handle = self.handles[x]
        family = handle.family
        for other in self.handles.values():
            if other.family is family and other is not handle:
                other.node  # noqa: B018 (remembered by this version)
        self.leaves.remove(handle)
        self.cuts = True
        family.history, family.leaf, family.wanted, family.released = Node(family.memory.values), None, False, True
        handle.wanted_at_first, handle.seen, handle.retains = False, None, False

    def collect(self) -> None:
        """Do nothing: what is dropped nobody can reach."""

    def _make(self, name: int, node: Node, shape: tuple[int, ...], like: Array | None = None) -> None:
        """Make a tensor of its own memory, with the strides of ``like``."""
        places = np.arange(node.value.size).reshape(shape)
        if like is not None:
            own = np.empty_like(like)
            own[...] = places
            places = own
        family = Family(Memory(node.value), node, wanted=node.wanted and self.grad)
        self.handles[name] = Handle(family, places, family.wanted)
        self.largest = max(self.largest, np.abs(node.value).max(initial=0.0))

    # Views.

    def view(self, name: int, x: int, how: str, args: Any) -> None:
        self._view(name, x, lambda places: viewed(places, how, args))

    def reshape(self, name: int, x: int, shape: tuple[int, ...]) -> None:
        try:
            self._view(name, x, lambda places: np.reshape(places, shape, copy=False))
        except ValueError:
            self._make(name, self.read(x), shape)

    def _view(self, name: int, x: int, change: Callable[[Array], Array]) -> None:
        above = self.handles[x]
        relative = change(np.arange(above.places.size).reshape(above.places.shape)).ravel()
        self.handles[name] = Handle(
            above.family, change(above.places), above.wanted and self.grad, above, relative, above.family.writes
        )
        self.cuts |= above.wanted and not self.grad

    def detach(self, name: int, x: int, how: str) -> None:
        handle = self.handles[x]
        self.cuts = True
        memory = handle.family.memory
        version = handle.family.version if how == "{}.detach()" else [0]
        self.handles[name] = Handle(Family(memory, Node(memory.values), version), handle.places, wanted_at_first=False)

    def forget(self, x: int) -> None:
        del self.handles[x]

    def look(self, x: int) -> None:
        """Do nothing: whoever looks at a tensor may change what it does next."""

    # Reading.

    def read(self, operand: float, shape: tuple[int, ...] | None = None) -> Node:
        """Return an operand's value, broadcast to a shape."""
        if type(operand) is not int:
            return full(int(np.prod(shape or ())), operand)
        handle = self.handles[operand]
        node = handle.node if self.grad and handle.wanted else Node(handle.values.ravel())
        self.cuts |= handle.wanted and not node.wanted
        if shape is None or shape == handle.places.shape:
            return node
        return node[np.broadcast_to(np.arange(node.value.size).reshape(handle.places.shape), shape).ravel()]

    def shape(self, operand: float) -> tuple[int, ...]:
        return self.handles[operand].places.shape if type(operand) is int else ()

    def apply(self, name: int, op: str, operands: tuple[float, ...]) -> None:
        if op in ("sum", "@"):
            node, shape = self._sum(*operands) if op == "sum" else self._product(*operands)
            self._make(name, node, shape)
            return
        maps = [self.handles[o].places if type(o) is int else np.array(0) for o in operands]
        like = None if op == "clone" else np.negative(maps[0]) if len(maps) == 1 else np.add(*maps)
        shape = np.broadcast_shapes(*map(self.shape, operands))
        self._make(name, self._compute(op, operands, shape), shape, like)

    def _compute(self, op: str, operands: tuple[float, ...], shape: tuple[int, ...]) -> Node:
        nodes = [self.read(o, shape) for o in operands]
        if op == "maximum":
            self.nearest = min(self.nearest, np.abs(nodes[0].value - nodes[1].value).min(initial=1.0))
        return {**UNARY, **BINARY, **SIGNS}[op](*nodes)

    def _sum(self, x: int) -> tuple[Node, tuple[int, ...]]:
        node = self.read(x)
        return spread(node, np.zeros(node.value.size, int), 1), ()

    def _product(self, a: int, b: int) -> tuple[Node, tuple[int, ...]]:
        (m, k), n = self.shape(a), self.shape(b)[-1]
        i, j, l = (axis.ravel() for axis in np.indices((m, k, n)))  # noqa: E741 (the usual letters)
        return spread(self.read(a)[i * k + j] * self.read(b)[j * n + l], i * n + l, m * n), (m, n)

    def join(self, name: int, how: str, parts: tuple[int, ...]) -> None:
        nodes, shapes = [self.read(x) for x in parts], [self.shape(x) for x in parts]
        ends = list(itertools.accumulate((node.value.size for node in nodes), initial=0))
        numbers = [np.arange(a, b).reshape(s) for a, b, s in zip(ends, ends[1:], shapes, strict=False)]
        places = np.stack(numbers) if how == "stack" else np.concatenate(numbers)
        flat = [spread(node, n.ravel(), ends[-1]) for node, n in zip(nodes, numbers, strict=True)]
        self._make(name, functools.reduce(lambda a, b: a + b, flat)[places.ravel()], places.shape)

    def where(self, name: int, mask: Any, a: float, b: float) -> None:
        shape = np.broadcast_shapes(np.shape(mask), self.shape(a), self.shape(b))
        self._make(name, chosen(_spread_mask(mask, shape), self.read(a, shape), self.read(b, shape)), shape)

    def part(self, name: int, x: int, key: Any) -> None:
        places = np.arange(self.handles[x].places.size).reshape(self.shape(x))[plain_key(key)]
        self._make(name, self.read(x)[places.ravel()], places.shape)

    def loss(self, name: int, parts: tuple[int, ...]) -> None:
        total = full(1, 0.0)
        for x in parts:
            node = self.read(x) * weights_of(self.handles[x].places.size)
            total = total + spread(node, np.zeros(node.value.size, int), 1)
        before = self.largest
        self._make(name, total, ())
        self.largest = before

    # Writing.

    def method(self, x: int, op: str, operands: tuple[float, ...]) -> None:
        handle, shape = self.handles[x], self.shape(x)
        self._check(handle, handle.places, reads=op not in ("copy", "fill", "zero"))
        self._check_shapes(operands, shape)
        if op in ("copy", "fill", "zero"):
            self._write(handle, handle.places, self.read(*(operands or (0.0,)), shape))
        else:
            self._write(handle, handle.places, self._compute(op, (x, *operands), shape))

    def operator(self, x: int, sign: str, v: float) -> None:
        self.method(x, sign, (v,))

    def assign(self, x: int, key: Any, v: float) -> None:
        handle = self.handles[x]
        places = handle.places[plain_key(key)]
        self._check(handle, handle.places if advanced(key) else places)
        shape = self.shape(v)
        while len(shape) > places.ndim and shape[0] == 1:
            shape = shape[1:]
        if not _fits(shape, places.shape):
            raise Refused(SHAPES)
        self._write(handle, places, self.read(v, (1,) * (len(self.shape(v)) - len(shape)) + places.shape))

    def assign_with(self, x: int, key: Any, sign: str, v: float) -> None:
        """Take a part, compute it in place, and assign it: a view is then written already, a copy not yet."""
        handle = self.handles[x]
        if not advanced(key):
            self._view(PART, x, lambda places: viewed(places, "index", key))
            try:
                self.method(PART, sign, (v,))
            finally:
                del self.handles[PART]
            handle.family.version[0] += 1
            return
        places = handle.places[plain_key(key)]
        self._check_shapes((v,), places.shape)
        within = np.arange(handle.places.size).reshape(handle.places.shape)[plain_key(key)]
        value = SIGNS[sign](self.read(x)[within.ravel()], self.read(v, places.shape))
        self._check(handle, handle.places)
        self._write(handle, places, value)

    def masked_fill(self, x: int, mask: Any, v: float) -> None:
        handle = self.handles[x]
        self._check(handle, handle.places, reads=True)
        places = handle.places[_spread_mask(mask, handle.places.shape).reshape(handle.places.shape)]
        self._write(handle, places, self.read(v, places.shape))

    def index_put(self, x: int, lists: Any, v: int, accumulate: bool) -> None:
        handle = self.handles[x]
        places = handle.places[tuple(map(np.array, lists))]
        self._check(handle, handle.places, reads=accumulate)
        self._check_shapes((v,), places.shape)
        value = self.read(v, places.shape)
        if accumulate:
            within = np.arange(handle.places.size).reshape(handle.places.shape)[tuple(map(np.array, lists))]
            value = self.read(x) + spread(value, within.ravel(), handle.places.size)
            places = handle.places
        self._write(handle, places, value)

    def _check_shapes(self, operands: tuple[float, ...], shape: tuple[int, ...]) -> None:
        if not all(_fits(self.shape(o), shape) for o in operands):
            raise Refused(SHAPES)

    def _check(self, handle: Handle, places: Array, *, reads: bool = False) -> None:
        """Refuse to write into leaves, and where several elements are one place, in the family's base too.

        A view made without gradients is one of its family when an operation in place ``reads`` it with gradients.
        """
        released = handle.above is not None and handle.wanted and not handle.family.wanted
        if self.grad and (handle.family.leaf is not None or released):
            raise Refused(LEAF)
        if repeats(places) or repeats(handle.base.places):
            raise Refused(SHARED)
        handle.wanted_at_first |= reads and self.grad and handle.family.wanted

    def _write(self, handle: Handle, places: Array, value: Node) -> None:
        """Replace numbers, the last one where a place is named twice; with gradients on, history too."""
        family, last = handle.family, dict(zip(places.ravel().tolist(), itertools.count(), strict=False))
        to, origin = np.array(list(last), int), np.array(list(last.values()), int)
        memory = family.memory
        memory.values = memory.values.copy()
        memory.values[to] = value.value[origin]
        family.version[0] += 1
        self.largest = max(self.largest, np.abs(memory.values).max(initial=0.0))
        self.cuts |= family.wanted and not self.grad
        if self.grad and (family.wanted or value.wanted):
            kept = np.ones(memory.values.size)
            kept[to] = 0.0
            family.history = family.history * Node(kept) + spread(value[origin], to, kept.size)
            family.wanted = True
            family.writes += 1

    # Sweeping.

    def grad_mode(self, mode: bool) -> None:
        self.grad = mode

    def retain(self, x: int) -> None:
        handle = self.handles[x]
        if not handle.wanted:
            raise Refused("retain_grad")
        handle.retains |= handle.family.leaf is not handle

    def backward(self, x: int) -> None:
        """Add gradients to the leaves and to tensors that retain theirs."""
        handle = self.handles[x]
        if not handle.wanted:
            raise Refused(NO_GRAPH)
        kept = [h for h in self.handles.values() if h.retains]
        receivers = [*self.leaves, *kept]
        found = gradients([(handle.node, weights_of(handle.places.size))], [*map(self._observed, receivers)])
        for h, g in zip(receivers, found, strict=True):
            h.grad = h.grad + self._shaped(h, g)

    def observe(self, x: int, y: int) -> None:
        handle, by = self.handles[x], self.handles[y]
        if not (handle.wanted and by.wanted):
            raise Refused(NO_GRAPH)
        (g,) = gradients([(handle.node, weights_of(handle.places.size))], [self._observed(by)])
        self.observed = [self._shaped(by, g)]

    def second(self, x: int, leaves: tuple[int, ...]) -> None:
        """Leave the gradients of a weighted sum of the gradients."""
        handle, by = self.handles[x], [self.handles[y] for y in leaves]
        if not handle.wanted:
            raise Refused(NO_GRAPH)
        inputs = [h.family.history for h in by]
        total = []
        for h, g in zip(by, gradients([(handle.node, full(1, 1.0))], inputs), strict=True):
            if g is not None:
                total.append((g[h.places.ravel()], weights_of(h.places.size)))
        self.observed = [self._shaped(h, g) for h, g in zip(by, gradients(total, inputs), strict=True)]

    @staticmethod
    def _observed(handle: Handle) -> Node:
        return handle.family.history if handle.family.leaf is handle else handle.version

    @staticmethod
    def _shaped(handle: Handle, g: Node | None) -> Array:
        """Return a gradient of a leaf, which is one of its whole memory, or of another tensor, in its shape."""
        if g is None:
            return np.zeros(handle.places.shape)
        return g.value[handle.places] if handle.family.leaf is handle else g.value.reshape(handle.places.shape)


def repeats(places: Array) -> bool:
    """Whether several elements are one place."""
    return np.unique(places).size < places.size


def viewed(places: Array, how: str, args: Any) -> Array:
    """Take a view of an array of places."""
    if how == "index":
        return places[(*plain_key(args), ...)] if Ellipsis not in args else places[plain_key(args)]
    return places[args, ...] if how == "row" else VIEWS[how](places, *args)


def _spread_mask(mask: Any, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.array(mask), shape).ravel()


# --- the tensors ------------------------------------------------------------------------------------------------


@functools.lru_cache(4096)
def _compiled(line: str) -> CodeType:
    return compile(line, "program", "exec")


class Live:
    """Runs programs with a library of tensors."""

    def __init__(self, library: Any = tape) -> None:
        self.library = library
        self.names: dict[str, Any] = {}
        exec(_compiled(PREAMBLE), self.names)  # noqa: S102 (the programs are text)
        self.names["tape"] = library

    def run(self, step: Step) -> str | None:
        """Run a step; return the message of an error, other errors than of misuse with their class."""
        try:
            if step[0] != "look":  # a look is a comparison
                exec(_compiled(source(step)), self.names)  # noqa: S102
        except Exception as error:  # noqa: BLE001 (to be compared)
            misuse = isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError)
            return str(error) if misuse else f"<{type(error).__name__}> {error}"
        return None

    def gradient(self, name: int, shape: tuple[int, ...]) -> Array:
        grad = self.names[f"x{name}"].grad
        return np.zeros(shape) if grad is None else np.array(grad.tolist()).reshape(shape)

    def seen(self) -> list[Any]:
        seen = self.names.get("seen")
        return [None if g is None else g.tolist() for g in (seen if isinstance(seen, list | tuple) else [seen])]


def close(found: Any, expected: Array) -> bool:
    """Whether numbers agree up to rounding."""
    found = np.asarray(np.zeros(expected.shape) if found is None else found)
    if expected.size == 0:
        return found.size == 0
    scale = 1e-10 * max(1.0, np.abs(expected).max(initial=0.0))
    return bool(np.all(np.abs(found - expected) <= scale))


def attempt(replica: Replica, step: Step) -> str | None:
    """Run a step with the replica; return a pattern of the error that tensors should raise."""
    try:
        replica.run(step)
    except Refused as refused:
        return str(refused)
    return None


def trouble(replica: Replica, live: Live, step: Step, expected: str | None) -> str | None:
    """Run a step with the tensors, after the replica; say how they disagree."""
    raised = live.run(step)
    if expected is None and raised is not None:
        return f"raised {raised}"
    if expected is not None and (raised is None or raised.startswith("<") or not re.search(expected, raised)):
        return f"raised {raised}, expected an error like {expected!r}"
    if expected is None and step[0] in ("backward", "observe", "second"):
        return _different_gradients(replica, live, step)
    return _different_state(replica, live, [step[1]]) if step[0] == "look" else None


def _different_state(replica: Replica, live: Live, names: Iterable[int]) -> str | None:
    for name in names:
        handle = replica.handles[name]
        tensor = live.names[f"x{name}"]
        found, expected = tensor.tolist(), handle.values.tolist()
        if found != expected and not close(found, handle.values):
            return f"x{name} is {found}, expected {expected}"
        if tensor.requires_grad != handle.wanted:
            return f"x{name}.requires_grad is {tensor.requires_grad}"
        if tensor._version != handle.family.version[0]:
            return f"x{name}._version is {tensor._version}, expected {handle.family.version[0]}"
    return None


def _different_gradients(replica: Replica, live: Live, step: Step) -> str | None:
    if step[0] == "backward":
        for name, handle in replica.handles.items():
            if handle.retains or handle.family.leaf is handle:
                found, expected = live.gradient(name, handle.places.shape), np.asarray(handle.grad)
                if not close(found, expected):
                    return f"x{name}.grad is {found.tolist()}, expected {expected.tolist()}"
    else:
        for found, wanted in zip(live.seen(), replica.observed, strict=True):
            if not close(found, wanted):
                return f"gradients are {live.seen()}, expected {[g.tolist() for g in replica.observed]}"
    return None


def disagreement(program: Program, library: Any = tape) -> str | None:
    """Run a program with both; say at which line they disagree, and how."""
    replica = Replica()
    return compared(((step, replica, attempt(replica, step)) for step in program), library)


def compared(steps: Iterable[tuple[Step, Replica, str | None]], library: Any = tape) -> str | None:
    """Follow a replica with tensors, step by step; say at which line they disagree, and how."""
    live, replica, before = Live(library), Replica(), remaining()
    try:
        for number, (step, replica, expected) in enumerate(steps, 1):
            if (found := trouble(replica, live, step, expected)) is not None:
                return f"line {number}, {source(step)}: {found}"
        if (found := _different_state(replica, live, replica.handles)) is not None:
            return f"at the end: {found}"
    finally:
        library.set_grad_enabled(True)
        live.names.clear()
    if (left := remaining() - before) > 0:
        return f"{left} instructions are left on the tape when all tensors are gone"
    return None


def remaining() -> int:
    """Return how many instructions live on the tape; in plain Python each look drops one layer of the dead."""
    count = recorded()
    while (fewer := recorded()) < count:
        count = fewer
    return count


def gist(complaint: str | None) -> str:
    """Return what kind of disagreement it is, without numbers and names."""
    return re.sub(r"[\d.e+-]+", "#", complaint.partition(": ")[2])[:60] if complaint else ""


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Drop steps as long as the program still fails."""
    program = list(program)
    dropped = True
    while dropped:
        dropped = False
        for k in reversed(range(len(program))):
            shorter = program[:k] + program[k + 1 :]
            try:
                still = fails(shorter)
            except (KeyError, IndexError, ValueError):
                continue  # a name or a shape that the dropped step had made
            if still:
                program, dropped = shorter, True
    return program


# --- random programs --------------------------------------------------------------------------------------------

SHAPES_AT_FIRST = ((4,), (2, 3), (3,), ())
METHODS = ("add", "mul", "sin", "tanh", "square", "copy", "fill", "zero")
WEIGHTS = {
    "leaf": 1,
    "buffer": 2,
    "view": 16,
    "reshape": 3,
    "apply": 20,
    "where": 3,
    "part": 4,
    "join": 6,
    "collect": 3,
    "release": 16,
    "detach": 2,
    "require": 1,
    "method": 12,
    "operator": 8,
    "assign": 16,
    "assign_with": 8,
    "masked_fill": 3,
    "index_put": 4,
    "grad_mode": 3,
    "backward": 3,
    "retain": 2,
    "observe": 2,
    "look": 3,
    "forget": 5,
}
LARGE, NEAR = 100.0, 1e-6
MOST_TENSORS, MOST_MEMORIES, MOST_ELEMENTS = 9, 3, 12


class Author:
    """Writes a program step by step, running its replica along to know shapes and values."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.program: Program = []
        self.replica = Replica()
        self.expected: str | None = None
        self.count = 0
        self.roots = 0

    def write(self, length: int) -> Iterator[tuple[Step, Replica, str | None]]:
        """Write a whole program: a beginning, that many steps, a loss and its gradients.

        Yields each step with the replica that has run it and a pattern of the error that tensors should raise.
        """
        proposed = (self.propose(*WEIGHTS) for _ in range(length))
        for step in itertools.chain(self.beginning(), proposed, self.ending()):
            if step is not None and self.add(step):
                yield step, self.replica, self.expected

    def propose(self, *kinds: str) -> Step | None:
        """Return a step of one of these kinds; None where there is nothing to do it with."""
        kind = self.random.choices(kinds, [WEIGHTS[k] for k in kinds])[0]
        found: Step | None = getattr(self, f"_{kind}")()
        return None if found is None else (kind, *found)

    def add(self, step: Step) -> bool:
        """Run a step on the replica and keep it; drop it where numbers grow large or meet at a kink."""
        self.expected = attempt(self.replica, step)
        if step[0] == "loss" or (self.replica.largest < LARGE and self.replica.nearest > NEAR):
            self.program.append(step)
            return True
        self.replica = Replica()
        for earlier in self.program:
            attempt(self.replica, earlier)
        return False

    def beginning(self) -> Iterator[Step]:
        """Give a leaf and a tensor to write into."""
        yield ("leaf", *self._leaf())
        leaf = self.count
        yield ("apply", self._name(), self.random.choice(("clone", "sin", "tanh")), (leaf,))

    def ending(self) -> Iterator[Step]:
        """Give a loss of several tensors, its gradient and its second gradient."""
        yield ("grad_mode", True)
        wanted = [x for x, handle in self.replica.handles.items() if handle.wanted]
        parts = self.random.sample(wanted, min(len(wanted), self.random.randint(1, 4)))
        yield ("loss", self._name(), tuple(parts))
        loss = self.count
        leaves = tuple(x for x, handle in self.replica.handles.items() if handle.family.leaf is handle)
        yield ("backward", loss)
        yield ("second", loss, leaves)

    # What steps are made of.

    def _name(self) -> int:
        self.count += 1
        return self.count

    def _any(self) -> int:
        return self.random.choice(list(self.replica.handles))

    def _target(self) -> int:
        """Return a tensor to write to: seldom one of a leaf's family."""
        handles = self.replica.handles
        released = [x for x, h in handles.items() if h.family.released]
        if released and self.random.random() < 0.3:
            return self.random.choice(released)
        free = [x for x, h in handles.items() if h.family.leaf is None or not self.replica.grad]
        return self.random.choice(free if free and self.random.random() < 0.97 else list(handles))

    def _number(self) -> float:
        return self.random.choice((-1.25, -0.5, 0.25, 0.5, 0.75, 1.5))

    def _value(self, shape: tuple[int, ...], *, tensor: bool = False) -> float:
        """Return an operand that broadcasts to a shape; seldom one that does not."""
        handles = self.replica.handles
        fitting = [x for x, h in handles.items() if _fits(h.places.shape, shape)]
        if self.random.random() < 0.03:
            return self._any()
        if fitting and (tensor or self.random.random() < 0.85):
            return self.random.choice(fitting)
        return self._number()

    def _places(self, n: int) -> list[int]:
        return [self.random.randint(-n, n - 1) for _ in range(self.random.randint(1, 3))]

    def _basic(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        key: list[Any] = [self._range(n) for n in shape[: self.random.randint(1, max(len(shape), 1))]]
        if self.random.random() < 0.15 or not key:
            key.insert(self.random.choice((0, len(key))) if len(key) == len(shape) else len(key), Ellipsis)
        if self.random.random() < 0.15:
            key.insert(self.random.randint(0, len(key)), None)
        return tuple(key)

    def _range(self, n: int) -> Any:
        start = self.random.randint(0, max(n - 1, 0))
        return self.random.choice(
            (
                min(start, n - 1) if n else slice(None),
                slice(start, None),
                slice(None, max(n - start, 1)),
                slice(None),
                slice(start % 2, None, 2),
            )
        )

    def _advanced(self, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
        """Return a key of a mask, or of integers for the first dims."""
        if not shape or 0 in shape:
            return None
        form = self.random.choice(LISTS)
        if self.random.random() < 0.4:
            over = shape[: self.random.randint(1, len(shape))]
            return (("tensor" if form == "list" else form, self._mask(over)),)
        if len(shape) > 1 and self.random.random() < 0.4:
            lists = self._lists(shape)
            return tuple((form, numbers) for numbers in lists)
        key: tuple[Any, ...] = ((form, tuple(self._places(shape[0]))),)
        return (*key, self._range(shape[1])) if len(shape) > 1 and self.random.random() < 0.3 else key

    def _lists(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        count = self.random.randint(1, 3)
        return tuple(tuple(self.random.randint(0, n - 1) for _ in range(count)) for n in shape)

    def _mask(self, shape: tuple[int, ...]) -> Any:
        flat = [self.random.random() < 0.5 for _ in range(int(np.prod(shape)))]
        return _nested(np.array(flat).reshape(shape).tolist())

    def _shape(self, x: int) -> tuple[int, ...]:
        return self.replica.handles[x].places.shape

    def _part_of(self, x: int) -> tuple[Any, tuple[int, ...]]:
        """Return a key of a tensor and the shape of what it takes."""
        shape = self._shape(x)
        key = self._advanced(shape) if self.random.random() < 0.35 else None
        key = self._basic(shape) if key is None else key
        return key, np.empty(shape)[plain_key(key)].shape

    # Steps, without their kind.

    def _leaf(self) -> Any:
        if self.roots == MOST_MEMORIES:
            return None
        self.roots += 1
        shape = self.random.choice(SHAPES_AT_FIRST)
        numbers = [self.random.randint(30, 150) / 100 * self.random.choice((-1, 1)) for _ in range(int(np.prod(shape)))]
        return self._name(), np.array(numbers).reshape(shape).tolist()

    _buffer = _leaf

    def _view(self) -> Step | None:
        x = self._any()
        shape = self._shape(x)
        if len(shape) > 2 or len(self.replica.handles) >= MOST_TENSORS:
            return None
        ones = [axis for axis, n in enumerate(shape) if n == 1]
        ways: dict[str, Any] = {
            "index": self._basic(shape),
            "row": self.random.randint(0, shape[0] - 1) if shape and shape[0] else None,
            "T": () if len(shape) == 2 else None,
            "transpose": (0, 1) if len(shape) == 2 else None,
            "unsqueeze": (self.random.randint(0, len(shape)),),
            "squeeze": (self.random.choice(ones),) if ones else None,
            "from": (self.random.randint(0, shape[0]),) if shape else None,
            "expand": (2, *shape) if 2 * int(np.prod(shape)) <= MOST_ELEMENTS else None,
        }
        possible = [how for how, args in ways.items() if args is not None]
        how = self.random.choices(
            possible, [3 if how == "index" else 0.5 if how == "expand" else 1 for how in possible]
        )[0]
        return self._name(), x, how, ways[how]

    def _reshape(self) -> Step | None:
        x = self._any()
        size = int(np.prod(self._shape(x)))
        if size == 0 or len(self.replica.handles) >= MOST_TENSORS:
            return None
        shapes = [(size,), *((n, size // n) for n in (1, 2, 3) if size % n == 0)]
        return self._name(), x, self.random.choice(shapes)

    def _apply(self) -> Step | None:
        if len(self.replica.handles) >= MOST_TENSORS:
            return None
        a, op = (
            self._any(),
            self.random.choice((*UNARY, "add", "mul", "mul", "maximum", "sum", "@", "+", "-", "*", "*")),
        )
        if op in UNARY or op == "sum":
            return self._name(), op, (a,)
        if op == "@":
            return self._product()
        b = self._value_like(a, tensor=op == "maximum")
        return None if b is None else (self._name(), op, (a, b))

    def _value_like(self, a: int, *, tensor: bool) -> float | None:
        """Return an operand that broadcasts with another."""
        if not tensor and self.random.random() < 0.15:
            return self._number()
        shape = self._shape(a)
        fitting = [x for x in self.replica.handles if _size_together(shape, self._shape(x)) <= MOST_ELEMENTS]
        return self.random.choice(fitting) if fitting else None

    def _product(self) -> Step | None:
        shapes = {x: self._shape(x) for x in self.replica.handles if len(self._shape(x)) == 2}
        pairs = [(a, b) for a in shapes for b in shapes if shapes[a][1] == shapes[b][0] > 0]
        return (self._name(), "@", self.random.choice(pairs)) if pairs else None

    def _where(self) -> Step | None:
        a = self._any()
        b = self._value(self._shape(a))
        if (
            0 in self._shape(a)
            or not _fits(self.replica.shape(b), self._shape(a))
            or len(self.replica.handles) >= MOST_TENSORS
        ):
            return None
        return self._name(), self._mask(self._shape(a)), a, b

    def _part(self) -> Step | None:
        x = self._any()
        key = self._advanced(self._shape(x))
        return None if key is None or len(self.replica.handles) >= MOST_TENSORS else (self._name(), x, key)

    def _join(self) -> Step | None:
        """Join views rather than others: of a base that was written, where there is one."""
        views = [x for x, h in self.replica.handles.items() if h.above is not None and h.places.size]
        a = self.random.choice(views) if views and self.random.random() < 0.7 else self._any()
        alike = [x for x in self.replica.handles if self._shape(x) == self._shape(a)]
        count = self.random.randint(1, 2)
        if len(self.replica.handles) >= MOST_TENSORS or int(np.prod(self._shape(a))) * count > MOST_ELEMENTS:
            return None
        how = self.random.choice(("cat", "stack")) if self._shape(a) else "stack"
        return self._name(), how, tuple([a, *self.random.choices(alike, k=count)][:count])

    def _collect(self) -> Step:
        return ()

    def _release(self) -> Step | None:
        handles = self.replica.handles
        leaves = [x for x, h in handles.items() if h.family.leaf is h and h.above is None]
        seen = [x for x in leaves if sum(h.family is handles[x].family for h in handles.values()) > 1]
        return (self.random.choice(seen or leaves),) if len(leaves) > 1 else None

    def _detach(self) -> Step:
        return (
            self._name(),
            self._any(),
            self.random.choice(
                (
                    "{}.detach()",
                    "{}.data",
                    "tape.from_numpy({}.detach().numpy())",
                    "tape.from_numpy({}.detach().numpy().view(np.recarray))",
                )
            ),
        )

    def _require(self) -> Step | None:
        free = [
            x
            for x, h in self.replica.handles.items()
            if not h.wanted and h.family.leaf is None and not h.family.wanted and not h.family.released
        ]
        free = [x for x in free if not repeats(self.replica.handles[x].places)]
        return (self.random.choice(free),) if free else None

    def _stands_at(self, places: Array, x: int, v: float) -> bool:
        """Whether an operand is what stands at these places: nobody needs to tell that it was written there again."""
        own = self.replica.handles[v] if type(v) is int else None
        return own is not None and own.family is self.replica.handles[x].family and np.array_equal(own.places, places)

    def _method(self) -> Step | None:
        x, op = self._target(), self.random.choice(METHODS)
        operands: tuple[float, ...] = ()
        if op in ("add", "mul"):
            operands = (self._value(self._shape(x)),)
        elif op == "copy":
            operands = (self._value(self._shape(x), tensor=True),)
            if self._stands_at(self.replica.handles[x].places, x, operands[0]):
                return None
        elif op == "fill":
            operands = (self._number(),)
        return x, op, operands

    def _operator(self) -> Step:
        x = self._target()
        return x, self.random.choice(list(SIGNS)), self._value(self._shape(x))

    def _assign(self) -> Step | None:
        x = self._target()
        key, shape = self._part_of(x)
        v = self._value(shape)
        return None if self._stands_at(self.replica.handles[x].places[plain_key(key)], x, v) else (x, key, v)

    def _assign_with(self) -> Step:
        x = self._target()
        key, shape = self._part_of(x)
        return x, key, self.random.choice(list(SIGNS)), self._value(shape)

    def _masked_fill(self) -> Step | None:
        x = self._target()
        if 0 in self._shape(x):
            return None
        numbers = [y for y, h in self.replica.handles.items() if h.places.shape == ()]
        v = self.random.choice(numbers) if numbers and self.random.random() < 0.7 else self._number()
        return x, self._mask(self._shape(x)), v

    def _index_put(self) -> Step | None:
        x = self._target()
        shape = self._shape(x)
        if not shape or 0 in shape:
            return None
        lists = self._lists(shape[: self.random.randint(1, len(shape))])
        part = np.empty(shape)[tuple(map(np.array, lists))].shape
        v = self._value(part, tensor=True)
        return (x, lists, v, self.random.random() < 0.4) if type(v) is int else None

    def _grad_mode(self) -> Step:
        return (not self.replica.grad,)

    def _backward(self) -> Step:
        return (self._any(),)

    def _retain(self) -> Step | None:
        return self._seen()

    def _observe(self) -> Step | None:
        seen = self._seen()
        return None if seen is None else (self._any(), *seen)

    def _seen(self) -> Step | None:
        """Return a base tensor: a view's gradient depends on who else reads its memory through which tensor."""
        bases = [x for x, h in self.replica.handles.items() if h.above is None and h.family.leaf is None]
        return (self.random.choice(bases),) if bases else None

    def _look(self) -> Step:
        return (self._any(),)

    def _forget(self) -> Step | None:
        free = [x for x, h in self.replica.handles.items() if h.family.leaf is not h]
        return (self.random.choice(free),) if len(free) > 2 else None


def _fits(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def _size_together(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    try:
        return int(np.prod(np.broadcast_shapes(a, b)))
    except ValueError:
        return float("inf")


def _nested(values: Any) -> Any:
    return tuple(map(_nested, values)) if isinstance(values, list) else values


# --- many of them -----------------------------------------------------------------------------------------------


def author_of(seed: int) -> Iterator[tuple[Step, Replica, str | None]]:
    random = Random(seed)  # noqa: S311 (no secret)
    return Author(random).write(random.randint(4, 18))


def random_program(seed: int) -> Program:
    return [step for step, _, _ in author_of(seed)]


def report(seed: int, complaint: str) -> str:
    """Return the smallest program that fails as the one of this seed does."""
    small = shrunk(random_program(seed), lambda program: gist(disagreement(program)) == gist(complaint))
    return f"seed {seed}: {disagreement(small)}\n\n{text_of(small)}"


def counted_from(about: str | None, arguments: list[str] | None) -> tuple[int, int]:
    """Return how many programs are asked for on the command line, and the seed of the first."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the others count up from it")
    given = parser.parse_args(arguments)
    return given.count, given.seed


def main(arguments: list[str] | None = None) -> int:
    """Run as many programs as asked; print what they did, and the first on which the two disagree."""
    count, first = counted_from(main.__doc__, arguments)
    done: Counter[str] = Counter()

    def counted(seed: int) -> Iterator[tuple[Step, Replica, str | None]]:
        for row in author_of(seed):
            done[row[0][0] if row[2] is None else "refused"] += 1
            yield row

    for seed in range(first, first + count):
        if (complaint := compared(counted(seed))) is not None:
            sys.stdout.write(report(seed, complaint) + "\n")
            return 1
        if (seed + 1 - first) % 1000 == 0:
            sys.stderr.write(f"{seed + 1 - first} programs\n")
    sys.stdout.write(
        f"{count} programs from seed {first} on: all agree; {done.total()} steps:\n"
        + ", ".join(f"{count} {kind}" for kind, count in done.most_common())
        + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
