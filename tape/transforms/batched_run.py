"""Recorded functions run on tensors: programs step by step; of vmap one example recorded, then run for all at once.

The recorder keeps little, since recording costs time in every call: an operation, its operands by number, its result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from numpy.lib.array_utils import byte_bounds

from kernels.foundation.specs import Spec
from kernels.foundation.tables import Recent
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.views import Copy, View
from kernels.operations import OPS
from kernels.programs.program import ProgramNode, Recipe
from kernels.programs.recording import index_of
from tape.engine import kinds
from tape.engine.double_backward import Derivation, derived
from tape.engine.kind_rules import Operand, Planned, apart, whole
from tape.engine.kinds import run_batched
from tape.operations import indexing
from tape.recording import record, views
from tape.recording.indexed_calls import are_within
from tape.recording.views import clone
from tape.tensors import grad_modes, modes, view_families
from tape.tensors.pytrees import leaves
from tape.tensors.recorder import Recorder, caller
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, root
from tape.tensors.view_families import base_of, is_view, mark_aliased, owns_memory_alone
from tape.transforms.points import Tensors, needs_graph, settle

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
        super().__init__(Recipe([], self.steps, [], [], set()))  # type: ignore[arg-type]
        self.nodes: dict[int, int] = {}  # of tensors that are held, by their ids
        self.outer, self.randomness = outer, randomness
        self.begun = outer.holding() if hasattr(outer, "let_go") else None
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

    def node_of(self, x: Tensor) -> int | None:
        """Return the node of a tensor; None if it is not known."""
        return self.nodes.get(id(x))

    def know(self, x: Tensor, node: int) -> None:
        """Let a tensor be known by a node, and hold it: its id stays its own."""
        self.nodes[id(x)] = node
        self.held.append(x)

    def unknow(self, x: Tensor) -> None:
        """Know a tensor no longer."""
        self.nodes.pop(id(x), None)

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


# A recorded program run on tensors, each step by the operation that it is; and vmap's, on all examples at once.

_AS_STRIDED: Any = OPS["as_strided"]


class ProgramRun:
    """One run of a program: the tensor of each node, with the batch in front if the node is ``batched``.

    ``size`` is how many examples the batch has. Operands of steps are words: a node, or ``~k`` for ``numbers[k]``.
    """

    unreachable = ""  # what an error says of a part of memory that cannot be told by its pattern

    def __init__(
        self,
        recipe: Recipe,
        numbers: Sequence[Any],
        values: dict[int, Tensor],
        batched: AbstractSet[int] = frozenset(),
        size: int = 0,
    ) -> None:
        self.recipe, self.nodes, self.numbers = recipe, recipe.nodes, numbers
        self.values, self.batched, self.size = values, batched, size

    def operand(self, word: int) -> Operand:
        """Return an operand of a step."""
        if word < 0:
            return Operand(self.numbers[~word])
        x = self.values.get(word)
        return Operand(self.tensor(word) if x is None else x, word in self.batched, self.nodes[word].spec)

    def step(self, step: Planned, operands: Sequence[int], result: int, *, graded: bool) -> None:
        """Run a step; its gradient is recorded if that was ``graded`` when the program was recorded."""
        if not graded and modes.is_grad_enabled():
            with grad_modes.no_grad():
                self.step(step, operands, result, graded=True)
        elif isinstance(step.op, View) and self.nodes[result].family is None:
            self.keep(result, self.tensor(operands[0]).detach())
        else:
            value = self.compute(step, operands, result)
            if value is not None:
                self.keep(result, value)

    def compute(self, step: Planned, operands: Sequence[int], result: int) -> Any:
        """Return the result of a step; None for a write or a guard."""
        if isinstance(step.op, View) and step.op.indexes and not step.params:  # by an index
            shown, part = self.nodes[operands[0]], self.nodes[result]
            key = index_of(shown.spec, part.spec, part.offset - shown.offset)
            return indexing.index(self.tensor(operands[0]), key)
        return run_batched(step, list(map(self.operand, operands)), self.nodes[result].spec)

    def keep(self, node: int, x: Tensor) -> None:
        """Keep the tensor of a node."""
        self.values[node] = x

    def tensor(self, node: int) -> Tensor:
        """Return the tensor of a node; one that no step made is found at its first use."""
        x = self.values.get(node)
        if x is None:
            self.first(node)
            x = self.values[node]
        return x

    def first(self, node: int) -> None:
        """Keep the tensor of a node that no step made: a view of another, by its pattern in memory."""
        self.values[node] = self.part(node)

    def part(self, node: int) -> Tensor:
        """Return a view that no step made, as a part of its family or of constant memory."""
        entry = self.nodes[node]
        above = entry.base if entry.family is None else entry.family
        assert above is not None
        part, whole, x = entry.spec, self.nodes[above].spec, self.tensor(above)
        if entry.family is None:
            x = x.detach()
        item = whole.dtype.itemsize if part.dtype == whole.dtype else 0
        order = sorted(range(len(whole.shape)), key=lambda axis: (-whole.strides[axis], axis))
        try:
            strides = tuple(stride // item for stride in part.strides)
            offset = (entry.offset - self.nodes[above].offset) // item
            if node not in self.batched:
                return record.view(_AS_STRIDED, views.permute(x, tuple(order)), (part.shape, strides, offset))
            x = views.permute(x, (0, *(axis + 1 for axis in order)))
            return record.view(_AS_STRIDED, x, ((self.size, *part.shape), (whole.size, *strides), offset))
        except (ValueError, ZeroDivisionError):
            raise NotImplementedError(self.unreachable) from None


class Batch(ProgramRun):
    """One run of an example's program for all examples."""

    unreachable = (
        "vmap: a part of a tensor is written in place, whose memory has gaps or another order than one example's; "
        "copy it first with contiguous() or clone()"
    )

    def __init__(self, example: Example, batched: set[int], arguments: Tensors, size: int) -> None:
        values = dict(zip(example.recipe.arguments, arguments, strict=True))
        super().__init__(example.recipe, example.numbers, values, batched, size)
        self.example = example
        self.copied = {node: self.values[node] for node in self.recipe.written}
        if example.writes:  # to parts that are told by where they stand in one example's memory
            self.values = {node: views.contiguous(x) for node, x in self.values.items()}
        self.sources = {node for step in example.derivatives for node in step.inputs}
        self.rooted: list[Tensor] = []
        known = example.tensors.keys()
        self.before = {n for step in example.derivatives if not known.isdisjoint(step.outputs) for n in step.inputs}
        """Inputs of what was computed before the recording, and is differentiated in it."""

    def run(self) -> None:
        """Run the program."""
        self._steps(self.example.steps, modes.is_grad_enabled())
        for node, x in self.copied.items():
            if self.values[node] is not x:
                x.copy_(self.values[node])
        settle(self.rooted)

    def result(self, node: int) -> Tensor:
        """Return a result for the caller: without history if that leads to inputs of transforms within alone."""
        x = self.tensor(node)
        if not self.rooted or x._slot is None or not modes.is_grad_enabled():
            return x
        return x if needs_graph([x], self.rooted) else x.detach()

    def _steps(self, steps: Sequence[ExampleStep], enabled: bool) -> None:
        """Run steps: elementwise ones on operands with as many dims behind the batch as one example's result has."""
        values, numbers, batched, run, plain = (self.values, self.numbers, self.batched, kinds.RUN, not self.sources)
        for step in steps:
            if type(step) is not MappedOperation or type(step[0]) is not Elementwise or (enabled and not step[5]):
                self._do(step, enabled)
                continue
            op, operands, params, result, spec, _ = step
            rank, aligned = 1 + len(spec.shape), []
            for o in operands:
                if o < 0:
                    aligned.append(numbers[~o])
                    continue
                x = values[o] if o in values else self.tensor(o)
                wide = len(x._form.spec.shape) == rank or o not in batched
                aligned.append(x if wide else apart(x, rank))
            y = run[op.name](*aligned, *params) if type(aligned[0]) is Tensor else kinds.run(op, aligned)
            if plain and len(y._form.spec.shape) == rank:
                values[result] = y
            else:
                self.keep(result, y)

    def _do(self, step: ExampleStep, enabled: bool) -> None:
        if isinstance(step, MappedOperation):
            self.step(step, step.operands, step.result, graded=step.graded)
        elif enabled and not step.graded:
            with grad_modes.no_grad():
                self._do(step, enabled=False)
        elif isinstance(step, Derivative):
            self._derive(step)
        else:
            operands = list(map(self.operand, step.operands))
            results = step.mapped(self.size, [g.value for g in operands], [g.batched for g in operands])
            for node, x in zip(step.results, results, strict=True):
                if node is not None:
                    self.keep(node, x)

    def compute(self, step: Planned, operands: Sequence[int], result: int) -> Any:
        """Run an operation on the batch: an index as Python calls it, a copy as clone, others by their kind."""
        op, spec = step.op, self.nodes[result].spec
        if isinstance(op, View) and op.indexes:
            node, key = operands[0], step.params[0]
            key = key if type(key) is tuple else (key,)
            return indexing.index(self.tensor(node), (slice(None), *key) if node in self.batched else key)
        values = [self.operand(word) for word in operands]
        if type(op) is Copy and values[0].value._form.spec.dtype is spec.dtype:
            return views.clone(values[0].value)
        try:
            return run_batched(step, values, spec)
        except ValueError:
            if not isinstance(op, View) or self.example.writes:
                raise
            values[0].value = views.clone(values[0].value)  # memory that this view is impossible of
            return run_batched(step, values, spec)

    def first(self, node: int) -> None:
        """Take a tensor from before the recording, or a part of it; a copy, if the function writes to it."""
        base = self.recipe.base_of(node)
        start = self.example.starts.get(base)
        if base == node or (start is None and base in self.example.tensors and base not in self.batched):
            x: Any = self.example.tensors[node] if start is None else views.clone(start.held)  # type: ignore[arg-type]
            # A leaf whose derivative is asked for was made for that: each example, and each run, has its own.
            asked = node in self.sources and type(x._slot) is AccumulateGrad
            done = asked and hasattr(x._slot, "is_transform_input_done") and node not in self.before
            separate = asked and (node in self.batched or done)
            self.keep(node, x.detach() if separate else x)
        else:
            super().first(node)

    def keep(self, node: int, x: Tensor) -> None:
        """Keep a node's tensor: batched if the node differs, requiring grad if derivatives are asked by it."""
        if node in self.batched and len(x._form.spec.shape) == len(self.nodes[node].spec.shape):
            x = whole(x, self.size)
        if node in self.sources and x._slot is None:
            x = root(mark_aliased(x)) if owns_memory_alone(x) else x.requires_grad_()
            self.rooted.append(x)
        self.values[node] = x

    def _derive(self, step: Derivative) -> None:
        """Compute derivatives for all examples by one sweep: each example depends on its own inputs alone."""
        rows, apart = step.rows, not self.batched.isdisjoint((*step.outputs, *step.inputs))
        if not apart and self.batched.isdisjoint(step.weights):
            sides = (step.outputs, step.inputs, step.weights)
            outputs, inputs, weights = (list(map(self.tensor, group)) for group in sides)
            derivatives = derived(step.derivation, outputs, inputs, weights, rows)
        elif apart:
            outputs, inputs = ([self._each(x, 0) for x in group] for group in (step.outputs, step.inputs))
            derivatives = derived(step.derivation, outputs, inputs, [self._each(x, rows) for x in step.weights], rows)
            derivatives = [x if x is None or not rows else _exchanged(x) for x in derivatives]
        else:  # the same function for all: so many more rows
            outputs, inputs = (list(map(self.tensor, group)) for group in (step.outputs, step.inputs))
            weights = [self._each(x, 0) for x in step.weights]
            if rows:  # of each example's run together
                weights = [views.reshape(x, (-1, *x.spec.shape[2:])) for x in weights]
            derivatives = derived(step.derivation, outputs, inputs, weights, self.size * max(rows, 1))
            if rows:
                shapes = [(-1, rows) if x is None else (-1, rows, *x.spec.shape[1:]) for x in derivatives]
                pairs = zip(derivatives, shapes, strict=True)
                derivatives = [None if x is None else views.reshape(x, shape) for x, shape in pairs]
        for node, x in zip(step.results, derivatives, strict=True):
            if node is not None and x is not None:
                self.keep(node, x)

    def _each(self, node: int, rows: int) -> Tensor:
        """Return a node's tensor with the batch in front, behind the rows if there are any."""
        x = self.tensor(node)
        if node in self.batched:
            return _exchanged(x) if rows else x
        return whole(x, self.size, behind=int(rows > 0))


def _exchanged(x: Tensor) -> Tensor:
    return views.transpose(x, 0, 1)
