"""What bridges to other frameworks share: calls on NumPy arrays with their pullbacks, in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from typing import Any, ClassVar

import numpy as np

from tape import autograd
from tape.autograd.function import Function
from tape.recording.creation import from_numpy, zeros_like
from tape.tensors.grad_modes import enable_grad, no_grad
from tape.tensors.modes import is_grad_enabled
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]
Pull = Callable[[Sequence[Array]], list[Array | None]]
"""A pullback from cotangents of the floating results to gradients of the floating operands."""


@dataclasses.dataclass(frozen=True)
class Sieve:
    """A structure without its arrays: how many these are, and the other leaves by their places."""

    structure: Structure
    count: int
    rest: tuple[tuple[int, Any], ...]

    @classmethod
    def of(cls, tree: Any, kind: Any) -> tuple[list[Any], Sieve]:
        """Return the arrays of a structure, which are of this type, and the structure without them."""
        leaves, structure = flattened(tree, none=True)
        arrays = [x for x in leaves if isinstance(x, kind)]
        rest = tuple([(i, x) for i, x in enumerate(leaves) if not isinstance(x, kind)])
        return arrays, cls(structure, len(arrays), rest)

    def filled(self, arrays: Sequence[Any]) -> Any:
        """Return the structure with these for its arrays."""
        rest, of_arrays = dict(self.rest), iter(arrays)
        return self.structure.filled([rest[i] if i in rest else next(of_arrays) for i in range(len(rest) + self.count)])


@dataclasses.dataclass
class FlatCall:
    """A function of structures as one of the arrays among their leaves, whose results are the arrays of its own's.

    All other leaves are constants of a call. ``kind`` is the type of results that are arrays. Two that do the same are
    equal: by that compiled functions know a call.
    """

    f: Callable[..., Any]
    arguments: Sieve
    kind: Any
    results: Sieve | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def of(cls, f: Callable[..., Any], call: tuple[Any, Any], operand: Any, result: Any) -> tuple[FlatCall, list[Any]]:
        """Return the function for a call of these arguments, positional and named, and the arrays among these."""
        operands, arguments = Sieve.of(call, operand)
        return cls(f, arguments, result), operands

    def __hash__(self) -> int:
        return hash(self.f)

    def __call__(self, *operands: Any) -> list[Any]:
        """Return the arrays of the result."""
        args, kwargs = self.arguments.filled(operands)
        arrays, self.results = Sieve.of(self.f(*args, **kwargs), self.kind)
        return arrays

    def filled(self, results: Sequence[Any]) -> Any:
        """Return the result of the last call with these arrays."""
        assert self.results is not None
        return self.results.filled(results)


def of_floating(
    f: Callable[..., Sequence[Any]], operands: Sequence[Any], floating: Callable[[Any], bool]
) -> tuple[Callable[..., tuple[tuple[Any, ...], list[Any]]], list[Any]]:
    """Return a function of the floating ones of operands, and these; it returns the floating results, and all."""
    flags = list(map(floating, operands))

    def run(*moving: Any) -> tuple[tuple[Any, ...], list[Any]]:
        results = list(f(*spread(moving, flags, operands)))
        return tuple(filter(floating, results)), results

    return run, list(compress(operands, flags))


def spread(moving: Iterable[Any], flags: Iterable[bool], others: Iterable[Any] = repeat(None)) -> list[Any]:
    """Return what moves where flags are set, and else the others."""
    values = iter(moving)
    return [next(values) if flag else other for flag, other in zip(flags, others, strict=False)]


# Functions of tape


def pulled(f: Callable[..., Sequence[Any]], arrays: Sequence[Array], *, record: bool) -> tuple[list[Array], Pull]:
    """Call a function of tensors with arrays; return arrays, and the pullback, which may be called again."""
    leaves = list(map(from_numpy, arrays))
    moving = [x.requires_grad_(record) for x in leaves if x.is_floating_point()]
    with enable_grad() if record else no_grad():
        results = [x if isinstance(x, Tensor) else from_numpy(np.asarray(x)) for x in f(*leaves)]

    def pull(cotangents: Sequence[Array]) -> list[Array | None]:
        gradients = _pulled_back([y for y in results if y.is_floating_point()], moving, map(from_numpy, cotangents))
        return [None if g is None else g.numpy() for g in gradients]

    return [separate(y.detach().numpy(), arrays) for y in results], pull


def _pulled_back(
    ys: Sequence[Tensor], xs: Sequence[Tensor], cotangents: Iterable[Tensor], **how: bool
) -> Sequence[Any]:
    pairs = [(y, g) for y, g in zip(ys, cotangents, strict=True) if y.requires_grad]
    if not pairs or not xs:
        return [None] * len(xs)
    outputs, gs = zip(*pairs, strict=True)
    return autograd.grad(outputs, xs, gs, retain_graph=True, allow_unused=True, **how)


def pullback(f: Callable[..., Sequence[Any]], count: int) -> Callable[..., Sequence[Tensor]]:
    """Return the pullback of a function of ``count`` tensors, of these and of cotangents of what is floating."""

    def run(*operands: Any) -> Sequence[Tensor]:
        moving, inputs = of_floating(f, operands[:count], Tensor.is_floating_point)
        leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in inputs]
        with enable_grad():
            results, _ = moving(*leaves)
        slopes = _pulled_back(results, leaves, operands[count:], create_graph=is_grad_enabled())
        return [zeros_like(x) if g is None else g for x, g in zip(inputs, slopes, strict=True)]

    return run


def separate(result: Array, arrays: Sequence[Array]) -> Array:
    """Return a result that shares no memory with what another framework holds."""
    return result.copy() if any(np.may_share_memory(result, a) for a in arrays) else result


# Functions of others


class Framework:
    """What a bridge says of its framework; cotangents and tangents are of what is floating."""

    floating: ClassVar[Callable[..., bool]]
    """Whether an array's dtype is floating."""
    vjp: ClassVar[Callable[..., Any]]
    jvp: ClassVar[Callable[..., Any]]
    vmap: ClassVar[Callable[..., Any]]

    @classmethod
    def called(cls, f: Any, arrays: Sequence[Array], wanted: bool) -> tuple[list[Array], Pull | None]:
        """Call a function of the framework's arrays with NumPy's; return NumPy's, and the pullback if ``wanted``."""
        raise NotImplementedError

    @classmethod
    def pullback(cls, f: Any, count: int) -> Any:
        """Return the pullback of a function of ``count`` arrays: one of these and of cotangents."""

        def run(*operands: Any) -> Any:
            moving, inputs = of_floating(f, operands[:count], cls.floating)
            return cls.vjp(moving, *inputs, has_aux=True)[1](operands[count:])

        return run

    @classmethod
    def pushforward(cls, f: Any, count: int) -> Any:
        """Return how results move: a function of ``count`` arrays and of tangents."""

        def run(*operands: Any) -> Any:
            moving, inputs = of_floating(f, operands[:count], cls.floating)
            return cls.jvp(moving, tuple(inputs), operands[count:], has_aux=True)[1]

        return run

    @classmethod
    def mapped(cls, f: Any, in_dims: tuple[int | None, ...]) -> Any:
        """Return the function of batches, which are the first axis of results."""
        return cls.vmap(lambda *x: tuple(f(*x)), in_dims)


_pulls: dict[int, tuple[Pull | None, list[Array]]] = {}  # by the id of results, on the way to their contexts


class ForeignCall(Function):
    """A call of a function that another framework runs and differentiates; to any order."""

    @staticmethod
    def forward(framework: type[Framework], f: Any, *operands: Any) -> Any:
        """Run it on arrays that share the memory of tensors."""
        arrays = [x.detach().numpy() for x in operands]
        results, pull = framework.called(f, arrays, any(x.requires_grad for x in operands))
        outputs = tuple([from_numpy(separate(y, arrays)) for y in results])
        _pulls[id(outputs)] = pull, arrays
        return outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep the pullback, which a compiled function has anew for each call."""
        ctx.framework, ctx.f, *operands = inputs
        ctx.pull, ctx.arrays = _pulls.pop(id(output))  # alive: copies are saved, none that gradcheck moves
        ctx.floating = [y.is_floating_point() for y in output]
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return gradients, by a function of the framework's own if they are recorded."""
        operands = ctx.saved_tensors
        gs = list(compress(cotangents, ctx.floating))
        if is_grad_enabled():
            slopes = ForeignCall.apply(ctx.framework, ctx.framework.pullback(ctx.f, len(operands)), *operands, *gs)
        else:
            slopes = [None if g is None else from_numpy(g) for g in ctx.pull([g.detach().numpy() for g in gs])]
        return None, None, *spread(slopes, map(Tensor.is_floating_point, operands))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Return tangents of results."""
        operands, pairs = ctx.saved_tensors, zip(ctx.saved_tensors, tangents[2:], strict=True)
        moved = [zeros_like(x) if t is None else t for x, t in pairs if x.is_floating_point()]
        push = ctx.framework.pushforward(ctx.f, len(operands))
        return tuple(spread(ForeignCall.apply(ctx.framework, push, *operands, *moved), ctx.floating))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], framework: type[Framework], f: Any, *operands: Any) -> Any:
        """Run the framework's own batches."""
        del info
        results = ForeignCall.apply(framework, framework.mapped(f, in_dims[2:]), *operands)
        return results, (0,) * len(results)
