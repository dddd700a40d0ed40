"""A Slurm cluster on this machine: munge, a controller, and two nodes. The programs are in Debian's packages
slurmctld, slurmd and munge.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
NODES = ("n1", "n2")
START_SECONDS = 30
CONFIGURATION = """\
ClusterName=groundwork
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthInfo=socket={place}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={place}
SlurmctldPidFile={place}/controller.pid
SlurmctldLogFile={place}/controller.log
SlurmdSpoolDir={place}/%n
SlurmdPidFile={place}/%n.pid
SlurmdLogFile={place}/%n.log
SlurmdTimeout=5
KillWait=60
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=ALL Default=YES
"""


@dataclass(frozen=True)
class SlurmCluster:
    place: Path
    daemons: dict[str, "subprocess.Popen[bytes]"]

    @property
    def variables(self) -> dict[str, str]:
        """What srun and its like need in their environment."""
        return {"SLURM_CONF": str(self.place / "slurm.conf")}

    def start(self, name: str, *command: str) -> None:
        self.daemons[name] = subprocess.Popen(
            command,
            env={**os.environ, **self.variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def is_ready(self) -> bool:
        idle = subprocess.run(
            ["sinfo", "--noheader", "--states=idle", "--format=%D"],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return idle.stdout.strip() == str(len(NODES))


def lacking() -> str:
    """What of Slurm this machine or this user does not have."""
    programs = [program for program in PROGRAMS if shutil.which(program) is None]
    return ", ".join([*programs, *(["root"] if os.getuid() else [])])


@contextmanager
def started() -> Iterator[SlurmCluster]:
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as directory:
        cluster = SlurmCluster(Path(directory), {})
        place = cluster.place
        place.chmod(0o755)  # munge's socket is for everybody
        for node in NODES:
            (place / node).mkdir()
        (place / "munge.key").write_bytes(os.urandom(128))
        (place / "munge.key").chmod(0o600)
        (place / "slurm.conf").write_text(
            CONFIGURATION.format(host=socket.gethostname().partition(".")[0], place=place, ports=free_ports())
        )
        try:
            files = {f"{kind}-file": kind for kind in ("key", "pid", "log", "seed")} | {"socket": "socket"}
            options = [f"--{option}={place}/munge.{name}" for option, name in files.items()]
            cluster.start("munge", "munged", "--foreground", "--force", *options)
            cluster.start("controller", "slurmctld", "-D")
            for node in NODES:
                cluster.start(node, "slurmd", "-D", "-N", node)
            deadline = time.monotonic() + START_SECONDS
            while not cluster.is_ready():
                assert time.monotonic() < deadline, (place / "controller.log").read_text()
                time.sleep(0.5)
            yield cluster
        finally:
            for daemon in reversed(cluster.daemons.values()):
                daemon.terminate()
                daemon.wait(30)


def free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(3)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
