"""Values as JSON and arrays, for files; value_decoding.py reads them.

A JSON list is a tuple; an object of one key says by it what its value is. Arrays stand apart, by number, and so do the
patterns and forms that many values share.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.kinds.custom import Custom
from kernels.kinds.routine import RoutineCall
from kernels.kinds.view import Part
from kernels.ops.linalg.sparse import Pattern
from kernels.ops.registry import OPS
from kernels.records.op import Op

Array = np.ndarray[Any, Any]

DTYPES = {np.dtype(name).name: np.dtype(name) for name in ("?", *"bhilqBHILQ", *"efdFD")}
"""Of the arrays and numbers that a file may hold, by name."""
_PLAIN = (type(None), bool, int, str)


class Encoder:
    """Writes values as JSON; ``arrays``, and the names of what a reader has to be given, gather here."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.names: list[str] = []
        self.tables: dict[str, list[Any]] = {"specs": [], "forms": []}
        self._numbers: dict[tuple[str, int], int] = {}
        self._kept: list[Any] = []

    def value(self, value: Any, place: str = "a parameter") -> Any:
        """Return JSON for a value; TypeError, saying that it stands at ``place``, if a file holds no such thing."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [self.value(x, place) for x in value]
        if kind in _ENCODERS:
            name, encode = _ENCODERS[kind]
            return {name: encode(self, value, place)}
        return self._other(value, place)

    def _other(self, value: Any, place: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.name in DTYPES:
            return {"scalar": self.array(np.array(value))}
        if isinstance(value, np.dtype) and value.name in DTYPES:
            return {"dtype": value.name}
        if isinstance(value, Enum):
            return {"member": [self.named(type(value)), value.name]}
        if isinstance(value, Spec):  # of inference mode, too
            return {"spec": self.spec(value)}
        if isinstance(value, RoutineCall):
            return {"call": [value.op.name, self.value(value.params, place), self.value(value.shapes)]}
        if is_named(value):
            return {"named": self.named(value)}
        raise TypeError(
            f"{place} is a {type(value).__name__}, which a file does not hold: it has numbers, text, arrays, tuples, "
            "lists, dicts and sets of them, and the names of classes and functions"
        )

    def values(self, values: Iterable[Any], place: str = "a parameter") -> list[Any]:
        """Return JSON for several values."""
        return [self.value(x, place) for x in values]

    def array(self, array: Array) -> int:
        """Return the number of an array; what stands in several places is written once."""
        if array.dtype.name not in DTYPES:
            raise TypeError(f"a file holds no array of {array.dtype}")
        return self._numbered("array", array, self.arrays, lambda: array)

    def spec(self, spec: Spec) -> int:
        """Return the number of a spec."""
        return self._numbered(
            "spec",
            spec,
            self.tables["specs"],
            lambda: [spec.shape, spec.strides, spec.dtype.name, spec.gradient, spec.buffer_size],
        )

    def form(self, form: Any) -> int:
        """Return the number of a form; what it takes to make it again is in the table."""
        params = () if form.is_view else form.params
        specs = [None if spec is None else self.spec(spec) for spec in form.specs]
        row = [self.op(form.op), specs, self.spec(form.spec), form.wanted, self.values(params), form.name]
        return self._numbered("form", form, self.tables["forms"], lambda: row)

    def op(self, op: Op) -> Any:
        """Return JSON for a record: its name, or those of the functions that it calls."""
        if isinstance(op, Custom):
            return {"custom": [op.name, op.grad_fn, self.named(op.forward), self.named(op.vjp)]}
        if isinstance(op, Part):
            return {"part": op.name}
        if OPS.get(op.name) is not op:
            raise TypeError(f"the operation {op.name!r} is in no table, and cannot be found again by its name")
        return op.name

    def named(self, value: Any) -> str:
        """Return the name of a class or function, for which a reader has to be given it."""
        name = name_of(value)
        if name not in self.names:
            self.names.append(name)
        return name

    def _numbered(self, kind: str, value: Any, table: list[Any], row: Callable[[], Any]) -> int:
        key = kind, id(value)
        if key not in self._numbers:
            self._numbers[key] = len(table)
            self._kept.append(value)  # its id stays its own
            table.append(row())
        return self._numbers[key]


def name_of(value: Any) -> str:
    """Return module and name of a class or function; of a jitted one those of the function that was jitted."""
    value = getattr(value, "py_func", value)
    module = getattr(value, "__module__", None)
    name: str = getattr(value, "__qualname__", None) or value.__name__
    return f"{module}.{name}" if module else name


def is_named(value: Any) -> bool:
    """Whether something is a class or a function, which a file holds by its name."""
    jitted = hasattr(value, "py_func") and not isinstance(value, MethodType)
    return jitted or isinstance(value, (type, FunctionType, BuiltinFunctionType, np.ufunc))


def _text(value: float) -> str:
    """Return a double as text; of nan its bits."""
    return NAN + struct.pack(">d", value).hex() if math.isnan(value) else value.hex()


NAN = "nan:"
"""What stands in front of the bits of nan."""


def _unordered(encoder: Encoder, values: Any, place: str) -> list[Any]:
    return sorted(encoder.values(values, place), key=repr)


_ENCODERS: dict[Any, tuple[str, Callable[[Encoder, Any, str], Any]]] = {
    float: ("float", lambda _, x, __: _text(x)),
    complex: ("complex", lambda _, x, __: [_text(x.real), _text(x.imag)]),
    bytes: ("bytes", lambda _, x, __: x.hex()),
    type(Ellipsis): ("ellipsis", lambda *_: True),
    list: ("list", lambda e, x, place: e.values(x, place)),
    set: ("set", _unordered),
    frozenset: ("frozenset", _unordered),
    dict: ("dict", lambda e, x, place: [[e.value(k, place), e.value(v, place)] for k, v in x.items()]),
    slice: ("slice", lambda e, x, place: e.values((x.start, x.stop, x.step), place)),
    range: ("range", lambda _, x, __: [x.start, x.stop, x.step]),
    np.ndarray: ("array", lambda e, x, _: e.array(x)),
    Pattern: ("pattern", lambda e, x, _: [e.array(x.columns), e.array(x.indptr), x.shape]),
}
