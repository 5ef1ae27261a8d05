"""The examples run, end with a checked gradient, and their models are what they say."""

import contextlib
import functools
import inspect
import io
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tape
from tape import examples
from tape.examples import heat, heat_inverse, lynx_hare, rosenbrock

FOLDER = Path(inspect.getsourcefile(examples) or "").parent


@functools.cache
def output(name: str) -> str:
    """Return what an example prints."""
    folder = tempfile.TemporaryDirectory()  # for its pictures
    with folder, contextlib.chdir(folder.name), contextlib.redirect_stdout(io.StringIO()) as printed:
        examples.load(name).main()
    return printed.getvalue()


@pytest.mark.parametrize("name", examples.names())
def test_example_runs_and_checks_its_gradient(name: str) -> None:
    last = output(name).splitlines()[-1]
    assert re.fullmatch(r"gradient against central .* difference \d\.\de-\d\d, ok", last)


@pytest.mark.parametrize("name", examples.names())
def test_example_is_short_and_says_what_it_shows(name: str) -> None:
    text = examples.source(name)
    assert text == (FOLDER / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert text.startswith(f'"""{examples.summary(name)}\n')
    assert len(examples.summary(name)) > 20


def test_every_module_of_the_folder_is_listed() -> None:
    modules = {path.stem.replace("_", "-") for path in FOLDER.glob("*.py")} - {"--init--"}
    assert set(examples.names()) == modules
    assert {"heat", "heat-inverse", "kinetics", "lynx-hare", "rosenbrock", "truss", "waveform"} <= modules


def test_lynx_hare_reads_the_whole_record() -> None:
    assert lynx_hare.YEAR.tolist() == list(range(1900, 1921))
    assert (lynx_hare.HARE[0], lynx_hare.LYNX[0]) == (30.0, 4.0)
    assert (lynx_hare.HARE[-1], lynx_hare.LYNX[-1]) == (24.7, 8.6)
    assert lynx_hare.HARE.sum() == pytest.approx(715.7)
    assert lynx_hare.LYNX.sum() == pytest.approx(423.5)


def test_lynx_hare_reaches_the_minimum() -> None:
    assert "loss 11.0362 -> 2.0187" in output("lynx-hare")


def test_rosenbrock_finds_ones() -> None:
    assert output("rosenbrock").count(" 1.00000") == len(rosenbrock.START)


def test_heat_decays_as_the_scheme_predicts() -> None:
    factor = 1 - 4 * heat.RATIO * np.sin(np.pi / (heat.POINTS - 1) / 2) ** 2
    expected = heat.X + factor**150 * np.sin(np.pi * heat.X)
    np.testing.assert_allclose(heat.march(heat.initial(), 1.0, 150), expected, rtol=1e-12)


def test_heat_is_the_same_loop_for_arrays_and_tensors() -> None:
    plain = heat.march(heat.initial(), 0.9, 20)
    taped = heat.march(tape.tensor(heat.initial(), requires_grad=True), tape.tensor(0.9), 20)
    assert taped.requires_grad
    np.testing.assert_array_equal(taped.detach().numpy(), plain)


def test_heat_inverse_finds_the_flaw() -> None:
    found = re.search(r"largest error (\S+), from noise", output("heat-inverse"))
    assert found is not None
    assert abs(1 - heat_inverse.TRUE).max() > 0.5  # so far off is the start
    assert float(found[1]) < 0.1


CUBED = np.array([0.5, -2.0, 3.0])


@pytest.mark.parametrize("component", [0, 1, 2])
@pytest.mark.parametrize("wrong", [1.001, -1.0, np.nan])
def test_check_gradient_refuses_a_wrong_one(component: int, wrong: float) -> None:
    gradient = 3 * CUBED**2
    gradient[component] *= wrong
    with pytest.raises(ArithmeticError, match="from central differences"):
        examples.check_gradient(lambda x: float((x**3).sum()), CUBED, gradient)


def test_check_gradient_accepts_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    examples.check_gradient(lambda x: float((x**3).sum()), CUBED, 3 * CUBED**2)
    assert capsys.readouterr().out.endswith(", ok\n")


def numbers(pattern: str, name: str) -> list[float]:
    """Return the numbers that a pattern finds in what an example prints."""
    return [
        float(x) for match in re.findall(pattern, output(name)) for x in (match if type(match) is tuple else (match,))
    ]


def test_kinetics_has_intervals_around_the_true_rates() -> None:
    intervals = numbers(r"between (\S+) and (\S+) \(true (\S+)\)", "kinetics")
    assert len(intervals) == 6
    assert all(low < true < high < 1.1 * low for low, high, true in zip(*[iter(intervals)] * 3, strict=True))
    peaks = numbers(r"B: (\S+) \+- (\S+) \(true (\S+)\)", "kinetics")
    assert all(abs(mean - true) < 3 * deviation for mean, deviation, true in zip(*[iter(peaks)] * 3, strict=True))


def test_waveform_finds_the_body() -> None:
    start, end = numbers(r"misfit (\S+) -> (\S+) in", "waveform")
    assert end < 0.05 * start
    pictures = re.findall(r":\n((?:[-.:=+*#@]+\n)+)", output("waveform"))
    found, true = [np.array([["-.:=+*#@".index(c) for c in row] for row in p.split()]) for p in pictures[1:]]
    lowest = [np.argwhere(p == p.min()).mean(0) for p in (found, true)]
    assert abs(lowest[0] - lowest[1]).max() < 1.5


def test_truss_leaves_few_bars_and_is_stiffer() -> None:
    start, end, left, all_bars = numbers(r"compliance (\S+) -> (\S+), (\d+) of (\d+)", "truss")
    assert end < start / 3
    assert left < all_bars / 4


def test_a_picture_is_drawn_where_matplotlib_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn: list[object] = []
    examples.picture("dot", drawn.append)
    assert len(drawn) == len(list(tmp_path.glob("dot.png")))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    examples.picture("none", drawn.append)
    assert not list(tmp_path.glob("none.png"))
