"""What a server keeps back from a login that reads a table, or shows otherwise, though the log has it: row policies and
masks.

A snapshot lacks what is kept back, and changes bring it: so where that is certain, a run does not begin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.errors import CaptureError
from headrace.sources.signals import say_once


@dataclass(frozen=True)
class RestrictedRead:
    """A table that a login can't read as the log has it.

    Args:
        table: `schema.name`.
        sentence: what is kept back or shown otherwise.
        remedy: what to do.
        certain: whether it is known that the login reads something else; else it may.
    """

    table: str
    sentence: str
    remedy: str
    certain: bool = False


def require_whole_reads(reads: Iterable[RestrictedRead], read: Collection[str]) -> None:
    """See that the tables whose rows are going to be read are read as the log has them; log what is not known.

    Args:
        reads: the tables that a login may not read so.
        read: the paths of the tables whose rows are read, and not by a statement of the user's own.

    Raises:
        CaptureError: it is certain of one of them that it is read otherwise.
    """
    for restricted in reads:
        if restricted.table not in read:
            continue
        sentence = f"Table '{restricted.table}': {restricted.sentence}"
        if restricted.certain:
            raise CaptureError(sentence, remedy=restricted.remedy)
        say_once(f"{sentence} {restricted.remedy}")
