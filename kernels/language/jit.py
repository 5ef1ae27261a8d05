"""Native code of this process: units of compiled functions, and the functions that Python and native code call."""

from __future__ import annotations

import builtins
import ctypes
import functools
import hashlib
import importlib
import inspect
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba import carray, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from kernels.foundation.tables import Lock, dataclass, uncollected
from kernels.language import cache_files, statements
from kernels.language.cache_files import (
    PACKAGE,
    cache_folder,
    cached_kernels,
    clear_cache,
    digest,
    held,
    on_compile,
    set_quiet,
    text_of,
    untraced,
)
from kernels.language.lanes import keep_forms
from kernels.language.llvm_values import SIGNATURE, NativeSignature, processor, signature_of

FASTCALL = 0x80  # the flag of a method that takes the address and the count of its arguments
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
    """Return the machine code of a method as a built-in function bound to ``self``.

    The method is never released: the interpreter's last collection reads those of functions that are still there.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    function: Callable[..., Any] = _maker()(ctypes.addressof(method), self, None)
    return function


class Native:
    """A function of native source that is called from outside."""

    def __init__(self, function: Callable[..., Any], unit: Unit, signature: NativeSignature) -> None:
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
    "sroa", "simplify_cfg", "always_inliner", "sroa", "instruction_combine", "simplify_cfg",
    "global_dead_code_eliminate",
)  # fmt: skip
"""What is done to code without hot loops: within some percent as fast as -O1 makes it, in a seventh of the time."""


class Unit(statements.Source):
    """The functions of one native module, or one of them, compiled together when the first is wanted."""

    def __init__(
        self, name: str, text: str, names: dict[str, Any], only: str = "", *, mixed: bool = False, code: bytes = b""
    ) -> None:
        super().__init__(name, text, names)
        self.loaded, self._code = False, code
        functions = [thing for thing in names.values() if self.has(thing) and only in ("", thing.__name__)]
        signatures = [(function, signature_of(function, mixed=mixed)) for function in functions]
        self.entries = [Native(function, self, signature) for function, signature in signatures if signature]

    def load(self) -> None:
        """Have the machine code in memory: from the cache, or compiled."""
        if self.loaded:
            return
        with _lock, untraced():
            if not self.loaded:
                code, self._code = self._code or _cached(self.name), b""
                if not code:
                    # nothing of what a translation builds is garbage before its end: a tenth of the time
                    with cache_files.announced(self.name.rpartition("_")[0]), uncollected():
                        code = self.compiled()
                    cache_files.write(self.name, _MAGIC + code)
                holder = engine()
                while API:
                    name = API.pop()
                    binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
                holder.add_object_file(binding.ObjectFileRef.from_data(code))
                holder.finalize_object()
                self.loaded = True

    def compiled(self) -> bytes:
        """Return the object file of the functions that have signatures."""
        calls = self.text.count("vectormath.") > MOST_COPIES
        control = bool(self.names.get("CONTROL"))  # few passes do, but for its loops over elements
        module = statements.NativeModule(self.name, control=control, calls=calls)
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


def _cached(name: str) -> bytes:
    """Return the object file of a name; nothing if it is missing, or was written by something else.

    LLVM does not check what it loads.
    """
    kept = cache_files.read(name) or b""
    return kept.removeprefix(_MAGIC) if kept.startswith(_MAGIC) else b""


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
    return repr((binding.get_process_triple(), *processor()))


def made_target(opt: int = 3) -> Any:
    """Return a new target: the processor, with so much work on the last passes."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name, features = processor()
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


# A native function belongs to a module that is named by the hash of all that its machine code depends on: printed
# kernels (``load_source``) and the handwritten modules of this package (``load_module``). Under this name its machine
# code is found again. Sources are not read from the cache: each process prints its own.

__all__ = [
    "SIGNATURE", "NumbaError", "cache_folder", "cached_kernels", "carray", "clear_cache", "intrinsic", "on_compile",
    "set_quiet", "types",
]  # fmt: skip


def named_intrinsic(name: str, count: int, typed: Callable[..., Any]) -> Any:
    """Return Numba's intrinsic of a name and so many operands; ``typed(context, *types)``: signature and code."""
    names = [inspect.Parameter(f"x{k}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in range(count + 1)]
    typed.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    typed.__name__ = typed.__qualname__ = name
    return intrinsic(typed)


@dataclass(frozen=True)
class FunctionPart:
    """One function of a module, for which some of the modules that this imports are others."""

    function: str
    instead: Mapping[str, Any]

    def imported(self, name: str, *how: Any, **named: Any) -> Any:
        """Import as Python does, or find what stands for a module here."""
        return self.instead[name] if name in self.instead else builtins.__import__(name, *how, **named)


_loaded: dict[str, SimpleNamespace] = {}


def load_source(label: str, text: str) -> SimpleNamespace:
    """Return what a text exports; it is named by ``label`` and the hash of all that its machine code depends on."""
    return _loaded_as(label, text, "", lambda name: _executed(name, text))


@functools.cache  # its name hashes all that it imports, and each new workspace asks for four
def load_module(name: str) -> SimpleNamespace:
    """Return what a handwritten module exports, by its name below ``kernels``: ``native.tape_native``.

    A file whose name does not end so has Python's functions besides native ones.
    """
    module, mixed = f"{PACKAGE}.{name}", not name.endswith("_native")
    text, names = text_of(module), vars(importlib.import_module(module))
    return _loaded_as(name.rpartition(".")[2], text, module, lambda full: Unit(full, text, names, mixed=mixed))


def load_function(name: str, function: str, label: str, instead: Mapping[str, Any]) -> Native:
    """Return one function of a handwritten module, compiled alone; ``instead`` stands for modules that it imports."""
    module = f"{PACKAGE}.{name}"
    text, label = text_of(module), f"{function}_{label}_{name.rpartition('.')[2]}"
    exported = _loaded_as(label, text, module, lambda full: _executed(full, text, FunctionPart(function, instead)))
    return getattr(exported, function)  # type: ignore[no-any-return]


@functools.cache
def makes_native_code() -> bool:
    """Whether the sources of native code can be read; warn once if they cannot, as in some frozen applications."""
    try:
        text_of(f"{PACKAGE}.sweeps.sweep_native")
    except ImportError as error:
        warnings.warn(f"gradients are computed in Python, slowly: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Around compiling by Numba, which is not kept."""
    with _lock, held(), cache_files.announced(name):
        yield


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


@functools.lru_cache(1 << 10)
def callable_at(address: int) -> Any:
    """Return the kernel at an address, which Python calls with addresses: ``kernel(layout, pointers, accumulate)``."""
    return _KERNEL(address)


def bound(module: str, name: str, self: Any, flags: int = 0) -> Callable[..., Any]:
    """Return native code that takes Python's objects, as METH_FASTCALL has it, as a function bound to ``self``."""
    return builtin(_method_at(module, name, flags), self)


@functools.cache
def _method_at(module: str, name: str, flags: int) -> Method:
    native = getattr(load_module(module), name)
    return Method(name.encode(), native.address, FASTCALL | flags, None)


def key_of(content: str, module: str = "") -> str:
    """Return what names the machine code of a text: a hash of it, of all it imports, and of compiler and machine."""
    return hashlib.sha256(f"{_stamp()} {digest(content, module)}".encode()).hexdigest()[:24]


def _loaded_as(label: str, text: str, module: str, made: Callable[[str], Unit]) -> SimpleNamespace:
    with _lock:  # Python's parser, which finds imports, has had a count that threads share
        name = f"{label}_{key_of(text, module)}"
        exported = _loaded.get(name)
        if exported is None:
            with held():
                unit = made(name)
            exported = _loaded[name] = SimpleNamespace(**{native.function.__name__: native for native in unit.entries})
    return exported


_BODY = re.compile(r"^(def .*:)\n(?:(?:[ \t].*)?\n)+", re.MULTILINE)


def _executed(name: str, text: str, part: FunctionPart | None = None) -> Unit:
    """Return the unit of a text. Where its machine code is in the cache, nobody asks what its functions do."""
    names, code = dict[str, Any]({"__name__": name}), _cached(name)
    if part is not None:
        names["__builtins__"] = {**vars(builtins), "__import__": part.imported}
    shown = _BODY.sub(r"\1 pass\n", text) if code else text
    try:
        exec(compile(shown, f"<{name}>", "exec", dont_inherit=True), names)  # noqa: S102 (our own text)
    except ImportError as error:  # a module that only printed text names, which tools that freeze do not see
        raise cache_files.unreadable(str(error)) from error
    return Unit(name, text, names, "" if part is None else part.function, code=code)


@functools.cache
def _stamp() -> str:
    versions = [module.__version__ for module in (numba, llvmlite, np)]
    python = [platform.python_implementation(), sys.version, sys.abiflags if hasattr(sys, "abiflags") else ""]
    return repr([*versions, *python, object.__basicsize__, machine()])
