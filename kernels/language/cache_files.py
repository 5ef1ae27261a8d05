"""The cache on disk: files keyed by content, locks between processes, interrupts, the line that shows progress."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from kernels.foundation.locks import Lock

# Files of the kernel cache: in a folder that nobody else can write to, each checked before it is read.
#
# A file is one line, with a checksum of its name and of what follows, and what follows. The checksum guards against
# damage (a full disk, a lost write); against other users stand owner and mode, of the folder and of each file.

_ROOM = "kernels-1"
"""Our own folder within the one that is wanted; its number is that of the format."""
_MAGIC = b"tape-autograd kernel "
_SUFFIX, _DRAFT = ".kernel", ".draft"
_OTHERS = 0o022
"""The bits of a mode by which others may write."""

_MOST = 1 << 28
"""Bytes: what is larger is none of ours, and is not read."""

_lock = Lock(waited_for=True)
_folder: Path | None = None
_failed: list[str] = []


def cache_folder() -> Path:
    """Return the folder of machine code, ``TAPE_CACHE_DIR`` or the user's cache folder.

    One that cannot be found, made or written, or that others can write to, is replaced by a temporary one, with a
    warning.
    """
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
    """Make a folder and those above it, for this user alone."""
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


# A line on stderr when compiling takes longer than a second, written while it does.

DELAY = 1.0
"""Seconds of nearly uninterrupted compiling before the line is written."""
_PAUSE = 5.0
"""Seconds without compiling, after which the count begins anew."""
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
    """Write no line on stderr while native code is compiled, as ``TAPE_QUIET=1`` in the environment does."""
    _Burst.quiet = bool(mode)


def began(name: str) -> None:
    """Start counting, until ``ended``; the caller holds one lock."""
    for hook in on_compile:
        hook(name)
    if _Burst.begin is not None:
        return
    _Burst.begin = monotonic()
    if _Burst.begin - _Burst.ended > _PAUSE:
        _Burst.spent, _Burst.shown = 0.0, False
    if not (_Burst.shown or _Burst.quiet or on_compile or "ipykernel" in sys.modules):
        _Burst.timer = threading.Timer(max(0.0, DELAY - _Burst.spent), _show)
        _Burst.timer.daemon = True
        _Burst.timer.start()


def ended() -> None:
    """Stop counting: nothing is being compiled any more."""
    if _Burst.begin is not None:
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


# Holds back interrupts (Ctrl-C) while something runs that would stay broken, and keeps trace functions away.

_MOST_WAITING = 2
"""So many interrupts are held back; the next Ctrl-C is delivered at once, and Python may have to be restarted."""
_thread = threading.local()


@contextmanager
def held() -> Iterator[None]:
    """Hold back interrupts of the main thread; one that came is delivered at the end.

    Numba fills its registries when the first function is compiled or loaded: half filled, they fail ever after.
    """
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
