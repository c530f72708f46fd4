"""How far a batch of the stream goes, and how its tables look: up to before a definition, or from one on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.oracle import scn
from headrace.sources.oracle.captured_table import tables_of
from headrace.sources.oracle.catalog import Selection, captured_tables, choose
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.definitions import Definition, TablesAfter, definitions_of, only_defines
from headrace.sources.oracle.ledger import Ledger
from headrace.sources.oracle.mining_state import Mined
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.tables.lost import uncaptured_tables
from headrace.sources.tables.rewrites import Rewrite
from headrace.sources.tables.unmatched import require_matched_tables


@dataclass(frozen=True)
class Delivery:
    """What a batch of the stream delivers.

    Args:
        end: its commit, and the tables that are captured there; of the rest it is the end of the batch before.
        definitions: those that take effect in the batch.
        fresh: tables that came in with rows that the log does not have.
        recreated: tables that were dropped, and created again under their name.
        rewrites: what the definitions may have done to rows that were there.
        is_cut: whether the batch ends early, because tables come or go in the next one.
    """

    end: Offset
    definitions: tuple[Definition, ...] = ()
    fresh: tuple[str, ...] = ()
    recreated: tuple[str, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    is_cut: bool = False


class DeliveryPlanner:
    """Decides what batches deliver. Runs in the driver.

    Args:
        connect: opens a connection to the database in which the tables are.
        settings: the source's options.
        database: that database's name.
    """

    def __init__(self, connect: Callable[[], Connection], settings: OracleSettings, database: str) -> None:
        self._connect = connect
        self._settings = settings
        self._database = database

    def plan(self, start: Offset, ledger: Ledger, indexes: Mined, reached: int, limit: Limit) -> Delivery:
        """What the batch that begins at `start` delivers.

        Args:
            start: the end of the batch before.
            ledger: the transactions of the ranges.
            indexes: what the mined ranges hold.
            reached: up to which SCN ranges are mined.
            limit: how far the batch may go.
        """
        delivery = self._up_to(start, ledger, indexes, reached, limit)
        cut = self._cut(start, delivery, ledger)
        if cut > scn.number(start.commit):
            return replace(self._up_to(start, ledger, indexes, cut, limit), is_cut=True)
        return delivery

    def _up_to(self, start: Offset, ledger: Ledger, indexes: Mined, reached: int, limit: Limit) -> Delivery:
        after = scn.number(start.commit)
        commits = ledger.delivered_by(after, reached)
        definitions = definitions_of(ledger, indexes, Selection(self._settings), after, reached)
        bound = limit.commits or self._settings.max_commits_per_trigger
        end = reached
        if bound and len(commits) > bound:
            end = commits[bound - 1].commit or reached
        if limit.upto:
            end = max(after, min(end, scn.number(limit.upto)))
        # Definitions before the first change take effect with this batch, later ones end it.
        changing = [t.commit or 0 for t in commits if not only_defines(t, indexes)]
        first = min((at for at in changing if at <= end), default=end + 1)
        later = [d.commit for d in definitions if min(end, first) < d.commit <= end]
        taking_effect = [d for d in definitions if d.commit <= min(end, first)]
        if later:
            end = min(later) - 1
        taking_effect = [d for d in taking_effect if d.commit <= end]
        result = replace(start, commit=scn.to_text(max(end, after)))
        return self._redefined(result, taking_effect) if taking_effect else Delivery(result)

    @staticmethod
    def _cut(start: Offset, delivery: Delivery, ledger: Ledger) -> int:
        """The SCN before which a batch has to end that takes tables in or loses some; 0 where none does.

        With other tables ranges are mined again. To spare a quiet time that, the batch before ends where the range
        begins in which they are defined.
        """
        if set(delivery.end.schemas) == set(start.schemas):
            return 0
        xids = {definition.xid for definition in delivery.definitions}
        return min((t.ranges[0].low for t in ledger.committed if t.xid in xids and t.ranges), default=0)

    def _redefined(self, end: Offset, definitions: Sequence[Definition]) -> Delivery:
        """With the tables after definitions. The server's catalog has the newest."""
        with self._connect() as connection:
            captured = captured_tables(connection, self._database, self._settings, strict=False)
            chosen = choose(connection, self._settings)
        fresh = [path for path in captured if path not in end.schemas]
        require_matched_tables(self._settings, tables_of(end.schemas), captured, fresh)
        tables = TablesAfter(end.known, end.schemas, end.uncaptured)
        tables.follow(definitions, captured, logs_all=chosen.logs_all, by_logging=chosen.by_logging)
        whole = [path for path in tables.known if path not in tables.partial]
        uncaptured = uncaptured_tables(end, whole, Selection(self._settings).means_path)
        end = replace(end, schemas=tables.schemas, known=tuple(tables.known), uncaptured=uncaptured)
        read_anyway = {*tables.fresh, *tables.recreated}
        rewrites = tuple(rewrite for rewrite in tables.rewrites if rewrite.path not in read_anyway)
        return Delivery(end, tuple(tables.applied), tuple(tables.fresh), tuple(tables.recreated), rewrites)
