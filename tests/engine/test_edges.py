"""Nodes and their edges: names and order are PyTorch's, and a freeing backward leaves them in small graphs."""

import gc
import weakref
from typing import Any

import pytest

import tape

pytestmark = pytest.mark.quick

EDGES = """
2 * b -> Mul(b, -)
b * 2 -> Mul(b, -)
c * b -> Mul(-, b)
s * b -> Mul(s, b)
b + 1 -> Add(b, -)
1 + b -> Add(b, -)
b - 1 -> Sub(b, -)
1 - b -> Rsub(b)
b / 2 -> Div(b, -)
1 / b -> Mul(Reciprocal(b), -)
3 / (b + 1) -> Mul(Reciprocal(Add(b, -)), -)
c / b -> Div(-, b)
2**b -> Pow(b)
b**2 -> Pow(b)
b**c -> Pow(b, -)
b % 2 -> Remainder(b)
b.fmod(2.0) -> Fmod(b)
b.clamp(0, 1) -> Clamp(b)
b.nan_to_num() -> NanToNum(b)
tape.lerp(b, c, 0.5) -> Lerp(b, -)
tape.where(b > 1, b, 0.0) -> Where(b, -)
tape.where(b > 1, 0.0, b) -> Where(-, b)
tape.where(b > 1, b, c) -> Where(b, -)
b.gather(0, i) -> Gather(b)
A.take_along_dim(i[:, None], 1) -> Gather(A)
b.index_select(0, i) -> IndexSelect(b)
A.take(i) -> Take(A)
b.masked_select(b > 1) -> MaskedSelect(b)
b[i] -> Index(b)
b.repeat(2) -> Repeat(b)
b.repeat(2, 3) -> Repeat(b)
(2 * A).repeat(2, 2) -> Repeat(Mul(A, -))
A.t().repeat(1, 2) -> Repeat(T(A))
tape.tile(b, (2,)) -> Repeat(b)
b.flip(0) -> Flip(b)
b.view(2, 1).flip(0) -> Flip(View(b))
0.5 * ((A @ b - c) ** 2).mean() -> Mul(Mean(Pow(Sub(Mv(A, b), -))), -)
"""


def told(node: Any, names: dict[Any, str]) -> str:
    """Return a node with its edges, without the ends of names."""
    if node is None or node in names:
        return "-" if node is None else names[node]
    edges = ", ".join(told(after, names) for after, _ in node.next_functions)
    return f"{node.name().partition('Backward')[0]}({edges})"


def leaves() -> tuple[dict[str, Any], dict[Any, str]]:
    """Return names for expressions, and those of the leaves among them by node."""
    b, s = tape.tensor([1.0, 2.0], requires_grad=True), tape.tensor(2.0, requires_grad=True)
    known: dict[str, Any] = {"b": b, "s": s, "A": tape.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)}
    names = {x._slot: name for name, x in known.items()}
    return known | {"c": tape.tensor([1.0, 2.0]), "i": tape.tensor([0, 1]), "tape": tape}, names


@pytest.mark.parametrize("line", EDGES.strip().splitlines())
def test_names_and_order_are_pytorchs(line: str) -> None:
    expression, _, wanted = line.partition(" -> ")
    known, names = leaves()
    for _ in range(3):  # native code makes the last calls
        y = eval(expression, known)  # noqa: S307
        assert told(y.grad_fn, names) == wanted
    y.sum().backward()
    assert told(y.grad_fn, names) == wanted


def test_a_freed_graph_shows_names_and_edges_and_no_values() -> None:
    known, names = leaves()
    b = known["b"]
    y = (2 * b).exp()
    z = y.sum() / 3
    z.backward()
    assert told(z.grad_fn, names) == "Div(Sum(Exp(Mul(b, -))), -)"
    assert told(y.grad_fn, names) == "Exp(Mul(b, -))"
    assert z.grad_fn.next_functions[0][0].next_functions[0][0] is y.grad_fn
    with pytest.raises(tape.errors.GradError, match="second time"):
        _ = y.grad_fn._saved_result
    with pytest.raises(tape.errors.GradError, match="second time"):
        z.backward()
    (g,) = tape.autograd.grad((b * b).sum(), b)
    w = (b * b).sum()
    tape.autograd.grad(w, b)
    assert g.tolist() == [2.0, 4.0]
    assert told(w.grad_fn, names) == "Sum(Mul(b, b))"
    with tape.no_grad():
        loss, aux = tape.stack([b.sum()]), tape.max(b, 0)
    del loss, aux
    values, places = known["A"].max(1)
    values.sum().backward()
    assert told(values.grad_fn, names).endswith("(A)")
    assert places.grad_fn is None


def test_what_is_kept_of_freed_graphs_keeps_nothing_alive() -> None:
    x = tape.ones(3, requires_grad=True)
    leaf, array = weakref.ref(x), x.detach().numpy()
    held = weakref.ref(array)
    y = x * 2
    y.sum().backward()
    del array
    gradient = weakref.ref(x.grad)
    del x
    gc.collect()
    assert (leaf(), held(), gradient()) == (None, None, None)
    assert y.grad_fn.next_functions == ((None, 0), (None, 0))  # PyTorch would keep the leaf


def test_hooks_after_a_node_see_gradients_in_the_order_of_edges() -> None:
    b, seen = tape.tensor([1.0, 2.0], requires_grad=True), []
    y = 2 * b
    y.grad_fn.register_hook(lambda inputs, _: seen.append([g if g is None else g.tolist() for g in inputs]))
    y.grad_fn.register_hook(lambda inputs, _: (inputs[0] * 10, None))
    y.sum().backward()
    assert seen == [[[2.0, 2.0], None]]
    assert b.grad.tolist() == [20.0, 20.0]
    for z in (2 / b, b.flip(0), b.repeat(2)):
        with pytest.raises(NotImplementedError, match="hook the tensors around it"):
            z.grad_fn.register_hook(print)


def test_what_was_saved_is_listed() -> None:
    b = tape.tensor([1.0, 2.0], requires_grad=True)
    saved = [[n for n in dir(y.grad_fn) if n.startswith("_saved_")] for y in (b * b, b.exp(), b + 1)]
    assert saved == [["_saved_other", "_saved_self"], ["_saved_result"], []]
    assert (b.exp().grad_fn._saved_result == b.exp()).all()


def test_graphs_of_later_backwards_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape.engine.nodes._left", [0])
    x = tape.ones(2, requires_grad=True)
    y, z = (x * 2).sum(), (x * 2).sum()
    swept(y)
    z.backward()
    assert z.grad_fn.next_functions[0][0].next_functions[0][0] is x._slot  # this code names edges
    with pytest.raises(tape.errors.GradError, match="retain_graph=True"):
        _ = y.grad_fn.next_functions


def swept(y: Any) -> None:
    y.backward()
