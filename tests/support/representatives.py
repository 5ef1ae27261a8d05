"""What every run takes of tables and of random programs: the rest is exhaustive, and README leaves it out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.support import parameter_ids


def few(values: Sequence[Any], count: int = 1, *marks: pytest.MarkDecorator) -> list[Any]:
    """Return the parameters of a test: every run takes the first ones, with these marks."""
    return [pytest.param(v, marks=marks if k < count else pytest.mark.exhaustive) for k, v in enumerate(values)]


def examples(count: int, most: int, *marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Give a test the ``count`` of its random programs: few, with these marks, and in the exhaustive run so many."""
    return pytest.mark.parametrize("count", few([count, most], 1, *marks))


def in_turns(
    rows: Iterable[Any],
    columns: Iterable[Any],
    *marks: pytest.MarkDecorator,
    of: Callable[[Any], bool] = lambda _: True,
) -> list[Any]:
    """Return all pairs as parameters: every run takes each of these rows once, with the columns in turns, marked so."""
    found, turns = [], itertools.cycle(columns := list(columns))
    for row in rows:
        turn = next(turns) if of(row) else None
        for column in columns:
            name = f"{_named(row)}-{_named(column)}"
            found.append(pytest.param(row, column, id=name, marks=marks if column is turn else pytest.mark.exhaustive))
    return found


def _named(value: Any) -> str:
    return str(parameter_ids.name_of(value) or getattr(value, "__name__", None) or getattr(value, "name", value))
