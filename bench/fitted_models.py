"""Objectives of fits, one text for every library: networks, mixtures, filters, cameras.

LSTM, Gaussian mixture and bundle adjustment are ADBench's objectives (Srajer, Kukelova and
Fitzgibbon 2018), written for whole arrays. `*_scan` is JAX's best form of a loop over time.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray


def logsumexp(lib: Any, x: Any, weights: Any) -> Any:
    """Return the weighted sum of the rows' logsumexp."""
    return (lib.logsumexp(x, 1) * weights).sum()


def softmax(lib: Any, x: Any, weights: Any) -> Any:
    """Return the sum of a weighted softmax of the rows."""
    return (lib.softmax(x, 1) * weights).sum()


def mlp(lib: Any, *arguments: Any) -> Any:
    """Return the mean cross-entropy of a tanh network: weights and biases by turns, then inputs and labels."""
    *parameters, state, labels = arguments
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        state = lib.tanh(state @ weight + bias)
    logits = state @ parameters[-2] + parameters[-1]
    return (lib.logsumexp(logits, 1) - (logits * labels).sum(1)).mean()


def _lstm_step(lib: Any, main: Any, extra: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """Return the prediction and the states (hidden, cell) of all layers after one element of the sequence."""
    x, states = x * extra[0], []
    for layer, (hidden, cell) in enumerate(state):
        weight, bias = main[2 * layer], main[2 * layer + 1]
        forget = lib.sigmoid(x * weight[0] + bias[0])
        take = lib.sigmoid(hidden * weight[1] + bias[1])
        output = lib.sigmoid(x * weight[2] + bias[2])
        change = lib.tanh(hidden * weight[3] + bias[3])
        after = cell * forget + take * change
        x = output * lib.tanh(after)
        states.append((x, after))
    return x * extra[1] + extra[2], states


def _lstm_loss(lib: Any, prediction: Any, wanted: Any) -> Any:
    return (wanted * (prediction - lib.log(lib.exp(prediction).sum() + 2.0))).sum()


def lstm(lib: Any, main: Any, extra: Any, state: Any, sequence: Any) -> Any:
    """Return ADBench's loss of a diagonal LSTM: main (2 layers, 4, n), extra (3, n), state (2 layers, n)."""
    states = [(state[2 * k], state[2 * k + 1]) for k in range(state.shape[0] // 2)]
    steps, width = sequence.shape[0] - 1, sequence.shape[1]
    total = 0.0
    for t in range(steps):
        prediction, states = _lstm_step(lib, main, extra, states, sequence[t])
        total = total + _lstm_loss(lib, prediction, sequence[t + 1])
    return -total / (steps * width)


def lstm_scan(lib: Any, main: Any, extra: Any, state: Any, sequence: Any) -> Any:
    """Return the same by `scan`."""
    states = [(state[2 * k], state[2 * k + 1]) for k in range(state.shape[0] // 2)]

    def step(states: Any, pair: Any) -> Any:
        prediction, states = _lstm_step(lib, main, extra, states, pair[0])
        return states, _lstm_loss(lib, prediction, pair[1])

    _, losses = lib.scan(step, states, (sequence[:-1], sequence[1:]))
    return -losses.sum() / ((sequence.shape[0] - 1) * sequence.shape[1])


@functools.cache
def triangle(d: int) -> NDArray[np.int64]:
    """Return where (d, d) lower triangles are in ADBench's rows: diagonal, below it by columns, then a zero."""
    places = np.full((d, d), d * (d + 1) // 2)
    np.fill_diagonal(places, np.arange(d))
    columns, rows = np.triu_indices(d, 1)
    places[rows, columns] = np.arange(d, d * (d + 1) // 2)
    return places


def mixture_constant(n: int, d: int, k: int) -> float:
    """Return the part of the mixture's log likelihood that depends on nothing: Wishart prior with gamma 1, m 0."""
    wishart = -(d + 1) * d * 0.5 * math.log(2.0) - float(special.multigammaln(0.5 * (d + 1), d))
    return -n * d * 0.5 * math.log(2.0 * math.pi) - k * wishart


def mixture(lib: Any, alphas: Any, means: Any, factors: Any, x: Any) -> Any:
    """Return ADBench's log likelihood of a Gaussian mixture: alphas (k,), means (k, d), factors (k, d (d + 1) / 2)."""
    (n, d), k = x.shape, alphas.shape[0]
    logarithms, below = factors[:, :d], factors[:, d:]
    diagonals = lib.exp(logarithms)
    entries = lib.cat([diagonals, below, 0.0 * alphas[:, None]], 1)
    whiten = entries[:, triangle(d)]
    shifts = (whiten * means[:, None, :]).sum(-1).reshape(k * d)
    white = (x @ whiten.reshape(k * d, d).T - shifts).reshape(n, k, d)
    logs = alphas + logarithms.sum(1) - 0.5 * (white * white).sum(-1)
    prior = 0.5 * ((diagonals * diagonals).sum() + (below * below).sum())
    return lib.logsumexp(logs, 1).sum() - n * lib.logsumexp(alphas, 0) + prior + mixture_constant(n, d, k)


def _kalman_step(lib: Any, model: Any, state: Any, seen: Any) -> tuple[Any, Any, Any]:
    """Return mean and covariance after one observation, and its log likelihood without the constant."""
    f, h, q, r = model
    mean, covariance = state
    mean = f @ mean
    covariance = f @ covariance @ f.T + q
    residual = seen - h @ mean
    innovation = h @ covariance @ h.T + r
    inverse = lib.linalg.inv(innovation)
    gain = covariance @ h.T @ inverse
    fit = -0.5 * (residual @ inverse @ residual + lib.log(lib.linalg.det(innovation)))
    return mean + gain @ residual, covariance - gain @ h @ covariance, fit


def kalman(lib: Any, f: Any, h: Any, q: Any, r: Any, mean: Any, covariance: Any, seen: Any) -> Any:
    """Return the log likelihood of observations (steps, m) of a linear system, by the Kalman filter."""
    total, (steps, width) = 0.0, seen.shape
    for t in range(steps):
        mean, covariance, fit = _kalman_step(lib, (f, h, q, r), (mean, covariance), seen[t])
        total = total + fit
    return total - 0.5 * steps * width * math.log(2.0 * math.pi)


def kalman_scan(lib: Any, f: Any, h: Any, q: Any, r: Any, mean: Any, covariance: Any, seen: Any) -> Any:
    """Return the same by `scan`."""

    def step(state: Any, seen: Any) -> Any:
        *state, fit = _kalman_step(lib, (f, h, q, r), state, seen)
        return tuple(state), fit

    _, fits = lib.scan(step, (mean, covariance), seen)
    return fits.sum() - 0.5 * seen.shape[0] * seen.shape[1] * math.log(2.0 * math.pi)


def _rotated(lib: Any, rotation: Any, point: Any) -> Any:
    """Return points rotated by Rodrigues' formula, columns in and out."""
    (a, b, c), (x, y, z) = rotation, point
    angle = lib.sqrt(a * a + b * b + c * c)
    cosine, sine = lib.cos(angle), lib.sin(angle)
    a, b, c = a / angle, b / angle, c / angle
    along = (a * x + b * y + c * z) * (1.0 - cosine)
    return (
        x * cosine + (b * z - c * y) * sine + a * along,
        y * cosine + (c * x - a * z) * sine + b * along,
        z * cosine + (a * y - b * x) * sine + c * along,
    )


def bundle(lib: Any, cameras: Any, points: Any, weights: Any, seen: Any, camera: Any, point: Any) -> Any:
    """Return ADBench's squared errors of reprojection and weights: cameras (n, 11), points (m, 3), weights (k,)."""
    chosen, at = cameras[camera], points[point]
    place = [at[:, k] - chosen[:, 3 + k] for k in range(3)]
    x, y, z = _rotated(lib, [chosen[:, k] for k in range(3)], place)
    x, y = x / z, y / z
    square = x * x + y * y
    scale = chosen[:, 6] * (1.0 + chosen[:, 9] * square + chosen[:, 10] * square * square)
    right = weights * (x * scale + chosen[:, 7] - seen[:, 0])
    down = weights * (y * scale + chosen[:, 8] - seen[:, 1])
    off = 1.0 - weights * weights
    return (right * right).sum() + (down * down).sum() + (off * off).sum()


def polynomial(_lib: Any, a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> Any:
    """Return the squared errors of a cubic."""
    error = a + b * x + c * x**2 + d * x**3 - y
    return (error * error).sum()


def character_network(lib: Any, *arguments: Any) -> Any:
    """Return the cross-entropy of a network that names the next character: embedding, tanh, batch normalisation."""
    embedding, first, gain, shift, second, bias, before, labels = arguments
    state = embedding[before].reshape(before.shape[0], -1) @ first
    state = state - state.mean(0)
    state = gain * state / lib.sqrt((state * state).mean(0) + 1e-5) + shift
    logits = lib.tanh(state) @ second + bias
    return (lib.logsumexp(logits, 1) - (logits * labels).sum(1)).mean()


def factorisation(_lib: Any, left: Any, right: Any, user: Any, item: Any, rating: Any) -> Any:
    """Return the regularised squared errors of ratings that are products of rows."""
    a, b = left[user], right[item]
    error = (a * b).sum(1) - rating
    return (error * error).mean() + 0.01 * ((a * a).sum() + (b * b).sum()) / user.shape[0]


def gaussian_process(lib: Any, scale: Any, height: Any, noise: Any, x: Any, y: Any) -> Any:
    """Return the negative log likelihood of a Gaussian process with a squared-exponential kernel, but a constant."""
    apart = (x[:, None] - x[None, :]) * lib.exp(-scale)
    covariance = lib.exp(2.0 * height - 0.5 * apart * apart) + lib.exp(2.0 * noise) * np.eye(x.shape[0])
    factor = lib.linalg.cholesky(covariance)
    white = lib.linalg.solve(factor, y)
    return 0.5 * (white * white).sum() + lib.log(lib.diagonal(factor)).sum()


def transformer_block(lib: Any, *arguments: Any) -> Any:
    """Return the sum of squares behind a block of a GPT: two heads of masked attention, then a network."""
    query, key, value, output, first, second, x, mask = arguments
    steps, width = x.shape
    heads = [(_normal(lib, x) @ w).reshape(steps, 2, width // 2) for w in (query, key, value)]
    q, k, v = (h.swapaxes(0, 1) for h in heads)
    weights = lib.softmax(q @ k.swapaxes(1, 2) / math.sqrt(width // 2) + mask, -1)
    x = x + (weights @ v).swapaxes(0, 1).reshape(steps, width) @ output
    hidden = _normal(lib, x) @ first
    x = x + (hidden * lib.sigmoid(1.702 * hidden)) @ second
    return (x * x).mean()


def _normal(lib: Any, x: Any) -> Any:
    """Return rows of mean zero and variance one."""
    x = x - x.mean(-1)[:, None]
    return x / lib.sqrt((x * x).mean(-1) + 1e-5)[:, None]
