"""The elementwise functions, methods and operators of tensors: made from the records, none written by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

from kernels.kinds.elementwise import Elementwise
from kernels.ops.registry import OPS
from tape.operations.parameters import function_of, method_of, names_of
from tape.recording import views
from tape.recording.promotion import by_rows, of_one_dtype
from tape.repeated_calls.call_table import enter, install, operator_number, repeated
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
RUN: dict[str, Callable[..., Any]] = {}
"""The function of each elementwise record by the record's name, of those without a public name too."""
_KNOWN_TYPES = frozenset((Tensor, float, int))
_EQUALITY = ("==", "!=")


def _install(op: Elementwise) -> None:
    def always(*operands: Any) -> Any:
        alike = of_one_dtype(op, operands)
        return by_rows(op, *operands) if alike is None else RUN[op.name](*alike)

    function = function_of(op, operand if op.identity else always)
    RUN[op.name] = run = function if op.identity else repeated(op, function)
    FUNCTIONS.update(dict.fromkeys(names_of(op), run))
    if names_of(op) and (len(op.inputs) <= 2 or op.condition):  # noqa: PLR2004
        member = _masked(run) if op.condition else _method(op, operand if op.identity else always)
        for name in names_of(op):
            setattr(Tensor, name, member)
    if op.operator:
        _operators(op)


def _method(op: Elementwise, run: Callable[..., Any]) -> Any:
    """Return the function as a method, which native code repeats with the calls of the function."""
    function = method_of(op, run)
    return function if op.identity else repeated(op, function)


def _named(op: Elementwise, function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the name of its operation, and the signature that ``help`` shows."""
    function.__name__ = function.__qualname__ = op.name
    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in op.inputs]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return function


def _masked(fast: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``where`` as a method, whose first parameter is the tensor: ``x.where(mask, other)``."""

    def where(self: Tensor, condition: Any, other: Any) -> Any:
        return fast(condition, self, other)

    where.__doc__ = fast.__doc__
    return where


def _operators(op: Elementwise) -> None:
    """Install Python's operators on Tensor; for operands that tensors do not take they return NotImplemented."""

    def operator(*operands: Any) -> Any:
        return by_operator(op, *operands)

    number = operator_number(op)
    if number is not None:
        install(number, operator, partial(enter, op))
    elif len(op.inputs) == 1:
        setattr(Tensor, _UNARY[op.operator], _positive if op.identity else RUN[op.name])
    else:
        special = _SPECIAL[op.operator]
        setattr(Tensor, f"__{special}__", repeated(op, _named(op, operator)))
        if hasattr(int, f"__r{special}__"):  # Python turns comparisons by itself
            setattr(Tensor, f"__r{special}__", lambda b, a: by_operator(op, a, b))


def _positive(x: Tensor) -> Tensor:
    """Return the tensor itself, as PyTorch does; in functions that were given NumPy arrays a copy, as NumPy does."""
    return views.clone(x) if modes.given_arrays() else x


def by_operator(op: Elementwise, *operands: Any) -> Any:
    """Run an operation as Python's operator: NotImplemented for foreign operands, whose own operator is next."""
    try:
        alike = of_one_dtype(op, operands)
        if alike is not None:
            return RUN[op.name](*alike)
        known = all(type(x) in _KNOWN_TYPES for x in operands)
        return NotImplemented if not known and any(map(is_foreign, operands)) else by_rows(op, *operands)
    except TypeError:
        if op.operator not in _EQUALITY or all(isinstance(x, Tensor) for x in operands):
            raise
        return NotImplemented  # whatever it is, it is not equal


_RECORDS = [op for op in OPS.values() if isinstance(op, Elementwise)]
_WITH_NUMBER = {op.scalar for op in _RECORDS}  # these take no tensor as second operand
for _op in _RECORDS:
    if _op.name not in _WITH_NUMBER:
        _install(_op)
