"""Change rows whose messages other products read, and what they must read of them.

The expectations are written by hand from the rows' meaning, in each reader's own words: Flink's `RowKind` and the text
of its Java values, Canal's `FlatMessage`. Where a reader can't tell what Headrace said (Flink knows no truncate), its
own error stands there.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from tests.formats.codec_rows import sent

from headrace.changes import Column, LogicalType, TableId, TableSchema, arrow_schema
from headrace.changes.texts import key_text

AT = dt.datetime(2024, 5, 1, 12, 0, 1, 500_000, tzinfo=dt.UTC)
CAPTURED = dt.datetime(2024, 5, 1, 12, 0, 2, 250_000, tzinfo=dt.UTC)
ODD = "中文 🎉 \" \\ / \n\t\x01 '"
Image = Mapping[str, str | None]
Read = list[Any]


@dataclass(frozen=True)
class Flink:
    """How Flink reads a case.

    Args:
        format: the name of its format.
        columns: the table as its SQL declares it.
        expected: for each message the rows, `(kind, values)`, or the name of Flink's error.
        metadata: metadata columns, behind the others.
        options: of the format.
    """

    format: str
    columns: str
    expected: Sequence[Sequence[tuple[str, Sequence[Any]]] | str]
    metadata: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> list[Read]:
        """What the reader prints, made of the expectation."""
        names = [*re.findall(r"`(\w+)`", self.columns), *self.metadata]
        return [
            [found]
            if isinstance(found, str)
            else [{"kind": kind, "row": dict(zip(names, values, strict=True))} for kind, values in found]
            for found in self.expected
        ]


@dataclass(frozen=True)
class Case:
    """Rows of one table and their messages.

    Args:
        name: of its folder in `tests/golden/readers`.
        format: the format that Headrace writes, and its options.
        schema: the table.
        rows: what was captured: operation, images, and columns of the change row that differ from the others.
        flink: how Flink reads the messages.
        canal: for each message what Canal's FlatMessage must hold; None where Canal does not know the format.
    """

    name: str
    format: str
    options: Mapping[str, Any]
    schema: TableSchema
    rows: Sequence[Mapping[str, Any]]
    flink: Sequence[Flink] = ()
    canal: Sequence[Mapping[str, Any]] | None = None


def changes(case: Case) -> pa.RecordBatch:
    """The case's change rows, its table's structure first."""
    id = case.schema.id
    common = {
        "table": (id.database or None, id.schema or None, id.name),
        "event_time": AT,
        "capture_time": CAPTURED,
        "schema_id": case.schema.fingerprint,
    }
    lines: list[dict[str, Any]] = [{**common, "op": "schema", "table_schema": case.schema.to_text(), "position": "0"}]
    for number, row in enumerate(case.rows, 1):
        image = row.get("after") or row.get("before") or {}
        key = {name: image.get(name) for name in case.schema.key} if image and case.schema.key else None
        line = {**common, "position": f"{number:04}", "key": key, **row}
        line["key_text"] = key_text(line["key"].values()) if line["key"] else None
        lines.append(line)
    return pa.RecordBatch.from_pylist([_arrow(line) for line in lines], schema=arrow_schema())


def _arrow(line: Mapping[str, Any]) -> dict[str, Any]:
    """A change row for Arrow: maps as pairs, structs by name, every column there."""
    found = {**dict.fromkeys(arrow_schema().names), **line}
    for name in ("key", "before", "after", "source"):
        if found[name] is not None:
            found[name] = list(found[name].items())
    found["table"] = dict(zip(("database", "schema", "name"), found["table"], strict=True))
    return found


def encoded(case: Case) -> list[dict[str, Any]]:
    """The case's messages as they are recorded: topic, key, value and headers, as text."""
    return [
        {
            "topic": message["topic"],
            "key": _text(message["key"]),
            "value": _text(message["value"]),
            "headers": [[h["key"], _text(h["value"])] for h in message["headers"] or []],
            "position": message["position"],
        }
        for message in sent(case.format, changes(case), [case.schema], **case.options)
    ]


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


def table(database: str, schema: str, name: str, key: Sequence[str], columns: Mapping[str, str]) -> TableSchema:
    """A table; each column's logical type and, behind a blank, its native type."""
    made = []
    for position, (column, kinds) in enumerate(columns.items(), 1):
        logical, _, native = kinds.partition(" ")
        made.append(Column(column, position, LogicalType.parse(logical), native, nullable=column not in key))
    return TableSchema(TableId(database, schema, name), tuple(made), tuple(key))


# --- Canal ----------------------------------------------------------------------------------------------------------

ORDERS = table(
    "shop", "", "orders", ("id",),
    {
        "id": "int64 bigint(20)", "qty": "uint64 bigint(20) unsigned", "price": "decimal(38,9) decimal(38,9)",
        "ratio": "float64 double", "small": "int8 tinyint(4)", "flag": "boolean boolean", "day": "date date",
        "clock": "time(0) time(0)", "at": "timestamp(6) datetime(6)", "name": "string varchar(100)",
        "state": "string enum('new','it''s, paid')", "doc": "json json", "bin": "bytes varbinary(16)",
    },
)  # fmt: skip
FIRST: Image = {
    "id": "9223372036854775807", "qty": "18446744073709551615", "price": "12345678901234567890123456789.120000000",
    "ratio": "0.1", "small": "-128", "flag": "true", "day": "9999-12-31", "clock": "23:59:59",
    "at": "1969-12-31 23:59:59.999999", "name": ODD, "state": "it's, paid", "doc": '{"a": 1.10, "b": [null]}',
    "bin": "AP+AQQ==",
}  # fmt: skip
EMPTY: Image = {**dict.fromkeys(FIRST), "id": "2"}
CHANGED: Image = {**EMPTY, "qty": "0", "name": "", "price": "-0.000000001"}
MOVED: Image = {**CHANGED, "id": "3"}

_BYTES = "\x00ÿ\x80A"
_CANAL_FIRST = {**FIRST, "flag": "1", "state": "2", "bin": _BYTES}
_MYSQL = {c.name: c.native_type for c in ORDERS.columns}
_SQL = {
    "id": -5, "qty": 3, "price": 3, "ratio": 8, "small": -6, "flag": -6, "day": 91, "clock": 92, "at": 93, "name": 12,
    "state": 4, "doc": 12, "bin": 2004,
}  # fmt: skip
_CANAL = {
    "database": "shop", "table": "orders", "isDdl": False, "sql": "", "pkNames": ["id"], "mysqlType": _MYSQL,
    "sqlType": _SQL, "es": 1714564801500, "ts": 1714564802250, "id": 77, "gtid": "", "old": None,
}  # fmt: skip
_CANAL_DDL = {**_CANAL, "isDdl": True, "pkNames": None, "mysqlType": None, "sqlType": None, "data": None}
_CREATE = "CREATE TABLE `orders` (`id` bigint PRIMARY KEY)"
_FROM = {"source": {"id": "77"}}

CANAL_ROWS: Sequence[Mapping[str, Any]] = (
    {"op": "schema", "source": {"id": "77", "ddl": _CREATE}},
    {"op": "r", "after": FIRST, **_FROM},
    {"op": "c", "after": EMPTY, **_FROM},
    {"op": "u", "before": EMPTY, "after": CHANGED, **_FROM},
    {"op": "u", "before": CHANGED, "after": MOVED, **_FROM},
    {"op": "u", "before": {"id": "3", "name": ""}, "after": {"id": "3", "name": None}, **_FROM},
    {"op": "d", "before": FIRST, **_FROM},
    {"op": "t", **_FROM},
)

_FLINK_COLUMNS = (
    "`id` BIGINT, `qty` DECIMAL(20, 0), `price` DECIMAL(38, 9), `ratio` DOUBLE, `small` TINYINT, `flag` TINYINT, "
    "`day` DATE, `clock` TIME(0), `at` TIMESTAMP(6), `name` STRING, `state` STRING, `doc` STRING, `bin` {bin}"
)


def _flink_first(bin: str) -> list[Any]:
    return [
        "9223372036854775807", "18446744073709551615", "12345678901234567890123456789.120000000", "0.1", "-128", "1",
        "9999-12-31", "23:59:59", "1969-12-31T23:59:59.999999", ODD, "2", '{"a": 1.10, "b": [null]}', bin,
    ]  # fmt: skip


_FLINK_EMPTY = ["2", *[None] * 12]
_FLINK_CHANGED = ["2", "0", "-0.000000001", *[None] * 6, "", *[None] * 3]
_FLINK_MOVED = ["3", *_FLINK_CHANGED[1:]]
_FLINK_PART = ["3", *[None] * 8, "", *[None] * 3]
_FLINK_PART_NULL = ["3", *[None] * 12]


def _flink_canal(bin: str, kind: str, *, dts: bool = False) -> Flink:
    metadata = ["database", "table", "pk-names", "sql-type", "ingestion-timestamp"]
    own = [
        "shop",
        "orders",
        ["id"],
        {name: str(number) for name, number in sorted(_SQL.items())},
        "2024-05-01T12:00:02.250Z",
    ]

    def row(kind: str, values: list[Any]) -> tuple[str, list[Any]]:
        return kind, [*values, *own]

    unknown = "IOException"
    return Flink(
        "canal-json",
        _FLINK_COLUMNS.format(bin=kind),
        [
            # Flink passes over CREATE and refuses every other type that it does not know.
            unknown if dts else [],
            unknown if dts else [row("+I", _flink_first(bin))],
            [row("+I", _FLINK_EMPTY)],
            [row("-U", _FLINK_EMPTY), row("+U", _FLINK_CHANGED)],
            [row("-U", _FLINK_CHANGED), row("+U", _FLINK_MOVED)],
            [row("-U", _FLINK_PART), row("+U", _FLINK_PART_NULL)],
            [row("-D", _flink_first(bin))],
            unknown,
        ],
        metadata,
    )


def _canal_messages(first: Mapping[str, Any], *, dts: bool = False) -> list[dict[str, Any]]:
    def row(kind: str, data: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {**_CANAL, "type": kind, "data": [dict(data)], "old": None if old is None else [dict(old)]}

    # A short DDL message says nothing of transactions.
    ddl = {**_CANAL_DDL, "gtid": None if dts else ""}
    return [
        {**ddl, "type": "DDL" if dts else "CREATE", "sql": _CREATE},
        row("INIT" if dts else "INSERT", first),
        row("INSERT", EMPTY),
        row("UPDATE", CHANGED, EMPTY if dts else {"qty": None, "price": None, "name": None}),
        row("UPDATE", MOVED, CHANGED if dts else {"id": "2"}),
        row("UPDATE", {"id": "3", "name": None}, {"id": "3", "name": ""} if dts else {"name": ""}),
        row("DELETE", first),
        {**ddl, "type": "DDL" if dts else "TRUNCATE", "sql": "TRUNCATE TABLE `orders`"},
    ]


# --- Debezium -------------------------------------------------------------------------------------------------------

ACCOUNTS = table(
    "bank", "dbo", "accounts", ("id",),
    {
        "id": "int32 int", "balance": "decimal(38,4) decimal", "rate": "float64 float", "open": "boolean bit",
        "day": "date date", "at": "timestamp(3) datetime2", "name": "string nvarchar", "photo": "bytes varbinary",
    },
)  # fmt: skip
RICH: Image = {
    "id": "1", "balance": "1234567890123456789012345678901234.5000", "rate": "0.1", "open": "true", "day": "1969-12-31",
    "at": "2018-07-13 11:23:45.340", "name": ODD, "photo": "AP+AQQ==",
}  # fmt: skip
POOR: Image = {**dict.fromkeys(RICH), "id": "1"}
_LSN = {"connector": "sqlserver", "change_lsn": "00000025:00000d98:0002", "commit_lsn": "00000025:00000d98:0003"}
_SQLSERVER = {"source": {**_LSN, "event_serial_no": "1"}}

DEBEZIUM_ROWS: Sequence[Mapping[str, Any]] = (
    {
        "op": "r",
        "after": RICH,
        "snapshot": "last",
        "source": {"connector": "sqlserver", "commit_lsn": _LSN["commit_lsn"]},
    },
    {"op": "c", "after": POOR, **_SQLSERVER},
    {"op": "u", "before": POOR, "after": RICH, **_SQLSERVER},
    {"op": "d", "before": RICH, **_SQLSERVER},
    {"op": "t", **_SQLSERVER},
)
_FLINK_RICH = [
    "1", "1234567890123456789012345678901234.5000", "0.1", "true", "-1", "1531481025340", ODD, "AP+AQQ==",
]  # fmt: skip
_FLINK_POOR = ["1", *[None] * 7]


def _flink_debezium(*, schema: bool) -> Flink:
    metadata = ["source.database", "source.schema", "source.table", "source.timestamp", "ingestion-timestamp"]
    own = ["bank", "dbo", "accounts", "2024-05-01T12:00:01.500Z", "2024-05-01T12:00:02.250Z"]

    def row(kind: str, values: list[Any]) -> tuple[str, list[Any]]:
        return kind, [*values, *own]

    return Flink(
        "debezium-json",
        "`id` INT, `balance` DECIMAL(38, 4), `rate` DOUBLE, `open` BOOLEAN, `day` INT, `at` BIGINT, `name` STRING, "
        "`photo` BYTES",
        [
            [row("+I", _FLINK_RICH)],
            [row("+I", _FLINK_POOR)],
            [row("-U", _FLINK_POOR), row("+U", _FLINK_RICH)],
            [row("-D", _FLINK_RICH)],
            # The tombstone.
            [],
            "IOException",
        ],
        metadata,
        {"schema-include": str(schema).lower()},
    )


_DEBEZIUM = {
    "topic_prefix": "srv", "decimal_handling_mode": "string", "skipped_operations": "none",
    "include_schema_changes": False,
}  # fmt: skip

_ORACLE = {
    "source": {
        "connector": "oracle", "scn": "42", "commit_scn": "43", "txId": "0a00", "redo_thread": "1", "user_name": "APP",
        "rs_id": "0x0001", "ssn": "0",
    }
}  # fmt: skip
_DB2 = {"source": {"connector": "db2", "change_lsn": "00000000:00000001", "commit_lsn": "00000000:00000002"}}


# --- Maxwell, GoldenGate --------------------------------------------------------------------------------------------

_PLAIN_COLUMNS = _FLINK_COLUMNS.replace("`flag` TINYINT", "`flag` BOOLEAN").format(bin="BYTES")
_PLAIN_FIRST = [
    "9223372036854775807", "18446744073709551615", "12345678901234567890123456789.120000000", "0.1", "-128", "true",
    "9999-12-31", "23:59:59", "1969-12-31T23:59:59.999999", ODD, "it's, paid", '{"a": 1.10, "b": [null]}', "AP+AQQ==",
]  # fmt: skip


def _flink_plain(format: str, metadata: Mapping[str, Any], first: str | None, truncate: bool) -> Flink:
    def row(kind: str, values: list[Any]) -> tuple[str, list[Any]]:
        return kind, [*values, *metadata.values()]

    expected: list[Any] = [
        first or [row("+I", _PLAIN_FIRST)],
        [row("+I", _FLINK_EMPTY)],
        [row("-U", _FLINK_EMPTY), row("+U", _FLINK_CHANGED)],
        [row("-U", _FLINK_CHANGED), row("+U", _FLINK_MOVED)],
        [row("-U", _FLINK_PART), row("+U", _FLINK_PART_NULL)],
        [row("-D", _PLAIN_FIRST)],
    ]
    return Flink(format, _PLAIN_COLUMNS, [*expected, *(["IOException"] if truncate else [])], list(metadata))


_MAXWELL = {
    "database": "shop", "table": "orders", "primary-key-columns": ["id"],
    "ingestion-timestamp": "2024-05-01T12:00:01Z",
}  # fmt: skip
_OGG = {
    "table": "shop.orders", "primary-keys": ["id"], "ingestion-timestamp": "2024-05-01T12:00:02.250Z",
    "event-timestamp": "2024-05-01T12:00:01.500Z",
}  # fmt: skip

CASES = (
    Case(
        # Flink does not know Maxwell's bootstrap, which is what snapshot rows become.
        "maxwell", "maxwell_json", {}, ORDERS, CANAL_ROWS[1:],
        (_flink_plain("maxwell-json", _MAXWELL, "IOException", False),),
    ),
    Case(
        "ogg", "ogg_json", {}, ORDERS, CANAL_ROWS[1:], (_flink_plain("ogg-json", _OGG, None, True),),
    ),
    Case(
        "debezium_2.3_oracle", "debezium_json", {**_DEBEZIUM, "shape": "2.3"}, ACCOUNTS,
        [{**row, **_ORACLE} for row in DEBEZIUM_ROWS], (_flink_debezium(schema=False),),
    ),
    Case(
        "debezium_2.3_db2", "debezium_json", {**_DEBEZIUM, "shape": "2.3"}, ACCOUNTS,
        [{**row, **_DB2} for row in DEBEZIUM_ROWS], (_flink_debezium(schema=False),),
    ),
    Case(
        "canal_native", "canal_json", {}, ORDERS, CANAL_ROWS,
        (_flink_canal(_BYTES, "STRING"),), _canal_messages(_CANAL_FIRST),
    ),
    Case(
        "canal_native_base64", "canal_json", {"bytes": "base64"}, ORDERS, CANAL_ROWS,
        (_flink_canal("AP+AQQ==", "BYTES"),), _canal_messages({**_CANAL_FIRST, "bin": "AP+AQQ=="}),
    ),
    Case(
        "canal_dts", "canal_json", {"flavour": "dts"}, ORDERS, CANAL_ROWS,
        (_flink_canal(_BYTES, "STRING", dts=True),), _canal_messages(_CANAL_FIRST, dts=True),
    ),
    Case(
        "debezium_3", "debezium_json", _DEBEZIUM, ACCOUNTS, DEBEZIUM_ROWS, (_flink_debezium(schema=False),),
    ),
    Case(
        "debezium_3_schemas", "debezium_json", {**_DEBEZIUM, "schemas_enable": True}, ACCOUNTS, DEBEZIUM_ROWS,
        (_flink_debezium(schema=True),),
    ),
    Case(
        "debezium_1.7_schemas", "debezium_json", {**_DEBEZIUM, "schemas_enable": True, "shape": "1.7"}, ACCOUNTS,
        DEBEZIUM_ROWS, (_flink_debezium(schema=True),),
    ),
)  # fmt: skip


def dumped(lines: Sequence[Any]) -> str:
    """Lines of JSON, as the golden files hold them."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
