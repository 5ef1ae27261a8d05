"""autograd.Function: the same programs run with PyTorch and with us, and what only a tape can get wrong."""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
import scipy.linalg
import scipy.special

import tape
from kernels.programs.program import ProgramError
from kernels.sweeps import reverse
from tape.autograd import Function
from tape.recording.record import recorded
from tape.tensors import modes
from tests.conventions.test_conventions import LEAVES, check, rows
from tests.robustness.test_lifetime import held, peak
from tests.support.pytorch_outcomes import LIBRARIES, Outcomes, our_settings

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 100_000  # elements: 800 kB

FUNCTIONS = '''
Function, grad, backward = torch.autograd.Function, torch.autograd.grad, torch.autograd.backward
once_differentiable = torch.autograd.function.once_differentiable
log = []

class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g

class Product(Function):
    """The second form; each gradient only if it is needed."""

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        log.append(ctx.needs_input_grad)
        return g * b if ctx.needs_input_grad[0] else None, g * a if ctx.needs_input_grad[1] else None

class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * y

class Cube(Function):
    """Saves what is neither an input nor an output, and nothing."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(square, None, x)
        return square * x

    @staticmethod
    def backward(ctx, g):
        square, nothing, x = ctx.saved_tensors
        log.append(nothing)
        return 3 * square * g

class Scale(Function):
    """A number, a text and a list among the arguments; attributes on ctx."""

    @staticmethod
    def forward(ctx, k, x, how, more):
        ctx.k, ctx.how, ctx.more = k, how, more
        return x * k

    @staticmethod
    def backward(ctx, g):
        log.append((ctx.how, ctx.more))
        return None, g * ctx.k, None, None

class Both(Function):
    """Two results, both saved; the sine's cotangent times the cosine and the other way."""

    @staticmethod
    def forward(ctx, x):
        s, c = torch.sin(x), torch.cos(x)
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx, gs, gc):
        s, c = ctx.saved_tensors
        log.append((gs, gc))
        return gs * c - gc * s

class Quiet(Function):
    """Two results; the cotangent of one that is unused arrives as None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, ga, gb):
        log.append((ga, gb))
        return (0 if ga is None else ga * 2) + (0 if gb is None else gb * 3)

class Double(Function):
    """In place."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2

class Ranked(Function):
    """Values that have a gradient, and ranks that have none: integers, and floats marked so."""

    @staticmethod
    def forward(ctx, x, y):
        first = x > y
        where = first * 1.0
        ctx.mark_non_differentiable(where, first)
        ctx.save_for_backward(where)
        return torch.where(first, x, y), where, first

    @staticmethod
    def backward(ctx, g, *rest):
        where, = ctx.saved_tensors
        log.append(rest)
        return g * where, g * (1 - where)

class Nothing(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return None, g

class Wide(Function):
    """Its gradient has the shape of the result, not of the argument."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return g * 1, g * 2

class Vjp(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def vjp(ctx, g):
        return g * 2

class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, = ctx.saved_tensors
        log.append((torch.is_grad_enabled(), g.requires_grad))
        return 2 * x * g

class Same(Function):
    """Gives its argument back."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3

class Tail(Function):
    """Gives a view back."""

    @staticmethod
    def forward(ctx, x):
        return x[1:]

    @staticmethod
    def backward(ctx, g):
        return torch.cat([torch.zeros(1), g])

class Any(Function):
    """Returns what it is told to."""

    @staticmethod
    def forward(ctx, gradient, *xs):
        ctx.gradient = gradient
        return xs[0] * 2

    @staticmethod
    def backward(ctx, g):
        return ctx.gradient

class Child(Square):
    @staticmethod
    def backward(ctx, g):
        return Square.backward(ctx, g) * 10

class Stopped(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if log:
            raise ValueError("not now")
        return g * 2
'''

# One program a line, or more with indentation; `log` is what the functions heard.
PROGRAMS = r"""
## values and gradients
y = Square.apply(x); y.backward(n)
y = Square.apply(x[1:] * 2); (y * n[1:]).sum().backward()
y = Square.apply(w.T); y.sum().backward()
y = Square.apply(s); y.backward()
y = Square.apply(s * 2 + 1); (y * y).backward()
y = Square.apply(f); y.backward(torch.ones(3, dtype=torch.float32))
y = Square.apply(x.expand(2, 3)); (y * w).sum().backward()
y = Square.apply(Square.apply(x)); y.sum().backward()
y = Product.apply(x, n); y.sum().backward()
y = Product.apply(n, x); y.sum().backward()
y = Product.apply(x, x); y.backward(n)
y = Product.apply(x * 1, s); y.backward(n)
y = Product.apply(n, n); r = y.requires_grad, y.is_leaf, y.grad_fn
y = Exp.apply(x); y.backward(n)
y = Exp.apply(x); z0 = y * 2; del y; z0.sum().backward()
y = Cube.apply(x); y.backward(n)
y = Cube.apply(x * 2); y.sum().backward()
y = Child.apply(x); y.sum().backward()
y = Vjp.apply(x); y.sum().backward()
y = Scale.apply(2.5, x, "how", [1, 2]); y.sum().backward()
y = Scale.apply(n, x, None, {}); y.sum().backward()
y = Scale.apply(2, s, n, ()); y.backward()
y = Square.apply(x); r = y.grad_fn.name(); k = y.grad_fn.next_functions[0][0].name(); m = len(y.grad_fn.next_functions)
y = Product.apply(x, n); r = len(y.grad_fn.next_functions); k = y.grad_fn.next_functions[1]
y = Square.apply(x * x * 1); (y + y * 2).sum().backward()
y = Same.apply(x); r = y is x; y.sum().backward()
y = Same.apply(x * 2); y.sum().backward()
y = Tail.apply(x); y.sum().backward()
y = Tail.apply(x * 2); y.backward(n[1:])
y = Nothing.apply(x, w); y.sum().backward()
y = Nothing.apply(x, s * n); y.sum().backward(); g = x.grad
y = Nothing.apply(x * 2, s * n); y.sum().backward()
y = Nothing.apply(x, n); y.sum().backward()
y = Nothing.apply(x, n); r = grad(y.sum(), x, allow_unused=True)
y = Nothing.apply(x, n); r = grad(y.sum(), x)  # RuntimeError: appears to not have been used in the graph
y = Nothing.apply(x, n); r = grad(y.sum(), x, materialize_grads=True, allow_unused=True)
y = Nothing.apply(x, x); y.sum().backward()
y = Nothing.apply(x, n) + x; y.sum().backward()
y = Wide.apply(x, w); y.backward(w.detach())
y = Wide.apply(s, w[0]); y.sum().backward()
y = Wide.apply(x[None], w); y.backward(w.detach())
## several results
a, c = Both.apply(x); (a + c * 2).sum().backward()
a, c = Both.apply(x); a.sum().backward()
a, c = Both.apply(x); c.backward(n)
a, c = Both.apply(x * 2); del a; c.sum().backward()
a, c = Both.apply(x); r = type((a, c)) is type(Both.apply(x)), a.grad_fn.name(), c.grad_fn.name()
a, c = Both.apply(x); r = grad([a.sum(), c.sum()], x)
a, c = Both.apply(x); r = grad([a, c], x, [n, n * 2])
a, c = Both.apply(x); a.sum().backward(retain_graph=True); c.sum().backward()
a, c = Both.apply(x); a.sum().backward(); c.sum().backward()  # RuntimeError: a second time
a, c = Both.apply(s); (a * c).backward()
a, c = Both.apply(n); r = a.requires_grad
a, c = Quiet.apply(x); a.sum().backward()
a, c = Quiet.apply(x); c.sum().backward()
a, c = Quiet.apply(x * 1); (a * c).sum().backward()
a, c = Quiet.apply(x); d, e = Quiet.apply(a); e.sum().backward()
a, b0, c = Ranked.apply(x, n); a.sum().backward()
a, b0, c = Ranked.apply(x, x * 2 - 1); r = b0.requires_grad, c.requires_grad, b0.grad_fn; (a * b0).sum().backward()
a, b0, c = Ranked.apply(x * 1, n); b0.sum().backward()  # RuntimeError: does not require grad
## modes
with torch.no_grad(): y = Square.apply(x)
with torch.no_grad(): y = Product.apply(x * 2, n)
y = Square.apply(x.detach()); r = y.requires_grad
y = Square.apply(n); y.sum().backward()  # RuntimeError: element 0 of tensors does not require grad
## life
y = Square.apply(x).sum(); y.backward(retain_graph=True); y.backward(retain_graph=True); y.backward()
y = Square.apply(x).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = Cube.apply(x).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = Vjp.apply(x).sum(); y.backward(); y.backward()
y = Scale.apply(2, x, 0, 0).sum(); y.backward(); y.backward()
y = Square.apply(x); v = y.sum() + y.exp().sum(); v.backward(retain_graph=True); v.backward()
y = Square.apply(x); del x; y.sum().backward()
y = Square.apply(x); u = Square.apply(w); y.sum().backward(); u.sum().backward()
## higher order
y = Square.apply(x); g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x)
y = Square.apply(x * x); g, = grad(y.sum(), x, create_graph=True); h, = grad((g * n).sum(), x)
y = Square.apply(Square.apply(x)); g, = grad(y.sum(), x, create_graph=True);
    h, = grad(g.sum(), x, create_graph=True); t, = grad(h.sum(), x)
y = Exp.apply(x); g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x, create_graph=True);
    t, = grad(h.sum(), x)
y = Exp.apply(x * 2); g, = grad((y * n).sum(), x, create_graph=True); h, = grad((g * g).sum(), x)
y = Product.apply(x, s * n); g = grad(y.sum(), [x, s], create_graph=True); h = grad(g[0].sum() + g[1], [s, x]); del g
y = Product.apply(x, x); g, = grad(y.sum(), x, create_graph=True); h, = grad((g * n).sum(), x)
a, c = Both.apply(x); g, = grad((a * n + c).sum(), x, create_graph=True);
    h, = grad((g * n).sum(), x, create_graph=True); t, = grad(h.sum(), x)
a, c = Both.apply(x); g, = grad(a.sum(), x, create_graph=True); h, = grad((g * n).sum(), x)
y = Scale.apply(3, x * x, 0, 0); g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x)
y = Vjp.apply(x * x); g, = grad((y * y).sum(), x, create_graph=True); h, = grad(g.sum(), x)
y = Square.apply(x[1:]); g, = grad(y.sum(), x, create_graph=True); h, = grad((g * n).sum(), x); g = g.detach()
y = Square.apply(w.T); g, = grad(y.sum(), w, create_graph=True); h, = grad((g * w).sum(), w); g = g.detach()
y = Cube.apply(x); g, = grad(y.sum(), x, create_graph=True)
y = Wide.apply(x * x, w); g = grad((y * y).sum(), [x, w], create_graph=True);
    h = grad(g[0].sum() + (g[1] * w).sum(), [x, w])
y = Square.apply(x); v = torch.ones(3, requires_grad=True); g, = grad(y, x, v, create_graph=True);
    h = grad(g.sum(), [x, v])
y = Square.apply(x) * 2; p = torch.ones(3, requires_grad=True); g = grad(y, x, p, create_graph=True)[0];
    (g * n).sum().backward()
y = Once.apply(x); y.sum().backward()
y = Once.apply(x); g, = grad(y.sum(), x, create_graph=True);
    h, = grad(g.sum(), x)  # RuntimeError: element 0 of tensors does not require grad
y = Once.apply(x); p = torch.ones(3, requires_grad=True); q = (grad(y, x, p, create_graph=True)[0] * p).sum();
    q.backward()  # RuntimeError: trying to differentiate twice
a, c = Quiet.apply(x * x); g, = grad(a.sum(), x, create_graph=True); h, = grad(g.sum(), x)
y = x * 1; Double.apply(y); y = y * y; g, = grad(y.sum(), x, create_graph=True); h, = grad(g.sum(), x)
## in place
y = x * 1; r = Double.apply(y); same = r is y; r.backward(n); del r, y
y = x * 3; Double.apply(y); (y * y).sum().backward(); del y
y = x * 3; v = y[1:]; Double.apply(y); (v * n[1:]).sum().backward(); del y, v
y = torch.zeros(3); y += 1; Double.apply(y); r = y.requires_grad
Double.apply(x)  # RuntimeError: a leaf Variable that requires grad
Double.apply(x[1:])  # RuntimeError: a view of a leaf Variable that requires grad
with torch.no_grad(): r = Double.apply(x * 2)
y = x * 3; Double.apply(y); Double.apply(y); y.sum().backward(); del y
## hooks
y = Square.apply(x); y.register_hook(lambda g: g * 10); y.sum().backward()
y = Square.apply(x); y.retain_grad(); (y * n).sum().backward()
y = Square.apply(x); y.register_hook(lambda g: log.append(g)); (y * n).sum().backward()
y = Square.apply(x); y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10,)); y.sum().backward()
y = Square.apply(x); y.grad_fn.register_prehook(lambda go: (go[0] * 10,)); y.sum().backward()
y = Product.apply(x, x * 2); y.grad_fn.register_hook(lambda gi, go: log.append((gi, go))); y.sum().backward()
a, c = Both.apply(x); a.register_hook(lambda g: g * 10); (a + c).sum().backward()
a, c = Both.apply(x); c.register_hook(lambda g: g * 10); a.retain_grad(); (a * 2 + c).sum().backward()
x.register_hook(lambda g: g + 1); y = Square.apply(x); y.sum().backward()
y = Square.apply(x); r = grad(y.sum(), y)
y = Square.apply(x); u = y * 2; r = grad(u.sum(), [y, x])
y = Square.apply(x * 2); y.sum().backward(inputs=[x])
a, c = Both.apply(x); r = grad((a * c).sum(), [a, c, x])
## batches
y = Square.apply(x); r = grad(y, x, torch.eye(3), is_grads_batched=True)
y = Product.apply(x * 2, s * n); r = grad(y, [x, s], torch.eye(3), is_grads_batched=True); log.clear()
y = Exp.apply(w.sum(0)); r = grad(y, w, torch.eye(3), is_grads_batched=True)
## wrong
y = Any.apply((None, torch.ones(3), None), x); y.sum().backward()
y = Any.apply((None,), x);
    y.sum().backward()  # RuntimeError: function AnyBackward returned an incorrect number of gradients (expected
    2, got 1)
y = Any.apply((None, n, n), x);
    y.sum().backward()  # RuntimeError: function AnyBackward returned an incorrect number of gradients (expected
    2, got 3)
y = Any.apply((None, n), x, w); y.sum().backward()  # RuntimeError: incorrect number of gradients (expected 3, got 2)
y = Any.apply((None, torch.ones(5)), x);
    y.sum().backward()  # RuntimeError: Function AnyBackward returned an invalid gradient at index ... - got [5]
    but expected shape compatible with [3]
y = Any.apply((None, torch.ones(2, 2)), x);
    y.sum().backward()  # RuntimeError: invalid gradient at index ... - got [2, 2] but expected shape compatible
    with [3]
y = Any.apply((None, torch.ones(1)), x);
    y.sum().backward()  # RuntimeError: invalid gradient at index ... - got [1] but expected shape compatible with [3]
y = Any.apply((n, n), x);
    y.sum().backward()  # RuntimeError: function AnyBackward returned a gradient different ... None at position 1,
    but the corresponding forward input was not a Variable
y = Any.apply((None, n.float()), x); y.sum().backward()
y = Any.apply((None, n), f); y.sum().backward()
y = Any.apply((None, torch.ones(2, 3)), x); y.sum().backward()
y = Any.apply((None, n, torch.ones(7)), x, n); y.sum().backward()
y = Any.apply((None, n.float()), x); g = grad(y.sum(), x)
r = Function.apply(x)  # NotImplementedError: You must implement the forward function for custom autograd.Function
"""

PROGRAM_BLOCKS = """
class F(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
y = F.apply(x)
y.sum().backward()  # NotImplementedError: You must implement either the backward or vjp method

class F(Function):
    @staticmethod
    def backward(ctx, g):
        return g
y = F.apply(x)  # NotImplementedError: You must implement the forward function for custom autograd.Function

class F(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2.0)
        return x * 2
y = F.apply(x)  # TypeError: save_for_backward can only save variables, but argument 0 is of type float

class F(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, [1, 2])
        return x * 2
y = F.apply(x)  # TypeError: save_for_backward can only save variables, but argument 1 is of type list

class F(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, 5, "text", None
    @staticmethod
    def backward(ctx, g, *rest):
        log.append(rest)
        return g * 2
y = F.apply(x)
y[0].sum().backward()

class F(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        log.append((torch.is_grad_enabled(), g.requires_grad))
        return g * 2
y = F.apply(x * x)
y.sum().backward(retain_graph=True)
r = grad(y.sum(), x, create_graph=True)

class F(Function):
    @staticmethod
    def forward(ctx, x):
        log.append((torch.is_grad_enabled(), x.requires_grad, (x * 2).requires_grad, ctx.needs_input_grad))
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
y = F.apply(x)
with torch.no_grad():
    u = F.apply(x)
v = F.apply(n)
log = log[0][:3]

class F(Function):
    @staticmethod
    def forward(ctx, x, y, z):
        ctx.save_for_backward(x, y, z)
        return x * y
    @staticmethod
    def backward(ctx, g):
        x, y, z = ctx.saved_tensors
        log.append((x.detach() * 1, y, z, len(ctx.saved_tensors)))
        return g * y, g * x, None
y = F.apply(x, n, i)
y.sum().backward()

class F(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_backward(x * 2)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]
y = F.apply(x)
y.sum().backward()

class F(Function):
    @staticmethod
    def forward(x, k):
        return x * k, k
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        log.append((len(inputs), len(output), output[1]))
    @staticmethod
    def backward(ctx, g, _):
        return g * ctx.k, None
y, k = F.apply(x, 4)
y.sum().backward()

class F(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        x += y
        return x
    @staticmethod
    def backward(ctx, g):
        return g, g
a = torch.zeros(3)
r = F.apply(a, x)
same = r is a
(a * n).sum().backward()
del r, a

class F(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        x.mul_(y)
        return x
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * y, None
a = w * 1
F.apply(a[0], n)
(a * a).sum().backward()
del a

class F(Function):
    @staticmethod
    def forward(ctx, x, y):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, y * x
    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 2 * 3, h * 0
a = torch.ones(3) * s
p, q = F.apply(a, x)
same = p is a
(p + q).sum().backward()
del p, a

class F(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x * y
    @staticmethod
    def backward(ctx, g):
        return g, g
y = F.apply(x * 1, x)  # RuntimeError: Some elements marked as dirty

class F(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y
    @staticmethod
    def backward(ctx, g):
        return g
y = F.apply(x)
r = y.requires_grad, y.is_leaf

class F(Function):
    @staticmethod
    def forward(ctx, x):
        return x > 2
    @staticmethod
    def backward(ctx, g):
        return g
y = F.apply(x)
r = y.requires_grad

class F(Function):
    @staticmethod
    def forward(ctx, *xs):
        ctx.count = len(xs)
        return sum(xs)
    @staticmethod
    def backward(ctx, g):
        return (g,) * ctx.count
y = F.apply(x, w, s, n)
r = y.grad_fn.name()
y.backward(w.detach())

class F(Function):
    @staticmethod
    def forward(ctx, *xs):
        ctx.count = len(xs)
        return sum(xs)
    @staticmethod
    def backward(ctx, g):
        return (g,) * ctx.count
y = F.apply(*[x * k for k in range(20)])
y.backward(n)

class F(Function):
    @staticmethod
    def forward(ctx, x):
        y = Square.apply(x)
        ctx.save_for_backward(x)
        return y * 2
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        with torch.enable_grad():
            a = x.detach().requires_grad_()
            inner, = grad(Square.apply(a).sum() * 2, a)
        return inner * g
y = F.apply(x)
y.backward(n)

class F(Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            a = x.detach().requires_grad_()
            ctx.y = (a * a * a).sum()
            ctx.a = a
        return ctx.y.detach()
    @staticmethod
    def backward(ctx, g):
        return grad(ctx.y, ctx.a)[0] * g
y = F.apply(x)
(y * 2).backward()

class F(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x if not log else None
y = F.apply(x)
y.sum().backward(retain_graph=True)
log.append(0)
y.sum().backward()

y = Stopped.apply(x)
log.append(1)
try:
    y.sum().backward()
except ValueError as error:
    text = str(error)
r = torch.is_grad_enabled(), x.grad
log.clear()
u = Stopped.apply(x)
u.sum().backward()

y = Square.apply(x)
with torch.no_grad():
    y.sum().backward() if y.sum().requires_grad else y.backward(n)

with torch.enable_grad(), torch.no_grad():
    y = Product.apply(x, w)
r = y.requires_grad

y = x
for k in range(30):
    y = Square.apply(y * .5) + Product.apply(y, n)
y.sum().backward()
"""


@pytest.fixture(params=[True, False], ids=["native", "plain"], autouse=True)
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run every test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
    return bool(request.param)


@pytest.mark.parametrize("program", rows(PROGRAMS.replace("\n    ", " ")))
def test_program(pytorch: Outcomes, program: str) -> None:
    assert check(pytorch, FUNCTIONS + program, program) == []


@pytest.mark.parametrize("program", PROGRAM_BLOCKS.strip().split("\n\n"))
def test_block(pytorch: Outcomes, program: str) -> None:
    assert check(pytorch, FUNCTIONS + program, program) == []


# What PyTorch refuses: a write to what was saved. Ours keeps the value that was saved.
WRITTEN = r"""
y = x * 3; v = Square.apply(y); y.mul_(7); v.sum().backward(); want = 18 * x
y = x * 3; v = Square.apply(y); Double.apply(y); v.sum().backward(); want = 18 * x
y = x * 3; v = Square.apply(y[1:]); y.zero_(); v.sum().backward(); want = 18 * x * (x > 1)
y = x * 3; v = Square.apply(y); y[1:] = 0.; v.sum().backward(); want = 18 * x
y = Exp.apply(x); v = y * 1; y.mul_(7); (y + v).sum().backward(); want = 8 * x.exp()
y = n * 1; v = Product.apply(x, y); y.zero_(); v.sum().backward(); want = n
y = n * 1; u = y[1:]; v = Product.apply(x[1:], u); y += 5; v.sum().backward(); want = n * (x > 1)
v = Square.apply(x); g0 = torch.no_grad(); g0.__enter__(); x.mul_(2); g0.__exit__(None, None, None);
    v.sum().backward(); want = x
a, c = Both.apply(x); a1, c1 = a * 1, c * 1; a.zero_(); c1.sum().backward(); want = -x.sin()
y = x * 3; v = Square.apply(y); y.mul_(7); g, = grad(v.sum(), x, create_graph=True); x.grad, = grad(g.sum(), x);
    want = x * 0 + 18
y = x * 3; v = Cube.apply(y); y.mul_(7); v.sum().backward(); want = 81 * x * x
"""


@pytest.mark.parametrize("program", rows(WRITTEN.replace("\n    ", " ")))
def test_what_was_saved_is_kept_from_writes(program: str) -> None:
    names = defined(program)
    assert np.allclose(names["x"].grad.numpy(), names["want"].detach().numpy(), rtol=1e-14)


@pytest.mark.parametrize("program", rows(WRITTEN.replace("\n    ", " ")))
def test_pytorch_refuses_such_writes(pytorch: Outcomes, program: str) -> None:
    assert "RuntimeError" in pytorch.or_error(lambda m: defined(program, m), program).classes


def defined(program: str = "", library: ModuleType = tape) -> dict[str, Any]:
    """Return what the functions and leaves above and a program define."""
    names: dict[str, Any] = {"torch": library, "np": np}
    exec(LEAVES + FUNCTIONS + program, names)  # noqa: S102 (the programs are the tables above)
    return names


def function(forward: Callable[..., Any], backward: Callable[..., Any], **more: Any) -> Any:
    """Return a Function made of these two."""
    return type("F", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward), **more})


def test_intermediate_value_changed_later_is_kept() -> None:
    left = []

    def forward(ctx: Any, x: Any) -> Any:
        left.append(x * x)
        ctx.save_for_backward(left[0])
        return left[0] * x

    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = function(forward, lambda ctx, g: 3 * g * ctx.saved_tensors[0]).apply(x)
    left[0].zero_()
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]


def test_backward_that_writes_to_what_it_is_given_changes_nothing_else() -> None:
    def backward(ctx: Any, g: Any) -> Any:
        saved, other = ctx.saved_tensors
        other.mul_(0)
        return g.mul_(saved.mul_(2)), None

    def forward(ctx: Any, x: Any, n: Any) -> Any:
        ctx.save_for_backward(x, n)
        return x * 1

    x, n = tape.tensor([1.0, 2.0], requires_grad=True), tape.tensor([5.0, 6.0])
    a = x * 1
    y = function(forward, backward).apply(a, n)
    for _ in range(2):
        x.grad = None
        (y + a * 10).sum().backward(retain_graph=True)
        assert x.grad.tolist() == [12.0, 14.0]
    assert (n.tolist(), a.tolist(), x.tolist()) == ([5.0, 6.0], [1.0, 2.0], [1.0, 2.0])


def test_gradients_that_backward_keeps_are_its_own() -> None:
    kept = []

    def backward(ctx: Any, g: Any) -> Any:
        del ctx
        result = g * 2
        kept.extend([g, result])
        return result

    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = function(lambda ctx, x: x * 2, backward).apply(x)  # noqa: ARG005
    (y * 3).sum().backward(retain_graph=True)
    (y * 5).sum().backward()
    assert [g.tolist() for g in kept] == [[3.0, 3.0], [6.0, 6.0], [5.0, 5.0], [10.0, 10.0]]
    assert x.grad.tolist() == [16.0, 16.0]


class Solve(Function):
    """SciPy and NumPy within; the adjoint of a linear solve."""

    @staticmethod
    def forward(ctx: Any, matrix: Any, right: Any) -> Any:
        lu = scipy.linalg.lu_factor(matrix.detach().numpy())
        solution = tape.from_numpy(scipy.linalg.lu_solve(lu, right.detach().numpy()))
        ctx.lu = lu
        ctx.save_for_backward(solution)
        return solution

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (solution,) = ctx.saved_tensors
        right = tape.from_numpy(scipy.linalg.lu_solve(ctx.lu, g.numpy(), trans=1))
        return -right[:, None] * solution[None, :], right


@numba.njit
def _relax(u: Any, steps: int) -> Any:
    for _ in range(steps):
        v = u.copy()
        for i in range(1, u.size - 1):
            v[i] = 0.5 * u[i] + 0.25 * (u[i - 1] + u[i + 1])
        u = v
    return u


class Relax(Function):
    """A jitted kernel within; it is linear and its inner part symmetric."""

    @staticmethod
    def forward(u: Any, steps: int) -> Any:
        return tape.from_numpy(_relax(u.detach().numpy(), steps))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.steps = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        eye = np.eye(g.numel())
        matrix = np.stack([_relax(row, ctx.steps) for row in eye])
        return tape.from_numpy(matrix @ g.numpy()), None


def test_scipy_inside() -> None:
    matrix = tape.tensor([[4.0, 1.0], [2.0, 5.0]], requires_grad=True)
    right = tape.tensor([1.0, 2.0], requires_grad=True)
    tape.autograd.gradcheck(Solve.apply, (matrix, right))
    (Solve.apply(matrix * 2, right) * tape.tensor([1.0, 3.0])).sum().backward()
    assert np.allclose(right.grad.numpy(), np.linalg.solve(2 * matrix.detach().numpy().T, [1.0, 3.0]), rtol=1e-13)


def test_kernel_inside() -> None:
    u = tape.tensor([1.0, 5.0, 2.0, 0.0, 3.0], requires_grad=True)
    tape.autograd.gradcheck(lambda u: Relax.apply(tape.sin(u), 3), (u,))
    assert np.array_equal(Relax.apply(u, 3).detach().numpy(), _relax(u.detach().numpy(), 3))


def test_memory_of_the_forward_is_not_shared_with_the_gradient_of_another() -> None:
    buffer = np.zeros(2)

    def backward(ctx: Any, g: Any) -> Any:
        del ctx
        np.multiply(g.numpy(), 2, out=buffer)
        return tape.from_numpy(buffer)

    x = tape.tensor([1.0, 2.0], requires_grad=True)
    w = tape.tensor([1.0, 2.0], requires_grad=True)
    twice = function(lambda ctx, x: x * 2, backward)  # noqa: ARG005
    (twice.apply(x) + 3 * twice.apply(w)).sum().backward()
    buffer[:] = 99
    assert (x.grad.tolist(), w.grad.tolist()) == ([2.0, 2.0], [6.0, 6.0])


def test_program_says_that_a_function_cannot_be_replayed() -> None:
    square = defined()["Square"]
    for values in (np.ones(2), np.array([1.0, 3.0])):
        program = tape.record(lambda x: square.apply(x * 2).sum() + x.sum(), values)
        for call in (program, program.value_and_grad):
            with pytest.raises(ProgramError, match="left for Python"):
                call(values)


def test_program_in_which_a_function_gets_only_constants() -> None:
    square = defined()["Square"]
    program = tape.record(lambda x: (x * square.apply(tape.tensor([3.0, 4.0]))).sum(), np.ones(2))
    assert float(program(np.array([1.0, 2.0]))) == 41.0


@pytest.mark.parametrize("depth", [1, 1000])
def test_chain(depth: int) -> None:
    halved = function(lambda ctx, x: x * 0.5 + 1, lambda ctx, g: g * 0.5)  # noqa: ARG005
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(depth):
        y = halved.apply(y)
    y.sum().backward()
    assert x.grad.tolist() == [0.5**depth] * 2


def test_exception_in_backward_leaves_everything_usable() -> None:
    fail = [True]

    def backward(ctx: Any, g: Any) -> Any:
        if fail:
            raise ValueError("not now")
        return g * ctx.saved_tensors[0] * 2

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    x = tape.tensor([1.0, 2.0], requires_grad=True)
    y = function(forward, backward).apply(x * 3)
    for create_graph in (False, True):
        with pytest.raises(ValueError, match="not now"):
            tape.autograd.grad((y * 2).sum(), x, create_graph=create_graph, retain_graph=True)
        assert tape.is_grad_enabled()
        assert x.grad is None
    fail.clear()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    assert tape.autograd.grad((y * 2).sum(), x)[0].tolist() == [36.0, 72.0]
    y = x * 2
    y.sum().backward()


def test_exception_in_forward_leaves_everything_usable() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        del ctx
        raise ValueError(f"no {tuple(x.shape)}")

    x = tape.tensor([1.0, 2.0], requires_grad=True)
    before = recorded()
    with pytest.raises(ValueError, match=r"no \(2,\)"):
        function(forward, lambda ctx, g: g).apply(x)  # noqa: ARG005
    assert tape.is_grad_enabled()
    assert recorded() == before
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_backward_inside_backward() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    w = tape.tensor([3.0, 4.0], requires_grad=True)

    def backward(ctx: Any, g: Any) -> Any:
        del ctx
        with tape.enable_grad():
            (w * w).sum().backward()
        return g * 2

    (function(lambda ctx, x: x * 2, backward).apply(x) * 3 + x).sum().backward()  # noqa: ARG005
    assert (x.grad.tolist(), w.grad.tolist()) == ([7.0, 7.0], [6.0, 8.0])


def test_threads() -> None:
    names = defined()
    square, both = names["Square"], names["Both"]
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(20):
            x = tape.tensor([float(k), 2.0], requires_grad=True)
            s, c = both.apply(square.apply(x))
            (s * s + c * c + square.apply(x)).sum().backward()
            if not np.allclose(x.grad.numpy(), [2.0 * k, 4.0], atol=1e-12):
                wrong.append((k, x.grad))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_made_in_one_thread_and_swept_in_another() -> None:
    square = defined()["Square"]
    made: list[Any] = []
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    thread = threading.Thread(target=lambda: made.append(square.apply(x * 3)))
    thread.start()
    thread.join()
    (g,) = tape.autograd.grad(made[0].sum() * 2, x, create_graph=True)
    assert g.tolist() == [36.0, 72.0]
    assert tape.autograd.grad(g.sum(), x)[0].tolist() == [36.0, 36.0]


def lives() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return what may happen to a call on large arrays; each must leave at most one array behind."""

    def swept(names: dict[str, Any]) -> None:
        x = tape.ones(LARGE).requires_grad_()
        names["Square"].apply(names["Exp"].apply(x)).sum().backward()

    def dropped(names: dict[str, Any]) -> None:
        x = tape.ones(LARGE).requires_grad_()
        names["Cube"].apply(names["Square"].apply(x * 2))

    def twice(names: dict[str, Any]) -> None:
        x = tape.ones(LARGE).requires_grad_()
        y = names["Exp"].apply(x)
        (g,) = tape.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()

    def half(names: dict[str, Any]) -> None:
        x = tape.ones(LARGE).requires_grad_()
        _, c = names["Both"].apply(x)
        c.sum().backward()

    def failed(names: dict[str, Any]) -> None:
        x = tape.ones(LARGE).requires_grad_()
        y = names["Any"].apply((None,), x)
        with pytest.raises(RuntimeError):
            y.sum().backward()

    def written(names: dict[str, Any]) -> None:
        x = tape.ones(LARGE).requires_grad_()
        y = x * 1
        names["Double"].apply(y)
        names["Double"].apply(y[1:])
        y.sum().backward()

    def held_result(names: dict[str, Any]) -> Any:
        x = tape.ones(LARGE).requires_grad_()
        loss = names["Square"].apply(names["Square"].apply(x)).sum()
        loss.backward()
        return loss

    return {f.__name__: f for f in (swept, dropped, twice, half, failed, written, held_result)}


@pytest.fixture
def _tape_of_its_own() -> None:
    """Start from an empty tape, whatever the tests before left alive."""
    gc.collect()
    modes._thread_tape.set(None)
    modes.set_mode(modes.current())


@pytest.mark.usefixtures("_tape_of_its_own")
@pytest.mark.parametrize("life", lives().values(), ids=lives().keys())
def test_nothing_is_kept(life: Callable[[dict[str, Any]], Any]) -> None:
    names = defined()

    def run() -> Any:
        kept = life(names)
        names["log"].clear()
        for _ in range(3):  # the plain mark pass drops one layer a time
            recorded()
        assert recorded() == 0  # collects what is dead
        return kept

    assert held(run) < 100_000


@pytest.mark.usefixtures("_tape_of_its_own")
def test_loop_of_dropped_calls_does_not_grow() -> None:
    square = defined()["Square"]
    x = tape.ones(LARGE).requires_grad_()

    def forget() -> None:
        for _ in range(50):
            square.apply(square.apply(x))

    assert peak(forget) < 12 * 8 * LARGE


def test_saved_tensors_live_while_they_are_needed() -> None:
    square = defined()["Square"]

    def chain() -> Any:
        y: Any = tape.ones(LARGE).requires_grad_()
        for _ in range(3):
            y = square.apply(y)
        return y.sum()

    assert 3 * 8 * LARGE - 10_000 < held(chain) < 4.5 * 8 * LARGE


def test_save_on_a_result_is_no_cycle() -> None:
    exp = defined()["Exp"]
    gc.collect()
    gc.disable()
    try:
        assert held_without_collecting(exp) == []
    finally:
        gc.enable()


def held_without_collecting(exp: Any) -> list[int]:
    before = recorded()
    y = exp.apply(tape.ones(3).requires_grad_())
    assert recorded() > before
    del y
    return [recorded()] if recorded() != before else []


def test_special_function_of_scipy_to_second_order() -> None:
    class Erf(Function):
        """Its derivative is written with operations, so that it can be differentiated again."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return tape.from_numpy(np.asarray(scipy.special.erf(x.detach().numpy())))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * tape.exp(-x * x) * (2 / np.sqrt(np.pi))

    x = tape.tensor([-0.5, 0.1, 2.0], requires_grad=True)
    assert tape.autograd.gradcheck(Erf.apply, (x,))
    assert tape.autograd.gradgradcheck(Erf.apply, (x,))
    (g,) = tape.autograd.grad(Erf.apply(x).sum(), x, create_graph=True)
    (h,) = tape.autograd.grad(g.sum(), x, create_graph=True)
    (third,) = tape.autograd.grad(h.sum(), x)
    v = x.detach().numpy()
    assert np.allclose(third.numpy(), (8 * v * v - 4) / np.sqrt(np.pi) * np.exp(-v * v), rtol=1e-12)


HAND_WRITTEN_CHECKPOINT = """
class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run(*args)

    @staticmethod
    def backward(ctx, g):
        again = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.run(*again)
        torch.autograd.backward(y, g)
        return (None, *[x.grad for x in again])


def checkpointed(part):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([3.0, 4.0, 5.0])
    y = Checkpoint.apply(lambda x, w: x * x * w[: x.shape[0]], part(x), w)
    y.sum().backward()
    return x.grad.tolist(), w.grad
"""


@pytest.mark.quick
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_was_saved_requires_grad_as_before(library: str) -> None:
    module = importlib.import_module(library)
    names: dict[str, Any] = {"torch": module}
    exec(HAND_WRITTEN_CHECKPOINT, names)  # noqa: S102
    for part, expected in (
        (lambda x: x, [6.0, 16.0, 30.0]),
        (lambda x: x * 2, [24.0, 64.0, 120.0]),
        (lambda x: (x * 1)[1:], [0.0, 12.0, 24.0]),
        (lambda x: x.reshape(3), [6.0, 16.0, 30.0]),
    ):
        with contextlib.nullcontext() if module is tape else our_settings(module):
            assert names["checkpointed"](part) == (expected, None)


@pytest.mark.quick
def test_a_saved_result_that_died_beside_others_is_differentiated_again() -> None:
    class Both(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**2, x * 3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0], output[0])

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return 2 * x * g + 3 * h * y / y.detach()  # a second derivative by way of the first result alone

    def f(x: Any) -> Any:
        for _ in range(300):  # tapes drop what is dead when they are full
            x = Both.apply(x)[1] * 0.3
        return (x**2).sum()

    x = tape.tensor([1.5, 2.0], requires_grad=True)
    (g,) = tape.autograd.grad(f(x), x, create_graph=True)
    (h,) = tape.autograd.grad(g.sum(), x, create_graph=True)
    (third,) = tape.autograd.grad(h.sum(), x)
    short = tape.tensor([1.5, 2.0], requires_grad=True)
    kept = []

    def kept_alive(x: Any) -> Any:
        for _ in range(300):
            kept.append(Both.apply(x))
            x = kept[-1][1] * 0.3
        return (x**2).sum()

    (g2,) = tape.autograd.grad(kept_alive(short), short, create_graph=True)
    (h2,) = tape.autograd.grad(g2.sum(), short, create_graph=True)
    (third2,) = tape.autograd.grad(h2.sum(), short)
    for ours, other in ((g, g2), (h, h2), (third, third2)):
        np.testing.assert_allclose(ours.detach().numpy(), other.detach().numpy(), rtol=1e-12)
    assert abs(h).max() > 0
