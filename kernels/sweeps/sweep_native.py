"""The native sweeps: pullbacks of instructions, last first, and their pushforwards, first first."""

from __future__ import annotations

from kernels.native.memory import call_kernel, give, load_f4, load_i8, store_f4, store_i8, take, word
from kernels.native.structs import (
    ALIAS,
    ALWAYS,
    CLEARS,
    CONSTANT,
    CONSTANT_WANTED,
    GRADED,
    IDENTITY,
    INTERRUPT_CHECK,
    KEEPS_WHOLE,
    KEPT,
    MEMORY,
    MISSING,
    NEVER,
    NONE,
    OK,
    OWNED,
    PARENT,
    PAUSE,
    PAUSED,
    PULLS,
    PYTHON,
    RELEVANT,
    REQUESTED,
    RERUN,
    RESULT,
    SINGLE,
    TOUCHED,
    UNREQUESTED,
    VIEW,
    WHOLE,
    WORK_BETWEEN_CHECKS,
    Bucket,
    FormBlock,
    InputBlock,
    SweepHeader,
)
from kernels.native.tape_native import block_at, point_at
from kernels.programs.replay_back_native import (
    bucket_of,
    drop,
    family,
    fill,
    find,
    gradient_buffer,
    hand_back,
    own_copy,
    rerun,
    role,
    run_back,
    settle_view,
    work_of,
    write_out,
)
from kernels.rules.loop_printer import LEAST
from kernels.sweeps.short_backward_native import settle

# The native sweep: instructions, last first, and the pullback of each.

# Reuse of a cotangent's memory in a sweep; kernels/kinds/form.py says by which pullbacks.


def is_fresh(target: Bucket):
    """Whether nobody but the sweep sees a gradient buffer, and nothing has been contributed to it."""
    return target.pointer == 0 and target.flags & (ALIAS | KEPT | TOUCHED) == 0


def reusing_operand(h, operands, block: FormBlock, bucket: Bucket):
    """The operand whose pullback may leave its result in the memory of the cotangent, once it is run last; else -1."""
    if bucket.flags & (OWNED | KEPT | ALIAS | CONSTANT | CONSTANT_WANTED) != OWNED:
        return -1
    for k in range(block.inputs):
        i = block.inputs - 1 - k
        key, input_block = word(operands, i), InputBlock(block + 8 * (FormBlock.SIZE + i * InputBlock.SIZE))
        kernel = input_block.reused
        if key == 0 or kernel == NONE or input_block.constant == ALWAYS:
            continue
        if not is_fresh(find(h, key)):
            continue
        if kernel > REQUESTED:
            return i
        input_block.reused = REQUESTED
        block.ready = 0
    return -1


def whole(bucket: Bucket):
    """WHOLE where a cotangent is, and no hook may have changed it."""
    return bucket.flags & WHOLE if bucket.flags & PAUSED == 0 else 0


def reuse_cotangent(target: Bucket, input_block: InputBlock, bucket: Bucket, pointers):
    """Run a pullback in the cotangent's memory, and let the target own that."""
    pointer = bucket.pointer
    if input_block.reused != IDENTITY:
        store_i8(pointers + 8, pointer)
        call_kernel(input_block.reused, word(input_block, InputBlock.reused + 1), pointers, 0)
    target.pointer = pointer
    target.flags |= OWNED | TOUCHED | (whole(bucket) if input_block.covers == KEEPS_WHOLE else 0)
    bucket.pointer = 0
    bucket.flags &= ~OWNED


def call(h: SweepHeader, input_block: InputBlock, target, cotangent, source_bytes, result_bytes, accumulate):
    """Run one kernel for each of a batch of cotangents."""
    pointers = h.pointers
    for k in range(h.batch):
        store_i8(pointers, target + k * source_bytes)
        store_i8(pointers + 8, cotangent + k * result_bytes)
        call_kernel(input_block.kernel, input_block.layout, pointers, accumulate)


def spreads(block: FormBlock, input_block: InputBlock):
    """Whether there is a kernel that reads a constant cotangent; if it is not compiled, ask for it."""
    if input_block.spread == UNREQUESTED:
        input_block.spread = REQUESTED
        block.ready = 0
    return input_block.spread > REQUESTED


def add_plainly(input_block: InputBlock, target: Bucket, cotangent, is_whole, pointers):
    """Run a pullback into a whole gradient buffer, without offsets or constants; MEMORY or OK."""
    pointer, flags, accumulate = target.pointer, target.flags, 1
    if pointer <= 0:
        size = input_block.buffer * input_block.item
        if pointer < 0:
            pointer = load_i8(16 - pointer)  # an array that the caller owns: the address of its data
        elif size <= 8:
            pointer = target + 16
        else:
            pointer, flags = take(size), flags | OWNED
            if pointer == 0:
                return MEMORY
        target.pointer = pointer
    if flags & TOUCHED == 0:
        target.flags = flags | TOUCHED | (is_whole if input_block.covers == KEEPS_WHOLE else 0)
        if input_block.covers != 0:
            accumulate = 0
        else:
            fill(pointer, 1, input_block.item, -0.0)
    store_i8(pointers, pointer)
    store_i8(pointers + 8, cotangent)
    call_kernel(input_block.kernel, input_block.layout, pointers, accumulate)
    return OK


def is_plain(input_block: InputBlock, flags):
    """Whether :func:`add_plainly` can run a pullback into a target."""
    if flags & (ALIAS | CONSTANT | CONSTANT_WANTED) != 0 or input_block.constant != NEVER:
        return False
    return flags & TOUCHED != 0 or input_block.covers != 0 or input_block.buffer == 1


def constant_result_of(input_block: InputBlock, target, bucket: Bucket, constant_wanted):
    """Whether a pullback's result is constant: 2 yes; 1 it could be, had the kernels been compiled; 0 no."""
    constant_result = input_block.constant
    if constant_result == NEVER or not (constant_result == ALWAYS or constant_wanted) or not is_fresh(target):
        return 0
    return 2 if constant_result == ALWAYS or bucket.flags & CONSTANT != 0 else 1


def store_constant(h: SweepHeader, input_block: InputBlock, target: Bucket, bucket: Bucket):
    """Store a constant cotangent in a target's bucket."""
    pointers = h.pointers
    target.pointer = target + 16
    target.flags |= TOUCHED | CONSTANT
    store_i8(pointers, target + 16)
    store_i8(pointers + 8, bucket.pointer)
    call_kernel(input_block.one, word(input_block, InputBlock.one + 1), pointers, 0)


def contribute(
    h: SweepHeader, block: FormBlock, input_block: InputBlock, target: Bucket, bucket: Bucket, start, constant_wanted
):
    """Run a pullback on the cotangent in ``bucket``, ``start`` bytes into its buffer, for a target; MEMORY or OK."""
    buckets, pointers, batch, offset = h.buckets, h.pointers, h.batch, 0
    constant = constant_result_of(input_block, target, bucket, constant_wanted) if batch == 1 else 0
    if constant == 2:
        store_constant(h, input_block, target, bucket)
        return OK
    flags = target.flags
    if flags & ALIAS:
        offset = target.value
        target = family(target, buckets)
        flags = target.flags
    elements, item, covers = input_block.buffer, input_block.item, input_block.covers
    run = input_block.run if batch == 1 and flags & TOUCHED == 0 else 0
    pointer = gradient_buffer(target, buckets, elements * batch, item, covers + run)
    if pointer == 0:
        return MEMORY
    if run != 0:
        fill(pointer, offset // item, item, -0.0)
        fill(pointer + offset + run * item, elements - run - offset // item, item, -0.0)
    target.flags = (target.flags & ~CONSTANT_WANTED) | (CONSTANT_WANTED if constant != 0 else 0)
    accumulate = 0 if covers + run != 0 and flags & TOUCHED == 0 else 1
    if accumulate == 0 and covers == KEEPS_WHOLE and batch == 1 and bucket.flags & CONSTANT == 0:
        target.flags |= whole(bucket)
    cotangent = bucket.pointer + start
    if batch == 1:
        store_i8(pointers, pointer + offset)
        store_i8(pointers + 8, cotangent)
        kernel = InputBlock.spread if bucket.flags & CONSTANT else InputBlock.kernel
        call_kernel(word(input_block, kernel), word(input_block, kernel + 1), pointers, accumulate)
    else:
        result_bytes = block.buffer * block.item
        call(h, input_block, pointer + offset, cotangent, elements * item, result_bytes, accumulate)
    return OK


def dense(block: FormBlock, bucket: Bucket):
    """Write out a constant cotangent, element by element; False without memory."""
    constant = bucket.flags & CONSTANT != 0
    return not constant or write_out(bucket, block.buffer, block.item) != 0


def pull_single(h: SweepHeader, items, last, block: FormBlock, bucket: Bucket):
    """Run the pullbacks of an instruction all of whose gradient buffers have one element; MEMORY or OK."""
    buckets, mask, top, near = h.buckets, h.mask, h.top, h.near
    pointers, restrict, inputs, i = h.pointers, h.restrict, block.inputs, 0
    operands, input_block = items + 8 * (last + 2 - block.entries), block + 8 * FormBlock.SIZE
    point_at(operands + 8 * inputs, block, pointers + 16)
    while i < inputs:
        key = word(operands, i)
        if key != 0:
            target = Bucket(bucket_of(buckets, mask, top, near, key))
            flags = target.flags
            wanted = restrict == 0 or flags & RELEVANT != 0
            if wanted and flags & ALIAS == 0:
                add_plainly(input_block, target, bucket.pointer, 0, pointers)
            elif wanted and contribute(h, block, input_block, target, bucket, 0, False) != OK:
                return MEMORY
        input_block += 8 * InputBlock.SIZE
        i += 1
    return OK


def pull(h: SweepHeader, last, block: FormBlock, bucket: Bucket):
    """Run the pullbacks of one instruction on the cotangent that ``bucket`` holds; MEMORY or OK."""
    buckets, mask, top, near = h.buckets, h.mask, h.top, h.near
    inputs, kind, batch, pointers = block.inputs, block.kind, h.batch, h.pointers
    operands = h.tape.words + 8 * (last + 2 - block.entries)
    if kind != PULLS and not dense(block, bucket):
        return MEMORY
    constant_wanted, start = bucket.flags & (CONSTANT | CONSTANT_WANTED) != 0, 0
    point_at(operands + 8 * inputs, block, pointers + 16)
    if kind != PULLS:
        start = word(operands, inputs)
    small = batch == 1 and not constant_wanted
    reusing = reusing_operand(h, operands, block, bucket) if small and kind == PULLS and block.buffer >= LEAST else -1
    for k in range(0 if kind == PULLS else 1, inputs + 1 if reusing >= 0 else inputs):
        i = reusing if k == inputs else k  # the one that reuses the cotangent's memory comes last
        key, input_block = word(operands, i), block + 8 * (FormBlock.SIZE + i * InputBlock.SIZE)
        if key == 0 or (i == reusing and k < inputs):
            continue
        target = Bucket(bucket_of(buckets, mask, top, near, key))
        flags = target.flags
        if h.restrict != 0 and flags & RELEVANT == 0:
            continue
        if small and reusing < 0 and is_plain(input_block, flags):
            if add_plainly(input_block, target, bucket.pointer + start, whole(bucket), pointers) != OK:
                return MEMORY
            continue
        if constant_wanted and not spreads(block, input_block) and not dense(block, bucket):
            return MEMORY
        if k == inputs and is_fresh(target):
            reuse_cotangent(target, input_block, bucket, pointers)
        elif contribute(h, block, input_block, target, bucket, start, constant_wanted) != OK:
            return MEMORY
    if kind == CLEARS and word(operands, 0) != 0:
        size, memory = block.buffer * block.item, bucket.pointer + start
        call(h, block + 8 * FormBlock.SIZE, memory, memory, size, size, 0)
        bucket.flags &= ~WHOLE
    return OK


# The sweep: run the pullbacks of the marked instructions, last first.

CONTROL = True

RAN = 2  # H_RESUME: Python has run the instruction at SweepHeader.position


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
    if what == RESULT or (what == GRADED and flags & TOUCHED == 0):
        return OK
    if what == GRADED:
        return hand_back(h, last, block, bucket) if h.batch == 1 else PAUSE
    if h.batch != 1:
        return PAUSE
    return rerun(h, last, block) if what == RERUN else run_back(h, last, block)


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
            h.position = k + 1
            h.resume = 0
            return INTERRUPT_CHECK
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


def abandon(h: SweepHeader) -> None:
    """Free every buffer that a sweep left behind (no memory, or base buffers that nothing consumed)."""
    buckets = h.buckets
    for i in range(h.mask + 1 + h.extent):
        bucket = Bucket(buckets + 8 * Bucket.SIZE * i)
        if (bucket.key == h.stamp or (i <= h.mask and bucket.key != 0)) and bucket.flags & OWNED != 0:
            drop(bucket)


# The forward sweep: run the pushforwards of the marked instructions, first first, on tangents.
#
# Works on what the pre-pass of a reverse sweep leaves: buckets, aliases, and the order of instructions, last first.
# The tangent of a view stands in that of its base, and a write changes the tangent of the version before, as with
# gradient buffers.


def prepare(h: SweepHeader) -> int:
    """Count, in each family's bucket, the operands that read its tangent; MISSING if pushforwards are not compiled."""
    items, buckets = h.tape.words, h.buckets
    order = h.order
    for k in range(h.count):
        last = order[k]
        block = block_at(h.tape, last)
        kind = block.kind
        if kind != VIEW and kind != PYTHON and block.pushes == 0:
            h.at = last
            return MISSING
    for k in range(h.count):
        last = order[k]
        block = block_at(h.tape, last)
        start = last - block.entries + 1
        for i in range(block.inputs):
            key = items[start + 1 + i]
            if key != 0:
                home = family(find(h, key), buckets)
                flags = home.flags
                if flags & ALIAS == 0:  # an alias keeps its parent where others have the count
                    home.flags = flags + (1 << PARENT)
    return OK


def tangent(h: SweepHeader, key: int) -> int:
    """The address of an operand's tangent; 0 where that is zero."""
    buckets = h.buckets
    bucket = Bucket(find(h, key))
    offset = bucket.value if bucket.flags & ALIAS else 0
    home = family(bucket, buckets)
    return home.pointer + offset if home.flags & TOUCHED else 0


def copied(h: SweepHeader, bucket: Bucket, block: FormBlock):
    """Give a bucket a copy of the tangent that the family above it has; 0 without memory."""
    buckets = h.buckets
    above = family(buckets + 8 * Bucket.SIZE * (bucket.flags >> PARENT), buckets)
    if above.flags & TOUCHED == 0:
        return 1
    elements, item = block.buffer * h.batch, block.item
    target = gradient_buffer(bucket, buckets, elements, item, 1)
    if target != 0:
        source = above.pointer
        for p in range(elements * item // 4):
            store_f4(target + 4 * p, load_f4(source + 4 * p))
    return target


def write(h: SweepHeader, last, block: FormBlock, bucket: Bucket):
    """For a write: clear the tangents that it overwrites, then add those of the value; MEMORY or OK."""
    items, buckets = h.tape.words, h.buckets
    start = last - block.entries + 1
    before, source = items[start + 1], items[start + 2]
    flags = bucket.flags
    home = bucket
    if flags & ALIAS and flags & KEPT:
        if copied(h, bucket, block) == 0:
            return MEMORY
    else:
        home = family(bucket, buckets)
    region = items[start + 1 + block.inputs]
    whole = block.buffer * block.item
    if block.kind == CLEARS and before != 0 and home.flags & TOUCHED:
        memory = home.pointer + region
        call(h, block + 8 * FormBlock.SIZE, memory, memory, whole, whole, 0)
    source_tangent = tangent(h, source) if source != 0 else 0
    if source_tangent != 0:
        memory = gradient_buffer(home, buckets, block.buffer * h.batch, block.item, 0)
        if memory == 0:
            return MEMORY
        of = InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE))
        push = block.pushes + 8 * InputBlock.SIZE
        call(h, push, memory + region, source_tangent, whole, of.buffer * of.item, 1)
    return OK


def add(h: SweepHeader, last, block: FormBlock, bucket: Bucket):
    """Add the pushforwards of one instruction to the tangent of its result; MEMORY or OK."""
    items, buckets = h.tape.words, h.buckets
    start, elements = last - block.entries + 1, block.buffer
    for i in range(block.inputs):
        key = items[start + 1 + i]
        operand_tangent = tangent(h, key) if key != 0 else 0
        if operand_tangent == 0:
            continue
        push = InputBlock(block.pushes + 8 * InputBlock.SIZE * i)
        of = InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i))
        covers, touched = push.covers, bucket.flags & TOUCHED
        memory = gradient_buffer(bucket, buckets, elements * h.batch, block.item, covers)
        if memory == 0:
            return MEMORY
        accumulate = 0 if covers != 0 and touched == 0 else 1
        call(h, push, memory, operand_tangent, elements * block.item, of.buffer * of.item, accumulate)
    return OK


def drop_tangents(h: SweepHeader, last, block: FormBlock):
    """Free the tangents that nothing reads after this instruction."""
    items, buckets = h.tape.words, h.buckets
    start = last - block.entries + 1
    for i in range(block.inputs):
        key = items[start + 1 + i]
        if key == 0:
            continue
        home = family(find(h, key), buckets)
        flags = home.flags
        if flags & ALIAS:
            continue
        flags -= 1 << PARENT
        if flags >> PARENT == 0 and flags & (OWNED | KEPT) == OWNED:
            give(home.pointer)
            home.pointer = 0
            flags &= ~OWNED
        home.flags = flags


def push(h: SweepHeader) -> int:
    """Run the pushforwards in the order of the tape; PAUSE, at ``h.position``, for one that only Python runs."""
    items, order = h.tape.words, h.order
    for k in range(h.position, -1, -1):
        last = order[k]
        block = block_at(h.tape, last)
        start = last - block.entries + 1
        kind = block.kind
        bucket = Bucket(find(h, items[start]))
        flags = bucket.flags
        if flags & (KEPT | TOUCHED) == KEPT | TOUCHED:
            pass  # a tangent that was given, or that Python has computed
        elif kind == PYTHON:
            h.position = k
            return PAUSE
        elif kind == VIEW:
            if flags & KEPT and copied(h, bucket, block) == 0:
                return MEMORY
        else:
            point_at(items + 8 * (last - block.saved), block, h.pointers + 16)
            status = add(h, last, block, bucket) if kind == PULLS else write(h, last, block, bucket)
            if status != OK:
                return status
        drop_tangents(h, last, block)
    return OK


def tangent_at(h: SweepHeader, key: int, elements: int, item: int) -> int:
    """The address of the tangent of a slot that Python writes, filled with -0.0 at first; 0 without memory."""
    return gradient_buffer(find(h, key), h.buckets, elements, item, 0)


def passed(h: SweepHeader, k: int) -> None:
    """Continue behind an instruction that Python has run."""
    last = h.order[k]
    drop_tangents(h, last, block_at(h.tape, last))
    h.position = k - 1
