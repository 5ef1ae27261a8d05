"""`value_and_grad`: signatures of differentiated functions, values, gradients."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.foundation.specs import Spec
from kernels.programs import program as recipes
from kernels.programs.program import ProgramError
from tape.engine import backward
from tape.errors import shorten
from tape.tensors import modes
from tape.tensors.operands import operand
from tape.tensors.pytrees import LEAF, Structure, flattened
from tape.tensors.tensor import Array, Tensor, constant_tensor, taken
from tape.transforms.points import Evaluation, released, settle, usual_inputs, value_of

_KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "biuf"}
"""The kinds of numbers that an argument may be, by the kind of dtype of the recorded number."""
_WORK = 10_000
"""Steps spent on whether two strided arrays share memory; if that is not decided by then, they count as sharing it."""


def argument_value(name: str, argument: Any, spec: Spec) -> Array | float:
    """Return an argument's value, an array of the recorded shape and dtype or a float; TypeError if it does not fit."""
    kind = type(argument)
    if kind is np.ndarray and argument.dtype is spec.dtype and argument.shape == spec.shape:
        return argument  # type: ignore[no-any-return]
    if kind is float and not spec.shape and spec.dtype.kind == "f":
        return argument  # type: ignore[no-any-return]
    value = argument._value if isinstance(argument, Tensor) else argument
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array, whose mask programs do not know; fill it first: x.filled(value)")
    if not spec.shape and np.ndim(value) == 0:
        return _number(name, argument, value, spec)
    try:
        array = np.asarray(value)
    except ValueError as error:  # nested lists of different lengths
        raise TypeError(f"{name}: {error}") from None
    if array.shape != spec.shape or array.dtype.newbyteorder("=") != spec.dtype:
        raise _misfit(name, f"{array.dtype.name}[{', '.join(map(str, array.shape))}]", spec)
    return array


def _number(name: str, argument: Any, value: Any, spec: Spec) -> Array:
    plain = type(value) in (bool, int, float)
    if not plain and not isinstance(value, (np.generic, np.ndarray)):
        raise _misfit(name, type(argument).__name__, spec)
    kind = {bool: "b", int: "i", float: "f"}[type(value)] if plain else value.dtype.kind
    fits = kind in _KINDS[spec.dtype.kind]
    if fits and not plain and spec.dtype.kind in "iu":
        fits = np.can_cast(value.dtype, spec.dtype, "safe")
    if not fits:
        raise _misfit(name, type(value).__name__ if plain else f"{value.dtype.name}[]", spec)
    try:
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(spec.dtype) if not plain else np.array(value, spec.dtype)
    except OverflowError as error:
        raise TypeError(f"{name}: {error}; the program was recorded with {recipes.describe(spec)}") from None


def _misfit(name: str, got: str, spec: Spec) -> TypeError:
    article = "" if "[" in got else "an " if got[0] in "aeiou" else "a "
    return TypeError(
        f"{name}: got {article}{got}, but the program was recorded with {recipes.describe(spec)}; record it anew"
    )


def check_written(names: Sequence[str], arguments: Sequence[Any], written: Collection[int]) -> None:
    """Raise unless each argument that is written can be, and is seen by no other argument."""
    for i in written:
        array = _memory(arguments[i])
        if array is None:
            continue
        if not array.flags.writeable:
            raise ProgramError(f"{names[i]}: the program writes to it, and the array is read-only; give a copy")
        if any(step == 0 and n > 1 for n, step in zip(array.shape, array.strides, strict=True)):
            raise ProgramError(
                f"{names[i]}: the program writes to it, and more than one of its elements refer to a single memory "
                "location; give a copy"
            )
        for j, seen in enumerate(arguments):
            if j != i and (seen is arguments[i] or _meet(array, _memory(seen))):
                raise ProgramError(
                    f"{names[i]} is written by the program, and {names[j]} has the same memory, in which a replay "
                    "would not see that; give a copy of one of them"
                )


def share_memory(arguments: Sequence[Any]) -> bool:
    """Whether an element of some argument is one of another, too."""
    tensors = [id(x) for x in arguments if isinstance(x, Tensor)]
    if len({*tensors}) < len(tensors):
        return True
    arrays = [array for array in map(_memory, arguments) if array is not None and array.size]
    open_: list[tuple[int, Array]] = []
    for low, high, array in sorted([(*byte_bounds(x), x) for x in arrays], key=operator.itemgetter(0)):
        open_ = [(end, other) for end, other in open_ if end > low]
        if any(_meet(array, other) for _, other in open_):
            return True
        open_.append((high, array))
    return False


def _memory(argument: Any) -> Array | None:
    value = argument._value if isinstance(argument, Tensor) else argument
    if isinstance(argument, Tensor) and type(value) is float:
        return np.empty(())
    return value if isinstance(value, np.ndarray) else None


def _meet(a: Array, b: Array | None) -> bool:
    if b is None or not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return a function of the same arguments that gives ``fun``'s value and its gradient.

    The positional arguments that ``argnums`` names are what it is differentiated by: a number, array or tensor, or
    dicts, lists, tuples and dataclasses of them. They reach ``fun`` as tensors of its own, in that structure, and the
    gradient has their structure and shapes; with a tuple of ``argnums`` it is a tuple. All other arguments, and
    keywords, are passed as they are. ``fun`` returns one floating element; with ``has_aux`` a pair of that and
    anything else, and the result is ``((value, aux), gradient)``.

    NumPy in, NumPy out: the value is a float, gradients are arrays of the arguments' dtypes, and floats for numbers;
    tensors in ``aux`` are arrays. Tensors in, tensors out: where any of those arguments holds a tensor, all results
    are, and can be differentiated further, by whatever they depend on that requires grad; also where they depend on
    another argument that does, or on that of a transform around this one. Python ints count as floats,
    an array of integers only where it is a whole argument. Raises, naming its path, for anything else in a structure:
    TypeError for a dtype that has no gradient, ValueError for what is no number; TypeError for another result.

    It fits SciPy: ``minimize(tape.value_and_grad(f), x0, jac=True)``.

    >>> def loss(p, x):
    ...     return ((p["a"] * x + p["b"]) ** 2).sum()
    >>> value, gradient = tape.value_and_grad(loss)({"a": 2.0, "b": np.zeros(2)}, np.array([1.0, 2.0]))
    >>> value, gradient["a"], gradient["b"].tolist()
    (20.0, 20.0, [4.0, 8.0])
    """
    numbers = argnums if isinstance(argnums, int) else tuple(argnums)
    compiled = compiled_gradient(fun, value_and_grad, numbers, has_aux)
    if compiled is not None:
        return compiled
    chosen = chosen_by(numbers)
    name = f"value_and_grad({getattr(fun, '__name__', repr(fun))})"

    def check(y: Any) -> None:
        if not isinstance(y, Tensor) or y._form.spec.size != 1 or y._form.spec.dtype.kind != "f":
            is_tensor = isinstance(y, Tensor)
            kind = f"{y.spec.dtype.name} of shape {list(y.spec.shape)}" if is_tensor else f"a {type(y).__name__}"
            remedy = ": its .sum(), say, or use tape.func.jacrev" if is_tensor and y._form.spec.size > 1 else ""
            must = "it must return a tensor of one floating element"
            raise TypeError(f"{name}: the function returned {kind}; {must}{remedy}")

    @functools.wraps(fun)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        try:
            value, gradients, aux = differentiated(name, fun, args, numbers, chosen, kwargs, check, has_aux=has_aux)
        except Exception as error:
            shorten(error)
            raise
        if isinstance(value, np.ndarray):
            value = value.item()
        return ((value, aux) if has_aux else value), gradients

    made_with(both, Differentiated(value_and_grad, fun, numbers, has_aux, check))
    return both


class Differentiated(NamedTuple):
    """What a gradient function was made of, for who compiles it; ``transform`` made it."""

    transform: Callable[..., Any]
    function: Callable[..., Any]
    argnums: int | tuple[int, ...]
    has_aux: bool
    check: Callable[[Any], None]  # raises for another result than a tensor of one floating element

    @property
    def is_number(self) -> bool:
        """Whether the value, of arrays, is a float of Python's."""
        return self.transform is value_and_grad

    @property
    def form(self) -> str:
        """How value and gradient are returned: see :func:`arranged`."""
        return f"{self.transform.__name__} with aux" if self.has_aux else self.transform.__name__


_MADE: WeakKeyDictionary[Callable[..., Any], Differentiated] = WeakKeyDictionary()


def made_with(function: Callable[..., Any], differentiated: Differentiated) -> None:
    """Note what a gradient function was made of: by itself, since ``functools.wraps`` copies attributes."""
    _MADE[function] = differentiated


def made_of(function: Any) -> Differentiated | None:
    """Return what a gradient function was made of; None of any other function, one that wraps such a one, too."""
    return _MADE.get(function) if type(function) is FunctionType else None


def arranged(form: str, value: Any, gradient: Any) -> Any:
    """Return a value, with aux a pair, and a gradient as the transform of this name does."""
    if form.startswith("value"):
        return value, gradient
    if form.startswith("grad_and_value"):
        return gradient, value
    return (gradient, value[1]) if form.endswith("aux") else gradient


def compiled_gradient(
    fun: Callable[..., Any], transform: Callable[..., Any], argnums: Any, has_aux: bool
) -> Callable[..., Any] | None:
    """Return what a transform gives of a compiled function, compiled; None of any other function."""
    compiled = getattr(type(fun), "compiled_gradient", None)
    return None if compiled is None else compiled(fun, transform, argnums, has_aux)


Evaluated = tuple[tuple[Tensor, ...], Structure | None, bool, Any]
"""The inputs made of arguments; their structure, None for a plain tuple; whether one was a tensor; the result."""


Chosen = tuple[int, int]
"""The largest argument number (huge for unusual ones), and n where the numbers are 0 to n - 1 in order, else -1."""


def chosen_by(argnums: Any) -> Chosen:
    """Return what :func:`evaluated_at` needs to know of argument numbers."""
    numbers = argnums if type(argnums) is tuple else (argnums,)
    if not numbers or not all(type(i) is int and i >= 0 for i in numbers) or len(set(numbers)) != len(numbers):
        return sys.maxsize, -1
    return max(numbers), len(numbers) if numbers is argnums and numbers == tuple(range(len(numbers))) else -1


def evaluated_at(
    func: Callable[..., Any], args: tuple[Any, ...], argnums: Any, chosen: Chosen, kwargs: dict[str, Any]
) -> Evaluated | None:
    """Evaluate a function at arguments of the usual kinds, on this thread's tape without observers; else None."""
    (last, whole), tape = chosen, modes.active()
    if last >= len(args) or not tape:
        return None
    alone = type(argnums) is int
    if alone and len(args) == 1 and not kwargs and not modes.ON_MADE:  # apart: it takes 2 us less
        x = taken(args[0])
        if x is not None:
            inputs: Any = (x,)  # by this name points.py finds it
            before, within = tape.given_arrays, tape.in_transform  # this thread's, since x was made
            modes.RUNNING.append(None)
            try:
                tape.in_transform, tape.given_arrays = True, before or type(args[0]) is not Tensor
                return inputs, LEAF, type(args[0]) is Tensor, func(x)
            finally:
                modes.RUNNING.pop()
                tape.given_arrays, tape.in_transform = before, within
    leaves: Sequence[Any] = (
        args if whole == len(args) else (args[argnums],) if alone else tuple([args[i] for i in argnums])
    )
    inputs, structure = usual_inputs(leaves), LEAF if alone else None
    if inputs is None:
        leaves, structure = flattened(leaves[0] if alone else leaves)
        inputs = usual_inputs(leaves)
    if not inputs:
        return None
    differentiable: Any = inputs if structure is None else structure.filled(inputs)
    tensors = Tensor in map(type, leaves)
    if whole == len(args):
        result = modes.call_given(not tensors, func, *differentiable, **kwargs)
    elif alone and len(args) == 1 and not kwargs:
        result = modes.call_given(not tensors, func, differentiable)
    else:
        passed = list(args)
        for i, x in ((argnums, differentiable),) if alone else zip(argnums, differentiable, strict=True):
            passed[i] = x
        result = modes.call_given(not tensors, func, *passed, **kwargs)
    return inputs, structure, tensors, result


def differentiated(
    api: str,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Any,
    chosen: Chosen,
    kwargs: dict[str, Any],
    check: Callable[[Any], None],
    *,
    has_aux: bool,
) -> tuple[Any, Any, Any]:
    """Return the value of a function, checked by ``check``, its gradient, and aux."""
    evaluated = evaluated_at(func, args, argnums, chosen, kwargs)
    if evaluated is not None:
        inputs, structure, tensors, y = evaluated
        aux: Any = ()
        if has_aux:
            y, aux = split(y, inputs, tensors=tensors)
        if aux is not None:
            check(y)
            gradients = backward.pulled(y, None, inputs, tensors=tensors, free=True)
            if gradients is not None:
                return value_of(y, tensors=tensors), _filled(structure, gradients), aux[0] if has_aux else None
    point = Evaluation(api, func, args, argnums, kwargs, has_aux=has_aux, evaluated=_known(evaluated))
    check(point.result)
    gradient = point.gradient()
    settle(point.inputs)
    return point.result, gradient, point.aux


def _filled(structure: Structure | None, gradients: Sequence[Any]) -> Any:
    if structure is LEAF:
        return gradients[0]
    return tuple(gradients) if structure is None else structure.filled(gradients)


def _known(evaluated: Evaluated | None) -> tuple[list[Tensor], Any] | None:
    return None if evaluated is None else (list(evaluated[0]), evaluated[3])


def split(result: Any, inputs: tuple[Tensor, ...], *, tensors: bool) -> tuple[Any, tuple[Any] | None]:
    """Return a function's value, and its detached aux in a tuple of one.

    None for the latter where the result is no pair, or aux depends on anything that requires grad besides the inputs.
    """
    if type(result) is not tuple or len(result) != 2:  # noqa: PLR2004 (a pair)
        return result, None
    y, aux = result
    values, structure = flattened(aux, none=True)
    for x in values:
        if isinstance(x, Tensor) and x._slot is not None and not backward.leads(x, inputs):
            return y, None
    return y, (structure.filled([released(x, tensors=tensors) for x in values]),)


class VjpEvaluation:
    """A function of usual arguments, evaluated for ``vjp``: it returned one tensor, which leads to the inputs alone.

    ``evaluated`` is as :class:`Evaluation` takes it; ``results`` are the value and, with ``has_aux``, aux.
    """

    __slots__ = ("evaluated", "inputs", "results", "returned", "structure", "tensors", "y")

    def __init__(self, evaluated: Evaluated, y: Tensor, returned: Structure, aux: tuple[Any, ...]) -> None:
        self.inputs, self.structure, self.tensors, result = evaluated
        self.evaluated, self.y, self.returned = (list(self.inputs), result), y, returned
        value, tensors = y._value, self.tensors
        number = type(value) is float
        value_out = (constant_tensor(value) if tensors else value) if number else released(y, tensors=tensors)
        self.results = (value_out if returned is LEAF else returned.filled([value_out]), *aux)
        for x in self.inputs:
            x._slot.is_transform_input_done = True  # leaves, since y leads to them

    def pull(self, cotangents: Any, *, free: bool) -> Any:
        """Return the cotangents of the arguments; None, with nothing freed, where this way does not serve."""
        cotangent = cotangents
        if self.returned is not LEAF:
            leaves, structure = flattened(cotangents, none=True)
            if structure != self.returned:
                return None
            (cotangent,) = leaves
        if type(cotangent) is float:
            cotangent = constant_tensor(cotangent)
        elif type(cotangent) is np.ndarray:
            cotangent = operand(cotangent)
        elif type(cotangent) is not Tensor:
            return None
        if cotangent._slot is not None and modes.is_grad_enabled():
            return None
        pulled = backward.pulled(self.y, cotangent, self.inputs, tensors=self.tensors, free=free)
        return None if pulled is None else _filled(self.structure, pulled)


def pulled_back(
    func: Callable[..., Any], primals: tuple[Any, ...], *, has_aux: bool
) -> VjpEvaluation | tuple[list[Tensor], Any] | None:
    """Evaluate a function for ``vjp``; return the evaluation, or what :class:`Evaluation` takes as ``evaluated``.

    The latter where more than one tensor comes out, or it depends on others that require grad; None where the function
    has not been called.
    """
    try:
        evaluated = evaluated_at(func, primals, None, (len(primals) - 1, len(primals)), {})
    except Exception as error:
        shorten(error)
        raise
    if evaluated is None:
        return None
    inputs, _, tensors, y = evaluated
    aux: tuple[Any, ...] | None = ()
    if has_aux:
        y, aux = split(y, inputs, tensors=tensors)
    if aux is not None:
        outputs, returned = ([y], LEAF) if type(y) is Tensor else flattened(y, none=True)
        if len(outputs) == 1 and backward.leads(outputs[0], inputs):
            return VjpEvaluation(evaluated, outputs[0], returned, aux)
    return _known(evaluated)
