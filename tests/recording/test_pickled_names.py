"""Pickles name public places alone: files may move, and what was written before can be read."""

import pickle
import pickletools
from dataclasses import dataclass
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
PUBLIC = {"tape", "tape.errors", "tape.pickled_programs", "tape.functions", "tape.return_types", "tape.sparse"}


@dataclass
class Pair:
    """A structure of the user's."""

    x: Any
    y: Any


def program() -> Any:
    """Return a program of all kinds of records whose pickles differ, with structures in and out."""

    def function(a: dict[str, Any], b: Any) -> Any:
        y = a["x"] * 1.0
        y[0] = b[1]
        z = tape.cumsum(tape.exp(y) @ b, 0)
        q, _ = tape.linalg.qr(z)
        return Pair(
            {"sum": tape.sort(z, 0)[0].sum(), "picked": z[[0, 1]].mean()}, (q.amax(0), None, tape.stack([z, z]))
        )

    return tape.record(function, {"x": np.eye(3)}, np.ones((3, 3)) + np.eye(3))


def places_in(data: bytes) -> set[str]:
    """Return the modules that a pickle names."""
    return {str(arg).split()[0] for op, arg, _ in pickletools.genops(data) if op.name == "GLOBAL"}


def test_pickles_of_programs_name_one_public_place() -> None:
    ours = program()
    data = pickle.dumps(ours, 2)
    modules = {module for module in places_in(data) if module.split(".")[0] in ("tape", "kernels")}
    assert modules == {"tape", "tape.pickled_programs"}
    arguments = {"x": np.eye(3) * 2.0}, np.ones((3, 3)) + np.eye(3)
    expected, found = ours(*arguments), pickle.loads(data)(*arguments)  # noqa: S301 (made here)
    assert found.x == expected.x
    assert [x is None or x.tolist() for x in found.y] == [x is None or x.tolist() for x in expected.y]


@pytest.mark.parametrize("name", THINGS)
def test_pickles_name_public_places(name: str) -> None:
    thing = THINGS[name]()
    data = pickle.dumps(thing, 2)
    assert {module for module in places_in(data) if module.split(".")[0] in ("tape", "kernels")} <= PUBLIC
    found: Any = pickle.loads(data)  # noqa: S301 (made here)
    assert type(found) is type(thing)
    if isinstance(thing, tape.Tensor):
        assert np.array_equal(found.detach().numpy(), thing.detach().numpy())
        assert found.requires_grad == thing.requires_grad
