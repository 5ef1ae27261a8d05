"""Tensors that require grad and then do not, or the other way round, while views of them live: PyTorch's answers."""

from __future__ import annotations

import textwrap
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import LIBRARIES, Outcomes

PROGRAMS: dict[str, str] = {
    "a view, then a write": """
        v = x[:2]
        x.requires_grad_(False)
        x.mul_(w)
        out = v * c[:2]
    """,
    "views of every kind": """
        a, b, d, e = x[:2], x.reshape(3, 1), x[1:], x.unsqueeze(0)
        x.requires_grad_(False)
        x.mul_(w)
        out = torch.cat([a * c[:2], b[:, 0] * c, d * c[1:], e[0] * c])
    """,
    "a view of a view": """
        v = x[1:]
        u = v[:1]
        x.requires_grad_(False)
        x.add_(w)
        out = torch.cat([u * 2.0, v * c[1:]])
    """,
    "a part is written": """
        v, u = x[:2], x[1:]
        x.requires_grad_(False)
        x[1] = w[1] * 3.0
        out = torch.cat([v * c[:2], u * c[1:]])
    """,
    "written twice": """
        v = x[:2]
        x.requires_grad_(False)
        x.mul_(w)
        early = v * v
        x.mul_(w)
        out = torch.cat([early, v * c[:2]])
    """,
    "used before and after": """
        v = x[:2]
        early = v * c[:2]
        x.requires_grad_(False)
        x.mul_(w)
        out = torch.cat([early, v])
    """,
    "a view from before it required grad": """
        y = x.detach().clone()
        v = y[:2]
        y.requires_grad_()
        y.requires_grad_(False)
        y.mul_(w)
        out = v * c[:2]
    """,
    "a view from before it required grad, not written": """
        y = x.detach().clone()
        v = y[:2]
        y.requires_grad_()
        out = torch.cat([v * w[:2], y * c])
    """,
    "a buffer": """
        y = x.detach().clone()
        v = y[:2]
        y.mul_(w)
        out = v * c[:2]
    """,
    "back and forth": """
        v = x[:2]
        x.requires_grad_(False)
        x.requires_grad_(True)
        u = x[1:]
        x.requires_grad_(False)
        x.mul_(w)
        out = torch.cat([v * c[:2], u * c[1:]])
    """,
    "written without gradients first": """
        v = x[:2]
        with torch.no_grad():
            x.mul_(2.0)
        x.requires_grad_(False)
        x.mul_(w)
        out = v * c[:2]
    """,
    "not written": """
        v = x[:2]
        x.requires_grad_(False)
        out = v * w[:2]
    """,
    "a constant write": """
        v = x[:2]
        x.requires_grad_(False)
        x.mul_(2.0)
        out = torch.cat([v * w[:2], x * c * w])
    """,
    "joins and stale views": """
        v, u = x[:2], x[1:]
        x.requires_grad_(False)
        x.mul_(w)
        out = torch.stack([v, u]).sum(0) * c[:2]
    """,
}


def outcome(library: ModuleType, text: str) -> Any:
    x = library.tensor([1.0, 10.0, 100.0], requires_grad=True)
    w = library.tensor([2.0, 3.0, 5.0], requires_grad=True)
    names: dict[str, Any] = {"torch": library, "x": x, "w": w, "c": library.tensor([1.0, 0.5, 0.25])}
    exec(textwrap.dedent(text), names)  # noqa: S102 (the programs above)
    out = names["out"]
    (out * library.arange(1.0, out.shape[0] + 1)).sum().backward()
    found = [out.detach(), w.grad, x.grad if x.is_leaf else None, x.detach()]
    return [None if a is None else np.array(a.tolist()) for a in found]


REFUSED = {"written twice": [16.0, 1320.0, 0.0], "used before and after": [3.0, 40.0, 0.0]}
"""Of the programs that PyTorch refuses ("leaf variable has been moved into the graph interior"): the gradient of w."""


@pytest.mark.parametrize("program", REFUSED)
def test_what_pytorch_refuses(program: str) -> None:
    assert outcome(tape, PROGRAMS[program])[1].tolist() == REFUSED[program]


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name not in REFUSED])
def test_like_pytorch(program: str, pytorch: Outcomes) -> None:
    theirs = pytorch(lambda torch: outcome(torch, PROGRAMS[program]), program)
    for one, other in zip(outcome(tape, PROGRAMS[program]), theirs, strict=True):
        assert (one is None) == (other is None)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("library_name", LIBRARIES)
def test_a_leaf_that_requires_grad_no_more_gets_none_meanwhile(library_name: str) -> None:
    library = import_module(library_name)
    x, one = library.tensor([1.0, 2.0], requires_grad=True), library.ones(2)
    y = x * 2.0
    y.backward(one, retain_graph=True)
    held = x.grad
    x.requires_grad_(False)
    y.backward(one, retain_graph=True)
    assert x.grad is held
    assert held.tolist() == [2.0, 2.0]
    x.requires_grad_(True)
    y.backward(one, retain_graph=True)
    assert x.grad.tolist() == [4.0, 4.0]
    x.grad = None
    x.requires_grad_(False)
    assert x.grad is None


def test_what_a_leaf_was_does_not_add_to_the_gradient_that_it_retains() -> None:
    x, w = tape.tensor([1.0, 2.0], requires_grad=True), tape.ones(2, requires_grad=True)
    y = x * w
    y.backward(tape.ones(2), retain_graph=True)
    x.requires_grad_(False)
    x *= w
    x.retain_grad()
    y.backward(tape.ones(2), retain_graph=True)
    assert x.grad.tolist() == [1.0, 1.0]
    assert w.grad.tolist() == [2.0, 4.0]
    x.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_the_gradient_through_a_view_of_what_was_a_leaf() -> None:
    leaf, w = tape.tensor([1.0, 10.0, 100.0], requires_grad=True), tape.ones(3, requires_grad=True)
    v = leaf[:2]
    leaf.requires_grad_(False)
    leaf.mul_(w)
    v.sum().backward()
    assert w.grad.tolist() == [1.0, 10.0, 0.0]


def test_views_of_a_leaf_are_not_kept() -> None:
    leaf = tape.ones(4, requires_grad=True)
    for _ in range(1000):
        leaf[1:3].sum()
    assert len(leaf._views) < 100


WRITES: dict[str, Any] = {
    "fill_": lambda _, v: v.fill_(2.0),
    "mul_": lambda _, v: v.mul_(2.0),
    "copy_": lambda lib, v: v.copy_(lib.tensor([1.0, 2.0])),
    "assigned": lambda _, v: v.__setitem__(0, 5.0),
    "masked_fill_": lambda lib, v: v.masked_fill_(lib.tensor([True, False]), 0.5),
    "added": lambda lib, v: v.__iadd__(lib.tensor([1.0, 2.0])),
    "a view of it": lambda _, v: v[:1].fill_(7.0),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("detaches", [False, True])
@pytest.mark.parametrize("library_name", LIBRARIES)
def test_a_view_of_what_was_a_leaf_is_not_written(write: str, detaches: bool, library_name: str) -> None:
    library = import_module(library_name)
    x = library.tensor([1.0, 10.0, 100.0], requires_grad=True)
    v = x[:2]
    _ = x.detach_() if detaches else x.requires_grad_(False)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used"):
        WRITES[write](library, v)
    assert x.tolist() == [1.0, 10.0, 100.0]
    with library.no_grad():
        WRITES[write](library, v)
    assert x.tolist() != [1.0, 10.0, 100.0]
