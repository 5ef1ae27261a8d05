"""The types of native code, and values of LLVM with operators."""

from __future__ import annotations

import ast
import functools
import math
import platform
import re
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any, Generic, TypeVar, Union

from llvmlite import binding, ir
from numba import types
from numba.core import config

from kernels.foundation.tables import dataclass

# The types of native code, which annotations name: words, memory with named fields, functions called from outside.
#
# A subclass of :class:`Struct` declares its fields in order. For Python, ``Tape.size`` is where the field is: the
# number of its word, or with ``step=8`` the offset in bytes. In native code ``t.size`` is the field of the struct at
# an address, which can be assigned, and ``Tape(address)`` says that an address is that of a struct; a parameter's
# annotation says so, too. ``Tape.SIZE`` is where the fields end.
#
# A function whose result is annotated is exported: with ``Word``, ``Int32`` or ``Void`` C calls it by its address,
# with ``int`` or ``None`` Python, too, unless it stands in a file that has Python's own functions besides native ones.
# All other functions are part of those that call them.

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Word = int  # an integer of 64 bits, or an address
Void = None  # nothing, where C calls
Words = int  # A pointer to integers of 64 bits
Int32 = int
"""An integer of 32 bits: C's ``int``."""
_ARRAY = re.compile(r"Array\[(\w+)\]")


class Array(int, Generic[T]):
    """The type of a field, or a parameter, that is the address of words: integers, or addresses of structs."""


@dataclass(frozen=True)
class ArrayKind:
    """The type of the address of words in native code; ``element``: the struct whose addresses they are, or int64."""

    element: Any


class StructType(type):
    """The type of structs: places their fields."""

    FIELDS: dict[str, tuple[int, str]]  # where each field is, and its type, as it is written
    SIZE: int
    STEP: int

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], start: int = 0, step: int = 1
    ) -> Any:
        """Make a struct, whose first field is at ``start``, each next one ``step`` further, or where it is said."""
        at, fields = start, {}
        for field, annotation in namespace.get("__annotations__", {}).items():
            at = namespace.get(field, at)
            fields[field] = at, annotation
            at += step
        places = {field: place for field, (place, _) in fields.items()}
        made = {**namespace, **places, "FIELDS": fields, "SIZE": at, "STEP": step, "NAMES": sys._getframe(1).f_globals}  # noqa: SLF001
        return super().__new__(mcs, name, bases, made)

    def __init__(cls, *_: Any, **__: Any) -> None:
        """Take what :meth:`__new__` has taken."""

    def byte_of(cls, field: str) -> int:
        """Return where a field is, in bytes."""
        return cls.FIELDS[field][0] * (8 if cls.STEP == 1 else 1)

    def kind_of(cls, field: str) -> Any:
        """Return the type of a field."""
        return kind_named(cls.FIELDS[field][1], cls.NAMES)


class Struct(int, metaclass=StructType):
    """Memory with named fields; see the module. It is an address."""


def kind_named(annotation: str, names: dict[str, Any]) -> Any:
    """Return what an annotation says of a word: a struct, an array, or a type of numbers; None if it says nothing."""
    array = _ARRAY.fullmatch(annotation)
    if array:
        return ArrayKind(kind_named(array[1], names))
    named = names.get(annotation)
    return named if isinstance(named, StructType) else _KINDS.get(annotation)


def is_address(kind: Any) -> bool:
    """Whether a type is that of an address of which is known what is there."""
    return isinstance(kind, (StructType, ArrayKind))


_KINDS = {
    "int": types.int64, "Word": types.int64, "Int32": types.int32, "Words": types.CPointer(types.int64),
    "float": types.float64, "None": types.void, "Void": types.void,
}  # fmt: skip
_CALLED_BY_C = ("Word", "Int32", "Void")
SIGNATURE = types.void(types.CPointer(types.int64), types.CPointer(types.int64), types.int64)
"""Every kernel: layout, pointers (target, cotangent, saved ...), and 1 to accumulate or 0 to store."""


def kept_apart(function: F) -> F:
    """Keep a function out of its only caller: rare work would take that caller's registers."""
    function.kept_apart = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class NativeSignature:
    """Types of arguments and result, and whether Python calls the function."""

    arguments: tuple[Any, ...]
    result: Any
    from_python: bool


def signature_of(function: Callable[..., Any], *, mixed: bool = False) -> NativeSignature | None:
    """Return the signature of a function that is called from outside, None for any other; ``mixed`` with Python's."""
    annotations, code = function.__annotations__, function.__code__
    result = annotations.get("return")
    if result is None or (mixed and result not in _CALLED_BY_C):
        return None
    try:
        kinds = [_KINDS.get(annotations[name], types.int64) for name in code.co_varnames[: code.co_argcount]]
    except KeyError as error:
        raise TypeError(f"{function.__name__} is called from outside: annotate its parameter {error}") from None
    return NativeSignature(tuple(kinds), _KINDS[result], result not in _CALLED_BY_C)


SOURCE = "__native_source__"  # the name, among a module's globals, of its source


class Source:
    """The text of a native module, whose functions others may call, and what its names mean."""

    def __init__(self, name: str, text: str, names: dict[str, Any]) -> None:
        self.name, self.text, self.names = name, text, names
        self.trees: dict[str, ast.FunctionDef] = {}
        names[SOURCE] = self

    def has(self, thing: Any) -> bool:
        """Whether a thing is a function of this module."""
        return isinstance(thing, FunctionType) and thing.__globals__ is self.names

    def tree(self, name: str) -> ast.FunctionDef:
        """Return a function of the source, which is parsed when one is wanted."""
        if not self.trees:
            functions = [node for node in ast.parse(self.text).body if isinstance(node, ast.FunctionDef)]
            self.trees = {function.name: function for function in functions}
        return self.trees[name]


# Values of LLVM with operators, in doubles and floats, and the fitted coefficients.

# Operators append LLVM instructions, which the loop around them vectorises. Sums and products may be fused (LLVM's
# ``contract``) where the machine can; ``plus``, ``minus`` and ``times`` round as they stand, for arithmetic whose
# rounding errors are part of the method. Nothing branches: ``select`` takes both sides.

_BUILDER = ir.IRBuilder
_FUSED = ("contract",)
_LONG = 9  # a polynomial of more coefficients takes its terms in pairs


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
        return replace(self, real=ir.VectorType(self.real, width), word=ir.VectorType(self.word, width))


F8 = Format("double", 64, 52, ir.DoubleType(), ir.IntType(64), "q")
F4 = Format("single", 32, 23, ir.FloatType(), ir.IntType(32), "i")


@functools.cache
def processor() -> tuple[str, str]:
    """Return for which processor, with which features, LLVM compiles.

    It is this one, unless ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` choose another, as for what Numba compiles.
    """
    name = config.CPU_NAME or binding.get_host_cpu_name()
    if config.CPU_FEATURES is not None:
        return name, config.CPU_FEATURES
    features = binding.get_host_cpu_features().flatten()
    if "+avx512f" in features:  # LLVM would keep to half a register: exp takes 1.8 ns an element so, 1.1 with all of it
        features += ",-prefer-256-bit"
    return name, features


FUSES = platform.machine() in ("arm64", "aarch64") or "+fma" in processor()[1].split(",")
"""Whether the machine that is compiled for multiplies and adds in one instruction."""


def _constant(kind: ir.Type, number: float) -> ir.Constant:
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


Operand = Union["LaneValue", float, int]


class LaneValue:
    """A float, the bits of one as an integer, or a truth value, of each element."""

    __slots__ = ("builder", "form", "node")

    def __init__(self, builder: ir.IRBuilder, form: Format, node: Any) -> None:
        self.builder = builder
        self.form = form
        self.node = node

    def _new(self, node: Any) -> LaneValue:
        return LaneValue(self.builder, self.form, node)

    def _of(self, other: Operand) -> Any:
        return other.node if isinstance(other, LaneValue) else _constant(self.node.type, other)

    def constant(self, number: float) -> LaneValue:
        """Return a float of this format."""
        return self._new(_constant(self.form.real, number))

    @property
    def fused(self) -> bool:
        """Whether the machine multiplies and adds in one instruction."""
        return FUSES

    @property
    def _whole(self) -> bool:
        return bool(self.node.type == self.form.word)

    def _run(self, whole: Callable[..., Any], real: Callable[..., Any], left: Any, right: Any) -> LaneValue:
        if self._whole:
            return self._new(whole(self.builder, left, right))
        return self._new(real(self.builder, left, right, flags=_FUSED))

    def __add__(self, other: Operand) -> LaneValue:
        return self._run(_BUILDER.add, _BUILDER.fadd, self.node, self._of(other))

    __radd__ = __add__

    def __sub__(self, other: Operand) -> LaneValue:
        return self._run(_BUILDER.sub, _BUILDER.fsub, self.node, self._of(other))

    def __rsub__(self, other: Operand) -> LaneValue:
        return self._run(_BUILDER.sub, _BUILDER.fsub, self._of(other), self.node)

    def __mul__(self, other: Operand) -> LaneValue:
        return self._run(_BUILDER.mul, _BUILDER.fmul, self.node, self._of(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> LaneValue:
        return self._new(self.builder.fdiv(self.node, self._of(other)))

    def __rtruediv__(self, other: Operand) -> LaneValue:
        return self._new(self.builder.fdiv(self._of(other), self.node))

    def __neg__(self) -> LaneValue:
        return self._new(self.builder.fneg(self.node))

    def plus(self, other: Operand) -> LaneValue:
        """Add, rounding here."""
        return self._new(self.builder.fadd(self.node, self._of(other)))

    def minus(self, other: Operand) -> LaneValue:
        """Subtract, rounding here."""
        return self._new(self.builder.fsub(self.node, self._of(other)))

    def times(self, other: Operand) -> LaneValue:
        """Multiply, rounding here."""
        return self._new(self.builder.fmul(self.node, self._of(other)))

    def _compared(self, sign: str, other: Operand) -> LaneValue:
        compare = self.builder.icmp_unsigned if self._whole else self.builder.fcmp_ordered
        return self._new(compare(sign, self.node, self._of(other)))

    def __lt__(self, other: Operand) -> LaneValue:
        return self._compared("<", other)

    def __le__(self, other: Operand) -> LaneValue:
        return self._compared("<=", other)

    def __gt__(self, other: Operand) -> LaneValue:
        return self._compared(">", other)

    def __ge__(self, other: Operand) -> LaneValue:
        return self._compared(">=", other)

    def equals(self, other: Operand) -> LaneValue:
        """Whether two values are the same number."""
        return self._compared("==", other)

    def __and__(self, other: Operand) -> LaneValue:
        return self._new(self.builder.and_(self.node, self._of(other)))

    def __or__(self, other: Operand) -> LaneValue:
        return self._new(self.builder.or_(self.node, self._of(other)))

    def __xor__(self, other: Operand) -> LaneValue:
        return self._new(self.builder.xor(self.node, self._of(other)))

    def __lshift__(self, places: int) -> LaneValue:
        return self._new(self.builder.shl(self.node, self._of(places)))

    def __rshift__(self, places: int) -> LaneValue:
        return self._new(self.builder.lshr(self.node, self._of(places)))

    def shifted_down(self, places: int) -> LaneValue:
        """Shift to the right; the sign stays."""
        return self._new(self.builder.ashr(self.node, self._of(places)))

    @property
    def number(self) -> LaneValue:
        """The float of a signed integer of moderate size."""
        form = self.form
        if form.bits == F4.bits:
            return self._new(self.builder.sitofp(self.node, form.real))
        return (self + form.pattern(form.magic)).real.minus(form.magic)  # few machines convert words of 64 bits

    def __invert__(self) -> LaneValue:
        return self._new(self.builder.not_(self.node))

    @property
    def word(self) -> LaneValue:
        """The bits of a float."""
        return self._new(self.builder.bitcast(self.node, self.form.word))

    @property
    def real(self) -> LaneValue:
        """The float that has these bits."""
        return self._new(self.builder.bitcast(self.node, self.form.real))

    def select(self, chosen: Operand, other: Operand) -> LaneValue:
        """Return the first where this is true, elsewhere the second."""
        typed = chosen if isinstance(chosen, LaneValue) else other
        kind = typed.node.type if isinstance(typed, LaneValue) else self.form.real
        nodes = [v.node if isinstance(v, LaneValue) else _constant(kind, v) for v in (chosen, other)]
        return self._new(self.builder.select(self.node, *nodes))

    def call(self, name: str, *others: LaneValue) -> LaneValue:
        """Call an intrinsic of LLVM that rounds, or takes the size of, a float."""
        nodes = [self.node, *(other.node for other in others)]
        real, module = self.form.real, self.builder.module
        width = f"v{real.count}" if isinstance(real, ir.VectorType) else ""
        full = f"{name}.{width}f{self.form.bits}"
        function = module.globals.get(full) or ir.Function(module, ir.FunctionType(real, [real] * len(nodes)), full)
        return self._new(self.builder.call(function, nodes))

    def __abs__(self) -> LaneValue:
        return self.call("llvm.fabs")

    def at_most(self, bound: float) -> LaneValue:
        """Return the smaller of this and a number; nan stays."""
        return (self > bound).select(bound, self)

    def at_least(self, bound: float) -> LaneValue:
        """Return the larger of this and a number; nan stays."""
        return (self < bound).select(bound, self)

    def within(self, bound: float) -> LaneValue:
        """Return the number of this sign that is no larger than a bound; nan becomes the bound."""
        word, limit = abs(self).word, self.form.pattern(bound)
        return (word < limit).select(word, limit).real.call("llvm.copysign", self)

    def unordered(self, other: LaneValue) -> LaneValue:
        """Whether this or another number is nan."""
        return self._new(self.builder.fcmp_unordered("uno", self.node, other.node))

    @property
    def sign(self) -> LaneValue:
        """The bit of the sign, in its place."""
        return self.word & (1 << (self.form.bits - 1))

    def signed(self, sign: LaneValue) -> LaneValue:
        """Turn the sign of a float where a bit of a sign is set."""
        return (self.word ^ sign).real

    def nearest(self, scale: float) -> tuple[LaneValue, LaneValue]:
        """Return the integer nearest to this times a number: as a float, and in the low bits of a word."""
        moved = self * scale + self.form.magic
        return moved.minus(self.form.magic), moved.word

    def power_of_two(self, *, at: float = 1.0, turned: bool = False) -> LaneValue:
        """Return ``at * 2**n`` for the n in the low bits of a word; if turned ``at * 2**-n``, 0 where too small."""
        shifted = self << self.form.fraction
        start = self.form.pattern(at)
        if not turned:
            return (shifted + start).real
        word = start - shifted
        positive = self._new(self.builder.icmp_signed(">", word.node, word._of(0)))  # noqa: SLF001
        return positive.select(word, 0).real

    def scaled(self, word: LaneValue) -> LaneValue:
        """Return this times 2**n, in two steps: results may be subnormal, or overflow."""
        half = word >> 1
        return self * half.power_of_two() * (word - half).power_of_two()

    def polynomial(self, coefficients: Sequence[float]) -> LaneValue:
        """Return a polynomial, lowest coefficient first, by Horner's scheme; long ones in pairs."""
        terms: list[Operand] = list(coefficients)
        step = self
        if len(terms) > _LONG:
            pairs = [terms[k] + self * terms[k + 1] for k in range(0, len(terms) - 1, 2)]
            terms, step = [*pairs, *terms[len(pairs) * 2 :]], self * self
        last = terms.pop()
        total = last if isinstance(last, LaneValue) else self.constant(last)
        while terms:
            total = total * step + terms.pop()
        return total

    def to(self, form: Format) -> LaneValue:
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
        return LaneValue(self.builder, form, node)


def two_sum(a: LaneValue, b: LaneValue) -> tuple[LaneValue, LaneValue]:
    """Return the sum and what rounding took from it (Knuth)."""
    total = a.plus(b)
    part = total.minus(a)
    return total, a.minus(total.minus(part)).plus(b.minus(part))


def fast_two_sum(a: LaneValue, b: LaneValue) -> tuple[LaneValue, LaneValue]:
    """Return the same where a is the larger (Dekker)."""
    total = a.plus(b)
    return total, b.minus(total.minus(a))


def two_product(a: LaneValue, b: LaneValue) -> tuple[LaneValue, LaneValue]:
    """Return the product and what rounding took from it."""
    product = a.times(b)
    if a.fused:
        return product, a.call("llvm.fma", b, -product)
    (p, q), (r, s) = _halves(a), _halves(b)
    return product, p.times(r).minus(product).plus(p.times(s)).plus(q.times(r)).plus(q.times(s))


def less_product(c: LaneValue, a: LaneValue, b: LaneValue) -> LaneValue:
    """Return c less a product, nothing of which is lost before the difference."""
    if c.fused:
        return (-a).call("llvm.fma", b, c)
    product, low = two_product(a, b)
    return c.minus(product).minus(low)


def _halves(a: LaneValue) -> tuple[LaneValue, LaneValue]:
    high = head(a, (a.form.fraction + 2) // 2)
    return high, a.minus(high)


def head(a: LaneValue, places: int) -> LaneValue:
    """Return a number without its last bits."""
    return (a.word & ((1 << a.form.bits) - (1 << places))).real


# Coefficients of the elementary functions: minimax polynomials of our own, lowest coefficient first.
#
# Found with the Remez exchange at 50 digits (mpmath), then rounded to the format; tests/support/minimax.py repeats it
# and says which function, weight and interval each name stands for. Beside each stands its greatest relative error in
# the result. The forms that they complete are classical: log and the reductions to an interval are those of fdlibm
# (Sun), the scaled exp(a*a) * erfc(a) that of Shepherd and Laframboise (1981). Constants are cut into parts whose
# products with the integers they meet are exact.

# fmt: off
DOUBLE = {
    "TANH": (  # 2**-60
        -0.33333333333333315, 0.13333333333329, -0.053968253964792955, 0.021869488407481617, -0.008863232851091224,
        0.0035920936862661916, -0.0014555488816362177, 0.0005884533498614884, -0.00023336969070058446,
        8.325726333934362e-05, -1.9435742430314485e-05,
    ),
    "EXP": (  # 2**-57
        0.500000000000001, 0.16666666666666674, 0.04166666666652188, 0.008333333333322198, 0.0013888888947856278,
        0.0001984126988661821, 2.4801487285986974e-05, 2.7557242305901814e-06, 2.7632670844749673e-07,
        2.5110061496154887e-08,
    ),
    "EXP2": (  # 2**-58
        0.6931471805599453, 0.2402265069591013, 0.055504108664820084, 0.009618129107594136, 0.0013333558146774896,
        0.0001540353045709131, 1.5252733492839607e-05, 1.3215435292647721e-06, 1.0178199695103565e-07,
        7.073781481782091e-09, 4.434752736256893e-10,
    ),
    "SINH": (  # 2**-61
        0.16666666666666674, 0.008333333333322198, 0.0001984126988661778, 2.755724230632706e-06, 2.5110061351379347e-08,
    ),
    "COSH": (  # 2**-57
        0.500000000000001, 0.04166666666652188, 0.0013888888947855716, 2.4801487286539937e-05, 2.7632670656491544e-07,
    ),
    "LOG": (  # 2**-59
        0.666666666666671, 0.39999999999519004, 0.2857142872951321, 0.2222219906377384, 0.18183573101103348,
        0.15313121386094364, 0.1481097510858925,
    ),
    "POW": (  # 2**-64
        0.40000000000000385, 0.2857142857099764, 0.22222222363843105, 0.18181797436535918, 0.15386187309041174,
        0.13269302417159706, 0.1308778105239262,
    ),
    "SIN": (  # 2**-57
        -0.1666666666666664, 0.008333333333323662, -0.00019841269830144425, 2.7557313651863027e-06,
        -2.5050734572513075e-08, 1.589471066051362e-10,
    ),
    "COS": (  # 2**-62
        0.04166666666666665, -0.001388888888888284, 2.4801587294628004e-05, -2.7557315738613277e-07,
        2.0875897738682843e-09, -1.136798188046908e-11,
    ),
    "TAN": (  # 2**-55
        0.33333333333333126, 0.13333333333377012, 0.053968253940698215, 0.021869489349014164, 0.008863221948826978,
        0.003592270481564885, 0.0014548380446858238, 0.0005948434545938307, 0.00022274581701937023,
        0.0001362704711831261, -2.6624640242370403e-05, 9.01412138561887e-05, -4.546601861023411e-05,
        2.1050070411916298e-05,
    ),
    "ATAN": (  # 2**-57
        -0.3333333333333324, 0.19999999999976292, -0.14285714283804446, 0.11111111038038285, -0.09090907471957516,
        0.07692284495719702, -0.06666436184039401, 0.05880687578275667, -0.05254104633026838, 0.047239282827733306,
        -0.042224746496812376, 0.03669203278394843, -0.029958548721911088, 0.022023974381490403, -0.013912915678908407,
        0.007189121811921555, -0.0028733677493295176, 0.0008246792233459249, -0.00015020066125411943,
        1.2979618739188144e-05,
    ),
    "ERF": (  # 2**-58
        0.12837916709551256, -0.37612638903183476, 0.11283791670925479, -0.0268661706329255, 0.005223977373569877,
        -0.0008548297796903137, 0.00012053336999544561, -1.4845891283057166e-05, 1.4726244430391079e-06,
    ),
    "ERFC": (  # 2**-60
        1.2769783815525286, -0.09276382658574604, -0.16603039761528876, 0.16405128003344777, -0.05422000099209559,
        -0.008034015082732831, 0.008722653877950449, 0.0012713389732693556, -0.0014568139921030537,
        -0.0004543409194848075, 0.00020636775296823624, 0.00015103972213641718, -1.5139692582296886e-06,
        -3.6424535680265014e-05, -1.3472555642247984e-05, 3.7054479697588157e-06, 5.159811870445059e-06,
        1.5486871399172881e-06, -5.737032633286526e-07, -9.696958323941388e-07, -3.810617299733182e-07,
        3.380445054775202e-07, 1.8571213907945173e-07, -1.0181245509846026e-07,
    ),
    "LOGW": (  # 2**-44
        0.6666666667385697, 0.39999995855306025, 0.2857211483268326, 0.22175065007177255, 0.196094822107845,
    ),
    "EXPW": (  # 2**-40
        0.5000000000425866, 0.16666666784525355, 0.041666664406461704, 0.008333281776379806, 0.0013889197005256297,
        0.00019908961490604368, 2.470836675611854e-05,
    ),
}
SINGLE = {
    "TANH": (  # 2**-29
        -0.3333332, 0.13332623, -0.053851422, 0.021054786, -0.0062373253,
    ),
    "EXP": (  # 2**-28
        0.49999994, 0.16666521, 0.04166839, 0.00836872, 0.0013814564,
    ),
    "EXP2": (  # 2**-28
        0.69314724, 0.2402265, 0.055502973, 0.009618031, 0.0013410001, 0.00015469732,
    ),
    "SINH": (  # 2**-37
        0.16666667, 0.008333286, 0.00019907598,
    ),
    "COSH": (  # 2**-34
        0.5, 0.04166624, 0.0013948604,
    ),
    "LOG": (  # 2**-29
        0.66666776, 0.39976063, 0.29926002,
    ),
    "SIN": (  # 2**-37
        -0.16666667, 0.008333329, -0.0001983926, 2.7173419e-06,
    ),
    "COS": (  # 2**-32
        0.041666653, -0.0013887654, 2.446377e-05,
    ),
    "TAN": (  # 2**-29
        0.33333343, 0.13332778, 0.054053955, 0.02128717, 0.010871743, -2.1841824e-06, 0.004438782,
    ),
    "ATAN": (  # 2**-28
        -0.33333313, 0.19998842, -0.14266346, 0.10958583, -0.08410656, 0.05791356, -0.03099131, 0.01074851,
        -0.0017437034,
    ),
    "ERF": (  # 2**-29
        0.12837917, -0.37612608, 0.11282837, -0.026758073, 0.004719738,
    ),
    "ERFC": (  # 2**-30
        1.2769784, -0.09276382, -0.16603023, 0.16405094, -0.054223556, -0.008028536, 0.008748009, 0.0012332895,
        -0.0015303459, -0.00033411328, 0.0002791672,
    ),
}
# fmt: on

FITS = {"double": DOUBLE, "single": SINGLE}

LN2 = {"double": (0.6931471803691238, 1.9082149292705877e-10), "single": (0.693145751953125, 1.428606765330187e-06)}
"""ln 2: 32 and 53 bits; 15 and 24."""
LN2_LONG = (0.6931471805598903, 5.497923018708371e-14)  # ln 2: 42 and 53 bits
LOG2E = 1.4426950408889634
HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
"""pi / 2: three times 33 bits, then 53."""
HALF_PI_SHORT = (1.5707963267341256, 6.077100506506192e-11)  # pi / 2: 33 bits and 53
HALF_PI_FUSED = {
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
    "single": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
}
"""pi / 2: three numbers of the format."""
HALF_PI_ROUNDED = {"double": (1.5707963267948966, 6.123233995736766e-17), "single": (1.5707964, -4.371139e-08)}
"""pi / 2 as rounded, and the rest."""
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
LOG10_2 = {"double": (math.log10(2.0), 0.0), "single": (0.3010254, 4.605039e-06)}
"""log10 of 2: as rounded; 15 bits and 24."""
