"""Struct images of texts where an update carries one whole row and, of the other, only what differs.

Canal and Maxwell write so. `from_json` into structs can't tell a column that is null from one that is absent, so that
is seen from the text where a glance suffices; only other messages have their images read again, as maps.
"""

from __future__ import annotations

from headrace.changes import TableSchema
from headrace.changes.typed import literal, quote
from headrace.formats import exact_json
from headrace.formats.map_sql import names_sql
from headrace.wire.json_writer import to_text


def tail(divider: str, present: str) -> str:
    """Spark SQL for the column `tail`: `text` behind the last divider, which opens the partial row of an update.

    Null where `present` is false. A quote inside a string is escaped, so no value holds the divider.
    """
    return f"if({present}, substring_index(text, {literal(divider)}, -1), null) as tail"


def head_of(divider: str) -> str:
    """Spark SQL for the column `head`: `text` before that divider, or the whole text where `tail` is null."""
    # Cut as bytes: looking for the divider once more would cost as much as the first time.
    end = f"octet_length(text) - octet_length(tail) - {len(divider)}"
    return f"if(tail is null, text, cast(substr(cast(text as binary), 1, {end}) as string)) as head"


def unclear(schema: TableSchema, row: str, elsewhere: frozenset[str]) -> str:
    """Spark SQL: whether nulls of a message of one row may be absent columns.

    They are not where each null column of the whole row stands in `head` as null, and there is a `head`; whether a null
    is in the partial row is for the caller to ask of `tail`. May be true of a text with blanks that has no absent
    column.

    Args:
        schema: the columns.
        row: SQL for the whole row.
        elsewhere: names that also are fields of the message itself.
    """
    tests = []
    for column in schema.columns:
        value, word = f"{row}.{quote(column.name)}", literal(f"{to_text(column.name)}:null")
        tests.append(
            f"{value} is null" if column.name in elsewhere else f"({value} is null and not contains(head, {word}))"
        )
    return f"({' or '.join(tests) or 'false'} or (tail is not null and octet_length(tail) = octet_length(text)))"


def unmarked(image: str, schema: TableSchema) -> str:
    """Spark SQL for a struct of texts without the marks of exact numbers (`exact_json`)."""
    fields = ", ".join(f"{literal(c.name)}, {exact_json.unmarked(f'{image}.{quote(c.name)}')}" for c in schema.columns)
    return f"if(mark is null or {image} is null, {image}, named_struct({fields}))"


def overlaid(schema: TableSchema, *, partial: str, typed: str, whole: str, names: str) -> str:
    """Spark SQL for the other row of an update: the typed whole one with the partial one laid over it.

    Args:
        schema: the columns.
        partial: SQL for the partial row's texts.
        typed: SQL for the same, typed.
        whole: SQL for the typed whole row.
        names: SQL for the partial row as a map, where it was read again; else null.
    """
    fields = ", ".join(
        f"{literal(c.name)}, case when {partial}.{quote(c.name)} is not null then {typed}.{quote(c.name)} "
        f"when {names} is null or not map_contains_key({names}, {literal(c.name)}) then {whole}.{quote(c.name)} end"
        for c in schema.columns
    )
    return f"if({partial} is null, null, named_struct({fields}))"


def changed(schema: TableSchema, partial: str, names: str) -> str:
    """Spark SQL for the columns that the partial row carries; null without one."""
    carried = ", ".join(f"if({partial}.{quote(c.name)} is null, null, {literal(c.name)})" for c in schema.columns)
    return (
        f"case when {partial} is null then null when {names} is null then array_compact(array({carried})) "
        f"else array_intersect(map_keys({names}), {_names(schema)}) end"
    )


def absent(schema: TableSchema, *maps: str) -> str:
    """Spark SQL for the columns that none of the maps has; null where the first is, or where none is absent."""
    left = _names(schema)
    for image in maps:
        left = f"array_except({left}, coalesce(map_keys({image}), {names_sql(())}))"
    return f"if({maps[0]} is null, null, nullif({left}, {names_sql(())}))"


def _names(schema: TableSchema) -> str:
    return names_sql([column.name for column in schema.columns])
