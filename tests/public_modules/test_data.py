"""Datasets and loaders: PyTorch's batches, in PyTorch's order for the same seed, as PyTorch 2.13 gives them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape.utils import data

pytestmark = pytest.mark.quick

EPOCHS = [[[1, 4, 6, 0], [5, 9, 3, 2], [10, 8, 7]], [[3, 7, 1, 2], [6, 8, 5, 10], [4, 0, 9]]]
OF_GENERATOR = [[0, 6, 10, 9, 5, 2], [3, 7, 1, 8, 4]]
PARTS = [[10, 0, 4, 3, 5, 8], [2, 1, 9], [7, 6]]
REPLACED = [4, 2, 0, 2, 8, 4, 3, 2]


def test_shuffles_are_pytorchs() -> None:
    tape.manual_seed(3)
    rows = data.TensorDataset(tape.arange(11), tape.arange(11) * 2.0)
    loader = data.DataLoader(rows, batch_size=4, shuffle=True)
    epochs = [[x.tolist() for x, _ in loader] for _ in range(2)]
    assert epochs == EPOCHS
    assert len(loader) == 3
    assert [y.tolist() for _, y in data.DataLoader(rows, batch_size=8)][1] == [16.0, 18.0, 20.0]
    generator = tape.Generator().manual_seed(5)
    assert [x.tolist() for x, _ in data.DataLoader(rows, 6, shuffle=True, generator=generator)] == OF_GENERATOR
    tape.manual_seed(0)
    assert [list(part.indices) for part in data.random_split(rows, [0.5, 0.3, 0.2])] == PARTS
    assert list(data.RandomSampler(rows, replacement=True, num_samples=8)) == REPLACED


def test_items_are_collated_as_they_are_nested() -> None:
    class Pair(NamedTuple):
        x: Any
        y: Any

    items = [{"a": 1.0, "b": (np.ones(2) * k, [k, "s"]), "c": Pair(tape.ones(3) * k, True)} for k in range(3)]
    batch = data.default_collate(items)
    assert batch["a"].tolist() == [1.0] * 3
    assert batch["b"][0].shape == (3, 2)
    assert batch["b"][1][0].tolist() == [0, 1, 2]
    assert list(batch["b"][1][1]) == ["s"] * 3
    assert batch["c"].x.shape == (3, 3)
    assert batch["c"].y.dtype == tape.bool
    with pytest.raises(TypeError, match="found <class 'object'>"):
        data.default_collate([object()])


def test_datasets_are_joined_cut_and_iterated() -> None:
    rows = data.TensorDataset(tape.arange(5))
    both = rows + rows
    assert len(both) == 10
    assert [both[k][0].item() for k in (0, 4, 5, -1)] == [0, 4, 0, 4]
    part = data.Subset(rows, [3, 1])
    assert [x.tolist() for (x,) in data.DataLoader(part, batch_size=2)] == [[3, 1]]
    assert [x.tolist() for (x,) in data.DataLoader(rows, batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]

    class Stream(data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(5))

    assert [x.tolist() for x in data.DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert list(data.DataLoader(Stream(), batch_size=None)) == [0, 1, 2, 3, 4]
    assert data.DataLoader([1, 2, 3], batch_size=3, collate_fn=sum, num_workers=2, pin_memory=True)
    assert list(data.DataLoader([1, 2, 3], batch_size=3, collate_fn=sum)) == [6]


def test_bad_input_says_what() -> None:
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(tape.ones(2), tape.ones(3))
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(range(4), [1, 2])
    with pytest.raises(ValueError, match="mutually exclusive"):
        data.DataLoader(range(4), shuffle=True, sampler=data.SequentialSampler(range(4)))
    with pytest.raises(NotImplementedError, match="__getitem__"):
        data.Dataset()[0]
