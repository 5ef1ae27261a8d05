"""A compiled program as a function that Numba's ``@njit`` code calls."""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from kernels.language.jit import intrinsic, types
from kernels.programs.compiler.compiled_code import CompiledCode
from kernels.programs.native_use.native_entry import I64, Parameter, emit_call, flat_address, parameters_of

# A compiled program as a function of ctypes: numbers by value, arrays and results by address.

_FLAT_KINDS = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "int32": ctypes.c_int32,
    "bool": ctypes.c_bool,
}  # fmt: skip
_ADDRESSES = (int, ctypes.c_void_p, ctypes._Pointer, type(ctypes.byref(ctypes.c_int())))  # noqa: SLF001 (of pointers)


class PointerArgument:
    """What ctypes asks of an entry of ``argtypes``: it takes an array that fits, or an address as it is.

    TypeError, which ctypes makes an ArgumentError, for other arrays: of another dtype, shape or strides, or, for a
    result, read-only. An address is an int, a ``c_void_p``, a pointer of ctypes, or what its ``byref`` returns.
    """

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter

    def __repr__(self) -> str:
        return f"<pointer to {self.parameter.name}: {self.parameter.spec.dtype}, {self.parameter.spec.shape}>"

    def from_param(self, value: Any) -> Any:
        """Return an address as ctypes hands it over."""
        if isinstance(value, np.ndarray):
            reason = misfit(self.parameter, value)
            if reason:
                raise TypeError(reason)
            return ctypes.c_void_p(value.ctypes.data)
        if isinstance(value, _ADDRESSES):
            return ctypes.c_void_p(value) if isinstance(value, int) else value
        raise TypeError(f"{self.parameter.name}: an array or an address is wanted, not {type(value).__name__}")


def misfit(parameter: Parameter, value: Any, *, placed: bool = True) -> str:
    """Return why a parameter does not take an array; "" if it does, shape and strides looked at if ``placed``."""
    spec, name = parameter.spec, parameter.name
    if not isinstance(value, np.ndarray) or value.dtype != spec.dtype or not value.flags.aligned:
        kind = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        return f"{name}: an aligned array of dtype {spec.dtype} is wanted, not {kind}"
    if parameter.role != "argument" and not value.flags.writeable:
        return f"{name} is written to, and the array may only be read"
    shapes = [spec.shape] if parameter.role == "argument" or spec.shape else [(), (1,)]
    if value.ndim not in map(len, shapes):
        return f"{name}: {len(spec.shape)} dimensions are wanted, not {value.ndim}"
    if placed and value.shape not in shapes:
        return f"{name}: shape {spec.shape} is wanted, not {value.shape}"
    steps = [pair for pair, n in zip(zip(value.strides, parameter.strides), spec.shape) if n > 1]  # noqa: B905 (of (1,))
    if placed and spec.size and any(stride != wanted for stride, wanted in steps):
        return f"{name}: strides {parameter.strides} are wanted, not {value.strides}"
    return ""


def flat_function(code: CompiledCode, names: tuple[str, ...] = ()) -> Any:
    """Return the flat function of a program as ctypes calls it; it gives the interpreter lock away meanwhile.

    Its parameters are those of ``parameters_of``: numbers as ``c_double`` and its kin, arrays and results as
    ``PointerArgument``. It returns the status as an int; see ``emit_call`` in native_entry.py.
    """
    parameters = parameters_of(code, names)
    kinds: list[Any] = [_FLAT_KINDS[p.spec.dtype.name] if p.by_value else ctypes.c_void_p for p in parameters]
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(flat_address(code))
    converters: list[Any] = [
        kind if p.by_value else PointerArgument(p) for p, kind in zip(parameters, kinds, strict=True)
    ]
    function.argtypes = converters
    return function


_KINDS = {
    "float64": types.float64, "float32": types.float32, "int64": types.int64, "int32": types.int32,
    "bool": types.boolean,
}  # fmt: skip


class NativeFunction:
    """A compiled program that ``@njit`` code calls: as a global, from a closure, or handed over as an argument.

    It takes the arguments, then arrays for the outputs that have dimensions, then an array for each gradient, or None
    in place of one that is not wanted. An argument of no dimensions is a number, or a 0-d array; the gradient by it
    goes into an array of one element. All arrays have the dtype, the number of dimensions and the shape that were
    recorded; results are C-contiguous, writable, and share no memory with arguments or each other.

    It returns ``(status, value)``, all outputs of no dimensions standing behind the status; without such, the status
    alone. The status is 0; k > 0 if guard k - 1 missed: results are then undefined; -k if the k-th array has not the
    shape, or not the strides, that were recorded: nothing was computed; NO_MEMORY if there is none for the workspace.
    Wrong types, dtypes and numbers of dimensions are errors when the caller is compiled.

    It holds no lock and may be called by several threads. Called from Python it does the same, slower.
    """

    def __init__(self, code: CompiledCode, parameters: Sequence[Parameter]) -> None:
        self.code = code
        self.parameters = tuple(p for p in parameters if p.role != "output" or p.spec.shape)
        self.scalars = tuple(p for p in parameters if p.role == "output" and not p.spec.shape)
        self.everything = tuple(parameters)
        """With those that are returned."""
        with global_compiler_lock:
            function = intrinsic(_typed(self))
            cpu_target.typing_context.refresh()
            self._type = NativeType(cpu_target.typing_context.resolve_value_type(function))

    @property
    def numba_type(self) -> Any:
        """Its type among Numba's: another for each function."""
        return self._type

    def __call__(self, *args: Any) -> Any:
        """Call it from Python, as with ``NUMBA_DISABLE_JIT``; TypeError for what ``@njit`` does not compile."""
        if len(args) != len(self.parameters):
            raise TypeError(f"it takes {_names(self.parameters)}, not {len(args)} arguments")
        values = {p: _array(p, value) for p, value in zip(self.parameters, args, strict=True)}
        nothing = [math.nan if p.spec.dtype.kind == "f" else 0 for p in self.scalars]
        for p, value in values.items():
            reason = misfit(p, value, placed=False)
            if reason:
                raise TypeError(reason)
        for k, (p, value) in enumerate(values.items()):
            if misfit(p, value):
                return self._returned(-k - 1, nothing)
        values |= {p: np.empty((), p.spec.dtype) for p in self.scalars}
        ordered = [(p, values[p]) for p in self.everything]
        status = flat_function(self.code)(*[x.item() if p.by_value else x.ctypes.data for p, x in ordered])
        return self._returned(status, [values[p].item() for p in self.scalars] if status == 0 else nothing)

    @staticmethod
    def _returned(status: int, scalars: list[Any]) -> Any:
        return (status, *scalars) if scalars else status


class NativeType(types.Function):
    """The type of one native function."""

    def __init__(self, function: Any) -> None:
        super().__init__(function.templates[0])


register_model(NativeType)(models.OpaqueModel)


@typeof_impl.register(NativeFunction)
def _type_of(function: NativeFunction, context: Any) -> Any:
    del context
    return function.numba_type


@unbox(NativeType)
def _unboxed(kind: Any, function: Any, context: Any) -> NativeValue:
    """Return nothing: the type says which function it is."""
    del kind, function
    return NativeValue(context.context.get_dummy_value())


@functools.cache  # Numba keeps what it has typed for good
def native_function(code: CompiledCode, names: tuple[str, ...] = ()) -> NativeFunction:
    """Return a compiled program as a function for ``@njit`` code; ``names`` are those of its arguments."""
    return NativeFunction(code, parameters_of(code, names))


def _array(parameter: Parameter, value: Any) -> Any:
    """Return a number as an array, and an array for a result that is not wanted."""
    if value is None and parameter.role != "argument":
        return np.empty(parameter.spec.shape, parameter.spec.dtype)
    by_value = parameter.by_value and isinstance(value, (bool, int, float, np.number, np.bool_))
    return np.asarray(value, parameter.spec.dtype) if by_value else value


def _names(parameters: Sequence[Parameter]) -> str:
    return ", ".join(p.name for p in parameters)


def _typed(function: NativeFunction) -> Any:
    """Return what Numba's ``intrinsic`` takes: types to a signature and what appends the instructions."""
    parameters, scalars = function.parameters, function.scalars

    def native(typingctx: Any, *kinds: Any) -> Any:
        del typingctx
        if len(kinds) != len(parameters):
            raise TypingError(f"it takes {_names(parameters)}, not {len(kinds)} arguments")
        wanted = [_accepted(p, kind) for p, kind in zip(parameters, kinds, strict=True)]
        returned: Any = types.int64
        if scalars:
            returned = types.Tuple((types.int64, *[_KINDS[p.spec.dtype.name] for p in scalars]))
        return returned(*wanted), functools.partial(_emit, function)

    names = ["typingctx", *[p.name for p in parameters]]
    native.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return native


def _accepted(parameter: Parameter, kind: Any) -> Any:
    """Return the type that an argument is cast to; TypingError if there is none."""
    spec, dtype = parameter.spec, _KINDS[parameter.spec.dtype.name]
    if parameter.by_value and isinstance(kind, (types.Number, types.Boolean)):
        return dtype
    if parameter.role != "argument" and kind == types.none:
        return kind
    dims = {len(spec.shape)} if parameter.role == "argument" or spec.shape else {0, 1}
    if isinstance(kind, types.Array) and kind.dtype == dtype and kind.ndim in dims and kind.aligned:
        if parameter.role == "argument" or kind.mutable:
            return kind
        raise TypingError(f"{parameter.name} is written to, and the array may only be read")
    shape = "a number" if parameter.by_value else f"an array of shape {spec.shape or (1,)}"
    raise TypingError(f"{parameter.name}: {shape} and of dtype {spec.dtype} is wanted, not {kind}")


def _address(context: Any, builder: Any, address: int) -> Any:
    """Return an address of this process, which Numba is not to keep in files."""
    return builder.ptrtoint(context.add_dynamic_addr(builder, address, info="a compiled program"), I64)


def _emit(function: NativeFunction, context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Append the instructions of a call."""
    bad: Any = I64(0)
    places: dict[Parameter, Any] = {}
    for k in reversed(range(len(args))):
        parameter, kind, value = function.parameters[k], signature.args[k], args[k]
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            places[parameter] = builder.ptrtoint(array.data, I64)
            fits = _fits(builder, parameter, kind, array)
            bad = bad if fits is None else builder.select(fits, bad, I64(-k - 1))
        elif kind != types.none:
            places[parameter] = _slot(context, builder, kind, value)
    kinds = [_KINDS[p.spec.dtype.name] for p in function.scalars]
    nothing = [context.get_constant(kind, math.nan if kind in types.real_domain else 0) for kind in kinds]
    slots = [_slot(context, builder, kind, value) for kind, value in zip(kinds, nothing, strict=True)]
    places |= dict(zip(function.scalars, slots, strict=True))
    status = cgutils.alloca_once(builder, I64)
    builder.store(bad, status)
    words = [places.get(p) for p in function.everything]
    with builder.if_then(builder.icmp_signed("==", bad, I64(0)), likely=True):
        builder.store(emit_call(builder, function.code, words, functools.partial(_address, context)), status)
    values = [
        context.unpack_value(builder, kind, _pointer(context, builder, kind, slot))
        for kind, slot in zip(kinds, slots, strict=True)
    ]
    if not values:
        return builder.load(status)
    return context.make_tuple(builder, signature.return_type, [builder.load(status), *values])


def _slot(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return the address of a number, as it is in memory."""
    place = cgutils.alloca_once(builder, context.get_data_type(kind))
    context.pack_value(builder, kind, value, place)
    return builder.ptrtoint(place, I64)


def _pointer(context: Any, builder: Any, kind: Any, slot: Any) -> Any:
    return builder.inttoptr(slot, context.get_data_type(kind).as_pointer())


def _fits(builder: Any, parameter: Parameter, kind: Any, array: Any) -> Any:
    """Return whether an array has the shape and the strides that were recorded; None if nothing need be looked at."""
    shape = parameter.spec.shape or (1,) * kind.ndim
    extents = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
    tests = [builder.icmp_signed("==", extent, I64(n)) for extent, n in zip(extents, shape, strict=True)]
    if not (kind.layout == "C" and parameter.is_dense) and parameter.spec.size:
        steps = cgutils.unpack_tuple(builder, array.strides, kind.ndim)
        strides = parameter.strides or (0,) * kind.ndim
        tests += [
            builder.icmp_signed("==", step, I64(stride))
            for step, stride, n in zip(steps, strides, shape, strict=True)
            if n > 1
        ]
    return functools.reduce(builder.and_, tests) if tests else None
