"""Distributions under SciPy's names: values against scipy.stats, gradients to all parameters against differences."""

from __future__ import annotations

import cmath
import functools
import itertools
import math
import statistics
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.special
import scipy.stats

import tape
from tape import stats
from tape.recording import equivalents, foreign_calls

X = np.array([-3.0, -0.4, 0.0, 0.3, 0.75, 1.0, 2.5, 40.0, np.nan, np.inf])
K = np.array([-1.0, 0.0, 1.0, 2.5, 3.0, 5.0, 12.0, np.nan])
Q = np.array([-0.1, 0.0, 0.05, 0.5, 0.99, 1.0, 1.1, np.nan])
CONTINUOUS: dict[str, tuple[tuple[float, ...], ...]] = {  # parameters: shapes, loc, scale
    "norm": ((), (0.5,), (0.2, 1.7), (0.0, -1.0)),
    "t": ((3.5,), (1.0, 0.5, 2.0), (-1.0,)),
    "gamma": ((2.5,), (0.7, -0.5, 1.5), (1.0,), (-1.0, 0.0, 1.0)),
    "beta": ((2.5, 0.8), (1.0, 3.0, -0.5, 2.0), (0.0, 1.0)),
    "expon": ((), (0.1, 2.0)),
    "lognorm": ((0.8,), (1.5, -0.2, 2.0)),
    "uniform": ((), (-0.5, 2.0)),
}
DISCRETE: dict[str, tuple[tuple[float, ...], ...]] = {
    "poisson": ((2.5,), (0.0,), (3.0, 1.0), (-1.0,)),
    "binom": ((5.0, 0.3), (5.0, 0.0), (12.0, 1.0), (4.0, 0.5, 1.0), (4.0, 1.5)),
}
AREAS = {"t", "gamma", "beta"}
"""Their areas have no gradient to shape parameters."""


def equal(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=2e-12, atol=1e-15)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_continuous_values(name: str) -> None:
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    for parameters in CONTINUOUS[name]:
        for method in ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf"):
            if name in ("t", "gamma", "beta") and method in ("logcdf", "logsf"):
                continue  # SciPy's own lose digits elsewhere
            equal(getattr(ours, method)(X, *parameters), getattr(theirs, method)(X, *parameters))
        for method in ("ppf", "isf"):
            found, expected = (getattr(of, method)(Q, *parameters) for of in (ours, theirs))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, err_msg=f"{method}{parameters}")


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_discrete_values(name: str) -> None:
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    for parameters in DISCRETE[name]:
        for method in ("pmf", "logpmf", "cdf", "sf"):
            found, expected = (getattr(of, method)(K, *parameters) for of in (ours, theirs))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-14, err_msg=f"{method}{parameters}")


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients(name: str) -> None:
    points = tape.tensor([0.3, 0.55, 0.7], requires_grad=True)
    parameters = [tape.tensor(p + 0.05, requires_grad=True) for p in max(CONTINUOUS[name][:2], key=len)]
    assert tape.autograd.gradcheck(getattr(stats, name).logpdf, (points, *parameters))
    assert tape.autograd.gradgradcheck(getattr(stats, name).logpdf, (points, *parameters))
    shapes = len(getattr(stats, name).shapes)
    if name in AREAS:
        given = [p.detach() if i < shapes else p for i, p in enumerate(parameters)]
        with pytest.raises(NotImplementedError, match="detach"):
            getattr(stats, name).cdf(points, *parameters)
    else:
        given = parameters
    for method in ("cdf", "logcdf", "logsf", "ppf"):
        assert tape.autograd.gradcheck(getattr(getattr(stats, name), method), (points, *given)), method


def test_gradients_of_counts() -> None:
    k = np.array([0.0, 2.0, 4.0])
    mu, p = tape.tensor(2.5, requires_grad=True), tape.tensor(0.3, requires_grad=True)
    for method in ("logpmf", "cdf", "sf"):
        assert tape.autograd.gradcheck(lambda mu, m=method: getattr(stats.poisson, m)(k, mu), (mu,))
        assert tape.autograd.gradcheck(lambda p, m=method: getattr(stats.binom, m)(k, 5, p), (p,))


def test_outside_of_the_support_there_is_no_gradient() -> None:
    x = tape.tensor([-1.0, 2.0, 0.5], requires_grad=True)
    a = tape.tensor(2.0, requires_grad=True)
    density = stats.beta.pdf(x, a, 3.0)
    density.sum().backward()
    assert x.grad[:2].tolist() == [0.0, 0.0]
    assert np.isfinite(a.grad.item())


def test_parameters() -> None:
    x = tape.tensor([0.5, 1.0])
    expected = scipy.stats.gamma.logpdf([0.5, 1.0], 2.0, loc=0.1, scale=3.0)
    equal(stats.gamma.logpdf(x, a=2.0, scale=3.0, loc=0.1), expected)
    equal(stats.gamma(2.0, loc=0.1, scale=3.0).logpdf(x), expected)
    equal(
        stats.norm.logpdf(x[:, None], [0.0, 1.0], 2), scipy.stats.norm.logpdf(np.array([[0.5], [1.0]]), [0.0, 1.0], 2)
    )
    for call in (
        lambda: stats.gamma.logpdf(x),
        lambda: stats.norm.logpdf(x, 0.0, 1.0, 2.0),
        lambda: stats.norm.logpdf(x, 0.0, loc=1.0),
        lambda: stats.norm.logpdf(x, df=1.0),
        stats.gamma,
    ):
        with pytest.raises(TypeError, match="parameter"):
            call()


def test_multivariate_normal() -> None:
    rng = np.random.default_rng(4)
    root = rng.normal(size=(3, 3))
    mean, cov, x = rng.normal(size=3), root @ root.T + np.eye(3), rng.normal(size=(4, 2, 3))
    ours, theirs = stats.multivariate_normal, scipy.stats.multivariate_normal
    for arguments in ((x, mean, cov), (x[0, 0], mean, cov), (x, None, cov), (x, mean), (x, mean, [1.0, 2.0, 3.0])):
        equal(ours.logpdf(*arguments), theirs.logpdf(*arguments))
        equal(ours.pdf(*arguments), theirs.pdf(*arguments))
    equal(ours.logpdf([0.5, 1.5]), theirs.logpdf([0.5, 1.5]))
    equal(ours(mean, cov).logpdf(x), theirs(mean, cov).logpdf(x))
    leaves = [tape.tensor(a, requires_grad=True) for a in (x[0], mean, root)]
    assert tape.autograd.gradcheck(lambda x, m, r: ours.logpdf(x, m, r @ r.T + np.eye(3)), leaves)
    with pytest.raises(ValueError, match="do not fit"):
        ours.logpdf(x, mean, np.eye(2))


def test_logsumexp_and_softmax_as_scipy() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    a[0, 0], b[1, 1] = 900.0, 0.0
    x, w = tape.tensor(a, requires_grad=True), tape.tensor(b, requires_grad=True)
    ours, theirs = tape.special, scipy.special
    for kwargs in ({}, {"axis": 0}, {"axis": (0, 1)}, {"axis": -1, "keepdims": True}):
        equal(ours.logsumexp(x, **kwargs), theirs.logsumexp(a, **kwargs))
        equal(ours.logsumexp(x, b=abs(w), **kwargs), theirs.logsumexp(a, b=abs(b), **kwargs))
        for got, expected in zip(
            ours.logsumexp(x, b=w, return_sign=True, **kwargs),
            theirs.logsumexp(a, b=b, return_sign=True, **kwargs),
            strict=True,
        ):
            equal(got, expected)
        kwargs.pop("keepdims", None)
        equal(ours.softmax(x, **kwargs), theirs.softmax(a, **kwargs))
        equal(ours.log_softmax(x, **kwargs), theirs.log_softmax(a, **kwargs))
    equal(ours.logsumexp(x, 1, True), theirs.logsumexp(a, 1, keepdims=True))
    equal(ours.logsumexp([-np.inf, -np.inf]), theirs.logsumexp([-np.inf, -np.inf]))
    y, v = tape.tensor(a - a.mean(), requires_grad=True), tape.tensor(abs(b) + 0.1, requires_grad=True)
    assert tape.autograd.gradcheck(lambda y, v: ours.logsumexp(y / 100, axis=1, b=v), (y, v))
    assert tape.autograd.gradcheck(lambda y: ours.softmax(y / 100) + ours.log_softmax(y / 100, axis=(1, 0)), (y,))


T = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
SQUARE = tape.tensor(np.eye(3) + 0.1, requires_grad=True)


def _loss(p: Any) -> Any:
    return T[0] * p[0]


REFUSED: list[tuple[str, Any]] = [
    ("scipy.special.logsumexp: use tape.special.logsumexp", lambda: scipy.special.logsumexp(T)),
    ("scipy.special.softmax: use tape.special.softmax", lambda: scipy.special.softmax(T)),
    ("scipy.stats.norm.logpdf: use tape.stats.norm.logpdf", lambda: scipy.stats.norm.logpdf(T)),
    ("scipy.stats.norm.logpdf: use tape.stats.norm.logpdf", lambda: scipy.stats.norm.logpdf(0.0, loc=T)),
    ("scipy.stats.gamma.cdf: use tape.stats.gamma.cdf", lambda: scipy.stats.gamma(2.0).cdf(T)),
    ("scipy.linalg.solve: use tape.linalg.solve", lambda: scipy.linalg.solve(SQUARE, T)),
    ("scipy.linalg.cholesky: use tape.linalg.cholesky", lambda: scipy.linalg.cholesky(SQUARE)),
    ("scipy.linalg.expm: use tape.linalg.expm", lambda: scipy.linalg.expm(SQUARE)),
    ("scipy.integrate.trapezoid: use tape.trapezoid", lambda: scipy.integrate.trapezoid(T)),
    ("scipy.integrate.simpson: use tape.quadrature.simpson", lambda: scipy.integrate.simpson(T)),
    ("scipy.interpolate.CubicSpline: use tape.interpolate", lambda: scipy.interpolate.CubicSpline([0, 1, 2], T)),
    (r"scipy.optimize.minimize: write tape.implicit.minimize\(", lambda: scipy.optimize.minimize(_loss, 1.0)),
    (r"scipy.optimize.fmin_bfgs: write tape.implicit.minimize\(", lambda: scipy.optimize.fmin_bfgs(_loss, 1.0)),
    ("scipy.optimize.linear_sum_assignment: it", lambda: scipy.optimize.linear_sum_assignment(SQUARE)),
    ("scipy.spatial.ConvexHull: it", lambda: scipy.spatial.ConvexHull(SQUARE)),
]


@pytest.mark.parametrize(("message", "call"), REFUSED, ids=[m.partition(":")[0] for m, _ in REFUSED])
def test_scipys_functions_name_ours(message: str, call: Any) -> None:
    with pytest.raises((TypeError, RuntimeError), match=f"^{message}.*Use tensor.detach.*The tensor is "):
        call()


def _keep(y: Any) -> Any:
    return y


NUMBERS: list[tuple[str, Any]] = [
    (r"scipy.optimize.bisect: write tape.implicit.root\(", lambda t: scipy.optimize.bisect(lambda x: x - t, 0.0, 5.0)),
    (
        r"scipy.optimize.root_scalar: write tape.implicit.root\(",
        lambda t: scipy.optimize.root_scalar(lambda x: x - t, bracket=(0.0, 5.0)),
    ),
    (r"scipy.optimize.newton: write tape.implicit.root\(", lambda t: scipy.optimize.newton(lambda x: x * x - 2.0, t)),
    (r"scipy.integrate.quad: write tape.quadrature.quad\(", lambda t: scipy.integrate.quad(lambda x: x * t, 0, 1)),
    (r"scipy.integrate.quad: write tape.quadrature.quad\(", lambda t: scipy.integrate.quad(_keep, 0, t)),
    (
        r"scipy.integrate.odeint: write tape.ode.solve\(",
        lambda t: scipy.integrate.odeint(lambda y, _: -t * y, [1.0], [0.0, 1.0]),
    ),
    ("scipy.ndimage.gaussian_filter: use tape.ndimage", lambda t: scipy.ndimage.gaussian_filter([1.0, 2.0, 3.0], t)),
    (r"math.sin\(t\): write tape.sin\(t\)", lambda t: math.sin(t)),  # noqa: PLW0108 (the call is what is read)
    (r"math.hypot\(t\): write tape.hypot\(t\)", lambda t: math.hypot(1.0, t)),
    (r"math.fabs\(t\): write tape.abs\(t\)", lambda t: [math.fabs(x) for x in (t, t)]),
    (r"math.gamma\(t\): write tape.special.gamma\(t\)", lambda t: math.gamma(t)),  # noqa: PLW0108 (the call is what is read)
    (r"cmath.exp\(t\): write tape.exp\(t\)", lambda t: cmath.exp(t)),  # noqa: PLW0108 (the call is what is read)
    (r"math.log\(t\): write tape.log\(t\)", lambda t, f=math.log: f(t)),
    (r"math.modf\(t\): it computes on numbers", lambda t: math.modf(t)),  # noqa: PLW0108 (the call is what is read)
    (r"math.remainder\(t\): it computes on numbers", lambda t: math.remainder(t, 0.7)),
    (r"math.atan2\(t\): .*, argument 2 \(t\), would", lambda t: math.atan2(1.0, t)),
    (r"complex\(t\): tape has no complex numbers", lambda t: complex(t)),  # noqa: PLW0108 (the call is what is read)
    (r"statistics.NormalDist\(t\): .*its argument 'mu'", lambda t: statistics.NormalDist(t, 1.0)),
    (r"statistics.fmean\(t\): write tape.mean\(t\)", lambda t: statistics.fmean([t, t])),
]


@pytest.fixture(params=["columns", "no columns"])
def columns(request: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether instructions have columns, as those of ``python -X no_debug_ranges`` have not."""
    if request.param == "no columns":
        monkeypatch.setattr(foreign_calls, "_steps", lambda code: tuple(foreign_calls._steps_by_stack(code)))
        monkeypatch.setattr(foreign_calls, "_paths", foreign_calls._paths.__wrapped__)
    return bool(request.param == "columns")


@pytest.mark.filterwarnings("error::tape.errors.DetachWarning")
@pytest.mark.parametrize(("message", "call"), NUMBERS, ids=[m.partition(":")[0] for m, _ in NUMBERS])
def test_functions_of_numbers_name_ours(message: str, call: Any, columns: bool) -> None:
    t = tape.tensor(2.0, requires_grad=True)
    message = message if columns else message.replace(r"argument 2 \(t\)", "an argument")
    with pytest.raises(TypeError, match=f"^{message}"):
        call(t)
    call(t.detach())
    with tape.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(t)


TENSORS = [tape.tensor(0.3, requires_grad=True), tape.tensor(0.5, requires_grad=True)]


class _Held:
    """Functions of numbers that a class and its objects hold."""

    of_class = staticmethod(math.sin)

    def __init__(self) -> None:
        self.of_object = math.sin
        self.by_name = {"sin": math.sin}
        self.values = map(math.sin, TENSORS)


def _looped() -> None:
    for _ in map(math.sin, TENSORS):
        pass


def _unpacked() -> None:
    _first, _second = map(math.sin, TENSORS)


def _delegated() -> Any:
    yield from map(math.sin, TENSORS)


def _applied(function: Any) -> Any:
    return list(map(function, TENSORS))


def _stored() -> Any:
    values = map(math.sin, TENSORS)
    return next(values)


sine = math.sin
HELD = _Held()
INDIRECT: list[Any] = [
    lambda: list(map(math.sin, TENSORS)),
    lambda: sum(map(sine, TENSORS)),
    lambda: max(*map(math.sin, TENSORS)),
    lambda: [*map(math.sin, TENSORS)],
    lambda: [math.sin(t) for t in TENSORS],
    lambda: sum(math.sin(t) for t in TENSORS),
    lambda: {math.sin(t): t for t in TENSORS},
    lambda: sorted(TENSORS, key=math.sin),
    lambda: min(TENSORS, key=math.sin),
    lambda: functools.reduce(lambda a, b: math.sin(b) + a, TENSORS, 0.0),
    lambda: functools.partial(math.sin)(TENSORS[0]),
    lambda: list(map(functools.partial(math.sin), TENSORS)),
    lambda: functools.lru_cache(math.sin)(TENSORS[0]),
    lambda: list(itertools.starmap(math.sin, [TENSORS[:1]])),
    lambda: list(filter(math.sin, TENSORS)),
    lambda: np.fromiter(map(math.sin, TENSORS), float),
    lambda: HELD.of_class(TENSORS[0]),
    lambda: HELD.of_object(TENSORS[0]),
    lambda: HELD.by_name["sin"](TENSORS[0]),
    lambda: next(HELD.values),
    lambda: _applied(math.sin),
    lambda: float(1) + math.sin(TENSORS[0] if TENSORS else TENSORS[1]),
    lambda first=None: [float(2), math.sin(first or TENSORS[0])],
    lambda: list(_delegated()),
    _looped,
    _unpacked,
    _stored,
]


@pytest.mark.quick
@pytest.mark.filterwarnings("error::tape.errors.DetachWarning")
@pytest.mark.parametrize("call", INDIRECT)
@pytest.mark.usefixtures("columns")
def test_functions_of_numbers_that_others_call_name_ours(call: Any) -> None:
    HELD.values = map(math.sin, TENSORS)
    with pytest.raises(TypeError, match=r"^math.sin\(t\): write tape.sin\(t\)"):
        call()


@pytest.mark.usefixtures("columns")
def test_the_users_conversions_through_others_warn() -> None:
    for call in (
        lambda: math.sin(1.0) + float(TENSORS[0]) * math.exp(2.0),
        lambda: [math.sin(2.0), float(TENSORS[0] if TENSORS else math.sin(1.0)), math.exp(1.0)],
        lambda first=None: (first or float(TENSORS[0])) + math.sin(1.0),
        lambda: list(map(float, TENSORS)),
        lambda: sorted(TENSORS, key=float),
        lambda: [int(t) for t in TENSORS],
        lambda: math.sin(float(TENSORS[0])),
        lambda: "%.3f %s" % (TENSORS[0], math.sin),  # noqa: UP031 (the conversion is what is tested)
        lambda: list(map(math.isfinite, TENSORS)),
    ):
        with pytest.warns(tape.errors.DetachWarning):
            call()


def test_functions_of_numbers_name_ours_in_python_without_columns() -> None:
    lines = "import math, tape", "t = tape.tensor(2.0, requires_grad=True)", "float(1.0) + math.sin(t)"
    run = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert "TypeError: math.sin(t): write tape.sin(t)" in run.stderr


def test_functions_without_a_gradient_and_the_users_own_conversions_warn() -> None:
    t = tape.tensor(2.5, requires_grad=True)
    for call in (math.floor, math.isfinite):
        with pytest.warns(tape.errors.DetachWarning):
            call(t)
    with pytest.warns(tape.errors.DetachWarning):
        assert scipy.optimize.bisect(lambda x: x - float(t), 0.0, 5.0) == pytest.approx(2.5)


def test_ufuncs_of_scipy_without_a_record() -> None:
    with pytest.raises(TypeError, match=r"scipy\.special\.hyp2f1 has no record"):
        scipy.special.hyp2f1(1, 2, 3, T)
    with pytest.raises(RuntimeError, match=r"Can't call numpy"):
        np.asarray(T)


def test_arrays_of_tensors_name_what_keeps_the_gradient() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    for call in (lambda: np.array([x[0], -x[1]]), lambda: np.asarray([[x[0], 0.0], [1.0, x[1]]])):
        with pytest.raises(RuntimeError, match=r"import tape\.numpy as np.*tape\.tensor.*np\.stack.*Can't"):
            call()
    assert tape.tensor([[x[0], 0.0], [1.0, x[1]]]).requires_grad
    assert np.stack([x[0], -x[1]]).requires_grad


def test_equivalents_are_there() -> None:
    for theirs, text in equivalents.EQUIVALENTS.items():
        ours = text.partition("(")[0]
        owner, _, name = theirs.rpartition(".")
        __import__(owner if not owner.startswith("scipy.stats.") else "scipy.stats", fromlist=[name])
        found: Any = tape
        for part in ours.split(".")[1:]:
            found = getattr(found, part)
        assert found is not None
