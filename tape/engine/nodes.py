"""Nodes of the graph as PyTorch shows them, gradient edges, and what notebooks show of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from kernels.foundation.tables import Recent, getattr_of
from kernels.kinds import reference_tape
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Descriptor, Form
from kernels.kinds.reference_tape import Instruction, instructions
from kernels.native.structs import ADDS, CLEARS, TAPE_BITS, VIEW
from tape import errors
from tape.engine.custom_function import CustomCall, Function, saved_names, saved_value
from tape.errors import GradError
from tape.recording import record
from tape.tensors import tapes
from tape.tensors.dtypes import Size
from tape.tensors.hooks import Hook, Hooks, RemovableHandle, of_slot
from tape.tensors.printing import table
from tape.tensors.tensor import AccumulateGrad, Slot, Tensor, holder, method, new

Find = Callable[[int], Any]


class InputMetadata(NamedTuple):
    """Shape and dtype of a gradient that a node receives."""

    shape: Size
    dtype: Any


class _NodeType(type):
    """The type of classes of nodes: an AccumulateGrad, which is a leaf's slot and its node, counts as a Node."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (cls is Node and type(instance) is AccumulateGrad)


class Node(metaclass=_NodeType):
    """The backward side of one operation: of a class named as the operation, and the same object while it lives.

    A node keeps its part of the graph. ``metadata`` is a dict for the user's notes, and lasts as long as the graph.
    What an operation saved is read as ``_saved_self``, ``_saved_other``, ``_saved_result``; a Function's node has its
    ctx's attributes.
    """

    __slots__ = ("__weakref__", "_call", "_edges", "_form", "_held", "_metadata")

    def __init__(self, slot: int, form: Form) -> None:
        self._held, self._form = holder(slot, form), form
        self._edges: tuple[tuple[Any, int], ...] | None = None
        self._metadata: dict[str, Any] | None = None
        self._call: CustomCall | None = None

    @property
    def _slot(self) -> int:
        return self._held._slot  # type: ignore[no-any-return]

    def name(self) -> str:
        """Return the name of the backward function, such as MulBackward0."""
        return self._form.name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the operands, each with the number of its output; None where no gradient goes.

        A node that was taken before a backward freed the graph still has them, and so has a later one in small
        graphs, where the code that called backward names ``grad_fn``, ``next_functions``, ``graph`` or ``make_dot``, or
        is among a process's first (:func:`note_shape`); else GradError is raised.
        """
        if self._edges is None:
            instruction = _instruction_or_shape(self._slot)
            if instruction is None or not _leads_on(instruction):
                raise errors.GradError(
                    f"{self.name()}: this part of the graph has been freed by a backward, and its edges with it; take "
                    "grad_fn before that backward, or give it retain_graph=True"
                )
            self._learn(instruction)
        return self._edges or ()

    def _learn(self, instruction: Any, find: Find | None = None) -> None:
        find = find or _instruction_or_shape
        form, operands = instruction.form, instruction.operands
        for _ in range(form.op.within):
            before = find(operands[0]) if type(operands[0]) is int else None
            operands = operands if before is None else before.operands
        self._edges = tuple(edge_of(operands[k], find) for k in shown_operands(form))
        if _is_two(form):
            inner = _class_of(form.op.reversed_within, _Within)(self._slot, form)
            inner._edges, self._edges = self._edges[:1], ((inner, 0), (None, 0))
        if instruction.saved and type(instruction.saved[0]) is CustomCall:
            self._call = instruction.saved[0]

    @property
    def metadata(self) -> dict[str, Any]:
        """A dict for notes on this node; it lasts as long as the graph."""
        if self._metadata is None:
            tape = tapes.living.get(self._slot >> TAPE_BITS)
            notes = {} if tape is None else tape.metadata
            self._metadata = notes.setdefault(self._slot, {})
        return self._metadata

    @property
    def requires_grad(self) -> bool:
        """Always True: only operations that require grad have a node."""
        return True

    @property
    def _input_metadata(self) -> tuple[InputMetadata, ...]:
        """Shape and dtype of the gradients that the node is given."""
        call = self._called()
        specs = [self._form.spec] if call is None else call.specs
        return tuple(InputMetadata(Size(spec.shape), spec.dtype) for spec in specs if spec is not None)

    def _sequence_nr(self) -> int:
        return self._slot & ((1 << TAPE_BITS) - 1)

    def __repr__(self) -> str:
        return f"<{self._form.name} object at {id(self):#x}>"

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node; a tuple it returns replaces grad_inputs."""
        form = self._form
        if form.kind in (CLEARS, ADDS):
            raise NotImplementedError(
                f"{self.name()}: a write in place passes its gradient on where it stands; hook the tensors around it"
            )
        if form.op.within or _is_two(form):
            raise NotImplementedError(
                f"{self.name()}: PyTorch's operations and those that run here are not the same; hook the tensors "
                "around it"
            )
        hooks = self._hooks()
        hooks.order = tuple(shown_operands(form))
        return RemovableHandle(hooks.after, hook)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node; a tuple it returns replaces grad_outputs."""
        return RemovableHandle(self._hooks().before, hook)

    def _hooks(self) -> Hooks:
        tape, instruction = tapes.living.get(self._slot >> TAPE_BITS), record.locate(self._slot)
        if tape is None or instruction is None:
            raise errors.GradError(f"{self.name()}: this part of the graph has been released; register hooks before")
        if (call := self._called()) is not None and len(call.specs) > 1:
            return call.own_hooks(instruction)
        return of_slot(
            tape, self._slot, instruction.form.spec, int(instruction.saved[0]) if instruction.form.kind == VIEW else 0
        )

    def _called(self) -> CustomCall | None:
        if self._call is None and self._form.op is reference_tape.FUNCTION:
            instruction = record.locate(self._slot)
            if instruction is not None:
                self._learn(instruction)
        return self._call

    def __dir__(self) -> list[str]:
        """Return the names of attributes, and of what was saved."""
        form = self._form
        names = saved_names(form) if type(self).__name__ == form.name else []
        return [*super().__dir__(), *(f"_saved_{name}" for name in names)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return saved_value(self._form, self._instruction, name.removeprefix("_saved_"))
        raise AttributeError(f"{self._form.name} has no attribute {name!r}")

    def _instruction(self) -> Instruction:
        instruction = record.locate(self._slot)
        if instruction is None:
            raise errors.GradError(errors.SECOND_TIME)
        return instruction


class _Within(Node):
    """A node that PyTorch has behind another one, where both are one operation here: 1 / x."""

    __slots__ = ()

    def name(self) -> str:
        """Return the name of PyTorch's node."""
        return type(self).__name__


class FunctionNode(Node):
    """The node of a call of a Function: it has its ctx's attributes."""

    __slots__ = ()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What the call saved; RuntimeError when a backward has freed it."""
        instruction = self._instruction()
        call: CustomCall = instruction.saved[0]
        return call.saved(instruction)

    @property
    def _forward_cls(self) -> Any:
        """The Function."""
        call = self._called()
        return None if call is None else call.cls

    def __getattr__(self, name: str) -> Any:
        call = None if name.startswith("__") else self._called()
        if call is None:
            raise AttributeError(f"{self._form.name} has no attribute {name!r} (or a backward has freed its ctx)")
        return getattr(call.ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Node.__slots__:
            super().__setattr__(name, value)
        elif (call := self._called()) is not None:
            setattr(call.ctx, name, value)


class _BackwardClass:
    def __get__(self, instance: Any, owner: Any) -> type[Node]:
        return _class_of(f"{owner.__name__}Backward", FunctionNode)


Function._backward_cls = _BackwardClass()  # type: ignore[attr-defined]


_classes: dict[tuple[str, type[Node]], type[Node]] = {}


def _class_of(name: str, kind: type[Node] = Node) -> type[Node]:
    cls = _classes.get((name, kind))
    if cls is None:
        made: Any = _NodeType(name, (kind,), {"__slots__": (), "__module__": __name__})
        cls = _classes.setdefault((name, kind), made)
    return cls


def _new_node(slot: int, form: Form) -> Node:
    return _class_of(form.name, FunctionNode if form.op is reference_tape.FUNCTION else Node)(slot, form)


def _node(slot: int, form: Form) -> Node:
    tape = tapes.living.get(slot >> TAPE_BITS)
    if tape is None:
        return _new_node(slot, form)
    known = tape.nodes.get(slot)
    node: Node | None = None if known is None else known()
    if node is None:
        node, nodes, key = _new_node(slot, form), tape.nodes, slot

        def forget(reference: Any) -> None:
            if nodes.get(key) is reference:
                del nodes[key]

        nodes[key] = ref(node, forget)
    return node


_OF_NUMBERS = ("+", "-", "*", "/")
"""Operators for which PyTorch makes a tensor of a number: the second operand, whose edge is None."""


def _is_two(form: Form) -> bool:
    """Whether PyTorch has two nodes for an operation: a number divided by a tensor."""
    return isinstance(form.op, Elementwise) and bool(form.op.reversed_within) and form.specs[0] is None


def shown_operands(form: Form) -> Sequence[int]:
    """Return the numbers of the operands that have edges, in PyTorch's order: no masks, and numbers last or not."""
    count = len(form.specs)
    if not isinstance(form.op, Elementwise) or form.op.condition:
        return range(isinstance(form.op, Elementwise), count)
    numbers = [k for k in range(count) if form.specs[k] is None]
    tensors = [k for k in range(count) if form.specs[k] is not None]
    shown = form.op.operator in _OF_NUMBERS and (0 in tensors or form.name != form.op.reversed_grad_fn or _is_two(form))
    return tensors + numbers if shown else tensors


class _Shape(NamedTuple):
    """What is kept of an instruction that a backward frees: no values, and leaves by references to their tensors."""

    slot: int
    form: Form
    operands: tuple[Any, ...]
    saved: tuple[Any, ...]


_FEW = 1 << 6  # instructions that are kept of a tape, the last ones
_left = [20_000]  # instructions that are kept in this process for whatever code
_LOOKS = frozenset(("graph", "grad_fn", "make_dot", "next_functions"))
_looking: Recent[int, bool] = Recent()  # by the id of a code object, whether it looks at graphs


def note_shape(tape: tapes.Tape, code: Any) -> None:
    """Keep names and edges at the end of a tape, which a backward is about to free, for who looks at them afterwards.

    That costs microseconds an instruction, so that it is done for code that calls backward and names nodes or
    drawings, and else for the first backwards of a process: people look at graphs in small programs.
    """
    looks = _looking.get(id(code))
    if looks is None:
        looks = _looking[id(code)] = not _LOOKS.isdisjoint(code.co_names)
    if not (looks or _left[0] > 0) or not tape.entries:
        return
    with tape.reading():
        made = [_shape_of(instruction) for instruction in islice(instructions(tape.entries), _FEW)]
    _left[0] -= 0 if looks else len(made)
    tape.shapes.update({shape.slot: shape for shape in reversed(made)})
    for slot in list(tape.shapes)[:-_FEW]:
        tape.shapes.pop(slot, None)  # what a signal calls may have come between


def _shape_of(instruction: Instruction) -> _Shape:
    form = instruction.form
    operands = [x ^ 0 if type(x) is int else x and x.owner for x in instruction.operands]  # slots count references
    return _Shape(
        instruction.slot ^ 0, form, tuple(operands), instruction.saved if form.op is reference_tape.OUTPUT else ()
    )


def _instruction_or_shape(slot: int) -> Any:
    """Return an instruction, or what is kept of one that has been freed."""
    instruction = record.locate(slot)
    if instruction is None and (tape := tapes.living.get(slot >> TAPE_BITS)) is not None:
        return tape.shapes.get(slot)
    return instruction


def _leads_on(instruction: Any) -> bool:
    """Whether the operands of an instruction are known, too."""
    slots = [x for x in instruction.operands if type(x) is int] if type(instruction) is _Shape else []
    return all(_instruction_or_shape(slot) is not None for slot in slots)


def edge_of(operand: Any, find: Find = _instruction_or_shape) -> tuple[Any, int]:
    """Return the node of an operand, a slot or a leaf, and the number of its output; None where there is none."""
    if isinstance(operand, ref):
        leaf = operand()
        operand = None if leaf is None else leaf._slot
    if type(operand) is not int:
        return operand, 0
    instruction, place = find(operand), 0
    if instruction is not None and instruction.form.op is reference_tape.OUTPUT:
        place = instruction.saved[0].place
        instruction = find(instruction.operands[0])
    return (None, 0) if instruction is None else (_node(instruction.slot, instruction.form), place)


def of_tensor(x: Tensor) -> tuple[Any, int]:
    """Return the node of a computed tensor, and the number of the output that the tensor is."""
    form: Any = x._form
    if form.op is reference_tape.OUTPUT and (edge := edge_of(x._slot))[0] is not None:
        return edge
    return _node(x._slot, form), 0


def node_of(operand: Slot) -> Any:
    """Return the node of an operand: an instruction's slot, a leaf, or None."""
    return edge_of(operand)[0]


def keep_edges(held: Iterable[tapes.Tape]) -> None:
    """Let nodes that somebody holds keep their edges: a backward is about to free the instructions."""
    todo = [tape for tape in held if tape.nodes]
    while todo:
        tape = todo.pop()
        living = (reference() for reference in list(tape.nodes.values()))
        pending = [node for node in living if node is not None and node._edges is None]
        if pending:
            with tape.reading():
                todo += _learn_edges(
                    {instruction.slot: instruction for instruction in instructions(tape.entries)}, pending
                )


def _learn_edges(table: dict[int, Instruction], pending: list[Node]) -> list[tapes.Tape]:
    def find(slot: int) -> Instruction | None:
        return table.get(slot) or _instruction_or_shape(slot)

    other_tapes = []
    while pending:
        node = pending.pop()
        if node._edges is None and node._slot in table:
            node._learn(table[node._slot], find)
            for after, _ in node.next_functions:
                if type(after) is AccumulateGrad or after is None or after._edges is not None:
                    continue
                other_tape = tapes.living.get(after._slot >> TAPE_BITS)
                if after._slot in table:
                    pending.append(after)
                elif other_tape is not None:
                    other_tapes.append(other_tape)
    return other_tapes


class GradientEdge(NamedTuple):
    """One output of a node: it keeps the graph, but not the tensor's value. See :func:`get_gradient_edge`."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(x: Tensor) -> GradientEdge:
    """Return the edge of a tensor, a root or an input of a backward; RuntimeError if it does not require grad."""
    if x._slot is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    if type(x._slot) is AccumulateGrad:
        return GradientEdge(x._slot, 0)
    return GradientEdge(*of_tensor(x))


def tensors_of(places: Any) -> Any:
    """Return the tensors of edges, of a single one or within a sequence; everything else as it is."""
    kind = type(places)
    if kind is Tensor:
        return places
    if kind is not list and isinstance(places, (GradientEdge, Node)):
        return _tensor_of(places)
    if isinstance(places, (list, tuple)):
        for place in places:
            if type(place) is not Tensor and isinstance(place, GradientEdge):
                return tuple(_tensor_of(place) if isinstance(place, GradientEdge) else place for place in places)
    return places


def _tensor_of(edge: Any) -> Tensor:
    node, place = (edge.node, edge.output_nr) if isinstance(edge, GradientEdge) else (edge, 0)
    if type(node) is AccumulateGrad:
        owner = node.owner()
        return owner if owner is not None else _standing(node, node.spec)
    slot = node._slot
    if isinstance(node, FunctionNode) and (call := node._called()) is not None and len(call.specs) > 1:
        slot = call.output(slot, place)
    instruction = None if slot is None else record.locate(slot)
    if instruction is None:
        raise errors.GradError(errors.SECOND_TIME)
    result = _standing(instruction.slot, instruction.form)
    if instruction.form.kind == VIEW:
        result._offset = int(instruction.saved[0])
    return result


def _standing(slot: Slot, form: Descriptor) -> Tensor:
    result = new(Tensor)
    result._slot, result._form, result._value = slot, form, np.empty(0)
    return result


# For the drawing alone: what notebooks do not show is not imported.
_late = getattr_of(__name__, {"graph": "tape.programs.drawing", "installed": "tape.programs.drawing"})
_MOST_DRAWN = 200  # nodes of a graph up to which it is drawn unasked


@method()
def _repr_html_(x: Tensor) -> str:
    """Return what a notebook shows: shape, dtype, whether it requires grad or what computed it, and values."""
    node = x.grad_fn
    grad = ("grad_fn", node.name()) if node is not None else ("requires_grad", str(x.requires_grad))
    shape = str(tuple(x.shape))
    return table([("shape", shape), ("dtype", x.spec.dtype.name), grad], repr(x))


@method()
def _repr_svg_(x: Tensor) -> str | None:
    """Return the graph behind the tensor as a drawing; None where there is none, or a large one, or no Graphviz."""
    if x.grad_fn is None or not _late("installed")():
        return None
    try:
        pending, reached = [x.grad_fn], dict[int, Any]()
        while pending and len(reached) <= _MOST_DRAWN:
            node = pending.pop()
            if id(node) not in reached:
                reached[id(node)] = node
                pending += [after for after, _ in node.next_functions if after is not None]
        few = len(reached) <= _MOST_DRAWN
        return _late("graph")(x)._repr_svg_() if few else None
    except GradError:  # a backward has freed it
        return None
