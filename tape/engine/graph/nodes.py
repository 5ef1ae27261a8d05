"""Nodes of the graph as PyTorch shows it: made on demand from the tape's instructions, one for each while it lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import ref

from kernels.instructions import python_pullbacks
from kernels.instructions.entries import Instruction, instructions
from kernels.instructions.forms import Form
from kernels.native.words import ADDS, CLEARS, TAPE_BITS, VIEW
from tape import errors
from tape.engine.rules.custom_calls import Call
from tape.engine.rules.custom_function import Function
from tape.engine.rules.saved_values import saved_value
from tape.foundation.size import Size
from tape.recording import record
from tape.tensors import tapes
from tape.tensors.hooks import Hook, Hooks, RemovableHandle, of_slot
from tape.tensors.tensor import AccumulateGrad, Tensor, holder

Find = Callable[[int], Instruction | None]


class InputMetadata(NamedTuple):
    """What a node knows of each gradient that it is given."""

    shape: Size
    dtype: Any


class _Kind(type):
    """The leaves' nodes, which are the leaves' slots, are nodes too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (cls is Node and type(instance) is AccumulateGrad)


class Node(metaclass=_Kind):
    """The backward side of one operation: of a class named as the operation, and the same object while it lives.

    A node keeps its part of the graph. ``metadata`` is a dict for whatever is to be noted of it, and lasts as long as
    the graph. What an operation saved is read as ``_saved_self``, ``_saved_other``, ``_saved_result``; a Function's
    node has its ctx's attributes.
    """

    __slots__ = ("__weakref__", "_call", "_edges", "_form", "_held", "_metadata")

    def __init__(self, slot: int, form: Form) -> None:
        self._held, self._form = holder(slot, form), form
        self._edges: tuple[tuple[Any, int], ...] | None = None
        self._metadata: dict[str, Any] | None = None
        self._call: Call | None = None

    @property
    def _slot(self) -> int:
        return self._held._slot  # type: ignore[no-any-return]

    def name(self) -> str:
        """Return the name of the backward function, such as MulBackward0."""
        return self._form.name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the operands, each with which of its outputs that is; None where no gradient goes.

        They stay known to a node that was there before a backward freed the graph; of one asked for only then they
        are gone: GradError.
        """
        if self._edges is None:
            found = record.locate(self._slot)
            if found is None:
                raise errors.GradError(
                    f"{self.name()}: this part of the graph has been freed by a backward, and its edges with it; take "
                    "grad_fn before that backward, or give it retain_graph=True"
                )
            self._learn(found)
        return self._edges or ()

    def _learn(self, found: Instruction, find: Find = record.locate) -> None:
        """Note what the instruction tells: edges, and the call of a Function."""
        self._edges = tuple(edge_of(operand, find) for operand in found.operands)
        if found.saved and type(found.saved[0]) is Call:
            self._call = found.saved[0]

    @property
    def metadata(self) -> dict[str, Any]:
        """A dict of what is noted of this node; it lasts as long as the graph."""
        if self._metadata is None:
            tape = tapes.living.get(self._slot >> TAPE_BITS)
            notes = {} if tape is None else tape.metadata
            self._metadata = notes.setdefault(self._slot, {})
        return self._metadata

    @property
    def requires_grad(self) -> bool:
        """Always true of what a node stands for."""
        return True

    @property
    def _input_metadata(self) -> tuple[InputMetadata, ...]:
        """Shape and dtype of the gradients that the node is given."""
        call = self._called()
        specs = [self._form.spec] if call is None else call.specs
        return tuple(InputMetadata(Size(spec.shape), spec.dtype) for spec in specs if spec is not None)

    def _sequence_nr(self) -> int:
        """Return a number that is larger the later the operation ran."""
        return self._slot & ((1 << TAPE_BITS) - 1)

    def __repr__(self) -> str:
        return f"<{self._form.name} object at {id(self):#x}>"

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node; a tuple it returns replaces grad_inputs."""
        if self._form.kind in (CLEARS, ADDS):
            raise NotImplementedError(
                f"{self.name()}: a write in place passes its gradient on where it stands; hook the tensors around it"
            )
        return RemovableHandle(self._hooks().after, hook)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node; a tuple it returns replaces grad_outputs."""
        return RemovableHandle(self._hooks().before, hook)

    def _hooks(self) -> Hooks:
        tape, found = tapes.living.get(self._slot >> TAPE_BITS), record.locate(self._slot)
        if tape is None or found is None:
            raise errors.GradError(f"{self.name()}: this part of the graph has been released; register hooks before")
        if (call := self._called()) is not None and len(call.specs) > 1:
            call.hooks = call.hooks or Hooks(found.form.spec)
            return call.hooks
        return of_slot(tape, self._slot, found.form.spec, int(found.saved[0]) if found.form.kind == VIEW else 0)

    def _called(self) -> Call | None:
        """Return the call of a Function; None for other operations."""
        if self._call is None and self._form.op is python_pullbacks.FUNCTION:
            found = record.locate(self._slot)
            if found is not None:
                self._learn(found)
        return self._call

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return saved_value(self._form, self._instruction, name.removeprefix("_saved_"))
        raise AttributeError(f"{self._form.name} has no attribute {name!r}")

    def _instruction(self) -> Instruction:
        found = record.locate(self._slot)
        if found is None:
            raise errors.GradError(errors.SECOND_TIME)
        return found


class FunctionNode(Node):
    """The node of a call of a Function: it has its ctx's attributes."""

    __slots__ = ()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What the call saved; RuntimeError when a backward has freed it."""
        found = self._instruction()
        call: Call = found.saved[0]
        return call.saved(found)

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
    """The class of a Function's nodes."""

    def __get__(self, instance: Any, owner: Any) -> type[Node]:
        return _class_of(f"{owner.__name__}Backward", FunctionNode)


Function._backward_cls = _BackwardClass()  # type: ignore[attr-defined]


_classes: dict[tuple[str, type[Node]], type[Node]] = {}


def _class_of(name: str, kind: type[Node] = Node) -> type[Node]:
    """Return the class of the nodes of this name."""
    found = _classes.get((name, kind))
    if found is None:
        made: Any = _Kind(name, (kind,), {"__slots__": (), "__module__": __name__})
        found = _classes.setdefault((name, kind), made)
    return found


def _made(slot: int, form: Form) -> Node:
    return _class_of(form.name, FunctionNode if form.op is python_pullbacks.FUNCTION else Node)(slot, form)


def _node(slot: int, form: Form) -> Node:
    """Return the node of an instruction: that which lives, or a new one."""
    tape = tapes.living.get(slot >> TAPE_BITS)
    if tape is None:
        return _made(slot, form)
    known = tape.nodes.get(slot)
    node: Node | None = None if known is None else known()
    if node is None:
        node, nodes, key = _made(slot, form), tape.nodes, slot

        def forget(reference: Any) -> None:
            if nodes.get(key) is reference:
                del nodes[key]

        nodes[key] = ref(node, forget)
    return node


def edge_of(operand: Any, find: Find = record.locate) -> tuple[Any, int]:
    """Return the node of an operand, a slot or a leaf, and which of its outputs that is; None where there is none."""
    if type(operand) is not int:
        return operand, 0
    found, place = find(operand), 0
    if found is not None and found.form.op is python_pullbacks.OUTPUT:
        place = found.saved[0].place
        found = find(found.operands[0])
    return (None, 0) if found is None else (_node(found.slot, found.form), place)


def of_tensor(x: Tensor) -> tuple[Any, int]:
    """Return the node of a computed tensor, and which of its outputs the tensor is."""
    form: Any = x._form
    if form.op is python_pullbacks.OUTPUT and (edge := edge_of(x._slot))[0] is not None:
        return edge
    return _node(x._slot, form), 0


def node_of(operand: Any) -> Any:
    """Return the node of an operand: an instruction's slot, a leaf, or None."""
    return edge_of(operand)[0]


def keep_edges(held: Iterable[tapes.Tape]) -> None:
    """Let the nodes that somebody holds learn where they lead to: a backward is about to free that."""
    todo = [tape for tape in held if tape.nodes]
    while todo:
        tape = todo.pop()
        pending = _ignorant(tape)
        if pending:
            with tape.reading():
                todo += _learnt({found.slot: found for found in instructions(tape.entries)}, pending)


def _learnt(table: dict[int, Instruction], pending: list[Node]) -> list[tapes.Tape]:
    """Let nodes, and those that they lead to, learn their edges; return the other tapes that edges lead to."""

    def find(slot: int) -> Instruction | None:
        return table.get(slot) or record.locate(slot)

    others = []
    while pending:
        node = pending.pop()
        if node._edges is None and node._slot in table:
            node._learn(table[node._slot], find)
            for after, _ in node.next_functions:
                if type(after) is AccumulateGrad or after is None or after._edges is not None:
                    continue
                other = tapes.living.get(after._slot >> TAPE_BITS)
                if after._slot in table:
                    pending.append(after)
                elif other is not None:
                    others.append(other)
    return others


def _ignorant(tape: tapes.Tape) -> list[Node]:
    """Return the nodes of a tape that live and have not learnt their edges."""
    found = [reference() for reference in list(tape.nodes.values())]
    return [node for node in found if node is not None and node._edges is None]
