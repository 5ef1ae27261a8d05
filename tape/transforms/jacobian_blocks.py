"""Jacobians by one batched sweep: a block for each output and each input, of the shapes of both together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tape.engine.derivations import Derivatives
from tape.engine.forward_mode import pulled, pushed, zeros_for
from tape.recording import views
from tape.tensors.tensor import Tensor, constant_tensor

Blocks = list[list[Tensor | None]]
"""For each output and each input a derivative of shape (*output, *input); None where there is no dependence."""


def by_rows(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, create: bool | None = None, chunk: int | None = None
) -> Blocks:
    """Return Jacobians by reverse mode: a cotangent for each element of the outputs, ``chunk`` of them in a sweep."""
    sizes = [y.spec.size for y in outputs]
    columns = _swept(
        _basis(outputs), chunk, lambda w, n: pulled(outputs, inputs, w, batch=n, create=create, retain=True)
    )
    blocks: Blocks = [[] for _ in outputs]
    for x, column in zip(inputs, _whole(columns, inputs), strict=True):
        for row, (y, part) in zip(blocks, zip(outputs, _parts(column, sizes), strict=True), strict=True):
            row.append(None if part is None else views.reshape(part, (*y.spec.shape, *x.spec.shape)))
    return blocks


def by_columns(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, create: bool | None = None, chunk: int | None = None
) -> Blocks:
    """Return Jacobians by forward mode: a tangent for each element of the inputs, ``chunk`` of them in a sweep."""
    sizes = [x.spec.size for x in inputs]
    rows = _swept(_basis(inputs), chunk, lambda t, n: pushed(outputs, inputs, t, batch=n, create=create))
    return [
        [
            None if part is None else _turned(part, y.spec.shape, x.spec.shape)
            for x, part in zip(inputs, _parts(row, sizes), strict=True)
        ]
        for y, row in zip(outputs, _whole(rows, outputs), strict=True)
    ]


def _turned(part: Tensor, output: tuple[int, ...], wanted: tuple[int, ...]) -> Tensor:
    """Move the axis of an input's elements behind those of the output."""
    order = (*range(1, len(output) + 1), 0)
    return views.reshape(views.permute(part, order), (*output, *wanted))


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return, for tensors of n elements together, n unit vectors: a leading axis of n before each shape."""
    total, start, basis = sum(x.spec.size for x in tensors), 0, []
    for x in tensors:
        units = np.zeros((total, x.spec.size), x.spec.dtype)
        np.fill_diagonal(units[start:], 1)
        basis.append(constant_tensor(units.reshape(total, *x.spec.shape)))
        start += x.spec.size
    return basis


def _swept(
    basis: list[Tensor], chunk: int | None, sweep: Callable[[list[Tensor], int], Derivatives]
) -> Iterator[tuple[int, Derivatives]]:
    """Yield the number of rows of each sweep, and its derivatives."""
    total = basis[0].spec.shape[0] if basis else 0
    step = chunk or max(total, 1)
    for start in range(0, total, step):
        n = min(step, total - start)
        yield n, sweep(basis if n == total else [w[start : start + n] for w in basis], n)


def _whole(chunks: Iterator[tuple[int, Derivatives]], like: Sequence[Tensor]) -> Derivatives:
    """Join the rows of all sweeps; None where no row depends on an input."""
    swept = list(chunks)
    if len(swept) == 1:
        return swept[0][1]
    joined: Derivatives = []
    for k, x in enumerate(like):
        parts = [(n, derivatives[k]) for n, derivatives in swept]
        if all(part is None for _, part in parts):
            joined.append(None)
        else:
            joined.append(views.cat([zeros_for([part], [x], (n,))[0] for n, part in parts]))
    return joined


def _parts(column: Tensor | None, sizes: Sequence[int]) -> list[Tensor | None]:
    """Split a leading axis into parts of these sizes."""
    if column is None or len(sizes) == 1:
        return [column] * len(sizes)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [column[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _zeros(y: Tensor, x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return the block of an output that does not depend on an input."""
    return constant_tensor(np.zeros((*y.spec.shape, *x.spec.shape), dtype))


def filled(
    blocks: Blocks, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, like_output: bool
) -> list[list[Tensor]]:
    """Return the blocks, zeros for None: in the output's dtype or the input's."""
    return [
        [
            _zeros(y, x, (y if like_output else x).spec.dtype) if b is None else b
            for x, b in zip(inputs, row, strict=True)
        ]
        for y, row in zip(outputs, blocks, strict=True)
    ]
