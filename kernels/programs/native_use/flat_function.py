"""A compiled program as a function of ctypes: numbers by value, arrays and results by address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels.programs.compiler.compiled_code import CompiledCode
from kernels.programs.native_use.native_entry import Parameter, flat_address, parameters_of

_KINDS = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "int32": ctypes.c_int32,
    "bool": ctypes.c_bool,
}  # fmt: skip
_ADDRESSES = (int, ctypes.c_void_p, ctypes._Pointer, type(ctypes.byref(ctypes.c_int())))  # noqa: SLF001 (of pointers)


class PointerArgument:
    """What ctypes asks of an entry of ``argtypes``: it takes an array that fits, or an address as it is.

    TypeError, which ctypes makes an ArgumentError, for other arrays: of another dtype, shape or strides, or, for a
    result, read-only. An address is an int, a ``c_void_p``, a pointer of ctypes, or what its ``byref`` returns.
    """

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter

    def __repr__(self) -> str:
        return f"<pointer to {self.parameter.name}: {self.parameter.spec.dtype}, {self.parameter.spec.shape}>"

    def from_param(self, value: Any) -> Any:
        """Return an address as ctypes hands it over."""
        if isinstance(value, np.ndarray):
            reason = misfit(self.parameter, value)
            if reason:
                raise TypeError(reason)
            return ctypes.c_void_p(value.ctypes.data)
        if isinstance(value, _ADDRESSES):
            return ctypes.c_void_p(value) if isinstance(value, int) else value
        raise TypeError(f"{self.parameter.name}: an array or an address is wanted, not {type(value).__name__}")


def misfit(parameter: Parameter, value: Any, *, placed: bool = True) -> str:
    """Return why a parameter does not take an array; "" if it does, shape and strides looked at if ``placed``."""
    spec, name = parameter.spec, parameter.name
    if not isinstance(value, np.ndarray) or value.dtype != spec.dtype or not value.flags.aligned:
        kind = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        return f"{name}: an aligned array of dtype {spec.dtype} is wanted, not {kind}"
    if parameter.role != "argument" and not value.flags.writeable:
        return f"{name} is written to, and the array may only be read"
    shapes = [spec.shape] if parameter.role == "argument" or spec.shape else [(), (1,)]
    if value.ndim not in map(len, shapes):
        return f"{name}: {len(spec.shape)} dimensions are wanted, not {value.ndim}"
    if placed and value.shape not in shapes:
        return f"{name}: shape {spec.shape} is wanted, not {value.shape}"
    steps = [pair for pair, n in zip(zip(value.strides, parameter.strides), spec.shape) if n > 1]  # noqa: B905 (of (1,))
    if placed and spec.size and any(stride != wanted for stride, wanted in steps):
        return f"{name}: strides {parameter.strides} are wanted, not {value.strides}"
    return ""


def flat_function(code: CompiledCode, names: tuple[str, ...] = ()) -> Any:
    """Return the flat function of a program as ctypes calls it; it gives the interpreter lock away meanwhile.

    Its parameters are those of ``parameters_of``: numbers as ``c_double`` and its kin, arrays and results as
    ``PointerArgument``. It returns the status as an int; see ``emit_call`` in native_entry.py.
    """
    parameters = parameters_of(code, names)
    kinds: list[Any] = [_KINDS[p.spec.dtype.name] if p.by_value else ctypes.c_void_p for p in parameters]
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(flat_address(code))
    converters: list[Any] = [
        kind if p.by_value else PointerArgument(p) for p, kind in zip(parameters, kinds, strict=True)
    ]
    function.argtypes = converters
    return function
