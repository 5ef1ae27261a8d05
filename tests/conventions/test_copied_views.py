"""PyTorch's ``*_copy`` functions: what the view shows, in memory of its own, with the view's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes

A = np.arange(16.0).reshape(4, 4)
CASES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "alias_copy": ((), A),
    "detach_copy": ((), A),
    "view_copy": (((2, 8),), A.reshape(2, 8)),
    "expand_copy": (((2, 4, 4),), np.broadcast_to(A, (2, 4, 4))),
    "permute_copy": (((1, 0),), A.T),
    "transpose_copy": ((0, -1), A.T),
    "t_copy": ((), A.T),
    "squeeze_copy": ((), A),
    "unsqueeze_copy": ((1,), A[:, None]),
    "diagonal_copy": ((1,), np.diagonal(A, 1)),
    "select_copy": ((1, 2), A[:, 2]),
    "slice_copy": ((1, 1, None, 2), A[:, 1::2]),
    "narrow_copy": ((0, 1, 2), A[1:3]),
    "as_strided_copy": (((2, 2), (1, 2), 3), A.reshape(-1)[[[3, 5], [4, 6]]]),
    "unfold_copy": ((0, 2, 1), np.stack([A[:2].T, A[1:3].T, A[2:].T])),
    "unbind_copy": ((1,), tuple(A.T)),
    "split_copy": ((3, 1), (A[:, :3], A[:, 3:])),
    "split_with_sizes_copy": (([1, 3],), (A[:1], A[1:])),
}


@pytest.mark.parametrize("name", CASES)
def test_values_memory_and_gradients(name: str) -> None:
    arguments, expected = CASES[name]
    x = tape.tensor(A, requires_grad=True)
    found = getattr(tape, name)(x, *arguments)
    parts, wanted = (found, expected) if isinstance(found, tuple) else ((found,), (expected,))
    for part, own in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(part.detach().numpy(), own)
        assert not np.shares_memory(part.detach().numpy(), x.detach().numpy())
    weights = [np.arange(1.0, 1.0 + own.size).reshape(own.shape) for own in wanted]
    sum(((part * tape.tensor(w)).sum() for part, w in zip(parts, weights, strict=True)), tape.tensor(0.0)).backward()
    gradient = np.zeros(16)
    numbers = tape.from_numpy(np.arange(16).reshape(4, 4))
    places = getattr(tape, name)(numbers, *arguments)
    for at, w in zip(places if isinstance(places, tuple) else (places,), weights, strict=True):
        np.add.at(gradient, at.numpy().reshape(-1), w.reshape(-1))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), gradient.reshape(4, 4))


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str, pytorch: Outcomes) -> None:
    arguments, _ = CASES[name]

    def run(lib: Any) -> Any:
        return getattr(lib, name)(lib.tensor(A), *arguments), hasattr(lib.Tensor, name)

    (found, method), (expected, their_method) = run(tape), pytorch(run, name)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for one, two in pairs:
        np.testing.assert_array_equal(one.numpy(), two.numpy(), strict=True)
    assert method == their_method


def test_what_does_not_fit_is_refused() -> None:
    x = tape.tensor(A)
    for call in (lambda: tape.view_copy(x.t(), (16,)), lambda: tape.view_copy(x, (3, 5))):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: tape.slice_copy(x, 2), lambda: tape.select_copy(x, 0, 4)):
        with pytest.raises(IndexError):
            call()
