"""Calls of routines and of functions of the user's or of NumPy's on tensors."""

from __future__ import annotations

import ast
import dis
import functools
import gc
import inspect
import itertools
import linecache
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba.core.errors import NumbaValueError
from numba.core.typing.typeof import Purpose, typeof_impl

from kernels.foundation.tables import Recent, exact
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.routine import (
    Custom,
    Routine,
    RoutineCall,
    Unsettled,
    apart,
    computed,
    custom_of,
    kept_values,
    packed,
    part_params,
)
from tape import errors
from tape.recording import record, views
from tape.recording.equivalents import MINIMIZERS, MODULES, advice
from tape.recording.parameters import with_name
from tape.recording.promotion import alike
from tape.tensors import hooks, modes
from tape.tensors.bytecode import log_operation, log_results
from tape.tensors.operands import operand
from tape.tensors.tapes import every
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, leaf, scalar_or_array

# Calls of routines, and of jitted functions of the user's, on tensors: each is recorded as one instruction.

_calls: Recent[Any, TensorCall] = Recent()


Settled: TypeAlias = Mapping[int, Any]
SETTLED: ContextVar[Settled] = ContextVar("tape_settled", default=MappingProxyType({}))
"""Gradients that such instructions, by slot, have in the sweeps of this context; None: as far as cotangents tell."""


REACH: ContextVar[Callable[[], set[Any] | None]] = ContextVar("tape_reach", default=set)
"""Returns the slots and leaves that the running sweep will reach, if it may reach hooks; None: not known before."""


def hooked() -> bool:
    """Whether the running sweep will reach hooks, which would see that it is run again."""
    seeing = {slot for tape in every() for slot in list(tape.hooks)}.union([leaf() for leaf in hooks.LEAVES.values()])
    reached = REACH.get()() if seeing else seeing
    return reached is None or not seeing.isdisjoint(reached)


class TensorCall(RoutineCall):
    """A call whose rules tensors can run too, recorded: gradients of gradients."""

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Return the gradients of the operands; raise Unsettled where cotangents do not tell them."""
        if self.op.unsettled is not None and gradient is not None:
            settled = SETTLED.get()
            if instruction.slot not in settled:
                rows, values = gradient.reshape(-1, gradient.shape[-1]), kept_values(instruction)
                if any(self.is_unsettled(row, values) for row in rows) and not hooked():
                    raise Unsettled(instruction)
            elif (known := settled[instruction.slot]) is not None:
                return [known]
        return super().pull(instruction, gradient, stash, batch=batch)

    def pull_tensors(
        self, instruction: Instruction, gradient: Tensor | None, stash: dict[Any, Any], saved_tensors: Any
    ) -> list[Tensor | None]:
        """Run the vjp on tensors."""
        form, op = instruction.form, self.op
        assert op.vjp is not None
        if gradient is None:
            return [None] * len(form.specs)
        if (known := SETTLED.get().get(instruction.slot)) is not None:
            return [constant_tensor(known)]
        values = {n: self._bound(n, v, instruction, saved_tensors) for n, v in kept_values(instruction).items()}
        cotangents = dict(zip(op.cotangents, self.apart(gradient), strict=True))
        needs = tuple(spec is not None for spec in form.specs)
        gradients = self.run(op.vjp, {**self.named(values), **cotangents, "needs": needs})
        return [x if spec is not None else None for x, spec in zip(gradients, form.specs, strict=True)]

    def _bound(self, name: str, value: Any, instruction: Instruction, saved_tensors: Any) -> Any:
        """Return a saved value as a tensor with its slot."""
        form = instruction.form
        if name in self.op.extras or type(value) is Tensor:
            return value
        slot, spec = instruction.slot, form.spec
        if name in self.op.inputs:
            at = self.op.inputs.index(name)
            slot, spec = instruction.operands[at], form.specs[at]  # type: ignore[assignment]
        return constant_tensor(value) if slot is None or spec is None else saved_tensors.tensor(slot, value, spec)

    def apart(self, flat: Any) -> list[Any]:
        """Split packed results, of a tensor as views."""
        if not isinstance(flat, Tensor) or len(self.shapes) == 1:
            return super().apart(flat)
        return [record.view(self.op.part, flat, params) for params in part_params(self.shapes)]


def call(op: Routine, *operands: Any, **params: Any) -> Any:
    """Run a routine: a tensor, or a tuple of its results and extras. Operands are promoted to one dtype."""
    tensors = alike(*operands)
    arrays = [as_array(x) for x in tensors]
    try:
        result = computed(op, arrays, params)
    except Exception as error:
        record.note_raised(op, tuple(tensors), params, error)
        raise
    parts = [_unshared(x, arrays) for x in (result if isinstance(result, tuple) else (result,))]
    frozen = tuple(sorted(params.items()))
    results, extras = parts[: len(op.results)], parts[len(op.results) :]
    shared = _shared_call(op, params, frozen, tuple(x.shape for x in results))
    if op.vjp is None:
        y = _extra(op, tensors, packed(results), (frozen,))
        log_operation(op, tuple(tensors), (frozen,), (y,))
    else:
        further = {"context": shared, **dict(zip(op.extras, extras, strict=True))}.__getitem__
        y = record.finish(op, tuple(tensors), packed(results), (shared,), further=further, notice=(frozen,))
    tensors_of_extras = [_extra(op, tensors, x, (frozen, k)) for k, x in enumerate(extras)]
    log_results(*tensors_of_extras)
    return y if len(parts) == 1 else (*shared.apart(y), *tensors_of_extras)


def calling(op: Routine) -> Callable[..., Any]:
    """Return what runs a routine on tensors where rules call its forward, whose static parameters may be left out."""
    defaults = inspect.unwrap(op.forward).__kwdefaults__ or {}
    return lambda *operands, **params: call(op, *operands, **defaults | params)


def _shared_call(op: Routine, params: dict[str, Any], frozen: tuple[Any, ...], shapes: tuple[Any, ...]) -> TensorCall:
    """Return the object that calls with these parameters share, so that equal calls have one form."""
    key = (op, exact(frozen), shapes)
    shared = _calls.get(key)
    if shared is None:
        shared = _calls.setdefault(key, TensorCall(op, params, shapes))
    return shared


def _unshared(x: Any, operands: list[Array]) -> Array:
    """Return a result as a C-contiguous array of its own memory."""
    array = np.asarray(x)
    fresh = array.base is None and array.flags.c_contiguous and not any(array is o for o in operands)
    return array if fresh else np.array(x, order="C")


def _extra(op: Routine, tensors: list[Tensor], value: Any, params: tuple[Any, ...]) -> Tensor:
    """Return a result without a gradient."""
    result = leaf(scalar_or_array(value), requires_grad=False)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.notify(op, tuple(tensors), result, params)
    return result


# ``tape.custom``: jitted functions of the user's as operations that stay native in sweeps and replays.


def custom(forward: Callable[..., Any], vjp: Callable[..., Any], *, name: str = "") -> Callable[..., Tensor]:
    """Make an operation of two ``@njit`` functions; no Python runs between kernels when it is swept or replayed.

    ``forward(*operands)`` returns the result, an array or a number; ``vjp(cotangent, *operands)`` the gradient of its
    only operand, or a tuple with that of each. Operands are floating tensors, arrays or numbers; they reach the
    functions in one dtype, C-contiguous, 0-d ones as numbers, and must not be changed. The result has that dtype.
    They are compiled once a process for operands of these ranks. The vjp cannot be differentiated again.

    Raises TypeError if a function is not jitted, RuntimeError naming the operation if one raises.
    """
    for role, function in (("forward", forward), ("vjp", vjp)):
        if not hasattr(function, "py_func"):
            raise TypeError(f"custom: {role} is a {type(function).__name__}; decorate it with numba.njit")
    title = name or forward.__name__
    op = custom_of(title, f"{title}Backward", forward, vjp)

    @with_name(title, forward.__doc__)
    def operation(*operands: Any) -> Tensor:
        return call_custom(op, operands)

    return operation


def call_custom(op: Custom, args: tuple[Any, ...]) -> Tensor:
    """Run a custom operation on operands as users give them."""
    if not args:
        raise TypeError(f"{op.name}: takes at least one operand")
    operands = alike(*[_floating(op, x) for x in args])
    dtype = operands[0].spec.dtype
    shapes = tuple(x.spec.shape for x in operands)
    flat = views.cat([views.reshape(x, -1) for x in operands])
    try:
        result = op.forward(*apart(as_array(flat), shapes))
    except Exception as error:
        record.note_raised(op, (flat,), {}, error)
        raise
    value = np.asarray(result, dtype if type(result) is float else None)  # Numba boxes float32 as a Python float
    if value.dtype != dtype:
        raise TypeError(f"{op.name}: forward returned {value.dtype} for operands of {dtype}")
    value = np.array(value, order="C")
    return record.finish(op, (flat,), value, (shapes,))


def _floating(op: Custom, value: Any) -> Any:
    """Return an operand as it is, a Python number as a float; raise unless it is floating."""
    x = operand(value)
    if not isinstance(x, Tensor):
        return float(x)
    if x.spec.dtype.kind != "f":
        raise TypeError(f"{op.name}: an operand has dtype {x.spec.dtype.name}; operands are floating")
    if math.prod(x.spec.shape) == 0:
        raise ValueError(f"{op.name}: an operand of shape {list(x.spec.shape)} has no elements")
    return value


# Calls of NumPy, SciPy and math with tensors: what works, and the error that says what to write.
#
# A conversion sees only the Python frame that is running. The instruction it is at calls the function itself
# (``math.sin(t)``), or something that calls it in turn (``list(map(math.sin, ts))``, ``sorted(ts, key=math.exp)``), or
# goes through what does (``for y in map(math.sin, ts)``): then the function is among those that the expression names
# without calling them.

_WITHOUT_GRADIENT = ("ceil", "floor", "isclose", "isfinite", "isinf", "isnan", "trunc")
"""Functions of numbers whose results have no gradient: what follows loses none."""
_CONVERSIONS = (float, int)  # what the user calls to have a number
_HOLDERS = (
    map, filter, zip, itertools.starmap, itertools.accumulate, functools.partial,
    type(functools.lru_cache(abs)), dict, list, tuple,
)  # fmt: skip
"""Objects in which functions are looked for."""
_OPERATORS = ("BINARY", "COMPARE", "CONVERT", "FORMAT", "STORE")
"""Instructions that make numbers of operands themselves: ``"%f" % t``."""
_DROPPING = ("DELETE", "JUMP_IF", "POP", "RAISE", "RETURN_VALUE", "STORE")
"""Instructions that take from the stack, and leave nothing there."""
_READING = ("LOAD_ATTR", "LOAD_METHOD", "FOR_ITER", "UNPACK", "GET_")
"""Instructions whose results are of what they take from the stack, though these are more."""
_MOST = 64  # how many things in a holder are looked at
_DEEPEST_RESULT = 3  # how many holders in one another are looked through


class _Step(NamedTuple):
    """An instruction: where it stands in the code; its operand; where its expression begins and ends.

    That is in the source; in code without columns (``python -X no_debug_ranges``) among the instructions, as line -1.
    """

    offset: int
    opname: str
    operand: Any
    begin: tuple[int, int]
    end: tuple[int, int]


class _Path(NamedTuple):
    names: tuple[str, ...]
    begin: tuple[int, int]
    end: tuple[int, int]


def number_function(frame: types.FrameType, x: Any) -> tuple[str | None, str | None]:
    """Return the name of the function of numbers that a frame gives a tensor to, and which argument that is, if known.

    No name where the user asks for a number himself, or where the function's results have no gradient.
    """
    step = _step(frame)
    if step is None or step.opname.startswith(_OPERATORS):
        return None, None
    paths, calls = _paths(frame.f_code), set()
    if step.opname.startswith("CALL"):
        names = [name for path in paths if path.begin == step.begin for name in _functions(_value(frame, path.names))]
        if names:
            return _with_gradient(names), _argument(frame, step, x)
        calls = {other.begin for other in _steps(frame.f_code) if other.opname.startswith("CALL")}
    within = [path for path in paths if step.begin <= path.begin and path.end <= step.end]
    in_lines = [path for path in paths if step.begin[0] <= path.begin[0] <= step.end[0] and step.begin[0] >= 0]
    for named in (within, in_lines):
        names = [n for path in named if path.begin not in calls for n in _functions(_value(frame, path.names))]
        if names:
            return _with_gradient(names), None
    return None, None


def native_callee(frame: types.FrameType) -> Any:
    """Return the builtin function, method or class that a frame calls by a name, None if it does not."""
    step = _step(frame)
    if step is None or not step.opname.startswith("CALL"):
        return None
    called = [_value(frame, path.names) for path in _paths(frame.f_code) if path.begin == step.begin]
    return next(
        (x for x in called if isinstance(x, (type, types.BuiltinFunctionType, types.MethodDescriptorType))), None
    )


def _argument(frame: types.FrameType, step: _Step, x: Any) -> str | None:
    call = _written_call(frame, step)
    if call is None:
        return None
    for i, node in enumerate(call.args):
        known = _value(frame, (node.id,)) is x if isinstance(node, ast.Name) else len(call.args) == 1
        if known and not isinstance(node, ast.Starred):
            return f"argument {i + 1} ({ast.unparse(node)})"
    return None


def _written_call(frame: types.FrameType, step: _Step) -> ast.Call | None:
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[step.begin[0] - 1 : step.end[0]]
    if not lines or step.begin[0] < 0:
        return None
    source = [line.encode() for line in lines]
    source[-1] = source[-1][: step.end[1]]
    source[0] = source[0][step.begin[1] :]
    try:
        node = ast.parse(b"".join(source), mode="eval").body
    except SyntaxError:
        return None
    return node if isinstance(node, ast.Call) else None


def _with_gradient(names: list[str]) -> str | None:
    return next((name for name in names if name and name.rpartition(".")[2] not in _WITHOUT_GRADIENT), None)


def _functions(value: Any, deepest: int = _DEEPEST_RESULT) -> Iterator[str]:
    if value is complex:
        yield "complex"
    elif any(value is conversion for conversion in _CONVERSIONS):
        yield ""
    elif isinstance(value, types.ModuleType):
        if value.__name__ in MODULES:
            yield value.__name__
    elif isinstance(value, types.BuiltinFunctionType):
        if value.__module__ in MODULES:
            yield f"{value.__module__}.{value.__name__}"
    elif isinstance(value, _HOLDERS) and deepest:
        for held in itertools.islice(gc.get_referents(value), _MOST):
            yield from _functions(held, deepest - 1)


def _value(frame: types.FrameType, names: tuple[str, ...]) -> Any:
    spaces = (frame.f_locals, frame.f_globals, frame.f_builtins)
    value = next((space[names[0]] for space in spaces if names[0] in space), None)
    for name in names[1:]:
        is_module = isinstance(value, types.ModuleType)
        value = vars(value).get(name) if is_module else inspect.getattr_static(value, name, None)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
    return value


@functools.lru_cache(256)
def _steps(code: types.CodeType) -> tuple[_Step, ...]:
    steps = []
    for step in dis.get_instructions(code):
        line, last, column, end = step.positions or (None,) * 4
        if line is not None and last is not None and column is not None and end is not None:
            steps.append(_Step(step.offset, step.opname, step.argval, (line, column), (last, end)))
    return tuple(steps or _steps_by_stack(code))


def _steps_by_stack(code: types.CodeType) -> Iterator[_Step]:
    stack: list[int] = []
    at_targets: dict[Any, list[int]] = {}
    for step in dis.get_instructions(code):
        name, number = step.opname, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        stack = at_targets.get(step.offset, stack)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            effect = dis.stack_effect(step.opcode, number, jump=True)
            at_targets[step.argval] = stack[: len(stack) + effect] if effect < 0 else stack
        effect = dis.stack_effect(step.opcode, number, jump=False)
        taken = max(-effect, 0) + (not name.startswith(_DROPPING) and (effect <= 0 or name.startswith(_READING)))
        taken += name == "SEND"
        begin = min(stack[-taken:], default=step.offset) if taken else step.offset
        yield _Step(step.offset, name, step.argval, (-1, begin), (-1, step.offset))
        made = sys.maxsize if name == "PUSH_NULL" else begin
        stack = [*stack[: max(len(stack) - taken, 0)], *[made] * (taken + effect)]


def _step(frame: types.FrameType) -> _Step | None:
    return next((step for step in _steps(frame.f_code) if step.offset == frame.f_lasti), None)


@functools.lru_cache(256)
def _paths(code: types.CodeType) -> tuple[_Path, ...]:
    paths: list[_Path] = []
    is_open = False  # further attributes are those of the last one
    for step in _steps(code):
        if step.opname.startswith(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
            names = step.operand if isinstance(step.operand, tuple) else (step.operand,)
            paths += [_Path((name,), step.begin, step.end) for name in names]
            is_open = True
        elif is_open and paths[-1].begin == step.begin:
            is_open = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if is_open:
                paths[-1] = _Path((*paths[-1].names, step.operand), step.begin, step.end)
    return tuple(paths)


# The errors for tensors given to functions that convert their arguments, of SciPy and of Python's own modules.
#
# They name the function, and what tape has instead.

_DEEPEST = 40  # frames of SciPy's and NumPy's between a tensor and the call of the user


def _public(frame: FrameType) -> str:
    module = frame.f_globals["__name__"].split(".")
    package = ".".join(part for part in module if not part.startswith("_"))
    name = frame.f_code.co_name
    owner = frame.f_locals.get("self")
    if owner is None:
        return f"{_shortest(package, name)}.{name}"
    owner = getattr(owner, "dist", owner)  # of a frozen distribution
    kind = type(owner).__name__
    if name in ("__init__", "__call__"):
        kind = kind.removeprefix("_Custom")  # of a LinearOperator
        return f"{_shortest(package, kind)}.{kind}"
    owner_name = getattr(owner, "name", None)
    return f"{package}.{owner_name if isinstance(owner_name, str) else kind.removesuffix('_gen')}.{name}"


def _shortest(package: str, name: str) -> str:
    """Return the outermost package that offers a name of a module in it."""
    parts = package.split(".")
    owners = [".".join(parts[:count]) for count in range(2, len(parts))]
    return next((owner for owner in owners if name in vars(sys.modules.get(owner, math))), package)


def called(x: Any) -> tuple[str | None, str]:
    """Return the name of the SciPy function that handed a tensor to NumPy, None if none did; and which argument."""
    frame: FrameType | None = sys._getframe(1)
    scipy_frame = wrapped = wrapper = None
    for _ in range(_DEEPEST):
        if frame is None:
            break
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package == "scipy" and not module.startswith("scipy._lib"):
            scipy_frame = frame
        elif package == "scipy":
            if wrapped is None:
                wrapped, wrapper = _wrapped(frame), frame
        elif scipy_frame is not None or wrapped is not None or package not in ("tape", "numpy"):
            break
        frame = frame.f_back
    if scipy_frame is None and wrapped is None and frame is not None:
        callee = native_callee(frame)
        if getattr(callee, "__objclass__", None) is np.ndarray or callee in (np.array, np.asarray):
            return f"ndarray.{callee.__name__}", "an argument"
        if str(getattr(callee, "__module__", "")).startswith("scipy."):
            return _name(callee), "an argument"
    last = scipy_frame or wrapper
    part = (last and _parameter(last, x)) or "what a function given to it returned, or computed of its arguments"
    return (wrapped if scipy_frame is None else _public(scipy_frame)), part


def _parameter(frame: FrameType, x: Any) -> str | None:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    named = {name: frame.f_locals.get(name) for name in code.co_varnames[:count]}
    extra = list(
        code.co_varnames[count : count + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)]
    )
    if code.co_flags & CO_VARKEYWORDS:
        named.update(frame.f_locals.get(extra.pop()) or {})
    if code.co_flags & CO_VARARGS:
        named.update({str(i + 1): value for i, value in enumerate(frame.f_locals.get(extra.pop()) or ())})
    for name, value in named.items():
        if value is x or (isinstance(value, (list, tuple)) and any(part is x for part in value)):
            return f"its argument {name!r}"
    return None


def _numpy_function() -> str | None:
    frame: FrameType | None = sys._getframe(1)
    name = None
    while frame is not None and (package := frame.f_globals.get("__name__", "").partition(".")[0]) in ("tape", "numpy"):
        owner = frame.f_locals.get("self")
        called_name = frame.f_code.co_name if owner is None else type(owner).__name__
        if package == "numpy" and callable(getattr(np, called_name, None)):
            name = called_name
        frame = frame.f_back
    return name


def _wrapped(frame: FrameType) -> str | None:
    function = frame.f_locals.get("f") or frame.f_locals.get("func")
    module = getattr(function, "__module__", None)
    return _name(function) if isinstance(module, str) and module.startswith("scipy.") else None


def _name(function: Any) -> str:
    package = ".".join(part for part in function.__module__.split(".") if not part.startswith("_"))
    return f"{package}.{getattr(function, '__name__', 'function')}"


def refusal(x: Any) -> Exception:
    """Return the error for a tensor that requires grad and is to become an array; it names a substitute for SciPy."""
    name, part = called(x)
    if name is None and (stored := _stored(_users_frame())) is not None:
        return stored
    if name in ("ndarray.array", "ndarray.asarray"):
        return RuntimeError(
            f"np.{name.removeprefix('ndarray.')} makes an array of numbers of tensors: {errors.NUMPY_ARRAY}. "
            f"tape.tensor([...]) and np.stack([...]) keep the gradient, too. {errors.NUMPY_EXIT}"
        )
    if name is not None and name.startswith("ndarray."):
        method = name.removeprefix("ndarray.")
        better = f"np.{method}(array, t)" if hasattr(np, method) else "a function of tape"
        return RuntimeError(f"{name} makes an array of its argument: write {better}. {errors.NUMPY_EXIT}")
    if name is None and (numpys := _numpy_function()) is not None:
        has_own = getattr(sys.modules["tape"].numpy, numpys, None) is not getattr(np, numpys, None)
        better = _REMEDIES.get(numpys) or (errors.NUMPY_ARRAY if has_own else _STACKED)
        return TypeError(f"np.{numpys} computes on arrays, without gradients: {better}. {errors.NUMPY_EXIT}")
    if name is None:
        return RuntimeError(errors.NUMPY_EXIT)
    is_minimizer = name.rpartition(".")[2] in MINIMIZERS and name.startswith("scipy.optimize.")
    return (RuntimeError if is_minimizer else TypeError)(f"{advice(name)}. {errors.NUMPY_EXIT} The tensor is {part}")


def refusal_of_out(message: str, x: Any) -> TypeError:
    """Return the error for a result that requires grad and is to be written into an array, by the user or by SciPy."""
    name, part = called(x)
    return TypeError(message if name is None else f"{advice(name)}. {errors.NUMPY_EXIT} The tensor is {part}")


_STACKED = "give it tensors, tape.stack([...]) of a list of them"
_REMEDIES = {"vectorize": "call f(t), or tape.func.vmap(f)(t)", "ones_like": _STACKED, "zeros_like": _STACKED}
_INTO_ARRAY = (np.ndarray.fill, np.fromiter)
"""Functions of NumPy's that write numbers into an array."""


def _users_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("tape", "numpy"):
        frame = frame.f_back
    return frame


def _stored(frame: FrameType | None) -> Exception | None:
    """Return the error for a tensor that requires grad and that the code in a frame writes into an array."""
    step = None if frame is None else _step(frame)
    if frame is None or step is None:
        return None
    written = "u[...] = t"
    if not step.opname.startswith("STORE_S"):  # u[key] = t, u[low:high] = t
        callee = native_callee(frame)
        if not any(callee is function for function in _INTO_ARRAY):
            return None
        written = "u.fill(t)" if callee is np.ndarray.fill else "np.fromiter"
    return RuntimeError(
        f"{written} writes into a NumPy array, which has no room for a gradient: {errors.NUMPY_ARRAY}. "
        "Write t.detach() where no gradient is meant"
    )


def refusal_of_number(frame: FrameType, x: Any) -> Exception | None:
    """Return the error for a tensor that requires grad and that the function called in a frame turns into a number.

    None where the user does so himself, or where the function has no gradient.
    """
    user, module = frame, frame.f_globals.get("__name__", "")
    part: str | None = None
    if module in MODULES:
        while frame.f_back is not None and frame.f_back.f_globals.get("__name__") == module:
            frame = frame.f_back
        name: str | None = _public(frame)
        part = _parameter(frame, x)
    elif module.partition(".")[0] in ("scipy", "numpy"):
        name, part = called(x)
    else:
        name, part = number_function(frame, x)
    if name is None:
        return _stored(user)
    return TypeError(
        f"{advice(name)}. A tensor of shape {x.spec.shape} that requires grad, {part or 'an argument'}, would become "
        "a number and lose its gradient. Write .item() or .detach() where that is meant"
    )


# Functions jitted by Numba, given tensors: an error in place of Numba's.


@typeof_impl.register(Tensor)
def _refused_by_numba(x: Any, context: Any) -> None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("_compile_for_args", "typeof_pyval"):
        frame = frame.f_back
    dispatcher = None if frame is None else frame.f_locals["self"]
    if dispatcher is not None and dispatcher.targetoptions.get("forceobj"):
        return
    name = "a jitted function" if dispatcher is None else f"the jitted function {dispatcher.py_func.__name__}"
    what = "reads" if context.purpose is Purpose.constant else "is given"
    raise (NumbaValueError if context.purpose is Purpose.constant else TypeError)(
        f"{name} {what} a tensor of shape {x.spec.shape}, and native code knows none: call it in "
        "tape.parameters(module), where Python runs it, call its .py_func, or make an operation of it and its vjp, "
        "tape.custom(forward, vjp)"
    )


# SciPy's solvers run on tensors where they are Python: the last iterates have a gradient, but not that of the solution.

_SOLVERS, _INSIDE = "scipy.optimize.", ("scipy", "numpy", "tape")


def refuse_iterates(frame: FrameType) -> None:
    """Raise TypeError where a solver of SciPy's, which decides by a tensor, iterates on ones that require grad."""
    if not frame.f_globals.get("__name__", "").startswith(_SOLVERS) or not modes.is_grad_enabled():
        return
    for x in frame.f_locals.values():
        if isinstance(x, Tensor) and x._slot is not None:
            raise _refused(x, "its iterates have another gradient than the solution")


def refuse_result(x: Any) -> None:
    """Raise TypeError where a solver of SciPy's first looks at what a function gives, and that requires grad.

    What it would raise later, in native code, is printed there, and says less.
    """
    if isinstance(x, Tensor) and x._slot is not None and modes.is_grad_enabled() and _solver() is not None:
        raise _refused(x, "a solver takes arrays, and loses the gradient")


def refuse_detaching(frame: FrameType) -> None:
    """Raise TypeError where a solver of SciPy's calls what returns NumPy's numbers without a gradient."""
    solver = _solver(frame, direct=False)
    if solver is not None:
        raise TypeError(
            f"{advice(_public(solver))}. The function uses a tensor that requires grad, and what it returns here has "
            "no gradient by it. Write .detach() where that is meant"
        )


def _refused(x: Any, why: str) -> TypeError:
    solver = _solver()
    name = "SciPy's solver" if solver is None else advice(_public(solver))
    return TypeError(
        f"{name}. A tensor of shape {x.spec.shape} requires grad: {why}. Write .detach() where that is meant"
    )


def _solver(frame: FrameType | None = None, *, direct: bool = True) -> FrameType | None:
    """Return the outermost frame of SciPy's solver that runs, or that has called this package with ``direct``."""
    frame, solver = frame or sys._getframe(1), None
    for _ in range(_DEEPEST):
        if frame is None:
            break
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if module.startswith(_SOLVERS):
            solver = frame
        elif package not in _INSIDE and (direct or solver is not None):
            break
        frame = frame.f_back
    return solver
