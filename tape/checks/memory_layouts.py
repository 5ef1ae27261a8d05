"""The same point in other memory: a function's value and gradient must not depend on strides.

In each layout an input is a view of another tensor: every second element, dims in reverse order, or one slice
repeated by stride 0. Value and gradient are compared with those at contiguous copies of the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.checks.finite_differences import (
    Case,
    Gradients,
    differentiable,
    filled,
    memory_of,
    outputs_of,
    pull,
    random_like,
    wants,
)
from tape.recording.creation import tensor
from tape.tensors.tensor import Array, Tensor

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
        outputs = differentiable(outputs_of(case.func(*inputs)))
    except Exception:  # noqa: BLE001 (what a function takes is its own affair: view() refuses most strides)
        return None
    try:
        gradients = pull(outputs, bases, random_like(outputs)) if outputs else (None,) * len(bases)
    except np.linalg.LinAlgError:  # a matrix whose rows are expanded from one is singular
        return None
    return [memory_of(o).copy() for o in outputs], gradients, filled(gradients, bases)


def differences(case: Case, close: Close) -> Iterator[str]:
    """Yield a description of each combination of layouts for which value or gradient differs.

    Points where the last digits of the inputs decide (ties, kinks, singular matrices: repeated values make them) are
    left out, and so are layouts that the function refuses.
    """
    values = {i: memory_of(x).copy() for i, x in enumerate(case.inputs) if isinstance(x, Tensor)}
    plain = _settled(case, values, close)
    if plain is None or _from_elsewhere(case, plain[1]):
        return
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


def _from_elsewhere(case: Case, gradients: Gradients) -> bool:
    """Whether the function reads its inputs from a closure: copies passed to it are not used."""
    outputs = differentiable(case.run())
    direct = pull(outputs, case.wanted, random_like(outputs)) if outputs else gradients
    return any(d is not None and g is None for d, g in zip(direct, gradients, strict=True))


def _compared(
    case: Case, by_input: dict[int, LayoutCase], expected: Pulled, pulled: Pulled, close: Close, where: str
) -> Iterator[str]:
    if len(expected[0]) != len(pulled[0]):
        yield f"{len(pulled[0])} outputs require grad, not {len(expected[0])}, when {where}"
    for k, (value, computed) in enumerate(zip(expected[0], pulled[0], strict=False)):
        if value.shape != computed.shape or not close(computed, value):
            yield f"Output {k} has other values when {where}:\ncontiguous:{value}\nnow:{computed}\n"
    wanted = [i for i, x in enumerate(case.inputs) if wants(x)]
    for k, (i, gradient, computed) in enumerate(zip(wanted, expected[2], pulled[2], strict=True)):
        fold = by_input.get(i, PLAIN).fold
        folded, size = fold(gradient), float(fold(np.abs(gradient)).max(initial=0.0))
        if not close(computed, folded, size):
            yield f"The gradient of input {k} is another when {where}:\ncontiguous:{folded}\nnow:{computed}\n"
