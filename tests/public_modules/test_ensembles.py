"""Ensembles: batches of all forms, threads, processes, Dask; order, errors of items, workers that die, progress."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape

SPAWN = multiprocessing.get_context("spawn")
KS = np.linspace(0.0, 2.0, 23)


def misfit(k: Any, x: Any) -> Any:
    return (tape.exp(-k * x) ** 2).sum()


def program() -> Any:
    return tape.record(misfit, 1.0, np.ones(3))


def batch() -> list[tuple[Any, ...]]:
    return [(k, np.linspace(0.0, 1.0, 3) + k) for k in KS]


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
        yield executor


def same(a: Any, b: Any) -> None:
    """Check that values and gradients are the same in every bit."""
    assert len(a) == len(b)
    for (value, (by_k, by_x)), (other, (k, x)) in zip(a, b, strict=True):
        assert (value, by_k) == (other, k)
        np.testing.assert_array_equal(by_x, x)


# Batches.


@dataclass
class Params:
    """A dataclass of arrays, with text."""

    a: Any
    b: Any
    name: str = "p"


class Pair(NamedTuple):
    """A named tuple of arrays."""

    a: Any
    b: Any


A, B = np.arange(5.0), np.arange(10.0).reshape(5, 2)
BATCHES: dict[str, tuple[Any, Callable[..., Any], Any]] = {
    "tuples": ([(1, 2), (3, 4)], lambda a, b: a + b, [3, 7]),
    "generator": (((i, i) for i in range(4)), lambda a, b: a * b, [0, 1, 4, 9]),
    "range": (range(3), lambda i: i + 1, [1, 2, 3]),
    "dicts": ([{"a": 1.0}, {"a": 2.0}], lambda d: d["a"], [1.0, 2.0]),
    "named tuples": ([Pair(1, 2), Pair(3, 4)], lambda p: p.b, [2, 4]),
    "None": ([None, None], lambda x: x, [None, None]),
    "lists": ([[1, 2], [3]], len, [2, 1]),
    "text": (["ab", "c"], len, [2, 1]),
    "array": (B, lambda row: row.sum(), [1.0, 5.0, 9.0, 13.0, 17.0]),
    "vector": (A, lambda x: x * 2, [0.0, 2.0, 4.0, 6.0, 8.0]),
    "tensor": (tape.tensor(B), lambda row: row.sum().item(), [1.0, 5.0, 9.0, 13.0, 17.0]),
    "dict": ({"a": A, "b": [B, B]}, lambda d: (d["a"] + d["b"][1]).sum(), [1.0, 7.0, 13.0, 19.0, 25.0]),
    "dataclass": (
        Params(A, B),
        lambda p: (p.name, p.a + p.b[1]),
        [("p", a + b) for a, b in zip(A, B[:, 1], strict=True)],
    ),
    "named tuple": (Pair(A, B), lambda p: p.a + p.b[0], [a + b for a, b in zip(A, B[:, 0], strict=True)]),
    "arguments": ((A, {"b": B}), lambda a, d: a + d["b"][0], [a + b for a, b in zip(A, B[:, 0], strict=True)]),
    "no items": ([], len, []),
    "no rows": (np.ones((0, 3)), len, []),
    "no arguments": ((), len, []),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("chunk", [None, 1, 2, 100])
def test_batches(name: str, chunk: int | None) -> None:
    sets, f, expected = BATCHES[name]
    sets = ((i, i) for i in range(4)) if name == "generator" else sets
    assert list(tape.ensemble(f, sets, chunk=chunk)) == expected


@pytest.mark.parametrize(
    ("sets", "error", "match"),
    [
        (3, TypeError, "the batch is a int; a batch is a list"),
        (None, TypeError, "the batch is a NoneType"),
        ("abc", TypeError, "the batch is a str"),
        ({}, TypeError, "no array in the batch"),
        (np.float64(1.0), TypeError, "batch is a ndarray without a leading axis"),
        ({"a": {"b": 1.0}}, TypeError, r"batch\['a'\]\['b'\] is a float without a leading axis"),
        (((1, 2), (3, 4)), TypeError, r"argument 0\[0\] is a int without .* or a list of parameter sets"),
        ((A, {"b": B[1:]}), ValueError, r"argument 0 has 5, argument 1\['b'\] has 4"),
    ],
)
def test_what_is_no_batch(sets: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        tape.ensemble(len, sets)


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="errors is 'ignore'"):
        tape.ensemble(len, [], errors="ignore")
    with pytest.raises(ValueError, match="chunk is 0"):
        tape.ensemble(len, [], chunk=0)
    with pytest.raises(TypeError, match="executor is a int, which has no submit"):
        tape.ensemble(len, [], 4)


# Threads.


def test_threads_give_what_a_loop_gives() -> None:
    f = program().value_and_grad
    same(list(tape.ensemble(f, batch())), [f(*args) for args in batch()])


def test_threads_of_an_executor_that_stays_open() -> None:
    f = program().value_and_grad
    with ThreadPoolExecutor(3) as executor:
        for chunk in (1, 5):
            same(list(tape.ensemble(f, batch(), executor, chunk=chunk)), [f(*args) for args in batch()])
        assert executor.submit(len, "ab").result() == 2


def test_work_begins_at_once_and_runs_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=20)
    with ThreadPoolExecutor(2) as executor:
        runs = tape.ensemble(lambda _: together.wait() >= 0, range(2), executor, chunk=1)
        assert list(runs) == [True, True]


def test_as_completed() -> None:
    first = threading.Event()

    def wait_or_set(i: int) -> int:
        if i == 0:
            assert first.wait(20)
        return i * i

    with ThreadPoolExecutor(2) as executor:
        runs = tape.ensemble(wait_or_set, range(2), executor, chunk=1, ordered=False)
        assert next(runs) == (1, 1)
        first.set()
        assert list(runs) == [(0, 0)]
    assert sorted(tape.ensemble(lambda i: -i, range(50), ordered=False)) == [(i, -i) for i in range(50)]


def failing(i: int) -> int:
    if i % 5 == 3:
        raise KeyError(f"item {i}")
    return i


def test_errors_of_items_are_raised_or_returned() -> None:
    with pytest.raises(KeyError, match="item 3") as caught:
        list(tape.ensemble(failing, range(20)))
    assert caught.value.__notes__ == ["in parameter set 3 of the batch"]
    results = list(tape.ensemble(failing, range(20), errors="return", chunk=3))
    assert [i for i, x in enumerate(results) if isinstance(x, KeyError)] == [3, 8, 13, 18]
    assert [x for x in results if not isinstance(x, KeyError)] == [i for i in range(20) if i % 5 != 3]


def test_after_an_error_no_more_is_called() -> None:
    called: list[int] = []

    def f(i: int) -> int:
        called.append(i)
        if i == 0:
            raise ValueError("first")
        time.sleep(0.01)
        return i

    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(ValueError, match="first"):
            list(tape.ensemble(f, range(1000), executor, chunk=100))
        executor.submit(len, "").result()
        assert len(called) < 100


def test_closing_it_stops_it() -> None:
    called: list[int] = []

    def f(i: int) -> int:
        called.append(i)
        time.sleep(0.002)
        return i

    runs = tape.ensemble(f, range(10_000), chunk=2)
    assert next(runs) == 0
    runs.close()  # type: ignore[attr-defined]
    assert len(called) < 5000
    runs = tape.ensemble(f, range(10_000), chunk=2)
    del runs  # never begun


# Processes.


def test_processes_give_what_a_loop_gives(processes: Executor) -> None:
    f = program().value_and_grad
    for chunk in (None, 4):
        same(list(tape.ensemble(f, batch(), processes, chunk=chunk)), [f(*args) for args in batch()])
    arrays = (KS, np.ones((len(KS), 3)))
    expected = [program()(k, x) for k, x in zip(*arrays, strict=True)]
    assert list(tape.ensemble(program(), arrays, processes)) == expected
    assert dict(tape.ensemble(program(), arrays, processes, ordered=False)) == dict(enumerate(expected))


@tape.compile
def compiled(k: Any, x: Any) -> Any:
    return misfit(k, x) if k > 0.5 else misfit(2.0 * k, x)


@pytest.mark.slow
def test_compiled_functions(processes: Executor) -> None:
    expected = [misfit(k if k > 0.5 else 2.0 * k, tape.tensor(x)).item() for k, x in batch()]
    for executor in (None, processes):
        np.testing.assert_allclose(list(tape.ensemble(compiled, batch(), executor)), expected, rtol=1e-13)


class Counted:
    """A function that counts how often it was unpickled."""

    unpickled = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        type(self).unpickled += 1

    def __getstate__(self) -> dict[str, Any]:
        return {"a": 1}

    def __call__(self, _: int) -> tuple[int, int]:
        return os.getpid(), type(self).unpickled


def test_a_function_is_unpickled_once_a_process(processes: Executor) -> None:
    results = list(tape.ensemble(Counted(), range(40), processes, chunk=2))
    assert {count for _, count in results} == {1}
    assert os.getpid() not in {process for process, _ in results}


class OddError(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(f"{a} and {b}")


def odd(i: int) -> int:
    if i == 2:
        raise OddError("this", "that")
    return failing(i)


def test_errors_come_from_processes_with_their_lines(processes: Executor) -> None:
    with pytest.raises(KeyError, match="item 3") as caught:
        list(tape.ensemble(failing, range(20), processes))
    lines, where = caught.value.__notes__
    assert "in failing" in lines
    assert where == "in parameter set 3 of the batch"
    results = list(tape.ensemble(odd, range(6), processes, errors="return"))
    assert [type(x) for x in results] == [int, int, RuntimeError, KeyError, int, int]
    assert str(results[2]) == "OddError: this and that"


def test_what_cannot_be_sent(processes: Executor) -> None:
    with pytest.raises(Exception, match="lambda"):
        list(tape.ensemble(lambda i: i, range(2), processes))
    with pytest.raises(Exception, match="lock"):
        list(tape.ensemble(len, [threading.Lock()], processes))
    assert list(tape.ensemble(abs, [-1], processes)) == [1]


def fatal(i: int, folder: Any, *, once: bool) -> int:
    """End the process at the seventh, always or the first time."""
    if i == 7:
        mark = Path(folder) / "died"
        if not (once and mark.exists()):
            mark.touch()
            os._exit(1)
    return i * i


@pytest.mark.slow
def test_a_chunk_whose_worker_died_runs_again(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
        f = partial(fatal, folder=tmp_path, once=True)
        assert list(tape.ensemble(f, range(20), executor)) == [i * i for i in range(20)]
        assert (tmp_path / "died").exists()


@pytest.mark.slow
def test_the_parameter_set_that_kills_is_told_from_others(tmp_path: Path) -> None:
    f = partial(fatal, folder=tmp_path, once=False)
    made: list[Executor] = []

    def make() -> Executor:
        made.append(ProcessPoolExecutor(2, mp_context=SPAWN))
        return made[-1]

    results = list(tape.ensemble(f, range(12), make, chunk=3, retries=0, errors="return"))
    assert isinstance(results.pop(7), BrokenExecutor)
    assert results == [i * i for i in range(12) if i != 7]
    assert len(made) > 1
    with pytest.raises(RuntimeError, match="after shutdown"):
        made[-1].submit(len, "")
    with pytest.raises(BrokenExecutor) as caught:
        list(tape.ensemble(f, range(6, 9), partial(ProcessPoolExecutor, 1, mp_context=SPAWN), chunk=1, retries=0))
    assert caught.value.__notes__ == ["in parameter set 1 of the batch"]


class Fragile(Executor):
    """An executor of this thread that breaks at some of its chunks."""

    _max_workers = 2

    def __init__(self, *breaks: int) -> None:
        self.breaks, self.count = breaks, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.count += 1
        if self.count in self.breaks:
            future.set_exception(BrokenExecutor("broke"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_an_executor_of_which_another_cannot_be_made() -> None:
    assert list(tape.ensemble(abs, range(-9, 0), Fragile(), chunk=2)) == list(range(9, 0, -1))
    with pytest.raises(BrokenExecutor, match="broke"):
        list(tape.ensemble(abs, range(9), Fragile(3), chunk=1))
    makers = iter([Fragile(3), Fragile(1), Fragile()])
    assert list(tape.ensemble(abs, range(-9, 0), lambda: next(makers), chunk=1)) == list(range(9, 0, -1))


class Losing(Fragile):
    """One whose connection is lost."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        if isinstance(future.exception(), BrokenExecutor):
            future = Future()
            future.set_exception(ConnectionError("lost"))
        return future


def test_a_chunk_that_is_lost_runs_again_a_few_times() -> None:
    assert list(tape.ensemble(abs, range(-9, 0), Losing(1, 2, 7), chunk=2)) == list(range(9, 0, -1))
    results = list(tape.ensemble(abs, [-1], Losing(*range(100)), errors="return", retries=3))
    assert isinstance(results[0], ConnectionError)


# A bar.


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Bar:
        def __init__(self, **kwargs: Any) -> None:
            shown.append(kwargs["total"])

        def update(self, count: int) -> None:
            shown.append(count)

        def close(self) -> None:
            shown.append("closed")

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    assert list(tape.ensemble(abs, range(10), progress=True, chunk=3)) == list(range(10))
    assert shown[0] == 10
    assert sorted(shown[1:-1]) == [1, 3, 3, 3]
    assert shown[-1] == "closed"
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert list(tape.ensemble(abs, range(10), progress=True)) == list(range(10))


def test_tqdm_itself(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    assert list(tape.ensemble(abs, range(10), progress=True)) == list(range(10))
    assert "10/10" in capsys.readouterr().err


# Dask.


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Dask's and its dependencies' own
def test_dask() -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    f = program().value_and_grad
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        same(list(tape.ensemble(f, batch(), executor)), [f(*args) for args in batch()])
        local = 3.0
        assert list(tape.ensemble(lambda i: i * local, range(9), executor, chunk=2)) == [i * local for i in range(9)]
        results = dict(tape.ensemble(failing, range(9), executor, ordered=False, errors="return"))
        assert [i for i in range(9) if isinstance(results[i], KeyError)] == [3, 8]


class Submits(ThreadPoolExecutor):
    """An executor of another library, which cannot cancel what waits."""

    def shutdown(self, wait: bool = True) -> None:  # type: ignore[override]
        super().shutdown(wait)


@pytest.mark.quick
@pytest.mark.parametrize("executor", [ThreadPoolExecutor, Submits, partial(ThreadPoolExecutor, 1), lambda: Submits(2)])
def test_an_executor_is_made_of_a_class_or_by_a_function(executor: Any) -> None:
    assert list(tape.ensemble(lambda x: x * 2.0, [1.0, 2.0, 3.0], executor)) == [2.0, 4.0, 6.0]
