"""Columns' defaults that are constants, as canonical texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from headrace.sources.postgresql.catalog_statements import TYPE_NAMES
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.refusals import PostgresError
from headrace.sources.postgresql.types import NativeType

_MOST_COLUMNS = 1_000
_TYPE = r'::(?:[a-z0-9_ .]|"(?:[^"]|"")+")+(?:\([0-9]+(?:,-?[0-9]+)?\))?[a-z ]*(?:\[\])*'
_NUMBER = r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_CONSTANT = re.compile(
    rf"""(?P<literal>E?'(?:[^'\\]|''|\\.)*'|B'[01]*'|{_NUMBER}|\({_NUMBER}\)|true|false)(?:{_TYPE})?""", re.DOTALL
)
_CAST_NUMBER = re.compile(rf"\(?\(?{_NUMBER}\)?(?:{_TYPE})?\)?(?:{_TYPE})?")


def is_constant(expression: str) -> bool:
    """Whether a default, as the server writes it, is a literal."""
    return bool(_CONSTANT.fullmatch(expression) or _CAST_NUMBER.fullmatch(expression))


def constant_defaults(connection: Connection, columns: Sequence[tuple[str | None, NativeType]]) -> list[str | None]:
    """The defaults that are constants, as canonical texts; null for others.

    The server says what a column of its type holds of each constant: it alone knows how it rounds.

    Args:
        connection: to the database.
        columns: the default as the server writes it, and the type.

    Raises:
        LostConnection: the connection broke.
    """
    found: list[str | None] = [None] * len(columns)
    at = [n for n, (expression, _) in enumerate(columns) if expression is not None and is_constant(expression)]
    if not at:
        return found
    natives = [columns[n][1] for n in at]
    names = connection.rows(TYPE_NAMES, ([native.oid for native in natives], [native.typmod for native in natives]))
    asked = [f"format('%s', ({columns[n][0]})::{name})" for n, (name,) in zip(at, names, strict=True)]
    for start in range(0, len(asked), _MOST_COLUMNS):
        part = asked[start : start + _MOST_COLUMNS]
        for place, text in zip(at[start : start + _MOST_COLUMNS], _answers(connection, part), strict=True):
            found[place] = None if text is None else _canonical(text, columns[place][1])
    return found


def _canonical(text: str, native: NativeType) -> str | None:
    found: str | None = native.texts(pa.array([text], pa.string()))[0].as_py()
    return found


def _answers(connection: Connection, asked: Sequence[str]) -> tuple[str | None, ...]:
    try:
        return connection.rows(f"SELECT {', '.join(asked)}")[0]
    except PostgresError:
        # One of them is a value that its type does not have: then inserts fail as well.
        half = len(asked) // 2
        return _answers(connection, asked[:half]) + _answers(connection, asked[half:]) if half else (None,)
