"""The network interface that other machines are told."""

import socket

from trainer.parallel.world import _interface_towards


def test_the_interface_towards_an_address_is_the_one_that_has_it() -> None:
    assert _interface_towards("127.0.0.1") == "lo"
    assert _interface_towards(socket.gethostbyname("localhost")) == "lo"
