"""``tape.compile``: a function that is recorded, guarded and replayed natively."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from types import MethodType
from typing import Any, ClassVar

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.tables import Lock
from kernels.machine_code.call_structs import FLAT, GRAD, SINGLE
from kernels.machine_code.compiled_machine import MemoryUse, ReturnForm
from kernels.machine_code.tiers import MODES, DirectlyCalled, begin, called_at_once
from kernels.programs.program import ProgramError
from tape.compiled import native_calls
from tape.compiled.call_key import (
    FEW,
    FEW_SIGNATURES,
    MOST_ALIKE,
    CallArguments,
    CallShape,
    DynamicTime,
    Overhead,
    as_given,
    call_of,
    counted,
    either_way,
    input_of,
    inputs_of,
    is_separated,
    owned,
    same_results,
    simple_inputs,
    some,
    told_of_leaf,
    told_of_state,
)
from tape.compiled.compiled_program import CompiledProgram
from tape.compiled.native_calls import (
    MOST_PLANS,
    MOST_TIMES,
    NativePlan,
    NativeUse,
    StructureSteps,
    TensorPlan,
    Unknown,
    is_ready,
    named,
    plan_of,
)
from tape.compiled.recordings import KeptViews, Recording, record_call
from tape.compiled.specialization import Specialization
from tape.errors import CompileWarning, shorten
from tape.programs.drawing import Graph
from tape.programs.profiling import Profile
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.bytecode import stack_level
from tape.tensors.pytrees import METHODS, flattened
from tape.tensors.tensor import Tensor
from tape.tensors.view_families import counter_of, owns_memory_alone
from tape.transforms.value_and_grad import Differentiated
from tape.watching.frame_events import drawn_since, random_states, variables_of
from tape.watching.python_loops import Unfit
from tape.watching.snapshots import contents_of
from tape.watching.watched import Watch, changed_of, watches_of

_FIRST = 3  # the call that is the first replay; the next one is checked, then calls 8, 16, and so on
_MOST_OBJECTS = 16  # objects without a dictionary for which a method remains compiled
MOST_KEYS = 64  # keys of calls, and states of what is outside, for which a function has programs


@called_at_once
class CompiledFunction(NativeUse, DirectlyCalled):
    """A compiled function: :func:`tape.compile` makes it, and tells of it.

    Native code calls it by ``native``, ``address``, ``ctypes`` and :meth:`low_level_callable`; :meth:`export_c` writes
    it as C. These are of the latest program: of the signature that was new last, and the way that its last call went.
    They compile it if need be; ProgramError where there is no program yet, and where the interpreter has to run it.
    """

    __module__ = "tape"
    mode = "default"
    """When programs are compiled to machine code: see :func:`tape.compile`."""
    bound_to: Any = None
    """The object whose method this is."""
    budget: int | None = None
    """Bytes that the workspace of a program may have; None if that is not limited."""
    _by: Differentiated | None = None  # what a gradient function was made of
    compiled_gradient: ClassVar[Callable[..., Any]]
    """What :func:`tape.value_and_grad` of one returns."""

    def __init__(
        self, function: Callable[..., Any], static: Collection[Any], traced: Collection[Any], check: str
    ) -> None:
        begin(self, CompiledFunction._answer)
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.static, self.traced, self.check = static, traced, check
        self._fixed, self._values = either_way(function, static), either_way(function, traced)
        self._keys: dict[Any, list[Specialization]] = {}
        self._waiting: set[int] = set()  # by hash, keys of calls that had no specialization
        self._overhead = Overhead()
        self._others = DynamicTime(self._overhead)  # of calls without a specialization
        self._way: Any = None  # the key and the way of the latest recording
        self._states = 0
        self._warned = False
        self._methods: dict[int, CompiledFunction] = {}  # those of objects without a dictionary, by number
        self._lock = Lock()
        self._dynamic = ""  # why no call is replayed; empty while some may be
        self._fast: tuple[CompiledProgram, Specialization, CallShape | None] | None = None
        """The program of the last call, if it can be tried at once, where it belongs, and how its values are found."""
        self._direct: list[NativePlan] = []  # the plans that native code tries
        self.calls = {"recorded": 0, "dynamic": 0, "checked": 0}
        """Counts of calls recorded, run dynamically, and replays verified."""

    def _answer(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._overhead.passing > 0:  # there is no program that may be tried
                self._overhead.passing -= 1
                return self._passed_on(args, kwargs)
            missed = self._direct and self._settle()
            fast = self._fast  # other threads may set it
            if fast is not None and not missed:
                program, state, shape = fast
                values = shape.values(args, kwargs) if shape is not None else None if kwargs else args
                if values is not None and program.is_mode(modes.current()) and state.is_current():
                    replayed = state.at_once(program, values)
                    if replayed:
                        if replayed[0] is not program:
                            self._fast = replayed[0], state, shape
                        self._prepare(replayed[0], state, shape, values)
                        return replayed[1][0]
                    missed = replayed is False
            return self._called(args, kwargs, missed=bool(missed))
        except Exception as error:
            shorten(error)
            raise

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, missed: bool = False) -> Any:
        overhead, others = self._overhead, self._others
        if self._dynamic:
            return self._passed_on(args, kwargs)
        begin = overhead.clock()
        if overhead.calls < overhead.until:
            result = self._passed_on(args, kwargs)
            others.measured(overhead.clock() - begin)
            overhead.passing = overhead.calls_like_it(others.seconds)
            others.count(1 + overhead.passing)
            return result
        call, mode = self._taken(args, kwargs), modes.current()
        if call is None:
            return self._otherwise(args, kwargs)
        observed = mode.recorder is not None or mode.inference or mode.pack is not None or mode.anomaly is not None
        if observed:
            return self._run(call)
        current = self._current(call)
        if current is None or current.dynamic:
            return self._timed(call, current)
        return self._replayed(current, call, begin, missed=missed)

    def _current(self, call: CallArguments) -> Specialization | None:
        """Return the specialization of a call; None where there is none, and the account does not allow a new one."""
        try:
            known = self._keys.get(call.key, ())
        except TypeError:  # an argument that cannot be part of a key
            return None
        return next((s for s in known if s.is_current()), None) or self._started(call)

    def _timed(self, call: CallArguments, current: Specialization | None, inputs: Any = None) -> Any:
        """Make a call in dynamic mode, and account for it."""
        result, time = self._run(call, inputs), self._others if current is None else current.time
        time.measured(self._overhead.latest)
        time.count()
        self._wait()
        if current is None and self._direct:  # native code makes the calls that have a program
            self._overhead.passing = MOST_ALIKE
            time.count(MOST_ALIKE)
        return result

    def _wait(self) -> None:
        """Look at no calls before these have paid for a recording, or for replays, if none of them may be made."""
        programs = any(s.programs for known in [*self._keys.values()] for s in known)
        if not (programs and self._overhead.allows_replays()):
            self._overhead.wait(programs=programs)

    def _passed_on(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a dynamic call of which nothing else is wanted."""
        arguments = (*args, *kwargs.values())
        if arguments and not (self._fixed or self._values) and all(type(x) is Tensor for x in arguments):
            self.calls["dynamic"] += 1
            result = self.__wrapped__(*args, **kwargs)
            return self._owning(result, arguments)
        simple = None if kwargs or self._fixed or self._values else simple_inputs(args)
        if simple is None:
            return self._untried(args, kwargs)
        inputs, values = simple
        return self._result(values, tuple(inputs), {}, tensors=any(isinstance(x, Tensor) for x in args))

    def _untried(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self._taken(args, kwargs)
        return self._otherwise(args, kwargs) if call is None else self._run(call)

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments | None:
        return call_of(args, kwargs, self._fixed, self._values)

    def _otherwise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls["dynamic"] += 1
        return self.__wrapped__(*args, **kwargs)

    def _finished(self, program: CompiledProgram, call: CallArguments) -> CompiledProgram:
        """Return the program of a call, to be compiled as this function is."""
        program._mode, program._budget = self.mode, self.budget
        return program

    def _started(self, call: CallArguments) -> Specialization | None:
        """Return a specialization for a key and what is outside now; None if there are too many, or it has to wait."""
        with self._lock:
            if self._keys and call.key not in self._keys and self.mode != MODES[-1]:
                self._overhead.first = 1  # the next call may be another one again
            waits = not self._overhead.allows_recordings()
            (self._waiting.add if waits else self._waiting.discard)(hash(call.key))
            if self._states + len(self._waiting) >= MOST_KEYS + waits:
                self._stay_dynamic(
                    f"there are more than {MOST_KEYS} signatures; numbers that differ from call to call are values if "
                    "they are floats, or named in traced="
                )
            if waits or self._dynamic:
                return None
            self._states += 1
            begin = self._overhead.clock()
            started = Specialization(
                call,
                watches_of(self.__wrapped__, [x for _, x in call.fixed]),
                lambda program: self._finished(program, call),
                self._overhead,
            )
            if started.dynamic:
                self._warn(started.dynamic)
            self._keys.setdefault(call.key, []).append(started)
            self._overhead.spent += self._overhead.clock() - begin
            return started

    def _replayed(self, current: Specialization, call: CallArguments, begin: float, *, missed: bool) -> Any:
        overhead = self._overhead
        tries = overhead.allows_replays() or (overhead.allows_recordings() and not current.goes_back)
        program = current.programs[0] if current.programs else None
        waits = program is not None and program.waits(reverse=program.runs_back)
        meets = bool(current.outside) and current.meets(call)
        current.met += meets
        if not tries or waits or meets:
            return self._timed(call, current)
        if missed and current.time.missed:
            return self._missed(current, call, begin - current.time.missed)
        checked = program is not None and self._is_due(program)
        expected = self._expected(current, call) if checked else None
        began = overhead.clock()
        try:
            replayed = current.replay(call)
        except ProgramError:  # arguments share memory that the program writes
            return self._timed(call, current)
        if replayed is None:
            current.time.missed = overhead.clock() - began if current.programs else 0.0
            return self._missed(current, call, begin)
        program, result = replayed
        self._fast = None
        if checked:
            self.calls["checked"] += 1
            same = same_results(result, expected, rounding=program.rounding)
            if not same and not program.is_near(result, expected, call.values):
                self._differed(program, current)
                return expected
        if program.is_of_tensors and self.check != "always" and CallShape.suits(call):
            program.expect(call, current.outside.values())
            shape = None if call.is_flat else CallShape(call)
            self._fast = (program, current, shape) if program.is_plain else None
            self._prepare(program, current, shape, call.values)
        overhead.spent += max(overhead.clock() - began - current.time.seconds, 0.0)  # a plan was made
        return result

    def _missed(self, current: Specialization, call: CallArguments, begin: float) -> Any:
        """Make a call of which no program is, behind a replay in vain, if there was one, and what led there."""
        overhead = self._overhead
        overhead.missed += overhead.clock() - begin if current.programs else 0.0
        if not overhead.allows_replays():
            self._forget()
        if current.goes_back or current.shares(call.values) or not overhead.allows_recordings():
            return self._timed(call, current)
        # a gradient is made again where it writes to what another argument sees
        apart = call.chosen is not None or current.reads_alone or not is_separated(call.values)
        return self._recorded(current, call) if apart else self._watched(current, call)

    def _differed(self, program: CompiledProgram, current: Specialization) -> None:
        """Have calls go a safer way after a replay that differed from dynamic mode by more than rounding."""
        self._forget()
        if program.is_machine_code:
            program.interpret("its results differed from dynamic mode by more than rounding")
            self._warn("its machine code gave other results, as rounding may in chaotic programs", "interpreted")
            return
        current.dynamic = "a replay differed from dynamic mode"
        self._warn(current.dynamic)

    def _direct_form(self, program: CompiledProgram) -> ReturnForm | None:
        if program._single or (program._tuple and not program.tensors):
            return ReturnForm(SINGLE if program._single else FLAT)
        try:
            steps = StructureSteps.of_result(program._template, program._kept)
        except Unknown:
            return None
        return ReturnForm(GRAD, tuple(range(steps.values)), steps=tuple(steps.words), filled=program._filled)

    def _settle(self) -> bool:
        """Count the calls that native code took; return whether the last one missed a guard of each program."""
        with self._lock:
            missed = [plan.settle() for plan in self._direct]
            fast = self._fast
        return any(missed) and fast is not None and len(fast[1].programs) == len(missed)

    def _forget(self) -> None:
        with self._lock:
            self._settle()
            self._fast, self._direct, self._plans = None, [], ()

    def _prepare(
        self, program: CompiledProgram, state: Specialization, shape: CallShape | None, values: Sequence[Any]
    ) -> None:
        """Have the next calls like this one, which has been replayed, made natively, if possible."""
        direct = self._direct
        if direct and direct[0].program is program and not direct[0].is_stale:
            if isinstance(direct[0].runs, TensorPlan):
                direct[0].runs.meet(values)
            return
        machine = program._first.get(program.runs_back)
        if not is_ready(program, machine):
            return
        if state.planned.get(program, 0) >= MOST_TIMES:
            return
        plan = state.plans.get(program)
        if plan is None or plan.is_stale:
            direct_by = program.is_of_tensors if program.tensors else program.is_plain
            form = self._direct_form(program) if direct_by else None
            plan = plan_of(program, state, machine, shape, form, values)
        with self._lock:
            if self._dynamic or state.dynamic:  # another thread has found that out
                return
            for known in direct:
                known.settle()
            self._direct = [p for p in direct if p.program is not program][: MOST_PLANS - 1]
            if plan is not None:
                plan.limit()
                self._direct.insert(0, plan)
            self._plans = tuple([x for p in self._direct for x in (p.words, p)])

    def _is_due(self, program: CompiledProgram) -> bool:
        if self.check == "never" or program.writes:
            program.due = sys.maxsize
            return False
        if self.check == "always":
            return True
        if program.hits < program.due:
            return False
        program.due = 2 * program.due + _FIRST
        return True

    def _expected(self, current: Specialization, call: CallArguments) -> Any:
        generators = {id(generator): generator for program in current.programs for generator in program.generators}
        before = [generator.snapshot() for generator in generators.values()]
        self.calls["dynamic"] -= 1  # counted as a check
        expected = self._run(call)
        current.time.measured(self._overhead.latest)
        self._overhead.spent += self._overhead.latest if self.check == "sample" else 0.0
        for generator, snapshot in zip(generators.values(), before, strict=True):
            generator.undo(snapshot)
        return expected

    def _recorded(self, current: Specialization, call: CallArguments) -> Any:
        self._forget()
        begin = self._overhead.clock()
        known = [state for states in list(self._keys.values()) for state in list(states)]
        read = [(x, x.tobytes()) for state in known for x in state.arrays()]
        states = random_states(current.generators)
        try:
            result, recording = self._record(call, current)
        except Unfit as error:  # it is recorded with numbers, as which it is run, next time
            current.views |= isinstance(error, KeptViews)
            return self._run(call)
        recording.drawn = drawn_since(states)
        self.calls["recorded"] += 1
        current.reads.renew()
        watches = list(current.reads.watches.values())
        changed, written = changed_of(watches), [x for x, content in read if x.tobytes() != content]
        if written and not changed:
            names = [w.name for w in watches if type(w) is Watch and _holds(w.expected, written)]
            changed = f"{names[0] if names else 'an array from outside'}, which NumPy wrote to"
        current.settle()
        impure = recording.impure or (f"the call itself changed {changed}" if changed else "")
        with self._lock:
            if impure:
                self._stay_dynamic(impure)
            else:
                self._take_in(current, call.key, recording)
        seconds = self._overhead.clock() - begin
        self._overhead.calls += min(current.time.seconds, seconds)
        way, self._way = self._way, (call.key, recording.path)
        at_once = self.mode == MODES[-1]
        alike = self._way == way or recording.rolled is not None or recording.is_trial
        alike = alike or (at_once and not current.programs)
        sure = at_once or not recording.path or (recording.rolled is None and recording.is_sure)
        self._overhead.recorded(seconds - min(current.time.seconds, seconds), sure=sure, alike=alike)
        self._wait()
        return result

    def _record(self, call: CallArguments, current: Specialization) -> tuple[Any, Recording]:
        apart = current.may_repeat or is_separated(call.values)
        inputs = inputs_of(call.values, (lambda x: clone(input_of(x))) if apart else input_of)
        before = [counter_of(x)[0] for x in inputs]

        def run(tensors: Sequence[Tensor]) -> Any:
            args, kwargs = call.filled(tensors)
            return modes.call_given(call.arrays, self.__wrapped__, *args, **kwargs)

        try:
            result, recording = record_call(run, inputs, **current.known())
        except Unfit:  # as if it had not been made
            raise
        except BaseException:
            _write_back(call.values, inputs, before)
            raise
        recording.check_written(call.values)
        if recording.discarded and apart:  # it was to see itself what it writes to another argument
            current.reads_alone = False
            return self._run(call), recording
        _write_back(call.values, inputs, before)
        return as_given(result, tensors=not call.arrays), recording

    def _take_in(self, current: Specialization, key: Any, recording: Recording) -> None:
        current.keeps_all |= recording.lost
        if recording.discarded or recording.lost:
            return
        states = self._keys[key]
        if not current.dynamic and any(other.adopts(recording) for other in states if other is not current):
            states.remove(current)
            self._states -= 1
            return
        current.add(recording)
        if current.dynamic:
            self._forget()
            self._warn(current.dynamic)
        elif current.various and not current.programs:
            self._warn(current.various, "mostly in dynamic mode")

    def _watched(self, current: Specialization, call: CallArguments) -> Any:
        """Make a call whose arguments share memory; the next one is recorded if this one writes to none of them."""
        inputs = inputs_of(call.values)
        before = [counter_of(x)[0] for x in inputs]
        result = self._timed(call, current, inputs)
        current.reads_alone = all(counter_of(x)[0] == count for x, count in zip(inputs, before, strict=True))
        return result

    def _run(self, call: CallArguments, inputs: Sequence[Tensor] | None = None) -> Any:
        if inputs is None:
            inputs = inputs_of(call.values)
        return self._result(inputs, *call.filled(inputs), tensors=call.tensors)

    def _result(self, inputs: Sequence[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], *, tensors: bool) -> Any:
        self.calls["dynamic"] += 1
        arrays, begin = bool(inputs) and not tensors, self._overhead.clock()
        result = modes.call_given(arrays, self.__wrapped__, *args, **kwargs)
        self._overhead.latest = self._overhead.clock() - begin
        return self._owning(result, inputs) if tensors else as_given(result, tensors=not arrays)

    @staticmethod
    def _owning(result: Any, inputs: Sequence[Tensor]) -> Any:
        """Return a result whose tensors own their memory, as those of replays do."""
        if type(result) is Tensor and owns_memory_alone(result) and all(result is not x for x in inputs):
            return result
        leaves, structure = flattened(result, none=True)
        return structure.filled(owned(leaves, inputs))

    def _stay_dynamic(self, reason: str) -> None:
        self._dynamic = reason
        self._forget()
        self._warn(reason)

    def _warn(self, reason: str, stays: str = "in dynamic mode") -> None:
        if not self._warned:
            self._warned = True
            name = getattr(self.__wrapped__, "__qualname__", object.__repr__(self.__wrapped__))
            warnings.warn(f"compile: {name} stays {stays}: {reason}", CompileWarning, stacklevel=stack_level())

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the function bound to an object, compiled for it."""
        if instance is None:
            return self
        try:
            known = instance.__dict__[METHODS][self]
        except (AttributeError, KeyError):
            known = self._methods.get(id(instance))
        return known if known is not None and known.bound_to is instance else self._bound(instance)

    def _bound(self, instance: Any) -> CompiledFunction:
        method, variables = MethodType(self.__wrapped__, instance), variables_of(instance)
        known = CompiledFunction(method, self.static, self.traced, self.check)
        known.mode, known.budget, known.bound_to = self.mode, self.budget, instance
        known._overhead, known._others = self._overhead, self._others
        if variables is not None:
            held = variables.get(METHODS)
            if type(held) is not _Methods or held.owner is not instance:  # none yet, or those of what it is a copy of
                held = variables[METHODS] = _Methods()
                held.owner = instance
            held[self] = known
        else:
            for number in list(self._methods)[:-_MOST_OBJECTS]:
                self._methods.pop(number, None)
            self._methods[id(instance)] = known
        return known

    def __reduce__(self) -> Any:
        """Pickle by name, as functions are, or by the function; programs are recorded anew where it is loaded."""
        function = self.__wrapped__
        if named_as(function) is self:
            return function.__qualname__
        if self.bound_to is not None:
            return getattr, (self.bound_to, function.__name__)
        parts = function, self.static, self.traced, self.check
        return type(self), parts, {"mode": self.mode, "budget": self.budget}

    @property
    def programs(self) -> list[CompiledProgram]:
        """The programs, those of the latest signature first."""
        self._settle()
        return [p for known in reversed(self._keys.values()) for current in known for p in current.programs]

    def save(self, f: Any) -> None:
        """Write the programs to a path or a binary file, from which :func:`tape.load` has a function of them.

        That function needs no source: it replays, and raises where a guard misses. What was read from outside is in the
        file with the values that it has now. See :meth:`tape.Program.save` for what a file can hold. ProgramError if
        there are no programs.
        """
        states = [s for known in self._keys.values() for s in known if s.is_saved and s.is_current()]
        programs = [(program, state.signature) for state in states for program in state.programs]
        programs = [pair for pair in programs if pair[0].runs_back == (self._by is not None)]
        native_calls.write(f, getattr(self.__wrapped__, "__name__", "function"), programs, self._by)

    def graph(self, *, reverse: bool = True) -> Graph:
        """Return the graph of the latest program: see :meth:`tape.Program.graph`. ProgramError if there is none."""
        return self._latest().graph(reverse=reverse)

    def pattern(self) -> Any:
        """Return where the derivative may be other than zero, of the latest program: see :meth:`tape.Program.pattern`.

        ProgramError if there is none. ``tape.sparse.jacobian(f).pattern(x)`` is that of a call.
        """
        return self._latest().pattern()

    def memory(self, *, reverse: bool | None = None) -> MemoryUse:
        """Return the bytes of the latest program: see :meth:`tape.Program.memory`. ProgramError if there is none.

        Without ``reverse``, that it needs for what calls of this function compute.
        """
        program = self._latest()
        return program.memory(reverse=program.runs_back if reverse is None else reverse)

    def loops(self, *, reverse: bool | None = None) -> str:
        """Return the loops that the latest program is compiled as: see :meth:`tape.Program.loops`.

        Without ``reverse``, those of what calls of this function compute. ProgramError if there is no program, or if
        the interpreter has to run it.
        """
        program = self._latest()
        return program.loops(reverse=program.runs_back if reverse is None else reverse)

    def profile(self, *args: Any, reverse: bool = False, **kwargs: Any) -> Profile:
        """Time the program of a call: see :meth:`tape.Program.profile`. The function is called until there is one.

        ProgramError where calls on these arguments stay dynamic.
        """
        for _ in range(3):
            self._settle()
            self._overhead.recordings = 0  # they wait for nothing
            self._called(args, kwargs)
        call = self._taken(args, kwargs)
        current = None if call is None else self._current(call)
        if call is None or current is None or not current.programs:
            raise ProgramError(f"profile: calls on these arguments stay dynamic\n{self.explain()}")
        program = current.programs[0]
        return program.profile(*call.values, *program.outside(), reverse=reverse)

    def _latest(self) -> CompiledProgram:
        if not self.programs:
            hint = "call it first: two calls that do the same make a program"
            raise ProgramError(f"there is no program yet\n{self.explain()}\n{hint}")
        return self.programs[0]

    def _native_code(self) -> tuple[CompiledCode, Sequence[str]]:
        program = self._latest()
        state = next(s for states in self._keys.values() for s in states if program in s.programs)
        if self._dynamic or state.dynamic:
            raise ProgramError(f"calls stay dynamic\n{self.explain()}")
        return program.native_code(reverse=program.runs_back), named(
            self.__wrapped__ if self._by is None else self._by.function, state.signature.names
        )

    def explain(self) -> str:
        """Return as text what was compiled, and what stayed dynamic and why."""
        name = getattr(self.__wrapped__, "__qualname__", object.__repr__(self.__wrapped__))
        calls = {"replayed": sum(program.hits for program in self.programs), **self.calls}
        counts = ", ".join(f"{count} {way}" for way, count in calls.items() if count)
        lines = [f"{name}: {counts or 'not called yet'}"]
        if self._dynamic:
            lines.append(f"  dynamic: {self._dynamic}")
        elif not self._overhead.allows_recordings():
            lines.append(f"  what is new waits: {self._overhead}")
        shown = [*self._keys.items()][-FEW_SIGNATURES:]
        for key, states in shown:
            fixed = states[0].signature.static
            leaves = [repr(fixed[i]) if i in fixed else told_of_leaf(kind) for i, kind in enumerate(key[2])]
            lines.append(f"  signature ({', '.join(some(leaves, 'value'))})")
            for state in states:
                lines += told_of_state(state, 1 + FEW * (key == shown[-1][0]))
        if len(self._keys) > FEW_SIGNATURES:
            lines.append(f"  and {counted(len(self._keys) - FEW_SIGNATURES, 'signature')} before")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"


def _write_back(values: Sequence[Any], inputs: Sequence[Tensor], before: Sequence[int]) -> None:
    """Let the caller see what was written to arguments of which the function had copies."""
    for value, x, count in zip(values, inputs, before, strict=True):
        if value is x or counter_of(x)[0] == count:
            continue
        if isinstance(value, Tensor):
            value.copy_(x)
        elif type(x._value) is not float and not np.may_share_memory(value, x._value):
            value[...] = x._value


def _holds(expected: Any, arrays: Sequence[Any]) -> bool:
    return any(np.may_share_memory(content.array, x) for content in contents_of([expected]) for x in arrays)


def named_as(function: Any) -> Any:
    """Return what stands in a module by the name of a function: itself, or what was made of it; else None."""
    at: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in str(getattr(function, "__qualname__", "")).split("."):
        at = getattr(at, part, None)
    return at


class _Methods(dict[CompiledFunction, Any]):
    """The compiled methods of an object, in its dictionary: they live as long as it. Copies of it begin anew."""

    owner: Any = None

    def __reduce__(self) -> Any:
        return _Methods, ()

    def __eq__(self, other: object) -> bool:
        return type(other) is _Methods

    __hash__ = None
