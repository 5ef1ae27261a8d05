"""Functions of tape as operations of PyTensor's graphs, and by these of PyMC's models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor import tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from tape.interop import pullbacks

__all__ = ["to_pytensor"]


def to_pytensor(f: Callable[..., Any], *, ndim: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Return a function of PyTensor's variables that adds a call of a function of tape's to their graph.

    ``f`` takes tensors and returns one, or a tuple of them, of the variables' dtype; ``ndim`` are the numbers of their
    axes, which a graph has to know before it runs: 0 for a logarithm of a probability. Gradients are tape's, to any
    order.

    >>> import pytensor
    >>> x = pytensor.tensor.dvector("x")
    >>> slope = pytensor.grad(to_pytensor(lambda x: (x**3).sum())(x), x)
    >>> slope.eval({x: [1.0, 2.0]})
    array([ 3., 12.])
    """
    single = isinstance(ndim, int)

    def flat(*operands: Any) -> Sequence[Any]:
        results = f(*operands)
        return (results,) if single else results

    def call(*operands: Any) -> Any:
        results = _TapeOp(flat, (ndim,) if isinstance(ndim, int) else tuple(ndim)).make_node(*operands).outputs
        return results[0] if single else results

    return call


class _TapeOp(Op):  # type: ignore[misc]
    """A call of a function of tape with so many axes of its results."""

    __props__ = ("f", "ndims")

    def __init__(self, f: Callable[..., Sequence[Any]], ndims: tuple[int, ...]) -> None:
        self.f, self.ndims = f, ndims

    def make_node(self, *operands: Any) -> Any:
        variables = [pt.as_tensor_variable(x) for x in operands]
        dtype = np.result_type(*[x.dtype for x in filter(_is_floating, variables)] or ["float64"])
        return Apply(self, variables, [pt.tensor(dtype=str(dtype), shape=(None,) * n) for n in self.ndims])

    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        results, _ = pullbacks.pulled(self.f, list(map(np.asarray, inputs)), record=False)
        for cell, y, variable in zip(output_storage, results, node.outputs, strict=True):
            cell[0] = np.asarray(y, variable.dtype)

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        gs = [
            pt.zeros_like(y) if isinstance(g.type, type(disconnected_type)) else g
            for y, g in zip(outputs, cotangents, strict=True)
        ]
        of_it = _TapeOp(pullbacks.pullback(self.f, len(inputs)), tuple([x.ndim for x in filter(_is_floating, inputs)]))
        nothing = [disconnected_type() for _ in inputs]
        return pullbacks.spread(of_it.make_node(*inputs, *gs).outputs, map(_is_floating, inputs), nothing)

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        return [[_is_floating(x)] * len(node.outputs) for x in node.inputs]


def _is_floating(x: Any) -> bool:
    return bool(x.dtype.startswith("float"))
