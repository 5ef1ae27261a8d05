"""``vmap``'s ``in_dims`` and ``out_dims``: checked, and one for each leaf of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from kernels.foundation.specs import Spec
from tape.engine.double_backward import Derivation
from tape.tensors import view_families
from tape.tensors.pytrees import Structure, leaves, shown, spread
from tape.tensors.tensor import Tensor, as_array, constant_tensor


def check_out_dims(name: str, out_dims: Any) -> None:
    """Raise unless a value is a dim."""
    if not all(d is None or isinstance(d, int) for d in leaves(out_dims)):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )


def in_dims_of(
    name: str, in_dims: Any, args: tuple[Any, ...], structures: list[Structure], flat: list[Any]
) -> list[int | None]:
    """Check in_dims; return one for each leaf of the arguments, counted from the front."""
    each = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
    if len(each) == len(args) and args and all(map(_usual, each, structures, flat)):
        return list(each)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(  # noqa: TRY004 (PyTorch's)
            f"{_head(name, in_dims)}expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    below = list(map(_spread, each, structures)) if len(each) == len(args) else [None]
    if None in below:
        raise ValueError(
            f"{_head(name, in_dims)}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{shown(in_dims)} but inputs has structure {shown(args)}."
        )
    dims = [d for part_dims in below if part_dims is not None for d in part_dims]
    return [None if d is None else _in_dim(name, in_dims, d, x) for d, x in zip(dims, flat, strict=True)]


def _usual(d: Any, structure: Structure, x: Any) -> bool:
    """Whether a dim is one of a tensor that is no part of a structure, or none."""
    if structure.kind is not None:
        return False
    return d is None or (type(d) is int and type(x) is Tensor and 0 <= d < len(x._form.spec.shape))


def _spread(d: Any, structure: Structure) -> list[Any] | None:
    return [d] if structure.kind is None and (d is None or type(d) is int) else spread(d, structure)


def _head(name: str, in_dims: Any) -> str:
    return f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): "


def _in_dim(name: str, in_dims: Any, d: Any, x: Any) -> int:
    if not isinstance(d, int):
        raise ValueError(  # noqa: TRY004 (PyTorch's)
            f"{_head(name, in_dims)}Got in_dim={d} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(x, Tensor):
        raise ValueError(  # noqa: TRY004 (PyTorch's)
            f"{_head(name, in_dims)}Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap "
            "over non-Tensor arguments, please use None as the respective in_dim"
        )
    rank = len(x.spec.shape)
    if not -rank <= d < rank:
        raise ValueError(
            f"{_head(name, in_dims)}Got in_dim={d} for some input, but that input is a Tensor of dimensionality {rank} "
            f"so expected in_dim to satisfy -{rank} <= in_dim < {rank}."
        )
    return d % rank


def size_of(flat: list[Any], dims: list[int | None]) -> int:
    """Return how many examples there are."""
    sizes = [x.spec.shape[d] for x, d in zip(flat, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


# The plan of a mapped function: its steps on one example, with tensors as numbered nodes.

Nodes = tuple[int, ...]


class Operation(NamedTuple):
    """An operation: its operands as nodes, or as they were, in a tuple; and the spec of one example's result.

    ``graded``: gradients were recorded when it ran; ``detached``: it left the graph behind.
    """

    op: Any
    operands: Sequence[Any]
    params: tuple[Any, ...]
    result: int
    spec: Spec
    graded: bool
    detached: bool


@dataclass(slots=True)
class Derivative:
    """Derivatives of outputs by inputs; with ``rows``, weights and results have an axis of rows."""

    derivation: Derivation
    outputs: Nodes
    inputs: Nodes
    weights: Nodes
    rows: int
    results: list[int | None]
    graded: bool


@dataclass(slots=True)
class Called:
    """A call with a batching rule of its own: ``mapped(size, args, batched)`` returns the results for all examples."""

    mapped: Callable[..., Any]
    operands: Sequence[Any]
    results: list[int | None]
    graded: bool


class Start:
    """The values that a tensor from before the recording had at its first use, to be put back."""

    def __init__(self, x: Tensor, node: int) -> None:
        self.tensor, self.node = ref(x), node
        self.value, self.slot, self.form = as_array(x), x._slot, x._form
        self.held: Tensor | None = None

    def as_tensor(self) -> Tensor:
        """Return a tensor of the kept values; the tensor itself if its memory was not written."""
        x = constant_tensor(self.value)
        x._slot, x._form = self.slot, self.form
        return x

    def restore(self) -> None:
        """Put it back."""
        x = self.tensor()
        if x is not None:
            if self.held is not None:
                self.value[...] = as_array(self.held)
            view_families.outdate(x)
            x._value = self.value
            view_families.move(x, self.slot, self.form)


Step = Operation | Derivative | Called
