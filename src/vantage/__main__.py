"""`python -m vantage`: the command. Under torchrun, ranks above 0 follow rank 0, which alone reads the flags."""

import os
import sys

from vantage.cli import main

if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ["RANK"] != "0":
        from vantage.runtimes.ranks import follow_torchrun
        from vantage.system import hear_nothing

        hear_nothing()  # rank 0 saves and stops all
        follow_torchrun()
    else:
        sys.exit(main())
