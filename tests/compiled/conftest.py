"""What tests of compiled programs set up: short parts of loops, and one thread behind them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tape
from kernels.compiler import parallel_loops
from tests.support.quick_compiles import mark_most


@pytest.fixture
def few_passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile most programs by few of LLVM's passes, but those of the exhaustive run."""
    if request.node.get_closest_marker("quick") or not request.node.get_closest_marker("exhaustive"):
        mark_most(monkeypatch)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Leave one thread behind."""
    yield
    tape.set_num_threads(1)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut loops of a few steps."""
    for name, value in {"LARGE": 8, "GRAIN": 4, "_FEW": 2, "_VECTORS": 1}.items():
        monkeypatch.setattr(parallel_loops, name, value)
