"""`python -m vantage.cli`."""

from vantage.cli.entry import main

raise SystemExit(main())
