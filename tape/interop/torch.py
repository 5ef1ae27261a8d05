"""Functions of tape in PyTorch's graphs, and PyTorch's functions and modules in tape's, on shared memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import torch

from tape import func
from tape.interop import pullbacks
from tape.interop.pullbacks import Array, FlatCall, ForeignCall, Framework, Pull, of_floating, spread
from tape.recording.creation import from_numpy
from tape.tensors.tensor import Tensor
from tape.transforms.vmap import vmap

__all__ = ["Operation", "from_torch", "to_torch"]

_ELSEWHERE = "to_torch: a tensor on {}, {}; tape computes on dense tensors of the CPU: call .cpu() or .to_dense()"
_WRITES = "from_torch: the function writes to its arguments, whose memory is tape's; let it write to .clone()"


def to_torch(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of PyTorch's tensors that runs a function of tape's.

    Arguments and results are structures of tensors on the CPU, whose memory both libraries share; what is no tensor
    stays what it is. PyTorch differentiates the function any number of times, also in forward mode (once), and under
    ``torch.func`` with ``vmap``. Tensors of other devices raise ValueError.

    >>> import torch
    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> to_torch(lambda x: (x**3).sum())(x).backward()
    >>> x.grad
    tensor([3., 3., 3.], dtype=torch.float64)
    """

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        flat, operands = FlatCall.of(f, (args, kwargs), torch.Tensor, (Tensor, np.ndarray, np.floating))
        run = _Run(flat, record=torch.is_grad_enabled() and any(x.requires_grad for x in operands))
        return flat.filled(_TapeCall.apply(run, *operands))

    return call


def from_torch(f: Callable[..., Any]) -> Operation:
    """Return an operation of tape that runs a function, or a module, of PyTorch.

    Arguments and results are structures of tensors, whose memory both libraries share; what is no tensor stays what it
    is. Gradients are PyTorch's, to any order. Parameters of a module are tensors of the operation too: tape's gradients
    and optimizers reach them, and what is written to them the module sees.

    >>> import torch, tape
    >>> x = tape.ones(3, requires_grad=True)
    >>> from_torch(torch.special.entr)(x).sum().backward()
    >>> x.grad
    tensor([-1., -1., -1.])
    """
    return Operation(f)


class Operation:
    """A function of PyTorch's, or a module with its parameters, as an operation of tape: see :func:`from_torch`."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        module = f if isinstance(f, torch.nn.Module) else None
        self._parameters = {name: _shared(p) for name, p in module.named_parameters()} if module is not None else {}

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """Return the module's parameters by name, which share its memory; none of a function."""
        return list(self._parameters.items())

    def parameters(self) -> list[Tensor]:
        """Return the module's parameters."""
        return list(self._parameters.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results as tensors of tape."""
        flat, operands = FlatCall.of(self._called, ((self._parameters, args, kwargs), {}), Tensor, torch.Tensor)
        return flat.filled(ForeignCall.apply(_Torch, flat, *operands))

    def _called(self, parameters: dict[str, Any], args: Any, kwargs: Any) -> Any:
        if not parameters:
            return self.f(*args, **kwargs)
        return torch.func.functional_call(self.f, parameters, args, kwargs)


class _Run:
    """A call of a function of tape on the way through PyTorch, with its pullback."""

    def __init__(self, f: Any, *, record: bool) -> None:
        self.f, self.record = f, record
        self.pull: Pull | None = None

    def __call__(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        results, self.pull = pullbacks.pulled(self.f, [_array(x) for x in operands], record=self.record)
        return tuple([torch.from_numpy(y) for y in results])


class _TapeCall(torch.autograd.Function):  # type: ignore[misc]
    """A call of a function of tape: ``apply(run, *operands)`` gives a tuple."""

    @staticmethod
    def forward(run: _Run, *operands: Any) -> Any:
        return run(operands)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.run, *operands = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)
        ctx.floating = [y.is_floating_point() for y in output]
        ctx.mark_non_differentiable(*[y for y in output if not y.is_floating_point()])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        operands, run = ctx.saved_tensors, ctx.run
        gs = list(compress(cotangents, ctx.floating))
        if not run.record or (torch.is_grad_enabled() and any(x.requires_grad for x in (*operands, *gs))):
            again = _Run(pullbacks.pullback(run.f, len(operands)), record=torch.is_grad_enabled())
            slopes = _TapeCall.apply(again, *operands, *gs)
        else:
            slopes = [None if g is None else _from_array(g) for g in run.pull(list(map(_array, gs)))]
        return None, *spread(slopes, map(torch.is_floating_point, operands))

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        operands, f, count = ctx.saved_tensors, ctx.run.f, len(ctx.saved_tensors)
        pairs = zip(operands, tangents, strict=True)
        moved = [torch.zeros_like(x) if t is None else t for x, t in pairs if x.is_floating_point()]

        def push(*both: Any) -> Any:
            moving, inputs = of_floating(f, both[:count], Tensor.is_floating_point)
            return func.jvp(lambda *x: moving(*x)[0], tuple(inputs), both[count:])[1]

        return tuple(spread(_TapeCall.apply(_Run(push, record=False), *operands, *moved), ctx.floating))

    @staticmethod
    def vmap(info: Any, in_dims: Any, run: _Run, *operands: Any) -> Any:
        del info
        batched = vmap(run.f, in_dims=in_dims[1:])
        results = _TapeCall.apply(_Run(batched, record=run.record), *operands)
        return results, (0,) * len(results)


class _Torch(Framework):
    """How tape calls and differentiates PyTorch's functions."""

    floating = staticmethod(torch.is_floating_point)
    vjp, jvp, vmap = map(staticmethod, (torch.func.vjp, torch.func.jvp, torch.func.vmap))

    @classmethod
    def called(cls, f: Any, arrays: Sequence[Array], wanted: bool) -> tuple[list[Array], Pull]:
        operands = list(map(_from_array, arrays))
        versions = [x._version for x in operands]
        moving = [x.requires_grad_(wanted) for x in operands if x.is_floating_point()]
        with torch.enable_grad():
            results = list(f(*operands))
        if versions != [x._version for x in operands]:
            raise ValueError(_WRITES)

        def pull(cotangents: Sequence[Array]) -> list[Array | None]:
            floating = [y for y in results if y.is_floating_point()]
            pairs = [(y, _from_array(g)) for y, g in zip(floating, cotangents, strict=True) if y.requires_grad]
            if not pairs:
                return [None] * len(moving)
            ys, gs = zip(*pairs, strict=True)
            slopes = torch.autograd.grad(ys, moving, gs, retain_graph=True, allow_unused=True)
            return [None if g is None else g.numpy() for g in slopes]

        return list(map(_array, results)), pull


def _array(x: Any) -> Array:
    """Return a tensor's memory as an array; ValueError where it is not the processor's."""
    if x.device.type != "cpu" or x.layout != torch.strided:
        raise ValueError(_ELSEWHERE.format(x.device, x.layout))
    return x.detach().resolve_neg().resolve_conj().numpy()  # type: ignore[no-any-return]


def _from_array(a: Array) -> Any:
    """Return a tensor of an array's memory; of a copy where PyTorch knows no such strides, or may not write."""
    fits = a.flags.writeable and all(stride >= 0 for stride in a.strides)
    return torch.from_numpy(a if fits else a.copy())


def _shared(p: Any) -> Tensor:
    x = from_numpy(_array(p))
    return x.requires_grad_() if p.requires_grad else x
