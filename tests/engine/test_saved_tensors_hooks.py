"""autograd.graph's saved_tensors_hooks and its kin: the same programs with PyTorch and with us, then our own."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import tape
from kernels.sweeps import reverse
from tape.autograd import graph
from tape.recording.record import recorded
from tape.tensors import modes
from tests.conventions.test_conventions import check, rows
from tests.robustness.test_lifetime import held
from tests.support.pytorch_outcomes import Outcomes

LARGE = 100_000  # elements: 800 kB

TOOLS = """
from contextlib import ExitStack
graph, grad = torch.autograd.graph, torch.autograd.grad
packed, unpacked, box = [], [], []

def pack(t):
    packed.append(t.detach() * 1)
    return len(packed) - 1

def unpack(k):
    unpacked.append(k)
    return packed[k]

def keeping():
    return graph.saved_tensors_hooks(pack, unpack)

def tenfold():
    return graph.saved_tensors_hooks(lambda t: t * 10, lambda t: t)

def halves():
    return graph.saved_tensors_hooks(lambda t: t.float(), lambda t: t.double())

def giving(value):
    return graph.saved_tensors_hooks(lambda t: 0, lambda _: value)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g

class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y, None)
        return y

    @staticmethod
    def backward(ctx, g):
        y, nothing = ctx.saved_tensors
        return g * y
"""

# One program a line, or more with indentation, \n where a second one begins; `packed` and `unpacked` are compared, too.
PROGRAMS = r"""
## what is packed, and when it is unpacked
with keeping(): y = x * w; r = len(packed); packed.clear()
with keeping(): y = x * w; y.sum().backward(); r = len(packed), sorted(unpacked); packed.clear(); unpacked.clear()
with keeping(): y = torch.exp(x)
with keeping(): y = torch.exp(x); y.backward(n)
with keeping(): y = torch.sin(x * 1.); packed.clear()
with keeping(): y = x + n
with keeping(): y = (x + n).sum(); y.backward()
with keeping(): y = x[1:].reshape(2, 1); y.sum().backward()
with keeping(): y = -x
with keeping(): y = n * n
with keeping(): y = x.detach().exp()
with keeping(), torch.no_grad(): y = x * x
with keeping(): y = torch.log(x); y.backward(n); r = len(unpacked)
with keeping(): y = torch.sin(x)\ny.sum().backward(); r = len(unpacked)
with keeping(): y = torch.sqrt(x); u = torch.tanh(w)\ny.sum().backward(); r = len(packed), len(unpacked)
with keeping(): y = torch.sin(x)\ny.sum().backward(retain_graph=True); y.sum().backward();
    r = len(packed), len(unpacked)
with keeping(): y = x * n
with keeping(): y = w @ x; y.sum().backward()
with keeping(): y = Square.apply(x); y.backward(n)
with keeping(): y = Exp.apply(x); y.backward(n)
with keeping(): y = Exp.apply(x * 1); u = Square.apply(y); u.backward(n)
with keeping(): y = torch.exp(s); y.backward()
with keeping(): y = torch.exp(f); y.sum().backward()
y = torch.exp(x); keeping(); u = torch.sin(y); u.sum().backward()
y = torch.exp(x)\nwith keeping(): y.sum().backward()
## what is unpacked is used
with tenfold(): y = x * n; y.sum().backward()
with tenfold(): y = torch.exp(x); y.backward(n)
with tenfold(): y = x * w; (y + x).sum().backward()
with tenfold(): y = Square.apply(x); y.sum().backward()
with tenfold(): y = x[1:] * n[1:]; y.sum().backward()
with tenfold(): y = torch.exp(x)\nu = (y * y).sum(); u.backward()
with giving(torch.ones(3)): y = torch.exp(x); y.backward(n)
with halves(): y = torch.exp(x); y.sum().backward()
## nested, and after
with keeping(), tenfold(): y = x * n; y.sum().backward()
with tenfold(), keeping(): y = x * n; y.sum().backward()
with tenfold(): y = x * n; a = ExitStack(); k = a.enter_context(keeping()); u = x * n; a.close(); v = x * n;
    del a, k\n(y + 2 * u + 3 * v).sum().backward()
with tenfold(): y = x * n\nu = x * n; (y + u).sum().backward()
## second derivatives
with keeping(): y = torch.exp(x); g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x); packed.clear();
    unpacked.clear()
with keeping(): y = x * x * n; packed.clear()
with tenfold(): y = n * x\ng, = grad((y * x).sum(), x, create_graph=True); h, = grad(g.sum(), x)
with graph.save_on_cpu(): y = x ** 3; g, = grad(y.sum(), x, create_graph=True);
    h, = grad(g.sum(), x, create_graph=True); t, = grad(h.sum(), x)
with graph.save_on_cpu(): y = torch.sin(x) * torch.exp(w); g, = grad(y.sum(), x, create_graph=True);
    h = grad((g * n).sum(), [x, w])
with graph.save_on_cpu(): y = Square.apply(x * x); g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x)
with graph.save_on_cpu(): y = Exp.apply(x * x); g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x)
## save_on_cpu
with graph.save_on_cpu(): y = (x * w).sum() + torch.exp(x).sum(); y.backward()
with graph.save_on_cpu(pin_memory=False, device_type="cuda"): y = torch.tanh(w @ x * .1); y.sum().backward()
with graph.save_on_cpu(False): y = torch.tanh(x); y.sum().backward(retain_graph=True); y.sum().backward()
with graph.save_on_cpu(): y = torch.tanh(x); y.sum().backward(); y.sum().backward()  # RuntimeError: a second time
with keeping(): y = torch.tanh(x); y.sum().backward(); y.sum().backward()  # RuntimeError: a second time
with graph.save_on_cpu(): y = w.max(0)[0]; y.sum().backward()
with graph.save_on_cpu(): y = x[i] * x[b].sum(); y.sum().backward()
with graph.save_on_cpu(): y = torch.where(b, x, n) * torch.cat([x[:1], x[1:]]); y.sum().backward()
with graph.save_on_cpu(): y = torch.exp(x); r = grad(y, x, torch.eye(3), is_grads_batched=True)
with graph.save_on_cpu(): y = x * 1; y[1:] *= n[1:]; u = y * y; u.sum().backward(); del y
## disable_saved_tensors_hooks
with graph.disable_saved_tensors_hooks("not here"): y = torch.exp(x); y.sum().backward()
with graph.disable_saved_tensors_hooks("not here"): a = keeping(); a.__enter__()  # RuntimeError: not here
with graph.disable_saved_tensors_hooks("not here"): a = graph.save_on_cpu(); a.__enter__()  # RuntimeError: not here
with graph.disable_saved_tensors_hooks("not"), graph.disable_saved_tensors_hooks("inner"): a = keeping();
    a.__enter__()  # RuntimeError: inner
with graph.disable_saved_tensors_hooks("not here"): y = 1\nwith keeping(): y = torch.exp(x); y.sum().backward()
## wrong
with giving(2.0): y = torch.exp(x);
    y.sum().backward()  # TypeError: Output of saved tensor unpack_hook expected to be a Tensor but got result of type
with giving(None): y = torch.exp(x);
    y.sum().backward()  # TypeError: Output of saved tensor unpack_hook expected to be a Tensor but got result of type
with giving(np.ones(3)): y = torch.exp(x);
    y.sum().backward()  # TypeError: Output of saved tensor unpack_hook expected to be a Tensor but got result of type
with giving(2.0): y = Square.apply(x);
    y.sum().backward()  # TypeError: Output of saved tensor unpack_hook expected to be a Tensor but got result of type
with giving(2.0): y = torch.exp(x)
with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t): y = torch.exp(x)  # ZeroDivisionError: division by zero
with graph.saved_tensors_hooks(lambda t: t, lambda t: 1 / 0): y = torch.exp(x);
    y.sum().backward()  # ZeroDivisionError: division by zero
a = graph.saved_tensors_hooks(lambda t: t)  # TypeError: unpack_hook
with graph.saved_tensors_hooks(lambda: 0, lambda t: t): y = torch.exp(x)  # TypeError: argument
## allow_mutation_on_saved_tensors
with graph.allow_mutation_on_saved_tensors(): y = x * 1; u = y * y; y.mul_(5); u.sum().backward()
with graph.allow_mutation_on_saved_tensors(): y = x * 1; u = y.sin(); y.sin_(); u.sum().backward()
with graph.allow_mutation_on_saved_tensors(): y = x.exp(); u = y * 1; y.zero_(); (y + u).sum().backward(); del y
"""


@pytest.fixture(params=[True, False], ids=["native", "plain"], autouse=True)
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run every test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
    return bool(request.param)


@pytest.mark.parametrize("program", rows(PROGRAMS.replace("\n    ", " ")))
def test_program(pytorch: Outcomes, program: str) -> None:
    assert check(pytorch, TOOLS + program.replace("\\n", "\n"), program) == []


def leaf(*values: float) -> Any:
    return tape.tensor(list(values), requires_grad=True)


def gradients(function: Any) -> list[Any]:
    x, w = leaf(1.0, 2.0, 3.0), leaf(0.5, -1.0, 2.0)
    return [g.numpy() for g in tape.autograd.grad(function(x, w), [x, w])]


def loss(x: Any, w: Any) -> Any:
    """Return a number that depends on views, a write in place, reductions and products."""
    y = tape.sin(x * w) + x[1:].sum()
    y[0] *= x[2]
    return (tape.exp(y * 0.1) * w).max() + (x.reshape(3, 1) @ w[None]).mean() + tape.sqrt(x).sum()


def test_packed_to_disk(tmp_path: Path) -> None:
    def pack(t: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, t.numpy())
        return path

    def function(x: Any, w: Any) -> Any:
        with graph.saved_tensors_hooks(pack, lambda path: tape.from_numpy(np.load(path))):
            return loss(x, w)

    for found, expected in zip(gradients(function), gradients(loss), strict=True):
        assert np.array_equal(found, expected)
    assert len(list(tmp_path.iterdir())) > 4


def test_packed_smaller() -> None:
    def function(x: Any, w: Any) -> Any:
        with graph.saved_tensors_hooks(lambda t: t.float(), lambda t: t.double()):
            return loss(x, w)

    close = list(zip(gradients(function), gradients(loss), strict=True))
    for found, expected in close:
        assert found.dtype == np.float64
        assert np.allclose(found, expected, rtol=1e-5)
    assert any(not np.array_equal(found, expected) for found, expected in close)


def test_saved_on_cpu_changes_nothing() -> None:
    def function(x: Any, w: Any) -> Any:
        with graph.save_on_cpu():
            return loss(x, w)

    for found, expected in zip(gradients(function), gradients(loss), strict=True):
        assert np.array_equal(found, expected)


def test_what_is_packed_is_a_copy_without_gradient() -> None:
    seen: list[Any] = []
    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        y = x * 2
        z = y * y
        tape.exp(x)
    y.zero_()
    with tape.no_grad():
        x.zero_()
    z.sum().backward()
    assert x.grad.tolist() == [8.0, 16.0]
    assert all(t.is_leaf and not t.requires_grad for t in seen)
    assert len(seen) >= 2


def test_what_a_hook_computes_is_not_packed_again() -> None:
    depth = []

    def pack(t: Any) -> Any:
        depth.append(t)
        return t * 2

    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(pack, lambda t: t / 2):
        y = tape.exp(x)
    y.sum().backward()
    assert len(depth) == 1
    assert np.allclose(x.grad.numpy(), np.exp([1.0, 2.0]), rtol=1e-15)


def test_exception_within_leaves_no_hooks() -> None:
    calls: list[Any] = []
    x = leaf(1.0, 2.0)
    with pytest.raises(ValueError, match="stop"), graph.saved_tensors_hooks(calls.append, lambda t: t):
        raise ValueError("stop")
    with pytest.raises(ValueError, match="stop"), graph.disable_saved_tensors_hooks("forbidden"):
        raise ValueError("stop")
    tape.exp(x).sum().backward()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        tape.exp(x)
    assert calls == []


def test_exception_in_unpack_leaves_the_graph() -> None:
    fail = [True]

    def unpack(t: Any) -> Any:
        if fail:
            raise ValueError("disk is gone")
        return t

    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t, unpack):
        y = tape.exp(x)
    with pytest.raises(ValueError, match="disk is gone"):
        y.sum().backward(retain_graph=True)
    fail.clear()
    y.sum().backward()
    assert np.allclose(x.grad.numpy(), np.exp([1.0, 2.0]), rtol=1e-15)


@pytest.mark.parametrize("call", ["exp", "function"])
def test_unpacked_shape_is_checked(call: str) -> None:
    class Square(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda _: tape.ones(3)):
        y = tape.exp(x) if call == "exp" else Square.apply(x)
    with pytest.raises(RuntimeError, match=r"returned shape \[3\] for a tensor of shape \[2\]"):
        y.sum().backward()


def test_hooks_belong_to_a_thread() -> None:
    calls: list[Any] = []
    x = leaf(1.0, 2.0)

    def other() -> None:
        tape.exp(x).sum().backward()

    with graph.saved_tensors_hooks(lambda t: calls.append(t) or t, lambda t: t):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert calls == []
    assert np.allclose(x.grad.numpy(), np.exp([1.0, 2.0]), rtol=1e-15)


def test_batched_cotangents_and_chain() -> None:
    x = leaf(1.0, 2.0)
    with graph.save_on_cpu():
        y = x
        for _ in range(300):
            y = tape.sin(y) * x
    (found,) = tape.autograd.grad(y, x, tape.eye(2), is_grads_batched=True, retain_graph=True)
    w = leaf(1.0, 2.0)
    z = w
    for _ in range(300):
        z = tape.sin(z) * w
    (expected,) = tape.autograd.grad(z, w, tape.eye(2), is_grads_batched=True)
    assert np.allclose(found.numpy(), expected.numpy(), rtol=1e-12)


@numba.njit
def _square(x: Any) -> Any:
    return x * x


@numba.njit
def _square_vjp(g: Any, x: Any) -> Any:
    return 2.0 * g * x


def test_custom_operations_are_packed() -> None:
    square = tape.custom(_square, _square_vjp)
    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t * 10, lambda t: t):
        y = square(x)
    y.sum().backward()
    assert x.grad.tolist() == [20.0, 40.0]


def test_checkpoint_by_hooks() -> None:
    """What is packed may be how to compute it again."""
    x = leaf(1.0, 2.0)
    a = tape.sin(x)
    with graph.saved_tensors_hooks(lambda t: None, lambda _: tape.sin(x.detach())):  # noqa: ARG005
        y = a**3
    y.sum().backward()
    v = x.detach().numpy()
    assert np.allclose(x.grad.numpy(), 3 * np.sin(v) ** 2 * np.cos(v), rtol=1e-14)


@pytest.fixture
def _tape_of_its_own() -> None:
    """Start from an empty tape, whatever the tests before left alive."""
    gc.collect()
    modes._thread_tape.set(None)
    modes.set_mode(modes.current())


@pytest.mark.usefixtures("_tape_of_its_own")
@pytest.mark.parametrize("life", ["swept", "dropped", "failed", "twice"])
def test_nothing_is_kept(life: str) -> None:
    def run() -> None:
        x = tape.ones(LARGE).requires_grad_()
        unpack = (lambda _: 0) if life == "failed" else (lambda t: t)
        with graph.saved_tensors_hooks(lambda t: t * 1, unpack):
            y = tape.exp(tape.sin(x) * x)
        if life == "swept":
            y.sum().backward()
        elif life == "failed":
            with pytest.raises(TypeError, match="unpack_hook"):
                y.sum().backward()
        elif life == "twice":
            (g,) = tape.autograd.grad(y.sum(), x, create_graph=True)
            g.sum().backward()
            del g
        del x, y
        recorded()
        assert recorded() == 0

    assert held(run) < 100_000


def test_packed_away_nothing_large_is_held(tmp_path: Path) -> None:
    def pack(t: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, t.numpy())
        return path

    def chain() -> Any:
        y: Any = tape.ones(LARGE).requires_grad_()
        with graph.saved_tensors_hooks(pack, lambda path: tape.from_numpy(np.load(path))):
            for _ in range(5):
                y = tape.sin(y)
        result = y.sum()
        del y
        recorded()
        return result

    assert held(chain) < 2 * 8 * LARGE


def test_program_recorded_within() -> None:
    with graph.save_on_cpu():
        program = tape.record(lambda x: (tape.exp(x) * x).sum(), np.ones(2))
        value, grads = program.value_and_grad(np.array([1.0, 2.0]))
    x = leaf(1.0, 2.0)
    expected = (tape.exp(x) * x).sum()
    expected.backward()
    assert np.isclose(float(value), expected.item(), rtol=1e-14)
    grads = grads[0] if isinstance(grads, tuple | list) else grads
    assert np.allclose(np.asarray(grads), x.grad.numpy(), rtol=1e-14)
