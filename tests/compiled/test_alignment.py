"""Memory of machine code begins where most vectors of its loops are in one line of the cache."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.compiler.compiling import Compilation
from kernels.programs.printing.source_text import begins_of


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


@pytest.mark.quick
def test_what_counts() -> None:
    """Stores count more than loads, loops in loops of the program more than others; other strides do not."""
    lines = [
        "    for i1 in range(100):",
        "        w1[i1 + 3] = a0[i1]",
        "        w5[2 * i1 + 1] = a0[i1]",
        "    for k0 in range(count0):",
        "        for i2 in range(100):",
        "            v1 = w1[i2 + 104 * k0 + 2]",
        "            v2 = w2[i2 + 12 * k0 + 2]",
        "            w3[i2 + 104 * k0 + 1] = v1 + w3[i2 + 104 * k0]",
        "        for i3j in range(2, 98):",
        "            i3 = i3j - 1",
        "            d4[104 * k0 + i3] = d4[i3j + 104 * k0]",
        "    for i4 in range(8):",
        "        w6[i4 + 1] = 0.0",
    ]
    assert begins_of(lines) == {"w1": 48, "w3": 56, "d4": 56}
