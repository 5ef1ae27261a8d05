"""The store of PyTorch's outcomes: what comes back is what was stored; what is missing, stale or different is said."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tests.support import pytorch_outcomes
from tests.support.pytorch_outcomes import Outcomes, Raised, differences, from_json, raised, to_json

if TYPE_CHECKING:
    from pathlib import Path

VALUES: dict[str, Any] = {
    "numbers": [0.1, -0.0, math.inf, -math.inf, 5e-324, 2**70, True, None, "text"],
    "structure": ([1, (2, [])], {"a": 1, "$b": (2,)}, {0: "zero"}),
    "doubles": np.array([[0.1, -0.0], [np.pi, 1e-300]]),
    "singles": np.array([0.1, 1 / 3], np.float32),
    "halves": np.array([0.1, 65504.0], np.float16),
    "integers": np.array([[-(2**63)], [2**63 - 1]]),
    "booleans": np.array(True),
    "empty": np.zeros((0, 3), np.int8),
    "dtype": np.dtype("float32"),
    "exception": Raised(("IndexError", "LookupError"), "of 3"),
}


def as_text(value: Any) -> str:
    """Show a value with types and all digits."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tolist()}"
    return repr(value)


@pytest.mark.quick
@pytest.mark.parametrize("name", VALUES)
def test_what_is_stored_comes_back(name: str) -> None:
    back = from_json(json.loads(json.dumps(to_json(VALUES[name]))))
    assert as_text(back) == as_text(VALUES[name])


@pytest.mark.quick
def test_tensors_and_nan_come_back() -> None:
    x = tape.tensor([math.nan, 1.0], requires_grad=True)
    back = from_json(json.loads(json.dumps(to_json([x, x.detach().float()]))))
    assert [one.requires_grad for one in back] == [True, False]
    assert [str(one.dtype) for one in back] == ["float64", "float32"]
    np.testing.assert_array_equal(back[0].numpy(), [math.nan, 1.0])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1.0, 1.0 + 1e-9),
        (1, True),
        ([1], (1,)),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(2), np.zeros((1, 2))),
        (np.array([math.nan]), np.array([0.0])),
        (Raised(("ValueError",), "a"), Raised(("TypeError",), "a")),
    ],
    ids=str,
)
def test_differences_are_told(one: Any, other: Any) -> None:
    assert list(differences(one, other))
    assert not list(differences(one, one))


@pytest.mark.quick
def test_addresses_in_messages_do_not_differ() -> None:
    assert raised(ValueError("<object at 0x7f00>")) == raised(ValueError("<object at 0x7f01>"))


def store_of(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Any) -> Outcomes:
    """Return a store, in a folder of its own, of a library that gives an answer."""
    monkeypatch.setattr(pytorch_outcomes, "FOLDER", folder)
    monkeypatch.setattr(pytorch_outcomes, "installed", lambda: answer is not None)
    monkeypatch.setattr(Outcomes, "_ask", lambda _, run: run(SimpleNamespace(answer=answer)))
    return Outcomes("topic", storing=False)


@pytest.mark.quick
def test_what_is_missing_or_stale_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(library: Any) -> Any:
        return library.answer

    (tmp_path / "topic.json").write_text('{"PyTorch": "2", "outcomes": {"known": 1.5}}', encoding="utf-8")
    assert store_of(tmp_path, monkeypatch, None)(ask, "known") == 1.5
    assert store_of(tmp_path, monkeypatch, 1.5)(ask, "known") == 1.5
    with pytest.raises(AssertionError, match=r"tells of PyTorch 2 otherwise; python .* renews it"):
        store_of(tmp_path, monkeypatch, 1.6)(ask, "known")
    for answer in (None, 1.5):
        with pytest.raises(pytest.fail.Exception, match=r"no outcome .* 'unknown' in topic.json; python .* renews"):
            store_of(tmp_path, monkeypatch, answer)(ask, "unknown")


def test_a_key_stands_for_one_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_of(tmp_path, monkeypatch, 1.5)
    storing = Outcomes("topic", storing=True)
    assert storing(lambda library: library.answer, "one") == storing(lambda _: 1.5, "one") == 1.5
    with pytest.raises(AssertionError, match="'one' is the key of two outcomes"):
        storing(lambda _: 2.5, "one")
