"""``vmap`` of an ``autograd.Function``: by its own rule for batches, or by one made of its forward and backward."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from tape.batching.vmap import vmap
from tape.engine import custom_function
from tape.engine.custom_calls import FunctionCtx
from tape.engine.custom_function import Function
from tape.operations.rearranging import movedim
from tape.recording import views
from tape.tensors.pytrees import flattened, spread
from tape.tensors.tensor import Tensor


class VmapInfo(NamedTuple):
    """The ``info`` of a ``vmap`` staticmethod: how many examples there are, and how random numbers are treated."""

    batch_size: int
    randomness: str


def run(cls: type[Function], size: int, args: Sequence[Any], batched: Sequence[bool]) -> list[Tensor]:
    """Return the outputs of a Function for all examples, the batch in front of each."""
    in_dims = tuple(0 if b else None for b in batched)
    if cls.generate_vmap_rule:
        outputs, out_dims = _generated(cls, in_dims).apply(*args), 0
    else:
        outputs, out_dims = cls.vmap(VmapInfo(size, "error"), in_dims, *args)
    leaves, structure = flattened(outputs, none=True)
    dims = spread(out_dims, structure)
    if dims is None:
        raise RuntimeError(f"{cls.__name__}.vmap: out_dims {out_dims} do not fit the outputs, {structure}")
    return [_front(x, d, size) for x, d in zip(leaves, dims, strict=True)]


def _front(x: Tensor, d: int | None, size: int) -> Tensor:
    if d is None:
        return views.expand(x, (size, *x.spec.shape))
    return x if d == 0 else movedim(x, d, 0)


custom_function.MAPPED.append(run)


def _generated(cls: type[Function], in_dims: tuple[int | None, ...]) -> type[Function]:
    """Return a Function of batches that maps the forward, setup_context and backward of another."""

    class Mapped(Function):
        """The Function of all examples."""

        @staticmethod
        def forward(*args: Any) -> Any:
            """Map forward."""
            return vmap(cls.forward, in_dims)(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            """Save, for all examples, what the Function saves."""
            held: list[FunctionCtx] = []

            def saved(own_inputs: Any, own_output: Any) -> tuple[Tensor, ...]:
                example_ctx = FunctionCtx(ctx.needs_input_grad)
                cls.setup_context(example_ctx, own_inputs, own_output)
                held.append(example_ctx)
                return tuple(x for x in example_ctx._to_save if x is not None)

            ctx.save_for_backward(*vmap(saved, (in_dims, 0))(inputs, output))
            ctx.example_ctx = held[0]
            ctx.present = [x is not None for x in ctx.example_ctx._to_save]
            ctx.example_ctx._to_save = ()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            """Map backward; an input that all examples share gets the sum."""
            return _pulled(cls, ctx, in_dims, grads)

    Mapped.__name__ = Mapped.__qualname__ = cls.__name__
    return Mapped


def _pulled(cls: type[Function], ctx: Any, in_dims: tuple[int | None, ...], grads: tuple[Any, ...]) -> Any:
    present: list[bool] = []

    def pull(saved: tuple[Tensor, ...], own_grads: tuple[Any, ...]) -> tuple[Tensor, ...]:
        example_ctx, remaining = copy.copy(ctx.example_ctx), iter(saved)
        example_ctx._saved = tuple(next(remaining) if there else None for there in ctx.present)
        gradients = cls.backward(example_ctx, *own_grads)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        present[:] = [g is not None for g in gradients]
        return tuple(g for g in gradients if g is not None)

    dims = tuple(None if g is None else 0 for g in grads)
    gradients = iter(vmap(pull, (0 if ctx.saved_tensors else None, dims))(ctx.saved_tensors, grads))
    full = [next(gradients) if there else None for there in present]
    pairs = zip(full, (*in_dims, *[0] * len(full)), strict=False)
    return tuple(g if g is None or d == 0 else g.sum(0) for g, d in pairs)
