"""`python -m pipeline`."""

import signal
import sys

from pipeline.cli import main

if __name__ == "__main__":
    # As Ctrl-C does it: what is half written is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
