"""A recipe as JSON and arrays, for files. What it says is checked as it is read, so that no place is outside."""

from __future__ import annotations

import itertools
import math
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from kernels.foundation.specs import INT64, Array, Spec, Strides, view_spec
from kernels.kinds.elementwise import Elementwise, Reduction
from kernels.kinds.routine import Callback, Custom, Guard, LoopBegin, LoopEnd, LoopMark, Routine, RoutineCall, custom_of
from kernels.kinds.views import Copy, Gather, ResultPart, View, Write
from kernels.operations import OPS
from kernels.operations.interpolation import Pattern, pattern_of
from kernels.programs import steps
from kernels.programs.program import HEAD, Lines, ProgramNode, Recipe, Step, StepKind, Steps, form_from, steps_from
from kernels.rules.op import Op
from kernels.rules.scalar_loops import NodeRef, node_of

# A JSON list is a tuple; an object of one key says by it what its value is. Arrays stand apart, by number, and so do
# the patterns and forms that many values share.


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
            return self.values(value, place)
        for name, (of, encode, _) in _CODINGS.items():
            if kind is of if isinstance(of, type) else of(value):
                return {name: encode(self, value, place)}
        raise TypeError(
            f"{place} is a {kind.__name__}, which a file does not hold: it has numbers, text, arrays, tuples, "
            "lists, dicts and sets of them, and the names of classes and functions"
        )

    def values(self, values: Iterable[Any], place: str = "a parameter") -> list[Any]:
        """Return JSON for several values."""
        return [self.value(x, place) for x in values]

    def array(self, array: Array) -> int:
        """Return the number of an array; what stands in several places is written once."""
        if array.dtype.name not in DTYPES:
            raise TypeError(f"a file holds no array of {array.dtype}")
        return self._numbered("array", array, self.arrays, array)

    def spec(self, spec: Spec) -> int:
        """Return the number of a spec."""
        row = [spec.shape, spec.strides, spec.dtype.name, spec.gradient, spec.buffer_size]
        return self._numbered("spec", spec, self.tables["specs"], row)

    def form(self, form: Any) -> int:
        """Return the number of a form; what it takes to make it again is in the table."""
        params = () if form.is_view else form.params
        specs = [None if spec is None else self.spec(spec) for spec in form.specs]
        row = [self.op(form.op), specs, self.spec(form.spec), form.wanted, self.values(params), form.name]
        return self._numbered("form", form, self.tables["forms"], row)

    def op(self, op: Op) -> Any:
        """Return JSON for a record: its name, or those of the functions that it calls."""
        if isinstance(op, Custom):
            return {"custom": [op.name, op.grad_fn, self.named(op.forward), self.named(op.vjp)]}
        if isinstance(op, ResultPart):
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

    def _numbered(self, kind: str, value: Any, table: list[Any], row: Any) -> int:
        key = kind, id(value)
        if key not in self._numbers:
            self._numbers[key] = len(table)
            self._kept.append(value)  # its id stays its own
            table.append(row)
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
    return NAN + struct.pack(">d", value).hex() if math.isnan(value) else value.hex()


NAN = "nan:"  # what stands in front of the bits of nan


def _unordered(encoder: Encoder, values: Any, place: str) -> list[Any]:
    return sorted(encoder.values(values, place), key=repr)


# Nothing is imported by a name of the file: classes and functions are what the reader was given for their names.


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
        if name not in _CODINGS:
            raise ValueError(f"there is no kind of values {name!r}")
        return _CODINGS[name][2](self, content)

    def array(self, number: int) -> Array:
        """Return an array by its number."""
        return self.arrays[_within(number, len(self.arrays))]

    def spec(self, number: int) -> Spec:
        """Return a spec by its number."""
        return self.specs[_within(number, len(self.specs))]

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
        return None if number is None else self.forms[_within(number, len(self.forms))]

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
        if min((*shape, buffer_size)) < 0 or DTYPES[dtype].kind not in "fiub" or DTYPES[dtype].itemsize > 8:  # noqa: PLR2004 (bytes)
            raise ValueError(f"no pattern: {shape} of {dtype}")
        return view_spec(tuple(shape), tuple(strides), DTYPES[dtype], tuple(gradient), buffer_size)


_MOST = 1 << 60


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


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, kind)


_CODINGS: dict[str, tuple[Any, Callable[[Encoder, Any, str], Any], Callable[[Decoder, Any], Any]]] = {
    "float": (float, lambda _, x, __: _text(x), lambda _, x: _double(x)),
    "complex": (complex, lambda _, x, __: [_text(x.real), _text(x.imag)], lambda _, x: complex(*map(_double, x))),
    "bytes": (bytes, lambda _, x, __: x.hex(), lambda _, x: bytes.fromhex(x)),
    "ellipsis": (type(Ellipsis), lambda *_: True, lambda *_: Ellipsis),
    "list": (list, lambda e, x, place: e.values(x, place), lambda d, x: [*map(d.value, x)]),
    "set": (set, _unordered, lambda d, x: {*map(d.value, x)}),
    "frozenset": (frozenset, _unordered, lambda d, x: frozenset(map(d.value, x))),
    "dict": (dict, lambda e, x, place: e.values(x.items(), place), lambda d, x: dict(map(d.value, x))),
    "slice": (slice, lambda e, x, place: e.values((x.start, x.stop, x.step), place), lambda d, x: slice(*d.value(x))),
    "range": (range, lambda _, x, __: [x.start, x.stop, x.step], lambda _, x: range(*x)),
    "array": (np.ndarray, lambda e, x, _: e.array(x), lambda d, x: d.array(x)),
    "pattern": (Pattern, lambda e, x, _: [e.array(x.columns), e.array(x.indptr), x.shape], _pattern),
    "scalar": (
        lambda x: isinstance(x, np.generic) and x.dtype.name in DTYPES,
        lambda e, x, _: e.array(np.array(x)),
        lambda d, x: d.array(x)[()],
    ),
    "dtype": (lambda x: isinstance(x, np.dtype) and x.name in DTYPES, lambda _, x, __: x.name, lambda _, x: DTYPES[x]),
    "member": (_is(Enum), lambda e, x, _: [e.named(type(x)), x.name], lambda d, x: d.named[x[0]].__members__[x[1]]),
    "spec": (_is(Spec), lambda e, x, _: e.spec(x), lambda d, x: d.spec(x)),  # of inference mode, too
    "call": (_is(RoutineCall), lambda e, x, place: [x.op.name, *e.values((x.params, x.shapes), place)], _call),
    "named": (is_named, lambda e, x, _: e.named(x), lambda d, x: d.named[x]),
}
"""How values are told (a type, or a question), written and read, by the name that stands in the file."""


_NONE = -1


def encoded(recipe: Recipe, encoder: Encoder) -> dict[str, Any]:
    """Return JSON for a recipe; its arrays and tables are the encoder's.

    NotImplementedError where it calls Python, since files hold no code, and where computed places are in it that no
    guard bounds: a file could have any, and native code trusts them.
    """
    for at in recipe.steps.of_kind(Callback):
        step = recipe.steps[at]
        raise NotImplementedError(
            f"save: Python runs {step.params[0]}, an {step.op.name}, {_place(recipe, at)}; files hold no code: make it "
            "of tape's operations, or a tape.custom of two @njit functions, which a file holds by name"
        )
    unbounded = next(_unbounded(recipe), None)
    if unbounded is not None:
        raise NotImplementedError(
            f"save: {recipe.steps[unbounded].op.name} has computed places {_place(recipe, unbounded)}, which no guard "
            "bounds; index by an integer tensor, as x[i]"
        )
    places: dict[int, int] = {}
    order = [places.setdefault(id(node), len(places)) for node in recipe.nodes]
    distinct = {id(node): node for node in recipe.nodes}  # results that are alike share one
    rows, lines = [_row(node, encoder) for node in distinct.values()], recipe.lines
    return {
        "nodes": encoder.array(np.array(rows, INT64).reshape(-1, 8)),
        "order": encoder.array(np.array(order, INT64)),
        "arguments": recipe.arguments,
        "outputs": recipe.outputs,
        "written": sorted(recipe.written),
        "lines": lines
        and {
            "table": [list(line) for line in lines.table],
            "marks": encoder.array(np.array([lines.begins, lines.numbers], INT64)),
        },
        **({"frugal": True} if recipe.frugal else {}),
        **_encoded_steps(recipe.steps, encoder),
    }


def _place(recipe: Recipe, at: int) -> str:
    lines = recipe.lines
    return "in the program" if lines is None else f"at {lines.text(int(lines.of_steps(recipe.steps)[at]))}"


def _row(node: ProgramNode, encoder: Encoder) -> list[int]:
    constant, spec = node.constant, encoder.spec(node.spec)
    memory = None if constant is None else constant if constant.flags.c_contiguous else constant.ravel("K")
    places = node.base, node.family, None if memory is None else encoder.array(memory)
    base, family, held = [_NONE if place is None else place for place in places]
    return [spec, base, node.offset, node.buffer_offset, node.differentiable, family, held, node.argument]


def _encoded_steps(steps: Steps, encoder: Encoder) -> dict[str, Any]:
    numbers = [x if type(x) is float else 0.0 for x in steps.numbers]
    others = [[i, encoder.value(x)] for i, x in enumerate(steps.numbers) if type(x) is not float]
    kinds = [
        [encoder.op(k.op), None if k.form is None else encoder.form(k.form), encoder.values(k.params), k.count]
        for k in steps.kinds
    ]
    arrays = {"words": np.array(steps.words, INT64), "numbers": np.array(numbers, np.float64)}
    return {name: encoder.array(array) for name, array in arrays.items()} | {"others": others, "kinds": kinds}


def decoded(tree: dict[str, Any], decoder: Decoder) -> Recipe:
    """Return the recipe of what :func:`encoded` returned; ValueError if it contradicts itself."""
    order, rows = _integers(decoder, tree["order"]), _integers(decoder, tree["nodes"])
    if rows.ndim != len(("row", "column")) or order.ndim != 1 or order.min(initial=0) < 0:
        raise ValueError("no table of nodes")
    distinct = [_node(row, len(order), decoder) for row in rows.tolist()]
    nodes = [distinct[i] for i in order.tolist()]
    count = len(nodes)
    numbers = decoder.array(tree["numbers"]).tolist()
    for place, value in tree["others"]:
        numbers[_within(place, len(numbers))] = decoder.value(value)
    kinds = [
        StepKind(decoder.op(op), decoder.form(form), decoder.value(params), operands)
        for op, form, params, operands in tree["kinds"]
    ]
    words = _integers(decoder, tree["words"])
    _check_words(words.tolist(), kinds, len(numbers), count)
    arguments, outputs, written = (
        [_within(i, count) for i in tree[name]] for name in ("arguments", "outputs", "written")
    )
    lines = _lines(tree["lines"], decoder) if tree.get("lines") is not None else None
    recorded = steps_from(kinds, numbers, array("q", words.tobytes()))
    recipe = Recipe(nodes, recorded, arguments, outputs, {*written}, lines, frugal=bool(tree.get("frugal")))
    # each view stands within the memory of its base, its gradient within the buffer of its family
    for node in {id(node): node for node in recipe.nodes}.values():
        spec = node.spec
        base = node if node.base is None else recipe.nodes[node.base]
        family = node if node.family is None else recipe.nodes[node.family]
        room = base.spec.size * base.spec.dtype.itemsize // spec.dtype.itemsize
        if base.base is not None or not _fits(node.offset, spec.shape, spec.strides, spec, room):
            raise ValueError(f"{spec} at {node.offset} leaves the memory of {base.spec}")
        size = family.spec.buffer_size * (family.spec.dtype == spec.dtype)
        if family.family is not None or not _fits(node.buffer_offset, spec.shape, spec.gradient, spec, size):
            raise ValueError(f"{spec} at {node.buffer_offset} leaves the gradient of {family.spec}")
    steps.check(recipe)
    for at in _unbounded(recipe):
        raise ValueError(f"{recipe.steps[at].op.name} has computed places that may be outside")
    return recipe


# Computed places are within the memory where guards say so: whoever runs a file need not trust who wrote it.

Bounds = tuple[float, float]  # of integers
_ANY = -math.inf, math.inf
_TRUTH = 0, 1
_COMPARED: dict[Any, Callable[[float], Bounds]] = {
    np.greater_equal: lambda k: (k, math.inf),
    np.greater: lambda k: (k + 1, math.inf),
    np.less: lambda k: (-math.inf, k - 1),
    np.less_equal: lambda k: (-math.inf, k),
}
"""What is known of a number that has passed a guard of its comparison with an integer."""
_OPEN: dict[Any, int] = {np.minimum: 1, np.maximum: 0}
"""Which end stays open where a least, or largest, element is compared: all are within the other then."""


def _unbounded(recipe: Recipe) -> Iterator[int]:
    """Yield the steps with computed places that guards before them do not keep within memory and gradient."""
    if not any(_has_computed_places(kind.op, kind.params, kind.count) for kind in recipe.steps.kinds):
        return
    known = _KnownBounds(recipe)
    for step in recipe.steps:
        if _has_computed_places(step.op, step.params, len(step.operands)):
            low, high = known.of(step.operands[-1])
            if recipe.nodes[node_of(step.operands[-1])].spec.size and not (low >= 0 and high < _room(recipe, step)):
                yield step.at
        known.take(step)


_IN_PLACE = Guard, Write, LoopMark, View
"""Operations whose results are in memory that is there already."""


class _KnownBounds:
    """Bounds of the integers in nodes that are made once, before they are used, until they are written to."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.nodes = recipe, recipe.nodes
        self.bounds, self.begins = dict[int, Bounds](), list[dict[int, Bounds]]()
        self.made = dict[int, Step]()
        self.there = {i for i, node in enumerate(self.nodes) if node.constant is not None or node.argument}
        self.written = recipe.written_bases() | {phi for loop in recipe.steps.loops() for phi in loop.phis}
        self.changed, before = set[int](), set(recipe.arguments)
        for at in range(len(recipe.steps)):
            kind, result, _, _ = recipe.steps.raw(at)
            if not isinstance(recipe.steps.kinds[kind].op, _IN_PLACE):
                self.changed |= {result} & before
                before.add(result)

    def of(self, operand: Any) -> Bounds:
        """Return the bounds of an operand as far as they are known."""
        if not isinstance(operand, NodeRef):
            return (operand, operand) if type(operand) is int else _ANY
        node, base = operand.node, self.recipe.base_of(operand.node)
        if not self.changed.isdisjoint((node, base)) or self.nodes[base].spec.dtype != self.nodes[node].spec.dtype:
            return _ANY
        constant = self.nodes[base].constant
        if constant is not None and constant.dtype == INT64 and constant.size:
            return int(constant.min()), int(constant.max())
        return _both(self.bounds.get(node, _ANY), self.bounds.get(base, _ANY))

    def take(self, step: Step) -> None:
        """Take a step: what it makes has bounds, a guard tells some, and behind a loop or a body all is as before."""
        op = step.op
        if not all(self.recipe.base_of(o.node) in self.there for o in step.operands if isinstance(o, NodeRef)):
            self.changed.add(step.result)
        if isinstance(op, LoopMark):
            self.begins += [self.bounds] * isinstance(op, LoopBegin)
            self.bounds = self.begins[-1].copy()
            self.begins = self.begins[: len(self.begins) - isinstance(op, LoopEnd)]
            self._forget(self.written)
        elif isinstance(op, Write):
            self._forget({self.recipe.base_of(step.result)})
        elif isinstance(op, Guard):
            self._learn(step)
        elif step.result not in self.changed and not isinstance(op, _IN_PLACE):
            self.made[step.result] = step
            self.bounds[step.result] = _computed(op, self.nodes[step.result].spec, list(map(self.of, step.operands)))
        self.there.add(step.result)

    def _forget(self, bases: set[int]) -> None:
        """Forget what was known of these nodes' memory, and of comparisons, which may be of it."""
        self.bounds = {node: known for node, known in self.bounds.items() if self.recipe.base_of(node) not in bases}
        self.made.clear()

    def _learn(self, step: Step) -> None:
        """Learn from a guard of a comparison: of all elements, or the least or largest of them, with an integer."""
        truth, expected = self.made.get(node_of(step.operands[0])), self.nodes[node_of(step.operands[1])].constant
        if truth is None or _loop(truth.op, Elementwise) not in _COMPARED or expected is None or not expected.all():
            return
        low, high = self.of(truth.operands[1])
        if low != high or not isinstance(truth.operands[0], NodeRef):
            return
        within, of = _COMPARED[_loop(truth.op, Elementwise)](low), truth.operands[0].node
        extreme = self.made.get(of)
        reduced = None if extreme is None else _loop(extreme.op, Reduction)
        if extreme is not None and reduced in _OPEN and math.isinf(within[_OPEN[reduced]]):
            of = node_of(extreme.operands[0])
        if self.nodes[of].spec.dtype == INT64:
            self.bounds[of] = _both(self.bounds.get(of, _ANY), within)


def _has_computed_places(op: Op, params: tuple[Any, ...], count: int) -> bool:
    return isinstance(op, (Gather, Write)) and not params and count > len(op.pullback)


def _both(one: Bounds, other: Bounds) -> Bounds:
    return max(one[0], other[0]), min(one[1], other[1])


def _computed(op: Op, spec: Spec, operands: list[Bounds]) -> Bounds:
    """Return the bounds of a result that are known from those of the operands."""
    if _loop(op, Elementwise) in _COMPARED:
        return _TRUTH
    ufunc, is_known = _loop(op, Elementwise), not math.isinf(sum(map(abs, itertools.chain(*operands))))
    if spec.dtype == INT64 and ufunc in (np.add, np.multiply) and is_known:
        (a, b), (c, d) = operands
        ends = (a + c, b + d) if ufunc is np.add else (a * c, a * d, b * c, b * d)
        low, high = min(ends), max(ends)
        return (low, high) if max(-low, high) < _MOST else _ANY  # it does not overflow
    passes = isinstance(op, (Copy, Gather)) or _loop(op, Reduction) in _OPEN
    return operands[0] if spec.dtype == INT64 and passes else _ANY


def _loop(op: Op, kind: type) -> Any:
    """Return the ufunc of a record of this kind."""
    return getattr(op, "ufunc", None) if isinstance(op, kind) else None


def _room(recipe: Recipe, step: Step) -> int:
    """Return how many elements there are from where a step's source or target begins, in memory and in gradient."""
    at = step.result if isinstance(step.op, Write) else node_of(step.operands[0])
    node, item = recipe.nodes[at], recipe.nodes[at].spec.dtype.itemsize
    base, family = recipe.nodes[recipe.base_of(at)].spec, recipe.nodes[recipe.family_of(at)].spec
    return min(base.size - node.offset // item, family.buffer_size - node.buffer_offset // item)


def _lines(tree: dict[str, Any], decoder: Decoder) -> Lines:
    table = [(str(path), int(line), str(source)) for path, line, source in tree["table"]]
    marks = _integers(decoder, tree["marks"])
    if marks.ndim != len(("row", "column")) or len(marks) != len(("begins", "numbers")):
        raise ValueError("no table of lines")
    begins, numbers = marks
    if min(numbers, default=0) < -1 or max(numbers, default=-1) >= len(table) or (np.diff(begins) < 0).any():
        raise ValueError("no table of lines")
    return Lines(table, array("q", begins.tobytes()), array("q", numbers.tobytes()))


def _within(place: Any, count: int) -> int:
    if type(place) is not int or not 0 <= place < count:
        raise ValueError(f"{place!r} is no place in a table of {count}")
    return place


def _integers(decoder: Decoder, number: Any) -> Array:
    values = decoder.array(number)
    if values.dtype != INT64:
        raise ValueError(f"integers of dtype {values.dtype}")
    return values


def _node(row: list[int], count: int, decoder: Decoder) -> ProgramNode:
    number, base, offset, buffer_offset, differentiable, family, constant, argument = row
    spec = decoder.spec(number)
    value = None
    if constant != _NONE:
        memory = decoder.array(constant)
        alike = memory.dtype == spec.dtype and memory.size == spec.size
        if not alike or not _fits(0, spec.shape, spec.strides, spec, spec.size):
            raise ValueError(f"a constant of {memory.size} elements where {spec} is")
        value = np.ndarray(spec.shape, spec.dtype, memory, 0, spec.strides)
    above, whole = [None if place == _NONE else _within(place, count) for place in (base, family)]
    return ProgramNode(spec, above, offset, buffer_offset, bool(differentiable), whole, value, bool(argument))


def _fits(offset: int, shape: Strides, strides: Strides, spec: Spec, size: int) -> bool:
    """Whether a pattern of a spec's elements, from an offset in bytes on, is within memory of so many of them."""
    if 0 in shape:
        return True
    ends = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    first, last = (offset + sum(pick(end, 0) for end in ends) for pick in (min, max))
    return first >= 0 and last + spec.dtype.itemsize <= size * spec.dtype.itemsize


def _check_words(words: list[int], kinds: list[StepKind], numbers: int, nodes: int) -> None:
    """Check that steps are of kinds that are there, and use nodes and numbers that are there."""
    if not all(type(kind.count) is int and kind.count >= 0 for kind in kinds):
        raise ValueError("a kind of steps has no number of operands")
    at, sizes = 0, [HEAD + kind.count for kind in kinds]
    while at < len(words):
        end = at + sizes[_within(words[at], len(kinds))]
        _within(words[at + 1], nodes)
        if end > len(words) or min(words[at + HEAD : end], default=0) < -numbers:
            raise ValueError(f"the step at word {at} has operands that are not there")
        if max(words[at + HEAD : end], default=0) >= nodes:
            raise ValueError(f"the step at word {at} has an operand that is no node")
        at = end
