"""Real servers that a demo can have: the machine's, or from Maven's archives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace_emulators.engine.archives import Archive
from headrace_emulators.engine.programs import FolderError

_Server = TypeVar("_Server")


@dataclass(frozen=True)
class RealServer:
    """A server of a demo, whether it runs or not.

    Args:
        source: the type of the source that reads it.
        folder: where its data is.
        command: what starts it.
        port: where it listens on the loopback.
        login: the source's options that lead to it.
        names: the source's option that names a database.
    """

    source: str
    folder: Path
    command: tuple[str, ...]
    port: int
    login: Mapping[str, object]
    names: str = "database"

    def options(self, database: str) -> dict[str, object]:
        return {"type": self.source, **self.login, self.names: database}


def to_download(kind: str) -> Archive | None:
    """The archive that the server of a kind of database is downloaded in; None where nothing has to be.

    Raises:
        ConnectError: the machine has no such server, and can't run what Maven has.
    """
    if kind == "postgresql":
        from headrace_emulators.postgresql.server import find_postgresql

        found = find_postgresql()
    elif kind == "mariadb":
        from headrace_emulators.mysql.server import find_mariadb

        found = find_mariadb()
    else:
        return None
    return found.to_download


def real_server(kind: str, folder: Path) -> RealServer | None:
    """The server of a kind of database with its data in a folder, or in a temporary one where it can't use that; None
    where the demo emulates one. It is downloaded first where that has to be.

    Raises:
        ConnectError: the machine has no such server, and none can be had.
    """
    if kind == "postgresql":
        from headrace_emulators.postgresql.server import USER, private_server

        private = _placed(private_server, folder.absolute())
        # Who may enter its data folder connects by the socket in there.
        found = {"hostname": private.host, "user": USER}
        return RealServer(kind, private.folder, tuple(private.command), private.port, found)
    if kind == "mariadb":
        from headrace_emulators.mysql.server import PASSWORD, USER, MySqlServer

        server = _placed(MySqlServer, folder.absolute())
        login: dict[str, object] = {"hostname": server.host, "port": server.port, "user": USER, "password": PASSWORD}
        return RealServer("mysql", server.folder, tuple(server.command), server.port, login, names="databases")
    return None


def _placed(make: Callable[[Path], _Server], folder: Path) -> _Server:
    try:
        return make(folder)
    except FolderError:
        return make(Path(tempfile.mkdtemp(prefix="headrace-demo-")))
