"""Lines of a program as the source of a native module: a function of pointers, read from a table of addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernels.programs.parts.part_text import IMPORTS

_MODULE = '''"""Compiled by tape-autograd: {title}."""

from __future__ import annotations

import math

import numpy as np

from kernels import vectormath
from kernels.codegen import accumulators
from kernels.native.memory import begin_of, bits_of, call_kernel, load_i8, pointer_b1{imports}
from kernels.native.memory import pointer_f4, pointer_f8, pointer_i8

MINUS_ZERO = -(1 << 63)
masked = range
CONTRACT = {contract}
NOALIAS = True
INTERLEAVE = True
{functions}

def program({pointers}):
{body}
    return -1


def run({signature}) -> Word:
    return program({addresses})
'''
_UNUSED = "unused", "unused_too", "unused_as_well"


def module_source(title: str, lines: Iterable[str], pointers: Mapping[str, str], *, contract: bool) -> str:
    """Return the source of a whole program; ``pointers`` are names, and how they are read from ``table``.

    ``contract``: whether products may be added to before they are rounded.
    """
    return _filled(title, lines, pointers, contract=contract)


def calling_source(
    title: str, lines: Iterable[str], pointers: Mapping[str, str], functions: Iterable[str], *, contract: bool
) -> str:
    """Return the source of a program that calls functions by their addresses; ``functions`` are such."""
    return _filled(title, lines, pointers, contract=contract, functions=functions, imports=IMPORTS)


def piece_source(lines: Iterable[str], pointers: Mapping[str, str], *, contract: bool) -> str:
    """Return the source of a piece of a program, which is called by its address."""
    return _filled("a piece of a program", lines, pointers, contract=contract, imports=IMPORTS, unused=_UNUSED)


def _filled(
    title: str,
    lines: Iterable[str],
    pointers: Mapping[str, str],
    *,
    contract: bool,
    functions: Iterable[str] = (),
    imports: str = "",
    unused: tuple[str, ...] = (),
) -> str:
    parameters = "table", *unused
    return _MODULE.format(
        title=title,
        contract=contract,
        imports=imports,
        functions="".join(functions),
        pointers=", ".join(pointers),
        body="\n".join(lines) or "    pass",
        signature=", ".join(f"{name}: Word" for name in parameters),
        addresses=", ".join(pointers.values()),
    )
