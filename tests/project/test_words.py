"""Words that were replaced by the field's stay replaced: in identifiers, in comments and on the pages."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for room in ("kernels", "tape") for path in (ROOT / room).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

NO_IDENTIFIERS = {
    "about": "what it holds: block, layout, table",
    "adopted": "wrapped_array",
    "ask": "set_miss_handlers",
    "breath": "interrupt_check",
    "callout": "python_pullback",
    "carried": "scalar_or_array",
    "found": "what was found: form, entry, address",
    "gathered": "recorded_gradients",
    "given": "args, operand, cotangent",
    "go_on": "run_until_done",
    "hear": "notify",
    "heard": "recorder",
    "heir": "reused",
    "innerrows": "history_rows",
    "mend_mark": "resolve_mark_status",
    "mentioned": "names_read",
    "mentions": "reads",
    "noted": "notified",
    "noting": "notifying",
    "oneway": "predicated",
    "own": "header, part, words",
    "parities": "double_buffer_indices",
    "provide": "materialize, load",
    "putting": "cached scatter",
    "rare": "extras",
    "remade": "recipe_builder",
    "respecified": "restrided",
    "seldom": "read_extras",
    "shadow": "buffer",
    "shadows": "buffers",
    "sharing": "alias",
    "takings": "index axes",
    "tell": "notify",
    "telling": "notification",
    "tiered": "tiered_program",
    "told": "notified",
    "twin": "variant",
    "twins": "variants",
    "unloaded": "missing",
    "viewing": "cached view",
    "wished": "constant_wanted",
}
"""Names that say nothing of what they hold, or in words of our own, with examples of what to say instead."""
IN_KERNELS = {"uniform": "constant"}
"""The same where no distribution is meant."""
NOWHERE = re.compile(
    r"\b([sS]hadow(s|ed)?|breaths?|heirs?|respecified|callouts?|seldom|PATIENCE|WISHED|LIKEWISE|OTHERWISE|Mentions"
    r"|[A-Z]_(CELLS?|SHADOW|HEIR|HEARD|TOLD|RARE|GIVES))\b"
)
"""What may stand in no text, prose neither."""


def identifiers(text: str) -> Iterator[tuple[str, int]]:
    """Yield the names of a source with their lines; those within f-strings too."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.string, token.start[0]
        elif token.type == tokenize.STRING and re.match(r"[rR]?[fF]", token.string):
            for expression in re.findall(r"(?<!\{)\{([^{}]+)\}", token.string):
                yield from ((name, token.start[0]) for name in re.findall(r"[A-Za-z_]\w*", expression.split(":")[0]))


def faults_of(path: str, text: str) -> list[str]:
    """Return what a source says in replaced words."""
    replaced = NO_IDENTIFIERS | (IN_KERNELS if path.startswith("kernels/") else {})
    faults = [
        f"{path}:{line}: {name}: say {replaced[name.strip('_').lower()]}"
        for name, line in identifiers(text)
        if name.strip("_").lower() in replaced
    ]
    return faults + [f"{path}: {match.group()}" for match in NOWHERE.finditer(text)]


@pytest.mark.quick
def test_no_source_uses_a_replaced_word() -> None:
    """Neither as an identifier, nor, of those that mean nothing else, in a comment."""
    texts = ((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in SOURCES)
    assert not [fault for path, text in texts for fault in faults_of(path, text)]


@pytest.mark.quick
def test_no_page_uses_a_replaced_word() -> None:
    """Prose says what readers of PyTorch's pages know."""
    pages = [(page.name, NOWHERE.findall(page.read_text(encoding="utf-8"))) for page in PAGES]
    assert not [page for page in pages if page[1]]


@pytest.mark.quick
def test_the_check_sees_planted_words() -> None:
    """A name, an attribute, one in an f-string, and a word of a comment."""
    text = 'def f(x):\n    found = x.told + uniform\n    return f"{{own}} {given} {x!r:>4}"  # a shadow\n'
    assert [fault.split(": ")[1] for fault in faults_of("tape/a.py", text)] == ["found", "told", "given", "shadow"]
    assert "kernels/a.py:2: uniform: say constant" in faults_of("kernels/a.py", text)
