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


@pytest.mark.parametrize("value", [2.0, [1.0, 2.0, 3.0]])
def test_memory_is_exposed_as_long_as_one_of_the_users_arrays_lives(value: object) -> None:
    """Handed out natively, by the array's own memory; what the tape saves meanwhile is copied."""
    x, w = tape.tensor(value), tape.tensor(3.0, requires_grad=True)
    before = len(reference_tape.SHOWN), reference_tape._counts.tolist()
    shown, again = x.numpy(), x.numpy()
    part = shown[..., None]
    assert shown is not again
    assert np.shares_memory(shown, again)
    assert [a.flags.writeable for a in (shown, again)] == [True, True]
    del shown, again
    assert reference_tape.is_exposed(as_array(x))
    for _ in range(3):
        product = (w * x).sum()
        held = np.array(x)
        part += 1.0
        assert np.array_equal(np.array(x), held + 1.0)
        (g,) = tape.autograd.grad(product, w)
        assert float(g) == held.sum()
    del part
    assert not reference_tape.is_exposed(as_array(x))
    assert len(reference_tape.SHOWN) == before[0]
    counted = reference_tape.EXPOSED + 1
    assert reference_tape._counts.tolist()[:counted] == before[1][:counted]


def test_what_is_handed_out_outlives_the_tensor_and_what_is_saved_already_is_copied() -> None:
    x = tape.tensor([1.0, 2.0])
    shown = x.numpy()
    del x
    assert shown.tolist() == [1.0, 2.0]
    assert any(root is shown or np.shares_memory(root, shown) for root in reference_tape.exposed_roots())
    y = tape.tensor([1.0, 2.0], requires_grad=True)
    z = (y * y).sum()
    shown = y.detach().numpy()
    shown[:] = 10.0
    z.backward()
    assert y.grad is not None
    assert y.grad.tolist() == [2.0, 4.0]
    y.grad.numpy()[0] = 7.0
    assert y.grad.tolist() == [7.0, 4.0]
