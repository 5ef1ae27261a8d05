"""How a process may start: without docstrings, a home, a name or a place for files, and with files that are none."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.representatives import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Fresh

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120  # seconds
POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="other files, users and limits")
TINY = """
from __future__ import annotations
def twice(n: int) -> int:
    return 2 * n
"""
LOAD = f"""
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from kernels.language.jit import load_source
    made = load_source("tiny", {TINY!r}).twice(21)
print(json.dumps([made, [str(warning.message) for warning in caught]]))
"""
GRADIENT = """
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tape
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x * x + tape.log(x)).sum().backward()
print(json.dumps([x.grad.tolist(), [str(warning.message) for warning in caught]]))
"""
EXPECTED = [2 * x + 1 / x for x in (1.0, 2.0, 3.0)]


def messages_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the warnings of a process that ran LOAD or GRADIENT, if what it computed is right."""
    printed, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    found, messages = json.loads(printed)
    assert found == (42 if found == 42 else pytest.approx(EXPECTED, rel=1e-14))
    return list(messages)


@pytest.mark.quick
@pytest.mark.parametrize("level", ["1", "2"])
def test_without_asserts_and_docstrings(fresh: Fresh, level: str) -> None:
    """As `python -O` and `python -OO` run it, with all that is imported at its first use."""
    code = f"import tape\nfor name in dir(tape): getattr(tape, name)\n{GRADIENT}"
    assert messages_of(fresh(code, PYTHONOPTIMIZE=level)) == []


@POSIX
@pytest.mark.quick
def test_without_a_home(fresh: Fresh) -> None:
    """No HOME, and a user without an entry among the users, as containers have them."""
    lost = """
import os, pwd
for name in ("HOME", "XDG_CACHE_HOME", "TAPE_CACHE_DIR"):
    os.environ.pop(name, None)
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
"""
    (message,) = messages_of(fresh(lost + GRADIENT))
    assert "home directory" in message
    assert "TAPE_CACHE_DIR" in message


@POSIX
def test_without_a_compiler_in_a_home_that_is_read_only(fresh: Fresh, tmp_path: Path) -> None:
    """No program is found on PATH, and the home is a file: none could be made there, by any user."""
    (tmp_path / "home").touch()
    alone = "import os\nfor name in ('XDG_CACHE_HOME', 'TAPE_CACHE_DIR'): os.environ.pop(name, None)\n"
    (message,) = messages_of(fresh(alone + GRADIENT, HOME=str(tmp_path / "home"), PATH="/nowhere", CC="/nowhere/cc"))
    assert "TAPE_CACHE_DIR" in message


@pytest.mark.quick
def test_a_free_threaded_interpreter_needs_its_lock(fresh: Fresh) -> None:
    """Without the lock the import is refused, and says how to switch it on; with it all is as ever."""
    locked = "import sys\nsys._is_gil_enabled = lambda: {}\n"
    printed, errors = fresh(locked.format(False) + GRADIENT).communicate(timeout=DEADLINE)
    assert printed == ""
    assert "ImportError: " in errors
    assert "PYTHON_GIL=1" in errors
    assert messages_of(fresh(locked.format(True) + GRADIENT)) == []


def archived(path: Path, *, sources: bool, without: str = "none") -> Path:
    """Return an archive of both packages but for a file, as sources or, as applications have them, as byte code."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in (file for package in ("kernels", "tape") for file in (ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if file.stem == without:
                continue
            if sources:
                archive.write(file, name)
            else:
                code = py_compile.compile(str(file), str(path.with_suffix(".pyc")), dfile=name, doraise=True)
                archive.write(str(code), f"{name}c")
    return path


ARCHIVED = f"""
import sys
sys.frozen = True
{GRADIENT}
assert tape.__file__.startswith(sys.path[1]), (tape.__file__, sys.path)
import pickle
import numpy as np
made = {{"tape": tape}}
exec('''
def shrunk(x):
    while (x * x).sum() > 1.0:
        x = x * 0.5
    return tape.sin(x).sum()
''', made)  # a function without a source
x = np.arange(3.0)
compiled = tape.compile(tape.value_and_grad(made["shrunk"]), mode="max")
for _ in range(4):
    value, gradient = compiled(x)
np.testing.assert_allclose(value, np.sin(x / 4).sum())
np.testing.assert_allclose(gradient, np.cos(x / 4) / 4)
assert "machine code: " in compiled.explain(), compiled.explain()
program = pickle.loads(pickle.dumps(tape.record(lambda x: (x * x).sum(), x)))
assert program(x) == 5.0
for name in dir(tape):
    getattr(tape, name)
"""


def test_from_an_archive(fresh: Fresh, tmp_path: Path) -> None:
    """Imported from a zip file, native code is made of the sources in it."""
    assert messages_of(fresh(ARCHIVED, archived(tmp_path / "both.zip", sources=True))) == []


@pytest.mark.exhaustive
def test_frozen_without_sources(fresh: Fresh, tmp_path: Path) -> None:
    """Of byte code alone no native code can be made: gradients are right, and one warning says what to do."""
    (message,) = messages_of(fresh(ARCHIVED, archived(tmp_path / "both.zip", sources=False)))
    assert "keep all of their modules, as .py files" in message


@pytest.mark.exhaustive
def test_frozen_without_a_module_that_printed_texts_alone_name(fresh: Fresh, tmp_path: Path) -> None:
    """As tools that freeze leave it out, which follow imports of files: an error says what to do."""
    archive = archived(tmp_path / "both.zip", sources=True, without="vectormath")
    _, errors = fresh(ARCHIVED, archive).communicate(timeout=DEADLINE)
    assert "ImportError: cannot import name 'vectormath'" in errors
    assert "keep all of their modules, as .py files" in errors.splitlines()[-1]


@POSIX
def test_a_home_of_nobody_for_the_cache(fresh: Fresh) -> None:
    (message,) = messages_of(fresh(LOAD, TAPE_CACHE_DIR="~nobody-of-this-name/cache"))
    assert "TAPE_CACHE_DIR" in message


@POSIX
def test_in_a_folder_that_is_gone(fresh: Fresh) -> None:
    gone = "import os\nos.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
    (message,) = messages_of(fresh(gone + LOAD, TAPE_CACHE_DIR="relative"))
    assert "TAPE_CACHE_DIR" in message


@POSIX
def test_without_any_place_for_files(fresh: Fresh, tmp_path: Path) -> None:
    """Neither the cache nor temporary files can be written."""
    nowhere = "import tempfile\ntempfile.tempdir = '/dev/null/none'\n"
    (tmp_path / "file").write_text("in the way")
    (message,) = messages_of(fresh(nowhere + GRADIENT, TAPE_CACHE_DIR=str(tmp_path / "file" / "cache")))
    assert "in memory" in message


@POSIX
def test_files_may_have_few_bytes(fresh: Fresh, tmp_path: Path) -> None:
    """As on a disk that is full: the cache is not written, and one warning says so."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    (message,) = messages_of(fresh(limit + LOAD, TAPE_CACHE_DIR=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1"))
    assert "cannot be written" in message
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # its name may have some hundred bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(before)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"tape-autograd kernel ")
        file.truncate(1 << 40)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


NO_FILES: dict[str, Callable[[Path], Any]] = {
    "a named pipe": lambda path: os.mkfifo(path, 0o600),
    "a folder": _folder,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("none")),
    "a huge file": _huge,
    "an empty file": lambda path: path.touch(),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with one kernel, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    code = f"from kernels.language.jit import load_source\nprint(load_source('tiny', {TINY!r}).twice(21))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TAPE_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)
    return folder


@POSIX
@pytest.mark.parametrize("kind", list(NO_FILES))
def test_what_is_no_file_in_the_cache(fresh: Fresh, filled: Path, tmp_path: Path, kind: str) -> None:
    """It is not read, nor waited for; what can be replaced is."""
    folder = shutil.copytree(filled, tmp_path / "cache")
    (kernel,) = folder.glob("*/tiny*")
    content = kernel.read_bytes()
    kernel.unlink()
    try:
        NO_FILES[kind](kernel)
    except OSError as error:
        pytest.skip(f"{kind} cannot be made here: {error}")
    messages = messages_of(fresh(LOAD, TAPE_CACHE_DIR=str(folder)))
    assert len(messages) == (kind == "a folder")
    assert kind == "a folder" or kernel.read_bytes() == content


@POSIX
@pytest.mark.parametrize(
    ("kind", "inner"), in_turns(["a named pipe", "a socket", "a link to itself", "an empty file"], [False, True])
)
def test_what_is_no_folder_for_the_cache(fresh: Fresh, tmp_path: Path, kind: str, inner: bool) -> None:
    folder = tmp_path / "cache"
    if inner:
        folder.mkdir()
    NO_FILES[kind](folder / "kernels-1" if inner else folder)
    (message,) = messages_of(fresh(LOAD, TAPE_CACHE_DIR=str(folder)))
    assert "TAPE_CACHE_DIR" in message
