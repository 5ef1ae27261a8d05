"""In-place operations: values, first and second gradients, replay, what is kept and what is refused.

The functions of the first part run on tensors and, as they stand, on complex NumPy arrays, whose in-place operations
are NumPy's: complex steps through them are an independent gradient.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Elementwise
from kernels.operations import OPS
from kernels.sweeps import reverse
from tape.recording.parameters import names_of
from tape.recording.record import recorded
from tape.tensors import modes
from tests.support.record_cases import cases_of, tensors

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
CASES: list[Any] = []


def case(*shapes: tuple[int, ...]) -> Callable[[Function], Function]:
    """Take a function of arguments of these shapes into the table; its result is a number."""

    def enter(function: Function) -> Function:
        CASES.append(pytest.param(function, shapes, id=function.__name__))
        return function

    return enter


def zeros(like: Any, *shape: int) -> Any:
    """Return a buffer: a tensor that does not require grad, or the complex array that stands for one."""
    return tape.zeros(*shape) if isinstance(like, tape.Tensor) else np.zeros(shape, complex)


@case((3,))
def overwritten_after_a_product(x: Any) -> Any:
    y = x * 1
    z = y * y
    y *= 3
    return (z + y * x).sum()


@case((3,))
def overwritten_twice(x: Any) -> Any:
    y = x * 1
    z = y * y * y
    y *= 2
    u = y * y
    y[1:] = 0.5
    return (z * u * y).sum()


@case((4,))
def part_overwritten_between_two_reads(x: Any) -> Any:
    y = np.sin(x)
    a = y * y
    y[1:3] = x[:2]
    return (a * y * y).sum()


@case((4,))
def result_that_its_rule_mentions(x: Any) -> Any:
    y = np.exp(x)
    z = np.tanh(y)
    y += z
    z *= y
    y *= z
    return (y + z).sum()


@case((2, 3))
def views_of_views(x: Any) -> Any:
    y = x * 1
    v = y.T[1:]
    u = v[:, 0]
    a = u * u
    v *= 2
    u += a
    y[1] = y[0] * u[0]
    return (y * y).sum() + (v * a[:, None]).sum()


@case((2, 3))
def reshaped_view(x: Any) -> Any:
    y = np.sin(x)
    flat = y.reshape(6)
    square = flat * flat
    flat[::2] = flat[1::2]
    y[0] *= square[3:]
    return (flat * square).sum()


@case((2, 3), (3,))
def rows(x: Any, v: Any) -> Any:
    y = x * 1
    total = y[0] * y[1]
    for row in y:
        row *= v  # noqa: PLW2901 (in place)
        total = total + row * row
    return (total * total).sum()


@case((4,))
def new_dims(x: Any) -> Any:
    y = x * 1
    column = y[:, None]
    product = column * y
    column[1:] += product[:3, :1]
    return (product * column).sum() + (y * y).sum()


@case((5,))
def overlapping_source_and_destination(x: Any) -> Any:
    y = x * x
    y[1:] = y[:-1]
    y[:-2] += y[2:]
    y[1:] *= y[:-1]
    return (y * x).sum()


@case((4,))
def reversed_onto_itself(x: Any) -> Any:
    y = np.sin(x)
    y[...] = y[[3, 2, 1, 0]]
    y[:2] -= y[2:]
    return (y * y * x).sum()


@case((3,))
def with_itself(x: Any) -> Any:
    y = x * 1
    y *= y
    y += y
    y -= y * y
    y /= x + y * y + 2
    return y.sum()


@case((3,), ())
def all_operators(x: Any, s: Any) -> Any:
    y = x + s
    y += x
    y -= s * s
    y *= x
    y /= s + 2
    y **= 3
    y += 1
    y -= 0.5
    y *= 2
    y /= 3
    y **= 2
    return (y * x).sum()


@case((5,), (3,))
def several_integers(x: Any, v: Any) -> Any:
    y = np.sin(x)
    a = y[[0, 2, 4]]
    y[[4, 0, 1]] = v * y[[0, 1, 2]]
    y[[1, 3]] += a[:2]
    y[[-1]] *= v[1]
    return (y * y).sum() + (a * v).sum()


@case((5,), (3,))
def the_last_of_several_values_stays(x: Any, v: Any) -> Any:
    y = x * 1
    y[[2, 2, 0]] = v
    y[[1, 1, 1]] = y[[2, 0, 3]] * v
    return (y * y).sum()


@case((5,), (3,))
def repeated_places_are_added_to_once(x: Any, v: Any) -> Any:
    y = x * 1
    y[[2, 2, 0]] += v * y[:3]
    return (y * y).sum()


@case((2, 3), (2,))
def integers_in_two_dims(x: Any, v: Any) -> Any:
    y = x * 1
    y[[0, 1], [2, 0]] = v
    y[[1, 1], [1, 1]] = v * y[0, 2]
    y[:, [0, 2]] *= v[:, None]
    y[[1, 0]] = y
    return (y * y * x).sum()


@case((5,), ())
def masks(x: Any, s: Any) -> Any:
    y = np.sin(x)
    y[np.array([True, False, True, True, False])] = s
    y[np.array([False, True, True, False, False])] *= x[1:3]
    y[np.array([False, False, False, False, True])] += s * s
    y[np.zeros(5, bool)] = 3.0
    return (y * y).sum()


@case((2, 3), (3,))
def masks_of_rows(x: Any, v: Any) -> Any:
    y = x * x
    y[np.array([False, True])] = v
    y[np.array([[True, False, False], [False, True, True]])] *= v
    return (y * x).sum()


@case((4,), ())
def value_is_broadcast(x: Any, s: Any) -> Any:
    y = zeros(x, 3, 4)
    y[...] = x
    y[1] = s
    y[:, 2:] += x[:2]
    y *= x * s
    y[:, 1:2] = y[:, :1] * s
    return (y * y).sum()


@case((4,))
def buffer_filled_in_a_loop(x: Any) -> Any:
    y = zeros(x, 5)
    y[0] = x[0]
    for i in range(1, 5):
        y[i] = np.sin(y[i - 1]) * x[i - 1]
    return (y * y).sum()


@case((3,))
def buffer_seen_through_an_earlier_view(x: Any) -> Any:
    y = zeros(x, 2, 3)
    first, flat = y[0], y.reshape(6)
    y[0] = x * x
    flat[3:] = first * x
    return (flat * flat).sum() + (first * x).sum()


@case((6,), ())
def stencil(u: Any, c: Any) -> Any:
    u = u * 1
    for _ in range(4):
        u[1:-1] += c * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0] = u[-1] * c
    return (u * u).sum()


@case((6,), ())
def stencil_by_sweeps_over_points(u: Any, c: Any) -> Any:
    u = u * 1
    for _ in range(2):
        for i in range(1, 5):
            u[i] += c * (u[i + 1] - 2 * u[i] + u[i - 1])
    return (u * u * u).sum()


@case((3,), (3,))
def leapfrog(x: Any, v: Any) -> Any:
    x, v = x * 1, v * 1
    energy = 0.0
    for _ in range(3):
        v -= 0.05 * np.sin(x)
        x += 0.1 * v
        v -= 0.05 * np.sin(x)
        energy = energy + (v * v).sum()
    return energy + (x * v).sum()


@case((3, 3))
def factors_of_a_matrix(x: Any) -> Any:
    a = x * 1
    for i in range(3):
        a[i, i] += 4.0
    for k in range(2):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k][:, None] * a[k, k + 1 :][None]
    return np.log(a[0, 0]) + np.log(a[1, 1]) + np.log(a[2, 2])


@case((2, 3), (3, 2))
def matrices(a: Any, b: Any) -> Any:
    a, b = a * 1, b * 1
    c = a @ b
    a[0] = 2.0
    b *= 3
    c += a @ b
    c[:, 0] *= c[:, 1]
    return (c * c).sum()


@case((4,))
def reductions_of_what_is_overwritten(x: Any) -> Any:
    y = np.exp(x)
    s = y.sum()
    m = y[1:].mean()
    y[2:] *= s
    y /= m
    return (y * s).sum() + y.mean() * m


@case((3,))
def numbers(x: Any) -> Any:
    s = x.sum()
    t = s * s
    s += t
    t *= s
    s *= s
    return s * t + (x * s).sum()


def drawn(shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(0.5, 1.5, shape)) for shape in shapes]


def by_complex_step(function: Function, leaves: list[Array]) -> tuple[float, list[Array]]:
    """Return the value and the gradients, without a tensor."""
    found = []
    for i, leaf in enumerate(leaves):
        gradient = np.zeros(leaf.shape)
        for at in np.ndindex(leaf.shape):
            moved = [x.astype(complex) for x in leaves]
            moved[i][at] += 1e-30j
            gradient[at] = function(*moved).imag / 1e-30
        found.append(gradient)
    return float(function(*[x.astype(complex) for x in leaves]).real), found


def swept(function: Function, leaves: list[Array]) -> tuple[float, list[Array]]:
    inputs = [tape.tensor(x, requires_grad=True) for x in leaves]
    value = function(*inputs)
    value.backward()
    return value.item(), [x.grad.numpy() for x in inputs]


def agree(found: tuple[float, list[Array]], expected: tuple[float, list[Array]], rtol: float = 1e-12) -> None:
    assert found[0] == pytest.approx(expected[0], rel=rtol)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


@pytest.mark.parametrize("native", [True, False], ids=["native", "plain"])
@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_value_and_gradient(function: Function, shapes: Any, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reverse, "NATIVE", native and reverse.NATIVE)
    leaves = drawn(shapes)
    agree(swept(function, leaves), by_complex_step(function, leaves))


@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_second_gradient(function: Function, shapes: Any) -> None:
    leaves, directions = drawn(shapes), drawn(shapes, seed=1)
    inputs = [tape.tensor(x, requires_grad=True) for x in leaves]
    first = tape.autograd.grad(function(*inputs), inputs, create_graph=True)
    weighted = sum((g * tape.tensor(d)).sum() for g, d in zip(first, directions, strict=True))
    second = tape.autograd.grad(weighted, inputs, materialize_grads=True)
    step = 1e-5
    ahead, behind = (
        by_complex_step(function, [np.asarray(x + sign * step * d) for x, d in zip(leaves, directions, strict=True)])[1]
        for sign in (1, -1)
    )
    for one, a, b in zip(second, ahead, behind, strict=True):
        expected = (a - b) / (2 * step)
        np.testing.assert_allclose(one.numpy(), expected, rtol=1e-7, atol=1e-7 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_replay(function: Function, shapes: Any) -> None:
    program = tape.record(function, *drawn(shapes))
    for seed in (1, 0, 1):
        leaves = drawn(shapes, seed)
        before = [x.copy() for x in leaves]
        value, gradients = program.value_and_grad(*leaves)
        expected, by_sweep = swept(function, leaves)
        assert value == program(*leaves) == expected
        for one, other in zip(gradients, by_sweep, strict=True):
            if reverse.NATIVE:
                np.testing.assert_array_equal(one, other)
            else:  # a sweep by NumPy adds in another order
                np.testing.assert_allclose(one, other, rtol=1e-14)
        for one, other in zip(leaves, before, strict=True):
            np.testing.assert_array_equal(one, other)


def equal(tensor: Any, values: Any) -> bool:
    return bool(tensor.tolist() == values)


def leaf(*values: float) -> Any:
    return tape.tensor(values, requires_grad=True)


# --- the issue's own examples -----------------------------------------------------------------------------------


def test_second_gradient_of_a_value_overwritten_by_a_multiple_of_itself() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y * y
    y *= 3
    (first,) = tape.autograd.grad(z.sum(), x, create_graph=True)
    (second,) = tape.autograd.grad(first.sum(), x)
    assert equal(first, [2.0, 4.0])
    assert equal(second, [2.0, 2.0])


def diffused(u: Any, c: Any, steps: int) -> Any:
    for _ in range(steps):
        u[1:-1] += c * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def diffused_by_copies(u: Any, c: Any, steps: int) -> Any:
    for _ in range(steps):
        u = tape.cat([u[:1], u[1:-1] + c * (u[2:] - 2 * u[1:-1] + u[:-2]), u[-1:]])
    return u


def test_stencil_loop_agrees_with_its_functional_twin_and_with_differences() -> None:
    start, steps = np.sin(np.arange(50.0)), 30
    found = []
    for loop in (diffused, diffused_by_copies):
        u, c = tape.tensor(start, requires_grad=True), tape.tensor(0.2, requires_grad=True)
        end = loop(u * 1, c, steps)
        (end * end).sum().backward()
        found.append((end.tolist(), u.grad.numpy(), c.grad.item()))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12, atol=1e-14)
    assert found[0][2] == pytest.approx(found[1][2], rel=1e-12)
    ahead, behind = ((diffused(start.copy(), 0.2 + h, steps) ** 2).sum() for h in (1e-6, -1e-6))
    assert found[0][2] == pytest.approx((ahead - behind) / 2e-6, rel=1e-7)


@pytest.fixture
def _own_tape() -> None:
    """Start from an empty tape, whatever the tests before left alive."""
    gc.collect()
    modes._thread_tape.set(None)
    modes.set_mode(modes.current())
    assert recorded() == 0


def recurrence(n: int) -> Any:
    """Fill x[1], x[2], ... from x[0], each through its neighbour."""
    start = tape.tensor(0.5, requires_grad=True)
    x = tape.zeros(n)
    x[0] = start
    for i in range(1, n):
        x[i] = tape.sin(x[i - 1]) * 1.5
    return start, x


def in_stencil_steps(n: int) -> Any:
    start = tape.ones(64).requires_grad_()
    return start, diffused(start * 1, tape.tensor(0.2, requires_grad=True), n)


def squares_overwritten(n: int) -> Any:
    """Overwrite one element of what a square reads, again and again."""
    start = tape.ones(64).requires_grad_()
    y = start * 1
    for i in range(n):
        y[i % 64] = y[i % 64] * y[(i + 1) % 64]
    return start, y


@pytest.mark.usefixtures("_own_tape")
@pytest.mark.parametrize("program", [recurrence, in_stencil_steps, squares_overwritten])
def test_tape_and_memory_grow_with_the_number_of_writes(program: Callable[[int], Any]) -> None:
    program(400)[1].sum().backward()  # so that what is kept for good is there, and little that is used again
    counts, sizes = [], []
    for n in (800, 1600):
        gc.collect()  # empties CPython's lists of free tuples, 2,000 of each length, which nobody counts
        tracemalloc.start()
        kept = program(n)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        counts.append(recorded())
        kept[1].sum().backward()
        del kept
    assert counts[1] <= 2 * counts[0] + 8
    assert counts[1] >= 1.9 * counts[0]
    assert sizes[1] < 2.2 * sizes[0]


def test_recurrence_has_the_gradient_of_its_chain() -> None:
    start, x = recurrence(300)
    x[-1].backward()
    value, slope = 0.5, 1.0
    for _ in range(299):
        value, slope = np.sin(value) * 1.5, slope * np.cos(value) * 1.5
    assert x[-1].item() == pytest.approx(value, rel=1e-12)
    assert start.grad.item() == pytest.approx(slope, rel=1e-9)


# --- the in-place variant of every record ---------------------------------------------------------------------

VARIANTS = [
    pytest.param(op, name, id=f"{name}_")
    for op in OPS.values()
    if isinstance(op, Elementwise) and op.differentiable and not op.condition
    for name in names_of(op)
    if hasattr(tape.Tensor, f"{name}_")
]


def test_every_elementwise_record_has_a_twin() -> None:
    names = {n for op in OPS.values() if isinstance(op, Elementwise) and not op.condition for n in names_of(op)}
    methods = {name for name in names if hasattr(tape.Tensor, name)}
    assert len(methods) > 20
    assert {name for name in methods if not hasattr(tape.Tensor, f"{name}_")} == set()


def points(op: Elementwise) -> list[Array]:
    """Return one array of points for each operand."""
    found = next(case for case in cases_of(op) if len(case.shapes[0]) == 1 and case.shapes[0] != (1,))
    return found.leaves(np.float64)


def gradients_of(function: Callable[..., Any], values: list[Array]) -> tuple[Any, list[Any]]:
    inputs = tensors(values)
    result = function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    first = tape.autograd.grad((result * result).sum(), wanted, create_graph=True, materialize_grads=True)
    total = sum((g * g).sum() for g in first)
    second = tape.autograd.grad(total, wanted, materialize_grads=True) if total.requires_grad else ()
    return result.tolist(), [g.tolist() for g in (*first, *second)]


@pytest.mark.parametrize(("op", "name"), VARIANTS)
def test_twin_of_a_record(op: Elementwise, name: str) -> None:
    values = points(op)

    def whole(first: Any, *others: Any) -> Any:
        y = first * 1
        square = y * y
        assert getattr(y, f"{name}_")(*others) is y
        assert y._version == 1
        return y + square

    def part(first: Any, *others: Any) -> Any:
        y = tape.stack([first, first])
        square = y * y
        getattr(y[1], f"{name}_")(*others)
        assert y._version == 1
        return y[1] + square[1]

    def by_copies(first: Any, *others: Any) -> Any:
        return getattr(first * 1, name)(*others) + first * first

    expected = gradients_of(by_copies, values)
    for program in (whole, part):
        found = gradients_of(program, values)
        assert found[0] == expected[0]
        for one, other in zip(found[1], expected[1], strict=True):
            # An element alone goes through libm, many through our vector functions: an ulp apart, before cancellation.
            np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14 * np.abs(other).max(initial=0))


@pytest.mark.parametrize("name", ["less", "ge", "eq"])
def test_twin_of_a_comparison_writes_zeros_and_ones(name: str) -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    getattr(y, f"{name}_")(tape.tensor([2.0, 2.0, 2.0]))
    assert equal(y, getattr(x.detach(), name)(2.0).double().tolist())
    (y * x).sum().backward()
    assert equal(x.grad, y.tolist())


# --- families ---------------------------------------------------------------------------------------------------


def test_a_wanted_write_makes_the_whole_family_require_grad() -> None:
    x = leaf(5.0)
    base = tape.zeros(4)
    view = base[1:]
    inner = view[::2]
    with tape.no_grad():
        quiet = base[:2]
    apart, replica = base.detach(), base.clone()
    view[0] = x[0]
    assert [t.requires_grad for t in (base, view, inner, quiet)] == [True] * 4
    assert [t.requires_grad for t in (apart, replica)] == [False] * 2
    assert equal(apart, [0.0, 5.0, 0.0, 0.0])
    (inner.sum() + 10 * quiet.sum() + 100 * base.sum()).backward()
    assert equal(x.grad, [111.0])


def test_views_that_were_used_before_a_write_and_are_used_again() -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    view = y[1:]
    before = view * view
    y *= 2
    after = view * view
    view += 1
    (before + 10 * after + 100 * view).sum().backward()
    assert equal(x.grad, [0.0, 4.0 + 10 * 16.0 + 200, 6.0 + 10 * 24.0 + 200])


def test_a_view_outlives_its_base() -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * x
    view = y[1:]
    y[2] = x[0]
    del y
    gc.collect()
    view *= 2
    view.sum().backward()
    assert equal(x.grad, [2.0, 8.0, 0.0])


@pytest.mark.parametrize(
    "cut",
    [lambda y: y.detach(), lambda y: y.data, lambda y: tape.from_numpy(y.detach().numpy())],
    ids=["detach", "data", "from_numpy"],
)
def test_what_is_cut_from_a_family_shares_memory_and_nothing_else(cut: Function) -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    square = y * y
    apart = cut(y)
    apart *= 10
    assert equal(y, [10.0, 20.0, 30.0])
    assert not apart.requires_grad
    (square + y).sum().backward()
    assert equal(x.grad, [3.0, 5.0, 7.0])
    apart[0] = x[0] * 2
    assert apart.requires_grad
    assert equal(y, [2.0, 20.0, 30.0])
    x.grad = None
    apart.sum().backward()
    assert equal(x.grad, [2.0, 0.0, 0.0])


def test_as_tensor_shares_memory_with_its_array() -> None:
    array = np.ones(3)
    x = leaf(2.0, 3.0, 4.0)
    buffer = tape.as_tensor(array)
    product = x * buffer
    buffer *= 7
    assert array.tolist() == [7.0] * 3
    product.sum().backward()
    assert equal(x.grad, [1.0] * 3)


def test_two_tensors_of_one_array_are_two_families() -> None:
    array = np.arange(4.0)
    a, b = tape.from_numpy(array[:3]), tape.from_numpy(array[1:])
    x = leaf(10.0)
    square = x * b[0] * b[0]
    a[1] = x[0]
    assert equal(b, [10.0, 2.0, 3.0])
    assert not b.requires_grad
    square.sum().backward()
    assert equal(x.grad, [1.0])


def test_requires_grad_on_a_view_makes_a_leaf_that_writes_to_the_base_do_not_touch() -> None:
    x = leaf(3.0, 4.0, 5.0)
    base = tape.zeros(3)
    view = base[1:].requires_grad_()
    square = view * view
    base += x
    assert equal(view, [4.0, 5.0])
    assert view.is_leaf
    (square.sum() + (view * 3).sum() + base.sum()).backward()
    assert equal(view.grad, [3.0, 3.0])
    assert equal(x.grad, [1.0, 1.0, 1.0])
    with pytest.raises(RuntimeError, match="leaf Variable"):
        view += 1


def test_without_gradients_a_write_changes_values_and_keeps_history() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3
    square = y * y
    with tape.no_grad():
        y *= 10
        y[0] = 7.0
        square += 1
    assert equal(y, [7.0, 60.0])
    assert y.requires_grad
    (square + y * 5).sum().backward()
    assert equal(x.grad, [2 * 3 * 3.0 + 15, 2 * 6 * 3.0 + 15])


def test_without_gradients_a_wanted_value_is_written_as_a_number() -> None:
    x = leaf(1.0, 2.0)
    buffer = tape.zeros(2)
    with tape.no_grad():
        buffer[0] = x[1]
        buffer += x
    assert equal(buffer, [3.0, 2.0])
    assert not buffer.requires_grad


@pytest.mark.parametrize(
    ("add", "times"),
    [
        (lambda v: v.add_(v), 2.0),
        (lambda v: v.index_put_((tape.tensor([0, 0]),), v, accumulate=True), 3.0),
        (lambda v: v.scatter_add_(0, tape.tensor([0]), v), 2.0),
        (lambda v: v.index_add_(0, tape.tensor([0]), v), 2.0),
        (lambda v: v.put_(tape.tensor([0]), v, accumulate=True), 2.0),
    ],
)
def test_a_view_made_without_gradients_that_is_added_to_itself(add: Callable[[Any], Any], times: float) -> None:
    """What reads the view that it writes to reads it as the part of its base that it is, with its gradient."""
    x = leaf(1.0, 2.0)
    y = x * 1
    with tape.no_grad():
        part = y[1:]
    add(part)
    assert equal(part, [2 * times])
    part.sum().backward()
    assert equal(x.grad, [0.0, times])


def test_a_leaf_changed_without_gradients_keeps_the_gradients_of_what_was_recorded() -> None:
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()
    with tape.no_grad():
        x -= 0.5
        x[1:] = 9.0
    assert x.is_leaf
    assert x.requires_grad
    loss.backward()
    assert equal(x.grad, [2.0, 4.0])
    (x * x).sum().backward()
    assert equal(x.grad, [3.0, 22.0])


def test_descent_in_place() -> None:
    x = leaf(5.0, -3.0)
    for _ in range(50):
        ((x - 1) ** 2).sum().backward()
        with tape.no_grad():
            x -= 0.25 * x.grad
            x.grad.zero_()
    np.testing.assert_allclose(x.tolist(), [1.0, 1.0], rtol=1e-12)


# --- what is refused --------------------------------------------------------------------------------------------

# PyTorch's text, behind which a note of the exception says what to do.
LEAF = r"(?m)^a leaf Variable that requires grad is being used in an in-place operation\.$"
VIEW = r"(?m)^a view of a leaf Variable that requires grad is being used in an in-place operation\.$"
OVERLAP = (
    r"unsupported operation: more than one element of the written-to tensor refers to a single memory location\. "
    r"Please clone\(\) the tensor before performing the operation\."
)


def assigned(x: Any, key: Any, value: Any) -> None:
    x[key] = value


REFUSED: list[tuple[str, Function, str]] = [
    ("a leaf", lambda t: t.x.mul_(2), LEAF),
    ("a leaf by itself", lambda t: t.x.add_(t.x), LEAF),
    ("a leaf by another", lambda t: t.x.copy_(t.n), LEAF),
    ("part of a leaf", lambda t: assigned(t.x, 0, 1.0), VIEW),
    ("a view of a leaf", lambda t: t.view.zero_(), VIEW),
    ("elements of a leaf", lambda t: assigned(t.x, [0, 1], 1.0), "leaf Variable"),
    ("an expanded view", lambda t: t.y.expand(2, 3).mul_(2), OVERLAP),
    ("part of an expanded view", lambda t: assigned(t.y.expand(2, 3), (slice(None), 0), 1.0), OVERLAP),
    ("a longer operand", lambda t: t.y[:1].mul_(t.n[:2]), r"output with shape \[1\] doesn't match .* shape \[2\]"),
    ("a wider operand", lambda t: t.y.add_(t.n[None]), r"output with shape \[3\] doesn't match .* shape \[1, 3\]"),
    ("an operand for a number", lambda t: t.y[0].add_(t.n[:1]), r"output with shape \[\] doesn't match .* \[1\]"),
    ("a value too long", lambda t: assigned(t.y, slice(2), t.n), "match"),
    ("too many values", lambda t: assigned(t.y, [0, 1], t.n), "shape"),
    ("values of no fit", lambda t: t.y.index_put_((tape.tensor([0]),), t.n[:2]), "shape"),
    ("floats into integers", lambda t: t.i.add_(t.n), "float64 can't be cast to the desired output type int64"),
    ("a root of integers", lambda t: t.i.sqrt_(), "float64 can't be cast to the desired output type int64"),
    ("a quotient of integers", lambda t: t.i.div_(2), "float64 can't be cast to the desired output type int64"),
    ("integers into bools", lambda t: t.b.add_(1), "int64 can't be cast to the desired output type bool"),
    ("a place beyond", lambda t: assigned(t.y, 3, 1.0), "index 3 is out of bounds for dimension 0 with size 3"),
    ("places beyond", lambda t: assigned(t.y, [0, 3], 1.0), "index 3 is out of bounds for dimension 0 with size 3"),
    ("a mask too short", lambda t: assigned(t.y, t.b[:2], 1.0), "index"),
    ("a mask of integers", lambda t: t.y.masked_fill_(t.i, 1.0), "bool"),
    ("several values for a mask", lambda t: t.y.masked_fill_(t.b, t.n), "0-dimensional value tensor"),
    ("several values to fill with", lambda t: t.y.fill_(t.n), "0-dimension value tensor but got tensor with 1 dim"),
    ("a text", lambda t: assigned(t.y, 0, "a"), "str"),
]


class Things:
    """Tensors of all kinds, and what must not change when a call raises."""

    def __init__(self) -> None:
        self.x = leaf(1.0, 2.0, 3.0)
        self.y = self.x * 1
        self.view = self.x[1:]
        self.square = self.y * self.y
        self.n = tape.tensor([4.0, 5.0, 6.0])
        self.i = tape.tensor([1, 2, 3])
        self.b = tape.tensor([True, False, True])
        self.x.grad = tape.tensor([0.25, 0.5, 0.75])

    def state(self) -> dict[str, Any]:
        return {name: (t.tolist(), t._version, t.requires_grad, t.is_leaf) for name, t in vars(self).items()}


@pytest.mark.usefixtures("_own_tape")
@pytest.mark.parametrize(("call", "message"), [pytest.param(c, m, id=name) for name, c, m in REFUSED])
def test_what_is_refused_changes_nothing(call: Function, message: str) -> None:
    things = Things()
    state, instructions = things.state(), recorded()
    with pytest.raises((RuntimeError, IndexError, TypeError), match=message) as caught:
        call(things)
    assert not isinstance(caught.value, NotImplementedError)
    del caught
    gc.collect()
    assert things.state() == state
    assert recorded() == instructions
    (things.square + things.y).sum().backward()
    assert equal(things.x.grad, [3.25, 5.5, 7.75])


def test_a_read_only_array_is_not_written_to() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    shared = tape.from_numpy(array)
    with pytest.raises((RuntimeError, ValueError), match="read-only"):
        shared += 1
    assert array.tolist() == [1.0] * 3


def test_part_of_an_expanded_view_that_does_not_overlap() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    wide = y.expand(3, 2)
    wide[1] = x * 5
    assert equal(y, [5.0, 10.0])
    wide.sum().backward()
    assert equal(x.grad, [15.0, 15.0])


# --- versions, observers, lifetime ------------------------------------------------------------------------------


def test_version_counts_the_writes_to_a_memory() -> None:
    y = tape.zeros(4)
    view, apart = y[1:], y.detach()
    counts = [y._version]
    for write in (
        lambda: y.add_(1),
        lambda: y.__setitem__(0, 1.0),
        view.zero_,
        lambda: apart.fill_(2.0),
        lambda: y.__setitem__([0, 0], 3.0),
        lambda: y.index_put_((tape.tensor([1]),), tape.ones(1), accumulate=True),
    ):
        write()
        assert y._version == view._version == apart._version
        counts.append(y._version)
    assert counts == list(range(7))
    assert y.clone()._version == 0
    with tape.no_grad():
        y += 1
    assert y._version == 7


def test_retained_gradient_is_that_of_the_version_at_backward() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    before = y * 10
    y *= 3
    y[0] = 5.0
    (before + y * 7).sum().backward()
    assert equal(y.grad, [7.0, 7.0])
    assert equal(x.grad, [20.0, 20.0 + 42.0])


def test_retained_gradient_of_a_view_after_a_write_to_its_base() -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    view = y[1:]
    view.retain_grad()
    before = view * 10
    y *= 3
    (before.sum() + (view * 7).sum() + y.sum()).backward()
    assert equal(view.grad, [7.0, 7.0])
    assert equal(x.grad, [6.0, 20.0 + 48, 20.0 + 48])


def test_gradient_by_a_written_tensor_is_that_of_its_last_version() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    before = y * 10
    y += 1
    loss = (before + y * 7).sum()
    by_y, by_x = tape.autograd.grad(loss, [y, x])
    assert equal(by_y, [7.0, 7.0])
    assert equal(by_x, [34.0, 34.0])


def test_a_written_graph_is_released_as_any_other() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y * y
    y *= 3
    loss = (z * y).sum()
    loss.backward()
    for again in (loss, z.sum(), y.sum()):
        with pytest.raises(RuntimeError, match="second time"):
            again.backward()
    assert equal(x.grad, [9.0, 36.0])


def test_a_retained_graph_is_swept_again_whatever_was_written_meanwhile() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    z = (y * y).sum()
    z.backward(retain_graph=True)
    y *= 10
    z.backward(retain_graph=True)
    y.zero_()
    z.backward()
    assert equal(x.grad, [6.0, 12.0])


@pytest.mark.usefixtures("_own_tape")
@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_nothing_is_left_on_the_tape(function: Function, shapes: Any) -> None:
    inputs = [tape.tensor(x, requires_grad=True) for x in drawn(shapes)]
    function(*inputs)
    gc.collect()
    assert recorded() == 0
    function(*inputs).backward()
    gc.collect()
    assert recorded() == 0
    tape.autograd.grad(function(*inputs), inputs, create_graph=True)
    gc.collect()
    assert recorded() == 0


@pytest.mark.usefixtures("_own_tape")
def test_a_loop_of_writes_without_gradients_does_not_grow() -> None:
    x = tape.ones(1000).requires_grad_()
    y = x * 1
    square = y * y

    def run() -> None:
        with tape.no_grad():
            for i in range(2000):
                y[i % 1000] = 1.0
                y.mul_(0.5)

    run()
    tracemalloc.start()
    run()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 20_000
    assert recorded() == 2
    square.sum().backward()
    assert equal(x.grad, [2.0] * 1000)


@pytest.mark.usefixtures("_own_tape")
def test_what_was_overwritten_is_freed_with_its_graph() -> None:
    x = tape.ones(100_000).requires_grad_()

    def run() -> None:
        y = x * 1
        for _ in range(5):
            y *= y
            y[:10] = 1.0
        y.sum().backward()

    run()
    x.grad = None
    gc.collect()
    tracemalloc.start()
    run()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2 * 800_000  # the gradient


# --- programs ---------------------------------------------------------------------------------------------------


def test_replay_of_arguments_changed_in_place() -> None:
    def fun(x: Any, k: Any) -> Any:
        square = x * x
        x *= k
        x[1:] = x[:-1] + square[1:]
        k += 1
        return (x * square).sum() * k

    def by_hand(x: Any, k: Any) -> Any:
        return fun(x * 1, k * 1)

    program = tape.record(fun, np.ones(3), 2.0)
    for seed in (1, 2, 1):
        x, k = drawn(((3,), ()), seed)
        kept = x.copy()
        value, gradients = program.value_and_grad(x, float(k))
        expected, by_sweep = swept(by_hand, [x, k])
        assert value == expected
        for one, other in zip(gradients, by_sweep, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(x, kept)
        assert program(x, float(k)) == expected
        np.testing.assert_array_equal(x, np.append(kept[:1] * k, kept[:-1] * k + kept[1:] ** 2))


@pytest.mark.parametrize("outside", [True, False], ids=["made outside", "made inside"])
def test_replay_of_constants_changed_in_place(*, outside: bool) -> None:
    made = tape.zeros(4)

    def fun(x: Any) -> Any:
        y = made if outside else tape.zeros(4)
        view = y[1:]
        y[0] = x[0]
        view += x
        y *= y
        return (y * y).sum() + view[0]

    program = tape.record(fun, np.ones(3))
    if outside:
        made.fill_(0.0) if not made.requires_grad else made.detach().zero_()
    for seed in (1, 2, 1):
        (x,) = drawn(((3,),), seed)
        value, (gradient,) = program.value_and_grad(x)
        expected, exact = by_complex_step(_constants, [x])
        assert value == pytest.approx(expected, rel=1e-13)
        np.testing.assert_allclose(gradient, exact[0], rtol=1e-13)
        assert program(x) == value


def _constants(x: Array) -> Any:
    y = np.zeros(4, complex)
    y[0] = x[0]
    y[1:] += x
    y *= y
    return (y * y).sum() + y[1]


def test_replay_returns_what_was_written() -> None:
    def fun(x: Any) -> Any:
        y = x * 1
        view = y[1:]
        first = y * 2
        view.zero_()
        return {"y": y, "view": view, "first": first, "x": x}

    program = tape.record(fun, np.ones(3))
    given = np.array([1.0, 2.0, 3.0])
    result = program(given)
    assert {name: r.tolist() for name, r in result.items()} == {
        "y": [1.0, 0.0, 0.0],
        "view": [0.0, 0.0],
        "first": [2.0, 4.0, 6.0],
        "x": [1.0, 2.0, 3.0],
    }
    program(np.array([9.0, 9.0, 9.0]))
    assert result["y"].tolist() == [1.0, 0.0, 0.0]


def test_replay_of_a_write_that_needs_no_gradient() -> None:
    def fun(x: Any) -> Any:
        y = x * 1
        with tape.no_grad():
            y *= x
            y[0] = 2.0
        return (y * y).sum()

    program = tape.record(fun, np.ones(3))
    for seed in (0, 1):
        (x,) = drawn(((3,),), seed)
        value, (gradient,) = program.value_and_grad(x)
        expected, (by_sweep,) = swept(fun, [x])
        assert value == expected
        np.testing.assert_array_equal(gradient, by_sweep)


def test_listing_of_a_program_shows_its_writes() -> None:
    def fun(x: Any) -> Any:
        y = x * 1
        y[1:] = 0.0
        return y.sum()

    assert "copy_" in str(tape.record(fun, np.ones(3)))


@pytest.mark.parametrize("shape", ["expanded", "turned"])
@pytest.mark.parametrize("view", [lambda x: x[1:], lambda x: x.view(-1), lambda x: x.unsqueeze(1)[1:]])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_views_of_what_reshape_has_copied_lead_to_it(shape: str, view: Callable[[Any], Any], writes: int) -> None:
    """The copy behind it is nobody's: after writes, too, a view of the tensor has a gradient to the tensor."""
    for requires_grad in (True, False):
        x = tape.tensor(np.arange(6.0).reshape(2, 3), requires_grad=requires_grad)
        y = (x * 1.0).expand(2, 2, 3).reshape(12) if shape == "expanded" else (x * 1.0).T.reshape(6)
        shown, factor = view(y), tape.tensor(2.0, requires_grad=True)
        for _ in range(writes):
            y.mul_(factor)
        if not (requires_grad or writes):
            continue
        (g,) = tape.autograd.grad(shown, y, tape.ones_like(shown), retain_graph=True)
        expected = np.zeros(y.shape)
        expected.reshape(-1)[expected.size - shown.numel() :] = 1.0
        np.testing.assert_array_equal(g.numpy(), expected)
        if requires_grad:
            (g,) = tape.autograd.grad((y * y).sum() + (shown * shown).sum(), x)
            both = tape.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
            z = both.expand(2, 2, 3).reshape(12) if shape == "expanded" else both.T.reshape(6)
            z = z * 2.0**writes
            ((z * z).sum() + (view(z) ** 2).sum()).backward()
            assert both.grad is not None
            np.testing.assert_array_equal(g.numpy(), both.grad.numpy())
