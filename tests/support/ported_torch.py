"""Small programs as PyTorch's users write them: each takes the module, ``torch`` or ``tape``, and returns numbers."""
# ruff: noqa: N806, PLW2901 (as the originals are written)

from __future__ import annotations

from typing import Any


def polynomial_by_hand(torch: Any) -> list[Any]:
    """Fit a cubic to a sine with weights updated under no_grad."""
    x = torch.linspace(-3.0, 3.0, 200)
    y = torch.sin(x)
    torch.manual_seed(0)
    weights = [torch.randn((), requires_grad=True) for _ in range(4)]
    losses = []
    for _ in range(50):
        a, b, c, d = weights
        loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for w in weights:
                w -= 1e-5 * w.grad
                w.grad = None
    return [torch.tensor(losses), *[w.detach() for w in weights]]


def legendre_function(torch: Any) -> list[Any]:
    """Fit with a Function of one's own: P3(x) = (5 x**3 - 3 x) / 2."""

    class LegendrePolynomial3(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return 0.5 * (5 * x**3 - 3 * x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 1.5 * (5 * x**2 - 1)

    x = torch.linspace(-1.0, 1.0, 100)
    parameters = [torch.full((), v, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3)]
    for _ in range(30):
        a, b, c, d = parameters
        loss = (a + b * LegendrePolynomial3.apply(c + d * x) - torch.sin(x)).pow(2).sum()
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.data -= 5e-4 * g
    return [loss.detach(), *[p.detach() for p in parameters]]


def linear_regression(torch: Any) -> list[Any]:
    """Recover weights from noisy data by gradient descent on batches."""
    torch.manual_seed(1)
    X = torch.normal(0, 1, (200, 2))
    y = X @ torch.tensor([2.0, -3.4]) + 4.2 + torch.normal(0, 0.01, (200,))
    w = torch.normal(0, 0.01, size=(2,)).requires_grad_()
    b = torch.zeros(1, requires_grad=True)
    for epoch in range(3):
        order = torch.randperm(200)
        for i in range(0, 200, 20):
            batch = order[i : i + 20]
            loss = ((X[batch] @ w + b - y[batch]) ** 2 / 2).mean()
            loss.backward()
            with torch.no_grad():
                for p in (w, b):
                    p -= 0.1 / (1 + epoch) * p.grad
                    p.grad.zero_()
    return [loss.detach(), w.detach(), b.detach()]


def logistic_regression(torch: Any) -> list[Any]:
    """Cross-entropy with a momentum update and weight decay."""
    torch.manual_seed(2)
    X = torch.randn(60, 3)
    y = (X[:, 0] - 0.5 * X[:, 1] > 0).to(X.dtype)
    w = torch.zeros(3, requires_grad=True)
    velocity = torch.zeros_like(w)
    for _ in range(40):
        z = X @ w
        loss = (torch.logaddexp(torch.zeros_like(z), z) - y * z).mean() + 1e-3 * w.dot(w)
        (g,) = torch.autograd.grad(loss, [w])
        velocity.mul_(0.9).add_(g, alpha=-0.5)
        with torch.no_grad():
            w += velocity
    return [loss.detach(), w.detach(), ((torch.sigmoid(X @ w) > 0.5) == (y > 0.5)).double().mean()]


def two_layers(torch: Any) -> list[Any]:
    """Train a network of two layers whose weights are plain tensors."""
    torch.manual_seed(3)
    x, y = torch.randn(16, 10), torch.randn(16, 4)
    w1 = (torch.randn(10, 20) * 0.1).requires_grad_()
    w2 = (torch.randn(20, 4) * 0.1).requires_grad_()
    for _ in range(20):
        loss = (x.mm(w1).clamp(min=0).mm(w2) - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            w1 -= 1e-3 * w1.grad
            w2 -= 1e-3 * w2.grad
            w1.grad.zero_()
            w2.grad.zero_()
    return [loss.detach(), w1.detach(), w2.detach()]


def recurrent_cell(torch: Any) -> list[Any]:
    """Unroll a recurrent cell over a sequence, clip the gradient's norm."""
    torch.manual_seed(4)
    inputs, target = torch.randn(12, 5, 3), torch.randn(5, 6)
    wx = torch.randn(3, 6).mul_(0.3).requires_grad_()
    wh = torch.randn(6, 6).mul_(0.3).requires_grad_()
    h = torch.zeros(5, 6)
    for x in inputs.unbind(0):
        h = torch.tanh(x @ wx + h @ wh)
    ((h - target) ** 2).mean().backward()
    norm = torch.stack([p.grad.norm() for p in (wx, wh)]).norm()
    for p in (wx, wh):
        p.grad.mul_(0.01 / norm)
    return [norm, wx.grad, wh.grad]


def functional_derivatives(torch: Any) -> list[Any]:
    """Jacobian, Hessian and products with them, by torch.autograd.functional."""
    functional = torch.autograd.functional
    torch.manual_seed(5)
    x, v = torch.rand(2, 3), torch.rand(2, 3)

    def f(x: Any) -> Any:
        return x.exp().sum(dim=1)

    def g(x: Any, y: Any) -> Any:
        return (x.pow(3) * y).sum()

    jacobian = functional.jacobian(f, x, create_graph=True)
    rows = functional.hessian(g, (x, v))
    return [
        jacobian, functional.vjp(f, x, torch.ones(2))[1], functional.jvp(f, x, v)[1],
        *[block for row in rows for block in row], functional.hvp(lambda x: x.pow(3).sum(), x, v)[1],
    ]  # fmt: skip


def per_sample_gradients(torch: Any) -> list[Any]:
    """Gradients of each example's loss, by vmap of grad over dictionaries of parameters."""
    torch.manual_seed(6)
    parameters = {"w": torch.randn(4, 3), "b": torch.randn(3)}
    data, targets = torch.randn(8, 4), torch.randint(0, 3, (8,))

    def loss(parameters: Any, x: Any, target: Any) -> Any:
        scores = torch.log_softmax(x @ parameters["w"] + parameters["b"], -1)
        return -(scores * (torch.arange(3) == target)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, data, targets)
    return [each["w"], each["b"]]


def tangent_kernel(torch: Any) -> list[Any]:
    """The empirical neural tangent kernel, by Jacobians of a small network's outputs."""
    torch.manual_seed(7)
    w1, w2, x = torch.randn(3, 5), torch.randn(5, 2), torch.randn(4, 3)

    def network(w1: Any, w2: Any) -> Any:
        return torch.tanh(x @ w1) @ w2

    jacobians = torch.func.jacrev(network, argnums=(0, 1))(w1, w2)
    flat = torch.cat([j.reshape(4, 2, -1) for j in jacobians], dim=-1)
    return [torch.einsum("iap,jbp->ijab", flat, flat)]


def gaussian_process(torch: Any) -> list[Any]:
    """Marginal likelihood of a Gaussian process by a Cholesky factor, with gradients to its hyperparameters."""
    torch.manual_seed(8)
    x = torch.linspace(0.0, 1.0, 12)
    y = torch.sin(6 * x) + 0.1 * torch.randn(12)
    log_scale, log_length, log_noise = (torch.tensor(v, requires_grad=True) for v in (0.0, -1.0, -2.0))
    distance = (x[:, None] - x[None, :]) ** 2
    for _ in range(10):
        K = torch.exp(log_scale) * torch.exp(-0.5 * distance / torch.exp(2 * log_length))
        L = torch.linalg.cholesky(K + (torch.exp(2 * log_noise) + 1e-6) * torch.eye(12))
        a = torch.linalg.solve_triangular(L, y[:, None], upper=False)
        loss = 0.5 * (a**2).sum() + torch.log(torch.diagonal(L)).sum()
        loss.backward()
        with torch.no_grad():
            for p in (log_scale, log_length, log_noise):
                p -= 0.02 * p.grad
                p.grad = None
    return [loss.detach(), log_scale.detach(), log_length.detach(), log_noise.detach()]


def reparametrised_bound(torch: Any) -> list[Any]:
    """One step of a variational bound with the reparametrisation of a Gaussian."""
    torch.manual_seed(9)
    x = torch.randn(10, 6)
    encoder, decoder = (torch.randn(*shape).mul_(0.2).requires_grad_() for shape in ((6, 4), (2, 6)))
    mean, log_variance = (x @ encoder).chunk(2, dim=1)
    z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
    rebuilt = ((z @ decoder - x) ** 2).sum(1)
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
    bound = (rebuilt + divergence).mean()
    bound.backward()
    return [bound.detach(), encoder.grad, decoder.grad]


def learning_to_learn(torch: Any) -> list[Any]:
    """A gradient through two steps of gradient descent, as in MAML."""
    torch.manual_seed(10)
    x, y = torch.randn(9), torch.randn(9)
    start = torch.tensor([0.3, -0.2], requires_grad=True)

    def loss(w: Any) -> Any:
        return ((w[0] * torch.sin(x) + w[1] * x - y) ** 2).mean()

    w = start
    for _ in range(2):
        (g,) = torch.autograd.grad(loss(w), w, create_graph=True)
        w = w - 0.1 * g
    outer = loss(w)
    outer.backward()
    return [outer.detach(), start.grad]


def forces_of_a_potential(torch: Any) -> list[Any]:
    """Molecular dynamics: forces by autograd, a stress by a gradient of the forces."""
    torch.manual_seed(11)
    position = torch.rand(4, 3).requires_grad_()
    strength = torch.tensor(1.5, requires_grad=True)
    i, j = torch.triu_indices(4, 4, offset=1)
    r = (position[i] - position[j]).norm(dim=1)
    energy = (strength * ((r - 0.8) ** 2 + 0.1 / r)).sum()
    (force,) = torch.autograd.grad(-energy, position, create_graph=True)
    mismatch = ((force - 0.1) ** 2).sum()
    mismatch.backward()
    return [energy.detach(), force.detach(), position.grad, strength.grad]


def attention(torch: Any) -> list[Any]:
    """One head of masked attention."""
    torch.manual_seed(12)
    q, k, v = (torch.randn(2, 5, 4, requires_grad=True) for _ in range(3))
    scores = q @ k.transpose(-2, -1) / 4**0.5
    mask = torch.triu(torch.ones(5, 5), diagonal=1).bool()
    weights = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
    out = weights @ v
    (out**2).sum().backward()
    return [out.detach(), q.grad, k.grad, v.grad]


def hooks_and_norms(torch: Any) -> list[Any]:
    """Scale gradients on their way back, and look at those of what is computed in between."""
    torch.manual_seed(13)
    x = torch.randn(6, requires_grad=True)
    seen = []
    h = torch.relu(x * 2)
    h.register_hook(lambda g: g.clamp(-1, 1))
    h.retain_grad()
    y = torch.cumsum(h, 0)
    y.register_hook(lambda g: seen.append(g.clone()))
    (y**3).mean().backward()
    return [x.grad, h.grad, *seen]


PROGRAMS = [
    polynomial_by_hand, legendre_function, linear_regression, logistic_regression, two_layers, recurrent_cell,
    functional_derivatives, per_sample_gradients, tangent_kernel, gaussian_process, reparametrised_bound,
    learning_to_learn, forces_of_a_potential, attention, hooks_and_norms,
]  # fmt: skip
