"""Lines of native source on their way."""

from __future__ import annotations

from kernels.programs.parts.source_lines import INDENT


class Text:
    """Lines of source, each with its depth."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def put(self, *lines: str) -> None:
        """Append lines at the present depth."""
        self.lines += [INDENT * self.depth + line for line in lines]

    def opened(self, line: str) -> None:
        """Append a line; what follows stands within it."""
        self.put(line)
        self.depth += 1

    def each(self, count: int, line: str) -> None:
        """Append a loop over so many ``i`` of one line."""
        self.put(f"for i in range({count}):", INDENT + line)
