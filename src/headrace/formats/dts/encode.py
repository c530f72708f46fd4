"""Change rows to DTS records: one record per row, an image as an array with one value per column of the structure.

Map images are written by a plan that is joined by the row's structure, so that the cost does not grow with the number
of tables; struct images by one expression per column. Both stand in lambdas and are interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.refusal import unknown_structure
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.avro_decode import has_spark_avro
from headrace.formats.dts.facts import FACTS, MORE_FACTS
from headrace.formats.dts.record import FILLER
from headrace.formats.dts.schema import ARRAY, FIELDS, IMAGE, SOURCE_TYPES, TEXT, VALUE, record_text
from headrace.formats.dts.types import number_of
from headrace.formats.dts.written import PLAN, absent_value, let, plan_of, text_value, typed_value
from headrace.formats.encoding import topic_of
from headrace.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MISSING = OptionError(
    "Encoding format 'dts_avro' needs spark-avro, which the Spark session does not have.",
    remedy="Start it with spark.jars.packages=org.apache.spark:spark-avro_2.13:4.0.0.",
)

_OPERATIONS = {
    "c": "INSERT", "u": "UPDATE", "d": "DELETE", "r": "INIT", "t": "DDL", "begin": "BEGIN", "end": "COMMIT",
}  # fmt: skip
TAKEN = (
    "(op in ('c', 'u', 'd', 'r', 't', 'begin', 'end', 'heartbeat') or (op = 'schema' and source['ddl'] is not null))"
)
"""Spark SQL: whether a row gives a record."""

_FACTS = f"schema_id string, plan {PLAN}, key_names array<string>"
_Image = Callable[[str], str]
_CONNECTOR = "source['connector']"
_CONNECTORS = {name.lower(): name for name in SOURCE_TYPES if name != "OTHER"} | {
    "mariadb": "MySQL",
    "postgres": "PostgreSQL",
}


@dataclass(frozen=True)
class EncodePlan:
    """How records are written.

    Args:
        topic: the template of topics.
        born: whether records end with `bornTimestamp`.
        with_key: whether messages get the row's key as Kafka key, and so any partition, in place of none and
            partition 0.
    """

    topic: str
    born: bool
    with_key: bool

    def of_maps(self, changes: DataFrame, schemas: Sequence[TableSchema]) -> DataFrame:
        """Messages of rows with map images.

        Args:
            changes: has `schema_id`.
            schemas: the structures that it names.
        """
        from pyspark.sql import functions as F  # noqa: N812

        facts = [(s.fingerprint, plan_of(s), list(s.key) or None) for s in schemas]
        known = local_rows(changes.sparkSession, facts, _FACTS).withColumn("known", F.lit(True))
        rows = changes.where(TAKEN).join(F.broadcast(known), "schema_id", "left")
        unknown = unknown_structure()
        # A filter, because Spark leaves out a projected check whose result nobody reads.
        checked = rows.where(f"case when op not in ('c', 'u', 'd', 'r') or known then true else {unknown} end")

        def image(name: str) -> str:
            value = let("t", f"{name}[c.name]", text_value("t", "c", "micro"))
            each = f"if(map_contains_key({name}, c.name), {value}, {absent_value()})"
            return f"if({name} is null, null, transform(plan, c -> {each}))"

        fields = "transform(plan, c -> named_struct('name', c.name, 'dataTypeNumber', if(pg, c.pg, c.mysql)))"
        return self._messages(checked, image, fields, "key_names")

    def of_structs(self, changes: DataFrame, schema: TableSchema) -> DataFrame:
        """Messages of rows with struct images, which follow one structure."""
        plan = plan_of(schema)

        def image(name: str) -> str:
            values = [
                typed_value("i", column, entry, "micro") for column, entry in zip(schema.columns, plan, strict=True)
            ]
            whole = f"array({', '.join(values)})" if values else f"cast(array() as array<{VALUE}>)"
            names = f"array({', '.join(literal(c.name) for c in schema.columns)})"
            missing = f"array_contains({name}_absent, get({names}, n))"
            # Over the values that were made: their expressions are long, and stand here once.
            partial = f"if({name}_absent is null, w, transform(w, (v, n) -> if({missing}, {absent_value()}, v)))"
            made = let("i", name, let("w", whole, partial) if values else whole)
            return f"if({name} is null, null, {made})"

        def fields(kind: str) -> str:
            named = [
                f"named_struct('name', {literal(c.name)}, 'dataTypeNumber', {number_of(c, kind)})"
                for c in schema.columns
            ]
            return f"array({', '.join(named)})"

        keys = f"array({', '.join(map(literal, schema.key))})" if schema.key else "cast(null as array<string>)"
        return self._messages(changes.where(TAKEN), image, f"if(pg, {fields('p')}, {fields('m')})", keys)

    def _messages(self, rows: DataFrame, image: _Image, fields: str, keys: str) -> DataFrame:
        if not has_spark_avro(rows):
            raise MISSING
        source_type = f"case {lower(_CONNECTOR)} " + " ".join(
            f"when {literal(name)} then {literal(symbol)}" for name, symbol in _CONNECTORS.items()
        )
        position = "coalesce(source['sourcePosition'], position, '')"
        facts = rows.selectExpr("*", f"{source_type} else 'OTHER' end as source_type").selectExpr(
            "*",
            "source_type in ('PostgreSQL', 'PPAS') as pg",
            f"source_type in ('MySQL', 'PostgreSQL') and not contains({position}, '<->') as micro",
        )
        record = f"to_avro({self._record(image, fields, keys, position)}, {literal(record_text(born=self.born))})"
        partition, key = ("null", "cast(key_text as binary)") if self.with_key else ("0", "cast(null as binary)")
        made = facts.selectExpr(
            f"{topic_of(self.topic)} as topic",
            f"cast({partition} as int) as partition",
            f"{key} as key",
            f"{record} as value",
            "cast(null as array<struct<key:string,value:binary>>) as headers",
            "position",
        )
        # No reader may take it for a filler: the first number, which is 0, takes two bytes, which mean the same.
        longer = f"if(octet_length(value) = {FILLER}, concat(X'8000', substr(value, 2)), value) as value"
        return made.selectExpr(*(longer if name == "value" else name for name in made.columns))

    def _record(self, image: _Image, fields: str, keys: str, position: str) -> str:
        data = "op in ('c', 'u', 'd', 'r')"
        operations = " ".join(f"when '{op}' then '{name}'" for op, name in _OPERATIONS.items())
        operation = (
            f"case op {operations} when 'heartbeat' then if(source['operation'] = 'CHECKPOINT', 'CHECKPOINT', "
            "'HEARTBEAT') else if(source_type = 'MongoDB', 'COMMAND', 'DDL') end"
        )
        quoted = "if(source_type in ('MySQL', 'DRDS'), concat('`', replace(table.name, '`', '``'), '`'), "
        quoted += "concat('\"', replace(table.name, '\"', '\"\"'), '\"'))"
        statement = f"coalesce(nullif(source['ddl'], ''), concat('TRUNCATE TABLE ', coalesce({quoted}, '')))"
        columns = {
            "version": "0",
            "id": "coalesce(try_cast(source['id'] as bigint), try_cast(split_part(position, '/', 1) as bigint), 0L)",
            "sourceTimestamp": "coalesce(try_cast(source['sourceTimestamp'] as bigint), unix_seconds(event_time), 0L)",
            "sourcePosition": position,
            "safeSourcePosition": "coalesce(source['safeSourcePosition'], '')",
            "sourceTxid": "coalesce(nullif(transaction.id, ''), '0')",
            "source": "named_struct('sourceType', source_type, 'version', coalesce(source['version'], ''))",
            "operation": operation,
            "objectName": _object_name(),
            "processTimestamps": "from_json(source['processTimestamps'], 'array<bigint>')",
            "tags": _tags(keys, data),
            "fields": f"if({data}, named_struct('{TEXT}', cast(null as string), '{ARRAY}', {fields}), "
            f"cast(null as {FIELDS}))",
            "beforeImages": _image(f"if(op in ('u', 'd'), {image('before')}, null)", "cast(null as string)"),
            "afterImages": _image(
                f"if(op in ('c', 'u', 'r'), {image('after')}, null)",
                f"if(op in ('t', 'schema'), {statement}, null)",
            ),
        }
        if self.born:
            columns["bornTimestamp"] = (
                "coalesce(try_cast(source['bornTimestamp'] as bigint), unix_millis(capture_time), 0L)"
            )
        return f"named_struct({', '.join(f'{literal(name)}, {value}' for name, value in columns.items())})"


def _image(values: str, text: str) -> str:
    made = f"named_struct('{TEXT}', x.t, '{ARRAY}', x.v)"
    pair = f"named_struct('t', {text}, 'v', {values})"
    return let("x", pair, f"if(x.t is null and x.v is null, cast(null as {IMAGE}), {made})")


def _object_name() -> str:
    """The table's parts; a missing one in front is empty, because one part alone is the database."""

    def escaped(part: str) -> str:
        return f"replace({part}, '.', '\\\\u002E')"

    database, schema, name = (escaped(f"coalesce(table.{part}, '')") for part in ("database", "schema", "name"))
    has_name, has_schema = "coalesce(table.name, '') <> ''", "coalesce(table.schema, '') <> ''"
    parts = (
        f"case when op in ('begin', 'end', 'heartbeat') then null when {has_schema} then "
        f"concat({database}, '.', {schema}, '.', {name}) when {has_name} then concat({database}, '.', {name}) "
        f"else nullif({database}, '') end"
    )
    return f"coalesce(source['objectName'], {parts})"


def _tags(keys: str, data: str) -> str:
    """The source's facts that a record has no field for, and the key."""
    facts = ", ".join(literal(name) for name in (*FACTS, *MORE_FACTS))
    own = f"map_filter(coalesce(source, map()), (k, v) -> v is not null and k not in ({facts}))"
    kept = f"coalesce(from_json(source['tags'], 'map<string,string>'), {own})"
    key = f"to_json(map('PRIMARY', coalesce(map_keys(key), {keys})))"
    has_key = f"{data} and size(coalesce(map_keys(key), {keys})) > 0 and not map_contains_key(m, 'pk_uk_info')"
    other = f"{_CONNECTOR} <> '' and {_CONNECTOR} <> {lower('source_type')} and not map_contains_key(m, 'connector')"
    return let(
        "m",
        kept,
        f"map_concat(m, if({has_key}, map('pk_uk_info', {key}), cast(map() as map<string,string>)), "
        f"if({other}, map('connector', {_CONNECTOR}), cast(map() as map<string,string>)))",
    )
