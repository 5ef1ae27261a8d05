"""Functions with their gradients, of arrays or tensors in whatever structure: what an optimiser calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape import modes
from tape.autograd import short
from tape.autograd.forward import settle
from tape.points import Point, usual, value_of
from tape.tensor import Tensor


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function of the same arguments that gives ``fun``'s value and its gradient.

    The positional arguments that ``argnums`` names are what it is differentiated by: a number, array or tensor, or
    dicts, lists, tuples and dataclasses of them. They reach ``fun`` as tensors of its own, in that structure, and the
    gradient has their structure and shapes; with a tuple of ``argnums`` it is a tuple. All other arguments, and
    keywords, are passed as they are. ``fun`` returns one floating element; with ``has_aux`` a pair of that and
    anything else, and the result is ``((value, aux), gradient)``.

    NumPy in, NumPy out: the value is a float, gradients are arrays of the arguments' dtypes, and floats for numbers;
    tensors in ``aux`` are arrays. Tensors in, tensors out: where any of those arguments holds a tensor, all results
    are, and can be differentiated further, by whatever they depend on that requires grad. Python ints count as floats,
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
    name = f"value_and_grad({getattr(fun, '__name__', repr(fun))})"

    def check(y: Any) -> None:
        if not isinstance(y, Tensor) or y._form.spec.size != 1 or y._form.spec.dtype.kind != "f":
            raise _refused(name, y)

    @functools.wraps(fun)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, found, aux = differentiated(name, fun, args, numbers, kwargs, check, has_aux=has_aux)
        if isinstance(value, np.ndarray):
            value = value.item()
        return ((value, aux) if has_aux else value), found

    return both


def _refused(name: str, y: Any) -> TypeError:
    what = f"{y.spec.dtype.name} of shape {list(y.spec.shape)}" if isinstance(y, Tensor) else f"a {type(y).__name__}"
    return TypeError(f"{name}: the function returned {what}; it must return a tensor of one floating element")


Evaluated = tuple[list[Tensor], Any]
"""Tensors that were made of arguments, and what a function of them returned."""


def differentiated(
    api: str,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Any,
    kwargs: dict[str, Any],
    check: Callable[[Any], None],
    *,
    has_aux: bool,
) -> tuple[Any, Any, Any]:
    """Return the value of a function, which has passed the check, its gradient, and what is aux."""
    evaluated: Evaluated | None = None
    if not has_aux and modes.active():
        if type(argnums) is int and 0 <= argnums < len(args):  # apart: it takes 2 us less than for several
            given = args[argnums]
            x = usual(given)
            if x is not None:
                alone = len(args) == 1 and not kwargs
                y = func(x) if alone else func(*args[:argnums], x, *args[argnums + 1 :], **kwargs)
                check(y)
                tensors = type(given) is Tensor
                found = short.values(y, (x,), tensors=tensors)
                if found is not None:
                    return value_of(y, tensors=tensors), found[0], None
                evaluated = [x], y
        elif type(argnums) is tuple:
            inputs, passed = usual_arguments(args, argnums)
            if inputs:
                y = func(*passed, **kwargs)
                check(y)
                tensors = Tensor in [type(args[i]) for i in argnums]
                found = short.values(y, inputs, tensors=tensors)
                if found is not None:
                    return value_of(y, tensors=tensors), tuple(found), None
                evaluated = inputs, y
    point = Point(api, func, args, argnums, kwargs, has_aux=has_aux, evaluated=evaluated)
    check(point.result)
    gradient = point.gradient()
    settle(point.inputs)
    return point.result, gradient, point.aux


def usual_arguments(args: tuple[Any, ...], numbers: Sequence[int]) -> tuple[list[Tensor], list[Any]]:
    """Return tensors of one's own of the arguments to differentiate by, and all arguments with these in their places.

    None of the first where one of them is not what is most often given.
    """
    passed, inputs = list(args), []
    for i in numbers:
        x = usual(args[i]) if type(i) is int and 0 <= i < len(args) and passed[i] is args[i] else None
        if x is None:
            return [], passed
        inputs.append(x)
        passed[i] = x
    return inputs, passed


def pulled_back(
    func: Callable[..., Any], primals: tuple[Any, ...]
) -> tuple[Evaluated | None, Callable[..., Any] | None]:
    """Evaluate a function of tensors; return its inputs and result, and how to pull a cotangent back to them shortly.

    None of both, nothing having been called, where the arguments are not the usual; of the second where more than one
    tensor comes out, or it depends on other things that require grad.
    """
    if not modes.active() or any(type(x) is not Tensor for x in primals):
        return None, None
    inputs, passed = usual_arguments(primals, range(len(primals)))
    if not inputs:
        return None, None
    y, leaves = func(*passed), tuple(inputs)
    if not short.leads(y, leaves):
        return (inputs, y), None

    def pull(cotangent: Any, *, free: bool) -> Any:
        if type(cotangent) is not Tensor or (cotangent._slot is not None and modes.is_grad_enabled()):
            return None
        found = short.pulled(y, cotangent, leaves, tensors=True, free=free)
        return None if found is None else tuple(found)

    return (inputs, y), pull
