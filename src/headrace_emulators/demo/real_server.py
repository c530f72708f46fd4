"""Real servers of this machine that a demo can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RealServer:
    """A server of a demo, whether it runs or not.

    Args:
        source: the type of the source that reads it.
        command: what starts it.
        port: where it listens on the loopback.
        login: the source's options that lead to it.
        names: the source's option that names a database.
    """

    source: str
    command: tuple[str, ...]
    port: int
    login: Mapping[str, object]
    names: str = "database"

    def options(self, database: str) -> dict[str, object]:
        """The source's options for a database of it."""
        return {"type": self.source, **self.login, self.names: database}


def real_server(kind: str, folder: Path) -> RealServer | None:
    """The server of a kind of database with its data in a folder; null where the demo emulates one.

    Raises:
        ConnectError: the server is not installed, or can't use the folder.
    """
    if kind == "postgresql":
        from headrace_emulators.postgresql.server import DATA, USER, private_server

        private = private_server(folder)
        # Who may enter its data folder connects by the socket in there.
        found = {"hostname": str((folder / DATA).absolute()), "user": USER}
        return RealServer(kind, tuple(map(str, private.command)), private.port, found)
    if kind == "mariadb":
        from headrace_emulators.mysql.server import PASSWORD, USER, MySqlServer

        server = MySqlServer(folder.absolute())
        login: dict[str, object] = {"hostname": server.host, "port": server.port, "user": USER, "password": PASSWORD}
        return RealServer("mysql", tuple(server.command), server.port, login, names="databases")
    return None
