"""Who runs a compiled workload: tape's two modes, the adjoint by hand, JAX, PyTorch, CasADi, each in its best form.

A runner is called without arguments. It returns the value and the gradients as its library has
them, ready; JAX and PyTorch keep the arguments as arrays of their own, CasADi writes to buffers.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from bench.compiled_workloads import HAND, JAX, PYTORCH, CompiledWorkload
from bench.library_names import NUMPY, jax_names

Runner = Callable[[], Any]

DYNAMIC, INTERPRETER, COMPILED, CASADI = "dynamic", "interpreter", "compiled", "CasADi"
# Calls before a compiled function is timed: hot code is there.
WARM_CALLS = 40
# Rivals of one thread: XLA starts threads of its own otherwise.
_XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def _dynamic(workload: CompiledWorkload) -> Runner:
    tape, function, arguments = importlib.import_module("tape"), workload.function, workload.arguments
    both = tape.value_and_grad(lambda *given: function(tape, *given), argnums=workload.argnums)
    return lambda: both(*arguments)


def compiled_function(workload: CompiledWorkload, mode: str = "max") -> Any:
    """Return value and gradient, to be recorded at their first call.

    No call is checked against dynamic mode, as the 4th, 8th, 16th and so on are by default: a check of a hundred
    milliseconds among calls of a tenth of one would be what is measured.
    """
    tape, function = importlib.import_module("tape"), workload.function
    both = tape.value_and_grad(lambda *given: function(tape, *given), argnums=workload.argnums)
    return tape.compile(both, mode=mode, check="never")


def _compiled(workload: CompiledWorkload, mode: str = "max") -> Runner:
    both, arguments = compiled_function(workload, mode), workload.arguments
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(WARM_CALLS):
            both(*arguments)
    for warning in caught:  # what stays in dynamic mode is timed all the same
        sys.stdout.write(f"{workload}: {warning.message}\n")
    return lambda: both(*arguments)


def _hand(workload: CompiledWorkload) -> Runner:
    hand, arguments = workload.hand, workload.arguments
    return lambda: hand(*arguments)


def _jax(workload: CompiledWorkload) -> Runner:
    os.environ.setdefault("XLA_FLAGS", _XLA_FLAGS)
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    names, function = jax_names(), workload.jax_form or workload.function
    both = jax.jit(jax.value_and_grad(lambda *given: function(names, *given).reshape(()), argnums=workload.argnums))
    arguments = [jax.numpy.asarray(argument) for argument in workload.arguments]
    return lambda: jax.block_until_ready(both(*arguments))


def _pytorch(workload: CompiledWorkload) -> Runner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports warn, which is not our concern
        torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    function = workload.torch_form or workload.function
    leaves = [torch.from_numpy(np.array(leaf)).requires_grad_() for leaf in workload.leaves]
    constants = [torch.as_tensor(constant) for constant in workload.constants]

    def run() -> Any:
        value = function(torch, *leaves, *constants)
        return value.item(), torch.autograd.grad(value, leaves)

    return run


def _casadi(workload: CompiledWorkload) -> Runner:
    casadi = importlib.import_module("casadi")
    with suppress(AttributeError):
        casadi.GlobalOptions.setNumpyMode(-1)  # NumPy's functions of its scalars are its own, as before 3.8
    sizes = [np.size(leaf) for leaf in workload.leaves]
    symbol = casadi.SX.sym("x", sum(sizes))
    symbols = casadi.vertsplit(symbol, [0, *itertools.accumulate(sizes)])
    elements = [_elements(part, leaf) for part, leaf in zip(symbols, workload.leaves, strict=True)]
    value = workload.function(NUMPY, *elements, *workload.constants)
    value = value.item() if isinstance(value, np.ndarray) else value
    gradient = casadi.gradient(value, symbol)
    both = casadi.Function("both", [symbol], [value, gradient])
    buffer, evaluate = both.buffer()
    given: Any = np.concatenate([np.ravel(leaf) for leaf in workload.leaves])
    results: Any = np.zeros(()), np.zeros_like(given)
    buffer.set_arg(0, memoryview(given))
    for k, result in enumerate(results):
        buffer.set_res(k, memoryview(result))
    parts = np.split(results[1], list(itertools.accumulate(sizes))[:-1])
    gradients = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, workload.leaves, strict=True)]

    def run(_alive: Any = (both, buffer, given)) -> Any:  # `evaluate` keeps nothing of these
        evaluate()
        return results[0], gradients

    return run


def _elements(symbol: Any, leaf: Any) -> Any:
    """Return CasADi's scalars in an array of NumPy's, in the leaf's shape; one scalar for a float."""
    if isinstance(leaf, float):
        return symbol
    elements = np.empty(leaf.size, dtype=object)
    for k in range(leaf.size):
        elements[k] = symbol[k]
    return elements.reshape(leaf.shape)


RUNNERS: dict[str, Callable[[CompiledWorkload], Runner]] = {
    DYNAMIC: _dynamic,
    INTERPRETER: partial(_compiled, mode="eager"),
    COMPILED: _compiled,
    HAND: _hand,
    JAX: _jax,
    PYTORCH: _pytorch,
    CASADI: _casadi,
}


def runner_of(name: str, workload: CompiledWorkload) -> Runner | str:
    """Return a runner, or why there is none."""
    if name == CASADI and not workload.casadi:
        return "-"
    try:
        return RUNNERS[name](workload)
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed"


def check(name: str, found: Any, wanted: Any, rtol: float = 1e-9, of_largest: float = 1e-11) -> None:
    """Assert value and gradients of a runner against those by hand, to so much of each, or of the largest."""
    value, gradients = found
    value_by_hand, gradients_by_hand = wanted
    np.testing.assert_allclose(np.ravel(value), np.ravel(value_by_hand), rtol=rtol, err_msg=name)
    assert len(gradients) == len(gradients_by_hand), name
    for gradient, by_hand in zip(gradients, gradients_by_hand, strict=True):
        array = np.asarray(gradient)
        assert array.shape == np.shape(by_hand), name
        largest = float(np.max(np.abs(by_hand), initial=0.0))
        np.testing.assert_allclose(array, by_hand, rtol=rtol, atol=of_largest * largest, err_msg=name)
