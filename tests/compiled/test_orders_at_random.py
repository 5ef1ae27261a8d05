"""Views, writes, loops, joins and calls in random orders: each way to run a program against plain arrays."""

from __future__ import annotations

import ctypes
import os
import subprocess
import textwrap
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning
from tests.compiled.test_compiled_programs_at_random import quiet
from tests.compiled.test_exported_c import COMPILER
from tests.support.random_orders import LENGTH, WEIGHTS, Order, order_of
from tests.support.representatives import examples

IN_THE_SUITE = 60
EXAMPLES = int(os.environ.get("TAPE_ORDER_EXAMPLES", IN_THE_SUITE))
CALLS = (0, 1, 2, 0, 3, 1)
LARGEST = 1e6
RTOL = 1e-9
"""Of the largest result: rounding may grow in the iterations of a program."""
NATIVE = 4
"""Of so many programs one is compiled to machine code, and of as many of these one to C."""
Results = Sequence[Any]
ALL = (0, 1, 2)


def flat(found: Any) -> Results:
    """Return a value and its gradients in a row."""
    return found[0], *found[1]


class Checked:
    """A program, and what dynamic mode gives for it, which is as plain arrays have it."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.arguments = {call: order.arguments(call) for call in set(CALLS)}
        dynamic = tape.value_and_grad(order.function(), ALL)
        self.right = {call: flat(dynamic(*given)) for call, given in self.arguments.items()}
        self.size = max(float(np.abs(x).max()) for found in self.right.values() for x in found)
        self.is_tame = bool(self.size < LARGEST)
        if self.is_tame:
            plain = order.expected(0)
            self.compare(plain[: 1 if order.cuts else None], 0, "plain arrays")

    def compare(self, got: Results, call: int, way: str, right: Results | None = None) -> None:
        """AssertionError where results are others."""
        for k, (one, other) in enumerate(zip(got, self.right[call] if right is None else right, strict=False)):
            np.testing.assert_allclose(
                np.asarray(one).reshape(np.shape(other)), other, rtol=0, atol=RTOL * max(self.size, 1.0),
                err_msg=f"{way}, result {k}, seed {self.order.seed}:\n{self.order.text}",
            )  # fmt: skip

    def check(self, counts: Counter[str], folder: Path, *, native: bool, in_c: bool) -> None:
        """Run the program in each way."""
        self._recorded(counts)
        self._mapped(counts)
        for mode in ("eager", "default", "max") if native else ("eager",):
            function = tape.value_and_grad(self.order.function(tape.compile), ALL)
            compiled = tape.compile(function, mode=mode, check="never")
            for call in CALLS:
                self.compare(flat(compiled(*self.arguments[call])), call, f"compile, {mode}")
            counts[mode] += 1
        self._tensors()
        if native and "machine code" in compiled.explain():
            self._native(compiled, counts)
            if in_c and COMPILER is not None:
                self._c(compiled, folder, counts)

    def _recorded(self, counts: Counter[str]) -> None:
        if self.order.loops or "slope(" in self.order.text:  # tape.record takes no gradient inside
            return
        program = tape.record(self.order.function(), *self.arguments[0])
        for call in CALLS[:4]:
            given = self.arguments[call]
            self.compare([program(*given)], call, "record")
            self.compare(flat(tape.value_and_grad(program, ALL)(*given)), call, "record, with gradients")
        counts["recorded"] += 1

    def _mapped(self, counts: Counter[str]) -> None:
        """Compile the program mapped over several calls' arguments at once."""
        if self.order.loops:  # by values
            return
        compiled = tape.compile(tape.vmap(self.order.function()), mode="eager", check="never")
        for calls in ((0, 1, 2), (1, 3, 0), (2, 0, 3)):
            given = [np.stack([np.asarray(self.arguments[call][k]) for call in calls]) for k in ALL]
            for call, value in zip(calls, compiled(*given), strict=True):
                self.compare([value], call, "compile, vmap")
        counts["mapped"] += 1

    def _tensors(self) -> None:
        """Compile the value alone, of tensors, on which elements are views, and go back in dynamic mode."""
        function = self.order.function()
        compiled = tape.compile(self.order.function(tape.compile), mode="eager", check="never")
        right = {call: self._gone_back(function, call) for call in set(CALLS)}
        for call in CALLS:
            self.compare(self._gone_back(compiled, call), call, "compile, backward", right[call])

    def _gone_back(self, function: Any, call: int) -> Results:
        given = [tape.tensor(x, requires_grad=True) for x in self.arguments[call]]
        value = function(*given)
        value.backward()
        return [value.item(), *[0.0 * x.detach() if x.grad is None else x.grad for x in given]]

    def _native(self, compiled: Any, counts: Counter[str]) -> None:
        native = compiled.native
        for call in CALLS[:3]:
            by = np.zeros(LENGTH), np.zeros(1), np.zeros(WEIGHTS)
            status, value = native(*self.arguments[call], *by)
            if status == 0:  # no guard misses
                self.compare([value, *by], call, "f.native")
                counts["f.native"] += 1

    def _c(self, compiled: Any, folder: Path, counts: Counter[str]) -> None:
        place = folder / f"order{self.order.seed}.c"
        compiled.export_c(place, name="order")
        made = place.with_suffix(".so")
        command = [str(COMPILER), "-std=c99", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run([*command, str(place), "-o", str(made), "-lm"], check=True, capture_output=True, timeout=120)
        function = ctypes.CDLL(str(made)).order
        function.argtypes, function.restype = compiled.ctypes.argtypes, ctypes.c_int64
        for call in CALLS[:3]:
            results = np.zeros(()), np.zeros(LENGTH), np.zeros(()), np.zeros(WEIGHTS)
            if function(*self.arguments[call], *results) == 0:
                self.compare(results, call, "C")
                counts["C"] += 1


def run_seed(seed: int, counts: Counter[str], folder: Path, *, gradients: bool = False) -> None:
    """Check the program of a seed, some of the programs as machine code, too."""
    order = order_of(seed, gradients=gradients)
    run(order, counts, folder, native=seed % NATIVE == 0, in_c=seed % NATIVE**2 == 0)


def run(order: Order, counts: Counter[str], folder: Path, *, native: bool, in_c: bool) -> None:
    """Check a program."""
    with quiet(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CompileWarning)
        checked = Checked(order)
        if not checked.is_tame:
            counts["too large"] += 1
            return
        checked.check(counts, folder, native=native, in_c=in_c)
    for warning in told:
        counts["told: " + str(warning.message).partition(":")[2].partition(" stays ")[2].partition(", at ")[0]] += 1


@examples(12, EXAMPLES)
def test_random_orders(count: int, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(count):
        run_seed(seed, counts, tmp_path, gradients=seed % 2 == 1)
    print(*[f"{count:6} {what}" for what, count in counts.most_common()], sep="\n")  # noqa: T201 (read with -s)
    assert counts["eager"] > 0.8 * count
    assert counts["f.native"] > count // 8
    assert sum(count for what, count in counts.items() if what.startswith("told: ")) < 0.1 * count


FOUND = {
    "a view taken before a constant is written": """
        u = tape.zeros(6)
        v = u[1:-1]
        u[1:4] = x[:3]
        return v.sum()
        """,
    "parts, elements and what is detached, of a constant": """
        u = tape.tensor([[0.3, -0.2, 0.5], [0.1, -0.4, 0.2]])
        a, b, t, f, d = u[1], u[:, 1], u.T, u.reshape(-1), u.detach()
        p = f[$4]
        u[1] += x[1:4]
        return (a * w[:3]).sum() + (b * w[3:5]).sum() + (t * x[:2]).sum() + f.sum() * s + d.sum() * 0.0 + p
        """,
    "a write through a part of what is detached": """
        u = tape.zeros(6)
        v = u.detach()
        v[1:] = x[:5]
        return (u * w[:6]).sum()
        """,
    "a constant that becomes a view of itself": """
        u = tape.zeros(6)
        v = u[None]
        v[0, 1:] = x[1:]
        return (u * w[:6]).sum() + v.sum()
        """,
    "what a loop computed last is written behind it": """
        u = x * 1.0
        for k in range(40):
            u = u * 0.99
        u += u[$1]
        return (u * w[:6]).sum()
        """,
    "what loops in loops computed last": """
        u, v = x[:3] * 1.0, x[3:] * s
        for k in range(5):
            for j in range(3):
                u = u * 0.9 + 0.1 * v
            u[1:] += v[:2]
            v = tape.sin(v + u)
        u *= v
        v -= u[$0]
        return (u * w[:3]).sum() + (v * w[3:6]).sum()
        """,
    "a view from before a loop that a value ends": """
        u = x * 1.0
        v = u[1:]
        e = 1.0 + x[$0] * x[$0]
        while e~ > 0.01:
            e = e * 0.5
        u[1] = 7.0 * s
        return (v * w[:5]).sum() + e
        """,
    "the same in a loop": """
        u = x * 1.0
        for k in range(3):
            v = u[1:]
            e = 1.0 + x[$0] * x[$0]
            while e~ > 0.1:
                e = e * 0.5
            u[1] = v[$2] * s
        return (v * w[:5]).sum() + e
        """,
    "an element, which is a value of a function given arrays, is written": """
        u = x * 0.9
        v = u[$0]
        for k in range(3):
            v[...] += x[$2] * 0.5
            v[...] *= 1.0 + s
        return (u * w[:6]).sum() + v * w[6]
        """,
    "an element of a constant is written": """
        u = tape.ones(6)
        v = u[$0]
        v[...] *= 3.0
        return (u * w[:6]).sum() + v * w[6]
        """,
    "a detached element": """
        u = x * 0.9
        v = u[$0].detach()
        u[0] = 7.0 * s
        return (u * w[:6]).sum() + v * w[6]
        """,
    "a compiled function returns its argument, and a part": """
        u, v = x * 1.0, x * s
        a = scaled(u)
        b = first(v)
        a *= 2.0
        v += 1.0
        return (u * w[:6]).sum() + (a * w[6:12]).sum() + (b * w[:2]).sum()
        """,
}
"""Programs that were wrong once."""
FUNCTIONS = """
@called
def scaled(a):
    a += 0.1 * a * a
    return a
@called
def first(a):
    return a[:2]
"""


@pytest.mark.quick
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_wrong(name: str, tmp_path: Path) -> None:
    text = f"{FUNCTIONS}def f(x, s, w):\n{textwrap.indent(textwrap.dedent(FOUND[name]).strip(), '    ')}\n"
    counts: Counter[str] = Counter()
    run(Order(text, 1), counts, tmp_path, native=True, in_c=False)
    assert counts["max"]
    assert counts["f.native"]
    assert not [what for what in counts if what.startswith("told")]


@pytest.mark.parametrize("mode", ["eager", "default", "max"])
def test_results_share_no_memory_in_any_call(mode: str) -> None:
    """Whether a call is dynamic, recorded, replayed, or made in another function that is recorded."""
    compiled = tape.compile(lambda a: (a, a[1:], a.detach()), mode=mode)

    def within(x: Any) -> Any:
        u = x * 1.0
        seen = compiled(u)
        u += 1.0
        return [part * 1.0 for part in seen]

    outer = tape.compile(within, mode=mode)
    for call in range(6):
        x = tape.tensor([1.0, 2.0, 3.0 + call])
        for found in (compiled(x), outer(x), within(x)):
            expected = [x.tolist(), x[1:].tolist(), x.tolist()]
            x += 0.0
            assert [part.tolist() for part in found] == expected
        with tape.inference_mode():
            seen = compiled(x)
            before = x.tolist()
            x += 1.0
            assert seen[0].tolist() == before
