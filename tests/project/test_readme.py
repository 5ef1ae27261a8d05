"""README says what is so: the two commands, what it shows first, its tables; and it is short.

The programs of the table of what PyTorch refuses are run with the functions of three libraries: NumPy's differences
are what tape's gradients are compared with, and PyTorch must raise what README says. What its Python blocks print is
checked with those of all pages, in test_docs.py.
"""

import code
import io
import re
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape import func
from tests.support.markdown_pages import DOCS, README, Block, expected_output, fenced_blocks, python_blocks, text_of
from tests.support.pytorch_outcomes import Outcomes, Raised

TEXT = text_of(README)
PYTHON = "python -m venv .venv && . .venv/bin/activate && "
LONGEST = 150  # lines


def test_readme_has_blocks() -> None:
    assert len(python_blocks(README)) >= 3


def test_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= LONGEST


def test_the_first_commands_are_the_two_that_ci_runs() -> None:
    assert fenced_blocks(TEXT)[0].language == "sh"
    assert fenced_blocks(TEXT)[0].text.splitlines() == [
        PYTHON + "pip install -e . && python -m tape",
        PYTHON + 'pip install -e ".[test]" && python -m pytest -n auto',
    ]


def rows(markdown: str) -> set[str]:
    """Return the rows of a text's tables."""
    return {line for line in markdown.splitlines() if line.startswith("| ")}


def test_the_speed_table_is_part_of_the_one_in_docs() -> None:
    (shown,) = re.findall(r"^## How fast\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    assert len(rows(shown)) >= 6
    assert rows(shown) - rows(text_of(DOCS / "performance.md")) == set()


class Refused(NamedTuple):
    """A row of the table: a program of ``x`` that makes ``y``, PyTorch's message, the gradient of ``y.sum()``."""

    program: str
    message: str
    gradient: str


POINT = np.array([0.5, 1.25, 2.0])
CODE = re.compile(r"`([^`]+)`")
Names = dict[str, Any]


def refused_rows(markdown: str) -> list[Refused]:
    """Return the rows between the marks; each code span of a program is a line."""
    (table,) = re.findall(r"<!-- refused -->\n(.*?)\n<!-- /refused -->", markdown, re.DOTALL)
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    return [Refused("\n".join(CODE.findall(a)), CODE.findall(b)[0], CODE.findall(c)[0]) for a, b, c in rows]


def names_of(library: Any, vmap: Callable[..., Any]) -> Names:
    """Return the names that the programs use, as one library has them."""
    names = {name: getattr(library, name, None) for name in ("exp", "cos", "zeros", "no_grad")}
    return {"no_grad": nullcontext} | {k: v for k, v in names.items() if v is not None} | {"vmap": vmap, "np": np}


def over_rows(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Map as vmap does, by a loop over NumPy's rows."""
    return lambda x: np.stack([f(row) for row in x])


def total(row: Refused, names: Names, x: Any) -> Any:
    """Run a program; return ``y.sum()``."""
    scope = names | {"x": x}
    exec(row.program, scope)  # noqa: S102  # README is ours
    return scope["y"].sum()


def differences(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, h: float = 2e-3) -> np.ndarray:
    """Return the derivatives of an array by the elements of x, the last axis; of sixth order in the step."""
    weights = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    columns = [
        sum(w * (f(x + k * h * unit) - f(x - k * h * unit)) for k, w in weights.items()) / h for unit in np.eye(x.size)
    ]
    return np.stack(columns, axis=-1)


def truths(row: Refused) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and Hessian by differences of NumPy's values."""
    names = names_of(np, over_rows)

    def gradient(x: np.ndarray) -> np.ndarray:
        return differences(lambda x: np.asarray(total(row, names, x.copy())), x)

    return gradient(POINT), differences(gradient, POINT)


def tapes(row: Refused) -> tuple[np.ndarray, np.ndarray]:
    """Return tape's gradient, and its Hessian by a second backward for each row."""
    x = tape.tensor(POINT, requires_grad=True)
    y = total(row, names_of(tape, func.vmap), x)
    (gradient,) = tape.autograd.grad(y, x, create_graph=True)
    if not gradient.requires_grad:
        return gradient.numpy(), np.zeros((x.numel(), x.numel()))
    rows = [tape.autograd.grad(g, x, retain_graph=True)[0].numpy() for g in gradient]
    return gradient.detach().numpy(), np.stack(rows)


def check_row(row: Refused) -> None:
    """Compare a row's formula, and tape's gradient and Hessian, with differences."""
    found, truth = tapes(row), truths(row)
    stated = eval(row.gradient, names_of(np, over_rows) | {"x": POINT})  # noqa: S307  # README is ours
    np.testing.assert_allclose(stated, truth[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found[0], stated, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(found[1], truth[1], rtol=1e-6, atol=1e-6)


REFUSED = refused_rows(TEXT)
EACH_REFUSED = pytest.mark.parametrize("row", REFUSED, ids=[row.program.replace("\n", "; ") for row in REFUSED])


def test_the_table_of_what_is_refused_has_rows() -> None:
    assert len(REFUSED) >= 8


@EACH_REFUSED
def test_tape_does_what_pytorch_refuses(row: Refused) -> None:
    check_row(row)


@EACH_REFUSED
def test_pytorch_refuses(row: Refused, pytorch: Outcomes) -> None:
    def run(torch: Any) -> None:
        x = torch.tensor(POINT, requires_grad=True)
        torch.autograd.grad(total(row, names_of(torch, torch.func.vmap), x), x)

    error = pytorch.or_error(run, row.program)
    assert isinstance(error, Raised)
    assert {"RuntimeError", "TypeError"} & set(error.classes)
    if pytorch.version.startswith("2.13."):  # later versions may say it otherwise
        assert row.message in error.text


@pytest.mark.parametrize(
    ("program", "gradient", "right"),
    [
        ("y = exp(x)\ny *= 3", "3 * exp(x)", True),
        ("y = exp(x)\ny *= 3", "3.0001 * exp(x)", False),
        ("y = exp(x)\ny *= 3", "exp(x)", False),
        ("y = x * x\nwith no_grad(): y *= 3", "2 * x", False),  # NumPy multiplies by 3, tape leaves the gradient
        ("y = x.detach() * x if hasattr(x, 'detach') else x * x", "2 * x", False),
    ],
)
def test_planted_rows(*, program: str, gradient: str, right: bool) -> None:
    row = Refused(program, "", gradient)
    if right:
        check_row(row)
    else:
        with pytest.raises(AssertionError):
            check_row(row)


@pytest.mark.parametrize("block", python_blocks(README)[:3], ids=lambda b: f"line {b.line}")
def test_first_examples_paste_into_a_plain_interpreter(block: Block) -> None:
    """A line at a time, as a plain REPL reads what is pasted: a blank line must end each loop and function."""
    console = code.InteractiveConsole({"__name__": "__main__"})
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        unfinished = [console.push(line) for line in block.text.splitlines()][-1]
    assert not unfinished
    assert not errors.getvalue()
    assert printed.getvalue().splitlines()[-1] == expected_output(block).splitlines()[-1]
