"""Which functions give a view, the tensor itself, or a copy: PyTorch's answer, and NumPy's of NumPy's functions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes

MATRIX = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

PYTORCH = """
torch.tile(x,(1,1)) | torch.tile(x,(1,)) | torch.tile(x,(2,1)) | torch.tile(x,(1,1,1)) | torch.tile(x,())
x.tile(1) | x.tile((1,1)) | x.repeat(1,1) | x.repeat(2,1) | x.repeat(1,1,1) | torch.repeat_interleave(x,1,0)
x.repeat_interleave(1) | x.repeat_interleave(1,dim=1) | x.reshape(2,3) | x.reshape(3,2) | x.reshape(-1)
x.T.reshape(6) | x.T.reshape(3,2) | torch.reshape(x,(2,3)) | x.flatten() | x.flatten(0,0) | torch.flatten(x)
x.T.flatten() | x[0].flatten() | s.flatten() | torch.ravel(x) | x.ravel() | x.T.ravel() | x.contiguous()
x.T.contiguous() | x.to(torch.float64) | x.to(x) | x.to("cpu") | x.to(torch.float64,copy=True) | x.double()
x.float() | x.type_as(x) | x.cpu() | x.clone() | x.detach() | x.roll(0) | torch.roll(x,0,0)
torch.roll(x,2,0) | torch.roll(x,(0,),(0,)) | torch.flip(x,()) | torch.flip(x,(0,)) | torch.flip(x[:1],(0,))
x.fliplr() | x.flipud() | torch.rot90(x,0) | torch.rot90(x,4) | torch.rot90(x,1) | torch.rot90(x,2)
torch.real(x) | x.real | x.expand_as(x) | x.expand(2,3) | x.expand(-1,-1) | torch.broadcast_to(x,(2,3))
torch.broadcast_to(x,(4,2,3)) | x.broadcast_to((2,3)) | torch.broadcast_tensors(x,x)[0] | torch.atleast_1d(x)
torch.atleast_2d(x) | torch.atleast_3d(x) | torch.atleast_1d(s) | torch.atleast_2d(x[0]) | x.squeeze()
x.squeeze(0) | torch.squeeze(x) | x.unsqueeze(0) | x.view(2,3) | x.view_as(x) | x.reshape_as(x) | x.t() | x.T
x[0].t() | x.mT | x.permute(0,1) | x.transpose(0,0) | x.transpose(0,1) | torch.swapaxes(x,0,1)
torch.swapdims(x,0,0) | torch.movedim(x,0,0) | torch.movedim(x,0,1) | torch.moveaxis(x,0,1) | x[:] | x[...]
x[()] | x[None] | x[0:2] | x[[0,1]] | x[torch.tensor([True,True])] | x.narrow(0,0,2) | x.select(0,0)
x.unbind(0)[0] | x.chunk(1)[0] | x.chunk(2)[0] | x.split(2)[0] | x.split(1)[0] | torch.tensor_split(x,1)[0]
torch.tensor_split(x,2)[0] | torch.hsplit(x,1)[0] | torch.vsplit(x,2)[0] | torch.dsplit(x.reshape(1,2,3),1)[0]
x.unfold(0,1,1) | x.diagonal() | torch.diag(x) | torch.diag(x[0]) | torch.diagonal(x) | torch.diagflat(x[0])
torch.diag_embed(x) | x.as_strided((2,3),(3,1)) | torch.cat([x]) | torch.cat([x,x]) | torch.cat((x,x[:0]))
torch.stack([x]) | torch.hstack([x]) | torch.vstack([x]) | torch.dstack([x]) | torch.column_stack([x])
torch.row_stack([x]) | torch.concat([x]) | torch.meshgrid(x[0],indexing="ij")[0]
torch.meshgrid(x[0],x[0],indexing="ij")[0] | torch.cartesian_prod(x[0]) | torch.block_diag(x)
torch.einsum("ij->ij",x) | torch.einsum("ij->ji",x) | torch.einsum("ij->i",x) | torch.einsum("ii->i",x[:,:2])
torch.tril(x) | torch.triu(x) | torch.tril(x,5) | x.sum(()) | x.sum(dim=()) | x[:1].sum(0) | x.mean(())
x.cumsum(0) | x.sort(0).values | x.gather(0,torch.zeros(1,3,dtype=torch.int64)) | x.take(torch.tensor([0]))
x.index_select(0,torch.tensor([0,1])) | torch.where(x>0,x,x) | x.masked_fill(x>1e9,0.0) | x.clamp(None,1e9)
x.clamp(-1e9) | x.abs() | torch.positive(x) | +x | -x | x.nan_to_num() | x.round() | x.round(decimals=0) | x*1
x+0 | x/1 | x**1 | x.pow(1) | torch.conj(x) | x.conj() | x.adjoint() | x.nan_to_num(0.0)
torch.special.expit(x) | torch.diff(x,n=0) | torch.matrix_power(q,1) | torch.linalg.matrix_power(q,1)
torch.linalg.multi_dot([q,q]) | torch.unflatten(x,0,(2,1)) | x.unflatten(0,(1,2))
x.swapaxes(0,1) | x.movedim(0,1) | torch.clone(x) | torch.detach(x) | torch.as_tensor(x) | x.requires_grad_()
x.lerp(x,0.0) | torch.add(x,0) | torch.tensor_split(x,[1])[0] | x.type(torch.float64)
torch.addmm(q,q,q,alpha=0) | x.index_fill(0,torch.tensor([],dtype=torch.int64),0.0)
torch.scatter(x,0,torch.zeros(0,3,dtype=torch.int64),0.0) | torch.select(x,0,0) | torch.narrow(x,0,0,2)
torch.unsqueeze(x,0) | torch.vander(x[0]) | torch.cross(x,x,dim=1) | torch.msort(x) | torch.squeeze(x,0)
torch.squeeze(x[:1],0)
"""

NUMPY = """
np.tile(x,1) | np.tile(x,(1,1)) | np.tile(x,()) | np.tile(x,(1,1,1)) | np.repeat(x,1) | np.repeat(x,1,0)
np.pad(x,0) | np.pad(x,((0,0),(0,0)),mode="edge") | np.pad(x,0,mode="reflect") | np.pad(x,0,mode="wrap")
np.roll(x,0) | np.roll(x,0,0) | np.roll(x,(0,0),(0,1)) | np.flip(x) | np.flip(x,0) | np.flip(x,())
np.fliplr(x) | np.flipud(x) | np.reshape(x,(2,3)) | np.reshape(x,(3,2)) | np.reshape(x.T,(6,)) | np.ravel(x)
np.ravel(x.T) | x.ravel() | np.squeeze(x) | np.squeeze(x[:1]) | np.atleast_1d(x) | np.atleast_2d(x)
np.atleast_3d(x) | np.atleast_1d(x[0]) | np.broadcast_to(x,(2,3)) | np.broadcast_to(x,(4,2,3))
np.broadcast_arrays(x,x)[0] | np.real(x) | np.copy(x) | np.transpose(x) | np.transpose(x,(0,1))
np.expand_dims(x,0) | np.moveaxis(x,0,0) | np.moveaxis(x,0,1) | np.swapaxes(x,0,1) | np.rollaxis(x,0)
np.rot90(x,0) | np.rot90(x,4) | np.rot90(x,1) | np.rot90(x,2) | np.diagonal(x) | np.diag(x) | np.diag(x[0])
np.diagflat(x) | np.split(x,1)[0] | np.split(x,2)[0] | np.array_split(x,2)[0] | np.vsplit(x,1)[0]
np.hsplit(x,3)[0] | np.concatenate([x]) | np.stack([x]) | np.vstack([x]) | np.hstack([x]) | np.dstack([x])
np.column_stack([x]) | np.block([x]) | np.block([[x]]) | np.where(x>0,x,x) | np.take(x,[0,1],0) | np.tril(x)
np.triu(x,-5) | np.nan_to_num(x) | np.clip(x,None,1e9) | np.positive(x) | np.around(x,0) | np.round(x)
np.sum(x,axis=()) | np.mean(x,axis=()) | np.max(x,axis=()) | np.cumsum(x,0) | np.append(x[0],x[0][:0])
np.delete(x,[],0) | np.resize(x,(2,3)) | np.einsum("ij->ij",x) | np.einsum("ij->ji",x) | np.einsum("ij->i",x)
np.einsum("ii->i",x[:,:2]) | np.sort(x,0) | np.abs(x) | np.matrix_transpose(x) | np.permute_dims(x,(0,1))
np.unstack(x)[0] | np.diff(x,n=0) | np.trapezoid(x) | np.linalg.matrix_power(x[:,:2],1)
np.linalg.multi_dot([x[:,:2],x[:,:2]]) | np.meshgrid(x[0],x[0])[0] | np.meshgrid(x[0],x[0],copy=False)[0]
np.concatenate([x],axis=None) | np.astype(x,np.float64) | np.astype(x,np.float64,copy=False)
np.trim_zeros(x[0]) | np.extract(x>0,x) | np.compress([True,True],x,0) | np.nan_to_num(x,copy=True) | x.T
x.squeeze() | x.transpose()
"""

ITSELF = {
    "np.linalg.matrix_power(x[:,:2],1)",
    "np.squeeze(x)",
    "np.broadcast_arrays(x,x)[0]",
    "np.diff(x,n=0)",
    "x.squeeze()",
}
"""What NumPy gives back as it is; a tensor that shares its memory, or equals it, is as good."""


def cells(table: str) -> list[str]:
    return [cell.strip() for line in table.strip().splitlines() for cell in line.split("|")]


def names(library: Any) -> dict[str, Any]:
    x = library.tensor(MATRIX, requires_grad=True) * 1.0
    q, s = (library.tensor(v, requires_grad=True) * 1.0 for v in ([[1.0, 2.0], [3.0, 4.0]], 3.0))
    return {"torch": library, "x": x, "q": q, "s": s}


def memory(x: Any) -> Any:
    return x.numpy(force=True) if hasattr(x, "detach") else x


def kind(found: Any, given: list[Any]) -> str:
    if any(found is x for x in given):
        return "itself"
    return "view" if any(np.shares_memory(memory(found), memory(x)) for x in given) else "copy"


@pytest.mark.parametrize("row", cells(PYTORCH))
def test_like_pytorch(row: str, pytorch: Outcomes) -> None:
    def found(library: ModuleType) -> str:
        own = names(library)
        return kind(eval(row, own), [own["x"], own["q"], own["s"]])  # noqa: S307 (the table above)

    assert found(tape) == pytorch(found, row)


@pytest.mark.parametrize("row", cells(NUMPY))
def test_like_numpy(row: str) -> None:
    array, x = MATRIX.copy(), tape.tensor(MATRIX, requires_grad=True) * 1.0
    expected, found = (eval(row, {"np": np, "x": own}) for own in (array, x))  # noqa: S307
    np.testing.assert_allclose(memory(found), expected)
    if row in ITSELF:
        return
    assert (kind(found, [x]) != "copy") == (kind(expected, [array]) != "copy")


@pytest.mark.parametrize("row", ["x.tile(1)", "torch.tile(x, (1, 1))", "x.repeat(1, 1)", "x.repeat_interleave(1, 0)"])
def test_a_hook_on_what_is_a_copy_stays(row: str, pytorch: Outcomes) -> None:
    def found(library: ModuleType) -> list[Any]:
        own, seen = names(library), list[Any]()
        y = eval(row, own)  # noqa: S307
        y.register_hook(lambda g: seen.append(g.tolist()))
        own["x"].add_(1.0)
        (y * y).sum().backward()
        return seen

    assert found(tape) == pytorch(found, f"{row} with a hook")


TURNS = [
    "np.flip(x)",
    "np.flip(x, 0)",
    "np.fliplr(x)",
    "np.flipud(x)",
    "np.rot90(x)",
    "np.rot90(x, 2)",
    "np.rot90(x, 3)",
]


@pytest.mark.parametrize("row", TURNS)
def test_writes_through_views_of_numpys(row: str) -> None:
    array, leaf = MATRIX.copy(), tape.tensor(MATRIX, requires_grad=True)
    x = leaf * 1.0
    part, own = eval(row, {"np": np, "x": x}), eval(row, {"np": np, "x": array})  # noqa: S307
    part[0] *= 3.0
    own[0] *= 3.0
    np.testing.assert_array_equal(x.detach(), array)
    (x * x).sum().backward()
    np.testing.assert_array_equal(leaf.grad, 2 * array * array / MATRIX)


@pytest.mark.parametrize("join", ["stack", "cat"])
@pytest.mark.parametrize("part", ["T", "expand", "rows"])
def test_joins_are_contiguous(join: str, part: str, libraries: list[ModuleType]) -> None:
    for library in libraries:
        x = names(library)["x"]
        v = {"T": lambda x=x: x.T, "expand": lambda x=x: x[0].expand(2, 3), "rows": lambda x=x: x[:, ::2]}[part]()
        for _ in range(2):
            y = getattr(library, join)([v, v])
            assert y.is_contiguous()
            assert y.stride() == tuple(np.empty(tuple(y.shape)).strides[k] // 8 for k in range(len(y.shape)))
