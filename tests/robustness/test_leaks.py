"""Nothing stays that nobody can reach, nothing breaks: writes, hooks, higher orders, threads, interrupts, copies."""

from __future__ import annotations

import _thread
import copy
import gc
import itertools
import os
import pickle
import queue
import signal
import sys
import threading
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tape.recording.record import recorded
from tests.engine.test_hooks import sweep  # noqa: F401 (a fixture)
from tests.robustness.test_lifetime import _tape_of_its_own, in_threads  # noqa: F401 (a fixture that every test uses)
from tests.support.representatives import few

if TYPE_CHECKING:
    from conftest import Fresh

Use = Callable[[int], Any]
USES: list[Use] = []
LARGE = 30_000  # elements: 240 kB


def use(function: Use) -> Use:
    """File a function that uses the library with arrays of the size given, and lets go of all."""
    USES.append(function)
    return function


def leaf(n: int) -> Any:
    return tape.ones(n).requires_grad_()


def first(y: Any, x: Any) -> Any:
    return tape.autograd.grad(y.sum(), x, create_graph=True)[0]


def create(y: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        y.sum().backward(create_graph=True)


def written(x: Any) -> Any:
    """Return what a loop of writes makes of a leaf."""
    y = x * 1
    for _ in range(4):
        y *= x
        y[1:] += y[:-1]
    return y


# --- writes in place ---


@use
def writes_and_backward(n: int) -> None:
    written(leaf(n)).sum().backward()


@use
def writes_dropped(n: int) -> None:
    written(leaf(n))


@use
def writes_of_a_retained_graph(n: int) -> None:
    y = written(leaf(n)).sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)


@use
def stale_views(n: int) -> None:
    x = leaf(n)
    y = x * 1
    v = y[1:]
    w = v[1:]
    y *= x
    v *= 2
    u = w * w
    y[0] = 3.0
    del y
    (w.sum() + u.sum() + v.sum()).backward()


@use
def stale_views_that_nobody_reads(n: int) -> None:
    y = leaf(n) * 1
    v = y[1:]
    y *= 2
    w = v[1:]
    y[:2] = 0.0
    del w


@use
def many_views_of_a_written_tensor(n: int) -> None:
    y = leaf(n) * 1
    for k in range(10):
        v = y[1:]
        y[0] = 1.0
        v[0] = float(k)
    y.sum().backward()


@use
def many_views_kept_of_a_written_tensor(n: int) -> None:
    y = leaf(n) * 1
    views = [y[k % 2 :] for k in range(10)]
    y *= 2
    total = y[0]
    for v in views:
        total = total + v[0]
    total.backward()


@use
def retained_gradient_of_a_written_tensor(n: int) -> None:
    y = leaf(n) * 1
    y.retain_grad()
    y *= 2
    y.sum().backward()


@use
def index_arrays(n: int) -> None:
    x, i = leaf(n), tape.from_numpy(np.arange(n) // 2)
    y = x[i]
    y[i] = x * 2
    y.index_put_((i,), x, accumulate=True)
    (y * y).sum().backward()


@use
def index_arrays_dropped(n: int) -> None:
    x, i = leaf(n), tape.from_numpy(np.arange(n) // 2)
    y = x[i]
    y.index_put_((i,), x, accumulate=True)
    (y * y).sum()


@use
def masks(n: int) -> None:
    x = leaf(n)
    y = x * 1
    y[y > 2] = 2.0
    y[x.detach() > 0] *= x
    y.masked_fill_(x > 3, 0.0)
    (y * y).sum().backward()


@use
def leaves_written_under_no_grad(n: int) -> None:
    x = leaf(n)
    for _ in range(3):
        (x * x).sum().backward()
        with tape.no_grad():
            x -= 0.1 * x.grad
            x.grad.zero_()


@use
def program_with_writes(n: int) -> None:
    def function(a: Any) -> Any:
        y = a * 1
        y[1:] += y[:-1]
        y *= a
        return y.sum()

    program = tape.record(function, np.ones(n))
    program.value_and_grad(np.ones(n))
    program(np.ones(n))


@use
def program_that_writes_to_its_argument(n: int) -> None:
    def function(a: Any) -> Any:
        a[1:] *= 2
        return (a * a).sum()

    tape.record(function, np.ones(n)).value_and_grad(np.ones(n))


# --- hooks ---


@use
def hook_and_backward(n: int) -> None:
    x = leaf(n)
    y = x * x
    y.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g * 2)
    y.sum().backward()


@use
def hook_of_a_dropped_graph(n: int) -> None:
    payload = np.ones(n)
    y = leaf(n) * 2
    y.register_hook(lambda g: g * payload[0])
    y.sum()


@use
def hook_removed(n: int) -> None:
    y = leaf(n) * 2
    y.register_hook(lambda g: y.detach() * g).remove()
    y.sum()


@use
def hook_that_holds_its_tensor(n: int) -> None:
    x = leaf(n)
    y = x * x
    y.register_hook(lambda g: y.detach() * g)
    y.sum().backward()


@use
def handle_kept(n: int) -> Any:
    y = leaf(n) * 2
    handle = y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return handle


@use
def hook_that_keeps_its_gradient(n: int) -> None:
    x, kept = leaf(n), []
    y = x * x
    y.register_hook(kept.append)
    x.register_hook(kept.append)
    y.sum().backward()


@use
def hooks_of_nodes(n: int) -> Any:
    x = leaf(n)
    y = x * x
    node = y.grad_fn
    node.register_hook(lambda _i, _o: None)
    node.register_prehook(lambda _: None)
    node.next_functions[0][0].register_hook(lambda _i, _o: None)
    y.sum().backward()
    return node


@use
def hook_of_all(n: int) -> None:
    x = leaf(n)
    a, b = x * x, x * 3
    tape.autograd.graph.register_multi_grad_hook((a, b), lambda _: None)
    (a + b).sum().backward()


@use
def hook_of_all_that_no_backward_completes(n: int) -> None:
    x = leaf(n)
    a, b = x * x, x * 3
    tape.autograd.graph.register_multi_grad_hook((a, b), lambda _: None)
    a.sum().backward()


@use
def optimiser_in_a_hook(n: int) -> None:
    x = leaf(n)

    def step(t: Any) -> None:
        t.sub_(0.1 * t.grad)
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (x * x).sum().backward()


@use
def backward_in_a_hook(n: int) -> None:
    x, w = leaf(n), leaf(n)
    y = x * x

    def hook(g: Any) -> None:
        with tape.enable_grad():
            loss = (w * w * g).sum()
            dropped = w * w
        loss.backward()
        del dropped

    y.register_hook(hook)
    (y * y).sum().backward()


@use
def recorded_backward_in_a_hook(n: int) -> None:
    x, w = leaf(n), leaf(n)
    y = x * x

    def hook(_: Any) -> None:
        with tape.enable_grad():
            first(w**3, w)

    y.register_hook(hook)
    (y * y).sum().backward()


def failing(*_: Any) -> None:
    raise ValueError


@use
def exceptions_in_hooks(n: int) -> None:
    x = leaf(n)
    y = x * x
    loss = (y * y).sum()
    for register in (y.register_hook, y.grad_fn.register_hook, x.register_hook, x.register_post_accumulate_grad_hook):
        with register(failing), pytest.raises(ValueError):  # noqa: PT011 (it is our own)
            loss.backward(retain_graph=True)


@use
def exception_in_a_hook_of_a_recorded_backward(n: int) -> None:
    x = leaf(n)
    y = x * x
    y.register_hook(failing)
    with pytest.raises(ValueError):  # noqa: PT011
        first(y * y, x)


@use
def leaf_written_in_a_hook(n: int) -> None:
    x = leaf(n)
    y = x * x

    def hook(_: Any) -> None:
        x.mul_(0.5)

    y.register_hook(hook)
    (y * y).sum().backward()


@use
def hooks_of_a_batch(n: int) -> None:
    x = leaf(n // 4)
    y = x * x
    y.register_hook(lambda g: g * 2)
    tape.autograd.grad(y, x, tape.ones(4, n // 4), is_grads_batched=True)


# --- gradients of gradients ---


@use
def third_order(n: int) -> Any:
    x = leaf(n)
    return first(first(first(x**4, x), x), x).detach()


@use
def second_order_and_backward(n: int) -> None:
    x = leaf(n)
    (first(x**4, x) ** 2).sum().backward()


@use
def second_order_of_writes(n: int) -> None:
    x = leaf(n)
    tape.autograd.grad(first(written(x), x).sum(), x)


@use
def second_order_with_a_hook(n: int) -> None:
    x = leaf(n)
    y = x * x
    y.register_hook(lambda g: g * x)
    tape.autograd.grad(first(y * y, x).sum(), x)


@use
def grad_with_a_graph(n: int) -> None:
    create(leaf(n) ** 3)


@use
def grad_with_a_graph_of_a_computed_tensor(n: int) -> None:
    y = leaf(n) ** 3
    y.retain_grad()
    create(y * y)


@use
def grad_with_a_graph_accumulated(n: int) -> None:
    x = leaf(n)
    for _ in range(3):
        create(x**3)
    x.grad.sum().backward()


@use
def grad_with_a_graph_set_to_none(n: int) -> None:
    x = leaf(n)
    for _ in range(3):
        x.grad = None
        create(x**3)
        (x.grad**2).sum().backward()


@use
def recorded_batch(n: int) -> None:
    x = leaf(n // 4)
    tape.autograd.grad(x * x, x, tape.ones(4, n // 4), is_grads_batched=True, create_graph=True)


# --- threads ---


@use
def graph_of_another_thread(n: int) -> None:
    y = leaf(n) * 1

    def work() -> None:
        z = y[1:]
        z.register_hook(lambda g: g)
        z *= 2
        (z * z).sum().backward()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@use
def graph_of_another_thread_dropped(n: int) -> None:
    y = leaf(n) * 1

    def work() -> None:
        z = y[1:]
        z.register_hook(lambda g: g)
        z *= 2
        (z * z).sum()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


# --- what they leave ---


def left(function: Use, n: int, times: int) -> float:
    """Return the bytes that each of several uses leaves, without the garbage collector's help."""
    for _ in range(3):
        function(n)
    recorded()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        function(n)
        recorded()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            function(n)
        recorded()
        return (tracemalloc.get_traced_memory()[0] - before) / times
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("function", USES, ids=lambda function: function.__name__)
def test_large_arrays_go_at_once(function: Use) -> None:
    assert left(function, LARGE, 4) < 8 * LARGE / 20
    assert recorded() == 0


@pytest.mark.parametrize("function", USES, ids=lambda function: function.__name__)
def test_nothing_small_stays_for_good(function: Use) -> None:
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(4):
            for _ in range(25):
                function(8)
            recorded()
            gc.collect()
            sys._clear_type_cache()  # it keeps the names that C code asks types for, each a new string, up to 4096
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # Dictionaries grow by leaps, and Python keeps some tuples for later; what leaks grows each time.
    assert min(after - before for before, after in itertools.pairwise(sizes)) < 25 * 128


class Payload:
    """Something whose end can be seen."""


def cycle_of_a_leaf(payload: Payload) -> None:
    x = leaf(3)
    x.register_hook(lambda g: (payload, x.detach())[1] * g)
    (x * x).sum().backward()


def cycle_after_accumulation(payload: Payload) -> None:
    x = leaf(3)

    def step(t: Any) -> None:
        assert payload
        assert t is x
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()


def cycle_of_a_gradient(payload: Payload) -> None:
    x = leaf(3)
    x.register_hook(lambda g: (payload, g)[1])
    create(x**3)


def cycle_of_several(payload: Payload) -> None:
    x = leaf(3)
    a, b = x * x, x * 3
    tape.autograd.graph.register_multi_grad_hook((a, b), lambda _: (payload, None)[1])
    a.sum().backward()


class Kept(tape.autograd.Function):
    """A function whose context keeps what ``keep`` puts there."""

    @staticmethod
    def forward(ctx: Any, x: Any, keep: Callable[..., None], payload: Payload) -> Any:
        y, z = x * 2, x + 1
        ctx.payload = payload
        keep(ctx, x, y, z)
        return y, z

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        assert ctx.payload
        return g * 2 + h, None, None


KEEPS: dict[str, Callable[..., None]] = {
    "an output": lambda ctx, _x, y, _z: setattr(ctx, "kept", y),
    "a list of outputs": lambda ctx, _x, y, z: setattr(ctx, "kept", [y, z]),
    "an input": lambda ctx, x, _y, _z: setattr(ctx, "kept", x),
    "a function": lambda ctx, _x, y, _z: setattr(ctx, "kept", lambda: (y, ctx)),
    "itself": lambda ctx, _x, _y, _z: setattr(ctx, "kept", ctx),
    "a view": lambda ctx, _x, y, _z: setattr(ctx, "kept", y[:1]),
}


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("of_leaf", [False, True])
@pytest.mark.parametrize("keep", KEEPS)
def test_cycles_through_contexts_are_collected(keep: str, of_leaf: bool, swept: bool) -> None:
    payload = Payload()
    seen = weakref.ref(payload)
    x = leaf(3)
    y, z = Kept.apply(x if of_leaf else x * 1, KEEPS[keep], payload)
    if swept:
        (y + z).sum().backward()
    del payload, y, z
    recorded()
    gc.collect()
    assert seen() is None


@pytest.mark.quick
def test_contexts_in_cycles_do_not_pile_up() -> None:
    """Nobody collects; the tape does, each time that many have been saved."""
    seen = []
    for _ in range(5000):
        payload = Payload()
        seen.append(weakref.ref(payload))
        Kept.apply(leaf(1), KEEPS["an output"], payload)[0].sum().backward()
    gc.collect()
    assert sum(reference() is not None for reference in seen) < 2500


@pytest.mark.quick
@pytest.mark.parametrize("make", [cycle_of_a_leaf, cycle_after_accumulation, cycle_of_a_gradient, cycle_of_several])
def test_cycles_through_hooks_are_collected(make: Callable[[Payload], None]) -> None:
    payload = Payload()
    seen = weakref.ref(payload)
    make(payload)
    del payload
    recorded()
    gc.collect()
    assert seen() is None


# --- threads ---


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def everything(start: float) -> list[Any]:
    """Record, write in place, hook, sweep, record the sweep, sweep that; return what comes out."""
    x = tape.tensor(np.arange(1.0, 6.0) + start, requires_grad=True)
    seen: list[Any] = []
    y = x * 1
    v = y[1:]
    for _ in range(3):
        v[1:] += v[:-1] * v[:-1] * 0.1
        y *= x * 0.5
    y.register_hook(lambda g: seen.append(g.sum().item()))
    x.register_hook(lambda g: g * 2)
    loss = (v * v).sum()
    (first(loss, x) ** 2).sum().backward()
    p = tape.zeros(6)
    p[tape.tensor([0, 1, 2, 3, 4])] = x * 2
    p.index_put_((tape.tensor([0, 0]),), x[:2], accumulate=True)
    p.sum().backward()
    return [x.grad.tolist(), seen]


@pytest.mark.usefixtures("sweep", "hasty")
def test_threads_do_everything_at_once() -> None:
    expected = [everything(k) for k in range(8)]

    def work(k: int) -> None:
        for _ in range(15):
            assert everything(k) == expected[k]

    in_threads(work)


@pytest.mark.usefixtures("sweep", "hasty")
def test_threads_share_a_leaf_with_a_hook() -> None:
    x, seen = leaf(5), []
    x.register_hook(lambda g: seen.append(g.tolist()))

    def work(_: int) -> None:
        for _step in range(30):
            y = x * 1
            y[1:] *= x[:-1]
            y.sum().backward()

    in_threads(work)
    assert seen == [[2.0, 2.0, 2.0, 2.0, 1.0]] * 240
    assert x.grad.tolist() == [480.0, 480.0, 480.0, 480.0, 240.0]


@pytest.mark.usefixtures("sweep", "hasty")
@pytest.mark.parametrize("shape", [(), (3,), (200_000,)])
def test_threads_add_to_one_gradient(shape: tuple[int, ...]) -> None:
    """The first gradient of a leaf, and those added to it, come from eight threads at the same moment."""
    leaves = [tape.ones(shape).requires_grad_() for _ in range(50)]
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        for x in leaves:
            y = (x * 2).sum()
            barrier.wait()
            y.backward()

    in_threads(work)
    assert {float(g) for x in leaves for g in (x.grad.min(), x.grad.max())} == {16.0}


@pytest.mark.usefixtures("sweep", "hasty")
def test_threads_share_a_graph_with_a_hook() -> None:
    x, seen = leaf(10), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.sum().item()))

    def work(k: int) -> None:
        for _ in range(20):
            (y[k:] * y[k:]).sum().backward(retain_graph=True)

    in_threads(work)
    assert sorted(seen) == sorted(4.0 * (10 - k) for k in range(8) for _ in range(20))
    assert x.grad.tolist() == [8.0 * 20 * min(k + 1, 8) for k in range(10)]


@pytest.mark.usefixtures("sweep", "hasty")
def test_threads_write_to_parts_of_one_memory() -> None:
    memory = tape.zeros(80)

    def work(k: int) -> None:
        part = memory[10 * k : 10 * k + 10]
        for i in range(50):
            x = tape.tensor(float(i), requires_grad=True)
            part.fill_(float(i))
            y = part.detach() * x
            part.add_(1.0)
            y.sum().backward()
            assert x.grad.item() == 10 * i

    in_threads(work)


def handed_on(x: Any, y: Any) -> None:
    """Write to what another thread has recorded, and hook it."""
    v = y[:2]
    v *= 1.5
    y.register_hook(lambda g: g + x.detach())


@pytest.mark.usefixtures("sweep", "hasty")
def test_tensors_are_handed_from_thread_to_thread() -> None:
    def begin() -> tuple[Any, Any]:
        x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 2
        y[1:] += 1.0
        return x, y

    x, y = begin()
    for _ in range(3):
        handed_on(x, y)
    (y * y).sum().backward()
    desks: list[queue.Queue[Any]] = [queue.Queue() for _ in range(8)]

    def work(k: int) -> None:
        for _ in range(10):
            desks[(k + 1) % 8].put((*begin(), 1))
            while True:
                one, other, hands = desks[k].get(timeout=60)
                if hands > 3:
                    break
                handed_on(one, other)
                desks[(k + 1) % 8].put((one, other, hands + 1))
            (other * other).sum().backward()
            assert one.grad.tolist() == x.grad.tolist()

    in_threads(work)


@pytest.mark.usefixtures("sweep")
def test_the_sweep_of_another_tape_leaves_gradients_as_they_are() -> None:
    x, other = tape.tensor([1.0, 2.0], requires_grad=True), []
    thread = threading.Thread(target=lambda: other.append(leaf(3) + 1.0))
    thread.start()
    thread.join()
    y = (x * x).sum() + other[0].sum()
    assert tape.autograd.grad(y, x, retain_graph=True)[0].tolist() == [2.0, 4.0]
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]


CROSSED = """
import threading
import tape
graphs, inside, results = {}, threading.Barrier(2), {}

def work(k):
    x = tape.ones(3).requires_grad_()
    graphs[k] = x, (x * x).sum()
    inside.wait()
    other = graphs[1 - k][1]
    w = tape.ones(3).requires_grad_()
    y = w * w

    def hook(g):
        inside.wait()  # both threads are in the middle of a backward of their own
        other.backward(retain_graph=True)

    y.register_hook(hook)
    y.sum().backward()
    results[k] = w.grad.tolist()

threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in (0, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(results == {0: [2., 2., 2.], 1: [2., 2., 2.]}, [x.grad.tolist() for x, _ in graphs.values()])
"""


def test_hooks_that_sweep_each_others_graphs(fresh: Fresh) -> None:
    assert fresh(CROSSED).communicate(timeout=60) == ("True [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]\n", "")


def test_large_gradients_at_the_end_of_a_process(fresh: Fresh) -> None:
    program = """
import tape
x = tape.ones(5000).requires_grad_()
x.sum().backward()
kept = [x, x.grad]
kept.append(kept)
"""
    out, error = fresh(program).communicate(timeout=120)
    assert (out, error) == ("", "")


# --- interrupts ---


def interrupting(*_: Any) -> None:
    signal.raise_signal(signal.SIGINT)


def of_the_tensor(x: Any, y: Any) -> Any:
    del x
    return y.register_hook(interrupting)


def of_the_leaf(x: Any, y: Any) -> Any:
    del y
    return x.register_hook(interrupting)


def after_accumulation(x: Any, y: Any) -> Any:
    del y
    return x.register_post_accumulate_grad_hook(interrupting)


def of_the_node(x: Any, y: Any) -> Any:
    del x
    return y.grad_fn.register_hook(interrupting)


def in_a_nested_backward(x: Any, y: Any) -> Any:
    del x

    def hook(_: Any) -> None:
        with tape.enable_grad():
            z = leaf(3) * 2
            z.register_hook(interrupting)
            loss = z.sum()
        loss.backward()

    return y.register_hook(hook)


def of_several(x: Any, y: Any) -> Any:
    return tape.autograd.graph.register_multi_grad_hook((x, y), interrupting)


def from_another_thread(x: Any, y: Any) -> Any:
    del x

    def hook(_: Any) -> None:
        thread = threading.Thread(target=_thread.interrupt_main)
        thread.start()
        thread.join()
        for _step in range(1000):
            pass

    return y.register_hook(hook)


HOOKED = [
    of_the_tensor,
    of_the_leaf,
    after_accumulation,
    of_the_node,
    in_a_nested_backward,
    of_several,
    from_another_thread,
]


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("place", HOOKED, ids=lambda place: place.__name__)
@pytest.mark.filterwarnings("ignore:Using backward")
def test_interrupt_in_a_hook_leaves_all_usable(place: Callable[[Any, Any], Any], create_graph: bool) -> None:
    expected = everything(0.0)
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    squares = x * x
    squares[1:] *= 2
    y = squares + 0
    loss = (y * y).sum()
    with place(x, y), pytest.raises(KeyboardInterrupt):
        loss.backward(retain_graph=True, create_graph=create_graph)
    assert tape.is_grad_enabled()
    x.grad = None
    loss.backward()
    assert x.grad.tolist() == [4.0, 128.0, 432.0]
    assert everything(0.0) == expected
    del squares, y, loss
    x.grad = None
    assert recorded() == 0


AT_RANDOM = """
import random, signal, sys, time
sys.path.insert(0, {tests!r})
import tape
from kernels.sweeps import reverse
from tests.robustness.test_leaks import everything
reverse.NATIVE = reverse.NATIVE and {native}

class Interrupt(BaseException):
    pass

def interrupt(number, frame):
    raise Interrupt

lost = []
sys.unraisablehook = lambda given: lost.append(given.exc_type)  # Python cannot pass on what comes in a callback
signal.signal(signal.SIGALRM, interrupt)
expected = everything(0.0)
before = time.perf_counter()
everything(0.0)
length, chance, caught = time.perf_counter() - before, random.Random(0), 0
for _ in range(40):
    before = len(lost)
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, length))
        everything(0.0)
        for _ in range(100):
            if len(lost) > before:
                raise Interrupt
            time.sleep(0.1)
    except Interrupt:
        caught += 1
    assert tape.is_grad_enabled()
    assert everything(0.0) == expected
assert set(lost) <= {{Interrupt}}
print(caught)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here")
@pytest.mark.parametrize("native", [True, False], ids=["native", "plain"])
def test_interrupts_at_any_moment_leave_all_usable(fresh: Fresh, native: bool) -> None:
    program = AT_RANDOM.format(tests=str(Path(__file__).parent), native=native)
    out, error = fresh(program).communicate(timeout=120)
    assert out == "40\n", error


AT_EVERY_CALL = """
import sys
sys.path.insert(0, {tests!r})
import tape
from kernels.sweeps import reverse
from tape.tensors import modes
from tests.robustness.test_leaks import everything
reverse.NATIVE = reverse.NATIVE and {native}

class Interrupt(BaseException):
    pass

def place(frame, event):
    frames = []
    while frame is not None and len(frames) < 3:
        frames.append((frame.f_code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return event, *frames

def collect(frame, event, arg):
    if event in ("call", "c_return"):
        places.setdefault(place(frame, event))

def interrupt(frame, event, arg):
    if event == target[0] and place(frame, event) == target:
        sys.setprofile(None)
        raise Interrupt

sys.unraisablehook = lambda given: None
expected, places, caught = everything(0.0), {{}}, 0
everything(0.0)
sys.setprofile(collect)
everything(0.0)
sys.setprofile(None)
for target in list(places)[::{step}]:
    try:
        sys.setprofile(interrupt)
        everything(0.0)
    except Interrupt:
        caught += 1
    finally:
        sys.setprofile(None)
    assert (tape.is_grad_enabled(), modes.user.depth) == (True, 0), target
    assert everything(0.0) == expected, target
print(caught > 300 // {step})
"""


@pytest.mark.parametrize("step", few([6, 1]))
@pytest.mark.parametrize("native", [True, False], ids=["native", "plain"])
def test_an_interrupt_as_any_function_begins_or_ends_leaves_all_usable(fresh: Fresh, native: bool, step: int) -> None:
    """Python delivers interrupts where a function of Python's begins and where one of C's has returned."""
    program = AT_EVERY_CALL.format(tests=str(Path(__file__).parent), native=native, step=step)
    out, error = fresh(program).communicate(timeout=300)
    assert out == "True\n", error


# --- processes ---


FORKED = """
import os, threading, warnings
import tape
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns where the parent has threads

def work():
    x = tape.tensor([1., 2., 3.], requires_grad=True)
    y = x * 1
    z = y * y
    y[1:] *= 2
    y.register_hook(lambda g: g * 3)
    (z + y).sum().backward()
    return x.grad.tolist()

def keep_busy():
    while running:
        x = tape.ones(500).requires_grad_()
        y = x * 1
        for _ in range(10):
            y[1:] += y[:-1]
            y *= x
        y.sum().backward()

expected, running = work(), True
shared = tape.ones(3).requires_grad_() * 2
shared.register_hook(lambda g: g * 2)
threads = [threading.Thread(target=keep_busy) for _ in range(3)]
for thread in threads:
    thread.start()
codes = set()
for _ in range(10):
    child = os.fork()
    if child == 0:
        shared[1:] += 1.
        shared.sum().backward()
        os._exit(0 if work() == expected else 1)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
running = False
for thread in threads:
    thread.join()
print(expected, codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_threads_write_in_place(fresh: Fresh) -> None:
    out, error = fresh(FORKED).communicate(timeout=60)
    assert (out, error) == ("[5.0, 10.0, 12.0] {0}\n", "")


PICKLED = """
import pickle, sys
x, y = pickle.loads(bytes.fromhex({data!r}))
y[1:] = y[1:] * x[:1]
(y * x).sum().backward()
print(x.requires_grad, y.requires_grad, x.grad.tolist())
"""


def test_tensors_go_to_another_process(fresh: Fresh) -> None:
    data = pickle.dumps((tape.tensor([1.0, 2.0], requires_grad=True), tape.tensor([3.0, 4.0])))
    out = fresh(PICKLED.format(data=data.hex())).communicate(timeout=60)
    assert out == ("True True [11.0, 4.0]\n", "")


@pytest.mark.quick
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])  # noqa: S301
def test_copies_of_a_leaf(copied: Callable[[Any], Any]) -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    seen: list[Any] = []
    x.register_hook(seen.append)
    y = copied(x)
    assert (type(y), y.tolist(), y.requires_grad, y.is_leaf) == (tape.Tensor, [1.0, 2.0], True, True)
    assert y.dtype == x.dtype
    (y * y).sum().backward()
    assert y.grad.tolist() == [2.0, 4.0]
    assert x.grad is None
    assert seen == []


@pytest.mark.quick
def test_deepcopy_has_memory_and_gradients_of_its_own() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    one, other, nested = copy.deepcopy([x, x, {"x": x}])
    assert one is other is nested["x"]
    assert one is not x
    with tape.no_grad():
        one.zero_()
        one.grad.zero_()
    assert (x.tolist(), x.grad.tolist()) == ([1.0, 2.0], [2.0, 4.0])


def written_constant() -> Any:
    y = tape.zeros(3)
    y[0] = tape.ones(1).requires_grad_()[0]
    return y


@pytest.mark.quick
@pytest.mark.parametrize("make", [lambda: leaf(3) * 2, lambda: leaf(3)[1:], written_constant])
def test_computed_tensors_are_copied_within_their_graph(make: Callable[[], Any]) -> None:
    y = make()
    message = (
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol at the moment"
    )
    with pytest.raises(RuntimeError, match=message):
        copy.deepcopy(y)
    other = copy.copy(y)
    assert other is not y
    assert np.shares_memory(other.detach().numpy(), y.detach().numpy())
    assert other.requires_grad
    assert not other.is_leaf
    (y.sum() + other.sum()).backward()
