"""Random programs of nested loops, rolled and run step by step; and the checks themselves, by planted faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tape
from kernels.compiler import roll as rolling
from kernels.programs.rolled_program import Index, Ref, RolledInstruction
from tests.programs.test_roll import STEP, agreed, of
from tests.support.representatives import examples
from tests.support.rolled_reference import Reference, differences

DEEPEST = 3
PLAIN = {
    "total": "total = total + s",
    "steps": "steps.append(s)",
    "swap": "u, v = v, u * 0.9 + v * 0.1",
    "fresh": "w = u = u * 1.0",
    "part": "u[1:3] = u[:2] * 0.5",
    "sum": "u[2:] += v[:2]",
    "detach": "s = s * 0.5 - s.detach() * 0.125",
    "read": "s = s * 0.5 + (steps[-1] if steps else s) * 0.25 + (steps[0] if steps else s) * 0.125",
}
"""Statements that are always the same."""


class Writer:
    """Draws the text of a function, statement by statement."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines = ["def fun(data, u, v):", "    u, v, s, steps, total = u * 1.0, v * 1.0, data[0, 1], [], 0.0"]
        self.depth = 0

    def one(self, *of: Any) -> Any:
        """Return one of several."""
        return self.draw(st.sampled_from(of))

    def put(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * (self.depth + 1) + text)

    def expression(self) -> str:
        """Return an array of four."""
        a, b = (self.one("u", "v", "data[0]", "data[2]", *self.indexed()) for _ in range(2))
        form = self.one("{a} * 0.5 + {b} * 0.25", "tanh({a} - {b})", "{a} * s - {b}", "cat([{a}[1:], {b}[:1]])", "{b}")
        return str(form).format(a=a, b=b)

    def indexed(self) -> list[str]:
        """Return parts that move with the loops around."""
        return [f"data[i{k} % 3]" for k in range(self.depth)]

    def scalar(self) -> str:
        """Return a scalar."""
        index = f"data[i{self.depth - 1} % 3, 2]" if self.depth else "data[1, 1]"
        number = f"0.1 * i{self.depth - 1}" if self.depth else "0.3"
        parts = (index, "u[1]", "(u * v).sum()", "s * 0.5", f"s * ({number})", "s + 0.125")
        return f"{self.one(*parts)} - {self.one(*parts)}"

    def statement(self) -> None:
        """Append a statement."""
        kind = self.one("u", "v", "s", "write", "if", "loop", "loop", *PLAIN)
        inner = f"i{self.depth - 1}"
        if kind in ("u", "v"):
            self.put(f"{kind} = {self.expression()} * 1.0")
        elif kind == "s":
            self.put(f"s = {self.scalar()}")
        elif kind == "write":
            self.put(f"{self.one('u', 'w')}[{self.one('1:3', '0', ':2')}] = {self.one('s', '0.5', 'v[2]')}")
        elif kind == "if":
            self.put(f"if {inner} % {self.one(2, 3)} == 0: s = s * 0.75" if self.depth else "pass")
        elif kind == "loop":
            self.loop()
        else:
            self.put(PLAIN[kind])

    def loop(self) -> None:
        """Append a loop: over numbers, or over what is in the list."""
        if self.depth == DEEPEST:
            return
        over = self.one("range({})", "range({})", "range({})", "range(min(len(steps), 7))")
        self.put(f"for i{self.depth} in {over.format(self.one(3, 4, 5, 7))}:")
        self.depth += 1
        self.put("pass")
        for _ in range(self.draw(st.integers(1, 4))):
            self.statement()
        if "len(steps)" in over:
            self.put(f"s = s * 0.5 + steps[i{self.depth - 1}]")
        self.depth -= 1

    def text(self) -> str:
        """Return the whole function."""
        self.put("w = u")
        for _ in range(self.draw(st.integers(2, 5))):
            self.statement()
        self.loop()
        self.put("last = sum(steps, 0.0)")
        self.put("return (u * v).sum() + s + total + last + w.sum()")
        return "\n".join(self.lines)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a function's text."""
    return Writer(draw).text()


@examples(40, 150, pytest.mark.quick)
def test_random_programs(count: int) -> None:
    settings(max_examples=count)(check)()


@given(texts())
def check(text: str) -> None:
    space: dict[str, Any] = {"tanh": tape.tanh, "cat": tape.cat}
    exec(text, space)  # noqa: S102 (drawn above)
    data = np.linspace(0.2, 0.9, 12).reshape(3, 4) ** 2
    arguments = data, np.linspace(-0.5, 0.5, 4), np.array([0.3, -0.2, 0.7, 0.1])
    before = rolling.LEAST_ROWS, rolling.LEAST_ROWS_WITHIN
    try:
        rolling.LEAST_ROWS, rolling.LEAST_ROWS_WITHIN = 3, 3
        agreed(space["fun"], *arguments)
    finally:
        rolling.LEAST_ROWS, rolling.LEAST_ROWS_WITHIN = before


def _columns(data: Any, x: Any) -> Any:
    for i in range(12):
        x = x * data[:, i] + i * STEP
    return x.sum()


@pytest.mark.quick
def test_an_offset_that_is_wrong_by_one_is_seen() -> None:
    data, x = np.linspace(0.5, 1.5, 60).reshape(3, 20), np.ones(3)
    program, straight = of(_columns, data, x), of(_columns, data, x, roll=False)
    expected = Reference(program).outputs(data, x)
    (loop,) = program.loops
    at, product = next(
        (k, i) for k, i in enumerate(loop.body) if isinstance(i, RolledInstruction) and len(i.operands) > 1
    )
    part = product.operands[1]
    assert isinstance(part, Ref)
    moved = part._replace(offset=part.offset._replace(constant=part.offset.constant + 8))
    loop.body[at] = RolledInstruction(
        product.op, product.params, product.form, (product.operands[0], moved), product.result, None, product.line
    )
    assert (Reference(program).outputs(data, x)[0] != expected[0]).all()
    assert differences(program, straight)


@pytest.mark.quick
def test_a_part_that_leaves_its_memory_is_seen() -> None:
    data, x = np.linspace(0.5, 1.5, 36).reshape(3, 12), np.ones(3)
    program = of(_columns, data, x)
    (loop,) = program.loops
    product = loop.body[0]
    assert isinstance(product, RolledInstruction)
    part = product.operands[1]
    assert isinstance(part, Ref)
    moved = part._replace(offset=Index(8, part.offset.terms))
    product.operands = (product.operands[0], moved)
    with pytest.raises(AssertionError, match="ends behind"):
        Reference(program).outputs(data, x)


@pytest.mark.quick
def test_a_gradient_that_is_lost_is_seen() -> None:
    data, x = np.linspace(0.5, 1.5, 36).reshape(3, 12), np.ones(3)
    program, straight = of(_columns, data, x), of(_columns, data, x, roll=False)
    product = program.loops[0].body[0]
    assert isinstance(product, RolledInstruction)
    assert isinstance(product.operands[0], Ref)
    product.operands = (product.operands[0]._replace(wanted=False), product.operands[1])
    assert differences(program, straight)
