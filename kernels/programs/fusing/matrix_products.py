"""Matrix products by BLAS, as calls of a program."""

from __future__ import annotations

from kernels.codegen.matmul import Factor, Product, matrices
from kernels.programs.fusing.native_call import BLAS, RESULT, KernelCall, NativeCall, Place
from kernels.programs.rolling.rolled_program import Ref

_LEFT, _RIGHT = 0, 1


def product_call(left: Ref, right: Ref, target: Ref, wanted: tuple[bool, ...]) -> NativeCall:
    """Return the product of two operands of one or two dimensions each."""
    a, b, dtype = left.spec, right.spec, left.spec.dtype
    (m, k, n), rows, columns, result = matrices(a.shape, a.strides, b.shape, b.strides, target.spec.strides)
    first, second = Factor(1, rows), Factor(2, columns)
    forward = _multiplied(
        Product(dtype, (m, n, k), Factor(0, result), first, second), (Place(RESULT), Place(_LEFT), Place(_RIGHT))
    )
    pullbacks = []
    if wanted[_LEFT]:
        product = Product(dtype, (m, k, n), Factor(0, rows), Factor(1, result), second.turned)
        pullbacks.append(_multiplied(product, (_gradient(_LEFT), _gradient(RESULT), Place(_RIGHT)), adds=True))
    if wanted[_RIGHT]:
        product = Product(dtype, (k, n, m), Factor(0, columns), first.turned, Factor(2, result))
        pullbacks.append(_multiplied(product, (_gradient(_RIGHT), Place(_LEFT), _gradient(RESULT)), adds=True))
    return NativeCall("matmul", BLAS, forward, tuple(pullbacks), covers=True)


def _gradient(operand: int) -> Place:
    return Place(operand, gradient=True)


def _multiplied(product: Product, places: tuple[Place, ...], *, adds: bool = False) -> KernelCall:
    address, layout = product.kernel()
    return KernelCall(address, layout, places, adds)
