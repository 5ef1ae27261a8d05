"""PyTorch beside tape computes in float64 too, where a file's tests ask for it."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def float64() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
