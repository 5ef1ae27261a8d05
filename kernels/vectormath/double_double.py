"""Sums and products of values with what rounding took from them: numbers of twice the length, as pairs."""

from __future__ import annotations

from kernels.vectormath.llvm_values import Value


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the sum and what rounding took from it (Knuth)."""
    total = a.plus(b)
    part = total.minus(a)
    return total, a.minus(total.minus(part)).plus(b.minus(part))


def fast_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the same where a is the larger (Dekker)."""
    total = a.plus(b)
    return total, b.minus(total.minus(a))


def two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the product and what rounding took from it."""
    product = a.times(b)
    if a.fused:
        return product, a.call("llvm.fma", b, -product)
    (p, q), (r, s) = _halves(a), _halves(b)
    return product, p.times(r).minus(product).plus(p.times(s)).plus(q.times(r)).plus(q.times(s))


def less_product(c: Value, a: Value, b: Value) -> Value:
    """Return c less a product, nothing of which is lost before the difference."""
    if c.fused:
        return (-a).call("llvm.fma", b, c)
    product, low = two_product(a, b)
    return c.minus(product).minus(low)


def _halves(a: Value) -> tuple[Value, Value]:
    high = head(a, (a.form.fraction + 2) // 2)
    return high, a.minus(high)


def head(a: Value, places: int) -> Value:
    """Return a number without its last bits."""
    return (a.word & ((1 << a.form.bits) - (1 << places))).real
