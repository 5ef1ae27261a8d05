"""Elementwise functions and operators: NumPy's arguments, and what several records make up."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from kernels.kinds.elementwise import Elementwise
from kernels.native.structs import MOST_OPERANDS
from kernels.operations import OPS
from kernels.rules.op import special
from tape import errors
from tape.operations import writes
from tape.recording import creation, foreign_calls, promotion, views
from tape.recording.cached_calls import cached_call, number_of_op, operator_number
from tape.recording.parameters import as_method, function_of, method_of, names_of, printed_like, with_name
from tape.recording.promotion import of_one_dtype, run_with_promotion
from tape.tensors import grad_modes, modes, pytrees
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import Function, implements, public
from tape.tensors.operands import Number, is_foreign, operand, tensor_of
from tape.tensors.tensor import Tensor, as_array, method

_SPECIAL = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "&": "and", "|": "or",
    "^": "xor", "<<": "lshift", ">>": "rshift", "//": "floordiv", "%": "mod",
}  # fmt: skip
_UNARY = {"-": "__neg__", "+": "__pos__", "abs": "__abs__", "~": "__invert__"}

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # every elementwise function under each of its names
RUN: dict[str, Callable[..., Any]] = {}
"""The function of each elementwise record by the record's name, of those without a public name too."""
_KNOWN_TYPES = frozenset((Tensor, float, int))
_EQUALITY = ("==", "!=")


def _install(op: Elementwise) -> None:
    def always(*operands: Any) -> Any:
        alike = of_one_dtype(op, operands)
        return run_with_promotion(op, *operands) if alike is None else RUN[op.name](*alike)

    function = function_of(op, operand if op.identity else always)
    RUN[op.name] = run = function if op.identity else _cached(op, function)
    FUNCTIONS.update(dict.fromkeys(names_of(op), run))
    if names_of(op) and (len(op.inputs) <= 2 or op.condition):  # noqa: PLR2004
        member = _masked(run) if op.condition else method_of(op, operand if op.identity else always)
        member = member if op.condition or op.identity else _cached(op, member)
        for name in names_of(op):
            setattr(Tensor, name, member)
    if op.operator:
        _operators(op)


def _cached(op: Elementwise, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an operation, whose operands may be numbers, as one that native code repeats."""
    if len(op.inputs) > MOST_OPERANDS:
        return function
    return cached_call(marks=0, number=number_of_op(op))(function)


def _masked(fast: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``where`` as a method, whose first parameter is the tensor: ``x.where(mask, other)``."""

    def where(self: Tensor, condition: Any, other: Any) -> Any:
        return fast(condition, self, other)

    where.__doc__ = fast.__doc__
    return where


def _operators(op: Elementwise) -> None:
    """Install Python's operators on Tensor; for operands that tensors do not take they return NotImplemented."""

    def operator(*operands: Any) -> Any:
        return by_operator(op, *operands)

    if operator_number(op) is not None:
        cached_call(marks=0, number=number_of_op(op), slot=True)(operator)
    elif len(op.inputs) == 1:
        setattr(Tensor, _UNARY[op.operator], _positive if op.identity else RUN[op.name])
    else:
        special = _SPECIAL[op.operator]
        operator.__name__ = operator.__qualname__ = op.name
        parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in op.inputs]
        operator.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        setattr(Tensor, f"__{special}__", _cached(op, operator))
        if hasattr(int, f"__r{special}__"):  # Python turns comparisons by itself
            setattr(Tensor, f"__r{special}__", lambda b, a: by_operator(op, a, b))


def _positive(x: Tensor) -> Tensor:
    """Return the tensor itself, as PyTorch does; in functions that were given NumPy arrays a copy, as NumPy does."""
    return views.clone(x) if modes.given_arrays() else x


def by_operator(op: Elementwise, *operands: Any) -> Any:
    """Run an operation as Python's operator: NotImplemented for foreign operands, whose own operator is next."""
    try:
        alike = of_one_dtype(op, operands)
        if alike is not None:
            return RUN[op.name](*alike)
        known = _KNOWN_TYPES.issuperset(map(type, operands))
        return NotImplemented if not known and any(map(is_foreign, operands)) else run_with_promotion(op, *operands)
    except TypeError:
        if op.operator not in _EQUALITY or all(isinstance(x, Tensor) for x in operands):
            raise
        return NotImplemented  # whatever it is, it is not equal


_RECORDS = [op for op in OPS.values() if isinstance(op, Elementwise)]
_WITH_NUMBER = {op.scalar for op in _RECORDS}  # these take no tensor as second operand
for _op in _RECORDS:
    if _op.name not in _WITH_NUMBER:
        _install(_op)


# What NumPy's reductions and scans share: arguments bound as NumPy binds them, ``axis``, ``where`` and ``out``.
#
# A reduction over no axes, ``axis=()``, takes each element for itself: it runs over a dim of length one put in front.

_where: Any = FUNCTIONS["where"]


def cast(x: Tensor, dtype: Any) -> Tensor:
    """Return x in a dtype, or x itself for None."""
    return x if dtype is None or dtype_of(dtype) == x.spec.dtype else promotion.cast(x, dtype_of(dtype))


def cast_by_rule(x: Tensor, dtype: Any, casting: Any) -> Tensor:
    """Return x in a dtype, or x itself for None; TypeError where NumPy's rule does not allow that."""
    if dtype is not None and not np.can_cast(x.spec.dtype, dtype_of(dtype), casting):
        have, wanted = x.spec.dtype, dtype_of(dtype)
        raise TypeError(f"Cannot cast array data from {have!r} to {wanted!r} according to the rule {casting!r}")
    return cast(x, dtype)


def floating(x: Any) -> Tensor:
    """Return a tensor, or an array as one, of floats: others as float64."""
    x = array_like(x)
    return x if x.spec.dtype.kind == "f" else cast(x, np.float64)


def array_like(x: Any) -> Tensor:
    """Return an array-like, nested lists too, as a tensor; a list with tensors in it is joined, and recorded."""
    if not isinstance(x, (list, tuple)):
        return tensor_of(x)
    return creation.tensor(x) if any(isinstance(e, Tensor) for e in pytrees.leaves(x)) else tensor_of(np.asarray(x))


def not_nan(x: Tensor) -> Tensor:
    """Return which elements are numbers."""
    return x == x  # noqa: PLR0124


def chosen(a: Any, where: Any, instead: Any) -> Tensor:
    """Return ``a`` where the mask ``where=`` of a NumPy reduction holds, elsewhere its neutral element ``instead``."""
    a = tensor_of(a)
    return a if where is True or where is None else _where(tensor_of(where), a, np.asarray(instead, a.spec.dtype))  # type: ignore[no-any-return]


def also(where: Any, there: Tensor) -> Tensor:
    """Return the mask where both hold; ``where`` may be True."""
    return there if where is True else there & tensor_of(where)


def numpy_name(function: Any) -> str:
    """Return how a function of NumPy's is called, ``np.linalg.det``; a ufunc may tell no module."""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.replace('numpy', 'np', 1)}.{function.__name__}"


@functools.cache
def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters; none where they are not known."""
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return ()


def bound(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a NumPy function, the array left out, by name."""
    names = parameters(function)[1:]
    if len(args) > len(names):
        raise TypeError(f"np.{function.__name__} takes {len(names) + 1} arguments, got {len(args) + 1}")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: value for name, value in arguments.items() if value is not np._NoValue}


def written(name: str, out: Any, result: Any) -> Any:
    """Write a result into what was given as ``out=``, recorded as any write; an array has no room for a gradient."""
    if isinstance(out, tuple):
        (out,) = out
    if out is None:
        return result
    if not isinstance(out, Tensor) and result._slot is not None:
        raise foreign_calls.refusal_of_out(
            f"np.{name}: out= is a NumPy array, and the result requires grad: {errors.NUMPY_ARRAY}, or detach() the "
            "operands",
            result,
        )
    have, wanted = result.spec, out.spec if isinstance(out, Tensor) else out
    if have.shape != wanted.shape:
        raise ValueError(f"np.{name}: out= has shape {wanted.shape}, but the result {have.shape}")
    if not np.can_cast(have.dtype, wanted.dtype, "same_kind"):
        raise TypeError(
            f"np.{name}: Cannot cast output from {have.dtype!r} to {wanted.dtype!r} with casting rule 'same_kind'"
        )
    if isinstance(out, Tensor):
        return out.copy_(result)
    out[...] = as_array(result)
    return out


def _over(x: Tensor, arguments: dict[str, Any]) -> Tensor:
    axis, rank = arguments.get("axis"), len(x.spec.shape)
    if axis is None:
        return x
    axes = normalize_axis_tuple(axis, rank if isinstance(axis, (tuple, list)) else max(rank, 1), "axis")
    if axes:
        arguments["axis"] = None if not rank else axes[0] if len(axes) == 1 else axes
        return x
    arguments["axis"] = 0
    arguments.pop("keepdims", None)
    if arguments.get("where", True) is not True:
        arguments["where"] = views.unsqueeze(views.expand(tensor_of(arguments["where"]), x.spec.shape), 0)
    for name in ("mean", "weights"):
        if arguments.get(name) is not None:
            arguments[name] = views.unsqueeze(array_like(arguments[name]), 0)
    return views.unsqueeze(x, 0)


def reduces(*functions: Any, records: str = "", one_axis: bool = False) -> Callable[[Function], Function]:
    """Let a function of a tensor and NumPy's names, without ``out``, serve a reduction of NumPy's.

    ``axis`` is an int, a tuple of several, or None; ``where`` is True or what fits the tensor. 0-d tensors take the
    axes 0 and -1, as those of NumPy's reductions do that are ufuncs. ``one_axis`` is of those that take no tuple;
    ``records`` is as in :func:`implements`.
    """

    def register(reduce: Function) -> Function:
        function = functions[0]

        def reduction(a: Any, *args: Any, **kwargs: Any) -> Any:
            x = a if type(a) is Tensor else array_like(a)
            if not args and (not kwargs or _plain_axis(x, kwargs)):
                return reduce(x, **kwargs)
            arguments = bound(function, args, kwargs)
            out = arguments.pop("out", None)
            if one_axis and arguments.get("axis") is not None:
                arguments["axis"] = operator.index(arguments["axis"])
            if arguments.get("where", True) is not True:
                mask = arguments["where"] = array_like(arguments["where"])
                if (kind := mask.spec.dtype) != np.bool_:
                    raise TypeError(f"np.{function.__name__}: where= holds booleans, not {kind}; write where != 0")
            return written(function.__name__, out, reduce(_over(x, arguments), **arguments))

        reduction.__name__ = reduction.__qualname__ = function.__name__
        implements(*functions, records=records)(reduction)
        return reduce

    return register


def _plain_axis(x: Tensor, arguments: dict[str, Any]) -> bool:
    axis = arguments.get("axis")
    rank = len(x._form.spec.shape)
    return len(arguments) == 1 and type(axis) is int and -rank <= axis < rank


def into_array(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let NumPy write tensors' values into an array; TypeError if one requires grad, for which that has no room."""
    leaves = pytrees.leaves((args, kwargs))
    if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in leaves):
        raise TypeError(
            f"{name}: the first operand is a NumPy array, which has no room for a gradient: {errors.NUMPY_ARRAY}, or "
            "detach() the values"
        )
    plain = [np.asarray(x) if isinstance(x, Tensor) else x for x in args]
    return function(*plain, **{k: np.asarray(x) if isinstance(x, Tensor) else x for k, x in kwargs.items()})


def _constant(name: str, argument: str, value: Any) -> float:
    if not isinstance(value, (*Number, np.number)):
        raise TypeError(f"{name}(): argument '{argument}' must be a Python number, not {type(value).__name__}")
    return value if isinstance(value, Number) else value.item()


def _integral(x: Tensor) -> bool:
    return x.spec.dtype.kind != "f"


@public("divide", methods=False)
def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """Return the quotient; with ``rounding_mode`` "trunc" rounded towards zero, "floor" down, which has no slope.

    Shapes broadcast, dtypes promote as in PyTorch; rounded, integers stay integers. RuntimeError for another mode, and
    for integers divided by zero where they stay integers.

    >>> div(np.array([7, -7]), 2).tolist(), div(np.array([7, -7]), 2, rounding_mode="trunc").tolist()
    ([3.5, -3.5], [3, -3])
    """
    if rounding_mode is None:
        plain = type(input) is Tensor and out is None
        return input / other if plain else FUNCTIONS["true_divide"](input, other, out=out)  # type: ignore[no-any-return]
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    down = FUNCTIONS["floor_divide"]
    if rounding_mode == "floor":
        return down(input, other, out=out)  # type: ignore[no-any-return]
    if _counts(input) and _counts(other):
        return down(input - FUNCTIONS["fmod"](input, other), other, out=out)  # type: ignore[no-any-return]
    return RUN["divide_trunc"](input, other, out=out)  # type: ignore[no-any-return]


@with_name("div", div.__doc__)
def _divided(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    return input / other if rounding_mode is None else div(input, other, rounding_mode=rounding_mode)


method("div")(method("divide")(as_method(_divided)))


def _counts(x: Any) -> bool:
    return isinstance(x, int) if isinstance(x, Number) else _integral(tensor_of(x))


@public("clip")
def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002 (PyTorch's names)
    """Return x, but not less than ``min`` nor more than ``max``: numbers or tensors, broadcast; one may be None.

    At a bound x has the gradient; where ``min`` is larger than ``max`` the result is ``max``. RuntimeError without
    bounds.

    >>> clamp(np.array([-2.0, 0.5, 3.0]), 0.0, 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    if max is None:
        return RUN["clamp_below"](input, min)  # type: ignore[no-any-return]
    if min is None:
        return RUN["clamp_above"](input, max)  # type: ignore[no-any-return]
    return RUN["clamp"](input, min, max)  # type: ignore[no-any-return]


@public()
def round(input: Any, *, decimals: int = 0) -> Tensor:  # noqa: A001 (PyTorch's name)
    """Return x rounded to ``decimals`` places, half to even; the gradient is 0. Integers stay as they are.

    >>> round(np.array([0.5, 1.5, 2.345])).tolist()
    [0.0, 2.0, 2.0]
    """
    input, places = tensor_of(input), operator.index(decimals)
    if _integral(input):
        if places < 0:
            raise NotImplementedError("round(): integers to tens or hundreds are not supported; convert with double()")
        return views.clone(input)
    if not places:
        return FUNCTIONS["rint"](input)  # type: ignore[no-any-return]
    power = 10.0 ** abs(places)
    return RUN["round_decimals"](input, *((power, 1.0) if places > 0 else (1.0, power)))  # type: ignore[no-any-return]


@public(methods=False)
def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return ``log(1 + exp(beta input)) / beta``, and x itself where ``beta input`` is above ``threshold``.

    >>> softplus(0.0).item() == math.log(2)
    True
    """
    numbers = _constant("softplus", "beta", beta), _constant("softplus", "threshold", threshold)
    return RUN["softplus"](input, *numbers)  # type: ignore[no-any-return]


@public()
def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """Return the point between x and ``end``: x for weight 0, ``end`` for weight 1, a number or a tensor.

    >>> lerp(np.array([1.0, 2.0]), np.array([3.0, 4.0]), 0.25).tolist()
    [1.5, 2.5]
    """
    if isinstance(weight, Number):
        return RUN["lerp_near" if abs(weight) < 0.5 else "lerp_far"](input, end, weight)  # type: ignore[no-any-return]  # noqa: PLR2004
    return RUN["lerp"](input, end, weight)  # type: ignore[no-any-return]


@public()
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """Return ``input + value * tensor1 * tensor2``.

    >>> addcmul(np.ones(2), np.array([1.0, 2.0]), 3.0, value=0.5).tolist()
    [2.5, 4.0]
    """
    return RUN["addcmul"](input, tensor1 if value == 1 else value * tensor_of(tensor1), tensor2)  # type: ignore[no-any-return]


@public()
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """Return ``input + value * tensor1 / tensor2``; integers divide as / does.

    >>> addcdiv(np.ones(2), np.array([1.0, 2.0]), 4.0).tolist()
    [1.25, 1.5]
    """
    return RUN["addcdiv"](input, tensor1 if value == 1 else value * tensor_of(tensor1), tensor2)  # type: ignore[no-any-return]


@public()
def float_power(input: Any, exponent: Any) -> Tensor:
    """Return x raised to the exponent in float64, whatever the dtypes.

    >>> float_power(np.array([2, 3]), -1).tolist()
    [0.5, 0.3333333333333333]
    """
    base, power = (y if isinstance(y, Number) else cast(tensor_of(y), np.float64) for y in (input, exponent))
    base = cast(tensor_of(base), np.float64) if isinstance(power, Number) else base
    return FUNCTIONS["pow"](base, power)  # type: ignore[no-any-return]


@public()
def ldexp(input: Any, other: Any) -> Tensor:
    """Return x times two to the power of ``other``; it does not overflow where the result does not.

    >>> ldexp(np.array([0.5, 3.0]), np.array([1024, 2])).tolist()
    [8.98846567431158e+307, 12.0]
    """
    if isinstance(other, Number):
        input = floating(input)
    else:
        input, other = tensor_of(input), tensor_of(other)
        as_other = _integral(input) and not _integral(other)
        input = promotion.cast(input, other.spec.dtype) if as_other else floating(input)
        other = promotion.cast(other, input.spec.dtype) if _integral(other) else other
    return RUN["ldexp"](input, other)  # type: ignore[no-any-return]


@public()
def nan_to_num(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    """Return x with numbers for nan (0), inf and -inf (the largest and smallest of the dtype).

    What is replaced has no gradient; integers have none of these.

    >>> nan_to_num(np.array([1.0, np.nan, np.inf]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    input = tensor_of(input)
    if _integral(input):
        return views.clone(input)
    most = float(np.finfo(input.spec.dtype).max)
    defaults = {"nan": (nan, 0.0), "posinf": (posinf, most), "neginf": (neginf, -most)}
    numbers = [
        float(_constant("nan_to_num", what, default if value is None else value))
        for what, (value, default) in defaults.items()
    ]
    return RUN["nan_to_num"](input, *numbers)  # type: ignore[no-any-return]


@public()
def logit(input: Any, eps: float | None = None) -> Tensor:
    """Return ``log(input / (1 - input))``; with ``eps``, of x clamped to between eps and 1 - eps.

    >>> logit(np.array([0.5, 2.0]), eps=0.5).tolist()
    [0.0, 0.0]
    """
    if eps is not None:
        bound = _constant("logit", "eps", eps)
        input = clamp(input, bound, 1 - bound)
    return RUN["logit"](input)  # type: ignore[no-any-return]


@public(methods=False)
def polygamma(n: int, input: Any) -> Tensor:
    """Return the n-th derivative of the digamma function; n is an int, RuntimeError below 0.

    >>> f"{polygamma(1, 1.0).item():.6f}"
    '1.644934'
    """
    order = operator.index(n)
    if order < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if not order:
        return FUNCTIONS["digamma"](input)  # type: ignore[no-any-return]
    factor = (-1.0) ** (order + 1) * float(special.gamma(order + 1.0))
    return RUN["polygamma"](factor, order + 1.0, input)  # type: ignore[no-any-return]


@method("polygamma")
@as_method
@with_name("polygamma", polygamma.__doc__)
def _polygamma(x: Tensor, n: int) -> Tensor:
    return polygamma(n, x)


@public()
def mvlgamma(input: Any, p: int) -> Tensor:
    """Return the logarithm of the multivariate gamma function of dimension p; x is above (p - 1) / 2.

    RuntimeError for p below 1.

    >>> mvlgamma(np.array([1.0, 2.0]), 1).tolist()
    [0.0, 0.0]
    """
    p = operator.index(p)
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    terms = [FUNCTIONS["lgamma"](input - k / 2 if k else input) for k in range(p)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return p * (p - 1) * 0.25 * math.log(math.pi) + total  # type: ignore[no-any-return]


@public()
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return True where ``|input - other| <= atol + rtol |other|``, or both are equal; with ``equal_nan``, both nan.

    >>> isclose(np.array([1.0, np.inf]), np.array([1.0 + 1e-9, np.inf])).tolist()
    [True, True]
    """
    with grad_modes.no_grad(), np.errstate(invalid="ignore"):
        a, b = tensor_of(input), tensor_of(other)
        near = abs(floating(a) - floating(b)) <= atol + rtol * abs(b)
        close: Tensor = (a == b) | (near & FUNCTIONS["isfinite"](b))
        return close | (FUNCTIONS["isnan"](a) & FUNCTIONS["isnan"](b)) if equal_nan else close


@public()
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether :func:`isclose` holds everywhere.

    >>> allclose(np.ones(2), np.ones(2) + 1e-9)
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def install_in_place(function: Callable[..., Tensor], name: str) -> None:
    """Give Tensor the in-place variant of a function, which writes to it."""
    body = f"check({{first}}, {name!r}, reads=True); return store({{first}}, function({{all}}), {name!r}, fresh=True)"
    in_place = printed_like(name, function, body, check=writes.check, store=writes.store)
    line = (function.__doc__ or "").partition("\n")[0]  # `python -OO` has none
    in_place.__doc__ = f"{line.removesuffix('.')}, in place."
    method(name)(as_method(in_place))


for _function in (
    div, clamp, round, lerp, addcmul, addcdiv, float_power, ldexp, nan_to_num, logit, mvlgamma
):  # fmt: skip
    install_in_place(_function, f"{_function.__name__}_")
for _written, _name in ((div, "divide_"), (clamp, "clip_"), (_polygamma, "polygamma_")):
    install_in_place(_written, _name)


def filled(x: Tensor, mask: Any, value: Any) -> Tensor:
    """Return a copy with one number, or a 0-d tensor, cast, where a mask, broadcast, holds."""
    dtype = x.spec.dtype
    if isinstance(value, Tensor):
        value = value if value.spec.dtype == dtype else promotion.cast(value, dtype)
    elif dtype.kind != "f":
        value = dtype.type(value).item()
    return FUNCTIONS["where"](mask, value, x)  # type: ignore[no-any-return]
