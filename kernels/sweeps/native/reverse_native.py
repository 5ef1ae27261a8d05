"""The sweep: run the pullbacks of the marked instructions, last first."""

from __future__ import annotations

from kernels.native.memory import load_i8, store_i8, word
from kernels.native.words import (
    ALIAS,
    B_ENTRIES,
    B_KIND,
    B_READY,
    B_WORK,
    BUCKET,
    G_FORMS,
    H_BATCH,
    H_BUCKETS,
    H_COUNT,
    H_EXTENT,
    H_FROM,
    H_MASK,
    H_NEAR,
    H_ORDER,
    H_RESUME,
    H_STAMP,
    H_TAPE,
    H_TOP,
    INTERRUPT_CHECK,
    KEPT,
    MEMORY,
    OK,
    OWNED,
    PAUSE,
    PAUSED,
    PYTHON,
    SINGLE,
    T_REGISTRY,
    T_WORDS,
    TOUCHED,
    VIEW,
    WORK_BETWEEN_CHECKS,
)
from kernels.programs.running.pullback_words import RESULT
from kernels.sweeps.native.gradient_table_native import (
    bucket_of,
    drop,
    family,
    find,
    gradient_buffer,
    own_copy,
    settle_view,
)
from kernels.sweeps.native.leaves_native import settle
from kernels.sweeps.native.pulling_native import dense, pull, pull_single
from kernels.sweeps.native.replay_back_native import role, run_back, work_of

CONTROL = True

RAN = 2
"""H_RESUME: Python has run the instruction at H_FROM."""


def unwrite_apart(h, last, block, bucket):
    """Sweep a write whose version has a buffer of its own, then add what is left to that of the version before."""
    if load_i8(bucket + 24) & TOUCHED == 0:
        return OK
    if load_i8(bucket + 24) & OWNED == 0 and own_copy(h, bucket, block) == 0:
        return MEMORY
    status = pull(h, last, block, bucket)
    if status != OK:
        return status
    if settle_view(h, bucket, block) == 0:
        return MEMORY
    drop(bucket)
    return OK


def paused(h, k, block, bucket):
    """Pause for Python to act on an instruction; a constant cotangent is written out for it."""
    store_i8(h + 8 * H_FROM, k)
    return PAUSE if dense(block, bucket) else MEMORY


def interrupt_check(h, k):
    """Return to Python for an interrupt check; the sweep continues with instruction ``k``."""
    store_i8(h + 8 * H_FROM, k)
    store_i8(h + 8 * H_RESUME, 0)
    return INTERRUPT_CHECK


def let_go(block, bucket):
    """Free the gradient buffer of an instruction that Python has run; that of a result is kept for the call."""
    kept = word(block, B_KIND) == PYTHON and role(block) == RESULT
    if not kept and load_i8(bucket + 24) & (OWNED | KEPT | ALIAS) == OWNED:
        drop(bucket)
    return 0


def without_python(h, last, block, bucket):
    """Run what Python runs otherwise: a program, or a result of one, whose cotangent stays; PAUSE, MEMORY or OK."""
    what, flags = role(block), load_i8(bucket + 24)
    if what == 0 or flags & (PAUSED | TOUCHED) == PAUSED | TOUCHED:
        return PAUSE
    if flags & TOUCHED != 0 and not dense(block, bucket):
        return MEMORY
    if what == RESULT:
        return OK
    return run_back(h, last, block) if word(h, H_BATCH) == 1 else PAUSE


def step(h, last, block, bucket):
    """Propagate the cotangent of one instruction of any kind; MEMORY or OK."""
    buckets, flags, home = word(h, H_BUCKETS), load_i8(bucket + 24), bucket
    if word(block, B_KIND) == VIEW:
        settled = flags & (KEPT | TOUCHED) != KEPT | TOUCHED or settle_view(h, bucket, block) != 0
        return OK if settled else MEMORY
    if flags & ALIAS:
        if flags & KEPT:
            return unwrite_apart(h, last, block, bucket)
        home = family(bucket, buckets)
    if load_i8(home + 24) & TOUCHED == 0:
        return OK
    if pull(h, last, block, home) != OK:
        return MEMORY
    if home == bucket and load_i8(bucket + 24) & (OWNED | KEPT) == OWNED:
        drop(bucket)
    return OK


def sweep(h: int) -> int:
    """Run the pullbacks of the marked instructions, last first; INTERRUPT_CHECK from time to time.

    PAUSE, with the instruction in H_FROM, for hooks, and for an instruction that only Python runs; H_RESUME says how to
    continue.
    """
    items = word(word(h, H_TAPE), T_WORDS)
    forms = word(word(word(h, H_TAPE), T_REGISTRY), G_FORMS)
    buckets, mask, order = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_ORDER)
    top, near = word(h, H_TOP), word(h, H_NEAR)
    resume, batch, work = word(h, H_RESUME), word(h, H_BATCH), 0
    for k in range(word(h, H_FROM), word(h, H_COUNT)):
        last = word(order, k)
        block = word(forms, word(items, last))
        bucket = bucket_of(buckets, mask, top, near, word(items, last - word(block, B_ENTRIES) + 1))
        flags = load_i8(bucket + 24)
        if resume == 0 and (word(block, B_KIND) == PYTHON or flags & (PAUSED | TOUCHED) == PAUSED | TOUCHED):
            status = without_python(h, last, block, bucket) if word(block, B_KIND) == PYTHON else PAUSE
            if status == PAUSE:
                return paused(h, k, block, bucket)
            work += work_of(h, last, block)
            if status == OK and work <= WORK_BETWEEN_CHECKS:
                continue
        elif resume == RAN:
            resume = let_go(block, bucket)
            continue
        elif batch == 1 and word(block, B_READY) == SINGLE:
            resume = 0
            if flags & TOUCHED == 0:
                continue
            status = pull_single(h, items, last, block, bucket)
        else:
            resume = 0
            status = step(h, last, block, bucket)
        if status != OK:
            return status
        work += word(block, B_WORK) * batch
        if work > WORK_BETWEEN_CHECKS:
            return interrupt_check(h, k + 1)
    settle(h)
    return OK


def place(h: int, key: int, elements: int, item: int, covers: int) -> int:
    """The address of the gradient buffer that the slot or leaf of this key writes to, ready to be added to.

    Negative for a first contribution that ``covers`` the buffer: it is to be stored, not added.
    """
    buckets = word(h, H_BUCKETS)
    bucket = family(find(h, key), buckets)
    first = load_i8(bucket + 24) & TOUCHED == 0
    address = gradient_buffer(bucket, buckets, elements, item, covers)
    return -address if first and covers else address


def free(bucket):
    """Free a gradient buffer that a sweep left behind."""
    if load_i8(bucket + 24) & OWNED:
        drop(bucket)


def abandon(h: int) -> None:
    """Free every buffer that a sweep left behind (no memory, or base buffers that nothing consumed)."""
    buckets = word(h, H_BUCKETS)
    for i in range(word(h, H_MASK) + 1 + word(h, H_EXTENT)):
        bucket = buckets + 8 * BUCKET * i
        if load_i8(bucket) == word(h, H_STAMP) or (i <= word(h, H_MASK) and load_i8(bucket) != 0):
            free(bucket)
