"""Programs as PyTorch's users write them: fits, densities and latent variables."""

PROGRAMS: dict[str, str] = {}

PROGRAMS["linear_regression"] = """
import torch
import torch.nn as nn

torch.manual_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X = torch.linspace(0, 1, 50).unsqueeze(dim=1).to(device)
y = 0.7 * X + 0.3 + 0.01 * torch.randn_like(X)
train_split = int(0.8 * len(X))
X_train, y_train, X_test, y_test = X[:train_split], y[:train_split], X[train_split:], y[train_split:]

class LinearRegressionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(1, requires_grad=True, dtype=torch.get_default_dtype()))
        self.bias = nn.Parameter(torch.randn(1, requires_grad=True, dtype=torch.get_default_dtype()))
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weights * x + self.bias

model = LinearRegressionModel().to(device)
loss_fn = nn.L1Loss()
optimizer = torch.optim.SGD(params=model.parameters(), lr=0.01)
result = []
for epoch in range(60):
    model.train()
    y_pred = model(X_train)
    loss = loss_fn(y_pred, y_train)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.inference_mode():
        test_loss = loss_fn(model(X_test), y_test)
    result.append(test_loss.item())
assert list(model.state_dict()) == ["weights", "bias"] and next(model.parameters()).device.type == "cpu"
"""

PROGRAMS["logistic_regression"] = """
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
X = torch.cat([torch.randn(60, 2) + 1.5, torch.randn(60, 2) - 1.5], dim=0)
y = torch.cat((torch.ones(60), torch.zeros(60)))
train, val = random_split(TensorDataset(X, y), [100, 20], generator=torch.Generator().manual_seed(1))
loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True, num_workers=0)
model = nn.Linear(2, 1)
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.5]))
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
result = []
for epoch in range(5):
    running_loss = 0.0
    for i, (xb, yb) in enumerate(loader):
        optimizer.zero_grad(set_to_none=True)
        outputs = model(xb).squeeze(-1)
        loss = criterion(outputs, yb)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * xb.size(0)
    result.append(running_loss / len(loader.dataset))
with torch.no_grad():
    correct, total = 0, 0
    for xb, yb in DataLoader(val, batch_size=8):
        predicted = (torch.sigmoid(model(xb)).squeeze() > 0.5).float()
        total += yb.size(0)
        correct += (predicted == yb).sum().item()
assert correct / total > 0.9, f"Accuracy: {100 * correct / total:.2f}%"
"""

PROGRAMS["spiral_mlp"] = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(0)
torch.manual_seed(0)
N, D, K = 30, 2, 3
X, y = np.zeros((N * K, D)), np.zeros(N * K, dtype="int64")
for j in range(K):
    ix = range(N * j, N * (j + 1))
    r, t = np.linspace(0.0, 1, N), np.linspace(j * 4, (j + 1) * 4, N) + np.random.randn(N) * 0.2
    X[ix], y[ix] = np.c_[r * np.sin(t), r * np.cos(t)], j
X, y = torch.from_numpy(X), torch.from_numpy(y)
model = nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Dropout(p=0.1), nn.Linear(32, 32), nn.LeakyReLU(0.1), nn.Linear(32, K))

def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        nn.init.zeros_(m.bias)

model.apply(init_weights)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
result = []
for e in range(50):
    logits = model(X)
    loss = F.cross_entropy(logits, y, label_smoothing=0.05)
    score, predicted = torch.max(logits, 1)
    acc = (y == predicted).sum().item() / len(y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    result += [loss.item(), acc, scheduler.get_last_lr()[0]]
n = sum(p.numel() for p in model.parameters() if p.requires_grad)
assert n == 2 * 32 + 32 + 32 * 32 + 32 + 32 * 3 + 3
result.append(F.cross_entropy(model.eval()(X), y).item())
"""

PROGRAMS["polynomial_fit"] = """
import math
import torch

dtype = torch.get_default_dtype()
device = torch.device("cpu")
torch.manual_seed(0)
x = torch.linspace(-math.pi, math.pi, 200, device=device, dtype=dtype)
y = torch.sin(x)
a = torch.randn((), device=device, dtype=dtype, requires_grad=True)
b = torch.randn((), device=device, dtype=dtype, requires_grad=True)
c = torch.randn((), device=device, dtype=dtype, requires_grad=True)
d = torch.randn((), device=device, dtype=dtype, requires_grad=True)

class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input ** 3 - 3 * input)
    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input ** 2 - 1)

P3 = LegendrePolynomial3.apply
learning_rate, result = 5e-6, []
for t in range(100):
    y_pred = a + b * P3(c + d * x / 4)
    loss = (y_pred - y).pow(2).sum()
    result.append(loss.item())
    loss.backward()
    with torch.no_grad():
        a -= learning_rate * a.grad
        b -= learning_rate * b.grad
        c -= learning_rate * c.grad
        d -= learning_rate * d.grad
        a.grad = None
        b.grad = None
        c.grad = None
        d.grad = None
assert f"y = {a.item():.1f} + {b.item():.1f} * P3({c.item():.1f} + {d.item():.1f} x)".startswith("y = ")
p = torch.tensor([1, 2, 3])
xx = x.unsqueeze(-1).pow(p)
model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for t in range(50):
    loss = loss_fn(model(xx), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
linear_layer = model[0]
result.append(linear_layer.weight[:, 0].item())
"""

PROGRAMS["matrix_factorisation"] = """
import torch
from torch import nn
from torch.utils.data import TensorDataset, DataLoader

class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=5):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, n_factors, sparse=False)
        self.item_factors = nn.Embedding(n_items, n_factors)
        self.user_biases = nn.Embedding(n_users, 1)
        self.item_biases = nn.Embedding(n_items, 1)
        self.global_bias = nn.Parameter(torch.tensor(3.0, dtype=self.user_biases.weight.dtype))
        for emb in [self.user_factors, self.item_factors]:
            nn.init.normal_(emb.weight, std=0.1)
    def forward(self, data):
        users, items = data[:, 0], data[:, 1]
        pred = self.user_biases(users) + self.item_biases(items)
        pred += (self.user_factors(users) * self.item_factors(items)).sum(dim=1, keepdim=True)
        return pred.squeeze() + self.global_bias

torch.manual_seed(0)
idx = torch.stack(torch.meshgrid(torch.arange(12), torch.arange(9), indexing="ij"), -1).reshape(-1, 2)
ratings = (torch.randn(12, 2) @ torch.randn(2, 9)).reshape(-1) + 3
keep = torch.rand(len(idx)) < 0.7
loader = DataLoader(TensorDataset(idx[keep], ratings[keep]), batch_size=32, shuffle=True)
model = MatrixFactorization(12, 9)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
lambda1 = lambda epoch: 0.9 ** epoch
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda1)
result = []
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        l2 = sum(p.norm(2) ** 2 for p in model.parameters())
        (loss + 1e-3 * l2).backward()
        optimizer.step()
    scheduler.step()
    result.append(loss.item())
A = torch.zeros(12, 9)
A[idx[:, 0], idx[:, 1]] = ratings
U, S, Vh = torch.linalg.svd(A, full_matrices=False)
result.append(torch.linalg.norm(A - (U[:, :2] * S[:2]) @ Vh[:2] - 3).item() / 1e6)
"""

PROGRAMS["gaussian_process"] = """
import math
import torch
from torch import nn
from torch.distributions import MultivariateNormal

class RBFKernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw_lengthscale = nn.Parameter(torch.zeros(1, 1))
        self.raw_variance = nn.Parameter(torch.tensor(0.0, dtype=torch.get_default_dtype()))
    @property
    def lengthscale(self):
        return nn.functional.softplus(self.raw_lengthscale)
    def forward(self, x1, x2):
        d = torch.cdist(x1 / self.lengthscale, x2 / self.lengthscale, p=2)
        return nn.functional.softplus(self.raw_variance) * torch.exp(-0.5 * d ** 2)

torch.manual_seed(0)
train_x = torch.linspace(0, 1, 20).view(-1, 1)
train_y = torch.sin(train_x * (2 * math.pi)).squeeze() + torch.randn(20) * math.sqrt(0.04)
kernel = RBFKernel()
raw_noise = nn.Parameter(torch.full((), -1.0))
optimizer = torch.optim.Adam([*kernel.parameters(), raw_noise], lr=0.1)
result = []
for i in range(25):
    optimizer.zero_grad()
    K = kernel(train_x, train_x) + nn.functional.softplus(raw_noise) * torch.eye(20)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(train_y.unsqueeze(-1), L)
    loss = 0.5 * train_y @ alpha.squeeze() + torch.log(torch.diagonal(L)).sum() + 0.5 * 20 * math.log(2 * math.pi)
    loss.backward()
    optimizer.step()
    result.append(loss.item())
    if i == 0:
        mvn = MultivariateNormal(torch.zeros(20), covariance_matrix=K.detach())
        assert abs(mvn.log_prob(train_y).item() + loss.item()) < 1e-8
with torch.no_grad():
    test_x = torch.linspace(0, 1, 11)[:, None]
    Ks = kernel(train_x, test_x)
    mean = Ks.mT @ alpha
    v = torch.linalg.solve_triangular(L, Ks, upper=False)
    var = kernel(test_x, test_x).diagonal() - v.pow(2).sum(0)
    lower, upper = mean.squeeze() - 2 * var.sqrt(), mean.squeeze() + 2 * var.sqrt()
    result.extend([var.max().item(), (upper - lower).min().item()])
"""

PROGRAMS["mixture_density"] = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class MDN(nn.Module):
    def __init__(self, in_features, out_features, num_gaussians):
        super().__init__()
        self.in_features, self.out_features, self.num_gaussians = in_features, out_features, num_gaussians
        self.body = nn.Sequential(nn.Linear(in_features, 12), nn.ELU())
        self.pi = nn.Linear(12, num_gaussians)
        self.sigma = nn.Linear(12, out_features * num_gaussians)
        self.mu = nn.Linear(12, out_features * num_gaussians)
    def forward(self, minibatch):
        h = self.body(minibatch)
        sigma = F.softplus(self.sigma(h)).view(-1, self.num_gaussians, self.out_features) + 1e-3
        mu = self.mu(h).view(-1, self.num_gaussians, self.out_features)
        return F.log_softmax(self.pi(h), dim=-1), sigma, mu

def mdn_loss(log_pi, sigma, mu, target):
    target = target.unsqueeze(1).expand_as(sigma)
    z = (target - mu) / sigma
    log_prob = -0.5 * z ** 2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log_pi + log_prob.sum(-1), dim=1).mean()

torch.manual_seed(0)
y = torch.rand(100, 1) * 20 - 10
x = torch.sin(0.75 * y) * 7 + y * 0.5 + torch.randn_like(y)
x, y = (x - x.mean()) / x.std(), y / 10
model = MDN(1, 1, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
result = []
for epoch in range(25):
    optimizer.zero_grad()
    loss = mdn_loss(*model(x), y)
    loss.backward()
    optimizer.step()
    result.append(loss.item())
log_pi, sigma, mu = model(x)
k = torch.distributions.Categorical(logits=log_pi).sample().view(-1, 1, 1)
sample = torch.normal(mu, sigma).gather(1, k).detach().squeeze()
assert sample.shape == (100,)
result.append(sample.std().item() - 10)
"""

PROGRAMS["kalman_filter"] = """
import torch
from torch import nn

class KalmanFilter(nn.Module):
    def __init__(self, dt=0.1):
        super().__init__()
        self.register_buffer("F", torch.tensor([[1.0, dt], [0.0, 1.0]]))
        self.register_buffer("H", torch.tensor([[1.0, 0.0]]))
        self.log_q = nn.Parameter(torch.zeros(2))
        self.log_r = nn.Parameter(torch.zeros(1))
    def forward(self, ys):
        m, P = torch.zeros(2, 1), torch.eye(2)
        Q, R, I = torch.diag(self.log_q.exp()), torch.diag_embed(self.log_r.exp()), torch.eye(2)
        ll = 0.0
        for y in ys:
            m, P = self.F @ m, self.F @ P @ self.F.T + Q
            S = self.H @ P @ self.H.transpose(0, 1) + R
            K = torch.linalg.solve(S, self.H @ P).T
            e = y.reshape(1, 1) - self.H @ m
            m = m + torch.matmul(K, e)
            P = (I - K @ self.H) @ P
            ll = ll - 0.5 * (e.t() @ torch.inverse(S) @ e + torch.logdet(S)).squeeze()
        return -ll / len(ys)

torch.manual_seed(0)
v = torch.cumsum(0.3 * torch.randn(30), 0)
ys = torch.cumsum(0.1 * v, 0) + 0.2 * torch.randn(30)
kf = KalmanFilter()
assert [n for n, _ in kf.named_buffers()] == ["F", "H"]
optimizer = torch.optim.Adam(kf.parameters(), lr=0.2)
result = []
for _ in range(12):
    optimizer.zero_grad()
    nll = kf(ys)
    nll.backward()
    optimizer.step()
    result.append(nll.item())
"""

PROGRAMS["kmeans_and_svdd"] = """
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(7)
X = torch.cat([torch.randn(30, 2) * 0.4 + torch.tensor(c) for c in ([0., 0.], [3., 0.], [0., 3.])])
centers = X[torch.randperm(X.shape[0])[:3]].clone().requires_grad_(True)
optimizer = optim.SGD([centers], lr=0.3)
result = []
for _ in range(15):
    d = torch.cdist(X, centers)
    loss = d.min(dim=1)[0].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
labels = torch.argmin(torch.cdist(X, centers.detach()), dim=1)
counts = torch.bincount(labels, minlength=3)
means = torch.zeros(3, 2).index_add_(0, labels, X) / counts.clamp(min=1).unsqueeze(1)
sums = torch.zeros(3, 2).scatter_add_(0, labels[:, None].expand(-1, 2), X)
assert torch.allclose(means * counts[:, None].clamp(min=1), sums) and counts.sum().item() == 90

net = nn.Sequential(nn.Linear(2, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
with torch.no_grad():
    c = net(X).mean(dim=0)
    c[(abs(c) < 0.1) & (c < 0)] = -0.1
    c[(abs(c) < 0.1) & (c >= 0)] = 0.1
R, nu = torch.tensor(0.0), 0.1
optimizer = optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-6)
for _ in range(10):
    dist = torch.sum((net(X) - c) ** 2, dim=1)
    scores = dist - R ** 2
    loss = R ** 2 + (1 / nu) * torch.mean(torch.max(torch.zeros_like(scores), scores))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    R.data = torch.quantile(torch.sqrt(dist.clone().detach()), 1 - nu)
    result.append(loss.item() / 100)
"""

PROGRAMS["hopfield"] = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
patterns = torch.sign(torch.randn(4, 24))
W = torch.einsum("pi,pj->ij", patterns, patterns) / patterns.shape[1]
W.fill_diagonal_(0)
state = patterns[0].clone()
flip = torch.randperm(24)[:5]
state[flip] *= -1
energy = lambda s: -0.5 * (s @ W @ s)
result = [energy(state).item()]
for _ in range(3):
    for i in torch.randperm(24).tolist():
        h = W[i].dot(state)
        state[i] = 1.0 if h >= 0 else -1.0
    result.append(energy(state).item())

beta = torch.tensor(1.0, requires_grad=True)
query = (patterns + 0.8 * torch.randn_like(patterns)).detach()
optimizer = torch.optim.SGD([beta], lr=0.01)
for _ in range(10):
    xi = query
    for _ in range(2):
        attn = F.softmax(beta * torch.einsum("bd,pd->bp", xi, patterns), dim=-1)
        xi = torch.einsum("bp,pd->bd", attn, patterns)
    loss = F.mse_loss(xi, patterns)
    lse = -torch.logsumexp(beta * query @ patterns.T, dim=-1).mean() / beta
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    result.append(loss.item() + lse.item())
"""

PROGRAMS["autoencoder"] = """
import io
import torch
import torch.nn as nn

torch.manual_seed(3)

class Autoencoder(nn.Module):
    def __init__(self, dims=(36, 16, 4)):
        super(Autoencoder, self).__init__()
        layers = []
        for i, o in zip(dims[:-1], dims[1:]):
            layers.extend([nn.Linear(i, o), nn.ReLU(True)])
        self.encoder = nn.Sequential(*layers[:-1])
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(inplace=True), nn.Linear(16, 36), nn.Sigmoid())
    def forward(self, x):
        return self.decoder(self.encoder(x))

images = torch.rand(32, 1, 6, 6)
model = Autoencoder()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
result = []
for epoch in range(15):
    for img in images.split(8):
        img = img.view(img.size(0), -1)
        loss = criterion(model(img), img)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    result.append(loss.detach().item())
buffer = io.BytesIO()
torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
buffer.seek(0)
checkpoint = torch.load(buffer)
clone = Autoencoder()
clone.load_state_dict(checkpoint["model"])
opt2 = torch.optim.Adam(clone.parameters(), lr=1.0)
opt2.load_state_dict(checkpoint["optimizer"])
for m, o in ((model, optimizer), (clone, opt2)):
    o.zero_grad()
    criterion(m(img), img).backward()
    o.step()
result.append(criterion(clone(img), img).item())
assert torch.equal(model.encoder[0].weight, clone.encoder[0].weight)
"""

PROGRAMS["vae"] = """
import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

torch.manual_seed(1)

class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc21 = nn.Linear(32, 5)
        self.fc22 = nn.Linear(32, 5)
        self.fc3 = nn.Linear(5, 32)
        self.fc4 = nn.Linear(32, 64)
    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)
    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std
    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))
    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar

def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD

model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-2)
data = torch.bernoulli(torch.full((48, 1, 8, 8), 0.2))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
result = []
for epoch in range(8):
    model.train()
    train_loss = 0
    for batch_idx, x in enumerate(loader):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(x)
        loss = loss_function(recon_batch, x, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    result.append(train_loss / len(loader.dataset))
with torch.no_grad():
    sample = model.decode(torch.randn(4, 5)).cpu()
assert sample.view(4, 1, 8, 8).shape == torch.Size([4, 1, 8, 8])
"""

PROGRAMS["bayes_by_backprop"] = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributions as dist

class BayesLinear(nn.Module):
    def __init__(self, i, o, prior_std=1.0):
        super().__init__()
        self.w_mu = nn.Parameter(torch.empty(o, i).normal_(0, 0.1))
        self.w_rho = nn.Parameter(torch.full((o, i), -3.0))
        self.b_mu, self.b_rho = nn.Parameter(torch.zeros(o)), nn.Parameter(torch.full((o,), -3.0))
        self.prior = dist.Normal(0.0, prior_std)
    def forward(self, x):
        qw, qb = dist.Normal(self.w_mu, F.softplus(self.w_rho)), dist.Normal(self.b_mu, F.softplus(self.b_rho))
        w, b = qw.rsample(), qb.rsample()
        self.kl = (qw.log_prob(w) - self.prior.log_prob(w)).sum() + dist.kl_divergence(qb, dist.Normal(torch.zeros_like(b), 1.0)).sum()
        return F.linear(x, w, b)

torch.manual_seed(0)
model = nn.Sequential(BayesLinear(1, 10), nn.Tanh(), BayesLinear(10, 1))
x = torch.linspace(-2, 2, 40)[:, None]
y = x.pow(3) / 4 + 0.1 * torch.randn_like(x)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
result = []
for it in range(20):
    optimizer.zero_grad()
    elbo = 0
    for _ in range(2):
        nll = -dist.Normal(model(x), 0.1).log_prob(y).sum()
        kl = sum(m.kl for m in model.modules() if isinstance(m, BayesLinear))
        elbo += (nll + kl) / 2
    elbo.backward()
    optimizer.step()
    result.append(elbo.item())
with torch.no_grad():
    samples = torch.stack([model(x) for _ in range(5)])
mean, std = samples.mean(0), samples.std(dim=0)
std2, mean2 = torch.std_mean(samples, dim=0)
assert torch.allclose(mean, mean2) and torch.allclose(std, std2)
result.append(std.mean().item())
"""
