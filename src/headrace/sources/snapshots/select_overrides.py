"""Snapshots of a table by a SELECT of the user's own.

The statement becomes a derived table, of which the captured columns are selected with our own conversions: so
`SELECT *` does, columns more than needed do no harm, and values look as they do in the stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.changes import TableId
from headrace.errors import CaptureError, OptionError
from headrace.options import bare, items
from headrace.settings import Settings

_NAME = "snapshot_select_statement_overrides"
PREFIX = "snapshot.select.statement.overrides."
_REST = r"""|(?P<word>[^\W\d]\w*)|(?P<open>\()|(?P<close>\))|(?P<end>;)|(?P<bad>['"`\[]|/\*)|(?P<other>.)"""
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|\[(?:[^\]]|\]\])*\])""" + _REST, re.DOTALL
)
_MYSQL_TOKEN = re.compile(
    r"""(?P<skip>\s+|(?:#|--\s)[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|\[)""" + _REST,
    re.DOTALL,
)
_SETS = frozenset(("UNION", "EXCEPT", "INTERSECT"))


def selects(given: Any) -> dict[str, str | None]:
    """Statements by table, from a mapping or its JSON text; or just tables, as a list; used as an option's kind.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(given, str) and given.strip().startswith("{"):
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            raise ValueError("it is not a JSON object") from None
    if isinstance(given, Mapping):
        return {str(table).strip(): str(select) for table, select in given.items()}
    return dict.fromkeys(items(given))


class SelectOverrides:
    """The statements by which tables are snapshotted, where the options name one.

    Args:
        statements: SQL by table: `schema.table` or `database.schema.table`, whatever the case.
        for_mysql: whether the statements are those of MySQL and MariaDB.

    Raises:
        OptionError: a statement can't be used as a derived table.
    """

    def __init__(self, statements: Mapping[str, str], *, for_mysql: bool = False) -> None:
        self._statements = {
            bare(table).lower(): derived(select, table, for_mysql=for_mysql) for table, select in statements.items()
        }

    @classmethod
    def of(cls, settings: Settings, *, for_mysql: bool = False) -> SelectOverrides:
        """The statements that the options say.

        Args:
            settings: the source's options.
            for_mysql: as of the class.

        Raises:
            OptionError: a listed table has no statement, two text forms name one table, or a statement can't be used.
        """
        listed: Mapping[str, str | None] = settings.get(_NAME) or {}
        apart = {name[len(PREFIX) :]: text for name, text in (settings.get(PREFIX + "*") or {}).items()}
        statements = {table: select for table, select in listed.items() if select is not None}
        for table, select in apart.items():
            if table.lower() in {bare(name).lower() for name in statements}:
                raise OptionError(
                    f"Option '{_NAME}' has two statements for table '{table}'.", remedy="Keep one of them."
                )
            statements[table] = select
        known = {bare(name).lower() for name in statements}
        for table in listed:
            if bare(table).lower() not in known:
                raise OptionError(
                    f"Option '{_NAME}' names table '{table}' without a statement.",
                    remedy=f"Set '{PREFIX}{bare(table)}' to a SELECT.",
                )
        return cls(statements, for_mysql=for_mysql)

    def select(self, table: TableId) -> str | None:
        """The statement for a table, fit to stand in parentheses; None where the table is read itself."""
        return self._statements.get(table.full_path.lower(), self._statements.get(table.path.lower()))


def derived(select: str, table: str, *, for_mysql: bool = False) -> str:
    """A SELECT as it may stand in parentheses: without a closing semicolon, and with an ORDER BY that is legal there.

    Raises:
        OptionError: it is not one SELECT.
    """
    token = _MYSQL_TOKEN if for_mysql else _TOKEN
    body = _one_statement(select, table, token)
    words = list(_words(body, table, token))
    first = words[0] if words else ""
    if first == "WITH":
        raise _refused(table, "begins with WITH, which can't stand in a derived table", "Put it into a view.")
    if first != "SELECT" and not body.lstrip().startswith("("):
        raise _refused(table, "is no SELECT", "Write one SELECT statement.")
    if for_mysql:
        return body
    order = next((i for i in range(len(words) - 1, 0, -1) if words[i - 1 : i + 1] == ["ORDER", "BY"]), None)
    # Without TOP or OFFSET the server takes no ORDER BY in a derived table; TOP in a part of a UNION is not its own.
    bounded = "TOP" in [word for word in words[1:3] if word not in ("ALL", "DISTINCT")][:1]
    if order is None or {"OFFSET", "FETCH"} & set(words[order:]) or (bounded and not _SETS & set(words)):
        return body
    return f"{body}\nOFFSET 0 ROWS"


def failed(table: TableId, error: CaptureError) -> CaptureError:
    """The error that says that a statement did not do, and why."""
    return CaptureError(
        f"The statement of option '{_NAME}' for table '{table.path}' failed: {error.message}",
        remedy="It must give every captured column by its name, as SELECT * does.",
    )


def _one_statement(select: str, table: str, tokens: re.Pattern[str]) -> str:
    cut = None
    for token in tokens.finditer(select):
        if token["bad"]:
            raise _refused(table, "has a quote, bracket or comment that does not end", "Close it.")
        if token["end"]:
            cut = token.start() if cut is None else cut
        elif cut is not None and not token["skip"]:
            raise _refused(table, "is more than one statement", "Write one SELECT statement.")
    return select if cut is None else select[:cut]


def _words(select: str, table: str, tokens: re.Pattern[str]) -> Iterator[str]:
    """Words outside of parentheses, quotes and comments, in upper case."""
    depth = 0
    for token in tokens.finditer(select):
        depth += bool(token["open"]) - bool(token["close"])
        if depth < 0:
            break
        if depth == 0 and token["word"]:
            yield token["word"].upper()
    if depth:
        raise _refused(table, "has parentheses that do not match", "Look where one is missing.")


def _refused(table: str, why: str, remedy: str) -> OptionError:
    return OptionError(f"The statement of option '{_NAME}' for table '{table}' {why}.", remedy=remedy)
