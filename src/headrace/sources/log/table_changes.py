"""Which tables came into capture and which left it since an offset, and the offset with those that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from headrace.settings import Settings
from headrace.sources.log.window import WindowState
from headrace.sources.offset import Offset
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.tables.lost import Means, say_returned, say_uncaptured, uncaptured_tables


class KeptTable(Protocol):
    """A captured table that an offset keeps."""

    def to_json(self) -> Any:
        """JSON values."""


@dataclass(frozen=True)
class TableChanges:
    """What became of the tables of an offset.

    Args:
        schemas: the captured tables as they are now, by path, as an offset keeps them.
        fresh: those that are captured newly, or are others of the same name.
        read: those that are read before their changes, when they come.
        uncaptured: those that the options mean and that are not captured now, each with the commit up to which its
            changes are delivered.
    """

    schemas: Mapping[str, Any]
    fresh: Sequence[str]
    read: Sequence[str]
    uncaptured: Mapping[str, str]

    @classmethod
    def said(
        cls,
        settings: Settings,
        start: Offset,
        captured: Mapping[str, KeptTable],
        fresh: Sequence[str],
        means: Means,
        *,
        read: Sequence[str],
        remedy: str,
        restarted: bool,
    ) -> Self:
        """The changes, after telling the user which tables are gone or come back.

        Args:
            settings: the source's options.
            start: where the last batch ended.
            captured: the tables as the catalog shows them now.
            fresh: as `TableChanges.fresh`.
            means: whether the options mean a table.
            read: as `TableChanges.read`.
            remedy: how a table of this source is captured again.
            restarted: whether a new process asks, which tells everything once more.

        Raises:
            CaptureError: the options say to stop where a table is gone.
            DataLossError: changes of a table are lost, and the options do not say to go on.
        """
        uncaptured = uncaptured_tables(start, captured, means)
        say_uncaptured(list(uncaptured), () if restarted else start.uncaptured, settings, remedy)
        for path in fresh:
            if path in start.tables_seen:
                after = start.uncaptured.get(path, start.commit)
                say_returned(path, f"commit {after}", settings, read_again=path in read)
        return cls({path: table.to_json() for path, table in captured.items()}, fresh, read, uncaptured)

    @property
    def _wanted(self) -> list[str]:
        return [path for path in self.fresh if path in self.read]

    def with_reads(self, ad_hoc: AdHoc) -> AdHoc:
        """What is to be read, with the tables that came."""
        return replace(ad_hoc, blocking=tuple(dict.fromkeys((*ad_hoc.blocking, *self._wanted))))

    def in_offset(self, start: Offset, state: WindowState, ad_hoc: AdHoc) -> Offset:
        """The offset with the tables as they are now. The changes of those that are read wait until then.

        Args:
            start: where the last batch ended.
            state: what the offset keeps of the log.
            ad_hoc: what is to be read.
        """
        kept = [path for path in start.known if path in self.schemas]
        gone = {path for path in start.tables if path not in self.schemas or path in self.fresh}
        end = replace(
            start,
            known=(*kept, *(path for path in self.fresh if path not in kept)),
            schemas=self.schemas,
            uncaptured=self.uncaptured,
            ad_hoc=ad_hoc.to_json(),
            tables={path: progress for path, progress in start.tables.items() if path not in gone},
        )
        waiting = (*(path for path in state.waiting if path in self.schemas), *self._wanted)
        return replace(state, waiting=tuple(dict.fromkeys(waiting))).in_offset(end)
