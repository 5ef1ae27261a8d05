"""``tape.checkpoint``: a function of which the tape keeps the arguments alone; backward runs it again.

It runs on a tape of its own, which shows what it depends on: arguments, and tensors from outside that require grad. The
call is then one instruction with these for operands, and that tape is dropped. The pullback runs the function again, on
another such tape, and sweeps that at once (Griewank and Walther 2000, "Revolve", have schedules of such calls; here the
schedule is the user's).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernels.foundation.specs import GradientObserver, Seed, Spec
from kernels.kinds import reference_tape
from kernels.kinds.reference_tape import Instruction, unexposed
from kernels.native.structs import TAPE_BITS
from kernels.sweeps import forward
from kernels.sweeps.workspace import mark
from tape.engine.custom_function import CustomCall, FunctionCtx, Output
from tape.engine.double_backward import RecordedRun, RecordedSweep, settled
from tape.engine.graph_observers import family_offset
from tape.engine.saved_tensors import SavedTensors
from tape.engine.sweep_run import BackwardRun, merged, seeds_of, starts_of
from tape.errors import shorten
from tape.random import noting_drawn, redrawing
from tape.recording import record
from tape.recording.record import PackedValue
from tape.tensors import modes
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.tapes import Tape
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, new, scalar_or_array
from tape.tensors.view_families import is_view

__all__ = ["CheckpointError", "checkpoint"]

_SAVED = object()
"""Stands for a tensor among the arguments: the instruction saves its value."""
_TOLERANCE = {8: 1e-6, 4: 1e-3}
"""How far results of the second run may be from the first, as a part of their size, by the size of a number."""


class CheckpointError(RuntimeError):
    """A checkpointed function did something else when it was run again."""


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function(*args, **kwargs)``; nothing within is recorded, and backward runs it again.

    Memory then holds the arguments, for one forward more. Arguments and results are tensors, anything else, or nested
    structures of them. Tensors from outside that the function reads get their gradients too. Gradients can be
    differentiated again (that backward keeps what it ran again), checkpoints can stand in one another, and forward mode
    passes through. Numbers of tape's generators are drawn again as they were.

    The function should do the same both times: results that differ raise CheckpointError, and so does a backward after
    what it reads has changed. It must not write to its arguments: RuntimeError. While a program is recorded, in a
    function under ``tape.compile``, it is just called, and the program keeps as little of its loops as it can, unless
    ``memory=`` says how much may be kept.

    >>> x = tape.tensor(2.0, requires_grad=True)
    >>> y = x
    >>> for _ in range(3):
    ...     y = tape.checkpoint(lambda y: tape.sin(y) * y, y)
    >>> y.backward()
    >>> round(x.grad.item(), 6)
    0.036474
    """
    try:
        return called(function, args, kwargs)
    except Exception as error:
        shorten(error)
        raise


def called(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    preserve: bool = True,
    compares: bool = True,
    contexts: tuple[Any, Any] | None = None,
) -> Any:
    """Call a function as a checkpoint; ``contexts`` are what it runs in, the first and the second time.

    ``preserve``: random numbers are drawn as they were; ``compares``: its results are.
    """
    mode = modes.current()
    if not mode.grad or mode.inference or mode.recorder is not None:
        if mode.recorder is not None:
            mode.recorder.note_checkpoint()
        with contextlib.nullcontext() if contexts is None else contexts[0]:
            return function(*args, **kwargs)
    leaves, structure = flattened((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    before, tape = [x._slot for x in tensors], Tape(brief=True)
    with (
        contextlib.nullcontext() if contexts is None else contexts[0],
        modes.under(mode._replace(pack=None)) if mode.pack else contextlib.nullcontext(),
        noting_drawn() as drawn,
        modes.on_tape(tape),
    ):
        result = function(*args, **kwargs)
    if any(x._slot is not slot and x._slot != slot for x, slot in zip(tensors, before, strict=True)):
        raise RuntimeError(
            "checkpoint: the function writes in place to one of its arguments, which backward, when it runs the "
            "function again, would find written; write to x.clone()"
        )
    values = [_SAVED if isinstance(x, Tensor) else x for x in leaves]
    call = Repetition(function, values, structure, drawn if preserve else {}, contexts and contexts[1])
    return _recorded(call, tape, tensors, result, compares=compares)


def _recorded(call: Repetition, inner: Tape, tensors: list[Tensor], result: Any, *, compares: bool) -> Any:
    """Record a call that was made on a tape of its own; return its result, of tensors on the tape around it."""
    leaves, call.returned = flattened(result)
    del result
    at = call.places = [k for k, x in enumerate(leaves) if _is_on(inner, x)]
    if not at:
        return call.returned.filled(leaves)
    slots: list[int] = [leaves[k]._slot for k in at]
    with inner.reading():
        ends = forward.leaves(inner.entries, inner.number, list({slot ^ 0 for slot in slots}))
    outputs = [_apart(leaves[k]) for k in at]
    if compares:
        call.measures = [_measures(y) for y in outputs]
    x = y = None
    for k, y in zip(at, outputs, strict=True):
        leaves[k] = y
    del x, y, slots
    inner.collect()
    if inner.entries:  # somebody else has tensors from within, and may have these
        for output in outputs:
            output._value = scalar_or_array(np.array(output._value, order="C"))
    CheckpointCall(call, outputs, [key for key, _ in ends]).record(tensors, tuple(spec for _, spec in ends))
    return call.returned.filled(leaves)


def _is_on(tape: Tape, x: Any) -> bool:
    return isinstance(x, Tensor) and type(x._slot) is int and x._slot >> TAPE_BITS == tape.number


def _apart(x: Tensor) -> Tensor:
    """Return the value of a result as a tensor without history; a view is copied."""
    return constant_tensor(scalar_or_array(np.array(x._value, order="C")) if is_view(x) else x._value)


Measures = tuple[tuple[int, ...], np.dtype[Any], float, float, float]
"""Shape and dtype of a result, the sum of its sizes, its sum, and a sum in which each place counts differently."""


def _measures(x: Tensor) -> Measures:
    flat = np.asarray(x._value).ravel()
    with np.errstate(all="ignore"):
        ramp = np.arange(1 - flat.size, flat.size + 1, 2) / max(flat.size, 1)
        weighted = float(np.einsum("i,i", flat, ramp))  # without threads
        return x.spec.shape, x.spec.dtype, float(np.abs(flat).sum()), float(flat.sum()), weighted


def _alike(a: Measures, b: Measures) -> bool:
    """Whether two results are the same up to rounding, which compiled code may do differently."""
    bound = _TOLERANCE.get(a[1].itemsize, 0.0) * max(a[2], b[2])
    pairs: Any = zip(a[2:], b[2:], strict=True)
    close = all(x == y or abs(x - y) <= bound or (math.isnan(x) and math.isnan(y)) for x, y in pairs)
    return a[:2] == b[:2] and close


class Repetition:
    """A function with its arguments, to be run again.

    ``places`` are the results, by number, that have a gradient; ``drawn`` the generators that were drawn from, as they
    were before.
    """

    def __init__(
        self, function: Callable[..., Any], values: list[Any], structure: Structure, drawn: Any, context: Any
    ) -> None:
        self.function, self.values, self.structure, self.drawn = function, values, structure, drawn
        self.context = context
        self.given_arrays = modes.given_arrays()
        self.places: list[int] = []
        self.measures: list[Measures] = []
        self.returned: Any = None

    def run(self, tensors: Iterable[Tensor]) -> list[Any]:
        """Call the function again; return its results that have a gradient. CheckpointError for other ones."""
        remaining = iter(tensors)
        args, kwargs = self.structure.filled(next(remaining) if x is _SAVED else x for x in self.values)
        tape = modes.own_tape()
        before, tape.given_arrays = tape.given_arrays, self.given_arrays
        try:
            with redrawing(self.drawn), contextlib.nullcontext() if self.context is None else self.context:
                leaves, returned = flattened(self.function(*args, **kwargs))
        finally:
            tape.given_arrays = before
        if returned != self.returned:
            raise CheckpointError(
                f"checkpoint: when it was run again, the function returned {returned}, and {self.returned} before"
            )
        outputs = [leaves[k] for k in self.places]
        for k, y, measures in zip(self.places, outputs, self.measures, strict=False):
            if not isinstance(y, Tensor) or not _alike(_measures(y), measures):
                raise CheckpointError(_CHANGED.format(k, _described(y), _described(measures)))
        return outputs


_CHANGED = (
    "checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass, or "
    "other values.\nresult {}: {}, and {} in the forward pass.\nWhat the function reads may have changed since, or is "
    "drawn from NumPy's or Python's random numbers: pass it as an argument, and draw by tape's generators. "
    'determinism_check="none" of tape.utils.checkpoint.checkpoint compares nothing'
)


def _described(x: Any) -> str:
    if isinstance(x, Tensor):
        x = _measures(x)
    return f"{x[1].name}{list(x[0])} of sum {x[3]:.6g}" if isinstance(x, tuple) else f"a {type(x).__name__}"


class CheckpointCall(CustomCall):
    """What the tape saves of a checkpoint: how to repeat it, beside the values of the tensors among its arguments.

    ``keys`` are the slots and leaves that it depends on, which become its operands.
    """

    cls: Any = checkpoint
    constant = frozenset()
    hooks = None
    positional = 0

    def __init__(self, repetition: Repetition, outputs: list[Tensor], keys: list[Any]) -> None:
        self.repetition, self.ctx = repetition, FunctionCtx(())
        self.specs = [y.spec for y in outputs]
        self.is_tensor = [True] * len(keys)
        self.outputs, self._tensors, self._keys = [], outputs, keys
        self._places: list[int | None] = []
        """For each tensor among the arguments its operand, None for a constant."""
        self._sources = []

    def record(self, tensors: list[Tensor], specs: tuple[Spec, ...]) -> None:
        """Record the call on this thread's tape; its results get their slots."""
        outputs, keys = self._tensors, self._keys
        del self._tensors, self._keys
        at = {key: k for k, key in enumerate(keys)}
        self._places = [at.get(x._slot) for x in tensors]
        kept: tuple[Any, ...] = tuple([x._value for x in tensors])
        if (pack := modes.current().pack) is not None:
            kept = tuple([PackedValue(value, pack) for value in kept])
        name, spec = "CheckpointBackward", outputs[0].spec if len(outputs) == 1 else None
        key = (name, specs, spec, len(kept))
        form = record.cached_form(key, lambda: reference_tape.function(name, specs, spec, len(kept)))
        tape, anchor = modes.own_tape(), new(Tensor) if spec is None else outputs[0]
        tape.record(anchor, form.code, tuple(keys), (self, *unexposed(form, kept)[1]))
        modes.current().notify_anomaly(anchor._slot)
        for k, y in enumerate(outputs if spec is None else ()):
            of = y.spec
            form = record.cached_form((name, of, "output"), partial(reference_tape.output, name, of))
            tape.record(y, form.code, (anchor._slot,), (Output(k, len(outputs)),))
        for y in outputs:
            record.watch(tape, y, tuple(tensors))
        self.outputs = [y._slot for y in outputs]

    def _again(self, instruction: Instruction) -> list[Any]:
        """Run the function again; return its results."""
        saved_tensors, tensors = SavedTensors([]), []
        values = (x.value() if isinstance(x, PackedValue) else x for x in instruction.saved[1:])
        for place, value in zip(self._places, values, strict=True):
            if place is None:
                tensors.append(constant_tensor(value))
            else:
                key, spec = instruction.operands[place], instruction.form.specs[place]
                tensors.append(saved_tensors.tensor(key, value, spec))  # type: ignore[arg-type]
        return self.repetition.run(tensors)

    def _repeated(self, function: Callable[[list[Any], Tape], Any], instruction: Instruction) -> Any:
        """Run the function again on a tape of its own, and return what is computed from its results there."""
        tape = Tape(brief=True)
        try:
            with modes.on_tape(tape):
                outputs = modes.call_user(self._again, instruction, grad=True, recorder=None, pack=None)
            return function(outputs, tape)
        finally:
            outputs = None  # type: ignore[assignment]
            tape.collect()

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Run the function again, and sweep that; a batch of cotangents in one sweep."""
        arrived = self._arrived(stash, instruction, gradient)
        weights: list[Any] = [
            None if g is None else constant_tensor(scalar_or_array(g + g.dtype.type(0.0))) for g in arrived
        ]
        shown = weights = self.hooks.before_node(weights) if self.hooks else weights
        gradients = self._by_operand(instruction, self._repeated(partial(_swept, weights, batch), instruction))
        if not self.hooks:
            return gradients
        after = [None if g is None else constant_tensor(scalar_or_array(g)) for g in gradients]
        return [None if g is None else as_array(g) for g in self.hooks.after_node(after, tuple(shown))]

    def _arrived(self, stash: dict[Any, Any], instruction: Instruction, gradient: Any) -> list[Any]:
        """Return the cotangents of the results, None where nothing arrived."""
        cotangents = stash.pop(instruction.slot, {0: gradient} if len(self.specs) == 1 else {})
        return [cotangents.get(k) for k in range(len(self.specs))]

    def _by_operand(self, instruction: Instruction, contributions: list[tuple[Any, Any]]) -> list[Any]:
        """Return the gradient of each operand.

        What the second run alone depends on stands, in order, for what the first alone did: leaves made within.
        """
        operands = instruction.operands
        gradients: dict[int, Any] = {}
        at = {key: k for k, key in enumerate(operands)}
        others = [(key, value) for key, value in contributions if key not in at]
        for key, value in contributions:
            if key in at:
                k = at[key]
                gradients[k] = gradients[k] + value if k in gradients else value
        unmet = [k for k in range(len(operands)) if k not in gradients]
        if others and len(others) != len(unmet):
            raise CheckpointError(_OTHERS)
        for (_, value), k in zip(others, unmet, strict=False):
            shape: Any = instruction.form.specs[k].shape  # type: ignore[union-attr]
            if np.shape(value)[np.ndim(value) - len(shape) :] != shape:
                raise CheckpointError(_OTHERS)
            gradients[k] = value
        return [gradients.get(k) for k in range(len(operands))]

    def pull_tensors(
        self, instruction: Instruction, gradient: Tensor | None, stash: dict[Any, Any], saved_tensors: SavedTensors
    ) -> list[Tensor | None]:
        """Run the function again, recorded on the tape of this thread, and sweep that on tensors."""
        del saved_tensors
        weights = self._arrived(stash, instruction, gradient)
        shown = weights = self.hooks.before_node(weights) if self.hooks else weights
        tape = modes.own_tape()
        since = tape.number << TAPE_BITS | tape.entries.next
        outputs = modes.call_user(self._again, instruction, grad=True, recorder=None, pack=None)
        pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if w is not None and _is_on(tape, y)]
        seeds = starts_of(*zip(*pairs, strict=True)) if pairs else []
        with tape.reading():
            graph = mark(tape.entries, tape.number, seeds, since)
            sweep = _Section(RecordedRun(restrict=False), graph, (tape,), {seed.slot for seed in seeds})
            for seed in seeds:
                sweep.add(seed.slot, seed.offset or 0, seed.spec, seed.value, clean=True)
            gradients = self._by_operand(instruction, sweep.gradients())
        return self.hooks.after_node(gradients, tuple(shown)) if self.hooks else gradients

    def jvp(
        self, instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], *, batch: int
    ) -> Array | None:
        """Run the function again, and push the tangents of its operands through that."""
        known = zip(instruction.operands, instruction.form.specs, tangents, strict=True)
        sources = [Seed(key, spec, t) for key, spec, t in known if t is not None]  # type: ignore[arg-type]
        fixed = [key for key, t in zip(instruction.operands, tangents, strict=True) if t is None and type(key) is int]
        pushed = self._repeated(partial(_pushed, sources, fixed, batch), instruction)
        if len(self.specs) == 1:
            return pushed[0]  # type: ignore[no-any-return]
        stash[instruction.slot] = pushed
        return np.zeros((batch,) if batch else ())


_OTHERS = (
    "checkpoint: when it was run again, the function depended on other tensors that require grad than before: a name "
    "that it reads stands for another one by now; pass them as arguments"
)


class _Section(RecordedSweep):
    """A sweep of a part of the graph: the gradients of its ends are not complete, and no hooks of leaves run."""

    def _hooked(self) -> set[int]:
        return set()


def _swept(weights: list[Any], batch: int, outputs: list[Any], tape: Tape) -> list[tuple[Any, Any]]:
    """Return the gradients of leaves, and of slots of other tapes, that a tape's results lead to."""
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if w is not None and _is_on(tape, y)]
    if not pairs:
        return []
    roots, cotangents = zip(*pairs, strict=True)

    def sweep() -> list[tuple[Any, Any]]:
        run = BackwardRun(free=False, restrict=False, batch=batch)
        foreign = run.sweep_one(tape, merged(seeds_of(roots, cotangents, batch)), crosses=True)
        leaves = [(leaf, np.asarray(value, leaf.spec.dtype)) for leaf, value in run.leaves]
        return leaves + [(slot, value) for slot, _, value in foreign]

    with modes.under(modes.turned(modes.current(), grad=False)):
        return settled(sweep, roots, cotangents, batch)


def _pushed(sources: list[Seed], fixed: list[int], batch: int, outputs: list[Any], tape: Tape) -> list[Array | None]:
    """Return the tangents of a tape's results."""
    targets = {y._slot: GradientObserver(y._slot, y.spec, family_offset(y) or 0) for y in outputs if _is_on(tape, y)}
    with tape.reading():
        if forward.forward(tape.entries, tape.number, sources, list(targets.values()), batch, fixed):
            raise CheckpointError(_OTHERS)
    observers: Iterator[Any] = (targets.get(y._slot) if isinstance(y, Tensor) else None for y in outputs)
    return [None if o is None or o.gradient is None else o.gradient.copy() for o in observers]
