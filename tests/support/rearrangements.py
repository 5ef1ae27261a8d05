"""Expressions that move elements about, run by PyTorch and by tensors; values, gradients and replays compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.sweeps import reverse
from tests.support.pytorch_outcomes import Outcomes, Raised, result_or_error

Array = np.ndarray[Any, Any]

INTEGERS = {
    "i": [2, 0],
    "j": [[0, 2, 1], [1, 1, 0]],
    "k": [[0, 1, 0]],
    "e": [1, 1, 0, 1],
    "q": [0, 2, 1],
}
MASKS = {"m": [True, False, True], "M": [[True, False, True], [False, True, False]]}


def leaves(seed: int = 0) -> list[Array]:
    """Return x of 3, w of (2, 3), b of (2, 3, 4), a number s and a square c, no two elements alike."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(n) / 4.0 + rng.uniform(0.5, 0.6) for n in (3, 6, 24, 1, 16)]


SHAPES = ((3,), (2, 3), (2, 3, 4), (), (4, 4))


def evaluated(text: str, library: Any, inputs: list[Any]) -> list[Any]:
    """Return what an expression gives, as a list of tensors."""
    names: dict[str, Any] = dict(zip("xwbsc", inputs, strict=True))
    names |= {name: library.tensor(value) for name, value in (INTEGERS | MASKS).items()}
    functional = library.nn.functional if hasattr(library, "nn") else library
    found = eval(text, {"torch": library, "np": np, "pad": functional.pad, **names})  # noqa: S307 (our own text)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def weighted(results: list[Any], library: Any) -> Any:
    """Return one number: the sum of the squares of all results, with weights."""
    total: Any = 0.0
    for k, result in enumerate(results):
        weights = library.tensor(np.arange(1.0, result.numel() + 1).reshape(tuple(result.shape)) + k)
        total = total + (result * result * weights).sum()
    return total


def inputs(library: Any, seed: int = 0) -> list[Any]:
    """Return the leaves as tensors of a library."""
    arrays = [a.reshape(shape) for a, shape in zip(leaves(seed), SHAPES, strict=True)]
    return [library.tensor(a, requires_grad=True, dtype=library.float64) for a in arrays]


def derivatives(text: str, library: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return results, gradients, and the gradients of those in a direction; None where there is none."""
    given = inputs(library)
    results = evaluated(text, library, given)
    if not any(r.requires_grad for r in results):
        return results, [], []
    loss = weighted([r for r in results if r.requires_grad], library)
    first = library.autograd.grad(loss, given, create_graph=True, allow_unused=True)
    slope = weighted([g for g in first if g is not None], library)
    second = library.autograd.grad(slope, given, allow_unused=True)
    return results, list(first), list(second)


def compare(text: str, pytorch: Outcomes) -> None:
    """Check values, shapes and dtypes, first and second gradients against PyTorch's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reverse, "NATIVE", False)  # kernels take a tenth of a second each to compile
        mine = derivatives(text, tape)
    theirs = pytorch(lambda torch: derivatives(text, torch), text)
    assert len(mine[0]) == len(theirs[0])
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        assert a.dtype == b.detach().numpy().dtype
        assert a.requires_grad == b.requires_grad
    for ours, other in zip(mine, theirs, strict=True):
        for a, b in zip(ours, other, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-12)


def compare_replay(text: str) -> None:
    """Check that a program replayed on other leaves, natively swept, gives what a fresh run gives."""

    def loss(*given: Any) -> Any:
        return weighted([r for r in evaluated(text, tape, list(given)) if r.dtype == np.float64], tape)

    program = tape.record(loss, *inputs(tape))
    other = inputs(tape, seed=1)
    value, gradients = program.value_and_grad(*other)
    fresh = loss(*other)
    fresh.backward()
    assert value.item() == fresh.item()
    for found, leaf in zip(gradients, other, strict=True):
        wanted = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        if reverse.NATIVE:
            np.testing.assert_array_equal(found.detach().numpy(), wanted)
        else:  # a plain sweep adds in NumPy's order
            np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-14)


def compare_numpy(text: str) -> None:
    """Check values, shapes, dtypes and kinds of results against NumPy's, and gradients by differences."""
    arrays = [a.reshape(shape) for a, shape in zip(leaves(), SHAPES, strict=True)]
    theirs = eval(text, {"np": np, **dict(zip("xwbsc", arrays, strict=True))})  # noqa: S307 (our own text)
    given = inputs(tape)
    mine = eval(text, {"np": np, **dict(zip("xwbsc", given, strict=True))})  # noqa: S307
    assert isinstance(mine, (tuple, list)) == isinstance(theirs, (tuple, list))
    pairs = list(zip(mine, theirs, strict=True)) if isinstance(theirs, (tuple, list)) else [(mine, theirs)]
    for a, b in pairs:
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-13)
    floats = [a for a, _ in pairs if a.requires_grad]
    if not floats:
        return
    directions = [np.random.default_rng(3).uniform(-1, 1, a.shape) for a in arrays]

    def moved(step: float) -> Any:
        space = {name: a + step * d for name, a, d in zip("xwbsc", arrays, directions, strict=True)}
        found = eval(text, {"np": np, **space})  # noqa: S307
        found = found if isinstance(found, (tuple, list)) else [found]
        return sum((np.asarray(f, float) ** 2 * (k + 1)).sum() for k, f in enumerate(found))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reverse, "NATIVE", False)
        loss = sum((a * a).sum() * (k + 1) for k, (a, _) in enumerate(pairs) if a.requires_grad)
        gradients = tape.autograd.grad(loss, given, materialize_grads=True)
    slope = sum((g.numpy() * d).sum() for g, d in zip(gradients, directions, strict=True))
    rtol = 1e-2 if any(a.dtype == np.float32 for a in floats) else 1e-6
    np.testing.assert_allclose(slope, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=rtol)


def compare_errors(text: str, pytorch: Outcomes) -> None:
    """Check that both raise, errors of one class, and that leaves are as before."""
    given = inputs(tape)
    theirs = pytorch.or_error(lambda m: evaluated(text, m, inputs(m)), text)
    mine = result_or_error(lambda m: evaluated(text, m, given), tape)
    assert isinstance(theirs, Raised), "PyTorch raises nothing"
    assert isinstance(mine, Raised), f"PyTorch raises {theirs}"
    assert theirs.classes[0] in mine.classes, f"{mine}; PyTorch raises {theirs}"
    assert len(mine.text) > len("index out of range")
    for leaf, array in zip(given, leaves(), strict=True):
        assert leaf.grad is None
        np.testing.assert_array_equal(leaf.detach().numpy().reshape(-1), array)
