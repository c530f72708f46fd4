"""Which redo logs have to be mined for a range of SCNs, and whether any of them is gone.

LogMiner reads a dictionary in the redo logs and follows the definitions after it, so that it knows the names that
tables had when they were changed. The dictionary has to be whole, and in archived logs from before the first SCN that
is mined; all logs since have to be there. So it is written before the first batch, and again when many logs were filled
since.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import CaptureError, DataLossError
from headrace.sources.oracle import statements
from headrace.sources.oracle.connection import Connection


@dataclass(frozen=True, order=True)
class LogFile:
    """One log of one redo thread.

    Args:
        thread: the redo thread.
        sequence: its number in the thread.
        first: the first SCN in it.
        next: the first SCN of the log after it; of a current log a number beyond all.
        name: the file.
        current: whether it is written now.
        begins_dictionary: whether a dictionary begins in it.
        ends_dictionary: whether one ends in it.
    """

    thread: int
    sequence: int
    first: int
    next: int
    name: str
    current: bool = False
    begins_dictionary: bool = False
    ends_dictionary: bool = False


def destination(wanted: Sequence[str], rows: Iterable[tuple[object, ...]]) -> int | None:
    """The archive destination whose copies are read; None when any will do.

    Args:
        wanted: names, in the order of preference; without any the first valid local one.
        rows: id, name, status and type of each destination.

    Raises:
        CaptureError: none of the wanted ones is valid.
    """
    valid = [(int(str(id)), str(name), str(kind)) for id, name, status, kind in rows if status == "VALID"]
    for name in wanted:
        number = next((id for id, known, _ in valid if known.upper() == name.upper()), None)
        if number is not None:
            return number
    if wanted:
        raise CaptureError(
            f"No archive destination of {', '.join(wanted)} is valid.", remedy="Check 'archive_destination_name'."
        )
    return next((id for id, _, kind in valid if kind == "LOCAL"), None)


def chosen(online: Iterable[LogFile], archived: Iterable[LogFile], low: int, high: int) -> list[LogFile]:
    """The logs that hold the SCNs (low, high], each once; the archived copy before the online one."""
    logs: dict[tuple[int, int], LogFile] = {(log.thread, log.sequence): log for log in online}
    logs |= {(log.thread, log.sequence): log for log in archived}
    return sorted(log for log in logs.values() if log.next > low + 1 and log.first <= high)


def whole_after(logs: Sequence[LogFile], threads: Iterable[int], high: int, begun: Mapping[int, int]) -> int:
    """The SCN after which every open thread's logs reach to `high` without a hole; `high` where one has no such logs.

    Args:
        logs: all there are, in order, each once.
        threads: the open redo threads.
        high: SCNs up to this.
        begun: as for `require_whole`.
    """
    low = 0
    for thread in threads:
        of_thread = [log for log in logs if log.thread == thread]
        if not of_thread or of_thread[-1].next <= high:
            return high
        oldest = of_thread[-1]
        for log in reversed(of_thread[:-1]):
            if log.sequence != oldest.sequence - 1:
                break
            oldest = log
        if not (oldest.sequence == 1 and oldest.first == begun.get(thread)):
            low = max(low, oldest.first - 1)
    return min(low, high)


def require_whole(logs: Sequence[LogFile], threads: Iterable[int], low: int, high: int, begun: dict[int, int]) -> None:
    """Each open thread's logs reach from the first SCN to the last, without a hole.

    Args:
        logs: the chosen ones.
        threads: the open redo threads.
        low: SCNs after this.
        high: SCNs up to this.
        begun: the lowest SCN that any log of a thread ever began with, as far as is known: a thread that was opened
            later than `low` begins later.

    Raises:
        DataLossError: logs are gone.
    """
    for thread in threads:
        of_thread = [log for log in logs if log.thread == thread]
        reason = ""
        if not of_thread:
            reason = "no log of it is there"
        elif of_thread[0].first > low + 1 and not (
            of_thread[0].sequence == 1 and of_thread[0].first == begun.get(thread)
        ):
            reason = f"its oldest log (sequence {of_thread[0].sequence}) begins with SCN {of_thread[0].first}"
        elif of_thread[-1].next <= high:
            reason = f"its logs end with SCN {of_thread[-1].next}"
        for before, after in itertools.pairwise(of_thread):
            if after.sequence != before.sequence + 1:
                reason = f"log sequence {before.sequence + 1} is missing"
        if reason:
            raise DataLossError(
                f"Redo logs with the SCNs after {low} up to {high} of thread {thread} are gone: {reason}.",
                remedy="Restore the archived logs and register them (ALTER DATABASE REGISTER LOGFILE; RMAN RESTORE "
                "ARCHIVELOG), or take a new snapshot with a new checkpoint.",
            )


IN_REDO = "redo_log_catalog"
_LOG = logging.getLogger("headrace.sources")


def strategy(text: str) -> str:
    """A mining strategy; used as an option's kind.

    Raises:
        ValueError: it is `hybrid`.
    """
    name = text.strip().lower()
    if name == "hybrid":
        raise ValueError("names are not worked out from a history of schemas; redo_log_catalog follows definitions")
    return name


def dictionaries(archived: Sequence[LogFile]) -> list[tuple[LogFile, LogFile]]:
    """The first and the last log of each dictionary that is there as a whole, oldest first."""
    by_index = {(log.thread, log.sequence): log for log in archived}
    pairs = []
    for last in archived:
        first: LogFile | None = last if last.ends_dictionary else None
        while first is not None and not first.begins_dictionary:
            first = by_index.get((first.thread, first.sequence - 1))
        if first is not None:
            pairs.append((first, last))
    return sorted(pairs, key=lambda pair: pair[1].next)


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
    pairs = dictionaries(archived)
    if not pairs:
        return True
    last = pairs[-1][1]
    return sum(1 for log in archived if log.thread == last.thread and log.sequence > last.sequence) > most
