"""What a function came down to: the operations that ran in it, if somebody asks."""

from __future__ import annotations

from threading import local
from typing import Any, NamedTuple


class Run(NamedTuple):
    """An operation that ran: on which tensors, with which parameters, and what came of it, one tensor or a pair."""

    op: Any
    operands: tuple[Any, ...]
    params: Any
    results: tuple[Any, ...]


class _Runs(local):
    """Those that ran in this thread since somebody asked; None where nobody does."""

    found: list[Run] | None = None


runs = _Runs()


def tell(op: Any, operands: tuple[Any, ...], params: Any, results: tuple[Any, ...]) -> None:
    """Tell who asks that an operation ran."""
    if runs.found is not None:
        runs.found.append(Run(op, operands, params, results))


def spoil() -> None:
    """Let nobody take what runs for all that the function does: it warned, say."""
    if runs.found is not None:
        runs.found.append(Run(None, (), None, ()))
