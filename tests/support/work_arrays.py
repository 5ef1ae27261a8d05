"""Random programs that use NumPy work arrays, refill them, and use them again; each also with copies at every use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import tape

REFILLS = (
    "w{i}[:] = base * {c}",
    "np.multiply(base, {c}, out=w{i})",
    "w{i}[::2] = {c}",
    "w{i}[:] += {c} * base",
    "w{i}[...] = np.roll(w{j}, 1) * 0.5 + {c}",
    "np.copyto(w{i}, base[::-1])",
    "wide[::2] = base * {c}",
    "table[:, 1] = base + {c}",
    "index[:] = np.roll(index, 1)",
    "mask[:] = ~mask",
    "number[...] = {c}",
)
USES = (
    "x = x * {w}",
    "x = {w} * x + {c}",
    "x = x + {w}",
    "x = x / ({w} + 3.0)",
    "x = np.maximum(x, {w} * 0.1)",
    "x = np.where({mask}, x * {w}, x)",
    "x = x[{index}]",
    "x = tape.sin(x * {w})",
    "x = np.hypot(x, {w})",
    "x = x * x - {w} * x",
    "total = total + ({w} * x).sum()",
    "total = total + x @ {w}",
    "x = x * tape.from_numpy({w})",
    "x = x * {number}",
    "x[1:] = x[1:] * {w}[1:]",
    "x = np.concatenate([x[:1] * {w}[:1], x[1:]])",
)
ARRAYS = ("w0", "w1", "w0[::-1]", "wide[::2]", "table[:, 1]", "table[1]", "base", "w1[...]")


def program(seed: int, n: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[], None], str]:
    """Return a function, the same with copies, what others do to the arrays between calls, and its text.

    The two have arrays of their own, which hold the same at each call.
    """
    rng = random.Random(seed)  # noqa: S311
    lines = _block(rng, 3) + _loop(rng) + _block(rng, 3)
    plain = [line.format(**_names(rng_of, copies=False)) for line, rng_of in lines]
    copying = [line.format(**_names(rng_of, copies=True)) for line, rng_of in lines]
    made = [_function(text, n, seed) for text in (plain, copying)]
    rounds = [0]

    def between() -> None:
        rounds[0] += 1
        for _, arrays in made:
            noise = np.random.default_rng([seed, rounds[0]])
            for name in ("w0", "w1", "wide"):
                arrays[name][...] = noise.uniform(0.5, 1.5, arrays[name].shape)

    return made[0][0], made[1][0], between if rng.random() < 0.5 else lambda: None, "\n".join(plain)


def _block(rng: random.Random, most: int) -> list[tuple[str, int]]:
    kinds = [rng.choice(REFILLS if rng.random() < 0.5 else USES) for _ in range(rng.randint(1, most))]
    return [(kind, rng.randrange(1 << 30)) for kind in kinds]


def _loop(rng: random.Random) -> list[tuple[str, int]]:
    inner = [("    " + line, seed) for line, seed in _block(rng, 4)]
    return [(f"for k in range({rng.randint(2, 4)}):", 0), *inner] if rng.random() < 0.7 else []


def _names(seed: int, *, copies: bool) -> dict[str, str]:
    rng, end = random.Random(seed), ".copy()" if copies else ""  # noqa: S311
    i = rng.randrange(2)
    return {
        "w": rng.choice(ARRAYS) + end, "mask": "mask" + end, "index": "index" + end, "number": "number" + end,
        "c": str(rng.choice((0.5, 1.25, 0.75))), "i": str(i), "j": str(1 - i),
    }  # fmt: skip


def _function(lines: list[str], n: int, seed: int) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        "w0": rng.uniform(0.5, 1.5, n), "w1": rng.uniform(0.5, 1.5, n), "base": rng.uniform(0.5, 1.5, n),
        "wide": rng.uniform(0.5, 1.5, 2 * n), "table": rng.uniform(0.5, 1.5, (n, n)), "index": rng.permutation(n),
        "mask": rng.random(n) < 0.5, "number": np.array(0.7), "np": np, "tape": tape,
    }  # fmt: skip
    text = ["def f(x):", "    x = x * 1.0", "    total = (x * 0.0).sum()", *("    " + line for line in lines)]
    exec("\n".join([*text, "    return total + (x * x).sum()"]), arrays)  # noqa: S102
    return arrays["f"], arrays
