"""``vmap``: a function of one example, mapped over a batch of them.

The function runs once, on the first example, while a recorder notes its operations; these are then run once, each on
the whole batch. What is differentiated inside the function is differentiated for all examples in one sweep.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.program import NodeRef
from tape import modes, shaping
from tape.batch_run import Batch
from tape.exits import numbers_of, warn_of_detaching
from tape.families import share
from tape.nesting import Structure, flattened, leaves, shown, spread
from tape.nesting import mapped as mapped_leaves
from tape.one_example import Example
from tape.operands import native
from tape.random import default_generator
from tape.tensor import Tensor, as_array, carried, leaf, plain


class _Mapped:
    """A function recorded on one example: the plan, and what it returned, as nodes."""

    def __init__(
        self, name: str, func: Callable[..., Any], rows: list[Any], args: Structure, kwargs: Any, randomness: str
    ) -> None:
        self.name = name
        self.example = Example()
        drawn, before = _drawn(), modes.current()
        try:
            modes.set_mode(before._replace(recorder=self.example))
            for x in rows:
                if isinstance(x, _Row):
                    self.example.argument(x.tensor)
            result = func(*args.filled(x.tensor if isinstance(x, _Row) else x for x in rows), **kwargs)
        finally:
            try:
                modes.set_mode(before)
            except BaseException:  # an interrupt
                modes.set_mode(before)
                raise
        found, self.structure = flattened(result, none=True)
        self.results = [self.example.reference(x) for x in found]
        del result, found
        self._check(randomness, drawn=drawn)

    def _check(self, randomness: str, *, drawn: Any) -> None:
        """Raise for what cannot be done to all examples, with everything put back."""
        try:
            self._check_values(randomness, drawn)
            self.batched = self.example.batched()
            self._check_surroundings()
        except Exception:
            for start in (*self.example.starts.values(), *self.example.replaced):
                start.restore()
            raise

    def _check_values(self, randomness: str, drawn: Any) -> None:
        if self.example.escapes:
            raise RuntimeError(
                "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow, or to take "
                f"its value out of the mapped function, at {self.example.escapes[0]}: a branch, float(), .item(), an "
                "index, NumPy, an autograd.Function without generate_vmap_rule=True or a vmap staticmethod. It differs "
                "from example to example; keep it a tensor, with tape.where for a branch"
            )
        if randomness == "error" and drawn != _drawn():
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if randomness == "different" and drawn != _drawn():
            raise NotImplementedError(
                "vmap: randomness='different' is not supported; draw the random numbers of all examples outside, and "
                "pass them in"
            )

    def _check_surroundings(self) -> None:
        """Raise if a tensor that lives on, outside of the function, was written with values that differ."""
        example, recipe = self.example, self.example.recipe
        made = {node for p in example.plan for node in _results(p.step)}
        example.forget({n for n in example.tensors if n not in made and recipe.base_of(n) not in example.starts})
        for start in (*example.starts.values(), *example.replaced):
            if recipe.base_of(start.node) in self.batched and start.tensor() is not None:
                raise RuntimeError(
                    f"vmap({self.name}): in-place on a tensor from outside of the mapped function is not possible: it "
                    "is the same for all examples, and what was to be written is not (`other` being vmapped over but "
                    "`self` not being vmapped over). Use out-of-place operations, or pass it in as an argument"
                )

    def outputs(self, moved: Sequence[Tensor], size: int) -> list[Any]:
        """Run the plan on a batch; return the results, those that differ with the batch in front."""
        batch = Batch(self.example, self.batched, moved, size)
        batch.run()
        return [batch.tensor(x.node) if isinstance(x, NodeRef) else x for x in self.results]

    def finished(self, moved: Sequence[Tensor], size: int, chunk: int | None, out_dims: Any) -> Any:
        """Run the plan, ``chunk`` examples at once; put the dim of examples where it is wanted."""
        step = max(chunk or size, 1)
        parts = [
            self.outputs([x[start : start + step] for x in moved] if step < size else moved, min(step, size - start))
            for start in range(0, max(size, 1), step)
        ]
        dims = self._out_dims(out_dims)
        return self.structure.filled(
            self._placed(x, d, list(column), size)
            for x, d, column in zip(self.results, dims, zip(*parts, strict=True), strict=True)
        )

    def _out_dims(self, out_dims: Any) -> list[Any]:
        if isinstance(out_dims, tuple) and len(out_dims) == 1 and self.structure.kind is None:
            return list(out_dims)
        dims = spread(out_dims, self.structure)
        if dims is None:
            raise ValueError(
                f"vmap({self.name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
                f"of `outputs`. out_dims has structure {shown(out_dims)} but outputs has structure "
                f"{self.structure}."
            )
        return dims

    def _placed(self, x: Any, d: int | None, parts: list[Any], size: int) -> Any:
        """Join the results of all chunks, with the dim of examples at ``d``."""
        name = self.name
        differs = isinstance(x, NodeRef) and self.example.recipe.base_of(x.node) in self.batched
        if d is None:
            if differs:
                raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
            return parts[0]
        if not isinstance(x, NodeRef):
            raise ValueError(  # noqa: TRY004 (PyTorch's)
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. Did you mean to set "
                "out_dims= to None for output?"
            )
        whole = parts[0] if len(parts) == 1 else shaping.cat(parts)
        if not differs:
            whole = shaping.expand(parts[0], (size, *parts[0].spec.shape))
        rank = len(whole.spec.shape)
        if not -rank <= d < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {d})")
        order = list(range(1, rank))
        order.insert(d % rank, 0)
        return whole if d % rank == 0 else shaping.permute(whole, tuple(order))


class _Row:
    """The first example of an argument, zeros if there is none."""

    def __init__(self, x: Tensor) -> None:
        array = as_array(x)
        first = array[0] if len(array) else np.zeros(array.shape[1:], array.dtype)
        # Shared, so that what is written into it is noted as a write.
        self.tensor = share(leaf(carried(np.array(first, order="C")), requires_grad=x._slot is not None))


def _results(step: Any) -> list[Any]:
    return step.results if hasattr(step, "results") else [step.result]


def _drawn() -> int:
    """Return how often numbers have been drawn."""
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
    it are the same for all examples, if ``randomness`` is "same"; by default they raise. A tensor of the
    surroundings cannot be written with values that differ.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = getattr(func, "__name__", repr(func))
    _check_out_dims(name, out_dims)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        given, structure = flattened(args, none=True)
        tensors = any(isinstance(x, Tensor) for x in given)
        flat = given if tensors else list(map(_converted, given))
        dims = _in_dims(name, in_dims, structure, flat)
        size = _size(flat, dims)
        fronts = [x if d is None else _front(x, d) for x, d in zip(flat, dims, strict=True)]
        rows = [x if d is None else _Row(x) for x, d in zip(fronts, dims, strict=True)]
        plan = _Mapped(name, func, rows, structure, kwargs, randomness)
        moved = [x for x, d in zip(fronts, dims, strict=True) if d is not None]
        found = plan.finished(moved, size, chunk_size, out_dims)
        return found if tensors else mapped_leaves(functools.partial(_number, name), found)

    return mapped


def _converted(x: Any) -> Any:
    return plain(carried(native(x))) if isinstance(x, np.ndarray) else x


def _number(name: str, x: Any) -> Any:
    """Return a result as NumPy's, as the arguments were."""
    if not isinstance(x, Tensor):
        return x
    if x._slot is not None and modes.is_grad_enabled():
        warn_of_detaching(f"vmap({name})")
    found = numbers_of(x)
    return found if isinstance(found, float) else found.copy()


def _check_out_dims(name: str, out_dims: Any) -> None:
    if not all(d is None or isinstance(d, int) for d in leaves(out_dims)):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )


def _in_dims(name: str, in_dims: Any, args: Structure, flat: list[Any]) -> list[int | None]:
    """Check in_dims; return one for each leaf of the arguments, counted from the front."""
    head = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(  # noqa: TRY004 (PyTorch's)
            f"{head}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args.keys:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    dims = spread(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{head}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{shown(in_dims)} but inputs has structure {args}."
        )
    return [_in_dim(head, d, x) for d, x in zip(dims, flat, strict=True)]


def _in_dim(head: str, d: Any, x: Any) -> int | None:
    if d is None:
        return None
    if not isinstance(d, int):
        raise ValueError(f"{head}Got in_dim={d} for an input but in_dim must be either an integer dimension or None.")  # noqa: TRY004 (PyTorch's)
    if not isinstance(x, Tensor):
        raise ValueError(  # noqa: TRY004 (PyTorch's)
            f"{head}Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor "
            "arguments, please use None as the respective in_dim"
        )
    rank = len(x.spec.shape)
    if not -rank <= d < rank:
        raise ValueError(
            f"{head}Got in_dim={d} for some input, but that input is a Tensor of dimensionality {rank} so expected "
            f"in_dim to satisfy -{rank} <= in_dim < {rank}."
        )
    return d % rank


def _size(flat: list[Any], dims: list[int | None]) -> int:
    sizes = [x.spec.shape[d] for x, d in zip(flat, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _front(x: Tensor, d: int) -> Tensor:
    """Return a tensor with the mapped dim in front."""
    rank = len(x.spec.shape)
    return x if d == 0 else shaping.permute(x, (d, *(k for k in range(rank) if k != d)))
