"""Values that a message writes as text without saying their types, read by a structure that is known otherwise.

Two ways: to a Spark type (struct images), where a text that does not fit, or would lose something, is told apart; and
to canonical text (map images). Both are Spark SQL; the session's time zone plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.changes import Column, TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.typed import literal, quote

# A day, and midnight behind it at most.
_DAY = "^[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}([T ]00:00(:00([.]0+)?)?)?Z?$"
# A day and a clock with no more digits than Spark keeps, zeros aside. The day may have a sign and a long year.
_MICROS = "^[+-]?[0-9]{4,}[^+.Z]{2,15}([.][0-9]{1,6}0*)?"
_ZONED = "(Z|[+-][0-9]{2}:?[0-9]{2}(:?[0-9]{2})?)$"


def instant(text: str) -> str:
    """Spark SQL for a timestamp of a text that says its zone or means UTC; null where it is none."""
    # A day alone ends like an offset; only a clock can have one.
    zoned = f"if(contains({text}, ':') and {text} rlike {literal(_ZONED)}, try_cast({text} as timestamp), null)"
    return f"coalesce(try_cast(concat({text}, 'Z') as timestamp), {zoned})"


def typed_text(text: str, column: Column, binary: str = "base64") -> str:
    """Spark SQL for the value of the column's Spark type; null where the text does not fit.

    Args:
        text: SQL for the text; cheap to repeat.
        column: what it means.
        binary: how bytes are written, `base64` or `hex`.
    """
    kind = column.logical.spark_type
    if kind == "string":
        return canonical_text(text, column, binary)
    if kind == "binary":
        return f"try_to_binary({text}, '{binary}')"
    if kind == "timestamp":
        return instant(text)
    return f"try_cast({text} as {kind})"


def misfit(text: str, value: str, column: Column) -> str | None:
    """Spark SQL: whether `value`, which `typed_text` made of `text`, is not exactly what the text says.

    None where it always is. Never null where `text` is not null.
    """
    kind = column.logical.spark_type
    if kind == "string":
        return None
    # No more than six digits behind the point, and no zone behind them: most texts need no pattern.
    fraction = f"(length({text}) <= 26 and try_cast(substr({text}, 21) as int) is not null)"
    lost = {
        "date": f"(length({text}) > 10 and not {text} rlike {literal(_DAY)})",
        "timestamp_ntz": f"(length({text}) > 19 and not ({fraction} or {text} rlike {literal(_MICROS + 'Z?$')}))",
        "timestamp": f"(length({text}) > 26 and not {text} rlike {literal(_MICROS + '.{0,9}$')})",
        "float": f"(abs({value}) = float('Infinity') and not {lower(text)} like '%inf%')",
        "double": f"(abs({value}) = double('Infinity') and not {lower(text)} like '%inf%')",
    }.get(kind)
    if kind.startswith("decimal"):
        scale = column.logical.scale or 0
        # A cast to a decimal rounds; exponents are compared with more digits.
        wider = f"coalesce(try_cast({text} as decimal(38,{min(scale + 15, 38)})) <> {value}, true)"
        digits = f"substring_index({text}, '.', -1)"
        longer = f"length({digits}) > {scale} and length(rtrim('0', rtrim({digits}))) > {scale}"
        exponent = f"(contains({text}, 'e') or contains({text}, 'E'))"
        lost = f"if({exponent}, {wider}, contains({text}, '.') and {longer})"
    return f"({value} is null{f' or {lost}' if lost else ''})"


def typed_struct(struct: str, schema: TableSchema, binary: str = "base64") -> str:
    """Spark SQL for a struct of typed columns from a struct of texts; null where that is null."""
    fields = ", ".join(
        f"{literal(c.name)}, {typed_text(f'{struct}.{quote(c.name)}', c, binary)}" for c in schema.columns
    )
    return f"if({struct} is null, null, named_struct({fields}))"


def misfit_sentence(texts: str, typed: str, schema: TableSchema) -> str:
    """Spark SQL for a sentence that names the first column whose text does not fit its type; null where all fit."""
    tests = []
    for column in schema.columns:
        name = quote(column.name)
        text = f"{texts}.{name}"
        bad = misfit(text, f"{typed}.{name}", column)
        if bad is not None:
            start, end = f"Column '{column.name}' can't hold ", f" exactly: it is {column.logical.spark_type}."
            shown = f"substr({text}, 1, 80)"
            tests.append(f"when {text} is not null and {bad} then concat({literal(start)}, {shown}, {literal(end)})")
    return f"case {' '.join(tests)} end" if tests else "cast(null as string)"


def canonical_text(text: str, column: Column, binary: str = "base64") -> str:
    """Spark SQL for the canonical text of a text as it came; what does not look like the type stays as it is."""
    code = _CODES.get(column.logical.kind, "") if column.logical.kind != "bytes" or binary == "hex" else ""
    return _canonical(text, literal(code)) if code else text


def canonical_map(image: str, schemas: Sequence[TableSchema], table: str, binary: str = "base64") -> str:
    """Spark SQL for a map image of texts as canonical texts, by the structure of its table.

    Args:
        image: SQL for the map.
        schemas: the structures known; images of other tables stay as they are.
        table: SQL for the row's `table`.
        binary: how bytes are written.
    """
    plans = [
        f"when {is_table(schema, table)} then {_map(codes)}"
        for schema in schemas
        if (codes := codes_of(schema, binary))
    ]
    return coded_map(image, f"case {' '.join(plans)} end") if plans else image


def codes_of(schema: TableSchema, binary: str = "base64") -> dict[str, str]:
    """By column, how a text becomes canonical, for `coded_map`; without the columns whose texts stay as they are."""
    return {
        c.name: _CODES[c.logical.kind]
        for c in schema.columns
        if c.logical.kind in _CODES and (c.logical.kind != "bytes" or binary == "hex")
    }


def coded_map(image: str, codes: str) -> str:
    """Spark SQL for a map image of texts as canonical texts, by SQL for the codes of its columns (null for none)."""
    spelled = f"transform_values({image}, (k, v) -> {_canonical('v', 'codes[k]')})"
    return (
        f"if({image} is null, null, element_at(transform(array({codes}), codes -> "
        f"if(coalesce(size(codes), 0) = 0, {image}, {spelled})), 1))"
    )


_CODES = {"date": "d", "timestamp": "t", "instant": "i", "zoned_timestamp": "i", "bytes": "b"}


def _canonical(text: str, code: str) -> str:
    midnight = f"{text} rlike {literal(_DAY)}"
    zoned = f"replace({text}, ' ', 'T')"
    return (
        f"case {code} when 'd' then if(length({text}) > 10 and {midnight}, "
        f"regexp_replace({text}, '[T Z].*$', ''), {text}) "
        f"when 't' then replace(regexp_replace({text}, 'Z$', ''), 'T', ' ') "
        f"when 'i' then concat({zoned}, if(not contains({text}, ':') or {text} rlike {literal(_ZONED)}, '', 'Z')) "
        f"when 'b' then coalesce(replace(base64(try_to_binary({text}, 'hex')), '\\r\\n', ''), {text}) else {text} end"
    )


def is_table(schema: TableSchema, table: str) -> str:
    """A table is told by what both sides say: messages often lack a database, and a DDL's table has no name."""
    tests = [
        f"coalesce(nullif({table}.{part}, ''), {literal(said)}) = {literal(said)}"
        for part, said in (("database", schema.id.database), ("schema", schema.id.schema), ("name", schema.id.name))
        if said
    ]
    return " and ".join(tests) or "true"


def _map(texts: Mapping[str, str]) -> str:
    return f"map({', '.join(f'{literal(name)}, {literal(text)}' for name, text in texts.items())})"
