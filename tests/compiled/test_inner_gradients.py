"""Derivatives inside compiled functions: each record, writes, views, picks and loops, against the same outside."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning
from tape.func import grad, hessian, jacfwd, jacrev, vjp, vmap
from tape.tensors.pytrees import leaves
from tests.compiled.test_compiled_records import CASES
from tests.support.record_cases import Case, params, tensors
from tests.support.representatives import in_turns

Function = Callable[..., Any]
CALLS = 5


@pytest.fixture(autouse=True)
def _dynamic_is_allowed() -> Iterator[None]:
    """What no program can hold stays dynamic, with a warning; that it is right is what is tested."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", CompileWarning)
        yield


def flat(found: Any) -> list[Any]:
    if isinstance(found, (tuple, list)):
        return [leaf for part in found for leaf in flat(part)]
    return [np.asarray(found.detach().numpy() if isinstance(found, tape.Tensor) else found, float)]


def agree(got: Any, right: Any) -> None:
    for one, other in zip(flat(got), flat(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def loss_of(case: Case) -> Function:
    def loss(*xs: Any) -> Any:
        results = case.run(*xs)
        parts = results if isinstance(results, (tuple, list)) else (results,)
        return sum((y.sum() + (y * y).sum() for y in parts if y.is_floating_point()), tape.tensor(0.0))

    return loss


def pulled(loss: Function, by: tuple[int, ...]) -> Function:
    return lambda *xs: vjp(loss, *xs)[1](tape.tensor(2.0)) if len(by) == len(xs) else grad(loss, by)(*xs)


KINDS: dict[str, Callable[[Case, Function, tuple[int, ...]], Function]] = {
    "grad": lambda _, loss, by: grad(loss, by),
    "hessian": lambda _, loss, by: hessian(loss, by[:1]),
    "vjp": lambda _, loss, by: pulled(loss, by),
    "jacrev": lambda case, _, by: jacrev(lambda *xs: case.run(*xs) * 1.0, by[0]),
    "grad of grad": lambda _, loss, by: grad(lambda *xs: sum((g * g).sum() for g in grad(loss, by)(*xs)), by),
}
DIFFERENTIABLE = [case for case in CASES if case.differentiable]


def check_record(case: Case, kind: str, mode: str) -> None:
    leaves = tensors(case.leaves(np.float64, 0))
    by = tuple(k for k, x in enumerate(leaves) if x.requires_grad)
    function = KINDS[kind](case, loss_of(case), by)
    try:
        function(*[x.detach() for x in leaves])
    except (NotImplementedError, RuntimeError, TypeError, AttributeError):
        return  # several results have no Jacobian, some records no second derivative
    compiled = tape.compile(function, check="never", mode=mode)
    for seed in range(CALLS):
        given = [x.detach() for x in tensors(case.leaves(np.float64, seed))]
        agree(compiled(*given), function(*given))


def derivatives() -> Iterator[Any]:
    """Yield one kind of derivative of each case, in turns: few Hessians in every run, for they take a second each."""
    hessians = itertools.count()
    for case, kind in zip(DIFFERENTIABLE, itertools.cycle(KINDS), strict=False):
        (row,) = params([case], pytest.mark.quick)
        if case.quick and kind == "hessian" and next(hessians) % 4:
            yield pytest.param(case, "grad of grad", id=f"{case.name}-grad of grad", marks=row.marks)
            yield pytest.param(case, kind, id=f"{case.name}-{kind}", marks=pytest.mark.exhaustive)
        else:
            yield pytest.param(case, kind, id=f"{case.name}-{kind}", marks=row.marks)


@pytest.mark.parametrize(("case", "kind"), [*derivatives()])
def test_each_record(case: Case, kind: str) -> None:
    """The next test has all kinds of some."""
    check_record(case, kind, "eager")


@pytest.mark.usefixtures("few_passes")
@pytest.mark.parametrize(("case", "kind"), in_turns([c for c in DIFFERENTIABLE if c.quick][::8], KINDS))
def test_each_kind_as_machine_code(case: Case, kind: str) -> None:
    check_record(case, kind, "max")


def written_part(x: Any) -> Any:
    u = tape.zeros(5)
    u[1:4] = x * x
    return (u * u).sum() + u[1]


def written_before_a_view(x: Any) -> Any:
    y = x * 1
    y *= y
    y[1:] += x[:2]
    return (y * y).sum()


def written_through_a_view(x: Any) -> Any:
    y = x * x
    y[0] = y[1] * y[2]
    y[1:] *= y[:-1]
    return (y**2).sum()


def taken_over(x: Any) -> Any:
    """Operations in place after which no tensor has the values that gradients need."""
    u = x * 2.0
    u.sin_()
    u *= x
    u.mul_(u).add_(x).exp_()
    return (u * x).sum() + (x * 1).mul_(x).sum() * x.sum()


def added_at(x: Any) -> Any:
    u = tape.zeros(4) * 1
    np.add.at(u, [0, 2, 2], x * x)
    return (u * u).sum()


def copied_to(x: Any) -> Any:
    u = tape.zeros(3)
    np.copyto(u, x * x)
    return (u * x).sum()


def unpacked(x: Any) -> Any:
    a, b, c = x.unbind()
    return a * b + c * c * a


def split(x: Any) -> Any:
    a, b = x.split([1, 2])
    return (a * b).sum() + (b * b).sum()


def solved(x: Any) -> Any:
    return tape.linalg.solve(tape.eye(3) * 3 + tape.outer(x, x), x).pow(2).sum()


def factors(x: Any) -> Any:
    matrix = tape.eye(3) * 3 + tape.outer(x, x)
    lower = tape.linalg.lu_factor(matrix)[0]
    return (lower * lower).sum() + tape.linalg.cholesky(matrix).pow(2).sum() * x[1]


def eigenvalues(x: Any) -> Any:
    values, vectors = tape.linalg.eigh(tape.diag(tape.arange(1.0, 4.0)) + tape.outer(x, x))
    return (values**3).sum() + (vectors[:, 0] ** 4).sum()


def looped(x: Any) -> Any:
    u = x * 1.0
    for k in range(6):
        u = u + 0.1 * tape.sin(u) * x
        u[k % 3] = u[(k + 1) % 3] * 0.5 + x[k % 3]
    return (u * u).sum()


def until_small(x: Any) -> Any:
    u = x * 1.0
    while (u * u).sum() > 0.1:
        u = u * 0.5
    return (u**3).sum()


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


LOSSES: dict[str, Function] = {
    **{f.__name__: f for f in (
        written_part, written_before_a_view, written_through_a_view, taken_over, added_at, copied_to, unpacked, split,
        solved, factors, eigenvalues, looped, until_small, rosenbrock,
    )},
    "elements": lambda x: x[0] ** 2 + x[1] ** 3,
    "np.diag": lambda x: np.diag(x).sum() + (np.diag(x) ** 3).sum(),
    "sort": lambda x: (x.sort()[0] * tape.arange(3.0)).sum() + (x.sort()[0] ** 2).sum(),
    "topk": lambda x: (x.topk(2)[0] ** 2).sum() * x[0],
    "cummax and median": lambda x: (x.cummax(0)[0] ** 2).sum() + x.median() ** 2,
    "quantile": lambda x: tape.quantile(x, 0.3) ** 2,
    "picks": lambda x: (x[[0, 2, 2]] ** 2).sum() + x[tape.tensor([1, 1])].prod(),
    "picks by its values": lambda x: x[x.argmax()] ** 2 + (x[x.argsort()] * tape.arange(3.0)).sum() + x[x > 0].sum(),
    "selections": lambda x: tape.where(x > 0, x * x, tape.sin(x)).sum() + (x.relu() ** 2 * x).sum(),
    "extrema": lambda x: x.max() ** 2 * x.min(),
    "scans": lambda x: (tape.cumsum(x, 0) ** 2 * x).sum() + (tape.cumprod(x, 0) ** 2).sum(),
    "joins": lambda x: (tape.cat([x, x * x, x[:1]]) ** 3).sum() + (tape.roll(x, 1) * x.flip(0)).sum(),
    "a gradient": lambda x: (grad(lambda z: (z**3).sum())(x) * x).sum(),
    "det and logsumexp": lambda x: tape.linalg.det(tape.eye(3) + tape.outer(x, x)) ** 2 + tape.logsumexp(x * x, 0),
}  # fmt: skip
TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "grad": grad,
    "hessian": hessian,
    "grad of grad": lambda f: grad(lambda z: (grad(f)(z) ** 2).sum()),
    "jacrev": lambda f: jacrev(lambda z: tape.stack([f(z), f(z * 2)])),
    "value_and_grad": lambda f: lambda x: tape.value_and_grad(f)(x)[1],
    "a step": lambda f: lambda x: x - 0.1 * grad(f)(x),
    "jacfwd of grad": lambda f: jacfwd(grad(f)),
    "jvp": lambda f: lambda x: tape.func.jvp(f, (x,), (x * 2.0,))[1],
    "autograd.grad": lambda f: lambda x: asked(f, x),
}


def asked(f: Function, x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    return tape.autograd.grad(f(leaf), leaf)[0]


@pytest.mark.parametrize(
    ("name", "transform"), [*in_turns(LOSSES, ["grad"], pytest.mark.quick), *in_turns(LOSSES, [*TRANSFORMS][1:])]
)
def test_losses(name: str, transform: str) -> None:
    inner = TRANSFORMS[transform](LOSSES[name])
    outer = tape.value_and_grad(lambda x: (inner(x) ** 2).sum())
    compiled, both = (tape.compile(f, check="never", mode="eager") for f in (inner, outer))
    for k in range(CALLS):
        x = np.random.default_rng(k).normal(size=3)
        agree(compiled(x), inner(tape.tensor(x)))
        agree(both(x), outer(x))


@pytest.mark.quick
@pytest.mark.usefixtures("few_passes")
@pytest.mark.parametrize(
    "name", ["written_part", "taken_over", "rosenbrock", "elements", "np.diag", "selections", "joins"]
)
def test_they_are_operations_of_the_program(name: str) -> None:
    """Programs are replayed, and differentiated in turn, as machine code, too."""
    for mode in ("eager", "max"):
        force = grad(LOSSES[name])
        both = tape.compile(tape.value_and_grad(lambda x, force=force: (force(x) ** 2).sum()), check="never", mode=mode)
        for k in range(CALLS):
            x = np.random.default_rng(k).normal(size=3)
            agree(both(x), tape.value_and_grad(lambda x, force=force: (force(x) ** 2).sum())(x))
        assert any(program.hits for program in both.programs), both.explain()


PICKED: dict[str, Callable[..., Any]] = {
    "elements": lambda x, i: (x[i] ** 3).sum(),
    "from the end, of a view": lambda x, i: (x[1:][i - 2] ** 3).sum() * x.sum(),
    "after a write": lambda x, i: ((x * tape.cat([x[:2] * 2.0, x[2:]]))[i] ** 2).sum(),
    "gather": lambda x, i: (tape.gather(x * x, 0, tape.as_tensor(i)) * x[i]).sum(),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", PICKED)
def test_picks_by_an_argument(name: str) -> None:
    """The places where gradients are added are those of the call, in gradients of first and second order."""
    force = grad(PICKED[name])
    both = tape.value_and_grad(lambda x, i: (force(x, i) ** 2).sum())
    by_tangent = lambda x, i: tape.func.jvp(lambda z: PICKED[name](z, i), (x,), (x * 2.0,))[1]  # noqa: E731
    for inner in (force, both, by_tangent):
        compiled = tape.compile(inner, check="never")
        for k in range(CALLS):
            chance = np.random.default_rng(k)
            x, index = chance.normal(size=3), chance.integers(0, 2, 4)
            for one, other in zip(leaves(compiled(x, index)), leaves(inner(x, index)), strict=True):
                agree(one, other)
        assert any(program.hits for program in compiled.programs), compiled.explain()


@pytest.mark.quick
def test_many_examples() -> None:
    compiled = tape.compile(lambda x: vmap(grad(written_through_a_view))(tape.stack([x, x * 2])), check="never")
    for k in range(CALLS):
        x = np.random.default_rng(k).normal(size=3)
        right = [grad(written_through_a_view)(tape.tensor(x * (1 + e))).numpy() for e in range(2)]
        agree(compiled(x), np.stack(right))


@pytest.mark.quick
def test_more_results_than_are_held_at_first() -> None:
    """A recording holds few results; where a gradient asks for more, the next one holds them."""

    def force(x: Any, y: Any) -> Any:
        z = x
        for k in range(150):
            z = 0.99 * z + tape.sin(z) * (0.01 + 0.001 * (k % 7))
        (g,) = tape.autograd.grad((z * z).sum(), x, create_graph=True)
        return (g * g * y).sum()

    both, x = tape.value_and_grad(force, argnums=(0, 1)), np.linspace(0.1, 1.0, 5)
    compiled = tape.compile(both, check="never")
    for k in range(6):
        (found, gradients), (wanted, others) = (f(x * (1.0 + 0.01 * k), x) for f in (compiled, both))
        np.testing.assert_allclose([found, *gradients[0], *gradients[1]], [wanted, *others[0], *others[1]], rtol=1e-12)
    assert "3 replayed, 3 recorded" in compiled.explain()


def test_many_jacobians_within() -> None:
    """A loop with a Jacobian in each iteration, as linearly implicit steps have it, becomes a native one."""

    def rate(y: Any, k: Any) -> Any:
        return tape.stack([-k[0] * y[0] + k[1] * y[1] * y[2], k[0] * y[0] - k[1] * y[1] * y[2], k[2] * y[1] ** 2])

    def decayed(y: Any, k: Any) -> Any:
        for _ in range(60):
            matrix = np.eye(3) - 0.01 * tape.func.jacrev(rate)(y, k)
            y = y + 0.01 * tape.linalg.solve(matrix, rate(y, k))
        return (y * y).sum()

    both, y, k = tape.value_and_grad(decayed, (0, 1)), np.array([1.0, 0.0, 0.0]), np.array([0.4, 1.1, 0.7])
    compiled = tape.compile(both, mode="max", check="never")
    for _ in range(4):
        compiled(y, k)
    (found, gradients), (wanted, others) = compiled(y, k * 1.1), both(y, k * 1.1)
    np.testing.assert_allclose([found, *gradients[0], *gradients[1]], [wanted, *others[0], *others[1]], rtol=1e-10)
    assert any(program.hits for program in compiled.programs)
    assert "loop, 60 times" in compiled.explain()
    assert "guard" not in compiled.explain()  # whether a cotangent has -0.0, as many of zeros do, is computed
