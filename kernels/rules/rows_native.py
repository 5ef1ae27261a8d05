"""Kernels of rows: values, and their pullbacks."""

from __future__ import annotations

import math

import numpy as np

from kernels.language.llvm_values import Void, Word, Words
from kernels.native.memory import (
    allocate,
    call_loop,
    double_of,
    load_f4,
    load_f8,
    load_i8,
    release,
    store_f4,
    store_f8,
    store_i8,
)
from kernels.rules.elements import ITEM, load, pointer, real, store

# Results of small rows of doubles, which may stand apart; for floats the same text.
#
# Layout: how many rows there are before each other, their length, how many stand side by side, the bits of a number,
# the length of a row of the result. Pointers: the result, its int64 places where there are some, the operand. What
# there is one of for each row, as a sum, stands in order. nan is larger than all numbers.

ZERO, ONE = real(0.0), real(1.0)
INFINITY = real(np.inf)
LEAST = real(np.finfo(real).tiny / np.finfo(real).eps) ** real(0.5)


def first(layout, row, n):
    """Which element a row begins with, of rows of this length."""
    return (row // layout[2]) * n * layout[2] + row % layout[2]


def precedes(a, b, largest):
    if largest:
        return a > b or (a != a and b == b)
    return a < b or (a == a and b != b)


def top_of(x, n, step):
    top = load(x)
    for k in range(1, n):
        value = load(x + k * step)
        if value > top or value != value:
            top = value
    return top


def total(x, n, step):
    """Four sums, so that no addition waits for the one before."""
    a, b, c, d = ZERO, ZERO, ZERO, ZERO
    for k in range(0, n - 3, 4):
        a += load(x + k * step)
        b += load(x + (k + 1) * step)
        c += load(x + (k + 2) * step)
        d += load(x + (k + 3) * step)
    for k in range(n - n % 4, n):
        a += load(x + k * step)
    return (a + b) + (c + d)


def total_product(x, y, n, step, middle):
    """The same of products of elements, each less a number."""
    a, b, c, d = ZERO, ZERO, ZERO, ZERO
    for k in range(0, n - 3, 4):
        a += (load(x + k * step) - middle) * (load(y + k * step) - middle)
        b += (load(x + (k + 1) * step) - middle) * (load(y + (k + 1) * step) - middle)
        c += (load(x + (k + 2) * step) - middle) * (load(y + (k + 2) * step) - middle)
        d += (load(x + (k + 3) * step) - middle) * (load(y + (k + 3) * step) - middle)
    for k in range(n - n % 4, n):
        a += (load(x + k * step) - middle) * (load(y + k * step) - middle)
    return (a + b) + (c + d)


def mean(x, n, step):
    return total(x, n, step) / real(n)


def spread(layout, x):
    """The sum of the squares of what elements are apart from their mean, divided by a number."""
    n, step = layout[1], layout[2] * ITEM
    return total_product(x, x, n, step, mean(x, n, step)) / real(double_of(layout[3]))


def length(x, n, step, scale):
    s = ZERO
    for k in range(n):
        value = load(x + k * step) / scale
        s += value * value
    return math.sqrt(s) * scale


def place_of(x, n, step, rank):
    """Where the element of a rank is that a stable sort gives."""
    for at in range(n):
        before = 0
        for k in range(n):
            other, element = load(x + k * step), load(x + at * step)
            less = precedes(other, element, False)
            before += less or (k < at and not precedes(element, other, False))
        if before == rank:
            return at
    return 0


def first_nan(x, n, step):
    for k in range(n):
        if load(x + k * step) != load(x + k * step):
            return k
    return -1


def store_pick(pointers, row, x, step, at):
    store(pointers[0] + row * ITEM, load(x + at * step))
    store_i8(pointers[1] + row * 8, at)


def ordered(layout, pointers, largest, m):
    """Write the m elements of each row that come first, in order, and their places; equal ones keep their order."""
    n, inner = layout[1], layout[2]
    for row in range(layout[0] * inner):
        y, at, x = pointers[0] + first(layout, row, m) * ITEM, pointers[1] + first(layout, row, m) * 8, pointers[2]
        x += first(layout, row, n) * ITEM
        for k in range(n):
            value, j = load(x + k * inner * ITEM), min(k, m)
            while j > 0 and precedes(value, load(y + (j - 1) * inner * ITEM), largest):
                if j < m:
                    store(y + j * inner * ITEM, load(y + (j - 1) * inner * ITEM))
                    store_i8(at + j * inner * 8, load_i8(at + (j - 1) * inner * 8))
                j -= 1
            if j < m:
                store(y + j * inner * ITEM, value)
                store_i8(at + j * inner * 8, k)


def softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first(layout, row, n) * ITEM, ZERO
        y, x = pointers[0] + at, pointers[1] + at
        top = top_of(x, n, step)
        for k in range(n):
            value = math.exp(load(x + k * step) - top)
            store(y + k * step, value)
            s += value
        for k in range(n):
            store(y + k * step, load(y + k * step) / s)


def log_softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first(layout, row, n) * ITEM, ZERO
        y, x = pointers[0] + at, pointers[1] + at
        top = top_of(x, n, step)
        for k in range(n):
            s += math.exp(load(x + k * step) - top)
        s = math.log(s)
        for k in range(n):
            store(y + k * step, (load(x + k * step) - top) - s)


def var(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0] * layout[2]):
        store(pointers[0] + row * ITEM, spread(layout, pointers[1] + first(layout, row, layout[1]) * ITEM))


def std(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0] * layout[2]):
        variance = spread(layout, pointers[1] + first(layout, row, layout[1]) * ITEM)
        store(pointers[0] + row * ITEM, math.sqrt(variance))


def norm1(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        x, s = pointers[1] + first(layout, row, n) * ITEM, ZERO
        for k in range(n):
            s += abs(load(x + k * step))
        store(pointers[0] + row * ITEM, s)


def norm2(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        x, top = pointers[1] + first(layout, row, n) * ITEM, ZERO
        norm = length(x, n, step, ONE)
        if norm == INFINITY or norm < LEAST:  # squares leave the range: scale the elements
            for k in range(n):
                top = max(top, abs(load(x + k * step)))
            if top > ZERO and top < INFINITY:
                norm = length(x, n, step, top)
        store(pointers[0] + row * ITEM, norm)


def sort(layout: Words, pointers: Words, accumulate: Word) -> Void:
    ordered(layout, pointers, double_of(layout[3]) != 0.0, layout[1])


def topk(layout: Words, pointers: Words, accumulate: Word) -> Void:
    ordered(layout, pointers, double_of(layout[3]) != 0.0, layout[4])


def kthvalue(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        x = pointers[2] + first(layout, row, n) * ITEM
        store_pick(pointers, row, x, step, place_of(x, n, step, np.int64(double_of(layout[3]))))


def median(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        x = pointers[2] + first(layout, row, n) * ITEM
        at = first_nan(x, n, step)
        store_pick(pointers, row, x, step, at if at >= 0 else place_of(x, n, step, (n - 1) // 2))


def running(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, inner, largest = layout[1], layout[2], double_of(layout[3]) != 0.0
    for row in range(layout[0] * inner):
        start, at = first(layout, row, n), 0
        best = load(pointers[2] + start * ITEM)
        for k in range(n):
            value = load(pointers[2] + (start + k * inner) * ITEM)
            if value != value or (best == best and (value >= best if largest else value <= best)):
                best, at = value, k
            store(pointers[0] + (start + k * inner) * ITEM, best)
            store_i8(pointers[1] + (start + k * inner) * 8, at)


def cumsum(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at = first(layout, row, n) * ITEM
        s = load(pointers[1] + at)
        store(pointers[0] + at, s)
        for k in range(1, n):
            s += load(pointers[1] + at + k * step)
            store(pointers[0] + at + k * step, s)


def cumprod(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first(layout, row, n) * ITEM, ONE
        for k in range(n):
            s *= load(pointers[1] + at + k * step)
            store(pointers[0] + at + k * step, s)


def prod(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        x, s = pointers[1] + first(layout, row, n) * ITEM, ONE
        for k in range(n):
            s *= load(x + k * step)
        store(pointers[0] + row * ITEM, s)


def pick(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0]):
        rest, place = row, pointers[2]
        for axis in range(layout[5]):
            place += (rest % layout[6 + axis]) * layout[6 + layout[5] + axis]
            rest //= layout[6 + axis]
        best, at = load(place), 0
        for k in range(1, layout[1]):
            value = load(place + k * layout[2])
            better = value > best if layout[3] else value < best
            if best == best and (better or value != value):
                best, at = value, k
        store(pointers[0] + row * ITEM, best)
        store_i8(pointers[1] + 8 * row, at)


def first_inside(start, step):
    """The number of the first step from a start that is not below 0."""
    return 0 if start >= 0 else (step - 1 - start) // step


def steps_inside(start, step, count, size):
    """How many of so many steps from a start stay below a size."""
    return min(count, (size - 1 - start) // step + 1)


def max_pool(layout: Words, pointers: Words, accumulate: Word) -> Void:
    """Of so many images (height, width): output sizes, then kernel, stride, padding, dilation of both axes."""
    height, width, out = layout[1], layout[2], 0
    for n in range(layout[0]):
        image = pointers[2] + n * height * width * ITEM
        for r in range(layout[3]):
            top = r * layout[7] - layout[9]
            rows, first_row = steps_inside(top, layout[11], layout[5], height), first_inside(top, layout[11])
            for c in range(layout[4]):
                left = c * layout[8] - layout[10]
                columns, first_column = steps_inside(left, layout[12], layout[6], width), first_inside(left, layout[12])
                at, best = np.int64(0), -INFINITY
                if rows > first_row and columns > first_column:
                    at = (top + first_row * layout[11]) * width + left + first_column * layout[12]
                    best = load(image + at * ITEM)
                for i in range(first_row, rows):
                    for j in range(first_column, columns):
                        place = (top + i * layout[11]) * width + left + j * layout[12]
                        value = load(image + place * ITEM)
                        larger = best == best and (value > best or value != value)
                        best, at = value if larger else best, place if larger else at
                store(pointers[0] + out * ITEM, best)
                store_i8(pointers[1] + out * 8, at)
                out += 1


def columns(layout: Words, pointers: Words, accumulate: Word) -> Void:
    """Copy windows of so many padded images (height, width) to columns: kernel, windows, stride, dilation.

    With ``accumulate`` columns are added to the images.
    """
    area, width, across, stride = layout[1] * layout[2] * ITEM, layout[2] * ITEM, layout[6], layout[8]
    at = pointers[0]
    for n in range(layout[0]):
        for i in range(layout[3]):
            for j in range(layout[4]):
                start = pointers[1] + n * area + i * layout[9] * width + j * layout[10] * ITEM
                for row in range(layout[5]):
                    image, column = pointer(start + row * layout[7] * width), pointer(at)
                    if accumulate:
                        for k in range(across):
                            image[k * stride] += column[k]
                    else:
                        for k in range(across):
                            column[k] = image[k * stride]
                    at += across * ITEM


# Pullbacks and pushforwards of small rows, whose elements may stand apart, for float64 or float32.
#
# Layout: how many rows there are before each other, their length, how many stand side by side, the bits of a number.
# Pointers: the target, the cotangent or tangent, then what is saved: the operand x, the result y where a rule has
# them. What is of a row alone, as a sum, stands in order. A number of a row whose cotangent is nothing (-0.0) is
# skipped.

TWO = real(2.0)


def first_of_row(layout, row):
    """Where a row begins, in bytes."""
    return ((row // layout[2]) * layout[1] * layout[2] + row % layout[2]) * ITEM


def put(at, value, accumulate):
    store(at, load(at) + value if accumulate else value + ZERO)


def is_nothing(g):
    return g == ZERO and math.copysign(ONE, g) < ZERO


def keep_nothing(into, n, step, accumulate):
    """Leave a row without a contribution."""
    if not accumulate:
        for k in range(n):
            store(into + k * step, -ZERO)


def zeros_of(x, n, step):
    count = 0
    for k in range(n):
        count += load(x + k * step) == ZERO
    return count


def one_for_zero(x):
    value = load(x)
    return value if value != ZERO else ONE


def product_of(x, n, step):
    """The product of the elements that are not 0: of four, so that no product waits for the one before."""
    a, b, c, d = ONE, ONE, ONE, ONE
    for k in range(0, n - 3, 4):
        a *= one_for_zero(x + k * step)
        b *= one_for_zero(x + (k + 1) * step)
        c *= one_for_zero(x + (k + 2) * step)
        d *= one_for_zero(x + (k + 3) * step)
    for k in range(n - n % 4, n):
        a *= one_for_zero(x + k * step)
    return (a * b) * (c * d)


def others_of(value, product, zeros):
    """The product of a row without one element, given that of those that are not 0, and how many are."""
    if value == ZERO:
        return product if zeros == 1 else ZERO
    return product / value if zeros == 0 else ZERO


def spread_vjp(layout, pointers, accumulate, is_root):
    """Pull back a variance, or its root."""
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, x = pointers[0] + first_of_row(layout, row), pointers[2] + first_of_row(layout, row)
        g = load(pointers[1] + row * ITEM)
        if is_nothing(g):
            keep_nothing(into, n, step, accumulate)
        else:
            if is_root:
                y = load(pointers[3] + row * ITEM)
                g = g / (TWO * y) if y != ZERO else ZERO
            m, factor = mean(x, n, step), g * (TWO / real(double_of(layout[3])))
            for k in range(n):
                put(into + k * step, factor * (load(x + k * step) - m), accumulate)


def spread_jvp(layout, pointers, accumulate, is_root):
    """Push a variance, or its root, forward."""
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        t, x, s = pointers[1] + first_of_row(layout, row), pointers[2] + first_of_row(layout, row), ZERO
        m = mean(x, n, step)
        for k in range(n):
            s += load(t + k * step) * (load(x + k * step) - m)
        s *= TWO / real(double_of(layout[3]))
        if is_root:
            y = load(pointers[3] + row * ITEM)
            s = s / (TWO * y) if y != ZERO else ZERO
        put(pointers[0] + row * ITEM, s, accumulate)


def cumsum_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, g, s = pointers[0] + first_of_row(layout, row), pointers[1] + first_of_row(layout, row), ZERO
        for k in range(n - 1, -1, -1):
            s += load(g + k * step)
            put(into + k * step, s, accumulate)


def cumsum_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, t, s = pointers[0] + first_of_row(layout, row), pointers[1] + first_of_row(layout, row), ZERO
        for k in range(n):
            s += load(t + k * step)
            put(into + k * step, s, accumulate)


def cumprod_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first_of_row(layout, row), ZERO  # what the products from here on give, each without those before
        into, g, x, y = pointers[0] + at, pointers[1] + at, pointers[2] + at, pointers[3] + at
        for k in range(n - 1, -1, -1):
            s = load(g + k * step) + (load(x + (k + 1) * step) * s if k + 1 < n else ZERO)
            put(into + k * step, s * load(y + (k - 1) * step) if k > 0 else s, accumulate)


def cumprod_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first_of_row(layout, row), ZERO
        into, t, x, y = pointers[0] + at, pointers[1] + at, pointers[2] + at, pointers[3] + at
        for k in range(n):
            s = load(x + k * step) * s + load(t + k * step) * (load(y + (k - 1) * step) if k > 0 else ONE)
            put(into + k * step, s, accumulate)


def softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first_of_row(layout, row), ZERO
        into, g, y = pointers[0] + at, pointers[1] + at, pointers[2] + at
        for k in range(n):
            s += load(g + k * step) * load(y + k * step)
        for k in range(n):
            put(into + k * step, load(y + k * step) * (load(g + k * step) - s), accumulate)


def log_softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first_of_row(layout, row), ZERO
        into, g, y = pointers[0] + at, pointers[1] + at, pointers[2] + at
        for k in range(n):
            s += load(g + k * step)
        for k in range(n):
            put(into + k * step, load(g + k * step) - math.exp(load(y + k * step)) * s, accumulate)


def log_softmax_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first_of_row(layout, row), ZERO
        into, t, y = pointers[0] + at, pointers[1] + at, pointers[2] + at
        for k in range(n):
            s += load(t + k * step) * math.exp(load(y + k * step))
        for k in range(n):
            put(into + k * step, load(t + k * step) - s, accumulate)


def standardize(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        y, x = pointers[0] + first_of_row(layout, row), pointers[1] + first_of_row(layout, row)
        m = mean(x, n, step)
        rate = ONE / math.sqrt(total_product(x, x, n, step, m) / real(n) + real(double_of(layout[3])))
        for k in range(n):
            store(y + k * step, (load(x + k * step) - m) * rate)


def standardize_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at = first_of_row(layout, row)
        into, g, x, y = pointers[0] + at, pointers[1] + at, pointers[2] + at, pointers[3] + at
        m = mean(x, n, step)
        rate = ONE / math.sqrt(total_product(x, x, n, step, m) / real(n) + real(double_of(layout[3])))
        a, b = mean(g, n, step), total_product(g, y, n, step, ZERO) / real(n)
        for k in range(n):
            put(into + k * step, rate * ((load(g + k * step) - a) - load(y + k * step) * b), accumulate)


def prod_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, x = pointers[0] + first_of_row(layout, row), pointers[2] + first_of_row(layout, row)
        g = load(pointers[1] + row * ITEM)
        if is_nothing(g):
            keep_nothing(into, n, step, accumulate)
        else:
            zeros, product = zeros_of(x, n, step), product_of(x, n, step)
            if zeros == 0:
                for k in range(n):
                    put(into + k * step, g * (product / load(x + k * step)), accumulate)
            else:
                for k in range(n):
                    put(into + k * step, g * others_of(load(x + k * step), product, zeros), accumulate)


def prod_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        t, x, s = pointers[1] + first_of_row(layout, row), pointers[2] + first_of_row(layout, row), ZERO
        zeros, product = zeros_of(x, n, step), product_of(x, n, step)
        for k in range(n):
            s += load(t + k * step) * others_of(load(x + k * step), product, zeros)
        put(pointers[0] + row * ITEM, s, accumulate)


def var_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    spread_vjp(layout, pointers, accumulate, False)


def var_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    spread_jvp(layout, pointers, accumulate, False)


def std_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    spread_vjp(layout, pointers, accumulate, True)


def std_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    spread_jvp(layout, pointers, accumulate, True)


# The kernel of a matrix product: NumPy's loop into the target, or into new memory and added from there.

# The layout's words: see blas.Product.kernel.
L_LOOP, L_DATA, L_ITEM, L_LEFT, L_RIGHT, L_TARGET, L_EXTENTS = range(7)
L_STRIDES = L_EXTENTS + 4
L_ROW, L_COLUMN = L_STRIDES + 7, L_STRIDES + 8
OPERANDS, STRIDES, EXTENTS, PRODUCT = 0, 3, 12, 16  # where they stand in the call's own memory, in words


def add(target: int, product: int, row: int, column: int, rows: int, columns: int, item: int) -> None:
    """Add a dense matrix, and 0.0 to turn -0.0, to a strided one."""
    for i in range(rows):
        for j in range(columns):
            place = target + i * row + j * column
            value = product + (i * columns + j) * item
            if item == 8:
                store_f8(place, load_f8(place) + (load_f8(value) + 0.0))
            else:
                store_f4(place, load_f4(place) + load_f4(value))


def kernel(layout: Words, pointers: Words, accumulate: Word) -> Void:
    item, rows, columns = layout[L_ITEM], layout[L_EXTENTS + 1], layout[L_EXTENTS + 3]
    target = pointers[layout[L_TARGET]]
    copy = allocate(8 * PRODUCT + (rows * columns * item if accumulate else 0))
    store_i8(copy, pointers[layout[L_LEFT]])
    store_i8(copy + 8, pointers[layout[L_RIGHT]])
    for i in range(9):
        store_i8(copy + 8 * (STRIDES + i), layout[L_STRIDES + i])
    for i in range(4):
        store_i8(copy + 8 * (EXTENTS + i), layout[L_EXTENTS + i])
    product = target
    if accumulate:
        product = copy + 8 * PRODUCT
        store_i8(copy + 8 * (STRIDES + 7), columns * item)
        store_i8(copy + 8 * (STRIDES + 8), item)
    store_i8(copy + 16, product)
    call_loop(layout[L_LOOP], copy, copy + 8 * EXTENTS, copy + 8 * STRIDES, layout[L_DATA])
    if accumulate:
        add(target, product, layout[L_ROW], layout[L_COLUMN], rows, columns, item)
    release(copy)
