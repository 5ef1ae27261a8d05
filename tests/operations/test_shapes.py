"""Views, joins and rearrangements: PyTorch's and NumPy's functions, with gradients, replays and batches."""

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
x.narrow(0, 1, 2) | torch.narrow(w, 1, -2, 1) | w.narrow(0, 0, 0) | w.select(1, -1) | b.select(0, 1)
torch.select(x, 0, 2) | x.unbind() | b.unbind(1) | torch.unbind(w, dim=1) | x.split(2) | w.split(1, 1)
b.split([1, 3], 2) | torch.split(x, 5) | b.split([2, 0, 1], dim=1) | x.split_with_sizes([1, 2]) | x.chunk(2)
b.chunk(3, -1) | torch.chunk(w, 5, 1) | x[:0].chunk(2) | x.tensor_split(2) | b.tensor_split(3, dim=-1)
x.tensor_split([1, 5]) | x.tensor_split((2, 1)) | torch.tensor_split(x, q[1:]) | b.tensor_split(i[:1].sum(), 2)
x.hsplit(3) | w.hsplit([1]) | w.vsplit(2) | b.dsplit(2) | torch.dsplit(b, [3]) | x.unfold(0, 2, 1)
b.unfold(-1, 3, 1) | b.unfold(1, 2, 2) | x.unfold(0, 3, 5) | s.unfold(0, 1, 1) | x.unfold(0, 0, 1)
(b * 2).view(-1)[:6].unfold(0, 3, 2) | (c * 1).T.unfold(0, 2, 1) | x.flip(0) | x.flip(()) | b.flip(0, 2)
torch.flip(w, (1,)) | torch.flip(s, ()) | w.T.flip(-1) | w.fliplr() | torch.fliplr(b) | x.flipud() | torch.flipud(b)
x.roll(1) | x.roll(-4) | w.roll(2) | w.roll(1, 0) | b.roll((1, -1), (0, 2))
torch.roll(w, shifts=(1, 2), dims=(1, 1)) | x.roll(0) | s.roll(2) | x[:0].roll(1) | w.rot90() | w.rot90(2)
b.rot90(3, (1, 2)) | torch.rot90(b, -1, [2, 0]) | w.rot90(4) | b.movedim(0, 2) | b.movedim((0, 1), (2, 0))
torch.moveaxis(b, -1, 0) | s.movedim((), ()) | b.swapaxes(0, 2) | torch.swapdims(w, 0, 1) | b.adjoint() | b.mT | w.H
w.mT.mT | torch.adjoint(c) | x.broadcast_to((2, 3)) | torch.broadcast_to(s, (2,)) | torch.broadcast_tensors(x, w, s)
x.expand_as(w) | s.expand_as(x) | w.view_as(c.view(-1)[:6]) | w.T.reshape_as(w) | w.sum_to_size(3)
w.sum_to_size((2, 1)) | b.sum_to_size(3, 1) | x.sum_to_size(()) | w.sum_to_size(2, 3) | b.unflatten(2, (2, -1))
x.unflatten(0, (3, 1)) | torch.unflatten(w, -1, (-1, 3)) | w.ravel() | torch.ravel(w.T) | x.ravel() | s.ravel()
torch.atleast_1d(s) | torch.atleast_2d(x) | torch.atleast_3d(x) | torch.atleast_3d(w) | torch.atleast_3d(s)
torch.atleast_2d(x, s, w) | torch.hstack([x, x]) | torch.hstack((w, w * 2)) | torch.hstack([s, x])
torch.vstack([x, w]) | torch.row_stack([s, s]) | torch.dstack([x, x]) | torch.dstack([w, w])
torch.column_stack([x, x * 2]) | torch.column_stack([w.T, x]) | torch.column_stack([s, s])
torch.block_diag(w, x, s) | torch.block_diag(w) | torch.block_diag(c[:0], x) | x.repeat(2) | x.repeat(2, 2)
w.repeat(1, 2) | w.repeat((2, 1, 1)) | s.repeat(3) | x.tile(2) | x.tile((2, 1)) | torch.tile(b, (2,))
x.repeat_interleave(2) | w.repeat_interleave(2, 1) | s.repeat_interleave(2) | torch.repeat_interleave(w, i, dim=0)
x.repeat_interleave(q) | x.repeat_interleave(i[:1], dim=0) | torch.repeat_interleave(q) | w.repeat_interleave(2)
w.diagonal() | b.diagonal(1, 1, 2) | b.diagonal(-1, 2, 0) | torch.diagonal(c, 5) | (c * 1).T.diagonal(1) | x.diag()
x.diag(-1) | w.diag(1) | torch.diag(c) | x.diag_embed() | w.diag_embed(1) | w.diag_embed(-1, 0, 2)
torch.diag_embed(b, 0, 1, -1) | torch.diagflat(w, -2) | s.diagflat() | c.tril() | c.triu(1) | b.tril(-1)
torch.triu(w) | c.tril(7) | torch.tril_indices(3, 4, 1) | torch.triu_indices(2, 3)
torch.meshgrid(x, w[0], indexing="ij") | torch.meshgrid(x, s, x, indexing="xy") | torch.cartesian_prod(x, w[0])
torch.cartesian_prod(x) | torch.combinations(x) | torch.combinations(c[0], 3) | torch.combinations(x, 2, True)
torch.combinations(x, 0) | torch.combinations(x, 4) | pad(x, (1, 2)) | pad(w, (1, 0, 0, 2), "constant", 3.)
pad(b, (-1, 1, 0, -1)) | pad(w, (2, 1), "reflect") | pad(w, (2, 1), "replicate") | pad(w, (3, 2), "circular")
pad(b[None], (1, 2, 2, 0), "reflect") | pad(b[None], (1, 0, 3, 1), "replicate")
pad(b[None], (2, 4, 1, 1), "circular") | pad(w, (-1, 2), "replicate") | pad(w, (1, -1), "reflect") | pad(x, ())
torch.slice_scatter(w, x[None], 0, 1) | c.slice_scatter(w[0, :2].expand(4, 2), 1, 0, 4, 2)
w.select_scatter(x, 0, -1) | torch.select_scatter(b, w, 2, 1) | c.diagonal_scatter(x, 1)
torch.diagonal_scatter(b, w.T.repeat(2, 1)[:4], 0, 0, 1)
"""
TEXTS = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("text", TEXTS)
def test_like_pytorch(text: str, pytorch: Outcomes) -> None:
    compare(text, pytorch)


REPLAYED = [
    "b.flip(0, 2)", "b.roll((1, -1), (0, 2))", "b.movedim(0, 2)", "b.diagonal(1, 1, 2) * x[:1]", "b.unfold(-1, 3, 1)",
    "(b * 2).view(-1)[:6].unfold(0, 3, 2)", "w.diag_embed(1)", "c.tril(-1)", "torch.block_diag(w, x)", "w.repeat(2, 2)",
    "torch.repeat_interleave(w, i, dim=0)", "pad(w, (2, 1), 'reflect')", "pad(w, (1, 0, 0, 2))", "x.split(2)",
    "torch.meshgrid(x, s, indexing='xy')", "c.diagonal_scatter(x, 1)", "torch.combinations(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", REPLAYED)
def test_replayed(text: str) -> None:
    compare_replay(text)


NUMPYS = """
np.flip(x) | np.flip(w, 1) | np.flip(b, (0, -1)) | np.fliplr(w) | np.flipud(w) | np.roll(w, 2)
np.roll(w, 1, axis=0) | np.roll(b, (1, 2), (0, 2)) | np.roll(b, 1, (0, 1)) | np.roll(w, (1, 1), 1) | np.rot90(w)
np.rot90(b, 3, (1, 2)) | np.moveaxis(b, 0, -1) | np.moveaxis(b, [0, 1], [2, 0]) | np.rollaxis(b, 2)
np.rollaxis(b, 0, 3) | np.rollaxis(b, -1, 1) | np.swapaxes(b, 0, 2) | np.matrix_transpose(b)
np.linalg.matrix_transpose(w) | np.split(x, 3) | np.split(w, [1], axis=1) | np.array_split(x, 2)
np.array_split(w, 2, 1) | np.array_split(x, [1, 7]) | np.hsplit(w, 3) | np.hsplit(x, [1]) | np.vsplit(w, 2)
np.dsplit(b, 2) | np.unstack(b, axis=1) | np.hstack([x, x]) | np.hstack([w, w], dtype=np.float32)
np.vstack([x, w]) | np.dstack([x, x]) | np.column_stack([x, w.T]) | np.append(x, w) | np.append(w, w, axis=0)
np.append(x, 2.5) | np.delete(x, 1) | np.delete(w, [0, 2], 1) | np.delete(w, slice(0, 4, 2))
np.delete(b, -1, axis=2) | np.delete(x, [True, False, True]) | np.insert(x, 1, 5.) | np.insert(x, [0, 2], [7., 8.])
np.insert(w, 1, x, axis=0) | np.insert(w, 1, [1., 2.], axis=1) | np.insert(w, [1, 1], 3., axis=1)
np.insert(x, 3, [1., 2.]) | np.insert(x, -1, 4.) | np.block([[w, w], [np.ones((1, 3)), w[:1]]]) | np.block([x, s])
np.block([[x], [x]]) | np.block(w) | np.repeat(x, 2) | np.repeat(w, [1, 2], axis=0) | np.repeat(w, 2, axis=-1)
np.repeat(x, [0, 2, 1]) | np.tile(x, 2) | np.tile(w, (2, 1, 2)) | np.tile(b, 2) | np.resize(w, (2, 5))
np.resize(w, 4) | np.diag(x) | np.diag(c, 1) | np.diag(x, -1) | np.diagonal(b) | np.diagonal(b, 1, 2, 1)
np.diagflat(w) | np.diagflat(x, 1) | np.tril(c) | np.triu(b, 1) | np.tril(x, -1) | np.triu(x) | np.meshgrid(x, w[0])
np.meshgrid(x, w[0], x, indexing="ij") | np.meshgrid(x, w[0], sparse=True, copy=False) | np.broadcast_arrays(x, w)
np.atleast_1d(s) | np.atleast_2d(x) | np.atleast_3d(x) | np.atleast_3d(w, s) | np.pad(x, 2) | np.pad(w, (1, 2))
np.pad(w, ((1, 0), (0, 2)), constant_values=((1., 2.), (3., 4.))) | np.pad(w, 1, constant_values=s)
np.pad(x, (1, 2), "edge") | np.pad(w, ((0, 1), (4, 5)), "reflect") | np.pad(w, 3, "symmetric")
np.pad(w, 4, "wrap") | np.pad(w, (2, 1), "maximum") | np.pad(b, ((0, 0), (1, 1), (2, 0)), "minimum")
np.pad(w, 1, "mean") | np.pad(w, 2, "mean", stat_length=2) | np.pad(x, 3, "linear_ramp")
np.pad(w, (1, 2), "linear_ramp", end_values=(5., -1.)) | np.pad(w, {-1: (1, 2)}) | np.pad(w, 0, "edge")
"""
NUMPY_TEXTS = [e.strip() for line in NUMPYS.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("text", NUMPY_TEXTS)
def test_like_numpy(text: str) -> None:
    compare_numpy(text)


MAPPED: list[Callable[[Any], Any]] = [
    lambda a: a.flip(0, 1),
    lambda a: a.roll(1, -1),
    lambda a: a.diagonal(1),
    lambda a: a.unfold(1, 2, 1),
    lambda a: a.diag(),
    lambda a: a[0].diag_embed(),
    lambda a: a.tril(),
    lambda a: tape.pad(a, (1, 2)),
    lambda a: tape.pad(a, (2, 0), "reflect"),
    lambda a: a.repeat(2, 1).movedim(0, 1),
    lambda a: tape.stack(a.split(2, 1)),
    lambda a: tape.hstack([a, a]).chunk(2)[1],
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


VIEWS: list[Callable[[Any], Any]] = [
    lambda c: c.narrow(1, 1, 2),
    lambda c: c.select(0, 2),
    lambda c: c.diagonal(-1),
    lambda c: c.movedim(0, 1),
    lambda c: c.mT,
    lambda c: c.unfold(1, 2, 2),
    lambda c: c.unflatten(0, (2, 2)),
    lambda c: c.view_as(c.reshape(2, 8)),
    lambda c: c.ravel(),
]


@pytest.mark.parametrize("view", VIEWS)
def test_writes_through_views(view: Callable[[Any], Any], pytorch: Outcomes) -> None:
    """What is written through a view stands in its base, and gradients follow, as PyTorch has it."""

    def written(library: Any) -> list[Any]:
        leaf = library.tensor(np.arange(1.0, 17).reshape(4, 4), requires_grad=True)
        base = leaf * 1
        part = view(base)
        part.mul_(part.detach() * 0 + 3)
        part.add_(leaf.sum())
        (base * base).sum().backward()
        return [base.detach().numpy(), leaf.grad.numpy()]

    for ours, theirs in zip(written(tape), pytorch(written, f"view {VIEWS.index(view)}"), strict=True):
        np.testing.assert_allclose(ours, theirs)


PARTS: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda c: c.split([1, 3])[1], lambda c: c[1:]),
    (lambda c: c.unbind(1)[2], lambda c: c[:, 2]),
    (lambda c: c.chunk(2, 1)[1], lambda c: c[:, 2:]),
    (lambda c: np.hsplit(c, 2)[0], lambda c: c[:, :2]),
    (lambda c: np.swapaxes(c, 0, 1), lambda c: c.T),
]


@pytest.mark.parametrize(("part", "alike"), PARTS)
def test_writes_through_one_of_several_views(part: Callable[[Any], Any], alike: Callable[[Any], Any]) -> None:
    """PyTorch refuses these; they are the views that slices give."""
    found = []
    for view in (part, alike):
        leaf = tape.tensor(np.arange(1.0, 17).reshape(4, 4), requires_grad=True)
        base = leaf * 1
        view(base).mul_(leaf[0, 0] * 3)
        (base * base).sum().backward()
        found.append((base.detach().numpy(), leaf.grad.numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_windows_that_overlap_cannot_be_written() -> None:
    x = tape.zeros(6)
    with pytest.raises(RuntimeError, match="more than one element"):
        x.unfold(0, 3, 2).fill_(1.0)
    with pytest.raises(RuntimeError, match="more than one element"):
        x.as_strided((2, 3), (2, 1)).fill_(1.0)
    assert x.sum().item() == 0


def test_windows_as_many_as_elements() -> None:
    """Six elements of windows over a base of six, of which they meet one twice and another never."""
    x = tape.tensor(np.arange(6.0), requires_grad=True)
    (x.unfold(0, 3, 2) * tape.tensor([[1.0, 2, 3], [4, 5, 6]])).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 2, 7, 5, 6, 0])


@pytest.mark.parametrize(
    "move", [lambda y: y.flip(0), lambda y: y.roll(1), lambda y: tape.pad(y, (1, 1)), lambda y: y.repeat(2)[:3]]
)
def test_a_cut_goes_through_what_moves(move: Callable[[Any], Any]) -> None:
    """An element that a select leaves out contributes nothing: not 0 times what is infinite."""
    x = tape.tensor([0.0, 0.0, 0.0], requires_grad=True)
    y = move(x.sqrt())
    tape.where(tape.zeros(*y.shape) > 1, y, 1.0).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 0])


def test_triangles_cut() -> None:
    x = tape.tensor([[1.0, 0.0], [4.0, 9.0]], requires_grad=True)
    x.sqrt().tril().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0.5, 0], [0.25, 1 / 6]])


BAD = """
x.narrow(0, 1, 3) | x.narrow(0, 5, 1) | x.narrow(0, 0, -1) | s.narrow(0, 0, 1) | x.select(0, 3) | s.select(0, 0)
s.unbind() | x.unbind(1) | x.split(-1) | x.split(0) | x.split([1, 1]) | x.split([-1, 4]) | x.chunk(0)
x.tensor_split(0) | w.hsplit(2) | x.vsplit(1) | w.dsplit(1) | s.hsplit(1) | x.unfold(0, 5, 1) | x.unfold(0, 2, 0)
x.unfold(0, -1, 1) | x.unfold(1, 1, 1) | torch.flip(x, (0, 0)) | x.fliplr() | s.flipud() | x.roll((1, 2), 0)
s.roll(1, 0) | x.rot90() | w.rot90(1, (0,)) | w.rot90(1, (0, 0)) | w.movedim((0, 1), (0,))
w.movedim((0, 0), (0, 1)) | w.movedim(0, 2) | x.mT | x.H | x.adjoint() | x.swapaxes(0, 1) | x.broadcast_to((2, 2))
torch.broadcast_tensors(x, w.T) | x.expand_as(w.T) | w.view_as(x) | x.sum_to_size(2) | x.unflatten(0, (2, 2))
x.unflatten(0, ()) | x.unflatten(1, (3,)) | torch.hstack([]) | torch.vstack([x, w.T]) | torch.block_diag(b)
w.repeat(2) | x.repeat(-1) | x.repeat_interleave(-1) | x.repeat_interleave(i) | x.repeat_interleave(-q)
x.repeat_interleave(j) | x.repeat_interleave(2, output_size=5) | b.diag() | s.diag() | x.diagonal()
w.diagonal(0, 0, 0) | x.diag_embed(0, 0, 0) | x.tril() | torch.tril_indices(-1, 2)
torch.meshgrid(x, w, indexing="ij") | torch.meshgrid() | torch.meshgrid(x, indexing="zz") | torch.cartesian_prod(w)
torch.combinations(w) | torch.combinations(x, -1) | pad(x, (1,)) | pad(x, (1, 1, 1, 1)) | pad(x, (-2, -2))
pad(w, (3, 0), "reflect") | pad(w, (4, 0), "circular") | pad(w, (1, 1), "nope") | pad(w, (1, 1), "reflect", 2.)
w.slice_scatter(x, 0) | w.select_scatter(s, 0, 1) | w.select_scatter(x, 0, 5) | w.diagonal_scatter(x)
x.fill_diagonal_(1.)
"""
BAD_TEXTS = [e.strip() for line in BAD.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_input(text: str, pytorch: Outcomes) -> None:
    compare_errors(text, pytorch)


@pytest.mark.quick
@pytest.mark.parametrize("join", [tape.cat, tape.stack])
def test_joins_of_mixed_operands_again_and_again(join: Any) -> None:
    """What a call converts is no operand that the next one can repeat."""
    x, y = tape.tensor([1.0, 2.0], requires_grad=True), tape.tensor([3.0, 4.0], dtype=tape.float32, requires_grad=True)
    for _ in range(3):
        x.grad = y.grad = None
        found = join([x, y, np.ones(2), x.detach()])
        assert found.dtype == tape.float64
        np.testing.assert_array_equal(found.detach().numpy().reshape(-1), [1, 2, 3, 4, 1, 1, 1, 2])
        (found * found).sum().backward()
        assert (x.grad.tolist(), y.grad.tolist(), y.grad.dtype) == ([2.0, 4.0], [6.0, 8.0], tape.float32)
        again = join([x, x])
        assert again.requires_grad
        with tape.no_grad():
            assert not join([x, x]).requires_grad
    with pytest.raises(RuntimeError, match=r"[Ss]izes|equal size"):
        join([tape.ones(2, 2), tape.ones(3, 3)])


@pytest.mark.quick
def test_extrema_again_and_again() -> None:
    """Ties share, also where nan ties with nan; the shapes stay those of the arguments."""
    for values in ([1.0, 3.0, 3.0], [np.nan, 1.0, np.nan], [0.0, -0.0, -1.0], [1.0, 3.0, 3.0]):
        x = tape.tensor([values], requires_grad=True)
        top = np.max(values)
        tied = np.isnan(values) if np.isnan(top) else np.array(values) == top
        for shape, call in (((), x.amax), ((), x.max), ((1,), lambda: x.amax(1)), ((1, 1), lambda: x.amax(1, True))):  # noqa: B023
            x.grad = None
            found = call()
            assert tuple(found.shape) == shape
            found.sum().backward()
            np.testing.assert_array_equal(x.grad.numpy()[0], tied / tied.sum())
