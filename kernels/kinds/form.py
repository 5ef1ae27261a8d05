"""An operation's form for given specs: its kernels, what it saves, what its program and its pullbacks need."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from kernels.foundation.specs import (
    FLOAT64,
    INT64,
    InnerLoop,
    Spec,
    Strides,
    broadcast,
    dense,
    inner_loop,
    intern_spec,
    spec_of,
)
from kernels.native import structs
from kernels.native.memory import REGISTRY, row, where
from kernels.native.structs import FormBlock, InputBlock
from kernels.rules import loop_printer
from kernels.rules.loop_printer import LEAST, KernelOperand, PrintedLoop, Product
from kernels.rules.op import Op, parameters_of, passed
from kernels.rules.scalar_loops import Tasks

# A pullback that reads a cotangent for the last time may leave its result in the same memory, which halves memory
# traffic; where the contribution is the cotangent itself, nothing is written at all.


def suits(pull: PrintedLoop, source: Spec, result: Spec, *, covers: bool) -> int:
    """Whether a pullback can leave its result in the cotangent's memory: UNREQUESTED as yet, IDENTITY, or NONE."""
    if not (covers and pull.pullback and pull.skips) or pull.scatter is not None or pull.gather is not None:
        return structs.NONE
    target, cotangent, *_ = pull.operands
    alike = target.dtype == cotangent.dtype and target.strides == cotangent.strides
    whole = source.buffer_size == result.buffer_size == pull.steps >= LEAST
    if not (alike and whole and target.offset is cotangent.offset is None):
        return structs.NONE
    expression = pull.expression
    return structs.IDENTITY if expression.head == cotangent.name and not expression.parts else structs.UNREQUESTED


def in_place(pull: PrintedLoop) -> PrintedLoop:
    """Return the loop that writes where it reads the cotangent; both are one pointer, so that it vectorises."""
    target, cotangent, *others = pull.operands
    return replace(pull, operands=(replace(target, place=cotangent.place), cotangent, *others))


def run_of(pull: PrintedLoop) -> int:
    """Return how many adjacent elements a pullback writes, each once, so that it may store the first time; or 0."""
    target = pull.operands[0]
    alone = pull.pullback and pull.covers and target.offset is None
    return pull.steps if alone and target.strides == dense(pull.shape, target.dtype.itemsize) else 0


# A form is what an instruction's operation, operand patterns and wanted inputs decide once and for all.
#
# Its block of words is what native code reads; on the tape, its number in the registry stands for it.

Pull = PrintedLoop | Product
_CALL = 32
_NO_DOUBLE = spec_of(np.zeros((), INT64))


class Form:
    """One row of the table of callables. ``saved`` names what the tape keeps, in order; ``pulls`` is by input.

    ``code`` is its number, good as long as it lives: instructions on tapes keep it.
    """

    __slots__ = (
        "__weakref__", "block", "code", "covers", "is_view", "kind", "name", "numbers", "op", "packed", "params",
        "pulls", "pushes", "restrided", "saved", "spec", "specs", "tables", "tensor_pullbacks",
        "wanted",
    )  # fmt: skip

    def __init__(
        self,
        op: Op,
        specs: tuple[Spec | None, ...],
        spec: Spec,
        wanted: tuple[bool, ...],
        saved: tuple[str, ...],
        pulls: tuple[Pull | None, ...],
        params: tuple[Any, ...] = (),
        name: str = "",
        *,
        python: bool = False,
    ) -> None:
        self.op, self.specs, self.spec, self.wanted, self.params = op, specs, spec, wanted, params
        self.saved, self.pulls, self.name = saved, pulls, name or op.grad_fn
        self.kind = structs.PYTHON if python else op.tape_kind
        self.is_view = op.tape_kind == structs.VIEW
        self.covers = tuple(
            pull is not None and source is not None and pull.covers and source.covers
            for pull, source in zip(pulls, specs, strict=True)
        )
        self.tables: list[np.ndarray[Any, Any]] = []
        self.numbers: dict[int, Strides] = {}
        """Saved values of which the tape keeps only a number: their indices and shapes."""
        self.packed: Form | None = None
        self.pushes: Any = None
        self.tensor_pullbacks: Any = None
        self.restrided: dict[tuple[int, Strides], Form] = {}
        self.block = self._block()
        self.code = REGISTRY.enter(self, where(self.block))

    def _block(self) -> np.ndarray[Any, Any]:
        count, saved, spec = len(self.specs), self.saved, self.spec
        words = row(
            FormBlock, entries=2 + count + len(saved), inputs=count, saved=len(saved), buffer=spec.buffer_size,
            item=spec.dtype.itemsize, kind=self.kind, frees=not {"offset", "n", "context"}.issuperset(saved),
            work=sum(_CALL + pull.steps for pull in self.pulls if pull is not None), form=id(self),
            order=spec.covers and spec.in_order,
        )  # fmt: skip
        for source, pull, covers in zip(self.specs, self.pulls, self.covers, strict=True):
            words += [0] * InputBlock.SIZE if source is None else self._input_block(source, pull, covers)
        words += [self._kept(k, name) for k, name in enumerate(saved)]
        return np.array(words, np.int64)

    def _input_block(self, source: Spec, pull: Pull | None, covers: bool) -> list[int]:
        constant_result, reads_constant, reused, run, keeps = structs.NEVER, structs.NONE, structs.NONE, 0, False
        if self.kind == structs.PULLS and isinstance(pull, PrintedLoop):
            constant_result = loop_printer.constant_result(pull, source.buffer_size, covers=covers)
            reads_constant = (
                structs.UNREQUESTED if loop_printer.reads_constant(pull, self.spec.buffer_size) else structs.NONE
            )
            reused = suits(pull, source, self.spec, covers=covers)
            keeps = covers and pull.skips and pull.scatter is pull.gather is None and pull.expression.head != "cut"
            run = run_of(pull) if not covers else 0
        shape_words = where(source.native_shape_words()) if source.in_order and source.alike else 0
        return row(
            InputBlock, buffer=source.buffer_size, item=source.dtype.itemsize, constant=constant_result,
            covers=structs.KEEPS_WHOLE if keeps else covers, spread=reads_constant, shape_words=shape_words,
            reused=reused, run=run,
        )  # fmt: skip

    def _kept(self, place: int, name: str) -> int:
        if self.kind == structs.PYTHON:
            return structs.OBJECT
        if name == "offset":
            return structs.NUMBER
        names = self.op.inputs
        if name == "n" and not self.op.counts_ties:
            return structs.DOUBLE
        spec = self.specs[names.index(name)] if name in names else self.spec if name in ("y", "n") else _NO_DOUBLE
        if spec is None:
            return structs.DOUBLE
        if spec.size != 1 or spec.dtype != FLOAT64:
            return structs.ARRAY
        self.numbers[place] = spec.shape
        return structs.DOUBLE

    def shaped(self, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what is saved, with arrays for the numbers that stand for them."""
        values, shapes = list(saved), self.numbers
        for k in shapes:
            if shapes[k]:
                values[k] = np.full(shapes[k], saved[k])
        return tuple(values)

    def numbered(self, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the same with numbers for arrays of one element, as a tape keeps them."""
        return tuple(v.item() if k in self.numbers and type(v) is not float else v for k, v in enumerate(saved))

    def constant_result(self, i: int) -> int:
        """Return when a pullback's result is a constant cotangent: see kernels/rules/loop_printer.py."""
        return int(self.block[FormBlock.SIZE + i * InputBlock.SIZE + InputBlock.constant])

    def compile(self) -> None:
        """Give the block the addresses of its kernels."""
        for i, pull in enumerate(self.pulls):
            if pull is not None and not self.is_view:
                input_block = FormBlock.SIZE + i * InputBlock.SIZE
                constant_result, wanted = (
                    self.constant_result(i),
                    self.block[input_block + InputBlock.spread] == structs.REQUESTED,
                )
                if isinstance(pull, PrintedLoop) and (
                    constant_result == structs.ALWAYS or (constant_result == structs.IF_INPUT_IS and wanted)
                ):
                    self._load(input_block + InputBlock.one, loop_printer.computing_constant(pull))
                if isinstance(pull, PrintedLoop) and wanted:
                    self._load(input_block + InputBlock.spread, loop_printer.reading_constant(pull))
                if isinstance(pull, PrintedLoop) and self.block[input_block + InputBlock.reused] == structs.REQUESTED:
                    self._load(input_block + InputBlock.reused, in_place(pull))
                self._load(input_block + InputBlock.kernel, pull)
        if self.kind == structs.PULLS:
            pulled = [source for source, pull in zip(self.specs, self.pulls, strict=True) if pull is not None]
            alone = all(source is not None and source.buffer_size == 1 for source in [*pulled, self.spec])
            self.block[FormBlock.ready] = structs.SINGLE if alone else structs.READY

    def _load(self, at: int, pull: Pull) -> None:
        """Compile or find a kernel, unless it is there; the layout is stored before the address, for other threads."""
        if self.block[at] > structs.REQUESTED:
            return
        address, layout = pull.kernel()
        self.tables.append(layout)
        self.block[at + 1] = where(layout)
        self.block[at] = address


Descriptor: TypeAlias = Form | Spec
"""What describes a tensor: the form of the instruction that computed it, or a bare spec. Both have a ``spec``."""


def saved_names(op: Any, wanted: tuple[bool, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the wanted pullbacks of a record read, besides the cotangent and numbers, in the order given."""
    union = frozenset[str]().union(*itertools.compress(op.reads, wanted))
    return tuple(filter(union.__contains__, order))


def rule_loop(
    op: Any, i: int, shape: Strides, operands: tuple[KernelOperand, ...], static: tuple[tuple[str, Any], ...] = ()
) -> PrintedLoop:
    """Return the loop of a record's rule, with the operands that it reads beside target and cotangent."""
    rule = op.pullback[i]
    used = tuple([operand for k, operand in enumerate(operands) if k <= 1 or operand.name in op.reads[i]])
    if static:
        names = parameters_of(rule)
        static = tuple([pair for pair in static if pair[0] in names])
    return PrintedLoop(rule, shape, used, static=static)


def pulls_of(
    specs: tuple[Spec | None, ...], wanted: tuple[bool, ...], pull: Callable[[int, Spec], PrintedLoop]
) -> tuple[Pull | None, ...]:
    """Return the pullback of each operand that has one; ``pull(i, spec)`` makes it."""
    pairs = enumerate(zip(specs, wanted, strict=True))
    return tuple([pull(i, source) if want and source is not None else None for i, (source, want) in pairs])


def restrided(form: Form, place: int, strides: Strides) -> Form:
    """Return the form that reads the saved value at ``place`` with these strides."""
    key = (place, strides)
    other = form.restrided.get(key)
    if other is None:
        other = form.restrided.setdefault(key, _made(form, form.saved[place], strides))
    return other


def _made(form: Form, name: str, strides: Strides) -> Form:
    specs, spec, inputs = list(form.specs), form.spec, form.op.inputs
    if name == "y":
        spec = _turned(spec, strides)
    elif name in inputs:
        at = inputs.index(name)
        source = specs[at]
        specs[at] = source and _turned(source, strides)  # None: a constant
    else:
        return form  # indices and counts are dense, as are their copies; Python functions get what they saved
    made: Form = form.op.reformed(form, tuple(specs), spec)
    return made


def _turned(spec: Spec, strides: Strides) -> Spec:
    return intern_spec(spec.shape, strides, spec.dtype, spec.gradient, spec.buffer_size)


def scattered(source: Spec, spec: Spec, axis: int, place: int) -> PrintedLoop:
    """Return the pullback of an element picked along an axis; its place is pointer ``number``, dense, of int64."""
    target = list(source.gradient)
    step = target[axis] if target else 0
    if target:
        target[axis] = 0
        if len(spec.shape) < len(source.shape):
            target.pop(axis)
    return scattered_from(source, spec, tuple(target), step, place)


def scattered_from(source: Spec, spec: Spec, starts: Strides, step: int, place: int) -> PrintedLoop:
    """Return the same, of places that are so many bytes apart, counted from where these strides lead."""
    operands = (
        KernelOperand("target", source.dtype, 0, starts),
        KernelOperand("g", spec.dtype, 1, spec.gradient),
        KernelOperand("i", INT64, place, dense(spec.shape, INT64.itemsize)),
    )
    return PrintedLoop(passed, spec.shape, operands, scatter=step)


def is_fresh(spec: Spec) -> bool:
    """Whether a result is laid out as NumPy makes arrays."""
    return spec.strides == dense(spec.shape, spec.dtype.itemsize) and spec_of(np.empty(spec.shape, spec.dtype)) is spec


def strides_along(source: Spec | None, spec: Spec) -> Strides:
    """Return an operand's strides along the dims of a result; None is a number."""
    return (0,) * len(spec.shape) if source is None else broadcast(source.shape, source.strides, spec.shape)


def loop_of(ufunc: Any, dtypes: tuple[np.dtype[Any], ...]) -> InnerLoop | None:
    """Return NumPy's inner loop; None where there is none for these dtypes."""
    try:
        return inner_loop(ufunc, dtypes) if isinstance(ufunc, np.ufunc) else None
    except (LookupError, ValueError):
        return None


class ProgramStep(Protocol):
    """One operation of a program: ``result = op(operands, params)``."""

    op: Any
    operands: tuple[Any, ...]  # nodes, or Python numbers
    result: int  # the node of the result; of a write, the part that it writes to
    params: tuple[Any, ...]
    form: Any  # the instruction form, if the gradient was recorded
    at: int  # its place among the steps


class Lowering(Protocol):
    """What makes the tasks of steps: it knows the nodes of the program and adds further ones."""

    tasks: Tasks
    extra: dict[int, int]  # nodes that the pullbacks of steps read, by the places of the steps
    extras: dict[int, tuple[int, ...]]  # the results without a gradient of routines, likewise
    loops: Any  # the loops, told where they and their bodies begin and end

    def spec(self, node: int) -> Spec:
        """Return the spec of a node."""

    def number(self, value: float, dtype: np.dtype[Any] = ...) -> int:
        """Return the node of a constant number."""

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        """Return a new node for a constant array."""

    def temporary(self, shape: Strides, dtype: np.dtype[Any]) -> int:
        """Return a new node for a dense intermediate."""

    def operand(self, operand: Any, dtype: np.dtype[Any]) -> int:
        """Return an operand as a node of this dtype, cast if it has another."""

    def cast(self, node: int, dtype: np.dtype[Any]) -> int:
        """Return the node of a dense copy in this dtype."""

    def copy_between(
        self, source: int, target: int, strides: Strides | None = None, offset: int | None = None, *, adds: bool = False
    ) -> None:
        """Copy a node into another, broadcast; or into a part of it that has these strides."""

    def kernel(self, key: Any, make: Any) -> Any:
        """Return the kernel of a key, made at its first use in this program."""

    def ufunc(self, ufunc: Any, operands: tuple[Any, ...], result: int) -> None:
        """Run a ufunc in the dtype that NumPy would choose."""

    def wants_pullback(self, step: ProgramStep, name: str) -> bool:
        """Whether the pullback of a step, which is part of the program, reads a value of this name."""

    def places(self, step: ProgramStep) -> int:
        """Return the node of a step's places in memory; its pullback reads those in the gradient."""

    def keep_overwritten(self, step: ProgramStep) -> None:
        """Copy what pullbacks still read of the memory that a step is about to write."""

    def same_operands(self, step: ProgramStep) -> list[Any]:
        """Return the later steps of the same operation on the same operands."""
