"""Files of one JSON text and of arrays, under one checksum: nothing in them is code, and no damage goes unseen.

    bytes     what they hold
    0 to 7    MAGIC: what PNG does, so that a transfer as text is seen
    8 to 11   the number of the format
    12 to 15  zero
    16 to 23  the bytes of the text
    24 to 31  the bytes of the file
    32 to 63  the checksum, BLAKE2b, of all others
    64 on     the text, as UTF-8; then each array as NumPy's files have it (.npy)

Numbers are little-endian. The text is filled up with spaces, each array with zeros, to a multiple of 64 bytes, so that
arrays can be used where they stand, in a file that is mapped into memory too.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from tape.errors import FileFormatError
from tape.tensors.startup import __version__

Array = np.ndarray[Any, Any]

MAGIC = b"\x93tape\r\n\x1a"
FORMAT = 2
_HEAD = struct.Struct("<8sIIQQ")
_START = 64
_SPOOLED = 1 << 24
"""Bytes that are kept in memory, not in a temporary file, while what goes to a file object is put together."""
_SIZE_OF_NPY_HEADER = 8, 10


class Content(NamedTuple):
    """What a file holds: what kind of thing it describes, the version of tape that wrote it, JSON, arrays."""

    kind: str
    version: str
    body: Any
    arrays: list[Array]


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file, which takes its place at a path when it is whole; after an error what stood there stays."""
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _umask() -> int:
    """Return the mask of permissions of new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def write(f: Any, kind: str, body: Any, arrays: Sequence[Array]) -> None:
    """Write JSON and arrays, which describe a thing of this kind, to a path or a binary file, all or nothing."""
    versions = {"tape": __version__, "numpy": np.__version__}
    tree = {"kind": kind, "versions": versions, "arrays": len(arrays), "body": body}
    text = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode()
    if isinstance(f, (str, os.PathLike)):
        with replacing(Path(f)) as file:
            _write(file, text, arrays)
        return
    with tempfile.SpooledTemporaryFile(_SPOOLED) as spool:
        _write(spool, text, arrays)
        spool.seek(0)
        shutil.copyfileobj(spool, f)


class _Digested:
    """A file that is written, with the checksum of what was."""

    def __init__(self, file: Any) -> None:
        self.file, self.size = file, _START
        self.digest = hashlib.blake2b()

    def write(self, data: Any) -> None:
        """Write bytes."""
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def fill(self, byte: bytes) -> None:
        """Write this byte up to where the next part begins."""
        self.write(byte * (-self.size % _START))


def _write(file: Any, text: bytes, arrays: Sequence[Array]) -> None:
    file.write(bytes(_START))
    digested = _Digested(file)
    digested.write(text)
    digested.fill(b" ")
    for array in arrays:
        np.lib.format.write_array(digested, array, version=(1, 0), allow_pickle=False)
        digested.fill(b"\0")
    head = _HEAD.pack(MAGIC, FORMAT, 0, len(text), digested.size)
    file.seek(0)
    file.write(head + _checksum(head, digested.digest.digest()))


def _checksum(head: bytes, digest: bytes) -> bytes:
    return hashlib.blake2b(head + digest, digest_size=_START - _HEAD.size).digest()


def read(f: Any, name: str, *, mapped: bool = False) -> Content:
    """Return what a path, or bytes, hold; FileFormatError, naming it, if they are not as :func:`write` wrote them.

    ``mapped``: arrays stay in the file, at a path, and are read where they are used. All are read-only.
    """
    memory = _memory(f, mapped=mapped)
    size = _checked(memory, name)
    try:
        tree = json.loads(memory[_START : _START + size].tobytes(), parse_constant=_refused)
        arrays = list(_arrays(memory, _START + size, tree["arrays"]))
        return Content(str(tree["kind"]), str(tree["versions"]["tape"]), tree["body"], arrays)
    except Exception as error:
        raise FileFormatError(f"load: {name} is damaged: {error}") from error


def _refused(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _memory(f: Any, *, mapped: bool) -> Array:
    if isinstance(f, bytes):
        return np.frombuffer(f, np.uint8)
    if mapped and Path(f).stat().st_size:
        return np.memmap(f, np.uint8, mode="r")
    memory = np.fromfile(f, np.uint8)
    memory.flags.writeable = False
    return memory


def _checked(memory: Array, name: str) -> int:
    start = memory[:_START].tobytes()
    if not start.startswith(MAGIC):
        raise FileFormatError(f"load: {name} was not written by tape")
    if len(start) < _START:
        raise FileFormatError(f"load: {name} is cut off after {len(start)} bytes")
    head = start[: _HEAD.size]
    _, number, _, text, size = _HEAD.unpack(head)
    if number != FORMAT:
        raise FileFormatError(
            f"load: {name} is of format {number}, and this version of tape, {__version__}, reads format {FORMAT}"
            + ("; a newer version wrote it" if number > FORMAT else "")
        )
    if size != memory.size:
        raise FileFormatError(
            f"load: {name} has {memory.size} bytes, and {size} were written: it is cut off or damaged"
        )
    if _checksum(head, hashlib.blake2b(memory[_START:].data).digest()) != start[_HEAD.size :]:
        raise FileFormatError(f"load: {name} is damaged: its bytes are not those that were written")
    return int(text)


def _arrays(memory: Array, at: int, count: int) -> Iterator[Array]:
    for _ in range(count):
        at += -at % _START
        array, at = _array(memory, at)
        yield array


def _array(memory: Array, at: int) -> tuple[Array, int]:
    low, high = (at + n for n in _SIZE_OF_NPY_HEADER)
    start = high + int.from_bytes(memory[low:high].tobytes(), "little")
    stream = io.BytesIO(memory[at:start].tobytes())
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array of another version of NumPy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    end = start + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or end > memory.size:
        raise ValueError(f"an array of shape {shape} and dtype {dtype}")
    array: Array = np.ndarray(shape, dtype, memory, start, order="F" if fortran else "C")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("=")), end
