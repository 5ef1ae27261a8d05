"""The user's lines of a program's steps, held against the operations that comments in the source say are there."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.recipe_encoding import Decoder, Encoder, decoded, encoded

pytestmark = pytest.mark.quick


def straight(x: Any) -> Any:
    y = tape.sin(x) * 2.0  # sin multiply
    z = y[1:]  # slice
    z = z * y[:-1]  # slice multiply
    return z.sum()  # sum


def looping(x: Any) -> Any:
    for k in range(3):
        x = x * 1.5  # multiply
        if k:
            x = x + x  # add
    return np.sum(x)  # sum


def halved(x: Any) -> Any:
    return x / 2.0  # divide


def calling(x: Any) -> Any:
    y = halved(x) + halved(x)  # add
    return sum(halved(y) for _ in range(2))  # add add


def writing(x: Any) -> Any:
    y = tape.zeros(3)
    y[1:] = x[1:]  # slice clone copy_
    y *= 2.0  # multiply
    y[np.array([0, 2])] = 1.0  # put
    return y.sum()  # sum


def mixed(x: Any) -> Any:
    y = x.to(tape.float32)  # to_copy
    z = tape.where(x > 0.5, x * 2.0, y)  # greater multiply to_copy where
    return z.max(0)[0] + tape.linalg.norm(z)  # ...


def differentiating(x: Any) -> Any:
    y = (x * x).sum()  # multiply sum
    (g,) = tape.autograd.grad(y, x, create_graph=True)  # ...
    return g.sum()  # sum


FUNCTIONS = [straight, looping, calling, writing, mixed, differentiating]


def lines_of(program: Any) -> list[tuple[int, str]]:
    """The line of each operation, and its name."""
    recipe = program._recipe
    numbers = recipe.lines.of_steps(recipe.steps)
    assert {recipe.lines.table[n][0] for n in numbers} == {__file__}
    return [(recipe.lines.table[n][1], step.op.name) for n, step in zip(numbers, recipe.steps, strict=True)]


def expected(function: Callable[..., Any]) -> dict[int, set[str]]:
    """The operations of each line of the file, as comments say."""
    source, first = inspect.getsourcelines(function)
    said = {first + k: re.search(r"  # ([a-z_ .]+)$", text.rstrip()) for k, text in enumerate(source)}
    return {line: set(match.group(1).split()) for line, match in said.items() if match}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_operation_has_its_line(function: Callable[..., Any]) -> None:
    seen: dict[int, set[str]] = {}
    for line, name in lines_of(tape.record(lines=True)(function, np.ones(3))):
        seen.setdefault(line, set()).add(name)
    wanted = expected(function) | (expected(halved) if function is calling else {})
    assert seen.keys() == wanted.keys()
    for line, names in wanted.items():
        assert "..." in names or seen[line] == names or (names == {"put"} and len(seen[line]) == 1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_steps_are_those_recorded_without_lines(function: Callable[..., Any]) -> None:
    x = np.ones(3)
    program, other = tape.record(lines=True)(function, x), tape.record(function, x)
    assert program._recipe.steps.words == other._recipe.steps.words
    assert other._recipe.lines is None
    assert [line for line in str(program).splitlines() if not line.startswith("  # ")] == str(other).splitlines()
    if not program._escapes:
        assert np.array_equal(program(x), other(x))


def test_the_first_call_and_those_that_native_code_repeats_have_the_same_lines() -> None:
    first = lines_of(tape.record(lines=True)(straight, np.ones(7)))
    assert all(lines_of(tape.record(lines=True)(straight, np.ones(7))) == first for _ in range(3))


def test_a_listing_names_the_lines_of_what_stands_below() -> None:
    lines = str(tape.record(lines=True)(straight, np.ones(3))).splitlines()
    first = straight.__code__.co_firstlineno
    assert lines[1] == f"  # {__file__}:{first + 1}: y = tape.sin(x) * 2.0  # sin multiply"
    assert [line.split()[2] for line in lines[2:4]] == ["sin", "multiply"]
    assert lines[4] == f"  # {__file__}:{first + 2}: z = y[1:]  # slice"


def test_a_graph_frames_what_is_of_one_line() -> None:
    dot = tape.record(lines=True)(looping, np.ones(3)).graph().dot
    first = looping.__code__.co_firstlineno
    assert dot.count(f'label="test_lines.py:{first + 2}: x = x * 1.5  # multiply"') > 1  # forward and reverse
    assert f"test_lines.py:{first + 5}: return np.sum(x)" in dot


def test_steps_alike_of_different_lines_are_drawn_apart() -> None:
    def twice(x: Any) -> Any:
        x = tape.sin(x) * 2.0
        x = tape.sin(x) * 2.0
        return tape.sin(x) * 2.0

    assert "times" not in tape.record(lines=True)(twice, 1.0).graph().dot
    assert "3 times" in tape.record(twice, 1.0).graph().dot


def test_lines_are_pickled() -> None:
    program = tape.record(lines=True)(straight, np.ones(3))
    again = pickle.loads(pickle.dumps(program))  # noqa: S301 (our own)
    assert str(again) == str(program)
    assert lines_of(again) == lines_of(program)


def test_lines_go_into_files(tmp_path: Any) -> None:
    program = tape.record(lines=True)(straight, np.ones(3))
    program.save(tmp_path / "straight.tape")
    again = tape.load(tmp_path / "straight.tape")
    assert str(again) == str(program)
    assert again._recipe.lines == program._recipe.lines


@pytest.mark.parametrize(
    "marks", [[[0, 3], [0, 9]], [[0, 3], [0, -2]], [[3, 0], [0, 1]], [0, 1], [[0], [0], [0]], [[[0]], [[0]]]]
)
def test_lines_that_are_not_there_are_refused(marks: Any) -> None:
    encoder = Encoder()
    tree = encoded(tape.record(lines=True)(straight, np.ones(3))._recipe, encoder)
    tree["lines"]["marks"] = encoder.array(np.array(marks, np.int64))
    with pytest.raises(ValueError, match="no table of lines"):
        decoded(tree, Decoder(encoder.tables, encoder.arrays, {}))


def test_a_block_keeps_lines() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    with tape.record(lines=True) as program:
        (x * 3.0).sum()
    here = inspect.currentframe()
    assert here is not None
    assert {line for line, _ in lines_of(program)} == {here.f_lineno - 3}


def test_anomaly_mode_keeps_lines() -> None:
    with pytest.warns(UserWarning, match="Anomaly"):
        anomaly = tape.autograd.detect_anomaly()
    with anomaly:
        program = tape.record(straight, np.ones(3))
        x = tape.tensor(1.0, requires_grad=True)
        with tape.record() as block:
            x * 3.0
    assert lines_of(program) == lines_of(tape.record(lines=True)(straight, np.ones(3)))
    assert len(lines_of(block)) == 1


def test_keywords_of_the_function_are_its_own() -> None:
    def scaled(x: Any, lines: Any) -> Any:
        return x * lines

    assert tape.record(scaled, 2.0, lines=3.0)(4.0, lines=5.0) == 20.0
    assert tape.record(lines=True)(scaled, 2.0, lines=3.0)(4.0, lines=5.0) == 20.0
    with pytest.raises(TypeError, match="unexpected keyword"):
        tape.record(line=True)


def test_a_program_within_has_the_line_of_its_call() -> None:
    inner = tape.record(straight, np.ones(3))

    def outer(x: Any) -> Any:
        return inner(x * 2.0)

    lines = lines_of(tape.record(lines=True)(outer, np.ones(3)))
    assert {line for line, _ in lines} == {outer.__code__.co_firstlineno + 1}
    assert len(lines) == len(inner) + 1


def test_lines_of_a_file_that_is_gone() -> None:
    names: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x * 2.0", "gone.py", "exec"), names)  # noqa: S102 (source without a file)
    program = tape.record(lines=True)(names["f"], 1.0)
    assert str(program).splitlines()[1] == "  # gone.py:2"
