"""tape.func: transforms against PyTorch's where it is installed, closed forms, and one another."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
import tape.func
from kernels.sweeps import reverse
from tape import func as transforms
from tape.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from tape.recording.record import recorded
from tests.support.pytorch_outcomes import Outcomes

Array = np.ndarray[Any, Any]


class Here(NamedTuple):
    """A library of tensors, its transforms and two points."""

    lib: Any
    func: Any
    x: Any
    y: Any


def points() -> tuple[Any, Any]:
    return tape.tensor([0.5, 1.0, 2.0]), tape.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, 1.5]])


def alive() -> int:
    """Return how many instructions live; the collector in plain Python takes several looks."""
    return [recorded() for _ in range(1 if reverse.NATIVE else 40)][-1]


def listed(tree: Any) -> Any:
    """Return a structure of tensors as one of lists."""
    if isinstance(tree, dict):
        return {key: listed(part) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [listed(part) for part in tree]
    return tree.tolist() if hasattr(tree, "tolist") else tree


# --- the same calls by both libraries ---------------------------------------------------------------------------


def cubes(lib: Any, x: Any) -> Any:
    return (x**3 * lib.sin(x)).sum()


def field(lib: Any, x: Any) -> Any:
    return lib.exp(-x * x) * x.sum()


def pair(lib: Any, x: Any, y: Any) -> Any:
    return {"a": (x * y).sum(0), "b": [lib.sin(y) * 2.0]}


def stepped(lib: Any, x: Any) -> Any:
    u = x * 1.0
    for _ in range(2):
        u = lib.cat([u[:1], u[1:-1] + 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2]), u[-1:]])
    return (u * u).sum()


def mixed(lib: Any, x: Any) -> Any:
    return lib.where(x > 0.7, x * x, -x), x.max(0)[0], lib.stack([x, x]).T @ lib.stack([x[:2], x[:2]])[0]


CALLS: dict[str, Callable[[Here], Any]] = {
    "grad": lambda o: o.func.grad(lambda v: cubes(o.lib, v))(o.x),
    "grad of several": lambda o: o.func.grad(lambda a, b: pair(o.lib, a, b)["a"].sum() ** 2, argnums=(1, 0))(o.x, o.y),
    "grad by the last": lambda o: o.func.grad(lambda a, b: pair(o.lib, a, b)["a"].sum() ** 2, argnums=-1)(o.x, o.y),
    "grad of a dict": lambda o: o.func.grad(lambda d: (d["p"] * d["q"][0]).sum())({"p": o.x, "q": (o.y,)}),
    "grad with aux": lambda o: o.func.grad(lambda v: (cubes(o.lib, v), (v * 2.0, v.sum())), has_aux=True)(o.x),
    "grad and value": lambda o: o.func.grad_and_value(lambda v: cubes(o.lib, v))(o.x),
    "grad and value with aux": lambda o: o.func.grad_and_value(lambda v: (v.sum(), v * 2.0), has_aux=True)(o.x),
    "grad with keywords": lambda o: o.func.grad(lambda v, s=1.0: (v * s).sum())(o.x, s=3.0),
    "grad of nothing": lambda o: o.func.grad(lambda v: o.y.sum())(o.x),
    "grad of a stencil": lambda o: o.func.grad(lambda v: stepped(o.lib, v))(o.x),
    "grad of grad": lambda o: o.func.grad(lambda v: o.func.grad(lambda w: cubes(o.lib, w))(v).sum())(o.x),
    "third": lambda o: o.func.grad(o.func.grad(o.func.grad(lambda w: w**4)))(o.x[2]),
    "vjp": lambda o: o.func.vjp(lambda v: field(o.lib, v), o.x)[1](o.x),
    "vjp of a dict": lambda o: o.func.vjp(lambda a, b: pair(o.lib, a, b), o.x, o.y)[1]({"a": o.x, "b": [o.y]}),
    "vjp with aux": lambda o: o.func.vjp(lambda v: (field(o.lib, v), v.sum()), o.x, has_aux=True)[2],
    "jvp": lambda o: o.func.jvp(lambda v: field(o.lib, v), (o.x,), (o.y[0],)),
    "jvp of a dict": lambda o: o.func.jvp(lambda a, b: pair(o.lib, a, b), (o.x, o.y), (o.y[0], o.y)),
    "jvp with aux": lambda o: o.func.jvp(lambda v: (field(o.lib, v), v.sum()), (o.x,), (o.x,), has_aux=True),
    "jvp of nothing": lambda o: o.func.jvp(lambda v: o.y * 1.0, (o.x,), (o.x,)),
    "jvp of several kinds": lambda o: o.func.jvp(lambda v: mixed(o.lib, v), (o.x,), (o.y[0],)),
    "jacrev": lambda o: o.func.jacrev(lambda v: field(o.lib, v))(o.x),
    "jacrev of several": lambda o: o.func.jacrev(lambda a, b: pair(o.lib, a, b), argnums=(0, 1))(o.x, o.y),
    "jacrev in chunks": lambda o: o.func.jacrev(lambda v: field(o.lib, v), chunk_size=2)(o.x),
    "jacrev in chunks of several": lambda o: o.func.jacrev(lambda v: (v[0], v * 1.0, o.y), chunk_size=2)(o.x),
    "jacrev with aux": lambda o: o.func.jacrev(lambda v: (field(o.lib, v), v * 2.0), has_aux=True)(o.x),
    "jacrev of a number": lambda o: o.func.jacrev(lambda v: v * v)(o.x[1]),
    "jacrev of several kinds": lambda o: o.func.jacrev(lambda v: mixed(o.lib, v))(o.x),
    "jacfwd": lambda o: o.func.jacfwd(lambda v: field(o.lib, v))(o.x),
    "jacfwd of several": lambda o: o.func.jacfwd(lambda a, b: pair(o.lib, a, b), argnums=(0, 1))(o.x, o.y),
    "jacfwd with aux": lambda o: o.func.jacfwd(lambda v: (field(o.lib, v), v * 2.0), has_aux=True)(o.x),
    "jacfwd of nothing": lambda o: o.func.jacfwd(lambda v: o.y * 1.0)(o.x),
    "hessian": lambda o: o.func.hessian(lambda v: cubes(o.lib, v))(o.x),
    "hessian of several": lambda o: o.func.hessian(lambda a, b: (a**2 * b**3).sum(), argnums=(0, 1))(o.x, o.y),
    "hessian of a field": lambda o: o.func.hessian(lambda v: field(o.lib, v))(o.x),
    "forward over reverse": lambda o: o.func.jacfwd(o.func.jacrev(lambda v: cubes(o.lib, v)))(o.x),
    "reverse over forward": lambda o: o.func.jacrev(o.func.jacfwd(lambda v: cubes(o.lib, v)))(o.x),
    "forward over forward": lambda o: o.func.jacfwd(o.func.jacfwd(lambda v: cubes(o.lib, v)))(o.x),
    "jvp of grad": lambda o: o.func.jvp(o.func.grad(lambda v: cubes(o.lib, v)), (o.x,), (o.y[0],)),
    "grad of jvp": lambda o: o.func.grad(lambda v: o.func.jvp(lambda w: cubes(o.lib, w), (v,), (o.y[0],))[1])(o.x),
    "jvp of jvp": lambda o: o.func.jvp(
        lambda v: o.func.jvp(lambda w: cubes(o.lib, w), (v,), (o.y[0],))[1], (o.x,), (o.y[1],)
    ),
    "levels apart": lambda o: o.func.grad(lambda a: a * o.func.grad(lambda b: a + b)(o.x[1]))(o.x[2]),
    "levels that meet": lambda o: o.func.grad(lambda a: a * o.func.grad(lambda b: a * b)(o.x[1]))(o.x[2]),
    "linearize": lambda o: o.func.linearize(lambda v: field(o.lib, v), o.x)[1](o.y[0]),
    "float32": lambda o: o.func.jacrev(lambda v: v.double() * 2.0)(o.x.float()),
    "float32 forward": lambda o: o.func.jacfwd(lambda v: v.double() * 2.0)(o.x.float()),
}


def torch_twin(torch: Any, name: str) -> Any:
    x, y = (torch.tensor(p.tolist(), dtype=torch.float64) for p in points())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CALLS[name](Here(torch, torch.func, x, y))


@pytest.mark.parametrize("name", CALLS)
def test_as_in_pytorch(name: str, pytorch: Outcomes) -> None:
    expected = pytorch(lambda torch: torch_twin(torch, name), name)
    compare(CALLS[name](Here(tape, transforms, *points())), expected)


def compare(found: Any, expected: Any) -> None:
    """Check structures, shapes, dtypes and values; and that results have no graph."""
    assert type(found) is type(expected) or not isinstance(expected, (dict, tuple, list))
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            compare(found[key], expected[key])
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            compare(a, b)
    else:
        assert tuple(found.shape) == tuple(expected.shape)
        assert found.dtype == expected.detach().numpy().dtype
        assert not found.requires_grad
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left_behind(name: str) -> None:
    x, y = points()
    CALLS[name](Here(tape, transforms, x, y))  # the first call compiles, and leaves what it did to the collector
    gc.collect()
    before, kept = alive(), (x.tolist(), y.tolist())
    result = CALLS[name](Here(tape, transforms, x, y))
    assert (x.tolist(), y.tolist()) == kept
    assert not x.requires_grad
    assert x.grad is None
    assert y.grad is None
    del result
    assert alive() == before


# --- what is ours -----------------------------------------------------------------------------------------------


def difference(function: Callable[[Array], Array], x: Array, step: float = 1e-6) -> Array:
    """Return the Jacobian by central differences, the axes of the input last."""
    columns = []
    for at in np.ndindex(x.shape):
        ends = []
        for side in (step, -step):
            moved = x.copy()
            moved[at] += side
            ends.append(np.asarray(function(moved)))
        columns.append((ends[0] - ends[1]) / (2 * step))
    shape = columns[0].shape
    return np.stack(columns, -1).reshape(*shape, *x.shape)


def in_place(x: Any) -> Any:
    """Write into parts, through views, with what was just written."""
    u = x * 1.0
    u[1:-1] += 0.3 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    tail = u[2:]
    tail *= u[0]
    u[0] = tail.sum()
    return u * x


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobian_of_writes_in_place(transform: Any) -> None:
    x = np.array([0.4, -1.0, 2.0, 0.7, 1.1])
    expected = difference(lambda v: in_place(tape.tensor(v)).numpy(), x)
    np.testing.assert_allclose(transform(in_place)(tape.tensor(x)).numpy(), expected, rtol=1e-7, atol=1e-8)


def test_hessian_of_writes_in_place() -> None:
    x = np.array([0.4, -1.0, 2.0, 0.7, 1.1])

    def loss(v: Any) -> Any:
        return (in_place(v) ** 2).sum()

    expected = difference(lambda v: grad(loss)(tape.tensor(v)).numpy(), x)
    for transform in (hessian(loss), jacfwd(jacrev(loss)), jacfwd(grad(loss)), jacrev(jacfwd(loss))):
        np.testing.assert_allclose(transform(tape.tensor(x)).numpy(), expected, rtol=1e-6, atol=1e-6)


def test_a_select_cuts_in_all_directions() -> None:
    def f(x: Any) -> Any:
        return tape.where(x > 0.5, tape.sqrt(x), x * x).sum()

    x = tape.tensor([0.0, 4.0])
    with np.errstate(all="ignore"):
        assert grad(f)(x).tolist() == [0.0, 0.25]
        assert jvp(f, (x,), (tape.ones(2),))[1].item() == 0.25
        assert hessian(f)(x).tolist() == [[2.0, 0.0], [0.0, -0.03125]]
        assert jacfwd(jacfwd(f))(x).tolist() == [[2.0, 0.0], [0.0, -0.03125]]


def test_what_is_found_outside_keeps_its_gradient() -> None:
    w = tape.tensor([1.0, 2.0], requires_grad=True)
    x = tape.tensor([3.0, 4.0])
    found = grad(lambda v: (v * v * w).sum())(x)
    assert found.tolist() == [6.0, 16.0]
    found.sum().backward()
    assert w.grad.tolist() == [6.0, 8.0]
    value, pushed = jvp(lambda v: (v * v * w).sum(), (x,), (x,))
    assert value.requires_grad
    assert tape.autograd.grad(pushed, w)[0].tolist() == [18.0, 32.0]
    (_, linear), (_, pull) = linearize(lambda v: v * w, x), vjp(lambda v: v * w, x)
    assert tape.autograd.grad(linear(x).sum(), w)[0].tolist() == [3.0, 4.0]
    assert tape.autograd.grad(pull(x)[0].sum(), w)[0].tolist() == [3.0, 4.0]
    with tape.no_grad():
        assert not grad(lambda v: (v * v * w).sum())(x).requires_grad
    assert w.grad.tolist() == [6.0, 8.0]


def test_inputs_that_require_grad() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    gradient, value = grad_and_value(lambda v: (v**3).sum())(x)
    (value + gradient.sum()).backward()
    assert x.grad.tolist() == [3.0 + 6.0, 12.0 + 12.0]
    x.grad = None
    (jacrev(lambda v: v**3)(x) * tape.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    assert x.grad.tolist() == [6.0, 12000.0]
    x.grad = None
    jvp(lambda v: v**3, (tape.tensor([1.0, 2.0]),), (x * 2.0,))[1].sum().backward()
    assert x.grad.tolist() == [6.0, 24.0]


def test_the_linear_function_records_once() -> None:
    calls = []

    def f(x: Any, y: Any) -> Any:
        calls.append(1)
        return x * y, x.sum()

    x, y = tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0])
    value, linear = linearize(f, x, y)
    assert listed(value) == [[3.0, 8.0], 3.0]
    for scale in (1.0, 2.0):
        pushed = linear(x * scale, y * 0.0)
        assert listed(pushed) == [[3.0 * scale, 8.0 * scale], 3.0 * scale]
    assert calls == [1]


def test_the_linear_function_stays_as_it_was() -> None:
    x = tape.tensor([1.0, 2.0])
    _, linear = linearize(lambda v: v * v, x)
    _, pull = vjp(lambda v: v * v, x)
    x.mul_(100.0)
    assert linear(tape.ones(2)).tolist() == [2.0, 4.0]
    assert pull(tape.ones(2))[0].tolist() == [2.0, 4.0]


def test_cotangents_go_by_their_keys() -> None:
    x, y = points()
    _, pull = vjp(lambda a, b: pair(tape, a, b), x, y)
    assert listed(pull({"b": [y], "a": x})) == listed(pull({"a": x, "b": [y]}))


def test_named_tuples_and_empty_tensors() -> None:
    class Pair(NamedTuple):
        a: Any
        b: Any

    found = grad(lambda p: (p.a * p.a).sum() + p.b.sum())(Pair(tape.tensor([1.0, 2.0]), tape.zeros(0, 3)))
    assert isinstance(found, Pair)
    assert found.a.tolist() == [2.0, 4.0]
    assert found.b.shape == (0, 3)
    for transform in (jacrev, jacfwd):
        assert transform(lambda x: x * 2.0)(tape.zeros(0)).shape == (0, 0)
        assert transform(lambda x: x[:0])(tape.ones(2)).shape == (0, 2)
        assert transform(lambda x: tape.ones(2) * x.sum())(tape.zeros(0)).shape == (2, 0)


def test_one_batched_sweep_for_a_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = []
    run = reverse.run
    monkeypatch.setattr(reverse, "run", lambda task: sweeps.append(task.batch) or run(task))
    jacrev(lambda x: (x * x, x.sum()))(tape.ones(4))
    assert sweeps == [5]
    sweeps.clear()
    hessian(lambda x: (x**3).sum())(tape.ones(4))
    assert sweeps == [4]


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "not a scalar": (
        lambda x: grad(lambda v: v * 1.0)(x),
        RuntimeError,
        (
            r"Expected f\(\*args\) to return a scalar Tensor, got tensor with 1 dims. Maybe you wanted to use the vjp "
            r"or jacrev APIs instead\?"
        ),
    ),
    "not a tensor": (lambda x: grad(lambda _: 3.0)(x), RuntimeError, "to return a Tensor, got <class 'float'>"),
    "no input": (lambda _: grad(lambda v: v)("x"), ValueError, "Thing passed to transform API must be Tensor, got"),
    "ints": (
        lambda _: grad(lambda v: v.sum())(tape.tensor([1, 2])),
        RuntimeError,
        "only Tensors of floating point dtype can require gradients",
    ),
    "argnums": (lambda x: grad(lambda v: v, argnums=5)(x), RuntimeError, "Got argnum=5, but only 1 positional inputs"),
    "argnums twice": (lambda x: grad(lambda v, w: v, argnums=(0, -2))(x, x), RuntimeError, "elements must be unique"),
    "no argnums": (lambda x: grad(lambda v: v, argnums=())(x), RuntimeError, "argnums must be non-empty"),
    "argnums of a kind": (lambda x: grad(lambda v: v, argnums="0")(x), RuntimeError, "argnums must be int or Tuple"),
    "no aux": (
        lambda x: grad(lambda v: v.sum(), has_aux=True)(x),
        RuntimeError,
        r"output of function f should be a tuple: \(output, aux\) if has_aux is True",
    ),
    "cotangents": (
        lambda x: vjp(lambda v: (v, v), x)[1](x),
        RuntimeError,
        r"Expected pytree structure of cotangents to be the same .* cotangents: \*, primal output: \(\*, \*\)",
    ),
    "shape of cotangents": (lambda x: vjp(lambda v: v * 1.0, x)[1](x[:1]), RuntimeError, "Mismatch in shape"),
    "ints out": (
        lambda x: vjp(lambda _: tape.tensor([1]), x),
        RuntimeError,
        "All outputs of f must be floating-point or complex Tensors, got Tensor with dtype int64",
    ),
    "primals": (lambda x: jvp(lambda v: v, x, x), RuntimeError, "Expected primals to be a tuple"),
    "tangents": (lambda x: jvp(lambda v: v, (x,), (x, x)), RuntimeError, "to have the same python structure"),
    "shape of tangents": (lambda x: jvp(lambda v: v, (x,), (x[:1],)), RuntimeError, "a different size than that"),
    "strict": (
        lambda x: jvp(lambda _: x * 1.0, (x,), (x,), strict=True),
        RuntimeError,
        "The output of f is independent of the inputs. This is not allowed with strict=True.",
    ),
    "numbers out": (lambda x: jvp(lambda _: 1.0, (x,), (x,)), RuntimeError, "to return only tensors, got unsupported"),
    "numbers out of a jacobian": (lambda x: jacrev(lambda _: 1.0)(x), RuntimeError, "to return only tensors"),
    "nothing out": (lambda x: jacrev(lambda _: ())(x), RuntimeError, "a function that has non-empty output"),
    "chunk size": (lambda x: jacrev(lambda v: v, chunk_size=0)(x), ValueError, "`chunk_size` should be greater than 0"),
    "linear tangents": (lambda x: linearize(lambda v: v, x)[1](x, x), RuntimeError, "to have the same argspec"),
    "linear shape": (lambda x: linearize(lambda v: v, x)[1](x[:1]), RuntimeError, "tangent:0 with shape"),
    "linear dtype": (lambda x: linearize(lambda v: v, x)[1](x.float()), RuntimeError, "tangent:0 with dtype float32"),
    "in place": (lambda x: grad(lambda v: v.mul_(2.0).sum())(x), RuntimeError, "a leaf Variable that requires grad"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, message = ERRORS[name]
    x = tape.tensor([1.0, 2.0])
    with pytest.raises(kind, match=message):
        call(x)
    assert x.tolist() == [1.0, 2.0]
    assert grad(lambda v: v.sum())(x).tolist() == [1.0, 1.0]


def test_vmap_is_here() -> None:
    assert vmap(grad(lambda x: x * x))(tape.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]


# --- functions that write to their arguments --------------------------------------------------------------------


def doubled_in_place(x: Any) -> Any:
    x.mul_(2.0)
    return x * x


def part_in_place(x: Any) -> Any:
    x[0] = x[1] * 3.0
    return x * x


@pytest.mark.parametrize(
    ("function", "after", "jacobian"),
    [
        (doubled_in_place, [2.0, 4.0], [[8.0, 0.0], [0.0, 16.0]]),
        (part_in_place, [6.0, 2.0], [[0.0, 36.0], [0.0, 4.0]]),
    ],
)
def test_forward_mode_of_functions_that_write_to_their_arguments(function: Any, after: Any, jacobian: Any) -> None:
    t = [1.0, -2.0]
    for make in (tape.tensor, np.array):
        for run, expected in (
            (lambda x, make=make: jvp(function, (x,), (make(t),))[1], np.array(jacobian) @ t),
            (lambda x, make=make: linearize(function, x)[1](make(t)), np.array(jacobian) @ t),
            (lambda x: jacfwd(function)(x), jacobian),
        ):
            x = make([1.0, 2.0])
            np.testing.assert_allclose(np.asarray(run(x)), expected)
            assert x.tolist() == after  # as the function itself leaves it, and PyTorch's forward mode
    w = tape.tensor([1.0, 2.0], requires_grad=True)
    y = w * 1.0
    jvp(function, (y,), (tape.tensor(t),))
    assert y.tolist() == after
    y.sum().backward()
    assert w.grad.tolist() == ([2.0, 2.0] if function is doubled_in_place else [0.0, 4.0])
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        jvp(function, (w,), (tape.tensor(t),))
