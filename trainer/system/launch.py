"""The command that starts a trainer, and the environment that must be set before Python starts.

Never imports torch.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from trainer.system.errors import install
from trainer.system.paths import at_home

# By default glibc returns large blocks to the kernel, and page faults follow when they are allocated again.
# Keeping them gave 40% more tokens per second on a CPU. Huge pages, which most kernels give only to memory
# that asks for them, took another 13% off the processor time of a step.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

# Waiting threads spin for microseconds and then sleep. By libgomp's default they spin for milliseconds and
# take cores from the threads that they wait for: 2 to 4 times slower with all cores busy, no faster on an
# idle machine.
OPENMP = {"GOMP_SPINCOUNT": "3000"}

# Without it, restarted processes read the entries of earlier ones in torchrun's store (pytorch issue 135712).
RENDEZVOUS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

# Segments of GPU memory that grow leave no gaps between tensors of other sizes: a larger micro-batch fits.
GPU_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}

# Seconds from torchrun's SIGTERM to its SIGKILL. The default, 30, is too short to save a large model.
STOP_SECONDS = 600
PATIENCE = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(STOP_SECONDS)}

# What torchrun passes on to its processes: as by default, and Slurm's SIGUSR1.
FORWARDED = {"PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"}

MLFLOW_PLACE = (
    "set the environment variable MLFLOW_TRACKING_URI to the server or the database, for example "
    "http://127.0.0.1:5000 or sqlite:////data/mlflow.db"
)

# How often torchrun restarts all processes, from the newest checkpoint, after a process has died.
RESTARTS = 3


def command(config_path: Path, processes: int = 1) -> list[str]:
    """The command that trains `config_path` in this Python, under torchrun for several processes."""
    if processes == 1:
        return [sys.executable, *trainer_arguments(config_path)]
    torchrun = [sys.executable, "-m", "trainer.system.torchrun", "--standalone"]
    options = [f"--nproc-per-node={processes}", f"--max-restarts={RESTARTS}"]
    return [*torchrun, *options, *trainer_arguments(config_path)]


def trainer_arguments(config_path: Path) -> list[str]:
    """The arguments for Python or torchrun to train `config_path`."""
    return ["-m", "trainer", str(config_path)]


def environment(threads: int | None = None, processes: int = 1) -> dict[str, str]:
    """Variables for each of `processes` on this machine: allocator, rendezvous, patience, signals, OpenMP
    threads.

    `threads` None: the process's share of the physical cores.
    """
    return {
        **ALLOCATOR,
        **OPENMP,
        **RENDEZVOUS,
        **PATIENCE,
        **GPU_ALLOCATOR,
        **FORWARDED,
        "OMP_NUM_THREADS": str(threads or max(1, physical_cores() // processes)),
    }


def physical_cores() -> int:
    """Cores that this process may use, at most its container's quota; hyperthreads count once."""
    allowed = os.sched_getaffinity(0)
    siblings = set()
    for cpu in allowed:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(path.read_text().strip() if path.exists() else str(cpu))
    return max(1, min(len(siblings), _container_cores() or len(siblings)))


def _container_cores() -> int | None:
    """The CPU quota of control groups version 2, rounded down to cores; None without a quota."""
    path = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = path.read_text().strip().partition(" ") if path.exists() else ("max", "", "")
    return None if quota == "max" else max(1, int(quota) // int(period))


def ended(status: int) -> str:
    """How a trainer ended, and where a signal ended it, what to do."""
    if status >= 0:
        return f"ended with exit status {status}"
    hint = ", most likely because memory ran out: lower training.micro_batch_size"
    return f"was ended by {signal.Signals(-status).name}{hint if -status == signal.SIGKILL else ''}"


def restarts_left() -> bool:
    """Whether the torchrun that started this process would start it again."""
    most, done = (os.environ.get(f"TORCHELASTIC_{name}", "") for name in ("MAX_RESTARTS", "RESTART_COUNT"))
    return most.isdecimal() and int(done if done.isdecimal() else 0) < int(most)


def missing_trackers(sinks: Iterable[str]) -> Iterator[str]:
    """What is to be said of each of `training.sinks` whose package is not installed here."""
    for kind in sinks:
        if find_spec(kind) is None:
            yield f"training.sinks needs the package {kind}: run {install(kind)}, or leave {kind} out"


def trackers_without_place(sinks: Iterable[str]) -> Iterator[str]:
    """What is to be said of each of `training.sinks` whose environment on this machine does not say where the
    numbers go. Where wandb may find a key that is not seen from here, nothing is said.
    """
    if "mlflow" in sinks and not os.environ.get("MLFLOW_TRACKING_URI"):
        yield f"training.sinks: mlflow: {MLFLOW_PLACE}"
    offline = os.environ.get("WANDB_MODE", "").lower() in ("offline", "disabled", "dryrun")
    keys = [os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "NETRC")]
    files = [at_home("~") / name for name in (".netrc", "_netrc", ".config/wandb/settings")]
    if "wandb" in sinks and not offline and not any(keys) and not any(path.exists() for path in files):
        yield (
            "training.sinks: wandb finds no key: run `wandb login`, or set the environment variable "
            "WANDB_API_KEY, or WANDB_MODE=offline"
        )
