"""Steps of reductions whose loops vectorise: the compiler chooses the order of the terms, the same at each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.language.jit import named_intrinsic


def _step(emit: Callable[[Any, Any, Any], Any]) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
        return emit(builder, *args)

    return named_intrinsic(emit.__name__.strip("_"), 2, lambda _, total, __: (total(total, total), codegen))


def _greater(builder: Any, top: Any, x: Any) -> Any:
    flags = ("nnan", "nsz")
    return builder.select(builder.fcmp_ordered(">", x, top, flags=flags), x, top, flags=flags)


added = _step(lambda builder, total, x: builder.fadd(total, x, flags=("reassoc",)))
"""The sum so far plus one more term."""
greater = _step(_greater)  # the larger of two numbers; of a nan and a number, either
