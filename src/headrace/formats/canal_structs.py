"""Canal messages of one known table to change rows with struct images: the fast path.

One `from_json` reads `data` and `old` as structs of texts, which are cast to the table's types. It can't tell a column
that is null from one that is absent, so that is seen from the text where a glance suffices (one row per message, no
null in `old`); only the other messages have their images read a second time, as maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.typed import literal, quote
from headrace.formats import exact_json
from headrace.formats.canal_decode import HEAD, IS_DATA, DecodePlan, columns, exploded, operations, read
from headrace.formats.canal_encode import json_text
from headrace.formats.canal_values import bytes_value, canonical_of, entry_of, names_sql
from headrace.formats.messages import change_rows, key_text
from headrace.formats.overlaid_structs import absent, changed, halves, overlaid, unclear, unmarked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEAD_NAMES = frozenset(
    ("database", "table", "type", "es", "ts", "id", "gtid", "isDdl", "sql", "pkNames", "mysqlType", "sqlType", "old",
     "data")
)  # fmt: skip
_OLD = '"old":['
_MAPS = f"data array<map<string,string>>, old array<map<string,string>>, {exact_json.BAD} string"


def decode(messages: DataFrame, schema: TableSchema, plan: DecodePlan) -> DataFrame:
    """The change rows, lazily."""
    image = f"struct<{','.join(f'{quote(c.name)}:string' for c in schema.columns)}>"
    ddl = f"data array<{image}>, old array<{image}>, {HEAD}, {exact_json.BAD} string"
    parsed = operations(read(messages, ddl), legacy_old=plan.legacy_old)
    rows = "coalesce(m.data, m.old)"
    old = "if(operation = 'u', m.old, null)"
    readable = f"{IS_DATA} and problem_found is null"
    # The problems of a single row are found behind the explosion, where no lambda is needed.
    found = (
        f"if({readable} and not single, coalesce({_first_problem(rows, schema, plan)}, "
        f"{_first_problem(old, schema, plan)}), problem_found)"
    )
    looked = (
        parsed.selectExpr(
            "*", f"coalesce(size({rows}) = 1, false) as single", *halves(_OLD, "operation = 'u' and m.old is not null")
        )
        .selectExpr("*", f"{readable} and {_unclear(schema, rows)} as unclear")
        .selectExpr(
            *(name for name in parsed.columns if name != "problem_found"),
            "single",
            f"if(unclear, from_json(text, {literal(_MAPS)}, {exact_json.OPTIONS}), null) as maps",
            f"{found} as problem_found",
        )
    )
    pairs = (
        f"transform({rows}, (d, i) -> named_struct('d', {unmarked('d', schema)}, "
        f"'o', {unmarked(f'get({old}, i)', schema)}, 'md', get(coalesce(maps.data, maps.old), i), "
        "'mo', if(operation = 'u', get(maps.old, i), null)))"
    )
    pair = f"struct<d:{image},o:{image},md:map<string,string>,mo:map<string,string>>"
    lines = exploded(looked, pairs, pair, plan, keep_value="single")
    return _rows(lines, schema, plan)


def _rows(lines: DataFrame, schema: TableSchema, plan: DecodePlan) -> DataFrame:
    typed = lines.selectExpr(
        "*",
        f"{_typed('pair.d', schema, plan)} as first",
        f"{_typed('pair.o', schema, plan)} as other",
    )
    problem = (
        "case when problem_found is not null then problem_found when not single then null "
        f"else coalesce({_problem('pair.d', 'first', schema)}, {_problem('pair.o', 'other', schema)}) end"
    )
    second = typed.selectExpr(
        "*",
        f"{overlaid(schema, partial='pair.o', typed='other', whole='first', names='pair.mo')} as second",
        f"{problem} as value_problem",
    )
    old_row, new_row = ("first", "second") if plan.legacy_old else ("second", "first")
    first_absent, second_absent = absent(schema, "pair.md"), absent(schema, "pair.md", "pair.mo")
    old_absent, new_absent = (first_absent, second_absent) if plan.legacy_old else (second_absent, first_absent)
    key = _key(schema, plan)
    return change_rows(
        second,
        columns(
            before=f"case operation when 'd' then first when 'u' then {old_row} end",
            after=f"case operation when 'c' then first when 'r' then first when 'u' then {new_row} end",
            before_absent=f"case operation when 'd' then {first_absent} when 'u' then {old_absent} end",
            after_absent=f"case operation when 'd' then null when 'u' then {new_absent} else {first_absent} end",
            changed=f"if(operation = 'u', {changed(schema, 'pair.o', 'pair.mo')}, null)",
            key=key,
            key_text=_key_text(schema, plan) if schema.key else key_text(key),
            schema_id=f"if(place is null, null, {literal(schema.fingerprint)})",
        ),
        error="value_problem",
        sub="coalesce(place, 0)",
    )


def _unclear(schema: TableSchema, rows: str) -> str:
    """Whether nulls may be absent columns. Of several rows: where there is any null, and in any update."""
    nulls = " or ".join(f"d.{quote(column.name)} is null" for column in schema.columns) or "false"
    one = unclear(schema, f"{rows}[0]", _OLD, _HEAD_NAMES)
    return f"if(single, {one}, operation = 'u' or exists({rows}, d -> {nulls}))"


def _typed(image: str, schema: TableSchema, plan: DecodePlan) -> str:
    fields = ", ".join(f"{literal(c.name)}, {_value(f'{image}.{quote(c.name)}', c, plan)}" for c in schema.columns)
    return f"if({image} is null, null, named_struct({fields}))"


def _value(text: str, column: Column, plan: DecodePlan) -> str:
    """Spark SQL for a text of the wire as the column's Spark type; null where it can't be that without loss."""
    kind = column.logical.spark_type
    entry = entry_of(column, base64=plan.base64)
    if kind == "binary":
        return f"try_to_binary({text}, 'base64')" if plan.base64 else bytes_value(text)
    if kind == "timestamp":
        zone = plan.zone or "UTC"
        zoned = f"{text} rlike '(Z|[+-][0-9]{{2}}:?[0-9]{{2}})\\\\z'"
        return f"try_cast(if({zoned}, {text}, concat({text}, {literal(' ' + zone)})) as timestamp)"
    if entry is not None:
        text = canonical_of(entry[1], text, names_sql(entry[2] or ()), plan.zone)
    if kind == "string":
        return text
    if kind.startswith("decimal"):
        return _decimal(text, column)
    if kind == "date":
        day = f"try_cast(substr({text}, 1, 10) as date)"
        return f"if(length({text}) = 10 or {text} rlike '^.{{10}}[ T]00:00:00([.]0+)?\\\\z', {day}, null)"
    if kind == "timestamp_ntz":
        # Spark would cut what is finer than microseconds.
        return f"if(length({text}) <= 26, try_cast({text} as timestamp_ntz), null)"
    return f"try_cast({text} as {kind})"


def _decimal(text: str, column: Column) -> str:
    """A cast that does not round: more digits than the scale must be zeros."""
    kind = column.logical.spark_type
    precision, scale = 20, 0
    if column.logical.kind == "decimal":
        precision, scale = column.logical.precision or 38, column.logical.scale or 0
    cast = f"try_cast({text} as {kind})"
    wide = f"try_cast({text} as decimal(38,{38 - (precision - scale)}))"
    plain = f"instr({text}, '.') = 0 or length({text}) - instr({text}, '.') <= {scale}"
    return f"if({plain}, {cast}, if({cast} = {wide}, {cast}, null))"


def _problem(image: str, typed: str, schema: TableSchema) -> str:
    """Spark SQL for what is wrong with a row: the first of its values that its column can't hold; null if none.

    A zero date of MySQL is none; it becomes null, as no Spark type has it.
    """
    branches = []
    for column in schema.columns:
        kind = column.logical.spark_type
        if kind == "string":
            continue
        text = f"{image}.{quote(column.name)}"
        zero = f" and instr({text}, '-00') = 0" if kind in ("date", "timestamp", "timestamp_ntz") else ""
        sentence = literal(f"A value of column '{column.name}' does not fit its type {kind}.")
        branches.append(f"when {text} is not null and {typed}.{quote(column.name)} is null{zero} then {sentence}")
    return f"case {' '.join(branches)} end" if branches else "cast(null as string)"


def _first_problem(rows: str, schema: TableSchema, plan: DecodePlan) -> str:
    """The first problem in an array of rows, without exploding it."""
    clean = unmarked("d", schema)
    typed = _typed("p.d", schema, plan)
    found = (
        f"transform({rows}, d -> transform(transform(array(named_struct('d', {clean})), "
        f"p -> named_struct('d', p.d, 't', {typed})), p -> {_problem('p.d', 'p.t', schema)})[0])"
    )
    return f"get(filter({found}, s -> s is not null), 0)"


def _key(schema: TableSchema, plan: DecodePlan) -> str:
    if schema.key:
        pairs = ", ".join(f"{literal(c.name)}, {_key_value(c, plan)}" for c in schema.key_columns)
        return f"if(pair.d is null, null, map({pairs}))"
    branches = " ".join(f"when {literal(c.name)} then {_key_value(c, plan)}" for c in schema.columns)
    names = names_sql([column.name for column in schema.columns])
    return (
        f"if(pair.d is not null and size(key_names) > 0 and size(array_except(key_names, {names})) = 0, "
        f"map_from_arrays(key_names, transform(key_names, k -> case k {branches} end)), null)"
    )


def _key_value(column: Column, plan: DecodePlan) -> str:
    """The canonical text of a key column of the newest row."""
    text = f"pair.d.{quote(column.name)}"
    if plan.legacy_old:
        text = f"coalesce(pair.o.{quote(column.name)}, {text})"
    entry = entry_of(column, base64=plan.base64)
    return text if entry is None else canonical_of(entry[1], text, names_sql(entry[2] or ()), plan.zone)


def _key_text(schema: TableSchema, plan: DecodePlan) -> str:
    texts = ", ".join(f"coalesce({json_text(_key_value(c, plan))}, 'null')" for c in schema.key_columns)
    return f"if(pair.d is null, null, concat('[', concat_ws(',', {texts}), ']'))"
