"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

import sys
from typing import Any

from tape.numpy_interface import functions, op_table, predicates, protocols, sampling, statistics, variance
from tape.operations import (
    contractions,
    copied_views,
    decompositions,
    diagonals,
    gather,
    joining,
    rearranging,
    reductions,
    scatter,
    solves,
    sorting,
)
from tape.operations import elementwise as elementary
from tape.operations.elementwise import FUNCTIONS
from tape.recording import to_python
from tape.recording.parameters import taking_out
from tape.tensors import hooks
from tape.tensors.tensor import Tensor

_TAKING_OUT = (
    "addbmm addcdiv addcmul addmm addmv addr all aminmax any argmax argmin argsort baddbmm bmm cholesky "
    "cholesky_inverse cholesky_solve clamp clip column_stack cross cummax cummin cumprod cumsum diag diff dstack "
    "float_power frexp gather ger histc hstack igamma igammac index_select inner inverse kron kthvalue ldexp lerp "
    "logcumsumexp logit logsumexp lu_solve lu_unpack masked_select matrix_power mode mvlgamma nan_to_num nanmean "
    "nanquantile narrow_copy nonzero norm outer polygamma prod quantile renorm round row_stack sort std svd take "
    "take_along_dim topk tril triu var vdot vstack"
)
"""Functions that take ``out=`` as PyTorch's do, besides those of elementwise records."""
for _name in _TAKING_OUT.split():
    hooks.FUNCTIONS[_name] = taking_out(hooks.FUNCTIONS[_name])
_IN_PLACE: dict[str, Any] = {}
# tape.sin_(x), where tape.sin is a function
for _name in sorted({*FUNCTIONS, *hooks.FUNCTIONS, "fill", "zero"}):
    if hasattr(Tensor, f"{_name}_") and _name != "detach":  # no function of programs
        _IN_PLACE[f"{_name}_"] = getattr(Tensor, f"{_name}_")
globals().update(_IN_PLACE | FUNCTIONS)
globals().update(hooks.FUNCTIONS)
for _name, _function in {**_IN_PLACE, **hooks.FUNCTIONS}.items():
    if getattr(sys.modules[_function.__module__], _function.__qualname__, None) is not _function:
        _function.__module__, _function.__qualname__ = __name__, _name  # made by another function: pickle looks here
__all__ = list({**_IN_PLACE, **FUNCTIONS, **hooks.FUNCTIONS})
