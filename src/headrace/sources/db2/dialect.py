"""Db2's own part of what servers with change tables have in common."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.connection import MissingObject
from headrace.sources.change_tables.dialect import Alteration
from headrace.sources.change_tables.history_mark import ChangeTable, Transaction
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.statements import Queries
from headrace.sources.db2.advice import ADVICE
from headrace.sources.db2.change_rows import CONNECTOR, ChangeReader
from headrace.sources.db2.statements import Statements, change_table, quote
from headrace.sources.db2.types import NativeType
from headrace.sources.table_errors import FAIL
from headrace.sources.tables.masks import NO_MASKS, Masks
from headrace.sources.tables.restricted import RestrictedRead
from headrace.sources.tables.rewrites import Rewrite, Unlogged

_PERMISSION = (
    "Let a row permission be true for the login (CREATE PERMISSION ... FOR ROWS WHERE ... ENFORCED FOR ALL ACCESS "
    "ENABLE), leave the rows unread (snapshot_mode: no_data), or say which are wanted by "
    "'snapshot_select_statement_overrides'."
)
_MASKS = "Let the masks give the value itself for the login, or leave the columns out with 'column_exclude_list'."


class Db2:
    """What is Db2's alone (`headrace.sources.change_tables.dialect.Dialect`).

    Args:
        statements: for its platform and Capture schema.
    """

    connector = CONNECTOR
    zero = "00000000:00000000:0000000000000000"
    advice = ADVICE
    keeps_idle_commits = False

    def __init__(self, statements: Statements) -> None:
        self.statements = statements

    def is_quiet(self, server: Queries, after: str, upto: str, oldest: Any) -> bool:
        """Whether it is certain that no transaction was captured in (after, upto].

        Each registration says the newest commit that was ever put into its change table, whatever was pruned since.
        """
        return not server.value(self.statements.CHANGED_SINCE, (lsn.to_bytes(after),))

    def last_transaction(self, server: Queries, upto: str) -> Transaction | None:
        """The last captured transaction up to an LSN, by IBMSNAP_UOW."""
        last = server.row(self.statements.LAST_TRANSACTION, (lsn.to_bytes(upto),))
        if last is None:
            return None
        commit, time = last
        return Transaction(lsn.read(commit), str(time))

    def newest_changes(self, server: Queries) -> dict[ChangeTable, str | None]:
        """The newest commit of each change table, by IBMSNAP_REGISTER."""
        rows = server.rows(self.statements.NEWEST_CHANGES)
        return {
            ChangeTable(str(name), int(number)): None if commit is None else lsn.read(commit)
            for name, number, commit in rows
        }

    def native(self, *parts: Any) -> NativeType:
        """A type out of its JSON form."""
        return NativeType(*parts)

    def no_capture(self, server: Queries, database: str) -> CaptureError | None:
        """Whether SQL Replication's control tables are not there."""
        try:
            server.rows(self.statements.STATES)
        except MissingObject:
            schema = self.statements.capture_schema
            return CaptureError(
                f"Database '{database}' has no control tables of SQL Replication in '{schema}'.",
                remedy="Set SQL Replication up for it, or set 'capture_schema'.",
            )
        except CaptureError:
            # An object that the login may not read exists.
            return None
        return None

    def restricted(self, server: Queries, tables: Sequence[CapturedTable]) -> Sequence[RestrictedRead]:
        """Row permissions and column masks, which hold for whoever reads a table, and not for the log.

        By reading of IBM's documentation; no real server was seen with them.
        """
        captured = {table.id.path: table for table in tables}
        reads = []
        for schema, name, control, count in server.rows(self.statements.CONTROLLED):
            path, kind = f"{str(schema).rstrip()}.{name}", str(control or "").strip()
            if path not in captured:
                continue
            rows = int(count or 0)
            empty = kind in "RB" and rows > 0 and not server.rows(self.statements.any_row(captured[path]))
            if kind in "RB":
                sees = f"It shows the login no row, of {rows}." if empty else "Whether it hides rows is not known."
                sentence = f"Row access control filters its rows for who reads it, and not for the log. {sees}"
                reads.append(RestrictedRead(path, sentence, _PERMISSION, certain=empty))
            if kind in "CB":
                sentence = (
                    "Column masks may show the login other values when it is read, and not in the log. Whether they do "
                    "is not known."
                )
                reads.append(RestrictedRead(path, sentence, _MASKS))
        return reads

    def unlogged(self, server: Queries) -> Sequence[Unlogged]:
        """Tables that do not log for capture, or that can be changed without logging."""
        lacks = []
        for schema, name, capture, attribute in server.rows(self.statements.LOGGING):
            path = f"{str(schema).rstrip()}.{name}"
            if str(capture).strip() != "Y":
                sentence = "It has DATA CAPTURE NONE, so the log lacks what the Capture program needs."
                lacks.append(Unlogged(path, sentence, f"Run ALTER TABLE {path} DATA CAPTURE CHANGES; read it again."))
            elif str(attribute).strip() == "1":
                sentence = (
                    "It was made NOT LOGGED INITIALLY: what a transaction does after activating that is in no log."
                )
                lacks.append(Unlogged(path, sentence, "Read it again after such a transaction, and after a LOAD."))
        return lacks

    def has_passed(self, server: Queries, commit: str, altered: str) -> bool:
        """Whether the commit was made after the alteration, or the log was read beyond that and has nothing more."""
        committed_at = server.value(self.statements.COMMIT_TIME, (lsn.to_bytes(commit),))
        if committed_at is not None and str(committed_at) > altered:
            return True
        # In this order: what is captured between the two questions is then seen by the second.
        mark = server.row(self.statements.NEWEST_MARK)
        if mark is None or mark[1] is None or str(mark[1]) <= altered:
            return False
        return not server.value(self.statements.CHANGED_SINCE, (lsn.to_bytes(commit),))

    def alterations(self, server: Queries, after: str, upto: str) -> Sequence[Alteration]:
        """None: Db2 keeps no history of statements."""
        del server, after, upto
        return ()

    def rewrite(
        self, server: Queries, before: CapturedTable, after: CapturedTable, statements: Sequence[str]
    ) -> tuple[tuple[str, ...], Rewrite | None]:
        """By the time when table and change table were altered: the catalog has nothing that tells how.

        A column that is dropped and added again has the number of the one before, where it was the last.
        """
        del server, statements
        if not before.altered or before.altered == after.altered:
            return (), None
        return (), Rewrite(
            after.id.path, f"it or its change table was altered at {after.altered}, which may be anything"
        )

    def grant_table(self, table: TableId, user: str) -> str:
        return grant_select(f"{quote(table.schema)}.{quote(table.name)}", user)

    def grant_changes(self, instance: str, user: str) -> str:
        return grant_select(change_table(instance), user)

    def zone(self, server: Queries, local: dt.datetime, minutes: int) -> str | None:
        """None: Db2 says its offset from UTC and not its zone."""
        return None

    def changes(
        self, server: Queries, window: Window, settings: ChangeTableSettings | None, *, rows: int
    ) -> Iterator[pa.RecordBatch]:
        table = window.table
        columns = list(zip([c.name for c in table.schema.columns], table.natives, strict=True))
        columns += [(holder, table.native(name)) for name, holder in _before_images(table)]
        edges = (lsn.to_bytes(window.after), lsn.to_bytes(window.upto))
        sql = self.statements.changes(table.instance.name, columns)
        return server.batches(sql, edges, rows=min(rows, table.batch_rows))

    def change_reader(
        self,
        table: CapturedTable,
        times: CommitTimes,
        capture_time: dt.datetime | None,
        settings: ChangeTableSettings | None,
        *,
        weighted: bool = False,
    ) -> ChangeReader:
        """The converter for one table's raw rows; without options, rows as they are."""
        return ChangeReader(
            table.schema,
            table.natives,
            # By the table's own key where there is one: rows may share the key that an option names.
            table.chunk_key or table.schema.key,
            table.instance.name,
            times,
            capture_time,
            before_columns=[name for name, _ in _before_images(table)],
            weighted=weighted,
            masks=NO_MASKS if settings is None else Masks.of(settings).of_table(table.schema, table.natives),
            skipped=() if settings is None else settings.skipped_operations,
            skip_unchanged=settings is not None and settings.skip_messages_without_change,
            unreadable=FAIL if settings is None else settings.unreadable_changes,
        )


def _before_images(table: CapturedTable) -> list[tuple[str, str]]:
    """The columns that are read whose value before an update has a column of its own, and that column."""
    read = {column.name for column in table.schema.columns}
    return [(name, holder) for name, holder in table.instance.before_images if name in read]


def grant_select(table: str, user: str) -> str:
    """What to run so that a user may read a table, which is quoted, as a sentence."""
    return f"Run: GRANT SELECT ON TABLE {table} TO USER {quote(user)}."
