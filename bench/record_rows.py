"""Every elementwise record and reduction, and the usual routines, as NumPy, PyTorch and tape call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise, Reduction
from kernels.operations import OPS
from kernels.rules.op import LateUfunc, Op

SIZES = (1, 1_000, 1_000_000)
# Called alike by tape and PyTorch, with a vector; NumPy's text is given where it differs.
CALLS = {
    "prod": "f.prod(x)",
    "var": "f.var(x)",
    "std": "f.std(x)",
    "logsumexp": "f.logsumexp(x, 0)",
    "softmax": "f.softmax(x, 0)",
    "log_softmax": "f.log_softmax(x, 0)",
    "cumsum": "f.cumsum(x, 0)",
    "cumprod": "f.cumprod(x, 0)",
    "cummax": "f.cummax(x, 0)[0]",
    "sort": "f.sort(x)[0]",
    "median": "f.median(x)",
    "quantile": "f.quantile(x, 0.3)",
    "topk": "f.topk(x, 1)[0]",
    "flip": "f.flip(x, (0,))",
    "roll": "f.roll(x, 1)",
    "diff": "f.diff(x)",
    "trapezoid": "f.trapezoid(x)",
    "norm": "f.norm(x)",
    "concatenate": "f.concatenate((x, x))",
    "stack": "f.stack((x, x))",
    "take": "f.take(x, i)",
    "index": "x[i]",
    "slice": "x[1:]",
    "clone": "f.clone(x)",
    "dot": "f.dot(x, x)",
}
NUMPY = {
    "cummax": "f.maximum.accumulate(x)",
    "sort": "f.sort(x)",
    "norm": "f.linalg.norm(x)",
    "clone": "x.copy()",
    "logsumexp": "",
    "softmax": "",
    "log_softmax": "",
    "topk": "",
}
# Why a row is slower than PyTorch's at 1e6 elements.
NEAR = "near the bound: other runs were above it"
WHY = {
    **dict.fromkeys(("remainder", "fmod", "floor_divide", "nextafter", "gcd", "lcm"), "NumPy's scalar loop"),
    **dict.fromkeys(("logical_not", "logical_and", "logical_or", "logical_xor"), "NumPy's loop of doubles"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "invert"), "NumPy's loop"),
    **dict.fromkeys(("lgamma", "digamma"), "SciPy's psi sums a zeta series near its negative roots"),
    **dict.fromkeys(("i1", "i1e", "erfinv", "ndtr", "ndtri"), "SciPy's scalar loop"),
    **dict.fromkeys(("cumsum", "cumprod", "cummax"), "NumPy's accumulate is scalar"),
    **dict.fromkeys(("heaviside_number", "clamp_min", "clamp_max"), "several ufuncs, a pass each"),
    **dict.fromkeys(("prod", "var", "std", "norm", "log_softmax"), "several instructions, a pass each"),
    "slice": "its cotangent is put into zeros of the whole",
    "roll": "two parts, and what joins them",
    "topk": "NumPy's argpartition",
}
# PyTorch has no derivative of these, or one that is no array.
WITHOUT = ("heaviside", "heaviside_number", "floor_divide", "sgn")


@dataclass(frozen=True)
class RecordRow:
    """One operation: ``call(lib, tensors, index)`` for tape and PyTorch, ``plain(arrays, index)`` for NumPy or None."""

    name: str
    domains: tuple[str, ...]
    call: Callable[..., Any]
    plain: Callable[..., Any] | None
    differentiable: bool = True

    def arrays(self, n: int) -> list[Any]:
        """Return operands of n elements."""
        rng = np.random.default_rng(n)
        size = [rng.uniform(0.2, 0.9, n) for _ in self.domains]
        sign = [np.where(rng.uniform(size=n) < 0.5, -1.0, 1.0) for _ in self.domains]
        return [_drawn(d, s, t) for d, s, t in zip(self.domains, size, sign, strict=True)]


def _drawn(domain: str, size: Any, sign: Any) -> Any:
    if domain == "boolean":
        return sign > 0
    if domain == "integer":
        return (sign * 5).astype(np.int64)
    if domain == "above":
        return 1.0 + size
    return size if domain in ("positive", "inside", "probability") else sign * size


def rows(torch: Any) -> Iterator[RecordRow]:
    """Yield the rows of what PyTorch has too."""
    for op in OPS.values():
        if isinstance(op, Elementwise):
            name = next((n for n in _names(op) if _of(torch, n)), None)
            if name is not None:
                yield RecordRow(
                    op.name, op.domain, _named(op, name), _ufunc(op), op.differentiable and op.name not in WITHOUT
                )
        elif isinstance(op, Reduction) and op.name in ("sum", "mean", "amax", "amin"):
            yield RecordRow(op.name, ("real",), _expression(f"f.{op.name}(x)"), getattr(np, op.name))
    for name, text in CALLS.items():
        plain = NUMPY.get(name, text)
        yield RecordRow(name, ("real",), _expression(text), (lambda x, t=plain: _run(t, np, x)) if plain else None)


def _names(op: Op) -> tuple[str, ...]:
    return (op.name, *op.torch) if op.function else op.torch


def _of(lib: Any, name: str) -> Any:
    return getattr(lib, name, None) or getattr(lib.special, name, None)


def _named(op: Op, theirs: str) -> Callable[..., Any]:
    names = _names(op)

    def call(lib: Any, *operands: Any) -> Any:
        found = _of(lib, theirs if lib.__name__ == "torch" else names[0])
        return found(*operands)

    return call


def _ufunc(op: Elementwise) -> Any:
    return op.ufunc.ufunc if isinstance(op.ufunc, LateUfunc) else op.ufunc


def _expression(text: str) -> Callable[..., Any]:
    code = compile(text, text, "eval")
    return lambda lib, x: _run(code, lib, x)


def _run(code: Any, lib: Any, x: Any) -> Any:
    places = np.arange(len(x))[::-1].copy()
    index = places if lib is np else lib.as_tensor(places)
    return eval(code, {"f": lib, "x": x, "i": index})  # noqa: S307 (the tables above)
