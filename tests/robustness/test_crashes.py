"""What once killed the interpreter, or left it damaged: each in a process of its own, with freed memory overwritten."""

from __future__ import annotations

import contextlib
import contextvars
import enum
import gc
import itertools
import linecache
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Elementwise
from kernels.native.structs import TAPE_BITS
from kernels.operations import OPS
from kernels.sweeps import reverse
from tape.recording.record import locate
from tape.tensors import modes
from tape.tensors.tensor import new
from tests.support.representatives import few, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Fresh

native = pytest.mark.skipif(not reverse.NATIVE, reason="this interpreter's memory cannot be read")
PERTURBED = {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"}


def lives(fresh: Fresh, code: str, **environment: str) -> str:
    """Run code in a process of its own, which must end well; return what it prints."""
    process = fresh("import faulthandler; faulthandler.enable()\n" + code, **environment)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-3000:]
    return out


# --- integers of a tape ---------------------------------------------------------------------------------------------

SLICES = """
import numpy as np, tape
p = tape.tensor(np.ones(152), requires_grad=True)
a, b, c = p[:1], p[50:51], p[51:]
for _ in range(1000):
    (g,) = tape.autograd.grad(b * 2, p, tape.ones(1))
    assert g[50] == 2 and g.sum() == 2
x = tape.ones(5000, 2).requires_grad_()
for _ in range(TIMES):
    y = x * 2.0
    y.unbind(0)[10].sum().backward()
assert x.grad[10].tolist() == [2.0 * TIMES] * 2 and x.grad.sum() == 4.0 * TIMES
"""
SOLVER = """
import numpy as np, scipy.optimize, tape
A = np.random.default_rng(0).normal(size=(30, 12))
def f(p):
    w = [p[i : i + 4].reshape(2, 2) for i in range(0, 12, 4)]
    y = tape.cat([v.reshape(4) for v in w])
    for i in range(12):
        y = y + p[i] * p[i : i + 1]
    return ((tape.tensor(A) @ y - 1.0) ** 2).sum() + tape.exp(-y).sum()
fit = scipy.optimize.minimize(tape.value_and_grad(f), np.full(12, 0.1), jac=True, options={"maxiter": 40})
gradient = scipy.optimize.approx_fprime(fit.x, lambda p: float(f(tape.tensor(p))), 1e-6)
assert np.abs(gradient).max() < 1e-2, gradient
"""


@pytest.mark.parametrize("code", few([SOLVER, f"TIMES = 8{SLICES}", f"TIMES = 50{SLICES}"], 2))
def test_slices_of_one_vector_in_a_loop(fresh: Fresh, code: str) -> None:
    lives(fresh, code, **PERTURBED)


# --- what pullbacks keep --------------------------------------------------------------------------------------------


class Level(enum.IntEnum):
    """An integer by another name."""

    ONE = 1


class Half(float):
    """A float by another name."""


NUMBERS = [True, False, np.True_, Level.ONE, Half(0.5), np.float32(0.5), np.int64(1), np.float64(0.5), np.array(1)]
FORMS = sorted(
    name
    for name, op in OPS.items()
    if isinstance(op, Elementwise) and len(op.inputs) > 1 and op.differentiable and not op.condition
    if callable(getattr(tape, name, None))
)


def _called(name: str, given: Any, place: int) -> tuple[Any, Any]:
    """Return an operation's operand that requires grad, and its result, with a number for the other operands."""
    x = tape.tensor([0.3, 0.5, 0.7], requires_grad=True)
    count = len(OPS[name].pullback)  # type: ignore[attr-defined]
    return x, getattr(tape, name)(*[x if at == place else given for at in range(count)])


def _gradient(x: Any, y: Any) -> Any:
    """Return the gradient, by way of what the tape keeps, without kernels; None where there is none."""
    if not y.requires_grad:
        return None
    found = locate(y._slot)
    assert found is not None
    assert all(type(value) in (float, np.ndarray) for value in found.saved), found.saved
    return tape.autograd.grad(y.sum(), x, create_graph=True, materialize_grads=True)[0].tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMS)
def test_numbers_of_any_kind_are_kept_as_arrays_or_floats(name: str) -> None:
    forms = itertools.product(NUMBERS, range(len(OPS[name].pullback)))  # type: ignore[attr-defined]
    for number, place in forms:
        try:
            expected = _gradient(*_called(name, float(number), place))
            found = _gradient(*_called(name, number, place))
        except (TypeError, RuntimeError):  # takes no number there, or no difference of NumPy's bools
            continue
        assert found == pytest.approx(expected, nan_ok=True), (number, place)


BOUNDS: dict[str, Any] = {
    "where, a bool for a mask": (lambda x, one: tape.where(bool(one), x * x, x), [2.0, 4.0]),
    "where, bools to choose": (lambda x, one: tape.where(x > 1.5, one, x), [1.0, 0.0]),
    "clamp": (lambda x, one: x.clamp(one, 5), [1.0, 1.0]),
    "clamp above": (lambda x, one: x.clamp(max=one), [1.0, 0.0]),
    "lerp": (lambda x, one: tape.lerp(x, x * 3, one), [3.0, 3.0]),
    "addcmul": (lambda x, one: tape.addcmul(x, x, x, value=one), [3.0, 5.0]),
    "mul_": (lambda x, one: (x * 1.0).mul_(one), [1.0, 1.0]),
    "div_": (lambda x, one: (x * 1.0).div_(one), [1.0, 1.0]),
    "pow": (lambda x, one: x**one, [1.0, 1.0]),
    "rpow": (lambda x, one: one**x, [0.0, 0.0]),
    "rdiv": (lambda x, one: one / x, [-1.0, -0.25]),
    "heaviside": (lambda x, one: x * tape.heaviside(x, tape.tensor(float(one))), [1.0, 1.0]),
    "vmap": (lambda x, one: tape.func.vmap(lambda v: v * one / one)(x), [1.0, 1.0]),
}


@pytest.mark.parametrize("one", [True, np.True_, Level.ONE])
@pytest.mark.parametrize("case", BOUNDS)
@pytest.mark.parametrize("ways", ["swept", "recorded", "program"])
def test_bools_as_bounds_weights_and_factors(case: str, one: Any, ways: str) -> None:
    function, expected = BOUNDS[case]
    if ways == "program":
        if case == "vmap":
            pytest.skip("programs do not map")
        given = np.array([1.0, 2.0])
        program = tape.record(lambda x: function(x, one).sum(), given)
        assert program.value_and_grad(given)[1][0].tolist() == expected
        return
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    (g,) = tape.autograd.grad(function(x, one).sum(), x, create_graph=ways == "recorded")
    assert g.tolist() == expected


STRANGE = """
import numpy as np
import tape
from kernels.kinds.reference_tape import saved_arrays
x, y = tape.tensor([1.0, 2.0], requires_grad=True), tape.tensor([3.0, 4.0])
product, scaled = x * y, (x[0] * 1.0) * 2.0
own = tape.tensors.modes.own_tape()
before = own.entries.count
array, number = product._form.code, scaled._form.code
result, slots, values = tape.ones(2), (x._slot, None), (y._value,)
calls = [(result, array, slots, (strange,)) for strange in (True, 3, 2.5, "text", None, object(), [1.0])]
doubles = True, 3, "text", None, object(), np.ones(2), np.ones(()).astype("f4")
calls += [(result, number, slots, (strange,)) for strange in doubles]
calls += [(strange, array, slots, values) for strange in (None, 3, object(), "text")]
calls += [(result, strange, slots, values) for strange in (-1, 1 << 40, 1 << 70, None, 2.0, True)]
operands = None, (), (x._slot,), [x._slot, None], (-5, None), (1 << 70, None)
calls += [(result, array, strange, values) for strange in operands]
calls += [(result, array, slots, strange) for strange in (None, (), values * 2, list(values))]
calls += [(), (result,), (result, array, slots), (result, array, slots, values, None)]
for given in calls:
    try:
        own.record(*given)
    except (TypeError, OverflowError, SystemError) as error:
        continue
    raise AssertionError(given)
names = "at", "operand", "form", "find", "kept", "replace", "collect", "remove", "notify"
for function in (*[getattr(own.entries, name) for name in names], *saved_arrays(own.entries)):
    for given in ((), (-1,), (None,), (1 << 40,), (1 << 70,), (0.5,), (True, True), ("a",) * 5):
        try:
            function(*given)
        except (TypeError, OverflowError, SystemError):
            pass
assert own.entries.count == before
try:
    type(own.entries)()
except TypeError:
    pass
(product.sum() + scaled).backward()
assert x.grad.tolist() == [5.0, 4.0], x.grad
"""


@native
def test_what_an_instruction_cannot_be_is_refused(fresh: Fresh) -> None:
    lives(fresh, STRANGE)


# --- what comes in between ------------------------------------------------------------------------------------------

BETWEEN = """
import contextvars, gc, signal, sys, weakref
import numpy as np, tape

w = tape.tensor(np.linspace(0.5, 1.5, 8), requires_grad=True)
pool = tape.zeros(8)
held = []
program = tape.record(lambda v: (v * v).sum(), np.ones(8))
runs, inside, broken = [0], [False], []

def work():
    '''Record, sweep, push, replay, write and collect; check what comes out.'''
    if inside[0]:
        return
    inside[0] = True
    try:
        contextvars.Context().run(really)
    except Exception as error:
        broken.append(error)
    finally:
        inside[0] = False

def really():
    runs[0] += 1
    y = (w * w).sum()
    (g,) = tape.autograd.grad(y, w)
    assert np.array_equal(g.numpy(), 2 * w.detach().numpy())
    z = w * 3.0
    z[2:4] = 1.0
    pool.mul_(2.0)
    held.append(z.sum())
    del held[:-3]
    assert tape.func.jvp(lambda v: v * v, (w.detach(),), (tape.ones(8),))[1][0] == 1.0
    assert program.value_and_grad(np.ones(8))[0] == 8.0
    if runs[0] % 5 == 0:
        tape.recording.record.recorded()

def once(x):
    with tape.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.value):
        y = tape.sin(x) * x
    for i in range(4):
        v = y[i : i + 2]
        y = y + 1.0
        v *= 2.0
        y = y * tape.exp(-y)
    y.sum().backward()

class Kept:
    '''A packed value, whose end is noticed.'''

    def __init__(self, value):
        self.value = value

    def __del__(self):
        if sys is not None and not sys.is_finalizing():
            SAVED()

SAVED = lambda: None
x = tape.tensor(np.linspace(-1.0, 1.0, 8), requires_grad=True)
once(x)
answer = x.grad.numpy().copy()
work()

def check(times):
    for _ in range(times):
        x.grad = None
        once(x)
        assert np.array_equal(x.grad.numpy(), answer), (x.grad, answer)
"""
WAYS = {
    "finalizers of what a sweep lets go": "SAVED = work; check(25)",
    "garbage collections": """
class Cycle:
    def __init__(self): self.own = self
    def __del__(self): work()
class Many(list):
    pass
gc.set_threshold(7)
for _ in range(12):
    for _ in range(3): Cycle()
    check(1)
""",
    "callbacks of collections": """
gc.callbacks.append(lambda phase, info: work())
gc.set_threshold(50)
check(12)
""",
    "weak references": """
class Thing: pass
def check_one():
    thing = Thing(); thing.own = thing
    gc.set_threshold(9)
    return weakref.ref(thing, lambda _: work())
kept = [None] * 15
for i in range(15):
    kept[i] = check_one()
    check(1)
""",
    "a profiler": """
counted = [0]
def profile(frame, event, arg):
    counted[0] += 1
    if counted[0] % 17 == 0: work()
sys.setprofile(profile)
check(3)
sys.setprofile(None)
""",
    "a tracer": """
counted = [0]
def trace(frame, event, arg):
    counted[0] += 1
    if counted[0] % 37 == 0: work()
    return trace
sys.settrace(trace)
check(3)
sys.settrace(None)
""",
    "signals": """
signal.signal(signal.SIGALRM, lambda *_: work())
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
check(100)
signal.setitimer(signal.ITIMER_REAL, 0)
""",
}


@pytest.mark.parametrize(("way", "plain"), in_turns(WAYS, [False, True]))
def test_what_runs_in_the_middle_of_a_sweep_may_record_and_sweep(fresh: Fresh, way: str, plain: bool) -> None:
    if plain and ("collections" in way or way == "weak references") and sys.version_info < (3, 12):
        pytest.skip("a collection in the middle of NumPy's errstate, which ends in ContextVar.set, is CPython's fault")
    environment = {**PERTURBED, **({"TAPE_PLAIN": "1"} if plain else {})}
    code = WAYS[way].replace("check(3)", "check(1)") if plain else WAYS[way]  # which has more calls and lines
    ending = "\nassert runs[0] > 10 and not broken, (runs, broken[:1])"
    lives(fresh, "faulthandler.dump_traceback_later(200, exit=True)\n" + BETWEEN + code + ending, **environment)


# --- threads, and the numbers of tapes and slots --------------------------------------------------------------------

THREADS = """
import asyncio, contextvars, threading
import numpy as np, tape

w = tape.tensor(np.linspace(0.5, 1.5, 8), requires_grad=True)
y = (w * 2.0).sum()

def work(k):
    for i in range(60):
        x = tape.tensor(np.full(8, float(k + 1)), requires_grad=True)
        z = x * w
        v = z[2:5]
        z = z + 1.0
        v *= 2.0
        (z * z).sum().backward()
        expected = 2 * (x.detach() * w.detach() + 1) * w.detach()
        assert np.array_equal(x.grad.numpy(), expected.numpy()), (x.grad, expected)
    return tape.tensors.modes.own_tape(), tape.is_grad_enabled()

async def several():
    assert (w * 3.0).requires_grad
    return await asyncio.gather(*[asyncio.to_thread(work, k) for k in range(16)])

here = tape.tensors.modes.own_tape()
for tape_of_worker, enabled in asyncio.run(several()):
    assert tape_of_worker is not here and enabled

found = []
def within(context, k):
    found.append(context.run(work, k))
with tape.no_grad():
    without = [contextvars.copy_context() for _ in range(2)]
contexts = [contextvars.copy_context() for _ in range(8)]
threads = [threading.Thread(target=within, args=(c, k)) for k, c in enumerate(contexts)]
threads += [threading.Thread(target=lambda c=c: found.append((None, not c.run(tape.is_grad_enabled)))) for c in without]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(found) == 10 and all(t is not here and enabled for t, enabled in found)
y.backward()
"""


def test_threads_with_a_copy_of_a_context_have_tapes_of_their_own(fresh: Fresh) -> None:
    lives(fresh, THREADS, **PERTURBED)


def test_a_recording_is_not_carried_into_another_thread() -> None:
    def in_thread(x: Any) -> Any:
        found: list[Any] = []
        context = contextvars.copy_context()

        def work() -> None:
            try:
                found.append(context.run(lambda: x * 2.0))
            except RuntimeError as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0]

    x = tape.tensor([1.0, 2.0], requires_grad=True)
    assert in_thread(x).tolist() == [2.0, 4.0]
    errors = []
    tape.record(lambda v: (errors.append(in_thread(v)), v * 2.0)[1], np.ones(2))
    assert "in the thread that records" in str(errors[0])


NUMBERS_OF_TAPES = """
import itertools, threading, numpy as np, tape
from tape.tensors import tapes
tapes._numbers = itertools.count(tapes.MOST_TAPES - 4)
def work():
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        x.grad = None
        z = x * x
        v = z[:1]
        v *= 3.0
        z = z * x
        z.sum().backward()
    assert x.grad.tolist() == [9.0, 12.0], x.grad
    kept.append(tape.tensors.modes.own_tape().number)
kept = []
for _ in range(20):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
assert len(kept) == 20 and min(kept) >= tapes.MOST_TAPES - 4, kept
"""


def test_numbers_of_tapes_do_not_run_out(fresh: Fresh) -> None:
    lives(fresh, NUMBERS_OF_TAPES, **PERTURBED)


def slot_of(own: Any) -> int:
    """Record an instruction on a tape; return its slot."""
    result = new(tape.Tensor)
    own.record(result, NEGATED._form.code, (None,), ())
    return int(result._slot)


NEGATED = -tape.tensor(1.0, requires_grad=True)


@pytest.mark.usefixtures("own_tape")
def test_no_slot_comes_twice() -> None:
    seen: set[int] = set()
    for _ in range(50):
        given = tape.tensors.tapes.Tape()
        slots = [slot_of(given) for _ in range(1500)]
        assert slots == sorted(slots)
        assert seen.isdisjoint(slots)
        seen.update(slots)
        while given.collect():
            pass
        del given
    assert len({slot >> TAPE_BITS for slot in seen}) < 5


@pytest.mark.usefixtures("own_tape")
@pytest.mark.parametrize("error", [RecursionError, MemoryError, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_no_exception_ends_the_slots(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    own, failing = tape.tensors.tapes.Tape(), True

    def collect(_self: Any) -> int:
        if failing:
            raise error
        return 0

    monkeypatch.setattr(tape.tensors.tapes.Tape, "collect", collect)
    slots = []
    for i in range(5000):
        failing = i % 7 != 0
        with contextlib.suppress(error):
            slots.append(slot_of(own))
    assert slots == sorted(set(slots))
    assert len(slots) > 4000


RECURSION = """
import sys, tape
x = tape.tensor(1.5, requires_grad=True)
def deep(y):
    y = y * 1.0
    return deep(y)
for _ in range(60):
    try:
        deep(x)
    except RecursionError:
        pass
y = x
for _ in range(3000):
    y = y * 1.0
y.backward()
assert x.grad == 1.0
"""


def test_slots_go_on_after_recursion_errors(fresh: Fresh) -> None:
    lives(fresh, RECURSION)


# --- interrupts -----------------------------------------------------------------------------------------------------


def _function(x: Any) -> Any:
    y = tape.sin(x) * x
    v = y[:1]
    with tape.no_grad():
        y = y + v.detach()
    return (y * x).sum()


INTERRUPTED: dict[str, Callable[[], Any]] = {
    "record": lambda: tape.record(_function, np.ones(2)),
    "vmap": lambda: tape.func.vmap(_function)(tape.ones(3, 2)),
    "grad": lambda: tape.func.grad(_function)(tape.ones(2)),
    "hessian": lambda: tape.autograd.functional.hessian(_function, tape.ones(2)),
}
UNDOING = {"restore", "__exit__", "__del__", "set_mode", "_leave"}
"""What changes the mode back, and what no exception leaves.

A second interrupt is made good; at the call itself, a line here, none can come."""
UNDONE = {"try:", "modes.restore(before)", "modes.set_mode(before)", "set_mode(before)", "restore(before)"}


MANAGED = ("with modes.", "with grad_modes.", "with np.errstate(")
"""Lines that are run once more at their end, where Python itself lets no interrupt in before the way out is taken."""


def _interrupted_at(count: int, function: Callable[[], Any]) -> int:
    """Raise KeyboardInterrupt at a line of this library's; return how many lines ran."""
    seen = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen
        name = frame.f_code.co_filename
        if "/tape/" not in name or frame.f_code.co_name in UNDOING:
            return trace if event == "call" else None
        line = linecache.getline(name, frame.f_lineno).strip()
        if event == "line" and line not in UNDONE and not line.startswith(MANAGED):
            seen += 1
            if seen == count:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.usefixtures("own_tape")
@pytest.mark.parametrize("way", INTERRUPTED)
def test_an_interrupt_leaves_the_mode_as_it_was(way: str) -> None:
    function = INTERRUPTED[way]
    function()
    before = modes._mode.get()
    lines = _interrupted_at(0, function)
    for count in range(1, lines):
        _interrupted_at(count, function)
        gc.collect(0)  # generators of context managers that the interrupt left, with its traceback
        assert modes._mode.get() == before, count
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


LOADING = """
import os, signal, threading, time, sys
import tape
began = threading.Event()
def interrupt():
    began.wait()  # the test's own lines are not to be interrupted
    time.sleep({delay})
    for _ in range({times}):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
came = 0
threading.Thread(target=interrupt, daemon=True).start()
deadline = time.monotonic() + 1.0
while time.monotonic() < deadline:
    try:
        began.set()
        x = tape.tensor([1.0, 2.0], requires_grad=True)
        (tape.exp(x) * x).sum().backward()
        time.sleep(0.01)
    except KeyboardInterrupt:
        came += 1
for k in range(3):
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    (tape.tanh(x) * x + tape.sqrt(x)).sum().backward()
program = tape.record(lambda v: (v * v).sum(), x)
assert program.value_and_grad(x)[0] == 5.0
assert came >= 1, came
"""


@pytest.mark.parametrize("interrupts", few([(0.1, 2), (0.0, 1), (0.05, 1), (0.2, 1), (0.4, 2)], 2))
def test_an_interrupt_waits_while_native_code_is_loaded(fresh: Fresh, interrupts: tuple[float, int]) -> None:
    delay, times = interrupts
    lives(fresh, LOADING.format(delay=delay, times=times))


def test_functions_that_outlive_their_module_are_collected_at_the_end(fresh: Fresh) -> None:
    code = """
import tape
x = tape.tensor([1.0, 2.0], requires_grad=True)
(x * x).sum().backward()
"""
    lives(fresh, code, **PERTURBED | {"MALLOC_PERTURB_": "90"})  # flags of freed definitions then say that more follows
