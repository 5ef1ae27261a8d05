"""Implicit functions: what solvers find, with gradients by the implicit function theorem, to any order.

The solver may be anything, and nobody looks into it: the gradient is one linear solve with the transposed Jacobian at
the solution. Where values and bounds are wanted without a gradient through the solution, ``tape.optimize`` has SciPy's
interface.

>>> def square_root(a):
...     return tape.implicit.root(lambda x: x * x - a, 1.0)
>>> value, slope = tape.value_and_grad(square_root)(9.0)
>>> round(value, 12), round(slope, 12)
(3.0, 0.166666666667)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape.engine.custom_function import Function
from tape.implicit import solvers
from tape.implicit.equations import FIXED_POINT, LINEAR, MINIMUM, ROOT, Equation
from tape.implicit.systems import Factors
from tape.operations.diagonals import raveled
from tape.operations.solves import solve
from tape.recording.views import stack
from tape.sparse import CSR, csr, spsolve
from tape.tensors import modes
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array, constant_tensor

__all__ = ["fixed_point", "linear_solve", "minimize", "root"]


def root(
    f: Callable[..., Any], x0: Any, *args: Any, solver: Any = None, jac: Any = None, linear: Any = None,
    batch_dims: int = 0, tol: float | None = None, max_steps: int = 100,
) -> Any:  # fmt: skip
    """Return x with f(x, *args) = 0, differentiable by ``args`` and by the tensors that f closes over.

    ``x0`` is the start, a number, array or tensor, or a structure of them; f takes such a structure of tensors and
    returns as many numbers, in any structure. The result is x0's structure, of tensors; x0 has no gradient. With
    ``batch_dims`` the leading axes of the array x0 are so many independent problems, whose equations stand in the same
    place: f must not mix them. Under ``tape.vmap`` each example is solved by itself.

    ``solver`` is None for Newton's method, the name of a method of ``scipy.optimize.root``, whose result Newton's
    method refines, or ``solver(fun, x0)``: it gets the function on arrays, with a Jacobian ``fun.jac``, and returns the
    solution or SciPy's result. ``jac`` is the Jacobian, a function of f's arguments or a constant: an array, a
    ``tape.sparse.CSR`` or SciPy's sparse matrix, factored as such. By default it is by tape: of more than 40
    unknowns sparse, by colours, where its pattern has few and f reads no values in Python, else dense. With ``linear``,
    one of SciPy's iterative methods (``"gmres"``) or ``linear(product, v)``, no matrix is made.

    Raises ConvergenceError where no solution is found, LinAlgError where the Jacobian is singular, ValueError where
    there are not as many equations as unknowns.

    >>> x = tape.implicit.root(lambda x, a: {"u": x["v"] - a, "v": x["u"] ** 2 - 4.0}, {"u": 1.0, "v": 0.0}, 3.0)
    >>> x["u"].item(), x["v"].item()
    (2.0, 3.0)
    """
    more = {"solver": solver, "jac": jac, "linear": linear, "limits": (tol, max_steps)}
    return _solved(ROOT, f, x0, args, batch=batch_dims, **more)


def fixed_point(
    f: Callable[..., Any], x0: Any, *args: Any, solver: Any = None, jac: Any = None, linear: Any = None,
    batch_dims: int = 0, tol: float | None = None, max_steps: int = 1000,
) -> Any:  # fmt: skip
    """Return x with f(x, *args) = x: the arguments of :func:`root`, ``jac`` that of ``x - f(x)``.

    ``solver`` is None for the plain iteration, a method of ``scipy.optimize.fixed_point`` by name (``"del2"``), refined
    by Newton's method, or ``solver(fun, x0)``.

    >>> tape.implicit.fixed_point(lambda x: 0.5 * (x + 2.0 / x), 1.0)
    tensor(1.4142)
    """
    more = {"solver": solver, "jac": jac, "linear": linear, "limits": (tol, max_steps)}
    return _solved(FIXED_POINT, f, x0, args, batch=batch_dims, **more)


def minimize(
    f: Callable[..., Any], x0: Any, *args: Any, solver: Any = None, jac: Any = None, linear: Any = None,
    tol: float | None = None, max_steps: int = 100,
) -> Any:  # fmt: skip
    """Return the x that makes the number f(x, *args) least, differentiable as :func:`root`'s.

    ``solver`` is a method of ``scipy.optimize.minimize`` by name, by default BFGS, or ``solver(fun, x0)`` with the
    gradient ``fun.jac`` and the Hessian ``fun.hess``. Newton's method refines what it finds. A minimum on a bound or
    under constraints, where the gradient is not zero, raises ConvergenceError. ``jac`` is the Hessian, as :func:`root`
    takes its Jacobian.

    >>> tape.implicit.minimize(lambda x, a: ((x - a) ** 2).sum(), np.zeros(2), np.array([1.0, 2.0]))
    tensor([1., 2.])
    """
    more = {"solver": solver, "jac": jac, "linear": linear, "limits": (tol, max_steps)}
    return _solved(MINIMUM, f, x0, args, **more)


def linear_solve(A: Any, b: Any, *args: Any, solver: Any = None) -> Any:  # noqa: N803 (as everybody calls it)
    """Return x with A x = b, differentiable by A and b.

    ``A`` is a square matrix, dense or a ``tape.sparse.CSR`` or SciPy's sparse one, with ``b`` a vector, or a linear
    function ``A(x, *args)`` of what has ``b``'s structure, differentiable by ``args`` and what it closes over. A matrix
    is factored; with ``solver``, and for a function, SciPy's iterative method of that name, by default ``"gmres"``, or
    ``solver(product, v)`` gets products with A, and for the gradient with A transposed.

    >>> tape.implicit.linear_solve(lambda x: 2.0 * x + tape.flip(x), np.ones(2), solver="cg")
    tensor([0.3333, 0.3333])
    """
    if not callable(A):
        matrix = csr(A) if hasattr(A, "tocsr") else A if isinstance(A, CSR) else tensor_of(A)
        if solver is None:
            return spsolve(matrix, b) if isinstance(matrix, CSR) else solve(matrix, b)
        return linear_solve(lambda x: matrix @ x, b, solver=solver)
    vector, _ = raveled(b)
    return _solved(LINEAR, A, b, (vector, *args), linear=solver or "gmres")


def _solved(
    kind: str, f: Callable[..., Any], x0: Any, args: tuple[Any, ...], *, solver: Any = None, jac: Any = None,
    linear: Any = None, batch: int = 0, limits: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    vector, back = raveled(x0)
    start = vector.detach() if isinstance(vector, Tensor) else constant_tensor(vector)
    back.numbers = [False] * len(back.numbers)  # tensors of them, too
    equation = Equation(kind, f, back, args, batch)
    if not 0 <= batch <= len(back.shapes[0] if back.shapes else ()) or (batch and len(back.shapes) != 1):
        raise ValueError(f"{equation.name}: batch_dims is {batch}; x0 is one array that has so many axes")
    equation.solver, equation.jac, equation.linear, equation.limits = solver, jac, linear, limits
    equation.close_over(start)
    operands, equation.operands = equation.operands, []
    return back(ImplicitSolution.apply(equation, start, *operands))


class ImplicitSolution(Function):
    """The solution of an equation, a function of the operands: it is solved again by each replay of a program."""

    @staticmethod
    def forward(equation: Equation, start: Tensor, *operands: Tensor) -> Tensor:
        """Solve on values."""
        return constant_tensor(np.array(solvers.solved(equation, start, operands)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the solution and the operands."""
        ctx.equation, _, *operands = inputs
        ctx.factors = Factors(ctx.equation)
        ctx.residual = as_array(ctx.equation(output, *operands)) if any(ctx.needs_input_grad) else None
        ctx.save_for_backward(output, *operands)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Solve with the transposed Jacobian, and pull the solution back through the equation."""
        x, *operands = ctx.saved_tensors
        adjoint = _solve(ctx.factors, True, -g, x, *operands)
        residual, gradients = ctx.equation.pull(x, operands, adjoint, _needed(operands, ctx.needs_input_grad[2:]))
        ctx.factors.check(ctx.residual, residual, x, operands)
        return None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Push the operands' tangents through the equation, and solve with its Jacobian."""
        x, *operands = ctx.saved_tensors
        return LinearSolution.apply(ctx.factors, False, -ctx.equation.push(x, operands, tangents[2:]), x, *operands)  # type: ignore[no-any-return]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], equation: Equation, *tensors: Tensor) -> Any:
        """Solve each example's equation."""
        rows = zip(*_examples(info.batch_size, in_dims[1:], tensors), strict=True)
        return stack([ImplicitSolution.apply(equation, *row) for row in rows]), 0


class LinearSolution(Function):
    """The solution of a system with the Jacobian of an equation, or the transposed one, as a function of all of it."""

    @staticmethod
    def forward(factors: Factors, trans: bool, v: Tensor, x: Tensor, *operands: Tensor) -> Tensor:
        """Solve with the factors."""
        return constant_tensor(factors.solve(x, operands, as_array(v), trans=trans))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the solution and all that the system depends on."""
        ctx.factors, ctx.trans, _, x, *operands = inputs
        ctx.save_for_backward(output, x, *operands)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Solve with the other of the two matrices, and differentiate the product by the Jacobian's arguments."""
        y, x, *operands = ctx.saved_tensors
        other = _solve(ctx.factors, not ctx.trans, g, x, *operands)
        left, right = (y, -other) if ctx.trans else (-other, y)
        wanted = _needed((x, *operands), ctx.needs_input_grad[3:])
        return None, None, other, *ctx.factors.equation.pull_product(x, operands, left, right, wanted)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Solve for the tangent of the right side less that of the matrix times the solution."""
        y, x, *operands = ctx.saved_tensors
        pushed = -ctx.factors.equation.push_product(x, operands, y, tangents[3:], trans=ctx.trans)
        right = pushed if tangents[2] is None else pushed + tangents[2]
        return LinearSolution.apply(ctx.factors, ctx.trans, right, x, *operands)  # type: ignore[no-any-return]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], factors: Factors, trans: bool, *tensors: Tensor) -> Any:
        """Solve each example's system."""
        rows = zip(*_examples(info.batch_size, in_dims[2:], tensors), strict=True)
        return stack([LinearSolution.apply(Factors(factors.equation), trans, *row) for row in rows]), 0


def _solve(factors: Factors, trans: bool, v: Tensor, x: Tensor, *operands: Tensor) -> Tensor:
    """Solve, recorded where that is wanted."""
    if modes.is_grad_enabled() or modes.current().recorder is not None:
        return LinearSolution.apply(factors, trans, v, x, *operands)  # type: ignore[no-any-return]
    return LinearSolution.forward(factors, trans, v, x, *operands)


def _needed(operands: Sequence[Tensor], needs: Sequence[bool]) -> list[bool]:
    pairs = zip(operands, needs, strict=True)
    return [need and x.spec.dtype.kind == "f" for x, need in pairs]


def _examples(size: int, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    pairs = zip(dims, tensors, strict=True)
    return [[x] * size if d is None else [x.select(d, k) for k in range(size)] for d, x in pairs]
