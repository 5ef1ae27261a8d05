"""Indices that differ between examples: what is picked, written and added there, against a loop over the examples."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.func import grad, vmap
from tape.tensors.tensor import Tensor

Program = Callable[[Tensor, Tensor, Tensor], Tensor]


def assigned(part: Callable[[Tensor], Any], *, adds: bool = False) -> Program:
    """Return a program that writes to ``y[part(i)]`` of a copy."""

    def program(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        y = x * 1.0
        if adds:
            y[part(i)] += v
        else:
            y[part(i)] = v
        return y

    return program


def in_place(write: Callable[[Tensor, Tensor, Tensor], Any]) -> Program:
    def program(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        y = x * 1.0
        write(y, i, v)
        return y

    return program


def swapped(x: Tensor, i: Tensor, _: Tensor) -> Tensor:
    y = x * 1.0
    y[i], y[0] = y[0].clone(), y[i].clone()
    return y


# The program of x, float64[4, 3], an index and a number, and the shape of one example's index.
PROGRAMS: dict[str, tuple[Program, tuple[int, ...]]] = {
    "x[i]": (lambda x, i, v: x[i] * v, ()),
    "x[i], i a vector": (lambda x, i, v: x[i] * v, (2,)),
    "x[i], i a matrix": (lambda x, i, _: x[i], (2, 2)),
    "x[-i]": (lambda x, i, _: x[-i], (2,)),
    "x[:, i]": (lambda x, i, _: x[:, i], ()),
    "x[..., i]": (lambda x, i, _: x[..., i], (2,)),
    "x[i, 1:]": (lambda x, i, _: x[i, 1:], ()),
    "x[1:, i]": (lambda x, i, _: x[1:, i], (2,)),
    "x[i, i]": (lambda x, i, v: x[i, i] * v, (2,)),
    "x[i, 0]": (lambda x, i, _: x[i, 0], (2,)),
    "x[i][i]": (lambda x, i, _: x[i][i], ()),
    "x[argmax]": (lambda x, *_: x[x[:, 0].argmax()], ()),
    "x[argsort]": (lambda x, *_: x[x[:, 1].argsort()], ()),
    "take": (lambda x, i, v: tape.take(x, i) * v, (2,)),
    "index_select": (lambda x, i, _: tape.index_select(x, 1, i), (2,)),
    "gather": (lambda x, i, _: tape.gather(x, 0, i), (2, 2)),
    "take_along_dim": (lambda x, i, _: tape.take_along_dim(x, i, 0), (2, 3)),
    "take_along_dim of argsort": (lambda x, *_: tape.take_along_dim(x, x.argsort(0), 0), ()),
    "np.take": (lambda x, i, _: np.take(x, i, 1), (2,)),
    "np.take_along_axis": (lambda x, i, _: np.take_along_axis(x, i, 0), (2, 3)),
    "x[i] = v": (assigned(lambda i: i), ()),
    "x[i] = v, i a vector": (assigned(lambda i: i), (2,)),
    "x[:, i] = v": (assigned(lambda i: (slice(None), i)), ()),
    "x[i, i] = v": (assigned(lambda i: (i, i)), (2,)),
    "x[i] += v": (assigned(lambda i: i, adds=True), ()),
    "swap": (swapped, ()),
    "np.add.at": (in_place(np.add.at), (2,)),
    "scatter": (lambda x, i, v: tape.scatter(x, 0, i, v.expand(2, 2)), (2, 2)),
    "scatter_ of a number": (in_place(lambda y, i, _: y.scatter_(1, i, 3.0)), (2, 2)),
    "scatter_add": (lambda x, i, v: tape.scatter_add(x, 1, i, v.expand(2, 2)), (2, 2)),
    "index_add": (lambda x, i, v: tape.index_add(x, 1, i, v.expand(4, 2)), (2,)),
    "index_copy": (lambda x, i, v: tape.index_copy(x, 1, i, v.expand(4, 2)), (2,)),
    "index_fill": (lambda x, i, v: tape.index_fill(x, 0, i, v), (2,)),
    "index_fill_ of a number": (in_place(lambda y, i, _: y.index_fill_(1, i, 2.0)), (2,)),
    "index_put": (lambda x, i, v: tape.index_put(x, (i, i), v), (2,)),
    "index_put, accumulate": (lambda x, i, v: tape.index_put(x, (i,), v, accumulate=True), (2,)),
}
DIMS = ((0, 0, None), (None, 0, None), (None, 0, 0), (1, 0, 0), (0, None, 0))


def example(x: Tensor, d: int | None, k: int) -> Tensor:
    return x if d is None else x.select(d, k)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_a_loop(name: str, dtype: type) -> None:
    program, shape = PROGRAMS[name]
    rng = np.random.default_rng(0)

    def gradients(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        by_both = grad(lambda x, v: (tape.sin(program(x, i, v) * v) ** 2).sum(), (0, 1))(x, v)
        return tape.cat([g.reshape(-1) for g in by_both])

    def nested(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        return vmap(lambda factor: program(x * factor, i, v))(tape.tensor([1.0, 2.0]))

    for dims in DIMS:
        lead = [(5,) if d == 0 else () for d in dims]
        x = tape.tensor(rng.normal(size=(*lead[0], 4, 3)) if dims[0] != 1 else rng.normal(size=(4, 5, 3)))
        i = tape.tensor(rng.integers(0, 3, size=(*lead[1], *shape)).astype(dtype))
        v = tape.tensor(rng.normal(size=lead[2]))
        for f in (program, gradients, nested):
            rows = [f(*map(example, (x, i, v), dims, (k, k, k))).numpy() for k in range(5)]
            np.testing.assert_allclose(vmap(f, in_dims=dims)(x, i, v).numpy(), np.stack(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize(
    "pick",
    [
        lambda x, i: x[i],
        lambda x, i: tape.gather(x[:, 0], 0, i.reshape(1)),
        lambda x, i: assigned(lambda i: i)(x, i, tape.tensor(1.0)),
        lambda x, i: tape.index_add(x, 0, i.reshape(1), tape.ones(1, 2)),
    ],
)
def test_out_of_bounds_in_any_example(pick: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = tape.ones(3, 2)
    for indices in ([0, 1, 3], [3, 1, 0], [0, -4, 1]):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            vmap(lambda i: pick(x, i))(tape.tensor(indices))


@pytest.mark.quick
def test_compiled_programs_of_mapped_indices_follow_these() -> None:
    def both(x: Any, i: Any) -> Any:
        return vmap(lambda x, i: assigned(lambda i: i)(x, i, tape.tensor(5.0)) * x[i])(x, i)

    compiled = tape.compile(both, check="never")
    x = np.arange(6.0).reshape(2, 3)
    for k in range(5):
        i = np.array([k % 3, 1])
        want = x * x[[0, 1], i][:, None]
        want[[0, 1], i] = 5 * x[[0, 1], i]
        np.testing.assert_array_equal(compiled(x, i), want)
