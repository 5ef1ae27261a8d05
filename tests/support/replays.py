"""Random programs of reads, views and writes over shared memories, recorded and replayed on other values.

`python -m tests.support.replays 100000 --seed 7` runs so many.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import tape
from tests.support.memories import Live, Program, Replica, Step, attempt, counted_from, random_program, source, text_of

# What a function of the leaves can hold: no gradient on the way, nothing that raises.
MAKERS = {"leaf", "buffer", "view", "reshape", "apply", "where", "part", "join", "detach", "loss"}
WRITERS = {"method", "operator", "assign", "assign_with", "masked_fill", "index_put"}
PURE = MAKERS | WRITERS | {"grad_mode", "forget"}


def pure(seed: int) -> tuple[Program, Replica]:
    """Return a random program without gradients and errors, and a replica that has run it."""
    replica, kept = Replica(), []
    kept.extend(
        step
        for step in random_program(seed)
        if step[0] in PURE and "from" not in str(step) and usable(step, replica) and attempt(replica, step) is None
    )
    return kept, replica


def usable(step: Step, replica: Replica) -> bool:
    """Whether the tensors that a step names are there: what made them may have been dropped."""
    names = {int(name) for name in re.findall(r"\bx(\d+)", source(step))}
    return names - ({step[1]} if step[0] in MAKERS else set()) <= replica.handles.keys()


def function_of(program: Program) -> tuple[Callable[..., Any], list[Any]]:
    """Return a program as a function of its leaves, and their values."""
    leaves = [step for step in program if step[0] == "leaf"]

    def function(*values: Any) -> Any:
        live = Live()
        given = iter(values)
        for step in program:
            if step[0] == "leaf":
                live.names[f"x{step[1]}"] = next(given)
            else:
                error = live.run(step)
                assert error is None, f"{source(step)}: {error}"
        result = live.names[f"x{program[-1][1]}"]
        live.names.clear()
        tape.set_grad_enabled(True)
        return result

    return function, [np.array(step[2]) for step in leaves]


def gradients(function: Callable[..., Any], values: list[Any]) -> tuple[float, list[Any]]:
    """Return a function's value and its gradients, by a sweep of the tape."""
    inputs = [tape.tensor(x, requires_grad=True) for x in values]
    loss = function(*inputs)
    if loss.requires_grad:
        loss.backward()
    return loss.item(), [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in inputs]


def replayed(seed: int) -> str:
    """Record a random program and replay it on other values: "agrees" with dynamic mode, or what is the matter."""
    program, _ = pure(seed)
    if program[-1][0] != "loss":
        return "nothing to replay"
    function, values = function_of(program)
    if not function(*[tape.tensor(x, requires_grad=True) for x in values]).requires_grad:
        return "nothing to replay"
    recorded = tape.record(function, *map(tape.tensor, values))
    for factor in (1.0, 0.9, 1.0):
        given = [x * factor for x in values]
        (value, found), (expected, by_sweep) = recorded.value_and_grad(*given), gradients(function, given)
        if not np.isclose(value, expected, rtol=1e-13, atol=0.0, equal_nan=True):
            return f"values differ, {value} for {expected}, in the program of seed {seed}:\n{text_of(program)}"
        for one, other in zip(found, by_sweep, strict=True):
            if not np.allclose(one, other, rtol=1e-12, atol=1e-13, equal_nan=True):
                return f"gradients differ, {one} for {other}, in the program of seed {seed}:\n{text_of(program)}"
    return "agrees"


def main(arguments: list[str] | None = None) -> int:
    """Replay as many programs as asked; print how they came out, and the first on which the two disagree."""
    count, first = counted_from(main.__doc__, arguments)
    done: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = replayed(seed)
        done[outcome] += 1
        if "differ" in outcome:
            sys.stdout.write(outcome + "\n")
            return 1
        if (seed + 1 - first) % 1000 == 0:
            sys.stderr.write(f"{seed + 1 - first} programs\n")
    sys.stdout.write(
        f"{count} programs from seed {first} on: " + ", ".join(f"{n} {how}" for how, n in done.items()) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
