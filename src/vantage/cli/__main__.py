"""`python -m vantage.cli`."""

from vantage.cli.main import main

raise SystemExit(main())
