"""Tensors in files: ``save``, and what reads its files, with PyTorch's names and a format that runs no code.

A file is a zip archive, as ``numpy.savez`` writes it: ``tree.json`` describes the nesting, each array is a ``.npy``
entry. It holds numbers and text only: loading a file of unknown origin can fail, and do nothing else.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tape.errors import FileFormatError
from tape.foundation.checked_files import replacing
from tape.recording import record
from tape.tensors.tensor import Tensor, leaf, scalar_or_array

_VERSION = 1
_TREE = "tree.json"
_TEXT = (str, bool, int, type(None))
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set}


class _Writer:
    """Describes an object as JSON; the arrays stand apart, each tensor once."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self._seen: dict[int, int] = {}
        self._within: set[int] = set()

    def describe(self, value: Any, path: str) -> Any:
        """Return JSON for a value; ``path`` is where it stands, for messages."""
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, (np.ndarray, np.generic)):
            return {"array": self._array(value, np.asarray(value), path), "scalar": isinstance(value, np.generic)}
        if type(value) in _TEXT:
            return {"value": value}
        if type(value) is float:
            return {"float": value.hex() if math.isfinite(value) else repr(value)}
        if id(value) in self._within:
            raise ValueError(f"save: {path} contains itself")
        self._within.add(id(value))
        try:
            return self._container(value, path)
        finally:
            self._within.discard(id(value))

    def _container(self, value: Any, path: str) -> Any:
        for name, kind in _SEQUENCES.items():
            if type(value) is kind:
                return {name: self._all(value, path)}
        if type(value) in (dict, OrderedDict):
            keys = [self.describe(key, f"{path}: a key") for key in value]
            values = [self.describe(entry, f"{path}[{key!r}]") for key, entry in value.items()]
            return {"dict": keys, "values": values, "ordered": type(value) is OrderedDict}
        raise TypeError(
            f"save: {path} is a {type(value).__name__}; a file holds tensors, NumPy arrays, numbers, text, None, "
            "and lists, tuples, sets and dicts of them"
        )

    def _all(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.describe(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _tensor(self, x: Tensor, path: str) -> Any:
        record.note_escape(x)
        return {
            "tensor": self._array(x, np.asarray(x._value), path),
            "requires_grad": x._slot is not None,
        }

    def _array(self, holder: Any, array: Any, path: str) -> int:
        if array.dtype.hasobject:
            raise TypeError(f"save: {path} is an array of Python objects, which a file does not hold")
        if id(holder) not in self._seen:
            self._seen[id(holder)] = len(self.arrays)
            self.arrays.append(array)
        return self._seen[id(holder)]


def save(obj: Any, f: Any) -> None:
    """Write tensors, arrays, numbers and text, in any nesting of lists, tuples, sets and dicts, to a file.

    ``f`` is a path or a binary file. A tensor keeps its values, dtype and ``requires_grad``, not its graph or
    ``.grad``; one that stands in several places is one again after loading. Other objects raise TypeError, and an
    existing file stays as it was. The file holds no code: PyTorch's pickles are neither written nor read.

    >>> import io
    >>> file = io.BytesIO()
    >>> tape.save({"w": tape.ones(2, requires_grad=True), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> tape.load(file)
    {'w': tensor([1., 1.], requires_grad=True), 'epoch': 3}
    """
    writer = _Writer()
    tree = writer.describe(obj, "the object")
    if not isinstance(f, (str, os.PathLike)):
        _write(f, tree, writer.arrays)
        return
    with replacing(Path(f)) as file:
        _write(file, tree, writer.arrays)


def _write(file: Any, tree: Any, arrays: list[Any]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_TREE, json.dumps({"tape": _VERSION, "tree": tree}))
        for i, array in enumerate(arrays):
            with archive.open(f"{i}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


class _Reader:
    """Builds the object that a file describes."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._made: dict[tuple[str, int], Any] = {}

    def build(self, node: Any) -> Any:
        """Return what a node of the tree describes."""
        if "value" in node:
            return node["value"]
        if "float" in node:
            return float.fromhex(node["float"])
        for kind in ("tensor", "array"):
            if kind in node:
                key = (kind, node[kind])
                if key not in self._made:
                    self._made[key] = self._array_of(node, kind)
                return self._made[key]
        if "dict" in node:
            pairs = zip(map(self.build, node["dict"]), map(self.build, node["values"]), strict=True)
            return OrderedDict(pairs) if node["ordered"] else dict(pairs)
        (name,) = node
        return _SEQUENCES[name](map(self.build, node[name]))

    def _array_of(self, node: Any, kind: str) -> Any:
        with self._archive.open(f"{int(node[kind])}.npy") as entry:
            array = np.lib.format.read_array(entry, allow_pickle=False)
        if kind == "tensor":
            return leaf(scalar_or_array(array), requires_grad=bool(node["requires_grad"]))
        return array[()] if node["scalar"] else array


def tensors_of(file: Any, name: str) -> Any:
    """Return what :func:`save` wrote to a binary file; FileFormatError, naming it, if it did not."""
    try:
        with zipfile.ZipFile(file) as archive:
            head = json.loads(archive.read(_TREE))
            if head["tape"] != _VERSION:
                raise FileFormatError(f"load: {name} is of format {head['tape']}; this version reads {_VERSION}")
            return _Reader(archive).build(head["tree"])
    except (zipfile.BadZipFile, KeyError, TypeError, EOFError, json.JSONDecodeError) as error:
        raise FileFormatError(
            f"load: {name} was not written by tape.save, or is damaged ({error}). PyTorch's files are pickles, which "
            "may run code: convert them there with numpy.savez"
        ) from error
