"""What every record of an operation has, and the symbols that print its rules as source for a kernel."""

from __future__ import annotations

import enum
import functools
import math
import re
import struct
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from kernels.foundation.specs import Array
from kernels.foundation.tables import cached_property, dataclass
from kernels.native.structs import PULLS

# Symbols: a rule run on them becomes an expression, which prints itself as source for a kernel.

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
    "logical_and": "and", "logical_or": "or", "bitwise_and": "and", "bitwise_or": "or",
}  # fmt: skip
_CALLS = {
    "sin": "math.sin", "cos": "math.cos", "tan": "math.tan", "exp": "math.exp", "log": "math.log",
    "tanh": "math.tanh", "sqrt": "math.sqrt", "absolute": "abs", "fabs": "abs",
    **{
        name: f"np.{name}"
        for name in (
            "exp2", "expm1", "log2", "log10", "log1p", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh",
            "arcsinh", "arccosh", "arctanh", "hypot", "floor", "ceil", "rint", "trunc", "fmod", "copysign", "signbit",
            "isinf", "isfinite", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "cbrt",
            "deg2rad", "rad2deg", "degrees", "radians",
        )
    },
    "special.erf": "math.erf", "special.erfc": "math.erfc", "special.expit": "vectormath.logistic",
}  # fmt: skip
_ANGLES = ("sin", "cos", "tan")
VECTOR = {
    **{
        name: name
        for name in (
            "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sinh", "cosh", "tanh", "arctan", "power", *_ANGLES
        )
    },
    "special.erf": "erf", "special.erfc": "erfc", "special.expit": "logistic",
}  # fmt: skip
"""What kernels/language/vectormath.py has."""
_FORMS = {
    "negative": "(-{0})",
    "positive": "({0})",
    "square": "({0} * {0})",
    "reciprocal": "({one} / {0})",
    "logical_not": "(not {0})",
    "invert": "(not {0})",  # of masks: integers do not come here
    "logical_xor": "(({0} != 0) != ({1} != 0))",
    "bitwise_xor": "({0} != {1})",
    "isnan": "({0} != {0})",
    "remainder": "np.copysign(np.remainder({0}, {1}), {1})",  # the sign of a zero, too, is the divisor's
    "heaviside": "({0} if {0} != {0} else ({zero} if {0} < {zero} else ({1} if {0} == {zero} else {one})))",
    "where": "({1} if {0} else {2})",
    "cut": "({minus} if {0} else ({1} + {zero}))",
    "sign": "({one} if {0} > {zero} else ({less} if {0} < {zero} else ({0} if {0} != {0} else {zero})))",
}
_PRINTED = {*_INFIX, *_CALLS, *_FORMS} - {"where", "cut"}  # the ufuncs that a rule may use
SPECIAL = "special."  # what the name of a function of scipy.special begins with


class Functions(enum.Enum):
    """Whose elementary functions are printed."""

    LIBM = enum.auto()  # C's, fastest for one number
    VECTOR = enum.auto()  # vectormath.py's, which vectorise, for angles that are not ``beyond``
    GUARDED = enum.auto()  # the same, with C's for the angles that are


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """A named operand or an expression of them: ``head`` and its ``parts``."""

    __slots__ = ("head", "parts")

    def __init__(self, head: str, *parts: Any) -> None:
        self.head = head
        self.parts = parts

    @classmethod
    def cut(cls, where: Any, value: Any) -> Symbol:
        """Return a contribution of ``value`` that is none where ``where`` holds."""
        return cls("cut", where, value)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Symbol:
        if method != "__call__" or kwargs:
            raise TypeError(f"a rule cannot use {ufunc.__name__}.{method} or keywords; use operators and plain ufuncs")
        name = ufunc.__name__
        if name not in _PRINTED:
            raise TypeError(f"a rule cannot use np.{name}; teach kernels/rules/op.py to print it first")
        return Symbol(name, *inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Symbol:
        if func is not np.where or kwargs:
            raise TypeError(f"a rule cannot use np.{func.__name__}; use operators, ufuncs and np.where")
        return type(self)("where", *args)

    def __bool__(self) -> bool:
        raise TypeError("a rule cannot branch on its operands; use np.where")

    @property
    def specials(self) -> frozenset[str]:
        """The functions of scipy.special that the expression calls in SciPy."""
        inner = (p.specials for p in self.parts if isinstance(p, Symbol))
        called = self.head.startswith(SPECIAL) and self.head not in _CALLS
        return frozenset((self.head.removeprefix(SPECIAL),) if called else ()).union(*inner)

    @property
    def angles(self) -> list[Any]:
        """Of what the expression takes a sine, cosine or tangent."""
        inner = [angle for p in self.parts if isinstance(p, Symbol) for angle in p.angles]
        return inner + (list(self.parts) if self.head in _ANGLES else [])

    @property
    def exponents(self) -> list[float]:
        """The static exponents of its powers."""
        inner = [exponent for p in self.parts if isinstance(p, Symbol) for exponent in p.exponents]
        if self.head != "power" or not isinstance(self.parts[1], Symbol):
            return inner
        static = known(self.parts[1])
        return inner if static is None else [*inner, static]

    @property
    def names(self) -> frozenset[str]:
        """The names that the expression reads."""
        if not self.parts:
            return frozenset((self.head,))
        return frozenset().union(*(p.names for p in self.parts if isinstance(p, Symbol)))


class Static(Symbol):
    """A number that a kernel reads beside its layout: known to the rule, which may branch on it, not printed."""

    __slots__ = ("value",)

    def __init__(self, head: str, value: float) -> None:
        super().__init__(head)
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)


class Unprinted(Symbol):
    """A symbol of an expression that is run ufunc by ufunc, not printed: any ufunc will do."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Symbol:
        if method != "__call__" or kwargs:
            raise TypeError(f"a forward expression cannot use {ufunc.__name__}.{method} or keywords")
        return type(self)(ufunc.__name__, *inputs)


def parameters_of(rule: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a rule's parameters: a tenth of what inspect.signature costs at import."""
    code = rule.__code__
    return code.co_varnames[: code.co_argcount]


def trace(rule: Callable[..., Any], **static: Any) -> Symbol:
    """Run a rule on symbols named after its parameters; the ``static`` ones know their values."""
    return traced(rule, Symbol, {name: Static(name, value) for name, value in static.items()})


def bits_of(static: tuple[tuple[str, float], ...]) -> tuple[tuple[str, int], ...]:
    """Return static numbers by their bits, which distinguish -0.0 from 0.0."""
    return tuple([(name, struct.unpack("q", struct.pack("d", value))[0]) for name, value in static])


@functools.lru_cache(1 << 9)
def trace_known(rule: Callable[..., Any], static: tuple[tuple[str, int], ...]) -> Symbol:
    """Return the trace of a rule with static numbers, given by their bits: the one object, which nobody changes."""
    return trace(rule, **{name: struct.unpack("d", struct.pack("q", bits))[0] for name, bits in static})


def traced(rule: Callable[..., Any], kind: type[Symbol], static: dict[str, Any]) -> Symbol:
    """Run a rule on symbols of this kind."""
    names = parameters_of(rule)
    result = rule(**{n: static[n] if n in static else kind(n) for n in names})
    return result if isinstance(result, Symbol) else kind("positive", result)


def known(expression: Any) -> float | None:
    """Return the number that an expression of static numbers alone is; None of others."""
    if not isinstance(expression, Symbol):
        return float(expression)
    if isinstance(expression, Static):
        return expression.value
    parts = [known(part) for part in expression.parts]
    if not parts or None in parts:
        return None
    return float(getattr(np, expression.head)(*parts))


def source(expression: Any, dtype: np.dtype[Any], functions: Functions = Functions.LIBM, raised: str = "") -> str:
    """Print an expression as scalar Python of one dtype; ``raised`` computes powers whose exponent is static."""
    literal = literal_of(dtype)
    if not isinstance(expression, Symbol):
        return literal(expression)
    head, parts = expression.head, expression.parts
    if not parts:
        return head
    if head == "power" and not isinstance(parts[1], Symbol) and (parts[1] == 0 or parts[1] in SMALL):
        return source(SMALL[parts[1]](parts[0]) if parts[1] else 1.0, dtype, functions)
    texts = [source(part, dtype, functions, raised) for part in parts]
    return _operation(expression, texts, dtype, functions, raised)


def _operation(expression: Symbol, texts: list[str], dtype: np.dtype[Any], functions: Functions, raised: str) -> str:
    head, parts = expression.head, expression.parts
    if raised and head == "power" and isinstance(parts[1], Symbol) and known(parts[1]) is not None:
        return f"vectormath.{raised}({', '.join(texts)})"
    if head in VECTOR and functions is not Functions.LIBM:
        ours = f"vectormath.{VECTOR[head]}({', '.join(texts)})"
        guarded = functions is Functions.GUARDED and head in _ANGLES
        return f"({_CALLS[head]}({texts[0]}) if vectormath.beyond({texts[0]}) else {ours})" if guarded else ours
    if head.startswith(SPECIAL) and head not in _CALLS:
        name = head.removeprefix(SPECIAL)
        return f"apply{len(parts)}_f{dtype.itemsize}({name}_loop, {name}_data, {', '.join(texts)})"
    if head in _INFIX:
        return f"({texts[0]} {_INFIX[head]} {texts[1]})"
    if head in _CALLS:
        return f"{_CALLS[head]}({', '.join(texts)})"
    literal = literal_of(dtype)
    return _FORMS[head].format(*texts, zero=literal(0.0), minus=literal(-0.0), one=literal(1.0), less=literal(-1.0))


def literal_of(dtype: np.dtype[Any]) -> Callable[[float], str]:
    """Return the printer of numbers for a dtype: a bare ``1.0`` would widen float32 to float64."""

    def literal(value: float) -> str:
        text = repr(float(value)) if math.isfinite(value) else f"float('{value}')"
        if math.copysign(1.0, value) < 0:
            text = f"({text})"
        return text if dtype == np.float64 else f"np.{dtype.name}({text})"

    return literal


def cut(where: Any, value: Any) -> Any:
    """Contribute ``value``, and nothing at all where the condition holds: not 0, which times inf is nan.

    Only as the outermost call of a pullback. On arrays a cut element is -0.0, the identity of addition.
    """
    if isinstance(where, Symbol) or isinstance(value, Symbol):
        return Symbol.cut(where, value)
    return np.where(where, -0.0, value + 0.0)


# Small powers are products and roots, in the order of vectormath.py, so that values and kernels agree in every bit. A
# product or root is off by at most 3 units in the last place, an inverse by 4 (NumPy's ``power`` by 1, in 20 times the
# time); inverses below the smallest normal number are 0, and half powers of -inf are nan, as those of NumPy's ``sqrt``.

MOST = 4


def is_small(p: float) -> bool:
    """Whether a power is made of products and a root."""
    return abs(p) <= MOST and float(2 * p).is_integer()


RAISED = ("whole", "rooted", "power")
"""What raises to a power in kernels: the names of functions of kernels/language/vectormath.py."""


def raised(p: float) -> int:
    """Return which of RAISED is for an exponent."""
    return 0 if is_small(p) and p >= 0 and float(p).is_integer() else 1 if is_small(p) else 2


def by_products(p: float) -> Callable[[Any], Any]:
    """Return the function that raises to a small power but 0; arrays and symbols can run it."""
    known = {2.0: np.square, 0.5: np.sqrt, -1.0: np.reciprocal, 1.0: np.positive}  # what NumPy's ** takes
    if p in known:
        return known[p]
    n, half = divmod(abs(p), 1.0)

    def product(x: Any) -> Any:
        y = _whole(x, n)
        return y if not half else np.sqrt(x) if y is None else np.multiply(np.sqrt(x), y)

    def inverse(x: Any) -> Any:
        with np.errstate(over="ignore"):  # an inverse that is 0 overflows nowhere
            y = product(x)
        return np.reciprocal(y)

    return product if p > 0 else inverse


def _whole(x: Any, n: float) -> Any:
    """Return a product of so many equal factors; None of none."""
    if n <= 1:
        return x if n else None
    square = np.square(x)
    return square if n == 2 else np.multiply(x, square) if n == 3 else np.square(square)  # noqa: PLR2004 (of MOST)


class Exponent(float):
    """A static exponent as rules take it where they run on arrays: small powers are those of kernels."""

    __array_ufunc__ = None  # so that arrays leave x ** p to us

    def __sub__(self, other: float) -> Exponent:
        return Exponent(float(self) - other)

    def __mul__(self, x: Any) -> Any:
        return float(self) * x

    def __rpow__(self, x: Any, _: Any = None) -> Any:
        small = SMALL.get(float(self))
        return small(x) if small else np.power(x, float(self))


SMALL = {k / 2: by_products(k / 2) for k in range(-2 * MOST, 2 * MOST + 1) if k}
"""The small powers by their exponent."""


Rule = Callable[..., Any]


def passed(g: Any) -> Any:
    """The rule of what hands its cotangent on."""
    return g


class DeclarationError(TypeError):
    """A record contradicts itself; the message names the record and the remedy."""


def names_read(name: str, pullback: tuple[Rule | None, ...], vocabulary: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """Trace each rule on symbols and return the names it uses."""
    reads = []
    for rule in pullback:
        if rule is None:
            reads.append(frozenset[str]())
            continue
        names = parameters_of(rule)
        unknown = set(names) - set(vocabulary)
        if unknown:
            msg = f"{name}: a pullback asks for {sorted(unknown)}; the vocabulary is {', '.join(vocabulary)}"
            raise DeclarationError(msg)
        try:
            static = {"p": 2.5} if "p" in names else {}  # no special case of any rule
            reads.append(trace(rule, **static).names)
        except TypeError as error:
            raise DeclarationError(f"{name}: {error}") from error
    return tuple(reads)


@functools.cache
def asked(rule: Rule) -> frozenset[str]:
    """Return the names of a rule's parameters."""
    return frozenset(parameters_of(rule))


# The record of an operation: one declaration, many readers. Its class is its kind, one file of kernels/kinds each.
#
# A rule is an expression in a fixed vocabulary: ``g`` (the cotangent of the result), ``y`` (the result), the inputs
# (``x``, or ``a, b``, or ``c, a, b``), and for reductions ``n`` (how many elements met in one result). It uses
# operators, NumPy ufuncs, ``np.where`` and :func:`kernels.rules.op.cut`, so that arrays can run it, symbols can
# print it and tensors can record it. What a rule reads decides what the tape keeps alive.

OPS: dict[str, Op] = {}
Flags = tuple[bool, ...]  # whether each input's gradient is wanted
Params = tuple[Any, ...]
Shapes = list[tuple[int, ...]]
_FIRST_LETTERS = re.compile(r"(?:^|_|(?<=\d))([a-z])")  # those that PyTorch's names of nodes have as capitals


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """What every record says about its operation, and what every interpreter may ask its kind.

    ``name`` is NumPy's name (PyTorch's where NumPy has none), ``torch`` PyTorch's other names, ``grad_fn`` the
    name of the backward node, in which {} stands for PyTorch's name, ``function`` whether there is a public function
    of that name, beside the others. ``within`` says how many operations on what it is given, one behind the other,
    belong to what PyTorch has as one.
    """

    name: str
    doc: str
    pullback: tuple[Rule | None, ...]
    torch: tuple[str, ...] = ()
    grad_fn: str = "{}Backward0"
    function: bool = True
    within: int = 0

    inputs: ClassVar[tuple[str, ...]] = ()  # what rules call the operands
    extras: ClassVar[tuple[str, ...]] = ()  # what rules call the results that have no gradient
    tape_kind: ClassVar[int] = PULLS
    """How a sweep treats its instructions: PULLS to PYTHON of kernels/native/structs.py."""
    counts_ties: ClassVar[bool] = False  # whether ``n`` is an array of counts, and not one number
    nothing: ClassVar[float] = -0.0
    """What is added to a contribution that Python computed; 0.0 makes its -0.0, nothing, a gradient of zero."""
    contribution: ClassVar[str] = "{}"  # how the table of operations says where the gradient of a rule goes
    repeatable: ClassVar[bool] = False  # whether the tasks of a step depend on specs and parameters alone
    is_called: ClassVar[bool] = False  # whether compiled programs call its kernels where it is no statement of theirs
    shaped_by_params: ClassVar[bool] = False  # whether a form's parameters, as a step's, tell the shape of the result

    def __post_init__(self) -> None:
        if self.name in OPS:
            msg = f"{self.name}: declared twice; rename or remove one of the records"
            raise DeclarationError(msg)
        if "{}" in self.grad_fn:
            name, *_ = *self.torch, self.name
            node = self.grad_fn.format(_FIRST_LETTERS.sub(lambda letter: letter[1].upper(), name))
            object.__setattr__(self, "grad_fn", node if self.differentiable else "")
        self.check()
        OPS[self.name] = self

    def check(self) -> None:
        """Raise DeclarationError, naming the record, where the declaration contradicts itself."""

    @property
    def differentiable(self) -> bool:
        """Whether an input has a pullback."""
        return any(rule is not None for rule in self.pullback)

    def form(self, specs: Any, spec: Any, wanted: Flags, params: Params = (), name: str = "") -> Any:
        """Return the instruction form for these specs (None: a number, or not wanted), perhaps with another name."""
        raise NotImplementedError(f"{self.name}: {type(self).__name__} makes no form from {specs}, {spec}, {params}")

    def reformed(self, form: Any, specs: Any, spec: Any) -> Any:
        """Return the form of the same instruction with other specs: of saved values that were copied."""
        return self.form(specs, spec, form.wanted, form.params, form.name)

    def fits(self, shapes: Shapes, params: Params, spec: Any, specs: list[Any]) -> bool:
        """Whether a step that a file says of it can be: a result of that spec, from operands of these shapes and specs.

        A Python number has the shape () and None for a spec. Native code trusts steps that passed.
        """
        raise ValueError(f"{self.name} is of a kind that is not checked: {params}, {shapes}, {specs} to {spec}")

    def lower(self, step: Any, lowering: Any) -> None:
        """Add the tasks of a step of a program: see :class:`kernels.kinds.form.Lowering`."""
        raise NotImplementedError(f"{self.name}: {type(self).__name__} has no tasks for {step} ({lowering})")

    def computation(self, sources: tuple[Any, ...], form: Any, params: Params) -> Any:
        """Return how native code repeats a call on operands of these specs (None: a number); None: Python repeats it.

        ``form`` describes the result, ``params`` are what recorders are notified of.
        """

    def recomputed(self, form: Any, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result from those of its operands; None where that is not known."""
        del form, saved, values


# Rules call SciPy's solvers through functions that are ``dispatched``: on arrays they run as written, on tensors what
# is registered for them runs, and is recorded.

DISPATCHED: list[Any] = []
Function = TypeVar("Function", bound=Callable[..., Any])


def dispatched(function: Function) -> Function:
    """Let operands that are no arrays, but know ``__array_function__``, run a function instead.

    Where it is the forward of a record, that is the record's.
    """

    @functools.wraps(function)
    def run(*operands: Any, **params: Any) -> Any:
        for x in operands:
            if not isinstance(x, np.ndarray) and hasattr(x, "__array_function__"):
                return x.__array_function__(run, (type(x),), operands, params)
        return function(*operands, **params)

    DISPATCHED.append(run)
    return run  # type: ignore[return-value]


def turned(x: Any) -> Any:
    """Return matrices with their last two axes exchanged."""
    n = x.ndim
    return np.transpose(x, (*range(n - 2), n - 1, n - 2))


# SciPy's ufuncs, imported when called, stand beside NumPy's in rules. Replays and printed pullbacks call their inner
# loops by address.


class LateUfunc:
    """A ufunc of ``scipy.special`` by name: importing SciPy takes longer than importing this library."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @cached_property
    def ufunc(self) -> np.ufunc:
        """The ufunc itself."""
        import scipy.special

        ufunc: np.ufunc = getattr(scipy.special, self.__name__)
        return ufunc

    def __call__(self, *operands: Any) -> Any:
        """Call it; of symbols it is an expression."""
        for x in operands:
            if isinstance(x, Symbol):
                return type(x)(SPECIAL + self.__name__, *operands)
        return self.ufunc(*operands)

    def __repr__(self) -> str:
        return f"<ufunc 'scipy.special.{self.__name__}'>"


class _Special:
    def __getattr__(self, name: str) -> LateUfunc:
        if name.startswith("_"):
            raise AttributeError(name)
        ufunc = self.__dict__[name] = LateUfunc(name)
        return ufunc


special = _Special()


def resolved(function: Any) -> Any:
    """Return a forward function as NumPy or SciPy has it: the ufunc behind a late one."""
    return function.ufunc if isinstance(function, LateUfunc) else function


def ufunc_of(head: str) -> np.ufunc:
    """Return the ufunc that the head of an expression names."""
    owner, name = (special, head.removeprefix(SPECIAL)) if head.startswith(SPECIAL) else (np, head)
    ufunc: np.ufunc = resolved(getattr(owner, name))
    return ufunc


# What the rules of sorts and selections are made of. Tensors run both their own way, so that gradients of gradients are
# recorded.


@dispatched
def picked(x: Any, places: Array, dim: int) -> Any:
    """Return the elements of x at places along a dim; both have the same rank."""
    return np.take_along_axis(x, places, dim)


@dispatched
def placed(g: Any, places: Array, dim: int, length: int) -> Any:
    """Return ``length`` elements along a dim: g, added, at its places, and nothing (-0.0) elsewhere."""
    target = _nothing(g, dim, length)
    np.add.at(target, keys(places, dim), g)
    return target


@dispatched
def put(g: Any, places: Array, dim: int, length: int) -> Any:
    """Return the same as :func:`placed` where no place comes twice, which is faster."""
    target = _nothing(g, dim, length)
    np.put_along_axis(target, places, g, dim)
    return target


def _nothing(g: Array, dim: int, length: int) -> Array:
    return np.full((*g.shape[:dim], length, *g.shape[dim + 1 :]), -0.0, g.dtype)


def keys(places: Array, dim: int) -> tuple[Array, ...]:
    """Return the index by arrays that picks places along a dim."""
    grid = np.ogrid[tuple(slice(n) for n in places.shape)]
    return (*grid[:dim], places, *grid[dim + 1 :])


def narrow(y: Any, dims: tuple[int, ...], *, keepdim: bool) -> Any:
    """Return what a reduction over dims gave, with a dim of length one for each of them, without these unless kept."""
    return y if keepdim else y[tuple(0 if i in dims else slice(None) for i in range(len(y.shape)))]


def wide(y: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Return what a reduction of x over dims gave, with a dim of length one for each of them."""
    return np.reshape(y, tuple(1 if i in dims else n for i, n in enumerate(x.shape)))
