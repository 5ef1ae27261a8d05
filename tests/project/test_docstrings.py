"""Every function written by hand shows an example, and it is so."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tape
from tape.numpy_interface import op_table
from tape.operations import elementwise
from tape.tensors import hooks


def written() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions that are no single record, under the name they are offered by."""
    yield from ((name, f) for name, f in hooks.FUNCTIONS.items() if f not in op_table.MADE.values())
    records = set(elementwise.RUN.values())
    for module in (tape.linalg, tape.special):
        for name in module.__all__:
            function = getattr(module, name)
            if inspect.isfunction(function) and function not in records:
                yield f"{module.__name__}.{name}", function


MODULES = sorted(
    {function.__module__ for _, function in written()}
    | {"tape.quadrature", "tape.sparse", "tape.optimize", "tape.transforms.value_and_grad", "tape.stats"}
    | {"tape.programs.drawing", "tape.programs.profiling", "tape.implicit"}
)


def test_each_has_an_example() -> None:
    assert [name for name, function in written() if ">>> " not in (function.__doc__ or "")] == []


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), extraglobs={"tape": tape, "np": np})
    assert found.attempted > 0
    assert found.failed == 0
