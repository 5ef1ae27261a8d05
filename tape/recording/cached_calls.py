"""Functions whose calls native code repeats: a call that is not in its table runs in Python, and is then entered.

One decorator, :func:`cached_call`. Its ``miss`` makes a call and enters it: by what the call did, as views, reductions
and joins do; by its operands, which may be numbers (elementwise operations); or by the places that arrays among the
arguments pick (indexed_calls.py).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from kernels.calls.object_types import Computation, operation, place_of
from kernels.foundation.specs import Spec, dense, loops_readable
from kernels.kinds import call_entries as calls
from kernels.kinds.call_entries import Key, Notification, arguments, cache_call
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.kinds.routine import Routine
from kernels.language import jit
from kernels.native import memory
from kernels.native.c_api import NATIVE, NEW, NEW_VIEW, SET_BASE, agrees, table
from kernels.native.memory import where
from kernels.native.structs import (
    ALIASED,
    ARGUED,
    CONDITION,
    MOST_JOINED,
    MOST_OPERANDS,
    NEST,
    NUMBERED,
    OPERATIONS,
    PULLS,
    PYTHON,
    RegistryTable,
)
from kernels.operations import OPS
from kernels.rules.op import calls_scipy
from tape.tensors import modes
from tape.tensors.bytecode import Run, runs
from tape.tensors.tapes import Tape
from tape.tensors.tensor import Tensor
from tape.tensors.view_families import base_of

Function = TypeVar("Function", bound=Callable[..., Any])
Miss: TypeAlias = Callable[[Callable[..., Any], int, tuple[Any, ...], dict[str, Any]], Any]
"""Makes a call of a function, and enters it under an operation's number."""
NATIVELY = NATIVE and loops_readable() and agrees()
NATIVE_OPERANDS = (Tensor, float, int)
"""Types of operands that native code accepts."""
_numbers = itertools.count(OPERATIONS)
_number_of_name: dict[str, int] = {}
_handlers: list[Any] = []
"""What native code calls on a miss, for ever, as the type of tensors."""


def number_of(name: str) -> int:
    """Return the number of an operation that has no slot in the type of tensors, by its name."""
    return _number_of_name.get(name) or _number_of_name.setdefault(name, next(_numbers))


def operator_number(op: Any) -> int | None:
    """Return the number of an operator that has a slot in the type of tensors; None of any other."""
    return calls.OPERATORS.get((op.operator, len(op.inputs))) if NATIVELY else None


def number_of_op(op: Elementwise) -> int:
    """Return the number of an elementwise operation, with its marks."""
    number = operator_number(op)
    if number is None:
        number = number_of(op.name) | (CONDITION if op.condition else 0)
    return number | (NUMBERED if op.scalar else 0)


def set_miss_handlers(number: int, fill: Callable[..., Any], bypass: Callable[..., Any]) -> None:
    """Register what native code calls in place of an operator: ``fill`` enters the call, ``bypass`` does not."""
    _handlers.extend((fill, bypass))
    memory.put(memory.REGISTRY.missed, 2 * number, id(fill))
    memory.put(memory.REGISTRY.missed, 2 * number + 1, id(bypass))


def key_of(number: int, operands: tuple[Any, ...], forms: tuple[Any, ...], extra: int) -> Key | None:
    """Return the key of a call in the table; None where others than a recorder observe operations."""
    tape = modes.tape_beside_recorder()
    if tape is None:
        return None
    wanted = tuple([bool(tape) and type(x) is Tensor and x._slot is not None for x in operands])
    return Key(number, forms, wanted, extra)


def _may(key: Key, result: Tensor) -> bool:
    """Whether native code can record the operation, or need not record it."""
    form, wanted = result._form, any(key.wanted)
    if type(form) is Form:
        return wanted and form.kind in (PULLS, PYTHON) and type(result._slot) is int
    return not (wanted and result.spec.dtype.kind == "f")


# By operands, which may be numbers.


def by_operands(op: Elementwise) -> Miss:
    """Return what makes and enters calls of an elementwise operation."""

    def miss(function: Callable[..., Any], number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = function(*args, **named)
        if not named and len(args) == len(op.inputs) and type(result) is Tensor:
            _enter_operands(op, number & (NUMBERED - 1), result, args)
        return result

    return miss


def _enter_operands(op: Elementwise, op_number: int, result: Tensor, operands: tuple[Any, ...]) -> None:
    if not all(type(x) in NATIVE_OPERANDS for x in operands):
        return
    forms = tuple([x._form if type(x) is Tensor else None for x in operands])
    if float in map(type, operands) and all(form is None or form.spec.dtype.kind != "f" for form in forms):
        return  # the same call with an int is another one
    number = float(operands[-1]) if op.scalar and forms[-1] is None else None
    power = number if result.spec.dtype.kind == "f" else operands[-1]
    notification = Notification(op, len(operands)) if number is None else Notification(OPS[op.scalar], 1, (power,))
    key = key_of(op_number, operands, forms, 0 if number is None else calls.bits(number))

    def how(saved: tuple[str, ...]) -> Any:
        specs = tuple([None if form is None else form.spec for form in forms])
        return None if calls_scipy(op) else op.computation(specs, result.spec, saved, number)

    enter_call(key, operands, result, notification, how)


def enter_call(
    key: Key | None,
    operands: tuple[Any, ...],
    result: Tensor,
    notification: Notification,
    how: Callable[[tuple[str, ...]], Any],
) -> None:
    """Enter a call; ``how(saved)`` returns its computation, or None where native code cannot do it."""
    if key is None or calls.kind_of(key) is not None:
        return
    form: Any = result._form
    recorded = type(form) is Form
    done = _may(key, result)
    if recorded and (form.kind != PULLS or not all(map(_is_recorded, operands, form.specs))):
        done = False
    computation = how(form.saved if recorded else ()) if done else None
    largest = max(x.spec.bytes for x in (*operands, result) if type(x) is Tensor)
    cache_call(key, form, computation, notification=notification, largest=largest)


def _is_recorded(operand: Any, spec: Spec | None) -> bool:
    """Whether an operand is what was recorded, not cast before: its pullbacks read memory of the spec's dtype."""
    return spec is None or type(operand) is not Tensor or operand.spec.dtype is spec.dtype


# By what a call did: one logged operation on its own arguments, a view of the first, or a tensor of the same memory.


def by_operation(function: Callable[..., Any], number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Make a call, and enter it if it was one operation, or a view of the first argument.

    The function calls no such function itself: an operation that native code runs in its place is not logged.
    """
    result, log = _logged(function, args, named)
    if len(log) == 1 and _is_all(log[0], result, args):
        _enter_run(number, log[0], result, args[len(log[0].operands) :], named)
    elif not log and args and type(result) is Tensor and result is not args[0]:
        enter_view(number, result, args, named)
    return result


def by_join(function: Callable[..., Any], number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Make a call that joins the tensors of a list, and enter it."""
    result, log = _logged(function, args, named)
    joined = tuple(args[0]) if args and type(args[0]) in (list, tuple) else ()
    plain = 0 < len(joined) <= MOST_JOINED and all(type(x) is Tensor for x in joined) and _is_plain(result, joined)
    if plain and len(log) == 1 and all(map(operator.is_, log[0].operands, joined)):
        _enter_join(number, log[0], joined, args[1:], named)
    return result


def by_alias(function: Callable[..., Any], number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Make a call that returns a tensor without history that shares memory and version counter, and enter it."""
    result, x = function(*args, **named), args[0] if args else None
    if len(args) == 1 and not named and type(x) is Tensor and base_of(x) is x and type(x._value) is np.ndarray:
        key = key_of(number, args, (x._form,), 0) if result._value is x._value else None
        if key is not None and modes.unobserved_tape() is not None:
            cache_call(key, result._form, Computation(NEST, target=ALIASED), asked=arguments((), {}))
    return result


def _logged(function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, list[Run]]:
    """Return the result of a call, and the operations that ran."""
    before, runs.log = runs.log, []
    try:
        return function(*args, **named), runs.log
    finally:
        runs.log = before


def _is_all(run: Run, result: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation ran on the function's first arguments and returned the function's result."""
    count = len(run.operands)
    results = (result,) if type(result) is Tensor else result
    if not 0 < count <= min(len(args), MOST_OPERANDS) or len(results) != len(run.results):
        return False
    pairs = [*zip(run.operands, args, strict=False), *zip(run.results, results, strict=True)]
    return all(type(x) is Tensor and x is y for x, y in pairs)


def _enter_run(number: int, run: Run, result: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    value, *extra = run.results
    key, asked = key_of(number, run.operands, tuple([x._form for x in run.operands]), 0), arguments(args, named)
    known = None if key is None or asked is None else calls.kind_of(replace(key, number=asked.hashed))
    if key is None or asked is None or known:
        return
    notification: Notification | None = Notification(run.op, len(run.operands), _recorder_params(run))
    how = _computed(run, extra, result) if _may(key, value) else None
    largest = max(x.spec.bytes for x in (*run.operands, value))
    if how is not None or known is None:
        if how is not None and how.extra is not None:
            notification = None  # Python notifies recorders of two results
        cache_call(key, value._form, how, notification=notification, largest=largest, asked=asked)


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
    return replace(how, extra=places, pair=partial(tuple.__new__, type(result)))


def _is_plain(result: Tensor, tensors: tuple[Tensor, ...]) -> bool:
    """Whether all tensors have one dtype and rank, and the result is C-contiguous and not empty."""
    spec = result.spec
    same = all(x.spec.dtype == spec.dtype for x in tensors)
    fresh = spec.shape and spec.size and spec.strides == dense(spec.shape, spec.dtype.itemsize)
    alike = len({len(x.spec.shape) for x in tensors}) == 1
    return bool(same and alike and fresh and spec.dtype.kind in "fiu" and spec.dtype != np.float16)


def _enter_join(
    number: int, run: Run, tensors: tuple[Tensor, ...], args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    (result,), (axis, new) = run.results, run.params
    forms, spec = tuple([x._form for x in tensors]), result.spec
    key = key_of(number, tensors, forms, 0)
    if key is None or not _may(key, result):
        return
    words = tuple([id(form) + want for form, want in zip(forms, key.wanted, strict=True)])
    asked = arguments(args, named, words)
    key = replace(key, forms=forms[:1], wanted=(any(key.wanted),), number=0 if asked is None else asked.hashed)
    if asked is None or calls.kind_of(key) is not None:
        return
    joined, at = [], 0
    strides = spec.strides[:axis] + spec.strides[axis + 1 :] if new else spec.strides
    for x in tensors:
        joined.append((x.spec, at * spec.strides[axis], strides))
        at += 1 if new else x.spec.shape[axis]
    cache_call(
        key,
        result._form,
        calls.join_computation(spec, joined),
        notification=Notification(run.op, len(tensors), run.params),
        largest=max(spec.bytes, *[x.spec.bytes for x in tensors]),
        asked=asked,
        others=forms[1:],
    )


def enter_view(
    number: int,
    result: Tensor,
    args: tuple[Any, ...],
    named: dict[str, Any],
    params: Callable[..., tuple[Any, ...]] | None = None,
) -> bool:
    """Enter a view of the first argument; whether it is one.

    Of ``x[key]`` recorders are notified of ``params(x, key)``; of others Python notifies them.
    """
    x, form = args[0], result._form
    if type(form) is not Form or not form.is_view or type(x) is not Tensor or modes.tape_beside_recorder() is None:
        return False
    axes = () if params is None or form.params else calls.axes_of(x._form.spec, args[1])
    asked = None if axes else arguments(args[1:], named, indexed=params is not None)
    key = Key(number, (x._form,), (type(result._slot) is int,), len(axes) if asked is None else asked.hashed)
    known = (asked is None and not axes) or calls.kind_of(key) is not None
    how = None if known else _view_computation(x, result)
    if how is not None:
        notification = None if params is None or axes else Notification(form.op, 1, params(*args))
        cache_call(key, form, how, notification=notification, largest=form.spec.bytes, asked=asked, axes=axes)
    return True


def _view_computation(x: Tensor, result: Tensor) -> Computation | None:
    """Return how native code makes a view of a tensor; None where a tensor is none."""
    if not x._form.spec.shape:
        return None  # NumPy's scalars have no views, PyTorch's tensors without dims do: Python knows which it is
    whole, shown = x._value, result._value
    above = x._offset if base_of(x) is not x else 0
    if result._base is not base_of(x) or type(whole) is not np.ndarray or type(shown) is not np.ndarray:
        return None  # of a copy, maybe
    if not shown.size or not np.may_share_memory(whole, shown):
        return None
    return calls.view_computation(x._form, shown, where(shown) - where(whole), result._offset - above)


def cached_call(
    miss: Miss | None = by_operation, *, marks: int = ARGUED, number: int | None = None, slot: bool = False
) -> Callable[[Function], Function]:
    """Let native code repeat the calls of a function, which ``miss`` makes and enters; None enters none of them.

    ``marks`` say how its arguments are read; by default the leading tensors are operands, and arguments behind them
    are part of the key. What the function does may depend on these and on specs, never on the elements. ``number``: of
    the operation, else its own. With ``slot`` it is an operator, whose slot in the type of tensors is native already.
    """

    def decorated(function: Function) -> Function:
        if not NATIVELY:
            return function
        op_number = next(_numbers) if number is None else number

        @functools.wraps(function)
        def missed(*args: Any, **named: Any) -> Any:
            assert miss is not None
            return miss(function, op_number, args, named)

        fill: Callable[..., Any] = function if miss is None else missed
        if slot:
            set_miss_handlers(op_number & (NUMBERED - 1), fill, function)
            return function
        return operation(op_number | marks, fill, function, function)  # type: ignore[no-any-return]

    return decorated


if NATIVELY:
    offsets = RegistryTable.entries, RegistryTable.thread, RegistryTable.given_arrays
    for at, word in {
        RegistryTable.new_array: table()[NEW],
        RegistryTable.new_view: table()[NEW_VIEW],
        RegistryTable.set_base: table()[SET_BASE],
        RegistryTable.active: id(modes._active),
        RegistryTable.recorder: id(modes._sole_recorder),
        RegistryTable.mode: id(modes._mode),
        RegistryTable.tape_type: id(Tape),
        RegistryTable.hit: jit.load_module("calls.functions_native").hit.address,
        **dict(zip(offsets, place_of(Tape, "entries", "thread", "given_arrays"), strict=True)),
    }.items():
        memory.put(memory.REGISTRY.address, at, word)
