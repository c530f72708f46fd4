"""A moment of the database at which tables are read: where a slot was made, kept open for as long as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from headrace.sources.log.planner import PointWaits
from headrace.sources.postgresql import lsn, slots
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.keeper import Keeper, PointPassed
from headrace.sources.postgresql.options import PostgresSettings

_ATTEMPTS = 3
_WAIT_SECONDS = 2
"""How long a snapshot beside the stream waits for open transactions before it leaves that to a later batch."""


class SnapshotPoint:
    """Everything that was committed before the boundary is in it, and nothing else is.

    It lives in the driver's Python process. When that ends, tables with a key are read as they are, and their changes
    since the boundary come again in the stream.

    Args:
        boundary: where the stream goes on after it.
        keeper: the session that keeps it; None where no table is read.
        paths: the tables that are read at it.
    """

    def __init__(self, boundary: int, keeper: Keeper | None, paths: frozenset[str]) -> None:
        self.boundary = boundary
        self._keeper = keeper
        self._paths = paths

    @classmethod
    def made(
        cls, settings: PostgresSettings, tables: Mapping[str, PostgresTable], *, permanent: bool, waits: bool = False
    ) -> Self:
        """A moment after all that is committed now.

        Args:
            settings: the source's options.
            tables: those that are read, by path.
            permanent: whether its slot stays, as the one that the stream is read from.
            waits: whether the caller tries again later.

        Raises:
            CaptureError: the slot can't be made, or a table can't be locked.
            PointWaits: transactions are open that began before, and the caller tries again later.
        """
        timeout = _WAIT_SECONDS if waits else settings.slot_creation_timeout_s
        for attempt in range(_ATTEMPTS):
            try:
                with slots.created(settings, temporary=not permanent, timeout_s=timeout) as made:
                    keeper = Keeper(settings, made.snapshot, list(tables.values())) if tables else None
                    return cls(made.boundary, keeper, frozenset(tables))
            except slots.SlotWaits as error:
                if not waits:
                    raise
                raise PointWaits(error.message) from error
            except PointPassed as passed:
                if attempt == _ATTEMPTS - 1:
                    raise passed.error from passed
        raise AssertionError("the last attempt returns or raises")

    def serves(self, path: str, commit: str) -> bool:
        """Whether a table is read at this moment; where it is not, it is read as it is.

        Raises:
            CaptureError: it can't be had any more, and the table has no key by which it could be read without it.
        """
        here = self._keeper is not None and path in self._paths and lsn.boundary(commit) == self.boundary
        return here and self._keeper is not None and self._keeper.serves(path)

    @property
    def session(self) -> Connection:
        """The session that sees the tables at this moment, while it serves one."""
        assert self._keeper is not None
        return self._keeper.connection

    @property
    def exported(self) -> str:
        """The name of the snapshot for other sessions, while it serves a table."""
        assert self._keeper is not None
        return self._keeper.snapshot

    def close(self) -> None:
        """Let the moment go."""
        if self._keeper is not None:
            self._keeper.close()
