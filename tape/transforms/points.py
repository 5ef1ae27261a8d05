"""A function evaluated at inputs of its own, for a transform of it: whatever was given, as tensors, and back again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from kernels.native.pool import reused_arrays
from tape.conversions.to_python import numbers_of, warn_of_detaching
from tape.engine import short_backward
from tape.engine.forward_mode import filled_with, needs_graph, own, pulled, settle, zeros_for
from tape.recording import record
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.inference_mode import inference_mode
from tape.tensors.operands import LARGEST, operand
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.tensor import Tensor, as_array, carried, is_tensor, leaf, plain, taken

_NOTHING = type(None)
_USUAL = {Tensor, np.ndarray, np.float64, float, int}
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Point:
    """A function evaluated at inputs of its own: what it returned, and what that was computed from.

    ``tensors`` says whether any input was given as a tensor; where none was, results are NumPy's. With ``writes`` the
    function may write to its arguments, as in PyTorch's forward mode, and the caller sees that. ``evaluated`` are the
    tensors that were made of arguments that are leaves, and what the function returned, where it has been called.
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
        usual = type(argnums) is int and 0 <= argnums < len(args)
        numbers = argnums if usual else argument_numbers(argnums, len(args))
        chosen = args[numbers] if usual or isinstance(numbers, int) else tuple(args[i] for i in numbers)
        given, self.structure = flattened(chosen)
        self.tensors = any(map(is_tensor, given))
        if evaluated is not None:
            self.inputs, result = evaluated
        elif modes.active() or ((mode := modes.current()).grad and not mode.inference):
            result = self._evaluated(func, args, numbers, given, kwargs)
        else:
            with inference_mode(False):
                result = self._evaluated(func, args, numbers, given, kwargs)
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004 (a pair)
                raise RuntimeError(f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True")
            result, self.aux = result
        self.result = result

    @functools.cached_property
    def _returned(self) -> tuple[list[Any], Structure]:
        return flattened(self.result, none=True)

    @property
    def outputs(self) -> list[Any]:
        """What the function returned, taken out of its structure."""
        return self._returned[0]

    @property
    def returned(self) -> Structure:
        """The structure of what the function returned."""
        return self._returned[1]

    def _evaluated(
        self, func: Callable[..., Any], args: tuple[Any, ...], numbers: Any, given: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function with gradients recorded, whatever the mode is."""
        self.inputs = passed = self._own(given, numbers)
        if self.writes:
            passed = list(map(clone, passed))
        full, copies = list(args), self.structure.filled(passed)
        if isinstance(numbers, int):
            full[numbers] = copies
        else:
            for i, x in zip(numbers, copies, strict=True):
                full[i] = x
        result = func(*full, **kwargs)
        if self.writes:
            for x, copy in zip(given, passed, strict=True):
                if copy._version:
                    self._written(x, copy)
        return result

    def _written(self, given: Any, copy: Tensor) -> None:
        """Let the caller see what the function wrote to an argument."""
        if isinstance(given, Tensor):
            given.copy_(copy if needs_graph([copy], self.inputs) else copy.detach())
        elif isinstance(given, np.ndarray):
            given[...] = as_array(copy)

    def _own(self, given: list[Any], numbers: Any) -> list[Tensor]:
        if not given:
            raise ValueError(f"{self.api}: there is no number among the arguments to differentiate by")
        found = usual(given)
        if found is not None:
            return list(found)
        structures = [self.structure] if isinstance(numbers, int) else self.structure.parts
        named = zip([numbers] if isinstance(numbers, int) else numbers, structures, strict=True)
        paths = [(path, part.kind is None) for i, part in named for path in part.paths(f"argument {i}")]
        return [own_tensor(x, self.api, path, whole=whole) for x, (path, whole) in zip(given, paths, strict=True)]

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
        """Let go of history that ends at the inputs, in what the function returned, and of NumPy's of all."""
        outputs, structure = self._returned
        found, aux = flattened(self.aux, none=True)
        linked = self._linked([*outputs, *found])
        self.result = structure.filled([self._released(x, linked) for x in outputs])
        self.aux = aux.filled([self._released(x, linked) for x in found])

    def gradient(self) -> Any:
        """Return the gradient of the function's value, of one element; it and aux are left to be handed out."""
        y = self.result
        found, aux = flattened(self.aux, none=True)
        values = None if self._linked(found) else short_backward.values(y, self.inputs, tensors=self.tensors)
        if values is not None:
            self.result = value_of(y, tensors=self.tensors)
            self.aux = aux.filled([self._released(x) for x in found])
            return self.structure.filled(values)
        self.release()
        create = None if self.tensors else False
        pulls = pulled([y], self.inputs, [filled_with(1.0, y)], create=create, retain=self.needed)
        return self.out(zeros_for(pulls, self.inputs))

    def finished(self, *results: Any) -> tuple[Any, ...]:
        """Return the value, the results of the transform and, if there is one, what is aux."""
        settle(self.inputs)
        return (self.result, *results, *([self.aux] if self.has_aux else []))

    def out(self, tensors: Iterable[Tensor], structure: Structure | None = None) -> Any:
        """Return results in a structure, by default the inputs'; as NumPy's where no tensor was given."""
        found = tensors if self.tensors else [numbers_of(x) for x in tensors]
        return (structure or self.structure).filled(found)

    def _linked(self, found: list[Any]) -> list[Tensor]:
        """Return the tensors that depend on anything but the inputs that requires grad."""
        traced = [x for x in found if isinstance(x, Tensor) and x._slot is not None]
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


def value_of(y: Tensor, *, tensors: bool) -> Any:
    """Return what stands in a result, without its history, as a tensor or as NumPy's."""
    value = y._value
    if type(value) is float:
        return plain(value) if tensors else value
    return y.detach() if tensors else numbers_of(y)


def released(x: Any, *, tensors: bool) -> Any:
    """Return what a function handed out without its history, as a tensor or as NumPy's, in memory of its own."""
    if not isinstance(x, Tensor):
        return x
    if not tensors:
        found = numbers_of(x)
        return found if isinstance(found, float) else found.copy()
    if x._slot is None:
        return x
    return plain(x._value) if type(x._value) is float and modes.current().recorder is None else x.detach()


def usual(given: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return tensors of one's own of what is most often given; None if anything else is among it."""
    found: tuple[Any, ...] = ()
    if modes.active() and not modes.ON_MADE:
        found = tuple(map(taken, given))
        if _NOTHING not in map(type, found):
            return found
    if not _USUAL.issuperset(map(type, given)):
        return None
    found = tuple([_usual(one) if x is None else x for one, x in zip_longest(given, found)])
    return None if _NOTHING in map(type, found) else found


def _usual(given: Any) -> Tensor | None:
    kind = type(given)
    if kind is Tensor:
        alone = given._slot is None and given._form.spec.dtype.kind == "f" and modes.active()
        return leaf(given._value, requires_grad=True) if alone else own(given)
    if kind is np.ndarray:
        if given.dtype not in _FLOATS or not given.ndim:
            return None
        return leaf(
            reused_arrays.call(given.copy) if given.nbytes >= reused_arrays.LARGE else given.copy(), requires_grad=True
        )
    if kind is np.float64 or (kind is int and -LARGEST <= given <= LARGEST):
        return leaf(float(given), requires_grad=True)
    return leaf(given, requires_grad=True) if kind is float else None


def own_tensor(given: Any, api: str, path: str, *, whole: bool) -> Tensor:
    """Return what a transform was given as a tensor of its own, linked to what a tensor was computed from.

    Numbers become float64, and an array of integers that is a ``whole`` argument. ValueError and RuntimeError, as
    PyTorch's, or TypeError for what is no number, no float, no dtype of tensors.
    """
    if isinstance(given, Tensor):
        return own(given)
    array = np.array(as_tensor(given, api, path)._value)
    if array.dtype.kind != "f":
        if array.ndim and not whole:
            raise TypeError(
                f"{api}: {path} is an array of dtype {array.dtype.name}, which has no gradient; convert it to floats, "
                "or pass it as another argument"
            )
        array = array.astype(np.float64)
    return leaf(carried(array), requires_grad=True)


def as_tensor(given: Any, api: str, path: str) -> Tensor:
    """Return a number or array, which may be shared, as a tensor; tensors as they are."""
    if isinstance(given, Tensor):
        return given
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number and (isinstance(given, type) or not hasattr(given, "__array__")):
        raise ValueError(f"{api}: Thing passed to transform API must be Tensor, got {type(given)} for {path}")
    record.left(given)
    try:
        taken = operand(given)
    except TypeError as error:
        raise TypeError(f"{api}: {path}: {error}") from None
    return taken if isinstance(taken, Tensor) else plain(float(taken))


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
    found = tuple(argument_numbers(number, count) for number in argnums)
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return found
