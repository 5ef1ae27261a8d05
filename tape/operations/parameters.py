"""Functions of elementwise operations with parameters of their own: each count of operands is written out once."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from tape.tensors import modes
from tape.tensors.tensor import Tensor

_NAMES = {1: ("input",), 2: ("input", "other"), 3: ("condition", "input", "other")}


def names_of(op: Any) -> tuple[str, ...]:
    """Return the names under which a record's function is offered."""
    return (op.name, *op.torch) if op.function else op.torch


def parameters_of(op: Elementwise) -> tuple[str, ...]:
    """Return what the operands are called: PyTorch's names; what has no name there keeps the record's own."""
    usual = len(op.inputs) == 1 or names_of(op)
    return op.arguments or (_NAMES[len(op.inputs)] if usual else op.inputs)


def function_of(op: Elementwise, run: Callable[..., Tensor]) -> Any:
    """Return the function of a record as users call it: any operand may be a tensor, a NumPy array or a number."""
    name, names = (names_of(op) or (op.name,))[0], parameters_of(op)
    written = _scaled(run, name) if op.scaled else _WRITTEN[len(names)](run, name)
    found = _renamed(written, name, names)
    found.__module__ = "tape.functions" if names_of(op) else "tape.special"  # where pickle finds it
    found.__doc__ = f"{op.doc} Shapes broadcast; dtypes promote as NumPy's do."
    return found


def twin_of(op: Elementwise, name: str, run: Callable[..., Tensor]) -> Any:
    """Return the function of a record's in-place variant, which takes no ``out=``."""

    def one(a: Any) -> Tensor:
        return run(a)

    def two(a: Any, b: Any) -> Tensor:
        return run(a, b)

    def three(a: Any, b: Any, c: Any) -> Tensor:
        return run(a, b, c)

    names = parameters_of(op)
    return _renamed({1: one, 2: two, 3: three}[len(names)], name, names)


def _unary(run: Callable[..., Tensor], name: str) -> Any:
    def function(a: Any, *, out: Tensor | None = None) -> Tensor:
        return run(a) if out is None else _into(out, name, run, a)

    return function


def _binary(run: Callable[..., Tensor], name: str) -> Any:
    def function(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
        return run(a, b) if out is None else _into(out, name, run, a, b)

    return function


def _scaled(run: Callable[..., Tensor], name: str) -> Any:
    def function(a: Any, b: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
        b = b if type(alpha) is int and alpha == 1 else b * alpha
        return run(a, b) if out is None else _into(out, name, run, a, b)

    return function


def _ternary(run: Callable[..., Tensor], name: str) -> Any:
    def function(a: Any, b: Any, c: Any, *, out: Tensor | None = None) -> Tensor:
        return run(a, b, c) if out is None else _into(out, name, run, a, b, c)

    return function


def _quaternary(run: Callable[..., Tensor], name: str) -> Any:
    def function(a: Any, b: Any, c: Any, d: Any, *, out: Tensor | None = None) -> Tensor:
        return run(a, b, c, d) if out is None else _into(out, name, run, a, b, c, d)

    return function


_WRITTEN = {1: _unary, 2: _binary, 3: _ternary, 4: _quaternary}


def _renamed(function: Any, name: str, names: tuple[str, ...]) -> Any:
    """Return a function under another name, whose first parameters have these names."""
    code = function.__code__
    names += code.co_varnames[len(names) :]
    code = code.replace(co_name=name, co_qualname=name, co_varnames=names)
    found = FunctionType(code, function.__globals__, name, None, function.__closure__)
    found.__kwdefaults__ = function.__kwdefaults__
    found.__annotations__ = dict(zip([*names, "return"], function.__annotations__.values(), strict=True))
    return found


def _into(out: Any, name: str, run: Callable[..., Tensor], *operands: Any) -> Tensor:
    """Compute into ``out``; raise, as PyTorch does, unless it is a tensor that no gradient is lost by writing to."""
    _check_out(name, operands, out)
    result = run(*operands)
    have, wanted = result.spec, out.spec
    if have.shape != wanted.shape:
        raise RuntimeError(f"{name}(): out has shape {list(wanted.shape)}, but the result {list(have.shape)}")
    if not np.can_cast(have.dtype, wanted.dtype, "same_kind"):
        raise RuntimeError(
            f"{name}(): result type {have.dtype.name} can't be cast to the desired output type {wanted.dtype.name}"
        )
    return out.copy_(result)  # type: ignore[no-any-return]


def _check_out(name: str, operands: tuple[Any, ...], out: Any) -> None:
    """Raise, as PyTorch does, unless ``out=`` is a tensor, and no gradient is lost by writing to it."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in (*operands, out)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            f"arguments requires grad. Write out.copy_({name}(...)), which is recorded, or use no_grad"
        )
