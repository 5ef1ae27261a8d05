"""Programs of PyTorch's users run unchanged with tape in PyTorch's place: what they import as torch is tape."""

import builtins
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.nn.programs import PROGRAMS

QUICK = {
    "linear_regression", "polynomial_fit", "autoencoder", "char_rnn", "min_gpt", "reinforce", "physics_informed",
    "own_optimizers", "mixture_density",
}  # fmt: skip
WANDERS = {
    "dqn": "rewards come in by and by", "reinforce": "what is returned is standardised", "gan": "two are opposed",
}  # fmt: skip
"""Programs whose last loss need not be less than the first, with why."""
LACKS: dict[str, str] = {
    "mixed_precision_loop": "no attribute 'amp'.*see docs/from_pytorch.md",
}
"""Programs that need what there is not, with a pattern of the error that says so."""


def found_in_tape(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:  # noqa: A002 (Python's names)
    return builtins.__import__(re.sub(r"^torch\b", "tape", name), globals, locals, fromlist, level)


def losses(name: str, imported: Any) -> list[float]:
    namespace: dict[str, Any] = {"__name__": name, "__builtins__": vars(builtins) | {"__import__": imported}}
    exec(compile(PROGRAMS[name], f"<{name}>", "exec"), namespace)  # noqa: S102 (the texts are ours)
    result: list[float] = namespace["result"]
    return result


@pytest.fixture
def pytorch() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(before[0])
    torch.set_num_threads(before[1])


RUNNING = [pytest.param(n, marks=[pytest.mark.quick] if n in QUICK else []) for n in PROGRAMS if n not in LACKS]


@pytest.mark.parametrize("name", RUNNING)
def test_a_program_runs_unchanged(name: str) -> None:
    found = losses(name, found_in_tape)
    assert np.isfinite(found).all()
    assert name in WANDERS or found[-1] < found[0]


@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("name", RUNNING)
def test_its_losses_are_those_of_pytorch(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = losses(name, builtins.__import__)
    np.testing.assert_allclose(losses(name, found_in_tape), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LACKS)
def test_what_a_program_lacks_is_said(name: str) -> None:
    with pytest.raises(AttributeError, match=LACKS[name]):
        losses(name, found_in_tape)
