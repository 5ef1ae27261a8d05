"""Training programs as PyTorch users write them: equal numbers with tape in the place of torch."""

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

pytorch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("float64")
STEPS = 20
pytorch.set_num_threads(1)
PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def descend(model: Any, rate: float = 0.1) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.data -= rate * p.grad
    model.zero_grad()


def state_of(model: Any) -> list[Any]:
    return [x.detach().numpy() for x in model.state_dict().values()]


@program
def mlp_hundred_steps(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(8, 16)
            self.fc2 = nn.Linear(16, 16)
            self.out = nn.Linear(16, 4)

        def forward(self, x):
            x = F.relu(self.fc1(x))
            x = torch.tanh(self.fc2(x))
            return self.out(x)

    torch.manual_seed(0)
    model, criterion = Net(), nn.CrossEntropyLoss()
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    losses = []
    model.train()
    for _ in range(100):
        loss = criterion(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.5 * p.grad
        losses.append(loss.item())
    model.eval()
    return losses, state_of(model), (model(x).argmax(1) == y).sum().item()


@program
def lenet(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(16 * 3 * 3, 24), nn.ReLU(), nn.Dropout(0.25), nn.Linear(24, 10),
    )  # fmt: skip
    x, y = torch.randn(8, 1, 20, 20), torch.randint(10, (8,))
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        descend(model)
        losses.append(loss.item())
    return losses, state_of(model)


@program
def lstm_classifier(torch: Any) -> Any:
    nn = torch.nn

    class Classifier(nn.Module):
        def __init__(self, vocabulary, size, hidden, classes):
            super(Classifier, self).__init__()
            self.embedding = nn.Embedding(vocabulary, size, padding_idx=0)
            self.lstm = nn.LSTM(size, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
            self.fc = nn.Linear(2 * hidden, classes)

        def forward(self, tokens):
            _, (hidden, _) = self.lstm(self.embedding(tokens))
            return self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1))

    torch.manual_seed(2)
    model = Classifier(20, 5, 6, 2)
    tokens, labels = torch.randint(0, 20, (4, 7)), torch.tensor([0, 1, 1, 0])
    losses = []
    for _ in range(STEPS):
        loss = nn.CrossEntropyLoss()(model(tokens), labels)
        loss.backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        descend(model, 1.0)
        losses += [loss.item(), total.item()]
    return losses, state_of(model)


@program
def transformer(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, size, heads):
            super().__init__()
            self.attention = nn.MultiheadAttention(size, heads, batch_first=True)
            self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(2)])
            self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

        def forward(self, x):
            mask = torch.triu(torch.ones(x.size(1), x.size(1)), diagonal=1).bool()
            normed = self.norms[0](x)
            attended, _ = self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)
            x = x + attended
            return x + self.mlp(self.norms[1](x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(11, 8)
            self.place = nn.Parameter(torch.zeros(1, 6, 8))
            self.blocks = nn.Sequential(*[Block(8, 2) for _ in range(2)])
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.token.weight  # tied

        def forward(self, tokens):
            return self.head(self.blocks(self.token(tokens) + self.place))

    torch.manual_seed(3)
    model = Model()
    tokens = torch.randint(0, 11, (3, 7))
    losses = []
    for _ in range(STEPS):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 11), tokens[:, 1:].reshape(-1))
        model.zero_grad()
        loss.backward()
        descend(model)
        losses.append(loss.item())
    return losses, state_of(model), sum(p.numel() for p in model.parameters()), list(model.state_dict())


@program
def variational_autoencoder(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(12, 8)
            self.mu, self.logvar = nn.Linear(8, 2), nn.Linear(8, 2)
            self.decoder = nn.Sequential(OrderedDict([("hidden", nn.Linear(2, 8)), ("out", nn.Linear(8, 12))]))

        def forward(self, x):
            h = F.elu(self.encoder(x))
            mu, logvar = self.mu(h), self.logvar(h)
            std = torch.exp(0.5 * logvar)
            return torch.sigmoid(self.decoder(mu + torch.randn_like(std) * std)), mu, logvar

    torch.manual_seed(4)
    model, x = VAE(), torch.rand(9, 12)
    losses = []
    for _ in range(STEPS):
        recon, mu, logvar = model(x)
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = F.binary_cross_entropy(recon, x, reduction="sum") + kld
        loss.backward()
        descend(model, 0.01)
        losses.append(loss.item())
    return losses, state_of(model)


@program
def batch_norm_network(torch: Any) -> Any:
    nn = torch.nn

    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = block(3, 4)
            self.first, self.second = block(4, 4), block(4, 4)
            self.pool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(4, 3)

        def forward(self, x):
            x = self.stem(x)
            x = x + self.second(self.first(x))
            return self.fc(torch.flatten(self.pool(x), 1))

    torch.manual_seed(5)
    model, x, y = Residual(), torch.randn(6, 3, 8, 8), torch.randint(0, 3, (6,))
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        descend(model)
    model.eval()
    return loss.item(), state_of(model), model(x).detach().numpy()


@program
def frozen_parameters(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    for p in model[0].parameters():
        p.requires_grad = False
    x = torch.randn(7, 4)
    for _ in range(STEPS):
        loss = nn.MSELoss()(model(x), x.sum(1, keepdim=True))
        loss.backward()
        descend(model)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert model[0].weight.grad is None
    model.requires_grad_(True)
    return loss.item(), state_of(model), trained, len([p for p in model.parameters() if p.requires_grad])


@program
def deep_copies_and_targets(torch: Any) -> Any:
    torch.manual_seed(7)
    online = torch.nn.Linear(3, 2)
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad_(False)
    again = copy.deepcopy(target)
    assert [p.requires_grad for p in again.parameters()] == [False, False]
    assert isinstance(again.weight, torch.nn.Parameter)
    x = torch.randn(4, 3)
    for _ in range(STEPS):
        loss = ((online(x) - target(x) - 1.0) ** 2).mean()
        loss.backward()
        descend(online)
        with torch.no_grad():
            for a, b in zip(target.parameters(), online.parameters()):
                a.mul_(0.9).add_(0.1 * b)
    return loss.item(), state_of(online), state_of(target), state_of(again)


@program
def state_dicts(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(8)
    first, second = (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)) for _ in range(2))
    saved = {k: v.clone() for k, v in first.state_dict().items()}
    before = first(torch.ones(2, 2) * torch.tensor([[1.0], [2.0]]))
    message = second.load_state_dict(saved)
    texts = [str(message)]
    for wrong in (
        {k: v for k, v in saved.items() if k != "0.bias"},
        {**saved, "more": saved["0.bias"]},
        {**saved, "0.bias": torch.ones(4)},
    ):
        try:
            second.load_state_dict(wrong)
        except RuntimeError as error:
            texts.append(str(error).replace("torch.", "").replace("tape.", "").split("\n\t")[0])
    missing = second.load_state_dict({"0.bias": saved["0.bias"]}, strict=False).missing_keys
    file = io.BytesIO()
    torch.save(second.state_dict(), file)
    file.seek(0)
    third = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    third.load_state_dict(torch.load(file))
    return before.detach().numpy(), texts, missing, state_of(third), list(saved)


@program
def hooks(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(9)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    seen: list[Any] = []
    handles = [m.register_forward_hook(lambda m, i, o: seen.append((type(m).__name__, o.sum().item()))) for m in model]
    model[0].register_forward_pre_hook(lambda m, args: (args[0] * 2.0,))
    model[2].register_forward_hook(lambda m, args, kwargs, out: out + 1.0, with_kwargs=True)
    model(torch.ones(1, 3))
    handles[0].remove()
    out = model(torch.ones(1, 3))
    gradients: list[Any] = []
    model[0].weight.register_hook(lambda g: gradients.append(g.sum().item()))
    out.sum().backward()
    return seen, out.detach().numpy(), gradients


@program
def module_containers(torch: Any) -> Any:
    nn = torch.nn

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(3, 2) for _ in range(3)])
            self.experts.append(nn.Linear(3, 2))
            self.acts = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU(0.2)})
            self.gates = nn.ParameterList([nn.Parameter(torch.ones(2) * i) for i in range(4)])
            self.scales = nn.ParameterDict({"all": nn.Parameter(torch.tensor(0.5))})

        def forward(self, x, act="relu"):
            total = 0
            for i, expert in enumerate(self.experts):
                total = total + self.gates[i] * self.acts[act](expert(x))
            return total * self.scales["all"]

    torch.manual_seed(10)
    model, x = Mixture(), torch.randn(5, 3)
    for k in range(STEPS):
        loss = (model(x, act=["relu", "lrelu"][k % 2]) ** 2).sum()
        loss.backward()
        descend(model, 0.01)
    names = [n for n, _ in model.named_modules()], [n for n, _ in model.named_parameters()]
    return loss.item(), state_of(model), names, len(model.experts), list(model.acts), len(model.experts[1:])


@program
def shared_modules(torch: Any) -> Any:
    nn = torch.nn

    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.left = nn.Linear(3, 2)
            self.right = self.left
            self.both = nn.Sequential(self.left, nn.Tanh())

        def forward(self, a, b):
            return nn.functional.cosine_similarity(self.both(a), torch.tanh(self.right(b)))

    torch.manual_seed(11)
    model, a, b = Siamese(), torch.randn(4, 3), torch.randn(4, 3)
    for _ in range(STEPS):
        loss = nn.CosineEmbeddingLoss()(model.left(a), model.right(b), torch.tensor([1, -1, 1, -1]))
        (loss + model(a, b).mean()).backward()
        descend(model)
    other = copy.deepcopy(model)
    assert other.left is other.right is other.both[0]
    return loss.item(), state_of(model), [n for n, _ in model.named_parameters()], len(list(model.modules()))


@program
def own_initialisation(torch: Any) -> Any:
    nn = torch.nn

    def init_weights(m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight, gain=nn.init.calculate_gain("relu"))
            m.bias.data.fill_(0.01)
        elif isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            nn.init.constant_(m.bias, 0.0)

    torch.manual_seed(12)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 4))
    model.apply(init_weights)
    nn.init.orthogonal_(model[2].weight)
    return state_of(model), model(torch.ones(1, 1, 4, 4)).detach().numpy(), repr(model)


@program
def own_layer_with_buffers(torch: Any) -> Any:
    nn = torch.nn

    class Running(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(size))
            self.register_buffer("total", torch.zeros(size))
            self.register_buffer("scratch", torch.zeros(size), persistent=False)
            self.register_parameter("bias", None)
            self.plain = torch.ones(size)

        def forward(self, x):
            if self.training:
                self.total += x.detach().sum(0)
            return x * self.weight - self.total * self.plain

    torch.manual_seed(13)
    model = Running(3)
    for _ in range(STEPS):
        (model(torch.ones(2, 3)) ** 2).sum().backward()
        descend(model, 1e-4)
    names = [n for n, _ in model.named_buffers()], [n for n, _ in model.named_parameters()]
    return state_of(model), names, list(model.state_dict())


@program
def gru_language_model(torch: Any) -> Any:
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn, self.out = nn.Embedding(9, 4), nn.GRU(4, 6, batch_first=True), nn.Linear(6, 9)

        def forward(self, x, h=None):
            y, h = self.rnn(self.emb(x), h)
            return self.out(y), h

    torch.manual_seed(14)
    model, x, h, losses = Model(), torch.randint(0, 9, (2, 12)), None, []
    for k in range(STEPS):
        part = x[:, k % 2 : 10 + k % 2]
        logits, h = model(part[:, :-1], h)
        h = h.detach()
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), part[:, 1:])
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        descend(model)
        losses.append(loss.item())
    return losses, state_of(model)


@program
def generative_adversarial_network(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(15)
    G = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 3), nn.Tanh())
    D = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid())
    criterion, real, losses = nn.BCELoss(), torch.rand(5, 3), []
    for _ in range(STEPS):
        fake = G(torch.randn(5, 2))
        d_loss = criterion(D(real), torch.ones(5, 1)) + criterion(D(fake.detach()), torch.zeros(5, 1))
        D.zero_grad()
        d_loss.backward()
        descend(D)
        g_loss = criterion(D(fake), torch.ones(5, 1))
        G.zero_grad()
        g_loss.backward()
        descend(G)
        losses += [d_loss.item(), g_loss.item()]
    return losses, state_of(G), state_of(D)


@program
def autoencoder_of_images(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(16)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(True))
    decoder = nn.Sequential(nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1), nn.Sigmoid())
    x = torch.rand(3, 1, 8, 8)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(decoder(encoder(x)), x)
        loss.backward()
        descend(encoder, 1.0)
        descend(decoder, 1.0)
    return loss.item(), state_of(encoder), state_of(decoder)


@program
def physics_informed(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(17)
    net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))
    t = torch.linspace(0.0, 1.0, 12).reshape(-1, 1).requires_grad_(True)
    losses = []
    for _ in range(STEPS):
        u = net(t)
        du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        loss = ((du + u) ** 2).mean() + (u[0] - 1.0).pow(2).sum()
        net.zero_grad()
        loss.backward()
        descend(net, 0.05)
        losses.append(loss.item())
    return losses, state_of(net)


@program
def wrapped_parameters(torch: Any) -> Any:
    nn = torch.nn

    class Polynomial(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Parameter(torch.randn(())) for _ in range(3))

        def forward(self, x):
            return self.a + self.b * x + self.c * x**2

        def string(self):
            return f"y = {self.a.item():.6f} + {self.b.item():.6f} x + {self.c.item():.6f} x^2"

    torch.manual_seed(18)
    model, x = Polynomial(), torch.linspace(-1, 1, 30)
    criterion = nn.MSELoss(reduction="sum")
    for _ in range(STEPS):
        loss = criterion(model(x), torch.sin(x))
        loss.backward()
        descend(model, 0.01)
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 2.0, model.parameters())
    return loss.item(), model.string(), vector.detach().numpy(), state_of(model)


@program
def accumulated_gradients_and_printing(torch: Any) -> Any:
    nn = torch.nn

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3))
            self.drop, self.pool = nn.Dropout(p=0.1), nn.MaxPool2d(kernel_size=2, stride=2)
            self.conv = nn.Conv2d(1, 2, kernel_size=(3, 3), padding=1, bias=False)
            self.loss = nn.CrossEntropyLoss(reduction="sum")

    class Empty(nn.Module):
        pass

    torch.manual_seed(19)
    model = Outer()
    x = torch.randn(6, 2)
    for part in x.split(2):
        (model.blocks[1](model.blocks[0](part)).sum() / 3).backward()
    sums = [None if p.grad is None else p.grad.sum().item() for p in model.parameters()]
    model.zero_grad(set_to_none=False)
    kept = [p.grad is None for p in model.parameters()]
    return sums, kept, repr(model), repr(Empty()), [type(m).__name__ for m in model.children()]


def compared(a: Any, b: Any, path: str) -> None:
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            compared(x, y, f"{path}[{i}]")
    elif isinstance(a, (float, np.ndarray)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=path)
    else:
        assert a == b, path


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.quick) if n in ("hooks", "wrapped_parameters", "frozen_parameters") else n
    for n in PROGRAMS
])  # fmt: skip
def test_numbers_are_those_of_pytorch(name: str) -> None:
    compared(PROGRAMS[name](tape), PROGRAMS[name](pytorch), name)


def test_pickles_keep_what_is_frozen() -> None:
    model = tape.nn.Sequential(tape.nn.Linear(2, 3), tape.nn.BatchNorm1d(3), tape.nn.ReLU())
    model[0].bias.requires_grad_(False)
    again = pickle.loads(pickle.dumps(model))
    assert [n for n, _ in again.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert repr(again) == repr(model)
    compared(state_of(again), state_of(model), "state")
