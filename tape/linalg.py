"""``tape.linalg``: linear algebra under the names of torch.linalg, and SciPy's solves with structured matrices.

Matrices stand in the last two dims, batches in front. Singular matrices raise LinAlgError, which is PyTorch's
RuntimeError and NumPy's LinAlgError.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Any

from kernels.operations.solves import LinAlgError
from tape.operations import decompositions as _decompositions
from tape.operations import solves as _solves
from tape.operations.contractions import multi_dot, vecdot, vector_product
from tape.operations.decompositions import *  # noqa: F403
from tape.operations.diagonals import diagonal as _diagonal
from tape.operations.matmul import matmul
from tape.operations.reductions import vector_norm
from tape.operations.solves import *  # noqa: F403
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also as _also
from tape.recording.parameters import parameters_like as _parameters_like
from tape.recording.parameters import printed as _printed
from tape.tensors.tensor import Tensor

__all__ = [
    "LinAlgError", "cholesky", "cross", "det", "diagonal", "inv", "matmul", "matrix_exp", "matrix_power", "multi_dot",
    "slogdet", "vecdot", "vector_norm",
]  # fmt: skip
__all__ += _decompositions.__all__ + _solves.__all__


def _variant(name: str, function: Any, run: Any = None) -> Any:
    """Return a function of tape under torch.linalg's names, its own and that of its argument; ``run`` does the same."""
    parameters = [Parameter("A", Parameter.POSITIONAL_OR_KEYWORD, annotation="Any"), *_parameters_like(function)[1:]]
    variant = _printed(name, parameters, "return function({all})", function=run or function)
    theirs, ours = f"tape.{function.__name__}(", f"tape.linalg.{name}("
    variant.__doc__, variant.__module__ = (function.__doc__ or "").replace(theirs, ours), __name__
    return variant


cholesky: Callable[..., Tensor] = cached_call()(
    _also(input="A")(_variant("cholesky", _decompositions.cholesky, _decompositions.cholesky_factor))
)
inv: Callable[..., Tensor] = cached_call()(_variant("inv", _solves.inverse, _solves.inverted))
det: Callable[..., Tensor] = _variant("det", _solves.det)
slogdet: Callable[..., Any] = _variant("slogdet", _solves.slogdet)
matrix_exp: Callable[..., Tensor] = _also(input="A")(_variant("matrix_exp", _solves.matrix_exp))
matrix_power: Callable[..., Tensor] = _also(input="A")(_variant("matrix_power", _solves.matrix_power))


@cached_call()
def cross(input: Any, other: Any, *, dim: int = -1) -> Tensor:
    """Return the vector product along a dim of size 3.

    >>> tape.linalg.cross(tape.tensor([1.0, 0.0, 0.0]), tape.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    return vector_product("cross", input, other, dim)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803
    """Return a view of the diagonals of matrices, as the last dim.

    >>> tape.linalg.diagonal(tape.eye(2))
    tensor([1., 1.])
    """
    return _diagonal(A, offset, dim1, dim2)
