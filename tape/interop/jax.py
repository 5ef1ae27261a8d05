"""Functions of tape in JAX's programs, and JAX's functions in tape's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tape.interop import pullbacks
from tape.interop.pullbacks import Array, FlatCall, ForeignCall, Framework, Pull, of_floating, spread
from tape.tensors.tensor import Tensor

__all__ = ["from_jax", "to_jax"]

_ROUNDED = (
    "from_jax: JAX would round float64 to float32; set jax.config.update('jax_enable_x64', True), or pass .float()"
)


def to_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of JAX's arrays that runs a function of tape's, under ``jit``, ``grad`` and ``vmap`` too.

    It is a ``custom_vjp`` around a ``pure_callback``: reverse mode to any order, no forward mode; ``vmap`` calls the
    function for one example after the other. ``f`` is a function of its arguments alone. Arguments and results are
    structures of arrays. JAX has to know shapes and dtypes of results before a call in ``jit``, so that ``f`` runs once
    on ones for each new set of shapes, unless it has been called with these outside of ``jit``. Results are of JAX's
    dtypes: float32 unless ``jax_enable_x64`` is set.

    >>> import jax, jax.numpy as jnp
    >>> jax.jit(jax.grad(to_jax(lambda x: (x**3).sum())))(jnp.ones(3))
    Array([3., 3., 3.], dtype=float32)
    """
    known: dict[Any, tuple[FlatCall, Any]] = {}

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        flat, operands = FlatCall.of(f, (args, kwargs), (jax.Array, np.ndarray), (Tensor, np.ndarray, np.floating))
        key = (tuple([(x.shape, x.dtype) for x in operands]), flat)
        if key not in known:
            traced = any(isinstance(x, jax.core.Tracer) for x in operands)
            arrays = [np.ones(x.shape, x.dtype) if traced else np.asarray(x) for x in operands]
            shapes = tuple(map(_shape_of, pullbacks.pulled(flat, arrays, record=False)[0]))
            known[key] = flat, _as_jax(flat, shapes)
        flat, run = known[key]
        return flat.filled(run(*operands))

    return call


def _shape_of(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


def _as_jax(f: Any, shapes: tuple[Any, ...]) -> Any:
    """Return a function of tape's, of arrays and of such results, as one of JAX's with a pullback."""

    def host(*arrays: Any) -> list[Array]:
        results, _ = pullbacks.pulled(f, list(map(np.asarray, arrays)), record=False)
        return [np.asarray(y, shape.dtype) for y, shape in zip(results, shapes, strict=True)]

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def run(*operands: Any) -> Any:
        return jax.pure_callback(host, list(shapes), *operands, vmap_method="sequential")

    def backward(operands: Any, cotangents: Any) -> Any:
        gs = compress(cotangents, map(_is_floating, shapes))
        of_slopes = tuple(map(_shape_of, filter(_is_floating, operands)))
        slopes = _as_jax(pullbacks.pullback(f, len(operands)), of_slopes)(*operands, *gs)
        nothing = [np.zeros(x.shape, jax.dtypes.float0) for x in operands]
        return tuple(spread(slopes, map(_is_floating, operands), nothing))

    run.defvjp(lambda *operands: (run(*operands), operands), backward)
    return run


def from_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation of tape that runs a function of JAX's, which ``jax.jit`` may have compiled.

    Arguments and results are structures of tensors; what is no tensor stays what it is. Gradients are JAX's, to any
    order, and so are forward mode and ``vmap``. TypeError for float64 where ``jax_enable_x64`` is not set.

    >>> import jax, tape
    >>> x = tape.ones(3, dtype=tape.float32, requires_grad=True)
    >>> from_jax(jax.nn.softplus)(x).sum().backward()
    >>> x.grad
    tensor([0.7311, 0.7311, 0.7311], dtype=tape.float32)
    """

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        flat, operands = FlatCall.of(f, (args, kwargs), Tensor, jax.Array)
        return flat.filled(ForeignCall.apply(_Jax, flat, *operands))

    return call


def _is_floating(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


class _Jax(Framework):
    """How tape calls and differentiates JAX's functions."""

    floating = staticmethod(_is_floating)
    vjp, jvp, vmap = map(staticmethod, (jax.vjp, jax.jvp, jax.vmap))

    @classmethod
    def called(cls, f: Any, arrays: Sequence[Array], wanted: bool) -> tuple[list[Array], Pull | None]:
        run, moving = of_floating(f, list(map(_array, arrays)), _is_floating)
        if not wanted:
            return list(map(np.array, run(*moving)[1])), None
        _, pull, results = jax.vjp(run, *moving, has_aux=True)
        return list(map(np.array, results)), lambda gs: list(map(np.array, pull(tuple(map(_array, gs)))))


def _array(a: Array) -> Any:
    """Return a copy: JAX takes its arrays to be constants."""
    x = jnp.asarray(a.copy())  # jnp.array reads later, when the memory may have been written
    if x.dtype != a.dtype:
        raise TypeError(_ROUNDED)
    return x
