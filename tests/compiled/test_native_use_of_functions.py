"""Compiled functions in native code: integrators in ``@njit``, SciPy's quadrature, C; and what is refused, and why."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from scipy.integrate import quad

import tape
from kernels.programs.program import ProgramError
from tests.compiled.test_exported_c import COMPILER, STRICT

Array = np.ndarray[Any, Any]
njit: Any = numba.njit
START = np.array([10.0, 5.0])


def called(compiled: Any, *args: Any) -> Any:
    """Call until there is a program; return what dynamic mode gives."""
    for _ in range(3):
        compiled(*args)
    return compiled.__wrapped__(*args)


def growth(y: Any) -> Any:
    return tape.stack([1.1 * y[0] - 0.4 * y[0] * y[1], 0.1 * y[0] * y[1] - 0.4 * y[1]])


def weighted(y: Any, cotangent: Any) -> Any:
    rate = growth(y)
    return (rate * cotangent).sum(), rate


def whole(y: Any) -> Any:
    for _ in range(60):
        a = growth(y)
        b = growth(y + 0.025 * a)
        c = growth(y + 0.025 * b)
        y = y + 0.05 / 6 * (a + 2 * b + 2 * c + growth(y + 0.05 * c))
    return y[0]


def test_an_integrator_that_calls_a_right_hand_sides_vjp() -> None:
    """Runge and Kutta's method in ``@njit``, back by the vjp of each stage: as the gradient of the whole loop."""
    pulled = tape.compile(tape.value_and_grad(weighted, has_aux=True))
    called(pulled, START, np.ones(2))
    native = pulled.native
    assert [p.name for p in native.everything] == ["y", "cotangent", "value0", "value1", "grad_y"]

    @njit
    def stages(y: Array, h: float, k: Array, points: Array) -> int:
        rest, missed = np.zeros(2), 0
        for s, part in enumerate((0.0, 0.5, 0.5, 1.0)):
            points[s] = y + part * h * k[s - 1] if s else y
            missed += native(points[s], rest, k[s], None)[0] != 0
        return missed

    @njit
    def solved(y: Array, h: float, steps: int) -> tuple[int, float, Array]:
        states, k, points = np.empty((steps + 1, 2)), np.empty((4, 2)), np.empty((4, 2))
        states[0], missed = y, 0
        for n in range(steps):
            missed += stages(states[n], h, k, points)
            states[n + 1] = states[n] + h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
        by_y, by_point, rate = np.array([1.0, 0.0]), np.empty(2), np.empty(2)
        for n in range(steps - 1, -1, -1):
            missed += stages(states[n], h, k, points)
            by_k = np.zeros((4, 2))
            for s, weight in enumerate((1.0, 2.0, 2.0, 1.0)):
                by_k[s] = h / 6 * weight * by_y
            for s in range(3, -1, -1):
                missed += native(points[s], by_k[s], rate, by_point)[0] != 0
                by_y = by_y + by_point
                if s:
                    by_k[s - 1] += (0.5 if s < 3 else 1.0) * h * by_point
        return missed, states[steps, 0], by_y

    missed, value, gradient = solved(START, 0.05, 60)
    assert missed == 0
    expected, by_y = tape.value_and_grad(whole)(START)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, by_y, rtol=1e-10)


def test_scipy_integrates_a_compiled_function() -> None:
    bell = tape.compile(lambda x, width: tape.exp(-((x / width) ** 2)))
    called(bell, 0.5, 2.0)
    area, _ = quad(bell.low_level_callable(), -np.inf, np.inf, args=(2.0,))
    np.testing.assert_allclose(area, 2 * np.sqrt(np.pi), rtol=1e-9)


PROGRAM = r"""
#include <stdio.h>
#include "spring.h"

int main(void)
{
    double x[4] = {0.0, 1.5, 2.0, 4.0}, value, by_x[4], by_k;
    if (spring(x, 2.0, &value, by_x, &by_k) != 0) {
        return 1;
    }
    printf("%.17g %.17g %.17g %.17g %.17g %.17g\n", value, by_x[0], by_x[1], by_x[2], by_x[3], by_k);
    return 0;
}
"""


@pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
def test_a_c_program_calls_a_compiled_function(tmp_path: Path) -> None:
    assert COMPILER is not None

    def spring(x: Any, k: Any) -> Any:
        return (k * tape.tanh(x[1:] - x[:-1] - 1.0) ** 2).sum()

    both, x = tape.compile(tape.value_and_grad(spring, (0, 1))), np.array([0.0, 1.5, 2.0, 4.0])
    value, (by_x, by_k) = called(both, x, 2.0)
    both.export_c(tmp_path / "spring.c", name="spring")
    (tmp_path / "main.c").write_text(PROGRAM, encoding="utf-8")
    files = [str(tmp_path / name) for name in ("main.c", "spring.c")]
    made = subprocess.run(
        [COMPILER, *STRICT, *files, "-o", str(tmp_path / "main"), "-lm"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    told = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose([*map(float, told.split())], [value, *by_x, by_k], rtol=1e-12)


def test_arguments_in_structures_have_names() -> None:
    def loss(params: Any, x: Any, *, shift: Any) -> Any:
        return ((params["w"] @ x + params["b"][0] + shift) ** 2).sum()

    compiled = tape.compile(tape.value_and_grad(loss))
    args = {"w": np.ones((2, 3)), "b": [0.5]}, np.arange(3.0)
    for _ in range(3):
        value, by = compiled(*args, shift=1.0)
    native = compiled.native
    assert [p.name for p in native.parameters] == [
        "params_w", "params_b_0", "x", "shift", "grad_params_w", "grad_params_b_0",
    ]  # fmt: skip
    by_w, by_b = np.zeros((2, 3)), np.zeros(1)
    status, result = native(np.ones((2, 3)), 0.5, np.arange(3.0), 1.0, by_w, by_b)
    assert status == 0
    np.testing.assert_allclose(result, value)
    np.testing.assert_allclose(by_w, by["w"])
    np.testing.assert_allclose(by_b[0], by["b"][0])


def test_guards_show_in_the_status() -> None:
    compiled = tape.compile(lambda x: x * 2.0 if x > 0 else x - 1.0)
    called(compiled, 1.0)
    native = compiled.native
    assert native(3.0) == (0, 6.0)
    assert native(-3.0)[0] == 1


SCALE = np.array([1.0, 2.0])


@pytest.mark.parametrize("mode", ["eager", "default", "max"])
def test_what_the_function_reads_from_outside(mode: str) -> None:
    weight = tape.tensor(3.0, requires_grad=True)
    compiled = tape.compile(lambda x: (x * SCALE * weight).sum(), mode=mode)
    with tape.no_grad():
        called(compiled, np.ones(2))
        assert compiled.native(np.ones(2)) == (0, 9.0)
        weight.fill_(5.0)
        assert compiled.native(np.ones(2)) == (0, 15.0)


def test_the_mode_says_whether_calls_use_it() -> None:
    for mode, used in (("eager", False), ("default", True)):
        compiled = tape.compile(lambda x: (x * x).sum(), mode=mode)
        called(compiled, np.ones(3))
        assert compiled.native(np.ones(3)) == (0, 3.0)
        assert ("machine code" in compiled.explain()) is used, compiled.explain()
        assert compiled(np.ones(3)) == 3.0


def test_no_program_and_no_machine_code_are_errors_that_say_why() -> None:
    compiled = tape.compile(lambda x: sum(tape.where(x > 0.1 * k, x, -x).sum() for k in range(9)))
    with pytest.raises(ProgramError, match=r"no program yet[^$]*call it first"):
        compiled.native  # noqa: B018 (it is made when it is asked for)
    called(compiled, np.ones(3, np.float32))
    for use in (lambda: compiled.native, lambda: compiled.address, compiled.low_level_callable, compiled.loops):
        with pytest.raises(ProgramError, match=r"constants in float64[^$]*, at .*functions.py:\d+: compiled = "):
            use()
    random = tape.compile(lambda x: x + tape.rand(2))
    called(random, np.ones(2))
    with pytest.raises(ProgramError, match="draws random numbers"):
        random.native  # noqa: B018
