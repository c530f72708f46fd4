"""A window of a database's log: what the planner finds in it, and what the offset keeps of it."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

from headrace.sources.offset import Offset
from headrace.sources.signals import Signal


@dataclass(frozen=True)
class Window:
    """What the log has after an offset, as far as the next batch may go. Places are in the form of `Offset.commit`.

    Args:
        end: where the batch ends; where it begins, when there is nothing new.
        rows: whether there is anything to read before that.
        commit_time: when the last commit with rows was made, as far as they were read.
        signals: what signals ask for, in the order of their commits.
        cuts: where several tasks that read it begin and end, without its own edges.
        size: how many bytes of the log it is.
        altered: whether tables may have been made, altered or dropped in it, as far as the log says so.
        cut: whether it ends in front of changes that one batch can't have with those before them.
    """

    end: str
    rows: bool = False
    commit_time: dt.datetime | None = None
    signals: tuple[Signal, ...] = ()
    cuts: tuple[str, ...] = ()
    size: int = 0
    altered: bool = False
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class WindowState(ABC):
    """What `Offset.log` keeps of the window of the batch that ends there; a source adds what it reads the log by.

    Args:
        cuts: as `Window.cuts`.
        reads: whether the window is read at all; not where the log had nothing for the captured tables.
        waiting: tables that were first captured and are not read yet; their changes are not streamed before.
    """

    cuts: tuple[str, ...] = ()
    reads: bool = False
    waiting: tuple[str, ...] = ()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """JSON values."""

    def with_begun(self, tables: Collection[str]) -> Self:
        """The state of a batch that begins to read tables as they are now, by their paths."""
        return replace(self, waiting=tuple(path for path in self.waiting if path not in tables))

    def settled(self) -> Self:
        """The same position, seen from a batch without a window."""
        return replace(self, cuts=(), reads=False)

    def in_offset(self, offset: Offset) -> Offset:
        """The offset with this state."""
        return replace(offset, log=self.to_json())
