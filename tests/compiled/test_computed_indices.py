"""Index tensors in compiled functions: one program picks, and adds, by any indices that are within bounds."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.tensors.pytrees import flattened
from tests.support.rounding import assert_same

pytestmark = pytest.mark.quick

CALLS = 8
Arrays = tuple[Any, ...]


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def places(seed: int, n: int, *shape: int, least: int = 0) -> Any:
    return np.random.default_rng(seed + 50).integers(least, n, size=shape)


def one(k: int) -> Arrays:
    return numbers(k, 5), places(k, 5, 3)


def two(k: int) -> Arrays:
    return numbers(k, 4, 5), places(k, 4, 3)


def pair(k: int) -> Arrays:
    return numbers(k, 4, 5), places(k, 4, 3), places(k + 1, 5, 3)


def added(k: int) -> Arrays:
    return numbers(k, 5), places(k, 5, 7), numbers(k + 1, 7)


def wide(k: int) -> Arrays:
    return numbers(k, 4, 5), places(k, 5, 4, 3), numbers(k + 1, 4, 3)


def looped(x: Any, i: Any) -> Any:
    total = 0.0
    for _ in range(3):
        total = total + x[i]
        i = (i + 1) % 5
    return total


def until(x: Any, i: Any) -> Any:
    total = x[i]
    while total.sum() < 10:
        total = total + abs(x[i]) + 0.1
        i = (i + 1) % 5
    return total


def overwritten(x: Any, i: Any) -> Any:
    j = i * 1
    y = x[j]
    j += 1
    return y + x[j - 1] * (j < 3)


def interpolated(table: Any, x: Any) -> Any:
    at = (x * 4).floor()
    i = at.long()
    return table[i] + (table[i + 1] - table[i]) * (x * 4 - at)


def deposited(x: Any, m: Any) -> Any:
    at = (x * 6).floor()
    part = x * 6 - at
    return tape.zeros(8).index_add(0, at.long(), m * (1 - part)).index_add(0, at.long() + 1, m * part)


def uniform(k: int) -> Any:
    return np.random.default_rng(k).uniform(size=5)


def added_at(x: Any, i: Any, v: Any) -> Any:
    y = x * 1
    np.add.at(y, i, v)
    return y * 2


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], Arrays]]] = {
    "x[i]": (lambda x, i: x[i] * 2, one),
    "x[i] of two dims": (lambda x, i: x[i.reshape(3, 1)] * 2, one),
    "x[i, :]": (lambda x, i: x[i, :] * 2, two),
    "x[:, i]": (lambda x, i: x.T[:, i] * 2, two),
    "x[..., i]": (lambda x, i: x.reshape(1, 5, 4)[..., i] * 2, two),
    "x[i, j]": (lambda x, i, j: x[i, j] * 2, pair),
    "x[i, j] broadcast": (lambda x, i, j: x[i[:, None], j] * 2, pair),
    "x[i, 0]": (lambda x, i: x[i, 0] * 2, two),
    "x[i, list]": (lambda x, i: x[i, [0, -1, 2]] * 2, two),
    "of a view": (lambda x, i: x.flip(0)[1:][i % 3] * 2, two),
    "int32": (lambda x, i: x[i.int()] * 2, one),
    "of integers": (lambda x, i: x[i], lambda k: (places(k, 99, 5), places(k, 5, 3))),
    "float32": (lambda x, i: x[i] * 2, lambda k: (numbers(k, 5).astype(np.float32), places(k, 5, 3))),
    "by an order": (lambda x: x[x.argsort()] * tape.arange(5.0), lambda k: (numbers(k, 5),)),
    "take": (lambda x, i: tape.take(x, i) * 2, two),
    "index_select": (lambda x, i: tape.index_select(x, 0, i) * 2, two),
    "gather": (lambda x, i, v: tape.gather(x, 1, i) * v, wide),
    "gather of fewer": (lambda x, i, v: tape.gather(x, 1, i[:2]) * v[:2], wide),
    "take_along_dim": (lambda x, i, v: tape.take_along_dim(x, i, 1) * v, wide),
    "np.take": (lambda x, i: np.take(x, i, axis=0) * 2, two),
    "np.take_along_axis": (lambda x, i, v: np.take_along_axis(x, i, 1) * v, wide),
    "index_add": (lambda x, i, v: x.index_add(0, i, v * v, alpha=2.0) * 2, added),
    "index_add of rows": (lambda x, i, v: tape.zeros(2, 5).index_add(1, i, tape.stack([v, v * 2])) * x, added),
    "scatter_add": (lambda x, i, v: x.scatter_add(1, i, v) * 2, wide),
    "index_put": (lambda x, i, v: (x * 1).index_put_((i,), v, accumulate=True) * 2, added),
    "in a loop": (looped, one),
    "in a loop that a value ends": (until, one),
    "an index that is written": (overwritten, one),
    "interpolation": (interpolated, lambda k: (numbers(k, 6), uniform(k))),
    "deposition": (deposited, lambda k: (uniform(k), numbers(k, 5))),
    "a batch of rows": (
        lambda x, y, i, w: ((x[i] @ w - y[i]) ** 2).mean(),
        lambda k: (numbers(0, 20, 3), numbers(1, 20), places(k, 20, 6), numbers(k, 3)),
    ),
}


def plain(x: Any) -> Any:
    return np.asarray(x.detach().numpy() if isinstance(x, tape.Tensor) else x)


def replays(compiled: Any) -> int:
    return sum(program.hits for program in compiled.programs)


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_all_indices(name: str) -> None:
    f, arguments = CASES[name]
    compiled = tape.compile(f, check="never")
    for k in range(CALLS):
        np.testing.assert_array_equal(plain(compiled(*arguments(k))), plain(f(*map(tape.tensor, arguments(k)))))
    assert replays(compiled) >= 4, compiled.explain()


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_dynamic_mode(name: str) -> None:
    f, arguments = CASES[name]
    floats = tuple(k for k, x in enumerate(arguments(0)) if x.dtype.kind == "f")
    if not floats:
        return

    def loss(*xs: Any) -> Any:
        return (f(*[x if isinstance(x, tape.Tensor) else tape.tensor(x) for x in xs]) ** 2).sum()

    compiled, dynamic = (
        tape.compile(tape.value_and_grad(loss, floats), check="never"),
        tape.value_and_grad(loss, floats),
    )
    for k in range(CALLS):
        for a, b in zip(*[flattened(f(*arguments(k)))[0] for f in (compiled, dynamic)], strict=True):
            assert_same(a, b)
    assert replays(compiled) >= 4, compiled.explain()


def test_second_gradients_through_a_replay() -> None:
    compiled = tape.compile(lambda x, i: (x[i] ** 3).sum())
    for k in range(CALLS):
        x, i = one(k)
        leaf = tape.tensor(x, requires_grad=True)
        (g,) = tape.autograd.grad(compiled(leaf, i), leaf, create_graph=True)
        g.sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 6 * x * np.bincount(i, minlength=5), rtol=1e-14)
    assert replays(compiled) >= 3


@pytest.mark.parametrize("least", [-5, -7])
@pytest.mark.parametrize(
    "f", [lambda x, i: x[i] * 2, lambda x, i: tape.take(x, i) * 2, lambda x, i: tape.take_along_dim(x, i, 0) * 2]
)
def test_negative_indices_count_from_the_end_and_others_are_errors(f: Callable[..., Any], least: int) -> None:
    compiled = tape.compile(f, check="never")
    for k in range(4 * CALLS):
        x, i = numbers(k, 5), places(k, 5 if least == -5 else 7, 3, least=least)
        try:
            expected = plain(f(tape.tensor(x), tape.tensor(i)))
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x, i)
        else:
            np.testing.assert_array_equal(compiled(x, i), expected)
    assert replays(compiled) >= 4, compiled.explain()


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: tape.gather(x, 0, i) * 2,
        lambda x, i: tape.index_select(x, 0, i) * 2,
        lambda x, i: tape.zeros(5).index_add(0, i, x[:3]),
        lambda x, i: tape.zeros(5).scatter_add(0, i, x[:3]),
    ],
)
def test_where_negative_indices_are_errors_they_are_in_replays(f: Callable[..., Any]) -> None:
    compiled = tape.compile(f)
    for k in range(4):
        compiled(*one(k))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(numbers(0, 5), np.array([0, -1, 2]))
    x, i = one(9)
    np.testing.assert_array_equal(compiled(x, i), plain(f(tape.tensor(x), tape.tensor(i))))
    assert replays(compiled) >= 3


def test_shapes_that_broadcast_are_not_taken_for_others() -> None:
    compiled = tape.compile(lambda x, i: tape.take_along_dim(x, i, 1))
    for _ in range(4):
        x, i = numbers(0, 2, 5), places(0, 5, 1, 3)
        np.testing.assert_array_equal(compiled(x, i), np.take_along_axis(x, np.broadcast_to(i, (2, 3)), 1))


@pytest.mark.parametrize("name", CASES)
def test_files_hold_computed_places(name: str) -> None:
    function, made = CASES[name]
    compiled = tape.compile(function, check="never")
    for k in range(CALLS):
        compiled(*made(k))
    file = io.BytesIO()
    compiled.save(file)
    file.seek(0)
    loaded = tape.load(file)
    for k in range(CALLS):
        np.testing.assert_array_equal(loaded(*made(k)), compiled(*made(k)))


@pytest.mark.parametrize("dtype", ["float16", "uint8", "uint64", "int16"])
def test_dtypes_that_programs_do_not_hold_stay_dynamic(dtype: str) -> None:
    compiled = tape.compile(lambda x: (x + x).clone())
    x = np.arange(3).astype(dtype)
    with pytest.warns(tape.errors.CompileWarning, match=f"programs hold no {dtype}"):
        results = [compiled(x) for _ in range(4)]
    for result in results:
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, 2 * x)


IMAGE = np.random.default_rng(4).integers(0, 256, (3, 4)).astype(np.uint8)
NARROW: list[tuple[Any, Any]] = [
    (lambda x, m: (x * (m / 255.0)).sum(), lambda _, m: m / 255.0),
    (lambda x, m: (x * (m > 99).byte() + x * m.short()).sum(), lambda _, m: (m > 99) + m.astype(float)),
    (lambda x, m: (x[m > 99] * 2.0).sum(), lambda _, m: (m > 99) * 2.0),
    (lambda x, m: (x * (x > 0).char()).sum() + 0.0 * m.sum(), lambda x, _: x > 0),
]


@pytest.mark.parametrize(("function", "gradient"), NARROW)
def test_functions_of_images_and_byte_masks_stay_dynamic(function: Any, gradient: Any) -> None:
    compiled, x = tape.compile(function), np.random.default_rng(5).normal(size=(3, 4))
    for m in (tape.tensor(IMAGE), tape.tensor(IMAGE[::-1].copy()), tape.tensor(IMAGE)) * 2:
        t = tape.tensor(x, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tape.errors.CompileWarning)
            compiled(t, m).backward()
        np.testing.assert_allclose(t.grad.numpy(), gradient(x, m.numpy()), rtol=1e-12)
    assert compiled.calls["dynamic"] > 0


def test_an_ellipsis_between_indices_puts_their_dims_first() -> None:
    x, weights = numbers(0, 2, 3, 4), numbers(1, 3, 2)
    compiled = tape.compile(tape.value_and_grad(lambda x, i: (x[:, -1, ..., i] ** 2 * weights).sum()), check="never")
    for k in range(CALLS):
        i, expected = np.array([1, 3, k % 2]), np.zeros_like(x)
        for row, one_index in zip(weights, i, strict=True):
            expected[:, -1, one_index] += 2 * x[:, -1, one_index] * row
        _, gradient = compiled(x, i)
        np.testing.assert_allclose(gradient, expected)


EMPTY = np.zeros(0, np.int64)


def written_nowhere(x: Any) -> Any:
    y = x * 2.0
    y[EMPTY] = 3.0
    y[:0] += x[EMPTY]
    return (y * y).sum()


def emptied(x: Any) -> Any:
    rows = tape.stack([x, x * x])[:, EMPTY]
    return (x * x).sum() + (rows @ rows.mT).sum() + (rows.sum(1) * x[:2]).sum() + (rows > 0).any() * x.sum()


ELEMENTLESS: dict[str, Any] = {
    "picked": lambda x: (x[EMPTY] * 2.0).sum() + (x * x).sum(),
    "a list": lambda x: x[[]].sum() * x[0] + x.prod(),
    "a mask": lambda x: x[np.zeros(6, bool)].sum() + (x * x).sum(),
    "a part": lambda x: tape.cat([x[3:3], x * x]).sum() + tape.cumsum(x[:0], 0).sum(),
    "written": written_nowhere,
    "added": lambda x: (x.index_add(0, tape.tensor(EMPTY), x[EMPTY]) ** 2).sum(),
    "reduced": emptied,
    "as a condition": lambda x: (x * x).sum() if (x[:0] > 0).any() else (x**3).sum(),
    "searched": lambda x: x.sum() * (tape.searchsorted(tape.tensor(np.zeros(0)), x) + 1).sum(),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", ELEMENTLESS)
def test_arrays_without_elements_do_not_bar_a_program(name: str) -> None:
    gradient = tape.value_and_grad(ELEMENTLESS[name])
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(CALLS):
        for got, expected in zip(compiled(x := numbers(k, 6)), gradient(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert "machine code" in compiled.explain()


def test_arguments_and_results_without_elements() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda x, y: (x * x).sum() + y.sum(), (0, 1)), mode="max")
    x, y = numbers(0, 4), np.zeros((0, 3))
    for _ in range(CALLS):
        value, (by_x, by_y) = compiled(x, y)
        np.testing.assert_allclose(by_x, 2 * x)
        assert value == pytest.approx((x * x).sum())
        assert by_y.shape == (0, 3)
    assert "machine code" in compiled.explain()
    picked = tape.compile(lambda x: x[EMPTY] * 2.0, mode="max")
    assert [picked(x).shape for _ in range(CALLS)] == [(0,)] * CALLS
    assert "machine code" in picked.explain()


def masked(x: Any) -> Any:
    y = x * 1.0
    y[x > 0.5] = 0.0
    return (x[x > 0] ** 2).sum() + (y * y).sum()


def masked_steps(x: Any) -> Any:
    for _ in range(12):
        x = x * 0.9
        x[x > 0] = x[x > 0] * 0.5
    return (x * x).sum()


GUARDED: dict[str, Any] = {
    "masks": masked,
    "masks in a loop": masked_steps,
    "places": lambda x: (x[tape.nonzero(x > 0)[0]] ** 3).sum(),
    "numbers": lambda x: (x * x).sum() * (2.0 if sum(x.detach().sign().tolist()) > 0 else 3.0),
    "integers": lambda x: x.sum() * tape.bincount((x > 0).long())[-1],
}


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", GUARDED)
def test_arrays_that_calls_depend_on_are_compared_by_machine_code(name: str, dtype: type) -> None:
    """Each way has a program, and is found by what was there."""
    gradient = tape.value_and_grad(GUARDED[name])
    compiled = tape.compile(gradient, mode="max", check="never")
    signs = np.array([[1, 1, -1, 1], [1, -1, -1, 1], [-1, 1, 1, 1]])
    signs = signs[:1].repeat(3, 0) if "loop" in name else signs
    for k in range(5 * CALLS):
        x = (signs[k % 3] * np.random.default_rng(k).uniform(0.1, 1.0, 4)).astype(dtype)
        x[signs[k % 3] > 0] *= 0.4
        for got, expected in zip(compiled(x), gradient(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype is np.float64 else 1e-5)
    assert "machine code" in compiled.explain()
    assert "interpreter" not in compiled.explain()
    assert compiled.calls["recorded"] < 4 * CALLS


@pytest.mark.quick
def test_places_of_extrema_are_numbers_of_machine_code() -> None:
    def placed(x: Any) -> Any:
        values, places = x.max(1)
        return (values * places).sum() + (x.min(0).indices * x[0]).sum()

    gradient = tape.value_and_grad(placed)
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(CALLS):
        x = np.round(numbers(k, 4, 5))
        for got, expected in zip(compiled(x), gradient(x), strict=True):
            np.testing.assert_allclose(got, expected)
    assert "call of" not in compiled.explain()


def clipped_in_steps(u: Any, mask: Any) -> Any:
    u = u.clone()
    for _ in range(6):
        u[1:-1] = u[1:-1] + 0.3 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        u[u < 0.0] = 0.0
        u[mask] = 0.25
        even = u[::2]
        even[even > 0.9] = u[1]
    return (u * u).sum()


def rows_filled(u: Any, mask: Any) -> Any:
    u = (u * 2.0).reshape(8, 5)
    u[u[:, 0] > 0.0] = u[3, 2]
    u[1:, 1:][u[1:, 1:] > 1.0] = True
    return (u * tape.where(mask.reshape(8, 5), 2.0, u)).sum()


def integers_filled(u: Any, mask: Any) -> Any:
    places = (u * 10.0).long()
    places[u > 0.3] = 2.75
    places[mask] = -1
    return (places * u).sum()


@pytest.mark.parametrize("function", [clipped_in_steps, rows_filled, integers_filled])
def test_numbers_written_where_a_mask_holds_are_one_program(function: Callable[..., Any]) -> None:
    dynamic = tape.value_and_grad(function)
    compiled = of_max(dynamic)
    for k in range(CALLS):
        u, mask = numbers(k, 40), numbers(k + 90, 40) > 0.5
        for found, expected in zip(flattened(compiled(u, mask))[0], flattened(dynamic(u, mask))[0], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert f"{CALLS - 2} replayed, 2 recorded" in compiled.explain()
    many = [tape.tensor(numbers(k, 3, 40)) for k in range(2)]
    rows = [function(u, mask > 0.5).item() for u, mask in zip(*many, strict=True)]
    np.testing.assert_allclose(tape.vmap(function)(many[0], many[1] > 0.5), rows, rtol=1e-12)


def of_max(function: Callable[..., Any]) -> Any:
    return tape.compile(function, mode="max")


def test_what_no_mask_or_number_is_raises_as_in_dynamic_mode() -> None:
    wrong: list[Callable[[Any], Any]] = [
        lambda u: u.__setitem__(u[:-1] > 0.0, 1.0),
        lambda u: u.__setitem__(u > 0.0, tape.ones(u.numel() + 1)),
        lambda u: u.__setitem__(u > 0.0, "1"),
    ]
    for write in wrong:
        messages = []
        for wrap in (of_max, lambda f: f):

            def function(u: Any, write: Callable[[Any], Any] = write) -> Any:
                u = u * 2.0
                write(u)
                return u.sum()

            with pytest.raises((IndexError, ValueError, TypeError, RuntimeError)) as raised:
                wrap(function)(tape.arange(1.0, 6.0))
            messages.append((raised.type, str(raised.value)))
        assert messages[0] == messages[1]


def chain(x: Any, s: Any) -> Any:
    total = 0.0
    for t in range(len(s) - 1):
        total = total + x[s[t], s[t + 1]] ** 2
    return total


def looked_up(x: Any, s: Any) -> Any:
    z = 0.0
    for t in range(len(s)):
        z = z * 0.9 + x[0][s[t]] * x[s[t], 1]
    return z


def row_and_element(x: Any, s: Any) -> Any:
    return (x[s[0]] * x[:, s[1]]).sum() + x[s[2] - 4, s[3]]


def written_at(x: Any, s: Any) -> Any:
    u = x * 1.0
    u[s[0], s[1]] = u[s[1], s[0]] * 2.0
    return (u * u).sum()


def added_in_place(x: Any, s: Any) -> Any:
    u = x * 1.0
    u[s[0]] += u[s[1], 0]
    row = u[s[2]]
    row *= 3.0
    u[0] = 0.5
    return (u * u).sum() + row.sum()


@pytest.mark.parametrize("function", [chain, looked_up, row_and_element, written_at, added_in_place])
@pytest.mark.parametrize("kind", [lambda x: x, tape.tensor], ids=["arrays", "tensors"])
def test_index_tensors_of_no_dims_pick_as_others_do(function: Callable[..., Any], kind: Any) -> None:
    dynamic = tape.value_and_grad(function)
    compiled = of_max(dynamic)
    for k in range(CALLS):
        x, s = numbers(k, 4, 4), np.random.default_rng(k).integers(0, 4, size=12)
        for found, expected in zip(compiled(kind(x), kind(s)), dynamic(x, tape.tensor(s)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    replayed = re.search(r"(\d+) replayed", compiled.explain())
    assert (replayed is not None and int(replayed[1]) >= CALLS - 5) or function is added_in_place


def test_index_tensors_of_no_dims_out_of_bounds_raise() -> None:
    compiled = of_max(lambda x, i: x[i] * 2.0)
    x = tape.arange(5.0)
    for k in (0, 4, -1, 5, 2, -6, -5, 3):
        i = tape.tensor(k)
        if -5 <= k < 5:
            assert compiled(x, i).item() == 2.0 * (k % 5)
        else:
            with pytest.raises(IndexError, match=f"index {k} is out of bounds"):
                compiled(x, i)
