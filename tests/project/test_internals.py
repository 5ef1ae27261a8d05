"""The pages on the code say what is so: paths, names, commands, quoted source, rooms, the words of a tape, the lives.

What a page names is looked up in the sources, which are parsed, not imported: a native file is no module of Python's.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import importlib.util
import itertools
import json
import re
import shlex
import struct
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import tape
from kernels.calls.object_types import header_of
from kernels.native import c_api, structs
from kernels.native.memory import REGISTRY
from kernels.native.structs import (
    DOUBLE,
    GONE,
    HELD,
    NUMBER,
    Chunk,
    FormBlock,
    InputBlock,
    RegistryTable,
    TapeHeader,
)
from tape.__main__ import parser
from tape.tensors import modes
from tests.project import test_house

if TYPE_CHECKING:
    from conftest import Fresh

ROOT = Path(__file__).resolve().parents[2]
INTERNALS, CONTRIBUTING = ROOT / "docs" / "internals.md", ROOT / "CONTRIBUTING.md"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (INTERNALS, CONTRIBUTING)}
TEXT = PAGES[INTERNALS.name]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
THEIRS = {"program.py", "tests/ROOM/test_TOPIC.py", "_native.py", "kernels-1/LABEL_HASH.kernel"}
"""What is a path, and none of ours: a user's, or a pattern."""
NATIVE = pytest.mark.skipif(not c_api.NATIVE, reason="there are no words in memory to read")

pytestmark = pytest.mark.quick


def spans(page: str) -> list[str]:
    """Return what stands between single backticks, outside of fenced blocks."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", page))]


def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page) if kind == language]


def table(page: str, head: str) -> list[str]:
    """Return the rows of the table with this head."""
    whole, _, _ = page[page.index(head) :].partition("\n\n")
    return whole.splitlines()[2:]


def each(found: Callable[[str], list[str]]) -> pytest.MarkDecorator:
    """Run a test for all that is found on a page, once a page: what is wrong is listed."""
    return pytest.mark.parametrize("named", [found(page) for page in PAGES.values()], ids=list(PAGES))


def paths(page: str) -> list[str]:
    """Return what is written as a path: with a slash, or with the ending of a file of ours."""
    file = re.compile(r"[\w.-]+(/[\w.-]+)+|[\w-]+\.(py|pyi|md|toml)|\.ci/run")
    return [span for span in spans(page) if file.fullmatch(span) and span not in THEIRS]


def dotted(page: str) -> list[str]:
    return [span for span in spans(page) if re.fullmatch(r"(kernels|tape|bench)(\.\w+)+", span)]


def capitals(page: str) -> list[str]:
    return [span for span in spans(page) if re.fullmatch(r"[A-Z][A-Z0-9_]+", span)]


def commands(page: str) -> list[str]:
    inline = [span for span in spans(page) if span.startswith("python -m ")]
    return inline + [line for block in blocks(page, "sh") for line in block.splitlines()]


def absent(named: list[str]) -> list[str]:
    return [path for path in named if not (ROOT / path).exists()]


@each(paths)
def test_each_path_is_there(named: list[str]) -> None:
    assert len(named) > 10
    assert absent(named) == []


def names_bound(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Return what statements bind by name: functions, classes, values, imports; also under ``if`` and ``try``."""
    found: dict[str, ast.AST] = {}
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update({(alias.asname or alias.name).split(".")[0]: node for alias in names})
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                inner = [leaf for target in targets for leaf in ast.walk(target)]
                found.update({leaf.id: node for leaf in inner if isinstance(leaf, ast.Name)})
            case ast.If() | ast.Try():
                found.update(names_bound([*node.body, *node.orelse]))
    return found


def members(node: ast.AST) -> set[str]:
    """Return the names of a class: of its body, and what its methods give ``self``."""
    if not isinstance(node, ast.ClassDef):
        return set()
    given = {
        leaf.attr
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.ctx, ast.Store) and ast.unparse(leaf.value) == "self"
    }
    return given | set(names_bound(node.body))


@functools.cache
def lazily() -> set[str]:
    """Return the public names of ``tape`` and its modules, some of which are imported at their first use."""
    return {f"tape.{name}" for name in tape.__all__} | {f"tape.autograd.{name}" for name in dir(tape.autograd)}


def is_so(name: str) -> bool:
    """Whether a dotted name is a module, a name in one, or a member of a class in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:count])
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if file.is_file():
            rest = parts[count:]
            bound = names_bound(ast.parse(file.read_text(encoding="utf-8")).body)
            if not rest or (len(rest) == 1 and rest[0] in bound):
                return True
            return name in lazily() or (len(rest) == 2 and rest[0] in bound and rest[1] in members(bound[rest[0]]))
    return False


@each(dotted)
def test_each_dotted_name_is_there(named: list[str]) -> None:
    assert named
    assert [name for name in named if not is_so(name)] == []


def environment() -> set[str]:
    """Return the variables that the code and the tests read."""
    read = re.compile(r'environ(?:\.get\(|\[)"(TAPE_\w+)"')
    files = [path for room in ("kernels", "tape", "tests") for path in (ROOT / room).rglob("*.py")]
    return {name for path in files for name in read.findall(path.read_text(encoding="utf-8"))}


def is_capital(name: str) -> bool:
    return hasattr(structs, name) or hasattr(c_api, name) or name in environment() or name == "CONTROL"


@each(capitals)
def test_each_name_in_capitals_is_there(named: list[str]) -> None:
    assert [name for name in named if not is_capital(name)] == []


def test_the_variables_of_the_environment_are_those_that_are_read() -> None:
    rows = re.findall(r"^\| `(TAPE_\w+)` \|", TEXT, re.MULTILINE)
    assert set(rows) == environment()


def complaint(command: str) -> str:
    """Say what is wrong with a command; "" if nothing is, as far as that can be told without running it."""
    for part in command.split("&&"):
        tokens = shlex.split(part)
        while tokens and re.fullmatch(r"[A-Z]+[A-Z_]*=.*", tokens[0]):
            variable = tokens.pop(0).split("=")[0]
            if variable.startswith("TAPE_") and variable not in environment():
                return f"nobody reads {variable}"
        if tokens[:2] == ["python", "-c"]:
            compile(tokens[2], "page", "exec")
        elif tokens[:2] == ["python", "-m"]:
            if told := wrong_module(tokens[2], tokens[3:]):
                return told
        elif tokens[:1] != ["python"] and tokens != [".", ".venv/bin/activate"] and absent(tokens[:1]):
            return f"there is no {tokens[0]}"
    return ""


def wrong_module(module: str, given: list[str]) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = itertools.chain(*project["project"]["optional-dependencies"].values())  # an extra may not be installed
    extras = {re.match(r"[a-z-]*", one)[0] for one in wanted}  # type: ignore[index]
    if module not in extras and importlib.util.find_spec(module) is None:
        return f"there is no module {module}"
    if module == "tape":
        try:
            parser().parse_args([*given, *(["heat"] if given[-1:] == ["run"] else [])])
        except SystemExit:
            return f"python -m tape does not take {given}"
    if module == "pytest":
        known = {marker.split(":")[0] for marker in project["tool"]["pytest"]["ini_options"]["markers"]}
        marks = {mark for flag, mark in itertools.pairwise(given) if flag == "-m"}
        if strange := (marks - known) | set(absent([g for g in given if "/" in g or g == "bench"])):
            return f"pytest knows no {strange}"
    return ""


@each(commands)
def test_each_command_can_be_typed(named: list[str]) -> None:
    assert named
    assert [f"{command}: {told}" for command in named if (told := complaint(command))] == []


def quoted(page: str) -> Iterator[tuple[str, str]]:
    """Yield the paths and texts of quoted source: a comment names the file of what follows."""
    for block in blocks(page, "py"):
        pieces = re.split(r"^# (\S+\.py)\n", block, flags=re.MULTILINE)
        assert pieces[0] == "", "quoted source begins with the path of its file"
        yield from zip(pieces[1::2], pieces[2::2], strict=True)


def test_quoted_source_stands_in_its_file() -> None:
    found = list(quoted(TEXT))
    kinds = {text.split("(")[0] for _, text in found}
    assert kinds == {"Elementwise", "Reduction", "Select", "Routine", "_view", "Write", "Contraction"}
    assert [path for path, text in found if text not in (ROOT / path).read_text(encoding="utf-8")] == []


def rooms(page: str) -> list[str]:
    """Return the rooms of the table, in its order; a row may have several."""
    return [
        name for row in table(page, "| room | what it is for |") for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]


def test_the_rooms_are_those_of_the_house_in_its_order() -> None:
    named = rooms(TEXT)
    assert sorted(set(named) ^ set(test_house.HOUSE)) == []
    assert named == test_house.HOUSE


def test_each_word_of_the_glossary_stands_once() -> None:
    rows = table(TEXT, "| word | meaning | defined in |")
    heads = [word.strip() for row in rows for word in re.split("[,;]", row.split("|")[1])]
    assert len(heads) == len(set(heads)) > 25
    assert [row for row in rows if not re.search(r"\| `(kernels|tape)\.[\w.]+` \|$", row)] == []


def example() -> dict[str, Any]:
    """Run the page's example, on the tape in force; return its variables."""
    names: dict[str, Any] = {}
    (source,) = blocks(TEXT, "python")
    exec(compile(source, str(INTERNALS), "exec"), names)  # noqa: S102 (the page is ours)
    return names


def at(address: int, k: int) -> int:
    return ctypes.c_int64.from_address(address + 8 * k).value


def told(tape_header: int, names: dict[str, Any]) -> list[str]:
    """Read the words of a tape as the page says: from the end, by the blocks of forms."""
    first, lines = at(at(tape_header, TapeHeader.words), 0), []
    things = {-id(names[name]._slot): f"leaf {name}" for name in ("x", "c")}
    things[id(names["a"]._value)] = "array a"
    forms = {names[name]._form.code: f"form {names[name]._form.name}" for name in ("a", "b", "y")}

    def slot(word: int) -> str:
        return things[word] if word in things else "slot n" + f"+{word - first}" * (word > first)

    stop = at(tape_header, TapeHeader.size)
    while stop > 0:
        number = at(at(tape_header, TapeHeader.words), stop - 1)
        block = at(at(REGISTRY.address, RegistryTable.forms), number)
        inputs, saved = at(block, FormBlock.inputs), at(block, FormBlock.saved)
        assert at(block, FormBlock.entries) == 2 + inputs + saved
        start = stop - at(block, FormBlock.entries)
        own = [at(at(tape_header, TapeHeader.words), k) for k in range(start, stop)]
        kinds = [at(block, FormBlock.SIZE + inputs * InputBlock.SIZE + j) for j in range(saved)]
        kept = [
            f"number {word}" if kind == NUMBER
            else f"double {struct.unpack('d', struct.pack('q', word))[0]}" if kind == DOUBLE
            else things[word]
            for word, kind in zip(own[1 + inputs : -1], kinds, strict=True)
        ]  # fmt: skip
        lines = [*map(slot, own[: 1 + inputs]), *kept, forms[number], *lines]
        stop = start
    return lines


def columns(block: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in block.splitlines()]


@NATIVE
@pytest.mark.usefixtures("own_tape")
def test_the_words_of_the_example() -> None:
    shown = [row[:2] for row in columns(blocks(TEXT, "text")[0])]
    header, names = header_of(modes.own_tape().entries), example()
    assert [[str(k), word] for k, word in enumerate(told(header, names))] == shown


def counts(header: int, first: int) -> str:
    """Return how many have each slot of a tape from one on, and which are marked as gone."""
    chunk, shown = at(at(header, TapeHeader.directory), 0) + Chunk.SIZE, []
    for slot in range(first, at(header, TapeHeader.next)):
        count = ctypes.c_int32.from_address(chunk + 4 * (slot % structs.CHUNK)).value
        parts = ["GONE"] * bool(count & GONE) + [str(count & HELD)] * bool(count & HELD)
        shown.append("+".join(parts) or "0")
    return " ".join(shown)


@NATIVE
@pytest.mark.usefixtures("own_tape")
def test_the_counts_of_the_example() -> None:
    head, *rows = columns(blocks(TEXT, "text")[1])
    assert head[1:4] == ["count", "dead", "size"]
    tape_of_mine = modes.own_tape()
    header = header_of(tape_of_mine.entries)
    first, names = at(header, TapeHeader.next), example()
    for step, *shown in rows:
        if step == "collect":
            tape_of_mine.collect()
        elif step != "three operations":
            exec(step, names)  # noqa: S102 (the page is ours)
        found = [str(at(header, getattr(TapeHeader, name))) for name in head[1:4]]
        assert [*found, counts(header, first)] == shown, step
    with pytest.raises(RuntimeError, match="second time"):
        names["y"].backward()


def test_the_loop_program_of_the_example() -> None:
    source, shown = blocks(TEXT, "text")[2:4]
    names: dict[str, Any] = {}
    exec(source.rpartition("print(")[0], names)  # noqa: S102 (the page is ours)
    assert names["program"].loops(reverse=True) == shown.rstrip()


def test_a_backward_that_fails_leaves_what_the_page_says() -> None:
    plain, hooked, last = (tape.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
    u = last * 2.0
    v = u * plain
    v.retain_grad()
    y = (v * hooked).sum()
    hooked.register_hook(lambda _: None)

    def failing(_: Any) -> None:
        raise ValueError("a hook of mine")

    handle = u.register_hook(failing)
    with pytest.raises(ValueError, match="of mine"):
        y.backward()
    assert plain.grad is None
    assert last.grad is None
    assert v.grad is None
    assert hooked.grad is not None  # all of its gradient was there
    handle.remove()
    y.backward()
    assert plain.grad.tolist() == [2.0, 8.0]


def test_sums_alone_can_be_swept_again() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    sums, product = (x + x).sum(), (x * x).sum()
    for _ in range(2):
        sums.backward()
    product.backward()
    with pytest.raises(RuntimeError, match="second time"):
        product.backward()


LIVES: dict[str, tuple[str, str]] = {
    "An operation, seen for the first time: `x * c`": ("", "y = x * c"),
    "An operation that has been seen": ("", "y = x * c"),
    "A backward, the short way": ("z = (x * c).sum()", "z.backward()"),
    "A backward, the general way": ("y = x * c; y.register_hook(double); z = y.sum()", "z.backward()"),
    "A backward that is recorded: `create_graph=True`": (
        "z = (x * x).sum()",
        "tape.autograd.grad(z, x, create_graph=True)",
    ),
    "A write, for the first time: `x[i] = v`": ("u = x * 1.0; v = c[0]", "u[1] = v"),
    "A program is recorded: `tape.record(f, ...)`": ("tape.record", "program = tape.record(f, np.arange(3.0))"),
    "A program is lowered, at its first call": ("", "program.value_and_grad(np.arange(3.0))"),
    "A program is replayed": ("", "program.value_and_grad(np.arange(3.0))"),
    "A compiled function is called: `tape.compile(f)`": (
        "compiled = tape.compile(f)",
        "values = [compiled(np.arange(3.0)) for _ in range(4)]",
    ),
    "A `vmap`": ("tape.func.vmap", "tape.func.vmap(f)(np.ones((4, 3)))"),
}
"""The lives of the page, in its order: what is made ready, and a statement that runs through it."""
TRACED = """
import json, pathlib, sys
import numpy as np
import tape

root, x = str(pathlib.Path(tape.__file__).parents[1]) + "/", tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
c, passed, lives = tape.tensor([4.0, 5.0, 6.0], requires_grad=True), [], {}


def f(p):
    return (p * p).sum()


def double(g):
    return g * 2


def heard(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
        passed.append((code.co_filename.removeprefix(root), code.co_name))


for name, (ready, statement) in json.loads(LIVES).items():
    exec(ready)
    code = compile(statement, name, "exec")
    sys.setprofile(heard)
    exec(code)
    sys.setprofile(None)
    lives[name], passed = passed, []
one = tape.tensor(1.0, requires_grad=True)
(tape.exp(one) * one).backward()
for _ in range(2):
    u = x * 1.0
    u[[0, 2]] = 3.0
print(json.dumps([lives, [name.rpartition(".")[2] for name in sys.modules if name.endswith("_native")]]))
"""


class Stop(NamedTuple):
    """A file that a life passes; with a name, where it passes that function of it."""

    file: str
    function: str


def chain(text: str) -> list[Stop]:
    """Return what a life passes, in order; a sentence that ends in "instead" tells of another way."""
    sentences = re.split(r"(?<=\.)\s", " ".join(text.split()))
    found = re.findall(r"`([\w/]+\.py)`(?: \(`(\w+)`\))?", " ".join(s for s in sentences if not s.endswith("instead.")))
    return [Stop(*pair) for pair in found]


def life_of(title: str) -> list[Stop]:
    (text,) = re.findall(rf"^\*\*{re.escape(title)}\.\*\* (.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    return chain(text)


def is_passed(stops: list[Stop], calls: list[list[str]]) -> bool:
    """Whether calls come to these for the first time in this order, among others."""
    firsts = [
        next((k for k, (file, name) in enumerate(calls) if file == stop.file and stop.function in ("", name)), -1)
        for stop in stops
    ]
    return -1 not in firsts and all(a < b for a, b in itertools.pairwise(firsts))


def test_the_lives_of_the_page_are_those_that_are_tried() -> None:
    section = TEXT[TEXT.index("## 5. ") : TEXT.index("## 6. ")]
    assert re.findall(r"^\*\*(.*?)\.\*\*", section, re.MULTILINE | re.DOTALL) == list(LIVES)


@NATIVE
def test_each_life_passes_its_files_in_order(fresh: Fresh) -> None:
    output, errors = fresh(f"LIVES = {json.dumps(LIVES)!r}\n{TRACED}").communicate(timeout=300)
    assert errors == ""
    lives, loaded = json.loads(output)
    assert lives["An operation that has been seen"] == [], "Python runs at a call that has been seen"
    chains = {life: life_of(life) for life in LIVES}
    assert [life for life, stops in chains.items() if len(stops) < 2] == []
    plain = {life: [s for s in stops if not s.file.endswith("_native.py")] for life, stops in chains.items()}
    assert [life for life, stops in plain.items() if not is_passed(stops, lives[life])] == []
    native = {Path(s.file).stem for stops in chains.values() for s in stops if s.file.endswith("_native.py")}
    assert sorted(native - set(loaded)) == []


def test_planted_faults_are_found() -> None:
    """What the checks above look at can fail."""
    page = "`kernels/native/wrods.py` `kernels.native.structs.T_SISE` `H_NOTHING` `tape.autograd.Function`"
    assert absent(paths(page)) == ["kernels/native/wrods.py"]
    assert [name for name in dotted(page) if not is_so(name)] == ["kernels.native.structs.T_SISE"]
    assert [name for name in capitals(page) if not is_capital(name)] == ["H_NOTHING"]
    wrong = ["python -m tape.tols", "python -m tape cash", "python -m pytest tests/test_none.py", "TAPE_BUG=1 .ci/run"]
    wrong += ["python -m pytest -m quack", ".ci/walk"]
    assert all(map(complaint, wrong))
    life = chain("`a.py` → `b.py` → `a.py` (`g`). Others take `c.py` instead.")
    assert is_passed(life, [["a.py", "f"], ["d.py", "f"], ["b.py", "f"], ["a.py", "g"]])
    assert not is_passed(life, [["b.py", "f"], ["a.py", "f"], ["b.py", "f"], ["a.py", "g"]])
    assert not is_passed(life, [["a.py", "f"], ["b.py", "f"], ["a.py", "f"]])
