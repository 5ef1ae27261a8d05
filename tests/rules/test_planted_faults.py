"""The checks of the records are checked: with a fault planted in a record, one of them fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernels.kinds.elementwise import Elementwise, Reduction
from kernels.kinds.views import View
from kernels.operations import OPS
from kernels.rules.op import DeclarationError, Op
from tests.support import record_cases
from tests.support.record_cases import (
    LAYOUTS,
    check_everything,
    check_gradient,
    check_replay,
    check_value,
)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Take the planted records out of the registry again."""
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


@pytest.fixture(autouse=True)
def _few_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cases, "LAYOUTS", {"points": LAYOUTS["points"]})
    monkeypatch.setattr(record_cases, "SINGLE", ("points",))


def planted(**changes: Any) -> Elementwise:
    """Return the record of exp under another name, with changes."""
    told: dict[str, Any] = {
        "name": "planted",
        "doc": "Exponential.",
        "grad_fn": "PlantedBackward0",
        "ufunc": np.exp,
        "forward": lambda x: np.exp(x),  # noqa: PLW0108 (the record reads the name)
        "pullback": (lambda g, y: g * y,),
        "domain": ("real",),
    }
    return Elementwise(**{**told, **changes})


def caught_by(op: Op) -> set[str]:
    """Return the names of the checks that some case of the record fails."""
    failed = set()
    for check in (check_value, check_gradient, check_replay):
        for case in record_cases.cases_of(op):
            try:
                check(case, np.float64)
            except (AssertionError, RuntimeError):
                failed.add(check.__name__)
    return failed


def test_no_fault_is_found_in_a_right_record() -> None:
    check_everything(planted())


def test_rule_wrong_by_a_thousandth() -> None:
    assert caught_by(planted(pullback=(lambda g, y: g * y * 1.001,))) == {"check_gradient"}


def test_rule_wrong_in_its_last_digits() -> None:
    assert caught_by(planted(pullback=(lambda g, y: g * y * (1 + 1e-11),))) == {"check_gradient"}


def test_rule_wrong_in_one_element() -> None:
    names = {"name": "planted "}
    (case,) = record_cases.cases_of(planted(**names))
    del OPS["planted "]
    second, first = np.sort(case.leaves(np.float64)[0])[-2:]
    middle = float(second + first) / 2
    fault = planted(**names, pullback=(lambda g, y, x: np.where(x > middle, g * y * 1.001, g * y),))
    assert caught_by(fault) == {"check_gradient"}


def test_rule_of_the_wrong_sign() -> None:
    assert "check_gradient" in caught_by(planted(pullback=(lambda g, y: -g * y,)))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: np.exp(x) * 1.001,
        lambda x: np.where(x == x.max(initial=-9.0), np.exp(x) * 1.001, np.exp(x)),
        lambda x: np.exp(x) * (1 + 1e-13),
    ],
    ids=["everywhere", "in one element", "in the last digits"],
)
def test_value_that_is_not_the_declared_one(wrong: Callable[[Any], Any]) -> None:
    assert "check_value" in caught_by(planted(ufunc=wrong, exact=True))


def test_value_of_another_dtype() -> None:
    fault = planted(ufunc=lambda x: np.exp(x).astype(np.float32), exact=True)
    assert "check_value" in caught_by(fault)


def test_value_of_another_shape() -> None:
    assert "check_value" in caught_by(planted(ufunc=lambda x: np.exp(x)[..., None], exact=True))


def test_forward_expression_said_to_be_exact() -> None:
    fault = planted(
        ufunc=np.square, forward=lambda x: x * x * (1 + 1e-15), exact=True,
        pullback=(lambda g, x: g * (2 * x),),
    )  # fmt: skip
    assert "check_replay" in caught_by(fault)


def test_rules_in_the_wrong_order() -> None:
    fault = planted(
        ufunc=np.subtract, forward=lambda a, b: a - b, exact=True, domain=("real", "real"),
        pullback=(lambda g: -g, lambda g: g),
    )  # fmt: skip
    assert "check_gradient" in caught_by(fault)


def test_reduction_that_divides_by_too_much() -> None:
    fault = Reduction(name="planted", doc="Mean.", grad_fn="X", ufunc=np.add, scale=True,
                      pullback=(lambda g, n: g / (n + 1),))  # fmt: skip
    assert caught_by(fault) == {"check_gradient"}


def test_view_that_is_a_copy_finds_no_parameters() -> None:
    fault = View(name="planted", doc="A copy.", grad_fn="X", apply=lambda x, order: x.transpose(order).copy())
    with pytest.raises(AssertionError, match="no parameters for the view planted"):
        record_cases.cases_of(fault)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "exp"}, "exp: declared twice"),
        ({"ufunc": None}, "planted: NumPy has no function of this name"),
        ({"pullback": ()}, "planted: 0 entries in pullback for 1 inputs"),
        ({"domain": ("real", "real")}, "planted: 2 entries in domain for 1 inputs"),
        ({"pullback": (lambda g, z: g * z,)}, r"planted: a pullback asks for \['z'\]"),
        ({"pullback": (lambda g, x: g if x > 0 else -g,)}, "planted: .*use np.where"),
        ({"pullback": (lambda g, x: g * np.spacing(x),)}, "planted: a rule cannot use np.spacing"),
    ],
)
def test_declaration_that_contradicts_itself(changes: dict[str, Any], message: str) -> None:
    before = dict(OPS)
    with pytest.raises(DeclarationError, match=message):
        planted(**changes)
    assert before == OPS
