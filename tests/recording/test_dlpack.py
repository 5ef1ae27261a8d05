"""DLPack: memory goes out and in without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape

DTYPES = [tape.float64, tape.float32, tape.int64, tape.int32, tape.int16, tape.int8, tape.uint8, tape.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_out_and_in(dtype: Any) -> None:
    x = tape.tensor(np.arange(6).reshape(2, 3) % 2, dtype=dtype)
    array = np.from_dlpack(x)  # type: ignore[arg-type]
    assert array.dtype == dtype
    assert array.tolist() == x.tolist()
    back = tape.from_dlpack(x)
    assert back.dtype == dtype
    assert not back.requires_grad
    back[0, 0] = 1
    assert array[0, 0] == x[0, 0].item() == 1


def test_views_keep_their_strides() -> None:
    x = tape.arange(12.0).reshape(3, 4).T[1:, ::2]
    array = np.from_dlpack(x)  # type: ignore[arg-type]
    assert array.strides == x.numpy().strides
    assert array.tolist() == x.tolist()
    assert np.from_dlpack(tape.tensor(2.5)).item() == 2.5  # type: ignore[arg-type]


def test_a_copy_is_apart() -> None:
    array = np.zeros(3)
    x = tape.from_dlpack(array, copy=True)
    array[0] = 1.0
    assert x.tolist() == [0.0, 0.0, 0.0]
    assert np.shares_memory(tape.from_dlpack(array).numpy(), array)


def test_read_only_memory_is_copied() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    x = tape.from_dlpack(array)
    x[0] = 1.0
    assert array[0] == 0.0


def test_what_requires_grad_stays() -> None:
    x = tape.ones(2, requires_grad=True)
    for y in (x, x * 2):
        with pytest.raises(BufferError, match="Can't export tensors that require gradient"):
            y.__dlpack__()
    assert np.from_dlpack(x.detach()).tolist() == [1.0, 1.0]
    assert x.__dlpack_device__() == np.zeros(0).__dlpack_device__()
    with pytest.raises(TypeError, match="complex128"):
        tape.from_dlpack(np.zeros(2, complex))
    with pytest.raises(AttributeError):
        tape.from_dlpack([1.0])


def test_a_value_that_leaves_a_program_is_noticed() -> None:
    program = tape.record(lambda x: x * tape.from_dlpack(x.detach()), np.ones(2))
    with pytest.raises(RuntimeError, match="left for Python"):
        program(np.ones(2))


def test_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = tape.arange(4.0)
    theirs = torch.from_dlpack(x)
    theirs[0] = 7.0
    assert x[0].item() == 7.0
    ours = tape.from_dlpack(torch.ones(3, dtype=torch.float64))
    assert ours.tolist() == [1.0, 1.0, 1.0]
