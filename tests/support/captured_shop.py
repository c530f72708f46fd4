"""The emulated servers as the capture contract needs them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from headrace.testing.captured_database import CapturedDatabase, Run
from headrace.testing.sources import Row


class SqlServerDatabase(CapturedDatabase):
    """SQL Server, emulated."""

    source, schema = "sqlserver", "dbo"

    def __init__(self, folder: Any) -> None:
        from headrace_emulators.sqlserver import EmulatedServer

        self.emulated = EmulatedServer(folder).create_database("shop")

    def close(self) -> None:
        self.emulated.close()

    @property
    def options(self) -> dict[str, str]:
        return {"driver": "emulator", "capture_timeout_seconds": "5", **self.emulated.settings}

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.emulated.execute(sql, parameters)

    def transaction(self) -> AbstractContextManager[Any]:
        return self.emulated.transaction()

    def enable(self, table: str) -> None:
        self.execute(
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = NULL"
        )

    def disable(self, table: str) -> None:
        self.execute(
            "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', "
            f"@source_name = N'{table}', @capture_instance = N'dbo_{table}'"
        )

    def capture(self) -> None:
        self.emulated.capture()

    def clean(self) -> None:
        self.emulated.cleanup()

    def capturing(self) -> AbstractContextManager[Any]:
        return self.emulated.capture_job(poll=0.05, idle=0.1)


class Db2Database(CapturedDatabase):
    """Db2, emulated."""

    source, schema, capitals = "db2", "SHOP", True

    def __init__(self, folder: Any, **settings: Any) -> None:
        from headrace_emulators.db2 import EmulatedDb2

        self.emulated = EmulatedDb2(folder).create_database("shop", **settings)

    def close(self) -> None:
        self.emulated.close()

    @property
    def options(self) -> dict[str, str]:
        settings = self.emulated.settings
        return {"driver": "db2-emulator", "capture_timeout_seconds": "5", "server_timezone": "UTC", **settings}

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.emulated.execute(sql, parameters)

    def transaction(self) -> AbstractContextManager[Any]:
        return self.emulated.transaction()

    def enable(self, table: str) -> None:
        self.emulated.register(self.schema, table.upper())

    def disable(self, table: str) -> None:
        self.emulated.deregister(self.schema, table.upper())

    def capture(self) -> None:
        self.emulated.capture()

    def clean(self) -> None:
        self.emulated.prune()

    def capturing(self) -> AbstractContextManager[Any]:
        return self.emulated.capture_program(poll=0.05)


class Db2WithImages(Db2Database):
    """The same, with updates captured as one row that holds the values before in columns of their own."""

    def enable(self, table: str) -> None:
        self.emulated.register(self.schema, table.upper(), split_updates=False, before_prefix="X")


class OracleDatabase(CapturedDatabase):
    """Oracle, emulated. What is captured are the tables that log all their columns."""

    source, schema, capitals = "oracle", "SHOP", True
    chunk_point, chunks_are_moments = "source.oracle.upper", True
    small_slices: Row = {"rows_per_slice": 4}  # noqa: RUF012
    _TYPES = (
        (r"\bvarchar\(", "VARCHAR2("), (r"\bvarbinary\(", "RAW("), (r"\bdecimal\(", "NUMBER("),
        (r"\bbigint\b", "NUMBER(19)"), (r"\bint\b", "NUMBER(9)"), (r"\breal\b", "BINARY_FLOAT"),
    )  # fmt: skip

    def __init__(self, folder: Any) -> None:
        from headrace_emulators.oracle import EmulatedOracle

        self.emulated = EmulatedOracle(folder)
        self._folder = folder

    def close(self) -> None:
        self.emulated.close()

    @property
    def options(self) -> dict[str, str]:
        return {"staging_location": str(self._folder / "staging"), "user": "C##MINER", **self.emulated.settings}

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with self.transaction() as cursor:
            cursor.execute(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.emulated.connect() as connection:
            yield _Numbered(connection)
            connection.commit()

    def create(self, table: str, columns: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        for pattern, kind in self._TYPES:
            columns = re.sub(pattern, kind, columns)
        super().create(table, columns, rows)

    def enable(self, table: str) -> None:
        self.execute(f"ALTER TABLE {self.schema}.{table} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")

    def disable(self, table: str) -> None:
        self.execute(f"ALTER TABLE {self.schema}.{table} DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS")

    def capture(self) -> None:
        """A change is in the log when it is committed."""

    def clean(self) -> None:
        self.emulated.switch_log()
        self.emulated.delete_archived()

    def clean_delivered(self, run: Run) -> None:
        """A log is read to its end when something is read of the log after it."""
        self.emulated.switch_log()
        run.all()
        self.emulated.delete_archived()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        yield


class _Numbered:
    """A cursor that takes question marks for parameters."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        numbers = itertools.count()
        text = re.sub(r"\?", lambda _: f":p{next(numbers)}", sql)
        self._connection.execute(text, **{f"p{n}": value for n, value in enumerate(parameters)})


@contextmanager
def closing(database: Any) -> Iterator[Any]:
    """A database that is closed at the end."""
    try:
        yield database
    finally:
        database.emulated.close()
