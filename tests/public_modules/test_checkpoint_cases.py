"""What meets in a checkpoint: each case gives what it gives without."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.public_modules.test_checkpoint import plain

pytestmark = pytest.mark.quick
X = np.arange(6.0).reshape(2, 3) + 0.5


def hooks_of_leaves(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    seen = []
    w.register_hook(lambda g: seen.append(g.numpy().copy()) or g * 2)
    y = keep(lambda a: (a * w).sum() * w.sum(), w * 1.0)
    (y + w.sum()).backward()
    return [w.grad, *seen]


def retained_gradients(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    z = w * 2.0
    z.retain_grad()
    y = keep(lambda scale: (z**2).sum() * scale, 1.0)
    (y + z.sum()).backward()
    return [z.grad, w.grad]


def chosen_inputs(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    v = tape.tensor(X, requires_grad=True)
    z = w * v
    y = keep(lambda a: (a * z * v).sum(), z)
    y.backward(inputs=[v])
    return [v.grad, np.array(w.grad is None)]


def gradients_of_computed_tensors(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    z = tape.sin(w)
    q = z * w
    y = keep(lambda a: (a * z).sum(), q)
    return list(tape.autograd.grad(y, [z, q, w]))


def single_precision(keep: Any) -> list[Any]:
    w = tape.tensor(X.astype(np.float32), requires_grad=True)
    y = keep(lambda a: tape.exp(a).mean(), w)
    y.backward()
    return [w.grad, np.array(w.grad.dtype == tape.float32)]


def anomaly_mode(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tape.autograd.detect_anomaly():
            y = keep(lambda a: tape.exp(a).sum(), w)
            y.backward()
    return [w.grad]


def packed_values(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    with tape.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), tape.tensor):
        y = keep(lambda a: tape.exp(a).sum() * w.sum(), w * 1.0)
    y.backward()
    return [w.grad]


def another_thread(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    z = w * 2
    r = []

    def go() -> None:
        r.append(keep(lambda a: (a * z).sum(), z))

    t = threading.Thread(target=go)
    t.start()
    t.join()
    r[0].backward()
    return [w.grad]


def a_gradient_within(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)

    def f(a: Any) -> Any:
        e = (a**3).sum()
        (g,) = tape.autograd.grad(e, a, create_graph=True)
        return (g * a).sum()

    y = keep(f, w * 1.0)
    y.backward()
    return [w.grad]


def a_transform_within(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)

    def f(a: Any) -> Any:
        g = tape.func.grad(lambda a: (a**3).sum())(a)
        return (g * a).sum()

    y = keep(f, w * 1.0)
    y.backward()
    return [w.grad]


def writes_in_place(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)

    def f(a: Any) -> Any:
        u = a.clone()
        u[0] = u[1] * 2
        u += 1
        v = u[:, 1:]
        v *= a[:, :2]
        return u, v

    u, v = keep(f, w * 1.0)
    (u.sum() + (v**2).sum()).backward()
    return [w.grad]


def arguments_that_are_views(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    b = w * 1.0
    a = b[:, ::2].T
    u = keep(lambda a: tape.sin(a) * a[0], a)
    u.sum().backward()
    return [w.grad]


def second_derivatives_through_views(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    b = w * 1.0
    a = b[:, ::2].T
    u = keep(lambda a: tape.sin(a) * a[0] * b[0, 1], a)
    (g,) = tape.autograd.grad(u.sum(), w, create_graph=True)
    (g**2).sum().backward()
    return [w.grad]


def forward_mode_through_views(keep: Any) -> list[Any]:
    return list(tape.func.jvp(lambda w: keep(lambda a, b: tape.sin(a) * b[0], w[:, ::2].T, w[:, 0]), (X,), (X,)))


def batched_cotangents(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    y = keep(lambda a: tape.sin(a) * a.sum(), w * 1.0)
    return [
        tape.autograd.grad(y, w, tape.tensor(np.random.default_rng(0).normal(size=(4, 2, 3))), is_grads_batched=True)[0]
    ]


def equal_eigenvalues(keep: Any) -> list[Any]:
    w = tape.tensor(np.eye(3), requires_grad=True)

    def f(a: Any) -> Any:
        e, v = tape.linalg.eigh(a + a.T)
        return ((v * tape.exp(e)) @ v.T)[0, 1] + ((v * tape.exp(e)) @ v.T).sum()

    y = keep(f, w * 1.0)
    y.backward()
    return [w.grad]


def no_elements(keep: Any) -> list[Any]:
    w = tape.tensor(np.zeros((0, 3)), requires_grad=True)
    y = keep(lambda a: a * 2, w * 1.0)
    y.sum().backward()
    return [w.grad]


def not_a_number(keep: Any) -> list[Any]:
    w = tape.tensor(np.array([np.nan, 1.0, -1.0]), requires_grad=True)
    y = keep(tape.sqrt, w * 1.0)
    y.sum().backward()
    return [w.grad]


def vmap_of_a_gradient(keep: Any) -> list[Any]:
    return [tape.func.vmap(tape.func.grad(lambda x: keep(lambda x: (x**2).sum() * x[0], x)))(X)]


def a_gradient_of_vmap(keep: Any) -> list[Any]:
    return [tape.func.grad(lambda x: tape.func.vmap(lambda r: keep(lambda x: (x**2).sum() * x[0], r))(x).sum())(X)]


def dual_tensors(keep: Any) -> list[Any]:
    fw = tape.autograd.forward_ad
    with fw.dual_level():
        d = fw.make_dual(tape.tensor(X), tape.tensor(X))
        y = keep(lambda a: tape.sin(a) * a, d)
        p, t = fw.unpack_dual(y)
        return [p, t]


def hooks_of_results(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    y = keep(lambda a: (tape.sin(a), a * 2), w * 1.0)
    y[0].register_hook(lambda g: g * 3)
    (y[0].sum() + y[1].sum()).backward()
    return [w.grad]


def hooks_of_the_node(keep: Any) -> list[Any]:
    w = tape.tensor(X, requires_grad=True)
    y = keep(lambda a: tape.sin(a) * 1.0, w)
    y.grad_fn.register_hook(lambda gradients, _: tuple(g * 2 for g in gradients)) if keep is not plain else None
    y.sum().backward()
    return [w.grad / (2 if keep is not plain else 1)]


def tensors_that_leave_by_a_list(keep: Any) -> list[Any]:
    w = tape.tensor(2.0, requires_grad=True)
    hist = []

    def f(x: Any) -> Any:
        for _ in range(3):
            x = x * w
            hist.append(x)
        return x

    x = keep(f, w)
    x = keep(f, x)
    sum(h * h for h in hist[:6]).backward()
    return [w.grad]


def third_derivatives_nested(keep: Any) -> list[Any]:
    x = tape.tensor(X, requires_grad=True)
    y = keep(lambda x: keep(lambda x: tape.tanh(x) * x.sum(), x) * x, x)
    (g,) = tape.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = tape.autograd.grad(g.sum(), x, create_graph=True)
    (k,) = tape.autograd.grad(h.sum(), x)
    return [g.detach(), h.detach(), k]


def functions_of_the_users(keep: Any) -> list[Any]:
    class Sq(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * g

    x = tape.tensor(X, requires_grad=True)
    y = keep(lambda x: Sq.apply(tape.sin(x)), x)
    y.sum().backward()
    return [x.grad]


def compiled_gradients(keep: Any) -> list[Any]:
    f = tape.compile(tape.value_and_grad(lambda x: keep(lambda x: (tape.exp(x) * x).sum(), x)), mode="max")
    for _ in range(4):
        r = f(X)
    return [r[0], r[1]]


def keywords(keep: Any) -> list[Any]:
    x = tape.tensor(X, requires_grad=True)
    return [tape.autograd.grad(keep(lambda *, p: (p["a"][0] * p["a"][1]).sum(), p={"a": (x, x * 2)}), x)[0]]


CASES: dict[str, Callable[[Any], list[Any]]] = {
    "hooks of leaves": hooks_of_leaves,
    "retained gradients": retained_gradients,
    "chosen inputs": chosen_inputs,
    "gradients of computed tensors": gradients_of_computed_tensors,
    "single precision": single_precision,
    "anomaly mode": anomaly_mode,
    "packed values": packed_values,
    "another thread": another_thread,
    "a gradient within": a_gradient_within,
    "a transform within": a_transform_within,
    "writes in place": writes_in_place,
    "arguments that are views": arguments_that_are_views,
    "second derivatives through views": second_derivatives_through_views,
    "forward mode through views": forward_mode_through_views,
    "batched cotangents": batched_cotangents,
    "equal eigenvalues": equal_eigenvalues,
    "no elements": no_elements,
    "not a number": not_a_number,
    "vmap of a gradient": vmap_of_a_gradient,
    "a gradient of vmap": a_gradient_of_vmap,
    "dual tensors": dual_tensors,
    "hooks of results": hooks_of_results,
    "hooks of the node": hooks_of_the_node,
    "tensors that leave by a list": tensors_that_leave_by_a_list,
    "third derivatives nested": third_derivatives_nested,
    "functions of the users": functions_of_the_users,
    "compiled gradients": compiled_gradients,
    "keywords": keywords,
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_what_it_gives_without(name: str) -> None:
    for a, b in zip(CASES[name](plain), CASES[name](tape.checkpoint), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-7)
