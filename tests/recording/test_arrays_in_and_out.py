"""Arrays that come in and go out: they share memory, never an object; subclasses, byte orders and huge integers."""

from __future__ import annotations

import copy
import io
import itertools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation.specs import spec_of
from tests.support.representatives import in_turns

VALUES = np.array([1.0, 2.0, 3.0, 4.0])

# --- NumPy's subclasses -----------------------------------------------------------------------------------------


def memmap(folder: Path) -> Any:
    array = np.memmap(folder / "values", np.float64, "w+", shape=(4,))
    array[:] = VALUES
    return array


class Own(np.ndarray):
    """A subclass of the user's."""


SUBCLASSES: dict[str, Callable[[Path], Any]] = {
    "memmap": memmap,
    "part of a memmap": lambda folder: memmap(folder)[:],
    "subclass": lambda _: VALUES.copy().view(Own),
    "recarray": lambda _: VALUES.copy().view(np.recarray),
    "array": lambda _: VALUES.copy(),
}
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "from_numpy": tape.from_numpy,
    "as_tensor": tape.as_tensor,
    "asarray": lambda a: tape.ones(1).__array_namespace__().asarray(a),
    "tensor": tape.tensor,
    "from_dlpack": tape.from_dlpack,
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", SUBCLASSES)
def test_what_pullbacks_need_of_a_subclass_is_saved_before_a_write(kind: str, entry: str, tmp_path: Path) -> None:
    w, x = tape.ones(4, requires_grad=True), ENTRIES[entry](SUBCLASSES[kind](tmp_path))
    y = w * x
    x.mul_(10.0)
    y.sum().backward()
    np.testing.assert_array_equal(w.grad, VALUES)


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_subclass_as_operand(kind: str, tmp_path: Path) -> None:
    w, array = tape.ones(4, requires_grad=True), SUBCLASSES[kind](tmp_path)
    for y in (w * array, array * w, w.mul(array), np.multiply(w, array)):
        assert type(y) is tape.Tensor
        w.grad = None
        y.sum().backward()
        np.testing.assert_array_equal(w.grad, VALUES)


def test_a_memory_map_is_written_through(tmp_path: Path) -> None:
    array = memmap(tmp_path)
    tape.from_numpy(array).mul_(2.0)
    np.testing.assert_array_equal(array, VALUES * 2)


def test_a_matrix_is_an_array_of_two_dims() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    for entry in ("from_numpy", "as_tensor", "tensor", "asarray"):
        x = ENTRIES[entry](matrix).requires_grad_()
        (x * x).sum(0).sum().backward()
        assert x[0].shape == (2,)
        np.testing.assert_array_equal(x.grad, 2 * np.asarray(matrix))


MASKED = [*ENTRIES, "operand", "index", "write", "where", "copy_"]
MASKED.remove("from_dlpack")  # NumPy itself decides


@pytest.mark.parametrize("entry", MASKED)
def test_a_masked_array_is_refused_with_the_remedy(entry: str) -> None:
    masked, x = np.ma.masked_array(VALUES, VALUES > 2.0), tape.ones(4)
    uses: dict[str, Callable[[Any], Any]] = {
        **ENTRIES,
        "operand": lambda a: x * a,
        "index": lambda a: x[a.astype(int)],
        "write": lambda a: x.__setitem__(Ellipsis, a),
        "where": lambda a: tape.where(x > 0, x, a),
        "copy_": x.copy_,
    }
    with pytest.raises(TypeError, match=re.escape("filled(")):
        uses[entry](masked)
    np.testing.assert_array_equal(x, np.ones(4))


# --- the object is the tensor's own ----------------------------------------------------------------------------

CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.numpy(),
    "detach": lambda x: x.detach().numpy(),
    "data": lambda x: x.data.numpy(),
    "force": lambda x: x.numpy(force=True),
    "asarray": np.asarray,
    "__array__": lambda x: x.__array__(),
    "copy=False": lambda x: np.array(x, copy=False),
    "dlpack": np.from_dlpack,
    "view": lambda x: x[:].numpy(),
    "program": lambda x: tape.record(lambda a: a, np.zeros(4))(x.numpy()),
    "gradient": lambda x: tape.value_and_grad(lambda a: (a * x).sum())(np.zeros(4))[1],
    "gradient of a sum": lambda x: tape.value_and_grad(lambda a: (a + x).sum())(np.zeros(4))[1],
}


def abused(array: Any) -> None:
    """Change all that can be changed of an array but its elements."""
    for change in (
        lambda: setattr(array, "shape", (2, 2)),
        lambda: setattr(array, "strides", (0, 8)),
        lambda: setattr(array, "dtype", np.int64),
        lambda: array.resize((8,), refcheck=True),
        lambda: array.setflags(write=False),
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                change()
        except (ValueError, AttributeError, TypeError):
            pass


def check(x: Any) -> None:
    np.testing.assert_array_equal(x.detach(), VALUES)
    assert x.shape == (4,)
    assert x.dtype == tape.float64
    leaf = tape.ones(4, requires_grad=True)
    (leaf * x).sum().backward()
    np.testing.assert_array_equal(leaf.grad, VALUES)
    x.mul_(2.0)
    np.testing.assert_array_equal(x, VALUES * 2)


@pytest.mark.parametrize("way", CONVERSIONS)
def test_an_array_given_away_is_not_the_tensors_own(way: str) -> None:
    x = tape.tensor(VALUES)
    abused(CONVERSIONS[way](x))
    check(x)


@pytest.mark.parametrize("entry", ["from_numpy", "as_tensor", "asarray"])
def test_an_array_taken_is_not_the_tensors_own(entry: str) -> None:
    array = VALUES.copy()
    x = ENTRIES[entry](array)
    array[0] = 1.0
    abused(array)
    check(x)


def test_an_operand_may_get_another_shape_before_the_backward() -> None:
    array, leaf = VALUES.copy(), tape.ones(4, requires_grad=True)
    y = (leaf * array).cumsum(0) * array
    abused(array)
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad, VALUES * VALUES[::-1].cumsum()[::-1])


def test_the_memory_is_shared() -> None:
    x = tape.tensor(VALUES)
    for way in ("numpy", "detach", "data", "asarray", "dlpack"):
        array = CONVERSIONS[way](x)
        array[1] += 1.0
        assert x[1] == array[1]
        x[2] = array[0]
        assert array[2] == x[0]


def test_gradients_given_away() -> None:
    x = tape.tensor(VALUES, requires_grad=True)
    (x * x).sum().backward()
    abused(x.grad.numpy())
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, 4 * VALUES)


# --- byte orders ------------------------------------------------------------------------------------------------

FOREIGN = [">f8", ">f4", ">i8", ">i4", ">u2"]
MADE: dict[str, Callable[[str], Any]] = {
    "zeros": lambda d: tape.zeros(2, 3, dtype=d),
    "ones": lambda d: tape.ones(2, 3, dtype=d),
    "empty": lambda d: tape.empty(2, 3, dtype=d),
    "full": lambda d: tape.full((2, 3), 1, dtype=d),
    "arange": lambda d: tape.arange(5, dtype=d),
    "linspace": lambda d: tape.linspace(0, 1, 5, dtype=d),
    "eye": lambda d: tape.eye(3, dtype=d),
    "zeros_like": lambda d: tape.zeros_like(tape.ones(2, 3), dtype=d),
    "full_like": lambda d: tape.full_like(tape.ones(2, 3), 2, dtype=d),
    "tensor": lambda d: tape.tensor([1, 2], dtype=d),
    "tensor of array": lambda d: tape.tensor(np.ones((2, 3)), dtype=d),
    "tensor of its array": lambda d: tape.tensor(np.ones((2, 3), d)),
    "as_tensor": lambda d: tape.as_tensor([1, 2], dtype=d),
    "as_tensor of its array": lambda d: tape.as_tensor(np.ones((2, 3), d)),
    "as_tensor of a tensor": lambda d: tape.as_tensor(tape.ones(2, 3), dtype=d),
    "to": lambda d: tape.ones(2, 3).to(d),
    "to dtype": lambda d: tape.ones(2, 3).to(dtype=np.dtype(d)),
    "sum": lambda d: tape.ones(2, 3).sum(0, dtype=d),
    "np.sum": lambda d: np.sum(tape.ones(2, 3), 0, dtype=d),
    "cumsum": lambda d: tape.ones(2, 3).cumsum(0, dtype=d),
    "stack": lambda d: tape.tensor([tape.ones(3), tape.ones(3)], dtype=d),
    "asarray": lambda d: tape.ones(1).__array_namespace__().asarray(np.ones((2, 3), d)),
    "asarray with dtype": lambda d: tape.ones(1).__array_namespace__().asarray(np.ones((2, 3)), dtype=d),
    "namespace's ones": lambda d: tape.ones(1).__array_namespace__().ones((2, 3), dtype=np.dtype(d)),
    "a product": lambda d: tape.ones(2, 3) * np.ones((2, 3), d),
    "a product with a number": lambda d: tape.ones(2, 3) * np.ones((), d),
    "copied into": lambda d: tape.zeros(2, 3, dtype=np.dtype(d).newbyteorder("=")).copy_(np.ones((2, 3), d)),
    "randn": lambda d: tape.randn(2, 3, dtype=d),
}


@pytest.mark.parametrize("order", FOREIGN)
@pytest.mark.parametrize("way", MADE)
def test_no_tensor_has_a_foreign_byte_order(way: str, order: str) -> None:
    try:
        x = MADE[way](order)
    except (TypeError, ValueError, RuntimeError) as error:
        assert "byte order" in str(error) or order[1] != "f", way  # noqa: PT017 (either way is right)
    else:
        assert x.dtype.isnative
        assert x.dtype == np.dtype(order).newbyteorder("=") or way.startswith(("a product", "sum", "np.sum", "cumsum"))
    leaf = tape.ones(2, 3, requires_grad=True)
    (leaf * leaf).sum().backward()
    np.testing.assert_array_equal(leaf.grad, np.full((2, 3), 2.0))


def test_from_numpy_refuses_what_it_cannot_share() -> None:
    with pytest.raises(TypeError, match=re.escape("newbyteorder('=')")):
        tape.from_numpy(np.ones(3, ">f8"))


def test_a_spec_of_a_foreign_byte_order_is_never_a_native_one() -> None:
    spec_of(np.ones((3, 5)))
    for dtype in (">f8", ">f4", "O", "c16", "M8[s]", "S3", np.longdouble):
        with pytest.raises(TypeError, match="convert"):
            spec_of(np.zeros((3, 5), dtype))


# --- integers beyond int64 --------------------------------------------------------------------------------------

HUGE = 2**64
COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "x * n": lambda x, n: x * n,
    "n * x": lambda x, n: n * x,
    "x + n": lambda x, n: x + n,
    "n - x": lambda x, n: n - x,
    "x / n": lambda x, n: x / n,
    "n / x": lambda x, n: n / x,
    "x ** n": lambda x, n: (x * 0 + 1) ** n,
    "n ** x": lambda x, n: n**x,
    "where": lambda x, n: np.where(np.array([True, False]), x, n) if isinstance(x, np.ndarray) else x.where(x > 1, n),
    "maximum": np.maximum,
    "x > n": lambda x, n: (x > n) * 1.0,
    "n >= x": lambda x, n: (n >= x) * 1.0,
}


@pytest.mark.parametrize(
    ("beside", "given"),
    in_turns(
        itertools.product([f for f in COMPUTED if f != "where"], [HUGE, -HUGE, 2**63, 2**60 + 1, 10**30]),
        itertools.product([np.float64, np.float32], [(2,), ()]),
    ),
)
def test_a_huge_integer_beside_floats_is_one(beside: tuple[str, int], given: tuple[Any, tuple[int, ...]]) -> None:
    (form, n), (dtype, shape) = beside, given
    values = np.full(shape, 1.5, dtype)
    x = tape.tensor(values, requires_grad=True)
    with np.errstate(all="ignore"):
        found, expected = COMPUTED[form](x, n), COMPUTED[form](values, float(n))
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)
    assert found.dtype == expected.dtype
    assert found.requires_grad == (">" not in form)


def test_the_gradient_beside_a_huge_integer() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = x * HUGE
    assert y.dtype == tape.float64
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, np.full(2, 2.0**64))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.fill_(HUGE), lambda x: x.__setitem__(0, HUGE), lambda x: x.__setitem__([0, 1], HUGE),
        lambda x: x.masked_fill_(x > 0, HUGE), lambda x: x.add_(HUGE), lambda x: x.copy_(HUGE), lambda x: x.mul_(HUGE),
        lambda x: x[:1].add_(HUGE), lambda x: x.clamp_(min=HUGE),
    ],
)  # fmt: skip
def test_writes_of_a_huge_integer(write: Callable[[Any], Any]) -> None:
    floats, integers = tape.tensor([1.0, 2.0]), tape.tensor([1, 3])
    write(floats)
    assert floats.dtype == tape.float64
    assert floats.numpy().max() >= 2.0**63
    with pytest.raises((OverflowError, RuntimeError)):
        write(integers)
    assert integers.tolist() == [1, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tape.tensor(HUGE), lambda: tape.tensor([1, HUGE]), lambda: tape.full((2,), HUGE),
        lambda: tape.tensor([1, 2]) * HUGE, lambda: tape.tensor([1, 2]) + 2**63, lambda: tape.arange(HUGE, HUGE + 2),
        lambda: tape.tensor([1, 2]) ** HUGE, lambda: tape.tensor([1.0]) * np.array([HUGE]),
        lambda: tape.as_tensor(np.array([HUGE])), lambda: tape.tensor([1.0, None]), lambda: tape.ones(2) * [HUGE],
        lambda: tape.full((2,), 10**400, dtype=tape.float64), lambda: tape.ones(2) * 10**400,
    ],
)  # fmt: skip
def test_no_tensor_holds_objects(make: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, OverflowError, ValueError)):
        make()


def test_the_message_names_the_remedy() -> None:
    with pytest.raises(OverflowError, match="float"):
        tape.tensor([1, 2]) + HUGE
    with pytest.raises(TypeError, match="floats"):
        tape.full((2,), HUGE)


# --- floats without gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
@pytest.mark.parametrize(
    "make",
    [
        lambda d: tape.ones(2, dtype=d, requires_grad=True), lambda d: tape.tensor([1.0], dtype=d, requires_grad=True),
        lambda d: tape.tensor(np.ones(2, d), requires_grad=True), lambda d: tape.ones(2, dtype=d).requires_grad_(),
        lambda d: tape.from_numpy(np.ones(2, d)).requires_grad_(), lambda d: tape.ones(2, requires_grad=True).to(d),
        lambda d: setattr(tape.zeros(2, dtype=d), "requires_grad", True),
        lambda d: tape.zeros(2, dtype=d).copy_(tape.ones(2, requires_grad=True)),
    ],
)  # fmt: skip
def test_half_and_extended_precision_have_no_gradients(make: Callable[[Any], Any], dtype: Any) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"float64|tensors hold"):
        make(dtype)


def test_half_precision_holds_values() -> None:
    x = tape.ones(3, dtype=np.float16)
    assert (x + x).dtype == np.float16
    leaf = tape.ones(3, requires_grad=True)
    (leaf * x).sum().backward()
    np.testing.assert_array_equal(leaf.grad, np.ones(3))
    with tape.no_grad():
        assert leaf.to(np.float16).dtype == np.float16
    assert leaf.detach().to(np.float16).tolist() == [1.0, 1.0, 1.0]


def test_half_precision_has_its_names() -> None:
    x = tape.ones(2, dtype=tape.float16)
    assert x.dtype is tape.half
    assert tape.ones(2).half().dtype == tape.float16
    assert repr(x) == "tensor([1., 1.], dtype=tape.float16)"
    assert (x + x).tolist() == [2.0, 2.0]


class ArrayLike:
    """An object that NumPy makes an array of, as pandas' Series and Index are."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.values, dtype=dtype, copy=copy)


@pytest.mark.parametrize(
    "key",
    [
        [0, 2, 3],
        [[0, 1], [3, 2]],
        [True, False, True, True],
        [],
    ],
)
@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: (a, slice(1, 3)), lambda a: (a, ..., None), lambda a: (a, 0)])
def test_what_numpy_makes_an_array_of_is_an_index(key: Any, wrap: Any) -> None:
    values = np.asarray(key, np.int64) if not key else np.asarray(key)
    a = np.arange(12.0).reshape(4, 3)
    x = tape.tensor(a, requires_grad=True)
    np.testing.assert_array_equal(x[wrap(ArrayLike(values))].detach().numpy(), a[wrap(values)])
    y = x * 1.0
    y[wrap(ArrayLike(values))] = -1.0
    b = a.copy()
    b[wrap(values)] = -1.0
    np.testing.assert_array_equal(y.detach().numpy(), b)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), b != -1.0)
    with pytest.raises(IndexError, match="must be integer or bool"):
        _ = x[ArrayLike([0.5])]


OUTWARD = {
    "array2string": np.array2string,
    "array_repr": np.array_repr,
    "array_str": np.array_str,
    "save": lambda x: written(np.save, x),
    "savez": lambda x: written(lambda f, y: np.savez(f, y, b=y), x),
    "savez_compressed": lambda x: written(np.savez_compressed, x),
    "savetxt": lambda x: written(np.savetxt, x),
    "shares_memory": lambda x: np.shares_memory(x, x),
}


def written(write: Callable[..., Any], x: Any) -> bytes:
    """Return what is written to a file."""
    file = io.BytesIO()
    write(file, x)
    return file.getvalue()


@pytest.mark.parametrize("name", OUTWARD)
def test_files_and_texts_of_numpy_take_tensors(name: str) -> None:
    x = tape.tensor([[1.0, 2.5], [3.0, -4.0]])
    expected = OUTWARD[name](x.numpy())
    assert len(str(expected)) == len(str(OUTWARD[name](x)))
    if not name.startswith("savez"):  # those hold times
        assert OUTWARD[name](x) == expected
    y = x.requires_grad_() * 1.0
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\)"):
        OUTWARD[name](y)
    with tape.no_grad():
        assert len(OUTWARD[name](y)) if name != "shares_memory" else OUTWARD[name](y)


def test_assertions_of_numpy_take_tensors() -> None:
    x = tape.tensor([1.0, 2.0])
    np.testing.assert_allclose(x, [1.0, 2.0])
    np.testing.assert_array_equal([1.0, 2.0], x)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(x, [1.0, 3.0])
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        np.testing.assert_allclose(x.requires_grad_(), [1.0, 2.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tape.tensor([1 + 2j]),
        lambda: tape.tensor(1j),
        lambda: tape.tensor(np.array([1j])),
        lambda: tape.tensor([1.0], dtype="complex64"),
        lambda: tape.zeros(2, dtype=complex),
        lambda: tape.from_numpy(np.array([1j])),
        lambda: tape.ones(2) * np.array([1j, 2.0]),
        lambda: tape.ones(2).to(complex),
    ],
)
def test_complex_numbers_are_refused_as_such(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"complex numbers are not supported.*two tensors"):
        make()


def test_an_arrays_method_names_the_function() -> None:
    t, array = tape.tensor([1.0, 2.0], requires_grad=True), np.ones(2)
    with pytest.raises(RuntimeError, match=r"ndarray.dot .*write np.dot\(array, t\)"):
        array.dot(t)
    assert np.dot(array, t).requires_grad


@pytest.mark.parametrize("make", [lambda: tape.ones(3, requires_grad=True), lambda: tape.ones(3)])
def test_a_copy_of_a_leaf_is_a_leaf_of_the_same_memory(make: Callable[[], Any]) -> None:
    x = make()
    y = copy.copy(x)
    assert (y.is_leaf, y.requires_grad, y.grad) == (True, x.requires_grad, None)
    with tape.no_grad():
        y[0] = 5.0
    assert x[0].item() == 5.0
