"""SciPy's special functions as ufuncs: ``special.erf`` is one, imported at its first call.

In a rule they stand beside NumPy's. Replays and printed pullbacks call their inner loops by address.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.foundation.locks import cached_property
from kernels.records.symbols import SPECIAL, Symbol, Unprinted, traced


class LateUfunc:
    """A ufunc of ``scipy.special`` by name: importing SciPy takes longer than importing this library."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @cached_property
    def ufunc(self) -> np.ufunc:
        """The ufunc itself."""
        import scipy.special

        ufunc: np.ufunc = getattr(scipy.special, self.__name__)
        return ufunc

    def __call__(self, *operands: Any) -> Any:
        """Call it; of symbols it is an expression."""
        for x in operands:
            if isinstance(x, Symbol):
                return type(x)(SPECIAL + self.__name__, *operands)
        return self.ufunc(*operands)

    def __repr__(self) -> str:
        return f"<ufunc 'scipy.special.{self.__name__}'>"


class _Special:
    """``scipy.special``, function by function."""

    def __getattr__(self, name: str) -> LateUfunc:
        if name.startswith("_"):
            raise AttributeError(name)
        ufunc = self.__dict__[name] = LateUfunc(name)
        return ufunc


special = _Special()


def resolved(function: Any) -> Any:
    """Return a forward function as NumPy or SciPy has it: the ufunc behind a late one."""
    return function.ufunc if isinstance(function, LateUfunc) else function


@functools.cache
def calls_scipy(op: Any) -> bool:
    """Whether an elementwise record calls one of SciPy's on several operands: to those a Python number is a double."""
    return len(op.inputs) > 1 and bool(traced(op.forward, Unprinted, {}).specials)


def ufunc_of(head: str) -> np.ufunc:
    """Return the ufunc that the head of an expression names."""
    owner, name = (special, head.removeprefix(SPECIAL)) if head.startswith(SPECIAL) else (np, head)
    ufunc: np.ufunc = resolved(getattr(owner, name))
    return ufunc
