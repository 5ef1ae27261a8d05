"""The recorder of a function of one example: its operations as a plan that can be run on all examples at once.

It keeps little, since recording costs time in every call: an operation, its operands by number, its result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from numpy.lib.array_utils import byte_bounds

from kernels.foundation.specs import Spec
from kernels.kinds.views import View, Write
from kernels.native.memory import where
from tape.batching.mapped_dims import Called, Derivative, Operation, Start, Step
from tape.engine.double_backward import Derivation
from tape.recording import record
from tape.recording.computed_places import are_within
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.modes import Observer
from tape.tensors.pytrees import leaves
from tape.tensors.recorder import caller
from tape.tensors.tensor import Tensor, as_array, constant_tensor
from tape.tensors.view_families import base_of, is_view

_new: Any = tuple.__new__


def _check_indices(low: int, high: int, size: int, args: Sequence[Tensor], batched: Sequence[bool]) -> tuple[()]:
    del size, batched
    if args[0].spec.size and not are_within(args[0], low, high):
        raise IndexError(f"vmap: an index of some example is out of bounds, {low} to {high - 1}: {args[0].tolist()}")
    return ()


def _draw_anew(draw: Any, size: int, args: Sequence[Tensor], batched: Sequence[bool]) -> tuple[Tensor]:
    del args, batched
    all_draws = draw.repeated(size)
    x = constant_tensor(all_draws.array())
    record.note_drawn(x, all_draws)
    return (x,)


class Example(Observer):
    """Records what depends on the arguments, and what may be differentiated or mapped further out.

    What is the same for all examples, the recorder around this one takes part in as well: its values may leave for
    Python. What depends on nothing is passed to it alone.

    A node is a tensor, by number: ``specs`` are those of one example, ``bases`` the nodes whose memory they show, and
    ``parts``, for views of which no operation of the plan tells, of which node they are one, and the offset there.
    """

    maps = True

    def __init__(self, outer: Any, randomness: str = "error") -> None:
        self.outer, self.randomness = outer, randomness
        self.begun = len(outer.held) if hasattr(outer, "let_go") else 0
        self.states: dict[Any, Any] = {}
        """What the generators that were drawn from go back to."""
        self.plan: list[Step] = []
        self.derivatives: list[Derivative] = []
        self.specs: list[Spec] = []
        self.bases: list[int] = []
        self.parts: dict[int, tuple[int, int]] = {}
        self.arguments: list[int] = []
        self.written: set[int] = set()
        self.nodes: dict[int, int] = {}
        self.held: list[Tensor] = []
        self.differing: set[int] = set()
        self.tensors: dict[int, Tensor] = {}
        self.constants: dict[int, Start] = {}
        self.starts: dict[int, Start] = {}
        self.replaced: list[Start] = []
        self.escapes: list[str] = []
        self.late = False
        """Whether a value that was used before came to differ between examples."""

    def argument(self, x: Tensor) -> None:
        """Make a tensor an argument."""
        node = self._add(x)
        self.arguments.append(node)
        self.differing.add(node)

    def _add(self, x: Tensor, base: int | None = None) -> int:
        node = len(self.specs)
        self.specs.append(x._form.spec)
        self.bases.append(node if base is None else base)
        self.held.append(x)  # its id stays its own
        self.nodes[id(x)] = node
        return node

    def _depends(self, x: Any) -> bool:
        """Whether an operand is planned: what depends on arguments, also of recorders around, or requires grad."""
        if not isinstance(x, Tensor):
            return False
        known = x._slot is not None or id(x) in self.nodes or id(base_of(x)) in self.nodes
        return known or (hasattr(self.outer, "_depends") and self.outer._depends(x))

    def reference(self, x: Tensor) -> int:
        """Return the node of a tensor; a new one is a constant, or a view that no planned operation made."""
        node = self.nodes.get(id(x))
        if node is None and is_view(x):
            above = self.reference(x._base)
            node = self._add(x, self.bases[above])
            same = x._value is x._base._value or not x.spec.size
            self.parts[node] = above, 0 if same else where(as_array(x)) - where(as_array(x._base))
            self.tensors[node] = x
        elif node is None:
            node = self._add(x)
            self.tensors[node], self.constants[node] = x, Start(x, node)
        return node

    def _operands(self, operands: Iterable[Any]) -> list[Any]:
        return [self.reference(x) if isinstance(x, Tensor) else (x,) for x in operands]

    def _differ(self, operands: Iterable[Any]) -> bool:
        return self._among(self.differing, operands)

    def notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Plan an operation if an operand depends on the arguments, or requires grad.

        What is detached is planned, too: it shares its memory, which may come to depend on the arguments.
        """
        known, bases, differing = self.nodes, self.bases, self.differing
        mine = differs = False
        planned: list[Any] = []
        for x in operands:
            if isinstance(x, Tensor):
                node = known.get(id(x))
                if node is None:
                    detaches = isinstance(op, View) and not is_view(result)
                    if not (detaches or any(map(self._depends, operands))):
                        mine = False
                        break
                    node = self.reference(x)
                mine = True
                differs = differs or bases[node] in differing
                planned.append(node)
            else:
                planned.append((x,))
        if not differs and self.outer is not None:
            self.outer.notify(op, operands, result, params)
        if not mine:
            return
        known[id(result)] = node = len(bases)
        self.held.append(result)  # its id stays its own
        spec, detached = result._form.spec, False
        self.specs.append(spec)
        if isinstance(op, View):
            bases.append(bases[planned[0]])
            detached = not is_view(result)
        else:
            bases.append(node)
            if differs:
                differing.add(node)
        self.plan.append(_new(Operation, (op, planned, params, node, spec, modes.is_grad_enabled(), detached)))

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Be notified that a tensor is about to become a view of its former self."""
        if self.is_argument(x):
            raise NotImplementedError(
                f"{name} of an argument of a program is not supported: use the result of {name.rstrip('_')}"
            )

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
            node = self._add(tensor)
            self.differing.add(node)
            self.plan.append(Called(functools.partial(_draw_anew, draw), (), [node], graded=False))
        elif self.outer is not None:
            self.outer.note_drawn(tensor, draw)

    def is_argument(self, x: Tensor) -> bool:
        """Return whether a tensor is an argument, here or further out."""
        return self.nodes.get(id(x)) in self.arguments or (self.outer is not None and self.outer.is_argument(x))

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Keep the values of a tensor from before the recording, which is about to be written."""
        depends = self._depends(x) or self._depends(value)
        if self.outer is not None and not (depends and self._differ(self._operands((x, value)))):
            self.outer.overwrites(x, value)
        if not depends:
            return
        base = base_of(x)
        at = self.bases[self.reference(base)]
        if at in self.arguments:
            self.written.add(at)
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
        """Plan a write."""
        indices = [index for index in params if isinstance(index, Tensor)]
        depends = any(map(self._depends, (x, value, *indices)))
        planned = self._operands((x, value, *indices)) if depends else []
        differs = self._differ(planned)
        if self.outer is not None and not differs:
            self.outer.wrote(op, x, value, params)
        if not depends:
            return
        part = planned[0]
        self.tensors.pop(part, None)
        if differs and self.bases[part] not in self.differing:
            self.differing.add(self.bases[part])
            self.late = True
        step = Operation(
            op, planned, () if indices else params, part, x._form.spec, modes.is_grad_enabled(), detached=False
        )
        self.plan.append(step)

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Take in that a tensor has become what another is."""
        before = self.constants.get(self.nodes.get(id(x), -1))
        known = id(value) in self.nodes
        if self.outer is not None and not (known and self._differ((self.nodes[id(value)],))):
            self.outer.taken(x, value)
        if not known:
            return
        self.nodes[id(x)] = node = self.nodes[id(value)]
        self.held.append(x)
        if before is not None:
            self.tensors[before.node] = before.as_tensor()
            before.node = node
            self.replaced.append(before)

    def released(self, x: Tensor, value: Tensor) -> None:
        """Identify what was a view with the copy that it is now."""
        known = id(value) in self.nodes
        if self.outer is not None and not (known and self._differ((self.nodes[id(value)],))):
            self.outer.released(x, value)
        self.nodes.pop(id(x), None)
        if known:
            self.nodes[id(x)] = self.nodes[id(value)]
            self.held.append(x)

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Raise if a tensor is to get the memory of a planned one."""
        if self._depends(x) or self._depends(other):
            raise NotImplementedError("vmap: .data of a tensor is set; write x.copy_(...)")
        if self.outer is not None:
            self.outer.replaces(x, other)

    def follows_indices(self, indices: Sequence[Tensor], *, adds: bool) -> bool:
        """Whether index tensors differ between examples, or the recorder around this one follows them."""
        if any(self._differ((self.reference(index),)) for index in indices if self._depends(index)):
            return True
        return self.outer is not None and self.outer.follows_indices(indices, adds=adds)

    def checks_indices(self, index: Tensor, low: int, high: int) -> bool:
        """Whether indices are within bounds; that those of all examples are is checked when the plan is run."""
        node = self.reference(index)
        with modes.under(modes.current()._replace(recorder=None if self._differ((node,)) else self.outer)):
            within = are_within(index, low, high)
        self.plan.append(Called(functools.partial(_check_indices, low, high), (node,), [], graded=False))
        return within

    def note_number(self, tensor: Tensor) -> None:
        """Keep the line where one that differs becomes a number."""
        self.note_escape(tensor)

    def note_escape(self, tensor: Tensor) -> None:
        """Keep the line where a value that differs between examples becomes a Python number or array."""
        node = self.nodes.get(id(tensor))
        if node is not None and self.bases[node] in self.differing:
            self.escapes.append(caller())
        elif self.outer is not None:
            self.outer.note_escape(tensor)

    def derived(
        self,
        derivation: Derivation,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        weights: Sequence[Tensor],
        rows: int,
    ) -> Any:
        """Compute derivatives for this example, and plan to compute them for all."""
        depends = any(map(self._depends, (*outputs, *inputs, *weights)))
        groups = (outputs, inputs, weights) if depends else ((), (), ())
        to, by, along = (tuple(map(self.reference, group)) for group in groups)
        differs = self._differ((*to, *by, *along))
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
            results = [None if x is None else self._add(x) for x in derivatives]
            if differs:
                self.differing.update(node for node in results if node is not None)
            self.late = self.late or not self.differing.issuperset(self.bases[x] for x in by)
            self.derivatives.append(Derivative(derivation, to, by, along, rows, results, modes.is_grad_enabled()))
            self.plan.append(self.derivatives[-1])
        return derivatives

    def called(self, run: Callable[..., Any], mapped: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Make a call for this example, and plan to make it for all."""
        operands = self._operands(args) if any(map(self._depends, args)) else []
        differs = self._differ(operands)
        with modes.under(modes.current()._replace(recorder=None if differs else self.outer)):
            outcome = run(args, {})
        if operands:
            results = [self._add(x) if isinstance(x, Tensor) else None for x in leaves(outcome)]
            if differs:
                self.differing.update(node for node in results if node is not None)
            self.plan.append(Called(mapped, operands, results, modes.is_grad_enabled()))
        return outcome

    def forget(self) -> None:
        """Drop all tensors but those from before the recording that were not written."""
        self.held.clear()
        self.constants.clear()
        self.nodes.clear()
        if self.starts:
            self.tensors = {node: x for node, x in self.tensors.items() if self.bases[node] not in self.starts}
        if hasattr(self.outer, "let_go"):
            self.outer.let_go(self.begun)

    def writes(self) -> bool:
        """Whether the function writes in place."""
        return any(isinstance(step, Operation) and isinstance(step.op, Write) for step in self.plan)

    def batched(self) -> set[int]:
        """Return the bases whose values differ between examples."""
        batched, size = set(self.differing), -1 if self.late else len(self.differing)
        while len(batched) > size:  # a write makes what was read before differ, too
            size = len(batched)
            for step in self.plan:
                if isinstance(step, Operation):
                    if self._among(batched, step.operands):
                        batched.add(self.bases[step.result])
                    continue
                if isinstance(step, Derivative):
                    apart = self._among(batched, (*step.outputs, *step.inputs))
                    if apart:  # a derivative for each example
                        batched.update(self.bases[x] for x in step.inputs)
                    differs = apart or self._among(batched, step.weights)
                else:
                    differs = self._among(batched, step.operands)
                if differs:
                    batched.update(node for node in step.results if node is not None)
        return batched

    def _among(self, differing: set[int], operands: Iterable[Any]) -> bool:
        bases = self.bases
        return any(type(x) is int and bases[x] in differing for x in operands)
