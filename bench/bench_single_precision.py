"""Compiled programs in float32 against themselves in float64, and against JAX and PyTorch in float32.

`python -m pytest bench/bench_single_precision.py -s` prints a row a workload: value and all gradients, one thread.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.bars import Scoreboard
from bench.compiled_rivals import COMPILED, WARM_CALLS, check, compiled_function, runner_of
from bench.compiled_workloads import JAX, PYTORCH, WORKLOADS, CompiledWorkload
from bench.in_turn import readable, times_in_turn

NAMES = {
    "rosenbrock_1000", "rosenbrock_1000000", "black_scholes", "lotka_volterra_1000", "burgers_by_cat",
    "burgers_in_place", "n_body_500", "gmm", "mlp_small", "mlp_large", "logsumexp", "softmax", "wave", "kalman",
}  # fmt: skip
LONG = [workload for workload in WORKLOADS if workload.name in NAMES]
SHORT = [workload for workload in LONG if workload.name in {"rosenbrock_1000", "burgers_in_place", "mlp_small"}]
IN_DOUBLE = "float64"
# What is wanted, of the times of the same program in float64, of JAX and of PyTorch in float32.
AT_MOST = {IN_DOUBLE: 1.0, JAX: 1.0, PYTORCH: 1.0}


def single(workload: CompiledWorkload) -> CompiledWorkload:
    """Return a workload whose floats, in arrays or not, are float32."""
    leaves, constants = (tuple(map(_single, values)) for values in (workload.leaves, workload.constants))
    return replace(workload, leaves=leaves, constants=constants)


def _single(x: Any) -> Any:
    array = np.asarray(x)
    if array.dtype != np.float64:
        return x
    return array.astype(np.float32) if array.ndim else np.float32(x)


def check_single(workload: CompiledWorkload, found: Any) -> None:
    """Assert what is computed in float32 against the adjoint by hand, in float64."""
    check(str(workload), found, workload.hand(*workload.arguments), rtol=1e-4, of_largest=1e-3)


@pytest.mark.parametrize("workload", LONG, ids=str)
def test_workload(workload: CompiledWorkload, scoreboard: Scoreboard) -> None:
    """The times in turn."""
    runners = {COMPILED: runner_of(COMPILED, single(workload)), IN_DOUBLE: runner_of(COMPILED, workload)}
    runners |= {name: runner_of(name, single(workload)) for name in (JAX, PYTORCH)}
    there = {name: runner for name, runner in runners.items() if not isinstance(runner, str)}
    check_single(workload, there[COMPILED]())
    times = times_in_turn(there)
    of = {name: times[COMPILED].over(times[name]) for name in AT_MOST if name in times}
    verdict = "pass" if all(ratio <= AT_MOST[name] for name, ratio in of.items()) else "FAIL"
    ratios = ", ".join([f"{ratio:.2f} of {name}" for name, ratio in of.items()])
    line = f"{verdict}  {workload}, float32: {readable(times[COMPILED].median)}, {ratios}; wanted <= 1 of each"
    scoreboard.note(line)
    sys.stdout.write(line + "\n")


@pytest.mark.quick
@pytest.mark.parametrize("workload", SHORT, ids=str)
def test_answers(workload: CompiledWorkload) -> None:
    """Compiled programs in float32 agree with the adjoint by hand, from the first call on."""
    both, arguments = compiled_function(workload), single(workload).arguments
    for _ in range(WARM_CALLS):
        check_single(workload, both(*arguments))
    for gradient, leaf in zip(both(*arguments)[1], single(workload).leaves, strict=True):
        assert np.asarray(gradient).dtype == np.asarray(leaf).dtype
