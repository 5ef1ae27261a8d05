"""Public functions that follow from records alone: of reductions, routines and views that have none written by hand.

A function is offered as ``tape.f``, as a method and, if NumPy has one of that name, to NumPy. Its parameters are those
of the record: of a reduction PyTorch's ``dim`` and ``keepdim``, else the operands and static parameters of ``forward``
or ``apply``, with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import numpy as np

from kernels.foundation.recent_table import exact
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine
from kernels.kinds.view import View
from kernels.ops.registry import OPS
from kernels.records.op import Op
from tape import return_types
from tape.operations.elementwise import install_in_place
from tape.operations.matrices import contractions
from tape.operations.operators import FUNCTIONS
from tape.operations.parameters import parameters_like, printed
from tape.operations.reductions import norms, scans
from tape.operations.sums_and_extrema import along
from tape.recording import record, routine_calls
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors import registration
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor

MADE: dict[str, Callable[..., Any]] = {}
"""The functions that were made here, by name."""


def function_of(op: Op) -> Callable[..., Any]:
    """Return the function of a record as users call it."""
    function = _MAKERS[type(op)](op)
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc
    return argued(function)


def _reduction(op: Any) -> Callable[..., Any]:
    def reduce(
        input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
    ) -> Tensor:
        return along(op, input, dim, axis, keepdim, keepdims, dtype)

    return reduce


def _routine(op: Any) -> Callable[..., Any]:
    names = (*op.results, *op.extras)
    kind = return_types.named(op.name, op.doc, *names) if len(names) > 1 else None

    def run(operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        results = routine_calls.call(op, *operands, **{name: _static(op, name, x) for name, x in params.items()})
        return results if kind is None else kind(*results)

    return _written(op, op.forward, run)


def _view(op: Any) -> Callable[..., Any]:
    def run(operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return record.view(op, tensor_of(*operands), tuple(_static(op, name, x) for name, x in params.items()))

    return _written(op, op.apply, run, count=1)


_MAKERS: dict[type, Callable[[Any], Callable[..., Any]]] = {Reduction: _reduction, Routine: _routine, View: _view}


def _written(op: Op, like: Callable[..., Any], run: Callable[..., Any], count: int | None = None) -> Callable[..., Any]:
    """Return a function with the parameters of another one: so many operands, then static parameters, by name."""
    parameters = parameters_like(like)
    if count is None:
        count = sum(p.kind is not p.KEYWORD_ONLY for p in parameters)
    names = ["input", *(p.name for p in parameters[1:])]
    kind, shown = Parameter.POSITIONAL_OR_KEYWORD, zip(names, parameters, strict=True)
    static = ", ".join(f"{name!r}: {name}" for name in names[count:])
    body = f"return run(({', '.join(names[:count])},), {{{{{static}}}}})"
    return printed(op.name, [Parameter(n, kind, default=p.default, annotation="Any") for n, p in shown], body, run=run)  # type: ignore[no-any-return]


def _static(op: Op, name: str, value: Any) -> Any:
    """Return a static parameter as it may be part of a key: lists as tuples."""
    if isinstance(value, list):
        value = tuple(_static(op, name, x) for x in value)
    try:
        exact(value)
    except TypeError:
        raise TypeError(
            f"{op.name}(): {name} is static, a number, a string, or a tuple of them; got {type(value).__name__}"
        ) from None
    return value


def _to_numpy(function: Callable[..., Any], numpys: Any) -> None:
    """Let a reduction serve NumPy's function of the same name."""

    @registration.implements(numpys)
    def serve(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        if out is not None:
            raise TypeError(f"np.{numpys.__name__}: out= is not supported for tensors; assign the result")
        return function(a, axis, bool(keepdims), dtype=dtype)


def _left() -> Iterator[Op]:
    """Yield the records that say that they have a public function, and have none yet."""
    for op in OPS.values():
        known = op.name in FUNCTIONS or op.name in registration.FUNCTIONS or hasattr(Tensor, op.name)
        if op.function and type(op) in _MAKERS and not known:
            yield op


for _op in _left():
    MADE[_op.name] = registration.public(*_op.torch)(function_of(_op))
    _numpys = getattr(np, _op.name, None)
    if isinstance(_op, Reduction) and _numpys is not None and _numpys not in registration.NUMPY:
        _to_numpy(MADE[_op.name], _numpys)


# In-place variants of functions of whole tensors: running sums, products added to a tensor.

for _function in (
    contractions.addmm,
    contractions.addmv,
    contractions.addr,
    contractions.baddbmm,
    contractions.addbmm,
    norms.renorm,
):
    install_in_place(_function, f"{_function.__name__}_")


def _cumsum(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    defaults_only = dtype is None and axis is None  # then native code repeats it
    return scans.cumsum(input, dim) if defaults_only else scans.cumsum(input, dim, dtype=dtype, axis=axis)


def _cumprod(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    defaults_only = dtype is None and axis is None
    return scans.cumprod(input, dim) if defaults_only else scans.cumprod(input, dim, dtype=dtype, axis=axis)


_cumsum.__doc__, _cumprod.__doc__ = scans.cumsum.__doc__, scans.cumprod.__doc__
install_in_place(_cumsum, "cumsum_")
install_in_place(_cumprod, "cumprod_")
