"""Coefficients of Runge-Kutta methods, as they were published."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

Row = tuple[float, ...]


def combined(coefficients: Sequence[float], slopes: Sequence[Any]) -> Any:
    """Return the sum of slopes times coefficients, one of which is not 0; a slope is not read where its own is."""
    total = None
    for c, k in zip(coefficients, slopes, strict=False):
        if c:
            term = k if c == 1.0 else c * k
            total = term if total is None else total + term
    return total


class AdaptiveMethod:
    """What the loop over adaptive steps asks of a method, and what most of them answer.

    Each one has ``order``, ``nodes``, where slopes are taken, ``dense``, of its interpolant, ``step`` and ``errors``.
    """

    nodes: Row
    dense: tuple[Row, ...]

    def prepared(self, f: Any, t: Any, y: Any, tolerances: tuple[Any, Any]) -> Any:
        """Return the method for a problem that begins with ``y``."""
        return self

    def between(self, f: Any, t: Any, y: Any, z: Any, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return what :meth:`at` takes to give the solution within a step: coefficients of theta, theta^2, ..."""
        return tuple([h * combined(column, slopes) for column in zip(*self.dense, strict=True)])

    def at(self, theta: Any, y: Any, parts: Sequence[Any]) -> Any:
        """Return the solution at a fraction of a step that began with ``y``."""
        total = parts[-1]
        for part in parts[-2::-1]:
            total = part + theta * total
        return y + theta * total

    def nearer(self, state: Any, f: Any, t: Any, y: Any, h: Any, slopes: Sequence[Any]) -> Any:
        """Return a state within a step, at which it is asked for, to the method's order."""
        return state


@dataclasses.dataclass(frozen=True, eq=False)
class Tableau(AdaptiveMethod):
    """An explicit method: ``order``, ``nodes`` and rows of the stages behind the first, the last row being the result.

    ``error`` has the coefficients by which the result differs from one of lower order; the last slope, at the result,
    is the first one of the next step. ``dense`` has for each slope the coefficients of theta, theta^2, ... in what it
    is taken times within a step.
    """

    order: int
    nodes: Row
    rows: tuple[Row, ...]
    error: Row
    dense: tuple[Row, ...]

    def step(self, f: Any, t: Any, y: Any, h: Any, slope: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the result of a step and the slopes of all stages."""
        slopes, z = [slope], y
        for node, row in zip(self.nodes, self.rows, strict=True):
            z = y + h * combined(row, slopes)
            slopes.append(f(t + node * h, z))
        return z, tuple(slopes)

    def errors(self, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the estimate of the error, by which steps are judged."""
        return (h * combined(self.error, slopes),)


# fmt: off
DOPRI5 = Tableau(
    5,
    (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    (
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    (
        (1.0, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
        (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
        (0.0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
        (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
        (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
    ),
)
"""Dormand and Prince, J. Comput. Appl. Math. 6 (1980); between the ends Shampine, Math. Comp. 46 (1986)."""

TSIT5 = Tableau(
    5,
    (0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    (
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
    ),
    (0.0017800110522257773, 0.0008164344596567463, -0.007880878010261994, 0.1447110071732629, -0.5823571654525552,
     0.45808210592918686, -0.015151515151515152),
    (
        (1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216),
        (0.0, 0.13169999999999998, -0.2234, 0.1017),
        (0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253),
        (0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902),
        (0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928),
        (0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661),
        (0.0, 1.5, -4.0, 2.5),
    ),
)
"""Tsitouras, Comput. Math. Appl. 62 (2011), with his interpolant of order 4."""


@dataclasses.dataclass(frozen=True, eq=False)
class Eighth(Tableau):
    """Dormand and Prince's method of order 8, DOP853: Hairer, Norsett, Wanner, Solving ODEs I (1993).

    ``error`` and ``third`` have the coefficients of its two estimates of the error, ``more_nodes`` and ``more_rows``
    are of the stages, and ``dense`` of the differences, that its interpolant of order 7 takes.
    """

    third: Row
    more_nodes: Row
    more_rows: tuple[Row, ...]

    def errors(self, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the two estimates of the error, by which steps are judged."""
        return h * combined(self.error, slopes), h * combined(self.third, slopes)

    def between(self, f: Any, t: Any, y: Any, z: Any, h: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
        """Return what :meth:`at` takes to give the solution within a step; three more slopes are computed."""
        all_slopes = list(slopes)
        for node, row in zip(self.more_nodes, self.more_rows, strict=True):
            all_slopes.append(f(t + node * h, y + h * combined(row, all_slopes)))
        change, first, last = z - y, h * slopes[0], h * slopes[-1]
        parts = [change, first - change, 2.0 * change - (last + first)]
        return (*parts, *[h * combined(row, all_slopes) for row in self.dense])

    def at(self, theta: Any, y: Any, parts: Sequence[Any]) -> Any:
        """Return the solution at a fraction of a step that began with ``y``."""
        total, rest = parts[-1], 1.0 - theta
        for i in range(len(parts) - 2, -1, -1):
            total = parts[i] + (rest if i % 2 == 0 else theta) * total
        return y + theta * total


DOP853 = Eighth(
    8,
    (0.05260015195876773, 0.0789002279381516, 0.1183503419072274, 0.2816496580927726, 0.3333333333333333, 0.25,
     0.3076923076923077, 0.6512820512820513, 0.6, 0.8571428571428571, 1.0, 1.0),
    (
        (0.05260015195876773,),
        (0.0197250569845379, 0.0591751709536137),
        (0.02958758547680685, 0.0, 0.08876275643042054),
        (0.2413651341592667, 0.0, -0.8845494793282861, 0.924834003261792),
        (0.037037037037037035, 0.0, 0.0, 0.17082860872947386, 0.12546768756682242),
        (0.037109375, 0.0, 0.0, 0.17025221101954405, 0.06021653898045596, -0.017578125),
        (0.03709200011850479, 0.0, 0.0, 0.17038392571223998, 0.10726203044637328, -0.015319437748624402,
         0.008273789163814023),
        (0.6241109587160757, 0.0, 0.0, -3.3608926294469414, -0.868219346841726, 27.59209969944671,
         20.154067550477894, -43.48988418106996),
        (0.47766253643826434, 0.0, 0.0, -2.4881146199716677, -0.590290826836843, 21.230051448181193,
         15.279233632882423, -33.28821096898486, -0.020331201708508627),
        (-0.9371424300859873, 0.0, 0.0, 5.186372428844064, 1.0914373489967295, -8.149787010746927,
         -18.52006565999696, 22.739487099350505, 2.4936055526796523, -3.0467644718982196),
        (2.273310147516538, 0.0, 0.0, -10.53449546673725, -2.0008720582248625, -17.9589318631188, 27.94888452941996,
         -2.8589982771350235, -8.87285693353063, 12.360567175794303, 0.6433927460157636),
        (0.054293734116568765, 0.0, 0.0, 0.0, 0.0, 4.450312892752409, 1.8915178993145003, -5.801203960010585,
         0.3111643669578199, -0.1521609496625161, 0.20136540080403034, 0.04471061572777259),
    ),
    (0.01312004499419488, 0.0, 0.0, 0.0, 0.0, -1.2251564463762044, -0.4957589496572502, 1.6643771824549864,
     -0.35032884874997366, 0.3341791187130175, 0.08192320648511571, -0.022355307863886294),
    third=(-0.18980075407240762, 0.0, 0.0, 0.0, 0.0, 4.450312892752409, 1.8915178993145003, -5.801203960010585,
     -0.4226823213237919, -0.1521609496625161, 0.20136540080403034, 0.02265179219836082),
    more_nodes=(0.1, 0.2, 0.7777777777777778),
    more_rows=(
        (0.056167502283047954, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25350021021662483, -0.2462390374708025,
         -0.12419142326381637, 0.15329179827876568, 0.00820105229563469, 0.007567897660545699, -0.008298),
        (0.03183464816350214, 0.0, 0.0, 0.0, 0.0, 0.028300909672366776, 0.053541988307438566, -0.05492374857139099,
         0.0, 0.0, -0.00010834732869724932, 0.0003825710908356584, -0.00034046500868740456, 0.1413124436746325),
        (-0.42889630158379194, 0.0, 0.0, 0.0, 0.0, -4.697621415361164, 7.683421196062599, 4.06898981839711,
         0.3567271874552811, 0.0, 0.0, 0.0, -0.0013990241651590145, 2.9475147891527724, -9.15095847217987),
    ),
    dense=(
        (-8.428938276109013, 0.0, 0.0, 0.0, 0.0, 0.5667149535193777, -3.0689499459498917, 2.38466765651207,
         2.117034582445028, -0.871391583777973, 2.2404374302607883, 0.6315787787694688, -0.08899033645133331,
         18.148505520854727, -9.194632392478356, -4.436036387594894),
        (10.427508642579134, 0.0, 0.0, 0.0, 0.0, 242.28349177525817, 165.20045171727028, -374.5467547226902,
         -22.113666853125306, 7.733432668472264, -30.674084731089398, -9.332130526430229, 15.697238121770845,
         -31.139403219565178, -9.35292435884448, 35.81684148639408),
        (19.985053242002433, 0.0, 0.0, 0.0, 0.0, -387.0373087493518, -189.17813819516758, 527.8081592054236,
         -11.57390253995963, 6.8812326946963, -1.0006050966910838, 0.7777137798053443, -2.778205752353508,
         -60.19669523126412, 84.32040550667716, 11.99229113618279),
        (-25.69393346270375, 0.0, 0.0, 0.0, 0.0, -154.18974869023643, -231.5293791760455, 357.6391179106141,
         93.40532418362432, -37.45832313645163, 104.0996495089623, 29.8402934266605, -43.53345659001114,
         96.32455395918828, -39.17726167561544, -149.72683625798564),
    ),
)
# fmt: on
