"""Shapes of graphs: what is shared, unused, viewed, observed, cut; each answer worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.sweeps import reverse

if TYPE_CHECKING:
    from conftest import Fresh

pytestmark = pytest.mark.usefixtures("sweep")


@pytest.fixture(params=[True, False], ids=["native", "plain"])
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
    return bool(request.param)


def leaf(*values: float) -> Any:
    return tape.tensor(list(values), requires_grad=True)


def equal(tensor: Any, expected: Any) -> bool:
    """Whether values agree exactly; None is no gradient."""
    return tensor is not None and tensor.tolist() == expected


def test_fan_out() -> None:
    x = tape.tensor(3.0, requires_grad=True)
    sum_of_all = x + x + x * x + 2 * x + x / x
    sum_of_all.backward()
    assert x.grad.item() == 1 + 1 + 6 + 2


def test_diamond() -> None:
    x = leaf(2.0, 3.0)
    y = x * x
    left, right = y * 3, y * y
    (left * right).sum().backward()  # 3 x**6
    assert equal(x.grad, [18 * 2.0**5, 18 * 3.0**5])


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_unused_branch_puts_nan_nowhere() -> None:
    x = leaf(0.0, 1.0)
    unused = tape.log(x) * tape.sqrt(x)
    (x * 2).sum().backward()
    assert equal(x.grad, [2.0, 2.0])
    assert unused.requires_grad


def test_two_losses_over_one_leaf() -> None:
    x = leaf(1.0, 2.0)
    first, second = (x * x).sum(), (x * x * x).sum()
    first.backward()
    assert equal(x.grad, [2.0, 4.0])
    second.backward()
    assert equal(x.grad, [2.0 + 3.0, 4.0 + 12.0])


def test_two_leaves_over_one_array() -> None:
    array = np.array([1.0, 2.0])
    x, y = (tape.from_numpy(array).requires_grad_() for _ in range(2))
    (x * y * y).sum().backward()
    assert equal(x.grad, [1.0, 4.0])
    assert equal(y.grad, [2.0, 8.0])


def test_leaves_that_overlap() -> None:
    array = np.array([1.0, 2.0, 3.0, 4.0])
    x, y = tape.from_numpy(array[0:3]), tape.from_numpy(array[1:4])
    x.requires_grad_()
    y.requires_grad_()
    (x * y * y).sum().backward()
    assert equal(x.grad, [4.0, 9.0, 16.0])
    assert equal(y.grad, [4.0, 12.0, 24.0])


def test_detached_tensor_has_no_gradient_of_its_source() -> None:
    x = leaf(1.0, 2.0, 3.0)
    d = x[1:].detach().requires_grad_()
    (d * x[1:] * x[:2].detach()).sum().backward()
    assert equal(x.grad, [0.0, 2.0, 6.0])
    assert equal(d.grad, [2.0, 6.0])


def test_leaf_with_stride_zero_has_a_dense_gradient() -> None:
    z = tape.zeros(1).expand(3).requires_grad_()
    assert z.is_leaf
    (z * tape.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert equal(z.grad, [1.0, 2.0, 3.0])
    assert z.grad.stride() == (1,)


def test_small_view_of_a_large_array_has_a_small_gradient() -> None:
    x = tape.arange(1000.0).reshape(10, 100)[3, ::50].requires_grad_()
    (x * x).sum().backward()
    assert equal(x.grad, [600.0, 700.0])
    assert x.grad.numpy().base is None or x.grad.numpy().base.nbytes == 2 * 8


def test_views_of_views() -> None:
    x = tape.arange(12.0).requires_grad_()
    rows = x.reshape(3, 4)[1:]
    column = rows.T[1]
    ((column * column).sum() + (rows * 2).sum()).backward()
    assert equal(x.grad, [0, 0, 0, 0, 2, 12, 2, 2, 2, 20, 2, 2])


def test_overlapping_views_accumulate() -> None:
    u = leaf(1.0, 2.0, 4.0, 8.0)
    (u[2:] - 2 * u[1:-1] + u[:-2]).backward(tape.tensor([1.0, 10.0]))
    assert equal(u.grad, [1.0, 8.0, -19.0, 10.0])


def test_expanded_views() -> None:
    x = leaf(1.0, 2.0)
    y = (x * 1).expand(3, 2)
    (y * tape.arange(6.0).reshape(3, 2)).sum().backward()
    assert equal(x.grad, [6.0, 9.0])
    x.grad = None
    x.expand(2, 2)[1:].reshape(2).T.backward(tape.tensor([5.0, 7.0]))
    assert equal(x.grad, [5.0, 7.0])


@pytest.mark.parametrize("retain_late", [False, True])
def test_retained_views_with_views_before_and_after(*, retain_late: bool) -> None:
    x = tape.arange(6.0).requires_grad_()
    base = x * 1
    view = base[1:5]
    before = view[0:2]
    if not retain_late:
        view.retain_grad()
    after = view[1:3]
    loss = (before * 2).sum() + (after * 3).sum() + (view * 5).sum() + base.sum()
    if retain_late:
        view.retain_grad()
    before.retain_grad()
    loss.backward()
    assert equal(view.grad, [7.0, 10.0, 8.0, 5.0])
    assert equal(before.grad, [2.0, 2.0])
    assert equal(x.grad, [1.0, 8.0, 11.0, 9.0, 6.0, 1.0])


def test_delivered_gradients_share_no_memory() -> None:
    x = tape.arange(4.0).requires_grad_()
    base = x * 1
    view = base[1:]
    base.retain_grad()
    view.retain_grad()
    (view * 2).sum().backward()
    view.grad.numpy()[...] = 9.0
    base.grad.numpy()[...] = 8.0
    assert equal(x.grad, [0.0, 2.0, 2.0, 2.0])
    assert equal(view.grad, [9.0] * 3)


def test_inputs_are_views() -> None:
    x = tape.arange(4.0).requires_grad_()
    view = x[1:]
    inner = view[::2]
    ((inner * inner).sum() + view.sum()).backward(inputs=[inner, view])
    assert equal(inner.grad, [2.0, 6.0])
    assert equal(view.grad, [3.0, 1.0, 7.0])
    assert x.grad is None


def test_observed_expanded_view() -> None:
    x = leaf(1.0, 2.0)
    wide = (x * 1).expand(2, 2)
    wide.retain_grad()
    (wide * tape.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert equal(wide.grad, [[1.0, 2.0], [3.0, 4.0]])
    assert equal(x.grad, [4.0, 6.0])


@pytest.mark.parametrize("how", ["grad", "inputs", "retain late"])
def test_expanded_view_that_has_been_used_cannot_be_observed(how: str) -> None:
    # Its elements share one element of the gradient: refused with the remedy, never a wrong number.
    x = leaf(1.0, 2.0)
    wide = (x * 1).expand(2, 2)
    loss = (wide * tape.tensor([[1.0, 2.0], [3.0, 4.0]])).sum()
    ways = {
        "grad": lambda: tape.autograd.grad(loss, wide),
        "inputs": lambda: loss.backward(inputs=[wide]),
        "retain late": wide.retain_grad,
    }
    with pytest.raises(NotImplementedError, match="expand"):
        ways[how]()
    loss.backward()
    assert equal(x.grad, [4.0, 6.0])


def test_observed_view_of_an_expanded_view() -> None:
    x = leaf(1.0, 2.0)
    row = (x * 1).expand(2, 2)[0]
    row.retain_grad()
    (row * row).sum().backward()
    assert equal(row.grad, [2.0, 4.0])
    assert equal(x.grad, [2.0, 4.0])


def test_root_is_a_view() -> None:
    x = tape.arange(6.0).requires_grad_()
    (x * x).reshape(2, 3).T[1:].backward(tape.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert equal(x.grad, [0.0, 2.0, 12.0, 0.0, 16.0, 40.0])


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y[None],
        lambda y: y.reshape(1, 1),
        lambda y: y.unsqueeze(0),
        lambda y: y.expand(1),
        lambda y: y[None][0],
        lambda y: y.view(()),
        lambda y: y[...],
    ],
)
@pytest.mark.parametrize("dtype", [tape.float64, tape.float32])
def test_root_is_a_view_of_one_number(view: Any, dtype: Any) -> None:
    x = tape.tensor(3.0, dtype=dtype, requires_grad=True)
    view(x * x).backward()
    assert x.grad.item() == 6.0
    view(x).backward()
    assert x.grad.item() == 7.0


def test_root_is_one_element_of_an_array() -> None:
    x = tape.arange(3.0).requires_grad_()
    (x * x)[2].backward()
    assert equal(x.grad, [0.0, 0.0, 4.0])
    x[1].backward()
    assert equal(x.grad, [0.0, 1.0, 4.0])
    (x * x)[2:].backward()
    assert equal(x.grad, [0.0, 1.0, 8.0])


def test_root_is_an_expanded_view() -> None:
    x = leaf(1.0, 2.0)
    weights = tape.tensor([[1.0, 2.0], [10.0, 20.0]])
    (x * 2).expand(2, 2).backward(weights)
    assert equal(x.grad, [22.0, 44.0])
    x.expand(2, 2).backward(weights)
    assert equal(x.grad, [33.0, 66.0])


def test_several_roots() -> None:
    x = tape.arange(3.0).requires_grad_()
    y = x * x
    tape.autograd.backward([y.sum(), y[1], y[1:].sum()])
    assert equal(x.grad, [0.0, 6.0, 8.0])


@pytest.mark.parametrize("view", [lambda y: y, lambda y: y[:2], lambda y: y[1:]])
def test_the_same_root_twice(view: Any) -> None:
    x = tape.arange(3.0).requires_grad_()
    root = view(x * x)
    weights = tape.ones(root.shape), tape.ones(root.shape) * 2
    tape.autograd.backward([root, root], weights)
    mask = tape.zeros(3)
    view(mask).fill_(1.0)
    assert equal(x.grad, (x.detach() * 6 * mask).tolist())


def test_roots_that_overlap_or_depend_on_each_other() -> None:
    x = tape.arange(3.0).requires_grad_()
    y = x * x
    tape.autograd.backward([y[:2], y[1:], y], [tape.ones(2), tape.ones(2), tape.ones(3)])
    assert equal(x.grad, [0.0, 6.0, 8.0])
    z = tape.tensor(3.0, requires_grad=True)
    square = z * z
    tape.autograd.backward([square, square * square])
    assert z.grad.item() == 6.0 + 4 * 27.0


def test_gradient_of_a_root_by_itself_and_by_what_it_views() -> None:
    x = tape.arange(3.0).requires_grad_()
    base = x * 2
    view = base[1:]
    found = tape.autograd.grad(view, (view, base, x), grad_outputs=tape.tensor([5.0, 7.0]))
    assert [g.tolist() for g in found] == [[5.0, 7.0], [0.0, 5.0, 7.0], [0.0, 10.0, 14.0]]


def test_root_is_a_leaf() -> None:
    x = leaf(1.0, 2.0)
    x.backward(tape.tensor([3.0, 4.0]))
    x.backward(tape.tensor([3.0, 4.0]))
    assert equal(x.grad, [6.0, 8.0])


def test_chain_of_a_million_operations(*, sweep: bool) -> None:
    length = 1_000_000 if sweep else 20_000
    x = tape.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(length):
        y = y + x
    y.backward()
    assert x.grad.item() == length + 1


def test_more_observers_than_a_fresh_table_has_buckets(fresh: Fresh) -> None:
    code = f"""
import tape
from kernels.sweeps import reverse
reverse.NATIVE = {reverse.NATIVE}
y = x = tape.ones(2).requires_grad_()
kept = []
for _ in range(100):
    y = y * 1.0
    y.retain_grad()
    kept.append(y)
y.sum().backward()
print({{tuple(one.grad.tolist()) for one in [x, *kept]}})
"""
    out, error = fresh(code).communicate(timeout=20)
    assert (out, error) == ("{(1.0, 1.0)}\n", "")


def test_chain_of_views_and_of_retained_views() -> None:
    x = leaf(1.0, 2.0)
    y, retained = x, []
    for i in range(2000):
        y = y[:]
        if i % 10 == 0:
            y.retain_grad()
            retained.append(y)
    (y * y).sum().backward()
    assert equal(x.grad, [2.0, 4.0])
    assert all(equal(view.grad, [2.0, 4.0]) for view in retained)


def test_where_cuts() -> None:
    x = leaf(0.0, 1.0)
    tape.where(x > 0.5, tape.sqrt(x), x).sum().backward()
    assert equal(x.grad, [1.0, 0.5])


def test_where_cuts_behind_more_operations() -> None:
    x = leaf(0.0, 4.0)
    root = tape.sqrt(x)
    tape.where(x > 0.5, (root * 2)[0:2].reshape(2) + root, x).sum().backward()
    assert equal(x.grad, [1.0, 0.75])


def test_maximum_cuts() -> None:
    x = leaf(0.0, 4.0)
    tape.maximum(tape.sqrt(x) - 1, x * 3 - 1.5).sum().backward()
    assert equal(x.grad, [float("inf"), 3.0])
    x.grad = None
    tape.maximum(tape.sqrt(x) - 1, x * 3 + 1).sum().backward()
    assert equal(x.grad, [3.0, 3.0])


def test_a_zero_that_is_no_cut_stays_what_ieee_says() -> None:
    x = leaf(0.0)
    (tape.sqrt(x) * tape.sqrt(x)).sum().backward()
    assert np.isnan(x.grad.item())


@pytest.mark.parametrize("weight", [0.0, -0.0])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_seed_of_zero_is_no_cut(weight: float) -> None:
    x = leaf(0.0, 1.0)
    tape.log(x).backward(tape.tensor([weight, 1.0]))
    assert np.isnan(x.grad[0].item())
    assert x.grad[1].item() == 1.0


def test_while_loop_whose_length_depends_on_values() -> None:
    x = tape.tensor(1.5, requires_grad=True)
    y, doublings = x, 0
    while y < 100:
        y, doublings = y * 2, doublings + 1
    y.backward()
    assert doublings == 7
    assert x.grad.item() == 2.0**7


def test_recursion() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else power(x, n // 2) * power(x, n - n // 2)

    x = tape.tensor(1.5, requires_grad=True)
    power(x, 13).backward()
    assert x.grad.item() == pytest.approx(13 * 1.5**12, rel=1e-14)


@pytest.mark.parametrize("shape", [(0, 3), (0,), (2, 0)])
def test_nothing_meets_something(shape: tuple[int, ...]) -> None:
    row = tape.ones(*[1 if n == 0 else n for n in shape]).requires_grad_()
    empty = tape.zeros(*shape).requires_grad_()
    (row * 3 + empty).backward(tape.zeros(*shape))
    (row - empty).sum().backward()
    (empty * row).sum().backward()
    assert equal(row.grad, np.zeros(row.shape).tolist())
    assert empty.grad.shape == shape


def test_empty_views() -> None:
    x = leaf(1.0, 2.0, 3.0)
    ((x[1:1] * x[2:2]).sum() + x[1]).backward()
    assert equal(x.grad, [0.0, 1.0, 0.0])


def test_mixed_dtypes() -> None:
    single = tape.tensor([1.0, 2.0], dtype=tape.float32, requires_grad=True)
    double = leaf(0.1, 0.2)
    (single * double).sum().backward()
    assert single.grad.dtype == tape.float32
    assert equal(single.grad, [float(np.float32(0.1)), float(np.float32(0.2))])
    assert equal(double.grad, [1.0, 2.0])


def scaled(y: Any, x: Any) -> None:
    y[...] *= x


@pytest.mark.quick
@pytest.mark.parametrize("write", [scaled, lambda y, x: y.mul_(x), lambda y, x: y.__setitem__(..., y * x)])
def test_a_retained_graph_gives_the_same_gradient_each_time(write: Any) -> None:
    x = tape.tensor(0.94, requires_grad=True)
    y = x.clone()
    write(y, x)
    weight = tape.tensor(1.5)
    found = [tape.autograd.grad([y], [x], [weight], retain_graph=True)[0].item() for _ in range(4)]
    assert found == pytest.approx([1.5 * 2 * 0.94] * 4)
