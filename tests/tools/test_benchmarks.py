"""`python -m tape bench`: what a run shows, two saved runs beside each other, and what is said where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tape
from tape import __main__ as cli
from tests.conftest import Fresh

pytestmark = pytest.mark.quick


def report(figure: float, seconds: float, rivals: float) -> dict[str, object]:
    """Return what is read of a report."""
    bar = {"bar": "wave: PyTorch eager / tape dynamic", "wanted": ">= 2", "figure": figure, "verdict": "pass"}
    names = {"tape dynamic": seconds, "PyTorch eager": rivals}
    timed = [{"group": "wave", "name": name, "stats": {"median": median}} for name, median in names.items()]
    return {
        "benchmarks": timed, "bars": [bar], "times": {"<tiny>": {"compiled": seconds}}, "datetime": "2026-01-01T00:00",
        "machine_info": {"cpu": {"brand_raw": "a <processor>"}, "versions": {"numpy": "2.3", "torch": None}},
    }  # fmt: skip


def test_two_saved_runs_beside_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, content in (("a", report(3.0, 2e-6, 6e-6)), ("b", report(1.5, 4e-6, 6e-6))):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    files, page = [str(tmp_path / f"{name}.json") for name in "ab"], tmp_path / "page.html"
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", "--compare", *files, "--html", str(page)])
    assert left.value.code == 0
    lines = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    assert "worse wave: PyTorch eager / tape dynamic, wanted >= 2 3 (pass) 1.5 (pass) 0.50" in lines
    assert "worse <tiny>: compiled 2 us 4 us 0.50" in lines
    assert "wave: PyTorch eager 6 us 6 us 1.00" in lines
    text = page.read_text()
    assert all(part in text for part in ("&lt;tiny&gt;: compiled", "a &lt;processor&gt;, numpy 2.3", "class='worse'"))
    assert "http" not in text
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", "--compare", *files])
    assert left.value.code == 2
    assert "b.json: no report of --benchmark-json" in capfd.readouterr().err


SHOWN = """
from types import SimpleNamespace as N
from bench.report import Comparison, Progress, aligned
def timed(group, name, seconds):
    return N(group=group, name=name, has_error=False, stats=N(median=seconds))
table = Comparison()
table.times["tiny"] = {"compiled": 1e-6, "hand": 2e-6, "JAX": 5e-5}
rows = (("tape dynamic", 1), ("tape autograd.grad", 2), ("NumPy by hand", 3), ("PyTorch eager", 4),
        ("PyTorch autograd.grad", 10))
bars = {"heat: PyTorch eager / tape dynamic": 4.5, "ice: JAX's jit / tape replay": 7.0, "a guard": 1.0}
bars = [{"bar": name, "figure": figure} for name, figure in bars.items()]
table.take([timed("heat", name, seconds * 1e-6) for name, seconds in rows], bars)
print("\\n".join(line.rstrip() for line in aligned(table.rows())))
shown = []
progress = Progress(N(write_line=shown.append), N(get=lambda *_: {"c": 100.0}, set=lambda *kept: print(kept)))
progress.pytest_collection_finish(N(items=[N(nodeid=name) for name in "abc"]))
progress.pytest_runtest_logreport(N(nodeid="a", when="call", duration=2.0))
progress.pytest_runtest_logreport(N(nodeid="a", when="teardown", duration=2.0))
print(progress.line(61.0))
progress.pytest_sessionfinish()
"""


def test_the_table_and_the_line_of_progress(fresh: Fresh) -> None:
    out, err = fresh(SHOWN).communicate()
    assert not err
    table, _, rest = out.partition("[")
    assert [line.split() for line in table.splitlines()] == [
        ["case", "tape", "time", "by", "hand", "PyTorch", "JAX"],
        ["tiny", "compiled", "1", "us", "2", "50"],
        ["heat", "dynamic", "1", "us", "3", "4.5"],
        ["heat", "autograd.grad", "2", "us", "1.5", "5"],
        ["ice", "replay", "7"],
    ]
    assert rest.splitlines() == ["1 of 3 after 1:01, about 1:44 left]", "('bench/seconds', {'c': 100.0, 'a': 4.0})"]


def test_without_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            cli.main(["bench", *arguments])
        assert left.value.code == 2
        return capsys.readouterr().err

    assert "--html goes with --compare" in refused("--html", "page.html")
    monkeypatch.setattr(cli, "find_spec", lambda _: None)
    assert 'pip install -e ".[test,bench]"' in refused("-k", "tiny")
    monkeypatch.setattr(tape, "__file__", str(tmp_path / "tape" / "__init__.py"))
    assert "not in the installed package" in refused()
