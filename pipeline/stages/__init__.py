"""Pure kernels: Arrow in, Arrow out. No I/O, no Dagster, no global state."""
