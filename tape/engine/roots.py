"""The roots of a backward and their cotangents: checked, with PyTorch's messages, and made into seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import Seed
from kernels.foundation.specs import SCALAR, Array
from tape import errors
from tape.engine.graph_observers import family_offset
from tape.recording import record as recording
from tape.tensors.tensor import Tensor, constant_tensor


def weights_of(roots: Sequence[Tensor], weights: Any) -> tuple[Any, ...]:
    """Return one cotangent, or None, for each root."""
    if weights is None:
        return (None,) * len(roots)
    if isinstance(weights, np.ndarray):
        raise TypeError("gradients can be either Tensors or None, but got numpy.ndarray")
    cotangents: tuple[Any, ...] = (weights,) if isinstance(weights, Tensor) else tuple(weights)
    if len(cotangents) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(cotangents)} gradients")
    return cotangents


def batch_of(weights: Sequence[Any]) -> int:
    """Return the extent of the leading axis that batched cotangents have."""
    tensors = [w for w in weights if w is not None]
    lengths = {w.spec.shape[0] if isinstance(w, Tensor) and w.spec.shape else None for w in tensors}
    if len(tensors) != len(weights) or len(lengths) != 1 or None in lengths or 0 in lengths:
        raise RuntimeError(
            "is_grads_batched: each of grad_outputs must be a tensor with the same, non-empty leading batch dim"
        )
    return int(next(iter(lengths)))  # type: ignore[arg-type]


def starts_of(roots: Sequence[Tensor], weights: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
    """Check the roots and their cotangents; return both as tensors."""
    starts: list[tuple[Tensor, Tensor]] = []
    if len(roots) == 1 and weights[0] is None and type(roots[0]) is Tensor:  # the usual case
        root = roots[0]
        if root._form.spec is SCALAR and root._slot is not None:
            return [(root, constant_tensor(1.0))]
    for seed, root, weight in zip(seeds_of(roots, weights), roots, weights, strict=True):
        spec = seed.spec
        if weight is None:
            cotangent = constant_tensor(1.0 if spec is SCALAR else np.full(spec.shape, 1.0, spec.dtype))
        else:
            cotangent = weight if weight.spec.dtype is spec.dtype else recording.to_dtype(weight, spec.dtype)
        starts.append((root, cotangent))
    return starts


def seeds_of(roots: Sequence[Tensor], weights: Sequence[Any], batch: int = 0) -> list[Seed]:
    """Check the roots and their cotangents; return a seed for each, of a slot or a leaf."""
    seeds = []
    for i, (root, weight) in enumerate(zip(roots, weights, strict=True)):
        if not isinstance(root, Tensor):
            raise TypeError(f"element {i} of tensors is a {type(root).__name__}, not a Tensor")
        spec = root._form.spec
        value = 1.0 if weight is None and spec.size == 1 else _cotangent(i, root, weight, batch)
        if root._slot is None:
            raise errors.GradError(errors.NO_GRAPH.format(i))
        seeds.append(Seed(root._slot, spec, value, family_offset(root)))
    return seeds


def _cotangent(i: int, root: Tensor, weight: Any, batch: int) -> Array | float:
    if weight is None:
        if root._slot is None:
            raise errors.GradError(errors.NO_GRAPH.format(i))
        raise errors.GradError(f"{errors.NOT_SCALAR}; this one has shape {list(root.spec.shape)}: give gradient=")
    if not isinstance(weight, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(weight).__name__}")
    if weight.spec.shape[batch > 0 :] != root.spec.shape:
        raise errors.GradError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {recording.size_of(weight)} and output[{i}] has a "
            f"shape of {recording.size_of(root)}."
        )
    if weight.spec.dtype.kind != "f":
        return np.asarray(weight._value, root.spec.dtype)
    return weight._value
