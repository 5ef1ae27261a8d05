"""Compiled programs in native code: called in ``@njit``, by ctypes, by address and by SciPy."""

from __future__ import annotations

import ctypes
import itertools
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from scipy.integrate import dblquad, quad

from kernels.compiler.compiled_code import CompiledCode
from kernels.machine_code.native_entry import SMALL
from tape.compiled.native_calls import NativeUse
from tests.support.handwritten_programs import bell, guarded, predators, program, rosenbrock, tiny

pytestmark = pytest.mark.quick
Array = np.ndarray[Any, Any]
LONG = SMALL // 8 + 10
"""Elements of which a workspace is not on the stack."""


class Handwritten(NativeUse):
    """A compiled function of a program at hand."""

    def __init__(self, code: CompiledCode, *names: str) -> None:
        self.code, self.names, self.__name__ = code, names, "handwritten"

    def _native_code(self) -> tuple[CompiledCode, Sequence[str]]:
        return self.code, self.names


def rosen(x: Array) -> tuple[float, Array]:
    value = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
    gradient = np.zeros_like(x)
    gradient[:-1] = -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
    gradient[1:] += 200 * (x[1:] - x[:-1] ** 2)
    return float(value), gradient


def test_floats_in_value_and_gradient_out(figures: list[str]) -> None:
    native = Handwritten(tiny()).native

    @numba.njit
    def repeated(n: int, x: float, gradient: Array) -> tuple[int, float]:
        total = 0.0
        for i in range(n):
            status, value = native(
                x + 1e-9 * i, 2, 3.0, 4.0, gradient[0:1], gradient[1:2], gradient[2:3], gradient[3:4]
            )
            total += value + gradient[0] + status
        return status, value

    gradient = np.zeros(4)
    assert repeated(1, 1.0, gradient) == (0, 7.5625)
    assert gradient.tolist() == [11.0, 5.5, 1.375, -1.03125]
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        repeated(100_000, 1.0, gradient)
        spent.append(time.perf_counter() - start)
    figures.append(f"native call of the tiny graph, value and gradient: {min(spent) * 1e4:.1f} ns")


@pytest.mark.parametrize("n", [10, LONG])
def test_arrays_in_value_and_gradient_out(n: int) -> None:
    native = Handwritten(rosenbrock(n)).native

    @numba.njit
    def both(function: Any, x: Array) -> tuple[int, float, Array]:
        gradient = np.empty_like(x)
        status, value = function(x, gradient)
        return status, value, gradient

    x = np.random.default_rng(n).normal(size=n)
    value, by_x = rosen(x)
    for called in (both, both.py_func):
        status, result, gradient = called(native, x)
        assert status == 0
        np.testing.assert_allclose(result, value, rtol=1e-12)
        np.testing.assert_allclose(gradient, by_x, rtol=1e-9, atol=1e-12)


def test_calls_of_several_threads_share_no_workspace() -> None:
    native = Handwritten(rosenbrock(LONG)).native

    @numba.njit(nogil=True)
    def repeated(x: Array) -> tuple[float, int]:
        gradient, least, most, missed = np.empty_like(x), np.inf, -np.inf, 0
        for _ in range(300):
            status, value = native(x, gradient)
            least, most, missed = min(least, value), max(most, value), missed + (status != 0)
        return least if least == most else np.nan, missed

    points = [np.random.default_rng(k).normal(size=LONG) for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = [*pool.map(repeated, points)]
    for (value, missed), x in zip(results, points, strict=True):
        assert missed == 0
        np.testing.assert_allclose(value, rosen(x)[0], rtol=1e-12)


def test_gradients_that_are_not_wanted() -> None:
    native = Handwritten(rosenbrock(LONG)).native

    @numba.njit
    def alone(x: Array) -> tuple[int, float]:
        status, value = native(x, None)
        return status, value

    x = np.linspace(0, 1, LONG)
    for called in (alone, alone.py_func):
        status, value = called(x)
        assert status == 0
        np.testing.assert_allclose(value, rosen(x)[0], rtol=1e-12)


def test_a_failed_guard_shows_in_the_status() -> None:
    native = Handwritten(guarded()).native

    @numba.njit
    def root(x: float) -> tuple[int, float]:
        status, value = native(x)
        return status, value

    for called in (root, root.py_func):
        assert called(4.0) == (0, 2.0)
        assert [called(x)[0] for x in (-1.0, 1e10)] == [2, 1]


def test_shapes_and_strides_are_looked_at() -> None:
    native = Handwritten(rosenbrock(10)).native

    @numba.njit
    def status_of(x: Array, gradient: Array) -> int:
        status, _ = native(x, gradient)
        return status

    wide = np.zeros((10, 2))
    for called in (status_of, status_of.py_func):
        assert called(np.zeros(10), np.zeros(10)) == 0
        assert called(np.zeros(9), np.zeros(10)) == -1
        assert called(np.zeros(10), np.zeros(11)) == -2
        assert called(wide[:, 0], np.zeros(10)) == -1
        assert called(np.zeros(20)[5:15], np.zeros(10)) == 0
        assert called(wide.reshape(-1)[5:15], wide.T[0]) == -2


def test_an_argument_has_the_strides_that_were_recorded() -> None:
    code = program(
        "def program():\n    r0[0] = a0[0] + 10.0 * a0[1] + 100.0 * a0[3]\n    return -1\n",
        [np.zeros((3, 2)).T],
        [1.0],
    )
    native = Handwritten(code).native

    @numba.njit
    def value_of(x: Array) -> tuple[int, float]:
        status, value = native(x)
        return status, value

    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for called in (value_of, value_of.py_func):
        assert called(x) == (0, 0.0 + 30.0 + 400.0)
        assert called(np.ascontiguousarray(x))[0] == -1


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((np.zeros(10, np.float32), np.zeros(10)), "x: an .*array.*float64 is wanted"),
        ((np.zeros((10, 1)), np.zeros(10)), "x: "),
        ((1.0, np.zeros(10)), "x: "),
        ((np.zeros(10), np.broadcast_to(0.0, 10)), "grad_x is written to"),
        ((np.zeros(10),), "it takes x, grad_x, not 1 arguments"),
    ],
    ids=["dtype", "dimensions", "number", "readonly", "count"],
)
def test_wrong_types_are_errors_when_the_caller_is_compiled(args: tuple[Any, ...], reason: str) -> None:
    native = Handwritten(rosenbrock(10), "x").native
    with pytest.raises(TypingError, match=reason):
        numba.njit(lambda *parts: native(*parts))(*args)  # noqa: PLW0108 (Numba takes functions of Python)
    with pytest.raises(TypeError, match=reason):
        native(*args)


def test_numbers_of_other_dtypes_and_arrays_without_dimensions() -> None:
    code = program(
        "def program():\n    r0[0] = a0[0] + np.float32(a1[0]) + np.float32(a2[0])\n    r1[0] = a1[0] * 2\n"
        "    r2[0] = a0[0] > np.float32(1.0)\n    g0[0] = np.float32(1.0)\n    return -1\n",
        [np.float32(1.0), np.int64(1), np.array(True)],
        [np.float32(1.0), np.int64(1), np.array(True)],
        [0],
    )
    native = Handwritten(code).native

    @numba.njit
    def call(x: Any, n: Any, flag: Any, gradient: Array) -> Any:
        return native(x, n, flag, gradient)

    for called, x, gradient in itertools.product(
        (call, call.py_func),
        (1.5, np.array(1.5, np.float32)),
        (np.zeros((), np.float32), np.zeros(1, np.float32)),
    ):
        assert called(x, 3, True, gradient) == (0, 5.5, 6, True)
        assert gradient.item() == 1


def test_a_caller_is_not_kept_in_files(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine code has addresses of this process."""
    native = Handwritten(tiny()).native
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @numba.njit(cache=True)
    def value_of(x: float) -> float:
        return native(x, x, x, x, None, None, None, None)[1]

    with pytest.warns(numba.NumbaWarning, match="dynamic globals"):
        value_of(1.0)


def test_an_integrator_and_its_adjoint() -> None:
    """Runge and Kutta's method in ``@njit``, forward and back: each stage's pullback is the native one."""
    native = Handwritten(predators()).native

    @numba.njit
    def stages(y: Array, h: float, k: Array, points: Array, rest: Array) -> None:
        for s, part in enumerate((0.0, 0.5, 0.5, 1.0)):
            points[s] = y + part * h * k[s - 1] if s else y
            native(points[s], rest, k[s], None)

    @numba.njit
    def solved(y: Array, h: float, steps: int) -> tuple[float, Array]:
        states, rest = np.empty((steps + 1, 2)), np.zeros(2)
        k, points = np.empty((4, 2)), np.empty((4, 2))
        states[0] = y
        for n in range(steps):
            stages(states[n], h, k, points, rest)
            states[n + 1] = states[n] + h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
        by_y, by_point = np.array([1.0, 0.0]), np.empty(2)
        for n in range(steps - 1, -1, -1):
            stages(states[n], h, k, points, rest)
            by_k = np.zeros((4, 2))
            for s, weight in enumerate((1.0, 2.0, 2.0, 1.0)):
                by_k[s] = h / 6 * weight * by_y
            for s in range(3, -1, -1):
                native(points[s], by_k[s], None, by_point)
                by_y = by_y + by_point
                if s:
                    by_k[s - 1] += (0.5 if s < 3 else 1.0) * h * by_point
        return states[steps, 0], by_y

    start, h, steps = np.array([10.0, 5.0]), 0.05, 200
    _, gradient = solved(start, h, steps)
    for i in range(2):
        moved = [solved(start + sign * 1e-5 * np.eye(2)[i], h, steps)[0] for sign in (1, -1)]
        np.testing.assert_allclose(gradient[i], (moved[0] - moved[1]) / 2e-5, rtol=1e-6)


def test_ctypes_takes_numbers_arrays_and_addresses() -> None:
    function = Handwritten(tiny(), "a", "b", "c", "d").ctypes
    value, gradients = np.zeros(()), np.zeros(4)
    parts = [gradients[k : k + 1] for k in range(4)]
    assert function(1.0, 2, 3.0, 4.0, value, *parts) == 0
    assert (value, *gradients) == (7.5625, 11.0, 5.5, 1.375, -1.03125)
    number = ctypes.c_double()
    assert function(2.0, 2, 3.0, 4.0, ctypes.byref(number), *[p.ctypes.data for p in parts]) == 0
    assert (number.value, gradients[0]) == (4.75**2, 19.0)
    with pytest.raises(ctypes.ArgumentError, match="grad_a"):
        function(1.0, 2, 3.0, 4.0, value, np.zeros(4), *parts[1:])
    with pytest.raises(ctypes.ArgumentError, match="float32"):
        function(1.0, 2, 3.0, 4.0, value, np.zeros(1, np.float32), *parts[1:])
    with pytest.raises(ctypes.ArgumentError, match="str"):
        function(1.0, 2, 3.0, 4.0, "value", *parts)


def test_ctypes_looks_at_shapes_and_status() -> None:
    function = Handwritten(rosenbrock(LONG)).ctypes
    x, gradient, value = np.linspace(0, 1, LONG), np.zeros(LONG), np.zeros(1)
    assert function(x, value, gradient) == 0
    np.testing.assert_allclose(gradient, rosen(x)[1], rtol=1e-9, atol=1e-12)
    for wrong in (x[1:], np.zeros(2 * LONG)[::2], x.astype(np.int64)):
        with pytest.raises(ctypes.ArgumentError):
            function(wrong, value, gradient)
    assert Handwritten(guarded()).ctypes(-1.0, value) == 2


def test_the_address_is_that_of_a_function_of_c() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_double, *[ctypes.POINTER(ctypes.c_double)] * 2)
    handwritten = Handwritten(bell())
    assert handwritten.address == handwritten.address
    value, slope = ctypes.c_double(), ctypes.c_double()
    assert kind(handwritten.address)(0.5, ctypes.byref(value), ctypes.byref(slope)) == 0
    np.testing.assert_allclose([value.value, slope.value], [np.exp(-0.25), -np.exp(-0.25)], rtol=1e-15)


def test_quad_integrates_by_a_low_level_callable() -> None:
    function = Handwritten(bell()).low_level_callable()
    assert function.signature == "double (double)"
    np.testing.assert_allclose(quad(function, -np.inf, np.inf)[0], np.sqrt(np.pi), rtol=1e-9)
    several = Handwritten(tiny()).low_level_callable()
    assert several.signature == "double (int, double *)"
    np.testing.assert_allclose(quad(several, 0, 1, args=(2.0, 3.0, 4.0))[0], (2.75**3 - 0.75**3) / 6, rtol=1e-12)


def test_a_low_level_callable_of_an_array() -> None:
    function = Handwritten(rosenbrock(2)).low_level_callable()
    found_by_hand = dblquad(lambda y, x: rosen(np.array([y, x]))[0], 0, 1, 0, 1)[0]
    np.testing.assert_allclose(dblquad(function, 0, 1, 0, 1)[0], found_by_hand, rtol=1e-12)
    address = ctypes.cast(function.function, ctypes.c_void_p).value
    assert address is not None
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int, ctypes.c_void_p)(address)
    assert np.isnan(call(3, np.zeros(3).ctypes.data)), "a count that was not recorded"


def test_a_low_level_callable_is_nan_where_a_guard_misses() -> None:
    function = Handwritten(guarded()).low_level_callable().function
    assert function(9.0) == 3.0
    assert np.isnan(function(-9.0))


@pytest.mark.parametrize("code", [predators(), program("def program():\n    return -1\n", [np.float32(1.0)], [1.0])])
def test_what_is_no_low_level_callable(code: CompiledCode) -> None:
    with pytest.raises(TypeError, match="low-level callable"):
        Handwritten(code).low_level_callable()


def test_names_are_those_of_c_and_differ() -> None:
    parameters = [p.name for p in Handwritten(tiny(), "p.a", "value", "0", "p a").native.everything]
    assert parameters[:5] == ["p_a", "value", "x0", "p_a_", "value_"]
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in parameters)
    with pytest.raises(TypeError, match="4 arguments, and there are 1 names"):
        Handwritten(tiny(), "x").native  # noqa: B018 (it is made when it is asked for)
