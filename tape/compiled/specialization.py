"""The programs of a function for calls with one key, as long as what it reads from outside is as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from kernels.machine_code.compiled_machine import DEBUG
from kernels.native.memory import where
from kernels.programs.machine import GuardMissed
from kernels.programs.program import ProgramError, native
from tape.compiled.call_key import CallArguments, DynamicTime, Overhead, meet
from tape.compiled.compiled_program import CompiledProgram, program_of
from tape.compiled.native_checks import native_look
from tape.compiled.recordings import Recording, difference, identity_of
from tape.tensors.tensor import Array, Tensor
from tape.watching.frame_events import GENERATORS
from tape.watching.snapshots import ArrayContent, contents_of, found_in
from tape.watching.watched import CacheWatch, ClassWatch, Finder, Unseen, Watch, changed_of

# The programs of a function for calls with one key: a tree by the values that left for Python.
#
# A call is recorded until two went the same way and did the same. Where a guard misses, the program of the other branch
# takes over, if there is one; nothing outside of a program's memory has changed until then.

MOST_PROGRAMS = 32  # programs that are kept for calls with one key and one state of what is outside, the last used
MOST_PENDING = 24  # ways that were each taken once, the last ones
MOST_DIFFERENCES = 2
_LOOKS = frozenset((8, 64, 512, 4096))
"""After how many looks by Python at what is read from outside, if it was as before, native code is to look."""
MOST_CAUGHT = 8  # calls behind a caught error of which no program can be made, until calls stay dynamic
_RAISED = (MemoryError, ProgramError)  # what a replay raises that is no operation's error, but for GuardMissed


class Specialization:
    """Programs for one key, as long as what the function reads from outside is as it was."""

    def __init__(
        self,
        call: CallArguments,
        reads: Finder,
        finish: Callable[[CompiledProgram], CompiledProgram],
        overhead: Overhead,
    ) -> None:
        self.time = DynamicTime(overhead)
        self.signature = call.signature()
        self.is_saved = not call.again  # whether files can hold its calls: those give no object twice
        self._finish = finish
        self.reads = reads
        self.watches: list[Watch] = []
        self.contents: list[ArrayContent] = []
        self.outside: dict[int, Any] = {}  # the arrays and tensors that the function reads from outside, by id
        self.generators: list[tuple[str, Any]] = []
        """Random number generators that calls may draw from, with their names."""
        self.programs: list[CompiledProgram] = []
        self.pending: dict[tuple[bytes, ...], Recording] = {}
        self._differences = 0
        self._caught = 0
        self.goes_back = False
        """Whether the last replay raised, and no program is made of what the function does then."""
        self.unrolled = ""  # why a loop stays Python
        self.various = ""  # why no program may ever serve: calls rarely go the same way twice
        self.dynamic = ""  # why calls stay dynamic; empty while they need not
        self.keeps_all = False  # whether recordings keep all iterations of loops
        self.met = 0  # calls that were dynamic, since an argument was what the function reads from outside
        self.reads_alone = False  # whether a call whose arguments share memory was seen to write to none of them
        self._look: tuple[Callable[[], int], Any] | None = None  # native code that looks whether all is as it was
        self._looks = 0
        self.plans: dict[CompiledProgram, Any] = {}
        """By program, the plans of native calls (native_calls.py), which look at what is watched."""
        self.planned: dict[CompiledProgram, int] = {}  # how many plans a program has had
        self.settle()

    def settle(self) -> None:
        """Take in what is watched by now."""
        watches = list(self.reads.watches.values())
        self.watches, self.plans, self._look, self._looks = watches, {}, None, 0
        held = [watch.expected for watch in watches if type(watch) in (Watch, ClassWatch, CacheWatch)]
        self.contents = contents_of(held, self.contents)
        self.outside |= {id(x): x for expected in held for x in found_in(expected, Tensor)}
        self.generators = [(w.name, x) for w in watches for x in found_in(w.expected, GENERATORS)]
        self.outside |= {id(content.array): content.array for content in self.contents}
        unseen = [watch.name for watch in watches if isinstance(watch, Unseen)]
        if unseen:
            self.dynamic = f"the function reads {unseen[0]}, which programs do not hold"

    def known(self) -> dict[str, Any]:
        """Return what a recording needs to know of the calls before."""
        known = {"earlier": self.recordings, "finder": self.reads, "contents": self.contents}
        return known | {"keeps_all": self.keeps_all}

    def is_current(self) -> bool:
        """Whether what the function reads from outside is as it was."""
        if self._look is not None and self._look[0]():
            return True
        for watch in self.watches:
            if watch.changed():
                return False
        if any(content.changed() for content in self.contents):
            return False
        self._looks += 1
        if self._looks in _LOOKS and native() and not DEBUG:
            self._look = native_look(self.watches, self.contents)
        return True

    def adopts(self, recording: Recording) -> bool:
        """Take in a recording that did the same on other contents of arrays, which only tape's operations read then."""
        if self.dynamic or recording.stopped or changed_of(self.watches):
            return False
        path = recording.path
        program = self._on_path(path)
        earlier = self.pending.get(path) if program is None else program.recording
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
        self._look, self._looks = None, 0
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
                program = self._next(program, GuardMissed(-1, b"", repr(error)), tried)
                self.goes_back = self._caught > 0
            else:
                self._count(program)
                if self.programs[0] is not program:
                    self.programs = [program, *[p for p in self.programs if p is not program]]
                return program, result
        return None

    def at_once(
        self, program: CompiledProgram, args: tuple[Any, ...]
    ) -> tuple[CompiledProgram, tuple[Any]] | Literal[False] | None:
        """Replay on arguments as the last call had; return a tuple of the result.

        False if no program goes the way of the call, None if there is more to do.
        """
        following: CompiledProgram | None = program
        tried: list[CompiledProgram] = []
        while following is not None:
            if following.hits >= following.due or not (
                following.is_simple or (following.is_plain and following.is_current())
            ):
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
        return False

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
        program.hits += 1  # as `count` does: most replays from Python pass here
        self.time.overhead.calls += self.time.seconds
        plan = self.plans.get(program)
        if plan is not None:
            plan.limit()

    def shares(self, values: Sequence[Any]) -> bool:
        """Whether arguments are, or share memory with, what the function reads from outside."""
        return any(meet(x, y) for x in values for y in self.outside.values())

    def meets(self, call: CallArguments) -> bool:
        """Whether an argument is what the function reads from outside, or is written and shares memory with that."""
        if any(id(x) in self.outside for x in call.values):
            return True
        return any(p.writes for p in self.programs) and self.shares(call.values)

    def arrays(self) -> list[Array]:
        """Return the arrays from outside that calls have read."""
        read = [x for r in self.pending.values() for x in (*r.sources.values(), *r.refilled)]
        return [x for x in (*read, *[x for p in self.programs for x in p.live]) if isinstance(x, np.ndarray)]

    def _alike(self, recording: Recording) -> tuple[Recording | None, CompiledProgram | None]:
        """Return an earlier call that went the same way, and its program if there is one, which knows fewer bodies.

        Of loops the same numbers were tensors in it.
        """
        earlier = self.pending.pop(recording.path, None)
        if earlier is not None and earlier.numbers == recording.numbers:
            return earlier, None
        known = [p for p in self.programs if p.path == recording.path and p.has_loops]
        program = next((p for p in known if p.recording.numbers == recording.numbers), None)
        return (None, None) if program is None or recording.rolled is None else (program.recording, program)

    def add(self, recording: Recording) -> None:
        """Take in a recorded call: it waits for another that does the same, or completes a program."""
        self._caught += bool(recording.caught)
        self.dynamic = self.dynamic or recording.stopped or (recording.caught if self._caught > MOST_CAUGHT else "")
        if self.dynamic or recording.caught:
            return
        path, self.unrolled = recording.path, recording.unrolled or (self.unrolled if recording.rolled is None else "")
        earlier, replaced = self._alike(recording)
        if earlier is None:
            self.pending[path] = recording
            if len(self.pending) > MOST_PENDING:
                line = recording.guards[-1].line if recording.guards else "no line"
                self.various = f"each call goes another way, by the value that leaves at {line}"
                del self.pending[next(iter(self.pending))]
            return
        differs = difference(earlier, recording)
        if _share_memory(earlier, recording):
            self.dynamic = "the call writes to tensors from outside"
        elif differs and (earlier.drawn or recording.drawn):
            self.dynamic = earlier.drawn or recording.drawn
        elif differs:
            self._differences += 1
            self.pending[path] = recording
            if replaced is not None:
                self.programs.remove(replaced)
            if self._differences >= MOST_DIFFERENCES:
                self.dynamic = f"two calls that went the same way differed: {differs}"
        else:
            self._join(earlier, recording, replaced)

    def _join(self, earlier: Recording, recording: Recording, replaced: CompiledProgram | None) -> None:
        """Make the program of two recordings; one with loops takes the place of that which knew fewer bodies."""
        self.dynamic = earlier.drawn or recording.drawn
        if self.dynamic:
            return
        if recording.rolled is not None and earlier.rolled is not None:
            recording.rolled.join(earlier.rolled)
            if recording.rolled.lacks_bodies(least=2):
                self.pending[recording.path] = recording
                return
        program = self._finish(program_of(earlier, recording))
        program.contents = lambda: self.contents
        if replaced is not None:
            program.hits, program.due = replaced.hits, replaced.due
            self.programs.remove(replaced)
        program.time = self.time
        for least_used in self.programs[MOST_PROGRAMS - 1 :]:
            self.plans.pop(least_used, None)
            self.planned.pop(least_used, None)
        self.programs = [program, *self.programs[: MOST_PROGRAMS - 1]]

    @property
    def recordings(self) -> list[Recording]:
        """The calls that were recorded, as far as later ones are compared with them."""
        return [*self.pending.values(), *[p.recording for p in self.programs]]


def _share_memory(a: Recording, b: Recording) -> bool:
    """Whether two calls wrote to the same memory from outside, or replaced that of the same tensor."""
    touched = {identity_of(x) for x in a.written_outside}
    return any(identity_of(x) in touched for x in b.written_outside)
