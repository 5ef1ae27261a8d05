"""PyTorch's introductions to autograd with only their import lines changed.

Each function is a script as the introductions have it; the text beside it is what PyTorch 2.13
prints for it under `set_default_dtype(float64)`, with addresses removed and its module called
`tape`.
"""
# ruff: noqa: N806, T201 (matrices have capital letters there, and scripts print)

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

import pytest

import tape as torch
from tape.autograd import Variable
from tape.recording.record import recorded

if TYPE_CHECKING:
    from collections.abc import Callable


def what_requires_grad() -> None:
    """See one input that requires grad suffice."""
    x = torch.randn(3, 3)
    y = torch.randn(3, 3)
    z = torch.randn((3, 3), requires_grad=True)
    a = x + y
    print(a.requires_grad)
    b = a + z
    print(b.requires_grad)
    print(x.requires_grad, z.requires_grad, a.is_leaf, b.is_leaf, z.is_leaf)
    print(b.shape, b.size(), b.dtype == torch.float64)


WHAT_REQUIRES_GRAD = """
False
True
False True True False True
tape.Size([3, 3]) tape.Size([3, 3]) True
"""


def the_tour() -> None:
    """Look at all of e = a * b + log(d) * c before backward, and after one, two and three."""
    a = torch.tensor([2.0], requires_grad=True)
    b = torch.tensor([3.0], requires_grad=True)
    c = torch.tensor([5.0], requires_grad=True)
    d = torch.tensor([10.0], requires_grad=True)
    u = a * b
    t = torch.log(d)
    v = t * c
    t.retain_grad()
    e = u + v

    names = ["a", "b", "c", "d", "u", "t", "v", "e"]
    tensors = [a, b, c, d, u, t, v, e]

    print(e, t)
    for name, tensor in zip(names, tensors, strict=True):
        print(f"{name}: leaf {tensor.is_leaf}, grad_fn {tensor.grad_fn}, grad {tensor.grad}")
    e.backward(retain_graph=True)
    for name, tensor in zip(names, tensors, strict=True):
        print(f"{name}: grad {tensor.grad}")

    e.backward()
    print(a.grad)
    try:
        e.backward()
    except RuntimeError as error:
        print(str(error).split(" (")[0])


THE_TOUR = """
tensor([17.5129], grad_fn=<AddBackward0>) tensor([2.3026], grad_fn=<LogBackward0>)
a: leaf True, grad_fn None, grad None
b: leaf True, grad_fn None, grad None
c: leaf True, grad_fn None, grad None
d: leaf True, grad_fn None, grad None
u: leaf False, grad_fn <MulBackward0 object>, grad None
t: leaf False, grad_fn <LogBackward0 object>, grad None
v: leaf False, grad_fn <MulBackward0 object>, grad None
e: leaf False, grad_fn <AddBackward0 object>, grad None
a: grad tensor([3.])
b: grad tensor([2.])
c: grad tensor([2.3026])
d: grad tensor([0.5000])
u: grad None
t: grad tensor([5.])
v: grad None
e: grad None
tensor([6.])
Trying to backward through the graph a second time
"""


def two_lines_and_a_sum() -> None:
    """Differentiate a sum of affine functions."""
    x = torch.randn([3, 3], requires_grad=True)
    y = 2 * x + 3
    print(y.grad_fn, repr(y).endswith("]], grad_fn=<AddBackward0>)"))
    z = 4 * y - 1
    print(z.grad_fn, z.requires_grad)
    z.sum().backward()
    print(x.grad)
    print(x.grad.shape, x.grad.requires_grad, x.grad.grad_fn)


TWO_LINES_AND_A_SUM = """
<AddBackward0 object> True
<SubBackward0 object> True
tensor([[8., 8., 8.],
        [8., 8., 8.],
        [8., 8., 8.]])
tape.Size([3, 3]) False None
"""


def variables() -> None:
    """Write a linear layer by hand, as in the days when a tensor had to be wrapped."""
    X = Variable(torch.Tensor([[2, 2], [2, 2]]), requires_grad=True)
    W = Variable(torch.Tensor([[0.5, 0.5], [0.5, 0.5]]), requires_grad=True)
    b = Variable(torch.Tensor([4]), requires_grad=True)
    Y = torch.add(torch.mm(X, W), b)
    print(X)
    print(Y)
    print(torch.max(Y + 5, 0))
    values, indices = torch.max(Y + 5, 0)
    print(values, indices)
    print(Y.data)
    Y.backward(torch.Tensor([[1, 1], [1, 1]]))
    print(W.grad)
    print(X.grad)
    print(b.grad)


VARIABLES = """
tensor([[2., 2.],
        [2., 2.]], requires_grad=True)
tensor([[6., 6.],
        [6., 6.]], grad_fn=<AddBackward0>)
tape.return_types.max(
values=tensor([11., 11.], grad_fn=<MaxBackward0>),
indices=tensor([0, 0]))
tensor([11., 11.], grad_fn=<MaxBackward0>) tensor([0, 0])
tensor([[6., 6.],
        [6., 6.]])
tensor([[4., 4.],
        [4., 4.]])
tensor([[1., 1.],
        [1., 1.]])
tensor([4.])
"""


def without_gradients() -> None:
    """Use the gradient modes as context managers and as decorators."""
    x = torch.tensor([1.0], requires_grad=True)
    with torch.no_grad():
        y = x * 2
    print(y.requires_grad, y.grad_fn, y)

    @torch.no_grad()
    def doubler(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    print(doubler(x).requires_grad, doubler.__name__)

    @torch.no_grad
    def tripler(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            kept = x * 3
        return kept + x * 0, kept

    print(tripler(x))
    with torch.set_grad_enabled(False):
        print(torch.is_grad_enabled(), (x * 2).requires_grad)
    print(torch.is_grad_enabled(), (x * 2).requires_grad)


WITHOUT_GRADIENTS = """
False None tensor([2.])
False doubler
(tensor([3.]), tensor([3.], grad_fn=<MulBackward0>))
False False
True True
"""


def as_long_as_it_takes() -> None:
    """Let values decide how long a loop runs."""
    x = torch.tensor([0.5, -1.5, 2.0], requires_grad=True)
    y = x * 2
    rounds = 0
    while (y * y).sum() < 1e6:
        y = y * 2
        rounds += 1
    print(rounds, y)
    y.backward(torch.tensor([0.1, 1.0, 0.0001]))
    print(x.grad)


AS_LONG_AS_IT_TAKES = """
8 tensor([ 256., -768., 1024.], grad_fn=<MulBackward0>)
tensor([5.1200e+01, 5.1200e+02, 5.1200e-02])
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (what_requires_grad, WHAT_REQUIRES_GRAD),
        (the_tour, THE_TOUR),
        (two_lines_and_a_sum, TWO_LINES_AND_A_SUM),
        (variables, VARIABLES),
        (without_gradients, WITHOUT_GRADIENTS),
        (as_long_as_it_takes, AS_LONG_AS_IT_TAKES),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_prints_what_pytorch_prints(
    script: Callable[[], None], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a")
        script()
    assert re.sub(" at 0x[0-9a-fA-F]+>", ">", capsys.readouterr().out) == printed.lstrip("\n")


def test_the_tour_warns_of_the_gradients_that_are_never_filled() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        the_tour()
    messages = [str(one.message) for one in caught]
    assert len(messages) == len("uve") * 2
    assert all("not a leaf" in message and ".retain_grad()" in message for message in messages)


def test_without_gradients_nothing_is_recorded() -> None:
    x = torch.tensor([1.0], requires_grad=True)

    @torch.no_grad()
    def doubler(x: torch.Tensor) -> torch.Tensor:
        return torch.log(x * 2).sum()

    before = recorded()
    with torch.no_grad():
        unwanted = [x * 2, torch.log(x), x[0], doubler(x)]
    unwanted.append(doubler(x))
    assert recorded() == before
    wanted = x * 2
    assert recorded() == before + 1
    assert [t.requires_grad for t in [*unwanted, wanted]] == [False] * 5 + [True]
