"""The elementwise functions, methods and operators of tensors: made from the records, none written by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from kernels.records.kinds import Elementwise
from tape.recording.call_table import enter, install, operator_number, repeated
from tape.recording.mixed_dtypes import by_rows, of_one_dtype
from tape.tensors import modes
from tape.tensors.operands import is_foreign, operand
from tape.tensors.tensor import Tensor

_SPECIAL = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "&": "and", "|": "or",
    "^": "xor", "<<": "lshift", ">>": "rshift", "//": "floordiv", "%": "mod",
}  # fmt: skip
_UNARY = {"-": "__neg__", "+": "__pos__", "abs": "__abs__", "~": "__invert__"}

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every elementwise function under each of its names."""
RECORDED: dict[str, Callable[..., Any]] = {}
"""The function of each elementwise record by the record's name, of those without a public name too."""
RUN: dict[str, Callable[..., Any]] = {}
"""What runs each elementwise record on operands of which one is a tensor; native code repeats what has been seen."""
_OWN = frozenset((Tensor, float, int))
_EQUALITY = ("==", "!=")


def names_of(op: Any) -> tuple[str, ...]:
    """Return the names under which a record's function is offered."""
    return (op.name, *op.torch) if op.function else op.torch


def _function(op: Elementwise) -> Callable[..., Any]:
    """Return the public function: any operand may be a tensor, a NumPy array or a Python number."""
    run = RUN[op.name]

    def function(*operands: Any, alpha: Any = None, out: Any = None) -> Tensor:
        if out is not None:
            check_out(function.__name__, operands, out)
            return _into(out, function(*operands, alpha=alpha), function.__name__)
        if alpha is not None and not op.scaled:
            raise TypeError(f"{function.__name__}() takes no alpha")
        check_count(op, operands)
        if alpha is not None:
            operands = (operands[0], operands[1] * alpha)
        return run(*operands)  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = (names_of(op) or (op.name,))[0]
    function.__module__ = "tape.functions" if names_of(op) else "tape.special"  # where pickle finds it
    function.__doc__ = f"{op.doc} Shapes broadcast; dtypes promote as NumPy's do."
    return function


def check_count(op: Elementwise, operands: tuple[Any, ...]) -> None:
    """Raise TypeError for more or fewer operands than an operation has."""
    count = len(op.inputs)
    if len(operands) != count:
        raise TypeError(f"{op.name}() takes {count} operands ({', '.join(op.inputs)}), got {len(operands)}")


def check_out(name: str, operands: tuple[Any, ...], out: Any) -> None:
    """Raise, as PyTorch does, unless ``out=`` is a tensor, and no gradient is lost by writing to it."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in (*operands, out)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            f"arguments requires grad. Write out.copy_({name}(...)), which is recorded, or use no_grad"
        )


def _into(out: Tensor, result: Tensor, name: str) -> Tensor:
    have, wanted = result.spec, out.spec
    if have.shape != wanted.shape:
        raise RuntimeError(f"{name}(): out has shape {list(wanted.shape)}, but the result {list(have.shape)}")
    if not np.can_cast(have.dtype, wanted.dtype, "same_kind"):
        raise RuntimeError(
            f"{name}(): result type {have.dtype.name} can't be cast to the desired output type {wanted.dtype.name}"
        )
    return out.copy_(result)


def _install(op: Elementwise) -> None:
    def always(*operands: Any) -> Any:
        check_count(op, operands)
        alike = of_one_dtype(op, operands)
        return by_rows(op, *operands) if alike is None else RUN[op.name](*alike)

    RUN[op.name] = run = _itself if op.identity else repeated(op, always, _named(op, always))
    function = RECORDED[op.name] = _function(op)
    FUNCTIONS.update(dict.fromkeys(names_of(op), function))
    if len(op.inputs) <= 2 or op.condition:  # noqa: PLR2004
        way = _masked(run) if op.condition else _with_alpha(run) if op.scaled else run
        way.__doc__ = function.__doc__ if names_of(op) else way.__doc__
        for name in names_of(op):
            setattr(Tensor, name, way)
    if op.operator:
        _operators(op)


def _named(op: Elementwise, function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the name of its operation, and the signature that ``help`` shows."""
    function.__name__ = function.__qualname__ = op.name
    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in op.inputs]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return function


def _itself(x: Any) -> Any:
    """Return the operand as a tensor."""
    return operand(x)


def _masked(fast: Callable[..., Any]) -> Callable[..., Any]:
    """As a method the tensor stands before its condition: ``x.where(mask, other)``."""

    def method(x: Tensor, condition: Any, other: Any) -> Any:
        return fast(condition, x, other)

    return method


def _with_alpha(fast: Callable[..., Any]) -> Callable[..., Any]:
    """As a method: ``x.add(other, alpha=2)``."""

    def method(x: Tensor, other: Any, *, alpha: Any = None) -> Tensor:
        return fast(x, other if alpha is None else other * alpha)  # type: ignore[no-any-return]

    return method


def _operators(op: Elementwise) -> None:
    """Give Tensor Python's operators: operands that tensors do not take get their turn."""

    def operator(*operands: Any) -> Any:
        return by_operator(op, *operands)

    number = operator_number(op)
    if number is not None:
        install(number, operator, partial(enter, op))
    elif len(op.inputs) == 1:
        setattr(Tensor, _UNARY[op.operator], RUN[op.name])
    else:
        special = _SPECIAL[op.operator]
        setattr(Tensor, f"__{special}__", repeated(op, operator, _named(op, operator)))
        if hasattr(int, f"__r{special}__"):  # Python turns comparisons by itself
            setattr(Tensor, f"__r{special}__", lambda b, a: by_operator(op, a, b))


def by_operator(op: Elementwise, *operands: Any) -> Any:
    """Run an operation as Python's operator: NotImplemented for what is foreign."""
    try:
        alike = of_one_dtype(op, operands)
        if alike is not None:
            return RUN[op.name](*alike)
        own = all(type(x) in _OWN for x in operands)
        return NotImplemented if not own and any(map(is_foreign, operands)) else by_rows(op, *operands)
    except TypeError:
        if op.operator not in _EQUALITY or all(isinstance(x, Tensor) for x in operands):
            raise
        return NotImplemented  # whatever it is, it is not equal


_RECORDS = [op for op in OPS.values() if isinstance(op, Elementwise)]
_WITH_NUMBER = {op.scalar for op in _RECORDS}  # these take no tensor as second operand
for _op in _RECORDS:
    if _op.name not in _WITH_NUMBER:
        _install(_op)
