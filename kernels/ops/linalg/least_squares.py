"""The table of pseudoinverses and least squares; the rules are those of Golub and Pereyra (1973), at constant rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.linalg.solves import Array, each, outer
from kernels.records.dispatch import turned


def _pinv_vjp(g: Any, y: Any, a: Any) -> Any:
    yt, gt = turned(y), turned(g)
    right = np.matmul(gt, np.matmul(y, yt))
    left = np.matmul(np.matmul(yt, y), gt)
    rest = right - np.matmul(a, np.matmul(y, right)) + left - np.matmul(np.matmul(left, y), a)
    return rest - np.matmul(np.matmul(yt, g), yt)


def _pinv_jvp(t: Any, y: Any, a: Any) -> Any:
    yt, tt = turned(y), turned(t)
    right = np.matmul(np.matmul(y, yt), tt)
    left = np.matmul(tt, np.matmul(yt, y))
    rest = right - np.matmul(np.matmul(right, a), y) + left - np.matmul(y, np.matmul(a, left))
    return rest - np.matmul(np.matmul(y, t), y)


Routine(
    name="pinv",
    doc="The pseudoinverse of a matrix.",
    grad_fn="LinalgPinvBackward0",
    function=False,
    forward=lambda a, *, rtol: np.linalg.pinv(a, rcond=rtol),
    vjp=_pinv_vjp,
    jvp=_pinv_jvp,
    samples=((((3, 2),), {"rtol": 1e-15}), (((2, 2, 3),), {"rtol": 1e-15})),
)


def _least(a: Array, b: Array, rcond: float) -> tuple[Array, ...]:
    solution, _, rank, s = np.linalg.lstsq(a, b, rcond=rcond)
    return solution, np.asarray(rank, np.int64), s


def _lstsq_vjp(g: Any, y: Any, a: Any, b: Any, rcond: float, needs: Any) -> Any:
    p = np.linalg.pinv(a, rcond=rcond)
    pt = turned(p)
    g_b = np.matmul(pt, g)
    if not needs[0]:
        return None, g_b
    left = outer(b - np.matmul(a, y), np.matmul(p, g_b))
    right = outer(np.matmul(pt, y), g - np.matmul(p, np.matmul(a, g)))
    return left + right - outer(g_b, y), g_b


def _lstsq_jvp(t_a: Any, t_b: Any, y: Any, a: Any, b: Any, rcond: float) -> Any:
    p = np.linalg.pinv(a, rcond=rcond)
    if t_a is None:
        return np.matmul(p, t_b)
    tt, pt = turned(t_a), turned(p)
    turn = np.matmul(tt, np.matmul(pt, y))
    moved = np.matmul(p, np.matmul(pt, np.matmul(tt, b - np.matmul(a, y)))) + turn - np.matmul(p, np.matmul(a, turn))
    moved = moved - np.matmul(p, np.matmul(t_a, y))
    return moved if t_b is None else moved + np.matmul(p, t_b)


Routine(
    name="lstsq",
    doc="The solution of least squares, the shortest where there are several.",
    grad_fn="LinalgLstsqBackward0",
    function=False,
    forward=lambda a, b, *, rcond: each(lambda a, b: _least(a, b, rcond), a, b),
    vjp=_lstsq_vjp,
    jvp=_lstsq_jvp,
    extras=("rank", "s"),
    samples=((((4, 2), (4, 2)), {"rcond": 1e-15}), (((2, 2, 3), (2, 2, 1)), {"rcond": 1e-15})),
)


def _rank(a: Array, *, atol: float, rtol: float) -> Array:
    s = np.linalg.svd(a, compute_uv=False)
    return np.asarray(np.sum(s > np.maximum(atol, rtol * s.max(-1, keepdims=True, initial=0)), axis=-1), np.int64)


Routine(
    name="matrix_rank",
    doc="How many singular values of a matrix are no zeros.",
    grad_fn="",
    function=False,
    forward=_rank,
    vjp=None,
    samples=((((3, 2),), {"atol": 0.0, "rtol": 1e-15}),),
)
