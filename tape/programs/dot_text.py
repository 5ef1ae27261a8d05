"""Text in Graphviz's language DOT, and drawn by Graphviz where that is installed."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernels.programs.steps import Repeat

_MISSING = (
    "a drawing needs the package graphviz, which the extra viz installs, and Graphviz's program dot "
    "(https://graphviz.org/download); the text, str(graph), can be drawn elsewhere"
)
_MOST_DRAWN = 100_000
"""Characters of the text up to which a notebook draws unasked: dot takes minutes for large graphs."""


class Graph:
    """A graph of operations. ``dot``, ``source`` or ``str(graph)`` is its text in DOT, Graphviz's language.

    A notebook shows it as a drawing where Graphviz is installed: the extra ``viz`` and the program ``dot``. Leaves and
    arguments are blue, results green, saved values orange, writes in place red.
    """

    format: str | None = None

    def __init__(self, dot: str) -> None:
        self.dot = dot

    @property
    def source(self) -> str:
        """The text in DOT, by torchviz's name."""
        return self.dot

    def render(
        self,
        filename: Any,
        format: str | None = None,  # noqa: A002 (Graphviz's name)
        *,
        directory: Any = "",
        view: bool = False,
        cleanup: bool = True,
    ) -> str:
        """Draw into a file, in the format of its suffix, or ``format`` (svg, png, pdf), which is appended; return it.

        ``"dot"`` writes the text, for which nothing need be installed; ImportError where Graphviz is missing. With
        ``view`` the file is opened; ``cleanup`` says nothing, since no other file is left. ``graph.format = "png"``
        does for all calls what ``format`` does for one.

        >>> import tape
        >>> tape.graph(tape.ones(2, requires_grad=True) * 2.0).render("/dev/null", "dot")  # doctest: +SKIP
        '/dev/null.dot'
        """
        del cleanup
        path, format = Path(directory, filename), format or self.format  # noqa: A001 (likewise)
        path = path.with_name(f"{path.name}.{format}") if format is not None else path
        kind = path.suffix.removeprefix(".") or "svg"
        drawing = self.dot.encode() if kind in ("dot", "gv") else _drawn(self.dot, kind)
        if drawing is None:
            raise ImportError(_MISSING)
        path.write_bytes(drawing)
        if view:
            import webbrowser

            webbrowser.open(path.resolve().as_uri())
        return str(path)

    def svg(self) -> str:
        """Return the drawing as SVG; ImportError, with the remedy, where Graphviz is missing."""
        drawing = _drawn(self.dot)
        if drawing is None:
            raise ImportError(_MISSING)
        return drawing.decode()

    def _repr_svg_(self) -> str | None:
        """Return what a notebook shows; None for its text instead."""
        drawing = _drawn(self.dot) if len(self.dot) <= _MOST_DRAWN else None
        return None if drawing is None else drawing.decode()

    def __str__(self) -> str:
        return self.dot

    def __repr__(self) -> str:
        nodes = self.dot.count(" [label=") - self.dot.count(" graph [label=")  # those are the titles of frames
        return f"<Graph of {nodes} nodes; str(graph) is its text in DOT>"


def installed() -> bool:
    """Whether graphs can be drawn here: there are the package graphviz, of the extra ``viz``, and the program dot."""
    return importlib.util.find_spec("graphviz") is not None and shutil.which("dot") is not None


def _drawn(dot: str, kind: str = "svg") -> bytes | None:
    if not installed():
        return None
    graphviz: Any = importlib.import_module("graphviz")
    return bytes(graphviz.Source(dot).pipe(format=kind))


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


_COLOURS = {"leaf": "lightblue", "result": "darkolivegreen1", "saved": "orange", "write": "lightsalmon"}
"""Of kinds of nodes, the first three as torchviz has them."""


class DotText:
    """Writes a graph in DOT: nodes, edges, and clusters, which are drawn as frames with a title."""

    def __init__(self) -> None:
        self._lines: list[str] = ["digraph {", '  node [fontname="monospace", shape="box"];']
        self._depth = 1
        self._clusters = 0

    def node(self, name: str, label: str, kind: str = "", **attributes: str) -> None:
        """Add a node, in the cluster that is open, in the colour of its kind."""
        if kind:
            attributes |= {"style": "filled", "fillcolor": _COLOURS[kind]}
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
