"""What is amiss at PostgreSQL: rights and settings that it lacks, and the state of the slot.

Each comes with the statement, or on a managed service the setting, that mends it.

What is committed is in the log at once, so nothing is late on the server's side. The log is kept from the slot on; how
much of it, `max_slot_wal_keep_size` bounds.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.errors import ConnectError, DataLossError, HeadraceError
from headrace.permissions import MissingPermission
from headrace.sources.health import CaptureState, Health, size_text, span_text, unasked
from headrace.sources.offset import Offset
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.catalog import captured_tables
from headrace.sources.postgresql.connection import Connection, connect, connect_replication
from headrace.sources.postgresql.guards import ServerState, judge
from headrace.sources.postgresql.identities import lacking_identities, require_identities
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.publication import (
    PublicationState,
    add_statement,
    create_statement,
    no_publication,
    require_complete,
    table_name,
)
from headrace.sources.postgresql.refusals import (
    MORE_SENDERS,
    MORE_SLOTS,
    ON_PRIMARY,
    SET_WAL_LEVEL,
    PostgresError,
    identifier,
)
from headrace.sources.postgresql.slots import SlotState, copy_reader, require_ours
from headrace.sources.postgresql.stream_state import StreamState
from headrace.sources.snapshots.chunks import is_read_first

_SERVICE = """
SELECT CASE WHEN EXISTS (SELECT FROM pg_proc WHERE proname = 'aurora_version') THEN 'aurora'
    WHEN current_setting('rds.logical_replication', true) IS NOT NULL THEN 'rds'
    WHEN current_setting('cloudsql.logical_decoding', true) IS NOT NULL THEN 'cloudsql'
    WHEN current_setting('azure.extensions', true) IS NOT NULL THEN 'azure' ELSE '' END
"""
_ROLE = """
SELECT r.rolname, r.rolsuper OR r.rolreplication OR EXISTS (
    SELECT FROM pg_roles m WHERE m.rolname = 'rds_replication' AND pg_has_role(m.oid, 'MEMBER')),
    has_database_privilege(current_database(), 'CREATE'),
    r.rolsuper OR pg_has_role('pg_read_all_stats', 'USAGE')
FROM pg_roles r WHERE r.rolname = current_user
"""
_ROOM = """
SELECT pg_is_in_recovery(), current_setting('wal_level'),
    current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots)::int,
    current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication)::int
"""
_TABLES = """
SELECT c.oid::bigint, has_schema_privilege(c.relnamespace, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
    row_security_active(c.oid), pg_has_role(c.relowner, 'USAGE')
FROM pg_class c WHERE c.oid = ANY (%s::oid[])
"""
_OWNS_PUBLICATION = "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s"
_SHOWN = 12
_MAY_INSERT = "SELECT has_table_privilege(to_regclass(%s), 'INSERT')"

_SERVER = "SELECT clock_timestamp(), pg_is_in_recovery(), current_setting('wal_level')"
_WRITTEN = "SELECT pg_current_wal_insert_lsn()::text"
_OLDEST = """
SELECT pid, coalesce(nullif(application_name, ''), '?'), extract(epoch FROM clock_timestamp() - xact_start)::bigint
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
"""
_PREPARED = """
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::bigint FROM pg_prepared_xacts ORDER BY prepared LIMIT 1
"""
_SCAN_BYTES = 64 * 2**20
"""How much of the log a check reads at most. Where the slot keeps more, the lag is that of the last batch."""
_SCAN_SECONDS = 1.0
_WAIT_SECONDS = 0.1
_KEEPALIVE, _BEGIN, _ROWS = b"k"[0], b"B"[0], frozenset(b"IUDT")
_KIND, _TIME = 25, slice(34, 42)
"""Where a payload says what it is, and where a BEGIN has the time of the commit."""
_EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_MUCH = 256 * 2**20
"""How much log from before the slot's position is worth a word."""


@dataclass(frozen=True)
class Service:
    """How a server of a vendor is set up.

    Args:
        wal_level: what switches logical decoding on.
        replication: what lets a role replicate, with `{role}` for it.
    """

    wal_level: str
    replication: str = "Run: ALTER ROLE {role} REPLICATION;"


SERVICES = {
    "": Service("Run: ALTER SYSTEM SET wal_level = logical; and restart the server."),
    "rds": Service(
        "Set rds.logical_replication = 1 in the parameter group and reboot the instance.",
        "Run: GRANT rds_replication TO {role};",
    ),
    "aurora": Service(
        "Set rds.logical_replication = 1 in the cluster's parameter group and reboot the writer.",
        "Run: GRANT rds_replication TO {role};",
    ),
    "azure": Service("Set the server parameter wal_level to logical and restart the server."),
    "cloudsql": Service("Set the flag cloudsql.logical_decoding to on.", "Run: ALTER USER {role} REPLICATION;"),
}


def missing_permissions(settings: PostgresSettings) -> list[MissingPermission]:
    """What the role may not do, and what the server lacks; nothing is changed to find it out.

    Raises:
        HeadraceError: the server can't be asked, or the options name tables that are not there.
    """
    with connect(settings) as connection:
        tables = captured_tables(connection, settings.database, settings, strict=False)
        return list(_Questions(connection, settings, list(tables.values())).missing())


@dataclass(frozen=True)
class _Questions:
    connection: Connection
    settings: PostgresSettings
    tables: list[PostgresTable]

    def missing(self) -> Iterator[MissingPermission]:
        service = SERVICES[str(self.connection.value(_SERVICE))]
        [(user, replicates, creates, sees_others)] = self.connection.rows(_ROLE)
        role = identifier(user)
        yield from self._of_server(service)
        if not replicates:
            yield MissingPermission.of(
                ["REPLICATION"], "", "to make, read and advance the slot", service.replication.format(role=role)
            )
        else:
            yield from _refusals(lambda: connect_replication(self.settings).close(), ConnectError)
        if self.settings.snapshot_mode != "initial_only":
            yield from _refusals(self._see_slot)
            yield from self._of_publication(role, creates=creates)
        yield from self._of_rows(role)
        yield from self._watching(role, sees_others=sees_others)

    def _of_server(self, service: Service) -> Iterator[MissingPermission]:
        [(in_recovery, level, slots, senders)] = self.connection.rows(_ROOM)
        if in_recovery:
            yield MissingPermission("The server is a standby, whose log can't be read.", ON_PRIMARY)
            return
        if level != "logical":
            yield MissingPermission(f"wal_level of the server is {level}, not logical.", service.wal_level)
        is_there = SlotState.of(self.connection, self.settings.slot) is not None
        wanted = self.settings.max_readers + (1 if is_there else 2)
        for name, free, remedy, needs in (
            ("max_replication_slots", slots, MORE_SLOTS, 0 if is_there else 1),
            ("max_wal_senders", senders, MORE_SENDERS, 1),
        ):
            if free < wanted:
                yield MissingPermission(
                    f"{max(free, 0)} of {name} are free, and up to {wanted} are used: for the slot, the look for new "
                    "changes and 'max_readers'.",
                    remedy,
                    required=free < needs,
                )

    def _see_slot(self) -> None:
        state = SlotState.of(self.connection, self.settings.slot)
        if state is not None:
            require_ours(state, self.settings.slot, self.settings.database)

    def _of_publication(self, role: str, *, creates: bool) -> Iterator[MissingPermission]:
        name = self.settings.publication_name
        state = PublicationState.of(self.connection, name)
        alters = self.settings.publication_autocreate == "filtered"
        if state is not None and not (alters and state.is_own):
            yield from _refusals(lambda: require_complete(state, self.tables, self.settings.skipped_operations))
            yield from self._of_identities(state, self.tables)
            return
        if not alters:
            absent = no_publication(self.settings, map(table_name, self.tables))
            yield MissingPermission(absent.message, absent.remedy)
        added = [table for table in self.tables if state is None or table.oid not in state.members]
        closed = list(_refusals(lambda: require_identities(self.connection, [table.oid for table in added])))
        yield from closed
        yield from self._of_identities(state, [table for table in self.tables if not closed or table not in added])
        if not alters:
            return
        if state is None and not creates:
            yield MissingPermission.of(
                ["CREATE"],
                f"on database '{self.settings.database}'",
                f"to make publication '{name}'",
                f"Run: GRANT CREATE ON DATABASE {identifier(self.settings.database)} TO {role}; or make the "
                "publication and set 'publication_autocreate' to disabled.",
            )
        if state is not None and not self.connection.value(_OWNS_PUBLICATION, (name,)):
            yield MissingPermission(
                f"Publication '{name}' belongs to another role, so tables can't be added to it.",
                f"Run: ALTER PUBLICATION {identifier(name)} OWNER TO {role};",
            )
        others = [table for table, (_, _, _, owns) in self._rights(added) if not owns]
        if others:
            # The owner's publication has to have all tables, because nobody adds to it later.
            publish = (
                create_statement(name, map(table_name, self.tables))
                if state is None
                else add_statement(name, map(table_name, others))
            )
            yield MissingPermission(
                f"The login does not own {_listed(others)}, which only the owner adds to a publication.",
                f"Let the owner run: {publish}; and set 'publication_autocreate' to disabled. Or grant the login the "
                "owner's role.",
            )

    def _of_identities(
        self, state: PublicationState | None, tables: Collection[PostgresTable]
    ) -> Iterator[MissingPermission]:
        state = state or PublicationState(self.settings.publication_name, 0)
        if state.changes_rows(self.settings.skipped_operations):
            for lack in lacking_identities(self.connection, tables):
                yield MissingPermission(lack.error.message, lack.error.remedy)

    def _of_rows(self, role: str) -> Iterator[MissingPermission]:
        read = list(self._rights(table for table in self.tables if is_read_first(self.settings, table.id)))
        closed = dict.fromkeys(table.id.schema for table, (enters, *_) in read if not enters)
        if closed:
            schemas = ", ".join(f"'{schema}'" for schema in closed)
            yield MissingPermission.of(
                ["USAGE"],
                f"on schema{'' if len(closed) == 1 else 's'} {schemas}",
                "snapshots of its tables" if len(closed) == 1 else "snapshots of their tables",
                f"Run: GRANT USAGE ON SCHEMA {', '.join(map(identifier, closed))} TO {role};",
            )
        unread = [table for table, (_, reads, *_) in read if not reads]
        if unread:
            yield MissingPermission.of(
                ["SELECT"],
                f"on {_listed(unread)}",
                "its snapshot" if len(unread) == 1 else "their snapshots",
                f"Run: GRANT SELECT ON {', '.join(map(table_name, unread))} TO {role};",
            )
        filtered = [table for table, (_, reads, filtered, _) in read if reads and filtered]
        if filtered:
            yield MissingPermission.of(
                ["BYPASSRLS"],
                "",
                f"policies hide rows of {_listed(filtered)} from snapshots",
                f"Run: ALTER ROLE {role} BYPASSRLS;",
            )

    def _watching(self, role: str, *, sees_others: bool) -> Iterator[MissingPermission]:
        signals = self.settings.signal_data_collection
        if signals:
            name = ".".join(identifier(part) for part in signals.split(".")[-2:])
            if self.connection.value(_MAY_INSERT, (name,)) is False:
                yield MissingPermission.of(
                    ["INSERT"],
                    f"on {signals}",
                    "headrace signal",
                    f"Run: GRANT INSERT ON {name} TO {role};",
                    required=False,
                )
        if not sees_others:
            yield MissingPermission.of(
                ["pg_monitor"],
                "",
                "to name the transaction that holds up a snapshot or the slot",
                f"Run: GRANT pg_monitor TO {role};",
                required=False,
            )

    def _rights(self, tables: Iterable[PostgresTable]) -> Iterator[tuple[PostgresTable, tuple[bool, bool, bool, bool]]]:
        """For each table whether the role may enter its schema and read it, whether policies hide rows, whether it owns
        it.
        """
        asked = list(tables)
        rights_of = {oid: rights for oid, *rights in self.connection.rows(_TABLES, ([table.oid for table in asked],))}
        for table in asked:
            if table.oid in rights_of:
                enters, reads, filtered, owns = rights_of[table.oid]
                yield table, (enters, reads, filtered, owns)


def _listed(tables: Sequence[PostgresTable]) -> str:
    """Tables by name, of many the first ones."""
    names = ", ".join(f"'{table.id.path}'" for table in tables[:_SHOWN])
    more = f" and {len(tables) - _SHOWN:,} more" if len(tables) > _SHOWN else ""
    return f"table{'' if len(tables) == 1 else 's'} {names}{more}"


def _refusals(attempt: Callable[[], object], kind: type[HeadraceError] = HeadraceError) -> Iterator[MissingPermission]:
    try:
        attempt()
    except kind as error:
        for one in (error, *error.others):
            yield MissingPermission(one.message, one.remedy)


class HealthProbe:
    """Examines the slot of a pipeline. Runs in the driver.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""
        try:
            with connect(self._settings) as connection:
                return _Examination(connection, self._settings).health(offset)
        except HeadraceError as error:
            return unasked(error)


@dataclass(frozen=True)
class _Examination:
    connection: Connection
    settings: PostgresSettings

    def health(self, offset: Offset | None) -> Health:
        [(now, in_recovery, level)] = self.connection.rows(_SERVER)
        place = self.connection.endpoint
        if in_recovery:
            return _stopped(now, f"Server '{place.server}' is a standby, whose log can't be read.", ON_PRIMARY)
        if level != "logical":
            return _stopped(now, f"wal_level of server '{place.server}' is {level}, not logical.", SET_WAL_LEVEL)
        slot = SlotState.of(self.connection, self.settings.slot)
        begun = offset is not None and not offset.is_nothing
        if self.settings.snapshot_mode == "initial_only" or (slot is None and not begun):
            return Health(
                CaptureState.CAPTURING,
                f"Server '{place.server}' writes what logical decoding needs.",
                checked=now,
                captured_until=now,
            )
        boundary = lsn.boundary(offset.commit) if offset is not None and begun else None
        try:
            if offset is not None and boundary is not None:
                before = StreamState.of(offset).log
                judge(ServerState.of(self.connection, self.settings, before.timeline), before, boundary, self.settings)
            slot = require_ours(slot, self.settings.slot, self.settings.database)
        except DataLossError as error:
            lost = tuple(offset.known) if offset is not None else ()
            return replace(_stopped(now, error.message, error.remedy), lost=lost, headroom_bytes=0)
        except HeadraceError as error:
            return _stopped(now, error.message, error.remedy)
        return self._kept(slot, boundary, now)

    def _kept(self, slot: SlotState, boundary: int | None, now: dt.datetime) -> Health:
        """How it is with a slot that can be read.

        Args:
            slot: it.
            boundary: until where all sinks have its changes; None before the first batch.
            now: the server's time.
        """
        written = lsn.written_up_to(self.connection.value(_WRITTEN))
        retained = 0 if slot.restart is None else max(0, written - slot.restart)
        sentence, remedy = f"Slot '{slot.name}' keeps {size_text(retained)} of log", ""
        if slot.safe_bytes is None:
            sentence += "; max_slot_wal_keep_size sets no bound, so a pipeline that rests long fills the server's disk."
        elif slot.safe_bytes > 0:
            sentence += f"; it may keep {size_text(slot.safe_bytes)} more (max_slot_wal_keep_size)."
        else:
            sentence += ", more than max_slot_wal_keep_size allows; the next checkpoint may drop it."
            remedy = "Raise it (ALTER SYSTEM SET max_slot_wal_keep_size = ...; SELECT pg_reload_conf();), and see what "
            remedy += "holds up the sinks."
        waiting_since, is_quiet = (None, False) if boundary is None else self._first_change(slot, boundary, written)
        held = 0 if slot.restart is None or slot.confirmed is None else slot.confirmed - slot.restart
        if held > _MUCH:
            holder = self._holder()
            sentence += f" {size_text(held)} of it is kept for {holder}." if holder else ""
        return Health(
            CaptureState.CAPTURING,
            sentence,
            remedy,
            checked=now,
            captured_until=now,
            waiting_since=waiting_since,
            quiet_until=now if is_quiet and waiting_since is None else None,
            retained_bytes=retained,
            headroom_bytes=slot.safe_bytes,
        )

    def _first_change(self, slot: SlotState, boundary: int, end: int) -> tuple[dt.datetime | None, bool]:
        """When the first change was committed that waits; and whether that is known, null being nothing then."""
        if end <= boundary:
            return None, True
        if slot.restart is None or end - slot.restart > _SCAN_BYTES:
            return None, False
        committed, deadline = None, time.monotonic() + _SCAN_SECONDS
        try:
            with copy_reader(self.settings, boundary, copies_only=True) as reader:
                while time.monotonic() < deadline:
                    for payload in reader.receive(_WAIT_SECONDS):
                        if payload[0] == _KEEPALIVE:
                            if int.from_bytes(payload[1:9], "big") >= end:
                                return None, True
                        elif payload[_KIND] == _BEGIN:
                            committed = _instant(int.from_bytes(payload[_TIME], "big", signed=True))
                        elif payload[_KIND] in _ROWS:
                            return committed, True
        except PostgresError:
            # No slot is free, or the role may not copy one; `missing_permissions` says so.
            return None, False
        return None, False

    def _holder(self) -> str:
        """The transaction that keeps a slot from letting go of the log; empty where none is seen."""
        prepared = self.connection.rows(_PREPARED)
        if prepared:
            [(name, age)] = prepared
            return f"the prepared transaction '{name}', {span_text(age)} old"
        lines = self.connection.rows(_OLDEST)
        if not lines:
            return ""
        [(pid, application, age)] = lines
        return f"the transaction of process {pid} (application '{application}'), open for {span_text(age)}"


def _instant(microseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def _stopped(now: dt.datetime, sentence: str, remedy: str) -> Health:
    return Health(CaptureState.NOT_CAPTURING, sentence, remedy, checked=now)
