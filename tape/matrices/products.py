"""Products of matrices, and einsum."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from kernels.call_cache.entries import Notification
from kernels.foundation.numpy_arrays import silently
from kernels.foundation.specs import spec_of
from kernels.kinds import reduction
from kernels.kinds.form import Form
from kernels.kinds.reduction import Contraction
from kernels.native import pool
from kernels.native.call_structs import OP_MATMUL
from kernels.operations.registry import OPS
from tape.operations.diagonals import diagonal
from tape.recording import record, routine_calls, views
from tape.recording.promotion import alike, tensors_of, with_tensor
from tape.repeated_calls.call_table import NATIVELY, enter_call, install, key_of, number_of, repeating
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.hooks import public
from tape.tensors.operands import Number, _merge, is_foreign
from tape.tensors.tensor import Tensor, as_array, method, scalar_or_array

# Matrix products: of vectors and matrices in native code, of batches of them by NumPy.

_PRODUCTS = {op.ranks[0]: op for op in OPS.values() if isinstance(op, Contraction)}
"""The records of products by the ranks of both operands."""
_BMM: Any = OPS["bmm"]
Method = TypeVar("Method", bound=Callable[..., Any])
_MATRIX = 2
_BATCH = 3


def _multiplying(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a product of two tensors, or of one and an array."""
    number = number_of(name)
    return repeating(number, partial(_enter, number))


def _enter(number: int, result: Any, *args: Any, **named: Any) -> None:
    """Enter a product of matrices and vectors that has been made."""
    if named or type(result) is not Tensor or not any(type(x) is Tensor for x in args):
        return
    operands = tuple([with_tensor(x) if type(x) is np.ndarray else x for x in args])
    if any(type(x) is not Tensor for x in operands):
        return
    a, b = operands
    op = _PRODUCTS.get((len(a.spec.shape), len(b.spec.shape)))
    if op is not None:
        key = key_of(number, operands, (a._form, b._form), 0)

        def how(saved: tuple[str, ...]) -> Any:
            return reduction.computation(a.spec, b.spec, result.spec, saved)

        enter_call(key, operands, result, Notification(op, 2), how)


def _product(op: Contraction, a: Tensor, b: Tensor) -> Tensor:
    """Multiply operands of one dtype whose shapes fit."""
    value = silently(pool.call, np.matmul, as_array(a), as_array(b))
    wants = (a._slot is not None, b._slot is not None)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = {"a": a._value, "b": b._value}
        return tuple(by_name[name] for name in form.saved)

    return record.finish(
        op, (a, b), value, lambda: op.form((a.spec, b.spec), spec_of(scalar_or_array(value)), wants), saved, ()
    )


def _checked(name: str, a: Any, b: Any) -> Tensor:
    a, b = alike(a, b)
    shapes = a.spec.shape, b.spec.shape
    op = _PRODUCTS.get((len(shapes[0]), len(shapes[1])))
    if op is None and name == "matmul":
        return _of_batches(a, b)
    if op is None or name not in ("matmul", op.name):
        raise RuntimeError(
            f"{name}: operands of shapes {list(shapes[0])} and {list(shapes[1])}; {name} takes {_wanted(name)}, "
            "use matmul"
        )
    if shapes[0][-1] != shapes[1][0]:
        raise RuntimeError(_mismatch(op.name, *shapes))
    return _product(op, a, b)


def _wanted(name: str) -> str:
    words = {1: "a vector", 2: "a matrix"}
    op = OPS[name]
    assert isinstance(op, Contraction)
    return " and ".join(words[rank] for rank in op.ranks[0])


def _mismatch(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> str:
    if name == "mm":
        return f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})"
    if name == "dot":
        return (
            f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same number of elements, "
            f"but got {a[0]} and {b[0]} elements respectively"
        )
    return f"{name}: size mismatch, got input {list(a)} and {list(b)}"


def _of_batches(a: Tensor, b: Tensor) -> Tensor:
    """Multiply where an operand has three or more dims; a batch times one matrix is one product of matrices."""
    left, right = a.spec.shape, b.spec.shape
    if not left or not right:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(left)}D and {len(right)}D"
        )
    if len(right) <= _MATRIX:
        rows, k = left[:-1], left[-1]
        flat = matmul(views.reshape(a, (math.prod(rows), k)), b)
        return views.reshape(flat, (*rows, *right[1:]))
    if len(left) == 1:
        return views.squeeze(_of_batches(views.unsqueeze(a, 0), b), -2)
    batch = _merge("matmul", left[:-2], right[:-2])
    m, k, n = left[-2], left[-1], right[-1]
    if k != right[-2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{math.prod(batch)}, {k}] but got: "
            f"[{math.prod(batch)}, {right[-2]}]."
        )
    return product_of_batches(_spread(a, (*batch, m, k)), _spread(b, (*batch, k, n)))


def _spread(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.spec.shape == shape else views.expand(x, shape)


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    return routine_calls.call(_BMM, a, b)  # type: ignore[no-any-return]


@argued
def product_of_batches(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of the same extents in front."""
    return _multiplied(a, b)


@public()
@argued
def bmm(input: Any, mat2: Any) -> Tensor:
    """Return the products of a batch of matrices, (b, m, k) and (b, k, n): (b, m, n).

    >>> tape.bmm(tape.ones(2, 1, 3), tape.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """
    a, b = alike(input, mat2)
    for number, x in enumerate((a, b), 1):
        if len(x.spec.shape) != _BATCH:
            raise RuntimeError(f"bmm: batch{number} must be a 3D tensor; its shape is {list(x.spec.shape)}")
    left, right = a.spec.shape, b.spec.shape
    if right[:2] != (left[0], left[2]):
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{left[0]}, {left[2]}] but got: "
            f"[{right[0]}, {right[1]}]."
        )
    return _multiplied(a, b)


@method()
@_multiplying("mm")
def mm(input: Any, mat2: Any) -> Tensor:
    """Return the product of an (m, k) and a (k, n) matrix.

    >>> tape.mm(tape.eye(2), tape.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    return _checked("mm", input, mat2)


@method()
@_multiplying("mv")
def mv(input: Any, vec: Any) -> Tensor:
    """Return the product of an (m, k) matrix and a (k,) vector.

    >>> tape.mv(tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _checked("mv", input, vec)


@method()
@_multiplying("dot")
def dot(input: Any, tensor: Any) -> Tensor:
    """Return the inner product of two vectors, 0-d.

    >>> tape.dot(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return _checked("dot", input, tensor)


@method()
@_multiplying("matmul")
def matmul(input: Any, other: Any) -> Tensor:
    """Return the product of vectors, matrices and batches of them, as ``@`` does; batches are broadcast.

    >>> tape.matmul(tape.ones(4, 2, 3), tape.ones(3)).shape
    tape.Size([4, 2])
    """
    return _checked("matmul", input, other)


def _operator(self: Any, other: Any, /) -> Tensor:
    foreign = type(other) is not Tensor and (isinstance(other, Number) or is_foreign(other))
    return NotImplemented if foreign else _checked("matmul", self, other)


def _reversed(self: Any, other: Any, /) -> Tensor:
    return NotImplemented if isinstance(other, Number) or is_foreign(other) else _checked("matmul", other, self)


def _product_operator(a: Any, b: Any) -> Any:
    return _operator(a, b) if isinstance(a, Tensor) else _reversed(b, a)


if NATIVELY:
    install(OP_MATMUL, _product_operator, partial(_enter, OP_MATMUL))
else:
    method("__matmul__")(_operator)
    method("__rmatmul__")(_reversed)


# ``einsum``: pairs of operands contracted by matrix products, in an order that NumPy's planner finds.
#
# An operand is seen with a label for each dim. Repeated labels are diagonals, labels that nothing else needs are
# summed, and the rest of a pair is one (batched) matrix product of views, so its gradients are matrix products too.

Labels = tuple[str, ...]


@public(methods=False)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Return the sum of products that an equation such as "bij,bjk->bik" names.

    An ellipsis stands for dims that are broadcast; without "->" the result has the labels that appear once, in
    alphabetical order. ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` gives labels as numbers. The result may be a view.

    >>> tape.einsum("ij,j->i", tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not isinstance(equation, str):
        equation, operands = _from_numbers((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors = tensors_of(*operands)
    inputs, output, path = _plan(equation, tuple(x.spec.shape for x in tensors))
    terms = [_alone(x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    terms = [_squeezed(terms, k) for k in range(len(terms))]
    for chosen in path:
        taken = [terms[i] for i in chosen]
        terms = [t for i, t in enumerate(terms) if i not in chosen]
        while len(taken) > 1:
            (a, b), taken = taken[:2], taken[2:]
            others = {*output, *(label for _, labels in (*terms, *taken) for label in labels)}
            taken.insert(0, contract(*a, *b, others))
        terms.append(taken[0])
    ((contracted, labels),) = terms
    contracted, labels = _summed(contracted, labels, {*output})
    result = _ordered(contracted, labels, output)
    if any(result is x for x in tensors):  # a view, as PyTorch has it
        return views.expand(result, result.spec.shape)
    return result


def _from_numbers(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Turn lists of numbers into an equation."""
    pairs = len(args) // 2
    parts = [_letters(args[2 * k + 1]) for k in range(pairs)]
    arrow = f"->{_letters(args[-1])}" if len(args) % 2 else ""
    return ",".join(parts) + arrow, args[: 2 * pairs : 2]


def _letters(numbers: Any) -> str:
    return "".join("..." if n is Ellipsis else string.ascii_letters[n] for n in numbers)


@functools.lru_cache(512)
def _plan(equation: str, shapes: tuple[Any, ...]) -> tuple[list[Labels], Labels, list[tuple[int, ...]]]:
    """Return the labels of operands and result, and the order in which to contract."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(shapes):
        more = "more" if len(shapes) > len(texts) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    inputs = [_labels(text, len(shape), k) for k, (text, shape) in enumerate(zip(texts, shapes, strict=True))]
    dots = max((sum(label.startswith(".") for label in labels) for labels in inputs), default=0)
    output = _output(right, inputs, dots) if arrow else _implied(inputs, dots)
    _check_sizes(inputs, shapes)
    if len(shapes) < 3:  # noqa: PLR2004 (nothing to choose)
        return inputs, output, [tuple(range(len(shapes)))]
    return inputs, output, _path(inputs, output, shapes)


def _labels(text: str, rank: int, k: int) -> Labels:
    """Return a label for each dim; those of an ellipsis are counted from the right."""
    before, dots, after = text.partition("...")
    named = len(before) + len(after)
    if not (before + after).isalpha() and named:
        raise RuntimeError(f"einsum(): invalid subscript given in operand {k}: {text!r}; letters and one ... only")
    if named > rank or (named < rank and not dots):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions "
            f"({rank}) for operand {k}" + ("" if dots else " and no ellipsis was given")
        )
    return (*before, *(f".{i}" for i in range(rank - named, 0, -1)), *after)


def _output(text: str, inputs: list[Labels], dots: int) -> Labels:
    before, ellipsis, after = text.partition("...")
    known = {label for labels in inputs for label in labels}
    for label in before + after:
        if label not in known:
            raise RuntimeError(
                f"einsum(): output subscript {label} does not appear in the equation for any input operand"
            )
        if (before + after).count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once in the output")
    return (*before, *((f".{i}" for i in range(dots, 0, -1)) if ellipsis else ()), *after)


def _implied(inputs: list[Labels], dots: int) -> Labels:
    every = [label for labels in inputs for label in labels if label[0] != "."]
    return (*(f".{i}" for i in range(dots, 0, -1)), *sorted(label for label in {*every} if every.count(label) == 1))


def _check_sizes(inputs: list[Labels], shapes: tuple[Any, ...]) -> None:
    sizes: dict[str, int] = {}
    for k, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        for label, n in zip(labels, shape, strict=True):
            seen = sizes.setdefault(label, n)
            if n not in (seen, 1) and seen != 1:
                raise RuntimeError(
                    f"einsum(): subscript {label} has size {n} for operand {k} which does not broadcast with "
                    f"previously seen size {seen}"
                )
            sizes[label] = max(seen, n) if min(seen, n) else 0


def _path(inputs: list[Labels], output: Labels, shapes: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Ask NumPy for the order, with letters for all labels."""
    letters: dict[str, str] = {}
    for label in (label for labels in inputs for label in labels):
        letters.setdefault(label, string.ascii_letters[len(letters)])
    text = ",".join("".join(letters[x] for x in labels) for labels in inputs)
    stand_ins = [np.broadcast_to(np.empty(()), shape) for shape in shapes]
    path = np.einsum_path(f"{text}->{''.join(letters[x] for x in output)}", *stand_ins, optimize="greedy")[0]
    return [tuple(step) for step in path[1:]]


Term = tuple[Tensor, Labels]


def _alone(x: Tensor, labels: Labels) -> Term:
    """Take diagonals where an operand has a label twice."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = diagonal(x, 0, first, second)
            labels = (*(n for i, n in enumerate(labels) if i not in (first, second)), label)
    return x, labels


def _squeezed(terms: Sequence[Term], k: int) -> Term:
    """Drop the dims of extent 1 that other operands broadcast."""
    x, labels = terms[k]
    wide = {
        label for y, others in terms for label, n in zip(others, y.spec.shape, strict=True) if n != 1
    }  # fmt: skip
    drop = tuple(i for i, label in enumerate(labels) if x.spec.shape[i] == 1 and label in wide)
    if not drop:
        return x, labels
    return views.squeeze(x, drop), tuple(n for i, n in enumerate(labels) if i not in drop)


def _summed(x: Tensor, labels: Labels, kept: set[str]) -> Term:
    """Sum over the dims whose labels nothing else needs."""
    drop = tuple(i for i, label in enumerate(labels) if label not in kept)
    if not drop:
        return x, labels
    return x.sum(drop), tuple(label for label in labels if label in kept)


def _ordered(x: Tensor, labels: Labels, wanted: Sequence[str]) -> Tensor:
    order = tuple(labels.index(label) for label in wanted)
    return x if order == tuple(range(len(order))) else views.permute(x, order)


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.spec.shape == shape else views.reshape(x, shape)


def contract(a: Tensor, a_labels: Labels, b: Tensor, b_labels: Labels, others: set[str]) -> Term:
    """Multiply two operands and sum over the labels that they share and nothing else needs."""
    a, a_labels = _summed(a, a_labels, {*b_labels, *others})
    b, b_labels = _summed(b, b_labels, {*a_labels, *others})
    sizes = dict(zip((*a_labels, *b_labels), (*a.spec.shape, *b.spec.shape), strict=True))
    both = [label for label in a_labels if label in b_labels]
    batch, over = [n for n in both if n in others], [n for n in both if n not in others]
    rows, columns = [n for n in a_labels if n not in both], [n for n in b_labels if n not in both]
    lead, m, k, n = (tuple(sizes[label] for label in group) for group in (batch, rows, over, columns))
    a, b = _ordered(a, a_labels, [*batch, *rows, *over]), _ordered(b, b_labels, [*batch, *over, *columns])
    labels = (*batch, *rows, *columns)
    if not over:
        wide = _shaped(a, (*lead, *m, *(1,) * len(n)))
        return wide * _shaped(b, (*lead, *(1,) * len(m), *n)), labels
    if not rows and not columns and batch:
        return (a * b).sum(tuple(range(len(batch), len(batch) + len(over)))), labels
    inner = (math.prod(k),)
    left, right = (math.prod(m),) if rows else (), (math.prod(n),) if columns else ()
    if not batch:
        return _shaped(matmul(_shaped(a, left + inner), _shaped(b, inner + right)), (*m, *n)), labels
    count, one = (math.prod(lead),), (1,)
    product = product_of_batches(
        _shaped(a, (*count, *(left or one), *inner)), _shaped(b, (*count, *inner, *(right or one)))
    )
    return _shaped(product, (*lead, *m, *n)), labels
