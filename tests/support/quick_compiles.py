"""Machine code that is made by few of LLVM's passes: a tenth of the time, where what is tested is not LLVM."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import pytest

from kernels.compiler.compiling import Compilation
from kernels.language import jit

_MARK = "QUICK = True"
_QUICK = 4
"""Of so many programs one is optimised as it is for users."""


class MarkedCompilation(Compilation):
    """A program whose source has a line of its own, so that its machine code is kept apart from other."""

    mark = ""

    def _loaded(self, source: str) -> Any:
        return super()._loaded(f"{source}\n{self.mark}\n")


class QuickCompilation(MarkedCompilation):
    """A program whose source asks for few passes."""

    mark = _MARK


@functools.cache
def _target() -> Any:
    return jit.made_target(opt=1)


def honour_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs that ask for few passes compiled so."""
    compiled, optimized = jit.Unit.compiled, jit._optimized

    def compiled_as_asked(unit: jit.Unit) -> bytes:
        if _MARK not in unit.text:
            return compiled(unit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jit, "_optimized", lambda module, **_: optimized(module, few=True))
            patch.setattr(jit, "_target", _target)
            return compiled(unit)

    monkeypatch.setattr(jit.Unit, "compiled", compiled_as_asked)


def mark_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have most programs compiled by few passes, whoever compiles them."""
    honour_marks(monkeypatch)
    loaded = Compilation._loaded

    def marked(compilation: Compilation, source: str) -> Any:
        return loaded(compilation, f"{source}\n{_MARK}\n" if zlib.crc32(source.encode()) % _QUICK else source)

    monkeypatch.setattr(Compilation, "_loaded", marked)
