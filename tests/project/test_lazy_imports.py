"""What `import tape` imports, and what it leaves for the first use."""

from collections.abc import Callable
from typing import Any

import pytest

Fresh = Callable[..., Any]


def out_of(process: Any) -> str:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return str(out)


LATE = (
    "tape.programs.program",
    "tape.transforms.vmap",
    "tape.func",
    "tape.optimize",
    "tape.sparse",
    "tape.stats",
    "kernels.programs.machine",
    "tape.programs.drawing",
)


def test_what_many_programs_never_call_is_imported_at_its_first_use(fresh: Fresh) -> None:
    code = f"""
import sys
import tape
assert not [name for name in {LATE} if name in sys.modules]
x = tape.tensor([1.0, 2.0], requires_grad=True)
(x * tape.sin(x)).sum().backward()
assert not [name for name in {LATE} if name in sys.modules]
for name in tape.__all__:
    getattr(tape, name)
assert tape.func.grad(lambda x: x * x)(3.0) == 6.0
print(isinstance(tape.record(lambda x: x * x, 3.0), tape.Program), "listing" in tape.listing.__name__)
"""
    assert "True True" in out_of(fresh(code))


@pytest.mark.parametrize(
    "name", ["programs.program", "tensors.printing", "transforms.vmap", "checks.first_nonfinite", "func"]
)
def test_modules_that_come_first_hide_no_name(fresh: Fresh, name: str) -> None:
    """Python sets a package's attribute when a module of it is imported; none is called as a late name is."""
    code = f"""
import tape.{name}
from tape import *
assert callable(tape.listing) and callable(tape.vmap) and callable(tape.record) and callable(tape.first_nonfinite)
assert callable(listing) and func.grad is tape.func.grad and vmap is tape.vmap
try:
    tape.no_such_name
except AttributeError as error:
    print(error)
"""
    assert "no_such_name" in out_of(fresh(code))


def test_the_import_leaves_the_collector_as_it_was(fresh: Fresh) -> None:
    code = """
import gc
import tape
print(gc.isenabled(), gc.get_freeze_count(), gc.get_count()[0] < 700 * 5)
gc.collect()
"""
    assert "True 0 True" in out_of(fresh(code))


@pytest.mark.parametrize("call", ["tape.checkpoint(tape.sum, x)", "sum_within(x)"])
def test_a_first_use_in_a_compiled_function_changes_nothing(fresh: Fresh, call: str) -> None:
    """The name stands in the package from then on, as if it had before."""
    code = f"""
import numpy as np
import tape

def sum_within(x):
    held = {{}}
    with tape.parameters(held, x=x):
        return held["x"].sum()

both = tape.compile(tape.value_and_grad(lambda x: {call}), mode="max")
for _ in range(4):
    both(np.ones(3))
print(both.calls["dynamic"], len(both.programs))
"""
    assert "0 1" in out_of(fresh(code))
