"""A function evaluated at inputs of its own, for a transform of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape import modes
from tape.autograd.forward import needs_graph, own, settle
from tape.nesting import flattened, mapped
from tape.tensor import Tensor, plain


class Point:
    """A function evaluated at inputs of its own: what it returned, and what that was computed from."""

    def __init__(
        self, api: str, func: Callable[..., Any], args: tuple[Any, ...], argnums: Any, kwargs: Any, *, has_aux: bool
    ) -> None:
        numbers = argument_numbers(argnums, len(args))
        given, self.structure = flattened(
            args[numbers] if isinstance(numbers, int) else tuple(args[i] for i in numbers), none=True
        )
        with modes.enable_grad():
            self.inputs: list[Tensor] = [_own(x) for x in given]
            copies = self.structure.filled(self.inputs)
            full = list(args)
            for i, x in [(numbers, copies)] if isinstance(numbers, int) else zip(numbers, copies, strict=True):
                full[i] = x
            result = func(*full, **kwargs)
        self.aux, self.has_aux = None, has_aux
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004 (a pair)
                raise RuntimeError(f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True")
            result, self.aux = result
        self.result = result
        self.outputs, self.returned = flattened(result, none=True)

    def check_tensors(self, api: str) -> None:
        """Raise unless the function returned tensors, and at least one."""
        if not self.outputs:
            raise RuntimeError(
                f"{api}: Expected f to be a function that has non-empty output (got output = {self.outputs})"
            )
        for y in self.outputs:
            if not isinstance(y, Tensor):
                raise RuntimeError(  # noqa: TRY004 (PyTorch's)
                    f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(y)}"
                )

    def release(self) -> None:
        """Let go of history that ends at the inputs, in what the function returned."""
        self.result, self.aux = (mapped(self._released, tree) for tree in (self.result, self.aux))

    def finished(self, *results: Any) -> tuple[Any, ...]:
        """Return the value, the results of the transform and, if there is one, what is aux."""
        settle(self.inputs)
        return (self.result, *results, *([self.aux] if self.has_aux else []))

    def _released(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x._slot is None or needs_graph([x], self.inputs):
            return x
        return plain(x._value) if type(x._value) is float and modes.current().recorder is None else x.detach()


def _own(x: Any) -> Tensor:
    """Return an input as a tensor of the transform's own; linked to what the given one was computed from."""
    if not isinstance(x, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")  # noqa: TRY004 (PyTorch's)
    return own(x)


def argument_numbers(argnums: Any, count: int) -> Any:
    """Check argnums; return them counted from the first argument."""
    if isinstance(argnums, int):
        if not -count <= argnums < count:
            raise RuntimeError(f"Got argnum={argnums}, but only {count} positional inputs")
        return argnums % count
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")  # noqa: TRY004 (PyTorch's)
    if not argnums:
        raise RuntimeError("argnums must be non-empty")
    for number in argnums:
        if not isinstance(number, int):
            raise RuntimeError(f"argnum must be int, got: {type(number)}")  # noqa: TRY004 (PyTorch's)
    found = tuple(argument_numbers(number, count) for number in argnums)
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return found
