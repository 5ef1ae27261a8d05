"""JAX and NumPy under the names that the workloads' texts use, which are PyTorch's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from scipy import special


class Names:
    """A library's own names, with some in the place of others."""

    def __init__(self, name: str, library: Any, **others: Any) -> None:
        """Take names from `others` first."""
        self.__name__ = name
        self._library = library
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


# For complex steps, and for arrays of CasADi's scalars.
NUMPY = Names(
    "numpy", np, cat=np.concatenate, logsumexp=special.logsumexp, sigmoid=special.expit, softmax=special.softmax
)


def jax_names() -> Names:
    """Return `jax.numpy` under PyTorch's names; what the texts make of arrays stays a constant."""
    numpy, nn, scipy = (importlib.import_module(f"jax.{name}") for name in ("numpy", "nn", "scipy.special"))
    return Names(
        "jax",
        numpy,
        cat=numpy.concatenate,
        erf=scipy.erf,
        logsumexp=scipy.logsumexp,
        sigmoid=nn.sigmoid,
        softmax=nn.softmax,
        scan=importlib.import_module("jax.lax").scan,
    )
