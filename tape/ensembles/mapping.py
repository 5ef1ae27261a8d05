"""``tape.ensemble``: a function of many parameter sets, through any executor of ``concurrent.futures``."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from tape.ensembles.chunks import Run, sets_of
from tape.ensembles.workers import Outcome, Pool

_CHUNKS = 4
"""Chunks for each worker, if none is asked for: what is left at the end is shared out fairly."""


def ensemble(
    f: Callable[..., Any],
    batch: Any,
    executor: Any = None,
    *,
    chunk: int | None = None,
    ordered: bool = True,
    progress: bool = False,
    retries: int = 2,
    errors: str = "raise",
) -> Iterator[Any]:
    """Call ``f``, a program or another function, with each parameter set of a batch; iterate over the results.

    ``batch`` is a list or another iterable of parameter sets: a tuple is the arguments of one call, anything else the
    only argument. Or it is arrays with a leading axis, as for ``vmap``: an array or tensor, or a dict, dataclass or
    named tuple of them, whose rows are the only argument, or a tuple of these, one for each argument.

    ``executor`` is any executor of ``concurrent.futures``, which stays open, or a function that makes one, which is
    shut down in the end: without it, threads, as many as there are processors, or as ``tape.set_num_threads`` was
    told if that is more than one; ``ProcessPoolExecutor(mp_context=...)``,
    ``dask.distributed.Client.get_executor()``, ``mpi4py.futures.MPIPoolExecutor``. All but threads get ``f`` and
    the arguments as pickles; programs are unpickled and made ready once a process. Work begins at once, in chunks
    of ``chunk`` calls, by default four for each worker; of these two are handed over at a time, more as results are
    taken.

    Results come in the order of the batch; with ``ordered=False`` as pairs ``(index, result)``, as they are ready.
    ``progress`` shows a bar if ``tqdm`` is installed. What a call raises is raised, with the number of the parameter
    set as a note, or with ``errors="return"`` stands in the place of its result. A chunk that is lost with its worker
    is run again, alone, at most ``retries`` times, by new workers if they are processes; then its halves are.

    Raises ValueError for arrays of different lengths, TypeError for what is no batch.

    >>> program = tape.record(lambda k, x: (tape.exp(-k * x) ** 2).sum(), 1.0, np.ones(3))
    >>> batch = [(k, np.ones(3)) for k in (0.0, 1.0)]
    >>> [round(value, 3) for value, _ in tape.ensemble(program.value_and_grad, batch)]
    [3.0, 0.406]
    """
    if errors not in ("raise", "return"):
        raise ValueError(f'ensemble: errors is {errors!r}; it may be "raise" or "return"')
    if chunk is not None and chunk < 1:
        raise ValueError(f"ensemble: chunk is {chunk}; it is at least 1")
    sets = sets_of(batch)
    pool = Pool(executor, to_end=errors == "return")
    size = chunk or max(1, math.ceil(len(sets) / (_CHUNKS * pool.workers)))
    run = Run(f, sets, pool, size, retries, _bar(len(sets)) if progress else None)
    run.submit()
    return _results(run, ordered=ordered, raises=errors == "raise")


def _bar(count: int) -> Any:
    """Return a bar of tqdm; None if it is not installed."""
    try:
        return importlib.import_module("tqdm.auto").tqdm(total=count, unit="set")
    except ImportError:
        return None


def _results(run: Run, *, ordered: bool, raises: bool) -> Iterator[Any]:
    """Yield the results one by one."""
    ready: dict[int, list[Outcome]] = {}
    at = 0
    for start, outcomes in run.completed():
        if not ordered:
            for i, outcome in enumerate(outcomes, start):
                yield i, _value(i, outcome, raises=raises)
            continue
        ready[start] = outcomes
        while at in ready:
            for outcome in ready.pop(at):
                yield _value(at, outcome, raises=raises)
                at += 1


def _value(index: int, outcome: Outcome, *, raises: bool) -> Any:
    done, value = outcome
    if done or not raises:
        return value
    value.add_note(f"in parameter set {index} of the batch")
    raise value
