"""The tape as an object of native code: a block of words that it owns, with methods to record, read and drop."""

from __future__ import annotations

from typing import Any

from kernels.compiler import jit
from kernels.native import registry
from kernels.native.heap_types import (
    DEALLOC,
    LENGTH,
    MEMBERS,
    METHODS,
    NOT_CALLED,
    READONLY,
    WORD,
    instance,
    made,
    members,
    methods,
)
from kernels.native.memory import HEADER
from kernels.native.tape_structs import CHUNK, CHUNK_BITS, TapeHeader

_METHODS = "record", "at", "operand", "form", "find", "kept", "replace", "collect", "remove", "notify"
_MEMBERS = {"count": TapeHeader.count, "moves": TapeHeader.moves, "writes": TapeHeader.writes, "next": TapeHeader.next}
_SET = {"grown": TapeHeader.grown}


def _type() -> Any:
    native = jit.load_module("native.tape.record_native")
    rows = {name: (WORD, HEADER + 8 * at, READONLY) for name, at in _MEMBERS.items()}
    rows |= {name: (WORD, HEADER + 8 * at, 0) for name, at in _SET.items()}
    slots = {
        MEMBERS: members(rows),
        METHODS: methods({name: getattr(native, name) for name in _METHODS}),
        DEALLOC: native.dealloc,
        LENGTH: native.length,
    }
    return made(f"{__name__}.Words", object, slots, HEADER + 8 * TapeHeader.SIZE, NOT_CALLED)


_types: list[Any] = []


def words_of_tape(number: int, count: int) -> Any:
    """Return the words of a new tape of this number, whose first slot has this count.

    - ``record(result, code, operands, saved)`` appends an instruction: a tensor gets its slot, and the form of this
      number; operands are None, slots and leaves.
    - ``at(last)`` is the instruction that ends at a place: start, stop, slot, operands, saved values, form;
      ``operand(place, last)``, ``form(last)`` and ``kept(place, last)`` are parts of one.
    - ``find(slot)`` is the end of the last instruction whose slot is at most this.
    - ``replace(place, last, saved, copy, code)`` puts a copy in place of a saved array (record_native.py lists them).
    - ``collect(readers)`` drops what nobody can reach, ``remove(readers, lasts)`` these instructions, unless others
      read.
    - ``notify(call)`` sets what is called when half of the tape is dead, or much memory is.
    """
    if not _types:
        _types.append(_type())
    entries = instance(_types[0])
    header = header_of(entries)
    registry.put(header, TapeHeader.number, number)
    count = -(-count // CHUNK) * CHUNK  # slots of the tape that had the number before are counted elsewhere
    registry.put(header, TapeHeader.next, count)
    registry.put(header, TapeHeader.first_chunk, count >> CHUNK_BITS)
    registry.put(header, TapeHeader.registry, registry.REGISTRY.address)
    registry.put(registry.REGISTRY.tapes, number, header)
    return entries


def header_of(entries: Any) -> int:
    """Return the address of a tape's header."""
    return id(entries) + HEADER
