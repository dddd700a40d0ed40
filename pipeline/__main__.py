"""`python -m pipeline`."""

import signal
import sys

from pipeline.cli import main

if __name__ == "__main__":
    # Exits as on Ctrl-C, so that incomplete output is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
