"""tape.autograd.functional: against PyTorch's where it is installed, closed forms, and the errors of both."""

from __future__ import annotations

import builtins
import gc
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape.autograd import functional
from tests.support.pytorch_outcomes import Outcomes, Raised
from tests.transforms.test_func import alive, compare


class Here(NamedTuple):
    """A library of functionals and two points."""

    func: Any
    x: Any
    y: Any


def points(*, requires_grad: bool = False) -> tuple[Any, Any]:
    x = tape.tensor([0.5, 1.0, 2.0], requires_grad=requires_grad)
    return x, tape.tensor([[1.0, -2.0], [0.25, 3.0]], requires_grad=requires_grad)


def two(a: Any, b: Any) -> Any:
    return a.sum() * b, a * a


def scalar(a: Any) -> Any:
    return (a**3).sum()


def bilinear(a: Any, b: Any) -> Any:
    return (a.sum() * b**2).sum()


CALLS: dict[str, Callable[[Here], Any]] = {
    "vjp": lambda o: o.func.vjp(lambda a: a * a, o.x, o.x),
    "vjp without v": lambda o: o.func.vjp(scalar, o.x),
    "vjp of several": lambda o: o.func.vjp(two, (o.x, o.y), (o.y, o.x)),
    "vjp of a tuple of one": lambda o: o.func.vjp(lambda a: (a * a,), (o.x,), (o.x,)),
    "vjp of nothing": lambda o: o.func.vjp(lambda a: o.x.sum(), o.x),
    "jvp": lambda o: o.func.jvp(lambda a: a * a, o.x, o.x),
    "jvp without v": lambda o: o.func.jvp(lambda a: a * a, o.x[:1]),
    "jvp of several": lambda o: o.func.jvp(two, (o.x, o.y), (o.x, o.y)),
    "jvp of nothing": lambda o: o.func.jvp(lambda a: o.x.sum(), o.x, o.x),
    "jvp, strict": lambda o: o.func.jvp(lambda a: 2 * a, o.x, o.x, strict=True),
    "vhp": lambda o: o.func.vhp(scalar, o.x, o.x),
    "vhp of several": lambda o: o.func.vhp(bilinear, (o.x, o.y), (o.x, o.y)),
    "vhp of a linear function": lambda o: o.func.vhp(lambda a: a.sum(), o.x, o.x),
    "hvp": lambda o: o.func.hvp(scalar, o.x, o.x),
    "hvp of several": lambda o: o.func.hvp(bilinear, (o.x, o.y), (o.x, o.y)),
    "hvp of a linear function": lambda o: o.func.hvp(lambda a: a.sum(), o.x, o.x),
    "jacobian": lambda o: o.func.jacobian(lambda a: a * a.sum(), o.x),
    "jacobian of several": lambda o: o.func.jacobian(two, (o.x, o.y)),
    "jacobian of a tuple of one": lambda o: o.func.jacobian(lambda a: a * a, (o.x,)),
    "jacobian to a tuple of one": lambda o: o.func.jacobian(lambda a: (a * a,), o.x),
    "jacobian of a number": lambda o: o.func.jacobian(lambda a: a * a, o.x[1]),
    "jacobian of a scalar function": lambda o: o.func.jacobian(scalar, o.x),
    "jacobian of nothing": lambda o: o.func.jacobian(lambda a: o.y, o.x),
    "jacobian, strict": lambda o: o.func.jacobian(lambda a: a * a, o.x, strict=True),
    "jacobian, vectorized": lambda o: o.func.jacobian(two, (o.x, o.y), vectorize=True),
    "jacobian, forward": lambda o: o.func.jacobian(two, (o.x, o.y), vectorize=True, strategy="forward-mode"),
    "hessian": lambda o: o.func.hessian(scalar, o.x),
    "hessian of several": lambda o: o.func.hessian(bilinear, (o.x, o.y)),
    "hessian of a tuple of one": lambda o: o.func.hessian(scalar, (o.x,)),
    "hessian of one element": lambda o: o.func.hessian(lambda a: scalar(a).reshape(1, 1), o.x),
    "hessian of a linear function": lambda o: o.func.hessian(lambda a: a.sum(), o.x),
    "hessian, strict": lambda o: o.func.hessian(scalar, o.x, strict=True),
    "hessian, vectorized": lambda o: o.func.hessian(bilinear, (o.x, o.y), vectorize=True),
}


def by_torch(torch: Any, call: Callable[..., Any], *, requires_grad: bool = False) -> Any:
    given = (torch.tensor(p.tolist(), dtype=torch.float64, requires_grad=requires_grad) for p in points())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(Here(torch.autograd.functional, *given))


@pytest.mark.parametrize("name", CALLS)
def test_as_in_pytorch(name: str, pytorch: Outcomes) -> None:
    theirs = pytorch(lambda torch: by_torch(torch, CALLS[name]), name)
    compare(CALLS[name](Here(functional, *points())), tupled(theirs))


def tupled(tree: Any) -> Any:
    """Turn the lists that PyTorch's forward mode returns into the tuples that it documents."""
    return tuple(map(tupled, tree)) if isinstance(tree, (tuple, list)) else tree


GRAPHS = [
    name
    for name in CALLS
    if "nothing" not in name and "linear" not in name and "forward" not in name and "strict" not in name
]


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_as_in_pytorch(name: str, pytorch: Outcomes) -> None:
    """With create_graph, the gradient of the sum of all results is PyTorch's."""

    def summed(o: Here) -> Any:
        def with_graph(function: Any) -> Any:
            return lambda *args, **more: function(*args, create_graph=True, **more)

        class Graphs:
            def __getattr__(self, called: str) -> Any:
                return with_graph(getattr(o.func, called))

        leaves = flat(CALLS[name](Here(Graphs(), o.x, o.y)))
        assert all(leaf.requires_grad for leaf in leaves if leaf.abs().sum().item() > 0)
        total = sum((leaf * leaf).sum() for leaf in leaves if leaf.requires_grad)
        total.backward()
        return [g for g in (o.x.grad, o.y.grad) if g is not None]

    found = summed(Here(functional, *points(requires_grad=True)))
    theirs = pytorch(lambda torch: by_torch(torch, summed, requires_grad=True), f"{name}, with a graph")
    for a, b in zip(found, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in flat(part)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left_behind(name: str) -> None:
    x, y = points(requires_grad=True)
    CALLS[name](Here(functional, x, y))  # the first call compiles, and leaves what it did to the collector
    gc.collect()
    before = alive()
    found = flat(CALLS[name](Here(functional, x, y)))
    assert not any(leaf.requires_grad for leaf in found)
    assert x.grad is None
    assert alive() == before


def test_forward_and_reverse_agree() -> None:
    x, y = points()

    def f(a: Any, b: Any) -> Any:
        c = b * a[0]
        c[0] += a[1:]
        return c.sin(), (a * a).max()

    rows, columns = (functional.jacobian(f, (x, y), strategy=s) for s in ("reverse-mode", "forward-mode"))
    for a, b in zip(flat(rows), flat(columns), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-14)

    def g(a: Any, b: Any) -> Any:
        return (f(a, b)[0] ** 2).sum() * f(a, b)[1]

    rows, columns = (functional.hessian(g, (x, y), outer_jacobian_strategy=s) for s in ("reverse-mode", "forward-mode"))
    for a, b in zip(flat(rows), flat(columns), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-13)
    v = tape.tensor([1.0, -1.0, 0.5]), tape.tensor([[0.0, 1.0], [2.0, 0.0]])
    for a, b in zip(functional.hvp(g, (x, y), v)[1], functional.vhp(g, (x, y), v)[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_what_pytorch_refuses() -> None:
    x, _ = points(requires_grad=True)
    graph = functional.jacobian(lambda a: a**3, x, create_graph=True, strategy="forward-mode")
    graph.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * x.detach().numpy())
    plainly = functional.jacobian(lambda a: a**3, x, strict=True, vectorize=True, strategy="forward-mode")
    np.testing.assert_allclose(plainly.numpy(), np.diag(3 * x.detach().numpy() ** 2))


def test_one_batched_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.sweeps import reverse

    sweeps = []
    run = reverse.run
    monkeypatch.setattr(reverse, "run", lambda task: sweeps.append(task.batch) or run(task))
    functional.jacobian(lambda a: a * a, tape.ones(7))
    functional.hessian(scalar, tape.ones(5))
    assert sweeps == [7, 5]


def test_rosenbrock() -> None:
    x = np.random.default_rng(0).normal(size=100)

    def rosenbrock(v: Any) -> Any:
        return (100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2).sum()

    expected = np.zeros((100, 100))
    for i in range(99):
        expected[i, i] += 1200 * x[i] ** 2 - 400 * x[i + 1] + 2
        expected[i + 1, i + 1] += 200
        expected[i, i + 1] -= 400 * x[i]
        expected[i + 1, i] -= 400 * x[i]
    np.testing.assert_allclose(functional.hessian(rosenbrock, tape.tensor(x)).numpy(), expected, rtol=1e-12, atol=1e-9)


OUTPUT = "Output 0 of the user-provided function does not require gradients. The outputs must be computed in a"
ONE = "contain a single element"
LINEAR = "found that the jacobian of the user-provided function with respect to input 0 is independent of the input"
ERRORS: dict[str, tuple[Callable[[Here], Any], str]] = {
    "no v": (lambda o: o.func.vjp(lambda a: a * a, o.x), "v can only be None if the user-provided function returns"),
    "no v forward": (lambda o: o.func.jvp(lambda a: a * a, o.x), "The vector v can only be None if the input to the"),
    "no v for a hessian": (lambda o: o.func.vhp(scalar, o.x), "The vector v can only be None if the input to the"),
    "count of v": (
        lambda o: o.func.vjp(two, (o.x, o.y), (o.y,)),
        "v is a tuple of invalid length: should be 2 but got 1.",
    ),
    "several v": (lambda o: o.func.vjp(lambda a: a, o.x, (o.x, o.x)), "The given v should contain a single Tensor."),
    "size of v": (lambda o: o.func.hvp(scalar, o.x, o.x[:2]), "v has invalid size: should be"),
    "size of an entry": (
        lambda o: o.func.vjp(two, (o.x, o.y), (o.y, o.x[:2])),
        "Entry 1 in v has invalid size: should be",
    ),
    "a list": (lambda o: o.func.vjp(two, [o.x, o.y]), "The inputs given to vjp must be either a Tensor or a tuple of"),
    "a number": (lambda o: o.func.jacobian(two, (o.x, 3)), "but the value at index 1 has type <class 'int'>."),
    "a number out": (
        lambda o: o.func.jvp(lambda a: 3.0, o.x, o.x),
        "The outputs of the user-provided function given to",
    ),
    "strategy": (lambda o: o.func.jacobian(scalar, o.x, strategy="sideways"), "Expected strategy to be either"),
    "hessian strategy": (
        lambda o: o.func.hessian(scalar, o.x, outer_jacobian_strategy="sideways"),
        "Expected strategy to be either",
    ),
    "hessian of many": (lambda o: o.func.hessian(lambda a: a * a, o.x), f"given to hessian should {ONE}"),
    "vhp of many": (lambda o: o.func.vhp(lambda a: a * a, o.x, o.x), f"given to vhp should {ONE}"),
    "hvp of many": (lambda o: o.func.hvp(lambda a: a * a, o.x, o.x), f"given to hvp should {ONE}"),
    "hessian of a tuple": (lambda o: o.func.hessian(lambda a: (scalar(a),), o.x), "should return a single Tensor"),
    "strict vjp": (lambda o: o.func.vjp(lambda a: o.x.sum(), o.x, strict=True), OUTPUT),
    "strict vjp of one": (
        lambda o: o.func.vjp(lambda a, b: a.sum(), (o.x, o.y), strict=True),
        "The output of the user-provided function is independent of input 1. This is not allowed in strict mode.",
    ),
    "strict vjp with graph": (
        lambda o: o.func.vjp(lambda a: 2 * a, o.x, o.x, create_graph=True, strict=True),
        "independent of input 0. This is not allowed in strict mode when create_graph=True.",
    ),
    "strict jvp": (lambda o: o.func.jvp(lambda a: o.x.sum(), o.x, o.x, strict=True), OUTPUT),
    "strict jvp of one": (
        lambda o: o.func.jvp(lambda a, b: a.sum(), (o.x, o.y), (o.x, o.y), strict=True),
        "The output of the user-provided function is independent of input 1.",
    ),
    "strict jacobian": (
        lambda o: o.func.jacobian(lambda a, b: a, (o.x, o.y), strict=True),
        "Output 0 of the user-provided function is independent of input 1. This is not allowed in strict mode.",
    ),
    "strict jacobian with graph": (
        lambda o: o.func.jacobian(lambda a: 2 * a, o.x, strict=True, create_graph=True),
        "The jacobian of the user-provided function is independent of input 0. This is not allowed in strict mode when",
    ),
    "strict hessian": (lambda o: o.func.hessian(lambda a: a.sum(), o.x, strict=True), LINEAR),
    "strict hessian of sums": (
        lambda o: o.func.hessian(lambda a, b: scalar(a) + scalar(b), (o.x, o.y), strict=True),
        "Output 0 of the user-provided function is independent of input 1.",
    ),
    "strict vhp": (lambda o: o.func.vhp(lambda a: a.sum(), o.x, o.x, strict=True), LINEAR),
    "strict hvp": (lambda o: o.func.hvp(lambda a: a.sum(), o.x, o.x, strict=True), LINEAR),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, message = ERRORS[name]
    with pytest.raises((RuntimeError, TypeError, AssertionError), match=re.escape(message)):
        call(Here(functional, *points()))


@pytest.mark.parametrize("name", ERRORS)
def test_errors_as_in_pytorch(name: str, pytorch: Outcomes) -> None:
    call, message = ERRORS[name]
    theirs = pytorch.or_error(lambda m: by_torch(m, call), f"{name}, an error")
    assert isinstance(theirs, Raised)
    assert {"RuntimeError", "TypeError", "AssertionError"} & set(theirs.classes)
    assert message in theirs.text
    with pytest.raises(getattr(builtins, theirs.classes[0])):
        call(Here(functional, *points()))


# --- strict mode ------------------------------------------------------------------------------------------------

OF_ONE: dict[str, Any] = {
    "independent": lambda lib, x: lib.ones(2) * 1.0,
    "detached": lambda lib, x: x.detach(),
    "linear": lambda lib, x: x * 2.0,
    "squares": lambda lib, x: x * x,
    "linear sum": lambda lib, x: x.sum(),
    "sum of cubes": lambda lib, x: (x**3).sum(),
    "constant": lambda lib, x: lib.ones(1).sum(),
    "of another tensor": lambda lib, x: lib.ones(2).requires_grad_() * 1.0,
    "sum of another tensor": lambda lib, x: (lib.ones(2).requires_grad_() * 1.0).sum(),
    "two, one of another": lambda lib, x: (x * x, lib.ones(2).requires_grad_() * 2.0),
}
OF_TWO: dict[str, Any] = {
    "first alone": lambda lib, x, y: x * x,
    "sum of the first": lambda lib, x, y: (x * x).sum(),
    "both": lambda lib, x, y: (x * y * y).sum(),
    "bilinear": lambda lib, x, y: (x * y).sum(),
}


def in_strict_mode(lib: Any, api: str, name: str, *, create_graph: bool) -> Any:
    """Return what a function of functional gives, or the kind and text of its error."""
    dtype = lib.float64
    x, y, one = (lib.tensor(v, dtype=dtype) for v in ([1.0, 2.0], [3.0, 4.0], [1.0, 1.0]))
    two = name in OF_TWO
    inputs, v = ((x, y), (one, one)) if two else (x, one)
    function = (OF_TWO if two else OF_ONE)[name]

    def f(*args: Any) -> Any:
        found = function(lib, *args)
        return tuple(t.to(dtype) for t in found) if isinstance(found, tuple) else found.to(dtype)

    def listed(found: Any) -> Any:
        return [listed(part) for part in found] if isinstance(found, tuple) else found.detach().tolist()

    run = getattr(lib.autograd.functional, api)
    more: dict[str, Any] = {"v": v} if api in ("jvp", "hvp", "vhp") else {}
    if api == "vjp":
        out = f(*(inputs if two else (inputs,)))
        more["v"] = tuple(map(lib.ones_like, out)) if isinstance(out, tuple) else lib.ones_like(out)
    try:
        return listed(run(f, inputs, create_graph=create_graph, strict=True, **more))
    except Exception as error:  # noqa: BLE001 (compared)
        return type(error).__name__, " ".join(str(error).split())


@pytest.mark.parametrize("api", ["vjp", "jvp", "hvp", "vhp", "jacobian", "hessian"])
@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
@pytest.mark.filterwarnings("ignore")
def test_strict_mode_as_pytorch(name: str, api: str, pytorch: Outcomes) -> None:
    for create_graph in (False, True):

        def found(library: Any, create_graph: bool = create_graph) -> Any:
            return in_strict_mode(library, api, name, create_graph=create_graph)

        assert found(tape) == pytorch(found, f"{api}, strict, {name}, create_graph={create_graph}")
