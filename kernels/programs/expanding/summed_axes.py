"""Which loops a statement sums over, and where in memory the sums stand that are not complete behind one loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kernels.programs.expanding.scalar_program import Address
from kernels.programs.fusing.fusion import Placed
from kernels.programs.fusing.statements import Statement
from kernels.programs.rolling.rolled_program import Uncompiled


def summed_by(placed: Placed) -> str | None:
    """Return the index of the outermost loop that a statement sums over; None if it sums over none."""
    statement = placed.statement
    if not isinstance(statement, Statement) or statement.reduces is None:
        return None
    for name, stride in zip(placed.names, statement.target.strides, strict=True):
        if name is not None and not stride:
            return name
    return None


def complete_sums(statements: Iterable[Placed]) -> dict[str, list[Placed]]:
    """Return, by nest, the sums that are complete behind it: it is the outermost loop that they sum over."""
    sums: dict[str, list[Placed]] = defaultdict(list)
    for placed in statements:
        name = summed_by(placed)
        if name is not None and not is_scattered(placed):
            sums[name].append(placed)
    return sums


def inner_part(placed: Placed, target: Address, bound: set[str]) -> tuple[Address, int]:
    """Return where the elements begin that a statement gives in one step of the nests ``bound``, and how many.

    Where those of all points are apart, they are those of the point of ``target`` alone.
    """
    access = placed.statement.target  # type: ignore[union-attr]
    axes = [
        (stride, extent, name)
        for name, stride, extent in zip(placed.names, access.strides, placed.statement.space, strict=True)
        if name not in bound and stride
    ]
    item = access.ref.spec.dtype.itemsize
    terms = tuple([term for term in target.terms if term[0] in bound or term[0][0] != "i"])
    whole = _side_by_side([(stride, extent) for stride, extent, _ in axes], item)
    if whole:
        return Address(target.value, access.ref.offset.constant, terms, target.at), whole
    elements = _side_by_side([(stride, extent) for stride, extent, name in axes if name is not None], item)
    if not elements:
        raise Uncompiled("sums over a middle axis, apart in memory")
    return Address(target.value, target.constant, terms, target.at), elements


def _side_by_side(axes: list[tuple[int, int]], item: int) -> int:
    """Return how many elements axes, strides and extents, go through, if these fill their memory; else 0."""
    width = item
    for stride, extent in sorted(axes):
        if stride != width:
            return 0
        width *= extent
    return width // item


def is_scattered(placed: Placed) -> bool:
    """Whether a statement sums over a loop with a loop in it that it does not sum over: the sums stand in memory."""
    statement = placed.statement
    assert isinstance(statement, Statement)
    pairs = zip(placed.names, statement.target.strides, strict=True)
    strides = [stride for name, stride in pairs if name is not None]
    summed = [not stride for stride in strides]
    return any(summed) and not all(summed[summed.index(True) :])
