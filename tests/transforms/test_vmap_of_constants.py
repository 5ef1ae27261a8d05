"""vmap of functions that write to constants, and of operations whose shapes are those of no dims or one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.routine import Routine
from kernels.operations import OPS
from tape.func import vmap
from tests.support.pytorch_outcomes import Outcomes, Raised

INDICES = {"0-d": 0, "1-d": [0], "two": [0, 0], "2-d": [[0, 0], [0, 0]]}


def each(f: Callable[[Any], Any], x: Any) -> Any:
    return tape.stack([f(x[i]) for i in range(x.shape[0])])


def check(f: Callable[[Any], Any], x: Any) -> None:
    """Vmap gives what a loop gives, and its gradient."""
    ways = vmap(f)(x), each(f, x)
    grads = [(y.detach().numpy(), tape.autograd.grad((y * y).sum(), x)[0].numpy()) for y in ways]
    assert grads[0][0].shape == grads[1][0].shape
    for one, other in zip(*grads, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


PICKS = {
    "take": INDICES, "gather": ["0-d", "1-d", "two"], "take_along_dim": ["0-d"], "index_select": ["1-d"],
    "np.take": INDICES, "a[i]": INDICES,
}  # fmt: skip
"""Functions, and what may be an index there into a tensor without dims."""


@pytest.mark.parametrize(("name", "index"), [(name, index) for name, indices in PICKS.items() for index in indices])
def test_elements_of_numbers(name: str, index: str) -> None:
    at = tape.tensor(INDICES[index])
    functions: dict[str, Callable[[Any], Any]] = {
        "take": lambda a: a.take(at),
        "gather": lambda a: a.gather(0, at),
        "take_along_dim": lambda a: tape.take_along_dim(a, at, 0),
        "index_select": lambda a: a.index_select(0, at),
        "np.take": lambda a: np.take(a, at.numpy()),
        "a[i]": lambda a: a[None][at],
    }
    check(functions[name], tape.tensor([1.0, 2.0, 3.0], requires_grad=True))


@pytest.mark.parametrize("index", ["0-d", "1-d", "two"])
def test_gather_of_a_number_is_pytorchs(index: str, libraries: list[ModuleType]) -> None:
    for library in libraries:
        x = library.tensor(2.0, requires_grad=True)
        y = x.gather(0, library.tensor(INDICES[index]))
        y.sum().backward()
        assert y.tolist() == np.full(np.shape(INDICES[index]), 2.0).tolist()
        assert x.grad.item() == np.size(INDICES[index])


@pytest.mark.parametrize("widths", list(itertools.product((-3, -1, 0, 2), repeat=2)), ids=str)
@pytest.mark.parametrize("mode", ["circular", "replicate", "reflect", "constant"])
def test_pads_with_negative_widths(mode: str, widths: tuple[int, int], pytorch: Outcomes) -> None:
    values = np.arange(10.0).reshape(1, 2, 5)

    def padded(torch: Any) -> Any:
        return torch.nn.functional.pad(torch.tensor(values), widths, mode=mode).numpy()

    expected = pytorch.or_error(padded, f"pad {widths} {mode}")
    if isinstance(expected, Raised):
        assert "RuntimeError" in expected.classes
        with pytest.raises(RuntimeError):
            tape.pad(tape.tensor(values), widths, mode)
        return
    np.testing.assert_array_equal(tape.pad(tape.tensor(values), widths, mode), expected)
    check(lambda a: tape.pad(a, widths, mode), tape.tensor(values.repeat(2, 0), requires_grad=True))


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
@pytest.mark.parametrize("shape", [(1, 4), (4,), (2, 4), (1, 5)])
def test_covariances(name: str, shape: tuple[int, ...], pytorch: Outcomes) -> None:
    values = np.random.default_rng(0).random((3, *shape))
    each_of_theirs = pytorch(
        lambda torch: [getattr(torch, name)(torch.tensor(x)).numpy() for x in values], f"{name} {shape}"
    )
    for x, expected in zip(values, each_of_theirs, strict=True):
        assert getattr(tape, name)(tape.tensor(x)).shape == expected.shape
        np.testing.assert_allclose(getattr(tape, name)(tape.tensor(x)), expected)
        theirs = getattr(np, name)(x)
        assert np.shape(getattr(np, name)(tape.tensor(x))) == np.shape(theirs)
    if name == "cov" or shape[0] == 2:  # the gradient of what is 1 always is no more than rounding
        check(getattr(tape, name), tape.tensor(values, requires_grad=True))
    assert vmap(getattr(tape, name))(tape.tensor(values)).shape == (3, *expected.shape)
    own = vmap(getattr(np, name))(tape.tensor(values))
    assert own.shape == (3, *np.shape(theirs))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("count", [None, 1, 2, 4])
def test_powers(shape: tuple[int, ...], count: int | None, pytorch: Outcomes) -> None:
    values = np.arange(1.0, 1 + np.prod(shape, dtype=int)).reshape(shape)

    def powers(torch: Any) -> Any:
        return torch.linalg.vander(torch.tensor(values), N=count).numpy()

    expected = pytorch.or_error(powers, f"powers {shape} {count}")
    if isinstance(expected, Raised):
        assert "RuntimeError" in expected.classes
        with pytest.raises(RuntimeError):
            tape.linalg.vander(tape.tensor(values), N=count)
        return
    found = tape.linalg.vander(tape.tensor(values), N=count)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    check(lambda a: tape.linalg.vander(a, N=count), tape.tensor(np.stack([values, values + 1]), requires_grad=True))


def test_products_of_booleans() -> None:
    values = np.array([[True, True], [False, True]])
    np.testing.assert_array_equal(np.vecdot(tape.tensor(values), tape.tensor(values)), np.vecdot(values, values))
    assert np.vecdot(tape.tensor(values), tape.tensor(values)).dtype == np.bool_


# --- constants that are written --------------------------------------------------------------------------------

USES: dict[str, Callable[[Any], Any]] = {
    "var": lambda c: c.var(), "cumsum": lambda c: c.cumsum(0).sum(), "sort": lambda c: c.sort().values[1],
    "median": lambda c: c.median(), "topk": lambda c: c.topk(2).values.sum(), "norm": lambda c: c.norm(),
    "cat": lambda c: tape.cat([c, c]).sum(), "stack": lambda c: tape.stack([c, c * 2.0]).sum(),
    "sum": lambda c: c.sum(), "exp": lambda c: c.exp().sum(), "matmul": lambda c: c @ c, "max": lambda c: c.max(),
    "index": lambda c: c[[0, 0, 2]].sum(), "view": lambda c: c[1:].sum(), "clone": lambda c: c.clone().sum(),
    "svd": lambda c: tape.linalg.svdvals(c.reshape(2, 2)).sum(),
    "max of rows": lambda c: c.reshape(2, 2).max(1).values[0],
    "slogdet": lambda c: tape.linalg.slogdet(c.reshape(2, 2)).logabsdet,
    "dtype": lambda c: c.to(np.float32).sum().to(np.float64),
}  # fmt: skip
WRITES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda c: c.mul_(2.0), "a part": lambda c: c.__setitem__(0, 7.0), "add_": lambda c: c.add_(1.0),
    "at places": lambda c: c.__setitem__([1, 3], 0.5),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("use", USES)
def test_a_constant_is_written_and_used(use: str, write: str) -> None:
    values = np.array([1.0, 4.0, 2.5, 3.0])

    def f(x: Any) -> Any:
        c = constant
        y = x * c.sum()  # the recorder knows the constant
        WRITES[write](c)
        return y + USES[use](c) * x

    constant = tape.tensor(values)
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = vmap(f)(x)
    after = constant.numpy().copy()
    own = tape.tensor(values)
    before = own.sum().item()
    WRITES[write](own)
    expected = x.detach() * before + USES[use](own).detach() * x.detach()
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
    np.testing.assert_array_equal(after, own)
    (g,) = tape.autograd.grad(found.sum(), x)
    np.testing.assert_allclose(g, np.full(3, before + USES[use](own).item()), rtol=1e-12)


def test_no_routine_lets_stopiteration_escape() -> None:
    assert any(isinstance(op, Routine) for op in OPS.values())
    c = tape.zeros(2)
    with pytest.raises(RuntimeError, match="in-place"):
        vmap(lambda x: c.add_(x).var())(tape.ones(3, 2))


MADE: dict[str, Callable[[Any], Any]] = {
    "a view before the write": lambda x: (u := tape.zeros(6), v := u[1:-1], u[1:4].copy_(x), v.sum() + u[2])[-1],
    "a row of a matrix": lambda x: (m := tape.ones(2, 3), m[1].mul_(x), (m * m).sum())[-1],
    "a number": lambda x: (s := tape.tensor(0.5), s.add_(x.sum()), s * x[0])[-1],
    "all of it, first without values of examples": lambda x: (
        u := tape.ones(3), u.mul_(u + 1.0), u[1:].add_(x[1:]), u.prod(),
    )[-1],
    "an alias": lambda x: (u := tape.ones(3), u[...].mul_(x), u.prod())[-1],
    "first without, then with values of examples": lambda x: (
        u := tape.zeros(3), u[1:].add_(2.0), v := u[1], u.add_(x), v * u.sum(),
    )[-1],
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("transform", ["vmap", "value_and_grad", "record"])
@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_what_the_function_made_and_viewed_is_written_in_a_program(name: str, transform: str) -> None:
    """The recorder around holds no tensor that is gone when the mapped function is over."""
    f = MADE[name] if transform != "value_and_grad" else tape.value_and_grad(MADE[name])
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    mapped = vmap(f)
    made = (
        tape.record(mapped, tape.tensor(x[0]))
        if transform == "record"
        else tape.compile(mapped, mode="eager", check="never")
    )
    for k in (0, 1, 2, 0, 3):
        got, right = made(tape.tensor(x[k])), [f(tape.tensor(row)) for row in x[k]]
        if transform == "value_and_grad":
            np.testing.assert_allclose(got[1], np.stack([gradient for _, gradient in right]), rtol=1e-12)
            got, right = got[0], [value for value, _ in right]
        np.testing.assert_allclose(got, np.stack(right), rtol=1e-12)


def test_what_lives_on_is_not_written_in_a_program() -> None:
    kept = []

    def f(x: Any) -> Any:
        u = tape.zeros(3)
        kept.append(u[1:])
        u += x
        return u.sum()

    with pytest.raises(RuntimeError, match="in-place"):
        tape.compile(vmap(f), mode="eager")(tape.ones(2, 3))


@pytest.mark.quick
def test_gradients_in_programs_leave_no_graph_behind() -> None:
    def f(x: Any) -> Any:
        w = tape.ones(3)  # a leaf that the gradient is asked by is made of a constant
        return (tape.func.grad(lambda w: ((w * x - 1.0) ** 2).sum())(w) * x).sum()

    x = tape.tensor([[0.3, -0.7, 0.4], [1.1, 0.2, -0.5]])
    compiled = tape.compile(vmap(tape.value_and_grad(f)), check="never")
    for _ in range(4):
        value, gradient = compiled(x)
        assert not value.requires_grad
        assert not gradient.requires_grad
        np.testing.assert_allclose(gradient, 6 * x * x - 4 * x, rtol=1e-12)  # of sum(2 x^3 - 2 x^2)


@pytest.mark.quick
@pytest.mark.filterwarnings("error::tape.errors.CompileWarning")
def test_loops_of_mapped_functions_are_no_loops_of_programs() -> None:
    """They run for one example; their variables are nothing from outside."""

    def f(u: Any, k: Any) -> Any:
        for _ in range(3):
            padded = tape.zeros(4)
            padded[1:-1] = u
            padded[0] = padded[1]
            u = u + 0.1 * k * (padded[2:] - padded[:-2])
        return (u**2).sum()

    compiled = tape.compile(vmap(tape.value_and_grad(f, (0, 1))), check="never")
    for call in range(5):
        u, k = np.random.default_rng(call).normal(size=(3, 2)), np.linspace(0.5, 1.5, 3) + 0.1 * call
        value, gradients = compiled(u, k)
        for i in range(3):
            right, slopes = tape.value_and_grad(f, (0, 1))(u[i], float(k[i]))
            np.testing.assert_allclose(value[i], right, rtol=1e-12)
            np.testing.assert_allclose(gradients[0][i], slopes[0], rtol=1e-12)
            np.testing.assert_allclose(gradients[1][i], slopes[1], rtol=1e-12)
    assert compiled.programs


def test_a_mapped_function_within_forward_of_a_compiled_call() -> None:
    """What watches ``forward`` records nothing."""

    class Tails(tape.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return vmap(lambda r: (w := tape.zeros(3), w[1:].add_(r[1:]), w.sum())[-1])(x)

        @staticmethod
        def backward(_ctx: Any, g: Any) -> Any:
            return g.reshape(2, 1) * tape.tensor([0.0, 1.0, 1.0])

    compiled = tape.compile(tape.value_and_grad(lambda x: Tails.apply(x * 2.0).sum()), mode="eager", check="never")
    for k in range(4):
        x = np.arange(6.0).reshape(2, 3) + k
        value, gradient = compiled(x)
        assert value == pytest.approx(2.0 * x[:, 1:].sum())
        np.testing.assert_array_equal(gradient, [[0.0, 2.0, 2.0]] * 2)
