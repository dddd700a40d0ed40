"""Every scenario by its name."""

import random
from collections.abc import Callable

from tests.torture import faults, processes, services
from tests.torture.world import World

SCENARIOS: dict[str, Callable[[World, random.Random], str]] = {
    scenario.__name__: scenario
    for scenario in (
        faults.damaged_store,
        faults.rotten_store,
        faults.stale_partial,
        faults.damaged_source,
        faults.edited,
        faults.full_disk,
        faults.read_only_store,
        faults.odd_setting,
        faults.odd_command,
        processes.killed,
        processes.crossed,
        processes.collected,
        processes.jumping_clock,
        processes.interrupted_training,
        services.bad_bucket,
        services.lost_node,
    )
}
