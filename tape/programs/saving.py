"""Programs in files: structures, outcomes, what is written."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernels.programs import recipe_encoding
from kernels.programs.program import ProgramError
from kernels.programs.recipe_encoding import DTYPES, Decoder, Encoder, is_named, name_of
from tape import return_types
from tape.tensors import checked_files, modes
from tape.tensors.pytrees import LEAF, NONE, Structure, dataclass_of, dict_of, mapping_of
from tape.tensors.tensor import Tensor, constant_tensor, scalar_or_array
from tape.transforms.value_and_grad import Signature


def outcome(value: Any, tensor: bool) -> Any:
    """Return a result of its own memory as the caller gave his arguments: tensors, or floats and arrays."""
    if tensor:
        return constant_tensor(scalar_or_array(value))
    return float(value) if value.ndim == 0 and value.dtype.kind == "f" else value


def way_of(arguments: Sequence[Any]) -> bool | None:
    """Return None for a native replay; else whether each operation is recorded one by one, for a program or vmap."""
    if modes.current().recorder is not None:
        return True
    return (
        False
        if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in arguments)
        else None
    )


# Structures, and the signatures made of them, as JSON: for files, whose readers are given the user's types.

_RETURNED = [kind for kind in vars(return_types).values() if isinstance(kind, type) and issubclass(kind, tuple)]
_USUAL = (
    *(bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None), OrderedDict, np.ndarray),
    *(dtype.type for dtype in DTYPES.values()),
    *_RETURNED,
)
KNOWN = {name_of(kind): kind for kind in _USUAL}
"""The types that every reader has."""
_LEAF, _NONE = "leaf", "none"


class MisfitError(TypeError):
    """A type that a reader was given is not as the one of its name was."""


def named(names: Iterable[str], types: Iterable[Any]) -> dict[str, Any]:
    """Return what stands for the names of a file: one of ``types``, whatever module it is in now; TypeError if none."""
    candidates = list(types)
    for candidate in candidates:
        if not is_named(candidate):
            raise TypeError(f"types: {candidate!r} is no class or function")
    values = {name: KNOWN[name] if name in KNOWN else _chosen(name, candidates) for name in names}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        last = ", ".join(name.rpartition(".")[2] for name in missing)
        raise TypeError(
            f"load: the file has {', '.join(missing)}, by name alone: a file can name no code that is then run; give "
            f"what is meant: load(..., types=[{last}])"
        )
    return values


def _chosen(name: str, candidates: list[Any]) -> Any:
    """Return the candidate of this name; else the only one of this name in another module, or None."""
    for candidate in candidates:
        if name_of(candidate) == name:
            return candidate
    alike = [x for x in candidates if f".{name}".endswith(f".{_within_module(x)}")]
    return alike[0] if len(alike) == 1 else None


def _within_module(value: Any) -> str:
    module = getattr(getattr(value, "py_func", value), "__module__", None)
    return name_of(value).removeprefix(f"{module}.")


def encoded(structure: Structure, encoder: Encoder, place: str) -> Any:
    """Return JSON for a structure that stands at a place; TypeError if it has what a file does not hold."""
    kind = structure.kind
    if kind is None or kind is type(None):
        return _LEAF if kind is None else _NONE
    if issubclass(kind, dict) and kind not in (dict, OrderedDict):
        raise TypeError(f"{place} is a {kind.__name__}, which a file does not hold; make it a dict")
    make = structure.make
    fields = make.args[1] if isinstance(make, functools.partial) and make.func is dataclass_of else {}
    return {
        "kind": encoder.named(kind),
        "keys": encoder.values(structure.keys, f"a key of {place}"),
        "parts": [
            encoded(part, encoder, f"{place}[{key!r}]")
            for key, part in zip(structure.keys, structure.parts, strict=True)
        ],
        "static": {name: encoder.value(x, f"{place}.{name}") for name, x in structure.static.items()},
        "fields": {name: encoder.value(x, f"{place}.{name}") for name, x in fields.items()},
    }


def decoded(tree: Any, decoder: Decoder) -> Structure:
    """Return the structure of JSON; MisfitError if a type of the user's has changed."""
    if tree in (_LEAF, _NONE):
        return LEAF if tree == _LEAF else NONE
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


def encoded_signature(signature: Signature, encoder: Encoder) -> dict[str, Any]:
    """Return JSON for the signature of a program."""
    return {
        "positional": [encoded(s, encoder, f"argument {i}") for i, s in enumerate(signature.positional)],
        "keywords": {name: encoded(s, encoder, f"argument {name}") for name, s in signature.keywords.items()},
        "static": [[i, encoder.value(x, signature.paths[i])] for i, x in signature.static.items()],
        "paths": signature.paths,
        "names": signature.names,
        "simple": signature.simple,
    }


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


def write(f: Any, kind: str, programs: Sequence[Any], extra: Any = None) -> None:
    """Write programs, and a value that says more of them, to a path or binary file as a thing of this kind.

    TypeError, naming where it stands, for what a file does not hold; ProgramError for a program that is not recorded.
    """
    encoder = Encoder()
    trees = [_encoded(program, encoder) for program in programs]
    said = encoder.value(extra, "what is said of the programs")
    body = {"programs": trees, "extra": said, "tables": encoder.tables, "names": encoder.names}
    checked_files.write(f, kind, body, encoder.arrays)


def _encoded(program: Any, encoder: Encoder) -> dict[str, Any]:
    if program._unfinished:
        raise ProgramError(program._unfinished)
    return {
        "recipe": recipe_encoding.encoded(program._recipe, encoder),
        "signature": encoded_signature(program._signature, encoder),
        "template": encoded(program._template, encoder, "the result"),
        "kept": [[i, encoder.value(x, "a result")] for i, x in program._kept.items()],
        "escapes": program._escapes,
    }
