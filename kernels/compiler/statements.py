"""Statements over an iteration space: ``target[...] = operation(operands[...])``, or sums of that."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.foundation.specs import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT64,
    Array,
    Strides,
    broadcast,
    dense,
    intern_spec,
    spec_of,
)
from kernels.foundation.tables import dataclass
from kernels.kinds.elementwise import Elementwise
from kernels.programs.rolled_program import Index, Numbers, Ref, RolledProgram, Uncompiled, Value
from kernels.rules.op import OPS, SMALL, Functions, Symbol, literal_of, parameters_of, source

# What an operation does to one element, as text: its rules, read from its record, with places for the operands.

FLOATS = FLOAT64, FLOAT32
INT32 = np.dtype(np.int32)  # in memory alone: elements are read as integers of 64 bits
_CHEAP = (
    "add", "subtract", "multiply", "negative", "square", "cut", "less", "less_equal", "greater", "greater_equal",
    "equal", "not_equal", "where", "absolute", "fabs", "maximum", "minimum", "logical_and", "logical_or", "logical_not",
    "reciprocal", "sign", "isnan",
)  # fmt: skip
_PRICES, _LONG = {"positive": 0, **dict.fromkeys(_CHEAP, 1), "divide": 5, "sqrt": 6}, 20
"""What operations cost, in additions, and what is neither an operation of the processor nor a root."""


@dataclass(frozen=True)
class ScalarRule:
    """An expression with places ``{x}`` for what it ``reads``; what computing it costs, in additions.

    ``factor``: what it multiplies ``g`` by, as text, "" if by nothing; None of others. ``cuts``: it may contribute
    nothing.
    """

    text: str
    reads: frozenset[str]
    price: int
    cuts: bool = False
    factor: str | None = None
    once: str = ""  # the same for one element, with C's functions: short, where those that vectorise are long

    def filled(self, names: dict[str, str], *, once: bool = False) -> str:
        """Return the expression of these operands."""
        return ((once and self.once) or self.text).format(**names)


@dataclass(frozen=True)
class ScalarOperation:
    """An operation on elements: ``inputs`` names its operands; a pullback for each, None where there is none.

    The result has the dtype of the element that it is given to.
    """

    name: str
    inputs: tuple[str, ...]
    forward: ScalarRule
    pullbacks: tuple[ScalarRule | None, ...]


def rule_of(rule: Any, dtype: np.dtype[Any], number: float | None = None) -> ScalarRule:
    """Return a rule as text; ``number`` is what ``p`` is."""
    names = parameters_of(rule)
    try:
        result = rule(**{name: number if name == "p" else Symbol(f"{{{name}}}") for name in names})
    except TypeError as error:  # of an operation that no kernel is printed for
        raise Uncompiled(str(error)) from None
    symbol = result if isinstance(result, Symbol) else Symbol("positive", result)
    if symbol.specials:
        raise Uncompiled(f"{', '.join(symbol.specials)} of SciPy is called by the interpreter")
    reads = frozenset(name for name in names if f"{{{name}}}" in symbol.names)
    text = source(symbol, dtype, Functions.GUARDED)
    once = source(symbol, dtype, Functions.LIBM)
    return ScalarRule(text, reads, _price(symbol), symbol.head == "cut", _factor(symbol, dtype), once)


def _factor(symbol: Symbol, dtype: np.dtype[Any]) -> str | None:
    """Return what a rule multiplies its cotangent by."""
    if symbol.head == "{g}" and not symbol.parts:
        return ""
    if symbol.head == "negative" and _is_cotangent(symbol.parts[0]):
        return literal_of(dtype)(-1.0)
    if symbol.head != "multiply" or not _is_cotangent(symbol.parts[0]):
        return None
    other = symbol.parts[1]
    return None if isinstance(other, Symbol) and "{g}" in other.names else source(other, dtype, Functions.LIBM)


def _is_cotangent(part: Any) -> bool:
    return isinstance(part, Symbol) and not part.parts and part.head == "{g}"


def _price(symbol: Any) -> int:
    if not isinstance(symbol, Symbol) or not symbol.parts:
        return 0
    price = _PRICES.get(symbol.head, _LONG)
    if symbol.head == "power" and isinstance(symbol.parts[1], (int, float)):
        price = 3 if float(symbol.parts[1]).is_integer() and abs(symbol.parts[1]) <= 4 else _LONG  # noqa: PLR2004
    return price + sum(map(_price, symbol.parts))


@functools.lru_cache(1 << 10)
def elementwise(op: Elementwise, params: tuple[Any, ...], numeric: np.dtype[Any]) -> ScalarOperation:
    """Return what an elementwise record does to operands that are ``numeric``."""
    number = params[0] if params else None
    variant = op.variants.get(number) if number is not None else None
    if isinstance(variant, np.ufunc) and variant.__name__ in OPS:
        known = OPS[variant.__name__]
        assert isinstance(known, Elementwise)
        forward = rule_of(known.forward, numeric)
    elif variant is not None and not isinstance(variant, np.ufunc):
        forward = rule_of(lambda x: variant(x), numeric)
    else:
        forward = rule_of(op.forward, numeric, number)
    rules = [None if rule is None else _half_power(rule, number) or rule for rule in op.pullback]
    pullbacks = tuple([None if rule is None else rule_of(rule, numeric, number) for rule in rules])
    return ScalarOperation(op.name, op.inputs, forward, pullbacks)


def _rule(text: str, price: int, factor: str | None = None) -> ScalarRule:
    return ScalarRule(text, frozenset(re.findall(r"{(\w+)}", text)), price, factor=factor)


def scalar_operation(
    name: str, inputs: tuple[str, ...] | str, text: str, price: int, *pullbacks: ScalarRule | str | None
) -> ScalarOperation:
    """Return an operation that no record describes; a pullback given as text costs as much."""
    rules = tuple([_rule(pullback, price) if isinstance(pullback, str) else pullback for pullback in pullbacks])
    return ScalarOperation(name, tuple(inputs), _rule(text, price), rules)


def _conversion(text: str, back: str | None = None) -> ScalarOperation:
    return scalar_operation("convert", "x", text, 1, back)


_TRUNCATED = "(np.int64({x}) if {x} >= -9223372036854775808.0 and {x} < 9223372036854775808.0 else MINUS_ZERO)"
CONVERSIONS = {
    (BOOL, FLOAT64): _conversion("(1.0 if {x} else 0.0)"),
    (BOOL, FLOAT32): _conversion("(np.float32(1.0) if {x} else np.float32(0.0))"),
    (INT64, FLOAT64): _conversion("np.float64({x})"),
    (INT64, FLOAT32): _conversion("np.float32({x})"),
    (BOOL, INT64): _conversion("(1 if {x} else 0)"),
    (INT64, INT64): _conversion("{x}"),
    (INT32, INT64): _conversion("{x}"),
    (INT64, INT32): _conversion("{x}"),
    (INT32, INT32): _conversion("{x}"),
    (FLOAT64, INT64): _conversion(_TRUNCATED),
    (FLOAT32, INT64): _conversion(_TRUNCATED),
    (FLOAT32, FLOAT64): _conversion("np.float64({x})", "np.float32({g})"),
    (FLOAT64, FLOAT32): _conversion("np.float32({x})", "np.float64({g})"),
}
"""What turns an element of one dtype into that of another."""
ROUNDED = CONVERSIONS[FLOAT64, FLOAT32]  # A total, which is summed in float64, as an element in float32
WHOLE = scalar_operation("whole", "x", "np.int64({x})", 1, None)  # A float that is whole as an integer
TURNED = scalar_operation("turned", "x", "(-1 - {x})", 1, None)  # integers in the opposite order
_EXACT = re.compile(r"\(-?\{[a-z]+\}(?: (?:[-+*]|[<>]=?|[=!]=) \{[a-z]+\})?\)")
"""Expressions that are the same of integers as of floats."""


_QUOTIENTS = {
    name: scalar_operation(name, "ab", text, 20, None, None)
    for name, text in {
        np.remainder.__name__: "({a} % {b} if {a} % {b} >= 0 else {a} % {b} + {b})",
        np.floor_divide.__name__: "({a} // {b} - (1 if {a} - {a} // {b} * {b} < 0 else 0))",
    }.items()
}
"""Of integers by a positive one, which cannot raise, whether ``//`` and ``%`` round down or, as in C, towards zero."""


def of_integers(op: Elementwise, operands: tuple[Any, ...]) -> ScalarOperation:
    """Return what an elementwise record does to integers; Uncompiled where that is printed for floats alone."""
    if op.name in _QUOTIENTS and isinstance(operands[1], float) and operands[1] >= 1:
        return _QUOTIENTS[op.name]
    operation = elementwise(op, (), INT64)
    if _EXACT.fullmatch(operation.forward.text) is None:
        raise Uncompiled(f"{op.name} of integers")
    return replace(operation, pullbacks=(None,) * len(op.inputs))


def _half_power(rule: Any, number: float | None) -> Any:
    """Return the pullback of a small power made of products and roots; of an inverse half power, of its result.

    Where the power is 0, which an inverse never is, the result would be divided by 0.
    """
    less = SMALL.get(number - 1.0) if number else None
    if not number or less is None or "p" not in parameters_of(rule):
        return None
    if number < 0 and not float(number).is_integer():
        return lambda g, x, y: g * (number * (y / x))
    return lambda g, x: g * (number * less(x))


_PASSED = _rule("{g}", 0, factor="")
COPY = scalar_operation("copy", "x", "{x}", 0, _PASSED)
PRODUCT = scalar_operation(
    "product", "ab", "({a} * {b})", 1, _rule("({g} * {b})", 1, factor="{b}"), _rule("({g} * {a})", 1, factor="{a}")
)
PUT = scalar_operation("put", "bx", "{x}", 0, _PASSED, None)
"""A value written where gradients are off: the gradient is that of what stood there before."""
ADDITION = scalar_operation(np.add.__name__, "ab", "({a} + {b})", 1, _PASSED, _PASSED)
LARGER = scalar_operation(np.maximum.__name__, "ab", "np.maximum({a}, {b})", 1, None, None)
EITHER = scalar_operation("either", "ab", "{b}", 0, _PASSED, _PASSED)  # one of two numbers that are the same
FIRST = scalar_operation("first", "ab", "{a}", 0, None, _PASSED)  # what has the value, and what has the gradient
SCALED = scalar_operation("scale", "ab", "({a} / {b})", 5, "({g} / {b})", None)
LARGEST_INTEGER = np.fmax  # stands for a maximum of integers, where a ufunc says what reduces
LARGER_INTEGER = scalar_operation("larger integer", "ab", "({a} if {a} > {b} else {b})", 1, None, None)
REDUCTIONS = {np.add: ADDITION, np.maximum: LARGER, np.positive: EITHER, LARGEST_INTEGER: LARGER_INTEGER}
"""What two results for the same element become, by what reduces them."""


# What a compiled program calls between its loops: a native function forward, and others for its pullbacks.

BLAS, KERNEL, INTERPRETER, PYTHON = "BLAS", "a kernel", "the interpreter", "Python"  # what runs calls
INTERRUPTS: list[BaseException] = []
"""What came up in a call that is no error, KeyboardInterrupt say, for whoever called the program to raise."""
RESULT = -1  # the number of the result, where operands have theirs


class CalledOperand(NamedTuple):
    """An operand by its number, or the RESULT: its memory, or that of its gradient."""

    operand: int
    gradient: bool = False


@dataclass(frozen=True, eq=False)
class CalledKernel:
    """A call of a function of :data:`kernels.language.jit.SIGNATURE` on places.

    ``adds``: what it computes is added to the first place. ``fails``: it has a word behind its pointers, which is 0,
    and not 0 behind a call that gave up.
    """

    address: int
    layout: np.ndarray[Any, Any]
    places: tuple[CalledOperand, ...]
    adds: bool = False
    fails: bool = False
    owner: Any = None  # what has to live as long as the address is used


class PrintedCall(NamedTuple):
    """A call of a function of a module of kernels.rules on places and numbers, which is compiled with the program."""

    function: str
    places: tuple[CalledOperand, ...]
    numbers: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class NativeCall:
    """``forward`` computes the result; ``pullbacks`` add to the gradients of the operands that want one.

    ``by`` says what runs it, "" if the program itself. ``covers``: where the cotangent has a contribution throughout,
    so have those.
    """

    name: str
    by: str
    forward: CalledKernel | PrintedCall
    pullbacks: tuple[CalledKernel | PrintedCall, ...]
    covers: bool = False

    def read_back(self) -> set[int]:
        """Return what pullbacks read of operands and result, but for the cotangent."""
        return {place.operand for call in self.pullbacks for place in call.places if not place.gradient}


class Access(NamedTuple):
    """Elements of a value over a space: those of ``ref``, with the strides of the space's axes.

    With ``places``, int64 over the space, they are so many elements further: constants, or what the program computes.
    With ``steps`` they are what a loop's later steps gave: so many along each axis.
    """

    ref: Ref
    strides: Strides
    places: Array | Access | None = None
    steps: Strides = ()

    def extent(self, space: Strides, axes: Iterator[int] | range) -> tuple[int, int]:
        """Return the first and the last byte offset, relative to the reference's, along these axes of the space."""
        low = high = 0
        for axis in axes:
            reach = self.strides[axis] * (space[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


Source: TypeAlias = Access | float | Numbers


@dataclass(slots=True, eq=False)
class Statement:
    """``target = operation(operands)`` at each point of ``space``, whose extents are all larger than 1.

    ``reduces``: ``np.add`` if the results at all points of one target element are summed, ``np.maximum`` if the largest
    is taken, ``np.positive`` if all are the same. ``wanted``: which operands' gradients.
    """

    operation: ScalarOperation
    space: Strides
    operands: tuple[Source, ...]
    target: Access
    wanted: tuple[bool, ...]
    reduces: np.ufunc | None = None
    line: int = -1
    clears: bool = True
    """Whether the gradient of what it overwrites ends here: not that of a write where gradients are off."""

    def accesses(self) -> list[Access]:
        """Return what it reads of values."""
        read = [operand for operand in self.operands if isinstance(operand, Access)]
        return [*read, *(access.places for access in (*read, self.target) if isinstance(access.places, Access))]

    def is_indirect(self) -> bool:
        """Whether it reads or writes elements whose places the program computes."""
        return any(isinstance(access.places, Access) for access in (*self.accesses(), self.target))


@dataclass(slots=True, eq=False)
class CallStatement:
    """``target = call(operands)``, whole arrays in memory; ``wanted``: which operands' gradients.

    ``guards``: the program stops where it fails, and the result is what was found.
    """

    call: NativeCall
    operands: tuple[Ref, ...]
    result: Ref
    wanted: tuple[bool, ...]
    line: int = -1
    guards: bool = False

    @property
    def target(self) -> Access:
        """What it writes."""
        return over_itself(self.result)

    @property
    def space(self) -> Strides:
        """The space of the result."""
        return self.result.spec.shape

    def accesses(self) -> list[Access]:
        """Return what it reads of values."""
        return [over_itself(operand) for operand in self.operands]


@dataclass(slots=True, eq=False)
class GuardStatement:
    """Stops the program where elements of two values differ in their bits."""

    pairs: tuple[Access, Access]
    space: Strides
    line: int = -1
    is_recorded: bool = True  # whether the program that was recorded has it; if not, the program gives up

    def accesses(self) -> list[Access]:
        """Return what it reads of values."""
        return [*self.pairs]


def is_guard(statement: AnyStatement) -> bool:
    """Whether a statement may stop the program."""
    return isinstance(statement, GuardStatement) or (isinstance(statement, CallStatement) and statement.guards)


AnyStatement: TypeAlias = Statement | CallStatement | GuardStatement


def over_itself(ref: Ref) -> Access:
    """Return an access to all elements of a reference, over its own shape."""
    return Access(ref, ref.spec.strides)


def ref_to_all(program: RolledProgram, value: int, *, wanted: bool) -> Ref:
    """Return all of a value."""
    return Ref(value, Index(0), program.values[value].spec, wanted)


def dense_value(
    program: RolledProgram, shape: Strides, dtype: np.dtype[Any], loop: int = -1, *, wanted: bool = False
) -> Ref:
    """Return all of a new value in C order, made in a loop; -1: outside of loops."""
    strides = dense(shape, dtype.itemsize)
    spec = intern_spec(shape, strides, dtype, strides, math.prod(shape))
    program.values.append(Value(spec, loop=loop, differentiable=wanted))
    return ref_to_all(program, len(program.values) - 1, wanted=wanted)


def constant_value(program: RolledProgram, array: Array) -> Ref:
    """Return all of a new constant."""
    program.values.append(Value(spec_of(array), constant=array))
    return ref_to_all(program, len(program.values) - 1, wanted=False)


def new_value(program: RolledProgram, like: int) -> int:
    """Return another value of the spec of one, made where that is."""
    old = program.values[like]
    program.values.append(Value(old.spec, loop=old.loop, differentiable=old.differentiable))
    return len(program.values) - 1


def mapped(
    operation: ScalarOperation,
    shape: Strides,
    operands: tuple[Any, ...],
    target: Ref,
    strides: Strides,
    wanted: tuple[bool, ...],
    *,
    reduces: np.ufunc | None = None,
    places: Array | Access | None = None,
) -> Statement:
    """Return a statement over a shape: operands are references, broadcast to it, accesses or numbers.

    ``places``: target indices, one per point; duplicates are written in iteration order.
    """
    if 0 in shape:
        raise Uncompiled("an array has no elements")
    kept = [axis for axis, extent in enumerate(shape) if extent > 1]
    if places is None and not any(isinstance(o, Access) and (o.places is not None or o.steps) for o in operands):
        turned = _as_in_memory(kept, [strides, *[_over(o, shape) for o in operands if isinstance(o, Ref | Access)]])
        # sums that are not complete behind the outermost loop that they are over stand side by side
        if reduces is None or [a for a in turned if strides[a]] == [a for a in kept if strides[a]]:
            kept = turned
    space = tuple([shape[axis] for axis in kept])

    def over(operand: Any) -> Source:
        if isinstance(operand, Ref):
            operand = Access(operand, _over(operand, shape))
        return along(operand) if isinstance(operand, Access) else operand  # type: ignore[no-any-return]

    def along(access: Access) -> Access:
        places = access.places
        if isinstance(places, Access):
            places = along(places)
        elif places is not None:
            places = places.reshape(space)
        steps = tuple([access.steps[axis] for axis in kept]) if access.steps else ()
        return Access(access.ref, tuple([access.strides[axis] for axis in kept]), places, steps)

    place = along(Access(target, strides, places))
    return Statement(operation, space, tuple(map(over, operands)), place, wanted, reduces)


def _over(operand: Ref | Access, shape: Strides) -> Strides:
    """Return the strides of an operand over a shape."""
    return (
        operand.strides if isinstance(operand, Access) else broadcast(operand.spec.shape, operand.spec.strides, shape)
    )


def _as_in_memory(axes: list[int], strides: list[Strides]) -> list[int]:
    """Return axes in the order of the memory of what has most of them, the first of equals."""
    lead = max(strides, key=lambda steps: sum(steps[axis] != 0 for axis in axes))
    moved = [abs(lead[axis]) for axis in axes if lead[axis]]
    if moved == sorted(moved, reverse=True):
        return axes
    return sorted(axes, key=lambda axis: -abs(lead[axis]))


def is_whole(ref: Ref, value: Value) -> bool:
    """Whether a reference is all of a value, as it stands in memory."""
    start = not (ref.offset.constant or ref.offset.terms or ref.offset.table)
    return start and ref.spec.shape == value.spec.shape and ref.spec.strides == value.spec.strides
