"""Vector math as printed kernels call it, against NumPy's and SciPy's ufuncs of 1e5 elements."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.bars import PAIRS, VECTOR_MATH
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from kernels.rules.op import resolved, special
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.bars import Bar, Scoreboard

SIZE = 100_000
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_POSITIVE = ("log", "log2", "log10", "log1p", "power")
_LAST_PLACES = 16.0  # of ours and theirs: SciPy's erfc is not as right as ours


def _ufunc(name: str) -> Any:
    return getattr(np, name, None) or getattr(special, name)


def _arguments(name: str, dtype: str) -> list[Any]:
    """Return arguments of ordinary size."""
    rng = np.random.default_rng(0)
    count = resolved(_ufunc(name)).nin
    low = 0.01 if name in _POSITIVE else -3.0
    return [rng.uniform(low, 3.0, SIZE).astype(dtype) for _ in range(count)]


def _kernel(name: str, arrays: list[Any], out: Any) -> Callable[[], None]:
    """Return a call of the kernel that is printed for the function."""
    ufunc, stride = _ufunc(name), (out.itemsize,)
    rule = (lambda x: ufunc(x)) if len(arrays) == 1 else (lambda a, b: ufunc(a, b))  # noqa: PLW0108 (named operands)
    names = "x" if len(arrays) == 1 else "ab"
    reads = [KernelOperand(n, out.dtype, k, stride) for k, n in enumerate(names, start=1)]
    loop = PrintedLoop(rule, (SIZE,), (KernelOperand("target", out.dtype, 0, stride), *reads), pullback=False)
    address, layout = loop.kernel()
    pointers = np.array([array.__array_interface__["data"][0] for array in (out, *arrays)], np.int64)
    call, places = _CALL(address), [a.__array_interface__["data"][0] for a in (layout, pointers)]

    def run(kept: Any = (layout, pointers, arrays, out)) -> None:  # noqa: ARG001 (held by address)
        call(*places, 0)

    return run


def _both(name: str, dtype: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return NumPy's call and ours, into arrays of their own, after asserting that they agree."""
    arrays, ufunc = _arguments(name, dtype), resolved(_ufunc(name))
    theirs, ours = np.empty(SIZE, dtype), np.empty(SIZE, dtype)
    run = _kernel(name, arrays, ours)
    run()
    ufunc(*arrays, out=theirs)
    assert np.all(np.abs(ours - theirs) <= _LAST_PLACES * np.spacing(np.abs(theirs)))
    return lambda: ufunc(*arrays, out=theirs), run


@pytest.mark.quick
@pytest.mark.parametrize(("name", "dtype"), VECTOR_MATH)
def test_values(name: str, dtype: str) -> None:
    """The kernel's values are the ufunc's."""
    _both(name, dtype)


@pytest.mark.parametrize(("name", "dtype"), VECTOR_MATH)
def test_against_ufuncs(name: str, dtype: str, scoreboard: Scoreboard) -> None:
    """Measure the ufunc over the kernel."""
    bar: Bar = VECTOR_MATH[name, dtype]
    measured = ratio(*_both(name, dtype), pairs=PAIRS, min_time=0.002)
    scoreboard.add(bar, measured.median, str(measured))
