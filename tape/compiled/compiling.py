"""``tape.compile``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tape.compiled.compiled_function import CompiledFunction
from tape.compiled.compiled_gradient import CompiledGradient

_CHECKS = ("sample", "always", "never")


def compile(  # noqa: A001 (PyTorch's name)
    fun: Callable[..., Any] | None = None,
    *,
    static: Collection[Any] = (),
    traced: Collection[Any] = (),
    check: str = "sample",
) -> Any:
    """Return a function of the same arguments and results that is replayed natively where it can be."""
    if check not in _CHECKS:
        raise ValueError(f"compile: check is {check!r}; it is one of {', '.join(map(repr, _CHECKS))}")
    if fun is None:
        return lambda function: compile(function, static=static, traced=traced, check=check)
    if not callable(fun):
        raise TypeError(f"compile: got a {type(fun).__name__}, which cannot be called")
    kind = CompiledGradient if hasattr(fun, "differentiated") else CompiledFunction
    return kind(fun, _names(static), _names(traced), check)


def _names(positions_or_names: Any) -> Collection[Any]:
    alone = isinstance(positions_or_names, (str, int))
    return (positions_or_names,) if alone else tuple(positions_or_names)
