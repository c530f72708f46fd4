"""The scope in which a connection changes its database."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace_emulators.sqlserver.session import Session


class Writing:
    """Begins a write transaction; commits or rolls back at the end unless a larger one is open."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._nested = False

    def __enter__(self) -> Session:
        self._nested = self._session.writes
        self._session.begin_write()
        if self._nested or self._session.explicit:
            self._session.sqlite.execute('SAVEPOINT "emulator statement"')
        return self._session

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        session = self._session
        if self._nested or session.explicit:
            if kind is not None and session.sqlite.in_transaction:
                session.sqlite.execute('ROLLBACK TO "emulator statement"')
                session.changed()
            if session.sqlite.in_transaction:
                session.sqlite.execute('RELEASE "emulator statement"')
        elif kind is not None:
            session.rollback()
        else:
            session.commit()
        if isinstance(error, sqlite3.Error):
            raise session.translated_error(error) from error
