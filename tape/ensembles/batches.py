"""The parameter sets of a batch: one by one, or as the rows of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.tensors.pytrees import Structure, flattened, is_structure
from tape.tensors.tensor import Tensor


@dataclass
class Rows:
    """Parameter sets that are the rows of arrays, in a structure of a tuple of arguments."""

    structure: Structure
    arrays: list[Any]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def part(self, start: int, stop: int) -> Rows:
        """Return some of the rows."""
        return Rows(self.structure, [x[start:stop] for x in self.arrays])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for i in range(len(self)):
            yield self.structure.filled([x[i] for x in self.arrays])


class Items(list[tuple[Any, ...]]):
    """Parameter sets one by one, as tuples of arguments."""

    def part(self, start: int, stop: int) -> Items:
        """Return some of them."""
        return Items(self[start:stop])


Sets = Rows | Items


def sets_of(batch: Any) -> Sets:
    """Return the parameter sets of a batch; TypeError for what is none."""
    if not _is_array(batch) and hasattr(batch, "__array__"):
        batch = np.asarray(batch)
    if type(batch) is tuple:
        return _rows(batch, "argument ") if batch else Items()
    if _is_array(batch) or (is_structure(batch) and not isinstance(batch, list)):
        return _rows((batch,), "batch")
    if isinstance(batch, (str, bytes)) or not hasattr(batch, "__iter__"):
        raise TypeError(
            f"ensemble: the batch is a {type(batch).__name__}; a batch is a list of parameter sets, or arrays with a "
            "leading axis"
        )
    return Items([x if type(x) is tuple else (x,) for x in batch])


def _is_array(x: Any) -> bool:
    return isinstance(x, (Tensor, np.ndarray))


def _rows(args: tuple[Any, ...], name: str) -> Rows:
    """Return the rows of arguments; ``name`` is what a batch of one argument, or each of several, is called."""
    leaves, structure = flattened(args)
    if not leaves:
        raise TypeError("ensemble: there is no array in the batch")
    several = [name + path[1:].replace("]", "", 1) for path in structure.paths()]
    paths = [name + path[3:] for path in structure.paths()] if name == "batch" else several
    for path, x in zip(paths, leaves, strict=True):
        if not _is_array(x) or not x.ndim:
            raise TypeError(
                f"ensemble: {path} is a {type(x).__name__} without a leading axis; a batch is arrays with one, or a "
                "list of parameter sets, each a tuple of arguments"
            )
    lengths = [len(x) for x in leaves]
    if len(set(lengths)) > 1:
        shown = ", ".join(f"{path} has {n}" for path, n in zip(paths, lengths, strict=True))
        raise ValueError(f"ensemble: arrays of different lengths: {shown}")
    return Rows(structure, leaves)
