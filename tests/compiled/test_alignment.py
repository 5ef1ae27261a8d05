"""Memory of machine code begins where most vectors of its loops are in one line of the cache."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiled_code import ProgramText, begins_of
from kernels.compiler.compiling import Compilation
from kernels.compiler.storage import Element, Region


def diffused(u: Any) -> Any:
    for _ in range(20):
        u = tape.cat([u[:1], u[1:-1] + 0.2 * u[1:-1] * (u[2:] - u[:-2]), u[-1:]])
    return (u * u).sum()


@pytest.mark.quick
def test_inner_points_of_rows_begin_with_a_line() -> None:
    """Rows of whole lines are stored from the second element on: that one is the first of a line."""
    compilation = Compilation(tape.record(diffused, np.ones(256))._recipe, reverse=True)
    begins, size = compilation.storage.work()
    compilation.source()
    moved, larger = compilation.storage.work()
    assert any(moved[name] % 64 == 56 for name in begins)
    assert larger <= size + 64 * len(begins)
    ends = sorted((moved[region.name], region.size) for region in compilation.storage.regions if region.role == "work")
    assert all(begin + length <= after for (begin, length), (after, _) in pairwise(ends))


def element(name: str, constant: int, **steps: int) -> Element:
    """Return an element of eight bytes, by its number and multiples of indices."""
    terms = tuple([(index, 8 * step) for index, step in steps.items()])
    return Element(REGIONS.setdefault(name, Region(name, "work", 0, np.dtype(np.float64))), 8 * constant, terms)


REGIONS: dict[str, Region] = {}


@pytest.mark.quick
def test_what_counts() -> None:
    """Stores count more than loads, loops in loops of the program more than others; other strides do not."""
    text = ProgramText()

    def store(target: Element, value: Element) -> None:
        text.store(target, "=", f"{value}", value)

    text.loop("i1", 100)
    store(element("w1", 3, i1=1), element("a0", 0, i1=1))
    store(element("w5", 1, i1=2), element("a0", 0, i1=1))
    text.depth = 1
    text.opened("for k0 in range(count0):")
    text.loop("i2", 100)
    text.let("v1", "...", element("w1", 2, i2=1, k0=104), element("w2", 2, i2=1, k0=12))
    store(element("w3", 1, i2=1, k0=104), element("w3", 0, i2=1, k0=104))
    text.depth -= 1
    text.loop("i3j", 98, 2)
    text.moved("i3", "i3j", 1)
    store(element("d4", 0, k0=104, i3=1), element("d4", 0, i3j=1, k0=104))
    text.depth = 1
    text.loop("i4", 8)
    text.store(element("w6", 1, i4=1), "=", "0.0")
    assert begins_of(text.body) == {"w1": 48, "w3": 56, "d4": 56}
