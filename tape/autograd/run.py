"""One backward: a native sweep of each tape that the graph touches, gradients out to leaves and observers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels import backend
from kernels.forms import Form
from kernels.layouts import Spec
from kernels.observing import Array, FreedError, Observer, Seed
from kernels.words import TAPE_BITS
from tape import errors, recording
from tape.autograd.accumulation import accumulate, deliver, shares, tape_of
from tape.modes import Tape
from tape.tensor import AccumulateGrad, Tensor, carried


def own_offset(x: Tensor) -> int | None:
    """Return where a view's gradient begins in the shadow of its family; None for other tensors."""
    form = x._form
    return x._offset if type(form) is Form and form.is_view and type(x._slot) is int else None


class Run:
    """One backward: sweeps each tape that the graph touches, then hands out what they found."""

    def __init__(self, *, free: bool, restrict: bool, required: bool = False) -> None:
        self.free = free
        self.restrict = restrict
        self.required = required
        self.leaves: list[tuple[AccumulateGrad, Array | float]] = []
        self.observers: dict[int, Observer] = {}
        self.retained: list[tuple[Tensor, Observer]] = []

    def observe(self, tensors: Sequence[Tensor]) -> list[Observer]:
        """Ask for the gradients of leaves or computed tensors; one observer for each."""
        found = []
        for x in tensors:
            if shares(x.spec):
                raise NotImplementedError(
                    "the gradient of an expanded tensor is not kept apart; take x = x.clone() before using it"
                )
            found.append(self.observers.setdefault(id(x._slot), Observer(x._slot, x.spec, own_offset(x) or 0)))
        return found

    def sweep(self, seeds: list[Seed]) -> None:
        """Sweep from the seeds: tape by tape, where a graph crosses threads."""
        pending = [seed for seed in seeds if not self._reach_leaf(seed)]
        while pending:
            tape = tape_of(pending[0].slot)
            number = tape.number
            own = pending if len(pending) == 1 else _merged([s for s in pending if s.slot >> TAPE_BITS == number])
            pending = [s for s in pending if s.slot >> TAPE_BITS != number]
            for slot, spec, value in self._sweep_one(tape, own):
                pending.append(Seed(slot, spec, value, offset_of(slot)))

    def _sweep_one(self, tape: Tape, seeds: list[Seed]) -> list[tuple[int, Spec, Array]]:
        number, observers = tape.number, []
        if self.observers:
            observers = [o for o in self.observers.values() if type(o.key) is not int or o.key >> TAPE_BITS == number]
        if tape.retained and not self.restrict:
            observers += self._retained(tape)
        before = [o.gradient for o in observers]
        with tape.lock:
            try:
                leaves, foreign = backend.run(
                    tape.entries,
                    number,
                    seeds,
                    observers,
                    restrict=self.restrict,
                    free=self.free,
                    required=self.required,
                )
            except FreedError:
                raise errors.GradError(errors.SECOND_TIME) from None
        for observer, old in zip(observers, before, strict=True):
            if old is not None:
                observer.gradient = old if observer.gradient is None else observer.gradient + old
        self.leaves += leaves
        return foreign

    def check_used(self, observers: list[Observer]) -> None:
        """Raise for an input that no output depends on."""
        for i, observer in enumerate(observers):
            if self.required and observer.gradient is None:
                raise errors.GradError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                    "Set allow_unused=True if this is the desired behavior."
                )

    def _reach_leaf(self, seed: Seed) -> bool:
        """Deliver a seed whose root is a leaf; return whether it is."""
        slot = seed.slot
        if type(slot) is int:
            return False
        value = np.broadcast_to(np.asarray(seed.value, seed.spec.dtype), seed.spec.shape).copy()
        observer = self.observers.get(id(slot))
        if observer is not None:
            observer.gradient = value if observer.gradient is None else observer.gradient + value
        elif not self.restrict:
            self.leaves.append((slot, carried(value)))
        return True

    def _retained(self, tape: Tape) -> list[Observer]:
        found = []
        for reference in list(tape.retained.values()):
            tensor = reference()
            if tensor is None:
                continue
            offset = tensor._offset if tensor._form.is_view else 0
            observer = Observer(tensor._slot, tensor.spec, offset)
            self.retained.append((tensor, observer))
            found.append(observer)
        return found

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves and of tensors that retain theirs."""
        deliver(self.leaves)
        for tensor, observer in self.retained:
            if observer.gradient is not None:
                accumulate(tensor, observer.gradient)


def _merged(seeds: list[Seed]) -> list[Seed]:
    """Return one seed a slot, the sum of those given for it."""
    merged: dict[int, Seed] = {}
    for seed in seeds:
        other = merged.setdefault(seed.slot, seed)
        if other is not seed:
            other.value = np.add(other.value, seed.value)
    return list(merged.values())


def offset_of(slot: int) -> int | None:
    """Return where a view's gradient begins in the shadow of its family, by its slot; None for other results."""
    found = recording.locate(slot)
    return found.saved[0] if found is not None and found.form.is_view else None
