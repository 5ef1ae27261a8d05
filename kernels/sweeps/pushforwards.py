"""Pushforwards: each pullback read the other way, with the patterns of target and cotangent exchanged.

A pullback is linear in its cotangent and acts element by element, so the same rule carries tangents forward: it reads
an operand's tangent where it wrote the operand's gradient, and writes the result's where it read the cotangent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import pattern
from kernels.foundation.specs import Array, Spec
from kernels.foundation.tables import MOST
from kernels.kinds.form import Form
from kernels.native.memory import where
from kernels.native.structs import ADDS, CLEARS, InputBlock
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from kernels.rules.rows import Factor, Product, RowPull


def turned(pull: Any) -> PrintedLoop | Product | None:
    """Return the pushforward of a pullback; None for one that cannot be turned."""
    if isinstance(pull, Product):
        return _turned_product(pull)
    if isinstance(pull, RowPull):
        return pull.turned or pull  # type: ignore[return-value]
    if not isinstance(pull, PrintedLoop):
        return None
    target, cotangent, *reads = pull.operands
    result = KernelOperand("target", cotangent.dtype, 0, cotangent.strides, cotangent.offset)
    tangent = KernelOperand("g", target.dtype, 1, target.strides, target.offset)
    return replace(pull, operands=(result, tangent, *reads), scatter=pull.gather, gather=pull.scatter)


def _turned_product(pull: Product) -> Product:
    """Turn ``da (+)= g b^T`` to ``dy (+)= da b``, and ``db (+)= a^T g`` to ``dy (+)= a db``."""
    m, n, k = pull.extents
    moved = pull.target.strides
    if pull.left.place == 1:
        result, left, right, extents = pull.left, Factor(1, moved), pull.right.turned, (m, k, n)
    else:
        result, left, right, extents = pull.right, pull.left.turned, Factor(1, moved), (k, n, m)
    return Product(pull.dtype, extents, Factor(0, result.strides), left, right)


class Pushes:
    """The pushforwards of a form, one for each operand; ``block`` has a row of words for each, as a form's has."""

    def __init__(self, form: Form) -> None:
        self.name = form.name
        # The first of a write takes away what it overwrites, tangents as it does gradients.
        self.pulls = (None, *form.pulls[1:]) if form.kind in (CLEARS, ADDS) else form.pulls
        self.loops = tuple(turned(pull) for pull in self.pulls)
        self.covers = tuple(push is not None and _covers(push, form.spec) for push in self.loops)
        self._tables: list[Array] = []
        self.block = np.zeros(InputBlock.SIZE * len(self.loops), np.int64)

    def compile(self) -> None:
        """Give the block the addresses of its kernels. NotImplementedError for a pullback that cannot be turned."""
        for i, (pull, push) in enumerate(zip(self.pulls, self.loops, strict=True)):
            if pull is None:
                continue
            if push is None:
                raise NotImplementedError(f"{self.name}: no pushforward, so forward mode cannot pass through it")
            address, layout = push.kernel()
            self._tables.append(layout)
            at = InputBlock.SIZE * i
            self.block[at + InputBlock.kernel], self.block[at + InputBlock.layout] = address, where(layout)
            self.block[at + InputBlock.covers] = self.covers[i]


def _covers(push: PrintedLoop | Product, spec: Spec) -> bool:
    """Whether a push meets each element of its result once: a first contribution may then be stored."""
    return spec.covers and push.covers and (isinstance(push, Product) or math.prod(push.shape) == spec.size)


def pushes_of(form: Form) -> Pushes:
    """Return the pushforwards of a form, made at their first use."""
    if form.pushes is None:
        form.pushes = Pushes(form)
    pushforwards: Pushes = form.pushes
    return pushforwards


class PushforwardTable:
    """The blocks of pushforwards by the address of their form's block, as native code looks them up."""

    def __init__(self) -> None:
        self.words = np.zeros((64, 2), np.int64)
        self.known: dict[int, Form] = {}

    @property
    def mask(self) -> int:
        """The number of places less one, a power of two less one."""
        return len(self.words) - 1

    @property
    def address(self) -> int:
        """Where the table begins."""
        return where(self.words)

    def add(self, form: Form) -> None:
        """Compile the pushforwards of a form, enter them and keep them."""
        pushforwards = pushes_of(form)
        if form.pulls and not form.is_view:
            pushforwards.compile()
        self.known[where(form.block)] = form
        if 2 * len(self.known) > len(self.words):
            self.words = np.zeros((4 * len(self.words), 2), np.int64)
        self.words[:] = 0
        for block, known in self.known.items():
            at = block >> 4 & self.mask
            while self.words[at, 0]:
                at = (at + 1) & self.mask
            self.words[at] = block, where(known.pushes.block)


_tables = [PushforwardTable()]


def table() -> PushforwardTable:
    """Return the table for a run that begins: another one when the last has grown large."""
    if len(_tables[0].known) > MOST:
        _tables[0] = PushforwardTable()
    return _tables[0]


def push(form: Form, i: int, memory: Array, tangent: Array, saved: tuple[Any, ...], start: int, offset: int) -> None:
    """Add one pushforward to a flat tangent, in NumPy; ``start`` and ``offset`` are where the patterns begin, bytes."""
    loop = pushes_of(form).loops[i]
    if loop is None:
        raise NotImplementedError(f"{form.name}: no pushforward, so forward mode cannot pass through it")
    values = (None, None, *saved)
    if isinstance(loop, Product):
        source = form.specs[i]
        assert source is not None
        target = pattern(memory, form.spec, start)
        target += _product(loop, pattern(tangent, source, offset), values).reshape(form.spec.shape)
        return
    if isinstance(loop, RowPull):
        source = form.specs[i]
        assert source is not None
        target = pattern(memory, form.spec, start)
        with np.errstate(all="ignore"):
            target += np.asarray(loop.rule(pattern(tangent, source, offset), *saved)).reshape(form.spec.shape)
        return
    result, tangent_operand, *reads = loop.operands
    read = {o.name: np.lib.stride_tricks.as_strided(np.asarray(values[o.place]), loop.shape, o.strides) for o in reads}
    places = read.pop("i", None)
    if 0 in loop.shape:
        return
    g = tangent[_elements(loop, tangent_operand, places, loop.gather) + offset // tangent_operand.dtype.itemsize]
    contribution = _contribution(loop, g, read).astype(result.dtype)
    at = _elements(loop, result, places, loop.scatter) + start // result.dtype.itemsize
    np.add.at(memory, at.reshape(-1), contribution.reshape(-1))


def _contribution(loop: PrintedLoop, g: Array, reads: dict[str, Array]) -> Array:
    with np.errstate(all="ignore"):
        contribution = loop.rule(g=g, **reads, **dict(loop.static))
        if loop.expression.head != "cut":
            contribution = contribution + 0.0
    contribution = np.where((g == 0) & np.signbit(g), -0.0, contribution)
    return np.broadcast_to(contribution, loop.shape)


def _elements(loop: PrintedLoop, operand: KernelOperand, places: Array | None, step: int | None) -> Array:
    """Return which element of flat memory each place of a loop's space meets."""
    item = operand.dtype.itemsize
    flat = np.full(loop.shape, (operand.offset or 0) // item)
    for axis, (n, stride) in enumerate(zip(loop.shape, operand.strides, strict=True)):
        along = np.arange(n) * (stride // item)
        flat += along.reshape([-1 if a == axis else 1 for a in range(len(loop.shape))])
    return flat if step is None or places is None else flat + places * (step // item)


def _product(loop: Product, tangent: Array, values: tuple[Any, ...]) -> Array:
    m, n, k = loop.extents

    def matrix(factor: Factor, rows: int, columns: int) -> Array:
        if factor.place == 1:
            return tangent.reshape(rows, columns)
        return np.lib.stride_tricks.as_strided(np.asarray(values[factor.place]), (rows, columns), factor.strides)

    return np.asarray(matrix(loop.left, m, k) @ matrix(loop.right, k, n) + 0.0)


def clear(form: Form, memory: Array, saved: tuple[Any, ...], start: int) -> None:
    """Take away the tangents that a write overwrites, in NumPy."""
    loop = form.pulls[0]
    assert isinstance(loop, PrintedLoop)
    target = loop.operands[0]
    at = _elements(loop, target, saved[1] if loop.scatter is not None else None, loop.scatter)
    memory[at.reshape(-1) + start // target.dtype.itemsize] = -0.0
