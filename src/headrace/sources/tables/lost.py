"""Tables that were captured and are not captured any more: one rule for all sources.

Such a table stays in the offset, in the status and in the numbers until the options no longer mean it, and it never
stops the others unless the user wants that. When it is captured again, it is read again, because nobody knows what
happened to it meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from headrace.changes import TableId
from headrace.changes.table_pattern import TablePattern
from headrace.errors import CaptureError, DataLossError
from headrace.settings import Settings, option
from headrace.sources.offset import Offset

CONTINUE, FAIL = "continue", "fail"


class LostTableSettings(Settings):
    """What happens when a captured table is not captured any more."""

    on_table_lost: str = option(
        "What happens when a table is no longer captured, because its capture was switched off or it was dropped. With "
        "continue the other tables go on, and the log, `headrace status`, the metrics and the page name the table "
        "until the options leave it out. With fail the run stops, and does not start again before that.",
        default=CONTINUE,
        choices=(CONTINUE, FAIL),
    )


WITHOUT_ROWS = ("no_data", "recovery")
"""The snapshot modes in which no table is read, not even one that is captured again."""
_LOG = logging.getLogger("headrace.sources")
Means = Callable[[str], bool]
"""Whether the options mean a table (`schema.name`)."""


def uncaptured_tables(offset: Offset, captured: Collection[str], means: Means) -> dict[str, str]:
    """The tables that were captured, that the options still mean, and that are not captured now.

    Args:
        offset: what is known from before.
        captured: the tables that are captured now.
        means: whether the options mean a table.

    Returns:
        For each table the commit up to which its changes are delivered.
    """
    uncaptured = {}
    for path in offset.tables_seen:
        if path not in captured and means(path):
            progress = offset.tables.get(path)
            uncaptured[path] = offset.uncaptured.get(path) or (offset.commit if progress is None else progress.commit)
    return uncaptured


_MISSING = "Its changes are missing from now on"


def say_uncaptured(
    tables: Collection[str], before: Collection[str], settings: Settings, remedy: str, effect: str = _MISSING
) -> None:
    """Log each table that is not captured any more, or stop for it.

    Args:
        tables: those that are not captured any more.
        before: those of them that were reported before.
        settings: the source's options.
        remedy: how a table of this source is captured again.
        effect: what it means.

    Raises:
        CaptureError: the user wants a run to stop.
    """
    for path in tables:
        sentence = f"Table '{path}' is not captured any more."
        if settings.get("on_table_lost") == FAIL:
            raise CaptureError(
                sentence, remedy=f"{remedy}, take it off 'tables', or set 'on_table_lost' to {CONTINUE}."
            )
        if path not in before:
            _LOG.warning("%s %s; the other tables go on. %s.", sentence, effect, remedy)


def say_returned(path: str, after: str, settings: Settings, *, read_again: bool) -> None:
    """Log that a table is captured again, and that changes of it are lost.

    Args:
        path: the table.
        after: the position after which they are, in the source's words.
        settings: the source's options.
        read_again: whether its rows are read again. The end of that read takes rows that were deleted meanwhile out of
            tables that mirror it.

    Raises:
        DataLossError: they are not, and the options do not say to go on with a loss.
    """
    _say_lost(
        f"Table '{path}' was not captured for a time, so changes of it after {after} are lost.",
        "It is read again; rows that were deleted meanwhile go from tables that mirror it, and no change says so."
        if read_again
        else None,
        settings,
        "Set 'snapshot_mode' to initial, so that the table is read again, or 'fail_on_data_loss' to false.",
    )


def say_changes_gone(path: str, span: str, why: str, settings: Settings, *, read_again: bool) -> None:
    """Log that changes of a table that a batch was planned with can't be read any more.

    Args:
        path: the table.
        span: from where to where, in the source's words.
        why: what happened to them.
        settings: the source's options.
        read_again: whether the table's rows are read again as soon as it is captured.

    Raises:
        DataLossError: they are not, and the options do not say to go on without them.
    """
    _say_lost(
        f"Changes of table '{path}' {span} are lost: {why}.",
        "The table is read again as soon as it is captured." if read_again else None,
        settings,
        "Set 'fail_on_data_loss' to false to go on without them, or start with a new checkpoint.",
    )


def say_made_again(path: str, *, read_again: bool) -> None:
    """Log that another table has the name of one that was dropped; all changes of both are in the log.

    Args:
        path: the name.
        read_again: whether the new one's rows are read.
    """
    mended = (
        "It is read again, so that rows of the dropped one go from tables that mirror it."
        if read_again
        else "Rows of the dropped one stay in tables that mirror it: empty those that should be equal to it."
    )
    _LOG.warning("Table '%s' was dropped and made again. %s", path, mended)


def _say_lost(sentence: str, mended: str | None, settings: Settings, remedy: str) -> None:
    if mended is None and settings.get("fail_on_data_loss"):
        raise DataLossError(sentence, remedy=remedy)
    _LOG.warning("%s", sentence if mended is None else f"{sentence} {mended}")


def forgiven(known: Collection[str], settings: Settings) -> Collection[str]:
    """The known tables that need not be captured when a run starts."""
    return known if settings.get("on_table_lost") == CONTINUE else ()


def is_named(path: str, include: Collection[str], exclude: Collection[str], database: str) -> bool:
    """Whether the lists of a source mean a table, which may be there or not.

    Args:
        path: `schema.name`.
        include: patterns of what is captured; empty for all tables.
        exclude: patterns of what is left out.
        database: the database's name.
    """
    schema, _, name = path.partition(".")
    id = TableId(database, schema, name)

    def named(patterns: Collection[str]) -> bool:
        return any(text == path or TablePattern(text, in_source=True).among([id], lambda one: one) for text in patterns)

    return (not include or named(include)) and not named(exclude)
