"""Machines with a network between them that can be cut, as network namespaces."""

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

SUBNET = f"10.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}"  # tests run side by side


@dataclass(frozen=True)
class Host:
    """It shares its files with the others, as hosts of a cluster share a disk."""

    namespace: str
    address: str

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], said: Path
    ) -> "subprocess.Popen[bytes]":
        with said.open("a") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command],
                env=environment,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
            )

    def processes(self) -> list[int]:
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]

    def kill(self) -> None:
        """Every process at once, as when the power fails."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        """Nothing that it sends arrives any more, and nothing reaches it."""
        _ip("link", "set", self.namespace, "down")


@contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """`count` hosts, and this machine at SUBNET.254. Skips where namespaces cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("no network namespaces: they need root and iproute2")
    mark = f"gw{secrets.token_hex(3)}"  # a namespace outlives its name for a moment
    hosts = [Host(f"{mark}-{number}", f"{SUBNET}.{number}") for number in range(1, count + 1)]
    try:
        try:
            _ip("link", "add", mark, "type", "bridge")
            for host in hosts:
                _ip("netns", "add", host.namespace)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces: {error.stderr.strip()}")
        _ip("addr", "add", f"{SUBNET}.254/24", "dev", mark)
        _ip("link", "set", mark, "up")
        for host in hosts:
            _ip(
                "link", "add", host.namespace, "type", "veth", "peer", "name", "eth0", "netns", host.namespace
            )
            _ip("link", "set", host.namespace, "master", mark, "up")
            for arguments in (
                ["link", "set", "lo", "up"],
                ["addr", "add", f"{host.address}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
            ):
                _ip("-n", host.namespace, *arguments)
        yield hosts
    finally:
        for host in hosts:
            with suppress(subprocess.CalledProcessError):
                host.kill()
                _ip("netns", "delete", host.namespace)
        for link in (*(host.namespace for host in hosts), mark):
            with suppress(subprocess.CalledProcessError):
                _ip("link", "delete", link)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
