"""``vmap``: a function of one example, mapped over a batch of them.

The function runs once, on the first example, while a recorder notes its operations; these are then run once, each on
the whole batch. What is differentiated inside the function is differentiated for all examples in one sweep.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from itertools import repeat
from threading import get_ident
from typing import Any, Literal, NamedTuple

import numpy as np

from tape.engine import custom_function
from tape.engine.custom_function import Function, FunctionCtx
from tape.errors import shorten
from tape.operations.rearranging import movedim
from tape.random import default_generator
from tape.recording import views
from tape.recording.to_python import numbers_of, warn_of_detaching
from tape.tensors import modes
from tape.tensors.operands import native
from tape.tensors.pytrees import Structure, flattened, leaves, shown, spread
from tape.tensors.pytrees import mapped as mapped_leaves
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, scalar_or_array
from tape.tensors.view_families import mark_aliased
from tape.transforms.batched_run import Batch, Example
from tape.transforms.points import Tensors, reaches_out


class _Mapped:
    """A function recorded on one example: as a program, with its results as nodes."""

    def __init__(
        self, name: str, func: Callable[..., Any], arguments: _Arguments, kwargs: dict[str, Any], randomness: str
    ) -> None:
        self.name = name
        drawn, before = default_generator.changes, modes.current()
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
        self.nodes = [self.example.number(x) if isinstance(x, Tensor) else None for x in results]
        self.others = [None if isinstance(x, Tensor) else x for x in results]
        del result, results, leaves, passed
        self._check(randomness, drawn=drawn)

    def _check(self, randomness: str, *, drawn: Any) -> None:
        """Raise for what cannot be done for all examples, after undoing writes."""
        try:
            self._check_values(randomness, drew=bool(self.example.states) or drawn != default_generator.changes)
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
        for start in (*self.example.starts.values(), *self.example.replaced):
            if start.node in self.batched and start.tensor() is not None:
                raise RuntimeError(
                    f"vmap({self.name}): in-place on a tensor from outside of the mapped function is not possible: it "
                    "is the same for all examples, and what was to be written is not (`other` being vmapped over but "
                    "`self` not being vmapped over). Use out-of-place operations, or pass it in as an argument"
                )

    def outputs(self, moved: Tensors, size: int) -> list[Any]:
        """Run the program on a batch; return the results, those that differ with the batch in front."""
        batch = Batch(self.example, self.batched, moved, size)
        modes.call_given(None, batch.run)
        pairs = zip(self.nodes, self.others, strict=True)
        return [x if node is None else batch.result(node) for node, x in pairs]

    def finished(self, moved: Tensors, size: int, chunk: int | None, out_dims: Any) -> Any:
        """Run the program, ``chunk`` examples at once; put the dim of examples where it is wanted."""
        if chunk is None or chunk >= size:
            # all results are tensors that differ: they are what is wanted, the batch in front
            if out_dims == 0 and self.batched.issuperset(self.nodes):
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
        differs = node in self.batched
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
            arrays = [native(x) if isinstance(x, np.ndarray) else None for x in self.flat]
            pairs = zip(self.flat, arrays, strict=True)
            self.flat = [x if array is None else constant_tensor(scalar_or_array(array)) for x, array in pairs]
        self.dims = _in_dims_of(name, in_dims, args, self.structures, self.flat)
        sizes = [x.spec.shape[d] for x, d in zip(self.flat, self.dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError("vmap: Expected at least one Tensor to vmap over")
        if len(set(sizes)) > 1:
            raise ValueError(
                "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                f"{sizes} for the mapped dimension"
            )
        self.size = int(sizes[0])
        self.moved = [movedim(x, d, 0) if d else x for x, d in zip(self.flat, self.dims, strict=True) if d is not None]

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
    return mark_aliased(leaf(scalar_or_array(np.array(first, order="C")), requires_grad=x._slot is not None))


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: Literal["error", "different", "same"] = "error",
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
    if not all(d is None or isinstance(d, int) for d in leaves(out_dims)):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = _Arguments(name, in_dims, args)
            recorded = _Mapped(name, func, arguments, kwargs, randomness)
            results = recorded.finished(arguments.moved, arguments.size, chunk_size, out_dims)
            if arguments.tensors or reaches_out([x for x in flattened(results, none=True)[0] if isinstance(x, Tensor)]):
                return results
            return mapped_leaves(functools.partial(_number, name), results)
        except Exception as error:
            shorten(error)
            raise

    return mapped


def _number(name: str, x: Any) -> Any:
    """Return a result as NumPy's, as the arguments were."""
    if not isinstance(x, Tensor):
        return x
    if x._slot is not None and modes.is_grad_enabled():
        warn_of_detaching(f"vmap({name})")
    number = numbers_of(x)
    return number if isinstance(number, float) else number.copy()


# ``in_dims`` and ``out_dims``: checked, and one for each leaf of the arguments.


def _in_dims_of(
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
    pairs = zip(each, structures, strict=False)
    alone = [s.kind is None and (d is None or type(d) is int) for d, s in pairs]
    below = [[d] if one else spread(d, s) for d, s, one in zip(each, structures, alone, strict=False)]
    below = below if len(each) == len(args) else [None]
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


# ``vmap`` of an ``autograd.Function``: by its own rule for batches, or by one made of its forward and backward.


class VmapInfo(NamedTuple):
    """The ``info`` of a ``vmap`` staticmethod: how many examples there are, and how random numbers are treated."""

    batch_size: int
    randomness: str


def _run_function(cls: type[Function], size: int, args: Sequence[Any], batched: Sequence[bool]) -> list[Tensor]:
    """Return the outputs of a Function for all examples, the batch in front of each."""
    in_dims = tuple(0 if b else None for b in batched)
    if cls.generate_vmap_rule:
        outputs, out_dims = _generated(cls, in_dims).apply(*args), 0
    else:
        outputs, out_dims = cls.vmap(VmapInfo(size, "error"), in_dims, *args)
    leaves, structure = flattened(outputs, none=True)
    dims = spread(out_dims, structure)
    if dims is None:
        raise RuntimeError(f"{cls.__name__}.vmap: out_dims {out_dims} do not fit the outputs, {structure}")
    pairs = zip(leaves, dims, strict=True)
    return [views.expand(x, (size, *x.spec.shape)) if d is None else movedim(x, d, 0) if d else x for x, d in pairs]


custom_function.MAPPED.append(_run_function)


def _generated(cls: type[Function], in_dims: tuple[int | None, ...]) -> type[Function]:
    """Return a Function of batches that maps the forward, setup_context and backward of another."""

    class Mapped(Function):
        """The Function of all examples."""

        @staticmethod
        def forward(*args: Any) -> Any:
            """Map forward."""
            return vmap(cls.forward, in_dims)(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            """Save, for all examples, what the Function saves."""
            held: list[FunctionCtx] = []

            def saved(own_inputs: Any, own_output: Any) -> tuple[Tensor, ...]:
                example_ctx = FunctionCtx(ctx.needs_input_grad)
                cls.setup_context(example_ctx, own_inputs, own_output)
                held.append(example_ctx)
                return tuple(x for x in example_ctx._to_save if x is not None)

            ctx.save_for_backward(*vmap(saved, (in_dims, 0))(inputs, output))
            ctx.example_ctx = held[0]
            ctx.present = [x is not None for x in ctx.example_ctx._to_save]
            ctx.example_ctx._to_save = ()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            """Map backward; an input that all examples share gets the sum."""
            return _pulled(cls, ctx, in_dims, grads)

    Mapped.__name__ = Mapped.__qualname__ = cls.__name__
    return Mapped


def _pulled(cls: type[Function], ctx: Any, in_dims: tuple[int | None, ...], grads: tuple[Any, ...]) -> Any:
    present: list[bool] = []

    def pull(saved: tuple[Tensor, ...], own_grads: tuple[Any, ...]) -> tuple[Tensor, ...]:
        example_ctx, remaining = copy.copy(ctx.example_ctx), iter(saved)
        example_ctx._saved = tuple(next(remaining) if there else None for there in ctx.present)
        gradients = cls.backward(example_ctx, *own_grads)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        present[:] = [g is not None for g in gradients]
        return tuple(g for g in gradients if g is not None)

    dims = tuple(None if g is None else 0 for g in grads)
    gradients = iter(vmap(pull, (0 if ctx.saved_tensors else None, dims))(ctx.saved_tensors, grads))
    full = [next(gradients) if there else None for there in present]
    pairs = zip(full, (*in_dims, *[0] * len(full)), strict=False)
    return tuple(g if g is None or d == 0 else g.sum(0) for g, d in pairs)
