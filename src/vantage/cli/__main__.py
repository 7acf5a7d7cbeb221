"""`python -m vantage.cli`."""

import sys

from vantage.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
