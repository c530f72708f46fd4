"""Names and patterns of a source's options that stand for nothing: a mask that is misspelt lets values out in clear.

They are held against what the catalog shows, when a run starts and whenever a table's schema changes. A pattern
with `optional:` in front may stand for nothing, for the sake of a table or column that is still to come.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.changes import TableId
from headrace.changes.table_pattern import TablePattern
from headrace.errors import OptionError
from headrace.options import Names, bare, is_optional, shown_name
from headrace.registry import did_you_mean
from headrace.settings import Settings
from headrace.sources.tables.columns import matching
from headrace.sources.tables.table_rules import SourceTable

FAIL = "fail"
_LOG = logging.getLogger("headrace.sources")
_HOW = "Correct it, put 'optional:' before it, or set 'unmatched_patterns' to warn."


@dataclass(frozen=True)
class TableColumns:
    """A captured table, as names and patterns are held against it.

    Args:
        id: where it lives.
        columns: all that it has.
        captured: those whose values are captured, or would be without the lists of columns.
        gone: whether it is not captured any more, so that its columns are not known.
    """

    id: TableId
    columns: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    gone: bool = False


def columns_of(table: SourceTable[Any]) -> TableColumns:
    """A table as names and patterns of the options are held against it."""
    return TableColumns(table.id, table.columns or table.names, table.names)


def gone_table(path: str, database: str) -> TableColumns:
    """A table that is not captured any more."""
    schema, _, name = path.partition(".")
    return TableColumns(TableId(database, schema, name), gone=True)


@dataclass(frozen=True)
class Unmatched:
    """A name or pattern that stands for nothing.

    Args:
        option: the option that holds it, fit to be shown.
        text: as the user wrote it.
        names: what it should stand for.
        near: what may be meant; empty where nothing is near.
        owner: whose option it is, where that is not the source (` of transform 1`).
    """

    option: str
    text: str
    names: Names
    near: str = ""
    owner: str = ""

    @property
    def sentence(self) -> str:
        """What is wrong."""
        what = "table" if self.names.what == "tables" else "captured column"
        return f"No {what} matches '{self.text}' of option '{self.option}'{self.owner}."

    @property
    def stops(self) -> bool:
        """Whether a run must not start with it."""
        return self.names.does != "informs"


def has_names(settings: Settings) -> bool:
    """Whether an option names tables or columns at all, so that the catalog has to be asked."""
    return any(names.does != "selects" for _, names, _ in _named(settings))


def unmatched(
    settings: Settings, candidates: Sequence[TableColumns], tables: Sequence[TableId], *, selects: bool = True
) -> list[Unmatched]:
    """The names and patterns of a source's options that stand for nothing.

    Args:
        settings: the options.
        candidates: the captured tables, and those that are gone: what may be for one of these stops nothing.
        tables: all tables that there are, captured or not, against which lists of tables are held.
        selects: whether the lists by which tables are chosen are looked at, too.
    """
    unmatched_options = []
    for option, names, text in _named(settings):
        if is_optional(text) or (names.does == "selects" and not selects):
            continue
        if names.what == "tables":
            near = _stands_for_table(text, option, [c.id for c in candidates] if names.does == "chooses" else tables)
        else:
            near = _stands_for_column(text, candidates, every=names.what == "columns")
        if near is not None and not any(table.gone and _may_be_for(text, table.id) for table in candidates):
            unmatched_options.append(Unmatched(shown_name(option), text, names, near))
    return unmatched_options


def require_matched(settings: Settings, unmatched_options: Iterable[Unmatched]) -> None:
    """Stop where something stands for nothing, or say so where the options ask for no more.

    Raises:
        OptionError: with all of them.
    """
    stopping = [fromkey for fromkey in dict.fromkeys(unmatched_options) if fromkey.stops]
    if not stopping:
        return
    message = " ".join(one.sentence for one in stopping)
    if settings.get("unmatched_patterns", FAIL) != FAIL:
        _LOG.warning("%s", message)
        return
    raise OptionError(message, remedy=(f"{stopping[0].near} {_HOW}" if len(stopping) == 1 else _HOW).strip())


def _named(settings: Settings) -> Iterator[tuple[str, Names, str]]:
    """Each name or pattern of each option, with the option that holds it."""
    for option in settings.declared:
        value = settings.get(option.name)
        if option.names is None or option.names.what == "nothing" or not value:
            continue
        if option.prefix is not None and option.names.what == "tables":
            # The table is a part of the option's name.
            yield from ((name, option.names, name[len(option.prefix) :]) for name in value)
        elif option.prefix is not None:
            yield from ((name, option.names, text) for name in value for text in value[name])
        else:
            yield from ((option.name, option.names, text) for text in _texts(value))


def _texts(value: Any) -> Iterable[str]:
    return (value,) if isinstance(value, str) else tuple(value)


def _stands_for_table(text: str, option: str, tables: Sequence[TableId]) -> str | None:
    """What may be meant where it stands for none of the tables; None where it stands for one."""
    if "overrides" in option:
        # A name, whatever its dots mean elsewhere.
        is_table = any(bare(text).lower() in (id.path.lower(), id.full_path.lower()) for id in tables)
    else:
        is_table = bool(TablePattern(text, in_source=True).among(tables, lambda id: id))
    return None if is_table else _near(text, [id.path for id in tables])


def _stands_for_column(text: str, candidates: Sequence[TableColumns], *, every: bool) -> str | None:
    for table in candidates:
        if any(matching((text,), table.id, name) for name in (table.columns if every else table.captured)):
            return None
    return _near(text, [f"{table.id.path}.{name}" for table in candidates for name in table.columns])


def require_matched_tables(
    settings: Settings,
    known: Mapping[str, SourceTable[Any]],
    captured: Mapping[str, SourceTable[Any]],
    fresh: Iterable[str],
) -> None:
    """See that names and patterns of the options still match something in tables that may have changed.

    Args:
        settings: the source's options.
        known: the tables as the offset keeps them, by path.
        captured: the captured tables as the catalog shows them now.
        fresh: those of them that are new.

    Raises:
        OptionError: one of them matches nothing, and the options say to stop.
    """
    for path in fresh:
        require_matched_by(settings, captured[path].id, list(map(columns_of, captured.values())))
    for path, table in known.items():
        if path in captured:
            held = [column.name for column in table.schema.columns]
            require_still_matched(settings, columns_of(captured[path]), table.names, table.protected, held)


def require_matched_by(settings: Settings, table: TableId, candidates: Sequence[TableColumns]) -> None:
    """Hold the patterns that may be for a table that comes in while others are read already against all tables.

    Raises:
        OptionError: one of them stands for nothing.
    """
    unmatched_options = unmatched(settings, candidates, [candidate.id for candidate in candidates], selects=False)
    require_matched(settings, [one for one in unmatched_options if _may_be_for(one.text, table)])


def _may_be_for(text: str, table: TableId) -> bool:
    plain = bare(text).replace("\\", "").lower()
    return table.name.lower() in plain or ".*" in plain


def _near(text: str, known: Sequence[str]) -> str:
    near = did_you_mean(bare(text).replace("\\", ""), known)
    return near if near.startswith("Did") else ""


def require_still_matched(
    settings: Settings,
    table: TableColumns,
    before: Sequence[str],
    protected: Sequence[str],
    held: Sequence[str],
) -> None:
    """Hold the patterns of columns against a table's new schema, before its first row.

    Args:
        settings: the options.
        table: as it is now.
        before: the columns that it had, of those that the lists of columns left or kept back.
        protected: those of them that patterns kept back or changed.
        held: those of them that rows of the old schema hold.

    Raises:
        OptionError: a pattern stood for a column of the table and does for none any more; a column that was protected
            is gone and another one, which may be the same under a new name, is not protected; or rows of the old
            schema hold a column that was protected and is not any more.
    """
    gone = [name for name in before if name not in table.columns]
    if not gone:
        return
    covered = _protected(settings, table.id, (*table.columns, *before))
    fresh = [name for name in table.columns if name not in before and name not in covered]
    for option, names, text in _named(settings):
        if names.what == "tables" or names.does == "informs" or is_optional(text):
            continue
        lost = next((name for name in gone if matching((text,), table.id, name)), None)
        renamed = fresh[0] if fresh and names.does == "protects" else None
        if lost is None or (renamed is None and any(matching((text,), table.id, name) for name in table.columns)):
            continue
        other = f", but has a new column '{renamed}'" if renamed else ""
        raise OptionError(
            f"Table '{table.id.path}' has no column '{lost}' any more, which '{text}' of option "
            f"'{shown_name(option)}' names{other}.",
            remedy="Name the column as it is called now, and put 'optional:' before the pattern that is there.",
        )
    bared = next((name for name in gone if name in protected and name in held and name not in covered), None)
    if bared is not None:
        raise OptionError(
            f"Table '{table.id.path}' has no column '{bared}' any more, but changes from before may hold it, and no "
            "option keeps its values back, as one did.",
            remedy="Name it in that option too, with 'optional:' before it, until those changes are read.",
        )


def _protected(settings: Settings, table: TableId, columns: Sequence[str]) -> set[str]:
    """The columns whose values a pattern keeps back or changes."""
    texts = [text for _, names, text in _named(settings) if names.does == "protects" and names.what != "tables"]
    return {name for name in columns if matching(texts, table, name)}
