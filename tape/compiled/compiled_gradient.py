"""Gradients of compiled functions, and the functions that `compile` returns."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np

from kernels.foundation.specs import SCALAR, Spec
from kernels.machine_code.call_structs import GRAD, GRAD_AND_VALUE, VALUE_AND_GRAD
from kernels.machine_code.compiled_machine import ReturnForm
from kernels.machine_code.tiers import MODES, called_at_once
from tape.compiled.call_key import (
    CallArguments,
    call_of,
    input_of,
    inputs_of,
    is_separated,
    simple_inputs,
    values_of,
)
from tape.compiled.compiled_function import CompiledFunction, named_as
from tape.compiled.compiled_program import CompiledProgram
from tape.compiled.native_calls import StructureSteps, Unknown
from tape.compiled.recordings import Recording, record_call
from tape.compiled.specialization import Specialization
from tape.engine.backward import grad
from tape.programs.program import outcome
from tape.programs.replaying import value_and_gradients
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.pytrees import LEAF, Structure, flattened
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, scalar_or_array
from tape.transforms.points import reaches_out, released
from tape.transforms.value_and_grad import Differentiated, arranged, made_of

_FORMS = {"value_and_grad": VALUE_AND_GRAD, "grad": GRAD, "grad_and_value": GRAD_AND_VALUE}
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
_NUMBERS = (float, int, np.float64, np.float32)


class GradientProgram(CompiledProgram):
    """The program of a function that returns a number, with the gradient by some of its arguments."""

    runs_back = True
    places: list[int]  # which gradients, of those of all floating arguments, and in which order
    structure: Structure
    form: str  # how value and gradient are returned
    on_tensors: bool  # whether results are tensors
    specs: list[Spec]  # those of results and gradients; empty where these are given as they come
    _usual: bool  # whether the gradient is one array or number, or a tuple of all there are, in their order

    def _result_of(self, arguments: Sequence[Any], *, tensors: bool) -> Any:
        at_once = self._on_arrays(values_of(arguments))
        if at_once is not None:
            return at_once[0]
        results, gradients = self._replayed_back(arguments)
        return self._joined([outcome(x, False) for x in (*results, *gradients)])

    def _on_tensors(self, values: tuple[Any, ...]) -> tuple[Any] | None:
        arrays = self._arrays_of(values)
        return None if arrays is None else self._on_arrays(arrays)

    def _on_arrays(self, values: tuple[Any, ...]) -> tuple[Any] | None:
        results = self._whole(values, reverse=True)
        if results is None:
            return None
        if self._usual and self._single:
            return ((results[0], results[1] if self.structure is LEAF else results[1:]),)
        return (self._joined(results),)

    def _rounded(self, values: Sequence[Any], random: np.random.Generator) -> Any:
        arguments = [np.array(x._value if isinstance(x, Tensor) else x) for x in (*values, *self.outside())]
        with modes.under(modes.current()._replace(recorder=None)):
            return self._joined([as_array(x) for x in value_and_gradients(self._complete, arguments, rounded=random)])

    def _joined(self, numbers: Sequence[Any]) -> Any:
        count = len(self._recipe.outputs)
        if self.specs:
            numbers = [_returned(x, spec, tensors=self.on_tensors) for x, spec in zip(numbers, self.specs, strict=True)]
        chosen = [numbers[count + i] for i in self.places]
        gradient = chosen[0] if self.structure is LEAF else self.structure.filled(chosen)
        return arranged(self.form, self._filled(numbers[:count]), gradient)


@called_at_once
class CompiledGradient(CompiledFunction):
    """A compiled gradient: ``tape.compile(tape.value_and_grad(f))``, of ``tape.func.grad`` and ``grad_and_value``."""

    def __init__(
        self, function: Callable[..., Any], static: Collection[Any], traced: Collection[Any], check: str
    ) -> None:
        super().__init__(function, static, traced, check)
        differentiated = made_of(function)
        assert differentiated is not None
        self._by: Differentiated = differentiated
        self._numbers = (
            differentiated.argnums if isinstance(differentiated.argnums, tuple) else (differentiated.argnums,)
        )
        self._reaches_out = False
        """Whether the function reads tensors that require grad: of tensors, the gradient does then too."""

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments | None:
        """Take a call apart; None for one that is refused, or whose results are of one kind or another.

        Where results can be differentiated further, it is a call of the function that differentiates, as of any other.
        """
        numbers = self._numbers
        if len(set(numbers)) != len(numbers) or not all(type(i) is int and 0 <= i < len(args) for i in numbers):
            return None
        leaves, structure = flattened(
            tuple(args[i] for i in numbers) if numbers is self._by.argnums else args[numbers[0]]
        )
        known = [x.dtype in _FLOATS if type(x) in (np.ndarray, Tensor) else type(x) in _NUMBERS for x in leaves]
        if not leaves or not all(known):
            return None
        if any(map(_requires_grad, leaves)):
            return super()._taken(args, kwargs)
        call = call_of(args, kwargs, self._fixed, (*self._values, *numbers), leaves)
        if call.tensors and (self._reaches_out or any(map(_requires_grad, call.values))):
            if not any(isinstance(x, Tensor) for x in leaves):
                return None  # arrays, or tensors where they depend on what requires grad
            call = call_of(args, kwargs, self._fixed, self._values)
            return call._replace(key=(*call.key, self._reaches_out))
        chosen = _values_of(call, numbers)
        return call._replace(chosen=(chosen, structure)) if len(chosen) == len(leaves) else None

    def __reduce__(self) -> Any:
        """Pickle by name, or by what is differentiated and how."""
        if named_as(self.__wrapped__) in (self, self.__wrapped__):
            return super().__reduce__()
        _, function, argnums, has_aux, _ = by = self._by
        named = named_as(function)
        if isinstance(named, CompiledFunction) and named.__wrapped__ is function:
            function = named
        parts = by.transform, function, argnums, has_aux, self.static, self.traced, self.check, self.mode, self.budget
        return _made_again, parts

    def _direct_form(self, program: CompiledProgram) -> ReturnForm | None:
        if not isinstance(program, GradientProgram):
            return super()._direct_form(program)
        structure, kind = program.structure, _FORMS.get(program.form)
        if kind is None or not program._single or program.specs or program.on_tensors:
            return None
        chosen = tuple([1 + k for k in program.places])
        if structure is LEAF or (structure.kind is tuple and structure.flat == len(chosen)):
            return ReturnForm(kind, chosen, structure is LEAF)
        try:
            steps = StructureSteps.of_result(structure)
        except Unknown:
            return None
        return ReturnForm(kind, chosen, steps=tuple(steps.words), filled=structure.filled)

    def _run(self, call: CallArguments, inputs: Sequence[Tensor] | None = None) -> Any:
        return super()._run(call, inputs) if call.chosen is None else self._called_as(call, call.chosen[0])

    def _otherwise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        by = {i + len(args) if i < 0 else i for i in self._numbers if type(i) is int and -len(args) <= i < len(args)}
        leaves, _ = flattened([args[i] for i in by])
        call = call_of(args, kwargs, self._fixed, self._values, leaves)
        return self._called_as(call, _values_of(call, by))

    def _passed_on(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        simple = None if kwargs or self._fixed or self._values else simple_inputs(args, self._numbers)
        if simple is None:
            return self._untried(args, kwargs)
        self.calls["dynamic"] += 1
        return self.__wrapped__(*simple[0])

    def _called_as(self, call: CallArguments, by: Collection[int]) -> Any:
        """Make a call in dynamic mode: values that it does not differentiate by are tensors, as in a recorded one."""
        self.calls["dynamic"] += 1
        others = inputs_of(call.values)
        for i in by:
            others[i] = call.values[i]
        args, kwargs = call.filled(others)
        begin = self._overhead.clock()
        result = self.__wrapped__(*args, **kwargs)
        self._overhead.latest = self._overhead.clock() - begin
        return result

    def _record(self, call: CallArguments, current: Specialization) -> tuple[Any, Recording]:
        if call.chosen is None:
            return super()._record(call, current)
        chosen, structure = call.chosen
        apart = current.may_repeat or is_separated(call.values)
        inputs = inputs_of(call.values, (lambda x: clone(input_of(x))) if apart else input_of)
        for i in chosen:
            inputs[i] = _variable(call.values[i])

        def run(tensors: Sequence[Tensor]) -> Any:
            args, kwargs = call.filled(tensors)
            result = modes.call_given(not _are_tensors(call), self._by.function, *args, **kwargs)
            return self._numbered(result) if self._by.is_number and not _are_tensors(call) else result

        result, recording = record_call(run, inputs, graded=True, **current.known())
        if recording.writes(call.values):
            recording.stop("it writes to an argument, which the caller sees")
            if apart:
                return self._run(call), recording
        outer = [x for x in recording.outer if isinstance(x, Tensor)]
        if outer and (_are_tensors(call) or reaches_out(outer)):
            self._reaches_out = recording.discarded = True
            return self._run(call), recording
        pair = self._is_pair(result)
        y = result[0] if pair else result
        self._by.check(y)
        wanted = [inputs[i] for i in chosen]
        # of arrays in another order than C's, gradients are summed in the order of memory
        recording.rounds |= any(not as_array(x).flags.c_contiguous for x in wanted)
        gradients = grad(y, wanted, allow_unused=True) if y._slot is not None else [None] * len(wanted)
        tensors = _are_tensors(call)
        numbers = [_handed(x.spec, g, tensors=tensors) for x, g in zip(wanted, gradients, strict=True)]
        value = _handed(SCALAR if self._by.is_number and not tensors else y.spec, y, tensors=tensors)
        if pair:
            aux, returned = flattened(result[1], none=True)
            value = value, returned.filled([released(x, tensors=tensors) for x in aux])
        return arranged(self._by.form, value, structure.filled(numbers)), recording

    def _numbered(self, result: Any) -> Any:
        """Return a result whose value, one element of an array, is of no dimensions: it is returned as a float."""
        if self._is_pair(result):
            return self._numbered(result[0]), result[1]
        return result.reshape(()) if isinstance(result, Tensor) and result.ndim and result.numel() == 1 else result

    def _is_pair(self, result: Any) -> bool:
        return self._by.has_aux and isinstance(result, tuple) and len(result) == len(("value", "aux"))

    def _finished(self, program: CompiledProgram, call: CallArguments) -> CompiledProgram:
        super()._finished(program, call)
        if call.chosen is None:
            return program
        chosen, structure = call.chosen
        program.__class__ = GradientProgram
        assert isinstance(program, GradientProgram)
        nodes = program._recipe.nodes
        graded = [i for i, node in enumerate(program._recipe.arguments) if nodes[node].differentiable]
        program.places, program.structure = [graded.index(i) for i in chosen], structure
        program.form = self._by.form
        shown = [*program._recipe.outputs, *[program._recipe.arguments[i] for i in graded]]
        program.on_tensors, program.specs = _are_tensors(call), [nodes[node].spec for node in shown]
        if not program.on_tensors:
            if self._by.is_number:
                program.specs[0] = SCALAR
            if all(spec.shape or spec is SCALAR for spec in program.specs):
                program.specs = []
        flat = structure is LEAF or (structure.kind is tuple and structure.flat == len(graded))
        in_order = flat and program.places == list(range(len(graded)))
        program._usual = in_order and program.form == "value_and_grad" and not program.specs
        return program


def _values_of(call: CallArguments, numbers: Collection[int]) -> list[int]:
    starts = [0, *accumulate(map(len, call.structure.parts[0].parts))]
    return [k for i in numbers for k, place in enumerate(call.places) if starts[i] <= place < starts[i + 1]]


def _requires_grad(x: Any) -> bool:
    return isinstance(x, Tensor) and x._slot is not None


def _are_tensors(call: CallArguments) -> bool:
    """Whether results are tensors: where there is one among what the gradient is by."""
    assert call.chosen is not None
    return any(isinstance(call.values[i], Tensor) for i in call.chosen[0])


def _variable(x: Any) -> Tensor:
    array = np.array(x._value if isinstance(x, Tensor) else float(x) if isinstance(x, int) else x, order="K")
    return leaf(scalar_or_array(array), requires_grad=True)


def _handed(spec: Spec, x: Tensor | None, *, tensors: bool) -> Any:
    value = np.zeros(spec.shape, spec.dtype) if x is None else np.array(x._value, order="K")
    return _returned(value if value.ndim else float(value), spec, tensors=tensors)


def _returned(x: Any, spec: Spec, *, tensors: bool) -> Any:
    """Return a result as the caller gets it; numbers come as floats, of float32 too."""
    value = np.array(x, spec.dtype) if type(x) is float and spec is not SCALAR else x
    return constant_tensor(value) if tensors else value


def compiled_gradient(compiled: CompiledFunction, transform: Any, argnums: Any, has_aux: bool) -> CompiledGradient:
    """Return the gradient of a compiled function, compiled."""
    of = compiled.static, compiled.traced, compiled.check, compiled.mode, compiled.budget
    return _made_again(transform, compiled, argnums, has_aux, *of)


def _made_again(
    transform: Any, function: Any, argnums: Any, has_aux: bool, static: Any, traced: Any, check: str, *tuned: Any
) -> CompiledGradient:
    """Return the compiled gradient of a function, as it was pickled."""
    while isinstance(function, CompiledFunction):
        function = function.__wrapped__
    made = CompiledGradient(transform(function, argnums, has_aux), static, traced, check)
    made.mode, made.budget = tuned
    return made


CompiledFunction.compiled_gradient = staticmethod(compiled_gradient)


_CHECKS = ("sample", "always", "never")
Mode: TypeAlias = Literal["default", "eager", "max", "max-autotune", "reduce-overhead"]
_OF_PYTORCH: dict[Any, Any] = {
    None: "default", "reduce-overhead": "default", "max-autotune": "max", "max-autotune-no-cudagraphs": "max",
}  # fmt: skip
"""Modes by PyTorch's names."""


def compile(  # noqa: A001 (PyTorch's name)
    fun: Callable[..., Any] | None = None,
    *,
    static: Collection[Any] = (),
    traced: Collection[Any] = (),
    check: Literal["sample", "always", "never"] = "sample",
    mode: Mode | None = "default",
    memory: str | int | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """Return a function of the same arguments and results that is recorded, and then replayed natively where it can be.

    ``fun`` is any function, method, lambda or partial, also one that ``value_and_grad`` or ``tape.func`` gave. Floats,
    NumPy arrays and tensors in its arguments, nested in tuples, lists, dicts and dataclasses, are values; everything
    else belongs to the signature. ``static`` and ``traced`` are names or positions of arguments that are fixed, or
    values, nevertheless. Results are NumPy's where the arguments are, else tensors, and own their memory.

    Values that leave for Python are guards; what the function reads from outside is compared, or read anew, at each
    call. Calls 4, 8, 16, ... of a program are ``check``-ed against dynamic mode: "sample", or "always", "never". What
    no program can hold runs in dynamic mode, with one CompileWarning; ``explain()`` tells what and why. Python's side
    effects happen only when Python runs. ValueError for another ``check`` or ``mode``, TypeError for what cannot be
    called.

    A program is run by an interpreter of native kernels until compiling it to machine code of its own has paid; results
    may then differ from dynamic mode by rounding. ``mode="max"`` compiles it before its first replay, ``mode="eager"``
    never. The decision counts calls and elements, not time, so that it is the same in each run. Where values leave for
    Python in the first call, others are dynamic until they pay for a recording, by time; in ``mode="max"`` none waits.

    ``memory`` is a limit for the workspace of a program, in bytes or as text, ``"500 MB"`` or ``"2GB"`` (of 1000 MB):
    long loops then keep what they carry at the begin of blocks of steps, and run a block forward again before its
    reverse, which costs at most one more forward pass. Programs are compiled before their first replay; MemoryError
    where one needs more all the same. The first calls, of dynamic mode, are not limited.

    PyTorch's ``fullgraph``, ``dynamic``, ``backend`` and ``options`` are taken, and change nothing; of its modes
    "max-autotune" is "max", "reduce-overhead" "default". ``disable=True`` returns ``fun``.

    >>> f = tape.compile(lambda x, n: (x**n).sum())
    >>> [f(np.array([1.0, 2.0]), 2) for _ in range(3)]
    [5.0, 5.0, 5.0]
    """
    del fullgraph, dynamic, backend, options
    mode = _OF_PYTORCH.get(mode, mode)
    if check not in _CHECKS:
        raise ValueError(f"compile: check is {check!r}; it is one of {', '.join(map(repr, _CHECKS))}")
    if mode not in MODES:
        raise ValueError(f"compile: mode is {mode!r}; it is one of {', '.join(map(repr, MODES))}")
    budget = None if memory is None else _bytes(memory)
    if budget is not None and mode == "eager":
        raise ValueError('compile: memory is of machine code, which mode="eager" has none of')
    if fun is None:
        return lambda function: compile(
            function, static=static, traced=traced, check=check, mode=mode, memory=memory, disable=disable
        )
    if not callable(fun):
        raise TypeError(f"compile: got a {type(fun).__name__}, which cannot be called")
    if disable:
        return fun
    kind = CompiledFunction if made_of(fun) is None else CompiledGradient
    compiled = kind(fun, _names(static), _names(traced), check)
    compiled.mode, compiled.budget = mode, budget
    return compiled


def _bytes(memory: Any) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([kMGT]?)(i?)B?", memory) if isinstance(memory, str) else None
    if match is not None:
        number, prefix, binary = match.groups()
        return int(float(number) * (1024 if binary else 1000) ** " kMGT".index(prefix or " "))
    if isinstance(memory, (str, bool)) or operator.index(memory) <= 0:
        raise ValueError(f'compile: memory is {memory!r}; it is a number of bytes, or text such as "500 MB"')
    return operator.index(memory)


def _names(positions_or_names: Any) -> Collection[Any]:
    alone = isinstance(positions_or_names, (str, int))
    return (positions_or_names,) if alone else tuple(positions_or_names)
