"""`gradcheck` and `gradgradcheck`: each planted fault is rejected, its mended replica and every record accepted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.operations import OPS
from tape.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from tape.checks import finite_differences
from tape.checks.finite_differences import Estimate, Tolerance
from tests.support import record_cases

Array = np.ndarray[Any, Any]
Op = Callable[..., Any]
Rule = Callable[[Any, Any], Any]

POINT = np.array([[0.5, -1.5, 2.0], [1.25, -0.75, 3.0]])


def leaf(values: Any = POINT, dtype: Any = np.float64) -> Any:
    return tape.tensor(np.array(values, dtype), requires_grad=True)


def square(rule: Rule) -> Op:
    """Return x * x, with ``rule(x, g)`` as its backward."""

    class Square(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return rule(x, g)

    return Square.apply


def product(by_a: Callable[..., Any], by_b: Callable[..., Any]) -> Op:
    """Return a * b, with rules of (g, a, b)."""

    class Product(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return by_a(g, *ctx.saved_tensors), by_b(g, *ctx.saved_tensors)

    return Product.apply


def surrogate(value: Op, gradient: Op) -> Op:
    """Return a function with the value of one and the gradient of another, of operations alone."""
    return lambda *xs: value(*xs).detach() + (gradient(*xs) - gradient(*xs).detach())


def weights(at: tuple[int, int], factor: float) -> Any:
    values = np.ones(POINT.shape)
    values[at] = factor
    return tape.tensor(values)


def repeats(x: Any) -> bool:
    return any(stride == 0 for stride, extent in zip(x.stride(), x.shape, strict=True) if extent > 1)


def as_if_contiguous(x: Any) -> Any:
    """Return the elements in the order of memory, as a native loop over a bare pointer would see them."""
    array = x.detach().numpy()
    packed = np.array(array, order="K", copy=True).ravel(order="K")
    return tape.tensor(packed.reshape(array.shape))


class Counter:
    """Counts calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


def changing_input(x: Any, g: Any) -> Any:
    result = 2 * x.detach() * g
    with tape.no_grad():
        x.mul_(1.5)
    return result


def changing_input_by_numpy(x: Any, g: Any) -> Any:
    result = 2 * x.detach() * g
    x.detach().numpy()[...] *= 1.5
    return result


def changing_cotangent(x: Any, g: Any) -> Any:
    g.mul_(2.0)
    return g * x.detach()


count = Counter()

FAULTS: dict[str, tuple[Rule, Rule, str]] = {
    "by a thousandth": (lambda x, g: 2.002 * x * g, lambda x, g: 2 * x * g, "Jacobian mismatch"),
    "by a hundred-thousandth": (lambda x, g: 2.00002 * x * g, lambda x, g: 2 * x * g, "Jacobian mismatch"),
    "in one element": (
        lambda x, g: 2 * x * g * weights((1, 1), 1.001),
        lambda x, g: 2 * x * g * weights((1, 1), 1.0),
        r"worst for element \(1, 1\) of the output and \(1, 1\) of the input",
    ),
    "of the wrong sign": (lambda x, g: -2 * x * g, lambda x, g: 2 * x * g, "Jacobian mismatch"),
    "nan": (lambda x, g: 2 * x * g * math.nan, lambda x, g: 2 * x * g, "Jacobian mismatch"),
    "for strided input": (
        lambda x, g: 2 * x * g * (1.0 if x.is_contiguous() else 1.001),
        lambda x, g: 2 * x * g,
        "gradient of input 0 is another when input 0 is every second element of a larger tensor",
    ),
    "for transposed input": (
        lambda x, g: 2 * as_if_contiguous(x) * g,
        lambda x, g: 2 * x * g,
        "gradient of input 0 is another when input 0 is a transposed tensor",
    ),
    "for expanded input": (
        lambda x, g: 2 * x * g * (1.001 if repeats(x) else 1.0),
        lambda x, g: 2 * x * g,
        "gradient of input 0 is another when input 0 is a tensor expanded along dim 0",
    ),
    "nondeterministic": (
        lambda x, g: 2 * x * g * (1 + 1e-9 * count()),
        lambda x, g: 2 * x * g * (1 + 0 * count()),
        "Backward is not reentrant",
    ),
    "changing its input": (changing_input, lambda x, g: 2 * x * g, "Backward changed input 0 in place"),
    "changing its input by NumPy": (
        changing_input_by_numpy,
        lambda x, g: 2 * x * g,
        "Backward changed input 0 in place",
    ),
    "changing its cotangent": (changing_cotangent, lambda x, g: 2.0 * g * x, "Backward changed grad_output 0 in place"),
    "of the wrong dtype": (
        lambda x, g: (2 * x * g).float(),
        lambda x, g: (2 * x * g).double(),
        "Gradient has dtype mismatch|grad is incorrect type",
    ),
    "not times the cotangent": (
        lambda x, g: 2 * x * g + 1e-9,
        lambda x, g: 2 * x * g + 0,
        "Jacobian mismatch|backward not multiplied by grad_output",
    ),
    "clipped": (
        lambda x, g: 2 * x * tape.minimum(g, tape.tensor(3.0)),
        lambda x, g: 2 * x * tape.minimum(g, tape.tensor(1e9)),
        "Backward is not linear in grad_output",
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_rejected_and_its_twin_accepted(fault: str) -> None:
    wrong, right, message = FAULTS[fault]
    assert gradcheck(square(right), leaf())
    with pytest.raises(GradcheckError, match=message):
        gradcheck(square(wrong), leaf())
    assert gradcheck(square(wrong), leaf(), raise_exception=False) is False


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_rejected_in_fast_mode(fault: str) -> None:
    wrong, right, _ = FAULTS[fault]
    assert gradcheck(square(right), leaf(), fast_mode=True)
    with pytest.raises(GradcheckError):
        gradcheck(square(wrong), leaf(), fast_mode=True)


# Within a larger function a float32 gradient is added to others.
AT_THE_EDGE = {"of the wrong dtype"}


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - AT_THE_EDGE))
def test_planted_fault_within_a_larger_function(fault: str) -> None:
    wrong, right, _ = FAULTS[fault]

    def around(op: Op) -> Op:
        return lambda x, y: tape.sin(op(x) * y).sum() + x.sum()

    inputs = leaf(), leaf(0.5 * POINT)
    assert gradcheck(around(square(right)), inputs)
    with pytest.raises(GradcheckError):
        gradcheck(around(square(wrong)), inputs)


def test_what_a_backward_changed_is_put_back() -> None:
    x = leaf()
    with pytest.raises(GradcheckError, match="changed input 0"):
        gradcheck(square(changing_input), x)
    np.testing.assert_array_equal(x.detach().numpy(), POINT)


BROADCAST: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mean for sum": (lambda g, a, _: (g * a).mean(0, True), lambda g, a, _: (g * a).sum(0, True)),
    "last row only": (lambda g, a, _: (g * a)[-1:], lambda g, a, _: (g * a)[-1:] + (g * a)[:-1].sum(0, True)),
    "by shapes": (
        lambda g, a, b: (g * a).sum(0, True) * (1.001 if a.shape != b.shape else 1.0),
        lambda g, a, _: (g * a).sum(0, True),
    ),
}


@pytest.mark.parametrize("fault", BROADCAST)
def test_broadcasting_undone_wrongly(fault: str) -> None:
    wrong, right = BROADCAST[fault]
    inputs = leaf(), leaf(POINT[:1] + 1)
    assert gradcheck(product(lambda g, _, b: g * b, right), inputs)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 1"):
        gradcheck(product(lambda g, _, b: g * b, wrong), inputs)


def test_fault_when_both_inputs_are_strided() -> None:
    def rule(wrong: float) -> Callable[..., Any]:
        return lambda g, a, b: g * b * (1.0 if a.is_contiguous() or b.is_contiguous() else wrong)

    def other(g: Any, a: Any, b: Any) -> Any:
        del b
        return g * a

    inputs = leaf(), leaf(POINT + 4)
    assert gradcheck(product(rule(1.0), other), inputs)
    with pytest.raises(GradcheckError, match=r"input 0 is .* and input 1 is .*"):
        gradcheck(product(rule(1.001), other), inputs)


def test_value_that_depends_on_strides() -> None:
    class Wrong(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            return 3.0 * as_if_contiguous(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            del ctx
            return 3.0 * g

    with pytest.raises(GradcheckError, match="Output 0 has other values when input 0 is a transposed tensor"):
        gradcheck(Wrong.apply, leaf())


def test_inputs_of_another_layout_are_checked_as_they_are() -> None:
    base = np.arange(1.0, 13.0).reshape(3, 4)
    for array in (base.T, base[:, ::2], base[1:, 1:]):
        x = tape.from_numpy(array).requires_grad_()
        assert gradcheck(square(lambda x, g: 2 * x * g), x)
        with pytest.raises(GradcheckError):
            gradcheck(square(lambda x, g: 2.002 * x * g), x)
    np.testing.assert_array_equal(base, np.arange(1.0, 13.0).reshape(3, 4))


def test_functions_that_refuse_other_layouts_are_not_asked_for_them() -> None:
    def flat(x: Any) -> Any:
        if not x.is_contiguous():
            raise RuntimeError("contiguous tensors only")
        return tape.sin(x).view(-1)

    assert gradcheck(flat, leaf())


def test_functions_defined_at_no_repeated_values() -> None:
    def f(x: Any) -> Any:
        return 1 / (x[0] - x[1]) + 1 / (x[1] - x[2])

    assert gradcheck(f, leaf([1.0, 2.5, -1.0]))


SECOND: dict[str, tuple[Rule, Rule]] = {
    "missing": (lambda x, g: 2 * x.detach() * g, lambda x, g: 2 * x * g),
    "by a thousandth": (
        lambda x, g: 2 * surrogate(lambda x: x, lambda x: 1.001 * x)(x) * g,
        lambda x, g: 2 * surrogate(lambda x: x, lambda x: x)(x) * g,
    ),
    "in one element": (
        lambda x, g: 2 * surrogate(lambda x: x, lambda x: x * weights((0, 2), 1.001))(x) * g,
        lambda x, g: 2 * surrogate(lambda x: x, lambda x: x * weights((0, 2), 1.0))(x) * g,
    ),
    "by the cotangent": (
        lambda x, g: 2 * x * surrogate(lambda g: g, lambda g: 1.001 * g)(g),
        lambda x, g: 2 * x * surrogate(lambda g: g, lambda g: g)(g),
    ),
    "of another Function": (
        lambda x, g: square(lambda z, w: 2.002 * z * w)(x) / x * 2 * g,
        lambda x, g: square(lambda z, w: 2 * z * w)(x) / x * 2 * g,
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("fault", SECOND)
def test_right_first_and_wrong_second_derivative(fault: str) -> None:
    wrong, right = SECOND[fault]
    assert gradcheck(square(wrong), leaf())
    assert gradcheck(square(right), leaf())
    assert gradgradcheck(square(right), leaf())
    with pytest.raises(GradcheckError, match="mismatch"):
        gradgradcheck(square(wrong), leaf())
    assert gradgradcheck(square(wrong), leaf(), raise_exception=False) is False


@pytest.mark.quick
def test_second_derivatives_with_given_and_strided_cotangents() -> None:
    def f(x: Any) -> Any:
        return tape.sin(x) * x, x.sum()

    given = tape.tensor(POINT + 1, requires_grad=True), tape.tensor(2.0)
    assert gradgradcheck(f, leaf())
    assert gradgradcheck(f, leaf(), given)
    assert gradgradcheck(f, leaf(), gen_non_contig_grad_outputs=True)
    assert gradgradcheck(f, leaf(), fast_mode=True)


def test_second_derivatives_of_a_linear_function() -> None:
    assert gradgradcheck(lambda x: x.sum() * 2, leaf())


@pytest.mark.quick
def test_tolerances_given_are_applied_as_they_are() -> None:
    wrong = surrogate(lambda x: x * x, lambda x: 1.001 * x * x)
    assert gradcheck(wrong, leaf(), rtol=2e-3)
    assert gradcheck(wrong, leaf(), atol=1e-2)
    with pytest.raises(GradcheckError):
        gradcheck(wrong, leaf(), rtol=1e-4, atol=1e-8)
    with pytest.raises(GradcheckError):
        gradcheck(wrong, leaf())


def test_defaults_are_never_looser_than_those_of_pytorch() -> None:
    values = np.array([0.0, 1e-3, 1.0, 1e3])
    for error in (0.0, 1e-12, 1e-3, 1e3, math.inf):
        allowed = Tolerance(None, None).around(Estimate(values, np.full(4, error)))
        assert (allowed <= 1e-5 + 1e-3 * values).all()
    tight = Tolerance(None, None).around(Estimate(values, np.full(4, 1e-12)))
    assert (tight <= 1.1e-6 * values + 1e-8).all()
    np.testing.assert_allclose(Tolerance(0.5, 0.25).around(Estimate(values, np.full(4, 9.0))), 0.5 + 0.25 * values)


# A function of one number, the point, its derivative there, and how well it must be known.
HARD: dict[str, tuple[Callable[[Any], Any], float, float, float]] = {
    "smooth": (np.sin, 0.5, math.cos(0.5), 1e-8),
    "a small slope on a large value": (lambda x: 1e6 + x, 0.5, 1.0, 1e-4),
    "a tiny slope": (lambda x: 1.0 + 1e-9 * x, 0.5, 1e-9, 1e-2),
    "cancellation inside": (lambda x: (x + 1e8) - 1e8, 0.5, 1.0, 2e-4),
    "steep": (lambda x: np.tan(1000 * x), 0.5, 1000 / math.cos(500) ** 2, 1e-4),
    "near the border of its domain": (np.log, 1e-5, 1e5, 1e-4),
    "at a large point": (np.square, 1e9, 2e9, 1e-8),
    "beside a kink": (np.abs, 1e-5, 1.0, 1e-8),
    "constant": (lambda x: 0 * x + 3.0, 0.5, 0.0, 0.0),
    "single precision inside": (lambda x: np.float64(np.float32(np.sin(x))), 0.5, math.cos(0.5), 1e-2),
    "a high power": (lambda x: x**40, 1.5, 40 * 1.5**39, 1e-7),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", HARD)
def test_errors_of_differences_are_within_their_estimates(name: str) -> None:
    function, point, slope, known = HARD[name]
    memory = np.array(point)
    direction = finite_differences.scale_of(memory)

    def evaluate() -> Array:
        return np.reshape(function(memory), 1)

    at = finite_differences.along(evaluate, [memory], [direction])
    noise = finite_differences.noise_of(at, 1e-6)
    expected = np.array([slope * float(direction)])
    found = finite_differences.derivative(at, 1e-6, noise, lambda e: finite_differences.precise(e, expected))
    assert abs(found.value - expected) <= found.error + 1e-12 * abs(expected)
    assert found.error <= (known * abs(expected) if known else 1e-8)
    assert memory == point


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_gradients_are_judged_at_every_scale(scale: float) -> None:
    points = scale * POINT
    assert gradcheck(surrogate(lambda x: x * x, lambda x: x * x), leaf(points))
    with pytest.raises(GradcheckError):
        gradcheck(surrogate(lambda x: x * x, lambda x: 1.001 * x * x), leaf(points))


def test_small_elements_beside_large_ones_are_judged() -> None:
    factors = np.array([1.0, 1e-3, 1e-6])

    def f(x: Any) -> Any:
        return (x * tape.tensor(factors)).sum() + 5.0

    def wrong(x: Any) -> Any:
        return (x * tape.tensor(factors * np.array([1.0, 1.0, 1.001]))).sum()

    assert gradcheck(surrogate(f, f), leaf([1.0, 2.0, 3.0]))
    with pytest.raises(GradcheckError, match=r"and \(2,\) of the input"):
        gradcheck(surrogate(f, wrong), leaf([1.0, 2.0, 3.0]))


def test_gradients_that_are_nothing_but_rounding() -> None:
    def softmax(x: Any, shift: Any) -> Any:
        e = tape.exp(x + shift)
        return e / e.sum()

    for fast in (False, True):
        assert gradcheck(softmax, (leaf(), leaf(0.3)), fast_mode=fast)
        assert gradgradcheck(softmax, (leaf(), leaf(0.3)), fast_mode=fast)


@pytest.mark.quick
def test_several_inputs_and_outputs() -> None:
    def f(x: Any, n: int, y: Any, mask: Any, name: str) -> Any:
        assert name == "name"
        return tape.where(mask, x * y, y) * n, x.sum(), (x > 0), x.detach()

    mask = tape.tensor(POINT > 1)
    assert gradcheck(f, (leaf(), 3, leaf(2.0), mask, "name"))
    assert gradcheck(f, (leaf(), 3, tape.tensor(2.0), mask, "name"), fast_mode=True)


def test_wrong_output_and_input_are_named() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * 2, surrogate(lambda x, y: x * y, lambda x, y: x * y + 0.001 * x.detach() * y)(x, y)

    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 1 with respect to input 1,\nnumerical:"):
        gradcheck(f, [leaf(), leaf(POINT + 4)])


@pytest.mark.filterwarnings("error")
def test_values_that_are_not_finite() -> None:
    at_infinity = tape.tensor([math.inf, 0.0])
    assert gradcheck(lambda x: x[0] * 2 + tape.where(x > 9, at_infinity[:1], x), leaf([1.0, 2.0]))
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(lambda x: x + at_infinity, leaf([1.0, 2.0]))


def test_functions_that_read_their_inputs_from_a_closure() -> None:
    x = leaf()
    assert gradcheck(lambda *_: tape.sin(x), (x,))
    with pytest.raises(GradcheckError):
        gradcheck(lambda *_: surrogate(lambda x: x * x, lambda x: 1.001 * x * x)(x), (x,))
    np.testing.assert_array_equal(x.detach().numpy(), POINT)


def test_one_tensor_given_twice() -> None:
    x = leaf()
    assert gradcheck(lambda a, b: a * tape.sin(b), (x, x))


def test_inputs_that_were_computed() -> None:
    x = leaf()
    assert gradcheck(tape.sin, (x * 2,))
    assert gradcheck(lambda a, b: a * b, ((x * 2).T, leaf(POINT.T)))


def test_empty_and_single_elements() -> None:
    assert gradcheck(tape.sin, leaf(np.zeros((0, 3))))
    assert gradcheck(tape.sin, leaf(0.5))
    assert gradcheck(lambda x: x, leaf())


@pytest.mark.quick
def test_outputs_without_gradient() -> None:
    assert gradcheck(lambda x: x > 0, leaf())
    assert gradcheck(lambda x: (x > 0, tape.tensor([1, 2])), leaf(), fast_mode=True)
    assert gradcheck(lambda x: x.detach() * 0 + 1, leaf())
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, leaf())


def two_outputs(rule: Callable[..., Any], *, materialize: bool) -> Op:
    class Two(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            del ctx
            return rule(g, h)

    return Two.apply


def undefined_is_zero(g: Any, h: Any) -> Any:
    parts = [c * w for c, w in ((g, 2.0), (h, 3.0)) if c is not None]
    return parts[0] + parts[1] if len(parts) == 2 else parts[0]


def one_for_undefined(g: Any, h: Any) -> Any:
    return (g * 2.0 if g is not None else 1.0) + (h * 3.0 if h is not None else 1.0)


def test_undefined_cotangents() -> None:
    assert gradcheck(two_outputs(lambda g, h: g * 2.0 + h * 3.0, materialize=True), leaf())
    assert gradcheck(two_outputs(undefined_is_zero, materialize=False), leaf())
    wrong = two_outputs(one_for_undefined, materialize=False)

    def joined(x: Any) -> Any:
        """Have both cotangents defined in the rows of the Jacobian."""
        y, z = wrong(x)
        return y + z, z

    with pytest.raises(GradcheckError):
        gradcheck(wrong, leaf())
    with pytest.raises(GradcheckError, match="undefined"):
        gradcheck(joined, leaf(), atol=10.0)


def test_single_precision_warns_and_passes_where_it_can() -> None:
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision floating point"):
        assert gradcheck(lambda x: x * 2, leaf(dtype=np.float32), eps=1e-2, atol=1e-3)


@pytest.mark.quick
def test_inputs_that_cannot_be_checked() -> None:
    with pytest.raises(ValueError, match="gradcheck expects at least one input tensor to require gradient"):
        gradcheck(tape.sin, tape.tensor(POINT))
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradgradcheck(tape.sin, (POINT,))
    repeated = tape.from_numpy(np.lib.stride_tricks.as_strided(np.ones(1), (3,), (0,))).requires_grad_()
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(tape.sin, repeated)


def test_results_that_cannot_be_checked() -> None:
    with pytest.raises(TypeError, match="func is to return a Tensor or a tuple of Tensors, not float"):
        gradcheck(lambda x: x.sum().item(), leaf())
    with pytest.raises(ValueError, match="at least one output that requires grad"):
        gradgradcheck(lambda x: x > 0, leaf())
    length = Counter()
    with pytest.raises(GradcheckError, match="Expected `func` to return outputs with the same shape"):
        gradcheck(lambda x: x.reshape(-1)[: 2 + length() % 2], leaf())


@pytest.mark.parametrize(
    ("check", "flags", "message"),
    [
        (gradcheck, {"check_backward_ad": False}, "at least one of check_forward_ad or check_backward_ad"),
        (
            gradcheck,
            {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": True},
            "check_batched_grad=True requires check_backward_ad",
        ),
        (gradcheck, {"check_batched_forward_grad": True}, "check_batched_forward_grad=True requires check_forward_ad"),
        (gradgradcheck, {"check_rev_over_rev": False}, "at least one of check_fwd_over_rev or check_rev_over_rev"),
        (
            gradgradcheck,
            {"check_fwd_over_rev": True, "check_rev_over_rev": False},
            "check_undefined_grad=True requires check_rev_over_rev",
        ),
    ],
)
def test_flags_that_contradict_each_other(check: Any, flags: dict[str, bool], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(tape.sin, leaf(), **flags)


def jvp_of_sine(factor: float) -> Op:
    """Return a jvp that knows only the sine."""

    def jvp(f: Op, primals: Any, tangents: Any) -> Any:
        return f(*primals), tuple(t * tape.cos(x) * factor for x, t in zip(primals, tangents, strict=True))

    return jvp


@pytest.mark.parametrize("fast", [False, True])
def test_forward_mode_is_checked(monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    def check(factor: float, **more: Any) -> bool:
        monkeypatch.setattr(finite_differences, "jvp", jvp_of_sine(factor))
        return gradcheck(tape.sin, leaf(), check_forward_ad=True, fast_mode=fast, **more)

    assert check(1.0)
    assert check(1.0, check_backward_ad=False)
    for backward in (True, False):
        with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch for output 0"):
            check(1.001, check_backward_ad=backward)


def with_jvp(factor: float) -> Op:
    """Return x * x with a jvp so many times the right one."""

    class Square(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2.0 * x * g

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2.0 * factor * x * t

    return Square.apply


@pytest.mark.parametrize("fast", [False, True])
def test_forward_mode_of_this_version(fast: bool) -> None:
    pytest.importorskip("tape.func")

    def f(x: Any, n: int, y: Any) -> Any:
        return tape.sin(x) * y * n, x > 0, x.sum(), y.detach()

    assert gradcheck(f, (leaf(), 2, leaf(0.5)), check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(f, (leaf(), 2, leaf(0.5)), check_fwd_over_rev=True, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_wrong_jvp_of_a_function(fast: bool) -> None:
    pytest.importorskip("tape.func")
    assert gradcheck(with_jvp(1.0), leaf(), check_forward_ad=True, fast_mode=fast)
    assert gradcheck(with_jvp(1.001), leaf(), fast_mode=fast)
    with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch"):
        gradcheck(with_jvp(1.001), leaf(), check_forward_ad=True, fast_mode=fast)


def test_batched_forward_mode() -> None:
    pytest.importorskip("tape.func")
    assert gradcheck(
        lambda x, y: (tape.sin(x) * y, x.sum()),
        (leaf(), leaf(0.5)),
        check_forward_ad=True,
        check_batched_forward_grad=True,
    )


def test_batched_gradients() -> None:
    assert gradcheck(lambda x: (tape.sin(x), x.sum()), leaf(), check_batched_grad=True)
    assert gradcheck(tape.sin, leaf(), check_batched_grad=True, fast_mode=True)


def test_nothing_of_the_callers_is_changed() -> None:
    x, mask = leaf(), tape.tensor(POINT > 0)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 (the state that must not change)
    gradcheck(lambda x, m: tape.where(m, x * x, x), (x, mask))
    assert x.grad is None
    np.testing.assert_array_equal(x.detach().numpy(), POINT)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


CASES = [case for op in OPS.values() if op.differentiable for case in record_cases.cases_of(op) if case.differentiable]


def chosen(cases: list[record_cases.Case], *endings: str) -> pytest.MarkDecorator:
    """Take each record's quick cases, or its first, and those of some layouts: a kernel takes 0.1 s to compile."""
    first = {case.name.partition("-")[0]: case for case in reversed(cases)}
    rows = [c for c in cases if c.quick or first[c.name.partition("-")[0]] is c or c.name.endswith(endings)]
    return pytest.mark.parametrize("case", record_cases.params(rows, pytest.mark.quick))


def test_each_differentiable_record_has_a_case() -> None:
    names = {case.name.partition("-")[0] for case in CASES}
    assert names == {op.name for op in OPS.values() if op.differentiable}


@chosen(CASES, "-empty", "-keep", "strided", "turned")
def test_every_record_is_accepted(case: record_cases.Case) -> None:
    assert gradcheck(case.run, tuple(record_cases.tensors(case.leaves(np.float64))))


@chosen(CASES, "-keep", "turned")
def test_every_record_is_accepted_twice(case: record_cases.Case) -> None:
    assert gradgradcheck(case.run, tuple(record_cases.tensors(case.leaves(np.float64))))
