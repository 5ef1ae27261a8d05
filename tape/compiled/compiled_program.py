"""A program of a compiled function: its guards, what it reads from outside, and its replay."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.specs import Spec
from kernels.foundation.tables import cached_property
from kernels.kinds.reference_tape import root_of
from kernels.kinds.routine import Callback, Custom, Routine
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.machine_code.tiers import Uncompiled, compiled_machine, reason_of
from kernels.native.memory import where
from kernels.programs.machine import GuardMissed
from kernels.programs.program import ProgramError, Recipe, describe
from kernels.programs.recording import differing_nodes, same_but_views, same_skipped, whole
from kernels.programs.several_ways import without_unchanged
from tape.compiled import call_key
from tape.compiled.call_key import DOUBLE, SINGLE, CallArguments, DynamicTime, kept, values_of
from tape.compiled.recordings import Recording
from tape.programs.program import Program, PullbackProgram
from tape.programs.replaying import CallForm, ProgramPullback, interpreted, result_tensors
from tape.random import Draw, Generator
from tape.tensors import modes
from tape.tensors.dtypes import DEFAULT
from tape.tensors.pytrees import Signature, flattened
from tape.tensors.recorder import same, same_kind, same_numbers, same_params
from tape.tensors.tensor import Array, Tensor, as_array
from tape.transforms.value_and_grad import check_written
from tape.watching.snapshots import ArrayContent, same_memory

_FEW = 8


class CompiledProgram(Program):
    """What two calls of a function did alike, replayed on other values as long as the same values leave for Python.

    Its arguments are the leaves of the call, then tensors from outside that require grad, and numbers from outside.
    """

    __module__ = "tape"
    runs_back = False  # whether a replay computes gradients
    _exactly = True
    _order = "K"
    path: tuple[bytes, ...]  # the values that its guards expect, in order; a loop is one mark
    guard_positions: list[int]  # of each guard, where it stands in the path; -1 for those in loops
    has_loops: bool
    lines: list[str]  # where these leave for Python
    hits: int
    time: DynamicTime  # what its calls take without it
    misses: list[int]
    due: int  # the number of the next replay that is checked against dynamic mode
    mode: modes.Mode
    dtype: np.dtype[Any]
    tensors = False  # whether the last call was on tensors
    plan: Any = None  # by which native code calls it (native_calls.py)
    _leaves: list[tuple[type, Spec | None, bool]]
    _requires_grad = False  # whether one of them requires grad
    alike: list[tuple[int, int]]
    """Pairs of leaves that may be one object in another call: that is another recording."""
    strangers: list[tuple[int, Any]]  # leaves that may be an object from outside in another call, and that object
    _formed: tuple[Any, CallForm | None] = (None, None)  # leaves of a call, and the form that it had
    recording: Recording  # what later recordings are compared with
    _outside: list[Any]
    _held: tuple[Any, CompiledCode | None] = (None, None)
    """Machine code in which what comes from outside is constant: its values, and the code."""
    _readers: list[tuple[Tensor, Array]]
    live: list[Array]
    contents: Callable[[], Sequence[ArrayContent]]  # what is compared before each call
    _written: list[int]
    _fresh: bool  # whether results hold arrays that are no values of the program, and are copied for each call

    def _read_live(self, node: int, source: Any, first: Recording, second: Recording) -> None:
        """Let a constant be what an array from outside holds, by reference; a number is one more argument."""
        entry = self._recipe.nodes[node]
        if isinstance(source, Tensor) or not entry.spec.shape:
            self._recipe.nodes[node] = replace(entry, constant=None, argument=True)
            self._recipe.arguments.append(node)
            self._outside.append(source)
            return
        self._recipe.nodes[node] = replace(entry, constant=source)
        self.live.append(source)
        reader = second.readers.get(node)
        if reader is not None and first.readers.get(node) is reader:
            self._readers.append((reader, as_array(reader)))

    def _compile(self, *, reverse: bool, always: bool = True) -> bool:
        compiled = super()._compile(reverse=reverse, always=always)
        if compiled:
            self.check_soon()
        return compiled

    def check_soon(self) -> None:
        """Have the next replay checked, which runs other code."""
        if self.plan is not None:
            self.plan.halt()
        if self.hits:
            self.due = min(self.due, self.hits)

    def alone(self) -> Recipe:
        """Return the recipe with what comes from outside as constants, which have the values that it has now."""
        recipe, count = self._recipe, self._argument_count
        nodes = [*recipe.nodes]
        for node, value in zip(recipe.arguments[count:], self.outside(), strict=True):
            held = np.array(value._value if isinstance(value, Tensor) else value)
            nodes[node] = replace(nodes[node], constant=held, argument=False, differentiable=False)
        return replace(recipe, nodes=nodes, arguments=recipe.arguments[:count])

    def with_recipe(self, recipe: Recipe, signature: Signature) -> Program:
        """Return a program of another recipe, which reads nothing from outside."""
        other = Program.__new__(Program)
        other._recipe, other._signature = recipe, signature
        other._template, other._kept, other._escapes, other._unfinished = self._template, self._kept, [], ""
        other._begin()
        return other

    @cached_property
    def pulling(self) -> ProgramPullback:
        """The program's pullback, which runs the program again where arrays from outside may be others by then."""
        return ProgramPullback(self._complete, partial(PullbackProgram, self), live=len(self.live))

    def live_now(self) -> Sequence[Any]:
        """Return what the ``live`` arrays hold now: copies, unless the tape makes one before they are written."""
        return [x.copy(order="K") if held is None else held for x, held in zip(self.live, self.held(), strict=True)]

    def held(self) -> Sequence[Any]:
        """Return the same, with None in place of new copies: of what is compared before each call there are some."""
        if not self.live:
            return ()
        compared = [c for c in self.contents() if not c.trusted and c.array.strides == c.held.strides]
        held = {_layout(c.array): c.held for c in compared}
        of_tensors = {where(root_of(array)) for _, array in self._readers}
        return [held.get(_layout(x), x if where(root_of(x)) in of_tensors else None) for x in self.live]

    def with_live(self, arrays: Sequence[Any]) -> Program:
        """Return this program, or, where an array from outside holds something else by now, one of constants."""
        pairs = list(zip(self.live, arrays, strict=True))
        if all(array is then or same_memory(array, then) for array, then in pairs):
            return self
        held = {id(array): then for array, then in pairs}
        nodes = [replace(n, constant=held.get(id(n.constant), n.constant)) for n in self._recipe.nodes]
        return self.with_recipe(replace(self._recipe, nodes=nodes), self._signature)

    def native_code(self, *, reverse: bool) -> CompiledCode:
        """Return machine code, with the present values of what comes from outside; ProgramError where there is none."""
        if self.generators:
            raise ProgramError("no machine code: the function draws random numbers")
        if not self._outside:
            return self._code(reverse=reverse)
        recipe = self.alone()
        held = [recipe.nodes[node].constant for node in self._recipe.arguments]
        key = (reverse, *[x.tobytes() for x in held if x is not None])
        if key != self._held[0]:
            try:
                self._held = key, compiled_machine(whole(recipe), reverse=reverse, exactly=True, always=True).code
            except Uncompiled as refused:
                raise ProgramError(f"no machine code: {reason_of(recipe, refused)}") from None
        code = self._held[1]
        assert code is not None
        return code

    def outside(self) -> list[Any]:
        """Return the values, now, of the arguments that come from outside: random numbers are drawn."""
        return [
            x if isinstance(x, Tensor) else x.array() if isinstance(x, Draw) else np.array(x) for x in self._outside
        ]

    @property
    def _argument_count(self) -> int:
        """How many of the recipe's arguments those of a call are: the others come from outside."""
        return len(self._recipe.arguments) - len(self._outside)

    @cached_property
    def generators(self) -> list[Generator]:
        """The generators that it draws random numbers from."""
        return list({id(x.generator): x.generator for x in self._outside if isinstance(x, Draw)}.values())

    @cached_property
    def can_miss(self) -> bool:
        """Whether a replay may find that the call goes another way, or raise, when random numbers have been drawn."""
        kinds = self._recipe.steps.kinds
        return bool(self.lines) or any(isinstance(kind.op, (Callback, Custom, Routine)) for kind in kinds)

    @property
    def writes(self) -> bool:
        """Whether it writes to its arguments."""
        return bool(self._recipe.written)

    @property
    def is_machine_code(self) -> bool:
        """Whether replays run machine code."""
        pulling = vars(self).get("pulling")
        machines = [*self._first.values(), *(() if pulling is None else pulling.program._first.values())]
        return any(isinstance(machine, CompiledMachine) for machine in machines)

    def run_by(self, *, reverse: bool) -> tuple[Program, bool]:
        """Return what runs calls like the last one, and whether with gradients: on tensors perhaps the pullback."""
        pulling = vars(self).get("pulling") if self.tensors and not reverse else None
        return (self, reverse) if pulling is None or True not in pulling.program._first else (pulling.program, True)

    @property
    def rounding(self) -> float:
        """How much of the largest result replays may differ from dynamic mode by: 0 where all bits are the same."""
        if not (self.recording.rounds or self.is_machine_code):
            return 0.0
        return SINGLE if any(node.spec.dtype == np.float32 for node in self._recipe.nodes) else DOUBLE

    def is_near(self, result: Any, expected: Any, values: Sequence[Any]) -> bool:
        """Whether rounding explains a replay that differs by more than :attr:`rounding` of the largest result."""
        if not self.rounding or self.generators:
            return False
        leaves, recipe = flattened(expected, none=True)[0], self._recipe
        constants = [node.constant for node in recipe.nodes if node.constant is not None]
        largest = call_key.sizes([*values, *self.outside(), *constants, *recipe.steps.numbers, *leaves])
        runs, random = list[Any](), np.random.default_rng(0)
        for near in call_key.one_rounding_apart(values):
            with contextlib.suppress(Exception):  # it goes another way, or raises, there
                runs.append(self._rounded(near, random))
        return call_key.within_runs(result, expected, runs, self.rounding * largest)

    def _rounded(self, values: Sequence[Any], random: np.random.Generator) -> Any:
        """Return what a run gives in which each operation rounds otherwise: loops forget how arguments round."""
        with modes.under(modes.current()._replace(recorder=None)):
            return self._filled(interpreted(self._complete, [*values, *self.outside()], rounded=random))

    def interpret(self, reason: str) -> None:
        """Let the interpreter run it from now on, the next replay checked."""
        with self._lock:
            vars(self).pop("pulling", None)
            self._mode, self.due = "eager", self.hits
            for reverse in (False, True):
                self._due.pop(reverse, None)
                self._beside.pop(reverse, None)
                self._first.pop(reverse, None)
                self._machines[reverse].clear()
                self._interpreted[reverse] = Uncompiled(reason)

    @cached_property
    def is_plain(self) -> bool:
        """Whether floats and arrays are all that it needs, one for each argument."""
        return not (self._outside or self.writes or self._fresh)

    @cached_property
    def is_of_tensors(self) -> bool:
        """Whether it is, but for tensors from outside that require grad."""
        return all(isinstance(x, Tensor) for x in self._outside) and not (self.writes or self._fresh)

    @cached_property
    def is_simple(self) -> bool:
        """Whether it is plain, and there is nothing to look at before a replay."""
        return self.is_plain and not self._readers

    def count(self, times: int) -> None:
        """Count replays."""
        self.hits += times
        self.time.count(times)

    def is_mode(self, mode: modes.Mode) -> bool:
        """Whether a mode, and the default dtype, are those of the recording."""
        return mode is self.mode and DEFAULT["dtype"] is self.dtype

    def way_of(self, missed: GuardMissed) -> tuple[bytes, ...] | None:
        """Return the way that a call took at a guard that missed; None where that is not known."""
        if missed.number < 0:
            return None
        self.misses[missed.number] += 1
        place = self.guard_positions[missed.number]
        return None if place < 0 else (*self.path[:place], missed.value)

    def expect(self, call: CallArguments, outside: Iterable[Any]) -> None:
        """Keep what the leaves of a call are, for calls on tensors to be compared with at once."""
        self.tensors, self._as_values = call.tensors, modes.given_arrays()
        values = [(x, isinstance(x, Tensor)) for x in call.values]
        self._leaves = [(type(x), x.spec if is_one else None, is_one and x._slot is not None) for x, is_one in values]
        self._requires_grad = any(slot for _, _, slot in self._leaves)
        arrays = [(i, x) for i, x in enumerate(call.values) if isinstance(x, (Tensor, np.ndarray))]
        like: dict[Any, list[int]] = {}
        for i, x in arrays:
            like.setdefault((x.shape, x.dtype), []).append(i)
        self.alike = [pair for group in like.values() for pair in itertools.combinations(group, 2)]
        traits = [(i, (type(x), x.shape, x.dtype)) for i, x in arrays]
        self.strangers = [(i, y) for y in outside for i, kind in traits if kind == (type(y), y.shape, y.dtype)]

    def expect_as(self, other: CompiledProgram) -> None:
        """Expect what another program for the same calls does."""
        self.tensors, self._leaves, self._requires_grad = other.tensors, other._leaves, other._requires_grad
        self._as_values = other._as_values
        self.alike, self.strangers = other.alike, other.strangers

    def at_once(self, values: tuple[Any, ...]) -> tuple[Any] | None:
        """Replay on leaves just as those of the last call, the result in a tuple; None if there is more to do."""
        if (self.alike or self.strangers) and self._repeats(values):
            return None
        return self._on_tensors(values) if self.tensors else self._on_arrays(values)

    def _repeats(self, values: tuple[Any, ...]) -> bool:
        """Whether two leaves, or one and what is read from outside, are one object where they were not."""
        if any(values[i] is x for i, x in self.strangers):
            return True
        if len(self.alike) > _FEW:
            places = {i for pair in self.alike for i in pair}
            return len({id(values[i]) for i in places}) < len(places)
        return any(values[i] is values[j] for i, j in self.alike)

    def _arrays_of(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        leaves = self._leaves
        if len(values) != len(leaves) or modes.given_arrays() != self._as_values:
            return None
        arrays: list[Any] = []
        pairs: Any = zip(values, leaves)  # noqa: B905 (as many, and this is called most)
        for x, (kind, spec, slot) in pairs:
            if type(x) is not kind:
                return None
            if spec is None:
                arrays.append(x)
            elif x._form.spec is not spec or (x._slot is None) is slot:
                return None
            else:
                arrays.append(x._value)
        return tuple(arrays)

    def _on_tensors(self, values: tuple[Any, ...]) -> tuple[Any] | None:
        arrays = self._arrays_of(values)
        if arrays is None:
            return None
        if self._requires_grad and self.mode.grad:
            known, form = self._formed
            if known is not self._leaves or form is None:
                form = self.pulling.call_form(values, kept=self.pulling.kept is not None)
                self._formed = self._leaves, form
            at_once = self._recorded_at_once(values, arrays, form)
            return None if at_once is None else (self._filled(at_once),)
        results = self._whole(arrays, reverse=False)
        return None if results is None else (self._filled(result_tensors(self.pulling.specs, results)),)

    def is_current(self) -> bool:
        """Whether the tensors that it reads by reference still have the memory that they had."""
        return all(x._value is value for x, value in self._readers)

    def replay(self, values: Sequence[Any], *, tensors: bool) -> Any:
        """Return the function's result on these leaves; :class:`GuardMissed`, with nothing changed, off its path."""
        if not (self._outside and self.can_miss):
            return self._result_of([*values, *self.outside()] if self._outside else values, tensors=tensors)
        before = [generator.snapshot() for generator in self.generators]
        arguments = [*values, *self.outside()]
        changes = [generator.changes for generator in self.generators]
        try:
            return self._result_of(arguments, tensors=tensors)
        except Exception:  # the call is made in another way, which draws again
            for generator, snapshot, count in zip(self.generators, before, changes, strict=True):
                generator.undo(snapshot, count)
            raise

    def _result_of(self, arguments: Sequence[Any], *, tensors: bool) -> Any:
        if self._recipe.written:
            check_written(self._signature.names, arguments, self._written)
            for i in self._written:
                x = arguments[i]._value if isinstance(arguments[i], Tensor) else arguments[i]
                if isinstance(x, np.ndarray) and any(np.may_share_memory(x, array) for array in self.live):
                    raise ProgramError("an argument that is written has memory that is read from outside")
        if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in arguments):
            return self._filled(self._composed(arguments))
        at_once = None if tensors or self._recipe.written else self._on_arrays(values_of(arguments))
        if at_once is not None:
            return at_once[0]
        return self._results(arguments, tensors=tensors)

    def _composed(self, arguments: Sequence[Any], *, recorded: bool = False) -> list[Tensor]:
        """Replay as one operation of the graph; one that writes to its arguments operation by operation."""
        if not self._recipe.written and not recorded:
            return self._graded(arguments)
        self._replayed(arguments)  # the guards
        return interpreted(self._complete, arguments)

    def _on_arrays(self, values: tuple[Any, ...]) -> tuple[Any] | None:
        results = self._whole(values, reverse=False)
        return None if results is None else (self._filled(results),)

    def _filled(self, values: Sequence[Any]) -> Any:
        if self._tuple:
            return tuple(values)
        if not self._fresh:
            return super()._filled(values)
        remaining, count = iter(values), len(self._template)
        return self._template.filled(
            [kept(self._kept[i]) if i in self._kept else next(remaining) for i in range(count)]
        )


def _layout(array: Array) -> tuple[Any, ...]:
    return where(array), array.shape, array.strides, array.dtype


def program_of(first: Recording, second: Recording) -> CompiledProgram:
    """Return the program of two recordings that did the same; both are still held."""
    if second.rolled is not None:
        second.rolled.put(second, least=2)
    self = CompiledProgram.__new__(CompiledProgram)
    self._readers, self.live, self._outside = [], [], list(second.outer)
    live = live_sources(first, second)
    recipe = second.recipe if second.rolled is None else without_unchanged(second.recipe)
    self._recipe = recipe = replace(recipe, nodes=[*recipe.nodes], arguments=[*recipe.arguments])
    for node, source in live.items():
        self._read_live(node, source, first, second)
    self._escapes, self._unfinished = [], ""
    self._signature = Signature((0.0,) * len(recipe.arguments), {})
    self._template, self._kept = second.template, second.kept
    self._fresh = any(isinstance(x, np.ndarray) for x in second.kept.values())
    self._written = [i for i, node in enumerate(recipe.arguments) if node in recipe.written]
    self.path, self.lines = second.path, [guard.line for guard in second.guards]
    self.guard_positions, self.has_loops = second.guard_positions, second.rolled is not None
    self.hits, self.due, self.misses, self.mode = 0, 1, [0] * len(self.lines), modes.current()
    self.dtype = DEFAULT["dtype"]
    self._begin()
    second.slim(live)
    if second.rolled is not None:
        second.rolled.put(second, least=None)
    self.recording = second
    return self


# What recordings of two calls have in common.

_TRAITS = operator.attrgetter("spec", "base", "offset", "buffer_offset", "differentiable", "family", "argument")


def difference(a: Recording, b: Recording) -> str:
    """Return in what two calls that went the same way differ; empty where they did the same."""
    if not same_skipped(a.recipe.skipped, b.recipe.skipped):
        a.keep_all()
        b.keep_all()
    one, other = a.recipe, b.recipe
    kinds = zip(one.steps.kinds, other.steps.kinds, strict=False)
    is_same = one.steps.words == other.steps.words and all(same_kind(x, y) for x, y in kinds)
    if not is_same and (b.unrolled or not same_but_views(one.steps, other.steps)):  # a loop may become native yet
        for x, y in zip(one.steps, other.steps, strict=False):
            if x.op is not y.op or x.operands != y.operands or not same_params(x.params, y.params):
                return f"operation {x.at} was {x.op.name}, then {y.op.name}"
        return f"there were {len(one.steps)} operations, then {len(other.steps)}"
    if not same_numbers(one.steps.numbers, other.steps.numbers):
        return "a Python number in an operation was another one"
    if (one.arguments, one.outputs, one.written) != (other.arguments, other.outputs, other.written):
        return "other results were returned, or other arguments written"
    if len(a.outer) != len(b.outer) or not all(
        x is y or (isinstance(x, Draw) and x.same(y)) for x, y in zip(a.outer, b.outer, strict=True)
    ):
        return "another tensor from outside that requires grad was used, or other random numbers were drawn"
    loops = "" if a.rolled is None or b.rolled is None else b.rolled.difference(a.rolled)
    return loops or _differing_value(a, b)


def _differing_value(a: Recording, b: Recording) -> str:
    if a.template != b.template or a.kept.keys() != b.kept.keys():
        return "the result had another structure"
    if not all(same(a.kept[i], b.kept[i]) for i in a.kept):
        return "a result that is no tensor was another one"
    ones, others = a.recipe.nodes, b.recipe.nodes
    if len(ones) != len(others):
        return "it used another number of constants that the call made, or read from outside"
    for i in differing_nodes(ones, others):
        x, y = ones[i], others[i]
        one, other = [None if node.constant is None else node.constant.tobytes() for node in (x, y)]
        if (_TRAITS(x) != _TRAITS(y) or one != other) and not _live(a, b, i):
            return f"a constant {describe(x.spec)} that the call made, or read from outside, was another one"
    return ""


def live_sources(a: Recording, b: Recording) -> dict[int, Any]:
    """Return what two calls, whose recordings are both still here, read from the same memory, by node of the second."""
    live = {node: a.sources[node] for node in a.sources if _live(a, b, node)}
    both = [{_identity(x) for x in r.original_sources.values() if isinstance(x, Tensor) or x.size} for r in (a, b)]
    known = both[0] & both[1]  # bodies of loops may be of calls before
    return live | {n: x for n, x in b.sources.items() if n not in a.sources and _identity(x) in known}


def shared_memory(a: Recording, b: Recording) -> bool:
    """Whether two calls wrote to the same memory from outside, or replaced that of the same tensor."""
    touched = {_identity(x) for x in a.written_outside}
    return any(_identity(x) in touched for x in b.written_outside)


def _identity(x: Any) -> tuple[str, int]:
    return ("tensor", id(x)) if isinstance(x, Tensor) else ("memory", where(x))


def _live(a: Recording, b: Recording, node: int) -> bool:
    one, other = a.sources.get(node), b.sources.get(node)
    there = one is not None and other is not None and (isinstance(one, Tensor) or one.size > 0)
    return there and _identity(one) == _identity(other)
