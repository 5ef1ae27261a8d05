"""SciPy's ``scipy.optimize`` for functions of structures of parameters, with derivatives by tape.

Solutions are numbers, without a gradient: ``tape.implicit`` has solvers to differentiate through.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import func, sparse
from tape.implicit.solvers import WITH_HESSIAN, WITH_PRODUCTS, WITHOUT_GRADIENT
from tape.operations.diagonals import raveled
from tape.tensors import grad_modes, pytrees
from tape.tensors.tensor import Tensor, as_array, constant_tensor
from tape.transforms.value_and_grad import value_and_grad

__all__ = ["least_squares", "minimize", "root"]

_TAKES_SPARSE = "trust-constr"
_LARGE = 64  # unknowns from which on derivatives may be sparse
_WORTH = 4  # rows, and columns, for each colour of derivatives that are computed so


def minimize(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: Any = None, jac: Any = None, hess: Any = None,
    hessp: Any = None, bounds: Any = None, constraints: Any = (), tol: float | None = None,
    callback: Callable[..., Any] | None = None, options: Any = None,
) -> Any:  # fmt: skip
    """Minimise a function of parameters in any structure: ``scipy.optimize.minimize``, its arguments and its result.

    ``x0`` is an array, a list of numbers, or a structure of arrays, numbers and tensors; ``fun(x, *args)`` gets it with
    tensors in place of them, and returns one element. Gradients, and second derivatives where the method wants them,
    are by tape; a ``jac``, ``hess`` or ``hessp`` of one's own gets and returns structures as ``x0``, ``hess`` a matrix
    of the vector that ``tape.ravel`` makes of it, and ``jac=True`` says that ``fun`` returns the gradient too.
    Where there are many unknowns, and their pattern allows it, derivatives are computed by colours (``tape.sparse``);
    ``trust-constr`` then gets sparse Hessians and Jacobians, of constraints too. ``bounds`` are SciPy's, of that
    vector, or for dicts and dataclasses a structure with pairs, or None, for leaves. Functions of ``constraints`` are
    functions of the structure as well, with Jacobians by tape unless given. In the result, and for ``callback``, ``x``
    is a structure as ``x0``, and so is the gradient ``jac``.

    >>> start = {"a": 0.0, "b": np.ones(1)}
    >>> fit = tape.optimize.minimize(lambda p: (p["a"] - 1.0) ** 2 + ((p["b"] + 2.0) ** 2).sum(), start)
    >>> round(fit.x["a"], 4), np.round(fit.x["b"], 4).tolist()
    (1.0, [-2.0])
    """
    from scipy import optimize

    problem = _Problem(x0, args)
    result = optimize.minimize(
        x0=problem.start, method=method, bounds=problem.bounds(bounds), tol=tol,
        constraints=_constraints(problem, constraints, method),
        callback=None if callback is None else _callback(problem, callback),
        options=options, **_derivatives(problem, fun, method, jac, hess, hessp),
    )  # fmt: skip
    return problem.result(result, "x", "jac", "grad")


def _derivatives(problem: _Problem, fun: Any, method: Any, jac: Any, hess: Any, hessp: Any) -> dict[str, Any]:
    name, call = method.lower() if isinstance(method, str) else "", problem.call(fun)
    by_colours = sparse.hessian(call)
    arguments: dict[str, Any] = {"fun": problem.numbers(fun, _number), "jac": jac or None, "hess": hess, "hessp": hessp}
    if jac is True:
        arguments["fun"] = problem.numbers(fun, lambda both: (_number(both[0]), _vector(both[1])))
    elif callable(jac):
        arguments["jac"] = problem.numbers(jac)
    elif jac is None and name not in WITHOUT_GRADIENT:
        arguments["fun"], arguments["jac"] = value_and_grad(call), True
    if callable(hess):
        arguments["hess"] = problem.numbers(hess, _matrix)
    if callable(hessp):
        arguments["hessp"] = lambda v, p: _vector(hessp(problem.back(v), problem.back(p), *problem.args))
    if hess is None and hessp is None and name in WITH_HESSIAN:
        arguments["hess"] = _one_of(by_colours, func.hessian(call), problem.start, as_sparse=False)
    elif hess is None and hessp is None and name == _TAKES_SPARSE and _is_sparse(by_colours, problem.start):
        arguments["hess"] = by_colours
    elif hess is None and hessp is None and name in WITH_PRODUCTS:
        arguments["hessp"] = lambda v, p: func.jvp(func.grad(call), (v,), (p,))[1]
    return arguments


def least_squares(fun: Callable[..., Any], x0: Any, jac: Any = None, *more: Any, args: Any = (), **named: Any) -> Any:
    """Fit a function that returns residuals, a tensor: ``scipy.optimize.least_squares``, its arguments and its result.

    ``x0``, ``fun`` and the result's ``x`` are as those of :func:`minimize`; the Jacobian is by tape unless given, and
    sparse where that pays and ``method`` takes it.

    >>> fit = tape.optimize.least_squares(lambda p: (p["a"] - 2.0) * np.arange(3.0), {"a": 1.0})
    >>> round(fit.x["a"], 6)
    2.0
    """
    from scipy import optimize

    problem = _Problem(x0, args)
    takes_sparse = "lm" not in more and named.get("method") != "lm" and named.get("tr_solver") != "exact"
    by_tape = problem.jacobian(fun, jac, as_sparse=takes_sparse)
    result = optimize.least_squares(problem.numbers(fun), problem.start, by_tape, *more, **named)
    return problem.result(result, "x")


def root(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: str = "hybr", jac: Any = None, tol: float | None = None,
    callback: Any = None, options: Any = None,
) -> Any:  # fmt: skip
    """Find where a function, a tensor as long as the parameters, is zero: ``scipy.optimize.root`` and its result.

    ``x0``, ``fun`` and the result's ``x`` are as those of :func:`minimize`; the Jacobian is by tape unless given.

    >>> found = tape.optimize.root(lambda p: p["a"] ** 2 - 4.0, {"a": np.array([1.0, -1.0])})
    >>> np.round(found.x["a"], 6).tolist()
    [2.0, -2.0]
    """
    from scipy import optimize

    problem = _Problem(x0, args)
    wanted = problem.jacobian(fun, jac) if method in ("hybr", "lm") and jac is not False else jac
    solution = optimize.root(
        problem.numbers(fun), problem.start, method=method, jac=wanted, tol=tol, callback=callback, options=options
    )
    return problem.result(solution, "x")


def _is_sparse(derivative: sparse.SparseDerivative, start: Any, *args: Any) -> bool:
    """Whether a derivative is computed by few colours; what has no pattern is computed without."""
    if start.size < _LARGE:
        return False
    try:
        pattern, colours = derivative.pattern(start, *args), derivative.colouring(start, *args)
    except (RuntimeError, ValueError):  # of a pattern; the function itself raises its own once more
        return False
    return bool(_WORTH * colours.count <= min(pattern.shape))


def _one_of(by_colours: sparse.SparseDerivative, dense: Any, start: Any, *, as_sparse: bool) -> Any:
    """Return a derivative as a function of the vector: by colours, sparse or not, where that pays."""
    if not _is_sparse(by_colours, start):
        return lambda v: dense(np.array(v, np.float64))
    return lambda v: by_colours(np.array(v)) if as_sparse else by_colours(np.array(v)).toarray()


class _Problem:
    """Parameters as a vector of float64, and functions of them as functions of that."""

    def __init__(self, x0: Any, args: Any) -> None:
        if isinstance(x0, (list, tuple)) and all(isinstance(x, (int, float, np.number)) for x in x0):
            x0 = np.array(x0, np.float64)  # as SciPy takes it
        self.args = args if isinstance(args, tuple) else (args,)
        self.structure = pytrees.flattened(x0)[1]
        vector, self.back = raveled(x0)
        self.tensors = isinstance(vector, Tensor)
        self.start = np.array(_array_of(vector), np.float64)

    def call(self, fun: Callable[..., Any], args: tuple[Any, ...] | None = None) -> Callable[[Any], Any]:
        """Return a function of the vector as a tensor; ``args`` are by default the problem's."""
        rest = self.args if args is None else args
        return lambda v: fun(self.back(v), *rest)

    def numbers(self, fun: Callable[..., Any], out: Any = None, args: tuple[Any, ...] | None = None) -> Any:
        """Return a function of the vector to one of what ``fun`` gives, in any structure, or to what ``out`` makes."""
        out, call = out or _vector, self.call(fun, args)

        def run(v: Any) -> Any:
            with grad_modes.no_grad():
                return out(call(constant_tensor(np.array(v, np.float64))))

        return run

    def jacobian(
        self, fun: Callable[..., Any], jac: Any, args: tuple[Any, ...] | None = None, *, as_sparse: bool = False
    ) -> Any:
        """Return the Jacobian as a function of the vector, by tape if none is given; SciPy's names as they are."""
        if callable(jac):
            return self.numbers(jac, _matrix, args)
        call = self.call(fun, args)

        def vector_of(v: Any) -> Any:
            vector = raveled(call(v))[0]
            return vector if isinstance(vector, Tensor) else constant_tensor(vector)

        if jac:
            return jac
        return _one_of(sparse.jacobian(vector_of), func.jacrev(vector_of), self.start, as_sparse=as_sparse)

    def tree(self, v: Any) -> Any:
        """Return a vector as parameters: of tensors where they were given so."""
        return self.back(constant_tensor(np.array(v, np.float64)) if self.tensors else v)

    def result(self, solution: Any, *names: str) -> Any:
        """Return SciPy's result, with these vectors in it as parameters."""
        for name in names:
            if getattr(solution.get(name), "shape", None) == self.start.shape:
                solution[name] = self.tree(solution[name])
        return solution

    def bounds(self, limits: Any) -> Any:
        """Return SciPy's bounds: as they are, or of a structure with a pair for each leaf."""
        alike = limits is not None and type(limits) is self.structure.kind
        if not alike or self.structure.kind in (list, tuple):
            return limits
        sized = zip(_pairs(self.structure, limits, "bounds"), self.back.shapes, strict=True)
        return [pair for one, shape in sized for pair in _spread(one, shape)]


def _pairs(structure: pytrees.Structure, limits: Any, path: str) -> list[Any]:
    if structure.kind is None or limits is None:
        return [limits] * len(structure)
    taken = structure.taken(limits)
    if taken is None:
        raise TypeError(f"{path} is a {type(limits).__name__}, where a structure like {structure} is expected")
    named = zip(structure.keys, structure.parts, taken, strict=True)
    return [pair for key, part, one in named for pair in _pairs(part, one, f"{path}[{key!r}]")]


def _spread(pair: Any, shape: tuple[int, ...]) -> list[tuple[Any, Any]]:
    low, high = (None, None) if pair is None else pair
    ends = (-np.inf if low is None else low, np.inf if high is None else high)
    lows, highs = (np.broadcast_to(np.asarray(end, np.float64), shape).reshape(-1) for end in ends)
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _array_of(x: Any) -> Any:
    return as_array(x.detach()) if isinstance(x, Tensor) else np.asarray(x)


def _number(x: Any) -> float:
    return float(_array_of(x).item())


def _vector(values: Any) -> Any:
    return np.array(_array_of(raveled(values)[0]))


def _matrix(values: Any) -> Any:
    return np.atleast_2d(_array_of(values))


def _constraints(problem: _Problem, constraints: Any, method: Any) -> Any:
    from scipy.optimize import BFGS, NonlinearConstraint

    if isinstance(constraints, (list, tuple)):
        return [_constraints(problem, constraint, method) for constraint in constraints]
    if isinstance(constraints, dict):
        rest = constraints.get("args", ())
        jac = problem.jacobian(constraints["fun"], constraints.get("jac"), rest)
        return {"type": constraints["type"], "fun": problem.numbers(constraints["fun"], args=rest), "jac": jac}
    if not isinstance(constraints, NonlinearConstraint):
        return constraints
    made = copy.copy(constraints)
    made.fun = problem.numbers(constraints.fun, args=())
    takes_sparse = isinstance(method, str) and method.lower() == _TAKES_SPARSE
    jac = None if constraints.jac == "2-point" else constraints.jac
    made.jac = problem.jacobian(constraints.fun, jac, (), as_sparse=takes_sparse)
    if takes_sparse and jac is None and isinstance(constraints.hess, BFGS):  # as it is unless given
        call = problem.call(constraints.fun, ())
        by_colours = sparse.hessian(lambda v, weights: (raveled(call(v))[0] * weights).sum())
        if _is_sparse(by_colours, problem.start, np.ones_like(made.fun(problem.start))):
            made.hess = by_colours
    return made


def _callback(problem: _Problem, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback of SciPy's: it asks for the result so far by the name of its parameter."""
    if set(inspect.signature(callback).parameters) == {"intermediate_result"}:

        def with_result(intermediate_result: Any) -> Any:
            shown = copy.copy(intermediate_result)
            return callback(intermediate_result=problem.result(shown, "x"))

        return with_result
    return lambda v, *rest: callback(problem.tree(v), *rest)
