"""Programs as PyTorch's users write them: convolutions, and networks against each other."""

PROGRAMS: dict[str, str] = {}

PROGRAMS["gan"] = """
import torch
import torch.nn as nn

manualSeed = 999
torch.manual_seed(manualSeed)
nz, ngf, ndf, nc = 6, 4, 4, 1

def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)

netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, nc, 4, 2, 1, bias=False), nn.Tanh())
netD = nn.Sequential(
    nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, 1, 4, 1, 0, bias=False), nn.Sigmoid())
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
fixed_noise = torch.randn(8, nz, 1, 1)
real_label, fake_label = 1.0, 0.0
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
result = []
for i in range(6):
    netD.zero_grad()
    real = torch.rand(8, nc, 8, 8) * 2 - 1
    b_size = real.size(0)
    label = torch.full((b_size,), real_label, dtype=torch.get_default_dtype())
    output = netD(real).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    noise = torch.randn(b_size, nz, 1, 1)
    fake = netG(noise)
    label.fill_(fake_label)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()
    netG.zero_grad()
    label.fill_(real_label)
    output = netD(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    D_G_z2 = output.mean().item()
    optimizerG.step()
    result += [errD.item(), errG.item(), D_G_z2]
with torch.no_grad():
    fake = netG(fixed_noise).detach().cpu()
result.append(fake.abs().mean().item())
"""

PROGRAMS["wgan_gradient_penalty"] = """
import torch
import torch.autograd as autograd
from torch import nn

torch.manual_seed(0)
cuda = True if torch.cuda.is_available() else False
G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16, 0.8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1))
optimizer_G = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))

def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = torch.rand(real_samples.size(0), 1)
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = autograd.Variable(torch.ones(real_samples.shape[0], 1), requires_grad=False)
    gradients = autograd.grad(outputs=d_interpolates, inputs=interpolates, grad_outputs=fake,
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()

result = []
for i in range(12):
    real = torch.randn(16, 2) * 0.2 + torch.tensor([1.0, -1.0])
    optimizer_D.zero_grad()
    fake_imgs = G(torch.randn(16, 4))
    d_loss = -torch.mean(D(real)) + torch.mean(D(fake_imgs)) + 10 * compute_gradient_penalty(D, real.data, fake_imgs.data)
    d_loss.backward()
    optimizer_D.step()
    optimizer_G.zero_grad()
    if i % 3 == 0:
        g_loss = -torch.mean(D(G(torch.randn(16, 4))))
        g_loss.backward()
        optimizer_G.step()
    result.append(d_loss.item())
"""

PROGRAMS["lenet_digits"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import Dataset, DataLoader

class Digits(Dataset):
    def __init__(self, n, transform=None):
        self.images, self.labels, self.transform = torch.rand(n, 1, 28, 28), torch.arange(n) % 10, transform
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, idx):
        image = self.images[idx]
        return (self.transform(image) if self.transform else image), int(self.labels[idx])

class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(16 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)
    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, self.num_flat_features(x))
        x = F.dropout(F.relu(self.fc1(x)), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)
    def num_flat_features(self, x):
        size = x.size()[1:]
        num_features = 1
        for s in size:
            num_features *= s
        return num_features

torch.manual_seed(1)
loader = DataLoader(Digits(24, transform=lambda t: (t - 0.5) / 0.5), batch_size=12, shuffle=True, pin_memory=False)
model = Net()
optimizer = optim.Adadelta(model.parameters(), lr=1.0) if False else optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
result = []
for epoch in range(1, 4):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    result.append(test_loss / len(loader.dataset))
"""

PROGRAMS["resnet_block"] = """
import torch
import torch.nn as nn
from torch import Tensor
from typing import Optional

def conv3x3(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)

class BasicBlock(nn.Module):
    expansion: int = 1
    def __init__(self, inplanes, planes, stride=1, downsample: Optional[nn.Module] = None):
        super().__init__()
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample
    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)

class ResNet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.stem = nn.Sequential(conv3x3(3, 4), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        down = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8))
        self.layer1 = nn.Sequential(BasicBlock(4, 4), BasicBlock(4, 8, 2, down))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
    def forward(self, x):
        x = self.avgpool(self.layer1(self.stem(x)))
        return self.fc(torch.flatten(x, 1))

torch.manual_seed(0)
model = ResNet()
features = {}
model.layer1.register_forward_hook(lambda m, i, o: features.update(layer1=o.detach()))
decay = [p for n, p in model.named_parameters() if p.ndim > 1]
no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1]
optimizer = torch.optim.SGD([{"params": decay}, {"params": no_decay, "weight_decay": 0.0}], 0.05, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3, 5], gamma=0.1)
x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))
criterion, result = nn.CrossEntropyLoss().to("cpu"), []
for _ in range(7):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    result.append(loss.item())
assert features["layer1"].shape == (8, 8, 4, 4) and "layer1.0.bn1.running_var" in model.state_dict()
model.eval()
result.append(criterion(model(x), y).item())
"""

PROGRAMS["unet"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        mid_channels = mid_channels or out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels), nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1), nn.GroupNorm(2, out_channels), nn.SiLU())
    def forward(self, x):
        return self.double_conv(x)

class UNet(nn.Module):
    def __init__(self, n_classes=2):
        super().__init__()
        self.inc = DoubleConv(1, 4)
        self.down = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.up = nn.ConvTranspose2d(8, 4, kernel_size=2, stride=2)
        self.conv = DoubleConv(8, 4)
        self.outc = nn.Conv2d(4, n_classes, kernel_size=1)
    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.up(self.down(x1))
        diffY, diffX = x1.size()[2] - x2.size()[2], x1.size()[3] - x2.size()[3]
        x2 = F.pad(x2, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.outc(self.conv(torch.cat([x1, x2], dim=1)))

def dice_loss(input, target, epsilon=1e-6):
    inter = 2 * (input * target).sum(dim=(-1, -2))
    sets_sum = input.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    return 1 - ((inter + epsilon) / (sets_sum + epsilon)).mean()

torch.manual_seed(0)
net = UNet()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=1)
images = torch.rand(2, 1, 9, 9)
masks = (images.squeeze(1) > 0.5).long()
result = []
for step in range(6):
    pred = net(images)
    loss = F.cross_entropy(pred, masks)
    loss += dice_loss(F.softmax(pred, dim=1), F.one_hot(masks, 2).permute(0, 3, 1, 2).float())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
    optimizer.step()
    scheduler.step(-loss.item())
    result.append(loss.item())
"""

PROGRAMS["style_transfer"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

class ContentLoss(nn.Module):
    def __init__(self, target):
        super(ContentLoss, self).__init__()
        self.target = target.detach()
    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input

def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)

class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super(StyleLoss, self).__init__()
        self.target = gram_matrix(target_feature).detach()
    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input

class Normalization(nn.Module):
    def __init__(self, mean, std):
        super(Normalization, self).__init__()
        self.mean = torch.as_tensor(mean).view(-1, 1, 1)
        self.std = torch.as_tensor(std).view(-1, 1, 1)
    def forward(self, img):
        return (img - self.mean) / self.std

torch.manual_seed(0)
content_img, style_img = torch.rand(1, 3, 10, 10), torch.rand(1, 3, 10, 10)
cnn = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()).eval()
model = nn.Sequential(Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
content_losses, style_losses, i = [], [], 0
for layer in cnn.children():
    if isinstance(layer, nn.Conv2d):
        i += 1
        name = "conv_{}".format(i)
    elif isinstance(layer, nn.ReLU):
        name = "relu_{}".format(i)
        layer = nn.ReLU(inplace=False)
    else:
        name = "pool_{}".format(i)
    model.add_module(name, layer)
    if name == "conv_2":
        content_losses.append(ContentLoss(model(content_img).detach()))
        model.add_module("content_loss_{}".format(i), content_losses[-1])
    if name.startswith("conv"):
        style_losses.append(StyleLoss(model(style_img).detach()))
        model.add_module("style_loss_{}".format(i), style_losses[-1])
input_img = content_img.clone()
input_img.requires_grad_(True)
model.eval()
model.requires_grad_(False)
optimizer = optim.LBFGS([input_img])
run, result = [0], []
while run[0] <= 25:
    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = 1e4 * sum(sl.loss for sl in style_losses)
        content_score = sum(cl.loss for cl in content_losses)
        loss = style_score + content_score
        loss.backward()
        run[0] += 1
        result.append(style_score.item() + content_score.item())
        return style_score + content_score
    optimizer.step(closure)
with torch.no_grad():
    input_img.clamp_(0, 1)
"""

PROGRAMS["siamese_triplet"] = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class EmbeddingNet(nn.Module):
    def __init__(self):
        super(EmbeddingNet, self).__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(), nn.MaxPool2d(2, stride=2))
        self.fc = nn.Sequential(nn.Linear(4 * 3 * 3, 16), nn.PReLU(), nn.Linear(16, 2))
    def forward(self, x):
        output = self.convnet(x)
        return self.fc(output.view(output.size()[0], -1))

class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin
    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean((1 - label) * torch.pow(euclidean_distance, 2) +
                          label * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2))

torch.manual_seed(0)
prototypes = torch.rand(3, 1, 8, 8)
labels = torch.arange(12) % 3
images = prototypes[labels] + 0.2 * torch.randn(12, 1, 8, 8)
net, triplet, contrastive = EmbeddingNet(), nn.TripletMarginLoss(margin=1.0, p=2), ContrastiveLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
result = []
for step in range(12):
    out = net(images)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    dist = torch.cdist(out, out)
    hardest_pos = dist.masked_fill(~same, float("-inf")).argmax(1)
    hardest_neg = dist.masked_fill(same, float("inf")).argmin(1)
    loss = triplet(out, out[hardest_pos], out[hardest_neg])
    loss = loss + contrastive(out[:6], out[6:], (labels[:6] != labels[6:]).float().unsqueeze(1))
    loss = loss + F.margin_ranking_loss(dist[0, 1], dist[0, 3], torch.ones(()), margin=0.5)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
"""

PROGRAMS["siren_and_nerf"] = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

class SineLayer(nn.Module):
    def __init__(self, in_features, out_features, is_first=False, omega_0=30):
        super().__init__()
        self.omega_0, self.is_first, self.in_features = omega_0, is_first, in_features
        self.linear = nn.Linear(in_features, out_features)
        with torch.no_grad():
            if self.is_first:
                self.linear.weight.uniform_(-1 / self.in_features, 1 / self.in_features)
            else:
                self.linear.weight.uniform_(-np.sqrt(6 / self.in_features) / self.omega_0, np.sqrt(6 / self.in_features) / self.omega_0)
    def forward(self, input):
        return torch.sin(self.omega_0 * self.linear(input))

def positional_encoding(tensor, num_encoding_functions=3):
    encoding = [tensor]
    frequency_bands = 2.0 ** torch.linspace(0.0, num_encoding_functions - 1, num_encoding_functions, dtype=tensor.dtype)
    for freq in frequency_bands:
        for func in [torch.sin, torch.cos]:
            encoding.append(func(tensor * freq))
    return torch.cat(encoding, dim=-1)

def cumprod_exclusive(tensor):
    cumprod = torch.cumprod(tensor, -1)
    cumprod = torch.roll(cumprod, 1, -1)
    cumprod[..., 0] = 1.0
    return cumprod

torch.manual_seed(9458)
np.random.seed(9458)
net = nn.Sequential(nn.Linear(21, 16), nn.ReLU(), SineLayer(16, 16, omega_0=3), nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
ii, jj = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy")
directions = torch.stack([(ii - 2) / 4, -(jj - 2) / 4, -torch.ones_like(ii)], dim=-1)
pose = torch.eye(4)
ray_d = torch.sum(directions[..., None, :] * pose[:3, :3], dim=-1)
ray_o = pose[:3, -1].expand(ray_d.shape)
target = torch.rand(4, 4, 3)
result = []
for i in range(10):
    depth = torch.linspace(2.0, 6.0, 8) + torch.rand(list(ray_o.shape[:-1]) + [8]) * 4 / 8
    pts = ray_o[..., None, :] + ray_d[..., None, :] * depth[..., :, None]
    field = net(positional_encoding(pts.reshape((-1, 3)))).view(list(pts.shape[:-1]) + [4])
    sigma_a, rgb = F.relu(field[..., 3]), torch.sigmoid(field[..., :3])
    one_e_10 = torch.tensor([1e10], dtype=ray_o.dtype)
    dists = torch.cat((depth[..., 1:] - depth[..., :-1], one_e_10.expand(depth[..., :1].shape)), dim=-1)
    alpha = 1.0 - torch.exp(-sigma_a * dists)
    weights = alpha * cumprod_exclusive(1.0 - alpha + 1e-10)
    rgb_map = (weights[..., None] * rgb).sum(dim=-2)
    loss = F.mse_loss(rgb_map, target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    result.append(loss.item())
psnr = -10.0 * np.log10(result[-1])
"""

PROGRAMS["vision_transformer"] = """
import torch
from torch import nn, einsum
import torch.nn.functional as F

def pair(t):
    return t if isinstance(t, tuple) else (t, t)

class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads, self.scale = heads, dim_head ** -0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(0.0))
    def forward(self, x):
        b, n, _, h = *x.shape, self.heads
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.reshape(b, n, h, -1).permute(0, 2, 1, 3), qkv)
        dots = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        out = torch.einsum("bhij,bhjd->bhid", self.attend(dots), v)
        return self.to_out(out.permute(0, 2, 1, 3).flatten(2))

class ViT(nn.Module):
    def __init__(self, *, image_size, patch_size, num_classes, dim, depth):
        super().__init__()
        (ih, iw), (ph, pw) = pair(image_size), pair(patch_size)
        num_patches = (ih // ph) * (iw // pw)
        self.to_patch = nn.Unfold(kernel_size=(ph, pw), stride=(ph, pw)) if False else nn.Conv2d(3, dim, (ph, pw), stride=(ph, pw))
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Attention(dim), nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 16), nn.GELU(), nn.Linear(16, dim))]))
        self.mlp_head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_classes))
    def forward(self, img):
        x = self.to_patch(img).flatten(2).transpose(1, 2)
        cls_tokens = self.cls_token.expand(img.shape[0], -1, -1)
        x = torch.cat((cls_tokens, x), dim=1)
        x += self.pos_embedding[:, :(x.shape[1])]
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return self.mlp_head(x[:, 0])

torch.manual_seed(0)
v = ViT(image_size=8, patch_size=4, num_classes=4, dim=8, depth=2)
img, labels = torch.randn(6, 3, 8, 8), torch.randint(0, 4, (6,))
opt = torch.optim.AdamW(v.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=10)
result = []
for _ in range(10):
    lam = torch.distributions.Uniform(0.0, 1.0).sample().item()
    perm = torch.randperm(6)
    mixed = lam * img + (1 - lam) * img[perm]
    out = v(mixed)
    loss = lam * F.cross_entropy(out, labels) + (1 - lam) * F.cross_entropy(out, labels[perm])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    result.append(F.cross_entropy(v(img), labels).item())
"""

PROGRAMS["vq_vae_and_gumbel"] = """
import torch
from torch import nn
from torch.nn import functional as F

class VectorQuantizer(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost=0.25):
        super(VectorQuantizer, self).__init__()
        self._embedding_dim, self._num_embeddings = embedding_dim, num_embeddings
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)
        self._embedding.weight.data.uniform_(-1 / num_embeddings, 1 / num_embeddings)
        self._commitment_cost = commitment_cost
    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        input_shape = inputs.shape
        flat_input = inputs.view(-1, self._embedding_dim)
        distances = (torch.sum(flat_input**2, dim=1, keepdim=True) + torch.sum(self._embedding.weight**2, dim=1)
                     - 2 * torch.matmul(flat_input, self._embedding.weight.t()))
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._num_embeddings, device=inputs.device)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding.weight).view(input_shape)
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        q_latent_loss = F.mse_loss(quantized, inputs.detach())
        loss = q_latent_loss + self._commitment_cost * e_latent_loss
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity, encodings

class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, scale):
        ctx.scale = scale
        return torch.round(input * scale) / scale
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone(), None

torch.manual_seed(0)
enc, dec = nn.Conv2d(1, 4, 4, stride=2, padding=1), nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1)
vq = VectorQuantizer(8, 4)
gate = nn.Linear(4, 3)
optimizer = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *vq.parameters(), *gate.parameters()], lr=1e-2, amsgrad=False)
x, result = torch.rand(4, 1, 8, 8), []
for _ in range(12):
    optimizer.zero_grad()
    z = RoundSTE.apply(enc(x), 64.0)
    vq_loss, quantized, perplexity, _ = vq(z)
    y = F.gumbel_softmax(gate(z.mean((2, 3))), tau=1.0, hard=True)
    recon = F.mse_loss(dec(F.relu(quantized)), x) / x.var() + 0.01 * (y * torch.tensor([1.0, 2.0, 3.0])).sum(1).mean()
    loss = recon + vq_loss
    loss.backward()
    optimizer.step()
    result += [loss.item(), perplexity.item()]
result.append(loss.item())
"""
