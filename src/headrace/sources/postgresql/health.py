"""The state of the replication slot: whether it keeps what is needed, how much that is, and how much may follow.

What is committed is in the log at once, so nothing is late on the server's side. The log is kept from the slot on; how
much of it, `max_slot_wal_keep_size` bounds.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, replace

from headrace.errors import DataLossError, HeadraceError
from headrace.sources.health import CaptureState, Health, size_text, span_text
from headrace.sources.offset import Offset
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.guards import ServerState, judge
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import ON_PRIMARY, SET_WAL_LEVEL, PostgresError
from headrace.sources.postgresql.slots import SlotState, copy_reader, require_ours
from headrace.sources.postgresql.stream_state import StreamState

_SERVER = "SELECT clock_timestamp(), pg_is_in_recovery(), current_setting('wal_level')"
_WRITTEN = "SELECT pg_current_wal_insert_lsn()::text"
_OLDEST = """
SELECT pid, coalesce(nullif(application_name, ''), '?'), extract(epoch FROM clock_timestamp() - xact_start)::bigint
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
"""
_PREPARED = """
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::bigint FROM pg_prepared_xacts ORDER BY prepared LIMIT 1
"""
_LOOK_BYTES = 64 * 2**20
"""How much log is read at the most to see what waits. A slot that keeps more is behind by what its last batch says."""
_LOOK_SECONDS = 1.0
_WAIT_SECONDS = 0.1
_KEEPALIVE, _BEGIN, _ROWS = b"k"[0], b"B"[0], frozenset(b"IUDT")
_KIND, _TIME = 25, slice(34, 42)
"""Where a payload says what it is, and where a BEGIN has the time of the commit."""
_EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_MUCH = 256 * 2**20
"""How much log from before the slot's position is worth a word."""


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
            return Health(CaptureState.UNKNOWN, f"The source can't be asked: {error.message}", error.remedy)


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
        if slot.restart is None or end - slot.restart > _LOOK_BYTES:
            return None, False
        committed, deadline = None, time.monotonic() + _LOOK_SECONDS
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
