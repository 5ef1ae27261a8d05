"""Operations as PyTorch's users write them, each as one expression of what its letters stand for.

``f`` is the library, ``n`` its ``nn.functional``. x, y, z: vectors (below 1, of either sign); p, q: positive ones; o:
above 1; m, w: matrices with as many elements; c, d: points in three dimensions; h: a symmetric positive definite
matrix; a, b: square matrices; l: a lower triangle; i, r: permutations of elements and rows, j: rows for
each element of m, g: columns for each row, t: a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZES = (8, 1_000, 1_000_000)
_SHAPES = {8: (2, 4), 1_000: (25, 40), 1_000_000: (1_000, 1_000)}
_SQUARES = {8: 3, 1_000: 30, 1_000_000: 200}
FLOATS = "xyzpqomwcdhabl"

_UNARY = {
    "x": "neg abs exp exp2 expm1 square sin cos tan asin acos atan sinh cosh tanh asinh atanh sigmoid relu erf erfc "
    "erfinv sinc sign floor round i0 deg2rad",
    "p": "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma logit",
    "o": "acosh",
}
ELEMENTWISE = {name: f"f.{name}({x})" for x, names in _UNARY.items() for name in names.split()} | {
    "softplus": "n.softplus(x)", "silu": "n.silu(x)", "gelu": "n.gelu(x)", "elu": "n.elu(x)",
    "leaky_relu": "n.leaky_relu(x)", "add": "x + y", "sub": "x - y", "mul": "x * y", "div": "x / p",
    "x + 1": "x + 1.5", "2 * x": "2.0 * x", "1 / x": "1.0 / p", "x ** 2": "x ** 2", "x ** 3": "x ** 3",
    "x ** 0.5": "p ** 0.5", "pow": "p ** x", "atan2": "f.atan2(x, y)", "maximum": "f.maximum(x, y)",
    "minimum": "f.minimum(x, y)", "hypot": "f.hypot(x, y)", "logaddexp": "f.logaddexp(x, y)", "fmod": "f.fmod(x, p)",
    "remainder": "f.remainder(x, p)", "where": "f.where(t, x, y)", "clamp": "f.clamp(x, -0.5, 0.5)",
    "lerp": "f.lerp(x, y, 0.3)", "addcmul": "f.addcmul(x, y, p)", "masked_fill": "f.masked_fill(x, t, 0.5)",
    "xlogy": "f.xlogy(p, q)", "add a row": "m + m[0]", "mul a column": "m * m[:, :1]",
}  # fmt: skip
_ROWS_AND_COLUMNS = {
    "sum": "f.sum(m, D)", "mean": "f.mean(m, D)", "prod": "f.prod(m, D)", "amax": "f.amax(m, D)",
    "max": "f.max(m, D)[0]", "std": "f.std(m, D)", "logsumexp": "f.logsumexp(m, D)", "norm": "f.norm(m, dim=D)",
    "softmax": "f.softmax(m, D)", "log_softmax": "f.log_softmax(m, D)", "cumsum": "f.cumsum(m, D)",
    "cumprod": "f.cumprod(m, D)", "cummax": "f.cummax(m, D)[0]", "sort": "f.sort(m, D)[0]",
    "topk": "f.topk(m, 2, D)[0]", "median": "f.median(m, D)[0]", "flip": "f.flip(m, (D,))", "roll": "f.roll(m, 1, D)",
    "diff": "f.diff(m, dim=D)", "cat": "f.cat([m, w], D)", "stack": "f.stack([m, w], D)",
}  # fmt: skip
REDUCTIONS = {
    "sum": "f.sum(x)", "mean": "f.mean(x)", "prod": "f.prod(o)", "max": "f.max(x)", "var": "f.var(x)",
    "std": "f.std(x)", "norm": "f.norm(x)", "logsumexp": "f.logsumexp(x, 0)", "softmax": "f.softmax(x, 0)",
    "cumsum": "f.cumsum(x, 0)", "cumprod": "f.cumprod(o, 0)", "sort": "f.sort(x)[0]", "median": "f.median(x)",
    "dot": "f.dot(x, y)",
} | {
    f"{name} {along}": text.replace("D", dim)
    for name, text in _ROWS_AND_COLUMNS.items()
    for along, dim in (("along rows", "1"), ("along columns", "0"))
}  # fmt: skip
SHAPES = {
    "x[i]": "x[i]", "x[1:]": "x[1:] * 2.0", "x[::2]": "x[::2] * 2.0", "m[0]": "m[0] * 2.0",
    "m[:, 1]": "m[:, 1] * 2.0", "x[t]": "x[t]",
    "gather": "f.gather(m, 0, j)", "index_select": "f.index_select(m, 0, r)", "index_add": "f.index_add(m, 0, r, w)",
    "scatter_add": "f.scatter_add(m, 0, j, w)", "index_put": "f.index_put(x, (i,), y)",
    "x[i] = v": "put(x.clone(), i, y)", "x[1:] = v": "put(x.clone(), slice(1, None), y[1:])",
    "clone": "x.clone()", "t()": "m.t().clone()", "reshape": "m.reshape(-1) * 1.0", "expand": "m[:1].expand_as(m) * w",
    "repeat": "x.repeat(2)", "diag": "f.diag(x[:300])", "diag of a matrix": "f.diag(m)",
    "diagonal": "m.diagonal() * 2.0",
    "trace": "f.trace(m)", "tril": "f.tril(m)", "outer": "f.outer(x[:1000], y[:1000])", "pad": "n.pad(m, (1, 1))",
    "cross": "f.linalg.cross(c, d)", "cdist": "f.cdist(c[:300], d[:300])", "embedding": "n.embedding(r, w)",
}  # fmt: skip
PRODUCTS = {
    "m @ w.T": "m @ w.t()", "a @ b": "a @ b", "a @ v": "a @ b[0]", "linear": "n.linear(a, b, b[0])",
    "bmm": "f.bmm(a.expand(3, -1, -1), b.expand(3, -1, -1))", "einsum": "f.einsum('ij,kj->ik', a, b)",
    "kron": "f.kron(a[:12, :12], b[:12, :12])", "inv": "f.linalg.inv(h)", "det": "f.linalg.det(h / h.detach().norm())",
    "slogdet": "f.linalg.slogdet(h)[1]", "solve": "f.linalg.solve(h, b)", "cholesky": "f.linalg.cholesky(h)",
    "qr": "f.linalg.qr(a)[1]", "svd": "f.linalg.svd(a)[1]", "svdvals": "f.linalg.svdvals(a)",
    "eigh": "f.linalg.eigh(h)[0]", "eigvalsh": "f.linalg.eigvalsh(h)", "lstsq": "f.linalg.lstsq(h, b)[0]",
    "solve_triangular": "f.linalg.solve_triangular(l, b, upper=False)", "pinv": "f.linalg.pinv(h)",
    "matrix_exp": "f.linalg.matrix_exp(a / 30)", "matrix_power": "f.linalg.matrix_power(a / 30, 3)",
}  # fmt: skip
LOSSES = {
    "mse_loss": "n.mse_loss(x, y)", "l1_loss": "n.l1_loss(x, y)", "huber_loss": "n.huber_loss(x, y)",
    "binary_cross_entropy": "n.binary_cross_entropy(p, q)",
    "bce with logits": "n.binary_cross_entropy_with_logits(x, q)", "cross_entropy": "n.cross_entropy(m, g)",
    "layer_norm": "n.layer_norm(m, m.shape[1:])", "batch_norm": "n.batch_norm(m, None, None, training=True)",
    "normalize": "n.normalize(m)", "cosine_similarity": "n.cosine_similarity(m, w)",
}  # fmt: skip
CELLS = {
    "elementwise": ELEMENTWISE, "reductions": REDUCTIONS, "shapes": SHAPES, "products": PRODUCTS, "losses": LOSSES,
}  # fmt: skip


def _layer(make: Callable[[Any], Any], *lead: int) -> Callable[..., Any]:
    """Return the value and gradients of a module of images, as many as there are about n elements."""

    def start(f: Any, n: int, dtype: Any) -> Any:
        module, side = make(f.nn).to(dtype=dtype), max(int((n / lead[0]) ** 0.5), 8)
        x = f.tensor(np.random.default_rng(0).normal(size=(1, lead[0], side, side)), dtype=dtype).requires_grad_()

        def run() -> None:
            x.grad = None
            module(x).sum().backward()

        return run

    return start


def _transformed(run: Callable[..., Any], most: int = 1_000_000) -> Callable[..., Any]:
    def start(f: Any, n: int, dtype: Any) -> Any:
        x = f.tensor(np.random.default_rng(0).normal(size=min(n, most)), dtype=dtype)
        return lambda: run(f, x)

    return start


def _cubed(f: Any) -> Any:
    class Cubed(f.autograd.Function):  # type: ignore[misc, name-defined]
        """x * x * x with a backward of its own."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            """Return the cube."""
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            """Return three squares of the operand times g."""
            (x,) = ctx.saved_tensors
            return 3.0 * g * x * x

    return Cubed.apply


def _own_function(f: Any, n: int, dtype: Any) -> Any:
    cubed, x = _cubed(f), f.tensor(np.random.default_rng(0).normal(size=n), dtype=dtype).requires_grad_()

    def run() -> None:
        x.grad = None
        cubed(x).sum().backward()

    return run


def _stepped(name: str, **named: Any) -> Callable[..., Any]:
    """Return a step of an optimizer on a parameter whose gradient is there."""

    def start(f: Any, n: int, dtype: Any) -> Any:
        x = f.tensor(np.random.default_rng(0).normal(size=n), dtype=dtype).requires_grad_()
        x.grad = f.ones_like(x).detach()
        return getattr(f.optim, name)([x], lr=1e-6, **named).step

    return start


CALLS: dict[str, Callable[..., Any]] = {
    "rand": lambda f, n, dtype: lambda: f.rand(n, dtype=dtype),
    "randn": lambda f, n, dtype: lambda: f.randn(n, dtype=dtype),
    "randint": lambda f, n, _: lambda: f.randint(0, 10, (n,)), "randperm": lambda f, n, _: lambda: f.randperm(n),
    "bernoulli": _transformed(lambda f, x: f.bernoulli(0.3 * f.ones_like(x))),
    "conv2d": _layer(lambda nn: nn.Conv2d(3, 4, 3), 3), "max_pool2d": _layer(lambda nn: nn.MaxPool2d(2), 4),
    "avg_pool2d": _layer(lambda nn: nn.AvgPool2d(2), 4), "BatchNorm2d": _layer(lambda nn: nn.BatchNorm2d(4), 4),
    "GroupNorm": _layer(lambda nn: nn.GroupNorm(2, 4), 4), "autograd.Function": _own_function,
    "func.vjp": _transformed(lambda f, x: f.func.vjp(lambda x: x.sin() * x, x)[1](x)),
    "func.jvp": _transformed(lambda f, x: f.func.jvp(lambda x: x.sin() * x, (x,), (x,))),
    "func.grad": _transformed(lambda f, x: f.func.grad(lambda x: (x.sin() * x).sum())(x)),
    "func.hessian": _transformed(lambda f, x: f.func.hessian(lambda x: (x.sin() * x).sum())(x), 30),
    "vmap(grad)": _transformed(lambda f, x: f.vmap(f.func.grad(lambda x: x.sin() * x))(x)),
    "SGD": _stepped("SGD", momentum=0.9), "Adam": _stepped("Adam"), "AdamW": _stepped("AdamW"),
    "RMSprop": _stepped("RMSprop"), "Adagrad": _stepped("Adagrad"),
}  # fmt: skip
"""What is no expression of an operand: given the library, a size and a dtype, a function to be timed."""


@dataclass(frozen=True)
class Call:
    """One of ``CALLS``, at one size, in one dtype."""

    name: str
    size: int
    dtype: str

    def arrays(self) -> dict[str, Any]:
        """Return nothing: the call makes its operands."""
        return {}

    def run(self, lib: Any, _: dict[str, Any]) -> Any:
        """Return the function to be timed."""
        return CALLS[self.name](lib, self.size, getattr(lib, self.dtype))


def calls(dtypes: tuple[str, ...]) -> list[Call]:
    """Return all calls."""
    return [Call(name, size, dtype) for name in CALLS for dtype in dtypes for size in SIZES]


@dataclass(frozen=True)
class Cell:
    """An operation at one size, in one dtype."""

    name: str
    text: str
    size: int
    dtype: str

    def arrays(self) -> dict[str, Any]:
        """Return what the letters of the expression stand for."""
        made = operands(self.size)
        names = compile(self.text, self.name, "eval").co_names
        return {n: _cast(made[n], self.dtype) for n in names if n in made}

    def run(self, lib: Any, arrays: dict[str, Any]) -> Any:
        """Return a function that gives the value and all gradients, of leaves that are kept."""
        scope = {name: lib.tensor(array) for name, array in arrays.items()}
        leaves = [x.requires_grad_() for name, x in scope.items() if name in FLOATS]
        code = compile(self.text, self.name, "eval")
        scope |= {"f": lib, "n": lib.nn.functional, "put": _put}
        cotangent = lib.ones_like(eval(code, scope).detach())  # noqa: S307 (the tables above)

        def run() -> list[Any]:
            for x in leaves:
                x.grad = None
            value = eval(code, scope)  # noqa: S307
            value.backward(cotangent)
            return [value, *[x.grad for x in leaves]]

        return run


def _put(x: Any, where: Any, value: Any) -> Any:
    x[where] = value
    return x


def _cast(array: Any, dtype: str) -> Any:
    return array.astype(dtype) if array.dtype.kind == "f" else array


def operands(n: int) -> dict[str, Any]:
    """Return what the letters stand for at a size, as arrays of doubles, integers and booleans."""
    rng, (rows, columns), k = np.random.default_rng(n), _SHAPES[n], _SQUARES[n]
    real = {name: rng.uniform(0.2, 0.9, n) * rng.choice([-1.0, 1.0], n) for name in "xyz"}
    positive = {name: rng.uniform(0.2, 0.9, n) for name in "pq"}
    points = {name: rng.normal(size=(max(n // 3, 2), 3)) for name in "cd"}
    squares = {name: rng.normal(size=(k, k)) for name in "ab"}
    a = squares["a"]
    return {
        **real, **positive, **points, **squares, "o": 1.0 + positive["p"] / n,
        "m": real["x"].reshape(rows, columns), "w": real["y"].reshape(rows, columns)[::-1].copy(),
        "h": a @ a.T + k * np.eye(k), "l": np.tril(a) + k * np.eye(k), "i": rng.permutation(n),
        "r": rng.permutation(rows),
        "j": rng.integers(0, rows, (rows, columns)), "g": rng.integers(0, columns, rows), "t": real["y"] > 0,
    }  # fmt: skip


def cells(dtypes: tuple[str, ...] = ("float64", "float32")) -> list[Cell]:
    """Return all cells."""
    return [
        Cell(name, text, size, dtype)
        for table in CELLS.values() for name, text in table.items() for dtype in dtypes for size in SIZES
    ]  # fmt: skip
