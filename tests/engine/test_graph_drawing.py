"""The graph behind a tensor in DOT, parsed again and held against a walk along ``next_functions``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tape
from tests.support.dot_graphs import DOT, drawn, named, parse

pytestmark = pytest.mark.quick


class Two(tape.autograd.Function):
    """A Function of two results."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        return a * 2 + b * 3 + 0 * ctx.saved_tensors[0]


def products(x: Any, w: Any) -> Any:
    return ((w @ x).exp() * x).sum() + x.max(0)[0]


def written(x: Any, w: Any) -> Any:
    y = x * 2.0
    part = y[1:]
    y[:1] = w[0, :1]
    return (part * y[:1]).sum()


def called(x: Any, w: Any) -> Any:
    a, b = Two.apply(x)
    return (a * b * w).sum()


def looping(x: Any, w: Any) -> Any:
    for _ in range(5):
        x = x + tape.tanh(w @ x)
    return x.sum()


def walked(root: Any) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Names of all nodes, leaves as such, and of the nodes of each edge."""
    seen: dict[int, Any] = {}
    edges: Counter[tuple[str, str]] = Counter()
    pending = [root]

    def name(node: Any) -> str:
        return "leaf" if node.name().endswith("AccumulateGrad") else node.name()

    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            after = {id(n): n for n, _ in node.next_functions if n is not None}
            edges.update((name(n), name(node)) for n in after.values())
            pending += after.values()
    return Counter(map(name, seen.values())), edges


def inputs() -> tuple[Any, Any]:
    x = tape.tensor([0.5, 2.0], requires_grad=True)
    return x, tape.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


@pytest.mark.parametrize("function", [products, written, called, looping])
def test_nodes_and_edges_are_those_of_the_graph(function: Callable[..., Any]) -> None:
    y = function(*inputs())
    parsed = parse(str(tape.graph(y, repeats=False)))
    nodes, edges = walked(y.grad_fn)
    first = {name: label.split("\n")[0] for name, label in parsed.labels.items()}
    assert Counter(first.values()) == nodes + Counter(["result"])
    assert Counter((first[a], first[b]) for a, b in parsed.edges) == edges + Counter([(y.grad_fn.name(), "result")])
    assert set(parsed.titles.values()) == {()}


def test_a_loop_is_drawn_once() -> None:
    x, w = inputs()
    parsed = parse(tape.graph(looping(x, w), {"x": x, "w": w}).dot)
    assert Counter(parsed.titles.values()) == {(): 4, ("5 times",): 3}
    edges = named(parsed)
    assert {pair for pair, attributes in edges.items() if attributes.get("style") == "dashed"} == {
        ("AddBackward0", "MvBackward0"),
        ("AddBackward0", "AddBackward0"),
    }
    assert {("w", "MvBackward0"), ("x", "MvBackward0"), ("x", "AddBackward0")} <= edges.keys()


def test_names_and_shapes() -> None:
    x, w = inputs()
    h = w @ x
    labels = parse(tape.graph(h.float().sum(), {"x": x, "w": w, "hidden": h}).dot).labels
    assert {"x\nfloat64[2]", "w\nfloat64[2, 2]", "hidden\nMvBackward0\nfloat64[2]"} <= set(labels.values())
    assert {"ToCopyBackward0\nfloat32[2]", "SumBackward0\nfloat32[]", "result\nfloat32[]"} <= set(labels.values())


def test_saved_values() -> None:
    x, w = inputs()
    first = parse(tape.graph(products(x, w), saved=True).dot)
    assert "a\n[[1.0, 2.0], [3.0, 4.0]]" in first.labels.values()
    assert [label for label in first.labels.values() if label.startswith("i\n")] == ["i\n1"]
    large = tape.ones(5, requires_grad=True)
    assert "x\nfloat64[5]" in parse(tape.graph(tape.sin(large).sum(), saved=True).dot).labels.values()
    assert "saved0\n[0.5, 2.0]" in parse(tape.graph(called(x, w), saved=True).dot).labels.values()
    assert not any("saved" in label for label in parse(tape.graph(called(x, w)).dot).labels.values())
    for function in (written, looping):
        parse(tape.graph(function(x, w), saved=True).dot)


def test_several_tensors_and_those_without_a_graph() -> None:
    x, w = inputs()
    y = w @ x
    parsed = parse(tape.graph([y.sum(), y.exp()]).dot)
    assert Counter(label.split("\n")[0] for label in parsed.labels.values())["MvBackward0"] == 1
    assert [label for label in parsed.labels.values() if label.startswith("result")] == [
        "result\nfloat64[]",
        "result\nfloat64[2]",
    ]
    assert named(parse(tape.graph(x, {"x": x}).dot)).keys() == {("x", "result")}
    assert parse(tape.graph(tape.ones(2)).dot).labels == {"o0": "result\nfloat64[2]"}


def test_a_stale_view() -> None:
    x, w = inputs()
    y = x * 2.0
    part = y[1:]
    y.mul_(w[0])
    assert (y.grad_fn.name(), "AsStridedBackward0") in named(parse(tape.graph(part).dot))


def test_a_graph_over_the_tapes_of_two_threads() -> None:
    x, w = inputs()
    parts: list[Any] = []
    thread = threading.Thread(target=lambda: parts.append(looping(x, w)))
    y = x * 2.0
    thread.start()
    thread.join()
    z = parts[0] * y
    nodes, _ = walked(z.grad_fn)
    parsed = parse(tape.graph(z, repeats=False).dot)
    assert len(parsed.labels) == sum(nodes.values()) + 1
    parse(tape.graph(z).dot)


def test_wrong_arguments_and_freed_graphs() -> None:
    x, w = inputs()
    with pytest.raises(TypeError, match="expected tensors, but got float"):
        tape.graph(2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got int"):
        tape.graph(x, {"x": 3})  # type: ignore[dict-item]
    y = products(x, w)
    whole = str(tape.graph(y))
    y.backward()
    assert str(tape.graph(y)) == whole  # as in PyTorch, a graph that a backward has freed has its shape
    with pytest.raises(RuntimeError, match="a second time"):
        tape.graph(y, saved=True)


def test_nothing_changes() -> None:
    x, w = inputs()
    y = products(x, w)
    tape.graph(y, saved=True)
    y.backward()
    gradient = x.grad
    x.grad = None
    products(x, w).backward()
    assert (x.grad == gradient).all()


@pytest.mark.skipif(DOT is None, reason="needs Graphviz's program dot")
def test_graphviz_reads_it() -> None:
    x, w = inputs()
    graph = tape.graph(looping(x, w), {'a "name"\\n': x}, saved=True)
    assert sorted(drawn(graph.dot)) == sorted(parse(graph.dot).labels)


def test_colours_and_rounded_values_are_torchvizs() -> None:
    x, w = inputs()
    drawing = str(tape.graph(written(x * (1.0 / 3.0), w), saved=True, repeats=False))
    for kind, colour in {"leaf": "lightblue", "result": "darkolivegreen1", "CopySlices": "lightsalmon"}.items():
        lines = [line for line in drawing.splitlines() if f'label="{kind}' in line]
        assert lines
        assert all(f'fillcolor="{colour}"' in line for line in lines)
    assert 'fillcolor="orange"' in drawing
    assert "0.3333" in drawing
    assert "0.33333" not in drawing
    small = str(tape.graph(tape.tensor([4.123456e-7, 123.456789], requires_grad=True) ** 2, saved=True))
    assert "[4.123e-07, 123.4568]" in small


def test_make_dot_has_torchvizs_arguments(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = inputs()
    y = looping(x, w)
    dot = tape.make_dot(y, params={"x": x, "w": w})
    assert dot.source == dot.dot == str(tape.graph(y, {"x": x, "w": w}, repeats=False))
    assert dot.source.count("TanhBackward0") == 5
    assert tape.make_dot(y, show_attrs=True, show_saved=True).source.count("orange") > 5
    path = dot.render(tmp_path / "graph", "dot")
    assert path == str(tmp_path / "graph.dot")
    assert parse((tmp_path / "graph.dot").read_text()) == parse(str(dot))
    assert dot.render(tmp_path / "graph.gv") == str(tmp_path / "graph.gv")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    dot.format = "dot"
    assert dot.render("other", directory=tmp_path, view=True, cleanup=True) == str(tmp_path / "other.dot")
    assert opened == [(tmp_path / "other.dot").resolve().as_uri()]
