"""Expressions run with PyTorch and with tape, and all that they give compared: values, dtypes, gradients.

A row is ``expression | leaves``: `torch` is the library under test, `t` stands for 1, 3, 3, 2. The first result that
requires grad is swept with the cotangent 1, 2, 3, ... Names of nodes are compared in test_conventions.py.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

import tape
from tests.support.pytorch_outcomes import Outcomes, Raised, result_or_error

if TYPE_CHECKING:
    from types import ModuleType

T = [1.0, 3.0, 3.0, 2.0]
CONSTANTS = {"nan": math.nan, "inf": math.inf, "t": T}


MATRIX = np.array([[3.0, 1.0, 2.5, 0.7], [-0.5, 4.0, -1.0, 1.5], [2.0, -2.5, 0.3, 3.5]])
HOLED = np.where(MATRIX < 0, np.nan, MATRIX)


def equal(ours: Any, theirs: Any) -> None:
    """Check values, shapes and dtypes of one result, or of each of several."""
    if isinstance(theirs, (tuple, list)):
        for one, other in zip(ours, theirs, strict=True):
            equal(one, other)
        return
    ours, theirs = ours.detach().numpy(), np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-15)


def rows(table: str) -> list[str]:
    """Return the rows of a table."""
    return [line for line in table.strip().splitlines() if line]


def evaluated(library: ModuleType, expression: str, leaves: str) -> tuple[list[Any], list[Any]]:
    """Run an expression; return its results and the gradients of its leaves."""
    names = {
        name: library.tensor(value, dtype=library.float64, requires_grad=True)
        for name, value in eval(f"dict({leaves})", dict(CONSTANTS)).items()  # noqa: S307 (the tables of the tests)
    }
    found = eval(expression, {"torch": library, **CONSTANTS, **names})  # noqa: S307
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    wanted = [x for x in results if isinstance(x, library.Tensor) and x.requires_grad]
    if wanted:
        count = math.prod(wanted[0].shape)
        weights = library.arange(1.0, count + 1, dtype=library.float64).reshape(wanted[0].shape)
        (wanted[0] * weights).sum().backward()
    return results, [x.grad for x in names.values()]


def same(ours: Any, theirs: Any) -> None:
    """Check one result."""
    if not isinstance(ours, tape.Tensor):
        assert ours == theirs
        return
    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.requires_grad == theirs.requires_grad
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-12, atol=1e-14)


def told(library: ModuleType, row: str) -> tuple[list[Any], list[Any], bool]:
    """Return the results of a row, the gradients of its leaves, and whether the library warned."""
    expression, _, leaves = (part.strip() for part in row.partition(" |"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results, gradients = evaluated(library, expression, leaves)
    return results, gradients, any(w.category is UserWarning for w in caught)


def agree(pytorch: Outcomes, row: str) -> None:
    """Check that both libraries give the same, and warn or do not."""
    ours, our_gradients, our_warning = told(tape, row)
    theirs, their_gradients, their_warning = pytorch(lambda torch: told(torch, row), row)
    assert our_warning == their_warning
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    for one, other in zip(our_gradients, their_gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            same(one, other)


def refuse(pytorch: Outcomes, row: str) -> None:
    """Check that both libraries raise an exception of the class that ends the row."""
    expression, leaves, kind = (part.strip() for part in row.rsplit(" |", 2))

    def run(library: ModuleType) -> Any:
        return evaluated(library, expression, leaves)

    for error in (result_or_error(run, tape), pytorch.or_error(run, row)):
        assert isinstance(error, Raised), error
        assert kind in error.classes, error
