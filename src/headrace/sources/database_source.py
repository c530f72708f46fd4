"""What sources of databases share: signals from a table or a folder, and which tables are not captured any more."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from headrace.errors import HeadraceError
from headrace.sources.base import Source
from headrace.sources.offset import Offset
from headrace.sources.signal_files import has_files, signal_file
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.tables.lost import uncaptured_tables


class DatabaseSource(Source):
    """A source whose options are those of `SignalSettings`, and that says which of its tables are captured."""

    @abstractmethod
    def _captured_now(self, offset: Offset) -> Collection[str]:
        """The paths of the tables that are captured now, as far as an offset tells them apart.

        Raises:
            HeadraceError: the server can't be asked.
        """

    @abstractmethod
    def _means(self, path: str) -> bool:
        """Whether the options mean a table, which may be there or not."""

    @abstractmethod
    def _insert(self, signal: Signal) -> list[str]:
        """Insert a row into the signal table, and say where that is.

        Raises:
            CaptureError: the server refuses it.
        """

    def signal(self, signal: Signal) -> Sequence[str]:
        """Insert a row into the signal table; write a file where there is none."""
        if self.settings.get("signal_data_collection"):
            return self._insert(signal)
        return [f"file {signal_file(self.settings.get('signal_path'), signal)}"]

    def has_signals(self, offset: Offset) -> bool:
        """Whether the signal folder has files that were not taken yet; rows of a signal table are commits."""
        return has_files(self.settings.get("signal_path"), AdHoc.from_json(offset.ad_hoc).files)

    def _uncaptured(self, offset: Offset) -> tuple[str, ...]:
        """The known tables that are not captured now; those that a run has found where the server can't be asked."""
        try:
            captured = self._captured_now(offset)
        except HeadraceError:
            return tuple(offset.uncaptured)
        return tuple(uncaptured_tables(offset, captured, self._means))
