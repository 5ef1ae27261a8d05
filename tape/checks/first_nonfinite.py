"""The first value that is not finite, and layouts of memory that functions are tried on."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from kernels.foundation.specs import GradientObserver, Seed
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import ADDS, CLEARS, PULLS, PYTHON, TAPE_BITS, VIEW
from kernels.rules.op import cut
from tape import errors
from tape.checks import finite_differences
from tape.checks.finite_differences import Case, Gradients, differentiable, filled, pull, random_like
from tape.engine import graph_observers
from tape.engine.graph_observers import Anomaly, element, family_offset, known_at, line_of, operand_name
from tape.engine.saved_tensors import Values, base_of, place_in
from tape.engine.sweep_run import BackwardRun
from tape.recording.creation import tensor
from tape.tensors import modes
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array

# ``tape.first_nonfinite``: the first NaN or infinity of a finished graph, without a mode switched on before.
#
# The values are what instructions saved, and what follows from those; then the gradients, swept back from the loss.
# The tape, ``.grad`` and hooks are left alone.

Hit = tuple[tuple[int, ...], float]  # the place of an element, and its value


@dataclass(frozen=True)
class NonFinite:
    """An element that is NaN or infinite; ``str()`` of it is a sentence.

    ``phase`` is "forward" or "backward". ``op`` names the operation, "" where a leaf itself is not finite. ``operand``
    is what the operation's rule calls the operand whose gradient, or value, it is; "" for the result. ``where`` is the
    number on the tape of the tensor concerned, or the name of a leaf; None for a constant. ``line`` is the user's,
    known if anomaly mode was on. ``known`` are other values at that element. ``certain`` is False where the operands of
    the operation are not kept: an earlier operation may have made it.
    """

    phase: str
    op: str
    operand: str
    index: tuple[int, ...]
    value: float
    where: int | str | None
    line: str | None
    known: tuple[tuple[str, float], ...] = ()
    certain: bool = True

    def __str__(self) -> str:
        if not self.op:
            subject = f"the leaf {self.where}" + (f" at {list(self.index)}" if self.index else "")
        elif self.phase == "backward":
            subject = f"{self.op}, gradient of its operand {element(self.operand, self.index)}"
            subject += f" (the leaf {self.where})" if isinstance(self.where, str) else ""
        elif self.operand:
            subject = f"{self.op}, its operand {element(self.operand, self.index)}"
        else:
            subject = f"{self.op}, its result {element('y', self.index)}"
        known = ", ".join(f"{name} = {value!r}" for name, value in self.known)
        return (
            f"{self.phase}: {subject} is {self.value!r}"
            + (f" ({known})" if known else "")
            + ("" if self.certain else "; its operands are not kept, an earlier operation may have made it")
            + (f"; recorded at {self.line}" if self.line else "")
        )


def first_nonfinite(loss: Tensor) -> NonFinite | None:
    """Return the first NaN or infinity in the graph of a tensor, None if there is none.

    First the values are looked at, in the order in which they were computed: those that the tape keeps, those that
    can be computed again from them, and the loss. Then the gradients, from the loss back, with ones for its gradient.
    The graph must not have been freed by a backward. Hooks are not run; the backward of a Function is.

    Raises:
        GradError: The tensor has no graph, or part of it has been freed.
    """
    if not isinstance(loss, Tensor):
        raise TypeError(f"first_nonfinite takes a tensor, not {type(loss).__name__}")
    if loss._slot is None:
        raise errors.GradError(errors.NO_GRAPH.format(0))
    frame = sys._getframe(1)
    names = {}
    for name, x in (*frame.f_globals.items(), *frame.f_locals.items()):
        if isinstance(x, Tensor) and type(x._slot) is AccumulateGrad and name.isidentifier():
            names[id(x._slot)] = name
    search = _Search(_graph(loss), loss, names)
    return search.forward() or search.backward(loss)


def _graph(loss: Tensor) -> list[Instruction]:
    if type(loss._slot) is not int:
        return []
    order: list[Instruction] = []
    graph_observers.on_all_tapes([Seed(loss._slot, loss.spec, 1.0)], lambda _, graph, __: order.extend(graph.marked))
    return order[::-1]


def _first(values: Array | None) -> Hit | None:
    if values is None or values.dtype.kind != "f":
        return None
    if np.isfinite(values).all() if values.ndim else math.isfinite(values.item()):
        return None
    index = tuple(int(k) for k in np.argwhere(~np.isfinite(values))[0])
    return index, values[index].item()


_SELECTING = {np.where.__name__, cut.__name__}


def _hides(form: Form) -> bool:
    """Whether an instruction may turn a gradient that is not finite into finite ones.

    A product with it is never finite; a rule that selects, a write that clears it, and Python's pullbacks may drop it.
    """
    rules = [rule.__code__.co_names for rule in form.op.pullback if rule is not None]
    selects = any(_SELECTING.intersection(names) for names in rules) or getattr(form.op, "selects", False)
    return form.kind != VIEW and (form.kind != PULLS or selects)


class _SearchEnded(Exception):  # noqa: N818 (it ends a sweep, and is no error)
    def __init__(self, result: NonFinite) -> None:
        super().__init__()
        self.result = result


class _Search(Anomaly):
    """Looks at the values of a graph, then, as anomaly mode does, at the gradients that its pullbacks return."""

    def __init__(self, order: list[Instruction], loss: Tensor, names: dict[int, str]) -> None:
        super().__init__(checks=True)
        self.names = names
        self.values = Values(order)
        self.values.known[loss._slot] = np.asarray(loss._value)
        slots = [loss._slot, *(o for i in order for o in i.operands)]
        self.leaves = {o: o for o in slots if type(o) is AccumulateGrad}
        hits: dict[Any, Hit] = {}
        for instruction in self.values.order:
            if instruction.form.kind == VIEW and (hit := _first(self.values.known.get(instruction.slot))):
                base, spec = base_of(instruction, self.values.by_slot.get)
                hits.setdefault(base, (place_in(spec, instruction.form, instruction.saved[0], hit[0]), hit[1]))
        self.shown = hits
        self.suspects: set[int] = set()

    def forward(self) -> NonFinite | None:
        """Look at leaves, then at constants and results in the order of the tape."""
        for key, leaf in self.leaves.items():
            hit = _first(self.values.known.get(key)) or self.shown.get(key)
            if hit is not None:
                return NonFinite("forward", "", "", *hit, self._where(leaf), None)
        with np.errstate(all="ignore"):
            hits = (self._constant(i) or self._result(i) for i in self.values.order)
            return next((hit for hit in hits if hit is not None), None)

    def _constant(self, instruction: Instruction) -> NonFinite | None:
        """Look for a NaN in operands that are constants. An infinity may be intended: its effect shows later."""
        for i, operand in enumerate(instruction.operands):
            value = self.values.operand(instruction, i) if operand is None else None
            if value is not None and value.dtype.kind == "f" and np.isnan(value).any():
                index = tuple(int(k) for k in np.argwhere(np.isnan(value))[0])
                return self._at(instruction, "forward", operand_name(instruction.form, i), (index, np.nan), None, {})
        return None

    def _result(self, instruction: Instruction) -> NonFinite | None:
        value = self.values.of(instruction)  # of views too: others are computed from them
        hit = None if instruction.form.kind == VIEW else _first(value) or self.shown.get(instruction.slot)
        if hit is None:
            return None
        others, values = {}, [self.values.operand(instruction, i) for i in range(len(instruction.operands))]
        for i, known in enumerate(values):
            if known is not None and known.shape in ((), instruction.form.spec.shape):
                index = hit[0] if known.ndim else ()
                others[element(operand_name(instruction.form, i), index)] = known[index].item()
        certain = all(known is not None for known in values)
        return self._at(instruction, "forward", "", hit, instruction.slot, others, certain=certain)

    def backward(self, loss: Tensor) -> NonFinite | None:
        """Look at gradients, from the loss back."""
        if type(loss._slot) is not int:
            return None
        ones = 1.0 if loss.spec.size == 1 else np.ones(loss.spec.shape, loss.spec.dtype)
        bare = modes.current()._replace(grad=False, recorder=None, anomaly=None, inference=False)
        seed = Seed(loss._slot, loss.spec, ones, family_offset(loss))
        try:
            with modes.under(bare), np.errstate(all="ignore"):
                if not self._bad([i for i in self.values.order if _hides(i.form)], seed):
                    return None
                self._suspect(seed)
                modes.set_mode(bare._replace(anomaly=self))
                if self.suspects:
                    _ObservedRun([]).sweep([seed])
        except _SearchEnded as end:
            return end.result
        return None

    def _bad(self, watched: list[Instruction], seed: Seed) -> set[Any]:
        """Return the keys of leaves, and of the results of some instructions, whose gradients are not finite."""
        run = _ObservedRun(watched)
        run.sweep([seed])
        bad = {leaf for leaf, value in run.leaves if not np.isfinite(value).all()}
        return bad | {k for k, o in run.watched.items() if o.gradient is not None and _first(o.gradient) is not None}

    def _suspect(self, seed: Seed) -> None:
        """Find, by a native sweep, the instructions that may return such gradients: all, if a write may hide some."""
        order = self.values.order
        self.suspects = {i.slot for i in order}
        if any(i.form.kind in (CLEARS, ADDS) for i in order):
            return
        bad = self._bad([i for i in order if i.form.kind in (PULLS, PYTHON)], seed)
        self.suspects = {i.slot for i in order if any(self._home(o) in bad for o in i.operands if o is not None)}

    def _home(self, operand: Any) -> Any:
        """Return the key of an operand, or of its base: that in whose gradient buffer the operand's gradient is."""
        view = self.values.by_slot.get(operand)
        return operand if view is None or view.form.kind != VIEW else base_of(view, self.values.by_slot.get)[0]

    def concerns(self, instruction: Instruction) -> bool:
        """Return whether the gradients of an instruction are checked."""
        return instruction.slot in self.suspects

    def bad(self, values: Array) -> Array:
        """Return which elements of a gradient are not finite."""
        return ~np.isfinite(values)

    def report(
        self, instruction: Instruction, i: int, index: tuple[int, ...], value: Array, cotangent: Array | None
    ) -> NoReturn:
        """End the search."""
        name, known = operand_name(instruction.form, i), self.values.operand(instruction, i)
        values = {} if known is None or known.shape != value.shape else {element(name, index): known[index].item()}
        values |= known_at(instruction, i, index, value, cotangent)
        where = instruction.operands[i]
        raise _SearchEnded(self._at(instruction, "backward", name, (index, value[index].item()), where, values))

    def _at(
        self, instruction: Instruction, phase: str, operand: str, hit: Hit, where: Any, known: dict[str, float], *,
        certain: bool = True,
    ) -> NonFinite:  # fmt: skip
        op, line, items = instruction.form.op.name, line_of(instruction.slot), tuple(known.items())
        return NonFinite(phase, op, operand, *hit, self._where(where), line, items, certain)

    def _where(self, where: Any) -> int | str | None:
        """Return the number of a tensor on the tape, the name of a leaf, None for a constant."""
        if type(where) is not AccumulateGrad:
            return None if where is None else int(where)
        return self.names.get(id(where), f"of shape {list(where.spec.shape)}")


class _ObservedRun(BackwardRun):
    """A backward that observes these instructions alone; no hooks run, and no ``.grad`` changes."""

    def __init__(self, watched: list[Instruction]) -> None:
        super().__init__(free=False, restrict=False)
        self.watched = {i.slot: GradientObserver(i.slot, i.form.spec, asked=False) for i in watched}

    def observers(self, tape: Tape, seeds: list[Seed]) -> list[GradientObserver]:
        """Return the observers of a tape."""
        return [o for slot, o in self.watched.items() if slot >> TAPE_BITS == tape.number]


# The same point in other memory: a function's value and gradient must not depend on strides.
#
# In each layout an input is a view of another tensor: every second element, dims in reverse order, or one slice
# repeated by stride 0. Value and gradient are compared with those at contiguous copies of the same values.

Pulled = tuple[list[Array], Gradients, list[Array]]
"""Values of the outputs, the inputs' gradients (None where unused), and these as arrays."""

Close = Callable[..., bool]
"""Whether a first array agrees with a second, the expected one, up to rounding of numbers of a third's size."""


@dataclass(frozen=True, slots=True)
class LayoutCase:
    """``view(tensor(store(x)))`` has the values ``values(x)``; ``fold`` takes its gradient to what was stored."""

    name: str
    store: Callable[[Array], Array]
    view: Callable[[Tensor], Tensor]
    fold: Callable[[Array], Array]
    values: Callable[[Array], Array]


def _same(x: Any) -> Any:
    return x


def _spread(x: Array, gap: float) -> Array:
    """Return an array twice as long whose every second element is the given one's, with gaps between."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), gap if x.dtype.kind == "f" else 0, x.dtype)
    wide[..., 1::2] = x
    return wide


PLAIN = LayoutCase("contiguous", _same, _same, _same, _same)
STRIDED = LayoutCase(
    "every second element of a larger tensor",
    lambda x: _spread(x, np.nan),
    lambda t: t[..., 1::2],
    lambda g: _spread(g, 0.0),
    _same,
)
TURNED = LayoutCase(
    "a transposed tensor", lambda x: x.T.copy(), lambda t: t.permute(*reversed(range(t.ndim))), lambda g: g.T, _same
)


def expanded(shape: tuple[int, ...], axis: int) -> LayoutCase:
    """Return the layout in which the first slice of an axis is repeated."""

    def first(x: Array) -> Array:
        return x.take([0], axis)

    return LayoutCase(
        f"a tensor expanded along dim {axis}",
        first,
        lambda t: t.expand(*shape),
        lambda g: g.sum(axis, keepdims=True),
        lambda x: np.broadcast_to(first(x), shape),
    )


def layouts_of(shape: tuple[int, ...]) -> Iterator[LayoutCase]:
    """Yield the other layouts that a tensor of a shape may have; none for one element or less."""
    long = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not long or 0 in shape:
        return
    yield STRIDED
    if len(long) > 1:
        yield TURNED
    for axis in long:
        yield expanded(shape, axis)


def _pulled(case: Case, by_input: dict[int, LayoutCase], values: dict[int, Array]) -> Pulled | None:
    stored = {
        i: tensor(by_input.get(i, PLAIN).store(v), requires_grad=case.inputs[i].requires_grad)
        for i, v in values.items()
    }
    bases = [t for t in stored.values() if t.requires_grad]
    try:
        inputs = [by_input.get(i, PLAIN).view(stored[i]) if i in stored else x for i, x in enumerate(case.inputs)]
        outputs = differentiable(finite_differences.outputs_of(case.func(*inputs)))
    except Exception:  # noqa: BLE001 (what a function takes is its own affair: view() refuses most strides)
        return None
    try:
        gradients = pull(outputs, bases, random_like(outputs)) if outputs else (None,) * len(bases)
    except np.linalg.LinAlgError:  # a matrix whose rows are expanded from one is singular
        return None
    return [as_array(o).copy() for o in outputs], gradients, filled(gradients, bases)


def differences(case: Case, close: Close) -> Iterator[str]:
    """Yield a description of each combination of layouts for which value or gradient differs.

    Points where the last digits of the inputs decide (ties, kinks, singular matrices: repeated values make them) are
    left out, and so are layouts that the function refuses.
    """
    values = {i: as_array(x).copy() for i, x in enumerate(case.inputs) if isinstance(x, Tensor)}
    plain = _settled(case, values, close)
    if plain is None:
        return
    outputs = differentiable(case.run())
    direct = pull(outputs, case.wanted, random_like(outputs)) if outputs else plain[1]
    if any(d is not None and g is None for d, g in zip(direct, plain[1], strict=True)):
        return  # the function reads its inputs from a closure: copies passed to it are not used
    for by_input in _combinations(values):
        held = {i: np.array(by_input.get(i, PLAIN).values(v), order="C") for i, v in values.items()}
        repeated = any(layout.values is not _same for layout in by_input.values())
        expected = _settled(case, held, close) if repeated else plain
        pulled = None if expected is None else _pulled(case, by_input, held)
        if expected is not None and pulled is not None:
            where = " and ".join(f"input {i} is {layout.name}" for i, layout in by_input.items())
            yield from _compared(case, by_input, expected, pulled, close, where)


def _settled(case: Case, values: dict[int, Array], close: Close) -> Pulled | None:
    """Return values and gradients at contiguous inputs; None unless finite, and the same nearby."""
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        pulled = _pulled(case, {}, values)
        nearby = [_pulled(case, {}, {i: _jittered(v, rng) for i, v in values.items()}) for _ in range(3)]
    for moved in nearby:
        if pulled is None or moved is None:
            return None
        pairs = zip(pulled[0] + pulled[2], moved[0] + moved[2], strict=False)
        if not all(a.shape == b.shape and np.isfinite(a).all() and close(b, a) for a, b in pairs):
            return None
    return pulled


def _jittered(x: Array, rng: np.random.Generator) -> Array:
    """Return floating values with a few of their last digits changed."""
    if x.dtype.kind != "f" or not x.size:
        return x
    size = np.abs(x)
    noise = rng.uniform(-16, 16, x.shape) * np.finfo(x.dtype).eps
    return np.asarray(x + noise * (size + size.max()), x.dtype)


def _combinations(values: dict[int, Array]) -> Iterator[dict[int, LayoutCase]]:
    of = {i: list(layouts_of(v.shape)) for i, v in values.items()}
    yield from ({i: layout} for i, layouts in of.items() for layout in layouts)
    for layout in (STRIDED, TURNED):
        together = [i for i, layouts in of.items() if layout in layouts]
        if len(together) > 1:
            yield dict.fromkeys(together, layout)


def _compared(
    case: Case, by_input: dict[int, LayoutCase], expected: Pulled, pulled: Pulled, close: Close, where: str
) -> Iterator[str]:
    if len(expected[0]) != len(pulled[0]):
        yield f"{len(pulled[0])} outputs require grad, not {len(expected[0])}, when {where}"
    for k, (value, computed) in enumerate(zip(expected[0], pulled[0], strict=False)):
        if value.shape != computed.shape or not close(computed, value):
            yield f"Output {k} has other values when {where}:\ncontiguous:{value}\nnow:{computed}\n"
    wanted = [i for i, x in enumerate(case.inputs) if finite_differences.wants(x)]
    for k, (i, gradient, computed) in enumerate(zip(wanted, expected[2], pulled[2], strict=True)):
        fold = by_input.get(i, PLAIN).fold
        folded, size = fold(gradient), float(fold(np.abs(gradient)).max(initial=0.0))
        if not close(computed, folded, size):
            yield f"The gradient of input {k} is another when {where}:\ncontiguous:{folded}\nnow:{computed}\n"
