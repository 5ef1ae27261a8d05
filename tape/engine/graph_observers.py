"""Observers of a sweep, and graphs that several threads recorded.

For a computed tensor: its hooks, ``.grad`` if it retains that and ``inputs=``, the hooks before its node, those
after it. For a leaf, as soon as all of its gradient is there: its hooks, those before its node, ``.grad``, those
after that.
"""

from __future__ import annotations

import contextvars
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from kernels.foundation.specs import Array, GradientObserver, Seed
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import ADDS, CLEARS, PULLS, PYTHON, TAPE_BITS, VIEW
from kernels.sweeps import forward as sweeps
from kernels.sweeps.workspace import MarkedGraph, drop, mark, relevant
from tape.engine.accumulate_grad import shares, tape_of
from tape.tensors import bytecode as callers
from tape.tensors import grad_modes, modes
from tape.tensors.grad_modes import Switch, SwitchAtOnce
from tape.tensors.modes import Mode
from tape.tensors.tapes import Tape, living
from tape.tensors.tensor import Tensor


def family_offset(x: Tensor) -> int | None:
    """Return where a gradient begins in the gradient buffer of its family; None for a tensor with its own buffer."""
    form = x._form
    if type(x._slot) is not int or form.kind == PULLS:
        return None
    return x._offset if form.kind == VIEW else 0


def check_apart(x: Tensor) -> None:
    """Raise NotImplementedError for a tensor whose elements share a gradient, as an expanded one's do."""
    if shares(x.spec):
        raise NotImplementedError(
            "the gradient of an expanded tensor is not kept apart; take x = x.clone() before using it"
        )


BEGINS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Leaves that were made where much stood on a tape, with the first slot there that may depend on them."""


def begin_of(asked: Collection[Any], number: int) -> int:
    """Return a slot of a tape before which nothing depends on any of these slots and leaves; 0 if that is not known."""
    begins = [key if type(key) is int else BEGINS.get(key, 0) for key in asked]
    return min(begins, default=0) if all(begin >> TAPE_BITS == number for begin in begins) else 0


# Graphs that cross tapes: those of tensors that threads hand to each other.


def marked(tape: Tape, seeds: list[Seed]) -> MarkedGraph:
    """Mark what leads to roots on a tape."""
    with tape.reading():
        return mark(tape.entries, tape.number, seeds)


def on_all_tapes(
    seeds: list[Seed],
    sweep: Callable[[list[Seed], MarkedGraph, Collection[Tape]], None],
    asked: Collection[Any] = (),
) -> Collection[Tape]:
    """Mark what leads to the roots, on all tapes; call ``sweep`` while these drop nothing, and return them.

    If gradients are ``asked`` for, what was recorded before all slots, and before the leaves in BEGINS, is left out
    where it can be.
    """
    if len(seeds) == 1:  # the usual case
        tape = tape_of(seeds[0].slot)
        with tape.reading():
            graph = mark(tape.entries, tape.number, seeds, begin_of(asked, tape.number))
            for key in [key for key in graph.foreign() if key >> TAPE_BITS == tape.number]:
                del graph.ends[key]  # it stands before all that is asked for
            if not graph.foreign():
                sweep(seeds, graph, (tape,))
                return (tape,)
    graphs: dict[int, MarkedGraph] = {}
    tapes: dict[int, Tape] = {}
    roots = {seed.slot: seed for seed in seeds}
    todo = {slot >> TAPE_BITS for slot in roots}
    with ExitStack() as stack:
        while todo:
            number = todo.pop()
            if number not in tapes:
                tapes[number] = tape_of(number << TAPE_BITS)
                stack.enter_context(tapes[number].reading())
            tape_seeds = [seed for slot, seed in roots.items() if slot >> TAPE_BITS == number]
            graph = graphs[number] = mark(tapes[number].entries, number, tape_seeds)
            for slot, spec in graph.ends.items():
                if type(slot) is int and slot not in roots:
                    roots[slot] = Seed(slot, spec, 0.0)
                    todo.add(slot >> TAPE_BITS)
        sweep(seeds, _merged(list(graphs.values()), roots), tapes.values())
    return tapes.values()


def _merged(graphs: list[MarkedGraph], roots: dict[int, Seed]) -> MarkedGraph:
    if len(graphs) == 1:
        return graphs[0]
    marked = _in_order(graphs)
    referred, split = set(roots), set()
    for instruction in marked:
        if instruction.form.kind in (CLEARS, ADDS) and instruction.operands[0] in referred:
            split.add(instruction.slot)
        referred.update(instruction.operands)
    ends = {key: end for graph in graphs for key, end in graph.ends.items() if type(key) is not int}
    return MarkedGraph(marked, ends, split)


def _in_order(graphs: list[MarkedGraph]) -> list[Instruction]:
    """Merge lists of instructions: an instruction's turn is when all that refer to it have had theirs."""
    waiting = Counter(o for graph in graphs for i in graph.marked for o in i.operands if type(o) is int)
    stacks = [graph.marked[::-1] for graph in graphs]
    merged: list[Instruction] = []
    while any(stacks):
        for stack in stacks:
            while stack and not waiting[stack[-1].slot]:
                merged.append(stack.pop())
                waiting.subtract(o for o in merged[-1].operands if type(o) is int)
    return merged


def release(tapes: Iterable[Tape], graph: MarkedGraph) -> None:
    """Drop what has been swept from its tapes."""
    for tape in tapes:
        drop(tape, tape.entries, [i for i in graph.marked if i.slot >> TAPE_BITS == tape.number])


def ends_by_tape(slots: Iterable[int]) -> Iterator[tuple[Tape, set[Any]]]:
    """Go from tape to tape; yield each with the leaves, and the slots of other tapes, that slots on it depend on."""
    pending, seen = set(slots), set[int]()
    while pending:
        tape = tape_of(next(iter(pending)))
        tape_slots = {slot for slot in pending if slot >> TAPE_BITS == tape.number}
        with tape.reading():
            ends = {end for end, _ in sweeps.leaves(tape.entries, tape.number, list(tape_slots))}
        yield tape, ends
        seen |= tape_slots
        pending = (pending - tape_slots) | {end for end in ends - seen if type(end) is int}


def order(slots: Iterable[int]) -> list[Tape] | None:
    """Return the tapes that slots depend on, each before those it depends on; None if the order is a cycle."""
    edges: dict[int, set[int]] = {}
    for tape, ends in ends_by_tape(slots):
        edges.setdefault(tape.number, set()).update([end >> TAPE_BITS for end in ends if type(end) is int])
    try:
        return [tape_of(number << TAPE_BITS) for number in TopologicalSorter(edges).static_order()][::-1]
    except CycleError:
        return None


# Backwards inside backwards: beyond some depth they go on in another thread, where Python's stack begins anew.

Result = TypeVar("Result")
MOST = 12
"""Most backwards inside each other in one thread: each takes some twenty of the thousand frames that Python allows."""


def run_in_fresh_thread(function: Callable[[], Result]) -> Result:
    """Run a function in a thread of its own, in this context, and wait for it."""
    context, outcome = contextvars.copy_context(), list[tuple[Any, BaseException | None]]()

    def run() -> None:
        try:
            outcome.append((context.run(function), None))
        except BaseException as error:  # noqa: BLE001 (it is raised again, in the thread that waits)
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="tape backward")
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


# Anomaly mode: recorded operations note the user's lines, and a backward stops at the first NaN.
#
# Outside of the mode nothing of this runs. Within it operations take the longer way, which calls ``Anomaly.notify``,
# and a sweep pauses at each instruction for Python to run its pullback, as it does for hooks, and calls
# ``Anomaly.look``.

_ENABLED = (
    "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging."
)
_NO_LINES = "No forward pass information available. Enable detect anomaly during forward pass for more information."


class Note(NamedTuple):
    """The user's lines that recorded an operation; in a recorded backward also the name and note of the forward one."""

    frames: callers.Frames
    cause: tuple[str, Note | None] | None


class Anomaly:
    """Anomaly mode. ``checks``: whether gradients are checked; ``cause``: the operation being differentiated."""

    def __init__(self, checks: bool) -> None:
        self.checks = checks
        self.cause: tuple[str, Note | None] | None = None

    def notify(self, slot: int) -> None:
        """Keep the user's lines of an operation that has been recorded."""
        # The key is an equal number, not the slot object itself: references to that are counted.
        living[slot >> TAPE_BITS].lines[slot ^ 0] = Note(callers.frames(), self.cause)

    def bad(self, values: Array) -> Array:
        """Return which elements of a gradient are wrong."""
        return np.isnan(values)

    def concerns(self, instruction: Instruction) -> bool:
        """Return whether the gradients of an instruction are checked."""
        return True

    def look(
        self, instruction: Instruction, gradients: Sequence[Any], cotangent: Any, leading: set[Any] | None = None
    ) -> None:
        """Look at the gradients that an instruction gives to its operands; ``cotangent`` is that of its result."""
        if not self.checks:
            return
        for i, (operand, value) in enumerate(zip(instruction.operands, gradients, strict=True)):
            if operand is None or value is None or not (leading is None or operand in leading):
                continue
            wrong = self.bad(_array(value))
            if wrong.any():
                self._report_first(
                    instruction, i, wrong, _array(value), None if cotangent is None else _array(cotangent)
                )

    def _report_first(
        self, instruction: Instruction, i: int, wrong: Array, value: Array, cotangent: Array | None
    ) -> None:
        index, spec = tuple(int(k) for k in np.argwhere(wrong)[0]), instruction.form.specs[i]
        if spec is not None and value.ndim > len(spec.shape):  # a batch of cotangents
            value, cotangent = value[index[0]], None if cotangent is None else cotangent[index[0]]
            index = index[1:]
        self.report(instruction, i, index, value, cotangent)

    def report(
        self, instruction: Instruction, i: int, index: tuple[int, ...], value: Array, cotangent: Array | None
    ) -> None:
        """Warn with the traceback of the forward call, as PyTorch does, and raise."""
        _explain(instruction)
        note = _note_of(instruction.slot)
        line = _NO_LINES if note is None else f"Forward call: {callers.line_of(note.frames)}"
        place = i - sum(rule is None for rule in instruction.form.op.pullback[:i])
        known = ", ".join(f"{name} = {x!r}" for name, x in known_at(instruction, i, index, value, cotangent).items())
        raise RuntimeError(
            f"Function '{instruction.form.name}' returned nan values in its {place}th output. The gradient of its "
            f"operand {element(operand_name(instruction.form, i), index)} is nan"
            + (f" ({known}). {line}" if known else f". {line}")
        )


def _array(value: Any) -> Array:
    return np.asarray(value._value if isinstance(value, Tensor) else value)


def current() -> Anomaly | None:
    """Return the anomaly mode of this thread and context; None where it is off."""
    anomaly = modes.current().anomaly
    assert anomaly is None or isinstance(anomaly, Anomaly)
    return anomaly


def observed(graph: MarkedGraph, observers: list[GradientObserver], *, restrict: bool) -> list[GradientObserver]:
    """Return the observers of a sweep; in anomaly mode also one for each instruction with a pullback."""
    anomaly = current()
    if anomaly is None or not anomaly.checks:
        return observers
    leading = relevant(graph, {o.key for o in observers if o.asked}) if restrict else None
    by_key = {o.key: o for o in observers}
    for instruction in graph.marked:
        if instruction.form.kind in (PULLS, PYTHON) and anomaly.concerns(instruction):
            fresh = GradientObserver(instruction.slot, instruction.form.spec, asked=False)
            observer = by_key.setdefault(instruction.slot, fresh)
            observer.after = _looking(anomaly, instruction, observer.after, leading)
    return list(by_key.values())


def _looking(anomaly: Anomaly, instruction: Instruction, after: Any, leading: set[Any] | None) -> Any:
    def look(gradients: list[Array | None], cotangent: Array) -> list[Array | None]:
        if after is not None:
            gradients = after(gradients, cotangent)
        anomaly.look(instruction, gradients, cotangent, leading)
        return gradients

    return look


def look(instruction: Instruction, gradients: Sequence[Any]) -> None:
    """Check, in anomaly mode, the gradients that a Function returned."""
    anomaly = current()
    if anomaly is not None:
        anomaly.look(instruction, gradients, None)


def explained(backward: Callable[..., Any], instruction: Instruction) -> Callable[..., Any]:
    """Return a user's backward; in anomaly mode, if it raises, a warning shows where forward was called."""
    if current() is None:
        return backward

    def run(*args: Any) -> Any:
        try:
            return backward(*args)
        except Exception:
            _explain(instruction)
            raise

    return run


def induced(step: Callable[[Instruction], None]) -> Callable[[Instruction], None]:
    """Return the step of a recorded sweep; in anomaly mode what it records names the differentiated operation."""
    anomaly = current()
    if anomaly is None:
        return step

    def run(instruction: Instruction) -> None:
        before, anomaly.cause = anomaly.cause, (instruction.form.name, _note_of(instruction.slot))
        try:
            step(instruction)
        finally:
            anomaly.cause = before

    return run


def _note_of(slot: int) -> Note | None:
    tape = living.get(slot >> TAPE_BITS)
    return None if tape is None else tape.lines.get(slot)


def line_of(slot: int) -> str | None:
    """Return the user's line that recorded an operation, if anomaly mode was on."""
    note = _note_of(slot)
    return None if note is None else callers.line_of(note.frames)


def _explain(instruction: Instruction) -> None:
    name, note = instruction.form.name, _note_of(instruction.slot)
    text = f"Error detected in {name}. "
    text += _NO_LINES if note is None else "Traceback of forward call that caused the error:\n"
    while note is not None:
        text += callers.formatted(note.frames)
        if note.cause is None:
            break
        name, note = note.cause
        text += f"\n\nPrevious calculation was induced by {name}. "
        text += _NO_LINES if note is None else "Traceback of forward call that induced the previous calculation:\n"
    warnings.warn(text, UserWarning, stacklevel=callers.stack_level())


def operand_name(form: Form, i: int) -> str:
    """Return the name of an operand in the rules of its operation, or its number."""
    names = [name for name, _ in grad_modes.named(form)]
    return names[i] if i < len(names) else f"number {i}"


def element(name: str, index: Iterable[int]) -> str:
    """Print an element: ``x[1, 2]``, or ``x`` of a 0-d tensor."""
    inside = ", ".join(map(str, index))
    return f"{name}[{inside}]" if inside else name


def known_at(
    instruction: Instruction, i: int, index: tuple[int, ...], value: Array, cotangent: Array | None
) -> dict[str, float]:
    """Return saved values, and the cotangent, at the place of an element of the gradient of operand ``i``."""
    form, operand = instruction.form, operand_name(instruction.form, i)
    arrays = {**dict(zip(form.saved, instruction.saved, strict=True)), "incoming gradient": cotangent}
    apart = isinstance(form.op, Elementwise)
    names = [*(name for name, _ in grad_modes.named(form)), "y", "incoming gradient"] if apart else [operand]
    values = {}
    for name in names:
        kept = arrays.get(name)
        if isinstance(kept, (float, np.ndarray)) and _fits(array := np.asarray(kept), value):
            last = index[len(index) - array.ndim :]
            at = tuple(0 if n == 1 else k for n, k in zip(array.shape, last, strict=True))
            values[element(name, at)] = array[at].item()
    return values


def _fits(array: Array, value: Array) -> bool:
    try:
        return bool(np.broadcast_shapes(array.shape, value.shape) == value.shape)
    except ValueError:
        return False


class detect_anomaly(Switch):  # noqa: N801 (PyTorch's name)
    """Within it operations note the user's lines, and a backward raises at the first NaN, naming op, element and line.

    For debugging: everything takes longer. With ``check_nan=False`` only lines are noted, for errors in the backward
    of a Function. Context manager and decorator; it holds for this thread.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()
        self.check_nan = check_nan
        warnings.warn(_ENABLED, UserWarning, stacklevel=2)

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return mode._replace(anomaly=Anomaly(self.check_nan))

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return mode._replace(anomaly=before.anomaly)

    def clone(self) -> Switch:
        """Return another that does the same; the warning has been given."""
        return _Silent(self.check_nan)


class _Silent(detect_anomaly):
    def __init__(self, check_nan: bool) -> None:
        Switch.__init__(self)
        self.check_nan = check_nan


class set_detect_anomaly(SwitchAtOnce):  # noqa: N801 (PyTorch's name)
    """Turn anomaly mode on or off at once; as a context manager the mode before comes back at its end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._arguments = bool(mode), check_nan
        super().__init__()

    def changed(self, mode: Mode) -> Mode:
        """Return the mode asked for."""
        on, checks = self._arguments
        return mode._replace(anomaly=Anomaly(checks) if on else None)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return mode._replace(anomaly=before.anomaly)

    def clone(self) -> Switch:
        """Return another that does the same."""
        return set_detect_anomaly(*self._arguments)
