"""Contracts of a backward besides right gradients: what it must not change, and which cotangents it must accept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tape.checks import memory_layouts
from tape.checks.comparison import Comparison
from tape.checks.finite_differences import as_tuple, memory_of
from tape.checks.jacobians import (
    Case,
    GradcheckError,
    Gradients,
    filled,
    forward_function,
    gapped,
    pull,
    push,
    random_like,
    unit_tangents,
)
from tape.conversions.creation import from_numpy, tensor
from tape.engine.rules.custom_calls import CHANGED
from tape.func import jvp, vmap
from tape.tensors.tensor import Tensor

_DOUBLE = 1e-10
"""Noise, relative to the values, below which a function is taken to compute in float64 throughout."""


def check(comparison: Comparison, *, undefined: bool, batched: bool) -> None:
    """Raise GradcheckError for the first contract that a backward breaks."""
    outputs, inputs = comparison.outputs, comparison.inputs
    if not outputs:
        return
    for k, output in enumerate(outputs if batched else ()):
        check_batched(output, inputs, k)
    gradients = check_linear(comparison)
    check_recorded(comparison, gradients)
    if comparison.precise_to(_DOUBLE):
        check_precision(comparison, gradients)
    check_zero(outputs, inputs)
    if undefined:
        check_undefined(outputs, inputs)
    for difference in memory_layouts.differences(comparison.case, comparison.close):
        raise GradcheckError(difference)


def check_linear(comparison: Comparison) -> Gradients:
    """Raise unless backward is linear in cotangents and takes strided ones; return gradients."""
    outputs, inputs = comparison.outputs, comparison.inputs
    first = random_like(outputs)
    check_cotangents(outputs, inputs, first)
    second = [np.cos(np.arange(c.size, dtype=c.dtype)).reshape(c.shape) for c in first]
    gradients = pull(outputs, inputs, first)
    base, second_gradients = filled(gradients, inputs), filled(pull(outputs, inputs, second), inputs)
    mixed = filled(pull(outputs, inputs, [1024 * a + b for a, b in zip(first, second, strict=True)]), inputs)
    strided = filled(pull(outputs, inputs, [from_numpy(gapped(c)) for c in first]), inputs)
    for i, (a, b, m, s) in enumerate(zip(base, second_gradients, mixed, strided, strict=True)):
        error = comparison.errors[i]
        if not comparison.close(m, 1024 * a + b, error=1024 * error):
            raise GradcheckError(f"Backward is not linear in grad_output: gradient of input {i}")
        if not comparison.close(s, a, error=error):
            raise GradcheckError(f"Backward depends on the strides of grad_output: gradient of input {i}")
    return gradients


def check_cotangents(outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any]) -> None:
    """Raise if the backward of a Function writes to its cotangents."""
    changed: list[int] = []
    token = CHANGED.set(changed)
    try:
        pull(outputs, inputs, cotangents)
    finally:
        CHANGED.reset(token)
    if changed:
        raise GradcheckError(f"Backward changed grad_output {changed[0]} in place; it must work on copies")


def check_recorded(comparison: Comparison, gradients: Gradients) -> None:
    """Raise unless a recorded backward gives the same gradients. What it raises is left to gradgradcheck."""
    outputs, inputs = comparison.outputs, comparison.inputs
    cotangents = [tensor(c) for c in random_like(outputs)]
    recorded = gradients
    with suppress(Exception):
        recorded = pull(outputs, inputs, cotangents, create_graph=True)
    for i, (r, g) in enumerate(zip(filled(recorded, inputs), filled(gradients, inputs), strict=True)):
        if not comparison.close(r, g, error=comparison.errors[i]):
            raise GradcheckError(f"Backward with create_graph=True gives another gradient of input {i}")


def check_zero(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise unless cotangents of zeros give zeros, of the inputs' dtypes and shapes."""
    for g, x in zip(pull(outputs, inputs, [np.zeros(o.shape, o.dtype) for o in outputs]), inputs, strict=True):
        if g is None:
            continue
        if memory_of(g).any():
            raise GradcheckError("backward not multiplied by grad_output")
        if g.dtype != x.dtype:
            raise GradcheckError(f"grad is incorrect type: {g.dtype} for an input of {x.dtype}")
        if tuple(g.shape) != tuple(x.shape):
            raise GradcheckError(f"grad is incorrect size: {tuple(g.shape)} for {tuple(x.shape)}")


def check_precision(comparison: Comparison, gradients: Gradients) -> None:
    """Raise for a float64 gradient that holds float32 numbers only: a cast hides the dtype that backward returned."""
    for i, (g, error) in enumerate(zip(gradients, comparison.errors, strict=True)):
        values = np.zeros(0) if g is None else memory_of(g)
        significant = values.dtype == np.float64 and np.abs(values).max(initial=0.0) > error
        if significant and np.array_equal(values, values.astype(np.float32)):
            raise GradcheckError(f"Gradient has dtype mismatch: that of input {i} was rounded to float32 on its way")


def check_undefined(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise unless backward takes each output's cotangent being undefined, others being zeros, for zeros."""
    for k in range(len(outputs) if len(outputs) > 1 else 0):
        others = [o for i, o in enumerate(outputs) if i != k]
        try:
            gradients = pull(others, inputs, [np.zeros(o.shape, o.dtype) for o in others])
        except Exception as error:
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads, but with that of output {k} undefined "
                f"it raised {type(error).__name__}: {error}. check_undefined_grad=False leaves this check out"
            ) from error
        if any(g is not None and memory_of(g).any() for g in gradients):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero"
            )


def check_batched(output: Tensor, inputs: Sequence[Tensor], index: int) -> None:
    """Raise unless a batched backward of two cotangents returns the gradients of each."""
    ((first,), second) = random_like([output]), np.cos(np.arange(output.numel(), dtype=output.dtype))
    pair = np.stack([first, second.reshape(output.shape)])
    expected = [filled(pull([output], inputs, [c]), inputs) for c in pair]
    try:
        batched = pull([output], inputs, [pair], is_grads_batched=True)
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}") from error
    for i, (x, got, *alone) in enumerate(zip(inputs, batched, *expected, strict=True)):
        values = np.zeros((2, *x.shape)) if got is None else memory_of(got)
        if not np.allclose(values, alone, rtol=1e-5, atol=1e-8):
            raise GradcheckError(
                f"For output {index} and input {i}: batched gradients differ.\nGot:\n{values}\nExpected:\n{alone}"
            )


def check_batched_forward(case: Case) -> None:
    """Raise unless vmap over two tangents of an input returns the derivatives along each."""
    function, primals = forward_function(case)
    for i, x in enumerate(primals):
        pair = [random_like([x])[0], np.cos(np.arange(x.numel())).reshape(x.shape)]
        expected = [push(case, unit_tangents(primals, i, t)) for t in pair]

        def pushed(tangent: Tensor, i: int = i) -> Any:
            tangents = tuple(tangent if k == i else tensor(np.zeros(p.shape, p.dtype)) for k, p in enumerate(primals))
            return jvp(function, primals, tangents)[1]

        try:
            batched = as_tuple(vmap(pushed)(tensor(np.stack(pair).astype(x.dtype))))
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}") from error
        for k, (got, *alone) in enumerate(zip(batched, *expected, strict=True)):
            if not np.allclose(memory_of(got), alone, rtol=1e-5, atol=1e-8):
                raise GradcheckError(f"For output {k} and input {i}: batched forward gradients differ")
