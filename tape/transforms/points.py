"""A function evaluated for a transform: arguments become tensors that require grad, results become what was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from kernels.foundation.locks import cached_property
from kernels.native import pool
from kernels.native.structs import LARGE
from kernels.programs.program import Recipe
from kernels.rules.scalar_loops import NodeRef
from tape.engine import backward
from tape.engine.double_backward import Derivatives
from tape.recording import record, views
from tape.recording.to_python import numbers_of, warn_of_detaching
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.grad_modes import inference_mode
from tape.tensors.operands import LARGEST, operand
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.tensor import Tensor, as_array, constant_tensor, is_tensor, leaf, scalar_or_array, taken
from tape.transforms.forward_mode import (
    filled_with,
    fresh_input,
    needs_graph,
    pulled,
    pushed,
    reaches_out,
    settle,
    zeros_for,
)

_NOTHING = type(None)
_USUAL = {Tensor, np.ndarray, np.float64, float, int}
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Evaluation:
    """A function evaluated at new tensors made of its arguments: these inputs, and what it returned.

    ``tensors`` says whether any input was given as a tensor; where none was, results are NumPy's. With ``writes`` the
    function may write to its arguments, as in PyTorch's forward mode, and the caller sees that. ``evaluated``, if the
    function has already been called: its inputs and what it returned.
    """

    needed = False
    aux: Any = None

    def __init__(
        self,
        api: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: Any,
        kwargs: Any,
        *,
        has_aux: bool,
        writes: bool = False,
        evaluated: tuple[list[Tensor], Any] | None = None,
    ) -> None:
        self.api, self.has_aux, self.writes = api, has_aux, writes
        by_number = type(argnums) is int and 0 <= argnums < len(args)
        numbers = argnums if by_number else argument_numbers(argnums, len(args))
        chosen = args[numbers] if by_number or isinstance(numbers, int) else tuple(args[i] for i in numbers)
        leaves, self.structure = flattened(chosen)
        self.tensors = any(map(is_tensor, leaves))
        if evaluated is not None:
            self.inputs, result = evaluated
        elif modes.active() or ((mode := modes.current()).grad and not mode.inference):
            result = self._evaluated(func, args, numbers, leaves, kwargs)
        else:
            with inference_mode(False):
                result = self._evaluated(func, args, numbers, leaves, kwargs)
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004 (a pair)
                raise RuntimeError(f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True")
            result, self.aux = result
        self.result = result
        self.tensors = self.tensors or self._is_within(args, kwargs)

    @cached_property
    def _returned(self) -> tuple[list[Any], Structure]:
        return flattened(self.result, none=True)

    @property
    def outputs(self) -> list[Any]:
        """The leaves of what the function returned."""
        return self._returned[0]

    @property
    def returned(self) -> Structure:
        """The structure of what the function returned."""
        return self._returned[1]

    @cached_property
    def _linked(self) -> list[Tensor]:
        """The tensors among outputs and aux that depend on anything that requires grad besides the inputs."""
        return self._linked_of([*self.outputs, *flattened(self.aux, none=True)[0]])

    def _is_within(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether results depend on another argument that requires grad, a transform around this one, or a recording.

        Results are tensors then, so that what is around sees how they depend on it.
        """
        recorder = modes.current().recorder
        known = getattr(recorder, "nodes", {})
        inputs = set(map(id, self.inputs))
        nodes = {known[id(y)] for y in self.outputs if id(y) in known and id(y) not in inputs}
        if nodes and _lead_to_arguments(getattr(recorder, "recipe", None), nodes):
            return True
        if not self._linked:
            return False
        arguments = flattened((args, kwargs), none=True)[0]
        return any(isinstance(x, Tensor) and x._slot is not None for x in arguments) or reaches_out(
            self._linked, self.inputs
        )

    def _evaluated(
        self, func: Callable[..., Any], args: tuple[Any, ...], numbers: Any, leaves: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        self.inputs = inputs = self._make_inputs(leaves, numbers)
        passed = list(map(clone, inputs)) if self.writes else inputs
        full, copies = list(args), self.structure.filled(passed)
        if isinstance(numbers, int):
            full[numbers] = copies
        else:
            for i, x in zip(numbers, copies, strict=True):
                full[i] = x
        result = modes.call_given(not self.tensors, func, *full, **kwargs)
        if self.writes:
            for x, copy in zip(leaves, passed, strict=True):
                if copy._version:
                    if isinstance(x, Tensor):
                        x.copy_(copy if needs_graph([copy], self.inputs) else copy.detach())
                    elif isinstance(x, np.ndarray):
                        x[...] = as_array(copy)
        return result

    def _make_inputs(self, leaves: list[Any], numbers: Any) -> list[Tensor]:
        if not leaves:
            raise ValueError(f"{self.api}: there is no number among the arguments to differentiate by")
        inputs = usual_inputs(leaves)
        if inputs is not None:
            return list(inputs)
        structures = [self.structure] if isinstance(numbers, int) else self.structure.parts
        named = zip([numbers] if isinstance(numbers, int) else numbers, structures, strict=True)
        paths = [(path, part.kind is None) for i, part in named for path in part.paths(f"argument {i}")]
        return [input_tensor(x, self.api, path, whole=whole) for x, (path, whole) in zip(leaves, paths, strict=True)]

    def check_tensors(self, api: str) -> None:
        """Raise unless the function returned tensors, and at least one."""
        if not self.outputs:
            raise RuntimeError(
                f"{api}: Expected f to be a function that has non-empty output (got output = {self.outputs})"
            )
        for y in self.outputs:
            if not isinstance(y, Tensor):
                raise RuntimeError(  # noqa: TRY004 (PyTorch's)
                    f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(y)}"
                )

    def release(self) -> None:
        """Detach results and aux from the inputs' graph alone; where no tensor was given they become NumPy's."""
        outputs, structure = self._returned
        values, aux = flattened(self.aux, none=True)
        linked = self._linked
        self.result = structure.filled([self._released(x, linked) for x in outputs])
        self.aux = aux.filled([self._released(x, linked) for x in values])

    def gradient(self) -> Any:
        """Return the gradient of the function's value, of one element; prepare the value and aux for the caller."""
        y = self.result
        aux_leaves, aux = flattened(self.aux, none=True)
        gradients = None
        if not self._linked_of(aux_leaves):
            gradients = backward.pulled(y, None, self.inputs, tensors=self.tensors, free=True)
        if gradients is not None:
            self.result = value_of(y, tensors=self.tensors)
            self.aux = aux.filled([self._released(x) for x in aux_leaves])
            return self.structure.filled(gradients)
        self.release()
        create = None if self.tensors else False
        pulls = pulled([y], self.inputs, [filled_with(1.0, y)], create=create, retain=self.needed)
        return self.out(zeros_for(pulls, self.inputs))

    def finished(self, *results: Any) -> tuple[Any, ...]:
        """Return the function's value, the results of the transform and, with ``has_aux``, aux; end the transform."""
        settle(self.inputs)
        return (self.result, *results, *([self.aux] if self.has_aux else []))

    def out(self, tensors: Iterable[Tensor], structure: Structure | None = None, *, as_tensors: bool = False) -> Any:
        """Return results in a structure, by default the inputs'.

        As arrays and floats, unless a tensor was given, or with ``as_tensors``.
        """
        results = tensors if as_tensors or self.tensors else [numbers_of(x) for x in tensors]
        return (structure or self.structure).filled(results)

    def _linked_of(self, outputs: list[Any]) -> list[Tensor]:
        """Return the tensors that depend on anything that requires grad besides the inputs."""
        traced = [x for x in outputs if isinstance(x, Tensor) and x._slot is not None]
        if not traced or not needs_graph(traced, self.inputs):
            return []
        return [x for x in traced if needs_graph([x], self.inputs)]

    def _released(self, x: Any, linked: Sequence[Tensor] = ()) -> Any:
        if not isinstance(x, Tensor):
            return x
        needed = any(x is other for other in linked)
        if needed and not self.tensors:
            warn_of_detaching(self.api)
        self.needed |= needed and self.tensors
        return x if needed and self.tensors else released(x, tensors=self.tensors)


def _lead_to_arguments(recipe: Recipe | None, nodes: set[int]) -> bool:
    if recipe is None:
        return True
    arguments = set(recipe.arguments)
    for step in reversed(list(recipe.steps)):
        nodes |= {base for node in nodes if (base := recipe.nodes[node].base) is not None}
        if step.result in nodes:
            nodes |= {x.node for x in step.operands if isinstance(x, NodeRef)}
        if not arguments.isdisjoint(nodes):
            break
    return not arguments.isdisjoint(nodes)


def value_of(y: Tensor, *, tensors: bool) -> Any:
    """Return a result without its history, as a tensor, or as an array or float."""
    value = y._value
    if type(value) is float:
        return constant_tensor(value) if tensors else value
    return y.detach() if tensors else numbers_of(y)


def released(x: Any, *, tensors: bool) -> Any:
    """Return a leaf of aux without its history, as a tensor, or as an array or float, in memory of its own."""
    if not isinstance(x, Tensor):
        return x
    if not tensors:
        numbers = numbers_of(x)
        return numbers if isinstance(numbers, float) else numbers.copy()
    if x._slot is None:
        return x
    return constant_tensor(x._value) if type(x._value) is float and modes.current().recorder is None else x.detach()


def usual_inputs(arguments: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return new leaves that require grad for arguments of the usual kinds; None if one is of another kind."""
    tensors: tuple[Any, ...] = ()
    if modes.active() and not modes.ON_MADE:
        tensors = tuple(map(taken, arguments))
        if _NOTHING not in map(type, tensors):
            return tensors
    if not _USUAL.issuperset(map(type, arguments)):
        return None
    tensors = tuple([_usual_input(argument) if x is None else x for argument, x in zip_longest(arguments, tensors)])
    return None if _NOTHING in map(type, tensors) else tensors


def _usual_input(argument: Any) -> Tensor | None:
    kind = type(argument)
    if kind is Tensor:
        alone = argument._slot is None and argument._form.spec.dtype.kind == "f" and modes.active()
        return leaf(argument._value, requires_grad=True) if alone else fresh_input(argument)
    if kind is np.ndarray:
        if argument.dtype not in _FLOATS or not argument.ndim:
            return None
        return _new_input(pool.call(argument.copy) if argument.nbytes >= LARGE else argument.copy())
    if kind is np.float64 or (kind is int and -LARGEST <= argument <= LARGEST):
        return _new_input(float(argument))
    return _new_input(argument) if kind is float else None


def _new_input(value: Any) -> Tensor:
    recorded = modes.current().recorder is not None
    return fresh_input(constant_tensor(value)) if recorded else leaf(value, requires_grad=True)


def input_tensor(argument: Any, api: str, path: str, *, whole: bool) -> Tensor:
    """Return an argument of a transform as a new tensor that requires grad; a tensor with history keeps its graph.

    Numbers become float64, and an array of integers that is a ``whole`` argument. ValueError and RuntimeError, as
    PyTorch's, or TypeError for what is no number, no float, no dtype of tensors.
    """
    if isinstance(argument, Tensor):
        return fresh_input(argument)
    array = np.array(as_tensor(argument, api, path)._value)
    if array.dtype.kind != "f":
        if array.ndim and not whole:
            raise TypeError(
                f"{api}: {path} is an array of dtype {array.dtype.name}, which has no gradient; convert it to floats, "
                "or pass it as another argument"
            )
        array = array.astype(np.float64)
    return _new_input(scalar_or_array(array))


def as_tensor(argument: Any, api: str, path: str) -> Tensor:
    """Return a number or array as a tensor, which may share memory; tensors as they are."""
    if isinstance(argument, Tensor):
        return argument
    number = isinstance(argument, (int, float)) and not isinstance(argument, bool)
    if not number and (isinstance(argument, type) or not hasattr(argument, "__array__")):
        raise ValueError(f"{api}: Thing passed to transform API must be Tensor, got {type(argument)} for {path}")
    record.note_escape(argument)
    try:
        taken = operand(argument)
    except TypeError as error:
        raise TypeError(f"{api}: {path}: {error}") from None
    return taken if isinstance(taken, Tensor) else constant_tensor(float(taken))


def argument_numbers(argnums: Any, count: int) -> Any:
    """Check argnums; return them counted from the first argument."""
    if isinstance(argnums, int):
        if not -count <= argnums < count:
            raise RuntimeError(f"Got argnum={argnums}, but only {count} positional inputs")
        return argnums % count
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")  # noqa: TRY004 (PyTorch's)
    if not argnums:
        raise RuntimeError("argnums must be non-empty")
    for number in argnums:
        if not isinstance(number, int):
            raise RuntimeError(f"argnum must be int, got: {type(number)}")  # noqa: TRY004 (PyTorch's)
    numbers = tuple(argument_numbers(number, count) for number in argnums)
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return numbers


Blocks = list[list[Tensor | None]]
"""For each output and each input a derivative of shape (*output, *input); None where there is no dependence."""


def by_rows(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, create: bool | None = None, chunk: int | None = None
) -> Blocks:
    """Return Jacobians by reverse mode: a cotangent for each element of the outputs, ``chunk`` of them in a sweep."""
    sizes = [y.spec.size for y in outputs]
    columns = _swept(
        _basis(outputs), chunk, lambda w, n: pulled(outputs, inputs, w, batch=n, create=create, retain=True)
    )
    blocks: Blocks = [[] for _ in outputs]
    for x, column in zip(inputs, _whole(columns, inputs), strict=True):
        for row, (y, part) in zip(blocks, zip(outputs, _parts(column, sizes), strict=True), strict=True):
            row.append(None if part is None else views.reshape(part, (*y.spec.shape, *x.spec.shape)))
    return blocks


def by_columns(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, create: bool | None = None, chunk: int | None = None
) -> Blocks:
    """Return Jacobians by forward mode: a tangent for each element of the inputs, ``chunk`` of them in a sweep."""
    sizes = [x.spec.size for x in inputs]
    rows = _swept(_basis(inputs), chunk, lambda t, n: pushed(outputs, inputs, t, batch=n, create=create))
    return [
        [
            None if part is None else _turned(part, y.spec.shape, x.spec.shape)
            for x, part in zip(inputs, _parts(row, sizes), strict=True)
        ]
        for y, row in zip(outputs, _whole(rows, outputs), strict=True)
    ]


def _turned(part: Tensor, output: tuple[int, ...], wanted: tuple[int, ...]) -> Tensor:
    order = (*range(1, len(output) + 1), 0)
    return views.reshape(views.permute(part, order), (*output, *wanted))


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    total, start, basis = sum(x.spec.size for x in tensors), 0, []
    for x in tensors:
        units = np.zeros((total, x.spec.size), x.spec.dtype)
        np.fill_diagonal(units[start:], 1)
        basis.append(constant_tensor(units.reshape(total, *x.spec.shape)))
        start += x.spec.size
    return basis


def _swept(
    basis: list[Tensor], chunk: int | None, sweep: Callable[[list[Tensor], int], Derivatives]
) -> Iterator[tuple[int, Derivatives]]:
    total = basis[0].spec.shape[0] if basis else 0
    step = chunk or max(total, 1)
    for start in range(0, total, step):
        n = min(step, total - start)
        yield n, sweep(basis if n == total else [w[start : start + n] for w in basis], n)


def _whole(chunks: Iterator[tuple[int, Derivatives]], like: Sequence[Tensor]) -> Derivatives:
    swept = list(chunks)
    if len(swept) == 1:
        return swept[0][1]
    joined: Derivatives = []
    for k, x in enumerate(like):
        parts = [(n, derivatives[k]) for n, derivatives in swept]
        if all(part is None for _, part in parts):
            joined.append(None)
        else:
            joined.append(views.cat([zeros_for([part], [x], (n,))[0] for n, part in parts]))
    return joined


def _parts(column: Tensor | None, sizes: Sequence[int]) -> list[Tensor | None]:
    if column is None or len(sizes) == 1:
        return [column] * len(sizes)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [column[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def filled(
    blocks: Blocks, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, like_output: bool
) -> list[list[Tensor]]:
    """Return the blocks, zeros for None: in the output's dtype or the input's."""
    return [
        [
            constant_tensor(np.zeros((*y.spec.shape, *x.spec.shape), (y if like_output else x).spec.dtype))
            if b is None
            else b
            for x, b in zip(inputs, row, strict=True)
        ]
        for y, row in zip(outputs, blocks, strict=True)
    ]
