"""Recorded Debezium events, and the change rows that a source would have made of the same changes.

The way back from wire values to canonical text is written here in plain Python, by the Connect schema that stands in
each event, so that it shares nothing with the code under test.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from codec_rows import arrow_format, change_batch, changes_of_messages
from pyspark.sql import Row

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import spark_schema
from headrace.changes.texts import key_text
from headrace.formats.codec import Facts, run_codec
from headrace.formats.debezium.format import DebeziumJson
from headrace.spark.local_rows import local_rows

FOLDER = Path(__file__).parents[1] / "golden" / "debezium_json"
EPOCH = dt.datetime(1970, 1, 1)
_ENTRIES = "array<struct<key:string,value:string>>"
PLACEHOLDERS = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")

DEFAULTS = {
    "c_bit": "true", "c_tinyint": "255", "c_smallint": "-1", "c_int": "42", "c_bigint": "9000000000", "c_real": "1.5",
    "c_float": "3.25", "c_decimal": "1.50000", "c_numeric": "7.00", "c_money": "1.2500", "c_smallmoney": "2.5000",
    "c_char": "ab", "c_varchar": "it's", "c_nvarchar": "日本", "c_vmax": "d", "c_binary": "AQIDBA==",
    "c_varbinary": "Cg==", "c_date": "2019-02-03", "c_time0": "01:02:03", "c_time3": "01:02:03.123",
    "c_time6": "01:02:03.123456", "c_time7": "01:02:03.1234570", "c_datetime": "2019-02-03 01:02:03.123",
    "c_smalldatetime": "2019-02-03 01:02:00", "c_dt2_0": "2019-02-03 01:02:03", "c_dt2_3": "2019-02-03 01:02:03.123",
    "c_dt2_6": "2019-02-03 01:02:03.123456", "c_dt2_7": "2019-02-03 01:02:03.1234570",
    "c_dto7": "2019-02-03T01:02:03.1234570+09:00", "nn_int": "7", "nn_bit": "false", "nn_varchar": "x",
    "nn_decimal": "1.500", "nn_money": "0.0000", "nn_date": "2000-01-01", "nn_dt2": "2000-01-01 00:00:00.000",
    "nn_float": "0.0", "qty": "1",
}  # fmt: skip
"""Constant defaults of the recorded tables as canonical text; the recorded server kept 6 fraction digits."""

_FIXED = {
    "bit": "boolean", "tinyint": "int16", "smallint": "int16", "int": "int32", "int identity": "int32",
    "bigint": "int64", "real": "float32", "float": "float64", "date": "date", "datetime": "timestamp(3)",
    "smalldatetime": "timestamp(0)", "uniqueidentifier": "uuid", "xml": "xml", "binary": "bytes",
    "varbinary": "bytes", "image": "bytes",
}  # fmt: skip
_FRACTION = {"time": "time", "datetime2": "timestamp", "datetimeoffset": "zoned_timestamp"}


def events(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def logical_of(column: Mapping[str, Any]) -> LogicalType:
    native, scale = column["typeName"], column["scale"] or 0
    if native in ("decimal", "numeric", "money", "smallmoney"):
        return LogicalType("decimal", column["length"], scale)
    if native in _FRACTION:
        return LogicalType(_FRACTION[native], scale)
    return LogicalType.parse(_FIXED.get(native, "string"))


def tables() -> dict[tuple[str, str], TableSchema]:
    """The recorded structures by table and first/second."""
    found = {}
    for change in json.loads((FOLDER / "tables.json").read_text(encoding="utf-8")):
        id = TableId(*(part.strip('"') for part in change["id"].split('"."')))
        columns = tuple(
            Column(
                c["name"], c["position"], logical_of(c), c["typeName"], c["length"], c["scale"], c["optional"],
                DEFAULTS.get(c["name"]), c["defaultValueExpression"], c["autoIncremented"], jdbc_type=c["jdbcType"],
            )
            for c in change["table"]["columns"]
        )  # fmt: skip
        found[id.name, change["type"]] = TableSchema(id, columns, tuple(change["table"]["primaryKeyColumnNames"]))
    return found


def canonical(value: Any, logical: LogicalType) -> str | None:
    """Canonical text of a recorded wire value."""
    if value is None:
        return None
    kind, digits = logical.kind, logical.digits
    if kind == "boolean":
        return str(value).lower()
    if kind == "decimal":
        number = int.from_bytes(base64.b64decode(value), "big", signed=True)
        scale = logical.scale or 0
        digits = str(abs(number)).rjust(scale + 1, "0")
        return ("-" if number < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)
    if kind == "date":
        return dt.date.fromordinal(value + EPOCH.toordinal()).isoformat()
    if kind in ("time", "timestamp"):
        per_second = 10 ** (3 if digits <= 3 else 6 if digits <= 6 else 9)
        seconds, rest = divmod(value, per_second)
        moment = EPOCH + dt.timedelta(seconds=seconds)
        clock = f"{moment:%H:%M:%S}"
        if digits:
            clock += "." + str(rest).rjust(len(str(per_second)) - 1, "0").ljust(9, "0")[:digits]
        return clock if kind == "time" else f"{moment.year:04}-{moment:%m-%d} {clock}"
    if kind == "zoned_timestamp" and digits:
        head, sign, offset = value[:19], value[19:].lstrip(".0123456789")[0], value[19:].lstrip(".0123456789")[1:]
        fraction = value[19 : len(value) - len(offset) - 1].lstrip(".")
        return f"{head}.{fraction.ljust(digits, '0')}{sign}{offset}"
    return str(value)


def image(row: Mapping[str, Any] | None, schema: TableSchema, *, nulls: bool = False) -> dict[str, str | None] | None:
    """A recorded row as an image: placeholders are absent; with `nulls`, what the converter filled in is NULL again."""
    if row is None:
        return None
    texts = {}
    for column in schema.columns:
        value = row[column.name]
        if value in PLACEHOLDERS:
            continue
        filled = nulls and column.nullable and column.default is not None
        texts[column.name] = None if filled else canonical(value, column.logical)
    return texts


def instant(microseconds: int | None) -> dt.datetime | None:
    if microseconds is None:
        return None
    return EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)


def _micros(block: Mapping[str, Any]) -> int:
    return int(block["ts_us"] if block.get("ts_us") is not None else block["ts_ms"] * 1000)


def structure(event: Mapping[str, Any]) -> TableSchema:
    found = tables()
    payload = event["value"]["payload"]
    name = payload["source"]["table"]
    kind = "ALTER" if "note" in (payload["after"] or payload["before"]) else "CREATE"
    return found[name, kind]


def changes(recorded: Iterable[Mapping[str, Any]]) -> Iterator[tuple[dict[str, Any], list[Mapping[str, Any]]]]:
    """Change rows, each with the events that Debezium wrote for it (a delete's tombstone, a moved key's three)."""
    rest = list(recorded)
    while rest:
        first, *rest = rest
        group = [first]
        moved = any(h["name"] == "__debezium.newkey" for h in first["headers"])
        take = 2 if moved else 1 if first["value"]["payload"]["op"] == "d" else 0
        group, rest = group + rest[:take], rest[take:]
        yield _row(group, moved), group


def _row(group: list[Mapping[str, Any]], moved: bool) -> dict[str, Any]:
    first, last = group[0]["value"]["payload"], (group[-1] if moved else group[0])["value"]["payload"]
    schema = structure(group[0])
    source = first["source"]
    nulls = schema.id.name == "all_types" and (first["after"] or first["before"])["id"] in (2, 12)
    before, after = image(first["before"], schema, nulls=nulls), image(last["after"], schema, nulls=nulls)
    key = {name: (after or before or {})[name] for name in schema.key} or None
    facts = {name: source[name] for name in ("connector", "change_lsn", "commit_lsn", "event_serial_no")}
    return {
        "op": "u" if moved else first["op"],
        "table": {"database": schema.id.database, "schema": schema.id.schema, "name": schema.id.name},
        "key": key,
        "key_text": key_text(list(key.values())) if key else None,
        "before": before,
        "after": after,
        "event_time": instant(_micros(source)),
        "capture_time": instant(_micros(first)),
        "snapshot": None if source["snapshot"] == "false" else source["snapshot"],
        "transaction": first["transaction"],
        "source": {k: str(v) for k, v in facts.items() if v is not None},
        "schema_id": schema.fingerprint,
    }


def encoded(data: Iterable[Mapping[str, Any]], schemas: Iterable[TableSchema] = (), **options: Any) -> list[Row]:
    """The messages of change rows without Spark, `schema` rows first, in the order of their positions."""
    known = list(schemas)
    codecs = arrow_format("debezium_json", **options)
    assert isinstance(codecs, DebeziumJson)
    given = codecs.settings.schema
    encoder = codecs.encoder(Facts(tables=tuple(known) if given is None else given.tables))
    encoder.check()
    changes = change_batch(_with_schema_rows(data, known))
    found = [message for part in run_codec(encoder, [changes]) for message in part.to_pylist()]
    for message in found:
        message["headers"] = message["headers"] and [Row(**header) for header in message["headers"]]
    return [Row(**message) for message in sorted(found, key=lambda message: message["position"])]


def decoded(messages: Iterable[Row], **options: Any) -> list[dict[str, Any]]:
    """The change rows of messages without Spark, in the order of their positions, with maps as dictionaries."""
    lines = [(m.topic, 0, n, None, m.key, m.value, m.headers and [tuple(h) for h in m.headers])
             for n, m in enumerate(messages)]  # fmt: skip
    changes = changes_of_messages("debezium_json", lines, **options)
    maps = [field.name for field in changes.schema if str(field.type).startswith("map")]
    rows = [row for row in changes.to_pylist() if row["op"] is not None]
    found = [row | {name: row[name] and dict(row[name]) for name in maps} for row in rows]
    return sorted(found, key=lambda row: str(row["position"]))


def _with_schema_rows(data: Iterable[Mapping[str, Any]], schemas: Iterable[TableSchema]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {
            "op": "schema",
            "table": {"database": s.id.database, "schema": s.id.schema, "name": s.id.name},
            "schema_id": s.fingerprint,
            "table_schema": s.to_text(),
            "position": "00000000//",
        }
        for s in schemas
    ]
    return lines + [{"position": f"{n:08}//", **row} for n, row in enumerate(data, 1)]


def rows(spark: Any, data: Iterable[Mapping[str, Any]], schemas: Iterable[TableSchema] = ()) -> Any:
    """A DataFrame of change rows, `schema` rows first, positions in order."""
    lines = _with_schema_rows(data, schemas)
    kind = spark_schema()
    maps = ("key", "before", "after", "source")
    # Python hands maps over without their order, so they travel as entries.
    ddl = ", ".join(f"{f.name} {_ENTRIES if f.name in maps else f.dataType.simpleString()}" for f in kind)
    made = [tuple(_entries(line.get(f.name)) if f.name in maps else line.get(f.name) for f in kind) for line in lines]
    frame = local_rows(spark, made, ddl)
    return frame.selectExpr(
        *(f"map_from_entries({f.name}) as {f.name}" if f.name in maps else f"`{f.name}`" for f in kind)
    )


def _entries(image: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if image is None else list(image.items())


def collected(changes: Any) -> list[dict[str, Any]]:
    """Change rows in the order of their positions, with maps in their order."""
    maps = {f.name for f in changes.schema if f.dataType.typeName() == "map"}
    frame = changes.selectExpr(*(f"map_entries({n}) as {n}" if n in maps else f"`{n}`" for n in changes.columns))
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    for row in rows:
        for name in maps:
            row[name] = row[name] and {entry["key"]: entry["value"] for entry in row[name]}
    return sorted(rows, key=lambda row: row["position"])


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, one line per place; the order of object keys counts."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return [f"{path}: keys {list(ours)} != {list(theirs)}"]
        return [line for key in ours for line in differences(ours[key], theirs[key], f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{path}[{n}]")]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{path}: {ours!r} != {theirs!r}"]
