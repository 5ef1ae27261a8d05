"""PyTorch's ``torch.utils.data`` in one process: the same batches, in the same order, for the same seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tape.numpy_interface.sampling import randint, randperm
from tape.random import Generator
from tape.recording.creation import empty, tensor
from tape.recording.views import stack
from tape.tensors.tensor import Tensor

__all__ = [
    "BatchSampler", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler",
    "SequentialSampler", "Subset", "TensorDataset", "default_collate", "random_split",
]  # fmt: skip


class Dataset:
    """Items by index: a subclass has ``__getitem__`` and ``__len__``."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])

    def __class_getitem__(cls, _: Any) -> Any:
        """Return the class: PyTorch's is generic."""
        return cls


class IterableDataset(Dataset):
    """Items in an order of their own: a subclass has ``__iter__``."""


class TensorDataset(Dataset):
    """The rows of tensors, as tuples."""

    def __init__(self, *tensors: Any) -> None:
        if len({len(x) for x in tensors}) > 1:
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([x[index] for x in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """The items of a dataset with these indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Datasets one behind the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        at = next(k for k, end in enumerate(self.cumulative_sizes) if index < end)
        return self.datasets[at][index - (self.cumulative_sizes[at - 1] if at else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Return subsets of these lengths, or parts of 1, of items drawn without replacement.

    >>> parts = tape.utils.data.random_split(range(10), [0.7, 0.3])
    >>> [len(part) for part in parts]
    [7, 3]
    """
    size = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = [math.floor(size * part) for part in lengths]
        for k in range(size - int(sum(lengths))):
            lengths[k % len(lengths)] += 1
    if sum(lengths) != size:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order, ends = randperm(size, generator=generator).tolist(), [*itertools.accumulate(map(int, lengths))]
    return [Subset(dataset, order[end - int(n) : end]) for n, end in zip(lengths, ends, strict=True)]


class Sampler:
    """An order of indices: a subclass has ``__iter__``."""

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))


class RandomSampler(Sampler):
    """Indices in random order, or with ``replacement``."""

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: Any = None, generator: Any = None
    ) -> None:
        super().__init__(data_source)
        self.replacement, self.num_samples, self.generator = replacement, num_samples, generator

    def __iter__(self) -> Iterator[int]:
        n, generator = len(self.data_source), self.generator
        if generator is None:
            generator = Generator().manual_seed(_seed())
        count = len(self)
        if self.replacement:
            for _ in range(count // 32):
                yield from randint(n, (32,), generator=generator).tolist()
            yield from randint(n, (count % 32,), generator=generator).tolist()
            return
        for _ in range(count // n):
            yield from randperm(n, generator=generator).tolist()
        yield from randperm(n, generator=generator).tolist()[: count % n]

    def __len__(self) -> int:
        return len(self.data_source) if self.num_samples is None else self.num_samples


class BatchSampler(Sampler):
    """Indices in lists of ``batch_size``; ``drop_last`` leaves out a shorter last one."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size if self.drop_last else -(-len(self.sampler) // self.batch_size)


def default_collate(batch: Sequence[Any]) -> Any:
    """Return items as one, of tensors with a first dim more: numbers, arrays, tensors, and structures of them."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, (np.ndarray, np.generic, bool, int, float)):
        return tensor(np.stack([np.asarray(x) for x in batch]))
    if isinstance(first, Mapping):
        return type(first)({key: default_collate([x[key] for x in batch]) for key in first})  # type: ignore[call-arg]
    if isinstance(first, (tuple, list)):
        parts = [default_collate(part) for part in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    if isinstance(first, (str, bytes)):
        return batch
    raise TypeError(f"default_collate: batch must contain tensors, numbers, dicts or lists; found {type(first)}")


class DataLoader:
    """Batches of a dataset. ``num_workers``, ``pin_memory`` and the like are taken, and change nothing.

    >>> loader = tape.utils.data.DataLoader(tape.utils.data.TensorDataset(tape.arange(5)), batch_size=2)
    >>> [x.tolist() for (x,) in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool = False, sampler: Any = None,
        batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False, drop_last: bool = False, timeout: float = 0, worker_init_fn: Any = None,
        multiprocessing_context: Any = None, generator: Any = None, **further: Any,
    ) -> None:  # fmt: skip
        del pin_memory, timeout, worker_init_fn, multiprocessing_context, further
        if shuffle and (sampler is not None or batch_sampler is not None):
            raise ValueError("sampler option is mutually exclusive with shuffle")
        self.dataset, self.generator, self.num_workers, self.drop_last = dataset, generator, num_workers, drop_last
        if sampler is None and not isinstance(dataset, IterableDataset):
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler, self.batch_size = sampler, batch_size
        if batch_sampler is None and batch_size is not None and sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_collate if batch_size is not None else _item)

    def __iter__(self) -> Iterator[Any]:
        _seed(self.generator)  # which PyTorch draws for workers
        if isinstance(self.dataset, IterableDataset):
            if self.batch_size is None:
                return map(self.collate_fn, iter(self.dataset))
            return map(self.collate_fn, BatchSampler(self.dataset, self.batch_size, self.drop_last))
        if self.batch_sampler is None:
            return (self.collate_fn(self.dataset[i]) for i in self.sampler)
        return (self.collate_fn([self.dataset[i] for i in batch]) for batch in self.batch_sampler)

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        return len(self.dataset if self.sampler is None else self.sampler)


def _item(x: Any) -> Any:
    return tensor(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _seed(generator: Any = None) -> int:
    return int(empty((), dtype=np.int64).random_(generator=generator).item())
