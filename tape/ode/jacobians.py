"""Sparse Jacobians of slopes: some rows together, a colour, by one sweep each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tape import func
from tape.recording import views
from tape.sparse import CSR
from tape.sparse.derivatives import by_few_sums, lasting_pattern
from tape.tensors.tensor import constant_tensor


class Colours(NamedTuple):
    """Which rows are swept together, ``seeds`` (colours, n), and where the elements of the pattern then are."""

    seeds: Any
    pattern: Any
    """SciPy's csr_array, with the diagonal."""
    places: Any
    """Of each element its place among the sums of rows."""
    diagonal: Any
    """Of each element 1 on the diagonal, 0 elsewhere."""


def colours_of(f: Any, t: Any, y: Any) -> Colours | None:
    """Return how the Jacobian of the slope is computed by colour; None for one that is small, dense or may change.

    It may change where ``f`` reads values in Python: what it depends on may be another thing elsewhere.
    """
    n, at, state = y.spec.size, np.array(t.detach()._value), np.array(y.detach()._value)

    def slopes(v: Any, t: Any) -> Any:
        return f(t, v.reshape(state.shape)).reshape(n)

    pattern = lasting_pattern(slopes, state.reshape(n), at)
    return None if pattern is None else _of_pattern(pattern, state.dtype)


def _of_pattern(pattern: Any, dtype: Any) -> Colours | None:
    from scipy.sparse import csr_array, eye_array

    n = pattern.shape[0]
    pattern = csr_array(pattern.astype(np.int64) + eye_array(n, dtype=np.int64))
    pattern.sort_indices()
    colours = by_few_sums(pattern)
    if colours is None:
        return None
    seeds = (colours.rows == np.arange(colours.count)[:, None]).astype(dtype)
    diagonal = np.repeat(np.arange(n), np.diff(pattern.indptr)) == pattern.indices
    return Colours(seeds, pattern, colours.places, diagonal.astype(dtype))


def coloured(f: Any, t: Any, y: Any, diagonal: Any, colours: Colours) -> CSR:
    """Return the matrix diagonal I - J, with gradients to all that J depends on."""
    _, pull = func.vjp(lambda z: f(t, z), y)
    sums = [pull(constant_tensor(seed.reshape(y.spec.shape)))[0].reshape(-1) for seed in colours.seeds]
    elements = views.cat(sums)[constant_tensor(colours.places)]
    pattern = colours.pattern
    data = constant_tensor(colours.diagonal) * diagonal - elements
    return CSR(data, pattern.indices, pattern.indptr, pattern.shape)
