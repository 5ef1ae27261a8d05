"""Derivatives compared with finite differences: all elements of the Jacobians, or one projection of each."""

from __future__ import annotations

import numpy as np

from tape.checks import finite_differences, jacobians
from tape.checks.finite_differences import Estimate, Tolerance, memory_of
from tape.checks.jacobians import Case, GradcheckError, differentiable, filled, pull, random_like, untouched
from tape.tensors.tensor import Array, Tensor

Table = list[list[Array]]
"""For each output and each input, its Jacobian; in fast mode that between a vector on either side, of shape (1, 1)."""

_NOT_REENTRANT = (
    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different "
    "values, although analytical gradient matches numerical gradient. The tolerance for nondeterminism was {}; "
    "nondet_tol gives another."
)


class Comparison:
    """A function at a point, its noise there, and the tolerance for its derivatives.

    ``outputs`` are those that require grad; their graph is kept. ``errors`` are the largest errors of the differences
    with respect to each input: gradients below them may be rounding alone.
    """

    def __init__(
        self, case: Case, eps: float, tolerance: Tolerance, nondet_tol: float, *, check_dtypes: bool, fast: bool
    ) -> None:
        self.case, self.eps, self.tolerance, self.nondet_tol = case, eps, tolerance, nondet_tol
        self.check_dtypes, self.fast = check_dtypes, fast
        self.inputs = case.wanted
        self.memory = [memory_of(x) for x in self.inputs]
        results = case.run()
        self.floating = [k for k, o in enumerate(results) if o.is_floating_point()]
        self.sizes = [results[k].numel() for k in self.floating]
        self.outputs = differentiable(results)
        self.judged = [k for k in self.floating if results[k].requires_grad or not self.outputs]
        self.results = [results[k] for k in self.judged]
        units = [finite_differences.scale_of(m) for m in self.memory]
        self.noise = finite_differences.noise_of(finite_differences.along(self.values, self.memory, units), eps)
        self.outputs = differentiable(case.run())  # of memory that has not been moved since
        self.errors = [0.0 for _ in self.inputs]
        self.left = [w.reshape(-1) for w in random_like(self.outputs)]
        self.right = [w * unit for w, unit in zip(random_like(self.inputs), units, strict=True)]

    def values(self) -> Array:
        """Return the judged outputs at the inputs' present values, end to end."""
        outputs = self.case.run()
        now = [outputs[k] for k in self.judged]
        for expected, value in zip(self.results, now, strict=True):
            for attribute, old, new in (
                ("shape", tuple(expected.shape), tuple(value.shape)),
                ("dtype", expected.dtype, value.dtype),
            ):
                if old != new:
                    raise GradcheckError(
                        f"Expected `func` to return outputs with the same {attribute} when inputs are perturbed by "
                        f"{self.eps}, but got: {attribute}s {old} and {new}."
                    )
        return np.concatenate([np.zeros(0), *(memory_of(o).reshape(-1) for o in now)])

    def close(self, computed: Array, expected: Array, size: float | None = None, error: float = 0.0) -> bool:
        """Whether two computed arrays agree up to rounding, that of numbers of a size (the largest's), and an error."""
        single = any(x.dtype != np.float64 for x in (*self.inputs, *self.outputs))
        largest = float(np.abs(expected).max(initial=0.0)) if size is None else size
        return self.tolerance.close(computed, expected, (1e-4 if single else 1e-9) * largest + error)

    def precise_to(self, relative: float) -> bool:
        """Whether the values' noise is relatively below a bound."""
        return bool(np.all(self.noise <= relative * np.abs(self.values())))

    def check(self, *, backward: bool, forward: bool) -> None:
        """Raise GradcheckError for the first Jacobian that is wrong."""
        if not self.outputs:
            self._check_constant()
            return
        tables = [("", self._by_backward())] if backward else []
        if forward:
            tables.append(("computed with forward mode ", self._by_forward()))
        estimates = self._projected(tables[0][1]) if self.fast else self._jacobians(tables[0][1])
        self.errors = [
            max((e.error.max(initial=0.0) for e in row), default=0.0) for row in zip(*estimates, strict=True)
        ]
        for mode, table in tables:
            for k, jacobian_by_input in enumerate(table):
                for i, jacobian in enumerate(jacobian_by_input):
                    self._compare(mode, k, i, jacobian, estimates[k][i])

    def _check_constant(self) -> None:
        """Raise if outputs without a gradient change with an input."""
        zeros = [np.zeros((m.size, self.noise.size)) for m in self.memory]
        if any(
            e.value.any() for e in finite_differences.jacobians(self.values, self.memory, self.eps, self.noise, zeros)
        ):
            raise GradcheckError("Numerical gradient for function expected to be zero")

    def _by_backward(self) -> Table:
        """Return the Jacobians by backward mode; raise if two runs differ."""
        table = []
        watched = {f"input {i}": x for i, x in enumerate(self.case.inputs) if isinstance(x, Tensor)}
        watched |= {f"output {k}": o for k, o in enumerate(self.outputs)}
        for output, left in zip(self.outputs, self.left, strict=True):
            with untouched(watched):
                first, second = self._rows(output, left), self._rows(output, left)
            for one, two in zip(first, second, strict=True):
                if not np.array_equal(one, two, equal_nan=True) and not np.abs(one - two).max() <= self.nondet_tol:
                    raise GradcheckError(_NOT_REENTRANT.format(self.nondet_tol))
            if self.fast:
                first = [np.reshape(np.vdot(v, u), (1, 1)) for v, u in zip(first, self.right, strict=True)]
            table.append(first)
        return table

    def _rows(self, output: Tensor, left: Array) -> list[Array]:
        """Return the Jacobians of an output; in fast mode only their products with ``left``."""
        if not self.fast:
            return jacobians.backward_rows(output, self.inputs, check_dtypes=self.check_dtypes)
        gradients = pull([output], self.inputs, [left.reshape(output.shape)])
        jacobians.check_attributes(gradients, self.inputs, check_dtypes=self.check_dtypes)
        return filled(gradients, self.inputs)

    def _by_forward(self) -> Table:
        """Return the Jacobians by forward mode."""
        if not self.fast:
            table = jacobians.forward_columns(self.case, self.sizes)
            return [table[self.floating.index(k)] for k in self.judged]
        columns = [
            jacobians.push(self.case, jacobians.unit_tangents(self.inputs, i, u)) for i, u in enumerate(self.right)
        ]
        return [
            [np.reshape(np.vdot(v, column[self.floating.index(k)]), (1, 1)) for column in columns]
            for k, v in zip(self.judged, self.left, strict=True)
        ]

    def _jacobians(self, expected: Table) -> list[list[Estimate]]:
        """Return each Jacobian by differences, refined where it has to decide about ``expected``."""
        ends = np.cumsum([o.numel() for o in self.outputs])[:-1]
        by_input = [np.concatenate(of_input, axis=1) for of_input in zip(*expected, strict=True)]
        estimates = finite_differences.jacobians(self.values, self.memory, self.eps, self.noise, by_input)
        parts = [
            [Estimate(v, e) for v, e in zip(np.split(f.value, ends, 1), np.split(f.error, ends, 1), strict=True)]
            for f in estimates
        ]
        return [list(of_output) for of_output in zip(*parts, strict=True)]

    def _projected(self, expected: Table) -> list[list[Estimate]]:
        """Return each Jacobian by differences between ``left`` and ``right``."""
        parts = []
        for i, (memory, right) in enumerate(zip(self.memory, self.right, strict=True)):
            at = finite_differences.along(self.values, [memory], [right])
            wanted = [row[i].item() for row in expected]
            parts.append(finite_differences.projected(at, self.eps, self.noise, self.left, wanted))
        return [list(of_output) for of_output in zip(*parts, strict=True)]

    def _compare(self, mode: str, k: int, i: int, computed: Array, estimate: Estimate) -> None:
        """Raise PyTorch's message, with the place of the largest difference, if a derivative is wrong."""
        weight = float(np.abs(self.left[k]).sum() * np.abs(self.right[i]).sum()) if self.fast else 1.0
        wrong = ~self.tolerance.accepts(computed, estimate, weight)
        if not wrong.any():
            return
        allowed = self.tolerance.around(estimate, weight)
        with np.errstate(all="ignore"):
            excess = np.where(wrong, np.abs(computed - estimate.value) / allowed, -1.0)
        at = _place(np.argmax(np.nan_to_num(excess, nan=np.inf)), excess.shape)
        where = "random projections of the Jacobians, by fast_mode"
        if not self.fast:
            into, out = _place(at[0], self.inputs[i].shape), _place(at[1], self.outputs[k].shape)
            where = f"worst for element {out} of the output and {into} of the input"
        raise GradcheckError(
            f"Jacobian {mode}mismatch for output {k} with respect to input {i},\n"
            f"numerical:{estimate.value}\nanalytical:{computed}\n{where}: numerical {estimate.value[at]:.12g}, "
            f"error about {estimate.error[at]:.1g}, analytical {computed[at]:.12g}, tolerance {allowed[at]:.1g}\n"
        )


def _place(number: int | np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.unravel_index(number, shape))
