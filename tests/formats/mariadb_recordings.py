"""What Debezium recorded of MariaDB, and the change rows that our source gives of the same changes.

Values come from what the client printed of the tables. Where a row was changed again later, nobody printed what it held
between: then a value is read back from the message here, in plain Python. So are binary numbers of 32 bits, of which
the server prints six digits.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import cache
from typing import Any

from debezium_recordings import instant
from postgresql_recordings import FOLDER, Recorded, recorded
from tests.real.recording import read_truth

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text

FACTS = ("connector", "server_id", "gtid", "file", "pos", "row", "thread", "query")
EPOCH = dt.datetime(1970, 1, 1)
WIDE = Context(prec=200)
EARLIER = {
    "last_name": "varchar(255) NOT NULL",
    "phone n/a": "varchar(32) DEFAULT 'n/a'",
    "phone": "varchar(100) CHARACTER SET latin1 DEFAULT NULL",
    "score 3": "decimal(6,3) NOT NULL DEFAULT 1.250",
}
"""Columns that are no longer there, or were others before, by what tells them apart."""
_LOGICAL = {
    "tinyint": "int8", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64", "float": "float32",
    "double": "float64", "date": "date", "year": "int16", "json": "json", "point": "nested", "geometry": "nested",
    "polygon": "nested",
}  # fmt: skip
_UNSIGNED = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32", "int": "int64", "bigint": "uint64"}
CHARACTERS = frozenset(("char", "varchar", "enum", "set", "json"))
_TIMES = {"time": "time", "datetime": "timestamp", "timestamp": "instant"}


def column_of(name: str, number: int, declared: str) -> Column:
    """A column by its line of DDL."""
    found = re.match(r"([a-z0-9]+)(?:\(('.*?'|[0-9,]+)\))?( unsigned)?", declared)
    assert found is not None
    word, inside, attributes = found.groups()
    labels = re.findall(r"'((?:[^']|'')*)'", inside) if word in ("enum", "set") and inside else []
    numbers = [int(part) for part in inside.split(",")] if inside and not labels else []
    # A display width says nothing, and the log has none; the size of a time is its fraction digits.
    length, scale = (None, None) if "int" in word or word == "year" else (*numbers, None, None)[:2]
    length, scale = (None, length or 0) if word in _TIMES else (length, scale)
    if word == "bit":
        logical = LogicalType("boolean" if length == 1 else "bytes")
    elif word == "decimal":
        scale = scale or 0
        logical = LogicalType("decimal", length, scale)
    elif word in _TIMES:
        logical = LogicalType(_TIMES[word], scale)
    elif "json_valid" in declared:
        word, logical = "json", LogicalType("json")
    elif "binary" in word or "blob" in word:
        logical = LogicalType("bytes")
    else:
        logical = LogicalType(_UNSIGNED[word] if attributes and word in _UNSIGNED else _LOGICAL.get(word, "string"))
    told = re.search("CHARACTER SET ([a-z0-9]+)", declared)
    charset = (told[1] if told else "utf8mb4") if word in CHARACTERS or "text" in word else None
    default = re.search(r" DEFAULT (NULL|'(?:[^']|'')*'|\S+)", declared)
    expression = None if default is None or default[1] == "NULL" else default[1]
    text = None if expression is None else expression.strip("'")
    if text is not None and logical.kind == "instant":
        text = text.replace(" ", "T") + "Z"
    if text is not None and logical.kind == "decimal":
        text = logical.to_text(Decimal(text))
    return Column(
        name, number, logical, word + (attributes or ""), length, scale, "NOT NULL" not in declared, text, expression,
        identity="AUTO_INCREMENT" in declared, generated="GENERATED" in declared,
        enum_values=tuple(label.replace("''", "'") for label in labels) or None, charset=charset,
    )  # fmt: skip


@cache
def declarations() -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, ...]]]:
    """The columns of all tables as declared, and their keys."""
    tables, keys = {"dropped_table": {"id": "int(11) NOT NULL"}}, {"dropped_table": ("id",)}
    for moment in ("snapshot", "final"):
        text = (FOLDER / f"mariadb_truth_{moment}" / "_ddl.sql").read_text(encoding="utf-8")
        for name, body in re.findall(r"CREATE TABLE `(.+?)` \(\n(.*?)\n\) ENGINE", text, re.DOTALL):
            tables[name] = dict(re.findall(r"^  `(.+?)` (.*?),?$", body, re.MULTILINE))
            named = re.search(r"^  (?:PRIMARY|UNIQUE) KEY [^(]*\((.*)\)", body, re.MULTILINE)
            keys[name] = tuple(re.findall(r"`(.+?)`", named[1])) if named is not None else ()
    return tables, keys


def canonical(column: Column, printed: str | None) -> str | None:
    """The source's text of a value that the client printed."""
    if printed is None or re.match(r"\d{4}-(00|\d\d-00)", printed):
        # A date that is none.
        return None
    kind, word = column.logical.kind, column.native_type.partition(" ")[0]
    if word in ("geometry", "point", "polygon"):
        data = bytes.fromhex(printed)
        wkb = base64.b64encode(data[4:]).decode()
        return json.dumps({"wkb": wkb, "srid": int.from_bytes(data[:4], "little")})
    if kind == "boolean":
        return "true" if printed == "01" else "false"
    if kind == "bytes":
        data = bytes.fromhex(printed)
        return base64.b64encode(data[::-1] if word == "bit" else data).decode()
    if kind == "instant":
        return printed.replace(" ", "T") + "Z"
    if kind in ("float32", "float64"):
        return column.logical.to_text(float(printed))
    return str(int(printed)) if "int" in kind else printed


def read_back(column: Column, value: Any) -> str | None:
    """What a value on the wire says."""
    kind, digits = column.logical.kind, column.logical.digits
    if value is None:
        return None
    if kind == "decimal":
        number = Decimal(int.from_bytes(base64.b64decode(value), "big", signed=True))
        return column.logical.to_text(number.scaleb(-(column.logical.scale or 0), WIDE))
    if kind == "uint64":
        return str(value % 2**64)
    if kind in ("float32", "float64"):
        return column.logical.to_text(float(value))
    if kind == "date":
        return (EPOCH + dt.timedelta(days=value)).date().isoformat()
    if kind == "timestamp":
        return column.logical.to_text(EPOCH + dt.timedelta(microseconds=value * (1 if digits > 3 else 1000)))
    if kind == "time":
        seconds, micros = divmod(abs(value), 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        fraction = f".{micros:06}"[: digits + 1] if digits else ""
        return f"{'-' if value < 0 else ''}{clock}{fraction}"
    if kind == "nested":
        return json.dumps({"wkb": value["wkb"], "srid": value["srid"] or 0})
    if kind == "instant" and digits:
        head, _, fraction = value.removesuffix("Z").partition(".")
        return f"{head}.{fraction.ljust(digits, '0')}Z"
    if isinstance(value, bool):
        return str(value).lower() if kind == "boolean" else str(int(value))
    return str(value)


def schema_of(table: str, told: Iterable[tuple[str, Any, Any]]) -> TableSchema:
    """A structure of a table.

    Args:
        table: its name.
        told: its columns: name, default and scale, by which the same name is told apart.
    """
    tables, keys = declarations()
    columns = []
    for number, (name, default, scale) in enumerate(told, 1):
        line = EARLIER.get(f"{name} {default}") or EARLIER.get(f"{name} {scale}") or tables[table].get(name)
        columns.append(column_of(name, number, line or EARLIER[name]))
    return TableSchema(TableId("gold", "", table), tuple(columns), keys[table], charset="utf8mb4")


@dataclass
class Table:
    """A table of the recording: its events, and what the client printed of it.

    Args:
        name: its name.
        events: its records.
    """

    name: str
    events: Sequence[Recorded]
    snapshot: list[dict[str, str | None]] = field(default_factory=list)
    final: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        truths = [read_truth(FOLDER / f"mariadb_truth_{moment}") for moment in ("snapshot", "final")]
        self.snapshot, self.final = (truth.get(self.name, []) for truth in truths)

    @classmethod
    def of(cls, topic: str) -> Table:
        """The table of a topic."""
        return cls(topic.removeprefix("mdb_a.gold."), recorded("mariadb_a")[topic])

    def schema(self, event: Recorded) -> TableSchema:
        """The structure that an event follows."""
        return schema_of(
            self.name,
            [(one["field"], one.get("default"), (one.get("parameters") or {}).get("scale")) for one in event.fields],
        )

    def rows(self) -> Iterator[tuple[dict[str, Any], TableSchema]]:
        """The change rows that our source gives."""
        printed = self._printed()
        events = iter([event for event in self.events if event.value is not None])
        for event in events:
            last = next(events) if "__debezium.newkey" in event.headers else event
            yield self._row(event, last, printed)

    def _printed(self) -> dict[int, dict[str, str | None]]:
        """By the offset of an event what the client printed of the row that it left."""
        reads = [event for event in self.events if event.value is not None and event.payload["op"] == "r"]
        found = {e.record["offset"]: line for e, line in zip(reads, self.snapshot, strict=True)}
        held: dict[str, Recorded] = {}
        for event in self.events:
            if event.key is not None:
                key = json.dumps(event.key["payload"], sort_keys=True)
                held.pop(key, None)
                if event.value is not None and event.payload["op"] in ("c", "u"):
                    held[key] = event
        for line in self.final:
            for event in held.values():
                columns = {column.name: column for column in self.schema(event).columns}
                after = event.image("after") or {}
                key = declarations()[1][self.name]
                if all(read_back(columns[n], after[n]) == canonical(columns[n], line[n]) for n in key):
                    found[event.record["offset"]] = line
        return found

    def _row(
        self, first: Recorded, last: Recorded, printed: Mapping[int, Mapping[str, str | None]]
    ) -> tuple[dict[str, Any], TableSchema]:
        schema, payload = self.schema(first), first.payload
        # Columns that were altered since were printed as they are now.
        line = {name: text for name, text in printed.get(last.record["offset"], {}).items() if name != "score"}
        before = texts_of(schema, first.image("before"), {})
        after = texts_of(schema, last.image("after"), line)
        image = after or before
        key = {name: image[name] for name in schema.key} if image is not None and schema.key else None
        source = payload["source"]
        return {
            "op": "u" if first is not last else payload["op"],
            "table": {"database": "gold", "schema": "", "name": self.name},
            "key": key,
            "key_text": None if key is None else key_text(list(key.values())),
            "before": before,
            "after": after,
            "event_time": instant(source["ts_us"]),
            "capture_time": instant(payload["ts_us"]),
            "snapshot": None if source["snapshot"] == "false" else source["snapshot"],
            "transaction": payload["transaction"],
            "source": facts_of(source),
            "schema_id": schema.fingerprint,
        }, schema


def facts_of(source: Mapping[str, Any]) -> dict[str, str]:
    """What a row of ours says of its source."""
    return {name: str(source[name]) for name in FACTS if source[name] is not None}


def texts_of(
    schema: TableSchema, image: Mapping[str, Any] | None, printed: Mapping[str, str | None]
) -> dict[str, str | None] | None:
    """Canonical texts: of what the client printed, else of what the message says."""
    if image is None:
        return None
    return {
        column.name: canonical(column, printed[column.name])
        if column.name in printed and column.logical.kind != "float32"
        else read_back(column, image[column.name])
        for column in schema.columns
    }
