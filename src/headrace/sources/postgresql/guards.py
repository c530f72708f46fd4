"""Whether a server still is where a pipeline left it.

The server answers a doubtful start with silence: before what the slot confirmed, after the end of the log and on
another timeline it just sends less. So all of that is looked at before a batch is planned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.connection import Connection, connect_replication
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.publication import PublicationState
from headrace.sources.postgresql.refusals import ON_PRIMARY, Endpoint
from headrace.sources.postgresql.slots import AFTER_LOSS, SlotState, require_ours, require_reaches
from headrace.sources.postgresql.stream_state import LogState

_NEW_CHECKPOINT = "Use another checkpoint, which begins with a new snapshot."
_LOG = """
SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), pg_current_wal_flush_lsn()::text
"""


@dataclass(frozen=True)
class ServerState:
    """What a server says of itself.

    Args:
        endpoint: its address and the database, for sentences.
        system: the cluster's identifier.
        in_recovery: whether it is a standby; the rest is not known of one.
        timeline: the timeline that it writes.
        flushed: the LSN up to which its log is on disk.
        switches: for each timeline before this one the LSN at which it ended; read where it is needed.
        slot: the permanent slot.
        publication: the publication.
    """

    endpoint: Endpoint
    system: str
    in_recovery: bool = False
    timeline: int = 0
    flushed: int = 0
    switches: tuple[tuple[int, int], ...] = ()
    slot: SlotState | None = None
    publication: PublicationState | None = None

    @classmethod
    def of(cls, connection: Connection, settings: PostgresSettings, timeline: int) -> ServerState:
        """As it is now.

        Args:
            connection: to the database.
            settings: the source's options.
            timeline: the one that is known from before.
        """
        [(system, in_recovery)] = connection.rows(
            "SELECT system_identifier::text, pg_is_in_recovery() FROM pg_control_system()"
        )
        if in_recovery:
            # It has no log of its own; asked how far it is written, it refuses to answer.
            return cls(connection.endpoint, system, in_recovery)
        [(written, flushed)] = connection.rows(_LOG)
        now = int(written, 16)
        return cls(
            connection.endpoint,
            system,
            in_recovery,
            now,
            lsn.of_server(flushed),
            _history(settings, now) if now != timeline else (),
            SlotState.of(connection, settings.slot),
            PublicationState.of(connection, settings.publication_name),
        )


def require_same_log(connection: Connection, settings: PostgresSettings, before: LogState, commit: str) -> LogState:
    """See that the server still has everything that follows an offset.

    Whether a table was taken out of the publication and put in again is not asked here: `LogState.rejoined`.

    Args:
        connection: to the database.
        settings: the source's options.
        before: what the offset keeps of the log.
        commit: the offset's commit.

    Returns:
        What the offset keeps of the log, with the timeline that the server writes now: offsets from here on are
        beyond the position where it began.

    Raises:
        PositionMismatch: it is another server, or one that went back in time.
        DataLossError: the slot or the publication does not have all changes any more.
        CaptureError: it is a standby, or the slot is of another kind.
    """
    state = ServerState.of(connection, settings, before.timeline)
    return judge(state, before, lsn.boundary(commit), settings)


def judge(now: ServerState, before: LogState, boundary: int, settings: PostgresSettings) -> LogState:
    """As `require_same_log`, of what was read before; makes no request."""
    endpoint, where = now.endpoint, lsn.to_server(boundary)
    if now.system != before.system:
        raise PositionMismatch(
            f"The checkpoint was written with another server than '{endpoint.server}': its system identifier was "
            f"{before.system}, here it is {now.system}.",
            remedy=f"Set 'hostname' and 'port' to the server that it belongs to. {_NEW_CHECKPOINT}",
        )
    if now.in_recovery:
        raise CaptureError(f"Server '{endpoint.server}' is a standby, whose log can't be read.", remedy=ON_PRIMARY)
    if now.timeline != before.timeline:
        ended = dict(now.switches).get(before.timeline)
        if ended is None or ended < boundary:
            raise PositionMismatch(
                f"Changes were read up to {where} on timeline {before.timeline}, which server '{endpoint.server}' left "
                f"{'before it had them' if ended is None else f'at {lsn.to_server(ended)}'}: a standby was promoted, "
                "or a backup restored, without the last of them.",
                remedy=_NEW_CHECKPOINT,
            )
    if boundary > now.flushed:
        raise PositionMismatch(
            f"Changes were read up to {where}, but the log of server '{endpoint.server}' ends at "
            f"{lsn.to_server(now.flushed)}: it was restored from a backup.",
            remedy=_NEW_CHECKPOINT,
        )
    require_reaches(require_ours(now.slot, settings.slot, endpoint.database), boundary)
    _require_publication(now.publication, before, settings.publication_name)
    return replace(before, timeline=now.timeline)


def _require_publication(now: PublicationState | None, before: LogState, name: str) -> None:
    if now is None or (name == before.publication and now.oid != before.publication_oid):
        happened = "is not there any more" if now is None else "was dropped and made again"
        raise DataLossError(
            f"Publication '{name}' {happened}, so the server can't decode the changes before.", remedy=AFTER_LOSS
        )
    if name != before.publication:
        # The user named another one, which may be younger than the log that is still to be read.
        raise DataLossError(
            f"The option 'publication' names '{name}', but the checkpoint was written with '{before.publication}', and "
            f"changes that '{name}' did not publish yet would be missing.",
            remedy=f"Name the same publication. {AFTER_LOSS}",
        )
    gone = [each for each in before.operations if each not in now.operations]
    if gone:
        raise DataLossError(
            f"Publication '{name}' does not publish {', '.join(gone)} any more.",
            remedy=f"Run: ALTER PUBLICATION \"{name}\" SET (publish = '{', '.join(before.operations)}'); {AFTER_LOSS}",
        )
    if now.via_root != before.via_root:
        raise DataLossError(
            f"Publication '{name}' names the tables of partitions in another way than before.",
            remedy=f'Run: ALTER PUBLICATION "{name}" SET (publish_via_partition_root = '
            f"{'true' if before.via_root else 'false'}); {AFTER_LOSS}",
        )


def _history(settings: PostgresSettings, timeline: int) -> tuple[tuple[int, int], ...]:
    if timeline == 1:
        return ()
    with connect_replication(settings) as session:
        [(_, content)] = session.rows(f"TIMELINE_HISTORY {timeline}")
    text = content.decode() if isinstance(content, bytes) else str(content)
    lines = [line.split("\t") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple((int(number), lsn.of_server(ended)) for number, ended, *_ in lines)
