"""``einsum``: pairs of operands contracted by matrix products, in an order that NumPy's planner finds.

An operand is seen with a label for each dim. Repeated labels are diagonals, labels that nothing else needs are
summed, and the rest of a pair is one (batched) matrix product of views, so its gradients are matrix products too.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tape.operations.diagonals import diagonal
from tape.operations.matmul import matmul, product_of_batches
from tape.recording import views
from tape.recording.promotion import tensors_of
from tape.tensors.hooks import public
from tape.tensors.tensor import Tensor

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
