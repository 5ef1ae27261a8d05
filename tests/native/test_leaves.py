"""Leaves that native code makes, and gradients that it hands out: the same as by the longer ways."""

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tape
from tape.compiled.call_key import shared_input
from tape.tensors.modes import own_tape
from tape.tensors.tensor import AccumulateGrad, lent

GIVEN = [
    2.5, -0.0, [1.5], [1.0, 2.0, 3.0], [0.5] * 64, [0.5] * 65, np.arange(6.0), np.arange(6.0).reshape(2, 3).T,
    np.arange(24.0).reshape(2, 3, 4)[:, ::2], np.zeros((2, 1, 3, 1)), np.empty((0, 3)), np.arange(10_000.0),
    np.arange(3.0, dtype=np.float32), np.arange(3.0).astype(">f8"), np.array(2.5), np.float64(2.5),
    [[1.0, 2.0]], [1.0, 2], (1.0, 2.0),
]  # fmt: skip


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("data", GIVEN, ids=lambda d: f"{type(d).__name__}{np.shape(d)}")
def test_a_leaf_is_a_copy_of_what_is_given(data: Any, wanted: Any) -> None:
    x = tape.tensor(data, requires_grad=wanted)
    whole = np.array(data)
    assert (x.shape, x.requires_grad, x.is_leaf, x.grad) == (whole.shape, wanted, True, None)
    assert x.dtype == np.dtype(whole.dtype).newbyteorder("=")
    np.testing.assert_array_equal(x.detach().numpy(), whole)
    assert x.detach().numpy().flags.c_contiguous or whole.dtype != np.float64
    if isinstance(data, np.ndarray) and data.size and data.ndim:
        data[...] = data * 0 + 7
        np.testing.assert_array_equal(x.detach().numpy(), whole)
    if wanted:
        (x * 3).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.full(whole.shape, 3.0))
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("data", [[], [1.0, None], ["a"], [True], [2**70, 1.0], [float("nan"), float("inf")]])
def test_other_lists_are_what_numpy_makes_of_them(data: Any) -> None:
    try:
        wanted = np.array(data)
        known = wanted.dtype.kind in "iubf"
    except Exception:  # noqa: BLE001 (whatever it is)
        known = False
    if known:
        np.testing.assert_array_equal(tape.tensor(data).numpy(), wanted)
    else:
        with pytest.raises(TypeError):
            tape.tensor(data)


def test_specs_of_many_shapes_do_not_mix() -> None:
    for n in [*range(200), *range(200)]:
        x = tape.tensor(np.ones((n % 7, n)), requires_grad=True)
        assert x.shape == (n % 7, n)


def test_a_leaf_and_its_slot_die_together() -> None:
    x = tape.tensor(1.5, requires_grad=True)
    alive, slot = weakref.ref(x), weakref.ref(x._slot)
    assert x._slot.owner() is x
    (x * x).backward()
    del x
    assert alive() is None
    gc.collect()
    assert slot() is None or slot().owner() is None


def test_leaves_made_in_a_loop_take_no_memory() -> None:
    def count() -> int:
        for data in (1.5, [1.5], np.ones(3), np.ones((2, 3))):
            for _ in range(50):
                x = tape.tensor(data, requires_grad=True)
                (x * x).sum().backward()
                tape.autograd.grad((x * x).sum(), x)
                x.grad = None
                del x
        gc.collect()
        return sys.getallocatedblocks()

    count()
    before = count()
    assert count() - before < 50


def graph(a: Any, b: Any, c: Any) -> Any:
    return (a * b + tape.log(b) * c * a).sum()


def leaves(dtype: Any = np.float64, shape: Any = (3,)) -> list[Any]:
    return [tape.tensor(np.full(shape, v), dtype=dtype, requires_grad=True) for v in (0.5, 1.5, 2.5)]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (100, 100)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_way_gives_the_same(shape: Any, dtype: Any) -> None:
    a, b, c = xs = leaves(dtype, shape)
    graph(*xs).backward()
    want = [x.grad.numpy().copy() for x in xs]
    v = [x.detach().numpy() for x in xs]
    np.testing.assert_allclose(want[0], v[1] + np.log(v[1]) * v[2], rtol=1e-6)
    np.testing.assert_allclose(want[2], np.log(v[1]) * v[0], rtol=1e-6)
    one = tape.ones((), dtype=dtype)
    for inputs in (xs, [c, a], (b,), [c, b, a]):
        for more in ({}, {"grad_outputs": one}, {"retain_graph": True}, {"grad_outputs": [one]}):
            found = tape.autograd.grad(graph(*xs), inputs, **more)
            assert type(found) is tuple
            for g, x in zip(found, inputs, strict=True):
                assert (g.dtype, g.shape, g.requires_grad) == (x.dtype, x.shape, False)
                np.testing.assert_array_equal(g.numpy(), want[[x is y for y in xs].index(True)])
    y = graph(*xs)
    for x in xs:
        x.grad = None
    y.backward(one, retain_graph=True)
    y.backward()
    for x, g in zip(xs, want, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), 2 * g, rtol=1e-6)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        tape.autograd.grad(y, xs)


@pytest.mark.parametrize("cotangent", [[2.0, -0.0, 3.0], [2.0, 1.0, 3.0], [[2.0, 1.0, 3.0]], None, 1.0])
def test_a_cotangent_is_checked_and_kept_as_it_is(cotangent: Any) -> None:
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    given = None if cotangent is None else tape.tensor(cotangent)
    y = x * x * x
    if np.shape(cotangent) != (3,):
        for ask in (lambda: y.backward(given), lambda: tape.autograd.grad(y, x, given)):
            with pytest.raises(RuntimeError):
                ask()
        assert x.grad is None
        given = tape.ones(3)
    before = given.numpy().copy()
    (found,) = tape.autograd.grad(y, x, given, retain_graph=True)
    y.backward(given)
    np.testing.assert_array_equal(found.numpy(), before * 3 * np.array([1.0, 4.0, 9.0]))
    np.testing.assert_array_equal(x.grad.numpy(), found.numpy())
    np.testing.assert_array_equal(given.numpy(), before)


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1), (0, 1, 2)])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("given", ["in order", "turned"])
def test_a_cotangent_of_a_result_in_another_order(order: Any, step: int, given: str) -> None:
    """The memory of the square of a transposed tensor is in the order of the tensor's, and so is its buffer."""
    values = np.linspace(-1.0, 2.0, 24).reshape(2, 3, 4)
    turned, wanted = values[:, ::step].transpose(order), np.zeros_like(values)
    weights = np.linspace(0.5, 1.5, turned.size).reshape(turned.shape)
    wanted[:, ::step].transpose(order)[...] = 2 * weights * turned
    cotangent = tape.tensor(weights if given == "in order" else weights.copy(order="F"))
    for way in ("backward", "grad"):
        x = tape.tensor(values, requires_grad=True)
        part = x[:, ::step].permute(order)
        y = part * part
        if way == "backward":
            y.backward(cotangent)
        found = x.grad if way == "backward" else tape.autograd.grad(y, x, cotangent)[0]
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-15)


def test_gradients_share_no_memory() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).sum()
    one, two = tape.autograd.grad(y, [x, x])
    one += 1
    assert two.tolist() == [2.0, 2.0]
    seed = tape.tensor([1.0, 1.0])
    (got,) = tape.autograd.grad(x * 1.0, x, seed)
    got += 1
    assert seed.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("look", ["hook", "post", "node", "retain", "prehook"])
def test_whoever_looks_is_heard(look: Any) -> None:
    a, b, c = xs = leaves()
    seen = []
    inner = a * b
    if look == "hook":
        b.register_hook(lambda g: seen.append(g) or g * 2)
    elif look == "post":
        b.register_post_accumulate_grad_hook(seen.append)
    elif look == "retain":
        inner.retain_grad()
    elif look == "prehook":
        inner.grad_fn.register_prehook(seen.append)
    else:
        node = inner.grad_fn
        seen.append(node)
    y = (inner * c).sum()
    y.backward()
    if look == "retain":
        seen.append(inner.grad)
    assert len(seen) == 1
    assert a.grad.tolist() == [3.75] * 3
    assert b.grad.tolist() == [2.5 if look == "hook" else 1.25] * 3
    for x in xs:
        x.grad = None
    found = tape.autograd.grad((a * b * c).sum(), (a, b, c))
    assert found[1].tolist() == [2.5 if look == "hook" else 1.25] * 3
    assert b.grad is None


def test_threads_add_to_one_leaf() -> None:
    x = tape.tensor([1.0], requires_grad=True)
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        for _ in range(200):
            (x * 1.0).sum().backward()

    for _ in range(3):
        x.grad = None
        threads = [threading.Thread(target=run) for _ in range(8)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            [t.start() for t in threads]
            [t.join() for t in threads]
        finally:
            sys.setswitchinterval(interval)
        assert x.grad.tolist() == [1600.0]


def test_the_attribute_is_the_property() -> None:
    x, y = tape.tensor(1.0, requires_grad=True), tape.tensor(2.0)
    assert (tape.Tensor.grad.__get__(x), tape.Tensor.grad.__get__(None, tape.Tensor)) == (None, tape.Tensor.grad)
    assert isinstance(tape.Tensor.grad, property)
    assert tape.Tensor.grad.__doc__
    for odd in (5, object(), AccumulateGrad):
        with pytest.raises((AttributeError, TypeError)):
            tape.Tensor.grad.__set__(odd, None)
    x.grad = tape.tensor(3.0)
    assert x.grad.item() == 3.0
    with pytest.raises(RuntimeError):
        x.grad = tape.tensor([3.0, 4.0])
    with pytest.raises(TypeError):
        x.grad = 4.0
    assert x.grad.item() == 3.0
    del x.grad
    assert x.grad is None
    y.grad = None
    assert y.grad is None
    x.grad = None
    assert x.grad is None
    with pytest.warns(UserWarning, match="non-leaf"):
        assert (x * 2).grad is None


def test_a_subclass_goes_the_longer_way() -> None:
    class Own(tape.Tensor):
        """A user's."""

    x = Own([1.0, 2.0]).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    x.grad = None
    assert x.grad is None
    assert tape.autograd.grad((x * x).sum(), x)[0].tolist() == [2.0, 4.0]


def test_an_unused_input_raises_and_nothing_is_freed() -> None:
    x, z = (tape.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    y = (x * x).sum()
    with pytest.raises(RuntimeError, match="not have been used"):
        tape.autograd.grad(y, [x, z])
    assert tape.autograd.grad(y, [x, z], allow_unused=True)[1] is None


def test_only_what_leads_to_the_inputs_is_computed() -> None:
    x, z = tape.tensor([0.0], requires_grad=True), tape.tensor([2.0], requires_grad=True)
    y = (tape.sqrt(x) + z * z).sum()  # the gradient by x is infinite, by a division that warns
    assert tape.autograd.grad(y, z)[0].tolist() == [4.0]


ARGUMENTS = [2.5, np.array([1.5, 2.5]), np.array([[1.5, 2.5]]).T, np.arange(1.0, 7.0).reshape(2, 3)[:, ::2]]


@pytest.mark.parametrize("given", ARGUMENTS, ids=lambda d: f"{type(d).__name__}{np.shape(d)}")
@pytest.mark.parametrize("kind", ["numpy", "tensor", "leaf", "view", "under no_grad"])
def test_transforms_take_what_they_are_given(given: Any, kind: str) -> None:
    def f(x: Any) -> Any:
        assert x.requires_grad
        assert x.is_leaf or kind == "leaf"
        return (x * x * x).sum()

    want, x = 3 * np.asarray(given) ** 2, given
    if kind != "numpy":
        x = tape.tensor(given, requires_grad=kind == "leaf")
        if kind == "view":
            x = tape.stack([x, x])[1]
        elif kind == "under no_grad":
            with tape.no_grad():
                x = x * 1.0
    value, gradient = tape.value_and_grad(f)(x)
    assert (type(value) is float) == (kind == "numpy")
    np.testing.assert_allclose(gradient if kind == "numpy" else gradient.detach().numpy(), want)
    np.testing.assert_allclose(np.asarray(given), np.asarray(x.detach() if kind != "numpy" else x))
    _values, both = tape.value_and_grad(lambda a, b: f(a) + (b * 2).sum(), argnums=(1, 0))(x, 3.0)
    assert float(both[0]) == 2.0
    if kind != "numpy":
        _y, pull = tape.func.vjp(f, x)
        for _ in range(2):
            np.testing.assert_allclose(pull(tape.ones(()))[0].detach().numpy(), want)
        assert not hasattr(x, "grad") or x.grad is None


def test_a_transform_of_a_transform_differentiates_the_inner_one() -> None:
    cube = tape.func.grad(tape.func.grad(lambda x: x * x * x))
    assert cube(tape.tensor(2.0)).item() == 12.0
    w = tape.tensor(3.0, requires_grad=True)
    (outer,) = tape.autograd.grad(tape.func.grad(lambda x: x * x * w)(tape.tensor(2.0)), w)
    assert outer.item() == 4.0


def test_vjp_of_what_depends_on_more_can_be_differentiated() -> None:
    w = tape.tensor([3.0, 4.0], requires_grad=True)
    y, pull = tape.func.vjp(lambda x: x * w, tape.tensor([1.0, 2.0]))
    (found,) = pull(tape.ones(2))
    assert found.requires_grad
    assert tape.autograd.grad(found.sum(), w)[0].tolist() == [1.0, 1.0]
    assert y.requires_grad


def test_a_reader_that_an_interrupt_kept_from_leaving_is_counted_no_more() -> None:
    own = own_tape()
    before = len(own.readers)
    reading = own.reading()
    reading.__enter__()
    assert len(own.readers) == before + 1
    del reading
    assert len(own.readers) == before
    with own.reading():
        assert len(own.readers) == before + 1
    assert len(own.readers) == before


@pytest.mark.quick
@pytest.mark.parametrize("data", [x for x in GIVEN if isinstance(x, np.ndarray)], ids=np.shape)
def test_what_shares_the_memory_of_an_array(data: Any) -> None:
    """Native code makes a tensor of usual arrays, and Python of others; both are as NumPy sees them."""
    whole, count = data.copy(order="K"), sys.getrefcount(data)
    x = shared_input(whole)
    assert (x.shape, x.requires_grad, x.grad) == (data.shape, False, None)
    assert np.array_equal(x.numpy(), data)
    usual = data.dtype == np.float64 and data.dtype.isnative and data.ndim and data.size and data.flags.c_contiguous
    assert (lent(data) is not None) == bool(usual)
    assert sys.getrefcount(data) == count
    if usual:
        x.zero_()
        assert not whole.any()
        whole.flags.writeable = False
        with pytest.raises(RuntimeError, match="read-only"):
            shared_input(whole).zero_()
