"""Matrix products: the record, its instruction form, its tasks in a program, its repeated call."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.matmul import Factor, Product, matrices, product
from kernels.codegen.tasks import Call, Place, node_of
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form, Pull
from kernels.kinds.program_interface import Lowering, Step
from kernels.native.call_structs import PRODUCT
from kernels.native.calls.computation import Computation, is_fresh, loop_of
from kernels.records.op import Op
from kernels.records.symbols import Rule


@dataclass(frozen=True, eq=False, kw_only=True)
class Contraction(Op):
    """A matrix product of one- and two-dimensional operands; both pullbacks are matrix products."""

    inputs: ClassVar[tuple[str, ...]] = ("a", "b")
    repeatable: ClassVar[bool] = True

    ranks: tuple[tuple[int, int], ...]
    pullback: tuple[Rule | None, ...] = (lambda g, b: g @ b.T, lambda g, a: a.T @ g)

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form: ``da = g b^T`` and ``db = a^T g``, by strides, nothing copied."""
        a, b = specs
        saved = tuple(name for name, want in zip("ab", (wanted[1], wanted[0]), strict=True) if want)
        (m, k, n), left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.gradient)
        _, d_left, d_right, _ = matrices(a.shape, a.gradient, b.shape, b.gradient, spec.gradient)
        g = Factor(1, result)
        pulls: list[Pull | None] = [None, None]
        if wanted[0]:
            factor = Factor(2 + saved.index("b"), right)
            pulls[0] = product(spec.dtype, (m, k, n), Factor(0, d_left), g, factor.turned)
        if wanted[1]:
            factor = Factor(2 + saved.index("a"), left)
            pulls[1] = product(spec.dtype, (k, n, m), Factor(0, d_right), factor.turned, g)
        return Form(self, specs, spec, wanted, saved, tuple(pulls), params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Multiply matrices or vectors by BLAS, as NumPy does."""
        nodes = [node_of(o) for o in step.operands]
        a, b = map(lowering.spec, nodes)
        result = lowering.spec(step.result)
        (m, k, n), left, right, target = matrices(a.shape, a.strides, b.shape, b.strides, result.strides)
        kernel = Product(result.dtype, (m, n, k), Factor(0, target), Factor(1, left), Factor(2, right))
        lowering.tasks.append(Call(kernel, (Place(step.result), *map(Place, nodes))))

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        del form, saved
        return np.matmul(*values)


def computation(a: Spec, b: Spec, spec: Spec, saved: tuple[str, ...]) -> Computation | None:
    """Return how native code repeats a product of matrices and vectors; None where Python has to do it."""
    if not a.dtype == b.dtype == spec.dtype or not is_fresh(spec) or 0 in (a.size, b.size):
        return None
    loop = loop_of(np.matmul, (spec.dtype,) * 3)
    if loop is None or spec.dtype.kind != "f":
        return None
    extents, left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.strides)
    layout = np.array([1, *extents, 0, 0, 0, *left, *right, *result], np.int64)
    picks = tuple(["ab".index(name) for name in saved])
    return Computation(PRODUCT, loop, layout=layout, count=3, picks=picks)
