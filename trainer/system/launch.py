"""How a trainer is started: the command, and the environment that must stand before Python does. Never
imports torch.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

# glibc gives big blocks back to the kernel and takes page faults to get them again: keeping them gave +40%
# tokens per second on a CPU.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}

# A thread that waits for another spins for microseconds, then sleeps. libgomp's default, milliseconds,
# starves the very thread it waits for when anything else runs: with every core busy 2 to 4 times slower, and
# no faster on a quiet machine.
OPENMP = {"GOMP_SPINCOUNT": "3000"}

# Else the processes that torchrun starts again find each other's predecessors in the store that all share
# (pytorch issue 135712).
RENDEZVOUS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

# How often torchrun starts all processes again, from the newest checkpoint, when one of them has died.
RESTARTS = 3


@dataclass(frozen=True)
class Node:
    """One of `nodes` machines that train together, by the name under which the others reach it. They meet at
    a port of the first one.
    """

    name: str
    nodes: int
    first: str
    port: int
    run_id: str

    @property
    def rendezvous(self) -> list[str]:
        """Options of torchrun. It is told what it would guess from the machine's own name, which may stand
        for another network, or for none.
        """
        return [
            *(f"--nnodes={self.nodes}", f"--local-addr={self.name}", f"--rdzv-id={self.run_id}"),
            *(
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={self.first}:{self.port}",
                f"--rdzv-conf=is_host={int(self.name == self.first)}",
            ),
        ]


def command(
    config_path: Path, processes: int = 1, restarts: int = RESTARTS, node: Node | None = None
) -> list[str]:
    """Trains `config_path` in this Python, under torchrun when there is more than one process, or several
    nodes with as many each.
    """
    trainer = ["-m", "trainer", str(config_path)]
    if processes == 1 and node is None:
        return [sys.executable, *trainer]
    return [
        *(sys.executable, "-m", "torch.distributed.run", *(node.rendezvous if node else ["--standalone"])),
        *(f"--nproc-per-node={processes}", f"--max-restarts={restarts}"),
        *trainer,
    ]


def environment(threads: int | None = None, processes: int = 1) -> dict[str, str]:
    """Variables to add for each of `processes` on this machine: allocator, rendezvous, OpenMP threads (None:
    its share of the physical cores).
    """
    return {
        **ALLOCATOR,
        **OPENMP,
        **RENDEZVOUS,
        "OMP_NUM_THREADS": str(threads or max(1, physical_cores() // processes)),
    }


def physical_cores() -> int:
    """Cores that this process may use, hyperthreads counted once, and no more than its container's quota."""
    allowed = os.sched_getaffinity(0)
    siblings = set()
    for cpu in allowed:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(path.read_text().strip() if path.exists() else str(cpu))
    return max(1, min(len(siblings), _container_cores() or len(siblings)))


def _container_cores() -> int | None:
    """The CPU quota of control groups version 2, rounded down to whole cores; None without one."""
    path = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = path.read_text().strip().partition(" ") if path.exists() else ("max", "", "")
    return None if quota == "max" else max(1, int(quota) // int(period))
