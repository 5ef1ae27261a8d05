"""What native code takes from the C library it gives back: `tracemalloc` does not see that memory."""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.routine import Routine
from kernels.operations import OPS
from tape.recording.record import recorded
from tests.robustness.test_leaks import USES
from tests.support import record_cases
from tests.support.record_cases import Case
from tests.support.representatives import few

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
LIBRARY = ctypes.CDLL(None)
pytestmark = pytest.mark.skipif(not hasattr(LIBRARY, "mallinfo2"), reason="glibc tells how much memory is in use")
CASES = [
    case
    for op in OPS.values()
    for case in record_cases.cases_of(op)
    if case.differentiable and (case.name.endswith("-0") if isinstance(op, Routine) else case.quick and not op.function)
]
ROUNDS, USED = 4, 3


class Info(ctypes.Structure):
    """What the C library tells: struct mallinfo2."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in FIELDS)


def in_use() -> int:
    """Return the bytes that are allocated now: exactly, whatever the allocator keeps for later."""
    recorded()
    gc.collect()
    LIBRARY.mallinfo2.restype = Info
    info = LIBRARY.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def left(run: Callable[[], object]) -> int:
    """Return the least that several rounds of uses left: what leaks grows each time, dictionaries grow by leaps."""
    sizes = []
    for _ in range(ROUNDS):
        for _ in range(USED):
            run()
        sizes.append(in_use())
    return min(after - before for before, after in itertools.pairwise(sizes))


def every_way(case: Case) -> Callable[[], object]:
    """Return what goes back through a record, and forward, in all ways that pause a native sweep or do not."""
    arrays = case.leaves(np.float64)

    def once() -> Any:
        inputs = record_cases.tensors(arrays)
        return [x for x in inputs if x.requires_grad], case.run(*inputs)

    def run() -> None:
        leaves, y = once()
        y = y * y * 2.0
        y.backward(tape.ones_like(y), retain_graph=True)
        rows = tape.ones(3, *y.shape)
        tape.autograd.grad(y, leaves, rows, is_grads_batched=True, allow_unused=True)
        leaves, y = once()
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        (y * 1.5).sum().backward()

    return run


def leaking(uses: dict[str, Callable[[], object]], least: int) -> list[str]:
    """Return those that leave at least so many bytes a use; each is looked at by itself only if all together do."""
    if left(lambda: [run() for run in uses.values()]) < USED * least:
        return []
    return [name for name, run in uses.items() if min(left(run), left(run)) >= USED * least]


@pytest.mark.slow
@pytest.mark.parametrize("step", few([4, 1]))
def test_each_record(step: int) -> None:
    assert leaking({case.name: every_way(case) for case in CASES[::step]}, 200) == []


def test_each_use() -> None:
    assert leaking({function.__name__: partial(function, 300) for function in USES}, 300) == []


class Twice(tape.autograd.Function):
    """Two results, one of which nobody uses."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * g * x + 3 * h


def of_a_function() -> None:
    x = tape.ones(300).requires_grad_()
    first, second = Twice.apply(x)
    (first.sum() + second.exp().sum()).backward()
    Twice.apply(x)[1].sum().backward()


def raising() -> None:
    x = tape.ones(300).requires_grad_()
    y = tape.softmax(x * 2, 0)
    z = (y * 3).cumsum(0)
    y.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        z.sum().backward()


def with_hooks_on_leaves() -> None:
    x = tape.ones(300).requires_grad_()
    x.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda x: None)  # noqa: ARG005
    (tape.softmax(x, 0).cumsum(0) * x[1]).sum().backward()


def forward_mode() -> None:
    x = tape.ones(300)
    tape.func.jvp(lambda v: tape.softmax(v.cumsum(0), 0)[2:] * v[1:-1], (x,), (x,))
    tape.func.jacfwd(lambda v: tape.softmax(v.cumsum(0), 0))(x[:5])


def test_other_ways() -> None:
    runs = (of_a_function, raising, with_hooks_on_leaves, forward_mode)
    assert leaking({run.__name__: run for run in runs}, 300) == []
