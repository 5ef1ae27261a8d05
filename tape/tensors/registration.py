"""Registers public functions: as ``tape.f``, as methods, and as implementations of NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tape.tensors.tensor import method

Function = TypeVar("Function", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions of ``tape``, by name, that are no single elementwise record."""

NUMPY: dict[Any, Callable[..., Any]] = {}
"""Implementations of NumPy's functions for tensors: with NumPy's arguments, defaults and meaning."""


def public(*names: str, methods: bool = True) -> Callable[[Function], Function]:
    """Offer a function as ``tape.f`` under its own name and these; with ``methods`` also as ``Tensor.f``."""

    def offer(function: Function) -> Function:
        for name in (function.__name__, *names):
            if name in FUNCTIONS:
                raise TypeError(f"tape.{name} is declared twice")
            FUNCTIONS[name] = function
            if methods:
                method(name)(function)
        return function

    return offer


RECORDS: dict[Any, tuple[str, ...]] = {}
"""Which records functions of NumPy's come down to, by the records' names: the table of operations shows them there."""


def implements(*functions: Any, records: str = "") -> Callable[[Function], Function]:
    """Let a function serve these of NumPy's: it takes their arguments. ``records`` names those that do the work."""

    def register(function: Function) -> Function:
        for numpy_function in functions:
            if NUMPY.get(numpy_function, function) is not function:
                raise TypeError(f"np.{numpy_function.__name__} is served twice")
            NUMPY[numpy_function] = function
            RECORDS[numpy_function] = tuple(records.split())
        return function

    return register
