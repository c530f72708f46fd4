"""Where a Debezium message with its schema ends the schema and begins the payload.

A schema is many times as long as its payload. So a message is searched for that place once (`with_places`), and cut
there wherever a part of it is wanted (`parts`); a parser sees the payload only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes.typed import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACES = ("value_at", "key_at")
"""The columns that `with_places` adds."""

# How the converter and others that write the same order begin, and what stands between schema and payload.
_OPENINGS = (('{"schema":{', '},"payload":'), ('{"schema": {', '}, "payload": '))


@dataclass(frozen=True)
class Parts:
    """Spark SQL for the parts of a message's key or value.

    Args:
        schema: `{"schema":{...` without its last two braces; null where the message carries none.
        payload: the payload's JSON text, the whole text without a schema.
    """

    schema: str
    payload: str


def with_places(messages: DataFrame) -> DataFrame:
    """Beside the messages: at which byte the payloads of value and key begin, null where they have no schema."""
    return messages.selectExpr("*", *(f"{place(name)} as {name}_at" for name in ("value", "key")))


def place(column: str) -> str:
    """Spark SQL for the byte at which the payload begins in a binary column; null where it has no schema in front of a
    payload, behind the column's end where the payload is missing."""
    text = f"cast({column} as string)"
    whens = (
        f"when startswith({text}, {literal(opening)}) and endswith({text}, '}}') "
        f"then octet_length(substring_index({text}, {literal(middle)}, 1)) + {len(middle)}"
        for opening, middle in _OPENINGS
    )
    return f"case {' '.join(whens)} end"


def parts(column: str) -> Parts:
    """The parts of a binary column whose place stands beside it, cut as bytes where the converter wrote them in its own
    order. Another spelling is parsed."""
    text, at = f"cast({column} as string)", f"{column}_at"
    compact, spaced = (len(middle) for _, middle in _OPENINGS)
    between = f"if(startswith({text}, {literal(_OPENINGS[0][0])}), {compact}, {spaced})"
    fits = f"{at} <= octet_length({column})"
    head = f"cast(substr({column}, 1, {at} - {between}) as string)"
    cut = f"cast(substr({column}, {at} + 1, octet_length({column}) - {at} - 1) as string)"
    # Only texts that name both are parsed for them.
    odd = (
        f"contains({text}, '\"payload\"') and contains({text}, '\"schema\"') and startswith(ltrim({text}), '{{') "
        f"and from_json({text}, 'payload string').payload is not null and from_json({text}, 'op string').op is null"
    )
    found = f"from_json({text}, '`schema` string, payload string')"
    inner = f"nullif(rtrim('}}', {found}.schema), '')"
    whole = f"concat('{{\"schema\":', substr({found}.schema, 1, length({found}.schema) - 1))"
    return Parts(
        f"case when {fits} then {head} when {odd} and {inner} is not null then {whole} end",
        f"case when {fits} then {cut} when {odd} then {found}.payload else {text} end",
    )
