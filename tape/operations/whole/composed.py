"""PyTorch's functions that are made of a few others: ``rsub``, ``threshold``, ``frexp``, ``vander``, ``angle``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape import return_types, special
from tape.operations import elementwise
from tape.operations.matrices import determinants
from tape.operations.numpy_arguments import cast
from tape.operations.operators import FUNCTIONS
from tape.operations.shapes import padding
from tape.recording import record, views
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor, as_array, leaf

_where: Any = FUNCTIONS["where"]


@public(methods=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Return ``other - alpha * input``.

    >>> tape.rsub(tape.tensor([1.0, 2.0]), 10, alpha=2).tolist()
    [8.0, 6.0]
    """
    return FUNCTIONS["sub"](other, input, alpha=alpha)  # type: ignore[no-any-return]


@public(methods=False)
def threshold(input: Any, threshold: Any, value: Any) -> Tensor:
    """Return x where it is above a number, elsewhere another number, which has no gradient; nan stays.

    >>> tape.threshold(tape.tensor([1.0, 2.0, 3.0]), 2.0, -1.0).tolist()
    [-1.0, -1.0, 3.0]
    """
    input = tensor_of(input)
    return _where(input <= threshold, value, input)  # type: ignore[no-any-return]


@public(methods=False)
def fill(input: Any, value: Any) -> Tensor:
    """Return a tensor of the shape and dtype of x filled with one number, or with a 0-d tensor, which has the gradient.

    >>> tape.fill(tape.zeros(3), 2.0).tolist()
    [2.0, 2.0, 2.0]
    """
    return views.clone(tensor_of(input)).fill_(value)


@public()
def frexp(input: Any) -> Any:
    """Return the mantissas, of absolute value in [0.5, 1), and the int32 exponents of two; x is their ``ldexp``.

    >>> [e.tolist() for e in tape.frexp(tape.tensor([3.0, -0.25]))]
    [[0.75, -0.5], [2, -1]]
    """
    input = tensor_of(input)
    if input.spec.dtype.kind != "f":
        raise RuntimeError(
            f"frexp() only supports floating-point dtypes, not {input.spec.dtype.name}; convert: x.double()"
        )
    record.note_escape(input)
    exponents = np.frexp(as_array(input))[1]
    mantissas = elementwise.ldexp(input, -exponents)
    return return_types.frexp(mantissas, leaf(np.asarray(exponents), requires_grad=False))


@implements(np.frexp)
def _frexp(x: Any) -> tuple[Tensor, Tensor]:
    mantissas, exponents = frexp(_floating(x))
    return mantissas, exponents


def _floating(x: Any) -> Tensor:
    x = tensor_of(x)
    return x if x.spec.dtype.kind == "f" else cast(x, np.float64)


@implements(np.vander)
@public(methods=False)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 (PyTorch's name)
    """Return the powers of the elements of a vector, a row each, from N - 1 down to 0; N is its length unless given.

    >>> tape.vander(tape.tensor([2.0, 3.0]), 3).tolist()
    [[4.0, 2.0, 1.0], [9.0, 3.0, 1.0]]
    """
    x = tensor_of(x)
    if len(x.spec.shape) != 1:
        raise RuntimeError(f"vander: x must be a one-dimensional tensor; the shape is {list(x.spec.shape)}")
    count = x.spec.size if N is None else N
    if count <= 1:
        if count < 0:
            raise RuntimeError(f"vander: N must be non-negative, not {N}")
        return views.unsqueeze(x, 1)[:, :0] if not count else views.unsqueeze(x, 1) ** 0
    powers = determinants.vander(x, count)
    return powers if increasing else powers.flip(1)  # type: ignore[no-any-return]


@public()
def igamma(input: Any, other: Any) -> Tensor:
    """Return the regularised lower incomplete gamma function of order x; the gradient goes to ``other`` alone.

    NotImplementedError where x requires grad, for nobody has written that derivative.

    >>> tape.igamma(1.0, tape.tensor([0.5, 1.0]))
    tensor([0.3935, 0.6321])
    """
    return special.gammainc(input, other)


@public()
def igammac(input: Any, other: Any) -> Tensor:
    """Return the regularised upper incomplete gamma function of order x, one less :func:`igamma`.

    >>> tape.igammac(1.0, tape.tensor([0.5, 1.0]))
    tensor([0.6065, 0.3679])
    """
    return special.gammaincc(input, other)


@public()
def angle(input: Any) -> Tensor:
    """Return the angle of numbers in the plane: pi where they are negative, else 0; nan stays. The gradient is 0.

    >>> tape.angle(tape.tensor([2.0, -3.0]))
    tensor([0.0000, 3.1416])
    """
    input = _floating(input)
    half, none = (np.asarray(turn, input.spec.dtype) for turn in (np.pi, 0.0))
    result: Tensor = _where(input != input, input, _where(input < 0, half, none))  # noqa: PLR0124
    return result


@implements(np.angle)
def _angle(z: Any, deg: bool = False) -> Tensor:
    return FUNCTIONS["rad2deg"](angle(z)) if deg else angle(z)


@public(methods=False)
def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> Tensor:
    """Return the tensor with places of one value put before and behind: :func:`pad` with its default mode.

    >>> tape.constant_pad_nd(tape.tensor([1.0]), (1, 2), 3.0)
    tensor([3., 1., 3., 3.])
    """
    return padding.pad(input, pad, value=value)
