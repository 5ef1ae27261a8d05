"""Random functions with loops, compiled, against dynamic mode, call by call: values bit for bit, and gradients."""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.representatives import few

EXAMPLES = int(os.environ.get("TAPE_LOOP_EXAMPLES", "300"))
PARTS = 20
NAMES = ("x", "y", "z")
EXPRESSIONS = (
    "{0} * 0.7 + {1} * 0.2", "{0} - {1} * 0.1", "tape.sin({0}) + {1}", "{0} * {1}", "tape.tanh({0} * {1})", "{0}",
    "abs({0}) + 0.5", "w * {0}", "{0} + c", "tape.maximum({0}, {1})", "{0}.clone()", "{0} * {0}", "{0}.detach() * {1}",
    "{0} / (1.0 + {1} * {1})", "tape.where({0} > {1}, {0}, {1} * 2.0)", "{0} + k * 0.0", "tape.tensor(0.5) * {0}",
    "{0} * 0.9 + 0.05 * k", "{0}[..., None].sum(-1)", "({0} * 2.0).reshape({0}.shape)",
)  # fmt: skip


class Text:
    """A random function as text: its loops end, since ``n`` shrinks or ``k`` is bounded."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 (no secret)
        self.lines: list[str] = []

    def function(self) -> str:
        pick = self.chance
        self.put(
            0,
            "def f(a, b, s):",
            "    x, y, z, k = a * 1.0, b * 0.5, a + b, 0",
            "    best = last = x * 0.9",
            "    s = s + tape.tensor(0.0)",
        )
        self.some(1, 2)
        for _ in range(pick.randint(1, 2)):
            self.loop(1, inner=pick.random() < 0.5)
            self.some(1, 1)
        self.put(1, f"return (x * y + z + 0.1 * best + 0.1 * last).sum(){' + k' if pick.random() < 0.15 else ''}")
        return "\n".join(self.lines)

    def put(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def expression(self) -> str:
        return self.chance.choice(EXPRESSIONS).format(self.chance.choice(NAMES), self.chance.choice(NAMES))

    def some(self, depth: int, most: int) -> None:
        for _ in range(self.chance.randint(0, most)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        pick = self.chance
        kind = pick.random()
        if kind < 0.6:
            self.put(depth, f"{pick.choice(NAMES)} = {self.expression()}")
        elif kind < 0.7:
            self.put(depth, "x, y = y, x")
        elif kind < 0.78:
            self.put(depth, f"{pick.choice(NAMES)} = {pick.choice(NAMES)}")
        elif kind < 0.8:
            self.remembered(depth, pick.choice(NAMES))
        elif kind < 0.83:
            self.put(depth, "q = x.clone()", "q *= 0.5", "z = q + z")
        elif kind < 0.86:
            self.put(depth, f"{pick.choice(NAMES)} {pick.choice(('*= 0.9', '+= 0.1 * y', '-= 0.2'))}")
        else:
            self.put(depth, f"if {self.condition()}:", f"    {pick.choice(NAMES)} = {self.expression()}")
            if pick.random() < 0.5:
                self.put(depth, "else:", f"    {pick.choice(NAMES)} = {self.expression()}")

    def remembered(self, depth: int, name: str) -> None:
        """Have another variable hold what one does, at times; some are read behind the loop alone."""
        condition = self.chance.choice((f"{name}.sum() > best.sum()", self.condition()))
        held = self.chance.choice((f"best = {name}", f"best, last = {name}, best", f"last = {name}", f"{name} = best"))
        self.put(depth, f"if {condition}:", f"    {held}")

    def condition(self) -> str:
        pick = self.chance
        return f"{pick.choice(NAMES)}.sum() {pick.choice('<>')} {pick.choice([-0.5, 0.3, 1.0, 2.0])}"

    def loop(self, depth: int, *, inner: bool) -> None:
        pick = self.chance
        head = pick.choice(
            (
                "while n > 0.3:",
                "while True:",
                "while k < 6 and n > 0.2:",
                "for _ in range(6):",
                "for k in range(5):",
                "while not done:",
                "for _ in range(int(s)):",
            )
        )
        self.put(depth, "n = s * 1.5", "k = 0" if pick.random() < 0.7 else "pass")
        self.put(depth, *["done = False"] * (head == "while not done:"), head)
        if head == "while not done:":
            self.put(depth + 1, "n = n * 0.6", f"done = {pick.choice(['bool(n < 0.3)', 'n < 0.3', 'n.item() < 0.3'])}")
        if head == "while True:":
            self.put(depth + 1, "n = n * 0.6", "if n < 0.3:", f"    {pick.choice(['break', 'x = x * 1.1; break'])}")
        for _ in range(pick.randint(1, 4)):
            self.statement(depth + 1)
        if inner:
            self.inner_loop(depth + 1)
        if head.startswith("for") and pick.random() < 0.6:
            self.put(depth + 1, "n = n * 0.5", "if n < 0.2:", "    break")
        elif head not in ("while True:", "while not done:"):
            self.put(depth + 1, "n = n * 0.6")
        if head.startswith("while k") or pick.random() < 0.3:
            self.put(depth + 1, "k += 1")

    def inner_loop(self, depth: int) -> None:
        """Write a loop that ends by a value of its own, after no iteration at times; or after always as many."""
        pick, m = self.chance, f"m{depth}"
        head = pick.choice(
            (f"while {m} > 0.5:", f"while {m} > 0.5:", "while True:", "for _ in range(3):", "while j < 3:")
        )
        begin = pick.choice(
            (f"{m} = n * 1.0", f"{m} = s * 0.2", f"{m} = tape.clamp(abs({pick.choice(NAMES)}).max(), max=9.0)")
        )
        self.put(depth, begin, *["j = 0"] * head.startswith("while j"), head)
        if head == "while True:":
            self.put(depth + 1, f"if {m} < 0.5:", "    break")
        for _ in range(pick.randint(0, 2)):
            self.statement(depth + 1)
        if depth < 4 and pick.random() < 0.3:
            self.inner_loop(depth + 1)
        if head.startswith("for") and pick.random() < 0.5:
            self.put(depth + 1, f"if {self.condition()}:", f"    {pick.choice(['break', 'continue'])}")
        self.put(depth + 1, f"{m} = {m} * 0.5", *["j += 1"] * head.startswith("while j"))
        self.put(depth, f"{pick.choice(NAMES)} = {self.expression()} + 0.1 * {m}")


def _function(seed: int) -> tuple[str, Any]:
    text = Text(seed).function()
    space = {"tape": tape, "w": tape.tensor(0.8), "c": np.array(0.25)}
    exec(compile(text, f"<random {seed}>", "exec"), space)  # noqa: S102 (made above)
    return text, space["f"]


def _results(function: Any, inputs: tuple[Any, ...]) -> list[Any]:
    value, gradients = function(*inputs)
    return [np.asarray(value), *map(np.asarray, gradients)]


@pytest.mark.parametrize("part", few(range(PARTS)))
def test_functions_with_loops(part: int) -> None:
    rolled = 0
    for seed in range(part, EXAMPLES, PARTS):
        text, function = _function(seed)
        dynamic = tape.value_and_grad(function, (0, 1))
        compiled = tape.compile(tape.value_and_grad(function, (0, 1)))
        through = tape.value_and_grad(tape.compile(function), (0, 1))
        chance = np.random.default_rng(seed)
        shape = () if seed % 3 else (3,)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in range(14):
                inputs = (chance.normal(size=shape), chance.normal(size=shape), float(chance.uniform(0.1, 9.0)))
                expected = _results(dynamic, inputs)
                for way in (compiled, through):
                    results = _results(way, inputs)
                    assert results[0].tobytes() == expected[0].tobytes(), (seed, call, text)
                    for g, e in zip(results[1:], expected[1:], strict=True):
                        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-300, err_msg=f"{seed} {call}\n{text}")
        rolled += any(p.has_loops for p in compiled.programs)
    assert rolled > EXAMPLES // PARTS // 4
