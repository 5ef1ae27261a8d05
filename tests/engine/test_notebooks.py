"""What notebooks show of tensors, programs and graphs: HTML without any extra, drawings where Graphviz is installed."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import tape
from tape.programs import drawing

pytestmark = pytest.mark.quick

INSTALLED = importlib.util.find_spec("graphviz") is not None and shutil.which("dot") is not None
needs_graphviz = pytest.mark.skipif(not INSTALLED, reason="needs the extra viz, and Graphviz's program dot")


class Cells(HTMLParser):
    """The texts of elements by their tags; every tag that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        del attrs
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[self.open[-1]][-1] += data

    @property
    def table(self) -> dict[str, str]:
        return dict(zip(self.texts["th"], self.texts["td"], strict=True))


def test_a_tensor_is_a_table_and_its_values() -> None:
    x = tape.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for y, grad in ((x * 2.0, ("grad_fn", "MulBackward0")), (x, ("requires_grad", "True"))):
        cells = Cells(y._repr_html_())
        assert cells.table == {"shape": "(2, 2)", "dtype": "float64", grad[0]: grad[1]}
        assert "".join(cells.texts["pre"]) == repr(y)
    plain = Cells(tape.tensor(3, dtype=tape.int32)._repr_html_())
    assert plain.table == {"shape": "()", "dtype": "int32", "requires_grad": "False"}


def test_a_program_is_a_table_and_its_listing() -> None:
    program = tape.record(lambda x, k: (tape.sin(x) * k).sum(), np.ones(3), 2.0)
    cells = Cells(program._repr_html_())
    assert cells.table == {"operations": "3", "arguments": "float64[3], float64[]", "results": "float64[]"}
    assert "".join(cells.texts["pre"]) == str(program)


def test_a_long_listing_is_cut() -> None:
    def fun(x: Any) -> Any:
        for _ in range(500):
            x = x * 2.0
        return x

    program = tape.record(fun, 1.0)
    lines = "".join(Cells(program._repr_html_()).texts["pre"]).splitlines()
    assert lines[:200] == str(program).splitlines()[:200]
    assert lines[200:] == ["  ... and 302 more lines: print(program)"]


def test_an_unfinished_program() -> None:
    x = tape.tensor(1.0, requires_grad=True)
    with tape.record() as program:
        x * 2.0
        assert Cells(program._repr_html_()).table["operations"] == "1"
        assert program._repr_svg_() is None


def test_markup_in_a_program_is_text() -> None:
    source: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x * 2.0", "<b>&amp;", "exec"), source)  # noqa: S102 (a name with markup)
    program = tape.record(lines=True)(source["f"], 1.0)
    assert "".join(Cells(program._repr_html_()).texts["pre"]) == str(program)
    assert "<b>&amp;" in str(program)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "installed", lambda: False)


def shown() -> list[Callable[[], Any]]:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2.0).sum()
    return [y._repr_svg_, tape.graph(y)._repr_svg_, tape.record(lambda x: x.sum(), np.ones(2))._repr_svg_]


@pytest.mark.usefixtures("missing")
def test_without_graphviz_there_is_no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape.programs.drawing.installed", lambda: False)
    assert [show() for show in shown()] == [None] * 3
    with pytest.raises(ImportError, match="the extra viz"):
        tape.graph(tape.ones(2)).svg()


def test_the_text_goes_to_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    class Source:
        def __init__(self, text: str) -> None:
            self.text = text

        def pipe(self, **options: str) -> bytes:
            drawn.append(self.text)
            return f"<svg>{options['format']}</svg>".encode()

    monkeypatch.setattr(drawing, "installed", lambda: True)
    monkeypatch.setattr("tape.programs.drawing.installed", lambda: True)
    monkeypatch.setitem(sys.modules, "graphviz", types.SimpleNamespace(Source=Source))  # type: ignore[arg-type]
    assert [show() for show in shown()] == ["<svg>svg</svg>"] * 3
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    assert tape.graph(x * 2.0).svg() == "<svg>svg</svg>"
    assert drawn[-1] == str(tape.graph(x * 2.0))
    assert (x._repr_svg_(), tape.ones(2)._repr_svg_()) == (None, None)  # no graph
    y = x
    for _ in range(300):
        y = y * 2.0
    assert y._repr_svg_() is None  # unasked, a large one is not drawn
    z = (x * x).sum()
    z.backward()
    assert z._repr_svg_() == "<svg>svg</svg>"  # whose names and edges stay


def test_a_large_graph_is_drawn_if_asked_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape.programs.drawing._drawn", lambda text: f"drawn: {len(text)}".encode())
    large = drawing.Graph("x" * 200_000)
    assert large._repr_svg_() is None
    assert large.svg() == "drawn: 200000"


@needs_graphviz
def test_a_drawing_is_an_image_with_the_labels() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    graph = tape.graph((x * 2.0).sum(), {'a "<name>"': x})
    texts = {element.text for element in ET.fromstring(graph.svg()).iter() if element.tag.endswith("}text")}  # noqa: S314 (our own)
    assert {'a "<name>"', "MulBackward0", "SumBackward0", "float64[2]", "result"} <= texts
    assert graph._repr_svg_() == graph.svg()
    assert all("<svg" in show() for show in shown())
