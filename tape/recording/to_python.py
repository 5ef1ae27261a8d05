"""Tensors converted to Python and NumPy: numbers, lists, arrays, copies, pickles, files and DLPack."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
import tempfile
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tape import errors
from tape.errors import FileFormatError
from tape.recording import foreign_calls, record
from tape.recording.attributes import detach
from tape.recording.creation import from_numpy
from tape.recording.views import clone, view
from tape.tensors import modes, view_families
from tape.tensors.bytecode import stack_level
from tape.tensors.hooks import public
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array, leaf, method, scalar_or_array


@method()
def item(x: Tensor) -> Any:
    """Return the only element as a Python number."""
    if x.spec.size != 1:
        raise RuntimeError(f"a Tensor with {x.spec.size} elements cannot be converted to Scalar; .tolist() has all")
    record.note_number(x)
    value = x._value
    return value if type(value) is float else value.item()  # type: ignore[union-attr]


@method()
def tolist(x: Tensor) -> Any:
    """Return the elements as nested lists of Python numbers."""
    record.note_escape(x)
    return as_array(x).tolist()


@method()
def numpy(x: Tensor, *, force: bool = False) -> Array:
    """Return the value as an array of the same memory; without ``force`` it raises where a gradient would be lost."""
    shown: Array | None = view_families.shown(x)
    if shown is not None:
        return shown
    if x._slot is not None and not force and modes.is_grad_enabled():
        raise RuntimeError(errors.NUMPY_EXIT)
    record.note_escape(x)
    # The memory is shared, not the array object, whose shape the caller may set.
    return view_families.handed_out(x)


def _warn(x: Tensor, conversion: str) -> None:
    """Warn that a gradient ends here; Python shows it once for each of the caller's lines.

    A function of numbers that the tensor was given to is refused: there a warning would pass unseen.
    """
    if x._slot is not None:
        refused = foreign_calls.refusal_of_number(sys._getframe(2), x) if modes.is_grad_enabled() else None
        if refused is not None:
            raise refused
        warnings.warn(
            f"{conversion}() of a tensor that requires grad leaves the graph: what follows has no gradient. "
            "Write .item() or .detach() where that is meant",
            errors.DetachWarning,
            stacklevel=3,
        )


def _number(x: Tensor) -> Any:
    if x.spec.size != 1:
        raise ValueError(
            f"only one element tensors can be converted to Python scalars; this one has {x.spec.size}: .tolist()"
        )
    return item(x)


@method()
def equal(input: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one shape and equal elements; ``input == other`` compares element by element."""
    return input.spec.shape == other.spec.shape and bool((input.detach() == other.detach()).all())


@method("__float__")
def to_float(x: Tensor) -> float:
    """Return the only element as a float, with a warning if it requires grad."""
    value = _number(x)
    _warn(x, "float")
    return float(value)


@method("__int__")
def to_int(x: Tensor) -> int:
    """Return the only element as an int, with a warning if it requires grad."""
    value = _number(x)
    _warn(x, "int")
    return int(value)


@method("__index__")
def to_index(x: Tensor) -> int:
    """Return an integer tensor of one element as an index."""
    if x.spec.dtype.kind not in "iub" or x.spec.size != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(x))


@method("__bool__")
def to_bool(x: Tensor) -> bool:
    """Return the truth of the only element."""
    if x.spec.size != 1:
        amount, remedy = ("more than one value", "; write .any() or .all()") if x.spec.size else ("no values", "")
        raise RuntimeError(f"Boolean value of Tensor with {amount} is ambiguous{remedy}")
    if "scipy.optimize" in sys.modules:  # whose solvers decide by tensors
        foreign_calls.refuse_iterates(sys._getframe(1))
    return bool(item(x))


@method("__format__")
def formatted(x: Tensor, text: str) -> str:
    """Format the only element of a 0-d tensor, other tensors as str does."""
    return object.__format__(x, text) if x.spec.shape else format(item(x), text)


@method("__deepcopy__")
def deepcopy(x: Tensor, memo: dict[int, Any]) -> Tensor:
    """Copy a leaf with its gradient; a computed tensor raises, as in PyTorch."""
    if not record.leaf_of(x):
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
            "copy x.detach(), or write x.clone(), which is recorded"
        )
    record.note_escape(x)
    result = _rebuild_tensor(copy.copy(x._value), x._slot is not None)
    if type(x._slot) is AccumulateGrad and x._slot.grad is not None:
        result._slot.grad = clone(x._slot.grad)
    memo[id(x)] = result
    return result


@method("__copy__")
def shallow_copy(x: Tensor) -> Tensor:
    """Return another tensor of the same memory: of a leaf a leaf, of a computed tensor one of the same graph."""
    if not record.leaf_of(x):
        return view(x, x.spec.shape)
    return detach(x).requires_grad_(x._slot is not None)


@method("__reduce__")
def reduce(x: Tensor) -> Any:
    """Pickle the value; what is read is a leaf, as in PyTorch, since a graph stays in its process."""
    record.note_escape(x)
    return _rebuild_tensor, (x._value, x._slot is not None)


def _rebuild_tensor(value: Any, requires_grad: bool) -> Tensor:
    result = leaf(value, requires_grad=requires_grad)
    if requires_grad:
        modes.note_leaf(result)
    return result


_rebuild_tensor.__module__ = "tape"  # what pickles name stays, wherever this stands


def numbers_of(x: Tensor) -> Any:
    """Return a tensor's value as an array, or of one number in float64 as a float."""
    record.note_escape(x)
    if type(x._value) is float:
        return x._value
    array = as_array(x)
    return float(array) if array.ndim == 0 and array.dtype == np.float64 else array


def warn_of_detaching(api: str) -> None:
    """Warn that numbers leave the graph: what follows has no gradient. TypeError where SciPy's solvers ask for them."""
    foreign_calls.refuse_detaching(sys._getframe(1))
    warnings.warn(
        f"{api}: the function uses a tensor that requires grad, but was given NumPy's arrays and numbers, and so "
        "returns such: what follows has no gradient by that tensor. Pass the arguments as tensors, or .detach() it",
        errors.DetachWarning,
        stacklevel=stack_level(),
    )


# Tensors in files: ``save``, and what reads its files, with PyTorch's names and a format that runs no code.
#
# A file is a zip archive, as ``numpy.savez`` writes it: ``tree.json`` describes the nesting, each array is a ``.npy``
# entry. It holds numbers and text only: loading a file of unknown origin can fail, and do nothing else.

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
            record.note_escape(value)
            number = self._array(value, np.asarray(value._value), path)
            return {"tensor": number, "requires_grad": value._slot is not None}
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
                return {name: [self.describe(item, f"{path}[{i}]") for i, item in enumerate(value)]}
        if type(value) in (dict, OrderedDict):
            keys = [self.describe(key, f"{path}: a key") for key in value]
            values = [self.describe(entry, f"{path}[{key!r}]") for key, entry in value.items()]
            return {"dict": keys, "values": values, "ordered": type(value) is OrderedDict}
        raise TypeError(
            f"save: {path} is a {type(value).__name__}; a file holds tensors, NumPy arrays, numbers, text, None, "
            "and lists, tuples, sets and dicts of them"
        )

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
            return _rebuild_tensor(scalar_or_array(array), bool(node["requires_grad"]))
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


@method("__dlpack__")
def dlpack(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """Return a capsule of this tensor's memory. BufferError if it requires grad: no gradient comes back this way."""
    if x._slot is not None:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    record.note_escape(x)
    array = as_array(view_families.mark_exported_to_numpy(x))
    return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


@method("__dlpack_device__")
def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Return DLPack's numbers of the CPU."""
    del x
    device, number = np.zeros(0).__dlpack_device__()
    return int(device), int(number)


@public(methods=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of the memory that an object with ``__dlpack__`` exports; what either writes, both see.

    Read-only memory is copied, as is any with ``copy=True``. TypeError for dtypes that tensors do not have.

    >>> a = np.zeros(2)
    >>> x = tape.from_dlpack(a)
    >>> a[0] = 5.0
    >>> x
    tensor([5., 0.])
    """
    array = np.from_dlpack(ext_tensor, device=device, copy=copy)
    return from_numpy(array if array.flags.writeable else array.copy())
