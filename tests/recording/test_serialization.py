"""Tensors in files and pickles: what comes back, what is refused, that nothing in a file runs."""

from __future__ import annotations

import io
import json
import math
import pickle
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape


def _round(value: Any) -> Any:
    file = io.BytesIO()
    tape.save(value, file)
    file.seek(0)
    return tape.load(file)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    x = tape.tensor(np.arange(math.prod(shape)).reshape(shape).astype(dtype))
    got = _round(x)
    assert (got.dtype, got.shape, got.requires_grad) == (x.dtype, x.shape, False)
    np.testing.assert_array_equal(got.numpy(), x.numpy())


def test_a_state_comes_back() -> None:
    w = tape.randn(2, 3, requires_grad=True)
    state = {
        "w": w, "same": w, "view": w.detach().t()[1:], 3: [1, 2.5, None, True, "text", math.inf, -0.0],
        "pair": (np.float32(1.5), np.arange(3, dtype=">i2")), ("a", 1): {1, 2}, "big": 2**100,
        "ordered": OrderedDict(b=tape.zeros(()), a=math.nan),
    }  # fmt: skip
    got = _round(state)
    assert list(got) == list(state)
    assert got["w"] is got["same"]
    assert got["w"].requires_grad
    np.testing.assert_array_equal(got["w"].detach().numpy(), w.detach().numpy())
    np.testing.assert_array_equal(got["view"].numpy(), w.detach().numpy().T[1:])
    assert got[3] == state[3]
    assert math.copysign(1.0, got[3][-1]) == -1.0
    assert type(got["pair"][0]) is np.float32
    assert got["pair"][1].dtype == ">i2"
    assert got["big"] == 2**100
    assert type(got["ordered"]) is OrderedDict
    assert math.isnan(got["ordered"]["a"])


def test_a_loaded_leaf_is_differentiated() -> None:
    x = _round(tape.tensor([1.0, 2.0], requires_grad=True))
    (x**2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


def test_paths_and_what_stood_there(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    tape.save([tape.ones(2)], path)
    np.testing.assert_array_equal(tape.load(str(path), map_location="cpu")[0].numpy(), [1.0, 1.0])
    before = path.read_bytes()
    with pytest.raises(TypeError, match=r"\['f'\] is a function"):
        tape.save({"f": _round}, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.pt"]


def test_what_a_file_does_not_hold() -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value, match in (
        (object(), "object"), ([lambda: 0], r"\[0\] is a function"), (np.array([object()]), "Python objects"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=match):
            tape.save(value, io.BytesIO())
    with pytest.raises(ValueError, match="contains itself"):
        tape.save(itself, io.BytesIO())


def test_nothing_in_a_file_runs(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path(tmp_path / "ran").touch, ()

    pickled = pickle.dumps(Evil())
    objects = io.BytesIO()
    np.save(objects, np.array([Evil()], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("tree.json", json.dumps({"tape": 1, "tree": {"tensor": 0, "requires_grad": False}}))
        made.writestr("0.npy", objects.getvalue())
    for text in (pickled, archive.getvalue(), b"", b"PK\x03\x04 cut short"):
        with pytest.raises(ValueError, match=r"tape\.save|allow_pickle"):
            tape.load(io.BytesIO(text))
    assert not (tmp_path / "ran").exists()


def test_other_versions_are_named() -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("tree.json", json.dumps({"tape": 99, "tree": {"value": 1}}))
    archive.seek(0)
    with pytest.raises(ValueError, match="format 99"):
        tape.load(archive)


def test_public_functions_pickle() -> None:
    wrong = []
    for module in (tape, tape.special, tape.linalg, tape.func, tape.autograd):
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if isinstance(value, (types.FunctionType, type)) and not name.startswith("_"):
                try:
                    same = pickle.loads(pickle.dumps(value)) is value  # noqa: S301 (made here)
                except (pickle.PicklingError, AttributeError):
                    same = False
                wrong += [] if same else [f"{module.__name__}.{name}"]
    assert not wrong


def test_tensors_pickle() -> None:
    x = tape.tensor([[1.0, 2.0]], requires_grad=True)
    for y in (x, x.detach()[:, 1:], tape.tensor(3), tape.tensor(2.0, requires_grad=True)):
        got = pickle.loads(pickle.dumps(y))  # noqa: S301 (made here)
        assert (got.dtype, got.requires_grad, got.tolist()) == (y.dtype, y.requires_grad, y.tolist())
    got = pickle.loads(pickle.dumps(x * 2))  # noqa: S301 (made here)
    assert (got.tolist(), got.requires_grad, got.is_leaf) == ([[2.0, 4.0]], True, True)  # as PyTorch's
