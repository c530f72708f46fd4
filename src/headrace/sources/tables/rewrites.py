"""Changes of a table's structure that may change rows without a change in the log: one rule for all sources.

A change of structure is proven harmless, or the table is read again, or the log says so, or the run stops. The proof is
each database's own (statements, catalog facts); what follows from a missing proof is decided here.

Changes of rows that no log carries can't be delivered. Where a catalog shows that they may come, they are named with
the table and what to do; the page on faults lists what no catalog shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from headrace.changes import LogicalType
from headrace.changes.table import TableId
from headrace.changes.table_pattern import EVERY_TABLE, TablePattern, matching, table_patterns
from headrace.errors import CaptureError
from headrace.options import OTHER_NAMES
from headrace.settings import Settings, option
from headrace.sources.signals import say
from headrace.sources.tables.table_rules import SourceTable

_READ_AGAIN = "Read the table again: headrace repair reread <pipeline> {}."


@dataclass(frozen=True)
class Unlogged:
    """A way by which a table's rows change, and no change records it.

    Args:
        table: `schema.name`.
        sentence: which way.
        remedy: what to do.
    """

    table: str
    sentence: str
    remedy: str


def read_again(path: str) -> str:
    """How a table is read again, as a sentence."""
    return _READ_AGAIN.format(path)


REREAD, WARN, FAIL = "reread", "warn", "fail"
_FORMER = {"snapshot": REREAD}


def on_rewrite(text: str) -> str:
    """A choice of `on_rewrite` under its present name; used as an option's kind."""
    choice = text.strip().lower()
    return _FORMER.get(choice, choice)


class RewriteSettings(Settings):
    """What happens when a change of structure may have changed rows that the log does not carry."""

    on_rewrite: str = option(
        "What happens when a table's structure changes in a way that may change its rows, because the log carries none "
        "of those changes: a column that is added with a default, a changed type, a partition that comes or goes with "
        "its rows. With reread the table is read again, beside the stream where it has a key; with warn the log says "
        "so and names the command that reads it; with fail the run stops. Changes that are proven harmless lead to "
        "none of these. `snapshot` is a former name of reread.",
        default=REREAD,
        kind=on_rewrite,
        choices=(REREAD, WARN, FAIL),
    )
    on_rewrite_max_rows: int = option(
        "Tables with more rows than this, by the estimate of the server's catalog, are not read again by themselves: "
        "'on_rewrite' is warn for them. 0 for no bound.",
        default=50_000_000,
        minimum=0,
    )


class AddedColumnSettings(RewriteSettings):
    """For sources whose batches report the one value that older rows have in an added column: they know of each row of
    a batch whether it is older. The others read such tables again.
    """

    reread_added_columns: tuple[TablePattern, ...] = option(
        "The tables that are read again where a column was added with one value for all rows from before, by name, "
        "shell glob or regular expression after `re:`. For others a marker row reports the value, and no row is read. "
        "In a pipeline the default is none, and the tables are added whose rows do not reach every table that is kept "
        "equal as they are.",
        kind=table_patterns,
        default=EVERY_TABLE,
        names=OTHER_NAMES,
    )


class TableReads(Protocol):
    """Which tables are read beside the stream and again, as the offset keeps it."""

    def rewritten(self, table: str, *, keyed: bool, again: bool, after: str = "") -> Self:
        """With a table whose rows may have changed, and what was read of them with them.

        Args:
            table: `schema.name`.
            keyed: whether it has a key by which it is read beside the stream.
            again: whether it is read again.
            after: the commit that the stream passes before it is read beside it; empty for at once.
        """

    def with_values(self, table: str, values: Mapping[str, str | None], *, since: str, upto: str) -> Self:
        """Add columns whose one value in older rows the batch reports.

        Args:
            table: `schema.name`.
            values: canonical texts by column, null for NULL.
            since: the commit after which they were added.
            upto: the commit up to which they were; empty for the end of the batch.
        """

    def without_added(self, columns: Mapping[str, Collection[str]]) -> tuple[Self, list[str]]:
        """Leave out the values of columns that tables no longer have; the rest, and those tables."""

    def is_read(self, table: str) -> bool:
        """Whether rows of a table are read beside the stream, or are going to be."""


Reads = TypeVar("Reads", bound=TableReads)
AnyTable = TypeVar("AnyTable", bound=SourceTable[Any])


@dataclass(frozen=True)
class Rewrite:
    """A change of structure that was not proven harmless.

    Args:
        path: the table, `schema.name`.
        reason: what happened, as a clause without a full stop: "column 'stock' was added with a default".
        constants: where it is proven that every row from before has these values in columns that are new under their
            names, which they have kept since, and that nothing else changed: the canonical text by column, None for
            NULL. Empty where that is not proven.
    """

    path: str
    reason: str
    constants: Mapping[str, str | None] = field(default_factory=dict)


def follow_rewrites(
    rewrites: Iterable[Rewrite],
    ad_hoc: Reads,
    tables: Mapping[str, AnyTable],
    settings: RewriteSettings,
    *,
    read: Collection[str],
    rows: Callable[[list[AnyTable]], Mapping[str, int]] = lambda _: {},
    after: str = "",
    since: str = "",
    under_way: Collection[str] = (),
    renamed: Collection[str] = (),
) -> Reads:
    """The ad-hoc snapshots with the tables that are read again because of changes of structure, and with the columns
    whose one value in older rows the batch reports.

    Runs in the driver when a batch is planned; the result goes into the batch's end offset.

    Args:
        rewrites: what was not proven harmless, in the order of the log.
        ad_hoc: the ad-hoc snapshots so far.
        tables: the captured tables by path, as they are now.
        settings: the source's options.
        read: the paths of the tables whose rows the options let be read.
        after: a commit after all changes of structure, where a catalog showed them before the stream has passed them.
        rows: asks about how many rows tables have, by path; those are left out of which the server can't say.
        since: the commit at which the batch begins, before all changes of structure, where the source reports values.
        under_way: the paths of the tables whose snapshot is under way.
        renamed: the paths of the tables with columns whose new names the stream has not reported yet. A value that is
            reported with the table as it is now would be taken for one of a table with other columns.

    Raises:
        CaptureError: the options say to stop.
    """
    names = {path: () if path in renamed else table.names for path, table in tables.items()}
    ad_hoc, unclear = ad_hoc.without_added(names)
    reason = "a column was added, and then columns got other names or are gone"
    rewrites = [*(Rewrite(path, reason) for path in unclear), *rewrites]
    of_tables = [rewrite for rewrite in rewrites if rewrite.path in tables]
    estimated = (
        rows([tables[path] for path in dict.fromkeys(rewrite.path for rewrite in of_tables)]) if of_tables else {}
    )
    for rewrite in of_tables:
        path = rewrite.path
        sentence = f"Rows of table '{path}' may have changed without a change in the log: {rewrite.reason}."
        if settings.on_rewrite == FAIL:
            raise CaptureError(
                sentence, remedy=f"Set 'on_rewrite' to {REREAD} or {WARN} to go on, or leave the table out."
            )
        asked = settings.on_rewrite == REREAD
        is_clear = bool(rewrite.constants) and path not in (*under_way, *renamed) and not ad_hoc.is_read(path)
        if asked and is_clear and not _is_reread(tables[path].id, settings):
            say(
                f"Rows of table '{path}' from before have one value in a new column: {rewrite.reason}. Tables that are "
                "kept equal get it, and no row is read; topics, files and change logs keep what they have."
            )
            ad_hoc = ad_hoc.with_values(path, rewrite.constants, since=since, upto=after)
            continue
        again = asked and path in read
        too_many = again and 0 < settings.on_rewrite_max_rows < estimated.get(path, 0)
        if too_many:
            say(
                f"{sentence} It has about {estimated[path]:,} rows, more than 'on_rewrite_max_rows' "
                f"({settings.on_rewrite_max_rows:,}), so that you say when it is read. {read_again(path)}"
            )
        else:
            say(f"{sentence} {'The table is read again.' if again else read_again(path)}")
        ad_hoc = ad_hoc.rewritten(path, keyed=bool(tables[path].chunk_key), again=again and not too_many, after=after)
    return ad_hoc


def _is_reread(table: TableId, settings: RewriteSettings) -> bool:
    """Whether a table is read again also where a column was added with one value for all rows from before."""
    if not isinstance(settings, AddedColumnSettings):
        return True
    return matching(settings.reread_added_columns, table) is not None


def can_share(one: Mapping[str, LogicalType], other: Mapping[str, LogicalType]) -> bool:
    """Whether rows of two structures can be in one batch: columns of one name have values of one kind.

    Args:
        one: the types of the columns.
        other: those of another structure of the table.
    """
    return all(_kind(one.get(name, logical)) == _kind(logical) for name, logical in other.items())


def _kind(logical: LogicalType) -> str:
    if logical.kind in ("string", "json"):
        return "text"
    return "number" if logical.kind.startswith(("int", "uint", "float", "decimal")) else logical.kind
