"""Programs as PyTorch's users write them: agents, flows, energies and graphs."""

PROGRAMS: dict[str, str] = {}

PROGRAMS["dqn"] = """
import math
import random
from collections import namedtuple, deque
import torch
import torch.nn as nn
import torch.optim as optim
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))

class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)
    def push(self, *args):
        self.memory.append(Transition(*args))
    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)
    def __len__(self):
        return len(self.memory)

class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 16)
        self.layer2 = nn.Linear(16, 16)
        self.layer3 = nn.Linear(16, n_actions)
    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)

BATCH_SIZE, GAMMA, EPS_START, EPS_END, EPS_DECAY, TAU, LR, n_actions = 16, 0.99, 0.9, 0.05, 100, 0.005, 1e-3, 2
policy_net, target_net = DQN(4, n_actions).to(device), DQN(4, n_actions).to(device)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory, steps_done, result = ReplayMemory(100), 0, []

def select_action(state):
    global steps_done
    eps_threshold = EPS_END + (EPS_START - EPS_END) * math.exp(-1. * steps_done / EPS_DECAY)
    steps_done += 1
    if random.random() > eps_threshold:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(n_actions)]], device=device, dtype=torch.long)

def optimize_model():
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(BATCH_SIZE, device=device)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected_state_action_values = (next_state_values * GAMMA) + reward_batch
    criterion = nn.SmoothL1Loss()
    loss = criterion(state_action_values, expected_state_action_values.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    result.append(loss.item())

state = torch.randn(1, 4, device=device)
for t in range(60):
    action = select_action(state)
    reward = torch.tensor([1.0 if action.item() == (state.sum() > 0).item() else -1.0], device=device)
    next_state = None if t % 10 == 9 else 0.9 * state + 0.3 * torch.randn(1, 4)
    memory.push(state, action, next_state, reward)
    state = torch.randn(1, 4) if next_state is None else next_state
    optimize_model()
    target_net_state_dict, policy_net_state_dict = target_net.state_dict(), policy_net.state_dict()
    for key in policy_net_state_dict:
        target_net_state_dict[key] = policy_net_state_dict[key] * TAU + target_net_state_dict[key] * (1 - TAU)
    target_net.load_state_dict(target_net_state_dict)
"""

PROGRAMS["reinforce"] = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

torch.manual_seed(543)

class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 16)
        self.dropout = nn.Dropout(p=0.6)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []
    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)

policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()

def select_action(state):
    state = torch.from_numpy(state).unsqueeze(0)
    probs = policy(state)
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()

def finish_episode(gamma=0.99):
    R, policy_loss, returns = 0, [], []
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return policy_loss.item()

rng, result = np.random.default_rng(0), []
for i_episode in range(5):
    state = rng.normal(size=4)
    for t in range(1, 12):
        action = select_action(state)
        policy.rewards.append(float(action == (state[0] > 0)))
        state = 0.8 * state + rng.normal(size=4)
    result.append(finish_episode())
"""

PROGRAMS["actor_critic"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

torch.manual_seed(0)

class ActorCritic(nn.Module):
    def __init__(self, num_inputs, num_outputs, hidden_size, std=0.0):
        super(ActorCritic, self).__init__()
        self.critic = nn.Sequential(nn.Linear(num_inputs, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 1))
        self.actor = nn.Sequential(nn.Linear(num_inputs, hidden_size), nn.Tanh(), nn.Linear(hidden_size, num_outputs))
        self.log_std = nn.Parameter(torch.ones(1, num_outputs) * std)
    def forward(self, x):
        value = self.critic(x)
        mu = self.actor(x)
        std = self.log_std.exp().expand_as(mu)
        return Normal(mu, std), value

def compute_gae(next_value, rewards, masks, values, gamma=0.99, tau=0.95):
    values = values + [next_value]
    gae, returns = 0, []
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + gamma * values[step + 1] * masks[step] - values[step]
        gae = delta + gamma * tau * masks[step] * gae
        returns.insert(0, gae + values[step])
    return returns

model = ActorCritic(3, 2, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
state = torch.randn(4, 3)
log_probs, values, rewards, masks, states, actions = [], [], [], [], [], []
with torch.no_grad():
    for t in range(8):
        dist, value = model(state)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        values.append(value)
        rewards.append(-(action - state[:, :2]).pow(2).sum(1, keepdim=True))
        masks.append(torch.full((4, 1), float(t != 5)))
        states.append(state)
        actions.append(action)
        state = state * 0.9 + 0.1 * torch.randn_like(state)
    _, next_value = model(state)
returns = torch.cat(compute_gae(next_value, rewards, masks, values)).detach()
log_probs, values, states, actions = torch.cat(log_probs), torch.cat(values), torch.cat(states), torch.cat(actions)
advantage = returns - values
advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
result = []
for epoch in range(10):
    for ids in torch.randperm(states.size(0)).chunk(2):
        dist, value = model(states[ids])
        entropy = dist.entropy().mean()
        ratio = (dist.log_prob(actions[ids]) - log_probs[ids]).sum(1, keepdim=True).exp()
        surr1 = ratio * advantage[ids]
        surr2 = torch.clamp(ratio, 1.0 - 0.2, 1.0 + 0.2) * advantage[ids]
        actor_loss = -torch.min(surr1, surr2).mean()
        critic_loss = (returns[ids] - value).pow(2).mean()
        loss = 0.5 * critic_loss + actor_loss - 0.001 * entropy
        optimizer.zero_grad()
        loss.backward()
        total_norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    result.append(loss.item())
result.append(critic_loss.item() / 1e3 + result[0] - 1)
"""

PROGRAMS["real_nvp"] = """
import torch
from torch import nn, distributions

class RealNVP(nn.Module):
    def __init__(self, nets, nett, mask, prior):
        super(RealNVP, self).__init__()
        self.prior = prior
        self.mask = nn.Parameter(mask, requires_grad=False)
        self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])
    def g(self, z):
        x = z
        for i in range(len(self.t)):
            x_ = x * self.mask[i]
            s = self.s[i](x_) * (1 - self.mask[i])
            t = self.t[i](x_) * (1 - self.mask[i])
            x = x_ + (1 - self.mask[i]) * (x * torch.exp(s) + t)
        return x
    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s = self.s[i](z_) * (1 - self.mask[i])
            t = self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J
    def log_prob(self, x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp
    def sample(self, batchSize):
        z = self.prior.sample((batchSize, 1))
        return self.g(z.squeeze(1))

torch.manual_seed(0)
nets = lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh())
nett = lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2))
masks = torch.tensor([[0, 1], [1, 0]] * 2, dtype=torch.get_default_dtype())
prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
flow = RealNVP(nets, nett, masks, prior)
optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad == True], lr=1e-2)
theta = torch.rand(64) * 3.14
data = torch.stack([torch.cos(theta), torch.sin(theta)], dim=-1) + 0.05 * torch.randn(64, 2)
result = []
for t in range(20):
    loss = -flow.log_prob(data).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    result.append(loss.item())
with torch.no_grad():
    z, _ = flow.f(data)
    assert torch.allclose(flow.g(z), data, atol=1e-8)
    result.append(-flow.sample(16).abs().mean().item())
"""

PROGRAMS["energy_based"] = """
import torch
import torch.nn as nn

class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

torch.manual_seed(42)
model = nn.Sequential(nn.Linear(2, 16), Swish(), nn.Linear(16, 16), Swish(), nn.Linear(16, 1))

def langevin(model, inp, steps=5, step_size=0.1):
    is_training = model.training
    model.eval()
    for p in model.parameters():
        p.requires_grad = False
    inp.requires_grad = True
    had_gradients_enabled = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    noise = torch.randn(inp.shape, device=inp.device)
    for _ in range(steps):
        noise.normal_(0, 0.05)
        inp.data.add_(noise.data)
        inp.data.clamp_(min=-3.0, max=3.0)
        out = -model(inp)
        out.sum().backward()
        inp.grad.data.clamp_(-0.3, 0.3)
        inp.data.add_(-step_size * inp.grad.data)
        inp.grad.detach_()
        inp.grad.zero_()
    for p in model.parameters():
        p.requires_grad = True
    model.train(is_training)
    torch.set_grad_enabled(had_gradients_enabled)
    return inp.detach()

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.0, 0.999))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.97)
result = []
for step in range(15):
    real = torch.randn(32, 2) * 0.3 + 1
    fake = langevin(model, torch.rand(32, 2) * 4 - 2)
    real_out, fake_out = model(torch.cat([real, fake], dim=0)).chunk(2, dim=0)
    reg_loss = 0.1 * (real_out ** 2 + fake_out ** 2).mean()
    cdiv_loss = fake_out.mean() - real_out.mean()
    loss = reg_loss + cdiv_loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    scheduler.step()
    result.append(loss.item())
"""

PROGRAMS["diffusion"] = """
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)

def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))

class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(SinusoidalPosEmb(8), nn.Linear(8, 16), nn.SiLU())
        self.inp, self.out = nn.Linear(2, 16), nn.Sequential(nn.SiLU(), nn.Linear(16, 2))
    def forward(self, x, t):
        return self.out(self.inp(x) + self.time(t))

torch.manual_seed(0)
timesteps = 20
betas = torch.linspace(1e-4, 0.2, timesteps)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)
model = Denoiser()
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x0 = torch.stack([torch.cos(torch.linspace(0, 6, 64)), torch.sin(torch.linspace(0, 6, 64))], 1)
result = []
for step in range(30):
    t = torch.randint(0, timesteps, (64,)).long()
    noise = torch.randn_like(x0)
    x_noisy = extract(alphas_cumprod.sqrt(), t, x0.shape) * x0 + extract((1 - alphas_cumprod).sqrt(), t, x0.shape) * noise
    loss = F.smooth_l1_loss(model(x_noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p, q in zip(ema.parameters(), model.parameters()):
        p.data.mul_(0.9).add_(q.data, alpha=0.1)
    result.append(loss.item())

@torch.no_grad()
def p_sample(model, x, i):
    t = torch.full((x.shape[0],), i, dtype=torch.long)
    mean = extract(alphas.rsqrt(), t, x.shape) * (x - extract(betas, t, x.shape) * model(x, t) / extract((1 - alphas_cumprod).sqrt(), t, x.shape))
    return mean if i == 0 else mean + torch.sqrt(extract(posterior_variance, t, x.shape)) * torch.randn_like(x)

x = torch.randn(16, 2)
for i in reversed(range(0, timesteps)):
    x = p_sample(ema, x, i)
result.append(x.norm(dim=1).mean().item() / 1e3)
"""

PROGRAMS["graph_network"] = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter
from torch.nn.modules.module import Module

class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.empty(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.empty(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()
    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)
    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.matmul(adj, support)
        return output + self.bias if self.bias is not None else output
    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"

class GAT(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.W, self.a = nn.Linear(i, o, bias=False), nn.Parameter(torch.zeros(size=(2 * o, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
    def forward(self, h, adj):
        Wh, n = self.W(h), h.size(0)
        e = F.leaky_relu(Wh @ self.a[:Wh.size(1)] + (Wh @ self.a[Wh.size(1):]).T, 0.2)
        attention = torch.where(adj > 0, e, -9e15 * torch.ones_like(e))
        return F.elu(F.softmax(attention, dim=1) @ Wh)

torch.manual_seed(42)
n = 16
edge_index = torch.randint(0, n, (2, 40))
A = torch.zeros(n, n)
A.index_put_((edge_index[0], edge_index[1]), torch.ones(40))
A = ((A + A.t() + torch.eye(n)) > 0).to(A.dtype)
deg = A.sum(1).pow(-0.5)
adj = deg.view(-1, 1) * A * deg.view(1, -1)
x, labels = torch.randn(n, 6), torch.arange(n) % 3
idx_train = torch.tensor([0, 1, 2, 5, 7, 9, 11])
gc1, gat, gc2 = GraphConvolution(6, 8), GAT(8, 8), GraphConvolution(8, 3)
assert repr(gc1) == "GraphConvolution (6 -> 8)"
optimizer = torch.optim.Adam([*gc1.parameters(), *gat.parameters(), *gc2.parameters()], lr=0.02, weight_decay=5e-4)
result = []
for epoch in range(15):
    h = F.dropout(F.relu(gc1(x, adj)), 0.2, training=True)
    h = gat(h, A)
    row, col = edge_index
    message = torch.zeros_like(h).scatter_add(0, row.view(-1, 1).expand(-1, 8), h[col])
    pooled = torch.zeros_like(h).scatter_reduce(0, row[:, None].expand(-1, 8), h[col], reduce="amax", include_self=False)
    out = F.log_softmax(gc2(h + 0.1 * message + 0.1 * pooled, adj), dim=1)
    loss = F.nll_loss(out[idx_train], labels[idx_train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
"""

PROGRAMS["contrastive_and_barlow"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class NTXent(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature
    def forward(self, z_i, z_j):
        N = z_i.shape[0]
        z = F.normalize(torch.cat([z_i, z_j], dim=0), dim=1)
        similarity_matrix = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2)
        sim_ij, sim_ji = torch.diag(similarity_matrix, N), torch.diag(similarity_matrix, -N)
        positives = torch.cat([sim_ij, sim_ji], dim=0)
        mask = (~torch.eye(2 * N, 2 * N, dtype=bool)).to(z.dtype)
        nominator = torch.exp(positives / self.temperature)
        denominator = mask * torch.exp(similarity_matrix / self.temperature)
        return torch.mean(-torch.log(nominator / torch.sum(denominator, dim=1)))

def off_diagonal(x):
    n, m = x.shape
    assert n == m
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Linear(16, 4))
bn = nn.BatchNorm1d(4, affine=False)
optimizer = torch.optim.SGD(encoder.parameters(), 0.1, momentum=0.9)
x, result = torch.randn(12, 6), []
for _ in range(10):
    z1, z2 = encoder(x + 0.1 * torch.randn_like(x)), encoder(x + 0.1 * torch.randn_like(x))
    c = (bn(z1).T @ bn(z2)).div_(12)
    on_diag = torch.diagonal(c).add_(-1).pow_(2).sum()
    off_diag = off_diagonal(c).pow_(2).sum()
    loss = NTXent()(z1, z2) + 0.1 * (on_diag + 0.05 * off_diag)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
"""
