"""Programs as PyTorch's users write them: recurrent networks and attention."""

PROGRAMS: dict[str, str] = {}

PROGRAMS["char_rnn"] = """
import torch
import torch.nn as nn

all_letters = "abcdefgh "
n_letters, n_hidden, n_categories = len(all_letters), 16, 3

def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][all_letters.find(letter)] = 1
    return tensor

class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(input_size + hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)
    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        hidden = self.i2h(combined)
        return self.softmax(self.i2o(combined)), hidden
    def initHidden(self):
        return torch.zeros(1, self.hidden_size)

torch.manual_seed(2)
rnn = RNN(n_letters, n_hidden, n_categories)
criterion = nn.NLLLoss()
learning_rate = 0.05

def train(category_tensor, line_tensor):
    hidden = rnn.initHidden()
    rnn.zero_grad()
    for i in range(line_tensor.size()[0]):
        output, hidden = rnn(line_tensor[i], hidden)
    loss = criterion(output, category_tensor)
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item()

lines, result = [("abba", 0), ("fed ", 1), ("high", 2)], []
for epoch in range(20):
    total = 0
    for line, category in lines:
        output, loss = train(torch.tensor([category], dtype=torch.long), lineToTensor(line))
        top_n, top_i = output.topk(1)
        guess = top_i[0].item()
        total += loss
    result.append(total / len(lines))
"""

PROGRAMS["lstm_language_model"] = """
import math
import torch
import torch.nn as nn

class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.2):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight
        self.init_weights()
        self.nhid, self.nlayers, self.ntoken = nhid, nlayers, ntoken
    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return decoded.log_softmax(dim=1), hidden
    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))

def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)

def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()

torch.manual_seed(1111)
train_data = batchify(torch.arange(160) % 11, 4)
model, criterion, lr, bptt = RNNModel(11, 12, 12, 2), nn.NLLLoss(), 2.0, 10
hidden, result = model.init_hidden(4), []
for i in list(range(0, train_data.size(0) - 1, bptt)) * 3:
    seq_len = min(bptt, len(train_data) - 1 - i)
    data, targets = train_data[i:i + seq_len], train_data[i + 1:i + 1 + seq_len].view(-1)
    model.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = model(data, hidden)
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)
    result.append(math.exp(loss.item()))
model.eval()
with torch.no_grad():
    output, hidden = model(torch.zeros(1, 1, dtype=torch.long), model.init_hidden(1))
    word_weights = output.squeeze().div(1.0).exp().cpu()
    result.append(word_weights.min().item())
"""

PROGRAMS["gru_classifier"] = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def collate_fn(batch):
    texts, labels = zip(*batch)
    lengths = torch.tensor([len(t) for t in texts])
    padded = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=0)
    return padded, lengths, torch.tensor(labels)

class GRUClassifier(nn.Module):
    def __init__(self, vocab_size=20, embed_dim=8, hidden_dim=8, num_classes=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.gru = nn.GRU(embed_dim, hidden_dim, num_layers=1, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * hidden_dim)
        self.fc = nn.Linear(2 * hidden_dim, num_classes)
    def forward(self, x, lengths):
        out, h_n = self.gru(self.embedding(x))
        mask = torch.arange(x.size(1), device=x.device)[None, :] < lengths[:, None]
        pooled = (out * mask.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)
        return self.fc(self.norm(pooled + torch.cat([h_n[-2], h_n[-1]], dim=-1)))

torch.manual_seed(0)
data = [(torch.randint(1, 20, (int(n),)), int(n) % 2) for n in torch.randint(3, 9, (24,))]
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate_fn)
model, criterion = GRUClassifier(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
result = []
for epoch in range(6):
    total_loss = 0
    for x, lengths, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x, lengths), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        total_loss += loss.item()
    result.append(total_loss / len(loader))
assert model.embedding.weight[0].abs().sum().item() == 0
"""

PROGRAMS["word2vec"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
corpus = "we are about to study the idea of a computational process".split()
vocab = sorted(set(corpus))
word_to_ix = {w: i for i, w in enumerate(vocab)}
pairs = [(word_to_ix[corpus[i]], word_to_ix[corpus[j]]) for i in range(len(corpus))
         for j in range(max(0, i - 2), min(len(corpus), i + 3)) if i != j]

class SkipGram(nn.Module):
    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.u_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.v_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.u_embeddings.weight.data.uniform_(-0.5 / embedding_dim, 0.5 / embedding_dim)
        nn.init.constant_(self.v_embeddings.weight.data, 0)
    def forward(self, pos_u, pos_v, neg_v):
        emb_u, emb_v = self.u_embeddings(pos_u), self.v_embeddings(pos_v)
        score = torch.sum(torch.mul(emb_u, emb_v), dim=1)
        score = -F.logsigmoid(torch.clamp(score, max=10, min=-10))
        neg = torch.bmm(self.v_embeddings(neg_v), emb_u.unsqueeze(2)).squeeze(2)
        neg = -torch.sum(F.logsigmoid(-torch.clamp(neg, max=10, min=-10)), dim=1)
        return torch.mean(score + neg)

model = SkipGram(len(vocab), 8)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)
freq = torch.ones(len(vocab)) / len(vocab)
u, v = torch.LongTensor([p[0] for p in pairs]), torch.LongTensor([p[1] for p in pairs])
result = []
for step in range(15):
    neg_v = torch.randint(0, len(vocab), (len(pairs), 3))
    loss = model(u, v, neg_v)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
W = F.normalize(model.u_embeddings.weight, p=2, dim=1)
sim, idx = torch.topk(W @ W.t(), 2, dim=1)
assert (idx[:, 0] == torch.arange(len(vocab))).all()
similarity = nn.CosineSimilarity(dim=1)(model.u_embeddings.weight[:1], model.u_embeddings.weight)
result.append(similarity.min().item())
"""

PROGRAMS["seq2seq_attention"] = """
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
    def forward(self, input):
        return self.gru(self.embedding(input))

class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa, self.Ua, self.Va = (nn.Linear(hidden_size, n) for n in (hidden_size, hidden_size, 1))
    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights

class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRUCell(2 * hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)
    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None, max_length=5):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(0)
        hidden, outputs, attentions = encoder_hidden[0], [], []
        for i in range(max_length):
            query = hidden.unsqueeze(1)
            context, attn = self.attention(query, encoder_outputs)
            hidden = self.gru(torch.cat((self.embedding(decoder_input), context), dim=2).squeeze(1), hidden)
            output = self.out(hidden)
            outputs.append(output)
            attentions.append(attn)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = output.topk(1)
                decoder_input = topi.detach()
        return F.log_softmax(torch.stack(outputs, 1), dim=-1), torch.cat(attentions, dim=1)

torch.manual_seed(0)
random.seed(0)
encoder, decoder = EncoderRNN(7, 10), AttnDecoderRNN(10, 7)
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=0.01)
criterion, result = nn.NLLLoss(), []
src = torch.randint(1, 7, (8, 5))
tgt = src.flip(dims=[1])
for epoch in range(8):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    use_teacher_forcing = True if random.random() < 0.5 else False
    encoder_outputs, encoder_hidden = encoder(src)
    decoder_outputs, attn = decoder(encoder_outputs, encoder_hidden, tgt if use_teacher_forcing else None)
    loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), tgt.reshape(-1))
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    result.append(loss.item())
"""

PROGRAMS["min_gpt"] = """
import math
import inspect
from dataclasses import dataclass
import torch
import torch.nn as nn
from torch.nn import functional as F

@dataclass
class GPTConfig:
    block_size: int = 12
    vocab_size: int = 11
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 16
    dropout: float = 0.1
    bias: bool = True

class LayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None
    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size))
                             .view(1, 1, config.block_size, config.block_size))
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash and not self.training:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = LayerNorm(config.n_embd, bias=config.bias), CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd))
    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd), wpe=nn.Embedding(config.block_size, config.n_embd),
            drop=nn.Dropout(config.dropout), h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=LayerNorm(config.n_embd, bias=config.bias)))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith("c_proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))
    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                torch.nn.init.zeros_(module.bias)
    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
    def configure_optimizers(self, weight_decay, learning_rate, betas):
        param_dict = {pn: p for pn, p in self.named_parameters() if p.requires_grad}
        optim_groups = [
            {"params": [p for n, p in param_dict.items() if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for n, p in param_dict.items() if p.dim() < 2], "weight_decay": 0.0}]
        fused_available = "fused" in inspect.signature(torch.optim.AdamW).parameters
        extra_args = dict(fused=True) if fused_available and torch.cuda.is_available() else dict()
        return torch.optim.AdamW(optim_groups, lr=learning_rate, betas=betas, **extra_args)
    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            idx_cond = idx if idx.size(1) <= self.config.block_size else idx[:, -self.config.block_size:]
            logits, _ = self(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx

torch.manual_seed(1337)
model = GPT(GPTConfig())
optimizer = model.configure_optimizers(1e-1, 1e-2, (0.9, 0.95))
data = torch.arange(200) * 3 % 11
result = []
for it in range(12):
    lr = 1e-2 * min(1.0, (it + 1) / 4)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    ix = torch.randint(len(data) - 12, (6,))
    x = torch.stack([data[i:i + 12] for i in ix])
    y = torch.stack([data[i + 1:i + 1 + 12] for i in ix])
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    result.append(loss.item())
model.eval()
out = model.generate(torch.zeros((2, 1), dtype=torch.long), max_new_tokens=14, top_k=4)
assert out.shape == (2, 15)
result.append(out.sum().item() / 1e6)
"""

PROGRAMS["translation_transformer"] = """
import math
import torch
import torch.nn as nn
from torch import Tensor

class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe, persistent=False)
    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[:x.size(0)])

class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers, dropout=0.2):
        super().__init__()
        self.model_type = "Transformer"
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        encoder_layers = nn.TransformerEncoderLayer(d_model, nhead, d_hid, dropout)
        self.transformer_encoder = nn.TransformerEncoder(encoder_layers, nlayers, enable_nested_tensor=False)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()
    def init_weights(self) -> None:
        initrange = 0.1
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.linear.bias.data.zero_()
        self.linear.weight.data.uniform_(-initrange, initrange)
    def forward(self, src: Tensor, src_mask: Tensor = None) -> Tensor:
        src = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        return self.linear(self.transformer_encoder(src, src_mask))

def generate_square_subsequent_mask(sz: int) -> Tensor:
    return torch.triu(torch.ones(sz, sz) * float("-inf"), diagonal=1)

torch.manual_seed(0)
model = TransformerModel(9, 8, 2, 16, 2)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.95)
data = (torch.arange(60) ** 2 % 9).view(2, -1).t().contiguous()
result = []
for epoch in range(2):
    model.train()
    for i in range(0, data.size(0) - 1, 6):
        seq_len = min(6, len(data) - 1 - i)
        src, tgt = data[i:i + seq_len], data[i + 1:i + 1 + seq_len].reshape(-1)
        output = model(src, generate_square_subsequent_mask(seq_len))
        loss = criterion(output.view(-1, 9), tgt)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        result.append(loss.item())
    scheduler.step()
model.eval()
with torch.no_grad():
    result.append(criterion(model(data[:-1], generate_square_subsequent_mask(29)).view(-1, 9), data[1:].reshape(-1)).item())
"""
