"""Random tensors, new and in place. They are constants of every graph and of every recorded program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import FLOAT64, INT64, Spec
from tape.operations import writes
from tape.random import Draw, Generator
from tape.recording import record
from tape.recording.creation import finished, shape_of, sizes_of, spec_like
from tape.recording.parameters import also, with_name
from tape.tensors.dtypes import dtype_of, get_default_dtype
from tape.tensors.hooks import public
from tape.tensors.operands import operand
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, method, scalar_or_array

_OMITTED: Any = ...  # in place of a bound that is not given: None means the largest number


def _floating(name: str, dtype: Any) -> np.dtype[Any]:
    wanted = get_default_dtype() if dtype is None else dtype_of(dtype)
    if wanted.kind != "f":
        raise RuntimeError(f"{name}: random tensors are floating, not {wanted.name}; randint draws integers")
    return wanted


def _normal(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], dense: bool) -> Array:
    return source.normal(math.prod(shape), dtype, dense).reshape(shape).astype(dtype, copy=False)


def _integers(
    source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], low: int, high: int, long: bool | None = None
) -> Array:  # fmt: skip
    return source.integers(math.prod(shape), low, high, long).reshape(shape).astype(dtype)


def _permutation(source: Generator, n: int, dtype: np.dtype[Any]) -> Array:
    return source.permutation(n).astype(dtype)


def _normal_about(
    source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], dense: bool, mean: float, std: float
) -> Array:  # fmt: skip
    """Return normal numbers that are rounded to their dtype once they have this mean and standard deviation."""
    values = source.normal(math.prod(shape), dtype, dense).reshape(shape)
    kind = values.dtype.type
    return np.asarray(values * kind(std) + kind(mean)).astype(dtype, copy=False)


def _normal_from(
    source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], mean: Array, std: Array
) -> Array:  # fmt: skip
    return np.asarray(_normal(source, shape, dtype, True) * std.astype(dtype) + mean.astype(dtype), dtype)


def _uniform(
    source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], low: float = 0.0, high: float = 1.0
) -> Array:  # fmt: skip
    values = source.uniform(math.prod(shape), dtype).reshape(shape)
    if (low, high) == (0.0, 1.0) and values.dtype == dtype:
        return values
    begin, end = dtype.type(low), dtype.type(high)
    values = np.asarray(values * (end - begin) + begin).astype(dtype, copy=False)
    values[values == end] = begin  # what was rounded up to the end, which is not to be reached
    return values


def _below(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], odds: Array) -> Array:
    return np.asarray(source.uniform(math.prod(shape), odds.dtype).reshape(shape) < odds).astype(dtype)


def _exponential(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], rate: float) -> Array:
    return np.asarray(-np.log1p(-source.uniform(math.prod(shape), FLOAT64).reshape(shape)) / rate).astype(dtype)


def _categories(
    source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], odds: Array, replacement: bool
) -> Array:  # fmt: skip
    """Return categories along the last axis: by a race of exponential times, or by the cumulative odds if replaced."""
    count, odds = shape[-1], np.broadcast_to(odds, (*shape[:-1], odds.shape[-1]))
    if count == 1 or not replacement:
        with np.errstate(divide="ignore", invalid="ignore"):
            speed = odds / _exponential(source, odds.shape, odds.dtype, 1.0)
        first = speed.argmax(-1, keepdims=True) if count == 1 else (-speed).argsort(-1, kind="stable")[..., :count]
        return np.ascontiguousarray(first, dtype)
    edges = np.cumsum(odds, -1, odds.dtype).reshape(-1, odds.shape[-1])
    edges = edges / edges[:, -1:]
    draws = source.uniform(math.prod(shape), FLOAT64).reshape(-1, count)
    drawn = [np.searchsorted(row, draw) for row, draw in zip(edges, draws, strict=True)]
    return np.asarray(drawn, dtype).reshape(shape)


def _memory_order(spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape in the order in which the elements stand in memory, which PyTorch draws in, and a Draw's order.

    The order is () where that is the shape's own.
    """
    n = len(spec.shape)
    order = sorted(range(n), key=lambda i: -abs(spec.strides[i]))
    if order == list(range(n)):
        return spec.shape, ()
    return tuple(spec.shape[i] for i in order), tuple(i - n for i in order)


def _odds(p: Any, name: str) -> Array:
    record.note_escape(p)
    odds = as_array(p) if isinstance(p, Tensor) else np.asarray(p, np.float64)
    if odds.dtype.kind != "f":
        raise RuntimeError(f"{name}: expected probabilities tensor to have floating type, got {odds.dtype.name}")
    if not ((odds >= 0) & (odds <= 1)).all():
        raise RuntimeError(f"{name}: Expected p_in >= 0 && p_in <= 1 to be true: probabilities are from 0 to 1")
    return odds


def _delivered(
    name: str, draw: Draw, out: Tensor | None, device: Any, requires_grad: bool, layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    array = draw.array()
    if out is None:
        x = finished(name, array, device, requires_grad, layout, pin_memory)
        if requires_grad:
            record.note_unrecorded(None, "random numbers that require grad")
        else:
            record.note_drawn(x, draw)
        return x
    writes.check(out, name)
    if out.spec.shape != array.shape:
        if out.spec.size:
            raise RuntimeError(f"{name}: out has shape {list(out.spec.shape)}, the numbers {list(array.shape)}")
        out.resize_(array.shape)
    return writes.store(out, _drawn(array, draw), name, casts=True)


def _drawn(array: Array, draw: Draw) -> Tensor:
    x = constant_tensor(scalar_or_array(array))
    record.note_drawn(x, draw)
    return x


def _of_shape(name: str, what: str, function: Callable[..., Array], *more: Any) -> Callable[..., Tensor]:
    @with_name(name, f"Return {what}; see manual_seed.")
    def draw(
        *shape: Any, size: Any = None, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
        layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        wanted = _floating(name, out.spec.dtype if dtype is None and out is not None else dtype)
        drawn = Draw(function, generator, sizes_of(name, shape, size), wanted, *more)
        return _delivered(name, drawn, out, device, requires_grad, layout, pin_memory)

    return draw


def _of_shape_like(name: str, what: str, function: Callable[..., Array], *, dense: bool) -> Callable[..., Tensor]:
    @with_name(name, f"Return {what}, of the shape and dtype of ``input``.")
    def draw(
        input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        spec = spec_like(name, input, memory_format)
        wanted = _floating(name, spec.dtype if dtype is None else dtype)
        shape, order = _memory_order(spec)
        drawn = Draw(function, generator, shape, wanted, *([not order] if dense else []), order=order)
        return _delivered(name, drawn, None, device, requires_grad, layout, pin_memory)

    return draw


rand = _of_shape("rand", "uniform numbers from [0, 1)", _uniform)
randn = _of_shape("randn", "standard normal numbers", _normal, True)
rand_like = _of_shape_like("rand_like", "uniform numbers from [0, 1)", _uniform, dense=False)
randn_like = _of_shape_like("randn_like", "standard normal numbers", _normal, dense=True)


def randint(
    low: int, high: Any = None, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return integers from low (0 if left out) up to, not including, high: ``randint(10, (2, 3))``.

    int64 unless another dtype is asked for, floating ones too.

    >>> _ = tape.manual_seed(5)
    >>> tape.randint(10, (6,))
    tensor([1, 4, 7, 5, 6, 0])
    """
    if size is None:
        low, high, size = 0, low, high
    if size is None or isinstance(size, int):
        raise TypeError(
            f"randint: size is a tuple of extents, got {size}: randint(high, size), randint(low, high, size)"
        )
    wanted = dtype_of(INT64 if dtype is None and out is None else dtype if out is None else out.spec.dtype)
    draw = Draw(_integers, generator, shape_of((size,)), wanted, *_bounds("randint", low, high, wanted))
    return _delivered("randint", draw, out, device, requires_grad, layout, pin_memory)


def _bounds(name: str, low: Any, high: Any, dtype: np.dtype[Any]) -> tuple[int, int]:
    low, high = int(low), int(high)
    if not low < high:
        raise RuntimeError(f"{name}: random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype.kind != "f":
        least = 0 if dtype.kind == "b" else np.iinfo(dtype).min
        if not least <= low <= high - 1 <= _most(dtype):
            raise RuntimeError(f"{name}: from {low} to {high - 1} is out of bounds for {dtype.name}")
    return low, high


def _most(dtype: np.dtype[Any]) -> int:
    return 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)


def randint_like(
    input: Tensor, low: int, high: int | None = None, *, generator: Generator | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return integers from low (0 if left out) up to, not including, high, of the shape and dtype of ``input``."""
    spec = spec_like("randint_like", input, memory_format)
    low, high = (0, low) if high is None else (low, high)
    wanted = spec.dtype if dtype is None else dtype_of(dtype)
    shape, order = _memory_order(spec)
    draw = Draw(_integers, generator, shape, wanted, *_bounds("randint_like", low, high, wanted), order=order)
    return _delivered("randint_like", draw, None, device, requires_grad, layout, pin_memory)


def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return the integers from 0 to n - 1 in a random order."""
    if n < 0:
        raise RuntimeError(f"randperm: n must be non-negative, got {n}")
    draw = Draw(_permutation, generator, n, INT64 if dtype is None else dtype_of(dtype))
    return _delivered("randperm", draw, out, device, requires_grad, layout, pin_memory)


@public(methods=False)
def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return normal numbers of this mean and standard deviation: of ``size``, or of the shape of the two, broadcast.

    Mean and deviation have no gradient, as in PyTorch: write ``mean + std * tape.randn(size)`` for one.

    >>> _ = tape.manual_seed(0)
    >>> tape.normal(1.0, 2.0, (3,))
    tensor([ 4.0820,  0.4131, -3.3576])
    """
    mean, std = operand(mean), operand(std)
    parameters = [x for x in (mean, std) if isinstance(x, Tensor)]
    if size is None and not parameters:
        raise TypeError("normal: give a size, or a tensor as mean or std")
    for x in parameters:
        record.note_escape(x)
    low, spread = (as_array(x) if isinstance(x, Tensor) else np.asarray(x) for x in (mean, std))
    if (spread < 0).any():
        raise RuntimeError("normal expects all elements of std >= 0.0")
    shape = np.broadcast_shapes(low.shape, spread.shape) if size is None else shape_of((size,))
    result_dtype = dtype if out is None else out.spec.dtype
    if parameters and dtype is None and out is None:
        result_dtype = parameters[0].spec.dtype
    wanted = _floating("normal", result_dtype)
    if parameters:
        draw = Draw(_normal_from, generator, shape, wanted, low, spread)
    else:
        draw = Draw(_normal_about, generator, shape, wanted, True, float(low), float(spread))
    return _delivered("normal", draw, out, device, requires_grad, layout, pin_memory)


@public(methods=True)
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """Return 1 with the probabilities that ``input`` holds (or ``p`` everywhere), else 0, in the dtype of ``input``.

    >>> tape.bernoulli(tape.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    odds = _odds(operand(input if p is None else p), "bernoulli")
    draw = Draw(_below, generator, input.spec.shape, input.spec.dtype, odds)
    return _drawn(draw.array(), draw)


@public(methods=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Return ``num_samples`` categories, by the weights (n) or (rows, n) that ``input`` holds: int64, (*, num_samples).

    The weights need not have the sum 1. Without ``replacement`` a category comes once at most; ``RuntimeError`` where
    there are fewer than samples, and for weights that are negative, not finite, or 0 everywhere.

    >>> tape.multinomial(tape.tensor([0.0, 3.0, 0.0]), 1)
    tensor([1])
    """
    record.note_escape(input)
    odds = np.ascontiguousarray(as_array(input))
    if odds.dtype.kind != "f":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {odds.dtype.name}")
    if odds.ndim not in {1, 2} or not odds.shape[-1]:
        raise RuntimeError(
            f"multinomial: prob_dist must be 1 or 2 dim, of one category or more, got {list(odds.shape)}"
        )
    if num_samples < 1:
        raise RuntimeError("multinomial: cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > odds.shape[-1]:
        raise RuntimeError(
            "multinomial: cannot sample n_sample > prob_dist.size(-1) samples without replacement; "
            "give replacement=True"
        )
    if not (np.isfinite(odds) & (odds >= 0)).all():
        raise RuntimeError("multinomial: probability tensor contains either `inf`, `nan` or element < 0")
    if not odds.sum(-1).all():
        raise RuntimeError("multinomial: invalid multinomial distribution (sum of probabilities <= 0)")
    shape = (*odds.shape[:-1], int(num_samples))
    draw = Draw(_categories, generator, shape, INT64, odds, bool(replacement))
    return _drawn(draw.array(), draw)


def _filled(x: Tensor, name: str, generator: Generator | None, function: Callable[..., Array], *args: Any) -> Tensor:
    shape, order = _memory_order(x.spec)
    draw = Draw(function, generator, shape, x.spec.dtype, *args, order=order)
    return writes.store(x, _drawn(draw.array(), draw), name)


@method()
@also(**{"from": "low", "to": "high"})
def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers from [low, high); the gradient of what stood here is 0."""
    writes.check(x, "uniform_")
    _floating("uniform_", x.spec.dtype)
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    return _filled(x, "uniform_", generator, _uniform, low, high)


@method()
def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers of this mean and standard deviation; the gradient of what stood here is 0."""
    writes.check(x, "normal_")
    _floating("normal_", x.spec.dtype)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return _filled(x, "normal_", generator, _normal_about, as_array(x).flags.c_contiguous, float(mean), float(std))


@method()
def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential numbers of the rate lambd; the gradient of what stood here is 0."""
    writes.check(x, "exponential_")
    _floating("exponential_", x.spec.dtype)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _filled(x, "exponential_", generator, _exponential, lambd)


@method()
def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with probability p, else 0; the gradient of what stood here is 0."""
    writes.check(x, "bernoulli_")
    order = _memory_order(x.spec)[1]
    odds = np.broadcast_to(_odds(p, "bernoulli_"), x.spec.shape)
    return _filled(x, "bernoulli_", generator, _below, odds.transpose(order) if order else odds)


@method()
@also(**{"from": "low", "to": "high"})
def random_(
    x: Tensor, *bounds: Any, low: int = 0, high: Any = _OMITTED, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Fill with integers from low up to, not including, high: ``random_()``, ``random_(to)``, ``random_(from, to)``.

    Without ``to``, or where it is None, they go up to the largest one of the dtype; of floats to the last of those that
    stand without gaps. The gradient of what stood here is 0.
    """
    writes.check(x, "random_")
    dtype = x.spec.dtype
    if len(bounds) > 1:
        low, high = bounds
    elif bounds:
        low, high = (0, *bounds) if high is _OMITTED else (*bounds, high)
    if high is not None and high is not _OMITTED:
        return _filled(x, "random_", generator, _integers, *_bounds("random_", low, high, dtype))
    largest = 1 << np.finfo(dtype).nmant + 1 if dtype.kind == "f" else _most(dtype)
    long = dtype.itemsize >= INT64.itemsize if low == 0 and high is _OMITTED else None
    return _filled(x, "random_", generator, _integers, int(low), largest + 1, long)


__all__ = [
    "bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm",
]  # fmt: skip
