"""Adjoints by hand in Numba: networks."""

from __future__ import annotations

import math

import numpy as np

from bench.by_hand import Array
from bench.by_hand.native import native


@native
def _tanh_layer(x: Array, weight: Array, bias: Array) -> Array:
    y: Array = np.dot(x, weight)
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = math.tanh(y[i, j] + bias[j])
    return y


@native
def _pull_tanh(g: Array, y: Array) -> None:
    """Take the cotangent of a tanh to that of its argument."""
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            g[i, j] *= 1.0 - y[i, j] * y[i, j]


@native
def _cross_entropy(logits: Array, bias: Array, labels: Array) -> float:
    """Return the mean cross-entropy; leave its gradient in `logits`."""
    rows, columns = logits.shape
    total = 0.0
    for i in range(rows):
        largest, sums = -np.inf, 0.0
        for j in range(columns):
            logits[i, j] += bias[j]
            total -= logits[i, j] * labels[i, j]
            largest = max(largest, logits[i, j])
        for j in range(columns):
            logits[i, j] = math.exp(logits[i, j] - largest)
            sums += logits[i, j]
        total += largest + math.log(sums)
        for j in range(columns):
            logits[i, j] = (logits[i, j] / sums - labels[i, j]) / rows
    mean: float = total / rows
    return mean


@native
def _of_rows(g: Array) -> Array:
    """Return the sum of the rows."""
    total = np.zeros(g.shape[1])
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            total[j] += g[i, j]
    return total


@native
def mlp(
    w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, x: Array, labels: Array
) -> tuple[float, tuple[Array, Array, Array, Array, Array, Array]]:
    """Return the mean cross-entropy of a tanh network of three layers, and its gradients."""
    y1 = _tanh_layer(x, w1, b1)
    y2 = _tanh_layer(y1, w2, b2)
    g3 = np.dot(y2, w3)
    value = _cross_entropy(g3, b3, labels)
    g2 = np.dot(g3, w3.T)
    _pull_tanh(g2, y2)
    g1 = np.dot(g2, w2.T)
    _pull_tanh(g1, y1)
    return value, (np.dot(x.T, g1), _of_rows(g1), np.dot(y1.T, g2), _of_rows(g2), np.dot(y2.T, g3), _of_rows(g3))


@native
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


@native
def _lstm_layer(main: Array, inputs: Array, old: Array, new: Array, row: Array) -> None:
    """Set hidden and cell (2, n) of a layer, and what its reverse needs (6, n): gates, input, tanh of the cell."""
    for j in range(len(inputs)):
        forget = _sigmoid(inputs[j] * main[0, 0, j] + main[1, 0, j])
        take = _sigmoid(old[0, j] * main[0, 1, j] + main[1, 1, j])
        output = _sigmoid(inputs[j] * main[0, 2, j] + main[1, 2, j])
        change = math.tanh(old[0, j] * main[0, 3, j] + main[1, 3, j])
        cell = old[1, j] * forget + take * change
        bent = math.tanh(cell)
        row[0, j], row[1, j], row[2, j], row[3, j] = forget, take, output, change
        row[4, j], row[5, j] = inputs[j], bent
        new[0, j], new[1, j] = output * bent, cell


@native
def _pull_lstm_layer(main: Array, old: Array, row: Array, g: Array, g_state: Array, g_main: Array) -> None:
    """Turn the cotangents of a layer's output (n,) and states (2, n) into those of its input and states before."""
    for j in range(len(g)):
        forget, take, output, change = row[0, j], row[1, j], row[2, j], row[3, j]
        inputs, bent = row[4, j], row[5, j]
        g_hidden = g[j] + g_state[0, j]
        g_cell = g_state[1, j] + g_hidden * output * (1.0 - bent * bent)
        a = g_cell * old[1, j] * forget * (1.0 - forget)
        b = g_cell * change * take * (1.0 - take)
        c = g_hidden * bent * output * (1.0 - output)
        d = g_cell * take * (1.0 - change * change)
        g_main[0, 0, j] += a * inputs
        g_main[0, 1, j] += b * old[0, j]
        g_main[0, 2, j] += c * inputs
        g_main[0, 3, j] += d * old[0, j]
        g_main[1, 0, j] += a
        g_main[1, 1, j] += b
        g_main[1, 2, j] += c
        g_main[1, 3, j] += d
        g[j] = a * main[0, 0, j] + c * main[0, 2, j]
        g_state[0, j] = b * main[0, 1, j] + d * main[0, 3, j]
        g_state[1, j] = g_cell * forget


@native
def _lstm_loss(last: Array, extra: Array, wanted: Array, predicted: Array) -> float:
    """Return the loss of one element; set `predicted` to the loss's gradient by the prediction."""
    total, weight, value = 2.0, 0.0, 0.0
    for j in range(len(last)):
        prediction = last[j] * extra[1, j] + extra[2, j]
        value += wanted[j] * prediction
        weight += wanted[j]
        predicted[j] = math.exp(prediction)
        total += predicted[j]
    for j in range(len(last)):
        predicted[j] = wanted[j] - weight * predicted[j] / total
    return value - weight * math.log(total)


@native
def _lstm_forward(main: Array, extra: Array, sequence: Array, states: Array, rows: Array, predicted: Array) -> float:
    """Fill states (steps + 1, layers, 2, n), rows (steps, layers, 6, n) and predicted; return the sum of the losses."""
    steps, layers = rows.shape[0], rows.shape[1]
    total = 0.0
    for t in range(steps):
        x = sequence[t] * extra[0]
        for layer in range(layers):
            new = states[t + 1, layer]
            _lstm_layer(main[layer], x, states[t, layer], new, rows[t, layer])
            x = new[0]
        total += _lstm_loss(x, extra, sequence[t + 1], predicted[t])
    return total


@native
def lstm(main: Array, extra: Array, state: Array, sequence: Array) -> tuple[float, tuple[Array, Array]]:
    """Return ADBench's loss of a diagonal LSTM, and its gradients: main (2 layers, 4, n), extra (3, n)."""
    steps, n, layers = len(sequence) - 1, sequence.shape[1], len(state) // 2
    by_layer = main.reshape((layers, 2, 4, n))
    states, rows = np.empty((steps + 1, layers, 2, n)), np.empty((steps, layers, 6, n))
    predicted = np.empty((steps, n))
    states[0] = state.reshape((layers, 2, n))
    value = _lstm_forward(by_layer, extra, sequence, states, rows, predicted)
    g_main, g_extra, g_states, g = np.zeros_like(by_layer), np.zeros_like(extra), np.zeros((layers, 2, n)), np.empty(n)
    scale = -1.0 / (steps * n)
    for t in range(steps - 1, -1, -1):
        for j in range(n):
            part = scale * predicted[t, j]
            g_extra[1, j] += part * states[t + 1, layers - 1, 0, j]
            g_extra[2, j] += part
            g[j] = part * extra[1, j]
        for layer in range(layers - 1, -1, -1):
            _pull_lstm_layer(by_layer[layer], states[t, layer], rows[t, layer], g, g_states[layer], g_main[layer])
        for j in range(n):
            g_extra[0, j] += g[j] * sequence[t, j]
    return scale * value, (g_main.reshape(main.shape), g_extra)
