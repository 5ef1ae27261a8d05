"""Programs drawn in DOT: the text is parsed again, and held against programs counted by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.machine import call_times
from tape.programs.drawing import DotText, _ProgramDrawing, quoted
from tests.support.dot_graphs import DOT, Parsed, drawn, named, parse
from tests.support.replays import function_of, pure

pytestmark = pytest.mark.quick


def test_a_program_of_three_operations() -> None:
    program = tape.record(lambda x, k: (tape.sin(x) * k).sum(), np.ones(3), 2.0)
    parsed = parse(str(program.graph()))
    assert Counter(parsed.labels.values()) == Counter(
        [
            *(
                "%0\nfloat64[3]",
                "%1\nfloat64[]",
                "sin\nfloat64[3]",
                "multiply\nfloat64[3]",
                "sum (0,) False\nfloat64[]",
            ),
            *("result\nfloat64[]", "SumBackward0", "MulBackward0\nreads a, b", "SinBackward0\nreads x"),
            *("gradient of %0", "gradient of %1"),
        ]
    )
    assert set(named(parsed)) == {
        *(("%0", "sin"), ("sin", "multiply"), ("%1", "multiply"), ("multiply", "sum (0,) False")),
        *(("sum (0,) False", "result"), ("result", "SumBackward0"), ("SumBackward0", "MulBackward0")),
        *(("MulBackward0", "SinBackward0"), ("MulBackward0", "gradient of %1"), ("SinBackward0", "gradient of %0")),
    }
    assert {parsed.titles[name][0] for name in parsed.labels if name[0] in "sv"} == {"forward"}
    assert {parsed.titles[name][0] for name in parsed.labels if name[0] in "rg"} == {"reverse"}
    forward = parse(program.graph(reverse=False).dot)
    assert forward.labels == {name: label for name, label in parsed.labels.items() if name[0] not in "rg"}


def euler(x: Any, k: Any) -> Any:
    for _ in range(100):
        x = x + 0.1 * tape.sin(x * k)
    return x.sum()


def test_a_loop_is_drawn_once_with_its_count() -> None:
    parsed = parse(str(tape.record(euler, np.ones(3), 2.0).graph()))
    body = [label for name, label in parsed.labels.items() if parsed.titles[name] == ("forward", "100 times")]
    back = [label for name, label in parsed.labels.items() if parsed.titles[name] == ("reverse", "100 times")]
    assert [label.split("\n")[0] for label in body] == ["multiply", "sin", "multiply 0.1", "add"]
    assert repr(tape.record(euler, np.ones(3), 2.0).graph()).startswith(f"<Graph of {len(parsed.labels)} nodes")
    assert sorted(label.split("\n")[0] for label in back) == [
        "AddBackward0",
        "MulBackward0",
        "MulBackward0",
        "SinBackward0",
    ]
    edges = {pair for pair, attributes in named(parsed).items() if attributes.get("style") == "dashed"}
    assert edges == {
        *(("add", "multiply"), ("add", "add")),  # to the next time
        *(("MulBackward0", "AddBackward0"), ("AddBackward0", "AddBackward0")),
    }
    assert {("%0", "multiply"), ("%0", "add"), ("%1", "multiply"), ("add", "sum (0,) False")} <= named(parsed).keys()


def test_what_differs_from_time_to_time_is_said_to() -> None:
    data = np.arange(12.0).reshape(4, 3)

    def fun(x: Any) -> Any:
        for k in range(4):
            x = tape.tanh(x * data[k]) * (k + 0.5)
        return x

    parsed = parse(str(tape.record(fun, np.ones(3)).graph()))
    assert "constant\nfloat64[3]\n4 of them" in parsed.labels.values()
    assert "multiply 0.5, ...\nfloat64[3]" in parsed.labels.values()
    assert "tanh\nfloat64[3]" in parsed.labels.values()
    assert not [name for name in parsed.labels if name.startswith("r")]  # no number: it has no pullbacks


def test_index_arrays_that_differ() -> None:
    def fun(x: Any) -> Any:
        total = x[0] * 0.0
        for k in range(5):
            total = total + (x[np.array([k, 2])] * x[k]).sum()
        return total

    parsed = parse(str(tape.record(fun, np.ones(9)).graph()))
    assert Counter(title[-1] for title in parsed.titles.values() if title)["5 times"] == 10
    assert "select_element [0], ...\nfloat64[]" in parsed.labels.values()


def test_a_result_that_is_a_constant() -> None:
    parsed = parse(str(tape.record(lambda x: (x * 2.0, tape.ones(2)), 1.0).graph()))
    assert ("constant", "result") in named(parsed)


def test_copies_of_which_some_have_no_gradient() -> None:
    """The first time y is a constant, so that its part of the first time leads to no argument."""

    def fun(x: Any) -> Any:
        y = tape.zeros(3)
        for _ in range(4):
            y = tape.sin(y) * 2.0
            with tape.no_grad():
                z = tape.cos(x) * 3.0
            y = y * z + x
        return y.sum()

    parsed = parse(str(tape.record(fun, np.ones(3)).graph()))
    assert ("AddBackward0", "gradient of %0") in named(parsed)


def test_results_of_all_times_have_their_number() -> None:
    def fun(x: Any) -> Any:
        states = []
        for _ in range(5):
            x = tape.cos(tape.exp(x))
            states.append(x)
        return tape.stack(states)

    parsed = parse(str(tape.record(fun, np.ones(3)).graph()))
    (edge,) = (attributes for (a, b), attributes in named(parsed).items() if a == "cos" and b.startswith("stack"))
    assert edge == {"taillabel": "5"}


def test_a_write_stands_between_what_was_and_what_reads_it() -> None:
    def fun(x: Any) -> Any:
        y = tape.zeros(3)
        y[1:] = x * 2.0
        return (y * y).sum()

    edges = named(parse(str(tape.record(fun, np.ones(2)).graph())))
    assert {("multiply 2.0", "copy_"), ("copy_", "multiply"), ("CopySlices", "MulBackward0")} <= edges.keys()
    assert ("MulBackward0", "gradient of %0") in edges


def reached(parsed: Parsed, start: str) -> set[str]:
    """The nodes that edges lead to."""
    seen, pending = set[str](), [start]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += [b for a, b in parsed.edges if a == name]
    return seen


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_what_is_drawn_of_random_writes_is_what_runs(first: int) -> None:
    """All pullbacks follow from the result; all calls of a replay belong to those, and the others need none."""
    for seed in range(first, first + 20):
        program, _ = pure(seed)
        if program[-1][0] != "loss":
            continue
        function, values = function_of(program)
        recorded = tape.record(function, *values)
        parsed = parse(recorded.graph().dot)
        back = {name for name in parsed.labels if name[0] in "rg"}
        assert back <= reached(parsed, "o0")
        recipe = recorded._recipe
        drawing = _ProgramDrawing(recipe, reverse=True)
        pulled = {at for at, is_reversed in enumerate(drawing.reversed) if is_reversed}
        with np.errstate(all="ignore"):
            times = call_times(recipe, values, reverse=True)
        running = set(times.steps[times.forward :].tolist())
        assert running <= pulled
        forms = {at: recipe.steps[at].form for at in pulled - running}
        assert all(form.is_view or form.pulls == (None, None) for form in forms.values())


def test_guards_look_and_pass_nothing_on() -> None:
    @tape.compile
    def doubled(x: Any) -> Any:
        while int(x.sum()) < 40:
            x = x * 2.0
        return x * x

    for _ in range(4):
        doubled(np.ones(3))
    parsed = parse(doubled.programs[0].graph().dot)
    edges = named(parsed)
    assert any(title[:2] == ("forward", "4 times") for title in parsed.titles.values())
    assert [b.split()[0] for a, b in edges if a.startswith("sum")] == ["guard"]
    assert not [b for a, b in edges if a.startswith("guard")]


def test_an_argument_that_gets_no_gradient_has_none() -> None:
    parsed = parse(str(tape.record(lambda x, n: (x * n.to(tape.float64)).sum(), np.ones(2), np.arange(2)).graph()))
    assert [label for label in parsed.labels.values() if label.startswith("gradient")] == ["gradient of %0"]


def test_an_argument_that_is_the_result() -> None:
    parsed = parse(str(tape.record(lambda x: x, 1.0).graph()))
    assert set(named(parsed)) == {("%0", "result")}


def test_an_unfinished_program_says_so() -> None:
    x = tape.tensor(1.0, requires_grad=True)
    with tape.record() as program:
        x * 2.0
        with pytest.raises(RuntimeError, match="still being recorded"):
            program.graph()
    assert len(parse(program.graph().dot).labels) == 5


def test_text_is_quoted() -> None:
    text = DotText()
    with text.cluster('a "title" \\n'):
        text.node("a", 'x = "\\n"')
    assert quoted('"\\\n') == '"\\"\\\\\\n"'
    assert str(text.graph()).splitlines()[4] == '    a [label="x = \\"\\\\n\\""];'


@pytest.mark.skipif(DOT is None, reason="needs Graphviz's program dot")
def test_graphviz_reads_it() -> None:
    graph = tape.record(euler, np.ones(3), 2.0).graph()
    assert sorted(drawn(graph.dot)) == sorted(parse(graph.dot).labels)


def test_a_program_of_fifty_thousand_operations_is_small_when_drawn() -> None:
    def fun(x: Any) -> Any:
        for _ in range(2000):
            for _ in range(3):
                x = tape.sin(x) * 0.5
            x = x + 1.0
        return x

    parsed = parse(str(tape.record(fun, 1.0).graph()))
    assert parsed.titles["s0"] == ("forward", "2000 times", "3 times")
    assert len(parsed.labels) == 3 + 2 + 3 + 1  # operations, argument and result; pullbacks, the gradient
