"""Small programs as JAX's users write them: each takes the transforms and NumPy, and returns numbers."""
# ruff: noqa: ARG001, ICN001, N803, N806 (as the originals are written)

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as onp


class Layer(NamedTuple):
    """Weights and biases of one layer."""

    w: Any
    b: Any


def _draws(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = onp.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def quickstart(jax: Any, jnp: Any) -> list[Any]:
    """Gradients of a logistic loss, checked by a difference."""
    (inputs,), targets = _draws(0, (4, 3)), onp.array([True, True, False, True])

    def loss(W: Any, b: Any) -> Any:
        p = 0.5 * (jnp.tanh((inputs @ W + b) / 2) + 1)
        return -jnp.sum(jnp.log(p * targets + (1 - p) * (1 - targets)))

    W, b = onp.array([0.1, -0.4, 0.7]), 0.3
    value, (by_w, by_b) = jax.value_and_grad(loss, (0, 1))(W, b)
    return [value, by_w, by_b]


def derivatives_of_derivatives(jax: Any, jnp: Any) -> list[Any]:
    """Grad of grad of grad of tanh, at points."""
    first = jax.grad(jnp.tanh)
    second = jax.grad(jax.grad(jnp.tanh))
    third = jax.grad(jax.grad(jax.grad(jnp.tanh)))
    return [f(x) for f in (first, second, third) for x in (0.5, -1.0)]


def network_of_a_list(jax: Any, jnp: Any) -> list[Any]:
    """Train a network whose parameters are a list of named tuples."""
    x, y, *weights = _draws(1, (20, 4), (20, 2), (4, 6), (6,), (6, 2), (2,))
    parameters = [Layer(weights[0] * 0.4, weights[1] * 0.1), Layer(weights[2] * 0.4, weights[3] * 0.1)]

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        *hidden, last = parameters
        for layer in hidden:
            x = jnp.maximum(x @ layer.w + layer.b, 0.0)
        return jnp.mean((x @ last.w + last.b - y) ** 2)

    gradient = jax.value_and_grad(loss)
    for _ in range(15):
        value, slopes = gradient(parameters, x, y)
        parameters = [
            Layer(*(p - 0.1 * g for p, g in zip(a, b, strict=True))) for a, b in zip(parameters, slopes, strict=True)
        ]
    return [value, *(part for layer in parameters for part in layer)]


def auxiliary_values(jax: Any, jnp: Any) -> list[Any]:
    """A loss that also returns its parts, over a dictionary of parameters."""
    (x,) = _draws(2, (7,))

    def loss(parameters: Any) -> Any:
        fit = parameters["scale"] * jnp.sin(x) + parameters["shift"]
        data, prior = jnp.sum((fit - x) ** 2), parameters["scale"] ** 2
        return data + prior, {"fit": fit, "prior": prior}

    (value, parts), slopes = jax.value_and_grad(loss, has_aux=True)({"scale": 0.8, "shift": -0.1})
    return [value, parts["fit"], parts["prior"], slopes["scale"], slopes["shift"]]


def products_with_jacobians(jax: Any, jnp: Any) -> list[Any]:
    """Jvp, vjp, and a Jacobian each way."""
    W, x, v, u = _draws(3, (3, 4), (4,), (4,), (3,))

    def f(x: Any) -> Any:
        return jnp.sin(W @ x) * x[0]

    value, pushed = jax.jvp(f, (x,), (v,))
    again, pull = jax.vjp(f, x)
    return [value, pushed, again, pull(u)[0], jax.jacfwd(f)(x), jax.jacrev(f)(x)]


def hessian_products(jax: Any, jnp: Any) -> list[Any]:
    """A Hessian, and its product with a vector by forward over reverse."""
    A, x, v = _draws(4, (5, 5), (5,), (5,))

    def f(x: Any) -> Any:
        return jnp.sum(jnp.exp(0.1 * (A @ x)) * x**2)

    return [jax.hessian(f)(x), jax.jvp(jax.grad(f), (x,), (v,))[1], jax.grad(lambda x: jnp.vdot(jax.grad(f)(x), v))(x)]


def batches(jax: Any, jnp: Any) -> list[Any]:
    """Vmap of products and of gradients."""
    M, xs = _draws(5, (3, 4), (6, 4))
    each = jax.vmap(lambda x: jnp.tanh(M @ x))(xs)
    gradients = jax.vmap(jax.grad(lambda x: jnp.sum(jnp.tanh(M @ x) ** 2)))(xs)
    return [each, gradients]


def implicit_root(jax: Any, jnp: Any) -> list[Any]:
    """The derivative of Newton's fixed point, by running its steps."""

    def root(a: Any) -> Any:
        x = 1.0 + 0.0 * a
        for _ in range(25):
            x = x - (x**3 + a * x - 2.0) / (3 * x**2 + a)
        return x

    value, slope = jax.value_and_grad(root)(1.3)
    return [value, slope, -value / (3 * value**2 + 1.3), jax.grad(jax.grad(root))(1.3)]


def pendulum(jax: Any, jnp: Any) -> list[Any]:
    """Gradients through a loop of leapfrog steps: what lax.scan does there."""

    def energy_after(state: Any) -> Any:
        angle, momentum = state["angle"], state["momentum"]
        for _ in range(50):
            momentum = momentum - 0.05 * jnp.sin(angle)
            angle = angle + 0.1 * momentum
            momentum = momentum - 0.05 * jnp.sin(angle)
        return jnp.sum(0.5 * momentum**2 + 1 - jnp.cos(angle))

    value, slopes = jax.value_and_grad(energy_after)(
        {"angle": onp.array([0.3, 1.0]), "momentum": onp.array([0.0, 0.2])}
    )
    return [value, slopes["angle"], slopes["momentum"]]


PROGRAMS = [
    quickstart, derivatives_of_derivatives, network_of_a_list, auxiliary_values, products_with_jacobians,
    hessian_products, batches, implicit_root, pendulum,
]  # fmt: skip
