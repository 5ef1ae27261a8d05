"""Second and third derivatives by recorded backwards, beside PyTorch's: small programs of several kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.array_workloads import MLP_SMALL
from bench.bars import PAIRS, SECOND, Scoreboard
from bench.rows import pytorch, tape
from bench.workloads import rosenbrock
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

POINT, LARGER = np.linspace(-1.2, 1.3, 10), np.linspace(-1.2, 1.3, 1000)


def _ways(lib: Any) -> dict[str, Callable[[], Any]]:
    """Return each program, which gives arrays."""

    def leaf(array: Any) -> Any:
        return lib.tensor(array, dtype=lib.float64, requires_grad=True)

    grad, x, larger, a, b = lib.autograd.grad, leaf(POINT), leaf(LARGER), leaf(1.3), leaf(0.7)
    weights, along = [leaf(w) for w in MLP_SMALL.leaves], lib.tensor(POINT, dtype=lib.float64)
    steps = [w.detach() for w in weights]
    number = lib.tensor(1.3, dtype=lib.float64)
    again = lib.func.grad(lib.func.grad(lambda v: v * number + v.sin()))
    inner = lib.func.grad(lambda v: rosenbrock(lib, v))
    outer = lib.func.grad(lambda v: (inner(v) * v).sum())

    def first(y: Any, at: Any) -> Any:
        return grad(y, at, create_graph=True)

    def of_chain(order: int) -> Any:
        y = a * b + a.sin()
        for _ in range(order - 1):
            (y,) = first(y, a)
        return grad(y, a)

    def of_slices(at: Any, order: int) -> Any:
        y = rosenbrock(lib, at)
        for _ in range(order - 1):
            y = (first(y, at)[0] * at).sum()
        return grad(y, at)

    def penalty() -> Any:
        for w in weights:
            w.grad = None
        sum((g**2).sum() for g in first(MLP_SMALL.function(lib, *weights), weights)).backward()
        return [w.grad for w in weights]

    def backwards() -> Any:
        x.grad = None
        rosenbrock(lib, x).backward(create_graph=True)
        found, x.grad = x.grad, None
        (found**2).sum().backward()
        return [x.grad]

    return {
        "x*y + sin(x), second": lambda: of_chain(2),
        "x*y + sin(x), third": lambda: of_chain(3),
        "x*y + sin(x), func.grad(func.grad)": lambda: [again(number)],
        "Rosenbrock n=1000, second": lambda: of_slices(larger, 2),
        "Rosenbrock n=10, third": lambda: of_slices(x, 3),
        "Rosenbrock n=10, Hessian-vector product": lambda: grad(first(rosenbrock(lib, x), x), x, [along]),
        "Rosenbrock n=10, func.grad of func.grad": lambda: [outer(along)],
        "Rosenbrock n=10, backward(create_graph)": backwards,
        "MLP 64-64-10, Hessian-vector product": lambda: grad(
            first(MLP_SMALL.function(lib, *weights), weights), weights, steps
        ),
        "MLP 64-64-10, gradient penalty": penalty,
    }


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("way", SECOND)
def test_beside_pytorch(way: str, scoreboard: Scoreboard) -> None:
    """The interleaved ratio of a program."""
    ours, theirs = _ways(tape())[way], _ways(pytorch())[way]
    for mine, other in zip(ours(), theirs(), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-8, atol=1e-12)
    measured = ratio(theirs, ours, pairs=PAIRS)
    scoreboard.add(SECOND[way], measured.median, str(measured))
