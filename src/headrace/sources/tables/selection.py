"""Which tables of a database the options select.

A bound on their number guards against patterns that match more than was meant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.changes import TableId
from headrace.changes.table_pattern import TablePattern
from headrace.errors import CaptureError, first_of
from headrace.options import is_optional
from headrace.registry import did_you_mean
from headrace.settings import Settings, option
from headrace.sources.tables.lost import is_named


class FoundTable(NamedTuple):
    """A table of the database.

    Args:
        schema: its schema.
        name: its name.
        number: by which the server knows it.
        captured: whether its changes are captured.
    """

    schema: str
    name: str
    number: int
    captured: bool

    @property
    def path(self) -> str:
        """`schema.name`."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class TableSelection:
    """Which tables of a database the options select.

    Args:
        database: the database's name.
        include: `schema.table` patterns: shell globs, or regular expressions after `re:`; empty means every captured
            table.
        exclude: patterns of tables that are left out.
        databases: all databases of the same run: what a pattern does not find here may be in another.
        strict: whether it is an error that a named table is missing or not captured; a run that goes on waits for it.
        known: tables that may be missing or not captured all the same, because they were captured once.
        permit: how a login comes to see tables, in databases that show it none that it may not read; empty elsewhere.
    """

    database: str
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    databases: Sequence[str] = ()
    strict: bool = True
    known: Collection[str] = ()
    permit: str = ""

    def among(
        self, tables: list[FoundTable], not_captured: Callable[[FoundTable, str], CaptureError], capture: str
    ) -> list[FoundTable]:
        """The captured tables, in the include list's order.

        Args:
            tables: all tables of the database.
            not_captured: the error for a table, in a database, that is named and not captured.
            capture: how a table is set up for capture, as the beginning of a sentence.

        Raises:
            CaptureError: a named table does not exist or is not captured, or a pattern matches nothing (the first;
                the rest are its `others`); or two tables have one path.
        """
        chosen = self._included(tables, not_captured, capture)
        excluded = {table for pattern in self.exclude for table in self._matching(tables, pattern)}
        left = [table for table in chosen if table not in excluded]
        require_own_paths(TableId(self.database, table.schema, table.name) for table in left)
        return left

    def _included(
        self, tables: list[FoundTable], not_captured: Callable[[FoundTable, str], CaptureError], capture: str
    ) -> list[FoundTable]:
        chosen: list[FoundTable] = []
        errors: list[CaptureError] = []
        absent: list[str] = []
        if not self.include:
            chosen = [table for table in tables if table.captured]
            if not chosen and self.strict and not self.known:
                raise CaptureError(
                    f"No table of database '{self.database}' is captured.",
                    remedy=f"{capture} for each table.",
                )
            return chosen
        for pattern in self.include:
            matched = self._matching(tables, pattern)
            required = self.strict and not any(is_named(path, (pattern,), (), self.database) for path in self.known)
            required = required and not is_optional(pattern)
            if not matched and required and len(self.databases) < 2:
                absent.append(pattern)
            # A name means that table, captured or not (an error); a pattern means the captured ones it matches.
            captured = [table for table in matched if table.captured]
            if matched and not captured and required:
                errors.append(not_captured(matched[0], self.database))
            chosen.extend(table for table in captured if table not in chosen)
        if absent:
            errors = [*self._absent(absent, tables), *errors]
        if errors:
            raise first_of(errors)
        return chosen

    def _absent(self, patterns: Sequence[str], tables: Sequence[FoundTable]) -> Iterator[CaptureError]:
        """The errors for names or patterns that stand for no table."""
        paths = [table.path for table in tables]
        where = f"Database '{self.database}'" if self.database else "The server"
        if not paths:
            named = ", ".join(f"'{pattern}'" for pattern in patterns)
            yield CaptureError(
                f"{where} shows this login no table, so none is {named}.",
                remedy=self.permit or "Let the login read the tables (GRANT SELECT), or use another database.",
            )
            return
        shown = f"{where} shows this login" if self.permit else f"{where} has"
        for pattern in patterns:
            remedy = f"{did_you_mean(pattern, paths)} {self.permit}".strip()
            yield CaptureError(f"{shown} no table '{pattern}'.", remedy=remedy)

    def _matching(self, tables: list[FoundTable], pattern: str) -> list[FoundTable]:
        try:
            expression = TablePattern(pattern, in_source=True)
            return expression.among(tables, lambda table: TableId(self.database, table.schema, table.name))
        except ValueError as error:
            raise CaptureError(
                f"'{pattern}' is neither a table nor a regular expression ({error.__cause__}).",
                remedy="Write schema.table, or re: and an expression of it.",
            ) from None


def require_own_paths(tables: Iterable[TableId]) -> None:
    """See that no two tables have one path, as `c` in schema `a.b` and `b.c` in schema `a` have.

    Raises:
        CaptureError: two have.
    """
    seen: dict[str, TableId] = {}
    for table in tables:
        other = seen.setdefault(table.path, table)
        if other is table:
            continue
        if table.schema:
            kind, remedy = "schema", "Rename one of them, or leave both out with 'tables_excluded'."
        else:
            kind, remedy = "database", "Leave one of the databases out with 'databases_excluded', or rename a table."
        first, second = (one.schema or one.database for one in (other, table))
        raise CaptureError(
            f"Two tables are called '{table.path}': one of {kind} '{first}', and one of {kind} '{second}'.",
            remedy=remedy,
        )


FAIL, WARN = "fail", "warn"
_LOG = logging.getLogger("headrace.sources")


class GuardrailSettings(Settings):
    """How many tables may be captured."""

    guardrail_collections_max: int = option(
        "The most tables that may be captured, in all databases together; 0 for no bound.",
        default=0,
        minimum=0,
        aliases=("guardrail.collections.max",),
    )
    guardrail_collections_limit_action: str = option(
        "What happens when there are more: `warn` logs it, `fail` stops the run, also where tables come while it runs.",
        default=WARN,
        choices=(WARN, FAIL),
        aliases=("guardrail.collections.limit.action",),
    )


def require_few(settings: Settings, tables: int) -> None:
    """See that no more tables are captured than the options allow.

    Args:
        settings: the source's options; one without a guardrail has no bound.
        tables: how many are captured now.

    Raises:
        CaptureError: there are more, and the options say to stop.
    """
    most = settings.get("guardrail_collections_max", 0)
    if not most or tables <= most:
        return
    sentence = f"{tables} tables are captured, and 'guardrail_collections_max' allows {most}."
    if settings.get("guardrail_collections_limit_action") == FAIL:
        raise CaptureError(sentence, remedy="Name fewer tables in 'tables', or raise the bound.")
    _LOG.warning("%s", sentence)
