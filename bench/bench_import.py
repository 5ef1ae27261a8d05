"""Starting up: `import tape` over `import numba`, and the first backward of a new process."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from bench import bars, fresh

if TYPE_CHECKING:
    from bench.bars import Scoreboard

PROCESSES = 20


@pytest.mark.quick
def test_first_backward_is_right() -> None:
    """A new process gives the tiny graph's gradients."""
    gradients = fresh.first_backward()["gradients"]
    assert gradients == pytest.approx([3.0, 2.0, 2.302585092994046, 0.5], rel=1e-12)


def test_import(scoreboard: Scoreboard) -> None:
    """The difference of the medians of twenty fresh processes each, in turn."""
    for module in ("numba", "tape"):
        fresh.import_seconds(module)  # writes byte code, fills the file cache
    pairs = [(fresh.import_seconds("numba"), fresh.import_seconds("tape")) for _ in range(PROCESSES)]
    numba, tape = (statistics.median(times) for times in zip(*pairs, strict=True))
    text = f"{tape - numba:.3f} s ({tape:.3f} and {numba:.3f} s)"
    scoreboard.add(bars.IMPORT, tape - numba, text)


def test_first_gradient_with_an_empty_cache(scoreboard: Scoreboard) -> None:
    """The median ratio of pairs of fresh processes, of the processor time of each from start to end."""
    fresh.process_seconds(fresh.FIRST_GRADIENT)  # writes byte code
    pairs = [(fresh.process_seconds(fresh.FIRST_GRADIENT), fresh.process_seconds("import numba")) for _ in range(5)]
    ratio = statistics.median(ours / numba for ours, numba in pairs)
    seconds, numba = (min(times) for times in zip(*pairs, strict=True))
    scoreboard.add(bars.FIRST_OF_ALL, ratio, f"{ratio:.2f} ({seconds:.2f} and {numba:.2f} s at least)")


def test_first_backward(scoreboard: Scoreboard) -> None:
    """The median of fresh processes, after one that left the kernels in the cache."""
    fresh.first_backward()
    seconds = sorted(fresh.first_backward()["seconds"] for _ in range(PROCESSES // 2))
    median = statistics.median(seconds)
    spread = f"{seconds[0]:.3f} to {seconds[-1]:.3f} s in {len(seconds)} processes"
    scoreboard.add(bars.FIRST_BACKWARD, median, f"{median:.3f} s ({spread})")
