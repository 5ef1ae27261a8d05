"""Runge-Kutta methods whose stages are implicit, one behind the other: Newton's method solves each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tape import func
from tape.ode.control import norm, where
from tape.ode.jacobians import Colours, coloured, colours_of
from tape.ode.tableaus import AdaptiveMethod, Row, combined
from tape.operations import solves
from tape.recording.creation import arange, eye
from tape.sparse import CSR, spsolve
from tape.tensors.grad_modes import no_grad
from tape.tensors.tensor import constant_tensor

_CLOSE = 1e-3  # of what tolerances allow: changes of a state at which the iteration ends
_MOST = 10  # iterations
_CORRECTIONS = 3  # differentiated ones at the solution: by each one more order of derivatives is right


@dataclasses.dataclass(frozen=True, eq=False)
class Esdirk(AdaptiveMethod):
    """A stiffly accurate method, its first stage explicit: ``rows`` and ``nodes`` of those behind it, the last the end.

    All have ``gamma`` on the diagonal. ``guesses`` give the slopes at which iterations begin, ``error`` the difference
    from a result of lower order. ``dense`` has for each slope the coefficients of theta, theta^2, ... in what it is
    taken times within a step.
    """

    order: int
    gamma: float
    nodes: Row
    rows: tuple[Row, ...]
    guesses: tuple[Row, ...]
    error: Row
    dense: tuple[Row, ...]
    tolerances: tuple[Any, Any] = (0.0, 0.0)
    colours: Colours | None = None
    """How the Jacobian is computed where it is sparse."""
    tables: tuple[Any, ...] = ()
    """Tensors of ``nodes``, and (stages, all slopes) of ``rows`` and ``guesses``."""

    def prepared(self, f: Any, t: Any, y: Any, tolerances: tuple[Any, Any]) -> Esdirk:
        """Return the method for a problem that begins with ``y``."""
        tables = [np.array(self.nodes), _padded(self.rows), _padded(self.guesses)]
        tensors = tuple([constant_tensor(table.astype(y.spec.dtype)) for table in tables])
        return dataclasses.replace(self, tolerances=tolerances, colours=colours_of(f, t, y), tables=tensors)

    def step(self, f: Any, t: Any, y: Any, h: Any, slope: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the result of a step; 0, or infinity where an iteration failed, and the slopes of all stages.

        The loop is one over tensors of coefficients, and of slopes (all, n), so that machine code has one stage's text.
        Behind a failure nothing is corrected: all stays finite, and no gradient of the step that is rejected is nan.
        """
        nodes, rows, guesses = self.tables
        rate, numbers = 1.0 / (h * self.gamma), arange(len(self.rows) + 1).reshape(-1, 1)
        with no_grad():
            matrix = self.matrix(f, t.detach(), y.detach(), rate.detach())
        z, failed = y, 0.0 * h.detach()
        slopes = where(numbers == 0, slope.reshape(-1), 0.0)
        for i in range(len(self.rows)):
            known, at = y + h * (rows[i] @ slopes).reshape(y.shape), t + nodes[i] * h
            with no_grad():
                begin = known + h * self.gamma * (guesses[i] @ slopes).reshape(y.shape)
                z, missed = self.iterated(f, at.detach(), known.detach(), begin.detach(), rate.detach(), matrix)
                failed = failed + missed
                z = where(failed > 0, y.detach(), z)
                there = self.matrix(f, at.detach(), z, rate.detach())
            for _ in range(_CORRECTIONS):
                z = z + self.solution(there, where(failed > 0, 0.0, (known - z) * rate + f(at, z)))
            slopes = where(numbers == i + 1, ((z - known) * rate).reshape(-1), slopes)
        return z, (failed, *[part.reshape(y.shape) for part in slopes])

    def matrix(self, f: Any, t: Any, y: Any, rate: Any) -> Any:
        """Return rate I - J, J being the Jacobian of the slope: (n, n), or the elements of one that is sparse."""
        if self.colours is not None:
            return coloured(f, t, y, rate, self.colours).data
        n = y.numel()
        return eye(n, dtype=y.dtype) * rate - func.jacrev(lambda z: f(t, z))(y).reshape(n, n)

    def solution(self, matrix: Any, right: Any) -> Any:
        """Return x with matrix x = right, like ``right``."""
        b = right.reshape(-1)
        if self.colours is None:
            return solves.solve(matrix, b).reshape(right.shape)
        pattern = self.colours.pattern
        return spsolve(CSR(matrix, pattern.indices, pattern.indptr, pattern.shape), b).reshape(right.shape)

    def iterated(self, f: Any, t: Any, known: Any, z: Any, rate: Any, matrix: Any) -> tuple[Any, Any]:
        """Return the state of a stage, not differentiated, and 0, or infinity if it was not found."""
        rtol, atol = self.tolerances
        scale = atol + rtol * abs(known)
        count, size = 0.0 * rate, 0.0 * rate
        going = count < 1.0
        while going:
            change = self.solution(matrix, (known - z) * rate + f(t, z))
            z, size, count = z + change, norm(change, scale), count + 1.0
            going = (size > _CLOSE) & (size < float("inf")) & (count < _MOST)
        return z, where(size <= _CLOSE, 0.0, float("inf"))

    def errors(self, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the estimate of the error, by which steps are judged: infinity where an iteration failed."""
        return (h * combined(self.error, slopes[1:]) + slopes[0],)

    def between(self, f: Any, t: Any, y: Any, z: Any, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return what :meth:`at` takes to give the solution within a step."""
        return super().between(f, t, y, z, h, slopes[1:])

    def nearer(self, state: Any, f: Any, t: Any, y: Any, h: Any, slopes: Sequence[Any]) -> Any:
        """Return the state within a step by a shorter step, which is of order 5; what is known if that fails."""
        z, (failed, *_) = self.step(f, t, y, h, slopes[1])
        return where(failed > 0, state, z)


def _padded(rows: Sequence[Row]) -> Any:
    """Return rows of growing lengths as an array (rows, rows + 1), with zeros behind them."""
    return np.array([(*row, *[0.0] * (len(rows) + 1 - len(row))) for row in rows])


# fmt: off
_FOURTH = (0.13855640231268224, 0.0, -0.04245337201752043, 0.02446657898003141, 0.61943039072480676)
_FIFTH = (0.13659751177640291, 0.0, -0.05496908796538376, -0.04118626728321046, 0.62993304899016403,
          0.06962479448202728)
KVAERNO5 = Esdirk(
    5,
    0.26,
    (0.52, 1.230333209967908, 0.8957659843500759, 0.43639360985864756, 1.0, 1.0),
    (
        (0.26,),
        (0.13, 0.84033320996790809),
        (0.22371961478320505, 0.47675532319799699, -0.06470895363112615),
        (0.16648564323248321, 0.1045001884159172, 0.03631482272098715, -0.13090704451073998),
        _FOURTH,
        _FIFTH,
    ),
    (
        (1.0,),
        (-1.366025403784441, 2.3660254037844357),
        (-0.19650552613122207, 0.8113579546496623, 0.38514757148155954),
        (0.10375304369958693, 0.937994698066431, -0.04174774176601781),
        (-0.17281112873898072, 0.6235784481025847, 0.5492326806363959),
        (*_FOURTH, 0.26),
    ),
    (*[b - a for a, b in zip(_FOURTH, _FIFTH, strict=False)], _FIFTH[5] - 0.26, 0.26),
    (
        (1.0, -2.070637858517143, 1.6897653595577153, -0.4846295846819938, 0.002099595417822677),
        (0.0, 0.0, 0.0, 0.0, 0.0),
        (0.0, 0.8516674561310804, -1.9097965585195558, 0.9897453088189545, 0.013414705604138972),
        (0.0, -0.6196733032315528, 1.1449701529463279, -0.636851732614047, 0.07036861561606188),
        (0.0, 3.2494241128823425, -3.9903730820795555, 1.3821390704628984, -0.011257052275521278),
        (0.0, -0.6791340872190564, 1.5256045023921752, -0.6656827707170366, -0.111162849974053),
        (0.0, -0.7316463200456859, 1.5398296257029125, -0.5847202912687715, 0.03653698561154482),
    ),
)
"""Kvaerno's 5(4): BIT Numerical Mathematics 44 (2004).

Between the ends the smallest coefficients that meet the conditions of order 4, with the slopes of both ends.
"""
# fmt: on
