"""Graphs of tensors and programs as pictures, in Graphviz's language DOT; what programs show of themselves."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels.kinds import reference_tape
from kernels.machine_code.compiled_machine import CompiledMachine, MemoryUse, compiled_memory_use, memory_use
from kernels.machine_code.tiers import Uncompiled, loop_program, reason_of
from kernels.native.structs import ADDS, CLEARS
from kernels.programs import steps as flows
from kernels.programs.machine import GuardMissed
from kernels.programs.program import ProgramError, Recipe, StepKind, describe, listing, parameters
from kernels.programs.recording import whole
from kernels.programs.steps import Repeat, representatives
from kernels.programs.steps import repeats as repeats_of
from tape.engine.custom_function import saved_value
from tape.engine.nodes import FunctionNode, Node
from tape.programs.profiling import Profile, profiled
from tape.tensors.printing import table
from tape.tensors.pytrees import Structure
from tape.tensors.tensor import AccumulateGrad, Tensor

# Text in DOT, drawn by Graphviz where that is installed.

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


# The graph of a tensor as a picture.

_MOST_SHOWN, _DIGITS = 4, 4  # elements up to which a saved value is shown, and their digits


def graph(
    input: Tensor | Sequence[Tensor],
    params: Mapping[str, Tensor] | None = None,
    *,
    saved: bool = False,
    repeats: bool = True,
) -> Graph:
    r"""Return the graph that a tensor, or several, were computed by, as Graphviz's DOT: leaves, and backward functions.

    ``params`` gives names to leaves and to other tensors. With ``saved`` the values that the graph keeps are drawn.
    Operations that repeat, as those of a time loop, are drawn once, in a frame with their count, and a dashed edge
    leads to the next time; with ``repeats=False`` each is drawn. Nothing is computed. GradError if a backward has freed
    the graph, and its shape (see ``Node.next_functions``) or values are not there; TypeError for what is no tensor.

    >>> import tape
    >>> w = tape.tensor([1.0, 2.0], requires_grad=True)
    >>> print(tape.graph((w * w).sum(), params={"w": w}))
    digraph {
      node [fontname="monospace", shape="box"];
      l0 [label="w\nfloat64[2]", shape="ellipse", style="filled", fillcolor="lightblue"];
      s0 [label="MulBackward0\nfloat64[2]"];
      s1 [label="SumBackward0\nfloat64[]"];
      o0 [label="result\nfloat64[]", shape="ellipse", style="filled", fillcolor="darkolivegreen1"];
      l0 -> s0;
      s0 -> s1;
      s1 -> o0;
    }
    """
    roots: list[Any] = list(input) if isinstance(input, (tuple, list)) else [input]
    names = dict(params or {})
    for x in (*roots, *names.values()):
        if not isinstance(x, Tensor):
            raise TypeError(f"graph: expected tensors, but got {type(x).__name__}")
    return _GraphDrawing(roots, names, saved=saved, repeats=repeats).graph()


def make_dot(
    var: Tensor | Sequence[Tensor],
    params: Mapping[str, Tensor] | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
) -> Graph:
    """Return torchviz's ``make_dot``: :func:`graph` with each operation drawn, and what was saved if that is asked for.

    >>> import tape
    >>> tape.make_dot(tape.ones(2, requires_grad=True).sum())
    <Graph of 3 nodes; str(graph) is its text in DOT>
    """
    del max_attr_chars
    return graph(var, params, saved=show_attrs or show_saved, repeats=False)


class _GraphDrawing:
    """Writes a graph in DOT; nodes are numbered in the order in which their operations ran."""

    def __init__(self, roots: list[Tensor], params: dict[str, Tensor], *, saved: bool, repeats: bool) -> None:
        self.text, self.edges, self.roots, self.saved = DotText(), Edges(), roots, saved
        self.nodes, self.leaves = _reached(map(_node_of, roots))
        self.held = [_node_of(x) for x in params.values()]  # their ids stay their own
        self.names = dict(zip(map(id, self.held), params, strict=True))
        self.numbers = {id(node): k for k, node in enumerate(self.nodes)}
        self.numbers |= {id(leaf): ~k for k, leaf in enumerate(self.leaves)}
        self.repeats = repeats_of(*self._flow()) if repeats else []
        self.standing = representatives(self.repeats, 0, len(self.nodes)).tolist()

    def _flow(self) -> tuple[Any, Any]:
        kinds: dict[Any, int] = {}
        symbols = [kinds.setdefault((node.name(), node._form.spec), len(kinds)) for node in self.nodes]
        rows = [[self.numbers.get(id(after), -1) for after, _ in node.next_functions] for node in self.nodes]
        sources = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
        for k, row in enumerate(rows):
            sources[k, : len(row)] = row
        if (sources >= np.arange(len(rows))[:, None]).any():  # tapes of other threads: the order is not known
            symbols = list(range(len(rows)))
        return np.array(symbols, np.int64), sources

    def graph(self) -> Graph:
        """Draw everything."""
        for k, leaf in enumerate(self.leaves):
            name = self.names.get(id(leaf), "leaf")
            self.text.node(f"l{k}", f"{name}\n{describe(leaf.spec)}", "leaf", shape="ellipse")
        self.text.parts(self.repeats, 0, len(self.nodes), self._draw)
        for node in self.nodes:
            number = self.numbers[id(node)]
            end = self.standing[number]
            for after, _ in node.next_functions:
                if after is not None:
                    source = self.numbers[id(after)]
                    again = source >= 0 and self.standing[source] >= end
                    self.edges.add(self._drawn(after), f"s{end}", source, counted=number == end, again=again)
        for k, x in enumerate(self.roots):
            self.text.node(f"o{k}", f"result\n{describe(x.spec)}", "result", shape="ellipse")
            if (node := _node_of(x)) is not None:
                self.edges.add(self._drawn(node), f"o{k}")
        self.text.edges(self.edges)
        return self.text.graph()

    def _drawn(self, node: Any) -> str:
        number = self.numbers[id(node)]
        return f"s{self.standing[number]}" if number >= 0 else f"l{~number}"

    def _draw(self, steps: Iterable[int]) -> None:
        for k in steps:
            node = self.nodes[k]
            title = f"{self.names[id(node)]}\n" if id(node) in self.names else ""
            shapes = ", ".join(map(describe, node._input_metadata))
            self.text.node(f"s{k}", f"{title}{node.name()}\n{shapes}", "write" if _writes(node._form) else "")
            for name, value in _saved_of(node) if self.saved else ():
                self.text.node(f"s{k}_{name}", f"{name}\n{_value(value)}", "saved", shape="ellipse")
                self.edges.add(f"s{k}_{name}", f"s{k}")


def _writes(form: Any) -> bool:
    return form is not None and form.kind in (ADDS, CLEARS)


def _node_of(x: Tensor) -> Any:
    node = x.grad_fn
    return x._slot if node is None and type(x._slot) is AccumulateGrad else node


def _reached(roots: Iterable[Any]) -> tuple[list[Node], list[AccumulateGrad]]:
    pending, reached = [node for node in roots if node is not None], dict[int, Any]()
    while pending:
        node = pending.pop()
        if id(node) not in reached:
            reached[id(node)] = node
            pending += [after for after, _ in reversed(node.next_functions) if after is not None]
    leaves = [node for node in reached.values() if type(node) is AccumulateGrad]
    nodes = [node for node in reached.values() if type(node) is not AccumulateGrad]
    return sorted(nodes, key=lambda node: (node._slot, node.name() == node._form.name)), leaves


def _saved_of(node: Node) -> list[tuple[str, Any]]:
    if isinstance(node, FunctionNode):
        return [(f"saved{k}", value) for k, value in enumerate(node.saved_tensors)]
    form = node._form
    if form.is_view or form.op is reference_tape.OUTPUT or node.name() != form.name:
        return []
    return [(name, saved_value(form, node._instruction, name)) for name in form.saved]


def _value(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    if value.spec.size > _MOST_SHOWN:
        return describe(value.spec)
    array = value.numpy(force=True)
    is_float = array.dtype.kind == "f"
    return str(np.vectorize(_rounded, otypes=[object])(array).tolist() if is_float and array.size else array.tolist())


def _rounded(value: float) -> float:
    """Return a number with four digits behind the point, or four in all if it is small, so that it is not 0.0."""
    return float(f"{value:.{_DIGITS}{'g' if abs(value) < 1 else 'f'}}")


# A program as a picture.

_MORE = ", ..."
_MOST_LINES = 200  # of a listing in a notebook


class _ProgramDrawing:
    """Writes a program in DOT.

    An operation that repeats is drawn for all its copies: ``standing`` is the one drawn for each. A dashed edge leads
    to the next copy.
    """

    def __init__(self, recipe: Recipe, *, reverse: bool) -> None:
        self.recipe, self.text = recipe, DotText()
        self.lines = None if recipe.lines is None else recipe.lines.of_steps(recipe.steps)
        self.flow = flows.flow_of(recipe, self.lines)
        self.standing = representatives(self.flow.repeats, 0, len(recipe.steps)).tolist()
        self.steps = list(map(recipe.steps.raw, range(len(recipe.steps))))
        self.sources, self.outputs = flows.gradient_sources(recipe, self.flow)
        self.reversed = flows.differentiated(recipe, self.sources, self.outputs).tolist()
        if not reverse:
            self.reversed = [False] * len(self.standing)
        self.pulled = {self.standing[at] for at, is_reversed in enumerate(self.reversed) if is_reversed}
        """Steps whose pullbacks are drawn."""
        self.edges = Edges()
        self.constants: dict[int, set[int]] = {}
        """Nodes of constants that are drawn, with those in whose place they are."""
        self.varying: set[int] = set()  # steps whose numbers or parameters differ from copy to copy

    def graph(self) -> Graph:
        """Draw everything."""
        for at in range(len(self.standing)):
            self._read(at)
        for k, (node, at) in enumerate(zip(self.recipe.outputs, self.flow.outputs, strict=True)):
            self.edges.add(self._drawn_source(at, node, -1), f"o{k}")
        at = self.outputs[0] if self.outputs else -1
        if at >= 0 and self.reversed[at]:
            self.edges.add("o0", f"r{self.standing[at]}")
        with self.text.cluster("forward"):
            self._arguments()
            self.text.parts(self.flow.repeats, 0, len(self.standing), partial(self._steps, reverse=False))
        for k, node in enumerate(self.recipe.outputs):
            self.text.node(f"o{k}", f"result\n{describe(self.recipe.nodes[node].spec)}", "result", shape="ellipse")
        if self.pulled:
            with self.text.cluster("reverse"):
                self.text.parts(self.flow.repeats, 0, len(self.standing), partial(self._steps, reverse=True))
                for node in self.recipe.arguments:
                    if any(end == f"g{node}" for _, end in self.edges.between):
                        self.text.node(f"g{node}", f"gradient of %{node}", "leaf", shape="ellipse")
        self.text.edges(self.edges)
        return self.text.graph()

    def _kind(self, at: int) -> StepKind:
        return self.recipe.steps.kinds[self.steps[at].kind]

    def _read(self, at: int) -> None:
        standing = self.standing[at]
        kind, form = self._kind(at), self._kind(at).form
        if kind is not self._kind(standing) and parameters(kind.params) != parameters(self._kind(standing).params):
            self.varying.add(standing)
        for k, node in enumerate(self.steps[at].operands):
            source = int(self.flow.sources[at, k])
            if node < 0:
                numbers, other = self.recipe.steps.numbers, self.steps[standing].operands[k]
                if other >= 0 or numbers[~other] != numbers[~node]:
                    self.varying.add(standing)
                continue
            start = self._drawn_source(source, node, self.steps[standing].operands[k])
            again = source >= 0 and self.standing[source] >= standing
            self.edges.add(start, f"s{standing}", source, counted=at == standing, again=again)
            if self.reversed[at] and form is not None and form.wanted[k] and self.recipe.wants(node):
                self._read_gradient(standing, node, int(self.sources[at, k]))

    def _read_gradient(self, standing: int, node: int, source: int) -> None:
        base = self.recipe.base_of(node)
        if source >= 0 and self.reversed[source]:
            again = self.standing[source] >= standing
            self.edges.add(f"r{standing}", f"r{self.standing[source]}", source, counted=False, again=again)
        elif source < 0 and self.recipe.nodes[base].argument:
            self.edges.add(f"r{standing}", f"g{base}", source, counted=False)

    def _drawn_source(self, source: int, node: int, standing: int) -> str:
        """Return what an operand is drawn as: the step that made it, an argument, or a constant for all copies."""
        if source >= 0:
            return f"s{self.standing[source]}"
        base, first = self.recipe.base_of(node), self.recipe.base_of(standing) if standing >= 0 else -1
        if self.recipe.nodes[base].argument:
            return f"v{base}"
        alike = first >= 0 and self.recipe.nodes[first].constant is not None and first in self.constants
        shown = first if alike else base
        self.constants.setdefault(shown, set()).add(base)
        return f"v{shown}"

    def _arguments(self) -> None:
        for node in self.recipe.arguments:
            self.text.node(f"v{node}", f"%{node}\n{describe(self.recipe.nodes[node].spec)}", "leaf", shape="ellipse")
        for node, standing_for in self.constants.items():
            value, spec = self.recipe.nodes[node].constant, self.recipe.nodes[node].spec
            title = repr(value.item()) if value is not None and value.size == 1 else "constant"
            more = f"\n{len(standing_for)} of them" if len(standing_for) > 1 else ""
            self.text.node(f"v{node}", f"{title}\n{describe(spec)}{more}", shape="ellipse", style="dotted")

    def _steps(self, steps: Iterable[int], *, reverse: bool) -> None:
        by_line: dict[int, list[int]] = {}
        for at in steps:
            if not reverse or at in self.pulled:
                by_line.setdefault(-1 if self.lines is None else int(self.lines[at]), []).append(at)
        for line, members in by_line.items():
            title = self.recipe.lines.text(line, short=True) if self.recipe.lines is not None else ""
            with self.text.cluster(title, style="dashed") if title else nullcontext():
                for at in members:
                    kind = "write" if _writes(self._kind(at).form) else ""
                    self.text.node(f"{'r' if reverse else 's'}{at}", self._label(at, reverse=reverse), kind)

    def _label(self, at: int, *, reverse: bool) -> str:
        kind: Any = self._kind(at)
        if reverse:
            saved = () if kind.form.is_view else kind.form.saved
            return f"{kind.form.name}\nreads {', '.join(saved)}" if saved else str(kind.form.name)
        numbers = [f" {self.recipe.steps.numbers[~word]!r}" for word in self.steps[at].operands if word < 0]
        more = _MORE if at in self.varying else ""
        spec = self.recipe.nodes[self.steps[at].result].spec
        return f"{kind.op.name}{''.join(numbers)}{parameters(kind.params)}{more}\n{describe(spec)}"


class Seen:
    """The part of a program that shows what it does."""

    _first: dict[bool, Any]
    _recipe: Recipe
    _iterations: tuple[Recipe, Recipe] | None = None  # a recipe that has not all iterations, and with them

    @property
    def _complete(self) -> Recipe:
        """The recipe with all iterations."""
        recipe = self._recipe
        if not recipe.skipped:
            return recipe
        if self._iterations is None or self._iterations[0] is not recipe:
            self._iterations = recipe, whole(recipe)
        return self._iterations[1]

    _template: Structure
    _unfinished: str
    _check_scalar: Callable[..., None]
    _checked: Callable[..., tuple[Any, bool]]
    _replayed: Callable[..., list[Any]]
    _replayed_back: Callable[..., tuple[list[Any], list[Any]]]

    def graph(self, *, reverse: bool = True) -> Graph:
        r"""Return the program as a graph, whose text is Graphviz's DOT: values, operations and, below, the pullbacks.

        Operations that repeat, as those of a loop, are drawn once, in a frame with their count; a dashed edge leads to
        the next time. ``reverse=False`` leaves out the pullbacks, which are there if the result is one floating number.

        >>> import tape
        >>> print(tape.record(lambda x: x.exp(), 1.0).graph(reverse=False))  # doctest: +ELLIPSIS
        digraph {
        ...
            s0 [label="exp\nfloat64[]"];
        ...
          v0 -> s0;
          s0 -> o0;
        }
        """
        self._check_finished()
        return _ProgramDrawing(self._complete, reverse=reverse).graph()

    def memory(self, *, reverse: bool = False) -> MemoryUse:
        """Return the bytes that a call needs, or with ``reverse`` a call of :meth:`value_and_grad`, before it runs.

        ``print`` shows them as tables: by kind (arguments, results, values, gradient buffers), how many of these are
        shared, and what operations made, by operation, by what repeats and by line, if lines are kept. Of a program
        that has been compiled to machine code, they are the bytes of its workspace.

        >>> import numpy as np
        >>> import tape
        >>> program = tape.record(lambda x: (x * x).sum(), np.ones(1000))
        >>> use = program.memory(reverse=True)
        >>> use.kinds["arguments"].bytes, use.kinds["gradients"].count, use.total
        (8000, 3, 24064)
        """
        self._check_finished()
        machine = self._first.get(reverse)
        if isinstance(machine, CompiledMachine):
            return compiled_memory_use(machine.code, reverse=reverse)
        return memory_use(self._complete, reverse=reverse)

    def loops(self, *, reverse: bool = False) -> str:
        """Return as text the loops that the program is compiled as; with ``reverse`` those of its value and gradient.

        What repeats is printed once. On top stands the memory: arguments, results, gradients, constants and workspace.
        Names in the text are ``v`` for values, ``p`` for what a loop carries, ``s`` for sums, ``g_v`` for gradients.
        ProgramError, naming the reason, for a program that the interpreter has to run.

        >>> import numpy as np
        >>> import tape
        >>> print(tape.record(lambda x: (x * x).sum(), np.ones(1000)).loops())
        # a0: argument 0, float64[1000]
        # r1: result 0, float64[]
        def program(a0, r1):
            s3 = -0.0
            for i1 in range(1000):
                v1 = a0[i1]
                v2 = (v1 * v1)
                s3 = accumulators.added(s3, v2)
            r1[0] = s3
            return -1
        """
        self._check_finished()
        try:
            return loop_program(self._complete, reverse=reverse)
        except Uncompiled as refused:
            raise ProgramError(f"the interpreter runs the program: {reason_of(self._complete, refused)}") from None

    def profile(self, *args: Any, reverse: bool = True, **kwargs: Any) -> Profile:
        """Time each call of the program on these arguments, which are not changed; ``print`` shows tables.

        They have calls, bytes and times by operation, by what repeats and by line, if lines are kept;
        ``profile(...).to_html(path)`` writes a page of the listing with times and memory beside it, and
        ``speedscope(path)`` a file for https://www.speedscope.app. The program runs some times, as a whole and call by
        call. ProgramError for a program that returns no single floating number, unless ``reverse`` is
        False, and for arguments that it cannot be called on.

        >>> import numpy as np
        >>> import tape
        >>> program = tape.record(lambda x: (x * x).sum(), np.ones(1000))
        >>> profile = program.profile(np.ones(1000))
        >>> sorted((entry.name, entry.calls) for entry in profile.groups["operation"])
        [('MulBackward0', 2), ('SumBackward0', 3), ('multiply', 1), ('sum', 2)]
        """
        self._check_finished()
        if reverse:
            self._check_scalar(has_aux=self._template.kind is tuple)
        arguments, _ = self._checked(args, kwargs, writes=False)
        try:
            values, gradients = self._replayed_back(arguments) if reverse else (self._replayed(arguments), [])
        except GuardMissed as miss:
            raise ProgramError(f"profile: on these arguments guard {miss.number} stops the program") from None
        return profiled(self._complete, arguments, [*values, *gradients], reverse=reverse)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how much it computes, and the beginning of its listing."""
        recipe, lines = self._complete, listing(self._complete).splitlines()
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], f"  ... and {len(lines) - _MOST_LINES} more lines: print(program)"]
        specs = [
            ", ".join(describe(recipe.nodes[i].spec) for i in group) for group in (recipe.arguments, recipe.outputs)
        ]
        return table(
            [("operations", str(len(recipe.steps))), ("arguments", specs[0]), ("results", specs[1])], "\n".join(lines)
        )

    def _repr_svg_(self) -> str | None:
        """Return the graph as a drawing; None where Graphviz is missing, or the graph is large."""
        return self.graph()._repr_svg_() if not self._unfinished and installed() else None

    def _check_finished(self) -> None:
        if self._unfinished:
            raise ProgramError(self._unfinished)
