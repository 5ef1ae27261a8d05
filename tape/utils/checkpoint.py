"""PyTorch's ``torch.utils.checkpoint``, of version 2.13: calls that backward runs again."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tape import checkpoints
from tape.autograd import backward
from tape.autograd.function import Function, once_differentiable
from tape.checkpoints import CheckpointError
from tape.random import noting_drawn, redrawing
from tape.tensors.grad_modes import enable_grad, no_grad
from tape.tensors.tensor import Tensor

__all__ = [
    "CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]  # fmt: skip

_CHECKS = ("default", "none")
_NOT_SAID = (
    "{}: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, calling checkpoint without "
    "use_reentrant will raise an exception. use_reentrant=False is recommended, but if you need to preserve the "
    "current default behavior, you can pass use_reentrant=True. Refer to docs for more details on the differences "
    "between the two variants."
)


def noop_context_fn() -> tuple[Any, Any]:
    """Return two contexts that do nothing, the default of ``context_fn``."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function(*args, **kwargs)`` without recording it; backward runs it again.

    ``use_reentrant=False`` is :func:`tape.checkpoint`; ``context_fn`` gives the contexts of the two runs,
    ``determinism_check="none"`` turns the comparison of their results off. With ``use_reentrant=True``, which a missing
    one means with a warning, the function's results require grad if one of the positional arguments is a tensor that
    does; backward runs the function on copies of these, and a ``backward()`` within. That serves ``backward`` without
    ``inputs`` alone, cannot be differentiated again, and takes no keywords: ValueError. ``preserve_rng_state=False``
    lets the second run draw other random numbers. The second run is always whole, so ``early_stop`` changes nothing,
    and errors always say what differs, so ``debug`` adds nothing.
    """
    if use_reentrant is None:
        warnings.warn(_NOT_SAID.format("tape.utils.checkpoint"), stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs and use_reentrant:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant:
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return _Reentrant.apply(function, preserve, *args)
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    del early_stop
    return checkpoints.called(
        function,
        args,
        kwargs,
        preserve=preserve,
        compares=determinism_check == "default",
        contexts=None if context_fn is noop_context_fn else context_fn(),
    )


class _Reentrant(Function):
    """The variant that runs a backward within the backward."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Run the function without gradients."""
        if not any(x.requires_grad for x in args if isinstance(x, Tensor)):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
        ctx.function, ctx.is_tensor = function, [isinstance(x, Tensor) for x in args]
        ctx.others = [x for x in args if not isinstance(x, Tensor)]
        ctx.save_for_backward(*[x for x in args if isinstance(x, Tensor)])
        with no_grad(), noting_drawn() as drawn:
            result = function(*args)
        ctx.drawn = drawn if preserve else {}
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run the function again with gradients, and a backward from its results."""
        if not _from_backward():
            raise RuntimeError(
                "When use_reentrant=True, tape.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        saved, others = iter(ctx.saved_tensors), iter(ctx.others)
        args = [_leaf_like(next(saved)) if is_tensor else next(others) for is_tensor in ctx.is_tensor]
        with redrawing(ctx.drawn), enable_grad():
            outputs = ctx.function(*args)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if isinstance(y, Tensor) and y.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        roots, cotangents = zip(*pairs, strict=True)
        backward(list(roots), list(cotangents))
        return None, None, *[x.grad if isinstance(x, Tensor) else None for x in args]


def _leaf_like(x: Tensor) -> Tensor:
    detached: Tensor = x.detach()
    return detached.requires_grad_(x.requires_grad) if x.requires_grad else detached


def _from_backward() -> bool:
    """Whether the running sweep is one of ``backward`` without ``inputs``: only frames of Python's tell."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        known = frame.f_locals
        if frame.f_globals.get("__name__", "").startswith("tape.engine."):
            name = frame.f_code.co_name
            if name == "native_backward":
                return known["targets"] is None
            if name == "sweep_one":
                run = known["self"]
                if run.restrict:
                    return False
                if run.accumulates:
                    return True
        frame = frame.f_back
    return False


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Call functions one after the other, in ``segments`` of which all but the last are checkpoints.

    ``functions`` is a list; ``preserve_rng_state`` and ``use_reentrant`` are those of :func:`checkpoint`.
    """
    if use_reentrant is None:
        warnings.warn(_NOT_SAID.format("tape.utils.checkpoint.checkpoint_sequential"), stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions)
    size, end = len(functions) // segments, 0
    for start in range(0, size * (segments - 1), size) if size else ():
        end = start + size
        segment = _in_turn(functions[start:end])
        input = checkpoint(segment, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _in_turn(functions[end:])(input)


def _in_turn(functions: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return run


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Nothing to do: the second run is always whole."""
    del enable
    yield


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Nothing to do: errors always say what differs."""
    del enabled
    yield
