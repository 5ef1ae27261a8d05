"""``TAPE_DEBUG=1``: faults planted in the words of a tape, and around blocks of memory, are reported before a sweep."""

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.native import c_api

ROOT = Path(__file__).resolve().parents[2]
Fresh = Callable[..., subprocess.Popen[str]]
pytestmark = pytest.mark.skipif(not c_api.NATIVE, reason="there are no words in memory to check")

POOL = "from kernels.native import pool\n"
# A tape with arrays, doubles, views and writes, of which `at` and `put` read and change words.
GRAPH = """
import ctypes, numpy as np, tape, threading
from kernels.native import memory
from kernels.native.c_api import ArrayObject
from kernels.native.structs import GONE, Chunk, FormBlock, SweepHeader, TapeHeader
from kernels.native.pool import DamagedError
from kernels.calls.object_types import header_of
from kernels.sweeps import reverse
x = tape.tensor(np.linspace(0.5, 1.5, 8), requires_grad=True)
w = tape.tensor(1.5, requires_grad=True)
other = []
def elsewhere(): other.append(tape.sin(x) * 3.0)
thread = threading.Thread(target=elsewhere); thread.start(); thread.join()
u = x * 2.0
v = u[1:5]
u[0] = w * w
p = tape.sin(v) * tape.exp(v)
y = (p * p).sum() + (u * u).sum() + other[0].sum()
loss = y * w
entries = tape.tensors.modes.own_tape().entries
T = header_of(entries)
def at(address, k=0): return ctypes.c_int64.from_address(address + 8 * k).value
def put(address, k, value): memory.put(address, k, value)
words = at(T, TapeHeader.words)
def found(name, after=0):  # the last instruction of a name: where it begins, and its last word
    stop = len(entries)
    while stop:
        start, stop_, slot, operands, saved, form = entries.at(stop - 1)
        if form.name == name: return start, stop - 1
        stop = start
(sin, sin_last), (view, _), (root, root_last) = found("SinBackward0"), found("SliceBackward0"), found("MulBackward0")
chunk = at(at(T, TapeHeader.directory))
def sweep():
    try: return tape.autograd.grad(loss, (x, w), retain_graph=True)
    except DamagedError as error: print(error)
    else: raise SystemExit("nothing was said")
"""

FAULTS = {
    "a form's number": ("put(words, sin_last, 99999)", r"ends at word \d+: this word, its form, is 99999, no living"),
    "a negative number": ("put(words, sin_last, -3)", "its form, is -3, no living form's number"),
    "another form": ("put(words, sin_last, at(words, root_last))", "instruction MulBackward0 in words"),
    "the block of a form": (
        "put(at(memory.REGISTRY.forms, at(words, sin_last)), FormBlock.entries, 7)",
        "SinBackward0, whose block has been",
    ),
    "a slot of no tape": ("put(words, sin, 5)", r"SinBackward0 .*word \d+, its slot, is 5, not one of this tape"),
    "a slot twice": ("put(words, sin, at(words, root))", "SinBackward0 .*its slot, .* not below the next one's"),
    "a later operand": ("put(words, sin + 1, at(words, root))", "SinBackward0.* operand 0, .* not before the result's"),
    "an operand of no tape": ("put(words, sin + 1, 7)", "operand 0, is 7, no slot"),
    "a slot that is to come": (
        "put(words, sin + 1, (other[0]._slot | (1 << 40)))", "operand 0, .* a slot that its tape has not reached",
    ),
    "a leaf at no address": ("put(words, sin + 1, -16)", "operand 0, is -16, the address of no object"),
    "a leaf in the dark": ("put(words, sin + 1, -(1 << 46))", "operand 0, .* the address of no object"),
    "a leaf that is a list": ("keep = []; put(words, sin + 1, -id(keep))", "operand 0, .* the address of no leaf"),
    "no array": ("keep = []; put(words, sin + 2, id(keep))", "SinBackward0.* saved 'x', .* the address of no array"),
    "a saved null": ("put(words, sin + 2, 0)", "saved 'x', is 0, the address of no object"),
    "a saved number": ("put(words, sin + 2, 4711)", "saved 'x', is 4711, the address of no object"),
    "a shorter array": (
        "keep = np.ones(3); put(words, sin + 2, id(keep))", r"saved 'x', .* shape \(3,\), where the form has \(4,\)",
    ),
    "singles": (
        "keep = np.ones(4, np.float32); put(words, sin + 2, id(keep))", "saved 'x', .* of float32, .* has float64",
    ),
    "an operand of a new instruction": (
        "sweep(); z = tape.cos(x); put(at(T, TapeHeader.words), found('CosBackward0')[0] + 1, 7)",
        "CosBackward0.* is 7, no slot",
    ),
    "an operand of one that has moved": (
        """z = tape.cos(w); k = tape.tan(v) + 1.0; sweep(); before = found('TanBackward0')[0]; del z
tape.tensors.modes.own_tape().collect(); after = found('TanBackward0')[0]; print(before - after)
sweep(); put(at(T, TapeHeader.words), after + 1, 7)""",
        r"^[1-9]\d*\n.*TanBackward0.* is 7, no slot",
    ),
    "an array of old, sooner or later": (
        "put(at(at(words, sin + 2), ArrayObject.shape // 8), 0, 3)\nfor _ in range(len(entries) // 64 + 1): sweep()",
        r"saved 'x', .* shape \(3,\), where the form has \(4,\)",
    ),
    "a view's offset": ("put(words, view + 2, 800)", "saved 'offset', is 800, an offset out of a buffer of 64 bytes"),
    "the count of words": ("put(T, TapeHeader.size, at(T, TapeHeader.room) + 1)", "its header: .* words are used of"),
    "a word too few": ("put(T, TapeHeader.size, at(T, TapeHeader.size) - 1)", "the instruction that ends at word"),
    "the count of instructions": ("put(T, TapeHeader.count, 2)", "its header: 2 instructions, but there are"),
    "the tape's number": ("put(T, TapeHeader.number, at(T, TapeHeader.number) + 1)", "the registry has another tape"),
    "the next slot": ("put(T, TapeHeader.next, 1)", "its slot, .* not below the next one's"),
    "a chunk's sum": ("put(chunk, 1, 999)", "they are had by .* but the sum is 999"),
    "a chunk's start": ("put(chunk, 0, 3)", "says that they begin at word 3: it is word 0"),
    "a count below nothing": ("put(chunk, 2, -1)", "the count of slot"),
    "a slot called gone": (
        "k = loss._slot & 1023; c = ctypes.c_int32.from_address(chunk + Chunk.SIZE + 4 * k); c.value |= GONE",
        "is marked as gone, but its instruction is there",
    ),
    "behind the words": (
        "ctypes.memset(words + 8 * at(T, TapeHeader.room), 0, 1)",
        "a block of .* bytes .* has been written behind its end",
    ),
    "before a chunk": ("put(chunk, -1, 0)", "has been written before its beginning"),
    "behind the buckets": (
        "sweep(); s = reverse.workspace(); put(s.words[SweepHeader.buckets], 4 * s.bucket_room, 1)",
        "the sweep's buckets .* have been written behind its end",
    ),
    "behind a large array": (
        POOL + "keep = pool.call(np.ones, 9000); ctypes.memset(keep.ctypes.data + 72000, 1, 1)",
        "a block of 72000 bytes .* written behind its end",
    ),
}  # fmt: skip


EACH = """
import os
assert np.isfinite(sweep()[0].numpy()).all()
for name, (fault, _) in FAULTS.items():
    inward, outward = os.pipe()
    if not (child := os.fork()):
        os.dup2(outward, 1)
        exec(fault)
        sweep()
        sys.stdout.flush()
        os._exit(0)
    os.close(outward)
    printed[name] = os.fdopen(inward).read() + f" ({os.waitpid(child, 0)[1]})"
"""


@pytest.fixture(scope="module")
def reported() -> dict[str, str]:
    """Plant every fault in a process of its own, of which one has made the graph; return what each printed."""
    code = f"import sys\nFAULTS = {FAULTS!r}\nprinted = {{}}\n{GRAPH}{EACH}\nprint(repr(printed))"
    environment = {**os.environ, "TAPE_DEBUG": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True, timeout=300
    )
    assert not done.stderr, done.stderr
    printed: dict[str, str] = ast.literal_eval(done.stdout)
    return printed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_words_or_blocks_is_told(reported: dict[str, str], fault: str) -> None:
    pattern = FAULTS[fault][1]
    assert re.search(pattern, reported[fault]), reported[fault]
    assert reported[fault].endswith(" (0)")


ENDS = {
    "behind it": ("ctypes.memset(block.ctypes.data + 80000, 0, 4); del block", "80000 bytes .* written behind its end"),
    "before it": ("ctypes.memset(block.ctypes.data - 4, 0, 4); del block", "written before its beginning"),
    "after": (
        "place = block.ctypes.data; del block; ctypes.memset(place + 999, 0, 1); block = pool.call(np.ones, 10000)",
        "memory at .* of the pool has been written after it was given back",
    ),
    "the words of a tape": (
        "ctypes.memset(words + 8 * at(T, TapeHeader.room), 0, 1)\nfor _ in range(3000): y = y * w",
        "written behind its end",
    ),
}


@pytest.mark.parametrize("fault", ENDS)
def test_a_block_that_is_given_back_or_grows_ends_the_process(fresh: Fresh, fault: str) -> None:
    code, pattern = ENDS[fault]
    process = fresh(
        f"{GRAPH}{POOL}block = pool.call(np.ones, 10000)\n{code}",
        TAPE_DEBUG="1",
    )
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == -signal.SIGABRT
    assert re.search("TAPE_DEBUG: .*" + pattern, errors), errors
    assert 'File "<string>", line' in errors  # where it was


SOUND = """
import gc
for _ in range(3):
    x.grad = w.grad = None
    loss.backward(retain_graph=True)
    (g,) = tape.autograd.grad((tape.cos(x[::-2]) * w).sum(), x, create_graph=True)
    g.sum().backward()
    big = tape.tensor(np.linspace(0, 1, 30_000), requires_grad=True)
    b = big * 2.0
    for k in range(40): b[k:k + 9] *= w
    b.sum().backward()
    tape.vmap(lambda row: tape.sin(row).sum() * w)(x.reshape(2, 4)).sum().backward()
    tape.func.jvp(lambda a: (a * a * w).sum(), (x.detach(),), (x.detach(),))
    del b, big, g
    gc.collect()
np.testing.assert_allclose(w.grad.numpy(), w.grad.numpy())
print("sound")
"""


@pytest.mark.parametrize("plain", [False, True])
def test_what_is_sound_passes(fresh: Fresh, plain: bool) -> None:
    graph = GRAPH.partition("entries =")[0]
    process = fresh(graph + SOUND, TAPE_DEBUG="1", PYTHONMALLOC="debug", **({"TAPE_PLAIN": "1"} if plain else {}))
    printed, errors = process.communicate(timeout=300)
    assert (errors, printed, process.returncode) == ("", "sound\n", 0)


OFTEN = """
import numpy as np, tape
from kernels.sweeps import debug_checks
looked = 0
wrong = debug_checks._Checker._wrong
def counted(*given):
    global looked
    looked += 1
    return wrong(*given)
debug_checks._Checker._wrong = counted
x = tape.tensor(np.ones(3), requires_grad=True)
y = x
for _ in range(40):
    for _ in range(25): y = y * 0.99
    tape.autograd.grad(y.sum(), x, retain_graph=True)
print(1040 < looked < 4 * 1040)
for _ in range(200): tape.autograd.grad(y.sum(), x, retain_graph=True)
print(2000 < looked < 12000, looked)  # of 200,000
"""


def test_the_work_of_all_checks_is_linear(fresh: Fresh) -> None:
    process = fresh(OFTEN, TAPE_DEBUG="1")
    printed, errors = process.communicate(timeout=300)
    assert (printed.split()[:2], errors) == (["True", "True"], ""), printed


AGAIN = """
import gc, threading
import numpy as np, tape
kept = []
def first():
    x = tape.tensor(np.ones(3), requires_grad=True)
    y = x * x * x
    z = tape.exp(y)
    z.backward(tape.ones(3))
    kept.extend([y, z])
def second():
    x = tape.tensor(np.ones(3), requires_grad=True)
    y = x * x
    kept.clear()  # tensors of the tape that had this number before
    gc.collect()
    assert tape.autograd.grad(y.sum(), x)[0].tolist() == [2.0] * 3
    print(y._slot >> 44 == number)
for work in (first, second):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    number = kept[0]._slot >> 44 if kept else 0
    for one in tape.tensors.tapes.every(): one.collect()
    gc.collect()
"""


def test_tensors_of_a_tape_that_is_gone_are_not_counted_on_the_next_one(fresh: Fresh) -> None:
    process = fresh(AGAIN, TAPE_DEBUG="1")
    assert process.communicate(timeout=300) == ("True\n", "")


GUARDED = """
from llvmlite import binding
from kernels.native import pool
from kernels.native.pool import PoolWords
address = ctypes.cast(ctypes.pythonapi.PyMem_RawMalloc, ctypes.c_void_p).value
print(bool(pool._words(pool.linked())[PoolWords.guards]), binding.address_of_symbol("PyMem_RawMalloc") != address)
"""


def test_nothing_is_guarded_otherwise(fresh: Fresh) -> None:
    code = GRAPH.partition("entries =")[0] + "loss.backward()" + GUARDED
    for debug, guarded in (("", False), ("1", True)):
        assert fresh(code, TAPE_DEBUG=debug).communicate(timeout=300) == (f"{guarded} {guarded}\n", "")
