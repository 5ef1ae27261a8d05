"""Points of evaluation and derivatives between tensors, in either direction."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from types import FrameType
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, GradientObserver, Seed
from kernels.foundation.tables import cached_property
from kernels.native import pool
from kernels.native.structs import LARGE, TAPE_BITS
from kernels.programs.program import Recipe
from kernels.rules.scalar_loops import NodeRef
from kernels.sweeps import forward as sweeps
from tape import errors
from tape.engine import backward
from tape.engine.accumulate_grad import tape_of
from tape.engine.backward import grad
from tape.engine.double_backward import Derivation, Derivatives, derived
from tape.engine.graph_observers import BEGINS, family_offset
from tape.engine.sweep_run import family_offset_of, leaves_of
from tape.errors import shorten
from tape.recording import record, views
from tape.recording.to_python import numbers_of, warn_of_detaching
from tape.recording.views import clone, stack
from tape.tensors import grad_modes, modes
from tape.tensors.grad_modes import inference_mode
from tape.tensors.operands import LARGEST, operand
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.tensor import (
    AccumulateGrad,
    Tensor,
    as_array,
    constant_tensor,
    is_tensor,
    leaf,
    root,
    scalar_or_array,
    taken,
)

# Derivatives between tensors, in either direction, for ``tape.autograd.functional`` and ``tape.func``.
#
# Forward mode is a native sweep over the tape's instructions, from leaves with tangents to results. Where the outcome
# is to be differentiated again, it is the derivative of a recorded backward by its cotangents, which is linear in
# them.


Tensors = Sequence[Tensor]
_LONG = 256  # instructions


def fresh_input(x: Tensor, *, linked: bool = True) -> Tensor:
    """Return a new tensor that requires grad, of an input's value: what a transform differentiates by.

    ``linked``: a copy in the graph, if the input requires grad. RuntimeError for a dtype that has no gradients.
    """
    if x.spec.dtype.kind != "f":
        raise RuntimeError(errors.NO_GRADIENTS.format(x.spec.dtype.name))
    if modes.current().recorder is None and not (linked and x._slot is not None):
        return _begun(leaf(x._value, requires_grad=True))
    copy = clone(x)
    if copy._slot is not None:
        return copy
    grad_modes.check_requires_grad(copy)
    return _begun(root(copy))


def _begun(x: Tensor) -> Tensor:
    """Note where a leaf begins, so that sweeps for its gradient need not look at a long tape before it."""
    tape = modes.own_tape()
    if tape.entries.count > _LONG:
        BEGINS[x._slot] = tape.number << TAPE_BITS | tape.entries.next
    return x


def needs_graph(outputs: Tensors, inputs: Tensors, weights: Tensors = ()) -> bool:
    """Whether outputs, or their derivatives by these inputs, depend on anything else that requires grad."""
    if not modes.is_grad_enabled():
        return False
    if any(w._slot is not None for w in weights):
        return True
    if len(outputs) == 1 and backward.leads(outputs[0], tuple(inputs)):  # the usual case
        return False
    known = {x._slot for x in inputs}
    return any(x not in known and not hasattr(x, "is_transform_input_done") for x in leaves_of(outputs))


def reaches_out(outputs: Tensors, inputs: Tensors = ()) -> bool:
    """Whether outputs depend on an input, other than these, of a transform whose function is running up the stack.

    Those who run functions hold what they made of the arguments in a local variable ``inputs``.
    """
    if not modes.is_grad_enabled():
        return False
    open_leaves = [x for x in leaves_of(outputs) if not hasattr(x, "is_transform_input_done")]
    owners = {id(x.owner()) for x in open_leaves} - {id(None), *map(id, inputs)}
    frame: FrameType | None = sys._getframe(1) if owners else None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("tape."):
            held = frame.f_locals.get("inputs")
            if isinstance(held, (list, tuple)) and any(id(x) in owners for x in held):
                return True
        frame = frame.f_back
    return False


def settle(inputs: Tensors) -> None:
    """Mark the inputs of a transform that is over: nobody can differentiate by them any more."""
    for x in inputs:
        if type(x._slot) is AccumulateGrad:
            x._slot.is_transform_input_done = True


def pushed_arrays(outputs: Tensors, inputs: Tensors, tangents: Sequence[Any], batch: int = 0) -> list[Array | None]:
    """Return the tangents of outputs for those of inputs, which are leaves; None where an output does not depend.

    With ``batch`` tangents have a leading axis of that length.
    """
    sources = {x._slot: Seed(x._slot, x.spec, t) for x, t in zip(inputs, tangents, strict=True)}
    targets: dict[Any, GradientObserver] = {}
    for y in outputs:
        record.note_unrecorded(y, "a derivative")
        if type(y._slot) is int:
            targets[y._slot] = GradientObserver(y._slot, y.spec, family_offset(y) or 0)
    _push(list(targets.values()), sources, batch)
    arrays: list[Array | None] = []
    for y in outputs:
        tangent = targets[y._slot].gradient if y._slot in targets else None
        if y._slot in sources:
            tangent = np.asarray(sources[y._slot].value)
        arrays.append(None if tangent is None else tangent.copy())
    return arrays


def _push(targets: list[GradientObserver], sources: dict[Any, Seed], batch: int) -> None:
    groups: dict[int, list[GradientObserver]] = {}
    for observer in targets:
        groups.setdefault(observer.key >> TAPE_BITS, []).append(observer)
    for group in groups.values():
        tape = tape_of(group[0].key)
        with tape.reading():
            reached = sweeps.forward(tape.entries, tape.number, list(sources.values()), group, batch)
        if reached:
            foreign = [
                GradientObserver(slot, spec, family_offset_of(slot) or 0) for slot, spec in reached if spec is not None
            ]
            _push(foreign, sources, batch)
            foreign_seeds = [Seed(o.key, o.spec, o.gradient, 0) for o in foreign if o.gradient is not None]
            fixed = [o.key for o in foreign if o.gradient is None]
            with tape.reading():
                sweeps.forward(tape.entries, tape.number, [*sources.values(), *foreign_seeds], group, batch, fixed)


def pulled(
    outputs: Tensors,
    inputs: Tensors,
    weights: Tensors,
    *,
    batch: int = 0,
    create: bool | None = None,
    retain: bool = False,
) -> Derivatives:
    """Return the gradients of inputs for cotangents of outputs; None where no output depends on an input.

    ``create``: record how they are computed, or, for None, if anything but the inputs requires grad.
    """
    if create is None and batch:  # asked once, where a function is mapped: of one example
        create = needs_graph(outputs, inputs, weights)
    run = partial(_pull, create=create, retain=retain)
    return derived(Derivation(run, pulls=True, create=create), outputs, inputs, weights, batch)


def pushed(
    outputs: Tensors, inputs: Tensors, tangents: Tensors, *, batch: int = 0, create: bool | None = None
) -> Derivatives:
    """Return the tangents of outputs for those of inputs; None where an output depends on no input. See pulled."""
    derivation = Derivation(partial(_pushed, create=create), pulls=False, create=create)
    return derived(derivation, outputs, inputs, tangents, batch)


def _pull(
    outputs: Tensors,
    inputs: Tensors,
    weights: Tensors,
    batch: int,
    *,
    create: bool | None,
    retain: bool,
    again: bool = False,
) -> Derivatives:
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if y._slot is not None]
    if not pairs:
        return [None] * len(inputs)
    roots, cotangents = zip(*pairs, strict=True)
    create = needs_graph(roots, inputs, cotangents) if create is None else create
    gradients = grad(
        roots,
        inputs,
        cotangents,
        retain_graph=retain or create or again,
        create_graph=create,
        allow_unused=True,
        is_grads_batched=batch > 0,
    )
    return list(gradients)


def _pushed(
    outputs: Tensors, inputs: Tensors, tangents: Tensors, batch: int, *, create: bool | None, again: bool = False
) -> Derivatives:
    del again  # a forward sweep frees nothing
    roots = [y for y in outputs if y._slot is not None]
    if needs_graph(roots, inputs, tangents) if create is None else create:
        if not batch:
            return _pulled_twice(outputs, inputs, [tangents])[0]
        rows = _pulled_twice(outputs, inputs, [[t[k] for t in tangents] for k in range(batch)])
        return [None if any(t is None for t in column) else stack(column) for column in zip(*rows, strict=True)]
    arrays = pushed_arrays(outputs, inputs, [t._value for t in tangents], batch)
    return [None if t is None else constant_tensor(scalar_or_array(t)) for t in arrays]


def _pulled_twice(outputs: Tensors, inputs: Tensors, rows: Sequence[Tensors]) -> list[Derivatives]:
    """Return the tangents of outputs for each row of those of inputs, by the gradient of a gradient, recorded."""
    with grad_modes.enable_grad():
        weights = [fresh_input(filled_with(1.0, y)) for y in outputs]
        gradients = _pull(outputs, inputs, weights, 0, create=True, retain=True)
        pulled = [(i, g) for i, g in enumerate(gradients) if g is not None and g._slot is not None]
        if not pulled:
            return [[None] * len(outputs) for _ in rows]
        pulled_back = [g for _, g in pulled]
        directions = [[tangents[i] for i, _ in pulled] for tangents in rows]
        return [_pull(pulled_back, weights, along, 0, create=True, retain=True) for along in directions]


def zeros_for(derivatives: Derivatives, like: Tensors, lead: tuple[int, ...] = ()) -> list[Tensor]:
    """Return derivatives, zeros for None; ``lead`` are the extents of a leading axis."""
    return [filled_with(0.0, x, lead) if d is None else d for d, x in zip(derivatives, like, strict=True)]


def filled_with(value: float, like: Tensor, lead: tuple[int, ...] = ()) -> Tensor:
    """Return a tensor of one number, of the shape and dtype of another."""
    return constant_tensor(scalar_or_array(np.full((*lead, *like.spec.shape), value, like.spec.dtype)))


# A function evaluated for a transform: arguments become tensors that require grad, results become what was given.

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
        try:
            if evaluated is not None:
                self.inputs, result = evaluated
            elif modes.active() or ((mode := modes.current()).grad and not mode.inference):
                result = self._evaluated(func, args, numbers, leaves, kwargs)
            else:
                with inference_mode(False):
                    result = self._evaluated(func, args, numbers, leaves, kwargs)
        except Exception as error:
            shorten(error)
            raise
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004 (a pair)
                raise RuntimeError(f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True")
            result, self.aux = result
        self.result, (self.outputs, self.returned) = result, flattened(result, none=True)
        """What the function returned; its leaves and their structure."""
        self.tensors = self.tensors or self._is_within(args, kwargs)

    @cached_property
    def _linked(self) -> list[Tensor]:
        """The tensors among outputs and aux that depend on anything that requires grad besides the inputs."""
        return self._linked_of([*self.outputs, *flattened(self.aux, none=True)[0]])

    def _is_within(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether results depend on another argument that requires grad, a transform around this one, or a recording.

        Results are tensors then, so that what is around sees how they depend on it.
        """
        recorder = modes.current().recorder
        node_of: Any = getattr(recorder, "node_of", lambda _: None)
        inputs = set(map(id, self.inputs))
        nodes = {node_of(y) for y in self.outputs if isinstance(y, Tensor) and id(y) not in inputs} - {None}
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
        values, aux = flattened(self.aux, none=True)
        linked = self._linked
        self.result = self.returned.filled([self._released(x, linked) for x in self.outputs])
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

    def _released(self, x: Any, linked: Tensors = ()) -> Any:
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
        return fresh_input(argument)
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


def by_rows(outputs: Tensors, inputs: Tensors, *, create: bool | None = None, chunk: int | None = None) -> Blocks:
    """Return Jacobians by reverse mode: a cotangent for each element of the outputs, ``chunk`` of them in a sweep."""
    sizes = [y.spec.size for y in outputs]
    sweep = partial(pulled, outputs, inputs, create=create, retain=True)
    blocks: Blocks = [[] for _ in outputs]
    for x, column in zip(inputs, _in_chunks(sweep, outputs, inputs, chunk), strict=True):
        for row, (y, part) in zip(blocks, zip(outputs, _parts(column, sizes), strict=True), strict=True):
            row.append(None if part is None else views.reshape(part, (*y.spec.shape, *x.spec.shape)))
    return blocks


def by_columns(outputs: Tensors, inputs: Tensors, *, create: bool | None = None, chunk: int | None = None) -> Blocks:
    """Return Jacobians by forward mode: a tangent for each element of the inputs, ``chunk`` of them in a sweep."""
    sizes = [x.spec.size for x in inputs]
    sweep = partial(pushed, outputs, inputs, create=create)
    blocks: Blocks = []
    for y, row in zip(outputs, _in_chunks(sweep, inputs, outputs, chunk), strict=True):
        order = (*range(1, len(y.spec.shape) + 1), 0)
        turned = [None if part is None else views.permute(part, order) for part in _parts(row, sizes)]
        pairs = zip(inputs, turned, strict=True)
        blocks.append([z if z is None else views.reshape(z, (*y.spec.shape, *x.spec.shape)) for x, z in pairs])
    return blocks


def _basis(tensors: Tensors) -> list[Tensor]:
    total, start, basis = sum(x.spec.size for x in tensors), 0, []
    for x in tensors:
        units = np.zeros((total, x.spec.size), x.spec.dtype)
        np.fill_diagonal(units[start:], 1)
        basis.append(constant_tensor(units.reshape(total, *x.spec.shape)))
        start += x.spec.size
    return basis


def _in_chunks(sweep: Callable[..., Derivatives], start: Tensors, end: Tensors, chunk: int | None) -> Derivatives:
    """Sweep from all unit vectors at one side, ``chunk`` of them at once; return the derivatives at the other."""
    basis = _basis(start)
    total = basis[0].spec.shape[0] if basis else 0
    step = min(chunk or total, total)
    if step == total:
        return sweep(basis, batch=total) if total else [None] * len(end)
    counts = [min(step, total - at) for at in range(0, total, step)]
    swept = [sweep([w[k * step : k * step + n] for w in basis], batch=n) for k, n in enumerate(counts)]
    joined: Derivatives = []
    for k, x in enumerate(end):
        parts = [derivatives[k] for derivatives in swept]
        pairs = zip(parts, counts, strict=True)
        whole = any(part is not None for part in parts)
        joined.append(views.cat([zeros_for([part], [x], (n,))[0] for part, n in pairs]) if whole else None)
    return joined


def _parts(column: Tensor | None, sizes: Sequence[int]) -> list[Tensor | None]:
    if column is None or len(sizes) == 1:
        return [column] * len(sizes)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [column[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def filled(blocks: Blocks, outputs: Tensors, inputs: Tensors, *, like_output: bool) -> list[list[Tensor]]:
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
