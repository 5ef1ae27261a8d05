"""Calls that native code repeats: what it has not seen runs here, in Python, and is entered for the next time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels import call_entries as calls
from kernels import computations, jit, loops, registry, words
from kernels.call_entries import Key, Telling
from kernels.form import Form
from kernels.native_leaf import place_of
from kernels.native_types import NATIVE
from kernels.numpy_api import NEW, NEW_VIEW, SET_BASE, agrees, table
from kernels.op import Contraction, Copy, Elementwise, Reduction
from kernels.operations import operation
from kernels.tables import OPS
from kernels.words import LARGEST_DIM, PULLS
from tape import modes
from tape.families import base_of
from tape.promotion import calls_scipy
from tape.tapes import LARGE, Tape
from tape.tensor import Tensor

Method = TypeVar("Method", bound=Callable[..., Any])
NATIVELY = NATIVE and loops.readable() and agrees()
_OWN = (Tensor, float, int)
_MOST = words.MOST_OPERANDS
_numbers: dict[str, int] = {}


def _number_of(name: str) -> int:
    return _numbers.setdefault(name, words.OPERATIONS + len(_numbers))


def operator_number(op: Any) -> int | None:
    """Return the number of an operator that has a slot in the type of tensors; None of any other."""
    return calls.OPERATORS.get((op.operator, len(op.inputs))) if NATIVELY else None


def _ask(number: int, once: Callable[..., Any], always: Callable[..., Any]) -> None:
    """Let native code ask these: for what it has not seen, and for what it never does."""
    _missed.extend((once, always))  # for ever, as the type
    registry.put(registry.REGISTRY.missed, 2 * number, id(once))
    registry.put(registry.REGISTRY.missed, 2 * number + 1, id(always))


_missed: list[Any] = []


def install(number: int, always: Callable[..., Any], enter: Callable[[Any, Any], None]) -> None:
    """Let native code ask ``always`` for what an operator of this number gives; ``enter`` enters it."""

    def once(*operands: Any) -> Any:
        result = always(*operands)
        enter(operands, result)
        return result

    _ask(number, once, always)


def repeated(op: Elementwise, always: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an operation that native code repeats; what stays Python's alone is ``always``."""
    if not NATIVELY or len(op.inputs) > _MOST:
        return always
    number = operator_number(op)
    number = _number_of(op.name) if number is None else number

    def once(*operands: Any) -> Any:
        result = always(*operands)
        enter(op, operands, result)
        return result

    found: Callable[..., Any] = operation(number | (words.NUMBERED if op.scalar else 0), once, always, like)
    found.__name__ = found.__qualname__ = op.name
    return found


def enter(op: Elementwise, operands: tuple[Any, ...], result: Any) -> None:
    """Enter a call of an operation that has been made, unless others were to hear of it."""
    if len(operands) != len(op.inputs) or any(type(x) not in _OWN for x in operands) or type(result) is not Tensor:
        return
    forms = tuple([x._form if type(x) is Tensor else None for x in operands])
    number = float(operands[-1]) if op.scalar and forms[-1] is None else None
    told = Telling(op, len(operands)) if number is None else Telling(OPS[op.scalar], 1, (number,))
    at = operator_number(op)
    key = _key(_number_of(op.name) if at is None else at, operands, forms, 0 if number is None else calls.bits(number))

    def how(saved: tuple[str, ...]) -> Any:
        specs = tuple([None if form is None else form.spec for form in forms])
        return None if calls_scipy(op) else computations.elementwise(op, specs, result.spec, saved, number)

    _enter(key, operands, result, told, how)


def _key(number: int, operands: tuple[Any, ...], forms: tuple[Any, ...], extra: int) -> Key | None:
    """Return what a call is found by; None where others are to hear of it than a tape and a recorder."""
    tape = modes.listening()
    if tape is None:
        return None
    wanted = tuple([bool(tape) and type(x) is Tensor and x._slot is not None for x in operands])
    return Key(number, forms, wanted, extra)


def _enter(
    key: Key | None, operands: tuple[Any, ...], result: Tensor, told: Telling, how: Callable[[tuple[str, ...]], Any]
) -> None:
    """Enter a call; ``how`` tells what computes it, and None where native code cannot."""
    if key is None or calls.is_known(key):
        return
    form, wanted = result._form, any(key.wanted)
    recorded = type(form) is Form
    pulls = recorded and form.kind == PULLS and type(result._slot) is int  # type: ignore[union-attr]
    done = (wanted and pulls) if recorded else not (wanted and result.spec.dtype.kind == "f")
    computation = how(form.saved if recorded else ()) if done else None  # type: ignore[union-attr]
    large = max(x.spec.bytes for x in (*operands, result) if type(x) is Tensor)
    calls.enter(key, form, computation, told, large if large >= LARGE else 0)


def install_part(index: Callable[[Tensor, Any], Tensor], params: Callable[[Tensor, Any], tuple[Any, ...]]) -> None:
    """Let native code ask ``index`` for the parts of tensors that it has not seen; ``params`` are a recorder's."""

    def part(x: Tensor, key: Any) -> Tensor:
        result = index(x, key)
        if (seen := _shown(x, result)) is not None:
            told = Telling(result._form.op, 1, params(x, key))  # type: ignore[union-attr]
            calls.enter_part(x._form, key, result._form, seen, told, **_watched(result))  # type: ignore[arg-type]
        return result

    _ask(words.OP_PART, part, index)


def viewing(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a view of a tensor, given ints and tuples of them."""

    def decorated(method: Method) -> Method:
        if not NATIVELY:
            return method
        number = _number_of(f"{name} of a tensor")

        @functools.wraps(method)
        def once(x: Any, *given: Any, **named: Any) -> Any:
            result = method(x, *given, **named)
            if not named and result is not x and (seen := _shown(x, result)) is not None:
                calls.enter_view(number, x._form, given, result._form, seen, **_watched(result))
            return result

        return operation(number | words.SHOWS, once, method, method)  # type: ignore[no-any-return]

    return decorated


def _shown(x: Tensor, result: Tensor) -> calls.Part | None:
    """Return what a view shows of a tensor; None where it is none, or others are to hear of it."""
    form = result._form
    if type(form) is not Form or not form.is_view or type(x) is not Tensor or modes.listening() is None:
        return None
    whole, shown = x._value, result._value
    above = x._offset if base_of(x) is not x else 0
    if result._base is not base_of(x) or type(whole) is not np.ndarray or type(shown) is not np.ndarray:
        return None  # of a copy, maybe
    if not shown.size or not np.may_share_memory(whole, shown):
        return None
    return calls.Part(shown, whole, result._offset - above)


def _watched(result: Tensor) -> dict[str, Any]:
    size = result._form.spec.bytes
    return {"wanted": type(result._slot) is int, "large": size if size >= LARGE else 0}


def install_assign(assign: Callable[[Tensor, Any, Any], None], written: Callable[[Tensor], None]) -> None:
    """Let native code ask ``assign`` to write a part, and tell ``written`` of one that has been written where it is."""

    def once(x: Tensor, key: Any, *value: Any) -> None:
        if not value:
            raise TypeError("Tensor does not support deleting items")
        assign(x, key, *value)

    _ask(words.OP_ASSIGN, once, written)


def reducing(op: Reduction) -> Callable[[Method], Method]:
    """Let native code repeat a method that reduces, over all dims or one that is given as an int."""

    def decorated(method: Method) -> Method:
        if not NATIVELY:
            return method
        number = _number_of(op.name)

        @functools.wraps(method)
        def once(x: Any, *given: Any, **named: Any) -> Any:
            result = method(x, *given, **named)
            if type(x) is Tensor and type(result) is Tensor and (found := _dims(*given, **named)) is not None:
                _enter_reduction(number, op, x, found, result)
            return result

        return operation(number | words.REDUCES, once, method, method)  # type: ignore[no-any-return]

    return decorated


def _dims(
    dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None, dtype: Any = None
) -> tuple[int | None, bool] | None:
    """Return the dim, None for all, and whether it is kept, of arguments that native code takes; None of others."""
    own, keep = axis if dim is None else dim, keepdims if keepdim is None else keepdim
    plain = (own is None or (type(own) is int and abs(own) < LARGEST_DIM)) and (keep is None or type(keep) is bool)
    return (own, bool(keep)) if plain and dtype is None else None


def _enter_reduction(number: int, op: Reduction, x: Tensor, given: tuple[int | None, bool], result: Tensor) -> None:
    dim, keep = given
    rank = len(x.spec.shape)
    axes = tuple(range(rank)) if dim is None or not rank else (dim % rank,)
    extra = keep + (0 if dim is None else 2 * (dim + 2 * LARGEST_DIM))
    key, told = _key(number, (x,), (x._form,), extra), Telling(op, 1, (axes, keep))

    def how(saved: tuple[str, ...]) -> Any:
        return computations.reduction(op, x.spec, axes, result.spec, saved, keepdims=keep)

    _enter(key, (x,), result, told, how)


def copying(op: Copy) -> Callable[[Method], Method]:
    """Let native code repeat a method that copies a tensor."""

    def decorated(method: Method) -> Method:
        if not NATIVELY:
            return method
        number = _number_of(op.name)

        @functools.wraps(method)
        def once(x: Any, *given: Any, **named: Any) -> Any:
            result = method(x, *given, **named)
            if type(x) is Tensor and not given and not named:
                key = _key(number, (x,), (x._form,), 0)
                _enter(key, (x,), result, Telling(op, 1), lambda _: computations.copy(x.spec, result.spec))
            return result

        return operation(number, once, method, method)  # type: ignore[no-any-return]

    return decorated


def multiplying(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a product of two tensors."""

    def decorated(method: Method) -> Method:
        if not NATIVELY:
            return method
        number = _number_of(name)

        @functools.wraps(method)
        def once(*given: Any, **named: Any) -> Any:
            result = method(*given, **named)
            if not named:
                enter_product(given, result, number)
            return result

        return operation(number, once, method, method)  # type: ignore[no-any-return]

    return decorated


def enter_product(operands: tuple[Any, ...], result: Any, number: int = words.OP_MATMUL) -> None:
    """Enter a product of matrices and vectors that has been made."""
    if any(type(x) is not Tensor for x in (*operands, result)):
        return
    a, b = operands
    op = products.get((len(a.spec.shape), len(b.spec.shape)))
    if op is not None:
        key = _key(number, operands, (a._form, b._form), 0)
        own = op
        _enter(
            key, operands, result, Telling(op, 2),
            lambda saved: computations.product(own, a.spec, b.spec, result.spec, saved),
        )  # fmt: skip


products = {op.ranks[0]: op for op in OPS.values() if isinstance(op, Contraction)}
"""The records of products by the ranks of both operands."""

if NATIVELY:
    for at, function in ((words.G_NEW, NEW), (words.G_VIEW, NEW_VIEW), (words.G_BASE, SET_BASE)):
        registry.put(registry.REGISTRY.address, at, table()[function])
    for at, thing in ((words.G_ACTIVE, modes._active), (words.G_HEARD, modes._heard), (words.G_MODE, modes._mode)):
        registry.put(registry.REGISTRY.address, at, id(thing))
    for at, module, name in ((words.G_HIT, "calls_native", "hit"), (words.G_HIT_VIEW, "parts_native", "hit_view")):
        registry.put(registry.REGISTRY.address, at, getattr(jit.load_module(module), name).address)
    registry.put(registry.REGISTRY.address, words.G_TAPE, id(Tape))
    for at, place in zip((words.G_ENTRIES, words.G_THREAD), place_of(Tape, "entries", "thread"), strict=True):
        registry.put(registry.REGISTRY.address, at, place)
