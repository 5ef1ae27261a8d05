"""What a kind of operation has on tensors: pullbacks by rules, run with tensors for values.

A cotangent without dims may stand for one of the full shape with the same number everywhere, as a sum of all
elements gives it, as long as what follows is elementwise. In a cotangent that is not ``clean`` -0.0 marks the
elements to which nothing has been contributed; in one that is, a zero is a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from types import FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from kernels.foundation.specs import Spec
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.operations import OPS
from kernels.rules.op import parameters_of
from tape.operations import elementwise, matmul, reductions
from tape.recording import creation, record, views
from tape.tensors import modes
from tape.tensors.tensor import Tensor, constant_tensor

choose = elementwise.RUN["where"]


def full(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a cotangent in its full shape."""
    have = g._form.spec.shape
    if have == shape:
        return g
    if have:
        return views.reshape(g, shape)
    if g._slot is None and modes.active() is not None:
        return constant_tensor(np.full(shape, g._value, g._form.spec.dtype))
    return views.expand(g, shape)


def onto(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over the dims that were broadcast from this shape."""
    have = value._form.spec.shape
    if have == shape:
        return value
    lead = len(have) - len(shape)
    ones = [lead + k for k, n in enumerate(shape) if n == 1 and have[lead + k] != 1]
    if not ones:
        return reductions.sum(value, 0 if lead == 1 else tuple(range(lead)))
    return views.reshape(reductions.sum(value, (*range(lead), *ones), keepdim=True), shape)


def added(value: Tensor) -> Tensor:
    """Turn -0.0, the mark of no contribution, to 0.0."""
    return value + 0.0 if _follower() is not None or marks_of(value) is not None else value


def negative_zeros(value: Tensor) -> Any:
    """Return where a tensor has -0.0; None if nowhere. A recorder that follows this backward computes it."""
    follower = _follower()
    return marks_of(value) if follower is None else follower.negative_zeros(value)


def _follower() -> Any:
    recorder = modes.recorder()
    return recorder if hasattr(recorder, "negative_zeros") else None


def marks_of(value: Tensor) -> Any:
    """Return where a tensor has -0.0; None if nowhere."""
    array: Any = value._value
    if (array != 0.0) if type(array) is float else np.count_nonzero(array) == array.size:
        return None
    marks = np.signbit(array) & np.equal(array, 0)
    return np.asarray(marks) if marks.any() else None


def rule_cuts(rule: Callable[..., Any]) -> bool:
    """Whether a rule itself marks elements as not contributed to, by ``cut``."""
    return "cut" in rule.__code__.co_names


def on_tensors(rule: Any) -> Any:
    """Return a rule that calls tape's functions directly, and not by NumPy's dispatch."""
    namespace = {**rule.__globals__, **{name: x for name, x in _NAMES.items() if name in rule.__globals__}}
    return FunctionType(rule.__code__, namespace, rule.__name__, rule.__defaults__, rule.__closure__)


class _Numpy:
    """The ``np`` of rules on tensors: unary functions and ``where`` go to tape's functions directly."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if isinstance(function, np.ufunc) and function.nin == 1 and (serves := matmul.served(function)) is not None:
            function = _of_tensors(function, serves)
        setattr(self, name, function)
        return function

    @staticmethod
    def logical_not(mask: Any) -> Any:
        """Negate a mask, a constant; as an operation only where a recorder must be notified of it."""
        if type(mask) is Tensor and mask._slot is None and modes.active() is not None:
            return constant_tensor(np.asarray(np.logical_not(mask._value)))
        return np.logical_not(mask)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        """Choose."""
        return (choose if type(condition) is Tensor else np.where)(condition, x, y)


def _of_tensors(ufunc: np.ufunc, serves: Callable[..., Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return serves(x) if type(x) is Tensor else ufunc(x)

    return function


def _cut(where: Any, value: Any) -> Any:
    """Do what :func:`kernels.rules.op.cut` does."""
    return _Numpy.where(where, -0.0, added(value) if isinstance(value, Tensor) else value + 0.0)


_NAMES = {"np": _Numpy(), "cut": _cut}
SHORTER = {("power_scalar", 1.0): lambda g: g, ("power_scalar", 2.0): lambda g, x: g * 2.0 * x}
"""Rules that agree in every bit with the record's for this exponent, in fewer operations."""


# The interface of a kind of records: the pullbacks of a form on tensors, and one run of a step on a whole batch.
#
# A batched tensor has the batch in front: extents (size, *those of the example). Rules call operations of tensors, so
# that what they do is recorded. Operands that all examples share have no batch.

_VIEW: Any = OPS["view"]
Contribution = tuple[int, Tensor, bool]
"""The number of an operand, its contribution, and whether that is clean (see kind_rules.py)."""
Values = dict[str, Any]


class Planned(Protocol):
    """A step of vmap's plan or of a program."""

    @property
    def op(self) -> Any:
        """Its record."""

    @property
    def params(self) -> tuple[Any, ...]:
        """The static parameters."""


@dataclass(slots=True)
class Operand:
    """An operand: a number, or a tensor whose example has this spec; ``batched`` if it is one for each example."""

    value: Any
    batched: bool = False
    spec: Spec | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of an example."""
        return () if self.spec is None else self.spec.shape

    @property
    def lead(self) -> tuple[int, ...]:
        """The extent of the batch, if there is one."""
        return (self.value.spec.shape[0],) if self.batched else ()


class Pullbacks:
    """The pullbacks of instructions of one form; ``pulled`` are the numbers of the operands that have one."""

    def __init__(self, form: Form, pull: Any = None) -> None:
        self.form, self.pull = form, pull
        self.pulled = tuple(i for i, pull in enumerate(form.pulls) if pull is not None)

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        """Return an instruction's contributions to operands; ``g`` is its cotangent, ``saved`` its saved tensors."""
        if self.pull is None:
            raise NotImplementedError(
                f"{self.form.op.name}: its vjp is compiled and cannot be differentiated again; write it as an "
                "autograd.Function"
            )
        values, g = saved.of(instruction), full(g, self.form.spec.shape)
        results = [(i, self.pull(instruction, i, g, values)) for i in wanted]
        return [(i, x, clean if x is g else negative_zeros(x) is None) for i, x in results]


def no_rule(step: Planned, operands: Sequence[Operand], spec: Spec) -> Any:
    """Raise NotImplementedError, naming the operation."""
    del operands, spec
    raise NotImplementedError(f"vmap: {step.op.name} has no batching rule; call it outside of the mapped function")


class Kind(NamedTuple):
    """A kind of records on tensors: how a step runs on a batch, and what runs the pullbacks of a form.

    ``batched(step, operands, spec)``: ``spec`` is that of the result of one example. ``is_followed``: pullbacks compute
    with tensors alone, so that a recorder can follow them. Views, and writes, need none: sweeps handle them themselves.
    """

    batched: Callable[[Planned, Sequence[Operand], Spec], Any] = no_rule
    pullbacks: Callable[[Form], Pullbacks] = Pullbacks
    is_followed: bool = False


def batch_size(operands: Sequence[Operand]) -> int | None:
    """Return the extent of the batch; None where all examples share all operands."""
    return next((x.lead[0] for x in operands if x.batched), None)


def whole(x: Tensor, size: int, behind: int = 0) -> Tensor:
    """Return a tensor repeated for each example; the batch comes behind ``behind`` dims."""
    shape = x._form.spec.shape
    wide = (*shape[:behind], size, *shape[behind:])
    if x._slot is None and modes.active() is not None:  # no recorder is to be notified
        value = np.empty(wide, x._form.spec.dtype)
        value[...] = np.expand_dims(x._value, behind) if behind else x._value
        return constant_tensor(value)
    return views.clone(views.expand(views.unsqueeze(x, behind) if behind else x, wide))


def apart(x: Tensor, rank: int) -> Tensor:
    """Return a batched tensor with this many dims: dims of length one are inserted behind the batch."""
    shape = x._form.spec.shape
    return record.view(_VIEW, x, ((shape[0], *(1,) * (rank - len(shape)), *shape[1:]),))


def aligned(operand: Operand, rank: int) -> Any:
    """Return an operand with as many dims behind the batch as the example's result has."""
    if not operand.batched or len(operand.shape) == rank:
        return operand.value
    return apart(operand.value, rank + 1)


class RulePullbacks(Pullbacks):
    """Rules of a record. Where the cotangent is -0.0 they contribute nothing, and not 0 times what may be infinite."""

    def __init__(self, form: Form, static: dict[str, Any]) -> None:
        super().__init__(form)
        self.static = static
        self.rules = [None if pull is None else self._rule(i) for i, pull in enumerate(form.pulls)]

    def _rule(self, i: int) -> tuple[Callable[..., Any], Callable[[Sequence[Any]], Any], bool]:
        op = self.form.op
        rule: Any = SHORTER.get((op.name, *self.static.values())) or op.pullback[i]
        names = parameters_of(rule)
        order = [-1 if name == "g" else self.form.saved.index(name) for name in names if name not in self.static]
        static = {name: value for name, value in self.static.items() if name in names}
        run = on_tensors(rule)
        take = itemgetter(*order) if len(order) > 1 else lambda values: (values[order[0]],)
        return partial(run, **static) if static else run, take, rule_cuts(rule)

    def ruled(self, i: int, g: Tensor, cut: Any, values: Sequence[Any]) -> tuple[Tensor, bool]:
        """Run a rule on saved values and the cotangent, the last; ``cut`` masks where that is -0.0, None if nowhere.

        Return the contribution, over the space of the rule, and whether it is clean.
        """
        rule, take, cuts = self.rules[i]  # type: ignore[misc]
        result = rule(*take(values))
        if type(result) is not Tensor:
            result = creation.full(g.spec.shape, float(result), dtype=g.spec.dtype)
        if cut is None:
            return result, result is g or not cuts or negative_zeros(result) is None
        if result is g:
            return g, False
        if isinstance(cut, Tensor):  # of a backward that a recorder follows
            return choose(cut, -0.0, result if cuts else result + 0.0), False
        zeros = None if cuts else negative_zeros(result)
        if zeros is not None and (zeros & ~cut).any():
            result = result + 0.0
        return choose(constant_tensor(cut), -0.0, result), False
