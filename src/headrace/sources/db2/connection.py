"""Connections to Db2: how statements and rows pass the driver, and what its errors mean.

The driver binds bytes as text of some sort and fetches rows as Python values. So LSNs and our own whole numbers stand
in the statement as constants, and Arrow columns are made of what was fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import CaptureError, ConnectError, HeadraceError
from headrace.sources.change_tables.connection import (
    Connection,
    Denied,
    MissingObject,
    PassingRefusal,
    StatementError,
)
from headrace.sources.connection import LostConnection
from headrace.sources.db2.dialect import Db2

_CODE = re.compile(r"SQLCODE=(-?\d+)")
_STATE = re.compile(r"SQLSTATE=(\w{5})")
_QUOTED = re.compile(r'"([^"]+)"')
_PARTS = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\?)""", re.DOTALL)
_BROKEN = frozenset((-1224, -1229, -30080, -30081, -1336, -4499))
_LOGIN = frozenset((-30082, -1403, -1060))
_NO_DATABASE = frozenset((-1013, -30061, -1031))
_PASSING = frozenset((-911, -913, -904, -501, -1476))
_UNDEFINED, _DENIED = -204, frozenset((-551, -552, -1092))


class Db2Connection(Connection):
    """A connection to one Db2 database.

    Args:
        driver: the driver's name.
        settings: what the driver needs.
        dialect: with the statements for this platform and these schemas.
    """

    def __init__(self, driver: str, settings: Mapping[str, Any], dialect: Db2) -> None:
        super().__init__(driver, settings, dialect)

    def begin(self) -> None:
        """Begin a transaction, which goes on until `end`."""
        self._switch(False)

    def end(self) -> None:
        """End it; nothing of it stays."""
        try:
            self._connection.rollback()
        except Exception as error:
            # The server ended it itself, and reported why.
            raise self._statement_error(error) from error
        self._switch(True)

    def _switch(self, on: bool) -> None:
        try:
            self._connection.set_autocommit(on)
        except Exception as error:
            raise self._statement_error(error) from error

    def _patience_of(self, connection: Any, milliseconds: int) -> None:
        # The driver has a bound for a whole connection only, which `driver.connect` sets.
        return None

    def _execute(self, cursor: Any, sql: str, parameters: Sequence[object]) -> None:
        sql, bound = written(sql, parameters)
        if bound:
            cursor.execute(sql, tuple(bound))
        else:
            cursor.execute(sql)

    def _arrow(self, cursor: Any, rows: int) -> Iterable[pa.RecordBatch]:
        """The rows that the driver fetches, as Arrow: it has no fetch of its own for that."""
        names = [str(column[0]) for column in cursor.description]
        return _batches(cursor, names, rows)

    def _connect_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        code = _code(text)
        if code in _LOGIN:
            return ConnectError(
                f"Server '{self._where}' refused the login of user '{self._user}'.",
                remedy="Check 'user' and 'password', and that the login may connect to the database.",
            )
        if code in _NO_DATABASE:
            return ConnectError(
                f"Server '{self._where}' has no database '{self._database}'.", remedy="Check 'database'."
            )
        if code is not None and code < -1 and code not in _BROKEN and "8001" not in text:
            return ConnectError(f"Server '{self._where}' can't be used ({text}).", remedy="Correct what it names.")
        return LostConnection(
            f"Server '{self._where}' can't be reached ({text}).",
            remedy="Check 'hostname', 'port', the network and 'security'.",
        )

    def _statement_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        code, match = _code(text), _STATE.search(text)
        state = match[1] if match else ""
        server_text = f"server '{self._where}', database '{self._database}'"
        named = _QUOTED.search(text)
        if code in _DENIED:
            return Denied(
                f"User '{self._user}' may not do that in database '{self._database}' ({text}).",
                remedy="Grant what it names, such as SELECT on the captured tables, the change tables and the control "
                "tables.",
            )
        if code == _UNDEFINED:
            return MissingObject(
                f"Database '{self._database}' has no object '{named[1] if named else text}'.",
                remedy="Check that SQL Replication is set up, and 'capture_schema', and that the table is registered.",
            )
        if code in _PASSING:
            return PassingRefusal(f"{server_text[0].upper()}{server_text[1:]}: {text}.")
        if code in _BROKEN or state.startswith("08") or "CLI0106E" in text:
            return LostConnection(
                f"The connection to {server_text} broke ({text}).",
                remedy="Check the server and the network; the run goes on where it stopped.",
            )
        return StatementError(f"{server_text[0].upper()}{server_text[1:]}: {text}.")


def written(sql: str, parameters: Sequence[object]) -> tuple[str, list[object]]:
    """A statement with its bytes and whole numbers as constants, and the parameters that are left.

    What a FOR BIT DATA column is compared with has to be FOR BIT DATA itself, which a constant is and a bound value is
    not, and an index is used for both. Question marks in texts, names and comments are not parameters.

    Raises:
        CaptureError: there are not as many parameters as markers.
    """
    parts, left, given = _PARTS.split(sql), list(parameters), []
    for number, part in enumerate(parts):
        if part != "?":
            continue
        if not left:
            raise CaptureError("A statement has more markers than parameters.", remedy="Report it with the statement.")
        value = left.pop(0)
        if isinstance(value, bytes):
            parts[number] = f"X'{value.hex().upper()}'"
        elif isinstance(value, int) and not isinstance(value, bool):
            parts[number] = str(value)
        else:
            given.append(value)
    if left:
        raise CaptureError("A statement has fewer markers than parameters.", remedy="Report it with the statement.")
    return "".join(parts), given


def _batches(cursor: Any, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(size):
        columns = [_column(values) for values in zip(*rows, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _column(values: Sequence[Any]) -> pa.Array:
    """Arrow of a fetched column; its type follows from the values, because the driver's own word for it is vague."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, memoryview | bytes | bytearray):
        return pa.array([None if value is None else bytes(value) for value in values], pa.binary())
    if isinstance(first, str):
        return pa.array(values, pa.string())
    return pa.array(values)


def _code(text: str) -> int | None:
    match = _CODE.search(text)
    return int(match[1]) if match else None
