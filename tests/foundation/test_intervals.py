"""Ranges of memory on file, asked and changed by several threads at once."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kernels.foundation.specs import Intervals


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads take turns after each few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.quick
@pytest.mark.usefixtures("hasty")
def test_threads_find_what_they_filed() -> None:
    """Every thread files, finds and takes out ranges of its own, of all lengths, that share blocks with the others'."""
    intervals = Intervals()

    def work(thread: int) -> None:
        random = np.random.default_rng(thread)
        mine: dict[tuple[int, int], tuple[int, int]] = {}
        for turn in range(400):
            low = int(random.integers(0, 5000))
            mine[thread, turn] = low, low + int(2.0 ** random.uniform(0, 12))
            intervals.add(*mine[thread, turn], (thread, turn))
            if turn % 3 == 2:
                gone = list(mine)[int(random.integers(len(mine)))]
                intervals.discard(*mine.pop(gone), gone)
            asked = int(random.integers(0, 5000)), int(random.integers(5000, 10000))
            found = intervals.meeting(*asked)
            assert len(found) == len(set(found))
            expected = {item for item, (a, b) in mine.items() if a < asked[1] and asked[0] < b}
            assert {item for item in found if item[0] == thread} == expected

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
