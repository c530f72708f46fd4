"""What Debezium recorded of PostgreSQL, and the change rows that our source gives of the same changes.

Values come from what psql printed of the tables, by way of the source's own types. Where a row was changed again later,
nobody printed what it held between: then a value is read back from the message here, in plain Python.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from debezium_recordings import instant
from tests.real.recording import read_records, read_truth

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text
from headrace.sources.postgresql.types import BUILT_IN, CatalogType, NativeType, TypeCatalog

FOLDER = Path(__file__).parents[1] / "golden" / "real_debezium"
PLACEHOLDER = "__debezium_unavailable_value"
PLACEHOLDERS = (
    PLACEHOLDER,
    base64.b64encode(PLACEHOLDER.encode()).decode(),
    [PLACEHOLDER],
    list(PLACEHOLDER.encode()),
    json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
)
NAMES = {
    "smallint": "int2", "integer": "int4", "bigint": "int8", "real": "float4", "double precision": "float8",
    "boolean": "bool", "character": "bpchar", "character varying": "varchar", "time without time zone": "time",
    "time with time zone": "timetz", "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz", "bit varying": "varbit", '"char"': "char",
    "interval year to month": "interval",
}  # fmt: skip
LABELS = ("sad", "ok", "hap'py", "x,y", "é")
"""Of the enum type mood, before the last was added, which the connector never got to know."""
EARLIER = {
    "last_name": "character varying(255) NOT NULL",
    "phone": "character varying(20) DEFAULT 'n/a'::character varying",
    "score": "numeric(6,3) DEFAULT 1.25 NOT NULL",
    "id": "integer NOT NULL",
}
"""Columns that are no longer there, or were others before."""
WIDE = Context(prec=200)
MANGLED = {"Gr\uffc3\uffb6\uffc3\uff9fe \uffe2\uff82\uffac": "Größe €"}
"""How the connector spells a name in the stream."""


def numeric_modifier(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


CATALOG = TypeCatalog(
    {
        20001: CatalogType("mood", kind="e", labels=LABELS),
        20002: CatalogType("_mood", variable=True, element=20001),
        20003: CatalogType("hstore", variable=True),
        20004: CatalogType("ltree", variable=True),
        20005: CatalogType("citext", variable=True),
        20006: CatalogType("pair", kind="c", variable=True, fields=(("a", 23, -1), ("b", 25, -1))),
        20007: CatalogType("posint", kind="d", base=23),
        20008: CatalogType("money2", kind="d", base=1700, typmod=numeric_modifier(14, 2)),
        20009: CatalogType("shorttext", kind="d", base=1043, typmod=24),
    }
)
NUMBERS = {known.name: oid for oid, known in {**BUILT_IN, **CATALOG.types}.items()}


def native_of(declared: str) -> NativeType:
    """A type by its name in DDL."""
    bare = declared.removeprefix("public.").removesuffix("[]")
    found = re.fullmatch(r'("?[a-z_][a-z0-9_ ]*?"?)(?:\((\d+)(?:,(-?\d+))?\))?( with(?:out)? time zone)?', bare)
    assert found is not None, declared
    name = NAMES.get(found[1] + (found[4] or ""), found[1])
    modifier = -1
    if found[2] is not None:
        modifier = int(found[2])
        if name in ("varchar", "bpchar"):
            modifier += 4
        elif name == "numeric":
            modifier = numeric_modifier(modifier, int(found[3] or 0))
    elif name == "bpchar":
        modifier = 5
    return CATALOG.resolve(NUMBERS[f"_{name}" if declared.endswith("[]") else name], modifier)


def canonical(native: NativeType, printed: str | None) -> str | None:
    """The source's text of a value that psql printed; bytes are printed as hex digits."""
    if printed is None:
        return None
    text = f"\\x{printed}" if native.name == "bytea" else printed
    found: str | None = native.texts(pa.array([text], pa.string()))[0].as_py()
    return found


def column_of(name: str, number: int, declared: str) -> tuple[Column, NativeType]:
    """A column by its line of DDL, and its type."""
    kind, _, constraint = declared.removesuffix(" NOT NULL").partition(" DEFAULT ")
    native, expression = native_of(kind), constraint or None
    default = None
    if expression is not None and not expression.startswith("nextval("):
        literal = re.sub(r"::[a-z. ]+$", "", expression).strip("'")
        if native.logical.kind == "decimal":
            default = native.logical.to_text(Decimal(literal))
        else:
            default = canonical(native, {"true": "t", "false": "f"}.get(literal, literal))
    labels = (native.element or native).labels
    column = Column(
        name, number, native.logical, native.name, native.length, native.scale, not declared.endswith(" NOT NULL"),
        default, expression, identity="nextval(" in constraint, large=native.large, enum_values=labels or None,
    )  # fmt: skip
    return column, native


def declarations() -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, ...]]]:
    """The columns of all tables as declared, and their keys; generated columns are not in the log."""
    text = (FOLDER / "postgres_truth_final" / "_ddl.sql").read_text(encoding="utf-8")
    tables: dict[str, dict[str, str]] = {}
    for name, body in re.findall(r'CREATE TABLE public\.("?[^ "]+(?: [^ "]+)?"?) \(\n(.*?)\n\);', text, re.DOTALL):
        lines = (re.fullmatch(r'    ("(?:[^"]|"")+"|\S+) (.*?),?', line) for line in body.split("\n"))
        columns = {unquoted(line[1]): line[2] for line in lines if line is not None}
        tables[unquoted(name)] = {column: kind for column, kind in columns.items() if "GENERATED" not in kind}
    keys = {
        unquoted(name): tuple(unquoted(part) for part in columns.split(", "))
        for name, columns in re.findall(
            r"ALTER TABLE ONLY public\.(.+?)\n +ADD CONSTRAINT .* PRIMARY KEY \((.+)\)", text
        )
    }
    computed = r"ALTER TABLE ONLY public\.(\S+) ALTER COLUMN (\S+) SET DEFAULT (nextval\(.*\));"
    for name, column, expression in re.findall(computed, text):
        tables[name][column] = tables[name][column].replace(" NOT NULL", f" DEFAULT {expression} NOT NULL")
    for name in ("unique_renamed", "unique_index_identity"):
        tables[name], keys[name] = tables["unique_renamed"], ("code",)
    return tables, keys | {"dropped_table": ("id",)}


def unquoted(name: str) -> str:
    return name.strip('"').replace('""', '"') if name.startswith('"') else name


DECLARED, KEYS = declarations()
FULL = {"customers", "keyless", "toasted_full"}
"""Tables whose old rows the log has as a whole."""


@dataclass
class Recorded:
    """An event as it was recorded: its Kafka record, and what the key and value say."""

    record: Mapping[str, Any]
    key: Any = field(init=False)
    value: Any = field(init=False)

    def __post_init__(self) -> None:
        self.key, self.value = (
            None if self.record[part] is None else json.loads(self.record[part]) for part in ("key", "value")
        )

    @property
    def headers(self) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in self.record["headers"]}

    @property
    def payload(self) -> dict[str, Any]:
        found: dict[str, Any] = self.value["payload"]
        return found

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """The fields of a row."""
        (found,) = (part["fields"] for part in self.value["schema"]["fields"] if part["field"] == "after")
        return [{**one, "field": MANGLED.get(one["field"], one["field"])} for one in found]

    def image(self, name: str) -> dict[str, Any] | None:
        found = self.payload[name]
        return found and {MANGLED.get(column, column): value for column, value in found.items()}


def recorded(name: str = "postgres_a") -> dict[str, list[Recorded]]:
    """All records by topic."""
    found: dict[str, list[Recorded]] = {}
    for record in read_records(FOLDER / f"{name}.jsonl.gz"):
        found.setdefault(record["topic"], []).append(Recorded(record))
    return found


@dataclass
class Table:
    """A table of the recording: its events, and what psql printed of it.

    Args:
        name: its name.
        events: its records.
    """

    name: str
    events: Sequence[Recorded]
    snapshot: list[dict[str, str | None]] = field(default_factory=list)
    final: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        truths = [read_truth(FOLDER / f"postgres_truth_{moment}") for moment in ("snapshot", "final")]
        self.snapshot, self.final = ([] if not self.name else truth.get(self.name, []) for truth in truths)

    def schema(self, event: Recorded) -> tuple[TableSchema, dict[str, NativeType]]:
        """The structure that an event follows, and the columns' types."""
        declared = dict(DECLARED.get(self.name, {}))
        told = {one["field"]: one for one in event.fields}
        unsent = [name for name in declared if name not in told] if self.name == "all_types" else []
        names = [name for name in declared if name in told or name in unsent] or list(told)
        names += [name for name in told if name not in names and name != "g_stored"]
        columns, natives = [], {}
        for number, name in enumerate(sorted(names, key=[*declared, *told].index), 1):
            kind = declared.get(name) or EARLIER[name]
            if (told.get(name, {}).get("parameters") or {}).get("scale") == "3" and name == "score":
                kind = EARLIER[name]
            column, natives[name] = column_of(name, number, kind)
            columns.append(column)
        ordered = [name for name in told if name in natives]
        columns.sort(key=lambda column: ordered.index(column.name) if column.name in ordered else len(ordered))
        id = TableId("gold", "public", self.name)
        return TableSchema(id, tuple(columns), KEYS.get(self.name, ())), natives

    def rows(self) -> Iterator[tuple[dict[str, Any], TableSchema]]:
        """The change rows that our source gives."""
        printed = self._printed()
        events = [event for event in self.events if event.value is not None]
        number = 0
        while number < len(events):
            event = events[number]
            last = event
            if "__debezium.newkey" in event.headers:
                number += 1
                last = events[number]
            number += 1
            yield self._row(event, last, printed)

    def _printed(self) -> dict[int, dict[str, str | None]]:
        """By the offset of an event what psql printed of the row that it left."""
        found: dict[int, dict[str, str | None]] = {}
        reads = [event for event in self.events if event.value is not None and event.payload["op"] == "r"]
        found |= {e.record["offset"]: line for e, line in zip(reads, self.snapshot, strict=True)}
        held: dict[str, int] = {}
        for event in self.events:
            if event.value is None or event.key is None:
                continue
            key = json.dumps(event.key["payload"], sort_keys=True)
            held.pop(key, None)
            if event.payload["op"] in ("c", "u"):
                held[key] = event.record["offset"]
        by_offset = {event.record["offset"]: event for event in self.events}
        for line in self.final:
            for offset in held.values():
                schema, natives = self.schema(by_offset[offset])
                after = by_offset[offset].image("after") or {}
                if all(read_back(after[n], natives[n]) == canonical(natives[n], line.get(n)) for n in schema.key):
                    found[offset] = line
        return found

    def _row(
        self, first: Recorded, last: Recorded, printed: Mapping[int, Mapping[str, str | None]]
    ) -> tuple[dict[str, Any], TableSchema]:
        schema, natives = self.schema(first)
        payload, moved = first.payload, first is not last
        before, after = first.image("before"), last.image("after")
        if before is not None and self.name not in FULL:
            before = {name: value for name, value in before.items() if name in schema.key}
        line = dict(printed.get(last.record["offset"], {}))
        if any(column.name == "score" and column.scale == 3 for column in schema.columns):
            # The table was written anew since, of which the log says nothing.
            line.pop("score", None)
        if after is not None:
            after = {n: v for n, v in after.items() if not (schema_large(schema, n) and v in PLACEHOLDERS)}
        images = {
            "before": None if before is None else texts_of(before, natives, {}),
            "after": None if after is None else texts_of(after, natives, line),
        }
        if images["after"] is not None:
            # What the connector does not send at all.
            sent = {one["field"] for one in last.fields}
            images["after"] |= {n: canonical(natives[n], line.get(n)) for n in natives if n not in sent}
        image = images["after"] or images["before"]
        key = {name: image[name] for name in schema.key} if image is not None and schema.key else None
        source = payload["source"]
        facts = {name: source[name] for name in ("connector", "txId", "lsn", "sequence")}
        return {
            "op": "u" if moved else payload["op"],
            "table": {"database": "gold", "schema": "public", "name": self.name},
            "key": key,
            "key_text": None if key is None else key_text(list(key.values())),
            **images,
            "event_time": instant(source["ts_us"]),
            "capture_time": instant(payload["ts_us"]),
            "snapshot": None if source["snapshot"] == "false" else source["snapshot"],
            "transaction": payload["transaction"],
            "source": {name: str(fact) for name, fact in facts.items() if fact is not None},
            "schema_id": schema.fingerprint,
        }, schema


def schema_large(schema: TableSchema, name: str) -> bool:
    return any(column.name == name and column.large for column in schema.columns)


def texts_of(
    image: Mapping[str, Any], natives: Mapping[str, NativeType], printed: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Canonical texts: of what psql printed, else of what the message says."""
    return {
        name: canonical(natives[name], printed[name]) if name in printed else read_back(value, natives[name])
        for name, value in image.items()
        if name in natives
    }


def read_back(value: Any, native: NativeType) -> str | None:
    """What a value on the wire says, for the types that rows between have."""
    logical = native.logical
    if value is None:
        return None
    if logical.kind == "decimal":
        data = value if isinstance(value, str) else value["value"]
        scale = logical.scale if isinstance(value, str) else value["scale"]
        number = Decimal(int.from_bytes(base64.b64decode(data), "big", signed=True)).scaleb(-(scale or 0), WIDE)
        return LogicalType("decimal", 76, scale).to_text(number)
    if logical.kind in ("float32", "float64"):
        return logical.to_text(float(value))
    if logical.kind == "date":
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
    if logical.kind in ("time", "timestamp"):
        unit = 1 if logical.digits > 3 else 1000
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value * unit)
        return logical.to_text(moment.time() if logical.kind == "time" else moment)
    if logical.kind == "interval":
        seconds, micros = divmod(abs(value), 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
        return f"-{clock}" if value < 0 else clock
    if native.name in ("bit", "varbit") and not isinstance(value, bool):
        return format(int.from_bytes(base64.b64decode(value), "little"), f"0{native.length or 1}b")
    if native.name == "bit":
        return str(int(value))
    if native.name == "timetz":
        return str(value).replace("Z", "+00")
    if native.name == "point":
        return f"({value['x']},{value['y']})"
    if native.element is not None:
        items = [item if item is None else read_back(item, native.element) for item in value]
        own = native.element.logical.kind in ("int32", "int64", "boolean")
        return json.dumps(value if own else items, ensure_ascii=False, separators=(",", ":"))
    if logical.kind == "boolean":
        return "true" if value else "false"
    assert isinstance(value, (str, int)), (native, value)
    return str(value)
