"""What pullbacks need of a memory that is written: found on the tape, or filed by the slots of its instructions."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation.specs import Intervals
from kernels.kinds import reference_tape
from tests.support.representatives import in_turns

pytestmark = pytest.mark.usefixtures("own_tape", "filing")


@pytest.fixture(params=[0, 3, reference_tape._LOOKS_PER_FILING], ids=["filed at once", "filed soon", "looked through"])
def filing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have saved arrays filed sooner or later."""
    monkeypatch.setattr(reference_tape, "_LOOKS_PER_FILING", request.param)


def shared(values: list[float]) -> Any:
    """Return a tensor whose memory others may see: each write looks at what the tape holds of it."""
    return tape.from_numpy(np.array([0.0, *values])[1:])


def overwrite(x: Any) -> None:
    """Write to memory that others see: what was appended to the tape is read."""
    x[:1].add_(1.0)


DEAD: dict[str, Callable[[Any, Any], Any]] = {
    "4 entries": lambda x, _: x + x,
    "3 entries": lambda x, _: -x,
    "5 entries": lambda x, m: x * m,
    "7 entries": lambda x, m: x * m - x,
    "view": lambda x, _: x[1:],
}
LAST: dict[str, Callable[[Any, Any], Any]] = {
    "3 entries": lambda y, _: -y,
    "4 entries": lambda y, _: y + y,
    "5 entries": lambda y, m: y * (m + 1.0),
    "view": lambda y, _: y[:],
    "view of a view": lambda y, _: y[:][:],
}
READERS: dict[str, Callable[[Any, Any], Any]] = {
    "first operand": lambda b, m: b * m,
    "second operand": lambda b, m: m * b,
    "after another": lambda b, m: -b * m,
    "twice": lambda b, m: (b + b) * m,
    "as both": lambda b, m: (b * b) * m,
}


@pytest.mark.parametrize(("writes", "reader"), in_turns(itertools.product(LAST, DEAD), READERS))
def test_a_collection_between_two_writes(writes: tuple[str, str], reader: str) -> None:
    last, dead = writes
    for count in (1, 2, 3):
        leaf, m, other = tape.tensor([2.0, 3.0], requires_grad=True), tape.tensor([5.0, 7.0]), shared([0.0, 0.0])
        rubbish = [DEAD[dead](leaf, m) for _ in range(count)]
        b = LAST[last](leaf, m)
        overwrite(other)  # reads the tape up to here
        rubbish.clear()
        tape.tensors.modes.own_tape().collect()
        result = READERS[reader](b, m)
        before = m.detach().clone()
        overwrite(m[:])
        fresh = tape.tensor([2.0, 3.0], requires_grad=True)
        READERS[reader](LAST[last](fresh, before), before).sum().backward()
        result.sum().backward()
        np.testing.assert_array_equal(leaf.grad, fresh.grad)


def test_collections_at_random() -> None:
    random = np.random.default_rng(0)
    for turn in range(150):
        leaf = tape.tensor(random.random(3), requires_grad=True)
        m, expected, pool = shared([1.0, 1.0, 1.0]), np.zeros(3), [(leaf, np.ones(3))]
        total: Any = leaf.sum() * 0.0
        for _ in range(25):
            what = random.integers(6)
            x, slope = pool[random.integers(len(pool))]
            factor = m.numpy().copy()
            if what == 0:
                pool.append((x * m, slope * factor))
            elif what == 1:
                pool.append((-x, -slope))
            elif what == 2:
                pool.append((m * x[:], slope * factor))
            elif what == 3 and len(pool) > 1:
                del pool[random.integers(1, len(pool))]
                del x
                tape.tensors.modes.own_tape().collect()
            elif what == 4:
                m[: random.integers(1, 4)].mul_(float(random.choice([-1.0, 2.0, 0.5])))
            else:
                total = total + (x * m).sum()
                expected += slope * factor
        total.backward()
        np.testing.assert_allclose(leaf.grad, expected, rtol=1e-12, err_msg=f"turn {turn}")


def test_an_interrupt_while_places_are_filed(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf, m = tape.ones(3, requires_grad=True), shared([1.0, 2.0, 3.0])
    results = [leaf * m for _ in range(4)]
    add, calls = Intervals.add, [0]

    def interrupted(self: Any, *given: Any) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        add(self, *given)

    monkeypatch.setattr(Intervals, "add", interrupted)
    monkeypatch.setattr(reference_tape, "_LOOKS_PER_FILING", 0)
    with pytest.raises(KeyboardInterrupt):
        overwrite(m[:])
    monkeypatch.undo()
    del results[1:]
    gc.collect()
    tape.tensors.modes.own_tape().collect()
    before = m.numpy().copy()
    overwrite(m[:])
    results.append(leaf * m)
    overwrite(m[:])
    sum(r.sum() for r in results).backward()
    np.testing.assert_array_equal(leaf.grad, 2 * before + [1.0, 0.0, 0.0])


def test_a_long_graph_that_lives_is_filed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other work drops leaves what is on file of it as it is."""
    leaf, m, filed = tape.ones(3, requires_grad=True), shared([1.0, 2.0, 3.0]), [0]
    y, add = leaf * 1.0, Intervals.add

    def counted(self: Any, *given: Any) -> None:
        filed[0] += 1
        add(self, *given)

    monkeypatch.setattr(Intervals, "add", counted)
    for _ in range(50):
        y = y * tape.ones(3)
    for _ in range(20):
        z = leaf * m
        overwrite(m[:])
        z.sum().backward()
    assert filed[0] < 50 + 20 * 5
    before = leaf.grad.clone()
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad - before, np.ones(3))


def test_a_memory_that_only_its_tensor_has_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that grow, above all: a long tape is not looked through for what nobody can read."""
    asked: list[Any] = []
    protect_truly = reference_tape.SavedValues.protect
    monkeypatch.setattr(
        reference_tape.SavedValues,
        "protect",
        lambda self, array: (asked.append(array), protect_truly(self, array))[1],
    )
    x = tape.ones(3).requires_grad_()
    kept = x * x
    # of memory whose place counts an exposed array of another test's, native code would save a copy
    some = [tape.ones(3) for _ in range(100)]
    alone = next(y for y in some if not reference_tape._counts[reference_tape._place(id(y._value))])
    alone.add_(1.0)
    alone[1:].mul_(2.0)
    for _ in range(3):
        (x * 2.0).sum().backward()
    assert asked == []
    assert x.grad.tolist() == [6.0] * 3
    assert alone.tolist() == [2.0, 4.0, 4.0]
    product = alone * x
    alone.add_(1.0)
    assert asked
    product.sum().backward()
    assert x.grad.tolist() == [8.0, 10.0, 10.0]
    kept.sum().backward()
    assert x.grad.tolist() == [10.0, 12.0, 12.0]
