"""PyTorch's conventions: small programs run with both libraries, all that they leave compared.

A program is source text in which `torch` is the library under test. Compared are the names it binds
and the leaves it starts from: values, dtypes, requires_grad, is_leaf, grad_fn's name, gradients.
A comment says what a program raises or of what it warns; `...` stands for any text.
"""

from __future__ import annotations

import re
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes, Raised, differences, raised

LEAVES = """
x = torch.tensor([1., 2., 3.], requires_grad=True)
w = torch.tensor([[.5, 1., 1.5], [2., -2.5, 3.]], requires_grad=True)
s = torch.tensor(2., requires_grad=True)
z = torch.tensor([0., -0., 1.], requires_grad=True)
f = torch.tensor([1., 2., .5], dtype=torch.float32, requires_grad=True)
n = torch.tensor([4., 2., .5])
i = torch.tensor([2, 1])
b = torch.tensor([False, True, True])
"""

# Each is kept as `r`, and swept backward with the cotangent 1, 2, 3, ... where it requires grad.
EXPRESSIONS = """
x + n | x + s | x - w | w - x | x * w | x / w | x + 1 | 1 + x | x - 1 | 1 - x | 2 * x | x / 2
1 / x | 2 / x | -x | +x | abs(x) | x ** 2 | x ** 3 | x ** -1 | x ** 0.5 | x ** 0 | x ** 1
x ** 2.0 | 2 ** x | x ** s | x ** n | w ** x | torch.tensor([0., 0., 1.]) ** x | x == n | x != 2
x < n | x <= 2 | 2 > x | x >= s | (x < 2).dtype | x.add(n) | x.sub(w) | x.subtract(n) | x.mul(x)
x.multiply(x) | x.div(w) | x.divide(w) | x.true_divide(w) | x.neg() | x.negative() | x.pow(2)
x.pow(x) | torch.pow(2, x) | torch.pow(x, 3) | x.positive() | x.square() | x.sqrt()
x.reciprocal() | x.abs() | x.absolute() | x.exp() | x.log() | x.sin() | x.cos() | x.tan()
x.tanh() | torch.add(x, n) | torch.add(x, 2) | torch.add(x, n, alpha=2)
torch.sub(x, n, alpha=2) | torch.sub(x, n) | torch.mul(x, 2) | torch.div(x, n) | torch.neg(x)
torch.square(x) | torch.sqrt(x) | torch.exp(x) | torch.log(x) | torch.sin(x) | torch.cos(x)
torch.tan(x) | torch.tanh(x) | torch.abs(x) | torch.reciprocal(x) | torch.maximum(x, n)
torch.minimum(x, w) | x.maximum(n) | x.minimum(n) | torch.eq(x, n) | torch.lt(x, 2) | x.gt(1)
x.ge(2) | x.le(2) | x.ne(2) | torch.where(b, x, n) | torch.where(b, x, 0.)
torch.where(b, 0., x) | torch.where(b, x, w) | x.where(b, n) | torch.abs(z) | z.abs() | z.sqrt()
z ** 2 | z ** 3 | z ** 0 | z ** 0.5 | z ** torch.zeros(3) | torch.zeros(3) ** z
torch.maximum(z, torch.zeros(3)) | torch.minimum(z, torch.zeros(3)) | torch.maximum(x, x)
torch.max(torch.tensor([1., 3., 3.]) * s) | torch.min(torch.tensor([1., 1., 3.]) * s)
torch.max(torch.tensor([[1., 3., 3.], [5., 2., 5.]]) * s, 1)[0]
torch.min(torch.tensor([[1., 3., 1.], [2., 2., 5.]]) * s, 1)[0] | (z * 0).max()
torch.where(z == 0, z, torch.log(z + 1)) | 1 / z | z / z | torch.log(z) | x.sum() | x.mean()
x.max() | x.min() | s.sum() | s.mean() | s.max() | w.sum(0) | w.sum(1) | w.sum(-1) | w.sum(dim=1)
w.sum(dim=(0, 1)) | w.sum((0, 1), True) | w.sum(dim=1, keepdim=True) | w.sum(axis=0)
w.sum(axis=1, keepdims=True) | w.sum(dtype=torch.float32) | torch.sum(w) | torch.sum(w, 1)
torch.sum(w, dim=(-1, 0), keepdim=True) | w.sum([]) | w.mean(0) | w.mean(dim=-1, keepdim=True)
w.mean((0, 1)) | torch.mean(w, 1) | torch.mean(w) | w.max(0)[0] | w.max(0)
w.max(dim=1, keepdim=True) | w.max(-1).values | w.max(1).indices | w.min(0)
w.min(dim=1, keepdim=True).values | torch.max(w, 0)[0] | torch.min(w, dim=1)[1] | torch.max(x, n)
torch.min(x, n) | w.max(n) | torch.max(i) | i.sum() | i.sum().dtype | b.sum() | i.max(0)
(x > 1).sum() | torch.empty(0).sum() | torch.zeros(0, 3).sum(0) | torch.zeros(0, 3).sum(1)
torch.empty(0).mean() | torch.tensor([1., float("nan"), 3.]).max()
torch.tensor([1., float("nan"), 3.]).max(0) | torch.tensor([1., float("nan"), 3.]).maximum(n)
torch.mm(w, w.T) | w.mm(w.t()) | w @ x | torch.mv(w, x) | w.mv(n) | x @ n | x.dot(x)
torch.dot(x, n) | w.T @ w | torch.matmul(w, w.transpose(0, 1)) | torch.tensor([1., 2.]) @ w
torch.matmul(torch.tensor([1., 2.]), w) | w.matmul(x) | (w * 2) @ x | w[:, :2] @ w[:, 1:]
torch.zeros(2, 0) @ torch.zeros(0, 3) | x[0] | x[-1] | x[0:2] | x[1:] | x[::2] | x[:] | x[...]
x[None] | x[:, None] | w[0] | w[0, 1] | w[-1, -1] | w[:, 1] | w[1, ...] | w[..., 0]
w[None, :, 0] | w[:, ::2] | w[0:0] | w[1][1] | w[1:, 1:][0] | w[:, None, :] | x[torch.tensor(1)]
s[()] | s[...] | s[None] | x[5:] | x[:100] | x[np.int64(1)] | w.reshape(3, 2) | w.reshape((6,))
w.reshape(-1) | w.reshape(-1, 2) | w.reshape(2, 3) | torch.reshape(w, (1, 6)) | w.view(6)
w.view(-1) | w.view(3, -1) | w.view((3, 2)) | w.T.reshape(6) | w.flatten() | torch.flatten(w)
w.reshape(1, 2, 3).flatten(1) | w.reshape(1, 2, 3).flatten(0, 1) | w.T.flatten() | x.flatten()
s.flatten() | w.T | w.t() | x.t() | w.transpose(0, 1) | w.transpose(-1, 0)
torch.transpose(w, 0, 1) | w.permute(1, 0) | w.permute((1, 0)) | torch.permute(w, (-1, 0))
w.reshape(1, 2, 3).permute(2, 0, 1) | w[None].squeeze() | w[None].squeeze(0) | w[None].squeeze(1)
w.reshape(1, 2, 1, 3).squeeze((0, 2)) | torch.squeeze(w[None]) | x.squeeze() | x.unsqueeze(0)
x.unsqueeze(-1) | x.unsqueeze(1) | torch.unsqueeze(w, 1) | x.expand(2, 3) | x.expand((2, 3))
x.expand(2, -1) | x[:, None].expand(-1, 4) | s.expand(2, 2) | w.expand(2, 3) | torch.cat([x, n])
torch.cat((x, x)) | torch.cat([w, w], 1) | torch.cat([w, w], dim=-1) | torch.cat([w, x[None]], 0)
torch.cat([torch.empty(0), x]) | torch.stack([x, n]) | torch.stack([x, x], 1)
torch.stack([x, n], dim=-1) | torch.stack([s, s]) | torch.stack((w, w), 1) | x.clone()
x.detach() | x.data | x * x.detach() | x.double() | x.float() | x.to(torch.float32)
x.to(torch.float64) | x.to("cpu") | x.to(f) | x.contiguous() | w.T.contiguous() | x.float() * 2
x * f | f * 2 | f + x.detach() | x[:2] * i | x[:2] + (i > 0) | i + 1 | i + 1.5 | i * True | i / 2
i / i | i ** 2 | b + b | b + 1 | b * 2. | i.sqrt() | i.exp() | i.float() | i.double() + 1 | -i
abs(-i) | i == 2 | torch.maximum(i, -i) | torch.where(b, 1, 0) | torch.where(b, 1., 0.)
i.mean(dtype=torch.float64) | torch.cat([i, x]) | torch.stack([i, i]) | torch.tensor([])
torch.tensor(3) | torch.tensor(3.) | torch.tensor(True) | torch.tensor([1, 2])
torch.tensor([1, 2.5]) | torch.tensor([True, False]) | torch.tensor([[1, 2], [3, 4]])
torch.tensor([1, 2], dtype=torch.float32) | torch.tensor(np.ones(2, np.float32))
torch.tensor(np.arange(3)) | torch.tensor(np.float32(1.5))
torch.tensor([1., 2.], requires_grad=True) | torch.tensor([x[0].item(), 2.])
torch.tensor((1., 2.)) | torch.as_tensor([1., 2.]) | torch.as_tensor(np.arange(3))
torch.as_tensor(x) is x | torch.as_tensor(x, dtype=torch.float32)
torch.from_numpy(np.arange(3.)) | torch.Tensor([1, 2]) | torch.Tensor([[1, 2], [3, 4]])
torch.Tensor(2, 3).shape | torch.zeros(2) | torch.zeros(2, 3) | torch.zeros((2, 3))
torch.zeros([2, 3]) | torch.zeros(()) | torch.zeros(2, dtype=torch.int64)
torch.ones(2, requires_grad=True) | torch.ones(w.shape) | torch.full((2, 2), 7)
torch.full((2,), 1.5) | torch.full((2,), True) | torch.full((), 2.) | torch.empty(2, 3).shape
torch.arange(3) | torch.arange(3.) | torch.arange(1, 7, 2) | torch.arange(0, 1, 0.25)
torch.arange(5, 2, -1) | torch.arange(3, dtype=torch.float32)
torch.arange(3., requires_grad=True) | torch.linspace(0, 1, 5) | torch.linspace(1, 2, steps=3)
torch.linspace(0, 1, 1) | torch.eye(2) | torch.eye(2, 3) | torch.zeros_like(w)
torch.ones_like(x) | torch.ones_like(x, requires_grad=True) | torch.zeros_like(i)
torch.zeros_like(x, dtype=torch.int64) | torch.full_like(x, 3) | torch.full_like(i, 3)
torch.empty_like(w).shape | torch.rand(2, 3).shape | torch.randn(3).dtype
torch.randn((2, 2), requires_grad=True).is_leaf | torch.rand_like(w).shape
torch.randn_like(x).requires_grad | x.shape | w.shape | w.size() | w.size(0) | w.size(-1)
w.dim() | w.ndim | w.numel() | w.nelement() | len(w) | w.shape.numel() | w.shape == (2, 3)
w.shape[1:] | x.dtype | f.dtype | i.dtype | b.dtype | s.item() | i[0].item() | b[0].item()
x[1].item() | torch.tensor([[4.]]).item() | w.tolist() | s.tolist() | i.tolist() | b.tolist()
list(x) | list(w) | [row for row in w][1] | bool(s) | bool(torch.tensor([0.]))
bool(x.sum() > 3) | int(n[0]) | float(n[0]) | int(torch.tensor(2.7))
"yes" if x[0] < x[1] else "no" | 2. in n | n.numpy() | i.numpy() | x.detach().numpy()
np.asarray(n) | repr(x) | repr(x * 2) | repr(f) | repr(i) | repr(b) | repr(s * 2)
repr(x.detach()) | repr(w.max(1)) | str(x.shape) | x.is_leaf | n.is_leaf | (x * 2).is_leaf
(n * 2).is_leaf | x.requires_grad | (n * 2).grad_fn | x.grad_fn | x.grad | x.retains_grad
(x * 2).retains_grad | (x * n).grad_fn.next_functions[0][0].name()
(x * n).grad_fn.next_functions[1] | len((x * w).grad_fn.next_functions)
((x * 2) + w).grad_fn.next_functions[0][0].name() | torch.is_tensor(x)
torch.get_default_dtype() | torch.is_grad_enabled() | x.device.type | str(n.device)
x is x.requires_grad_() | torch.zeros(2, device="cpu") | torch.float64 == torch.double
torch.float32 == torch.float | torch.int64 == torch.long | f'{n[0]:.2f}' | f'{x[0]:.2f}' | f'{x}'
'%.2f' % n[0] | torch.concat([x, n]) | torch.concatenate([x, n]) | torch.cat([x, n], axis=0)
np.float64(2) * x | x * np.float64(2) | w.view(np.int64(3), 2)
torch.max(x, axis=0) | w.mean(axis=(0, 1))
s * f.sum() | torch.tensor([2.]) * f
torch.rsqrt(x) | x.rsqrt() | torch.exp2(x) | torch.expm1(w) | torch.log2(x) | torch.log10(x)
torch.log1p(x) | torch.asin(w / 4) | torch.arcsin(z) | torch.acos(w / 4) | torch.arccos(z)
torch.atan(w) | w.arctan() | torch.atan2(w, x) | torch.arctan2(z, z) | x.atan2(n) | torch.sinh(w)
torch.cosh(w) | torch.asinh(w) | torch.acosh(x) | torch.atanh(w / 4) | torch.arcsinh(x)
torch.arccosh(x + 1) | torch.arctanh(z) | torch.erf(w) | torch.erfc(w) | torch.erfinv(w / 4)
torch.sigmoid(w) | w.sigmoid() | torch.relu(w) | torch.relu(z) | w.clamp(n, x)
torch.clamp(x, n, n) | torch.clamp(w, x, n) | torch.clamp(i, 0, 1) | torch.clamp(i, 1.5)
torch.clamp(w, min=x) | torch.clamp(w, max=x) | torch.clamp_min(w, x) | torch.clamp_max(w, x)
torch.clamp_min(x, n) | torch.sign(w) | torch.sign(z / z) | torch.sgn(z / z) | torch.sign(i)
torch.floor(w) | torch.ceil(w) | torch.round(w) | torch.round(w, decimals=1)
torch.round(w * 100, decimals=-1) | w.round(decimals=2) | torch.trunc(w) | torch.fix(w)
torch.frac(w) | w.round() | torch.round(i) | torch.floor(i) | torch.trunc(i) | torch.ceil(i)
torch.remainder(w, x) | w % x | i % 2 | i % -2 | torch.remainder(i, i) | torch.fmod(w, x)
torch.fmod(i, -2) | torch.fmod(-w, x) | torch.remainder(i, 1.5) | -i % 3 | n // x.detach() | n // 2
i // 2 | -i // 2 | torch.floor_divide(n, 2.) | -i // i | torch.hypot(w, x) | torch.hypot(z, n)
torch.logaddexp(w, x) | torch.logaddexp(x, x) | torch.logaddexp2(w, x) | torch.lerp(x, n, x)
x.lerp(w, w) | torch.addcmul(x, n, w) | torch.addcmul(x, x, x, value=2) | torch.addcmul(i, i, i)
torch.addcdiv(x, n, w) | torch.addcdiv(x, x, w, value=-.5) | x.addcmul(n, n) | torch.fmax(w, x)
torch.fmin(w, x) | torch.fmax(x, x) | torch.fmin(z, -z) | torch.float_power(x, 2)
torch.float_power(x, n) | torch.float_power(2, x) | torch.float_power(i, 2) | x.float_power(-1)
torch.copysign(w, x) | torch.copysign(z, w) | torch.ldexp(x, i[0]) | torch.ldexp(x, n)
torch.ldexp(i, i) | torch.ldexp(x, w) | torch.deg2rad(x) | torch.rad2deg(x) | torch.nan_to_num(i)
torch.nan_to_num(f, nan=2) | torch.sinc(w) | torch.sinc(z) | torch.xlogy(x, n) | torch.xlogy(z, x)
torch.xlogy(w, x) | torch.special.xlog1py(w, x) | torch.special.xlog1py(z, x)
torch.special.entr(x) | torch.special.entr(-x) | torch.logit(x / 4) | torch.logit(x / 4, eps=.3)
torch.logit(z, .25) | x.logit(.1) | torch.heaviside(n, x.detach()) | torch.heaviside(z.detach(), n)
torch.lgamma(x) | torch.lgamma(w) | torch.polygamma(3, w.abs()) | x.polygamma(2)
torch.polygamma(0, x.detach()) | torch.mvlgamma(n + 1, 3) | torch.special.ndtri(x / 4)
torch.special.log_ndtr(w) | torch.special.erfcx(w) | torch.i0(w) | torch.i0(z) | x.i0()
torch.special.i0e(w) | torch.special.i0e(z) | torch.special.i1(w) | torch.special.i1(z)
torch.special.i1e(w) | torch.special.i1e(z) | torch.special.expit(w) | torch.special.gammaln(x)
torch.special.zeta(n + 2, n) | torch.special.gammainc(n, x) | torch.special.gammaincc(n, x)
torch.special.ndtr(n) | torch.special.round(n) | torch.special.sinc(x) | torch.special.xlogy(x, n)
torch.special.multigammaln(n + 1, 2) | torch.special.exp2(x) | torch.special.expm1(x)
torch.special.log1p(x) | torch.special.erf(x) | torch.special.erfc(x) | torch.special.erfinv(x / 4)
torch.special.logit(x / 4) | torch.special.i0(x) | torch.isnan(z / z) | x.isnan()
torch.isinf(1 / z) | torch.isfinite(1 / z) | torch.isposinf(1 / z) | torch.isneginf(1 / z)
torch.signbit(z) | torch.isnan(i) | torch.isclose(x, n) | torch.isclose(x, x + 1e-9)
torch.isclose(1 / n, 1 / n) | torch.isclose(z / z, z / z, equal_nan=True) | torch.allclose(x, x)
x.allclose(n) | torch.isclose(i, i) | torch.isclose(x, n, rtol=.5, atol=1.) | x.isclose(n, .5)
torch.logical_and(x, b) | torch.logical_or(z, b) | torch.logical_xor(x, b) | torch.logical_not(z)
b & b | ~b | ~i | i & 3 | 3 & i | i ^ 1 | 1 ^ i | i << 1 | i >> 1 | 1 << i | 8 >> i | b & True
True ^ b | torch.bitwise_and(i, 2) | torch.bitwise_or(i, i) | torch.bitwise_xor(i, 2)
torch.bitwise_not(i) | torch.bitwise_left_shift(i, i) | torch.bitwise_right_shift(i, 1)
i.bitwise_and(1) | torch.sqrt(torch.tensor([1, 4], dtype=torch.int8)) | torch.sigmoid(i)
torch.exp2(i) | torch.rsqrt(i) | torch.erf(i) | torch.atan2(i, i) | torch.copysign(i, -1)
torch.deg2rad(i) | torch.sinc(i) | torch.lgamma(i) | torch.sin(b) | torch.xlogy(i, i)
torch.relu(-i) | torch.sign(-i) | torch.logit(torch.tensor([1]))
torch.tensor([1, 4], dtype=torch.int16) / 2 | torch.special.log_ndtr(w * 10) | torch.erfinv(z)
b ^ b | b|b | i|1 | 1|i | torch.digamma(n) | torch.polygamma(2, n) | torch.fmax(z.detach() / 0, n)
torch.nan_to_num(torch.tensor([1., float('nan'), float('inf')]), 5., 6.)
torch.clamp(w, 0., 1.) | w.clamp(-1, 1) | torch.clip(x, 1, 2)
torch.clamp(x, 2., 1.) | w.clamp(min=0) | w.clamp(max=.5)
torch.clamp_min(w, 0.) | torch.clamp_max(w, 1) | w.clamp_min(0) | w % 2 | torch.remainder(w, 1.5)
torch.fmod(w, 2) | torch.xlogy(w, 2.) | torch.xlogy(2., x)
torch.special.xlog1py(w, 2.) | torch.special.xlog1py(2., x)
torch.copysign(w, -1.) | torch.lerp(x, n, .5) | x.lerp(n, .25) | torch.clamp(w * 2, -1.5, 1.5)
x[i] | x[[2, 0, 2]] | w[:, i] | w[i - 1] | w[torch.tensor([0, 1]), torch.tensor([2, 2])] | x[b]
w[w > 1.2] | (x[[0, 0, 1]] * n).sum() | (x[i] * x[i]).sum()
x.narrow(0, 1, 2) | w.select(1, 0) | x.unbind() | w.unbind(1)[1] | w.movedim(0, 1) | w.swapaxes(0, 1) | w.mT
w.diagonal() | x.unfold(0, 3, 1) | x.flip(0) | w.flip((0, 1)) | x[i] | w[:, i] | w[:, b] | x.expand_as(w)
w.view_as(torch.zeros(6)) | w.unflatten(1, (3, 1)) | torch.tril_indices(2, 3) | torch.nonzero(i)
i.index_select(0, i - 1) | i.gather(0, i - 1) | i.repeat(2) | i.roll(1) | n.tile(2)
torch.bmm(w[None], w.T[None]) | torch.det(w @ w.T) | (w @ w.T).inverse() | (w @ w.T).det() | torch.linalg.inv(w @ w.T)
torch.linalg.cholesky(w @ w.T) | torch.linalg.solve(w @ w.T, w) | torch.linalg.eigvalsh(w @ w.T)
torch.slogdet(w @ w.T)[1] | torch.linalg.matrix_exp(w @ w.T / 9) | torch.linalg.pinv(w) | torch.matrix_power(w @ w.T, 3)
torch.linalg.svdvals(w) | torch.linalg.cross(x, n) | torch.matmul(w, w.T) | torch.outer(x, n)
x.prod() | w.prod(1) | w.prod(0, True) | z.prod() | i.prod() | b.prod().dtype | w.var() | w.var(0) | w.std(1)
w.var(dim=(0, 1), keepdim=True) | w.std(correction=0) | w.var(0, False) | x.norm() | w.norm(3, 1) | z.norm(1)
torch.linalg.vector_norm(w, float("inf"), 1) | w.logsumexp(1) | torch.logsumexp(w, 0, keepdim=True)
w.softmax(1) | torch.softmax(w, -1) | w.log_softmax(0) | w.argmax() | w.argmin(1) | w.argmax(0, keepdim=True)
(w > 1).any() | (w > 1).all(0) | w.any(1) | torch.count_nonzero(w) | x.cumsum(0) | w.cumsum(1) | w.cumprod(1)
z.cumprod(0) | w.cummax(1)[0] | w.cummax(0)[1] | torch.cummin(w, 1)[0] | w.logcumsumexp(0) | w.sort()[0]
w.sort(0, descending=True)[1] | w.argsort(1) | torch.msort(w) | w.topk(2)[0] | w.topk(1, 0, largest=False)[1]
w.kthvalue(2)[0] | w.median() | w.median(1)[0] | w.median(0)[1] | w.nanmedian() | w.nanmedian(0)[0] | w.mode()[0]
w.nanmean() | w.diff() | w.diff(dim=0) | torch.searchsorted(n.sort()[0], x) | torch.bucketize(x, n.sort()[0])
torch.bincount(i) | torch.unique(n) | torch.histc(x, 4) | torch.cdist(w, w) | torch.cdist(w, w, p=1.0)
"""

# One program a line.
PROGRAMS = r"""
## lifetime
y = (x * x).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = (x * x).sum(); y.backward(retain_graph=True); y.backward()
y = (x * x).sum(); y.backward(retain_graph=True); y.backward(); y.backward()  # RuntimeError
y = x.exp().sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = (x + 1).sum(); y.backward(); y.backward()
y = (x - n).sum(); y.backward(); y.backward()
y = -x[0]; y.backward(); y.backward()
y = w.T.reshape(6).sum(); y.backward(); y.backward()
y = x.expand(2, 3).sum(); y.backward(); y.backward()
y = x.mean(); y.backward(); y.backward()
y = w.mean(0).sum(); y.backward(); y.backward()
y = torch.cat([x, x]).sum(); y.backward(); y.backward()
y = torch.stack([x, n]).sum(); y.backward(); y.backward()
y = torch.mm(w, w.T).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = x.max(0)[0]; y.backward(); y.backward()  # RuntimeError: a second time
y = x.max(); y.backward(); y.backward()  # RuntimeError: a second time
y = torch.where(b, x, n).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = (x / 2).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = (x * 2).sum(); y.backward(); y.backward()  # RuntimeError: a second time
y = (x ** 2).sum(); y.backward(); y.backward()  # RuntimeError: a second time
a = x * x; y = a.sum(); v = a.exp().sum(); y.backward(); v.backward()  # RuntimeError: a second time
a = x + 1; y = (a * a).sum(); v = a.exp().sum(); y.backward(); v.backward()
y = (x * x).sum(); (y * 2).backward(); y.backward()  # RuntimeError: a second time
y = (x * x).sum(); (y + 2).backward(retain_graph=True); y.backward()
y = (x * x).sum() + (w * w).sum(); y.backward(inputs=[x], retain_graph=True); y.backward(inputs=[w])
y = (x * x).sum(); torch.autograd.grad(y, x); torch.autograd.grad(y, x)  # RuntimeError: second
y = (x * x).sum(); g = torch.autograd.grad(y, x, retain_graph=True); y.backward()
y = x * x; y[0].backward(); y[1].backward()  # RuntimeError: a second time
y = x + n; y[0].backward(); y[1].backward(); y.sum().backward()
y = (x * n).sum(); v = (x * w).sum(); y.backward(); v.backward()
y = (x * x).sum(); v = torch.log(z); del v; y.backward()
v = torch.log(z); y = (z * 2).sum(); y.backward()
## accumulation
(x * 2).sum().backward(); (x * 3).sum().backward()
(x * 2).sum().backward(); x.grad = None; (x * 3).sum().backward()
x.sum().backward(); g = x.grad; (x * 3).sum().backward(); same = g is x.grad
x.sum().backward(); g = x.grad.clone(); (x * 3).sum().backward()
y = x * 2; y.sum().backward(); g = x.grad is x.grad
x.sum().backward(); v = x.grad * x; v.sum().backward()
y = x + x; y.backward(n); same = x.grad is n
y = x.clone(); y.backward(n); same = x.grad is n
y = x + s; y.backward(torch.ones(3)); gx = x.grad; gs = s.grad; distinct = gx is not gs
a = x * x; c = a + a; d = c * a; d.sum().backward()
a = x.sin(); c = a * x + a; c = c * c - a; c.sum().backward()
x[:1].backward(); x[0].backward(); x[0].backward()
s.backward(); s.squeeze().backward(); s.reshape(1).backward()
s.squeeze().backward(); s.squeeze().backward(); s[...].backward(); (s * 2).backward()
p = torch.ones(1, requires_grad=True); p[0].backward(); p[0].backward(); p.reshape(()).backward()
v = s.squeeze(); torch.autograd.backward([v, s, v * 2, s[None]])
## what backward takes
r = x.backward()  # RuntimeError: only for scalar outputs
r = (x * 2).backward()  # RuntimeError: only for scalar outputs
r = (x * 2).sum().backward()
(x[:1] * 2).backward()
x[:1][None].backward()
s.backward()
s.backward(torch.tensor(3.))
(x * 2).backward(n)
(x * 2).backward(gradient=n)
(x * 2).backward(torch.ones(2))  # RuntimeError: Mismatch in shape...grad_output[0]...output[0]
(x * 2).backward(torch.ones(1, 3))  # RuntimeError: Mismatch in shape
(x * 2).backward(s)  # RuntimeError: Mismatch in shape
s.backward(torch.tensor([1.]))  # RuntimeError: Mismatch in shape
(x * 2).backward(np.ones(3))  # TypeError: gradients can be either Tensors or None
(x * 2).backward([1., 1., 1.])  # TypeError: gradients can be either Tensors or None
(x * 2).backward(torch.ones(3, dtype=torch.float32))
n.backward(n)  # RuntimeError: does not have a grad_fn
n.sum().backward()  # RuntimeError: element 0 of tensors does not require grad
torch.ones(2).mean().backward()  # RuntimeError: does not have a grad_fn
x.sum().detach().backward()  # RuntimeError: does not have a grad_fn
(x > 1).sum().backward()  # RuntimeError: does not have a grad_fn
x.max(0)[1].backward()  # RuntimeError: does not have a grad_fn
## several roots
torch.autograd.backward(x.sum())
torch.autograd.backward([x.sum(), (x * w).sum()])
torch.autograd.backward((x * 2, w.sum()), (n, None))
torch.autograd.backward([x * 2, w * 3], grad_tensors=[n, torch.ones(2, 3)])
torch.autograd.backward(x * 2, n)
torch.autograd.backward([x * 2], [n], retain_graph=True)
torch.autograd.backward([x.sum(), n.sum()])  # RuntimeError: element 1 of tensors
torch.autograd.backward([x.sum(), w.sum()], [None])  # RuntimeError: got 2 tensors and 1 gradients
a = x * x; torch.autograd.backward([a.sum(), a.exp().sum()])
a = x * 2; c = a * 3; torch.autograd.backward([a, c], [n, n])
torch.autograd.backward([x.sum(), x.sum()])
y = x.sum(); torch.autograd.backward([y, y])
torch.autograd.backward([x, x * 2], [n, n])
torch.autograd.backward([x * w.sum()], [n], inputs=[w])
## autograd.grad
g = torch.autograd.grad(x.sum(), x)
g = torch.autograd.grad(x.sum(), [x])
g = torch.autograd.grad((x * w).sum(), (x, w))
g, = torch.autograd.grad(outputs=(x * x).sum(), inputs=x)
g = torch.autograd.grad(x * 2, x, n)
g = torch.autograd.grad(x * 2, x, grad_outputs=n)
g = torch.autograd.grad([x * 2, x.sum()], [x], [n, None])
g = torch.autograd.grad([x.sum(), w.sum()], [x, w])
g = torch.autograd.grad(x.sum(), [x, x])
g = torch.autograd.grad(x * 2, x)  # RuntimeError: only for scalar outputs
g = torch.autograd.grad(x.sum(), w)  # RuntimeError: index 0...allow_unused=True
g = torch.autograd.grad(x.sum(), [x, w])  # RuntimeError: allow_unused=True
g = torch.autograd.grad(x.sum(), [x, w], allow_unused=True)
g = torch.autograd.grad(x.sum(), [w, x], materialize_grads=True)
g = torch.autograd.grad(x.sum(), [x, n])  # RuntimeError: does not require grad
g = torch.autograd.grad(n.sum(), x)  # RuntimeError: does not have a grad_fn
g = torch.autograd.grad(n.sum(), x, allow_unused=True)  # RuntimeError: does not require grad
g = torch.autograd.grad(s, s)
g = torch.autograd.grad(x * 2, x, torch.ones(2))  # RuntimeError: Mismatch in shape
x.sum().backward(); g = torch.autograd.grad((x * x).sum(), x)
a = x * 2; g = torch.autograd.grad((a * a).sum(), a)
a = x * 2; g = torch.autograd.grad((a * a).sum(), [a, x])
a = x * 2; v = a[1:]; g = torch.autograd.grad((v * v).sum() + a.sum(), [a, v])
v = x[1:]; g = torch.autograd.grad(x.sum(), v)  # RuntimeError: allow_unused=True
a = x * 2; c = a * 2; g = torch.autograd.grad(a.sum(), c)  # RuntimeError: allow_unused=True
y = x * 2; g = torch.autograd.grad(y, y, n)
g = torch.autograd.grad(x.sum(), x)[0]; leaf = g.is_leaf
g = torch.autograd.grad((x * x).sum(), x, retain_graph=False)
g = torch.autograd.grad(x.sum(), [])  # RuntimeError: inputs... cannot be empty
## inputs=
y = (x * w).sum(); y.backward(inputs=[x])
y = (x * w).sum(); y.backward(inputs=x)
y = (x * w).sum(); y.backward(inputs=(w,))
y = (x * w).sum(); y.backward(inputs=[])  # RuntimeError: inputs... cannot be empty
a = x * 2; y = (a * a).sum(); y.backward(inputs=[a])
a = x * 2; y = (a * a).sum(); y.backward(inputs=[a, x])
a = x * 2; v = a[1:]; y = (v * v).sum() + a.sum(); y.backward(inputs=[a, v])
y = x.sum(); y.backward(inputs=[w]); y.backward()
y = x.sum(); y.backward(inputs=[n])  # RuntimeError: require
y = x.sum(); y.backward(retain_graph=True, inputs=[x]); y.backward(inputs=[x])
y = (x * x).sum(); y.backward(inputs=[y])
## retain_grad, through views too
a = x * 2; a.retain_grad(); (a * a).sum().backward(); flag = a.retains_grad
a = x * 2; a.retain_grad(); a.retain_grad(); (a * a).sum().backward()
a = x * 2; a.retain_grad(); y = (a * a).sum(); y.backward(retain_graph=True); y.backward()
a = x * 2; a.retain_grad(); y = a.sum(); y.backward(retain_graph=True); a.grad = None; y.backward()
x.retain_grad(); (x * 2).sum().backward(); flag = x.retains_grad
n.retain_grad()  # RuntimeError: can't retain_grad on Tensor that has requires_grad=False
y = (x * 2).sum(); y.retain_grad(); y.backward()
a = x * 2; v = a[1:]; v.retain_grad(); a.retain_grad(); (v * 3).sum().backward()
a = x * 2; v = a[1:]; v.retain_grad(); (v * 3).sum().backward()
a = x * 2; v = a[1:]; v.retain_grad(); ((v * 3).sum() + (a * a).sum()).backward()
v = x[:2]; v.retain_grad(); (v * v).sum().backward()
v = w.T; v.retain_grad(); (v * v).sum().backward()
v = x.expand(2, 3); v.retain_grad(); (v * w).sum().backward()
v = w[1]; u = v[1:]; v.retain_grad(); u.retain_grad(); (v * v).sum().backward()
v = w.reshape(6); u = v[::2]; v.retain_grad(); u.retain_grad(); (u * u).sum().backward()
a = x * 2; c = a + 1; a.retain_grad(); c.retain_grad(); c.sum().backward(); r = a.grad is c.grad
a = x * 2; (a * a).sum().backward(); g = a.grad  # UserWarning: not a leaf Tensor...retain_grad
a = x * 2; g = a.grad  # UserWarning: not a leaf Tensor is being accessed
## flags
x.requires_grad = False; y = x * 2
n.requires_grad = True; (n * 2).sum().backward()
n.requires_grad_(); (n * 2).sum().backward()
x.requires_grad_(False); y = x * w; y.sum().backward()
y = x * 2; y.requires_grad = False  # RuntimeError: only change requires_grad flags...detach
y = x * 2; y.requires_grad_(False)  # RuntimeError: leaf variables
y = x * 2; y.requires_grad_()
y = n * 2; y.requires_grad_(); (y * y).sum().backward()
i.requires_grad_()  # RuntimeError: only Tensors of floating point
i.requires_grad = True  # RuntimeError: only Tensors of floating point
b.requires_grad_()  # RuntimeError: only Tensors of floating point
torch.tensor([1, 2], requires_grad=True)  # RuntimeError: Only Tensors of floating point...require
torch.zeros(2, dtype=torch.int64, requires_grad=True)  # RuntimeError: Tensors of floating point
torch.arange(3, requires_grad=True)  # RuntimeError: Only Tensors of floating point
torch.ones_like(i, requires_grad=True)  # RuntimeError: Only Tensors of floating point
## leaves made of other tensors
p = x.detach().requires_grad_(); (p * x).sum().backward()
p = x.data.requires_grad_(); (p * x).sum().backward()
p = torch.zeros(1).expand(3).requires_grad_(); (p * n).sum().backward()
p = n[:2].requires_grad_(); q = n[1:].requires_grad_(); (p * q).sum().backward()
p = n.expand(2, 3).requires_grad_(); (p * w).sum().backward()
p = n.reshape(3, 1).requires_grad_(); p.T.sum().backward()
p = torch.ones(2, 3).T.requires_grad_(); (p * w.T).sum().backward(); order = p.grad.shape
## .grad assigned
x.grad = torch.ones(3); x.sum().backward()
x.grad = torch.ones(2)  # RuntimeError: size '[2]' to a tensor of size '[3]'
x.grad = torch.ones(3, dtype=torch.float32)  # RuntimeError: assign...grad
x.grad = 1.  # TypeError: grad
## memory shared, memory copied
m = np.arange(3.); r = torch.from_numpy(m); m[0] = 7.
m = np.arange(3.); r = torch.tensor(m); m[0] = 7.
m = np.arange(3.); r = torch.as_tensor(m); m[0] = 7.
m = np.arange(3.); r = torch.from_numpy(m); r.numpy()[1] = 7.
m = np.arange(4.); r = torch.from_numpy(m[::2]); m[2] = 7.; r2 = r * 2
m = np.arange(6.).reshape(2, 3).T; r = torch.from_numpy(m); r2 = r * 2
torch.from_numpy([1., 2.])  # TypeError: expected np.ndarray (got list)
x.detach().numpy()[0] = 7.
x.data.numpy()[0] = 7.
x.clone().detach().numpy()[0] = 7.
x.detach().clone().numpy()[0] = 7.
n.reshape(3, 1).numpy()[0] = 7.
n[1:].numpy()[0] = 7.
r = n.expand(2, 3).numpy()
n.contiguous().numpy()[0] = 7.
n.double().numpy()[0] = 7.
n.to(torch.float32).numpy()[0] = 7.
y = x * 2; d = y.detach(); v = d * x; v.sum().backward()
y = (x * x).detach(); y.requires_grad_(); (y * x).sum().backward()
y = x.clone(); y.sum().backward()
y = x.clone().detach(); same = y is x
x.numpy()  # RuntimeError: numpy()...requires grad...detach().numpy()
(x * 2).numpy()  # RuntimeError: detach().numpy()
np.asarray(x)  # RuntimeError: requires grad
## Python values
r = x[1:].tolist()
r = s.item() + 1
r = x.item()  # RuntimeError: 3 elements cannot be converted to Scalar
r = torch.zeros(0).item()  # RuntimeError: 0 elements cannot be converted to Scalar
r = float(n)  # ValueError: only one element tensors can be converted
r = bool(n)  # RuntimeError: Boolean value of Tensor with more
r = bool(torch.zeros(0))  # RuntimeError: Boolean value of Tensor
r = "yes" if x > 1 else "no"  # RuntimeError: Boolean value of Tensor with more
r = len(s)  # TypeError: 0-d tensor
r = list(s)  # TypeError: 0-d tensor
r = [1, 2, 3][i[1]]
r = [1, 2, 3][n[0]]  # TypeError: ind
r = {x: 1, w: 2}[x]
r = x in [x]
## small graphs of indexing
y = [v for v in x]; (y[0] * y[2]).backward()
p, q, v = x; (p * q + v).backward()
y = sum(x); y.backward()
y = sum([row.sum() for row in w]); y.backward()
y = max(x[0], x[1]); y.backward()
y = x[0] * x[1] + x[2]; y.backward()
y = x[1:] - x[:-1]; (y * y).sum().backward()
y = x[2:] - 2 * x[1:-1] + x[:-2]; y.sum().backward()
y = w[:, 1:] * w[:, :-1]; y.sum().backward()
values, indices = torch.max(w, 1); values.sum().backward()
m = w.max(dim=0); kind = type(m).__name__; v = m.values.sum() + m[0].sum(); v.backward()
## shapes that do not fit
torch.add(x, n[:2])  # RuntimeError: tensor a (3) must match ... b (2) at non-singleton dim
x + torch.ones(2)  # RuntimeError: tensor a (3) must match ... tensor b (2) at non-singleton dim
w * torch.ones(3, 3)  # RuntimeError: (2) must match ...(3) at non-singleton dimension 0
torch.where(b, x, torch.ones(2))  # RuntimeError: must match
torch.mm(w, w)  # RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)
w @ w  # RuntimeError: cannot be multiplied (2x3 and 2x3)
torch.mm(w, x)  # RuntimeError: mat
torch.mv(x, w)  # RuntimeError: vec
torch.mv(w, torch.ones(2))  # RuntimeError: size
w @ torch.ones(2)  # RuntimeError: size
x @ w  # RuntimeError
torch.dot(x, torch.ones(2))  # RuntimeError
x[3]  # IndexError: out of bounds for dimension 0 with size 3
x[-4]  # IndexError: out of bounds for dimension 0 with size 3
w[0, 3]  # IndexError: out of bounds for dimension 1 with size 3
x[0, 0]  # IndexError: too many indices for tensor of dimension 1
s[0]  # IndexError: 0-dim tensor
x[1.5]  # IndexError: ind
w.reshape(4)  # RuntimeError: shape '[4]' is invalid for input of size 6
w.reshape(-1, 4)  # RuntimeError: shape '[-1, 4]' is invalid for input of size 6
w.reshape(-1, -1)  # RuntimeError: only one dimension can be inferred
w.view(5)  # RuntimeError: invalid for input of size 6
w.T.view(6)  # RuntimeError: view...not compatible...reshape
w.transpose(0, 2)  # IndexError: Dimension out of range...[-2, 1], but got 2)
w.permute(0, 0)  # RuntimeError: permute
w.permute(0)  # RuntimeError: permute
w[None].t()  # RuntimeError: t()... 2
x.squeeze(1)  # IndexError: Dimension out of range
x.unsqueeze(3)  # IndexError: Dimension out of range...[-2, 1], but got 3)
w.flatten(1, 0)  # RuntimeError: start_dim
x.expand(2)  # RuntimeError: expand... must match the existing size
x.expand(-1, 3)  # RuntimeError: -1
w.expand(3)  # RuntimeError: expand
w.sum(2)  # IndexError: Dimension out of range...[-2, 1], but got 2)
w.sum((0, 0))  # RuntimeError: dim 0 appears multiple times
w.max(2)  # IndexError: Dimension out of range
i.mean()  # RuntimeError: mean...dtype
b.mean()  # RuntimeError: mean
torch.empty(0).max()  # RuntimeError: max
torch.zeros(0, 3).max(0)  # IndexError: max
torch.cat([w, x])  # RuntimeError: number of dimensions
torch.cat([w, torch.ones(1, 2)])  # RuntimeError: size
torch.cat([])  # ValueError: non-empty
torch.cat([w, w], 2)  # IndexError: Dimension out of range
torch.cat([x, 1.])  # TypeError: Tensor
torch.stack([x, w])  # RuntimeError: stack expects each tensor to be equal size
torch.stack([])  # RuntimeError: non-empty
torch.stack([x, x], 2)  # IndexError: Dimension out of range
w.size(2)  # IndexError: Dimension out of range
## creation and types that do not fit
torch.tensor([[1., 2.], [3.]])  # ValueError
torch.zeros(-1)  # RuntimeError: negative
torch.zeros("a")  # TypeError: str
torch.full((2,), "a")  # TypeError
torch.arange(0, 1, 0)  # RuntimeError: step
torch.arange(0, 1, -1)  # RuntimeError
torch.linspace(0, 1, -1)  # RuntimeError: number of steps must be non-negative
x + "a"  # TypeError: str
x + None  # TypeError: None
torch.log([1.])  # TypeError: list
torch.where(x, x, n)  # RuntimeError: bool
r = torch.tensor(x)  # UserWarning: detach()
## modes and seeds
g = torch.set_grad_enabled(False); y = x * 2
a = torch.rand(9); r = int((a < 0).sum() + (a >= 1).sum()); del a
torch.set_default_dtype(torch.int64)  # TypeError: floating
"""

# Programs of several lines.
BLOCKS = """
with torch.no_grad():
    y = x * 2
v = x * 2

with torch.no_grad():
    y = x[1:] * 2
    with torch.enable_grad():
        u = x * 2
    v = x * 2

@torch.no_grad()
def fun(t):
    return t * 2
y = fun(x); name = fun.__name__

@torch.no_grad
def fun(t):
    return t * 2
y = fun(x)

@torch.set_grad_enabled(False)
def fun(t):
    return t * 2
v = x * 2; y = fun(x); u = x * 2

@torch.no_grad()
def outer(t):
    return inner(t), t * 2
@torch.enable_grad()
def inner(t):
    return t * 2
y = outer(x); v = x * 2

@torch.no_grad()
def numbers(t):
    yield t * 2
    yield torch.is_grad_enabled()
y = []
for one in numbers(x):
    y.append((one, x * 3))

guard = torch.no_grad(); u = x * 2
with guard:
    y = x * 2
with guard:
    v = x * 2

try:
    with torch.no_grad():
        raise ValueError
except ValueError:
    y = x * 2

with torch.no_grad():
    p = torch.ones(3, requires_grad=True); q = p * 2; c = n.requires_grad_()
(p * c).sum().backward()

with torch.no_grad():
    y = x * x
y.sum().backward()  # RuntimeError: does not have a grad_fn

with torch.set_grad_enabled(False):
    y = x * 2; mode = torch.is_grad_enabled()
v = x * 2

with torch.set_grad_enabled(mode=True):
    with torch.set_grad_enabled(False):
        y = x * 2
    v = x * 2

torch.set_grad_enabled(False); y = x * 2; mode = torch.is_grad_enabled()
torch.set_grad_enabled(True); v = x * 2

y = (x * x).sum()
with torch.no_grad():
    y.backward()

y = (x * x).sum()
with torch.no_grad():
    g = torch.autograd.grad(y, x)

import threading
with torch.no_grad():
    modes = []; one = threading.Thread(target=lambda: modes.append(torch.is_grad_enabled()))
    one.start(); one.join(); del one

y = x
while (y * y).sum() < 1000:
    y = y * 2
y.sum().backward()

y = x[0]; steps = 0
for _ in range(200):
    y = y * 1.01 if y < 3 else y + s; steps += 1
y.backward()

def power(t, k):
    return t if k == 1 else t * power(t, k - 1)
y = power(x, 5); y.sum().backward()

y = x * x
try:
    y.backward()
except RuntimeError:
    y.sum().backward()

h = x[0]; p = x[1]
for _ in range(3):
    h, p = h + 0.1 * (h - h * p), p + 0.1 * (h * p - p)
(h * p).backward()

losses = []
for _ in range(3):
    loss = ((x - n) ** 2).sum(); loss.backward(); losses.append(loss.item())

a = torch.autograd.Variable(n, requires_grad=True); c = torch.autograd.Variable(n)
y = (a * c).sum(); y.backward(); r = isinstance(x, torch.autograd.Variable), a is n

p, q = (torch.from_numpy(n.numpy()[k : k + 2]).requires_grad_() for k in (0, 1))
(p * q).sum().backward()

torch.manual_seed(3); a = torch.randn(4)
torch.manual_seed(3); r = (a == torch.randn(4)).tolist(), (a == torch.randn(4)).tolist(); del a

torch.set_default_dtype(torch.float32); d = torch.get_default_dtype()
r = torch.tensor([1.0]); u = torch.zeros(1); v = r * 2.0; p = repr(r)

torch.set_default_dtype(torch.float32)
r = torch.tensor(np.ones(1)); p = repr(r); u = torch.from_numpy(np.ones(1)); v = u + 1
"""

# Where we differ on purpose: why, a program, and what holds of ours and not of PyTorch's.
DEVIATIONS = [
    ("ufuncs are recorded", "r = np.sin(x)", "r.grad_fn.name() == 'SinBackward0'"),
    ("ufuncs are recorded", "r = np.exp(x).sum(); r.backward()", "x.grad is not None"),
    ("ufuncs are recorded", "r = np.sqrt(w)", "r.requires_grad"),
    ("ufuncs are recorded", "r = np.maximum(x, n)", "r.grad_fn.name() == 'MaximumBackward0'"),
    ("ufuncs are recorded", "r = np.matmul(w, x)", "r.tolist() == [7, 6] and r.requires_grad"),
    ("ndarray op tensor", "r = np.ones(3) * x", "r.grad_fn.name() == 'MulBackward0'"),
    ("ndarray op tensor", "r = np.ones(3) - x", "r.tolist() == [0, -1, -2] and r.requires_grad"),
    ("ndarray op tensor", "r = np.ones(3) @ x; r.backward()", "x.grad.tolist() == [1, 1, 1]"),
    ("ndarray op tensor", "r = np.arange(3.) + n", "type(r) is torch.Tensor"),
    (
        "tensor op ndarray",
        "r = x * np.arange(3.); r.sum().backward()",
        "x.grad.tolist() == [0, 1, 2]",
    ),
    ("tensor op ndarray", "r = x @ np.ones(3)", "r.item() == 6 and r.requires_grad"),
    ("tensor op ndarray", "r = x > np.ones(3)", "r.tolist() == [False, True, True]"),
    ("NumPy's keywords", "r = np.sum(w, axis=0)", "r.shape == (3,) and r.requires_grad"),
    ("NumPy's keywords", "r = np.mean(w, axis=1, keepdims=True)", "r.shape == (2, 1)"),
    ("NumPy's keywords", "r = np.max(w, axis=1)", "r.tolist() == [1.5, 3.0] and r.requires_grad"),
    ("NumPy's keywords", "r = np.max(w)", "r.item() == 3 and r.requires_grad"),
    ("a select cuts", "r = torch.nan_to_num(1 / z); r.sum().backward()", "z.grad.tolist() == [0, 0, -1]"),
    ("a select cuts", "r = torch.fmax(z / z, n); r.sum().backward()", "z.grad.tolist() == [0, 0, 0]"),
    ("xlogy chooses 0", "r = torch.xlogy(z * 0, z); r[0].backward()", "z.grad.tolist() == [0, 0, 0]"),
    ("no lost digits", "r = torch.sinc(x * 1e-9); r.sum().backward()", "x.grad[0] < 0"),
    ("floor division has gradient 0", "r = x // 2; r.sum().backward()", "x.grad.tolist() == [0, 0, 0]"),
    ("Bessel functions have gradients", "r = torch.special.bessel_j0(x)", "r.requires_grad"),
    ("NumPy's meaning", "r = np.sign(z / z)", "r[0] != r[0]"),
    ("NumPy's functions", "r = np.concatenate([x, n])", "r.shape == (6,) and r.requires_grad"),
    ("NumPy's functions", "r = np.stack([x, n], axis=1)", "r.shape == (3, 2) and r.requires_grad"),
    ("NumPy's functions", "r = np.where(b, x, n)", "r.tolist() == [4, 2, 3] and r.requires_grad"),
    ("NumPy's functions", "r = np.reshape(w, (3, 2))", "r.shape == (3, 2) and r.requires_grad"),
    ("NumPy's functions", "r = np.transpose(w)", "r.shape == (3, 2) and r.requires_grad"),
    ("NumPy's functions", "r = np.dot(w, x)", "r.tolist() == [7, 6] and r.requires_grad"),
    ("dtypes are NumPy's", "r = x.dtype", "r is np.dtype('float64') is torch.float64"),
    ("a list of tensors is stacked", "r = torch.tensor([x[0], 2., x[1]])", "r.requires_grad"),
    (
        "a select cuts",
        "r = torch.where(z > .5, torch.sqrt(z), z); r.sum().backward()",
        "z.grad.tolist() == [1, 1, .5]",
    ),
    (
        "a select cuts",
        "r = torch.where(x > 1.5, torch.log(x - 1), x); r.sum().backward()",
        "x.grad.tolist() == [1, 1, .5]",
    ),
    (
        "a cut piece is not multiplied",
        "v = 1 / z; r = torch.cat([z, v])[:3].sum(); r.backward()",
        "z.grad.tolist() == [1, 1, 1]",
    ),
    (
        "an error changes nothing",
        "y = (x * x).sum()\ntry: torch.autograd.grad(y, [x, w])\nexcept RuntimeError: y.backward()",
        "x.grad.tolist() == [2, 4, 6]",
    ),
]

SWEEP = """
if isinstance(r, torch.Tensor) and r.requires_grad:
    r.backward(torch.arange(1, r.numel() + 1, dtype=r.dtype).reshape(r.shape))
"""


def rows(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if not line.startswith("##")]


def run(library: ModuleType, program: str) -> tuple[dict[str, Any], list[Raised]]:
    """Return the names that `program` leaves, and what it raised and warned of."""
    names: dict[str, Any] = {"torch": library, "np": np}
    exec(LEAVES, names)  # noqa: S102 (the programs are the table above)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(program, names)  # noqa: S102
            complaints = []
        except Exception as error:  # noqa: BLE001 (to be compared)
            complaints = [raised(error)]
        finally:
            library.set_grad_enabled(True)
            library.set_default_dtype(library.float64)
    said = [one.message for one in caught if issubclass(one.category, UserWarning)]
    return names, complaints + [raised(message) for message in said if isinstance(message, Exception)]


def outcome(library: ModuleType, program: str) -> dict[str, Any]:
    """Return what a program complains of, and what it leaves: the leaves where it changes them, all that it binds."""
    names, complaints = run(library, program)
    untouched = described(run(library, "")[0])
    left = {
        name: found
        for name, found in described(names).items()
        if name not in untouched or any(differences(found, untouched[name], rtol=0.0, single=0.0))
    }
    return {"complaints": complaints, "left": left}


def described(names: dict[str, Any]) -> dict[str, Any]:
    """Describe in words and arrays what a program left, for comparison across libraries."""
    library = names["torch"]
    hidden = ModuleType, type(described), type
    return {
        name: description(library, value)
        for name, value in names.items()
        if name != "__builtins__" and not isinstance(value, hidden)
    }


def description(library: ModuleType, value: Any) -> Any:
    if isinstance(value, library.Tensor):
        return tensor_description(library, value)
    if isinstance(value, library.Size):
        return {"Size": list(value)}
    if isinstance(value, np.dtype | type(library.float64)):
        return str(value).removeprefix("torch.")
    if isinstance(value, tuple | list):
        return [description(library, item) for item in value]
    if isinstance(value, str):
        return value.replace("torch.", "tape.")
    plain = value is None or isinstance(value, np.ndarray | bool | int | float)
    return value if plain else type(value).__name__


def tensor_description(library: ModuleType, tensor: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grad = tensor.grad
    return {
        "values": tensor.detach().numpy().copy(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "grad_fn": tensor.grad_fn and tensor.grad_fn.name(),
        "grad": None if grad is None else description(library, grad),
    }


def match(complaints: list[Raised], kind: str, gist: str) -> Raised | None:
    """Find the complaint of a class, or base class, called `kind` whose text has `gist`."""
    pattern = ".*".join(re.escape(part) for part in gist.split("..."))
    for complaint in complaints:
        if kind in complaint.classes and re.search(pattern, complaint.text, re.DOTALL | re.IGNORECASE):
            return complaint
    return None


def check(pytorch: Outcomes, program: str, key: str = "") -> list[str]:
    """Run a program with both; return the places where what they leave differs."""
    code, _, comment = program.partition("  # ")
    ours, theirs = outcome(tape, code), pytorch(lambda torch: outcome(torch, code), key or program)
    if comment:
        kind, _, gist = comment.partition(": ")
        assert match(theirs["complaints"], kind, gist), f"PyTorch: {theirs['complaints']}"
        assert match(ours["complaints"], kind, gist), f"ours: {ours['complaints']}"
    else:
        assert ours["complaints"] == [], f"ours: {ours['complaints']}"
        assert theirs["complaints"] == [], f"PyTorch: {theirs['complaints']}"
    return list(differences(ours["left"], theirs["left"]))


def test_leaves(pytorch: Outcomes) -> None:
    """What the programs start from is alike; of an outcome is left out what they do not change."""
    leaves = [described(run(tape, "")[0]), pytorch(lambda torch: described(run(torch, "")[0]), "the leaves")]
    assert leaves[0].keys() == leaves[1].keys() == set("xwszfnib")
    assert not list(differences(*leaves, rtol=0.0, single=0.0))


@pytest.mark.parametrize("expression", [e for row in rows(EXPRESSIONS) for e in row.split(" | ")])
def test_expression(pytorch: Outcomes, expression: str) -> None:
    assert check(pytorch, f"r = {expression}\n{SWEEP}", expression) == []


@pytest.mark.parametrize("program", rows(PROGRAMS))
def test_program(pytorch: Outcomes, program: str) -> None:
    assert check(pytorch, program) == []


@pytest.mark.parametrize("program", BLOCKS.strip().split("\n\n"))
def test_block(pytorch: Outcomes, program: str) -> None:
    assert check(pytorch, program) == []


@pytest.mark.parametrize(("why", "program", "holds"), DEVIATIONS)
def test_deviation(pytorch: Outcomes, why: str, program: str, holds: str) -> None:
    ours, complaints = run(tape, program)
    assert complaints == [], why
    assert eval(holds, ours), why  # noqa: S307 (the condition is in the table above)

    def differs(torch: ModuleType) -> bool:
        theirs, complaints = run(torch, program)
        return bool(complaints) or not eval(holds, theirs)  # noqa: S307

    assert pytorch(differs, f"{program} # {holds}"), "PyTorch does the same: no deviation"
