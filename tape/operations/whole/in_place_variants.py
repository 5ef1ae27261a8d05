"""In-place variants of functions of whole tensors: running sums, products added to a tensor."""

from __future__ import annotations

from tape.operations.elementwise import install_twin
from tape.operations.matrices import addmm
from tape.operations.reductions import norms, scans

for _function in (
    scans.cumsum, scans.cumprod, addmm.addmm, addmm.addmv, addmm.addr,
    addmm.baddbmm, addmm.addbmm, norms.renorm,
):  # fmt: skip
    install_twin(_function, f"{_function.__name__}_")
