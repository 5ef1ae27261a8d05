"""Sparse Jacobians and Hessians: all colours by one sweep of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.foundation.tables import Lock
from kernels.programs.patterns import pattern_of_recipe
from tape import func
from tape.compiled.call_key import call_of, inputs_of
from tape.compiled.compiled_gradient import compile as compiled
from tape.compiled.recordings import record_call
from tape.operations.diagonals import Inverse, raveled
from tape.recording import views
from tape.sparse.colourings import Colouring, colouring
from tape.sparse.matrices import CSR
from tape.tensors import modes, pytrees
from tape.tensors.tensor import Tensor, as_array, constant_tensor
from tape.transforms.points import Evaluation, pulled, pushed, zeros_for
from tape.transforms.value_and_grad import value_and_grad
from tape.transforms.vmap import vmap
from tape.watching.watched import Finder

MOST_SHAPES = 32  # of arguments, the last used, for which patterns and colourings are kept


class SparseDerivative:
    """A function that gives a sparse Jacobian or Hessian: :func:`jacobian` and :func:`hessian` make it.

    It has a pattern and a colouring for each structure, shape and dtype of the arguments. Where a call goes another way
    than those before, by a branch on a value say, what that way depends on is added to the pattern, and it is coloured
    anew: the matrix then has stored zeros.
    """

    __module__ = "tape.sparse"

    def __init__(self, name: str, fun: Callable[..., Any], by: str | None, order: str | None) -> None:
        self.name, self.fun, self.by, self.order = name, fun, by, order
        self._plans: dict[Any, Plan] = {}
        self._lock = Lock()

    def __call__(self, x: Any, *args: Any) -> Any:
        """Return the derivative by ``x`` at a point, ``args`` being further arguments of the function."""
        plan, vector = self._plan(x, args)
        return plan.matrix(vector, args)

    def pattern(self, x: Any, *args: Any) -> Any:
        """Return SciPy's csr_array of bools: where the derivative at a point may be other than zero."""
        plan, vector = self._plan(x, args)
        plan.check(vector, args)
        return plan.pattern.astype(np.bool_)

    def colouring(self, x: Any, *args: Any) -> Colouring:
        """Return the colours that the derivative at a point is computed by."""
        plan, vector = self._plan(x, args)
        plan.check(vector, args)
        return plan.colours

    def _plan(self, x: Any, args: tuple[Any, ...]) -> tuple[Plan, Any]:
        vector, back = raveled(x)
        if not isinstance(vector, Tensor):
            vector = np.array(vector)
        if back.size == 0:
            raise ValueError(f"{self.name}: there is no number in x to differentiate by")
        key = (back.structure, tuple(back.shapes), tuple(back.dtypes), tuple(back.numbers), *_shapes(args))
        with self._lock:
            plan = self._plans.pop(key, None) or Plan(self, back)
            self._plans[key] = plan
            for oldest in list(self._plans)[:-MOST_SHAPES]:
                del self._plans[oldest]
        return plan, vector

    def __repr__(self) -> str:
        return f"<{self.name} of {self.fun!r}>"


def _shapes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves, structure = pytrees.flattened(args, none=True)
    return structure, *[getattr(x, "shape", None) for x in leaves]


class Plan:
    """How a derivative is computed by arguments of one structure: its pattern, its colours, the compiled sweep.

    Whoever compiles runs the function's Python code where it records, and where it goes another way than before:
    ``runs`` counts that. Else the call is a replay of what was recorded, whose pattern is known.
    """

    def __init__(self, of: SparseDerivative, back: Inverse) -> None:
        self._of, self._lock = of, Lock()
        symmetric = of.name == "hessian"
        self.runs, self._rows = 0, -1
        self._batches = not symmetric  # whether programs compute all groups of rows at once: not those of gradients

        def values(vector: Any, *args: Any) -> Any:
            self.runs += 1
            result = raveled(of.fun(back(vector), *args))[0]
            if not symmetric:
                return result if isinstance(result, Tensor) else constant_tensor(result)
            if result.size != 1:
                raise RuntimeError(f"hessian: the function returns {result.size} elements, where one is wanted")
            return result[0]

        self._values = values = func.grad(values) if symmetric else values
        self._way = "stars" if symmetric and of.by is None else of.by

        def weighted(vectors: Any, weights: Any, args: Any) -> Any:
            results = vmap(lambda vector: values(vector, *args))(vectors)
            _check_size(results.shape[1], weights)
            return (results * weights).sum()

        self._forward, self._pulls = compiled(values), compiled(value_and_grad(weighted))

    def matrix(self, vector: Any, args: tuple[Any, ...]) -> Any:
        """Return the derivative at a point: sweep again where the call went a way that the pattern does not know."""
        if self._rows < 0:
            self.check(vector, args)
        leaves = pytrees.flattened((vector, args), none=True)[0]
        arrays = modes.current().recorder is None and not any(isinstance(x, Tensor) for x in leaves)
        while True:
            try:
                swept, known, colours, pattern = self._swept(vector, args, arrays=arrays)
            except _OtherSizeError:
                self.check(vector, args)
            else:
                if known or not self.check(vector, args):
                    return _assembled(pattern, colours, swept)

    def _swept(self, vector: Any, args: tuple[Any, ...], *, arrays: bool) -> tuple[Any, ...]:
        """Return all sums of columns and rows, whether replays gave them, and the colours and pattern that they are of.

        What is not known to be replayed, and every program whose loops a value ends, may depend on other elements.
        """
        runs, colours, pattern, by = self.runs, self.colours, self.pattern, self._pulls
        pulls = arrays and self._batches and colours.row_count > 0
        rows, swept = self._pulled_at_once(vector, args) if pulls else None, ()
        if rows is None or colours.column_count:
            runs, by = self.runs, self._forward
            by(vector, *args)
            known = self.runs == runs
            weights = self._weights[: 0 if rows is not None else None]
            swept = _swept(self._of.name, self._values, vector, self._seeds, weights, args)
        else:
            known = self.runs == runs
        known = known and not any(program.has_loops for program in by.programs)
        return (*swept, *(() if rows is None else (rows,))), known, colours, pattern

    def _pulled_at_once(self, vector: Array, args: tuple[Any, ...]) -> Any:
        """Return what all groups of rows give, by one program; None where the function cannot be mapped."""
        vectors = np.broadcast_to(vector, (len(self._weights), len(vector))).copy()
        try:
            return self._pulls(vectors, self._weights, args)[1]
        except _OtherSizeError:
            raise
        except (RuntimeError, TypeError):
            self._batches = False  # an error of the function itself comes again
            return None

    def check(self, vector: Any, args: tuple[Any, ...]) -> bool:
        """Record the function at a point; return whether its pattern there has elements that were not known."""
        pattern = _recorded_pattern(self._of.name, self._values, vector, args)
        if self._of.name == "hessian":
            pattern = pattern + pattern.T
        with self._lock:
            if self._rows == pattern.shape[0]:
                pattern = self.pattern + pattern
                if pattern.nnz == self.pattern.nnz:
                    return False
            pattern.data[:] = 1
            pattern.sort_indices()
            self._take(pattern, np.dtype(vector.dtype))
            return True

    def _take(self, pattern: Any, dtype: np.dtype[Any]) -> None:
        self.pattern = pattern
        self.colours = colours = colouring(pattern, self._way, self._of.order)
        if self._way == "stars":  # sums of columns are sums of rows
            nothing, count = np.full(len(colours.columns), -1), colours.column_count
            self.colours = colours = Colouring(nothing, colours.columns, 0, count, colours.places)
        self._seeds = _groups(colours.columns, colours.column_count, dtype)
        self._weights = _groups(colours.rows, colours.row_count, dtype)
        self._rows = pattern.shape[0]


class _OtherSizeError(RuntimeError):
    """A call has another number of results than the one that was recorded last."""


def _check_size(size: int, weights: Any) -> None:
    if weights.shape[1] != size:
        raise _OtherSizeError(f"the function returned {weights.shape[1]} elements, then {size}")


def _groups(colours: Array, count: int, dtype: np.dtype[Any]) -> Array:
    """Return for each colour the sum of the unit vectors of that colour."""
    groups = np.zeros((count, len(colours)), dtype)
    at = np.flatnonzero(colours >= 0)
    groups[colours[at], at] = 1
    return groups


def _swept(
    name: str, fun: Callable[..., Any], vector: Any, seeds: Array, weights: Array, args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the derivatives for all groups of columns, and of rows: matrices, a row for each."""
    point = Evaluation(name, fun, (vector, *args), 0, {}, has_aux=False)
    point.check_tensors(name)
    swept_groups: list[Tensor] = []
    _check_size(point.outputs[0].size, weights)
    if len(seeds):
        swept = pushed(point.outputs, point.inputs, [constant_tensor(seeds)], batch=len(seeds))
        swept_groups += zeros_for(swept, point.outputs, (len(seeds),))
    if len(weights):
        swept = pulled(point.outputs, point.inputs, [constant_tensor(weights)], batch=len(weights), retain=True)
        swept_groups += zeros_for(swept, point.inputs, (len(weights),))
    results = tuple([point.out([x], _LEAF) for x in swept_groups])
    point.release()
    return point.finished(results)[1]  # type: ignore[no-any-return]


_LEAF = pytrees.flattened(0.0)[1]


def _recorded_pattern(name: str, fun: Callable[..., Any], vector: Any, args: tuple[Any, ...]) -> Any:
    """Return SciPy's csr_array of ones where the derivative at a point may be other than zero."""
    from scipy.sparse import csr_array

    array = np.array(as_array(vector.detach()) if isinstance(vector, Tensor) else vector)
    call = call_of((array, *args), {}, (), ())

    def run(tensors: Sequence[Tensor]) -> Any:
        positional, keywords = call.filled(tensors)
        return modes.call_given(call.arrays, fun, *positional, **keywords)

    _, recording = record_call(run, inputs_of(call.values), earlier=(), finder=Finder())
    if recording.stopped:
        raise RuntimeError(
            f"{name}: what the function depends on is not known, since programs do not hold {recording.stopped}. "
            "tape.func has dense derivatives"
        )
    recording.keep_all()
    recipe = recording.recipe
    indptr, indices, shape = pattern_of_recipe(recipe, recipe.arguments[:1])
    return csr_array((np.ones(len(indices), np.int64), indices, indptr), shape=shape)


def _assembled(pattern: Any, colours: Colouring, swept: tuple[Any, ...]) -> Any:
    from scipy.sparse import csr_array

    if any(isinstance(x, Tensor) for x in swept):
        joined = views.cat([views.reshape(x, -1) for x in swept])
        return CSR(joined[constant_tensor(colours.places)], pattern.indices, pattern.indptr, pattern.shape)
    flat = np.concatenate([np.reshape(x, -1) for x in swept])
    return csr_array((flat[colours.places], pattern.indices, pattern.indptr), shape=pattern.shape)


def jacobian(fun: Callable[..., Any], *, by: str | None = None, order: str | None = None) -> SparseDerivative:
    """Return a function that gives the sparse Jacobian of ``fun(x, *args)`` by ``x``.

    ``x`` and what ``fun`` returns are numbers, arrays, tensors or structures of them, each taken as the vector that
    ``tape.ravel`` makes of it: m results by n unknowns give an m by n matrix in their common dtype. It is SciPy's
    csr_array where no argument is a tensor, and else a :class:`CSR`, whose values are differentiable. Its pattern comes
    from a recording of ``fun``, and holds all elements that may be other than zero. ``by`` and ``order`` are those of
    :func:`colouring`. RuntimeError for what no recording holds; ValueError for a pattern that is dense.

    >>> J = tape.sparse.jacobian(lambda x: x[1:] ** 2 - x[:-1])(np.arange(4.0))
    >>> J.toarray().tolist()
    [[-1.0, 2.0, 0.0, 0.0], [0.0, -1.0, 4.0, 0.0], [0.0, 0.0, -1.0, 6.0]]
    """
    return SparseDerivative("jacobian", fun, by, order)


def hessian(fun: Callable[..., Any], *, by: str | None = None, order: str | None = None) -> SparseDerivative:
    """Return a function that gives the sparse Hessian, n by n, of ``fun(x, *args)``, one number, by ``x``.

    As :func:`jacobian`, whose remarks apply, of the gradient; it is coloured by stars unless ``by`` says else.
    RuntimeError if ``fun`` returns several elements.

    >>> H = tape.sparse.hessian(lambda x: (x[1:] * x[:-1] ** 2).sum())(np.arange(3.0))
    >>> H.toarray().tolist()
    [[2.0, 0.0, 0.0], [0.0, 4.0, 2.0], [0.0, 2.0, 0.0]]
    """
    return SparseDerivative("hessian", fun, by, order)
