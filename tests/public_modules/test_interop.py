"""Bridges to PyTorch, JAX and PyTensor: both directions against the frameworks' own gradients, to second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tape.autograd import gradcheck, gradgradcheck

X = np.random.default_rng(0).normal(size=4)


def energy(lib: Any) -> Any:
    """A function of a tensor and a structure that returns a structure, a number that is none of an array's with it."""

    def f(x: Any, more: dict[str, Any], factor: float = 2.0) -> Any:
        return {
            "a": (lib.sin(x) * more["w"]).sum() * factor,
            "b": lib.exp(x) @ x,
            "at": lib.argmax(x),
            "name": "energy",
        }

    return f


def total(f: Any) -> Any:
    def of(x: Any, w: Any) -> Any:
        result = f(x, {"w": w}, factor=3.0)
        return result["a"] * result["b"]

    return of


def check_operation(f: Any, x: Any) -> None:
    """Check derivatives of an operation both ways, to second order, and of a batch."""
    assert gradcheck(f, x, check_forward_ad=True)
    assert gradgradcheck(f, x)
    batch = tape.stack([x, x + 1]).detach()
    by_rows = [tape.func.grad(f)(row).numpy() for row in batch]
    np.testing.assert_allclose(tape.vmap(tape.func.grad(f))(batch).numpy(), by_rows, rtol=1e-12)


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning", "ignore:Numba will use object")


# PyTorch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def in_torch(torch: Any) -> tuple[Any, Any, list[Any]]:
    from tape.interop.torch import to_torch

    leaves = [torch.tensor(a, requires_grad=True) for a in (X, X + 1)]
    return total(to_torch(energy(tape))), total(energy(torch)), leaves


def test_results_in_pytorch_are_structures_and_share_memory(torch: Any) -> None:
    from tape.interop.torch import to_torch

    x = torch.tensor(X, requires_grad=True)
    ours, theirs = (f(x, {"w": x}) for f in (to_torch(energy(tape)), energy(torch)))
    assert ours.keys() == theirs.keys()
    assert ours["name"] == "energy"
    assert not ours["at"].requires_grad
    assert ours["at"] == theirs["at"]
    torch.testing.assert_close(ours["b"], theirs["b"])
    seen = []
    alike = to_torch(lambda x: seen.append(x.detach().numpy()) or x)(x)
    assert np.shares_memory(seen[0], x.detach().numpy())
    assert alike.data_ptr() != x.data_ptr()  # PyTorch would take it for another tensor's memory
    assert to_torch(lambda x: x + 1)(torch.ones(2, dtype=torch.float32)).dtype == torch.float32


def test_pytorch_differentiates_functions_of_tape(torch: Any, in_torch: Any) -> None:
    ours, theirs, leaves = in_torch
    for one, other in zip(*(torch.autograd.grad(f(*leaves), leaves) for f in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(ours, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(ours, leaves)


def test_transforms_of_pytorch(torch: Any, in_torch: Any) -> None:
    ours, theirs, (x, w) = in_torch
    func = torch.func
    batch = torch.stack([x, x + 1]).detach()
    for transform in (
        lambda f: func.grad(f)(x, w),
        lambda f: func.jacrev(func.jacrev(f))(x, w),
        lambda f: func.vmap(f, (0, None))(batch, w),
    ):
        torch.testing.assert_close(transform(ours), transform(theirs))


def test_results_may_be_written_and_graphs_kept(torch: Any) -> None:
    from tape.interop.torch import to_torch

    x = torch.tensor(X, requires_grad=True)
    y = to_torch(tape.exp)(x)
    y += 1.0
    loss = y.sum()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * torch.exp(x))
    y = to_torch(lambda x: (x * x).sum())(x)
    with torch.no_grad():
        x += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with pytest.raises(ValueError, match="cpu"):
        to_torch(tape.exp)(torch.ones(2, device="meta"))


def test_compiled_functions_in_pytorch(torch: Any) -> None:
    from tape.interop.torch import to_torch

    f = tape.compile(lambda x: (tape.sin(x) ** 2).sum())
    x = torch.tensor(X, requires_grad=True)
    for _ in range(5):
        x.grad = None
        to_torch(f)(x).backward()
        torch.testing.assert_close(x.grad, torch.sin(2 * x))
    assert "replayed" in f.explain()


def test_tape_differentiates_functions_of_pytorch(torch: Any) -> None:
    from tape.interop.torch import from_torch

    f = from_torch(lambda x: torch.exp(x).sum() * x[0])
    x = tape.tensor(X, requires_grad=True)
    check_operation(f, x)
    both = tape.compile(tape.value_and_grad(lambda x: f(x) ** 2))
    for k in range(5):
        _, slope = both(X + k)
        leaf = tape.tensor(X + k, requires_grad=True)
        (f(leaf) ** 2).backward()
        np.testing.assert_allclose(slope, leaf.grad.numpy(), rtol=1e-12)
    assert "replayed" in both.explain()
    mapped = from_torch(lambda x, n: {"y": x * n, "at": x.argmax()})(x, 3)
    assert mapped["at"].item() == X.argmax()
    with pytest.raises(ValueError, match=r"\.clone\(\)"):
        from_torch(lambda x: x.add_(1.0))(x.detach())
    np.testing.assert_array_equal(from_torch(lambda x: x * 2)(tape.tensor(X[::-1])).numpy(), X[::-1] * 2)


def test_modules_of_pytorch_are_operations_with_parameters(torch: Any) -> None:
    from tape.interop.torch import from_torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).double()
    operation = from_torch(module)
    x, theirs = tape.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    (operation(x) ** 2).sum().backward()
    (module(theirs) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)
    for ours, (name, p) in zip(operation.named_parameters(), module.named_parameters(), strict=True):
        assert ours[0] == name
        np.testing.assert_allclose(ours[1].grad.numpy(), p.grad.numpy(), rtol=1e-12)
    before = module[0].weight.detach().clone()
    tape.optim.SGD(operation.parameters(), lr=0.1).step()
    torch.testing.assert_close(module[0].weight.detach(), before - 0.1 * module[0].weight.grad)


# JAX


@pytest.fixture
def jax() -> Any:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


def test_jax_differentiates_functions_of_tape(jax: Any) -> None:
    from tape.interop.jax import to_jax

    x, w = (jax.numpy.array(a) for a in (X, X + 1))
    ours, theirs = total(to_jax(energy(tape))), total(energy(jax.numpy))
    rows = jax.numpy.stack([w, w + 1])
    for transform in (
        lambda f: jax.grad(f, (0, 1))(x, w),
        lambda f: jax.jit(jax.value_and_grad(f))(x, w),
        lambda f: jax.jacrev(jax.grad(f))(x, w),
        lambda f: jax.jit(jax.vmap(jax.grad(f), (None, 0)))(x, rows),
    ):
        for one, other in zip(*map(jax.tree.leaves, (transform(ours), transform(theirs))), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    picked = jax.grad(to_jax(lambda x, at: (x[at] ** 2).sum()))(x, jax.numpy.array([0, 2]))
    np.testing.assert_allclose(picked, [2 * X[0], 0.0, 2 * X[2], 0.0])


def test_tape_differentiates_functions_of_jax(jax: Any) -> None:
    from tape.interop.jax import from_jax

    jnp = jax.numpy
    f = from_jax(jax.jit(lambda x: jnp.exp(x).sum() * x[0]))
    x = tape.tensor(X, requires_grad=True)
    check_operation(f, x)
    solve = from_jax(lambda x: jnp.linalg.solve(jnp.eye(4) * 3, x) + jax.nn.relu(x))
    both = tape.compile(tape.value_and_grad(lambda x: (solve(x) ** 2).sum()))
    for k in range(5):
        factor = 1 / 3 + (X + k > 0)
        np.testing.assert_allclose(both(X + k)[1], 2 * (X + k) * factor**2, rtol=1e-12)
    assert "replayed" in both.explain()
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(TypeError, match="jax_enable_x64"):
        f(x)


def test_pytensor_differentiates_functions_of_tape() -> None:
    pytensor = pytest.importorskip("pytensor", reason="PyTensor is not installed")
    from tape.interop.pytensor import to_pytensor

    x, at = pytensor.tensor.dvector("x"), pytensor.tensor.lvector("at")
    values = {x: [1.0, 2.0], at: [0, 0]}
    y = to_pytensor(lambda x: (x**3).sum() * x[0])(x)
    np.testing.assert_allclose(pytensor.grad(y, x).eval({x: [1.0, 2.0]}), [12.0, 12.0])
    np.testing.assert_allclose(pytensor.gradient.hessian(y, x).eval({x: [1.0, 2.0]}), [[12, 12], [12, 12]])
    two = to_pytensor(lambda x, at: (x[at] * 2.0, (x**2).sum()), ndim=(1, 0))(x, at)
    np.testing.assert_allclose(pytensor.grad(two[1], x).eval(values), [2.0, 4.0])
    np.testing.assert_allclose(pytensor.grad(two[0].sum() + two[1], x).eval(values), [6.0, 4.0])
