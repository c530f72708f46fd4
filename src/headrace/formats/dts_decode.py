"""DTS records to change rows.

1. spark-avro reads the record by the one schema that there is; both writers' records, by a byte put behind them.
2. A lambda makes of it what a row needs: images as maps of canonical text here, as structs in `dts_structs`.
3. `messages.change_rows` makes change rows. A record that can't be read is one `error` row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableId, TableSchema
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.avro_decode import avro_is_limited, has_spark_avro
from headrace.formats.dts_schema import ARRAY, ONLY_VERSION, TEXT, record_text
from headrace.formats.dts_types import KIND, column_of, expected_form
from headrace.formats.dts_values import let, read_value
from headrace.formats.messages import change_rows, kafka_columns, key_text
from headrace.formats.structures import Structure, with_structures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILLER = 48
"""The length of a value with which the broker fills gaps; 48 zero bytes would read as an INSERT."""
_IS_FILLER = f"coalesce(octet_length(value) = {FILLER}, false)"

OPERATION = (
    "case r.operation when 'INSERT' then 'c' when 'UPDATE' then 'u' when 'DELETE' then 'd' when 'INIT' then 'r' "
    f"when 'DDL' then 'ddl' when 'COMMAND' then if(r.afterImages.{TEXT} is null, null, 'ddl') "
    "when 'BEGIN' then 'begin' when 'COMMIT' then 'end' when 'HEARTBEAT' then 'heartbeat' when 'CHECKPOINT' then 'heartbeat' end"
)
_IS_DATA = "o in ('c', 'u', 'd', 'r')"
FACTS = ("connector", "version", "id", "sourcePosition", "safeSourcePosition")
"""What a record says of its source beside the tags, as `source` has it; these stand in every row."""
MORE_FACTS = ("operation", "sourceTimestamp", "bornTimestamp", "processTimestamps", "objectName", "ddl", "tags")
"""Further facts, which stand in a row where they say something."""

# Python's datetimes end where Spark's do not.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
# What may stand before a word of SQL. Possessive, so that Java does not recurse on long texts.
_BLANKS = r"(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|--[^\n]*+\n|#[^\n]*+\n)"
_TRUNCATE = rf"(?i)\A{_BLANKS}*+TRUNCATE\b"
_PART = r'(?:`(?:[^`]|``)++`|"(?:[^"]|"")++"|\[[^\]]++\]|[^\s;.`"\[]++)'
_TRUNCATED = rf"(?i)\A{_BLANKS}*+TRUNCATE{_BLANKS}++(?:TABLE{_BLANKS}++)?+(?:{_PART}\.)*({_PART})"

MISSING = OptionError(
    "Format 'dts_avro' needs spark-avro, which the Spark session does not have.",
    remedy="Start it with spark.jars.packages=org.apache.spark:spark-avro_2.13:4.0.0.",
)


@dataclass(frozen=True)
class RowParts:
    """Spark SQL, over the record `r`, for what the two shapes of images make differently.

    Args:
        image: from SQL for an image (`r.beforeImages`, `r.afterImages`) to SQL for a struct with at least `image`,
            `absent` and `problem`; the image is an array of as many values as there are fields.
        keys: SQL for the names of the key columns.
        key: SQL for the key map of the images `b` and `a`, made by `image`.
        structure: SQL for the text of the record's structure, over `b`, `a` and the key's names `k`; null where it is
            given.
    """

    image: Callable[[str], str]
    keys: str
    key: str
    structure: str = "cast(null as string)"


def read_record(value: str, *, careful: bool) -> str:
    """Spark SQL for the record in bytes, of either writer; all its fields are null where the bytes are none.

    A zero behind the bytes is the last field of a record that has none, and of one that has it no field at all.

    Args:
        value: SQL for the bytes.
        careful: whether Avro may allocate what lengths in the bytes say, so that they are looked at first.
    """
    new, old = literal(record_text()), literal(record_text(born=False))
    mode = "'mode', 'PERMISSIVE'"
    either = f"from_avro(concat({value}, X'00'), {new}, map({mode}))"
    # What stands behind a record without the field may be no number.
    without = f"from_avro({value}, {old}, map({mode}, 'avroSchema', {new}))"
    read = let("w", either, f"if(w.version is null, {without}, w)")
    if not careful:
        return read
    return f"if({can_be_passed(value)}, {read}, null)"


def decode_rows(messages: DataFrame, parts: RowParts) -> DataFrame:
    """Kafka's columns, with a struct `d` of everything that a change row takes from its record.

    Raises:
        OptionError: the session has no spark-avro.
    """
    kafka = kafka_columns(messages)
    return kafka.selectExpr("*", f"{row_of(parts, careful=is_careful(kafka))} as d")


def is_careful(frame: DataFrame) -> bool:
    """Whether Avro's allocations have to be looked after, because the session does not limit them.

    Raises:
        OptionError: the session has no spark-avro.
    """
    if not has_spark_avro(frame):
        raise MISSING
    return not avro_is_limited(frame)


def row_of(parts: RowParts, *, careful: bool) -> str:
    """Spark SQL for a struct of everything that a change row takes from the record in `value`."""
    return let("r", record_of(careful=careful), _row(parts, _IS_FILLER))


def record_of(*, careful: bool) -> str:
    """Spark SQL for the record in `value`; null for a filler."""
    return f"if({_IS_FILLER}, null, {read_record('value', careful=careful)})"


def can_be_passed(value: str) -> str:
    """Spark SQL: whether the bytes are a record; looked at without allocating."""
    options = f"map('mode', 'PERMISSIVE', 'avroSchema', {literal(ONLY_VERSION)})"
    return f"from_avro({value}, {literal(record_text(born=False))}, {options}).version is not null"


def _row(parts: RowParts, filler: str) -> str:
    """A struct of the row's parts, over the record `r`."""
    ddl = f"r.afterImages.{TEXT}"
    operation = (
        f"case when value is null then 'tombstone' when {filler} then null when r.version is null then 'error' "
        f"else {OPERATION} end"
    )
    problem = (
        "case when o = 'error' then 'The value is no DTS record.' "
        f"when o = 'ddl' and {ddl} is null then 'The DDL record has no statement.' "
        f"when not coalesce({_IS_DATA}, false) then null "
        "when r.objectName is null then 'The record of a row names no table.' "
        f"when r.fields.{ARRAY} is null then 'The record of a row has no fields.' "
        f"when size(array_distinct(r.fields.{ARRAY}.name)) <> size(r.fields.{ARRAY}) "
        "then 'Two fields of the record have one name.' "
        f"when o in ('c', 'u', 'r') and r.afterImages.{ARRAY} is null then 'The record has no new image.' "
        f"when o = 'd' and r.beforeImages.{ARRAY} is null then 'The record of a delete has no old image.' "
        + "".join(
            f"when r.{image}.{ARRAY} is not null and size(r.{image}.{ARRAY}) <> size(r.fields.{ARRAY}) "
            "then 'An image of the record has not as many values as there are fields.' "
            for image in ("beforeImages", "afterImages")
        )
        + "end"
    )
    sound = f"coalesce({_IS_DATA}, false) and p is null"
    before = f"if({sound} and o in ('u', 'd'), {parts.image('r.beforeImages')}, null)"
    after = f"if({sound} and o <> 'd', {parts.image('r.afterImages')}, null)"
    statement = f"coalesce({ddl} rlike {literal(_TRUNCATE)}, false)"
    named = let("n", _names(), _table(f"if(o = 'ddl' and {statement}, {_truncated(ddl)}, null)"))
    row = (
        f"named_struct('op', case when o = 'ddl' then if({statement}, 't', 'schema') else o end, "
        f"'problem', coalesce(p, a.problem, b.problem), 'table', {named}, "
        "'before', b.image, 'after', a.image, 'before_absent', b.absent, 'after_absent', a.absent, "
        f"'key', if({sound}, {parts.key}, null), "
        f"'structure', if({sound} and a.problem is null and b.problem is null, {parts.structure}, null), "
        f"'event_time', if({_known_time()}, timestamp_seconds(r.sourceTimestamp), null), "
        "'snapshot', if(o = 'r', 'true', null), "
        "'transaction', if(r.sourceTxid in ('', '0'), null, r.sourceTxid), "
        f"'source', if(o is null or o in ('error', 'tombstone'), null, {_source(ddl)}))"
    )
    keys = f"if({sound}, {parts.keys}, null)"
    with_images = let("b", before, let("a", after, let("k", keys, row)))
    return let("o", operation, let("p", problem, with_images))


def _known_time() -> str:
    return f"r.sourceTimestamp <> 0 and r.sourceTimestamp between {FIRST_SECOND}L and {LAST_SECOND}L"


def _names() -> str:
    """The parts of `objectName`; a point inside one is written as an escape."""
    return r"transform(split(r.objectName, '[.]'), n -> regexp_replace(n, '(?i)\\\\u002E', '.'))"


def _table(truncated: str) -> str:
    """The table of the parts `n`: the database, then the table, with the schema between where there are three."""
    name = (
        f"case when size(n) = 1 then {truncated} when size(n) = 2 then n[1] "
        "else array_join(slice(n, 3, size(n)), '.') end"
    )
    return (
        "if(n is null, null, named_struct('database', nullif(n[0], ''), "
        f"'schema', nullif(if(size(n) > 2, n[1], null), ''), 'name', {name}))"
    )


def _truncated(ddl: str) -> str:
    """The table that a TRUNCATE names: a DDL's `objectName` is often only the database."""
    found = f"regexp_extract({ddl}, {literal(_TRUNCATED)}, 1)"
    quoted = let("q", found, _unquoted())
    return f"nullif({quoted}, '')"


def _unquoted() -> str:
    inner = "substr(q, 2, length(q) - 2)"
    return (
        f"case when startswith(q, '`') then replace({inner}, '``', '`') "
        f"when startswith(q, '\"') then replace({inner}, '\"\"', '\"') when startswith(q, '[') then {inner} else q end"
    )


def _source(ddl: str) -> str:
    """The record's facts, and its tags. A tag of a fact's name stands in `tags`, with all others, as JSON."""
    connector = "coalesce(r.tags['connector'], nullif(lower(r.source.sourceType), 'other'), '')"
    own = ", ".join(literal(name) for name in (*FACTS[1:], *MORE_FACTS))
    clash = f"exists(map_keys(r.tags), k -> k in ({own}))"
    optional = {
        "operation": "if(r.operation = 'CHECKPOINT', r.operation, null)",
        "sourceTimestamp": f"if({_known_time()} or r.sourceTimestamp = 0, null, cast(r.sourceTimestamp as string))",
        "bornTimestamp": "if(r.bornTimestamp = 0, null, cast(r.bornTimestamp as string))",
        "processTimestamps": "to_json(r.processTimestamps)",
        # Where it is more than the names of a table.
        "objectName": "if(o = 'ddl' or size(split(r.objectName, '[.]')) <= 3, null, r.objectName)",
        "ddl": f"if(o = 'ddl', {ddl}, null)",
        "tags": f"if({clash}, to_json(r.tags), null)",
    }
    kept = f"map_filter(r.tags, (k, v) -> k not in ({own}, 'connector'))"
    facts = ", ".join(
        f"{literal(name)}, {value}"
        for name, value in zip(
            FACTS,
            (connector, "r.source.version", "cast(r.id as string)", "r.sourcePosition", "r.safeSourcePosition"),
            strict=True,
        )
    )
    more = ", ".join(f"{literal(name)}, {value}" for name, value in optional.items())
    # None of the optional ones stands in most rows.
    any_more = " or ".join(f"{value} is not null" for value in optional.values())
    base = f"map_concat(map({facts}), {kept})"
    return f"if({any_more}, map_concat({base}, map_filter(map({more}), (k, v) -> v is not null)), {base})"


def row_columns(d: str = "d") -> dict[str, str]:
    """What `change_rows` takes from the struct."""
    is_row = f"{d}.op in ('c', 'u', 'd', 'r')"
    return {
        "op": f"{d}.op",
        "table": f"{d}.table",
        "before": f"{d}.before",
        "after": f"{d}.after",
        "before_absent": f"{d}.before_absent",
        "after_absent": f"{d}.after_absent",
        "key": f"if({is_row}, {d}.key, null)",
        "key_text": key_text(f"{d}.key"),
        "event_time": f"{d}.event_time",
        "snapshot": f"{d}.snapshot",
        "transaction": f"if({d}.transaction is null, null, named_struct('id', {d}.transaction, "
        "'total_order', cast(null as bigint), 'data_collection_order', cast(null as bigint)))",
        "source": f"{d}.source",
    }


def message_keys(fallback: Sequence[str], tag: str = "r.tags['pk_uk_info']") -> str:
    """Spark SQL for the key columns that a record names in its tags: the primary key, else the first unique one."""
    parsed = f"from_json({tag}, 'map<string,array<string>>')"
    named = let("m", parsed, "coalesce(m['PRIMARY'], get(map_values(m), 0))")
    given = f"array({', '.join(map(literal, fallback))})" if fallback else "cast(null as array<string>)"
    return f"coalesce(filter({named}, n -> n is not null), {given})"


def decode_maps(messages: DataFrame, keys: Sequence[str], tables: Sequence[TableSchema] | None) -> DataFrame:
    """The change rows with images as maps, lazily, but for one job over a batch that looks for structures.

    Args:
        messages: has Kafka's columns.
        keys: the key columns where a record names none.
        tables: structures that the user gave; records' own are not looked at then.
    """
    nothing = "cast(null as string)"
    parts = RowParts(_map_image, message_keys(keys), _map_key(), _structure() if tables is None else nothing)
    rows = decode_rows(messages, parts)
    columns = row_columns()
    if tables is None:
        known = with_structures(rows, "d.structure", _read_structure)
        return change_rows(known, {**columns, "schema_id": "schema_id"}, error="d.problem", announced="d.table")
    return change_rows(rows, {**columns, "schema_id": _given_id(tables)}, error="d.problem")


def _map_image(image: str) -> str:
    """A struct of the map and of what was seen on the way."""
    kind = KIND.format("r.source.sourceType")
    each = read_value("v", f"get(r.fields.{ARRAY}, i).dataTypeNumber", "kind", "micro")
    values = let("kind", kind, let("micro", is_micro(), f"transform({image}.{ARRAY}, (v, i) -> {each})"))
    entries = (
        f"filter(transform(x, (e, i) -> if(e.absent, null, struct(get(r.fields.{ARRAY}, i).name, e.text))), "
        "e -> e is not null)"
    )
    bad = f"get(filter(transform(x, (e, i) -> if(e.bad, get(r.fields.{ARRAY}, i).name, null)), n -> n is not null), 0)"
    made = (
        f"named_struct('image', map_from_entries({entries}), 'forms', x.form, 'absent', cast(null as array<string>), "
        f"'problem', concat('The value of column \\'', {bad}, '\\' is not what its type in the record says.'))"
    )
    return f"if({image}.{ARRAY} is null, null, {let('x', values, made)})"


def is_micro() -> str:
    """Spark SQL: whether the fraction of the record's DateTimes is microseconds, not nanoseconds."""
    return "(r.source.sourceType in ('MySQL', 'PostgreSQL') and not contains(r.sourcePosition, '<->'))"


def _map_key() -> str:
    row = "coalesce(a.image, b.image)"
    have = f"size(array_except(k, map_keys({row}))) = 0 and size(k) > 0"
    return f"if({have}, map_from_arrays(array_distinct(k), transform(array_distinct(k), n -> {row}[n])), null)"


def _structure() -> str:
    """The text of a record's structure: its fields, and the forms that are not what the numbers make expect.

    Of sources whose numbers are not known only bytes are told from text: their forms differ from row to row.
    """
    number = f"get(r.fields.{ARRAY}, i).dataTypeNumber"
    form = "coalesce(get(a.forms, i), get(b.forms, i))"
    same = f"{form} is null or {form} = {expected_form('kind', number)} or (kind = 'x' and {form} <> 'b')"
    forms = f"concat_ws(',', transform(r.fields.{ARRAY}, (f, i) -> if({same}, '', {form})))"
    kind = KIND.format("r.source.sourceType")
    return let(
        "kind",
        kind,
        f"to_json(named_struct('k', kind, 'o', r.objectName, 'f', r.fields.{ARRAY}.name, "
        f"'n', r.fields.{ARRAY}.dataTypeNumber, 's', {forms}, 'p', k))",
    )


def _read_structure(text: str) -> Structure:
    found = json.loads(text)
    parts = [part.replace("\\u002E", ".").replace("\\u002e", ".") for part in found["o"].split(".")]
    name = ".".join(parts[2:]) if len(parts) > 2 else parts[1] if len(parts) == 2 else ""
    id = TableId(parts[0], parts[1] if len(parts) > 2 else "", name)
    names = found.get("f") or []
    key = tuple(dict.fromkeys(k for k in found.get("p") or () if k in names))
    forms = found["s"].split(",")
    columns = tuple(
        column_of(name, n, found["k"], number, form, nullable=name not in key)
        for n, (name, number, form) in enumerate(zip(names, found["n"], forms, strict=True), 1)
    )
    return Structure(TableSchema(id, columns, key) if columns else None)


def _given_id(tables: Sequence[TableSchema]) -> str:
    """The fingerprint of the given structure of the row's table."""
    branches = " ".join(
        f"when coalesce(d.table.database, '') = {literal(t.id.database)} and coalesce(d.table.schema, '') = "
        f"{literal(t.id.schema)} and coalesce(d.table.name, '') = {literal(t.id.name)} then {literal(t.fingerprint)}"
        for t in tables
    )
    return f"case {branches} end" if branches else "null"
