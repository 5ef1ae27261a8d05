"""Forward mode: tangents pushed natively through every record, against reverse mode, differences and plain Python."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import tape
from kernels.operations import OPS
from kernels.sweeps import reverse
from tape.engine import accumulate_grad
from tape.tensors.tensor import AccumulateGrad
from tape.transforms.points import leaves_of, needs_graph, pushed, pushed_arrays
from tests.support import expressions, memories, record_cases
from tests.support.expressions import Expression
from tests.support.record_cases import Case, tensors

Array = np.ndarray[Any, Any]
CASES = [case for op in OPS.values() for case in record_cases.cases_of(op) if case.differentiable]
QUICK = [case for case in CASES if case.quick]
DTYPES = [(case, np.float64) for case in CASES] + [(case, np.float32) for case in QUICK]
FEW = {(case.name, np.float64) for case in QUICK} | {(case.name, np.float32) for case in QUICK[::8]}
WAYS = ["native", "plain"] if reverse.NATIVE else ["plain"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test by the native sweep and by the one in plain Python."""
    monkeypatch.setattr(reverse, "NATIVE", request.param == "native")
    return str(request.param)


def tangents_for(inputs: list[Any], seed: int = 3, lead: tuple[int, ...] = ()) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, (*lead, *x.shape)).astype(x.dtype) for x in inputs]


def close(a: Any, b: Any, dtype: Any, scale: float = 1.0) -> None:
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(scale, 1.0))


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(c, d, id=f"{c.name}-{d.__name__}", marks=[pytest.mark.exhaustive] * ((c.name, d) not in FEW))
        for c, d in DTYPES
    ],
)
def test_each_record_against_reverse_mode(case: Case, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = tensors(case.leaves(dtype))
    wanted = [x for x in inputs if x.requires_grad]
    result = case.run(*inputs)
    given_tangents = tangents_for(wanted)
    (pushed_native,) = pushed_arrays([result], wanted, given_tangents)
    assert pushed_native is not None
    assert pushed_native.shape == result.shape
    assert pushed_native.dtype == dtype
    weights = record_cases.weights_of(case, dtype)
    gradients = tape.autograd.grad(result, wanted, tape.tensor(weights), retain_graph=True, materialize_grads=True)
    across = sum(float((g.numpy() * t).sum()) for g, t in zip(gradients, given_tangents, strict=True))
    along = float((pushed_native * weights).sum())
    size = sum(float(np.abs(g.numpy() * t).sum()) for g, t in zip(gradients, given_tangents, strict=True))
    close(along, across, dtype, size)

    batch = [np.stack([t, 2 * t, -t]) for t in given_tangents]
    (several,) = pushed_arrays([result], wanted, batch, 3)
    assert several is not None
    close(several, np.stack([pushed_native, 2 * pushed_native, -pushed_native]), dtype, size)
    monkeypatch.setattr(reverse, "NATIVE", False)
    (in_python,) = pushed_arrays([result], wanted, given_tangents)
    close(in_python, pushed_native, dtype, size)


@given(expression=expressions.expressions())
def test_random_expressions_against_reverse_mode(expression: Expression) -> None:
    leaves = [tape.tensor(x, requires_grad=True) for x in expression.leaves()]
    loss = expression.loss(expressions.Tensors(tape), *leaves)
    tangents = tangents_for(leaves, expression.seed)
    (along,) = pushed_arrays([loss], leaves, tangents)
    gradients = tape.autograd.grad(loss, leaves, materialize_grads=True)
    across = sum(float((g.numpy() * t).sum()) for g, t in zip(gradients, tangents, strict=True))
    size = sum(float(np.abs(g.numpy() * t).sum()) for g, t in zip(gradients, tangents, strict=True))
    assert along is not None
    close(along, across, np.float64, size)


def agrees_with_reverse_mode(tensors: list[Any], seed: int) -> int:
    """Check that all tensors of a program together give one number in either direction; return how many take part."""
    made = [x for x in tensors if type(x._slot) is int and x.numel() and not accumulate_grad.shares(x.spec)]
    sources = {x._slot: x for x in tensors if type(x._slot) is AccumulateGrad}
    inputs = list(sources.values())
    if not made or not inputs:
        return 0
    weights = [tape.tensor(w) for w in tangents_for(made, seed)]
    tangents = tangents_for(inputs, seed + 1)
    gradients = tape.autograd.grad(made, inputs, weights, retain_graph=True, materialize_grads=True)
    across = [float((g.numpy() * t).sum()) for g, t in zip(gradients, tangents, strict=True)]
    found = pushed_arrays(made, inputs, tangents)
    along = [0.0 if t is None else float((t * w.numpy()).sum()) for t, w in zip(found, weights, strict=True)]
    close(sum(along), sum(across), np.float64, 10 * sum(map(abs, along + across)))
    return len(made)


@pytest.mark.usefixtures("way")
def test_random_programs_of_views_and_writes_against_reverse_mode() -> None:
    took_part = 0
    for seed in range(200):
        live = memories.Live()
        for step in memories.random_program(seed):
            if step[0] in ("backward", "second"):
                continue  # it frees what is to be swept
            live.run(step)
            if step[0] in ("method", "operator", "assign", "assign_with", "masked_fill", "index_put"):
                named = [x for name, x in live.names.items() if re.fullmatch(r"x\d+", name)]
                took_part += agrees_with_reverse_mode(named, seed)
    assert took_part > 1000


def leaf(*values: float, shape: tuple[int, ...] | None = None) -> Any:
    return tape.tensor(np.array(values, float).reshape(shape or (len(values),)), requires_grad=True)


def push(outputs: list[Any], inputs: list[Any], *tangents: Any, batch: int = 0) -> list[Any]:
    return [None if t is None else np.asarray(t).tolist() for t in pushed_arrays(outputs, inputs, tangents, batch)]


@pytest.mark.usefixtures("way")
class TestSweep:
    """What a forward sweep does apart from running one record."""

    def test_several_outputs_and_inputs(self) -> None:
        x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
        found = push([x * y, x.sum(), y * 2.0], [x, y], [1.0, 10.0], [0.5, 0.0])
        assert found == [[3.5, 40.0], 11.0, [1.0, 0.0]]

    def test_an_output_that_depends_on_nothing_asked(self) -> None:
        x, other = leaf(1.0), leaf(2.0)
        assert push([other * 2.0, x, x.detach() * 2.0], [x], [5.0]) == [None, [5.0], None]

    def test_one_output_twice_gives_two_arrays(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * 2.0
        first, second = pushed_arrays([y, y], [x], [np.ones(2)])
        assert first is not None
        assert second is not None
        assert not np.shares_memory(first, second)

    def test_elements_of_one_tensor(self) -> None:
        x = leaf(1.0, 2.0, 3.0)
        y = x[0] * x[2] + x[1]
        assert push([y], [x], [1.0, 10.0, 100.0]) == [3.0 + 10.0 + 100.0]

    def test_views_of_views_and_views_as_outputs(self) -> None:
        x = leaf(*range(6), shape=(2, 3))
        y = x * 2.0
        t = np.arange(6.0).reshape(2, 3) + 1
        found = push([y.T[1:], y[1], y, y.T.reshape(6).sum()], [x], t)
        assert found == [(2 * t).T[1:].tolist(), (2 * t)[1].tolist(), (2 * t).tolist(), 42.0]

    def test_an_expanded_output(self) -> None:
        x = leaf(1.0)
        assert push([(x * 3.0).expand(2, 2)], [x], [2.0]) == [[[6.0, 6.0], [6.0, 6.0]]]

    def test_writes_take_away_what_they_overwrite(self) -> None:
        x = leaf(1.0, 2.0, 3.0)
        y = x * 2.0
        before = y * 1.0
        y[1:] = y[:-1] * 10.0
        y[0] = 7.0
        assert push([y, before], [x], [1.0, 1.0, 1.0]) == [[0.0, 20.0, 20.0], [2.0, 2.0, 2.0]]

    def test_writes_that_add(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * 1.0
        y.index_put_((tape.tensor([0, 0]),), x * 3.0, accumulate=True)
        assert push([y], [x], [1.0, 10.0]) == [[34.0, 10.0]]

    def test_writes_to_picked_elements(self) -> None:
        x = leaf(1.0, 2.0, 3.0)
        y = x * 1.0
        y[[2, 0]] = x[1:] * 2.0
        y[tape.tensor([False, True, False])] = 5.0
        assert push([y], [x], [1.0, 10.0, 100.0]) == [[200.0, 0.0, 20.0]]

    def test_a_write_into_a_tensor_without_tangent(self) -> None:
        x = leaf(1.0, 2.0)
        y = tape.zeros(3)
        y[1:] = x * 2.0
        assert push([y], [x], [1.0, 10.0]) == [[0.0, 2.0, 20.0]]

    def test_a_value_without_tangent_clears(self) -> None:
        x, other = leaf(1.0, 2.0), leaf(3.0)
        y = x * 2.0
        y[:1] = other * 2.0
        assert push([y, y.sum()], [x], [1.0, 10.0]) == [[0.0, 20.0], 20.0]

    def test_views_see_writes_to_their_base(self) -> None:
        x = leaf(1.0, 2.0, 3.0)
        y = x * 1.0
        tail = y[1:]
        y[2] = x[0] * 5.0
        tail[0] = x[0] * 7.0
        assert push([tail, tail * 1.0, y], [x], [1.0, 10.0, 100.0]) == [[7.0, 5.0], [7.0, 5.0], [1.0, 7.0, 5.0]]

    def test_a_loop_of_writes(self) -> None:
        n = 50
        x = leaf(*([1.0] * n))
        y = x * 1.0
        for i in range(1, n):
            y[i] = y[i] + y[i - 1]
        (found,) = push([y], [x], np.ones(n))
        assert found == list(range(1, n + 1))

    def test_a_stencil_in_place(self) -> None:
        x = leaf(*np.sin(np.arange(12.0)))
        t = np.cos(np.arange(12.0))

        def run(u: Any) -> Any:
            u = u * 1.0
            for _ in range(4):
                u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
            return u

        (found,) = pushed_arrays([run(x)], [x], [t])
        np.testing.assert_allclose(found, run(t), rtol=1e-14)  # it is linear

    def test_a_select_cuts(self) -> None:
        x = leaf(0.0, 1.0)
        y = tape.where(x > 0.5, tape.sqrt(x), x)
        assert push([y], [x], [3.0, 3.0]) == [[3.0, 1.5]]
        flat = leaf(0.0, 4.0)
        with np.errstate(all="ignore"):
            z = tape.where(flat > 1.0, 1.0 / flat, flat * 2.0).sum()
        assert push([z], [flat], [1.0, 16.0]) == [2.0 - 1.0]

    def test_ties_and_kinks(self) -> None:
        x = leaf(1.0, 1.0, 0.0)
        found = push([x.max(), x.max(0)[0], tape.maximum(x, 1.0), x.abs()], [x], [2.0, 4.0, 8.0])
        assert found == [3.0, 2.0, [1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]

    def test_broadcasting(self) -> None:
        a, b = leaf(1.0, 2.0, shape=(2, 1)), leaf(3.0, 4.0, 5.0)
        found = push([a * b, (a * b).sum(0)], [a, b], [[1.0], [2.0]], [10.0, 0.0, 0.0])
        assert found == [[[13.0, 4.0, 5.0], [26.0, 8.0, 10.0]], [39.0, 12.0, 15.0]]

    def test_numbers_and_empties(self) -> None:
        x = tape.tensor(2.0, requires_grad=True)
        e = tape.zeros(0, 3).requires_grad_()
        assert push([x * x * x, e.sum(), e * 2.0], [x, e], 1.0, np.zeros((0, 3))) == [12.0, 0.0, []]

    def test_a_cast(self) -> None:
        x = tape.tensor([1.0, 2.0], dtype=tape.float32, requires_grad=True)
        (found,) = pushed_arrays([x.double() * 2.0], [x], [np.ones(2, np.float32)])
        assert found is not None
        assert found.dtype == np.float64
        assert found.tolist() == [2.0, 2.0]

    def test_a_batch_of_tangents(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * 1.0
        y[0] = (x * x).sum()
        found = push([y, y[1:], x], [x], np.eye(2), batch=2)
        assert found == [[[2.0, 0.0], [4.0, 1.0]], [[0.0], [1.0]], [[1.0, 0.0], [0.0, 1.0]]]

    def test_matrix_products(self) -> None:
        rng = np.random.default_rng(0)
        a, b, ta, tb = (rng.normal(size=s) for s in ((2, 3), (3, 4), (2, 3), (3, 4)))
        x, y = tape.tensor(a, requires_grad=True), tape.tensor(b, requires_grad=True)
        (found,) = pushed_arrays([x @ y], [x, y], [ta, tb])
        np.testing.assert_allclose(found, ta @ b + a @ tb, rtol=1e-13)
        (batch,) = pushed_arrays([x @ y], [x, y], [np.stack([ta, 0 * ta]), np.stack([0 * tb, tb])], 2)
        np.testing.assert_allclose(batch, [ta @ b, a @ tb], rtol=1e-13)

    def test_sweeps_leave_the_graph_alone(self) -> None:
        x = leaf(1.0, 2.0)
        y = (x * x).sum()
        for _ in range(2):
            assert push([y], [x], [1.0, 1.0]) == [6.0]
        y.backward()
        assert x.grad.tolist() == [2.0, 4.0]
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            push([y], [x], [1.0, 1.0])

    def test_a_graph_across_threads(self) -> None:
        x = leaf(1.0, 2.0)
        made: list[Any] = []
        barrier = threading.Event()

        def elsewhere() -> None:
            made.extend([x * 3.0, tape.ones(2).requires_grad_() * 2.0])
            made.append(made[0][1:])
            barrier.wait(30)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        try:
            while len(made) < 3:
                thread.join(0.001)
            y = made[0] * x + made[1] + made[2]
            assert push([y], [x], [1.0, 10.0]) == [[6.0 + 30.0, 120.0 + 30.0]]
            assert push([y], [x], np.eye(2), batch=2) == [[[6.0, 0.0], [3.0, 15.0]]]
        finally:
            barrier.set()
            thread.join()

    def test_a_long_chain(self) -> None:
        y: Any = (x := tape.tensor(1.0, requires_grad=True))
        for _ in range(20_000 if reverse.NATIVE else 500):
            y = y * 1.0
        assert push([y], [x], 3.0) == [3.0]


class Both(tape.autograd.Function):
    """Returns x * y and x + 2 y."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y, x + 2 * y

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y + h, g * x + 2 * h

    @staticmethod
    def jvp(ctx: Any, s: Any, t: Any) -> Any:
        x, y = ctx.saved_tensors
        s, t = (tape.zeros(len(x)) if u is None else u for u in (s, t))
        return s * y + x * t, s + 2 * t


@pytest.mark.usefixtures("way")
def test_the_jvp_of_a_function() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    product, total = Both.apply(x * 1.0, y * 2.0)
    outputs = [product[1:], total * product, y * 1.0]
    assert push(outputs, [x, y], [1.0, 10.0], [0.5, 0.0]) == [[80.0], [109.0, 1600.0], [0.5, 0.0]]
    assert push(outputs, [x], np.eye(2), batch=2)[0] == [[0.0], [8.0]]
    assert push([product], [leaf(1.0)], [1.0]) == [None]
    both = [Both.apply(x, y)[0], y * 1.0]
    assert push(both, [y], [1.0, 0.0]) == [[1.0, 0.0], [1.0, 0.0]]


def test_tangents_that_nothing_reads_any_more_are_freed() -> None:
    if not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    import resource

    x = tape.ones(1000).requires_grad_()
    y: Any = x
    for _ in range(100):
        y = y * 1.0
    eye = np.ones((50, 1000))
    pushed_arrays([y], [x], [eye], 50)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        pushed_arrays([y], [x], [eye], 50)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000  # kilobytes; all tangents together are 40,000 each time


def test_what_requires_grad_decides_on_a_graph() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = (x * w).sum()
    assert leaves_of([y, x]) == {x._slot, w._slot}
    assert needs_graph([y], [x])
    assert not needs_graph([y], [x, w])
    with tape.no_grad():
        assert not needs_graph([y], [x])


def test_tangents_can_be_differentiated() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    t = leaf(1.0, 10.0)
    y = (x * x * w).sum()
    (found,) = pushed([y], [x], [t])
    assert found is not None
    assert found.item() == 2 * 1 * 3 * 1 + 2 * 2 * 4 * 10
    by_x, by_w, by_t = tape.autograd.grad(found, [x, w, t])
    assert by_x.tolist() == [6.0, 80.0]
    assert by_w.tolist() == [2.0, 40.0]
    assert by_t.tolist() == [6.0, 16.0]


def test_an_operation_without_a_pushforward_is_named() -> None:
    class Cube(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    x = leaf(1.0)
    with pytest.raises(NotImplementedError, match="jvp"):
        push([Cube.apply(x)], [x], [1.0])
    assert push([x * 2.0], [x], [1.0]) == [[2.0]]
