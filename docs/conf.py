"""Sphinx makes a site of these pages: python -m sphinx docs build/site."""

import re
import sys
from base64 import b64encode
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.ext.napoleon import Config, GoogleDocstring

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from public_names import MARK, reference  # noqa: E402 (it stands beside this file)

import tape  # noqa: E402
from tape import examples  # noqa: E402

project = "tape-autograd"
author = "tape-autograd developers"
release = version = tape.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"tape-autograd {release}"
html_show_copyright = html_show_sphinx = False
html_static_path, html_js_files = ["static"], ["copy.js"]
myst_heading_anchors = 3  # as GitHub has them, so that links serve both
autodoc_typehints = "none"  # most are Any: a docstring's text says what is taken
autodoc_member_order = "alphabetical"

README = HERE.parent / "README.md"
LINK = re.compile(r"\[([^]]*)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")  # one that leads up


def readme() -> str:
    """Return README without its examples, of which the front page has one, and its list of pages."""
    text = README.read_text(encoding="utf-8")
    parts = re.search(r"(```sh\n.*?)## Three programs\n.*?(## How fast\n.*?)## Documentation\n", text, re.DOTALL)
    assert parts is not None
    return "".join(parts.groups()).replace("](docs/", "](")


def gallery() -> str:
    """Run the examples; return what they are, print and draw, and their source."""
    parts = []
    for name in examples.names():
        with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()) as printed:
            examples.load(name).main()
            drawn = [b64encode(path.read_bytes()).decode() for path in Path(folder).glob("*.png")]
        pictures = "".join(f'<img alt="{name}" src="data:image/png;base64,{png}">\n\n' for png in drawn)
        source = examples.source(name)
        parts.append(f"## {name}\n\n{pictures}```text\n{printed.getvalue()}```\n\n```python\n{source}```\n\n")
    return "".join(parts)


def link_on_the_site(page: str, link: re.Match[str]) -> str:
    """Return a link that leads up: README is the front page, and of the source, which is not here, the text stays."""
    target = (HERE / page).parent.joinpath(link[2]).resolve()
    if target == README:
        return f"[{link[1]}](/index.md{link[3] or ''})"
    return link[0] if target.is_relative_to(HERE) else link[1]


def on_the_site(_app: Any, page: str, source: list[str]) -> None:
    """Write README into the front page, examples into the gallery, and public names where a page has a mark."""
    text = source[0]
    for mark, made in (("<!-- readme -->", readme), ("<!-- gallery -->", gallery)):
        text = text.replace(mark, made()) if mark in text else text
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
