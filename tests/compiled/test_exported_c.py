"""Compiled programs as files of C: compiled, run as a C program and from a library, they do as the native ones."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.special

import tape
from kernels.compiler.compiled_code import CompiledCode
from kernels.language.expressions import UntranslatedError
from kernels.machine_code.native_entry import flat_function
from kernels.rules.op import VECTOR
from tape.compiled.native_calls import write_c
from tests.support.handwritten_programs import bell, guarded, program, rosenbrock, tiny

Array = np.ndarray[Any, Any]
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-ffp-contract=off"]
LONG = 5000


def compiled(folder: Path, *names: str, flags: tuple[str, ...] = ()) -> Path:
    """Compile C files of a folder; return the path of the result."""
    result = folder / "made"
    command = [str(COMPILER), *STRICT, *flags, *[str(folder / name) for name in names], "-o", str(result), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return result


def in_c(folder: Path, code: CompiledCode) -> Any:
    """Return a program's C function, called as ``flat_function`` is."""
    write_c(folder / "exported.c", code, (), "exported")
    library = ctypes.CDLL(str(compiled(folder, "exported.c", flags=("-shared", "-fPIC"))))
    function, flat = library.exported, flat_function(code)
    function.argtypes, function.restype = flat.argtypes, ctypes.c_int64
    return function


def results_of(function: Any, code: CompiledCode, *args: Any) -> list[Array]:
    """Return the status and what a function writes."""
    results = [np.full(spec.shape, 7, spec.dtype) for spec in (*code.outputs, *code.gradients)]
    return [np.array(function(*args, *results)), *results]


def assert_alike(folder: Path, code: CompiledCode, *args: Any, **tolerance: float) -> list[Array]:
    """Compare C with the native program, to the last bit if no tolerance is given; return the results of C."""
    ours, theirs = results_of(flat_function(code), code, *args), results_of(in_c(folder, code), code, *args)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(other, mine, **(tolerance or {"rtol": 0, "atol": 0}))
    return theirs


MAIN = """
#include <stdio.h>
#include "both.h"

int main(void)
{
    static double workspace[BOTH_WORKSPACE / 8 + 8], x[5000], gradient[5000];
    double value = 0, other = 0;
    int i;
    for (i = 0; i < 5000; i++) {
        x[i] = 0.5 + 0.0001 * i;
    }
    if (both(x, &value, gradient) != 0) {
        return 1;
    }
    if (both_in(workspace, x, &other, gradient) != 0 || other != value) {
        return 2;
    }
    printf("%.17g %.17g %.17g\\n", value, gradient[0], gradient[4999]);
    return 0;
}
"""


def test_a_c_program_computes_value_and_gradient(tmp_path: Path) -> None:
    write_c(tmp_path / "both.c", rosenbrock(LONG), ["x"], "both")
    (tmp_path / "main.c").write_text(MAIN, encoding="utf-8")
    made = compiled(tmp_path, "both.c", "main.c")
    printed = subprocess.run([str(made)], check=True, capture_output=True, text=True, timeout=60).stdout
    x = 0.5 + 0.0001 * np.arange(LONG)
    value, gradient = np.zeros(()), np.zeros(LONG)
    assert flat_function(rosenbrock(LONG))(x, value, gradient) == 0
    np.testing.assert_allclose([float(t) for t in printed.split()], [value, gradient[0], gradient[-1]], rtol=1e-11)


def test_the_header_says_what_the_function_takes(tmp_path: Path) -> None:
    write_c(tmp_path / "f.c", program("def program():\n    return -1\n", [1.0, np.zeros((2, 3)).T], [1.0]), "ax", "f")
    header = (tmp_path / "f.h").read_text(encoding="utf-8")
    assert "int64_t f(double a, const double *x, double *value);" in header
    assert "const double *x: argument, shape (3, 2), strides (8, 24)" in header
    assert "#define F_WORKSPACE 0" in header


def test_programs_by_hand(tmp_path: Path) -> None:
    for k, (code, args) in enumerate(
        [(tiny(), (1.0, 2.0, 3.0, 4.0)), (bell(), (0.7,)), (guarded(), (4.0,)), (guarded(), (-4.0,))]
    ):
        folder = tmp_path / str(k)
        folder.mkdir()
        assert_alike(folder, code, *args, rtol=1e-15)
    assert results_of(in_c(tmp_path, guarded()), guarded(), -4.0)[0] == 2


FUNCTIONS = {
    **{f"vectormath.{name}": 1 for name in VECTOR.values() if name != "power"},
    **{f"np.{name}": 1 for name in (
        "arcsin", "arccos", "arcsinh", "arccosh", "arctanh", "floor", "ceil", "trunc", "rint", "cbrt", "deg2rad",
        "degrees", "absolute", "exp2", "isinf", "isfinite", "signbit", "sqrt",
    )},
    **{f"np.{name}": 2 for name in (
        "arctan2", "hypot", "maximum", "minimum", "fmax", "fmin", "fmod", "remainder", "copysign", "logaddexp",
        "logaddexp2",
    )},
    "vectormath.power": 2, "math.sin": 1, "math.exp": 1, "math.erf": 1, "abs": 1,
}  # fmt: skip
"""Functions that native source calls, with the number of their operands."""
EQUIVALENTS: dict[str, Any] = {
    "vectormath.erf": np.vectorize(math.erf), "vectormath.erfc": np.vectorize(math.erfc),
    "math.erf": np.vectorize(math.erf),
    "vectormath.logistic": scipy.special.expit, "abs": np.abs,
}  # fmt: skip


def points(dtype: Any) -> tuple[Array, Array]:
    """Return numbers of all sizes, and others to go with them; the first of all kinds."""
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-300, 20.0, -20.0, 700.0], dtype)
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    x, y = rng.normal(size=(2, 400)).astype(dtype) * dtype(3)
    return np.concatenate([pairs[0], x]), np.concatenate([pairs[1], y])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_elementary_functions_are_numpys(tmp_path: Path, dtype: Any) -> None:
    x, y = points(dtype)
    lines = [f"        r{k}[i] = {name}({', '.join('xy'[:n])})" for k, (name, n) in enumerate(FUNCTIONS.items())]
    body = "\n".join([f"def program():\n    for i in range({x.size}):", "        x = a0[i]\n        y = a1[i]", *lines])
    code = program(f"{body}\n    return -1\n", [x, y], [x] * len(FUNCTIONS))
    status, *results = results_of(in_c(tmp_path, code), code, x, y)
    assert status == 0
    for (name, count), result in zip(FUNCTIONS.items(), results, strict=True):
        numpys = EQUIVALENTS.get(name) or getattr(np, name.split(".")[1])
        wanted = np.asarray(numpys(*(x, y)[:count]), dtype)
        tolerance = 4 * np.finfo(dtype).eps * (2 if "power" in name else 1)
        smallest = np.finfo(dtype).tiny
        np.testing.assert_allclose(result, wanted, tolerance, smallest, err_msg=name)


EVERYTHING = """
def program():
    k = 0
    total = 0.0
    for i in range(15):
        if i != 3:
            total += a0[i] * np.float64(i)
            k += i * 4
    r0[0] = total
    r0[1] = 7 * k // 7
    r0[2] = k & 1
    for i in range(18, 4, -1):
        r0[5] += a0[i]
    for i in range(2, 22 if k > 0 else 3):
        r0[6] += a0[i - 2]
        if r0[6] > 1e9:
            pass
    while k > 100:
        k -= 1
        if k < 300 and a0[0] > -1e9:
            break
    r0[3] = k
    flag = a0[0] < 0.0 or not (a0[2] > 0.0 and k != 5)
    r0[7] = (1.0 if flag else 0.0)
    r0[8] = 1.0 if flag else k
    r0[9] = bits_of(a0[0] < 9.0)
    r0[10] = -0.0 if a1[0] == MINUS_ZERO else 3.0
    r0[11] = 4.0 if bits_of(a0[1]) == bits_of(a0[1] + 0.0) else -3.0
    r0[12] = np.float32(0.1) + np.float32(a0[3])
    r0[13] = np.float64(a1[0]) * 1e-18 + total / 4.0
    r0[14] = (a2[0] != 0) + (not flag) + (a0[4] ** 2.0 if a0[4] == a0[4] else math.inf)
    r0[15] = float("nan") if k < 0 else np.int64(a0[5] * 1e6)
    r0[16] = c0[0] + c0[7] * c1[-1] + (1.0 if c2[0] else 0.0) + c3[2]
    r0[17] = abs(a0[6]) + accumulators.added(total, a0[7])
    r0[18] = math.sin(a0[8]) if vectormath.beyond(a0[8]) else vectormath.sin(a0[8])
    r0[19] = accumulators.greater(a0[10], a0[11])
    return -1
"""


def everything() -> CompiledCode:
    """Return a program that has every statement and expression that programs print."""
    table = np.arange(12.0).reshape(3, 4)
    constants = [
        table.T[1:],
        np.array([0.25, -0.5], np.float32)[::-1],
        np.array([True, False]),
        np.arange(3) - (1 << 40),
    ]
    arguments = [np.zeros(20), np.zeros(1, np.int64), np.zeros(3, bool)]
    return program(EVERYTHING, arguments, [np.zeros(20)], constants=constants)


def test_every_statement_and_expression(tmp_path: Path) -> None:
    x = np.random.default_rng(5).normal(size=20)
    arguments = x, np.array([-(1 << 63)]), np.array([True, False, True])
    assert_alike(tmp_path, everything(), *arguments, rtol=1e-14)


def test_constants_of_all_kinds(tmp_path: Path) -> None:
    body = "def program():\n" + "".join(f"    r0[{k}] = c0[{k}]\n    r1[{k}] = c1[{k}]\n" for k in range(6))
    numbers = np.array([0.1, -0.0, np.inf, -np.inf, 5e-324, 1.7976931348623157e308])
    short = np.array([0.1, -0.0, np.inf, 1e-45, 3.4e38, np.nan], np.float32)
    code = program(f"{body}    return -1\n", [1.0], [numbers, short], constants=[numbers, short])
    _, doubles, singles = assert_alike(tmp_path, code, 1.0)
    assert np.signbit(doubles[1])
    assert np.signbit(singles[1])


@pytest.mark.parametrize("name", ["double", "2x", "a b", "exp", ""])
def test_names_that_c_does_not_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        write_c(tmp_path / "f.c", tiny(), (), name)


def test_a_path_that_is_no_c_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not end in \.c"):
        write_c(tmp_path / "f.txt", tiny(), (), "f")


def test_what_c_has_no_counterpart_of_is_refused(tmp_path: Path) -> None:
    body = "def program():\n    r0[0] = apply1_f8(1, 2, a0[0])\n    return -1\n"
    with pytest.raises(UntranslatedError, match="apply1_f8 has no counterpart in C"):
        write_c(tmp_path / "f.c", program(body, [1.0], [1.0]), (), "f")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [3, 6])
def test_small_matrices_are_factored_in_c(tmp_path: Path, n: int, dtype: type) -> None:
    linalg, rng = tape.linalg, np.random.default_rng(n)
    b, w = rng.normal(size=n).astype(dtype), rng.normal(size=(n, n)).astype(dtype)

    def f(a: Any) -> Any:
        values, vectors = linalg.eigh(a)
        total = (values * b).sum() + (vectors * w).sum() + ((linalg.inv(a) + linalg.cholesky(a)) * w).sum()
        total = total + linalg.det(a) + linalg.slogdet(a)[1] + (linalg.eigvalsh(a) * b).sum()
        return total + linalg.solve(a, b).sum() + linalg.cross(a[0, :3], a[1, :3]).sum()

    compiled, a = tape.compile(tape.value_and_grad(f), mode="max"), rng.normal(size=(n, n))
    a = (a @ a.T + np.eye(n)).astype(dtype)
    for _ in range(3):
        compiled(a)
    assert_alike(tmp_path, compiled._native_code()[0], a, rtol=1e-11 if dtype is np.float64 else 1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_narrow_sparse_matrices_are_factored_in_c(tmp_path: Path, dtype: type) -> None:
    n, rng = 9, np.random.default_rng(0)
    line = scipy.sparse.diags_array([1.0, 1.0, 1.0, 1.0], offsets=[-2, -1, 0, 1], shape=(n, n)).tocsr()
    b = rng.normal(size=n).astype(dtype)

    def f(data: Any) -> Any:
        matrix = tape.sparse.csr(line, data)
        return (tape.sparse.spsolve(matrix, b) * tape.sparse.spsolve(matrix.T, data[:n])).sum()

    compiled, data = tape.compile(tape.value_and_grad(f), mode="max"), rng.normal(size=line.nnz).astype(dtype)
    for _ in range(3):
        compiled(data)
    assert_alike(tmp_path, compiled._native_code()[0], data, rtol=1e-9 if dtype is np.float64 else 1e-2)
