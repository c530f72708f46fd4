"""One table's Debezium events in Avro to typed images: `from_avro` with the table's types in its reading schema.

What a user would write by hand, and the change row's other columns beside it. Avro's own decoder makes dates, local
timestamps and decimals (the reading schema says their logical types, where the wire only has `connect.name`), leaves
out what nobody asks for, and fills columns that an older schema of the table lacks with null. Everything that has no
such direct form (another kind of event, a column type that must be spelled, a schema that contradicts the others) goes
the general way by JSON.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, TableSchema
from headrace.changes.texts import canonical_text, moment_text
from headrace.changes.typed import literal, quote
from headrace.formats.avro_decode import MARK, MARK_VALUE, marked_schema, passes, search_tree
from headrace.formats.avro_framing import Framing, Side
from headrace.formats.avro_schema import WriterSchema
from headrace.formats.debezium_envelope import UNKNOWN_OPERATION_REASON, known_transaction, moment, of_milliseconds
from headrace.formats.messages import KAFKA_COLUMNS, change_rows, key_text, position, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
# Connect name: kind of time, fraction digits of its unit, the Avro type that Spark reads as a timestamp_ntz.
_MOMENTS = {
    "io.debezium.time.Time": ("time", 3, None),
    "io.debezium.time.MicroTime": ("time", 6, None),
    "io.debezium.time.NanoTime": ("time", 9, None),
    "org.apache.kafka.connect.data.Time": ("time", 3, None),
    "io.debezium.time.Timestamp": ("timestamp", 3, "local-timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("timestamp", 6, "local-timestamp-micros"),
    "io.debezium.time.NanoTimestamp": ("timestamp", 9, None),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", 3, "local-timestamp-millis"),
}
_ZONED = "io.debezium.time.ZonedTimestamp"
_INTEGERS = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
# Connect types whose Spark type is read as it is, where no name says that the value means something else.
_DIRECT = {"float": "float", "double": "double", "boolean": "boolean", "string": "string", "bytes": "binary"}
_PLAIN_TEXTS = (
    None,
    "io.debezium.data.Json",
    "io.debezium.data.Xml",
    "io.debezium.data.Uuid",
    "io.debezium.data.Enum",
    "io.debezium.data.EnumSet",
    "io.debezium.data.Ltree",
    "io.debezium.time.Interval",
)
_ENVELOPE = ("before", "after", "source", "transaction", "op")
# What the change row says in columns of its own.
_OWN = ("ts_ms", "ts_us", "ts_ns", "snapshot", "db", "schema", "table")
# More comparisons than this make generated code too long for the JIT compiler.
_MOST_TESTS = 24
# Kinds whose texts need no escapes in JSON.
_UNESCAPED = frozenset(("int8", "int16", "int32", "int64", "uint64", "decimal", "date", "boolean"))
_MICROS = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS"
# Three X in Java's patterns are an offset like +02:00.
_WITH_ZONE = f"map('timestampNTZFormat', '{_MICROS}', 'timestampFormat', '{_MICROS}XXX')"
# Facts that are null in nearly all events of the connectors that have them.
_SELDOM = frozenset(map(literal, ("xmin", "query", "lcr_position", "user_name", "ssn")))
# Only where no image says the key.
_KEY_WANTED = "value is null or datum.payload.op = 'd' and datum.payload.before is null"
_OPERATIONS = "'r', 'c', 'u', 'd', 't'"


@dataclass(frozen=True)
class Cell:
    """How one column is read.

    Args:
        avro: its type in the reading schema, without the union for null.
        sql: Spark SQL from what was read (`{}`) to the column's Spark type; null where it has that type already.
        checked: whether `sql` may give null for a value.
    """

    avro: Any
    sql: str | None = None
    checked: bool = False


def cell(column: Column, wire: Mapping[str, Any], plain: Any) -> Cell | None:
    """How a field of the wire (its Connect schema and its plain Avro type) is read as a column; null if it can't be."""
    kind, name, connect = column.logical.spark_type, wire.get("name"), wire["type"]
    if name == _DECIMAL and connect == "bytes" and plain == "bytes":
        scale = int((wire.get("parameters") or {}).get("scale", 0))
        if not kind.startswith("decimal(") or not 0 <= scale <= 38:
            return None
        precision, own_scale = (int(number) for number in kind[len("decimal(") : -1].split(","))
        tagged = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        if scale == own_scale:
            return Cell(tagged)
        return Cell({**tagged, "precision": 38}, f"try_cast({{}} as {kind})", checked=True)
    if name in _DATES and connect == "int32":
        return Cell({"type": "int", "logicalType": "date"}) if kind == "date" else None
    if name in _MOMENTS and connect in ("int32", "int64"):
        of, unit, avro = _MOMENTS[name]
        if kind == "timestamp_ntz" and avro is not None:
            return Cell({"type": "long", "logicalType": avro})
        if kind != "string" or column.logical.kind != of or of == "time":
            return None
        return Cell(plain, moment_text("{}", of, unit, column.logical.digits))
    if name == _ZONED and connect == "string":
        if kind == "timestamp":
            return Cell(plain, "try_cast({} as timestamp)", checked=True)
        return Cell(plain) if column.logical.kind == "zoned_timestamp" and kind == "string" else None
    if name not in _PLAIN_TEXTS:
        return None
    if connect in _INTEGERS and kind in _INTEGERS.values():
        # Avro has two integers only, whatever Connect's type is.
        read = "int" if plain == "int" else "bigint"
        return Cell(plain) if kind == read else Cell(plain, f"try_cast({{}} as {kind})", checked=True)
    return Cell(plain) if _DIRECT.get(connect) == kind and plain in (connect, "string", "bytes") else None


@dataclass(frozen=True)
class Reader:
    """How the envelopes of one schema are read.

    Args:
        text: the writer's schema, with the mark behind it.
        expected: the schema that its data become, with the mark.
        cells: how the columns are read, in the table's order.
        absent: columns that the schema lacks.
        facts: name, whether it may be null, and whether it is a text, of the fields of the source block.
        transaction: whether the envelope has a transaction block.
    """

    text: str
    expected: str
    cells: tuple[Cell, ...]
    absent: tuple[str, ...]
    facts: tuple[tuple[str, bool, bool], ...]
    transaction: bool

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be the same for two schemas to be read by the same expressions."""
        cells = [(c.avro, c.sql, c.checked) for c in self.cells]
        return (json.dumps(cells), self.facts, self.transaction)


def reader(
    schema: WriterSchema, columns: Sequence[Column], fills: Mapping[str, Cell], before: int = 0
) -> Reader | None:
    """How the envelopes of a schema are read; null where they can't be read directly.

    Args:
        schema: the writer's.
        columns: the table's.
        fills: how other schemas have the columns that this one may lack.
        before: how many bytes of framing stand before the datum.
    """
    fields = schema.fields
    if not {"before", "after", "source", "op"} <= set(fields) or not isinstance(schema.plain, Mapping):
        return None
    plain = {f["name"]: f["type"] for f in schema.plain["fields"]}
    row = _record(plain["before"]) or _record(plain["after"])
    source = _record(plain["source"])
    if row is None or source is None or fields["op"]["type"] != "string":
        return None
    wire = {f["field"]: f for f in fields["after"].get("fields") or ()}
    shapes = {f["name"]: f["type"] for f in row["fields"]}
    by_column = columns_on_wire(columns, wire)
    made: list[dict[str, Any]] = []
    cells: list[Cell] = []
    absent: list[str] = []
    for column in columns:
        name = by_column.get(column.name)
        if (name or adjusted_name(column.name)) != column.name:
            return None
        if name is None:
            fill = fills.get(column.name, Cell("string", f"cast({{}} as {column.logical.spark_type})"))
            absent.append(column.name)
            cells.append(fill)
            made.append({"name": adjusted_name(column.name), "type": ["null", fill.avro], "default": None})
            continue
        shape = shapes[name]
        optional = isinstance(shape, list)
        inner = next(s for s in shape if s != "null") if optional else shape
        found = cell(column, wire[name], inner)
        if found is None or not isinstance(inner, str):
            return None
        cells.append(found)
        kind = ["null" if branch == "null" else found.avro for branch in shape] if optional else found.avro
        made.append({"name": name, "type": kind})
    facts = []
    for f in schema.fields["source"].get("fields") or ():
        if f["type"] in ("struct", "array", "map", "bytes"):
            return None
        facts.append((f["field"], bool(f.get("optional")), f["type"] == "string"))
    if not {"ts_ms", "snapshot", "db"} <= {name for name, _, _ in facts}:
        return None
    expected = _expected(schema.plain, row["name"], made)
    return Reader(
        marked_schema(schema.plain, before),
        marked_schema(expected),
        tuple(cells),
        tuple(absent),
        tuple(facts),
        "transaction" in fields,
    )


def adjusted_name(name: str, *, unicode: bool = False) -> str:
    """A column's name as Debezium's modes `avro` and `avro_unicode` write it, fit for a field of Avro."""
    if unicode:
        return "".join(c if c.isascii() and c.isalnum() else f"_u{ord(c):04x}" for c in name)
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return f"_{safe}" if safe[:1].isdigit() else safe


def columns_on_wire(columns: Sequence[Column], wire: Collection[str]) -> dict[str, str]:
    """The field of each column that the wire has, under its own name or an adjusted one."""
    found = {}
    for column in columns:
        spellings = (column.name, adjusted_name(column.name), adjusted_name(column.name, unicode=True))
        name = next((spelling for spelling in spellings if spelling in wire), None)
        if name is not None:
            found[column.name] = name
    return found


def _record(shape: Any) -> Mapping[str, Any] | None:
    branches = shape if isinstance(shape, list) else [shape]
    return next((b for b in branches if isinstance(b, Mapping) and b.get("type") == "record"), None)


def _expected(plain: Mapping[str, Any], row: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The envelope with the row's fields as the table wants them, and nothing that is not asked for."""

    def replaced(shape: Any) -> Any:
        if isinstance(shape, list):
            return [replaced(branch) for branch in shape]
        if isinstance(shape, Mapping) and shape.get("name") == row:
            return {**shape, "fields": fields}
        return shape

    kept = [{"name": f["name"], "type": replaced(f["type"])} for f in plain["fields"] if f["name"] in _ENVELOPE]
    return {**plain, "fields": kept}


def readers(
    schemas: Mapping[bytes, WriterSchema], columns: Sequence[Column], before: int = 0
) -> tuple[dict[bytes, Reader], dict[bytes, WriterSchema]]:
    """The schemas, by head, that the same expressions read, and those that must go the general way."""
    direct = {head: reader(schema, columns, {}, before) for head, schema in schemas.items()}
    fills: dict[str, Cell] = {}
    for found in direct.values():
        if found is not None:
            pairs = zip(columns, found.cells, strict=True)
            fills |= {column.name: how for column, how in pairs if column.name not in found.absent}
    direct = {head: reader(schema, columns, fills, before) for head, schema in schemas.items()}
    shapes = Counter(found.shape for found in direct.values() if found is not None)
    if not shapes:
        return {}, dict(schemas)
    most = shapes.most_common(1)[0][0]
    same = {head: found for head, found in direct.items() if found is not None and found.shape == most}
    return same, {head: schema for head, schema in schemas.items() if head not in same}


@dataclass(frozen=True)
class KeyReader:
    """How keys of one schema are read, which is done for tombstones only.

    Args:
        names: the columns, in key order.
        texts: Spark SQL of their canonical texts, from `key_datum`.
        sql: Spark SQL for the datum with its mark, from `key_body`.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]
    sql: str


def key_reader(schema: WriterSchema, columns: Sequence[Column]) -> KeyReader | None:
    """How keys of a schema are read to texts of the table's columns; null where they can't be read so."""
    wire = schema.fields
    if not wire or not isinstance(schema.plain, Mapping):
        return None
    on_wire = {field: name for name, field in columns_on_wire(columns, wire).items()}
    by_name = {column.name: column for column in columns}
    fields, texts, names = [], [], []
    for f in schema.plain["fields"]:
        name = on_wire.get(f["name"])
        if name is None:
            return None
        optional = isinstance(f["type"], list)
        inner = next(s for s in f["type"] if s != "null") if optional else f["type"]
        found = cell(by_name[name], wire[f["name"]], inner)
        if found is None or not isinstance(inner, str):
            return None
        kind = ["null" if branch == "null" else found.avro for branch in f["type"]] if optional else found.avro
        fields.append({"name": f["name"], "type": kind})
        value = f"key_datum.payload.{quote(f['name'])}"
        typed = found.sql.replace("{}", value) if found.sql else value
        texts.append(canonical_text(typed, by_name[name]))
        names.append(name)
    text = marked_schema(schema.plain)
    expected = marked_schema({**schema.plain, "fields": fields})
    marked = f"concat(key_body, X'{MARK.hex()}')"
    read = f"from_avro({marked}, {literal(text)}, map('mode', 'PERMISSIVE', 'avroSchema', {literal(expected)}))"
    # Keys are small, and looked at for tombstones only: always the careful way.
    return KeyReader(tuple(names), tuple(texts), f"if({passes(marked, text)}, {read}, null)")


@dataclass
class StructPlan:
    """The reading of a batch's envelopes.

    Args:
        framing: how the messages name their schemas.
        table: the structure that the user gave.
        key: names of its key columns.
        readers: by head; all have the same shape.
        keys: how the key of a tombstone is read, by head; all name the same columns.
        problems: why heads name no schema.
        careful: whether each datum is passed over first.
        placeholder: what stands for a value that was not sent; null where no message of the batch holds it.
    """

    framing: Framing
    table: TableSchema
    key: tuple[str, ...]
    readers: Mapping[bytes, Reader]
    keys: Mapping[bytes, KeyReader]
    problems: Mapping[tuple[Side, bytes], str]
    careful: bool
    placeholder: str | None
    _first: Reader = field(init=False)

    def __post_init__(self) -> None:
        self._first = next(iter(self.readers.values()))

    def rows(self, parts: DataFrame) -> DataFrame:
        """The change rows of framed messages, lazily."""
        kept = (*KAFKA_COLUMNS, "value_head", "key_head")
        key = search_tree("key_head", {head: found.sql for head, found in self.keys.items()})
        read = parts.selectExpr(*kept, "value_body", "key_body", f"{self.read()} as datum")
        read = read.selectExpr(
            *kept, "datum", f"if({_KEY_WANTED}, {key}, null) as key_datum", f"{self._held()} as held"
        )
        return change_rows(read, self.columns(), error=self.problem())

    def _held(self) -> str:
        """Spark SQL: whether a value is the placeholder. Few columns are compared; for many the bytes are searched."""
        if self.placeholder is None:
            return "false"
        tests = [
            f"coalesce(datum.payload.{side}.{quote(column.name)} = {_placeholder(column, self.placeholder)}, false)"
            for side in ("before", "after")
            for column in self.table.columns
            if _replaceable(column)
        ]
        if len(tests) > _MOST_TESTS:
            return f"coalesce(contains(value_body, X'{self.placeholder.encode().hex()}'), false)"
        return " or ".join(tests) or "false"

    def read(self) -> str:
        """Spark SQL for the datum, from `value_head` and `value_body`."""
        # Avro skips the framing itself, so that the message is copied once.
        whole = "value" if self.framing.fixed_size else "value_body"
        marked = f"concat({whole}, X'{MARK.hex()}')"
        leaves = {}
        for head, found in self.readers.items():
            options = f"map('mode', 'PERMISSIVE', 'avroSchema', {literal(found.expected)})"
            sql = f"from_avro({marked}, {literal(found.text)}, {options})"
            leaves[head] = f"if({passes(marked, found.text)}, {sql}, null)" if self.careful else sql
        return search_tree("value_head", leaves)

    def columns(self) -> dict[str, str]:
        """Spark SQL of the change row's columns, from `datum`, `held` (the placeholder occurs) and `value_head`."""
        source = "datum.payload.source"
        facts = {name for name, _, _ in self._first.facts}

        def fact(name: str) -> str:
            return f"{source}.{quote(name)}" if name in facts else "cast(null as string)"

        time = of_milliseconds(fact("ts_ms"))
        if "ts_us" in facts:
            time = f"if({fact('ts_us')} is not null, {moment(fact('ts_us'))}, {time})"
        keyed = "if(datum.payload.op = 'd', datum.payload.before, datum.payload.after)"
        cells = dict(zip((c.name for c in self.table.columns), self._first.cells, strict=True))
        pairs = []
        for column in (self.table.column(name) for name in self.key):
            value, how = f"{keyed}.{quote(column.name)}", cells[column.name].sql
            typed = how.replace("{}", value) if how else value
            pairs += [literal(column.name), canonical_text(typed, column)]
        key = f"if({keyed} is null, null, map({', '.join(pairs)}))" if self.key else "cast(null as map<string,string>)"
        if self.keys:
            one = next(iter(self.keys.values()))
            texts = ", ".join(f"{literal(n)}, {text}" for n, text in zip(one.names, one.texts, strict=True))
            key = f"if({_KEY_WANTED}, if(key_datum.mark <=> {MARK_VALUE}L, map({texts}), null), {key})"
        own = self.table.id
        place = table(
            *(
                f"coalesce({fact(n)}, {literal(given)})"
                for n, given in (("db", own.database), ("schema", own.schema), ("table", own.name))
            ),
        )
        columns = {
            "op": "if(value is null, 'tombstone', datum.payload.op)",
            "table": place,
            "key": key,
            "key_text": self._key_text(key),
            "before": self._image("datum.payload.before"),
            "after": self._image("datum.payload.after"),
            "before_absent": self._absent("before"),
            "after_absent": self._absent("after"),
            "position": position(),
            "event_time": time,
            "snapshot": f"if({fact('snapshot')} <> 'false', {fact('snapshot')}, null)",
            "source": self._source(source),
            "schema_id": f"if(value is null, null, {literal(self.table.fingerprint)})",
        }
        if self._first.transaction:
            columns["transaction"] = known_transaction("datum.payload.transaction")
        return columns

    def _image(self, struct: str) -> str:
        cells, columns = self._first.cells, self.table.columns
        names = [quote(c.name) for c in columns]
        types = ", ".join(f"{name}: {c.logical.spark_type}" for name, c in zip(names, columns, strict=True))
        image = struct
        if any(c.sql is not None for c in cells):
            values = (f"{struct}.{name}" for name in names)
            made = (c.sql.replace("{}", value) if c.sql else value for c, value in zip(cells, values, strict=True))
            image = f"if({struct} is null, null, cast(struct({', '.join(made)}) as struct<{types}>))"
        if self.placeholder is None:
            return image
        # Through JSON, because the code that Spark would make of one test per column would be too long for the JIT
        # compiler, and few messages come here.
        written = f"to_json({image}, {_WITH_ZONE})"
        for word in self._written_placeholders():
            written = f"replace({written}, {literal(word)}, 'null')"
        read = f"from_json({written}, {literal(f'struct<{types}>')}, {_WITH_ZONE})"
        return f"if(held and {struct} is not null, {read}, {image})"

    def _written_placeholders(self) -> tuple[str, str]:
        text = self.placeholder or ""
        return json.dumps(text, ensure_ascii=False), json.dumps(base64.b64encode(text.encode()).decode())

    def problem(self) -> str:
        """Spark SQL for the sentence that says why a datum can't be read; null where it can."""
        checks = []
        for side in ("before", "after"):
            for column, found in zip(self.table.columns, self._first.cells, strict=True):
                if found.checked and found.sql is not None:
                    value = f"datum.payload.{side}.{quote(column.name)}"
                    lost = f"{value} is not null and {found.sql.replace('{}', value)} is null"
                    sentence = f"A value of column '{column.name}' does not fit {column.logical.spark_type}."
                    checks.append(f"when {lost} then {literal(sentence)}")
        of_key = f"case when key is null or key_datum.mark = {MARK_VALUE}L then null"
        of_old = f"key_datum.mark = {MARK_VALUE}L" if self.keys else "false"
        otherwise = "'The value is no Avro datum of its schema.'"
        return (
            f"case when value is null then {of_key} else "
            f"coalesce({self._unnamed('key')}, 'The key is no Avro datum of its schema.') end "
            f"when not coalesce(datum.mark = {MARK_VALUE}L, false) "
            f"then coalesce({self._unnamed('value')}, {otherwise}) "
            f"when not coalesce(datum.payload.op in ({_OPERATIONS}), false) then "
            f"{literal(UNKNOWN_OPERATION_REASON)} "
            "when datum.payload.op in ('r', 'c', 'u') and datum.payload.after is null "
            "then 'The event carries no new row.' "
            f"when datum.payload.op = 'd' and datum.payload.before is null and not coalesce({of_old}, false) "
            f"then 'The event carries neither the old row nor a key.' {' '.join(checks)} end"
        )

    def _unnamed(self, side: Side) -> str:
        """Spark SQL for the sentence that says why a message part has no schema."""
        reasons = {head: literal(why) for (of, head), why in self.problems.items() if of == side}
        return f"{self.framing.problem(side)}, {search_tree(f'{side}_head', reasons)}"

    def _key_text(self, key: str) -> str:
        columns = [self.table.column(name) for name in self.key]
        if not columns or any(column.logical.kind not in _UNESCAPED for column in columns):
            return key_text(key)
        # Digits need no escapes, so no JSON has to be written.
        texts = [f"""coalesce(concat('"', {key}[{literal(c.name)}], '"'), 'null')""" for c in columns]
        joined = ", ',', ".join(texts)
        return f"if({key} is null, null, concat('[', {joined}, ']'))"

    def _absent(self, image: str) -> str:
        lacking = search_tree(
            "value_head", {head: _names(found.absent) for head, found in self.readers.items() if found.absent}
        )
        struct = f"datum.payload.{image}"
        if self.placeholder is None:
            return f"cast(if({struct} is null, null, {lacking}) as array<string>)"
        # Names on the wire are letters, digits and underscores.
        words = "|".join(re.escape(word) for word in self._written_placeholders())
        pattern = literal(f'"([A-Za-z0-9_]+)":(?:{words})')
        found = f"regexp_extract_all(to_json({struct}), {pattern}, 1)"
        both = found if lacking == "null" else f"concat({found}, coalesce({lacking}, array()))"
        sql = f"case when {struct} is null then null when held then {both} else {lacking} end"
        return f"cast({sql} as array<string>)"

    def _source(self, source: str) -> str:
        pairs = [
            (literal(name), f"{source}.{quote(name)}" if text else f"cast({source}.{quote(name)} as string)", optional)
            for name, optional, text in self._first.facts
            if name not in _OWN
        ]
        # No higher-order function here: it would keep all of this out of generated code. What a connector usually
        # sends is one map; else it is put together, which costs several times as much.
        usual = [(name, value) for name, value, optional in pairs if not (optional and name in _SELDOM)]
        expected = [
            f"{value} is {'' if name in _SELDOM else 'not '}null" for name, value, optional in pairs if optional
        ]
        whole = f"map({', '.join(f'{name}, {value}' for name, value in usual)})"
        if not expected:
            return whole
        always = ", ".join(f"{name}, {value}" for name, value, optional in pairs if not optional)
        maybe = [f"if({value} is null, map(), map({name}, {value}))" for name, value, optional in pairs if optional]
        return f"if({' and '.join(expected)}, {whole}, map_concat({', '.join([f'map({always})', *maybe])}))"


def _names(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"


def _replaceable(column: Column) -> bool:
    return column.logical.spark_type in ("string", "binary")


def _placeholder(column: Column, text: str) -> str:
    return f"X'{text.encode().hex()}'" if column.logical.spark_type == "binary" else literal(text)
