"""SharePlex messages to change rows: one `from_json` per message, then expressions.

| operation | `data` | `key` | change row |
|---|---|---|---|
| insert | the new row | | `after` = data |
| update | the changed columns | the old row | `before` = key, `after` = key overlaid with data |
| update without key | what it has | | `after` = data, no `before` |
| delete | the old row (else in key) | | `before` |
| update before, update after | the old row, the new row | | one update, where both stand in one batch |

A column that stands in `data` as null was set to null; one that does not stand there did not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.changes.letter_case import lower, upper
from headrace.changes.typed import literal
from headrace.formats import messages, text_values
from headrace.formats.shareplex_images import META, MapImages, StructImages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WORDS = {
    "c": ("INS", "INSERT"),
    "u": ("UPD", "UPDATE"),
    "d": ("DEL", "DELETE"),
    "t": ("TRUNC", "TRUNCATE"),
    "drop": ("DROP COLUMN",),
    "old": ("UPDATE BEFORE",),
    "new": ("UPDATE AFTER",),
    "ddl": ("DDL",),
    "end": ("COMMIT",),
}
_HALF = '"op"\\s*:\\s*"\\s*[Uu][Pp][Dd][Aa][Tt][Ee][ _]+[BbAa]'
_TRUNCATE = r"^\s*truncate\s"
_TABLE_PART = '"(?:[^"]|"")+"|[^."]+'


def decoded(given: DataFrame, images: MapImages | StructImages, *, pair: bool) -> DataFrame:
    """The change rows of messages (Kafka's columns), lazily.

    With `pair`, the old image of an UPDATE AFTER is that of the UPDATE BEFORE in front of it. A job looks whether there
    are any; only then a window goes over those messages alone. A streaming DataFrame has no such window.
    """
    half = f"coalesce(cast(value as string) rlike {literal(_HALF)}, false)"
    if not pair or given.where(half).isEmpty():
        return _rows(_laid(given, images), images)
    whole = _rows(_laid(given.where(f"not {half}"), images), images)
    return whole.unionByName(_rows(_paired(_laid(given.where(half), images)), images))


def _laid(given: DataFrame, images: MapImages | StructImages) -> DataFrame:
    """Kafka's columns with what the message says."""
    meta = ", ".join(f"`{name}`: string" for name in META)
    words = ", ".join(f"'{word}', '{kind}'" for kind, of in _WORDS.items() for word in of)
    said = (
        f"map({words})[translate({upper('trim(p.meta.op)')}, '_', ' ')] as kind",
        f"{_table('p.meta.table')} as t",
        f"{text_values.instant('trim(p.meta.time)')} as committed",
        _number("seq", 1),
        _number("size", -1),
    )
    texts = given.selectExpr("*", "cast(value as string) as text")
    return images.laid(images.read(texts, f"struct<{meta}>", said))


def _number(name: str, part: int) -> str:
    """`seq` or `size`, else its part of `idx`."""
    otherwise = f"try_cast(substring_index(p.meta.idx, '/', {part}) as bigint)"
    return f"coalesce(try_cast(p.meta.{name} as bigint), {otherwise}) as {name}"


def _table(name: str) -> str:
    """`OWNER.TABLE`, the table alone, or three parts, quoted or not; null where it is none of them."""
    points = f"(octet_length({name}) - octet_length(replace({name}, '.', '')))"
    plain = messages.table(
        f"if({points} = 2, substring_index({name}, '.', 1), null)",
        f"if({points} > 0, substring_index(substring_index({name}, '.', -2), '.', 1), null)",
        f"substring_index({name}, '.', -1)",
    )
    valid = (
        f"{points} <= 2 and {name} <> '' and not startswith({name}, '.') and not endswith({name}, '.') "
        f"and not contains({name}, '..')"
    )
    unquoted = "if(startswith(p, '\"'), replace(substr(p, 2, length(p) - 2), '\"\"', '\"'), p)"
    parts = f"transform(regexp_extract_all({name}, {literal(_TABLE_PART)}, 0), p -> {unquoted})"
    quoted = messages.table(*(f"get(parts, size(parts) - {n})" for n in (3, 2, 1)))
    whole = f"{name} rlike {literal(f'^(?:{_TABLE_PART})(?:[.](?:{_TABLE_PART})){{0,2}}$')}"
    return (
        f"case when contains({name}, '\"') then if({whole}, transform(array({parts}), parts -> {quoted})[0], null) "
        f"when {valid} then {plain} end"
    )


def _paired(halves: DataFrame) -> DataFrame:
    """The messages, an UPDATE AFTER with the old image of the UPDATE BEFORE directly in front of it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    row = Window.partitionBy("topic", "partition", "meta.table", "meta.trans", "meta.rowid").orderBy("offset")
    prior = F.expr("struct(kind, seq, offset, old_image as image, old_absent as absent)")
    # Without a row id only the very next message can be the other half.
    fits = (
        "kind = 'new' and prior.kind = 'old' and (meta.rowid is not null or offset = prior.offset + 1) "
        "and coalesce(seq - prior.seq in (0, 1), true)"
    )
    kept = [name for name in halves.columns if name not in ("old_image", "old_absent")]
    return halves.withColumn("prior", F.lag(prior).over(row)).selectExpr(
        *kept,
        f"if({fits}, prior.image, old_image) as old_image",
        f"if({fits}, prior.absent, old_absent) as old_absent",
    )


def _rows(laid: DataFrame, images: MapImages | StructImages) -> DataFrame:
    statement = lower("coalesce(facts['ddl'], facts['sql'])")
    truncating = f"{statement} rlike {literal(_TRUNCATE)}"
    operation = (
        "case kind when 'new' then 'u' when 'old' then null when 'drop' then 'schema' "
        f"when 'ddl' then if(coalesce({truncating}, false), 't', 'schema') else kind end"
    )
    columns = {
        "op": f"if(value is null, 'tombstone', {operation})",
        "table": "t",
        "before": "if(kind = 'old', null, old_image)",
        "after": "new_image",
        "changed": "changed",
        "key": "row_key",
        "key_text": messages.key_text("row_key"),
        "event_time": "committed",
        "transaction": (
            "if(meta.trans is null and seq is null, null, named_struct('id', meta.trans, 'total_order', seq, "
            "'data_collection_order', null))"
        ),
        "source": "if(value is null, null, source)",
    }
    if isinstance(images, StructImages):
        columns |= {"before_absent": "if(kind = 'old', null, old_absent)", "after_absent": "new_absent"}
    return messages.change_rows(laid.selectExpr("*", f"{_source()} as source"), columns, error=_error())


def _source() -> str:
    facts = {
        "scn": "meta.scn",
        "rowid": "meta.rowid",
        "userid": "meta.userid",
        "size": "cast(size as string)",
        "posttime": "meta.posttime",
    }
    structural = {
        "ddl": "if(kind = 'ddl', coalesce(facts['ddl'], facts['sql']), null)",
        "ddl_kind": "if(kind = 'drop', 'drop_column', null)",
        "columns": "if(kind = 'drop', to_json(map_keys(facts)), null)",
    }

    def pairs(of: dict[str, str]) -> str:
        return "'connector', 'oracle', " + ", ".join(f"'{name}', {sql}" for name, sql in of.items())

    # Most messages have all facts or none; a filter costs more.
    return (
        f"case when facts is not null then map_filter(map({pairs(facts | structural)}), (k, v) -> v is not null) "
        f"when {' and '.join(f'{sql} is not null' for sql in facts.values())} then map({pairs(facts)}) "
        f"when coalesce({', '.join(facts.values())}) is null then map('connector', 'oracle') "
        f"else map_filter(map({pairs(facts)}), (k, v) -> v is not null) end"
    )


def _error() -> str:
    cases = {
        "value is null": "null",
        messages.not_utf8("value"): "'The value is not UTF-8.'",
        "unread": "'The value is no JSON object whose meta, data and key are objects.'",
        "behind": "'Something stands behind the JSON object.'",
        "meta is null": "'The message has no meta.'",
        "meta.op is null": "'The message has no meta.op.'",
        "kind is null": "concat('The operation is not known: ', substr(meta.op, 1, 80), '.')",
        "committed is null and trim(meta.time) <> ''": "concat('The time can\\'t be read: ', meta.time, '.')",
        "t is null and meta.table is not null": "concat('The table can\\'t be read: ', meta.table, '.')",
        "kind = 'c' and new_image is null": "'An insert has no data.'",
        "kind in ('u', 'new') and new_image is null": "'An update has neither data nor key.'",
        "kind in ('d', 'old') and old_image is null": "'A deleted or old row has neither data nor key.'",
    }
    return f"case {' '.join(f'when {test} then {sentence}' for test, sentence in cases.items())} else misfit end"
