"""`python -m teams` is the command `teams`."""

import sys

from teams.cli import main

if __name__ == "__main__":
    sys.exit(main())
