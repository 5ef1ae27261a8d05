"""Two saved runs beside each other: `python -m tape bench --compare BEFORE.json AFTER.json [--html PAGE]`.

Ratios to rivals were taken in turn within a run, and are what to look at; seconds of two runs compare the machine with
itself, too. The page is one file that needs no network.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.in_turn import readable
from bench.report import aligned, is_tapes

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOISE = 1.1  # a change by less is shown, and not marked
_STYLE = """
:root { color-scheme: light dark; } body { font: 14px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto;
padding: 0 1rem; } table { border-collapse: collapse; width: 100%; } th, td { padding: .2rem .6rem; text-align: right;
border-bottom: 1px solid #8884; } th:first-child, td:first-child { text-align: left; } .better { color: #1a7f37; }
.worse { color: #cf222e; } .bar { display: inline-block; height: .6em; background: currentColor; opacity: .6; }
"""


@dataclass(frozen=True)
class Change:
    """What was measured in both runs; ``better`` is how many times better it is in the second."""

    name: str
    before: str
    after: str
    better: float

    @property
    def mark(self) -> str:
        """`better`, `worse`, or nothing for what differs by less than runs do."""
        return "better" if self.better > _NOISE else "worse" if self.better < 1 / _NOISE else ""


def times_of(report: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Return the seconds of a report by case and by who ran it."""
    found = {(case, who): seconds for case, times in report.get("times", {}).items() for who, seconds in times.items()}
    for each in report["benchmarks"]:
        found[each["group"] or "", each["name"]] = each["stats"]["median"]
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Change]]:
    """Return the changes of bars, of tape's times and of others', by title, the worst first."""
    old, new = ({bar["bar"]: bar for bar in report.get("bars", [])} for report in (before, after))
    bars = []
    for name in old.keys() & new.keys():
        a, b = old[name]["figure"], new[name]["figure"]
        grows = new[name]["wanted"].startswith(">=")
        texts = [f"{bar['figure']:.3g} ({bar['verdict']})" for bar in (old[name], new[name])]
        better = _times_better(b, a) if grows else _times_better(a, b)
        bars.append(Change(f"{name}, wanted {new[name]['wanted']}", *texts, better))
    one, other = times_of(before), times_of(after)
    both = {x: Change(": ".join(x), readable(one[x]), readable(other[x]), one[x] / other[x]) for x in one if x in other}
    ours = [change for (_, who), change in both.items() if is_tapes(who)]
    theirs = [change for (_, who), change in both.items() if not is_tapes(who)]
    found = {"bars: ratios and figures": bars, "tape's times": ours, "others' times: the machine": theirs}
    return {title: sorted(each, key=lambda x: (x.better, x.name)) for title, each in found.items()}


def _times_better(a: float, b: float) -> float:
    return a / b if a > 0 and b > 0 else 1.0


def mean(found: Sequence[Change]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(math.log(x.better) for x in found) / len(found)) if found else 1.0


def text(tables: Sequence[tuple[str, list[Change]]]) -> str:
    """Return the tables for a terminal."""
    lines = []
    for title, found in tables:
        rows = [("", title, "before", "after", "times better")]
        rows += [(x.mark, x.name, x.before, x.after, f"{x.better:.2f}") for x in found]
        lines += [*aligned(rows), f"geometric mean of {len(found)}: {mean(found):.3f} times better", ""]
    return "\n".join(lines)


def page(tables: Sequence[tuple[str, list[Change]]], settings: Sequence[str]) -> str:
    """Return the tables as a page."""
    parts = [
        f"<p>{name}: {html.escape(setting)}</p>" for name, setting in zip(("before", "after"), settings, strict=True)
    ]
    for title, found in tables:
        parts.append(
            f"<h2>{html.escape(title)}</h2><p>{len(found)} in both, geometric mean {mean(found):.3f} times better</p>"
        )
        parts.append("<table><tr><th></th><th>before</th><th>after</th><th>times better</th><th></th></tr>")
        for x in found:
            cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in (x.name, x.before, x.after, f"{x.better:.2f}"))
            bar = f"<span class=bar style='width:{min(abs(math.log2(x.better)) * 3, 8):.2f}em'></span>"
            parts.append(f"<tr class='{x.mark}'>{cells}<td style='text-align:left'>{bar}</td></tr>")
        parts.append("</table>")
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Two runs</title><style>{_STYLE}</style>"
    return f"{head}<h1>Two runs of the benchmarks</h1>{''.join(parts)}</html>\n"


def setting_of(report: dict[str, Any]) -> str:
    """Return when, where and with which versions a run was made."""
    machine = report.get("machine_info", {})
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items() if version)
    return f"{report.get('datetime', '')[:16]}, {machine.get('cpu', {}).get('brand_raw', '')}, {versions}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; return 2 for a file that is no report."""
    parser = argparse.ArgumentParser(prog="python -m tape bench --compare")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--html", type=Path, help="write a page, too")
    options = parser.parse_args(arguments)
    reports = []
    for path in (options.before, options.after):
        try:
            reports.append(json.loads(path.read_text()))
            times_of(reports[-1])
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            sys.stderr.write(f"{path}: no report of --benchmark-json ({type(error).__name__}: {error})\n")
            return 2
    tables = [(title, found) for title, found in changes(*reports).items() if found]
    sys.stdout.write(text(tables))
    if options.html:
        options.html.write_text(page(tables, [setting_of(report) for report in reports]), encoding="utf-8")
        sys.stdout.write(f"written: {options.html}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
