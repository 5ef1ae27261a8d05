"""Noting operations of a program natively, where its recorder need not look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import exchange
from kernels.form import Form
from kernels.jit import bound
from kernels.native_types import NATIVE
from kernels.noting_words import N_APARTS
from kernels.op import Part, Select, View

APART = (View, Part, Select)
"""Kinds of operations whose results are looked at: where they stand, and whether they left for Python."""
assert len(APART) == N_APARTS


class Tables:
    """What a recorder keeps: the node of each tensor by its id, and of each node how its tensor was."""

    __slots__ = ("alike", "flat", "forms", "held", "known", "nodes")

    def __init__(self, nodes: list[Any], flat: list[Any]) -> None:
        self.nodes, self.flat = nodes, flat
        self.known: dict[int, int] = {}
        self.forms: list[Any] = []
        """Of each node the form, or the spec, that its tensor had, if it is differentiable; else None."""
        self.alike: dict[Any, Any] = {}
        """The node that stands for all results of a form, or of a spec where no gradient is wanted."""
        self.held: list[Any] = []

    def noted(self, form: Any = None) -> None:
        """Hear of nodes that have been added: the last one of this form."""
        self.forms += [None] * (len(self.nodes) - len(self.forms))
        if form is not None:
            self.forms[-1] = form


class _Kept(np.ndarray[Any, Any]):
    """Words, with the things whose addresses they are."""

    things: list[Any]


def native_note(tables: Tables, tensor: type, slowly: Callable[..., None]) -> Callable[..., None] | None:
    """Return what notes an operation, or lets ``slowly`` do it; None without native code."""
    if not (NATIVE and exchange.native()):
        return None
    kinds = [float, tensor, Form, tuple, None]
    things = [tables.known, tables.nodes, tables.forms, tables.alike, tables.held, tables.flat, slowly]
    about = np.array([id(x) for x in (*kinds, *things, *APART)], np.int64).view(_Kept)
    about.things = things
    return bound("noting_native", "note", about)
