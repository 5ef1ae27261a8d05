"""Operators on tensors, printed from the records: the common cases in a few attribute loads and one extend.

A printed function takes the short way when gradients are recorded, an operand requires grad and the operands'
specs have been seen; :func:`tape.promotion.by_rows` does everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from kernels.layouts import SCALAR, spec_of
from kernels.op import Elementwise
from kernels.scipy_ufuncs import resolved
from kernels.tables import OPS
from tape import modes
from tape.operands import LARGEST, is_foreign
from tape.operator_text import BINARY, NUMBER, REVERSED, UNARY
from tape.promotion import by_rows
from tape.repeats import listening
from tape.rows import ROWS, Row
from tape.tensor import Tensor, new

_MASK = spec_of(np.array(True))
_INLINE = {"+": "x + y", "-": "x - y", "*": "x * y", "/": "x / y", "- ": "-x"}
"""Python's float arithmetic agrees with NumPy's on these in every bit (a division by zero goes the other way)."""


def saved_text(op: Elementwise, wanted: tuple[bool, ...], names: dict[str, str]) -> str:
    """Print what an instruction keeps, in the order of its form."""
    mentions = frozenset[str]().union(*(m for m, want in zip(op.mentions, wanted, strict=True) if want))
    return "".join(f"{names[name]}, " for name in (*op.inputs, "y") if name in mentions)


_COMPUTE = """value = ufunc({operands})
if row.post is not None:
    value = row.post(value)"""


def _value(op: Elementwise, depth: int, operands: str, guard: str) -> str:
    """Print the computation of the result: inline for doubles where Python agrees with NumPy in every bit."""
    compute = _COMPUTE.format(operands=operands)
    inline = _INLINE.get(op.operator + " " * (len(op.inputs) == 1))
    if inline is not None:
        body = compute.replace("\n", "\n    ")
        compute = f"if scalar{guard}:\n    value = {inline}\nelse:\n    {body}"
    return compute.replace("\n", "\n" + " " * depth)


def _number_text(op: Elementwise, space: dict[str, Any]) -> str:
    """Print the case of a static Python number as second operand, for operations that have a record for it."""
    if not op.scalar:
        return ""
    record = OPS[op.scalar]
    assert isinstance(record, Elementwise)
    space["numbers"], space["by_number"] = ROWS[record.name], record
    return NUMBER.format(kept=saved_text(record, (True,), {record.inputs[0]: "x", "y": "value"}))


def printed(op: Elementwise) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return the operator's function and, for two operands, the one for a Python number on the left."""
    rows = ROWS[op.name]
    space: dict[str, Any] = {
        "Tensor": Tensor, "LARGEST": LARGEST, "active": modes.active, "new": new, "op": op, "rows": rows,
        "listening": listening, "slow": by_rows, "ufunc": resolved(op.ufunc),
    }  # fmt: skip
    recorded = "" if op.differentiable else "False and "
    if len(op.inputs) == 1:
        first = saved_text(op, (True,), {op.inputs[0]: "x", "y": "value"})
        text = UNARY.format(name=op.name, differentiable=recorded, value=_value(op, 4, "x", ""), first=first)
    else:
        post = float if op.differentiable else np.asarray
        for name, specs in (
            ("scalars", (SCALAR, SCALAR)),
            ("scalars_number", (SCALAR, None)),
            ("number_scalars", (None, SCALAR)),
        ):
            space[name] = rows[specs] = Row(SCALAR if op.differentiable else _MASK, post)
        names = {op.inputs[0]: "x", op.inputs[1]: "y", "y": "value"}
        wants = {"first": (True, False), "second": (False, True), "both": (True, True)}
        kept = {name: saved_text(op, want, names) for name, want in wants.items()}
        guard = " and y" if op.operator == "/" else ""
        text = "".join(
            template.format(
                name=op.name,
                differentiable=recorded,
                numbers=_number_text(op, space),
                value=_value(op, 8, "x, y", guard),
                **kept,
            )
            for template in (BINARY, REVERSED)
        )
    exec(compile(text, f"<tape: {op.name}>", "exec"), space)  # noqa: S102 (printed from our own records)
    return space[op.name], space.get(f"{op.name}_reversed")


class Ways:
    """The printed functions of an operation: ``fast`` for a tensor first, ``reverse`` for a number on the left.

    ``operator`` and ``reverse_operator`` are the same as Python's operators, which leave what is foreign to its own.

    They are printed at the first call, which then tells ``found``. ``native`` repeats in native code what has been
    done before.
    """

    __slots__ = ("fast", "found", "native", "op", "operator", "reverse", "reverse_operator")

    def __init__(self, op: Elementwise) -> None:
        self.op = op
        self.native: Callable[..., Any] | None = None
        self.found: Callable[[], None] = lambda: None
        self.fast = self._stub("fast", len(op.inputs))
        two = len(op.inputs) == 2  # noqa: PLR2004
        self.reverse, self.operator, self.reverse_operator = (
            self._stub(way, 2) if two else None for way in ("reverse", "operator", "reverse_operator")
        )

    def run(self, *operands: Any) -> Any:
        """Run it in Python, as ``fast`` is by now."""
        return self.fast(*operands)

    def _stub(self, way: str, count: int) -> Callable[..., Any]:
        def unary(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (as printed functions are)
            self._print()
            return getattr(self, way)(a)

        def binary(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            self._print()
            return getattr(self, way)(a, b)

        return unary if count == 1 else binary

    def _print(self) -> None:
        self.fast, self.reverse = printed(self.op)
        if self.reverse is not None:
            self.operator, self.reverse_operator = as_operator(self.fast), as_operator(self.reverse)
        self.found()


def as_operator(function: Any) -> Any:
    """Return a printed function as Python's operator: operands that tensors do not take get their turn."""
    return FunctionType(function.__code__, {**function.__globals__, "slow": by_operator}, function.__name__)


def by_operator(op: Elementwise, a: Any, b: Any) -> Any:
    """Run an operation on operands that the fast path does not know; NotImplemented for what is foreign."""
    try:
        own = type(a) in _OWN and type(b) in _OWN
        return NotImplemented if not own and (is_foreign(a) or is_foreign(b)) else by_rows(op, a, b)
    except TypeError:
        if op.operator not in _EQUALITY or (isinstance(a, Tensor) and isinstance(b, Tensor)):
            raise
        return NotImplemented  # whatever it is, it is not equal


_OWN = frozenset((Tensor, float, int))
_EQUALITY = ("==", "!=")
