"""The pullbacks of kinds whose records state them as rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from kernels.instructions.form import Form
from kernels.records.symbols import parameters_of
from tape.conversions import creation
from tape.kinds.kind import Pullbacks
from tape.kinds.rules_on_tensors import SHORTER, choose, negative_zeros, on_tensors, rule_cuts
from tape.tensors.tensor import Tensor, constant_tensor


class RulePullbacks(Pullbacks):
    """Rules of a record. Where the cotangent is -0.0 they contribute nothing, and not 0 times what may be infinite."""

    def __init__(self, form: Form, static: dict[str, Any]) -> None:
        super().__init__(form)
        self.static = static
        self.rules = [None if pull is None else self._rule(i) for i, pull in enumerate(form.pulls)]

    def _rule(self, i: int) -> tuple[Callable[..., Any], Callable[[Sequence[Any]], Any], bool]:
        """Return a rule, the getter of its arguments from saved values and cotangent, and whether it cuts."""
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
