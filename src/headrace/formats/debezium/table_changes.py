"""The tables of Debezium's schema change messages, as table schemas.

Source: recorded events of the MariaDB connector 3.0.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.types import MAX_DECIMAL_PRECISION

_JDBC_TYPES = {
    -7: "bit", -5: "bigint", -3: "varbinary", -2: "binary", 1: "char enum set", 3: "decimal", 4: "mediumint int year",
    5: "tinyint smallint", 6: "float", 8: "double", 12: "varchar tinytext text mediumtext longtext", 91: "date",
    92: "time", 93: "datetime", 2004: "tinyblob blob mediumblob longblob", 2014: "timestamp",
}  # fmt: skip
_JDBC_TYPE = {word: number for number, words in _JDBC_TYPES.items() for word in words.split()}
_OTHER = 1111
_SIZE = re.compile(r"\s*\([^)]*\)")
_QUOTED_TEXT = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)

# The least length that drivers report of a type that may hold gigabytes.
_LARGE = 0x3FFFFFFF
_PARENTHESES = re.compile(r"\s*\([^)]*\)")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_KINDS = {
    "boolean": "boolean bool",
    "int16": "smallint int2 tinyint year2",
    "int32": "int integer int4 mediumint year",
    "int64": "bigint int8",
    "float32": "real float4 binary_float",
    "float64": "double float8 binary_double",
    "date": "date",
    "uuid": "uniqueidentifier uuid",
    "xml": "xml xmltype sys.xmltype",
    "json": "json jsonb",
    "bytes": "binary varbinary image rowversion hierarchyid blob tinyblob mediumblob longblob raw bytea",
    "nested": "geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection geography",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_UNSIGNED = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32", "int": "int64", "integer": "int64"}


def told_column(column: Mapping[str, Any], connector: str) -> dict[str, Any]:
    """A column's JSON, as its connector writes it.

    Args:
        column: as its table's JSON has it.
        connector: `mysql` or `mariadb`.
    """
    native = _SIZE.sub("", column["typeName"]).upper()
    if native == "JSON" and connector == "mariadb":
        # A JSON column is a longtext with a check.
        native = "LONGTEXT"
    word = native.partition(" ")[0].lower()
    length, scale, labels = column["length"], column["scale"], column["enumValues"]
    if word in ("time", "datetime", "timestamp"):
        length, scale = scale or None, None
    elif word in ("enum", "set"):
        # How many characters of one letter each and of commas a value has.
        length = 1 if word == "enum" else max(2 * len(labels or ()) - 1, 0)
    elif word == "year":
        length = 4
    quoted_labels = None if labels is None else ["'" + label.replace("'", "''") + "'" for label in labels]
    default = column["defaultValueExpression"]
    quoted = None if default is None else _QUOTED_TEXT.fullmatch(default)
    return {
        **column,
        "jdbcType": _JDBC_TYPE.get(word, _OTHER),
        "nativeType": None,
        "typeName": native,
        "typeExpression": native,
        "length": length,
        "scale": scale,
        "generated": column["autoIncremented"],
        "defaultValueExpression": default if quoted is None else quoted[1].replace("''", "'"),
        "enumValues": quoted_labels,
    }


def table_changes(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The changes of a schema change message's payload, one line per table; none for a statement about no table.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is no such payload.
    """
    source = message.get("source") or {}
    connector = str(source.get("connector") or "")
    changes = []
    for change in message.get("tableChanges") or ():
        table = change.get("table")
        parts = [part.replace('""', '"') for part in _QUOTED.findall(change.get("id") or "")]
        id = _table_id(message, source, parts)
        schema = None if table is None or table.get("columns") is None else _table_schema(id, table, connector)
        changes.append(
            {
                "change": change.get("type"),
                "database": id.database,
                "schema": id.schema,
                "name": id.name,
                "id": schema.fingerprint if schema else None,
                "text": schema.to_text() if schema else None,
            }
        )
    return changes


def _table_id(message: Mapping[str, Any], source: Mapping[str, Any], parts: list[str]) -> TableId:
    database = message.get("databaseName") or source.get("db") or ""
    schema = message.get("schemaName") or source.get("schema") or ""
    name = parts[-1] if parts else source.get("table") or ""
    if len(parts) >= 3:
        database, schema = parts[-3], parts[-2]
    elif len(parts) == 2 and not schema:
        database = parts[0]
    return TableId(str(database), str(schema), str(name))


def _table_schema(id: TableId, table: Mapping[str, Any], connector: str) -> TableSchema:
    columns = []
    for number, column in enumerate(table["columns"], 1):
        native = str(column.get("typeName") or "").lower()
        length, scale = column.get("length"), column.get("scale")
        columns.append(
            Column(
                name=column["name"],
                position=column.get("position") or number,
                logical=logical_type(native, length, scale, connector),
                native_type=native,
                length=length,
                scale=scale,
                nullable=column.get("optional") is not False,
                default_expression=column.get("defaultValueExpression"),
                identity=bool(column.get("autoIncremented")),
                generated=bool(column.get("generated")),
                jdbc_type=column.get("jdbcType"),
                large=length is not None and length >= _LARGE,
                comment=column.get("comment"),
            )
        )
    names = {column.name for column in columns}
    key = tuple(name for name in table.get("primaryKeyColumnNames") or () if name in names)
    return TableSchema(id, tuple(columns), key, comment=table.get("comment"))


def logical_type(native: str, length: int | None, scale: int | None, connector: str) -> LogicalType:
    """What the values of a column mean, by its type as the connector names it (`int identity`, `timestamp(6)`)."""
    name = _PARENTHESES.sub("", native).replace(" identity", "").strip()
    unsigned = " unsigned" in f" {name}"
    name = name.replace(" unsigned", "").replace(" zerofill", "").replace(" signed", "")
    mysql = connector in ("mysql", "mariadb")
    if unsigned and name == "bigint":
        return LogicalType("uint64")
    if unsigned and name in _UNSIGNED:
        return LogicalType(_UNSIGNED[name])
    if name in ("decimal", "numeric", "dec", "fixed", "money", "smallmoney", "number"):
        return _decimal(name, length, scale)
    if name == "bit":
        return LogicalType("bytes" if mysql and length is not None and length > 1 else "boolean")
    if name == "float":
        return LogicalType("float32" if mysql else "decimal" if connector == "oracle" else "float64")
    moment = _moment(name, native, length, scale, connector)
    if moment is not None:
        return moment
    if name.startswith("interval"):
        return LogicalType("interval")
    if name == "double precision":
        return LogicalType("float64")
    return LogicalType(_KIND_OF.get(name, "string"))


def _decimal(name: str, length: int | None, scale: int | None) -> LogicalType:
    if length is None or (name == "number" and scale is None):
        return LogicalType("decimal")
    if scale is not None and (scale < 0 or scale > length):
        return LogicalType("decimal")
    return LogicalType("decimal", min(length, 2 * MAX_DECIMAL_PRECISION), scale or 0)


def _moment(name: str, native: str, length: int | None, scale: int | None, connector: str) -> LogicalType | None:
    stated = re.search(r"\((\d)\)", native)
    digits = int(stated[1]) if stated else None
    if connector in ("mysql", "mariadb"):
        kinds = {"datetime": "timestamp", "timestamp": "zoned_timestamp", "time": "time"}
        return LogicalType(kinds[name], _digits(digits, length, 0)) if name in kinds else None
    if name == "datetime":
        return LogicalType("timestamp", 3)
    if name == "smalldatetime":
        return LogicalType("timestamp", 0)
    if name == "datetime2":
        return LogicalType("timestamp", _digits(digits, scale, 7))
    if name in ("datetimeoffset", "timestamp with time zone", "timestamp with local time zone", "timestamptz"):
        default = 7 if name == "datetimeoffset" else 6
        return LogicalType("zoned_timestamp", _digits(digits, scale, default))
    if name == "time":
        return LogicalType("time", _digits(digits, scale, 7 if connector == "sqlserver" else 0))
    if connector == "oracle" and name == "date":
        return LogicalType("timestamp", 0)
    if name == "timestamp":
        # SQL Server's is a row version.
        moment = LogicalType("timestamp", _digits(digits, scale, 6))
        return LogicalType("bytes") if connector in ("sqlserver", "") else moment
    return None


def _digits(stated: int | None, of_column: int | None, default: int) -> int:
    for digits in (stated, of_column):
        if digits is not None and 0 <= digits <= 9:
            return digits
    return default
