"""NumPy's arrays and scalars beside tensors: native code takes them for tensors, with NumPy's numbers, each time."""

from __future__ import annotations

import contextlib
import gc
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tape.recording.record import recorded

if TYPE_CHECKING:
    from conftest import Fresh

X = np.linspace(0.5, 2.0, 6).reshape(2, 3)
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
    "<": operator.lt, "==": operator.eq, "maximum": np.maximum, "logaddexp": np.logaddexp,
    "where": lambda a, b: np.where(X > 1.0, a, b), "hypot": np.hypot,
}  # fmt: skip
NUMBERS = np.arange(1.0, 13.0).reshape(2, 6) / 4.0
GIVEN: dict[str, Any] = {
    "an array": NUMBERS[:, :3].copy(),
    "a row": NUMBERS[0, :3].copy(),
    "every second": NUMBERS[:, ::2],
    "turned": np.arange(1.0, 7.0).reshape(3, 2).T,
    "backwards": NUMBERS[:, :3].copy()[::-1],
    "read only": np.broadcast_to(np.array([1.0, 2.0, 3.0]), (2, 3)),
    "singles": NUMBERS[:, :3].astype(np.float32),
    "int64": np.arange(1, 7).reshape(2, 3),
    "int8": np.arange(1, 4, dtype=np.int8),
    "bools": np.array([True, False, True]),
    "foreign bytes": NUMBERS[:, :3].astype(">f8"),
    "0-d": np.array(1.5),
    "float64": np.float64(1.5),
    "float32": np.float32(1.5),
    "int64 scalar": np.int64(2),
    "bool scalar": np.bool_(True),
}


HALVES = ("logaddexp", "hypot")
"""What NumPy computes in halves beside booleans and the shortest integers."""
OPERANDS = [
    (op, name)
    for op in OPERATIONS
    for name, given in GIVEN.items()
    if op not in HALVES or getattr(given, "dtype", None) not in (np.bool_, np.int8)
]


@pytest.mark.parametrize(("op", "name"), OPERANDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_operations_beside_arrays_are_numpys(op: str, name: str, dtype: Any) -> None:
    given, run, x = GIVEN[name], OPERATIONS[op], X.astype(dtype)
    for mine in (given, given + given if name not in ("bools", "bool scalar") else given):
        with np.errstate(divide="ignore"):
            expected = run(x, mine), run(mine, x)
        for _ in range(3):
            found = run(tape.tensor(x), mine), run(mine, tape.tensor(x))
            graded = run(tape.tensor(x, requires_grad=True), mine)
            for one, two in zip((*found, graded.detach()), (*expected, expected[0]), strict=True):
                assert one.dtype == two.dtype
                np.testing.assert_allclose(one.numpy(), two, rtol=1e-6 if dtype is np.float32 else 1e-14)


@pytest.mark.parametrize("name", [name for name in GIVEN if "bool" not in name])
@pytest.mark.parametrize("op", ["*", "/", "**", "-"])
def test_gradients_beside_arrays(op: str, name: str) -> None:
    given, run, slope = GIVEN[name], OPERATIONS[op], 1e-6
    for _ in range(3):
        for left in (True, False):
            x = tape.tensor(X, requires_grad=True)
            y = run(x, given) if left else run(given, x)
            y.sum().backward()
            up, down = X + slope, X - slope
            there = (run(up, given) - run(down, given)) if left else (run(given, up) - run(given, down))
            assert x.grad is not None
            np.testing.assert_allclose(x.grad.numpy(), there / (2 * slope), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_in_place_with_arrays(requires_grad: bool) -> None:
    a, row = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 4.0])
    for _ in range(3):
        x = tape.tensor(X, requires_grad=requires_grad)
        y = x * 1.0
        y += a
        y *= row
        y -= np.float64(0.5)
        y[0] = row
        y[1, np.int64(1)] = np.float64(7.0)
        expected = (X + a) * row - 0.5
        expected[0], expected[1, 1] = row, 7.0
        np.testing.assert_array_equal(y.detach().numpy(), expected)
        if requires_grad:
            y.sum().backward()
            assert x.grad is not None
            assert x.grad.tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 4.0]]


def test_what_is_kept_of_an_array_is_its_memory_not_its_object() -> None:
    for _ in range(3):
        a = np.arange(1.0, 7.0).reshape(2, 3)
        x = tape.tensor(X, requires_grad=True)
        y = x * a
        a.shape = (3, 2)  # the object is the user's
        (g,) = tape.autograd.grad(y.sum(), x, create_graph=True)
        assert g.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
        assert y.grad_fn is not None
        (saved,) = [s for s in (y.grad_fn._saved_self, y.grad_fn._saved_other) if s is not None]
        assert saved.shape == (2, 3)


def test_a_process_whose_first_operand_of_numpys_is_a_scalar_leaves_it_to_native_code(fresh: Fresh) -> None:
    process = fresh("""
import sys
import numpy as np, tape
x, number, seen = tape.tensor(0.5, requires_grad=True), np.float64(0.25), []
for _ in range(3):
    x * number + number
sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_qualname) if event == "call" else None)
y = x * number + number
sys.setprofile(None)
print(y.item(), seen)
""")
    output, errors = process.communicate(timeout=100)
    assert (output, errors) == ("0.375 []\n", "")


def test_no_reference_to_an_array_is_left() -> None:
    a, number, x = np.ones((2, 3)), np.float64(3.0), tape.tensor(X, requires_grad=True)
    other = np.full((4, 3), 1.0)
    for _ in range(5):
        (x * a * number).sum().backward()
    gc.collect()
    recorded()
    before = sys.getrefcount(a), sys.getrefcount(number), sys.getrefcount(a.dtype)
    for _ in range(50):
        (x * a * number + a).sum().backward()
        a * x
        with pytest.raises(RuntimeError, match="must match"):
            x + other
    gc.collect()
    recorded()  # which drops what is dead
    assert abs(sys.getrefcount(a.dtype) - before[2]) < 10
    assert (sys.getrefcount(a), sys.getrefcount(number)) == before[:2]


def test_more_shapes_than_are_known_at_once() -> None:
    x = tape.tensor(2.0, requires_grad=True)
    for _ in range(2):
        for n in range(1, 600):
            a = np.full(n, 3.0)
            assert (x * a).tolist() == [6.0] * n


def test_programs_hold_arrays_as_constants() -> None:
    a = np.array([1.0, 2.0, 4.0])
    x = tape.tensor([1.0, 1.0, 1.0], requires_grad=True)
    for _ in range(3):
        x * a

    program = tape.record(lambda v: (v * a * np.float64(2.0)).sum(), x)
    value, (gradient,) = program.value_and_grad(np.ones(3))
    assert value == 14.0
    assert gradient.tolist() == [2.0, 4.0, 8.0]


def test_finalizers_that_change_an_array_are_seen() -> None:
    class Reshaping:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            a.shape = (6,)

    x, thresholds = tape.tensor(X), gc.get_threshold()
    a = np.arange(6.0).reshape(2, 3)
    assert (x * a).shape == (2, 3)
    held = []
    try:
        for k in range(40):
            a.shape = (2, 3)
            Reshaping()
            gc.set_threshold(gc.get_count()[0] + k)
            with contextlib.suppress(RuntimeError):  # the shapes need not match any more
                held.append(x * a)
            gc.set_threshold(*thresholds)
            gc.collect()
    finally:
        gc.set_threshold(*thresholds)
    for y in held:
        np.testing.assert_array_equal(y.numpy(), X * np.arange(6.0).reshape(2, 3))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_and_masks_go_the_way_they_went() -> None:
    x = tape.tensor(X)
    for _ in range(3):
        with pytest.raises(TypeError, match="mask"):
            x * np.ma.masked_array(X, X > 1.0)
        assert (x * np.asmatrix(X)).tolist() == (X * X).tolist()
        with pytest.raises(TypeError):
            x * np.array(["a"])
        with pytest.raises(TypeError):
            x * (X + 1j)
        with pytest.raises(TypeError, match="hold floats"):
            x == np.array(["a", "b", "c"])  # noqa: B015 (the call counts)


@pytest.mark.parametrize("shapes", [((2, 3), (3, 2)), ((2, 3), (3,)), ((3,), (3, 2)), ((3,), (3,))])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_products_with_arrays(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> None:
    a, b = (np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape) for shape in shapes)
    for factor in (1, 2, 3):
        given = (b * factor).astype(dtype)
        x = tape.tensor(a, requires_grad=True)
        for y in (
            x @ given,
            tape.matmul(x, given),
            np.matmul(x, given),
            tape.tensor(a) @ given,
            a @ tape.tensor(given),
        ):
            np.testing.assert_array_equal(y.detach().numpy(), a @ given, strict=True)
        (x @ given).sum().backward()
        assert x.grad is not None
        expected = np.broadcast_to(given.sum(-1) if given.ndim == 2 else given, a.shape)
        np.testing.assert_array_equal(x.grad.numpy(), expected)
        with pytest.raises(RuntimeError, match=r"shape|size"):
            x @ np.ones(5)


@pytest.mark.parametrize("op", ["<", "==", "*", "-", "/", "maximum"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_tensors_of_several_dtypes(op: str, shape: tuple[int, ...]) -> None:
    values = {kind: (np.arange(1, 1 + np.prod(shape)) * 3).reshape(shape).astype(kind) for kind in ("f8", "f4", "i8")}
    values["i8"] = values["i8"] + 2**53 - 2  # 2**53 + 1 is among them
    for _ in range(3):
        for one, left in values.items():
            for two, right in values.items():
                a, b = np.asarray(left), np.asarray(right)
                found = OPERATIONS[op](tape.from_numpy(a), tape.from_numpy(b))
                if op != "maximum" and {one, two} == {"i8", "f4"}:  # NumPy's function promotes as NumPy does
                    a, b = a.astype("f4"), b.astype("f4")
                expected = np.asarray(OPERATIONS[op](a, b))
                np.testing.assert_array_equal(found.numpy(), expected, err_msg=f"{one} {two}")
                if "i8" not in (one, two) and op != "==":
                    y = OPERATIONS[op](tape.tensor(a, requires_grad=op != "<"), tape.tensor(b))
                    assert y.dtype == found.dtype


def test_arrays_without_dims_are_read_each_time() -> None:
    x, z = tape.tensor([1.0, 2.0], requires_grad=True), np.array(2.0)
    for k in range(5):
        z[...] = k
        y = x * z + np.int64(k) - np.float64(1.0)
        assert y.tolist() == [k + k - 1.0, 2 * k + k - 1.0]
        (gradient,) = tape.autograd.grad(y.sum(), x)
        assert gradient.tolist() == [k, k]
        assert (x > np.int64(k)).tolist() == [k < 1, k < 2]
        assert (tape.tensor([1, 2**53 + 1]) > np.int64(2**53)).tolist() == [False, True]
        assert (tape.tensor([1, 2**53 + 1]) * np.int64(k)).tolist() == [k, (2**53 + 1) * k]
        swapped = np.array(2.0 + k, ">f8")
        assert (x * swapped).tolist() == [2.0 + k, 4.0 + 2 * k]
