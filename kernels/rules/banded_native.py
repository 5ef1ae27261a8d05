"""Factors of banded matrices, and solves with them: what compiled programs call in LAPACK's place.

Matrices of n rows stand by columns, as LAPACK has them: element i, j is ``above + i - j`` places behind the begin of
row j of ``bands``, and ``below + above + i - j`` behind that of factors, whose rows end with how far below the diagonal
the pivot was. Each function takes pointers, the first to what it writes or, in a gradient, adds to; then extents, m
being how many right-hand sides. It returns 0, or 1 where a pivot is zero: the program gives up.
"""

from __future__ import annotations

from kernels.native.memory import local_f8


def band_lu(y, bands, n, below, above):
    """Factor with partial pivoting, multipliers where they come to be, as LAPACK's gbtrf does."""
    d = below + above
    w = 2 * below + above + 2
    for j in range(n):
        for i in range(below):
            y[j * w + i] = 0.0
        for i in range(below + above + 1):
            y[j * w + below + i] = bands[j * (below + above + 1) + i]
    reach = 0
    for k in range(n):
        at = k * w + d
        last = min(below, n - 1 - k)
        best = 0
        for i in range(1, last + 1):
            if abs(y[at + i]) > abs(y[at + best]):
                best = i
        if y[at + best] == 0.0:
            return 1
        y[k * w + w - 1] = best
        reach = max(reach, min(k + best + above, n - 1))
        if best != 0:
            for j in range(k, reach + 1):
                exchanged(y, j * w + d + k - j, best)
        over = 1.0 / y[at]
        for i in range(1, last + 1):
            y[at + i] = y[at + i] * over
        for j in range(k + 1, reach + 1):
            factor = y[j * w + d + k - j]
            for i in range(1, last + 1):
                y[j * w + d + k - j + i] -= y[at + i] * factor
    return 0


def exchanged(x, at, step):
    """Exchange two elements that are a step apart."""
    value = x[at]
    x[at] = x[at + step]
    x[at + step] = value
    return 0


def band_lu_to_bands(d, g, n, below, above):
    for j in range(n):
        for i in range(below + above + 1):
            d[j * (below + above + 1) + i] += g[j * (2 * below + above + 2) + below + i]
    return 0


def band_solve(y, lu, b, n, m, below, above, trans):
    x = local_f8(n)
    for c in range(m):
        solution(x, b, c, lu, n, m, below, above, trans)
        for i in range(n):
            y[i * m + c] = x[i]
    return 0


def solution(x, b, c, lu, n, m, below, above, trans):
    """Write what solves for one right-hand side."""
    for i in range(n):
        x[i] = b[i * m + c]
    if trans != 0:
        return transposed_solved(x, lu, n, below, above)
    d = below + above
    w = 2 * below + above + 2
    for k in range(n):
        if lu[k * w + w - 1] != 0.0:
            exchanged(x, k, int(lu[k * w + w - 1]))
        for i in range(1, min(below, n - 1 - k) + 1):
            x[k + i] -= lu[k * w + d + i] * x[k]
    for k in range(n - 1, -1, -1):
        x[k] = x[k] / lu[k * w + d]
        for i in range(max(k - d, 0), k):
            x[i] -= lu[k * w + d + i - k] * x[k]
    return 0


def transposed_solved(x, lu, n, below, above):
    """Solve with the transposed matrix in the place of a right-hand side."""
    d = below + above
    w = 2 * below + above + 2
    for k in range(n):
        s = x[k]
        for i in range(max(k - d, 0), k):
            s -= lu[k * w + d + i - k] * x[i]
        x[k] = s / lu[k * w + d]
    for k in range(n - 1, -1, -1):
        s = x[k]
        for i in range(1, min(below, n - 1 - k) + 1):
            s -= lu[k * w + d + i] * x[k + i]
        x[k] = s
        if lu[k * w + w - 1] != 0.0:
            exchanged(x, k, int(lu[k * w + w - 1]))
    return 0


def spread(d, x, y, c, n, m, below, above, trans):
    """Take the outer product of what a cotangent led to and the solution from the elements of the matrix."""
    w = 2 * below + above + 2
    for j in range(n):
        for i in range(max(j - above, 0), min(j + below, n - 1) + 1):
            product = y[i * m + c] * x[j] if trans != 0 else x[i] * y[j * m + c]
            d[j * w + below + above + i - j] -= product
    return 0


def band_solve_to_lu_and_b(d, e, g, y, lu, n, m, below, above, trans):
    x = local_f8(n)
    for c in range(m):
        solution(x, g, c, lu, n, m, below, above, 1 - trans)
        spread(d, x, y, c, n, m, below, above, trans)
        for i in range(n):
            e[i * m + c] += x[i]
    return 0


def band_solve_to_lu(d, g, y, lu, n, m, below, above, trans):
    x = local_f8(n)
    for c in range(m):
        solution(x, g, c, lu, n, m, below, above, 1 - trans)
        spread(d, x, y, c, n, m, below, above, trans)
    return 0


def band_solve_to_b(d, g, lu, n, m, below, above, trans):
    x = local_f8(n)
    for c in range(m):
        solution(x, g, c, lu, n, m, below, above, 1 - trans)
        for i in range(n):
            d[i * m + c] += x[i]
    return 0
