"""Colourings are right for every pattern, and need no more colours than published ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import tape
from tape.sparse import colourings
from tape.sparse.colourings import ORDERS, Colouring

quick = pytest.mark.quick
WAYS = ("columns", "rows", "both")


def compressed(colours: Colouring, dense: Any) -> Any:
    """Return the sums of columns and of rows of a matrix, as one sweep gives them."""
    seeds = [(colours.columns == k).astype(float) for k in range(colours.column_count)]
    weights = [(colours.rows == k).astype(float) for k in range(colours.row_count)]
    return np.concatenate([*[dense @ s for s in seeds], *[w @ dense for w in weights], []])


def recovered(colours: Colouring, pattern: Any, dense: Any) -> bool:
    """Whether all elements of a pattern are read from the sums."""
    matrix = pattern.tocsr()
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.array_equal(compressed(colours, dense)[colours.places], dense[rows, matrix.indices])


def drawn(seed: int, m: int, n: int, density: float, *, symmetric: bool) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    mask = random.random((m, n)) < density
    if random.random() < 0.5:
        mask[random.integers(m)] = True
    if symmetric or random.random() < 0.3:
        mask[:, random.integers(n)] = True
    mask = mask | mask.T if symmetric else mask
    values = random.integers(1, 1 << 20, (m, n)).astype(float)
    values = np.triu(values) + np.triu(values, 1).T if symmetric else values
    return scipy.sparse.csr_array(mask), np.where(mask, values, 0.0)


PATTERNS = st.integers(0, 1 << 20), st.integers(1, 14), st.integers(1, 14), st.sampled_from([0.0, 0.05, 0.2, 0.6])


def wrong(seed: int, m: int, n: int, density: float) -> int:
    pattern, dense = drawn(seed, m, n, density, symmetric=False)
    square, symmetric = drawn(seed, n, n, density, symmetric=True)
    count = 0
    for order in (None, *ORDERS):
        for by in (None, *WAYS):
            count += not recovered(tape.sparse.colouring(pattern, by, order), pattern, dense)
        count += not recovered(tape.sparse.colouring(square, "stars", order), square, symmetric)
    return count


@quick
@settings(max_examples=80, deadline=None, derandomize=True)
@given(*PATTERNS)
def test_every_element_is_recovered(seed: int, m: int, n: int, density: float) -> None:
    assert wrong(seed, m, n, density) == 0


@pytest.mark.exhaustive
@settings(max_examples=4000, deadline=None)
@given(*PATTERNS)
def test_every_element_of_many_is_recovered(seed: int, m: int, n: int, density: float) -> None:
    assert wrong(seed, m, n, density) == 0


@quick
def test_large_graphs_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colourings, "_LARGEST_GRAPH", 10)
    assert sum(wrong(seed, 30, 40, 0.1) for seed in range(8)) == 0
    assert tape.sparse.colouring(band(50, -1, 0, 1)).count == 3


def test_planted_faults_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = colourings._greedy
    monkeypatch.setattr(colourings, "_greedy", lambda _, *rest: greedy("coloured_apart", *rest))
    assert sum(wrong(seed, 9, 9, 0.2) for seed in range(20)) > 0  # stars are more than neighbours
    monkeypatch.undo()
    monkeypatch.setattr(
        colourings, "_apart", lambda matrix, _: (np.arange(matrix.shape[1]) // 2, -(-matrix.shape[1] // 2))
    )
    assert sum(wrong(seed, 9, 9, 0.2) for seed in range(20)) > 0


def band(n: int, *offsets: int) -> Any:
    return scipy.sparse.diags_array([1.0] * len(offsets), offsets=offsets, shape=(n, n)).tocsr()


def arrow(n: int) -> Any:
    return scipy.sparse.csr_array(np.eye(n) + (np.arange(n) == 0) + (np.arange(n) == 0)[:, None])


def laplacian(n: int) -> Any:
    return scipy.sparse.kron(band(n, -1, 0, 1), scipy.sparse.eye_array(n)) + scipy.sparse.kron(
        scipy.sparse.eye_array(n), band(n, -1, 0, 1)
    )


def brusselator(u: Any, n: int = 32) -> Any:
    a, b = u.reshape(2, n, n)

    def spread(z: Any) -> Any:
        return tape.roll(z, 1, 0) + tape.roll(z, -1, 0) + tape.roll(z, 1, 1) + tape.roll(z, -1, 1) - 4.0 * z

    return tape.stack([1.0 + a * a * b - 4.4 * a + spread(a), 3.4 * a - a * a * b + spread(b)])


@quick
def test_published_numbers_of_colours() -> None:
    """A band of width w needs w; 5-point stencils of a greedy natural order 7, of stars 6; arrows two directions."""
    for order in (None, *ORDERS):
        assert tape.sparse.colouring(band(50, -1, 0, 1), "columns", order).count == 3
        assert tape.sparse.colouring(band(50, -1, 0, 1), "stars", order).count == 3
        assert tape.sparse.colouring(band(50, -2, -1, 0, 1, 2), "rows", order).count == 5
        assert tape.sparse.colouring(laplacian(30), "columns", order).count <= 7
        assert tape.sparse.colouring(laplacian(30), "stars", order).count <= 6
    assert [tape.sparse.colouring(arrow(40), by).count for by in (*WAYS, "stars", None)] == [40, 40, 3, 2, 3]
    pattern = tape.record(brusselator, np.ones(2 * 32 * 32)).pattern()
    assert [tape.sparse.colouring(pattern, "columns", order).count for order in ORDERS] == [12, 12, 12]
    assert tape.sparse.colouring(pattern).count <= 12


@quick
def test_arrows_of_many_unknowns() -> None:
    n = 20_000
    at = np.arange(n)
    rows, columns = np.concatenate([at, at, 0 * at]), np.concatenate([at, 0 * at, at])
    matrix = scipy.sparse.coo_array((np.ones(3 * n), (rows, columns)), shape=(n, n))
    assert tape.sparse.colouring(matrix).count == 3
    assert tape.sparse.colouring(matrix, "columns").count == n
    assert tape.sparse.colouring(matrix, "stars", "natural").count == 2


@quick
def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="by is one of"):
        tape.sparse.colouring(band(3, 0), "diagonals")
    with pytest.raises(ValueError, match="order is one of"):
        tape.sparse.colouring(band(3, 0), order="random")
    with pytest.raises(ValueError, match="symmetric"):
        tape.sparse.colouring(band(3, 0, 1), "stars")
    assert tape.sparse.colouring(scipy.sparse.csr_array((3, 4))).count <= 1
