"""Loops whose printed source tests/rules/printed_loops.txt has: ``python -m tests.rules.loop_cases`` renews it.

What has changed in the file is to be read before it is committed: it is what the compiler is given. Lines that all
sources begin with stand in the first alone; "..." stands for them in the others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from kernels.foundation.specs import spec_of
from kernels.operations import OPS
from kernels.rules import loop_printer, scalar_loops
from kernels.rules.loop_printer import KernelOperand, PrintedLoop, _Printer

PRINTED = Path(__file__).with_name("printed_loops.txt")
COMMAND = "python -m tests.rules.loop_cases"
RULER = "=" * 100
F8, F4, I8, B1 = (np.dtype(code) for code in ("f8", "f4", "i8", "?"))


def pullback(name: str, operand: int, shape: tuple[int, ...], *operands: KernelOperand, **more: Any) -> PrintedLoop:
    """Return the loop of a record's pullback for one of its operands."""
    return PrintedLoop(OPS[name].pullback[operand], shape, operands, **more)


def contiguous(count: int, *names: str, dtype: np.dtype[Any] = F8) -> list[KernelOperand]:
    """Return operands of so many elements side by side."""
    return [KernelOperand(name, dtype, k, (dtype.itemsize,)) for k, name in enumerate(names) if count]


def array(*shape: int, dtype: Any = F8) -> Any:
    return spec_of(np.zeros(shape, dtype))


def matrix(name: str, place: int, *strides: int, dtype: np.dtype[Any] = F8, offset: int | None = None) -> KernelOperand:
    return KernelOperand(name, dtype, place, strides, offset)


_EXP = pullback("exp", 0, (9000,), *contiguous(9000, "target", "g", "y"))
LOOPS: dict[str, PrintedLoop] = {
    "unary, forward: square": scalar_loops.forward(OPS["square"], array(6), (array(6),)),  # type: ignore[arg-type]
    "binary, forward, a row and a column broadcast: multiply": scalar_loops.forward(
        OPS["multiply"], array(3, 4), (array(4), array(3, 1))  # type: ignore[arg-type]
    ),
    "a cast from float32, forward: add": scalar_loops.forward(
        OPS["add"], array(6), (array(6), array(6, dtype=F4))  # type: ignore[arg-type]
    ),
    "a copy of a matrix transposed": PrintedLoop(
        scalar_loops.same, (3, 4), (matrix("target", 0, 32, 8), matrix("x", 1, 8, 24)), pullback=False
    ),
    "unary, pullback: exp": _EXP,
    "unary, pullback, float32: exp": pullback("exp", 0, (6,), *contiguous(6, "target", "g", "y", dtype=F4)),
    "unary, pullback of one element: exp": pullback("exp", 0, (), matrix("target", 0), matrix("g", 1), matrix("y", 2)),
    "angles, pullback in blocks: sin": pullback("sin", 0, (6,), *contiguous(6, "target", "g", "x")),
    "binary, pullback into a row, summed: multiply": pullback(
        "multiply", 0, (3,), matrix("target", 0, 0), matrix("g", 1, 8), matrix("b", 2, 8)
    ),
    "binary, pullback into every other column: divide": pullback(
        "divide", 1, (3, 2), matrix("target", 0, 32, 16, offset=8), matrix("g", 1, 16, 8), matrix("a", 2, 16, 8),
        matrix("b", 3, 32, 16),
    ),
    "a number as parameter, pullback: power": PrintedLoop(
        OPS["power_scalar"].pullback[0], (6,), tuple(contiguous(6, "target", "g", "x")), static=(("p", 2.5),)
    ),
    "where, pullback": pullback(
        "where", 1, (6,), *contiguous(6, "target", "g"), KernelOperand("c", B1, 2, (1,))
    ),
    "SciPy's loop, pullback: lgamma": pullback("lgamma", 0, (6,), *contiguous(6, "target", "g", "x")),
    "reduction, pullback of rows: sum": pullback("sum", 0, (3, 4), matrix("target", 0, 32, 8), matrix("g", 1, 8, 0)),
    "reduction, pullback with a count: mean": pullback(
        "mean", 0, (3, 4), matrix("target", 0, 32, 8), matrix("g", 1, 8, 0), matrix("n", 2, 0, 0)
    ),
    "ties of an extremum, counted": PrintedLoop(
        scalar_loops.tie,
        (3, 4),
        (matrix("target", 0, 8, 0), matrix("x", 1, 32, 8), matrix("y", 2, 8, 0)),
        skips=False,
    ),
    "an extremum, pullback to its place": PrintedLoop(
        lambda g: g, (3,), (matrix("target", 0, 32), matrix("g", 1, 8), KernelOperand("i", I8, 2, (8,))), scatter=8
    ),
    "elements picked, forward": PrintedLoop(
        scalar_loops.same, (3,), (matrix("target", 0, 8), matrix("x", 1, 0), KernelOperand("i", I8, 2, (8,))),
        pullback=False, gather=8,
    ),
    "elements added to places, forward": PrintedLoop(
        scalar_loops.same, (3,), (matrix("target", 0, 0), matrix("x", 1, 8), KernelOperand("i", I8, 2, (8,))),
        pullback=False, scatter=8, adds=True,
    ),
    "matmul, pullback of a column and a row": loop_printer.product(  # type: ignore[dict-item]
        F8, (3, 4, 1), loop_printer.Factor(0, (32, 8)), loop_printer.Factor(1, (8, 8)), loop_printer.Factor(2, (8, 8))
    ),
    "a constant cotangent, read: exp": loop_printer.reading_constant(_EXP),
    "a constant cotangent, computed: sum": loop_printer.computing_constant(
        pullback("sum", 0, (9000,), matrix("target", 0, 8), matrix("g", 1, 0))
    ),
}  # fmt: skip


def text_of(loop: PrintedLoop) -> str:
    """Return the source of a loop."""
    return _Printer(loop, loop.layout()[1]).text()


def texts() -> dict[str, str]:
    """Return the sources by name, from the second on without the lines that the first begins with."""
    first, *others = LOOPS
    whole = text_of(LOOPS[first])
    head = whole[whole.index("\nfrom __future__") : whole.index("def kernel")]
    return {first: whole} | {name: text_of(LOOPS[name]).replace(head, "...\n") for name in others}


def stored() -> dict[str, str]:
    """Return the sources that were reviewed, by name."""
    parts = PRINTED.read_text(encoding="utf-8").split(f"{RULER}\n")[1:]
    return dict(zip((name.strip() for name in parts[::2]), parts[1::2], strict=True))


def main() -> int:
    """Write the file."""
    parts = [f"{RULER}\n{name}\n{RULER}\n{text}" for name, text in texts().items()]
    PRINTED.write_text("".join(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
