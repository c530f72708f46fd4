"""T-SQL text to sqlglot's tree, keeping what the emulator needs: every function by its own name, every type apart."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import SqlglotError
from sqlglot.parsers.tsql import TSQLParser
from sqlglot.tokenizer_core import Token, TokenType

from headrace_emulators.sqlserver.errors import ProgrammingError, not_emulated
from headrace_emulators.sqlserver.types import SqlType, cast_type

__all__ = ["PLACEHOLDER", "EmulatedTSQL", "Token", "TokenType", "data_type", "numbered", "parse", "scan"]

PLACEHOLDER = "emulator_p"
"""How `?` is called inside of a statement, with its number: no variable of a user."""


class EmulatedTSQL(TSQL):
    """T-SQL without the shared meanings that make GETDATE and SYSDATETIME the same thing."""

    class Tokenizer(TSQL.Tokenizer):
        """Types that sqlglot folds into one stay apart, under tokens T-SQL does not use."""

        KEYWORDS = TSQL.Tokenizer.KEYWORDS | {
            "REAL": TokenType.UDOUBLE, "NTEXT": TokenType.MEDIUMTEXT, "DATETIME": TokenType.DATETIME,
        }  # fmt: skip

    class Parser(TSQLParser):
        """Functions stay calls by name; only those with a grammar of their own are parsed apart."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse
            for name, parse in TSQLParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "CONVERT", "TRY_CAST", "TRY_CONVERT")
        }


_DIALECT = EmulatedTSQL()
_NAMES = {
    "UTINYINT": "tinyint", "UDOUBLE": "real", "DOUBLE": "float", "FLOAT": "float", "MEDIUMTEXT": "ntext",
    "UUID": "uniqueidentifier",
    "TIMESTAMPTZ": "datetimeoffset", "ROWVERSION": "timestamp", "TIMESTAMP": "datetime2", "TINYINT": "tinyint",
    "BOOLEAN": "bit", "VARIANT": "sql_variant",
}  # fmt: skip


@lru_cache(maxsize=512)
def scan(text: str) -> tuple[Token, ...]:
    """The tokens of a text. Callers do not change them.

    Raises:
        ProgrammingError: a quote or comment that does not end.
    """
    try:
        return tuple(_DIALECT.tokenize(text))
    except SqlglotError as error:
        raise ProgrammingError(
            f"Unclosed quotation mark or bad character in the statement ({type(error).__name__}).", 105
        ) from error


def numbered(text: str) -> tuple[str, int]:
    """The text with each `?` made a numbered name, because a translation may move them; and how many there were."""
    if "?" not in text:
        return text, 0
    out, position, count = [], 0, 0
    for token in scan(text):
        if token.token_type is TokenType.PLACEHOLDER:
            count += 1
            out.append(text[position : token.start])
            out.append(f"@{PLACEHOLDER}{count}")
            position = token.end + 1
    return "".join(out) + text[position:], count


@lru_cache(maxsize=512)
def parse(text: str) -> exp.Expression:
    """One statement as a tree. Callers do not change it.

    Raises:
        ProgrammingError: sqlglot does not know it as T-SQL.
    """
    try:
        trees = _DIALECT.parse(text)
    except SqlglotError as error:
        raise not_emulated(f"the syntax ({str(error).splitlines()[0]})", text) from error
    if len(trees) != 1 or trees[0] is None:
        raise not_emulated("more than one statement without a semicolon between them", text)
    tree = trees[0]
    assert isinstance(tree, exp.Expression)
    return tree


def data_type(node: exp.DataType, statement: str) -> SqlType:
    """The type a CAST or CONVERT names."""
    kind = node.this.name if node.this is not exp.DataType.Type.USERDEFINED else str(node.args.get("kind"))
    sizes = [p.this.name if isinstance(p, exp.DataTypeParam) else p.name for p in node.expressions]
    text = _NAMES.get(kind.upper(), kind.lower()) + (f"({','.join(sizes)})" if sizes else "")
    try:
        return cast_type(text)
    except ProgrammingError as error:
        raise not_emulated(f"the type {kind}", statement) from error
