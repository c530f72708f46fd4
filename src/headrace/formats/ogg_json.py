"""Oracle GoldenGate's JSON, one operation per message (GoldenGate for Big Data, `format=json`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.letter_case import upper
from headrace.changes.texts import moment_text
from headrace.changes.typed import literal, quote
from headrace.formats import exact_json, plain_json, text_values
from headrace.formats.base import COMMON, Format, topic_option
from headrace.formats.encoding import has_struct_images, struct_schema, topic_of, with_structures_known
from headrace.formats.features import Feature
from headrace.formats.map_sql import each_name_once, json_text, names_sql
from headrace.formats.messages import change_rows, kafka_columns, key_text, not_utf8, table
from headrace.formats.overlaid_structs import absent, unmarked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPERATIONS = {"I": "c", "U": "u", "D": "d", "T": "t"}
_LETTERS = {"c": "I", "r": "I", "u": "U", "d": "D", "t": "T"}
_FACTS = ("pos", "csn", "xid", "current_ts", "tokens")
_HEAD = (
    "`table` string, op_type string, op_ts string, current_ts string, pos string, csn string, xid string, "
    f"tokens string, primary_keys array<string>, {exact_json.BAD} string"
)
_ELSEWHERE = frozenset(("table", "op_type", "op_ts", "primary_keys", "before", "after", *_FACTS))
# A day and a clock, as GoldenGate writes them with a blank or a T between.
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?\z"


class OggJson(Format):
    """GoldenGate's operations: insert, update, delete and truncate, each with the images that it has.

    Decoding: `before` and `after` are taken as they are; a column that one does not hold (compressed updates hold the
    key and what changed) is absent. The table's name is read from its end: name, schema, container. `op_ts` is UTC and
    becomes `event_time`; `source` has `pos`, and `csn`, `xid`, `tokens` where they are written. The key is named by
    `primary_keys`. Encoding: images as they are; numbers as JSON numbers.

    Ordering: the offset. Idempotence: the rows alone decide the bytes. Process: expressions in executors.

    Source: spec/format_peers.md; seed samples of Oracle GoldenGate for Big Data.
    """

    name = "ogg_json"
    options = (*COMMON, topic_option())
    reads = frozenset(
        (
            Feature.TRUNCATE, Feature.TOMBSTONE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY,
            Feature.KEY_CHANGE, Feature.DATABASE, Feature.SCHEMA_NAME, Feature.EVENT_TIME, Feature.EVENT_MILLISECONDS,
            Feature.EVENT_MICROSECONDS, Feature.TRANSACTION, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.TRUNCATE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY, Feature.KEY_CHANGE,
            Feature.SCHEMA_NAME, Feature.EVENT_TIME, Feature.EVENT_MILLISECONDS, Feature.EVENT_MICROSECONDS,
            Feature.TRANSACTION,
        )
    )  # fmt: skip

    def decode(self, messages: DataFrame) -> DataFrame:
        """GoldenGate messages to change rows; with `schema`, images are structs of its types.

        Raises:
            OptionError: `schema` and `keys` contradict each other.
        """
        given, keys = self.settings["schema"], self.settings["keys"]
        if given is not None and given.single:
            return _decode_structs(messages, given.only(keys), keys)
        return _decode_maps(messages, keys, given.tables if given is not None else ())

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to GoldenGate messages; the Kafka key is the values of the row's key with `_` between.

        Raises:
            OptionError: a streaming DataFrame with map images without `schema`.
        """
        given, keys = self.settings["schema"], self.settings["keys"]
        if has_struct_images(changes):
            schema = struct_schema(changes, given, keys)
            before, after = (plain_json.of_struct(image, schema) for image in ("before", "after"))
            own = names_sql(schema.key) if schema.key else "null"
            return _written(changes, before, after, own, self.settings["topic"])
        known, schemas = with_structures_known(changes, given, owner="format 'ogg_json'", keys=keys)
        rows = plain_json.with_numbers(known, schemas).where(plain_json.known_filter())
        before, after = plain_json.of_map("before"), plain_json.of_map("after")
        own = "if(size(schema_key) > 0, schema_key, null)"
        return _written(rows, before, after, own, self.settings["topic"])


def _parsed(messages: DataFrame, image: str) -> DataFrame:
    mark, text = exact_json.exact("text")
    ddl = f"before {image}, after {image}, {_HEAD}"
    types = " ".join(f"when {literal(name)} then {literal(op)}" for name, op in _OPERATIONS.items())
    problem = (
        "case when value is null then null "
        f"when {not_utf8('value')} then 'The value is no UTF-8.' "
        f"when m is null or m.{exact_json.BAD} is not null then 'The value is no JSON object of GoldenGate\\'s form.' "
        # The parser reads the first value only.
        r"when not endswith(rtrim(' \\n\\r\\t', text), '}') then 'Something stands behind the JSON object.' "
        "when m.op_type is null then 'The message has no op_type.' "
        "when operation is null then concat('The operation ', m.op_type, ' is not known.') "
        "when operation in ('c', 'u') and m.after is null then 'The message has no image after the change.' "
        "when operation = 'd' and m.before is null then 'The message has no image before the change.' end"
    )
    return (
        kafka_columns(messages)
        .selectExpr("*", "cast(value as string) as text")
        .selectExpr("*", f"{mark} as mark")
        .selectExpr("*", f"from_json({text}, {literal(ddl)}, {exact_json.OPTIONS}) as m")
        .selectExpr(
            "*", f"case when value is null then 'tombstone' else case {upper('m.op_type')} {types} end end as operation"
        )
        .selectExpr("*", f"{problem} as problem_found")
    )


def _columns(key: str, **own: str) -> dict[str, str]:
    moment = exact_json.unmarked("m.op_ts")
    instant = f"if({moment} rlike {literal(_MOMENT)}, try_cast(concat({moment}, 'Z') as timestamp), null)"
    parts = "split(m.`table`, '[.]')"
    facts = {name: exact_json.unmarked(f"m.{name}") for name in _FACTS}
    # Where it is no time, the fact is all that is left of it.
    facts["op_ts"] = f"if({instant} is null, {moment}, null)"
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in facts.items())
    xid = exact_json.unmarked("m.xid")
    return {
        "op": "operation",
        "table": table(
            f"coalesce(array_join(slice({parts}, 1, greatest(size({parts}) - 2, 0)), '.'), '')",
            f"coalesce(get({parts}, size({parts}) - 2), '')",
            f"coalesce(get({parts}, size({parts}) - 1), '')",
        ),
        "key": key,
        "key_text": key_text("key_found"),
        "event_time": instant,
        "transaction": f"if({xid} is null, null, named_struct('id', {xid}, 'total_order', cast(null as bigint), "
        "'data_collection_order', cast(null as bigint)))",
        "source": f"if(operation = 'tombstone', null, map_filter(map('connector', 'oracle', {pairs}), "
        "(k, v) -> v is not null))",
        **own,
    }


def _key_names(keys: Sequence[str]) -> str:
    named = "array_distinct(filter(m.primary_keys, k -> k is not null))"
    return f"if(coalesce(size(m.primary_keys), 0) > 0, {named}, {names_sql(keys)})"


def _decode_maps(messages: DataFrame, keys: Sequence[str], tables: Sequence[TableSchema]) -> DataFrame:
    parsed = _parsed(messages, "map<string,string>")
    row = _columns("null")["table"]
    images = ("before", "after")
    once = parsed.selectExpr(
        "*", f"{row} as row_table", *(f"{each_name_once(f'm.{image}')} as {image}_once" for image in images)
    )
    plain = once.selectExpr("*", *(f"{exact_json.unmarked_map(f'{image}_once')} as {image}_plain" for image in images))
    spelled = plain.selectExpr(
        "*",
        *(f"{text_values.canonical_map(f'{i}_plain', tables, 'row_table')} as {i}_image" for i in images),
        f"{_key_names(keys)} as key_names",
    )
    image = "if(operation = 'd', before_image, after_image)"
    keyed = spelled.selectExpr(
        "*",
        f"if(operation in ('c', 'u', 'd') and size(key_names) > 0 and forall(key_names, k -> "
        f"map_contains_key({image}, k)), map_from_arrays(key_names, transform(key_names, k -> {image}[k])), null) "
        "as key_found",
    )
    ids = " ".join(
        f"when {text_values.is_table(schema, 'row_table')} then {literal(schema.fingerprint)}" for schema in tables
    )
    own = {
        "before": "if(operation in ('u', 'd'), before_image, null)",
        "after": "if(operation in ('c', 'u'), after_image, null)",
    }
    if ids:
        own["schema_id"] = f"if(operation in ('c', 'u', 'd'), case {ids} end, null)"
    return change_rows(keyed, _columns("key_found", **own), error="problem_found")


def _decode_structs(messages: DataFrame, schema: TableSchema, keys: Sequence[str]) -> DataFrame:
    fields = ",".join(f"{quote(c.name)}:string" for c in schema.columns)
    parsed = _parsed(messages, f"struct<{fields}>")
    present = exact_json.all_present([c.name for c in schema.columns], ["m.before", "m.after"], "text", _ELSEWHERE)
    maps = f"from_json(text, 'before map<string,string>, after map<string,string>', {exact_json.OPTIONS})"
    texts = parsed.selectExpr(
        "*",
        *(f"{unmarked(f'm.{i}', schema)} as {i}_texts" for i in ("before", "after")),
        f"if(problem_found is not null or ({present}), null, {maps}) as maps",
    )
    typed = texts.selectExpr(
        "*", *(f"{text_values.typed_struct(f'{i}_texts', schema)} as {i}_image" for i in ("before", "after"))
    )
    misfits = ", ".join(text_values.misfit_sentence(f"{i}_texts", f"{i}_image", schema) for i in ("before", "after"))
    newest = "if(operation = 'd', before_texts, after_texts)"
    if schema.key:
        pairs = ", ".join(
            f"{literal(c.name)}, {text_values.canonical_text(f'{newest}.{quote(c.name)}', c)}"
            for c in schema.key_columns
        )
        key = f"if({newest} is null, null, map({pairs}))"
    else:
        branches = " ".join(
            f"when {literal(c.name)} then {text_values.canonical_text(f'{newest}.{quote(c.name)}', c)}"
            for c in schema.columns
        )
        names = _key_names(keys)
        known = names_sql([c.name for c in schema.columns])
        key = (
            f"if({newest} is not null and size({names}) > 0 and size(array_except({names}, {known})) = 0, "
            f"map_from_arrays({names}, transform({names}, k -> case k {branches} end)), null)"
        )
    found = typed.selectExpr(
        "*",
        f"coalesce(problem_found, {misfits}) as value_problem",
        f"if(operation in ('c', 'u', 'd') and problem_found is null, {key}, null) as key_found",
    )
    return change_rows(
        found,
        _columns(
            "key_found",
            before="if(operation in ('u', 'd'), before_image, null)",
            after="if(operation in ('c', 'u'), after_image, null)",
            before_absent=f"if(operation in ('u', 'd'), {absent(schema, 'maps.before')}, null)",
            after_absent=f"if(operation in ('c', 'u'), {absent(schema, 'maps.after')}, null)",
            schema_id=f"if(operation in ('c', 'u', 'd'), {literal(schema.fingerprint)}, null)",
        ),
        error="value_problem",
    )


def _written(rows: DataFrame, before: str, after: str, own_key: str, topic: str) -> DataFrame:
    letters = " ".join(f"when '{op}' then '\"{letter}\"'" for op, letter in _LETTERS.items())
    path = "concat_ws('.', nullif(table.database, ''), nullif(table.schema, ''), nullif(table.name, ''))"
    now = f"replace({moment_text('unix_micros(capture_time)', 'timestamp', 6, 6)}, ' ', 'T')"
    value = plain_json.members(
        ("table", json_text(path)),
        ("op_type", f"case op {letters} end"),
        ("op_ts", f"concat('\"', {moment_text('unix_micros(event_time)', 'timestamp', 6, 6)}, '\"')"),
        ("current_ts", f"concat('\"', {now}, '\"')"),
        ("pos", json_text("coalesce(source['pos'], position)")),
        ("xid", json_text("transaction.id")),
        ("primary_keys", f"to_json(coalesce(map_keys(key), {own_key}))"),
        ("before", f"if(op in ('u', 'd'), {before}, null)"),
        ("after", f"if(op in ('r', 'c', 'u'), {after}, null)"),
    )
    return rows.where("op in ('r', 'c', 'u', 'd', 't')").selectExpr(
        f"{topic_of(topic)} as topic",
        "cast(null as int) as partition",
        "if(key is null, null, cast(array_join(map_values(key), '_', '') as binary)) as key",
        f"cast({value} as binary) as value",
        "cast(null as array<struct<key:string,value:binary>>) as headers",
        "position",
    )
