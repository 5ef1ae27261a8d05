"""What flows where in a program: for each step what it does, as a number, and which steps its operands come from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernels.kinds.write import Write
from kernels.programs.recording.notifying_words import HEAD
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.repeats import Repeat, repeats

Array = np.ndarray[Any, Any]


class Flow(NamedTuple):
    """The steps of a program as numbers. ``repeats`` are the parts that repeat.

    ``symbols`` are equal for steps of one operation on operands alike, with results alike, whatever the parameters.
    ``sources``, a row a step, says which step an operand comes from: what computed it, or what wrote to its memory
    last; it is negative for what no step made. ``outputs`` are those of the program's results.
    """

    symbols: Array
    sources: Array
    outputs: list[int]
    repeats: list[Repeat]


def flow_of(recipe: Recipe, lines: Array | None = None) -> Flow:
    """Return the flow of a program; where ``lines`` are known, a number a step, steps of one line are alike only."""
    symbols, (sources, outputs) = _symbols(recipe), _sources(recipe)
    if lines is not None and len(lines):
        symbols = symbols * (int(lines.max()) + 1) + lines
    return Flow(symbols, sources, outputs, repeats(symbols, sources))


def _symbols(recipe: Recipe) -> Array:
    """Return what each step does, as a number."""
    numbers: dict[Any, int] = {}
    steps, symbols = recipe.steps, []
    words = steps.words
    for start in steps.starts:
        kind = steps.kinds[words[start]]
        spec = recipe.nodes[words[start + 1]].spec
        are_numbers = tuple(word < 0 for word in words[start + HEAD : start + HEAD + kind.count])
        key = kind.op.name, kind.form and kind.form.name, spec.shape, spec.dtype, are_numbers
        symbols.append(numbers.setdefault(key, len(numbers)))
    return np.array(symbols, np.int64)


def _sources(recipe: Recipe) -> tuple[Array, list[int]]:
    """Return the steps that operands, and results of the program, come from: negative where no step made them."""
    steps, made, written = recipe.steps, dict[int, int](), dict[int, int]()
    words, kinds = steps.words, steps.kinds
    sources = np.full((len(steps), max((kind.count for kind in kinds), default=0)), -1, np.int64)

    def source(node: int) -> int:
        base = recipe.base_of(node)
        return max(made.get(node, made.get(base, -2 - node)), written.get(base, -2 - node))

    for at, start in enumerate(steps.starts):
        kind, result = kinds[words[start]], words[start + 1]
        operands = words[start + HEAD : start + HEAD + kind.count]
        for k, node in enumerate(operands):
            if node >= 0:
                sources[at, k] = source(node)
        if isinstance(kind.op, Write):
            written[recipe.base_of(result)] = at
        elif result not in operands:  # a guard passes on what it looks at
            made[result] = at
    return sources, [source(node) for node in recipe.outputs]


def differentiated(recipe: Recipe) -> Array:
    """Return which steps lead from floating arguments to the first output, if that is one floating element."""
    steps, words = recipe.steps, recipe.steps.words
    reverse = np.zeros(len(steps), np.bool_)
    spec = recipe.nodes[recipe.outputs[0]].spec if recipe.outputs else None
    if spec is None or spec.size != 1 or spec.dtype.kind != "f" or not recipe.wants(recipe.outputs[0]):
        return reverse
    nodes, families = {recipe.outputs[0]}, {recipe.family_of(recipe.outputs[0])}
    for at in range(len(steps) - 1, -1, -1):
        start = steps.starts[at]
        kind, result = steps.kinds[words[start]], words[start + 1]
        if kind.form is None:
            continue
        if result in nodes or (not kind.form.is_view and recipe.family_of(result) in families):
            reverse[at] = True
            operands = [node for node in words[start + HEAD : start + HEAD + kind.count] if node >= 0]
            wanted = [node for node in operands if recipe.wants(node)]
            nodes.update(wanted)
            families.update(map(recipe.family_of, wanted))
    return reverse
