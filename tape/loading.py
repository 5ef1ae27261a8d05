"""``tape.load``: what a file holds, tensors, a program or a compiled function."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tape.compiled import native_calls
from tape.errors import FileFormatError
from tape.programs import program
from tape.programs.program import Program
from tape.recording import to_python
from tape.tensors import checked_files
from tape.tensors.checked_files import Content
from tape.tensors.dtypes import check_device


def load(
    f: Any,
    map_location: Any = None,
    *,
    weights_only: bool = True,
    mmap_mode: str | None = None,
    types: Iterable[Any] = (),
) -> Any:
    """Return what :func:`save`, :meth:`Program.save` or a compiled function's wrote to a path or a binary file.

    Nothing in a file is code, and none makes code run. ``types`` are the classes (dataclasses, named tuples), functions
    and ``@njit`` functions of a ``tape.custom`` that a program's file names: none is imported by its name.
    ``mmap_mode="r"`` leaves the constants of a program in its file, from where processes share them; the checksum is
    compared all the same. ``map_location`` may be ``"cpu"``. ``weights_only`` is accepted: nothing else is in a file.

    Raises :class:`tape.errors.FileFormatError`, a ValueError, for a file that is damaged, cut off, newer, or of another
    format: PyTorch's own files are pickles; convert them there, by ``numpy.savez`` of ``t.numpy()``. Raises TypeError,
    naming them, if types are missing.

    >>> import io
    >>> file = io.BytesIO()
    >>> tape.record(lambda x: (x * x).sum(), np.ones(2)).save(file)
    >>> _ = file.seek(0)
    >>> tape.load(file).value_and_grad(np.array([1.0, 3.0]))
    (10.0, (array([2., 6.]),))
    """
    del weights_only
    check_device(map_location)
    at_path = isinstance(f, (str, os.PathLike))
    if mmap_mode not in (None, "r"):
        raise ValueError(f"load: mmap_mode is {mmap_mode!r}; it may be 'r', or None")
    if mmap_mode is not None and not at_path:
        raise ValueError("load: mmap_mode needs the path of a file")
    name = str(f)
    data = None if at_path else f.read()
    with Path(f).open("rb") if data is None else io.BytesIO(data) as file:
        ours = file.read(len(checked_files.MAGIC)) == checked_files.MAGIC
        file.seek(0)
        if not ours and mmap_mode is None:
            return to_python.tensors_of(file, name)
    content = checked_files.read(f if data is None else data, name, mapped=mmap_mode is not None)
    if content.kind not in _READERS:
        raise FileFormatError(f"load: {name} holds a {content.kind}, which this version of tape does not know")
    return _READERS[content.kind](content, name, types)


def _program(content: Content, name: str, types: Iterable[Any]) -> Program:
    programs, _ = program.read(content, name, types)
    if len(programs) != 1:
        raise FileFormatError(f"load: {name} holds {len(programs)} programs where one is expected")
    return programs[0]


_READERS = {"program": _program, native_calls.KIND: native_calls.read}
