"""Names of operations and of their operands: an operation that was done before on the same is not done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernels.programs.expanding.element_names import ElementNames
from kernels.programs.expanding.scalar_program import Address, Operation
from kernels.programs.fusing.fusion import Placed
from kernels.programs.fusing.scalar_rules import COPY, FLOAT64, FLOATS, INT64, ScalarOperation
from kernels.programs.fusing.statements import Access, Source, Statement
from kernels.programs.rolling.rolled_program import Numbers
from kernels.records.symbols import literal_of

if TYPE_CHECKING:
    import numpy as np

_LITERALS = {dtype: literal_of(dtype) for dtype in FLOATS}


def literal(value: float, dtype: np.dtype[Any] = FLOAT64) -> str:
    """Return a number among operands of a dtype as text."""
    return _LITERALS.get(dtype, _LITERALS[FLOAT64])(value)


def numbers_of(statement: Statement) -> np.dtype[Any]:
    """Return the dtype of the numbers that a statement has as operands: that of its floats, or integers."""
    dtypes = [access.ref.spec.dtype for access in (*statement.accesses(), statement.target)]
    return next((dtype for kinds in (FLOATS, (INT64,)) for dtype in dtypes if dtype in kinds), FLOAT64)


class OperationNames(ElementNames):
    """Gives names to what operations give, and finds those of their operands."""

    def operated(
        self, operation: ScalarOperation, operands: tuple[str, ...], wanted: tuple[bool, ...], dtype: np.dtype[Any]
    ) -> str:
        """Return the name of what an operation gives: of one that was done before, of that."""
        key = operation.name, operation.forward, operands, wanted
        known = self.scope.operation(key)
        if known is None:
            item = Operation("", operation, operands, wanted)
            known = item.name = self.scope.operations[key] = self.name(item, dtype)
            self.emit(item)
        return known

    def operand(self, source: Source, dtype: np.dtype[Any], placed: Placed, point: dict[int, int]) -> str:
        """Return the name of an operand; numbers are of a dtype."""
        if isinstance(source, Access):
            return self.read(self.address(source, placed, point), source.ref.spec.dtype)
        if isinstance(source, Numbers):
            value = self.constant(source.table, dtype)
            strides = self.program.values[value].spec.strides
            terms = tuple(sorted((f"k{loop}", stride) for loop, stride in zip(source.loops, strides, strict=True)))
            return self.read(Address(value, 0, terms), dtype)
        return literal(float(source), dtype)

    def cut(self, name: str, dtype: np.dtype[Any], *, wanted: bool) -> str:
        """Return a name, or another for the same value that has no gradient to hand on."""
        return name if wanted else self.operated(COPY, (name,), (False,), dtype)
