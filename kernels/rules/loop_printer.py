"""Prints loops of kernels; kernels that handle rows, matrices and picked elements."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec, Strides, dense, inner_loop, nest
from kernels.foundation.tables import Recent, dataclass
from kernels.language import jit
from kernels.language.jit import callable_at
from kernels.native.c_api import NATIVE
from kernels.native.memory import where
from kernels.native.structs import ALWAYS, IF_INPUT_IS, LARGE, NEVER
from kernels.rules import elements, op
from kernels.rules.op import Functions, Symbol, literal_of, source

# Records to loop source: one printed kernel for a rule, a dtype and a pattern of strides.
#
# Every kernel has jit.SIGNATURE. Its layout is ``[rows, n, outer axes, extents ..., strides of each operand ...]``
# (strides in bytes, innermost first); its pointers are those of the target and of the operands it reads.


@dataclass(frozen=True)
class KernelOperand:
    """What a kernel reads, or writes to."""

    name: str  # in the rule
    dtype: np.dtype[Any]
    place: int  # among the pointers
    strides: Strides
    offset: int | None = None  # where it begins behind its pointer, in bytes; None: always at 0


def nest_layout(shape: Strides, *strides: Strides) -> np.ndarray[Any, Any]:
    """Return the layout of operands of these strides."""
    return np.array(_nest_words(shape, strides)[0], np.int64)


def _nest_words(shape: Strides, strides: Sequence[Strides]) -> tuple[list[int], list[int]]:
    """Return ``[rows, n, outer axes, extents ..., strides of each operand ...]``, innermost first; and its strides."""
    if 0 in shape:
        return [0] * (3 + len(strides)), []
    extents, nested = nest(shape, list(strides))
    if not extents:
        return [1, 1] + [0] * (1 + len(strides)), []
    *outer, inner = extents
    words = [math.prod(outer), inner, len(outer), *reversed(outer)]
    for operand_strides in nested:
        words += reversed(operand_strides)
    return words, [operand_strides[-1] for operand_strides in nested]


def printed(operands: Sequence[KernelOperand]) -> tuple[Any, ...]:
    """Return what a kernel's text has of its operands; their strides are in the layout and in the pattern."""
    return tuple([(o.name, o.dtype.num, o.place, o.offset is None) for o in operands])


BLOCK = 1024  # elements of a row whose angles are looked at before their sines are taken
_POINTERS = {"float64": "f8", "float32": "f4", "int64": "i8", "int32": "i4", "bool": "b1"}
DTYPES = frozenset(_POINTERS)  # names of the dtypes that kernels read and write
_addresses: Recent[Any, int] = Recent()  # new shapes share the kernels of others: to print one takes a millisecond


@dataclass(frozen=True)
class PrintedLoop:
    """A rule over a space: ``target[...] (+)= expression``; the first operand is the target."""

    rule: Callable[..., Any]
    shape: Strides
    operands: tuple[KernelOperand, ...]
    pullback: bool = True  # contribute ``expression + 0.0``
    skips: bool = True  # operand 1 is a cotangent: skip elements equal to -0.0
    scatter: int | None = None  # stride of the axis along which the operand ``i`` places the target
    gather: int | None = None  # the same of the cotangent
    adds: bool = False  # accumulate into the target in a forward loop
    static: tuple[tuple[str, float], ...] = ()  # numbers of the rule, which the kernel reads behind the layout

    @property
    def expression(self) -> Symbol:
        """The rule, traced."""
        return op.trace_known(self.rule, op.bits_of(self.static))

    @property
    def steps(self) -> int:
        """How often the innermost expression runs."""
        return math.prod(self.shape)

    @property
    def covers(self) -> bool:
        """Whether each element of the target pattern is met once: a first contribution may then be stored."""
        if self.scatter is not None or 0 in self.shape:
            return False
        return all(s != 0 for s, n in zip(self.operands[0].strides, self.shape, strict=True) if n > 1)

    def layout(self) -> tuple[np.ndarray[Any, Any], str]:
        """Return the layout words and the pattern of inner strides (kernels/rules/loop_printer.py)."""
        tail = [self.scatter or self.gather or 0, *[operand.offset or 0 for operand in self.operands]]
        specials = []
        for name in sorted(self.expression.specials):
            ufunc = op.resolved(getattr(op.special, name))
            loop = inner_loop(ufunc, (self.operands[0].dtype,) * ufunc.nargs)
            specials += [loop.address, loop.data]
        tail += [*specials, *map(op.raised, self.expression.exponents), *dict(op.bits_of(self.static)).values()]
        # the pattern: "1" for the next element, "0" for the same, "s" for another; "+" behind them for outer axes
        words, inner = _nest_words(self.shape, [operand.strides for operand in self.operands])
        layout = np.array(words + tail, np.int64)
        if 0 in self.shape:
            return layout, "s" * len(self.operands)
        kinds = [
            {0: "0", operand.dtype.itemsize: "1"}.get(stride, "s")
            for operand, stride in zip(self.operands, inner, strict=False)
        ]
        return layout, "".join(kinds) + "+" * (words[2] > 0)

    def kernel(self) -> tuple[int, np.ndarray[Any, Any]]:
        """Compile, or find, the kernel; return its address and layout."""
        layout, pattern = self.layout()
        traits = printed(self.operands), op.bits_of(self.static), self.scatter is None, self.gather is None
        key = self.rule, pattern, *traits, self.pullback, self.skips, self.adds
        address = _addresses.get(key)
        if address is None:
            kernel = jit.load_source("loop", _Printer(self, pattern).text()).kernel
            address = _addresses.setdefault(key, int(kernel.address))
        return address, layout


_HEAD = '''"""Printed by tape-autograd: {title}."""

from __future__ import annotations

import math
import numpy as np
{imports}from kernels.native.memory import apply1_f4, apply1_f8, apply2_f4, apply2_f8, double_of
from kernels.native.memory import pointer_b1, pointer_f4, pointer_f8, pointer_i4, pointer_i8

MINUS_ZERO = -(1 << 63)


{apart}def kernel(layout: Words, pointers: Words, accumulate: Word) -> Void:
'''


_IMPORTS = {
    "accumulators": "from kernels.rules import accumulators\n",
    "vectormath": "from kernels.language import vectormath\n",
}
"""What a loop's text may use, by the name that it has there."""


class _Printer:
    def __init__(self, loop: PrintedLoop, pattern: str) -> None:
        self.loop = loop
        self.outer = pattern.endswith("+")
        self.pattern = pattern.removesuffix("+")
        self.target, *self.reads = loop.operands
        if unknown := {operand.dtype.name for operand in loop.operands} - DTYPES:
            raise TypeError(f"programs hold no {min(unknown)}; convert arguments of that dtype before the call")
        self.dtype = self.target.dtype
        self.lines: list[str] = []
        self.functions = Functions.VECTOR
        self.apart: list[str] = []
        self.raised = ""

    def put(self, depth: int, *texts: str) -> None:
        self.lines += ["    " * depth + text for text in texts]

    def text(self) -> str:
        self.put(1, *self._addresses())
        body = self._rows if self.pattern else self._element
        if not self.loop.expression.exponents:
            body(1)
        for k, name in enumerate(op.RAISED if self.loop.expression.exponents else ()):
            self.raised = name
            self.put(1, f"if raised == {k}:")
            body(2)
        title = f"{self._expression()}, {self.dtype}, {self.pattern or 'one element'}"
        body, apart = "\n".join(self.lines) + "\n", "".join(self.apart)
        imports = "".join(line for name, line in _IMPORTS.items() if f"{name}." in body + apart)
        return _HEAD.format(title=title, imports=imports, apart=apart) + body

    def _addresses(self) -> list[str]:
        """Print the pointers; behind the strides stand the scatter's step and the offsets."""
        count = len(self.loop.operands)
        texts = ["axes = layout[2]" if self.outer else "axes = 0", f"tail = 3 + axes + {count} * (axes + 1)"]
        for k, operand in enumerate(self.loop.operands):
            offset = f" + layout[tail + {1 + k}]" if operand.offset is not None else ""
            texts.append(f"p{k} = pointers[{operand.place}]{offset}")
        for k, name in enumerate(sorted(self.loop.expression.specials)):
            place = 1 + count + 2 * k
            texts += [f"{name}_loop = layout[tail + {place}]", f"{name}_data = layout[tail + {place + 1}]"]
        first = 1 + count + 2 * len(self.loop.expression.specials)
        for k in range(len(self.loop.expression.exponents)):
            texts.append(f"raised = layout[tail + {first + k}]")
            first += 1
        for k, (name, _) in enumerate(self.loop.static):
            texts.append(f"{name} = np.{self.dtype.name}(double_of(layout[tail + {first + k}]))")
        return texts + ([] if self._located is None else ["step = layout[tail]"])

    @property
    def _located(self) -> int | None:
        """The operand whose place is given by ``i``: the target, the cotangent or none."""
        return 0 if self.loop.scatter is not None else 1 if self.loop.gather is not None else None

    def _rows(self, depth: int) -> None:
        self.put(depth, "size = np.uint64(layout[1])")
        if self.outer:
            count = len(self.loop.operands)
            self.put(depth, "words = axes + 1", *[f"q{k} = p{k}" for k in range(count)], "for row in range(layout[0]):")
            depth += 1
            self.put(depth, "rest = row", *[f"p{k} = q{k}" for k in range(count)], "for axis in range(axes):")
            self.put(depth + 1, "at = rest % layout[3 + axis]", "rest //= layout[3 + axis]")
            self.put(depth + 1, *[f"p{k} += at * layout[4 + axes + {k} * words + axis]" for k in range(count)])
        self._pointers(depth)
        if self.pattern[0] == "0" and self.loop.pullback and self.loop.scatter is None:
            self.functions = Functions.GUARDED
            self.put(depth, f"total = {literal_of(self.dtype)(-0.0)}", "for k in range(size):")
            self.put(depth + 1, f"total = accumulators.added(total, {self._value(depth + 1, 'k')})")
            self.put(depth, "v0[0] += total")
        elif angles := self.loop.expression.angles:
            self._blocks(depth, angles)
        else:
            apart = self.outer and "vectormath." in self._expression()
            (self._apart if apart else self._run)(depth, "np.uint64(0), size")

    def _pointers(self, depth: int) -> None:
        for k, operand in enumerate(self.loop.operands):
            width = operand.dtype.itemsize
            self.put(depth, f"v{k} = pointer_{_POINTERS[operand.dtype.name]}(p{k})")
            if self.pattern[k] == "s":
                self.put(depth, f"j{k} = layout[3 + axes + {k} * (axes + 1)] // {width}")
        if self.loop.pullback and self.loop.skips:
            self.put(depth, "b1 = pointer_i8(p1)" if self._wide() else "b1 = pointer_i4(p1)")

    def _wide(self) -> bool:
        return self.loop.operands[1].dtype.itemsize == 8  # noqa: PLR2004 (bytes of a double)

    def _index(self, k: int, at: str) -> str:
        index = {"1": at, "0": "0", "s": f"np.int64({at}) * j{k}"}[self.pattern[k]]
        return f"{index} + i * (step // {self.loop.operands[k].dtype.itemsize})" if k == self._located else index

    def _load(self, k: int, at: str) -> str:
        operand = self.loop.operands[k]
        value = f"v{k}[{self._index(k, at)}]"
        if operand.dtype == np.bool_:
            return f"({value} != 0)" if self.dtype != np.bool_ else value
        if operand.name == "i" or operand.dtype == self.dtype:
            return value
        return f"np.{self.dtype.name}({value})"

    def _expression(self) -> str:
        return source(self.loop.expression, self.dtype, self.functions, self.raised)

    def _value(self, depth: int, at: str) -> str:
        self._loads(depth, at)
        bits = f"b1[{self._index(1, at)}]" if self.loop.pullback and self.loop.skips else ""
        expression = self._expression()
        if not self.loop.pullback:
            return expression
        literal = literal_of(self.dtype)
        if self.loop.expression.head != "cut":
            expression = f"({expression} + {literal(0.0)})"
        if not bits:
            return expression
        least = "MINUS_ZERO" if self._wide() else "-(1 << 31)"
        return f"({literal(-0.0)} if {bits} == {least} else {expression})"

    def _loads(self, depth: int, at: str, *names: str) -> None:
        numbered = [(k, o) for k, o in enumerate(self.reads, start=1) if not names or o.name in ("i", *names)]
        for k, operand in sorted(numbered, key=lambda pair: pair[1].name != "i"):  # places first
            self.put(depth, f"{operand.name} = {self._load(k, at)}")

    def _element(self, depth: int) -> None:
        self.functions = Functions.LIBM
        self.pattern = "0" * len(self.loop.operands)
        self._pointers(depth)
        self._store(depth, "0", self._value(depth, "0"))

    def _store(self, depth: int, at: str, value: str) -> None:
        place = f"v0[{self._index(0, at)}]"
        if self.loop.pullback and self.loop.scatter is None:
            self.put(depth, "if accumulate:", f"    {place} += {value}", "else:", f"    {place} = {value}")
        else:
            self.put(depth, f"{place} {self._sign} {value}")

    def _blocks(self, depth: int, angles: list[Any]) -> None:
        """Print the loop twice, for blocks of angles that are all near enough, and for others."""
        self.put(depth, f"for start in range(np.uint64(0), size, np.uint64({BLOCK})):")
        self.put(depth + 1, f"stop = min(start + np.uint64({BLOCK}), size)")
        self.put(depth + 1, f"far = np.int{8 * self.dtype.itemsize}(0)", "for k in range(start, stop):")
        self._loads(depth + 2, "k", *[name for angle in angles for name in angle.names])
        for angle in angles:
            self.put(depth + 2, f"far = vectormath.farther(far, {source(angle, self.dtype, self.functions)})")
        self.put(depth + 1, "if far >= 0:")
        self._apart(depth + 2, "start, stop")
        self.put(depth + 1, "else:", "    for k in range(start, stop):")
        self.functions = Functions.GUARDED
        self.put(depth + 3, f"t0 = {self._value(depth + 3, 'k')}")
        self._store(depth + 3, "k", "t0")

    def _apart(self, depth: int, span: str) -> None:
        """Print the loop over a span as a function: in a nest of loops its constants would not stay in registers."""
        around, self.lines = self.lines, []
        self._run(1, "start, stop")
        text, self.lines = "\n".join(self.lines), around
        names = ", ".join(sorted(set(re.findall(r"\b(?:[vj]\d+|b1|p|step|\w+_loop|\w+_data)\b", text))))
        name = f"span{len(self.apart)}"
        self.apart.append(f"def {name}(start, stop, accumulate, {names}):\n{text}\n\n\n")
        self.put(depth, f"{name}({span}, accumulate, {names})")

    def _run(self, depth: int, span: str) -> None:
        stores = self.loop.pullback and self.loop.scatter is None
        forms = (("if accumulate:", "+="), ("else:", "=")) if stores else (("", self._sign),)
        for test, sign in forms:
            inner = depth + bool(test)
            self.put(depth, *filter(None, (test,)))
            self.put(inner, f"for k in range({span}):")
            self.put(inner + 1, f"v0[{self._index(0, 'k')}] {sign} {self._value(inner + 1, 'k')}")

    @property
    def _sign(self) -> str:
        return "+=" if self.loop.pullback or self.loop.adds else "="


# Constant cotangents: all elements are one number, as after a sum; kept as the number, not written out. A pullback may
# need two more kernels for them: one reads the number in place of elements, one computes a result that is constant
# itself. They are compiled after a sweep has met the first such cotangent.

LEAST = 1 << 13
"""Elements from which on a kernel of its own is worth it: a pass over fewer stays in the nearest cache."""


def reads_constant(pull: PrintedLoop, elements: int) -> bool:
    """Whether a pullback has a kernel that reads a constant cotangent of so many elements."""
    return pull.skips and pull.scatter is None and pull.gather is None and elements >= LEAST


def constant_result(pull: PrintedLoop, elements: int, *, covers: bool) -> int:
    """When a pullback's contribution to so many elements is constant: ALWAYS, IF_INPUT_IS or NEVER."""
    if not covers or elements < LEAST or pull.scatter is not None or pull.gather is not None:
        return NEVER
    _, cotangent, *others = pull.operands
    if any(stride for operand in others for stride in operand.strides):
        return NEVER
    return IF_INPUT_IS if any(cotangent.strides) or cotangent.offset is not None else ALWAYS


def reading_constant(pull: PrintedLoop) -> PrintedLoop:
    """Return the loop that reads a constant cotangent."""
    target, cotangent, *others = pull.operands
    everywhere = replace(cotangent, strides=(0,) * len(pull.shape), offset=None)
    return replace(pull, operands=(target, everywhere, *others))


def computing_constant(pull: PrintedLoop) -> PrintedLoop:
    """Return the loop that computes a constant result: a single element."""
    target, *others = reading_constant(pull).operands
    single = [replace(operand, strides=()) for operand in (replace(target, offset=None), *others)]
    return replace(pull, shape=(), operands=tuple(single))


# Kernels that walk rows, forward and back, and products of matrices.


def run_at(address: int, layout: Array, arrays: Sequence[Array], *, accumulate: bool = False) -> None:
    """Run the kernel at an address on arrays."""
    pointers = np.array([where(array) for array in arrays], np.int64)
    callable_at(address)(where(layout), where(pointers), accumulate)


@functools.cache
def address(file: str, name: str, dtype: np.dtype[Any]) -> int:
    """Compile one kernel of a file, or find it; return its address."""
    kernel = jit.load_function(file, name, dtype.name, {elements.__name__: elements.meaning(dtype)})
    return int(kernel.address)


@dataclass(frozen=True)
class RowPull:
    """A linear map of rows: of cotangents back, or of tangents forward.

    ``where`` compiles the kernel of a dtype, whose layout is ``words``; its pointers are those of target, cotangent and
    what the form saves, all C-contiguous. ``rule`` is the same on arrays of the shapes ``source_shape`` and ``shape``,
    that of the target. ``turned`` is its transpose; None where that is itself.
    """

    shape: Strides
    source_shape: Strides
    dtype: np.dtype[Any]
    words: tuple[int, ...]
    where: Callable[[np.dtype[Any]], int]
    rule: Callable[..., Array]
    turned: RowPull | None = None
    covers: bool = True

    @property
    def steps(self) -> int:
        """How often the innermost expression runs."""
        return max(math.prod(self.shape), math.prod(self.source_shape))

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        return self.where(self.dtype), _layout(self.words)

    def contribute(self, buffer: Array, offset: int, cotangent: Array, saved: tuple[Any, ...]) -> None:
        """Run the rule on arrays and add what it finds."""
        start, size = offset // buffer.itemsize, math.prod(self.shape)
        rows = cotangent.reshape(-1)[: math.prod(self.source_shape)].reshape(self.source_shape)
        with np.errstate(all="ignore"):
            contribution = np.asarray(self.rule(rows, *saved)).reshape(-1) + 0.0
        if self.source_shape != self.shape:  # a number for each row: none where that is nothing
            outer, _, inner, *_ = self.words
            nothing = ((rows == 0) & np.signbit(rows)).reshape(outer, 1, inner)
            contribution = np.where(nothing, -0.0, contribution.reshape(outer, -1, inner)).reshape(-1)
        buffer[start : start + size] += contribution


@functools.lru_cache(256)
def _layout(words: tuple[int, ...]) -> Array:
    return np.array(words, np.int64)


def extents(shape: Strides, dims: Strides) -> tuple[int, int, int] | None:
    """Return how many rows along dims there are before each other, how long, how many side by side; None if apart."""
    dims = tuple(sorted(dims))
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)):
        return None
    return math.prod(shape[: dims[0]]), math.prod([shape[i] for i in dims]), math.prod(shape[dims[-1] + 1 :])


def row_pull(
    source: Spec,
    spec: Spec,
    dims: Strides,
    name: str,
    rule: Callable[..., Array],
    turned: str = "",
    jvp: Callable[..., Array] | None = None,
    *,
    number: float = 0.0,
    any_size: bool = False,
) -> RowPull | None:
    """Return the pullback of small rows along dims (its transpose: ``turned``, ``jvp``, if others), or None."""
    item, rows = source.dtype.itemsize, extents(source.shape, dims)
    in_order = source.strides == source.gradient == dense(source.shape, item)
    in_order = in_order and spec.strides == spec.gradient == dense(spec.shape, item)
    if rows is None or not in_order or source.dtype not in (np.float64, np.float32):
        return None
    if source.bytes == 0 or (source.bytes >= LARGE and not any_size):
        return None
    if not jit.makes_native_code():
        return None
    words = (*rows, int(np.float64(number).view(np.int64)))
    back, forth = (functools.partial(address, "rules.rows_native", kernel) for kernel in (name, turned or name))
    push = None if jvp is None else RowPull(spec.shape, source.shape, source.dtype, words, forth, jvp)
    return RowPull(source.shape, spec.shape, source.dtype, words, back, rule, push)


# Results of small rows take a kernel in the place of several calls of NumPy's. Dynamic mode and replays choose alike,
# by operation, dtype and shape, and so agree in every bit.

_FILE = "rules.rows_native"
SHORT = 64
"""Elements of a row up to which counting, or moving elements one by one, is the fastest way to order them."""


@dataclass(frozen=True)
class RowValue:
    """How the results of rows are computed: a kernel of row_values_native, of a dtype, with its layout."""

    name: str
    dtype: np.dtype[Any]
    shape: Strides  # of the result
    words: tuple[int, ...]
    places: bool  # whether the places of its elements are written too

    @property
    def steps(self) -> int:
        """How much it computes, in elements."""
        return math.prod(self.words[:3])

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        return address(_FILE, self.name, self.dtype), _layout(self.words)

    def run(self, x: Array) -> Any:
        """Return the result of an array, and its places where there are some."""
        x, y = np.ascontiguousarray(x), np.empty(self.shape, self.dtype)
        operands = [y, np.empty(self.shape, np.int64), x] if self.places else [y, x]
        run_at(*self.kernel(), operands)
        return (y, operands[1]) if self.places else y


@functools.lru_cache(1024)
def row_value(
    shape: Strides,
    dtype: np.dtype[Any],
    name: str,
    dims: Strides,
    number: float = 0.0,
    *,
    keepdim: bool | None = None,
    longest: int | None = None,
    length: int | None = None,
    places: bool = False,
    any_size: bool = False,
) -> RowValue | None:
    """Return how results along dims of small arrays, or ``any_size``, are computed; None where no kernel suits."""
    rows = extents(shape, dims)
    if rows is None or dtype not in (np.float64, np.float32) or not NATIVE:
        return None
    if 0 in rows or length == 0 or (longest is not None and rows[1] > longest):
        return None
    if math.prod(rows) * dtype.itemsize >= LARGE and not any_size:
        return None
    if keepdim is None:
        out = tuple(length if length is not None and i in dims else n for i, n in enumerate(shape))
    else:
        out = tuple(1 if i in dims else n for i, n in enumerate(shape) if keepdim or i not in dims)
    words = (*rows, int(np.float64(number).view(np.int64)), rows[1] if length is None else length)
    return RowValue(name, dtype, out, words, places)


@dataclass(frozen=True)
class Pick:
    """Values and int64 places, both dense, of each row of ``spec`` along ``axis``."""

    spec: Spec
    axis: int
    largest: bool

    @property
    def steps(self) -> int:
        """The elements looked at."""
        return self.spec.size

    def kernel(self) -> tuple[int, np.ndarray[Any, Any]]:
        """Return the address of the kernel and its layout."""
        shape, strides = list(self.spec.shape), list(self.spec.strides)
        length, step = (shape.pop(self.axis), strides.pop(self.axis)) if shape else (1, 0)
        rows = int(np.prod(shape, dtype=np.int64))
        head = [rows, length, step, self.largest, self.spec.dtype.itemsize, len(shape)]
        layout = np.array([*head, *reversed(shape), *reversed(strides)], np.int64)
        return address("rules.rows_native", "pick", self.spec.dtype), layout


def pick(locate: Any, array: Array, *, axis: int, keepdims: bool) -> tuple[Array, Array]:
    """Return the same in NumPy, of any dtype; both are fresh."""
    wide = np.asarray(locate(array, axis=axis, keepdims=True)) if array.ndim else np.zeros((), np.int64)
    value = np.take_along_axis(array, wide, axis) if array.ndim else array
    places = np.array(wide if keepdims or not array.ndim else wide.squeeze(axis), np.int64, order="C")
    return np.array(value.reshape(places.shape), order="C"), places


Pair = tuple[int, int]
LARGEST_LOOP = 1 << 12
"""Multiplications of one product up to which compiled programs have it as a loop, not as a call of BLAS."""


@dataclass(frozen=True)
class Factor:
    """A matrix among a kernel's pointers: its place, and its strides in bytes (0 for an axis it does not have)."""

    place: int
    strides: Pair

    @property
    def turned(self) -> Factor:
        """The matrix transposed."""
        return Factor(self.place, (self.strides[1], self.strides[0]))


@dataclass(frozen=True)
class Product:
    """``target (m, n) (+)= left (m, k) @ right (k, n)``; the extents are m, n and k."""

    dtype: np.dtype[Any]
    extents: tuple[int, int, int]
    target: Factor
    left: Factor
    right: Factor
    covers: bool = True

    @property
    def steps(self) -> int:
        """The multiplications, as many as a step of another loop takes time for together."""
        return math.prod(self.extents) // 16

    def kernel(self) -> tuple[int, np.ndarray[Any, Any]]:
        """Return the address of the kernel and its layout."""
        loop = inner_loop(np.matmul, (self.dtype,) * 3)
        (m, n, k), item = self.extents, self.dtype.itemsize
        words = [loop.address, loop.data, item, self.left.place, self.right.place, self.target.place]
        extents = [1, m, k, n]
        strides = [0, 0, 0, *self.left.strides, *self.right.strides, *self.target.strides]
        layout = np.array(words + extents + strides, np.int64)
        return int(jit.load_module("rules.rows_native").kernel.address), layout


def product(
    dtype: np.dtype[Any], extents: tuple[int, int, int], target: Factor, left: Factor, right: Factor
) -> PrintedLoop | Product:
    """Return the pullback that is a matrix product; of a column and a row, a loop takes one pass."""
    m, n, inner = extents
    if inner != 1:
        return Product(dtype, extents, target, left, right)
    factors = (left.place, (left.strides[0], 0)), (right.place, (0, right.strides[1]))
    (g, of_g), (x, of_x) = sorted(factors)  # the cotangent's place is 1
    operands = (
        KernelOperand("target", dtype, 0, target.strides),
        KernelOperand("g", dtype, g, of_g),
        KernelOperand("x", dtype, x, of_x),
    )
    return PrintedLoop(lambda g, x: g * x, (m, n), operands)


def matrices(
    a: Strides, a_strides: Strides, b: Strides, b_strides: Strides, result: Strides
) -> tuple[tuple[int, int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """See vectors as matrices of one row or column: (m, k, n) and the strides of left, right and result."""
    rows, row = (a[0], a_strides[0]) if len(a) == 2 else (1, 0)  # noqa: PLR2004 (ranks)
    columns, column = (b[1], b_strides[1]) if len(b) == 2 else (1, 0)  # noqa: PLR2004
    remaining = iter(result)
    out_row = next(remaining) if len(a) == 2 else 0  # noqa: PLR2004
    out_column = next(remaining) if len(b) == 2 else 0  # noqa: PLR2004
    return (rows, a[-1], columns), (row, a_strides[-1]), (b_strides[0], column), (out_row, out_column)
