"""Ports for servers that are started in a moment."""

from __future__ import annotations

import random
import socket

_OURS = range(20_000, 32_768)


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback that no process listens on now.

    They lie below those that systems give to outgoing connections: one of these may be in use before a server that
    takes seconds to start has bound it.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(_OURS, len(_OURS)):
        if len(found) == count:
            break
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        found.append(port)
    return found
