"""Random programs of a few steps in any order: views, writes, loops of each kind, joins, calls, gradients inside.

Each is printed twice: for tensors, and for plain arrays, whose derivatives are complex steps. The memory that the steps
work on was made inside of constants, is computed of the arguments, is an argument, or is from outside.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import tape

Array = np.ndarray[Any, Any]
LENGTH = 6
"""Elements of each array that a program begins with."""
WEIGHTS = 40
STEP = 1e-30
MADE = (
    "tape.zeros(6)", "tape.ones(6)", "tape.tensor([0.3, -0.2, 0.5, 0.1, -0.4, 0.2])", "tape.zeros((2, 3))",
    "tape.tensor([[0.3, -0.2, 0.5], [0.1, -0.4, 0.2]])",
)  # fmt: skip
COMPUTED = ("x * 0.9", "x.clone()", "tape.sin(x)", "x.reshape(2, 3) * s", "x.reshape(3, 2).clone()")
READ = ("x", "outer", "x.reshape(2, 3)", "grid")
"""What is read alone: an argument that requires grad, and tensors from outside."""
VECTOR_VIEWS = ("[1:-1]", "[2:]", "[:-1]", "[::2]", "[1:]", ".reshape(-1)", ".detach()", "[None]", "[$0]", "[$1]")
MATRIX_VIEWS = ("[1]", "[0]", ".T", "[:, 1]", "[:, 1:]", ".reshape(-1)", ".detach()", "[1:]", "[..., ::2]")
ELEMENT_VIEWS = ("[None]", ".detach()", ".reshape(1)")
CALLS: dict[str, tuple[str, str]] = {
    "curve": ("tape.sin({0}) * 0.7 + {0} * 0.2", "{0}"),
    "grown": ("{0}", "{0} += 0.1 * {0} * {0}"),
    "first": ("{0}[:1]", "{0}"),
    "spread": ("{1}", "{1} = tape.zeros(6); {2} = {1}[2:]; {1}[1:4] = {0}.sum() * 0.1; {1} = {2} + {0}.sum() * 0.1"),
}
"""Functions that are called, as their result and what comes before it."""


class Order:
    """A program as two texts, and its functions by name of the library."""

    def __init__(self, text: str, seed: int) -> None:
        self.text, self.seed = text, seed
        self.cuts, self.loops = ".detach()" in text, "while" in text or "break" in text

    def function(self, compiled: Callable[[Any], Any] | None = None) -> Any:
        """Return the program of tensors; the functions that it calls are compiled, or copy results as those do."""
        compiled = compiled or (lambda f: lambda a: f(a).clone())
        return _function(tensors_text(self.text), self.seed, {"tape": tape, "called": compiled, **outside()})

    def plain(self) -> Any:
        """Return the program of arrays."""
        space = {"np": np, "called": lambda f: lambda a: np.array(f(a)), "outer": OUTER + 0j, "grid": GRID + 0j}
        return _function(plain_text(self.text), self.seed, space)

    def arguments(self, call: int) -> tuple[Array, float, Array]:
        """Return the arguments of a call: ``x``, ``s``, and weights."""
        chance = np.random.default_rng([self.seed, call])
        return chance.normal(size=LENGTH) * 0.6, float(chance.normal() * 0.5), chance.normal(size=WEIGHTS)

    def expected(self, call: int) -> tuple[float, Array, float, Array]:
        """Return what plain arrays give, and the derivatives by complex steps, which detaching does not cut."""
        x, s, w = self.arguments(call)
        run, value = self.plain(), 0.0
        points: list[tuple[Array, Any, Array]] = []
        for k in range(LENGTH + 1 + WEIGHTS):
            moved = np.concatenate([x, [s], w]).astype(complex)
            moved[k] += STEP * 1j
            points.append((moved[:LENGTH], moved[LENGTH], moved[LENGTH + 1 :]))
        found = [complex(run(*point)) for point in points]
        value, slopes = found[0].real, np.array([z.imag / STEP for z in found])
        return value, slopes[:LENGTH], float(slopes[LENGTH]), slopes[LENGTH + 1 :]


OUTER = np.array([0.2, -0.3, 0.4, 0.1, 0.6, -0.5])
GRID = np.array([[0.1, 0.5, -0.2], [0.4, -0.6, 0.3]])


def outside() -> dict[str, Any]:
    """Return the tensors from outside, and the gradients that programs take."""
    return {
        "outer": tape.tensor(OUTER),
        "grid": tape.tensor(GRID),
        "slope": tape.func.grad(lambda a: (a * a * a).sum()),
    }


def _function(text: str, seed: int, space: dict[str, Any]) -> Any:
    exec(compile(text, f"<order {seed}>", "exec"), space)  # noqa: S102 (made here)
    return space["f"]


FILLED = """
def value(a):
    return a if np.ndim(a) else np.complex128(a)
slope = lambda a: 3 * a * a
def filled(a, value):
    if not np.ndim(a):
        return np.complex128(value)
    a[...] = value
    return a
"""
_NO_MARKS = {ord(mark): None for mark in "$~{}"}
"""Marks: of an index that gives an element, a number that is compared, and what is NumPy's scalar if it has no dims."""


def tensors_text(text: str) -> str:
    """Print a program for tensors."""
    return re.sub(r"each\((\w+)\)", r"\1", text.translate(_NO_MARKS))


def plain_text(text: str) -> str:
    """Print a program for arrays, in which all of a number is written, too."""
    text = re.sub(
        r"(\w+)\[\.\.\.\] ([-+*]?)= (.*)", lambda m: f"{m[1]} = filled({m[1]}, {m[2] and m[1]} {m[2]} ({m[3]}))", text
    )
    text = re.sub(r"each\((\w+)\)", r"\1", text.translate({ord("$"): None}))
    text = re.sub(r"tape\.(zeros|ones|tensor)\((.*?)\)(?=$|\n|;)", r"np.\1(\2, dtype=complex)", text)
    text = text.replace("np.tensor", "np.array").replace(".clone()", ".copy()").replace(".detach()", "[...]")
    text = text.replace("tape.cat", "np.concatenate").replace("~", ".real").replace("tape.", "np.")
    text = text.replace("{", "value(").replace("}", ")")
    return FILLED + text


class OrderText:
    """Makes a program of up to five steps."""

    def __init__(self, chance: random.Random, *, gradients: bool = False) -> None:
        self.chance, self.gradients = chance, gradients
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.fixed: set[str] = set()
        """Names of what is not written."""
        self.rows: list[str] = []
        self.count = 0
        self.called: set[str] = set()

    def order(self, seed: int) -> Order:
        """Return the program."""
        pick = self.chance
        for form in (pick.choice(MADE), pick.choice(COMPUTED), pick.choice(MADE + COMPUTED + READ)):
            self._begin(form)
        for _ in range(pick.randint(2, 5)):
            self._step(1)
        names = [name for name in self.shapes if pick.random() < 0.8] or [*self.shapes]
        totals, at = [], 0
        for name in names:
            size = int(np.prod(self.shapes[name]))
            at = at if at + size <= WEIGHTS else 0
            weights = f"w[{at}:{at + size}]"
            totals.append(f"({name}.reshape(-1) * {weights}).sum()")
            at += size
        self._put(1, "return " + " + ".join(totals))
        head = [line for name in CALLS if name in self.called for line in _called(name)]
        return Order("\n".join([*head, "def f(x, s, w):", *self.rows, ""]), seed)

    def _put(self, depth: int, row: str) -> None:
        self.rows.append("    " * depth + row)

    def _fresh(self, shape: tuple[int, ...], letter: str = "u") -> str:
        self.count += 1
        self.shapes[f"{letter}{self.count}"] = shape
        return f"{letter}{self.count}"

    def _begin(self, form: str) -> None:
        shape = (2, 3) if "2, 3" in form or "[[" in form or form == "grid" else (3, 2) if "3, 2" in form else (6,)
        name = self._fresh(shape)
        self._put(1, f"{name} = {form}")
        if form in READ:
            self.fixed.add(name)

    def _name(self, *, written: bool = False) -> str:
        names = [name for name in self.shapes if not (written and name in self.fixed)]
        return self.chance.choice(names[-3:] if self.chance.random() < 0.5 else names)

    def _step(self, depth: int) -> None:
        steps = [self._view, self._view, self._write, self._write, self._write, self._join, self._rebind, self._call]
        if depth < 3:
            steps += [self._loop] * (4 if depth == 1 else 1)
        if self.gradients:
            steps.append(self._gradient)
        self.chance.choice(steps)(depth)

    def _view(self, depth: int) -> None:
        name = self._name()
        shape, pick = self.shapes[name], self.chance
        if len(shape) == 1 and 1 < shape[0] < 5 and pick.random() < 0.3:
            names = [self._fresh((), "v") for _ in range(shape[0])]
            self._put(depth, f"{', '.join(names)} = each({name})")
        else:
            views = ELEMENT_VIEWS if not shape else VECTOR_VIEWS if len(shape) == 1 else MATRIX_VIEWS
            fits = [(v, s) for v in views for s in [_shape_of(shape, v)] if s is not None]
            view, seen = pick.choice(fits)
            names = [self._fresh(seen, "v")]
            self._put(depth, f"{names[0]} = {name}{view}")
        if name in self.fixed:
            self.fixed.update(names)

    def _value(self, shape: tuple[int, ...]) -> str:
        """Return an expression that fits a shape."""
        pick = self.chance
        alike = [name for name, other in self.shapes.items() if other == shape]
        kind = pick.random()
        if alike and kind < 0.5:
            form = ("{0} * 0.7", "tape.sin({0})", "{0}", "{0} * s + 0.1", "0.5 * {0} * {1} - 0.3", "{0} + {1}")
            return pick.choice(form).format(pick.choice(alike), pick.choice(alike))
        if len(shape) == 1 and shape[0] <= LENGTH and kind < 0.75:
            at = pick.randint(0, LENGTH - shape[0])
            return f"x[{at}:{at + shape[0]}] * {pick.choice(('0.8', 's', 'x[$1]'))}"
        return pick.choice(
            ("0.4", "s", "x[$2] * 0.5", f"{self._name()}.sum() * 0.1", f"tape.sin({self._name()}.sum())")
        )

    def _write(self, depth: int) -> None:
        if not set(self.shapes) - self.fixed:
            return
        name, pick = self._name(written=True), self.chance
        shape = self.shapes[name]
        keys = ("", "[...]") if not shape else ("", "[...]", "[1:]", "[:1]", "[-1:]", "[:-1]") if len(shape) == 1 else (
            "", "[...]", "[1]", "[:, 0]", "[1:]", "[0, 1:]")  # fmt: skip
        key = pick.choice(keys)
        part = _shape_of(shape, key) if key else shape
        if part is None:
            return
        if len(shape) == 1 and pick.random() < 0.2:
            key, part = f"[{pick.randint(0, shape[0] - 1)}]", ()
        sign = pick.choice(("=", "+=", "*=")) if key else pick.choice(("+=", "*=", "-="))
        value = f"tape.sin({self._value(part)})" if sign == "*=" else self._value(part)
        if value[0].isdigit() and sign == "*=":
            value = "0.5"
        self._put(depth, f"{name}{key} {sign} {value}")

    def _rebind(self, depth: int) -> None:
        name, pick = self._name(written=True), self.chance
        form = pick.choice(("{0} * 0.99", "tape.sin({0})", "0.9 * {0} + 0.01", "{0}.clone()", "{0} + {0}.sum() * 0.01"))
        value = form.format(name)
        self._put(depth, f"{name} = {value}" if self.shapes[name] else f"{name} = {{{value}}}")

    def _join(self, depth: int) -> None:
        one = self._name()
        shape = self.shapes[one]
        other = self.chance.choice([name for name, known in self.shapes.items() if known == shape])
        if len(shape) == 1 and shape[0] < 10:
            self._put(depth, f"{self._fresh((2 * shape[0],))} = tape.cat([{one}, {other}])")
        elif len(shape) < 2:
            self._put(depth, f"{self._fresh((2, *shape))} = tape.stack([{one}, {other}])")

    def _call(self, depth: int) -> None:
        pick = self.chance
        function, name = pick.choice([*CALLS]), self._name(written=True)
        shape = self.shapes[name]
        if function == "first" and len(shape) != 1:
            function = "curve"
        self.called.add(function)
        result = {"first": (1,), "spread": (4,)}.get(function, shape)
        self._put(depth, f"{self._fresh(result, 'v' if function == 'first' else 'u')} = {function}({name})")

    def _gradient(self, depth: int) -> None:
        name = self._name()
        self._put(depth, f"{self._fresh(self.shapes[name])} = {{slope({name})}}")

    def _loop(self, depth: int) -> None:
        """Write a loop: of a fixed number of iterations, ended by a value, or left by a break."""
        pick = self.chance
        kind, e = pick.choice(("range", "range", "while", "while", "break")), self._number()
        known, fixed = dict(self.shapes), set(self.fixed)
        begin = f"{e} = 1.0 + 0.3 * tape.sin({self._name()}.sum())"
        if kind == "range":
            self._put(depth, f"for k{depth} in range({pick.choice((2, 3, 12) if depth > 1 else (2, 3, 12, 40))}):")
        elif kind == "while":
            self._put(depth, begin)
            self._put(depth, f"while {e}~ > 0.3:")
            self._put(depth + 1, f"{e} = {e} * 0.7")
        else:
            self._put(depth, begin)
            self._put(depth, f"for k{depth} in range(9):")
            self._put(depth + 1, f"{e} = {e} * 0.7")
        start = len(self.rows)
        for _ in range(pick.randint(1, 2 if depth > 1 else 3)):
            self._step(depth + 1)
        if len(self.rows) == start:
            self._put(depth + 1, f"{e} = 0.9 * {e}" if kind != "range" else "s = 0.9 * s")
        if kind == "break":
            self._put(depth + 1, f"if {e}~ < 0.4:")
            self._put(depth + 2, "break")
        if pick.random() < 0.5:  # what was made in the loop is not read behind it
            self.shapes, self.fixed = known, fixed

    def _number(self) -> str:
        self.count += 1
        return f"e{self.count}"


def _shape_of(shape: tuple[int, ...], view: str) -> tuple[int, ...] | None:
    """Return the shape of a view; None if there is none, or it has no elements."""
    try:
        seen = eval(f"a{view.replace('$', '').replace('.detach()', '')}", {"a": np.zeros(shape), "None": None})  # noqa: S307
    except IndexError:
        return None
    return np.shape(seen) if np.size(seen) else None


def _called(name: str) -> list[str]:
    result, before = CALLS[name]
    rows = before.format("a", "b", "c").split("; ")
    return [
        "@called",
        f"def {name}(a):",
        *[f"    {row}" for row in rows if row != "a"],
        f"    return {result}".format("a", "b"),
    ]


def order_of(seed: int, *, gradients: bool = False) -> Order:
    """Return a random program."""
    return OrderText(random.Random(seed), gradients=gradients).order(seed)  # noqa: S311 (no secret)
