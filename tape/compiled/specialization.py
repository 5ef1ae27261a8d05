"""The programs of a function for calls with one key: a tree by the values that left for Python.

A call is recorded until two went the same way and did the same. Where a guard misses, the program of the other branch
takes over, if there is one; nothing outside of a program's memory has changed until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.native.memory import where
from kernels.programs.program import ProgramError
from tape.compiled.call_key import CallArguments
from tape.compiled.compiled_program import CompiledProgram, GuardMissed, program_of
from tape.compiled.recordings import Recording, RecordingStage, difference, shared_memory
from tape.tensors.tensor import Array, Tensor
from tape.watching.frame_events import GENERATORS, RandomStates
from tape.watching.snapshots import ArrayContent, contents_of, found_in
from tape.watching.watched import CodeKey, Finder, Unseen, Watch, changed_of

MOST_PROGRAMS = 32
"""Programs for calls with one key and one state of what is outside."""
MOST_PENDING = 24
"""Ways that were each taken once; where there are more, calls rarely go the same way twice."""
MOST_DIFFERENCES = 2
MOST_CAUGHT = 8
"""Calls behind a caught error of which no program can be made, until calls stay dynamic."""
_RAISED = (MemoryError, ProgramError)
"""What a replay raises that is no operation's error, but for GuardMissed."""


class Specialization:
    """Programs for one key, as long as what the function reads from outside is as it was."""

    def __init__(
        self, call: CallArguments, reads: Finder, finish: Callable[[CompiledProgram], CompiledProgram]
    ) -> None:
        self.signature = call.signature()
        self.is_saved = not call.again
        """Whether files can hold its calls: those give no object twice."""
        self._finish = finish
        self.watches: list[Watch] = []
        self._watched: set[Any] = set()
        self.contents: list[ArrayContent] = []
        self.outside: dict[int, Any] = {}
        """The arrays and tensors that the function reads from outside, by id."""
        self.codes: dict[CodeKey, Any] = {}
        """The code of which it is known what it reads."""
        self.programs: list[CompiledProgram] = []
        self._pending: dict[tuple[bytes, ...], Recording] = {}
        self._differences = 0
        self._caught = 0
        self.goes_back = False
        """Whether the last replay raised, and no program is made of what the function does then."""
        self.unrolled = ""
        """Why a loop stays Python."""
        self.dynamic = ""
        """Why calls stay dynamic; empty while they need not."""
        self.reads_alone = False
        """Whether a call whose arguments share memory was seen to write to none of them."""
        self.plans: dict[CompiledProgram, Any] = {}
        """By program, the plans of native calls (native_calls.py), which look at what is watched."""
        self.planned: dict[CompiledProgram, int] = {}
        """How many plans a program has had."""
        self._watch(reads)

    def _watch(self, reads: Finder) -> None:
        watches = [watch for key, watch in reads.watches.items() if key not in self._watched]
        self.watches, self.plans = [*self.watches, *watches], {}
        self._watched, self.codes = self._watched | reads.watches.keys(), self.codes | reads.codes
        known = {id(content.array) for content in self.contents}
        contents = contents_of([watch.expected for watch in watches])
        self.contents = [*self.contents, *[content for content in contents if id(content.array) not in known]]
        arrays = [content.array for content in self.contents]
        self.outside |= {id(x): x for x in (*arrays, *[x for w in watches for x in found_in(w.expected, Tensor)])}
        unseen = [watch.name for watch in watches if isinstance(watch, Unseen)]
        if unseen:
            self.dynamic = f"the function reads {unseen[0]}, which programs do not hold"

    def is_current(self) -> bool:
        """Whether what the function reads from outside is as it was."""
        for watch in self.watches:
            if watch.changed():
                return False
        return not self.contents or not any(content.changed() for content in self.contents)

    def adopts(self, recording: Recording) -> bool:
        """Take in a recording that did the same on other contents of arrays, which only tape's operations read then."""
        if self.dynamic or recording.stopped or self.changed():
            return False
        path = recording.path
        program = self._on_path(path)
        earlier = self._pending.get(path) if program is None else program.recording
        if earlier is None or difference(earlier, recording):
            return False
        reads = [x for x in earlier.original_sources.values() if isinstance(x, np.ndarray)]
        if any(np.may_share_memory(x, y) for x in recording.refilled for y in reads):
            return False  # what was read there was not what the array held before the call
        if program is None:
            self.add(recording)
        live = {where(array) for p in self.programs for array in p.live}
        for content in self.contents:
            if content.changed():
                content.verify(live=where(content.array) in live)
        return True

    def replay(self, call: CallArguments) -> tuple[CompiledProgram, Any] | None:
        """Replay the program of the way that the call goes; None if that is not known."""
        self.goes_back = False
        program, tried = self.programs[0] if self.programs else None, list[CompiledProgram]()
        while program is not None:
            if not program.is_current():
                self.programs.remove(program)
                return self.replay(call)
            try:
                result = program.replay(call.values, tensors=not call.arrays)
            except GuardMissed as missed:
                program = self._next(program, missed, tried)
            except _RAISED:
                raise
            except Exception as error:  # noqa: BLE001 (an operation's, which the function may catch)
                program, self.goes_back = (
                    self._next(program, GuardMissed(-1, b"", repr(error)), tried),
                    self._caught > 0,
                )
            else:
                self._count(program)
                if self.programs[0] is not program:
                    programs = [p for p in self.programs if p is not program]
                    self.programs = [program, *programs]
                return program, result
        return None

    def at_once(self, program: CompiledProgram, args: tuple[Any, ...]) -> tuple[CompiledProgram, tuple[Any]] | None:
        """Replay on arguments as the last call had; return a tuple of the result, or None if there is more to do."""
        following: CompiledProgram | None = program
        tried: list[CompiledProgram] = []
        while following is not None:
            if following.hits >= following.due or not (following.is_simple or following.is_ready()):
                return None
            if following is not program:
                following.expect_as(program)
            try:
                results = following.at_once(args)
            except GuardMissed as missed:
                following = self._next(following, missed, tried)
                continue
            except _RAISED:
                raise
            except Exception:  # noqa: BLE001 (an operation's, which the function may catch)
                return None
            if results is None:
                return None
            self._count(following)
            return following, results
        return None

    def _next(
        self, program: CompiledProgram, missed: GuardMissed, tried: list[CompiledProgram]
    ) -> CompiledProgram | None:
        """Return the program to try after one whose guard missed, or an operation of which raised.

        It is of the same way, else one with loops; where errors are guards, which other ways do not have, any.
        """
        tried.append(program)
        way = program.way_of(missed)
        following = None if way is None else self._on_path(way)
        if following is None or following in tried:
            catches = any(p.recording.catches for p in self.programs)
            return next((p for p in self.programs if (p.has_loops or catches) and p not in tried), None)
        return following

    def _on_path(self, path: tuple[bytes, ...]) -> CompiledProgram | None:
        return next((p for p in self.programs if p.path[: len(path)] == path), None)

    def _count(self, program: CompiledProgram) -> None:
        program.hits += 1
        plan = self.plans.get(program)
        if plan is not None:
            plan.limit()

    def shares(self, values: Sequence[Any]) -> bool:
        """Whether arguments are, or share memory with, what the function reads from outside."""
        return any(_meet(x, y) for x in values for y in self.outside.values())

    def meets(self, call: CallArguments) -> bool:
        """Whether an argument is what the function reads from outside, or is written and shares memory with that."""
        if any(id(x) in self.outside for x in call.values):
            return True
        return any(p.writes for p in self.programs) and self.shares(call.values)

    def changed(self) -> str:
        """Return what the function reads from outside and is not as it was; empty if nothing is."""
        return changed_of(self.watches)

    def arrays(self) -> list[Array]:
        """Return the arrays from outside that calls have read."""
        waiting = [x for r in self._pending.values() for x in (*r.sources.values(), *r.refilled)]
        return [x for x in waiting if isinstance(x, np.ndarray)] + [x for p in self.programs for x in p.live]

    def random_states(self) -> RandomStates:
        """Return the states of random number generators that calls may draw from."""
        return RandomStates((watch.name, x) for watch in self.watches for x in found_in(watch.expected, GENERATORS))

    def add(self, recording: Recording) -> None:
        """Take in a recorded call: it waits for another that does the same, or completes a program."""
        self._caught += bool(recording.caught)
        self.dynamic = recording.stopped or (recording.caught if self._caught > MOST_CAUGHT else "")
        if recording.stopped or recording.caught:
            return
        path, self.unrolled = recording.path, recording.unrolled or self.unrolled
        earlier, replaced = self._pending.pop(path, None), None
        if earlier is None and recording.rolled is not None:
            replaced = next((p for p in self.programs if p.path == path and p.has_loops), None)
            earlier = None if replaced is None else replaced.recording
        if earlier is None:
            self._pending[path] = recording
            if len(self._pending) > MOST_PENDING:
                self.dynamic = f"each call goes another way, by the value that leaves at {_last_line(recording)}"
            return
        differs = difference(earlier, recording)
        if shared_memory(earlier, recording):
            self.dynamic = "the call writes to tensors from outside"
        elif differs:
            self._differences += 1
            self._pending[path] = recording
            if replaced is not None:
                self.programs.remove(replaced)
            if self._differences >= MOST_DIFFERENCES:
                self.dynamic = f"two calls that went the same way differed: {differs}"
        elif replaced is None and len(self.programs) >= MOST_PROGRAMS:
            self.dynamic = f"there are more than {MOST_PROGRAMS} ways through the function"
        else:
            self._complete(earlier, recording, replaced)

    def _complete(self, earlier: Recording, recording: Recording, replaced: CompiledProgram | None) -> None:
        """Make the program of two recordings; one with loops takes the place of that which knew fewer bodies."""
        self.dynamic = earlier.drawn or recording.drawn
        if self.dynamic:
            return
        if recording.rolled is not None and earlier.rolled is not None:
            recording.rolled.join(earlier.rolled)
            if recording.rolled.lacks_bodies(least=2):
                self._pending[recording.path] = recording
                return
        self._watch(recording.reads)
        if self.dynamic:
            return
        program = self._finish(program_of(earlier, recording))
        if replaced is not None:
            program.hits, program.due = replaced.hits, replaced.due
            self.programs.remove(replaced)
        self.programs.insert(0, program)

    @property
    def again(self) -> RecordingStage:
        """What the next recording has to look for."""
        known = [*self._pending.values(), *[p.recording for p in self.programs]]
        if not known:
            return RecordingStage.FIRST
        return RecordingStage.GUARDED if any(r.guards for r in known) else RecordingStage.PLAIN

    @property
    def pending(self) -> int:
        """How many ways were taken once."""
        return len(self._pending)


def _meet(x: Any, y: Any) -> bool:
    if x is y:
        return True
    a, b = (v._value if isinstance(v, Tensor) else v for v in (x, y))
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def _last_line(recording: Recording) -> str:
    return recording.guards[-1].line if recording.guards else "no line"
