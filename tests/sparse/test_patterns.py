"""Patterns hold every element of a derivative that is not zero: of each record, and of random programs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import tape
from kernels.kinds.views import Gather
from kernels.operations import OPS
from kernels.programs import patterns
from tape.operations.diagonals import raveled
from tests.support import record_cases
from tests.support.random_programs import program_of
from tests.support.record_cases import Case

quick = pytest.mark.quick
CASES = [case for op in OPS.values() for case in record_cases.cases_of(op) if case.replayed and case.differentiable]
exhaustive = pytest.mark.exhaustive


def missing(program: tape.Program, dense: Any) -> int:
    """Return how many elements of a Jacobian that are not zero a pattern does not have."""
    pattern = program.pattern().toarray()
    assert pattern.shape == dense.shape
    return int(((dense != 0) & np.isfinite(dense) & ~pattern).sum())


def jacobian(function: Any, *leaves: Any) -> Any:
    """Return the dense Jacobian of all results by all elements of arguments that are floats."""
    floats = [i for i, x in enumerate(leaves) if np.asarray(x).dtype.kind == "f"]
    vector, back = raveled([np.asarray(leaves[i]) for i in floats])

    def call(v: Any) -> Any:
        full = list(leaves)
        for i, x in zip(floats, back(v), strict=True):
            full[i] = x
        return raveled(function(*full))[0]

    return np.asarray(tape.func.jacrev(call)(vector))


@exhaustive
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=[quick] * c.quick) for c in CASES])
def test_each_record_is_within_its_pattern(case: Case) -> None:
    leaves = case.leaves(np.float64)
    with np.errstate(all="ignore"):
        assert missing(tape.record(case.run, *leaves), jacobian(case.run, *leaves)) == 0


SIZE = 12
STEPS = (
    "{0} * {1}", "{0} + 2.0 * {1}", "tape.where({0} > {1}, {0}, 3.0)", "tape.where(mask, {0}, {1})", "tape.sin({0})",
    "{0}.sum() + {1} * 0.5", "tape.cumsum({0}, 0)", "{0} * {1}.mean()", "tape.sort({0})[0]",
    "tape.flip({0}, (0,)) - {1}",
    "({0}.reshape(3, 4) @ {1}.reshape(4, 3)).reshape(-1)[places % 9]", "tape.cat([{0}[:5], {1}[5:]])",
    "tape.stack([{0}, {1}], 1)[:, 1] + {0}", "{0}.reshape(3, 4).amax(1, keepdims=True).expand(3, 4).reshape(-1)",
    "written({0}, {1})", "{0}.index_add(0, tape.tensor(places // 2), {1})", "{0}[{1}.argsort()] * {1}", "matrix @ {0}",
    "tape.interp({0}, knots, {1})", "{0}.floor() * {1}", "tape.softmax({0}.reshape(3, 4), 1).reshape(-1)",
    "tape.linalg.solve({0}.reshape(3, 2, 2) + eye, {1}[:6].reshape(3, 2, 1)).reshape(-1)[places % 6]",
    "{0}.clone().fill_(2.0) * {1}", "{0}.detach() * {1}", "masked({0}, {1})", "moved({0})", "{0}[places]",
    "tape.roll({0}, 2) + {1}[::-1]", "{0} * {1}[{0}.argmax()]", "{0}.unfold(0, 3, 2).sum(1)[places % 5] + {1}",
    "{0}.reshape(3, 4).T.reshape(-1)", "{0}.reshape(3, 4).diagonal()[places % 3]", "{0}[0] * {1}",
)  # fmt: skip
NAMES: dict[str, Any] = {
    "tape": tape, "mask": np.arange(SIZE) % 3 == 0, "places": np.array([0, 3, 3, 7, 11, 2, 5, 1, 9, 4, 6, 8]),
    "knots": np.linspace(-3.0, 3.0, SIZE), "eye": 4.0 * np.eye(2),
    "matrix": scipy.sparse.random_array((SIZE, SIZE), density=0.2, random_state=3).tocsr(),
}  # fmt: skip


def written(x: Any, y: Any) -> Any:
    z = x * 1.0
    z[2:6] = y[:4]
    z[::5] += 2.0 * x[::5]
    return z


def masked(x: Any, y: Any) -> Any:
    z = x * 1.0
    z[z > 0.5] = y[0]
    return z


def moved(x: Any) -> Any:
    z = x * 1.0
    z[1:] = z[:-1].clone()
    z[NAMES["places"][:3]] = x[-3:]
    return z


NAMES.update(written=written, masked=masked, moved=moved)
PROGRAMS = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.booleans(), st.booleans()), min_size=1, max_size=6)


def function_of(steps: list[tuple[int, bool, bool]]) -> Any:
    """Return a function of a vector that is made of these steps, each of the two latest values."""
    lines = ["def f(x):", "    y = 1.5 * x"]
    for step, swapped, first in steps:
        expression = STEPS[step].format(*("yx" if swapped else "xy"))
        lines.append(f"    {'x' if first else 'y'} = {expression}")
    names = dict(NAMES)
    exec("\n".join([*lines, "    return tape.cat([x, y])"]), names)  # noqa: S102 (of the steps above)
    return names["f"]


def faults(steps: list[tuple[int, bool, bool]], seed: int) -> int:
    """Return how many elements patterns and derivatives of a random program lack, or have otherwise."""
    function = function_of(steps)
    sparse = tape.sparse.jacobian(function)
    count = 0
    for point in np.random.default_rng(seed).uniform(-2.0, 2.0, (3, SIZE)):
        dense = tape.func.jacrev(function)(point)
        pattern = sparse.pattern(point).toarray()
        count += int(((dense != 0) & ~pattern).sum())
        count += int((~np.isclose(sparse(point).toarray(), dense, rtol=1e-9, atol=1e-9)).sum())
    return count


@quick
@settings(max_examples=60, deadline=None, derandomize=True)
@given(PROGRAMS, st.integers(0, 1000))
def test_random_programs(steps: list[tuple[int, bool, bool]], seed: int) -> None:
    assert faults(steps, seed) == 0


@exhaustive
@settings(max_examples=2000, deadline=None)
@given(PROGRAMS, st.integers(0, 1 << 30))
def test_many_random_programs(steps: list[tuple[int, bool, bool]], seed: int) -> None:
    assert faults(steps, seed) == 0


def _each_alone() -> int:
    return sum(faults([(step, swapped, False)], 1) for step in range(len(STEPS)) for swapped in (False, True))


@quick
def test_each_step_alone() -> None:
    assert _each_alone() == 0


def _first(_: Any, sets: Any, axes: Any) -> Any:
    for axis in axes:
        sets = np.take(sets, [0], axis)
    return sets


def _first_operand(_: Any, a: Any, b: Any) -> Any:
    return np.broadcast_arrays(a, b)[0].copy()


def _nothing(*_: Any) -> Any:
    return np.zeros((), np.int64)


PLANTED = {
    "a sum depends on its first element": (patterns.Sets, "along", _first),
    "a union is its first operand": (patterns.Sets, "united", _first_operand),
    "writes are not seen": (patterns.Dependence, "_written", _nothing),
}


@pytest.mark.parametrize("name", [*PLANTED, "reads by places depend on nothing"])
def test_planted_faults_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in PLANTED:
        monkeypatch.setattr(*PLANTED[name])
    else:
        monkeypatch.setitem(patterns._RESULTS, Gather, _nothing)
    assert _each_alone() > 0


@exhaustive
@pytest.mark.parametrize("seed", range(150))
def test_random_programs_of_two_arrays(seed: int) -> None:
    program = program_of(random.Random(seed), seed)  # noqa: S311 (a program)
    x, y, *rest = program.arguments()
    if any(np.asarray(z).dtype != np.float64 for z in (x, y)):
        pytest.skip("single precision")

    rest = [tape.tensor(z) for z in rest]

    def call(x: Any, y: Any) -> Any:
        result = program.function(x, y, *rest)
        return result[0] if isinstance(result, tuple) else result

    try:
        recorded = tape.record(call, x, y)
        pattern = recorded.pattern()
    except (TypeError, RuntimeError):
        pytest.skip("returns what programs do not")
    assert pattern.shape[1] == np.size(x) + np.size(y)
    if not recorded._escapes:
        with np.errstate(all="ignore"):
            assert missing(recorded, jacobian(call, x, y)) == 0


@quick
def test_patterns_of_compiled_functions() -> None:
    @tape.compile(mode="max")
    def smoothed(x: Any) -> Any:
        while (x * x).sum() > 1.0:
            x = 0.6 * tape.cat([x[1:], x[-1:]])
        return x

    size = 2.0
    while not any(program.has_loops for program in smoothed.programs):
        smoothed(np.full(5, size))
        size += 1.0
    program = next(program for program in smoothed.programs if program.has_loops)
    pattern = program.pattern().toarray()
    for size in (5.0, 20.0, 90.0):
        assert not ((tape.func.jacrev(smoothed.__wrapped__)(np.full(5, size)) != 0) & ~pattern).any()
    assert not np.tril(pattern, -1).any()
    assert (smoothed.pattern() != smoothed.programs[0].pattern()).nnz == 0


@quick
def test_products_and_scans_are_dense_in_their_axes_alone() -> None:
    def rows(x: Any) -> Any:
        return tape.cumsum(x.reshape(2, 3), 1)

    expected = np.kron(np.eye(2, dtype=bool), np.ones((3, 3), bool))
    assert (tape.record(rows, np.ones(6)).pattern().toarray() == expected).all()
    products = tape.record(lambda a: a @ np.ones((2, 1)), np.ones((3, 2))).pattern().toarray()
    assert (products == np.kron(np.eye(3, dtype=bool), np.ones((1, 2), bool))).all()


@quick
@pytest.mark.parametrize("name", ["solve", "inv", "det", "cholesky", "bmm"])
def test_matrices_of_a_batch_are_apart(name: str) -> None:
    def call(x: Any) -> Any:
        a = x.reshape(3, 2, 2)
        a = a @ a.transpose(1, 2) + NAMES["eye"]
        two = name in ("solve", "bmm")
        return getattr(tape if name == "bmm" else tape.linalg, name)(a, a) if two else getattr(tape.linalg, name)(a)

    x = np.random.default_rng(0).uniform(0.5, 1.0, 12)
    program = tape.record(call, x)
    assert missing(program, jacobian(call, x)) == 0
    blocks = np.kron(np.eye(3, dtype=bool), np.ones((program.pattern().shape[0] // 3, 4), bool))
    assert not (program.pattern().toarray() & ~blocks).any()


@quick
def test_a_dense_pattern_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_MEMBERS", 1000)
    with pytest.raises(ValueError, match="dense"):
        tape.sparse.jacobian(lambda x: x * tape.cumsum(x, 0))(np.ones(100))
    assert tape.sparse.jacobian(lambda x: x * x)(np.ones(100)).nnz == 100


@quick
def test_sets_of_no_more_use_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def smoothed(x: Any) -> Any:
        for _ in range(12):
            x = 0.5 * x + 0.25 * (tape.roll(x, 1) + tape.roll(x, -1))
        return x

    expected = tape.record(smoothed, np.ones(60)).pattern()
    monkeypatch.setattr(patterns, "_LOOK", 200)
    monkeypatch.setattr(patterns, "MOST_MEMBERS", 6000)
    assert (tape.record(smoothed, np.ones(60)).pattern() != expected).nnz == 0
    assert expected.nnz == 60 * 25
    assert _each_alone() == 0


@quick
def test_large_sets_are_kept_once() -> None:
    program = tape.record(lambda x: (x * x.sum())[1:] - x[:-1], np.ones(700))
    assert program.pattern().nnz == 699 * 700
