"""A log of the operations that run in a thread, kept while somebody asks: what a public function consists of."""

from __future__ import annotations

from threading import local
from typing import Any, NamedTuple


class Run(NamedTuple):
    """An operation that ran: its operands, its parameters, and its results, one tensor or a pair."""

    op: Any
    operands: tuple[Any, ...]
    params: Any
    results: tuple[Any, ...]


class _Runs(local):
    """The operations that ran in this thread since somebody asked for them; None where nobody does."""

    log: list[Run] | None = None


runs = _Runs()


def log_operation(op: Any, operands: tuple[Any, ...], params: Any, results: tuple[Any, ...]) -> None:
    """Log an operation that ran, if somebody asks."""
    if runs.log is not None:
        runs.log.append(Run(op, operands, params, results))


def log_incomplete() -> None:
    """Log that the function did more than run operations, such as warn: the log does not describe all of it."""
    if runs.log is not None:
        runs.log.append(Run(None, (), None, ()))
