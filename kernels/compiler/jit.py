"""The one door to the compiler: compile source, keep machine code, hand out addresses.

A native function belongs to a module that is named by the hash of all that its machine code depends on: printed
kernels (``load_source``) and the handwritten modules of this package (``load_module``). Under this name its machine
code is found again. Sources are not read from the cache: each process prints its own. They are translated straight to
LLVM (translation.py); where only their byte code is at hand, as in a frozen application, Numba compiles them.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import carray, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from kernels.compiler import progress_line
from kernels.compiler.cache_files import cache_folder, cached_kernels, clear_cache
from kernels.compiler.interrupts import held
from kernels.compiler.machine_code import KEEPER, Keeper, cfunc, njit
from kernels.compiler.module_texts import PACKAGE, code_of, content_of, digest
from kernels.compiler.native_units import FASTCALL, UNIT, Method, Native, Unit, builtin, machine
from kernels.compiler.progress_line import on_compile, set_quiet
from kernels.foundation.data_classes import dataclass
from kernels.foundation.locks import Lock

__all__ = [
    "NumbaError",
    "cache_folder",
    "cached_kernels",
    "carray",
    "cfunc",
    "clear_cache",
    "intrinsic",
    "njit",
    "on_compile",
    "set_quiet",
    "types",
]


@dataclass(frozen=True)
class Part:
    """One function of a module, for which some of the modules that this imports are others."""

    function: str
    instead: Mapping[str, Any]

    def imported(self, name: str, *how: Any, **named: Any) -> Any:
        """Import as Python does, or find what stands for a module here."""
        return self.instead[name] if name in self.instead else builtins.__import__(name, *how, **named)


SIGNATURE = types.void(types.CPointer(types.int64), types.CPointer(types.int64), types.int64)
"""Every kernel: layout, pointers (target, cotangent, saved ...), and 1 to accumulate or 0 to store."""

_lock = Lock(waited_for=True)
_loaded: dict[str, ModuleType] = {}


def load_source(label: str, text: str) -> ModuleType:
    """Return the module of a text, named by ``label`` and the hash of all that its machine code depends on."""
    return _load(label, text)


@functools.cache  # its name hashes all that it imports, and each new workspace asks for four
def load_module(name: str) -> ModuleType:
    """Return the compiled form of a handwritten module, by its name below ``kernels``: ``native.tape.tape_native``."""
    module = f"{PACKAGE}.{name}"
    return _load(name.rpartition(".")[2], content_of(module), module)


def load_function(name: str, function: str, label: str, instead: Mapping[str, Any]) -> Any:
    """Return one function of a handwritten module, compiled without the others.

    Where its source imports one of the modules ``instead``, it finds what stands for that here; ``label`` names these.
    """
    origin = f"{PACKAGE}.{name}"
    label = f"{function}_{label}_{name.rpartition('.')[2]}"
    return getattr(_load(label, content_of(origin), origin, Part(function, instead)), function)


def source_of(name: str) -> str:
    """Return the source of a handwritten module; "" where there is none."""
    try:
        content = content_of(f"{PACKAGE}.{name}")
    except ImportError:
        return ""
    return content if isinstance(content, str) else ""


def makes_native_code() -> bool:
    """Whether the sources of native code can be read; warn if they cannot, as in some frozen applications."""
    try:
        content_of(f"{PACKAGE}.sweeps.native.reverse_native")
    except ImportError as error:
        warnings.warn(f"gradients are computed in Python, slowly: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Around compiling that is not kept."""
    with _lock, held(), Keeper.loading():
        progress_line.began(name)
        yield


def entry(function: Any) -> Callable[..., Any]:
    """Return a compiled function as Python calls it best: Numba's dispatcher looks at the arguments' types anew."""
    (compiled,) = (function,) if isinstance(function, Native) else function.overloads.values()
    call: Callable[..., Any] = compiled.entry_point
    return call


@functools.cache
def address_of(function: Any) -> int:
    """Return where the machine code of a function of one word begins, as C calls it."""
    if not hasattr(function, "nopython_signatures"):  # one of ours, or without sources a cfunc of Numba's
        return int(function.address)
    (signature,) = function.nopython_signatures
    _callable.append(numba.cfunc(signature)(lambda word: function(word)))
    return int(_callable[-1].address)


_callable: list[Any] = []


def bound(module: str, name: str, self: Any, flags: int = 0) -> Callable[..., Any]:
    """Return native code that takes Python's objects, as METH_FASTCALL has it, as a function bound to ``self``."""
    return builtin(_method_at(module, name, flags), self)


@functools.cache
def _method_at(module: str, name: str, flags: int) -> Method:
    native = getattr(load_module(module), name)
    return Method(name.encode(), native.address, FASTCALL | flags, None)


def key_of(content: str | CodeType, module: str = "") -> str:
    """Return what names the machine code of a text: a hash of it, of all it imports, and of compiler and machine."""
    return hashlib.sha256(f"{_stamp()} {digest(content, module)}".encode()).hexdigest()[:24]


def _load(label: str, content: str | CodeType, origin: str = "", part: Part | None = None) -> ModuleType:
    """Return the module of a text; ``origin`` is the handwritten one that was compiled, whole or in part."""
    with _lock:  # Python's parser, which finds imports, has had a count that threads share
        name = f"{label}_{key_of(content, origin)}"
        module = _loaded.get(name)
        if module is None:
            with held():
                module = _loaded[name] = _executed(name, content, origin, part)
    return module


def _executed(name: str, content: str | CodeType, origin: str, part: Part | None) -> ModuleType:
    module = ModuleType(name)
    module.__dict__[KEEPER] = Keeper(name)
    if part is not None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": part.imported}
    if isinstance(content, str):
        module.__dict__[UNIT] = Unit(name, content, "" if part is None else part.function)
    sys.modules[name] = module  # Numba unpickles machine code by the module's name
    try:
        code = content if isinstance(content, CodeType) else code_of(origin) if origin else None
        code = code or compile(content, f"<{name}>", "exec")  # type: ignore[arg-type]
        with Keeper.loading():
            exec(code, module.__dict__)  # noqa: S102 (our own text)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, NumbaError) and isinstance(content, str):
            error.add_note(f"while this was compiled:\n{content}")
        raise
    return module


@functools.cache
def _stamp() -> str:
    versions = [module.__version__ for module in (numba, llvmlite, np)]
    chosen = [numba.config.CPU_NAME, numba.config.CPU_FEATURES]  # NUMBA_CPU_NAME, for what Numba compiles
    python = [platform.python_implementation(), sys.version, sys.abiflags if hasattr(sys, "abiflags") else ""]
    return repr([*versions, *python, object.__basicsize__, *chosen, machine()])
