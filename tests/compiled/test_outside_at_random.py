"""Random functions that read what is outside, and change it, compiled, against dynamic mode: results and what is left.

Two copies of a world are changed alike between calls; in one the function is compiled. A function may stay in dynamic
mode, but never computes with what the world was before.
"""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tape
from tests.support.representatives import examples

EXAMPLES = int(os.environ.get("TAPE_COMPILE_EXAMPLES", "2000"))
CALLS = 14
WORLD = """
import collections, itertools, random

class Model:
    rate = 0.5
    limit = 3

    def __init__(self):
        self.scale, self.count, self.seen, self.last = 2.0, 0, [], None
        self.weights = {"a": 1.0, "b": [0.5, 0.25]}

    def step(self, x):
        return x * self.scale

    @property
    def twice(self):
        return self.scale * 2

    def __len__(self):
        return self.count

class Slotted:
    __slots__ = ("value",)

def helper(x, by=0.3, *, more=0.1):
    return x * by + number + more

def closed():
    cell = 0.4

    def inner(x):
        return x * cell

    def set_cell(value):
        nonlocal cell
        cell = value

    return inner, set_cell

inner, set_cell = closed()
model, slotted, number = Model(), Slotted(), 0.7
slotted.value = 0.3
table, names, flags, pair = [0.5, 1.5], {"k": 1.0}, {"on"}, (0.5, [0.25])
array, tensor, stack = np.array([1.0, -2.0, 0.5]), tape.tensor([0.5, 1.5, -1.0]), collections.deque([1.0, 2.0])
numbers, chance, rng = itertools.cycle([1.0, 2.0, 3.0]), random.Random(1), np.random.default_rng(1)
"""
READS = (
    "x = x * number", "x = helper(x)", "x = inner(x)", "x = x + model.scale", "x = model.step(x)",
    "x = x * model.twice", "x = x * Model.rate", "x = x * model.rate", "x = x + model.weights['b'][1]",
    "x = x * table[1]", "x = x + len(table)", "x = x + sum(table)", "x = x * names.get('k', 0.0)",
    "for name in sorted(names):\n    x = x + names[name]", "if 'on' in flags:\n    x = x * 1.5", "x = x + array.sum()",
    "x = x * tensor.sum()", "x = x + array[0]", "if model.count > 2:\n    x = x * 0.5",
    "x = x + getattr(model, 'scale')", "x = x + float(np.max(array))", "x = x * (stack[0] if stack else 1.0)",
    "x = x + isinstance(model, Model)", "x = x + vars(model)['scale']", "x = x * pair[1][0]", "x = x + slotted.value",
    "x = x + hasattr(model, 'extra')", "x = x + len(model)", "x = x + bool(model)", "x = x + sum(names.values())",
    "x = x * max(table)", "a, *_ = table\nx = x + a", "x = x + sum(v for v in table if v > 0.6)",
    "while x.sum() > number:\n    x = x * 0.5", "for t in table:\n    x = x * t if x.sum() > 0 else x + t",
    "x = x * globals()['number']",
)  # fmt: skip
HIDDEN = (
    "model.count += 1\nx = x + 0.1 * model.count", "names['n'] = names.get('n', 0.0) + 1.0\nx = x + names['n']",
    "table.append(1.0)\nx = x + len(table)", "x = x + next(numbers)", "stack.rotate(1)\nx = x * stack[0]",
    "global number\nnumber = number * 0.9\nx = x * number", "array[0] += 0.5\nx = x + array[0]",
    "tensor.add_(0.1)\nx = x * tensor.sum()", "model.seen.append(float(x.detach().sum()))\nx = x + len(model.seen)",
    "x = x + chance.random()", "x = x + rng.normal()", "x = x + random.random()",
    "if model.last is not None:\n    x = x + model.last\nmodel.last = x.detach()",
    "slotted.value += 0.1\nx = x + slotted.value", "model.__dict__['count'] = model.count + 1\nx = x + model.count",
    "setattr(model, 'count', model.count + 1)\nx = x * model.count", "Model.rate += 0.1\nx = x * model.rate",
    "set_cell(inner(1.0) + 0.1)\nx = inner(x)", "flags ^= {'on'}\nx = x + len(flags)",
)  # fmt: skip
CHANGES = (
    "number = {v}", "model.scale = {v}", "Model.rate = {v}", "model.weights['b'][1] = {v}", "table[1] = {v}",
    "table.append({v})", "names['k'] = {v}", "names['{k}'] = {v}", "flags.clear()", "flags.add('on')",
    "array[0] = {v}", "array = np.array([{v}, 1.0])", "tensor[0] = {v}", "tensor = tape.tensor([{v}])",
    "model = Model()", "set_cell({v})", "helper.__defaults__ = ({v},)", "helper.__kwdefaults__ = dict(more={v})",
    "Model.step = lambda self, x: x * {v}", "Model.twice = property(lambda self: {v})", "model.extra = {v}",
    "stack.appendleft({v})", "model.step = lambda x: x - {v}", "model.count = {n}", "slotted.value = {v}",
    "pair[1][0] = {v}", "pair = ({v}, [{v}])", "model.weights = dict(b=[{v}, {v}])", "table = [{v}, {v}, {v}]",
    "model.rate = {v}", "def helper(x):\n    return x - {v}", "inner = closed()[0]", "table.sort()",
    "names.pop('k', None)", "Model.__len__ = lambda self: {n}",
)  # fmt: skip


def text_of(pick: random.Random) -> str:
    """Return a function that reads and changes; not many change what they read."""
    lines = pick.sample(READS, pick.randint(1, 4)) + pick.sample(HIDDEN, pick.choice((0, 0, 1)))
    pick.shuffle(lines)
    body = [line for each in lines for line in each.split("\n")]
    body.sort(key=lambda line: not line.startswith("global"))
    return "\n    ".join(["def f(x, s):", *body, "return (x * s).sum()"])


def state_of(space: dict[str, Any]) -> str:
    """Return what can be seen of a world."""
    model = space["model"]
    seen = [space[name] for name in ("number", "table", "names", "stack", "pair")]
    arrays = [np.asarray(space["array"]), space["tensor"].numpy(), space["inner"](1.0), space["slotted"].value]
    rest = (
        sorted(space["flags"]),
        vars(space["Model"])["rate"],
        {k: v for k, v in vars(model).items() if not callable(v)},
    )
    return repr((seen, arrays, rest, [space[name].random() for name in ("chance", "rng")]))


def run_seed(seed: int, counts: Counter[str]) -> None:
    """Compare calls of a function in two worlds."""
    pick = random.Random(seed)  # noqa: S311 (no secret)
    text = text_of(pick)
    spaces: list[dict[str, Any]] = [{"np": np, "tape": tape, "__name__": "world"} for _ in range(2)]
    for space in spaces:
        exec(compile(f"{WORLD}\n{text}", f"<world {seed}>", "exec"), space)  # noqa: S102 (made here)
    functions = [tape.value_and_grad(space["f"], (0, 1)) for space in spaces]
    functions[1] = compiled = tape.compile(functions[1])
    history = [text]
    for call in range(CALLS):
        if call > 3 and pick.random() < 0.6:
            value = {"v": pick.choice((0.25, 0.5, 1.5, 2.0)), "n": pick.randint(0, 4), "k": pick.choice("ab")}
            change = pick.choice(CHANGES).format(**value)
            history.append(f"call {call}: {change}")
            for space in spaces:
                exec(change, space)  # noqa: S102 (made here)
        x, s = np.random.default_rng([seed, call]).uniform(0.2, 1.0, 3), 0.5 + 0.1 * (call % 3)
        outcomes = []
        for function, space in zip(functions, spaces, strict=True):
            random.seed(call)
            try:
                value, gradients = function(x, s)
                outcome = repr([value, *gradients])
            except Exception as error:  # noqa: BLE001 (the same one is expected)
                outcome = f"{type(error).__name__}: {error}"
            outcomes.append((outcome, state_of(space)))
        assert outcomes[0] == outcomes[1], "\n".join([*history, f"seed {seed}, call {call}", compiled.explain()])
    counts["replayed"] += any(program.hits for program in compiled.programs)
    counts["dynamic"] += "dynamic:" in compiled.explain()


@examples(60, EXAMPLES)
def test_random_functions_that_read_and_change_what_is_outside(count: int) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, derandomize=EXAMPLES <= 2000, phases=[Phase.generate])
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run_seed(seed, counts)

    check()
    print(counts)  # noqa: T201 (read with -s)
    assert counts["replayed"] > count // 4
