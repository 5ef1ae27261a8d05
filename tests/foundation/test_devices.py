"""Devices and PyTorch's older tensor types: what programs ask before they begin."""

import pickle
from typing import Any

import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes, result_or_error


def test_the_usual_choice() -> None:
    device = tape.device("cuda" if tape.cuda.is_available() else "cpu")
    x = tape.ones(2, device=device)
    assert x.device == device
    assert x.to(device) is x
    assert x.to(tape.device("cpu", 0)) is x
    assert (device.type, device.index) == ("cpu", None)
    assert not tape.accelerator.is_available()
    assert not tape.backends.mps.is_available()
    assert tape.zeros_like(x, device=x.device).device.type == "cpu"


def test_devices_agree_with_pytorch(pytorch: Outcomes) -> None:
    for given in (("cpu",), ("cpu:0",), ("cuda:1",), ("cuda", 2)):

        def told(library: Any, given: Any = given) -> Any:
            device = library.device(*given)
            return device.type, device.index, str(device), repr(device)

        assert told(tape) == pytorch(told, str(given))
    for given in (("gpu",), ("cpu:x",), ("cuda:1", 1)):

        def wrong(library: Any, given: Any = given) -> Any:
            return result_or_error(lambda lib: str(lib.device(*given)), library)

        assert wrong(tape).classes[0] == pytorch(wrong, str(given)).classes[0] == "RuntimeError"
    assert pickle.loads(pickle.dumps(tape.device("cpu"))) == tape.device("cpu")  # noqa: S301 (made here)


def test_other_devices_are_named_but_hold_nothing() -> None:
    for device in ("cuda", tape.device("cuda:1"), "mps"):
        with pytest.raises(RuntimeError, match="CPU only"):
            tape.ones(2, device=device)
        with pytest.raises(RuntimeError, match="CPU only"):
            tape.ones(2).to(device)


TYPES = {
    "DoubleTensor": tape.float64, "FloatTensor": tape.float32, "LongTensor": tape.int64, "IntTensor": tape.int32,
    "ShortTensor": tape.int16, "CharTensor": tape.int8, "ByteTensor": tape.uint8, "BoolTensor": tape.bool,
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_older_types(name: str) -> None:
    kind, dtype = getattr(tape, name), TYPES[name]
    x = kind([1, 0])
    assert x.dtype == dtype
    assert x.tolist() == [1, 0]
    assert kind(2, 3).shape == (2, 3)
    assert kind().shape == (0,)
    assert isinstance(x, kind)
    assert not isinstance(x.to(tape.int64 if dtype != tape.int64 else tape.int32), kind)
    assert x.type() == f"torch.{name}"
    for wanted in (kind, dtype, f"torch.{name}"):
        assert tape.zeros(2).type(wanted).dtype == dtype


def test_a_converted_type_is_recorded() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    (x.type(tape.FloatTensor) * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
