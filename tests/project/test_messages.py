"""What errors and docstrings tell users to write exists: each ``tape.x.y`` in a text of the sources is a name."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tape

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for room in ("kernels", "tape") for path in (ROOT / room).rglob("*.py"))
NAME = re.compile(r"(?<![\w./\"'])tape((?:\.[A-Za-z_]\w*)+)")
ENDINGS = ("py", "pyi", "toml", "json", "html", "svg", "c", "h")


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a source, docstrings and parts of f-strings too, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def exists(dotted: str) -> bool:
    """Whether a name is an attribute of tape, of one of its modules, or a module."""
    value: object = tape
    path = "tape"
    for part in dotted.split("."):
        path += f".{part}"
        if not hasattr(value, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return False
        value = getattr(value, part)
    return True


def faults_of(source: str) -> list[tuple[int, str]]:
    """Return the names in the texts of a source that do not exist."""
    return [
        (line, f"tape.{dotted}")
        for line, text in texts_of(source)
        for dotted in (match[1:] for match in NAME.findall(text))
        if dotted != "f" and dotted.rpartition(".")[2] not in ENDINGS and not exists(dotted)  # f stands for any
    ]


@pytest.mark.quick
def test_names_in_texts_exist() -> None:
    wrong = {str(path.relative_to(ROOT)): faults_of(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert not {path: faults for path, faults in wrong.items() if faults}


def test_errors_begin_with_no_name_of_pytorchs() -> None:
    for path in SOURCES:
        errors = [text for _, text in texts_of(path.read_text(encoding="utf-8")) if text.startswith("torch.")]
        assert not [text for text in errors if " " in text], path


def test_a_planted_name_is_found() -> None:
    assert faults_of("raise TypeError(f'use tape.nowhere.f, {x}')") == [(1, "tape.nowhere.f")]
    assert faults_of("'tape.func.grad, tape.linalg.solve, tape.Tensor.backward; tape.exp.'") == []


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("fft", "complex"),
        ("complex64", "complex"),
        ("jit", "compile"),
    ],
)
def test_names_of_pytorch_that_are_not_there_name_what_is(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'tape' has no attribute '{name}': .*{advice}"):
        getattr(tape, name)
    with pytest.raises(AttributeError, match=r"^module 'tape' has no attribute 'quaternion'; see docs/from_pytorch"):
        _ = tape.quaternion


def test_other_devices_are_refused() -> None:
    x = tape.ones(2)
    for call in (
        x.cuda,
        lambda: x.cuda(1),
        lambda: x.to("cuda"),
        lambda: x.to(device="cuda:0"),
        lambda: tape.zeros(2, device="cuda"),
        lambda: tape.tensor([1.0], device=tape.device("cuda")),
    ):
        with pytest.raises(RuntimeError, match="tape computes on the CPU only"):
            call()
