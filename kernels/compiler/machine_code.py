"""Numba's decorators, with machine code kept in files of ours: one a module, never read before it is checked."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numba
from numba.core import sigutils
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from kernels.compiler import cache_files, progress_line
from kernels.compiler.native_units import UNIT, Native

KEEPER = "__machine_code__"
"""The name, among a module's globals, of what keeps its machine code."""


def njit(signature: Any = None, *, cache: bool = False, **options: Any) -> Any:
    """Numba's ``njit``; with ``cache``, in a module that is loaded by name, machine code is kept."""
    if callable(signature):
        return numba.njit(signature)

    def decorated(function: Callable[..., Any]) -> Any:
        unit = function.__globals__.get(UNIT)
        if unit is not None:
            return Native(function, unit, signature, is_kernel=False)
        dispatcher = numba.njit(**options)(function)
        _keep(dispatcher, function, cache)
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorated


def cfunc(signature: Any, *, cache: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Numba's ``cfunc``; with ``cache``, in a module that is loaded by name, machine code is kept."""

    def decorated(function: Callable[..., Any]) -> Any:
        unit = function.__globals__.get(UNIT)
        if unit is not None:
            return Native(function, unit, signature, is_kernel=True)
        compiled = CFunc(function, sigutils.normalize_signature(signature), locals={}, options=options)
        _keep(compiled, function, cache)
        compiled.compile()
        return compiled

    return decorated


def _keep(compiled: Any, function: Callable[..., Any], cache: bool) -> None:
    keeper = function.__globals__.get(KEEPER) if cache else None
    if keeper is not None:
        compiled._cache = FunctionCode(keeper, function)  # noqa: SLF001 (what its enable_caching sets)


class Keeper:
    """The machine code of one module. While modules load, what was read is at hand; it is written when they have."""

    _depth = 0
    _touched: ClassVar[list[Keeper]] = []

    def __init__(self, name: str) -> None:
        self.name = name
        self.read: dict[str, bytes] | None = None
        self.made: dict[str, bytes] = {}
        self.announced = False

    @classmethod
    @contextmanager
    def loading(cls) -> Iterator[None]:
        """Around what may compile: under one lock, nested as modules load one another."""
        cls._depth += 1
        try:
            yield
        finally:
            cls._depth -= 1
            if not cls._depth:
                progress_line.ended()
                while cls._touched:
                    cls._touched.pop().settle()

    def find(self, key: str) -> bytes | None:
        """Return what is kept under a key."""
        if self.read is None:
            self.read = self._entries()
            self._touched.append(self)
        content = self.made.get(key) or self.read.get(key)
        self._rest()
        return content

    def missed(self) -> None:
        """Say that a function of this module is going to be compiled."""
        if self._depth and not self.announced:
            self.announced = True
            progress_line.began(self.name.rpartition("_")[0])

    def keep(self, key: str, content: bytes) -> None:
        """Keep something."""
        self.made[key] = content
        self._touched.append(self)
        self._rest()

    def _rest(self) -> None:
        if not self._depth:
            while self._touched:
                self._touched.pop().settle()

    def settle(self) -> None:
        """Write what is new, with what others may have written meanwhile, and hold nothing."""
        made, self.made, self.read, self.announced = self.made, {}, None, False
        if made:
            cache_files.write(self.name, pickle.dumps(self._entries() | made))

    def _entries(self) -> dict[str, bytes]:
        content = cache_files.read(self.name)
        return {} if content is None else pickle.loads(content)  # noqa: S301 (checked)


class FunctionCode(NullCache):
    """What Numba asks for the machine code of one function, by signature."""

    def __init__(self, keeper: Keeper, function: Callable[..., Any]) -> None:
        self.keeper = keeper
        self.name = f"{function.__qualname__} {function.__code__.co_firstlineno}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the function compiled for a signature; None if it is not kept, or if what is kept does not load."""
        target_context.refresh()
        content = self.keeper.find(f"{self.name} {sig}")
        if content is not None:
            try:
                return CompileResult._rebuild(target_context, *pickle.loads(content))  # noqa: S301, SLF001
            except Exception:  # noqa: BLE001, S110 (whatever it is, compiling helps)
                pass
        self.keeper.missed()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a function that was compiled, unless it holds addresses of this process."""
        if not data.library.has_dynamic_globals and not any(not lifted.can_cache for lifted in data.lifted):
            self.keeper.keep(f"{self.name} {sig}", dumps(data._reduce()))  # noqa: SLF001
