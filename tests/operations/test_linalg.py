"""Linear algebra: PyTorch's values, gradients, messages; singular and empty input; SciPy's structured solves."""

from __future__ import annotations

import doctest
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.kinds.routine import Routine
from kernels.operations import OPS
from kernels.rules.op import turned
from tape.recording import foreign_calls
from tests.support import matrix_domains, record_cases
from tests.support.pytorch_outcomes import Outcomes, Raised

if TYPE_CHECKING:
    from collections.abc import Callable

quick = pytest.mark.quick
_MATRICES = "contractions decompositions solves"
DOCUMENTED = (
    *(f"operations.{name}" for name in _MATRICES.split()),
    *("operations.matmul", "numpy_interface.op_table", "sparse", "quadrature", "linalg"),
)
NAMES = (
    "bmm", "cross", "convolve", "solve", "inv", "det", "slogdet", "solve_triangular", "pinv", "lstsq", "matrix_exp",
    "cholesky", "qr", "eigh", "eigvalsh", "svd", "svdvals", "lu_factor", "solve_banded", "solveh_banded",
    "solve_toeplitz", "spmm", "spsolve", "interp", "hermite", "interpn", "spectral", "singular", "cofactors",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_records_keep_float32_and_push_forward(name: str) -> None:
    op = OPS[name]
    assert isinstance(op, Routine)
    case, *_ = record_cases.cases_of(op)
    single = record_cases.tensors(case.leaves(np.float32))
    result = case.run(*single)
    assert result.dtype == np.float32
    result.sum().backward()
    assert {x.grad.dtype for x in single} == {np.dtype(np.float32)}
    np.testing.assert_allclose(result.detach().numpy(), case.expected(*case.leaves(np.float64)), rtol=2e-4, atol=2e-4)
    rng = np.random.default_rng(0)
    inputs = record_cases.tensors(case.leaves(np.float64))
    tangents = [tape.tensor(rng.uniform(-1, 1, x.shape)) for x in inputs]
    value, pushed = tape.func.jvp(case.run, tuple(inputs), tuple(tangents))
    weights = tape.tensor(rng.uniform(-1, 1, value.shape))
    pulled = tape.autograd.grad(case.run(*inputs), inputs, weights)
    expected = sum((g * t).sum().item() for g, t in zip(pulled, tangents, strict=True))
    assert (pushed * weights).sum().item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def matrices(*given: tuple[str, tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(4)
    return [record_cases.draw(rng, domain, shape, np.float64) for domain, shape in given]


GOOD, SPD, REAL = "wellconditioned", "spd", "real"


def on(results: Any, function: Callable[..., Any]) -> Any:
    return function(results)


A, B = (GOOD, (3, 3)), (REAL, (3, 2))
BATCH = (GOOD, (2, 3, 3))
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "solve": (lambda m, a, b: m.linalg.solve(a, b), A, B),
    "solve-vector": (lambda m, a, b: m.linalg.solve(a, b), A, (REAL, (3,))),
    "solve-batch": (lambda m, a, b: m.linalg.solve(a, b), BATCH, (REAL, (1, 3, 2))),
    "solve-batch-vectors": (lambda m, a, b: m.linalg.solve(a, b), BATCH, (REAL, (2, 3))),
    "solve-right": (lambda m, a, b: m.linalg.solve(a, b, left=False), A, (REAL, (2, 3))),
    "inverse": (lambda m, a: m.inverse(a) + a.inverse() + m.linalg.inv(a), BATCH),
    "det": (lambda m, a: m.det(a) + a.det() * m.linalg.det(a), BATCH),
    "slogdet": (lambda m, a: m.slogdet(-a)[1] + m.linalg.slogdet(a).logabsdet * a.slogdet().sign, BATCH),
    "logdet": (lambda m, a: m.logdet(a) + a.logdet(), BATCH),
    "cholesky": (lambda m, a: m.linalg.cholesky(a), (SPD, (2, 3, 3))),
    "cholesky-upper": (lambda m, a: m.linalg.cholesky(a, upper=True), (SPD, (3, 3))),
    "qr": (lambda m, a: on(m.linalg.qr(a), lambda f: f.Q @ f.R + f.R.abs()), A),
    "qr-tall": (lambda m, a: on(m.linalg.qr(a), lambda f: f.Q.abs().sum() + f.R.abs()), (REAL, (4, 2))),
    "qr-wide": (lambda m, a: on(m.linalg.qr(a, "complete"), lambda f: f.Q.abs().sum() + f.R.abs()), (REAL, (2, 4))),
    "eigh": (lambda m, a: on(m.linalg.eigh(a), lambda f: f.eigenvectors.abs() * f[0][:, None]), (SPD, (2, 3, 3))),
    "eigvalsh": (lambda m, a: m.linalg.eigvalsh(a, UPLO="U"), (SPD, (3, 3))),
    "svd": (lambda m, a: on(m.linalg.svd(a), lambda f: f.U.abs() * f.S + f.Vh.abs()), A),
    "svd-tall": (lambda m, a: on(m.linalg.svd(a, False), lambda f: f[0].abs().sum() + f.Vh.abs()), (REAL, (4, 2))),
    "svd-old": (lambda m, a: on(m.svd(a), lambda f: f.U.abs() @ f.V.abs().T * f.S.sum()), (REAL, (2, 4))),
    "svd-values-of-full": (lambda m, a: m.linalg.svd(a).S, (REAL, (4, 2))),
    "svdvals": (lambda m, a: m.linalg.svdvals(a), (REAL, (2, 3, 2))),
    "pinv": (lambda m, a: m.linalg.pinv(a) + m.pinverse(a), (REAL, (4, 2))),
    "lstsq": (lambda m, a, b: m.linalg.lstsq(a, b).solution, (REAL, (4, 2)), (REAL, (4, 1))),
    "lu_factor": (lambda m, a: m.linalg.lu_factor(a)[0], BATCH),
    "lu": (lambda m, a: on(m.linalg.lu(a), lambda f: f.L * 2 + f.P @ f.U), A),
    "lu_solve": (lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b), BATCH, (REAL, (2, 3, 2))),
    "lu_solve-adjoint": (lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, adjoint=True), A, B),
    "lu_solve-right": (
        lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, left=False),
        A, (REAL, (2, 3)),
    ),
    "solve_triangular": (lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True), A, B),
    "solve_triangular-right": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True), A, (REAL, (2, 3)),
    ),
    "cholesky_solve": (lambda m, a, b: m.cholesky_solve(b, a.tril()) + m.cholesky_solve(b, a.triu(), upper=True), A, B),
    "cholesky_inverse": (lambda m, a: m.cholesky_inverse(a.tril()), A),
    "matrix_norm": (lambda m, a: m.linalg.matrix_norm(a) + m.linalg.matrix_norm(a, 2), BATCH),
    "matrix_norm-1": (lambda m, a: m.linalg.matrix_norm(a, 1, (0, 2)), BATCH),
    "matrix_norm-inf": (lambda m, a: m.linalg.matrix_norm(a, -float("inf"), (0, 2), keepdim=True), BATCH),
    "matrix_norm-nuc": (lambda m, a: m.linalg.matrix_norm(a, "nuc", keepdim=True), (REAL, (2, 3, 2))),
    "norm": (lambda m, a: m.linalg.norm(a) + m.linalg.norm(a[0], "nuc") + m.linalg.norm(a[0, 0], 3), BATCH),
    "norm-dims": (lambda m, a: m.linalg.norm(a, dim=(0, 2)) + m.linalg.norm(a, 1, dim=(0, 2)), BATCH),
    "cond": (lambda m, a: m.linalg.cond(a) + m.linalg.cond(a, -2), A),
    "matrix_power": (lambda m, a: m.matrix_power(a, 5) + a.matrix_power(-2) + m.linalg.matrix_power(a, 0), A),
    "matrix_exp": (lambda m, a: m.matrix_exp(a) + m.linalg.matrix_exp(a), BATCH),
    "tensorsolve": (lambda m, a, b: m.linalg.tensorsolve(a.reshape(3, 3, 1), b), A, (REAL, (3,))),
    "tensorinv": (lambda m, a: m.linalg.tensorinv(a.reshape(1, 3, 3), ind=2), A),
    "vander": (lambda m, x: m.linalg.vander(x, N=4), (REAL, (2, 3))),
    "diagonal": (lambda m, a: m.linalg.diagonal(a, offset=1), BATCH),
}  # fmt: skip


def swept(m: Any, function: Callable[..., Any], inputs: list[Any]) -> tuple[Any, list[Any]]:
    value = function(m, *inputs)
    value.backward(m.arange(1.0, value.numel() + 1, dtype=m.float64).reshape(value.shape))
    return value.detach().numpy(), [x.grad.numpy() for x in inputs]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_pytorch(name: str, pytorch: Outcomes) -> None:
    function, *given = FUNCTIONS[name]
    arrays = matrices(*given)

    def run(m: Any) -> tuple[Any, list[Any]]:
        return swept(m, function, [m.tensor(a, requires_grad=True) for a in arrays])

    (value, gradients), (expected, theirs) = run(tape), pytorch(run, name)
    np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-12)
    for got, want in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


WRONG = """
L.solve(r, v) | L.inv(v) | L.inv(i) | L.solve(i, i) | L.solve(e, o(3, 1)) | L.det(r) | L.det(i) | L.eigh(r) | L.eigh(v)
L.svd(v) | L.svd(i) | L.qr(v) | L.qr(r, mode='x') | L.cholesky(r) | L.cholesky(i) | L.slogdet(r) | L.lstsq(r, v)
L.solve_triangular(r, v, upper=True) | L.solve_triangular(e, o(2), upper=True) | L.matrix_norm(v)
L.matrix_norm(r, 'x') | L.cond(r, 1) | L.matrix_power(r, 2) | L.matrix_exp(r) | L.matrix_rank(v)
L.tensorinv(r, ind=0) | L.tensorinv(r, ind=1)
L.solve(z, o(2)) | L.solve(o(3, 2, 2), o(3, 2, 1)) | L.inv(z) | L.inv(m.stack([e, z])) | L.cholesky(-e) | L.lu_factor(z)
L.matrix_power(z, -1) | L.cholesky(m.stack([e, -e])) | L.lstsq(e, o(2, 1), driver='x') | L.vander(v, N=0)
"""


@pytest.mark.parametrize("text", [c.strip() for line in WRONG.strip().splitlines() for c in line.split("|")])
def test_bad_input_raises_what_pytorch_raises(text: str, pytorch: Outcomes) -> None:
    def run(m: Any) -> Any:
        names = {"m": m, "L": m.linalg, "o": m.ones, "r": m.ones(2, 3), "v": m.ones(3), "e": m.eye(2)}
        names |= {"i": m.ones(2, 2, dtype=m.int64), "z": m.zeros(2, 2)}
        return eval(text, names)  # noqa: S307

    theirs = pytorch.or_error(run, text)
    assert isinstance(theirs, Raised)
    with pytest.raises(RuntimeError) as caught:
        run(tape)
    ours = caught.value
    if "LinAlgError" in theirs.classes[0]:
        assert isinstance(ours, tape.linalg.LinAlgError)
        assert isinstance(ours, np.linalg.LinAlgError)
    clean = [
        {w for w in "".join(c if c.isalnum() else " " for c in text.lower()).split() if len(w) > 3}
        for text in (str(ours), theirs.text)
    ]
    assert len(clean[0] & clean[1]) > 0.6 * len(clean[1]), f"{ours} | {theirs}"


@quick
def test_singular_matrices() -> None:
    x = tape.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    with pytest.raises(tape.linalg.LinAlgError, match="singular"):
        tape.linalg.solve_triangular(x * 0, tape.ones(2, 1), upper=True)
    assert tape.logdet(x).item() == -np.inf
    assert np.isnan(tape.logdet(-tape.eye(3)).item())
    assert tape.linalg.cond(x.detach(), 1).item() == np.inf
    assert tape.linalg.cond(tape.stack([x.detach(), tape.eye(2)]), "fro").tolist() == [np.inf, pytest.approx(2.0)]
    for create in (False, True):
        with pytest.raises(tape.linalg.LinAlgError, match="singular"):
            tape.autograd.grad(tape.linalg.slogdet(x).logabsdet, x, create_graph=create)
    assert tape.linalg.matrix_rank(x).item() == 1
    assert tape.linalg.matrix_rank(x, atol=10.0).item() == 0
    tape.linalg.det(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [[4, -2], [-2, 1]], rtol=1e-14)
    rng = np.random.default_rng(0)
    low = rng.normal(size=(4, 3)) @ rng.normal(size=(3, 4))
    found = tape.tensor(low, requires_grad=True)
    tape.linalg.det(found).backward()
    slopes = [np.linalg.det(low + e.reshape(4, 4)) for e in np.eye(16)]  # the determinant is linear in each element
    np.testing.assert_allclose(found.grad.numpy().reshape(-1), slopes, atol=1e-12)
    zero = tape.zeros(2, 2, requires_grad=True)
    tape.linalg.matrix_norm(zero).backward()
    assert zero.grad.tolist() == [[0, 0], [0, 0]]


def test_equal_values_do_no_harm_where_nothing_is_asked_of_their_vectors() -> None:
    x = tape.eye(2).requires_grad_()
    w, v = tape.linalg.eigh(x)
    np.testing.assert_allclose(tape.autograd.grad(w.sum(), x)[0].numpy(), np.eye(2))
    np.testing.assert_allclose(tape.autograd.grad(tape.linalg.svd(x).S.sum(), x)[0].numpy(), np.eye(2))
    g = tape.autograd.grad((tape.linalg.eigh(x)[1] * tape.tensor([[1.0, 2.0], [3.0, 4.0]])).sum(), x)[0]
    assert not np.isfinite(g.numpy()).all()
    del v


def test_what_has_no_gradient_says_so() -> None:
    x = tape.ones(3, 2, requires_grad=True) * tape.tensor([[1.0, 2.0], [0.5, 3.0], [2.0, 1.0]])
    u = tape.linalg.svd(x).U
    with pytest.raises(RuntimeError, match="full_matrices=False"):
        u.sum().backward()
    with pytest.raises(RuntimeError, match="full_matrices=False"):
        tape.autograd.grad(tape.linalg.svd(x).U.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="mode='complete' and nrows > ncols"):
        tape.linalg.qr(x, "complete")
    np.testing.assert_allclose(on(tape.linalg.lu(x.detach()), lambda f: f.P @ f.L @ f.U).numpy(), x.detach().numpy())
    assert tape.linalg.qr(x, "r").Q.shape == (0,)
    assert repr(tape.linalg.slogdet(tape.eye(1))).startswith("tape.return_types.linalg_slogdet(\nsign=tensor(1.)")


EMPTY = """
L.solve(o(0, 0), o(0, 2)) | L.det(o(0, 0)) | L.slogdet(o(0, 0)).logabsdet | L.inv(o(0, 2, 2)) | L.svd(o(0, 3)).Vh
L.eigh(o(0, 0))[0] | L.qr(o(0, 3)).R | L.cholesky(o(0, 0)) | L.pinv(o(0, 3)) | L.matrix_exp(o(0, 0)) | L.solve(o(2, 0, 0), o(2, 0, 1))
L.solve(m.eye(2), o(2, 0)) | L.inv(o(0, 0)) | L.svdvals(o(2, 0)) | L.solve_triangular(o(0, 2, 2), o(0, 2, 1), upper=True)
L.lu_factor(o(0, 0))[0] | L.matrix_norm(o(0, 2)) | L.det(o(0, 2, 2)) | m.trace(o(0, 0)) | m.bmm(o(0, 2, 3), o(0, 3, 1))
"""  # noqa: E501


@pytest.mark.parametrize("text", [c.strip() for line in EMPTY.strip().splitlines() for c in line.split("|")])
def test_empty_matrices_have_pytorchs_answers(text: str, pytorch: Outcomes) -> None:
    def run(m: Any) -> Any:
        return eval(text, {"m": m, "L": m.linalg, "o": m.ones})  # noqa: S307

    found, expected = run(tape), pytorch(run, text)
    assert tuple(found.shape) == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy())


NUMPY: dict[str, tuple[Any, ...]] = {
    "solve": (np.linalg.solve, A, B),
    "solve-vector": (np.linalg.solve, BATCH, (REAL, (3,))),
    "inv": (np.linalg.inv, BATCH),
    "pinv": (np.linalg.pinv, B),
    "det": (np.linalg.det, BATCH),
    "slogdet": (np.linalg.slogdet, A),
    "cholesky": (np.linalg.cholesky, (SPD, (3, 3))),
    "cholesky-upper": (lambda a: np.linalg.cholesky(a, upper=True), (SPD, (3, 3))),
    "qr": (np.linalg.qr, B),
    "qr-r": (lambda a: np.linalg.qr(a, mode="r"), B),
    "qr-complete": (lambda a: np.linalg.qr(a, "complete"), A),
    "eigh": (np.linalg.eigh, (SPD, (3, 3))),
    "eigvalsh": (lambda a: np.linalg.eigvalsh(a, UPLO="U"), (SPD, (3, 3))),
    "svd": (np.linalg.svd, B),
    "svd-reduced": (lambda a: np.linalg.svd(a, full_matrices=False), B),
    "svd-values": (lambda a: np.linalg.svd(a, compute_uv=False), B),
    "svdvals": (np.linalg.svdvals, B),
    "lstsq": (np.linalg.lstsq, (REAL, (4, 2)), (REAL, (4,))),
    "lstsq-wide": (np.linalg.lstsq, (REAL, (2, 4)), (REAL, (2, 1))),
    "lstsq-matrix": (np.linalg.lstsq, (REAL, (4, 2)), (REAL, (4, 3))),
    "rank": (np.linalg.matrix_rank, BATCH),
    "power": (lambda a: np.linalg.matrix_power(a, -3), A),
    "cond": (np.linalg.cond, A),
    "cond-1": (lambda a: np.linalg.cond(a, 1), A),
    "tensorsolve": (lambda a, b: np.linalg.tensorsolve(a.reshape(3, 1, 3), b.reshape(3, 1)), A, (REAL, (3,))),
    "tensorinv": (lambda a: np.linalg.tensorinv(a.reshape(3, 1, 3)), A),
    "matrix_norm": (np.linalg.matrix_norm, BATCH),
    "norm": (np.linalg.norm, BATCH),
    "norm-fro": (lambda a: np.linalg.norm(a, "fro"), A),
    "norm-rows": (lambda a: np.linalg.norm(a, 1, axis=-1, keepdims=True), BATCH),
    "norm-planes": (lambda a: np.linalg.norm(a, -2, axis=(0, 1)), BATCH),
    "matrix_norm-2": (lambda a: np.linalg.matrix_norm(a, ord=2, keepdims=True), BATCH),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions_return_numpys_results(name: str) -> None:
    function, *given = NUMPY[name]
    arrays = matrices(*given)
    expected, found = function(*arrays), function(*map(tape.tensor, arrays))
    if not isinstance(expected, tuple):
        expected, found = (expected,), (found,)
    assert type(found) is type(expected)
    for got, want in zip(found, expected, strict=True):
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-10, atol=1e-12)


def test_numpy_functions_name_what_tensors_do_not_take() -> None:
    x = tape.eye(2)
    for call in (
        lambda: np.linalg.svd(x, hermitian=True), lambda: np.linalg.qr(x, "raw"),
        lambda: np.linalg.multi_dot([x, x], out=x), lambda: np.trace(x, out=x),
        lambda: np.einsum("ij->", x, casting="safe"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"np\.\w+"):
            call()


def test_programs_find_what_depends_on_their_arguments() -> None:
    def function(a: Any, b: Any) -> Any:
        x = tape.linalg.lu_solve(*tape.linalg.lu_factor(a), b)
        return x.sum() + tape.linalg.cond(a, 1) + tape.linalg.lstsq(a, b, driver="gelsd").residuals.sum()

    (a, c), (b, d) = matrices(A, ("spd", (3, 3))), matrices(B, (REAL, (3, 2)))
    program = tape.record(function, a, b)
    mixed = c[::-1].copy()  # other rows are exchanged
    np.testing.assert_allclose(float(program(mixed, d)), function(*map(tape.tensor, (mixed, d))).item(), rtol=1e-12)
    with pytest.raises(tape.linalg.LinAlgError):
        program(np.zeros((3, 3)), d)


@quick
def test_the_factors_of_a_solve_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (tape.tensor(x, requires_grad=True) for x in matrices(A, B))
    y = tape.linalg.solve(a, b).sum()

    def no_more(*_: Any) -> None:
        raise AssertionError("factored again")

    monkeypatch.setattr(np.linalg, "solve", no_more)
    y.backward()
    np.testing.assert_allclose(b.grad.numpy(), np.linalg.inv(a.detach().numpy()).T @ np.ones((3, 2)), rtol=1e-12)


def test_operands_that_are_overwritten_later() -> None:
    a, b = (tape.tensor(x, requires_grad=True) for x in matrices(A, B))
    c, d = a * 1.0, b * 1.0
    y = tape.linalg.solve(c, d)
    c.mul_(0.0)
    d.mul_(0.0)
    result = y * y
    y.add_(7.0)
    plain = (tape.linalg.solve(a, b) ** 2).sum()
    for got, want in zip(*(tape.autograd.grad(z, (a, b)) for z in (result.sum(), plain)), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)


def test_condition_numbers_and_older_names() -> None:
    a, b, spd = matrices(A, B, ("spd", (3, 3)))
    x = tape.tensor(a, requires_grad=True)
    for p in (1, "fro", np.inf, -1):
        assert tape.linalg.cond(x, p).item() == pytest.approx(np.linalg.cond(a, p))
    matrix_domains.differentiated(lambda x: tape.linalg.cond(x, 1), a)
    np.testing.assert_allclose(
        tape.cholesky(tape.tensor(spd), upper=True).numpy(), np.linalg.cholesky(spd).T, atol=1e-15
    )
    np.testing.assert_allclose(on(tape.qr(tape.tensor(b), some=False), lambda f: f.Q @ f.R).numpy(), b, atol=1e-14)
    found = tape.lu_solve(tape.tensor(b), *tape.linalg.lu_factor(x.detach()))
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a, b), rtol=1e-12)


def test_vmap_and_call_forms() -> None:
    a, b = (tape.tensor(x) for x in matrices(BATCH, (REAL, (2, 3))))
    np.testing.assert_allclose(tape.vmap(tape.linalg.solve)(a, b).numpy(), tape.linalg.solve(a, b).numpy(), rtol=1e-13)
    assert foreign_calls.call(OPS["matrix_rank"], a, atol=0.0, rtol=1e-9).tolist() == [3, 3]
    assert matrix_domains.symmetric(turned(a)).shape == (2, 3, 3)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"tape.{name}")
    found = doctest.testmod(module, extraglobs={"tape": tape, "np": np})
    assert found.attempted
    assert not found.failed
