"""The recorder of a function of one example: its operations as a program that can be run on all examples at once.

It keeps little, since recording costs time in every call: an operation, its operands by number, its result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from numpy.lib.array_utils import byte_bounds

from kernels.foundation.specs import Spec
from kernels.foundation.tables import Recent
from kernels.kinds.views import View
from kernels.programs.program import ProgramNode, Recipe
from tape.engine.double_backward import Derivation
from tape.recording import record
from tape.recording.indexed_calls import are_within
from tape.recording.views import clone
from tape.tensors import modes, view_families
from tape.tensors.pytrees import leaves
from tape.tensors.recorder import Recorder, caller
from tape.tensors.tensor import Tensor, as_array, constant_tensor
from tape.tensors.view_families import base_of, is_view
from tape.transforms.points import Tensors

_new: Any = tuple.__new__
_NODES: Recent[Spec, ProgramNode] = Recent()  # nodes with memory of their own, by the spec of an example's tensor


Nodes = tuple[int, ...]


class MappedOperation(NamedTuple):
    """An operation: its operands as words, and the spec of one example's result.

    ``graded``: gradients were recorded when it ran.
    """

    op: Any
    operands: Sequence[int]
    params: tuple[Any, ...]
    result: int
    spec: Spec
    graded: bool


@dataclass(slots=True)
class Derivative:
    """Derivatives of outputs by inputs; with ``rows``, weights and results have an axis of rows."""

    derivation: Derivation
    outputs: Nodes
    inputs: Nodes
    weights: Nodes
    rows: int
    results: list[int | None]
    graded: bool

    @property
    def operands(self) -> Nodes:
        """All nodes that it depends on."""
        return (*self.outputs, *self.inputs, *self.weights)


@dataclass(slots=True)
class Called:
    """A call with a batching rule of its own: ``mapped(size, args, batched)`` returns the results for all examples."""

    mapped: Callable[..., Any]
    operands: Sequence[int]
    results: list[int | None]
    graded: bool


class Start:
    """The values that a tensor from before the recording had at its first use, to be put back."""

    def __init__(self, x: Tensor, node: int) -> None:
        self.tensor, self.node = ref(x), node
        self.value, self.slot, self.form = as_array(x), x._slot, x._form
        self.held: Tensor | None = None

    def as_tensor(self) -> Tensor:
        """Return a tensor of the kept values; the tensor itself if its memory was not written."""
        x = constant_tensor(self.value)
        x._slot, x._form = self.slot, self.form
        return x

    def restore(self) -> None:
        """Put it back."""
        x = self.tensor()
        if x is not None:
            if self.held is not None:
                self.value[...] = as_array(self.held)
            view_families.invalidate_views(x)
            x._value = self.value
            view_families.move(x, self.slot, self.form)


ExampleStep = MappedOperation | Derivative | Called


def _check_indices(low: int, high: int, size: int, args: Tensors, batched: Sequence[bool]) -> tuple[()]:
    del size, batched
    if args[0].spec.size and not are_within(args[0], low, high):
        raise IndexError(f"vmap: an index of some example is out of bounds, {low} to {high - 1}: {args[0].tolist()}")
    return ()


def _draw_anew(draw: Any, size: int, args: Tensors, batched: Sequence[bool]) -> tuple[Tensor]:
    del args, batched
    all_draws = draw.repeated(size)
    x = constant_tensor(all_draws.array())
    record.note_drawn(x, all_draws)
    return (x,)


class Example(Recorder):
    """Records what depends on the arguments, and what may be differentiated or mapped further out.

    What is the same for all examples, the recorder around this one takes part in as well: its values may leave for
    Python. What depends on nothing is passed to it alone. Nodes have the specs of one example.
    """

    maps = True

    def __init__(self, outer: Any, randomness: str = "error") -> None:
        self.steps: list[ExampleStep] = []
        super().__init__(Recipe([], self.steps, [], [], set()), {}, [])  # type: ignore[arg-type]
        self.outer, self.randomness = outer, randomness
        self.begun = len(outer.held) if hasattr(outer, "let_go") else 0
        self.states: dict[Any, Any] = {}  # what the generators that were drawn from go back to
        self.numbers: list[Any] = []
        """Operands that are no tensors; steps have ``~k`` for ``numbers[k]``."""
        self.derivatives: list[Derivative] = []
        self.differing: set[int] = set()  # nodes that differ between examples
        self.tensors: dict[int, Tensor] = {}
        self.constants: dict[int, Start] = {}
        self.starts: dict[int, Start] = {}
        self.replaced: list[Start] = []
        self.writes = self.late = False
        """Whether the function writes in place; whether a value that was used before came to differ."""

    def argument(self, x: Tensor) -> None:
        """Make a tensor an argument."""
        node = self._result(x)
        self.recipe.arguments.append(node)
        self.differing.add(node)

    def _result(self, x: Tensor) -> int:
        """Return a new node of memory of its own."""
        spec = x._form.spec
        return self._add(x, _NODES.get(spec) or _NODES.setdefault(spec, ProgramNode(spec)))

    def _depends(self, x: Any) -> bool:
        """Whether an operand is recorded: what depends on arguments, also of recorders around, or requires grad."""
        if not isinstance(x, Tensor):
            return False
        known = x._slot is not None or id(x) in self.nodes or id(base_of(x)) in self.nodes
        return known or (hasattr(self.outer, "_depends") and self.outer._depends(x))

    def number(self, x: Tensor) -> int:
        """Return the node of a tensor; a new one is a constant, or a view that no recorded operation made."""
        node = self.nodes.get(id(x))
        if node is None and is_view(x):
            above, view = self.number(x._base), ProgramNode(x._form.spec)
            self._place_view(view, above, x._base, x)
            view.family, node = above, self._add(x, view)
            if above in self.differing:
                self.differing.add(node)
            self.tensors[node] = x
        elif node is None:
            node = self._result(x)
            self.tensors[node], self.constants[node] = x, Start(x, node)
        return node

    def _differ(self, tensors: Iterable[Any]) -> bool:
        return not self.differing.isdisjoint([self.number(x) for x in tensors if isinstance(x, Tensor)])

    def _operands(self, operands: Iterable[Any]) -> list[int]:
        return [self.number(x) if isinstance(x, Tensor) else self._word(x) for x in operands]

    def _word(self, value: Any) -> int:
        self.numbers.append(value)
        return -len(self.numbers)

    def notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation if an operand depends on the arguments, or requires grad.

        What is detached is recorded, too: it shares its memory, which may come to depend on the arguments.
        """
        known, nodes, differing = self.nodes, self.recipe.nodes, self.differing
        mine = differs = False
        words: list[int] = []
        for x in operands:
            node = known.get(id(x))
            if node is None:
                if not isinstance(x, Tensor):
                    words.append(self._word(x))
                    continue
                detaches = isinstance(op, View) and not is_view(result)
                if not (detaches or any(map(self._depends, operands))):
                    mine = False
                    break
                node = self.number(x)
            mine = True
            differs = differs or node in differing
            words.append(node)
        if not differs and self.outer is not None:
            self.outer.notify(op, operands, result, params)
        if not mine:
            return
        known[id(result)] = number = len(nodes)
        self.held.append(result)  # its id stays its own
        if differs:
            differing.add(number)
        spec = result._form.spec
        if isinstance(op, View):
            base = self.recipe.base_of(words[0])
            nodes.append(
                ProgramNode(spec, base, 0, 0, False, base if is_view(result) else None)
            )  # by place: in less time
        else:
            nodes.append(_NODES.get(spec) or _NODES.setdefault(spec, ProgramNode(spec)))
        self.steps.append(_new(MappedOperation, (op, words, params, number, spec, modes.is_grad_enabled())))

    def note_unrecorded(self, tensor: Tensor | None, what: str) -> None:
        """Be notified that a tensor is used for what is not recorded."""
        if tensor is not None:
            self.note_escape(tensor)
        elif self.states and self.randomness == "different":
            raise NotImplementedError(f"vmap: {what} cannot differ from example to example")
        elif self.outer is not None:
            self.outer.note_unrecorded(tensor, what)

    def note_drawing(self, generator: Any) -> None:
        """Keep the state of a generator that is about to be drawn from."""
        self.states.setdefault(generator, generator.snapshot())

    def note_drawn(self, tensor: Tensor, draw: Any) -> None:
        """Be notified of random numbers: one set of them for all examples, or one for each."""
        if self.randomness == "different":
            node = self._result(tensor)
            self.differing.add(node)
            self.steps.append(Called(functools.partial(_draw_anew, draw), (), [node], graded=False))
        elif self.outer is not None:
            self.outer.note_drawn(tensor, draw)

    def is_argument(self, x: Tensor) -> bool:
        """Return whether a tensor is an argument, here or further out."""
        return self.nodes.get(id(x)) in self.recipe.arguments or (self.outer is not None and self.outer.is_argument(x))

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Keep the values of a tensor from before the recording, which is about to be written."""
        depends = self._depends(x) or self._depends(value)
        if self.outer is not None and not (depends and self._differ((x, value))):
            self.outer.overwrites(x, value)
        if not depends:
            return
        base = base_of(x)
        at = self.recipe.base_of(self.number(base))
        if at in self.recipe.arguments:
            self.recipe.written.add(at)
        if at not in self.constants or at in self.starts:
            return
        low, high = byte_bounds(self.constants[at].value)
        if high - low != self.constants[at].value.nbytes:
            raise NotImplementedError(
                "vmap: writing into a part of a larger NumPy array from outside of the mapped function; copy it inside "
                "first"
            )
        with modes.under(modes.current()._replace(recorder=self.outer)):
            self.starts[at] = start = self.constants[at]
            start.held = clone(start.as_tensor())  # of another tensor: who holds this one may be asked

    def wrote(self, op: Any, x: Tensor, value: Any, params: tuple[Any, ...]) -> None:
        """Record a write."""
        indices = [index for index in params if isinstance(index, Tensor)]
        depends = any(map(self._depends, (x, value, *indices)))
        words = self._operands((x, value, *indices)) if depends else []
        differs = not self.differing.isdisjoint(words)
        if self.outer is not None and not differs:
            self.outer.wrote(op, x, value, params)
        if not depends:
            return
        part, self.writes = words[0], True
        self.tensors.pop(part, None)
        if differs and part not in self.differing:
            self.differing = self._families({part})
            self.late = True
        self.steps.append(
            MappedOperation(op, words, () if indices else params, part, x._form.spec, modes.is_grad_enabled())
        )

    def _families(self, nodes: set[int]) -> set[int]:
        """Return the nodes that differ, and all of the same memory as some of these."""
        base_of = self.recipe.base_of
        bases = {base_of(node) for node in self.differing | nodes}
        return {node for node in range(len(self.recipe.nodes)) if base_of(node) in bases}

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Take in that a tensor has become what another is."""
        before = self.constants.get(self.nodes.get(id(x), -1))
        node = self.nodes.get(id(value))
        if self.outer is not None and node not in self.differing:
            self.outer.taken(x, value)
        super().taken(x, value)
        if before is not None and node is not None:
            self.tensors[before.node] = before.as_tensor()
            before.node = node
            self.replaced.append(before)

    def released(self, x: Tensor, value: Tensor) -> None:
        """Identify what was a view with the copy that it is now."""
        if self.outer is not None and self.nodes.get(id(value)) not in self.differing:
            self.outer.released(x, value)
        super().released(x, value)

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Raise if a tensor is to get the memory of a recorded one."""
        if self._depends(x) or self._depends(other):
            raise NotImplementedError("vmap: .data of a tensor is set; write x.copy_(...)")
        if self.outer is not None:
            self.outer.replaces(x, other)

    def follows_indices(self, indices: Tensors, *, adds: bool) -> bool:
        """Whether index tensors differ between examples, or the recorder around this one follows them."""
        if any(self._differ((index,)) for index in indices if self._depends(index)):
            return True
        return self.outer is not None and self.outer.follows_indices(indices, adds=adds)

    def checks_indices(self, index: Tensor, low: int, high: int) -> bool:
        """Whether indices are within bounds; that those of all examples are is checked when the program is run."""
        node = self.number(index)
        with modes.under(modes.current()._replace(recorder=None if node in self.differing else self.outer)):
            within = are_within(index, low, high)
        self.steps.append(Called(functools.partial(_check_indices, low, high), (node,), [], graded=False))
        return within

    def note_escape(self, tensor: Tensor) -> None:
        """Keep the line where a value that differs between examples becomes a Python number or array."""
        if self.nodes.get(id(tensor)) in self.differing:
            self.escapes.append(caller())
        elif self.outer is not None:
            self.outer.note_escape(tensor)

    def derived(self, derivation: Derivation, outputs: Tensors, inputs: Tensors, weights: Tensors, rows: int) -> Any:
        """Compute derivatives for this example, and record to compute them for all."""
        depends = any(map(self._depends, (*outputs, *inputs, *weights)))
        groups = (outputs, inputs, weights) if depends else ((), (), ())
        to, by, along = (tuple(map(self.number, group)) for group in groups)
        differs = not self.differing.isdisjoint((*to, *by, *along))
        derive, before = None if differs else getattr(self.outer, "derived", None), modes.current()
        try:
            modes.set_mode(before._replace(recorder=None if differs else self.outer))
            if derive is not None:
                derivatives = derive(derivation, outputs, inputs, weights, rows)
            else:
                derivatives = derivation.run(outputs, inputs, weights, rows, again=depends)
        finally:
            modes.restore(before)
        if depends:
            results = [None if x is None else self._result(x) for x in derivatives]
            if differs:
                self.differing.update(node for node in results if node is not None)
            self.late = self.late or not self.differing.issuperset(by)
            self.derivatives.append(Derivative(derivation, to, by, along, rows, results, modes.is_grad_enabled()))
            self.steps.append(self.derivatives[-1])
        return derivatives

    def called(self, run: Callable[..., Any], mapped: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Make a call for this example, and record to make it for all."""
        operands = self._operands(args) if any(map(self._depends, args)) else []
        differs = not self.differing.isdisjoint(operands)
        with modes.under(modes.current()._replace(recorder=None if differs else self.outer)):
            outcome = run(args, {})
        if operands:
            results = [self._result(x) if isinstance(x, Tensor) else None for x in leaves(outcome)]
            if differs:
                self.differing.update(node for node in results if node is not None)
            self.steps.append(Called(mapped, operands, results, modes.is_grad_enabled()))
        return outcome

    def forget(self) -> None:
        """Drop all tensors but those from before the recording that were not written."""
        self.held.clear()
        self.constants.clear()
        self.nodes.clear()
        if self.starts:
            self.tensors = {node: x for node, x in self.tensors.items() if self.recipe.base_of(node) not in self.starts}
        if hasattr(self.outer, "let_go"):
            self.outer.let_go(self.begun)

    def batched(self) -> set[int]:
        """Return the nodes whose values differ between examples."""
        size = -1 if self.late else len(self.differing)
        while len(self.differing) > size:  # a write makes what was read before differ, too
            size = len(self.differing)
            for step in self.steps:
                apart = not self.differing.isdisjoint(step.operands)
                if isinstance(step, MappedOperation):
                    self.differing.update((step.result,) if apart else ())
                    continue
                if isinstance(step, Derivative) and not self.differing.isdisjoint((*step.outputs, *step.inputs)):
                    self.differing.update(step.inputs)  # a derivative for each example
                if apart:
                    self.differing.update(node for node in step.results if node is not None)
            self.differing = self._families(set())
        return self.differing
