"""Nested structures: taken apart, put together, compared, and the paths that errors name."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape.tensors.pytrees import flattened, mapped, shown, spread


class Pair(NamedTuple):
    """Two."""

    a: Any
    b: Any


@dataclass
class Layer:
    """Fields of all kinds."""

    w: Any
    b: float = 0.0
    name: str = "dense"
    units: int = 3
    act: Any = np.tanh
    flag: bool = True
    rate: float = 1
    sizes: tuple[int, ...] = (2, 3)


@dataclass(frozen=True, slots=True)
class Model:
    """Structures in structures, which cannot be changed."""

    layers: tuple[Layer, ...]
    scale: Any
    note: str | None = None


@dataclass
class Derived:
    """What is computed when it is made."""

    w: Any
    norm: Any = field(init=False)

    def __post_init__(self) -> None:
        self.norm = float(np.sum(self.w))
        self.label, self.cached = "kept", np.ones(2)

    @functools.cached_property
    def doubled(self) -> Any:
        return self.w * 2


W = np.ones((2, 3))
TREES: dict[str, tuple[Any, int, list[str]]] = {
    "leaf": (W, 1, [""]),
    "number": (2.0, 1, [""]),
    "dict": ({"b": 1.0, "a": W}, 2, ["['b']", "['a']"]),
    "list and tuple": ([1.0, (W, [2.0])], 3, ["[0]", "[1][0]", "[1][1][0]"]),
    "named tuple": (Pair(1.0, {"x": W}), 2, [".a", ".b['x']"]),
    "None": ({"a": None, "b": [None, 1.0]}, 1, ["['b'][1]"]),
    "empty": ({"a": [], "b": (), "c": {}}, 0, []),
    "ordered": (OrderedDict([("z", 1.0), ("y", 2.0)]), 2, ["['z']", "['y']"]),
    "default": (defaultdict(list, {"p": 1.0}), 1, ["['p']"]),
    "dataclass": (Layer(W), 3, [".w", ".b", ".rate"]),
    "frozen, slots, nested": (
        Model((Layer(W), Layer(W)), 2.0),
        7,
        [f".layers[{i}].{name}" for i in (0, 1) for name in ("w", "b", "rate")] + [".scale"],
    ),
    "keys of kinds": ({("a", 1): 1.0, 3: 2.0}, 2, ["[('a', 1)]", "[3]"]),
}


@pytest.mark.parametrize("name", TREES)
def test_apart_and_together(name: str) -> None:
    tree, count, paths = TREES[name]
    leaves, structure = flattened(tree)
    assert (len(leaves), len(structure)) == (count, count)
    assert structure.paths() == paths
    again = structure.filled(leaves)
    assert type(again) is type(tree)
    assert repr(again) == repr(tree)
    assert all(a is b for a, b in zip(flattened(again)[0], leaves, strict=True))
    assert flattened(again)[1] == structure
    assert structure.leaves_of(tree)[:1] == leaves[:1] or leaves[0] is W
    doubled = structure.filled([leaf * 2.0 for leaf in leaves])
    assert flattened(doubled)[1] == structure
    assert hash(flattened(doubled)[1]) == hash(structure)


def test_dataclasses_keep_what_is_no_number() -> None:
    layer = flattened(Layer(W, name="last", units=5))[1].filled([0.0, 1.0, 2.0])
    assert layer == Layer(0.0, 1.0, "last", 5, np.tanh, True, 2.0, (2, 3))
    model = flattened(Model((Layer(W),), 1.0, note="x"))[1].filled([1.0, 2.0, 3.0, 4.0])
    assert model.note == "x"
    with pytest.raises(FrozenInstanceError):
        model.scale = 2.0


def test_nothing_runs_and_nothing_stale_stays_in_a_dataclass() -> None:
    given = Derived(W)
    assert given.doubled.sum() == 12
    made = flattened(given)[1].filled([tape.ones(2, requires_grad=True), 1.0])
    assert (made.norm, made.label) == (1.0, "kept")
    assert made.doubled.tolist() == [2.0, 2.0]
    assert not hasattr(made, "cached")


def test_dicts_are_equal_in_any_order_and_keep_their_own() -> None:
    one, other = flattened({"a": 1.0, "b": [2.0]}), flattened({"b": [3.0], "a": 4.0})
    assert one[1] == other[1]
    assert one[1].leaves_of({"b": [3.0], "a": 4.0}) == [4.0, 3.0]
    assert list(other[1].filled([1.0, 2.0])) == ["b", "a"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"layers": [Layer(W), Layer((W, W))]}, r"p\['layers'\]\[1\].w is a tuple, where a leaf"),
        ({"layers": [Layer(W)]}, r"p\['layers'\] is \[Layer\(.*\)\], where \[Layer\(.*\), Layer\(.*\)\] is expected"),
        ({"layer": [Layer(W), Layer(W)]}, r"p is \{'layer': .*\}, where \{'layers': "),
        ({"layers": [Layer(W), Layer(W, units=4)]}, r"p\['layers'\]\[1\] is Layer\(.*units=4"),
        ({"layers": [Layer(W), None]}, r"p\['layers'\]\[1\] is a NoneType, where Layer"),
    ],
)
def test_another_structure_is_named_by_its_path(other: Any, message: str) -> None:
    structure = flattened({"layers": [Layer(W), Layer(W)]})[1]
    assert structure != flattened(other)[1]
    with pytest.raises(TypeError, match=message):
        structure.leaves_of(other, "p")


def test_prefixes() -> None:
    structure = flattened({"a": [1.0, 2.0], "b": Pair(3.0, None)}, none=True)[1]
    assert spread(0, structure) == [0, 0, 0, 0]
    assert spread({"b": None, "a": [1, 2]}, structure) == [1, 2, None, None]
    assert spread({"a": 0}, structure) is None
    assert spread({"a": (1, 2), "b": 0}, structure) is None


def test_leaves_are_mapped_and_shown() -> None:
    assert mapped(lambda x: x, {"a": (1, None)}) == {"a": (1, None)}
    assert shown([1, {"k": (2,)}, None]) == "[*, {'k': (*,)}, *]"
    assert str(flattened(Model((Layer(W),), None, "n"))[1]).startswith("Model(layers=(Layer(w=*, b=*, rate=*, name=")
