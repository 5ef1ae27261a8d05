"""Vector math against mpmath: errors in units in the last place over the full range, special values, printed use."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special
from numba import njit

import tape
from kernels.language import llvm_values, vectormath
from kernels.language.llvm_values import FITS
from kernels.language.vectormath import FURTHEST
from kernels.rules.op import OPS, VECTOR, Functions, source, trace
from tests.support import minimax

Array = np.ndarray[Any, Any]
DTYPES = [np.dtype(np.float64), np.dtype(np.float32)]
DIGITS = 40
RANDOM = 1000

# Function, NumPy's or SciPy's of the same meaning, mpmath's, and where it is neither flat nor out of range.
TABLE: dict[str, tuple[Any, Callable[[Any], Any], float, float]] = {
    "exp": (np.exp, mp.exp, -746, 711),
    "exp2": (np.exp2, lambda x: mp.mpf(2) ** x, -1076, 1025),
    "expm1": (np.expm1, mp.expm1, -40, 711),
    "log": (np.log, mp.log, 0, 10),
    "log1p": (np.log1p, mp.log1p, -1, 10),
    "log2": (np.log2, lambda x: mp.log(x) / mp.log(2), 0, 10),
    "log10": (np.log10, lambda x: mp.log(x) / mp.log(10), 0, 10),
    "sin": (np.sin, mp.sin, -1.5e6, 1.5e6),
    "cos": (np.cos, mp.cos, -1.5e6, 1.5e6),
    "tan": (np.tan, mp.tan, -1.5e6, 1.5e6),
    "sinh": (np.sinh, mp.sinh, -711, 711),
    "cosh": (np.cosh, mp.cosh, -711, 711),
    "tanh": (np.tanh, mp.tanh, -22, 22),
    "erf": (scipy.special.erf, mp.erf, -6.5, 6.5),
    "erfc": (scipy.special.erfc, mp.erfc, -6.5, 27.5),
    "logistic": (scipy.special.expit, lambda x: 1 / (1 + mp.exp(-x)), -746, 40),
    "arctan": (np.arctan, mp.atan, -10, 10),
}
FLAT = {"tanh": 50, "erf": 50, "erfc": 50, "sinh": 1000, "cosh": 1000, "logistic": 1000}
"""Beyond, mpmath need not be asked: NumPy's value is the limit."""
BOUND, BOUND_OF_POWER = 2.0, 4.0


ERRORS: dict[tuple[str, str], float] = {}
"""The table of accuracy: dtype and function, greatest error."""


def looped(function: Any, dtype: np.dtype[Any], operands: int = 1) -> Callable[..., Array]:
    """Return a vectorised loop that applies a function to arrays."""
    if operands == 1:

        def loop(x: Array, out: Array) -> None:
            for k in range(np.uint64(x.size)):
                out[k] = function(x[k])
    else:

        def loop(x: Array, y: Array, out: Array) -> None:  # type: ignore[misc]
            for k in range(np.uint64(x.size)):
                out[k] = function(x[k], y[k])

    kind = f"f{dtype.itemsize}[::1]"
    compiled = njit(f"void({', '.join([kind] * (operands + 1))})", error_model="numpy")(loop)

    def run(*arrays: Array) -> Array:
        out = np.empty(arrays[0].shape, dtype)
        compiled(*arrays, out)
        return out

    return run


def patterns(dtype: np.dtype[Any], count: int, seed: int) -> Array:
    """Return numbers of random bits: every exponent, both signs, infinities and nan among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)


def points(name: str, dtype: np.dtype[Any]) -> Array:
    """Return arguments over the whole range, denser where the function bends and where methods meet."""
    rng = np.random.default_rng(3)
    low, high = TABLE[name][2:]
    shrunk = 0.13 if dtype == np.float32 and max(-low, high) > 100 and "n" not in name[1:] else 1.0
    spread = 2.0 ** rng.uniform(-40, 7, RANDOM) * rng.choice([-1.0, 1.0], RANDOM)
    parts = [
        patterns(dtype, RANDOM, 1),
        *[rng.uniform(low * s, high * s, RANDOM) for s in (1.0, shrunk)],
        *[rng.uniform(max(low, -near), min(high, near), RANDOM) for near in (2.0, 0.7)],
        1 + rng.uniform(-1e-2, 1e-2, RANDOM),
        rng.integers(-300, 300, RANDOM) ** 2 * (math.pi / 4) * (1 + np.finfo(dtype).eps * rng.integers(-3, 4, RANDOM)),
        spread,
    ]
    with np.errstate(over="ignore"):
        x = np.concatenate([part.astype(dtype) for part in parts])
    return x[within(x)] if name in ("sin", "cos", "tan") else x


def within(x: Array) -> Array:
    """Whether angles are not beyond the fast reduction."""
    return (np.abs(x) <= FURTHEST[{8: "double", 4: "single"}[x.itemsize]]) | ~np.isfinite(x)


def units(got: Any, want: Any, dtype: np.dtype[Any]) -> float:
    """Return the distance of a result from the true one, in units in the last place of the true one."""
    limits = np.finfo(dtype)
    largest = mp.mpf(float(limits.max))
    if abs(want) > largest * (1 + mp.mpf(float(limits.eps)) / 4) and math.isinf(got):
        return 0.0 if (got > 0) == (want > 0) else math.inf
    exponent = mp.frexp(want)[1] - 1 if want else limits.minexp
    unit = mp.mpf(2) ** (max(exponent, limits.minexp) - limits.nmant)
    given = mp.mpf(float(got)) if math.isfinite(got) else mp.sign(got) * mp.mpf(2) ** limits.maxexp
    return math.inf if math.isnan(got) else float(abs(given - want) / unit)


def same(got: Array, want: Array) -> Array:
    """Whether elements are the same number, the same zero, or both nan."""
    return ((got == want) & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))


def worst(name: str, x: Array, got: Array) -> tuple[float, Any]:
    """Return the greatest error of a function, and where it is made."""
    numpys, exact, *_ = TABLE[name]
    with np.errstate(all="ignore"):
        limit = numpys(x)
    errors = []
    for argument, value, numpy_value in zip(x, got, limit, strict=True):
        inside = math.isfinite(argument) and abs(argument) < FLAT.get(name, math.inf) and not math.isnan(numpy_value)
        if inside and argument != 0 and math.isfinite(numpy_value):
            errors.append(units(value, exact(mp.mpf(float(argument))), x.dtype))
        else:
            errors.append(0.0 if same(value, numpy_value) else math.inf)
    place = int(np.argmax(errors))
    return errors[place], x[place]


@pytest.mark.parametrize("dtype", DTYPES, ids=["f8", "f4"])
@pytest.mark.parametrize("name", TABLE)
def test_accuracy(name: str, dtype: np.dtype[Any]) -> None:
    x = points(name, dtype)
    got = looped(getattr(vectormath, name), dtype)(x)
    with mp.workdps(DIGITS):
        error, place = worst(name, x, got)
    ERRORS[dtype.name, name] = error
    assert error <= BOUND, place


def worst_of_floats(name: str) -> float:
    """Return the greatest error among a million floats of all magnitudes, against NumPy's or SciPy's doubles."""
    x = np.arange(0, 2**32, 4099, np.uint32).view(np.float32)
    x = x[np.isfinite(x) & (within(x) if name in ("sin", "cos", "tan") else True)]
    with np.errstate(all="ignore"):
        want = TABLE[name][0](x.astype(np.float64))
        short = want.astype(np.float32)
        error = np.abs(looped(getattr(vectormath, name), DTYPES[1])(x) - want) / np.spacing(np.abs(short))
    return float(np.max(error[np.isfinite(short)]))


@pytest.mark.parametrize("name", TABLE)
def test_many_floats(name: str) -> None:
    assert worst_of_floats(name) <= BOUND


SPECIAL = [0.0, 1.0, 0.5, 3.0, 1e300, 5e-324, 2.2e-308, 1e-45, 1.18e-38, 3.4e38, math.inf, math.nan]


@pytest.mark.parametrize("dtype", DTYPES, ids=["f8", "f4"])
@pytest.mark.parametrize("name", TABLE)
def test_special_values(name: str, dtype: np.dtype[Any]) -> None:
    numpys = TABLE[name][0]
    with np.errstate(all="ignore"):
        x = np.array([*SPECIAL, *[-s for s in SPECIAL]]).astype(dtype)
        want = numpys(x)
    if name in ("sin", "cos", "tan"):
        x, want = (a[within(x)] for a in (x, want))
    got = looped(getattr(vectormath, name), dtype)(x)
    with np.errstate(all="ignore"):
        near = (np.abs(got - want) <= 2 * np.spacing(np.abs(want))) & (np.signbit(got) == np.signbit(want))
    exact = ~np.isfinite(want) | (want == 0) | (x == 0)
    right = same(got, want) | (near & ~exact)
    assert right.all(), [(a, b, c) for a, b, c, r in zip(x, got, want, right, strict=True) if not r]


def powers(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return bases and exponents, of results over the whole range."""
    rng = np.random.default_rng(5)
    largest = math.log(float(np.finfo(dtype).max))
    near = 1 + rng.uniform(-1, 1, RANDOM) * 2.0 ** rng.uniform(-20, -1, RANDOM)
    bases = [np.abs(patterns(dtype, RANDOM, 2)), rng.uniform(0.6, 1.6, RANDOM).astype(dtype), near.astype(dtype)]
    x = np.concatenate(bases)
    x = x[np.isfinite(x) & (x > 0) & (x != 1)]
    y = rng.uniform(-1.06 * largest, 1.02 * largest, x.size) / np.log(x.astype(np.float64))
    more = rng.uniform(-4, 4, RANDOM), rng.integers(-20, 20, RANDOM)
    return np.concatenate([x, more[0].astype(dtype)]), np.concatenate([y, more[1]]).astype(dtype)


def worst_power(dtype: np.dtype[Any]) -> float:
    """Return the greatest error of a power."""
    x, y = powers(dtype)
    got = looped(vectormath.power, dtype, 2)(x, y)
    with mp.workdps(DIGITS):
        pairs = zip(x, y, got, strict=True)
        return max(units(r, mp.power(mp.mpf(float(a)), mp.mpf(float(b))), dtype) for a, b, r in pairs)


@pytest.mark.parametrize("dtype", DTYPES, ids=["f8", "f4"])
def test_power(dtype: np.dtype[Any]) -> None:
    error = worst_power(dtype)
    ERRORS[dtype.name, "power"] = error
    assert error <= BOUND_OF_POWER
    ends = [*SPECIAL, 2.0, 4.0, 0.9999, 1.0001, 2.0**53 + 2, 7.3, 1e20]
    with np.errstate(all="ignore"):
        grid = np.array([*ends, *[-e for e in ends]]).astype(dtype)
        x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(grid, grid))
        want = np.power(x, y)
        got = looped(vectormath.power, dtype, 2)(x, y)
        near = np.abs(got - want) <= 4 * np.spacing(np.abs(want))
    right = same(got, want) | (near & (np.signbit(got) == np.signbit(want)))
    assert right.all(), [(a, b, g, w) for a, b, g, w, r in zip(x, y, got, want, right, strict=True) if not r][:5]


@pytest.mark.parametrize("dtype", DTYPES, ids=["f8", "f4"])
def test_table(dtype: np.dtype[Any], figures: list[str]) -> None:
    """Left for the end of the run: what the tests above found."""
    cells = [f"{name} {error:.2f}" for (kind, name), error in ERRORS.items() if kind == dtype.name]
    figures.append(f"vector math, {dtype}, greatest errors in units in the last place: {', '.join(cells)}")
    assert all(error <= BOUND_OF_POWER for error in ERRORS.values())


def test_without_fused_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that cannot multiply and add at once split the factors."""
    monkeypatch.setattr(llvm_values, "FUSES", False)
    assert worst_power(DTYPES[0]) <= BOUND_OF_POWER
    x = points("erfc", DTYPES[0])
    with mp.workdps(DIGITS):
        assert worst("erfc", x, looped(vectormath.erfc, DTYPES[0])(x))[0] <= BOUND


SMALL_MACHINE = """
import numpy as np
from tests.language import test_vectormath as t
for name in t.TABLE:
    x = t.points(name, t.DTYPES[0])[::4].copy()
    with t.mp.workdps(t.DIGITS):
        error, place = t.worst(name, x, t.looped(getattr(t.vectormath, name), t.DTYPES[0])(x))
    assert error <= t.BOUND, (name, error, place)
    assert t.worst_of_floats(name) <= t.BOUND, name
"""


def test_on_a_machine_without_extensions() -> None:
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SMALL_MACHINE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", FITS)
def test_coefficients_are_the_best_polynomials(form: str) -> None:
    """Rounded to the format they are as good, to a few units in its last place, as the fit repeated."""
    eps = {"double": 2.0**-53, "single": 2.0**-24}[form]
    with mp.workdps(minimax.DIGITS):
        kinds = minimax.fits()
        for name, given in FITS[form].items():
            fit = kinds[name]
            best = fit.error_of(minimax.minimax(fit, len(given) - 1), points=60)
            rounded = fit.error_of(given, points=60)
            assert rounded <= best + eps, name
            assert best <= (2.0**-39 if name.endswith("W") else eps / 4), name


# What printed kernels make of it.


@pytest.mark.quick
@pytest.mark.parametrize("dtype", DTYPES, ids=["f8", "f4"])
def test_gradients_of_many_elements(dtype: np.dtype[Any]) -> None:
    """Angles of any size, in blocks of near ones and in others; the dtype stays."""
    values = np.linspace(-9, 9, 4000).astype(dtype)
    values[[5, 2500]] = 1e30, -3e25
    x = tape.tensor(values, requires_grad=True)
    (tape.sin(x) * 2).sum().backward()
    gradient = x.grad.numpy()
    assert gradient.dtype == dtype
    with mp.workdps(60):
        wants = [2 * mp.cos(mp.mpf(float(v))) for v in values]
        assert max(map(units, gradient, wants, [dtype] * len(wants))) <= 1.5


@pytest.mark.quick
def test_gradients_accumulate_and_stride() -> None:
    """Every other element, added to what stands in the gradient; also of one element alone."""
    values = np.linspace(0.1, 3, 60)
    x = tape.tensor(values, requires_grad=True)
    (tape.cos(x[::2]).sum() + (x[::2] ** 2.5).sum() + tape.tan(x[3]) + x.sum()).backward()
    want = np.ones(60)
    want[::2] += 2.5 * values[::2] ** 1.5 - np.sin(values[::2])
    want[3] += 1 / np.cos(values[3]) ** 2
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14)


def test_a_row_that_reduces_takes_any_angle() -> None:
    rule = trace(lambda g, x: g * np.cos(x))
    text = source(rule, np.dtype(np.float64), Functions.GUARDED)
    assert text == "(g * (math.cos(x) if vectormath.beyond(x) else vectormath.cos(x)))"


@pytest.mark.quick
def test_every_function_is_printed() -> None:
    """Whatever a record's rule calls and vector math has, kernels call there; one element goes to libm."""
    double = np.dtype(np.float64)
    rule = trace(OPS["power"].pullback[1])
    assert "vectormath.log(a)" in source(rule, double, Functions.VECTOR)
    assert "vectormath" not in source(rule, double)
    for name in VECTOR.values():
        assert hasattr(vectormath, name)


def test_import_does_not_load_it() -> None:
    code = "import sys, tape; assert not [m for m in sys.modules if 'vectormath' in m]"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
