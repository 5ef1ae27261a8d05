"""What a recorded backward appends, what its zeros mean, and what it hands out; PyTorch's numbers where installed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds import reference_tape
from kernels.kinds.reference_tape import instructions
from kernels.native.structs import TAPE_BITS
from kernels.sweeps import workspace
from tape.tensors import modes
from tests.engine.test_hooks import sweep  # noqa: F401 (a fixture)
from tests.support.pytorch_outcomes import Outcomes

RNG = np.random.default_rng(5)
A, B, V = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 5)), RNG.normal(size=10)


def leaf(lib: Any, array: Any) -> Any:
    return lib.tensor(np.array(array), dtype=lib.float64, requires_grad=True)


def _rosenbrock(x: Any) -> Any:
    head, tail = x[:-1], x[1:]
    return (100.0 * (tail - head**2) ** 2 + (1.0 - head) ** 2).sum()


def _network(a: Any, b: Any) -> Any:
    return (((a @ b).tanh() + b.sum(0)) ** 2).mean()


APPENDED: list[tuple[Callable[..., Any], tuple[Any, ...], int]] = [
    (lambda x: x * x + x.sin(), (1.3,), 6),
    (lambda x, y: x * y + x, (1.3, 0.7), 3),
    (_rosenbrock, (V,), 9),
    (_network, (A, B), 10),
    (lambda x: (x.T @ x).sum(), (A,), 4),
    (lambda x: x.logsumexp(1).sum(), (A,), 4),
    (lambda x: (x + x.clone()).sum(), (V,), 0),
]


@pytest.mark.parametrize(
    ("function", "at", "most"), APPENDED, ids=["0-d", "product", "slices", "network", "turned", "logsumexp", "sums"]
)
def test_few_instructions_are_appended(function: Callable[..., Any], at: tuple[Any, ...], most: int) -> None:
    own = modes.own_tape()
    x = [leaf(tape, one) for one in at]
    y = function(*x)
    before = own.number << TAPE_BITS | own.entries.next
    found = tape.autograd.grad(y, x, create_graph=True)
    assert sum(one.slot > before for one in instructions(own.entries, before)) <= most
    assert len(found) == len(x)


def _second(lib: Any, function: Callable[..., Any], at: tuple[Any, ...]) -> list[Any]:
    """Return first and second derivatives in a direction, weighted unevenly."""
    x = [leaf(lib, one) for one in at]
    first = lib.autograd.grad(function(lib, *x), x, create_graph=True)
    total = sum((g * lib.cos(g.detach()) * k).sum() for k, g in enumerate(first, 1))
    second = lib.autograd.grad(total, x, allow_unused=True, create_graph=True)
    third = lib.autograd.grad(sum((g * g).sum() for g in second if g is not None), x, allow_unused=True)
    return [None if g is None else g.detach().numpy() for g in (*first, *second, *third)]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "products of parts": (lambda _, a, b: ((a[1:, ::2] @ b[:2].T[:2, :2].T) ** 3).sum(), (A, B)),
    "turned products": (lambda _, a, b: ((b.T @ a.T) ** 2 * (a @ b).T).sum(), (A, B)),
    "turned and not": (lambda _, a, b: ((a.T @ a @ b) ** 2).sum() * a.mean(), (A, B)),
    "expanded": (lambda _, a, b: (a[:, :1].expand(4, 3) * a * b[:, 0]).pow(2).sum() + b.sum() ** 3, (A, B)),
    "windows": (lambda _, v: (v.unfold(0, 4, 2) ** 3).sum() * v[0], (V,)),
    "elements": (lambda _, v: v[0] ** 3 * v[1] + v[1] * v[2].sin() * v[0], (V,)),
    "shapes": (lambda _, v: (v.reshape(2, 5).T.reshape(10) * v.view(5, 2).sum(1).repeat(2)).pow(3).sum(), (V,)),
    "means of rows": (lambda _, a, b: ((a - a.mean(1, keepdim=True)) ** 3).sum() * b.mean(), (A, B)),
    "sums of logarithms": (lambda lib, a, b: (lib.logsumexp(a, 1) ** 2).sum() * lib.logsumexp(b, 0).sum(), (A, B)),
    "joined": (lambda lib, a, b: (lib.cat([a.T, b], 1) ** 3).mean() * lib.stack([a[0], b[:, 0]]).sum() ** 2, (A, B)),
    "picked": (
        lambda _, a, b: a.max(0)[0].max(0)[0] ** 3 * b.min(1)[0].pow(2).sum() * a[[0, 0, 2], [1, 1, 0]].prod(),
        (A, B),
    ),
    "powers": (lambda _, v: (v**2 * v**3 + v**1 * v**4).sum(), (V,)),
    "one of several": (lambda _, a, b: (a**3).sum() + (b * b).sum(), (A, B)),
}


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_pytorch(name: str, pytorch: Outcomes) -> None:
    function, at = PROGRAMS[name]
    expected = pytorch(lambda torch: _second(torch, function, at), name)
    for ours, theirs in zip(_second(tape, function, at), expected, strict=True):
        assert (ours is None) == (theirs is None) or not np.any(theirs if ours is None else ours)
        if ours is not None and theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


ZEROS: dict[str, Callable[[Any, Any], Any]] = {
    "an element that is cut": lambda x, w: (tape.where(x > 0.5, x.sqrt(), x * x) * w).sum(),
    "a zero of a root": lambda x, w: (x.sqrt() * w).sum(),
    "a zero of a part's root": lambda x, w: (x[:2].sqrt() * w[:2]).sum() + (x[1:] ** 2).sum(),
    "a zero of a sum": lambda x, w: (x.sqrt().sum() * w[0]) + (x * x).sum(),
    "a negative zero": lambda x, w: (-(x.sqrt() * -w)).sum(),
    "the larger": lambda x, w: (tape.maximum(x.sqrt(), x * 2) * w).sum(),
    "a picked zero": lambda x, w: (x[tape.tensor([0, 0, 1])].sqrt() * w).sum(),
}


@pytest.mark.usefixtures("sweep", "own_tape")
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", ZEROS)
def test_zeros_mean_what_they_mean_to_a_backward(name: str, zero: float, hooked: bool) -> None:
    other = leaf(tape, [1.0]) * 2.0
    if hooked:  # somewhere: then each contribution is shown to whoever may want it
        other.register_hook(lambda g: g)
    x, w = leaf(tape, [0.0, 4.0, 1.0]), tape.tensor([zero, 1.0, zero])
    (expected,) = tape.autograd.grad(ZEROS[name](x, w), x)
    (found,) = tape.autograd.grad(ZEROS[name](x, w), x, create_graph=True)
    np.testing.assert_array_equal(found.detach().numpy(), expected.numpy())
    assert not np.signbit(found.detach().numpy()[found.detach().numpy() == 0]).any()


def test_gradients_share_no_memory() -> None:
    a, b = leaf(tape, A), leaf(tape, A)
    first = tape.autograd.grad((tape.cat([a.T, b.T], 1) ** 2 * 0.5).sum(), (a, b), create_graph=True)
    arrays = [g.detach().numpy() for g in first]
    assert not np.shares_memory(*arrays)
    with tape.no_grad():
        first[0].zero_()
    np.testing.assert_allclose(arrays[1], A)
    np.testing.assert_allclose(a.detach().numpy(), A)


def test_hooks_see_whole_gradients() -> None:
    x, seen = leaf(tape, A), []
    y = x * 2
    y.register_hook(lambda g: seen.append((tuple(g.shape), g.requires_grad)))
    z = y.sum(0)
    z.register_hook(lambda g: seen.append((tuple(g.shape), g.requires_grad)))
    weight = leaf(tape, 3.0)
    tape.autograd.grad(z.sum() * weight, x, create_graph=True)
    assert seen == [((3,), True), ((4, 3), True)]


def test_a_gradient_that_stands_for_all_is_handed_out_whole() -> None:
    x, w = leaf(tape, A), leaf(tape, 3.0)
    y = x + 0.0
    first, of_y = tape.autograd.grad(y.sum() * w, (x, y), create_graph=True)
    assert first.shape == of_y.shape == (4, 3)
    (found,) = tape.autograd.grad((first**2).sum(), w)
    assert found.item() == 2 * 3.0 * 12


def _weights(x: Any) -> Any:
    return tape.linspace(0.5, 1.5, x.numel()).reshape(x.shape)


def _hooked(x: Any) -> Any:
    x.register_hook(lambda g: g * 2.0)
    return x


def _retaining(x: Any) -> Any:
    x.retain_grad()
    return x


def _written(x: Any) -> Any:
    x[1:] *= x[:1]
    return x


def _filled(x: Any) -> Any:
    x.T[0] = 2.0
    return x


MIDDLES: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "hooked": _hooked,
    "retaining": _retaining,
    "written in place": _written,
    "filled in part": _filled,
    "summed": lambda x: x + x.sum(0),
    "used twice": lambda x: x * x.exp(),
}
TURNS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(0, 1),
    "permuted": lambda x: x.permute(2, 0, 1),
    "flipped": lambda x: x.flip(0).permute(1, 2, 0),
    "reshaped": lambda x: x.reshape(4, 3, 2),
    "moved and cut": lambda x: x.permute(1, 2, 0)[1:],
}


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("turn", TURNS)
def test_what_is_computed_from_turned_memory(turn: str, middle: str, in_order: bool) -> None:
    """Its memory, and so its gradient, is turned: contributions come in the order of the views that made them."""

    def function(x: Any) -> Any:
        y = MIDDLES[middle](TURNS[turn](x).tanh())
        back = y.permute(2, 1, 0)
        return (back * back * _weights(back)).sum() + (y.sin() * _weights(y)).sum() + (x.T * _weights(x.T)).sum()

    at = np.random.default_rng(2).normal(size=(2, 3, 4))
    x = tape.from_numpy(at.copy() if in_order else np.asfortranarray(at)).requires_grad_()
    weights, step = np.linspace(0.5, 1.5, at.size).reshape(at.shape), 1e-5
    (first,) = tape.autograd.grad(function(x), x, create_graph=True)
    (second,) = tape.autograd.grad((first * tape.from_numpy(weights)).sum(), x)

    def gradient(array: Any) -> Any:
        other = tape.tensor(array, requires_grad=True)
        return tape.autograd.grad(function(other), other)[0].numpy()

    np.testing.assert_allclose(first.detach().numpy(), gradient(at), rtol=1e-12)
    if "hooked" not in middle:  # a hook changes the gradient, and is not differentiated by differences
        ahead, behind = gradient(at + step * weights), gradient(at - step * weights)
        np.testing.assert_allclose(second.numpy(), (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("length", [10, 3000])
def test_what_lies_below_on_a_long_tape_is_not_read(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    chain = [x * 1.0]
    chain[0][0] = 3.0  # a write: saved views may be of versions that are no more
    for _ in range(length):
        chain.append(chain[-1] * 1.0)
    read = []
    instruction_at = reference_tape.instruction_at
    monkeypatch.setattr(reference_tape, "instruction_at", lambda *place: read.append(place) or instruction_at(*place))
    a = tape.exp(tape.outer(x, x))
    z = tape.linalg.inv(a[0:2, 0:2] + tape.eye(2)).sum() + tape.cumprod(a[1:], 1).sum()
    (g,) = tape.autograd.grad(z, x, create_graph=True)
    (second,) = tape.autograd.grad(g.sum(), x)
    assert 0 < len(read) < 50
    assert np.isfinite(second.numpy()).all()


def _written(y: Any, steps: int) -> Any:
    y[0] = 3.0
    for _ in range(steps):
        y = y * 1.0
        y[1] = 2.0
    return y


def test_writes_that_other_threads_keep_to_themselves_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(lambda: _written(tape.tensor([1.0, 2.0], requires_grad=True) * 1.0, 200)).result()
        x = tape.tensor([1.0, 2.0], requires_grad=True)
        y = x * 1.0
        y[0] = 3.0
        read = []
        instruction_at = reference_tape.instruction_at
        monkeypatch.setattr(
            reference_tape, "instruction_at", lambda *place: read.append(place) or instruction_at(*place)
        )
        z = tape.exp(y.reshape(2, 1)).sum() + tape.cumprod(y[1:], 0).sum()
        (g,) = tape.autograd.grad(z, x, create_graph=True)
        assert len(read) < 50
        tape.autograd.grad(g.sum(), x)
    assert kept.shape == (2,)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_write_to_a_version_of_another_thread_is_seen(elsewhere: bool) -> None:
    """A saved view of a version that is written later, on its tape or on that of the view, is of that version."""
    x = tape.tensor([1.0, 2.0, 0.5], requires_grad=True)
    y = x * 2.0

    def second_gradient() -> Any:
        z = (y[0:2] ** 3).sum() + (y.reshape(3, 1) ** 2).sum()
        after = _written(y, 3)
        (g,) = tape.autograd.grad(z + (after**2).sum(), x, create_graph=True)
        return g, *tape.autograd.grad(g.sum(), x)

    with ThreadPoolExecutor(1) as pool:
        g, second = pool.submit(second_gradient).result() if elsewhere else second_gradient()
    at = x.detach().numpy()
    np.testing.assert_allclose(g.detach().numpy(), 24 * at**2 * [1, 1, 0] + 8 * at + 8 * at * [0, 0, 1], rtol=1e-13)
    np.testing.assert_allclose(second.numpy(), 48 * at * [1, 1, 0] + 8 + np.array([0, 0, 8]), rtol=1e-13)


@pytest.mark.parametrize("create", [False, True])
def test_the_hook_behind_a_view_sees_what_it_contributes(create: bool) -> None:
    """The node of a slice has one operand, the whole tensor; a hook on it may replace what that gets."""
    x, seen = tape.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True), []
    view = x[1:3]
    view.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    view.grad_fn.register_hook(lambda gi, _: (gi[0] * 10.0,))
    (g,) = tape.autograd.grad((view**3).sum(), x, create_graph=create)
    assert seen == [([0.0, 12.0, 27.0, 0.0], [12.0, 27.0])]
    assert g.tolist() == [0.0, 120.0, 270.0, 0.0]
    if create:
        assert tape.autograd.grad(g.sum(), x)[0].tolist() == [0.0, 1200.0, 1800.0, 0.0]  # by the view's node again


@pytest.mark.quick
def test_a_gradient_within_a_long_graph_reads_its_own_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded before the tensors that a gradient is asked of does not lead to them: nobody walks there."""
    read = []
    whole = workspace.instruction_at
    monkeypatch.setattr(workspace, "instruction_at", lambda *args: read.append(args) or whole(*args))
    x = leaf(tape, [0.5, 1.0, 1.5])
    for _ in range(50):
        x = tape.sin(x) * x
    (slope,) = tape.autograd.grad((x * x.sin()).sum(), x, create_graph=True)
    assert len(read) < 10
    np.testing.assert_allclose(slope.detach(), (x.sin() + x * x.cos()).detach(), rtol=1e-14)
