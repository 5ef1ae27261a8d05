"""NumPy arrays that a program refills after it has used them: values and gradients are those of copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

N = 6
X = np.linspace(0.5, 2.0, N)
WORK = {
    "row": lambda n: np.linspace(1.0, 2.0, n),
    "positive": lambda n: np.linspace(1.0, 2.0, n) ** 2,
    "matrix": lambda n: np.eye(n) * 3.0 + np.arange(n * n).reshape(n, n) / n**2,
    "index": lambda n: np.arange(n)[::-1].copy(),
    "mask": lambda n: np.arange(n) % 2 == 0,
    "number": lambda n: np.array(1.5),  # noqa: ARG005
    "sorted": lambda n: np.arange(float(n)),
}  # fmt: skip


class Scaled(tape.autograd.Function):
    """A product that keeps an array itself."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        w = tape.as_tensor(w)
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        _, w = ctx.saved_tensors
        return g * w, None


def placed(x: Any, w: Any) -> Any:
    y = x * 1.0
    y[1:] = w[1:]
    return y * y


def updated(x: Any, w: Any, run: Callable[[Any, Any], Any]) -> Any:
    y = x * 1.0
    run(y, w)
    return y * y


def leaf_with_gradient(x: Any, w: Any) -> Any:
    y = x * x
    y.backward(tape.from_numpy(w), retain_graph=True)
    return y


# name: which work array, and the program
PROGRAMS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "x * w": ("row", lambda x, w: x * w),
    "w * x": ("row", lambda x, w: w * x),
    "x / w": ("row", lambda x, w: x / w),
    "w / x": ("row", lambda x, w: w / x),
    "x ** w": ("row", lambda x, w: x**w),
    "w ** x": ("row", lambda x, w: w**x),
    "x % w": ("row", lambda x, w: x % w),
    "x @ w": ("row", lambda x, w: x @ w),
    "w @ x": ("matrix", lambda x, w: w @ x),
    "np.multiply": ("row", np.multiply),
    "np.multiply where": ("mask", lambda x, w: np.where(w, x * 2.0, x)),
    "np.hypot": ("row", np.hypot),
    "np.arctan2": ("row", lambda x, w: np.arctan2(w, x)),
    "reversed": ("row", lambda x, w: x * w[::-1]),
    "slice": ("row", lambda x, w: x[1:] * w[:-1]),
    "column": ("matrix", lambda x, w: x * w[:, 1]),
    "turned": ("matrix", lambda x, w: (x * w.T).sum(0)),
    "spread": ("row", lambda x, w: (x * np.broadcast_to(w, (3, len(w)))).sum(0)),
    "int": ("index", lambda x, w: x * w),
    "float32": ("row", lambda x, w: x.to(tape.float32) * w.astype(np.float32)),
    "number": ("number", lambda x, w: x * w),
    "list": ("row", lambda x, w: x * list(w)),
    "memoryview": ("row", lambda x, w: x * memoryview(w)),
    "tape.where": ("mask", lambda x, w: tape.where(tape.from_numpy(w), x * 2.0, 1.0)),
    "masked_fill": ("mask", lambda x, w: x.masked_fill(tape.from_numpy(w), 0.5) * x),
    "masked_select": ("mask", lambda x, w: x.masked_select(tape.from_numpy(w)) ** 2),
    "x[index]": ("index", lambda x, w: x[w] ** 2),
    "x[mask]": ("mask", lambda x, w: x[w] ** 2),
    "x[from_numpy]": ("index", lambda x, w: x[tape.from_numpy(w)] ** 2),
    "x[index part]": ("index", lambda x, w: x[w[1:4]] ** 2),
    "matrix[index]": ("index", lambda x, w: tape.outer(x, x)[:, w] ** 2),
    "take": ("index", lambda x, w: tape.take(x, tape.from_numpy(w)) ** 2),
    "np.take": ("index", lambda x, w: np.take(x, w) ** 2),
    "take_along_axis": ("index", lambda x, w: np.take_along_axis(x, w, 0) ** 2),
    "gather": ("index", lambda x, w: tape.gather(x, 0, tape.from_numpy(w)) ** 2),
    "index_select": ("index", lambda x, w: tape.index_select(x, 0, tape.from_numpy(w)) ** 2),
    "index_add": ("index", lambda x, w: tape.zeros(len(x)).index_add(0, tape.from_numpy(w), x) ** 2),
    "scatter": ("index", lambda x, w: tape.zeros(len(x)).scatter(0, tape.from_numpy(w), x) ** 2),
    "scatter_add": ("index", lambda x, w: tape.zeros(len(x)).scatter_add(0, tape.from_numpy(w), x) ** 2),
    "index_put": ("index", lambda x, w: updated(x, w, lambda y, w: y.__setitem__(w, x * 3.0))),
    "x[index] +=": ("index", lambda x, w: updated(x, w, lambda y, w: y.__setitem__(w, y[w] * 2.0 + 1.0))),
    "x[mask] =": ("mask", lambda x, w: updated(x, w, lambda y, w: y.__setitem__(w, 3.0))),
    "np.add.at": ("index", lambda x, w: updated(x, w, lambda y, w: np.add.at(y, w, x))),
    "x[1:] = w": ("row", placed),
    "+=": ("row", lambda x, w: updated(x, w, lambda y, w: y.add_(w))),
    "*=": ("row", lambda x, w: updated(x, w, lambda y, w: y.mul_(tape.from_numpy(w)))),
    "x *= array": ("row", lambda x, w: updated(x, w, lambda y, w: y.__imul__(w))),
    "addcmul_": ("row", lambda x, w: updated(x, w, lambda y, w: y.addcmul_(tape.from_numpy(w), x))),
    "cat": ("row", lambda x, w: np.concatenate([x, w]) ** 2),
    "stack": ("row", lambda x, w: np.stack([w, x]) ** 2),
    "solve": ("matrix", lambda x, w: np.linalg.solve(w, x)),
    "solve of x": ("row", lambda x, w: np.linalg.solve(np.eye(len(w)) + tape.diag(x), w)),
    "einsum": ("matrix", lambda x, w: np.einsum("ij,j->i", w, x)),
    "tensordot": ("matrix", lambda x, w: np.tensordot(w, x, 1)),
    "dot": ("row", lambda x, w: np.dot(w, x)),
    "outer": ("row", lambda x, w: np.outer(w, x)),
    "kron": ("row", lambda x, w: np.kron(w, x)),
    "interp at": ("sorted", lambda x, w: np.interp(x, w, w**2)),
    "interp fp": ("sorted", lambda x, w: np.interp(w, np.arange(float(len(w))), x)),
    "convolve": ("row", np.convolve),
    "average": ("row", lambda x, w: np.average(x, weights=w)),
    "trapezoid": ("sorted", lambda x, w: np.trapezoid(x * x, w)),
    "polyval": ("row", lambda x, w: np.polyval(w, x)),
    "searchsorted": ("sorted", lambda x, w: x * tape.searchsorted(tape.from_numpy(w), x.detach())),
    "Function": ("row", Scaled.apply),
    "Function of a tensor": ("row", lambda x, w: Scaled.apply(x, tape.from_numpy(w))),
    "from_numpy": ("row", lambda x, w: x * tape.from_numpy(w)),
    "from_numpy part": ("row", lambda x, w: x[1:] * tape.from_numpy(w)[:-1]),
    "from_numpy detached": ("row", lambda x, w: x * tape.from_numpy(w).detach().view(2, -1).reshape(-1)),
    "as_tensor": ("row", lambda x, w: x * tape.as_tensor(w)),
    "from_dlpack": ("row", lambda x, w: x * tape.from_dlpack(w)),
    "asarray": ("row", lambda x, w: x * tape.asarray(w) if hasattr(tape, "asarray") else x * tape.as_tensor(w)),
    "tensor": ("row", lambda x, w: x * tape.tensor(w)),
    "expand": ("number", lambda x, w: x * tape.from_numpy(w).expand(len(x))),
    "a leaf of its memory": ("row", lambda x, w: x * tape.from_numpy(w).requires_grad_()),
    "backward(array)": ("row", leaf_with_gradient),
    "lerp": ("row", lambda x, w: tape.lerp(x, x * x, tape.from_numpy(w))),
    "clip": ("row", lambda x, w: np.clip(x, w * 0.5, w)),
    "vmap": ("row", lambda x, w: tape.vmap(lambda a: a * w)(tape.stack([x, x * 2.0])).sum(0)),
    "vmap over w": ("matrix", lambda x, w: tape.vmap(lambda a: a @ x)(tape.from_numpy(w))),
    "logaddexp": ("row", np.logaddexp),
    "custom": ("row", lambda x, w: tape.special.xlogy(x, tape.from_numpy(w))),
    "addmm": ("matrix", lambda x, w: tape.addmv(x, tape.from_numpy(w), x)),
    "sparse": ("row", lambda x, w: tape.sparse.diags(w) @ x if hasattr(tape.sparse, "diags") else x * w),
}  # fmt: skip


def overwrite(work: Any) -> None:
    work[...] = work[::-1].copy() * 0 if work.ndim else 0


def gradient(name: str, n: int, *, kept: bool, times: int = 2) -> list[Any]:
    kind, run = PROGRAMS[name]
    x = tape.tensor(np.linspace(0.5, 2.0, n), requires_grad=True)
    work, found, total = WORK[kind](n), [], tape.zeros(())
    for k in range(times):
        work[...] = WORK[kind](n) if kind in ("index", "mask") else WORK[kind](n) + 0.1 * k
        y = run(x, work.copy() if kept else work)
        found.append(y.detach().clone())
        total = total + (y * np.float64(k + 1.0)).sum()
    overwrite(work)
    given = None if x.grad is None else x.grad.clone()
    (g,) = tape.autograd.grad(total, x)
    return [*found, g, *([] if given is None else [given])]


@pytest.mark.quick
@pytest.mark.parametrize("n", [N, 900])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_may_be_refilled_after_they_were_used(name: str, n: int) -> None:
    if n > N and PROGRAMS[name][0] == "matrix":
        n = 30
    expected = gradient(name, n, kept=True)
    for _ in range(3):  # Python's calls, then native ones
        for one, other in zip(gradient(name, n, kept=False), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=name)
