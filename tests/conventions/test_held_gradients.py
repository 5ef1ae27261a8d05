"""A gradient that somebody holds while more is added to ``.grad``: PyTorch's answers."""

from __future__ import annotations

import itertools
import warnings
from types import ModuleType
from typing import Any

import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes

LOSSES = {"linear": lambda x: (x * 3.0).sum(), "square": lambda x: (x * x).sum(), "cube": lambda x: (x * x * x).sum()}


def outcome(library: ModuleType, names: tuple[str, str], creates: tuple[bool, bool], kind: str) -> Any:
    leaf = library.tensor([1.0, 2.0], requires_grad=True)
    x = leaf
    if kind == "retained":
        x = leaf * 2.0
        x.retain_grad()
    if kind == "hooked":
        x.register_hook(lambda g: g * 2.0)
    if kind == "hooked after":
        x.register_post_accumulate_grad_hook(lambda _: None)
    found = []
    for name, create in zip(names, creates, strict=True):
        inputs = {"inputs": [x]} if kind == "inputs" else {}
        LOSSES[name](x).backward(create_graph=create, retain_graph=True, **inputs)
        found.append(x.grad)
    return [(held.tolist(), held.requires_grad, held is x.grad, held._version) for held in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["leaf", "inputs", "retained", "hooked", "hooked after"])
@pytest.mark.parametrize("creates", list(itertools.product((False, True), repeat=2)), ids=str)
@pytest.mark.parametrize("names", [("square", "square"), ("linear", "square"), ("cube", "linear")], ids=str)
def test_like_pytorch(names: tuple[str, str], creates: tuple[bool, bool], kind: str, pytorch: Outcomes) -> None:
    def run(library: ModuleType) -> Any:
        return outcome(library, names, creates, kind)

    ours, theirs = run(tape), pytorch(run, f"{names} {creates} {kind}")
    if creates == (True, False) and theirs[0][1]:
        ours, theirs = ours[1:], theirs[1:]  # PyTorch adds to a gradient that has a graph in place, without a record
        assert ours[0][0] == theirs[0][0]
        return
    assert [o[:3] for o in ours] == [t[:3] for t in theirs]


def test_a_held_gradient_stays_as_it_is() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * 3.0).sum().backward()
        held = x.grad
        (x * x).sum().backward(create_graph=True)
    assert held.tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [5.0, 7.0]
    (g,) = tape.autograd.grad(x.grad.sum(), x)
    assert g.tolist() == [2.0, 2.0]
    x.grad = None


def test_a_tensor_is_not_its_own_gradient(libraries: list[ModuleType]) -> None:
    for library in libraries:
        x = library.tensor([1.0], requires_grad=True)
        with pytest.raises(RuntimeError, match="its own grad"):
            x.grad = x
        assert x.grad is None
