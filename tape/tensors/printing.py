"""How tensors and tables print."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from kernels.kinds.reference_tape import Instruction, instructions
from kernels.native.structs import TAPE_BITS
from kernels.programs.program import line, parameters
from tape.tensors import tapes
from tape.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


# Tensors as text, in PyTorch's layout: one width for all elements, four decimals, eighty columns.
#
# Everything here works on NumPy arrays, so that a tensor, a gradient and a listing share one printer. Large arrays are
# cut to their corners first; only what is shown is ever formatted.

PRECISION = 4
THRESHOLD = 1000  # arrays of more elements than this are summarised
EDGE_ITEMS = 3
LINE_WIDTH = 80
WIDEST_RATIO, LARGEST, SMALLEST = 1e3, 1e8, 1e-4  # beyond these, numbers have exponents
NAMESPACE = "tape."  # what stands before a dtype's name

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class _Layout(NamedTuple):
    """How each element of one array is written."""

    spec: str
    point: str
    width: int

    def show(self, element: float) -> str:
        text = format(element, self.spec)
        if self.point and math.isfinite(element):
            text += self.point
        return text.rjust(self.width)


def format_tensor(value: Array, *, suffix: str, default_dtype: np.dtype[Any], prefix: str = "tensor(") -> str:
    """Return ``value`` as PyTorch would print a tensor.

    Args:
        value: an array of any shape; booleans, integers or floats.
        suffix: what follows the elements, such as ``"requires_grad=True"`` or
            ``"grad_fn=<MulBackward0>"``; empty for nothing.
        default_dtype: the float dtype that goes without saying. Other dtypes are named, except
            int64 and bool, which the elements show (an empty array shows none, and names them).
        prefix: what stands before the elements; later lines are indented by its length.

    """
    indent = len(prefix)
    if value.size:
        evident: tuple[Any, ...] = (default_dtype, np.int64, np.bool_)
        size = []
    else:
        evident = (default_dtype,)
        size = [] if value.ndim == 1 else [f"size={value.shape}"]
    suffixes = [*(size if value.dtype in evident else [*size, f"dtype={NAMESPACE}{value.dtype.name}"]), suffix]
    return _with_suffixes(prefix + _elements(value, indent), filter(None, suffixes), indent)


def _elements(value: Array, indent: int) -> str:
    if value.size == 0:
        return "[]"
    cut = [value.size > THRESHOLD and length > 2 * EDGE_ITEMS for length in value.shape]
    if any(cut):
        value = _corners(value, cut)
    return _nested(value, cut, indent, _layout(value))


def _corners(value: Array, cut: Sequence[bool]) -> Array:
    """Keep the first and last items of each axis marked in ``cut``."""
    edges = [*range(EDGE_ITEMS), *range(-EDGE_ITEMS, 0)]
    kept = [edges if is_cut else range(length) for is_cut, length in zip(cut, value.shape, strict=True)]
    corners: Array = value[np.ix_(*kept)]
    return corners


def _layout(value: Array) -> _Layout:
    if value.dtype.kind != "f":
        return _Layout("", "", _widest(value.ravel().tolist(), ""))
    # Zeros, infinities and nan have no say in the width, nor in the choice of the notation.
    numbers = value[np.isfinite(value) & (value != 0)].astype(np.float64)
    if numbers.size == 0:
        return _Layout(".0f", ".", 1)
    if _needs_exponent(np.abs(numbers)):
        spec, point = f".{PRECISION}e", ""
    elif np.all(numbers == np.ceil(numbers)):
        spec, point = ".0f", "."
    else:
        spec, point = f".{PRECISION}f", ""
    return _Layout(spec, point, _widest(numbers.tolist(), spec) + len(point))


def _needs_exponent(sizes: Array) -> bool:
    smallest, largest = sizes.min(), sizes.max()
    with np.errstate(over="ignore"):
        too_wide = largest / smallest > WIDEST_RATIO
    return bool(too_wide or largest > LARGEST or smallest < SMALLEST)


def _widest(elements: Iterable[float], spec: str) -> int:
    return max(len(format(element, spec)) for element in elements)


def _nested(value: Array, cut: Sequence[bool], indent: int, layout: _Layout) -> str:
    if value.ndim == 0:
        return layout.show(value.item())
    if value.ndim == 1:
        return _vector(value, cut[0], indent, layout)
    rows = [_nested(row, cut[1:], indent + 1, layout) for row in value]
    if cut[0]:
        rows.insert(EDGE_ITEMS, "...")
    return "[" + ("," + "\n" * (value.ndim - 1) + " " * (indent + 1)).join(rows) + "]"


def _vector(value: Array, is_cut: bool, indent: int, layout: _Layout) -> str:
    texts = [layout.show(element) for element in value.tolist()]
    if is_cut:
        texts.insert(EDGE_ITEMS, " ...")
    per_line = max(1, (LINE_WIDTH - indent) // (layout.width + len(", ")))
    lines = [", ".join(texts[start : start + per_line]) for start in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _with_suffixes(text: str, suffixes: Iterable[str], indent: int) -> str:
    # PyTorch takes the line that ends the elements for two characters longer than it is;
    # so do we, to wrap where it wraps.
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + len(", ") > LINE_WIDTH:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + len(", ")
    return text + ")"


def table(rows: Iterable[tuple[str, str]], text: str) -> str:
    """Return a table of names and values, and below it text in lines, as HTML."""
    from html import escape

    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<div><table>{cells}</table><pre>{escape(text)}</pre></div>"


def listing(input: Tensor) -> str:
    """Return the instructions between a tensor and the leaves it was computed from, in the order they ran."""
    tape = tapes.living.get(input._slot >> TAPE_BITS) if type(input._slot) is int else None
    if tape is None:
        return "  nothing recorded: the tensor is a leaf or does not require grad"
    wanted, kept = {input._slot}, []
    with tape.reading():
        for instruction in instructions(tape.entries):
            if instruction.slot in wanted:
                wanted.update(o for o in instruction.operands if type(o) is int)
                kept.append(instruction)
    if not kept:
        return "  nothing left: backward has released this graph"
    return _print(kept[::-1])


def _print(kept: list[Instruction]) -> str:
    names: dict[Any, str] = {}
    lines: list[str] = []
    for instruction in kept:
        operands = [
            _operand(o, spec, names, lines)
            for o, spec in zip(instruction.operands, instruction.form.specs, strict=True)
        ]
        names[instruction.slot] = result = f"%{len(names)}"
        form = instruction.form
        kept_names = () if form.is_view else form.saved
        keeps = f"  keeps {', '.join(kept_names)}" if kept_names else ""
        lines.append(line(result, form.op.name, operands, parameters(form.params), form.spec) + keeps)
    return "\n".join(lines)


def _operand(operand: Any, spec: Any, names: dict[Any, str], lines: list[str]) -> str:
    if operand is None:
        return "constant"
    if operand not in names:
        names[operand] = f"%{len(names)}"
        kind = "other thread's" if type(operand) is int else "leaf"
        lines.append(line(names[operand], kind, [], "", spec))
    return names[operand]
