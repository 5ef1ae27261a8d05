"""Machine code of native modules: a module's source is translated, optimised and kept as one object file."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from llvmlite import binding

from kernels.compiler import cache_files, progress_line, translation
from kernels.compiler.interrupts import untraced
from kernels.compiler.lane_calls import keep_forms
from kernels.compiler.native_types import Signature, signature_of
from kernels.foundation.garbage_collector import uncollected
from kernels.foundation.locks import Lock

FASTCALL = 0x80
"""The flag of a method that takes the address and the count of its arguments."""
_MAGIC = b"object file\n"
_lock = Lock(waited_for=True)
API = {"PyErr_BadArgument", "PyErr_Occurred", "PyLong_AsLongLong", "PyLong_FromLongLong"}
"""The functions of CPython's C API that machine code calls, until their addresses are given."""


class Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


@functools.cache
def _maker() -> Any:
    """Return PyCFunction_NewEx: a prototype of ctypes is a cycle, so there is one."""
    address = ctypes.cast(ctypes.pythonapi.PyCFunction_NewEx, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(address)


def builtin(method: Method, self: Any = None) -> Callable[..., Any]:
    """Return the machine code of a method, which is to live as long, as a built-in function bound to ``self``."""
    _methods[ctypes.addressof(method)] = method
    function: Callable[..., Any] = _maker()(ctypes.addressof(method), self, None)
    return function


_methods: dict[int, Method] = {}
"""Method definitions that built-in functions refer to by address, kept alive."""


class Native:
    """A function of native source that is called from outside."""

    def __init__(self, function: Callable[..., Any], unit: Unit, signature: Signature) -> None:
        self.function, self.unit, self.signature = function, unit, signature
        self.symbol = f"{unit.name}.{function.__name__}"
        self._entry: Callable[..., Any] | None = None

    @property
    def address(self) -> int:
        """Where its machine code begins."""
        self.unit.load()
        return address_at(self.symbol)

    @property
    def entry_point(self) -> Callable[..., Any]:
        """The function as Python calls it, with integers."""
        if self._entry is None:  # no cached_property: before Python 3.12 it has a lock, which a fork may leave held
            self.unit.load()
            name, address = self.function.__name__.encode(), address_at(f"{self.symbol}.py")
            self._entry = builtin(Method(name, address, FASTCALL, None))
        return self._entry

    def __call__(self, *arguments: int) -> Any:
        """Call it, with integers; what is called often takes ``entry_point`` itself."""
        return self.entry_point(*arguments)


MOST_COPIES = 48
"""Calls of vector functions in a module up to which their instructions are copied to each, some 15 ms for one."""
FEW_PASSES = (
    "sroa",
    "simplify_cfg",
    "always_inliner",
    "sroa",
    "instruction_combine",
    "simplify_cfg",
    "global_dead_code_eliminate",
)
"""What is done to code without hot loops: within some percent as fast as -O1 makes it, in a seventh of the time."""


class Unit(translation.Source):
    """The functions of one native module, or one of them, compiled together when the first is wanted."""

    def __init__(self, name: str, text: str, names: dict[str, Any], only: str = "") -> None:
        super().__init__(name, text, names)
        self.loaded = False
        functions = [thing for thing in names.values() if self.has(thing) and only in ("", thing.__name__)]
        signatures = [(function, signature_of(function)) for function in functions]
        self.entries = [Native(function, self, signature) for function, signature in signatures if signature]

    def load(self) -> None:
        """Have the machine code in memory: from the cache, or compiled."""
        if self.loaded:
            return
        with _lock, untraced():
            if not self.loaded:
                kept = cache_files.read(self.name) or b""
                code = kept.removeprefix(_MAGIC)
                if code == kept:  # missing, or written by something else: LLVM does not check what it loads
                    code = self._announced()
                    cache_files.write(self.name, _MAGIC + code)
                holder = engine()
                while API:
                    name = API.pop()
                    binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
                holder.add_object_file(binding.ObjectFileRef.from_data(code))
                holder.finalize_object()
                self.loaded = True

    @property
    def _is_control(self) -> bool:
        """Whether the module says ``CONTROL = True``: few passes do, but for its loops over elements."""
        return bool(self.names.get("CONTROL", False))

    def _announced(self) -> bytes:
        progress_line.began(self.name.rpartition("_")[0])
        try:
            with uncollected():  # nothing of what a translation builds is garbage before its end: a tenth of the time
                return self.compiled()
        finally:
            progress_line.ended()

    def compiled(self) -> bytes:
        """Return the object file of the functions that have signatures."""
        calls = self.text.count("vectormath.") > MOST_COPIES
        module = translation.Module(self.name, control=self._is_control, calls=calls)
        for native in self.entries:
            module.export(native)
        if module.control:
            module.mark_inline()
        parsed = _optimized(module.ir, few=module.control)
        if module.loops.functions:
            parsed.link_in(_optimized(module.loops, few=False))
        code: bytes = _target().emit_object(parsed)
        self.trees = {}  # those of programs are large, and nobody calls what is in these
        return code


def _optimized(module: Any, *, few: bool) -> Any:
    module.triple, module.data_layout = binding.get_process_triple(), str(_target().target_data)
    has_forms = keep_forms(module)
    parsed = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    passes = binding.create_pass_builder(_target(), options)
    manager = binding.create_new_module_pass_manager() if few else passes.getModulePassManager()
    for name in FEW_PASSES if few else ():
        getattr(manager, f"add_{name}_pass")()
    manager.run(parsed, passes)
    if has_forms:
        inlining = binding.create_new_module_pass_manager()
        inlining.add_always_inliner_pass()
        inlining.add_simplify_cfg_pass()
        inlining.run(parsed, passes)
    return parsed


def address_at(symbol: str) -> int:
    """Return where a symbol of a loaded unit is."""
    with _lock:
        return int(engine().get_function_address(symbol))


def machine() -> str:
    """Return what machine code is made for: the processor and its features."""
    return repr((binding.get_process_triple(), *_processor()))


@functools.cache
def _processor() -> tuple[str, str]:
    features = binding.get_host_cpu_features().flatten()
    if "+avx512f" in features:  # LLVM would keep to half a register: exp takes 1.8 ns an element so, 1.1 with all of it
        features += ",-prefer-256-bit"
    return binding.get_host_cpu_name(), features


def made_target(opt: int = 3) -> Any:
    """Return a new target: the processor, with so much work on the last passes."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name, features = _processor()
    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(
        cpu=name, features=features, opt=opt, reloc="default", codemodel="jitdefault", jit=True
    )


@functools.cache
def _target() -> Any:
    return made_target()


@functools.cache
def engine() -> Any:
    """Return the LLVM engine, which is never freed, since objects may be deallocated last; it owns its target."""
    holder = binding.create_mcjit_compiler(binding.parse_assembly(""), made_target())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
    return holder
