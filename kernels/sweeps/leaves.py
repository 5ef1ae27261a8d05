"""The leaves that a sweep reaches: arrays for their gradients before it, the gradients after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import SCALAR, Spec
from kernels.arrays.sweep_interface import Array, CrossingError, HookedError, Observer, Outcome, Wanted
from kernels.arrays.warnings_off import silently
from kernels.compiler import jit
from kernels.native.heap_types import NATIVE
from kernels.native.pool import reused_arrays
from kernels.native.pool.pool_structs import LARGE
from kernels.native.tape_structs import RELEVANT, TOUCHED, Bucket, FormBlock, FoundLeaf, SweepHeader
from kernels.sweeps.gradient_views import pattern, shaped
from kernels.sweeps.workspace import Workspace

PlacedLeaf = tuple[Any, Spec, int, Any]
"""A leaf, or a slot of another tape; its spec; where its bucket begins among the words of buckets; the array for its
gradient, None for a single double, which stands in the bucket."""


def place_leaves(
    space: Workspace,
    entries: Any,
    observers: Sequence[Observer],
    batch: int,
    *,
    cross_tape: bool,
    only: set[Any] | None = None,
) -> list[PlacedLeaf]:
    """Give each leaf found, or only these, a place for its gradient."""
    leaf_rows, flat = space.leaf_rows, space.flat
    placed: list[PlacedLeaf] = []
    observed = {o.key for o in observers} if observers else ()
    for at in range(0, FoundLeaf.SIZE * space.words[SweepHeader.leaf], FoundLeaf.SIZE):
        leaf = entries.operand(leaf_rows[at], leaf_rows[at + 1])
        if (observed and leaf in observed) or (only is not None and leaf not in only):
            continue
        bucket = Bucket.SIZE * leaf_rows[at + 2]
        if type(leaf) is int:
            if not cross_tape:
                space.held = []
                raise CrossingError
            spec = operand_spec(entries, leaf_rows[at], leaf_rows[at + 1])
            array = reused_arrays.empty((batch, spec.buffer_size) if batch else spec.buffer_size, spec)
        else:
            spec = leaf.spec
            if spec is SCALAR and not batch:
                placed.append((leaf, spec, bucket, None))
                continue
            if batch:
                array = reused_arrays.empty((batch, spec.buffer_size), spec)
            else:
                array = reused_arrays.empty(spec.shape if spec.in_order else spec.buffer_size, spec)
        flat[bucket + 1] = -id(array)
        placed.append((leaf, spec, bucket, array))
    return placed


def place(space: Workspace, entries: Any, only: Wanted | None, hooked: Container[int]) -> list[PlacedLeaf] | None:
    """Give the wanted leaves that were found a place, and restrict the sweep to what leads to them.

    None, holding nothing, if one of them was not found, or one was found that is not allowed. HookedError if a leaf has
    hooks and all leaves are wanted.
    """
    count = space.words[SweepHeader.leaf]
    if only is None:
        placed = place_leaves(space, entries, (), 0, cross_tape=False) if count else []
        if hooked:
            refuse(placed, hooked)
        return placed
    leaf_rows, flat, wanted, (leaves, alone) = space.leaf_rows, space.flat, 0, only
    if count == len(leaves):  # the usual case: exactly the wanted leaves were found, or one of them is missing
        placed = place_leaves(space, entries, (), 0, cross_tape=False)
        return placed if leaves.issuperset([row[0] for row in placed]) else _none(space)
    for at in range(0, FoundLeaf.SIZE * count, FoundLeaf.SIZE):
        leaf = entries.operand(leaf_rows[at], leaf_rows[at + 1])
        if type(leaf) is int:
            space.held = []
            raise CrossingError
        if leaf in leaves:
            flat[Bucket.SIZE * leaf_rows[at + 2] + 3] |= RELEVANT
            wanted += 1
    if wanted < len(leaves) or (alone and wanted < count):
        return _none(space)
    space.words[SweepHeader.restrict] = 1
    space.relevant(space.address)
    return place_leaves(space, entries, (), 0, cross_tape=False, only=leaves)


def refuse_seen(space: Workspace, entries: Any, seen: Collection[int], root: int) -> None:
    """Raise HookedError if a sweep from this root may reach one of these slots."""
    first = entries.at(space.order[space.words[SweepHeader.count] - 1].__index__())[2]
    if any(first <= slot <= root for slot in seen):
        space.held = []
        raise HookedError


def refuse(placed: list[PlacedLeaf], hooked: Container[int]) -> None:
    """Raise HookedError if a leaf that was found has hooks."""
    if any(id(row[0]) in hooked for row in placed):
        raise HookedError


def operand_spec(entries: Any, operand: int, last: int) -> Spec:
    """Return the spec of an operand, by the places of it and of the last entry of its instruction."""
    form = entries.form(last)
    start = last - int(form.block[FormBlock.entries]) + 1
    spec: Spec = form.specs[operand - start - 1]
    return spec


def read(space: Workspace, placed: list[PlacedLeaf], restrict: bool) -> Outcome:
    """Return the gradients of leaves, with ``restrict`` of none, and the cotangents of slots on other tapes."""
    if space.words[SweepHeader.at]:
        placed = touched(space, placed)
    foreign = [(slot, spec, pattern(array, spec, 0).copy()) for slot, spec, _, array in placed if type(slot) is int]
    leaves = [] if restrict else [row for row in placed if type(row[0]) is not int]
    return gradients(space, leaves), foreign


def _none(space: Workspace) -> None:
    """Hold nothing, and return None."""
    space.held = []


def touched(space: Workspace, placed: list[PlacedLeaf]) -> list[PlacedLeaf]:
    """Return the leaves that received a contribution, where H_AT says that some did not."""
    flat = space.flat
    return [row for row in placed if flat[row[2] + 3] & TOUCHED]


def gradients(space: Workspace, placed: list[PlacedLeaf]) -> list[tuple[Any, Array | float]]:
    """Return leaves with their gradients."""
    floats = space.floats
    return [
        (leaf, floats[bucket + 2] if array is None else array if spec.in_order else shaped(array, spec))
        for leaf, spec, bucket, array in placed
    ]


def adder() -> Callable[[Array, Any], None]:
    """Return what adds a gradient to another of its shape, in place."""
    added: Callable[[Array, Any], bool] | None = (
        jit.bound("sweeps.native.gathering_native", "added", None) if NATIVE else None
    )

    def add(into: Array, value: Any) -> None:
        if added is None or into.nbytes >= LARGE or not added(into, value):
            silently(np.add, into, value, out=into)

    return add
