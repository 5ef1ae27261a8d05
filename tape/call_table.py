"""Operators: native code repeats those it has seen; the others run here, and are entered for the next time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels import call_entries as calls
from kernels import loops, registry, words
from kernels.form import Form
from kernels.layouts import Spec, dense, spec_of
from kernels.lowered_loops import spread
from kernels.native_types import NATIVE
from kernels.numpy_api import NEW, NEW_VIEW, SET_BASE, agrees, table
from kernels.op import Elementwise, Reduction
from kernels.operations import operation
from kernels.scipy_ufuncs import resolved
from kernels.tables import OPS
from kernels.tasks import initial
from kernels.words import PULLS
from tape import modes
from tape.promotion import calls_scipy
from tape.tapes import LARGE, Tape
from tape.tensor import Tensor

Method = TypeVar("Method", bound=Callable[..., Any])
NATIVELY = NATIVE and loops.readable() and agrees()
_FLOATS = np.dtype(np.float64), np.dtype(np.float32)


def install(op: Elementwise, operator: Callable[..., Any] | None, reverse: Callable[..., Any] | None) -> None:
    """Let native code ask Python for what it does not know of an operator."""
    number = number_of(op)
    assert operator is not None
    assert number is not None

    def either(a: Any, b: Any) -> Any:
        return operator(a, b) if isinstance(a, Tensor) or reverse is None else reverse(b, a)

    always = operator if len(op.inputs) == 1 else either

    def once(*operands: Any) -> Any:
        result = always(*operands)
        _enter(op, operands, result)
        return result

    _ask(number, once, always)


def _ask(number: int, once: Callable[..., Any], always: Callable[..., Any]) -> None:
    """Let native code ask these: for what it has not seen, and for what it never does."""
    _missed.extend((once, always))  # for ever, as the type
    registry.put(registry.REGISTRY.missed, 2 * number, id(once))
    registry.put(registry.REGISTRY.missed, 2 * number + 1, id(always))


_missed: list[Any] = []


def _number(op: Elementwise) -> int:
    found = number_of(op)
    return _numbers[op.name] if found is None else found


def install_part(index: Callable[[Tensor, Any], Tensor]) -> None:
    """Let native code ask ``index`` for the parts of tensors that it has not seen."""

    def part(x: Tensor, key: Any) -> Tensor:
        result = index(x, key)
        form = result._form
        if type(form) is Form and form.is_view and type(x) is Tensor and modes.active() is not None:
            whole, shown = x._value, result._value
            above = x._offset if type(x._form) is Form and x._form.is_view else 0
            if type(whole) is np.ndarray and type(shown) is np.ndarray and form.spec.bytes < LARGE and shown.size:
                wanted = type(result._slot) is int
                calls.enter_part(x._form, key, form, (shown, whole, result._offset - above), wanted=wanted)
        return result

    _ask(words.OP_PART, part, index)


def number_of(op: Elementwise) -> int | None:
    """Return the number of an operator that native code repeats; None of any other."""
    return calls.OPERATORS.get((op.operator, len(op.inputs))) if NATIVELY else None


def natively(op: Elementwise, fast: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the function of an operation of one or two operands that native code repeats; None of others."""
    if not NATIVELY or len(op.inputs) > 2 or op.condition or op.scalar:  # noqa: PLR2004
        return None

    def slow(*operands: Any) -> Any:
        result = fast(*operands)
        _enter(op, operands, result)
        return result

    found: Callable[..., Any] = operation(
        _numbers.setdefault(op.name, words.OPERATIONS + len(_numbers)), slow, fast, like
    )
    found.__name__ = found.__qualname__ = op.name
    return found


_numbers: dict[str, int] = {}


def reducing(op: Reduction) -> Callable[[Method], Method]:
    """Let native code repeat a method that reduces, over all dims or one that is given as an int."""

    def decorated(method: Method) -> Method:
        if not NATIVELY:
            return method
        number = _numbers.setdefault(op.name, words.OPERATIONS + len(_numbers))

        @functools.wraps(method)
        def once(x: Any, *given: Any, **named: Any) -> Any:
            result = method(x, *given, **named)
            if not named and len(given) < 2 and all(type(dim) is int for dim in given):  # noqa: PLR2004
                _enter_reduction(number, op, x, given, result)
            return result

        return operation(number | words.REDUCES, once, method, method)  # type: ignore[no-any-return]

    return decorated


def _enter_reduction(number: int, op: Reduction, x: Any, dims: tuple[int, ...], result: Any) -> None:
    tape = modes.active()
    if tape is not None and type(x) is Tensor and type(result) is Tensor:
        wanted = bool(tape) and x._slot is not None
        none = [None] * len(dims)
        number_given = float(dims[0]) if dims else None
        key = calls.Key(number, (x._form, *none), (wanted, *map(bool, none)), number_given)
        calls.enter_reduction(key, result._form, _reduction(op, x.spec, dims, result, wanted))


def _reduction(op: Reduction, source: Spec, dims: tuple[int, ...], result: Tensor, wanted: bool) -> Any:
    """Return how native code reduces to a result; None where it cannot."""
    spec, form, rank = result.spec, result._form, len(source.shape)
    doubles = spec.dtype == source.dtype == _FLOATS[0] and source.size and _is_simple(spec, (source,))
    if not doubles or not _is_recorded(result, wanted) or source.strides != dense(source.shape, source.dtype.itemsize):
        return None
    axes = tuple(dim % rank for dim in dims) if dims else tuple(range(rank))
    places = {"x": 0, "y": 2, "n": 3}
    picks = tuple([places[name] for name in form.saved]) if type(form) is Form else ()
    start, scale = initial(op.ufunc, source, spec.dtype), float(source.size // spec.size) if op.scale else 0.0
    onto = spread(spec.strides, rank, axes, keepdims=False)
    return calls.Reducing(loops.find(op.ufunc, (spec.dtype,) * 3), source, spec, onto, start, scale, picks)


def _enter(op: Elementwise, operands: tuple[Any, ...], result: Any) -> None:
    """Enter a call that has been made, unless others were to hear of it."""
    tape = modes.active()
    if tape is None or type(result) is not Tensor:
        return
    if any(type(x) not in (Tensor, float, int) for x in operands):
        return
    forms = [x._form if type(x) is Tensor else None for x in operands]
    wanted = [bool(tape) and type(x) is Tensor and x._slot is not None for x in operands]
    number = None
    if op.scalar and forms[-1] is None:
        number = float(operands[-1])
    key = calls.Key(_number(op), tuple(forms), tuple(wanted), number)
    specs = tuple([None if form is None else form.spec for form in forms])
    calls.enter(key, result._form, _computation(op, specs, result, number, any(wanted)))


def _computation(
    op: Elementwise, specs: tuple[Spec | None, ...], result: Tensor, number: float | None, recorded: bool
) -> calls.Computation | None:
    """Return how native code computes it; None where it cannot, or need not."""
    spec, form = result.spec, result._form
    if not _is_simple(spec, specs) or calls_scipy(op) or not _is_recorded(result, recorded):
        return None
    record, sources = (op, specs) if number is None else (_by_number(op), specs[:1])
    ufunc = record.ufunc if number is None else record.variants.get(number, record.ufunc)
    if not isinstance(ufunc := resolved(ufunc), np.ufunc):
        return None
    if ufunc.nin > len(sources):
        sources = specs
    names = (*record.inputs, "y") if len(record.inputs) > 1 else (*record.inputs, "", "y")
    try:
        picks = tuple([names.index(name) for name in form.saved]) if recorded else ()  # type: ignore[union-attr]
        loop = loops.find(ufunc, (spec.dtype,) * (len(sources) + 1))
    except (LookupError, ValueError):
        return None
    return calls.Computation(loop, sources, spec, picks)


def _is_simple(spec: Spec, sources: tuple[Spec | None, ...]) -> bool:
    """Whether all are of one float dtype, none large (those are watched), and the result as NumPy makes arrays."""
    if spec.dtype not in _FLOATS or spec_of(np.empty(spec.shape, spec.dtype)) is not spec:
        return False
    return all(s is None or (s.dtype == spec.dtype and s.bytes < LARGE) for s in (spec, *sources))


def _is_recorded(result: Tensor, recorded: bool) -> bool:
    """Whether a result has been recorded, or not, as its operands have it."""
    form = result._form
    if type(form) is Form:
        return recorded and form.kind == PULLS and type(result._slot) is int
    return not recorded


def _by_number(op: Elementwise) -> Elementwise:
    """Return the record of an operation by a number."""
    record = OPS[op.scalar]
    assert isinstance(record, Elementwise)
    return record


if NATIVELY:
    for at, function in ((words.G_NEW, NEW), (words.G_VIEW, NEW_VIEW), (words.G_BASE, SET_BASE)):
        registry.put(registry.REGISTRY.address, at, table()[function])
    registry.put(registry.REGISTRY.address, words.G_TAPE, id(Tape))
    registry.put(registry.REGISTRY.address, words.G_ACTIVE, id(modes._active))
    registry.put(registry.REGISTRY.address, words.G_ENTRIES, Tape.entries_at())
