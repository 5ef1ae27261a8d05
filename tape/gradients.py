"""Functions with their gradients, of arrays or tensors in whatever structure: what an optimiser calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape.points import differentiated
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
