"""Communication between processes as operations, whose gradients go the other way; on mpi4py.

Names are mpi4py's. The rule is mpi4torch's: gradients are those of the *sum of what all ranks differentiate*, so that
each communication is a linear map of the values of all ranks, and the way back is its transpose. `total` and `shared`
are for what is one value of the whole program, a loss and a parameter, though each rank has a copy.

    def loss(u, k):                               # u: this rank's points; k: the same on all ranks
        k = mpi.shared(k)                         # its gradient is summed over the ranks
        for _ in range(steps):
            v = mpi.halo_exchange(u)              # one point of each neighbour
            u = u + k * (v[2:] - 2 * v[1:-1] + v[:-2])
        return mpi.total((u**2).sum())            # one number, the same on all ranks

    value, (by_u, by_k) = tape.value_and_grad(loss, (0, 1))(u, k)

Arrays in give arrays out. Tensors have gradients to any order, forward mode, and `vmap` over a batch that all ranks
have. Functions that `tape.compile` compiles stay dynamic where they communicate; compile what is between. What a rank
has to keep to:

- all ranks communicate in one order, as always in MPI, and on the way back in the opposite one: a rank whose result
  does not depend on a communication leaves the others waiting there. `join` lets it depend on one.
- `send` waits until the message is received (MPI_Ssend): a program that ends has a way back that ends.
- a communication's operands require grad on all ranks or on none; what is received may do so alone.

Each message carries its number, shape and dtype: where two ranks mean different ones, RuntimeError is raised.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from kernels.programs.program import ProgramError
from tape.autograd.function import Function
from tape.recording.creation import zeros
from tape.recording.record import note_unrecorded
from tape.recording.views import cat
from tape.tensors.modes import is_grad_enabled, recorder
from tape.tensors.tensor import Tensor, as_array, constant_tensor, scalar_or_array

__all__ = [
    "allgather", "allreduce", "bcast", "halo_exchange", "join", "recv", "reduce", "send", "sendrecv", "shared", "total",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_NUMBERS = count(1)
_UP, _DOWN = 30_001, 30_002  # tags of what goes to the next rank, and to the one before
_HEAD = 4 * np.dtype(np.int64).itemsize
_ASYMMETRIC = (
    "rank {} sends rank {} what requires grad, and nothing here does, so that no gradient would come back: let what is "
    "sent here, or `like`, require grad"
)
_DIFFER = {
    "shared": "shared: the values differ between the ranks; bcast them from one",
    "gradient shared": "total: its gradient differs between the ranks, which then do not all compute the same with it; "
    "where each rank goes on with it in its own way, use allreduce",
}


@dataclass
class _Message:
    """One message of an exchange: ``peer`` is None for nobody, ``answers`` the number of the one it belongs to."""

    peer: int | None
    tag: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    answers: int = 0
    number: int = 0

    def code(self, kind: str) -> int:
        """Return a number for what it holds."""
        return zlib.crc32(f"{kind} {self.shape} {self.dtype}".encode())


@dataclass
class _Exchange:
    """Messages to some ranks and from some, all at once: of values, or of the ``gradient`` or ``tangent`` of others."""

    comm: Any
    sends: Sequence[_Message]
    takes: Sequence[_Message]
    kind: str = ""
    number: int = 0
    axes = (0, 0)

    def run(self, arrays: Sequence[Array], recorded: bool) -> list[Array]:
        """Send arrays, and return those that arrive; zeros from nobody."""
        self.number = next(_NUMBERS)
        buffers = [np.zeros(_HEAD + x.dtype.itemsize * math.prod(x.shape), np.uint8) for x in self.takes]
        taken = [(x, buffer) for x, buffer in zip(self.takes, buffers, strict=True) if x.peer is not None]
        requests = [self.comm.Irecv(buffer, x.peer, x.tag) for x, buffer in taken]
        for x, a in zip(self.sends, arrays, strict=True):
            if x.peer is not None:
                head = np.array([self.number, x.answers, recorded, x.code(self.kind)])
                data = np.concatenate([head.view(np.uint8), a.reshape(-1).view(np.uint8)])
                requests.append(self.comm.Issend(data, x.peer, x.tag))
        for request in requests:
            request.Wait()
        for x, buffer in taken:
            self._check(x, buffer[:_HEAD].view(np.int64).tolist(), recorded)
        pairs = zip(self.takes, buffers, strict=True)
        return [buffer[_HEAD:].view(x.dtype).reshape(x.shape) for x, buffer in pairs]

    def _check(self, x: _Message, head: list[int], recorded: bool) -> None:
        (number, answers, moves, code), rank = head, self.comm.Get_rank()
        if (code, answers) != (x.code(self.kind), x.answers):
            raise RuntimeError(
                f"rank {rank} waits for {self.kind or 'values'} {x.dtype}{list(x.shape)} of rank {x.peer}, and another "
                "message arrives: the ranks communicate in another order, or with other shapes"
            )
        if moves and not recorded:
            raise RuntimeError(_ASYMMETRIC.format(x.peer, rank))
        x.number = number if moves else 0

    def following(self, kind: str) -> _Exchange:
        """Return the exchange of gradients, which go back, or of tangents; ranks without derivatives have none."""
        sent = [replace(x, answers=self.number) for x in self.sends]
        taken = [replace(x, answers=x.number, peer=x.peer if x.number else None) for x in self.takes]
        return _Exchange(self.comm, *((taken, sent) if kind == "gradient" else (sent, taken)), kind)

    def batched(self, size: int) -> _Exchange:
        """Return the exchange of a batch."""
        sends, takes = ([replace(x, shape=(size, *x.shape)) for x in several] for several in (self.sends, self.takes))
        return _Exchange(self.comm, sends, takes, self.kind)


def _filled(call: Callable[..., Any], a: Array, shape: tuple[int, ...], *how: Any, **named: Any) -> Array:
    result = np.zeros(shape, a.dtype)
    call(a, result, *how, **named)
    return result


def _broadcast(comm: Any, a: Array, root: int) -> Array:
    result = a.copy()
    comm.Bcast(result, root)
    return result


_COLLECTIVES: dict[str, tuple[Callable[..., Array], str]] = {
    "allreduce": (lambda comm, a, _: _filled(comm.Allreduce, a, a.shape), "allreduce"),
    "total": (lambda comm, a, _: _filled(comm.Allreduce, a, a.shape), "shared"),
    "shared": (lambda _, a, __: a.copy(), "total"),
    "bcast": (_broadcast, "reduce"),
    "reduce": (lambda comm, a, root: _filled(comm.Reduce, a, a.shape, root=root), "bcast"),
    "allgather": (lambda comm, a, _: _filled(comm.Allgather, a, (comm.Get_size(), *a.shape)), "reduce_scatter"),
    "reduce_scatter": (lambda comm, a, _: _filled(comm.Reduce_scatter_block, a, a.shape[1:]), "allgather"),
}
"""How each is run, and its transpose; ``shared`` leads from the one value to the ranks' copies, ``total`` back."""


@dataclass
class _Collective:
    """A communication of all ranks, who first agree that they mean the same one."""

    comm: Any
    name: str
    root: int = 0
    kind: str = ""
    answers: int = 0
    number: int = 0

    @property
    def axes(self) -> tuple[int, int]:
        """Where the axis of a batch stands in the operand and in the result."""
        return int(self.name == "reduce_scatter"), int(self.name == "allgather")

    def run(self, arrays: Sequence[Array], recorded: bool) -> list[Array]:
        """Run it on this rank's array."""
        (a,) = arrays
        self._agree(a, recorded)
        return [_COLLECTIVES[self.name][0](self.comm, a, self.root)]

    def _agree(self, a: Array, recorded: bool) -> None:
        what = f"{self.kind} {self.name}".lstrip()
        text = f"{what} of {a.dtype}{list(a.shape)}, root {self.root}"
        value = zlib.crc32((a + 0).tobytes()) if self.name == "shared" else 0  # -0.0 is 0.0
        row = np.array([next(_NUMBERS), zlib.crc32(text.encode()), recorded, self.answers, value])
        rows = _filled(self.comm.Allgather, row, (self.comm.Get_size(), row.size))
        self.number = int(rows[:, 0].max())
        same = (rows[:, 1:] == row[1:]).all(0)
        if not same[:-1].all():
            text += ", which requires grad" * recorded + f", no. {self.answers}" * bool(self.answers)
            texts = "; ".join(f"rank {i}: {x}" for i, x in enumerate(self.comm.allgather(text)))
            raise RuntimeError(f"the ranks communicate in another order, or not alike: {texts}")
        if not same[-1]:
            raise RuntimeError(_DIFFER.get(what, _DIFFER["shared"]))

    def following(self, kind: str) -> _Collective:
        """Return the communication of gradients or of tangents."""
        name = _COLLECTIVES[self.name][1] if kind == "gradient" else self.name
        return replace(self, name=name, kind=kind, answers=self.number)

    def batched(self, _: int) -> _Collective:
        """Return that of a batch."""
        return replace(self)


class _Call(Function):
    """A communication: ``link`` and arrays in, a token and arrays out, the token on the way back the link.

    Both are empty: what a communication that sends nothing depends on, and what depends on one that gives nothing.
    """

    @staticmethod
    def forward(plan: Any, recorded: bool, link: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        """Run it."""
        results = plan.run([np.asarray(as_array(x), order="C") for x in operands], recorded)
        return zeros(link.shape, dtype=link.dtype), *map(_tensor, results)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep the plan, and the token, on which the way back depends if it is recorded, whatever the gradients are."""
        ctx.plan, ctx.specs = inputs[0], [(x.shape, x.dtype) for x in inputs[3:]]
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, token: Tensor, *cotangents: Tensor) -> Any:
        """Run the transpose."""
        return None, None, *_call(ctx.plan.following("gradient"), token + ctx.saved_tensors[0], *cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Run it on tangents."""
        moved = [zeros(s, dtype=d) if t is None else t for t, (s, d) in zip(tangents[3:], ctx.specs, strict=True)]
        return tuple(_call(ctx.plan.following("tangent"), ctx.saved_tensors[0], *moved))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], plan: Any, recorded: bool, link: Tensor, *operands: Tensor) -> Any:
        """Run it on the whole batch."""
        del recorded
        into, out = plan.axes
        pairs = zip((link, *operands), in_dims[2:], (0, *(into,) * len(operands)), strict=True)
        link, *operands_ = [_with_batch(x, d, at, info.batch_size) for x, d, at in pairs]
        results = tuple(_call(plan.batched(info.batch_size), link, *operands_))
        return results, (0, *(out,) * (len(results) - 1))


def _with_batch(x: Any, dim: int | None, at: int, size: int) -> Any:
    return x.expand(size, *x.shape).movedim(0, at) if dim is None else x.movedim(dim, at)


def _call(plan: Any, link: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
    recorded = is_grad_enabled() and any(x.requires_grad for x in (link, *operands))
    return _Call.apply(plan, recorded, link, *operands)  # type: ignore[no-any-return]


def _link(*xs: Any) -> Tensor:
    """Return an empty tensor that depends on others."""
    moving = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
    parts = [(x[:0] if x.ndim else x.reshape(1)[:0]).reshape(0) for x in moving]
    return cat(parts) if len(parts) > 1 else parts[0] if parts else zeros(0)


def _communicated(plan: Any, operands: Sequence[Any], *links: Any) -> Sequence[Any]:
    """Communicate; return the results, of tensors the token before them, and arrays if no operand is a tensor."""
    _note()
    if not any(isinstance(x, Tensor) for x in (*operands, *links)):
        return [None, *[y[()] for y in plan.run([np.asarray(x, order="C") for x in operands], False)]]
    tensors = [x if isinstance(x, Tensor) else _tensor(np.array(x)) for x in operands]
    return _call(plan, _link() if any(x.requires_grad for x in tensors) else _link(*links), *tensors)


def _tensor(a: Array) -> Tensor:
    return constant_tensor(scalar_or_array(a))


def _note() -> None:
    """Have compiled functions stay dynamic; refuse to be part of a program, which would not communicate again."""
    observer = recorder()
    if observer is not None and not (observer.has_guards or observer.maps):
        raise ProgramError("tape.record: programs do not communicate (tape.mpi); record what is between")
    note_unrecorded(None, "it communicates with other processes (tape.mpi)")


def _world(comm: Any) -> Any:
    if comm is not None:
        return comm
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError("tape.mpi needs mpi4py: pip install 'tape-autograd[mpi]', or pass comm=") from error
    return MPI.COMM_WORLD


def _constant(name: str) -> Any:
    """Return one of mpi4py's constants; None where it is not imported."""
    return getattr(sys.modules.get("mpi4py.MPI"), name, None)


def _message(comm: Any, peer: int | None, tag: int, like: Any) -> _Message:
    nobody = peer is None or peer == _constant("PROC_NULL")
    if not nobody and not 0 <= peer < comm.Get_size():  # type: ignore[operator]
        raise ValueError(
            f"tape.mpi: rank {peer} of {comm.Get_size()} ranks; name one (no ANY_SOURCE), or None for nobody"
        )
    if tag < 0:
        raise ValueError(f"tape.mpi: tag {tag}; a tag is named (no ANY_TAG)")
    dtype = like.spec.dtype if isinstance(like, Tensor) else np.asarray(like).dtype
    return _Message(None if nobody else peer, tag, tuple(np.shape(like)), dtype)


# The operations


def send(x: Any, dest: int | None, tag: int = 0, *, comm: Any = None) -> Any:
    """Send an array to a rank, and wait until it is received; return a token, an empty tensor.

    What this rank differentiates has to depend on the token, by `join`: the gradient of what was sent comes back there.
    ``dest`` is None, or ``MPI.PROC_NULL``, for nobody; ``comm`` is a communicator of mpi4py's, by default all ranks.
    """
    comm = _world(comm)
    return _communicated(_Exchange(comm, [_message(comm, dest, tag, x)], []), [x])[0]


def recv(like: Any, source: int | None, tag: int = 0, *, comm: Any = None) -> Any:
    """Return what a rank sends: an array of the shape and dtype of ``like``; zeros from nobody (None).

    A tensor if ``like`` is one, which requires grad if what is sent does: its gradient is zero, and by it the received
    is reached from leaves of this rank. RuntimeError for a message of another shape or dtype.
    """
    comm = _world(comm)
    return _communicated(_Exchange(comm, [], [_message(comm, source, tag, like)]), [], like)[1]


def sendrecv(
    x: Any, dest: int | None, source: int | None, *, like: Any = None, sendtag: int = 0, recvtag: int = 0,
    comm: Any = None,
) -> Any:  # fmt: skip
    """Send an array to one rank while another's is received, which is returned: of the shape of ``like``, or of ``x``.

    Ranks are None for nobody, from whom zeros come.
    """
    comm, like = _world(comm), x if like is None else like
    plan = _Exchange(comm, [_message(comm, dest, sendtag, x)], [_message(comm, source, recvtag, like)])
    return _communicated(plan, [x], like)[1]


def halo_exchange(
    x: Any, width: int = 1, axis: int = 0, *, periodic: bool = False, fill: float | None = 0.0, comm: Any = None
) -> Any:
    """Return an array with ``width`` points of its neighbours before and behind it along an axis.

    Neighbours are the ranks before and after in ``comm``: a domain of several axes has a communicator for each
    (``Cartcomm.Sub``). Beyond the first and last rank stands ``fill``, nothing if it is None; if the domain is
    ``periodic``, the last rank is before the first. Ranks may have different numbers of points along the axis, of at
    least ``width``, else ValueError.
    """
    comm, x = _world(comm), x if isinstance(x, Tensor) else np.asarray(x)
    rank, size, n = comm.Get_rank(), comm.Get_size(), np.shape(x)[axis]
    if not 1 <= width <= n:
        raise ValueError(
            f"halo_exchange: width {width} of {n} points along axis {axis}; it is at least 1 and at most {n}"
        )
    before = (slice(None),) * (axis % np.ndim(x))
    low, high = x[(*before, slice(width))], x[(*before, slice(n - width, n))]
    down, up = ((rank - 1) % size, (rank + 1) % size) if periodic else (rank - 1, rank + 1)
    below, above = None if down < 0 else down, None if up == size else up
    plan = _Exchange(
        comm,
        [_message(comm, below, _DOWN, low), _message(comm, above, _UP, high)],
        [_message(comm, below, _UP, low), _message(comm, above, _DOWN, high)],
    )
    ends = []
    for peer, received in zip((below, above), _communicated(plan, [low, high])[1:], strict=True):
        outside = [] if fill is None else [received + received.dtype.type(fill) if fill else received]
        ends.append(outside if peer is None else [received])
    parts = [*ends[0], x, *ends[1]]
    return cat(parts, axis) if isinstance(x, Tensor) else np.concatenate(parts, axis)


def allreduce(x: Any, op: Any = None, *, comm: Any = None) -> Any:
    """Return the sum of all ranks' arrays, of one shape and dtype; gradients are summed likewise.

    So of a sum that all N ranks differentiate the gradient is N times that of one: a loss is the `total`. ``op`` is
    ``MPI.SUM`` or, where no gradient is wanted, another, else NotImplementedError.
    """
    comm = _world(comm)
    if op is None or op == _constant("SUM"):
        return _communicated(_Collective(comm, "allreduce"), [x])[1]
    if isinstance(x, Tensor) and x.requires_grad and is_grad_enabled():
        raise NotImplementedError("allreduce: only sums have gradients here; of maxima, allgather(x).amax(0) has them")
    _note()
    a = np.asarray(as_array(x) if isinstance(x, Tensor) else x, order="C")
    result = _filled(comm.Allreduce, a, a.shape, op)
    return _tensor(result) if isinstance(x, Tensor) else result[()]


def total(x: Any, *, comm: Any = None) -> Any:
    """Return the sum of all ranks' arrays as one value of the whole program: of a loss, of which each rank has a part.

    All ranks compute the same with it, and differentiate the same: its gradient is taken once, not once for each rank.
    RuntimeError on the way back where the ranks' gradients of it differ.
    """
    return _communicated(_Collective(_world(comm), "total"), [x])[1]


def shared(x: Any, *, comm: Any = None) -> Any:
    """Return a parameter that has one value on all ranks: its gradient is the sum of all ranks' gradients, on each.

    RuntimeError where the values differ in a bit.
    """
    return _communicated(_Collective(_world(comm), "shared"), [x])[1]


def bcast(x: Any, root: int = 0, *, comm: Any = None) -> Any:
    """Return the array of one rank; others give one of its shape. Gradients are summed there, and zero elsewhere."""
    return _communicated(_Collective(_world(comm), "bcast", root), [x])[1]


def reduce(x: Any, root: int = 0, *, comm: Any = None) -> Any:
    """Return the sum of all ranks' arrays on one rank, zeros on others."""
    return _communicated(_Collective(_world(comm), "reduce", root), [x])[1]


def allgather(x: Any, *, comm: Any = None) -> Any:
    """Return all ranks' arrays, of one shape and dtype, in an array with a leading axis of ranks."""
    return _communicated(_Collective(_world(comm), "allgather"), [x])[1]


def join(x: Any, *others: Any) -> Any:
    """Return a value that depends on tensors too, tokens of `send` say, with zero gradients."""
    link = _link(*others)
    return x + link.sum().to(dtype=x.dtype if isinstance(x, Tensor) else None) if link.requires_grad else x
