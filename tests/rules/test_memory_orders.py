"""Functions of one array give the same, and the same gradient, however it stands in memory: ties and all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.representatives import few

X = np.random.default_rng(0).integers(0, 3, (4, 2, 3)).astype(float)
"""Few different numbers: many of them tie."""
WEIGHTS = np.random.default_rng(1).normal(size=100)
ORDERS: dict[str, Callable[[Any], Any]] = {
    "rotated axes": lambda x: x.permute(1, 2, 0).clone().permute(2, 0, 1),
    "every other element": lambda x: tape.stack([x, x + 1.0], -1)[..., 0],
    "reversed axes": lambda x: x.T.clone().T,
    "backward": lambda x: tape.flip(tape.flip(x, (0,)).clone(), (0,)),
    "every other row": lambda x: tape.stack([x, x + 1.0], 1)[:, 0],
}
ARGUMENTS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}), ((0,), {}), ((1,), {}), ((2,), {}), ((0, True), {}), ((-1,), {"keepdim": True}),
    (((0, 2),), {}), (((0, 2),), {"keepdim": True}), ((1, 2), {}), ((), {"dim": 1}),
)  # fmt: skip
NOT_OF_VALUES = {"as_strided", "as_strided_copy", "empty_like", "save", "set_num_threads", "manual_seed"}
"""These are about memory itself, or about more than their argument."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions there are."""
    for module in (tape, tape.linalg, tape.special):
        for name in dir(module):
            function = getattr(module, name)
            public = name[0] != "_" and name not in NOT_OF_VALUES
            if public and callable(function) and not isinstance(function, type):
                yield name, function


def total(found: Any) -> Any:
    """Return a weighted sum of all floating elements of results; None if there are none."""
    results = found if isinstance(found, tuple | list) else (found,)
    floating = [y for y in results if isinstance(y, tape.Tensor) and y.dtype == tape.float64 and y.requires_grad]
    return sum((y.reshape(-1) * WEIGHTS[: y.numel()]).sum() for y in floating) if floating else None


def outcome(function: Callable[..., Any], order: Callable[[Any], Any], args: Any, named: Any) -> Any:
    """Return the weighted sum of a function's results, and its gradient."""
    x = tape.tensor(X, requires_grad=True)
    value = total(function(order(x), *args, **named))
    if value is None:
        raise TypeError("it has no floating result")
    value.backward()
    return [float(value.detach()), *x.grad.numpy().ravel()]


@pytest.mark.parametrize("what", few([*ORDERS], 2, pytest.mark.quick))
def test_results_do_not_depend_on_the_order_in_memory(what: str) -> None:
    compared: dict[str, int] = {}
    for name, function in functions():
        for args, named in ARGUMENTS:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    expected = outcome(function, lambda x: x, args, named)
                except Exception:  # noqa: BLE001, S112 (not a function of such arguments)
                    continue
                found = outcome(function, ORDERS[what], args, named)
                message = f"{name} {args} {named}, {what}"
                np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12, err_msg=message)
            compared[name] = compared.get(name, 0) + 1
    assert len(compared) > 150
    assert compared["amax"] > 5
