"""The Dagster code location of the recipe in use."""

# ruff: noqa: E402, since what follows takes a second, in which a person sees what is going on
import gc

# No garbage collection of what is imported, neither now nor later: all of it stays.
gc.disable()

from pipeline.assets.operations.console import (
    explain_on_exit,
    keep_output_to_the_end,
    repeat_lost_interrupts,
    show_activities,
    use_by_default,
)

show_activities()

import dagster as dg

from pipeline.assets.graph import definitions
from pipeline.assets.operations.dagster_storages import keep_logs_open
from pipeline.assets.used_recipe import OWN

explain_on_exit()
keep_logs_open()
use_by_default()
keep_output_to_the_end()
repeat_lost_interrupts()
# also for a run of chosen assets no process for each step
defs = definitions(OWN, dg.in_process_executor)

gc.freeze()
gc.enable()
