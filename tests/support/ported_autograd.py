"""Small programs as users of HIPS autograd write them.

Each takes NumPy (autograd's or the real one) and the transforms, and returns numbers.
"""
# ruff: noqa: ARG001, ICN001, N803, N806, RUF007 (as the originals are written)

from __future__ import annotations

from typing import Any

import numpy as onp
from scipy.integrate import odeint
from scipy.optimize import minimize


def tanh_again_and_again(np: Any, ag: Any) -> list[Any]:
    """Derivatives of tanh, one of the other."""

    def tanh(x: Any) -> Any:
        return (1.0 - np.exp(-2 * x)) / (1.0 + np.exp(-2 * x))

    x, functions = onp.linspace(-2, 2, 9), [tanh]
    for _ in range(4):
        functions.append(ag.elementwise_grad(functions[-1]))
    return [f(x) for f in functions]


def logistic(np: Any, ag: Any) -> list[Any]:
    """Logistic regression, by gradient descent."""
    inputs = onp.array([[0.52, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]])
    targets = onp.array([True, True, False, True])

    def loss(weights: Any) -> Any:
        p = 0.5 * (np.tanh(np.dot(inputs, weights) / 2.0) + 1)
        return -np.sum(np.log(p * targets + (1 - p) * (1 - targets)))

    gradient, weights = ag.grad(loss), onp.zeros(3)
    for _ in range(50):
        weights -= gradient(weights) * 0.1
    return [loss(weights), weights]


def network_of_flat_parameters(np: Any, ag: Any) -> list[Any]:
    """A network whose weights are slices of one vector, fitted by L-BFGS."""
    rng = onp.random.default_rng(0)
    X, shapes = rng.standard_normal((30, 2)), [(2, 5), (5,), (5, 1), (1,)]
    y = onp.sin(X[:, :1]) * X[:, 1:]

    def unpacked(flat: Any) -> Any:
        start = 0
        for shape in shapes:
            size = int(onp.prod(shape))
            yield np.reshape(flat[start : start + size], shape)
            start += size

    def loss(flat: Any) -> Any:
        w1, b1, w2, b2 = unpacked(flat)
        return np.mean((np.dot(np.tanh(np.dot(X, w1) + b1), w2) + b2 - y) ** 2) + 1e-3 * np.sum(flat**2)

    start = 0.3 * rng.standard_normal(21)
    found = minimize(ag.value_and_grad(loss), start, jac=True, method="L-BFGS-B", options={"maxiter": 15})
    return [found.fun, ag.grad(loss)(start)]


def rosenbrock_hessian(np: Any, ag: Any) -> list[Any]:
    """Newton's method on Rosenbrock's function, and products with its Hessian."""

    def f(x: Any) -> Any:
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    x, direction = onp.array([-1.2, 1.0, 0.8, 1.1]), onp.array([1.0, 0.5, -0.5, 0.2])
    product = ag.grad(lambda x: np.dot(ag.grad(f)(x), direction))(x)
    hessian = ag.hessian(f)(x)
    for _ in range(6):
        x = x - onp.linalg.solve(ag.hessian(f)(x), ag.grad(f)(x))
    return [product, hessian, x]


def advection(np: Any, ag: Any) -> list[Any]:
    """Move a pattern by a velocity, with np.roll; the gradient goes to pattern and velocity."""
    grid = onp.linspace(0, 2 * onp.pi, 16, endpoint=False)
    target = onp.exp(onp.cos(grid - 1))

    def misfit(u: Any, velocity: Any) -> Any:
        for _ in range(12):
            u = u - 0.1 * velocity * (u - np.roll(u, 1)) + 0.02 * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
        return np.mean((u - target) ** 2)

    at = (onp.exp(onp.cos(grid)), 0.7)
    return [misfit(*at), ag.grad(misfit)(*at), ag.grad(misfit, 1)(*at)]


def mixture(np: Any, ag: Any) -> list[Any]:
    """Log-likelihood of a mixture of Gaussians, with logsumexp by hand."""
    x = onp.random.default_rng(1).standard_normal(40)

    def loglikelihood(parameters: Any) -> Any:
        logits, means, scales = parameters[:3], parameters[3:6], np.exp(parameters[6:])
        weights = logits - np.log(np.sum(np.exp(logits)))
        each = weights - 0.5 * ((x[:, None] - means) / scales) ** 2 - np.log(scales)
        top = np.max(each, axis=1, keepdims=True)
        return np.sum(top[:, 0] + np.log(np.sum(np.exp(each - top), axis=1)))

    at = onp.linspace(-1, 1, 9)
    return [loglikelihood(at), ag.grad(loglikelihood)(at)]


def recurrent_net(np: Any, ag: Any) -> list[Any]:
    """A recurrent network that predicts the next of a sequence."""
    sequence = onp.sin(onp.arange(15.0))[:, None]
    rng = onp.random.default_rng(2)
    change, predict = rng.standard_normal((5, 4)) * 0.4, rng.standard_normal((4, 1)) * 0.4

    def loss(change: Any, predict: Any) -> Any:
        hidden, total = onp.zeros((1, 4)), 0.0
        for now, then in zip(sequence[:-1], sequence[1:], strict=True):
            hidden = np.tanh(np.dot(np.concatenate([now[None], hidden], axis=1), change))
            total = total + np.sum((np.dot(hidden, predict) - then) ** 2)
        return total

    return [loss(change, predict), ag.grad(loss)(change, predict), ag.grad(loss, 1)(change, predict)]


def variational(np: Any, ag: Any) -> list[Any]:
    """Black-box variational inference with fixed draws."""
    draws = onp.random.default_rng(3).standard_normal((50, 2))

    def log_density(x: Any) -> Any:
        mu, log_sigma = x[:, 0], x[:, 1]
        return -0.5 * (log_sigma / 1.35) ** 2 - 0.5 * mu**2 * np.exp(-2 * log_sigma) - log_sigma

    def bound(parameters: Any) -> Any:
        samples = draws * np.exp(parameters[2:]) + parameters[:2]
        return -(np.sum(parameters[2:]) + np.mean(log_density(samples)))

    gradient, parameters = ag.grad(bound), onp.array([-1.0, -1.0, -2.0, -2.0])
    for _ in range(20):
        parameters = parameters - 0.05 * gradient(parameters)
    return [bound(parameters), parameters]


def jacobian_of_a_solve(np: Any, ag: Any) -> list[Any]:
    """The Jacobian of the solution of a linear system, and of its determinant."""
    A = onp.array([[4.0, 1.0, 0.2], [0.5, 3.0, -0.3], [0.1, 0.7, 2.0]])
    b = onp.array([1.0, -1.0, 0.5])
    return [
        ag.jacobian(lambda b: np.linalg.solve(A, b))(b),
        ag.grad(lambda A: np.sum(np.linalg.inv(A) @ b))(A),
        ag.grad(lambda A: np.linalg.slogdet(A)[1])(A),
    ]


def stiff_jacobian(np: Any, ag: Any) -> list[Any]:
    """Robertson's reactions by SciPy, whose Jacobian is ours."""

    def rates(y: Any, t: Any) -> Any:
        a, b, c = y[0], y[1], y[2]
        return np.stack([-0.04 * a + 1e2 * b * c, 0.04 * a - 1e2 * b * c - 3e3 * b**2, 3e3 * b**2])

    jacobian = ag.jacobian(lambda y: rates(y, 0.0))
    times = onp.linspace(0, 10, 5)
    solution = odeint(
        lambda y, t: onp.asarray(ag.plain(rates(y, t))),
        [1.0, 0.0, 0.0],
        times,
        Dfun=lambda y, _t: jacobian(y),
        rtol=1e-10,
    )
    return [solution, jacobian(onp.array([0.9, 1e-3, 0.1]))]


PROGRAMS = [
    tanh_again_and_again, logistic, network_of_flat_parameters, rosenbrock_hessian, advection, mixture, recurrent_net,
    variational, jacobian_of_a_solve, stiff_jacobian,
]  # fmt: skip
