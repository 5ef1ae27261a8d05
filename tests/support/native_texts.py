"""Compare the native code of two checkouts: the LLVM text of each handwritten module, up to names.

``python -m tests.support.native_texts OTHER`` names the modules whose text differs from that in the checkout OTHER. It
tells whether a change of the native language, or of how its sources are written, has changed what they mean. Hashes of
sources, which are part of symbols, are no difference.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kernels
from kernels.language import jit, statements
from kernels.language.jit import Unit

Texts = dict[str, list[str]]
_EXPORTED = re.compile(r"^def \w+\([\w:, ]*\) -> Word:$", re.MULTILINE)
_HASH = re.compile(r"_[0-9a-f]{24}\b")


def texts_of(unit: Unit) -> list[str]:
    """Return the LLVM text of a unit before it is optimised: of its code, and of its loops that stand apart."""
    module = statements.NativeModule(unit.name, control=bool(unit.names.get("CONTROL")))
    for native in unit.entries:
        module.export(native)
    return [_HASH.sub("", str(part)) for part in (module.ir, module.loops)]


def own_texts() -> Texts:
    """Return the texts of the checkout that is imported, by module."""
    folder, found = Path(kernels.__file__).parent, {}
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]
    for path in [path for path, text in texts if path.stem.endswith("_native") or _EXPORTED.search(text)]:
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        exported = list(vars(jit.load_module(name)).values())
        if exported:
            found[name] = texts_of(exported[0].unit)
    return found


def texts_in(root: Path) -> Texts:
    """Return the texts of a checkout, from a process that imports its packages, and runs this file."""
    code = f"import json, runpy; print(json.dumps(runpy.run_path({__file__!r})['own_texts']()))"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code]  # which finds what is in its folder first
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, cwd=root)
    return dict(json.loads(printed.stdout))


def differing(one: Texts, other: Texts) -> list[str]:
    """Return the modules whose texts differ, or that only one of them has."""
    return sorted(name for name in {**one, **other} if one.get(name) != other.get(name))


def main(other: str) -> int:
    """Print the modules that differ; 1 if any does."""
    found = differing(own_texts(), texts_in(Path(other).resolve()))
    sys.stdout.write("\n".join(found or ["the native code of both is the same"]) + "\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
