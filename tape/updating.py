"""Twins in place of functions of whole tensors: running sums, products added to a tensor."""

from __future__ import annotations

from tape import added_products, norms, scanning
from tape.elementary import install_twin

for _function in (
    scanning.cumsum, scanning.cumprod, added_products.addmm, added_products.addmv, added_products.addr,
    added_products.baddbmm, added_products.addbmm, norms.renorm,
):  # fmt: skip
    install_twin(_function, f"{_function.__name__}_")
