"""Programs ported from PyTorch, HIPS autograd and JAX: here they give the numbers that they give there.

Where the other library is not installed, the numbers that it gave stand in ported_numbers.json;
``python -m tests.conventions.test_ported`` writes them anew.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tape
from tests.support import ported_autograd, ported_jax, ported_torch

NUMBERS = Path(ported_torch.__file__).with_name("ported_numbers.json")
TORCH, AUTOGRAD, JAX = ported_torch.PROGRAMS, ported_autograd.PROGRAMS, ported_jax.PROGRAMS
OURS = SimpleNamespace(
    grad=tape.func.grad,
    value_and_grad=tape.value_and_grad,
    elementwise_grad=lambda f: tape.func.grad(lambda x: f(x).sum()),
    jacobian=tape.func.jacrev,
    hessian=tape.func.hessian,
    plain=lambda x: x,
)


def arrays(found: list[Any]) -> list[np.ndarray[Any, Any]]:
    """Return results as arrays."""
    return [np.asarray(x.detach() if hasattr(x, "detach") else x, dtype=float) for x in found]


def in_pytorch(program: Callable[..., list[Any]]) -> list[Any]:
    """Run a program in PyTorch, in double precision."""
    torch = importlib.import_module("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return program(torch)
    finally:
        torch.set_default_dtype(before)


def in_autograd(program: Callable[..., list[Any]]) -> list[Any]:
    """Run a program in HIPS autograd."""
    autograd = importlib.import_module("autograd")
    names = ("grad", "value_and_grad", "elementwise_grad", "jacobian", "hessian")
    return program(
        importlib.import_module("autograd.numpy"),
        SimpleNamespace(plain=lambda x: x, **{name: getattr(autograd, name) for name in names}),
    )


def in_jax(program: Callable[..., list[Any]]) -> list[Any]:
    """Run a program in JAX, in double precision."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return program(jax, importlib.import_module("jax.numpy"))


THEIRS = {"torch": in_pytorch, "autograd": in_autograd, "jax": in_jax}
WITH_JAX = SimpleNamespace(
    value_and_grad=tape.value_and_grad,
    **{name: getattr(tape.func, name) for name in ("grad", "jvp", "vjp", "vmap", "jacfwd", "jacrev", "hessian")},
)
CASES = [
    *[("torch", program, (tape,)) for program in TORCH],
    *[("autograd", program, (np, OURS)) for program in AUTOGRAD],
    *[("jax", program, (WITH_JAX, np)) for program in JAX],
]
IDS = [f"{library}-{program.__name__}" for library, program, _ in CASES]


@pytest.mark.parametrize(("library", "program", "arguments"), CASES, ids=IDS)
def test_a_port_gives_the_numbers_that_were_noted(
    library: str, program: Callable[..., list[Any]], arguments: tuple[Any, ...]
) -> None:
    stored = json.loads(NUMBERS.read_text(encoding="utf-8"))[f"{library}-{program.__name__}"]
    got = arrays(program(*arguments))
    assert [list(x.shape) for x in got] == [shape for shape, _ in stored]
    for x, (_, numbers) in zip(got, stored, strict=True):
        np.testing.assert_allclose(x.ravel()[: len(numbers)], numbers, rtol=1e-7, atol=1e-10)


INSTALLED = [
    pytest.param(*case, id=name) for name, case in zip(IDS, CASES, strict=True) if importlib.util.find_spec(case[0])
]


@pytest.mark.parametrize(("library", "program", "arguments"), INSTALLED)
def test_a_port_agrees_with_its_original(
    library: str, program: Callable[..., list[Any]], arguments: tuple[Any, ...]
) -> None:
    with np.errstate(all="ignore"):
        expected = arrays(THEIRS[library](program))
    for x, y in zip(arrays(program(*arguments)), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-10)


def test_there_are_enough() -> None:
    assert len(CASES) >= 34


if __name__ == "__main__":
    found = {}
    for case, (library_, program_, _) in zip(IDS, CASES, strict=True):
        found[case] = [[list(x.shape), x.ravel()[:4].tolist()] for x in arrays(THEIRS[library_](program_))]
    NUMBERS.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(found)} programs\n")
