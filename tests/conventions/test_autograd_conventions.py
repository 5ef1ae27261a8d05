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

import tape
from kernels.sweeps import reverse
from tests.support.pytorch_outcomes import Outcomes

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
    tape.recording.record.recorded()
    c.sum().backward(retain_graph=True)
    assert probe() is not None
    assert seen == ([] if kind == "metadata" else [3])
    before = tape.recording.record.recorded()
    del c
    gc.collect()
    assert tape.recording.record.recorded() <= before - 2
    gc.collect()
    assert probe() is None


def test_handle_does_not_keep_its_hook() -> None:
    def register() -> tuple[Any, Any]:
        y = leaf(tape, 1, 2) * 2

        def hook(_: Any) -> None:
            assert y is not None

        return y.register_hook(hook), weakref.ref(hook)

    handle, hook = register()
    tape.recording.record.recorded()
    assert hook() is None
    handle.remove()


def test_edges_that_a_backward_freed_are_not_silently_missing() -> None:
    y = leaf(tape, 1, 2)
    for _ in range(100):  # of small graphs names and edges stay
        y = y.exp()
    y = y.sum()
    y.backward()
    node = y.grad_fn
    for _ in range(50):
        ((node, _),) = node.next_functions
    with pytest.raises(RuntimeError, match=r"ExpBackward0.*take grad_fn before.*retain_graph"):
        walked(node, 50)


def walked(node: Any, steps: int) -> None:
    for _ in range(steps):
        ((node, _),) = node.next_functions


# --- the order of hooks ---


def _named(seen: list[Any], **tensors: Any) -> None:
    """Let the hooks of tensors note their names."""
    for name, one in tensors.items():
        one.register_hook(lambda _, name=name: seen.append(name))


@both(["c", "b", "v", "w", "pw", "a", "x", "px"])
def leaves_are_served_as_soon_as_all_is_there(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    a, v = x.exp(), w[1:]
    b = a[1:] * v
    c = b * w[:1]
    _named(seen, x=x, w=w, a=a, b=b, c=c, v=v)
    x.register_post_accumulate_grad_hook(lambda _: seen.append("px"))
    w.register_post_accumulate_grad_hook(lambda _: seen.append("pw"))
    c.sum().backward()
    return seen


@both(["c", "b", "a", "x", "w"])
def leaves_that_are_ready_together(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    a = x * w
    b = a * x
    c = b * w
    _named(seen, x=x, w=w, a=a, b=b, c=c)
    c.sum().backward()
    return seen


@both(["e", "c", "w", "b", "a", "x"])
def leaves_are_served_in_a_recorded_backward_too(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    a = x.exp()
    b = a.sin()
    c = b * w
    e = c * 1
    _named(seen, x=x, w=w, a=a, b=b, c=c, e=e)
    lib.autograd.grad(e.sum(), (x, w), create_graph=True)
    return seen


@both([[[]], [6, 8], [2, 2]])
def an_optimiser_step_in_the_middle_of_a_backward(lib: Any) -> Any:
    x, w, seen = leaf(lib, 3, 4), leaf(lib, 1, 1), []

    def step(t: Any) -> None:
        seen.append([] if x.grad is None else x.grad.tolist())
        with lib.no_grad():
            t -= t.grad
        t.grad = None

    w.register_post_accumulate_grad_hook(step)
    y = x * 2
    (y * w).sum().backward()
    return [seen, [1 - v for v in w.tolist()], x.grad.tolist()]


@both([[True, True, False, False], [10, 10], [100, 100]])
def retained_gradients_come_between_the_hooks_of_a_tensor_and_of_its_node(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    y = x * 2
    y.retain_grad()

    def scale(g: Any) -> Any:
        seen.append(y.grad is None)
        return g * 10

    def before(given: Any) -> Any:
        seen.append(y.grad is None)
        return (given[0] * 5,)

    y.register_hook(lambda _: seen.append(y.grad is None))
    y.register_hook(scale)
    y.grad_fn.register_prehook(before)
    y.grad_fn.register_hook(lambda _i, _o: seen.append(y.grad is None))
    y.sum().backward()
    return [seen, y.grad.tolist(), x.grad.tolist()]


@both(["c", "|", "c", "pb", "b", "|", "c", "pb", "b"])
def nodes_that_grad_need_not_run(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    a = x * 2
    b = a * w
    c = b.exp()
    for name, one in (("a", a), ("b", b), ("c", c)):
        one.grad_fn.register_hook(lambda _i, _o, name=name: seen.append(name))
    a.grad_fn.register_prehook(lambda _: seen.append("pa"))
    b.grad_fn.register_prehook(lambda _: seen.append("pb"))
    lib.autograd.grad(c.sum(), b, retain_graph=True)
    seen.append("|")
    lib.autograd.grad(c.sum(), a, retain_graph=True)
    seen.append("|")
    lib.autograd.grad(c.sum(), w)
    return seen


@both([["t", "|", "t", "before", "post", "after", "|", "t", "before", "post", "after"], [3, 3]])
def hooks_of_a_leafs_node_run_where_it_accumulates(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    node = (x * 1).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: seen.append("t") or g + 1)
    x.register_post_accumulate_grad_hook(lambda _: seen.append("post"))
    node.register_prehook(lambda g: seen.append("before") or (g[0] * 10,))
    node.register_hook(lambda _i, _o: seen.append("after"))
    (found,) = lib.autograd.grad((x * 2).sum(), x)
    seen.append("|")
    (x * 2).sum().backward()
    seen.append("|")
    (x * 2).sum().backward(inputs=[x])
    return [seen, found.tolist()]


@both([["b", "w", "m", "a", "x"], ["n", "a", "x"]])
def hooks_of_several_run_when_the_last_has_arrived(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    a = x * 2
    b = a * w
    _named(seen, x=x, w=w, a=a, b=b)
    register = lib.autograd.graph.register_multi_grad_hook
    with register((b, w), lambda _: seen.append("m")):
        b.exp().sum().backward()
    first, seen[:] = list(seen), []
    a, b = x * 2, w * 3
    register((a, b), lambda found: seen.append("n" if found[1] is None else "all"))
    a.register_hook(lambda _: seen.append("a"))
    a.sum().backward()
    return [first, seen]


@both([[("b", [2, 2]), ("pre", [[1, 1], [2, 2]]), ("post", [[8, 8]], [[1, 1], [2, 2]])], [8, 8], [20, 20]])
def hooks_of_the_node_of_several_results(lib: Any) -> Any:
    class Fn(lib.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(_: Any, a: Any, b: Any) -> Any:
            return a * 2 + b * 3

    def lists(tensors: Any) -> list[Any]:
        return [one.tolist() for one in tensors]

    x, seen = leaf(lib, 1, 2), []
    a, b = Fn.apply(x)
    node = a.grad_fn
    node.register_prehook(lambda o: seen.append(("pre", lists(o))))
    node.register_hook(lambda i, o: seen.append(("post", lists(i), lists(o))))
    b.register_hook(lambda g: seen.append(("b", g.tolist())))
    (a + b * 2).sum().backward()
    first, x.grad = x.grad.tolist(), None
    a, b = Fn.apply(x)
    b.grad_fn.register_prehook(lambda o: (o[0] * 10, o[1]))
    a.sum().backward()
    return [seen, first, x.grad.tolist()]


@both(
    [
        "expected Variable, but hook returned 'str'",
        "expected Variable, but hook returned 'int'",
        "expected tuple, but hook returned 'str'",
        "expected tuple, but hook returned 'Tensor'",
        "expected Variable, but hook returned 'str'",
        "expected Variable, but hook returned 'str'",
        "can't replace a None gradient with a non-None value",
    ]
)
def what_hooks_return_is_checked(lib: Any) -> Any:
    def bad(register: str, hook: Callable[..., Any], kind: Any = TypeError) -> str:
        x = leaf(lib, 1, 2)
        y = x * 2
        owners: dict[str, Any]
        owners = {"leaf": x.register_hook, "tensor": y.register_hook, "post": x.register_post_accumulate_grad_hook}
        owners |= {"before": y.grad_fn.register_prehook, "after": y.grad_fn.register_hook}
        owners[register](hook)
        return complaint(lambda: y.sum().backward(), kind)

    return [
        bad("tensor", lambda _: "a"),
        bad("leaf", lambda _: 3),
        bad("after", lambda _i, _o: "a"),
        bad("before", lambda o: o[0]),
        bad("after", lambda _i, _o: ("a", None)),
        bad("post", lambda _: "a"),
        bad("after", lambda i, _o: (i[0], i[0]), RuntimeError),
    ]


@both([0, True, True, True])
def modes_entered_in_a_backward_end_with_it(lib: Any) -> Any:
    graph, packed = lib.autograd.graph, []

    def enter() -> None:
        graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t).__enter__()
        lib.set_grad_enabled(False)

    class Fn(lib.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(_: Any, g: Any) -> Any:
            enter()
            return g * 2

    x, found = leaf(lib, 1, 2), []
    y = x * 2
    y.register_hook(lambda _: enter())
    z = x * 3
    x.register_post_accumulate_grad_hook(lambda _: enter())
    for one in (Fn.apply(x), y, z):
        one.sum().backward()
        found.append((x * x).requires_grad)
    return [len(packed), *found]


# --- modes and generators ---


def _drive(lib: Any, decorator: Any) -> list[Any]:
    """Send to, throw into and close a decorated generator; return in which mode its parts ran."""
    seen: list[Any] = []

    @decorator
    def numbers() -> Any:
        try:
            while True:
                try:
                    seen.append(("got", (yield lib.is_grad_enabled()), lib.is_grad_enabled()))
                except ValueError as error:
                    seen.append(("thrown", str(error), lib.is_grad_enabled()))
                    seen.append((yield "recovered"))
        finally:
            seen.append(("end", lib.is_grad_enabled()))

    one = numbers()
    seen += [next(one), one.send(3), one.throw(ValueError("x")), lib.is_grad_enabled(), one.send(9)]
    one.close()
    return [*seen, lib.is_grad_enabled()]


def _driven(within: bool, outside: bool) -> list[Any]:
    ran = [("got", 3, within), ("thrown", "x", within), 9, ("end", within)]
    outcomes = [within, within, "recovered", outside, within]
    return [ran[0], ran[1], ran[2], *outcomes, ran[3], outside]


@both([_driven(False, True)] * 3)
def generators_without_gradients(lib: Any) -> Any:
    return [_drive(lib, make()) for make in (lib.no_grad, lambda: lib.set_grad_enabled(False), lib.inference_mode)]


@both(_driven(True, False))
def generators_with_gradients_in_no_grad(lib: Any) -> Any:
    with lib.no_grad():
        return _drive(lib, lib.enable_grad())


@both([[True, True], False, "generator ignored GeneratorExit", [8]])
def ends_of_generators(lib: Any) -> Any:
    seen: list[Any] = []

    @lib.inference_mode()
    def closed() -> Any:
        try:
            yield lib.is_inference_mode_enabled()
        finally:
            seen.append(lib.is_inference_mode_enabled())

    @lib.no_grad()
    def stubborn() -> Any:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    @lib.no_grad()
    def returning() -> Any:
        return 2 * (yield 1)

    def outer() -> Any:
        yield (yield from returning())

    one, two, three = closed(), stubborn(), outer()
    seen.append(next(one))
    one.close()
    next(two)
    said = complaint(two.close)
    next(three)
    return [seen, lib.is_inference_mode_enabled(), said, [three.send(4)]]


# --- functions ---


def _function(lib: Any, forward: Any, backward: Any, **others: Any) -> Any:
    """Return a Function made of these."""
    body = {"forward": forward, "backward": backward} | others
    return type("Fn", (lib.autograd.Function,), {k: staticmethod(v) if callable(v) else v for k, v in body.items()})


@both("Implementing both 'backward' and 'vjp' for a custom Function is not allowed")
def a_function_with_backward_and_vjp(lib: Any) -> Any:
    def pull(_: Any, g: Any) -> Any:
        return g

    y = _function(lib, lambda _, x: x * 2, pull, vjp=pull).apply(leaf(lib, 1))
    return complaint(lambda: y.sum().backward()).split(".")[0]


@both([[(2, 3), (5, 3), (7, 3), (2, 4)], [50, 50], (True, False, False)])
def defaults_and_names_reach_setup_context(lib: Any) -> Any:
    seen: list[Any] = []

    def forward(x: Any, a: int = 2, b: int = 3) -> Any:
        return x * a * b

    def setup_context(ctx: Any, inputs: Any, _: Any) -> None:
        seen.append(inputs[1:])
        ctx.factor = inputs[1] * inputs[2]

    def backward(ctx: Any, g: Any) -> Any:
        needs.append(ctx.needs_input_grad)
        return g * ctx.factor, None, None

    needs: list[Any] = []
    fn, x = _function(lib, forward, backward, setup_context=setup_context), leaf(lib, 1, 2)
    for one in (fn.apply(x), fn.apply(x, 5), fn.apply(x, 7), fn.apply(x, b=4)):
        one.sum().backward()
    return [seen, x.grad.tolist(), needs[0]]


@both([[(False, True, False)], [(False, False, False)]])
def gradients_of_results_that_have_none(lib: Any) -> Any:
    found = []
    for materialize in (False, True):
        seen: list[Any] = []

        def forward(ctx: Any, x: Any, materialize: bool = materialize) -> Any:
            a, b, c = x * 2, x * 3, x * 4
            ctx.mark_non_differentiable(b)
            ctx._materialize_non_diff_grads = materialize
            return a, b, c

        def backward(_: Any, *gradients: Any, seen: Any = seen) -> Any:
            seen.append(tuple(g is None for g in gradients))
            return gradients[0] * 2, None

        a, _b, _c = _function(lib, forward, backward).apply(leaf(lib, 1, 2), materialize)
        a.sum().backward()
        found.append(seen)
    return found


@both(["saved_tensors can only be accessed once", [2, 4], "Trying to backward through the graph a second time"])
def saved_tensors_that_are_read_once_or_freed(lib: Any) -> Any:
    said: list[str] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        said.append(complaint(lambda: ctx.saved_tensors)[:39])
        return g * 2 * x

    x = leaf(lib, 1, 2)
    y = _function(lib, forward, backward, clear_saved_tensors_on_access=True).apply(x)
    y.sum().backward()
    found, x.grad = x.grad.tolist(), None
    z = _function(lib, forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x)
    node = z.grad_fn
    z.sum().backward()
    return [said[0], found, complaint(lambda: node.saved_tensors)]


@both([[1], 5, 7, True, True, "Fn", True, True, [3, 4]])
def a_functions_node_is_its_context(lib: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.a = [1]
        ctx.save_for_backward(x)
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        ctx.b = 5
        return g * ctx.saved_tensors[0]

    fn, x = _function(lib, forward, backward), leaf(lib, 3, 4)
    y = fn.apply(x)
    node = y.grad_fn
    node.c = 7
    kept = node.saved_tensors[0] is x
    pulled = fn.backward(node, lib.ones(2, dtype=lib.float64)).tolist()
    y.sum().backward()
    own = [isinstance(node, fn._backward_cls), node.needs_input_grad == (True,)]
    return [node.a, node.b, node.c, kept, node is y.grad_fn, node._forward_cls.__name__, *own, pulled]


@both([(True, False, True), None])
def needs_input_grad_under_no_grad(lib: Any) -> Any:
    seen: list[Any] = []
    x = leaf(lib, 1)
    fn = _function(lib, lambda ctx, _x, _k, _w: seen.append(ctx.needs_input_grad), lambda _, g: g)
    with lib.no_grad():
        found = fn.apply(x, 2, x)
    return [seen[0], found]


# --- edges, depth, versions ---


@both(
    [["GradientEdge", True, 0], [[3, 4]], [[6, 8]], [2, 2], [10, 10], "It is not possible to get the gradient edge for"]
)
def gradient_edges(lib: Any) -> Any:
    graph, x = lib.autograd.graph, leaf(lib, 3, 4)
    y = x * 2
    z = (y * y / 4).sum()
    edge, start = graph.get_gradient_edge(y), graph.get_gradient_edge(x)
    found = [[type(edge).__name__, edge.node is y.grad_fn, edge.output_nr]]
    found.append([one.tolist() for one in lib.autograd.grad(z, [edge], retain_graph=True)])
    found.append([one.tolist() for one in lib.autograd.grad(z, (start,), retain_graph=True)])
    ones = lib.ones(2, dtype=lib.float64)
    lib.autograd.backward([edge], [ones], retain_graph=True)
    found.append(x.grad.tolist())
    (weighted,) = lib.autograd.grad(edge, x, ones * 5, retain_graph=True)
    said = complaint(lambda: graph.get_gradient_edge(ones))
    return [*found, weighted.tolist(), said[:47]]


@both([[3, 3], [2, 2], [7, 7]])
def gradient_edges_keep_the_graph(lib: Any) -> Any:
    def multiplied() -> Any:
        fn = _function(lib, lambda _, x: (x * 2, x * 3), lambda _, a, b: a * 2 + b * 3)
        a, b = fn.apply(x)
        v = (x * 7)[1:]
        return [lib.autograd.graph.get_gradient_edge(one) for one in (b, a)], v

    x = leaf(lib, 1, 2)
    edges, v = multiplied()
    gc.collect()
    ones = lib.ones(2, dtype=lib.float64)
    found = [lib.autograd.grad(edge, x, ones, retain_graph=True)[0].tolist() for edge in edges]
    view = lib.autograd.graph.get_gradient_edge(v)
    (g,) = lib.autograd.grad(view, x, lib.ones(1, dtype=lib.float64))
    return [*found, [g.tolist()[1]] * 2]


@both([1.0, True])
def a_backward_inside_a_backward_two_hundred_deep(lib: Any) -> Any:
    return _deep(lib, 200)


def test_a_backward_inside_a_backward_two_thousand_deep() -> None:
    assert _deep(tape, 2000) == [1.0, True]


def _deep(lib: Any, depth: int) -> list[Any]:
    class Deep(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with lib.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if ctx.x >= 0:
                with lib.enable_grad():
                    Deep.apply(ctx.x).sum().backward()
            return g

    x = lib.tensor(float(depth), requires_grad=True)
    Deep.apply(x).sum().backward()
    return [x.grad.item(), lib.is_grad_enabled()]


def test_an_exception_a_hundred_backwards_deep() -> None:
    lib, x = tape, leaf(tape, 1, 2)

    def hook_of(depth: int) -> Any:
        def hook(_: Any) -> None:
            if not depth:
                raise ValueError("deep")
            with lib.enable_grad():
                y = x * 1
                y.register_hook(hook_of(depth - 1))
                loss = y.sum()
            lib.autograd.grad(loss, x)

        return hook

    y = x * 2
    y.register_hook(hook_of(100))
    with pytest.raises(ValueError, match="deep"):
        y.sum().backward()
    assert x.grad is None
    assert tape.is_grad_enabled()


@both(3)
def versions_and_threads(lib: Any) -> Any:
    x = lib.ones(2)
    before = x._version
    lib.autograd.graph.increment_version(x)
    lib.autograd.graph.increment_version([x, x])
    with lib.autograd.set_multithreading_enabled(False):
        return x._version - before


# --- the tests of all programs ---


@pytest.fixture(params=[True, False], ids=["native", "plain"])
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
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
def test_program_with_pytorch(pytorch: Outcomes, program: Program, expected: Any) -> None:
    assert pytorch(program, program.__name__) == expected
