"""The pages say what is so: README and docs, their Python blocks with the output, their tables, their links."""

import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tape
from tests.support.markdown_pages import (
    DOCS,
    PAGES,
    README,
    ROOT,
    Block,
    anchors,
    broken_links,
    expected_output,
    fenced_blocks,
    links,
    python_blocks,
    run,
    same_output,
    text_of,
)

BLOCKS = [block for page in PAGES for block in python_blocks(page)]
WITHOUT_EXAMPLES = {
    "interop.md",
    "limits.md",
    "operations.md",
    "performance.md",
    "gallery.md",
}  # that has whole programs


def name_of(block: Block) -> str:
    """Return a block's page, heading and line: README: start, line 23."""
    page = block.page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")
    return f"{page}: {block.heading}, line {block.line}"


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
@pytest.mark.usefixtures("accounted")
def test_a_block_prints_what_is_shown(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run(block, monkeypatch)
    expected = expected_output(block)
    assert same_output(expected, printed), f"{block.page.name} shows\n{expected}\nthe block printed\n{printed}"


def test_pages_have_examples() -> None:
    bare = {page.name for page in DOCS.glob("*.md")} - {block.page.name for block in BLOCKS}
    assert bare <= WITHOUT_EXAMPLES | {"internals.md"}


def test_the_table_of_operations_is_what_the_registry_prints() -> None:
    tables = re.findall(r"<!-- ops -->\n(.*?)\n<!-- /?ops -->", text_of(DOCS / "operations.md"), re.DOTALL)
    assert [table.strip() for table in tables] == [tape.op_table().strip()], "run: python docs/update_operations.py"


def test_numpy_functions_of_another_meaning_are_not_said_to_run_a_record() -> None:
    (row,) = (line for line in tape.op_table().splitlines() if line.startswith("| `select` |"))
    assert "np." not in row  # np.select chooses among arrays; the record shows a place of one
    (row,) = (line for line in tape.op_table().splitlines() if line.startswith("| `transpose` |"))
    assert "`np.swapaxes`" in row or "`np.transpose`" in row, row


def only_block(markdown: str) -> Block:
    """Return the first Python block of a text planted by a test below."""
    return next(block for block in fenced_blocks(markdown) if block.language == "python")


@pytest.mark.parametrize(
    ("markdown", "right"),
    [
        ("```python\nprint(1)  # -> 1\n```\n", True),
        ("```python\nprint(1)  # -> 2\n```\n", False),
        ("```python\nprint(1)\n```\n", False),
        ("```python\nx = 1  # -> 1\n```\n", False),
        ("```python\n'a'  # -> 'a'\n```\n", True),
        ("```python\n'a'  # -> 'b'\n```\n", False),
        ("```python\n'a'\n```\n", True),
        ("```python\nfor i in 1, 2:\n    print(i)\n# -> 1\n# -> 2\n```\n", True),
        ("```python\nfor i in 1, 2:\n    print(i)  # -> 1\n```\n", False),
        ("```python\nprint('in 0.01 s')  # -> in ... s\n```\n", True),
        ("```python\nprint('in 0.01 s')  # -> in ... m\n```\n", False),
        ("```python\nprint('# -> 3')\n```\n", False),
        ("```python\nprint('a  \\nb')\n```\n\n```text\na\nb\n```\n", True),
        ("```python\nprint('a\\nb')\n```\n\n```text\na\nc\n```\n", False),
        ("```python\nprint('a')\n```\n\nprints\n\n```text\na\n```\n", False),
    ],
)
def test_planted_blocks(*, markdown: str, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    block = only_block(markdown)
    assert same_output(expected_output(block), run(block, monkeypatch)) is right


def test_blocks_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run(only_block("```python\nplanted = 1\n```\n"), monkeypatch)
    with pytest.raises(NameError, match="planted"):
        run(only_block("```python\nplanted\n```\n"), monkeypatch)


def test_a_block_knows_its_heading_and_line() -> None:
    text = "# One\n\n```sh\n# not a heading\n```\n\n## Two\n\n```python\n1 / 0\n```\n"
    block = only_block(text)
    assert (block.heading, block.line) == ("Two", 10)
    assert fenced_blocks(text)[0].heading == "One"


def differing_rows() -> list[tuple[str, str, str]]:
    """The rows of the table of what NumPy's and PyTorch's functions of one name do."""
    table = re.search(r"<!-- differences -->\n(.*?)<!-- /differences -->", text_of(DOCS / "numpy.md"), re.DOTALL)
    assert table is not None
    found = [re.match(r"\| `(.+?)` \| `(.+?)` \| (.+) \|$", line) for line in table[1].splitlines()[2:]]
    return [(m[1], m[2], m[3]) for m in found if m is not None]


def plain(x: object) -> object:
    """Return tensors, alone or in tuples, as lists of numbers."""
    if isinstance(x, tape.Tensor):
        return np.round(x.numpy().astype(float), 3).tolist()
    return tuple(map(plain, x)) if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize(("call", "numpys", "ours"), differing_rows(), ids=lambda text: text[:30])
def test_where_numpy_and_pytorch_differ(call: str, numpys: str, ours: str) -> None:
    names = {"t": tape.tensor([[3.0, 1.0], [2.0, 4.0]]), "v": tape.tensor([3.0, 1.0, 2.0, 4.0, 5.0])}
    names["nan"] = tape.tensor(float("nan"))

    def run(lib: ModuleType) -> object:
        return plain(eval(call, {"f": lib, **names}))  # noqa: S307 (README's)

    expected = eval(numpys, {"nan": float("nan")})  # noqa: S307
    np.testing.assert_equal(run(np), expected)
    if error := re.match(r"(TypeError|RuntimeError): ", ours):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            run(tape)
        assert caught.type.__name__ == error[1]
    else:
        np.testing.assert_equal(run(tape), eval(ours.strip("`")))  # noqa: S307


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(text_of(page), page) == []


def test_every_page_is_reached_from_readme() -> None:
    reached, ahead = {README}, [README]
    while ahead:
        page = ahead.pop()
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(text_of(page))}
        ahead += targets - reached
        reached |= targets
    assert {page for page in PAGES if page not in reached} == {DOCS / "index.md"}  # the site's own front page


@pytest.mark.parametrize(
    ("markdown", "broken"),
    [
        ("[a](limits.md)", []),
        ("[a](../README.md#how-fast)", []),
        ("[a](nowhere.md)", ["nowhere.md"]),
        ("[a](../limits.md)", ["../limits.md"]),
        ("[a](limits.md#nothing-of-the-kind)", ["limits.md#nothing-of-the-kind"]),
        ("# One `two`, (three)\n\n[a](#one-two-three)", []),
        ("# One\n\n[a](#two)", ["#two"]),
        ("```text\n[a](nowhere.md)\n```\n`[a](nowhere.md)`", []),
        ("[a\nb](nowhere.md)", ["nowhere.md"]),
        ("[a](https://example.org/nowhere.md)", []),
    ],
)
def test_planted_links(markdown: str, broken: list[str]) -> None:
    assert broken_links(markdown, DOCS / "planted.md") == broken


def test_a_directive_is_a_block() -> None:
    text = "```{toctree}\nlimits\n```\n\n# One\n\n```python\nprint(1)\n```\n"
    assert [block.language for block in fenced_blocks(text)] == ["{toctree}", "python"]
    assert anchors(text) == {"one"}


def script(name: str) -> ModuleType:
    """Return a script of docs, which is no package, as a module."""
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = script("public_names")


def test_the_picture_of_the_front_page_is_what_its_loop_draws() -> None:
    pictures = script("update_pictures")
    drawn, shown = (re.split(r"(-?\d+\.\d)", text) for text in (pictures.picture(), text_of(pictures.PICTURE)))
    assert drawn[::2] == shown[::2], "run: python docs/update_pictures.py"
    np.testing.assert_allclose(np.array(drawn[1::2], float), np.array(shown[1::2], float), atol=0.11)


def test_the_reference_has_a_place_for_every_public_module() -> None:
    marks = [path for page in (DOCS / "api").glob("*.md") for path in NAMES.MARK.findall(text_of(page))]
    assert sorted(marks) == sorted([*NAMES.MODULES, *NAMES.CLASSES])
    for owner in (tape, tape.autograd):
        things = {name: getattr(owner, name) for name in owner.__all__}
        modules = [one for one in things.values() if isinstance(one, ModuleType)]
        assert {m.__name__ for m in modules if not callable(m)} <= set(NAMES.MODULES)  # gradcheck is a function too


@pytest.mark.parametrize("module", NAMES.MODULES)
def test_the_reference_shows_every_public_name(module: str) -> None:
    """As an object of its own, or by the name under which a class is shown already."""
    shown = set(re.findall(r"^(?:\.\. [a-z:]+:: |``)([\w.]+)", NAMES.reference(module), re.MULTILINE))
    wanted = {f"{module}.{name}" for name in NAMES.public_names(import_module(module))}
    assert wanted
    assert shown == wanted


def test_the_command_writes_the_table_of_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, page = script("update_operations"), tmp_path / "operations.md"
    monkeypatch.setattr(command, "PAGE", page)
    page.write_text("before\n\n<!-- ops -->\nan old table\n<!-- /ops -->\n\nafter\n", encoding="utf-8")
    command.main()
    table = tape.op_table().strip()
    assert page.read_text(encoding="utf-8") == f"before\n\n<!-- ops -->\n{table}\n<!-- /ops -->\n\nafter\n"
