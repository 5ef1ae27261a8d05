"""Workspace that is used one after the other is the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiled_code import ProgramText, share_memory
from kernels.compiler.compiling import Compilation
from kernels.compiler.storage import Region
from kernels.machine_code.compiled_machine import CompiledMachine

FLOAT, INTEGER = np.dtype(np.float64), np.dtype(np.int64)


def layers(x: Any, w: Any) -> Any:
    """Products between loops, whose results and gradients need memory for a while."""
    for _ in range(4):
        x = tape.tanh(x @ w) + 0.5
    return (x * x).sum()


@pytest.mark.quick
def test_layers_share_memory() -> None:
    rng = np.random.default_rng(0)
    args = rng.normal(size=(90, 80)), 0.1 * rng.normal(size=(80, 80))
    expected = tape.value_and_grad(layers, argnums=(0, 1))(*args)
    compilation = Compilation(tape.record(layers, *args)._recipe, reverse=True, roll=False)
    machine = CompiledMachine(compilation.code())
    sizes = [region.size for region in compilation.storage.regions if region.role == "work"]
    assert machine.code.work < sum(sizes) + 64 * len(sizes)
    shared = [region for region in compilation.storage.regions if region.names]
    assert shared
    assert ", then " in compilation.listing()
    for _ in range(2):
        machine._work.memory[:] = 0xFF  # nan: nothing reads what nobody wrote
        value, *gradients = machine.whole(list(args))
        np.testing.assert_allclose(value, float(expected[0]), rtol=1e-12)
        for gradient, wanted in zip(gradients, expected[1], strict=True):
            np.testing.assert_allclose(gradient, np.asarray(wanted), rtol=1e-11, atol=1e-13)


def region(name: str, size: int, dtype: Any = FLOAT) -> Region:
    return Region(name, "work", 0, dtype, size)


@pytest.mark.quick
def test_what_is_in_use_is_not_shared() -> None:
    """Memory is in use throughout a loop that names it, and only memory of one dtype is the same."""
    text = ProgramText()
    text.opened("for i1 in range(9):")
    text.put("w1[i1] = 1.0")
    text.depth = 1
    text.opened("for k0 in range(9):")
    for index, line in (("i2", "w2[i2] = w1[i2]"), ("i3", "w3[i3] = w2[i3]")):
        text.opened(f"for {index} in range(9):")
        text.put(line)
        text.depth -= 1
    text.depth = 1
    text.put("w4[0] = 2.0", "q5[0] = 3", "w16[0] = w4[0]")
    many = 1 << 20
    regions = [*(region(f"w{k}", many + k) for k in (1, 2, 3, 4)), region("q5", many, INTEGER), region("w16", 8)]
    gone = share_memory(text.body, regions)
    assert gone == [regions[3]]
    assert regions[3].name == "w3"  # where its elements are now
    assert [line.text for line in text.body[-3:]] == ["w3[0] = 2.0", "q5[0] = 3", "w16[0] = w3[0]"]
    assert regions[2].size == many + 4
    assert regions[2].names == ["w4"]


@pytest.mark.quick
def test_the_smallest_that_fits_grows() -> None:
    many = 1 << 20
    text = ProgramText()
    text.put("w1[0] = 1.0", "w2[0] = 1.0", "w3[0] = w1[0] + w2[0]", "w4[0] = 1.0")
    regions = [region("w1", 9 * many), region("w2", many), region("w3", many), region("w4", 2 * many)]
    assert share_memory(text.body, regions) == [regions[3]]
    assert [each.size for each in regions[:3]] == [9 * many, 2 * many, many]
