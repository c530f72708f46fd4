"""DTS records to change rows.

1. spark-avro reads the record by the one schema that there is; both writers' records, by a byte put behind them.
2. A lambda reads the values of the images, whatever their branch, to canonical texts (`dts_values`).
3. `messages.change_rows` makes change rows. A record that can't be read is one `error` row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.changes import TableId, TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.avro_decode import avro_is_limited, has_spark_avro
from headrace.formats.dts_schema import ARRAY, ONLY_VERSION, TEXT, record_text
from headrace.formats.dts_types import KIND, column_of, expected_form
from headrace.formats.dts_values import ABSENT, let, read_value
from headrace.formats.messages import KAFKA_COLUMNS, change_rows, kafka_columns, key_text
from headrace.formats.structures import Structure, with_structures
from headrace.formats.text_values import is_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILLER = 48
"""The length of a value with which the broker fills gaps; 48 zero bytes would read as an INSERT."""
IS_FILLER = f"coalesce(octet_length(value) = {FILLER}, false)"

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

_DDL = f"r.afterImages.{TEXT}"
_OPERATION = (
    "case when value is null then 'tombstone' when filler then null when r.version is null then 'error' else "
    "case r.operation when 'INSERT' then 'c' when 'UPDATE' then 'u' when 'DELETE' then 'd' when 'INIT' then 'r' "
    f"when 'DDL' then 'ddl' when 'COMMAND' then if({_DDL} is null, null, 'ddl') when 'BEGIN' then 'begin' "
    "when 'COMMIT' then 'end' when 'HEARTBEAT' then 'heartbeat' when 'CHECKPOINT' then 'heartbeat' end end"
)
_IS_DATA = "coalesce(o in ('c', 'u', 'd', 'r'), false)"

MISSING = OptionError(
    "Format 'dts_avro' needs spark-avro, which the Spark session does not have.",
    remedy="Start it with spark.jars.packages=org.apache.spark:spark-avro_2.13:4.0.0.",
)


def is_careful(frame: DataFrame) -> bool:
    """Whether Avro's allocations have to be looked after, because the session does not limit them.

    Raises:
        OptionError: the session has no spark-avro.
    """
    if not has_spark_avro(frame):
        raise MISSING
    return not avro_is_limited(frame)


def read_record(*, careful: bool) -> str:
    """Spark SQL for the record in `value`; all its fields are null where the bytes are none.

    A zero behind the bytes is the last field of a record that has none, and of one that has it no field at all.

    Args:
        careful: whether Avro may allocate what lengths in the bytes say; they are then passed over first.
    """
    read = f"from_avro(concat(value, X'00'), {literal(record_text())}, map('mode', 'PERMISSIVE'))"
    if not careful:
        return read
    return f"if({_can_be_passed()}, {read}, null)"


def _can_be_passed() -> str:
    """Whether the bytes are a record of either writer, by passing over it, which allocates nothing."""
    options = f"map('mode', 'PERMISSIVE', 'avroSchema', {literal(ONLY_VERSION)})"
    return f"from_avro(value, {literal(record_text(born=False))}, {options}).version is not null"


def _read_old_record() -> str:
    """The same of a record without `bornTimestamp`, behind which stands what is no number."""
    options = f"map('mode', 'PERMISSIVE', 'avroSchema', {literal(record_text())})"
    return f"from_avro(value, {literal(record_text(born=False))}, {options})"


def records(messages: DataFrame, wanted: str, *, careful: bool) -> DataFrame:
    """The messages with their record `r` and what is known of it without looking at values.

    Args:
        messages: has Kafka's columns.
        wanted: Spark SQL: whether a message's record is wanted; of others all is null.
        careful: as in `read_record`.
    """
    kept = messages.columns
    first = messages.selectExpr(
        *kept, f"{IS_FILLER} as filler", f"{wanted} as wanted",
        f"if({wanted} and not {IS_FILLER}, {read_record(careful=careful)}, null) as r",
    )  # fmt: skip
    # Looked at after the first: only few have to be read so.
    again = "wanted and not filler and value is not null and r.version is null"
    if careful:
        # The record may end in what is no number only if all before was passed over.
        again += f" and {_can_be_passed()}"
    second = first.selectExpr(*kept, "filler", "wanted", f"if({again}, {_read_old_record()}, r) as r")
    known = second.selectExpr(*kept, "r", f"if(wanted, {_OPERATION}, null) as o")
    return known.selectExpr(
        *kept, "r", "o",
        f"{_problem()} as p",
        f"{KIND.format('r.source.sourceType')} as kind",
        "r.source.sourceType in ('MySQL', 'PostgreSQL') and not contains(r.sourcePosition, '<->') as micro",
    )  # fmt: skip


def all_texts(r: str, *more: str) -> str:
    """Spark SQL for all texts of a record but those of its values, one behind the other.

    Args:
        r: SQL for the record.
        more: SQL for further texts.
    """
    fields = ("sourcePosition", "safeSourcePosition", "sourceTxid", "source.version", "objectName")
    parts = (*(f"{r}.{field}" for field in fields), f"map_keys({r}.tags)", f"map_values({r}.tags)", *more)
    return f"concat_ws('', {', '.join(parts)})"


def _problem() -> str:
    """Why a record can't be read, as far as its values are not looked at."""
    size, texts = f"size(r.fields.{ARRAY})", all_texts("r", f"r.fields.{ARRAY}.name", _DDL)
    images = "".join(
        f"when r.{image}.{ARRAY} is not null and size(r.{image}.{ARRAY}) <> {size} "
        "then 'An image of the record has not as many values as there are fields.' "
        for image in ("beforeImages", "afterImages")
    )
    return (
        "case when o = 'error' then 'The value is no DTS record.' "
        f"when not is_valid_utf8({texts}) then 'A text of the record is no UTF-8.' "
        f"when o = 'ddl' and {_DDL} is null then 'The DDL record has no statement.' "
        f"when not {_IS_DATA} then null "
        "when r.objectName is null then 'The record of a row names no table.' "
        f"when r.fields.{ARRAY} is null then 'The record of a row has no fields.' "
        f"when size(array_distinct(r.fields.{ARRAY}.name)) <> {size} then 'Two fields of the record have one name.' "
        f"when o in ('c', 'u', 'r') and r.afterImages.{ARRAY} is null then 'The record has no new image.' "
        f"when o = 'd' and r.beforeImages.{ARRAY} is null then 'The record of a delete has no old image.' {images}end"
    )


def read_images(known: DataFrame) -> DataFrame:
    """The records with their fields' `names` and `numbers`, and `read_values`: the old and the new image's values."""
    each = read_value("v", f"get(r.fields.{ARRAY}, i).dataTypeNumber", "kind", "micro")
    before = f"if({_IS_DATA} and p is null and o in ('u', 'd'), r.beforeImages.{ARRAY}, null)"
    after = f"if({_IS_DATA} and p is null and o <> 'd', r.afterImages.{ARRAY}, null)"
    values = f"transform(array({before}, {after}), x -> if(x is null, null, transform(x, (v, i) -> {each})))"
    return known.selectExpr(
        "*",
        f"if({_IS_DATA} and p is null, r.fields.{ARRAY}.name, null) as names",
        f"if({_IS_DATA} and p is null, r.fields.{ARRAY}.dataTypeNumber, null) as numbers",
        f"if({_IS_DATA}, {values}, null) as read_values",
    )


def unreadable(image: str) -> str:
    """Spark SQL for the name of the first field of an image whose value can't be read; null if there is none."""
    bad = f"filter({image}, e -> e.form <> '{ABSENT}' and e.text is null)"
    place = f"cast(array_position(transform({image}, e -> e.form <> '{ABSENT}' and e.text is null), true) as int)"
    return f"if(size({bad}) > 0, get(names, {place} - 1), null)"


def value_problem() -> str:
    """Spark SQL for `p`, or the sentence about the first value that can't be read."""
    name = f"coalesce({unreadable('get(read_values, 0)')}, {unreadable('get(read_values, 1)')})"
    return f"coalesce(p, concat('The value of column \\'', {name}, '\\' is not what its type in the record says.'))"


def row_columns(keys: str) -> Mapping[str, str]:
    """Spark SQL over the records for the columns of their rows, but for the images and the key map.

    Args:
        keys: the names of the key columns.
    """
    statement = f"(o = 'ddl' and coalesce({_DDL} rlike {literal(_TRUNCATE)}, false))"
    return {
        "op": f"case when {statement} then 't' when o = 'ddl' then 'schema' else o end",
        "table": let("n", _names(), _table(f"if({statement}, {_truncated()}, null)")),
        "key_names": f"if({_IS_DATA}, {keys}, null)",
        "event_time": f"if({_known_time()}, timestamp_seconds(r.sourceTimestamp), null)",
        "snapshot": "if(o = 'r', 'true', null)",
        "transaction": "if(r.sourceTxid in ('', '0'), null, r.sourceTxid)",
        "source": f"if(o is null or o in ('error', 'tombstone'), null, {_source()})",
    }


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


def _truncated() -> str:
    """The table that a TRUNCATE names: a DDL's `objectName` is often only the database."""
    found = f"regexp_extract({_DDL}, {literal(_TRUNCATED)}, 1)"
    inner = "substr(q, 2, length(q) - 2)"
    unquoted = (
        f"case when startswith(q, '`') then replace({inner}, '``', '`') "
        f"when startswith(q, '\"') then replace({inner}, '\"\"', '\"') when startswith(q, '[') then {inner} else q end"
    )
    return f"nullif({let('q', found, unquoted)}, '')"


def _source() -> str:
    """The record's facts, and its tags. Where a tag has a fact's name, all tags stand in `tags` too, as JSON."""
    connector = f"coalesce(r.tags['connector'], nullif({lower('r.source.sourceType')}, 'other'), '')"
    values = (connector, "r.source.version", "cast(r.id as string)", "r.sourcePosition", "r.safeSourcePosition")
    own = ", ".join(map(literal, (*FACTS[1:], *MORE_FACTS)))
    optional = {
        "operation": "if(r.operation = 'CHECKPOINT', r.operation, null)",
        "sourceTimestamp": f"if({_known_time()} or r.sourceTimestamp = 0, null, cast(r.sourceTimestamp as string))",
        "bornTimestamp": "if(r.bornTimestamp = 0, null, cast(r.bornTimestamp as string))",
        "processTimestamps": "to_json(r.processTimestamps)",
        # Where it is more than the names of a table.
        "objectName": f"if({_IS_DATA} and size(split(r.objectName, '[.]')) > 3, r.objectName, null)",
        "ddl": f"if(o = 'ddl', {_DDL}, null)",
        "tags": f"if(exists(map_keys(r.tags), k -> k in ({own})), to_json(r.tags), null)",
    }
    facts = ", ".join(f"{literal(name)}, {value}" for name, value in zip(FACTS, values, strict=True))
    more = ", ".join(f"{literal(name)}, {value}" for name, value in optional.items())
    return (
        f"map_concat(map({facts}), map_filter(r.tags, (k, v) -> k not in ({own}, 'connector')), "
        f"map_filter(map({more}), (k, v) -> v is not null))"
    )


TRANSACTION = (
    "if(transaction is null, null, named_struct('id', transaction, 'total_order', cast(null as bigint), "
    "'data_collection_order', cast(null as bigint)))"
)
"""Spark SQL for a row's transaction, of the column that holds its id."""


def message_keys(fallback: Sequence[str], tag: str = "r.tags['pk_uk_info']") -> str:
    """Spark SQL for the key columns that a record names in its tags: the primary key, else the first unique one."""
    parsed = f"from_json({tag}, 'map<string,array<string>>')"
    named = let("m", parsed, "coalesce(m['PRIMARY'], get(map_values(m), 0))")
    given = f"array({', '.join(map(literal, fallback))})" if fallback else "cast(null as array<string>)"
    return f"array_distinct(coalesce(filter({named}, n -> n is not null), {given}))"


def decode_maps(messages: DataFrame, keys: Sequence[str], tables: Sequence[TableSchema] | None) -> DataFrame:
    """The change rows with images as maps, lazily, but for one job over a batch that looks for structures.

    Args:
        messages: has Kafka's columns.
        keys: the key columns where a record names none.
        tables: structures that the user gave; records' own are not looked at then.
    """
    kafka = kafka_columns(messages)
    read = read_images(records(kafka, "true", careful=is_careful(kafka)))
    facts = read.selectExpr(
        *KAFKA_COLUMNS,
        *(f"{sql} as {name}" for name, sql in row_columns(message_keys(keys)).items()),
        f"{value_problem()} as why", "names", "numbers", "read_values", "kind", "r.objectName as path",
    )  # fmt: skip
    sound = "why is null"
    rows = facts.selectExpr(
        *KAFKA_COLUMNS, "op", "table", "key_names", "event_time", "snapshot", "transaction", "source", "why",
        f"if({sound}, {_map('get(read_values, 0)')}, null) as before",
        f"if({sound}, {_map('get(read_values, 1)')}, null) as after",
        f"if({sound} and names is not null, {_structure()}, null) as structure",
    )  # fmt: skip
    row = "coalesce(after, before)"
    have = f"size(key_names) > 0 and size(array_except(key_names, map_keys({row}))) = 0"
    key = f"if({have}, map_from_arrays(key_names, transform(key_names, n -> {row}[n])), null)"
    keyed = rows.selectExpr("*", f"{key} as row_key")
    columns = {name: name for name in ("op", "table", "before", "after", "event_time", "snapshot", "source")} | {
        "key": "row_key",
        "key_text": key_text("row_key"),
        "transaction": TRANSACTION,
    }
    if tables is None:
        known = with_structures(keyed, "structure", _read_structure)
        return change_rows(known, {**columns, "schema_id": "schema_id"}, error="why", announced="table")
    return change_rows(keyed, {**columns, "schema_id": _given_id(tables)}, error="why")


def _map(image: str) -> str:
    """An image as a map of the values that it carries."""
    all_there = f"not exists({image}, e -> e.form <=> '{ABSENT}')"
    names = f"filter(names, (n, i) -> not (get({image}, i).form <=> '{ABSENT}'))"
    texts = f"filter({image}, e -> not (e.form <=> '{ABSENT}')).text"
    return f"if({all_there}, map_from_arrays(names, {image}.text), map_from_arrays({names}, {texts}))"


def _structure() -> str:
    """The text of a record's structure: its fields, and the forms that are not what the numbers make expect.

    Of sources whose numbers are not known only bytes are told from text: their forms differ from row to row.
    """
    new, old = (f"nullif(get(get(read_values, {n}), i).form, '{ABSENT}')" for n in (1, 0))
    form = f"coalesce({new}, {old})"
    same = f"f is null or f = {expected_form('kind', 'n')} or (kind = 'x' and f <> 'b')"
    forms = "transform(numbers, (n, i) -> " + let("f", form, f"if({same}, '', f)") + ")"
    return (
        "to_json(named_struct('k', kind, 'o', path, 'f', names, 'n', numbers, "
        f"'s', concat_ws(',', {forms}), 'p', key_names))"
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
    branches = " ".join(f"when {is_table(t, 'table')} then {literal(t.fingerprint)}" for t in tables)
    return f"case {branches} end" if branches else "null"
