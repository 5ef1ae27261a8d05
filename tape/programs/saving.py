"""Programs written to files: several in one, with more that is said of them. reading.py reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.programs.recording import recipe_encoding
from kernels.programs.recording.program import ProgramError
from kernels.programs.recording.recipe_encoding import Encoder
from tape.foundation import checked_files
from tape.programs import structure_encoding


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
        "signature": structure_encoding.encoded_signature(program._signature, encoder),
        "template": structure_encoding.encoded(program._template, encoder, "the result"),
        "kept": [[i, encoder.value(x, "a result")] for i, x in program._kept.items()],
        "escapes": program._escapes,
    }
