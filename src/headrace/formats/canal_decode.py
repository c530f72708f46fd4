"""Canal messages to change rows, with images as maps.

1. One `from_json` reads the message; numbers of other writers keep their digits (`exact_json`).
2. The rows of a message are laid beside their old rows, typed by the plan of their table, and exploded.
3. `messages.change_rows` makes change rows of them. A message that can't be read is one `error` row, never part of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableId, TableSchema
from headrace.changes.letter_case import lower, upper
from headrace.changes.typed import literal
from headrace.formats import exact_json
from headrace.formats.canal_types import structure_columns
from headrace.formats.canal_values import (
    PLAN,
    Entry,
    each_name_once,
    holds_other_than_bytes,
    names_sql,
    plan_of,
    values_of,
)
from headrace.formats.messages import KAFKA_COLUMNS, change_rows, kafka_columns, key_text, table
from headrace.formats.structures import Structure, with_structures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IS_DATA = "coalesce(operation in ('c', 'u', 'd', 'r'), false)"
"""Spark SQL: whether a message is of rows."""

DATA_TYPES = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "INIT": "r"}
DDL_TYPES = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "DDL")
NO_EVENT = ("QUERY", "GTID", "XACOMMIT", "XAROLLBACK")
HEARTBEAT = "MHEARTBEAT"
# Comments and blanks may stand before the word. Possessive, so that Java does not recurse on long texts.
_TRUNCATE = r"(?i)\A(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|--[^\n]*+\n|#[^\n]*+\n)*+TRUNCATE\b"
HEAD = (
    "database string, `table` string, type string, es string, ts string, id string, gtid string, isDdl string, "
    "`sql` string, pkNames array<string>"
)
_MESSAGE = (
    f"data array<map<string,string>>, old array<map<string,string>>, {HEAD}, mysqlType string, sqlType string, "
    f"{exact_json.BAD} string"
)
_TABLE = table("coalesce(m.database, '')", "''", "coalesce(m.`table`, '')")
# Spark's timestamps reach further, but Python's do not.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


@dataclass(frozen=True)
class DecodePlan:
    """How messages are read.

    Args:
        legacy_old: whether `data` holds the old row and `old` the new one, as DTS wrote before 2022-03-20.
        zone: the zone of `timestamp` texts; None where it is not known.
        base64: whether bytes come as base64 and not as characters.
        keys: the key columns, where messages name none.
        tables: structures that the user gave; their types are used and messages' own are not looked at.
    """

    legacy_old: bool = False
    zone: str | None = None
    base64: bool = False
    keys: Sequence[str] = ()
    tables: Sequence[TableSchema] | None = None


def structure_reader(plan: DecodePlan) -> Callable[[str], Structure]:
    """Reads what `_STRUCTURE` wrote; in executors too, so it holds nothing but the plan."""

    def read(text: str) -> Structure:
        found = json.loads(text)
        named = [name for name in found.get("k") or () if name is not None] or plan.keys
        columns = structure_columns(
            {name: kind if isinstance(kind, str) else None for name, kind in _object(found.get("m")).items()},
            _object(found.get("n")),
            frozenset(named),
            zoned=plan.zone is not None,
        )
        present = {column.name for column in columns}
        key = tuple(dict.fromkeys(name for name in named if name in present))
        schema = TableSchema(TableId(found.get("d") or "", "", found.get("t") or ""), columns, key)
        return Structure(schema if columns else None, plan_of(columns, base64=plan.base64))

    return read


def _object(text: str | None) -> dict[str, object]:
    """A JSON object, or nothing where the text is none: types are a help, and no reason to refuse the row."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def decode(messages: DataFrame, plan: DecodePlan) -> DataFrame:
    """The change rows, lazily, but for one job over a batch that looks for structures."""
    parsed = operations(_read(messages), legacy_old=plan.legacy_old)
    if plan.tables is None:
        parsed = with_structures(parsed, _STRUCTURE, structure_reader(plan), PLAN)
    else:
        parsed = _with_given(parsed, plan)
    rows = _rows(parsed, plan)
    return change_rows(
        rows,
        columns(
            before="before",
            after="after",
            key="key_map",
            key_text=key_text("key_map"),
            changed="changed",
            schema_id="if(place is null, null, schema_id)",
        ),
        error="problem_found",
        sub="coalesce(place, 0)",
        announced=_TABLE if plan.tables is None else None,
    )


def _read(messages: DataFrame) -> DataFrame:
    """Kafka's columns with `text`, the parsed message `m` and the mark of its numbers beside them."""
    texts = kafka_columns(messages).selectExpr("*", "cast(value as string) as text")
    mark, text = exact_json.exact("text")
    marked = texts.selectExpr("*", f"{mark} as mark")
    return marked.selectExpr("*", f"from_json({text}, {literal(_MESSAGE)}, {exact_json.OPTIONS}) as m")


def operations(parsed: DataFrame, *, legacy_old: bool = False, rows_too: bool = True) -> DataFrame:
    """The messages with their `kind` (`type` in capitals), their `operation`, and why one can't be read.

    Without `rows_too`, the caller looks for rows that are null.
    """
    types = " ".join(f"when {literal(name)} then {literal(op)}" for name, op in DATA_TYPES.items())
    ddl = f"{lower('m.isDdl')} = 'true' or kind in ({', '.join(map(literal, DDL_TYPES))})"
    known = ", ".join(map(literal, (*DATA_TYPES, *DDL_TYPES, *NO_EVENT, HEARTBEAT)))
    operation = (
        "case when text is null then 'tombstone' "
        f"when {ddl} then if(kind = 'TRUNCATE' or coalesce(m.`sql`, '') rlike {literal(_TRUNCATE)}, 't', 'schema') "
        f"when kind = {literal(HEARTBEAT)} then 'heartbeat' else case kind {types} end end"
    )
    problem = (
        "case when text is null then null "
        "when not is_valid_utf8(text) then 'The value is no UTF-8.' "
        f"when m is null or m.{exact_json.BAD} is not null then 'The value is no JSON object of the Canal form.' "
        # The parser reads the first value only.
        r"when not (endswith(text, '}') or text rlike '[}]\\s+\\z') then 'Something stands behind the JSON object.' "
        "when kind is null then 'The message has no type.' "
        f"when operation is null and kind not in ({known}) then concat('The type ', kind, ' is not known.') "
        f"when not {IS_DATA} then null "
        "when m.data is null and (m.old is null or operation = 'u') then "
        "if(m.old is null, 'The message has neither data nor old.', 'The update has no data.') "
        + (f"{_null_rows(legacy_old)} " if rows_too else "")
        + "when operation = 'u' and size(m.old) <> size(m.data) then "
        "concat('The message has ', size(m.data), ' rows in data and ', size(m.old), ' in old.') end"
    )
    return (
        parsed.selectExpr("*", f"{upper('m.type')} as kind")
        .selectExpr("*", f"{operation} as operation")
        .selectExpr("*", f"{problem} as problem_found")
    )


def _null_rows(legacy_old: bool) -> str:
    legacy = (
        "when operation = 'u' and (m.old is null or exists(m.old, d -> d is null)) then "
        "'The update has no new row in old.'"
    )
    null_row = "when exists(coalesce(m.data, m.old), d -> d is null) then 'A row of the message is null.'"
    return f"{null_row} {legacy}" if legacy_old else null_row


def null_rows(legacy_old: bool) -> str:
    """Spark SQL for what is wrong with the rows of a message of data as such; null where nothing is."""
    return f"case {_null_rows(legacy_old)} end"


_STRUCTURE = (
    "if(problem_found is null and " + IS_DATA + " and (m.mysqlType is not null "
    "or m.sqlType is not null), to_json(named_struct('m', m.mysqlType, "
    # Its numbers change with the values, so it only stands in for mysqlType.
    "'n', if(m.mysqlType is null, m.sqlType, null), 'k', m.pkNames, 'd', m.database, 't', m.`table`)), null)"
)


def _with_given(parsed: DataFrame, plan: DecodePlan) -> DataFrame:
    """The columns of `with_structures` from structures that the user gave, found by the names of their tables."""
    ids, plans = [], []
    for schema in plan.tables or ():
        here = (
            f"(coalesce(m.`table`, '') = {literal(schema.id.name)}"
            + (f" and coalesce(m.database, '') = {literal(schema.id.database)}" if schema.id.database else "")
            + ")"
        )
        ids.append(f"when {here} then {literal(schema.fingerprint)}")
        entries = plan_of(schema.columns, base64=plan.base64)
        if entries is not None:
            plans.append(f"when {here} then {plan_literal(entries)}")
    return parsed.selectExpr(
        "*",
        f"case {' '.join(ids)} end as schema_id" if ids else "cast(null as string) as schema_id",
        f"case {' '.join(plans)} end as plan" if plans else f"cast(null as {PLAN}) as plan",
        "cast(null as string) as new_schema",
    )


def plan_literal(entries: Sequence[Entry]) -> str:
    """A plan as Spark SQL."""
    made = []
    for name, code, labels in entries:
        texts = "cast(null as array<string>)" if labels is None else names_sql(labels)
        made.append(f"named_struct('name', {literal(name)}, 'code', {literal(code)}, 'labels', {texts})")
    return f"array({', '.join(made)})"


def _rows(parsed: DataFrame, plan: DecodePlan) -> DataFrame:
    """One line per row of a message, or one for a message without rows, whose `place` is null.

    Gives `before`, `after`, `changed` and `key_map` of each row.
    """
    from pyspark.sql.functions import expr

    data, old = "coalesce(m.data, m.old)", "if(operation = 'u', m.old, null)"

    def bytes_differ(rows: str) -> str:
        return f"exists({rows}, d -> d is not null and {holds_other_than_bytes('d', 'plan')})"

    no_bytes = (
        "case when problem_found is not null then problem_found "
        "when plan is null or not exists(plan, p -> p.code = 'bytes') then null "
        f"when {bytes_differ(data)} or (operation = 'u' and m.old is not null and {bytes_differ('m.old')}) "
        "then 'A column of bytes holds a character that stands for none.' end"
    )
    once = f"d -> {each_name_once('d')}"
    checked = parsed.withColumns(
        {
            "problem_found": expr(f"if({IS_DATA}, {no_bytes}, problem_found)"),
            "data_rows": expr(f"transform({data}, {once})"),
            "old_rows": expr(f"transform({old}, {once})"),
        }
    )
    first, other = exact_json.unmarked_map("d"), exact_json.unmarked_map("get(old_rows, i)")
    pairs = (
        f"transform(data_rows, (d, i) -> named_struct('d', {values_of(first, 'plan', plan.zone)}, "
        f"'o', {values_of(other, 'plan', plan.zone)}))"
    )
    lines = _exploded(checked, pairs, "struct<d:map<string,string>,o:map<string,string>>", plan)
    other_image = f"if(pair.o is null, null, {overlay('pair.d', 'pair.o')})"
    old_row, new_row = ("pair.d", other_image) if plan.legacy_old else (other_image, "pair.d")
    images = lines.selectExpr(
        "*",
        f"case operation when 'd' then pair.d when 'u' then {old_row} end as before",
        f"case operation when 'c' then pair.d when 'r' then pair.d when 'u' then {new_row} end as after",
        "if(operation = 'u', map_keys(pair.o), null) as changed",
    )
    image = "coalesce(after, before)"
    return images.selectExpr(
        "*",
        f"if(size(key_names) > 0 and forall(key_names, k -> map_contains_key({image}, k)), "
        f"map_from_arrays(key_names, transform(key_names, k -> {image}[k])), null) as key_map",
    )


def _exploded(checked: DataFrame, pairs: str, pair: str, plan: DecodePlan) -> DataFrame:
    """The messages with one line per row, as `pair`, and only what change rows need of the message.

    `pairs` is SQL for the rows of a message of data, `pair` their Spark type.
    """
    have = set(checked.columns)
    readable = f"{IS_DATA} and problem_found is null"
    lines = checked.selectExpr(
        *(name for name in KAFKA_COLUMNS if name != "value"),
        # Exploding would copy it for each row.
        "if(problem_found is null, null, value) as value",
        "operation",
        "kind",
        "problem_found",
        f"{head()} as m",
        f"{key_names(plan.keys)} as key_names",
        *(name for name in ("schema_id", "new_schema") if name in have),
        f"{readable} as has_rows",
        # Empty data gives one line without a place.
        f"posexplode_outer(if({readable}, {pairs}, array(cast(null as {pair})))) as (at, pair)",
    )
    announced = ["if(at > 0, null, new_schema) as new_schema"] if "new_schema" in have else []
    return lines.selectExpr(
        *(name for name in lines.columns if name not in ("at", "new_schema")),
        "if(has_rows, at, null) as place",
        *announced,
    )


def head(*, marked: bool = True) -> str:
    """Spark SQL for what change rows need of a message besides its rows; `marked` where there is a column `mark`."""
    names = ("database", "table", "es", "ts", "id", "gtid")
    facts = {name: exact_json.unmarked(f"m.`{name}`") if marked else f"m.`{name}`" for name in names}
    facts["sql"] = "m.`sql`"
    return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in facts.items())})"


def key_names(keys: Sequence[str], named: str = "m.pkNames") -> str:
    """Spark SQL for the names of a message's key columns, else `keys`."""
    distinct = f"array_distinct(filter({named}, k -> k is not null))"
    return (
        f"case when coalesce(size({named}), 0) = 0 then {names_sql(keys)} "
        f"when size({named}) = 1 and get({named}, 0) is not null then {named} else {distinct} end"
    )


def overlay(image: str, other: str) -> str:
    """Spark SQL for a map with the values of another laid over it; names that only the other has come last."""
    laid = f"transform_values({image}, (k, v) -> if(map_contains_key({other}, k), {other}[k], v))"
    extra = f"map_filter({other}, (k, v) -> not map_contains_key({image}, k))"
    return (
        f"case when map_keys({image}) = map_keys({other}) then {other} when size({other}) = 0 then {image} "
        f"when forall(map_keys({other}), n -> map_contains_key({image}, n)) then {laid} "
        f"else map_concat({laid}, {extra}) end"
    )


def columns(**own: str) -> dict[str, str]:
    """The columns of a change row by SQL over what `exploded` gives; `own` are those of the images."""
    number = "try_cast(m.es as bigint)"
    known = f"{number} between {_FIRST_MS} and {_LAST_MS}"
    facts = {
        "id": "m.id",
        "ts": "m.ts",
        "gtid": "nullif(m.gtid, '')",
        # Where it is no time, the fact is all that is left of it.
        "es": f"if({known}, null, m.es)",
        "type": "if(operation in ('schema', 't'), kind, null)",
        "ddl": "if(operation in ('schema', 't'), coalesce(m.`sql`, ''), null)",
        "sql": "if(operation in ('schema', 't'), null, nullif(m.`sql`, ''))",
    }
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in facts.items())
    return {
        "op": f"if(has_rows, if(place is null, null, operation), if({IS_DATA}, null, operation))",
        "table": _TABLE,
        "event_time": f"if({known}, timestamp_millis({number}), null)",
        "snapshot": "if(operation = 'r', 'true', null)",
        "transaction": "if(nullif(m.gtid, '') is null, null, named_struct('id', m.gtid, 'total_order', "
        "cast(null as bigint), 'data_collection_order', cast(null as bigint)))",
        # What most messages have is made without a look at the rest.
        "source": f"case when operation = 'tombstone' then null when {IS_DATA} and {known} and m.id is not null "
        "and m.ts is not null and coalesce(m.gtid, '') = '' and coalesce(m.`sql`, '') = '' "
        "then map('connector', 'mysql', 'id', m.id, 'ts', m.ts) "
        f"else map_filter(map('connector', 'mysql', {pairs}), (k, v) -> v is not null) end",
        **own,
    }
