"""Tasks: the calls that a program is made of, on places in its memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, Strides, nest
from kernels.foundation.data_classes import dataclass


@dataclass(slots=True)
class Place:
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
class Call:
    """A kernel on places, in the order of its pointers; ``accumulate`` adds to the first."""

    kernel: Any
    places: tuple[Place, ...]
    accumulate: bool = False


@dataclass(slots=True)
class UfuncCall:
    """An inner loop of NumPy's over a nest of strides."""

    loop: numpy_loops.InnerLoop
    shape: Strides
    strides: tuple[Strides, ...]
    places: tuple[Place, ...]


@dataclass(slots=True)
class Fill:
    """Set the elements of a place to one number."""

    place: Place
    elements: int
    dtype: np.dtype[Any]
    value: float


@dataclass(slots=True)
class Comparison:
    """Stop the program where so many bytes of two places differ."""

    size: int
    places: tuple[Place, Place]


@dataclass(slots=True)
class Steering:
    """A row that steers a loop: which, and its number or limit; ``saved`` are the nodes that it keeps or restores."""

    kind: int
    places: tuple[Place, ...]
    number: int = 0
    saved: list[int] = field(default_factory=list)


@dataclass(slots=True)
class PythonCall:
    """Python in the middle of a program: ``run`` gets the values, or the gradients, of these nodes as arrays.

    And what calls of this run of the program have kept, by step: :class:`kernels.kinds.custom.Callback` does.
    """

    run: Callable[[list[np.ndarray[Any, Any]], dict[int, list[Any]]], None]
    nodes: tuple[tuple[int, bool], ...]
    """The nodes, each with whether it is its gradient that is passed."""
    places: tuple[Place, ...]
    """Where they stand: of a gradient, the base."""


Task = Call | UfuncCall | Fill | Comparison | Steering | PythonCall


class Tasks:
    """Tasks in order, as columns: what each calls, whether it adds to its first place, and its places.

    ``calls`` has what is called, each once, with how many places it takes: kernels, and a task for each kind of the
    others. A place is a node, or ``~node`` for the gradient buffer of a base; ``offsets`` has those that are not 0, by
    place.
    """

    __slots__ = ("_numbers", "adds", "call_numbers", "calls", "counts", "offsets", "places")

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.counts: list[int] = []
        self.call_numbers, self.adds, self.places = array("q"), array("b"), array("q")
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
        adds, key = False, None
        if isinstance(task, Call):
            places, adds = task.places, task.accumulate
            number = self.kernel(task.kernel, len(places))
        elif isinstance(task, Fill):
            places, key = (task.place,), (task.elements, task.dtype.num, repr(task.value))
            number = self.number(key, task, 1)
        elif isinstance(task, Comparison):
            places = task.places
            number = self.number((Comparison, task.size), task, len(places))
        else:
            places = task.places
            key = (task.loop, task.shape, task.strides) if isinstance(task, UfuncCall) else (id(task),)
            number = self.number(key, task, len(places))
        self.call_numbers.append(number)
        self.adds.append(adds)
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


def nest_layout(call: UfuncCall) -> np.ndarray[Any, Any]:
    """Return the layout words of a nest: rows, inner extent, outer axes, extents, strides innermost first."""
    if 0 in call.shape:
        return np.array([0, 0, 0] + [0] * len(call.strides), np.int64)
    extents, strides = nest(call.shape, list(call.strides))
    if not extents:
        return np.array([1, 1, 0] + [0] * len(call.strides), np.int64)
    *outer, inner = extents
    words = [math.prod(outer), inner, len(outer), *reversed(outer)]
    for operand_strides in strides:
        words += reversed(operand_strides)
    return np.array(words, np.int64)
