"""README says what is so: commands, Python blocks with their output, the op table, what PyTorch refuses.

A Python block stands alone. What it prints is written beside it, as comments ``# -> text`` in the
order of printing, or in a ```text block that follows it; ``...`` stands for any text. A bare
expression with such a comment is printed as the interpreter would print it.

The programs of the table of what PyTorch refuses are run with the functions of three libraries: NumPy's differences
are what tape's gradients are compared with, and PyTorch must raise what README says.
"""

import ast
import code
import doctest
import io
import re
import sys
import tokenize
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape import func

README = Path(__file__).resolve().parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.exists() else ""  # its absence fails, below
SHOWN = "# -> "
PYTHON = "python -m venv .venv && . .venv/bin/activate && "


class Block(NamedTuple):
    """One fenced block: its language, text, first line in README, and the heading above it."""

    language: str
    text: str
    line: int
    heading: str
    output: str | None  # the ```text block right after it


def fenced_blocks(markdown: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text, in order."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    heading = re.compile(r"^#+ +(.+)$", re.MULTILINE)
    found: list[Block] = []
    previous_end = 0
    title = "start"
    for match in fence.finditer(markdown):
        between = markdown[previous_end : match.start()]
        titles = heading.findall(between)
        title = titles[-1] if titles else title
        if found and match[1] == "text" and not between.strip():
            found[-1] = found[-1]._replace(output=match[2])
        line = markdown.count("\n", 0, match.start(2)) + 1
        found.append(Block(match[1], match[2], line, title, None))
        previous_end = match.end()
    return found


def shown_comments(source: str) -> dict[int, str]:
    """Return the texts of the ``# -> text`` comments by line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.removeprefix(SHOWN)
        for token in tokens
        if token.type == tokenize.COMMENT and token.string.startswith(SHOWN)
    }


def expected_output(block: Block) -> str:
    """Return what README says that a block prints."""
    comments = shown_comments(block.text)
    assert not (comments and block.output), "output is shown twice, in comments and in a text block"
    return block.output or "".join(f"{text}\n" for text in comments.values())


def run(block: Block, monkeypatch: pytest.MonkeyPatch) -> str:
    """Execute a block as a module of its own, with README's line numbers; return its output."""
    module = ModuleType("readme_block")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses and pickle look there
    comments = shown_comments(block.text)
    statements = ast.parse(block.text).body
    printed = io.StringIO()
    with redirect_stdout(printed):
        for statement in statements:
            bare = isinstance(statement, ast.Expr) and statement.end_lineno in comments
            ast.increment_lineno(statement, block.line - 1)
            tree = ast.Interactive([statement]) if bare else ast.Module([statement], [])
            code = compile(tree, str(README), "single" if bare else "exec", dont_inherit=True)
            exec(code, vars(module))  # noqa: S102  # README is ours
    return printed.getvalue()


def same_output(expected: str, printed: str) -> bool:
    """Compare up to white space at line ends; ``...`` in what is expected is any text."""
    want, got = ("".join(f"{line.rstrip()}\n" for line in text.splitlines()) for text in (expected, printed))
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


BLOCKS = fenced_blocks(TEXT)
PYTHON_BLOCKS = [block for block in BLOCKS if block.language == "python"]


def test_readme_has_blocks() -> None:
    assert len(PYTHON_BLOCKS) >= 3


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=[f"{block.heading}, line {block.line}" for block in PYTHON_BLOCKS])
def test_a_block_prints_what_is_shown(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run(block, monkeypatch)
    expected = expected_output(block)
    assert same_output(expected, printed), f"README shows\n{expected}\nthe block printed\n{printed}"


def test_the_first_commands_are_the_two_that_ci_runs() -> None:
    assert BLOCKS[0].language == "sh"
    assert BLOCKS[0].text.splitlines() == [
        PYTHON + "pip install -e . && python -m tape",
        PYTHON + 'pip install -e ".[test]" && python -m pytest',
    ]


def test_the_op_table_is_what_the_registry_prints() -> None:
    tables = re.findall(r"<!-- ops -->\n(.*?)\n<!-- /?ops -->", TEXT, re.DOTALL)
    assert [table.strip() for table in tables] == [tape.op_table().strip()]


def test_numpy_functions_of_another_meaning_are_not_said_to_run_a_record() -> None:
    (row,) = (line for line in tape.op_table().splitlines() if line.startswith("| `select` |"))
    assert "np." not in row  # np.select chooses among arrays; the record shows a place of one
    (row,) = (line for line in tape.op_table().splitlines() if line.startswith("| `transpose` |"))
    assert "`np.swapaxes`" in row or "`np.transpose`" in row, row


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
def test_pytorch_refuses(row: Refused) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(POINT, requires_grad=True)
    with pytest.raises((RuntimeError, TypeError)) as raised:
        torch.autograd.grad(total(row, names_of(torch, torch.func.vmap), x), x)
    if torch.__version__.startswith("2.13."):  # later versions may say it otherwise
        assert row.message in str(raised.value)


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


def only_block(markdown: str) -> Block:
    """Return the first Python block of a text planted by a test below."""
    return next(block for block in fenced_blocks(markdown) if block.language == "python")


@pytest.mark.parametrize(
    ("markdown", "right"),
    [
        ("```python\nprint(1)  # -> 1\n```\n", True),
        ("```python\nprint(1)  # -> 2\n```\n", False),
        ("```python\nprint(1)\n```\n", False),
        ("```python\nx = 1  # -> 1\n```\n", False),
        ("```python\n'a'  # -> 'a'\n```\n", True),
        ("```python\n'a'  # -> 'b'\n```\n", False),
        ("```python\n'a'\n```\n", True),
        ("```python\nfor i in 1, 2:\n    print(i)\n# -> 1\n# -> 2\n```\n", True),
        ("```python\nfor i in 1, 2:\n    print(i)  # -> 1\n```\n", False),
        ("```python\nprint('in 0.01 s')  # -> in ... s\n```\n", True),
        ("```python\nprint('in 0.01 s')  # -> in ... m\n```\n", False),
        ("```python\nprint('# -> 3')\n```\n", False),
        ("```python\nprint('a  \\nb')\n```\n\n```text\na\nb\n```\n", True),
        ("```python\nprint('a\\nb')\n```\n\n```text\na\nc\n```\n", False),
        ("```python\nprint('a')\n```\n\nprints\n\n```text\na\n```\n", False),
    ],
)
def test_planted_blocks(*, markdown: str, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    block = only_block(markdown)
    assert same_output(expected_output(block), run(block, monkeypatch)) is right


def test_blocks_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run(only_block("```python\nplanted = 1\n```\n"), monkeypatch)
    with pytest.raises(NameError, match="planted"):
        run(only_block("```python\nplanted\n```\n"), monkeypatch)


def test_a_block_knows_its_heading_and_line() -> None:
    text = "# One\n\n```sh\n# not a heading\n```\n\n## Two\n\n```python\n1 / 0\n```\n"
    block = only_block(text)
    assert (block.heading, block.line) == ("Two", 10)
    assert fenced_blocks(text)[0].heading == "One"


def differing_rows() -> list[tuple[str, str, str]]:
    """The rows of the table of what NumPy's and PyTorch's functions of one name do."""
    table = re.search(r"<!-- differences -->\n(.*?)<!-- /differences -->", TEXT, re.DOTALL)
    assert table is not None
    found = [re.match(r"\| `(.+?)` \| `(.+?)` \| (.+) \|$", line) for line in table[1].splitlines()[2:]]
    return [(m[1], m[2], m[3]) for m in found if m is not None]


def plain(x: object) -> object:
    """Return tensors, alone or in tuples, as lists of numbers."""
    if isinstance(x, tape.Tensor):
        return np.round(x.numpy().astype(float), 3).tolist()
    return tuple(map(plain, x)) if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize(("call", "numpys", "ours"), differing_rows(), ids=lambda text: text[:30])
def test_where_numpy_and_pytorch_differ(call: str, numpys: str, ours: str) -> None:
    names = {"t": tape.tensor([[3.0, 1.0], [2.0, 4.0]]), "v": tape.tensor([3.0, 1.0, 2.0, 4.0, 5.0])}
    names["nan"] = tape.tensor(float("nan"))

    def run(lib: ModuleType) -> object:
        return plain(eval(call, {"f": lib, **names}))  # noqa: S307 (README's)

    expected = eval(numpys, {"nan": float("nan")})  # noqa: S307
    np.testing.assert_equal(run(np), expected)
    if error := re.match(r"(TypeError|RuntimeError): ", ours):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            run(tape)
        assert caught.type.__name__ == error[1]
    else:
        np.testing.assert_equal(run(tape), eval(ours.strip("`")))  # noqa: S307


@pytest.mark.parametrize("block", [b for b in fenced_blocks(TEXT) if b.language == "python"][:3], ids=lambda b: b.line)
def test_first_examples_paste_into_a_plain_interpreter(block: Block) -> None:
    """A line at a time, as a plain REPL reads what is pasted: a blank line must end each loop and function."""
    console = code.InteractiveConsole({"__name__": "__main__"})
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        unfinished = [console.push(line) for line in block.text.splitlines()][-1]
    assert not unfinished
    assert not errors.getvalue()
    assert printed.getvalue().splitlines()[-1] == expected_output(block).splitlines()[-1]
