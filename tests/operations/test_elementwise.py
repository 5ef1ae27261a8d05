"""Elementwise functions with keywords, operators on bits, kinks, and what NumPy's functions give for tensors."""

from __future__ import annotations

import doctest
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Elementwise
from kernels.operations import OPS
from tape.operations import elementwise
from tests.support.pytorch_outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

NAN, INF = math.nan, math.inf
X = np.array([-2.5, -1.0, -0.0, 0.5, 1.5, 3.0])
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, 1.7e308, INF, -INF, NAN])


def slope(function: Callable[..., Any], *values: Any, at: int = 0) -> list[float]:
    """Return the gradient of the sum of a function of leaves by one of them."""
    leaves = [tape.tensor(np.asarray(v, float), requires_grad=True) for v in values]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        function(*leaves).sum().backward()
    found: list[float] = leaves[at].grad.tolist()
    return found


def same(found: Any, expected: Any) -> None:
    """Check values and dtypes, in every bit."""
    found = found.detach().numpy() if isinstance(found, tape.Tensor) else np.asarray(found)
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_docstrings_are_right() -> None:
    assert doctest.testmod(elementwise).failed == 0


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64], ids=["f8", "f4", "i8"])
@pytest.mark.parametrize("bounds", [(-1, 1), (-1.5, 1.0), (None, 1), (0, None), (2, 1), (-INF, INF), (NAN, 1.0)])
def test_clamp_is_numpys_clip(bounds: tuple[Any, Any], dtype: type) -> None:
    x = X.astype(dtype)
    expected = np.clip(x, *bounds)
    same(tape.clamp(tape.tensor(x), *bounds), expected)
    same(tape.tensor(x).clip(min=bounds[0], max=bounds[1]), expected)
    same(np.clip(tape.tensor(x), *bounds), expected)
    same(np.clip(tape.tensor(x), min=bounds[0], max=bounds[1]), expected)


def test_clamp_by_tensors() -> None:
    low, high = tape.tensor(-X), tape.tensor([1.0])
    same(tape.clamp(tape.tensor(X), low, high), np.minimum(np.maximum(X, -X), 1.0))
    same(tape.tensor(X).clamp(low, 2.0), np.minimum(np.maximum(X, -X), 2.0))
    assert slope(tape.clamp, [1.0, 2.0, 3.0, 0.0], [1.0, 1.0, 4.0, 0.5], [2.0, 2.0, 2.0, 2.0]) == [1, 1, 0, 0]
    assert slope(tape.clamp, [1.0, 2.0, 3.0, 0.0], [1.0, 1.0, 4.0, 0.5], [2.0] * 4, at=1) == [0, 0, 0, 1]
    assert slope(tape.clamp, [1.0, 2.0, 3.0, 0.0], [1.0, 1.0, 4.0, 0.5], [2.0] * 4, at=2) == [0, 0, 1, 0]


def test_clamp_wants_a_bound() -> None:
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        tape.clamp(tape.tensor(X))
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        tape.clamp(tape.tensor(X), tape.zeros(2), 1.0)
    same(np.clip(tape.tensor(X), None, None), X)


@pytest.mark.parametrize("decimals", [0, 1, 3, -1, -2])
def test_round(decimals: int) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, 12.345, 1234.5678, -55.0, 1e300])
    for dtype in (np.float64, np.float32):
        given = x[:-1].astype(dtype)
        same(tape.round(tape.tensor(given), decimals=decimals), np.round(given, decimals))
        same(np.round(tape.tensor(given), decimals), np.round(given, decimals))
        same(np.around(tape.tensor(given), decimals=decimals), np.round(given, decimals))
    assert slope(lambda t: tape.round(t, decimals=decimals), x) == [0.0] * len(x)
    same(tape.tensor([3, 4]).round(), [3, 4])


def test_integers_are_not_rounded_to_tens() -> None:
    with pytest.raises(NotImplementedError, match="double"):
        tape.tensor([12]).round(decimals=-1)


@pytest.mark.parametrize(("beta", "threshold"), [(1.0, 20.0), (2.0, 20.0), (0.5, 1.0)])
def test_softplus_is_stable(beta: float, threshold: float) -> None:
    x = np.array([-800.0, -40.0, -1.0, 0.0, 1.0, 30.0, 800.0])
    with np.errstate(over="ignore"):
        expected = np.where(x * beta > threshold, x, np.logaddexp(x * beta, 0) / beta)
        rising = np.where(x * beta > threshold, 1.0, 1 / (1 + np.exp(-x * beta)))
    np.testing.assert_allclose(tape.softplus(tape.tensor(x), beta, threshold).numpy(), expected, rtol=1e-15)
    np.testing.assert_allclose(slope(lambda t: tape.softplus(t, beta, threshold), x), rising, rtol=1e-14)


def test_what_has_no_gradient_is_a_number() -> None:
    x = tape.tensor(X)
    for call in (
        lambda: tape.softplus(x, tape.tensor(1.0, requires_grad=True)),
        lambda: x.nan_to_num(tape.tensor(0.0)),
        lambda: x.logit(eps=tape.tensor(0.1)),
    ):
        with pytest.raises(TypeError, match="must be a Python number, not Tensor"):
            call()
    with pytest.raises(TypeError):
        tape.polygamma(tape.tensor(1.5), x)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_lerp_ends_at_its_ends(weight: float) -> None:
    a, b = np.array([1e16, 0.1]), np.array([1.0, 0.3])
    found = tape.lerp(tape.tensor(a), tape.tensor(b), weight).numpy()
    if weight in (0.0, 1.0):
        same(found, b if weight else a)
    else:
        np.testing.assert_allclose(found, a + weight * (b - a), rtol=1e-15)
    same(tape.tensor(a).lerp(tape.tensor(b), tape.tensor([weight])), found)


def test_products_and_quotients_added() -> None:
    x, a, b = (tape.tensor(v) for v in (X, X + 1.25, X + 7.0))
    same(tape.addcmul(x, a, b), X + (X + 1.25) * (X + 7.0))
    same(x.addcmul(a, b, value=-2), X + (-2 * (X + 1.25)) * (X + 7.0))
    same(x.addcdiv(a, b, value=0.5), X + (0.5 * (X + 1.25)) / (X + 7.0))
    same(tape.addcmul(tape.tensor([1, 2]), tape.tensor([3, 4]), tape.tensor([5, 6]), value=2), [31, 50])


def test_float_power_is_double() -> None:
    for x in (X.astype(np.float32), np.arange(1, 4)):
        same(tape.float_power(tape.tensor(x), 2), np.float_power(x, 2))
        same(np.float_power(tape.tensor(x), 3), np.float_power(x, 3))
    same(tape.float_power(2, tape.tensor([1, -1])), [2.0, 0.5])
    x = tape.tensor(np.array([1.0, 2.0], np.float32), requires_grad=True)
    x.float_power(2).sum().backward()
    same(x.grad, np.array([2, 4], np.float32))


@pytest.mark.parametrize("exponent", [3, -2, 1024, -1074, 2000])
def test_ldexp_does_not_overflow_on_the_way(exponent: int) -> None:
    x = np.array([0.5, -1.25, 5e-324, 0.0, INF])
    with np.errstate(over="ignore", under="ignore"):
        expected = np.ldexp(x, exponent)
        same(tape.ldexp(tape.tensor(x), exponent), expected)
        same(tape.ldexp(tape.tensor(x), tape.tensor([exponent])), expected)
        same(np.ldexp(tape.tensor(x), exponent), expected)


def test_nan_to_num() -> None:
    for dtype in (np.float64, np.float32):
        x = SPECIAL.astype(dtype) if dtype is np.float64 else np.array([1.0, INF, -INF, NAN], dtype)
        same(tape.nan_to_num(tape.tensor(x)), np.nan_to_num(x))
        same(np.nan_to_num(tape.tensor(x), nan=2, posinf=3), np.nan_to_num(x, nan=2, posinf=3))
        same(tape.tensor(x).nan_to_num_(neginf=-5.0), np.nan_to_num(x, neginf=-5.0))
    assert slope(tape.nan_to_num, SPECIAL) == [1, 1, 1, 1, 1, 1, 0, 0, 0]
    same(tape.tensor([1, 2]).nan_to_num(5), [1, 2])
    with pytest.raises(TypeError, match="nan_to_num_"):
        np.nan_to_num(tape.tensor(X), copy=False)


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose_is_numpys(equal_nan: bool) -> None:
    a = np.array([1.0, 1.0, 1e-9, INF, INF, NAN, 100.0])
    b = np.array([1.0 + 1e-6, 1.1, 0.0, INF, -INF, NAN, 101.0])
    for options in ({}, {"rtol": 0.2}, {"rtol": 0.0, "atol": 1e-5}):
        expected = np.isclose(a, b, equal_nan=equal_nan, **options)
        same(tape.isclose(tape.tensor(a), tape.tensor(b), equal_nan=equal_nan, **options), expected)
        same(np.isclose(tape.tensor(a), b, equal_nan=equal_nan, **options), expected)
        assert tape.allclose(tape.tensor(a), tape.tensor(b), equal_nan=equal_nan, **options) == expected.all()
        assert np.allclose(tape.tensor(a), b, equal_nan=equal_nan, **options) == expected.all()
    x = tape.tensor(a, requires_grad=True)
    assert not tape.isclose(x, x * 2).requires_grad


VARIANTS: list[tuple[str, tuple[Any, ...]]] = [
    ("clamp_", (-1.0, 1.0)), ("clip_", (0.0, None)), ("clamp_min_", (0.25,)), ("clamp_max_", (0.25,)), ("round_", ()),
    ("floor_", ()), ("frac_", ()), ("sigmoid_", ()), ("relu_", ()), ("lerp_", (1.0, 0.25)), ("remainder_", (2.0,)),
    ("addcmul_", (2.0, 3.0)), ("addcdiv_", (2.0, 3.0)), ("nan_to_num_", ()), ("erf_", ()), ("expm1_", ()),
    ("sign_", ()), ("copysign_", (-1.0,)), ("fmod_", (2.0,)), ("ldexp_", (2,)), ("atan2_", (2.0,)),
    ("floor_divide_", (2,)), ("div_", (2.0,)), ("divide_", (2.0,)), ("nextafter_", (9.0,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_twins_in_place(name: str, arguments: tuple[Any, ...]) -> None:
    leaf, other = (tape.tensor(X + 0.1, requires_grad=True) for _ in range(2))
    x, before = leaf * 1.5, other * 1.5
    y = x
    assert getattr(x, name)(*arguments) is y
    expected = getattr(before, name.removesuffix("_"))(*arguments)
    same(x, expected.detach().numpy())
    (x * x).sum().backward()
    (expected * expected).sum().backward()
    same(leaf.grad, other.grad.numpy())


@pytest.mark.quick
@pytest.mark.parametrize("operator", ["&", "|", "^", "<<", ">>", "//", "%"])
def test_operators_on_integers(operator: str) -> None:
    a, b = np.array([5, -7, 12]), np.array([3, 2, 1])
    names: dict[str, Any] = {"a": a, "b": b, "x": tape.tensor(a), "y": tape.tensor(b)}
    for left, right in (("x", "y"), ("x", "2"), ("9", "y"), ("x", "b")):
        expected = f"{left} {operator} {right}".replace("x", "a").replace("y", "b")
        same(eval(f"{left} {operator} {right}", names), eval(expected, names))  # noqa: S307 (the programs above)
    exec(f"z = x.clone(); w = z; z {operator}= y; assert w is z", names)  # noqa: S102
    same(names["z"], eval(f"a {operator} b", names))  # noqa: S307
    same(~names["x"], ~a)
    for name in ("bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "bitwise_xor"):
        arguments = (a,) if name == "bitwise_not" else (a, b)
        same(getattr(tape, name)(*map(tape.tensor, arguments)), getattr(np, name)(*arguments))


def test_operators_on_truth() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    x, y = tape.tensor(a), tape.tensor(b)
    for found, expected in (
        (x & y, a & b),
        (x | y, a | b),
        (x ^ y, a ^ b),
        (~x, ~a),
        (True ^ x, ~a),
        (x & False, a & 0),
    ):
        same(found, expected.astype(bool))
    for name in ("logical_and", "logical_or", "logical_xor"):
        for p, q in ((a, b), (X[:3], b), (X[:3], X[3:])):
            same(getattr(tape, name)(tape.tensor(p), tape.tensor(q)), getattr(np, name)(p, q))


@pytest.mark.parametrize("expression", ["x & 1", "x << 1", "x ^ x", "~x", "1 | x"])
def test_floats_have_no_bits(expression: str) -> None:
    with pytest.raises(TypeError):
        eval(expression, {"x": tape.tensor([1.5])})  # noqa: S307 (the rows above)


@pytest.mark.parametrize("expression", ["i // 0", "i % 0", "i // z", "1 % z", "tape.fmod(i, z)", "np.remainder(i, z)"])
def test_integers_are_not_divided_by_zero(expression: str) -> None:
    names = {"i": tape.tensor([1, 2]), "z": tape.tensor([1, 0]), "tape": tape, "np": np}
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        eval(expression, names)  # noqa: S307 (the rows above)


QUOTIENTS: list[tuple[Any, Any]] = [
    (np.array([5.0, -5.0, 7.5, -0.3, 0.1]), np.array([2.0, 2.0, -2.0, 0.1, 0.1])),
    (np.array([5, -5, 7, -8, -(2**63)]), np.array([2, 2, -2, 3, 7])),
    (np.array([5.0, -5.0], np.float32), 2),
    (np.array([7, -7]), 2.5),
    (7, np.array([2, -2])),
    (7.0, np.array([2, -2])),
    (np.array([[9.0], [-9.0]]), np.array([2.0, -4.0])),
]


@pytest.mark.quick
@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_quotients_are_rounded_as_pytorch_does(mode: str | None, pytorch: Outcomes) -> None:
    for k, (a, b) in enumerate(QUOTIENTS):
        x, y = (tape.tensor(v) if isinstance(v, np.ndarray) else v for v in (a, b))

        def divided(torch: Any, a: Any = a, b: Any = b) -> Any:
            p, q = (torch.tensor(v) if isinstance(v, np.ndarray) else v for v in (a, b))
            return torch.div(torch.as_tensor(p), q, rounding_mode=mode).numpy()

        expected = pytorch(divided, f"quotient {k} {mode}")
        found = tape.div(x, y, rounding_mode=mode)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0 if mode else 1e-7)  # torch divides ints as float32
        assert (found.dtype.kind == "f") == (expected.dtype.kind == "f")
        same(tape.divide(x, y, rounding_mode=mode), found.numpy())


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_are_flat(mode: str) -> None:
    assert slope(lambda a, b: a.div(b, rounding_mode=mode), [5.0, -5.0], [2.0, 2.0]) == [0.0, 0.0]
    assert slope(lambda a, b: a.div(b, rounding_mode=mode), [5.0, -5.0], [2.0, 2.0], at=1) == [0.0, 0.0]
    x = tape.tensor([5.0, -7.0], requires_grad=True)
    assert x.div(2.0, rounding_mode=mode).grad_fn.name() == "DivBackward2"
    y = x * 1.0
    assert y.div_(2.0, rounding_mode=mode) is y
    assert y.tolist() == {"trunc": [2.0, -3.0], "floor": [2.0, -4.0]}[mode]
    i, out = tape.tensor([5, -5]), tape.zeros(2, dtype=tape.int64)
    assert i.divide_(2, rounding_mode=mode) is i
    assert tape.div(i, 1, rounding_mode=mode, out=out) is out
    assert out.tolist() == i.tolist()


def test_quotients_of_no_mode() -> None:
    x, i = tape.tensor([1.0]), tape.tensor([1])
    for mode in ("x", "ceil", ""):
        with pytest.raises(RuntimeError, match="div expected rounding_mode to be one of None, 'trunc', or 'floor' but"):
            x.div(2.0, rounding_mode=mode)
    for mode in ("trunc", "floor"):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            i.div(0, rounding_mode=mode)
    with pytest.raises(RuntimeError, match="can't be cast"):
        i.div_(2)
    assert i.tolist() == [1]


def test_the_next_number(pytorch: Outcomes) -> None:
    a = np.array([1.0, 2.0, 3.0, NAN, 1.0, INF, -INF, 0.0, INF])
    b = np.array([2.0, 0.0, 3.0, 1.0, NAN, INF, 0.0, 0.0, 0.0])
    for dtype in (np.float64, np.float32):
        p, q = a.astype(dtype), b.astype(dtype)
        same(tape.nextafter(tape.tensor(p), tape.tensor(q)), np.nextafter(p, q))

        def next_numbers(torch: Any, p: Any = p, q: Any = q) -> Any:
            return torch.nextafter(torch.tensor(p), torch.tensor(q)).numpy()

        theirs = pytorch(next_numbers, f"nextafter {np.dtype(dtype).name}")
        same(tape.tensor(p).nextafter(tape.tensor(q)), theirs)
        same(np.nextafter(tape.tensor(p), q), np.nextafter(p, q))

    def slopes(torch: Any) -> Any:
        leaves = [torch.tensor(v, requires_grad=True) for v in (a, b)]
        torch.nextafter(*leaves).sum().backward()
        return [leaf.grad.tolist() for leaf in leaves]

    for at, expected in enumerate(pytorch(slopes, "gradients of nextafter")):
        assert slope(tape.nextafter, a, b, at=at) == expected


def test_floats_are_divided_by_zero_as_numpy_does() -> None:
    a, b = np.array([1.0, -1.0, 0.0, INF, 3.0, NAN]), np.array([0.0, 0.0, 0.0, 2.0, INF, 1.0])
    with np.errstate(all="ignore"):
        for name in ("floor_divide", "remainder", "fmod"):
            same(getattr(tape, name)(tape.tensor(a), tape.tensor(b)), getattr(np, name)(a, b))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("name", ["sqrt", "sigmoid", "exp2", "erf", "arctan2", "logaddexp", "rsqrt", "lgamma"])
def test_integers_become_the_default_dtype(name: str, dtype: type) -> None:
    x = tape.tensor(np.ones(2, dtype))
    function = getattr(tape, name)
    assert function(*[x] * len(OPS[name].inputs)).dtype == np.float64  # type: ignore[attr-defined]
    tape.set_default_dtype(tape.float32)
    try:
        assert function(*[x] * len(OPS[name].inputs)).dtype == np.float32  # type: ignore[attr-defined]
    finally:
        tape.set_default_dtype(tape.float64)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign", "sgn", "relu", "clamp_min", "fmax"])
def test_integers_stay_integers(name: str) -> None:
    x = tape.tensor([3, -2])
    given = (x, tape.tensor([0, 0])) if name in ("clamp_min", "fmax") else (x,)
    assert getattr(tape, name)(*given).dtype == np.int64


# What is 0, or nothing, at a kink: the derivative at each of SPECIAL, as PyTorch has it.
SLOPES: dict[str, list[float]] = {
    "relu": [0, 0, 1, 0, 1, 1, 1, 0, 1],
    "sign": [0] * 9, "sgn": [0] * 9, "floor": [0] * 9, "ceil": [0] * 9, "trunc": [0] * 9, "rint": [0] * 9,
    "frac": [1] * 9,
    "rsqrt": [-INF, INF, -0.5, NAN, -INF, 0, 0, NAN, NAN],
    "expm1": [1, 1, math.e, math.exp(-1), 1, INF, INF, 0, NAN],
    "log1p": [1, 1, 0.5, INF, 1, 1 / 1.7e308, 0, 0, NAN],
    "arcsin": [1, 1, INF, INF, 1, NAN, NAN, NAN, NAN],
    "arccos": [-1, -1, -INF, -INF, -1, NAN, NAN, NAN, NAN],
    "arctan": [1, 1, 0.5, 0.5, 1, 0, 0, 0, NAN],
    "arcsinh": [1, 1, math.sqrt(0.5), math.sqrt(0.5), 1, 1 / 1.7e308, 0, 0, NAN],
    "arccosh": [NAN, NAN, INF, NAN, NAN, 1 / 1.7e308, 0, NAN, NAN],
    "arctanh": [1, 1, INF, INF, 1, 0, 0, 0, NAN],
    "sinc": [0, 0, -1, 1, 0, NAN, NAN, NAN, NAN],
    "sigmoid": [0.25, 0.25, 0.19661193324148185, 0.19661193324148185, 0.25, 0, 0, 0, NAN],
    "cbrt": [INF, INF, 1 / 3, 1 / 3, 5e-324 ** (-2 / 3) / 3, 1.7e308 ** (-2 / 3) / 3, 0, 0, NAN],
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_at_special_points(name: str) -> None:
    found = slope(getattr(tape, name), SPECIAL)
    np.testing.assert_allclose(found, SLOPES[name], rtol=1e-13, atol=1e-205)


# (function, a, b, derivative by a, derivative by b)
PAIRS: list[tuple[str, float, float, float, float]] = [
    ("arctan2", 0.0, 0.0, 0.0, 0.0), ("arctan2", 1e-200, 1e-200, 5e199, -5e199), ("arctan2", 1.0, INF, 0.0, 0.0),
    ("arctan2", 1e200, 1e200, 5e-201, -5e-201),
    ("hypot", 3e200, 4e200, 0.6, 0.8), ("hypot", 3e-200, -4e-200, 0.6, -0.8), ("hypot", 0.0, 0.0, NAN, NAN),
    ("logaddexp", 1000.0, 0.0, 1.0, 0.0), ("logaddexp", -1000.0, -1000.0, 0.5, 0.5), ("logaddexp", INF, 0.0, 1.0, 0.0),
    ("logaddexp", -INF, 0.0, 0.0, 1.0), ("logaddexp2", 2000.0, 0.0, 1.0, 0.0), ("logaddexp2", 1.0, 1.0, 0.5, 0.5),
    ("fmax", 1.0, 1.0, 1.0, 0.0), ("fmax", NAN, 1.0, 0.0, 1.0), ("fmax", 1.0, NAN, 1.0, 0.0),
    ("fmax", 1.0, 2.0, 0.0, 1.0), ("fmin", 1.0, 1.0, 1.0, 0.0), ("fmin", NAN, 1.0, 0.0, 1.0),
    ("fmin", 1.0, NAN, 1.0, 0.0), ("fmin", 1.0, 2.0, 1.0, 0.0),
    ("clamp_min", 1.0, 1.0, 1.0, 0.0), ("clamp_min", NAN, 1.0, 0.0, 0.0), ("clamp_min", 0.0, 1.0, 0.0, 1.0),
    ("clamp_max", 1.0, 1.0, 1.0, 0.0), ("clamp_max", 1.0, NAN, 0.0, 0.0), ("clamp_max", 2.0, 1.0, 0.0, 1.0),
    ("copysign", 2.0, -1.0, -1.0, 0.0), ("copysign", 0.0, -1.0, 0.0, 0.0), ("copysign", -INF, -1.0, 1.0, 0.0),
    ("remainder", 5.0, -3.0, 1.0, 2.0), ("fmod", 5.0, -3.0, 1.0, 1.0), ("remainder", 1.0, INF, 1.0, 0.0),
    ("floor_divide", 5.0, 3.0, 0.0, 0.0), ("heaviside", 0.0, 3.0, 0.0, 1.0), ("heaviside", 1.0, 3.0, 0.0, 0.0),
    ("xlogy", 0.0, 0.0, 0.0, 0.0), ("xlogy", 0.0, 2.0, math.log(2), 0.0), ("xlogy", 2.0, 0.0, -INF, INF),
    ("xlogy", 0.0, -1.0, 0.0, 0.0), ("xlog1py", 0.0, -1.0, 0.0, 0.0), ("xlog1py", 2.0, 1e-20, 1e-20, 2.0),
    ("ldexp", 3.0, 2.0, 4.0, 12 * math.log(2)), ("lerp", 1.0, 5.0, 0.75, 0.25),
]  # fmt: skip


@pytest.mark.parametrize(("name", "a", "b", "by_a", "by_b"), PAIRS)
def test_derivatives_of_pairs(name: str, a: float, b: float, by_a: float, by_b: float) -> None:
    function = getattr(tape, name)
    call = (lambda p, q: function(p, q, 0.25)) if name == "lerp" else function
    for at, expected in enumerate((by_a, by_b)):
        np.testing.assert_allclose(slope(call, [a], [b], at=at), [expected], rtol=1e-13)
        np.testing.assert_allclose(slope(call, a, b, at=at), expected, rtol=1e-13)  # 0-d: the printed operators


# A select cuts: the branch not taken is infinite, or nan, there.
CUTS: list[tuple[str, Callable[[Any], Any], float, float]] = [
    ("clamp_min", lambda x: tape.clamp_min(tape.sqrt(x), 1.0), 0.0, 0.0),
    ("clamp", lambda x: tape.clamp(1 / x, -1.0, 1.0), 0.0, 0.0),
    ("relu", lambda x: tape.relu(-tape.sqrt(x)), 0.0, 0.0),
    ("fmax", lambda x: tape.fmax(x, tape.log(x)), 0.0, 1.0),
    ("fmin", lambda x: tape.fmin(x, 1 / x), 0.0, 1.0),
    ("nan_to_num", lambda x: tape.nan_to_num(tape.log(x)), 0.0, 0.0),
    ("heaviside", lambda x: tape.heaviside(tape.ones(()), tape.sqrt(x)) + x, 0.0, 1.0),
    ("xlogy", lambda x: tape.xlogy(tape.zeros(()), tape.sqrt(x)), 0.0, 0.0),
]


@pytest.mark.parametrize(("name", "function", "at", "expected"), CUTS, ids=[row[0] for row in CUTS])
def test_selects_cut(name: str, function: Callable[[Any], Any], at: float, expected: float) -> None:
    assert slope(function, at) == expected, name
    leaf = tape.tensor(at, requires_grad=True)
    with np.errstate(all="ignore"):
        (found,) = tape.autograd.grad(function(leaf), leaf, create_graph=True)
    assert found.item() == expected


def test_numpys_meaning_of_names_that_differ() -> None:
    x = tape.tensor([NAN, -2.0])
    same(tape.sign(x), [0.0, -1.0])
    same(np.sign(x), [NAN, -1.0])
    same(tape.heaviside(x, 1.0), [0.0, 0.0])
    same(np.heaviside(x, 1.0), [NAN, 0.0])
    for function in (np.degrees, np.radians, np.fabs, np.fix, np.sinc, np.isposinf, np.isneginf, np.cbrt, np.i0):
        np.testing.assert_allclose(function(x).numpy(), function(x.numpy()), rtol=1e-15)


NAMED_AS_UFUNCS = [
    op
    for op in OPS.values()
    if isinstance(op, Elementwise)
    and isinstance(getattr(np, op.name, None), np.ufunc)
    and not {"boolean", "integer"} & set(op.domain)
    and op.name != "ldexp"  # not of two floats
]


@pytest.mark.parametrize("op", NAMED_AS_UFUNCS, ids=lambda op: op.name)
def test_numpy_dispatch_finds_the_record(op: Elementwise) -> None:
    ufunc = getattr(np, op.name)
    given = [X + 3.25, X + 4.5][: ufunc.nin]
    with np.errstate(all="ignore"):
        same(ufunc(*map(tape.tensor, given)), ufunc(*given))


WIDE: dict[str, Callable[..., Any]] = {
    "numbers": lambda x, y: tape.clamp(x, -1.0, 1) * y,
    "tensors": lambda x, y: tape.clamp(x, y - 3, y),
    "one of each": lambda x, y: tape.lerp(x, y, 0.25),
    "condition": lambda x, y: tape.where(x > y, x, y * 2),
    "condition and number": lambda x, y: tape.where(y > 0, x, -1.0),
    "four": lambda x, y: tape.nan_to_num(x, 1.0) + y,
    "saved numbers": lambda x, y: tape.softplus(x, 2) * y,
}


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", WIDE)
def test_the_second_call_is_like_the_first(name: str, shape: tuple[int, ...]) -> None:
    results = []
    for wanted in ((True, True), (True, False), (False, True), (False, False)) * 2:
        rng = np.random.default_rng(0)
        x, y = (tape.tensor(rng.uniform(-2, 2, shape), requires_grad=w) for w in wanted)
        result = WIDE[name](x, y)
        if result.requires_grad:
            (result * result).sum().backward()
        results.append((result.tolist(), type(result._value), str(result.grad_fn)[:12], str(x.grad), str(y.grad)))
    assert results[:4] == results[4:]


@pytest.mark.quick
@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, 1.5, -1, -2, -0.5])
def test_small_powers_at_zero_have_the_same_slopes_in_every_mode(p: float) -> None:
    def power(x: Any) -> Any:
        return (x**p).sum()

    points = np.array([0.0, 1.5, INF, NAN])
    with np.errstate(all="ignore"):
        expected = p * points ** (p - 1.0) if p else np.zeros(4)
    fast = tape.compile(tape.value_and_grad(power), mode="max")
    found = [slope(lambda x: x**p, points), tape.record(power, points).value_and_grad(points)[1]]
    found += [fast(points)[1] for _ in range(4)]
    for one in found:
        np.testing.assert_allclose(np.ravel(one), expected, rtol=1e-14)


def second(function: Callable[..., Any], *values: float) -> tuple[list[float], list[list[float]]]:
    """Return the gradient of a function of numbers, and the Hessian."""
    leaves = [tape.tensor(v, dtype=tape.float64, requires_grad=True) for v in values]
    with np.errstate(all="ignore"):
        gradient = tape.autograd.grad(function(*leaves), leaves, create_graph=True)
        rows = [tape.autograd.grad(g, leaves, retain_graph=True) for g in gradient]
    return [g.item() for g in gradient], [[h.item() for h in row] for row in rows]


@pytest.mark.parametrize("x", [0.5, 1.0, 2.0, 30.0])
@pytest.mark.parametrize("y", [-1.0, 0.0, 1.0, 2.0, 0.5])
def test_hessians_of_powers_are_symmetric(x: float, y: float) -> None:
    gradient, hessian = second(lambda x, y: x**y, x, y)
    log, power = math.log(x), x**y
    mixed = x ** (y - 1) * (1 + y * log)
    np.testing.assert_allclose(gradient, [y * x ** (y - 1), power * log], rtol=1e-14)
    np.testing.assert_allclose(
        hessian, [[y * (y - 1) * x ** (y - 2), mixed], [mixed, power * log**2]], rtol=1e-13, atol=1e-15
    )


@pytest.mark.parametrize("x", [-INF, -1e300, -1100.0, -720.0, -709.5, -30.0, 0.0, 30.0, 709.5, 720.0, 1100.0, 1e300])
def test_logarithms_of_sums_of_exponentials_have_two_derivatives_far_out(x: float) -> None:
    # Of log(1 + exp(x)): the logistic function, and its derivative, in forms that do not overflow.
    small = math.exp(-abs(x))
    first, then = (1.0 if x >= 0 else small) / (1 + small), small / (1 + small) ** 2
    functions: list[Callable[..., Any]] = [
        lambda x: tape.softplus(x, threshold=INF),
        lambda x: tape.logaddexp(x, tape.zeros_like(x)),
        lambda x: tape.logaddexp2(x / math.log(2), tape.zeros_like(x)) * math.log(2),
        lambda x: -tape.special.log_expit(-x),
    ]
    for function in functions:
        gradient, hessian = second(function, x)
        np.testing.assert_allclose(gradient, [first], rtol=1e-11, atol=1e-300)
        np.testing.assert_allclose(hessian, [[then]], rtol=1e-11, atol=1e-13)
