"""In-place variants of functions of whole tensors: running sums, products added to a tensor."""

from __future__ import annotations

from typing import Any

from tape.operations.elementwise import install_in_place
from tape.operations.matrices import addmm
from tape.operations.reductions import norms, scans
from tape.tensors.tensor import Tensor

for _function in (addmm.addmm, addmm.addmv, addmm.addr, addmm.baddbmm, addmm.addbmm, norms.renorm):
    install_in_place(_function, f"{_function.__name__}_")


def _cumsum(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    defaults_only = dtype is None and axis is None  # then native code repeats it
    return scans.cumsum(input, dim) if defaults_only else scans.cumsum(input, dim, dtype=dtype, axis=axis)


def _cumprod(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    defaults_only = dtype is None and axis is None
    return scans.cumprod(input, dim) if defaults_only else scans.cumprod(input, dim, dtype=dtype, axis=axis)


_cumsum.__doc__, _cumprod.__doc__ = scans.cumsum.__doc__, scans.cumprod.__doc__
install_in_place(_cumsum, "cumsum_")
install_in_place(_cumprod, "cumprod_")
