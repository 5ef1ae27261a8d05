"""Machine code for processors other than this one: with fewer features, of another kind; their keys differ."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kernels.language import jit

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Fresh

DEADLINE = 300  # seconds
SHOWN = """
import json, re
import numpy as np
from kernels.language import jit

assembly, made, optimized, loaded_as = [], {}, jit._optimized, jit._loaded_as

def shown(*module, **how):
    result = optimized(*module, **how)
    assembly.append(jit._target().emit_assembly(result.clone()))
    return result

def noted(label, text, module, maker):
    made[text] = label, maker
    return loaded_as(label, text, module, maker)

jit._optimized, jit._loaded_as = shown, noted
import tape

def f(x, a):
    for _ in range(20):
        x = x - 0.1 * tape.sin(x) * tape.exp(-x * x)
    return (a @ x).sum() + (x * x).sum()

def by_numpy(x, a):
    slope = np.ones_like(x)
    for _ in range(20):
        inner = 0.1 * np.exp(-x * x)
        slope *= 1 - inner * (np.cos(x) - 2 * x * np.sin(x))
        x = x - inner * np.sin(x)
    return (a @ x).sum() + (x * x).sum(), slope * (a.sum(0) + 2 * x)

x, a = np.linspace(-2, 2, 50), np.random.default_rng(0).normal(size=(50, 50))
called = tape.value_and_grad(f)
compiled = tape.compile(called, mode="max")
for function in (called, *[compiled] * 4):
    for found, want in zip(function(x, a), by_numpy(x, a), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-12)
assert "machine code: " in compiled.explain(), compiled.explain()
single = tape.tensor(x.astype(np.float32), requires_grad=True)
tape.log(single * single + 1).sum().backward()
np.testing.assert_allclose(single.grad.numpy(), 2 * x / (x * x + 1), rtol=1e-5, atol=1e-7)
"""
SMALL = r"""
beyond = set(re.findall(r"%[yz]mm\d+|\bvfn?m\w+|\bround[sp][sd]\b", "".join(assembly)))
print(json.dumps([len(assembly), sorted(beyond), jit.machine()]))
"""
ARM = """
from llvmlite import binding
from kernels.language import llvm_values
from kernels.native import threads

binding.initialize_all_targets()
binding.initialize_all_asmprinters()
triple = "aarch64-unknown-linux-gnu"
target = binding.Target.from_triple(triple).create_target_machine(
    cpu="generic", features="", opt=2, reloc="default", codemodel="jitdefault", jit=True
)
binding.get_process_triple, jit._target = lambda: triple, lambda: target
threads._IS_X86, llvm_values.FUSES, jit._cached = False, True, lambda name: b""
sources = []
jit._optimized = lambda module, **how: sources.append(str(module)) or shown(module, **how)
del assembly[:]
kinds = {maker(label).compiled()[18:20] for label, maker in made.values()}  # e_machine of ELF: 183 is AArch64
foreign = re.findall(r"llvm[.]x86[.\\w]*|\\basm (?:sideeffect )?", "".join(sources))
print(json.dumps([len(made), sorted(map(list, kinds)), foreign]))
"""
X86 = pytest.mark.skipif("x86_64" not in jit.machine(), reason="what is beyond SSE2 is told by names of x86-64")


def printed(fresh: Fresh, code: str, folder: Path, **environment: str) -> list[object]:
    """Return what code printed that ran in a process without a word on stderr."""
    process = fresh(code, TAPE_CACHE_DIR=str(folder), **environment)
    text, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    return list(json.loads(text))


@X86
@pytest.mark.parametrize(
    ("name", "features"),
    [("generic", ""), pytest.param("znver4", "-avx,-sse4.1", marks=pytest.mark.exhaustive)],
    ids=["plain", "masked"],
)
def test_a_processor_with_fewer_features(fresh: Fresh, tmp_path: Path, name: str, features: str) -> None:
    """Calls, a compiled loop with sines and exponentials, and a product are right, and their code asks for no more."""
    variables = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    count, beyond, machine = printed(fresh, SHOWN + SMALL, tmp_path, **variables)
    assert int(str(count)) > 10
    assert beyond == []
    assert repr((name, features))[1:] in str(machine)


@pytest.mark.exhaustive
def test_code_for_aarch64_is_made_of_what_it_has(fresh: Fresh, tmp_path: Path) -> None:
    """Each module that a program needed is compiled for that processor, and none asks for what only another has."""
    count, kinds, foreign = printed(fresh, SHOWN + ARM, tmp_path)
    assert int(str(count)) > 20
    assert (kinds, foreign) == ([[183, 0]], [])


@pytest.mark.quick
def test_keys_tell_processors_apart(fresh: Fresh, tmp_path: Path) -> None:
    """What a folder holds for one processor is not found by another, whose features a variable masks."""
    code = "import json\nfrom kernels.language import jit\nprint(json.dumps([jit.key_of('x')]))"
    machines = [("generic", ""), ("generic", "+avx"), ("haswell", "+avx"), ("generic", "+avx")]
    variables = [{"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features} for name, features in machines]
    *keys, again = [printed(fresh, code, tmp_path, **each)[0] for each in variables]
    assert len(set(keys)) == len(keys)
    assert again == keys[1]
