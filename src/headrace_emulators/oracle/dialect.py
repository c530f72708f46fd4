"""Oracle's SQL as far as the emulator takes it, by sqlglot: functions stay what they are called."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.oracle import Oracle
from sqlglot.dialects.sqlite import SQLite

from headrace_emulators.oracle.errors import DatabaseError, NotSupportedError

KNOWN_FUNCTIONS = frozenset(
    ("TO_CHAR", "TO_NUMBER", "TO_DATE", "TO_TIMESTAMP", "RAWTOHEX", "HEXTORAW", "NVL", "ROWIDTOCHAR",
     "SYS_EXTRACT_UTC", "XMLTOCLOB", "COUNT", "MIN", "MAX", "MOD", "ROW_NUMBER", "COALESCE", "UPPER", "LENGTH", "TRIM")
)  # fmt: skip


_SERIALIZE = re.compile(r'XMLSERIALIZE\s*\(\s*CONTENT\s+("[^"]+"|\w+)\s+AS\s+CLOB\s*\)', re.IGNORECASE)


class PlainOracle(Oracle):
    """Oracle without sqlglot's ideas of what functions mean."""

    class Parser(Oracle.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}


class Backticked(SQLite):
    """SQLite with backticks: between double quotes an unknown name would be taken for a text."""

    class Tokenizer(SQLite.Tokenizer):
        """The tokenizer, of which the generator takes its quotes."""

        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]


def parsed(sql: str) -> Any:
    """One statement, which is the caller's to change.

    Raises:
        DatabaseError: it can't be read, or has a function that the emulator does not know.
    """
    return _parsed(sql).copy()


@lru_cache(maxsize=1024)
def _parsed(sql: str) -> Any:
    # Its arguments have a grammar of their own.
    sql = _SERIALIZE.sub(r"XMLTOCLOB(\1)", sql)
    try:
        tree = sqlglot.parse_one(sql, read=PlainOracle)
    except sqlglot.errors.SqlglotError as error:
        raise DatabaseError(933, f"SQL command not properly ended: {str(error).splitlines()[0]}") from None
    if isinstance(tree, exp.Command):
        raise NotSupportedError(sql.split()[0])
    for clock in list(tree.find_all(exp.CurrentTimestamp, exp.Systimestamp)):
        clock.replace(exp.column("SYSTIMESTAMP"))
    for call in tree.find_all(exp.Anonymous):
        if call.name.upper() not in KNOWN_FUNCTIONS:
            raise DatabaseError(904, f'"{call.name.upper()}": invalid identifier')
    return tree


def folded(identifier: exp.Identifier | None) -> str:
    """A name as the catalog has it: in capitals unless it was quoted."""
    if identifier is None:
        return ""
    name = str(identifier.this)
    return name if identifier.args.get("quoted") else name.upper()


def sqlite_text(tree: Any) -> str:
    """The statement for SQLite; every name is quoted, as `FIRST_CHANGE#` has to be. The tree is used up."""
    return str(tree.sql(dialect=Backticked, identify=True, copy=False))
