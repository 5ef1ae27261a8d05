"""The graph of a tensor as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kernels.kinds import reference_tape
from kernels.programs.steps import repeats as repeats_of
from kernels.programs.steps import representatives
from tape.engine.custom_function import saved_value
from tape.engine.nodes import FunctionNode, Node
from tape.tensors.figures import DotText, Edges, Graph
from tape.tensors.tensor import AccumulateGrad, Tensor

_MOST_SHOWN = 4  # elements up to which a saved value is shown


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
    the graph; TypeError for what is no tensor.

    >>> import tape
    >>> w = tape.tensor([1.0, 2.0], requires_grad=True)
    >>> print(tape.graph((w * w).sum(), params={"w": w}))
    digraph {
      node [fontname="monospace", shape="box"];
      l0 [label="w\nfloat64[2]", shape="ellipse"];
      s0 [label="MulBackward0\nfloat64[2]"];
      s1 [label="SumBackward0\nfloat64[]"];
      o0 [label="result\nfloat64[]", shape="ellipse"];
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
            self.text.node(f"l{k}", f"{name}\n{_described([leaf.spec])}", shape="ellipse")
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
            self.text.node(f"o{k}", f"result\n{_described([x.spec])}", shape="ellipse")
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
            shapes = ", ".join(_shown(m.dtype, m.shape) for m in node._input_metadata)
            self.text.node(f"s{k}", f"{title}{node.name()}\n{shapes}")
            for name, value in _saved_of(node) if self.saved else ():
                self.text.node(f"s{k}_{name}", f"{name}\n{_value(value)}", shape="ellipse", style="dotted")
                self.edges.add(f"s{k}_{name}", f"s{k}")


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
    return sorted(nodes, key=lambda node: node._slot), leaves


def _saved_of(node: Node) -> list[tuple[str, Any]]:
    if isinstance(node, FunctionNode):
        return [(f"saved{k}", value) for k, value in enumerate(node.saved_tensors)]
    form = node._form
    if form.is_view or form.op is reference_tape.OUTPUT:
        return []
    return [(name, saved_value(form, node._instruction, name)) for name in form.saved]


def _value(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return str(value.tolist()) if value.spec.size <= _MOST_SHOWN else _described([value.spec])


def _described(specs: Iterable[Any]) -> str:
    return ", ".join(_shown(spec.dtype, spec.shape) for spec in specs)


def _shown(dtype: Any, shape: Iterable[int]) -> str:
    return f"{np.dtype(dtype).name}[{', '.join(map(str, shape))}]"
