"""Debezium's connectors and generations, as data: which facts each source block has, and what topics are made of.

A row's `source['connector']` says which connector wrote it, in Debezium's text form. A row of another connector, or of
none, has the block that all connectors share, and nothing is invented for it.

Source: the Oracle and Db2 connectors' documented events of generation 2.3; recorded events of the SQL Server connector
1.7.2 and 3.6.1 and of the MariaDB and PostgreSQL connectors 3.0.8; for Oracle's later facts Debezium's changes DBZ-6960
(redo_sql, 2.6), DBZ-4332 (row_id, 2.7) and DBZ-8740 (start and commit, 3.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from headrace.changes import TableId
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


_INVALID_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True)
class EventShape:
    """What differs between the generations of Debezium events; where nothing is said, as the newest has it.

    Args:
        name: `1.7`, `2.3`, `3.0` or `3`.
        generation: its index among them, from 1.
        connector_version: what stands in `source.version` unless set otherwise.
        database_in_topic: whether topics and schema names carry the database, where the connector's can.
        envelope_version: the version of the envelope's schema, if it has one.
        source_version: the version of the source block's schema, if it has one.
        transaction_name: the name of the transaction block's schema, if it has one.
        transaction_first: whether the transaction block comes before `op` (else it is last).
        fine_times: whether `ts_us` and `ts_ns` stand beside `ts_ms`.
        snapshot_marks: the values that the schema allows for `source.snapshot`.
        placeholder: whether a column that a change does not carry is written as a placeholder (else null).
        schema_names: `avro` or `none`, how schema names are adjusted unless set otherwise.
        metadata_version: the version of the schemas of schema changes, transactions and heartbeats, if they have one.
        detailed: whether schema changes tell comments, defaults and identity, and have, as transactions, a `ts_ms`.
        column_names: whether a column's propagated type comes with its name.
        time_modes: the time precision modes that this generation has.
    """

    name: str
    generation: int
    connector_version: str
    database_in_topic: bool = True
    envelope_version: int | None = 2
    source_version: int | None = 1
    transaction_name: str | None = "event.block"
    transaction_first: bool = True
    fine_times: bool = True
    snapshot_marks: str = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    placeholder: bool = True
    schema_names: str = "none"
    metadata_version: int | None = 1
    detailed: bool = True
    column_names: bool = True
    time_modes: tuple[str, ...] = (
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds",
    )  # fmt: skip

    def topic(self, prefix: str, table: TableId, delimiter: str = ".", *, database: bool = True) -> str:
        """The topic of a table's events; characters that Kafka does not allow become `_`.

        Args:
            database: whether the connector is one whose topics carry the database.
        """
        parts = (prefix, table.database if self.database_in_topic and database else "", table.schema, table.name)
        return valid_topic(delimiter.join(part for part in parts if part))


def valid_topic(name: str) -> str:
    """A topic name in which `_` stands for every character that Kafka does not allow."""
    return _INVALID_TOPIC.sub("_", name)


_NEWEST = EventShape("3", NEWEST, "3.6.1.Final")
# The first releases of generation 3: no version on the source block, no context headers, no placeholder.
_THIRD = replace(
    _NEWEST, name="3.0", generation=THIRD, connector_version="3.0.8.Final", source_version=None, placeholder=False
)
_SECOND = replace(
    _THIRD,
    name="2.3",
    generation=SECOND,
    connector_version="2.3.4.Final",
    envelope_version=None,
    transaction_first=False,
    fine_times=False,
    snapshot_marks="true,last,false,incremental",
    placeholder=True,
    schema_names="avro",
    time_modes=("adaptive", "adaptive_time_microseconds", "connect"),
)
_OLD = replace(
    _SECOND,
    name="1.7",
    generation=OLD,
    connector_version="1.7.2.Final",
    database_in_topic=False,
    transaction_name=None,
    snapshot_marks="true,last,false",
    placeholder=False,
    metadata_version=None,
    detailed=False,
    column_names=False,
)
SHAPES = {shape.name: shape for shape in (_OLD, _SECOND, _THIRD, _NEWEST)}
