"""Random numbers in compiled functions: drawn anew at each call, from the state from which dynamic mode would."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError
from tests.support.representatives import in_turns

CALLS = 7
OWN = tape.Generator().manual_seed(3)
ODDS = tape.tensor([0.1, 0.5, 0.9])


def in_place(x: Any) -> Any:
    """Write numbers to new memory and to parts of it."""
    y = x.clone()
    y[1:].normal_(1.0, 2.0)
    y[:1].uniform_(-1, 1)
    z = tape.empty(3).exponential_(2.0)
    z.mul_(x)
    return y + z + tape.zeros(3).bernoulli_(0.3) + tape.zeros(3).random_(5)


def scaled_in_place(x: Any) -> Any:
    noise = tape.randn(3)
    noise *= x
    return noise + noise.sum()


def by_value(x: Any) -> Any:
    """Go by what was drawn."""
    a = tape.rand(3)
    b = tape.randn(3) if a.sum() > 1.5 else tape.rand(2).sum() * x
    return x * a + b


def walk(x: Any) -> Any:
    """Draw in a loop."""
    for _ in range(4):
        x = x + 0.1 * tape.randn(3) * x
    return x


def until_small(x: Any) -> Any:
    """Draw until a number is small: rejection."""
    u, count = tape.rand(()), 0
    while u > 0.3 and count < 8:
        u, count = tape.rand(()), count + 1
    return x * u


def newton_then_noise(x: Any) -> Any:
    """Draw behind a loop that a value ends."""
    y = x.sum() + 2.0
    while abs(y * y - 2.0) > 1e-12:
        y = 0.5 * (y + 2.0 / y)
    return x * y + tape.randn(3)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda x: x + tape.rand(3) * x,
    "randn": lambda x: x * tape.randn(2, 3),
    "many": lambda x: x * tape.randn(40)[:3],
    "numbers": lambda x: x * tape.randn(()) + tape.rand(()),
    "single": lambda x: x * tape.rand(3, dtype=tape.float32) + tape.randn(20, dtype=tape.float32).sum(),
    "like": lambda x: tape.rand_like(x) + tape.randn_like(x) * x,
    "randint": lambda x: x * tape.randint(10, (3,)) + tape.randint(2, 5, (3,), dtype=tape.float64),
    "randperm": lambda x: tape.randperm(3) * x,
    "shuffled": lambda x: x[tape.randperm(3)] * x,
    "normal": lambda x: x * tape.normal(1.0, 2.0, (3,)) + tape.normal(ODDS, 0.5) + tape.normal(0.0, ODDS),
    "bernoulli": lambda x: x * tape.bernoulli(ODDS) + tape.bernoulli(x, 0.5),
    "multinomial": lambda x: x * tape.multinomial(ODDS, 3) + tape.multinomial(ODDS, 3, True),
    "a generator": lambda x: x + tape.rand(3, generator=OWN) * tape.rand(3) + tape.randn(3, generator=OWN),
    "twice": lambda x: x * tape.rand(3) - tape.rand(3),
    "out": lambda x: x * tape.rand(3, out=tape.empty(3)),
    "in place": in_place, "scaled in place": scaled_in_place, "by value": by_value, "walk": walk,
    "until small": until_small, "newton then noise": newton_then_noise,
}  # fmt: skip


def at(call: int) -> Any:
    return np.random.default_rng(call).uniform(0.1, 0.9, 3)


def seeded(call: int) -> None:
    tape.manual_seed(100 + call)
    OWN.manual_seed(200 + call)


def states() -> list[bytes]:
    return [g.get_state().numpy().tobytes() for g in (tape.random.default_generator, OWN)]


@pytest.mark.parametrize(
    ("use", "check"),
    in_turns(itertools.product(FUNCTIONS, [False, True]), ["sample", "always", "never"], pytest.mark.quick),
)
def test_numbers_and_states_are_those_of_dynamic_mode(use: tuple[str, bool], check: str) -> None:
    name, gradient = use

    def summed(x: Any) -> Any:
        return FUNCTIONS[name](x).sum()

    function = tape.value_and_grad(summed) if gradient else summed
    compiled = tape.compile(function, check=check)
    for call in range(4 * CALLS):
        seeded(call)
        expected = function(at(call) if gradient else tape.tensor(at(call)))
        after = states()
        seeded(call)
        found = compiled(at(call))
        assert states() == after
        for a, b in zip(found, expected, strict=True) if gradient else [(found, expected.numpy())]:
            np.testing.assert_array_equal(a, b)
    assert compiled.calls["dynamic"] == 0
    if name not in ("by value", "until small", "newton then noise", "shuffled"):
        assert compiled.calls["recorded"] == 2
    if name == "by value":
        assert len(compiled.programs) == 2


@pytest.mark.quick
def test_calls_one_after_the_other_draw_other_numbers() -> None:
    compiled = tape.compile(lambda x: x + tape.rand(3), check="never")
    found = [compiled(np.zeros(3)).tobytes() for _ in range(CALLS)]
    assert len(set(found)) == CALLS


@pytest.mark.quick
def test_a_step_of_a_graph_is_drawn_once() -> None:
    step = tape.compile(lambda x: x + 0.1 * x * tape.randn(3))
    for call in range(CALLS):
        x = tape.tensor(at(call), requires_grad=True)
        tape.manual_seed(call)
        y = step(step(x))
        (g,) = tape.autograd.grad(y.sum(), x, create_graph=True)
        tape.manual_seed(call)
        factors = (1 + 0.1 * tape.randn(3)) * (1 + 0.1 * tape.randn(3))
        np.testing.assert_allclose(g.detach().numpy(), factors.numpy(), rtol=1e-14)


@pytest.mark.quick
def test_after_an_error_numbers_have_been_drawn() -> None:
    def function(x: Any) -> Any:
        return tape.linalg.inv(x + 0 * tape.rand(2, 2))

    compiled = tape.compile(function)
    for call in range(CALLS - 1):
        compiled(np.eye(2) * (call + 1))
    after = []
    for run in (compiled, function):
        seeded(1)
        with pytest.raises(tape.linalg.LinAlgError):
            run(tape.zeros(2, 2) if run is function else np.zeros((2, 2)))
        after.append(states())
    assert after[0] == after[1]
    assert compiled(np.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.quick
def test_leaves_that_require_grad_are_drawn_dynamically() -> None:
    def function(x: Any) -> Any:
        leaf = tape.randn(3, requires_grad=True)
        return x * leaf.detach()

    compiled = tape.compile(function)
    with pytest.warns(tape.errors.CompileWarning, match="random numbers that require grad"):
        compiled(at(0))
    for call in range(CALLS):
        tape.manual_seed(call)
        found = compiled(at(call))
        tape.manual_seed(call)
        np.testing.assert_array_equal(found, function(tape.tensor(at(call))).numpy())


@pytest.mark.quick
def test_other_odds_are_other_programs() -> None:
    """The odds are read when numbers are drawn, in Python: a guard."""
    compiled = tape.compile(lambda x, p: x + tape.zeros(3).bernoulli_(p) + tape.bernoulli(p))
    for call in range(2 * CALLS):
        p = tape.tensor([0.0, 1.0, 0.0]) if call % 2 else tape.tensor([1.0, 0.0, 1.0])
        assert (compiled(tape.zeros(3), p) == 2 * p).all()


@pytest.mark.quick
def test_files_hold_no_random_numbers(tmp_path: Any) -> None:
    compiled = tape.compile(lambda x: x + tape.rand(3))
    for call in range(CALLS):
        compiled(at(call))
    with pytest.raises(ProgramError, match="draws random numbers"):
        compiled.save(tmp_path / "function")


@pytest.mark.quick
def test_threads_draw_each_number_once() -> None:
    generator = tape.Generator().manual_seed(0)
    compiled = tape.compile(lambda x: x + tape.rand(1, generator=generator), check="never")
    for _ in range(CALLS):
        compiled(np.zeros(1))
    generator.manual_seed(0)
    drawn: list[float] = []

    def run() -> None:
        drawn.extend(float(compiled(np.zeros(1))[0]) for _ in range(50))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    generator.manual_seed(0)
    assert sorted(drawn) == sorted(tape.rand(200, generator=generator).tolist())


@pytest.mark.quick
def test_vmap_within_a_compiled_function_stays_dynamic() -> None:
    compiled = tape.compile(tape.func.vmap(lambda row: row * tape.rand(3), randomness="same"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(CALLS):
            tape.manual_seed(call)
            found = compiled(np.ones((2, 3)))
            tape.manual_seed(call)
            np.testing.assert_array_equal(found, np.stack([tape.rand(3).numpy()] * 2))
