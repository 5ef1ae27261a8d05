"""Rosenbrock's methods for stiff problems: each stage solves one linear system with the Jacobian, made by tape."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tape import func
from tape.ode.jacobians import Colours, coloured, colours_of
from tape.ode.tableaus import AdaptiveMethod, Row, combined
from tape.operations import solves
from tape.recording.creation import eye
from tape.sparse.matrices import factored


@dataclasses.dataclass(frozen=True, eq=False)
class Rosenbrock(AdaptiveMethod):
    """A stiffly accurate method of Rodas's kind, in the form of Hairer and Wanner, Solving ODEs II, IV.7.

    Of each stage ``rows`` say where the slope is taken, ``corrections`` what else is solved for, ``nodes`` when, and
    ``by_time`` by how much of the derivative by time; ``dense`` are the coefficients of the interpolant.
    """

    order: int
    gamma: float
    nodes: Row
    by_time: Row
    rows: tuple[Row, ...]
    corrections: tuple[Row, ...]
    dense: tuple[Row, ...]
    colours: Colours | None = None
    """How the Jacobian is computed where it is sparse."""

    def prepared(self, f: Any, t: Any, y: Any, tolerances: tuple[Any, Any]) -> Rosenbrock:
        """Return the method for a problem that begins with ``y``."""
        return dataclasses.replace(self, colours=colours_of(f, t, y))

    def step(self, f: Any, t: Any, y: Any, h: Any, slope: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the result of a step; its stages, and the slope at its end."""
        n = y.numel()
        changes = func.jvp(lambda s: f(s, y), (t,), (t.detach() * 0.0 + 1.0,))[1].reshape(n)
        solved = solver_of(f, t, y, 1.0 / (h * self.gamma), self.colours)
        stages: list[Any] = []
        z = y
        for i, (node, by_time, row, more) in enumerate(
            zip(self.nodes, self.by_time, self.rows, self.corrections, strict=True)
        ):
            if i:
                z = y + combined(row, stages)
                slope = f(t + node * h, z)
            right = slope.reshape(n) + h * by_time * changes if by_time else slope.reshape(n)
            if i:
                right = right + combined(more, [stage.reshape(n) for stage in stages]) / h
            stages.append(solved(right).reshape(y.shape))
        z = z + stages[-1]
        return z, (*stages, f(t + h, z))

    def errors(self, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the estimate of the error, by which steps are judged."""
        return (slopes[-2],)

    def between(self, f: Any, t: Any, y: Any, z: Any, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return what :meth:`at` takes to give the solution within a step."""
        return (z, *[combined(row, slopes) for row in self.dense])

    def at(self, theta: Any, y: Any, parts: Sequence[Any]) -> Any:
        """Return the solution at a fraction of a step that began with ``y``."""
        z, a, b, c = parts
        return (1.0 - theta) * y + theta * (z + (1.0 - theta) * (a + theta * (b + theta * c)))


def solver_of(f: Any, t: Any, y: Any, diagonal: Any, colours: Colours | None) -> Callable[[Any], Any]:
    """Return what solves (diagonal I - J) x = b for vectors b, J being the Jacobian of the slope by the state."""
    n = y.numel()
    if colours is not None:
        return factored(coloured(f, t, y, diagonal, colours))
    matrix = eye(n, dtype=y.dtype) * diagonal - func.jacrev(lambda z: f(t, z))(y).reshape(n, n)
    return lambda b: solves.solve(matrix, b)


# fmt: off
_LAST = (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946)
RODAS5P = Rosenbrock(
    5,
    0.21193756319429014,
    (0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0, 1.0, 1.0),
    (0.21193756319429014, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0, 0, 0),
    (
        (),
        (3.0,),
        (2.849394379747939, 0.45842242204463923),
        (-6.954028509809101, 2.489845061869568, -10.358996098473584),
        (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
        _LAST,
        (*_LAST, 1.0),
        (*_LAST, 1.0, 1.0),
    ),
    (
        (),
        (-14.155112264123755,),
        (-17.97296035885952, -2.859693295451294),
        (147.12150275711716, -1.41221402718213, 71.68940251302358),
        (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
        (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
        (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
         -28.087943162872662),
        (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
         -54.66780262877968, -9.48861652309627),
    ),
    (
        (25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204, 0.524948541321073,
         1.1241088310450404, 0.4272876194431874, -0.17202221070155493),
        (-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796, 20.176138334709044,
         15.98066361424651, -6.789040303419874, -6.710236069923372),
        (11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643, -52.072871366152654,
         -59.78993625266729, -0.15582684282751913, 4.883087185713722),
    ),
)
"""Rodas5P: Steinebach, BIT Numerical Mathematics 63 (2023)."""
# fmt: on
