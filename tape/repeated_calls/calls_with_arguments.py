"""Functions that native code repeats by their tensors and arguments, if they consist of one operation.

The first call of a function runs in Python, and the operations in it are logged (bytecode.py). If that was one
reduction, selection or routine, on the function's own arguments, and its result is what the function returned, native
code repeats it for tensors of the same forms with the same arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from kernels.call_cache import entries as calls
from kernels.call_cache.entries import Key, Notification, arguments
from kernels.kinds.form import Form
from kernels.kinds.routine import Routine
from kernels.native.call_structs import ARGUED, MOST_OPERANDS
from kernels.native.calls.computation import Computation
from kernels.native.calls.function_type import operation
from kernels.native.structs import PULLS, PYTHON
from tape.repeated_calls.call_table import NATIVELY, number_of
from tape.tensors import modes
from tape.tensors.bytecode import Run, runs
from tape.tensors.tensor import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def argued(function: Function) -> Function:
    """Let native code repeat a function of tensors and of immutable arguments.

    What the function does may depend on specs and arguments, never on the elements. It calls no such function itself:
    an operation that native code runs in its place is not logged.
    """
    number = number_of(f"{function.__name__} of tensors and arguments")

    @functools.wraps(function)
    def once(*args: Any, **named: Any) -> Any:
        before, runs.log = runs.log, []
        try:
            result, log = function(*args, **named), runs.log
        finally:
            runs.log = before
        if len(log) == 1 and _is_all(log[0], result, args):
            _enter(number, log[0], result, args[len(log[0].operands) :], named)
        return result

    return operation(number | ARGUED, once, function, function) if NATIVELY else function


def _is_all(run: Run, result: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation ran on the function's first arguments and returned the function's result."""
    count = len(run.operands)
    results = (result,) if type(result) is Tensor else result
    if not 0 < count <= min(len(args), MOST_OPERANDS) or len(results) != len(run.results):
        return False
    pairs = [*zip(run.operands, args, strict=False), *zip(run.results, results, strict=True)]
    return all(type(x) is Tensor and x is y for x, y in pairs)


def _enter(number: int, run: Run, result: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    tape, (value, *extra) = modes.tape_beside_recorder(), run.results
    form = value._form
    if tape is None or (asked := arguments(args, named)) is None:
        return
    wanted = tuple([bool(tape) and x._slot is not None for x in run.operands])
    key = Key(number, tuple([x._form for x in run.operands]), wanted, asked.hashed)
    notification = Notification(run.op, len(run.operands), _recorder_params(run))
    how = _computed(run, extra, result) if _may(any(wanted), form, value) else None
    largest = max(x.spec.bytes for x in (*run.operands, value))
    if how is not None or not calls.is_known(key):
        calls.enter(key, form, how, notification, largest, asked)


def _may(wanted: bool, form: Any, value: Tensor) -> bool:
    """Whether native code can record the operation, or need not record it."""
    if type(form) is Form:
        return wanted and form.kind in (PULLS, PYTHON) and type(value._slot) is int
    return not (wanted and value.spec.dtype.kind == "f")


def _recorder_params(run: Run) -> tuple[Any, ...]:
    """Return the parameters that recorders are notified of."""
    frozen: tuple[Any, ...] = (tuple(sorted(run.params.items())),) if isinstance(run.op, Routine) else run.params
    return frozen


def _computed(run: Run, extra: list[Tensor], result: Any) -> Computation | None:
    """Return how native code computes a run; None where it cannot."""
    op, form, sources = run.op, run.results[0]._form, tuple([x.spec for x in run.operands])
    how: Computation | None = op.computation(sources, form, run.params)
    if how is None or not extra:
        return how
    places = extra[0].spec
    if len(extra) > 1 or places.dtype != np.int64 or places.shape != form.spec.shape:
        return None
    return replace(how, extra=places, pair=functools.partial(tuple.__new__, type(result)))
