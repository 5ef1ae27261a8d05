"""Ordinary calls of compiled functions on tensors: native code makes them, and nothing differs from dynamic mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.machine_code.compiled_machine import DEBUG
from kernels.sweeps.reverse import NATIVE
from tape.tensors.tensor import constant_tensor

pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(DEBUG, reason="no plan of machine code is tried while it is checked"),
]
MODES = ["eager", "max"]
_RNG = np.random.default_rng(0)
_WEIGHTS, _BIAS, _DATA, _LABELS = (_RNG.normal(size=shape) for shape in ((8, 4), (4,), (16, 8), (16, 4)))


def _network(w: Any, b: Any, x: Any, y: Any, rate: float = 1.0) -> Any:
    return rate * ((tape.tanh(x @ w + b) - y) ** 2).mean()


def _both(w: Any, b: Any, x: Any, y: Any) -> Any:
    e = tape.tanh(x @ w + b) - y
    return (e * e).mean(), e.abs().mean()


def _with_aux(w: Any, b: Any, x: Any, y: Any) -> Any:
    e = tape.tanh(x @ w + b) - y
    return e.detach(), (e * e).mean(), e.detach().abs().sum(), e.sum(0)


def _named(w: Any, b: Any, x: Any, y: Any) -> Any:
    e = tape.tanh(x @ w + b) - y
    return {"loss": (e * e).mean(), "more": [e, None, ("name", e.detach().sum(), 2.5)], "none": ()}


def _polynomial(*coefficients: Any) -> Any:
    *coefficients, x = coefficients
    value = 0.0
    for c in coefficients:
        value = value * x + c
    return ((value - tape.sin(x)) ** 2).sum()


def _of_parts(parameters: Any, x: Any, y: Any) -> Any:
    return _network(parameters["w"], parameters["b"][0], x, y)


def _leaves() -> list[Any]:
    return [tape.tensor(v, requires_grad=True) for v in (_WEIGHTS, _BIAS)]


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "by position": (_network, lambda f, w, b, x, y: f(w, b, x, y)),
    "by name": (_network, lambda f, w, b, x, y: f(w, b, x=x, y=y)),
    "all by name": (_network, lambda f, w, b, x, y: f(w=w, b=b, y=y, x=x)),
    "a float": (_network, lambda f, w, b, x, y: f(w, b, x, y, 0.25)),
    "a float by name": (_network, lambda f, w, b, x, y: f(w, b, x, y, rate=0.25)),
    "an int": (_network, lambda f, w, b, x, y: f(w, b, x, y, 3)),
    "an array": (_network, lambda f, w, b, x, y: f(w, b, x.numpy(), y)),
    "arrays in another order": (_network, lambda f, w, b, x, y: f(w, b, np.asfortranarray(x), y=y.numpy())),
    "in structures": (_of_parts, lambda f, w, b, x, y: f({"w": w, "b": [b]}, x, y=y)),
    "a pair": (_both, lambda f, w, b, x, y: sum(f(w, b, x, y))),
    "the first of a pair": (_both, lambda f, w, b, x, y: f(w, b, x, y)[0]),
    "in a dictionary": (_named, lambda f, w, b, x, y: f(w, b, x, y)["loss"] + f(w, b, x, y)["more"][0].sum()),
    "one in a tuple": (lambda *args: (_network(*args),), lambda f, w, b, x, y: f(w, b, x, y)[0]),
    "detached results": (_with_aux, lambda f, w, b, x, y: f(w, b, x, y)[1] + f(w, b, x=x, y=y)[3].sum()),
    "several elements": (lambda w, b, x: tape.tanh(x @ w + b), lambda f, w, b, x, y: (f(w, b, x) * y).sum()),
    "a float besides several elements": (
        lambda w, b, x, s: s * tape.tanh(x @ w + b), lambda f, w, b, x, y: (f(w, b, x, s=0.5) * y).sum()
    ),
    "numbers": (_polynomial, lambda f, w, b, x, y: f(*b.unbind(), w.sum(), y[0, 0], x[0])),
    "elements": (_polynomial, lambda f, w, b, x, y: f(b[0], w[0, 0], y.max(), tape.tensor(0.5), x[0])),
}  # fmt: skip


@pytest.fixture(name="answered")
def counted_answers() -> Callable[[Any], list[Any]]:
    """Return what lets a compiled function list the calls that Python answers."""

    def counted(f: Any) -> list[Any]:
        calls, slow = list[Any](), f._slow
        f._slow = lambda *args, **kwargs: [calls.append(args), slow(*args, **kwargs)][1]
        return calls

    return counted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CALLS)
def test_gradients(name: str, mode: str, answered: Callable[[Any], list[Any]]) -> None:
    """Once they are steady; Python makes a call where the tape has to grow."""
    function, call = CALLS[name]
    compiled = tape.compile(function, mode=mode, check="never")
    x, y = tape.tensor(_DATA), tape.tensor(_LABELS)
    answers = list[Any]()
    for k in range(40):
        if k == 20:
            answers = answered(compiled)
        found = []
        for f in (compiled, function):
            leaves = _leaves()
            value = call(f, *leaves, x + 0.01 * k, y)
            value.backward()
            found.append([value.item(), *[np.zeros(()) if t.grad is None else t.grad.numpy() for t in leaves]])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)
    rows = mode == "eager" and name == "arrays in another order"  # which the interpreter does not take
    assert not NATIVE or rows or len(answers) <= 4, compiled.explain()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [_network, _with_aux, _both])
@pytest.mark.parametrize("where", ["no_grad", "no leaf"])
def test_without_gradients(function: Any, where: str, mode: str, answered: Callable[[Any], list[Any]]) -> None:
    compiled = tape.compile(function, mode=mode, check="never")
    w, b = _leaves() if where == "no_grad" else map(tape.tensor, (_WEIGHTS, _BIAS))
    x, y, answers = tape.tensor(_DATA), tape.tensor(_LABELS), list[Any]()
    with tape.set_grad_enabled(where != "no_grad"):
        for k in range(40):
            if k == 20:
                answers = answered(compiled)
            given = w, b, x * (1.0 + k), y
            found, expected = ([r] if isinstance(r, tape.Tensor) else r for r in (compiled(*given), function(*given)))
            assert type(found) is type(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
                assert not one.requires_grad
                assert one._form is constant_tensor(one._value)._form
        result = compiled(w, b, x, y)
    first = result if isinstance(result, tape.Tensor) else result[0]
    twice = (first * tape.tensor(2.0, requires_grad=True)).sum()
    twice.backward()
    assert not NATIVE or len(answers) <= 1, compiled.explain()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tensors", [True, False])
def test_results_in_structures(tensors: bool, mode: str, answered: Callable[[Any], list[Any]]) -> None:
    """They are made anew, with what is no tensor in it; of arrays, too."""
    f, answers = tape.compile(_named, mode=mode, check="never"), list[Any]()
    for k in range(40):
        if k == 20:
            answers = answered(f)
        given = [_WEIGHTS, _BIAS, _DATA * (1 + k), _LABELS]
        leaves = [tape.tensor(v, requires_grad=i < 2) for i, v in enumerate(given)]
        found, other = (f(*leaves), f(*leaves)) if tensors else (f(*given), f(*given))
        expected = _named(*map(tape.tensor, given))
        assert [*found] == ["loss", "more", "none"]
        assert found["more"] is not other["more"]
        e, nothing, (name, total, number) = found["more"]
        assert (nothing, name, number, found["none"]) == (None, "name", 2.5, ())
        assert isinstance(e, tape.Tensor) == tensors
        pairs = [(found["loss"], expected["loss"]), (e, expected["more"][0]), (total, expected["more"][2][1])]
        for one, of in pairs:
            np.testing.assert_allclose(np.array(one.detach() if tensors else one), of.numpy(), rtol=1e-12)
    assert not NATIVE or len(answers) <= 4, f.explain()


@pytest.mark.parametrize("mode", MODES)
def test_floats_and_arrays_are_those_of_the_call(mode: str) -> None:
    """What a call was given may change until its backward, and be given by other names the next time."""
    f = tape.compile(lambda w, s, x: ((w * x).exp() * s).sum(), mode=mode, check="never")
    w, x = tape.tensor([0.1, 0.2], requires_grad=True), np.array([1.0, 2.0])
    for _ in range(12):
        f(w, 2.0, x).backward()
        f(w, x=x, s=2.0).backward()
    for s in (0.5, np.float64(0.75), 1.5):
        for loss in (f(w, s, x), f(w, s, x=x), f(w, x=x, s=s), f(x=x, w=w, s=s)):
            w.grad, held = None, x.copy()
            x += 1.0
            (g,) = tape.autograd.grad(loss, w, create_graph=True)
            e = np.exp(np.array([0.1, 0.2]) * held) * s
            np.testing.assert_allclose(np.array(g.detach()), e * held)
            g.sum().backward()
            np.testing.assert_allclose(np.array(w.grad), e * held * held)
            x -= 1.0
    with pytest.raises(TypeError):
        f(w, 2.0, y=x)
    with pytest.raises(TypeError):
        f(w, 2.0, x, x=x)


@pytest.mark.parametrize("mode", MODES)
def test_hooks_and_second_derivatives_beside_detached_results(mode: str) -> None:
    """Python runs the pullback of such a call; the results that have a gradient are found among the others."""

    def through(f: Any) -> list[Any]:
        x, y, found = tape.tensor(_DATA), tape.tensor(_LABELS), list[Any]()
        for hooked in (False, True):
            w, b = leaves = _leaves()
            _, loss, _, part = f(w * 1.0, b * 1.0, x, y)
            if hooked:
                loss.register_hook(lambda g: g * 2.0)
                part.register_hook(lambda g, found=found: found.append(np.array(g)))
                loss.grad_fn.register_prehook(lambda gs: tuple(None if g is None else g * 1.0 for g in gs))
            (loss + (part * part).sum()).backward()
            found += [np.array(t.grad) for t in leaves]
        w, b = leaves = _leaves()
        _, loss, _, part = f(w, b, x, y)
        gradients = tape.autograd.grad(loss * part.sum(), leaves, create_graph=True)
        sum((g * g).sum() for g in gradients).backward()
        return [*found, *[np.array(g.detach()) for g in gradients], *[np.array(t.grad) for t in leaves]]

    f = tape.compile(_with_aux, mode=mode, check="never")
    for _ in range(12):
        f(*_leaves(), tape.tensor(_DATA), tape.tensor(_LABELS))[1].backward()
    for _ in range(2):
        for one, other in zip(through(f), through(_with_aux), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
