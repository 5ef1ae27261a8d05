"""vmap: what it gives is what a loop over examples gives, and so are its gradients; what it cannot do raises."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tape
import tape.func
from kernels.kinds.elementwise import Elementwise
from kernels.operations import OPS
from tape.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from tape.random import default_generator
from tests.support import record_cases
from tests.support.pytorch_outcomes import Outcomes
from tests.support.record_cases import Case
from tests.transforms.test_func import alive, compare

Array = np.ndarray[Any, Any]
CASES = [case for op in OPS.values() for case in record_cases.cases_of(op)]
SIZE = 3


def examples(case: Case, size: int = SIZE) -> list[Array]:
    """Return a batch of leaves for each of a case's."""
    rows = [case.leaves(np.float64, seed) for seed in range(size)]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def tensors(arrays: list[Array], *, requires_grad: bool = False) -> list[Any]:
    return [tape.tensor(x, requires_grad=requires_grad and x.dtype.kind == "f") for x in arrays]


def one_by_one(function: Any, dims: list[int | None], *batched: Any) -> Any:
    """Map a function by a loop."""
    size = next(x.shape[0] for x, d in zip(batched, dims, strict=True) if d is not None)
    return tape.stack(
        [function(*(x if d is None else x[i] for x, d in zip(batched, dims, strict=True))) for i in range(size)]
    )


def patterns(case: Case) -> list[list[int | None]]:
    """Return which leaves are mapped: all, and for several leaves each alone."""
    count = len(case.shapes)
    alone = [[0 if k == i else None for k in range(count)] for i in range(count)]
    return [[0] * count, *(alone if count > 1 else [])]


@pytest.mark.parametrize("case", record_cases.params(CASES))
def test_each_record_against_a_loop(case: Case) -> None:
    batched = examples(case)
    for dims in patterns(case):
        given = [x if d == 0 else x[0] for x, d in zip(batched, dims, strict=True)]
        if case.name.startswith(("copy_", "index_put_")) and dims[0] is None:
            continue  # the tensor that is written is computed from the first leaf; see below
        with np.errstate(all="ignore"):
            found = vmap(case.run, tuple(dims))(*tensors(given))
            expected = one_by_one(case.run, dims, *tensors(given))
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-14, atol=1e-14)


GRADED = [
    case
    for op in OPS.values()
    for case in record_cases.cases_of(op)
    if case.differentiable and (not isinstance(op, Elementwise) or case.quick)
]


@pytest.mark.parametrize("case", record_cases.params(GRADED))
def test_the_gradient_of_each_record_against_a_loop(case: Case) -> None:
    batched = examples(case, 2)
    found: list[Any] = []
    expected: list[Any] = []
    loop = lambda *x: one_by_one(case.run, [0] * len(x), *x)  # noqa: E731 (two ways of one thing)
    for run, into in ((vmap(case.run), found), (loop, expected)):
        inputs = tensors(batched, requires_grad=True)
        y = run(*inputs)
        weights = np.random.default_rng(4).uniform(0.5, 1.5, y.shape)
        wanted = [x for x in inputs if x.requires_grad]
        into.extend(tape.autograd.grad(y, wanted, tape.tensor(weights), materialize_grads=True))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-13)


# --- programs in place ------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Any, Any, int], Any]] = {
    "times": lambda a, b, _: a * b.sum() * 0.3,
    "view": lambda a, _b, _: a[...],
    "column": lambda a, _, j: a[..., j % a.shape[-1] :],
    "turned": lambda a, _b, _: a.T,
    "zeros": lambda _a, _b, _: tape.zeros(2, 3),
    "sum": lambda a, _b, _: (a.sum(0, keepdim=True) * 0.5).expand(a.shape[0], a.shape[1]) * 1.0,
}
WRITES: dict[str, Callable[[Any, Any, int, Any], Any]] = {
    "write": lambda a, b, _j, _: a.copy_(b * 0.5),
    "part": lambda a, b, _j, _: a.__setitem__(..., b * 0.5),
    "add": lambda a, b, _j, _: a.__iadd__(b * 0.5),
    "row": lambda a, b, j, _: a.__setitem__(j % a.shape[0], b.sum()),
    "picked": lambda a, b, j, _: a.__setitem__(([0], [j % a.shape[1]]), b.sum() * 0.2),
    "scaled": lambda a, _b, _j, _: a.mul_(1.5),
    "outer": lambda a, _b, _j, outer: a.__iadd__(outer.sum()),
}
Steps = list[tuple[str, int, int]]


def step(pool: list[Any], kind: str, i: int, j: int, outer: Any) -> None:
    """Run one step on 2x3 tensors and views of them."""
    a, b = pool[i % len(pool)], pool[j % len(pool)]
    if kind in READS:
        pool.append(READS[kind](a, b, j))
    else:
        WRITES[kind](a, b if a.shape == b.shape else b.sum() * 0.1, j, outer)


def program(steps: Steps, outer: Any) -> Any:
    def run(x: Any) -> Any:
        pool = [x * 1.0]
        for kind, i, j in steps:
            step(pool, kind, i, j, outer)
        return sum((t * t).sum() for t in pool)

    return run


@given(
    st.lists(
        st.tuples(st.sampled_from([*READS, *WRITES]), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=14
    )
)
def test_programs_of_views_and_writes_against_a_loop(steps: Steps) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (SIZE, 2, 3))
    results = []
    for mapped in (True, False):
        x, outer = tape.tensor(values, requires_grad=True), tape.tensor([0.3, 0.2], requires_grad=True)
        run = program(steps, outer)
        y = vmap(run)(x) if mapped else one_by_one(run, [0], x)
        gradients = tape.autograd.grad((y * y).sum(), [x, outer], materialize_grads=True)
        results.append([y.detach().numpy(), *(g.numpy() for g in gradients)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


# --- with derivatives inside and outside, by both libraries -----------------------------------------------------


class Here(NamedTuple):
    """A library of tensors, its transforms and three points."""

    lib: Any
    func: Any
    x: Any
    y: Any
    w: Any


def points() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    return tuple(tape.tensor(rng.uniform(0.2, 2.0, shape)) for shape in ((3, 4), (3, 4), (4,)))


def waves(x: Any) -> Any:
    return (x.sin() * x**2).sum()


def field(x: Any) -> Any:
    return x * x.sum()


def stencil(x: Any) -> Any:
    u = x * 1.0
    for _ in range(3):
        u = u.clone()
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return (u**2).sum()


def dense(p: Any, x: Any) -> Any:
    return ((p["w"] * x).sum() * p["b"]).sin()


def squares(m: Any) -> Any:
    a = m.reshape(2, 2)
    return (a @ a.T @ a[0]).sum().sin()


CALLS: dict[str, Callable[[Here], Any]] = {
    "grad inside": lambda o: o.func.vmap(o.func.grad(waves))(o.x),
    "grad inside, dims": lambda o: o.func.vmap(o.func.grad(waves), in_dims=1, out_dims=1)(o.x),
    "grad inside, chunks": lambda o: o.func.vmap(o.func.grad(waves), chunk_size=2)(o.x),
    "grad of numbers": lambda o: o.func.vmap(o.func.grad(lambda a: a.sin() * a))(o.w),
    "grad at other places": lambda o: o.func.vmap(o.func.grad(lambda a: (a.max(0)[0] * a).sum()))(o.x),
    "grad at other extrema": lambda o: o.func.vmap(o.func.grad(lambda a: (a.max() * a).sum()))(o.x),
    "grad of a stencil in place": lambda o: o.func.vmap(o.func.grad(stencil))(o.x),
    "grad of products": lambda o: o.func.vmap(o.func.grad(squares))(o.x),
    "grad of what does not depend": lambda o: o.func.vmap(o.func.grad(lambda a: o.w.sum() * 1.0))(o.x),
    "grad with aux": lambda o: o.func.vmap(o.func.grad(lambda a: (waves(a), {"q": a * 2.0}), has_aux=True))(o.x),
    "value and grad": lambda o: o.func.vmap(o.func.grad_and_value(waves))(o.x),
    "per-sample gradients": lambda o: o.func.vmap(o.func.grad(dense), in_dims=(None, 0))({"w": o.w, "b": o.w[0]}, o.x),
    "per-sample gradients of both": lambda o: o.func.vmap(o.func.grad(dense, argnums=(0, 1)), in_dims=(None, 0))(
        {"w": o.w, "b": o.w[0]}, o.x
    ),
    "jacrev inside": lambda o: o.func.vmap(o.func.jacrev(field))(o.x),
    "jacfwd inside": lambda o: o.func.vmap(o.func.jacfwd(field))(o.x),
    "hessian inside": lambda o: o.func.vmap(o.func.hessian(waves))(o.x),
    "jvp inside": lambda o: o.func.vmap(lambda a, b: o.func.jvp(field, (a,), (b,)))(o.x, o.y),
    "one direction": lambda o: o.func.vmap(lambda a, b: o.func.jvp(field, (a,), (b,)), in_dims=(0, None))(o.x, o.w),
    "many directions": lambda o: o.func.vmap(lambda b: o.func.jvp(field, (o.w,), (b,)), out_dims=(None, 0))(o.x),
    "vjp inside": lambda o: o.func.vmap(lambda a, b: o.func.vjp(field, a)[1](b)[0])(o.x, o.y),
    "many cotangents": lambda o: o.func.vmap(o.func.vjp(field, o.w)[1])(o.x),
    "grad outside": lambda o: o.func.grad(lambda a: o.func.vmap(waves)(a).sum() ** 2)(o.x),
    "jacrev outside": lambda o: o.func.jacrev(o.func.vmap(waves))(o.x),
    "jacfwd outside": lambda o: o.func.jacfwd(o.func.vmap(waves))(o.x),
    "hessian outside": lambda o: o.func.hessian(lambda a: o.func.vmap(waves)(a).sum() ** 2)(o.x[:2, :2]),
    "jvp outside": lambda o: o.func.jvp(o.func.vmap(waves), (o.x,), (o.y,)),
    "grad on both sides": lambda o: o.func.grad(lambda a: (o.func.vmap(o.func.grad(waves))(a) ** 2).sum())(o.x),
    "grad by what is outside": lambda o: o.func.grad(
        lambda q: (o.func.vmap(o.func.grad(lambda a: (a.sin() * q * a).sum()))(o.x) ** 2).sum()
    )(o.w),
    "vmap in vmap": lambda o: o.func.vmap(lambda a: o.func.vmap(lambda b: b * (a * 2).sin() + a.exp() * b)(o.y))(o.x),
    "vmap in vmap in grad": lambda o: o.func.grad(
        lambda c: o.func.vmap(lambda a: o.func.vmap(lambda b: (b * (a * 2).sin()).sum())(o.y))(c).sum()
    )(o.x),
    "grad in vmap in vmap": lambda o: o.func.vmap(
        lambda a: o.func.vmap(o.func.grad(lambda b: (b * (a * 2).sin() * b).sum()))(o.y)
    )(o.x),
    "vmap in grad in vmap": lambda o: o.func.vmap(
        o.func.grad(lambda a: o.func.vmap(lambda b: (b * a * a).sum())(o.y).sum())
    )(o.x),
    "detached": lambda o: o.func.vmap(o.func.grad(lambda a: (a * a.detach()).sum()))(o.x),
    "without grad": lambda o: o.func.vmap(o.func.grad(lambda a: (a * o.lib.no_grad()(lambda b: b * 2.0)(a)).sum()))(
        o.x
    ),
    "structures": lambda o: o.func.vmap(
        lambda d, s: {"a": (d["p"] * d["q"], s), "b": [d["q"]]},
        in_dims=({"p": 0, "q": None}, 1),
        out_dims={"a": (1, 0), "b": 0},
    )({"p": o.x, "q": o.w}, o.y.T),
    "a structure and an empty one": lambda o: o.func.vmap(lambda d, _: d[0] * d[1], in_dims=(0, 1))([o.x, o.y], []),
    "numbers of every kind": lambda o: o.func.vmap(lambda a: 2**a - (3 - a * 2) ** 3 / 7 + (1.5 / a) ** 0.5)(o.x),
    "a power of what is outside": lambda o: o.func.vmap(lambda a: (a * o.w).sum() ** 2 * o.w[0] ** 2)(o.x),
    "vectors and matrices": lambda o: o.func.vmap(
        lambda a, m: ((m @ a) @ o.w[:3], a @ m.T, o.w @ a, (m * 2.0) @ (m.T @ o.w[:3]), o.w.reshape(2, 2) @ a[:2])
    )(o.x, (o.x.reshape(3, 1, 4) * o.w[:3].reshape(3, 1)).sin()),
    "reductions in grad": lambda o: o.func.vmap(
        o.func.grad(lambda a: a.mean() * a.amax() + (a.reshape(2, 2).sum(0) * a.reshape(2, 2).mean(1)).sum())
    )(o.x),
    "keywords and numbers": lambda o: o.func.vmap(lambda a, s, b=None: a * s + b, in_dims=(0, None))(o.x, 2.0, b=o.w),
    "float32": lambda o: o.func.vmap(o.func.grad(waves))(o.x.float()),
    "the same for all": lambda o: o.func.vmap(lambda a: (a, o.w * 2.0))(o.x),
    "three dims": lambda o: o.func.vmap(lambda a, b: a @ b, in_dims=(2, 0), out_dims=-1)(
        o.x.reshape(2, 2, 3), o.x.reshape(3, 2, 2)
    ),
}


def by_torch(torch: Any, name: str) -> Any:
    theirs = [torch.tensor(p.tolist(), dtype=torch.float64) for p in points()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CALLS[name](Here(torch, torch.func, *theirs))


@pytest.mark.parametrize("name", CALLS)
def test_as_in_pytorch(name: str, pytorch: Outcomes) -> None:
    given, expected = points(), pytorch(lambda torch: by_torch(torch, name), name)
    found = CALLS[name](Here(tape, tape.func, *given))
    if name == "float32":
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    else:
        compare(found, expected)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left_behind(name: str) -> None:
    given = points()
    CALLS[name](Here(tape, tape.func, *given))  # the first call compiles, and leaves what it did to the collector
    gc.collect()
    before, kept = alive(), [p.tolist() for p in given]
    result = CALLS[name](Here(tape, tape.func, *given))
    assert [p.tolist() for p in given] == kept
    del result
    assert alive() == before


# --- what is ours -----------------------------------------------------------------------------------------------


def test_a_select_cuts_for_each_example() -> None:
    """Where an example takes the other branch, the root of 0 contributes nothing; PyTorch gives nan."""
    x = tape.tensor([[0.0, 1.0], [1.0, 0.0], [4.0, 4.0]])
    with np.errstate(all="ignore"):
        found = vmap(grad(lambda a: tape.where(a > 0.5, tape.sqrt(a), a).sum()))(x)
    assert found.tolist() == [[1.0, 0.5], [0.5, 1.0], [0.25, 0.25]]


def test_writes_into_a_new_tensor() -> None:
    def f(a: Any) -> Any:
        y = tape.zeros(3)
        y[1] = a[0] * 2.0
        y[0] = y[1] * a[1]
        return y

    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert vmap(f)(tape.tensor(x)).tolist() == [[4.0, 2.0, 0.0], [24.0, 6.0, 0.0]]
    expected = [[[4.0, 2.0], [2.0, 0.0], [0.0, 0.0]], [[8.0, 6.0], [2.0, 0.0], [0.0, 0.0]]]
    assert vmap(jacrev(f))(tape.tensor(x)).tolist() == expected
    assert vmap(jacfwd(f))(tape.tensor(x)).tolist() == expected


def test_writes_into_arguments_are_theirs() -> None:
    def f(a: Any) -> Any:
        a[0] = 7.0
        a.mul_(2.0)
        return a.sum()

    for dim in (0, 1):
        x = tape.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert vmap(f, in_dims=dim)(x).tolist() == ([18.0, 22.0] if dim == 0 else [20.0, 22.0])
        assert x.tolist() == ([[14.0, 4.0], [14.0, 8.0]] if dim == 0 else [[14.0, 14.0], [6.0, 8.0]])


def test_a_mapped_function_in_a_program() -> None:
    def f(x: Any) -> Any:
        return vmap(lambda a: (a * a.sum()).sin() * w)(x)

    w = tape.tensor([2.0, 3.0, 4.0])
    program = tape.record(f, np.ones((2, 3)))
    x = np.random.default_rng(0).normal(size=(2, 3))
    np.testing.assert_array_equal(program(x), f(tape.tensor(x)).numpy())


def test_autograd_inside() -> None:
    def f(a: Any) -> Any:
        b = a.clone().requires_grad_()
        (first,) = tape.autograd.grad((b**3).sum(), b, create_graph=True)
        return tape.autograd.grad(first.sum(), b)[0]

    assert vmap(f)(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[6.0, 12.0], [18.0, 24.0]]
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    found = vmap(lambda v: tape.autograd.grad(y, x, v)[0])(tape.eye(3))
    assert found.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.sum().backward()


def test_nothing_to_map() -> None:
    assert vmap(lambda a: a.sum() * tape.ones(4))(tape.ones(0, 3)).shape == (0, 4)
    assert vmap(grad(waves))(tape.ones(0, 3)).shape == (0, 3)


def test_the_function_runs_once() -> None:
    calls = []
    vmap(lambda a: calls.append(1) or a * 2.0)(tape.ones(5, 2))
    assert calls == [1]
    calls.clear()
    assert vmap(lambda a: calls.append(1) or a * 2.0, chunk_size=2)(tape.ones(5, 2)).shape == (5, 2)
    assert calls == [1]


def test_random_numbers() -> None:
    x = tape.zeros(4)
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        vmap(lambda a: a + tape.rand(2))(x)
    found = vmap(lambda a: a + tape.rand(2), randomness="same")(x)
    assert found.shape == (4, 2)
    assert len({tuple(row) for row in found.tolist()}) == 1
    assert vmap(lambda a: a + 1.0, randomness="different")(x).tolist() == [1.0] * 4
    with pytest.raises(NotImplementedError, match="random numbers that require grad cannot differ"):
        vmap(lambda a: a + tape.rand(2, requires_grad=True), randomness="different")(x)


DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "rand": lambda source, generator: source.rand(3, generator=generator),
    "randn": lambda source, generator: source.randn(20, generator=generator),
    "randint": lambda source, generator: source.randint(0, 10, (2,), generator=generator),
    "normal": lambda source, generator: source.normal(source.zeros(3), 2.0, generator=generator),
    "bernoulli": lambda source, generator: source.bernoulli(source.full((4,), 0.5), generator=generator),
    "multinomial": lambda source, generator: source.multinomial(source.arange(4.0), 2, generator=generator),
    "multinomial, one": lambda source, generator: source.multinomial(source.arange(4.0), 1, generator=generator),
    "multinomial, replaced": lambda source, generator: source.multinomial(
        source.arange(4.0), 5, True, generator=generator
    ),
    "normal_": lambda source, generator: source.zeros(3).normal_(generator=generator),
}


AT_ONCE: dict[str, Callable[[Any], Any]] = {  # as PyTorch's vmap draws
    "rand": lambda generator: tape.rand(5, 3, generator=generator),
    "randn": lambda generator: tape.randn(5, 20, generator=generator),
    "randint": lambda generator: tape.randint(0, 10, (5, 2), generator=generator),
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_differ_or_raise_whichever_generator_they_are_of(name: str, own: bool) -> None:
    """Different ones are those that are drawn for all examples at once; twice in a row, nested, compiled, in chunks."""
    draw = DRAWS[name]
    generator = tape.Generator() if own else default_generator

    def drawn(a: Any) -> Any:
        return draw(tape, generator) + a

    x = tape.zeros(5)
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        vmap(drawn)(x)
    generator.manual_seed(3)
    different = vmap(drawn, randomness="different")(x)
    generator.manual_seed(3)
    same = vmap(drawn, randomness="same")(x)
    generator.manual_seed(3)
    assert same.tolist() == [draw(tape, generator).tolist()] * 5
    generator.manual_seed(3)
    if name in AT_ONCE:
        assert different.tolist() == AT_ONCE[name](generator).tolist()
    compiled = tape.compile(lambda x: vmap(drawn, randomness="different")(x), check="never")
    generator.manual_seed(3)
    for _ in range(4):
        compiled(np.zeros(5))
    generator.manual_seed(3)
    np.testing.assert_array_equal(compiled(np.zeros(5)), different.numpy())
    nested = vmap(lambda a: vmap(drawn, randomness="different")(a * x), randomness="different")(tape.ones(2))
    rows = {tuple(row) for example in nested.tolist() for row in example}
    assert len(rows) > 2
    assert vmap(drawn, randomness="different", chunk_size=2)(x).shape == different.shape


ESCAPES: dict[str, Callable[[Any], Any]] = {
    "branch": lambda a: a if a.sum() > 1.0 else -a,
    "bool": lambda a: a * bool(a[0] > 0.0),
    "item": lambda a: a * a[0].item(),
    "float": lambda a: a * float(a[0]),
    "list": lambda a: tape.tensor(a.tolist()),
    "numpy": lambda a: a * np.sin(a.numpy()),
    "mask": lambda a: a[a > 0.0],
    "index by a number": lambda a: [1.0, 2.0][int(a[0])] * a,
    "backward": lambda a: (a.clone().requires_grad_() * 2.0).sum().backward() or a,
}


@pytest.mark.parametrize("name", ESCAPES)
def test_values_that_leave(name: str) -> None:
    function = ESCAPES[name]
    line = f"{Path(__file__).name}:{function.__code__.co_firstlineno}"
    message = f"vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow.*{line}"
    with pytest.raises(RuntimeError, match=message) as raised:
        vmap(function)(tape.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert "tape.where" in str(raised.value)


def test_values_of_what_is_the_same_for_all_may_leave() -> None:
    w = tape.tensor([2.0, 3.0])
    found = vmap(lambda a: (a * w).sum() * (float(w[0]) if w.sum() > 1.0 else 0.0))(
        tape.tensor([[1.0, 0.0], [0.0, 1.0]])
    )
    assert found.tolist() == [4.0, 6.0]


def test_tensors_outside_are_not_written() -> None:
    x = tape.tensor([[1.0, 2.0], [3.0, 4.0]])
    for write in (lambda t, a: t.add_(a), lambda t, a: t.__setitem__(0, a.sum()), lambda t, a: t[0].copy_(a.sum())):
        t = tape.tensor([5.0, 6.0])
        view = t[1:]

        def f(a: Any, write: Any = write, t: Any = t) -> Any:
            write(t, a)
            return a

        with pytest.raises(RuntimeError, match="in-place on a tensor from outside"):
            vmap(f)(x)
        assert t.tolist() == [5.0, 6.0]
        assert view.tolist() == [6.0]
        assert not t.requires_grad
        with pytest.raises(RuntimeError, match="`other` being vmapped over"):
            vmap(lambda a, s, write=write: (write(s, a), a)[1], in_dims=(0, None))(x, t)
    count = tape.zeros(())
    vmap(lambda a: (count.add_(1.0), a)[1])(x)
    assert count.item() == 1.0


def test_a_part_of_a_larger_array_outside_is_not_written() -> None:
    whole = tape.tensor(np.arange(8.0).reshape(2, 4)[:, ::2])
    gaps = tape.from_numpy(np.arange(8.0).reshape(2, 4))[:, ::2].detach()
    x = tape.ones(3)
    for t in (whole, gaps):
        kept = t.tolist()
        with pytest.raises((RuntimeError, NotImplementedError), match=r"from outside of the mapped function|part of a"):
            vmap(lambda a, t=t: (t.add_(a), a)[1])(x)
        assert t.tolist() == kept


def test_an_operation_without_a_rule_is_named() -> None:
    class Twice(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            del ctx
            return g * 2.0

    with pytest.raises(RuntimeError, match=r"an autograd\.Function"):
        vmap(lambda a: Twice.apply(a))(tape.ones(3))


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no inputs": (lambda _: vmap(lambda: 3)(), ValueError, "got no inputs. Maybe you forgot to add inputs"),
    "nothing mapped": (lambda x: vmap(lambda a: a, in_dims=(None,))(x), ValueError, "at least one Tensor to vmap over"),
    "in_dims": (lambda x: vmap(lambda a: a, in_dims=[0])(x), ValueError, "expected `in_dims` to be int or a"),
    "in_dims apart": (lambda x: vmap(lambda a: a, in_dims=(0, 0))(x), ValueError, "in_dims is not compatible with"),
    "in_dim": (
        lambda x: vmap(lambda a: a, in_dims=(0.5,))(x),
        ValueError,
        "in_dim must be either an integer dimension",
    ),
    "a number": (lambda x: vmap(lambda a, s: a)(x, 2.0), ValueError, "We cannot vmap over non-Tensor arguments"),
    "range": (lambda x: vmap(lambda a: a, in_dims=3)(x), ValueError, "so expected in_dim to satisfy -2 <= in_dim < 2"),
    "a number's dim": (lambda x: vmap(lambda a: a)(x[0, 0]), ValueError, "a Tensor of dimensionality 0"),
    "sizes": (lambda x: vmap(lambda a, b: a)(x, x.T), ValueError, "the same size in the mapped dimension, got sizes"),
    "number out": (lambda x: vmap(lambda a: 3.0)(x), ValueError, "must only return Tensors, got type <class 'float'>"),
    "batch out": (lambda x: vmap(lambda a: a, out_dims=None)(x), ValueError, "can not return a BatchedTensor when"),
    "out_dims": (
        lambda x: vmap(lambda a: a, out_dims="x")(x),
        ValueError,
        "`out_dims` must be an int, None or a python",
    ),
    "out_dims apart": (
        lambda x: vmap(lambda a: (a, a), out_dims=(0, 0, 0))(x),
        ValueError,
        "out_dims is not compatible",
    ),
    "out range": (lambda x: vmap(lambda a: a, out_dims=5)(x), IndexError, "Dimension out of range"),
    "randomness": (
        lambda x: vmap(lambda a: a, randomness="foo")(x),
        RuntimeError,
        "Only allowed values for randomness",
    ),
    "chunk size": (
        lambda x: vmap(lambda a: a, chunk_size=0)(x),
        ValueError,
        "chunk_size should be None or greater than",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call(tape.ones(2, 3))


def test_a_program_of_all_kinds_one_by_one() -> None:
    """What is the same for all is computed once, and views of it are followed into writes."""
    base = tape.arange(6.0).reshape(2, 3)
    row = base[1]

    def f(a: Any) -> Any:
        own = base * 1.0
        part = own.T[1:]
        part += a
        own[0] = row * 2.0
        return own.sum(0) * row[0] + a.sum()

    x = tape.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    np.testing.assert_allclose(vmap(f)(x).numpy(), one_by_one(f, [0], x).numpy())
    assert hessian(lambda v: vmap(f)(v).sum())(x).abs().sum().item() == 0.0
    assert jvp(vmap(f), (x,), (x,))[1].shape == (3, 3)
