"""Products of vectors, matrices, batches and tensors, against NumPy's values and PyTorch's gradients and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes, Raised, result_or_error

if TYPE_CHECKING:
    from collections.abc import Callable

quick = pytest.mark.quick


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-1.5, 1.5, shape) for shape in shapes]


def swept(library: Any, function: Callable[..., Any], arrays: list[Any]) -> tuple[Any, list[Any]]:
    """Return the value and the gradients of the sum weighted by 1, 2, 3, ..."""
    inputs = [library.tensor(a, requires_grad=True) for a in arrays]
    value = function(library, *inputs)
    value.backward(library.arange(1.0, value.numel() + 1, dtype=value.dtype).reshape(value.shape))
    return value.detach().numpy(), [x.grad.numpy() for x in inputs]


def agree(pytorch: Outcomes, key: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    arrays = draw(*shapes)
    value, gradients = swept(tape, function, arrays)
    expected, theirs = pytorch(lambda torch: swept(torch, function, arrays), key)
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13)
    for got, want in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


MATMUL = [
    ((2, 3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)), ((1, 3, 4), (6, 4, 1)), ((2, 3, 0), (0, 4)), ((0, 3, 4), (4, 5)), ((2, 0, 4), (2, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), MATMUL, ids=str)
def test_matmul_of_batches(a: tuple[int, ...], b: tuple[int, ...], pytorch: Outcomes) -> None:
    if 0 not in (*a, *b) and len(a) != 1:
        agree(pytorch, f"matmul {a} {b}", lambda m, x, y: m.matmul(x, y), a, b)
    x, y = draw(a, b)
    np.testing.assert_allclose((tape.tensor(x) @ y).numpy(), x @ y, rtol=1e-13)
    np.testing.assert_allclose((x @ tape.tensor(y)).numpy(), x @ y, rtol=1e-13)
    np.testing.assert_allclose(np.matmul(tape.tensor(x), y).numpy(), x @ y, rtol=1e-13)


@quick
def test_matmul_of_views_and_expanded_operands(pytorch: Outcomes) -> None:
    agree(pytorch, "views", lambda _, x, y: x.transpose(-1, -2) @ y.expand(3, 4, 2), (3, 4, 4), (1, 4, 2))


FORMS: dict[str, tuple[Any, ...]] = {
    "bmm": (lambda m, a, b: m.bmm(a, b), (2, 3, 4), (2, 4, 2)),
    "addmm": (lambda m, c, a, b: m.addmm(c, a, b, beta=2, alpha=0.5), (2,), (3, 4), (4, 2)),
    "addmm-plain": (lambda _, c, a, b: c.addmm(a, b), (3, 2), (3, 4), (4, 2)),
    "addmv": (lambda m, c, a, b: m.addmv(c, a, b, alpha=3), (3,), (3, 4), (4,)),
    "addr": (lambda m, c, a, b: m.addr(c, a, b, beta=3), (3, 4), (3,), (4,)),
    "baddbmm": (lambda m, c, a, b: m.baddbmm(c, a, b, beta=2), (1, 2), (2, 3, 4), (2, 4, 2)),
    "addbmm": (lambda m, c, a, b: m.addbmm(c, a, b), (3, 2), (2, 3, 4), (2, 4, 2)),
    "outer": (lambda m, a, b: m.outer(a, b), (3,), (4,)),
    "ger": (lambda _, a, b: a.ger(b), (3,), (4,)),
    "inner": (lambda m, a, b: m.inner(a, b), (2, 3), (4, 3)),
    "inner-vectors": (lambda m, a, b: m.inner(a, b), (3,), (3,)),
    "vdot": (lambda m, a, b: m.vdot(a, b), (3,), (3,)),
    "kron": (lambda m, a, b: m.kron(a, b), (2, 3), (2, 1, 2)),
    "trace": (lambda m, a: m.trace(a), (3, 4)),
    "cross": (lambda m, a, b: m.cross(a, b, dim=0), (3, 2), (3, 2)),
    "linalg.cross": (lambda m, a, b: m.linalg.cross(a, b), (4, 3), (1, 3)),
    "linalg.vecdot": (lambda m, a, b: m.linalg.vecdot(a, b), (2, 3), (3,)),
    "tensordot": (lambda m, a, b: m.tensordot(a, b, 2), (2, 3, 4), (3, 4, 2)),
    "tensordot-lists": (lambda m, a, b: m.tensordot(a, b, ([0, 2], [1, 0])), (2, 3, 4), (4, 2, 5)),
    "tensordot-0": (lambda m, a, b: m.tensordot(a, b, 0), (2, 3), (2,)),
    "chain_matmul": (lambda m, a, b, c: m.linalg.multi_dot([a, b, c]), (2, 3), (3, 6), (6, 1)),
    "multi_dot": (lambda m, a, b, c, d: m.linalg.multi_dot([a, b, c, d]), (3,), (3, 6), (6, 2), (2,)),
}


@pytest.mark.parametrize("name", FORMS)
def test_products_are_those_of_pytorch(name: str, pytorch: Outcomes) -> None:
    function, *shapes = FORMS[name]
    agree(pytorch, name, function, *shapes)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ji,jk->ki", (3, 2), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)), ("bij,bij->b", (2, 3, 4), (2, 3, 4)), ("i,i->", (3,), (3,)),
    ("i,j->ij", (2,), (3,)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ij->j", (2, 3)), ("ii->", (3, 3)),
    ("ii->i", (3, 3)),
    ("ii,ij->j", (3, 3), (3, 2)), ("iji->j", (2, 3, 2)), ("iijk,k->jk", (2, 2, 3, 4), (4,)),
    ("...ij,...jk->...ik", (2, 3, 4), (5, 1, 4, 2)), ("i...,j...->ij...", (2, 3), (4, 3)), ("...i->...", (2, 3)),
    ("ij,k->ij", (2, 3), (4,)), ("ij,kj,kl->il", (2, 3), (4, 3), (4, 2)), ("a,ab,abc->abc", (2,), (2, 3), (2, 3, 2)),
    ("ij,ij->ij", (2, 3), (1, 3)), ("ij,jk->k", (1, 3), (3, 2)), ("bi,io,bo->b", (4, 3), (3, 2), (4, 2)),
    ("hbik,hbjk->bhij", (2, 3, 4, 2), (2, 3, 5, 2)), ("ij,jk->ik", (2, 0), (0, 3)), ("aab,b->a", (3, 3, 2), (2,)),
]  # fmt: skip


SWEPT = {
    "ij,jk->ik", "bij,bjk->bik", "bij,bij->b", "iji->j", "iijk,k->jk", "...ij,...jk->...ik", "ij,kj,kl->il", "ij,k->ij",
    "bi,io,bo->b", "ij,jk->k",
}  # fmt: skip
"""Those whose gradients are compared too: each takes kernels of its own, and they take time to compile."""


@pytest.mark.parametrize("given", EQUATIONS, ids=str)
def test_einsum(given: tuple[Any, ...], pytorch: Outcomes) -> None:
    equation, *shapes = given
    if equation in SWEPT:
        agree(pytorch, f"{equation} {shapes}", lambda m, *xs: m.einsum(equation, *xs), *shapes)
    arrays = draw(*shapes)
    found = np.einsum(equation, tape.tensor(arrays[0]), *arrays[1:])
    np.testing.assert_allclose(found.numpy(), np.einsum(equation, *arrays), rtol=1e-12, atol=1e-13)


@quick
def test_einsum_has_second_gradients_and_replays() -> None:
    arrays = [tape.tensor(a, requires_grad=True) for a in draw((2, 3), (3, 2, 2), (2,))]

    def function(*xs: Any) -> Any:
        return tape.einsum("ij,jkk,k->i", *xs)

    assert tape.autograd.gradcheck(function, arrays)
    assert tape.autograd.gradgradcheck(function, arrays)
    program = tape.record(function, *arrays)
    other = [x.detach() * 0.5 for x in arrays]
    np.testing.assert_allclose(program(*other).numpy(), function(*other).numpy(), rtol=1e-13)


def test_einsum_takes_labels_as_numbers() -> None:
    a, b = draw((2, 3, 4), (4, 3))
    expected = np.einsum("ijk,kj->i", a, b)
    for found in (
        tape.einsum(tape.tensor(a), [0, 1, 2], tape.tensor(b), [2, 1], [0]),
        tape.einsum("ijk,kj", [tape.tensor(a), tape.tensor(b)]),
        np.einsum(tape.tensor(a), [0, 1, 2], b, [2, 1]),
        tape.einsum(tape.tensor(a), [Ellipsis, 1, 2], tape.tensor(b), [2, 1], [Ellipsis]),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13)


WRONG = """
m.einsum('ij,jk', w, w) | m.einsum('ij', w, w) | m.einsum('ijk', w) | m.einsum('ij->ijj', w) | m.einsum('ij->ik', w)
m.matmul(o(2, 3, 4), o(3, 4, 5)) | m.matmul(o(2, 3, 4), o(5)) | m.matmul(o(3), o(2, 4, 5)) | m.matmul(o(()), x)
m.matmul(o(2, 3, 4), o(2, 5, 5)) | m.matmul(o(2, 3, 4), o(5, 5)) | m.bmm(o(2, 2, 3), o(3, 3, 3)) | m.bmm(w, w)
m.addmm(w, w, w) | m.addr(x, x, w) | m.outer(w, x) | m.inner(x, o(2)) | m.vdot(x, o(2)) | m.vdot(w, w) | m.trace(x)
m.tensordot(w, w, dims=1) | m.tensordot(w, w, dims=([0], [1])) | m.tensordot(w, w, dims=3) | m.linalg.multi_dot([w])
m.linalg.multi_dot([w, w]) | m.linalg.cross(x, o(2)) | m.linalg.cross(o(2), o(2)) | m.linalg.vecdot(x, o(2))
"""
CASES = [case.strip() for line in WRONG.strip().splitlines() for case in line.split("|")]


def raised_by(m: Any, text: str) -> Raised:
    names = {"m": m, "o": m.ones, "w": m.ones(2, 3), "x": m.ones(3)}
    error = result_or_error(lambda _: eval(text, names), m)  # noqa: S307
    assert isinstance(error, Raised)
    return error


def words(error: Raised) -> set[str]:
    """Return the numbers, and the words longer than three letters, of a message."""
    text = "".join(c if c.isalnum() else " " for c in error.text.lower())
    return {word for word in text.split() if len(word) > 3 or word.isdigit()}


@pytest.mark.parametrize("text", CASES)
def test_wrong_shapes_raise_what_pytorch_raises(text: str, pytorch: Outcomes) -> None:
    ours, theirs = raised_by(tape, text), pytorch(lambda torch: raised_by(torch, text), text)
    assert theirs.classes[0] in ours.classes
    shared = words(ours) & words(theirs)
    assert len(shared) > 0.6 * len(words(theirs)), f"{ours} | {theirs}"


NUMPY: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (np.dot, ((2, 3, 4), (5, 4, 2))), (np.dot, ((4,), (5, 4, 2))), (np.dot, ((2, 3), (3,))), (np.dot, ((), (3,))),
    (np.inner, ((2, 3), (4, 3))), (np.outer, ((2, 2), (3,))), (np.vdot, ((2, 3), (2, 3))), (np.kron, ((2,), (2, 2))),
    (np.tensordot, ((2, 3, 4), (3, 4, 2))), (lambda a, b: np.tensordot(a, b, ((0,), (1,))), ((2, 3), (4, 2))),
    (np.linalg.tensordot, ((2, 3, 4), (3, 4, 2))), (np.linalg.outer, ((2,), (3,))),
    (np.vecdot, ((2, 3), (3,))), (lambda a, b: np.vecdot(a, b, axis=0), ((2, 3), (2, 3))),
    (np.matvec, ((2, 3, 4), (4,))),
    (np.vecmat, ((3,), (2, 3, 4))), (np.linalg.vecdot, ((2, 3), (3,))),
    (np.cross, ((2, 3), (2, 3))), (lambda a, b: np.cross(a, b, 0, -1, 0), ((3, 4), (4, 3))),
    (lambda a, b: np.cross(a, b, axis=0), ((3, 4), (3, 4))), (np.linalg.cross, ((2, 3), (2, 3))),
    (np.trace, ((3, 4),)), (lambda a: np.trace(a, 1, 2, 0), ((3, 2, 4),)), (np.linalg.trace, ((2, 3, 3),)),
    (np.linalg.diagonal, ((2, 3, 4),)), (np.linalg.matmul, ((2, 3), (3, 2))),
    (np.convolve, ((4,), (3,))), (lambda a, v: np.convolve(a, v, "same"), ((4,), (3,))),
    (lambda a, v: np.convolve(a, v, "same"), ((3,), (6,))), (lambda a, v: np.convolve(a, v, "valid"), ((2,), (5,))),
    (np.polyval, ((4,), (2, 3))), (np.polyval, ((3,), ())),
    (lambda *xs: np.linalg.multi_dot(xs), ((2,), (2, 3), (3, 4))),
    (lambda *xs: np.linalg.multi_dot(xs), ((2,), (2, 3), (3,))),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(NUMPY)))
def test_numpy_functions_have_numpy_meaning(k: int) -> None:
    function, shapes = NUMPY[k]
    arrays = draw(*shapes)
    expected = function(*arrays)
    found = function(*(tape.tensor(a, requires_grad=True) for a in arrays))
    assert found.shape == np.shape(expected)
    assert found.requires_grad
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12, atol=1e-13)


def test_products_of_few_operands() -> None:
    a, b = (tape.tensor(x) for x in draw((2, 3), (3, 2)))
    np.testing.assert_array_equal(tape.chain_matmul(a), a)
    np.testing.assert_allclose(tape.chain_matmul(a, b).numpy(), a.numpy() @ b.numpy(), rtol=1e-13)
    nan = tape.full((2, 2), float("nan"))
    assert np.isfinite(tape.addmm(nan, a, b, beta=0).numpy()).all(), "with beta 0 the input is not read"
    with pytest.raises(RuntimeError, match="no dimension of size 3"):
        tape.cross(tape.ones(2), tape.ones(2))
    with pytest.raises(ValueError, match="cannot be empty"):
        np.convolve(tape.ones(0), [1.0])
    with pytest.raises(TypeError, match="out"):
        np.dot(a, b, out=np.zeros((2, 2)))


def test_batches_of_float32_and_of_mixed_dtypes() -> None:
    a, b = (tape.tensor(x.astype(np.float32), requires_grad=True) for x in draw((2, 2, 3), (2, 3, 2)))
    assert (a @ b).dtype == np.float32
    (a @ b.double()).sum().backward()
    assert a.grad.dtype == b.grad.dtype == np.float32
    np.testing.assert_array_equal((tape.ones(2, 2, 2, dtype=tape.int64) @ tape.ones(2, dtype=tape.int64)).numpy(), 2)


def test_vmap_of_batches() -> None:
    a, b = (tape.tensor(x) for x in draw((3, 2, 2, 4), (3, 2, 4, 2)))
    np.testing.assert_allclose(tape.vmap(tape.bmm)(a, b).numpy(), a.numpy() @ b.numpy(), rtol=1e-13)
