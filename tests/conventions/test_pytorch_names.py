"""The many small names of PyTorch's: values, dtypes, gradients and exceptions of each against PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import tape
from tests.support import agreement

if TYPE_CHECKING:
    from types import ModuleType

    from tests.support.pytorch_outcomes import Outcomes

AGREE = """
x.add(x,alpha=2) | x=t
x.add(2,alpha=3) | x=t
x.sub(x*x,alpha=2) | x=t
x.subtract(1.5,alpha=2) | x=t
torch.tensor([1,2]).add(torch.tensor([3,4]),alpha=2)
torch.rsub(x,2) | x=t
torch.rsub(x,x*2,alpha=3) | x=t
torch.threshold(x,2.,-1.) | x=[1.,2.,3.,nan]
torch.threshold(torch.tensor([1,2,3]),2,0)
torch.fill(x,2.) | x=t
torch.fill(x,s) | x=t,s=2.
torch.fill(torch.tensor([1,2]),7)
torch.frexp(x) | x=[1.,-2.5,0.,5e-324,1e300]
x.frexp() | x=3.
torch.renorm(x,2,0,1.) | x=[[1.,2.],[.3,.5]]
torch.renorm(x,1,1,2.) | x=[[1.,2.],[.3,.5]]
torch.renorm(x,2,-1,.5) | x=[[[1.,2.],[.3,.5]],[[0.,0.],[.1,0.]]]
(x*1).renorm_(2,0,1.) | x=[[1.,2.],[.3,.5]]
torch.cosine_similarity(x,y,dim=0) | x=t,y=[5.,6.,1.,2.]
torch.cosine_similarity(x,y) | x=[[1.,2.],[.3,.5]],y=[[3.,-1.]]
torch.cosine_similarity(x,y,0) | x=[0.,0.],y=[3.,4.]
torch.pairwise_distance(x,y) | x=t,y=[5.,6.,1.,2.]
torch.pairwise_distance(x,y,p=1,keepdim=True) | x=[[1.,2.],[.3,.5]],y=[3.,-1.]
torch.put(x,torch.tensor([0,1]),y) | x=t,y=[5.,6.]
x.put(torch.tensor([[0],[-1]]),y) | x=[[1.,2.],[3.,4.]],y=[[5.],[6.]]
x.put(torch.tensor([1,1]),y,accumulate=True) | x=t,y=[5.,6.]
(x*1).put_(torch.tensor([0,1]),y) | x=t,y=[5.,6.]
(x*1).T.put_(torch.tensor([1]),y) | x=[[1.,2.],[3.,4.]],y=[6.]
(x*1).cumsum_(0) | x=t
(x*1).cumprod_(0) | x=t
(x*1).addmm_(x,x,beta=2) | x=[[1.,2.],[3.,5.]]
(x*1).addmv_(z,x,alpha=2) | x=[1.,2.],z=[[1.,2.],[3.,4.]]
(x*1).addr_(z,z) | x=[[1.,2.],[3.,5.]],z=[1.,2.]
(x*1).addbmm_(x[None],x[None]) | x=[[1.,2.],[3.,5.]]
(x*1).baddbmm_(x,x,beta=.5) | x=[[[1.,2.],[3.,5.]]]
torch.gcd(torch.tensor([12,-18]),torch.tensor([8,27]))
torch.lcm(torch.tensor([12,-18]),torch.tensor([8,27]))
torch.tensor([12,18]).gcd_(torch.tensor([8,27]))
torch.isin(x.detach(),torch.tensor([1.,2.])) | x=t
torch.isin(x.detach(),3.) | x=t
torch.isin(3.,x.detach()) | x=t
torch.isin(torch.tensor([[1,2],[3,4]]),torch.tensor([2,3]),invert=True,assume_unique=True)
torch.unravel_index(torch.tensor([3,5]),(2,3))
torch.unravel_index(torch.tensor(5),(2,3))
torch.unravel_index(torch.tensor([[1]]),4)
torch.unique_consecutive(torch.tensor([1,1,2,2,1]))
torch.unique_consecutive(torch.tensor([1,1,2,2,1]),return_counts=True,return_inverse=True)
torch.unique_consecutive(torch.tensor([[1,1,2],[2,1,1]]),return_counts=True,return_inverse=True)
torch.tensor([[1,1],[1,1],[2,1]]).unique_consecutive(dim=0,return_counts=True,return_inverse=True)
torch.tensor([[1,1,2],[3,3,3]]).unique_consecutive(dim=1)
torch.unique_consecutive(torch.empty(0),return_counts=True)
torch.unique_consecutive(torch.tensor([nan,nan,1.]))
torch.vander(torch.tensor([1.,2.,3.]))
torch.vander(torch.tensor([1,2,3]),2)
torch.vander(torch.tensor([1.,2.,3.]),N=4,increasing=True)
torch.vander(torch.tensor([1.,2.,3.]),N=1)
torch.vander(torch.tensor([1.,2.,3.]),N=0)
torch.vander(torch.empty(0))
torch.igamma(torch.tensor([1.,2.]),x) | x=[1.,2.]
torch.tensor([1.,2.]).igammac(x) | x=[1.,2.]
torch.special.modified_bessel_i0(x.detach()) | x=t
torch.special.modified_bessel_i1(x.detach()) | x=t
torch.special.modified_bessel_k0(x.detach()) | x=t
torch.special.modified_bessel_k1(x.detach()) | x=t
torch.angle(x) | x=[1.,-2.,0.,-0.,inf,-inf]
torch.angle(torch.tensor([nan,1.]))
torch.angle(torch.tensor([1,-2]))
torch.constant_pad_nd(x,(1,2),3.) | x=t
torch.constant_pad_nd(x,(1,-2)) | x=t
torch.reshape(x,shape=(2,2)) | x=t
x.view(size=(2,2)) | x=t
torch.permute(x,dims=(1,0)) | x=[[1.,2.]]
x.expand(size=(2,4)) | x=t
torch.tile(x,dims=(2,)) | x=t
x.repeat(repeats=(2,1)) | x=t
torch.matmul(x,other=x) | x=t
torch.matmul(input=x,other=x) | x=t
torch.dot(x,tensor=x) | x=t
torch.mv(x,vec=x[0]) | x=[[1.,2.],[3.,5.]]
torch.mm(x,mat2=x) | x=[[1.,2.],[3.,5.]]
torch.isreal(x) | x=t
torch.real(x) | x=t
x.real | x=t
torch.conj(x) | x=t
x.conj() | x=t
torch.detach(x) | x=t
torch.numel(x) | x=t
torch.is_floating_point(x) | x=t
torch.is_complex(x) | x=t
torch.is_signed(x) | x=t
torch.tensor([1],dtype=torch.uint8).is_signed()
torch.is_nonzero(torch.tensor([1.]))
torch.tensor([[0]]).is_nonzero()
torch.is_same_size(x,x[:2]) | x=t
torch.broadcast_shapes((2,1),(3,))
torch.broadcast_shapes(2,(3,1),())
torch.promote_types(torch.float32,torch.float64)==torch.float64
torch.promote_types(torch.int8,torch.uint8)==torch.int16
torch.result_type(torch.zeros(1,dtype=torch.float32),1.)==torch.float32
x.ndimension() | x=t
x.nbytes | x=t
torch.tensor([1],dtype=torch.int16).nbytes
x.itemsize | x=t
x.element_size() | x=t
[x.is_cpu,x.is_cuda,x.is_mps,x.is_meta,x.is_sparse,x.is_quantized] | x=t
x.byte() | x=t
x.char() | x=t
x.short() | x=t
x.type_as(torch.zeros(1,dtype=torch.float32)) | x=t
x.type_as(x) | x=t
2. in x.detach() | x=t
9. in x.detach() | x=t
4. in x.detach() | x=[[1.,2.],[3.,4.]]
torch.tensor([2.,9.]) in x.detach() | x=[[1.,2.],[3.,4.]]
1. in torch.empty(0)
x.new_zeros(2,3) | x=t
x.new_zeros((2,3),dtype=torch.int64) | x=t
x.new_zeros(2,requires_grad=True) | x=t
torch.zeros(1,dtype=torch.float32).new_ones(2)
x.new_full((2,),3) | x=t
x.new_full(size=(2,),fill_value=3.,dtype=torch.float32) | x=t
x.new_empty(0) | x=t
x.new_empty((0,2)) | x=t
x.new_tensor([1,2]) | x=t
x.new_tensor(3) | x=t
torch.tensor([1,2]).new_tensor([2,3])
torch.zeros(1,dtype=torch.float32).new_tensor([2.5],requires_grad=True)
torch.scalar_tensor(3)
torch.scalar_tensor(3,dtype=torch.int64)
torch.arange(end=5)
torch.arange(start=1,end=5,step=2)
torch.arange(5,dtype=torch.float32)
torch.linspace(start=0,end=1,steps=5)
torch.linspace(0,10,5,dtype=torch.int64)
torch.linspace(0,1,1)
torch.linspace(0,1,0)
torch.logspace(0,2,3)
torch.logspace(-1,1,steps=5,base=2.)
torch.logspace(0,2,3,dtype=torch.float32)
torch.logspace(0,2,1)
torch.finfo(torch.float32).eps
torch.finfo(x.dtype).max | x=t
torch.iinfo(torch.int32).min
[torch.pi,torch.e,torch.inf,-torch.inf,torch.newaxis]
"""

RAISE = """
torch.renorm(x,2,0,1.) | x=t | RuntimeError
torch.renorm(x,0,0,1.) | x=[[1.]] | RuntimeError
torch.renorm(x,2,2,1.) | x=[[1.]] | IndexError
torch.frexp(torch.tensor([1])) |  | RuntimeError
torch.put(x,torch.tensor([0]),torch.tensor([1.,2.])) | x=t | IndexError
torch.put(x,torch.tensor([9]),torch.tensor([1.])) | x=t | IndexError
torch.put(x,torch.tensor([0]),torch.tensor([1])) | x=t | RuntimeError
torch.put(x,torch.tensor([0.]),torch.tensor([1.])) | x=t | RuntimeError
x.put_(torch.tensor([0]),torch.tensor([1.])) | x=t | RuntimeError
x.cumsum_(0) | x=t | RuntimeError
(x*1).addmm_(torch.ones(2,3),torch.ones(3,2)) | x=t | RuntimeError
torch.is_nonzero(x) | x=t | RuntimeError
torch.broadcast_shapes((2,),(3,)) |  | RuntimeError
torch.vander(x) | x=[[1.]] | RuntimeError
torch.vander(torch.ones(2),-1) |  | RuntimeError
torch.cosine_similarity(torch.tensor([1,2]),torch.tensor([1,2]),0) |  | RuntimeError
torch.arange() |  | TypeError
torch.logspace(0,1,-1) |  | RuntimeError
torch.fill(x,torch.ones(2)) | x=t | RuntimeError
x.mul(2,alpha=3) | x=t | TypeError
torch.unique_consecutive(x) | x=t | NotImplementedError
"""


@pytest.mark.quick
@pytest.mark.parametrize("row", agreement.rows(AGREE))
def test_agrees_with_pytorch(pytorch: Outcomes, row: str) -> None:
    agreement.agree(pytorch, row)


@pytest.mark.parametrize("row", agreement.rows(RAISE))
def test_raises_as_pytorch(pytorch: Outcomes, row: str) -> None:
    agreement.refuse(pytorch, row)


def test_dtypes_cast_as_pytorchs_do(pytorch: Outcomes) -> None:
    names = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")

    def table(library: ModuleType) -> list[list[bool]]:
        dtypes = [getattr(library, name) for name in names]
        return [[library.can_cast(one, other) for other in dtypes] for one in dtypes]

    assert table(tape) == pytorch(table, "can_cast")


def test_ranges_between_tensors_have_gradients() -> None:
    a, b = (tape.tensor(v, requires_grad=True) for v in (0.5, 3.0))
    assert tape.autograd.gradcheck(lambda a, b: tape.linspace(a, b, 5), (a, b))
    assert tape.autograd.gradcheck(lambda a: tape.logspace(0.0, a, 4, base=2.0), (a,))
    np.testing.assert_allclose(tape.linspace(a, 2, 4).detach().numpy(), np.linspace(0.5, 2, 4), rtol=1e-15)
    assert tape.linspace(a, 2, 4, dtype=tape.float32).dtype == tape.float32
    assert tape.linspace(a.detach(), 2, 4, requires_grad=True).is_leaf


def test_gradients_of_what_pytorch_cannot_do() -> None:
    x = tape.tensor([1.5, -2.0, 0.5], requires_grad=True)
    assert tape.autograd.gradcheck(lambda x: tape.vander(x, 4), (x,))  # PyTorch's backward raises
    assert tape.autograd.gradgradcheck(lambda x: tape.renorm(x[None], 2, 0, 1.0), (x,))
    assert tape.autograd.gradcheck(lambda x: tape.cosine_similarity(x, x.flip(0), 0), (x,))
    assert tape.autograd.gradcheck(lambda x: tape.ldexp(*tape.frexp(x)), (x,))


def test_numbers_of_no_element_are_refused() -> None:
    for index in ([6], [-1], [0.5]):
        with pytest.raises(ValueError, match=r"out of bounds|Expected dtype"):  # PyTorch wraps them
            tape.unravel_index(tape.tensor(index), (2, 3))


def test_a_refused_write_changes_nothing() -> None:
    x = tape.tensor([1.0, 2.0])
    for index, source in (([0, 5], [7.0, 8.0]), ([0, 1], [7.0])):
        with pytest.raises(IndexError):
            x.put_(tape.tensor(index), tape.tensor(source))
    assert x.tolist() == [1.0, 2.0]
