"""Gradient buffers as arrays: the part of a family's gradient that belongs to one of its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, meets_itself
from kernels.arrays.sweep_interface import Array, Seed
from kernels.arrays.warnings_off import silently


def plant(buffer: Array, seed: Seed) -> None:
    """Write a seed into a gradient buffer; where the pattern meets an element many times, their sum."""
    spec = seed.spec
    if spec.size == 1 and buffer.ndim == 1:
        buffer[(seed.offset or 0) // spec.dtype.itemsize] = np.add(seed.value, 0.0).item()
        return
    place = pattern(buffer, spec, seed.offset or 0)
    add_to(place, seed.value)
    np.add(place, 0.0, out=place)


def add_to(place: Array, value: Any) -> None:
    """Add to the part of a gradient buffer that a pattern shows; where it meets an element many times, their sum."""
    if np.shape(value) != place.shape:
        value = np.broadcast_to(value, place.shape)
    if 0 in place.strides:
        repeated = tuple(i for i, (n, s) in enumerate(zip(place.shape, place.strides, strict=True)) if s == 0 and n > 1)
        first = tuple(slice(0, 1) if i in repeated else slice(None) for i in range(place.ndim))
        place, value = place[(*first, ...)], silently(value.sum, repeated, keepdims=True) if repeated else value
    if not meets_itself(place.shape, place.strides, place.itemsize):
        silently(np.add, place, value, out=place)
        return
    axis = min((i for i, n in enumerate(place.shape) if n > 1), key=lambda i: place.shape[i])
    for part, values in zip(np.moveaxis(place, axis, 0), np.moveaxis(value, axis, 0), strict=True):
        add_to(part, values)  # windows that overlap: one after another


def changed(before: Array, after: Array) -> Array:
    """Return what a hook made of a gradient: elements that it left alone stay -0.0 where nothing contributed."""
    return np.where(after == before, before, after + before.dtype.type(0.0))


def pattern(buffer: Array, spec: Spec, offset: int) -> Array:
    """Return the part of a buffer that is the gradient of a tensor of this spec; a batch of them for a batch."""
    lead = buffer.shape[:-1] if buffer.ndim > 1 else ()
    if spec.size == 0 or 0 in lead:
        return np.zeros((*lead, *spec.shape), spec.dtype)
    strides = (buffer.strides[0], *spec.gradient) if lead else spec.gradient
    return np.ndarray((*lead, *spec.shape), spec.dtype, buffer.reshape(-1).view(np.uint8), offset, strides)


def shaped(buffer: Array, spec: Spec) -> Array:
    """Return a base tensor's whole gradient buffer in the tensor's shape."""
    return buffer.reshape(spec.shape) if spec.in_order else pattern(buffer, spec, 0)
