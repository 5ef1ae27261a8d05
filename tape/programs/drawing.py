"""A program as a graph: values and operations, then the pullbacks; what repeats is drawn once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from kernels.programs.recording import flow as flows
from kernels.programs.recording.flow import representatives
from kernels.programs.recording.program import Recipe, describe, listing, parameters
from kernels.programs.recording.program_words import HEAD, StepKind
from tape.foundation.dot import Edges, Graph, Text
from tape.foundation.html_text import table

_MORE = ", ..."
_MOST_LINES = 200
"""Of a listing in a notebook."""


def shown(recipe: Recipe) -> str:
    """Return a program as HTML: a table, and the beginning of its listing."""
    lines = listing(recipe).splitlines()
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"  ... and {len(lines) - _MOST_LINES} more lines: print(program)"]
    arguments, results = (
        ", ".join(describe(recipe.nodes[i].spec) for i in g) for g in (recipe.arguments, recipe.outputs)
    )
    rows = [("operations", str(len(recipe.steps))), ("arguments", arguments), ("results", results)]
    return table(rows, "\n".join(lines))


def drawn(recipe: Recipe, *, reverse: bool) -> Graph:
    """Return the graph of a program; with ``reverse`` also its pullbacks, if its result is one floating number."""
    return _Drawing(recipe, reverse=reverse).graph()


class _Drawing:
    """Writes a program in DOT.

    An operation that repeats is drawn for all its copies: ``standing`` is the one drawn for each. A dashed edge leads
    to the next copy.
    """

    def __init__(self, recipe: Recipe, *, reverse: bool) -> None:
        self.recipe, self.text = recipe, Text()
        self.lines = None if recipe.lines is None else recipe.lines.of_steps(recipe.steps)
        self.flow = flows.flow_of(recipe, self.lines)
        self.standing = representatives(self.flow.repeats, 0, len(recipe.steps)).tolist()
        self.words, self.starts = recipe.steps.words, recipe.steps.starts
        self.sources, self.outputs = flows.gradient_sources(recipe, self.flow)
        self.reversed = flows.differentiated(recipe, self.sources, self.outputs).tolist()
        if not reverse:
            self.reversed = [False] * len(self.standing)
        self.pulled = {self.standing[at] for at, is_reversed in enumerate(self.reversed) if is_reversed}
        """Steps whose pullbacks are drawn."""
        self.edges = Edges()
        self.constants: dict[int, set[int]] = {}
        """Nodes of constants that are drawn, with those in whose place they are."""
        self.varying: set[int] = set()
        """Steps whose numbers or parameters differ from copy to copy."""

    def graph(self) -> Graph:
        """Draw everything."""
        for at in range(len(self.standing)):
            self._read(at)
        self._read_results()
        with self.text.cluster("forward"):
            self._arguments()
            self.text.parts(self.flow.repeats, 0, len(self.standing), partial(self._steps, reverse=False))
        for k, node in enumerate(self.recipe.outputs):
            self.text.node(f"o{k}", f"result\n{describe(self.recipe.nodes[node].spec)}", shape="ellipse")
        if self.pulled:
            with self.text.cluster("reverse"):
                self.text.parts(self.flow.repeats, 0, len(self.standing), partial(self._steps, reverse=True))
                self._gradients()
        self.text.edges(self.edges)
        return self.text.graph()

    def _kind(self, at: int) -> StepKind:
        return self.recipe.steps.kinds[self.words[self.starts[at]]]

    def _operands(self, at: int) -> Sequence[int]:
        start = self.starts[at] + HEAD
        return self.words[start : start + self._kind(at).count]

    def _read(self, at: int) -> None:
        """Take in where the operands of a step come from, and what its gradient reaches."""
        standing = self.standing[at]
        kind, form = self._kind(at), self._kind(at).form
        if kind is not self._kind(standing) and parameters(kind.params) != parameters(self._kind(standing).params):
            self.varying.add(standing)
        for k, node in enumerate(self._operands(at)):
            source = int(self.flow.sources[at, k])
            if node < 0:
                self._compare_numbers(standing, k, node)
                continue
            start = self._drawn_source(source, node, self._operands(standing)[k])
            again = source >= 0 and self.standing[source] >= standing
            self.edges.add(start, f"s{standing}", source, counted=at == standing, again=again)
            if self.reversed[at] and form is not None and form.wanted[k] and self.recipe.wants(node):
                self._read_gradient(standing, node, int(self.sources[at, k]))

    def _read_gradient(self, standing: int, node: int, source: int) -> None:
        """Take in that a pullback gives a gradient to what made an operand: a step, or an argument."""
        base = self.recipe.base_of(node)
        if source >= 0 and self.reversed[source]:
            again = self.standing[source] >= standing
            self.edges.add(f"r{standing}", f"r{self.standing[source]}", source, counted=False, again=again)
        elif source < 0 and self.recipe.nodes[base].argument:
            self.edges.add(f"r{standing}", f"g{base}", source, counted=False)

    def _compare_numbers(self, standing: int, k: int, word: int) -> None:
        numbers, other = self.recipe.steps.numbers, self._operands(standing)[k]
        if other >= 0 or numbers[~other] != numbers[~word]:
            self.varying.add(standing)

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

    def _read_results(self) -> None:
        for k, (node, at) in enumerate(zip(self.recipe.outputs, self.flow.outputs, strict=True)):
            self.edges.add(self._drawn_source(at, node, -1), f"o{k}")
        at = self.outputs[0] if self.outputs else -1
        if at >= 0 and self.reversed[at]:
            self.edges.add("o0", f"r{self.standing[at]}")

    def _arguments(self) -> None:
        for node in self.recipe.arguments:
            self.text.node(f"v{node}", f"%{node}\n{describe(self.recipe.nodes[node].spec)}", shape="ellipse")
        for node, standing_for in self.constants.items():
            value, spec = self.recipe.nodes[node].constant, self.recipe.nodes[node].spec
            title = repr(value.item()) if value is not None and value.size == 1 else "constant"
            more = f"\n{len(standing_for)} of them" if len(standing_for) > 1 else ""
            self.text.node(f"v{node}", f"{title}\n{describe(spec)}{more}", shape="ellipse", style="dotted")

    def _steps(self, steps: Iterable[int], *, reverse: bool) -> None:
        """Draw steps; those of one line of the user's in a frame."""
        by_line: dict[int, list[int]] = {}
        for at in steps:
            if not reverse or at in self.pulled:
                by_line.setdefault(-1 if self.lines is None else int(self.lines[at]), []).append(at)
        for line, members in by_line.items():
            title = self.recipe.lines.text(line, short=True) if self.recipe.lines is not None else ""
            with self.text.cluster(title, style="dashed") if title else nullcontext():
                for at in members:
                    self.text.node(*((f"r{at}", self._pullback(at)) if reverse else (f"s{at}", self._label(at))))

    def _label(self, at: int) -> str:
        """Return what a step does: its operation, numbers and parameters, and what it gives."""
        kind = self._kind(at)
        numbers = [f" {self.recipe.steps.numbers[~word]!r}" for word in self._operands(at) if word < 0]
        more = _MORE if at in self.varying else ""
        spec = self.recipe.nodes[self.words[self.starts[at] + 1]].spec
        return f"{kind.op.name}{''.join(numbers)}{parameters(kind.params)}{more}\n{describe(spec)}"

    def _pullback(self, at: int) -> str:
        form: Any = self._kind(at).form
        saved = () if form.is_view else form.saved
        return f"{form.name}\nreads {', '.join(saved)}" if saved else str(form.name)

    def _gradients(self) -> None:
        for node in self.recipe.arguments:
            if any(end == f"g{node}" for _, end in self.edges.between):
                self.text.node(f"g{node}", f"gradient of %{node}", shape="ellipse")
