"""Gradients at equal eigenvalues and singular values, where cotangents alone do not tell them.

There the vectors are any basis of theirs. With K(d) for how a function changes as two of them turn towards each other,
d being how far their values are apart, the gradient has K(d) / d, and K(0) is 0 if the function is of the matrix at
all. The limit K'(0) is a derivative of cotangents, so it needs a recorded backward (Daleckii and Krein's divided
differences for functions of matrices, Lewis and Sendov's Hessian for those of eigenvalues, are instances). Sweeps that
are not recorded ask for one where they come to such an instruction, and are run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import numpy as np

from kernels.kinds.form import Form
from kernels.kinds.routine import Unsettled, kept_values
from kernels.operations import decompositions
from kernels.rules.op import turned
from tape.engine.double_backward import RecordedRun
from tape.engine.saved_tensors import SavedTensors
from tape.engine.sweep_run import BackwardRun, leaves_of, seeds_of, starts_of
from tape.recording import record
from tape.recording.routine_calls import SETTLED, hooked
from tape.tensors import modes
from tape.tensors.hooks import implements
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor
from tape.tensors.view_families import base_of

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
_ORDERS, _SHORT = 3, 2000
"""How often a function's change along turns of equal vectors is derived; once after more instructions than that."""
_UNITS = 1000
"""How many units of rounding may be left of what vanishes; ten times more each time that it is derived."""

_FIRST: ContextVar[Any] = ContextVar("tape_first", default=None)
"""The slot of an instruction whose gradient nobody will derive: first derivatives of cotangents are enough there."""
_WITHIN: ContextVar[bool] = ContextVar("tape_within", default=False)
"""Whether limits are being computed: those of other instructions, on the way, would need ever higher derivatives."""


def settled(
    sweep: Callable[[], Result], roots: Sequence[Tensor], weights: Sequence[Any], batch: int = 0, known: Any = None
) -> Result:
    """Run a sweep from these roots; again, where it needs derivatives of cotangents, with what they are."""
    try:
        if not known:
            return sweep()
    except Unsettled as raised:
        known = {raised.instruction.slot: _by_recording(raised.instruction, roots, weights, batch)}
    while True:
        token = SETTLED.set(known)
        try:
            return sweep()
        except Unsettled as raised:
            instruction = raised.instruction
        finally:
            SETTLED.reset(token)
        known = {**known, instruction.slot: _by_recording(instruction, roots, weights, batch)}


def _by_recording(instruction: Any, roots: Sequence[Tensor], weights: Sequence[Any], batch: int) -> Array | None:
    """Return the gradient of an instruction's operand by a recorded sweep; of a batch of cotangents row by row."""
    if batch:
        rows = [[None if w is None else w[k] for w in weights] for k in range(batch)]
        gradients = [_by_recording(instruction, roots, row, 0) for row in rows]
        return None if any(x is None for x in gradients) else np.stack(gradients)  # type: ignore[arg-type]
    tensors = SavedTensors([instruction])
    y = tensors.tensor(instruction.slot, kept_values(instruction)["y"], instruction.form.spec)
    token = _FIRST.set(y._slot)
    try:
        with modes.under(modes.current()._replace(grad=True, recorder=None, pack=None, anomaly=None)):
            gradient = _gradient(roots, weights, y)
            (result,) = instruction.saved[0].pull_tensors(instruction, gradient, {}, tensors)
    except (RuntimeError, NotImplementedError):  # what cannot be differentiated twice
        return None
    finally:
        _FIRST.reset(token)
    return as_array(result)


def _gradient(roots: Sequence[Tensor], weights: Sequence[Any], y: Tensor, *, create: bool = True) -> Tensor:
    """Return the gradient by an instruction's result, which can be derived again if ``create``."""
    linked = [(root, weight) for root, weight in zip(roots, weights, strict=True) if root._slot is not None]
    if linked:
        run, key = _stopped_at(y, *zip(*linked, strict=True), create=create, asked=(y,))
        if (gradient := run.result(*key)) is not None:
            return gradient  # type: ignore[no-any-return]
    return constant_tensor(np.zeros(y.spec.shape, y.spec.dtype))


def _stopped_at(y: Tensor, roots: Any, weights: Any, *, create: bool, asked: Sequence[Tensor]) -> tuple[Any, list[Any]]:
    """Sweep, but not on through the instruction of y; free nothing."""

    def swept() -> tuple[Any, list[Any]]:
        run: Any = (RecordedRun if create else partial(BackwardRun, free=False))(restrict=bool(asked))
        keys = run.observe(asked)
        run.sweep((starts_of if create else seeds_of)(roots, weights))
        return run, keys

    nothing = np.zeros(y._form.specs[0].shape, y.spec.dtype)  # type: ignore[union-attr]
    return settled(swept, roots, weights, known={**SETTLED.get(), y._slot: nothing})


@implements(decompositions.turned_over_gaps)
def _turned_over_gaps(x: Tensor, w: Tensor, touched: Any, g_w: Tensor, moves: Any) -> Any:
    """Return the quotients, and their limits where they are known."""
    plain = decompositions.over_gaps(decompositions.odd(x), w, touched)
    pairs, recorder = decompositions.near(as_array(w), wide=True) & np.asarray(touched), modes.current().recorder
    if recorder is not None and recorder.has_guards:
        bool(np.any(decompositions.near(w, wide=True) & touched))
    if not pairs.any() or not isinstance(base_of(w)._form, Form):
        return plain
    if recorder is not None:  # whose replays have other values
        record.note_unrecorded(w, "a derivative at equal eigenvalues or singular values")
        return plain
    if hooked() or _WITHIN.get():
        return plain
    token = _WITHIN.set(True)
    create = _FIRST.get() != base_of(w)._slot
    try:
        with modes.under(modes.current()._replace(grad=True, pack=None, anomaly=None)):
            limits = _Limits(x, w, g_w, moves, create)
            fits = pairs & limits.fit()
            return np.where(fits, limits.to_second_order(fits) if create else limits.first, plain)
    except (RuntimeError, NotImplementedError, Unsettled):  # what cannot be differentiated that often
        return plain
    finally:
        _WITHIN.reset(token)


@implements(decompositions.independent)
def _independent(w: Tensor, touched: Any, g_w: Tensor, made: Callable[[], Tensor]) -> Tensor | None:
    """Return the operand, to differentiate by it, where cotangents of the values alone depend on none of its leaves."""
    y = base_of(w)
    if modes.current().recorder is not None or not isinstance(y._form, Form) or np.any(np.asarray(touched)):
        return None
    instruction = record.locate(y._slot) if decompositions.near(as_array(w), wide=True).any() else None
    if instruction is None or not leaves_of((g_w,)).isdisjoint(leaves_of((y,))):
        return None
    with modes.under(modes.current()._replace(grad=False)):
        a = as_array(made())
    spec: Any = instruction.form.specs[0]
    return SavedTensors([instruction]).tensor(instruction.operands[0], a, spec)


class _Limits:
    """The limits of K_ij / (w_j - w_i) as these values part, and whether they are there."""

    def __init__(self, x: Tensor, w: Tensor, g_w: Tensor, moves: Callable[[Any], Any], create: bool) -> None:
        self.x, self.w, self.g_w, self.moves, self.y = x, w, g_w, moves, base_of(w)
        turns = [self._moved(g_w[..., k], create)[1] for k in range(w.shape[-1])]
        columns = [decompositions.odd(x)[..., :, k] for k, x in enumerate(turns)]
        self.column = np.stack(columns, axis=-1)
        self.first = (self.column + turned(self.column)) * 0.5

    def _moved(self, z: Tensor, create: bool) -> Any:
        return self.moves(_gradient((z.sum(),), (None,), self.y, create=create))

    def fit(self) -> Any:
        """Return for which pairs the limits are the quotients, as far as rounding lets one say that."""
        x, w, first = as_array(self.x), as_array(self.w), as_array(self.first)
        gaps = w[..., None, :] - w[..., :, None]
        scale = np.max(np.abs(w), axis=-1)
        scale = np.where(scale == 0, 1.0, scale)
        bound = np.sum(np.abs(x) + np.abs(first) * scale[..., None, None], axis=(-2, -1))
        bound = bound + np.sum(np.abs(as_array(self.g_w)), axis=-1) * scale
        units = _UNITS * np.finfo(w.dtype).eps
        close = np.abs(decompositions.odd(x) - gaps * first) <= units * bound[..., None, None]
        equal = decompositions.near(w)
        return close & (~equal | self._invariant(equal, scale, bound, units)[..., None, None])

    def _invariant(self, equal: Array, scale: Array, bound: Array, units: float) -> Array:
        """Return whether nothing changes as vectors of equal values turn, whatever the other operands."""
        numbers = np.random.default_rng(0).normal(size=equal.shape)
        turn = np.where(equal, numbers - turned(numbers), 0.0).astype(self.x.spec.dtype)
        z = start = (self.x * turn).sum((-2, -1))
        good, short = np.full(scale.shape, True), start._slot is not None and start._slot < self.y._slot + _SHORT
        for order in range(_ORDERS):
            again = short and order < _ORDERS - 1
            by_w, x = self._moved(z, again)
            bound = np.maximum(bound, np.sum(np.abs(as_array(x)), axis=(-2, -1)))
            bound = np.maximum(bound, np.sum(np.abs(as_array(by_w)), axis=-1) * scale)
            good &= np.abs(as_array(z)) <= units * 10**order * bound
            if order == 0:
                rest = as_array(by_w) + 2.0 * np.sum(turn * as_array(self.first), axis=-1)
                good &= np.max(np.abs(rest), axis=-1) * scale <= units * bound
            z = (x * turn).sum((-2, -1))
            if not again:
                break
        good &= np.abs(as_array(z)) <= units * 10**_ORDERS * bound
        return good & self._alone(start.sum(), scale.max(), units * bound.max())

    def _alone(self, z: Tensor, scale: float, bound: float) -> bool:
        """Whether what changes as vectors turn depends on nothing but the values and the vectors."""
        if z._slot is None:
            return True
        run, _ = _stopped_at(self.y, (z,), (None,), create=False, asked=())
        return all(np.max(np.abs(g), initial=0.0) * (_size(leaf) or scale) <= bound for leaf, g in run.leaves)

    def to_second_order(self, pairs: Array) -> Any:
        """Return the limits with their derivatives along the gaps d: K'(d) - K''(d) d / 2; third ones are nan."""
        second: Any = 0.0
        for *at, i, j in np.argwhere(np.triu(pairs)):
            by_w = self._moved(self.first[(*at, i, j)], True)[0][tuple(at)]
            place = np.zeros(pairs.shape, self.x.spec.dtype)
            place[(*at, i, j)], place[(*at, j, i)] = 0.25, -0.25
            second = second + (by_w[j] - by_w[i]) * place
        gaps = self.w[..., None, :] - self.w[..., :, None]
        nothing = abs(gaps - gaps.detach())
        return self.first - gaps * second + nothing**1.5


def _size(leaf: AccumulateGrad) -> float:
    x = leaf.owner()
    return 0.0 if x is None else float(np.max(np.abs(as_array(x)), initial=0.0))
