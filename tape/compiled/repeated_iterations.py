"""Iterations of a recorded loop that surely did the same, told by their words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from tape.compiled.loop_spans import MOST_BODIES, Heads, LoopSpan
from tape.tensors.recorder import same_numbers

Pairs = set[tuple[int, int]]


class RepeatedIterations:
    """Tells that two iterations have the same body, so that it need not be made again: most do the same.

    They have where each node of one stands for one of the other, of the same traits, and made at the same place. What
    is rare is not looked into: iterations of which that is not told may have the same body, too.
    """

    def __init__(self, heads: Heads, span: LoopSpan, phis: list[int]) -> None:
        self.trace, self.span, self.firsts = heads.trace, span, [span.start, *span.ends]
        self.nodes, recording = heads.trace.recipe.nodes, heads.trace.recording
        self.sources, taken_over = recording.original_sources, sorted(recording.taken_over)
        self.states = [[visit.nodes[place] for place in phis] for visit in span.visits]
        self._plain, self._objects, self._ones, self._others, self._is_state = heads.trace.node_arrays
        self._known: dict[int, tuple[Array, Array, list[Any]]] = {}  # operands of iterations that were looked at last
        self._is_told = [
            not (heads.trace.unused or heads.within(span, k))
            and bisect_left(taken_over, first) == bisect_left(taken_over, last)
            for k, (first, last) in enumerate(pairwise(self.firsts))
        ]
        """Whether the words of an iteration tell all of it."""

    def is_same(self, a: int, b: int) -> bool:
        """Whether two iterations surely have the same body."""
        trace, visits = self.trace, self.span.visits
        steps, others = [slice(*self.firsts[k : k + 2]) for k in (a, b)]
        return (
            self._is_told[a]
            and self._is_told[b]
            and visits[a].read == visits[b].read
            and np.array_equal(*[trace.word_array[trace.start_array[k]] for k in (steps, others)])
            and np.array_equal(trace.line_array[steps], trace.line_array[others])
            and self._have_same_nodes(a, b)
        )

    def _have_same_nodes(self, a: int, b: int) -> bool:
        """Whether two iterations of the same kinds of steps have the same numbers, and nodes that are alike."""
        (x, places, numbers), (y, other_places, others) = self._operands(a), self._operands(b)
        if not (np.array_equal(places, other_places) and same_numbers(numbers, others)):
            return False
        special = ~(self._plain[x] & self._plain[y])
        pairs = self._with_bases(zip(x[special].tolist(), y[special].tolist(), strict=True))
        if pairs is None:
            return False
        x, y = [np.append(nodes, np.array([pair[k] for pair in pairs], np.int64)) for k, nodes in enumerate((x, y))]
        self._ones[y], self._others[x] = x, y
        is_one_to_one = np.array_equal(self._ones[y], x) and np.array_equal(self._others[x], y)
        return is_one_to_one and self._are_made_alike(x, y, a, b)

    def _operands(self, number: int) -> tuple[Array, Array, list[Any]]:
        """Return the nodes of an iteration, and of the states around it; and where numbers stand, and these."""
        if (known := self._known.pop(number, None)) is not None:
            self._known[number] = known  # as the latest
            return known
        first, last = self.firsts[number : number + 2]
        starts, recipe = self.trace.start_array[first : last + 1], self.trace.recipe
        words, kinds = self.trace.word_array[starts[0] : starts[-1]].copy(), starts[:-1] - starts[0]
        words[kinds] = words[kinds + 1]  # the results in place of their numbers
        is_number = words < 0
        numbers = [recipe.steps.numbers[k] for k in (~words[is_number]).tolist()]
        nodes = np.concatenate([words[~is_number], self.states[number], self.states[number + 1]]).astype(np.int64)
        if len(self._known) > MOST_BODIES:
            del self._known[next(iter(self._known))]
        self._known[number] = known = nodes, np.flatnonzero(is_number), numbers
        return known

    def _with_bases(self, pairs: Iterable[tuple[int, int]]) -> Pairs | None:
        """Return pairs of nodes with those of their bases; None if two are not alike."""
        all_pairs, todo = Pairs(), {*pairs}
        while todo:
            pair = todo.pop()
            all_pairs.add(pair)
            if not self._is_alike(*pair):
                return None
            x, y = [self.nodes[node] for node in pair]
            for one, other in (x.base, y.base), (x.family, y.family):
                if one is None or other is None:
                    if one is not other:
                        return None
                elif (one, other) not in all_pairs:
                    todo.add((one, other))
        return all_pairs

    def _is_alike(self, a: int, b: int) -> bool:
        """Whether two nodes have the same traits, and as far as they are constants the same content."""
        if a == b:
            return True
        x, y = self.nodes[a], self.nodes[b]
        traits = [(n.offset, n.buffer_offset, n.differentiable, n.constant is None) for n in (x, y)]
        if x.spec is not y.spec or traits[0] != traits[1] or x.argument or y.argument:
            return False
        if x.constant is not None and y.constant is not None:
            return self.sources.get(a) is self.sources.get(b) and x.constant.tobytes() == y.constant.tobytes()
        return not any(0 <= self.trace.origin(node) < self.span.start for node in (a, b) if self.trace.made[node] < 0)

    def _are_made_alike(self, x: Array, y: Array, a: int, b: int) -> bool:
        """Whether pairs of nodes are the same ones, or made at the same place of two iterations, if one makes them."""
        made, other = self.trace.made_array[x], self.trace.made_array[y]
        (first, last), begin, state = self.firsts[a : a + 2], self.firsts[b], self.states[a]
        self._is_state[x], self._is_state[state] = False, True
        is_local = (first <= made) & (made < last) & (made - first == other - begin)
        is_outer = (x == y) & (made < self.span.start)
        is_constant = (made < 0) & (other < 0) & ~(self._plain[x] & self._plain[y])
        if not np.all(is_local | is_outer | is_constant | self._is_state[x]):
            return False
        different = self._objects[x] != self._objects[y]
        return all(map(self._is_alike, x[different].tolist(), y[different].tolist()))
