"""README and the pages of docs: their fenced blocks, what those print, their headings and links.

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

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
SHOWN = "# -> "
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"`+[^`]*`+")


class Block(NamedTuple):
    """One fenced block: its language, text, first line in its page, and the heading above it."""

    language: str
    text: str
    line: int
    heading: str
    output: str | None  # the ```text block right after it
    page: Path


def text_of(page: Path) -> str:
    """Return a page's text, or nothing where there is no page: its absence fails in a test."""
    return page.read_text(encoding="utf-8") if page.exists() else ""


def fenced_blocks(markdown: str, page: Path = README) -> list[Block]:
    """Return the fenced blocks of a Markdown text, in order."""
    blocks: list[Block] = []
    previous_end = 0
    title = "start"
    for match in FENCE.finditer(markdown):
        between = markdown[previous_end : match.start()]
        titles = HEADING.findall(between)
        title = titles[-1] if titles else title
        if blocks and match[1] == "text" and not between.strip():
            blocks[-1] = blocks[-1]._replace(output=match[2])
        line = markdown.count("\n", 0, match.start(2)) + 1
        blocks.append(Block(match[1], match[2], line, title, None, page))
        previous_end = match.end()
    return blocks


def python_blocks(page: Path) -> list[Block]:
    """Return the Python blocks of a page."""
    return [block for block in fenced_blocks(text_of(page), page) if block.language == "python"]


def shown_comments(source: str) -> dict[int, str]:
    """Return the texts of the ``# -> text`` comments by line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.removeprefix(SHOWN)
        for token in tokens
        if token.type == tokenize.COMMENT and token.string.startswith(SHOWN)
    }


def expected_output(block: Block) -> str:
    """Return what a page says that a block prints."""
    comments = shown_comments(block.text)
    assert not (comments and block.output), "output is shown twice, in comments and in a text block"
    return block.output or "".join(f"{text}\n" for text in comments.values())


def run(block: Block, monkeypatch: pytest.MonkeyPatch) -> str:
    """Execute a block as a module of its own, with its page's line numbers; return its output."""
    module = ModuleType("page_block")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses and pickle look there
    comments = shown_comments(block.text)
    statements = ast.parse(block.text).body
    printed = io.StringIO()
    with redirect_stdout(printed):
        for statement in statements:
            bare = isinstance(statement, ast.Expr) and statement.end_lineno in comments
            ast.increment_lineno(statement, block.line - 1)
            tree = ast.Interactive([statement]) if bare else ast.Module([statement], [])
            code = compile(tree, str(block.page), "single" if bare else "exec", dont_inherit=True)
            exec(code, vars(module))  # noqa: S102  # the pages are ours
    return printed.getvalue()


def same_output(expected: str, printed: str) -> bool:
    """Compare up to white space at line ends; ``...`` in what is expected is any text."""
    want, got = ("".join(f"{line.rstrip()}\n" for line in text.splitlines()) for text in (expected, printed))
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


def anchors(markdown: str) -> set[str]:
    """Return what a link's ``#anchor`` may name: each heading as GitHub, and the site, writes it."""
    headings = HEADING.findall(FENCE.sub("", markdown))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(markdown: str) -> list[str]:
    """Return the targets of a Markdown text's links, without those of the network and what is in code."""
    targets = LINK.findall(CODE_SPAN.sub("", FENCE.sub("", markdown)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def broken_links(markdown: str, page: Path) -> list[str]:
    """Return the links of a page whose file or anchor is not there."""
    broken = []
    for link in links(markdown):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        headings = anchors(markdown if target == page else text_of(target))
        if not (target == page or target.exists()) or (anchor and anchor not in headings):
            broken.append(link)
    return broken
