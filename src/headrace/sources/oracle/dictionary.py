"""A dictionary in the redo logs: LogMiner reads it and follows the definitions after it, so that it knows the names
that tables had when they were changed.

It has to be whole, and in archived logs from before the first SCN that is mined; all logs since have to be there. So
it is written before the first batch, and again when many logs were filled since.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.errors import DataLossError
from headrace.sources.oracle import statements
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.logs import LogFile

IN_REDO = "redo_log_catalog"
_LOG = logging.getLogger("headrace.sources")


def strategy(text: str) -> str:
    """A mining strategy; used as an option's kind.

    Raises:
        ValueError: it is `hybrid`.
    """
    found = text.strip().lower()
    if found == "hybrid":
        raise ValueError("names are not worked out from a history of schemas; redo_log_catalog follows definitions")
    return found


def dictionaries(archived: Sequence[LogFile]) -> list[tuple[LogFile, LogFile]]:
    """The first and the last log of each dictionary that is there as a whole, oldest first."""
    by_index = {(log.thread, log.sequence): log for log in archived}
    found = []
    for last in archived:
        first: LogFile | None = last if last.ends_dictionary else None
        while first is not None and not first.begins_dictionary:
            first = by_index.get((first.thread, first.sequence - 1))
        if first is not None:
            found.append((first, last))
    return sorted(found, key=lambda pair: pair[1].next)


def mined_from(archived: Sequence[LogFile], low: int) -> int:
    """The SCN after which logs are needed, to mine what comes after another one with a dictionary from before that.

    Raises:
        DataLossError: there is no such dictionary.
    """
    fit = [first for first, last in dictionaries(archived) if last.next <= low + 1]
    if not fit:
        raise DataLossError(
            f"Redo logs with a whole dictionary from before SCN {low} are gone, or there never was one: "
            f"'log_mining_strategy' {IN_REDO} needs it.",
            remedy="Restore the archived logs that have it (DICTIONARY_BEGIN and DICTIONARY_END in V$ARCHIVED_LOG), "
            "mine with 'log_mining_strategy' online_catalog, or take a new snapshot with a new checkpoint.",
        )
    return fit[-1].first - 1


def write(root: Connection) -> None:
    """Have the database write its dictionary into the redo logs; it switches the log for that.

    Args:
        root: to the database, or to the root of a container database.
    """
    root.run(statements.BUILD_DICTIONARY)
    _LOG.info("The database wrote its dictionary into the redo logs.")


def is_old(archived: Sequence[LogFile], most: int) -> bool:
    """Whether there is no whole dictionary, or more than so many logs were filled since the newest."""
    found = dictionaries(archived)
    if not found:
        return True
    last = found[-1][1]
    return sum(1 for log in archived if log.thread == last.thread and log.sequence > last.sequence) > most
