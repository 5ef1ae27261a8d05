"""Functions whose calls native code repeats: a call that is not in its table runs in Python, and is then entered.

One decorator, :func:`cached_call`. Its ``miss`` makes a call and enters it: by the operation that ran, or by the places
that arrays among the arguments pick (indexed_calls.py).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from kernels.calls.object_types import Computation, operation, place_of
from kernels.foundation.specs import loops_readable
from kernels.kinds import call_entries as calls
from kernels.kinds.call_entries import Arguments, Key, Notification, WrappedArray, arguments, cache_call
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.language import jit
from kernels.native import memory, structs
from kernels.native.c_api import NATIVE, NEW, NEW_VIEW, SET_BASE, RecorderObject, agrees, table
from kernels.native.memory import where
from kernels.native.structs import RegistryTable
from tape.errors import shorten
from tape.tensors import modes
from tape.tensors.bytecode import Run, runs
from tape.tensors.operands import LARGEST
from tape.tensors.tapes import Tape
from tape.tensors.tensor import Array, Tensor, as_array
from tape.tensors.view_families import base_of

Function = TypeVar("Function", bound=Callable[..., Any])


class Call(NamedTuple):
    """A call that is not in the table: of a function, with the number and the marks of its operation."""

    function: Callable[..., Any]
    number: int
    marks: int
    args: tuple[Any, ...]
    named: dict[str, Any]

    def run(self) -> Any:
        """Make the call."""
        return self.function(*self.args, **self.named)


Miss: TypeAlias = Callable[[Call], Any]  # makes a call, and enters it
NATIVELY = NATIVE and loops_readable() and agrees()
_NUMBERS = (float, int)
_GIVEN_NUMBERS = (*_NUMBERS, np.float64)  # beside tensors of doubles NumPy's are floats
NATIVE_OPERANDS = (Tensor, *_NUMBERS)  # types of operands that native code accepts
_numbers = itertools.count(structs.OPERATIONS)
_number_of_name: dict[str, int] = {}
_handlers: list[Any] = []  # what native code calls on a miss, for ever, as the type of tensors


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
        number = number_of(op.name) | (structs.CONDITION if op.condition else 0)
    return number | (structs.NUMBERED if op.scalar else 0)


def set_miss_handlers(number: int, fill: Callable[..., Any], bypass: Callable[..., Any]) -> None:
    """Register what native code calls in place of an operator: ``fill`` enters the call, ``bypass`` does not."""
    _handlers.extend((fill, bypass))
    memory.put(memory.REGISTRY.missed, 2 * number, id(fill))
    memory.put(memory.REGISTRY.missed, 2 * number + 1, id(bypass))


def key_of(call: Call, operands: tuple[Any, ...], number: int = 0) -> Key | None:
    """Return the key of a call in the table; None where others than a recorder observe operations."""
    tape = modes.active()
    if tape is None and (tape := modes.tape_beside_recorder()) is None:
        return None
    wanted = tuple([bool(tape) and type(x) is Tensor and x._slot is not None for x in operands])
    return Key(call.number, tuple([x._form if type(x) is Tensor else None for x in operands]), wanted, number)


def _may(key: Key, result: Tensor) -> bool:
    """Whether native code can record the operation, or need not record it."""
    form, wanted = result._form, any(key.wanted)
    if type(form) is Form:
        return wanted and form.kind in (structs.PULLS, structs.PYTHON) and type(result._slot) is int
    return not (wanted and result.spec.dtype.kind == "f")


# By what a call did: one logged operation on its own arguments, a view of the first, or a tensor of the same memory.


def by_operation(call: Call) -> Any:
    """Make a call, and enter it if it was one operation, or a view of the first argument.

    The function calls no such function itself: an operation that native code runs in its place is not logged. All
    arguments of a call that is not ARGUED are operands, numbers too; where these are cast it is entered to be left to
    Python.
    """
    plain = not call.marks & structs.ARGUED
    if plain and call.named:
        return call.run()
    result, log = _logged(call)
    run = log[0] if len(log) == 1 and _is_all(log[0], result, call.args) else None
    if plain:
        if type(result) is Tensor:
            _enter_plain(call, run, result)
    elif run is not None:
        asked = arguments(call.args[len(run.operands) :], call.named)
        key = None if asked is None else key_of(call, run.operands, asked.hashed)
        _enter(key, run, result, asked)
    elif not log and call.args and type(result) is Tensor and result is not call.args[0]:
        enter_view(call, result)
    return result


def by_join(call: Call) -> Any:
    """Make a call that joins the tensors of a list, and enter it."""
    result, log = _logged(call)
    joined = tuple(call.args[0]) if call.args and type(call.args[0]) in (list, tuple) else ()
    alone = 0 < len(joined) <= structs.MOST_JOINED and len(log) == 1 and all(type(x) is Tensor for x in joined)
    key = key_of(call, joined) if alone and all(map(operator.is_, log[0].operands, joined)) else None
    if key is not None:
        words = tuple([id(form) + want for form, want in zip(key.forms, key.wanted, strict=True)])
        asked = arguments(call.args[1:], call.named, words)
        if asked is not None:
            first = replace(key, forms=key.forms[:1], wanted=(any(key.wanted),), number=asked.hashed)
            _enter(first, log[0], result, asked, key.forms[1:])
    return result


def by_alias(call: Call) -> Any:
    """Make a call that returns a tensor without history that shares memory and version counter, and enter it."""
    result, x = call.run(), call.args[0] if call.args else None
    alone = len(call.args) == 1 and not call.named
    if alone and type(x) is Tensor and base_of(x) is x and type(x._value) is np.ndarray:
        key = key_of(call, call.args) if result._value is x._value else None
        if key is not None and modes.unobserved_tape() is not None:
            cache_call(key, result._form, Computation(structs.NEST, target=structs.ALIASED), asked=arguments((), {}))
    return result


def _logged(call: Call) -> tuple[Any, list[Run]]:
    """Return the result of a call, and the operations that ran."""
    before, runs.log = runs.log, []
    try:
        return call.run(), runs.log
    finally:
        runs.log = before


def _is_all(run: Run, result: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation ran on the function's first arguments and returned the function's result."""
    results = (result,) if type(result) is Tensor else result
    if not 0 < len(run.operands) <= min(len(args), structs.MOST_OPERANDS) or len(results) != len(run.results):
        return False
    return all(map(_stands_for, run.operands, args)) and all(map(operator.is_, run.results, results))


def _stands_for(operand: Any, arg: Any) -> bool:
    """Whether an operand is an argument: the tensor itself, or one of an array of the same dtype, or a number too."""
    if type(operand) is not Tensor:
        return type(arg) in _GIVEN_NUMBERS
    return operand is arg or (type(arg) is np.ndarray and operand.spec.dtype is arg.dtype)


def _enter_plain(call: Call, run: Run | None, result: Tensor) -> None:
    """Enter a call of tensors and numbers; without a run so that native code leaves such calls to Python."""
    operands = call.args
    if run is not None:
        for x, arg in zip(run.operands, operands, strict=False):
            if type(arg) is np.ndarray:
                add_layout(arg, x)
        operands = *run.operands, *operands[len(run.operands) :]
    numbers = [x for x in operands if type(x) is not Tensor]
    if any(type(x) not in _GIVEN_NUMBERS or not -LARGEST <= x <= LARGEST for x in numbers):
        return
    if float in map(type, numbers) and all(x.spec.dtype.kind != "f" for x in operands if type(x) is Tensor):
        return  # the same call with an int is another one
    keyed = call.marks & structs.NUMBERED and type(operands[-1]) is not Tensor
    _enter(key_of(call, operands, calls.bits(float(operands[-1])) if keyed else 0), run, result)


def _enter(
    key: Key | None,
    run: Run | None,
    result: Any,
    asked: Arguments | None = None,
    others: tuple[Any, ...] = (),
) -> None:
    """Enter a call, unless it is there; where native code cannot compute or record it, so that Python does."""
    known = None if key is None else calls.kind_of(key)
    if key is None or known:
        return
    tensors = [result] if run is None else [run.results[0], *[x for x in run.operands if type(x) is Tensor]]
    how = None if run is None or not _may(key, tensors[0]) else _computed(run, result)
    if how is not None or known is None:
        notification = None
        if run is not None and (how is None or how.extra is None):  # Python notifies recorders of two results
            notification = Notification(run.op, len(run.operands), run.params)
        largest = max(x.spec.bytes for x in tensors)
        form = tensors[0]._form
        cache_call(key, form, how, notification=notification, largest=largest, asked=asked, others=others)


def _computed(run: Run, result: Any) -> Computation | None:
    """Return how native code computes a run; None where it cannot."""
    value, *extra = run.results
    sources = tuple([x.spec if type(x) is Tensor else None for x in run.operands])
    how: Computation | None = run.op.computation(sources, value._form, run.params)
    if how is None or not extra:
        return how
    places = extra[0].spec
    if len(extra) > 1 or places.dtype != np.int64 or places.shape != value.spec.shape:
        return None
    return replace(how, extra=places, pair=partial(tuple.__new__, type(result)))


def enter_view(call: Call, result: Tensor, *, indexed: bool = False) -> bool:
    """Enter a view of the first argument; whether it is one.

    ``indexed``: by an index, ``x[key]``. Only recorders in native code are notified of a view whose parameters its form
    does not have.
    """
    x, form = call.args[0], result._form
    if type(form) is not Form or not form.is_view or type(x) is not Tensor or modes.tape_beside_recorder() is None:
        return False
    axes = () if not indexed or form.params else calls.axes_of(x._form.spec, call.args[1])
    asked = None if axes else arguments(call.args[1:], call.named, indexed=indexed)
    key = Key(call.number, (x._form,), (type(result._slot) is int,), len(axes) if asked is None else asked.hashed)
    known = (asked is None and not axes) or calls.kind_of(key) is not None
    how = None if known else _view_computation(x, result)
    if how is not None:
        alone = indexed or form.specs[0] is x._form.spec  # not a view of another view that was taken
        notification = Notification(form.op, 1, form.params or None) if alone else None
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


_layouts: list[WrappedArray] = []  # the native table of layouts: empty until its first use, then of one element


def add_layout(array: Array, tensor: Tensor) -> None:
    """Let native code convert the next array of this layout to such a tensor as Python has made of it."""
    if not _layouts:
        _layouts.append(WrappedArray())
    if array.dtype is tensor.spec.dtype and array.flags.aligned:
        dense = array.flags.c_contiguous or array.flags.f_contiguous
        if dense or not np.may_share_memory(array, as_array(tensor)):
            _layouts[0].add_layout(array, tensor.spec)


def cached_call(
    miss: Miss | None = by_operation, *, marks: int = structs.ARGUED, number: int | None = None, slot: bool = False
) -> Callable[[Function], Function]:
    """Let native code repeat the calls of a function, which ``miss`` makes and enters; None enters none of them.

    ``marks`` say how its arguments are read; by default the leading tensors are operands, and arguments behind them
    are part of the key. What the function does may depend on these and on specs, never on the elements. ``number``: of
    the operation, else its own. With ``slot`` it is an operator, whose slot in the type of tensors is native already.
    """

    def decorated(function: Function) -> Function:
        if not NATIVELY:
            return function
        called_as = (next(_numbers) if number is None else number) | marks
        op_number = called_as & (structs.NUMBERED - 1)

        @functools.wraps(function)
        def missed(*args: Any, **named: Any) -> Any:
            assert miss is not None
            try:
                return miss(Call(function, op_number, called_as, args, named))
            except Exception as error:
                shorten(error)
                raise

        fill: Callable[..., Any] = function if miss is None else missed
        if slot:
            set_miss_handlers(op_number, fill, function)
            return function
        return operation(called_as, fill, function, function)  # type: ignore[no-any-return]

    return decorated


if NATIVELY:
    offsets = RegistryTable.entries, RegistryTable.thread, RegistryTable.given_arrays
    for at, word in {
        RegistryTable.new_array: table()[NEW],
        RegistryTable.new_view: table()[NEW_VIEW],
        RegistryTable.set_base: table()[SET_BASE],
        RegistryTable.active: id(modes._active),
        RegistryTable.recorder: id(modes._sole_recorder),
        RegistryTable.tape_type: id(Tape),
        RegistryTable.hit: jit.load_module("calls.functions_native").hit.address,
        **dict(zip(offsets, place_of(Tape, "entries", "thread", "given_arrays"), strict=True)),
    }.items():
        memory.put(memory.REGISTRY.address, at, word)
    if place_of(modes.SoleRecorder, *RecorderObject.FIELDS) == [at for at, _ in RecorderObject.FIELDS.values()]:
        memory.REGISTRY.set(recorder_type=id(modes.SoleRecorder))
