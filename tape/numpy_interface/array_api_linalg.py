"""The linear algebra extension of the array API standard: NumPy's functions, which follow it and find the records."""

from __future__ import annotations

import numpy as np

NAMES = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr
slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()  # noqa: SIM905 (a list of words)
globals().update({name: getattr(np.linalg, name) for name in NAMES})

__all__ = NAMES  # noqa: PLE0605 (they are names)
