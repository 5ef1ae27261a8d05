"""Keys of byte code, where there are no sources, are the same from start to start."""

from typing import Any

import pytest

PROGRAM = """
from kernels.language.cache_files import digest
print(digest(compile("def f(x): return x in {'one', 'two', 'three', 'four'}", "m", "exec")))
"""


@pytest.mark.quick
def test_keys_do_not_follow_the_seed_of_hashes(fresh: Any) -> None:
    keys = {fresh(PROGRAM, PYTHONHASHSEED=seed).communicate(timeout=60)[0] for seed in ("1", "2", "3")}
    assert len(keys) == 1
    assert keys != {""}
