"""Random recorded programs through the compiler, against dynamic mode: values, gradients, nan, inf and zeros."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tape
from kernels.compiler import compiling, reverse_text, storage
from kernels.compiler.compiling import Compilation
from kernels.compiler.expansion import Expansion
from kernels.compiler.reverse_text import ReverseText, StencilGather, gather_of
from kernels.compiler.scalar_program import StepLoop
from kernels.compiler.storage import Placement, Storage
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.native.memory import where
from kernels.programs.rolled_program import Uncompiled
from tests.support.quick_compiles import QuickCompilation, honour_marks
from tests.support.random_programs import RandomProgram, program_of
from tests.support.representatives import examples, in_turns

IN_THE_SUITE = 2_000
"""Programs: what some eight minutes are enough for where nothing is cached; of these README's command has few."""
FEW = 24
EXAMPLES = int(os.environ.get("TAPE_PROGRAM_EXAMPLES", IN_THE_SUITE))
SAME = EXAMPLES <= IN_THE_SUITE
"""Whether the programs are the same each time."""
PARTS = 4
LONGEST = 100
"""Steps of a program up to which it is compiled without loops, too."""
MOST_LINES = 6_000
"""Lines of machine code's source up to which random programs are compiled; tests/compiled/test_pieces.py has longer."""
IN_BLOCKS = -1
"""The budget for which all loops that can are in blocks, however short."""
WAYS: tuple[tuple[bool, bool, int | None], ...] = (
    (True, True, None), (True, True, IN_BLOCKS), (False, True, None),
    (True, True, None), (True, True, IN_BLOCKS), (True, False, None),
)  # fmt: skip
"""Whether there are loops, and the reverse, and the budget: one way for a program, for other programs find more."""
QUICK = 4
"""Of so many programs one is optimised as it is for users."""
LARGEST = 1e6
"""Results of programs that are compared are smaller."""
RTOL, FLOOR = 1e-12, 1e-13
"""How far results are apart, at most: relative to the largest element; and to that of all, where it is a difference."""
RTOL_SINGLE, FLOOR_SINGLE = 1e-5, 1e-6
"""The same where something is float32."""
POISON = 0xFF
OVERFLOWS = 1e30  # in single precision, when multiplied
ROOT = Path(__file__).resolve().parents[2]
Array = np.ndarray[Any, Any]


class Outcome(NamedTuple):
    """Results, and the gradient of each argument."""

    values: list[Array]
    gradients: list[Array]


def in_dynamic_mode(program: RandomProgram, arguments: list[Any]) -> Outcome:
    """Return what dynamic mode gives."""
    argnums = tuple(range(len(arguments)))
    found, gradients = tape.value_and_grad(program.function, argnums, has_aux=program.has_aux)(*arguments)
    values = [found[0], *found[1]] if program.has_aux else [found]
    return Outcome([np.asarray(x) for x in values], [np.asarray(g) for g in gradients])


class Comparison:
    """A program in dynamic mode; what compiled code gives for the same arguments is compared with that."""

    def __init__(self, program: RandomProgram, call: int = 0) -> None:
        self.program, self.arguments = program, program.arguments(call)
        self.expected = in_dynamic_mode(program, self.arguments)

    def compare(self, machine: CompiledMachine, *, reverse: bool, poisoned: bool = False) -> None:
        """Run a machine on the arguments; AssertionError where a result is another one.

        ``poisoned``: what the program has not written in this call is nan.
        """
        gradients = self.expected.gradients if reverse else []
        if poisoned:
            for memory in (machine._work, *(memory for memory, _ in machine._exchange)):
                memory.memory[memory.start - where(memory.memory) :][: memory.size] = POISON
            machine.run(self.arguments)
        got = [*machine.outputs, *machine.gradients] if poisoned else machine.whole(self.arguments)
        pairs = zip(got, [*self.expected.values, *gradients], strict=True)
        for number, (got, expected) in enumerate(pairs):
            dtype = expected.dtype if np.ndim(got) == 0 else None  # a machine returns numbers of any dtype as floats
            self._compare(np.asarray(got, dtype), expected, number)

    def _compare(self, got: Array, expected: Array, number: int) -> None:
        count = len(self.expected.values)
        where = f"result {number}" if number < count else f"gradient {number - count}"
        where = f"{where} of {self.program.shape}, seed {self.program.seed}:\n{self.program.text}\n{got}\n{expected}"
        assert got.shape == expected.shape, where
        assert got.dtype == expected.dtype, where
        if got.dtype == np.bool_:
            assert np.array_equal(got, expected), where
            return
        single = "float32" in self.program.dtypes
        if single and self.size() > OVERFLOWS:  # what overflows is inf, or nan, by the order of terms
            both = np.isfinite(got) & np.isfinite(expected)
            got, expected = got[both], expected[both]
        assert np.array_equal(np.isnan(got), np.isnan(expected)), where
        infinite = np.isinf(expected)
        assert np.array_equal(np.isinf(got), infinite), where
        assert np.array_equal(got[infinite], expected[infinite]), where
        if number >= count:
            assert not np.any((got == 0) & (expected == 0) & np.signbit(got) & ~np.signbit(expected)), where
        finite = np.isfinite(expected)
        size = np.abs(expected[finite]).max(initial=0.0)
        apart = np.abs(got[finite] - expected[finite]).max(initial=0.0)
        rtol, floor = (RTOL_SINGLE, FLOOR_SINGLE) if single else (RTOL, FLOOR)
        if apart > rtol * size:
            assert apart <= rtol * size + floor * self.size() + 1000 * self._spread()[number], where

    def size(self) -> float:
        """Return the largest finite element of all results."""
        results = [x.astype(float) for some in self.expected for x in some]
        return max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in results)

    def _spread(self) -> list[float]:
        """Return how far results move if arguments do by one bit."""
        worst = [0.0] * (len(self.expected.values) + len(self.expected.gradients))
        for seed in range(4):
            chance = np.random.default_rng(seed)
            moved = [_moved(np.asarray(x), chance) for x in self.arguments]
            found = in_dynamic_mode(self.program, moved)
            before = [*self.expected.values, *self.expected.gradients]
            for number, (one, other) in enumerate(zip([*found.values, *found.gradients], before, strict=True)):
                if one.dtype != np.bool_:
                    apart = np.abs(one - other)
                    worst[number] = max(worst[number], float(apart[np.isfinite(apart)].max(initial=0.0)))
        return worst


def _moved(x: Array, chance: np.random.Generator) -> Any:
    moved = x * (1.0 + chance.choice([-1.0, 1.0], size=x.shape) * np.finfo(x.dtype).eps)
    return moved if x.ndim else float(moved)


class Uncontracted(Compilation):
    """A program whose products are rounded before they are added to.

    A product that overflows is infinite then, as in dynamic mode: with a fused multiplication and addition the
    difference of two such products may be a number, and is no nan.
    """

    def _loaded(self, source: str) -> Any:
        return super()._loaded(source.replace("CONTRACT = True", "CONTRACT = False"))


class Case:
    """A program, recorded, and what dynamic mode gives in two calls."""

    def __init__(self, program: RandomProgram) -> None:
        with quiet():
            self.calls = [Comparison(program, call) for call in range(2)]
            self.recorded = tape.record(program.function, *self.calls[0].arguments)

    def compiled(
        self, *, roll: bool = True, reverse: bool = True, memory: int | None = None, quick: bool = False
    ) -> Compilation:
        """Compile the program; Uncompiled where the interpreter has to run it."""
        kind = QuickCompilation if quick else Compilation
        return kind(self.recorded._recipe, reverse=reverse, roll=roll, memory=memory)

    def check(
        self, *, roll: bool = True, reverse: bool = True, memory: int | None = None, quick: bool = False
    ) -> Compilation:
        """Compile the program, and compare calls of it: the first again, when memory has been used."""
        compilation = self.compiled(roll=roll, reverse=reverse, memory=memory, quick=quick)
        try:
            self._compare(compilation, reverse=reverse)
        except AssertionError:
            plain = Uncontracted(self.recorded._recipe, reverse=reverse, roll=roll, memory=memory)
            self._compare(plain, reverse=reverse)
        return compilation

    def _compare(self, compilation: Compilation, *, reverse: bool) -> None:
        with quiet():
            machine = CompiledMachine(compilation.code())
            for call in (0, 1, 0):
                self.calls[call].compare(machine, reverse=reverse)
            self.calls[1].compare(machine, reverse=reverse, poisoned=True)

    def is_tame(self) -> bool:
        """Whether no result is so large that rounding is all that remains."""
        return all(call.size() < LARGEST for call in self.calls)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Divide by zero, and the like, without warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def in_blocks(budget: int, expansion: Expansion, place: Callable[[dict[int, int]], Storage]) -> Storage:
    """Return a storage with all loops that can in blocks of a third of their steps."""
    assert budget == IN_BLOCKS
    return place({loop.loop.number: -(-loop.loop.count // 3) for loop in storage._restartable(expansion)})


def run_seed(seed: int, counts: Counter[str]) -> None:
    """Check the program of a seed: with loops, without, in blocks, or forward alone."""
    case = Case(program_of(random.Random(seed), seed))  # noqa: S311 (no secret)
    if not case.is_tame():
        counts["too large"] += 1
        return
    roll, reverse, memory = WAYS[seed // PARTS % len(WAYS)]
    try:
        long, quick = len(case.recorded) > LONGEST, seed // PARTS % QUICK != 0
        compilation = case.check(roll=roll or long, reverse=reverse, memory=memory, quick=quick)
    except Uncompiled as refused:
        counts[f"interpreted: {refused}"] += 1
        return
    counts["with loops" if compilation.program.loops else "without loops"] += 1
    counts["in blocks"] += bool(compilation.storage.blocks)
    counts["with calls"] += "call_kernel(" in compilation.listing()


@pytest.mark.parametrize(
    ("part", "count"),
    [(0, FEW), *(pytest.param(part, EXAMPLES // PARTS, marks=pytest.mark.exhaustive) for part in range(PARTS))],
)
def test_random_programs(part: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, derandomize=SAME, phases=[Phase.generate])
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        run_seed(seed * PARTS + part, counts)

    monkeypatch.setattr(compiling, "storage_within", in_blocks)
    monkeypatch.setattr(compiling, "_LONGEST", MOST_LINES)
    honour_marks(monkeypatch)
    check()
    print(*[f"{number:6} {what}" for what, number in counts.most_common()], sep="\n")  # noqa: T201 (read with -s)
    compiled = counts["with loops"] + counts["without loops"]
    assert counts["with loops"] > count // 4
    assert counts["in blocks"] >= count // 12
    assert counts["with calls"] > count // 12
    assert compiled > 4 * sum(number for what, number in counts.items() if what.startswith("interpreted"))


FOUND: dict[str, tuple[tuple[int, ...], int, str]] = {
    "a part of what was detached": (
        (9, 31), 185,
        """
        return x.detach().reshape(-1)[1]
        """,
    ),
    "a root whose result is written, its gradient cut": (
        (18, 16), 216,
        """
        z = x.sqrt()
        q = x + 0.1
        v = q[1]
        v *= v
        z *= q
        return z[2].sum()
        """,
    ),
    "two names that a loop carries start as one": (
        (3, 3), 227,
        """
        z, a = x, x.reshape(-1)[0]
        for k in range(3):
            x = x * s
            s = tape.logsumexp(tape.stack([a, a]), 0)
            z = 0.3 * z
        return z.mean() + tape.logsumexp(x.reshape(-1), 0)
        """,
    ),
    "a write to a row that a table gives": (
        (7, 5), 272,
        """
        for k in range(8):
            q = x.clone()
            q[k % 3] *= s
        return q.sum()
        """,
    ),
    "what is written is at another place in each step": (
        (2, 2), 254,
        """
        for k in range(6):
            x = 1.2 * x
            x[k % 2] = 0.5
        return tape.logsumexp(x.reshape(-1), 0)
        """,
    ),
    "a loop carries what the step that made it reads": (
        (6, 4, 3), 265,
        """
        a = x
        for k in range(3):
            a = 0.2 * a
            x = x * tape.tanh(w)
            x += a
        return x.reshape(-1)[0]
        """,
    ),
    "elements that a loop carries change places": (
        (3,), 410,
        """
        z = x
        for k in range(9):
            z = tape.cat([z, z]).narrow(0, 1, 3)
            s = x.sum()
        return z[2]
        """,
    ),
    "a call behind a loop reads what a step before the last gave": (
        (3, 5, 3), 1518,
        """
        for k in range(4):
            z, x = (x if k == 0 else z) * y, (x if k == 0 else z)
            y = tape.stack([x, x], -1).mean(-1)
        return tape.cumsum(x, 0).mean() + tape.cumsum(z, 1).sum()
        """,
    ),
    "what begins as one argument, broadcast in steps": (
        (3, 5, 3), 443,
        """
        z = x
        for k in range(3):
            z = tape.sqrt(z)
            x = x * z[2:] - z[:-2] * z[1:-1]
        return x.sum()
        """,
    ),
    "a number that the last step alone is read of": (
        (9, 31), 40003,
        """
        o = x
        for k in range(4):
            o, x = x, x - 0.3 * o
            s = tape.stack([x, x]).mean()
        return tape.logsumexp(x.reshape(-1), 0) + s
        """,
    ),
    "elements that are read in the last step alone": (
        (33,), 40127,
        """
        for k in range(7):
            x = tape.sqrt(y)
            y = tape.broadcast_to(x[:1], y.shape) * 0.5
        return x.sum()
        """,
    ),
    "a power of zero": (
        (20,), 3,
        """
        return (abs(x) ** 1.5).sum()
        """,
    ),
    "an element that was written before a loop writes it": (
        (3,), 2,
        """
        q = x.clone()
        q[1] *= 3.0
        for k in range(4):
            q[1] = q[1] * 0.5 + 1.0
        return q.sum()
        """,
    ),
    "the last nest is of no use": (
        (6, 33), 40602,
        """
        q = x * 1.0
        q[:] = x.sum()
        return x.mean()
        """,
    ),
    "a loop starts from what is detached": (
        (12, 3), 40632,
        """
        z, x = x, x.detach()
        for k in range(8):
            o, x = x, x + 0.1 * z
        return tape.logsumexp(x.reshape(-1), 0)
        """,
    ),
    "rows in one order, and their ends in the other": (
        (6, 33), 1248,
        """
        return (x[:, :1] * tape.flip(x, (0,))).sum()
        """,
    ),
}  # fmt: skip
"""Programs that were compiled wrongly once: the shape of the arrays, the seed of the values, the function's body."""


@pytest.mark.usefixtures("few_passes")
@pytest.mark.parametrize(("name", "roll"), in_turns(FOUND, [True, False]))
def test_what_was_found(name: str, *, roll: bool) -> None:
    shape, seed, body = FOUND[name]
    Case(written(body, shape, seed)).check(roll=roll)


def written(body: str, shape: tuple[int, ...], seed: int) -> RandomProgram:
    """Return a program that is written here."""
    return RandomProgram("def f(x, y, s, w, weights):\n" + body.rstrip(), shape, seed)


STENCILS = """
        for k in range(5):
            x = x + 0.3 * tape.cat([x[:1], x[2:] - 2.0 * x[1:-1] + x[:-2], x[-1:]]) * y
        return x.square().mean()
"""
SMALL = """
        for k in range(6):
            x = tape.tanh(x * y) + x[:1] * 0.1
        return x.square().mean()
"""


def _gathers_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather ends one step too early at both ends of an axis."""
    most = StencilGather.most.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(StencilGather, "most", property(lambda self: tuple(n - 1 for n in most(self))))


def _gathers_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather goes to the elements beside those that were read."""

    def beside(*given: Any) -> StencilGather | None:
        gather = gather_of(*given)
        if gather is None:
            return None
        groups = [group._replace(constant=group.constant + 8) for group in gather.groups]
        return gather._replace(groups=groups)

    monkeypatch.setattr(reverse_text, "gather_of", beside)


def _saves_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is saved, the last step's is left."""
    save = Storage._save

    def one_step(self: Storage, names: list[str]) -> None:
        save(self, names)
        for name in names:
            home, terms = self.places[name]
            self.places[name] = home, tuple(term for term in terms if term[0][0] != "k")

    monkeypatch.setattr(Storage, "_save", one_step)


def _saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step read is taken for what it has become: rows of histories are one."""
    placed = Storage._placed

    def one_row(self: Storage, *args: Any, **kwargs: Any) -> Placement:
        home = placed(self, *args, **kwargs)
        home.rows = [(loop, 0) for loop, _ in home.rows]
        return home

    monkeypatch.setattr(Storage, "_placed", one_row)


def _swaps_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reverse takes the rows of a step that alternate for each other."""
    step = ReverseText._step

    def swapped(self: ReverseText, item: StepLoop, *more: Any) -> None:
        def indices(item: StepLoop) -> None:
            self.text.double_buffer(f"o{item.loop.number}", item.index, f"e{item.loop.number}")

        vars(self.forward.loops)["put_double_buffer_indices"] = indices
        step(self, item, *more)
        vars(self.forward.loops).pop("put_double_buffer_indices", None)

    monkeypatch.setattr(ReverseText, "_step", swapped)


PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], int, str]] = {
    "too few": (_gathers_too_few, 20, STENCILS),
    "beside": (_gathers_beside, 20, STENCILS),
    "one step": (_saves_one_step, 3, SMALL),
    "one row": (_saves_nothing, 20, STENCILS),
    "swapped": (_swaps_rows, 20, STENCILS),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    plant, size, body = PLANTED[fault]
    case = Case(written(body, (size,), 2))
    sound = case.check().source()
    plant(monkeypatch)
    assert case.compiled().source() != sound
    with pytest.raises(AssertionError, match="seed 2"):
        case.check()


GUARDED = """
import sys, warnings
from collections import Counter
from collections.abc import Callable, Iterator
sys.path.insert(0, {root!r})
from tests.compiled.test_compiled_programs_at_random import run_seed
from kernels.machine_code.compiled_machine import DEBUG
assert DEBUG
counts = Counter()
for seed in range({count}):
    run_seed(1000 + seed, counts)
print(counts["with loops"] > {count} // 6, counts["without loops"] > {count} // 6)
"""


@examples(6, 24 * max(1, EXAMPLES // IN_THE_SUITE))
def test_programs_stay_within_their_memory(count: int) -> None:
    code = GUARDED.format(root=str(ROOT), count=count)
    environment = {**os.environ, "TAPE_DEBUG": "1", "TAPE_QUIET": "1"}
    process = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment)
    assert (process.stderr, process.stdout) == ("", "True True\n")
