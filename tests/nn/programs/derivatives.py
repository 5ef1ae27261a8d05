"""Programs as PyTorch's users write them: derivatives of derivatives, functional transforms, other ways to descend."""

PROGRAMS: dict[str, str] = {}

PROGRAMS["neural_ode"] = """
import torch
import torch.nn as nn

class ODEFunc(nn.Module):
    def __init__(self):
        super(ODEFunc, self).__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)
    def forward(self, t, y):
        return self.net(y ** 3)

def rk4_step_func(func, t, dt, y):
    k1 = func(t, y)
    k2 = func(t + dt / 2, y + dt * k1 / 2)
    k3 = func(t + dt / 2, y + dt * k2 / 2)
    k4 = func(t + dt, y + dt * k3)
    return y + (k1 + 2 * k2 + 2 * k3 + k4) * dt / 6

def odeint(func, y0, t):
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        ys.append(rk4_step_func(func, t0, t1 - t0, ys[-1]))
    return torch.stack(ys, dim=0)

class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y ** 3, true_A)

torch.manual_seed(0)
true_y0 = torch.tensor([[2., 0.]])
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0., 1., 30)
with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t)

def get_batch(batch_time=6, batch_size=8):
    s = torch.randperm(len(t) - batch_time)[:batch_size]
    batch_y0 = true_y[s]
    batch_t = t[:batch_time]
    batch_y = torch.stack([true_y[s + i] for i in range(batch_time)], dim=0)
    return batch_y0, batch_t, batch_y

func = ODEFunc()
optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-2)
result = []
for itr in range(1, 16):
    optimizer.zero_grad()
    batch_y0, batch_t, batch_y = get_batch()
    pred_y = odeint(func, batch_y0, batch_t)
    loss = torch.mean(torch.abs(pred_y - batch_y))
    loss.backward()
    optimizer.step()
    result.append(loss.item())
"""

PROGRAMS["maml"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)

def sample_tasks(n, k):
    As = torch.rand(n, 1, 1) * 4.9 + 0.1
    phases = torch.rand(n, 1, 1) * 3.14
    xs = torch.rand(n, k, 1) * 10 - 5
    return xs, torch.sin(xs - phases) * As

def task_loss(params, x, y):
    return F.mse_loss(functional_call(net, params, (x,)), y)

def get_loss_for_task(params, x1, y1, x2, y2, alpha=0.01):
    grads = grad(task_loss)(params, x1, y1)
    new_params = {k: params[k] - alpha * grads[k] for k in params}
    return task_loss(new_params, x2, y2)

result = []
for it in range(8):
    (x1, y1), params = sample_tasks(4, 10), dict(net.named_parameters())
    (x2, y2) = x1.flip(1), y1.flip(1)
    inner_losses = vmap(get_loss_for_task, in_dims=(None, 0, 0, 0, 0))(params, x1, y1, x2, y2)
    loss = sum(inner_losses) / len(inner_losses)
    opt.zero_grad()
    loss.backward()
    opt.step()
    result.append(loss.item())
for it in range(8):
    opt.zero_grad()
    meta_loss = 0.0
    for x, y in zip(*sample_tasks(3, 10)):
        fast_weights = list(net.parameters())
        for _ in range(2):
            names = [n for n, _ in net.named_parameters()]
            out = torch.func.functional_call(net, dict(zip(names, fast_weights)), x[:5])
            inner = ((out - y[:5]) ** 2).mean()
            grads = torch.autograd.grad(inner, fast_weights, create_graph=True)
            fast_weights = [w - 0.01 * g for w, g in zip(fast_weights, grads)]
        meta_loss = meta_loss + F.mse_loss(functional_call(net, dict(zip(names, fast_weights)), x[5:]), y[5:])
    meta_loss.backward()
    opt.step()
    result.append(meta_loss.item() / 3)
"""

PROGRAMS["physics_informed"] = """
import numpy as np
import torch
import torch.nn as nn
from torch.autograd import grad

class PINN(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.activation = nn.Tanh()
        self.linears = nn.ModuleList([nn.Linear(layers[i], layers[i + 1]) for i in range(len(layers) - 1)])
        for i in range(len(layers) - 1):
            nn.init.xavier_normal_(self.linears[i].weight.data, gain=1.0)
            nn.init.zeros_(self.linears[i].bias.data)
        self.nu = nn.Parameter(torch.tensor([0.1], dtype=self.linears[0].weight.dtype))
    def forward(self, x, t):
        a = torch.cat([x, t], dim=1)
        for i in range(len(self.linears) - 1):
            a = self.activation(self.linears[i](a))
        return self.linears[-1](a)

torch.manual_seed(1234)
np.random.seed(1234)
net = PINN([2, 12, 12, 1])
x = torch.tensor(np.random.uniform(-1, 1, (40, 1)), requires_grad=True)
t = torch.tensor(np.random.uniform(0, 1, (40, 1)), requires_grad=True)
x0 = torch.linspace(-1, 1, 20).reshape(-1, 1)
u0 = -torch.sin(np.pi * x0)

def residual(x, t):
    u = net(x, t)
    u_t = grad(u, t, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
    u_x = grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
    u_xx = grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
    return u_t + u * u_x - net.nu * u_xx

optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
result = []
for epoch in range(15):
    optimizer.zero_grad()
    loss = (residual(x, t) ** 2).mean() + ((net(x0, torch.zeros_like(x0)) - u0) ** 2).mean()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
lbfgs = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=8, history_size=10, line_search_fn="strong_wolfe")

def closure():
    lbfgs.zero_grad()
    loss = torch.mean(residual(x, t) ** 2) + nn.MSELoss()(net(x0, 0 * x0), u0)
    loss.backward()
    return loss

result.append(lbfgs.step(closure).item())
result.append(closure().item())
"""

PROGRAMS["lbfgs_rosenbrock"] = """
import torch
import torch.optim as optim
from torch.autograd.functional import hessian

def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

x_lbfgs = 10 * torch.ones(2, 1)
x_lbfgs.requires_grad = True
optimizer = optim.LBFGS([x_lbfgs], history_size=10, max_iter=4, line_search_fn="strong_wolfe")
result = []
for i in range(12):
    def closure():
        optimizer.zero_grad()
        objective = rosenbrock(x_lbfgs)
        objective.backward(torch.ones_like(objective))
        return objective
    result.append(rosenbrock(x_lbfgs).item())
    optimizer.step(closure)
x = torch.tensor([-1.2, 1.0], requires_grad=True)
for i in range(6):
    g, = torch.autograd.grad(rosenbrock(x), x)
    H = hessian(rosenbrock, x)
    with torch.no_grad():
        x -= torch.linalg.solve(H, g)
    result.append(rosenbrock(x).item())
"""

PROGRAMS["per_sample_gradients"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4 * 4, 4))
data, targets = torch.randn(6, 1, 6, 6), torch.randint(0, 4, (6,))
params = {k: v.detach() for k, v in model.named_parameters()}
buffers = {k: v.detach() for k, v in model.named_buffers()}

def compute_loss(params, buffers, sample, target):
    batch = sample.unsqueeze(0)
    predictions = functional_call(model, (params, buffers), (batch,))
    return F.cross_entropy(predictions, target.unsqueeze(0))

ft_per_sample = vmap(grad_and_value(compute_loss), in_dims=(None, None, 0, 0))
result = []
for step in range(8):
    grads, losses = ft_per_sample(params, buffers, data, targets)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    for k, g in grads.items():
        clipped = torch.einsum("n,n...->...", factor, g) / 6
        params[k] = params[k] - 0.3 * (clipped + 1e-3 * torch.randn_like(clipped))
    result.append(losses.mean().item())
f = lambda w: F.cross_entropy(data.flatten(1) @ w, targets)
w = torch.zeros(36, 4)
J = vmap(jacrev(lambda x: torch.tanh(x @ torch.ones(36, 4)).sum()))(data.flatten(1))
H = hessian(f)(w).reshape(144, 144)
result.append(J.mean().item() / 1e4 + torch.linalg.eigvalsh(H).max().item() / 1e4)
"""

PROGRAMS["own_optimizers"] = """
import torch
import torch.nn as nn
from torch.optim import Optimizer

class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        defaults = dict(rho=rho, **kwargs)
        super(SAM, self).__init__(params, defaults)
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norms = [p.grad.norm(p=2) for group in self.param_groups for p in group["params"] if p.grad is not None]
        grad_norm = torch.norm(torch.stack(norms), p=2)
        for group in self.param_groups:
            scale = group["rho"] / (grad_norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        if zero_grad:
            self.zero_grad()
    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

class Lion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                beta1, beta2 = group["betas"]
                update = state["exp_avg"].mul(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-group["lr"])
                state["exp_avg"].lerp_(p.grad, 1 - beta2)
        return loss

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Hardtanh(), nn.Linear(8, 1))
X, y = torch.randn(24, 4), torch.randn(24, 1)
criterion, result = nn.HuberLoss(delta=0.5), []
sam = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
for _ in range(8):
    loss = criterion(model(X), y)
    loss.backward()
    sam.first_step(zero_grad=True)
    criterion(model(X), y).backward()
    sam.second_step(zero_grad=True)
    result.append(loss.item())
lion = Lion(model.parameters(), lr=1e-2, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(lion, 4)
for _ in range(8):
    lion.zero_grad()
    loss = criterion(model(X), y)
    loss.backward()
    lion.step()
    scheduler.step()
    result.append(loss.item())
"""

PROGRAMS["mixed_precision_loop"] = """
import argparse
import time
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args([])
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
use_cuda = not args.no_cuda and torch.cuda.is_available()
if use_cuda:
    torch.cuda.manual_seed_all(0)
device = torch.device("cuda:0" if use_cuda else "cpu")
kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}

class Random(Dataset):
    def __init__(self, n):
        g = torch.Generator()
        g.manual_seed(7)
        self.x = torch.randn(n, 5, generator=g)
        self.y = (self.x.sum(1) > 0).long()
    def __len__(self):
        return self.x.shape[0]
    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}

torch.manual_seed(0)
loader = DataLoader(Random(40), batch_size=8, shuffle=True, **kwargs)
model = nn.DataParallel(nn.Linear(5, 2)) if torch.cuda.device_count() > 1 else nn.Linear(5, 2)
model = model.to(device=device, non_blocking=True)
criterion = nn.CrossEntropyLoss(reduction="none")
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", enabled=use_cuda)
accumulate, result, start = 2, [], time.time()
for epoch in range(4):
    running = 0.0
    for i, batch in enumerate(loader):
        x, y = batch["x"].to(device, non_blocking=True), batch["y"].to(device)
        with torch.autocast(device_type=device.type, enabled=use_cuda):
            loss = criterion(model(x), y).mean() / accumulate
        scaler.scale(loss).backward()
        if (i + 1) % accumulate == 0 or i + 1 == len(loader):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        running += loss.detach().cpu().item()
    result.append(running)
if use_cuda:
    torch.cuda.synchronize()
"""
