"""What every record of an operation has: names, documentation, arguments; SciPy's ufuncs, loaded when first used."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from kernels.foundation.locks import cached_property
from kernels.foundation.specs import Array
from kernels.foundation.tables import dataclass
from kernels.native.structs import PULLS
from kernels.rules.symbols import SPECIAL, DeclarationError, Rule, Symbol

# The record of an operation: one declaration, many readers. Its class is its kind, one file of kernels/kinds each.
#
# A rule is an expression in a fixed vocabulary: ``g`` (the cotangent of the result), ``y`` (the result), the inputs
# (``x``, or ``a, b``, or ``c, a, b``), and for reductions ``n`` (how many elements met in one result). It uses
# operators, NumPy ufuncs, ``np.where`` and :func:`kernels.rules.symbols.cut`, so that arrays can run it, symbols can
# print it and tensors can record it. What a rule reads decides what the tape keeps alive.

OPS: dict[str, Op] = {}
Flags = tuple[bool, ...]
"""Whether each input's gradient is wanted."""
Params = tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """What every record says about its operation, and what every interpreter may ask its kind.

    ``name`` is NumPy's name (PyTorch's where NumPy has none), ``torch`` PyTorch's other names, ``grad_fn`` the
    name of the backward node, ``function`` whether there is a public function of that name, beside the others.
    """

    name: str
    doc: str
    pullback: tuple[Rule | None, ...]
    torch: tuple[str, ...] = ()
    grad_fn: str
    function: bool = True

    inputs: ClassVar[tuple[str, ...]] = ()  # what rules call the operands
    extras: ClassVar[tuple[str, ...]] = ()  # what rules call the results that have no gradient
    tape_kind: ClassVar[int] = PULLS
    """How a sweep treats its instructions: PULLS to PYTHON of kernels/native/structs.py."""
    counts_ties: ClassVar[bool] = False  # whether ``n`` is an array of counts, and not one number
    nothing: ClassVar[float] = -0.0
    """What is added to a contribution that Python computed; 0.0 makes its -0.0, nothing, a gradient of zero."""
    contribution: ClassVar[str] = "{}"  # how the table of operations says where the gradient of a rule goes
    repeatable: ClassVar[bool] = False  # whether the tasks of a step depend on specs and parameters alone

    def __post_init__(self) -> None:
        if self.name in OPS:
            msg = f"{self.name}: declared twice; rename or remove one of the records"
            raise DeclarationError(msg)
        self.check()
        OPS[self.name] = self

    def check(self) -> None:
        """Raise DeclarationError, naming the record, where the declaration contradicts itself."""

    @property
    def differentiable(self) -> bool:
        """Whether an input has a pullback."""
        return any(rule is not None for rule in self.pullback)

    def form(self, specs: Any, spec: Any, wanted: Flags, params: Params = (), name: str = "") -> Any:
        """Return the instruction form for these specs (None: a number, or not wanted), perhaps with another name."""
        raise NotImplementedError(f"{self.name}: {type(self).__name__} makes no form from {specs}, {spec}, {params}")

    def reformed(self, form: Any, specs: Any, spec: Any) -> Any:
        """Return the form of the same instruction with other specs: of saved values that were copied."""
        return self.form(specs, spec, form.wanted, form.params, form.name)

    def lower(self, step: Any, lowering: Any) -> None:
        """Add the tasks of a step of a program: see :class:`kernels.kinds.form.Lowering`."""
        raise NotImplementedError(f"{self.name}: {type(self).__name__} has no tasks for {step} ({lowering})")

    def computation(self, sources: tuple[Any, ...], form: Any, params: Params) -> Any:
        """Return how native code repeats a call on operands of these specs (None: a number); None: Python repeats it.

        ``form`` describes the result, ``params`` are what recorders are notified of.
        """
        del sources, form, params

    def recomputed(self, form: Any, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result from those of its operands; None where that is not known."""
        del form, saved, values


# Rules call SciPy's solvers through functions that are ``dispatched``: on arrays they run as written, on tensors what
# is registered for them runs, and is recorded.

Function = TypeVar("Function", bound=Callable[..., Any])


def dispatched(function: Function) -> Function:
    """Let operands that are no arrays, but know ``__array_function__``, run a function instead."""

    @functools.wraps(function)
    def run(*operands: Any, **params: Any) -> Any:
        for x in operands:
            if not isinstance(x, np.ndarray) and hasattr(x, "__array_function__"):
                return x.__array_function__(run, (type(x),), operands, params)
        return function(*operands, **params)

    return run  # type: ignore[return-value]


def turned(x: Any) -> Any:
    """Return matrices with their last two axes exchanged."""
    n = x.ndim
    return np.transpose(x, (*range(n - 2), n - 1, n - 2))


# SciPy's ufuncs, imported when called, stand beside NumPy's in rules. Replays and printed pullbacks call their inner
# loops by address.


class LateUfunc:
    """A ufunc of ``scipy.special`` by name: importing SciPy takes longer than importing this library."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @cached_property
    def ufunc(self) -> np.ufunc:
        """The ufunc itself."""
        import scipy.special

        ufunc: np.ufunc = getattr(scipy.special, self.__name__)
        return ufunc

    def __call__(self, *operands: Any) -> Any:
        """Call it; of symbols it is an expression."""
        for x in operands:
            if isinstance(x, Symbol):
                return type(x)(SPECIAL + self.__name__, *operands)
        return self.ufunc(*operands)

    def __repr__(self) -> str:
        return f"<ufunc 'scipy.special.{self.__name__}'>"


class _Special:
    def __getattr__(self, name: str) -> LateUfunc:
        if name.startswith("_"):
            raise AttributeError(name)
        ufunc = self.__dict__[name] = LateUfunc(name)
        return ufunc


special = _Special()


def resolved(function: Any) -> Any:
    """Return a forward function as NumPy or SciPy has it: the ufunc behind a late one."""
    return function.ufunc if isinstance(function, LateUfunc) else function


def ufunc_of(head: str) -> np.ufunc:
    """Return the ufunc that the head of an expression names."""
    owner, name = (special, head.removeprefix(SPECIAL)) if head.startswith(SPECIAL) else (np, head)
    ufunc: np.ufunc = resolved(getattr(owner, name))
    return ufunc


# What the rules of sorts and selections are made of. Tensors run both their own way, so that gradients of gradients are
# recorded.


@dispatched
def picked(x: Any, places: Array, dim: int) -> Any:
    """Return the elements of x at places along a dim; both have the same rank."""
    return np.take_along_axis(x, places, dim)


@dispatched
def placed(g: Any, places: Array, dim: int, length: int) -> Any:
    """Return ``length`` elements along a dim: g, added, at its places, and nothing (-0.0) elsewhere."""
    target = _nothing(g, dim, length)
    np.add.at(target, keys(places, dim), g)
    return target


@dispatched
def put(g: Any, places: Array, dim: int, length: int) -> Any:
    """Return the same as :func:`placed` where no place comes twice, which is faster."""
    target = _nothing(g, dim, length)
    np.put_along_axis(target, places, g, dim)
    return target


def _nothing(g: Array, dim: int, length: int) -> Array:
    return np.full((*g.shape[:dim], length, *g.shape[dim + 1 :]), -0.0, g.dtype)


def keys(places: Array, dim: int) -> tuple[Array, ...]:
    """Return the index by arrays that picks places along a dim."""
    grid = np.ogrid[tuple(slice(n) for n in places.shape)]
    return (*grid[:dim], places, *grid[dim + 1 :])


def narrow(y: Any, dims: tuple[int, ...], *, keepdim: bool) -> Any:
    """Return what a reduction over dims gave, with a dim of length one for each of them, without these unless kept."""
    return y if keepdim else y[tuple(0 if i in dims else slice(None) for i in range(len(y.shape)))]


def wide(y: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Return what a reduction of x over dims gave, with a dim of length one for each of them."""
    return np.reshape(y, tuple(1 if i in dims else n for i, n in enumerate(x.shape)))
