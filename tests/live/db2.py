"""A real Db2 as the capture contract steers it: the setup's procedures, and waiting for its Capture program.

Nobody of this project has run it yet (docs/live.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.testing.captured_database import CapturedDatabase
from headrace.testing.waiting import until

URL = "HEADRACE_DB2_URL"
EXAMPLE = "db2://db2inst1:<password>@localhost:50000/testdb"
SCHEMA = "HEADRACE_SCENARIOS"
"""All tables of the scenarios are in it; they are dropped before and after each."""
_DEADLINE_SECONDS = 120.0


def settings_from(environment: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """What a driver needs to reach the database that the environment names; null when it names none.

    Raises:
        ValueError: it names something else.
    """
    text = environment.get(URL, "").strip()
    if not text:
        return None
    url = urlsplit(text)
    if url.scheme != "db2" or not url.hostname or not url.path.strip("/"):
        raise ValueError(f"{URL} has the form {EXAMPLE}")
    return {
        "driver": "ibm-db",
        "hostname": url.hostname,
        "port": str(url.port or ""),
        "database": url.path.strip("/"),
        "user": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        **dict(parse_qsl(url.query)),
    }


class LiveDb2(CapturedDatabase):
    """A database that is set up for SQL Replication, with asncap running."""

    source, schema = "db2", SCHEMA

    def __init__(self, settings: Mapping[str, str]) -> None:
        from headrace import registry

        self._settings = dict(settings)
        self._connection = registry.find("driver", settings["driver"])(settings)
        self.emulated = self
        self._drop()

    @property
    def options(self) -> dict[str, str]:
        return {**self._settings, "tables": f"{SCHEMA}.*"}

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, tuple(parameters))
        finally:
            cursor.close()

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        self._connection.set_autocommit(False)
        cursor = self._connection.cursor()
        try:
            yield cursor
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            cursor.close()
            self._connection.set_autocommit(True)

    def transaction(self) -> AbstractContextManager[Any]:
        return self._transaction()

    def enable(self, table: str) -> None:
        self.execute(f"CALL ASNCDC.ADDTABLE('{SCHEMA}', '{table.upper()}')")
        self.execute(
            "UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' "
            f"WHERE SOURCE_OWNER = '{SCHEMA}' AND SOURCE_TABLE = '{table.upper()}'"
        )
        self._service("reinit")
        self.capture()

    def disable(self, table: str) -> None:
        self.execute(f"CALL ASNCDC.REMOVETABLE('{SCHEMA}', '{table.upper()}')")
        self._service("reinit")

    def _service(self, command: str) -> None:
        self._rows(f"VALUES ASNCDC.ASNCDCSERVICES('{command}', 'asncdc')")

    def capture(self) -> None:
        """Wait until the Capture program has read the log beyond now."""
        [(now,)] = self._rows("SELECT CURRENT TIMESTAMP FROM SYSIBM.SYSDUMMY1")

        def passed() -> bool:
            [(read,)] = self._rows("SELECT SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'")
            return read is not None and bool(read > now)

        until(passed, f"the Capture program passes {now}", _DEADLINE_SECONDS)

    def clean(self) -> None:
        self._service("prune")

    def capturing(self) -> AbstractContextManager[Any]:
        # It captures by itself.
        return nullcontext()

    def close(self) -> None:
        self._drop()
        self._connection.close()

    def _drop(self) -> None:
        registered = f"SELECT SOURCE_TABLE FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = '{SCHEMA}'"
        for (table,) in self._rows(registered):
            self.disable(table)
        for (table,) in self._rows(f"SELECT TABNAME FROM SYSCAT.TABLES WHERE TABSCHEMA = '{SCHEMA}' AND TYPE = 'T'"):
            self.execute(f'DROP TABLE {SCHEMA}."{table}"')
