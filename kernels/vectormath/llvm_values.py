"""Values of a kernel under construction: operators append LLVM instructions, which the loop around them vectorises.

Sums and products may be fused (LLVM's ``contract``) where the machine can; ``plus``, ``minus`` and ``times`` round as
they stand, for arithmetic whose rounding errors are part of the method. Nothing branches: ``select`` takes both sides.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Sequence
from typing import Any, Union

from llvmlite import binding, ir
from numba.core import config

from kernels.foundation.data_classes import dataclass

_BUILDER = ir.IRBuilder
_FUSED = ("contract",)
_LONG = 9
"""A polynomial of more coefficients takes its terms in pairs."""


@dataclass(frozen=True)
class Format:
    """A floating-point format: its name among the coefficients, its bits, those of the fraction, its LLVM types."""

    name: str
    bits: int
    fraction: int
    real: ir.Type
    word: ir.Type
    code: str

    @property
    def is_double(self) -> bool:
        """Whether it is that of doubles, or of vectors of them."""
        return self.name == "double"

    @property
    def bias(self) -> int:
        """The exponent of 1.0, as stored."""
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def magic(self) -> float:
        """Added to a number of moderate size, leaves its nearest integer in the low bits."""
        return 1.5 * 2.0**self.fraction

    def pattern(self, number: float) -> int:
        """Return the bits of a number."""
        return int(struct.unpack(self.code.upper(), struct.pack({"q": "d", "i": "f"}[self.code], number))[0])

    def wide(self, width: int) -> Format:
        """Return the format of vectors."""
        return Format(
            self.name,
            self.bits,
            self.fraction,
            ir.VectorType(self.real, width),
            ir.VectorType(self.word, width),
            self.code,
        )


F8 = Format("double", 64, 52, ir.DoubleType(), ir.IntType(64), "q")
F4 = Format("single", 32, 23, ir.FloatType(), ir.IntType(32), "i")


def _fuses() -> bool:
    """Whether the machine that Numba compiles for multiplies and adds in one instruction."""
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return "+fma" in (config.CPU_FEATURES or "")
    return platform.machine() in ("arm64", "aarch64") or bool(binding.get_host_cpu_features().get("fma"))


FUSES = _fuses()


def _constant(kind: ir.Type, number: float) -> ir.Constant:
    """Return a number, in each element of a vector."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


Operand = Union["Value", float, int]


class Value:
    """A float, the bits of one as an integer, or a truth value, of each element."""

    __slots__ = ("builder", "form", "node")

    def __init__(self, builder: ir.IRBuilder, form: Format, node: Any) -> None:
        self.builder = builder
        self.form = form
        self.node = node

    def _new(self, node: Any) -> Value:
        return Value(self.builder, self.form, node)

    def _of(self, other: Operand) -> Any:
        return other.node if isinstance(other, Value) else _constant(self.node.type, other)

    def constant(self, number: float) -> Value:
        """Return a float of this format."""
        return self._new(_constant(self.form.real, number))

    @property
    def fused(self) -> bool:
        """Whether the machine multiplies and adds in one instruction."""
        return FUSES

    @property
    def _whole(self) -> bool:
        return bool(self.node.type == self.form.word)

    def _run(self, whole: Callable[..., Any], real: Callable[..., Any], left: Any, right: Any) -> Value:
        if self._whole:
            return self._new(whole(self.builder, left, right))
        return self._new(real(self.builder, left, right, flags=_FUSED))

    def __add__(self, other: Operand) -> Value:
        return self._run(_BUILDER.add, _BUILDER.fadd, self.node, self._of(other))

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Value:
        return self._run(_BUILDER.sub, _BUILDER.fsub, self.node, self._of(other))

    def __rsub__(self, other: Operand) -> Value:
        return self._run(_BUILDER.sub, _BUILDER.fsub, self._of(other), self.node)

    def __mul__(self, other: Operand) -> Value:
        return self._run(_BUILDER.mul, _BUILDER.fmul, self.node, self._of(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Value:
        return self._new(self.builder.fdiv(self.node, self._of(other)))

    def __rtruediv__(self, other: Operand) -> Value:
        return self._new(self.builder.fdiv(self._of(other), self.node))

    def __neg__(self) -> Value:
        return self._new(self.builder.fneg(self.node))

    def plus(self, other: Operand) -> Value:
        """Add, rounding here."""
        return self._new(self.builder.fadd(self.node, self._of(other)))

    def minus(self, other: Operand) -> Value:
        """Subtract, rounding here."""
        return self._new(self.builder.fsub(self.node, self._of(other)))

    def times(self, other: Operand) -> Value:
        """Multiply, rounding here."""
        return self._new(self.builder.fmul(self.node, self._of(other)))

    def _compared(self, sign: str, other: Operand) -> Value:
        compare = self.builder.icmp_unsigned if self._whole else self.builder.fcmp_ordered
        return self._new(compare(sign, self.node, self._of(other)))

    def __lt__(self, other: Operand) -> Value:
        return self._compared("<", other)

    def __le__(self, other: Operand) -> Value:
        return self._compared("<=", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compared(">", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compared(">=", other)

    def equals(self, other: Operand) -> Value:
        """Whether two values are the same number."""
        return self._compared("==", other)

    def __and__(self, other: Operand) -> Value:
        return self._new(self.builder.and_(self.node, self._of(other)))

    def __or__(self, other: Operand) -> Value:
        return self._new(self.builder.or_(self.node, self._of(other)))

    def __xor__(self, other: Operand) -> Value:
        return self._new(self.builder.xor(self.node, self._of(other)))

    def __lshift__(self, places: int) -> Value:
        return self._new(self.builder.shl(self.node, self._of(places)))

    def __rshift__(self, places: int) -> Value:
        return self._new(self.builder.lshr(self.node, self._of(places)))

    def shifted_down(self, places: int) -> Value:
        """Shift to the right; the sign stays."""
        return self._new(self.builder.ashr(self.node, self._of(places)))

    @property
    def number(self) -> Value:
        """The float of a signed integer of moderate size."""
        form = self.form
        if form.bits == F4.bits:
            return self._new(self.builder.sitofp(self.node, form.real))
        return (self + form.pattern(form.magic)).real.minus(form.magic)  # few machines convert words of 64 bits

    def __invert__(self) -> Value:
        return self._new(self.builder.not_(self.node))

    @property
    def word(self) -> Value:
        """The bits of a float."""
        return self._new(self.builder.bitcast(self.node, self.form.word))

    @property
    def real(self) -> Value:
        """The float that has these bits."""
        return self._new(self.builder.bitcast(self.node, self.form.real))

    def select(self, chosen: Operand, other: Operand) -> Value:
        """Return the first where this is true, elsewhere the second."""
        typed = chosen if isinstance(chosen, Value) else other
        kind = typed.node.type if isinstance(typed, Value) else self.form.real
        nodes = [v.node if isinstance(v, Value) else _constant(kind, v) for v in (chosen, other)]
        return self._new(self.builder.select(self.node, *nodes))

    def call(self, name: str, *others: Value) -> Value:
        """Call an intrinsic of LLVM that rounds, or takes the size of, a float."""
        nodes = [self.node, *(other.node for other in others)]
        real, module = self.form.real, self.builder.module
        width = f"v{real.count}" if isinstance(real, ir.VectorType) else ""
        full = f"{name}.{width}f{self.form.bits}"
        function = module.globals.get(full) or ir.Function(module, ir.FunctionType(real, [real] * len(nodes)), full)
        return self._new(self.builder.call(function, nodes))

    def __abs__(self) -> Value:
        return self.call("llvm.fabs")

    def at_most(self, bound: float) -> Value:
        """Return the smaller of this and a number; nan stays."""
        return (self > bound).select(bound, self)

    def at_least(self, bound: float) -> Value:
        """Return the larger of this and a number; nan stays."""
        return (self < bound).select(bound, self)

    def within(self, bound: float) -> Value:
        """Return the number of this sign that is no larger than a bound; nan becomes the bound."""
        word, limit = abs(self).word, self.form.pattern(bound)
        return (word < limit).select(word, limit).real.call("llvm.copysign", self)

    def unordered(self, other: Value) -> Value:
        """Whether this or another number is nan."""
        return self._new(self.builder.fcmp_unordered("uno", self.node, other.node))

    @property
    def sign(self) -> Value:
        """The bit of the sign, in its place."""
        return self.word & (1 << (self.form.bits - 1))

    def signed(self, sign: Value) -> Value:
        """Turn the sign of a float where a bit of a sign is set."""
        return (self.word ^ sign).real

    def nearest(self, scale: float) -> tuple[Value, Value]:
        """Return the integer nearest to this times a number: as a float, and in the low bits of a word."""
        moved = self * scale + self.form.magic
        return moved.minus(self.form.magic), moved.word

    def power_of_two(self, *, at: float = 1.0, turned: bool = False) -> Value:
        """Return ``at * 2**n`` for the n in the low bits of a word; if turned ``at * 2**-n``, 0 where too small."""
        shifted = self << self.form.fraction
        start = self.form.pattern(at)
        if not turned:
            return (shifted + start).real
        word = start - shifted
        positive = self._new(self.builder.icmp_signed(">", word.node, word._of(0)))  # noqa: SLF001
        return positive.select(word, 0).real

    def scaled(self, word: Value) -> Value:
        """Return this times 2**n, in two steps: results may be subnormal, or overflow."""
        half = word >> 1
        return self * half.power_of_two() * (word - half).power_of_two()

    def polynomial(self, coefficients: Sequence[float]) -> Value:
        """Return the value of a polynomial, lowest coefficient first, by Horner's scheme; long ones in pairs.

        Loops hide how long a chain of sums takes, up to some length.
        """
        terms: list[Operand] = list(coefficients)
        step = self
        if len(terms) > _LONG:
            pairs = [terms[k] + self * terms[k + 1] for k in range(0, len(terms) - 1, 2)]
            terms, step = [*pairs, *terms[len(pairs) * 2 :]], self * self
        last = terms.pop()
        total = last if isinstance(last, Value) else self.constant(last)
        while terms:
            total = total * step + terms.pop()
        return total

    def to(self, form: Format) -> Value:
        """Convert a float, or cut or widen a word, to another format; vectors to vectors as wide."""
        if isinstance(self.form.real, ir.VectorType) and not isinstance(form.real, ir.VectorType):
            form = form.wide(self.form.real.count)
        if form is self.form:
            return self
        wider = form.bits > self.form.bits
        if self._whole:
            node = (self.builder.zext if wider else self.builder.trunc)(self.node, form.word)
        else:
            node = (self.builder.fpext if wider else self.builder.fptrunc)(self.node, form.real)
        return Value(self.builder, form, node)


# Sums and products of values with what rounding took from them: numbers of twice the length, as pairs.


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the sum and what rounding took from it (Knuth)."""
    total = a.plus(b)
    part = total.minus(a)
    return total, a.minus(total.minus(part)).plus(b.minus(part))


def fast_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the same where a is the larger (Dekker)."""
    total = a.plus(b)
    return total, b.minus(total.minus(a))


def two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the product and what rounding took from it."""
    product = a.times(b)
    if a.fused:
        return product, a.call("llvm.fma", b, -product)
    (p, q), (r, s) = _halves(a), _halves(b)
    return product, p.times(r).minus(product).plus(p.times(s)).plus(q.times(r)).plus(q.times(s))


def less_product(c: Value, a: Value, b: Value) -> Value:
    """Return c less a product, nothing of which is lost before the difference."""
    if c.fused:
        return (-a).call("llvm.fma", b, c)
    product, low = two_product(a, b)
    return c.minus(product).minus(low)


def _halves(a: Value) -> tuple[Value, Value]:
    high = head(a, (a.form.fraction + 2) // 2)
    return high, a.minus(high)


def head(a: Value, places: int) -> Value:
    """Return a number without its last bits."""
    return (a.word & ((1 << a.form.bits) - (1 << places))).real
