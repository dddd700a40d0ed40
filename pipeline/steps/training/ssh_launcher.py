"""The trainer on several machines: torchrun on each, started over ssh and stopped with it."""

import json
import logging
import os
import random
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from pipeline.steps.training.process_group import (
    GRACE_SECONDS,
    POLL_SECONDS,
    TrainerKilledError,
    ignore_stop_signals,
)
from pipeline.steps.training.remote_agent import Order
from pipeline.store.errors import PipelineError
from trainer.system import launch
from trainer.system.signals import stop_with_parent

# No questions, no connection that is shared with others and outlives its line, and a host that is cut off is
# noticed within 15 seconds.
OPTIONS = (
    "BatchMode=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
)
SSH = ("ssh", "-T", *(word for option in OPTIONS for word in ("-o", option)))
ANSWER_SECONDS = 60  # to import the code, from a disk that many share
SSH_FAILED = 255
SIGNAL = 128  # a tether adds the number of the signal that killed its command
PORTS = range(20_000, 30_000)  # below those that Linux gives to outgoing connections
ROOT = Path(__file__).parents[3]
FORWARDED = ("GLOO_", "HF_", "NCCL_", "TORCH")  # what begins so is set on every host as it is here

log = logging.getLogger(__name__)


class HostsError(PipelineError):
    """A host of the recipe cannot be used."""


class Hosts:
    """torchrun on each of `hosts`, `[user@]name`. When one is lost all stop, and the next run does without
    those that no longer answer.
    """

    def __init__(self, hosts: Sequence[str], processes: int, threads: int | None) -> None:
        self.hosts = list(hosts)
        self.processes = processes
        self.threads = threads
        self._lost_one = False

    def run(
        self,
        config: Path,
        variables: Mapping[str, str],
        poll: Callable[[], bool],
        errors: IO[bytes] | None = None,
    ) -> int:
        """As `Launcher.run`. HostsError when a host cannot be reached that was not lost."""
        self._leave_out_silent()
        forwarded = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
        names = [host.rpartition("@")[2] for host in self.hosts]
        port, run_id = random.choice(PORTS), secrets.token_hex(8)
        lines: list[_Line] = []
        try:
            for host, name in zip(self.hosts, names, strict=True):
                node = launch.Node(name, len(names), names[0], port, run_id)
                command = launch.command(config, self.processes, node=node)
                lines.append(
                    _Line(
                        host, Order(command, {**forwarded, **variables}, self.threads, self.processes), errors
                    )
                )
            while (
                any(line.status is None for line in lines)
                and not any(line.status for line in lines)
                and poll()
            ):
                for line in lines:
                    line.hold()
                time.sleep(POLL_SECONDS)
            killed = [line.host for line in lines if line.status is not None and line.status > SIGNAL]
        finally:
            with ignore_stop_signals():
                for line in lines:
                    line.release()
                deadline = time.monotonic() + GRACE_SECONDS + 10  # the tether's, and for what is on its way
                for line in lines:
                    line.end(deadline)
                poll()
        # Also when another host was the first to end, because it missed this one.
        killed += [line.host for line in lines if line.status in (SSH_FAILED, -signal.SIGKILL)]
        if killed:
            self._lost_one = True
            raise TrainerKilledError(f"the trainer on {killed[0]} was killed, or the host is gone")
        return max(line.status or 0 for line in lines)

    def _leave_out_silent(self) -> None:
        asked = {
            host: _ssh(
                host,
                "-c",
                "import pipeline.steps.training.remote_agent",
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for host in self.hosts
        }
        said = {host: _answer(process) for host, process in asked.items()}
        silent = [host for host, process in asked.items() if process.returncode]
        if silent and (not self._lost_one or len(silent) == len(self.hosts)):
            raise HostsError(f"launch.hosts: {silent[0]} cannot be used: {said[silent[0]]}")
        for host in silent:
            log.warning("%s: going on without it: %s", host, said[host])
            self.hosts.remove(host)


def _answer(process: "subprocess.Popen[bytes]") -> str:
    """The last line of what it complains of; it is killed when it takes too long."""
    try:
        return (
            process.communicate(timeout=ANSWER_SECONDS)[1]
            .decode(errors="replace")
            .strip()
            .rpartition("\n")[2]
        )
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"no answer in {ANSWER_SECONDS} seconds"


class _Line:
    """A torchrun on a host, which runs as long as this process holds the line."""

    def __init__(self, host: str, order: Order, errors: IO[bytes] | None) -> None:
        self.host = host
        self._ssh = _ssh(
            host, "-m", "pipeline.steps.training.remote_agent", stdin=subprocess.PIPE, stderr=errors
        )
        assert self._ssh.stdin is not None
        self._stdin = self._ssh.stdin
        self._write(json.dumps(asdict(order)).encode() + b"\n")

    @property
    def status(self) -> int | None:
        """torchrun's exit status, None while it runs; SSH_FAILED when the connection broke."""
        return self._ssh.poll()

    def hold(self) -> None:
        self._write(b"\n")

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # its status will tell
            self._stdin.write(data)
            self._stdin.flush()

    def release(self) -> None:
        """Asks for the end."""
        with suppress(BrokenPipeError):
            self._stdin.close()

    def end(self, deadline: float) -> None:
        try:
            self._ssh.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()


def _ssh(
    host: str, *python: str, stdin: int, stderr: int | IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """Python with these arguments on `host`, as it is here. It ends, and with it the line, when this process
    is killed.
    """
    command = f"cd {shlex.quote(str(ROOT))} && exec {shlex.join([sys.executable, *python])}"
    try:
        return subprocess.Popen(
            [*SSH, "--", host, command],
            stdin=stdin,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=stop_with_parent,
        )
    except FileNotFoundError as error:
        raise HostsError("launch.hosts needs ssh, which is not installed here") from error
