"""How native code calls a compiled program: its parameters, the instructions of a call, and flat functions of C.

Each call has its own table of addresses on the stack, and its own workspace: on the stack, or, from ``SMALL`` bytes on,
one block that calls hand to each other. Who comes while it is in use allocates one, so that any number of threads may
call, without the interpreter lock.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils

from kernels.foundation.specs import Spec, Strides, dense
from kernels.foundation.tables import dataclass
from kernels.native.memory import external
from kernels.programs.compiler.compiled_code import CompiledCode

Array = np.ndarray[Any, Any]

SMALL = 1 << 14
"""Bytes of workspace up to which it is on the stack."""
ALIGNED = 64
"""A workspace begins at a multiple of so many bytes."""
NO_MEMORY = -(1 << 30)
"""The status where memory was short."""
I32, I64, POINTER, DOUBLE = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer(), ir.DoubleType()
LLVM = {
    "float64": DOUBLE, "float32": ir.FloatType(), "int64": I64, "int32": I32, "bool": ir.IntType(8),
}  # fmt: skip
"""LLVM's types, by the names of dtypes."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """What a native function takes: a number, if it is an ``argument`` of no dimensions, or an address."""

    name: str
    spec: Spec
    strides: Strides
    """In bytes: those of the spec, or of a result, which is dense."""
    role: str
    """``argument``, ``output`` or ``gradient``."""

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


def parameters_of(code: CompiledCode, names: Sequence[str] = ()) -> list[Parameter]:
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
    unknown = {spec.dtype.name for spec in specs} - LLVM.keys()
    if unknown:
        raise TypeError(f"native code takes and returns {', '.join(LLVM)}, not {', '.join(sorted(unknown))}")
    parameters: list[Parameter] = []
    for name, spec, role in zip([*names, *outputs, *gradients], specs, roles, strict=True):
        strides = spec.strides if role == "argument" else dense(spec.shape, spec.dtype.itemsize)
        parameters.append(Parameter(_identifier(name, {p.name for p in parameters}), spec, strides, role))
    return parameters


def _identifier(name: str, taken: set[str]) -> str:
    """Return a name that C has, too, and nothing else has yet."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = f"x{plain}" if plain[:1].isdigit() or not plain else plain
    while plain in taken:
        plain += "_"
    return plain


Address = Callable[[Any, int], Any]
"""How an address of this process is printed: builder, address; a word."""


def constant_address(builder: Any, address: int) -> Any:
    """Return an address as it is; for code that is not kept."""
    del builder
    return I64(address)


def _spare(code: CompiledCode, size: int) -> Array:
    """Return the word that has the address of a block of so much memory that no call uses, or 0."""
    return _spares.setdefault((code, size), np.zeros(1, np.int64))


_spares: dict[tuple[CompiledCode, int], Array] = {}
"""For good: machine code, which is never freed, has their addresses."""


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

    _with_workspace(builder, ends[-1], run, lambda: address(builder, _spare(code, ends[-1]).ctypes.data))
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
    kinds = [LLVM[p.spec.dtype.name] if p.by_value else POINTER for p in parameters]
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


_engines: list[Any] = []
"""One for each function: an engine owns its target machine."""
