"""Sphinx makes a site of these pages: python -m sphinx docs build/site."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import Config, GoogleDocstring

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from public_names import MARK, reference  # noqa: E402 (it stands beside this file)

import tape  # noqa: E402

project = "tape-autograd"
author = "tape-autograd developers"
release = version = tape.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"tape-autograd {release}"
html_show_copyright = html_show_sphinx = False
myst_heading_anchors = 3  # as GitHub has them, so that links serve both
autodoc_typehints = "none"  # most are Any: a docstring's text says what is taken
autodoc_member_order = "alphabetical"

README = HERE.parent / "README.md"
LINK = re.compile(r"\[([^]]*)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")  # one that leads up


def front_page() -> str:
    """Return README without its list of pages: the site's tables of contents stand in its place."""
    text = README.read_text(encoding="utf-8")
    return text.partition("## Documentation\n")[0].replace("](docs/", "](")


def link_on_the_site(page: str, link: re.Match[str]) -> str:
    """Return a link that leads up: README is the front page, and of the source, which is not here, the text stays."""
    target = (HERE / page).parent.joinpath(link[2]).resolve()
    if target == README:
        return f"[{link[1]}](/index.md{link[3] or ''})"
    return link[0] if target.is_relative_to(HERE) else link[1]


def on_the_site(_app: Any, page: str, source: list[str]) -> None:
    """Write README into the front page, and public names where a page has a mark."""
    text = source[0]
    if page == "index":
        text = front_page() + text[text.index("```{toctree}") :]
    text = LINK.sub(lambda link: link_on_the_site(page, link), text)
    level = 3 if len(MARK.findall(text)) > 1 else 2
    source[0] = MARK.sub(lambda mark: reference(mark[1], level), text)


def as_restructured_text(_app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Turn a docstring, plain text with ``code`` and Google's sections, into what Sphinx reads."""
    escaped = [line if line.lstrip().startswith((">>>", "...")) else _escaped(line) for line in lines]
    lines[:] = GoogleDocstring(escaped, Config(napoleon_use_ivar=True)).lines()


def _escaped(line: str) -> str:
    """Return a line in which signs that would mark up stand for themselves, outside of ``code``."""
    parts = re.split(r"(``.*?``)", line)
    parts[::2] = [re.sub(r"[*|]|_(?=\W|$)", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def setup(app: Any) -> None:
    """Tell Sphinx what runs before a page, and a docstring, is read."""
    app.connect("source-read", on_the_site)
    app.connect("autodoc-process-docstring", as_restructured_text)
