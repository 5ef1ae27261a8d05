"""Draw the picture of the front page by running its time loop: python docs/update_pictures.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import tape

HERE = Path(__file__).parent
PICTURE = HERE / "time_loop.svg"
WIDTH, HEIGHT, EVERY = 300, 150, 10  # of a panel, in pixels; steps between two points of a line
COLOURS = ("#4a8fe7", "#e78f4a", "#3fa66b", "#b06ad9", "#d9566a")  # on white and on black


def run() -> tuple[Any, Any]:
    """Return the positions of the loop on the front page, (steps, 5), and their derivatives by the stiffness."""
    (text,) = re.findall(r"```python\n(.*?)```", (HERE / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    loop, _, _ = text.partition("\nenergy")
    names: dict[str, Any] = {"path": []}
    exec(loop.rstrip() + "\n    path.append(position)\n", names)  # noqa: S102 (the page's own text)
    path, stiffness = names["path"][::EVERY], names["stiffness"]
    slopes = [[derivative(x, stiffness, k) for k in range(len(x))] for x in path]
    return np.array([x.detach().numpy() for x in path]), np.array(slopes)


def derivative(x: tape.Tensor, parameter: tape.Tensor, k: int) -> float:
    """Return the derivative of one element."""
    (g,) = tape.autograd.grad(x[k], parameter, retain_graph=True)
    return float(g.item())


def panel(title: str, lines: Any, left: int) -> str:
    """Return a panel: a line for each column."""
    low, high = lines.min(), lines.max()
    xs = left + np.linspace(0, WIDTH, len(lines))
    ys = 30 + (high - lines) / (high - low) * HEIGHT
    zero = 30 + high / (high - low) * HEIGHT
    parts = [
        f'<text x="{left}" y="18" fill="#888">{title}</text>',
        f'<path d="M{left} {zero:.1f}h{WIDTH}" stroke="#888" stroke-dasharray="2 3"/>',
    ]
    for column, colour in zip(ys.T, COLOURS, strict=True):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, column, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "\n".join(parts)


def picture() -> str:
    """Return the picture as SVG."""
    positions, slopes = run()
    panels = [panel("positions over time", positions, 10), panel("their derivatives by the stiffness", slopes, 340)]
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 650 190" font-family="sans-serif" font-size="13">'
    return "\n".join([head, *panels, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
