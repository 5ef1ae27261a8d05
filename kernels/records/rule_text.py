"""What a rule's own text says: the names of its parameters, and which values it reads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernels.records.symbols import parameters_of, trace

Rule = Callable[..., Any]
STAND_IN = 2.5
"""The value of a static parameter while a rule is traced for what it reads: no special case of any rule."""


def passed(g: Any) -> Any:
    """The rule of what hands its cotangent on."""
    return g


class DeclarationError(TypeError):
    """A record contradicts itself; the message names the record and the remedy."""


def names_read(name: str, pullback: tuple[Rule | None, ...], vocabulary: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """Trace each rule on symbols and return the names it uses."""
    reads = []
    for rule in pullback:
        if rule is None:
            reads.append(frozenset[str]())
            continue
        names = parameters_of(rule)
        unknown = set(names) - set(vocabulary)
        if unknown:
            msg = f"{name}: a pullback asks for {sorted(unknown)}; the vocabulary is {', '.join(vocabulary)}"
            raise DeclarationError(msg)
        try:
            reads.append(trace(rule, **({"p": STAND_IN} if "p" in names else {})).names)
        except TypeError as error:
            raise DeclarationError(f"{name}: {error}") from error
    return tuple(reads)


@functools.cache
def asked(rule: Rule) -> frozenset[str]:
    """Return the names of a rule's parameters."""
    return frozenset(parameters_of(rule))
