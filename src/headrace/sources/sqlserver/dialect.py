"""SQL Server's own part of what servers with change tables have in common.

That includes the time zone that it reports for its clock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables import clock, lsn
from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.connection import PassingRefusal, StatementError
from headrace.sources.change_tables.dialect import Alteration
from headrace.sources.change_tables.history_mark import ChangeTable, Transaction
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.statements import Queries, Statements
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.alterations import altered
from headrace.sources.sqlserver.catalog import too_old
from headrace.sources.sqlserver.change_rows import CONNECTOR, ChangeReader
from headrace.sources.sqlserver.checks import ADVICE, restricted_reads
from headrace.sources.sqlserver.types import NativeType
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.table_errors import FAIL
from headrace.sources.tables.masks import NO_MASKS, Masks
from headrace.sources.tables.restricted import RestrictedRead
from headrace.sources.tables.rewrites import Rewrite, Unlogged

_SAYS_ITS_ZONE = 16
"""The first version that reports its zone: SQL Server 2022."""
_CLOUD = (5, 8)
"""Azure SQL Database and Azure SQL Managed Instance report it, whatever version they claim to have."""
_LOCAL = pa.timestamp("us")


def reported_zone(server: Queries, local: dt.datetime, minutes: int) -> str | None:
    """The zone that the server reports; None when it can't, when it is unknown here, or when its clock is not in it."""
    try:
        ((major, edition),) = server.rows(statements.SERVER_VERSION)
        if int(major or 0) < _SAYS_ITS_ZONE and int(edition or 0) not in _CLOUD:
            return None
        name = server.value(statements.SERVER_ZONE)
    except PassingRefusal:
        raise
    except StatementError:
        return None
    try:
        zone = clock.parse_timezone(str(name or ""))
        meant = clock.readings(pa.array([local], _LOCAL), zone)
    except (ValueError, pa.ArrowException):
        return None
    # Windows can be set not to change the clock for daylight saving, whatever its zone does.
    shown = clock.to_instants(pa.array([local], _LOCAL), clock.offset_text(minutes))[0].as_py()
    return zone if shown in [reading[0].as_py() for reading in meant] else None


CHANGE_OPERATIONS = {"c": (2,), "u": (3, 4), "d": (1,), "t": ()}
"""The values of `__$operation` that stand for an operation; tables under capture are never truncated."""


class SqlServer:
    """What is SQL Server's alone (`headrace.sources.change_tables.dialect.Dialect`)."""

    connector = CONNECTOR
    zero = lsn.ZERO
    advice = ADVICE
    statements: Statements = statements
    keeps_idle_commits = True

    def is_quiet(self, server: Queries, after: str, upto: str, oldest: Any) -> bool:
        """Whether it is certain that no transaction was captured in (after, upto], and no captured table altered."""
        edges = (lsn.to_bytes(after), lsn.to_bytes(upto))
        real = server.value(statements.TRANSACTIONS_BETWEEN, edges)
        # A mapping that was cleaned beyond our position can't say that nothing happened: then the retention check
        # decides.
        if real or oldest is None or lsn.read(oldest) > after:
            return False
        return not server.value(statements.ALTERATIONS_COUNT, edges)

    def last_transaction(self, server: Queries, upto: str) -> Transaction | None:
        """Not known, and not asked: the server keeps the time of every commit, idle or not."""
        del server, upto
        return None

    def newest_changes(self, server: Queries) -> dict[ChangeTable, str | None]:
        """Not known, and not asked either."""
        del server
        return {}

    def native(self, *parts: Any) -> NativeType:
        """A type out of its JSON form."""
        return NativeType(*parts)

    def no_capture(self, server: Queries, database: str) -> CaptureError | None:
        """Whether the release is too old, or `sys.sp_cdc_enable_db` was not run; everybody may see that."""
        old = too_old(server)
        if old is not None:
            return old
        facts = server.row(statements.DATABASE, (database,))
        if facts is None:
            return None
        _, enabled = facts
        if enabled:
            return None
        return CaptureError(
            f"Change data capture is not enabled for database '{database}'.",
            remedy="Run in it: EXEC sys.sp_cdc_enable_db, and EXEC sys.sp_cdc_enable_table for each table.",
        )

    def restricted(self, server: Queries, tables: Sequence[CapturedTable]) -> Sequence[RestrictedRead]:
        """Row-level security, dynamic data masks, and what Always Encrypted keeps from the server itself."""
        return restricted_reads(server, tables)

    def unlogged(self, server: Queries) -> Sequence[Unlogged]:
        """Partitioned tables whose partitions may be switched."""
        return [
            Unlogged(
                f"{schema}.{name}",
                "ALTER TABLE ... SWITCH moves rows into partitions of it or out of them, and no change records that.",
                "Capture it with @allow_partition_switch = 0, or read it again after a SWITCH.",
            )
            for schema, name in server.rows(statements.SWITCHABLE)
        ]

    def has_passed(self, server: Queries, commit: str, altered: str) -> bool:
        """Alterations have their position in the log, and count from there on."""
        del server, commit, altered
        return True

    def alterations(self, server: Queries, after: str, upto: str) -> Sequence[Alteration]:
        """The statements of `cdc.ddl_history`."""
        rows = server.rows(statements.ALTERATIONS, (lsn.to_bytes(after), lsn.to_bytes(upto)))
        return [Alteration(int(number), lsn.read(at), str(command or "")) for number, at, command in rows]

    def rewrite(
        self, server: Queries, before: CapturedTable, after: CapturedTable, altering: Sequence[str]
    ) -> tuple[tuple[str, ...], Rewrite | None]:
        """By the statements, both structures, and the numbers of columns."""

        def has_values(column: str) -> bool:
            try:
                return bool(server.rows(statements.any_value(after, column)))
            except PassingRefusal:
                raise
            except CaptureError:
                # What can't be asked is not proven.
                return True

        return altered(before, after, altering, has_values)

    def grant_table(self, table: TableId, user: str) -> str:
        path = f"{statements.quote(table.schema)}.{statements.quote(table.name)}"
        return f"Run: GRANT SELECT ON OBJECT::{path} TO {statements.quote(user)}."

    def grant_changes(self, instance: str, user: str) -> str:
        del instance
        return f"Run: GRANT SELECT ON SCHEMA::cdc TO {statements.quote(user)}."

    def zone(self, server: Queries, local: dt.datetime, minutes: int) -> str | None:
        return reported_zone(server, local, minutes)

    def changes(
        self, server: Queries, window: Window, settings: ChangeTableSettings | None, *, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The raw rows of a window of a change table, without operations that the options skip."""
        skipped = () if settings is None else settings.skipped_operations
        table, instance = window.table, window.table.instance
        columns = list(zip([c.name for c in table.schema.columns], table.natives, strict=True))
        sql = statements.changes(
            instance.name,
            _by_command(table, settings),
            columns,
            skipped=[number for letter in skipped for number in CHANGE_OPERATIONS[letter]],
        )
        return server.batches(
            sql, (lsn.to_bytes(window.after), lsn.to_bytes(window.upto)), rows=min(rows, table.batch_rows)
        )

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
        ordinals = dict(table.instance.columns)
        return ChangeReader(
            table.schema,
            table.natives,
            [ordinals[column.name] for column in table.schema.columns],
            table.instance.name,
            times,
            capture_time,
            by_command=_by_command(table, settings),
            weighted=weighted,
            masks=NO_MASKS if settings is None else Masks.of(settings).of_table(table.schema, table.natives),
            skip_unchanged=settings is not None and settings.skip_messages_without_change,
            key_change_events=events_of_key_change(() if settings is None else settings.skipped_operations),
            unreadable=FAIL if settings is None else settings.unreadable_changes,
        )


def _by_command(table: CapturedTable, settings: ChangeTableSettings | None) -> bool:
    """Whether the rows of a commit are in the order of commands, or of sequence values and operations."""
    return table.instance.has_command_id and (settings is None or settings.get("order_in_commit") == "command")
