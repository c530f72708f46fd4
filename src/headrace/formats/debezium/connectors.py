"""The connectors, as data: which facts the source block of each has, and what its topics are made of.

A row's `source['connector']` says which connector wrote it, in Debezium's text form. A row of another connector, or of
none, has the block that all connectors share, and nothing is invented for it.

Source: the Oracle and Db2 connectors' documented events of generation 2.3; recorded events of the SQL Server connector
1.7.2 and 3.6.1 and of the MariaDB and PostgreSQL connectors 3.0.8; for Oracle's later facts Debezium's changes DBZ-6960
(redo_sql, 2.6), DBZ-4332 (row_id, 2.7) and DBZ-8740 (start and commit, 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.formats.debezium.connect_fields import plain

OLD, SECOND, THIRD, NEWEST = 1, 2, 3, 4
"""Generations, in order: shapes 1.7, 2.3, 3.0 and 3."""


@dataclass(frozen=True)
class Fact:
    """One fact of a source block.

    Args:
        name: its field, and its name in a row's `source`.
        kind: Connect's type: `string`, `int64` or `int32`.
        required: the JSON that stands where the row does not say it, for a field that may not be null: what Debezium
            itself writes where it does not know.
        since: the first generation that has it.
    """

    name: str
    kind: str = "string"
    required: str | None = None
    since: int = OLD

    def schema(self) -> dict[str, Any]:
        """Its field in the Connect schema."""
        return plain(self.kind, self.name, optional=self.required is None)


@dataclass(frozen=True)
class Connector:
    """One of Debezium's connectors.

    Args:
        name: its name in `source.connector`; empty for all that are not known here.
        facts: what its block has after the fields that all share.
        schema: whether its tables have schemas; None where that depends on the table.
        database_in_topic: whether topics carry the database, in the generations that can.
        version: its release in generation 2.3, where its documented events name another than the generation's.
        flag: whether generation 2.3 writes `snapshot` as true or false, and a transaction only where there is one.
    """

    name: str
    facts: tuple[Fact, ...] = ()
    schema: bool | None = True
    database_in_topic: bool = True
    version: str | None = None
    flag: bool = False

    @property
    def namespace(self) -> str:
        """The first part of the names of its schemas."""
        return f"io.debezium.connector.{self.name or 'common'}"


_LSN = (Fact("change_lsn"), Fact("commit_lsn"))
DOCUMENTED_ORACLE = (
    Fact("txId"),
    Fact("scn"),
    Fact("commit_scn"),
    Fact("rs_id"),
    Fact("ssn", "int64"),
    Fact("redo_thread", "int32"),
    Fact("user_name"),
)
"""Oracle's facts in the short block of its documented row events."""
_ORACLE = (
    *DOCUMENTED_ORACLE[:3],
    Fact("lcr_position"),
    *DOCUMENTED_ORACLE[3:],
    Fact("redo_sql", since=THIRD),
    Fact("row_id", since=THIRD),
    Fact("commit_ts_ms", "int64", since=NEWEST),
    Fact("start_scn", since=NEWEST),
    Fact("start_ts_ms", "int64", since=NEWEST),
    Fact("txSeq", "int64", since=NEWEST),
)
_BINLOG = (
    Fact("server_id", "int64", "0"),
    Fact("gtid"),
    Fact("file", required='""'),
    Fact("pos", "int64", "0"),
    Fact("row", "int32", "0"),
    Fact("thread", "int64"),
    Fact("query"),
)
OTHER = Connector("", schema=None)
SQLSERVER = Connector("sqlserver", (*_LSN, Fact("event_serial_no", "int64")))
ORACLE = Connector("oracle", _ORACLE, database_in_topic=False, version="2.3.4.Final")
DB2 = Connector("db2", _LSN, database_in_topic=False, version="2.3.7.Final", flag=True)
MYSQL = Connector("mysql", _BINLOG, schema=False)
MARIADB = Connector("mariadb", _BINLOG, schema=False)
POSTGRESQL = Connector(
    "postgresql",
    (Fact("txId", "int64"), Fact("lsn", "int64"), Fact("xmin", "int64")),
    database_in_topic=False,
)
CONNECTORS = (OTHER, SQLSERVER, ORACLE, DB2, MYSQL, MARIADB, POSTGRESQL)
