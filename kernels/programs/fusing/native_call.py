"""What a compiled program calls between its loops: a native function forward, and others for its pullbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kernels.foundation.data_classes import dataclass

if TYPE_CHECKING:
    import numpy as np

BLAS, KERNEL, INTERPRETER, PYTHON = "BLAS", "a kernel", "the interpreter", "Python"
"""What runs calls."""
INTERRUPTS: list[BaseException] = []
"""What came up in a call that is no error, KeyboardInterrupt say, for whoever called the program to raise."""
RESULT = -1
"""The number of the result, where operands have theirs."""


class Place(NamedTuple):
    """An operand by its number, or the RESULT: its memory, or that of its gradient."""

    operand: int
    gradient: bool = False


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a function of :data:`kernels.compiler.jit.SIGNATURE` on places.

    ``adds``: what it computes is added to the first place. ``fails``: it has a word behind its pointers, which is 0,
    and not 0 behind a call that gave up.
    """

    address: int
    layout: np.ndarray[Any, Any]
    places: tuple[Place, ...]
    adds: bool = False
    fails: bool = False
    owner: Any = None
    """What has to live as long as the address is used."""


@dataclass(frozen=True, eq=False)
class NativeCall:
    """``forward`` computes the result; ``pullbacks`` add to the gradients of the operands that want one.

    ``by`` says what runs it. ``covers``: where the cotangent has a contribution throughout, so have those.
    """

    name: str
    by: str
    forward: KernelCall
    pullbacks: tuple[KernelCall, ...]
    covers: bool = False

    def read_back(self) -> set[int]:
        """Return what pullbacks read of operands and result, but for the cotangent."""
        return {place.operand for call in self.pullbacks for place in call.places if not place.gradient}
