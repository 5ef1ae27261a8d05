"""Conventions that PyTorch's own tests of autograd use: each program runs with both libraries and finds the same.

A program takes the library and returns plain data, what stands above it. Of ours it runs with both sweeps.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from test_conventions import torch  # noqa: F401 (a fixture)

import tape
from kernels import backend

Program = Callable[[Any], Any]
PROGRAMS: list[Any] = []


def both(expected: Any) -> Callable[[Program], Program]:
    """File a program of both libraries with what it finds."""

    def add(program: Program) -> Program:
        PROGRAMS.append(pytest.param(program, expected, id=program.__name__))
        return program

    return add


def leaf(lib: Any, *values: Any) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def complaint(function: Callable[[], Any], kind: type[BaseException] = RuntimeError) -> str:
    """Return the first words of what a call raises, before a colon or a bracket."""
    try:
        function()
    except kind as error:
        return str(error).split(" (")[0].split(":")[0]
    return "nothing raised"


# --- nodes ---


@both([True, True, False, True])
def a_node_is_one_object_while_it_lives(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    z, node = y.exp(), y.grad_fn
    return [y.grad_fn is node, z.grad_fn.next_functions[0][0] is node, z.grad_fn == node, len({node, y.grad_fn}) == 1]


@both(["MulBackward0", "ExpBackward0", "SumBackward0", "AddBackward0", "AccumulateGrad", "MmBackward0"])
def classes_of_nodes_are_named_as_their_operations(lib: Any) -> Any:
    x = leaf(lib, [1, 2], [3, 4])
    y = x * x
    nodes = [y.grad_fn, y.exp().grad_fn, y.sum().grad_fn, (y + 1).grad_fn, y.grad_fn.next_functions[0][0]]
    return [type(node).__name__ for node in [*nodes, (x @ x).grad_fn]]


@both([True, True, True, False])
def every_node_is_a_node(lib: Any) -> Any:
    y = leaf(lib, 1, 2) * 2
    node = lib.autograd.graph.Node
    return [isinstance(n, node) for n in (y.grad_fn, y.grad_fn.next_functions[0][0], y.exp().grad_fn, y)]


@both([[1, 2], [3, 4], None, 2])
def saved_values(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = x * w
    two = (x * 2).grad_fn
    return [y.grad_fn._saved_self.tolist(), y.grad_fn._saved_other.tolist(), two._saved_self, float(two._saved_other)]


@both([True, True, True])
def a_saved_result_has_its_history(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x.exp()
    kept = y.grad_fn._saved_result
    return [kept.grad_fn is y.grad_fn, kept.tolist() == y.tolist(), (x * x).grad_fn._saved_self is x]


@both(["Trying to backward through the graph a second time", "nothing raised"])
def saved_values_of_a_freed_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y, z = x.exp(), x.exp()
    y.sum().backward()
    z.sum().backward(retain_graph=True)
    return [complaint(lambda one=one: one.grad_fn._saved_result) for one in (y, z)]


@both([{"a": 1}, {"a": 1}, {}, {"b": 2}])
def metadata_lasts_as_long_as_the_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * 2
    y.grad_fn.metadata["a"] = 1
    gc.collect()
    z = y.exp()
    z.grad_fn.next_functions[0][0].next_functions[0][0].metadata["b"] = 2
    del y
    gc.collect()
    node = z.grad_fn.next_functions[0][0]
    return [node.metadata, dict(node.metadata), z.grad_fn.metadata, node.next_functions[0][0].metadata]


@both([["ExpBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"], [1, 1]])
def a_node_keeps_its_edges_when_a_backward_frees_the_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 1)
    z = (x * x).exp().sum()
    node, names = z.grad_fn, []
    z.backward()
    while node.next_functions:
        node = node.next_functions[0][0]
        names.append(node.name())
    return [names, node.variable.tolist()]


@both([True, True])
def a_node_keeps_its_part_of_the_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x * x).exp()
    node = y.grad_fn.next_functions[0][0]
    saved = y.tolist()
    del y
    gc.collect()
    return [node._saved_self is x, saved[0] > 0]


@both([("FnBackward", "FnBackward"), True, [0, 1], 7, [[1, 2]], [("FnBackward", 0), ("FnBackward", 1)], True])
def node_of_a_function(lib: Any) -> Any:
    class Fn(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.factor = 7
            return x * 2, x * 3

        @staticmethod
        def backward(_: Any, a: Any, b: Any) -> Any:
            return a * 2 + b * 3

    x = leaf(lib, 1, 2)
    a, b = Fn.apply(x)
    node, edges = a.grad_fn, (a + b).grad_fn.next_functions
    return [
        (type(node).__name__, node.name()),
        node is b.grad_fn,
        [a.output_nr, b.output_nr],
        node.factor,
        [one.tolist() for one in node.saved_tensors],
        [(type(n).__name__, k) for n, k in edges],
        edges[0][0] is edges[1][0],
    ]


@both("no attribute")
def what_a_node_did_not_save(lib: Any) -> Any:
    try:
        return leaf(lib, 1).exp().grad_fn._saved_other
    except AttributeError as error:
        return "no attribute" if "no attribute" in str(error) else str(error)


def _cycle(lib: Any, kind: str) -> tuple[Any, Any, list[int]]:
    """Register something that holds its own tensor; return what tells of its death, and a user of the tensor."""

    class Probe:
        pass

    probe, seen = Probe(), []
    b = leaf(lib, 1, 2) * 2
    node = b.grad_fn

    def hook(*_: Any, held: Any = probe) -> None:
        seen.append(len([b, node, held]))

    register = {"tensor": b.register_hook, "after": node.register_hook, "before": node.register_prehook}
    register.get(kind, lambda _: node.metadata.update(own=(node, b, hook)))(hook)
    return weakref.ref(probe), b.exp(), seen


@pytest.mark.parametrize("kind", ["tensor", "after", "before", "metadata"])
def test_hook_that_holds_its_tensor_lasts_as_long_as_the_graph(kind: str) -> None:
    probe, c, seen = _cycle(tape, kind)
    gc.collect()
    tape.recording.recorded()
    c.sum().backward(retain_graph=True)
    assert probe() is not None
    assert seen == ([] if kind == "metadata" else [3])
    before = tape.recording.recorded()
    del c
    gc.collect()
    assert tape.recording.recorded() <= before - 2
    gc.collect()
    assert probe() is None


def test_handle_does_not_keep_its_hook() -> None:
    def register() -> tuple[Any, Any]:
        y = leaf(tape, 1, 2) * 2

        def hook(_: Any) -> None:
            assert y is not None

        return y.register_hook(hook), weakref.ref(hook)

    handle, hook = register()
    tape.recording.recorded()
    assert hook() is None
    handle.remove()


def test_edges_that_a_backward_freed_are_not_silently_missing() -> None:
    y = leaf(tape, 1, 2).exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match=r"SumBackward0.*take grad_fn before.*retain_graph"):
        _ = y.grad_fn.next_functions


# --- the tests of all programs ---


@pytest.fixture(params=[True, False], ids=["native", "plain"])
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both sweeps."""
    if request.param and not backend.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(backend, "NATIVE", request.param)
    return bool(request.param)


@contextlib.contextmanager
def gradients_on(library: ModuleType) -> Iterator[None]:
    """Turn gradients on again, whatever a program left."""
    try:
        yield
    finally:
        library.set_grad_enabled(True)


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program(program: Program, expected: Any) -> None:
    with gradients_on(tape):
        assert program(tape) == expected


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program_with_pytorch(torch: ModuleType, program: Program, expected: Any) -> None:  # noqa: F811
    with gradients_on(torch):
        assert program(torch) == expected
