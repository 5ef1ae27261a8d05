"""Elements picked and written by index tensors and masks: PyTorch's and NumPy's functions, gradients, replays."""

from __future__ import annotations

import pytest
from rearrangements import compare, compare_numpy, compare_replay

EXPRESSIONS = """
w.take(j) | torch.take(x, -q - 1) | s.take(i * 0) | x.take(i[0]) | w.T.take(i) | torch.take_along_dim(w, j, 1)
w.take_along_dim(k, 0) | torch.take_along_dim(w, j) | w.take_along_dim(-j - 1, dim=1)
b.take_along_dim(j[:, :, None], 1) | w.gather(1, j) | torch.gather(w, 0, k) | x.gather(0, e)
b.gather(2, j[None]) | w.T.gather(0, j[:, :2]) | s.gather(0, i[1]) | w.gather(0, k[:, :0])
w.index_select(1, i) | x.index_select(0, e) | torch.index_select(b, -1, q) | w.T.index_select(0, i)
x.index_select(0, i[0]) | x.index_select(0, i[:0]) | x.masked_select(m) | torch.masked_select(w, m)
w.T.masked_select(M.T) | s.masked_select(m) | x.masked_select(m & False) | torch.nonzero(m)
torch.nonzero(j, as_tuple=True) | j.nonzero() | torch.argwhere(M) | x[i] | w[:, i] | w[j[1], j[0]] | b[1, q]
b[:, i, 1] | b[i[1:], :, q] | b[..., e] | b[:, M[0]] | w[M] | b[M] | b[None, j % 2] | w[j[:, :1] % 2, q]
x[[0, -1]] | x[m] | x[[True, False, True]] | b[:, :, None][:, i] | b[0, i, 1:3] | x[j] | b[:, j]
w.scatter(0, k, 7.) | w.scatter(1, i[:, None], w[:, :1] * 2) | x.scatter(0, i, s.expand(2))
torch.scatter(w, 1, j[:, :2] * 0 + i, (w * w)[:, 1:]) | b.scatter(2, q[None, None] + 1, b[:1, 1:2, 1:] * 3)
w.detach().scatter(0, k, 7., reduce="add") | w.scatter_add(1, j, w * w) | x.scatter_add(0, e % 3, c[0])
torch.scatter_add(w, 0, k, w[1:] * 2) | s.scatter_add(0, i[1], s * 2) | w.T.scatter_add(0, j[:, :2], w[:, 1:])
x.scatter_reduce(0, e, c[0], "sum") | x.scatter_reduce(0, e, c[0], "sum", include_self=False)
x.scatter_reduce(0, e, c[0], "mean") | x.scatter_reduce(0, e, c[0], "mean", include_self=False)
w.scatter_reduce(1, j, w * 2, "mean") | x.scatter_reduce(0, e, c[0], "amax")
x.scatter_reduce(0, e, c[0], "amin", include_self=False)
torch.scatter_reduce(w, 1, j, w * 2, "amax", include_self=False) | w.scatter_reduce(0, k, w.round(), "amax")
x.scatter_reduce(0, e, c[0] * 0 + 2, "amax", include_self=False) | x.scatter_reduce(0, e, c[0], "prod")
w.scatter_reduce(1, j, w - 1, "prod", include_self=False) | x.scatter_reduce(0, e[:0], x[:0], "amax")
q.scatter_reduce(0, i, i * 3, "amax") | q.scatter_add(0, i, i * 3) | q.scatter_reduce(0, e, -e * 3, "prod")
x.index_add(0, i, w[0, :2]) | x.index_add(0, e, c[0], alpha=2) | torch.index_add(b, 1, i, b[:, :2])
w.T.index_add(1, i[1:], x[:, None]) | x.index_copy(0, i, w[0, :2]) | torch.index_copy(w, 1, i, w[:, :2] * 2)
x.index_fill(0, i, 3.) | w.index_fill(1, -i - 1, 0) | torch.index_fill(w, 0, i[1:], s)
w.index_put((j[0] % 2, q), x) | x.index_put((e,), c[0], accumulate=True) | torch.index_put(w, (i[1:], i[:1]), s)
w.masked_scatter(m, c) | torch.masked_scatter(w, M, x) | x.masked_fill(m, 2.) | torch.masked_fill(w, M, s)
x.index_reduce(0, e, c[0], "prod") | w.index_reduce(1, i, w[:, :2], "amax")
torch.index_reduce(x, 0, i, x[:2], "mean", include_self=False) | q.index_select(0, i) | q.gather(0, i)
M.gather(0, k)
"""
TEXTS = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("text", TEXTS)
def test_like_pytorch(text: str) -> None:
    compare(text, pytest.importorskip("torch"))


REPLAYED = [
    "w.take(j)", "w.T.gather(0, j[:, :2])", "w.index_select(1, i)", "x.masked_select(m)", "b[:, i, 1]", "b[i[1:], :, q]",
    "w.scatter(1, i[:, None], w[:, :1] * 2)", "w.scatter_add(1, j, w * w)", "w.T.scatter_add(0, j[:, :2], w[:, 1:])",
    "x.scatter_reduce(0, e, c[0], 'mean', include_self=False)", "x.scatter_reduce(0, e, c[0], 'amax')",
    "x.index_add(0, e, c[0], alpha=2)", "torch.index_copy(w, 1, i, w[:, :2] * 2)", "x.index_fill(0, i, s)",
    "w.masked_scatter(m, c)", "w.index_put((j[0] % 2, q), x)",
]  # fmt: skip


@pytest.mark.parametrize("text", REPLAYED)
def test_replayed(text: str) -> None:
    compare_replay(text)


NUMPYS = """
np.take(w, [0, 5, 2]) | np.take(w, [[1, 0]], axis=1) | np.take(x, [-1, 4], mode="wrap")
np.take(x, [-1, 4], mode="clip") | np.take(w, 1, 0) | np.take_along_axis(w, np.array([[0, 2], [-1, 1]]), 1)
np.take_along_axis(w, np.array([[0, 1, 0]]), axis=0) | np.take_along_axis(w, np.array([3, 0]), None)
np.compress([True, False, True], x) | np.compress([False, True], w, axis=0)
np.compress([True, False, True], w) | np.extract(w > 1, w) | np.select([x > 1, x > .8], [x * 2, -x])
np.select([x > 1, x > .8], [x, x * x], default=7.) | np.piecewise(x, [x < .7, x > 1], [lambda t: t * t, -1.])
np.piecewise(x, [x < .8, x >= .8], [lambda t: t * 3, np.sin])
np.piecewise(x, x < .8, [1., lambda t, a: t * a, ], 3.) | np.nonzero(x > .8) | np.argwhere(w > 1)
np.flatnonzero(w > 1) | np.argwhere(x) | np.nonzero(w)
"""
NUMPY_TEXTS = [e.strip() for line in NUMPYS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("text", NUMPY_TEXTS)
def test_like_numpy(text: str) -> None:
    compare_numpy(text)
