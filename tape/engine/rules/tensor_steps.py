"""What a recorded backward does for one instruction: the record's rules on tensors.

What a form decides is found out once, as its steps. In a cotangent that is not ``clean`` -0.0 marks the elements to
which nothing has been contributed; in one that is, a zero is a zero.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from kernels.instructions.entries import Instruction
from kernels.instructions.forms import Form, inputs_of
from kernels.records.kinds import Contraction, Copy, Elementwise, Gather, Reduction, Select
from tape.conversions import creation
from tape.engine.rules.tensor_rules import SHORTER, choose, full, negative_zeros, on_tensors, onto, pull, rule_cuts
from tape.operations import matmul
from tape.recording import record, views
from tape.tensors.tensor import Array, Tensor, plain

Given = tuple[int, Tensor, bool]
"""What an operand is given: its number, the contribution, and whether that is clean."""


def steps_of(form: Form) -> Steps:
    """Return what runs the pullbacks of instructions of a form."""
    found: Steps | None = form.steps
    if found is None:
        found = form.steps = _STEPS.get(type(form.op), Steps)(form)
    return found


class Steps:
    """The pullbacks of instructions of one form; ``pulled`` are the numbers of the operands that have one."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.pulled = tuple(i for i, pull in enumerate(form.pulls) if pull is not None)

    def run(self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, primals: Any) -> list[Given]:
        """Return what an instruction contributes to operands; ``g`` is its cotangent."""
        values, g = primals.of(instruction), full(g, self.form.spec.shape)
        results = [(i, pull(instruction, i, g, values)) for i in wanted]
        return [(i, x, clean if x is g else negative_zeros(x) is None) for i, x in results]


class _Rules(Steps):
    """Rules of a record. Where the cotangent is -0.0 there is no contribution: not 0 times what may be infinite."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self.static = {"p": form.params[0]} if isinstance(form.op, Elementwise) and form.params else {}
        self.rules = [None if pull is None else self._rule(i) for i, pull in enumerate(form.pulls)]

    def _rule(self, i: int) -> tuple[Callable[..., Any], Callable[[Sequence[Any]], Any], bool]:
        """Return a rule, what takes its arguments from the saved values and the cotangent, and whether it cuts."""
        op = self.form.op
        rule: Any = SHORTER.get((op.name, *self.static.values())) or op.pullback[i]
        names = inspect.signature(rule).parameters
        order = [-1 if name == "g" else self.form.saved.index(name) for name in names if name not in self.static]
        static = {name: value for name, value in self.static.items() if name in names}
        run = on_tensors(rule)
        take = itemgetter(*order) if len(order) > 1 else lambda values: (values[order[0]],)
        return partial(run, **static) if static else run, take, rule_cuts(rule)

    def ruled(self, i: int, g: Tensor, cut: Any, values: Sequence[Any]) -> tuple[Tensor, bool]:
        """Run a rule on saved values and the cotangent, the last; ``cut`` tells where that is missing, None if nowhere.

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
        zeros = None if cuts else negative_zeros(result)
        if zeros is not None and (zeros & ~cut).any():
            result = result + 0.0
        return choose(plain(cut), -0.0, result), False


class _Elementwise(_Rules):
    """The rules on tensors of the saved values, which elementwise operations alone read."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        names, self.shape = inputs_of(form.op), form.spec.shape
        self.alike = all(spec is None or spec.shape == self.shape for spec in form.specs)
        self.sources = tuple(names.index(name) if name in names else -1 for name in form.saved)

    def run(self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, primals: Any) -> list[Given]:
        form, operands = self.form, instruction.operands
        have = g._form.spec.shape
        if have != self.shape and (have or not self.alike):
            g = full(g, self.shape)
        cut = None if clean else negative_zeros(g)
        values = []
        for at, value in zip(self.sources, instruction.saved, strict=True):
            slot, spec = (instruction.slot, form.spec) if at < 0 else (operands[at], form.specs[at])
            values.append(value if spec is None else primals.read(slot, value, spec))
        values.append(g)
        found = []
        for i in wanted:
            rule, take, cuts = self.rules[i]  # type: ignore[misc]
            if cut is None and not cuts and type(value := rule(*take(values))) is Tensor:
                clean = True  # the usual case
            else:
                value, clean = self.ruled(i, g, cut, values)
            found.append((i, value if self.alike else onto(value, form.specs[i].shape), clean))  # type: ignore[union-attr]
        return found


class _Reduction(_Rules):
    """The rules of reductions: before the cotangent is spread, where they read nothing of the operand's shape."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        spec = form.specs[0]
        assert spec is not None
        self.axes, self.keepdims = form.params
        self.shape = spec.shape
        self.wide = tuple(1 if k in self.axes else n for k, n in enumerate(self.shape))
        self.narrow = form.saved in ((), ("n",)) and not form.op.selects  # type: ignore[attr-defined]

    def run(self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, primals: Any) -> list[Given]:
        if self.narrow:
            g = g if not g._form.spec.shape else full(g, self.form.spec.shape)
            value, clean = self.ruled(0, g, None if clean else negative_zeros(g), (*instruction.saved, g))
            return [(0, self._spread(value), clean)] if wanted else []
        if not wanted:
            return []
        form = self.form
        g = self._widened(full(g, form.spec.shape))
        values = [
            self._value(name, value, instruction, primals)
            for name, value in zip(form.saved, instruction.saved, strict=True)
        ]
        result, clean = self.ruled(0, g, None if clean else negative_zeros(g), (*values, g))
        return [(0, result if result._form.spec.shape == self.shape else views.expand(result, self.shape), clean)]

    def _value(self, name: str, value: Any, instruction: Instruction, primals: Any) -> Any:
        """Return a saved value as a rule reads it, beside the operand."""
        if name == "x":
            return primals.read(instruction.operands[0], value, self.form.specs[0])
        if name == "y":
            return self._widened(primals.read(instruction.slot, value, self.form.spec))
        return self._widened(plain(value)) if isinstance(value, np.ndarray) else value

    def _widened(self, value: Tensor) -> Tensor:
        """Return what has a result's shape with dims of one for those that were reduced."""
        return value if self.keepdims or not value._form.spec.shape else views.reshape(value, self.wide)

    def _spread(self, value: Tensor) -> Tensor:
        """Return a value over the operand's space; one of no dims stands for all of it."""
        return views.expand(self._widened(value), self.shape) if value._form.spec.shape else value


class _Contraction(Steps):
    """Matrix products. A transposed factor is read in place: as a pattern of the memory, and gradient, of its slot."""

    def run(self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, primals: Any) -> list[Given]:
        form, (left, right) = self.form, instruction.operands
        a, b = form.specs
        if len(a.shape) != _MATRIX or len(b.shape) != _MATRIX:  # type: ignore[union-attr]
            return super().run(instruction, wanted, g, clean, primals)
        g, saved, found = full(g, form.spec.shape), dict(zip(form.saved, instruction.saved, strict=True)), []
        for i in wanted:
            if i == 0:
                value = matmul.matmul(g, primals.read(right, saved["b"], b, turned=True))
            else:
                value = matmul.matmul(primals.read(left, saved["a"], a, turned=True), g)
            found.append((i, value, True))
        return found


_MATRIX = 2


class Picking(Steps):
    """Elements that were picked: by arrays of places, which are saved, or one along an axis."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self.along = isinstance(form.op, Select)
        self.starts = self._starts() if self.along and form.spec.size <= _FEW else None

    def _starts(self) -> Array:
        """Return the first places along the axis, in the gradient of the operand."""
        (spec, *_), axis = self.form.specs, self.form.params[0]
        assert spec is not None
        shape = [1 if k == axis else n for k, n in enumerate(spec.shape)]
        found = np.zeros(shape, np.int64)
        for at, stride in zip(np.indices(shape), spec.gradient, strict=True):
            found += at * (stride // spec.dtype.itemsize)
        return found.reshape(self.form.spec.shape)

    def places(self, instruction: Instruction) -> Array:
        """Return the places in the gradient of the operand, in elements."""
        found: Array = instruction.saved[0]
        if not self.along:
            return found
        (spec, *_), axis = self.form.specs, self.form.params[0]
        assert spec is not None
        step = spec.gradient[axis] // spec.dtype.itemsize if spec.shape else 0
        return np.asarray(found * step + (self._starts() if self.starts is None else self.starts), np.int64)


_FEW = 1 << 10
"""So many places are kept; those of larger tensors are found again."""


class _Copy(Steps):
    """Copies, which hand their cotangent on."""

    def run(self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, primals: Any) -> list[Given]:
        del instruction, primals
        spec = self.form.specs[0]
        assert spec is not None
        same = g.spec.dtype == spec.dtype
        g = full(g, self.form.spec.shape) if g.spec.shape else g
        value = g if same else record.to_dtype(g, spec.dtype)
        return [(i, value, clean) for i in wanted]


_STEPS: dict[type, type[Steps]] = {
    Elementwise: _Elementwise,
    Reduction: _Reduction,
    Contraction: _Contraction,
    Copy: _Copy,
    Gather: Picking,
    Select: Picking,
}
