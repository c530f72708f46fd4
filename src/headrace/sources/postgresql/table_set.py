"""Which tables are captured, as the options, the catalog and the publication have it. Runs in the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.sources.log.table_changes import TableChanges
from headrace.sources.offset import Offset
from headrace.sources.postgresql import publication
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.catalog import captured_tables, catalog_state, estimated_rows, means, say_left_out
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.earlier_structures import has_renames
from headrace.sources.postgresql.identities import lacking_identities
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.stream_state import LogState, StreamState, written_commit
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.postgresql.unsent_changes import TableFiles, unpublished_changes, unsent_changes, visible_now
from headrace.sources.signals import say_once, signal_table
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first
from headrace.sources.tables.rewrites import follow_rewrites
from headrace.sources.tables.unmatched import require_matched_tables

_REMEDY = "Create it, or add it to the publication (ALTER PUBLICATION ... ADD TABLE)"


class TableSet:
    """The captured tables of one process, read again when the catalog has changed.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings

    def captured(self, connection: Connection, *, strict: bool) -> dict[str, PostgresTable]:
        """The tables that the options mean, by path."""
        return captured_tables(connection, self._settings.database, self._settings, strict=strict)

    def publish(self, connection: Connection, tables: Mapping[str, PostgresTable], known: Collection[str] = ()) -> None:
        """See that the publication has these tables, where it is Headrace's own, and that changes say their rows.

        Args:
            connection: to the database.
            tables: they.
            known: those that were captured before: what is wrong with their identities is said only.

        Raises:
            CaptureError: the publication lacks something, or a table's changes would not say which row they change.
        """
        name, skipped = self._settings.publication_name, self._settings.skipped_operations
        state = publication.PublicationState.of(connection, name) or publication.PublicationState(name, 0)
        changed = list(tables.values()) if state.changes_rows(skipped) else []
        lacks = list(lacking_identities(connection, changed))
        for lack in lacks:
            if lack.hides_keys and lack.path not in known:
                raise lack.error
        publication.ensure(connection, self._settings, list(tables.values()))
        for lack in lacks:
            say_once(str(lack.error))

    def state(
        self, connection: Connection, tables: Mapping[str, PostgresTable], visible: str, *, streams: bool = True
    ) -> StreamState:
        """What the offset keeps of the server and its catalog.

        Args:
            connection: to the database.
            tables: the captured tables.
            visible: what `visible_now` gave before they were read.
            streams: whether the log is read, for which a publication has to be there.
        """
        if streams:
            say_left_out(tables.values(), self._settings.publication_name, connection.version)
        return StreamState(
            LogState.of(connection, self._settings, streams=streams),
            catalog_state(connection, [table.oid for table in tables.values()]),
            TypeCatalog.of(connection),
            TableFiles.of(connection, tables.values(), visible),
        )

    def oids(self, offset: Offset) -> frozenset[int]:
        """The numbers of the tables whose rows are taken."""
        return frozenset(table.oid for table in tables_of(offset.schemas).values())

    def signal_table(self, offset: Offset) -> tuple[str, str] | None:
        """Schema and name of the signal table; None where there is none."""
        name = self._settings.signal_data_collection
        if not name:
            return None
        path = signal_table(name, self._settings.database, offset.schemas)
        if path is None:
            say_once(f"The signal table '{name}' is not among the captured tables.")
            return None
        id = tables_of(offset.schemas)[path].id
        return id.schema, id.name

    def follow(self, connection: Connection, start: Offset, *, restarted: bool, publishes: bool = True) -> Offset:
        """The offset with the tables as they are now; `start` itself where nothing has changed.

        Args:
            connection: to the database.
            start: where the last batch ended.
            restarted: whether a new process does it, whose options may be others.
            publishes: whether the publication may be altered.
        """
        state = StreamState.of(start)
        earlier = state.earlier.after(start.commit)
        known = tables_of(start.schemas)
        if not restarted and catalog_state(connection, [table.oid for table in known.values()]) == state.catalog:
            return start if earlier == state.earlier else replace(state, earlier=earlier).in_offset(start)
        visible = visible_now(connection)
        captured = self.captured(connection, strict=False)
        require_matched_tables(self._settings, known, captured, [path for path in captured if path not in known])
        if publishes:
            self.publish(connection, captured, known)
        new = self.state(connection, captured, visible) if publishes else replace(state, catalog="")
        if publishes and self.captured(connection, strict=False) != captured:
            # It was changed in between, so the state may be newer than the tables: the next plan looks again.
            new = replace(new, catalog="")
        rejoined = new.log.rejoined(state.log)
        fresh = [
            path
            for path, table in captured.items()
            if path not in known or table.oid != known[path].oid or table.oid in rejoined
        ]
        read = read_first(self._settings, (table.id for table in captured.values()))
        changes = TableChanges.said(
            self._settings,
            start,
            captured,
            fresh,
            lambda path: means(self._settings, path),
            read=read,
            remedy=_REMEDY,
            restarted=restarted,
        )
        ad_hoc = changes.with_reads(AdHoc.from_json(start.ad_hoc).after_added(start.commit))
        written = written_commit(connection)
        later = earlier.with_changes(known, captured, state.types, new.types, written)
        changed_types = state.types.changed_by(new.types)
        if later.until != earlier.until:
            # Rows that were written between two changes would be read by the types from before the first one.
            changed_types |= TypeCatalog(earlier.types).changed_by(new.types)
        rewrites = unsent_changes(connection, known, captured, state.files, new.files, changed_types)
        rewrites += unpublished_changes(connection, self._settings.publication_name, known, state.files)
        rewrites = [rewrite for rewrite in rewrites if rewrite.path not in fresh]
        ad_hoc = follow_rewrites(
            rewrites,
            ad_hoc,
            captured,
            self._settings,
            read=read,
            rows=lambda tables: estimated_rows(connection, tables),
            after=written,
            since=start.commit,
            under_way=start.tables,
            renamed=[path for path, was in later.before(captured).items() if has_renames(was, captured[path])],
        )
        new = replace(state, log=new.log, catalog=new.catalog, types=new.types, files=new.files, earlier=later)
        return changes.in_offset(start, new, ad_hoc)
