"""Dual tensors: each program runs with both libraries and finds the same."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import tape
from tests.conventions.test_autograd_conventions import complaint, leaf
from tests.support.pytorch_outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS: list[Any] = []


def both(expected: Any) -> Callable[[Any], Any]:
    """File a program of both libraries, and of their forward_ad, with what it finds."""

    def add(program: Any) -> Any:
        PROGRAMS.append(pytest.param(program, expected, id=program.__name__))
        return program

    return add


def plain(lib: Any, *values: Any) -> Any:
    return lib.tensor(list(values), dtype=lib.float64)


@both([[6, 20], [9, 16], None, False, None])
def tangents_of_a_square(lib: Any, ad: Any) -> Any:
    x, t = plain(lib, 3, 4), plain(lib, 1, 2.5)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        y = dual * dual
        primal, tangent = ad.unpack_dual(y)
        other = ad.unpack_dual(x).tangent
    return [tangent.tolist(), primal.tolist(), other, primal.requires_grad, ad.unpack_dual(y).tangent]


@both([[5, 5], 14, [2, 2]])
def tangents_through_views_products_and_writes(lib: Any, ad: Any) -> Any:
    x, t, w = plain(lib, 1, 2), plain(lib, 1, 1), plain(lib, 2, 3)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        added = dual * w.sum()
        v = dual * w
        v[:1] = dual[1:] * 4
        total = (v * plain(lib, 2, 2)).sum()
        shown = ad.unpack_dual(dual.reshape(2, 1).expand(2, 1).sum(1) + dual).tangent.tolist()
        return [ad.unpack_dual(added).tangent.tolist(), ad.unpack_dual(total).tangent.item(), shown]


@both([[12, 24], [3, 12], [2, 4]])
def gradients_of_tangents(lib: Any, ad: Any) -> Any:
    x, t = leaf(lib, 1, 2), leaf(lib, 2, 2)
    with ad.dual_level():
        tangent = ad.unpack_dual(ad.make_dual(x, t) ** 3).tangent
        by_x, by_t = lib.autograd.grad(tangent.sum(), (x, t))
    (g,) = lib.autograd.grad((x * x).sum(), x)
    return [by_x.tolist(), by_t.tolist(), g.tolist()]


@both([[3, 3], [4, 4]])
def duals_of_a_level_under_no_grad(lib: Any, ad: Any) -> Any:
    x, t = plain(lib, 1, 2), plain(lib, 1, 1)
    with lib.no_grad(), ad.dual_level():
        dual = ad.make_dual(x, t)
        again = ad.make_dual(ad.unpack_dual(dual * 2).primal, t * 4)
        return [ad.unpack_dual(dual * 3).tangent.tolist(), ad.unpack_dual(again).tangent.tolist()]


@both([[7, 14], [0, 0]])
def tangents_of_a_function(lib: Any, ad: Any) -> Any:
    class Fn(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_forward(x)
            return x * 7

        @staticmethod
        def jvp(_: Any, t: Any) -> Any:
            return t * 7

    with ad.dual_level():
        dual = ad.make_dual(plain(lib, 1, 2), plain(lib, 1, 2))
        zero = ad.unpack_dual(dual * 0).tangent
        return [ad.unpack_dual(Fn.apply(dual)).tangent.tolist(), zero.tolist()]


@both(
    [
        "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.",
        "Nested forward mode AD is not supported at the moment",
        "Expected primal to be floating point or complex, but got",
        True,
        "Trying to exit a forward AD level that was not the last one that was created. This is not supported.",
    ]
)
def what_is_refused(lib: Any, ad: Any) -> Any:
    x = plain(lib, 1, 2)
    found = [complaint(lambda: ad.make_dual(x, x)).split(" (")[0]]
    with ad.dual_level():
        found.append(complaint(ad.enter_dual_level).split(".")[0])
        found.append(complaint(lambda: ad.make_dual(lib.tensor([1]), x), ValueError))
        found.append(complaint(lambda: ad.make_dual(x, plain(lib, 1))) != "nothing raised")
    return [*found, complaint(lambda: ad.exit_dual_level(level=3))[:101]]


@pytest.mark.quick
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program(program: Any, expected: Any) -> None:
    assert program(tape, tape.autograd.forward_ad) == expected


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program_with_pytorch(pytorch: Outcomes, program: Any, expected: Any) -> None:
    found = pytorch(lambda torch: program(torch, import_module("torch.autograd.forward_ad")), program.__name__)
    assert found == expected


def test_the_tangent_that_was_given_is_unpacked() -> None:
    """What is written to it, the dual carries, as PyTorch's; a dual that was written to has another."""
    forward_ad, tangent = tape.autograd.forward_ad, tape.tensor([1.0, 1.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tape.tensor([1.0, 2.0]), tangent)
        assert forward_ad.unpack_dual(dual).tangent is tangent
        tangent.mul_(5.0)
        assert forward_ad.unpack_dual(dual * 3).tangent.tolist() == [15.0, 15.0]
        dual.mul_(2.0)
        assert forward_ad.unpack_dual(dual).tangent.tolist() == [10.0, 10.0]
