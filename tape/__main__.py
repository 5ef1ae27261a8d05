"""The command line: `python -m tape [info | cache | list | run NAME]`; without a command, the tour.

Exit codes: 0 done, 1 an example failed, 2 wrong usage, 130 interrupted, 141 a pipe's reader left.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import numpy as np

import tape
from kernels.language import jit
from tape import examples
from tape.tools import tour

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

COMMANDS = ("info", "cache", "list", "run")
PACKAGES = {"numba": "numba", "NumPy": "numpy", "SciPy": "scipy"}
WRONG_USAGE, INTERRUPTED, READER_LEFT = 2, 130, 141  # the last two as a shell reports the signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; `arguments` default to those of the process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # By the line, so that a pipe's reader sees progress; and no character may stop the show.
        sys.stdout.reconfigure(line_buffering=True, errors="replace")
    hook, sys.unraisablehook = sys.unraisablehook, _heed_interrupt
    try:
        run_command(parser(), sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        # Python flushes stdout once more when it exits: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        sys.unraisablehook = hook
    return 0


def run_command(top: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Parse and run; wrong usage prints a message on stderr and raises SystemExit(2)."""
    first = next(iter(arguments), "-")
    if not first.startswith("-") and first not in COMMANDS:
        top.error(unknown("command", first, COMMANDS))
    options = top.parse_args(arguments)
    if options.command == "info":
        print(info())
    elif options.command == "cache":
        cache(clear=options.clear)
    elif options.command == "list":
        print(listing())
    elif options.command == "run":
        run(options.name, show=options.show)
    else:
        tour.show()


def parser() -> argparse.ArgumentParser:
    """Return the parser of a command, None for the tour, and its options."""
    top = argparse.ArgumentParser(
        prog="python -m tape",
        usage="%(prog)s [-h] [--version] [info | cache | list | run NAME]",
        description="Automatic differentiation on a tape. Without a command: the tour.",
    )
    top.add_argument("--version", action="version", version=f"tape {tape.__version__}")
    commands = top.add_subparsers(prog=top.prog, dest="command", metavar="COMMAND")
    commands.add_parser("info", help="versions, the cache of compiled kernels, BLAS")
    of_cache = commands.add_parser("cache", help="say where compiled kernels are kept")
    of_cache.add_argument("--clear", action="store_true", help="delete them")
    commands.add_parser("list", help="list the examples")
    of_run = commands.add_parser("run", help="run an example")
    of_run.add_argument("name", metavar="NAME", type=example, help="one of: " + ", ".join(examples.names()))
    of_run.add_argument("--show", action="store_true", help="print its source instead")
    return top


def example(name: str) -> str:
    """Return the example's name as `examples.names()` spells it; underscores pass for hyphens."""
    hyphened = name.replace("_", "-")
    if hyphened not in examples.names():
        raise argparse.ArgumentTypeError(unknown("example", name, examples.names()))
    return hyphened


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not known, with the nearest one and all of them."""
    known = list(known)
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} There are: {', '.join(known)}"


def info() -> str:
    """Return versions, where kernels are kept and how many there are, and the BLAS libraries."""
    rows = {"tape": tape.__version__}
    rows |= {name: _version(package) for name, package in PACKAGES.items()}
    rows["Python"] = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    rows["kernels"] = tour.kernel_cache()
    rows["BLAS"] = f"NumPy: {_blas(np)}"
    try:
        import scipy
    except ImportError:
        pass
    else:
        rows["BLAS"] += f"; SciPy, for matrix products: {_blas(scipy)}"
    return "\n".join(f"{name:8} {text}" for name, text in rows.items())


def cache(*, clear: bool) -> None:
    """Say where kernels are kept and how many there are; delete them if `clear`."""
    if clear:
        print(f"removed {tour.count_kernels(jit.clear_cache())} from {jit.cache_folder()}")
    else:
        print(tour.kernel_cache())


def listing() -> str:
    """Return a line for each example: its name and what it shows."""
    names = examples.names()
    width = max(map(len, names))
    return "\n".join(f"{name:{width}}  {examples.summary(name)}" for name in names)


def run(name: str, *, show: bool) -> None:
    """Run an example, or print its source if `show`."""
    if show:
        print(examples.source(name), end="")
        return
    with tour.compile_progress(rewrite=False):
        examples.load(name).main()


def _heed_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Leave when Ctrl-C came while a tensor was being deleted, where Python drops exceptions."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _blas(package: ModuleType) -> str:
    blas = package.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
