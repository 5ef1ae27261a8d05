"""Anomaly mode: recorded operations note the user's lines, and a backward stops at the first NaN.

Outside of the mode nothing of this runs. Within it operations take the longer way, which calls ``Anomaly.notify``, and
a sweep pauses at each instruction for Python to run its pullback, as it does for hooks, and calls ``Anomaly.look``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.numpy_arrays import Array, Observer
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import PULLS, PYTHON, TAPE_BITS
from kernels.sweeps.graph import Graph, key_of, relevant
from tape.tensors import bytecode as callers
from tape.tensors import grad_modes, modes
from tape.tensors.grad_modes import Switch, SwitchAtOnce
from tape.tensors.modes import Mode
from tape.tensors.tapes import living
from tape.tensors.tensor import Tensor

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
        del instruction
        return True

    def look(
        self, instruction: Instruction, gradients: Sequence[Any], cotangent: Any, leading: set[Any] | None = None
    ) -> None:
        """Look at the gradients that an instruction gives to its operands; ``cotangent`` is that of its result."""
        if not self.checks:
            return
        for i, (operand, value) in enumerate(zip(instruction.operands, gradients, strict=True)):
            if operand is None or value is None or not (leading is None or key_of(operand) in leading):
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
    """Return a gradient, a tensor or an array, as an array."""
    return np.asarray(value._value if isinstance(value, Tensor) else value)


def current() -> Anomaly | None:
    """Return the anomaly mode of this thread and context; None where it is off."""
    anomaly = modes.current().anomaly
    assert anomaly is None or isinstance(anomaly, Anomaly)
    return anomaly


def observed(graph: Graph, observers: list[Observer], *, restrict: bool) -> list[Observer]:
    """Return the observers of a sweep; in anomaly mode also one for each instruction with a pullback."""
    anomaly = current()
    if anomaly is None or not anomaly.checks:
        return observers
    leading = relevant(graph, {key_of(o.key) for o in observers if o.asked}) if restrict else None
    by_key = {o.key: o for o in observers}
    for instruction in graph.marked:
        if instruction.form.kind in (PULLS, PYTHON) and anomaly.concerns(instruction):
            fresh = Observer(instruction.slot, instruction.form.spec, asked=False)
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
    """Warn with the traceback of the forward call and, in a recorded backward, of those that it differentiates."""
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
    """Whether an array has one element for each of a value's."""
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
