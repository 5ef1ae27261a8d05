"""Statements split where what they read was joined: each part reads one operand of the join, and the join is not made.

``roll(u, 1)`` is ``u`` joined from two parts; what is computed of it elementwise falls into a first element and others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from kernels.kinds.join import Join
from kernels.programs.fusing.statements import Access, AnyStatement, Source, Statement
from kernels.programs.rolling.rolled_program import Index, Instruction, Ref, RolledProgram

_MOST = 8
"""Parts of a statement, at most."""
_SHORT = 16
"""Elements up to which a statement stays whole."""


class Piece(NamedTuple):
    """Elements of a vector from ``start`` to ``stop``: those of a reference, in its order."""

    start: int
    stop: int
    ref: Ref


class Splitting:
    """Knows which vectors were joined; splits statements that read them, and those that these exchange values with."""

    def __init__(self, program: RolledProgram) -> None:
        self.program = program
        self.joined: dict[int, list[Piece]] = {}

    def note(self, instruction: Instruction) -> None:
        """Take note of a join of vectors."""
        if not isinstance(instruction.op, Join) or instruction.params != (0, False):
            return
        refs = [operand for operand in instruction.operands if isinstance(operand, Ref)]
        whole = self.program.values[instruction.result]
        if len(refs) < len(instruction.operands) or len(whole.spec.shape) != 1 or whole.written:
            return
        if any(self.program.values[ref.value].written for ref in refs):
            return  # what was joined may be overwritten before the join is read
        pieces, start = [], 0
        for ref in refs:
            if ref.spec.size:
                pieces.append(Piece(start, start + ref.spec.size, ref))
            start += ref.spec.size
        self.joined[instruction.result] = pieces

    def split(self, statements: list[AnyStatement]) -> list[AnyStatement]:
        """Return statements that follow each other, in parts."""
        if not self.joined:
            return statements
        groups = self._groups(statements)
        borders: dict[int, set[int]] = defaultdict(set)
        for k, statement in enumerate(statements):
            if groups[k] >= 0 and isinstance(statement, Statement):
                borders[groups[k]] |= {b for o in statement.operands for b in self._borders(o, statement.space[0])}
        made: list[AnyStatement] = []
        for k, statement in enumerate(statements):
            inner = sorted(borders[groups[k]]) if groups[k] >= 0 else []
            if not isinstance(statement, Statement) or groups[k] < 0 or len(inner) >= _MOST:
                made.append(statement)
                continue
            ends = [0, *inner, statement.space[0]]
            made += [self._part(statement, low, high) for low, high in pairwise(ends)]
        return made

    def _groups(self, statements: list[AnyStatement]) -> list[int]:
        """Return for each statement the first of those that it exchanges vectors with; -1 for what stays whole."""
        first = [k if self._is_simple(statement) else -1 for k, statement in enumerate(statements)]
        makers: dict[int, int] = {}

        def root(k: int) -> int:
            while first[k] != k:
                k = first[k]
            return k

        for k, statement in enumerate(statements):
            if first[k] < 0 or not isinstance(statement, Statement):
                continue
            for operand in statement.operands:
                maker = makers.get(operand.ref.value) if isinstance(operand, Access) else None
                same = maker is not None and self._first(operand) == 0
                if maker is not None and same and statements[maker].space == statement.space:
                    one, other = sorted((root(k), root(maker)))
                    first[other] = one
            makers[statement.target.ref.value] = k
        return [root(k) if at >= 0 else -1 for k, at in enumerate(first)]

    @staticmethod
    def _is_simple(statement: AnyStatement) -> bool:
        vector = isinstance(statement, Statement) and not statement.reduces and len(statement.space) == 1
        return vector and statement.space[0] > _SHORT

    def _borders(self, operand: Source, extent: int) -> list[int]:
        """Return the places along a statement at which an operand goes on with another part of a join."""
        first = self._first(operand)
        if first is None or not isinstance(operand, Access):
            return []
        pieces = self.joined.get(operand.ref.value, ())
        return [piece.start - first for piece in pieces if 0 < piece.start - first < extent]

    def _first(self, operand: Source) -> int | None:
        """Return the element of a vector that an operand reads first, if it reads on one by one; None of others."""
        if not isinstance(operand, Access) or operand.places is not None or operand.ref.at:
            return None
        value, offset = self.program.values[operand.ref.value], operand.ref.offset
        if len(value.spec.shape) != 1 or operand.strides != value.spec.strides or offset.terms or offset.table:
            return None
        return offset.constant // value.spec.strides[0]

    def _part(self, statement: Statement, low: int, high: int) -> Statement:
        operands = tuple([self._operand(operand, low, high) for operand in statement.operands])
        target = _moved(statement.target, low, high)
        space = (high - low,) if high - low > 1 else ()
        return replace(statement, space=space, operands=operands, target=target)

    def _operand(self, operand: Source, low: int, high: int) -> Source:
        if not isinstance(operand, Access):
            return operand
        first = self._first(operand)
        pieces = self.joined.get(operand.ref.value, ()) if first is not None else ()
        for piece in pieces:
            start = (first or 0) + low - piece.start
            if start >= 0 and start + high - low <= piece.stop - piece.start:
                ref = piece.ref._replace(wanted=operand.ref.wanted and piece.ref.wanted)
                return _moved(Access(ref, ref.spec.strides), start, start + high - low)
        return _moved(operand, low, high)


def _moved(access: Access, low: int, high: int) -> Access:
    """Return the elements of an access to a vector from one on to another."""
    (stride,) = access.strides
    ref = access.ref
    offset = Index(ref.offset.constant + low * stride, ref.offset.terms, ref.offset.table)
    places = access.places
    if isinstance(places, Access):
        places = _moved(places, low, high)
    elif places is not None:
        places = places[low:high].reshape((high - low,)[: high - low > 1])
    ref = ref._replace(offset=offset)
    if access.steps:
        (step,) = access.steps
        last = ref.at[-1]._replace(constant=ref.at[-1].constant + low * step)
        ref = ref._replace(at=(*ref.at[:-1], last))
    several = high - low > 1
    return Access(ref, (stride,) if several else (), places, access.steps if several else ())
