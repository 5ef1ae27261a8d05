"""Random programs with loops that a value ends: one after the other, with loops and branches inside."""

from __future__ import annotations

import random
from typing import ClassVar

from tests.support.random_programs import RandomProgram, Text

ENDS: tuple[tuple[str, str, str], ...] = (
    ("{t} = 0.0 * s", "{t} < {m}", "{t} = {t} + 1.0"),
    ("{t} = s * s", "{t} < {m}", "{t} = {t} + 0.4 + 0.3 * tape.tanh({a}) ** 2"),
    ("{t} = 0.1 * {a}", "{t} < {m}", "{t} = {t} + 0.6 + 0.2 * tape.sin({x}).mean()"),
    ("{t} = 1.0 + s * s", "{t} > 0.07", "{t} = {t} * 0.6"),
    ("{t} = 1.0 + abs({a})", "{t} > 0.1", "{t} = {t} * (0.5 + 0.1 * tape.tanh({a}))"),
    ("{t} = {x} * {x} + 0.2", "({t} * {t}).sum() > 0.01", "{t} = {t} * (0.5 + 0.1 * tape.tanh({x}))"),
    ("{t} = tape.sin({x}) + 0.1", "tape.amax(abs({t})) > 0.2", "{t} = {t} * 0.7 - 0.05 * tape.sin({t})"),
    ("{t} = {x} * 1.0", "abs({t}).mean() > 0.02 + 0.1 * abs({m})", "{t} = 0.6 * tape.tanh({t})"),
    ("{t} = {x}", "0.2 < abs({t}).sum()", "{t} *= 0.6"),
)  # fmt: skip
"""What ends a loop: the first value of ``t``, the condition, and what becomes of ``t``."""
BRANCHES = ("{a} > 0.0", "{x}.mean() < 0.1 * {a}", "tape.sin(9.0 * {a}) > 0.2", "abs({a}) + s < 0.5", "{x}.sum() > {a}")
"""Conditions on which an iteration goes one way or another."""
LIMITS = ("8.0 * abs(s)", "6.0 * s", "5.0 * abs({a})", "3.3 + s", "9.0 * abs(tape.sin({x}).mean())", "0.7")


class WhileText(Text):
    """Makes a program; its outermost loops end by a value, as often after no iteration as after some."""

    share: ClassVar = 0.1
    numbers_of_loops: ClassVar = (1, 1, 2)

    def loop(self, depth: int, counts: tuple[str, ...]) -> None:
        """Write a loop that a value ends, or inside of one a counted loop."""
        if counts or depth > 1:
            super().loop(depth, counts)
        elif self.chance.random() < 0.25:
            self.repeated_loop()
        else:
            self.ended_loop(1)

    def repeated_loop(self) -> None:
        """Write loops that values end in steps whose number counts."""
        k, a = self.fresh("k"), self.name_of_scalar()
        self.put(1, f"for {k} in range({self.chance.choice((3, 4, 7))}):")
        self.some(2, 1, 2, (k,))
        self.put(2, f"{a} = 0.9 * {a} + 0.05 * {k}")
        self.ended_loop(2)
        self.some(2, 0, 1, (k,))

    def ended_loop(self, depth: int) -> None:
        """Write a loop that a value ends; what one inside of another does may be little, or it has branches, too."""
        pick = self.chance
        t, m = self.fresh("t"), self.fresh("m")
        begin, condition, step = pick.choice(ENDS)
        names = {"t": t, "m": m, "a": self.name_of_scalar(), "x": self.name()}
        self.put(depth, f"{m} = {pick.choice(LIMITS).format(**names)}", begin.format(**names))
        if depth > 1:  # what grows from loop to loop is bounded: loops end
            self.put(depth, f"{t}, {m} = 3.0 * tape.tanh({t}), 9.0 * tape.tanh({m} + 0.0 * s)")
        if step.startswith("{t} *="):
            self.put(depth, f"{t} = {t}.clone()" if self.shape else f"{t} = {t} * 1.0")
        self.put(depth, f"while {condition.format(**names)}:")
        before = len(self.lines)
        self.some(depth + 1, 1, 3 if depth == 1 else 1)
        for _ in range(pick.choice((0, 0, 0, 1, 1, 2)) if depth == 1 else pick.random() < 0.3):
            self.branch(depth + 1)
        if pick.random() < 0.35 / depth:
            histories = list(self.histories)
            self.inner_loop(depth + 1)
            self.histories = histories
        self.lines.insert(pick.choice((before, len(self.lines))), "    " * (depth + 1) + step.format(**names))
        if pick.random() < 0.5:
            self.put(depth, f"a = 0.5 * a + 0.1 * {t}" if begin.count("{x}") == 0 else f"a = 0.5 * a + {t}.mean()")

    def condition(self) -> str:
        """Return a condition."""
        return self.chance.choice(BRANCHES).format(a=self.name_of_scalar(), x=self.name())

    def branch(self, depth: int) -> None:
        """Write what an iteration does on a condition alone, or as often as another value says."""
        kind = self.chance.random()
        if kind < 0.35:
            if depth < _DEEPEST:
                self.ended_loop(depth)
            return
        self.put(depth, f"if {self.condition()}:")
        self.some(depth + 1, 1, 2)
        if kind < 0.75:
            self.put(depth, "else:" if kind < 0.6 else f"elif {self.condition()}:")
            self.some(depth + 1, 1, 2)
        elif kind < 0.85:
            self.put(depth + 1, "break")

    def inner_loop(self, depth: int) -> None:
        """Write a counted loop inside of one that a value ends; where it has a choice, it is a loop of its own."""
        pick, k = self.chance, self.fresh("k")
        count = pick.choice((2, 3, 5, 12))
        self.put(depth, f"for {k} in range({count}):")
        self.some(depth + 1, 1, 2, (k,))
        if pick.random() < 0.4:
            self.put(depth + 1, f"if {self.condition()}:")
            self.some(depth + 2, 1, 1)
            if pick.random() < 0.3:
                self.put(depth + 2, "break")


_DEEPEST = 4
"""The depth up to which loops stand in others."""


def while_program_of(chance: random.Random, seed: int) -> RandomProgram:
    """Return a random program whose loops end by values."""
    return WhileText(chance).program(seed)
