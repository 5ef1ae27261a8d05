"""What counts as memory that others may write: nothing else is copied."""

import numpy as np
import pytest

import tape
from kernels.kinds import reference_tape
from tape.tensors.tensor import as_array

pytestmark = pytest.mark.quick


class Holder:
    """Something of the user's, which lives as long as a test wants."""


def test_an_array_at_the_place_of_another_in_the_table_is_not_copied() -> None:
    many = [tape.tensor([1.0, 2.0], requires_grad=True) for _ in range(100)]
    x = next(x for x in many if reference_tape._counts[reference_tape._place(id(as_array(x)))] == 0)  # of other tests
    place, holder = reference_tape._place(id(as_array(x))), Holder()
    others = [np.zeros(3) for _ in range(200_000)]
    other = next(a for a in others if reference_tape._place(id(a)) == place)
    reference_tape.expose(other, holder)
    for _ in range(4):
        assert (x * x).grad_fn._saved_self is x
    second = next(a for a in others if reference_tape._place(id(a)) == place and a is not other)
    reference_tape.expose(second, holder)  # several: perhaps it is one of them
    assert (x * x).grad_fn._saved_self.tolist() == [1.0, 2.0]
    del holder
    for _ in range(4):
        assert (x * x).grad_fn._saved_self is x


def test_an_array_with_the_id_of_one_that_has_died() -> None:
    first, holder = np.zeros(3), Holder()
    reference_tape.expose(first, holder)
    gone = id(first)
    del first
    kept: list[object] = []
    while not kept or id(kept[-1]) != gone:
        assert len(kept) < 10_000
        kept.append(np.zeros(3))
    again = kept[-1]
    assert isinstance(again, np.ndarray)
    assert not reference_tape.is_exposed(again)
    reference_tape.expose(again, holder)
    assert reference_tape.is_exposed(again)
    del holder
    assert not reference_tape.is_exposed(again)
