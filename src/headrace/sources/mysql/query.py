"""QUERY events: statements that are logged as text, and what the session had set."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import SchemaError
from headrace.sources.mysql.charsets import charset_of, text_of
from headrace.sources.mysql.events import EventBytes

_FIXED = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}
"""How many bytes the status variables of one length have."""
_CHARSETS, _OLD_CATALOG, _TIME_ZONE, _CATALOG, _INVOKER, _DATABASES = 4, 2, 5, 6, 11, 12
_MICROSECONDS = (13, 128)
_TOO_MANY = 254


@dataclass(frozen=True)
class Query:
    """A QUERY event.

    Args:
        thread: the session's number.
        database: the one that it used.
        statement: in the character set of the client.
        collation: the number of the client's collation; None where the event does not say it.
        microseconds: those beside the second in the event's header; None where the event does not say them.
        databases: those that the statement changes besides, as far as the event says it.
    """

    thread: int
    database: str
    statement: bytes
    collation: int | None = None
    microseconds: int | None = None
    databases: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The statement; escapes stand where it has bytes that are no text in the character set of the client."""
        if self.collation is not None and not self.statement.isascii():
            try:
                return text_of(self.statement, charset_of(self.collation))
            except (SchemaError, ValueError):
                pass
        return self.statement.decode("utf-8", "backslashreplace")


def read_query(body: bytes) -> Query:
    """A QUERY event, or one that MariaDB compressed and that is plain now.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "QUERY")
    thread = data.number(4)
    data.number(4)
    size = data.number(1)
    data.number(2)
    status = data.part(data.number(2))
    database = data.utf8(data.take(size))
    if data.number(1):
        raise data.wrong("has a database without an end")
    statement = data.rest()
    collation = microseconds = None
    databases: tuple[str, ...] = ()
    while status.left:
        code = status.number(1)
        if code == _CHARSETS:
            collation = status.number(2)
            status.take(4)
        elif code in _MICROSECONDS:
            microseconds = status.number(3)
        elif code in _FIXED:
            status.take(_FIXED[code])
        elif code in (_TIME_ZONE, _CATALOG):
            status.short_text()
        elif code == _OLD_CATALOG:
            status.short_text()
            status.number(1)
        elif code == _INVOKER:
            status.short_text()
            status.short_text()
        elif code == _DATABASES:
            databases = _databases(status)
        else:
            # Nothing says how long an unknown one is, and all that are needed come before those that are new.
            break
    return Query(thread, database, statement, collation, microseconds, databases)


def _databases(status: EventBytes) -> tuple[str, ...]:
    count = status.number(1)
    databases = []
    for _ in range(0 if count == _TOO_MANY else count):
        name = bytearray()
        while letter := status.number(1):
            name.append(letter)
        databases.append(status.utf8(bytes(name)))
    return tuple(databases)
