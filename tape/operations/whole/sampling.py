"""Random tensors, new and in place. They are constants of every graph and of every recorded program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tape.conversions.creation import finished, shape_of, sizes_of
from tape.conversions.creation_like import spec_like
from tape.foundation.dtypes import dtype_of, get_default_dtype
from tape.operations import writes
from tape.operations.parameters import also
from tape.random import Draw, Generator
from tape.recording import record
from tape.tensors.operands import operand
from tape.tensors.registration import public
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, method, scalar_or_array

_INT64 = np.dtype(np.int64)


def _floating(name: str, dtype: Any) -> np.dtype[Any]:
    wanted = get_default_dtype() if dtype is None else dtype_of(dtype)
    if wanted.kind != "f":
        raise RuntimeError(f"{name}: random tensors are floating, not {wanted.name}; randint draws integers")
    return wanted


def _uniform(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return source.uniform(math.prod(shape), dtype).reshape(shape)


def _normal(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return source.normal(math.prod(shape), dtype).reshape(shape)


def _integers(source: Generator, shape: tuple[int, ...], low: int, high: int, dtype: np.dtype[Any]) -> Array:
    return source.integers(math.prod(shape), low, high).reshape(shape).astype(dtype)


def _permutation(source: Generator, n: int, dtype: np.dtype[Any]) -> Array:
    return source.permutation(n).astype(dtype)


def _normal_from(
    source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], low: Array, spread: Array
) -> Array:  # fmt: skip
    return np.asarray(_normal(source, shape, dtype) * spread.astype(dtype) + low.astype(dtype), dtype)


def _uniform_from(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], low: float, high: float) -> Array:
    return np.asarray(_uniform(source, shape, dtype) * dtype.type(high - low) + dtype.type(low))


def _below(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], odds: Array) -> Array:
    return np.asarray(_uniform(source, shape, np.dtype(np.float64)) < odds).astype(dtype)


def _exponential(source: Generator, shape: tuple[int, ...], dtype: np.dtype[Any], rate: float) -> Array:
    return np.asarray(-np.log1p(-_uniform(source, shape, np.dtype(np.float64))) / rate).astype(dtype)


def _delivered(
    name: str, draw: Draw, out: Tensor | None, device: Any, requires_grad: bool, layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a new tensor, or ``out`` with the numbers in it; an empty one takes their shape."""
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
    """Return numbers that were drawn as a tensor."""
    x = constant_tensor(scalar_or_array(array))
    record.note_drawn(x, draw)
    return x


def rand(
    *shape: Any, size: Any = None, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return uniform numbers from [0, 1); see manual_seed."""
    wanted = _floating("rand", out.spec.dtype if dtype is None and out is not None else dtype)
    draw = Draw(_uniform, generator, sizes_of("rand", shape, size), wanted)
    return _delivered("rand", draw, out, device, requires_grad, layout, pin_memory)


def randn(
    *shape: Any, size: Any = None, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return standard normal numbers; see manual_seed."""
    wanted = _floating("randn", out.spec.dtype if dtype is None and out is not None else dtype)
    draw = Draw(_normal, generator, sizes_of("randn", shape, size), wanted)
    return _delivered("randn", draw, out, device, requires_grad, layout, pin_memory)


def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return uniform numbers from [0, 1), of the shape and dtype of ``input``."""
    spec = spec_like("rand_like", input, memory_format)
    wanted = _floating("rand_like", spec.dtype if dtype is None else dtype)
    draw = Draw(_uniform, generator, spec.shape, wanted)
    return _delivered("rand_like", draw, None, device, requires_grad, layout, pin_memory)


def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return standard normal numbers, of the shape and dtype of ``input``."""
    spec = spec_like("randn_like", input, memory_format)
    wanted = _floating("randn_like", spec.dtype if dtype is None else dtype)
    draw = Draw(_normal, generator, spec.shape, wanted)
    return _delivered("randn_like", draw, None, device, requires_grad, layout, pin_memory)


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
    if not int(low) < int(high):
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    wanted = dtype_of(_INT64 if dtype is None and out is None else dtype if out is None else out.spec.dtype)
    if wanted.kind in "iu" and not np.iinfo(wanted).min <= int(low) <= int(high) - 1 <= np.iinfo(wanted).max:
        raise RuntimeError(f"randint: from {low} to {int(high) - 1} is out of bounds for {wanted.name}")
    shape = shape_of((size,))
    draw = Draw(_integers, generator, shape, int(low), int(high), wanted)
    return _delivered("randint", draw, out, device, requires_grad, layout, pin_memory)


def randint_like(
    input: Tensor, low: int, high: int | None = None, *, generator: Generator | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return integers from low (0 if left out) up to, not including, high, of the shape and dtype of ``input``."""
    spec = spec_like("randint_like", input, memory_format)
    low, high = (0, low) if high is None else (low, high)
    return randint(
        low, high, spec.shape, generator=generator, dtype=spec.dtype if dtype is None else dtype, layout=layout,
        device=device, requires_grad=requires_grad, pin_memory=pin_memory,
    )  # fmt: skip


def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return the integers from 0 to n - 1 in a random order."""
    if n < 0:
        raise RuntimeError(f"randperm: n must be non-negative, got {n}")
    draw = Draw(_permutation, generator, n, _INT64 if dtype is None else dtype_of(dtype))
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
    draw = Draw(_normal_from, generator, shape, wanted, low, spread)
    return _delivered("normal", draw, out, device, requires_grad, layout, pin_memory)


@public(methods=True)
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """Return 1 with the probabilities that ``input`` holds (or ``p`` everywhere), else 0, in the dtype of ``input``.

    >>> tape.bernoulli(tape.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    odds = operand(input if p is None else p)
    record.note_escape(odds)
    wanted = as_array(odds) if isinstance(odds, Tensor) else np.asarray(odds)
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true: probabilities are from 0 to 1")
    draw = Draw(_below, generator, input.spec.shape, input.spec.dtype, wanted)
    return _drawn(draw.array(), draw)


def _filled(x: Tensor, name: str, draw: Draw) -> Tensor:
    return writes.store(x, _drawn(draw.array(), draw), name)


@method()
@also(**{"from": "low", "to": "high"})
def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers from [low, high), PyTorch's ``from`` and ``to``.

    The gradient of what stood here is 0.
    """
    writes.check(x, "uniform_")
    spec = x.spec
    dtype = _floating("uniform_", spec.dtype)
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    return _filled(x, "uniform_", Draw(_uniform_from, generator, spec.shape, dtype, low, high))


@method()
def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers of this mean and standard deviation; the gradient of what stood here is 0."""
    writes.check(x, "normal_")
    spec = x.spec
    dtype = _floating("normal_", spec.dtype)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    low, spread = np.asarray(mean), np.asarray(std)
    return _filled(x, "normal_", Draw(_normal_from, generator, spec.shape, dtype, low, spread))


@method()
def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential numbers of the rate lambd; the gradient of what stood here is 0."""
    writes.check(x, "exponential_")
    dtype = _floating("exponential_", x.spec.dtype)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _filled(x, "exponential_", Draw(_exponential, generator, x.spec.shape, dtype, lambd))


@method()
def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with probability p, else 0; the gradient of what stood here is 0."""
    writes.check(x, "bernoulli_")
    if isinstance(p, Tensor):
        record.note_escape(p)
    odds = np.broadcast_to(as_array(p) if isinstance(p, Tensor) else np.asarray(p), x.spec.shape)
    return _filled(x, "bernoulli_", Draw(_below, generator, x.spec.shape, x.spec.dtype, odds))


@method()
@also(**{"from": "low", "to": "high"})
def random_(x: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill with integers from low up to, not including, high: ``random_()``, ``random_(to)``, ``random_(from, to)``.

    The gradient of what stood here is 0.
    """
    writes.check(x, "random_")
    spec = x.spec
    if high is None and low:
        low, high = 0, low
    if high is None:
        bits = {"f": np.finfo(spec.dtype).nmant + 1 if spec.dtype.kind == "f" else 0, "b": 1}.get(spec.dtype.kind)
        high = (
            int(np.iinfo(spec.dtype).max) + (spec.dtype.itemsize < np.dtype(np.int64).itemsize)
            if bits is None
            else 1 << bits
        )
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _filled(x, "random_", Draw(_integers, generator, spec.shape, low, high, spec.dtype))


__all__ = [
    "bernoulli", "normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
]  # fmt: skip
