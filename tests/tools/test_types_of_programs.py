"""Programs of users as mypy reads them: results are tensors, wrong calls are errors, each public name is known."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

import tape
from tests.project.test_packaging import ROOT, loaded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

pytestmark = pytest.mark.exhaustive  # mypy reads all of NumPy's types first
pytest.importorskip("mypy", reason="the extra 'dev' has it")
MODULES = (
    "autograd", "distributions", "func", "interpolate", "linalg", "ndimage", "nn", "nn.functional", "ode", "optim",
    "quadrature", "random", "signal", "sparse", "special", "stats", "uncertainty",
)  # fmt: skip
RIGHT = """
from typing import assert_type
import numpy as np
import tape
from tape import Tensor, nn, optim

x = tape.tensor([1.0, 2.0], requires_grad=True)
assert_type(x, Tensor)
assert_type(tape.sin(x), Tensor)
assert_type(tape.sin(np.ones(2)) + tape.exp(2) + tape.log(np.float32(3.0)), Tensor)
assert_type(tape.sum(x, dim=(0, 1), keepdim=True), Tensor)
assert_type(x.mean(axis=0).sqrt() * 2 + 1 / x[0], Tensor)
assert_type(tape.sin_(x.detach()), Tensor)
assert_type(tape.where(x > 0, x, 0.0), Tensor)
assert_type(tape.linalg.solve(tape.eye(2), x), Tensor)
assert_type(x.grad, Tensor | None)
assert_type(x.backward(), None)


def f(x: Tensor) -> Tensor:
    return (x * x).sum()


value, gradient = tape.value_and_grad(f)(x)
compiled = tape.compile(f, mode="max", check="never")
batched = tape.vmap(f, randomness="same")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.scale = nn.Parameter(tape.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.first(x)) * tape.exp(self.scale)


model = nn.Sequential(Net(), nn.ReLU(), nn.Linear(3, 1))
optimizer = optim.Adam(model.parameters(), lr=1e-3)
loss = nn.MSELoss()(model(x), tape.zeros(1))
assert_type(loss, Tensor)
assert_type(nn.Linear(2, 3)(x), Tensor)
assert_type(nn.Linear(2, 3).weight, Tensor)
loss.backward()
optimizer.step()
"""
WRONG = {
    'x.sum(dim="x")': "int | Sequence[int] | None",
    'tape.sin("text")': "Tensor | ndarray",
    "tape.add([1.0], x)": "Tensor | ndarray",
    "tape.sin(x, 3)": 'expected "Tensor | None"',
    'tape.softmax(x, dim="rows")': 'expected "int"',
    "x.nonsense()": 'has no attribute "nonsense"',
    "tape.nonsense": 'has no attribute "nonsense"',
    'tape.compile(abs, mode="fast")': "Literal['default'",
    "tape.value_and_grad(3)": "Callable[..., Any]",
    'tape.nn.Linear("a", 2)': 'expected "int"',
    "tape.nn.GELU(approximate=2)": 'expected "str"',
    "tape.nn.Nonsense()": 'has no attribute "Nonsense"',
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of both packages with their stubs, as an editable installation has them."""
    folder = tmp_path_factory.mktemp("checkout")
    stubs = loaded(ROOT / ".ci" / "stubs.py")
    for package in ("kernels", "tape"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyi"))
    for path, text in stubs.stubs().items():
        (folder / path.relative_to(ROOT)).write_text(text, encoding="utf-8")
    return folder


def faults(fresh: Fresh, checkout: Path, program: str) -> dict[int, str]:
    """Return what mypy, in its strict mode, finds in a program, by line."""
    path = checkout / "program.py"
    path.write_text(program, encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={checkout / 'cache'}", str(path)]
    code = f"from mypy import api\nprint(api.run({options!r})[0])"
    printed, errors = fresh(code, MYPYPATH=str(checkout)).communicate(timeout=600)
    assert errors == ""
    assert "program.py:" in printed or "no issues found" in printed, printed
    return {int(line): fault for line, fault in re.findall(r"program.py:(\d+): error: (.*)$", printed, re.MULTILINE)}


def test_results_have_types(fresh: Fresh, checkout: Path) -> None:
    assert faults(fresh, checkout, RIGHT) == {}


def test_wrong_calls_are_errors(fresh: Fresh, checkout: Path) -> None:
    program = "\n".join(["import tape", "x = tape.ones(2)", *WRONG])
    found = faults(fresh, checkout, program)
    for line, (call, expected) in enumerate(WRONG.items(), 3):
        assert expected in found.get(line, ""), call


def test_every_public_name_is_known(fresh: Fresh, checkout: Path) -> None:
    """Also of functions and modules that are made as tape is imported: `tape.sin_`, `nn.ReLU`."""
    names = [f"tape.{name}" for name in tape.__all__]
    for module in MODULES:
        __import__(f"tape.{module}")
        names += [f"tape.{module}.{name}" for name in sys.modules[f"tape.{module}"].__all__]
    program = "\n".join(["import tape", *(f"import tape.{name}" for name in MODULES), *names])
    missing = [fault for fault in faults(fresh, checkout, program).values() if "no attribute" in fault]
    assert missing == []
