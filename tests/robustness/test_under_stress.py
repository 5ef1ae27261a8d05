"""Threads, asyncio, interrupts, re-entry and forks, in processes whose memory is watched: all numbers stay right.

Each runs two seconds; TAPE_STRESS_SECONDS=60 asks for a minute.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Fresh

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SECONDS = float(os.environ.get("TAPE_STRESS_SECONDS", "2"))
MEMORY = {
    "checked": {"PYTHONDEVMODE": "1", "PYTHONMALLOC": "debug", "TAPE_DEBUG": "1"},
    "poisoned": {"PYTHONDEVMODE": "1", "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "165"},
    "plain": {"PYTHONDEVMODE": "1", "PYTHONMALLOC": "debug", "TAPE_DEBUG": "1", "TAPE_PLAIN": "1"},
}

WORK = """
import asyncio, contextvars, gc, os, random, signal, sys, threading, time, traceback, warnings
import numpy as np, tape
SECONDS = {seconds}
X, W, H = np.linspace(0.5, 1.5, 12), 1.5, 1e-30

def loss_of(x, w, sin, exp, total):
    u = x * 1.0
    for _ in range(4):
        u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    y = u[:5] * w
    return total(u * u) + total(y * u[1:6]) - w**2 / 3.0 + exp(w) * total(sin(u[3:]))

def by_numpy(x, w):  # the gradient, by complex steps
    steps = 1j * H * np.eye(len(x) + 1)
    return np.array([loss_of(x + s[:-1], w + s[-1], np.sin, np.exp, np.sum).imag / H for s in steps])

def leaves():
    return tape.tensor(X, requires_grad=True), tape.tensor(W, requires_grad=True)

def loss(x, w):
    return loss_of(x, w, tape.sin, tape.exp, lambda v: v.sum())

EXPECTED = by_numpy(X, W)

def agrees(found, expected=EXPECTED):
    found = np.concatenate([found[0].numpy(), [found[1].item()]])
    # Not np.allclose: a collection in the middle of its errstate ends CPython 3.11 in ContextVar.set.
    return bool((np.abs(found - expected) <= 1e-12 * np.abs(expected) + 1e-13).all())

def once(x, w):
    value = loss(x, w)
    assert agrees(tape.autograd.grad(value, (x, w), retain_graph=True)), "autograd.grad"
    x.grad = w.grad = None
    value.backward()
    assert agrees((x.grad, w.grad)), "backward"

once(*leaves())
end = time.monotonic() + SECONDS
"""

PROGRAMS = {
    "threads that hand tensors to each other": """
sys.setswitchinterval(1e-5)
shared, handed, faults, rounds = tape.tensor(X, requires_grad=True), [], [], []

def work(k):
    try:
        rng, x, w = random.Random(k), *leaves()
        while time.monotonic() < end:
            value = loss(x + shared * 0.0, w)
            if handed and rng.random() < 0.3:
                value = value + rng.choice(handed).sum() * 0.0
            if len(handed) < 40:
                handed.append(x + 2.0)  # saves nothing: many may sweep it
            else:
                handed[rng.randrange(40)] = x[1:] + 2.0
            assert agrees(tape.autograd.grad(value, (x, w), retain_graph=rng.random() < 0.5))
            rounds.append(None)
            x, w = (x, w) if rng.random() < 0.9 else leaves()
    except BaseException:
        faults.append(traceback.format_exc())

threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not faults, faults[0]
done = len(rounds)
""",
    "asyncio with to_thread": """
sys.setswitchinterval(1e-5)
def swept(x, w, value):
    assert agrees(tape.autograd.grad(value, (x, w)))
    once(*leaves())

async def one():
    x, w = leaves()
    value = await asyncio.to_thread(loss, x, w)  # recorded there, in a copy of this context, and swept in another
    await asyncio.sleep(0)
    await asyncio.gather(asyncio.to_thread(swept, x, w, value), asyncio.to_thread(once, *leaves()))
    once(x, w)

async def main():
    count = 0
    while time.monotonic() < end:
        await asyncio.gather(*[one() for _ in range(8)])
        count += 8
    return count
done = asyncio.run(main(), debug=False)
""",
    "interrupts each half millisecond": """
def interrupt(number, frame):
    while frame is not None:
        if frame.f_code is once.__code__: raise KeyboardInterrupt
        frame = frame.f_back

sys.unraisablehook = id  # in C, where no interrupt is raised: Python cannot pass on what comes in a callback
signal.signal(signal.SIGALRM, interrupt)
x, w = leaves()
kept, done = loss(x, w), 0
while time.monotonic() < end:
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 5e-4), 5e-4)
    for _ in range(40):
        try:
            once(x, w)
            once(*leaves())
        except KeyboardInterrupt:
            done += 1
        assert tape.is_grad_enabled()
    signal.setitimer(signal.ITIMER_REAL, 0)
    once(x, w)
    once(*leaves())
    assert agrees(tape.autograd.grad(kept, (x, w), retain_graph=True))
    assert len(tape.tensors.modes.own_tape().entries) < 1_000_000
assert agrees(tape.autograd.grad(kept, (x, w)))
""",
    "finalizers, collections and signals that record and sweep": """
depth, done, faults = 0, 0, []
own = leaves()
def really():
    value = loss(*own)
    assert agrees(tape.autograd.grad(value, own))
    x, w = leaves()
    loss(x, w).backward()
    assert agrees((x.grad, w.grad))
    if random.random() < 0.1: tape.tensors.modes.own_tape().collect()

def inside():
    global depth, done
    if depth > 1: return
    depth += 1
    try:
        contextvars.Context().run(really)  # we may be where gradients are off
        done += 1
    except BaseException:
        faults.append(traceback.format_exc())
    finally:
        depth -= 1

class Cycle:
    def __init__(self): self.me = self
    def __del__(self):
        if not sys.is_finalizing(): inside()

def began(phase, info):
    if random.random() < 0.3: inside()

gc.set_threshold(40)
gc.callbacks.append(began)
signal.signal(signal.SIGALRM, lambda *_: inside())
x, w = leaves()
while time.monotonic() < end:
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 0.002))
    Cycle()
    once(x, w)
signal.setitimer(signal.ITIMER_REAL, 0)
gc.callbacks.clear()
assert not faults, faults[0]
""",
    "forks": """
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns where the parent has threads
running, faults, done = True, [], 0

def busy():
    x, w = leaves()
    try:
        while running: once(x, w)
    except BaseException:
        faults.append(traceback.format_exc())

def child(deep):
    once(x, w)
    assert agrees(tape.autograd.grad(kept, (x, w), retain_graph=True))
    thread = threading.Thread(target=once, args=leaves())
    thread.start()
    thread.join()
    if deep: forked(False)
    kept.backward()
    gc.collect()

def forked(deep):
    number = os.fork()
    if number == 0:
        code = 1
        try:
            child(deep)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(number, 0)[1] == 0

x, w = leaves()
kept = loss(x, w)
threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
while time.monotonic() < end and not faults:
    forked(done % 4 == 0)
    once(x, w)
    done += 1
running = False
for thread in threads: thread.join()
assert not faults, faults[0]
assert agrees(tape.autograd.grad(kept, (x, w)))
""",
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_stay_right(fresh: Fresh, program: str, memory: str) -> None:
    if "forks" in program and not hasattr(os, "fork"):
        pytest.skip("no fork here")
    if ("interrupts" in program or "signals" in program) and not hasattr(signal, "setitimer"):
        pytest.skip("no interval timer here")
    code = WORK.format(seconds=SECONDS) + PROGRAMS[program] + "\nprint(done)"
    process = fresh("import faulthandler\nfaulthandler.enable()\n" + code, **MEMORY[memory])
    printed, errors = process.communicate(timeout=120 + 10 * SECONDS)
    assert (errors, process.returncode) == ("", 0)
    assert int(printed) > 0


LONG = """
import resource
import numpy as np, tape
STEPS = {steps}
PUSHES = (0.05 * np.sin(0.3 * np.arange(STEPS))).tolist()

def pushed(x, v, k):
    for push in PUSHES:
        v = v - 0.01 * (k * x) + push
        x = x + 0.01 * v
    return x

def slices(u, c, _):
    for _ in range(STEPS):
        u = tape.cat([u[:1], u[1:-1] + c * (u[2:] - 2.0 * u[1:-1] + u[:-2]), u[-1:]])
    return (u * u).sum()

def ended(x, end, k):
    t = 0.0 * end
    while t < end:
        x, t = x - 0.001 * (k * x), t + 1.0
    return x

arguments = {{
    "pushed": (1.0, 0.0, 2.0),
    "slices": (np.linspace(0.0, 1.0, 5) ** 2, 0.3, 0.0),
    "ended": (1.0, STEPS - 0.5, 1e-3),
}}["{name}"]
lines = open("/proc/self/status").read().splitlines()
size = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (size + {limit}, size + {limit}))
both = tape.value_and_grad({name}, (0, 1, 2))
value, gradients = both(*arguments)
compiled = tape.compile(both, mode="max", check="never")
for _ in range({calls}):
    found, slopes = compiled(*arguments)
    np.testing.assert_allclose(found, value, rtol=1e-8)
    for a, b in zip(slopes, gradients):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9 * np.abs(b).max())
assert "machine code:" in compiled.explain(), compiled.explain()
"""
LONGEST = {"pushed": 100_000, "slices": 20_000, "ended": 20_000}
"""Steps that are recorded within a limit that dynamic mode keeps to for ten times as many."""
MILLION = pytest.param("pushed", 1_000_000, 8 << 30, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(("name", "steps", "limit"), [*[(k, n, 1 << 30) for k, n in LONGEST.items()], MILLION])
def test_long_loops_are_recorded_within_limited_memory(fresh: Fresh, name: str, steps: int, limit: int) -> None:
    process = fresh(LONG.format(name=name, steps=steps, limit=limit, calls=3 if limit > 1 << 30 else 5))
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output, errors) == (0, "", "")
