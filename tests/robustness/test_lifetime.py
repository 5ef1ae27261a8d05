"""Who keeps what alive: dropped graphs, kept losses, released graphs, threads, fork."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.kinds.reference_tape import PlainTape
from kernels.native import pool
from kernels.native.memory import MOST_TAPES
from kernels.native.structs import TAPE_BITS
from kernels.sweeps import reverse
from tape.recording.record import recorded
from tape.tensors import modes, tapes

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Fresh

LARGE = 100_000  # elements: 800 kB


@pytest.fixture(autouse=True)
def _tape_of_its_own() -> None:
    """Start each test from an empty tape, whatever the tests before it left alive."""
    gc.collect()
    modes._thread_tape.set(None)
    modes.set_mode(modes.current())
    assert recorded() == 0


def _compile_for(function: Callable[[], Any]) -> None:
    """Have all kernels of a function: its second run asks for those that take cotangents of one number."""
    function()
    function()


def held(function: Callable[[], Any]) -> int:
    """Return the bytes that are still held once a function, run before, has run again."""
    _compile_for(function)
    gc.collect()
    tracemalloc.start()
    try:
        kept = function()
        size = tracemalloc.get_traced_memory()[0]
        del kept
        return size
    finally:
        tracemalloc.stop()


def peak(function: Callable[[], Any]) -> int:
    """Return the most bytes that a function, run before, holds at one time."""
    _compile_for(function)
    gc.collect()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_dropped_graph_is_reclaimed() -> None:
    x = tape.tensor(2.0, requires_grad=True)
    y = x
    for _ in range(100):
        y = y * x
    assert recorded() == 100
    del y
    assert recorded() == 0


def test_dropped_graph_with_a_retained_tensor_is_reclaimed() -> None:
    x = tape.tensor(2.0, requires_grad=True)
    y = x * x
    y.retain_grad()
    z = y * 3
    del y, z
    assert recorded() == 0


def test_part_of_a_graph_that_is_dropped() -> None:
    x = tape.tensor(2.0, requires_grad=True)
    kept = x * x
    dropped = kept * 3 * 4
    assert recorded() == 3
    del dropped
    assert recorded() == 1
    kept.backward()
    assert x.grad.item() == 4.0


def test_dropped_graphs_with_large_arrays_free_their_memory() -> None:
    x = tape.ones(LARGE).requires_grad_()

    def forget() -> None:
        for _ in range(50):
            tape.exp(x * x)  # 1.6 MB, dropped without backward

    assert peak(forget) < 12 * 8 * LARGE


def test_evaluation_loop_does_not_grow() -> None:
    x = tape.ones(LARGE).requires_grad_()

    def evaluate() -> list[float]:
        return [(x * x).sum().item() for _ in range(50)]

    assert peak(evaluate) < 12 * 8 * LARGE
    small = tape.tensor(2.0, requires_grad=True)
    most = 0
    for _ in range(20_000):
        _ = small * small + small
        most = max(most, len(modes.own_tape().entries))
    assert most < 10_000


def test_training_loop_does_not_grow() -> None:
    x = tape.ones(LARGE).requires_grad_()

    def train() -> None:
        for _ in range(20):
            x.grad = None
            (tape.exp(x) * x).sum().backward()
        x.grad = None

    assert peak(train) < 10 * 8 * LARGE


def test_kept_losses_keep_one_number_each() -> None:
    x = tape.ones(1000).requires_grad_()
    x.grad = tape.zeros(1000)

    def train() -> list[Any]:
        losses = []
        for _ in range(1000):
            loss = (tape.exp(x) * x).sum()
            loss.backward()
            losses.append(loss)
        return losses

    assert held(train) < 1000 * 500  # many, beside what NumPy keeps of small blocks for later


def test_kept_losses_without_backward_keep_their_graphs() -> None:
    x = tape.ones(1000).requires_grad_()
    assert held(lambda: [tape.exp(x).sum() for _ in range(20)]) < 20 * 2 * 8000
    assert held(lambda: [tape.exp(x) for _ in range(20)]) > 20 * 8000


def test_backward_releases_what_the_graph_kept() -> None:
    x = tape.ones(LARGE).requires_grad_()

    def released() -> Any:
        loss = (tape.exp(x) * 2.0).sum()
        tape.autograd.grad(loss, x)
        return loss

    assert held(released) < 8 * LARGE / 10


def test_retain_graph_keeps() -> None:
    x = tape.ones(3).requires_grad_()
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [6.0] * 3
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    assert x.grad.tolist() == [6.0] * 3


def test_graph_that_kept_nothing_runs_twice() -> None:
    x = tape.ones(2).requires_grad_()
    y = (x + 1).sum() - x[0]
    y.backward()
    y.backward()
    assert x.grad.tolist() == [0.0, 2.0]


def test_part_that_kept_nothing_survives_a_released_part() -> None:
    x = tape.ones(2).requires_grad_()
    plain = x + 1
    (plain * plain).sum().backward()
    plain.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_second_graph_over_the_same_leaves_is_untouched() -> None:
    x = tape.ones(3).requires_grad_()
    first, second = (x * x).sum(), (tape.exp(x) * x).sum()
    before = recorded()
    first.backward()
    assert 0 < recorded() < before
    second.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 + 2 * np.e, rtol=1e-15)


def test_unreached_instructions_are_untouched() -> None:
    x = tape.tensor(3.0, requires_grad=True)
    shared = x + 1
    aside = shared * shared
    (shared * x).backward()
    aside.backward()
    assert x.grad.item() == 7.0 + 8.0


def test_shared_part_that_was_released_says_so() -> None:
    x = tape.ones(3).requires_grad_()
    shared = x * x
    shared.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        (shared * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def scalars() -> None:
    x = tape.tensor(2.0, requires_grad=True)
    y = x * x + tape.log(x)
    y.retain_grad()
    (y / x).backward(retain_graph=True)


def arrays() -> None:
    x = tape.ones(3, 3).requires_grad_()
    v = x[1:] * 2
    v.retain_grad()
    (tape.cat([v, x]).max(0).values.sum() + (x @ x).mean()).backward()


def listed() -> None:
    x = tape.ones(3).requires_grad_()
    y = (x * x).sum()
    repr(y)
    tape.listing(y)
    assert y.grad_fn.next_functions


def refused() -> None:
    x = tape.ones(3).requires_grad_()
    with pytest.raises(RuntimeError):
        (x * x).backward()
    with pytest.raises(RuntimeError):
        _ = x + tape.ones(4)


def program() -> None:
    p = tape.record(lambda a: (tape.exp(a) * a).max(), np.ones(3))
    p.value_and_grad(np.ones(3))
    p(np.ones(3))


def block() -> None:
    x = tape.ones(3).requires_grad_()
    with tape.record() as p:
        (x * x).sum()
    p.value_and_grad(np.ones(3))


@pytest.mark.parametrize("use", [scalars, arrays, listed, program, block])
def test_no_reference_cycles(use: Callable[[], None]) -> None:
    use()
    gc.collect()
    gc.disable()
    try:
        use()
        assert gc.collect() == 0
    finally:
        gc.enable()


def in_threads(work: Callable[[int], None], count: int = 8) -> None:
    """Run ``work(k)`` in threads at once; raise what one of them raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(k: int) -> None:
        try:
            barrier.wait()
            work(k)
        except BaseException as error:  # noqa: BLE001 (it is raised again below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_record_and_sweep_at_once() -> None:
    def work(k: int) -> None:
        for _ in range(40):
            x = tape.tensor(np.arange(1.0, 6.0) + k, requires_grad=True)
            y = x
            for _ in range(10):
                y = y * x * 0.1
            y.sum().backward()
            np.testing.assert_allclose(x.grad.numpy(), 11 * (x.detach().numpy() * 0.1) ** 10)

    in_threads(work)


def test_threads_share_a_leaf() -> None:
    x = tape.ones(50).requires_grad_()
    in_threads(lambda _: [(x * x).sum().backward() for _ in range(50)] and None)
    assert set(x.grad.tolist()) == {8 * 50 * 2.0}


def test_threads_have_modes_of_their_own() -> None:
    def work(k: int) -> None:
        x = tape.ones(2).requires_grad_()
        with tape.set_grad_enabled(k % 2 == 0):
            for _ in range(200):
                assert (x * 2).requires_grad is (k % 2 == 0)

    in_threads(work)
    assert tape.is_grad_enabled()


def test_tensor_crosses_threads_and_back() -> None:
    x = tape.ones(3).requires_grad_()
    y = x * 2
    view = y[1:]
    found: list[Any] = []
    done, stay = threading.Event(), threading.Event()

    def work() -> None:
        found.append((y * y).sum() + view.sum())
        done.set()
        stay.wait()

    thread = threading.Thread(target=work)
    thread.start()
    done.wait()
    (found[0] * 3 + x.sum()).backward()
    stay.set()
    thread.join()
    assert x.grad.tolist() == [25.0, 31.0, 31.0]


def test_graph_outlives_its_thread() -> None:
    x = tape.ones(3).requires_grad_()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((x * x).sum()))
    thread.start()
    thread.join()
    found[0].backward()
    assert x.grad.tolist() == [2.0] * 3


def test_tapes_of_ended_threads_go() -> None:
    tape.tensor(1.0, requires_grad=True)
    before = len(tapes.living)
    in_threads(lambda k: (tape.ones(2).requires_grad_() * k).sum().backward())
    gc.collect()
    assert len(tapes.living) <= before + 1


FORK = """
import os, warnings
import tape
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns where the parent has threads
x = tape.tensor([1., 2.], requires_grad=True)
before = (tape.exp(x) * x).sum()
shared = (x * x).sum()
shared.backward(retain_graph=True)
child = os.fork()
if child == 0:
    x.grad = None
    shared.backward()
    (x[1:] * 5).sum().backward()
    program = tape.record(lambda v: (v * v).sum(), [1., 2.][0])
    ok = x.grad.tolist() == [2., 9.] and program.value_and_grad(3.) == (9., (6.,))
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
shared.backward()
print(os.waitstatus_to_exitcode(status), x.grad.tolist(), before.requires_grad)
"""


def test_fork_after_use(fresh: Fresh) -> None:
    if not hasattr(__import__("os"), "fork"):
        pytest.skip("no fork here")
    out, error = fresh(FORK).communicate(timeout=120)
    assert (out, error) == ("0 [4.0, 8.0] True\n", "")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_of_one_element_the_tape_keeps_the_number(shape: tuple[int, ...]) -> None:
    """No array lives on for a pullback that reads it; what NumPy writes there later changes no gradient."""
    array = np.full(shape, 3.0)
    x, b = tape.from_numpy(array).requires_grad_(), tape.full(shape, 2.0, requires_grad=True)
    y = x * b
    z = tape.exp(y) * x
    (saved,) = (getattr(y.grad_fn, name) for name in ("_saved_self",))
    assert saved.shape == shape
    array[...] = 7.0
    z.sum().backward()
    e = np.exp(6.0)
    assert x.grad.shape == shape
    np.testing.assert_allclose(x.grad.numpy(), np.full(shape, e + 6.0 * e))
    np.testing.assert_allclose(b.grad.numpy(), np.full(shape, 9.0 * e))


def test_doubles_whose_dtype_has_metadata() -> None:
    dtype = np.dtype("f8", metadata={"unit": "m"})
    for shape in ((), (1,), (2,)):
        x, b = tape.from_numpy(np.ones(shape, dtype)), tape.full(shape, 2.0, requires_grad=True)
        (x * b).sum().backward()
        assert b.grad.tolist() == np.ones(shape).tolist()


@pytest.mark.skipif(not reverse.NATIVE or pool.DEBUG, reason="of the tape of words, without canaries")
@pytest.mark.parametrize("shape", [(), (1,)])
def test_bytes_of_a_chain(shape: tuple[int, ...]) -> None:
    """The graph, and what a backward takes besides."""
    count = 30_000

    def chain() -> Any:
        b, y = (tape.full(shape, 0.999, requires_grad=True) for _ in range(2))
        for _ in range(count):
            y = y * b
        return y

    chain().sum().backward()
    tracemalloc.start()
    try:
        end = chain()
        graph = tracemalloc.get_traced_memory()[0]
        end.sum().backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert graph < 90 * count, f"{graph / count:.0f} bytes an operation"  # the tape grows by half
    assert peak < 200 * count, f"{peak / count:.0f} bytes an operation"


def test_what_is_recorded_while_a_plain_tape_looks_for_the_dead_keeps_what_it_needs() -> None:
    entries = PlainTape(MOST_TAPES, 0)
    first, second, third = ((MOST_TAPES << TAPE_BITS) + k for k in range(3))
    form: Any = None

    class Watched(Counter[int]):
        def __getitem__(self, slot: int) -> int:
            if slot == second and third not in self:  # another thread squares it and drops it
                entries.rows.append((third, (second,), (), form))
                self[third], self[second] = 1, 0
            return super().__getitem__(slot)

    entries.rows = [(first, (), (), form), (second, (first,), (), form)]
    entries.held = Watched({second: 1})
    assert entries.collect([]) == 0
    assert [row[0] for row in entries.rows] == [first, second, third]
    entries.held[third] = 0
    assert entries.collect([]) == 3


@pytest.mark.parametrize("writes", [20_000, 300_000], ids=["long", "longer than what a tape keeps"])
def test_a_tape_that_was_long_is_not_looked_through_at_every_view(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y, value = x * 1.0, x[0] * 1.0
    for _ in range(writes):
        y[1] = value
    y = x * 1.0
    collect = tapes.Tape.collect
    monkeypatch.setattr(tapes.Tape, "collect", lambda self, *args: (looks.append(1), collect(self, *args))[1])
    for _ in range(100_000):
        y[1]
    assert len(looks) < 1000  # not one at each view
    y[1].backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0]
