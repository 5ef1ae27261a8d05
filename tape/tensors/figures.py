"""Figures as text: graphs in Graphviz's language, and curves of characters."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from kernels.programs.steps import Repeat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


# Graphs as text in Graphviz's language DOT, and drawn by Graphviz where that is installed.

_MISSING = (
    "svg: a drawing needs the package graphviz, which the extra viz installs, and Graphviz's program dot "
    "(https://graphviz.org/download); the text, str(graph), can be drawn elsewhere"
)
_MOST_SHOWN = 100_000
"""Characters of the text up to which a notebook draws unasked: dot takes minutes for large graphs."""


class Graph:
    """A graph of operations. ``dot``, or ``str(graph)``, is its text in DOT, Graphviz's language.

    A notebook shows it as a drawing where Graphviz is installed: the extra ``viz`` and the program ``dot``.
    """

    def __init__(self, dot: str) -> None:
        self.dot = dot

    def svg(self) -> str:
        """Return the drawing as SVG; ImportError, with the remedy, where Graphviz is missing."""
        drawing = _drawn(self.dot)
        if drawing is None:
            raise ImportError(_MISSING)
        return drawing

    def _repr_svg_(self) -> str | None:
        """Return what a notebook shows; None for its text instead."""
        return _drawn(self.dot) if len(self.dot) <= _MOST_SHOWN else None

    def __str__(self) -> str:
        return self.dot

    def __repr__(self) -> str:
        nodes = self.dot.count(" [label=") - self.dot.count(" graph [label=")  # those are the titles of frames
        return f"<Graph of {nodes} nodes; str(graph) is its text in DOT>"


def installed() -> bool:
    """Whether graphs can be drawn here: there are the package graphviz, of the extra ``viz``, and the program dot."""
    return importlib.util.find_spec("graphviz") is not None and shutil.which("dot") is not None


def _drawn(dot: str) -> str | None:
    if not installed():
        return None
    graphviz: Any = importlib.import_module("graphviz")
    return str(graphviz.Source(dot).pipe(format="svg", encoding="utf-8"))


class Edges:
    """Edges between what is drawn, each for all that lead from copies of one node to copies of another.

    ``between`` has what the second reads of the first, in one copy, and whether only the next copy reads it.
    """

    def __init__(self) -> None:
        self.between: dict[tuple[str, str], tuple[set[int], bool]] = {}

    def add(self, start: str, end: str, source: int = 0, *, counted: bool = True, again: bool = False) -> None:
        """Add an edge, from the copy ``source``."""
        sources, before = self.between.setdefault((start, end), (set(), again))
        if counted or not sources:
            sources.add(source)
        self.between[start, end] = sources, before and again


class DotText:
    """Writes a graph in DOT: nodes, edges, and clusters, which are drawn as frames with a title."""

    def __init__(self) -> None:
        self._lines: list[str] = ["digraph {", '  node [fontname="monospace", shape="box"];']
        self._depth = 1
        self._clusters = 0

    def node(self, name: str, label: str, **attributes: str) -> None:
        """Add a node, in the cluster that is open."""
        self._add(f"{name} [label={quoted(label)}{_listed(attributes)}];")

    def edge(self, start: str, end: str, label: str = "", *, dashed: bool = False) -> None:
        """Add an edge; a dashed one has no say in where nodes are drawn."""
        attributes = {"taillabel": label} if label else {}
        attributes |= {"style": "dashed", "constraint": "false"} if dashed else {}
        self._add(f"{start} -> {end}{' [' + _listed(attributes)[2:] + ']' if attributes else ''};")

    @contextmanager
    def cluster(self, title: str, **attributes: str) -> Iterator[None]:
        """Frame the nodes that are added within."""
        self._add(f"subgraph cluster_{self._clusters} {{")
        self._clusters += 1
        self._depth += 1
        self._add(f"graph [label={quoted(title)}{_listed(attributes)}];")
        yield
        self._depth -= 1
        self._add("}")

    def parts(self, repeats: Iterable[Repeat], low: int, high: int, draw: Callable[[range], None]) -> None:
        """Draw the steps from ``low`` to ``high``: those that repeat once, framed, with how often they do."""
        at = low
        for repeat in repeats:
            draw(range(at, repeat.start))
            with self.cluster(f"{repeat.count} times", style="rounded"):
                self.parts(repeat.inner, repeat.start, repeat.start + repeat.length, draw)
            at = repeat.stop
        draw(range(at, high))

    def edges(self, edges: Edges) -> None:
        """Add these edges; where one stands for several that lead to one copy, with their number."""
        for (start, end), (sources, again) in edges.between.items():
            self.edge(start, end, str(len(sources)) if len(sources) > 1 else "", dashed=again)

    def graph(self) -> Graph:
        """Return the graph."""
        return Graph("\n".join([*self._lines, "}"]))

    def _add(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)


def quoted(text: str) -> str:
    """Return text as a string of DOT: its lines stay, and its backslashes are no commands."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'


def _listed(attributes: dict[str, str]) -> str:
    return "".join(f", {name}={quoted(value)}" for name, value in attributes.items())


# A character cell holds 2 x 2 dots; its index here is the sum of the dots' weights:
# upper left 1, upper right 2, lower left 4, lower right 8.
BLOCKS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
ASCII = " '''.:::.:::.:::"
WEIGHTS = np.array([[1, 2], [4, 8]])

NARROWEST, WIDEST = 40, 100  # columns of a whole line
MARGIN = 7  # columns of the vertical axis
COLOURS = {"hare": "36", "lynx": "33"}
PLAIN_COLOUR = "32"


@dataclass(frozen=True)
class Style:
    """What a stream can show: columns, block characters, colour."""

    width: int = 80
    blocks: bool = False
    colour: bool = False


def style_of(stream: TextIO) -> Style:
    """Return what `stream` can show; NO_COLOR, COLUMNS and TERM are respected."""
    columns = shutil.get_terminal_size().columns
    return Style(
        width=min(max(columns, NARROWEST), WIDEST),
        blocks=_can_encode(stream, BLOCKS),
        colour=stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
    )


def panel(
    title: str, data: tuple[ArrayLike, ArrayLike], curve: tuple[ArrayLike, ArrayLike], style: Style, height: int = 9
) -> str:
    """Return a plot of points and a curve over the same horizontal axis.

    `data` and `curve` are pairs (x, y) of finite 1-D arrays, x increasing; y starts at 0. The text
    has `height` rows, a title above them, an axis below, and at most `style.width` columns.
    """
    data_x, data_y = (np.asarray(values, dtype=float) for values in data)
    curve_x, curve_y = (np.asarray(values, dtype=float) for values in curve)
    columns = style.width - MARGIN - 1
    top = _round_up(max(data_y.max(), curve_y.max()))
    left, right = curve_x[0], curve_x[-1]

    across = np.linspace(left, right, 2 * columns)
    dots = _trace(np.interp(across, curve_x, curve_y) / top, 2 * height)
    cells = [list(row) for row in _cells(dots, BLOCKS if style.blocks else ASCII)]
    for x, y in zip(data_x, data_y, strict=True):
        column = round((x - left) / (right - left) * (columns - 1))
        cells[height - 1 - _level(y / top, height)][column] = "o"

    rows = [_paint(row, title, style) for row in cells]
    sample = "▄▀▄" if style.blocks else ".'."
    lines = [f"{title}: o data, {sample} fit"]
    labels = {0: f"{top:g}", height // 2: f"{top / 2:g}", height - 1: "0"}
    lines += [f"{labels.get(k, ''):>{MARGIN - 1}} |{row}" for k, row in enumerate(rows)]
    lines += [" " * MARGIN + "+" + "-" * columns, " " * (MARGIN + 1) + _axis(left, right, columns)]
    return "\n".join(line.rstrip() for line in lines)


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _round_up(value: float) -> float:
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 2, 4, 5, 8, 10, 20) if step * power >= value))


def _level(fraction: float, levels: int) -> int:
    return min(max(int(fraction * levels), 0), levels - 1)


def _trace(fractions: NDArray[np.float64], levels: int) -> NDArray[np.bool_]:
    dots = np.zeros((levels, len(fractions)), dtype=bool)
    before = _level(fractions[0], levels)
    for column, fraction in enumerate(fractions):
        now = _level(fraction, levels)
        # From the step next to the last one, so that steep parts have no gaps and no doubled dots.
        start = now if now == before else before + (1 if now > before else -1)
        dots[min(start, now) : max(start, now) + 1, column] = True
        before = now
    return dots[::-1]


def _cells(dots: NDArray[np.bool_], characters: str) -> list[str]:
    height, width = dots.shape
    squares = dots.reshape(height // 2, 2, width // 2, 2).transpose(0, 2, 1, 3)
    return ["".join(characters[i] for i in row) for row in (squares * WEIGHTS).sum(axis=(2, 3))]


def _paint(cells: Sequence[str], title: str, style: Style) -> str:
    if not style.colour:
        return "".join(cells)
    colour = COLOURS.get(title, PLAIN_COLOUR)
    codes = {" ": "", "o": "1"}  # data bold
    runs = groupby(cells, lambda cell: codes.get(cell, colour))
    return "".join(f"\x1b[{code}m{''.join(run)}\x1b[0m" if code else "".join(run) for code, run in runs)


def _axis(left: float, right: float, columns: int) -> str:
    line = [" "] * columns
    for quarter in range(5):
        text = f"{left + (right - left) * quarter / 4:g}"
        centre = round((columns - 1) * quarter / 4)
        start = min(max(centre - len(text) // 2, 0), columns - len(text))
        line[start : start + len(text)] = text
    return "".join(line)
