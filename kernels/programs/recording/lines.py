"""The user's lines of a program's steps: a table of them, and where in the words the steps of another line begin."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.programs.recording.program_words import Steps

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Lines:
    """Steps whose words begin at ``begins[k]`` or later, up to the next, are of line ``numbers[k]`` of the table."""

    table: list[tuple[str, int, str]] = field(default_factory=list)
    """Files, numbers in them, and what stood there when the program was recorded."""
    begins: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))

    def mark(self, begin: int, number: int) -> None:
        """Have the steps from this word on be of a line."""
        if not self.numbers or self.numbers[-1] != number:
            self.begins.append(begin)
            self.numbers.append(number)

    def of_steps(self, steps: Steps) -> Array:
        """Return the number of the line of each step, -1 where it is not known."""
        numbers = np.array([-1, *self.numbers], np.int64)
        return numbers[np.searchsorted(np.array(self.begins, np.int64), np.array(steps.starts), "right")]

    def text(self, number: int, *, short: bool = False) -> str:
        """Return a line as ``file:number: source``, as far as it is known; ``short``: without folders."""
        if number < 0:
            return "unknown"
        path, line, source = self.table[number]
        return f"{os.path.basename(path) if short else path}:{line}" + (f": {source}" if source else "")  # noqa: PTH119 (of any system)
