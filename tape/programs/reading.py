"""Programs read from the files that saving.py writes: what a file says is data, and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernels.programs.recording import recipe_encoding
from kernels.programs.recording.recipe_encoding import Decoder
from tape.errors import FileFormatError
from tape.foundation.checked_files import Content
from tape.programs import structure_encoding
from tape.programs.program import Program
from tape.programs.structure_encoding import MisfitError


def read(content: Content, name: str, types: Iterable[Any]) -> tuple[list[Program], Any]:
    """Return the programs of a file, and what is said of them; ``types``: the classes and functions that it names.

    TypeError if one is missing or has other fields, FileFormatError for what no version wrote, or this one not.
    """
    named = structure_encoding.named(_names(content, name), types)
    try:
        body = content.body
        decoder = Decoder(body["tables"], content.arrays, named)
        return [_decoded(tree, decoder) for tree in body["programs"]], decoder.value(body["extra"])
    except MisfitError:
        raise
    except Exception as error:  # whatever senseless content leads to
        raise _unread(content, name, error) from error


def _names(content: Content, name: str) -> list[str]:
    try:
        return [str(one) for one in content.body["names"]]
    except (TypeError, KeyError) as error:
        raise _unread(content, name, error) from error


def _unread(content: Content, name: str, error: Exception) -> FileFormatError:
    return FileFormatError(f"load: {name}, written by tape {content.version}, is not what this version reads: {error}")


def _decoded(tree: dict[str, Any], decoder: Decoder) -> Program:
    recipe = recipe_encoding.decoded(tree["recipe"], decoder)
    signature = structure_encoding.decoded_signature(tree["signature"], decoder)
    template = structure_encoding.decoded(tree["template"], decoder)
    kept = {i: decoder.value(x) for i, x in tree["kept"]}
    if len(recipe.arguments) != len(signature.names) or len(recipe.outputs) + len(kept) != len(template):
        raise ValueError("the program has other arguments and results than its signature")
    program = Program.__new__(Program)
    program.__setstate__(
        {
            "_recipe": recipe,
            "_signature": signature,
            "_template": template,
            "_kept": kept,
            "_escapes": [str(line) for line in tree["escapes"]],
            "_unfinished": "",
        }
    )
    return program
