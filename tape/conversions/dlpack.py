"""DLPack: memory shared with PyTorch, JAX, CuPy and others, out and in."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.conversions.creation import from_numpy
from tape.recording import record
from tape.tensors import view_families
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor, as_array, method


@method("__dlpack__")
def dlpack(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """Return a capsule of this tensor's memory. BufferError if it requires grad: no gradient comes back this way."""
    if x._slot is not None:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    record.note_escape(x)
    array = as_array(view_families.show(x))
    return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


@method("__dlpack_device__")
def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Return DLPack's numbers of the CPU."""
    del x
    device, number = np.zeros(0).__dlpack_device__()
    return int(device), int(number)


@public(methods=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of the memory that an object with ``__dlpack__`` exports; what either writes, both see.

    Read-only memory is copied, as is any with ``copy=True``. TypeError for dtypes that tensors do not have.

    >>> a = np.zeros(2)
    >>> x = tape.from_dlpack(a)
    >>> a[0] = 5.0
    >>> x
    tensor([5., 0.])
    """
    array = np.from_dlpack(ext_tensor, device=device, copy=copy)
    return from_numpy(array if array.flags.writeable else array.copy())
