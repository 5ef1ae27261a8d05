"""Compiled functions in files: replayed without their source, refused where they were not recorded."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError
from tape.errors import FileFormatError
from tape.tensors.pytrees import leaves
from tests.conftest import Fresh

X = np.array([0.5, -1.0, 2.0])
WEIGHTS = np.array([1.0, 2.0, 3.0])


def branching(x: Any, n: int = 2) -> Any:
    y = x * WEIGHTS
    return (y**n).sum() if x[0] > 0 else y * n


def saved(function: Any, *calls: tuple[Any, ...], **options: Any) -> Any:
    """Compile, call, save and load a function."""
    compiled = tape.compile(function, **options)
    for args in calls:
        for _ in range(3):
            compiled(*args)
    file = io.BytesIO()
    compiled.save(file)
    file.seek(0)
    return tape.load(file)


def test_a_loaded_function_goes_all_ways_that_were_recorded() -> None:
    loaded = saved(branching, (X,), (-X,), (X, 3))
    for args in ((X,), (-X,), (X * 2,), (-3 * X,), (X, 3)):
        np.testing.assert_array_equal(loaded(*args), np.asarray(branching(tape.tensor(args[0]), *args[1:])._value))
    with pytest.raises(ProgramError, match=r"at .*test_saved_functions.py:\d+ another value leaves for Python"):
        loaded(-X, 3)
    for wrong in ((X, 4), (np.ones(4),), (X, 2.0), ()):
        with pytest.raises(TypeError):
            loaded(*wrong)
    assert "3 programs" in repr(loaded)


def test_what_is_outside_is_kept_as_it_was() -> None:
    number, parameter = tape.tensor(2.0), tape.tensor(X, requires_grad=True)
    loaded = saved(lambda x: x * number * parameter, (tape.tensor(X),))
    number.fill_(5.0)
    np.testing.assert_array_equal(loaded(X), 2 * X * X)


GRADIENTS: dict[str, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {
    "one": (lambda x: (x**3).sum(), {}, (X,)),
    "two": (lambda x, y: (x * y).sum(), {"argnums": (1, 0)}, (X, 2.0)),
    "second": (lambda x, y: (x * y**2).sum(), {"argnums": 1}, (X, 2.0)),
    "aux": (lambda x: ((x * x).sum(), x * 2), {"has_aux": True}, (X,)),
    "structure": (lambda p: (p["a"] * p["b"]).sum(), {}, ({"a": X, "b": 2.0},)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function, options, args = GRADIENTS[name]
    both = tape.value_and_grad(function, **options)
    for one, other in zip(leaves(saved(both, args)(*args)), leaves(both(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_nothing_to_save_and_damage() -> None:
    with pytest.raises(ProgramError, match="branching has no program yet"):
        tape.compile(branching).save(io.BytesIO())
    compiled, file = tape.compile(branching), io.BytesIO()
    for _ in range(3):
        compiled(X)
    compiled.save(file)
    data = bytearray(file.getvalue())
    for at in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises((FileFormatError, ValueError)):
            tape.load(io.BytesIO(damaged))
        with pytest.raises((FileFormatError, ValueError)):
            tape.load(io.BytesIO(data[:at]))


AT, ELSE, M = np.array([0, -1, 1, 1]), np.array([2, 0, 0, -3]), np.linspace(-1.0, 2.0, 12).reshape(4, 3) ** 2


def binned(x: Any, t: Any) -> Any:
    """Interpolate in a table: indices are computed from values."""
    k = tape.floor(t).to(tape.int64)
    return (x[k] * (1 - t + k) + x[k + 1] * (t - k)).sum() + x[x.argmin()]


def converged(x: Any, i: Any) -> Any:
    """Add at indices, and pick by them in a loop that a value ends."""
    z = tape.zeros(3).index_add(0, tape.as_tensor(i) + 3 * (tape.as_tensor(i) < 0), x[i])
    while (abs(z).sum() > 0.5).item():
        z = z * 0.5 + x[i].sum() * 1e-3
    return z.sum()


def energy(q: Any) -> Any:
    return (tape.cos(q) + 0.1 * q[0] * q**2).sum()


INDEXED: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "an argument": (lambda x, i: (x[i] ** 2).sum(), (X, AT), (2 * X, ELSE)),
    "two": (lambda m, i, j: (m[i, j] ** 2).sum(), (M, AT, ELSE % 3), (M.T.reshape(4, 3), ELSE, AT % 3)),
    "along a dim": (lambda m, i: (tape.take_along_dim(m, i[None, 1:], 0) ** 2).sum(), (M, AT), (2 * M, ELSE)),
    "sorted": (lambda x, w: (x[x.argsort()] * w).sum(), (X, WEIGHTS), (-2 * X, WEIGHTS + 1)),
    "a table": (binned, (np.arange(6.0) ** 2, np.array([0.3, 2.5])), (np.arange(6.0) ** 1.5, np.array([4.9, 1.1]))),
    "in a loop": (converged, (X, AT), (2 * X, ELSE)),
    "mapped": (
        lambda m, i: (tape.vmap(lambda r, k: r[k] ** 2)(tape.as_tensor(m), tape.as_tensor(i))).sum(),
        (M, AT),
        (2 * M, ELSE),
    ),
    "a gradient inside": (lambda x: (tape.func.grad(energy)(x) ** 2).sum(), (X,), (X[::-1].copy(),)),
    "a Hessian inside": (lambda x: (tape.func.hessian(energy)(x) ** 3).sum(), (X,), (X[::-1].copy(),)),
    "a tangent inside": (lambda x, v: tape.func.jvp(energy, (x,), (v,))[1], (X, WEIGHTS), (X + 1, WEIGHTS**2)),
}
"""Programs with computed indices, and with derivatives inside; arguments to record, and others."""


@pytest.mark.parametrize("name", [pytest.param("two", marks=pytest.mark.quick), *sorted(INDEXED.keys() - {"two"})])
def test_computed_indices_and_inner_gradients(name: str) -> None:
    function, *calls = INDEXED[name]
    loaded = saved(tape.value_and_grad(function), calls[0], check="never")
    for args in calls:
        for one, other in zip(leaves(loaded(*args)), leaves(tape.value_and_grad(function)(*args)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_an_index_out_of_bounds_raises() -> None:
    loaded = saved(*INDEXED["an argument"][:2])
    with pytest.raises(ProgramError, match=r"at .*test_saved_functions.py:\d+ another value leaves"):
        loaded(X, AT + 2)


def test_native_code_calls_a_loaded_function(tmp_path: Any) -> None:
    loaded = saved(tape.value_and_grad(INDEXED["an argument"][0]), INDEXED["an argument"][1])
    value, gradient = np.zeros(()), np.zeros(3)
    assert loaded.ctypes(X, ELSE, value, gradient) == 0
    assert value == (X[ELSE] ** 2).sum()
    np.testing.assert_array_equal(gradient, np.bincount(ELSE % 3, 2 * X[ELSE], 3))
    loaded.export_c(tmp_path / "picked.c", name="picked")
    assert "picked(const double *x0, const int64_t *x1, double *value, double *grad_x0)" in (
        tmp_path / "picked.h"
    ).read_text(encoding="utf-8")


def test_c_has_no_sort(tmp_path: Any) -> None:
    compiled = tape.compile(INDEXED["sorted"][0])
    for _ in range(3):
        compiled(X, WEIGHTS)
    with pytest.raises(
        TypeError, match=r"argsort, which Python runs, has no .* in C, at .*functions.py:\d+.*; compute"
    ):
        compiled.export_c(tmp_path / "sorted.c", name="sorted_in_c")
    assert not list(tmp_path.iterdir())


ELSEWHERE = """
import numpy as np
import tape
print(tape.load({path!r})(np.array([1.0, 1.0, 2.0])))
"""


def test_another_process_has_no_source(fresh: Fresh, tmp_path: Any) -> None:
    compiled = tape.compile(branching)
    for _ in range(3):
        compiled(X)
    path = str(tmp_path / "branching.tape")
    compiled.save(path)
    assert fresh(ELSEWHERE.format(path=path)).communicate(timeout=120) == ("41.0\n", "")
