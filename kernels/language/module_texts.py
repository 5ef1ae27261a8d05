"""What machine code depends on: the texts of this package's modules, wherever they stand, and what they import."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from itertools import chain
from pathlib import Path
from types import CodeType

import kernels

PACKAGE = kernels.__name__
_HEAD = re.compile(r"\n([ \t]*(?:from|import)\b[^\n(]*(?:\([^)]*\))?[^\n]*)")
"""What may be an import, behind an end of line, for which a search jumps from one to the next."""
_PLAIN = re.compile(
    r"from (?P<source>[a-z_]\w*(?:\.\w+)*) import \(?(?P<names>[\w,\s]+)\)?"
    r"|import (?P<whole>\w+(?:\.\w+)*)(?: as \w+)?"
)
"""What need not be parsed, which takes most of the time: all but names in unusual dress and several on a line."""


@functools.cache
def content_of(module: str) -> str | CodeType:
    """Return a module's source from a folder, an archive or a frozen application; its code where no source is kept."""
    spec = importlib.util.find_spec(module)
    loader = None if spec is None else spec.loader
    if type(loader) is SourceFileLoader and spec is not None and spec.origin:
        with contextlib.suppress(OSError, UnicodeDecodeError):  # ours are UTF-8: the loader would look what they are
            return Path(spec.origin).read_text(encoding="utf-8")
    for method in ("get_source", "get_code"):
        try:
            content: str | CodeType | None = getattr(loader, method)(module)
        except (AttributeError, ImportError, OSError, EOFError):
            continue
        if content is not None:
            return content
    raise _unreadable(module)


def text_of(module: str) -> str:
    """Return a module's source, from which native code is made; ImportError where only its byte code is kept."""
    content = content_of(module)
    if isinstance(content, str):
        return content
    raise _unreadable(module)


def _unreadable(module: str) -> ImportError:
    return ImportError(
        f"the source of {module} cannot be read, from which native code is made. Freeze the application so that the "
        "packages 'tape' and 'kernels' keep their .py files, or install tape-autograd beside it"
    )


def digest(text: str | CodeType, module_name: str = "") -> str:
    """Return a hash of a text, or of code, and of all that it imports from this package, one through another.

    ``module_name``: the module whose text it is, if it is one's.
    """
    hasher = hashlib.sha256()
    _update(hasher, text)
    for module in sorted(_reached(_imports_of(module_name) if module_name else frozenset(imported(text)))):
        hasher.update(_digest_of(module))
    return hasher.hexdigest()


def imported(content: str | CodeType, module_name: str = "") -> Iterator[str]:
    """Yield the modules of this package that a source imports; of code that has none, all that there are.

    ``module_name``: the module whose source it is, if it is one's.
    """
    if isinstance(content, CodeType):
        yield from (info.name for info in pkgutil.walk_packages(kernels.__path__, f"{PACKAGE}."))
        return
    heads = [head for head in _HEAD.findall(f"\n{content}") if head != "from __future__ import annotations"]
    plain = [_PLAIN.fullmatch(head) for head in heads]
    unmatched = "\n".join(head for head, match in zip(heads, plain, strict=True) if match is None)
    rest = _imports(unmatched, content, module_name) if unmatched else ()
    for module, name in chain(*map(_plain_imports, filter(None, plain)), rest):
        if f"{module}.".startswith(f"{PACKAGE}."):
            deepest = f"{module}.{name}"
            yield deepest if name and _is_room(module) and _is_module(deepest) else module


def _plain_imports(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield modules and the names taken from them."""
    if match["names"]:
        yield from ((match["source"], name.split()[0]) for name in match["names"].split(",") if name.strip())
    elif match["whole"]:
        yield match["whole"], ""


def _imports(heads: str, whole: str, module_name: str) -> Iterator[tuple[str, str]]:
    """Yield modules and the names taken from them, by Python's own parser."""
    room = module_name if not module_name or _is_room(module_name) else module_name.rpartition(".")[0]
    for node in ast.walk(_parsed(heads, whole)):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = importlib.util.resolve_name("." * level + (module or ""), room or PACKAGE)
                yield from ((source, alias.name) for alias in names)


def _parsed(heads: str, whole: str) -> ast.Module:
    try:
        return ast.parse("\n".join(map(textwrap.dedent, heads.splitlines())))
    except SyntaxError:  # a sentence that begins as an import does
        return ast.parse(whole)


@functools.cache
def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@functools.cache
def _is_room(module: str) -> bool:
    """Whether a module is a package, whose names may be modules."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.submodule_search_locations is not None


@functools.cache
def _reached(modules: frozenset[str]) -> frozenset[str]:
    """Return these modules and all that they import."""
    reached, pending = set[str](), set(modules)
    while pending:
        module = pending.pop()
        reached.add(module)
        pending |= _imports_of(module) - reached
    return frozenset(reached)


@functools.cache
def _imports_of(module: str) -> frozenset[str]:
    return frozenset(imported(content_of(module), module))


@functools.cache
def _digest_of(module: str) -> bytes:
    hasher = hashlib.sha256(module.encode())
    _update(hasher, content_of(module))
    return hasher.digest()


def _update(hasher: hashlib._Hash, content: str | CodeType) -> None:
    """Add a text, or all that decides what code does; what ``marshal`` writes would differ from start to start."""
    if isinstance(content, str):
        hasher.update(content.encode())
        return
    hasher.update(content.co_code + repr((content.co_names, content.co_varnames)).encode())
    for constant in content.co_consts:
        if isinstance(constant, frozenset):  # whose order follows the seed of hashes
            _update(hasher, repr(sorted(map(repr, constant))))
        else:
            _update(hasher, constant if isinstance(constant, CodeType) else repr(constant))
