"""Hatch builds wheels with this: in site-packages ``kernels`` is ``tape._kernels``, since the name is another's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_IMPORTS = (
    (re.compile(r"from kernels(?=\.\w| import )"), "from tape._kernels"),  # also behind the \n of a string
    (re.compile(r"\bimport kernels\b(?! as|\.)"), "from tape import _kernels as kernels"),
    (re.compile(r"\bimport kernels as\b"), "from tape import _kernels as"),
)
"""Imports of the repository's second package, also those in printed kernels, and what they are in a wheel."""


def write_package(root: Path, package: Path) -> None:
    """Write the one package of a wheel: the folder ``tape`` of the repository, with ``kernels`` in it."""
    for folder, target in ((root / "tape", package), (root / "kernels", package / "_kernels")):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                if path.suffix in (".py", ".pyi"):
                    content = _renamed(content.decode()).encode()
                copy = target / path.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)


def write_stubs(root: Path) -> None:
    """Write the stubs into the repository's folder ``tape``; without native code, which they do not depend on."""
    command = [sys.executable, str(root / ".ci" / "stubs.py")]
    subprocess.run(command, cwd=root, env={**os.environ, "TAPE_PLAIN": "1"}, check=True)  # noqa: S603 (our own module)


def _renamed(source: str) -> str:
    for name, instead in _IMPORTS:
        source = name.sub(instead, source)
    return source


def get_build_hook() -> type[Any]:
    """Return the hook, as hatch asks for it; tests write the package without hatch."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class Hook(BuildHookInterface):  # type: ignore[misc]
        """Writes the stubs, and hands files to a wheel; an editable installation takes the repository as it is."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Write the package to a temporary folder."""
            write_stubs(Path(self.root))
            if version != "editable":
                self.folder = TemporaryDirectory()
                write_package(Path(self.root), Path(self.folder.name))
                build_data["force_include"][self.folder.name] = "tape"

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove the folder."""
            if version != "editable":
                self.folder.cleanup()

    return Hook
