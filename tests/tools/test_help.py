"""What a user asks first: ``dir``, ``help``, ``--version``."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from types import ModuleType

import pytest

import tape
from tape import autograd, func, linalg, special

PLACES = {"tape": tape, "autograd": autograd, "func": func, "linalg": linalg, "special": special, "Tensor": tape.Tensor}


def public(place: object) -> list[str]:
    return [name for name in getattr(place, "__all__", dir(place)) if not name.startswith("_")]


def test_dir_shows_public_names_only() -> None:
    assert dir(tape) == sorted(tape.__all__)
    for name in ("Tensor", "autograd", "func", "linalg", "special", "sin", "vmap", "set_quiet", "__version__"):
        assert name in dir(tape)
    for name in ("adding", "attributes", "annotations", "broadcasting", "tapes", "cached_calls"):
        assert name not in dir(tape)
    assert all(hasattr(tape, name) for name in dir(tape))


@pytest.mark.parametrize("place", PLACES)
def test_help_on_every_public_name(place: str) -> None:
    """Rendered as ``help`` does; functions with the names of their arguments and a sentence."""
    poor = []
    for name in public(PLACES[place]):
        thing = getattr(PLACES[place], name)
        if isinstance(thing, ModuleType):
            continue
        text = pydoc.render_doc(thing, renderer=pydoc.plaintext)
        if inspect.isroutine(thing):
            inspect.signature(thing)
        if (inspect.isroutine(thing) or inspect.isclass(thing)) and not (inspect.getdoc(thing) and len(text) > 60):
            poor.append(name)
    assert poor == []


def test_version() -> None:
    done = subprocess.run([sys.executable, "-m", "tape", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tape {tape.__version__}\n", "")


def test_methods_keep_their_help_when_they_have_run() -> None:
    tape.cosh(tape.ones(2))
    tape.ones(2).cosh()
    for name in ("cosh", "mul", "where", "abs"):
        assert inspect.getdoc(getattr(tape.Tensor, name)) == inspect.getdoc(getattr(tape, name))
