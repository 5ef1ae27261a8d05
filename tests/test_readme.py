"""README says what is so: its commands, its Python blocks with their output, its op table.

A Python block stands alone. What it prints is written beside it, as comments ``# -> text`` in the
order of printing, or in a ```text block that follows it; ``...`` stands for any text. A bare
expression with such a comment is printed as the interpreter would print it.
"""

import ast
import doctest
import io
import re
import sys
import tokenize
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import tape

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
