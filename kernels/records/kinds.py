"""The record types: one declaration per operation, many readers.

A rule is an expression in a fixed vocabulary: ``g`` (the cotangent of the result), ``y`` (the result), the
inputs (``x``, or ``a, b``, or ``c, a, b``), and for reductions ``n`` (how many elements met in one result).
It uses operators, NumPy ufuncs, ``np.where`` and :func:`cut`, so that arrays can run it, symbols can print
it and tensors can record it. What a rule mentions decides what the tape keeps alive.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from kernels.foundation.data_classes import dataclass
from kernels.records.rule_text import DeclarationError, Rule, asked, names_read
from kernels.records.symbols import Symbol, parameters_of

OPS: dict[str, Op] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """What every record says about its operation.

    ``name`` is NumPy's name (PyTorch's where NumPy has none), ``torch`` PyTorch's other names, ``grad_fn`` the
    name of the backward node, ``function`` whether there is a public function of that name, beside the others.
    """

    name: str
    doc: str
    pullback: tuple[Rule | None, ...]
    torch: tuple[str, ...] = ()
    grad_fn: str
    function: bool = True

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Op):
    """An operation on each element, with broadcasting; NumPy's ufunc of that name is the forward.

    ``exact`` says that IEEE 754 rounds the forward expression correctly, so that a printed kernel agrees with
    NumPy in every bit; the others replay through NumPy's own loops. ``operator`` is Python's symbol.
    ``reversed_grad_fn`` is the node's name where a Python number comes first, ``number_grad_fn`` where one comes last.
    ``condition``: the first input is a boolean mask. ``identity``: the result is the operand itself. ``scaled``:
    PyTorch's ``alpha`` multiplies the second. ``arguments``: what the operands are called where it is not PyTorch's
    usual ``input`` and ``other``.
    ``scalar`` names the record that serves a Python number as the second operand; there the number is the
    static parameter ``p`` of forward and rules, and ``variants`` has what computes some p: a ufunc, or a
    function made of ufuncs.
    ``ufunc`` is given where it is not NumPy's of that name: another, or one of ``scipy.special``; ``composed`` says
    that there is none, and the forward expression runs as it stands, ufunc by ufunc. ``vector``: large results are
    computed by our own kernel, to 2 ulp (kernels/vectormath.py).
    """

    forward: Rule
    domain: tuple[str, ...]
    operator: str = ""
    reversed_grad_fn: str = ""
    number_grad_fn: str = ""
    condition: bool = False
    identity: bool = False
    scaled: bool = False
    arguments: tuple[str, ...] = ()
    exact: bool = False
    scalar: str = ""
    composed: bool = False
    vector: bool = False
    variants: dict[float, Callable[[Any], Any]] = field(default_factory=dict)
    ufunc: Any = None
    inputs: tuple[str, ...] = field(init=False)
    reads: tuple[frozenset[str], ...] = field(init=False)

    def check(self) -> None:
        """Read the rules: their inputs, their ufunc and what they mention."""
        inputs = tuple(n for n in parameters_of(self.forward) if n != "p")
        object.__setattr__(self, "inputs", inputs)
        if self.ufunc is None:
            found = self.forward if self.composed else getattr(np, self.name, None)
            object.__setattr__(self, "ufunc", found)
        if self.ufunc is None:
            msg = f"{self.name}: NumPy has no function of this name; use NumPy's name, or say composed=True"
            raise DeclarationError(msg)
        for what in ("pullback", "domain"):
            given = len(getattr(self, what))
            if given != len(inputs):
                msg = f"{self.name}: {given} entries in {what} for {len(inputs)} inputs; give one per input"
                raise DeclarationError(msg)
        object.__setattr__(self, "reads", names_read(self.name, self.pullback, ("g", "y", "p", *inputs)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduction(Op):
    """A reduction over axes: ``ufunc.reduce`` forward, an elementwise pullback over the input's space.

    ``ufunc`` may be anything that reduces as a ufunc does.

    ``dims_grad_fn`` is the node's name where dims were given. ``scale`` divides the reduced value by ``n``.
    ``selects``: one element of many gives the result; the pullback then knows ``n`` as the number that tie.
    """

    ufunc: Any
    dims_grad_fn: str = ""
    scale: bool = False
    selects: bool = False
    reads: tuple[frozenset[str], ...] = field(init=False)

    def check(self) -> None:
        """Read what the rule mentions."""
        object.__setattr__(self, "reads", names_read(self.name, self.pullback, ("g", "y", "x", "n")))


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Op):
    """One element along an axis, with its index: values and the int64 positions, first of equals."""

    locate: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Contraction(Op):
    """A matrix product of one- and two-dimensional operands; both pullbacks are matrix products."""

    ranks: tuple[tuple[int, int], ...]
    pullback: tuple[Rule | None, ...] = (lambda g, b: g @ b.T, lambda g, a: a.T @ g)


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Op):
    """The same memory under another shape: ``apply(array, *params)`` is the view, of values and gradients."""

    apply: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Op):
    """Elements picked by index arrays, copied; the same element may be picked more than once."""

    pullback: tuple[Rule | None, ...] = (lambda g: g,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(Op):
    """Values written into part of a tensor's memory: the base tensor's next version.

    What gradient stands in the gradient buffer there goes to the values and is taken away; with ``adds`` the values
    were added to what stood there, and the gradient buffer keeps its gradient.
    """

    adds: bool = False
    pullback: tuple[Rule | None, ...] = (lambda g: g, lambda g: g)


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Op):
    """Operands copied side by side along an axis."""

    join: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Op):
    """The same values in new memory, of this or another dtype."""

    pullback: tuple[Rule | None, ...] = (lambda g: g,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Part(View):
    """One of several results of a routine, which stand end to end in one array. No record of the tables."""

    def __post_init__(self) -> None:
        """Register nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Routine(Op):
    """An operation of NumPy's or SciPy's on whole arrays: a scan, a sort, a decomposition, a solve.

    ``forward(a, b, *, param)`` takes arrays of one floating dtype, then static parameters by keyword. It returns an
    array for each name of ``results``, in that dtype, and of ``extras``, integers or bools without a gradient.
    ``vjp`` returns the gradient of each input, a tuple if there are several, None for nothing. By its parameters it
    asks for what it needs: the cotangent ``g`` (``g_q, g_r`` of several results), inputs, results, extras, static
    parameters, and ``needs``, whether each input's gradient is wanted. ``jvp`` returns the tangents of the results,
    from ``t`` (``t_a, t_b`` of several inputs) and the rest likewise. Both are made of operators and NumPy's
    functions, so that arrays and tensors can run them. ``samples`` are pairs of the inputs' shapes and the parameters,
    for the tests; ``domain`` says what the inputs are made of. With ``cuts`` an element that the vjp leaves at -0.0
    gets nothing; elsewhere zeros become +0.0, as those of every other record. ``native(source, spec, **params)``
    returns a pullback in native code for operands that suit one (kernels/codegen/rows/row_pulls.py), else None;
    ``rows(shape, dtype, **params)`` what computes the results of one operand in the place of ``forward``
    (kernels/codegen/rows/row_values.py).
    """

    forward: Rule
    vjp: Rule | None
    jvp: Rule | None = None
    results: tuple[str, ...] = ("y",)
    extras: tuple[str, ...] = ()
    cuts: bool = False
    native: Callable[..., Any] | None = None
    rows: Callable[..., Any] | None = None
    samples: tuple[tuple[tuple[tuple[int, ...], ...], dict[str, Any]], ...]
    domain: tuple[str, ...] = ("real",)
    pullback: tuple[Rule | None, ...] = ()
    inputs: tuple[str, ...] = field(init=False)
    params: tuple[str, ...] = field(init=False)
    part: View = field(init=False)
    kept: tuple[str, ...] = field(init=False)
    """What the tape keeps for the rules: inputs, the results as ``y``, extras."""

    def check(self) -> None:
        """Read the names of inputs and static parameters, and check what the rules ask for."""
        given = inspect.signature(self.forward).parameters.values()
        inputs = tuple(p.name for p in given if p.kind is not p.KEYWORD_ONLY)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "params", tuple(p.name for p in given if p.kind is p.KEYWORD_ONLY))
        part = Part(name=self.name, doc=self.doc, grad_fn=self.grad_fn, apply=strided, function=False)
        object.__setattr__(self, "part", part)
        object.__setattr__(self, "kept", self._kept())
        known = {*inputs, *self.params, *self.results, *self.extras, "needs"}
        for rule, own in ((self.vjp, self.cotangents), (self.jvp, self.tangents)):
            unknown = set() if rule is None else asked(rule) - known - set(own)
            if unknown:
                msg = f"{self.name}: a rule asks for {sorted(unknown)}; known are {', '.join(sorted({*known, *own}))}"
                raise DeclarationError(msg)

    def _kept(self) -> tuple[str, ...]:
        names = frozenset[str]().union(*(asked(rule) for rule in (self.vjp, self.jvp) if rule is not None))
        results = ("y",) if names.intersection(self.results) else ()
        return (*(n for n in self.inputs if n in names), *results, *(n for n in self.extras if n in names))

    @property
    def differentiable(self) -> bool:
        """Whether there is a rule for gradients."""
        return self.vjp is not None

    @property
    def cotangents(self) -> tuple[str, ...]:
        """What the rule calls the cotangent of each result."""
        return ("g",) if len(self.results) == 1 else tuple(f"g_{name}" for name in self.results)

    @property
    def tangents(self) -> tuple[str, ...]:
        """What the rule calls the tangent of each input."""
        return ("t",) if len(self.inputs) == 1 else tuple(f"t_{name}" for name in self.inputs)


def strided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Return a view of the elements in order; shape, strides and offset count elements."""
    ends = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = offset + sum(min(e, 0) for e in ends), offset + sum(max(e, 0) for e in ends)
    if offset < 0 or (0 not in shape and not 0 <= low <= high < x.size):
        raise ValueError(f"as_strided: shape {shape}, strides {strides}, offset {offset} leave {x.size} elements")
    if type(x) is np.ndarray and x.flags.c_contiguous and x.size and 0 not in shape:
        # Of the array's memory itself: whose it is tells writes what they need not look for.
        return np.ndarray(shape, x.dtype, x, offset * x.itemsize, [s * x.itemsize for s in strides])
    flat = x.reshape(-1, copy=False)[offset:]
    return np.lib.stride_tricks.as_strided(flat, shape, [s * flat.strides[0] for s in strides])


def cut(where: Any, value: Any) -> Any:
    """Contribute ``value``, and nothing at all where the condition holds: not 0, which times inf is nan.

    Only as the outermost call of a pullback. On arrays a cut element is -0.0, the identity of addition.
    """
    if isinstance(where, Symbol) or isinstance(value, Symbol):
        return Symbol.cut(where, value)
    return np.where(where, -0.0, value + 0.0)
