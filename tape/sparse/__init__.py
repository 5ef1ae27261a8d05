"""Sparse matrices with gradients to their values, and sparse Jacobians and Hessians by colouring.

>>> A = tape.sparse.CSR([2.0, 1.0, 3.0], [0, 0, 1], [0, 1, 3], (2, 2))
>>> A.to_dense().tolist()
[[2.0, 0.0], [1.0, 3.0]]
>>> tape.sparse.spsolve(A, A @ tape.ones(2))
tensor([1., 1.])
>>> tape.sparse.jacobian(lambda x: x[1:] * x[:-1])(np.arange(4.0)).toarray()
array([[1., 0., 0., 0.],
       [0., 2., 1., 0.],
       [0., 0., 3., 2.]])
"""

from kernels.operations.interpolation import pattern_of  # noqa: F401 (pickles name it here)
from tape.sparse.colourings import Colouring, colouring
from tape.sparse.derivatives import SparseDerivative, hessian, jacobian
from tape.sparse.matrices import CSR, coo, csr, spsolve

__all__ = ["CSR", "Colouring", "SparseDerivative", "colouring", "coo", "csr", "hessian", "jacobian", "spsolve"]
