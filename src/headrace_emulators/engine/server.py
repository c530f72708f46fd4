"""Emulated servers as tests and demos control them: a directory, and a handle on each database in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Self, TypeVar

from headrace_emulators.engine import database_files as files
from headrace_emulators.engine import logins
from headrace_emulators.engine.session import Session
from headrace_emulators.engine.storage import Clock, utc_now

AnySession = TypeVar("AnySession", bound=Session)
AnyCursor = TypeVar("AnyCursor")


class ServerDirectory:
    """A server that is a directory; its databases are files in it.

    Args:
        directory: made unless it exists.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def add_login(self, user: str, password: str) -> None:
        """Let a user in by password. From the first login on, everyone needs one."""
        logins.add(self.directory, user, password)


class DatabaseHandle(ABC, Generic[AnySession, AnyCursor]):
    """A database, with a connection through which a test or demo controls it. Not shared between threads.

    Args:
        path: the SQLite file.
        clock: gives transaction times; set the attribute to move time.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now) -> None:
        self.path = path
        self.clock = clock
        self._session: AnySession | None = None

    @property
    def name(self) -> str:
        return files.name_of(self.path)

    @property
    def settings(self) -> dict[str, str]:
        """What a driver needs to connect: hostname and database."""
        return {"hostname": str(self.path.parent), "database": self.name}

    @property
    def session(self) -> AnySession:
        """The controlling connection; opened on first use."""
        if self._session is None:
            self._session = self.open_session()
        return self._session

    @abstractmethod
    def open_session(self) -> AnySession:
        """A further connection with this database's clock."""

    @abstractmethod
    def cursor(self) -> AnyCursor:
        """A cursor on the controlling connection."""

    @contextmanager
    def transaction(self) -> Iterator[AnyCursor]:
        """A transaction: committed at the end, rolled back when the block raises.

        Yields:
            A cursor with execute and executemany.
        """
        session = self.session
        session.storage.begin()
        try:
            yield self.cursor()
            session.commit()
        except BaseException:
            session.rollback()
            raise

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
