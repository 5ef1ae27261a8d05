"""A recipe as JSON and arrays, for files. What it says is checked as it is read, so that no place is outside."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides
from kernels.kinds.callback import Callback
from kernels.kinds.gather import Gather
from kernels.kinds.write import Write
from kernels.programs.recording import step_checks
from kernels.programs.recording.lines import Lines
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import HEAD, StepKind, Steps, steps_from
from kernels.programs.recording.value_decoding import Decoder
from kernels.programs.recording.value_encoding import Array, Encoder

_INT64 = np.dtype(np.int64)
_NONE = -1
_COLUMNS = 8


def encoded(recipe: Recipe, encoder: Encoder) -> dict[str, Any]:
    """Return JSON for a recipe; its arrays and tables are the encoder's.

    NotImplementedError where it calls Python, since files hold no code, and where computed places are in it: a file
    could have any, and native code trusts them.
    """
    called = next((kind.op.name for kind in recipe.steps.kinds if isinstance(kind.op, Callback)), "")
    if called:
        raise NotImplementedError(f"save: Python runs an {called} in the program; files hold no code")
    if any(isinstance(kind.op, (Gather, Write)) and _has_places(kind) for kind in recipe.steps.kinds):
        raise NotImplementedError(
            "save: the program picks elements, or adds to them, by indices that it computes or is given; files hold "
            "those that are always the same"
        )
    places: dict[int, int] = {}
    order = [places.setdefault(id(node), len(places)) for node in recipe.nodes]
    distinct = {id(node): node for node in recipe.nodes}  # results that are alike share one
    rows = [_row(node, encoder) for node in distinct.values()]
    return {
        "nodes": encoder.array(np.array(rows, _INT64).reshape(-1, _COLUMNS)),
        "order": encoder.array(np.array(order, _INT64)),
        "arguments": recipe.arguments,
        "outputs": recipe.outputs,
        "written": sorted(recipe.written),
        "lines": None if recipe.lines is None else _encoded_lines(recipe.lines, encoder),
        **_encoded_steps(recipe.steps, encoder),
    }


def _has_places(kind: StepKind) -> bool:
    """Whether places are the last operand of a step that picks elements or writes."""
    return not kind.params and kind.count > len(kind.op.pullback)


def _row(node: Node, encoder: Encoder) -> list[int]:
    return [
        encoder.spec(node.spec),
        _NONE if node.base is None else node.base,
        node.offset,
        node.buffer_offset,
        node.differentiable,
        _NONE if node.family is None else node.family,
        _NONE if node.constant is None else encoder.array(_memory_of(node.constant)),
        node.argument,
    ]


def _memory_of(constant: Array) -> Array:
    """Return a constant as a C-contiguous array: if it is none, its memory, end to end."""
    return constant if constant.flags.c_contiguous else constant.ravel("K")


def _encoded_steps(steps: Steps, encoder: Encoder) -> dict[str, Any]:
    numbers = [x if type(x) is float else 0.0 for x in steps.numbers]
    others = [[i, encoder.value(x)] for i, x in enumerate(steps.numbers) if type(x) is not float]
    kinds = [
        [encoder.op(k.op), None if k.form is None else encoder.form(k.form), encoder.values(k.params), k.count]
        for k in steps.kinds
    ]
    return {
        "words": encoder.array(np.array(steps.words, _INT64)),
        "numbers": encoder.array(np.array(numbers, np.float64)),
        "others": others,
        "kinds": kinds,
    }


def _encoded_lines(lines: Lines, encoder: Encoder) -> dict[str, Any]:
    marks = np.array([lines.begins, lines.numbers], _INT64)
    return {"table": [list(line) for line in lines.table], "marks": encoder.array(marks)}


def decoded(tree: dict[str, Any], decoder: Decoder) -> Recipe:
    """Return the recipe of what :func:`encoded` returned; ValueError if it contradicts itself."""
    nodes = _nodes(tree, decoder)
    count = len(nodes)
    recipe = Recipe(
        nodes,
        _steps(tree, decoder, count),
        [_within(i, count) for i in tree["arguments"]],
        [_within(i, count) for i in tree["outputs"]],
        {_within(i, count) for i in tree["written"]},
        _lines(tree["lines"], decoder) if tree.get("lines") is not None else None,
    )
    _check_nodes(recipe)
    step_checks.check(recipe)
    return recipe


def _lines(tree: dict[str, Any], decoder: Decoder) -> Lines:
    table = [(str(path), int(line), str(source)) for path, line, source in tree["table"]]
    marks = _integers(decoder, tree["marks"])
    if marks.ndim != len(("row", "column")) or len(marks) != len(("begins", "numbers")):
        raise ValueError("no table of lines")
    begins, numbers = marks
    if min(numbers, default=0) < -1 or max(numbers, default=-1) >= len(table) or (np.diff(begins) < 0).any():
        raise ValueError("no table of lines")
    return Lines(table, array("q", begins.tobytes()), array("q", numbers.tobytes()))


def _within(place: Any, count: int) -> int:
    if type(place) is not int or not 0 <= place < count:
        raise ValueError(f"{place!r} is none of {count} nodes")
    return place


def _integers(decoder: Decoder, number: Any) -> Array:
    values = decoder.array(number)
    if values.dtype != _INT64:
        raise ValueError(f"integers of dtype {values.dtype}")
    return values


def _nodes(tree: dict[str, Any], decoder: Decoder) -> list[Node]:
    order, rows = _integers(decoder, tree["order"]), _integers(decoder, tree["nodes"])
    if rows.ndim != len(("row", "column")) or order.ndim != 1 or order.min(initial=0) < 0:
        raise ValueError("no table of nodes")
    distinct = [_node(row, len(order), decoder) for row in rows.tolist()]
    return [distinct[i] for i in order.tolist()]


def _node(row: list[int], count: int, decoder: Decoder) -> Node:
    number, base, offset, buffer_offset, differentiable, family, constant, argument = row
    spec = decoder.spec(number)
    return Node(
        spec,
        None if base == _NONE else _within(base, count),
        offset,
        buffer_offset,
        bool(differentiable),
        None if family == _NONE else _within(family, count),
        None if constant == _NONE else _constant(decoder.array(constant), spec),
        bool(argument),
    )


def _constant(memory: Array, spec: Spec) -> Array:
    if (
        memory.dtype != spec.dtype
        or memory.size != spec.size
        or not _fits(0, spec.shape, spec.strides, spec, spec.size)
    ):
        raise ValueError(f"a constant of {memory.size} elements where {spec} is")
    return np.ndarray(spec.shape, spec.dtype, memory, 0, spec.strides)


def _fits(offset: int, shape: Strides, strides: Strides, spec: Spec, size: int) -> bool:
    """Whether a pattern of a spec's elements, from an offset in bytes on, is within memory of so many of them."""
    if 0 in shape:
        return True
    ends = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    first, last = (offset + sum(pick(end, 0) for end in ends) for pick in (min, max))
    return first >= 0 and last + spec.dtype.itemsize <= size * spec.dtype.itemsize


def _steps(tree: dict[str, Any], decoder: Decoder, count: int) -> Steps:
    numbers = decoder.array(tree["numbers"]).tolist()
    for place, value in tree["others"]:
        numbers[_within(place, len(numbers))] = decoder.value(value)
    kinds = [
        StepKind(decoder.op(op), decoder.form(form), decoder.value(params), operands)
        for op, form, params, operands in tree["kinds"]
    ]
    words = _integers(decoder, tree["words"])
    _check_words(words.tolist(), kinds, len(numbers), count)
    return steps_from(kinds, numbers, array("q", words.tobytes()))


def _check_words(words: list[int], kinds: list[StepKind], numbers: int, nodes: int) -> None:
    """Check that steps are of kinds that are there, and use nodes and numbers that are there."""
    if not all(type(kind.count) is int and kind.count >= 0 for kind in kinds):
        raise ValueError("a kind of steps has no number of operands")
    at, sizes = 0, [HEAD + kind.count for kind in kinds]
    while at < len(words):
        end = at + sizes[_within(words[at], len(kinds))]
        _within(words[at + 1], nodes)
        if end > len(words) or min(words[at + HEAD : end], default=0) < -numbers:
            raise ValueError(f"the step at word {at} has operands that are not there")
        if max(words[at + HEAD : end], default=0) >= nodes:
            raise ValueError(f"the step at word {at} has an operand that is no node")
        at = end


def _check_nodes(recipe: Recipe) -> None:
    """Check that each view stands within the memory of its base, and its gradient within the buffer of its family."""
    for node in {id(node): node for node in recipe.nodes}.values():
        spec = node.spec
        base = node if node.base is None else recipe.nodes[node.base]
        family = node if node.family is None else recipe.nodes[node.family]
        room = base.spec.size * base.spec.dtype.itemsize // spec.dtype.itemsize
        if base.base is not None or not _fits(node.offset, spec.shape, spec.strides, spec, room):
            raise ValueError(f"{spec} at {node.offset} leaves the memory of {base.spec}")
        size = family.spec.buffer_size * (family.spec.dtype == spec.dtype)
        if family.family is not None or not _fits(node.buffer_offset, spec.shape, spec.gradient, spec, size):
            raise ValueError(f"{spec} at {node.buffer_offset} leaves the gradient of {family.spec}")
