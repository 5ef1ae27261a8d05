"""Data and a curve as lines of text: blocks where the stream can show them, ASCII where not."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

# A character cell holds 2 x 2 dots; its index here is the sum of the dots' weights:
# upper left 1, upper right 2, lower left 4, lower right 8.
BLOCKS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
ASCII = " '''.:::.:::.:::"
WEIGHTS = np.array([[1, 2], [4, 8]])

NARROWEST, WIDEST = 40, 100  # columns of a whole line
MARGIN = 7  # columns of the vertical axis
COLOURS = {"hare": "36", "lynx": "33"}
PLAIN_COLOUR = "32"


@dataclass(frozen=True)
class Style:
    """What a stream can show: columns, block characters, colour."""

    width: int = 80
    blocks: bool = False
    colour: bool = False


def style_of(stream: TextIO) -> Style:
    """Return what `stream` can show; NO_COLOR, COLUMNS and TERM are respected."""
    columns = shutil.get_terminal_size().columns
    return Style(
        width=min(max(columns, NARROWEST), WIDEST),
        blocks=_can_encode(stream, BLOCKS),
        colour=stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
    )


def panel(
    title: str,
    data: tuple[ArrayLike, ArrayLike],
    curve: tuple[ArrayLike, ArrayLike],
    style: Style,
    height: int = 9,
) -> str:
    """Return a plot of points and a curve over the same horizontal axis.

    `data` and `curve` are pairs (x, y) of finite 1-D arrays, x increasing; y starts at 0. The text
    has `height` rows, a title above them, an axis below, and at most `style.width` columns.
    """
    data_x, data_y = (np.asarray(values, dtype=float) for values in data)
    curve_x, curve_y = (np.asarray(values, dtype=float) for values in curve)
    columns = style.width - MARGIN - 1
    top = _round_up(max(data_y.max(), curve_y.max()))
    left, right = curve_x[0], curve_x[-1]

    across = np.linspace(left, right, 2 * columns)
    dots = _trace(np.interp(across, curve_x, curve_y) / top, 2 * height)
    cells = [list(row) for row in _cells(dots, BLOCKS if style.blocks else ASCII)]
    for x, y in zip(data_x, data_y, strict=True):
        column = round((x - left) / (right - left) * (columns - 1))
        cells[height - 1 - _level(y / top, height)][column] = "o"

    rows = [_paint(row, title, style) for row in cells]
    lines = [f"{title}: o data, {_sample(style)} fit"]
    labels = _labels(top, height)
    lines += [f"{label:>{MARGIN - 1}} |{row}" for label, row in zip(labels, rows, strict=True)]
    lines += [" " * MARGIN + "+" + "-" * columns, " " * (MARGIN + 1) + _axis(left, right, columns)]
    return "\n".join(line.rstrip() for line in lines)


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _round_up(value: float) -> float:
    """Return the least of 1, 2, 4, 5, 8, 10 times a power of ten that is not below `value`."""
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 2, 4, 5, 8, 10, 20) if step * power >= value))


def _level(fraction: float, levels: int) -> int:
    """Return which of `levels` equal steps from the bottom holds `fraction` of the height."""
    return min(max(int(fraction * levels), 0), levels - 1)


def _trace(fractions: NDArray[np.float64], levels: int) -> NDArray[np.bool_]:
    """Return dots (levels, columns), top row first, that join neighbouring points of a curve."""
    dots = np.zeros((levels, len(fractions)), dtype=bool)
    before = _level(fractions[0], levels)
    for column, fraction in enumerate(fractions):
        now = _level(fraction, levels)
        # From the step next to the last one, so that steep parts have no gaps and no doubled dots.
        start = now if now == before else before + (1 if now > before else -1)
        dots[min(start, now) : max(start, now) + 1, column] = True
        before = now
    return dots[::-1]


def _cells(dots: NDArray[np.bool_], characters: str) -> list[str]:
    height, width = dots.shape
    squares = dots.reshape(height // 2, 2, width // 2, 2).transpose(0, 2, 1, 3)
    return ["".join(characters[i] for i in row) for row in (squares * WEIGHTS).sum(axis=(2, 3))]


def _paint(cells: Sequence[str], title: str, style: Style) -> str:
    if not style.colour:
        return "".join(cells)
    colour = COLOURS.get(title, PLAIN_COLOUR)
    codes = {" ": "", "o": "1"}  # data bold
    runs = groupby(cells, lambda cell: codes.get(cell, colour))
    return "".join(f"\x1b[{code}m{''.join(run)}\x1b[0m" if code else "".join(run) for code, run in runs)


def _sample(style: Style) -> str:
    return "▄▀▄" if style.blocks else ".'."


def _labels(top: float, height: int) -> list[str]:
    labels = [""] * height
    labels[0], labels[height // 2], labels[-1] = f"{top:g}", f"{top / 2:g}", "0"
    return labels


def _axis(left: float, right: float, columns: int) -> str:
    """Return the labels of the horizontal axis, one a quarter, none beyond the last column."""
    line = [" "] * columns
    for quarter in range(5):
        text = f"{left + (right - left) * quarter / 4:g}"
        centre = round((columns - 1) * quarter / 4)
        start = min(max(centre - len(text) // 2, 0), columns - len(text))
        line[start : start + len(text)] = text
    return "".join(line)
