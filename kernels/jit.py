"""The one door to Numba: compile source, cache machine code, hand out addresses.

Every native function lives in a real file named by the hash of its content in the user's cache folder, which is
where Numba can find its cached machine code again: printed kernels, and the handwritten modules of this package
(``load_module``). Code run through ``exec`` or closures over jitted functions would be compiled at every start.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from numba import carray, cfunc, njit, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

__all__ = ["NumbaError", "carray", "cfunc", "intrinsic", "njit", "types"]

SIGNATURE = types.void(types.CPointer(types.int64), types.CPointer(types.int64), types.int64)
"""Every kernel: layout, pointers (target, cotangent, saved ...), and 1 to accumulate or 0 to store."""

on_compile: list[Callable[[str], None]] = []
"""Called with a kernel's name before it is compiled for the first time on this machine."""

_lock = threading.RLock()
_loaded: dict[str, ModuleType] = {}
_folder: Path | None = None


def cache_folder() -> Path:
    """Return the folder of kernel sources and machine code, ``TAPE_CACHE_DIR`` or the user's cache folder.

    A folder that cannot be made or written is replaced by a temporary one, with one warning.
    """
    global _folder  # noqa: PLW0603 (chosen at the first use, once a process)
    if _folder is None:
        with _lock:
            _folder = _folder or _writable(_wanted_folder())
    return _folder


def _wanted_folder() -> Path:
    chosen = os.environ.get("TAPE_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "tape-autograd"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tape-autograd"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tape-autograd"


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        spare = Path(tempfile.mkdtemp(prefix="tape-autograd-"))
        warnings.warn(
            f"the kernel cache {folder} cannot be written ({error.strerror}); kernels are compiled anew in {spare}. "
            "Set TAPE_CACHE_DIR to a writable folder to keep them",
            RuntimeWarning,
            stacklevel=3,
        )
        return spare
    return folder


def cached_kernels() -> int:
    """Return the number of sources in the cache folder."""
    return sum(1 for _ in cache_folder().glob("*.py"))


def clear_cache() -> int:
    """Delete the kernels of the cache folder, and nothing else in it; return how many there were."""
    count = 0
    for source in cache_folder().glob("*_*.py"):
        for compiled in (source.parent / "__pycache__").glob(source.stem + "*"):
            compiled.unlink(missing_ok=True)
        source.unlink(missing_ok=True)
        count += 1
    return count


def load_source(label: str, text: str) -> ModuleType:
    """Import ``text`` from a file of the cache folder that is named by ``label`` and the hash of the content."""
    stamp = f"{numba.__version__} {sys.version_info[:2]} {_intrinsics()}"
    name = f"{label}_{hashlib.sha256((stamp + text).encode()).hexdigest()[:16]}"
    with _lock:
        module = _loaded.get(name)
        if module is None:
            module = _loaded[name] = _import(name, text)
    return module


def load_module(name: str) -> ModuleType:
    """Import the native twin of a handwritten module of this package, ``kernels/<name>.py``."""
    path = Path(__file__).with_name(f"{name}.py")
    return load_source(name, path.read_text(encoding="utf-8"))


def entry(function: Any) -> Callable[..., Any]:
    """Return a compiled function as Python calls it best: Numba's dispatcher looks at the arguments' types anew."""
    (compiled,) = function.overloads.values()
    call: Callable[..., Any] = compiled.entry_point
    return call


@functools.cache
def _intrinsics() -> str:
    """Return a stamp of what native sources import and Numba does not watch."""
    digest = hashlib.sha256()
    names = ["memory.py", "words.py", "jit.py", "cells_native.py"]
    for name in names + sorted(path.name for path in Path(__file__).parent.glob("vectormath*.py")):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def _import(name: str, text: str) -> ModuleType:
    path = cache_folder() / f"{name}.py"
    if not path.exists():
        for hook in on_compile:
            hook(name.rpartition("_")[0])
        _write(path, text)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load the kernel {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Numba unpickles cached code by module name
    spec.loader.exec_module(module)
    return module


def _write(path: Path, text: str) -> None:
    """Write atomically: another process may be compiling the same kernel."""
    handle, draft = tempfile.mkstemp(dir=path.parent, suffix=".draft")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.utime(draft, (0, 0))  # equal content, equal stamp: Numba's index stays good whichever process wins
    try:
        Path(draft).replace(path)
    finally:
        with contextlib.suppress(OSError):
            Path(draft).unlink()
