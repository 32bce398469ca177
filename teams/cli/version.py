"""`teams --version`."""

import argparse
from collections.abc import Sequence
from typing import Any


class ShowVersion(argparse.Action):
    """Prints the installed version; looked up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it and end."""
        from importlib.metadata import version

        print(f"teams {version('trio-teams')}")
        parser.exit()
