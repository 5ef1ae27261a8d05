"""Functions of matrices: results, shapes, dtypes, flags, gradients and refusals are PyTorch's, differences confirm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes, Raised
from tests.support.representatives import few

quick = pytest.mark.quick


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape) + sum(shape)).uniform(-1, 1, shape)


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "a": drawn(3, 3) + 2 * np.eye(3), "b": drawn(2, 3, 3) + 2 * np.eye(3), "w": drawn(2, 4), "t": drawn(4, 2),
    "bw": drawn(2, 2, 4), "bt": drawn(2, 4, 2), "c": drawn(3, 2), "bc": drawn(2, 3, 2), "v": drawn(3), "z": drawn(2, 3),

    "e": np.zeros((0, 3)), "be": np.zeros((0, 3, 3)), "eb": np.zeros((2, 0, 0)), "one": np.array(3.0),
    "p": np.array([0.5, 1.0, 0.25, 2.0]),
}  # fmt: skip


def given(m: Any, text: str) -> tuple[Any, dict[str, Any]]:
    """Return what an expression gives, as a list, and the tensors that it names."""
    names = [n for n in ARRAYS if n in set(compile(text, text, "eval").co_names)]
    inputs = {n: m.tensor(ARRAYS[n], requires_grad=True) for n in names}
    found = eval(text, {"m": m, "L": m.linalg, "pi": np.pi}, inputs)  # noqa: S307
    return list(found) if isinstance(found, tuple) else [found], inputs


def swept(results: list[Any], inputs: dict[str, Any], m: Any) -> list[Any]:
    """Return the gradients of the results, weighted, that have some."""
    loss = m.zeros((), dtype=m.float64)
    for k, y in enumerate(results):
        if y.requires_grad:
            loss = loss + (y * m.arange(1.0 + k, y.numel() + 1 + k, dtype=m.float64).reshape(y.shape)).sum()
    if not loss.requires_grad:
        return [None] * len(inputs)
    loss.backward()
    return [x.grad for x in inputs.values()]


def results_and_gradients(m: Any, text: str) -> tuple[list[Any], list[Any]]:
    """Return what an expression gives, and the gradients."""
    results, inputs = given(m, text)
    return results, swept(results, inputs, m)


def same(text: str, pytorch: Outcomes) -> None:
    ours, gradients = results_and_gradients(tape, text)
    theirs, expected = pytorch(lambda torch: results_and_gradients(torch, text), text)
    assert len(ours) == len(theirs)
    for y, z in zip(ours, theirs, strict=True):
        assert tuple(y.shape) == tuple(z.shape)
        assert y.dtype == z.dtype
        assert y.requires_grad == z.requires_grad
        within = 1e-9 if y.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=within, atol=1e-11)
    for x, y in zip(gradients, expected, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=10 * within, atol=1e-9)


def differs(text: str) -> None:
    """Check first and second derivatives, forward and reverse, by differences."""
    names = [n for n in ARRAYS if n in set(compile(text, text, "eval").co_names)]

    def function(*inputs: Any) -> Any:
        found = eval(text, {"m": tape, "L": tape.linalg, "pi": np.pi}, dict(zip(names, inputs, strict=True)))  # noqa: S307
        found = found if isinstance(found, tuple) else (found,)
        return tuple(y for y in found if y.requires_grad or y.dtype.kind == "f")

    def fresh() -> tuple[Any, ...]:
        return tuple(tape.tensor(ARRAYS[n], requires_grad=True) for n in names)

    assert tape.autograd.gradcheck(function, fresh())
    assert tape.autograd.gradgradcheck(function, fresh())
    tangents = tuple(tape.tensor(np.cos(ARRAYS[n])) for n in names)
    plain = tuple(x.detach() for x in fresh())
    for y, t, up, down in zip(
        *tape.func.jvp(function, plain, tangents),
        function(*(x + 1e-6 * d for x, d in zip(plain, tangents, strict=True))),
        function(*(x - 1e-6 * d for x, d in zip(plain, tangents, strict=True))),
        strict=True,
    ):
        assert t.shape == y.shape
        np.testing.assert_allclose(t.numpy(), ((up - down) / 2e-6).numpy(), rtol=1e-5, atol=1e-6)


def mapped(text: str, name: str) -> None:
    """Check that an expression of one matrix, vmapped, is what it is of each of a batch."""
    batch = tape.tensor(np.stack([ARRAYS[name], ARRAYS[name] * 1.25]))

    def function(x: Any) -> Any:
        return eval(text, {"m": tape, "L": tape.linalg}, {name: x})  # noqa: S307

    found = tape.vmap(function)(batch)
    one_by_one = [function(x) for x in batch]
    if not isinstance(found, tuple):
        found, one_by_one = (found,), [(x,) for x in one_by_one]
    for k, y in enumerate(found):
        np.testing.assert_allclose(y.numpy(), np.stack([x[k].numpy() for x in one_by_one]), rtol=1e-12)


def refused(text: str, pytorch: Outcomes) -> None:
    """Check that PyTorch refuses too, and that nothing comes of what was refused."""
    theirs = pytorch.or_error(lambda m: given(m, text)[0], text)
    assert isinstance(theirs, Raised)
    assert {"RuntimeError", "TypeError", "IndexError", "ValueError"} & set(theirs.classes)
    before = tape.tensor(ARRAYS["a"], requires_grad=True)
    with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)):
        given(tape, text)
    (before * 2).sum().backward()
    assert (before.grad == 2).all()


POWERS = (
    "m.matrix_power(a, 0)", "L.matrix_power(b, 0)", "a.matrix_power(0)",
    "m.matrix_power(eb, 0)", "m.matrix_power(be, 0)", "L.pinv(e)", "L.pinv(be)", "L.pinv(eb)", "m.pinverse(e)",
)  # fmt: skip


@pytest.mark.parametrize("text", POWERS)
def test_powers_of_0_and_empty_pseudoinverses_have_gradients_of_zero(text: str, pytorch: Outcomes) -> None:
    same(text, pytorch)


def test_a_power_of_0_is_recorded_to_any_order() -> None:
    differs("m.matrix_power(a, 0)")
    mapped("m.matrix_power(a, 0)", "a")


NUCLEAR = (
    "m.norm(a, 'nuc')", "a.norm('nuc')", "w.norm('nuc', keepdim=True)", "m.norm(b, 'nuc', (0, 2))",
    "bt.norm('nuc', [2, 0], True)", "m.norm(b, p='nuc', dim=(-1, 0))", "m.norm(e, 'nuc')", "be.norm('nuc', (1, 2))",
    "m.norm(t.float(), 'nuc', dtype=m.float64)", "m.norm(b, 'fro', (0, 2))", "m.norm(b, 'fro')", "b.norm(2, (0, 1, 2))",
)  # fmt: skip
NO_NORMS = (
    "v.norm('nuc')", "one.norm('nuc')", "b.norm('nuc')", "b.norm('nuc', 1)", "b.norm('nuc', (1,))", "b.norm('x')",
    "b.norm('nuc', (0, 1, 2))", "b.norm('nuc', (1, 1))", "b.norm('nuc', (1, 5))", "b.norm('fro', (0, 1, 2))",
    "a.norm('x')", "m.ones(2, 2, dtype=m.int64).norm('nuc')", "L.matrix_norm(b, 'nuc', 1)",
)  # fmt: skip


@pytest.mark.parametrize("text", NUCLEAR)
def test_nuclear_norms(text: str, pytorch: Outcomes) -> None:
    same(text, pytorch)


@pytest.mark.parametrize("text", NO_NORMS)
def test_what_has_no_nuclear_norm_is_refused(text: str, pytorch: Outcomes) -> None:
    refused(text, pytorch)


def test_a_nuclear_norm_is_numpys_and_has_gradients_to_any_order() -> None:
    a = ARRAYS["b"]
    expected = np.linalg.norm(a, "nuc", (0, 2))
    np.testing.assert_allclose(tape.tensor(a).norm("nuc", (0, 2)).numpy(), expected, rtol=1e-12)
    differs("m.norm(b, 'nuc', (0, 2))")
    mapped("a.norm('nuc')", "a")


CHOLESKY = (
    "m.cholesky_inverse(a)", "m.cholesky_inverse(a, upper=True)", "m.cholesky_inverse(b)", "a.cholesky_inverse(True)",
    "m.cholesky_inverse(a.tril())", "m.cholesky_solve(c, a)", "m.cholesky_solve(c, a, True)", "bc.cholesky_solve(b)",
    "m.cholesky_solve(bc, b, upper=True)", "m.cholesky_solve(c, b)", "m.cholesky_solve(bc, a.triu(), upper=True)",
    "m.cholesky_inverse(be)", "m.cholesky_inverse(eb)", "m.cholesky_solve(be, be)",
    "m.cholesky_solve(c, m.zeros(3, 3).double())",
)  # fmt: skip
NO_CHOLESKY = (
    "m.cholesky_inverse(w)", "m.cholesky_inverse(v)", "m.cholesky_inverse(m.zeros(3, 3))", "m.cholesky_solve(v, a)",
    "m.cholesky_solve(t, a)", "m.cholesky_solve(c, c)", "m.cholesky_solve(c, v)",
    "m.cholesky_inverse(m.zeros(2, 3, 3))",
    "m.cholesky_inverse(m.ones(3, 3, dtype=m.int64))",
)  # fmt: skip


@pytest.mark.parametrize("text", CHOLESKY)
def test_what_cholesky_factors_give_has_pytorchs_gradient_to_the_factor(text: str, pytorch: Outcomes) -> None:
    same(text, pytorch)


@pytest.mark.parametrize("text", NO_CHOLESKY)
def test_what_is_no_cholesky_factor_is_refused(text: str, pytorch: Outcomes) -> None:
    refused(text, pytorch)


@pytest.mark.parametrize("upper", [False, True])
def test_gradients_through_triangles_are_those_of_differences_to_any_order(upper: bool) -> None:
    half = "triu" if upper else "tril"
    differs(f"m.cholesky_inverse(a.{half}(), {upper})")
    differs(f"m.cholesky_solve(bc, b.{half}(), {upper})")
    mapped(f"m.cholesky_inverse(a.{half}(), {upper})", "a")
    mapped(f"m.cholesky_solve(m.ones(3, 1), a, {upper})", "a")
    a = np.triu(ARRAYS["a"]) if upper else np.tril(ARRAYS["a"])
    expected = np.linalg.inv(a.T @ a if upper else a @ a.T)
    np.testing.assert_allclose(tape.cholesky_inverse(tape.tensor(a), upper).numpy(), expected, rtol=1e-12)


def test_which_factor_of_a_batch_is_singular_is_said() -> None:
    x = tape.stack([tape.eye(2), tape.tensor([[1.0, 0.0], [0.0, 0.0]])])
    with pytest.raises(np.linalg.LinAlgError, match=r"\(Batch element 1\): The diagonal element 2 is zero"):
        tape.cholesky_inverse(x)


COUNTS = "m.tensor([1, 2, 1, 3])"
COVARIANCES = (
    "m.cov(w, aweights=p)", "w.cov(aweights=p, correction=0)", f"m.cov(w, fweights={COUNTS}, aweights=p)",
    f"m.cov(w, correction=2, fweights={COUNTS}, aweights=p)", f"m.cov(w, fweights={COUNTS})", "m.cov(w[0], aweights=p)",
    "m.cov(w[:1], aweights=p)", "m.cov(w.detach(), aweights=p)", "m.cov(w.float(), aweights=p)",
    "m.cov(w, aweights=p.float())", "m.cov(w[0] * p, aweights=p)", f"m.cov(w.float(), fweights={COUNTS})",
    "m.cov(w[:0], aweights=p)", "m.cov(w, aweights=p * m.tensor([0., 1., 1., 0.]))",
    "m.corrcoef(w)", "m.corrcoef(w[0])", "m.corrcoef(w[:1])", "m.corrcoef(one)", "m.corrcoef(w[:0])",
    "m.corrcoef(w[0, :0])", "m.corrcoef(w[:, :0])", "w.float().corrcoef()", "m.corrcoef(m.ones(2, 3).double())",
    "m.corrcoef(m.tensor([[1, 2, 3], [3, 2, 2]])).double().round(decimals=6)", "m.corrcoef(m.ones(3).double())",
)  # fmt: skip
NO_COVARIANCES = (
    "m.cov(w, aweights=-p)", "m.cov(w, aweights=p * 0)", f"m.cov(w, fweights={COUNTS} * 0)", "m.cov(w, aweights=p[:2])",
    "m.cov(w, fweights=p)", f"m.cov(w, aweights={COUNTS})", "m.cov(b, aweights=p)", "m.cov(w > 0)", "m.corrcoef(b)",
    "m.corrcoef(w > 0)", "m.cov(w, aweights=p[None])", "m.cov(w[:, :0], aweights=p[:0])",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("text", COVARIANCES)
def test_covariances_and_correlations_have_gradients_to_data_and_weights(text: str, pytorch: Outcomes) -> None:
    same(text, pytorch)


@pytest.mark.parametrize("text", NO_COVARIANCES)
def test_what_has_no_covariances_is_refused(text: str, pytorch: Outcomes) -> None:
    refused(text, pytorch)


def test_covariances_differ_by_their_weights_as_differences_do() -> None:
    differs(f"m.cov(w, fweights={COUNTS}, aweights=p)")
    mapped("m.cov(m.stack((p, p ** 2)), aweights=p)", "p")
    x, weights = ARRAYS["w"], ARRAYS["p"]
    np.testing.assert_allclose(np.cov(tape.tensor(x), aweights=tape.tensor(weights)), np.cov(x, aweights=weights))
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert tape.cov(tape.tensor(x), correction=9, aweights=tape.tensor(weights)).isinf().all()


FACTORS = (
    "L.lu_factor(a)", "L.lu_factor(w)", "L.lu_factor(t)", "L.lu_factor(bw)", "L.lu_factor(bt)", "L.lu(a)", "L.lu(w)",
    "L.lu(t)", "L.lu(bw)", "L.lu(bt)", "L.lu(e)", "L.lu(be)", "L.lu(eb)", "L.lu(e.T)", "L.lu_factor(e)[0]",
    "m.lu_unpack(*L.lu_factor(a))", "m.lu_unpack(*L.lu_factor(w))", "m.lu_unpack(*L.lu_factor(bt))",
    "m.lu_unpack(*L.lu_factor(b.detach()), unpack_data=False)", "m.lu_unpack(*L.lu_factor(b), unpack_pivots=False)",
    "m.lu_unpack(w, m.tensor([1, 2], dtype=m.int32))", "m.lu_unpack(w, m.tensor([1, 2]), unpack_pivots=False)",
    "m.lu_unpack(m.tensor([[4, 2], [1, 3]]), m.tensor([2, 2], dtype=m.int32))", "m.lu(a)", "m.lu(w, True, True)",
    "bt.lu()", "bw.lu(get_infos=True)", "m.lu(m.zeros(2, 2).double())", "m.lu(m.ones(2, 3).double(), get_infos=True)",
    "L.lu_factor_ex(a)", "L.lu_factor_ex(bw, check_errors=True)", "L.lu_factor_ex(be)", "L.lu_factor_ex(eb)",
    "L.lu_factor_ex(m.ones(2, 3, 5).double())", "L.cholesky_ex(a @ a.T)", "L.cholesky_ex(b @ b.mT, upper=True)",
    "L.cholesky_ex(m.stack((m.eye(2), -m.eye(2))))[1]", "L.cholesky_ex(be)", "L.cholesky_ex(eb)", "L.inv_ex(a)",
    "L.inv_ex(b, check_errors=True)", "L.inv_ex(m.stack((m.eye(2), m.ones(2, 2))))[1]", "L.inv_ex(be)", "L.inv_ex(eb)",
    "L.solve_ex(a, c)", "L.solve_ex(a, v)", "L.solve_ex(b, bc)", "L.solve_ex(a, bc)", "L.solve_ex(b[:1], bc)",
    "L.solve_ex(b, z)", "L.solve_ex(a, c.T, left=False)", "L.solve_ex(b, c, check_errors=True)", "L.solve_ex(be, be)",
    "L.solve_ex(m.ones(2, 2), m.ones(2, 1))[1]", "L.ldl_factor_ex(b.detach())", "L.ldl_factor(a.detach())",
    "L.ldl_factor_ex(be.detach())", "L.ldl_factor_ex(eb.detach())", "L.ldl_factor_ex(m.zeros(2, 2, 2).double())",
    "L.lu(a.float().double())",
)  # fmt: skip
NO_FACTORS = (
    "L.lu(v)", "L.lu(a, pivot=False)", "m.lu(a, False)", "L.lu_factor(m.zeros(2, 3, 3))", "L.lu_factor(m.ones(2, 4))",
    "L.lu_factor_ex(m.ones(4, 2), check_errors=True)", "m.lu(v)", "m.lu(m.ones(2, 2, dtype=m.int64))",
    "m.lu_unpack(a, m.tensor([1, 2, 3]))", "m.lu_unpack(a, m.tensor([0, 2, 3], dtype=m.int32))",
    "m.lu_unpack(a, m.tensor([4, 2, 3], dtype=m.int32))", "m.lu_unpack(v, m.tensor([1], dtype=m.int32))",
    "L.cholesky_ex(w)", "L.cholesky_ex(v)", "L.cholesky_ex(-m.eye(2), check_errors=True)", "L.inv_ex(w)", "L.inv_ex(v)",
    "L.inv_ex(m.zeros(2, 2), check_errors=True)", "L.inv_ex(m.ones(2, 2, dtype=m.int64))", "L.solve_ex(w, w)",
    "L.solve_ex(a, w)", "L.solve_ex(m.ones(2, 2), m.ones(2), check_errors=True)", "L.ldl_factor(w)", "L.ldl_factor(v)",
    "L.ldl_factor(m.zeros(2, 2))", "L.ldl_factor_ex(m.zeros(2, 2), check_errors=True)",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
@pytest.mark.parametrize("text", FACTORS)
def test_factors_and_what_is_told_of_them(text: str, pytorch: Outcomes) -> None:
    same(text, pytorch)


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
@pytest.mark.parametrize("text", NO_FACTORS)
def test_what_cannot_be_factored_is_refused(text: str, pytorch: Outcomes) -> None:
    refused(text, pytorch)


OF_ALL_SHAPES = (
    "L.lu(w)", "L.lu_factor(t)[0]", "L.inv_ex(b)[0]", "L.solve_ex(b, c)[0]", "L.cholesky_ex(a @ a.mT)[0]",
    "m.lu_unpack(*m.lu(bw))", "L.lu(bt)",
)  # fmt: skip


@pytest.mark.parametrize("text", few(OF_ALL_SHAPES, 5))
def test_factors_have_the_gradients_of_differences_to_any_order(text: str) -> None:
    differs(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("L.lu(w)", "w"), ("m.lu_unpack(*L.lu_factor(t))", "t"), ("L.inv_ex(a)", "a"), ("L.cholesky_ex(a @ a.mT)", "a"),
     ("L.solve_ex(a, m.ones(3, 2))", "a"), ("L.lu_factor_ex(a)", "a"), ("L.ldl_factor_ex(a)", "a")],
)  # fmt: skip
def test_factors_of_a_batch_are_mapped(text: str, name: str) -> None:
    mapped(text, name)


@pytest.mark.parametrize("name", ["a", "w", "t", "bw", "bt"])
def test_factors_are_scipys_and_multiply_to_their_matrix(name: str) -> None:
    linalg = pytest.importorskip("scipy.linalg")
    found = tape.linalg.lu(tape.tensor(ARRAYS[name]))
    for ours, theirs in zip(found, linalg.lu(ARRAYS[name]), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)
    np.testing.assert_allclose((found.P @ found.L @ found.U).numpy(), ARRAYS[name], rtol=1e-12)


def test_which_of_a_batch_fails_is_said() -> None:
    x = tape.stack([tape.eye(2), tape.zeros(2, 2)])
    singular = np.linalg.LinAlgError
    with pytest.raises(RuntimeError, match=r"lu_factor_ex: \(Batch element 1\): U\[1,1\] is zero"):
        tape.linalg.lu_factor_ex(x, check_errors=True)
    with pytest.raises(singular, match=r"inv_ex: \(Batch element 1\): The diagonal element 1 is zero"):
        tape.linalg.inv_ex(x, check_errors=True)
    with pytest.raises(singular, match=r"cholesky_ex: \(Batch element 1\).*leading minor of order 1"):
        tape.linalg.cholesky_ex(x, check_errors=True)
    with pytest.raises(singular, match=r"solve_ex: \(Batch element 1\): The solver failed"):
        tape.linalg.solve_ex(x, tape.ones(2, 2), check_errors=True)
    with pytest.raises(RuntimeError, match="no gradient"):
        tape.linalg.ldl_factor(tape.eye(2).requires_grad_())
    assert repr(tape.lu(x, get_infos=True)).startswith("tape.return_types._lu_with_info(\nLU=")


DRIVERS = (None, "gels", "gelsy", "gelsd", "gelss")
EQUATIONS = ("t, t", "w, w", "a, c", "bt, bt", "bw, bw", "bt, w", "t, p", "c.float(), a.float()", "bt.detach(), bt + 1")


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("equations", EQUATIONS)
def test_drivers_of_least_squares_tell_what_pytorchs_tell(
    equations: str, driver: str | None, pytorch: Outcomes
) -> None:
    same(f"L.lstsq({equations}, driver={driver!r})", pytorch)


@pytest.mark.parametrize("text", ["L.lstsq(m.ones(3, 2), m.ones(3, 1), driver=x)", "L.lstsq(be, be, driver=x)"])
def test_least_squares_of_less_rank_have_no_residuals(text: str, pytorch: Outcomes) -> None:
    def shapes(m: Any, driver: str) -> list[tuple[int, ...]]:
        return [tuple(y.shape) for y in given(m, text.replace("x)", f"{driver!r})"))[0]]

    for driver in ("gelsy", "gelsd", "gelss"):
        theirs = pytorch(lambda torch, driver=driver: shapes(torch, driver), f"shapes of {text} with {driver}")
        assert shapes(tape, driver) == theirs


def test_least_squares_have_the_gradients_of_differences() -> None:
    differs("L.lstsq(t, t + 1, driver='gels')[:2]")
    differs("L.lstsq(bw, bw)[0]")
    mapped("L.lstsq(t, m.ones(4, 1).double(), driver='gels')[:2]", "t")


NO_LEAST_SQUARES = (
    "L.lstsq(t, t, driver='x')", "L.lstsq(t, w)", "L.lstsq(v, t)", "L.lstsq(t, one)", "L.lstsq(t, bt)",
    "L.lstsq(bt, z)",
    "L.vander(one)", "L.vander(one, N=1)", "L.vander(p[:1])", "L.vander(p > 1)", "L.vander(p, N=2.0)",
    "L.vander(p, N=0)",
)  # fmt: skip
POWERS_OF_ELEMENTS = (
    "L.vander(one, N=4)", "L.vander(p)", "L.vander(w, N=3)", "L.vander(m.tensor([2, 3], dtype=m.int8), N=4)",
    "L.vander(m.tensor(3), N=3)", "L.vander(p * m.tensor([0.0, 1, 0, 2]), N=4)", "L.vander(e, N=2)",
    "L.vander(m.tensor([float('nan'), float('inf')]).double(), N=3)",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_LEAST_SQUARES)
def test_what_has_no_least_squares_and_no_powers_is_refused(text: str, pytorch: Outcomes) -> None:
    refused(text, pytorch)


@pytest.mark.parametrize("text", POWERS_OF_ELEMENTS)
def test_powers_of_elements(text: str, pytorch: Outcomes) -> None:
    same(text, pytorch)


@pytest.mark.parametrize("name", ["w", "t", "bt"])
def test_singular_values_of_full_decompositions_have_gradients(name: str, pytorch: Outcomes) -> None:
    same(f"L.svd({name}).S", pytorch)
    same(f"m.svd({name}, some=False).S", pytorch)
    differs(f"L.svd({name}).S")
    _, (t_u, t_s, t_vh) = tape.func.jvp(tape.linalg.svd, (tape.tensor(ARRAYS[name]),), (tape.ones(ARRAYS[name].shape),))
    assert t_s.isfinite().all()
    assert t_u[..., :2].isfinite().all()
    assert t_vh[..., :2, :].isfinite().all()
    assert t_u[..., 2:].isnan().all()  # these vectors are not unique
    assert t_vh[..., 2:, :].isnan().all()
