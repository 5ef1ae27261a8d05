"""Sparse Jacobians and Hessians: all colours by one sweep of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Array
from kernels.foundation.tables import Lock
from kernels.programs.patterns import pattern_of_recipe
from tape import func
from tape.compiled.call_key import call_of, inputs_of
from tape.compiled.compiled_gradient import compile as compiled
from tape.compiled.recordings import record_call
from tape.errors import shorten
from tape.operations.diagonals import Inverse, raveled
from tape.recording import views
from tape.sparse.colourings import Colouring, colouring
from tape.sparse.matrices import CSR
from tape.tensors import modes, pytrees
from tape.tensors.tensor import Tensor, constant_tensor
from tape.transforms.points import Evaluation, pulled, pushed, zeros_for
from tape.transforms.value_and_grad import value_and_grad
from tape.transforms.vmap import vmap
from tape.watching.watched import Finder

_DENSE = 40  # unknowns, up to which a square Jacobian is dense, not sums of rows
_FEW = 4  # there are at least so many times as many unknowns as such sums
_ROUNDING = 256  # times machine epsilon by which two ways to sum rows may differ
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
        self._batches = True  # whether programs compute all groups of rows at once

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
            _check_size(results.shape[1], weights.shape[1])
            return (results * weights).sum()

        self._forward, self._pulls = compiled(values), compiled(value_and_grad(weighted))

    def matrix(self, vector: Any, args: tuple[Any, ...]) -> Any:
        """Return the derivative at a point: sweep again where the call went a way that the pattern does not know."""
        first = self._rows < 0  # then a sweep in dynamic mode says what it loses of tensors closed over
        if first:
            try:
                self.check(vector, args)
            except Exception as error:
                shorten(error)
                raise
        leaves = pytrees.flattened((vector, args), none=True)[0]
        arrays = modes.current().recorder is None and not any(isinstance(x, Tensor) for x in leaves)
        while True:
            pattern, parts = self.pattern, self._parts
            try:
                swept, known = self._swept(vector, args, parts, arrays=arrays and not first)
            except _OtherSizeError:
                self.check(vector, args)
            else:
                if known or not self.check(vector, args):
                    return _assembled(pattern, parts, swept)

    def _swept(
        self, vector: Any, args: tuple[Any, ...], parts: Sequence[Part], *, arrays: bool
    ) -> tuple[Sequence[Any], bool]:
        """Return the elements of each part, and whether replays gave them.

        What is not known to be replayed, and every program whose loops a value ends, may depend on other elements.
        """
        swept: dict[int, Any] = {}
        runs, by = self.runs, self._pulls
        if arrays and self._batches:
            swept = self._pulled_at_once(vector, args, parts)
        known = self.runs == runs
        if len(swept) < len(parts):
            known, by = False, self._forward
            if modes.current().recorder is None:
                runs = self.runs
                by(vector, *args)
                known = self.runs == runs
            others = {k: part for k, part in enumerate(parts) if k not in swept}
            rest = _swept(self._of.name, self._values, vector, list(others.values()), args)
            swept |= dict(zip(others, rest, strict=True))
        known = known and not any(program.has_loops for program in by.programs)
        return [swept[k] for k in range(len(parts))], known

    def _pulled_at_once(self, vector: Array, args: tuple[Any, ...], parts: Sequence[Part]) -> dict[int, Any]:
        """Return the elements of the parts that are sums of rows, by one program; none if it cannot be mapped."""
        swept: dict[int, Any] = {}
        for k, part in enumerate(parts):
            if part.pulls:
                weights = part.seeds()
                vectors = np.broadcast_to(vector, (len(weights), len(vector))).copy()
                try:
                    swept[k] = np.take(self._pulls(vectors, weights, args)[1], part.places)
                except _OtherSizeError:
                    raise
                except (RuntimeError, TypeError):
                    self._batches = False  # an error of the function itself comes again
                    return {}
        return swept

    def check(self, vector: Any, args: tuple[Any, ...]) -> bool:
        """Record the function at a point; return whether its pattern there has elements that were not known."""
        pattern, size = _recorded_pattern(self._of.name, self._values, vector, args)
        if self._of.name == "hessian":
            pattern = pattern + pattern.T
        with self._lock:
            if self._rows == pattern.shape[0]:
                pattern = self.pattern + pattern
                if pattern.nnz == self.pattern.nnz:
                    return False
            pattern.data[:] = 1
            pattern.sort_indices()
            self._take(pattern, size, np.dtype(vector.dtype))
            return True

    def _take(self, pattern: Any, size: int, dtype: np.dtype[Any]) -> None:
        colours = colouring(pattern, self._way, self._of.order)
        if self._way == "stars":  # sums of columns are sums of rows
            nothing, count = np.full(len(colours.columns), -1), colours.column_count
            colours = Colouring(nothing, colours.columns, 0, count, colours.places)
        self.pattern, self.colours = pattern, colours
        self._parts = _parts_of(colours, pattern.shape, size, dtype)
        self._rows = pattern.shape[0]


class _OtherSizeError(RuntimeError):
    """A call has another number of results than the one that was recorded last."""


def _check_size(size: int, before: int) -> None:
    if before != size:
        raise _OtherSizeError(f"the function returned {before} elements, then {size}")


class Part:
    """Some colours, of columns or, with ``pulls``, of rows: so many that what sweeps them keeps to some memory.

    ``at`` are the elements of the pattern that they give, ``places`` where these are among the results.
    """

    def __init__(self, colours: Array, start: int, count: int, *, pulls: bool, rows: int, dtype: np.dtype[Any]) -> None:
        self._rows, self._colours, self._dtype = rows, colours, dtype
        self._start, self._count, self.pulls = start, count, pulls
        self._held: Array | None = None
        if count * len(colours) <= _MOST_HELD:
            self._held = self.seeds()
        self.at = self.places = np.zeros(0, np.int64)

    def seeds(self) -> Array:
        """Return for each colour the sum of the unit vectors of that colour, which nobody writes to."""
        if self._held is not None:
            return self._held
        seeds = np.zeros((self._count, len(self._colours)), self._dtype)
        at = np.flatnonzero((self._colours >= self._start) & (self._colours < self._start + self._count))
        seeds[self._colours[at] - self._start, at] = 1
        return seeds

    def check(self, size: int) -> None:
        """Raise unless there are so many results as rows."""
        _check_size(size, self._rows)


_MOST_HELD = 1 << 25  # elements of groups that are kept for the next call
_MOST_BYTES = 1 << 28  # of what a program, or a sweep, of several colours needs, about


def _parts_of(colours: Colouring, shape: tuple[int, int], size: int, dtype: np.dtype[Any]) -> list[Part]:
    """Divide colours into parts; ``size`` is how many bytes the values of the function need."""
    parts, end = list[Part](), 0
    order = np.argsort(colours.places, kind="stable")
    places = colours.places[order]
    for pulls, of, count in ((False, colours.columns, colours.column_count), (True, colours.rows, colours.row_count)):
        length = shape[pulls]
        many = -(-count * size // _MOST_BYTES)  # parts
        step = -(-count // max(min(many, count), 1))
        for start in range(0, count, step or 1):
            part = Part(of, start, step, pulls=pulls, rows=shape[0], dtype=dtype)
            begin = end + start * length
            low, high = np.searchsorted(places, (begin, min(begin + step * length, end + count * length)))
            ascending = low + np.argsort(order[low:high])
            part.at, part.places = order[ascending], places[ascending] - begin
            parts.append(part)
        end += count * length
    return parts


def _swept(name: str, fun: Callable[..., Any], vector: Any, parts: Sequence[Part], args: tuple[Any, ...]) -> list[Any]:
    """Return the elements that each part gives, by native sweeps of all of its colours."""
    point, elements = Evaluation(name, fun, (vector, *args), 0, {}, has_aux=False), list[Tensor]()
    point.check_tensors(name)
    for part in parts:
        part.check(point.outputs[0].size)
        seeds = part.seeds()
        if part.pulls:
            swept = pulled(point.outputs, point.inputs, [constant_tensor(seeds)], batch=len(seeds), retain=True)
            (full,) = zeros_for(swept, point.inputs, (len(seeds),))
        else:
            swept = pushed(point.outputs, point.inputs, [constant_tensor(seeds)], batch=len(seeds))
            (full,) = zeros_for(swept, point.outputs, (len(seeds),))
        elements.append(full[tuple(map(constant_tensor, np.divmod(part.places, full.shape[1])))])
    results = [point.out([x], _LEAF) for x in elements]
    point.release()
    return point.finished(results)[1]  # type: ignore[no-any-return]


_LEAF = pytrees.flattened(0.0)[1]


def _recorded_pattern(name: str, fun: Callable[..., Any], vector: Any, args: tuple[Any, ...]) -> tuple[Any, int]:
    """Return where the derivative at a point may be other than zero, and how many bytes the values need.

    It is SciPy's csr_array of ones.
    """
    from scipy.sparse import csr_array

    array = np.array(vector._value if isinstance(vector, Tensor) else vector)
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
    size = sum(node.spec.bytes for node in recipe.nodes if node.base is None)
    return csr_array((np.ones(len(indices), np.int64), indices, indptr), shape=shape), size


def _assembled(pattern: Any, parts: Sequence[Part], swept: Sequence[Any]) -> Any:
    order = [part.at for part in parts]
    if any(isinstance(x, Tensor) for x in swept):
        places = np.argsort(np.concatenate(order))
        joined = views.cat(list(swept))[constant_tensor(places)]
        return CSR(joined, pattern.indices, pattern.indptr, pattern.shape)
    data = swept[0] if len(swept) == 1 else np.empty(pattern.nnz, swept[0].dtype if swept else np.float64)
    for at, values in zip(order, swept, strict=True) if len(swept) > 1 else ():
        data[at] = values
    matrix = copy(pattern)  # SciPy looks at indices again where it makes one
    matrix.data, matrix.indices, matrix.indptr = data, pattern.indices.copy(), pattern.indptr.copy()
    return matrix


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


class RowSums(NamedTuple):
    """Which rows are swept together; the last sum is of all rows with weights, by which the pattern is checked."""

    seeds: Array
    """The weights of rows in each sum, (colours + 1, n)."""
    pattern: Any
    """SciPy's csr_array."""
    places: Array
    """Of each element its place among the sums."""

    def matrix(self, sums: Array) -> Any:
        """Return SciPy's csr_array of the elements, from the sums (colours + 1, n)."""
        from scipy.sparse import csr_array

        pattern = self.pattern
        return csr_array((sums.reshape(-1)[self.places], pattern.indices, pattern.indptr), shape=pattern.shape)

    def holds(self, sums: Array) -> bool:
        """Whether the matrix has, but for rounding, the last sum: else there are elements outside the pattern."""
        weights, columns = self.seeds[-1], self.pattern.indices
        terms = sums.reshape(-1)[self.places] * np.repeat(weights, np.diff(self.pattern.indptr))
        n = len(weights)
        off = np.abs(np.bincount(columns, terms, n) - sums[-1])
        scale = np.bincount(columns, np.abs(terms), n)
        return bool(np.all(off <= _ROUNDING * np.finfo(sums.dtype).eps * scale))


class _Escapes(modes.Observer):
    """Notes whether values leave for Python, which may go another way by others."""

    any = False

    def note_escape(self, tensor: Any) -> None:
        self.any = True

    note_number = note_escape


def lasting_pattern(fun: Callable[..., Any], at: Array, *further: Array) -> Any:
    """Return the pattern, by a vector (n,), of the Jacobian of ``fun`` at a point; ``further`` are its other arguments.

    None where it is small, or dense, or where ``fun`` reads values in Python: by others it may depend on other things.
    """
    if len(at) <= _DENSE:
        return None
    reads = _Escapes()
    with modes.under(modes.current()._replace(grad=False, recorder=reads)):
        fun(*map(constant_tensor, (at, *further)))
    if reads.any:
        return None
    with modes.under(modes.current()._replace(recorder=None)):
        try:
            return jacobian(fun).pattern(at, *further)
        except (RuntimeError, ValueError):  # no program holds what fun does, or it is dense
            return None


def by_few_sums(pattern: Any) -> Colouring | None:
    """Return which rows of a square pattern are swept together; None where there are too many sums for that to pay."""
    colours = colouring(pattern, "rows")
    return colours if colours.count * _FEW <= pattern.shape[0] else None


def row_sums(fun: Callable[[Any], Any], at: Array) -> RowSums | None:
    """Return the sums that give the Jacobian of ``fun``, n results of a vector (n,), as its pattern at a point says.

    None where there is no pattern that lasts, or there are too many sums.
    """
    n, pattern = len(at), lasting_pattern(fun, at)
    colours = None if pattern is None else by_few_sums(pattern)
    if colours is None:
        return None
    weights = np.random.default_rng(n).uniform(0.5, 1.0, n)
    seeds = np.concatenate([colours.rows == np.arange(colours.count)[:, None], weights[None]])
    return RowSums(seeds.astype(at.dtype), pattern, colours.places)
