"""What flows where in a program: for each step what it does, as a number, and which steps its operands come from."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np

from kernels.kinds.loop import LoopAgain, LoopBegin, LoopEnd
from kernels.kinds.view import View
from kernels.kinds.write import Write
from kernels.programs.recording.notifying_structs import HEAD
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
    phis: list[array[int]] = []
    """Those of the loops around a step."""
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
        if isinstance(kind.op, LoopBegin):
            phis.append(operands)
        elif isinstance(kind.op, LoopAgain):
            written.update(dict.fromkeys(phis[-1][: len(operands)], at))
        elif isinstance(kind.op, LoopEnd):
            phis.pop()
        elif isinstance(kind.op, Write):
            written[recipe.base_of(result)] = at
        elif result not in operands:  # a guard passes on what it looks at
            made[result] = at
    return sources, [source(node) for node in recipe.outputs]


def gradient_sources(recipe: Recipe, flow: Flow) -> tuple[Array, list[int]]:
    """Return for operands, and results, the steps whose pullbacks their gradients go to, where they have one.

    Views and writes that were not recorded pass gradients by: those of the base, of what was there before.
    """
    steps, words = recipe.steps, recipe.steps.words
    passed_on = np.arange(len(steps))
    for at, start in enumerate(steps.starts):
        kind, result = steps.kinds[words[start]], words[start + 1]
        if kind.form is None and isinstance(kind.op, (View, Write)):
            operand, source = words[start + HEAD], flow.sources[at, 0]
            if recipe.family_of(result) == recipe.family_of(operand):
                passed_on[at] = passed_on[source] if source >= 0 else source
    made = flow.sources >= 0
    sources = flow.sources.copy()
    sources[made] = passed_on[sources[made]]
    return sources, [int(passed_on[source]) if source >= 0 else source for source in flow.outputs]


def differentiated(recipe: Recipe, sources: Array, outputs: list[int]) -> Array:
    """Return which steps lead from floating arguments to the first output, if that is one floating element.

    ``sources`` and ``outputs`` are those of gradients.
    """
    steps, words = recipe.steps, recipe.steps.words
    reverse = np.zeros(len(steps), np.bool_)
    spec = recipe.nodes[recipe.outputs[0]].spec if recipe.outputs else None
    if spec is None or spec.size != 1 or spec.dtype.kind != "f" or not recipe.wants(recipe.outputs[0]):
        return reverse
    reached = {outputs[0]}
    for at in range(len(steps) - 1, -1, -1):
        start = steps.starts[at]
        kind = steps.kinds[words[start]]
        if at in reached and kind.form is not None:
            reverse[at] = True
            operands = words[start + HEAD : start + HEAD + kind.count]
            triples = zip(kind.form.wanted, operands, sources[at].tolist(), strict=False)
            reached.update(source for wanted, node, source in triples if wanted and node >= 0 and recipe.wants(node))
    return reverse
