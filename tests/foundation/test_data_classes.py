"""Classes of fields behave as data classes do, and cost an import little."""

import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from kernels.foundation import tables


def declared(dataclass: Any, **options: Any) -> Any:
    @dataclass(**options)
    class Pair:
        """Two and what follows from them."""

        a: int
        b: list[int] = field(default_factory=list)
        c: str = "c"
        d: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "d", self.a + 1)

    return Pair


OPTIONS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"kw_only": True, "eq": False},
    {"frozen": True, "eq": False, "kw_only": True},
]


def outcome(run: Any) -> Any:
    try:
        return run()
    except (TypeError, AttributeError):  # data classes with slots, frozen, raise one for the other
        return "refused"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "run",
    {
        "positions": lambda kind: repr(kind(1, [2], "x")),
        "keywords": lambda kind: repr(kind(a=1, c="y")),
        "fresh defaults": lambda kind: kind(a=1).b is kind(a=1).b,
        "too few": lambda kind: kind(c="x"),
        "too many": lambda kind: kind(1, [], "c", 5),
        "equal": lambda kind: (kind(a=1) == kind(a=1), kind(a=1) == kind(a=2), kind(a=1) == 1),
        "hash": lambda kind: hash(kind(a=1)) is None,
        "write": lambda kind: setattr(kind(a=1), "a", 2),
        "delete": lambda kind: delattr(kind(a=1), "a"),
        "new name": lambda kind: setattr(kind(a=1), "z", 2),
        "fields": lambda kind: [f.name for f in dataclasses.fields(kind)],
        "replace": lambda kind: repr(dataclasses.replace(kind(a=1), c="z")),
        "default": lambda kind: kind(a=1).c,
        "dict": lambda kind: hasattr(kind(a=1), "__dict__"),
    }.items(),
    ids=lambda item: item[0],
)
def test_as_dataclasses_do(options: dict[str, Any], run: tuple[str, Any]) -> None:
    ours, theirs = declared(tables.dataclass, **options), declared(dataclasses.dataclass, **options)
    for _ in range(2):  # the first object compiles what makes the next
        assert outcome(lambda: run[1](ours)) == outcome(lambda: run[1](theirs))


def test_inherited_fields() -> None:
    @tables.dataclass(frozen=True)
    class Base:
        """One."""

        a: int
        b: int = 2

    @tables.dataclass(frozen=True)
    class Derived(Base):
        """And another."""

        c: int = 3

        def __repr__(self) -> str:
            return f"<{self.a}{self.b}{self.c}>"

    assert repr(Derived(1)) == "<123>"
    assert repr(Base(1)).endswith("Base(a=1, b=2)")
    assert Derived(1) != Base(1)
    assert len({Derived(1), Derived(1), Derived(2)}) == 2


@tables.dataclass(slots=True)
class Kept:
    """What pickle finds by its name."""

    a: int


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)  # noqa: S301 (our own)
