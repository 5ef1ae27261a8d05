"""Random programs as text: time loops, stencils, writes in place, histories, matrices, and gradients that are cut."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import tape

SHAPES: tuple[tuple[int, ...], ...] = (
    (), (), (1,), (2,), (3,), (5,), (7,), (12,), (20,), (33,), (40,), (2, 2), (3, 3), (4, 4), (5, 3), (7, 5), (12, 3),
    (20, 3), (6, 33), (33, 6), (2, 9), (2, 20), (2, 35), (4, 2, 3), (3, 5, 3), (6, 4, 3), (10, 9), (18, 16), (9, 31),
)  # fmt: skip
STEPS = 12
UNARY = (
    "tape.tanh({0})", "tape.sin({0})", "tape.sqrt(1.0 + {0} * {0})", "tape.log(1.5 + {0} * {0})", "tape.exp(-abs({0}))",
    "tape.clamp({0}, -0.5, 0.5)", "tape.clamp({0}, max=0.25)", "abs({0})", "-{0}", "{0} ** 2", "0.3 * {0} ** 3",
    "tape.relu({0})", "(1.0 + {0} * {0}) ** -1.5", "(1.0 + {0} ** 2) ** 0.5", "tape.sigmoid({0})", "{0}.clone()",
    "{0}.detach()", "tape.exp(0.5 * tape.tanh({0}))", "tape.softplus({0})", "tape.square({0})",
    "1.0 / (1.5 + {0} * {0})", "tape.cos({0})",
)  # fmt: skip
BINARY = (
    "0.6 * {0} + 0.3 * {1}", "{0} - 0.2 * {1}", "0.8 * {0} * {1}", "{0} / (1.0 + {1} * {1})", "tape.maximum({0}, {1})",
    "tape.minimum({0}, 0.5 * {1})", "tape.where({0} > {1}, {0}, 0.5 * {1})", "tape.where({0} < 0.1, {1}, 0.7)",
    "tape.where(({0} > 0.0) & ({1} > 0.0), {0} * {1}, {1})", "({0} + {1}) * 0.5", "{0}.detach() * {1}",
    "tape.sin({0}) + {1}", "tape.where({0}.detach() >= {1}, 0.4 * {1}, {0})", "tape.stack([{0}, {1}]).sum(0) * 0.5",
    "tape.stack([{0}, {1}], -1).mean(-1)", "tape.stack([{0}, {1}])[1]", "tape.hypot(0.3 * {0}, 1.0 + 0.1 * {1})",
    "0.5 * tape.logaddexp({0}, {1})", "tape.cat([{0}.reshape(-1), {1}.reshape(-1)]).mean() + {0}",
)  # fmt: skip
HAZARDS = (
    "tape.where({0} > 0.5, tape.sqrt({0}), {0})", "tape.sqrt(abs({0}))", "tape.where({0} > 0.0, tape.log({0}), {1})",
    "tape.where(abs({0}) > 0.0, {1} / {0}, {0})", "tape.sqrt(tape.relu({0}))", "({0} * {0}) ** 0.5",
    "tape.sqrt({0} * {0})", "tape.where({0} > 9.0, {0} * np.inf, {1})",
    "tape.clamp(tape.sqrt(abs({0})), max=0.0) + {1}", "0.1 / {0}", "abs({0}) ** {1}",
    "tape.where({0} == 0.0, 0.0, {0} * tape.log(abs({0})))", "tape.where({0} < 0.3, {1}, tape.exp(900.0 * {0}))",
    "tape.maximum({0}, 0.0)", "tape.minimum(abs({0}), {0})", "0.0 * tape.sqrt({0})", "({0} * 0.0).sqrt() + {1}",
    "tape.zeros_like({0}) * {1}",
)  # fmt: skip
RARE = (
    "tape.amax({0}, -1, keepdims=True) * {1}", "({0} > {1}) * {0}", "0.5 * tape.cumsum({0}, 0)",
    "({0} > 0.1).sum() * 0.01 + {1}", "tape.xlogy({0}, {0})", "tape.sort({0}, -1)[0]",
    "tape.prod({0}, 0, keepdims=True) + {1}",
)  # fmt: skip
AXES = (
    "{0}.sum({2}, keepdims=True) * 0.2 + {1}", "{0} - {0}.mean({2}, keepdims=True)",
    "{0} + 0.0 * {1}.sum({2}, keepdims=True)", "tape.softmax({0}, {2})", "0.3 * tape.log_softmax({0}, {2})",
    "{0} - tape.logsumexp({0}, {2}, keepdims=True) * 0.3", "{0} / (1.0 + {0}.square().sum({2}, keepdims=True))",
    "tape.flip({0}, ({2},))", "tape.cat([{0}.narrow({2}, -1, 1), {0}.narrow({2}, 0, {0}.shape[{2}] - 1)], {2})",
    "tape.roll({0}, 1, {2})", "tape.stack([{0}, 0.5 * {1}], {2}).sum({2})",
    "tape.cat([{0}, {1}], {2}).narrow({2}, 1, {0}.shape[{2}])", "0.2 * ({0} * {1}).sum({2}, keepdims=True) + {0}",
    "{0}.movedim({2}, 0).clone().movedim(0, {2})",
)  # fmt: skip
EXTREMA = (
    "{0} - 0.4 * tape.amax({0}, {2}, keepdims=True)", "{0} + 0.3 * tape.amin({1}, {2}, keepdims=True)",
    "{0} * 0.7 + 0.1 * tape.max({1}, {2}, keepdim=True)[0]", "{0} - 0.2 * tape.min({0}, {2})[0].mean()",
    "tape.amax(tape.stack([{0}, {1}], {2}), {2})", "tape.amin({0}.T, {2}, keepdims=True).T * {1}",
    "tape.amax({0}) * 0.5 + {1}", "{0} * tape.min({1})", "tape.max(tape.relu({0}), {2})[0].square().sum() * 0.1 + {1}",
    "tape.min(tape.clamp({0}, -0.3137, 0.2871), {2}, keepdim=True)[0] - {1}",
    "{0} - 0.3 * tape.amax(abs({0}.reshape(-1)[::2]))",
    "{0} + 0.2 * tape.amax({0}.narrow({2}, 0, 1), {2}, keepdims=True)",
)  # fmt: skip
SCATTERED = (
    "{0} + scattered({0} * {1}) * 0.2", "scattered(tape.tanh({0})) * 0.5 + {1}", "0.3 * scattered({0} - {1})",
)  # fmt: skip
CALLED = (
    "0.4 * tape.cumsum({0}, {2})", "{1} - 0.2 * tape.cumsum({0}, {2})", "tape.cumprod(0.9 * tape.cos({0}), {2})",
    "0.3 * tape.cumsum({0}.T, {2}).T", "tape.cumprod(tape.tanh({0}), {2}) + {1}",
    "tape.flip(tape.cumsum(tape.flip({0}, ({2},)), {2}), ({2},)) * 0.2",
    "{0} + 0.1 * tape.prod(tape.cos({1}), {2}, keepdims=True)",
    "{0} * 0.5 + 0.1 * tape.prod(tape.tanh({0}), {2}).sum()",
    "{0} / (1.0 + tape.linalg.vector_norm({1}, 2, {2}, True))", "0.1 * tape.linalg.vector_norm({0} + 0.3) + {1}",
    "0.1 * tape.linalg.vector_norm({0}, 3, {2}).sum() + {1}", "tape.sort({0}, {2})[0]",
    "tape.sort({0}, {2}, descending=True)[0] * 0.5 + {1}", "tape.sort({0}.T, {2})[0].T * 0.8",
    "{0} - tape.median({0}) * 0.3", "{0} - tape.median({1}, {2}, keepdim=True)[0]",
    "tape.cat([{0}[:1], 0.5 * tape.cumsum({0}[1:], {2})])", "0.2 * tape.logcumsumexp({0}, {2}) + {1}",
    "tape.sort({0}.reshape(-1)[::2])[0].square().mean() + {0}", "tape.cummax({0}, {2})[0] * 0.5 - {1}",
    "0.5 * tape.cumsum(tape.sort({0}, {2})[0] * 0.3, {2})", "{0} + 0.1 * tape.cumprod({1}[-1:].cos(), -1).sum()",
)  # fmt: skip
SPREADS = (
    "{0} - 0.2 * tape.var({1}, {2}, keepdim=True, correction=0)", "{0} / (1.0 + tape.var({0}, {2}, keepdim=True))",
    "({0} - {0}.mean({2}, keepdims=True)) / tape.sqrt(0.5 + tape.var({0}, {2}, keepdim=True, correction=0))",
    "{0} + 0.1 * tape.std({1} + w, {2}).sum()", "{0} * 0.5 + 0.1 * tape.var({1})",
    "tape.std({0}.T, {2}, keepdim=True).T * {1}",
)  # fmt: skip
SOLVED = (
    "tape.linalg.inv({2} + 0.2 * tape.outer(tape.tanh({0}), tape.sin({1}))).sum() * 0.1",
    "tape.linalg.det({2} + 0.2 * tape.outer(tape.tanh({0}), {1})) * 0.01",
    "tape.linalg.solve({2} + 0.2 * tape.outer(tape.tanh({0}), tape.cos({1})), {0}).sum()",
    "(tape.linalg.solve({2} + 0.1 * tape.outer(tape.sin({0}), tape.sin({1})), tape.outer({1}, {1})).T * 0.1).mean()",
    "tape.linalg.cholesky({2} + 0.2 * tape.outer(tape.tanh({0}), tape.tanh({0}))).sum() * 0.1",
    "(tape.linalg.inv(({2} + tape.outer(tape.sin({0}), tape.sin({1})) * 0.2).T) @ {1}).mean()",
)  # fmt: skip
"""Numbers, of vectors of a few elements and a multiple of the unit matrix."""
SQUARE = (
    "0.5 * tape.linalg.inv({2} + 0.3 * tape.tanh({0}))", "tape.linalg.solve({2} + 0.3 * tape.tanh({0}), {1})",
    "tape.linalg.solve({2} + 0.2 * tape.sin({0}.T), {1}.T)",
    "{0} * 0.1 * tape.linalg.det({2} * 0.5 + 0.2 * tape.sin({1}))",
    "tape.linalg.cholesky({2} + 0.1 * tape.tanh({0}) @ tape.tanh({0}).T) @ {1} * 0.3",
    "tape.linalg.inv({2} + 0.2 * tape.sin({0})) @ {1}", "tape.linalg.inv(({2} + 0.3 * tape.cos({0})).T).T * 0.3 + {1}",
    "tape.linalg.solve({2} + 0.3 * tape.tanh({0}), {1}[:, 0])[:, None] * 0.2 + {1}",
)  # fmt: skip
BATCHED = (
    "({0} @ {1}.transpose(1, 2)) @ {0} * 0.05", "tape.bmm(tape.softmax({0} @ {1}.transpose(-1, -2), -1), {1})",
    "{0} @ (tape.tanh({0}).transpose(1, 2) @ {1}) * 0.05", "{0} @ M",
    "tape.bmm({0}, {1}.transpose(1, 2).clone() @ {1}) * 0.05",
    "{0} @ tape.linalg.inv({2} + 0.1 * (tape.tanh({1}).transpose(1, 2) @ tape.tanh({1})))",
    "tape.linalg.det({2} + 0.1 * (tape.sin({1}).transpose(1, 2) @ tape.tanh({0})))[:, None, None] * {0} * 0.01",
    "tape.linalg.solve({2} + 0.1 * (tape.sin({1}).transpose(1, 2) @ tape.tanh({0})), {0}.mT).transpose(1, 2)",
)  # fmt: skip
STENCILS = (
    "tape.cat([{0}[:1], 0.3 * ({0}[2:] - 2.0 * {0}[1:-1] + {0}[:-2]), {0}[-1:]])",
    "tape.cat([{0}[..., :1], {0}[..., 1:-1] + 0.2 * ({0}[..., 2:] - {0}[..., :-2]), 0.5 * {0}[..., -1:]], -1)",
    "tape.cat([{0}[1:], {0}[:1]]) * 0.5 - tape.cat([{0}[-1:], {0}[:-1]]) * 0.2",
    "tape.cat([{0}[:2], {0}[1:-1] * {0}[2:] - {0}[:-2] * {1}[1:-1]])",
    "tape.cat([0.4 * {0}[1:] + {0}[:-1] * {1}[1:], {0}[:1]])", "{0} + 0.1 * ({0}[1:] - {0}[:-1]).square().sum()",
    "tape.cat([{0}[:1], ({0}[2:] - {0}[:-2]) / (1.0 + {0}[1:-1] ** 2), tape.zeros_like({0}[:1])])",
)  # fmt: skip
REARRANGED = (
    "{0}.T.reshape{1} * 0.9", "({0}.T * 0.9).T", "tape.sin({0}.reshape(-1)).reshape{1}", "{0}.T.clone().T",
    "{0}.T.T * 0.5",
    "({0}.reshape(-1)[-2:] * {0}.reshape(-1)[:2]).sum() * 0.1 + {0}", "({0}[..., None] * w).mean(-1)",
    "tape.cat([{0}.reshape(-1), {0}.reshape(-1)])[{2}:].reshape{1}",
    "tape.stack([{0}, {0} * 0.5])[:, ..., :].mean(0)", "({0}.reshape(1, -1) * 0.8).reshape{1}",
    "tape.broadcast_to({0}[:1], {1}) * 0.5", "{0}[..., -1:] * 0.3 + {0}",
)  # fmt: skip
HALVED = (
    "{0}.reshape(2, -1).T.reshape{1}", "tape.cat([{0}.reshape(-1)[::2], {0}.reshape(-1)[1::2]]).reshape{1}",
    "tape.stack([{0}.reshape(-1)[::2], {0}.reshape(-1)[1::2]], 1).reshape{1}",
)  # fmt: skip
PRODUCTS = (
    "{0} @ M", "tape.tanh({0} @ M + w)", "0.3 * ({0} @ w)[..., None] + {1}", "{0} @ M.T * 0.5",
    "({0} @ {1}.T) @ {1} * 0.02", "{0} @ ({0}.T @ {1}) * 0.02", "tape.softmax({0} @ {1}.T, -1) @ {1}", "(M @ {0}.T).T",
    "(({0}[:, None, :] - {0}[None, :, :]) * 0.3).sum(1) * 0.1", "tape.tanh({0} @ M) @ M",
    "(({0}[:, None] - {0}) / (1.0 + ({0}[:, None] - {0}).square().sum(-1))[..., None]).sum(1) * 0.1",
    "tape.einsum('ij,kj->ik', {0}, {0}) @ {1} * 0.02",
)  # fmt: skip
SCALARS = (
    "0.7 * {0} + 0.2 * {1}", "{0} * {1}", "tape.sin({0}) + 0.1 * {1}", "{0} / (1.0 + {1} * {1})",
    "tape.tanh({0} - {1})", "tape.where({0} > {1}, {0}, 0.3 * {1})", "tape.maximum({0}, {1})",
    "tape.sqrt(0.5 + {0} * {0})", "{0}.detach() + {1}", "tape.exp(-{0} * {0})", "tape.clamp({0}, -0.3, 0.3)",
    "tape.stack([{0}, {1}]).mean()", "tape.logsumexp(tape.stack([{0}, {1}]), 0)",
)  # fmt: skip
TOTALS = (
    "{0}.mean()", "({0} * {1}).mean()", "({0} ** 2).mean()", "tape.logsumexp({0}.reshape(-1), 0)",
    "0.1 * {0}.reshape(-1)[0]", "tape.tanh({0}.mean())", "{0}.reshape(-1)[-1] * 0.3",
    "tape.where({0} > 0.1, 1.0, 0.0).sum() * 0.01 + 0.1 * {0}.sum()", "{0}.reshape(-1)[::2].sum() * 0.1",
    "{0}.square().sum() * 0.05",
)  # fmt: skip
SLICES: dict[int, tuple[str, ...]] = {
    1: ("1:-1", "2:", ":-2", ":1", "-1:", "0", "-1", "::2", "1:", ":-1", "1"),
    2: ("1:-1, 1:-1", "0", "-1", ":, 0", ":, -1", "1:", ":, 1:", ":-1, 1:", "..., :2", ":, ::2", "0, 0", "-1, :1"),
    3: ("1:-1", "0", ":, 0", ":, :, 0", "..., 1:", ":, 1", "0, 1:", "..., 0, :2", "1:, :, 1"),
}  # fmt: skip
BY_COUNT = (
    "{x} = 0.9 * {x} + 0.1 * data[{k}]",
    "{x} = {x} + 0.1 * series[{k}]",
    "{x} = {x} + tape.sin({x}) * ({k} * dt)",
    "{s} = 0.8 * {s} + 0.1 * series[{k}]",
    "{s} = {s} + {k} * dt",
    "{x} = {x} * 0.9 + 0.05 * weights[{k}]",
    "{s} = 0.9 * {s} + 0.1 * (weights[{k}] * {x}).mean()",
    "{x} = 0.7 * {x} + 0.1 * weights[:, {k} % {n}].mean()",
)


SHIFTED = (
    "{q}[1:-1] += 0.2 * ({o}[2:] - 2.0 * {o}[1:-1] + {o}[:-2])", "{q}[1:] = 0.5 * {o}[:-1]",
    "{q}[:-1] += 0.3 * {o}[1:]", "{q}[2:] *= {o}[:-2]", "{q}[::2] += 0.1 * {o}[::2] ** 2",
)  # fmt: skip
STARS = (
    "{q}[1:-1, 1:-1] += 0.1 * ({o}[2:, 1:-1] + {o}[:-2, 1:-1] - {o}[1:-1, 2:] + {o}[1:-1, :-2] - {o}[1:-1, 1:-1])",
    "{q}[:, 1:] += {o}[:, :-1] * 0.3", "{q}[:, 0] = {o}[:, 1]",
    "{q}[1:-1, 1:-1] *= 0.5 + 0.2 * tape.tanh({o}[2:, 1:-1] * {o}[1:-1, :-2] - {o}[:-2, 2:])",
)  # fmt: skip
WRITTEN = (
    "0.4 * tape.cumsum({0}, -1)", "tape.sort({0}, 0)[0]", "0.5 * tape.amax({0}, -1, keepdims=True)", "tape.median({0})",
    "tape.cumprod(tape.cos({0}), 0)", "tape.amin({0}, 0)", "0.2 * tape.linalg.vector_norm({0} + 0.2)",
)  # fmt: skip
"""Calls for what is written to a part."""
VIEWS = (
    "{q}[-2:]", "{q}.T", "{q}.reshape(-1)", "{q}[..., :1]", "{q}.T[:1]", "{q}[-1:].T", "{q}[-2:][:1]",
    "{q}.reshape(-1)[::2]",
)  # fmt: skip


@dataclass
class RandomProgram:
    """A function as text, of arrays ``x`` and ``y``, a number ``s``, a vector ``w`` and, end to end, ``weights``.

    It reads constants: ``data`` as ``weights``, numbers of ``series``, the matrix ``M``. All are drawn from ``seed``.
    Arrays are of ``dtypes``, one after the other.
    """

    text: str
    shape: tuple[int, ...]
    seed: int
    has_aux: bool = False
    dtypes: tuple[str, ...] = ("float64",)
    steps: int = STEPS
    function: Any = None

    def __post_init__(self) -> None:
        """Compile the text."""
        chance = np.random.default_rng(self.seed)
        last = self.shape[-1] if self.shape else 1
        space: dict[str, Any] = {
            "tape": tape, "np": np, "dt": 0.05,
            "data": chance.normal(size=(self.steps, *self.shape)), "series": chance.normal(size=self.steps),
            "M": chance.normal(size=(last, last)) / (1.0 + last**0.5),
        }  # fmt: skip
        space |= {name: self._cast(k, space[name]) for k, name in enumerate(("data", "series", "M"))}
        places = tape.tensor(chance.integers(0, int(np.prod(self.shape)), int(np.prod(self.shape))))
        space["scattered"] = lambda x: x.reshape(-1).index_add(0, places, 0.4 * x.reshape(-1)).reshape(x.shape)
        exec(compile(self.text, f"<random {self.seed}>", "exec"), space)  # noqa: S102 (made here)
        self.function = space["f"]

    def arguments(self, call: int = 0) -> list[Any]:
        """Return arguments: of every second program with zeros, ones and ties among them."""
        chance = np.random.default_rng([self.seed, call])
        last = self.shape[-1] if self.shape else 1
        shapes = self.shape, self.shape, (last,), (self.steps, *self.shape)
        arrays = [chance.normal(size=shape) * 0.6 for shape in shapes]
        if self.seed % 2:
            for array in arrays:
                flat = array.reshape(-1)
                for value in (0.0, 0.5, 0.0):
                    flat[chance.integers(0, flat.size, max(1, flat.size // 4))] = value
        x, y, w, weights = [self._cast(k, array) for k, array in enumerate(arrays)]
        if not self.shape:
            x, y = (float(z) if z.dtype == np.float64 else z for z in (x, y))  # type: ignore[assignment]
        return [x, y, float(chance.normal() * 0.5), w, weights]

    def _cast(self, number: int, array: Any) -> Any:
        return np.asarray(array, self.dtypes[number % len(self.dtypes)])


class Text:
    """Makes a program; shapes of all names of arrays are the same, so that all expressions fit."""

    share: ClassVar = 0.3
    """How many of the programs have functions at places where they have no derivative."""
    numbers_of_loops: ClassVar = (0, 1, 1, 1, 1, 2)
    """How many loops there are, one after the other."""
    share_called: ClassVar = 0.5
    """How many of the programs have calls, extrema, spreads and matrices that are solved."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.shape = chance.choice(SHAPES)
        self.hazards = chance.random() < self.share
        self.calls = chance.random() < self.share_called and bool(self.shape)
        self.matrices = len(self.shape) == 2 or (len(self.shape) == 1 and chance.random() < 0.3)
        self.lines: list[str] = []
        self.arrays, self.scalars = ["x", "y"], ["s"]
        self.histories: list[tuple[str, int, bool]] = []
        self.count = 0

    def program(self, seed: int) -> RandomProgram:
        """Return the program."""
        pick = self.chance
        self.put(0, "def f(x, y, s, w, weights):")
        self.put(1, f"z, a = {self.array(1)}, {self.total()}")
        self.arrays.append("z")
        self.scalars.append("a")
        self.some(1, 0, 2)
        for _ in range(pick.choice(self.numbers_of_loops)):
            self.loop(1, ())
            self.some(1, 0, 2)
        self.read_histories()
        totals = [pick.choice(TOTALS).format(x, self.name()) for x in "xyz" if pick.random() < 0.6]
        value = " + ".join(totals + [x for x in "as" if pick.random() < 0.5] or [self.total()])
        aux = pick.random() < 0.3
        rest = f", ({', '.join(self.result() for _ in range(pick.randint(1, 2)))},)" if aux else ""
        self.put(1, f"return {value}{rest}")
        return RandomProgram("\n".join(self.lines), self.shape, seed, aux)

    def put(self, depth: int, *lines: str) -> None:
        """Write lines."""
        self.lines += ["    " * depth + line for line in lines]

    def fresh(self, letter: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{letter}{self.count}"

    def name(self) -> str:
        """Return the name of an array."""
        return self.chance.choice(self.arrays)

    def name_of_scalar(self) -> str:
        """Return the name of a number."""
        return self.chance.choice(self.scalars)

    def scalar(self) -> str:
        """Return a number."""
        form = self.chance.choice(SCALARS)
        return form.format(self.name_of_scalar(), self.name_of_scalar())

    def total(self) -> str:
        """Return a number that is computed of arrays."""
        if self.calls and self.chance.random() < 0.15:
            return self.solved()
        return self.chance.choice(TOTALS).format(self.name(), self.name())

    def result(self) -> str:
        """Return what else a function returns: values, parts of values, arguments."""
        pick = self.chance
        form = pick.choice(
            ("{0}", "{0}", "{0}.reshape(-1)[:1]", "{0} * 2.0", "{0}.T", "x", "{1}", "{0}[..., None]", "{0} > 0.0")
        )
        return form.format(self.name(), self.name_of_scalar())

    def array(self, depth: int) -> str:
        """Return an array, of parts that are ``depth`` deep."""
        pick = self.chance
        parts = [self.array(depth - 1) if depth and pick.random() < 0.35 else self.name() for _ in range(2)]
        parts = [part if part.isidentifier() else f"({part})" for part in parts]
        if self.hazards and pick.random() < 0.2:
            return pick.choice(HAZARDS).format(self.name(), self.name())
        if self.shape and pick.random() < 0.5:
            x, y = self.name(), self.name()
            return self.called(x, y) if self.calls and pick.random() < 0.4 else self.of_array(x, y)
        kind = pick.random()
        if kind < 0.15:
            last = pick.choice((self.name_of_scalar(), "w" if self.shape else "s"))
            return f"{parts[0]} * {self.name_of_scalar()} + {last}"
        if kind < 0.6:
            return pick.choice(BINARY).format(*parts)
        return pick.choice(UNARY).format(parts[0])

    def of_array(self, x: str, y: str) -> str:
        """Return what is no number if ``x`` and ``y`` are none."""
        pick = self.chance
        kind = pick.random()
        if kind < 0.3 and min(self.shape[0], self.shape[-1]) >= 3:
            return pick.choice(STENCILS).format(x, y)
        if kind < 0.6:
            return pick.choice(AXES).format(x, y, pick.randrange(-1, len(self.shape)))
        if kind < 0.75:
            return self.rearranged(x)
        if kind < 0.9 and self.matrices:
            return self.product(x, y)
        if kind < 0.93:
            return pick.choice(RARE if kind < 0.91 else SCATTERED).format(x, y)
        return f"{x} * tape.tanh(w) + {pick.choice(('w', 'w * w', y))}"

    def called(self, x: str, y: str) -> str:
        """Return an array of extrema, of spreads, of a solved matrix, or of what is no loop."""
        pick, last = self.chance, self.shape[-1]
        kind, unit = pick.random(), f"(2.0 * np.eye({last}))"
        if kind < 0.3 and len(self.shape) == 2 and self.shape[0] == last:
            return pick.choice(SQUARE).format(x, y, unit)
        if kind < 0.3 and len(self.shape) == 3:
            return pick.choice(BATCHED).format(x, y, unit)
        forms = EXTREMA if kind < 0.55 else CALLED if kind < 0.85 or min(self.shape) < 2 else SPREADS
        return pick.choice(forms).format(x, y, pick.randrange(-1, len(self.shape)))

    def solved(self) -> str:
        """Return a number that is made of small matrices."""
        pick = self.chance
        size = min(pick.choice((1, 2, 2, 3, 3, 4, 5, 6)), int(np.prod(self.shape)))
        form = pick.choice(("{0}.reshape(-1)[:{1}]", "{0}.reshape(-1)[-{1}:]", "{0}.T.reshape(-1)[:{1}]"))
        x, y = (form.format(self.name(), size) for _ in range(2))
        return pick.choice(SOLVED).format(x, y, f"(2.0 * np.eye({size}))")

    def rearranged(self, x: str) -> str:
        """Return an array whose elements stand elsewhere for a while, or afterwards."""
        size = int(np.prod(self.shape))
        return self.chance.choice(REARRANGED if size % 2 else REARRANGED + HALVED).format(x, str(self.shape), size)

    def product(self, x: str, y: str) -> str:
        """Return a matrix product, or what is made of one; large ones go to BLAS."""
        return self.chance.choice(PRODUCTS if len(self.shape) == 2 else PRODUCTS[:4]).format(x, y)

    def some(self, depth: int, least: int, most: int, counts: tuple[str, ...] = ()) -> None:
        """Write statements."""
        for _ in range(self.chance.randint(least, most)):
            self.statement(depth, counts)

    def statement(self, depth: int, counts: tuple[str, ...] = ()) -> None:
        """Write a statement; ``counts`` are the counters of the loops around it."""
        pick = self.chance
        kind, x, s = pick.random(), self.name(), self.name_of_scalar()
        if kind < 0.34:
            self.put(depth, f"{x} = {self.array(2)}")
        elif kind < 0.4:
            self.put(depth, f"{x} = tape.tanh({self.array(1)})")
        elif kind < 0.47:
            self.put(depth, f"{s} = {self.scalar()}")
        elif kind < 0.52:
            self.put(depth, f"{s} = tape.tanh({self.total()})")
        elif kind < 0.56:
            self.put(depth, f"{x}, {self.name()} = {self.array(1)}, {x}")
        elif kind < 0.6 and counts:
            form = pick.choice(("{0} % 2 == 0", "{0} == 0", "{0} % 3 == 2", "{0} > 1"))
            self.put(depth, f"if {form.format(pick.choice(counts))}:")
            self.statement(depth + 1)
        elif kind < 0.68 and counts:
            wide = self.shape[0] if self.shape else 1
            form = pick.choice(BY_COUNT if self.shape else BY_COUNT[:-1])
            self.put(depth, form.format(x=x, s=s, k=pick.choice(counts), n=wide))
        elif kind < 0.71:
            self.put(
                depth,
                "with tape.no_grad():",
                f"    {self.fresh('q')} = {self.array(1)}",
                f"{x} = {x} + 0.1 * q{self.count}",
            )
        elif kind < 0.93:
            self.write(depth, counts)
        else:
            self.put(depth, f"{self.fresh('q')} = {self.array(1)}")

    def write(self, depth: int, counts: tuple[str, ...]) -> None:
        """Write a copy, then to it in place: to the whole, to parts, through views."""
        pick, q, x = self.chance, self.fresh("q"), self.name()
        self.put(depth, f"{q} = {self.name()}{pick.choice(('.clone()', ' * 1.0', ' + 0.1'))}")
        for _ in range(pick.randint(1, 3)):
            kind, other = pick.random(), pick.choice((self.name(), q))
            if not self.shape or kind < 0.2:
                value = pick.choice((self.scalar(), self.name(), "0.5", f"{q} * 0.5"))
                self.put(depth, f"{q} {pick.choice(('+=', '*=', '-='))} {value}")
            elif kind < 0.7:
                self.put(depth, self.write_to_part(q, other, counts))
            elif kind < 0.85 and self.shape[0] >= 3:
                forms = SHIFTED + STARS if len(self.shape) > 1 and self.shape[1] >= 3 else SHIFTED
                self.put(depth, pick.choice(forms).format(q=q, o=other))
            else:
                view = self.fresh("v")
                self.put(depth, f"{view} = {pick.choice(VIEWS).format(q=q)}")
                value = pick.choice(("0.5", self.name_of_scalar(), f"{view} * 0.3"))
                self.put(depth, f"{view} {pick.choice(('*=', '+='))} {value}")
        self.put(depth, f"{x} = {pick.choice((q, q, f'0.5 * {q} + 0.3 * {x}'))}")

    def write_to_part(self, q: str, other: str, counts: tuple[str, ...]) -> str:
        """Return a write to a part of ``q``; in loops, sometimes to another one in each step."""
        pick = self.chance
        parts = [part for part in SLICES[len(self.shape)] if _is_part(part, self.shape)]
        part, sign = pick.choice(parts), pick.choice(("+=", "*=", "=", "-=", "="))
        value = pick.choice((f"0.3 * {other}[{part}]", self.name_of_scalar(), "0.25", f"tape.sin({other}[{part}])"))
        if self.calls and pick.random() < 0.3 and not _is_number(part, self.shape):
            value = pick.choice(WRITTEN).format(f"{other}[{part}]")
        if counts and pick.random() < 0.2:
            part = f"{counts[-1]} % {self.shape[0]}"
            value = pick.choice((f"0.5 * {other}[0]", self.name_of_scalar()))
        return f"{q}[{part}] {sign} {value}"

    def loop(self, depth: int, counts: tuple[str, ...]) -> None:
        """Write a loop, perhaps with another inside; a method of two steps, a list of what there was in each step."""
        pick = self.chance
        count, k = pick.randint(3, 9 if not counts else 5), self.fresh("k")
        old = self.fresh("o") if pick.random() < 0.25 else ""
        history = self.fresh("h") if pick.random() < 0.35 else ""
        single, earlier = pick.random() < 0.3, list(self.histories)
        kept, inside = self.name_of_scalar() if single else self.name(), (*counts, k)
        if old:
            self.put(depth, f"{old} = {self.name()}")
        if history:
            self.put(depth, f"{history} = []")
        self.put(depth, f"for {k} in range({count}):")
        if old:
            x = self.name()
            self.put(depth + 1, f"{old}, {x} = {x}, 1.2 * {x} - 0.3 * {old} + 0.1 * {self.name()}")
        for name, steps, numbers in [] if counts else earlier:
            if steps >= count and pick.random() < 0.5:
                at = pick.choice((k, k, f"{count - 1} - {k}"))
                form = "{s} = 0.2 * {h}[{at}].mean()" if single or numbers else "{x} = {x} * 0.8 + 0.1 * {h}[{at}]"
                self.put(depth + 1, form.format(x=kept, s=self.name_of_scalar(), h=name, at=at))
        self.some(depth + 1, 1, 3, inside)
        if len(counts) < 2 and pick.random() < 0.35:
            self.loop(depth + 1, inside)
            self.some(depth + 1, 0, 1, inside)
        if history:
            self.put(depth + 1, f"{history}.append({kept})")
            if not counts:
                self.histories.append((history, count, single))

    def read_histories(self) -> None:
        """Read what loops appended to lists."""
        for name, _, single in self.histories:
            forms = ["tape.stack({0}).mean()", "({0}[-1] * {0}[0]).mean()", "{0}[1].mean() - {0}[2].mean()"]
            forms += ["(tape.stack({0})[1:] - tape.stack({0})[:-1]).square().mean()", "tape.tanh(sum({0})).mean()"]
            forms += ["tape.stack({0}).reshape(-1)[::2].sum() * 0.1", "tape.logsumexp(tape.stack({0}), 0).mean()"]
            forms += (
                ["(tape.stack({0}) * series[: len({0})]).sum() * 0.1"]
                if single
                else ["tape.cat([h[None] for h in {0}]).mean()", *_CALLED]
            )
            self.put(1, f"a = 0.5 * a + {self.chance.choice(forms).format(name)}")


_CALLED = (
    "tape.cumsum({0}[-2], 0).mean()", "tape.cumprod(0.5 * {0}[1], 0).sum() * 0.1",
    "(tape.cumsum({0}[0], -1) * tape.cumsum({0}[-2], 0)).mean() * 0.1",
)  # fmt: skip
"""What is no loop of machine code, but called, of what single steps appended."""


def _is_part(text: str, shape: tuple[int, ...]) -> bool:
    """Whether an array of a shape has elements there."""
    try:
        return bool(eval(f"x[{text}]", {"x": np.zeros(shape)}).size)  # noqa: S307 (the tables above)
    except IndexError:
        return False


def _is_number(text: str, shape: tuple[int, ...]) -> bool:
    """Whether a part of an array of a shape is one element."""
    return not eval(f"x[{text}]", {"x": np.zeros(shape)}).ndim  # noqa: S307 (the tables above)


def program_of(chance: random.Random, seed: int) -> RandomProgram:
    """Return a random program."""
    return Text(chance).program(seed)
