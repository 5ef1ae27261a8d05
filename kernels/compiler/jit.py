"""The one door to the compiler: compile source, keep machine code, hand out addresses.

A native function belongs to a module that is named by the hash of all that its machine code depends on: printed
kernels (``load_source``) and the handwritten modules of this package (``load_module``). Under this name its machine
code is found again. Sources are not read from the cache: each process prints its own. They are translated straight to
LLVM (translation.py).
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import hashlib
import importlib
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
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
from kernels.compiler.module_texts import PACKAGE, digest, text_of
from kernels.compiler.native_types import SIGNATURE
from kernels.compiler.native_units import FASTCALL, Method, Native, Unit, builtin, machine
from kernels.compiler.progress_line import on_compile, set_quiet
from kernels.foundation.data_classes import dataclass
from kernels.foundation.locks import Lock

__all__ = [
    "SIGNATURE",
    "NumbaError",
    "cache_folder",
    "cached_kernels",
    "carray",
    "clear_cache",
    "intrinsic",
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


_lock = Lock(waited_for=True)
_loaded: dict[str, SimpleNamespace] = {}


def load_source(label: str, text: str) -> SimpleNamespace:
    """Return what a text exports; it is named by ``label`` and the hash of all that its machine code depends on."""
    return _loaded_as(label, text, "", lambda name: _executed(name, text))


@functools.cache  # its name hashes all that it imports, and each new workspace asks for four
def load_module(name: str) -> SimpleNamespace:
    """Return what a handwritten module exports, by its name below ``kernels``: ``native.tape.tape_native``."""
    module = f"{PACKAGE}.{name}"
    text, names = text_of(module), vars(importlib.import_module(module))
    return _loaded_as(name.rpartition(".")[2], text, module, lambda full: Unit(full, text, names))


def load_function(name: str, function: str, label: str, instead: Mapping[str, Any]) -> Native:
    """Return one function of a handwritten module, compiled without the others.

    Where its source imports one of the modules ``instead``, it finds what stands for that here; ``label`` names these.
    """
    module = f"{PACKAGE}.{name}"
    text, label = text_of(module), f"{function}_{label}_{name.rpartition('.')[2]}"
    exported = _loaded_as(label, text, module, lambda full: _executed(full, text, Part(function, instead)))
    return getattr(exported, function)  # type: ignore[no-any-return]


@functools.cache
def makes_native_code() -> bool:
    """Whether the sources of native code can be read; warn once if they cannot, as in some frozen applications."""
    try:
        text_of(f"{PACKAGE}.sweeps.native.reverse_native")
    except ImportError as error:
        warnings.warn(f"gradients are computed in Python, slowly: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Around compiling by Numba, which is not kept."""
    with _lock, held():
        progress_line.began(name)
        try:
            yield
        finally:
            progress_line.ended()


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def callable_at(address: int) -> Any:
    """Return the kernel at an address: ``kernel(layout, pointers, accumulate)``, addresses and 0 or 1.

    Python calls it itself for large arrays, outside of sweeps and replays.
    """
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
    """Return what the unit of a text exports, which is made once; ``module``: the one whose text it is, if any."""
    with _lock:  # Python's parser, which finds imports, has had a count that threads share
        name = f"{label}_{key_of(text, module)}"
        exported = _loaded.get(name)
        if exported is None:
            with held():
                unit = made(name)
            exported = _loaded[name] = SimpleNamespace(**{native.function.__name__: native for native in unit.entries})
    return exported


def _executed(name: str, text: str, part: Part | None = None) -> Unit:
    """Return the unit of a text, whose names are its own."""
    names: dict[str, Any] = {"__name__": name}
    if part is not None:
        names["__builtins__"] = {**vars(builtins), "__import__": part.imported}
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), names)  # noqa: S102 (our own text)
    return Unit(name, text, names, "" if part is None else part.function)


@functools.cache
def _stamp() -> str:
    versions = [module.__version__ for module in (numba, llvmlite, np)]
    chosen = [numba.config.CPU_NAME, numba.config.CPU_FEATURES]  # NUMBA_CPU_NAME, for what Numba compiles
    python = [platform.python_implementation(), sys.version, sys.abiflags if hasattr(sys, "abiflags") else ""]
    return repr([*versions, *python, object.__basicsize__, *chosen, machine()])
