"""The kernel cache: what is damaged, another's, full, changed or without files never stops or changes a result."""

from __future__ import annotations

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kernels.language import cache_files, jit

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Fresh

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 300
TINY = """
from __future__ import annotations
def twice(n: int) -> int:
    return 2 * n
def later(n: int) -> int:
    return n + 1
"""
LOAD = f"""
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from kernels.language import jit
    compiled = []
    jit.on_compile.append(compiled.append)
    module = jit.load_source("tiny", {TINY!r})
    found = [module.twice(21), module.later(1)]
print(json.dumps([found, compiled, [str(warning.message) for warning in caught], str(jit.cache_folder())]))
"""
GRADIENT = """
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    import tape
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x * x + tape.log(x)).sum().backward()
    program = np.ravel({program}).tolist()
print(json.dumps([x.grad.tolist(), program, [str(warning.message) for warning in caught]]))
"""
PROGRAM = "tape.record(lambda v: (v * v).sum(), np.ones(2)).value_and_grad(np.array([3.0, 4.0]))[1]"
EXPECTED = [2 * x + 1 / x for x in (1.0, 2.0, 3.0)]

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner here")
ROOT_ONLY = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


def outcome(fresh: Fresh, folder: Path, code: str = LOAD, **environment: str) -> list:
    process = fresh(code, TAPE_CACHE_DIR=str(folder), **environment)
    printed, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    return json.loads(printed)


def kernel_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the machine code of TINY."""
    folder = tmp_path_factory.mktemp("warm")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TAPE_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", LOAD], check=True, capture_output=True, text=True, env=environment)
    assert json.loads(done.stdout)[:3] == [[42, 2], ["tiny"], []]
    return folder


@pytest.fixture
def folder(warm: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(warm, tmp_path / "cache"))


def test_a_warm_cache_is_read_and_left_alone(fresh: Fresh, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in kernel_files(folder)}
    assert len(before) == 1
    assert outcome(fresh, folder)[:3] == [[42, 2], [], []]
    assert {path: path.stat().st_mtime_ns for path in kernel_files(folder)} == before


def _flipped(content: bytes) -> bytes:
    at = 2 * len(content) // 3
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: content[:0],
    "one byte": lambda content: content[:1],
    "half": lambda content: content[: len(content) // 2],
    "last byte lost": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "longer": lambda content: content + b"x",
    "a bit flipped": _flipped,
    "a pickle": lambda content: b"cos\nsystem\n(S'echo run unread'\ntR." + content[:0],
    "text": lambda content: b"raise SystemExit('run unread')\n" + content[:0],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_damaged_files_are_made_anew(
    monkeypatch: pytest.MonkeyPatch, fresh: Fresh, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    for path in kernel_files(folder):
        path.write_bytes(damage(path.read_bytes()))
    assert outcome(fresh, folder)[:3] == [[42, 2], ["tiny"], []]
    (path,) = kernel_files(folder)
    monkeypatch.setattr(cache_files, "_folder", folder)
    assert cache_files.read(path.stem), "it was replaced"


def test_a_file_under_another_name_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache_files, "_folder", tmp_path)
    cache_files.write("one", b"content")
    assert cache_files.read("one") == b"content"
    (path,) = kernel_files(tmp_path)
    path.rename(path.with_stem("two"))
    assert cache_files.read("one") is cache_files.read("two") is None


def test_what_cannot_be_loaded_is_compiled(monkeypatch: pytest.MonkeyPatch, fresh: Fresh, folder: Path) -> None:
    """The checksum is right; what it covers is not what this compiler writes."""
    (path,) = kernel_files(folder)
    with monkeypatch.context() as patch:
        patch.setattr(cache_files, "_folder", folder)
        cache_files.write(path.stem, b"another format")
    assert outcome(fresh, folder)[:3] == [[42, 2], ["tiny"], []]


@pytest.mark.parametrize(
    ("error", "strict"),
    [("OSError(28, 'No space left on device')", False), ("PermissionError(30, 'Read-only file system')", True)],
)
def test_a_disk_that_fills_up_stops_nothing(fresh: Fresh, tmp_path: Path, error: str, strict: bool) -> None:
    code = LOAD.replace(
        "    module =",
        f"    import os\n    def full(*args): raise {error}\n    os.fsync = full\n"
        + ("    warnings.simplefilter('error')\n" if strict else "")
        + "    module =",
    )
    found, compiled, messages, _ = outcome(fresh, tmp_path / "cache", code)
    assert (found, compiled) == ([42, 2], ["tiny"])
    assert len(messages) == (not strict)
    for message in messages:
        assert "cannot be written" in message
        assert "TAPE_CACHE_DIR" in message
    assert kernel_files(tmp_path / "cache") == []


def test_a_folder_that_goes_away_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache_files, "_folder", tmp_path / "gone")
    assert cache_files.read("one") is None
    cache_files.write("one", b"content")
    assert cache_files.read("one") == b"content"


@POSIX
def test_what_is_made_is_the_users_alone(fresh: Fresh, tmp_path: Path) -> None:
    code = "import os; os.umask(0)\n" + LOAD
    assert outcome(fresh, tmp_path / "not" / "yet", code)[0] == [42, 2]
    made = list((tmp_path / "not").rglob("*"))
    assert len(made) == 3
    assert [oct(path.stat().st_mode & 0o077) for path in (tmp_path / "not", *made)] == ["0o0"] * 4


@POSIX
@pytest.mark.parametrize(("mode", "inner"), [(0o777, False), (0o1777, False), (0o775, True)])
def test_a_folder_that_others_can_write_is_not_used(fresh: Fresh, folder: Path, mode: int, inner: bool) -> None:
    (folder / "kernels-1" if inner else folder).chmod(mode)
    before = {path: path.read_bytes() for path in kernel_files(folder)}
    found, compiled, messages, used = outcome(fresh, folder)
    assert (found, compiled) == ([42, 2], ["tiny"])
    assert {path: path.read_bytes() for path in kernel_files(folder)} == before
    (message,) = messages
    assert "written by other users" in message
    assert "TAPE_CACHE_DIR" in message
    assert used not in {str(folder), ""}
    assert used in message
    assert not Path(used).exists()  # it went with the process


@ROOT_ONLY
@pytest.mark.parametrize("inner", [False, True])
def test_another_users_folder_is_not_used(fresh: Fresh, folder: Path, inner: bool) -> None:
    os.chown(folder / "kernels-1" if inner else folder, 12345, 12345)
    found, compiled, (message,), used = outcome(fresh, folder)
    assert (found, compiled) == ([42, 2], ["tiny"])
    assert "another user" in message
    assert used != str(folder)


@POSIX
def test_a_file_that_others_could_write_is_not_read(fresh: Fresh, folder: Path) -> None:
    (path,) = kernel_files(folder)
    path.chmod(0o666)
    assert outcome(fresh, folder)[:3] == [[42, 2], ["tiny"], []]
    (path,) = kernel_files(folder)
    assert path.stat().st_mode & 0o077 == 0


def test_clearing_takes_our_own_files_only(folder: Path, fresh: Fresh) -> None:
    room = folder / "kernels-1"
    (own,) = kernel_files(folder)
    others = {
        folder / "my_thesis.py": b"years of work",
        folder / "my_thesis.kernel": own.read_bytes(),
        folder / "abs_d0_190a9bfb8b550674.py": b"",
        folder / "__pycache__" / "my_thesis.cpython-311.pyc": b"",
        folder / "kernels-of-mine" / "a.kernel": b"seeds",
        room / "my_thesis.py": b"here too",
        room / "maize.kernel": b"seeds",
        room / "note.draft": b"a letter",
    }
    for path, content in others.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (room / "tmpabc.draft").write_bytes(own.read_bytes()[:50])  # left by a process that was killed
    code = "from kernels.language import jit; print([jit.cached_kernels(), jit.clear_cache(), jit.cached_kernels()])"
    assert outcome(fresh, folder, code) == [1, 1, 0]
    assert {path: path.read_bytes() for path in kernel_files(folder)} == others


# What the key covers.

KEYS = """
import json, sys
from pathlib import Path
from kernels.language import cache_files
from kernels.language import jit

folder = Path(cache_files.kernels.__file__).parent


def name_of(path):
    return ".".join(path.relative_to(folder).with_suffix("").parts)


natives = [*sorted(map(name_of, folder.rglob("*_native.py"))), "native.pool", "native.threads"]

def keys():
    for cached in (cache_files.content_of, cache_files._digest_of, cache_files._reached):
        cached.cache_clear()
    named = {name: jit.key_of(cache_files.content_of(f"kernels.{name}")) for name in natives}
    printed = "from kernels.language import vectormath\\nfrom kernels.rules import accumulators\\n"
    return named | {"printed": jit.key_of(printed)}

before, changed = keys(), {}
for path in sorted(folder.rglob("*.py")):
    text = path.read_text()
    path.write_text(text + "\\n# changed\\n")
    changed[name_of(path)] = [name for name, key in keys().items() if key != before[name]]
    path.write_text(text)
assert keys() == before
print(json.dumps(changed))
"""


def file_of(name: str) -> Path:
    path = ROOT / "kernels" / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


FRONTS = {"operations"}
"""Rooms whose front is a module: it imports the tables."""


@functools.cache
def imported_by(name: str) -> frozenset[str]:
    """What a module imports, read another way: from all of its syntax, by names."""
    found = set()
    for node in ast.walk(ast.parse(file_of(name).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    names = {module.removeprefix("kernels.") for module in found if module.startswith("kernels.")}
    return frozenset(n for n in names if file_of(n).exists() and (n in FRONTS or file_of(n).stem != "__init__"))


def reached_from(*names: str) -> set[str]:
    found, left = set(), set(names)
    while left:
        name = left.pop()
        found.add(name)
        left |= imported_by(name) - found
    return found


def test_each_key_covers_what_a_module_imports(fresh: Fresh, tmp_path: Path) -> None:
    """In a copy of the checkout each file is changed in turn: keys change where it is reached, and nowhere else."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "kernels", copy / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    process = fresh(KEYS, copy)
    printed, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    changed = json.loads(printed)
    folder = ROOT / "kernels"
    natives = {".".join(p.relative_to(folder).with_suffix("").parts) for p in folder.rglob("*_native.py")}
    natives |= {"native.pool", "native.threads"}
    reach = {name: reached_from(name) for name in natives}
    reach["printed"] = reached_from("language.vectormath", "rules.accumulators")
    del changed["__init__"]  # which module_texts reads
    for path, names in changed.items():
        file = path.removesuffix(".__init__")
        if file != path and file not in FRONTS:
            assert not names, file  # a room's says what is in it
            continue
        assert sorted(names) == sorted(name for name, found in reach.items() if file in found), file
    assert all(name in changed[name] for name in natives)


def test_a_key_holds_versions_and_processor() -> None:
    import llvmlite
    import numba

    stamp = jit._stamp()
    for part in (numba.__version__, llvmlite.__version__, np.__version__, sys.version.split()[0], jit.machine()):
        assert part.strip("'") in stamp


@pytest.mark.parametrize(
    "text",
    [
        "from kernels.native import memory",
        "from kernels.native import (\n    memory,\n    words,\n)",
        "from kernels.native.memory import (\n    word,\n)",
        "import kernels.native.memory as m",
        "def f():\n    from kernels.native.memory import word\n",
        "from .native import memory",
        "from .native.memory import word",
        "from kernels.native import (  # why (so)\n    memory,\n)",
        '"""\nfrom kernels and elsewhere\n"""\nfrom kernels.native import memory',
    ],
)
def test_imports_are_found_however_they_are_written(text: str) -> None:
    assert "kernels.native.memory" in set(cache_files.imported(text))


# Without files.


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("tape", "kernels"):
            for file in (ROOT / package).rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(ROOT))
    return path


def run_from(place: Path, code: str, **environment: str) -> list:
    """Run code with nothing of the checkout on the path but what stands at a place."""
    environment = {**os.environ, "PYTHONPATH": str(place), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment, cwd=place.parent
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_imported_from_an_archive(tmp_path: Path) -> None:
    code = GRADIENT.format(program=PROGRAM) + "assert '.zip' in tape.__file__ and tape.autograd.gradcheck\n"
    gradient, program, messages = run_from(zipped(tmp_path / "both.zip"), code)
    assert gradient == pytest.approx(EXPECTED, rel=1e-14)
    assert program == [6, 8]
    assert messages == []


@pytest.mark.slow
def test_byte_code_alone_is_enough(tmp_path: Path) -> None:
    """As frozen applications keep modules: without their sources."""
    place = tmp_path / "frozen"
    for package in ("tape", "kernels"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", str(place)], check=True)
    for path in place.rglob("*.py"):
        path.unlink()
    cache = {"TAPE_CACHE_DIR": str(tmp_path / "cache")}
    large = "s = tape.softmax(tape.ones(20_000), 0)\n"
    for _ in range(2):
        code = GRADIENT.format(program=PROGRAM) + large
        gradient, program, messages = run_from(place, code, **cache)
        assert gradient == pytest.approx(EXPECTED, rel=1e-14)
        assert program == [6, 8]
        (message,) = messages
        for part in ("slowly", "source", "Freeze"):
            assert part in message


def test_neither_source_nor_byte_code(fresh: Fresh, tmp_path: Path) -> None:
    """As after compilation to C: gradients are swept in Python, and one warning says so."""
    hide = "import importlib.util\nimportlib.util.find_spec = lambda name: None\n"
    gradient, _, (message,) = outcome(fresh, tmp_path, hide + GRADIENT.format(program=None), TAPE_PLAIN="")
    assert gradient == pytest.approx(EXPECTED, rel=1e-14)
    for part in ("slowly", "source", "Freeze"):
        assert part in message


# What is said meanwhile.

SLOW = """
import sys, time
from kernels.language import cache_files
from kernels.language import jit
{before}
cache_files.DELAY = 0.2
for k in range({pieces}):
    with jit.compiling("piece"):
        time.sleep({seconds})
        shown = cache_files._Burst.shown
    time.sleep({pause})
print(shown)
"""


@pytest.mark.parametrize(
    ("pieces", "seconds", "before", "lines"),
    [
        pytest.param(1, 1.0, "", 1, id="long"),
        pytest.param(1, 0.01, "", 0, id="short"),
        pytest.param(8, 0.1, "", 1, id="many"),
        pytest.param(1, 1.0, "jit.set_quiet()", 0, id="quiet"),
        pytest.param(1, 1.0, "sys.modules['ipykernel'] = sys", 0, id="notebook"),
        pytest.param(1, 1.0, "sys.stderr = None", 0, id="no stderr"),
        pytest.param(1, 1.0, "jit.on_compile.append(print)", 0, id="told otherwise"),
    ],
)
def test_a_line_while_compiling_takes_long(fresh: Fresh, pieces: int, seconds: float, before: str, lines: int) -> None:
    process = fresh(SLOW.format(pieces=pieces, seconds=seconds, before=before, pause=0), TAPE_QUIET="")
    printed, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    assert len(errors.splitlines()) == lines
    assert "TAPE_QUIET" in errors or not lines
    if lines:
        assert printed.split()[-1] == "True", "said while it was compiled"


def test_the_environment_keeps_it_quiet(fresh: Fresh) -> None:
    process = fresh(SLOW.format(pieces=1, seconds=1.0, before="", pause=0), TAPE_QUIET="1")
    assert process.communicate(timeout=DEADLINE)[1] == ""
