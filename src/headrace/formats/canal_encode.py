"""Change rows to Canal messages: one message per row, all keys in Canal's order, values as strings.

The parts of a message that its table decides (`mysqlType`, `sqlType`, `pkNames`) are JSON texts made once per table.
Map images are written by a plan (as in `canal_values`), whose cost does not grow with the number of tables; struct
images by one expression per column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.refusal import unknown_structure
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats.canal_types import mysql_type_of
from headrace.formats.canal_values import PLAN, Entry, entry_of, names_sql, plan_of, wire_of, wire_text
from headrace.formats.encoding import topic_of
from headrace.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}
# How a DDL text begins, and Canal's word for it. Comments and blanks may stand before.
_BEFORE_DDL = r"(?i)\A(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|--[^\n]*+\n|#[^\n]*+\n)*+"
_DDL_TYPES = (
    (r"CREATE\s+(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?INDEX\b", "CINDEX"),
    (r"DROP\s+INDEX\b", "DINDEX"),
    (r"CREATE\s+(?:TEMPORARY\s+)?TABLE\b", "CREATE"),
    (r"DROP\s+(?:TEMPORARY\s+)?TABLE\b", "ERASE"),
    (r"ALTER\s+TABLE\b", "ALTER"),
    (r"RENAME\s+TABLE\b", "RENAME"),
    (r"TRUNCATE\b", "TRUNCATE"),
)
_NATIVE_DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")
_FACTS = f"schema_id string, plan {PLAN}, mysql_types string, sql_types string, key_names string"


@dataclass(frozen=True)
class EncodePlan:
    """How messages are written.

    Args:
        dts: whether as Alibaba DTS writes them: INIT for snapshot rows, whole old rows, short DDL messages.
        zone: the zone that instants are written in; UTC where None.
        base64: whether bytes are written as base64 and not as characters.
        topic: the template of topics.
        with_key: whether messages get the row's key as Kafka key.
    """

    dts: bool
    zone: str | None
    base64: bool
    topic: str
    with_key: bool

    @property
    def taken(self) -> str:
        """Spark SQL: whether a row gives a message."""
        return "op in ('r', 'c', 'u', 'd', 't') or (op = 'schema' and source['ddl'] is not null)"

    def facts(self, schema: TableSchema) -> tuple[str, list[Entry] | None, str, str, str | None]:
        """What a table says in each of its messages: its fingerprint, the plan, and JSON texts."""
        types = {c.name: mysql_type_of(c, zoned=self._zoned) for c in schema.columns}
        return (
            schema.fingerprint,
            plan_of(schema.columns, base64=self.base64),
            to_text({name: found.text for name, found in types.items()}),
            to_text({name: found.sql_type for name, found in types.items()}),
            to_text(list(schema.key)) if schema.key else None,
        )

    @property
    def _zoned(self) -> bool:
        return self.zone is not None

    def of_maps(self, changes: DataFrame, schemas: Sequence[TableSchema]) -> DataFrame:
        """Messages of rows with map images.

        Args:
            changes: has `schema_id`, and `has_types`: whether that is more than the names of columns.
            schemas: the structures that `schema_id` names.
        """
        from pyspark.sql import functions as F  # noqa: N812

        known = local_rows(changes.sparkSession, [self.facts(schema) for schema in schemas], _FACTS)
        rows = changes.where(self.taken).join(F.broadcast(known.withColumn("known", F.lit(True))), "schema_id", "left")
        # A filter, because Spark leaves out a projected check whose result nobody reads.
        checked = rows.where(
            f"case when op in ('schema', 't') or schema_id is null or known then true else {unknown_structure()} end"
        )
        old = "before" if self.dts else changed_of_maps()
        images = checked.selectExpr("*", f"if(op = 'u', {old}, null) as old_row")

        def written(image: str) -> str:
            return f"to_json({wire_of(image, 'plan', self.zone)})"

        return self._messages(
            images,
            data=f"case when op = 'd' then {written('before')} when op in ('r', 'c', 'u') then {written('after')} end",
            old=f"if(old_row is null, null, {written('old_row')})",
            mysql="if(has_types, mysql_types, null)",
            numbers="if(has_types, sql_types, null)",
            keys="coalesce(to_json(map_keys(key)), key_names)",
        )

    def of_structs(self, changes: DataFrame, schema: TableSchema) -> DataFrame:
        """Messages of rows with struct images, which follow one structure."""
        _, _, mysql, numbers, keys = self.facts(schema)
        return self._messages(
            changes.where(self.taken),
            data=f"case when op = 'd' then {self._object('before', schema)} "
            f"when op in ('r', 'c', 'u') then {self._object('after', schema)} end",
            old=f"if(op = 'u' and before is not null, {self._old_object(schema)}, null)",
            mysql=literal(mysql),
            numbers=literal(numbers),
            keys=f"coalesce(to_json(map_keys(key)), {'null' if keys is None else literal(keys)})",
        )

    def _member(self, image: str, column: Column) -> str:
        """`"name":"text"` or `"name":null` of a struct's column."""
        value = f"{image}.{quote(column.name)}"
        name = to_text(column.name)
        return f"coalesce(concat({literal(name + ':')}, {self._json(value, column)}), {literal(name + ':null')})"

    def _json(self, value: str, column: Column) -> str:
        """Spark SQL for a typed value as a JSON string."""
        kind = column.logical
        if kind.spark_type == "binary" and not self.base64:
            return json_text(f"decode({value}, 'ISO-8859-1')")
        if kind.kind == "boolean":
            return f"case when {value} then '\"1\"' when not {value} then '\"0\"' end"
        text = canonical_text(value, column)
        entry = entry_of(column, base64=self.base64)
        if entry is not None:
            text = wire_text(entry[1], text, names_sql(entry[2] or ()), self.zone)
        return json_text(text) if kind.spark_type == "string" else f"concat('\"', {text}, '\"')"

    def _object(self, image: str, schema: TableSchema) -> str:
        members = [self._member(image, column) for column in schema.columns]
        if not members:
            return f"if({image} is null, null, '{{}}')"
        separated = ", ',', ".join(members)
        carried = ", ".join(
            f"if(array_contains({image}_absent, {literal(c.name)}), null, {m})"
            for c, m in zip(schema.columns, members, strict=True)
        )
        return (
            f"case when {image} is null then null when {image}_absent is null then concat('{{', {separated}, '}}') "
            f"else concat('{{', concat_ws(',', {carried}), '}}') end"
        )

    def _old_object(self, schema: TableSchema) -> str:
        if self.dts:
            return self._object("before", schema)
        members = []
        for column in schema.columns:
            name = literal(column.name)
            old, new = f"before.{quote(column.name)}", f"after.{quote(column.name)}"
            same = (
                f"{old} <=> {new} and not coalesce(array_contains(changed, {name}), false) "
                f"and not coalesce(array_contains(after_absent, {name}), false)"
            )
            left_out = f"({same}) or coalesce(array_contains(before_absent, {name}), false)"
            members.append(f"if({left_out}, null, {self._member('before', column)})")
        return f"concat('{{', concat_ws(',', {', '.join(members) or 'null'}), '}}')"

    def _messages(self, rows: DataFrame, *, data: str, old: str, mysql: str, numbers: str, keys: str) -> DataFrame:
        ddl = "op in ('t', 'schema')"
        text = (
            "case op when 'schema' then source['ddl'] when 't' then coalesce(nullif(source['ddl'], ''), "
            "concat('TRUNCATE TABLE `', replace(coalesce(table.name, ''), '`', '``'), '`')) end"
        )
        words = {**_TYPES, "r": "INIT" if self.dts else "INSERT"}
        types = " ".join(f"when '{op}' then '{name}'" for op, name in words.items())
        starts = " ".join(f"when ddl_text rlike {literal(_BEFORE_DDL + s)} then '{name}'" for s, name in _DDL_TYPES)
        own = f"source['type'] in ({', '.join(map(literal, _NATIVE_DDL))})"
        ddl_type = f"case when op = 't' then 'TRUNCATE' when {own} then source['type'] {starts} else 'QUERY' end"
        if self.dts:
            ddl_type = "'DDL'"
        # id, gtid and ts are those of a Canal message where the row came from one.
        number = "coalesce(cast(try_cast(source['id'] as bigint) as string), '0')"
        es = "coalesce(cast(unix_millis(event_time) as string), 'null')"
        written = "coalesce(try_cast(source['ts'] as bigint), unix_millis(capture_time))"
        ts = f"coalesce(cast({written} as string), 'null')"
        gtid = "coalesce(source['gtid'], '')"
        database, name = json_text("coalesce(table.database, '')"), json_text("coalesce(table.name, '')")

        def array(item: str) -> str:
            return f"coalesce(concat('[', {item}, ']'), 'null')"

        row = ", ".join((
            "'{\"data\":'", array("data_json"), "',\"database\":'", database, "',\"es\":'", es,
            "',\"gtid\":'", json_text(gtid), "',\"id\":'", number, "',\"isDdl\":false,\"mysqlType\":'",
            f"coalesce({mysql}, 'null')", "',\"old\":'", array("old_json"), "',\"pkNames\":'",
            f"coalesce({keys}, 'null')", "',\"sql\":\"\",\"sqlType\":'", f"coalesce({numbers}, 'null')",
            "',\"table\":'", name,
            "',\"ts\":'", ts, "',\"type\":\"'", f"case op {types} end", "'\"}'",
        ))  # fmt: skip
        head = "'{'" if self.dts else "'{\"data\":null,'"
        middle = ("", "") if self.dts else ('"mysqlType":null,"old":null,"pkNames":null,', '"sqlType":null,')
        gtid_part = () if self.dts else ("',\"gtid\":'", json_text(gtid))
        statement = ", ".join((
            head, "'\"database\":'", database, "',\"es\":'", es, *gtid_part, "',\"id\":'", number,
            f"',\"isDdl\":true,{middle[0]}\"sql\":'", json_text("ddl_text"), f"',{middle[1]}\"table\":'", name,
            "',\"ts\":'", ts, "',\"type\":\"'", ddl_type, "'\"}'",
        ))  # fmt: skip
        made = rows.selectExpr("*", f"{data} as data_json", f"{old} as old_json", f"{text} as ddl_text")
        return made.selectExpr(
            f"{topic_of(self.topic)} as topic",
            "cast(null as int) as partition",
            f"cast({'key_text' if self.with_key else 'null'} as binary) as key",
            f"cast(if({ddl}, concat({statement}), concat({row})) as binary) as value",
            "cast(null as array<struct<key:string,value:binary>>) as headers",
            "position",
        )


def to_text(value: object) -> str:
    """JSON text without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_text(text: str) -> str:
    """Spark SQL for a text as a JSON string; null stays null."""
    escaped = f"to_json(array({text}))"
    return (
        rf"if({text} rlike '[\"\\\\\\x00-\\x1f]', substr({escaped}, 2, length({escaped}) - 2), "
        rf"concat('\"', {text}, '\"'))"
    )


def changed_of_maps() -> str:
    """Spark SQL for what an update's old image has other than the new one, and what the source says it changed."""
    named = "coalesce(array_contains(changed, {}), false)"
    differs = "not (map_values(before)[i] <=> map_values(after)[i])"
    aligned = (
        f"map_from_arrays(filter(map_keys(before), (k, i) -> {differs} or {named.format('k')}), "
        f"filter(map_values(before), (v, i) -> {differs} or {named.format('map_keys(before)[i]')}))"
    )
    apart = (
        f"map_filter(before, (k, v) -> not map_contains_key(after, k) or not (v <=> after[k]) or {named.format('k')})"
    )
    return (
        "case when before is null then null when after is null then before "
        f"when map_keys(before) = map_keys(after) then {aligned} else {apart} end"
    )
