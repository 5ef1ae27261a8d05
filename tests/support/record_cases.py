"""Cases made from the records alone, and the checks that each of them passes.

A case is a function that tensors and complex NumPy arrays can both run, with leaves for it. A new
record gets its cases here without a change, as long as its type, domains and parameters are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tape.sparse  # operations of our own have functions for tensors once their module is there
from kernels.kinds.elementwise import Contraction, Elementwise, Reduction, Select
from kernels.kinds.routine import Guard, LoopAgain, LoopBegin, LoopEnd, Routine
from kernels.kinds.views import Copy, Gather, Join, View, Write
from kernels.operations import OPS, pointwise
from kernels.rules.op import Op
from kernels.sweeps import reverse
from tape.operations import matmul
from tape.recording import foreign_calls, promotion, record
from tests.support import matrix_domains

Array = np.ndarray[Any, Any]
STEP = 1e-30
POINTS = 20
USUAL = (POINTS,), (9, 8), (2, 1, 3)

KINKED = {"absolute", "sign", "maximum", "minimum", "rgamma"}
"""Ufuncs that complex numbers run otherwise, or not analytically; others have no loop for them at all."""


@dataclass(frozen=True)
class Case:
    """``call`` on tensors is checked against ``reference`` on arrays, at leaves of these shapes."""

    name: str
    call: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    domains: tuple[str, ...]
    views: tuple[Callable[[Any], Any], ...]
    analytic: bool
    differentiable: bool = True
    quick: bool = False
    """Whether this is the one case of its record that every run takes."""

    @property
    def single(self) -> bool:
        """Whether float32 runs this case too: each kernel takes a tenth of a second to compile."""
        return self.shapes[0] in ((POINTS,), (6, 9), (2, 1, 3))

    @property
    def replayed(self) -> bool:
        """Whether a program is made of this case: not of those that differ in little from others."""
        return not self.name.endswith(("-one", "-left"))

    def leaves(self, dtype: type, seed: int = 0) -> list[Array]:
        """Return random points of the domains."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        return [draw(rng, d, s, dtype) for d, s in zip(self.domains, self.shapes, strict=True)]

    def run(self, *leaves: Any) -> Any:
        return self.call(*(view(x) for view, x in zip(self.views, leaves, strict=True)))

    def expected(self, *leaves: Array) -> Array:
        with np.errstate(all="ignore"):
            views = (view(x) for view, x in zip(self.views, leaves, strict=True))
            return np.asarray(self.reference(*views))


def draw(rng: np.random.Generator, domain: str, shape: tuple[int, ...], dtype: type) -> Array:
    """Return random points of a domain, none close to a border or to one another's ties."""
    if domain in matrix_domains.DOMAINS:
        found = matrix_domains.DOMAINS[domain](rng, shape)
        return found.astype(dtype) if found.dtype.kind == "f" else found
    size = rng.uniform(0.2, 3.0, shape)
    sign = rng.choice([-1.0, 1.0], shape)
    points = {
        "real": sign * size,
        "nonzero": sign * size,
        "positive": size,
        "boolean": sign > 0,
        "integer": size // 0.5,
        "unit": sign * size / 3.2,
        "fraction": size / 3.2,
        "above": 1 + size,
        "low": -size / 2,
        "high": size / 2,
        "apart": np.floor(sign * size) + 0.2 + 0.2 * (size - size // 1),
    }[domain]
    return np.asarray(points).astype(DTYPES.get(domain, dtype))


DTYPES: dict[str, Any] = {"boolean": bool, "integer": np.int64}
"""Of domains that are not floating."""


def placed(points: Array, domain: str) -> Array:
    """Return special points as a domain has them: truth of booleans, small integers."""
    if domain not in DTYPES:
        return points
    return points != 0 if domain == "boolean" else np.clip(np.nan_to_num(points), 0, 3).astype(DTYPES[domain])


def same(x: Any) -> Any:
    return x


def strided(x: Any) -> Any:
    return x[::2, 1::2]


def turned(x: Any) -> Any:
    return x.T


# Shapes of leaves and the view of each that becomes an operand, for one, two and three operands.
LAYOUTS: dict[str, list[tuple[tuple[int, ...], Callable[[Any], Any]]]] = {
    "0-d": [((), same)] * 3,
    "one": [((1,), same)] * 3,
    "points": [((POINTS,), same)] * 3,
    "outer": [((3, 1), same), ((1, 4), same), ((4,), same)],
    "left": [((3, 4), same), ((), same), ((3, 4), same)],
    "views": [((6, 9), strided), ((4, 3), turned), ((3, 4), same)],
    "empty": [((0, 3), same), ((1, 3), same), ((), same)],
}
SINGLE = ("0-d", "one", "points", "views", "empty")
FEW = ("0-d", "points")
"""For the tables that differ from the first in their expressions alone."""


def used_ufuncs(function: Callable[..., Any], count: int) -> set[np.ufunc]:
    """Return the ufuncs that a forward expression runs."""
    found: set[np.ufunc] = set()

    class Spy(np.lib.mixins.NDArrayOperatorsMixin):
        def __array_ufunc__(self, ufunc: np.ufunc, *_: Any, **__: Any) -> Spy:
            found.add(ufunc)
            return self

        def __array_function__(self, *_: Any) -> Spy:
            return self

    function(*(Spy() for _ in range(count)))
    return found


def is_analytic(op: Elementwise) -> bool:
    """Whether complex numbers can run the forward expression, and take its derivative."""
    used = used_ufuncs(op.forward, len(op.inputs))
    complexes = (any("D" * ufunc.nin + "->" in kind for kind in ufunc.types) for ufunc in used)
    return all(complexes) and not KINKED & {ufunc.__name__ for ufunc in used}


def completed(op: Elementwise, given: Sequence[Any]) -> list[Any]:
    """Return all operands: these, and Python numbers, of the dtype of arrays, where an operation takes no tensors."""
    number = given[0].dtype.type if isinstance(given[0], np.ndarray) else float
    own, numbers = iter(given), map(number, (2.0, 1.75, -2.5))
    return [next(numbers) if d == "constant" else next(own) for d in op.domain]


def elementwise_cases(op: Elementwise) -> Iterator[Case]:
    """Yield a case for each layout; an operation with a static number, for several numbers."""
    if any(other.scalar == op.name for other in OPS.values() if isinstance(other, Elementwise)):
        yield from _number_cases(op)
        return
    domains = tuple(d for d in op.domain if d != "constant")
    count = len(domains)
    analytic = is_analytic(op)
    forward = op.forward if analytic else op.ufunc or op.forward
    for name, layout in LAYOUTS.items():
        if name in (FEW if op.forward.__module__ != pointwise.__name__ else SINGLE if count == 1 else LAYOUTS):
            shapes, views = zip(*layout[:count], strict=True)
            yield Case(
                f"{op.name}-{name}",
                lambda *xs: promotion.run_with_promotion(op, *completed(op, xs)),
                lambda *xs: forward(*completed(op, xs)),
                shapes,
                domains,
                views,
                analytic,
                op.differentiable,
            )


def _number_cases(op: Elementwise) -> Iterator[Case]:
    (parent,) = (o for o in OPS.values() if isinstance(o, Elementwise) and o.scalar == op.name)
    for p in dict.fromkeys([*op.variants, 0.0, 3.0, 4.0, 5.0, 1.75, -0.5, -2.0]):
        for name in ("points", *(("0-d", "views", "empty") if p == 1.75 else ())):
            shape, view = LAYOUTS[name][0]
            yield Case(
                f"{op.name}-{p}-{name}",
                lambda x, p=p: promotion.elementwise(parent, x, p),
                lambda x, p=p: op.forward(x, p),
                (shape,),
                op.domain,
                (view,),
                analytic=True,
            )


REDUCED = [
    ((), same, (), False), ((1,), same, (0,), False), ((POINTS,), same, (0,), False),
    ((2, 3, 4), same, (0, 1, 2), False), ((2, 3, 4), same, (1,), True), ((2, 3, 4), same, (0, 2), False),
    ((6, 9), strided, (0,), False), ((4, 3), turned, (1,), False), ((0, 3), same, (1,), False),
]  # fmt: skip


def reduction_cases(op: Reduction) -> Iterator[Case]:
    for shape, view, axes, keep in REDUCED:

        def reference(x: Array, axes: Any = axes, keep: bool = keep) -> Any:
            result = op.ufunc.reduce(x, axis=axes, keepdims=keep)
            with np.errstate(all="ignore"):
                return result / float(np.prod([x.shape[a] for a in axes])) if op.scale else result

        yield Case(
            f"{op.name}-{shape}-{view.__name__}-{axes}{'-keep' * keep}",
            lambda x, axes=axes, keep=keep: promotion.reduction(op, x, axes, keep),
            reference,
            (shape,),
            ("real",),
            (view,),
            analytic=True,  # complex numbers are ordered by their real parts first
        )


def select_cases(op: Select) -> Iterator[Case]:
    for shape, view, axes, keep in REDUCED:
        if len(axes) == 1:

            def reference(x: Array, axis: int = axes[0], keep: bool = keep) -> Any:
                at = np.asarray(op.locate(x.real, axis=axis, keepdims=True))
                found = np.take_along_axis(x, at, axis)
                return found if keep else found.squeeze(axis)

            yield Case(
                f"{op.name}-{shape}-{view.__name__}-{axes}{'-keep' * keep}",
                lambda x, axis=axes[0], keep=keep: promotion.select(op, x, axis, keep)[0],
                reference,
                (shape,),
                ("real",),
                (view,),
                analytic=True,
            )


def contraction_cases(op: Contraction) -> Iterator[Case]:
    ((left, right),) = op.ranks
    layouts = {
        "plain": ((2, 3)[-left:], (3, 4)[:right], same, same),
        "one": ((1, 1)[:left], (1, 1)[:right], same, same),
        "wide": ((9, 8)[-left:], (8, 7)[:right], same, same),
        "turned": ((3, 2)[:left], (4, 3)[-right:], turned, turned),
        "strided": ((6, 9), (8, 9), strided, strided),
        "nothing": ((2, 0)[-left:], (0, 4)[:right], same, same),
    }
    for name, (a, b, view_a, view_b) in layouts.items():
        if name == "strided" and (left, right) != (2, 2):
            continue
        yield Case(
            f"{op.name}-{name}",
            matmul.matmul,
            np.matmul,
            (a, b),
            ("real", "real"),
            (view_a, view_b),
            analytic=True,
        )


PARAMETERS: list[tuple[Any, ...]] = [
    (), ((2, 0, 1),), ((0, 1, 2),), ((1, 0),), ((0,),), ((6,),), ((1, 6),), ((2, 3),), ((2, 3, 4),),
    ((slice(1, None), 0, slice(None, None, 2)),), ((1, ..., slice(1, 3)),), ((..., -1),), (0, 2), (1,),
    ((None, ..., None),), ((slice(0, 0),),), ((2, 2), (2, 1), 1),
    ((3,), (0,), 2), ((1, -2, -1),), ((-1, 2, 1),), ((-2,),),
]  # fmt: skip
"""Parameters of views: a record is tried with each, and tested with those that it takes."""


def view_cases(op: View) -> Iterator[Case]:
    taken = 0
    tried = itertools.product([(2, 1, 3), (2, 3), (6,), (3, 1), ()], PARAMETERS)
    for shape, params in tried:
        source = np.zeros(shape)
        try:
            result = op.apply(source, *params)
        except (ValueError, TypeError, IndexError):
            continue
        if not isinstance(result, np.ndarray) or (result.size and not np.may_share_memory(result, source)):
            continue
        taken += 1
        yield Case(
            f"{op.name}-{shape}-{params}",
            lambda x, params=params: record.view(op, x, params, ("case", repr(params))) * 1.5,
            lambda x, params=params: op.apply(x, *params) * 1.5,
            (shape,),
            ("real",),
            (same,),
            analytic=True,
        )
    assert taken, f"no parameters for the view {op.name}: add some"


def join_cases(op: Join) -> Iterator[Case]:
    public = getattr(tape, op.name)
    for axis, view in ((0, same), (1, same), (-1, same), (1, turned), (0, strided)):
        shape = (4, 3) if view is turned else (6, 9) if view is strided else (2, 3)
        yield Case(
            f"{op.name}-{axis}-{view.__name__}",
            lambda *xs, axis=axis: public(xs, axis),
            lambda *xs, axis=axis: op.join(xs, axis=axis),
            (shape,) * 3,
            ("real",) * 3,
            (view,) * 3,
            analytic=True,
        )
    yield Case(f"{op.name}-empty", lambda *xs: public(xs), lambda *xs: op.join(xs), ((0,),) * 2,
               ("real",) * 2, (same,) * 2, analytic=True)  # fmt: skip


def copy_cases(op: Copy) -> Iterator[Case]:
    for name in SINGLE:
        shape, view = LAYOUTS[name][0]
        yield Case(
            f"{op.name}-{name}",
            lambda x: record.to_dtype(x, x.dtype, op),
            lambda x: np.array(x, order="C"),
            (shape,),
            ("real",),
            (view,),
            analytic=True,
        )


KEYS: dict[str, tuple[tuple[int, ...], Any]] = {
    "ints": ((5,), [3, 0, -1]),
    "mask": ((2, 3), np.array([[True, False, True], [False, True, False]])),
    "rows": ((4, 3), [2, 0]),
    "pairs": ((4, 3), ([0, 3, 1], [2, 2, 0])),
    "mixed": ((3, 4, 2), (slice(1, None), [3, 0], None, 1)),
    "apart": ((3, 4, 2), ([0, 2], slice(None), [1, 0])),
    "broadcast": ((4, 3), ([[0], [2]], [1, 2])),
    "nothing": ((4, 3), np.zeros(4, bool)),
    "again": ((4, 3), [1, 1, 3, 1]),
}
"""Indices by arrays: a shape and a key of it; the last picks an element more than once."""


def gather_cases(op: Gather) -> Iterator[Case]:
    del op
    for name, (shape, key) in KEYS.items():
        for view in (same, turned) if len(shape) == 2 and name != "mask" else (same,):
            yield Case(
                f"index-{name}-{view.__name__}",
                lambda x, key=key: x[key] * 1.5,
                lambda x, key=key: x[key] * 1.5,
                (shape if view is same else shape[::-1],),
                ("real",),
                (view,),
                analytic=True,
            )


def write_cases(op: Write) -> Iterator[Case]:
    """Write into a computed tensor, whole and through a view, and use what stands before and after."""

    def run(x: Any, v: Any, key: Any, within: Any) -> Any:
        y = x * 1.5
        before = y * y
        part = y if within is None else y[within]
        if not op.adds:
            part[key] = v
        elif isinstance(y, np.ndarray):
            np.add.at(part, key, v)
        else:
            part.index_put_(key if isinstance(key, tuple) else (key,), v, accumulate=True)
        return y * y + before

    keys = (
        dict(KEYS) if op.adds else {**KEYS, "slice": ((5,), slice(1, 4)), "all": ((2, 3), ...), "one": ((2, 3), (1, 2))}
    )
    for name, (shape, key) in keys.items():
        if op.adds and name in ("mixed", "apart"):
            continue
        for within in (None, slice(1, None)) if name == "rows" else (None,):
            full = (shape[0] + 1, *shape[1:]) if within else shape
            yield Case(
                f"{op.name}-{name}-{within}",
                lambda x, v, key=key, within=within: run(x, v, key, within),
                lambda x, v, key=key, within=within: run(x, v, key, within),
                (full, np.zeros(shape)[key].shape),
                ("real", "real"),
                (same, same),
                analytic=True,
            )


def routine_cases(op: Routine) -> Iterator[Case]:
    """Each sample; several results are put end to end."""
    for k, (shapes, params) in enumerate(op.samples):

        def run(*xs: Any, params: Any = params) -> Any:
            found = foreign_calls.call(op, *xs, **params)
            if not isinstance(found, tuple):
                return found
            own = found[: len(op.results)]
            return own[0] if len(own) == 1 else tape.cat([x.reshape(-1) for x in own])

        def reference(*xs: Any, params: Any = params) -> Any:
            found = op.forward(*xs, **params)
            own = found[: len(op.results)] if isinstance(found, tuple) else (found,)
            return own[0] if len(own) == 1 else np.concatenate([x.reshape(-1) for x in own])

        domains = op.domain * len(shapes) if len(op.domain) == 1 else op.domain
        yield Case(
            f"{op.name}-{k}",
            run,
            reference,
            shapes,
            domains,
            tuple(matrix_domains.VIEWS.get(d, same) for d in domains),
            analytic=False,
            differentiable=op.differentiable,
        )


KINDS: dict[type[Op], Callable[[Any], Iterator[Case]]] = {
    Elementwise: elementwise_cases,
    Reduction: reduction_cases,
    Select: select_cases,
    Contraction: contraction_cases,
    View: view_cases,
    Join: join_cases,
    Copy: copy_cases,
    Gather: gather_cases,
    Guard: lambda _: iter(()),  # in programs only: tests/compiled
    LoopBegin: lambda _: iter(()),
    LoopAgain: lambda _: iter(()),
    LoopEnd: lambda _: iter(()),
    Write: write_cases,
    Routine: routine_cases,
}


def cases_of(op: Op) -> list[Case]:
    """Return the cases of a record; quick is the first of a usual shape, or the first of all."""
    cases = list(KINDS[type(op)](op))
    quick = min(cases, key=lambda case: case.shapes[0] not in USUAL, default=None)
    return [replace(case, quick=case is quick) for case in cases]


def replayed_case(op: Op) -> Case | None:
    """Return a case of which a program is made: the quick one if it is, whose kernels other tests compile, too."""
    return min((case for case in cases_of(op) if case.replayed), key=lambda case: not case.quick, default=None)


def params(cases: Sequence[Case], *marks: pytest.MarkDecorator) -> list[Any]:
    """Return the parameters of a test that needs one case of each record, with these marks; the rest is exhaustive."""
    return [pytest.param(c, id=c.name, marks=marks if c.quick else pytest.mark.exhaustive) for c in cases]


def tensors(leaves: list[Array]) -> list[Any]:
    """Return leaves that require grad where they are floating; conditions do not."""
    return [tape.tensor(x, requires_grad=x.dtype.kind == "f") for x in leaves]


def bits(x: Any) -> tuple[Any, ...]:
    """Return what two equal results share to the last bit; one nan is as good as another."""
    array = np.array(x.detach().numpy() if isinstance(x, tape.Tensor) else x)
    array = np.where(array != array, np.nan, array).astype(array.dtype)  # noqa: PLR0124 (nan, of any dtype)
    return array.dtype.str, array.shape, array.tobytes()


def weights_of(case: Case, dtype: type) -> Array:
    """Return a cotangent without special values for the result."""
    shape = case.expected(*case.leaves(dtype)).shape
    return np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(dtype)


def check_value(case: Case, dtype: type) -> None:
    """The value is NumPy's, in NumPy's dtype, whether gradients are wanted or not."""
    leaves = case.leaves(dtype)
    expected = case.expected(*leaves)
    result = case.run(*tensors(leaves))
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    rtol = 1e-14 if dtype is np.float64 else 1e-6
    np.testing.assert_allclose(result.detach().numpy(), expected, rtol=rtol, atol=rtol / 10)
    with tape.no_grad():
        assert bits(case.run(*tensors(leaves))) == bits(result)
    assert result.requires_grad == case.differentiable


def check_gradient(case: Case, dtype: type) -> None:
    """The gradient is that of complex steps, or of central differences where there is a kink."""
    leaves, weights = case.leaves(dtype), weights_of(case, dtype)
    inputs = tensors(leaves)
    case.run(*inputs).backward(tape.tensor(weights))
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in leaves]
    for i, x in enumerate(inputs):
        if not x.requires_grad:
            assert x.grad is None
            continue
        expected = difference(case, wide, weights, i)
        assert x.grad.dtype == dtype
        assert x.grad.shape == expected.shape
        rtol = 1e-5 if dtype is np.float32 else 1e-12 if case.analytic else 1e-6
        scale = np.abs(expected).max(initial=0)
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=rtol, atol=rtol * scale / 10)


def check_second_gradient(case: Case, dtype: type) -> None:
    """The gradient of the gradient, in a direction, is the difference of gradients along it."""
    leaves, weights = case.leaves(dtype), weights_of(case, dtype)
    inputs = tensors(leaves)
    wanted = [x for x in inputs if x.requires_grad]
    result = case.run(*inputs)
    first = tape.autograd.grad(result, wanted, tape.tensor(weights), create_graph=True)
    plainly = tape.autograd.grad(result, wanted, tape.tensor(weights), retain_graph=True)
    for recorded, native in zip(first, plainly, strict=True):
        assert recorded.dtype == native.dtype
        np.testing.assert_allclose(
            recorded.detach().numpy(), native.numpy(), rtol=1e-12 if dtype is np.float64 else 1e-5
        )
    directions = [np.random.default_rng(2).uniform(-1, 1, x.shape) for x in wanted]
    slope = sum((g * tape.tensor(d.astype(dtype))).sum() for g, d in zip(first, directions, strict=True))
    if not slope.requires_grad:
        second = [np.zeros(x.shape) for x in wanted]
    else:
        found = tape.autograd.grad(slope, wanted, materialize_grads=True)
        second = [g.numpy() for g in found]
    if dtype is np.float64:
        for got, expected in zip(second, _along(case, leaves, weights, directions), strict=True):
            scale = max(np.abs(expected).max(initial=0), 1)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6 * scale)


def _along(case: Case, leaves: list[Array], weights: Array, directions: list[Array]) -> list[Array]:
    """Return the central difference, along directions, of the gradients of the weighted sum."""
    ends = []
    for step in (STEPS, -STEPS):
        own = iter(directions)
        moved = [x + step * next(own) if x.dtype.kind == "f" else x for x in leaves]
        inputs = tensors(moved)
        result = case.run(*inputs)
        ends.append(tape.autograd.grad(result, [x for x in inputs if x.requires_grad], tape.tensor(weights)))
    return [(a.numpy() - b.numpy()) / (2 * STEPS) for a, b in zip(*ends, strict=True)]


STEPS = 1e-6


def difference(case: Case, leaves: list[Array], weights: Array, i: int) -> Array:
    """Return the derivative of the weighted sum of the results by each element of leaf ``i``."""
    gradient = np.zeros(leaves[i].shape)
    for at in np.ndindex(leaves[i].shape):
        if case.analytic:
            moved = [x.astype(complex) if x.dtype.kind == "f" else x for x in leaves]
            moved[i][at] += 1j * STEP
            gradient[at] = (case.expected(*moved) * weights).sum().imag / STEP
        else:
            ends = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in leaves]
                moved[i][at] += step
                ends.append((case.expected(*moved) * weights).sum())
            gradient[at] = (ends[0] - ends[1]) / 2e-6
    return gradient


def check_replay(case: Case, dtype: type) -> None:
    """A program on new inputs gives what a fresh recording gives, bit for bit."""
    old, new = case.leaves(dtype), case.leaves(dtype, seed=1)
    program = tape.record(case.run, *old)
    for leaves in (new, old):
        assert bits(program(*tensors(leaves))) == bits(case.run(*tensors(leaves)))
    if not case.differentiable:
        return
    weights = tape.tensor(weights_of(case, dtype))

    def loss(*leaves: Any) -> Any:
        return (case.run(*leaves) * weights).sum()

    value, gradients = tape.record(loss, *old).value_and_grad(*tensors(new))
    inputs = tensors(new)
    fresh = loss(*inputs)
    fresh.backward()
    assert bits(value) == bits(fresh)
    wanted = [x.grad for x in inputs if x.requires_grad]
    if reverse.NATIVE:
        assert list(map(bits, gradients)) == list(map(bits, wanted))
    else:
        agree_but_for_rounding(gradients, wanted)


def agree_but_for_rounding(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Check gradients of a program, which are the kernels', against those of a plain sweep, which NumPy rounds."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        a, b = one.detach().numpy(), other.detach().numpy()
        assert a.dtype == b.dtype
        most = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=64 * np.finfo(b.dtype).eps, atol=16 * np.finfo(b.dtype).eps * most)


def check_everything(op: Op, dtype: type = np.float64) -> None:
    """Run all checks on all cases of a record."""
    for case in cases_of(op):
        check_value(case, dtype)
        check_replay(case, dtype)
        if case.differentiable:
            check_gradient(case, dtype)
