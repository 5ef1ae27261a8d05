"""What surrounds the code: what an import brings in, whose `kernels` it is, what a wheel holds, where kernels live."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pickle
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape

if TYPE_CHECKING:
    from subprocess import Popen

    from conftest import Fresh

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 300  # seconds; a process that hangs fails the test

GRADIENT = """
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tape
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(2):
        (x * x + tape.log(x)).sum().backward()
print(json.dumps([x.grad.tolist(), [str(warning.message) for warning in caught]]))
"""
EXPECTED = [2 * (2 * x + 1 / x) for x in (1.0, 2.0, 3.0)]  # two sweeps accumulate

FOREIGN = """
{before}
try:
    import tape
except ImportError as error:
    print(type(error).__name__, error)
else:
    print("imported")
"""


THEIRS = """
import tape

SCALE = 1.0

def kernel(x):
    return SCALE * tape.exp(-x * x).sum()
"""
BESIDE = """
{before}
import json, pickle, sys
import numpy as np
import tape

x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
for _ in range(2):
    (x * x + tape.log(x)).sum().backward()
program = pickle.loads({pickled!r})
looped = tape.compile(tape.value_and_grad(lambda x: sum(x[i] * x[i + 1] for i in range(40))), mode="max")
values = [looped(np.arange(41.0)) for _ in range(4)]
found = [x.grad.tolist(), program(np.arange(3.0)).tolist(), values[-1][0], values[-1][1].tolist()]
assert "40 times" in str(looped.explain())
if {theirs!r}:
    import kernels

    scaled = tape.compile(kernels.kernel)
    results = [scaled(tape.zeros(3)).item() for _ in range(4)]
    kernels.SCALE = 2.0
    assert [*results, scaled(tape.zeros(3)).item()] == [3.0, 3.0, 3.0, 3.0, 6.0]
    assert kernels.__name__ == "kernels"
    assert kernels.__file__.startswith({theirs!r})
else:
    assert "kernels" not in sys.modules
print(json.dumps([tape.__file__, found]))
"""


def output(process: Popen[str]) -> str:
    """Return what a process printed, if it ended well and without a word on stderr."""
    printed, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    return printed


def gradient_and_warnings(process: Popen[str]) -> tuple[list[float], list[str]]:
    """Return what GRADIENT printed."""
    gradient, messages = json.loads(output(process))
    return gradient, messages


def cached(folder: Path) -> dict[str, int]:
    """Return every file of a cache folder, with the time of its last change."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tape.__version__


@pytest.mark.parametrize("name", ["py.typed", "examples/lynx_hare.csv"])
def test_the_package_holds_its_data(name: str) -> None:
    assert files("tape").joinpath(name).is_file()


def test_import_leaves_slow_and_optional_packages_alone(fresh: Fresh) -> None:
    """Numba looks at SciPy's version by itself, so only what `import tape` adds to that counts."""
    code = "import sys, numba; old = set(sys.modules); import tape; print(*{*sys.modules} - old)"
    added = {name.split(".")[0] for name in output(fresh(code)).split()}
    assert "tape" in added
    assert added & {"scipy", "torch", "matplotlib", "pytest", "hypothesis", "mpmath"} == set()


@pytest.mark.parametrize("before", ["", "import kernels"])
def test_a_foreign_kernels_package_is_refused(before: str, tmp_path: Path, fresh: Fresh) -> None:
    foreign = tmp_path / "foreign" / "kernels"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("__version__ = '0.9'\n")
    message = output(fresh(FOREIGN.format(before=before), foreign.parent))
    assert message.startswith("ImportError")
    assert str(foreign) in message
    assert "tape-autograd" in message
    assert "environment" in message


def test_a_mere_folder_named_kernels_does_no_harm(tmp_path: Path, fresh: Fresh) -> None:
    (tmp_path / "plain" / "kernels").mkdir(parents=True)
    assert output(fresh(FOREIGN.format(before=""), tmp_path / "plain")) == "imported\n"


def loaded(path: Path) -> Any:
    """Return a file of ``.ci`` as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package that a wheel holds."""
    folder = tmp_path_factory.mktemp("site")
    loaded(ROOT / ".ci" / "wheel.py").write_package(ROOT, folder / "tape")
    return folder


def imports_in(source: str) -> set[str]:
    """Return the packages that a source imports, also those that text within it does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines = (line.split() for line in node.value.splitlines())
            found |= {words[1].partition(".")[0] for words in lines if len(words) > 3 and words[0::2][:2] == WORDS}
    return found


WORDS = ["from", "import"]


def test_a_wheel_holds_one_package_with_all_files(site: Path) -> None:
    def files_in(folder: Path) -> set[Path]:
        return {p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}

    moved = {Path("_kernels", path) for path in files_in(ROOT / "kernels")}
    assert files_in(site / "tape") == files_in(ROOT / "tape") | moved
    sources = [path for path in site.rglob("*") if path.suffix in {".py", ".pyi"}]
    assert [path for path in sources if "kernels" in imports_in(path.read_text(encoding="utf-8"))] == []
    assert "kernels" in imports_in("x = '\\nfrom kernels.native import memory'")


@pytest.mark.parametrize("before", ["", "import kernels", "without"])
def test_a_wheel_beside_a_foreign_kernels_package(before: str, site: Path, tmp_path: Path, fresh: Fresh) -> None:
    """Theirs is imported before ours or behind, or not there any more; programs of a checkout are loaded."""
    foreign = tmp_path / "foreign" / "kernels"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text(THEIRS)
    beside = before != "without"
    pickled = pickle.dumps(tape.record(lambda x: np.cumsum(x) * 2.0, np.ones(3)))
    code = BESIDE.format(before=before if beside else "", pickled=pickled, theirs=str(foreign) if beside else "")
    place, found = json.loads(output(fresh(code, *[foreign.parent] * beside, site)))
    assert Path(place).is_relative_to(site)
    x = np.arange(41.0)
    gradient = np.append(x[1:], 0) + np.append(0, x[:-1])
    assert found == [pytest.approx(EXPECTED), [0.0, 2.0, 6.0], x[1:] @ x[:-1], gradient.tolist()]


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/robustness/test_start.py has more that is no folder
def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, fresh: Fresh) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    gradient, messages = gradient_and_warnings(fresh(GRADIENT, TAPE_CACHE_DIR=str(file), TAPE_PLAIN=""))
    assert gradient == pytest.approx(EXPECTED, rel=1e-14)
    assert len(messages) == 1
    assert str(file) in messages[0]
    assert file.read_text() == "in the way"


@pytest.mark.slow
def test_a_cache_folder_that_cannot_be_written(tmp_path: Path, fresh: Fresh) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write to read-only folders")
    gradient, messages = gradient_and_warnings(fresh(GRADIENT, TAPE_CACHE_DIR=str(folder), TAPE_PLAIN=""))
    assert gradient == pytest.approx(EXPECTED, rel=1e-14)
    assert len(messages) == 1
    assert str(folder) in messages[0]
    assert cached(folder) == {}


@pytest.mark.slow
def test_processes_that_compile_into_one_cache(tmp_path: Path, fresh: Fresh) -> None:
    """Two make the missing folder and fill it at once; a third finds everything in it."""
    folder = tmp_path / "not" / "yet"
    both = [fresh(GRADIENT, TAPE_CACHE_DIR=str(folder), TAPE_PLAIN="") for _ in range(2)]
    for process in both:
        gradient, messages = gradient_and_warnings(process)
        assert gradient == pytest.approx(EXPECTED, rel=1e-14)
        assert messages == []
    before = cached(folder)
    assert before
    gradient, messages = gradient_and_warnings(fresh(GRADIENT, TAPE_CACHE_DIR=str(folder), TAPE_PLAIN=""))
    assert gradient == pytest.approx(EXPECTED, rel=1e-14)
    assert messages == []
    assert cached(folder) == before, "a warm cache was written to"
