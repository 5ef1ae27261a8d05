"""Programs: a function recorded once and replayed natively, forward and backward, on new values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from kernels import program as recipes
from kernels.program import ProgramError
from kernels.replay import Machine, Plan, plan
from tape import modes, recording
from tape.in_place import copy_
from tape.operands import operand
from tape.program_recorder import ProgramRecorder
from tape.signature import check_written, value_of
from tape.tensor import Tensor, carried, leaf, plain


class Program:
    """A recorded function. Call it, or :meth:`value_and_grad`, with new values of the recorded shapes and dtypes.

    Results never alias memory of the program or one another. Safe to call from several threads.
    """

    def __init__(self, recorder: ProgramRecorder, template: Any) -> None:
        # Not the recorder: it holds every tensor of the recording, and so their graph.
        self._recipe = recorder.recipe
        self._template = template
        self._escapes = recorder.escapes
        self._unfinished = ""
        self._plan: Plan | None = None
        self._machines: list[Machine] = []
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """Replay the function forward; arguments that it changes in place are changed, as by the function."""
        machine = self._start(args, writes=True)
        try:
            machine.run(machine.forward)
            self._write_back(machine, args)
            return self._results(machine, tensors=any(isinstance(a, Tensor) for a in args))
        finally:
            self._machines.append(machine)

    def value_and_grad(self, *args: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the value and a tuple with the gradient of each floating argument."""
        if not self._unfinished:
            self._check_scalar()
        machine = self._start(args, writes=False)
        try:
            machine.run(machine.forward)
            machine.run(machine.reverse)
            tensors = any(isinstance(a, Tensor) for a in args)
            nodes = zip(args, self._recipe.arguments, strict=True)
            floating = [given for given, node in nodes if self._recipe.nodes[node].differentiable]
            gradients = tuple(
                [
                    _out(g + g.dtype.type(0.0), isinstance(a, Tensor))
                    for a, g in zip(floating, machine.gradients, strict=True)
                ]
            )
            return self._results(machine, tensors=tensors), gradients
        finally:
            self._machines.append(machine)

    def _write_back(self, machine: Machine, args: tuple[Any, ...]) -> None:
        """Give tensors and arrays the values that the program wrote into them."""
        for node, given, value in zip(self._recipe.arguments, args, machine.inputs, strict=True):
            if node in self._recipe.written and isinstance(given, Tensor):
                with modes.no_grad():
                    copy_(given, plain(value.copy()))
            elif node in self._recipe.written and isinstance(given, np.ndarray):
                given[...] = value

    def _check_scalar(self) -> None:
        outputs = self._recipe.outputs
        spec = self._recipe.nodes[outputs[0]].spec
        if len(outputs) != 1 or spec.size != 1 or spec.dtype.kind != "f":
            raise ProgramError(
                f"value_and_grad needs a program that returns one floating number; this one returns "
                f"{', '.join(recipes.describe(self._recipe.nodes[o].spec) for o in outputs)}"
            )

    def _start(self, args: tuple[Any, ...], *, writes: bool) -> Machine:
        """Check the arguments, take a machine and put them into its memory; ``writes``: they are to be changed."""
        if self._unfinished:
            raise ProgramError(self._unfinished)
        if self._escapes:
            raise ProgramError(
                f"a value that depends on the arguments left for Python at {self._escapes[0]}; what Python did with "
                "it is not in the program. Keep it a tensor (tape.where for a branch), or call the function itself"
            )
        wanted = self._recipe.arguments
        if len(args) != len(wanted):
            raise TypeError(f"program takes {len(wanted)} arguments, got {len(args)}")
        nodes = self._recipe.nodes
        values = [value_of(n, given, nodes[w].spec) for n, given, w in zip(_names(args), args, wanted, strict=True)]
        if writes:
            check_written(_names(args), args, [i for i, w in enumerate(wanted) if w in self._recipe.written])
        for given in args:
            recording.left(given)
        machine = self._machine()
        for place, value in zip(machine.inputs, values, strict=True):
            place[...] = value
        return machine

    def _machine(self) -> Machine:
        try:
            return self._machines.pop()
        except IndexError:
            with self._lock:
                if self._plan is None:
                    self._plan = plan(self._recipe)
            return Machine(self._plan)

    def _results(self, machine: Machine, *, tensors: bool) -> Any:
        values = [_out(np.array(o, order="C"), tensors) for o in machine.outputs]
        return _filled(self._template, iter(values))

    def __str__(self) -> str:
        return recipes.listing(self._recipe)

    def __repr__(self) -> str:
        return f"<Program of {len(self._recipe.steps)} operations, {len(self._recipe.arguments)} arguments>"

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self._recipe.steps)


def _out(value: Any, tensor: bool) -> Any:
    """Return a result of its own memory as the caller gave his arguments: tensors, or floats and arrays."""
    if tensor:
        return plain(carried(value))
    return float(value) if value.ndim == 0 and value.dtype.kind == "f" else value


def _filled(template: Any, values: Any) -> Any:
    """Put results into the structure that the recorded function returned."""
    if isinstance(template, dict):
        return {key: _filled(part, values) for key, part in template.items()}
    if isinstance(template, tuple) and hasattr(template, "_fields"):
        return type(template)(*(_filled(part, values) for part in template))
    if isinstance(template, (tuple, list)):
        return type(template)(_filled(part, values) for part in template)
    return next(values)


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return [leaf for part in result.values() for leaf in _leaves(part)]
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _leaves(part)]
    return [result]


def _emptied(result: Any) -> Any:
    """Return the structure of a result, without its tensors."""
    if isinstance(result, dict):
        return {key: _emptied(part) for key, part in result.items()}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(_emptied(part) for part in result))
    return type(result)(map(_emptied, result)) if isinstance(result, (tuple, list)) else None


def _names(args: Sequence[Any]) -> list[str]:
    return [f"argument {i}" for i in range(len(args))]


_NOTHING = "nothing was recorded: no operation in the block used a leaf that requires grad"


class _Block:
    """``with tape.record() as program``: what runs inside is recorded; its arguments are the leaves it uses."""

    def __enter__(self) -> Program:
        self._recorder = ProgramRecorder()
        self._recorder.open = True
        self._before = modes.set_mode(modes.Mode(grad=True, recorder=self._recorder))
        self._program = Program(self._recorder, None)
        self._program._unfinished = "the program is still being recorded; call it after the with block"
        return self._program

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        modes.set_mode(self._before)
        steps = self._recorder.recipe.steps
        if kind is not None:
            self._program._unfinished = (
                f"the with block in which this program was recorded raised {kind.__name__}; record it anew"
            )
            return
        if not steps:
            self._program._unfinished = _NOTHING
            raise ProgramError(_NOTHING)
        self._recorder.recipe.outputs = [steps[-1].result]
        self._program._unfinished = ""


class _Recording:
    """The mode in which a program is recorded."""

    def __init__(self, recorder: ProgramRecorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> Self:
        self.before = modes.set_mode(modes.Mode(grad=True, recorder=self.recorder))
        return self

    def __exit__(self, *error: object) -> None:
        modes.set_mode(self.before)


def record(fun: Callable[..., Any] | None = None, *args: Any) -> Any:
    """Record ``fun(*args)`` and return the :class:`Program`, or, without a function, a context for ``with``.

    Every argument, a number, NumPy array or tensor, reaches ``fun`` as a tensor of its own memory; floating ones
    require grad. The result is a tensor or a tuple, list or dict of tensors. Arrays, tensors and numbers that are no
    arguments are constants, copied when ``fun`` uses them: what is to be read live is an argument.

    With the context the arguments are the leaves that require grad in the order of their use, and the result is the
    last one computed.
    """
    if fun is None:
        return _Block()
    recorder = ProgramRecorder()
    with _Recording(recorder):
        tensors = [_argument(a) for a in args]
        for i, (x, a) in enumerate(zip(tensors, args, strict=True)):
            recorder.lends(i, a._value if isinstance(a, Tensor) else a)
            recorder.argument(x)
        result = fun(*tensors)
        for output in _leaves(result):
            _check_output(output, recorder)
    recorder.recipe.outputs = [recorder.reference(o).node for o in _leaves(result)]
    recorder.check()
    check_written(
        _names(args), args, [i for i, w in enumerate(recorder.recipe.arguments) if w in recorder.recipe.written]
    )
    return Program(recorder, _emptied(result))


def _argument(value: Any) -> Tensor:
    """Return a leaf of its own memory for an argument."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("record: a masked array, whose mask programs do not know; fill it first: x.filled(value)")
    given = operand(value)
    array = np.array(given._value if isinstance(given, Tensor) else given, order="C")
    return leaf(carried(array), requires_grad=array.dtype.kind == "f")


def _check_output(output: Any, recorder: ProgramRecorder) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(f"a recorded function returns tensors, not {type(output).__name__}; keep the result a tensor")
    recorder.reference(output)
