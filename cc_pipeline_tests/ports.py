"""Ports of loopback that nobody has, for servers that are told their port before they are started."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

#: Below those that the system gives to whoever asks for any: on a busy machine it would give one away again before the
#: server that it was meant for has started.
_PORTS: Final = range(15_000, 32_000)


def free_port() -> int:
    """One of them."""
    [port] = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """So many, each another one."""
    # hypothesis seeds the module's own generator, the same in all workers
    draw, found = random.SystemRandom(), list[int]()
    with ExitStack() as held:
        while len(found) < count:
            port, probe = draw.choice(_PORTS), held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found
