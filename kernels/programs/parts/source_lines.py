"""The lines of a printed program: how deep they stand, and which of them are a statement outside of all others."""

from __future__ import annotations

from collections.abc import Iterator

INDENT = "    "
_GOES_ON = f"{INDENT} ", f"{INDENT}else:", f"{INDENT}elif "


def outermost(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each outermost statement."""
    statement: list[str] = []
    for line in lines:
        if statement and not line.startswith(_GOES_ON):
            yield statement
            statement = []
        statement.append(line)
    if statement:
        yield statement
