"""Elements picked and written by index tensors and masks: PyTorch's and NumPy's functions, gradients, replays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tests.support.rearrangements import compare, compare_errors, compare_numpy, compare_replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.pytorch_outcomes import Outcomes

EXPRESSIONS = """
w.take(j) | torch.take(x, -q - 1) | s.take(i * 0) | x.take(i[0]) | w.T.take(i) | torch.take_along_dim(w, j, 1)
w.take_along_dim(k, 0) | torch.take_along_dim(w, j) | w.take_along_dim(-j - 1, dim=1)
b.take_along_dim(j[:, :, None], 1) | w.gather(1, j) | torch.gather(w, 0, k) | x.gather(0, e) | b.gather(2, j[None])
w.T.gather(0, j[:, :2]) | s.gather(0, i[1]) | w.gather(0, k[:, :0]) | w.index_select(1, i) | x.index_select(0, e)
torch.index_select(b, -1, q) | w.T.index_select(0, i) | x.index_select(0, i[0]) | x.index_select(0, i[:0])
x.masked_select(m) | torch.masked_select(w, m) | w.T.masked_select(M.T) | s.masked_select(m)
x.masked_select(m & False) | torch.nonzero(m) | torch.nonzero(j, as_tuple=True) | j.nonzero() | torch.argwhere(M)
x[i] | w[:, i] | w[j[1], j[0]] | b[1, q] | b[:, i, 1] | b[i[1:], :, q] | b[..., e] | b[:, M[0]] | w[M] | b[M]
b[None, j % 2] | w[j[:, :1] % 2, q] | x[[0, -1]] | x[m] | x[[True, False, True]] | b[:, :, None][:, i]
b[0, i, 1:3] | x[j] | b[:, j] | w.scatter(0, k, 7.) | w.scatter(1, i[:, None], w[:, :1] * 2)
x.scatter(0, i, s.expand(2)) | torch.scatter(w, 1, j[:, :2] * 0 + i, (w * w)[:, 1:])
b.scatter(2, q[None, None] + 1, b[:1, 1:2, 1:] * 3) | w.detach().scatter(0, k, 7., reduce="add")
w.scatter_add(1, j, w * w) | x.scatter_add(0, e % 3, c[0]) | torch.scatter_add(w, 0, k, w[1:] * 2)
s.scatter_add(0, i[1], s * 2) | w.T.scatter_add(0, j[:, :2], w[:, 1:]) | x.scatter_reduce(0, e, c[0], "sum")
x.scatter_reduce(0, e, c[0], "sum", include_self=False) | x.scatter_reduce(0, e, c[0], "mean")
x.scatter_reduce(0, e, c[0], "mean", include_self=False) | w.scatter_reduce(1, j, w * 2, "mean")
x.scatter_reduce(0, e, c[0], "amax") | x.scatter_reduce(0, e, c[0], "amin", include_self=False)
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
def test_like_pytorch(text: str, pytorch: Outcomes) -> None:
    compare(text, pytorch)


REPLAYED = [
    "w.take(j)", "w.T.gather(0, j[:, :2])", "w.index_select(1, i)", "x.masked_select(m)", "b[:, i, 1]",
    "b[i[1:], :, q]",
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
np.compress([True, False, True], x) | np.compress([False, True], w, axis=0) | np.compress([True, False, True], w)
np.extract(w > 1, w) | np.select([x > 1, x > .8], [x * 2, -x]) | np.select([x > 1, x > .8], [x, x * x], default=7.)
np.piecewise(x, [x < .7, x > 1], [lambda t: t * t, -1.])
np.piecewise(x, [x < .8, x >= .8], [lambda t: t * 3, np.sin])
np.piecewise(x, x < .8, [1., lambda t, a: t * a, ], 3.) | np.nonzero(x > .8) | np.argwhere(w > 1)
np.flatnonzero(w > 1) | np.argwhere(x) | np.nonzero(w)
"""
NUMPY_TEXTS = [e.strip() for line in NUMPYS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("text", NUMPY_TEXTS)
def test_like_numpy(text: str) -> None:
    compare_numpy(text)


IN_PLACE = """
scatter_(0, k, w[:1] * 2) | scatter_(1, j[:, :1], 5.) | scatter_add_(1, j, w * w)
index_add_(1, i, w[:, :2], alpha=2) | scatter_reduce_(1, j, w, "amin") | scatter_reduce_(0, k, w[:1] * 3, "mean")
index_copy_(1, q, w * w) | index_fill_(0, i[1:], s) | index_put_((j[1], q), x)
index_reduce_(1, i, w[:, :2], "amax") | masked_scatter_(M, x) | masked_fill_(m, s) | tril_() | triu_(1)
"""
IN_PLACE_TEXTS = [e.strip() for line in IN_PLACE.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("base", ["(w * 1)", "(b * 1)[:, :, 1]", "(b * 1)[0, :, :3].T[:2]"])
@pytest.mark.parametrize("text", IN_PLACE_TEXTS)
def test_in_place(text: str, base: str, pytorch: Outcomes) -> None:
    """Into a tensor, into a view of another, and into one that lies in memory in another order."""
    compare(f"[y := {base}, y.{text}][1:]", pytorch)


def test_the_last_of_several_values_stays() -> None:
    x, v = tape.zeros(3), tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for found in (x.scatter(0, tape.tensor([1, 1, 0]), v), x.index_copy(0, tape.tensor([1, 1, 0]), v)):
        (gradient,) = tape.autograd.grad((found * found).sum(), v)
        np.testing.assert_array_equal(found.detach().numpy(), [3, 2, 0])
        np.testing.assert_array_equal(gradient.numpy(), [0, 4, 6])


MAPPED: list[Callable[[Any], Any]] = [
    lambda a: a.take(tape.tensor([5, 0])),
    lambda a: a.gather(1, tape.tensor([[0, 2], [1, 1]])),
    lambda a: a.index_select(1, tape.tensor([2, 2])),
    lambda a: a.scatter(1, tape.tensor([[0, 2], [1, 3]]), a * 2),
    lambda a: a.scatter_add(0, tape.tensor([[0, 0], [0, 1]]), a * a),
    lambda a: a.scatter_reduce(1, tape.tensor([[0, 0, 1], [3, 3, 3]]), a, "amax"),
    lambda a: a.index_fill(1, tape.tensor([1]), 0.0),
    lambda a: a.masked_scatter(tape.tensor([True, False, False, True]), a),
]


@pytest.mark.parametrize("function", MAPPED)
def test_mapped(function: Callable[[Any], Any]) -> None:
    """A batch gives what its examples give one by one, and so do gradients."""
    batch = tape.tensor(np.random.default_rng(0).uniform(-1, 1, (3, 2, 4)), requires_grad=True)
    mapped = tape.vmap(function)(batch)
    single = tape.stack([function(row) for row in batch])
    np.testing.assert_array_equal(mapped.detach().numpy(), single.detach().numpy())
    gradients = [tape.autograd.grad((found * found).sum(), batch)[0].numpy() for found in (mapped, single)]
    np.testing.assert_allclose(*gradients, rtol=1e-13)


FROZEN: list[Callable[[Any, Any], Any]] = [
    lambda x, i: x.take(i),
    lambda x, i: x.gather(0, i),
    lambda x, i: x.index_select(0, i + 0),
    lambda x, i: x.scatter(0, i, 1.0),
    lambda x, i: x.index_add(0, i, x[:2]),
    lambda x, i: x.index_fill(0, i, 1.0),
    lambda x, i: x.repeat_interleave(i[0]),
    lambda x, i: x.narrow(0, i[0], 1),
    lambda x, i: tape.stack(x.tensor_split(i)[:1]),
    lambda x, i: x[i],
    lambda x, i: x.masked_select(i[0] == 0) + 0,
    lambda x, i: x * ((x + i[0]) > 1).nonzero().sum(),
    lambda x, i: x.masked_scatter((x + i[0]) > 1, x),
    lambda x, i: np.take(x, i + 0),
    lambda x, i: np.compress((x + i[0]) > 1, x),
]


@pytest.mark.parametrize("function", FROZEN)
def test_a_program_never_freezes_indices_that_depend_on_its_arguments(function: Callable[[Any, Any], Any]) -> None:
    x, i = tape.tensor([1.0, 2.0, 3.0]), tape.tensor([0, 2])
    with pytest.raises(RuntimeError, match=r"left|value|index"):
        tape.record(function, x, i)(x, i)


def test_what_is_overwritten_contributes_nothing() -> None:
    """Not 0 times what is infinite."""
    for write in (
        lambda y: y.index_fill(0, tape.tensor([0]), 1.0),
        lambda y: y.scatter(0, tape.tensor([0]), 1.0),
        lambda y: y.index_copy(0, tape.tensor([0]), tape.tensor([1.0])),
        lambda y: y.masked_fill(tape.tensor([True, False]), 1.0),
        lambda y: y.masked_scatter(tape.tensor([True, False]), tape.tensor([1.0])),
        lambda y: y.scatter_reduce(0, tape.tensor([0]), tape.tensor([1.0]), "sum", include_self=False),
        lambda y: y.index_select(0, tape.tensor([1])),
        lambda y: y.gather(0, tape.tensor([1])),
    ):
        x = tape.tensor([0.0, 4.0], requires_grad=True)
        write(x.sqrt()).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [0, 0.25])


def test_numpys_writes() -> None:
    """np.put_along_axis, np.put, np.copyto and np.fill_diagonal write into tensors, recorded."""
    for write in (
        lambda y: np.put_along_axis(y, np.array([[1], [0]]), 5.0, 1),
        lambda y: np.put(y, [0, -1], [7.0, 8.0]),
        lambda y: np.copyto(y, y[:1] * 2, where=np.array([True, False])),
        lambda y: np.fill_diagonal(y, 3.0),
    ):
        array = np.array([[1.0, 2.0], [3.0, 4.0]])
        x = tape.tensor(array, requires_grad=True)
        y = x * 1
        write(y)
        write(array)
        np.testing.assert_array_equal(y.detach().numpy(), array)
        y.sum().backward()
        assert x.grad.shape == (2, 2)


BAD = """
x.take(e + 5) | x.take(x) | torch.take_along_dim(w, i, 1) | torch.take_along_dim(w, w, 1) | w.gather(0, i)
w.gather(0, w) | w.gather(0, k + 2) | w.gather(0, k - 1) | w.gather(0, e[None]) | x.index_select(0, i + 5)
x.index_select(0, i - 1) | x.index_select(0, k) | x.index_select(0, x) | x.masked_select(i)
x.masked_select(M[:, :2]) | w.scatter(0, i, 1.) | w.scatter(0, k + 5, 1.) | w.scatter(0, k, q[None])
w.scatter(0, k, w[:1, :1]) | w.scatter(0, e[None], 1.) | w.scatter(0, w, 1.) | w.scatter(0, k, 1., reduce="mean")
w.scatter_add(0, k, k) | w.scatter_reduce(0, k, w, "nope") | x.index_add(0, i, x) | x.index_add(0, k, x)
x.index_add(0, i + 5, x[:2]) | x.index_add(0, i - 1, x[:2]) | x.index_add(0, x, x) | x.index_add(0, q, q)
w.index_add(0, i[1:], w[:1, :1]) | x.index_copy(0, i, x) | x.index_copy(0, i + 5, x[:2]) | x.index_copy(0, q, q)
x.index_fill(0, i + 5, 1.) | x.index_fill(0, x, 1.) | x.index_fill(0, i, x) | x.index_put((i + 5,), s)
x.masked_scatter(m, x[:1]) | x.masked_scatter(i[:1], x) | x.masked_scatter(m, i) | x.masked_scatter(m[:2], x)
x[i + 5] | x[x] | x[m[:2]] | w[i * 0, q] | x.scatter_(0, i, 1.) | x.index_fill_(0, i, 1.)
x[:2].scatter_add_(0, i[1:], x)
"""
BAD_TEXTS = [e.strip() for line in BAD.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_input(text: str, pytorch: Outcomes) -> None:
    compare_errors(text, pytorch)
