"""Native source is translated as Python means it, and NumPy; what cannot be translated is named."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kernels
from kernels.language import jit
from kernels.language.expressions import UntranslatedError
from kernels.language.llvm_values import Array, Int32, Struct
from kernels.rules import elements
from tests.support import native_texts

WHOLE = """
from __future__ import annotations
LIMIT = 1 << 40
PAIR = (3, 5)

def clipped(x, low, high):
    return min(max(x, low), high)

def is_odd(x):
    return x % 2 != 0

def divided(a: int, b: int) -> int:
    return (a // b) * 1000 + a % b

def bits(a: int, b: int) -> int:
    return ((a & b) | (a ^ 7)) + (~a << 2) - (a >> 1) + (a * b)

def branches(a: int, b: int) -> int:
    if a > b and (b > 0 or a == 0):
        return 1
    elif not is_odd(a):
        return 2 if b < 0 else 3
    return 4 + (a in (1, -5)) + 10 * (b not in (2, 3))

def looped(a: int, b: int) -> int:
    total, k = 0, 0
    for k in range(a):
        if k % 3 == 0:
            continue
        for j in range(b, -b, -2):
            if j == k:
                break
            total += j * k
    while True:
        total += 1
        if total % 7 == 0:
            break
    while k > 0:
        k -= 2
    return total * 10 + k

def swapped(a: int, b: int) -> int:
    a, b = b, a + 1
    both = a, b
    return both[0] * 100 + both[1] + PAIR_SUM

def helped(a: int, b: int) -> int:
    return clipped(a, -LIMIT, b) + abs(a) + (1 < a < 9) + (a if is_odd(a) else clipped(b, 0, 1))
PAIR_SUM = 3 + 5 * 2
"""
NUMBERS = [-9, -5, -2, -1, 0, 1, 2, 3, 5, 8, 13]


@pytest.mark.parametrize("name", ["divided", "bits", "branches", "looped", "swapped", "helped"])
def test_integers_as_python_computes(name: str) -> None:
    module = jit.load_source("whole", WHOLE)
    native = getattr(module, name).entry_point
    plain: dict[str, Callable[..., int]] = {}
    exec(WHOLE, plain)  # noqa: S102
    for a in NUMBERS:
        for b in NUMBERS:
            if name != "divided" or b:
                assert native(a, b) == plain[name](a, b), (a, b)


ONE = """
from __future__ import annotations
import math
import numpy as np
from kernels.native.memory import pointer_{0}

def kernel(layout: Words, pointers: Words, accumulate: Word) -> Void:
    a, b, y = pointer_{0}(pointers[0]), pointer_{0}(pointers[1]), pointer_{0}(pointers[2])
    for k in range(np.uint64(layout[0])):
        y[k] = {1}
"""
FUNCTIONS = [
    *(f"np.{name}" for name in (
        "exp2", "expm1", "log2", "log10", "log1p", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "arcsinh",
        "arccosh", "arctanh", "hypot", "floor", "ceil", "rint", "trunc", "fmod", "copysign", "signbit", "isinf",
        "isfinite", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "cbrt", "deg2rad", "rad2deg",
        "degrees", "radians", "remainder",
    )),
    "math.sin", "math.cos", "math.tan", "math.exp", "math.log", "math.tanh", "math.sqrt", "abs",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["f8", "f4"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_as_numpy_computes(name: str, kind: str) -> None:
    function: Callable[..., np.ndarray] = getattr(np, name.rsplit(".", maxsplit=1)[-1])
    dtype = np.dtype(kind)
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.3, -2.5, 7.5, 1e-3]
    a, b = (x.ravel().astype(dtype) for x in np.meshgrid(edges, edges))
    operands = "a[k], b[k]" if getattr(function, "nin", 1) == 2 else "a[k]"
    y = np.empty_like(a)
    run(ONE.format(kind, f"{name}({operands})"), a, b, y)
    with np.errstate(all="ignore"):
        expected = function(a, b) if "b" in operands else function(a)
    np.testing.assert_allclose(y, expected.astype(dtype), rtol=8 * np.finfo(dtype).eps)


def run(text: str, *arrays: np.ndarray) -> None:
    address = jit.load_source("one", text).kernel.address
    layout = np.array([arrays[0].size], np.int64)
    pointers = np.array([x.ctypes.data for x in arrays], np.int64)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64)(address)(layout.ctypes.data, pointers.ctypes.data, 0)


def test_literals_and_conversions() -> None:
    a, b, y = np.array([2.5, -2.5]), np.array([3.0, 0.25]), np.empty(2)
    run(
        ONE.format("f8", "(a[k] ** 2.0 - np.int64(a[k])) * (b[k] if a[k] < 0 else float('inf')) + (a[k] > b[k])"),
        a,
        b,
        y,
    )
    assert y.tolist() == [math.inf, (6.25 + 2) * 0.25]


@pytest.mark.parametrize(
    ("line", "said"),
    [("y[k] = [a[k]]", "y[k] = [a[k]]"), ("y[k] = np.bessel(a[k])", "np.bessel"), ("with a: pass", "with a")],
)
def test_what_it_does_not_know_is_named(line: str, said: str) -> None:
    text = ONE.format("f8", "0.0").replace("y[k] = 0.0", line)
    with pytest.raises((UntranslatedError, AttributeError)) as caught:
        _ = jit.load_source("unknown", text).kernel.address
    assert any(said in note for note in caught.value.__notes__)


def test_python_calls_with_integers_only() -> None:
    native = jit.load_source("whole", WHOLE).divided.entry_point
    assert native(np.int64(7), True) == 7000
    assert native(-1, 1) == -1000
    for wrong in ((), (1,), (1, 2, 3), ("1", 2), (1, 2.5), (None, None)):
        with pytest.raises(TypeError):
            native(*wrong)


@pytest.mark.parametrize("path", sorted(Path(kernels.__file__).parent.rglob("*_native.py")), ids=lambda path: path.stem)
def test_every_native_module_is_translated(path: Path) -> None:
    text = path.read_text()
    for dtype in ("float64", "float32") if elements.__name__ in text else ("float64",):
        meaning = {elements.__name__: elements.meaning(np.dtype(dtype))}
        assert len(jit._executed(f"all_{dtype}", text, jit.FunctionPart("", meaning)).compiled()) > 0


def test_one_function_of_a_module_is_compiled_for_a_dtype() -> None:
    """Alone, under a name of its own, with what its source imports meant as asked."""
    found = {
        dtype.name: jit.load_function(
            "rules.rows_native", "norm2", dtype.name, {elements.__name__: elements.meaning(dtype)}
        )
        for dtype in (np.dtype(np.float64), np.dtype(np.float32))
    }
    for dtype, native in found.items():
        module = native.function.__globals__
        assert [one.function.__name__ for one in native.unit.entries] == ["norm2"]
        assert module["ITEM"] == np.dtype(dtype).itemsize
        assert type(module["LEAST"]) is np.dtype(dtype).type
        assert f"norm2_{dtype}" in native.unit.name
    assert found["float64"].address != found["float32"].address
    assert np.dtype(np.float64).itemsize == elements.ITEM  # the module itself is as it was


def test_a_unit_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _ = jit.load_source("whole", WHOLE).divided.address
    monkeypatch.setattr(jit.Unit, "compiled", None)
    _ = jit.load_source("whole", WHOLE).bits.address


FIRST = """
import tape
x = tape.tensor([1., 2., 3.], requires_grad=True)
y = (x * tape.sin(x)).sum()
y.backward()
print(y, x.grad)
"""


MOST_CODE = 225_000
"""Bytes of machine code that a first gradient needs; translating takes a second for some 100,000."""


def test_the_first_gradient_comes_soon(tmp_path: Path, figures: list[str]) -> None:
    """README's first example, with an empty cache, has little to compile: `bench_import.py` has the time."""
    environment = {**os.environ, "TAPE_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, env=environment)
    written = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    figures.append(f"first gradient with an empty cache: {sum(written)} bytes of machine code in {len(written)} files")
    assert 100_000 <= sum(written) <= MOST_CODE


RUNS = """
from __future__ import annotations
from kernels.native.memory import pointer_f8, pointer_i8

CONTROL = True

def fill(place, count, number):
    x = pointer_f8(place)
    for k in range(count):
        x[k] = number

def least(place, count):
    x = pointer_i8(place)
    found = x[0]
    for k in range(count):
        found = min(found, x[k])
    return found

def both(place: Word, count: Word) -> Word:
    fill(place, count, -1.5)
    fill(place, 1, 2.0)
    return least(place, count)
"""


def test_loops_over_elements_are_vectorised_in_control_code(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    optimized = jit._optimized

    def seen(*args: object, **kwargs: bool) -> object:
        found = optimized(*args, **kwargs)
        texts.append(str(found))
        return found

    monkeypatch.setattr(jit, "_optimized", seen)
    module = jit.load_source("runs", RUNS + f"# {os.urandom(8).hex()}\n")
    array = np.ones(1000)
    both = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(module.both.address)
    assert both(array.ctypes.data, 1000) == np.array(-1.5).view(np.int64)
    assert array.tolist() == [2.0] + [-1.5] * 999
    control, loops = texts
    assert " x double>" in loops
    assert " x i64>" in loops
    assert " x double>" not in control


# Structs.


class Point(Struct):
    """Words."""

    x: int
    y: int
    next: Point
    places: Array[int]


class Head(Struct, start=4, step=4):
    """Halves of words."""

    low: Int32
    high: Int32


STRUCTS = """
from __future__ import annotations
from tests.language.test_translation import Head, Point

def moved(p: Point, by):
    p.x += by
    p.y = p.x * 2
    return p.next

def fields(p: Point, k: int) -> int:
    q = moved(p, k)
    q.x = 7
    q.places[k] = p.places[0] + 1
    q.places[0] += 5
    return p.x * 100 + p.y + p.next.x

def halves(address: int) -> int:
    head = Head(address)
    head.low = -3
    head.high = head.low - 1
    return head.low * 10 + head.high

def swapped(p: Point) -> None:
    p.x, p.y = p.y, p.x

def by_address(address: int) -> int:
    return Point(address).next.y + Point.SIZE * 1000 + Point.places
"""


def test_fields_of_structs() -> None:
    module = jit.load_source("structs", STRUCTS)
    places = np.array([10, 20, 30, 40])
    second = np.array([1, 2, 0, places.ctypes.data])
    first = np.array([3, 4, second.ctypes.data, places.ctypes.data])
    assert module.fields(first.ctypes.data, 2) == 5 * 100 + 10 + 7
    assert (first[:2].tolist(), second[:2].tolist(), places.tolist()) == ([5, 10], [7, 2], [15, 20, 11, 40])
    assert module.by_address(first.ctypes.data) == 2 + 4003
    module.swapped(first.ctypes.data)
    assert first[:2].tolist() == [10, 5]
    head = np.arange(4, dtype=np.int32)
    assert module.halves(head.ctypes.data) == -34
    assert head.tolist() == [0, -3, -4, 3]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("p.y = p.x * 2", "p.z = p.x * 2", "Point has no field 'z'"),
        ("head = Head(address)", "head = address", "int64 has no field 'low'"),
    ],
)
def test_a_field_that_is_not_there(old: str, new: str, said: str) -> None:
    with pytest.raises(UntranslatedError, match=said):
        _ = jit.load_source("unknown", STRUCTS.replace(old, new)).fields.address


def test_an_exported_function_annotates_all() -> None:
    with pytest.raises(TypeError, match="annotate its parameter 'by'"):
        jit.load_source("unknown", STRUCTS.replace("def moved(p: Point, by):", "def moved(p: Point, by) -> int:"))


def test_texts_of_native_code_are_compared_up_to_names() -> None:
    """Planted faults: another field, another constant."""
    texts = {
        name: native_texts.texts_of(jit.load_source(name, text).fields.unit)
        for name, text in (
            ("structs", STRUCTS), ("renamed", STRUCTS.replace("moved", "gone")),
            ("field", STRUCTS.replace("q.x = 7", "q.y = 7")), ("constant", STRUCTS.replace("q.x = 7", "q.x = 8")),
        )
    }  # fmt: skip
    same = {
        name: [part.replace(name, "structs").replace("gone", "moved") for part in parts]
        for name, parts in texts.items()
    }
    assert native_texts.differing({"a": same["structs"]}, {"a": same["renamed"]}) == []
    for fault in ("field", "constant"):
        assert native_texts.differing({"a": same["structs"]}, {"a": same[fault]}) == ["a"]
