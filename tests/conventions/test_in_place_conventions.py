"""PyTorch's conventions of in-place operations, as in test_conventions.py; and what PyTorch refuses and we run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tape
from tests.conventions import test_conventions
from tests.conventions.test_conventions import rows, run

if TYPE_CHECKING:
    from types import ModuleType

    from tests.support.pytorch_outcomes import Outcomes

# One program a line, run with both libraries; all that they leave is compared.
PROGRAMS = r"""
## operators and their names
y = x * 1; a = y; y += n; same = a is y; (y * w).sum().backward()
y = x * 1; y -= 2.; y *= x; y /= n; y.sum().backward()
y = x + 1; y **= 2; (y + 1).sum().backward()
y = x + 1; y.add_(n); y.sub_(s); y.neg_(); y.backward(n)
y = x + 1; r = y.mul_(2); same = r is y; r.sum().backward()
y = x * 1; y.add_(w[0], alpha=3); y.sub_(w[1], alpha=.5); y.backward(n)
y = x * 2; y.sin_().exp_(); del y
y = x + 0.; y.sin_(); y.sum().backward()
y = x + 0.; y.exp_(); y.backward(n)
y = x + 0.; y.sqrt_(); y.backward(n)
y = x + 0.; y.tanh_(); y.backward(n)
y = x + 0.; y.reciprocal_(); y.backward(n)
y = x + 0.; y.square_(); y.backward(n)
y = x + 0.; y.pow_(3); y.backward(n)
y = x + 0.; y.log_(); y.abs_(); y.backward(n)
y = x + 0.; y.div_(n).multiply_(s).subtract_(1); y.backward(n)
y = s * 1; y += s; y *= 2; y.backward()
n += 1; n *= 2; n -= x.detach(); n /= 4; n **= 2
i += 1; i *= 2; i -= 3; i **= 2
f *= 2  # RuntimeError: a leaf Variable that requires grad
n.mul_(f.detach())
n += i[0]; n *= i[:1]; n += b
n.add_(x); r = n.requires_grad, n.is_leaf; n.sum().backward()
n *= x; n.sum().backward()
n -= 1; n += x; n.backward(n.detach())
## part of a tensor
y = x * 1; y[0] = 5.; y.backward(n)
y = x * 1; y[1:] = 0; y.backward(n)
y = x * 1; y[...] = n; y.backward(n)
y = x * 1; y[:2] = w[0, 1:]; y.backward(n)
y = x * 1; y[-1] = s; (y * n).sum().backward()
y = x * 1; y[None] = w[:1]; (y * n).sum().backward()
y = w * 1; y[0] = x; y.backward(w.detach())
y = w * 1; y[:, 1] = x[:2]; y.backward(w.detach())
y = w * 1; y[:, ::2] = s; y.backward(w.detach())
y = w * 1; y[1, 1] = s; y.backward(w.detach())
y = w * 1; y[..., 0] = y[..., 1].detach(); y.backward(w.detach())
y = x * 1; y[0:2] = torch.ones(1, 2); y.backward(n)
y = x * 1; y[0] = torch.ones(1); y.backward(n)
y = x * 1; y[5:] = 1.; y.backward(n)
y = x * 1; y[1:2] += s; (y * n).sum().backward()
y = x * 1; y[1:] *= n[1:]; (y * n).sum().backward()
y = x * 1; y[0] += 1; y[2] -= x[0]; (y * n).sum().backward()
n[0] = x[1]; r = n.requires_grad; n.sum().backward()
n[1:] += x[1:]; (n * 2).sum().backward()
z0 = torch.zeros(3); z0[0] = s; z0[1] = s * s; z0[2] = 3.; (z0 * x).sum().backward()
i[0] = 7; i[1:] = i[:1]; i += i
b[0] = True; b[1:] = False
n[0] = i[0]; n[1] = True
i[0] = 2.9
## by integers and masks
y = x * 1; y[[0, 2]] = 0.; y.backward(n)
y = x * 1; y[torch.tensor([2, 0])] = w[0, :2]; y.backward(n)
y = x * 1; y[i] = s; y.backward(n)
y = x * 1; y[b] = 0.; y.backward(n)
y = x * 1; y[x > 1.5] = s; y.backward(n)
y = x * 1; y[b] = n[:2]; y.backward(n)
y = x * 1; y[b] += s; y.backward(n)
y = x * 1; y[[0, 1]] *= n[1:]; y.backward(n)
y = w * 1; y[[0, 1], [2, 0]] = x[:2]; y.backward(w.detach())
y = w * 1; y[w > 1] = 0.; y.backward(w.detach())
y = w * 1; y[:, [0, 2]] = s; y.backward(w.detach())
y = w * 1; y[[1]] = x; y.backward(w.detach())
y = w * 1; y[0, [1, 2]] = x[1:]; y.backward(w.detach())
y = x * 1; y[[-1]] = 5.; y.backward(n)
y = x * 1; y[[]] = 5.; y.backward(n)
y = x * 1; y[np.array([1, 0])] = 5.; y.backward(n)
y = x * 1; y[torch.tensor([True, False, False])] = torch.ones(1); y.backward(n)
y = x * 1; y[torch.tensor([0, 1])] = torch.ones(1, 2); y.backward(n)
g = x[[0, 2, 0]]; g.backward(n)
g = x[b]; g.sum().backward()
g = w[[0, 1], [1, 2]]; (g * g).sum().backward()
g = w[:, i]; (g * g).sum().backward()
g = w[b[:2]]; g.sum().backward()
g = x[torch.tensor([False, False, False])]; g.sum().backward()
## methods
y = x * 1; y.copy_(n); y.backward(n)
y = x * 1; y.copy_(w[0]); y.backward(n)
y = x * 1; y.copy_(s); y.backward(n)
y = w * 1; y.copy_(x); y.backward(w.detach())
y = x * 1; y.fill_(2); y.backward(n)
y = x * 1; y.fill_(s); y.backward(n)
y = x * 1; y.zero_(); y.backward(n)
y = x * 1; y[1:].zero_(); y.backward(n)
y = x * 1; y.masked_fill_(b, 4.); y.backward(n)
y = x * 1; y.masked_fill_(b, s); y.backward(n)
y = w * 1; y.masked_fill_(b, 0.); y.backward(w.detach())
y = x.masked_fill(b, 4.); y.backward(n)
y = x * 1; y.index_put_((i,), n[:2]); y.backward(n)
y = x * 1; y.index_put_((i,), s); y.backward(n)
y = x * 1; y.index_put_((i,), w[0, :2], accumulate=True); y.backward(n)
y = x * 1; y.index_put_((torch.tensor([1, 1]),), w[0, :2], accumulate=True); y.backward(n)
y = w * 1; y.index_put_((torch.tensor([1, 0]), i), x[:2]); y.backward(w.detach())
y = x * 1; y.index_put_([i], n[:2]); y.backward(n)
r = n.copy_(x.detach()) is n, n.fill_(1) is n, n.zero_() is n, n.masked_fill_(b, 2.) is n
r = n.index_put_((i,), torch.ones(2)) is n
n.copy_(i[0]); i.copy_(torch.tensor([1.7, 2.2]))
n.copy_(f.detach()); v = n.dtype
n.copy_(f); n.backward(n.detach())
f2 = f * 1; f2.copy_(x); f2.backward(f2.detach())
f2 = f * 1; f2 += x; f2.backward(f2.detach())
## through views, of views
y = x * 1; v = y[1:]; v *= 2; y.backward(n)
y = x * 1; v = y[1:]; v[0] = s; r = v * 1; y.backward(n)
y = x * 1; v = y[1:]; y += 1; r = v * 2; (v * n[1:]).sum().backward()
y = w * 1; v = y.T; v[0] = 0.; y.backward(w.detach())
y = w * 1; v = y.T[1:]; v += s; y.backward(w.detach())
y = w * 1; v = y.view(6); v[::2] = 0.; y.backward(w.detach())
y = w * 1; v = y.reshape(3, 2); v[:, 0] = x; y.backward(w.detach())
y = w * 1; v = y.unsqueeze(1).squeeze(1)[0]; v.copy_(x); y.backward(w.detach())
y = w * 1; v = y.flatten()[1:5].view(2, 2); v.mul_(n[:2]); y.backward(w.detach())
y = x * 1; v = y[1:]; u = v[1:]; u += s; r = v * 2; r.sum().backward()
y = x * 1; v = y[1:]; u = v[1:]; y[2] = s; u.backward(n[:1])
y = n * 1; v = y[1:]; v += x[1:]; r = y.requires_grad, v.requires_grad; y.backward(n)
y = n * 1; v = y[1:]; y[0] = s; r = v.requires_grad; v.sum().backward()
y = n * 1; v = y[1:]; y *= x; r = v.requires_grad, v.is_leaf; v.sum().backward()
y = n * 1; v = y[:1]; u = y[2:]; v += s; r = u.requires_grad; (u * 2).sum().backward()
m = n.numpy(); n += 1; r = m + 0
## leaves
x += 1  # RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.
x.mul_(2)  # RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.
x.zero_()  # RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.
x.copy_(n)  # RuntimeError: a leaf Variable that requires grad is being used in an in-place
x.fill_(1)  # RuntimeError: a leaf Variable that requires grad
x.masked_fill_(b, 1.)  # RuntimeError: a leaf Variable that requires grad
x.index_put_((i,), n[:2])  # RuntimeError: a leaf Variable that requires grad
x[0] = 1.  # RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation.
x[1:] += 1  # RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place
x[i] = 1.  # RuntimeError: a leaf Variable that requires grad
x[b] = 1.  # RuntimeError: leaf Variable that requires grad
v = x[1:]; v *= 2  # RuntimeError: a view of a leaf Variable that requires grad
v = w.T[0]; v.zero_()  # RuntimeError: a view of a leaf Variable that requires grad
x.add_(x)  # RuntimeError: a leaf Variable
d = x.detach(); d *= 2; (x * x).sum().backward()
x.data *= 2; (x * x).sum().backward()
x.data.zero_(); x.data[0] = 7.; (x * x).sum().backward()
d = x.data; d += 1; r = x.sum().item()
x.grad = torch.ones(3); x.grad.zero_(); x.sum().backward(); x.grad *= 2
x.sum().backward(); g = x.grad; x.grad.zero_(); x.sum().backward(); same = g is x.grad
p = torch.zeros(3).requires_grad_(); p.data.add_(n); p.sum().backward()
## errors
n[:1] += x[:2]  # RuntimeError: output with shape [1] doesn't match the broadcast shape [2]
n.add_(w)  # RuntimeError: output with shape [3] doesn't match the broadcast shape [2, 3]
y = s * 1; y += n  # RuntimeError: output with shape [] doesn't match the broadcast shape [3]
y = s * 1; y.mul_(n[:1])  # RuntimeError: output with shape [] doesn't match the broadcast shape [1]
n.copy_(torch.ones(1, 3))  # RuntimeError: output with shape [3] doesn't match the broadcast shape [1, 3]
n[:1] = torch.ones(1, 1); r = n + 0
n[0:2] = x  # RuntimeError: match
n[0] = x  # RuntimeError: [3]
n[i] = x  # RuntimeError: shape
n.copy_(torch.ones(2))  # RuntimeError: match
n.index_put_((i,), x)  # RuntimeError: shape
n.index_put_((i,), torch.ones(1, 2))  # RuntimeError: shape
n.masked_fill_(b, x)  # RuntimeError: only supports a 0-dimensional value tensor, but got tensor with 1 dimension
n.masked_fill_(i, 1.)  # RuntimeError: bool
n.masked_fill_(b[:2], 1.)  # RuntimeError: size
n.fill_(n)  # RuntimeError: fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions.
n[5] = 1.  # IndexError: index 5 is out of bounds for dimension 0 with size 3
n[[5, 5]] = 1.  # IndexError: index 5 is out of bounds for dimension 0 with size 3
n[0, 0] = 1.  # IndexError: too many indices for tensor of dimension 1
n[torch.tensor([True, False])] = 1.  # IndexError
n[torch.tensor([.5])] = 1.  # IndexError: tensors used as indices must be
s.detach()[0] = 1.  # IndexError
n.expand(2, 3).add_(1)  # RuntimeError: refers to a single memory location. Please clone() the tensor before
(x * 1).expand(2, 3).copy_(w)  # RuntimeError: unsupported operation: more than one element of the written-to tensor
e = (x * 1).expand(2, 3); e *= 2  # RuntimeError: unsupported operation: more than one element
y = s * 1; e = y.expand(3); e[:2] = n[:2]  # RuntimeError: unsupported operation: more than one element
y = s * 1; e = y.expand(3); e[1] = 7.; r = e * 1
y = x * 1; e = y.expand(2, 3); e[1] = n; r = e * 1; r.sum().backward()
## _version
k = [n._version]; n += 1; k.append(n._version); n[0] = 1; k.append(n._version); n.zero_(); k.append(n._version)
n.add_(1).mul_(2); k = n._version
n[1:] += 1; k = n._version
n[1:].mul_(2); k = n._version
n[i] += 1; k = n._version
n[i] = 1.; n[b] = 2.; k = n._version
n.masked_fill_(b, 1.); n.index_put_((i,), torch.ones(2)); n.copy_(n + 1); n.fill_(1); k = n._version
v = n[1:]; k = [v._version]; n += 1; k.append(v._version); v += 1; k += [n._version, v._version]
d = n.detach(); d += 1; k = n._version, d._version; n += 1; k += (d._version,)
d = n.data; d += 1; k = n._version, d._version
y = x * 1; k = [y._version]; y += 1; y[0] = 1.; k.append(y._version); v = y[0]; k.append(v._version)
y = n + 1; n += 1; k = y._version
c = n.clone(); n += 1; k = c._version
a = n + 0; a[5:] = 1.; k = a._version
## who keeps what
a = x * 2; a.retain_grad(); a *= 3; (a + 1).sum().backward()
a = x + 2; a.retain_grad(); a[0] = 7.; (a + n).sum().backward()
a = x + 2; a *= 3; a.retain_grad(); a += 1; a.backward(n)
a = x + 2; g = torch.autograd.grad(a.add_(1).sum(), a)
a = x + 2; y = a + 1; a.add_(1); g = torch.autograd.grad((y + a).sum(), a)
a = x + 2; y = a + 1; a.add_(1); g = torch.autograd.grad((y + a).sum(), x)
a = x + 2; y = a + 1; a[0] = 5.; (y + a).sum().backward(inputs=[a])
y = (x * x).sum(); y += 1; y.backward(); y.backward()  # RuntimeError: a second time
y = x + 1; y += 1; y.sum().backward(); y.sum().backward()
y = x + 1; y *= 2; y.sum().backward(); y.sum().backward()  # RuntimeError: a second time
y = x * x; y += 1; y.sum().backward(retain_graph=True); y.sum().backward()
n += x; n.requires_grad_(False)  # RuntimeError: only change requires_grad flags of leaf
n += x; n.requires_grad_(); r = n.is_leaf
r = (n.add_(1)).grad_fn, n.requires_grad
"""

BLOCKS = """
with torch.no_grad():
    x += 1
(x * x).sum().backward()

with torch.no_grad():
    x[0] = 5.; x[1:] *= 2; x[i] = 4.
k = x._version, x.is_leaf, x.requires_grad; (x * x).sum().backward()

with torch.no_grad():
    v = x[1:]; v.zero_()
r = x * 1; del v

y = x * 1
with torch.no_grad():
    y *= 3
r = y.requires_grad; (y * 2).sum().backward()

y = x + 1
with torch.no_grad():
    y[0] = 7.; y += x
(y * n).sum().backward()

with torch.no_grad():
    n *= x; n[0] = s
r = n.requires_grad

losses = []
for _ in range(3):
    loss = ((x - n) ** 2).sum(); loss.backward(); losses.append(loss.item())
    with torch.no_grad():
        x -= 0.1 * x.grad
        x.grad.zero_()

p = torch.zeros(4)
for k in range(3):
    p[k + 1] = p[k] + x[k]
p[3].backward()

p = torch.zeros(3)
for k, one in enumerate(x):
    p[k] = one * 2
(p * n).sum().backward()

y = x * 1
try:
    y += torch.ones(2)
except RuntimeError:
    k = y._version
y.sum().backward()

y = x + 1
for _ in range(3):
    y[1:] += s
    y *= 1.
(y * n).sum().backward()

u = x + 0.
for _ in range(3):
    u[1:-1] += 0.1 * (u[2:] - u[1:-1] * 2 + u[:-2])
u.sum().backward()

d = (x * 1).detach(); d += 1; d.requires_grad_(); (d * x).sum().backward()

q = n.requires_grad_(); c = q * 2; c[0] = q[1]; c.sum().backward()
"""

# (program, what holds after it); PyTorch raises "modified by an inplace operation", or refuses otherwise.
REFUSED = [
    ("y = x * 1; z = y * y; y *= 3; (z + y).sum().backward()", "x.grad.tolist() == [5, 7, 9]"),
    ("y = x * 1; z = y.exp(); z += 1; z.sum().backward()", "np.allclose(x.grad.numpy(), np.exp([1, 2, 3]))"),
    ("y = x * 1; z = y * y; y[1:] = 0.; z.sum().backward()", "x.grad.tolist() == [2, 4, 6]"),
    ("y = x * 1; z = y[1:] * 2 * y[:2]; y.zero_(); z.sum().backward()", "x.grad.tolist() == [4, 8, 4]"),
    ("y = x * 1; y *= y; y *= y; y.sum().backward()", "x.grad.tolist() == [4, 32, 108]"),
    ("y = x * 1; y[1:] *= y[:-1]; y.sum().backward()", "x.grad.tolist() == [3, 4, 2]"),
    ("y = x * 1; y[1:] = y[:-1] * y[1:]; y.sum().backward()", "x.grad.tolist() == [3, 4, 2]"),
    ("y = x.sin(); v = y[:2]; z = v * v; y.fill_(1.); z.backward(n[:2])", "x.grad[2].item() == 0"),
    ("y = x * 1; m = y.max(); y.zero_(); m.backward()", "x.grad.tolist() == [0, 0, 1]"),
    ("y = w * 1; z = y @ x; y += 1; z.sum().backward()", "w.grad.tolist() == [[1, 2, 3]] * 2"),
    ("y = x * 1; z = y / n; n += 1; z.sum().backward()", "x.grad.tolist() == [.25, .5, 2]"),
    ("z = x * n; n[0] = 100.; z.sum().backward()", "x.grad.tolist() == [4, 2, .5]"),
    ("z = x * n.detach(); n.zero_(); z.sum().backward()", "x.grad.tolist() == [4, 2, .5]"),
    ("y = x * 1; z = y ** 2; d = y.detach(); d.zero_(); z.sum().backward()", "x.grad.tolist() == [2, 4, 6]"),
    ("y = x * 1; z = y ** 2; d = y.data; d.zero_(); z.sum().backward()", "x.grad.tolist() == [2, 4, 6]"),
    ("z = x * x\nwith torch.no_grad(): x.zero_()\nz.sum().backward()", "x.grad.tolist() == [2, 4, 6]"),
    ("y = x * 1; a, c, d = y; a *= 2; y.sum().backward()", "x.grad.tolist() == [2, 1, 1]"),
    ("y = x * 1\nfor row in y: row *= row\ny.sum().backward()", "x.grad.tolist() == [2, 4, 6]"),
    (
        "p = torch.zeros(3, 2)\nfor k, row in enumerate(p): row += x[k]\np.sum().backward()",
        "x.grad.tolist() == [2, 2, 2]",
    ),
    ("y = x + 1; y[0] = 2.; y.sum().backward(); y.sum().backward()", "x.grad.tolist() == [0, 2, 2]"),
    (
        "v = torch.tensor([5., 6.], requires_grad=True); y = x * 1; y[[0, 0]] = v; r = y.tolist(); y.sum().backward()",
        "v.grad.tolist() == [0, 1] and r == [6, 2, 3]",
    ),
    (
        "y = x * 1\nwith torch.no_grad(): v = y[1:]\nv *= 2; y.sum().backward()",
        "x.grad.tolist() == [1, 2, 2]",
    ),
    (
        "p = torch.ones(4) * s\nfor k in range(3): p[k + 1] = p[k] * p[k + 1]\np[3].backward()",
        "s.grad.item() == 4 * 2 ** 3",
    ),
    (
        "u = x * 1\nfor _ in range(2): u[1:] *= u[:-1]\nu.sum().backward()",
        "x.grad.tolist() == [17, 13, 4]",
    ),
]


def check(pytorch: Outcomes, program: str) -> None:
    """Run a program with both; a write is one node here, whatever its name in PyTorch."""
    found = test_conventions.check(pytorch, program)
    assert [one for one in found if "grad_fn" not in one or "None" in one] == []


@pytest.mark.parametrize("program", rows(PROGRAMS))
def test_program(pytorch: Outcomes, program: str) -> None:
    check(pytorch, program)


@pytest.mark.parametrize("program", BLOCKS.strip().split("\n\n"))
def test_block(pytorch: Outcomes, program: str) -> None:
    check(pytorch, program)


@pytest.mark.parametrize(("program", "holds"), REFUSED)
def test_what_pytorch_refuses(pytorch: Outcomes, program: str, holds: str) -> None:
    ours, complaints = run(tape, program)
    assert complaints == []
    assert eval(holds, ours), {name: ours[name].grad for name in ("x", "w", "s")}  # noqa: S307 (from the table above)

    def refuses(torch: ModuleType) -> bool:
        theirs, complaints = run(torch, program)
        return bool(complaints) or not eval(holds, theirs)  # noqa: S307

    assert pytorch(refuses, program), "PyTorch does the same"
