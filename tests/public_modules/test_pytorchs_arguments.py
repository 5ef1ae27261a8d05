"""Arguments and names that PyTorch's programs use: out=, functions in place, devices, compile's options."""

from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick

A, B = tape.tensor([[2.0, 1.0], [1.0, 3.0]]), tape.tensor([[1.0, 0.5], [0.25, 2.0]])
V, AT = tape.tensor([1.0, 2.0]), tape.tensor([[0, 1], [1, 0]])
CALLS: dict[str, tuple[Any, ...]] = {
    "matmul": (A, B), "mm": (A, B), "mv": (A, V), "dot": (V, V), "bmm": (A[None], B[None]), "addmm": (A, A, B),
    "addmv": (V, A, V), "outer": (V, V), "cat": ([A, B],), "stack": ([A, B],), "hstack": ([A, B],), "cumsum": (A, 0),
    "cumprod": (A, 0), "amax": (A, 0), "std": (A, 0), "clamp": (A, 1.5), "gather": (A, 1, AT), "inverse": (A,),
    "round": (A,), "tril": (A,), "lerp": (A, B, 0.5), "logsumexp": (A, 0), "take": (A, AT), "prod": (A, 0), "all": (A,),
    "kron": (A, B), "index_select": (A, 0, AT[0]), "masked_select": (A, A > 1.5), "quantile": (A, 0.5, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_results_are_written_to_out(name: str) -> None:
    function = getattr(tape, name)
    wanted = function(*CALLS[name])
    for _ in range(3):
        out = tape.full_like(wanted, 0)
        memory = out.numpy()
        assert function(*CALLS[name], out=out) is out
        assert np.array_equal(memory, wanted)
        assert np.array_equal(out, wanted)
        assert np.array_equal(function(*CALLS[name]), wanted)
    with pytest.raises(RuntimeError, match="out has shape"):
        function(*CALLS[name], out=tape.zeros(7, 7, 7))
    with pytest.raises(TypeError, match="must be Tensor, not ndarray"):
        function(*CALLS[name], out=np.zeros(2))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        function(*CALLS[name], out=tape.zeros(2, requires_grad=True))


def test_several_results_are_written_to_a_tuple() -> None:
    values, places = tape.zeros(2), tape.zeros(2, dtype=tape.int64)
    found = tape.max(A, 1, out=(values, places))
    assert found.values is values
    assert found.indices is places
    assert (values.tolist(), places.tolist()) == ([2.0, 3.0], [0, 1])
    values, places = tape.zeros(2, 2), tape.zeros(2, 2, dtype=tape.int64)
    tape.sort(A, 1, out=(values, places))
    assert values.tolist() == [[1.0, 2.0], [1.0, 3.0]]
    with pytest.raises(TypeError, match="tuple of 2"):
        tape.sort(A, 1, out=values)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        tape.matmul(tape.ones(2, 2, requires_grad=True), A, out=tape.zeros(2, 2))


@pytest.mark.parametrize("name", ["sin_", "exp_", "relu_", "sqrt_", "neg_", "abs_", "sigmoid_", "zero_", "round_"])
def test_functions_in_place(name: str) -> None:
    x = tape.tensor([0.5, 2.25])
    wanted = getattr(x.clone(), name)()
    assert getattr(tape, name)(x) is x
    assert np.array_equal(x, wanted)
    leaf = tape.tensor([0.5, 2.25], requires_grad=True)
    y = leaf * 1.0
    getattr(tape, name)(y)
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        getattr(tape, name)(leaf)


def test_devices_are_the_cpu() -> None:
    tape.set_default_device("cpu")
    tape.set_default_device(None)
    assert tape.get_default_device() == tape.device("cpu")
    for ask in (lambda: tape.set_default_device("cuda"), A.cuda, lambda: A.to("cuda"), tape.cuda.current_device):
        with pytest.raises(RuntimeError, match="computes on the CPU only"):
            ask()
    tape.cuda.manual_seed_all(0)
    tape.cuda.empty_cache()
    assert (tape.cuda.is_available(), tape.cuda.memory_allocated(), tape.backends.cudnn.enabled) == (False, 0, False)
    assert A.layout is tape.strided
    assert isinstance(tape.float32, tape.dtype)


def test_options_of_pytorchs_compile_are_taken() -> None:
    def f(x: Any) -> Any:
        return (x * x).sum()

    options: list[dict[str, Any]] = [
        {"fullgraph": True}, {"dynamic": False}, {"backend": "inductor"}, {"options": {"trace.enabled": True}},
        {"mode": None}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"},
    ]  # fmt: skip
    for given in options:
        compiled = tape.compile(f, **given)
        assert [compiled(V) for _ in range(3)] == [5.0] * 3
        assert [tape.compile(**given)(f)(V) for _ in range(3)] == [5.0] * 3
    assert tape.compile(f, mode="max-autotune").mode == "max"
    assert tape.compile(f, disable=True) is f
    with pytest.raises(ValueError, match="mode is 'fast'"):
        tape.compile(f, mode="fast")


def test_a_missing_name_says_the_nearest_one_and_the_page() -> None:
    with pytest.raises(AttributeError, match=r"did you mean tape.softmax .*\? see docs/from_pytorch.md"):
        _ = tape.softmaxx
    with pytest.raises(AttributeError, match=r"no attribute 'quaternion'; see docs/from_pytorch.md"):
        _ = tape.quaternion
    with pytest.raises(AttributeError, match=r"complex numbers are not supported$"):
        _ = tape.fft
