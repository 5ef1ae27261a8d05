"""The stubs tell editors and type checkers what is there at run time."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import tape
from tests.project.test_packaging import ROOT, loaded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import Fresh


pytestmark = pytest.mark.quick
STUBS = ROOT / ".ci" / "stubs.py"
stubs = loaded(STUBS)


def public(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def defined(body: list[ast.stmt]) -> set[str]:
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def parsed(name: str) -> list[ast.stmt]:
    return ast.parse(stubs.stubs()[stubs.FOLDER / name]).body


def test_plain_mode_prints_the_same_stubs(fresh: Fresh) -> None:
    """An installation writes them in plain mode, where it need not compile."""
    code = f"import runpy\nprint('\\0'.join(runpy.run_path({str(STUBS)!r})['stubs']().values()), end='')"
    out, error = fresh(code, TAPE_PLAIN="1").communicate(timeout=120)
    assert (out, error) == ("\0".join(stubs.stubs().values()), "")


def test_the_stub_lists_every_method_and_attribute() -> None:
    (listed,) = (
        node for node in parsed("tensors/tensor.pyi") if isinstance(node, ast.ClassDef) and node.name == "Tensor"
    )
    assert public(defined(listed.body)) == public(dir(tape.Tensor))
    assert {"__add__", "__radd__", "__iadd__", "__getitem__", "__eq__", "__matmul__"} <= defined(listed.body)


def test_the_stub_lists_every_elementwise_function() -> None:
    listed = defined(parsed("functions.pyi"))
    assert {"add", "sub", "log", "where"} <= listed <= set(tape.__all__)
    assert all(callable(getattr(tape, name)) for name in listed)


def told(node: ast.FunctionDef) -> list[tuple[str, bool]]:
    """Return the parameters of a definition, and whether they have a default."""
    given = node.args
    first = [*given.posonlyargs, *given.args]
    found = [(a.arg, i >= len(first) - len(given.defaults)) for i, a in enumerate(first)]
    found += [(given.vararg.arg, False)] if given.vararg else []
    found += [(a.arg, d is not None) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return found + ([(given.kwarg.arg, False)] if given.kwarg else [])


def had(function: Any) -> list[tuple[str, bool]]:
    return [(name, p.default is not p.empty) for name, p in inspect.signature(function).parameters.items()]


def test_stubs_have_the_parameters_that_functions_have() -> None:
    for node in parsed("functions.pyi"):
        if isinstance(node, ast.FunctionDef):
            assert told(node) == had(getattr(tape, node.name)), node.name
    (listed,) = (n for n in parsed("tensors/tensor.pyi") if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    for member in listed.body:
        if isinstance(member, ast.FunctionDef) and not member.decorator_list and member.name[:2] != "__":
            assert told(member)[1:] == had(getattr(tape.Tensor, member.name))[1:], member.name


def test_all_holds_every_public_name() -> None:
    assert all(hasattr(tape, name) for name in tape.__all__)  # asked for: some are imported at their first use
    here = {name for name, thing in vars(tape).items() if not isinstance(thing, ModuleType)} - {"annotations"}
    assert public(here) | {
        "autograd",
        "distributions",
        "func",
        "implicit",
        "interpolate",
        "mpi",
        "linalg",
        "ndimage",
        "nn",
        "numpy",
        "ode",
        "optim",
        "optimize",
        "quadrature",
        "signal",
        "random",
        "sparse",
        "special",
        "uncertainty",
    } == public(tape.__all__)
    assert len(set(tape.__all__)) == len(tape.__all__)


def test_a_method_hides_no_builtin_in_annotations() -> None:
    assert stubs._plain("float | dict[int, np.float64]") == "builtins.float | dict[builtins.int, np.float64]"
