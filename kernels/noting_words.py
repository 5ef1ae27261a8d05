"""The words that kernels/noting.py lays out and kernels/noting_native.py reads: addresses of a recorder's things."""

from __future__ import annotations

# Types; the recorder's tables; what to call where there is more to do; and types of operations left to that.
N_FLOAT, N_TENSOR, N_FORM, N_TUPLE, N_NONE, N_KNOWN, N_NODES, N_FORMS, N_ALIKE, N_HELD, N_FLAT, N_SLOWLY = range(12)
N_APART = 12
N_APARTS = 3
