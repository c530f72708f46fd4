"""Replication slots: the permanent one, which keeps the log for a pipeline, and the temporary copies that are read.

The permanent slot is made at the first start and only ever goes forward, to what all sinks have. A copy belongs to the
session that made it, so a reader leaves nothing behind, whatever ends it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import CaptureError, DataLossError, HeadraceError
from headrace.sources.connection import LostConnection
from headrace.sources.postgresql import lsn, publication
from headrace.sources.postgresql.connection import (
    Connection,
    ReplicationConnection,
    connect,
    connect_replication,
)
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import PostgresError, identifier, literal

_LOG = logging.getLogger("headrace.sources")
_PLUGIN = "pgoutput"
_EXISTS, _IN_USE, _NOT_THERE, _NO_SLOT_FREE, _NOT_READY, _INTERNAL = (
    "42710",
    "55006",
    "42704",
    "53400",
    "55000",
    "XX000",
)
_ATTEMPTS = 5
_RETRY_SECONDS = 0.1
AFTER_LOSS = (
    "Set 'snapshot_mode' to when_needed, so that all tables are read again, or 'fail_on_data_loss' to false, so that "
    "the run goes on with a new slot and a gap."
)

_STATE = """
SELECT plugin, slot_type, database, temporary, two_phase, active_pid, restart_lsn::text, confirmed_flush_lsn::text,
    wal_status, safe_wal_size, {reason}
FROM pg_replication_slots WHERE slot_name = %s
"""
_HOLDERS = """
SELECT 'pid ' || a.pid, coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::bigint,
    coalesce(nullif(a.application_name, ''), '?'), 'SELECT pg_terminate_backend(' || a.pid || ');'
FROM pg_stat_activity a WHERE a.pid = ANY (pg_blocking_pids(%s))
UNION ALL
SELECT 'prepared transaction ' || quote_literal(gid), extract(epoch FROM clock_timestamp() - prepared)::bigint,
    owner::text, 'ROLLBACK PREPARED ' || quote_literal(gid) || ';'
FROM pg_prepared_xacts WHERE database = current_database() AND 0 = ANY (pg_blocking_pids(%s))
ORDER BY 2 DESC LIMIT 1
"""
_USER = "SELECT pid, application_name FROM pg_stat_activity WHERE pid = %s"
_ADVANCE = """
SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots
WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn
"""


class SlotWaits(CaptureError):
    """A slot can't be made yet, because transactions are open that began before."""


@dataclass(frozen=True)
class SlotState:
    """What the server says of a slot.

    Args:
        name: its name.
        plugin: its output plugin; empty for a slot of physical replication.
        database: the database that it decodes.
        temporary: whether it goes with its session.
        two_phase: whether it sends prepared transactions before they are committed.
        active_pid: the server's process that uses it now; None where none does.
        restart: the LSN from which it keeps the log; None where it is lost or is being made.
        confirmed: the LSN before which it has no commits; None while it is being made.
        wal_status: `reserved`, `extended`, `unreserved` or `lost`; empty where the server does not say.
        safe_bytes: how much can be written before it is lost; None without a bound.
        invalidated: why the server invalidated it; empty where it did not.
    """

    name: str
    plugin: str = _PLUGIN
    database: str = ""
    temporary: bool = False
    two_phase: bool = False
    active_pid: int | None = None
    restart: int | None = None
    confirmed: int | None = None
    wal_status: str = ""
    safe_bytes: int | None = None
    invalidated: str = ""

    @classmethod
    def of(cls, connection: Connection, name: str) -> SlotState | None:
        """A slot as it is now; None where there is none of this name."""
        reason = "invalidation_reason" if connection.version >= 170000 else "NULL"
        rows = connection.rows(_STATE.format(reason=reason), (name,))
        if not rows:
            return None
        plugin, kind, database, temporary, two_phase, pid, restart, confirmed, status, safe, invalidated = rows[0]
        return cls(
            name=name,
            plugin=plugin if kind == "logical" else "",
            database=database or "",
            temporary=temporary,
            two_phase=bool(two_phase),
            active_pid=pid,
            restart=None if restart is None else lsn.of_server(restart),
            confirmed=None if confirmed is None else lsn.of_server(confirmed),
            wal_status=status or "",
            safe_bytes=safe,
            invalidated=invalidated or "",
        )

    @property
    def is_lost(self) -> bool:
        """Whether the server no longer keeps the log that it stands for."""
        return self.wal_status == "lost" or bool(self.invalidated)


def require_ours(state: SlotState | None, name: str, database: str) -> SlotState:
    """The state of a slot that this source can use.

    Raises:
        DataLossError: it is not there, or lost the log.
        CaptureError: it is of another kind.
    """
    if state is None:
        raise DataLossError(
            f"Replication slot '{name}' is not there any more, and with it the changes since the last batch.",
            remedy=AFTER_LOSS,
        )
    if state.plugin != _PLUGIN or state.database != database or state.two_phase:
        what = f"belongs to database '{state.database}'"
        if not state.plugin:
            what = "is a slot of physical replication"
        elif state.plugin != _PLUGIN:
            what = f"belongs to the output plugin '{state.plugin}'"
        elif state.two_phase:
            what = "sends prepared transactions before their commit (two_phase)"
        raise CaptureError(
            f"Replication slot '{name}' {what}, so it can't be read here.",
            remedy="Name another one with the option 'slot'; it is made at the first start.",
        )
    if state.is_lost:
        reason = f" ({state.invalidated})" if state.invalidated else ""
        raise DataLossError(
            f"The server invalidated replication slot '{name}'{reason}: changes that were not read are gone.",
            remedy=f"{AFTER_LOSS} A larger max_slot_wal_keep_size keeps the log for longer.",
        )
    return state


def require_reaches(state: SlotState, boundary: int) -> None:
    """See that a slot still has what begins at a boundary.

    Raises:
        DataLossError: it begins later.
    """
    if state.confirmed is not None and state.confirmed > boundary:
        raise _moved(state.name, state.confirmed, boundary)


def _moved(name: str, confirmed: int, boundary: int) -> DataLossError:
    return DataLossError(
        f"Replication slot '{name}' begins at {lsn.to_server(confirmed)}, and the next batch at "
        f"{lsn.to_server(boundary)}: it was made again, or something else has moved it, and the changes between are "
        "gone.",
        remedy=f"Give each pipeline a slot of its own. {AFTER_LOSS}",
    )


@dataclass(frozen=True)
class MadeSlot:
    """A slot and the moment at which it was made.

    Args:
        name: its name.
        boundary: its stream has every transaction whose commit record begins here or later.
        snapshot: the name of a snapshot that has all others and nothing else, for `SET TRANSACTION SNAPSHOT` while the
            session that made the slot is open and does nothing.
    """

    name: str
    boundary: int
    snapshot: str


@contextmanager
def created(settings: PostgresSettings, *, temporary: bool, timeout_s: float) -> Iterator[MadeSlot]:
    """Make a slot and export the snapshot of that moment, for as long as the block lasts.

    A permanent slot stays, unless the block fails. One that an earlier first start left behind when it was killed is
    made again.

    Args:
        settings: the source's options, with the name of a permanent slot.
        temporary: whether it is gone when the block ends.
        timeout_s: how long it may wait for transactions that are open.

    Raises:
        SlotWaits: one of them is still open.
        CaptureError: a slot of this name is there, no slot is free, or the server is not set up for it.
    """
    name = _temporary_name() if temporary else settings.slot
    with connect_replication(settings) as session:
        if not temporary:
            _forget_unfinished(session, settings)
            publication.say_slot_begins(session, settings)
        kind = "TEMPORARY " if temporary else ""
        sql = f"CREATE_REPLICATION_SLOT {identifier(name)} {kind}LOGICAL {_PLUGIN} EXPORT_SNAPSHOT"
        try:
            rows = session.rows_within(sql, timeout_s, lambda pid: _waits(settings, pid, timeout_s))
        except PostgresError as error:
            if error.sqlstate != _EXISTS:
                raise
            raise _is_there(SlotState.of(session, name), name) from error
        _, boundary, snapshot, _ = rows[0]
        assert boundary is not None and snapshot is not None
        try:
            yield MadeSlot(name, lsn.of_server(boundary), snapshot)
        except BaseException:
            if not temporary:
                _drop_unused(session, name)
            raise


def _drop_unused(session: Connection, name: str) -> None:
    try:
        drop(session, name)
    except HeadraceError as error:
        # Beside Headrace's own publication the next start drops it; otherwise that start says how to.
        _LOG.warning("Replication slot '%s' could not be dropped: %s", name, error.message)


def _temporary_name() -> str:
    return f"headrace_{secrets.token_hex(4)}"


def _forget_unfinished(session: Connection, settings: PostgresSettings) -> None:
    """Drop the slot of a first start that was killed before it gave a batch."""
    if publication.slot_is_unfinished(session, settings):
        state = SlotState.of(session, settings.slot)
        if state is not None and state.active_pid is None:
            _LOG.info("Replication slot '%s' is left from a start that did not come far; it is made again.", state.name)
            drop(session, state.name)


def _is_there(state: SlotState | None, name: str) -> CaptureError:
    used = f", and process {state.active_pid} uses it" if state is not None and state.active_pid is not None else ""
    return CaptureError(
        f"Replication slot '{name}' is there already{used}, but this pipeline has no checkpoint that goes on from it.",
        remedy="Name another one with the option 'slot', or, if nothing needs it, run: SELECT "
        f"pg_drop_replication_slot({literal(name)});",
    )


def _waits(settings: PostgresSettings, pid: int, seconds: float) -> HeadraceError:
    with connect(settings) as other:
        holders = other.rows(_HOLDERS, (pid, pid))
    text = f"The replication slot can't be made: transactions that were open before have not ended in {seconds:g} s."
    if not holders:
        return SlotWaits(text, remedy="End them, or raise 'slot_creation_timeout_s'.")
    [(who, age, application, statement)] = holders
    return SlotWaits(
        f"The replication slot can't be made: it waits for the transaction of {who} (application '{application}'), "
        f"which has been open for {age} s.",
        remedy=f"End it ({statement}), or raise 'slot_creation_timeout_s'.",
    )


def advance(connection: Connection, slot: str, boundary: int) -> None:
    """Let go of the log before a boundary, which all sinks have; a slot that is there or beyond stays where it is.

    Raises:
        PostgresError: somebody streams the slot, or it is lost.
    """
    place = lsn.to_server(boundary)
    connection.rows(_ADVANCE, (place, slot, place))
    publication.say_slot_began(connection, slot)


def drop(connection: Connection, slot: str) -> None:
    """Drop a slot.

    Raises:
        PostgresError: it is not there, or somebody uses it.
    """
    connection.rows("SELECT pg_drop_replication_slot(%s)", (slot,))


def drop_if_there(connection: Connection, slot: str) -> None:
    """Drop a slot where there is one.

    Raises:
        PostgresError: somebody uses it.
    """
    if SlotState.of(connection, slot) is not None:
        drop(connection, slot)


@contextmanager
def copy_reader(
    settings: PostgresSettings, boundary: int, *, copies_only: bool = False
) -> Iterator[ReplicationConnection]:
    """The stream of everything that commits at a boundary or later, by a temporary copy of the slot.

    Any number of them can read at once; nothing that they do moves the slot. Where the server has no slot free, the
    slot itself is streamed, by one reader at a time.

    Args:
        settings: the source's options.
        boundary: where to begin; not after the end of the log.
        copies_only: rather fail than stream the slot itself.

    Raises:
        DataLossError: the slot is gone, lost the log or begins later; also where that shows while it is read.
        LostConnection: the server went away; nothing is lost.
        PostgresError: the server refused it.
    """
    try:
        with connect_replication(settings) as session:
            # A slot of another kind can be copied, too.
            require_ours(SlotState.of(session, settings.slot), settings.slot, settings.database)
            slot = _copied(session, settings, boundary, copies_only)
            if slot is not None:
                session.start(slot, boundary, settings.publication_name, messages=_with_messages(settings))
            else:
                _stream_itself(session, settings, boundary)
            yield session
    except LostConnection:
        _require_kept(settings, boundary)
        raise


def _with_messages(settings: PostgresSettings) -> bool:
    return settings.messages or bool(settings.signal_prefix)


def _copied(session: ReplicationConnection, settings: PostgresSettings, boundary: int, copies_only: bool) -> str | None:
    """The name of a copy of the slot that has what begins at the boundary; None where no slot is free."""
    for attempt in range(1, _ATTEMPTS + 1):
        name = _temporary_name()
        try:
            confirmed = session.copy_slot(settings.slot, name)
        except PostgresError as error:
            if error.sqlstate == _NO_SLOT_FREE and not copies_only:
                return None
            if error.sqlstate in (_NOT_THERE, _NOT_READY):
                require_ours(SlotState.of(session, settings.slot), settings.slot, settings.database)
            if error.sqlstate != _INTERNAL or attempt == _ATTEMPTS:
                raise
            # An acknowledgement moved the slot in just this moment.
            time.sleep(_RETRY_SECONDS)
            continue
        if confirmed > boundary:
            raise _moved(settings.slot, confirmed, boundary)
        return name
    return None


def _stream_itself(session: ReplicationConnection, settings: PostgresSettings, boundary: int) -> None:
    """Stream the permanent slot; a reader that is just leaving is waited for."""
    _LOG.warning(
        "All replication slots of the server are in use, so slot '%s' itself is read, by one reader at a time.",
        settings.slot,
    )
    timeout = session.value("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'") / 1000
    until = time.monotonic() + timeout
    while True:
        state = require_ours(SlotState.of(session, settings.slot), settings.slot, settings.database)
        require_reaches(state, boundary)
        try:
            session.start(settings.slot, boundary, settings.publication_name, messages=_with_messages(settings))
            return
        except PostgresError as error:
            if error.sqlstate != _IN_USE:
                raise
            if time.monotonic() >= until:
                raise _in_use(session, state) from error
        time.sleep(_RETRY_SECONDS)


def _in_use(session: Connection, state: SlotState) -> CaptureError:
    users = session.rows(_USER, (state.active_pid,))
    pid, application = users[0] if users else (state.active_pid, "?")
    return CaptureError(
        f"Replication slot '{state.name}' is in use by process {pid} (application '{application}'), and no other slot "
        "is free to copy it.",
        remedy=f"Stop it (SELECT pg_terminate_backend({pid});), or raise max_replication_slots and restart the server.",
    )


def _require_kept(settings: PostgresSettings, boundary: int) -> None:
    """See whether the slot is still good after a connection was lost: a lost slot is not a passing trouble."""
    try:
        with connect(settings) as connection:
            state = SlotState.of(connection, settings.slot)
    except HeadraceError:
        # The server is away; what is with the slot shows at the next attempt.
        return
    require_reaches(require_ours(state, settings.slot, settings.database), boundary)
