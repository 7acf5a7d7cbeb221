"""`python -m vantage`: the command.

Under torchrun, ranks above 0 follow rank 0, which alone reads the flags.
"""

import os
import sys

from vantage.cli import EXIT_SECONDS, main

if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        sys.exit(main())
    from vantage._host.processes import end_within

    if os.environ["RANK"] == "0":
        try:
            status = main()
        except SystemExit:  # after --help
            status = 0
        if status == 0:  # otherwise torchrun ends the others
            from vantage.runtimes.collectives import dismiss

            dismiss()
        end_within(EXIT_SECONDS, status)
        sys.exit(status)
    from vantage._host.processes import ignore_stop_signals, kill_descendants
    from vantage.runtimes.rank_worker import follow_torchrun

    ignore_stop_signals()  # rank 0 saves and stops all
    follow_torchrun()
    kill_descendants()
    end_within(EXIT_SECONDS, 0)
