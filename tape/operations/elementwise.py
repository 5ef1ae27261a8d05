"""Elementwise functions with keywords, or made of several records: PyTorch's names, as functions and methods."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from kernels.records.scipy_ufuncs import special
from tape.operations import writes
from tape.operations.operators import FUNCTIONS, RUN
from tape.operations.parameters import as_method, parameters_like, printed
from tape.recording import promotion, views
from tape.tensors import grad_modes
from tape.tensors.operands import Number, tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor, method

_INPLACE = {"&": "iand", "|": "ior", "^": "ixor", "<<": "ilshift", ">>": "irshift", "//": "ifloordiv", "%": "imod"}


def _constant(name: str, argument: str, value: Any) -> float:
    """Return an argument that has no gradient as a Python number; TypeError for a tensor."""
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


def _divided(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    return input / other if rounding_mode is None else div(input, other, rounding_mode=rounding_mode)


_divided.__name__, _divided.__doc__ = "div", div.__doc__
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
    base, power = (y if isinstance(y, Number) else _double(y) for y in (input, exponent))
    return FUNCTIONS["pow"](_double(base) if isinstance(power, Number) else base, power)  # type: ignore[no-any-return]


def _double(x: Any) -> Tensor:
    x = tensor_of(x)
    return x if x.spec.dtype == np.float64 else promotion.cast(x, np.dtype(np.float64))


@public()
def ldexp(input: Any, other: Any) -> Tensor:
    """Return x times two to the power of ``other``; it does not overflow where the result does not.

    >>> ldexp(np.array([0.5, 3.0]), np.array([1024, 2])).tolist()
    [8.98846567431158e+307, 12.0]
    """
    if isinstance(other, Number):
        input = _floating(input)
    else:
        input, other = tensor_of(input), tensor_of(other)
        floating = _integral(input) and not _integral(other)
        input = promotion.cast(input, other.spec.dtype) if floating else _floating(input)
        other = promotion.cast(other, input.spec.dtype) if _integral(other) else other
    return RUN["ldexp"](input, other)  # type: ignore[no-any-return]


def _floating(x: Any) -> Tensor:
    x = tensor_of(x)
    return _double(x) if _integral(x) else x


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
def _polygamma(x: Tensor, n: int) -> Tensor:
    """Return the n-th derivative of the digamma function; n is an int, RuntimeError below 0."""
    return polygamma(n, x)


_polygamma.__name__ = "polygamma"
as_method(_polygamma)


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
        near = abs(_floating(a) - _floating(b)) <= atol + rtol * abs(b)
        close: Tensor = (a == b) | (near & FUNCTIONS["isfinite"](b))
        return close | (FUNCTIONS["isnan"](a) & FUNCTIONS["isnan"](b)) if equal_nan else close


@public()
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether :func:`isclose` holds everywhere.

    >>> allclose(np.ones(2), np.ones(2) + 1e-9)
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def install_in_place(function: Callable[..., Tensor], name: str, *, augmented: bool = False) -> None:
    """Give Tensor the in-place variant of a function, which writes the result into the tensor.

    ``augmented``: it is that of ``x %= y``.
    """
    parameters = [p for p in parameters_like(function) if p.name != "out"]  # which no method takes
    body = f"check({{first}}, {name!r}, reads=True); return store({{first}}, function({{all}}), {name!r}, fresh=True)"
    if augmented:
        body = f"if is_value({{first}}): return function({{all}})\n    {body}"
    known = {"is_value": writes.is_value, "check": writes.check, "store": writes.store, "function": function}
    in_place = printed(name, parameters, body, **known)
    line = (function.__doc__ or "").partition("\n")[0]  # `python -OO` has none
    in_place.__doc__ = f"{line.removesuffix('.')}, in place."
    method(name)(as_method(in_place))


for _function in (
    div, clamp, round, lerp, addcmul, addcdiv, float_power, ldexp, nan_to_num, logit, mvlgamma
):  # fmt: skip
    install_in_place(_function, f"{_function.__name__}_")
for _written, _name in ((div, "divide_"), (clamp, "clip_"), (_polygamma, "polygamma_")):
    install_in_place(_written, _name)
for _name, _run in RUN.items():
    if (_special := _INPLACE.get(OPS[_name].operator)) is not None:  # type: ignore[attr-defined]
        install_in_place(_run, f"__{_special}__", augmented=True)
