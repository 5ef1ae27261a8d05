"""Graphs that cross tapes: those of tensors that threads hand to each other."""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

from kernels.arrays.sweep_interface import Seed
from kernels.instructions.entries import Instruction
from kernels.native.tape_structs import ADDS, CLEARS, TAPE_BITS
from kernels.sweeps import forward as sweeps
from kernels.sweeps.graph import Graph, drop, key_of, mark
from tape.engine.rules.accumulate_grad import tape_of
from tape.tensors.tapes import Tape


@contextmanager
def reading(seeds: Iterable[Seed]) -> Iterator[tuple[Graph, dict[int, Tape]]]:
    """Mark what leads to the roots, on all tapes; yield the graph, and the tapes by number, which drop nothing."""
    graphs: dict[int, Graph] = {}
    tapes: dict[int, Tape] = {}
    roots = {seed.slot: seed for seed in seeds}
    todo = {slot >> TAPE_BITS for slot in roots}
    with ExitStack() as stack:
        while todo:
            number = todo.pop()
            if number not in tapes:
                tapes[number] = tape_of(number << TAPE_BITS)
                stack.enter_context(tapes[number].reading())
            tape_seeds = [seed for slot, seed in roots.items() if slot >> TAPE_BITS == number]
            graph = graphs[number] = mark(tapes[number].entries, number, tape_seeds)
            for slot, spec in graph.ends.values():
                if type(slot) is int and slot not in roots:
                    roots[slot] = Seed(slot, spec, 0.0)
                    todo.add(slot >> TAPE_BITS)
        yield _merged(list(graphs.values()), roots), tapes


def _merged(graphs: list[Graph], roots: dict[int, Seed]) -> Graph:
    """Return several tapes' graphs as one, each instruction before those of its operands."""
    if len(graphs) == 1:
        return graphs[0]
    marked = _in_order(graphs)
    referred, split = set(roots), set()
    for instruction in marked:
        if instruction.form.kind in (CLEARS, ADDS) and key_of(instruction.operands[0]) in referred:
            split.add(instruction.slot)
        referred.update(key_of(operand) for operand in instruction.operands)
    ends = {key: end for graph in graphs for key, end in graph.ends.items() if type(end[0]) is not int}
    return Graph(marked, ends, split)


def _in_order(graphs: list[Graph]) -> list[Instruction]:
    """Merge lists of instructions: an instruction's turn is when all that refer to it have had theirs."""
    waiting = Counter(o for graph in graphs for i in graph.marked for o in i.operands if type(o) is int)
    stacks = [graph.marked[::-1] for graph in graphs]
    merged: list[Instruction] = []
    while any(stacks):
        for stack in stacks:
            while stack and not waiting[stack[-1].slot]:
                merged.append(stack.pop())
                waiting.subtract(o for o in merged[-1].operands if type(o) is int)
    return merged


def release(tapes: Iterable[Tape], graph: Graph) -> None:
    """Drop what has been swept from its tapes."""
    for tape in tapes:
        drop(tape, tape.entries, [i for i in graph.marked if i.slot >> TAPE_BITS == tape.number])


def order(slots: Iterable[int]) -> list[Tape] | None:
    """Return the tapes that slots depend on, each before those it depends on; None if the order is a cycle."""
    wanted = set(slots)
    todo, edges = {slot >> TAPE_BITS for slot in wanted}, dict[int, set[int]]()
    while todo:
        number = todo.pop()
        tape = tape_of(number << TAPE_BITS)
        with tape.reading():
            tape_slots = [slot for slot in wanted if slot >> TAPE_BITS == number]
            reached = {slot for slot, _ in sweeps.leaves(tape.entries, number, tape_slots) if type(slot) is int}
        edges[number] = {slot >> TAPE_BITS for slot in reached}
        todo |= {slot >> TAPE_BITS for slot in reached - wanted}
        wanted |= reached
    try:
        return [tape_of(number << TAPE_BITS) for number in TopologicalSorter(edges).static_order()][::-1]
    except CycleError:
        return None


# Backwards inside backwards: beyond some depth they go on in another thread, where Python's stack begins anew.

Result = TypeVar("Result")
MOST = 12
"""Most backwards inside each other in one thread: each takes some twenty of the thousand frames that Python allows."""


def elsewhere(function: Callable[[], Result]) -> Result:
    """Run a function in a thread of its own, in this context, and wait for it."""
    context, outcome = contextvars.copy_context(), list[tuple[Any, BaseException | None]]()

    def run() -> None:
        try:
            outcome.append((context.run(function), None))
        except BaseException as error:  # noqa: BLE001 (it is raised again, in the thread that waits)
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="tape backward")
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]
