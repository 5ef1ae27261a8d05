"""Recorders of programs: operations, writes and escapes as nodes and steps of a recipe."""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect, insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels import PACKAGES
from kernels.foundation.specs import Spec, fills, spec_of
from kernels.kinds.elementwise import Select
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import root_of
from kernels.kinds.views import ResultPart, View
from kernels.language import jit
from kernels.native.memory import where
from kernels.operations import OPS
from kernels.programs.program import Lines, ProgramError, ProgramNode, Recipe, StepKind
from kernels.programs.recording import Tables, by_index
from kernels.rules.scalar_loops import NodeRef
from tape.tensors import modes
from tape.tensors.bytecode import LineMarks
from tape.tensors.modes import Observer
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array
from tape.tensors.view_families import base_of, is_shown, is_view

# What recorders have in common: which tensor is which node of the program that they record.

_PACKAGES = (*PACKAGES, "copy", "copyreg")


class Recorder(Observer):
    """What recorders of programs and of vmap's examples have in common: the program, and which tensor is which node."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.held: list[Any] = []
        self.escapes: list[str] = []
        self.open = False

    def node_of(self, x: Tensor) -> int | None:
        """Return the node of a tensor; None if it is not known."""
        raise NotImplementedError

    def know(self, x: Tensor, node: int) -> None:
        """Let a tensor, which is held, be known by a node."""
        raise NotImplementedError

    def unknow(self, x: Tensor) -> None:
        """Know a tensor no longer."""
        raise NotImplementedError

    def _add(self, x: Tensor, node: ProgramNode) -> int:
        number = len(self.recipe.nodes)
        self.recipe.nodes.append(node)
        self.know(x, number)
        return number

    def _place_view(self, node: ProgramNode, above: int, source: Tensor, result: Tensor) -> None:
        """Say of which memory a node is a part that shares it with a tensor, whose node is ``above``."""
        parent = self.recipe.nodes[above]
        node.base = above if parent.base is None else parent.base
        same = result._value is source._value or not result.spec.size
        node.offset = parent.offset + (0 if same else where(as_array(result)) - where(as_array(source)))

    def is_argument(self, x: Tensor) -> bool:
        """Return whether a tensor is an argument, which the program may write to."""
        node = self.node_of(x)
        return not self.open and node is not None and self.recipe.nodes[node].argument

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Refuse to follow an argument that becomes a view of its former self."""
        if self.is_argument(x):
            raise NotImplementedError(
                f"{name} of an argument of a program is not supported: use the result of {name.rstrip('_')}"
            )

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Take in that a tensor has become what another is."""
        node = self.node_of(value)
        if node is not None:
            self.know(x, node)

    def released(self, x: Tensor, value: Tensor) -> None:
        """Identify what was a view with the copy that it is now."""
        self.unknow(x)
        Recorder.taken(self, x, value)

    def note_number(self, tensor: Tensor) -> None:
        """Note that a tensor's only element became a Python number, which the caller's code may just compare."""
        self.note_escape(tensor)


def caller() -> str:
    """Return the line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# The recorder of programs: copies constants when they are used, and takes over outside memory that is written.
#
# A constant is identified by its contents. They are compared whenever the function uses it, so that every kind of
# write between two uses (by NumPy, in place, of ``.data``) gives another constant. When the function writes values
# that depend on the arguments into memory from outside, that memory becomes the program's own: each replay starts with
# what it held, and every tensor and array that shares it is a view of it.

_LARGEST = 1 << 26
"""Bytes up to which the array that a sparse part belongs to is copied as a whole, once for all of its parts."""
_WORD = 8
CLONE: Any = OPS["clone"]


class ProgramRecorder(Recorder):
    """Records each operation that depends on the arguments; other values are constants, copied at their use.

    With ``lines`` the user's lines are kept, too. With ``repeats`` iterations that do what the one before did are not.
    """

    def __init__(self, *, lines: bool = False, repeats: bool = False) -> None:
        recipe = Recipe(lines=Lines() if lines else None)
        self.tables = tables = Tables(recipe.nodes, recipe.steps)
        super().__init__(recipe)
        tables.connect(Tensor, repeats=repeats)
        self.tables_words = tables.words
        self.node_of, self.know, self.unknow = tables.node_of, tables.know, tables.forget  # type: ignore[method-assign]
        for name in ("overwrites", "wrote") if tables.words is not None else ():
            known = tables.words, _slowly(ref(self), name), None
            vars(self)[name] = jit.bound("programs.recorder_native", name, known)
        self._alike: dict[Any, ProgramNode] = {}
        self._marks = None if recipe.lines is None else LineMarks(tables)
        self.copies: dict[Any, int] = {}
        """Nodes of copied constants: the last one by address and spec, and each by a digest of its contents."""
        self.owned: list[tuple[int, int, int]] = []
        """The program's own memory that is no argument's: first and last address, node, by addresses."""
        self.argument_memory: list[tuple[int, int, int]] = []
        """That of arguments, which may have parts in common."""
        self.lent: list[tuple[int, int, int]] = []
        """Memory of the arrays that were given as arguments, with their numbers; the function has copies."""
        self.of_constants: dict[tuple[int, int], list[ReferenceType[Tensor]]] = {}
        """Views that were recorded as ones of constants, by the addresses of these: until they are written."""
        self.moved: set[int] = set()
        """Ids of tensors whose memory was replaced: their views may share the memory from before."""
        self.reached: dict[int, str] = {}
        """Lines at which the function used an argument's original array, by the number of the argument."""

    def lends(self, number: int, value: Any) -> None:
        """Keep the memory of the array that an argument was copied from."""
        if isinstance(value, np.ndarray) and value.size:
            self.held.append(value)
            self.lent.append((*byte_bounds(value), number))

    def argument(self, x: Tensor) -> int:
        """Make a tensor an argument; return its node."""
        self.recipe.arguments.append(len(self.recipe.nodes))
        at = self._add(x, ProgramNode(x.spec, argument=True, differentiable=x._slot is not None))
        self.tables.nodes_added(x._form)
        if type(x._value) is not float and x.spec.size:
            low, high = byte_bounds(as_array(x))
            if high - low == x.spec.size * x.spec.dtype.itemsize:
                self._take_memory(low, high, at)
        return at

    def _take_memory(self, low: int, high: int, node: int) -> None:
        """Let memory be the program's own."""
        if self.recipe.nodes[node].argument:
            self.argument_memory.append((low, high, node))
        else:
            insort(self.owned, (low, high, node))
        self.tables.owned.append(array("q", (low, high)))

    def finish(self) -> None:
        """Give back room for more steps, and look up the user's lines."""
        self.recipe.steps.fit()
        if self.tables.search is not None:
            self.recipe.skipped = self.tables.search.skipped()
        if self._marks is not None and self.recipe.lines is not None:
            self._marks.fill(self.recipe.lines)

    def notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation if an operand depends on the arguments."""
        self.mark_line()
        self._notify(op, operands, result, params)

    def _notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation, and let native code record the next that is alike."""
        kind = self._look_at(op, operands, result, params)
        is_last = self.node_of(result) == len(self.recipe.nodes) - 1
        self.tables.nodes_added(result._form if is_last else None)
        if kind is not None and not isinstance(op, ResultPart):
            words = [_form_word(o, at) for o, at in zip(operands, map(self._wants_of, operands), strict=True)]
            if 0 not in words:
                noticed = result._form.params if isinstance(op, View) and is_view(result) else params  # type: ignore[union-attr]
                self.tables.repeats(op, noticed, words, result, kind)
            self.tables.step_added()

    def _look_at(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> int | None:
        """Record an operation if an operand depends on the arguments, whatever they are; return the kind of its step.

        None where others like it are not recorded in the same way.
        """
        if self.open:
            self._find_arguments(operands)
        for x in operands if self.lent else ():
            if isinstance(x, Tensor) and type(x._value) is not float and self.node_of(x) is None:
                self._look(as_array(x))
        if not any(map(self._depends, operands)):
            return None
        refs = tuple(self.reference(o) for o in operands)
        wanted = self._is_wanted(result, refs)
        node = ProgramNode(result.spec, differentiable=wanted)
        if isinstance(op, View):
            self._place(node, result._base if is_view(result) else operands[0], result)
            params = self._params_of(op, result, params)
        else:
            node = self._alike.setdefault((result.spec, wanted), node)
        escapes = isinstance(op, Select) and operands[0].spec.dtype.kind != "f"
        if escapes:
            self.note_escape(result)
        kind = self._step(op, refs, self._add(result, node), params, result._form if wanted else None)
        return None if escapes else kind

    def _params_of(self, op: Any, result: Tensor, params: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the parameters of a step: those of a view are its form's, of which there are not too many.

        Views by indices are alike, whatever these are: in loops they are others in each iteration.
        """
        if not isinstance(op, View) or not is_view(result):
            return params
        params = result._form.params  # type: ignore[union-attr]
        return () if self.tables.finds_repeats and by_index(op) else params

    def _wants_of(self, x: Any) -> bool:
        node = self.node_of(x) if isinstance(x, Tensor) else None
        return node is not None and self.recipe.wants(node)

    def _is_wanted(self, result: Tensor, refs: Sequence[Any]) -> bool:
        """Whether the gradient of a result is recorded, and asked for by an operand that leads to the arguments."""
        form = result._form
        if not isinstance(form, Form) or type(result._slot) is not int:
            return False
        nodes = [r.node for r, want in zip(refs, form.wanted, strict=True) if want and isinstance(r, NodeRef)]
        return any(map(self.recipe.wants, nodes))

    def _step(self, op: Any, refs: Sequence[Any], result: int, params: tuple[Any, ...], form: Any) -> int:
        """Append a step; return the number of its kind."""
        nodes, steps = self.recipe.nodes, self.recipe.steps
        specs = [nodes[r.node].spec if isinstance(r, NodeRef) else type(r) for r in refs]
        kind = self.tables.kind(op, form, params, (*specs, nodes[result].spec))
        steps.add(kind, result, [r.node if isinstance(r, NodeRef) else steps.number(r) for r in refs])
        return kind

    def mark_line(self) -> None:
        """Mark the steps that follow as of the user's line, if lines are kept."""
        if self._marks is not None:
            self._marks.mark(sys._getframe(1))

    def _find_arguments(self, operands: tuple[Any, ...]) -> None:
        """With no arguments given, the leaves that require grad are the arguments, in the order of their use."""
        for o in operands:
            if isinstance(o, Tensor) and type(o._slot) is AccumulateGrad and self.node_of(o) is None:
                self.argument(o)

    def _place(self, node: ProgramNode, source: Tensor, result: Tensor) -> None:
        """Say of which memory, and of whose gradient, a view is a part."""
        self._place_view(node, self.reference(source).node, source, result)
        if is_view(result):
            node.family, node.buffer_offset = self.reference(result._base).node, result._offset

    def _depends(self, x: Any) -> bool:
        return self._is_ours(x)

    def _is_ours(self, x: Any) -> bool:
        """Whether a tensor stands in the program's memory."""
        if not isinstance(x, Tensor):
            return False
        if self.node_of(x) is not None or (is_view(x) and self._is_part(x)):
            return True
        return self._owned(x) is not None

    def reference(self, operand: Any) -> Any:
        """Return the node of a tensor, that of a constant if it depends on no argument; other operands as they are."""
        if not isinstance(operand, Tensor):
            return operand
        node = self.node_of(operand)
        if node is None and self._is_part(operand):
            view_node = ProgramNode(operand.spec)
            self._place(view_node, operand._base, operand)
            node = self._add(operand, view_node)
        elif node is None:
            node = self._owned(operand)
            if node is None:
                return NodeRef(self._constant(operand))
        spec = self.recipe.nodes[node].spec
        if spec.shape != operand.spec.shape or spec.strides != operand.spec.strides:
            raise NotImplementedError(
                f"record: a tensor of shape {list(spec.shape)} was given another shape or order in place, at "
                f"{caller()}, which programs cannot repeat; use the function that returns another tensor"
            )
        if node < len(self.tables.forms):
            self.tables.forms[node] = operand._form
        return NodeRef(node)

    def _is_part(self, x: Tensor) -> bool:
        """Whether a tensor is a view of one that depends on the arguments, and still of the same memory."""
        if not is_view(x) or not self._is_ours(x._base):
            return False
        if id(x._base) not in self.moved:
            return True
        (low, high), (first, last) = byte_bounds(as_array(x)), byte_bounds(as_array(x._base))
        return bool(first <= low <= high <= last)

    def _owned(self, x: Tensor) -> int | None:
        """Return the node of a tensor in the program's own memory; None for a tensor in other memory."""
        if type(x._value) is float or not x.spec.size:
            return None
        value = as_array(x)
        low, high = byte_bounds(value)
        first, last, node = self._owner(low, high)
        if node is None:
            return None
        if not first <= low <= high <= last:
            raise NotImplementedError(
                f"record: at {caller()} a tensor shares a part of its memory with what the program writes; "
                "copy it first"
            )
        above = self.recipe.nodes[node]
        offset = above.offset + where(value) - first
        return self._add(x, ProgramNode(x.spec, base=self.recipe.base_of(node), offset=offset))

    def _owner(self, low: int, high: int) -> tuple[int, int, int | None]:
        """Return where a part of the program's own memory begins and ends that has bytes in a range, and its node."""
        at = bisect(self.owned, low, key=itemgetter(0))
        parts = (*self.argument_memory, *self.owned[max(at - 1, 0) : at + 1])
        return next((part for part in parts if low < part[1] and part[0] < high), (0, 0, None))

    def _constant(self, x: Tensor) -> int:
        """Return the node of a constant: an earlier one if its contents are the same."""
        array = np.array(x._value) if type(x._value) is float else as_array(x)
        spec = x.spec
        known = self.copies.get((where(array), spec)) if type(x._value) is not float else None
        if known is not None and _equal(array, self._copied(known)):
            return known
        self._look(array)
        node = self._kept(array, spec) if fills(array) else self._part(array, spec)
        if type(x._value) is not float:
            self.held.append(array)  # its address stays its own
            self.copies[where(array), spec] = node
        return node

    def _look(self, array: Array) -> None:
        """Keep the line if an array shares memory with an argument's original, which the argument is a copy of."""
        if self.lent and array.size:
            low, high = byte_bounds(array)
            for first, last, number in self.lent:
                if low < last and first < high:
                    self.reached.setdefault(number, caller())

    def _kept(self, array: Array, spec: Spec) -> int:
        """Return the node of a copy of a dense array; equal ones share it."""
        digest = hashlib.blake2b(array.ravel("K").view(np.uint8).data).digest()
        node = self.copies.get((digest, spec))
        if node is None:
            self.recipe.nodes.append(ProgramNode(spec, constant=array.copy(order="K")))
            node = self.copies[digest, spec] = len(self.recipe.nodes) - 1
        return node

    def _part(self, array: Array, spec: Spec) -> int:
        """Return the node of an array with gaps: a view of a copy of its extent, or of the array that it is part of."""
        low, high = byte_bounds(array)
        root = root_of(array)
        if high - low > 2 * array.nbytes and root.nbytes <= _LARGEST and fills(root):
            base, start = self._kept(root, spec_of(root)), byte_bounds(root)[0]
        else:
            base, start = self._kept(_extent(array), spec_of(_extent(array))), low
        self.recipe.nodes.append(ProgramNode(spec, base=base, offset=where(array) - start))
        return len(self.recipe.nodes) - 1

    def _copied(self, node: int) -> Array:
        """Return the copy that a constant's node stands for."""
        entry = self.recipe.nodes[node]
        if entry.base is None:
            assert entry.constant is not None
            return entry.constant
        held = self.recipe.nodes[entry.base].constant
        assert held is not None
        return np.ndarray(entry.spec.shape, entry.spec.dtype, held.ravel("K"), entry.offset, entry.spec.strides)

    def wrote(self, op: Any, x: Tensor, value: Any, params: tuple[Any, ...]) -> None:
        """Record a write if the tensor or the value depends on the arguments."""
        indices = [index for index in params if isinstance(index, Tensor)]
        if not any(map(self._depends, (x, value, *indices))):
            return
        part, base = self.reference(x).node, base_of(x)
        form = base._form if isinstance(base._form, Form) and base._form.op is op else None
        if form is not None and type(base._slot) is int and modes.is_grad_enabled():
            family = self.recipe.family_of(part)
            if not self.recipe.nodes[family].differentiable:  # others may share it
                self.recipe.nodes[family] = replace(self.recipe.nodes[family], differentiable=True)
        else:
            form = None
        self.mark_line()
        places = list(map(self.reference, indices))
        kind = self._step(op, (NodeRef(part), self.reference(value), *places), part, () if places else params, form)
        at = self.node_of(base)
        if at is not None and at < len(self.tables.forms):
            self.tables.forms[at] = base._form
        words = [_form_word(o, self._wants_of(o)) for o in (x, value)]
        if not places and words[1] not in (0, _INTEGER) and getattr(x, "_base", x) is base:
            self.tables.repeats_write(op, params, words, base, kind, graded=form is not None)
        self.tables.step_added()

    def holding(self) -> tuple[int, int]:
        """Return how much is held, for :meth:`let_go`."""
        return len(self.held), len(self.tables.results)

    def let_go(self, since: tuple[int, int]) -> None:
        """Hold no longer what nobody else does of the tensors that are held since then."""
        begin, results = since
        held, made = self.held, self.tables.results
        made[results:] = [None] * len(made[results:])
        tensors = [(k, id(held[k]), ref(held[k])) for k in range(begin, len(held)) if isinstance(held[k], Tensor)]
        held[begin:] = [None if isinstance(x, Tensor) else x for x in held[begin:]]
        for k, number, x in tensors:
            held[k] = x()
            if held[k] is None:
                self.tables.known.pop(number, None)

    def release(self) -> None:
        """Hold no tensors any more: nothing more is recorded."""
        self.held.clear()
        self.tables.results.clear()

    def note_unrecorded(self, tensor: Tensor | None, what: str) -> None:
        """Note that a tensor is used for what is not recorded: to this recorder, it has escaped."""
        before = len(self.escapes)
        if tensor is not None:
            self.note_escape(tensor)
        self.escapes[before:] = [f"{line}, for {what}" for line in self.escapes[before:]]

    def note_checkpoint(self) -> None:
        """Have machine code keep little, and compute the rest again on the way back."""
        self.recipe.frugal = True

    def note_drawn(self, tensor: Tensor, draw: Any) -> None:
        """Note random numbers: they are constants."""

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Prepare for a write into a tensor: memory from outside becomes the program's, if the write depends on it."""
        if self.open:
            self._find_arguments((x, value))
        if not self._is_ours(x) or self._is_constant(x):
            if not self._depends(x) and not self._depends(value):
                return
            self._take_over(base_of(x))
        at = self.recipe.base_of(self.reference(x).node)
        if self.recipe.nodes[at].argument:
            self.recipe.written.add(at)

    def _is_constant(self, x: Tensor) -> bool:
        """Whether a tensor, or what it is a view of, was recorded as a view of a constant."""
        node = self.node_of(x)
        return self._is_of_constant(self.node_of(base_of(x)) if node is None else node)

    def _is_of_constant(self, node: int | None) -> bool:
        return node is not None and self.recipe.nodes[self.recipe.base_of(node)].constant is not None

    def _add(self, x: Tensor, node: ProgramNode) -> int:
        at = super()._add(x, node)
        self.tables.made(x)
        if node.base is not None:
            self._keep_view(x, x)
        return at

    def _keep_view(self, x: Tensor, of: Tensor) -> None:
        """Keep a tensor that is recorded as another one, if that is a view of a constant."""
        if self._is_constant(of):
            at = self.node_of(of)
            assert at is not None
            node = self.recipe.nodes[at]
            whole = node if node.base is None else self.recipe.nodes[node.base]
            backwards = sum(min(0, (n - 1) * s) for n, s in zip(whole.spec.shape, whole.spec.strides, strict=True))
            first = where(as_array(of)) - node.offset + backwards
            self.of_constants.setdefault((first, first + whole.spec.bytes), []).append(ref(x))

    def _forget_views(self, low: int, high: int) -> None:
        """Know no views any more of constants in memory that becomes the program's."""
        for first, last in [known for known in self.of_constants if known[0] < high and low < known[1]]:
            for view in [x() for x in self.of_constants.pop((first, last))]:
                if view is not None and self._is_of_constant(self.node_of(view)):  # not one that was released
                    self.unknow(view)

    def _take_over(self, x: Tensor) -> None:
        """Make a tensor's outside memory, with the whole array it is part of, the program's; keep what it holds now."""
        array = as_array(x)
        root = root_of(array)
        if is_shown(root):
            raise ProgramError(
                f"record: the function writes, at {caller()}, to the memory of a NumPy array, where NumPy may read it "
                "unseen; write to a tensor of its own memory: tape.tensor(array)"
            )
        if root.nbytes > _LARGEST or not fills(root):
            root = array
        low, high = byte_bounds(root) if root.size else (0, 0)
        for first, last, number in self.lent:
            if low < last and first < high:
                raise ProgramError(
                    f"record: the function writes, at {caller()}, to the memory of argument {number}, which it has not "
                    "from there but from outside; write to the argument"
                )
        if self._owner(low, high)[2] is not None:
            raise NotImplementedError("record: a part of the memory that is written was written before; copy it first")
        self._forget_views(low, high)
        kept = root if fills(root) else _extent(root)
        node = self._begun(kept, x)
        self.held.append(root)
        self._take_memory(low, high, node)
        if not root.size:
            self._add(x, ProgramNode(x.spec, base=node))
        self.reference(x)

    def _begun(self, kept: Array, x: Tensor) -> int:
        """Return a node that begins with what a tensor's memory holds now; of equal elements one is kept."""
        nodes, first = self.recipe.nodes, kept.ravel("K")[:1].reshape(())
        if kept.size and kept.flags.c_contiguous and _equal(np.broadcast_to(first, kept.shape), kept):  # as zeros are
            nodes.append(
                ProgramNode(spec_of(np.broadcast_to(first, kept.shape)), base=self._kept(first, spec_of(first)))
            )
            start = len(nodes) - 1
        else:
            start = self._kept(kept, spec_of(kept))
        return self._cloned(NodeRef(start), spec_of(kept))

    def _cloned(self, source: NodeRef, spec: Spec) -> int:
        """Return a node of memory that a step copies another node to."""
        self.recipe.nodes.append(ProgramNode(spec))
        node = len(self.recipe.nodes) - 1
        self.mark_line()
        self._step(CLONE, (source,), node, (), None)
        self.tables.nodes_added(None)
        return node

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Identify a tensor that has taken over another's value with that one."""
        if self.node_of(value) is not None:
            super().taken(x, value)
            self.tables.made(x)
            self._keep_view(x, value)
        else:
            self.unknow(x)

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Prepare for an assignment to ``.data``: a tensor is about to get another's memory."""
        node = self.node_of(x)
        argument = (node is not None and self.recipe.nodes[node].argument) or (
            self.open and type(x._slot) is AccumulateGrad
        )
        if argument:
            raise NotImplementedError(
                f"record: .data of an argument is set at {caller()}, which programs cannot repeat; write x.copy_(...)"
            )
        self.moved.add(id(x))
        self.held.append(x)
        if not self._depends(other):
            self.unknow(x)
            return
        at = self.reference(other).node
        source = self.recipe.nodes[at]
        self._add(x, ProgramNode(spec_of(as_array(other)), base=self.recipe.base_of(at), offset=source.offset))

    def note_escape(self, tensor: Tensor) -> None:
        """Keep the line at which a value that depends on the arguments becomes a Python number or array."""
        if self._depends(tensor):
            self.escapes.append(caller())

    def note_raised(self, op: Any, operands: tuple[Any, ...], params: dict[str, Any], error: Exception) -> None:
        """Take it for an escape of the operands that an operation raised by their values."""
        for x in operands:
            self.note_escape(x)

    def check(self) -> None:
        """Raise for an argument that the function writes to, and whose original array it used as well."""
        for number, node in enumerate(self.recipe.arguments):
            if node in self.recipe.written and number in self.reached:
                raise ProgramError(
                    f"record: the function writes to argument {number}, and uses its memory by another way at "
                    f"{self.reached[number]}; use the argument"
                )


def _slowly(recorder: ReferenceType[Any], name: str) -> Callable[..., Any]:
    """Return a method of a recorder for what native code does not know; it does not hold the recorder."""
    return lambda *args: getattr(type(recorder()), name)(recorder(), *args)


def _form_word(x: Any, wanted: bool) -> int:
    """Return the word that stands for an operand among those that steps are known by; 0 if it is neither."""
    if isinstance(x, Tensor):
        return id(x._form) + wanted
    return 1 if type(x) is float else _INTEGER if type(x) is int else 0


_INTEGER = 3


def _extent(array: Array) -> Array:
    """Return the memory from an array's first element to its last, with zeros in the gaps, as words."""
    low, high = byte_bounds(array)
    words = np.zeros(-(-(high - low) // _WORD), np.int64)
    np.ndarray(array.shape, array.dtype, words, where(array) - low, array.strides)[...] = array
    return words


def _equal(a: Array, b: Array) -> bool:
    """Whether arrays hold the same bits."""
    kind = f"u{a.itemsize}"
    return np.array_equal(a.view(kind), b.view(kind))


# Whether what two recordings hold is the same.

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def same(x: Any, y: Any) -> bool:
    """Whether two Python objects are the same one, or the same value to the last bit."""
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if isinstance(x, (np.ndarray, np.generic)):
        return bool(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())
    return isinstance(x, _PLAIN) and repr(x) == repr(y)


def same_numbers(ones: list[Any], others: list[Any]) -> bool:
    """Whether Python numbers are the same, to the last bit."""
    if {*map(type, ones), *map(type, others)} == {float}:
        return array("d", ones).tobytes() == array("d", others).tobytes()
    return len(ones) == len(others) and all(map(same, ones, others))


def same_kind(x: StepKind, y: StepKind) -> bool:
    """Whether steps of two kinds do the same, if their operands are alike."""
    if x.op is not y.op or not same_params(x.params, y.params):
        return False
    if x.form is y.form or x.form is None or y.form is None:
        return x.form is y.form
    return (x.form.specs, x.form.spec, x.form.wanted) == (y.form.specs, y.form.spec, y.form.wanted)


def same_params(x: Any, y: Any) -> bool:
    """Whether static parameters are the same."""
    if isinstance(x, (tuple, list)) and type(x) is type(y):
        return len(x) == len(y) and all(map(same_params, x, y))
    if same(x, y):
        return True
    try:
        return type(x) is type(y) and bool(x == y)
    except ValueError:  # arrays
        return False
