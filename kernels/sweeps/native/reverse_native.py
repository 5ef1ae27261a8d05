"""The sweep: run the pullbacks of the marked instructions, last first."""

from __future__ import annotations

from kernels.native.structs import (
    ALIAS,
    INTERRUPT_CHECK,
    KEPT,
    MEMORY,
    OK,
    OWNED,
    PAUSE,
    PAUSED,
    PYTHON,
    RESULT,
    SINGLE,
    TOUCHED,
    VIEW,
    WORK_BETWEEN_CHECKS,
    Bucket,
    FormBlock,
    SweepHeader,
)
from kernels.programs.replay_back_native import (
    bucket_of,
    drop,
    family,
    find,
    gradient_buffer,
    own_copy,
    role,
    run_back,
    settle_view,
    work_of,
)
from kernels.sweeps.native.leaves_native import settle
from kernels.sweeps.native.pulling_native import dense, pull, pull_single

CONTROL = True

RAN = 2
"""H_RESUME: Python has run the instruction at SweepHeader.position."""


def unwrite_apart(h, last, block, bucket: Bucket):
    """Sweep a write whose version has a buffer of its own, then add what is left to that of the version before."""
    if bucket.flags & TOUCHED == 0:
        return OK
    if bucket.flags & OWNED == 0 and own_copy(h, bucket, block) == 0:
        return MEMORY
    status = pull(h, last, block, bucket)
    if status != OK:
        return status
    if settle_view(h, bucket, block) == 0:
        return MEMORY
    drop(bucket)
    return OK


def paused(h: SweepHeader, k, block, bucket):
    """Pause for Python to act on an instruction; a constant cotangent is written out for it."""
    h.position = k
    return PAUSE if dense(block, bucket) else MEMORY


def interrupt_check(h: SweepHeader, k):
    """Return to Python for an interrupt check; the sweep continues with instruction ``k``."""
    h.position = k
    h.resume = 0
    return INTERRUPT_CHECK


def let_go(block: FormBlock, bucket: Bucket):
    """Free the gradient buffer of an instruction that Python has run; that of a result is kept for the call."""
    kept = block.kind == PYTHON and role(block) == RESULT
    if not kept and bucket.flags & (OWNED | KEPT | ALIAS) == OWNED:
        drop(bucket)
    return 0


def without_python(h: SweepHeader, last, block, bucket: Bucket):
    """Run what Python runs otherwise: a program, or a result of one, whose cotangent stays; PAUSE, MEMORY or OK."""
    what, flags = role(block), bucket.flags
    if what == 0 or flags & (PAUSED | TOUCHED) == PAUSED | TOUCHED:
        return PAUSE
    if flags & TOUCHED != 0 and not dense(block, bucket):
        return MEMORY
    if what == RESULT:
        return OK
    return run_back(h, last, block) if h.batch == 1 else PAUSE


def step(h: SweepHeader, last, block: FormBlock, bucket: Bucket):
    """Propagate the cotangent of one instruction of any kind; MEMORY or OK."""
    buckets, flags, home = h.buckets, bucket.flags, bucket
    if block.kind == VIEW:
        settled = flags & (KEPT | TOUCHED) != KEPT | TOUCHED or settle_view(h, bucket, block) != 0
        return OK if settled else MEMORY
    if flags & ALIAS:
        if flags & KEPT:
            return unwrite_apart(h, last, block, bucket)
        home = family(bucket, buckets)
    if home.flags & TOUCHED == 0:
        return OK
    if pull(h, last, block, home) != OK:
        return MEMORY
    if home == bucket and bucket.flags & (OWNED | KEPT) == OWNED:
        drop(bucket)
    return OK


def sweep(h: SweepHeader) -> int:
    """Run the pullbacks of the marked instructions, last first; INTERRUPT_CHECK from time to time.

    PAUSE for hooks, and for an instruction that only Python runs: ``h.position`` says which, ``h.resume`` how to go on.
    """
    items = h.tape.words
    forms = h.tape.registry.forms
    buckets, mask, order = h.buckets, h.mask, h.order
    top, near = h.top, h.near
    resume, batch, work = h.resume, h.batch, 0
    for k in range(h.position, h.count):
        last = order[k]
        block = forms[items[last]]
        bucket = Bucket(bucket_of(buckets, mask, top, near, items[last - block.entries + 1]))
        flags = bucket.flags
        if resume == 0 and (block.kind == PYTHON or flags & (PAUSED | TOUCHED) == PAUSED | TOUCHED):
            status = without_python(h, last, block, bucket) if block.kind == PYTHON else PAUSE
            if status == PAUSE:
                return paused(h, k, block, bucket)
            work += work_of(h, last, block)
            if status == OK and work <= WORK_BETWEEN_CHECKS:
                continue
        elif resume == RAN:
            resume = let_go(block, bucket)
            continue
        elif batch == 1 and block.ready == SINGLE:
            resume = 0
            if flags & TOUCHED == 0:
                continue
            status = pull_single(h, items, last, block, bucket)
        else:
            resume = 0
            status = step(h, last, block, bucket)
        if status != OK:
            return status
        work += block.work * batch
        if work > WORK_BETWEEN_CHECKS:
            return interrupt_check(h, k + 1)
    settle(h)
    return OK


def place(h: SweepHeader, key: int, elements: int, item: int, covers: int) -> int:
    """The address of the gradient buffer that the slot or leaf of this key writes to, ready to be added to.

    Negative for a first contribution that ``covers`` the buffer: it is to be stored, not added.
    """
    buckets = h.buckets
    bucket = family(find(h, key), buckets)
    first = bucket.flags & TOUCHED == 0
    address = gradient_buffer(bucket, buckets, elements, item, covers)
    return -address if first and covers else address


def free(bucket: Bucket):
    """Free a gradient buffer that a sweep left behind."""
    if bucket.flags & OWNED:
        drop(bucket)


def abandon(h: SweepHeader) -> None:
    """Free every buffer that a sweep left behind (no memory, or base buffers that nothing consumed)."""
    buckets = h.buckets
    for i in range(h.mask + 1 + h.extent):
        bucket = Bucket(buckets + 8 * Bucket.SIZE * i)
        if bucket.key == h.stamp or (i <= h.mask and bucket.key != 0):
            free(bucket)
