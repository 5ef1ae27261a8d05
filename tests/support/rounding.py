"""What a replay gives beside dynamic mode: the same bits; in plain mode, whose sweeps are NumPy's, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.native.c_api import NATIVE

_ROUNDING = 1 << 16


def assert_same(found: Any, expected: Any, like: Any = 0.0) -> None:
    """Compare arrays or numbers; in plain mode up to rounding of the largest element, or of ``like``."""
    found, expected = np.asarray(found), np.asarray(expected)
    if NATIVE or found.dtype.kind != "f" or not found.size:
        np.testing.assert_array_equal(found, expected)
    else:
        size = np.max(
            np.abs(expected), where=np.isfinite(expected), initial=abs(float(like)) if np.isfinite(like) else 0.0
        )
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=_ROUNDING * np.finfo(found.dtype).eps * float(size))
