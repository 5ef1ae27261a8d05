"""Pickles name public places alone: files may move, and what was written before can be read."""

import pickle
import pickletools
from typing import Any

import numpy as np
import pytest

import tape

THINGS = {
    "tensor": lambda: tape.tensor([1.0, 2.0]),
    "leaf": lambda: tape.tensor(1.0, requires_grad=True),
    "size": lambda: tape.ones(2, 3).shape,
    "device": lambda: tape.device("cpu"),
    "dtype": lambda: tape.float32,
    "pair": lambda: tape.max(tape.tensor([[1.0, 2.0]]), 1),
    "matrix": lambda: tape.sparse.CSR([2.0], [0], [0, 1], (1, 1)),
    "function": lambda: tape.exp,
    "generator": tape.Generator,
    "format": lambda: tape.preserve_format,
    "warning": lambda: tape.errors.DetachWarning("lost"),
}
PUBLIC = {"tape", "tape.errors", "tape.functions", "tape.return_types", "tape.sparse"}


@pytest.mark.parametrize("name", THINGS)
def test_pickles_name_public_places(name: str) -> None:
    thing = THINGS[name]()
    data = pickle.dumps(thing, 2)
    places = [str(arg).split() for op, arg, _ in pickletools.genops(data) if op.name == "GLOBAL"]
    assert {module for module, _ in places if module.split(".")[0] == "tape"} <= PUBLIC
    found: Any = pickle.loads(data)  # noqa: S301 (made here)
    assert type(found) is type(thing)
    if isinstance(thing, tape.Tensor):
        assert np.array_equal(found.detach().numpy(), thing.detach().numpy())
        assert found.requires_grad == thing.requires_grad
