"""Loops in parts: a caller and sleeping workers each take the next part of theirs, then what is left of others'.

A part is taken by exchanging a word that says of which loop it is, so that a worker who comes late takes none of the
next one; what the words say of a loop holds until all parts that were taken are done. No thread waits for one that has
taken nothing.
"""

from __future__ import annotations

from kernels.language.llvm_values import Word
from kernels.native.c_api import PyThread_acquire_lock, PyThread_release_lock
from kernels.native.memory import call_at, load_i8, store_i8
from kernels.native.structs import NUMBERS, PARTS_BITS, SPINS, W_EACH, W_FIRST, ThreadPoolWords, WorkerWords
from kernels.native.threads import counted, exchanged, relax, seen, shown

CONTROL = True
MASK = (1 << PARTS_BITS) - 1


def of_thread(words, place):
    """Where the words of a thread begin."""
    return words + 8 * (W_FIRST + W_EACH * place)


def taken(words, number, place):
    """Take the next part of a thread's; return -1 where none is left."""
    at = of_thread(words, place) + 8 * WorkerWords.claim
    while True:
        claim = seen(at)
        part = claim & MASK
        if claim >> (2 * PARTS_BITS) != number or part >= (claim >> PARTS_BITS) & MASK:
            return -1
        if exchanged(at, claim, claim + 1) != 0:
            return part
    return -1


def woken(sleeps, lock):
    """Wake who sleeps there, or is about to."""
    if exchanged(sleeps, 1, 0) != 0:
        PyThread_release_lock(load_i8(lock))
    return 0


def worked(words: ThreadPoolWords, number, mine):
    """Run parts, first of one's own."""
    threads, k, place = words.active, 0, mine
    while k < threads:
        part = taken(words, number, place)
        while part >= 0:
            parts = words.parts
            call_at(words.function, words.table, part, 0, 0)
            if mine != 0:
                counted(words + 8 * ThreadPoolWords.by_workers, 1)
            if counted(words + 8 * ThreadPoolWords.done, 1) == parts:
                woken(words + 8 * ThreadPoolWords.waits, words + 8 * ThreadPoolWords.lock)
            part = taken(words, number, place)
        place = place + 1 if place + 1 < threads else 0
        k += 1
    return 0


def finished(words: ThreadPoolWords, parts):
    """Wait until all parts are done."""
    spins, waits = 0, words + 8 * ThreadPoolWords.waits
    while seen(words + 8 * ThreadPoolWords.done) != parts:
        spins += 1
        if spins < SPINS:
            relax()
            continue
        shown(waits, 1)
        if seen(words + 8 * ThreadPoolWords.done) == parts and exchanged(waits, 1, 0) != 0:
            return 0
        PyThread_acquire_lock(words.lock, 1)
    return 0


def shared_out(words, number, parts, threads):
    """Give each thread its parts, and wake those that sleep."""
    k = 0
    while k < threads:
        first, end = parts * k // threads, parts * (k + 1) // threads
        claim = ((number << PARTS_BITS) | end) << PARTS_BITS | first
        shown(of_thread(words, k) + 8 * WorkerWords.claim, claim)
        k += 1
    shown(words + 8 * ThreadPoolWords.number, number)
    k = 1
    while k < threads:
        at = of_thread(words, k)
        woken(at + 8 * WorkerWords.sleeps, at + 8 * WorkerWords.lock)
        k += 1
    return 0


def run(words: ThreadPoolWords, function: Word, table: Word, parts: Word) -> Word:
    """Call ``function(table, part, 0, 0)`` for each part; on this thread alone if others have the workers."""
    threads = seen(words + 8 * ThreadPoolWords.threads)
    threads = min(parts, threads)
    if threads <= 1 or exchanged(words + 8 * ThreadPoolWords.busy, 0, 1) == 0:
        part = 0
        while part < parts:
            call_at(function, table, part, 0, 0)
            part += 1
        return 0
    words.function = function
    words.table = table
    words.parts = parts
    words.active = threads
    words.shared += 1
    shown(words + 8 * ThreadPoolWords.done, 0)
    number = (words.number + 1) % NUMBERS
    shared_out(words, number, parts, threads)
    worked(words, number, 0)
    finished(words, parts)
    shown(words + 8 * ThreadPoolWords.busy, 0)
    return 0


def awaited(words, mine, last):
    """Wait for another loop than the last; return its number, -1 at the end of all."""
    at, spins = WorkerWords(of_thread(words, mine)), 0
    while True:
        if seen(words + 8 * ThreadPoolWords.stop) != 0:
            return -1
        number = seen(words + 8 * ThreadPoolWords.number)
        if number != last:
            return number
        spins += 1
        if spins < SPINS:
            relax()
            continue
        spins = 0
        shown(at + 8 * WorkerWords.sleeps, 1)
        changed = seen(words + 8 * ThreadPoolWords.number) != last or seen(words + 8 * ThreadPoolWords.stop) != 0
        if not (changed and exchanged(at + 8 * WorkerWords.sleeps, 1, 0) != 0):
            PyThread_acquire_lock(at.lock, 1)
    return -1


def work(words: ThreadPoolWords, mine: Word) -> Word:
    """Be a worker, until all end."""
    last = 0
    while True:
        last = awaited(words, mine, last)
        if last < 0:
            return 0
        if mine < words.active:
            worked(words, last, mine)
    return 0


def end(words: Word) -> Word:
    """Have all workers end."""
    shown(words + 8 * ThreadPoolWords.threads, 1)
    shown(words + 8 * ThreadPoolWords.stop, 1)
    k = 1
    while WorkerWords(of_thread(words, k)).lock != 0:
        at = of_thread(words, k)
        woken(at + 8 * WorkerWords.sleeps, at + 8 * WorkerWords.lock)
        k += 1
    return 0


def probe(table: Word, part: Word, unused: Word, unused_too: Word) -> Word:
    """Count a part (the self-check)."""
    store_i8(table + 8 * part, load_i8(table + 8 * part) + part + 1)
    return 0
