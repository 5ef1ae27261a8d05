"""Matrix products on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Contribution, Kind, Operand, Planned, Pullbacks, Values, apart
from tape.kinds.rules_on_tensors import full
from tape.operations import matmul, sums_and_extrema
from tape.recording import views
from tape.tensors.tensor import Tensor

_MATRIX = 2
_MOST = 1 << 22
"""Elements up to which a batch of matrix products is a product of elements, summed; above, a loop over the batch."""


class ContractionKind(Kind):
    """A batch is one product where all examples share an operand."""

    def pullbacks(self, form: Form) -> _Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return _Pullbacks(form, _pull)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Multiply the matrices of each example."""
        del step
        a, b = operands
        if not a.batched and not b.batched:
            return matmul.matmul(a.value, b.value)
        if not b.batched:
            return _by_one_matrix(a, b.value, spec)
        if not a.batched and len(b.shape) == 1:
            return matmul.matmul(b.value, a.value if len(a.shape) == 1 else views.t(a.value))
        (m, k), (size, *_) = (a.shape if len(a.shape) > 1 else (1, a.shape[0])), b.lead
        n = b.shape[1] if len(b.shape) > 1 else 1
        if not a.batched:
            right = views.reshape(views.permute(b.value, (1, 0, 2)), (k, size * n))
            result = views.reshape(matmul.matmul(views.reshape(a.value, (m, k)), right), (m, size, n))
            result = views.permute(result, (1, 0, 2))
        elif len(b.shape) == 1:
            return sums_and_extrema.sum(a.value * apart(b.value, len(a.shape) + 1), len(a.shape))
        elif min(m, k, n) == 1 or size * m * k * n <= _MOST:
            result = sums_and_extrema.sum(views.reshape(a.value, (size, m, k, 1)) * apart(b.value, 4), 2)
        else:
            left, right = views.reshape(a.value, (size, m, k)), b.value
            result = views.stack([matmul.matmul(left[e], right[e]) for e in range(size)])
        return result if result.spec.shape == (size, *spec.shape) else views.reshape(result, (size, *spec.shape))


def _by_one_matrix(a: Operand, b: Tensor, spec: Spec) -> Tensor:
    """Multiply a batch of matrices by the matrix that all examples share, in one product."""
    if len(a.shape) == 1:
        return matmul.matmul(a.value, b)
    size, (m, k) = a.lead[0], a.shape
    return views.reshape(matmul.matmul(views.reshape(a.value, (size * m, k)), b), (size, *spec.shape))


class _Pullbacks(Pullbacks):
    """Matrix products. A transposed factor is not copied: it is a pattern of its memory and of its gradient."""

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        form, (left, right) = self.form, instruction.operands
        a, b = form.specs
        if len(a.shape) != _MATRIX or len(b.shape) != _MATRIX:  # type: ignore[union-attr]
            return super().run(instruction, wanted, g, clean, saved)
        g, kept, contributions = full(g, form.spec.shape), dict(zip(form.saved, instruction.saved, strict=True)), []
        for i in wanted:
            if i == 0:
                value = matmul.matmul(g, saved.read(right, kept["b"], b, turned=True))
            else:
                value = matmul.matmul(saved.read(left, kept["a"], a, turned=True), g)
            contributions.append((i, value, True))
        return contributions


def _pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    a, b = instruction.form.specs
    assert a is not None
    assert b is not None
    m, k = a.shape if len(a.shape) > 1 else (1, a.shape[0])
    n = b.shape[1] if len(b.shape) > 1 else 1
    wide = views.reshape(g, (m, n))
    if i == 0:
        right = views.reshape(values["b"], (k, n))
        return views.reshape(matmul.matmul(wide, views.t(right)), a.shape)
    left = views.reshape(values["a"], (m, k))
    return views.reshape(matmul.matmul(views.t(left), wide), b.shape)
