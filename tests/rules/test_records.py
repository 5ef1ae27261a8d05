"""Every record: value, gradient, replay, special values, by cases that are made from the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.routine import Guard, LoopMark
from kernels.operations import OPS
from tape.recording import promotion

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.support import record_cases
from tests.support.record_cases import Case, bits, tensors

CASES = [case for op in OPS.values() for case in record_cases.cases_of(op)]
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])


FIRST = {(type(op), len(getattr(op, "inputs", ()))): op.name for op in reversed(OPS.values())}
"""A record of each kind and number of operands: every run takes all its layouts, in both dtypes; one case of others."""
WHOLE = {*FIRST.values()}


def both(cases: list[Case]) -> pytest.MarkDecorator:
    """Run each case in float64, and some in float32."""
    rows = []
    for case in cases:
        marks = [] if case.name.partition("-")[0] in WHOLE else [pytest.mark.exhaustive]
        rows.append(
            pytest.param(case, np.float64, id=f"{case.name}-f8", marks=[pytest.mark.quick] * case.quick or marks)
        )
        if case.single or case.quick:
            rows.append(pytest.param(case, np.float32, id=f"{case.name}-f4", marks=marks))
    return pytest.mark.parametrize(("case", "dtype"), rows)


def test_each_record_has_cases() -> None:
    for op in OPS.values():
        assert record_cases.cases_of(op) or isinstance(op, (Guard, LoopMark)), op.name  # in programs only


@both(CASES)
def test_value(case: Case, dtype: type) -> None:
    record_cases.check_value(case, dtype)


@both([case for case in CASES if case.differentiable])
def test_gradient(case: Case, dtype: type) -> None:
    record_cases.check_gradient(case, dtype)


@both([case for case in CASES if case.differentiable])
def test_second_gradient(case: Case, dtype: type) -> None:
    record_cases.check_second_gradient(case, dtype)


@both([case for case in CASES if case.replayed])
def test_replay(case: Case, dtype: type) -> None:
    record_cases.check_replay(case, dtype)


POINTS = {
    "0": 0.0, "-0": -0.0, "1": 1.0, "tiny": np.finfo(float).tiny,
    "subnormal": np.finfo(float).smallest_subnormal, "huge": np.finfo(float).max,
    "inf": np.inf, "nan": np.nan,
}  # fmt: skip
NAN, INF = np.nan, np.inf
COS_HUGE, SIN_HUGE = np.cos(POINTS["huge"]), np.sin(POINTS["huge"])

# The derivative at each of POINTS, in float64; PyTorch's choices where mathematics has none.
DERIVATIVES: dict[str, list[float]] = {
    "negative": [-1.0] * 8,
    "positive": [1.0] * 8,
    "square": [0.0, 0.0, 2.0, 2 * POINTS["tiny"], 1e-323, INF, INF, NAN],
    "sqrt": [INF, -INF, 0.5, 0.5 / np.sqrt(POINTS["tiny"]), 0.5 / np.sqrt(5e-324),
             0.5 / np.sqrt(POINTS["huge"]), 0.0, NAN],
    "reciprocal": [-INF, -INF, -1.0, -INF, -INF, 0.0, 0.0, NAN],
    "absolute": [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, NAN],
    "exp": [1.0, 1.0, np.e, 1.0, 1.0, INF, INF, NAN],
    "log": [INF, -INF, 1.0, 1 / POINTS["tiny"], INF, 1 / POINTS["huge"], 0.0, NAN],
    "sin": [1.0, 1.0, 0.5403023058681398, 1.0, 1.0, COS_HUGE, NAN, NAN],
    "cos": [0.0, 0.0, -0.8414709848078965, -POINTS["tiny"], -5e-324, -SIN_HUGE, NAN, NAN],
    "tan": [1.0, 1.0, 3.425518820814759, 1.0, 1.0, 1 / COS_HUGE**2, NAN, NAN],
    "tanh": [1.0, 1.0, 0.4199743416140261, 1.0, 1.0, 0.0, 0.0, NAN],
}  # fmt: skip

# (a, b, derivative by a, derivative by b)
PAIRS: dict[str, list[tuple[float, float, float, float]]] = {
    "add": [(INF, -INF, 1.0, 1.0), (NAN, 1.0, 1.0, 1.0)],
    "subtract": [(INF, INF, 1.0, -1.0), (NAN, 1.0, 1.0, -1.0)],
    "multiply": [(0.0, INF, INF, 0.0), (NAN, 2.0, 2.0, NAN), (1e308, 1e308, 1e308, 1e308)],
    "divide": [(1.0, 0.0, INF, -INF), (0.0, 0.0, INF, NAN), (INF, INF, 0.0, NAN),
               (1.0, INF, 0.0, 0.0), (0.0, -0.0, -INF, NAN), (1.0, 1e-200, 1e200, -INF)],
    "power": [(0.0, 2.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0), (2.0, 0.0, 0.0, np.log(2)),
              (0.0, -1.0, -INF, -INF), (-2.0, 2.0, -4.0, NAN), (INF, 2.0, INF, INF), (NAN, 0.0, 0.0, NAN),
              (-2.0, 3.0, 12.0, NAN), (0.0, 0.5, INF, 0.0)],
    "maximum": [(1.0, 1.0, 0.5, 0.5), (0.0, -0.0, 0.5, 0.5), (INF, INF, 0.5, 0.5), (2.0, 1.0, 1.0, 0.0),
                (-INF, 1.0, 0.0, 1.0)],
    "minimum": [(1.0, 1.0, 0.5, 0.5), (0.0, -0.0, 0.5, 0.5), (INF, INF, 0.5, 0.5), (2.0, 1.0, 0.0, 1.0),
                (-INF, 1.0, 1.0, 0.0)],
}  # fmt: skip

# (x, p, derivative of x ** p)
NUMBERS = [
    (0.0, 0.0, 0.0), (NAN, 0.0, 0.0), (0.0, 1.0, 1.0), (-0.0, 2.0, 0.0), (0.0, 3.0, 0.0), (0.0, 0.5, INF),
    (0.0, -1.0, -INF), (-2.0, 3.0, 12.0), (-2.0, -1.0, -0.25), (INF, 2.0, INF), (INF, -1.0, 0.0),
    (5e-324, 2.0, 1e-323), (-1.0, 0.5, NAN), (1e200, 2.0, 2e200), (NAN, 1.0, 1.0),
]  # fmt: skip

quiet = pytest.mark.filterwarnings(
    "ignore:divide by zero", "ignore:overflow", "ignore:invalid value", "ignore:underflow"
)


def gradients(function: Callable[..., Any], *values: float, dtype: type = np.float64) -> list[float]:
    """Return the gradients of a function of 0-d tensors; replay must find the same."""
    inputs = [tape.tensor(np.array(v, dtype), requires_grad=True) for v in values]
    function(*inputs).backward()
    found = [x.grad.item() for x in inputs]
    program = tape.record(function, *(np.array(1.5, dtype) for _ in values))
    _, replayed = program.value_and_grad(*(np.array(v, dtype) for v in values))
    assert bits(np.array(replayed)) == bits(np.array(found))
    return found


def test_stated_results_belong_to_records() -> None:
    assert DERIVATIVES.keys() | PAIRS.keys() <= OPS.keys()


@quiet
@pytest.mark.parametrize("name", DERIVATIVES)
def test_stated_derivatives(name: str) -> None:
    op: Any = OPS[name]
    found = [gradients(lambda x: promotion.elementwise(op, x), v)[0] for v in POINTS.values()]
    np.testing.assert_allclose(found, DERIVATIVES[name], rtol=1e-13)
    x = tape.tensor(list(POINTS.values()), requires_grad=True)
    promotion.elementwise(op, x).backward(tape.ones(len(POINTS)))
    np.testing.assert_allclose(x.grad.numpy(), DERIVATIVES[name], rtol=1e-13)


@quiet
@pytest.mark.parametrize("name", PAIRS)
def test_stated_derivatives_of_pairs(name: str) -> None:
    op: Any = OPS[name]
    for a, b, by_a, by_b in PAIRS[name]:
        found = gradients(lambda x, y: promotion.elementwise(op, x, y), a, b)
        np.testing.assert_allclose(found, [by_a, by_b], rtol=1e-13, err_msg=f"{name} of {a}, {b}")


@quiet
def test_stated_derivatives_of_powers() -> None:
    for x, p, expected in NUMBERS:
        found = gradients(lambda t, p=p: t**p, x)
        np.testing.assert_allclose(found, [expected], rtol=1e-13, err_msg=f"{x} ** {p}")


@quiet
@DTYPES
@pytest.mark.parametrize("op", [o for o in OPS.values() if isinstance(o, Elementwise)], ids=lambda o: o.name)
def test_special_values_are_those_of_numpy(op: Elementwise, dtype: type) -> None:
    info = np.finfo(dtype)
    points = [0.0, -0.0, 1.0, info.tiny, info.smallest_subnormal, info.max, np.inf, np.nan, -1.0, -np.inf]
    if "p" in op.forward.__code__.co_varnames:
        pytest.skip("a static number: the stated derivatives have its special values")
    domains = [d for d in op.domain if d != "constant"]
    grid = np.meshgrid(*[np.array(points, dtype)] * len(domains))
    values = [record_cases.placed(g, d) for g, d in zip(grid, domains, strict=True)]

    def run(*xs: Any) -> Any:
        return promotion.run_with_promotion(op, *record_cases.completed(op, xs))

    expected = op.ufunc(*record_cases.completed(op, values))  # type: ignore[misc]
    found = run(*tensors(values))
    if op.composed and op.vector:  # one loop of ours for what takes several ufuncs
        shown = found.detach().numpy()
        np.testing.assert_allclose(shown, expected, 4 * info.eps, info.tiny)
        np.testing.assert_array_equal(np.signbit(shown)[expected == 0], np.signbit(expected[expected == 0]))
    else:
        assert bits(found) == bits(expected)
    program = tape.record(run, *(np.ones_like(v) for v in values))
    assert bits(program(*tensors(values))) == bits(found)
