"""Ask PyTorch anew for what tests compare with, and store it: ``python -m tests.support.store_outcomes [FILE...]``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.pytorch_outcomes import Storing, installed


class Registering:
    """Makes the plugin known by its name."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Register it before tests are collected."""
        config.pluginmanager.register(Storing(), "storing")


def main(files: list[str]) -> int:
    """Run the tests that ask PyTorch, of these files or of all, and write what it gives."""
    if not installed():
        sys.stderr.write("PyTorch is not installed\n")
        return 2
    places = files or [str(Path(__file__).parents[1])]
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *places], plugins=[Registering()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
