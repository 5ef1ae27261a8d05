"""The short way of a backward gives what the long one gives, and refuses what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.sweeps import reverse
from tape.autograd import grad
from tape.engine import backward as engine


@pytest.fixture(params=["short", "long"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "long":
        monkeypatch.setattr(engine, "native_backward", lambda *_: NotImplemented)
    return str(request.param)


def leaves() -> tuple[Any, Any, Any]:
    return (
        tape.tensor([1.0, 2.0, 3.0], requires_grad=True),
        tape.tensor([0.5, -1.0, 2.0], requires_grad=True),
        tape.tensor(2.0, requires_grad=True),
    )


def loss(x: Any, w: Any, s: Any) -> Any:
    return ((x * w).sum() * s + (tape.sin(x) ** 2).sum()).reshape(())


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one": lambda x, w, s: grad(loss(x, w, s), x),
    "a list": lambda x, w, s: grad([loss(x, w, s)], [x]),
    "all": lambda x, w, s: grad(loss(x, w, s), (s, x, w)),
    "twice the same": lambda x, w, s: grad(loss(x, w, s), (x, x)),
    "weighted": lambda x, w, s: grad(loss(x, w, s), (x, s), tape.tensor(3.0)),
    "weighted in a list": lambda x, w, s: grad([loss(x, w, s)], (x, s), [tape.tensor(3.0)]),
    "in another dtype": lambda x, w, s: grad(loss(x, w, s), x, tape.tensor(3.0, dtype=tape.float32)),
    "a vector": lambda x, w, s: grad(x * w * s, (w, x), tape.tensor([1.0, -1.0, 0.0])),
    "a view": lambda x, w, s: grad((x * w * s)[1:], (w, x), tape.tensor([1.0, -1.0])),
    "an element of a view": lambda x, w, s: grad((x * w * s)[1], (w, x)),
    "twice": lambda x, w, s: [grad(y, x, retain_graph=True) + grad(y, w) for y in [loss(x, w, s)]],
    "a part": lambda x, w, _: [grad(y, w, retain_graph=True) + grad(y, x) for y in [(x * x).sum() + (w * w).sum()]],
    "unused": lambda x, w, s: grad((x * w).sum(), (x, s), allow_unused=True),
    "zeros": lambda x, w, s: grad((x * w).sum(), (x, s), materialize_grads=True),
    "a generator": lambda x, w, s: grad(loss(x, w, s), (t for t in (x, w))),
    "without gradients": lambda x, w, s: _under(tape.no_grad(), loss(x, w, s), x),
    "backward": lambda x, w, s: (loss(x, w, s).backward(), x.grad, w.grad, s.grad),
    "backward of a vector": lambda x, w, _: ((x * w).backward(tape.tensor([1.0, -1.0, 0.0])), x.grad, w.grad),
    "backward of a view": lambda x, w, _: ((x * w)[1:].backward(tape.tensor([1.0, 2.0])), x.grad, w.grad),
    "backward of minus zeros": lambda x, w, _: ((x * w).backward(tape.tensor([-0.0, -1.0, 0.0])), x.grad, w.grad),
}


def _under(mode: Any, y: Any, x: Any) -> Any:
    with mode:
        return grad(y, x)


def listed(found: Any) -> Any:
    if isinstance(found, (tuple, list)):
        return [listed(part) for part in found]
    return None if found is None else (found.tolist(), found.dtype, found.requires_grad)


@pytest.mark.parametrize("name", CALLS)
def test_as_the_long_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = listed(CALLS[name](*leaves()))
    monkeypatch.setattr(engine, "native_backward", lambda *_: NotImplemented)
    assert found == listed(CALLS[name](*leaves()))


@pytest.mark.skipif(not reverse.NATIVE, reason="the plain sweep has one way")
@pytest.mark.parametrize("name", ["one", "a list", "all", "weighted", "a vector", "a view", "a part", "backward"])
def test_it_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the long way")

    monkeypatch.setattr(engine, "_run", refuse)
    CALLS[name](*leaves())


@pytest.mark.skipif(not reverse.NATIVE, reason="the plain sweep has one way")
def test_it_is_taken_by_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the long way")

    monkeypatch.setattr(engine, "_run", refuse)
    for x in (np.array([1.0, 2.0]), tape.tensor([1.0, 2.0])):
        assert np.asarray(tape.func.grad(lambda a: (a * a).sum())(x)).tolist() == [2.0, 4.0]
        assert np.asarray(tape.value_and_grad(lambda a: (a * a).sum())(x)[1]).tolist() == [2.0, 4.0]


def test_results_are_ones_own(way: str) -> None:
    del way
    x, w, s = leaves()
    seed = tape.tensor([1.0, 1.0, 1.0])
    (found,) = grad(x + 0.0, x, seed)
    found.mul_(5.0)
    assert seed.tolist() == [1.0, 1.0, 1.0]
    (first,) = grad(loss(x, w, s), x)
    (second,) = grad(loss(x, w, s), x)
    first.zero_()
    assert second.tolist() != [0.0, 0.0, 0.0]
    assert x.grad is None


def test_what_is_freed(way: str) -> None:
    del way
    x, w, s = leaves()
    y = loss(x, w, s)
    grad(y, x, retain_graph=True)
    grad(y, x)
    for targets in (x, (x, w)):
        with pytest.raises(RuntimeError, match="a second time"):
            grad(y, targets)
    y = (x * x).sum() + (w * w).sum()
    square = w * w
    z = square.sum() + (x * x).sum()
    grad(z, x)  # what leads to w alone was not needed, and stays
    (found,) = grad((square * 2.0).sum(), w)
    assert found.tolist() == (4 * w).tolist()
    square = w * w
    grad((square * square).sum(), square)  # what computed the input itself was not needed either
    (found,) = grad(square.sum(), w)
    assert found.tolist() == (2 * w).tolist()


def test_an_unused_input_leaves_the_graph(way: str) -> None:
    del way
    x, w, s = leaves()
    y = (x * w).sum()
    with pytest.raises(RuntimeError, match="at index 1 appears to not have been used"):
        grad(y, (x, s))
    (found,) = grad(y, x)
    assert found.tolist() == w.tolist()


class Silent(tape.autograd.Function):
    """Gives no gradient to its second input."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        del ctx
        return x * 1.0 + y * 0.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        del ctx
        Silent.calls += 1
        return g, None


def test_an_input_that_gets_no_gradient(way: str) -> None:
    del way
    x, w, _ = leaves()
    y = Silent.apply(x, w).sum()
    with pytest.raises(RuntimeError, match="at index 0 appears to not have been used"):
        grad(y, w)
    assert grad(y, (x, w), allow_unused=True, retain_graph=True)[1] is None
    assert grad(y, (x, w), materialize_grads=True)[1].tolist() == [0.0, 0.0, 0.0]


def test_what_is_not_needed_does_not_run(way: str) -> None:
    del way
    x, w, s = leaves()
    Silent.calls = 0
    y = Silent.apply(w, w).sum() + (x * x).sum() * s
    (found,) = grad(y, x)
    assert (found.tolist(), Silent.calls) == ([4.0, 8.0, 12.0], 0)


def test_hooks_are_run(way: str) -> None:
    del way
    x, w, s = leaves()
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(g.tolist()) or g * 2.0)
    (found,) = grad((x * w).sum() * s, x)
    assert (seen, found.tolist()) == ([[1.0, -2.0, 4.0]], [2.0, -4.0, 8.0])
    z = x * w
    z.register_hook(lambda g: seen.append(g.tolist()))
    (found,) = grad(z.sum(), w)
    assert seen[1:] == [[1.0, 1.0, 1.0]]
    assert found.tolist() == x.tolist()


@pytest.mark.parametrize("create_graph", [False, True])
def test_cotangents_of_integers(create_graph: bool) -> None:
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (found,) = grad(x * x, x, tape.tensor([1, 0, 3]), create_graph=create_graph)
    assert found.tolist() == [2.0, 0.0, 18.0]
    (found,) = grad((x * x).sum(), x, tape.tensor(True), create_graph=create_graph)
    assert found.tolist() == [2.0, 4.0, 6.0]
    units = tape.eye(3).to(tape.int64)
    (found,) = grad(x * x, x, units, is_grads_batched=True, create_graph=create_graph)
    assert found.tolist() == np.diag([2.0, 4.0, 6.0]).tolist()
    (x * x).backward(tape.tensor([1, 2, 0]))
    assert x.grad.tolist() == [2.0, 8.0, 0.0]


@pytest.mark.skipif(not reverse.NATIVE, reason="the plain sweep has one way")
@pytest.mark.usefixtures("own_tape")
def test_it_is_taken_whoever_looks_at_other_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook, a node or a retained gradient costs the graph that it belongs to alone."""
    before, after = [tape.tensor([1.0, 2.0], requires_grad=True) * 2.0 for _ in range(2)]
    hooked, kept, retaining = before * 1.0, before * 3.0, before * 4.0
    hooked.register_hook(lambda g: g * 10.0)
    retaining.retain_grad()
    node = kept.grad_fn
    x, w, s = leaves()
    y = loss(x, w, s)
    later = after * 5.0
    later.register_hook(lambda g: g * 10.0)
    monkeypatch.setattr(engine, "_run", lambda *_, **__: pytest.fail("the long way"))
    y.backward()
    monkeypatch.undo()
    assert x.grad is not None
    (hooked + kept + retaining + later).sum().backward()
    assert retaining.grad is not None
    assert retaining.grad.tolist() == [1.0, 1.0]
    assert node is not None
    assert node.next_functions


def test_who_looks_at_this_graph_is_served() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y.register_hook(lambda g: g * 10.0)
    (y * 1.0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 20.0]
    z = x * 3.0
    z.retain_grad()
    (z * 1.0).sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("made", [lambda x: x.T * 2.0, lambda x: x.permute(1, 0) + x.T, lambda x: x * 3.0])
def test_a_cotangent_is_laid_as_the_result_is(way: str, made: Callable[[Any], Any]) -> None:
    """A result takes its operand's order of axes; so do gradient buffers, but not the cotangents that are given."""
    del way
    x = tape.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    y = made(x)
    weights = np.arange(1.0, 7.0).reshape(y.shape)
    scale = made(tape.ones(2, 3)).numpy().flat[0]
    expected = scale * (weights.T if y.shape == (3, 2) else weights)
    for given in (weights, np.asfortranarray(weights)):
        (found,) = grad(y, x, tape.from_numpy(given), retain_graph=True)
        assert found.tolist() == expected.tolist()
    y.backward(tape.from_numpy(weights))
    assert x.grad.tolist() == expected.tolist()
