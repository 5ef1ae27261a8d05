"""Derivatives at equal eigenvalues and singular values, and at singular matrices: right, or nan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.linalg

import tape
from tests.support.representatives import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
L = tape.linalg
Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
EQUAL = [np.eye(3), np.diag([1.0, 1.0, 2.0]), Q @ np.diag([1.0, 1.0, 2.0]) @ Q.T]
SINGULAR = [np.array([[1.0, 2, 3], [4, 5, 6], [5, 7, 9]]), np.ones((3, 3)), np.zeros((3, 3)), np.diag([1.0, 0.0, 2.0])]


def derivatives(function: Callable[[Any], Any], a: Array) -> tuple[Array, Array]:
    """Return the gradient of a function of a matrix, and the Hessian, as matrices of elements."""
    x = tape.tensor(a, requires_grad=True)
    (gradient,) = tape.autograd.grad(function(x), x, create_graph=True)
    rows = [tape.autograd.grad(g, x, retain_graph=True)[0].numpy() for g in gradient.reshape(-1)]
    return gradient.detach().numpy(), np.array(rows).reshape(a.size, a.size)


def fine(function: Callable[[Any], Any], a: Array) -> None:
    """Check that nothing is finite and wrong: compared with central differences of the gradient."""
    gradient, hessian = derivatives(function, a)
    step = 1e-5
    for k, row in enumerate(hessian):
        moved = np.zeros(a.size)
        moved[k] = step
        up, down = (derivatives(function, a + sign * moved.reshape(a.shape))[0] for sign in (1, -1))
        np.testing.assert_allclose(row, (up - down).ravel() / (2 * step), rtol=1e-6, atol=1e-6)
        slope = function(tape.tensor(a + moved.reshape(a.shape))) - function(tape.tensor(a - moved.reshape(a.shape)))
        np.testing.assert_allclose(gradient.ravel()[k], slope.item() / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.quick
@pytest.mark.parametrize("a", SINGULAR)
def test_determinants_of_singular_matrices_have_two_derivatives(a: Array) -> None:
    fine(L.det, a)
    fine(lambda x: (L.det(x) + 1.0) ** 2, a)


@pytest.mark.quick
@pytest.mark.parametrize("a", EQUAL)
def test_determinants_have_a_third_and_a_fourth_derivative(a: Array) -> None:
    slopes = []
    for determinant in (L.det, lambda x: (x[0] * L.cross(x[1], x[2])).sum()):
        function = lambda x, det=determinant: det(x) ** 2  # noqa: E731
        for direction in np.random.default_rng(0).normal(size=(3, 3, 3)):
            function = lambda x, f=function, t=direction: (tape.func.grad(f)(x) * t).sum()  # noqa: E731
        slopes.append(tape.value_and_grad(function)(tape.tensor(a)))
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("a", EQUAL)
@pytest.mark.parametrize("function", [lambda x: L.eigvalsh(x + x.T).sum(), lambda x: L.matrix_norm(x, "nuc")])
def test_sums_of_all_values_are_smooth_where_they_are_equal(function: Callable[[Any], Any], a: Array) -> None:
    fine(function, a)


@pytest.mark.parametrize("a", EQUAL[1:])
def test_a_value_that_is_alone_is_smooth_beside_equal_ones(a: Array) -> None:
    fine(lambda x: L.eigvalsh(x + x.T)[-1], a)
    fine(lambda x: L.matrix_norm(x, 2), a)
    x = tape.tensor(a, requires_grad=True)
    (L.eigh((x + x.T) / 2).eigenvectors[:, -1] ** 2)[0].backward()
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.quick
@pytest.mark.parametrize("a", EQUAL[1:])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: L.eigvalsh(x + x.T).sum(),
        lambda x: L.eigh(x + x.T).eigenvalues[:2].sum(),
        lambda x: (L.eigvalsh((x + x.T).expand(2, 3, 3)) * np.array([3.0, 3.0, 1.0])).sum(),
        lambda x: L.svdvals(x).sum(),
        lambda x: (L.svd(x).S * np.array([1.0, 3.0, 3.0])).sum(),
        lambda x: L.matrix_norm(x, 2),
    ],
)
def test_forward_mode_goes_over_gradients_of_sums_of_equal_values(function: Callable[[Any], Any], a: Array) -> None:
    gradient, along, step = tape.func.grad(function), np.random.default_rng(12).normal(size=a.shape), 1e-5
    up, down = (gradient(tape.tensor(a + sign * step * along)).numpy() for sign in (1, -1))
    moves = tape.func.jvp(gradient, (tape.tensor(a),), (tape.tensor(along),))[1].numpy()
    np.testing.assert_allclose(moves, (up - down) / (2 * step), rtol=1e-6, atol=1e-6)
    jacobian = tape.func.jacfwd(gradient)(tape.tensor(a)).numpy()
    np.testing.assert_allclose((jacobian * along).sum((-2, -1)), moves, atol=1e-12)
    np.testing.assert_allclose(tape.func.jacrev(gradient)(tape.tensor(a)).numpy(), jacobian, atol=1e-12)


def test_a_value_that_is_alone_has_tangents_of_tangents() -> None:
    a, function = tape.tensor(EQUAL[2]), lambda x: L.eigvalsh(x + x.T)[-1]
    exact = tape.func.jacrev(tape.func.grad(function))(a).numpy()
    np.testing.assert_allclose(tape.func.jacfwd(tape.func.jacfwd(function))(a).numpy(), exact, atol=1e-12)


def test_weights_of_equal_values_have_nan_where_they_break_smoothness() -> None:
    a, c = tape.tensor(EQUAL[1]), np.random.default_rng(13).normal(size=(3, 3))

    def second(x: Any, weights: Any) -> Any:
        gradient = tape.func.grad(lambda x: (L.eigvalsh(x + x.T) * weights).sum())
        return (tape.func.grad(lambda x: (gradient(x) * c).sum())(x) * c).sum()

    by_weights = tape.func.grad(second, 1)(a, tape.tensor([3.0, 3.0, 1.0])).numpy()
    np.testing.assert_array_equal(np.isnan(by_weights), [True, True, False])


def spread(values: list[float], seed: int = 0) -> Array:
    """Return a symmetric matrix with these eigenvalues; of seed 0 the diagonal one."""
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values),) * 2))[0] if seed else np.eye(len(values))
    a = (q * np.array(values)) @ q.T
    return (a + a.T) / 2


CLUSTERS = [
    spread([1.0, 1.0]),
    np.eye(3),
    spread([1.0, 1.0, 2.0]),
    spread([1.0, 1.0, 2.0], 1),
    spread([2.0, 1.0, 2.0, 1.0], 2),
    spread([3.0, 0.5, 3.0, 3.0, 0.5, 1.0], 3),
]
FUNCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "log": (tape.log, np.log, lambda w: 1 / w),
    "exp": (tape.exp, np.exp, np.exp),
    "sqrt": (tape.sqrt, np.sqrt, lambda w: 0.5 / np.sqrt(w)),
    "cubic": (lambda w: w**3 - w, lambda w: w**3 - w, lambda w: 3 * w**2 - 1),
}


def applied(x: Any, function: Any) -> Any:
    """Return a function of a symmetric matrix, by its eigenvectors."""
    w, v = L.eigh((x + x.T) / 2)
    return (v * function(w)) @ v.T


def moved(a: Array, e: Array, function: Any, derivative: Any) -> Array:
    """Return the derivative of a function of a matrix along e, by Daleckii and Krein's divided differences."""
    w, v = np.linalg.eigh(a)
    gaps = w[:, None] - w
    equal = np.abs(gaps) < 1e-7
    middle = derivative((w[:, None] + w) / 2)
    quotients = np.where(equal, middle, (function(w)[:, None] - function(w)) / np.where(equal, 1.0, gaps))
    moved_matrix: Array = v @ (quotients * (v.T @ (e + e.T) @ v / 2)) @ v.T
    return moved_matrix


def gradient_of(function: Callable[[Any], Any], a: Array) -> Array:
    """Return the gradient by a plain backward."""
    x = tape.tensor(a, requires_grad=True)
    function(x).backward()
    gradient: Array = x.grad.numpy()
    return gradient


@pytest.mark.quick
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("a", CLUSTERS)
def test_functions_of_matrices_have_gradients(a: Array, name: str) -> None:
    function, values, derivative = FUNCTIONS[name]
    c = np.random.default_rng(4).normal(size=a.shape)
    found = gradient_of(lambda x: (applied(x, function) * c).sum(), a)
    np.testing.assert_allclose(found, moved(a, c, values, derivative), atol=1e-12)


@pytest.mark.parametrize("gap", [1e-15, 1e-13, 1e-11, 1e-9, 1e-8, 1e-7, 1e-5])
def test_functions_of_matrices_have_gradients_at_nearly_equal_values(gap: float) -> None:
    c, a = np.random.default_rng(5).normal(size=(4, 4)), spread([1.0, 1.0 + gap, 2.0, 2.0 - gap], 6)
    exact = moved(a, c, np.log, lambda w: 1 / w) * 2 * (scipy.linalg.logm(a) * c).sum()
    found = gradient_of(lambda x: (applied(x, tape.log) * c).sum() ** 2, a)
    np.testing.assert_allclose(found, exact, atol=3e-8)


@pytest.mark.parametrize("a", CLUSTERS[1:4])
def test_functions_of_matrices_have_second_derivatives(a: Array) -> None:
    numbers, n = np.random.default_rng(7), len(a)
    c, d, e = ((x + x.T) / 2 for x in numbers.normal(size=(3, n, n)))
    none = np.zeros_like(a)
    blocks = scipy.linalg.expm(np.block([[a, d, e, none], [none, a, none, e], [none, none, a, d], [none] * 3 + [a]]))
    value, by_d, by_e, by_both = (blocks[:n, k * n : (k + 1) * n] for k in range(4))
    x = tape.tensor(a, requires_grad=True)
    (g,) = tape.autograd.grad((applied(x, tape.exp) * c).sum() ** 2, x, create_graph=True)
    (h,) = tape.autograd.grad((g * d).sum(), x)
    exact = 2 * (by_d * c).sum() * (by_e * c).sum() + 2 * (value * c).sum() * (by_both * c).sum()
    np.testing.assert_allclose((h.numpy() * e).sum(), exact, rtol=1e-10)


@pytest.mark.parametrize("a", [CLUSTERS[0], CLUSTERS[3]])
def test_functions_of_eigenvalues_have_hessians(a: Array) -> None:
    hessian = tape.func.hessian(lambda x: (L.eigvalsh((x + x.T) / 2).log() ** 2).sum())(tape.tensor(a)).numpy()
    for k in np.ndindex(a.shape):
        e = np.zeros_like(a)
        e[k] = 1.0
        exact = moved(a, e, lambda w: 2 * np.log(w) / w, lambda w: 2 * (1 - np.log(w)) / w**2)
        np.testing.assert_allclose(hessian[k], exact, atol=1e-12)


def test_projectors_onto_equal_values_have_gradients() -> None:
    a, c = spread([1.0, 1.0, 2.0, 5.0, 5.0], 8), np.random.default_rng(9).normal(size=(5, 5))

    def below(x: Any) -> Any:
        v = L.eigh((x + x.T) / 2).eigenvectors[:, :2]
        return ((v @ v.T) * c).sum() ** 2

    def by_numpy(x: Array) -> Any:
        v = np.linalg.eigh((x + x.T) / 2)[1][:, :2]
        return ((v @ v.T) * c).sum() ** 2

    found = gradient_of(below, a)
    for k in np.ndindex(a.shape):
        step = np.zeros_like(a)
        step[k] = 1e-5
        np.testing.assert_allclose(found[k], (by_numpy(a + step) - by_numpy(a - step)) / 2e-5, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
@pytest.mark.parametrize("size", [lambda s: s**0, lambda s: s**2, lambda s: 1 / s])
def test_matrices_of_singular_vectors_have_two_derivatives(shape: tuple[int, int], size: Callable[[Any], Any]) -> None:
    numbers = np.random.default_rng(10)
    u, v = (np.linalg.qr(numbers.normal(size=(n, n)))[0][:, :3] for n in shape)
    a, c = (u * np.array([2.0, 2.0, 1.0])) @ v.T, numbers.normal(size=shape)

    def changed(x: Any) -> Any:
        u, s, vh = L.svd(x, full_matrices=False)
        return (((u * size(s)) @ vh) * c).sum() ** 2

    found, step, along = gradient_of(changed, a), 1e-5, numbers.normal(size=shape)
    up, down = (changed(tape.tensor(a + sign * step * along)).item() for sign in (1, -1))
    np.testing.assert_allclose((found * along).sum(), (up - down) / (2 * step), rtol=1e-6)
    x = tape.tensor(a, requires_grad=True)
    (g,) = tape.autograd.grad(changed(x), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), found, rtol=1e-9, atol=1e-9)
    (h,) = tape.autograd.grad((g * along).sum(), x)
    up_g, down_g = (gradient_of(changed, a + sign * step * along) for sign in (1, -1))
    np.testing.assert_allclose(h.numpy(), (up_g - down_g) / (2 * step), rtol=1e-4, atol=1e-4)


def test_matrices_of_a_batch_have_their_own_equal_values() -> None:
    a = np.stack([np.eye(3), np.diag([1.0, 2.0, 3.0]), CLUSTERS[3], 5 * np.eye(3)])
    c = np.random.default_rng(11).normal(size=a.shape)
    x = tape.tensor(a, requires_grad=True)
    w, v = L.eigh(x)
    (((v * w.log()[:, None, :]) @ v.transpose(-1, -2)) * c).sum().backward()
    exact = [moved(a[k], c[k], np.log, lambda w: 1 / w) for k in range(4)]
    np.testing.assert_allclose(x.grad.numpy(), exact, atol=1e-12)


def test_functions_that_meet_the_matrix_again_have_gradients() -> None:
    found = gradient_of(lambda x: (x * applied(x, tape.log)).sum(), np.eye(3))  # the gradient is log(A) + 1
    np.testing.assert_allclose(found, np.eye(3), atol=1e-13)


def _by_quotients(x: Any) -> Any:
    v = L.eigh(x).eigenvectors
    return ((v * tape.diagonal(v.T @ x @ v).log()) @ v.T)[0, 1]


@pytest.mark.parametrize("a", [np.eye(3), spread([2.0, 2.0, 2.0], 13)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: L.eigh(x).eigenvectors[0, 0],
        lambda x: L.eigh(x).eigenvectors[0, 1] ** 2,
        lambda x: L.eigh(x).eigenvectors[0, 1] ** 4,
        lambda x: ((L.eigh(x).eigenvectors - np.eye(3)) ** 4).sum(),
        lambda x: (L.eigh(x).eigenvectors[:, :1] @ L.eigh(x).eigenvectors[:, :1].T)[0, 1],
        lambda x: ((L.eigh(x).eigenvectors * L.eigvalsh(x).log()) @ L.eigh(x).eigenvectors.T)[0, 1],
        _by_quotients,
    ],
)
def test_what_is_no_function_of_the_matrix_alone_has_nan(function: Callable[[Any], Any], a: Array) -> None:
    assert np.isnan(gradient_of(function, a)).all()


C = np.random.default_rng(15).normal(size=(3, 3))


def polar(x: Any) -> Any:
    u, _, vh = L.svd(x, full_matrices=False)
    return (u @ vh * C).sum()


@pytest.mark.parametrize("mode", ["eager", "max"])
@pytest.mark.parametrize(
    ("function", "order"),
    in_turns([lambda x: (applied(x, tape.log) * C).sum() ** 2, polar], ["aaaeaeeaa", "eeeaaaae", "aeaeaeae"]),
)
def test_replays_have_gradients_at_equal_values(function: Callable[[Any], Any], order: str, mode: str) -> None:
    gradient = tape.compile(tape.value_and_grad(function), mode=mode, check="never")
    compiled = tape.compile(function, mode=mode, check="never")
    for i, name in enumerate(order):
        a = (spread([1.0, 2.0, 3.0], 14) if name == "a" else np.eye(3)) * (1 + 0.1 * i)
        value, found = gradient(a)
        expected = tape.value_and_grad(function)(a)
        assert value == pytest.approx(expected[0])
        np.testing.assert_allclose(found, expected[1], atol=1e-12)
        assert not np.isnan(found).any()
        np.testing.assert_allclose(gradient_of(compiled, a), found, atol=1e-12)


SECOND: list[Callable[[Any], Any]] = [
    lambda x: (L.eigvalsh((x + x.T) / 2) ** 3).sum(),
    lambda x: (L.svdvals(x) ** 2).sum() ** 2,
    lambda x: L.matrix_norm(x, "nuc"),
    lambda x: (applied(x, tape.log) * C).sum() ** 2,
]


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
@pytest.mark.parametrize(("function", "order"), in_turns(SECOND, ["aaaea", "eaae"]))
def test_compiled_functions_have_second_derivatives_at_equal_values(function: Callable[[Any], Any], order: str) -> None:
    gradient = tape.func.grad(function)
    hessian = tape.compile(tape.func.hessian(function), check="never")
    of_compiled = tape.func.hessian(tape.compile(function, check="never"))
    twice = tape.compile(lambda x: gradient(x) * 2.0, check="never")
    for i, name in enumerate(order):
        a = (spread([1.0, 2.0, 3.0], 14) if name == "a" else np.eye(3)) * (1 + 0.1 * i)
        found, step, along = hessian(a), 1e-5, np.random.default_rng(16).normal(size=(3, 3))
        up, down = (gradient(a + sign * step * along) for sign in (1, -1))
        np.testing.assert_allclose((found * along).sum((-2, -1)), (up - down) / (2 * step), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(of_compiled(a), found, atol=1e-10)
        np.testing.assert_allclose(twice(a), gradient(a) * 2.0, atol=1e-11)


def test_hessians_are_replayed_where_values_differ() -> None:
    for function in SECOND:
        hessian = tape.compile(tape.func.hessian(function), check="never", mode="eager")
        for k in range(6):
            hessian(spread([1.0, 2.0, 3.0], 14) * (1 + 0.1 * k))
        assert hessian.calls["dynamic"] == 0


@pytest.mark.quick
def test_recorded_programs_have_gradients_at_equal_values() -> None:
    program = tape.record(polar, spread([1.0, 2.0, 3.0], 14))
    a, exact = 2 * np.eye(3), gradient_of(polar, 2 * np.eye(3))
    for _ in range(2):
        np.testing.assert_allclose(program.value_and_grad(a)[1][0], exact, atol=1e-12)
        np.testing.assert_allclose(gradient_of(program, a), exact, atol=1e-12)
    x = tape.tensor(a, requires_grad=True)
    (program(x) * tape.linalg.det(x)).backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient_of(lambda x: polar(x) * L.det(x), a), atol=1e-11)


def test_programs_that_write_to_arguments_have_gradients_at_equal_values() -> None:
    def function(x: Any, y: Any) -> Any:
        y += 1.0
        return polar(x) + y.sum()

    program, y = tape.record(function, spread([1.0, 2.0, 3.0], 14), np.zeros(3)), np.zeros(3)
    found = program.value_and_grad(2 * np.eye(3), y)[1][0]
    np.testing.assert_allclose(found, gradient_of(polar, 2 * np.eye(3)), atol=1e-12)
    np.testing.assert_array_equal(y, np.zeros(3))
    pair = tape.tensor(np.stack([2 * np.eye(3), np.diag([1.0, 2.0, 3.0])]))
    mapped = tape.vmap(lambda a: program.value_and_grad(a, tape.zeros(3))[1][0])(pair)
    np.testing.assert_allclose(mapped.numpy(), [gradient_of(polar, a.numpy()) for a in pair], atol=1e-12)
    with pytest.raises(RuntimeError, match="profile other values"):
        program.profile(2 * np.eye(3), y)


def test_native_callers_see_that_a_gradient_is_left_to_python() -> None:
    gradient, out = tape.compile(tape.value_and_grad(polar), check="never"), np.zeros((3, 3))
    for _ in range(3):
        gradient(spread([1.0, 2.0, 3.0], 14))
    assert [gradient.native(a, out)[0] for a in (np.diag([1.0, 2.0, 3.0]), np.eye(3))] == [0, 1]


def test_replays_leave_nan_where_vectors_were_chosen() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda x: L.eigh(x).eigenvectors[0, 1]), check="never")
    for a in [spread([1.0, 2.0, 3.0], 14)] * 3 + [np.eye(3)] * 2:
        gradient = compiled(a)[1]
    assert np.isnan(gradient).any()


def test_hooks_leave_nan_and_run_once() -> None:
    seen = list[Any]()
    x = tape.tensor(np.eye(3), requires_grad=True)
    matrix = applied(x, tape.log)
    matrix.register_hook(seen.append)
    matrix[0, 1].backward()
    assert len(seen) == 1
    assert np.isnan(x.grad.numpy()).any()


@pytest.mark.parametrize("create", [False, True])
def test_hooks_on_other_graphs_change_nothing(create: bool) -> None:
    other, x = tape.tensor(2.0, requires_grad=True), tape.tensor(np.eye(3), requires_grad=True)
    other.register_hook(print)
    square = other * other
    square.register_hook(print)
    (gradient,) = tape.autograd.grad(applied(x, tape.log)[0, 1], x, create_graph=create)
    np.testing.assert_allclose(gradient.detach().numpy(), [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]], atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_singular_vectors_have_gradients_at_every_scale(scale: float) -> None:
    a = np.random.default_rng(1).normal(size=(4, 3))
    found = []
    for factor in (1.0, scale):
        x = tape.tensor(a * factor, requires_grad=True)
        u, _, vh = L.svd(x, full_matrices=False)
        (u[0, 0] * vh[1, 2]).backward()
        found.append(x.grad.numpy() * factor)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)
