"""What solves equations on arrays: Newton's method by tape, SciPy's solvers, functions of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tape.errors import ConvergenceError
from tape.implicit import systems
from tape.implicit.equations import FIXED_POINT, LINEAR, MINIMUM, Equation
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor

_HALVINGS = 30
_FAR = 1e-2  # how far, in parts of the solution, a minimum of SciPy's may be from where the gradient is zero


class ArrayFunction:
    """What a solver of the user's gets: the function on arrays, in the shape of x0 if that is one array or number.

    ``f(x)`` is the function's value: the equations' left sides, the next iterate, or what is minimised. ``f.jac(x)``
    is the Jacobian of the equations, or the gradient of what is minimised, whose Hessian ``f.hess(x)`` is.
    """

    def __init__(self, equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> None:
        self._equation, self._like, self._operands = equation, x, operands
        shapes = equation.back.shapes
        self.shape = shapes[0] if len(shapes) == 1 else (x.spec.size,)

    def _vector(self, x: Any) -> Tensor:
        x = x._value if isinstance(x, Tensor) else x
        return constant_tensor(np.array(x, self._like.spec.dtype).reshape(self._like.spec.shape))

    def shaped(self, x: Array) -> Any:
        """Return a vector in the shape of x0: a float where that is a number."""
        return x.reshape(self.shape) if self.shape else float(x[0])

    def __call__(self, x: Any) -> Any:
        """Return the value."""
        v = self._vector(x)
        if self._equation.kind == MINIMUM:
            return float(self._equation.objective(v, self._operands))
        value = as_array(self._equation(v, *self._operands))
        if self._equation.kind == FIXED_POINT:
            value = as_array(v) - value
        return self.shaped(value)

    def jac(self, x: Any) -> Any:
        """Return derivatives: see the class."""
        if self._equation.kind == MINIMUM:
            return self.shaped(as_array(self._equation(self._vector(x), *self._operands)))
        return systems.jacobian(self._equation, self._vector(x), self._operands)

    def hess(self, x: Any) -> Any:
        """Return the Hessian of what is minimised."""
        return systems.jacobian(self._equation, self._vector(x), self._operands)


def solved(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> Array:
    """Return the solution of an equation on the values of tensors, from a start."""
    if not x.spec.size:
        return as_array(x)
    if equation.kind == LINEAR:
        zero = constant_tensor(np.zeros(x.spec.shape, x.spec.dtype))
        right = -as_array(equation(zero, *operands))
        return systems.Factors(equation).solve(zero, operands, right, trans=False)
    solver, function = equation.solver, ArrayFunction(equation, x, operands)
    start = as_array(x)
    if callable(solver):
        solution = _solution(equation, solver(function, function.shaped(start.copy())), x)
        return _stationary(equation, solution, operands) if equation.kind == MINIMUM else solution
    if equation.kind == FIXED_POINT and solver is None:
        return _iterated(equation, function, start, operands)
    if solver is not None or equation.kind == MINIMUM:
        start = _by_scipy(equation, function, start, x)
        return _stationary(equation, start, operands) if equation.kind == MINIMUM else newton(equation, start, operands)
    return newton(equation, start, operands)


def newton(equation: Equation, start: Array, operands: Sequence[Tensor]) -> Array:
    """Return the root near a start by Newton's method, whose steps are halved until the residual falls.

    It ends with a full step that is small. ConvergenceError where it does not come to that.
    """
    tol, most = equation.limits
    x, eps = start, float(np.finfo(start.dtype).eps)
    tol = eps ** (2 / 3) if tol is None else tol
    r = _residual(equation, x, operands)
    for _ in range(most):
        norm = np.linalg.norm(r)
        if norm == 0.0:
            return x
        step = systems.Factors(equation).solve(constant_tensor(x), operands, r, trans=False)
        scale = 1.0 + np.abs(x).max()
        part, small = 1.0, np.abs(step).max() <= np.sqrt(eps) * scale
        for _ in range(_HALVINGS):
            new = x - x.dtype.type(part) * step
            new_r = _residual(equation, new, operands)
            if np.linalg.norm(new_r) < norm:
                break
            if small:  # as near as rounding lets it come
                return x
            part /= 2
        else:
            break
        x, r = new, new_r
        if part == 1.0 and np.abs(step).max() <= tol * scale:
            return np.asarray(x)
    raise ConvergenceError(
        f"{equation.name}: Newton's method did not converge in {most} steps; the residual is {np.linalg.norm(r):.3g}. "
        "Start nearer, or give solver="
    )


def _residual(equation: Equation, x: Array, operands: Sequence[Tensor]) -> Array:
    with np.errstate(all="ignore"):
        r = as_array(equation(constant_tensor(x.copy()), *operands))
    return np.where(np.isfinite(r), r, np.inf).astype(x.dtype)


def _iterated(equation: Equation, function: ArrayFunction, start: Array, operands: Sequence[Tensor]) -> Array:
    tol, most = equation.limits
    tol = 8 * float(np.finfo(start.dtype).eps) if tol is None else tol
    x, moved = start, np.inf
    for _ in range(most):
        with np.errstate(all="ignore"):
            new = x - as_array(equation(constant_tensor(x.copy()), *operands))
        moved = float(np.abs(new - x).max())
        x = new
        if not np.isfinite(moved):
            break
        if moved <= tol * (1.0 + np.abs(x).max()):
            return x
    raise ConvergenceError(
        f"{function and equation.name}: the iteration did not converge in {most} steps; the last was {moved:.3g}. "
        "Start nearer, or give solver=: implicit.root of x - f(x) takes Newton's steps"
    )


def _by_scipy(equation: Equation, function: ArrayFunction, start: Array, x: Tensor) -> Array:
    from scipy import optimize

    name = equation.solver or "BFGS"
    if equation.kind == MINIMUM:
        hess = function.hess if name.lower() in WITH_HESSIAN | WITH_PRODUCTS else None
        jac = None if name.lower() in WITHOUT_GRADIENT else function.jac
        result = optimize.minimize(function, function.shaped(start), method=name, jac=jac, hess=hess)
        return np.asarray(result.x, start.dtype).reshape(start.shape)  # whether it is a minimum is looked at afterwards
    if equation.kind == FIXED_POINT:
        return _solution(equation, optimize.fixed_point(function, function.shaped(start), method=name), x)
    jac = (lambda v: _dense(function.jac(v))) if name in ("hybr", "lm") else None
    return _solution(equation, optimize.root(function, function.shaped(start), method=name, jac=jac), x)


WITHOUT_GRADIENT = {"nelder-mead", "powell", "cobyla", "cobyqa"}
WITH_HESSIAN = {"dogleg", "trust-exact"}
WITH_PRODUCTS = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
"""Methods of ``scipy.optimize.minimize`` that take no gradient; a Hessian; or products with one, or the Hessian."""


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix  # type: ignore[no-any-return]


def _solution(equation: Equation, result: Any, like: Tensor) -> Array:
    """Return what a solver found as a vector; ConvergenceError where it says that it failed."""
    success = getattr(result, "success", getattr(result, "converged", True))
    if not np.all(success):
        why = getattr(result, "message", getattr(result, "flag", ""))
        raise ConvergenceError(f"{equation.name}: the solver did not converge: {why}")
    for name in ("x", "root"):
        result = getattr(result, name, result)
    if isinstance(result, Tensor):
        result = result.detach()._value
    x = np.asarray(result, like.spec.dtype)
    if x.size != like.spec.size:
        raise ValueError(f"{equation.name}: the solver returned {x.size} numbers for {like.spec.size} unknowns")
    if not np.all(np.isfinite(x)):
        raise ConvergenceError(f"{equation.name}: the solver returned what is not finite")
    return x.reshape(like.spec.shape)


def _stationary(equation: Equation, x: Array, operands: Sequence[Tensor]) -> Array:
    """Return the place near a minimum that a solver found where the gradient is zero; raise where there is none."""
    refined = newton(equation, x, operands)
    if np.abs(refined - x).max() > _FAR * (1.0 + np.abs(x).max()):
        raise ConvergenceError(
            f"{equation.name}: what the solver returned is no minimum: the gradient is zero elsewhere, as if it had "
            "failed, or had bounds or constraints, whose minimum has another gradient"
        )
    return refined
