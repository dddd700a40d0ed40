"""The clock by which deadlines are kept."""

import time


def since_boot() -> float:
    """Seconds. Nobody sets this clock, and unlike `monotonic` it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
