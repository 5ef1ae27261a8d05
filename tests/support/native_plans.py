"""Compiled functions whose calls native code makes: given machine code by hand, and called until there is a plan."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.compiler.compiled_code import CompiledCode
from kernels.machine_code.compiled_machine import CompiledMachine


def installed(f: Any, code: CompiledCode, *, reverse: bool = False, which: int = 0, guards: Any = ()) -> Any:
    """Give a program of a compiled function machine code; its next call makes a plan."""
    p = f.programs[which]
    machine = CompiledMachine(code, exactly=p._exactly, guards=guards)
    if machine.words is None:
        pytest.skip("calls are guarded")
    p._due.pop(reverse, None)
    p._first[reverse] = machine
    p._machines[reverse][:] = [machine]
    return f


def settled(f: Any, *args: Any) -> Any:
    """Make calls until they are native."""
    for _ in range(2):
        f(*args)
    assert f._plans
    return f
