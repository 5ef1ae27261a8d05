"""What a user did wrong is told with his own lines, and at most two of ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from tape import func, nn
from tape.recording.cached_calls import NATIVELY

pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(not NATIVELY, reason="plain mode: more of our functions run an operation, and none shortens"),
]

ROOT = Path(tape.__file__).parents[1]
A, B, V = tape.ones(2, 3), tape.ones(2, 3), tape.ones(4)
G = tape.ones(2, 3, requires_grad=True)


class _Product(tape.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x @ B

    @staticmethod
    def backward(_ctx: Any, g: Any) -> Any:
        return g


class _Wrong(_Product):
    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(_ctx: Any, g: Any) -> Any:
        return g @ V


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.Linear(4, 2))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def product(x: Any) -> Any:
    return (x @ np.ones((2, 3))).sum()


def added(x: Any) -> Any:
    x += V
    return x


def recorded() -> None:
    with tape.record():
        G @ B


X = np.ones((2, 3))
CASES: dict[str, Callable[[], Any]] = {
    "matmul": lambda: A @ B,
    "matmul of what requires grad": lambda: G @ B,
    "add": lambda: A + V,
    "to an array": lambda: np.ones(4) + G,
    "ufunc": lambda: np.add(G, np.ones(4)),
    "in place": lambda: added(A.clone()),
    "add_": lambda: A.clone().add_(V),
    "copy_": lambda: A.clone().copy_(V),
    "reshape": lambda: G.reshape(4),
    "np.reshape": lambda: np.reshape(G, 4),
    "view": lambda: A.view(5),
    "cat": lambda: tape.cat([A, tape.ones(2, 2, 2)]),
    "np.stack": lambda: np.stack([G, np.ones(2)]),
    "where": lambda: tape.where(A > 0, A, V),
    "item": lambda: A.clone().__setitem__(0, V),
    "index": lambda: A[:, :, 1],
    "einsum": lambda: tape.einsum("ij,jk->ik", A, B),
    "dim": lambda: G.sum(3),
    "flip": lambda: A.flip(5),
    "split": lambda: tape.split(A, [1, 5]),
    "out": lambda: tape.exp(A, out=tape.ones(5)),
    "solve": lambda: tape.linalg.solve(tape.ones(2, 2), tape.ones(3)),
    "linear": lambda: nn.functional.linear(A, tape.ones(5, 4)),
    "module": lambda: nn.Linear(4, 2)(A),
    "modules": lambda: _Layers()(A),
    "loss": lambda: nn.MSELoss()(A, V),
    "value_and_grad": lambda: tape.value_and_grad(product)(X),
    "grad": lambda: func.grad(product)(X),
    "gradient of a gradient": lambda: func.grad(lambda x: func.grad(product)(x).sum())(X),
    "vmap": lambda: func.vmap(lambda x: x @ V)(X),
    "jacrev": lambda: func.jacrev(product)(X),
    "jvp": lambda: func.jvp(product, (A,), (B,)),
    "vjp": lambda: func.vjp(product, A),
    "compile": lambda: tape.compile(product)(X),
    "compiled gradient": lambda: tape.compile(tape.value_and_grad(product))(X),
    "record": lambda: tape.record(product, X),
    "with record": recorded,
    "program": lambda: tape.record(lambda x: x * 2.0, np.ones(3))(np.ones(4)),
    "ode.solve": lambda: tape.ode.solve(lambda _t, y: y + V, np.ones(3), (0.0, 1.0)),
    "functional.jacobian": lambda: tape.autograd.functional.jacobian(product, A),
    "sparse.jacobian": lambda: tape.sparse.jacobian(lambda x: x + V)(np.ones(3)),
    "optimize.minimize": lambda: tape.optimize.minimize(lambda x: (x + V).sum(), np.ones(3)),
    "checkpoint": lambda: tape.checkpoint(product, G),
    "function": lambda: _Product.apply(G),
    "backward of a function": lambda: _Wrong.apply(G).sum().backward(),
    "backward": (G * 2.0).backward,
    "autograd.grad": lambda: tape.autograd.grad(G * 2.0, G),
}


@pytest.fixture(autouse=True)
def _usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPE_DEBUG", raising=False)


def is_ours(frame: traceback.FrameSummary) -> bool:
    return any(Path(frame.filename).is_relative_to(ROOT / package) for package in ("tape", "kernels"))


@pytest.mark.parametrize("name", CASES)
def test_at_most_two_frames_are_ours(name: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as caught:
        CASES[name]()
    frames = traceback.extract_tb(caught.value.__traceback__)
    ours = [f"{frame.filename}:{frame.name}" for frame in frames if is_ours(frame)]
    assert len(ours) <= 2, ours
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count(str(ROOT / "tape")) + printed.count(str(ROOT / "kernels")) <= 2, printed


def test_the_users_own_frames_stay() -> None:
    def inner(x: Any) -> Any:
        return (x @ B).sum()

    def outer(x: Any) -> Any:
        return func.grad(inner)(x * 2.0).sum()

    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        tape.compile(tape.value_and_grad(outer))(X)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames if not is_ours(frame)] == [
        "test_the_users_own_frames_stay",
        "outer",
        "inner",
    ]
    assert frames[-2].line == "return (x @ B).sum()"
    assert is_ours(frames[-1])
    assert frames[-1].line is not None
    assert "raise" in frames[-1].line


def test_an_error_of_the_users_keeps_his_frames_alone() -> None:
    def failing(_x: Any) -> Any:
        raise ValueError("mine")

    for transformed in (tape.value_and_grad(failing), func.vmap(failing), tape.compile(failing)):
        with pytest.raises(ValueError, match="mine") as caught:
            transformed(X)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names == ["test_an_error_of_the_users_keeps_his_frames_alone", "failing"]


def test_debugging_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_DEBUG", "1")
    with pytest.raises(RuntimeError) as caught:
        A + V
    assert sum(map(is_ours, traceback.extract_tb(caught.value.__traceback__))) > 2


def test_what_is_no_mistake_of_a_user_keeps_all() -> None:
    def failing(_x: Any) -> Any:
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        tape.value_and_grad(failing)(X)
    assert sum(map(is_ours, traceback.extract_tb(caught.value.__traceback__))) > 1


def test_a_users_folder_of_our_name_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "kernels" / "mine.py"
    path.parent.mkdir()
    path.write_text("def f(x):\n    return x.reshape(5)\n", encoding="utf-8")
    scope: dict[str, Any] = {"__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)  # noqa: S102
    with pytest.raises(RuntimeError) as caught:
        tape.value_and_grad(scope["f"])(X)
    assert str(path) in [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
