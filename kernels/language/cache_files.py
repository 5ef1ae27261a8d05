"""The cache on disk: texts of modules as keys, files, locks between processes, the line that shows progress."""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib.util
import os
import pkgutil
import re
import shutil
import signal
import stat
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from itertools import chain
from pathlib import Path
from time import monotonic
from types import CodeType
from typing import Any

import kernels
from kernels.foundation.tables import Lock

PACKAGE = kernels.__name__
_HEAD = re.compile(r"\n([ \t]*(?:from|import)\b[^\n(]*(?:\([^)]*\))?[^\n]*)")
"""What may be an import, behind an end of line, for which a search jumps from one to the next."""
_PLAIN = re.compile(
    r"from (?P<source>[a-z_]\w*(?:\.\w+)*) import \(?(?P<names>[\w,\s]+)\)?"
    r"|import (?P<whole>\w+(?:\.\w+)*)(?: as \w+)?"
)
"""What need not be parsed, which takes most of the time: all but names in unusual dress and several on a line."""


@functools.cache
def content_of(module: str) -> str | CodeType:
    """Return a module's source from a folder, an archive or a frozen application; its code where no source is kept."""
    spec = importlib.util.find_spec(module)
    loader = None if spec is None else spec.loader
    if type(loader) is SourceFileLoader and spec is not None and spec.origin:
        with contextlib.suppress(OSError, UnicodeDecodeError):  # ours are UTF-8: the loader would look what they are
            return Path(spec.origin).read_text(encoding="utf-8")
    for method in ("get_source", "get_code"):
        try:
            content: str | CodeType | None = getattr(loader, method)(module)
        except (AttributeError, ImportError, OSError, EOFError):
            continue
        if content is not None:
            return content
    raise unreadable(f"the source of {module} cannot be read")


def text_of(module: str) -> str:
    """Return a module's source, from which native code is made; ImportError where only its byte code is kept."""
    content = content_of(module)
    if isinstance(content, str):
        return content
    raise unreadable(f"the source of {module} cannot be read")


def unreadable(fault: str) -> ImportError:
    """Return the error that says how to freeze an application that lacks sources or modules."""
    return ImportError(
        f"{fault}, from which native code is made. Freeze the application so that the packages 'tape' and 'kernels' "
        "keep all of their modules, as .py files, or install tape-autograd beside it"
    )


def digest(text: str | CodeType, module_name: str = "") -> str:
    """Return a hash of a text or code, and of all of this package it imports; ``module_name``: whose text it is."""
    hasher = hashlib.sha256()
    _update(hasher, text)
    for module in sorted(_reached(_imports_of(module_name) if module_name else frozenset(imported(text)))):
        hasher.update(_digest_of(module))
    return hasher.hexdigest()


def imported(content: str | CodeType, module_name: str = "") -> Iterator[str]:
    """Yield the modules of this package that a source imports; of code without a source all that there are."""
    if isinstance(content, CodeType):
        yield from (info.name for info in pkgutil.walk_packages(kernels.__path__, f"{PACKAGE}."))
        return
    heads = [head for head in _HEAD.findall(f"\n{content}") if head != "from __future__ import annotations"]
    plain = [_PLAIN.fullmatch(head) for head in heads]
    unmatched = "\n".join(head for head, match in zip(heads, plain, strict=True) if match is None)
    rest = _imports(unmatched, content, module_name) if unmatched else ()
    for module, name in chain(*map(_plain_imports, filter(None, plain)), rest):
        if f"{module}.".startswith(f"{PACKAGE}."):
            deepest = f"{module}.{name}"
            yield deepest if name and _is_room(module) and _is_module(deepest) else module


def _plain_imports(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    if match["names"]:
        yield from ((match["source"], name.split()[0]) for name in match["names"].split(",") if name.strip())
    elif match["whole"]:
        yield match["whole"], ""


def _imports(heads: str, whole: str, module_name: str) -> Iterator[tuple[str, str]]:
    """Yield modules and the names taken from them, by Python's own parser."""
    room = module_name if not module_name or _is_room(module_name) else module_name.rpartition(".")[0]
    for node in ast.walk(_parsed(heads, whole)):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = importlib.util.resolve_name("." * level + (module or ""), room or PACKAGE)
                yield from ((source, alias.name) for alias in names)


def _parsed(heads: str, whole: str) -> ast.Module:
    try:
        return ast.parse("\n".join(map(textwrap.dedent, heads.splitlines())))
    except SyntaxError:  # a sentence that begins as an import does
        return ast.parse(whole)


@functools.cache
def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@functools.cache
def _is_room(module: str) -> bool:
    """Whether a module is a package, whose names may be modules."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.submodule_search_locations is not None


@functools.cache
def _reached(modules: frozenset[str]) -> frozenset[str]:
    reached, pending = set[str](), set(modules)
    while pending:
        module = pending.pop()
        reached.add(module)
        pending |= _imports_of(module) - reached
    return frozenset(reached)


@functools.cache
def _imports_of(module: str) -> frozenset[str]:
    return frozenset(imported(content_of(module), module))


@functools.cache
def _digest_of(module: str) -> bytes:
    hasher = hashlib.sha256(module.encode())
    _update(hasher, content_of(module))
    return hasher.digest()


def _update(hasher: hashlib._Hash, content: str | CodeType) -> None:
    """Add a text, or all that decides what code does; what ``marshal`` writes would differ from start to start."""
    if isinstance(content, str):
        hasher.update(content.encode())
        return
    hasher.update(content.co_code + repr((content.co_names, content.co_varnames)).encode())
    for constant in content.co_consts:
        if isinstance(constant, frozenset):  # whose order follows the seed of hashes
            _update(hasher, repr(sorted(map(repr, constant))))
        else:
            _update(hasher, constant if isinstance(constant, CodeType) else repr(constant))


# A file is one line, with a checksum of its name and of what follows, and what follows. The checksum guards against
# damage (a full disk, a lost write); against other users stand owner and mode, of the folder and of each file.

_ROOM = "kernels-1"  # our own folder within the one that is wanted; its number is that of the format
_MAGIC = b"tape-autograd kernel "
_SUFFIX, _DRAFT = ".kernel", ".draft"
_OTHERS = 0o022  # the bits of a mode by which others may write

_MOST = 1 << 28  # bytes: what is larger is none of ours, and is not read

_lock = Lock(waited_for=True)
_folder: Path | None = None
_failed: list[str] = []


def cache_folder() -> Path:
    """Return ``TAPE_CACHE_DIR`` or the user's cache folder; a temporary one, with a warning, if that is unsafe."""
    global _folder  # noqa: PLW0603 (chosen at the first use, once a process)
    if _folder is None:
        with _lock:
            _folder = _folder or _checked()
    return _folder


def read(name: str) -> bytes | None:
    """Return what was written under a name; None if nothing was, or if it is damaged, no file or another user's."""
    try:
        with open(_path(name), "rb", opener=_opened) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST or _fault(status):
                return None
            head, _, content = file.read().partition(b"\n")
    except OSError:
        return None
    return content if head == _head(name, content) else None


def write(name: str, content: bytes) -> None:
    """Replace what stands under a name, all or nothing. A disk that is full costs the next start, never this one."""
    path = _path(name)
    draft = ""
    try:
        _make(path.parent)
        handle, draft = tempfile.mkstemp(dir=path.parent, suffix=_DRAFT)
        with os.fdopen(handle, "wb") as file:
            file.write(_head(name, content) + b"\n" + content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except OSError as error:
        _warn_once(path.parent.parent, error)
        with contextlib.suppress(OSError):
            Path(draft).unlink()


def cached_kernels() -> int:
    """Return the number of files of ours in the cache folder."""
    return sum(path.suffix == _SUFFIX for path in _own_files())


def clear_cache() -> int:
    """Delete the kernels of the cache folder, and nothing that is not ours; return how many there were."""
    count = 0
    for path in list(_own_files()):
        with contextlib.suppress(OSError):
            path.unlink()
            count += path.suffix == _SUFFIX
    return count


def _own_files() -> Iterator[Path]:
    """Yield what begins as our files do; also what a process left that died as it wrote."""
    for path in cache_folder().glob("kernels-*/*"):
        with contextlib.suppress(OSError):
            if path.suffix in (_SUFFIX, _DRAFT) and path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    start = file.read(len(_MAGIC))
                if start == _MAGIC or (path.suffix == _DRAFT and not start):
                    yield path


def _path(name: str) -> Path:
    return cache_folder() / _ROOM / (name + _SUFFIX)


def _head(name: str, content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(name.encode() + b"\n" + content).hexdigest().encode()


def _opened(path: str, flags: int) -> int:
    """Open without waiting for who writes into a pipe of that name."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _wanted() -> Path:
    chosen = os.environ.get("TAPE_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "tape-autograd"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tape-autograd"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tape-autograd"


def _checked() -> Path:
    folder, fault = None, ""
    try:
        folder = _wanted()
        for place in (folder, folder / _ROOM):
            _make(place)
            fault = fault or _fault(place.stat())
        if not fault:
            tempfile.TemporaryFile(dir=folder / _ROOM).close()
    except OSError as error:
        fault = f"cannot be written ({error.strerror})"
    except RuntimeError as error:  # no home folder
        fault = f"cannot be found ({error})"
    if folder is not None and not fault:
        return folder
    spare = _spare()
    warnings.warn(
        f"the kernel cache {f'{folder} ' if folder else ''}{fault}; kernels are compiled anew in {spare or 'memory'}. "
        "Set TAPE_CACHE_DIR to a folder of your own that nobody else can write to, to keep them",
        RuntimeWarning,
        stacklevel=3,
    )
    return spare or Path(os.devnull, "tape-autograd")  # in which nothing is


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _fault(status: os.stat_result) -> str:
    """Say why what stands at a place may be another user's work; "" if it may not, or on Windows."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be written by other users" if status.st_mode & _OTHERS else ""


def _spare() -> Path | None:
    """Return a temporary folder, which only this user can read; it goes when this process ends. None if none can be."""
    try:
        spare, owner = Path(tempfile.mkdtemp(prefix="tape-autograd-")), os.getpid()
    except OSError as error:
        _failed.append(str(error))
        return None

    def remove() -> None:
        if os.getpid() == owner:  # not a child that was forked
            shutil.rmtree(spare, ignore_errors=True)

    atexit.register(remove)
    return spare


def _warn_once(folder: Path, error: OSError) -> None:
    if not _failed:
        _failed.append(str(error))
        with contextlib.suppress(Warning):  # where warnings are errors, this one must not stop the computation
            warnings.warn(
                f"the kernel cache {folder} cannot be written ({error.strerror}); kernels compiled now are compiled "
                "again at the next start. Make room, or set TAPE_CACHE_DIR to another folder",
                RuntimeWarning,
                stacklevel=2,
            )


DELAY = 1.0  # seconds of nearly uninterrupted compiling before the line is written
_PAUSE = 5.0  # seconds without compiling, after which the count begins anew
LINE = "tape: compiling native code, once on this machine (TAPE_QUIET=1 hides this line) ..."

on_compile: list[Callable[[str], None]] = []
"""Called with a kernel's name before it is compiled for the first time on this machine; no line is written then."""


class _Burst:
    """Compiling without a long pause: its seconds so far, and whether the line has been written."""

    begin: float | None = None
    spent = 0.0
    ended = -_PAUSE
    shown = False
    timer: threading.Timer | None = None
    quiet = bool(os.environ.get("TAPE_QUIET"))


def set_quiet(mode: bool = True) -> None:
    """Write no line on stderr while native code is compiled; with False, write it again.

    The line comes when compiling takes longer than a second, at the first use of operations on a machine: what is
    compiled is cached on disk. In notebooks there is none. ``TAPE_QUIET=1`` in the environment does the same.

    >>> tape.set_quiet()
    """
    _Burst.quiet = bool(mode)


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Around compiling, whose seconds count; the caller holds one lock."""
    for hook in on_compile:
        hook(name)
    if _Burst.begin is None:
        _Burst.begin = monotonic()
        if _Burst.begin - _Burst.ended > _PAUSE:
            _Burst.spent, _Burst.shown = 0.0, False
        if not (_Burst.shown or _Burst.quiet or on_compile or "ipykernel" in sys.modules):
            _Burst.timer = threading.Timer(max(0.0, DELAY - _Burst.spent), _show)
            _Burst.timer.daemon = True
            _Burst.timer.start()
    try:
        yield
    finally:
        if _Burst.begin is not None:  # else compiling inside this has ended the count
            if _Burst.timer is not None:
                _Burst.timer.cancel()
            _Burst.ended = monotonic()
            _Burst.spent += _Burst.ended - _Burst.begin
            _Burst.begin = _Burst.timer = None


def _show() -> None:
    _Burst.shown = True
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no stderr, or one that is closed
        sys.stderr.write(LINE + "\n")
        sys.stderr.flush()


_MOST_WAITING = 2
"""So many interrupts are held back; the next Ctrl-C is delivered at once, and Python may have to be restarted."""
_thread = threading.local()


@contextmanager
def held() -> Iterator[None]:
    """Hold back Ctrl-C: registries of Numba that are half filled, at its first compilation, fail ever after."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []

    def hold(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > _MOST_WAITING:
            before(number, frame)

    try:
        signal.signal(signal.SIGINT, hold)
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and len(came) <= _MOST_WAITING:
            before(came[0], sys._getframe())  # noqa: SLF001 (what a handler is called with)


@contextmanager
def untraced() -> Iterator[None]:
    """Call no trace function of this thread: the compiler's thousands of frames are none that one looks for."""
    tracer, before = sys.gettrace(), is_untraced()
    sys.settrace(None)
    _thread.is_untraced = True
    try:
        yield
    finally:
        _thread.is_untraced = before
        sys.settrace(tracer)


def is_untraced() -> bool:
    """Whether what runs in this thread is not looked for, by whatever other means than a trace function."""
    return getattr(_thread, "is_untraced", False)
