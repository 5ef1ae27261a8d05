"""Factorisations of small matrices, and their gradients: what compiled programs call in LAPACK's place; and a guard.

Each function takes pointers to a batch of matrices in C order, the first to what it writes or, in a gradient, adds to;
then how many matrices there are, and their extents. It returns 0, or 1 where the routine raises, or the gradient needs
more than the cotangents: the program gives up. All is computed in doubles. Functions have integers as results, and
what C has a counterpart of, alone.
"""

from __future__ import annotations

import math

from kernels.native.memory import bits_of, local_f8, local_i8


def differs(y, a, b, count):
    """Copy elements; return whether one differs in its bits from what is expected."""
    apart = 0
    for i in range(count):
        y[i] = a[i]
        apart = 1 if bits_of(a[i]) != bits_of(b[i]) else apart
    return apart


# Elimination with partial pivoting.


def factored(lu, order, a, at, n):
    """Factor a matrix; return whether it is singular. Behind the order of its rows stands the sign of that."""
    order[8] = 1
    for i in range(n):
        order[i] = i
        for j in range(n):
            lu[i * n + j] = a[at + i * n + j]
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(lu[i * n + k]) > abs(lu[best * n + k]):
                best = i
        if lu[best * n + k] == 0.0:
            return 1
        if best != k:
            exchange(lu, order, k, best, n, n, 1)
        for i in range(k + 1, n):
            factor = lu[i * n + k] / lu[k * n + k]
            lu[i * n + k] = factor
            for j in range(k + 1, n):
                lu[i * n + j] -= factor * lu[k * n + j]
    return 0


def exchange(lu, order, i, k, n, row, column):
    """Exchange two rows, or columns, by how far they, and their elements, are apart; and their numbers."""
    order[8] = -order[8]
    number = order[i]
    order[i] = order[k]
    order[k] = number
    for j in range(n):
        value = lu[i * row + j * column]
        lu[i * row + j * column] = lu[k * row + j * column]
        lu[k * row + j * column] = value
    return 0


def substituted(x, lu, order, b, at, step, n):
    """Solve for one right-hand side, whose elements are a step apart."""
    for i in range(n):
        s = 0.0 + b[at + order[i] * step]
        for j in range(i):
            s -= lu[i * n + j] * x[j]
        x[i] = s
    for i in range(n - 1, -1, -1):
        s = x[i]
        for j in range(i + 1, n):
            s -= lu[i * n + j] * x[j]
        x[i] = s / lu[i * n + i]
    return 0


def substituted_transposed(x, w, lu, order, b, at, step, n):
    """Solve with the transposed matrix."""
    for i in range(n):
        s = 0.0 + b[at + i * step]
        for j in range(i):
            s -= lu[j * n + i] * w[j]
        w[i] = s / lu[i * n + i]
    for i in range(n - 1, -1, -1):
        s = w[i]
        for j in range(i + 1, n):
            s -= lu[j * n + i] * w[j]
        w[i] = s
        x[order[i]] = s
    return 0


def solve(y, a, b, count, n, m):
    lu, order, x = local_f8(64), local_i8(9), local_f8(8)
    for k in range(count):
        if factored(lu, order, a, k * n * n, n) != 0:
            return 1
        for c in range(m):
            substituted(x, lu, order, b, k * n * m + c, m, n)
            for i in range(n):
                y[(k * n + i) * m + c] = x[i]
    return 0


def solve_to_a(d, g, y, a, count, n, m):
    lu, order, x, w = local_f8(64), local_i8(9), local_f8(8), local_f8(8)
    for k in range(count):
        if factored(lu, order, a, k * n * n, n) != 0:
            return 1
        for c in range(m):
            substituted_transposed(x, w, lu, order, g, k * n * m + c, m, n)
            for i in range(n):
                for j in range(n):
                    d[(k * n + i) * n + j] -= x[i] * y[(k * n + j) * m + c]
    return 0


def solve_to_b(d, g, a, count, n, m):
    lu, order, x, w = local_f8(64), local_i8(9), local_f8(8), local_f8(8)
    for k in range(count):
        if factored(lu, order, a, k * n * n, n) != 0:
            return 1
        for c in range(m):
            substituted_transposed(x, w, lu, order, g, k * n * m + c, m, n)
            for i in range(n):
                d[(k * n + i) * m + c] += x[i]
    return 0


def inverse(y, a, count, n):
    lu, order, x, e = local_f8(64), local_i8(9), local_f8(8), local_f8(8)
    for k in range(count):
        if factored(lu, order, a, k * n * n, n) != 0:
            return 1
        for c in range(n):
            for i in range(n):
                e[i] = 1.0 if i == c else 0.0
            substituted(x, lu, order, e, 0, 1, n)
            for i in range(n):
                y[(k * n + i) * n + c] = x[i]
    return 0


def inverse_to_a(d, g, y, count, n):
    t = local_f8(8)
    for k in range(count):
        at = k * n * n
        for i in range(n):
            for j in range(n):
                t[j] = 0.0
            for r in range(n):
                for j in range(n):
                    t[j] += y[at + r * n + i] * g[at + r * n + j]
            for j in range(n):
                s = 0.0
                for r in range(n):
                    s += t[r] * y[at + j * n + r]
                d[at + i * n + j] -= s
    return 0


def det(y, a, count, n):
    lu, order = local_f8(64), local_i8(9)
    for k in range(count):
        product = 0.0
        if factored(lu, order, a, k * n * n, n) == 0:
            product = 1.0 * order[8]
            for i in range(n):
                product *= lu[i * n + i]
            if product == 0.0 or not abs(product) < math.inf:  # what LAPACK's logarithms may reach
                return 1
        y[k] = product
    return 0


def slogdet(y, a, count, n):
    lu, order = local_f8(64), local_i8(9)
    for k in range(count):
        sign = 0.0
        total = -math.inf
        if factored(lu, order, a, k * n * n, n) == 0:
            sign = 1.0 * order[8]
            total = 0.0
            for i in range(n):
                sign = -sign if lu[i * n + i] < 0.0 else sign
                total += math.log(abs(lu[i * n + i]))
        y[k] = sign
        y[count + k] = total
    return 0


def slogdet_to_a(d, g, a, count, n):
    lu, order, x, e = local_f8(64), local_i8(9), local_f8(8), local_f8(8)
    for k in range(count):
        if factored(lu, order, a, k * n * n, n) != 0:
            return 1
        for i in range(n):
            for j in range(n):
                e[j] = 1.0 if i == j else 0.0
            substituted(x, lu, order, e, 0, 1, n)
            for j in range(n):
                d[(k * n + i) * n + j] += g[count + k] * x[j]
    return 0


# The derivative of a determinant, of singular matrices too: the adjugates of the factors A = P L D U Q of complete
# pivoting, as G. W. Stewart, "On the adjugate matrix" (1998), has it: L and U are well conditioned, that of D is the
# products of all elements but one.


def largest(lu, k, n):
    """Return the place of the largest element from row and column k on."""
    best = k * n + k
    for i in range(k, n):
        for j in range(k, n):
            if not abs(lu[i * n + j]) <= abs(lu[best]):
                best = i * n + j
    return best


def completely_factored(lu, rows, columns, n):
    """Factor a matrix as L D U, where D has zeros if it is singular."""
    for i in range(n):
        rows[i] = i
        columns[i] = i
    for k in range(n):
        best = largest(lu, k, n)
        if best // n != k:
            exchange(lu, rows, k, best // n, n, n, 1)
        if best % n != k:
            exchange(lu, columns, k, best % n, n, 1, n)
        pivot = lu[k * n + k]
        for i in range(k + 1, n):
            factor = lu[i * n + k] / pivot if pivot != 0.0 else 0.0
            lu[i * n + k] = factor
            for j in range(k + 1, n):
                lu[i * n + j] -= factor * lu[k * n + j]
        for j in range(k + 1, n):
            lu[k * n + j] = lu[k * n + j] / pivot if pivot != 0.0 else 0.0
    return 0


def adjugate(t, lu, n):
    """Write the transposed adjugate of L D U: what stands between the orders of rows and columns."""
    for i in range(n):
        for j in range(n):
            t[i * n + j] = 0.0
        others = 1.0
        for j in range(n):
            others = others * lu[j * n + j] if j != i else others
        t[i * n + i] = others
    for i in range(n):  # rows by the inverse of U transposed, from the right
        for j in range(n - 1, -1, -1):
            for r in range(j):
                t[i * n + r] -= lu[r * n + j] * t[i * n + j]
    for i in range(n - 1, -1, -1):  # columns by the inverse of L transposed, from the left
        for r in range(i):
            for j in range(n):
                t[r * n + j] -= lu[i * n + r] * t[i * n + j]
    return 0


def det_to_a(d, g, a, count, n):
    lu, t, rows, columns = local_f8(64), local_f8(64), local_i8(9), local_i8(9)
    for k in range(count):
        at = k * n * n
        rows[8] = 1
        columns[8] = 1
        for i in range(n * n):
            lu[i] = a[at + i]
        completely_factored(lu, rows, columns, n)
        adjugate(t, lu, n)
        for i in range(n):
            for j in range(n):
                d[at + rows[i] * n + columns[j]] += g[k] * (rows[8] * columns[8]) * t[i * n + j]
    return 0


# Cholesky's method; the gradient is that of a symmetric matrix.


def cholesky(y, a, count, n):
    for k in range(count):
        at = k * n * n
        for i in range(n):
            for j in range(i + 1):
                s = 0.0 + a[at + i * n + j]
                for r in range(j):
                    s -= y[at + i * n + r] * y[at + j * n + r]
                if i > j:
                    y[at + i * n + j] = s / y[at + j * n + j]
                elif s > 0.0:
                    y[at + i * n + i] = math.sqrt(s)
                else:
                    return 1
            for j in range(i + 1, n):
                y[at + i * n + j] = 0.0
    return 0


def cholesky_to_a(d, g, y, count, n):
    t = local_f8(64)
    for k in range(count):
        at = k * n * n
        for i in range(n):
            for j in range(n):
                s = 0.0
                if j <= i:
                    for r in range(i, n):
                        s += y[at + r * n + i] * g[at + r * n + j]
                t[i * n + j] = 0.5 * s if i == j else s
        for j in range(n):
            turned_back(t, j, n, y, at, n)
        for i in range(n):
            turned_back(t, i * n, 1, y, at, n)
        for i in range(n):
            for j in range(n):
                d[at + i * n + j] += 0.5 * (t[i * n + j] + t[j * n + i])
    return 0


def turned_back(x, first, step, y, at, n):
    """Solve with the transpose of a lower factor, for elements that are a step apart, in their place."""
    for i in range(n - 1, -1, -1):
        s = x[first + i * step]
        for r in range(i + 1, n):
            s -= y[at + r * n + i] * x[first + r * step]
        x[first + i * step] = s / y[at + i * n + i]
    return 0


# Eigenvalues and eigenvectors as LAPACK's dsyevd finds them, and with its signs: reflections to a tridiagonal matrix
# (dsytd2), whose values and vectors come of implicit QL or QR steps (dsteqr), sorted.

TINY = 2.2250738585072014e-308
ROUNDING = 1.1102230246251565e-16
FEW = 30  # steps for each eigenvalue, at most


def reflected(z, d, e, tau, n):
    """Reduce the lower triangle of a symmetric matrix to a diagonal and what is below; reflectors stay in its place."""
    w = local_f8(8)
    for i in range(n - 1):
        norm = 0.0
        for r in range(i + 2, n):
            norm += z[r * n + i] * z[r * n + i]
        alpha = z[(i + 1) * n + i]
        tau[i] = 0.0
        e[i] = alpha
        if norm != 0.0:
            beta = -math.copysign(math.sqrt(alpha * alpha + norm), alpha)
            tau[i] = (beta - alpha) / beta
            e[i] = beta
            for r in range(i + 2, n):
                z[r * n + i] /= alpha - beta
            z[(i + 1) * n + i] = 1.0
            half = 0.0
            for r in range(i + 1, n):
                s = 0.0
                for c in range(i + 1, n):
                    s += (z[r * n + c] if c <= r else z[c * n + r]) * z[c * n + i]
                w[r] = tau[i] * s
                half += 0.5 * tau[i] * w[r] * z[r * n + i]
            for r in range(i + 1, n):
                w[r] -= half * z[r * n + i]
            for r in range(i + 1, n):
                for c in range(i + 1, r + 1):
                    z[r * n + c] -= z[r * n + i] * w[c] + w[r] * z[c * n + i]
    for i in range(n):
        d[i] = z[i * n + i]
    return 0


def diagonalized(d, e, v, n):
    """Turn a tridiagonal matrix to its eigenvalues, and vectors along with it; return whether that failed."""
    first = 0
    left = FEW * n
    while first < n:
        last = first
        while last < n - 1 and couples(d, e, last, 1):
            last += 1
        step = -1 if abs(d[last]) < abs(d[first]) else 1
        near = first if step > 0 else last
        far = last if step > 0 else first
        first = last + 1
        while (far - near) * step >= 0:
            m = near
            while m != far and couples(d, e, m, step):
                m += step
            if m == near:
                near += step
            elif m == near + step:
                turned_pair(d, e, v, near if step > 0 else m, n)
                near += 2 * step
            elif left == 0:
                return 1
            else:
                left -= 1
                implicit_step(d, e, v, near, m, step, n)
    return 0


def couples(d, e, m, step):
    """Whether the element between a place and the next is none that rounding gives."""
    between = e[m if step > 0 else m - 1]
    return between * between > ROUNDING * ROUNDING * abs(d[m]) * abs(d[m + step]) + TINY


def turned_pair(d, e, v, k, n):
    """Diagonalise a block of two (dlaev2)."""
    total = d[k] + d[k + 1]
    apart = d[k] - d[k + 1]
    twice = e[k] + e[k]
    root = math.sqrt(apart * apart + twice * twice)
    large = d[k] if abs(d[k]) > abs(d[k + 1]) else d[k + 1]
    small = d[k + 1] if abs(d[k]) > abs(d[k + 1]) else d[k]
    one = 0.5 * (total - root if total < 0.0 else total + root)
    other = (large / one) * small - (e[k] / one) * e[k] if total != 0.0 else -0.5 * root
    leading = apart + root if apart >= 0.0 else apart - root
    length = math.sqrt(leading * leading + twice * twice)
    length = math.copysign(length, leading) if abs(leading) > abs(twice) else -math.copysign(length, twice)
    c = -twice / length if length != 0.0 else 1.0
    s = leading / length if length != 0.0 else 0.0
    if (total < 0.0) == (apart < 0.0):
        former = c
        c = -s
        s = former
    d[k] = one
    d[k + 1] = other
    return rotated(v, k + 1, k, c, -s, n)


def rotated(v, far, near, c, s, n):
    """Rotate two columns."""
    for r in range(n):
        value = v[r * n + far]
        v[r * n + far] = c * value + s * v[r * n + near]
        v[r * n + near] = c * v[r * n + near] - s * value
    return 0


def implicit_step(d, e, v, near, m, step, n):
    """Take a step of QL, or QR, from m to near, with Wilkinson's shift."""
    k = near if step > 0 else near - 1
    shift = d[near]
    g = d[near + step] - shift
    g = d[m] - shift + 2.0 * e[k] * e[k] / (g + math.copysign(math.sqrt(g * g + 4.0 * e[k] * e[k]), g))
    s = 1.0
    c = 1.0
    p = 0.0
    i = m
    while i != near:
        i -= step
        k = i if step > 0 else i - 1
        f = s * e[k]
        b = c * e[k]
        square = f * f + g * g
        length = math.sqrt(square)
        inverted = length * (1.0 / square) if square > TINY else 0.0  # the quotient need not wait for the root
        c = abs(g) * inverted if square > TINY else 1.0
        s = -f * inverted if g < 0.0 else f * inverted
        if i != m - step:
            e[k + step] = -length if g < 0.0 else length
        g = d[i + step] - p
        r = (d[i] - g) * s + 2.0 * c * b
        p = s * r
        d[i + step] = g + p
        g = c * r - b
        rotated(v, i + step, i, c, s, n)
    d[near] -= p
    e[near if step > 0 else near - 1] = g
    return 0


def sorted_by_value(d, v, n):
    """Sort eigenvalues, and their vectors."""
    for i in range(n - 1):
        k = i
        for j in range(i + 1, n):
            k = j if d[j] < d[k] else k
        value = d[k]
        d[k] = d[i]
        d[i] = value
        for r in range(n):
            value = v[r * n + k]
            v[r * n + k] = v[r * n + i]
            v[r * n + i] = value
    return 0


def decomposed(d, v, a, at, n):
    """Write the eigenvalues and eigenvectors of one matrix, whose lower triangle is read."""
    z, e, tau = local_f8(64), local_f8(8), local_f8(8)
    top = 0.0
    for i in range(n):
        for j in range(n):
            z[i * n + j] = a[at + i * n + j]
            v[i * n + j] = 1.0 if i == j else 0.0
            if j <= i and not abs(z[i * n + j]) < 1e100:  # LAPACK scales, or refuses
                return 1
            top = top if j > i or abs(z[i * n + j]) <= top else abs(z[i * n + j])
    reflected(z, d, e, tau, n)
    if (top < 1e-100 and top != 0.0) or diagonalized(d, e, v, n) != 0:
        return 1
    sorted_by_value(d, v, n)
    for i in range(n - 2, -1, -1):
        if tau[i] != 0.0:
            for c in range(n):
                s = 0.0
                for r in range(i + 1, n):
                    s += z[r * n + i] * v[r * n + c]
                for r in range(i + 1, n):
                    v[r * n + c] -= tau[i] * s * z[r * n + i]
    return 0


def eigh(y, a, count, n):
    d, v = local_f8(8), local_f8(64)
    for k in range(count):
        if decomposed(d, v, a, k * n * n, n) != 0:
            return 1
        for i in range(n):
            y[k * n + i] = d[i]
        for i in range(n * n):
            y[(count + k * n) * n + i] = v[i]
    return 0


def eigvalsh(y, a, count, n):
    d, v = local_f8(8), local_f8(64)
    for k in range(count):
        if decomposed(d, v, a, k * n * n, n) != 0:
            return 1
        for i in range(n):
            y[k * n + i] = d[i]
    return 0


def eigvalsh_to_a(d, g, a, count, n):
    w, v = local_f8(8), local_f8(64)
    for k in range(count):
        if decomposed(w, v, a, k * n * n, n) != 0:
            return 1
        for i in range(n):
            for j in range(n):
                s = 0.0
                for r in range(n):
                    s += v[i * n + r] * g[k * n + r] * v[j * n + r]
                d[(k * n + i) * n + j] += s
    return 0


def is_asked(g, at, column, n):
    """Whether an eigenvector has a cotangent, be it of zeros; nothing is -0.0."""
    for r in range(n):
        x = g[at + r * n + column]
        if x != 0.0 or math.copysign(1.0, x) > 0.0:
            return 1
    return 0


def eigh_to_a(d, g, y, count, n, rounding):
    """Add the gradient of eigenvalues and eigenvectors; of nearly equal values whose vectors are asked for, give up."""
    t = local_f8(64)
    for k in range(count):
        at = (count + k * n) * n
        size = 0.0
        for i in range(n):
            size += abs(y[k * n + i])
        for i in range(n):
            for j in range(n):
                s = 0.0
                for r in range(n):
                    s += y[at + r * n + i] * g[at + r * n + j]
                t[i * n + j] = s
        for i in range(n):
            for j in range(i):
                gap = y[k * n + j] - y[k * n + i]
                s = 0.0
                if is_asked(g, at, i, n) or is_asked(g, at, j, n):
                    if abs(gap) <= rounding * size:
                        return 1
                    s = 0.5 * (t[i * n + j] - t[j * n + i]) / gap
                t[i * n + j] = s
                t[j * n + i] = s
            t[i * n + i] = g[k * n + i]
        for i in range(n):
            for j in range(n):
                s = 0.0
                for r in range(n):
                    part = 0.0
                    for c in range(n):
                        part += t[r * n + c] * y[at + j * n + c]
                    s += y[at + i * n + r] * part
                d[(k * n + i) * n + j] += s
    return 0
