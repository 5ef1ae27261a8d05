"""Operations on one double: computed without a call, from entries of five small words that stand side by side.

An entry has its kind, with a bit above that to accumulate, then where its target and up to three operands stand, in
words behind the beginning of the machine's memory. ``x1`` is the first operand, of pullbacks the cotangent.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from kernels.codegen.loop_printer import Loop
from kernels.compiler import jit
from kernels.foundation.recent_table import Recent
from kernels.records.symbols import Symbol, source

_FLOAT64 = np.dtype(np.float64)

ENTRY = 5
"""Words of 32 bits."""
ACCUMULATES = 256
MOST = 1 << 20
"""Entries of one row: a program checks for interrupts between rows."""
REACH = 1 << 34
"""Bytes of memory that an entry can address, by words."""

FORWARD = (
    "(x1 + x2)", "(x1 - x2)", "(x1 * x2)", "(x1 / x2)", "(-x1)", "(x1)", "(x1 * x1)", "math.sqrt(x1)", "(1.0 / x1)",
)  # fmt: skip
PULLBACK = (
    "x1", "(-x1)", "(x1 * x2)", "(x1 * x3)", "(x1 / x2)", "(x1 / x3)", "((-x1) * ((x2 / x3) / x3))",
    "(x1 * (2.0 * x2))", "(x1 / (2.0 * x2))", "((-x1) * (x2 * x2))",
)  # fmt: skip
KINDS = {key: k for k, key in enumerate([(t, False) for t in FORWARD] + [(t, True) for t in PULLBACK])}
"""The kind of an entry, by the text of its expression and whether it is a pullback."""

_HEAD = """from __future__ import annotations

import math
import numpy as np
from kernels.native.memory import load_f8, load_i4, load_i8, store_f8

MINUS_ZERO = -(1 << 63)


def place(entry, k, base):
    return base + 8 * np.int64(load_i4(entry + 4 * k))


def give(target, accumulates, value):
    if accumulates:
        store_f8(target, load_f8(target) + value)
    else:
        store_f8(target, value)


def run(entries: int, base: int, count: int) -> None:
    for k in range(count):
        entry = entries + {size} * k
        head = np.int64(load_i4(entry))
        kind, accumulates = head & 255, head & 256
        target, first = place(entry, 1, base), place(entry, 2, base)
        x1 = load_f8(first)
"""
_LOAD = "            {name} = load_f8(place(entry, {k}, base))\n"
_STORE = "            store_f8(target, {text})\n"
_GIVE = "            give(target, accumulates, (-0.0) if load_i8(first) == MINUS_ZERO else ({text} + 0.0))\n"


@functools.cache
def address() -> int:
    """Return the address of the native function that runs entries, given their address, the memory's and a count."""
    text = _HEAD.format(size=4 * ENTRY)
    for (expression, pullback), kind in KINDS.items():
        text += f"        {'elif' if kind else 'if'} kind == {kind}:\n"
        for k, name in ((3, "x2"), (4, "x3")):
            if name in expression:
                text += _LOAD.format(name=name, k=k)
        text += (_GIVE if pullback else _STORE).format(text=expression)
    return int(jit.load_source("inlined", text).run.address)


def kind_of(kernel: Any, count: int) -> int | None:
    """Return the kind of entry for a kernel that takes so many places; None if it has to be called as a kernel."""
    if not isinstance(kernel, Loop) or kernel.steps != 1:
        return None
    kind = _kinds.get((kernel, count), _NOT_LOOKED_UP)
    return _kinds.setdefault((kernel, count), _kind_of(kernel, count)) if kind is _NOT_LOOKED_UP else kind


_NOT_LOOKED_UP: Final = False
_kinds: Recent[tuple[Loop, int], Any] = Recent()
"""The kinds that were looked up, None among them."""


def _kind_of(kernel: Loop, count: int) -> int | None:
    if count >= ENTRY or kernel.static or kernel.adds:
        return None
    if kernel.scatter is not None or kernel.gather is not None or (kernel.pullback and not kernel.skips):
        return None
    if any(operand.dtype != _FLOAT64 or operand.offset is not None for operand in kernel.operands):
        return None
    names = {operand.name: f"x{operand.place}" for operand in kernel.operands}
    expression = kernel.expression
    if expression.specials or expression.exponents or not expression.names <= names.keys():
        return None
    return KINDS.get((source(_renamed(expression, names), _FLOAT64), kernel.pullback))


def _renamed(expression: Any, names: dict[str, str]) -> Any:
    """Return an expression with its operands called by their places."""
    if not isinstance(expression, Symbol):
        return expression
    if not expression.parts:
        return Symbol(names[expression.head])
    return Symbol(expression.head, *[_renamed(part, names) for part in expression.parts])
