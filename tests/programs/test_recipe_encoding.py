"""Recipes as JSON and arrays: every record, every kind of parameter, and that what contradicts itself is refused."""

from __future__ import annotations

import copy
import enum
import json
import math
from array import array
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numba import njit

import tape
from kernels.foundation.specs import spec_of
from kernels.kinds.routine import RoutineCall
from kernels.operations import OPS
from kernels.operations.interpolation import pattern_of
from kernels.programs import recipe_encoding
from kernels.programs.program import ProgramNode, Recipe, steps_from
from kernels.programs.recipe_encoding import Decoder, Encoder, decoded, encoded, name_of
from tests.support.record_cases import Case, bits, cases_of, params, tensors

CASES = [case for op in OPS.values() for case in cases_of(op) if case.replayed]


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def again(program: Any, named: Any = ()) -> Any:
    """Return a program whose recipe was written as JSON and arrays, and read."""
    encoder = Encoder()
    tree, tables = through_json([encoded(program._recipe, encoder), encoder.tables])
    names = {name_of(x): x for x in named}
    assert set(encoder.names) == set(names)
    other = copy.copy(program)
    other._recipe = decoded(tree, Decoder(tables, [x.copy() for x in encoder.arrays], names))
    other._begin()
    return other


@pytest.mark.parametrize("case", params(CASES, pytest.mark.quick))
def test_every_record_comes_back(case: Case) -> None:
    """Bit for bit, values and gradients, of all layouts."""
    leaves = case.leaves(np.float64, seed=1)
    program = tape.record(case.run, *case.leaves(np.float64))
    other = again(program)
    assert str(other) == str(program)
    assert bits(other(*leaves)) == bits(program(*leaves))
    if case.differentiable and case.quick:
        program = tape.record(lambda *xs: (case.run(*xs) * 1.5).sum(), *case.leaves(np.float64))
        with tape.no_grad():
            (value, gradients), (same, found) = (p.value_and_grad(*tensors(leaves)) for p in (program, again(program)))
        assert bits(same) == bits(value)
        assert list(map(bits, found)) == list(map(bits, gradients))


def busy(u: Any, k: Any) -> Any:
    """Constants of all layouts, parts of them, writes by slices and places, a region without gradients."""
    turned = np.arange(6.0).reshape(2, 3).T
    memory = tape.zeros(6)
    memory[1:3] = u[:2] * k
    u = u * k + np.arange(12.0)[::2] + tape.tensor(turned).reshape(-1)
    u[np.array([0, 3])] = u[np.array([5, 5])] ** 2
    with tape.no_grad():
        u[4] *= 2.0
    return (u + memory + np.float32(2.0)).sum() + (turned * u.reshape(3, 2)).sum() + tape.cumsum(u, 0)[-1]


def test_nodes_of_all_kinds_come_back() -> None:
    program = tape.record(busy, np.linspace(0, 1, 6), 2.0)
    other = again(again(program))
    for of in (program._recipe, other._recipe):
        assert any(node.base is not None for node in of.nodes)
    assert len({id(node) for node in other._recipe.nodes}) == len({id(node) for node in program._recipe.nodes})
    expected, found = (p.value_and_grad(np.linspace(1, 2, 6), 1.5) for p in (program, other))
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1][0], expected[1][0])
    assert found[1][1] == expected[1][1]
    x = tape.tensor(np.linspace(1, 2, 6), requires_grad=True)
    other(x, 1.5).backward()
    np.testing.assert_allclose(x.grad, expected[1][0], rtol=1e-12)


class Color(enum.Enum):
    """An enumeration of the user's."""

    RED = "r"


@njit
def twice(x: Any) -> Any:
    """Return the double."""
    return x * 2.0


@njit
def twice_vjp(g: Any, x: Any) -> Any:
    """Return the gradient of it."""
    return g * 2.0 + 0.0 * x


def test_custom_operations_by_what_a_reader_is_given() -> None:
    program = tape.record(lambda x: (tape.custom(twice, twice_vjp)(x) * x).sum(), np.ones(3))
    value, (gradient,) = again(program, [twice, twice_vjp]).value_and_grad(np.array([1.0, 2.0, 3.0]))
    assert (value, gradient.tolist()) == (28.0, [4.0, 8.0, 12.0])


NAN = np.frombuffer(np.uint64(0xFFF8000000000123).tobytes())[0]
VALUES: list[Any] = [
    None, True, 3, -(2**70), "text", "nan:x", 1.5, -0.0, math.inf, float(NAN), 1e-320, 2 + 1j,
    b"\0bytes", ..., slice(1, None, -2),
    range(3), (), ((1, ("a", 2.0)),), [1, [2]], {1, 2}, frozenset({"a"}), {"a": 1, (1, 2.0): [None]},
    np.float32(1.1), np.int64(-3), np.bool_(True), np.dtype("f4"), np.dtype(bool), spec_of(np.ones((2, 3))), Color.RED,
    Color, name_of, np.sin,
]  # fmt: skip


def key(value: Any) -> Any:
    """Return what tells values apart: types, signs of zeros and bits of nan too."""
    if isinstance(value, float):
        return type(value), np.float64(value).tobytes()
    if isinstance(value, (tuple, list)):
        return type(value), [*map(key, value)]
    return type(value), value


@pytest.mark.parametrize("value", VALUES, ids=[f"{i}-{type(x).__name__}" for i, x in enumerate(VALUES)])
def test_values_come_back(value: Any) -> None:
    encoder = Encoder()
    tree, tables = through_json([encoder.value(value), encoder.tables])
    decoder = Decoder(tables, encoder.arrays, {name_of(x): x for x in (Color, name_of, np.sin)})
    assert key(decoder.value(tree)) == key(value)


def test_values_that_are_no_plain_data_come_back() -> None:
    pattern = pattern_of(np.array([0, 1]), np.array([0, 1, 2]), (2, 2))
    call = RoutineCall(OPS["cumsum"], {"dim": 0}, ((3,),))
    array = np.arange(6.0).reshape(2, 3)
    encoder = Encoder()
    tree, tables = through_json([encoder.value((pattern, call, array, array)), encoder.tables])
    decoder = Decoder(tables, encoder.arrays, {})
    same, other, first, second = decoder.value(tree)
    assert same is pattern
    assert (other.op, other.params, other.shapes) == (call.op, call.params, call.shapes)
    assert first is second
    np.testing.assert_array_equal(first, array)


def test_what_no_file_holds() -> None:
    for value in (object(), [1, {"a": object()}], np.array([object()]), np.array(["a"]), twice.__get__(1)):
        with pytest.raises(TypeError, match=r"the place is a|holds no array"):
            Encoder().value(value, "the place")


BAD: list[tuple[list[Any], Any]] = [
    (["outputs", 0], 99), (["outputs", 0], -1), (["outputs", 0], 1.0), (["arguments", 0], "x"),
    (["written"], [99]), (["kinds", 0, 0], "no_such"), (["kinds", 0, 0], {"part": "exp"}),
    (["kinds", 0, 0], {"code": "x"}),
    (["kinds", 0, 1], 99), (["kinds", 0, 2], [{"import": "os"}]), (["kinds", 0, 3], 7), (["kinds"], []),
    (["nodes"], 99), (["words"], 0), (["others"], [[99, 1]]), (["order"], "numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), BAD, ids=lambda x: str(x)[:30])
def test_what_contradicts_itself_is_refused(path: list[Any], value: Any) -> None:
    encoder = Encoder()
    tree = through_json(encoded(tape.record(busy, np.linspace(0, 1, 6), 2.0)._recipe, encoder))
    place: Any = tree
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = tree.get(value, value) if isinstance(value, str) else value
    with pytest.raises((ValueError, IndexError, KeyError)):
        decoded(tree, Decoder(through_json(encoder.tables), encoder.arrays, {}))


def changed(recipe: Recipe, at: int, **entries: Any) -> Recipe:
    other = recipe.copy()
    node = other.nodes[at]
    values = {name: getattr(node, name) for name in ProgramNode.__slots__}
    other.nodes[at] = ProgramNode(**{**values, **entries})
    return other


def test_no_view_leaves_its_memory() -> None:
    recipe = tape.record(lambda x: (x[1:] * x[:-1]).sum(), np.ones(4))._recipe
    (at, *_) = (i for i, node in enumerate(recipe.nodes) if node.base is not None)
    for entries in ({"offset": 16}, {"offset": -8}, {"buffer_offset": 16}, {"buffer_offset": -1}, {"base": at}):
        encoder = Encoder()
        tree = through_json(encoded(changed(recipe, at, **entries), encoder))
        with pytest.raises(ValueError, match="leaves the"):
            decoded(tree, Decoder(through_json(encoder.tables), encoder.arrays, {}))


@pytest.mark.parametrize(
    "row", [[[3], [8], "float64", [8], 2**70], [[-1], [8], "float64", [8], 1], [[1], [], "float64", [8], 1]]
)
def test_no_pattern_is_senseless(row: Any) -> None:
    with pytest.raises(ValueError, match="no pattern"):
        Decoder({"specs": [row], "forms": []}, [], {})


def written_to(x: Any, i: Any, j: Any) -> Any:
    """Pick by one computed index, add at another; a loop whose body picks."""
    y = x[i] * 2.0
    z = tape.zeros(5).index_add(0, j, y)
    while (z.sum() > 1.0).item():
        z = z[j].sum() * 0.1 + z * 0.0
    return z.sum()


def with_indices() -> Recipe:
    """Return the recipe of a compiled function that picks and adds by index arguments."""
    function = tape.compile(written_to, check="never")
    for _ in range(3):
        function(np.linspace(0.0, 1.0, 6), np.array([0, 5, 2]), np.array([4, 4, 1]))
    recipe = function.programs[0].alone()
    assert recipe.steps.loops()
    return recipe


def rewritten(recipe: Recipe, edit: Any) -> Recipe:
    """Return the recipe with its steps, as lists [kind, result, operands], as an edit leaves them."""
    other, steps = (
        recipe.copy(),
        [[s.kind, s.result, [*s.operands]] for s in map(recipe.steps.raw, range(len(recipe.steps)))],
    )
    numbers, kinds, nodes = [*recipe.steps.numbers], [*recipe.steps.kinds], other.nodes
    edit(steps, numbers, kinds, nodes)
    words = [word for kind, result, operands in steps for word in (kind, result, *operands)]
    other.steps, other.lines = steps_from(kinds, numbers, array("q", words)), None
    return other


def through_a_file(recipe: Recipe) -> Recipe:
    """Return a recipe as it comes back, whatever the writer would have refused."""
    encoder = Encoder()
    with mock.patch.object(recipe_encoding, "_unbounded", return_value=iter(())):
        tree = through_json(encoded(recipe, encoder))
    return decoded(tree, Decoder(through_json(encoder.tables), encoder.arrays, {}))


def places_of(steps: Any, kinds: Any, name: str) -> list[int]:
    return [at for at, step in enumerate(steps) if kinds[step[0]].op.name == name]


def without(name: str, which: int) -> Any:
    return lambda steps, _, kinds, __: steps.pop(places_of(steps, kinds, name)[which])


def moved_last(name: str) -> Any:
    """Move the first two guards behind everything."""

    def edit(steps: Any, _: Any, kinds: Any, __: Any) -> None:
        guards = places_of(steps, kinds, name)[:2]
        steps += [steps[at] for at in guards]
        for at in reversed(guards):
            steps.pop(at)

    return edit


def number_changed(old: Any, new: Any) -> Any:
    def edit(steps: Any, numbers: Any, kinds: Any, _: Any) -> None:
        for at in places_of(steps, kinds, "less")[:1] + places_of(steps, kinds, "greater_equal")[:1]:
            word = steps[at][2][1]
            if numbers[~word] == old:
                numbers.append(new)
                steps[at][2][1] = -len(numbers)

    return edit


def other_extreme(steps: Any, _: Any, kinds: Any, __: Any) -> None:
    low, high = (places_of(steps, kinds, name)[0] for name in ("amin", "amax"))
    steps[high][0] = steps[low][0]


def overwritten(steps: Any, _: Any, kinds: Any, __: Any) -> None:
    """Make the index again, of another argument, behind its guards."""
    at, multiply = places_of(steps, kinds, "index")[0], places_of(steps, kinds, "multiply")[0]
    steps.insert(at, [steps[multiply][0], steps[multiply][1], [steps[multiply][2][0], steps[multiply][2][0]]])


def expects_false(steps: Any, _: Any, kinds: Any, nodes: Any) -> None:
    at = steps[places_of(steps, kinds, "guard")[0]][2][1]
    nodes[at] = ProgramNode(nodes[at].spec, constant=np.array(False))


UNBOUNDED = {
    "no lower bound": without("guard", 0), "no upper bound": without("guard", 1),
    "guards come late": moved_last("guard"),
    "one more": number_changed(6, 7), "one less": number_changed(0, -1), "twice the least": other_extreme,
    "made again": overwritten, "another outcome": expects_false,
}  # fmt: skip


def test_computed_places_come_back() -> None:
    recipe = with_indices()
    assert len(through_a_file(rewritten(recipe, lambda *_: None)).steps) == len(recipe.steps)


@pytest.mark.parametrize("how", UNBOUNDED)
def test_computed_places_are_within_bounds_or_refused(how: str) -> None:
    recipe = rewritten(with_indices(), UNBOUNDED[how])
    with pytest.raises(ValueError, match="computed places that may be outside"):
        through_a_file(recipe)
    with pytest.raises(NotImplementedError, match=r"index has computed places in the program, which no guard bounds"):
        encoded(recipe, Encoder())


def carried(x: Any, i: Any) -> Any:
    total = x[0] * 0.0
    for _ in range(4):
        total = total + x[i].sum()
        i = (i + 1) % 5
    return total


def test_what_a_loop_carries_is_looked_at_in_each_iteration() -> None:
    function = tape.compile(carried, check="never")
    for _ in range(3):
        function(np.linspace(0.0, 1.0, 5), np.array([0, 4, 2]))
    recipe = function.programs[0].alone()
    assert recipe.steps.loops()
    through_a_file(recipe)
    kinds = [step.op.name for step in recipe.steps]
    assert kinds.count("guard") >= 2  # those of the iterations; of the first, where that is none of the loop's
    for which in range(kinds.count("guard")):
        with pytest.raises(ValueError, match="computed places that may be outside"):
            through_a_file(rewritten(recipe, without("guard", which)))
