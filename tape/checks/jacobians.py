"""Jacobians by backward and by forward mode, for the checks to compare.

A Jacobian is an array (elements of the input, elements of the output), as PyTorch's gradcheck prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.checks.finite_differences import as_tuple, memory_of
from tape.conversions.creation import tensor
from tape.engine.backward import grad
from tape.func import jvp
from tape.tensors.tensor import Array, Tensor

Gradients = tuple[Tensor | None, ...]


class GradcheckError(RuntimeError):
    """Raised by :func:`gradcheck` and :func:`gradgradcheck` for a derivative that is wrong."""


@dataclass(frozen=True, slots=True)
class Case:
    """A function of tensors and other arguments, at a point."""

    func: Callable[..., Any]
    inputs: tuple[Any, ...]

    @property
    def wanted(self) -> list[Tensor]:
        """The inputs that require grad."""
        return [x for x in self.inputs if wants(x)]

    def run(self) -> tuple[Tensor, ...]:
        """Return the outputs. TypeError for one that is no tensor."""
        return outputs_of(self.func(*self.inputs))


def wants(x: Any) -> bool:
    """Whether an argument is a tensor that requires grad."""
    return isinstance(x, Tensor) and x.requires_grad


def outputs_of(result: Any) -> tuple[Tensor, ...]:
    """Return what a function returned as a tuple of tensors."""
    outputs = as_tuple(result)
    for output in outputs:
        if not isinstance(output, Tensor):
            raise TypeError(f"func is to return a Tensor or a tuple of Tensors, not {type(output).__name__}")
    return outputs


def differentiable(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs that require grad."""
    return tuple(o for o in outputs if o.requires_grad)


def random_like(tensors: Sequence[Tensor]) -> list[Array]:
    """Return random weights of either sign, none of them small; those in float64 are not exact in float32."""
    rng = np.random.default_rng(0)
    return [np.asarray(rng.uniform(0.5, 1.5, t.shape) * rng.choice([-1.0, 1.0], t.shape), t.dtype) for t in tensors]


def gapped(x: Array) -> Array:
    """Return a copy of an array that has a gap after each element."""
    return np.repeat(x[..., None], 2, -1)[..., 0]


def pull(outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any], **more: Any) -> Gradients:
    """Return the gradients of the inputs, None where an input is not used; the graph is kept."""
    weights = [c if isinstance(c, Tensor) else tensor(c) for c in cotangents]
    return grad(list(outputs), list(inputs), weights, retain_graph=True, allow_unused=True, **more)


def filled(gradients: Gradients, inputs: Sequence[Tensor]) -> list[Array]:
    """Return gradients as float64 arrays, zeros for None."""
    return [
        np.zeros(x.shape) if g is None else memory_of(g).astype(np.float64)
        for g, x in zip(gradients, inputs, strict=True)
    ]


def backward_rows(output: Tensor, inputs: Sequence[Tensor], *, check_dtypes: bool) -> list[Array]:
    """Return the Jacobian by each input, one backward an element of the output."""
    blocks = [np.zeros((x.numel(), output.numel())) for x in inputs]
    for place in range(output.numel()):
        cotangent = np.zeros(output.shape, output.dtype)
        cotangent.reshape(-1)[place] = 1
        gradients = pull([output], inputs, [cotangent])
        check_attributes(gradients, inputs, check_dtypes=check_dtypes)
        for jacobian, gradient in zip(blocks, filled(gradients, inputs), strict=True):
            jacobian[:, place] = gradient.reshape(-1)
    return blocks


def check_attributes(gradients: Gradients, inputs: Sequence[Tensor], *, check_dtypes: bool) -> None:
    """Raise for a gradient of another shape than its input's, or another dtype."""
    for g, x in zip(gradients, inputs, strict=True):
        if g is not None and tuple(g.shape) != tuple(x.shape):
            raise GradcheckError(f"Analytical gradient has incorrect size: {tuple(g.shape)} for {tuple(x.shape)}")
        if g is not None and check_dtypes and g.dtype != x.dtype:
            raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of {x.dtype}")


@contextmanager
def untouched(tensors: dict[str, Tensor]) -> Iterator[None]:
    """Raise, with the memory put back, if a backward within the block changes a tensor."""
    before = {name: memory_of(x).copy() for name, x in tensors.items()}
    failure = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 (raised again, unless it has a cause to be named)
        failure = error
    changed = [name for name, old in before.items() if memory_of(tensors[name]).tobytes() != old.tobytes()]
    for name in changed:
        memory_of(tensors[name])[...] = before[name]
    if changed:
        raise GradcheckError(f"Backward changed {' and '.join(changed)} in place; it must work on copies") from failure
    if failure is not None:
        raise failure


def forward_function(case: Case) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """Return a function of the inputs that require grad alone, to the floating outputs; and these inputs, detached."""

    def function(*moved: Tensor) -> tuple[Tensor, ...]:
        replacements = iter(moved)
        outputs = outputs_of(case.func(*(next(replacements) if wants(x) else x for x in case.inputs)))
        return tuple(o for o in outputs if o.is_floating_point())

    return function, tuple(x.detach() for x in case.wanted)


def push(case: Case, tangents: Sequence[Array]) -> list[Array]:
    """Return the tangents of the floating outputs for tangents of the inputs that require grad, by forward mode."""
    function, primals = forward_function(case)
    weights = tuple(tensor(np.asarray(t, x.dtype)) for t, x in zip(tangents, primals, strict=True))
    _, pushed = jvp(function, primals, weights)
    return [memory_of(t).astype(np.float64) for t in as_tuple(pushed)]


def unit_tangents(inputs: Sequence[Tensor], i: int, values: Array) -> list[Array]:
    """Return tangents of zeros for all inputs but one."""
    return [values.reshape(x.shape) if k == i else np.zeros(x.shape) for k, x in enumerate(inputs)]


def forward_columns(case: Case, sizes: Sequence[int]) -> list[list[Array]]:
    """Return, for each floating output (of these sizes) and each input, the Jacobian: one forward sweep an element."""
    blocks = [[np.zeros((x.numel(), size)) for x in case.wanted] for size in sizes]
    for i, x in enumerate(case.wanted):
        for place, unit in enumerate(np.eye(x.numel())):
            pushed = push(case, unit_tangents(case.wanted, i, unit))
            for of_output, tangent in zip(blocks, pushed, strict=True):
                of_output[i][place] = tangent.reshape(-1)
    return blocks
