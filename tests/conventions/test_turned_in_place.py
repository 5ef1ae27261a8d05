"""Tensors turned in place, other data, indices by lists, comparisons with what is no tensor: as with PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tests.conventions.test_autograd_conventions import complaint, leaf
from tests.support.pytorch_outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS: list[Any] = []


def both(expected: Any) -> Callable[[Any], Any]:
    """File a program of both libraries with what it finds."""

    def add(program: Any) -> Any:
        PROGRAMS.append(pytest.param(program, expected, id=program.__name__))
        return program

    return add


def matrix(lib: Any) -> Any:
    return lib.arange(6, dtype=lib.float64).reshape(2, 3)


@both([True, False, True, None, [6, 6], False, True])
def detached_in_place(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * 2
    z, found = y * 3, [y.detach_() is y, y.requires_grad, y.is_leaf, y.grad_fn]
    z.sum().backward()
    return [*found, x.grad.tolist(), (y * 2).requires_grad, y.requires_grad_().is_leaf]


@both("Can't detach views in-place. Use detach() instead.")
def views_are_not_detached(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    v = (x * 2)[:1]
    return complaint(v.detach_)[:50]


@both([[10, 10], [1, 1]])
def a_view_keeps_its_history_when_its_base_is_detached(lib: Any) -> Any:
    x = leaf(lib, [1, 2], [3, 4])
    y = x * 1
    v = y[:1]
    y.detach_()
    v = v * 10
    (v.sum() + x[1:].sum()).backward()
    return x.grad.tolist()


@both([True, (3, 2), [[0, 3], [1, 4], [2, 5]], (3, 2), (3, 2), (3, 2), 1])
def transposed_in_place(lib: Any) -> Any:
    a, b, c, d = (matrix(lib) for _ in range(4))
    before = d._version
    found = [a.transpose_(0, 1) is a, tuple(a.shape), a.tolist()]
    return [*found, *(tuple(one.shape) for one in (b.t_(), c.swapaxes_(0, 1), d.swapdims_(0, 1))), d._version - before]


@both([(2, 3), (2, 1, 3), (1, 2, 1, 3), (2, 1, 3), [[0, 1], [3, 4]], [1, 3]])
def dims_taken_and_inserted_in_place(lib: Any) -> Any:
    a, b, c = (matrix(lib).reshape(1, 2, 1, 3) for _ in range(3))
    found = [a.squeeze_(), b.squeeze_(0), c.squeeze_(1), matrix(lib).unsqueeze_(1)]
    strided = [matrix(lib).as_strided_((2, 2), (3, 1)), matrix(lib).as_strided_((2,), (2,), 1)]
    return [*(tuple(one.shape) for one in found), *(one.tolist() for one in strided)]


@both([[[0, 4, 8], [2, 6, 10]], [6, 12], [[10, 10, 10], [1, 1, 1]]])
def gradients_of_what_was_turned(lib: Any) -> Any:
    x = leaf(lib, [1, 2, 3], [4, 5, 6])
    y = x * 2
    y.transpose_(0, 1)
    (y * lib.arange(6, dtype=lib.float64).reshape(3, 2)).sum().backward()
    first, x.grad = x.grad.tolist(), None
    w = leaf(lib, 1, 2)
    u = w * w
    u.unsqueeze_(0)
    (u * lib.ones(3, 1, dtype=lib.float64)).sum().backward()
    z = x * 1
    v = z[:1]
    v.squeeze_(0)
    v.mul_(10)
    z.sum().backward()
    return [first, w.grad.tolist(), x.grad.tolist()]


@both([[[0, 30], [10, 4], [20, 5]], [[0, 10, 20], [30, 4, 5]], [[100, 100], [100, 1]]])
def views_see_what_is_written_after_a_turn(lib: Any) -> Any:
    a = matrix(lib)
    row = a.view(-1)[:4]
    a.t_()
    row.mul_(10)
    x = leaf(lib, [1, 2], [3, 4])
    y = x * 1
    part = y.view(-1)[:3]
    y.t_()
    y.mul_(10)
    part.mul_(10)
    y.t().sum().backward()
    found = x.grad.tolist()
    found[1][1] /= 10
    return [a.tolist(), a.t().tolist(), found]


@both(
    [
        "a leaf Variable that requires grad is being used in an in-place operation.",
        "cannot resize variables that require grad",
        (2, 1),
        True,
    ]
)
def leaves_turned_in_place(lib: Any) -> Any:
    x = leaf(lib, [1, 2])
    said = [complaint(lambda: x.transpose_(0, 1)), complaint(lambda: x.resize_(1))]
    with lib.no_grad():
        x.t_()
    return [*said, tuple(x.shape), x.is_leaf]


@both([[[0, 1], [2, 3], [4, 5]], [0, 1, 2, 3], (4, 3), [0, 1, 2, 3, 4, 5], (3, 2)])
def resized(lib: Any) -> Any:
    a, b, c = matrix(lib), matrix(lib), matrix(lib)
    found = [a.resize_(3, 2).tolist(), b.resize_(4).tolist(), tuple(c.resize_((4, 3)).shape)]
    return [*found, c.reshape(-1)[:6].tolist(), tuple(matrix(lib).resize_as_(lib.ones(3, 2)).shape)]


@both([(2, 3), [1, 2], True, (0,), [[0, 1, 2], [3, 4, 5]]])
def new_tensors_of_the_same_dtype(lib: Any) -> Any:
    a = matrix(lib)
    return [
        tuple(a.new(2, 3).shape),
        a.new([1, 2]).tolist(),
        a.new(2).dtype == a.dtype,
        tuple(a.new().shape),
        a.new(a).tolist(),
    ]


@both([None, None, "Deleting tensor data is not allowed. Delete tensor instead!"])
def deleted_gradients(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (x * 2).sum().backward()
    del x.grad
    found = x.grad
    del x.grad
    return [found, x.grad, complaint(lambda: delattr(x, "data"))]


@both([(3,), [2, 2, 2], True, [3, 3], [1, 1, 1, 1], ["hook", "hook"]])
def data_of_another_shape(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_hook(lambda _: seen.append("hook"))
    (x * 3).sum().backward()
    kept = x.grad.tolist()
    x.grad = None
    x.data = lib.ones(3, dtype=lib.float64)
    (x * 2).sum().backward()
    a = matrix(lib)
    a.data = lib.ones(4, dtype=lib.float64)
    return [tuple(x.shape), x.grad.tolist(), x.requires_grad, kept, a.tolist(), seen]


@both([True, True, True, "data set to a tensor that requires gradients must be floating point or complex dtype"])
def what_data_of_another_shape_refuses(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 1, 2)
    y = x * x
    x.data = lib.ones(3, dtype=lib.float64)
    early = complaint(lambda: y.sum().backward()) != "nothing raised"
    (w * 2).sum().backward()
    w.data = lib.ones(3, dtype=lib.float64)
    late = complaint(lambda: (w * 2).sum().backward()) != "nothing raised"
    w.grad = None
    w.data = lib.ones(2, dtype=lib.float32)
    return [early, late, w.dtype == lib.float32, complaint(lambda: setattr(w, "data", lib.tensor([1])))]


@both([[1, 2], [1, 2], True])
def arrays_of_tensors_under_no_grad(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    refused = complaint(x.numpy).startswith("Can't call numpy()")
    with lib.no_grad():
        return [x.numpy().tolist(), np.asarray(x).tolist(), refused]


@both([[1, 5], [1, 4], [1, 3], [[0, 1, 2], [3, 4, 5]], [[0, 1, 2]], [0, 3], [1, 5], [[7, 9, 2], [3, 4, 9]]])
def indices_that_are_lists(lib: Any) -> Any:
    a, b = matrix(lib), matrix(lib)
    b[[0, 1], [1, 2]] = 9.0
    b[[slice(0, 1), 0]] = 7.0
    keys = [([0, 1], [1, 2]), [slice(0, 2), 1], [[0, 1], [1, 0]], [0, 1], [None, 0], [..., 0]]
    return [*(a[key].tolist() for key in keys), a[[lib.tensor([0, 1]), lib.tensor([1, 2])]].tolist(), b.tolist()]


@both([[[0, 1, 0], [0, 0, 1]], [3, 3, 3, [3]], 3])
def gradients_of_lists_and_numbers_that_are_picked_from(lib: Any) -> Any:
    x, a, i = leaf(lib, [1, 2, 3], [4, 5, 6]), lib.tensor(3.0, dtype=lib.float64, requires_grad=True), lib.tensor(0)
    x[[[0, 1], [1, 2]]].sum().backward()
    picked = [lib.gather(a, 0, i), lib.take(a, i), lib.index_select(a, 0, i), lib.gather(a, 0, lib.tensor([0]))]
    sum(one.sum() for one in picked[:3]).backward()
    return [x.grad.tolist(), [one.tolist() for one in picked], a.grad.item()]


@both([False, True, False, True, False, True, 0, 1, [False, False, False], "'<' not supported between instances of"])
def comparisons_with_what_is_no_tensor(lib: Any) -> Any:
    t = leaf(lib, 1, 2)
    found = [t == None, t != None, None in [t], t in [t], t == "a", t != "a", [t].index(t), [None, t].count(None)]  # noqa: E711, FURB171
    others = [t == one for one in (object, {}, "b")]
    return [*found, others, complaint(lambda: t < None, TypeError).split(" 'T")[0]]


@pytest.mark.quick
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program(program: Any, expected: Any) -> None:
    assert program(tape) == expected


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program_with_pytorch(pytorch: Outcomes, program: Any, expected: Any) -> None:
    assert pytorch(program, program.__name__) == expected


def test_an_argument_of_a_program_is_not_turned() -> None:
    with pytest.raises(NotImplementedError, match="transpose_ of an argument"):
        tape.record(lambda a: a.transpose_(0, 1) * 2, np.ones((2, 3)))


def test_a_result_within_a_program_is_turned() -> None:
    program = tape.record(lambda a: (a * 2).transpose_(0, 1) + 1, np.arange(6.0).reshape(2, 3))
    assert program(np.ones((2, 3))).tolist() == [[3, 3]] * 3
