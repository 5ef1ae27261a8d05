"""Programs that somebody wrote by hand: steps that would read or write beyond their operands are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import njit

import tape
from kernels.foundation.specs import spec_of
from kernels.programs.program import Recipe, StepKind, steps_from
from kernels.programs.recipe_encoding import Decoder, Encoder, decoded, encoded, name_of


@njit
def both(x: Any, y: Any) -> Any:
    """Return the sum of products."""
    return (x * y).sum()


@njit
def both_vjp(g: Any, x: Any, y: Any) -> Any:
    """Return the gradients of it."""
    return g * y, g * x


def guarded() -> Recipe:
    """Return a program with a guard."""

    @tape.compile
    def fun(x: Any) -> Any:
        return x * 2.0 if x.sum() > 1.0 else x

    for _ in range(4):
        fun(np.ones(3))
    recipe: Recipe = fun.programs[0]._recipe
    return recipe


def recipe_of(fun: Callable[..., Any], *args: Any) -> Recipe:
    recipe: Recipe = tape.record(fun, *args)._recipe
    return recipe


def read(recipe: Recipe) -> Recipe:
    encoder = Encoder()
    tree, tables = json.loads(json.dumps([encoded(recipe, encoder), encoder.tables]))
    return decoded(tree, Decoder(tables, encoder.arrays, {name_of(x): x for x in (both, both_vjp)}))


def with_node(recipe: Recipe, at: int, value: Any) -> Recipe:
    """Return a program in which a node is another base."""
    other = recipe.copy()
    other.nodes[at] = replace(other.nodes[at], spec=spec_of(value))
    return other


def with_kind(recipe: Recipe, name: str, **entries: Any) -> Recipe:
    """Return a program in which steps of a record are of another kind."""
    other, steps = recipe.copy(), recipe.steps
    kinds = [StepKind(*k)._replace(**entries) if k.op.name == name else k for k in steps.kinds]
    other.steps = steps_from(kinds, steps.numbers, steps.words)
    return other


def result(recipe: Recipe, name: str) -> int:
    """Return the node that the first step of a record computes."""
    return next(step.result for step in recipe.steps if step.op.name == name)


X, M = np.ones(3), np.ones((3, 4))
PLACES = np.array([0, 2])


def twice(x: Any) -> Any:
    return tape.cat([x, x])


def put(x: Any) -> Any:
    y = x * 1.0
    y[PLACES] = x[:2] * 2.0
    return y.sum()


def assigned(x: Any) -> Any:
    y = x * 1.0
    y[1:] = x[:2] * 2.0
    return y.sum()


LARGE = np.ones(1000)
FAULTS: dict[str, Callable[[], Recipe]] = {
    "an operand is shorter": lambda: with_node(recipe_of(lambda x, y: x * y, LARGE, LARGE), 1, X),
    "a result is longer": lambda: with_node(r := recipe_of(lambda x: x * 2.0, X), result(r, "multiply"), LARGE),
    "a result has more dims": lambda: with_node(r := recipe_of(tape.exp, X), result(r, "exp"), np.ones((9, 4))),
    "a copy is longer": lambda: with_node(r := recipe_of(lambda x: x.clone(), X), result(r, "clone"), LARGE),
    "a sum over another axis": lambda: with_kind(recipe_of(lambda x: x.sum(0), M), "sum", params=((1,), False)),
    "a sum over no axis": lambda: with_kind(recipe_of(lambda x: x.sum(0), M), "sum", params=((7,), False)),
    "a sum over an axis twice": lambda: with_kind(recipe_of(lambda x: x.sum((0, 1)), M), "sum", params=((0, 0), False)),
    "a maximum along another axis": lambda: with_kind(recipe_of(lambda x: x.max(0)[0], M), "max", params=(1, False)),
    "a product of other rows": lambda: with_node(recipe_of(lambda a, b: a @ b, M, np.ones(4)), 1, LARGE),
    "a join that is longer": lambda: with_node(r := recipe_of(twice, X), result(r, "concatenate"), LARGE),
    "a join along another axis": lambda: with_kind(recipe_of(twice, M), "concatenate", params=(5, False)),
    "places far away": lambda: with_kind(recipe_of(lambda x: x[PLACES], X), "index", params=(PLACES * 99, PLACES)),
    "places before": lambda: with_kind(recipe_of(lambda x: x[PLACES], X), "index", params=(PLACES - 1, PLACES)),
    "places in no gradient": lambda: with_kind(recipe_of(lambda x: x[PLACES], X), "index", params=(PLACES, PLACES + 1)),
    "places of another dtype": lambda: with_kind(
        recipe_of(lambda x: x[PLACES], X), "index", params=(PLACES.astype("i4"), PLACES)
    ),
    "writes far away": lambda: with_kind(recipe_of(put, X), "copy_", params=(PLACES * 99, PLACES)),
    "writes of more": lambda: with_node(r := recipe_of(put, X), result(r, "copy_"), np.ones(2)),
    "a value of another part": lambda: with_node(r := recipe_of(assigned, X), [*r.steps][-3].result, LARGE),
    "a running sum that is longer": lambda: with_node(
        r := recipe_of(lambda x: tape.cumsum(x, 0), X), result(r, "cumsum"), LARGE
    ),
    "sorted along another axis": lambda: with_node(
        r := recipe_of(lambda x: tape.sort(x, 0)[0], X), result(r, "sort"), LARGE
    ),
    "a form of other operands": lambda: with_kind(
        recipe_of(lambda x: x * 2.0, X), "multiply", form=recipe_of(lambda x: x * 2.0, LARGE).steps[0].form
    ),
    "a form of another record": lambda: with_kind(
        recipe_of(lambda x: x * 2.0, X), "multiply", form=recipe_of(lambda x: x + 2.0, X).steps[0].form
    ),
    "operands of a jitted function": lambda: with_kind(
        recipe_of(tape.custom(both, both_vjp), X, X), "both", params=(((3,), (99,)),)
    ),
    "what a guard expects": lambda: with_node(
        r := guarded(), next(step.operands[1].node for step in r.steps if step.op.name == "guard"), LARGE
    ),
}  # fmt: skip


def test_what_was_recorded_is_read() -> None:
    for recipe in (recipe_of(put, X), recipe_of(assigned, X), guarded(), recipe_of(tape.custom(both, both_vjp), X, X)):
        assert len(read(recipe).steps) == len(recipe.steps)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"shape|places|form|leaves|a constant of|broadcast"):
        read(FAULTS[name]())


def test_no_step_writes_to_a_constant() -> None:
    recipe = recipe_of(lambda x: x * np.arange(3.0), X)
    other, words = recipe.copy(), recipe.steps.words
    words[1] = next(i for i, node in enumerate(recipe.nodes) if node.constant is not None)
    other.steps = steps_from(recipe.steps.kinds, recipe.steps.numbers, words)
    with pytest.raises(ValueError, match="multiply writes to a constant"):
        read(other)
