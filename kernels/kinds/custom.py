"""Kinds of records that users' code stands behind: custom operations and loops."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar
from weakref import WeakSet

import numba
import numpy as np

from kernels.foundation.specs import Array, Spec, Strides, dense, spec_of
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form, Lowering, ProgramStep
from kernels.kinds.routine import packed
from kernels.language.jit import SIGNATURE, NumbaError, carray, compiling
from kernels.native.memory import load_i8, pointer_f4, pointer_f8, store_i8, where
from kernels.native.structs import LoopWords
from kernels.rules.op import Flags, Op, Params
from kernels.rules.scalar_loops import ByteComparison, KernelCall, OperandPlace, PythonCall, node_of
from kernels.rules.symbols import Rule

# The operands of a custom operation stand end to end in one flat array, so that the pullback runs once for all of them.

RUNNING: list[Array] = []
"""Once there is a kernel, a word that counts those that are running: it stays above 0 after one has raised, since no
exception leaves native code. Each operation counts its own in ``running``."""
_made: WeakSet[Custom] = WeakSet()  # the operations that have kernels


@dataclass(frozen=True, eq=False, kw_only=True)
class Custom(Op):
    """A pair of jitted functions: ``forward(*operands)`` and ``vjp(cotangent, *operands)``. Not in the tables."""

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    kernels: dict[Any, Any] = field(default_factory=dict)
    running: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    inputs: ClassVar[tuple[str, ...]] = ("x",)

    def __post_init__(self) -> None:
        """Register nothing."""

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a call on a flat operand, in which operands of the shapes, the one parameter, stand."""
        pull: Any = CustomKernel(self, params[0], spec.shape, spec.dtype, pulls=True)
        return Form(self, specs, spec, wanted, ("x",), (pull,), params, name)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Call the user's own function."""
        result = lowering.spec(step.result)
        kernel = CustomKernel(self, step.params[0], result.shape, result.dtype, pulls=False)
        lowering.tasks.append(KernelCall(kernel, (OperandPlace(step.result), OperandPlace(node_of(step.operands[0])))))

    def recomputed(self, form: Form, _: Params, *values: Any) -> Any:
        """Return the value of a result."""
        return self.forward(*apart(values[0], form.params[0]))


_PULL = """
def kernel(layout, pointers, accumulate):
{begun}
    target = carray({pointer}(pointers[0]), layout[0])
    g = carray({pointer}(pointers[1]), {result})
{reads}
    returned = vjp(g{item}, {names})
{writes}
{ended}
"""
_FORWARD = """
def kernel(layout, pointers, accumulate):
{begun}
    target = carray({pointer}(pointers[0]), layout[1])
{reads}
    returned = forward({names})
{writes}
{ended}
"""


@dataclass(frozen=True)
class CustomKernel:
    """A call of one of the two functions on operands of these shapes; one kernel serves all shapes of these ranks."""

    op: Custom
    shapes: tuple[Strides, ...]
    result: Strides
    dtype: np.dtype[Any]
    pulls: bool
    covers: bool = True

    @property
    def steps(self) -> int:
        """The elements of operands and result, as an estimate: the user's function is not known."""
        return sum(map(math.prod, self.shapes)) + math.prod(self.result)

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        key = (tuple(map(len, self.shapes)), len(self.result), self.dtype, self.pulls)
        made = self.op.kernels.get(key)
        if made is None:
            made = self.op.kernels.setdefault(key, self._compiled())
        return int(made.address), self.layout()

    def layout(self, *, tells: bool = False) -> Array:
        """Return the elements of operands and result, the result's extents, each operand's start, elements, extents.

        Then whether it ``tells`` by a word behind the pointers that it has raised, and not by counters of all calls.
        """
        sizes = [math.prod(shape) for shape in self.shapes]
        words = [sum(sizes), math.prod(self.result), *self.result]
        for k, shape in enumerate(self.shapes):
            words += [sum(sizes[:k]), sizes[k], *shape]
        return np.array([*words, tells], np.int64)

    def _compiled(self) -> Any:
        _made.add(self.op)
        if not RUNNING:
            RUNNING.append(np.zeros(1, np.int64))
        names: dict[str, Any] = {
            "carray": carray, "forward": self.op.forward, "load_i8": load_i8, "np": np, "pointer_f4": pointer_f4,
            "pointer_f8": pointer_f8, "store_i8": store_i8, "vjp": self.op.vjp, "check": _check(),
        }  # fmt: skip
        exec(compile(self._text(), f"<tape.custom: {self.op.name}>", "exec"), names)  # noqa: S102
        try:
            with compiling(self.op.name):
                return numba.cfunc(SIGNATURE, error_model="numpy")(names["kernel"])
        except NumbaError as error:
            function_name = "vjp" if self.pulls else "forward"
            raise TypeError(
                f"{self.op.name}: {function_name} does not compile for shapes {list(map(list, self.shapes))}: {error}"
            ) from error

    def _text(self) -> str:
        pointer = "pointer_f8" if self.dtype == np.float64 else "pointer_f4"
        operands, at = [], 2 + len(self.result)
        for k, shape in enumerate(self.shapes):
            operands.append(f"    i{k}, n{k}, s{k} = layout[{at}], layout[{at + 1}], {_words(at + 2, shape)}")
            operands.append(f"    a{k} = flat[i{k}:i{k} + n{k}].reshape(s{k})" if shape else f"    a{k} = flat[i{k}]")
            at += 2 + len(shape)
        reads = [f"    flat = carray({pointer}(pointers[{2 if self.pulls else 1}]), layout[0])", *operands]
        counted, pointers = [where(self.op.running), where(RUNNING[0])], 2 + self.pulls

        def marked(running: int, change: str) -> str:
            lines = [f"    if layout[{at}]:", f"        pointers[{pointers}] = {running}", "    else:"]
            return "\n".join([*lines, *[f"        store_i8({word}, load_i8({word}) {change})" for word in counted]])

        return (_PULL if self.pulls else _FORWARD).format(
            begun=marked(1, "+ 1"),
            ended=marked(0, "- 1"),
            pointer=pointer,
            result=_words(2, self.result) if self.result else 1,
            item="" if self.result else "[0]",
            reads="\n".join(reads),
            names=", ".join(f"a{k}" for k in range(len(self.shapes))),
            writes="\n".join(self._writes()),
        )

    def _writes(self) -> list[str]:
        if not self.pulls:
            if not self.result:
                return ["    target[0] = returned"]
            return [
                f"    check(returned.shape, {_words(2, self.result)})",
                "    j = 0",
                "    for value in returned.flat:",
                "        target[j] = value",
                "        j += 1",
            ]
        lines = []
        for k, shape in enumerate(self.shapes):
            gradient = "returned" if len(self.shapes) == 1 else f"returned[{k}]"
            if not shape:
                lines += [f"    target[i{k}] = {gradient} + (target[i{k}] if accumulate else 0.0)"]
                continue
            lines += [
                f"    check({gradient}.shape, s{k})",
                f"    j = i{k}",
                f"    for value in {gradient}.flat:",
                "        target[j] = (value + 0.0) + (target[j] if accumulate else 0.0)",
                "        j += 1",
            ]
        return lines

    def contribute(self, buffer: Array, offset: int, cotangent: Array, saved: tuple[Any, ...]) -> None:
        """Run the pullback on arrays and add what it finds."""
        g = cotangent.reshape(self.result) if self.result else cotangent.reshape(())[()]
        gradients = self.op.vjp(g, *apart(np.asarray(saved[0]).reshape(-1), self.shapes))
        parts = gradients if len(self.shapes) > 1 else (gradients,)
        flat = np.concatenate(
            [_fitting(self.op.name, p, s).reshape(-1) for p, s in zip(parts, self.shapes, strict=True)]
        )
        start = offset // buffer.itemsize
        buffer[start : start + flat.size] += flat + 0.0


def _words(start: int, shape: Strides) -> str:
    return f"({''.join(f'layout[{start + k}], ' for k in range(len(shape)))})"


@functools.cache
def _check() -> Any:
    """Return the jitted check of a shape; made late, since decorating is slow."""

    @numba.njit
    def check(shape, wanted):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        if shape != wanted:
            raise ValueError("a result of another shape")

    return check


def apart(flat: Array, shapes: Sequence[Strides]) -> list[Any]:
    """Return the operands that stand in a flat array; 0-d ones as numbers."""
    parts, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        parts.append(flat[at : at + size].reshape(shape) if shape else flat[at])
        at += size
    return parts


def _fitting(name: str, part: Any, shape: Strides) -> Array:
    array = np.asarray(part)
    if array.shape != shape:
        raise ValueError(f"{name}: vjp returned shape {list(array.shape)} for an operand of shape {list(shape)}")
    return array


def check_failed() -> None:
    """Raise RuntimeError if a kernel has raised since the last check."""
    if not RUNNING or not RUNNING[0][0]:
        return
    RUNNING[0][0] = 0
    failed = [op for op in _made if op.running[0]]
    for op in failed:
        op.running[0] = 0
    if failed:
        raise RuntimeError(
            f"{failed[0].name}: a jitted function of this operation raised, or returned another shape than it should; "
            "its message stands above. Call the function itself to see where"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Callback(Op):
    """A call of Python on the values of operands; several results, of one dtype, stand end to end in one flat array."""

    inputs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Register nothing."""

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a call; the one parameter has ``run(values)`` and ``gradients(g, saved, specs)``."""
        return Form(self, specs, spec, wanted, ("context",), (None,) * len(specs), params, name, python=True)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Call it; what its gradients need is kept, last call last."""
        (called,), at, keeps = step.params, step.at, lowering.wants_pullback(step, "context")

        def run(arrays: list[Array], kept: dict[int, list[Any]]) -> None:
            results, context = called.run([np.array(x, order="K") for x in arrays[1:]])
            arrays[0][...] = packed(results)
            if keeps:
                kept.setdefault(at, []).append(context)

        nodes = (step.result, *map(node_of, step.operands))
        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(OperandPlace, nodes))))


FUNCTION = Callback(name="autograd.Function", doc="A call of a custom function.", pullback=(), grad_fn="")


# Loops and guards: parts of a program that are run again, natively, as long as the guards of one of them hold.
#
# ``loop_begin p1 p2 ..`` begins one; the ``p`` are its phis, nodes that carry values from one iteration to the next.
# Bodies follow, each ended by ``loop_again u1 u2 ..``: the values that the next iteration starts from; then comes
# ``loop_end``. An iteration is that of the first body whose guards hold; if none does, the loop is over, and nothing
# of what was tried has changed a phi.

LOOP_STATE = spec_of(np.zeros(LoopWords.SIZE, np.int64))
"""The pattern of a loop's own node: how many iterations there were, and what else it has to know."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopMark(Op):
    """A step that marks where a loop or a body of it begins or ends; its result is the loop's own node."""

    pullback: tuple[Rule | None, ...] = ()
    function: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopBegin(LoopMark):
    """The begin of a loop: parameters are the most iterations, or None, and whether the last operand is their number.

    Then whether they are exactly so many, though no guard ends the last one, and the line.
    """

    inputs: ClassVar[tuple[str, ...]] = ("phis",)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Begin a loop."""
        lowering.loops.begin(step, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopAgain(LoopMark):
    """The end of a body."""

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Carry on."""
        lowering.loops.again(step, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopEnd(LoopMark):
    """The end of a loop."""

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """End the loop."""
        lowering.loops.end(step)


@dataclass(frozen=True, eq=False, kw_only=True)
class Guard(Op):
    """Its result is its operand, which must be, bit for bit, what it was when recorded; the parameter is the line."""

    inputs: ClassVar[tuple[str, ...]] = ("x", "expected")
    repeatable: ClassVar[bool] = True

    pullback: tuple[Rule | None, ...] = (None, None)
    function: bool = False

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Compare the bytes of the value, in C order, with those expected."""
        x, expected = map(node_of, step.operands)
        spec = lowering.spec(x)
        if spec.strides != dense(spec.shape, spec.dtype.itemsize):
            x = lowering.cast(x, spec.dtype)
        lowering.tasks.append(
            ByteComparison(spec.size * spec.dtype.itemsize, (OperandPlace(x), OperandPlace(expected)))
        )
