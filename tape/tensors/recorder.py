"""The recorder: records the operations of a function that depend on its arguments, as a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any
from weakref import ref

from kernels import PACKAGES
from kernels.kinds.form import Form
from kernels.kinds.reduction import Select
from kernels.kinds.views import View
from kernels.native.memory import where
from kernels.programs.program import APART, ProgramNode, Recipe, Tables, native_notify
from kernels.programs.structs import Lines, StepWords
from kernels.rules.scalar_loops import NodeRef
from tape.tensors import modes
from tape.tensors.bytecode import LineTable
from tape.tensors.modes import Observer
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array
from tape.tensors.view_families import base_of, is_view

_PACKAGES = (*PACKAGES, "copy", "copyreg")


class Recorder(Observer):
    """Records each operation that depends on the arguments, in the order they run; with ``lines`` their lines too."""

    def __init__(self, *, lines: bool = False) -> None:
        self.recipe = Recipe(lines=Lines() if lines else None)
        self.tables = tables = Tables(self.recipe.nodes, self.recipe.steps)
        self.nodes, self.held = tables.known, tables.held
        self._alike: dict[Any, ProgramNode] = {}
        me = ref(self)
        self._slowly = lambda *args: me()._notify(*args)  # type: ignore[union-attr]
        native = native_notify(tables, Tensor, self._slowly)
        if native is not None:
            vars(self)["notify"] = native
        self._marking = None if self.recipe.lines is None else _Marking(self.recipe, self.recipe.lines)
        if self._marking is not None:
            vars(self)["notify"] = self._marking.before(native or self._slowly)
        self.escapes: list[str] = []
        self.open = False

    def argument(self, x: Tensor) -> int:
        """Make a tensor an argument; return its node."""
        self.recipe.arguments.append(len(self.recipe.nodes))
        at = self._add(x, ProgramNode(x.spec, argument=True, differentiable=x._slot is not None))
        self.tables.nodes_added(x._form if x._slot is not None else None)
        return at

    def _add(self, x: Tensor, node: ProgramNode) -> int:
        self.recipe.nodes.append(node)
        self.held.append(x)  # its id stays its own
        self.nodes[id(x)] = len(self.recipe.nodes) - 1
        return len(self.recipe.nodes) - 1

    def notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation if an operand depends on the arguments; natively, where all operands are known."""
        self._notify(op, operands, result, params)

    def _notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation: at once, where all tensors are known."""
        known, nodes, form = self.nodes.get, self.recipe.nodes, result._form
        refs: list[Any] = []
        for o in operands:
            at = known(id(o))
            if isinstance(o, Tensor) if at is None else nodes[at].spec is not o._form.spec:
                break
            refs.append(o if at is None else NodeRef(at))
        else:
            if type(op) not in APART and any(type(r) is NodeRef for r in refs):
                graded = form if self._is_wanted(result, refs) else None
                key = form.spec if graded is None else graded
                node = self._alike.get(key)
                if node is None:
                    node = self._alike[key] = ProgramNode(form.spec, differentiable=graded is not None)
                kind = self._step(op, refs, self._add(result, node), params, graded)
                if graded is not None and all(type(r) in (NodeRef, float) for r in refs):  # as native code looks at
                    self.tables.alike[graded] = node, kind, params
                self.tables.nodes_added(graded)
                return
        self._look_at(op, operands, result, params)
        at = known(id(result), -1)
        self.tables.nodes_added(form if 0 <= at == len(nodes) - 1 and nodes[at].differentiable else None)

    def _look_at(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation if an operand depends on the arguments, whatever the operands are."""
        if self.open:
            self._find_arguments(operands)
        if not any(map(self._depends, operands)):
            return
        refs = tuple(self.reference(o) for o in operands)
        wanted = self._is_wanted(result, refs)
        node = ProgramNode(result.spec, differentiable=wanted)
        if isinstance(op, View):
            self._place_view(node, result._base if is_view(result) else operands[0], result)
        if isinstance(op, Select) and operands[0].spec.dtype.kind != "f":
            self.note_escape(result)
        self._step(op, refs, self._add(result, node), params, result._form if wanted else None)

    def _is_wanted(self, result: Tensor, refs: Sequence[Any]) -> bool:
        """Whether the gradient of a result is recorded, and asked for by an operand that leads to the arguments."""
        form = result._form
        return (
            isinstance(form, Form)
            and type(result._slot) is int
            and any(
                want and isinstance(r, NodeRef) and self.recipe.wants(r.node)
                for r, want in zip(refs, form.wanted, strict=True)
            )
        )

    def _step(self, op: Any, refs: Sequence[Any], result: int, params: tuple[Any, ...], form: Any) -> int:
        """Append a step; return the number of its kind."""
        nodes, steps = self.recipe.nodes, self.recipe.steps
        specs = [nodes[r.node].spec if isinstance(r, NodeRef) else type(r) for r in refs]
        kind = self.tables.kind(op, form, params, (*specs, nodes[result].spec))
        steps.add(kind, result, [r.node if isinstance(r, NodeRef) else steps.number(r) for r in refs])
        return kind

    def mark_line(self) -> None:
        """Mark the steps that follow as of the user's line, if lines are kept."""
        if self._marking is not None:
            self._marking.mark(sys._getframe(1))

    def _find_arguments(self, operands: tuple[Any, ...]) -> None:
        """With no arguments given, the leaves that require grad are the arguments, in the order of their use."""
        for o in operands:
            if isinstance(o, Tensor) and type(o._slot) is AccumulateGrad and id(o) not in self.nodes:
                self.argument(o)

    def reference(self, operand: Any) -> Any:
        """Return the node of a tensor, a constant if it is new; other operands as they are."""
        if not isinstance(operand, Tensor):
            return operand
        node = self.nodes.get(id(operand))
        if node is None and is_view(operand):
            view_node = ProgramNode(operand.spec)
            self._place_view(view_node, operand._base, operand)
            node = self._add(operand, view_node)
        elif node is None:
            node = self._add(operand, ProgramNode(operand.spec, constant=as_array(operand)))
        return NodeRef(node)

    def _place_view(self, node: ProgramNode, source: Tensor, result: Tensor) -> None:
        above = self.reference(source).node
        parent = self.recipe.nodes[above]
        node.base = above if parent.base is None else parent.base
        offset = where(as_array(result)) - where(as_array(source)) if result.spec.size else 0
        node.offset = parent.offset + offset
        if is_view(result):
            node.family, node.buffer_offset = self.reference(result._base).node, result._offset

    def _depends(self, x: Any) -> bool:
        return isinstance(x, Tensor) and (id(x) in self.nodes or id(base_of(x)) in self.nodes)

    def is_argument(self, x: Tensor) -> bool:
        """Return whether a tensor is an argument, which the program may write to."""
        node = self.nodes.get(id(x))
        return not self.open and node is not None and self.recipe.nodes[node].argument

    def wrote(self, op: Any, x: Tensor, value: Any, params: tuple[Any, ...]) -> None:
        """Record a write if the tensor or the value depends on the arguments."""
        indices = [index for index in params if isinstance(index, Tensor)]
        if not any(map(self._depends, (x, value, *indices))):
            return
        part, base = self.reference(x).node, base_of(x)
        form = base._form if isinstance(base._form, Form) and base._form.op is op else None
        if form is not None and type(base._slot) is int and modes.is_grad_enabled():
            family = self.recipe.family_of(part)
            self.recipe.nodes[family] = replace(self.recipe.nodes[family], differentiable=True)  # others may share it
        else:
            form = None
        self.mark_line()
        places = list(map(self.reference, indices))
        self._step(op, (NodeRef(part), self.reference(value), *places), part, () if places else params, form)

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Take in that a tensor has become what another is."""
        if id(value) in self.nodes:
            self.nodes[id(x)] = self.nodes[id(value)]
            self.held.append(x)

    def released(self, x: Tensor, value: Tensor) -> None:
        """Identify what was a view with the copy that it is now."""
        self.nodes.pop(id(x), None)
        if id(value) in self.nodes:
            self.nodes[id(x)] = self.nodes[id(value)]
            self.held.append(x)

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Take in that a tensor is about to have another's memory for its own."""
        if self._depends(x) or self._depends(other):
            raise NotImplementedError("vmap: .data of a tensor is set; write x.copy_(...)")

    def let_go(self, since: int) -> None:
        """Hold no longer what nobody else does of the tensors that are ``held`` since then."""
        held = self.held
        tensors = [(k, id(held[k]), ref(held[k])) for k in range(since, len(held)) if isinstance(held[k], Tensor)]
        held[since:] = [None if isinstance(x, Tensor) else x for x in held[since:]]
        for k, number, x in tensors:
            held[k] = x()
            if held[k] is None:
                self.nodes.pop(number, None)

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Refuse to follow an argument that becomes a view of its former self."""
        if self.is_argument(x):
            raise NotImplementedError(
                f"{name} of an argument of a program is not supported: use the result of {name.rstrip('_')}"
            )

    def note_unrecorded(self, tensor: Tensor | None, what: str) -> None:
        """Note that a tensor is used for what is not recorded: to this recorder, it has escaped."""
        before = len(self.escapes)
        if tensor is not None:
            self.note_escape(tensor)
        self.escapes[before:] = [f"{line}, for {what}" for line in self.escapes[before:]]

    def note_drawn(self, tensor: Tensor, draw: Any) -> None:
        """Note random numbers: they are constants."""

    def note_number(self, tensor: Tensor) -> None:
        """Note that a tensor's only element became a Python number, which the caller's code may just compare."""
        self.note_escape(tensor)

    def note_escape(self, tensor: Tensor) -> None:
        """Note that a value which depends on the arguments left for Python, and where."""
        if id(tensor) in self.nodes:
            self.escapes.append(caller())


class _Marking:
    """Marks steps as of the user's line that stands above the frame which recorded them."""

    def __init__(self, recipe: Recipe, lines: Lines) -> None:
        self._lines, self._head, self._table = lines, recipe.steps.head, LineTable(lines.table)

    def mark(self, frame: FrameType) -> None:
        """Mark the steps that follow."""
        self._lines.mark(self._head[StepWords.used], self._table.number(frame))

    def before(self, notify: Callable[..., None]) -> Callable[..., None]:
        """Return what marks a step and then records it; fast where a loop stays on one line."""
        known, numbers, mark, frame_above = self._table.known.get, self._lines.numbers, self.mark, sys._getframe

        def marked(op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
            frame = frame_above(1)
            number = known((id(frame.f_code), frame.f_lasti))
            if number is None or number != numbers[-1]:
                mark(frame)
            notify(op, operands, result, params)

        return marked


def caller() -> str:
    """Return the line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
