"""Files of programs: one JSON text and arrays, under one checksum. Nothing is code, and no damage goes unseen.

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

import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import shutil
import struct
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels import __version__
from kernels.programs import recipe_encoding
from kernels.programs.program import ProgramError
from kernels.programs.recipe_encoding import DTYPES, Decoder, Encoder, is_named, name_of
from tape import return_types
from tape.errors import FileFormatError
from tape.recording.to_python import replacing
from tape.tensors.pytrees import LEAF, NONE, Signature, Structure, dataclass_of, dict_of, mapping_of

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


def write_content(f: Any, kind: str, body: Any, arrays: Sequence[Array]) -> None:
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


def _write(file: Any, text: bytes, arrays: Sequence[Array]) -> None:
    file.write(bytes(_START) + text)
    size = _filled(file, b" ")
    for array in arrays:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
        size = _filled(file, b"\0")
    head = _HEAD.pack(MAGIC, FORMAT, 0, len(text), size)
    file.seek(_START)
    digest = hashlib.file_digest(file, hashlib.blake2b).digest()
    file.seek(0)
    file.write(head + _checksum(head, digest))


def _filled(file: Any, byte: bytes) -> int:
    """Write this byte up to where the next part begins; return where that is."""
    end: int = file.seek(0, os.SEEK_CUR)
    file.write(byte * (-end % _START))
    return end + -end % _START


def _checksum(head: bytes, digest: bytes) -> bytes:
    return hashlib.blake2b(head + digest, digest_size=_START - _HEAD.size).digest()


def read_content(f: Any, name: str, *, mapped: bool = False) -> Content:
    """Return what a path, or bytes, hold; FileFormatError, naming it, if :func:`write_content` did not write them.

    ``mapped``: arrays stay in the file, at a path, and are read where they are used. All are read-only.
    """
    memory = _memory(f, mapped=mapped)
    size = _checked(memory, name)
    try:
        tree = json.loads(memory[_START : _START + size].tobytes(), parse_constant=_refused)
        arrays, at = [], _START + size
        for _ in range(tree["arrays"]):
            array, at = _array(memory, at + -at % _START)
            arrays.append(array)
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


# Structures, and the signatures made of them, as JSON: for files, whose readers are given the user's types.

_RETURNED = [kind for kind in vars(return_types).values() if isinstance(kind, type) and issubclass(kind, tuple)]
_USUAL = bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None), OrderedDict, np.ndarray
KNOWN = {
    name_of(kind): kind for kind in (*_USUAL, *[dtype.type for dtype in DTYPES.values()], *_RETURNED)
}  # the types that every reader has
_LEAF_TEXT, _NONE_TEXT = "leaf", "none"


class MisfitError(TypeError):
    """A type that a reader was given is not as the one of its name was, or is missing."""


def named(names: Iterable[str], candidates: list[Any]) -> dict[str, Any]:
    """Return what stands for the names of a file: a candidate, whatever module it is in now; MisfitError if none."""
    for candidate in candidates:
        if not is_named(candidate):
            raise MisfitError(f"types: {candidate!r} is no class or function")
    values = {name: KNOWN[name] if name in KNOWN else _chosen(name, candidates) for name in names}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        last = ", ".join(name.rpartition(".")[2] for name in missing)
        raise MisfitError(
            f"load: the file has {', '.join(missing)}, by name alone: a file can name no code that is then run; give "
            f"what is meant: load(..., types=[{last}])"
        )
    return values


def _chosen(name: str, candidates: list[Any]) -> Any:
    """Return the candidate of this name; else the only one of this name in another module, or None."""
    alike = []
    for x in candidates:
        if name_of(x) == name:
            return x
        module = getattr(getattr(x, "py_func", x), "__module__", None)
        if f".{name}".endswith(f".{name_of(x).removeprefix(f'{module}.')}"):
            alike.append(x)
    return alike[0] if len(alike) == 1 else None


def encoded(structure: Structure, encoder: Encoder, place: str) -> Any:
    """Return JSON for a structure that stands at a place; TypeError if it has what a file does not hold."""
    kind = structure.kind
    if kind is None or kind is type(None):
        return _LEAF_TEXT if kind is None else _NONE_TEXT
    if issubclass(kind, dict) and kind not in (dict, OrderedDict):
        raise TypeError(f"{place} is a {kind.__name__}, which a file does not hold; make it a dict")
    make = structure.make
    fields = make.args[1] if isinstance(make, functools.partial) and make.func is dataclass_of else {}
    named_parts = zip(structure.keys, structure.parts, strict=True)
    return {
        "kind": encoder.named(kind),
        "keys": encoder.values(structure.keys, f"a key of {place}"),
        "parts": [encoded(part, encoder, f"{place}[{key!r}]") for key, part in named_parts],
        "static": {name: encoder.value(x, f"{place}.{name}") for name, x in structure.static.items()},
        "fields": {name: encoder.value(x, f"{place}.{name}") for name, x in fields.items()},
    }


def decoded(tree: Any, decoder: Decoder) -> Structure:
    """Return the structure of JSON; MisfitError if a type of the user's has changed."""
    if tree in (_LEAF_TEXT, _NONE_TEXT):
        return LEAF if tree == _LEAF_TEXT else NONE
    kind = decoder.named[tree["kind"]]
    keys = tuple(map(decoder.value, tree["keys"]))
    parts = tuple([decoded(part, decoder) for part in tree["parts"]])
    static, fields = ({name: decoder.value(x) for name, x in tree[of].items()} for of in ("static", "fields"))
    structure = Structure(kind, keys, parts, static, _maker(kind, keys, fields, static))
    if kind in (dict, list, tuple) and all(part is LEAF for part in parts):
        structure.flat = len(parts)
    return structure


def _maker(kind: Any, keys: tuple[Any, ...], fields: dict[str, Any], static: dict[str, Any]) -> Any:
    if kind is dict:
        return functools.partial(dict_of, keys)
    if kind is OrderedDict:
        return functools.partial(mapping_of, OrderedDict.fromkeys(keys), keys)
    if not isinstance(kind, type):
        raise MisfitError(f"types: {kind!r} is no class")
    if issubclass(kind, (tuple, list)):
        names: Any = getattr(kind, "_fields", None)
        if names is None and keys == tuple(range(len(keys))):
            return kind
        if names == keys:
            return getattr(kind, "_make")  # noqa: B009 (of named tuples alone)
        raise MisfitError(f"types: {kind.__name__} has the fields {names}, and {keys} in the file")
    present = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    if not {*keys, *static} <= present:
        raise MisfitError(
            f"types: {kind.__name__} has no fields {sorted({*keys, *static} - present)}, and has in the file"
        )
    return functools.partial(dataclass_of, kind, fields, keys)


def decoded_signature(tree: dict[str, Any], decoder: Decoder) -> Signature:
    """Return the signature of JSON."""
    signature = Signature.__new__(Signature)
    signature.positional = [decoded(s, decoder) for s in tree["positional"]]
    signature.keywords = {name: decoded(s, decoder) for name, s in tree["keywords"].items()}
    signature.static = {i: decoder.value(x) for i, x in tree["static"]}
    signature.paths, signature.names, signature.simple = tree["paths"], tree["names"], bool(tree["simple"])
    leaves = sum(map(len, [*signature.positional, *signature.keywords.values()]))
    if len(signature.paths) != leaves or len(signature.names) != leaves - len(signature.static):
        raise ValueError(f"a signature of {leaves} leaves has {len(signature.paths)} paths")
    return signature


def write_programs(f: Any, kind: str, programs: Sequence[Any], extra: Any = None) -> None:
    """Write programs, and a value that says more of them, to a path or binary file as a thing of this kind.

    TypeError, naming where it stands, for what a file does not hold; ProgramError for a program that is not recorded.
    """
    encoder = Encoder()
    trees = [_encoded(program, encoder) for program in programs]
    said = encoder.value(extra, "what is said of the programs")
    body = {"programs": trees, "extra": said, "tables": encoder.tables, "names": encoder.names}
    write_content(f, kind, body, encoder.arrays)


def _encoded(program: Any, encoder: Encoder) -> dict[str, Any]:
    if program._unfinished:
        raise ProgramError(program._unfinished)
    signature = program._signature
    return {
        "recipe": recipe_encoding.encoded(program._complete, encoder),
        "signature": {
            "positional": [encoded(s, encoder, f"argument {i}") for i, s in enumerate(signature.positional)],
            "keywords": {name: encoded(s, encoder, f"argument {name}") for name, s in signature.keywords.items()},
            "static": [[i, encoder.value(x, signature.paths[i])] for i, x in signature.static.items()],
            **{name: getattr(signature, name) for name in ("paths", "names", "simple")},
        },
        "template": encoded(program._template, encoder, "the result"),
        "kept": [[i, encoder.value(x, "a result")] for i, x in program._kept.items()],
        "escapes": program._escapes,
    }
