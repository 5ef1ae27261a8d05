"""What PyTorch gives, stored with the tests, so that they compare with it where it is not installed.

A test asks the fixture `pytorch` for the outcome of a function of the library: ``theirs = pytorch(run, key)``, where
`run` takes the module and `key` tells the outcome from others of the same file. Outcomes of test_TOPIC.py stand in
tests/conventions/outcomes/TOPIC.json. Where PyTorch is installed it is asked again, and must still give what is stored.
``python -m tests.support.store_outcomes`` renews the files.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "conventions" / "outcomes"
COMMAND = "python -m tests.support.store_outcomes"

Array = np.ndarray[Any, Any]
Run = Callable[[ModuleType], Any]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of PyTorch's as tests look at it."""

    values: Array
    requires_grad: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return NumPy's dtype of the same name."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the extents."""
        return self.values.shape

    def detach(self) -> StoredTensor:
        """Return the tensor without requires_grad."""
        return StoredTensor(self.values)

    def numpy(self) -> Array:
        """Return the values."""
        return self.values

    def tolist(self) -> Any:
        """Return the values as numbers in lists."""
        return self.values.tolist()

    def item(self) -> Any:
        """Return the only value."""
        return self.values.item()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self.values, dtype, copy=copy)

    def __iter__(self) -> Iterator[Array]:
        return iter(self.values)


@dataclass(frozen=True)
class Raised:
    """An exception: the names of its class and of the classes above, and its text."""

    classes: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.classes[0]}: {self.text}"


def raised(error: BaseException) -> Raised:
    """Describe an exception of either library."""
    names = tuple(one.__name__ for one in type(error).__mro__ if one is not object)
    return Raised(names, re.sub("0x[0-9a-f]+", "0x...", str(error)))


def result_or_error(run: Run, library: ModuleType) -> Any:
    """Run a function of the library; return what it gives, or the exception that it raises."""
    try:
        return run(library)
    except Exception as error:  # noqa: BLE001 (to be compared)
        return raised(error)


def installed() -> bool:
    """Whether PyTorch is there to be asked."""
    try:
        return find_spec("torch") is not None
    except ValueError:  # it is hidden
        return False


LIBRARIES = ["tape", *(["torch"] if installed() else [])]
"""Names of the modules in which what a test states in full holds: ours, and PyTorch where it is installed."""


@contextmanager
def our_settings(torch: ModuleType) -> Iterator[None]:
    """Give PyTorch our default dtype, and let it warn each time."""
    before, always = torch.get_default_dtype(), torch.is_warn_always_enabled()
    torch.set_default_dtype(torch.float64)
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(always)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(before)


def to_json(value: Any) -> Any:
    """Turn an outcome of either library into what JSON can hold: numbers, tensors and structure come back exactly."""
    if type(value) is list:
        return [to_json(one) for one in value]
    if isinstance(value, tuple):
        return {"$tuple": [to_json(one) for one in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: to_json(one) for key, one in value.items()}
        return {"$dict": [[to_json(key), to_json(one)] for key, one in value.items()]}
    return _leaf(value)


def _leaf(value: Any) -> Any:
    """Turn what holds no others: a number, a text, a tensor, an array, a dtype, an exception."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Raised):
        return {"$raised": list(value.classes), "text": value.text}
    if isinstance(value, np.ndarray | np.generic):
        return {"$array": _numbers(np.asarray(value)), **_kind(np.asarray(value))}
    if hasattr(value, "requires_grad") and hasattr(value, "numpy"):
        array = np.asarray(value.detach().numpy())
        flag = {"requires_grad": True} if value.requires_grad else {}
        return {"$tensor": _numbers(array), **_kind(array), **flag}
    if isinstance(value, np.dtype) or type(value).__name__ == "dtype":
        return {"$dtype": str(value).removeprefix("torch.")}
    raise TypeError(f"no way is known to store {type(value)}: {value!r}")


def _numbers(array: Array) -> Any:
    """Return the elements in lists; of float16 and float32 the fewest digits that tell them."""
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        return np.vectorize(lambda x: float(str(x)), otypes=[float])(array).tolist() if array.size else array.tolist()
    return array.tolist()


def _kind(array: Array) -> dict[str, Any]:
    """Return the dtype where it is not float64, and the shape where lists do not tell it."""
    dtype = {} if array.dtype == np.float64 else {"dtype": array.dtype.name}
    return dtype | ({"shape": list(array.shape)} if array.size == 0 else {})


def from_json(stored: Any) -> Any:
    """Return the outcome that was stored."""
    if isinstance(stored, list):
        return [from_json(one) for one in stored]
    if not isinstance(stored, dict):
        return stored
    tag = next(iter(stored), "")
    return TAGS[tag](stored) if tag in TAGS else {key: from_json(one) for key, one in stored.items()}


def _array(stored: Any, tag: str) -> Array:
    array = np.array(stored[tag], stored.get("dtype", "float64"))
    return array.reshape(stored["shape"]) if "shape" in stored else array


TAGS: dict[str, Callable[[Any], Any]] = {
    "$tuple": lambda stored: tuple(from_json(one) for one in stored["$tuple"]),
    "$dict": lambda stored: {from_json(key): from_json(one) for key, one in stored["$dict"]},
    "$raised": lambda stored: Raised(tuple(stored["$raised"]), stored["text"]),
    "$array": lambda stored: _array(stored, "$array"),
    "$tensor": lambda stored: StoredTensor(_array(stored, "$tensor"), "requires_grad" in stored),
    "$dtype": lambda stored: np.dtype(stored["$dtype"]),
}


def differences(
    ours: Any, theirs: Any, path: str = "", *, rtol: float = 1e-12, single: float = 1e-6, atol: float = 0.0
) -> Iterator[str]:
    """Name each place where two outcomes differ; floats may by rounding, those of float32 by `single`."""
    close: dict[str, float] = {"rtol": rtol, "single": single, "atol": atol}
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys(), key=str):
            pair = ours.get(key, "nothing"), theirs.get(key, "nothing")
            yield from differences(*pair, f"{path}.{key}".lstrip("."), **close)
    elif isinstance(ours, list | tuple) and type(ours) is type(theirs):
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} results, PyTorch has {len(theirs)}"
            return
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}[{at}]", **close)
    elif isinstance(ours, StoredTensor) and isinstance(theirs, StoredTensor):
        flags = {"requires_grad": ours.requires_grad}, {"requires_grad": theirs.requires_grad}
        yield from differences(*flags, path)
        yield from differences(ours.values, theirs.values, path, **close)
    elif isinstance(ours, np.ndarray | float) and isinstance(theirs, np.ndarray | float):
        if not alike(np.asarray(ours), np.asarray(theirs), **close):
            yield f"{path}: {ours!r}, PyTorch has {theirs!r}"
    elif type(ours) is not type(theirs) or ours != theirs:
        yield f"{path}: {ours!r}, PyTorch has {theirs!r}"


def alike(ours: Array, theirs: Array, *, rtol: float, single: float, atol: float) -> bool:
    """Whether two arrays have one shape and dtype, and values that differ by rounding at most."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if ours.dtype.kind != "f":
        return bool(np.array_equal(ours, theirs))
    rtol = single if ours.dtype == np.float32 else rtol
    with np.errstate(all="ignore"):
        return bool(np.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True))


class Outcomes:
    """The outcomes of one file of tests: what is stored, and what PyTorch says now."""

    def __init__(self, topic: str, *, storing: bool) -> None:
        """Read the file of a topic, unless it is about to be written."""
        self.path = FOLDER / f"{topic}.json"
        self.storing = storing
        file = {} if storing or not self.path.exists() else json.loads(self.path.read_text(encoding="utf-8"))
        self.version = file.get("PyTorch", "")
        self.stored: dict[str, Any] = file.get("outcomes", {})

    def __call__(self, run: Run, key: str) -> Any:
        """Return what PyTorch gives: now, where it is installed, or else when it was stored."""
        if self.storing:
            return self._store(run, key)
        if key not in self.stored:
            pytest.fail(f"no outcome of PyTorch is stored for {key!r} in {self.path.name}; {COMMAND} renews the file")
        stored = from_json(self.stored[key])
        if not installed():
            return stored
        now = from_json(to_json(self._ask(run)))
        stale = list(differences(now, stored, rtol=1e-10, single=1e-5, atol=1e-12))
        assert not stale, f"{self.path.name} tells of PyTorch {self.version} otherwise; {COMMAND} renews it: {stale}"
        return now

    def or_error(self, run: Run, key: str) -> Any:
        """Return what PyTorch gives, or the exception that it raises."""
        return self(lambda torch: result_or_error(run, torch), key)

    def _ask(self, run: Run) -> Any:
        torch = import_module("torch")
        with our_settings(torch):
            return run(torch)

    def _store(self, run: Run, key: str) -> Any:
        found = to_json(self._ask(run))
        before = from_json(self.stored.setdefault(key, found))
        found = from_json(found)
        assert not list(differences(found, before, rtol=1e-9, single=1e-4, atol=1e-9)), (
            f"{key!r} is the key of two outcomes"
        )
        return found

    def write(self) -> None:
        """Write the file, an outcome a line."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = import_module("torch").__version__
        lines = [f"{json.dumps(key)}: {json.dumps(one)}" for key, one in sorted(self.stored.items())]
        head = f'{{"PyTorch": {json.dumps(version)}, "outcomes": {{\n'
        self.path.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


class Storing:
    """The plugin of a run that stores outcomes: only tests that ask PyTorch run, and their files are written."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.files: dict[str, Outcomes] = {}

    def of(self, topic: str) -> Outcomes:
        """Return the outcomes of a topic, to be written."""
        return self.files.setdefault(topic, Outcomes(topic, storing=True))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what does not ask PyTorch."""
        asks = [item for item in items if "pytorch" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(asks)])
        items[:] = asks

    def pytest_sessionfinish(self) -> None:
        """Write the files."""
        for file in self.files.values():
            file.write()


@pytest.fixture
def libraries() -> Iterator[list[ModuleType]]:
    """Give the modules of LIBRARIES, PyTorch with our settings."""
    modules = [import_module(name) for name in LIBRARIES]
    with our_settings(modules[-1]) if installed() else nullcontext():
        yield modules


@pytest.fixture(scope="module")
def pytorch(request: pytest.FixtureRequest) -> Outcomes:
    """What PyTorch gives: ``pytorch(run, key)``."""
    topic = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    storing = request.config.pluginmanager.get_plugin("storing")
    return storing.of(topic) if storing else Outcomes(topic, storing=False)
