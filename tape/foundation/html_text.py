"""What notebooks show in place of text: small tables, and text as it stands."""

from __future__ import annotations

from collections.abc import Iterable


def escaped(text: str) -> str:
    """Return text with what HTML would read as its own written out."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def table(rows: Iterable[tuple[str, str]], text: str) -> str:
    """Return a table of names and values, and below it text in lines."""
    cells = "".join(f"<tr><th>{escaped(name)}</th><td>{escaped(value)}</td></tr>" for name, value in rows)
    return f"<div><table>{cells}</table><pre>{escaped(text)}</pre></div>"
