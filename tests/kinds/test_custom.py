"""tape.custom: a pair of jitted functions as an operation that stays native in sweeps and replays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

import tape
from kernels.language import cache_files
from kernels.sweeps import reverse
from tape.recording.record import recorded
from tests.native.test_native import native, python_calls
from tests.robustness.test_lifetime import held

if TYPE_CHECKING:
    from collections.abc import Callable

njit = numba.njit(error_model="numpy")
START = np.array([1.0, -2.0, 0.5, 3.0])


@njit
def _smooth(u: Any) -> Any:
    """Mean of neighbours."""
    v = u.copy()
    for i in range(1, u.size - 1):
        v[i] = u[i] * u[i] + 0.5 * (u[i - 1] + u[i + 1])
    return v


@njit
def _smooth_vjp(g: Any, u: Any) -> Any:
    h = g.copy()
    for i in range(1, u.size - 1):
        h[i] = 0.0
    for i in range(1, u.size - 1):
        h[i] += 2.0 * u[i] * g[i]
        h[i - 1] += 0.5 * g[i]
        h[i + 1] += 0.5 * g[i]
    return h


@njit
def _energy(q: Any, k: Any) -> Any:
    total = k - k  # of the dtype of k
    for i in range(q.size):
        total += k * q[i] * q[i]
    return total


@njit
def _energy_vjp(g: Any, q: Any, k: Any) -> Any:
    return 2.0 * k * g * q, g * np.sum(q * q)


@njit
def _outer(a: Any, b: Any, c: Any) -> Any:
    r = np.empty((a.size, b.shape[1]), a.dtype)
    for i in range(a.size):
        for j in range(b.shape[1]):
            r[i, j] = a[i] * b[0, j] * b[1, j] * c
    return r


@njit
def _outer_vjp(g: Any, a: Any, b: Any, c: Any) -> Any:
    da, db, dc = np.zeros_like(a), np.zeros_like(b), 0.0 * c
    for i in range(a.size):
        for j in range(b.shape[1]):
            da[i] += g[i, j] * b[0, j] * b[1, j] * c
            db[0, j] += g[i, j] * a[i] * b[1, j] * c
            db[1, j] += g[i, j] * a[i] * b[0, j] * c
            dc += g[i, j] * a[i] * b[0, j] * b[1, j]
    return da, db, dc


@njit
def _cubed(x: Any) -> Any:
    return x * x * x


@njit
def _cubed_vjp(g: Any, x: Any) -> Any:
    return 3 * x * x * g


smooth = tape.custom(_smooth, _smooth_vjp, name="smooth")
energy = tape.custom(_energy, _energy_vjp, name="energy")
outer = tape.custom(_outer, _outer_vjp, name="outer")
cubed = tape.custom(_cubed, _cubed_vjp, name="cubed")


def smooth_of_operations(u: Any) -> Any:
    return tape.cat([u[:1], u[1:-1] * u[1:-1] + 0.5 * (u[:-2] + u[2:]), u[-1:]])


def energy_of_operations(q: Any, k: Any) -> Any:
    return k * (q * q).sum()


def outer_of_operations(a: Any, b: Any, c: Any) -> Any:
    return a[:, None] * (b[0] * b[1]) * c


@pytest.fixture(params=[True, False], ids=["native", "plain"], autouse=True)
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run every test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
    return bool(request.param)


def leaf(value: Any, dtype: Any = tape.float64) -> Any:
    return tape.tensor(value, dtype=dtype, requires_grad=True)


def same(function: Callable[..., Any], replica: Callable[..., Any], *values: Any, dtype: Any = tape.float64) -> None:
    """Check value and gradients of a function of custom operations against one of ordinary operations."""
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == tape.float32 else {"rtol": 1e-12, "atol": 1e-14}
    found = []
    for f in (function, replica):
        leaves = [leaf(v, dtype) for v in values]
        y = f(*leaves)
        weights = tape.from_numpy(np.cos(np.arange(y.numel(), dtype=dtype)).reshape(y.shape))
        (y * weights).sum().backward()
        found.append((y.detach().numpy(), *(None if x.grad is None else x.grad.numpy() for x in leaves)))
        assert y.dtype == dtype
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            assert np.allclose(a, b, **tolerance)


A, B = np.array([1.0, -0.5]), np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 2.0]])

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "one": (smooth, smooth_of_operations, (START,)),
    "number": (cubed, lambda x: x**3, (1.5,)),
    "0-d operand and result": (energy, energy_of_operations, (START, 2.0)),
    "three": (outer, outer_of_operations, (A, B, 1.5)),
    "an operand twice": (lambda q: energy(q, q[0]), lambda q: energy_of_operations(q, q[0]), (START,)),
    "a Python number": (lambda q: energy(q, 3), lambda q: energy_of_operations(q, 3), (START,)),
    "a NumPy array": (lambda k: energy(START, k), lambda k: energy_of_operations(tape.tensor(START), k), (2.0,)),
    "between operations": (
        lambda u: tape.sin(smooth(u * 2)) + u,
        lambda u: tape.sin(smooth_of_operations(u * 2)) + u,
        (START,),
    ),
    "a view with steps": (
        lambda u: smooth(u.expand(2, 4).reshape(8)[::2]),
        lambda u: smooth_of_operations(u.expand(2, 4).reshape(8)[::2]),
        (START,),
    ),
    "broadcast before": (
        lambda k: smooth(k.expand(4) * tape.tensor(START)),
        lambda k: smooth_of_operations(k.expand(4) * tape.tensor(START)),
        (2.0,),
    ),
    "transposed": (
        lambda a, b: outer(a, b.T.contiguous().T, 2.0),
        lambda a, b: outer_of_operations(a, b, 2.0),
        (A, B),
    ),
    "a view of the result": (
        lambda u: smooth(u)[1:] * smooth(u)[:-1],
        lambda u: smooth_of_operations(u)[1:] * smooth_of_operations(u)[:-1],
        (START,),
    ),
    "broadcast after": (
        lambda q, k: energy(q, k) * q,
        lambda q, k: energy_of_operations(q, k) * q,
        (START, 2.0),
    ),
    "of itself": (
        lambda u: smooth(smooth(smooth(u))),
        lambda u: smooth_of_operations(smooth_of_operations(smooth_of_operations(u))),
        (START,),
    ),
    "written to before": (
        lambda u: smooth((u * 1).index_put_((tape.tensor([1]),), u[2] * 3)),
        lambda u: smooth_of_operations((u * 1).index_put_((tape.tensor([1]),), u[2] * 3)),
        (START,),
    ),
}


@pytest.mark.parametrize(("function", "replica", "values"), CASES.values(), ids=CASES.keys())
def test_as_composed_operations(function: Any, replica: Any, values: Any) -> None:
    same(function, replica, *values)


@pytest.mark.parametrize("name", ["one", "0-d operand and result", "three", "between operations"])
def test_float32(name: str) -> None:
    function, replica, values = CASES[name]
    same(function, replica, *(np.asarray(v, np.float32) for v in values), dtype=tape.float32)


@pytest.mark.parametrize("name", ["one", "number", "0-d operand and result", "three", "an operand twice"])
def test_against_differences(name: str) -> None:
    function, _, values = CASES[name]
    assert tape.autograd.gradcheck(function, tuple(leaf(v) for v in values))


def test_mixed_dtypes_promote_as_between_tensors() -> None:
    """What has dims decides within a category."""
    q, k = leaf([1.0, 2.0], tape.float32), leaf(3.0)
    y = energy(q, k)
    y.backward()
    assert (y.dtype, q.grad.dtype, k.grad.dtype) == (tape.float32, tape.float32, tape.float64)
    assert (y.item(), q.grad.tolist(), k.grad.item()) == (15.0, [6.0, 12.0], 5.0)


def test_only_what_requires_grad_gets_a_gradient() -> None:
    q, k = tape.tensor(START), leaf(2.0)
    energy(q, k).backward()
    assert q.grad is None
    assert k.grad.item() == np.sum(START**2)
    assert not energy(q, 2.0).requires_grad
    with tape.no_grad():
        assert not energy(q, k).requires_grad


def test_value_written_to_later_is_kept() -> None:
    x = leaf(START)
    u = x * 1
    y = smooth(u)
    u.zero_()
    y[1:].mul_(2)
    y.sum().backward()
    replica = leaf(START)
    v = smooth_of_operations(replica)
    (v[:1].sum() + 2 * v[1:].sum()).backward()
    assert np.allclose(x.grad.numpy(), replica.grad.numpy(), rtol=1e-14)


def test_gradients_accumulate_and_graphs_are_swept_twice() -> None:
    x = leaf(START)
    y = smooth(x).sum() + (x * x).sum()
    (first,) = tape.autograd.grad(y, x, retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    assert np.array_equal(x.grad.numpy(), 2 * first.numpy())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_names() -> None:
    y = smooth(leaf(START))
    assert y.grad_fn.name() == "smoothBackward"
    assert (smooth.__name__, smooth.__doc__) == ("smooth", "Mean of neighbours.")
    assert tape.custom(_cubed, _cubed_vjp)(leaf(1.0)).grad_fn.name() == "_cubedBackward"


def test_hooks_around_it() -> None:
    x = leaf(START)
    y = smooth(x * 1)
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.sum().backward()
    (g,) = tape.autograd.grad(smooth(x).sum(), x)
    assert y.grad.tolist() == [2.0] * 4
    assert np.array_equal(x.grad.numpy(), 2 * g.numpy())


def test_batched_cotangents() -> None:
    for function, replica, values in (CASES["one"], CASES["between operations"]):
        x, w = leaf(values[0]), leaf(values[0])
        (found,) = tape.autograd.grad(function(x), x, tape.eye(4), is_grads_batched=True)
        (expected,) = tape.autograd.grad(replica(w), w, tape.eye(4), is_grads_batched=True)
        assert np.allclose(found.numpy(), expected.numpy(), rtol=1e-14)
    q, k = leaf(START), leaf(2.0)
    gq, gk = tape.autograd.grad(energy(q, k), [q, k], tape.tensor([1.0, 3.0]), is_grads_batched=True)
    assert gk.tolist() == [np.sum(START**2), 3 * np.sum(START**2)]
    assert gq.tolist() == [(4 * START).tolist(), (12 * START).tolist()]


@native
@pytest.mark.usefixtures("own_tape")
@pytest.mark.parametrize("sweep", [True], indirect=True)
def test_no_python_in_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape.engine.nodes._left", [0])  # a process's first backwards keep the shapes of graphs

    def chain(n: int) -> Any:
        y = leaf(START * 0.1)
        for _ in range(n):
            y = smooth(y * 0.5)
        return y.sum()

    chain(10).backward()  # compiles
    for n in (10, 1000):
        loss = chain(n)
        names = python_calls(loss.backward)
        assert len(names) <= 25, names


def test_chain_of_a_thousand() -> None:
    def chain(operation: Callable[[Any], Any], x: Any) -> Any:
        for _ in range(1000):
            x = operation(x) * 0.7
        return x

    x, w = leaf(START * 0.1), leaf(START * 0.1)
    chain(smooth, x).sum().backward()
    chain(smooth_of_operations, w).sum().backward()
    assert np.allclose(x.grad.numpy(), w.grad.numpy(), rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("name", ["one", "between operations", "0-d operand and result", "three", "of itself"])
def test_replay_with_other_values(name: str) -> None:
    function, replica, values = CASES[name]

    def loss(*xs: Any) -> Any:
        return (function(*xs) * 2).sum()

    program = tape.record(loss, *values)
    for factor in (1.0, 1.5, -0.25):
        others = [np.asarray(v) * factor for v in values]
        leaves = [leaf(v) for v in others]
        expected = (replica(*leaves) * 2).sum()
        expected.backward()
        assert np.allclose(float(program(*others)), expected.item(), rtol=1e-13)
        value, grads = program.value_and_grad(*others)
        grads = grads if isinstance(grads, tuple | list) else (grads,)
        assert np.allclose(float(value), expected.item(), rtol=1e-13)
        for g, x in zip(grads, leaves, strict=False):
            assert np.allclose(np.asarray(g), x.grad.numpy(), rtol=1e-12, atol=1e-14)


@native
@pytest.mark.parametrize("sweep", [True], indirect=True)
def test_no_python_in_replays() -> None:
    counts = []
    for n in (10, 300):

        def loss(x: Any, n: int = n) -> Any:
            for _ in range(n):
                x = smooth(x * 0.5)
            return x.sum()

        program = tape.record(loss, START)
        program(START)  # plans the memory of replays forward, as the next line does of both ways
        program.value_and_grad(START)
        counts.append((len(python_calls(program, START)), len(python_calls(program.value_and_grad, START))))
    assert counts[0] == counts[1]


def test_threads() -> None:
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(20):
            q, c = leaf(START), leaf(float(k))
            energy(smooth(q), c).backward()
            if not np.isclose(c.grad.item(), np.sum(_smooth(START) ** 2)):
                wrong.append((k, c.grad))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_is_kept() -> None:
    def swept() -> None:
        x = tape.ones(100_000).requires_grad_()
        smooth(smooth(x)).sum().backward()
        del x
        recorded()  # collects what is dead

    assert held(swept) < 100_000


# Errors.


def test_plain_functions_are_refused() -> None:
    with pytest.raises(TypeError, match=r"forward is a function; decorate it with numba.njit"):
        tape.custom(lambda x: x, _cubed_vjp)
    with pytest.raises(TypeError, match=r"vjp is a function; decorate it with numba.njit"):
        tape.custom(_cubed, lambda g, x: g * x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (smooth, TypeError, "smooth: takes at least one operand"),
        (lambda: smooth(tape.tensor([1, 2])), TypeError, "smooth: an operand has dtype int64; operands are floating"),
        (lambda: smooth(np.array([True])), TypeError, "smooth: an operand has dtype bool"),
        (lambda: smooth(tape.zeros(0)), ValueError, r"smooth: an operand of shape \[0\] has no elements"),
        (lambda: smooth("text"), TypeError, "str"),
        (lambda: outer(leaf(A), leaf(A), 1.0), TypingError, "nopython"),
    ],
    ids=["none", "integers", "booleans", "empty", "text", "another rank"],
)
def test_wrong_operands(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    x = leaf([1.0])
    cubed(x).backward()
    assert x.grad.tolist() == [3.0]


def test_result_of_another_dtype() -> None:
    @njit
    def count(x: Any) -> Any:
        return x.size

    @njit
    def nothing(g: Any, x: Any) -> Any:  # noqa: ARG001
        return x

    with pytest.raises(TypeError, match="count: forward returned int64 for operands of float64"):
        tape.custom(count, nothing)(leaf(START))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what Numba prints
def test_vjp_that_raises_or_has_another_shape_is_named() -> None:
    @njit
    def same_value(x: Any) -> Any:
        return x * 1.0

    @njit
    def raises(g: Any, x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return g

    @njit
    def short(g: Any, x: Any) -> Any:  # noqa: ARG001
        return g[1:]

    unhappy = tape.custom(same_value, raises, name="unhappy")
    shorter = tape.custom(same_value, short, name="shorter")
    x = leaf([-1.0, 2.0])
    for operation, name in ((unhappy, "unhappy|negative"), (shorter, "shorter")):
        with pytest.raises((RuntimeError, ValueError), match=name):
            operation(x).sum().backward()
    good = leaf([1.0, 2.0])
    unhappy(good).sum().backward()
    smooth(good * 1).sum().backward()
    assert good.grad.tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what Numba prints
def test_forward_that_raises() -> None:
    @njit
    def positive(x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return x * 2.0

    @njit
    def twice(g: Any, x: Any) -> Any:  # noqa: ARG001
        return g * 2.0

    operation = tape.custom(positive, twice, name="positive")
    with pytest.raises(ValueError, match="negative"):
        operation(leaf([-1.0, 2.0]))
    x = leaf([1.0, 2.0])
    operation(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    program = tape.record(lambda x: operation(x * 1.0).sum(), np.ones(2))
    with pytest.raises((RuntimeError, ValueError), match=r"positive|negative"):
        program(np.array([-1.0, 2.0]))
    assert float(program(np.array([1.0, 2.0]))) == 6.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what Numba prints
def test_what_raised_is_named_whatever_ran_after_it() -> None:
    @njit
    def same_value(x: Any) -> Any:
        return x * 1.0

    @njit
    def raises(g: Any, x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return g

    operation = tape.custom(same_value, raises, name="unhappy")
    good, bad = leaf([1.0, 2.0]), leaf([-1.0, 2.0])
    with pytest.raises((RuntimeError, ValueError), match=r"unhappy|negative"):
        (operation(good).sum() + operation(bad).sum() + operation(good * 2).sum()).backward()


def test_new_shapes_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel serves all shapes of its ranks, in sweeps and in replays."""

    @njit
    def scaled(a: Any, k: Any) -> Any:
        return a * k

    @njit
    def scaled_vjp(g: Any, a: Any, k: Any) -> Any:
        return g * k, (g * a).sum()

    operation, begun = tape.custom(scaled, scaled_vjp), list[str]()
    monkeypatch.setattr(cache_files, "on_compile", [begun.append])
    for m in range(1, 6):
        for n in range(1, 5):
            values = np.arange(1.0, m * n + 1).reshape(m, n)
            a, k = leaf(values), leaf(1.5)
            operation(a, k).sum().backward()
            np.testing.assert_array_equal(a.grad.numpy(), np.full((m, n), 1.5))
            assert k.grad.item() == values.sum()
            program = tape.record(lambda a: operation(a, 1.5).sum(), np.ones((m, n)))
            value, gradient = program.value_and_grad(values)
            assert float(value) == 1.5 * values.sum()
            np.testing.assert_array_equal(gradient[0], np.full((m, n), 1.5))
    assert begun.count("scaled") <= 2


def test_gradients_of_a_pair_where_one_is_expected() -> None:
    pair = tape.custom(_energy, _cubed_vjp, name="pair")
    with pytest.raises((TypeError, ValueError, RuntimeError), match=r"pair|argument|positional"):
        pair(leaf(START), leaf(1.0)).backward()


def test_second_derivative_is_refused() -> None:
    x = leaf(START)
    with pytest.raises(NotImplementedError, match="smooth"):
        tape.autograd.grad(smooth(x).sum(), x, create_graph=True)
    smooth(x).sum().backward()
    assert x.grad is not None


def test_one_made_within_a_compiled_function_is_one_operation() -> None:
    compiled = tape.compile(lambda q: tape.custom(_energy, _energy_vjp)(q, 2.0), check="never")
    for k in range(4):
        assert compiled(START + k) == pytest.approx(2.0 * np.sum((START + k) ** 2), rel=1e-14)
    assert compiled.programs[0].hits == 2
