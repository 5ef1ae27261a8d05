"""A compiled ``value_and_grad``: value and gradient in one native replay, forward and back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tape.compiled.call_key import Call, call_of, input_of
from tape.compiled.compiled_function import CompiledFunction
from tape.compiled.compiled_program import CompiledProgram, as_number
from tape.compiled.recordings import Again, Recording, record_call
from tape.compiled.results import as_given
from tape.engine.backward import grad
from tape.tensors.pytrees import LEAF, Structure, flattened
from tape.tensors.tensor import Tensor, leaf, scalar_or_array
from tape.transforms.value_and_grad import Differentiated, value_and_grad

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class GradientProgram(CompiledProgram):
    """The program of a function that returns a number, with the gradient by some of its arguments."""

    places: list[int]
    """Which gradients, of those of all floating arguments, and in which order."""
    structure: Structure
    _usual: bool
    """Whether the gradient is one array or number, or a tuple of all there are, in their order."""

    def replay(self, values: Sequence[Any], *, tensors: bool) -> Any:
        """Return value and gradient."""
        del tensors
        arguments = [*values, *self.outside()] if self._outside else values
        results, gradients = self._replayed_back(arguments)
        return self._joined([as_number(x) for x in results], [as_number(x) for x in gradients])

    def _on_arrays(self, values: tuple[Any, ...]) -> tuple[Any] | None:
        results = self._whole(values, reverse=True)
        if results is None:
            return None
        if self._usual and self._single:
            return ((results[0], results[1] if self.structure is LEAF else results[1:]),)
        count = len(self._recipe.outputs)
        return (self._joined(results[:count], results[count:]),)

    def _joined(self, results: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, Any]:
        if self.structure is LEAF:
            return self._filled(results), gradients[self.places[0]]
        return self._filled(results), self.structure.filled([gradients[i] for i in self.places])


class CompiledGradient(CompiledFunction):
    """A compiled function that returns value and gradient: ``tape.compile(tape.value_and_grad(f))``."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: Collection[Any],
        traced: Collection[Any],
        check: str,
    ) -> None:
        super().__init__(function, static, traced, check)
        differentiated: Differentiated = function.differentiated  # type: ignore[attr-defined]
        self._by = differentiated
        compiled = CompiledFunction(differentiated.function, static, traced, check)
        self._on_tensors = differentiated.of(functools.partial(compiled))

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Take a call apart; None for one on tensors, or one that is refused."""
        numbers = self._by.argnums if isinstance(self._by.argnums, tuple) else (self._by.argnums,)
        if len(set(numbers)) != len(numbers) or not all(type(i) is int and 0 <= i < len(args) for i in numbers):
            return None
        leaves, structure = flattened(
            tuple(args[i] for i in numbers) if numbers is self._by.argnums else args[numbers[0]]
        )
        if not leaves or not all(map(_is_differentiable, leaves)):
            return None
        call = call_of(args, kwargs, self.static, (*self.traced, *numbers))
        if call.tensors:
            return None
        starts = np.cumsum([0, *map(len, call.structure.parts[0].parts)]).tolist()
        chosen = [k for i in numbers for k, place in enumerate(call.places) if starts[i] <= place < starts[i + 1]]
        return call._replace(chosen=(chosen, structure)) if len(chosen) == len(leaves) else None

    def _saved_gradient(self) -> tuple[tuple[int, ...], bool, bool]:
        numbers = self._by.argnums
        return (
            (numbers, False, self._by.has_aux) if isinstance(numbers, tuple) else ((numbers,), True, self._by.has_aux)
        )

    def _otherwise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call on tensors: the function is compiled, its gradient is theirs to differentiate further."""
        return self._on_tensors(*args, **kwargs)

    def _run(self, call: Call) -> Any:
        self.calls["dynamic"] += 1
        args, kwargs = call.filled(call.values)
        return self.__wrapped__(*args, **kwargs)

    def _record(self, call: Call, *, again: Again) -> tuple[Any, Recording]:
        assert call.chosen is not None
        chosen, structure = call.chosen
        inputs = [_variable(x) if i in chosen else input_of(x) for i, x in enumerate(call.values)]

        def run(tensors: Sequence[Tensor]) -> Any:
            args, kwargs = call.filled(tensors)
            return self._by.function(*args, **kwargs)

        result, recording = record_call(run, inputs, again=again, graded=True)
        pair = self._by.has_aux and isinstance(result, tuple) and len(result) == len(("value", "aux"))
        y = result[0] if pair else result
        self._by.check(y)
        wanted = [inputs[i] for i in chosen]
        gradients = grad(y, wanted, allow_unused=True) if y._slot is not None else [None] * len(wanted)
        numbers = [_number(x, g) for x, g in zip(wanted, gradients, strict=True)]
        value: Any = np.asarray(y._value).item()
        return (
            (value, as_given(result[1], tensors=False, detach=True)) if pair else value,
            structure.filled(numbers),
        ), recording

    def _finished(self, program: CompiledProgram, call: Call) -> CompiledProgram:
        assert call.chosen is not None
        chosen, structure = call.chosen
        program.__class__ = GradientProgram
        assert isinstance(program, GradientProgram)
        nodes = program._recipe.nodes
        graded = [i for i, node in enumerate(program._recipe.arguments) if nodes[node].differentiable]
        program.places, program.structure = [graded.index(i) for i in chosen], structure
        flat = structure is LEAF or (structure.kind is tuple and structure.flat == len(graded))
        program._usual = flat and program.places == list(range(len(graded)))
        return program


def _is_differentiable(x: Any) -> bool:
    return type(x) in (float, int, np.float64, np.float32) or (type(x) is np.ndarray and x.dtype in _FLOATS)


def _variable(x: Any) -> Tensor:
    """Return a value as a leaf of its own."""
    array = np.array(float(x) if isinstance(x, int) else x, order="K")
    return leaf(scalar_or_array(array), requires_grad=True)


def _number(x: Tensor, gradient: Tensor | None) -> Any:
    """Return a gradient as NumPy has it: of a number a float."""
    value = np.zeros(x.spec.shape, x.spec.dtype) if gradient is None else np.array(gradient._value, order="K")
    return value if value.ndim else float(value)


def compiled_gradient(compiled: CompiledFunction, argnums: Any, has_aux: bool) -> CompiledGradient:
    """Return value and gradient of a compiled function, compiled."""
    both = value_and_grad(compiled.__wrapped__, argnums, has_aux)
    return CompiledGradient(both, compiled.static, compiled.traced, compiled.check)


CompiledFunction.compiled_gradient = staticmethod(compiled_gradient)
