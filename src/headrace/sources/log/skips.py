"""Whether changes of one table can be left out up to a position of a database's log."""

from __future__ import annotations

from headrace.errors import OptionError
from headrace.sources.offset import Offset
from headrace.sources.table_moves import MovePlan, TableMove


def checked_skip(move: TableMove, offset: Offset, head: str | None = None) -> MovePlan:
    """The skip, if it can be done.

    Args:
        move: with a commit in the form of `Offset.commit`.
        offset: up to where all is delivered.
        head: the newest commit of the log; None where it was not asked for.

    Raises:
        OptionError: it can't; the sentence says why.
    """
    path, to = move.table, move.to
    if path not in offset.known:
        raise OptionError(f"Table '{path}' is not captured yet.", remedy="Wait until the pipeline has taken it in.")
    progress = offset.tables.get(path)
    if offset.initial or (progress is not None and not progress.done):
        raise OptionError(
            f"Table '{path}' is in its snapshot, so none of its changes is delivered.",
            remedy="Wait until the snapshot is complete.",
        )
    at = offset.commit if progress is None else max(offset.commit, progress.commit)
    if len(to) != len(at):
        raise OptionError(f"'{to}' is no place in this log.", remedy=f"They look like {at}.")
    if to <= at:
        raise OptionError(
            f"Changes of table '{path}' are delivered up to {at} already, so none is left out up to {to}.",
            remedy="Name a later place, or now.",
        )
    if head is not None and to > head:
        raise OptionError(f"The log does not go up to {to} yet; it ends at {head}.", remedy="Name that, or now.")
    return MovePlan(move, at)


def refuse_rewind(move: TableMove) -> None:
    """A log is read once for all tables, so the changes of one can't come again.

    Raises:
        OptionError: the move is one back.
    """
    if move.kind == "rewind":
        raise OptionError(
            f"Changes of table '{move.table}' can't come again: this source reads the log once, for all tables.",
            remedy="Read the table again: headrace repair reread.",
        )
