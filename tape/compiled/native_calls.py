"""Native calls of compiled functions, exported code, `tape.load`."""

from __future__ import annotations

import ctypes
import io
import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.specs import SCALAR, fills, is_dense
from kernels.kinds.routine import Guard, LoopMark
from kernels.language import jit
from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import CallOnTensors, CallPlan, TensorOperand, TensorResult
from kernels.machine_code.compiled_machine import CompiledMachine, ReturnForm, rows_table
from kernels.machine_code.tiers import Uncompiled, reason_of
from kernels.native.memory import row, where
from kernels.native.structs import LARGE, MOST_RESULTS, FormBlock, PullbackCode, PulledOperand, PulledResult
from kernels.programs.machine import GuardMissed, Machine
from kernels.programs.program import ProgramError, Recipe
from kernels.rules.scalar_loops import node_of
from tape.compiled.call_key import CallShape, positional_names
from tape.compiled.compiled_program import CompiledProgram
from tape.compiled.native_checks import Checks
from tape.compiled.specialization import Specialization
from tape.errors import FileFormatError
from tape.programs.program import Program, read_programs
from tape.programs.replaying import SAVED, ReplayCall
from tape.programs.saving import MAGIC, read_content, write_programs
from tape.recording import to_python
from tape.tensors import modes
from tape.tensors.dtypes import DEFAULT, check_device
from tape.tensors.pytrees import LEAF, Signature, Structure
from tape.tensors.tensor import Array, Tensor, constant_tensor
from tape.transforms.value_and_grad import Differentiated, arranged

# Native calls of compiled functions, exported code, functions loaded from files.
#
# A plan holds what :class:`CompiledFunction` looks at before a replay: the mode, what is outside, the arguments, and
# how many calls there are until one is checked. Whatever a plan does not take, Python answers as without one.

MOST_PLANS = 4  # plans of a function that native code tries, one after the other
MOST_TIMES = 8  # how many times a plan is made for one program: its watches may be others than native code can see
_MANY, _MOST_COPIED = 4, 1 << 22
"""Replays, behind which it pays to have native code run the interpreter's rows, and bytes of the memory for that."""
_FEW = 3  # pairs of arguments that are compared at each call, without a look whether they are those of the last one
_NUMBER = SCALAR.bytes  # bytes of an element without dimensions whose gradient may be a Python float
_NAME = next(name for name in DEFAULT if name == "dtype")


_STRUCTURE_KINDS: dict[Any, int] = {tuple: call_structs.S_TUPLE, list: call_structs.S_LIST, dict: call_structs.S_DICT}


class Unknown(Exception):  # noqa: N818 (no error: Python does it)
    """A structure that native code does not open."""


class StructureSteps:
    """Steps through structures, with what they refer to; ``fixed``: what leaves have to be that are no values.

    :class:`Unknown` for other structures than tuples, lists and dictionaries by names, and where these are many.
    """

    def __init__(self, fixed: dict[int, Any]) -> None:
        self.words: list[int] = []
        self.kept: list[Any] = [fixed]
        self.values, self.count = 0, 0
        self.names: tuple[str, ...] | None = None  # of arguments that are given by names
        self._kinds: set[Any] = set()
        self._fixed, self._leaf = fixed, 0

    @classmethod
    def of_arguments(cls, shape: CallShape) -> StructureSteps:
        """Return the steps through arguments by position."""
        positional, named = shape.structure.parts
        if shape.again:
            raise Unknown
        self = cls(dict(shape.fixed))
        self._parts(positional, named.parts)
        self.count, self.names = len(positional.parts) + len(named.parts), named.keys or None
        if not 0 < self.values <= call_structs.MOST_VALUES:
            raise Unknown
        return self

    @classmethod
    def of_result(cls, structure: Structure, kept: dict[int, Any] | None = None) -> StructureSteps:
        """Return the steps through a structure that is to be made, some of whose leaves are ``kept``."""
        self = cls(kept or {})
        self._one(structure, 0, 0)
        if any(kind not in _STRUCTURE_KINDS for kind in self._kinds) or self.values > call_structs.MOST_OPERANDS:
            raise Unknown
        return self

    def _parts(self, structure: Structure, more: Sequence[Structure] = (), depth: int = 0) -> None:
        by_name = structure.kind is dict
        for key, part in zip(structure.keys, structure.parts, strict=True):
            if by_name and type(key) is not str:
                raise Unknown
            self._one(part, id(key) if by_name else 0, depth)
        for part in more:
            self._one(part, 0, depth)
        self.words += (call_structs.S_END, 0, 0, 0)

    def _one(self, structure: Structure, key: int, depth: int) -> None:
        if structure is LEAF:
            number, self._leaf = self._leaf, self._leaf + 1
            if number in self._fixed:
                self.words += (call_structs.S_FIXED, key, id(self._fixed[number]), 0)
            else:
                self.words += (call_structs.S_VALUE, key, 0, 0)
                self.values += 1
            return
        kind: Any = structure.kind
        named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
        if depth >= call_structs.DEEPEST or not (kind in _STRUCTURE_KINDS or named):
            raise Unknown
        self._kinds.add(kind)
        self.kept.append(structure)
        self.words += (call_structs.S_TUPLE if named else _STRUCTURE_KINDS[kind], key, len(structure.parts), id(kind))
        self._parts(structure, depth=depth + 1)


class TensorPlan:
    """How native code calls a program on tensors, with all that its words refer to."""

    def __init__(self, program: CompiledProgram, values: Sequence[Any], count: int, form: ReturnForm) -> None:
        self.program, self.pulling, held = program, program.pulling, program.held()
        self._steps = np.array(form.steps, np.int64)
        pulling, self._machines = self.pulling, dict[bool, Any]()
        self._memory = pulling.kept.machine() if pulling.kept is not None and not _has_code(program) else None
        operands = list(map(_operand, values))
        call_form = pulling.call_form(operands, kept=self._memory is not None)
        call, table = call_form.form, call_form.table
        if table is None and pulling.with_gradient:
            call, table = pulling.code_form(operands), self._pullback(operands)
        objects = [*held, table]
        safe = [now is not array for now, array in zip(held, program.live, strict=True)]
        self._objects = np.array([*map(id, objects), *safe, True], np.int64)
        outputs = pulling.kept_outputs if len(pulling.specs) > 1 else []
        self._results = self._result_words(outputs)
        self._kept = objects, call, outputs, form, ReplayCall(program, [SAVED] * len(values), call_form.needs)
        largest = max([x.spec.bytes for x in operands] + [spec.bytes for spec in pulling.specs])
        entries = [call.block[FormBlock.entries], *[outputs[k][0].block[FormBlock.entries] for k in self._recorded()]]
        head = row(
            CallOnTensors, function=jit.load_module("machine_code.tensor_calls_native").on_tensors.address, args=count,
            operands=len(values), block=where(call.block) if pulling.with_gradient else 0, code=call.code,
            context=id(self._kept[-1]), calls=where(pulling.kept_calls) if pulling.returns_number else 0,
            large=largest if largest >= LARGE else 0, steps=where(self._steps) if form.steps else 0, saved=len(objects),
            rows=0 if self._memory is None else where(self._memory.exchange.table), objects=where(self._objects),
            results=len(pulling.specs), several=where(self._results) if len(self._results) else 0, room=sum(entries),
        )  # fmt: skip
        for k, x in enumerate(operands):
            reached = call_form.reached[k] if call_form.reached else None
            gradient, outside = -1 if reached is None else 1 + reached, id(x) if k >= count else 0
            head += row(TensorOperand, outside=outside, wanted=x._slot is not None, gradient=gradient)
        self._forms, self._unfit = [[form, form] for form in map(_form_of, values)], 0
        self.words = np.array(head, np.int64)
        self.meet(values[:count])

    def _recorded(self) -> Sequence[int]:
        """Return the numbers of the results that have instructions of their own."""
        return self.pulling.with_gradient if len(self.pulling.specs) > 1 else ()

    def _result_words(self, outputs: Sequence[tuple[Any, Any]]) -> Array:
        """Return a :class:`TensorResult` each; none of a single result with a gradient."""
        pulling, words = self.pulling, list[int]()
        for k, spec in enumerate(pulling.specs if outputs or pulling.constant else ()):
            form, source = outputs[k] if k not in pulling.constant else (None, spec)
            block, code = (0, 0) if form is None else (where(form.block), form.code)
            words += row(TensorResult, block=block, code=code, source=id(source))
        return np.array(words, np.int64)

    @classmethod
    def of(cls, program: CompiledProgram, values: Sequence[Any], form: ReturnForm) -> TensorPlan | None:
        """Return the plan for these values; None where Python makes such calls."""
        count, values = len(values), [*values, *program.outside()]
        pulling, most = program.pulling, call_structs.MOST_OPERANDS
        fits = pulling.direct and all(map(_is_native, values))
        if not fits or max(len(values), len(pulling.specs)) > most:
            return None
        operands = list(map(_operand, values))
        if not pulling.with_gradient:
            pass
        elif pulling.returns_number or not _has_code(program):
            fits = pulling.call_form(operands, kept=not pulling.returns_number).runs_natively
        else:
            in_order = all(is_dense(x.spec) and x.spec.strides == x.spec.gradient for x in operands)
            fits = in_order and len(pulling.specs) <= MOST_RESULTS
        return cls(program, values, count, form) if fits and all(x is not None for x in program.held()) else None

    def _pullback(self, values: Sequence[Any]) -> Array:
        """Return the words by which a sweep runs machine code: see :class:`PullbackCode`."""
        pulling, machine = self.pulling, self.pulling.program._first[True].formed(ReturnForm(call_structs.FLAT))
        code, count = machine.code, len(values)
        nothing = pulling.nothing
        scratch = [np.empty(s.shape, s.dtype) for s in (*code.outputs, *code.gradients)]
        first = len(code.arguments) + len(code.constants)
        machine.places[first : first + len(scratch)] = list(map(where, scratch))
        words = row(
            PullbackCode, run=code.address, table=where(machine.places), busy=where(machine._busy), arguments=count,
            work=code.elements, results=len(nothing),
        )  # fmt: skip
        for k, x in enumerate(nothing):
            slot = 1 + k if len(pulling.specs) > 1 else 0
            words += row(PulledResult, slot=slot, place=where(x), count=x.size, item=x.itemsize)
        gradients = dict(zip(pulling.graded, scratch[len(code.outputs) :], strict=True))
        for i in range(count):
            reaches, g = sum(1 << k for k, reached in enumerate(pulling.reached) if i in reached), gradients.get(i)
            words += row(PulledOperand, place=where(g), count=g.size, reaches=reaches) if g is not None else [0, 0, 0]
        self._code = machine, nothing, scratch
        return np.array(words, np.int64)

    def meet(self, values: Sequence[Any]) -> None:
        """Take tensors of these forms, too, whose gradients stand as those of the plan; run what there is by now."""
        values = [*values, *self.program.outside()]
        for k, (x, known) in enumerate(zip(values, self._forms, strict=True)):
            form = _form_of(x)
            fits = form is None or x._slot is None or form.spec is known[0].spec
            self._unfit += not fits
            self._forms[k] = forms = known if form in known or not fits else [form, known[0]]
            words = self.words[CallOnTensors.SIZE + TensorOperand.SIZE * k :]
            words[TensorOperand.form], words[TensorOperand.other] = [0 if f is None else id(f) for f in forms]
        runs = self.pulling.program._first.get(True), self.program._first.get(False)
        for reverse, machine in zip((True, False), runs, strict=True):
            if type(self._machines.get(reverse)) is type(machine) or (reverse and not self.pulling.returns_number):
                continue
            if isinstance(machine, CompiledMachine) and machine.words is not None:
                self._machines[reverse] = code = machine.formed(ReturnForm(call_structs.FLAT))
                assert code.words is not None
                self.words[CallOnTensors.kept if reverse else CallOnTensors.forward] = where(code.words)
                if reverse or not self.pulling.with_gradient:
                    self.words[CallOnTensors.rows] = 0
            elif reverse != (not self.pulling.with_gradient) and isinstance(machine, Machine) and machine.is_one_run:
                self._machines[reverse] = copied = machine.copy()
                self.words[CallOnTensors.rows] = where(copied.exchange.table)

    @property
    def is_stale(self) -> bool:
        """Whether other machines run the program now, or the last calls were on tensors of other forms."""
        has_code = self._memory is not None and _has_code(self.program)
        return self.pulling is not self.program.pulling or has_code or self._unfit >= _MANY

    def met(self) -> None:
        """Take note of calls that it has made."""
        self._unfit = 0


def _is_native(x: Any) -> bool:
    """Whether native code reads a value as one that a program on tensors is called with."""
    if type(x) is Tensor:
        return (bool(x.spec.shape) or x.spec.dtype.itemsize == _NUMBER) and x.spec.in_order
    return type(x) is float or (type(x) is np.ndarray and x.ndim > 0 and x.dtype.isnative and fills(x))


def _operand(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else constant_tensor(x)


def _form_of(x: Any) -> Any:
    return x._form if isinstance(x, Tensor) else None


def _has_code(program: CompiledProgram) -> bool:
    """Whether machine code runs a program on tensors, and its pullback."""
    machines = program._first.get(False), program.pulling.program._first.get(True)
    return all(getattr(machine, "words", None) is not None for machine in machines)


class RowsPlan:
    """How native code calls a program on arrays that the interpreter runs, until there is machine code."""

    def __init__(self, machine: Machine, form: ReturnForm) -> None:
        self._machine, self._busy = machine.copy(), np.zeros(1, np.int64)
        self.words, self._shapes = rows_table(form, len(machine.outputs) + len(machine.gradients), self._busy)
        self.rows: Array = self._machine.exchange.table


class NativePlan:
    """The plan of a program, with all that its words refer to."""

    def __init__(
        self,
        program: CompiledProgram,
        machine: Any,
        checks: Checks,
        steps: StructureSteps | None,
        runs: TensorPlan | RowsPlan | CompiledMachine,
    ) -> None:
        self.program, self._machine, self.checks, self.runs = program, machine, checks, runs
        self.misses, self.rest = np.zeros(len(program.lines) + 1, np.int64), checks.rest
        self.mode, self.dtype = program.mode, program.dtype
        on_tensors = isinstance(runs, TensorPlan)
        self._due = [(program._due, program._first.get(True) is machine)]
        """After how many calls Python is to see whether there is machine code by now, if that is not known."""
        if isinstance(runs, TensorPlan):
            forward, back = (program._due, False), (runs.pulling.program._due, True)
            self._due = [back] if runs.pulling.returns_number else [forward, back]
        assert runs.words is not None
        runs_by = {"tensors" if on_tensors else "machine": where(runs.words)}
        runs_by |= {"rows": where(runs.rows)} if isinstance(runs, RowsPlan) else {}
        self.steps, self._steps = steps, np.array([0] if steps is None else steps.words, np.int64)
        self._strangers = program.strangers
        pairs = [*program.alike, *[(i, id(x)) for i, x in self._strangers]]
        self._pairs = np.array(pairs or [(0, 0)], np.int64)
        alike = {*itertools.chain(*program.alike), *[i for i, _ in self._strangers]} if len(pairs) > _FEW else ()
        self._places = np.array(sorted(alike), np.int64)
        self._seen = np.zeros(len(self._places), np.int64)
        self.words = checks.words(
            self.rest, **runs_by, misses=where(self.misses), variable=id(modes._mode), mode=id(self.mode),
            defaults=id(DEFAULT), name=id(_NAME), dtype=id(self.dtype), steps=where(self._steps),
            argument_count=0 if steps is None else steps.count,
            names=0 if steps is None or steps.names is None else id(steps.names), count=len(pairs),
            pairs=where(self._pairs), alike=len(self._seen), places=where(self._places), seen=where(self._seen),
        )  # fmt: skip
        self.limit()

    def limit(self) -> None:
        """Let it take calls up to the one that is checked."""
        most = min(due.get(reverse, sys.maxsize) for due, reverse in self._due) - 2
        self.words[CallPlan.left] = max(min(self.program.due - self.program.hits, most), 0)

    def halt(self) -> None:
        """Leave the next call to Python."""
        self.words[CallPlan.left] = 0

    def settle(self) -> bool:
        """Count, for the program, the calls that were taken; return whether a guard was missed."""
        taken = int(self.words[CallPlan.taken])
        if taken:
            self.words[CallPlan.taken] -= taken
            self.words[CallPlan.left] -= taken
            self.program.count(taken)
            if isinstance(self.runs, TensorPlan):
                self.runs.met()
            for due, reverse in self._due:
                if reverse in due:
                    due[reverse] = max(due[reverse] - taken, 1)
        if not (self.program.lines and self.misses.any()):
            return False
        missed = self.misses.copy()
        self.misses -= missed
        self.program.misses = [n + int(more) for n, more in zip(self.program.misses, missed, strict=False)]
        return True

    @property
    def is_stale(self) -> bool:
        """Whether something that it looked at is no longer what it was, if perhaps of the same value."""
        if isinstance(self.runs, TensorPlan):
            return bool(self.words[CallPlan.stale]) or self.runs.is_stale
        return bool(self.words[CallPlan.stale]) or self._machine not in self.program._first.values()


def is_ready(program: CompiledProgram, machine: Any) -> bool:
    """Whether a program, run by this machine, has what a plan needs; on tensors that of both ways.

    Rows of the interpreter will do where they are one run, of calls that are many.
    """
    if program.tensors:
        pulling = program.pulling
        machine = pulling.program._first.get(True) if pulling.with_gradient else machine
        if pulling.with_gradient and not pulling.returns_number and pulling.kept is None and not _has_code(program):
            return False
    if isinstance(machine, Machine):
        return program.hits >= _MANY and machine.size <= _MOST_COPIED and machine.is_one_run
    return getattr(machine, "words", None) is not None


def plan_of(
    program: CompiledProgram,
    state: Specialization,
    machine: Any,
    shape: CallShape | None,
    form: ReturnForm | None,
    values: Sequence[Any],
) -> NativePlan | None:
    """Return the plan of a program whose results are given in a form; None where native code cannot make its calls.

    The ``values`` are those of a call such as it is to make.
    """
    state.plans.pop(program, None)
    try:
        steps = None if shape is None else StructureSteps.of_arguments(shape)
    except Unknown:
        steps, form = None, None
    state.planned[program] = state.planned.get(program, 0) + 1 if form is not None else MOST_TIMES
    if form is None or state.dynamic:
        return None
    checks = Checks(state.watches, state.contents)
    checks.add_references(program._readers)
    if not checks.holds:
        return None
    runs: TensorPlan | RowsPlan | None = None
    if program.tensors:
        runs = TensorPlan.of(program, values, form)
        if runs is None:
            state.planned[program] = MOST_TIMES
            return None
    elif isinstance(machine, Machine):
        runs = RowsPlan(machine, form)
        state.planned[program] -= 1
    plan = state.plans[program] = NativePlan(program, machine, checks, steps, runs or machine.formed(form))
    program.plan = plan
    return plan


class NativeUse:
    """What a compiled function with a native program offers to native code.

    All of it is of the latest program, for the shapes and dtypes of the arguments it was last called with. Guards are
    looked at, and one that misses shows in the status; nothing is recorded anew, and what the function read from
    outside is as it was.
    """

    __module__ = "tape"
    __name__: str

    def _latest(self) -> Program:
        raise NotImplementedError

    def _native_code(self) -> tuple[CompiledCode, Sequence[str]]:
        raise NotImplementedError

    @property
    def native(self) -> Any:
        """The function as ``@numba.njit`` code calls it; value and gradients come with a status.

        ``status, value = native(x, y, grad_x, grad_y)``: it takes the arguments, arrays for outputs that have
        dimensions, and arrays for the gradients, or None in place of one that is not wanted. Arrays have the shapes and
        dtypes of the last call; an argument that was a float is a number, and the gradient by it goes into an array of
        one element. Results are C-contiguous and overlap with nothing.

        It returns the status and the outputs that have no dimensions, or the status alone: 0; k > 0 if guard k - 1
        missed, or, one more than there are guards, if an operation raised, with undefined results; -k if the k-th array
        has another shape or other strides than was recorded, with nothing computed. Wrong dtypes and numbers of
        dimensions are errors when the caller is compiled.

        Get it before, as ``native = f.native``: ``@njit`` code does not know the compiled function itself. It may be
        called from threads, without the interpreter lock.
        """
        from kernels.machine_code.native_entry import native_function

        code, names = self._native_code()
        return native_function(code, tuple(names))

    @property
    def address(self) -> int:
        """Where its machine code begins: ``int64_t f(...)``, for C, Cython and cffi, as long as the process lives.

        It takes the arguments, then the addresses of all outputs and of all gradients: an argument without dimensions
        by value, others by address. It returns the status, and looks at no shape: ``f.export_c`` writes its prototype.
        """
        from kernels.machine_code.native_entry import flat_address

        return flat_address(self._native_code()[0])

    @property
    def ctypes(self) -> Any:
        """The function at ``address`` as ctypes calls it, without the interpreter lock.

        For arguments without dimensions it takes numbers; for others, and for results, an array of the shape and dtype
        that were recorded, an address, or what ``ctypes.byref`` returns. ArgumentError for other arrays. It returns the
        status as an int.
        """
        from kernels.machine_code.native_entry import flat_function

        code, names = self._native_code()
        return flat_function(code, tuple(names))

    def low_level_callable(self) -> Any:
        """Return the value alone as a ``scipy.LowLevelCallable``, for ``scipy.integrate.quad`` and its kin.

        Its signature is ``double (double)`` for a function of one float, and ``double (int, double *)`` for one of
        several floats or of one array of one dimension. The value is nan where a guard misses. TypeError for functions
        of other arguments, and those that return no float64 number.
        """
        from scipy import LowLevelCallable

        from kernels.machine_code.native_entry import number_address

        code, _ = self._native_code()
        address, single = number_address(code)
        kinds = [ctypes.c_double] if single else [ctypes.c_int, ctypes.POINTER(ctypes.c_double)]
        return LowLevelCallable(ctypes.CFUNCTYPE(ctypes.c_double, *kinds)(address))

    def export_c(self, path: str | PathLike[str], *, name: str = "") -> None:
        """Write the function, its gradients included, as a C99 file that needs ``<math.h>`` alone, and its header.

        ``path`` ends in ``.c``; the header, beside it, in ``.h``: it says what the function takes and returns, as
        ``address`` does. ``name`` is that of the C function, else the name of this one. Elementary functions are those
        of C's library, so that results differ from ours in the last digits.

        ValueError for a path that ends otherwise, and a name that is none in C; TypeError for a function that calls
        what C has no counterpart of, such as SciPy's special functions.
        """
        code, names = self._native_code()
        for call in code.account.calls if code.account is not None else ():
            reason = f"export_c: {call.name}, which {call.by} runs, has no counterpart in C"
            remedy = "compute it before, and pass it as an argument, or call the function by its address"
            raise TypeError(f"{reason_of(self._latest()._recipe, Uncompiled(reason, call.step))}; {remedy}")
        write_c(path, code, names, name or re.sub(r"\W", "_", self.__name__, flags=re.ASCII))


def write_c(path: str | PathLike[str], code: CompiledCode, names: Sequence[str], name: str) -> None:
    """Write one program as a function of C: a file and its header; see :meth:`NativeUse.export_c`."""
    from kernels.machine_code.c_source import c_files

    place = Path(path)
    if place.suffix != ".c":
        raise ValueError(f"export_c writes a C file and its header: {str(place)!r} does not end in .c")
    header, source = c_files({name: (code, names)}, f"{place.stem}.h", f"The function {name}, compiled.")
    place.with_suffix(".h").write_text(header, encoding="utf-8")
    place.write_text(source, encoding="utf-8")


KIND = "compiled function"
Gradient = tuple[tuple[int, ...], bool, bool, str]
"""The numbers of the arguments that a gradient is by, whether it is by one alone, whether there is aux; its form."""


class LoadedFunction(NativeUse):
    """A compiled function from a file: what was recorded of it, without the function.

    A call replays the program of its signature and of the way that it goes. What the function read from outside is as
    it was when the file was written. ProgramError, naming the line, where a value leaves for Python that no program
    expects; TypeError for arguments of another signature. Native code calls its first program.
    """

    __module__ = "tape"

    def __init__(self, name: str, programs: Sequence[Program], gradient: Gradient | None) -> None:
        self.__name__ = name
        self.programs, self._gradient = list(programs), gradient
        self._paths = [_path(program._recipe) for program in programs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay."""
        mismatch: Exception = TypeError(f"{self.__name__}: the file holds no program")
        path: tuple[bytes, ...] | None = None
        for one, expected in zip(self.programs, self._paths, strict=True):
            if None not in (path, expected) and expected[: len(path)] != path:  # type: ignore[index, arg-type]
                continue
            try:
                if self._gradient is None:
                    return one(*args, **kwargs)
                numbers, alone, has_aux, form = self._gradient
                value, gradients = one.value_and_grad(*args, has_aux=has_aux, **kwargs)
                by_number = dict(zip(sorted(numbers), gradients, strict=True))
                gradient = by_number[numbers[0]] if alone else tuple(by_number[i] for i in numbers)
                return arranged(form, value, gradient)
            except GuardMissed as missed:
                mismatch = missed
                path = path if expected is None else (*expected[: missed.number], missed.value)
            except TypeError as error:
                mismatch = mismatch if isinstance(mismatch, GuardMissed) else error
        raise mismatch

    def _latest(self) -> Program:
        return self.programs[0]

    def _native_code(self) -> tuple[CompiledCode, Sequence[str]]:
        program = self._latest()
        return program._code(reverse=self._gradient is not None), named(None, program._signature.names)

    def __repr__(self) -> str:
        return f"<{self.__name__}, of {len(self.programs)} programs from a file>"


def write(f: Any, name: str, programs: Sequence[tuple[CompiledProgram, Signature]], by: Differentiated | None) -> None:
    """Write the programs of a compiled function to a path or a binary file. ProgramError if there are none."""
    if not programs:
        raise ProgramError(f"save: {name} has no program yet; call it, three times or more for each signature")
    if any(program.generators for program, _ in programs):
        raise ProgramError("save: the function draws random numbers, which no file holds")
    alone = [program.with_recipe(program.alone(), signature) for program, signature in programs]
    gradient = None
    if by is not None:
        numbers = list(by.argnums) if isinstance(by.argnums, tuple) else [by.argnums]
        gradient = [numbers, not isinstance(by.argnums, tuple), by.has_aux, by.form]
    write_programs(f, KIND, alone, {"name": name, "gradient": gradient})


def _path(recipe: Recipe) -> tuple[bytes, ...] | None:
    """Return the values that a program's guards expect, in order; None for one with loops, which have no one way."""
    if any(isinstance(kind.op, LoopMark) for kind in recipe.steps.kinds):
        return None
    if not any(isinstance(kind.op, Guard) for kind in recipe.steps.kinds):
        return ()
    expected = [recipe.nodes[node_of(s.operands[1])].constant for s in recipe.steps if isinstance(s.op, Guard)]
    return tuple([value.tobytes() for value in expected if value is not None])


# ``tape.load``: what a file holds, tensors, a program or a compiled function.


def load(
    f: Any,
    map_location: Any = None,
    *,
    weights_only: bool = True,
    mmap_mode: str | None = None,
    types: Iterable[Any] = (),
) -> Any:
    """Return what :func:`save`, :meth:`Program.save` or a compiled function's wrote to a path or a binary file.

    Nothing in a file is code, and none makes code run. ``types`` are the classes (dataclasses, named tuples), functions
    and ``@njit`` functions of a ``tape.custom`` that a program's file names: none is imported by its name.
    ``mmap_mode="r"`` leaves the constants of a program in its file, from where processes share them; the checksum is
    compared all the same. ``map_location`` may be ``"cpu"``. ``weights_only`` is accepted: nothing else is in a file.

    Raises :class:`tape.errors.FileFormatError`, a ValueError, for a file that is damaged, cut off, newer, or of another
    format: PyTorch's own files are pickles; convert them there, by ``numpy.savez`` of ``t.numpy()``. Raises TypeError,
    naming them, if types are missing.

    >>> import io
    >>> file = io.BytesIO()
    >>> tape.record(lambda x: (x * x).sum(), np.ones(2)).save(file)
    >>> _ = file.seek(0)
    >>> tape.load(file).value_and_grad(np.array([1.0, 3.0]))
    (10.0, (array([2., 6.]),))
    """
    del weights_only
    check_device(map_location)
    at_path = isinstance(f, (str, os.PathLike))
    if mmap_mode not in (None, "r"):
        raise ValueError(f"load: mmap_mode is {mmap_mode!r}; it may be 'r', or None")
    if mmap_mode is not None and not at_path:
        raise ValueError("load: mmap_mode needs the path of a file")
    name = str(f)
    data = None if at_path else f.read()
    with Path(f).open("rb") if data is None else io.BytesIO(data) as file:
        ours = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        if not ours and mmap_mode is None:
            return to_python.tensors_of(file, name)
    content = read_content(f if data is None else data, name, mapped=mmap_mode is not None)
    if content.kind not in ("program", KIND):
        raise FileFormatError(f"load: {name} holds a {content.kind}, which this version of tape does not know")
    programs, extra = read_programs(content, name, types)
    if content.kind == KIND:
        gradient = extra["gradient"] and (tuple(extra["gradient"][0]), *extra["gradient"][1:])
        return LoadedFunction(extra["name"], programs, gradient)
    if len(programs) != 1:
        raise FileFormatError(f"load: {name} holds {len(programs)} programs where one is expected")
    return programs[0]


_PATH = re.compile(r"argument (\w+)(.*)", re.DOTALL)


def named(function: Any, paths: Sequence[str]) -> list[str]:
    """Return names for leaves of a call, which a signature knows by paths such as ``argument 0['a']``.

    A position becomes the name of the parameter, if that is known; parts follow behind underscores.
    """
    positional, names = positional_names(function), []
    for path in paths:
        match = _PATH.fullmatch(path)
        head, rest = match.groups() if match is not None else (path, "")
        if match is not None and head.isdigit():
            head = positional[int(head)] if int(head) < len(positional) else f"x{head}"
        names.append("_".join([head, *re.findall(r"\w+", rest)]))
    return names
