"""Operands of mixed dtypes, and elementwise operations, reductions and selections as they run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from kernels.foundation.specs import BOOL, FLOAT32, FLOAT64, dividing, silently
from kernels.kinds.elementwise import Elementwise, Reduction, Select, counted, reduced, tied
from kernels.native import pool
from kernels.native.structs import LARGE
from kernels.operations import OPS
from kernels.rules import scalar_loops
from kernels.rules.loop_printer import pick
from tape.recording import record
from tape.recording.cached_calls import NATIVELY, add_layout, cached_call
from tape.recording.record import finish, note_raised, to_dtype
from tape.tensors import dtypes, modes
from tape.tensors.bytecode import log_results
from tape.tensors.operands import (
    LARGEST,
    WEAK,
    Number,
    beside,
    check_broadcast,
    is_mask,
    operand,
    refused,
    tensor_of,
)
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, leaf, scalar_or_array

# Elementwise operations on tensors and numbers, run by Python: broadcast, computed, recorded.


def elementwise(op: Elementwise, *args: Any) -> Tensor:
    """Run an elementwise operation on tensors of one dtype and Python numbers, by NumPy's broadcasting."""
    if op.scalar and len(args) == 2 and isinstance(args[1], Number) and not isinstance(args[1], bool):  # noqa: PLR2004
        return _with_number(OPS[op.scalar], args[0], args[1])  # type: ignore[arg-type]
    operands = args
    if not _PLAIN.issuperset(map(type, args)):
        floats = [o.dtype for o in args if isinstance(o, (Tensor, np.ndarray)) and o.dtype.kind == "f"]
        operands = tuple([operand(beside(o, floats[0] if floats else BOOL)) for o in args])
    if op.condition and not is_mask(operands[0]):
        raise RuntimeError(f"{op.name}: the condition must be a bool tensor; write {op.name}(x != 0, ...)")
    if op.condition and type(operands[0]) is bool:  # its rules choose by a mask
        operands = (constant_tensor(np.asarray(operands[0])), *operands[1:])
    specs = [o._form.spec for o in operands if isinstance(o, Tensor)]
    alike = specs.count(specs[0]) == len(specs) if specs else True
    if not alike:
        check_broadcast(op.name, operands)
    # Where dtypes differ, the float of a float64 tensor must not count as weak.
    wide = not alike and len({spec.dtype for spec in specs}) > 1
    values = [o if not isinstance(o, Tensor) else np.asarray(o._value) if wide else o._value for o in operands]
    try:
        value = scalar_loops.run(op, *values) if op.vector else None
        if value is None:
            large = any(type(x) is np.ndarray and x.nbytes >= LARGE for x in values)
            value = _silently(partial(pool.call, op.ufunc) if large else op.ufunc, values)
    except Exception as error:
        note_raised(op, operands, {}, error)
        raise
    if any(isinstance(o, Tensor) and o._slot is not None for o in operands) or modes.current().recorder:
        operands = _of_one_dtype(op, operands, scalar_or_array(value))
    return finish(op, operands, value)


_PLAIN = frozenset((Tensor, float))  # types of operands that are what the user gave


def _silently(compute: Callable[..., Any], values: list[Any]) -> Any:
    """Compute without NumPy's floating-point warnings; integers keep the user's error state.

    Beside float32 arrays a float that overflows float32 warns, as any conversion does.
    """
    dtypes = [value.dtype for value in values if type(value) is np.ndarray]
    numbers = [value for value in values if type(value) is float]
    if numbers and FLOAT32 in dtypes:
        np.array(numbers).astype(np.float32)
    floats = numbers or any(dtype.kind == "f" for dtype in dtypes)
    return silently(compute, *values) if floats else compute(*values)


def _with_number(op: Elementwise, x: Any, number: float) -> Tensor:
    """Run an operation whose second operand is a static Python number."""
    x = operand(x)
    if not isinstance(x, Tensor):
        x = constant_tensor(x)
    if x.spec.dtype.kind != "f":
        try:
            value = scalar_or_array(op.ufunc(x._value, number))  # NumPy's dtype depends on the number's type
        except Exception as error:
            note_raised(op, (x,), {}, error)
            raise
        return finish(op, (x,), value, notice=(number,))
    p = float(number)
    compute = op.variants[p] if p in op.variants else lambda value: op.ufunc(value, p)
    large = x.spec.bytes >= LARGE
    value = _silently(lambda array, _: pool.call(compute, array) if large else compute(array), [x._value, p])

    return finish(op, (x,), value, (p,))


def _of_one_dtype(op: Elementwise, operands: tuple[Any, ...], value: Array | float) -> tuple[Any, ...]:
    """Cast operands, recorded, to the dtype that NumPy computed in; conditions stay boolean."""
    dtype = FLOAT64 if type(value) is float else value.dtype  # type: ignore[union-attr]
    fits = [type(o) is float or (type(o) is Tensor and o._form.spec.dtype is dtype) for o in operands]
    if all(fits) or dtype.kind != "f" or not op.differentiable:
        return operands
    cast = [
        float(o) if type(o) is bool or (type(o) is int and abs(o) <= LARGEST)
        else o if not isinstance(o, Tensor) or rule is None or o.spec.dtype == dtype
        else to_dtype(o, dtype)
        for o, rule in zip(operands, op.pullback, strict=True)
    ]  # fmt: skip
    return tuple(cast)


# Selections of one element along an axis: run and record.


def select(op: Select, x: Tensor, axis: int, keepdims: bool) -> tuple[Tensor, Tensor]:
    """Return the extremum along an axis and its first place."""
    picked, indices = pick(op.locate, as_array(x), axis=axis, keepdims=keepdims)

    values = finish(op, (x,), picked, (axis, keepdims), further=lambda _: indices)
    places = leaf(indices, requires_grad=False)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.notify(op, (x,), places, (axis, keepdims, "indices"))
    log_results(places)
    return values, places


# Reductions: run and record.


def reduction(op: Reduction, x: Tensor, axes: tuple[int, ...], keepdims: bool, name: str = "") -> Tensor:
    """Reduce over axes, normalised; ``name`` is the node's."""
    array = as_array(x)
    value = reduced(op, array, axes=axes, keepdims=keepdims)

    def count(_: str) -> Any:
        if op.selects:
            return scalar_or_array(tied(op, array, axes=axes, keepdims=keepdims))
        return float(counted(array.shape, axes))

    return finish(op, (x,), value, (axes, keepdims), name=name, further=count)


# The dtype that operands of several dtypes are computed in: PyTorch's between tensors, NumPy's beside arrays.
#
# PyTorch's: floats come before integers, and these before bools, whatever their widths. Within a category tensors with
# dims come before those without, and these before Python's numbers. NumPy's, where an operand is NumPy's, in NumPy's
# functions and in functions that were given NumPy's arrays: whatever holds the values of all dtypes.

# Tensors copied to another dtype, which native code repeats.


def cast(x: Tensor, dtype: Any, op: Any = record.TO_COPY) -> Tensor:
    """Copy to a dtype, recorded where both are floating."""
    return _to(op, dtype)(x)


@functools.cache
def _to(op: Any, dtype: Any) -> Callable[[Tensor], Tensor]:
    def copied(x: Tensor) -> Tensor:
        return record.to_dtype(x, dtype, op)

    return cached_call()(copied)


Kind: TypeAlias = tuple[np.dtype[Any], bool] | type
"""The dtype of a tensor or an array, and whether it has dims; or the type of a Python number."""


def of_numpy(operands: Sequence[Any]) -> bool:
    """Whether NumPy's promotion stands for these operands, as the user gave them."""
    return modes.promotes_as_numpy() or (
        not _USUAL.issuperset(map(type, operands))
        and any(isinstance(x, np.generic) or not isinstance(x, (Tensor, np.dtype, *Number)) for x in operands)
    )


_USUAL = frozenset((Tensor, float, int, bool))  # the usual types of what is not NumPy's


_OF_PYTHON: dict[str, type] = {"f": float, "b": bool}


def kind_of(x: Any) -> Kind:
    """Return what counts of an operand."""
    if isinstance(x, Tensor):
        spec = x._form.spec
        return (spec.dtype, bool(spec.shape)) if type(x) not in WEAK else _OF_PYTHON.get(spec.dtype.kind, int)
    if isinstance(x, Number) and not isinstance(x, np.generic):
        return bool if isinstance(x, bool) else int if isinstance(x, int) else float
    return (x if isinstance(x, np.dtype) else np.asarray(x).dtype), True


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """Return the dtype that operands, as the user gave them, are computed in; dtypes stand for tensors with dims."""
    return promoted(tuple(map(kind_of, operands)), numpy=of_numpy(operands), default=dtypes.DEFAULT["dtype"])


@functools.lru_cache(4096)
def promoted(kinds: tuple[Kind, ...], *, numpy: bool, default: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of operands of these kinds; Python's floats are of the ``default`` dtype."""
    ranks: list[list[np.dtype[Any]]] = [[], [], []]
    for kind in kinds:
        if isinstance(kind, tuple):
            ranks[0 if kind[1] or numpy else 1].append(kind[0])
        else:
            ranks[2].append(default if kind is float else np.dtype(kind))
    join = functools.partial(functools.reduce, promote_types)
    dtypes_of_ranks = [np.result_type(*rank) if numpy else join(rank) for rank in ranks if rank]
    return functools.reduce(_before, dtypes_of_ranks)


def _before(first: np.dtype[Any], then: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of what comes first, unless what comes then is of a higher category."""
    return promote_types(first, then) if _CATEGORY[first.kind] < _CATEGORY[then.kind] else first


def promote_types(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Return PyTorch's common dtype of tensors that have dims."""
    if (a.kind == "f") is not (b.kind == "f"):
        return a if a.kind == "f" else b
    return np.promote_types(a, b)


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2}


def can_cast(have: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a result is written to memory of another dtype: not one of a higher category, or as NumPy has it."""
    if modes.promotes_as_numpy():
        return np.can_cast(have, wanted, "same_kind")
    return _CATEGORY[have.kind] <= _CATEGORY[wanted.kind]


def alike(*operands: Any) -> list[Tensor]:
    """Return operands as tensors of the dtype that they are computed in; casts are recorded."""
    tensors = list(map(tensor_of, operands))
    first = tensors[0]._form.spec.dtype
    if all(x._form.spec.dtype is first for x in tensors):
        return tensors
    dtype = common_dtype(*operands)
    return [x if x._form.spec.dtype == dtype else cast(x, dtype) for x in tensors]


def tensors_of(*operands: Any) -> list[Tensor]:
    """Return operands as tensors; of one dtype, NumPy's, where arrays are among them, which nobody sees afterwards."""
    return alike(*operands) if operands and of_numpy(operands) else list(map(tensor_of, operands))


# Operands of several dtypes, which are cast to one before an operation runs: so all that runs has one.
#
# Integers and booleans are cast to the default dtype where the result is floating. NumPy would give a half for a byte,
# and 0 for an integer divided by zero; PyTorch's dtype and exception stand here.


def run_with_promotion(op: Elementwise, *args: Any) -> Tensor:
    """Run an elementwise operation on tensors, arrays and Python numbers."""
    args = _with_floats(op, args)
    if not any(isinstance(o, Tensor) for o in args):  # lists are operands beside tensors only, as in PyTorch
        for value in args:
            if not isinstance(value, (np.ndarray, np.generic, *Number)):
                raise refused(value)
    floating = [o for o in args if isinstance(o, Tensor) and o._form.spec.dtype.kind == "f"]
    if 0 < len(floating) < len(args) and op.calls_scipy:
        args = _weak(args, floating)
    if op.condition and not floating and any(isinstance(o, float) for o in args[1:]):
        wanted = dtypes.get_default_dtype()
        args = (args[0], *[constant_tensor(np.asarray(o, wanted)) if isinstance(o, float) else o for o in args[1:]])
    if op.condition or floating:
        return elementwise(op, *args)
    operands = tuple(map(operand, args))
    kinds = {o.spec.dtype.kind for o in operands if isinstance(o, Tensor)}
    if "f" in kinds:
        return elementwise(op, *operands)
    if _is_float(op, tuple(o.spec.dtype if isinstance(o, Tensor) else type(o) for o in operands)):
        wanted = dtypes.get_default_dtype()
        return elementwise(op, *[cast(o, wanted) if isinstance(o, Tensor) else o for o in operands])
    result: Tensor = dividing(op.name, elementwise, op, *operands)
    return result


def _with_floats(op: Elementwise, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands with NumPy's doubles as Python's floats, where all tensors but a condition are of doubles."""
    if np.float64 not in map(type, args):
        return args
    of_dtypes = {x._form.spec.dtype for x in args if isinstance(x, Tensor)} - ({BOOL} if op.condition else set())
    return tuple([float(x) if type(x) is np.float64 else x for x in args]) if of_dtypes == {FLOAT64} else args


def of_one_dtype(op: Elementwise, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return operands cast, recorded, to the dtype that they are computed in; None if they need no cast.

    Arrays beside a tensor are tensors then. Casts are only of tensors; a condition stays as it is.
    """
    args = _with_floats(op, args)
    if not op.condition and _USUAL.issuperset(map(type, args)):
        dtypes_given = {x._form.spec.dtype for x in args if type(x) is Tensor}
        if len(dtypes_given) == 1 and dtypes_given.pop().kind == "f":
            return None
    before, args = args, with_tensors(args)
    kinds = tuple([kind_of(x) if isinstance(x, Tensor) else type(x) for x in args])
    wanted, numpys = _wanted(op, kinds, dtypes.DEFAULT["dtype"])
    if numpys is not wanted and of_numpy(before):
        wanted = numpys
    if wanted is None and not WEAK.isdisjoint(map(type, args)):
        wanted = next((kind[0] for kind in kinds if isinstance(kind, tuple) and kind[0].kind == "f"), None)
    if wanted is None:
        return None if args is before else args
    first = 1 if op.condition else 0
    others = [at >= first and isinstance(x, Tensor) and x._form.spec.dtype is not wanted for at, x in enumerate(args)]
    if not any(others):  # all but numbers that are tensors are of the dtype
        return None if args is before else args
    return tuple([cast(x, wanted) if other else x for x, other in zip(args, others, strict=True)])


def with_tensors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands with tensors, whose calls native code repeats, for NumPy's arrays, if a tensor is among them."""
    arrays = (np.ndarray, np.generic)
    if not any(isinstance(x, arrays) for x in args) or not any(type(x) is Tensor for x in args):
        return args
    return tuple([with_tensor(x) if isinstance(x, arrays) else x for x in args])


def with_tensor(value: Any) -> Tensor:
    """Return an array or a scalar as a tensor; native code converts the next one with its layout."""
    tensor: Tensor = operand(value)
    if NATIVELY and type(value) in (np.ndarray, np.float64):
        add_layout(np.asarray(value), tensor)
    return tensor


@functools.lru_cache(4096)
def _wanted(op: Elementwise, kinds: tuple[Any, ...], default: np.dtype[Any]) -> tuple[np.dtype[Any] | None, ...]:
    """Return the dtypes that operands of these kinds are cast to, PyTorch's and NumPy's; None for no cast."""
    return tuple([_wanted_of(op, kinds, default, numpy=numpy) for numpy in (False, True)])


def _wanted_of(op: Elementwise, kinds: tuple[Any, ...], default: np.dtype[Any], *, numpy: bool) -> Any:
    """Return the dtype that operands of these kinds are cast to; None for no cast.

    That is also the default dtype, of integers where the result is floating.
    """
    tensors = [kind for kind in kinds if isinstance(kind, tuple)]
    if any(kind not in (float, int, bool) for kind in kinds if kind not in tensors) or len(kinds) != len(op.inputs):
        return None
    chosen = kinds[1:] if op.condition else kinds
    dtypes = {kind[0] for kind in chosen if isinstance(kind, tuple)}
    if not dtypes:
        return None
    common = next(iter(dtypes))
    if len(dtypes) > 1 or op.condition:
        common = promoted(chosen, numpy=numpy, default=default)
        if common.kind == "f" and not op.differentiable and all(dtype.kind != "f" for dtype in dtypes):
            return None  # int64 and uint64, which NumPy compares exactly
    if common.kind != "f" and not op.condition and not op.calls_scipy:
        known = tuple([kind[0] if isinstance(kind, tuple) else kind for kind in kinds])
        common = default if _is_float(op, known) else common
    return None if dtypes == {common} else common


def _weak(args: tuple[Any, ...], floating: list[Tensor]) -> tuple[Any, ...]:
    """Give Python numbers the dtype of the tensors, as NumPy does."""
    dtype = np.result_type(*(o.spec.dtype for o in floating))
    if dtype == np.float64:
        return args
    return tuple([constant_tensor(np.asarray(o, dtype)) if isinstance(o, Number) else o for o in args])


@functools.cache
def _is_float(op: Elementwise, kinds: tuple[Any, ...]) -> bool:
    """Whether an operation on operands of these dtypes, or of Python's types of numbers, gives floats."""
    ones = [np.ones(1, kind) if isinstance(kind, np.dtype) else kind(1) for kind in kinds]
    try:
        with np.errstate(all="ignore"):
            return bool(np.asarray(op.ufunc(*ones)).dtype.kind == "f")
    except (TypeError, ValueError):  # the operation itself says so
        return False
