"""Hooks: each program runs with both sweeps of ours and with PyTorch, and is to find what stands above it.

A program takes the library under test and returns lists and numbers. Where we differ on purpose, it stands in the
last section with a reason, and PyTorch must not find the same.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.sweeps import reverse
from tests.support.pytorch_outcomes import Outcomes, Raised

if TYPE_CHECKING:
    from conftest import Fresh

Program = Callable[[Any], Any]
PROGRAMS: list[Any] = []
DEVIATIONS: list[Any] = []


def declare(table: list[Any], *values: Any) -> Callable[[Program], Program]:
    """File a program under its name, with what goes with it."""

    def add(program: Program) -> Program:
        table.append(pytest.param(program, *values, id=program.__name__))
        return program

    return add


def both(expected: Any) -> Callable[[Program], Program]:
    """Declare a program of both libraries and what it finds."""
    return declare(PROGRAMS, expected)


def ours(expected: Any, why: str) -> Callable[[Program], Program]:
    """Declare a program that finds this with ours and something else, or an error, with PyTorch."""
    return declare(DEVIATIONS, expected, why)


def leaf(lib: Any, *values: Any) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def listed(*tensors: Any) -> Any:
    """Return the values of tensors; None for what is none."""
    found = [None if one is None else one.tolist() for one in tensors]
    return found[0] if len(found) == 1 else found


def logging_to(seen: list[Any], name: Any, change: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    """Return a hook that notes the gradient it sees, and returns a changed one."""

    def hook(gradient: Any) -> Any:
        seen.append((name, gradient.tolist()))
        return None if change is None else change(gradient)

    return hook


def complaint(function: Callable[[], Any], kind: type[BaseException] = RuntimeError) -> str:
    """Return the first words of what a call raises: those before a colon, or before PyTorch's details."""
    try:
        function()
    except kind as error:
        return str(error).split(" (")[0].split(":")[0]
    return "nothing raised"


# --- of tensors ---


@both(([("a", [6, 12]), ("b", [12, 24]), ("c", [12, 24])], [39, 75]))
def hooks_run_in_order_and_replace(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * 3
    y.register_hook(logging_to(seen, "a", lambda g: g * 2))
    y.register_hook(logging_to(seen, "b"))
    y.register_hook(logging_to(seen, "c", lambda g: g + 1))
    (y * y).sum().backward()
    return seen, listed(x.grad)


@both(([("x", [5, 7]), ("x", [1, 1])], [12, 16]))
def hook_of_a_leaf_sees_one_gradient_a_backward(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_hook(logging_to(seen, "x", lambda g: g * 2))
    (x * x + x * 3).sum().backward()
    (x + 1).sum().backward()
    return seen, listed(x.grad)


@both(([("b", [1, 1])], [2, 2]))
def removed_hook_is_not_called(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x + 1
    first, second = y.register_hook(logging_to(seen, "a")), y.register_hook(logging_to(seen, "b"))
    first.remove()
    first.remove()
    y.sum().backward()
    second.remove()
    y.sum().backward()
    return seen, listed(x.grad)


@both([("a", [1, 1])])
def handle_is_a_context(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x + 1
    with y.register_hook(logging_to(seen, "a")) as handle:
        y.sum().backward()
    y.sum().backward()
    handle.remove()
    return seen


@both(("RemovableHandle", True))
def handles_have_numbers(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one, other = x.register_hook(lambda _: None), (x * 2).register_hook(lambda _: None)
    return type(one).__name__, one.id != other.id


@both(["a", "b", "a"])
def hook_removed_by_a_hook_before_it_runs_once_more(lib: Any) -> Any:
    x, seen, handles = leaf(lib, 1, 2), [], []
    y = x + 1

    def remove(_: Any) -> None:
        seen.append("a")
        handles[0].remove()

    y.register_hook(remove)
    handles.append(y.register_hook(lambda _: seen.append("b")))
    y.sum().backward()
    y.sum().backward()
    return seen


@both(["a", "|", "a", "b"])
def hook_added_by_a_hook_runs_the_next_time(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x + 1

    def add(_: Any) -> None:
        seen.append("a")
        y.register_hook(lambda _: seen.append("b"))

    y.register_hook(add)
    y.sum().backward()
    seen.append("|")
    y.sum().backward()
    return seen


@both([8, 8])
def the_same_hook_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * 2
    for _ in range(2):
        y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return listed(x.grad)


@both(([("y", [1, 1]), ("y", [1, 1]), ("y", [2, 2])], [8, 16]))
def each_backward_through_a_retained_graph_calls(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    y.register_hook(logging_to(seen, "y"))
    y.sum().backward(retain_graph=True)
    y.sum().backward(retain_graph=True)
    (y + y).sum().backward()
    return seen, listed(x.grad)


@both(([("y", [3, 3])], [12, 12]))
def hook_outlives_its_tensor(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * 2
    y.register_hook(logging_to(seen, "y", lambda g: g * 2))
    z = y * 3
    del y
    z.sum().backward()
    return seen, listed(x.grad)


@both([])
def hook_that_no_gradient_reaches(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y, z = x * 3, x * 4
    z.register_hook(logging_to(seen, "z"))
    y.sum().backward()
    return seen


@both(["y", "x"])
def hooks_off_the_way_to_the_inputs_are_not_called(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 1, 1), []
    y, z = x * 3, w * 4
    for name, one in (("z", z), ("y", y), ("x", x), ("w", w)):
        one.register_hook(lambda _, name=name: seen.append(name))
    lib.autograd.grad((y * z).sum(), x)
    return seen


@both(([("root", 1)], [4, 8]))
def hook_of_the_root(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = (x * x).sum()
    y.register_hook(logging_to(seen, "root", lambda g: g * 2))
    y.backward()
    return seen, listed(x.grad)


@both([2])
def hook_of_a_leaf_that_is_the_root(lib: Any) -> Any:
    x = leaf(lib, 1)
    x.register_hook(lambda g: g * 2)
    x.backward()
    return listed(x.grad)


@both(([("y", [4, 6])], [80, 120]))
def hook_sees_the_sum_over_roots(lib: Any) -> Any:
    x, seen = leaf(lib, 0.5, 1), []
    y = x * 2
    y.register_hook(logging_to(seen, "y", lambda g: g * 10))
    lib.autograd.backward([y.sum(), (y * y).sum(), y], [None, None, lib.ones(2, dtype=lib.float64)])
    return seen, listed(x.grad)


@both([[1, 1], [2, 2]])
def gradients_that_a_hook_kept_stay_as_they_were(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    y.register_hook(seen.append)
    y.sum().backward(retain_graph=True)
    (y * 2).sum().backward()
    return listed(*seen)


@both([[2, 2], [2, 2], [4, 4]])
def gradients_that_a_hook_of_a_leaf_kept_stay_as_they_were(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_hook(seen.append)
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return listed(*seen, x.grad)


@both([[14, 16], [7, 8]])
def constant_that_a_hook_returns_stays_as_it_was(lib: Any) -> Any:
    x, constant = leaf(lib, 1, 2), lib.tensor([7.0, 8.0], dtype=lib.float64)
    x.register_hook(lambda _: constant)
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return listed(x.grad, constant)


@both([8, 8])
def hook_may_return_an_expanded_tensor(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    x.register_hook(lambda g: g.sum().expand(2))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return listed(x.grad)


@both([20, 40])
def hook_that_writes_to_its_argument(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x

    def hook(g: Any) -> None:
        g.mul_(5)

    y.register_hook(hook)
    (y + y).sum().backward()
    return listed(x.grad)


@both(([(False, True, None)], [2, 4]))
def gradient_is_a_leaf_without_history(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    y.register_hook(lambda g: seen.append((g.requires_grad, g.is_leaf, g.grad_fn)))
    y.sum().backward()
    return seen, listed(x.grad)


@both(([(False, False), (False, False)], [18, 144], False))
def nothing_is_recorded_in_a_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x

    def hook(g: Any) -> Any:
        seen.append((lib.is_grad_enabled(), (g * x).requires_grad))
        return g * x

    y.register_hook(hook)
    x.register_hook(hook)
    (y * 9).sum().backward()
    return seen, listed(x.grad), x.grad.requires_grad


@both([[1, 1]])
def hook_sees_no_negative_zero_where_a_select_cut(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 4), []
    root = lib.sqrt(x)
    root.register_hook(lambda g: seen.append([math.copysign(1, value) for value in g.tolist()]))
    lib.where(x > 2, root, x).sum().backward()
    return seen


@both(([((), 3)], 48))
def hook_of_a_number(lib: Any) -> Any:
    x = lib.tensor(4.0, dtype=lib.float64, requires_grad=True)
    y, seen = x * x, []

    def double(g: Any) -> Any:
        seen.append((tuple(g.shape), g.item()))
        return g * 2

    y.register_hook(double)
    (y * 3).backward()
    return seen, x.grad.item()


@both([(0, 3), (0, 3)])
def hook_of_nothing(lib: Any) -> Any:
    x = lib.zeros(0, 3, dtype=lib.float64, requires_grad=True)
    y, seen = x * x, []
    y.register_hook(lambda g: seen.append(tuple(g.shape)))
    y.sum().backward()
    return [*seen, tuple(x.grad.shape)]


@both(["float64", "float32"])
def gradients_have_the_dtype_of_their_tensor(lib: Any) -> Any:
    x = lib.tensor([1.0, 2.0], dtype=lib.float32, requires_grad=True)
    y, seen = x.double(), []
    for one in (x, y):
        one.register_hook(lambda g: seen.append(str(g.dtype).removeprefix("torch.")))
    y.sum().backward()
    return seen


@both([[("x", [2, 2])], [2, 2], None])
def detached_tensors_have_hooks_of_their_own(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    other = x.detach().requires_grad_()
    other.register_hook(logging_to(seen, "x"))
    (other * 2).sum().backward()
    return [seen, listed(other.grad), listed(x.grad)]


@both([[("x", [2, 4])], [2, 4]])
def hooks_of_a_leaf_outlive_a_change_of_its_flag(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_hook(logging_to(seen, "x"))
    x.requires_grad_(False)
    x.requires_grad_(True)
    (x * x).sum().backward()
    return [seen, listed(x.grad)]


@both([2, 10])
def clipped(lib: Any) -> Any:
    x = leaf(lib, 1, 5)
    y = x * x
    limit = lib.tensor(1.0, dtype=lib.float64)
    y.register_hook(lambda g: lib.where(g > limit, limit, g))
    (y * y).sum().backward()
    return listed(x.grad)


# --- of results of every family ---


@both(([("m", [1, 1, 2])], [4, 0, 0]))
def hook_of_an_expanded_number(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    e, seen = x[0].expand(3), []
    e.register_hook(logging_to(seen, "m"))
    (e * lib.tensor([1.0, 1.0, 2.0], dtype=lib.float64)).sum().backward()
    return seen, listed(x.grad)


@both(([("e", [[2, 4], [2, 4], [2, 4]])], [12, 24]))
def hook_of_an_expanded_leaf(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    e = x.expand(3, 2)
    e.register_hook(logging_to(seen, "e", lambda g: g * 2))
    (e * e).sum().backward()
    return seen, listed(x.grad)


@both(([("m", 3)], [0, 6, 6]))
def hook_of_a_reduction(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 3, 3), []
    m = x.max()
    m.register_hook(logging_to(seen, "m", lambda g: g * 4))
    (m * 3).backward()
    return seen, listed(x.grad)


@both(([("m", 1)], [0, 4, 0]))
def hook_of_a_select(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 5, 3), []
    m = x.max(0)[0]
    m.register_hook(logging_to(seen, "m", lambda g: g * 4))
    m.backward()
    return seen, listed(x.grad)


@both(([("c", [2, 10, 4, 20])], [26, 180]))
def hook_of_a_join(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 5), []
    c = lib.cat([x, x * 2])
    weights = lib.tensor([1.0, 2.0, 3.0, 4.0], dtype=lib.float64)
    c.register_hook(logging_to(seen, "c", lambda g: g * weights))
    (c * c).sum().backward()
    return seen, listed(x.grad)


@both(([("v", [2, 2, 6])], [6, 0, 18]))
def hook_of_an_indexed_tensor(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    v = x[lib.tensor([0, 0, 2])]
    weights = lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64)
    v.register_hook(logging_to(seen, "v", lambda g: g * weights))
    (v * v).sum().backward()
    return seen, listed(x.grad)


@both(([("m", [[1, 1], [1, 1]])], [[6, 10], [6, 10]]))
def hook_of_a_product_of_matrices(lib: Any) -> Any:
    x, seen = leaf(lib, [0, 1], [2, 1]), []
    m = x @ x
    m.register_hook(logging_to(seen, "m", lambda g: g * 2))
    m.sum().backward()
    return seen, listed(x.grad)


@both(([("a", 10)], [60, 4]))
def hook_of_one_of_the_parts(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 5), []
    a, b = x * 2
    a.register_hook(logging_to(seen, "a", lambda g: g * 3))
    (a * b).backward()
    return seen, listed(x.grad)


# --- of views ---


@both(([("v", [4, 6]), ("y", [1, 41, 61])], [3, 123, 183]))
def hook_of_a_view_then_of_its_base(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2 / 3, 1), []
    y = x * 3
    v = y[1:]
    v.register_hook(logging_to(seen, "v", lambda g: g * 10))
    y.register_hook(logging_to(seen, "y"))
    ((v * v).sum() + y.sum()).backward()
    return seen, listed(x.grad)


@both(([("v", [4, 6]), ("x", [1, 41, 61])], [1, 41, 61]))
def hook_of_a_view_of_a_leaf(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    v = x[1:]
    v.register_hook(logging_to(seen, "v", lambda g: g * 10))
    x.register_hook(logging_to(seen, "x"))
    ((v * v).sum() + x.sum()).backward()
    return seen, listed(x.grad)


@both(
    (
        [
            ("t", [4, 6]),
            ("u", [[8, 0], [12, 0]]),
            ("v", [[0, 0], [16, 0], [24, 0]]),
            ("y", [[0, 32, 48], [0, 0, 0]]),
        ],
        [[0, 64, 96], [0, 0, 0]],
    )
)
def hooks_of_a_chain_of_views(lib: Any) -> Any:
    x, seen = leaf(lib, [1, 2, 3], [4, 5, 6]), []
    y = x * 1
    v = y.T
    u = v[1:]
    t = u[:, 0]
    for name, one in (("t", t), ("v", v), ("y", y), ("u", u)):
        one.register_hook(logging_to(seen, name, lambda g: g * 2))
    (t * t).sum().backward()
    return seen, listed(x.grad)


# --- of written tensors ---


@both(([("after", [1, 1, 1]), ("before", [3, 3, 3])], [6, 6, 6]))
def hook_stays_with_its_version(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    y = x + 1
    y.register_hook(logging_to(seen, "before", lambda g: g * 2))
    y.mul_(3)
    y.register_hook(logging_to(seen, "after"))
    y.sum().backward()
    return seen, listed(x.grad)


@both(([("after", [4, 10, 8]), ("before", [5, 0, 9])], [10, 0, 18], [11]))
def hook_of_a_version_sees_nothing_where_the_next_was_written(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2, 3), leaf(lib, 5), []
    y = x + 1
    y.register_hook(logging_to(seen, "before", lambda g: g * 2))
    y[1:2] = w
    y.register_hook(logging_to(seen, "after", lambda g: g + 1))
    (y * y).sum().backward()
    return seen, listed(x.grad), listed(w.grad)


@both(([("after", [2, 4, 12]), ("before", [0, 12, 0])], [0, 24, 0], [6, 36]))
def hooks_around_a_write_by_index_arrays(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2, 3), leaf(lib, 1, 6), []
    y = x * 1
    y.register_hook(logging_to(seen, "before", lambda g: g * 2))
    y[lib.tensor([0, 2])] = w
    y.register_hook(logging_to(seen, "after", lambda g: g * 3))
    (y * y).sum().backward()
    return seen, listed(x.grad), listed(w.grad)


@both([[12, 18, 24], [36, 54, 72]])
def retain_grad_follows_the_tensor(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x + 1
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return listed(y.grad, x.grad)


@both([[12, 18, 24], [36, 54, 72], None])
def inputs_follow_the_tensor(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x + 1
    y.mul_(3)
    found = lib.autograd.grad((y * y).sum(), [y, x])
    return listed(*found, x.grad)


@both([[6, 6, 6], [6, 6, 6]])
def retain_grad_comes_after_all_hooks(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x + 1
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    return listed(y.grad, x.grad)


@both([[1, 1], [20, 20]])
def leaf_written_in_a_hook(lib: Any) -> Any:
    x = leaf(lib, 2, 2)
    y = x + 3

    def grow(_: Any) -> None:
        with lib.no_grad():
            x.mul_(10)

    y.register_hook(grow)
    y.sum().backward()
    return listed(x.grad, x)


@both([[("x", [10, 4, 6])], [10, 4, 6]])
def hook_of_a_leaf_that_is_written(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    x.register_hook(logging_to(seen, "x"))
    with lib.no_grad():
        x[0] = 5.0
    (x * x).sum().backward()
    return [seen, listed(x.grad)]


# --- with grad and inputs= ---


@both([[4, 8, 12], None])
def grad_of_a_leaf_with_a_hook(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    x.register_hook(lambda g: g * 2)
    return listed(*lib.autograd.grad((x * x).sum(), x), x.grad)


@both([[("y", [3, 3])], [6, 6]])
def grad_of_a_computed_tensor_with_a_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    y.register_hook(logging_to(seen, "y", lambda g: g * 2))
    (found,) = lib.autograd.grad((y * 3).sum(), y)
    return [seen, listed(found)]


@both([[("y", [3, 3])], [6, 6], None])
def inputs_is_a_computed_tensor_with_a_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    y.register_hook(logging_to(seen, "y", lambda g: g * 2))
    (y * 3).sum().backward(inputs=[y])
    return [seen, listed(y.grad), listed(x.grad)]


@both([[("v", [3, 3])], [6, 6]])
def grad_of_a_view_with_a_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    v = (x * x)[1:]
    v.register_hook(logging_to(seen, "v", lambda g: g * 2))
    (found,) = lib.autograd.grad((v * 3).sum(), v)
    return [seen, listed(found)]


@both(["x", "post x"])
def backward_with_inputs_calls_the_hooks_of_these(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 1, 1), []
    for name, one in (("x", x), ("w", w)):
        one.register_hook(lambda _, name=name: seen.append(name))
        one.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(f"post {name}"))
    (x * w).sum().backward(inputs=[x])
    return seen


# --- after accumulation ---


@both([(True, [2, 4]), (True, [5, 7])])
def post_hook_sees_what_has_accumulated(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    (x * x).sum().backward()
    (x * 3).sum().backward()
    return seen


@both(["hook 1", "hook 2", "post 1", "post 2"])
def post_hooks_come_after_hooks(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    for k in (1, 2):
        x.register_post_accumulate_grad_hook(lambda _, k=k: seen.append(f"post {k}"))
        x.register_hook(lambda _, k=k: seen.append(f"hook {k}"))
    (x * x).sum().backward()
    return seen


@both([])
def grad_calls_no_post_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_post_accumulate_grad_hook(lambda _: seen.append("post"))
    lib.autograd.grad((x * x).sum(), x)
    return seen


@both([[0.125, 0.25], None])
def optimiser_in_a_hook(lib: Any) -> Any:
    x = leaf(lib, 1, 2)

    def step(t: Any) -> None:
        with lib.no_grad():
            t -= 0.25 * t.grad
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (x * x).sum().backward()
    return listed(x, x.grad)


@both([[0.125, 0.25], [0.25, 0.5]])
def optimiser_in_a_hook_that_zeroes(lib: Any) -> Any:
    x = leaf(lib, 1, 2)

    def step(t: Any) -> None:  # gradients are off in a hook
        t.sub_(0.25 * t.grad)
        t.grad.zero_()

    handle = x.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (x * x).sum().backward()
    handle.remove()
    (x * x).sum().backward()
    return listed(x, x.grad)


@both([[0.25], [[1.0, 0.5]]])
def one_optimiser_for_two_leaves(lib: Any) -> Any:
    x, w = leaf(lib, 0.5), leaf(lib, [2, 1])

    def step(t: Any) -> None:
        t.sub_(t.grad)
        t.grad = None

    for one in (x, w):
        one.register_post_accumulate_grad_hook(step)
    ((x * x).sum() / 4 + (w * w).sum() / 4).backward()
    return listed(x, w)


@both(
    [
        "cannot register a hook on a tensor that doesn't require gradient",
        "cannot register a hook on a tensor that doesn't require gradient",
        "post accumulate grad hooks cannot be registered on non-leaf tensors",
    ]
)
def tensors_that_take_no_hooks(lib: Any) -> Any:
    x, y = lib.ones(2), leaf(lib, 1) * 2
    registering = x.register_hook, x.register_post_accumulate_grad_hook, y.register_post_accumulate_grad_hook
    return [complaint(lambda register=register: register(lambda _: None)) for register in registering]


# --- of nodes ---


@both(([("before", [[3, 3]]), ("after", [[6, 9], [3, 6]], [[3, 3]])], [[6, 9], [3, 6]]))
def hooks_around_a_node(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 2, 3), []
    y = x * w
    y.grad_fn.register_hook(lambda i, o: seen.append(("after", listed(*i), [listed(*o)])))
    y.grad_fn.register_prehook(lambda o: seen.append(("before", [listed(*o)])))
    (y * 3).sum().backward()
    return seen, listed(x.grad, w.grad)


@both(["tensor", "before", "after"])
def hooks_of_the_tensor_come_before_those_of_its_node(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x.exp()
    y.grad_fn.register_hook(lambda _i, _o: seen.append("after"))
    y.grad_fn.register_prehook(lambda _: seen.append("before"))
    y.register_hook(lambda _: seen.append("tensor"))
    y.sum().backward()
    return seen


@both([[120, 160], [8, 16]])
def node_hooks_replace(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = x * w
    y.grad_fn.register_hook(lambda i, _: (i[0] * 10, i[1] * 2))
    y.grad_fn.register_prehook(lambda o: (o[0] * 2,))
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    return [listed(x.grad), listed(w.grad)]


@both([[30, 40], None])
def node_hook_that_returns_none_for_an_input(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = x * w
    y.grad_fn.register_hook(lambda i, _: (i[0] * 10, None))
    y.sum().backward()
    return listed(x.grad, w.grad)


@both(([[[3, 4], None]], [3, 4]))
def node_with_a_constant(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * lib.tensor([3.0, 4.0], dtype=lib.float64)
    y.grad_fn.register_hook(lambda i, _: seen.append(listed(*i)))
    y.sum().backward()
    return seen, listed(x.grad)


@both(([[[1, 1, 1], 1]], [4, 12, 24]))
def node_of_a_reduction(lib: Any) -> Any:
    x, seen = leaf(lib, 2, 3, 4), []
    y = (x * x).sum()

    def spread(i: Any, o: Any) -> Any:
        seen.append(listed(*i, *o))
        return (i[0] * lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64),)

    y.grad_fn.register_hook(spread)
    y.backward()
    return seen, listed(x.grad)


@both(([([[0, 4, 6]], [[4, 6]])], [2, 18, 26]))
def node_of_a_view(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    y = x * 2
    v = y[1:]

    def twice(i: Any, o: Any) -> Any:
        seen.append(([listed(*i)], [listed(*o)]))
        return (i[0] * 2 + 1,)

    v.grad_fn.register_hook(twice)
    (v * v / 2).sum().backward()
    return seen, listed(x.grad)


@both(([([[[1, 3], [1, 3]], [[2, 2], [2, 2]]], [[1, 1], [1, 1]])], [[2, 6], [2, 6]]))
def node_of_a_product_of_matrices(lib: Any) -> Any:
    x, seen = leaf(lib, [0, 1], [2, 1]), []
    y = x @ x

    def left(i: Any, o: Any) -> Any:
        seen.append((listed(*i), listed(*o)))
        return i[0] * 2, i[1] * 0

    y.grad_fn.register_hook(left)
    y.sum().backward()
    return seen, listed(x.grad)


@both(([[[1, 2], [3, 4]]], [2, 4]))
def node_of_a_join(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = lib.cat([x, x * 2])

    def first(i: Any, _: Any) -> Any:
        seen.append(listed(*i))
        return i[0] * 2, i[1] * 0

    y.grad_fn.register_hook(first)
    (y * lib.tensor([1.0, 2.0, 3.0, 4.0], dtype=lib.float64)).sum().backward()
    return seen, listed(x.grad)


@both([("node", [7, 7])])
def node_found_through_the_graph(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = (x * 7 + 1).sum()
    product = y.grad_fn.next_functions[0][0].next_functions[0][0]
    product.register_hook(lambda i, _: seen.append(("node", listed(i[0]))))
    y.backward()
    return seen


@both(([("tensor", [2, 2]), ("before", [2, 2]), ("post", [10, 10]), ("after", 0, [10, 10])], [10, 10]))
def hooks_of_a_leaf_and_of_its_node(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * 2

    def before(o: Any) -> Any:
        seen.append(("before", listed(*o)))
        return (o[0] * 5,)

    node = y.grad_fn.next_functions[0][0]
    node.register_hook(lambda i, o: seen.append(("after", len(i), listed(*o))))
    node.register_prehook(before)
    x.register_hook(logging_to(seen, "tensor"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("post", listed(t.grad))))
    y.sum().backward()
    return seen, listed(x.grad)


@both(
    [
        "hook 'one_too_few' has returned an incorrect number of values",
        "hook 'wrong_size' has changed the size of value",
        "hook 'nothing_at_all' has returned an incorrect number of values",
        [3, 4],
    ]
)
def node_hooks_that_return_what_does_not_fit(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = x * w

    def one_too_few(i: Any, _: Any) -> Any:
        return (i[0],)

    def wrong_size(i: Any, _: Any) -> Any:
        return i[0][:1], i[1]

    def nothing_at_all(_: Any) -> Any:
        return ()

    register = y.grad_fn.register_hook, y.grad_fn.register_hook, y.grad_fn.register_prehook
    found = []
    for to, hook in zip(register, (one_too_few, wrong_size, nothing_at_all), strict=True):
        with to(hook):
            found.append(complaint(lambda: y.sum().backward(retain_graph=True)))
    y.sum().backward()
    return [*found, listed(x.grad)]


# --- of several tensors ---


@both([[[1, 1], [1, 1], None], [[1, 1], [1, 1], [1, 1]], [None, None, [1, 1]]])
def hook_of_all(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    a, b, c = x + 2, x + 3, x + 4
    handle = lib.autograd.graph.register_multi_grad_hook((a, b, c), lambda all_: seen.append(listed(*all_)))
    (a + b).sum().backward()
    (a + b + c).sum().backward()
    c.sum().backward()
    handle.remove()
    (a + b + c).sum().backward()
    return seen


@both([[1, 1], [2, 2]])
def hook_of_any(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    a, b, c = x + 2, x + 3, x + 4
    handle = lib.autograd.graph.register_multi_grad_hook((a, b, c), lambda g: seen.append(listed(g)), mode="any")
    b.sum().backward()
    (c * 2).sum().backward()
    handle.remove()
    (a + b + c).sum().backward()
    return seen


@both([[[5, 6], [1, 2]], [[2, 2], None]])
def hook_of_all_leaves(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 5, 6), []
    lib.autograd.graph.register_multi_grad_hook((x, w), lambda all_: seen.append(listed(*all_)))
    (x * w).sum().backward()
    (x * 2).sum().backward()
    return seen


@both(["Expects mode to be one of", 2])
def hook_of_all_as_a_context(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    a, b = x + 2, x + 3
    register = lib.autograd.graph.register_multi_grad_hook
    refused = complaint(lambda: register((a, b), lambda _: None, mode="some"), ValueError)
    with register((a, b), lambda all_: seen.append(len(all_))):
        (a + b).sum().backward()
    (a + b).sum().backward()
    return [refused, *seen]


@both([1, "raised", 1])
def hook_of_all_that_raises(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    a, b = x + 2, x + 3

    def hook(_: Any) -> None:
        seen.append(1)
        if len(seen) == 1:
            raise ValueError

    lib.autograd.graph.register_multi_grad_hook((a, b), hook)
    for _ in range(2):
        try:
            (a + b).sum().backward()
        except ValueError:
            seen.append("raised")
    return seen


# --- a backward in a hook ---


@both((["off", [6, 8]], [12, 24], [6, 8]))
def backward_in_a_hook(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    y = x * x

    def hook(g: Any) -> Any:
        seen.append("on" if lib.is_grad_enabled() else "off")
        with lib.enable_grad():
            loss = (w * w).sum()
        loss.backward()
        seen.append(listed(w.grad))
        return g * 2

    y.register_hook(hook)
    (y * 3).sum().backward()
    return seen, listed(x.grad), listed(w.grad)


@both(([[2, 4]], [6, 12]))
def grad_of_the_same_graph_in_a_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    z = y * 3

    def hook(_: Any) -> None:
        with lib.enable_grad():
            total = y.sum()
        seen.append(listed(*lib.autograd.grad(total, x, retain_graph=True)))

    z.register_hook(hook)
    z.sum().backward()
    return seen, listed(x.grad)


@both(([[5, 5]], [11, 17]))
def backward_in_a_hook_adds_to_the_same_leaf(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    z = x * x * 3

    def hook(_: Any) -> None:
        with lib.enable_grad():
            loss = (x * 5).sum()
        loss.backward()
        seen.append(listed(x.grad))

    z.register_hook(hook)
    z.sum().backward()
    return seen, listed(x.grad)


@both(([(3, [1, 1]), (2, [1, 1]), (1, [1, 1]), (0, [1, 1])], [16, 20]))
def backwards_in_hooks_of_backwards_in_hooks(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []

    def hook_of(depth: int) -> Callable[[Any], Any]:
        def hook(g: Any) -> Any:
            seen.append((depth, listed(g)))
            if depth:
                with lib.enable_grad():
                    y = x * depth
                    y.register_hook(hook_of(depth - 1))
                    loss = y.sum()
                loss.backward()
            return g * 2

        return hook

    y = x * x
    y.register_hook(hook_of(3))
    y.sum().backward()
    return seen, listed(x.grad)


@both(([[2, 4]], [2, 4]))
def backward_in_a_hook_of_a_leaf(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 1, 1), []

    def hook(g: Any) -> None:
        with lib.enable_grad():
            loss = (w * g).sum()
        loss.backward()
        seen.append(listed(w.grad))

    x.register_hook(hook)
    (x * x).sum().backward()
    return seen, listed(x.grad)


@both(([[2, 4]], [2, 4]))
def backward_after_accumulation(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 1, 1), []

    def hook(t: Any) -> None:
        with lib.enable_grad():
            loss = (w * t.grad).sum()
        loss.backward()
        seen.append(listed(w.grad))

    x.register_post_accumulate_grad_hook(hook)
    (x * x).sum().backward()
    return seen, listed(x.grad)


@both([["caught"], [8, 64, 216], True])
def backward_that_fails_in_a_hook(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    a = x * x

    def hook(g: Any) -> Any:
        with lib.enable_grad():
            b = x * 3
            b.register_hook(lambda _: math.log(0))
            loss = b.sum()
        with contextlib.suppress(ValueError):
            loss.backward()
            seen.append("not raised")
        seen.append("caught")
        return g * 2

    a.register_hook(hook)
    (a * a).sum().backward()
    return [seen, listed(x.grad), lib.is_grad_enabled()]


# --- exceptions ---


def _failing(*_: Any) -> None:
    raise ValueError("boom")


@both(["boom", None, None, [5, 7], True])
def exception_in_a_hook_passes_and_changes_nothing(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 3)
    a = x * w
    a.register_hook(_failing)
    raised = complaint(lambda: (a * a).sum().backward(), ValueError)
    before = listed(x.grad, w.grad)
    (x * w + x * x).sum().backward()
    return [raised, *before, listed(x.grad), lib.is_grad_enabled()]


@both(["boom", [4, 32], [1, 8]])
def exception_in_a_hook_of_a_retained_graph(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 1, 1)
    a = x * x
    y = (a * a).sum()
    with a.register_hook(_failing):
        raised = complaint(lambda: (y + w.sum()).backward(retain_graph=True), ValueError)
    x.grad = w.grad = None
    y.backward()
    return [raised, listed(x.grad), [value**3 for value in listed(x)]]


@both(["boom", "boom", None, [4, 32]])
def exception_in_a_hook_of_a_node(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    a = x * x
    y, raised = (a * a).sum(), []
    for register in (a.grad_fn.register_hook, a.grad_fn.register_prehook):
        with register(_failing):
            raised.append(complaint(lambda: y.backward(retain_graph=True), ValueError))
    before = listed(x.grad)
    y.backward()
    return [*raised, before, listed(x.grad)]


@both(["boom", [12, 48]])
def exception_in_a_hook_of_a_recorded_backward(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    a = x * x
    y = (a * a).sum()
    with a.register_hook(_failing):
        raised = complaint(lambda: lib.autograd.grad(y, x, create_graph=True), ValueError)
    (first,) = lib.autograd.grad(y, x, create_graph=True)
    return [raised, listed(*lib.autograd.grad(first.sum(), x))]


@both(["boom", [2, 4], [5, 7]])
def exception_after_accumulation(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    with x.register_post_accumulate_grad_hook(_failing):
        raised = complaint(lambda: (x * x).sum().backward(), ValueError)
    before = listed(x.grad)
    (x * 3).sum().backward()
    return [raised, before, listed(x.grad)]


@both(["boom", [3, 3]])
def exception_in_a_hook_of_a_leaf(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    with x.register_hook(_failing):
        raised = complaint(lambda: (x * x).sum().backward(), ValueError)
    (x * 3).sum().backward()
    return [raised, listed(x.grad)]


@both(
    [
        "hook 'shorter' has changed the size of value",
        "hook 'shorter' has changed the size of value",
        "hook '<lambda>' has changed the size of value",
        "hook 'narrower' has changed the type of value",
        None,
    ]
)
def hooks_that_return_what_does_not_fit(lib: Any) -> Any:
    x = leaf(lib, 1, 2)

    def shorter(g: Any) -> Any:
        return g[:1]

    def narrower(g: Any) -> Any:
        return g.float()

    found = []
    for make, hook in (
        (lambda: x + 1, shorter),
        (lambda: x, shorter),
        (lambda: x + 1, lambda g: g.sum()),
        (lambda: x + 1, narrower),
    ):
        y = make()
        with y.register_hook(hook):
            found.append(complaint(lambda y=y: (y * 2).sum().backward()))
    return [*found, listed(x.grad)]


@both("TypeError")
def hook_that_returns_no_tensor(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * 2
    y.register_hook(lambda _: 3)
    try:
        y.sum().backward()
    except TypeError as error:
        return type(error).__name__


# --- under create_graph ---


@both(([(True, True)], [24, 768], [120, 1920]))
def hook_of_a_recorded_backward_sees_history(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x * x

    def hook(g: Any) -> Any:
        if not seen:
            seen.append((g.requires_grad, g.grad_fn is not None))
        return g * 4

    handle = y.register_hook(hook)
    (first,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
    handle.remove()
    (second,) = lib.autograd.grad(first.sum(), x)
    return seen, listed(first), listed(second)


@both(([True], [3, 24], [9, 36]))
def hook_of_a_leaf_is_differentiated_further(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    handle = x.register_hook(lambda g: g * x)
    (first,) = lib.autograd.grad((x**3).sum(), x, create_graph=True)
    handle.remove()
    seen.append(first.requires_grad)
    (second,) = lib.autograd.grad(first.sum(), x)
    return seen, listed(first), listed(second)


@both(([True, True, True], [3, 24], [9, 36]))
def hooks_of_a_backward_recorded_under_no_grad(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = (x**3).sum()

    def hook(g: Any) -> Any:
        seen.append(lib.is_grad_enabled())
        return g * x

    handles = [
        x.register_hook(hook),
        y.register_hook(lambda _: seen.append(lib.is_grad_enabled())),
        x.register_post_accumulate_grad_hook(lambda _: seen.append(lib.is_grad_enabled())),
    ]
    with lib.no_grad(), pytest.warns(UserWarning, match="reference cycle"):
        y.backward(create_graph=True)
    for handle in handles:
        handle.remove()
    first, x.grad = x.grad, None
    (second,) = lib.autograd.grad(first.sum(), x)
    return seen, listed(first), listed(second)


@both(([[True, True]], [6, 768], [42, 2688]))
def hooks_of_a_node_are_differentiated_further(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    square = x * x
    y = square * x

    def after(i: Any, _: Any) -> Any:
        seen.append([one.requires_grad for one in i])
        return tuple(one * x for one in i)

    with y.grad_fn.register_hook(after), y.grad_fn.register_prehook(lambda o: (o[0] * x,)):
        (first,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    return seen, listed(first), listed(second)


@both(([4, 136, 660], [4, 260, 868]))
def hooks_of_a_view_and_its_base_are_differentiated_further(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    v = y[1:]
    with v.register_hook(lambda g: g * x[1:]), y.register_hook(lambda g: g * 2):
        (first,) = lib.autograd.grad((v**2).sum() + y.sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    return listed(first), listed(second)


@both(([4, 136, 660], [4, 644, 3028]))
def hooks_of_a_view_and_its_base_are_called_in_both_backwards(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    v = y[1:]
    v.register_hook(lambda g: g * x[1:])
    y.register_hook(lambda g: g * 2)
    (first,) = lib.autograd.grad((v**2).sum() + y.sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    return listed(first), listed(second)


@both([[True, True]])
def hook_of_all_in_a_recorded_backward(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    a, b = x * x, x**3
    lib.autograd.graph.register_multi_grad_hook((a, b), lambda all_: seen.append([g.requires_grad for g in all_]))
    lib.autograd.grad((a * b).sum(), x, create_graph=True)
    return seen


@both(([2, 16], [6, 24]))
def hook_that_brings_in_more_of_the_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x + 1
    with y.register_hook(lambda g: g * x**3 * 2):
        (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    return listed(first), listed(*lib.autograd.grad(first.sum(), x))


# --- batches of cotangents ---


@both(([[2]], [[4, 0], [0, 8], [4, 8]]))
def hook_sees_the_rows_of_a_batch(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x

    def hook(g: Any) -> Any:
        seen.append(list(g.shape))
        return g * 2

    y.register_hook(hook)
    rows = lib.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=lib.float64)
    (found,) = lib.autograd.grad(y, x, rows, is_grads_batched=True)
    return seen[:1], listed(found)


@both([[4, 0], [0, 8]])
def hook_of_a_leaf_sees_the_rows_of_a_batch(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    x.register_hook(lambda g: g * 2)
    return listed(*lib.autograd.grad(x * x, x, lib.eye(2, dtype=lib.float64), is_grads_batched=True))


@both([[8, 8], [4, 16]])
def hooks_of_a_node_see_the_rows_of_a_batch(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    y.grad_fn.register_hook(lambda i, _: tuple(one * 2 for one in i))
    y.grad_fn.register_prehook(lambda o: (o[0] + 1,))
    return listed(*lib.autograd.grad(y, x, lib.eye(2, dtype=lib.float64), is_grads_batched=True))


@both([[2, 12, 6], [2, 4, 18]])
def hooks_of_views_see_the_rows_of_a_batch(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    v = y[1:]
    v.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: g + 1)
    return listed(*lib.autograd.grad(v, x, lib.eye(2, dtype=lib.float64), is_grads_batched=True))


@both(([[4, 0], [0, 8]], True))
def hook_of_a_recorded_batch(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    y.register_hook(lambda g: g * 2)
    (found,) = lib.autograd.grad(y, x, lib.eye(2, dtype=lib.float64), is_grads_batched=True, create_graph=True)
    return listed(found), found.requires_grad


# --- threads ---


def elsewhere(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread of its own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


@both(([("there", [4]), ("here", [8])], [16], [True, True]))
def hooks_of_a_tensor_of_another_thread(lib: Any) -> Any:
    x, seen, threads = leaf(lib, 1), [], []

    def note(name: str, g: Any) -> Any:
        threads.append(threading.get_ident())
        seen.append((name, listed(g)))
        return g * 2 if name == "there" else None

    def record() -> Any:
        y = x * x
        y.register_hook(functools.partial(note, "there"))
        return y

    y = elsewhere(record)
    y.register_hook(functools.partial(note, "here"))
    (y * y * 2).sum().backward()
    return seen, listed(x.grad), [one == threading.get_ident() for one in threads]


@both(([[7, 19]], [14, 76]))
def hook_of_a_tensor_that_several_threads_use(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * x
    y.register_hook(lambda g: seen.append(listed(g)))
    twice = elsewhere(lambda: y * 2)
    product = elsewhere(lambda: twice * y)
    (product + y * 3).sum().backward()
    return seen, listed(x.grad)


@both(([[1, 4], [4, 16]], [8, 64]))
def hooks_of_threads_that_hand_a_tensor_back_and_forth(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = elsewhere(lambda: x * x)
    z = y * 2
    for tensor in (y, z):
        tensor.register_hook(lambda g: seen.append(listed(g)))
    elsewhere(lambda: z * y).sum().backward()
    return seen, listed(x.grad)


@both(([("y", [3, 3]), ("y", [1, 1])], [16, 16]))
def hook_of_a_graph_that_another_thread_sweeps(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 1), []
    y = x * x
    y.register_hook(logging_to(seen, "y", lambda g: g * 2))
    elsewhere(lambda: (y * 3).sum().backward(retain_graph=True))
    y.sum().backward()
    return seen, listed(x.grad)


@both([("x", [5, 7]), ("post", [5, 7])])
def hook_of_a_leaf_of_two_threads_is_called_once(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    x.register_hook(logging_to(seen, "x"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("post", listed(t.grad))))
    (elsewhere(lambda: x * 3) + x * x).sum().backward()
    return seen


@both(([("after", [4, 18, 24]), ("before", [4, 54, 72])], [8, 108, 144]))
def tensor_written_and_hooked_in_another_thread(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2, 3), []
    y = x + 1
    y.register_hook(logging_to(seen, "before", lambda g: g * 2))

    def write() -> None:
        y[1:].mul_(3)
        y.register_hook(logging_to(seen, "after"))

    elsewhere(write)
    (y * y).sum().backward()
    return seen, listed(x.grad)


# --- where we differ ---


@ours(([("y", [2, 8, 10]), ("v", [40, 50]), ("first", [2, 80, 100])], [2, 80, 100]), "a hook of a view stays, too")
def hook_of_a_view_stays_with_its_version(lib: Any) -> Any:
    x, seen = leaf(lib, 0, -0.2, 0), []
    y = x + 1
    v = y[1:]
    v.register_hook(logging_to(seen, "v", lambda g: g * 2))
    y.register_hook(logging_to(seen, "first"))
    v.mul_(5)
    y.register_hook(logging_to(seen, "y"))
    (y * y).sum().backward()
    return seen, listed(x.grad)


@ours([[8, 12], [8, 12]], "what is asked for is seen after the hooks, whatever else is asked for")
def gradient_asked_for_comes_after_hooks(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x + 1
    y.register_hook(lambda g: g * 2)
    return listed(*lib.autograd.grad((y * y).sum(), [y, x]))


@ours([[7, 8], [8, 9]], "gradients have memory of their own")
def gradient_is_not_what_the_hook_returned(lib: Any) -> Any:
    x, constant = leaf(lib, 1, 2), lib.tensor([7.0, 8.0], dtype=lib.float64)
    x.register_hook(lambda _: constant)
    (found,) = lib.autograd.grad((x * 2).sum(), x)
    found += 1
    return listed(constant, found)


@ours([4, 32], "an exception leaves the graph as it was")
def backward_again_after_an_exception(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    a = x * x
    y = (a * a).sum()
    with a.register_hook(_failing), contextlib.suppress(ValueError):
        y.backward()
    y.backward()
    return listed(x.grad)


@ours([6, 36], "a sweep inside another frees nothing of it")
def backward_of_a_part_in_a_hook(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    z = y * y

    def hook(_: Any) -> None:
        with lib.enable_grad():
            loss = y.sum()
        loss.backward()

    z.register_hook(hook)
    z.sum().backward()
    return listed(x.grad)


@ours(["C", "partial"], "a hook without a name is called by its class")
def names_of_hooks_in_messages(lib: Any) -> Any:
    class C:
        def __call__(self, g: Any) -> Any:
            return g[:1]

    found = []
    for hook in (C(), functools.partial(lambda _, g: g[:1], 1)):
        y = leaf(lib, 1, 2) * 2
        y.register_hook(hook)
        found.append(complaint(lambda y=y: y.sum().backward()).split("'")[1])
    return found


# --- the tests ---


@pytest.fixture(params=[True, False], ids=["native", "plain"])
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
    return bool(request.param)


def found_by(library: ModuleType, program: Program) -> Any:
    """Return what a program finds, gradients on."""
    try:
        return program(library)
    finally:
        library.set_grad_enabled(True)


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program(program: Program, expected: Any) -> None:
    assert found_by(tape, program) == expected


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program_with_pytorch(pytorch: Outcomes, program: Program, expected: Any) -> None:
    assert pytorch(program, program.__name__) == expected


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize(("program", "expected", "why"), DEVIATIONS)
def test_deviation(program: Program, expected: Any, why: str) -> None:
    assert found_by(tape, program) == expected, why


@pytest.mark.parametrize(("program", "expected", "why"), DEVIATIONS)
def test_deviation_with_pytorch(pytorch: Outcomes, program: Program, expected: Any, why: str) -> None:
    found = pytorch.or_error(program, program.__name__)
    if isinstance(found, Raised):
        assert "RuntimeError" in found.classes
        return
    assert found != expected, f"PyTorch does the same: {why}"


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("view", [lambda y: y.reshape(4), lambda y: y.T, lambda y: y[:, ::2], lambda y: y[1:].T])
def test_hook_of_a_view_is_that_of_a_copy(view: Program) -> None:
    found = []
    for copy in (False, True):
        x = leaf(tape, [1, 2], [3, 4])
        v = view(x * 1)
        v = v.clone() if copy else v
        weights = tape.arange(1.0, 1.0 + v.numel()).reshape(v.shape)
        v.register_hook(lambda g, weights=weights: g * weights)
        (v * v).sum().backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]


def test_node_of_a_released_graph_takes_no_hooks() -> None:
    y = leaf(tape, 1, 2) ** 2
    node = y.grad_fn
    y.sum().backward()
    with pytest.raises(RuntimeError, match=r"PowBackward0.*released"):
        node.register_hook(lambda _i, _o: None)


def test_node_of_a_write_takes_no_hook_after_it() -> None:
    y = leaf(tape, 1, 2) * 1
    y[1:] = 2.0
    with pytest.raises(NotImplementedError, match="hook the tensors around it"):
        y.grad_fn.register_hook(lambda _i, _o: None)


def test_hook_in_a_program_is_refused_at_its_replay() -> None:
    def program(x: Any) -> Any:
        y = x * x
        y.register_hook(lambda g: g * 2)
        return y.sum()

    recorded = tape.record(program, np.ones(2))
    with pytest.raises(RuntimeError, match=r"left for Python at .*test_hooks\.py"):
        recorded.value_and_grad(np.ones(2))


AT_EXIT = """
import tape
x = tape.ones(2).requires_grad_()
y = x * 2
for one in (x, y):
    one.register_hook(lambda g: g * 2)
x.register_post_accumulate_grad_hook(lambda t: None)
y.sum().backward(retain_graph=True)
print(x.grad.tolist())
"""


def test_hooks_that_live_until_the_exit(fresh: Fresh) -> None:
    assert fresh(AT_EXIT).communicate(timeout=120) == ("[8.0, 8.0]\n", "")


OPERANDS = {
    "whole": lambda y: y,
    "from the second": lambda y: y[1:],
    "turned back": lambda y: y[::-1],
    "turned back, a part": lambda y: y[::-1][1:7:2],
    "turned": lambda y: y.reshape(2, 4).T,
    "each second": lambda y: y[::2],
    "spread": lambda y: y[:3, None].expand(3, 2),
}
NODES = {
    "view": lambda y: y[1:],
    "view turned back": lambda y: y[::-1],
    "view with an axis more": lambda y: y.unsqueeze(0),
    "view spread": lambda y: y.unsqueeze(0).expand(3, *y.shape),
    "product": lambda y: y * 3.0,
    "sum": lambda y: y.sum(0),
    "softmax": lambda y: tape.softmax(y, 0),
    "join": lambda y: tape.cat([y, y * 2.0]),
}


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS.keys())
@pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())
def test_hook_behind_a_node_of_a_view(operand: Callable[[Any], Any], node: Callable[[Any], Any]) -> None:
    """It sees what goes to the operand, wherever that stands in its family, and what it returns goes there."""

    def gradients(hook: Any) -> tuple[Any, Any]:
        x = tape.arange(8.0).requires_grad_()
        y = operand(x * 1.0)
        z = node(y)
        if hook is not None:
            z.grad_fn.register_hook(hook)
        elif not spread:
            y.retain_grad()
        (z * tape.linspace(0.5, 1.5, z.numel()).reshape(z.shape)).sum().backward()
        return x.grad.numpy(), y.grad.numpy() if hook is None and not spread else None

    spread = operand is OPERANDS["spread"]
    seen: list[Any] = []
    whole, of_operand = gradients(None)
    kept, _ = gradients(lambda found, given: seen.append(found[0].numpy()))  # noqa: ARG005
    np.testing.assert_allclose(kept, whole, rtol=1e-14)
    if node is not NODES["join"] and node is not NODES["view spread"]:  # whose operand is another, y twice or a view
        assert spread or np.allclose(seen[0], of_operand, rtol=1e-14, atol=0)
        doubled, _ = gradients(lambda found, given: (found[0] * 2, *found[1:]))  # noqa: ARG005
        np.testing.assert_allclose(doubled, 2 * whole, rtol=1e-14)


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS.keys())
def test_packed_values_of_views(operand: Callable[[Any], Any]) -> None:
    """What is unpacked stands in memory as what was packed did: its pullbacks were made for that."""

    def gradient() -> Any:
        x = tape.arange(8.0).requires_grad_()
        y = operand(x * 1.0)
        (y * y * 3.0).sum().backward()
        return x.grad.numpy()

    with tape.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        packed = gradient()
    np.testing.assert_array_equal(packed, gradient())


MADE_ANEW: dict[str, Callable[[Any, Any], Any]] = {
    "tile": lambda lib, x: lib.tile(x, (2,)),
    "repeat": lambda _, x: x.repeat(2, 2),
    "roll": lambda lib, x: lib.roll(x, 1),
    "rot90": lambda lib, x: lib.rot90(x.reshape(2, 1)),
    "kron": lambda lib, x: lib.kron(x, x),
    "reshape that copies": lambda lib, x: lib.stack([x, x * 2]).t().reshape(4),
    "flip": lambda lib, x: lib.flip(x, (0,)),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda y: y.add_(1),
    "mul_": lambda y: y.mul_(3),
    "fill_": lambda y: y[0].fill_(5.0),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", MADE_ANEW)
def test_hooks_of_new_tensors_outlive_writes(pytorch: Outcomes, name: str, write: str) -> None:
    """What PyTorch makes anew is of no family: its hook sees the gradient of the value before a write."""

    def run(lib: Any) -> Any:
        found = []
        for used in (False, True):
            x = lib.tensor([1.0, 2.0], requires_grad=True)
            y, seen = MADE_ANEW[name](lib, x), []
            z = y.sum() * 2 if used else 0
            y.register_hook(lambda g, seen=seen: seen.append(g.tolist()) or g * 10)
            WRITES[write](y)
            (y.sum() + z).backward()
            found.append((seen, x.grad.tolist()))
        return found

    assert run(tape) == pytorch(run, f"{name}, {write}")
