"""Every public function, compiled with its gradient, is replayed, and is what dynamic mode gives, bit for bit."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.representatives import examples
from tests.support.rounding import assert_same

SHAPES = [(4,), (4, 4)]
CALLS = 5
NO_FUNCTIONS = {
    "compile", "record", "value_and_grad", "load", "ensemble", "set_printoptions", "seed", "manual_seed", "graph",
    "normal", "bernoulli", "multinomial", "rand_like", "randn_like", "randint_like",
}  # fmt: skip
ARGUMENTS: list[Callable[[Any], tuple[Any, ...]]] = [
    lambda x: (x,),
    lambda x: (x, 1),
    lambda x: (x, x * 1.5),
    lambda x: (x, 0.5),
    lambda x: (x, 0, 1),
    lambda x: ([x, x * 2],),
    lambda x: (x, (0,)),
    lambda x: (x, x * 2, x * 3),
    lambda x: (x, 0, tape.tensor([0, 1])),
    lambda x: (x > 0.5, x, x * 2),
]


def functions() -> list[Any]:
    """Return the functions of modules by name."""
    modules: list[tuple[str, ModuleType]] = [("tape", tape), ("linalg", tape.linalg), ("special", tape.special)]
    found = [(f"{place}.{name}", getattr(module, name)) for place, module in modules for name in sorted(dir(module))]
    return [
        pytest.param(function, id=name)
        for name, function in found
        if callable(function) and not inspect.isclass(function) and "._" not in name
        if name.rpartition(".")[2] not in NO_FUNCTIONS
    ]


def at(shape: tuple[int, ...], call: int) -> Any:
    """Return another point for each call; matrices are regular."""
    values = np.random.default_rng(call).uniform(0.2, 0.8, shape)
    return values + 2 * np.eye(*shape) if len(shape) == 2 else values


def total(function: Callable[..., Any], arguments: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """Return a function that adds the squares of all floating results that have a gradient."""

    def run(x: Any) -> Any:
        results = function(*arguments(x))
        parts = results if isinstance(results, (tuple, list)) else [results]
        floats = [p for p in parts if isinstance(p, tape.Tensor) and p.dtype == tape.float64 and p.requires_grad]
        return sum(((p * p).sum() for p in floats), tape.tensor(0.0))

    return run


@pytest.mark.filterwarnings("ignore")
@examples(2, len(SHAPES) * len(ARGUMENTS))
@pytest.mark.parametrize("function", functions())
def test_a_function_is_replayed(function: Any, count: int) -> None:
    """With all arguments and shapes that it takes, or with the first of these."""
    for arguments in ARGUMENTS:
        for shape in SHAPES:
            dynamic = tape.value_and_grad(total(function, arguments))
            try:
                expected = [dynamic(at(shape, call)) for call in range(CALLS)]
            except Exception:  # noqa: BLE001, S112 (it takes other arguments)
                continue
            compiled = tape.compile(tape.value_and_grad(total(function, arguments)))
            with warnings.catch_warnings():
                warnings.simplefilter("error", tape.errors.CompileWarning)
                found = [compiled(at(shape, call)) for call in range(CALLS)]
            for (value, gradient), (value2, gradient2) in zip(found, expected, strict=True):
                assert_same(value, value2)
                assert_same(gradient, gradient2, like=value2)
            assert compiled.calls["dynamic"] == 0
            count -= 1
            if count == 0:
                return
