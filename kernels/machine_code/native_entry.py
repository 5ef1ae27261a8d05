"""How native code calls a compiled program: its parameters, the instructions of a call, and flat functions of C.

Each call has its own table of addresses on the stack, and its own workspace: on the stack, or, from ``SMALL`` bytes on,
one block that calls hand to each other. Who comes while it is in use allocates one, so that any number of threads may
call, without the interpreter lock.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.specs import Array, Spec, Strides, dense
from kernels.foundation.tables import dataclass
from kernels.language.jit import intrinsic, types
from kernels.native.memory import external

SMALL = 1 << 14  # bytes of workspace up to which it is on the stack
ALIGNED = 64  # A workspace begins at a multiple of so many bytes
NO_MEMORY = -(1 << 30)  # the status where memory was short
I32, I64, POINTER, DOUBLE = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer(), ir.DoubleType()


class NumberType(NamedTuple):
    """A dtype as LLVM, ctypes, Numba and C call it."""

    llvm: Any
    ctype: Any
    numba: Any
    c: str


NUMBERS = {
    "float64": NumberType(DOUBLE, ctypes.c_double, types.float64, "double"),
    "float32": NumberType(ir.FloatType(), ctypes.c_float, types.float32, "float"),
    "int64": NumberType(I64, ctypes.c_int64, types.int64, "int64_t"),
    "int32": NumberType(I32, ctypes.c_int32, types.int32, "int32_t"),
    "bool": NumberType(ir.IntType(8), ctypes.c_bool, types.boolean, "uint8_t"),
}
"""By the names of dtypes."""


@dataclass(frozen=True, eq=False)
class CallParameter:
    """What a native function takes: a number, if it is an ``argument`` of no dimensions, or an address."""

    name: str
    spec: Spec
    strides: Strides  # in bytes: those of the spec, or of a result, which is dense
    role: str
    """``argument``, ``output`` or ``gradient``."""

    @property
    def number(self) -> NumberType:
        """What its elements are."""
        return NUMBERS[self.spec.dtype.name]

    @property
    def by_value(self) -> bool:
        """Whether it is a number."""
        return self.role == "argument" and self.spec.shape == ()

    @property
    def is_dense(self) -> bool:
        """Whether it is in C order, without gaps."""
        return self.spec.size == 0 or all(
            stride == step or n == 1
            for n, stride, step in zip(
                self.spec.shape, self.strides, dense(self.spec.shape, self.spec.dtype.itemsize), strict=True
            )
        )


def parameters_of(code: CompiledCode, names: Sequence[str] = ()) -> list[CallParameter]:
    """Return what native functions take, in their order: arguments, outputs, gradients.

    ``names`` are those of the arguments, if they have any. TypeError if these are not as many as the arguments, and for
    a dtype that native code does not take.
    """
    names = list(names) or [f"x{k}" for k in range(len(code.arguments))]
    if len(names) != len(code.arguments):
        raise TypeError(f"the program has {len(code.arguments)} arguments, and there are {len(names)} names")
    outputs = ["value"] if len(code.outputs) == 1 else [f"value{k}" for k in range(len(code.outputs))]
    gradients = [f"grad_{names[k]}" for k in code.differentiated]
    roles = ["argument"] * len(names) + ["output"] * len(outputs) + ["gradient"] * len(gradients)
    specs = [*code.arguments, *code.outputs, *code.gradients]
    unknown = {spec.dtype.name for spec in specs} - NUMBERS.keys()
    if unknown:
        raise TypeError(f"native code takes and returns {', '.join(NUMBERS)}, not {', '.join(sorted(unknown))}")
    parameters: list[CallParameter] = []
    for name, spec, role in zip([*names, *outputs, *gradients], specs, roles, strict=True):
        strides = spec.strides if role == "argument" else dense(spec.shape, spec.dtype.itemsize)
        parameters.append(CallParameter(_identifier(name, {p.name for p in parameters}), spec, strides, role))
    return parameters


def _identifier(name: str, taken: set[str]) -> str:
    """Return a name that C has, too, and nothing else has yet."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = f"x{plain}" if plain[:1].isdigit() or not plain else plain
    while plain in taken:
        plain += "_"
    return plain


Address = Callable[[Any, int], Any]  # how an address of this process is printed: builder, address; a word


def constant_address(builder: Any, address: int) -> Any:
    """Return an address as it is; for code that is not kept."""
    del builder
    return I64(address)


_spares: dict[tuple[CompiledCode, int], Array] = {}
"""Words with the address of a block of so much memory that no call uses, or 0.

For good: machine code, which is never freed, has their addresses.
"""


def emit_call(builder: Any, code: CompiledCode, places: Sequence[Any], address: Address = constant_address) -> Any:
    """Append a call of a program; return the status, an int64: 0, or the number of the guard that missed plus 1.

    ``places`` are words: the addresses of the arguments, then those of outputs and gradients, of which None are not
    wanted. The status is NO_MEMORY where there is none for the workspace.
    """
    specs = [*code.arguments, *code.outputs, *code.gradients]
    unwanted = [_padded(spec.bytes) for spec, place in zip(specs, places, strict=True) if place is None]
    ends = list(itertools.accumulate(unwanted, initial=_padded(code.work)))
    status = cgutils.alloca_once_value(builder, I64(NO_MEMORY))

    def run(workspace: Any) -> None:
        rest = iter(ends)
        located = [builder.add(workspace, I64(next(rest))) if place is None else place for place in places]
        constants = [address(builder, array.ctypes.data) for array in code.constants]
        count = len(code.arguments)
        words = [*located[:count], *constants, *located[count:], workspace]
        words += [] if code.parts is None else [address(builder, code.parts.ctypes.data)]
        _run(builder, code, words, address, status)

    def spare() -> Any:
        return address(builder, _spares.setdefault((code, ends[-1]), np.zeros(1, np.int64)).ctypes.data)

    _with_workspace(builder, ends[-1], run, spare)
    return builder.load(status)


def _padded(size: int) -> int:
    return -size % ALIGNED + size


def _run(builder: Any, code: CompiledCode, words: list[Any], address: Address, status: Any) -> None:
    """Append the call itself, with a table of these words."""
    table = cgutils.alloca_once(builder, I64, size=len(words))
    for k, word in enumerate(words):
        builder.store(word, builder.gep(table, [I64(k)]))
    kind = ir.FunctionType(I64, [I64]).as_pointer()
    returned = builder.call(builder.inttoptr(address(builder, code.address), kind), [builder.ptrtoint(table, I64)])
    builder.store(builder.add(returned, I64(1)), status)


def _with_workspace(builder: Any, size: int, run: Callable[[Any], None], spare: Callable[[], Any]) -> None:
    """Append what ``run`` does with the address of ``size`` bytes."""
    if size <= SMALL:
        block = cgutils.alloca_once(builder, ir.IntType(8), size=max(size, 1))
        block.align = ALIGNED
        run(builder.ptrtoint(block, I64))
        return
    slot = builder.inttoptr(spare(), I64.as_pointer())
    raw = cgutils.alloca_once(builder, I64)
    builder.store(builder.atomic_rmw("xchg", slot, I64(0), "acq_rel"), raw)
    with builder.if_then(builder.icmp_unsigned("==", builder.load(raw), I64(0)), likely=False):
        allocate = external(builder, ir.FunctionType(I64, [I64]), "malloc")
        builder.store(builder.call(allocate, [I64(size + ALIGNED)]), raw)
    with builder.if_then(builder.icmp_unsigned("!=", builder.load(raw), I64(0)), likely=True):
        run(builder.and_(builder.add(builder.load(raw), I64(ALIGNED - 1)), I64(-ALIGNED)))
        other = builder.atomic_rmw("xchg", slot, builder.load(raw), "acq_rel")
        with builder.if_then(builder.icmp_unsigned("!=", other, I64(0)), likely=False):
            builder.call(external(builder, ir.FunctionType(ir.VoidType(), [I64]), "free"), [other])


@functools.cache
def flat_address(code: CompiledCode) -> int:
    """Return where the flat function begins: ``int64_t f(...)``, with a parameter for each of ``parameters_of``.

    Numbers come by value, arrays and results by address; it returns the status of ``emit_call``, and looks at no shape.
    """
    parameters = parameters_of(code)
    kinds = [p.number.llvm if p.by_value else POINTER for p in parameters]
    builder = _begun(I64, kinds)
    places = [
        builder.ptrtoint(cgutils.alloca_once_value(builder, argument) if p.by_value else argument, I64)
        for p, argument in zip(parameters, builder.function.args, strict=True)
    ]
    builder.ret(emit_call(builder, code, places))
    return _loaded(builder)


@functools.cache
def number_address(code: CompiledCode) -> tuple[int, bool]:
    """Return where the function begins that returns the value alone, nan if a guard misses; and whether it takes one.

    It is ``double f(double)`` of a program of one number, ``double f(int, double *)`` of several, or of a dense array
    of one dimension. TypeError for programs of other arguments, and those whose first output is no float64 number.
    """
    numbers = [spec.shape == () for spec in code.arguments]
    vector = len(numbers) == 1 and parameters_of(code)[0].is_dense and len(code.arguments[0].shape) == 1
    if any(spec.dtype != np.float64 for spec in (*code.arguments, *code.outputs[:1])) or not numbers:
        raise TypeError("a low-level callable takes and returns float64")
    if not (all(numbers) or vector) or code.outputs[0].shape != ():
        raise TypeError("a low-level callable takes numbers, or one dense array of one dimension, and returns a number")
    single = numbers == [True]
    builder = _begun(DOUBLE, [DOUBLE] if single else [I32, DOUBLE.as_pointer()])
    value = cgutils.alloca_once(builder, DOUBLE)
    builder.store(DOUBLE(float("nan")), value)
    if single:
        _emit_number(builder, code, cgutils.alloca_once_value(builder, builder.function.args[0]), value)
    else:
        count, elements = builder.function.args
        length = code.arguments[0].size if vector else len(numbers)
        with builder.if_then(builder.icmp_signed("==", count, I32(length)), likely=True):
            _emit_number(builder, code, elements, value)
    builder.ret(builder.load(value))
    return _loaded(builder), single


def _emit_number(builder: Any, code: CompiledCode, elements: Any, value: Any) -> None:
    """Append a call that gives ``value`` the first output, unless a guard misses."""
    count = len(code.arguments)
    places = [builder.ptrtoint(builder.gep(elements, [I64(k)]), I64) for k in range(count)]
    output = cgutils.alloca_once(builder, DOUBLE)
    unwanted = [None] * (len(code.outputs) - 1 + len(code.gradients))
    status = emit_call(builder, code, [*places, builder.ptrtoint(output, I64), *unwanted])
    with builder.if_then(builder.icmp_signed("==", status, I64(0)), likely=True):
        builder.store(builder.load(output), value)


def _begun(returned: Any, kinds: list[Any]) -> ir.IRBuilder:
    """Return the builder of a function, the only one of its module."""
    module = ir.Module("native_entry")
    module.triple = binding.get_process_triple()
    function = ir.Function(module, ir.FunctionType(returned, kinds), "entry")
    return ir.IRBuilder(function.append_basic_block("entry"))


def _loaded(builder: ir.IRBuilder) -> int:
    """Compile a function; return where its machine code begins, which is never freed."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
        opt=2, reloc="default", codemodel="jitdefault", jit=True
    )
    builder.module.data_layout = str(target.target_data)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(builder.module)), target)
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address("entry"))


_engines: list[Any] = []  # one for each function: an engine owns its target machine

# A compiled program as a function of ctypes: numbers by value, arrays and results by address.

_ADDRESSES = (int, ctypes.c_void_p, ctypes._Pointer, type(ctypes.byref(ctypes.c_int())))  # noqa: SLF001 (of pointers)


class PointerArgument:
    """What ctypes asks of an entry of ``argtypes``: it takes an array that fits, or an address as it is.

    TypeError, which ctypes makes an ArgumentError, for other arrays: of another dtype, shape or strides, or, for a
    result, read-only. An address is an int, a ``c_void_p``, a pointer of ctypes, or what its ``byref`` returns.
    """

    def __init__(self, parameter: CallParameter) -> None:
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


def misfit(parameter: CallParameter, value: Any, *, placed: bool = True) -> str:
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
    kinds: list[Any] = [p.number.ctype if p.by_value else ctypes.c_void_p for p in parameters]
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(flat_address(code))
    converters: list[Any] = [
        kind if p.by_value else PointerArgument(p) for p, kind in zip(parameters, kinds, strict=True)
    ]
    function.argtypes = converters
    return function


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

    def __init__(self, code: CompiledCode, parameters: Sequence[CallParameter]) -> None:
        self.code = code
        self.parameters = tuple(p for p in parameters if p.role != "output" or p.spec.shape)
        self.scalars = tuple(p for p in parameters if p.role == "output" and not p.spec.shape)
        self.everything = tuple(parameters)  # with those that are returned
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


def _array(parameter: CallParameter, value: Any) -> Any:
    """Return a number as an array, and an array for a result that is not wanted."""
    if value is None and parameter.role != "argument":
        return np.empty(parameter.spec.shape, parameter.spec.dtype)
    by_value = parameter.by_value and isinstance(value, (bool, int, float, np.number, np.bool_))
    return np.asarray(value, parameter.spec.dtype) if by_value else value


def _names(parameters: Sequence[CallParameter]) -> str:
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
            returned = types.Tuple((types.int64, *[p.number.numba for p in scalars]))
        return returned(*wanted), functools.partial(_emit, function)

    names = ["typingctx", *[p.name for p in parameters]]
    native.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return native


def _accepted(parameter: CallParameter, kind: Any) -> Any:
    """Return the type that an argument is cast to; TypingError if there is none."""
    spec, dtype = parameter.spec, parameter.number.numba
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
    places: dict[CallParameter, Any] = {}
    for k in reversed(range(len(args))):
        parameter, kind, value = function.parameters[k], signature.args[k], args[k]
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            places[parameter] = builder.ptrtoint(array.data, I64)
            fits = _fits(builder, parameter, kind, array)
            bad = bad if fits is None else builder.select(fits, bad, I64(-k - 1))
        elif kind != types.none:
            places[parameter] = _slot(context, builder, kind, value)
    kinds = [p.number.numba for p in function.scalars]
    nothing = [context.get_constant(kind, math.nan if kind in types.real_domain else 0) for kind in kinds]
    slots = [_slot(context, builder, kind, value) for kind, value in zip(kinds, nothing, strict=True)]
    places |= dict(zip(function.scalars, slots, strict=True))
    status = cgutils.alloca_once(builder, I64)
    builder.store(bad, status)
    words = [places.get(p) for p in function.everything]
    with builder.if_then(builder.icmp_signed("==", bad, I64(0)), likely=True):
        builder.store(emit_call(builder, function.code, words, functools.partial(_address, context)), status)
    values = [
        context.unpack_value(builder, kind, builder.inttoptr(slot, context.get_data_type(kind).as_pointer()))
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


def _fits(builder: Any, parameter: CallParameter, kind: Any, array: Any) -> Any:
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
