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
from headrace.formats.canal_decode import (
    HEAD,
    IS_DATA,
    DecodePlan,
    columns,
    head,
    key_names,
    null_rows,
    operations,
)
from headrace.formats.canal_encode import json_text, to_text
from headrace.formats.canal_values import bytes_value, canonical_of, each_name_once, entry_of, names_sql
from headrace.formats.messages import KAFKA_COLUMNS, change_rows, kafka_columns, key_text, position
from headrace.formats.overlaid_structs import absent, changed, head_of, overlaid, tail, unclear

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
    kafka = [name for name in KAFKA_COLUMNS if name != "value"]
    parsed = (
        kafka_columns(messages)
        .selectExpr(*kafka, "cast(value as string) as text")
        .selectExpr("*", f"from_json(text, {literal(ddl)}, {exact_json.OPTIONS}) as m")
    )
    known = operations(parsed, legacy_old=plan.legacy_old, rows_too=False)
    readable = f"({IS_DATA} and problem_found is null)"
    second = f" and (operation <> 'u' or {_SECOND} is not null)" if plan.legacy_old else ""
    plain = (
        f"size({_ROWS}) = 1 and {_FIRST} is not null{second} "
        f"and not ({unclear(schema, _FIRST, _HEAD_NAMES)} or {_inexact(schema)})"
    )
    halved = known.selectExpr("*", tail(_OLD, "operation = 'u' and m.old is not null")).selectExpr("*", head_of(_OLD))
    rows = halved.selectExpr(
        *kafka,
        # Of a message of several rows it would be copied for each.
        f"if(problem_found is not null or not {readable} or size({_ROWS}) = 1, text, null) as whole",
        "operation",
        "kind",
        "problem_found",
        f"{head(marked=False)} as m",
        "m.pkNames as named",
        f"{readable} as has_rows",
        f"case when not {readable} then array(cast(null as {_pair(image)})) "
        f"when {plain} then {_plain(image)} else {_others(image, schema, plan)} end as pairs",
    )
    lines = rows.selectExpr(*(n for n in rows.columns if n != "pairs"), "posexplode_outer(pairs) as (at, pair)")
    return _rows(lines, schema, plan)


_ROWS = "coalesce(m.data, m.old)"
_FIRST = f"get({_ROWS}, 0)"
_SECOND = "get(if(operation = 'u', m.old, null), 0)"


def _split() -> str:
    """Spark SQL that is false at no cost.

    It holds a lambda: Spark then keeps the projection out of whole-stage code and splits it into methods that are small
    enough for the JIT, which otherwise leaves them to the interpreter.
    """
    return "coalesce(exists(if(has_rows, null, array(0)), x -> x > 0), false)"


def _inexact(schema: TableSchema) -> str:
    """Whether a value of a message of one row may have been a JSON number with a fraction, or hold one.

    The parser gives those as a binary number's digits, always with a point. A text with a point that could be one must
    stand in the message as a string.
    """
    tests = [f"contains(m.{name}, '.')" for name in ("es", "ts", "id")]
    for column in schema.columns:
        if column.logical.spark_type != "string" and column.logical.kind not in ("decimal", "float32"):
            continue
        start = to_text(column.name) + ':"'
        for row, text in ((_FIRST, "head"), (_SECOND, "tail")):
            value = f"{row}.{quote(column.name)}"
            tests.append(
                f"(contains({value}, '.') and (ascii({value}) between 45 and 57 or ascii({value}) in (91, 123)) "
                f"and not contains({text}, concat({literal(start)}, substr({value}, 1, 1))))"
            )
    return " or ".join(f"coalesce({test}, false)" for test in tests)


def _pair(image: str) -> str:
    names = "map<string,string>"
    return f"struct<d:{image},o:{image},data_names:{names},old_names:{names},problem:string,text:string,plain:boolean>"


def _plain(image: str) -> str:
    """Spark SQL for the row of a plain message. Only what follows `"old":[` is read again where a null is there."""
    ddl = literal("old array<map<string,string>>")
    names = f"get(from_json(concat('{{{_OLD}', tail), {ddl}, {exact_json.OPTIONS}).old, 0)"
    return (
        f"array(named_struct('d', {_FIRST}, 'o', {_SECOND}, 'data_names', cast(null as map<string,string>), "
        f"'old_names', if(contains(tail, 'null'), {names}, null), "
        "'problem', cast(null as string), 'text', cast(null as string), 'plain', true))"
    )


def _others(image: str, schema: TableSchema, plan: DecodePlan) -> str:
    """Spark SQL for the rows of a message that is not plain: several rows, numbers with fractions, absent columns.

    Where one has a problem, the only element is the problem, with the text of the message.
    """
    mark, text = exact_json.exact("text")
    parsed = f"from_json({text}, {literal(_MAPS)}, {exact_json.OPTIONS})"
    sides = ", ".join(f"'{side}', transform(p.{side}, d -> {each_name_once('d')})" for side in ("data", "old"))
    maps = f"transform(array({parsed}), p -> named_struct({sides}))[0]"
    old = "if(operation = 'u', maps.old, null)"

    def struct(names: str) -> str:
        fields = ", ".join(
            f"{literal(c.name)}, {exact_json.unmarked(f'{names}[{literal(c.name)}]')}" for c in schema.columns
        )
        return f"if({names} is null, null, named_struct({fields}))"

    clean = (
        f"named_struct('d', {struct('d')}, 'o', {struct(f'get({old}, i)')}, "
        f"'data_names', d, 'old_names', get({old}, i))"
    )
    problem = ", ".join(
        f"transform(array({_typed(f'p.{side}', schema, plan)}), t -> {_problem(f'p.{side}', 't', schema)})[0]"
        for side in ("d", "o")
    )
    fields = "'d', p.d, 'o', p.o, 'data_names', p.data_names, 'old_names', p.old_names"
    made = (
        f"transform(transform(coalesce(maps.data, maps.old), (d, i) -> {clean}), "
        f"p -> named_struct({fields}, 'problem', coalesce({problem}), 'text', cast(null as string), 'plain', false))"
    )
    rows = f"flatten(transform(array({mark}), mark -> flatten(transform(array({maps}), maps -> {made}))))"
    worst = "get(filter(transform(rows, r -> r.problem), s -> s is not null), 0)"
    found = f"coalesce({null_rows(plan.legacy_old)}, if(rows is null, 'The rows are no objects.', {worst}))"
    wrong = (
        f"array(cast(named_struct('d', null, 'o', null, 'data_names', null, 'old_names', null, 'problem', {found}, "
        f"'text', text, 'plain', false) as {_pair(image)}))"
    )
    return f"flatten(transform(array({rows}), rows -> if({found} is null, rows, {wrong})))"


def _rows(lines: DataFrame, schema: TableSchema, plan: DecodePlan) -> DataFrame:
    key = _key(schema, plan)
    typed = lines.selectExpr(
        *(name for name in KAFKA_COLUMNS if name != "value"),
        "cast(coalesce(whole, pair.text) as binary) as value",
        "operation",
        "kind",
        "coalesce(problem_found, pair.problem) as problem_found",
        "m",
        *(() if schema.key else (f"{key_names(plan.keys, 'named')} as key_names",)),
        f"has_rows and pair.problem is null and not {_split()} as has_rows",
        "if(has_rows, at, null) as place",
        "pair",
        f"{_typed('pair.d', schema, plan)} as first",
        f"{_typed('pair.o', schema, plan)} as other",
    )
    problem = (
        "case when problem_found is not null then problem_found when pair.plain "
        f"then coalesce({_problem('pair.d', 'first', schema)}, {_problem('pair.o', 'other', schema)}) end"
    )
    laid = overlaid(schema, partial="pair.o", typed="other", whole="first", names="pair.old_names")
    first_absent = absent(schema, "pair.data_names")
    second_absent = absent(schema, "pair.data_names", "pair.old_names")
    old_row, new_row = ("first", laid) if plan.legacy_old else (laid, "first")
    if plan.legacy_old:
        old_absent, new_absent = first_absent, f"if(pair.o is null, null, {second_absent})"
    else:
        old_absent, new_absent = f"if(pair.o is null, null, {second_absent})", first_absent
    return change_rows(
        typed,
        columns(
            before=f"case operation when 'd' then first when 'u' then {old_row} end",
            after=f"case operation when 'c' then first when 'r' then first when 'u' then {new_row} end",
            before_absent=f"case operation when 'd' then {first_absent} when 'u' then {old_absent} end",
            after_absent=f"case operation when 'd' then null when 'u' then {new_absent} else {first_absent} end",
            changed=f"if(operation = 'u', {changed(schema, 'pair.o', 'pair.old_names')}, null)",
            key=key,
            key_text=_key_text(schema, plan) if schema.key else key_text(key),
            schema_id=f"if(place is null, null, {literal(schema.fingerprint)})",
            position=f"if(place > 0, {position('place')}, concat(lpad(coalesce(offset, 0L), 20, '0'), '/1/000000000'))",
        ),
        error=problem,
    )


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
        return f"if(octet_length({text}) = 10 or {text} rlike '^.{{10}}[ T]00:00:00([.]0+)?\\\\z', {day}, null)"
    if kind == "timestamp_ntz":
        # Spark would cut what is finer than microseconds.
        return f"if(octet_length({text}) <= 26, try_cast({text} as timestamp_ntz), null)"
    return f"try_cast({text} as {kind})"


def _decimal(text: str, column: Column) -> str:
    """A cast that does not round: more digits than the scale must be zeros."""
    kind = column.logical.spark_type
    precision, scale = 20, 0
    if column.logical.kind == "decimal":
        precision, scale = column.logical.precision or 38, column.logical.scale or 0
    cast = f"try_cast({text} as {kind})"
    wide = f"try_cast({text} as decimal(38,{38 - (precision - scale)}))"
    plain = f"not contains({text}, '.') or octet_length({text}) - instr({text}, '.') <= {scale}"
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
        zero = f" and not contains({text}, '-00')" if kind in ("date", "timestamp", "timestamp_ntz") else ""
        sentence = literal(f"A value of column '{column.name}' does not fit its type {kind}.")
        branches.append(f"when {text} is not null and {typed}.{quote(column.name)} is null{zero} then {sentence}")
    return f"case {' '.join(branches)} end" if branches else "cast(null as string)"


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
