"""``vmap``: a function of one example, mapped over a batch of them.

The function runs once, on the first example, while a recorder notes its operations; these are then run once, each on
the whole batch. What is differentiated inside the function is differentiated for all examples in one sweep.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import repeat
from threading import get_ident
from typing import Any

import numpy as np

from tape.batching.example_recorder import Example
from tape.batching.mapped_dims import check_out_dims, in_dims_of, size_of
from tape.batching.run import Batch
from tape.random import default_generator
from tape.recording import views
from tape.recording.to_python import numbers_of, warn_of_detaching
from tape.tensors import modes
from tape.tensors.operands import native
from tape.tensors.pytrees import Structure, flattened, shown, spread
from tape.tensors.pytrees import mapped as mapped_leaves
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, scalar_or_array
from tape.tensors.view_families import share
from tape.transforms.forward_mode import reaches_out


class _Mapped:
    """A function recorded on one example: its plan, and its results as nodes."""

    def __init__(
        self, name: str, func: Callable[..., Any], arguments: _Arguments, kwargs: dict[str, Any], randomness: str
    ) -> None:
        self.name = name
        drawn, before = _drawn(), modes.current()
        self.example = Example(before.recorder, randomness)
        leaves = iter(arguments.leaves(self.example))
        passed = [next(leaves) if s.kind is None else s.filled(leaves) for s in arguments.structures]
        try:
            modes.set_mode(modes.Mode(before.grad, self.example, *before[2:6], get_ident()))
            result = modes.call_given(not arguments.tensors, func, *passed, **kwargs)
        finally:
            try:
                modes.set_mode(before)
            except BaseException:  # an interrupt
                modes.set_mode(before)
                raise
        results, self.structure = flattened(result, none=True)
        self.nodes = [self.example.reference(x) if isinstance(x, Tensor) else None for x in results]
        self.others = [None if isinstance(x, Tensor) else x for x in results]
        del result, results, leaves, passed
        self._check(randomness, drawn=drawn)

    def _check(self, randomness: str, *, drawn: Any) -> None:
        """Raise for what cannot be done for all examples, after undoing writes."""
        try:
            self._check_values(randomness, drew=bool(self.example.states) or drawn != _drawn())
            self.batched = self.example.batched()
            self.example.forget()
            if self.example.starts or self.example.replaced:
                self._check_surroundings()
        except Exception:
            for start in (*self.example.starts.values(), *self.example.replaced):
                start.restore()
            raise

    def _check_values(self, randomness: str, *, drew: bool) -> None:
        if self.example.escapes:
            raise RuntimeError(
                "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow, or to take "
                f"its value out of the mapped function, at {self.example.escapes[0]}: a branch, float(), .item(), a "
                "mask, NumPy, an autograd.Function without generate_vmap_rule=True or a vmap staticmethod. It differs "
                "from example to example; keep it a tensor, with tape.where for a branch"
            )
        if randomness == "error" and drew:
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if randomness == "different" and drew:
            for generator, state in self.example.states.items():
                generator.undo(state)

    def _check_surroundings(self) -> None:
        """Raise if a tensor that lives on, outside of the function, was written with values that differ."""
        example = self.example
        for start in (*example.starts.values(), *example.replaced):
            if example.bases[start.node] in self.batched and start.tensor() is not None:
                raise RuntimeError(
                    f"vmap({self.name}): in-place on a tensor from outside of the mapped function is not possible: it "
                    "is the same for all examples, and what was to be written is not (`other` being vmapped over but "
                    "`self` not being vmapped over). Use out-of-place operations, or pass it in as an argument"
                )

    def outputs(self, moved: Sequence[Tensor], size: int) -> list[Any]:
        """Run the plan on a batch; return the results, those that differ with the batch in front."""
        batch = Batch(self.example, self.batched, moved, size)
        modes.call_given(None, batch.run)
        pairs = zip(self.nodes, self.others, strict=True)
        return [x if node is None else batch.result(node) for node, x in pairs]

    def finished(self, moved: Sequence[Tensor], size: int, chunk: int | None, out_dims: Any) -> Any:
        """Run the plan, ``chunk`` examples at once; put the dim of examples where it is wanted."""
        if chunk is None or chunk >= size:
            if out_dims == 0 and self.plain():
                return self.structure.filled(self.outputs(moved, size))
            columns: Any = [[x] for x in self.outputs(moved, size)]
        else:
            parts = [
                self.outputs([x[start : start + chunk] for x in moved], min(chunk, size - start))
                for start in range(0, size, chunk)
            ]
            columns = zip(*parts, strict=True)
        return self.structure.filled(
            map(self._placed, self.nodes, self.others, self._out_dims(out_dims), columns, repeat(size))
        )

    def plain(self) -> bool:
        """Whether all results are tensors that differ, so that they are what is wanted with the batch in front."""
        bases = self.example.bases
        return all(node is not None and bases[node] in self.batched for node in self.nodes)

    def _out_dims(self, out_dims: Any) -> list[Any]:
        if isinstance(out_dims, tuple) and len(out_dims) == 1 and self.structure.kind is None:
            return list(out_dims)
        dims = [out_dims] * len(self.nodes) if type(out_dims) is int else spread(out_dims, self.structure)
        if dims is None:
            raise ValueError(
                f"vmap({self.name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
                f"of `outputs`. out_dims has structure {shown(out_dims)} but outputs has structure "
                f"{self.structure}."
            )
        return dims

    def _placed(self, node: int | None, constant: Any, d: int | None, parts: list[Any], size: int) -> Any:
        """Join the results of all chunks, with the dim of examples at ``d``."""
        name = self.name
        differs = node is not None and self.example.bases[node] in self.batched
        if d is None:
            if differs:
                raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
            return parts[0]
        if node is None:
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(constant)}. Did you mean to set "
                "out_dims= to None for output?"
            )
        whole = parts[0] if len(parts) == 1 else views.cat(parts)
        if not differs:
            whole = views.expand(parts[0], (size, *parts[0].spec.shape))
        rank = len(whole.spec.shape)
        if not -rank <= d < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {d})")
        if d % rank == 0:
            return whole
        order = list(range(1, rank))
        order.insert(d % rank, 0)
        return views.permute(whole, tuple(order))


class _Arguments:
    """The arguments of a mapped function: their leaves, the mapped dim of each in front, and how many examples."""

    def __init__(self, name: str, in_dims: Any, args: tuple[Any, ...]) -> None:
        self.flat: list[Any] = []
        self.structures: list[Structure] = []
        for x in args:
            leaves, structure = flattened(x, none=True)
            self.flat += leaves
            self.structures.append(structure)
        self.tensors = any(isinstance(x, Tensor) for x in self.flat)
        if not self.tensors:
            self.flat = list(map(_converted, self.flat))
        self.dims = in_dims_of(name, in_dims, args, self.structures, self.flat)
        self.size = size_of(self.flat, self.dims)
        pairs = zip(self.flat, self.dims, strict=True)
        self.moved = [_front(x, d) for x, d in pairs if d is not None]

    def leaves(self, example: Example) -> list[Any]:
        """Return the leaves of the first example; its recorder registers them as arguments."""
        moved = iter(self.moved)
        examples = [x if d is None else _first(next(moved)) for x, d in zip(self.flat, self.dims, strict=True)]
        for x, d in zip(examples, self.dims, strict=True):
            if d is not None:
                example.argument(x)
        return examples


def _first(x: Tensor) -> Tensor:
    """Return the first example of an argument, zeros if there is none."""
    array = as_array(x)
    first = array[0] if len(array) else np.zeros(array.shape[1:], array.dtype)
    # Shared, so that what is written into it is noted as a write.
    return share(leaf(scalar_or_array(np.array(first, order="C")), requires_grad=x._slot is not None))


def _drawn() -> int:
    """Return how often random numbers have been drawn."""
    return default_generator.changes


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that maps ``func``, a function of one example, over a dim of its arguments.

    ``in_dims`` names that dim of each tensor among the arguments, None for what is the same for all examples; it is
    an int, or has the structure of the arguments. ``out_dims`` says where the dim of examples stands in the results.
    ``chunk_size``: how many examples are run at once. Where arrays of NumPy and no tensors are given, arrays come out.

    ``func`` runs once, on the first example, and then what it did is done to all, so it must not look at values: a
    branch on one raises RuntimeError naming its line (``tape.where`` chooses element by element). Random numbers in
    it are the same for all examples if ``randomness`` is "same", others for each if "different"; by default they
    raise. A tensor of the surroundings cannot be written with values that differ.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = getattr(func, "__name__", repr(func))
    check_out_dims(name, out_dims)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        arguments = _Arguments(name, in_dims, args)
        plan = _Mapped(name, func, arguments, kwargs, randomness)
        results = plan.finished(arguments.moved, arguments.size, chunk_size, out_dims)
        if arguments.tensors or reaches_out([x for x in flattened(results, none=True)[0] if isinstance(x, Tensor)]):
            return results
        return mapped_leaves(functools.partial(_number, name), results)

    return mapped


def _converted(x: Any) -> Any:
    return constant_tensor(scalar_or_array(native(x))) if isinstance(x, np.ndarray) else x


def _number(name: str, x: Any) -> Any:
    """Return a result as NumPy's, as the arguments were."""
    if not isinstance(x, Tensor):
        return x
    if x._slot is not None and modes.is_grad_enabled():
        warn_of_detaching(f"vmap({name})")
    number = numbers_of(x)
    return number if isinstance(number, float) else number.copy()


def _front(x: Tensor, d: int) -> Tensor:
    """Return a tensor with the mapped dim in front."""
    rank = len(x.spec.shape)
    return x if d == 0 else views.permute(x, (d, *(k for k in range(rank) if k != d)))
