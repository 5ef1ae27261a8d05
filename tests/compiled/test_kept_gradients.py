"""A compiled function that returns a number, on tensors: gradients are kept until ``backward``, as in dynamic mode."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.reference_tape import saved_arrays
from kernels.machine_code.call_structs import CallPlan
from kernels.machine_code.compiled_machine import DEBUG
from kernels.sweeps.reverse import NATIVE, PausedSweep
from tape.tensors import modes

pytestmark = pytest.mark.quick
VALUES = [1.0, 2.0, -3.0], [0.5, -1.0, 2.0]


def _loss(a: Any, b: Any) -> Any:
    return (a * b).sum() + (a * a * a).mean()


def _leaves(dtype: Any = np.float64) -> list[Any]:
    return [tape.tensor(np.array(v, dtype), requires_grad=True) for v in VALUES]


def _grads(tensors: Any) -> list[Any]:
    return [None if t.grad is None else np.array(t.grad.detach()) for t in tensors]


def _arrays(tensors: Any) -> list[Any]:
    return [np.array(t.detach()) for t in tensors]


def _warm(f: Any, calls: int = 12, make: Callable[[], list[Any]] = _leaves) -> Any:
    for _ in range(calls):
        f(*make()).backward()
    return f


def _is_native(f: Any, *args: Any) -> bool:
    """Whether native code makes a call; not where the tape has to grow, as it does once in a while."""
    if DEBUG:  # no plan of machine code is tried while it is checked
        return True
    taken = [int(f._direct[0].words[CallPlan.taken]) if NATIVE else k for k in range(3) if k == 0 or f(*args)]
    return taken[1] == taken[0] + 1 or taken[2] == taken[1] + 1


def _retained(f: Any) -> list[Any]:
    ts = _leaves()
    loss = f(*ts)
    loss.backward(retain_graph=True)
    first = _grads(ts)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    return [*first, *_grads(ts)]


def _freed(f: Any) -> list[Any]:
    ts = _leaves()
    loss = f(*ts)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    return _grads(ts)


def _scaled(f: Any) -> list[Any]:
    found = []
    for weigh in (
        lambda y: (y * -2.5).backward(),
        lambda y: y.backward(tape.tensor(3.0)),
        lambda y: (y * 0).backward(),
    ):
        ts = _leaves()
        weigh(f(*ts))
        found += _grads(ts)
    return found


def _accumulated(f: Any) -> list[Any]:
    ts = _leaves()
    f(*ts).backward()
    held = [t.grad for t in ts]
    for _ in range(3):
        f(*ts).backward()
    assert all(grad is t.grad for grad, t in zip(held, ts, strict=True))
    return _grads(ts)


def _second_order(f: Any) -> list[Any]:
    ts = _leaves()
    gradients = tape.autograd.grad(f(*ts), ts, create_graph=True)
    sum((g * g).sum() for g in gradients).backward()
    a, b = ts
    hessian = tape.func.hessian(lambda x: f(x, b.detach()))(a.detach())
    return [*_arrays(gradients), *_grads(ts), np.array(hessian)]


def _hooked(f: Any) -> list[Any]:
    ts = _leaves()
    ts[0].register_hook(lambda g: g * 2)
    loss = f(*ts)
    loss.register_hook(lambda g: g * 3)
    loss.backward()
    others = _leaves()
    loss = f(*others)
    loss.retain_grad()
    (loss * 4.0).backward()
    return [*_grads(ts), *_grads(others), np.array(loss.grad)]


def _changed_in_place(f: Any) -> list[Any]:
    found = []
    for create in (False, True):
        ts = _leaves()
        loss = f(*ts)
        with tape.no_grad():
            ts[0].mul_(10.0)
            ts[1][0] = 7.0
        found += _arrays(tape.autograd.grad(loss, ts, create_graph=create))
    ts = _leaves()
    loss = f(*ts)
    ts[0].data = tape.tensor([7.0, 8.0, 9.0])
    loss.backward()
    f(*ts).backward()
    return [*found, *_grads(ts)]


def _changed_by_numpy(f: Any) -> list[Any]:
    values = [np.array(v) for v in VALUES]
    ts = [tape.from_numpy(x).requires_grad_() for x in values]
    loss = f(*ts)
    values[0] *= 5
    gradients = tape.autograd.grad(loss, ts, create_graph=True)
    return [*_arrays(gradients), *_arrays(tape.autograd.grad(gradients[0].sum(), ts))]


def _some_wanted(f: Any) -> list[Any]:
    ts = _leaves()
    ts[1].requires_grad_(False)
    f(*ts).backward()
    others = _leaves()
    f(*others).backward(inputs=[others[1]])
    last = _leaves()
    loss = f(*last)
    (g,) = tape.autograd.grad(loss, last[1], retain_graph=True)
    return [*_grads(ts), *_grads(others), np.array(g), np.array(tape.autograd.grad(loss, last[0])[0])]


def _of_computed(f: Any) -> list[Any]:
    ts = _leaves()
    f(ts[0] * 2.0, ts[1].sin()).backward()
    x = tape.tensor(np.linspace(0.1, 1, 6).reshape(2, 3), requires_grad=True)
    f(x[0], x[1]).backward()
    y = tape.tensor(np.linspace(0.1, 1, 6).reshape(3, 2), requires_grad=True)
    f(y[:, 0], y[:, 1]).backward()
    z = tape.tensor(np.linspace(0.1, 1, 3), requires_grad=True)
    f(z, z).backward()
    return [*_grads(ts), *_grads([x, y, z])]


def _among_operations(f: Any) -> list[Any]:
    ts = _leaves()
    (f(*ts) + 0.1 * (ts[0] ** 2).sum() + f(ts[1], ts[0])).backward()
    return _grads(ts)


def _never_pulled_back(f: Any) -> list[Any]:
    for _ in range(30):
        f(*_leaves())
    ts = _leaves()
    sum([f(*ts) for _ in range(12)]).backward()
    with tape.no_grad():
        assert not f(*ts).requires_grad
    return _grads(ts)


def _transformed(f: Any) -> list[Any]:
    a, b = (t.detach() for t in _leaves())
    pushed = tape.func.jvp(f, (a, b), (b, a))[1]
    first, backward = (transform(f, argnums=(0, 1))(a, b) for transform in (tape.func.grad, tape.func.jacrev))
    return _arrays([*first, *backward, pushed])


PROGRAMS = [
    _retained, _freed, _scaled, _accumulated, _second_order, _hooked, _changed_in_place, _changed_by_numpy,
    _some_wanted, _of_computed, _among_operations, _never_pulled_back, _transformed,
]  # fmt: skip


@pytest.mark.parametrize("mode", ["max", "eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_done_with_the_result(program: Callable[[Any], list[Any]], mode: str) -> None:
    """It is as with the function itself."""
    for one, other in zip(program(_warm(tape.compile(_loss, mode=mode))), program(_loss), strict=True):
        if other is None:
            assert one is None
        else:
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["max", "eager"])
@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, y: tape.where(x > 0, x, 0.0).sum() * y, ([1.0, -2.0], 3.0)),
        (lambda x, y: (x * y).sum().reshape(1), ([1.0, -2.0], [0.5, 0.25])),
        (lambda x, y: (x @ x.T).sum() + y.sum(), (np.eye(3) * 2 + 0.5, np.ones((2, 0)))),
        (lambda x, _: x.sum(), ([1.0, 2.0], [3.0])),
        (lambda x, y: x * y, (2.0, -0.0)),
    ],
)
def test_kinds_of_operands(function: Any, values: Any, mode: str) -> None:
    """Numbers, empty tensors, what the result does not depend on; what nothing reaches lets infinite slopes be."""
    for dtype in (np.float64, np.float32):
        f = tape.compile(function, mode=mode)
        for k in range(10):
            found = []
            for run in (f, function):
                ts = [tape.tensor(np.array(v, dtype) * (1 + k), requires_grad=True) for v in values]
                run(*[t.clamp(min=0.0).sqrt() if k == 9 else t for t in ts]).backward()
                found.append(_grads(ts))
            for one, other in zip(*found, strict=True):
                assert (one is None) == (other is None)
                if other is not None:
                    assert one.dtype == other.dtype
                    np.testing.assert_allclose(one, other, rtol=1e-12 if dtype == np.float64 else 1e-5)


def test_native_code_makes_the_call_and_hands_over_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python runs in the call, but for what is outside; nor in the sweep of what the result is part of."""
    if not NATIVE:
        pytest.skip("native code reads no objects here")
    weights, ran = np.array([0.5, 2.0, 4.0]), list[Any]()
    f = tape.compile(lambda a, b: (a * b * weights).sum())
    _warm(f)
    monkeypatch.setattr(PausedSweep, "call", lambda *args: ran.append(args))
    f(*_leaves()).backward()
    taken = f._direct[0].words[CallPlan.taken]
    ts = _leaves()
    loss = f(*ts)
    assert f._direct[0].words[CallPlan.taken] == taken + 1
    (loss * 2.0).backward()
    assert ran == []
    for t, other in zip(ts, VALUES[::-1], strict=True):
        np.testing.assert_allclose(np.array(t.grad), 2 * weights * other)
    weights[:] = 1.0
    loss = f(*_leaves())
    assert loss.item() == pytest.approx(np.dot(*VALUES))


@pytest.mark.parametrize("mode", ["max", "eager"])
def test_native_code_copies_what_numpy_may_write(mode: str) -> None:
    """Arguments that share memory with NumPy's arrays are no reason for Python; the tape has what they held."""
    data = [np.array(v) for v in VALUES]
    f = tape.compile(lambda w, x, y: ((w * x).exp() * y).sum(), mode=mode)
    w = tape.tensor([0.3, 0.2, 0.1], requires_grad=True)
    shared = [tape.as_tensor(x) for x in data]
    for _ in range(12):
        f(w, *shared).backward()
    assert _is_native(f, w, *shared)
    w.grad, loss = None, f(w, *shared)
    x, y = (d.copy() for d in data)
    for d in data:
        d[:] = 2.0 * d
    (g,) = tape.autograd.grad(loss, w, create_graph=True)
    e = np.exp(np.array([0.3, 0.2, 0.1]) * x)
    np.testing.assert_allclose(np.array(g.detach()), e * x * y)
    g.sum().backward()
    np.testing.assert_allclose(np.array(w.grad), e * x * x * y)
    np.testing.assert_allclose(f(w, *shared).item(), np.sum(np.exp(np.array([0.3, 0.2, 0.1]) * data[0]) * data[1]))


def test_a_step_is_native_before_there_is_machine_code() -> None:
    """In the default mode, too: from then on Python makes only the calls of checks, and of other code."""
    if not NATIVE or DEBUG:
        pytest.skip("native code reads no objects here")
    f = tape.compile(_step, check="never")
    x, v, m = _start()
    for _ in range(10):
        x, v, _ = f(x, v, m)
    plan = f._direct[0]
    assert plan.words[CallPlan.left] > 100
    answered, slow = list[Any](), f._slow
    f._slow = lambda *args: [answered.append(args), slow(*args)][1]
    for _ in range(100):
        x, v, _ = f(x, v, m)
    assert len(answered) < 5  # where the tape has to grow
    for _ in range(20_000):
        if f._direct[0] is not plan:
            break
        x, v, _ = f(*_start())
    assert f.programs[0].is_machine_code
    for _ in range(2):  # Python looks at the first calls of other code
        x, v, _ = f(x, v, m)
    assert _is_native(f, x, v, m)
    (x * v).sum().backward()
    assert m.grad is not None


def test_an_array_from_outside_that_changes_before_the_gradients_are_differentiated() -> None:
    """The program reads what the array held at the call."""
    scale = np.array([1.0, 2.0, 3.0])
    fixed = tape.tensor([1.0, 2.0, 3.0])
    f = _warm(tape.compile(lambda a, b: (a * a * b * scale * fixed).sum(), mode="max"))
    for _ in range(3):
        a, b = _leaves()
        held, once = scale * fixed.numpy(), f(a, b)
        scale += 1.0
        fixed.mul_(2.0)
        (g,) = tape.autograd.grad(once, a, create_graph=True)
        np.testing.assert_allclose(np.array(g.detach()), 2 * np.array(VALUES[0]) * VALUES[1] * held)
        g.sum().backward()
        np.testing.assert_allclose(np.array(a.grad), 2 * np.array(VALUES[1]) * held)


def test_memory_does_not_grow() -> None:
    """Of calls whose results are kept without a backward, gradients do not pile up."""
    x = tape.tensor(np.ones(1 << 16), requires_grad=True)
    f = _warm(tape.compile(lambda x: (x * x).sum(), mode="max"), make=lambda: [x])
    results = [f(x) for _ in range(100)]
    saved = saved_arrays(modes.own_tape().entries).arrays(0)[::3]
    assert len({id(a) for a in saved if a.size == x.numel()}) < 10
    assert len({y.item() for y in results}) == 1


def test_threads() -> None:
    """Each has its own tape, and all one program."""
    f, failed = _warm(tape.compile(_loss, mode="max")), []

    def through() -> list[Any]:
        ts = _leaves()
        for _ in range(20):
            (f(*ts) * 1.5).backward()
            f(*ts).backward()
        return _grads(ts)

    expected = through()

    def work() -> None:
        for _ in range(10):
            for one, other in zip(through(), expected, strict=True):
                if not np.array_equal(one, other):
                    failed.append(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_errors_are_the_functions() -> None:
    """Of the forward; a gradient that cannot be computed raises in the backward alone."""

    class Failing(tape.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(*_: Any) -> Any:
            raise ValueError("no gradient here")

    f = tape.compile(lambda x: Failing.apply(x).sum())
    for _ in range(6):
        x = tape.tensor([1.0, 2.0], requires_grad=True)
        loss = f(x)
        assert loss.item() == 6.0
        with pytest.raises(ValueError, match="no gradient here"):
            loss.backward()
    g = tape.compile(lambda x: tape.linalg.cholesky(x).sum(), mode="max")
    for k in range(8):
        x = tape.tensor(np.eye(2) * (1.0 if k < 6 else -1.0), requires_grad=True)
        if k < 6:
            g(x).backward()
        else:
            with pytest.raises(np.linalg.LinAlgError):
                g(x)


# Several results, or one of several elements: machine code runs the pullback, on what the call has saved.


def _step(x: Any, v: Any, m: Any) -> Any:
    pull = (x * x).sum() * m
    v = v - 0.1 * x * pull
    return x + 0.1 * v, v, pull


def _start(dtype: Any = np.float64) -> list[Any]:
    values = [0.3, -0.5, 0.7], [0.1, 0.2, -0.4], 1.5
    return [tape.tensor(np.array(v, dtype), requires_grad=True) for v in values]


def _natively(function: Any, dtype: Any = np.float64, mode: str = "max") -> Any:
    """Return a function, compiled, as native code calls it."""
    f = tape.compile(function, mode=mode)
    for _ in range(12):
        x, v, m = _start(dtype)
        for _ in range(2):
            x, v, _ = f(x, v, m)
    return f


LOSSES = {
    "all": lambda r: (r[0] * r[1]).sum() * r[2],
    "first": lambda r: (r[0] * r[0]).sum(),
    "number": lambda r: r[2] * 2.0,
    "view": lambda r: r[0][1:].sum() + r[1][0],
    "twice": lambda r: (r[0] * r[0]).sum() + r[0].sum(),
    "constant": lambda r: r[0].sum() + r[1].mean() + r[2],
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mode", ["max", "eager"])
def test_through_two_steps(loss: str, dtype: Any, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All results used or some, in a second backward, and no Python in the calls, nor in the sweep."""
    f, ran = _natively(_step, dtype, mode), list[Any]()
    call = PausedSweep.call
    monkeypatch.setattr(PausedSweep, "call", lambda *args: [ran.append(args), call(*args)])

    def through(step: Any) -> list[Any]:
        x, v, m = leaves = _start(dtype)
        for _ in range(2):
            x, v, p = step(x, v, m)
        y = LOSSES[loss]((x, v, p))
        y.backward(retain_graph=True)
        first = _grads(leaves)
        y.backward()
        return [*first, *_grads(leaves)]

    for a, b in zip(through(f), through(_step), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12 if dtype == np.float64 else 2e-5)
    assert ran == [] or dtype == np.float32 or not NATIVE
    assert dtype == np.float32 or _is_native(f, *_start(dtype))  # a number in float32 is no Python float


def _hooked_node(f: Any) -> list[Any]:
    seen: list[Any] = []
    for node in (False, True):
        x, v, m = leaves = _start()
        x, v, p = f(x, v, m)
        x.register_hook(lambda g: g * 2.0)
        v.register_hook(lambda g, seen=seen: seen.append(np.array(g)))
        v.retain_grad()
        if node:
            for _ in range(2):
                x.grad_fn.register_prehook(lambda grads: tuple(None if g is None else g * 1.0 for g in grads))
        x, w, p = f(x, v, m)
        ((x * w).sum() * p).backward()
        seen += [*_grads(leaves), np.array(v.grad)]
    return seen


def _written_between(f: Any) -> list[Any]:
    x, v, m = leaves = _start()
    y = x * 1.0
    p, q, r = f(y, v, m)
    y.mul_(3.0)
    p.mul_(2.0)
    p[0] = q[0] * 2.0
    with tape.no_grad():
        v[1] = 5.0
    (p.sum() + (q * q).sum() + y.sum() + r).backward()
    return _grads(leaves)


def _derived_again(f: Any) -> list[Any]:
    x, v, m = leaves = _start()
    x, v, p = f(*f(x, v, m)[:2], m)
    first = tape.autograd.grad((x * v).sum() * p, leaves, create_graph=True)
    second = tape.autograd.grad(sum((g * g).sum() for g in first), leaves)
    x, v, m = (t.detach() for t in _start())
    jacobians = tape.func.jacrev(lambda x, v: f(x, v, m)[0], argnums=(0, 1))(x, v)
    return _arrays([*first, *second, *jacobians])


def _dropped(f: Any) -> list[Any]:
    x, v, m = leaves = _start()
    for _ in range(5):
        x, v, _ = f(x, v, m)
        f(x, v, m)
    modes.own_tape().collect()
    gc.collect()
    x.sum().backward()
    return _grads(leaves)


def _partly_wanted(f: Any) -> list[Any]:
    x, v, m = _start()
    for t in (v, m):
        t.requires_grad_(False)
    y = f(x, v, m)[0]
    y.backward(tape.tensor([1.0, -0.0, 2.0]))
    base = tape.tensor(np.linspace(0.1, 1, 6).reshape(2, 3), requires_grad=True)
    a, b, _ = f(base[0], base[1], m)
    (a * b).sum().backward()
    z = tape.tensor([0.0, 0.25, 1.0], requires_grad=True)
    f(z.sqrt(), v, m)[0][1:].sum().backward()
    return [*_grads([x, v, m, base]), np.array(z.grad)[1:]]


@pytest.mark.parametrize("mode", ["max", "eager"])
@pytest.mark.parametrize("program", [_hooked_node, _written_between, _derived_again, _dropped, _partly_wanted])
def test_several_results(program: Any, mode: str) -> None:
    """As with the function itself: hooks, writes, second derivatives, results that nobody wants."""
    f = _natively(_step, mode=mode)
    for _ in range(2):
        for one, other in zip(program(f), program(lambda *args: [y * 1.0 for y in _step(*args)]), strict=True):
            assert (one is None) == (other is None)
            if other is not None:
                np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("size", [3, 20_000])
def test_one_result_of_several_elements(size: int) -> None:
    """Large or small."""
    f = tape.compile(lambda x, y: x.exp() * y, mode="max")
    values = np.linspace(0, 1, size), np.linspace(1, 2, size)
    for k in range(10):
        x, y = (tape.tensor(v + k, requires_grad=True) for v in values)
        (f(x, y) * 2.0).sum().backward()
        np.testing.assert_allclose(np.array(x.grad), 2 * np.exp(values[0] + k) * (values[1] + k), rtol=1e-12)
        np.testing.assert_allclose(np.array(y.grad), 2 * np.exp(values[0] + k), rtol=1e-12)


@pytest.mark.parametrize("mode", ["max", "eager"])
def test_tensors_from_outside_and_in_structures(mode: str) -> None:
    """Parameters that a closure reads, or that are in a list; those in an order of their own."""
    order = np.asfortranarray(np.linspace(0.5, 2, 6).reshape(2, 3))

    def found(run: Callable[[Callable[..., Any]], Any]) -> list[Any]:
        w, c = tape.from_numpy(order.copy(order="F")).requires_grad_(), tape.tensor(0.5, requires_grad=True)
        by_closure = run(lambda x: (w @ x).sum() * c)
        by_list = run(lambda p, x: (p[0] @ x).sum() * p[1])
        grads: list[Any] = []
        for k in range(10):
            x = tape.tensor(np.full((3, 2), 1.0 + k))
            for f, args in ((by_closure, (x,)), (by_list, ([w, c], x))):
                w.grad = c.grad = None
                f(*args).backward()
                assert w.grad is not None
                grads += [*_grads([w, c]), np.array(w.grad * 2.0)]
                with tape.no_grad():
                    c.sub_(0.01)
        return grads

    for one, other in zip(found(lambda f: tape.compile(f, mode=mode)), found(lambda f: f), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("mode", ["max", "eager"])
def test_rows_of_a_larger_tensor_behind_tensors_of_their_own(mode: str) -> None:
    """Where the gradient of an argument is part of a larger one, the rest of that is zero."""
    f = tape.compile(lambda x: (x * x).sum(), mode=mode)
    values = np.linspace(0.5, 6, 12).reshape(3, 4)
    for k in range(20):
        x = tape.tensor(values + k if k > 9 else values[1] + k, requires_grad=True)
        (f(x[1] if k > 9 else x) ** 2).backward()
        expected = np.zeros(x.shape)
        expected[1 if k > 9 else ...] = 4 * (values[1] + k) * ((values[1] + k) ** 2).sum()
        np.testing.assert_allclose(np.array(x.grad), expected, rtol=1e-12)
    if NATIVE:  # which makes such calls, too, after some
        taken = f._direct[0].words[CallPlan.taken]
        f(tape.tensor(values, requires_grad=True)[1])
        assert f._direct[0].words[CallPlan.taken] == taken + 1


def test_jacobians_of_several_results() -> None:
    """Many cotangents at once, of a call that native code has made."""
    f = tape.compile(lambda x: (x.exp().sum(), x * 2.0), mode="max")
    for k in range(12):
        x = tape.tensor(np.linspace(0, 1, 4) + 0.1 * k)
        first, second = tape.func.jacrev(f)(x)
        np.testing.assert_allclose(np.array(first), np.exp(np.array(x)), rtol=1e-12)
        np.testing.assert_allclose(np.array(second), 2.0 * np.eye(4), rtol=1e-12)


@pytest.mark.parametrize("mode", ["max", "eager"])
def test_parts_of_a_vector_of_parameters_from_outside(mode: str) -> None:
    """They are no tensors that the call leaves behind; gradients reach the vector, which may be written between."""

    def found(make: Callable[[Callable[..., Any]], Any]) -> list[Any]:
        theta = tape.tensor(np.linspace(-1, 1, 12), requires_grad=True)
        w, b, c = theta[:8].reshape(2, 4), theta[8:10], theta[10]
        f, grads = make(lambda x: (tape.tanh(w @ x + b) * c).sum()), []
        for k in range(10):
            theta.grad = None
            f(tape.tensor(np.linspace(0, 1, 4) + k)).backward(retain_graph=True)
            grads += _grads([theta])
            with tape.no_grad():
                theta.sub_(0.01 * k)
        assert f is not compiled or "dynamic" not in f.explain()
        return grads

    compiled: Any = None

    def make(function: Callable[..., Any]) -> Any:
        nonlocal compiled
        compiled = tape.compile(function, mode=mode, check="always")
        return compiled

    for one, other in zip(found(make), found(lambda f: f), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
