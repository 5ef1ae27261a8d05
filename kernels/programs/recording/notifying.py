"""Operations of a program recorded natively, where nothing about them is new to the recorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.compiler.jit import bound
from kernels.foundation.recent_table import exact
from kernels.instructions.form import Form
from kernels.kinds.select import Select
from kernels.kinds.view import Part, View
from kernels.native.heap_types import NATIVE
from kernels.programs.recording.program_words import N_APARTS, StepKind, Steps
from kernels.programs.running import exchange
from kernels.records.op import Op

APART = (View, Part, Select)
"""Kinds of operations whose results Python looks at: where they stand, and whether they escaped to Python."""
assert len(APART) == N_APARTS


class Tables:
    """A recorder's tables: the node of each tensor by its id, and the form of each node's tensor."""

    __slots__ = ("_kinds", "alike", "forms", "held", "known", "nodes", "steps")

    def __init__(self, nodes: list[Any], steps: Steps) -> None:
        self.nodes, self.steps = nodes, steps
        self.known: dict[int, int] = {}
        self.forms: list[Any] = []
        """For each node the form, or spec, of its tensor if it is differentiable; else None."""
        self.alike: dict[Any, tuple[Any, int, tuple[Any, ...]]] = {}
        """What is shared by all results of a form: the node, the kind of steps, the parameters."""
        self.held: list[Any] = []
        self._kinds: dict[Any, int] = {}

    def kind(self, op: Op, form: Form | None, params: tuple[Any, ...], specs: tuple[Any, ...]) -> int:
        """Return the number of a kind of steps, by the specs of its operands, or their types, and of its result.

        A form is known by what it is of: a table may have dropped it, and made another one for the same.
        """
        kinds = self.steps.kinds
        key = form and (form.specs, form.spec, form.wanted, form.saved, form.name)
        try:
            number = self._kinds.setdefault((op, key, exact(params), specs), len(kinds))
        except TypeError:  # index arrays have no hash
            number = len(kinds)
        if number == len(kinds):
            kinds.append(StepKind(op, form, params, len(specs) - 1))
        return number

    def nodes_added(self, form: Any = None) -> None:
        """Keep up with nodes that have been added: the last one has this form."""
        self.forms += [None] * (len(self.nodes) - len(self.forms))
        if form is not None:
            self.forms[-1] = form


class _Kept(np.ndarray[Any, Any]):
    """Words, with the objects whose addresses they are."""

    objects: list[Any]


def native_notify(tables: Tables, tensor: type, slowly: Callable[..., None]) -> Callable[..., None] | None:
    """Return what records an operation, or calls ``slowly`` for it; None without native code."""
    if not (NATIVE and exchange.native()):
        return None
    kinds = [float, tensor, Form, tuple, None]
    steps = tables.steps
    objects = [tables.known, tables.nodes, tables.forms, tables.alike, tables.held, steps.numbers, slowly]
    words = [*(id(x) for x in (*kinds, *objects, *APART)), steps.head.buffer_info()[0]]
    table_words = np.array(words, np.int64).view(_Kept)
    table_words.objects = [*objects, steps]
    return bound("programs.recording.notifying_native", "notify", table_words)
