"""A printed program with extents and strides as arguments, so that programs of other sizes share its machine code."""

from __future__ import annotations

import re
from collections.abc import Collection

LEAST = 17
"""The least extent that is an argument: those of small arrays are worth knowing to LLVM."""
_TOKEN = re.compile(
    r"local_\w+\(\d+\)|load_i8\(table \+ \d+\)|[A-Za-z_]\w*|\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|(?P<whole>\d+)"
)
"""What is looked at as a whole; the sizes of local arrays and places in tables are no arguments."""
_FUNCTION = re.compile(r"^def (?:program|loop\d+|part\d+)\(.*\)(?: -> Word)?:\n", re.MULTILINE)
_END = re.compile(r"^(?=\S)", re.MULTILINE)
_WHOLE_FLOAT = re.compile(r"(\d+)\.0")


class SharedSizes:
    """The text of a program that reads integers from :data:`LEAST` on from the memory ``pointer``, behind ``first``.

    So it does floats that are the number of some elements, which means divide by. Such numbers that the text has by
    chance are arguments, too, which changes nothing but what LLVM knows. In functions of parts of loops ``pointer`` is
    there from their first line on.
    """

    def __init__(self, text: str, extents: Collection[int], pointer: str, first: int) -> None:
        self._pointer, self._first = pointer, first
        self._extents = extents
        self._places: dict[int, int] = {}
        pieces, at = [], 0
        for match in _FUNCTION.finditer(text):
            ending = _END.search(text, match.end())
            end = ending.start() if ending else len(text)
            pieces += [text[at : match.end()], self._function(text[match.end() : end])]
            at = end
        self.text = "".join([*pieces, text[at:]])
        self.numbers = [*self._places]
        """What the memory has to hold, from ``first`` on."""

    def _function(self, body: str) -> str:
        """Return the body of a function, in which numbers are variables that it starts with."""
        self._used: dict[str, str] = {}
        body = _TOKEN.sub(self._token, body)
        lines = [f"    {name} = {value}\n" for name, value in self._used.items()]
        opening = f"    {self._pointer} = "
        if body.startswith(opening):
            first, _, body = body.partition("\n")
            lines.insert(0, f"{first}\n")
        return "".join([*lines, body])

    def _token(self, match: re.Match[str]) -> str:
        token = match[0]
        if match["whole"] is not None:
            return self._variable(int(token)) if int(token) >= LEAST else token
        whole = _WHOLE_FLOAT.fullmatch(token)
        return self._float(int(whole[1])) if whole and self._counts(int(whole[1])) else token

    def _variable(self, number: int) -> str:
        place = self._places.setdefault(number, len(self._places))
        self._used[f"size{place}"] = f"{self._pointer}[{self._first + place}]"
        return f"size{place}"

    def _float(self, number: int) -> str:
        name = self._variable(number)
        self._used[f"f_{name}"] = f"np.float64({name})"
        return f"f_{name}"

    def _counts(self, number: int) -> bool:
        """Whether so many are elements along one axis or two, or one less, as in unbiased variances."""
        return any(
            n in self._extents or any(n % extent == 0 and n // extent in self._extents for extent in self._extents)
            for n in (number, number + 1)
        )
