"""Memory that is used again: never while anybody can see it, of a bounded size, whatever threads and forks do."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy._core.multiarray import get_handler_name

import tape
from kernels.kinds.reference_tape import SHOWN
from kernels.native import pool
from kernels.sweeps import reverse

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Fresh

N = 20_000  # elements: 160 kB
native = pytest.mark.skipif(not reverse.NATIVE, reason="without native code arrays are NumPy's own")


@pytest.fixture(autouse=True)
def _emptied() -> None:
    gc.collect()
    pool.give_back()


def leaf(n: int = N) -> Any:
    return tape.tensor(np.linspace(0.1, 1.0, n), requires_grad=True)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "multiply": lambda x: x * x,
    "by a number": lambda x: 2.0 * x,
    "exp": tape.exp,
    "power": lambda x: x**2,
    "softmax": lambda x: tape.softmax(x.reshape(-1, 100), 1),
    "matmul": lambda x: x.reshape(-1, 100) @ tape.ones(100, 100),
    "where": lambda x: tape.where(x > 0.5, x, 0.0),
    "grad": lambda x: tape.autograd.grad((x * x).sum(), x)[0],
    "func.grad": lambda x: tape.func.grad(lambda v: tape.sin(v).sum())(x.detach()),
}


def owner(array: Any) -> Any:
    """Return the array that owns the memory of one that was handed out."""
    while array.base is not None:
        base = SHOWN.get(id(array.base), array.base)
        array = base.obj if isinstance(base, memoryview) else base
    return array


@native
@pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
def test_large_results_are_the_pools(make: Callable[[Any], Any]) -> None:
    x = leaf()
    assert get_handler_name(make(x).detach().numpy()) in ("tape_pool", None)  # of a view its base
    held = [make(x).detach().numpy() for _ in range(2)]
    assert all(get_handler_name(owner(y)) == "tape_pool" for y in held)
    assert not np.shares_memory(*held)


@native
def test_memory_is_used_again_when_the_last_view_dies() -> None:
    x = leaf()
    y = (x * 2.0).detach()
    place = y.numpy().ctypes.data
    view = y.numpy()[5:7]
    del y
    others = [(x * 3.0).detach() for _ in range(3)]
    assert place not in [other.numpy().ctypes.data for other in others]
    np.testing.assert_array_equal(view, 2.0 * x.detach().numpy()[5:7])
    before = pool.kept()
    del view
    gc.collect()
    assert pool.kept() > before
    assert (x * 3.0).detach().numpy().ctypes.data == place


VIEWS: list[Callable[[Any], Any]] = [
    lambda t: t,
    lambda t: t.detach().numpy(),
    lambda t: t.detach().numpy()[3:],
    lambda t: t.detach().numpy().reshape(-1, 10).T,
    lambda t: memoryview(t.detach().numpy()),
    lambda t: np.asarray(memoryview(t.detach().numpy())),
    lambda t: t.detach()[::2],
    lambda t: t.detach().view(-1, 2),
    lambda t: np.lib.stride_tricks.sliding_window_view(t.detach().numpy(), 3),
    lambda t: np.frombuffer(t.detach().numpy(), np.uint8),
]


def seen(thing: Any) -> Any:
    return np.array(thing.detach().numpy() if isinstance(thing, tape.Tensor) else thing)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(range(len(VIEWS))), st.booleans()), max_size=25))
def test_nobody_sees_another_result(steps: list[tuple[int, int, bool]]) -> None:
    """Views of whatever kind are held while results, gradient buffers and gradients come and go."""
    x, held = leaf(9000), []
    for k, (place, kind, sweeps) in enumerate(steps):
        y = x * float(k + 1)
        if sweeps:
            x.grad = None
            (tape.sin(y) * y).sum().backward()
            y = x.grad
        thing = VIEWS[kind](y)
        held.append((thing, seen(thing)))
        del y, thing
        if place < len(held):
            del held[place]
        for thing, before in held:
            np.testing.assert_array_equal(seen(thing), before)
        thing = before = None


def test_values_are_what_they_were() -> None:
    x, w = np.linspace(0.1, 1.0, N), np.linspace(1.0, 2.0, N)
    for _ in range(3):
        a = tape.tensor(x, requires_grad=True)
        y = tape.exp(a) * w - a / w
        y.sum().backward()
        np.testing.assert_array_equal(y.detach().numpy(), tape.exp(tape.tensor(x)).numpy() * w - x / w)
        np.testing.assert_allclose(a.grad.numpy(), np.exp(x) * w - 1 / w, rtol=1e-14)


@native
def test_what_is_kept_is_bounded(fresh: Fresh) -> None:
    code = """
import numpy as np, tape
from kernels.native import pool as pool
x = tape.tensor(np.ones(40_000), requires_grad=True)
for n in (1, 5, 20):
    results = [x * float(k) for k in range(n)]
    del results
    assert pool.kept() <= 2_000_000, pool.kept()
assert pool.kept() > 1_000_000
results = [tape.tensor(np.ones(n)) * 2.0 for n in range(20_000, 60_000, 2_000)]
del results
assert 0 < pool.kept() <= 2_000_000
y = tape.tensor(np.ones(1_000_000)) * 2.0
del y
before = pool.kept()
assert 0 < before <= 2_000_000
pool.give_back(500_000)
assert 0 < pool.kept() <= before - 500_000
pool.give_back()
assert pool.kept() == 0
"""
    process = fresh(code, TAPE_POOL_BYTES="2000000")
    assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0


@pytest.mark.parametrize("most", ["0", "no number", "100000000"])
def test_bounds(fresh: Fresh, most: str) -> None:
    code = """
import numpy as np, tape
from kernels.native import pool as pool
for _ in range(3):
    x = tape.tensor(np.linspace(0, 1, 40_000), requires_grad=True)
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.detach().numpy())
    del x
import os
if os.environ["TAPE_POOL_BYTES"] == "0":
    assert pool.kept() == 0
"""
    process = fresh(code, TAPE_POOL_BYTES=most)
    assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0


@native
def test_freed_memory_is_written_over_in_debug_mode(fresh: Fresh) -> None:
    """Whoever read a block that was given back would read nan."""
    code = """
import numpy as np, tape
from kernels.native import pool as pool
values = np.linspace(0.1, 1.0, 90_000).reshape(300, 300)
for _ in range(3):
    x = tape.tensor(values, requires_grad=True)
    y = tape.softmax(x @ x, 1) * tape.exp(-x) + tape.logsumexp(x, 1)[:, None]
    z = (y[1:] - y[:-1] ** 2).sum() + (x.T * y).mean()
    z.backward(retain_graph=True)
    (again,) = tape.autograd.grad(z, x)
    assert np.isfinite(again.numpy()).all()
    np.testing.assert_array_equal(again.numpy(), x.grad.numpy())
    first, = tape.autograd.grad((tape.sin(x) * x).sum(), x, create_graph=True)
    second, = tape.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 2 * np.cos(values) - values * np.sin(values), rtol=1e-12)
assert pool.kept() > 0
"""
    process = fresh(code, TAPE_DEBUG="1")
    assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0


@native
def test_arrays_of_ones_own_are_numpys() -> None:
    x = leaf()
    with pytest.raises(ValueError, match="broadcast"):
        pool.call(np.multiply, np.ones(N), np.ones(3))
    _ = x * 2.0
    assert get_handler_name(np.empty(N)) == "default_allocator"
    assert get_handler_name(pool.call(np.empty, shape=N, dtype=np.float32)) == "tape_pool"
    with pytest.raises(TypeError):
        pool.call()  # type: ignore[call-arg]


@native
def test_arrays_change_their_size() -> None:
    for sizes in ((10, N), (N, 10), (N, 9 * N), (9 * N, N), (N, N + 1)):
        array = pool.call(np.ones, sizes[0])
        array.resize(sizes[1], refcheck=False)
        assert array[: min(sizes)].all()
        assert not array[min(sizes) : sizes[1]].any()
    assert not pool.call(np.zeros, N).any()


def test_threads() -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng, held = np.random.default_rng(seed), []
        for _ in range(40):
            values = rng.normal(size=N + int(rng.integers(3)) * 4000)
            x = tape.tensor(values, requires_grad=True)
            (tape.sin(x) * x).sum().backward()
            held.append((x.grad, np.cos(values) * values + np.sin(values)))
            if len(held) > 4:
                got, want = held.pop(int(rng.integers(4)))
                if not np.allclose(got.numpy(), want, rtol=1e-12, atol=1e-14):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_ends_forks_and_the_interpreters_end(fresh: Fresh) -> None:
    """Arrays outlive the module, and a child has a pool of its own."""
    code = """
import os, sys
import numpy as np, tape
x = tape.tensor(np.ones(100_000), requires_grad=True)
kept = [x * 2.0 for _ in range(4)]
del kept[1:3]
if (child := os.fork()) == 0:
    y = x * 3.0
    y.sum().backward()
    os._exit(0 if (x.grad.numpy() == 3.0).all() and (kept[0].detach().numpy() == 2.0).all() else 1)
assert os.waitpid(child, 0)[1] == 0
assert (kept[0].detach().numpy() == 2.0).all()
sys.kept = [x * 5.0, (x * 4.0).detach().numpy()[1:]]
class Late:
    def __init__(self): self.own, self.array = self, (x * 6.0).detach().numpy()
    def __del__(self): self.array.sum()
late, np.kept = Late(), Late()
"""
    process = fresh(code)
    assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0


def test_a_loop_does_not_grow(fresh: Fresh) -> None:
    code = """
import resource
import numpy as np, tape
def run(n):
    x = tape.tensor(np.ones(n), requires_grad=True)
    (tape.exp(x) * x / (x + 1.0)).sum().backward()
    tape.autograd.grad((x * x).sum(), x)
sizes = [100_000 + 7_000 * k for k in range(40)]
for n in sizes + sizes:
    run(n)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(5):
    for n in sizes:
        run(n)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    process = fresh(code, TAPE_POOL_BYTES="20000000")
    printed, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert int(printed) < 12_000  # kB
