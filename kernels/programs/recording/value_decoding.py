"""Values from JSON and arrays, as value_encoding.py writes them: all that reading a file calls is written here.

Nothing is imported by a name of the file: classes and functions are what the reader was given for their names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, view_spec
from kernels.kinds.routine import Routine, RoutineCall
from kernels.ops.linalg.sparse import Pattern, pattern_of
from kernels.ops.registry import OPS
from kernels.programs.recording.pickling import custom_of, form_from
from kernels.programs.recording.value_encoding import DTYPES, NAN, Array
from kernels.records.op import Op


class Decoder:
    """Reads what an Encoder wrote: with its tables, the arrays, and what its names stand for."""

    def __init__(self, tables: Mapping[str, Any], arrays: list[Array], named: Mapping[str, Any]) -> None:
        self.arrays, self.named = arrays, named
        self.specs = [self._spec(*row) for row in tables["specs"]]
        self.forms = [self._form(*row) for row in tables["forms"]]

    def value(self, tree: Any) -> Any:
        """Return the value of JSON; ValueError for what is none."""
        if isinstance(tree, list):
            return tuple(map(self.value, tree))
        if not isinstance(tree, dict):
            return tree
        ((name, content),) = tree.items()
        if name not in _DECODERS:
            raise ValueError(f"there is no kind of values {name!r}")
        return _DECODERS[name](self, content)

    def array(self, number: int) -> Array:
        """Return an array by its number."""
        return self.arrays[_place(number, self.arrays)]

    def spec(self, number: int) -> Spec:
        """Return a spec by its number."""
        return self.specs[_place(number, self.specs)]

    def op(self, tree: Any) -> Op:
        """Return a record; ValueError, naming it, if this version has none of its name."""
        if isinstance(tree, str):
            return _op_named(tree)
        ((kind, content),) = tree.items()
        if kind == "part":
            return _routine_named(content).part
        if kind != "custom":
            raise ValueError(f"there are no operations of kind {kind!r}")
        name, grad_fn, *functions = content
        return custom_of(name, grad_fn, *(self.named[f] for f in functions))

    def form(self, number: int | None) -> Any:
        """Return a form by its number; None for None."""
        return None if number is None else self.forms[_place(number, self.forms)]

    def _form(self, op: Any, specs: Any, spec: int, wanted: Any, params: Any, name: str) -> Any:
        if len(specs) != len(wanted) or not all(type(want) is bool for want in wanted):
            raise ValueError(f"no form of {name}: {specs}, {wanted}")
        patterns = tuple([None if i is None else self.spec(i) for i in specs])
        return form_from(self.op(op), patterns, self.spec(spec), tuple(wanted), self.value(params), name)

    def _spec(self, shape: Any, strides: Any, dtype: str, gradient: Any, buffer_size: int) -> Spec:
        lengths = {len(shape), len(strides), len(gradient)}
        numbers = [*shape, *strides, *gradient, buffer_size]
        if len(lengths) != 1 or not all(type(n) is int and abs(n) < _MOST for n in numbers):
            raise ValueError(f"no pattern: {shape}, {strides}, {gradient}, {buffer_size}")
        if min((*shape, buffer_size)) < 0 or DTYPES[dtype].kind not in "fiub" or DTYPES[dtype].itemsize > _WIDEST:
            raise ValueError(f"no pattern: {shape} of {dtype}")
        return view_spec(tuple(shape), tuple(strides), DTYPES[dtype], tuple(gradient), buffer_size)


_MOST = 1 << 60
_WIDEST = 8


def _place(number: Any, table: list[Any]) -> int:
    if type(number) is not int or not 0 <= number < len(table):
        raise ValueError(f"{number!r} is no place in a table of {len(table)}")
    return number


def _op_named(name: str) -> Op:
    if name not in OPS:
        raise ValueError(f"the program has the operation {name!r}, which this version of tape does not know")
    return OPS[name]


def _routine_named(name: str) -> Routine:
    op = _op_named(name)
    if not isinstance(op, Routine):
        raise ValueError(f"{name!r} has one result")  # noqa: TRY004 (what a file says is a value)
    return op


def _double(text: str) -> float:
    if not text.startswith(NAN):
        return float.fromhex(text)
    (value,) = struct.unpack(">d", bytes.fromhex(text.removeprefix(NAN)))
    return float(value)


def _call(decoder: Decoder, content: Any) -> RoutineCall:
    name, params, shapes = content
    return RoutineCall(_routine_named(name), decoder.value(params), decoder.value(shapes))


def _pattern(decoder: Decoder, content: Any) -> Pattern:
    columns, indptr, shape = content
    columns, indptr = np.array(decoder.array(columns)), np.array(decoder.array(indptr))
    rows, width = shape
    sound = (
        columns.dtype == indptr.dtype == np.int64
        and indptr.shape == (rows + 1,)
        and (indptr[0], indptr[-1]) == (0, columns.size)
        and bool((np.diff(indptr) >= 0).all())
        and bool(((columns >= 0) & (columns < width)).all())
    )
    if not sound:
        raise ValueError("no pattern of a sparse matrix")
    return pattern_of(columns, indptr, (rows, width))


def _member(decoder: Decoder, content: Any) -> Any:
    return decoder.named[content[0]].__members__[content[1]]


_DECODERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "float": lambda _, x: _double(x),
    "complex": lambda _, x: complex(*map(_double, x)),
    "bytes": lambda _, x: bytes.fromhex(x),
    "ellipsis": lambda *_: Ellipsis,
    "list": lambda d, x: [*map(d.value, x)],
    "set": lambda d, x: {*map(d.value, x)},
    "frozenset": lambda d, x: frozenset(map(d.value, x)),
    "dict": lambda d, x: {d.value(k): d.value(v) for k, v in x},
    "slice": lambda d, x: slice(*map(d.value, x)),
    "range": lambda _, x: range(*x),
    "array": lambda d, x: d.array(x),
    "pattern": _pattern,
    "scalar": lambda d, x: d.array(x)[()],
    "dtype": lambda _, x: DTYPES[x],
    "member": _member,
    "spec": lambda d, x: d.spec(x),
    "call": _call,
    "named": lambda d, x: d.named[x],
}
