"""Signals: how a user asks a running stream for something (an ad-hoc snapshot, a pause, a line in the log).

A signal is a row of a signal table or a file of a signal folder; both hold an id, a type and JSON. The words are
Debezium's, so that what people and scripts send today works. This module reads them and knows no database: what a
signal does is decided in `headrace.sources.snapshots.ad_hoc`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from headrace.changes import Column, TableId
from headrace.errors import CaptureError, FormatError, OptionError
from headrace.registry import did_you_mean

EXECUTE, STOP, PAUSE, RESUME = "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"
LOG, SCHEMA_CHANGES = "log", "schema-changes"
REWIND, SKIP = "rewind-changes", "skip-changes"
"""Headrace's own: Debezium has no signals for these."""
TYPES = (EXECUTE, STOP, PAUSE, RESUME, REWIND, SKIP, LOG, SCHEMA_CHANGES)
"""The signals that are understood."""
SENT = tuple(type for type in TYPES if type != SCHEMA_CHANGES)
"""Those that are worth sending."""
KINDS = ("incremental", "blocking")
"""How a snapshot can be requested."""
_WATERMARKS = ("snapshot-window-open", "snapshot-window-close")
"""Rows that other programs write into the same table for their own sake."""
SIGNAL_COLUMNS = 3
"""A signal table's columns: id, type and data, whatever their names."""
_TEXTS = ("string", "json", "nested", "xml")
_CORRECT = "Correct it and send it again."


_LOG = logging.getLogger("headrace.sources")


def say(sentence: str) -> None:
    """Tell the user by the log.

    A line that a signal asks for is a warning too: Spark's Python processes show nothing below that.
    """
    _LOG.warning("%s", sentence)


@lru_cache(maxsize=256)
def say_once(sentence: str) -> None:
    """The same, once per process."""
    say(sentence)


@dataclass(frozen=True)
class Signal:
    """A signal as it was sent, not looked at yet.

    Args:
        id: any text by which the sender knows it again in the log.
        type: one of `TYPES`, if it is right.
        data: JSON text; may be None where a type needs no data.
    """

    id: str
    type: str
    data: str | None


@dataclass(frozen=True)
class ExecuteSnapshot:
    """Read these tables again.

    Args:
        collections: names or regular expressions, each `schema.table` or `database.schema.table`.
        kind: beside the stream, chunk by chunk; or as the first snapshot was read, while the table's stream waits.
        filters: pairs of a name or regular expression and the SQL predicate that rows of such tables must meet.
        surrogate_key: the column by which chunks are cut; None for the table's key.
    """

    collections: tuple[str, ...]
    kind: Literal["incremental", "blocking"] = "incremental"
    filters: tuple[tuple[str, str], ...] = ()
    surrogate_key: str | None = None

    def filter_of(self, table: TableId) -> str | None:
        """The predicate for a table; None when all its rows are wanted."""
        return next((sql for pattern, sql in self.filters if names(pattern, table)), None)


@dataclass(frozen=True)
class StopSnapshot:
    """Read no more of these tables; of none at all when `collections` is null."""

    collections: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PauseSnapshot:
    """Read no further chunk until a signal resumes."""


@dataclass(frozen=True)
class ResumeSnapshot:
    """Go on with the next chunk."""


@dataclass(frozen=True)
class MoveTables:
    """Go on elsewhere with the changes of these tables.

    Args:
        kind: back, so that changes come again; or forward, so that changes are left out.
        collections: names or regular expressions, each `schema.table` or `database.schema.table`.
        position: the commit after which they go on, in the form of `Offset.commit`.
    """

    kind: Literal["rewind", "skip"]
    collections: tuple[str, ...]
    position: str


@dataclass(frozen=True)
class LogMessage:
    """Write a line into the log."""

    message: str


@dataclass(frozen=True)
class SchemaChanges:
    """A schema given by hand, which a source that reads the catalog does not need."""


@dataclass(frozen=True)
class Watermark:
    """A row that another program left in the table; means nothing here."""


Meaning = (
    ExecuteSnapshot
    | StopSnapshot
    | PauseSnapshot
    | ResumeSnapshot
    | MoveTables
    | LogMessage
    | SchemaChanges
    | Watermark
)


def parse_signal(signal: Signal) -> Meaning:
    """What a signal means.

    Raises:
        FormatError: the type is unknown, the data is not a JSON object, or something that it needs is missing.
    """
    # A char column is padded with blanks.
    kind = signal.type.strip().lower()
    if kind in _WATERMARKS:
        return Watermark()
    if kind not in TYPES:
        raise _unreadable(signal, f"has the unknown type '{signal.type.strip()[:32]}'", f"Known: {', '.join(TYPES)}.")
    data = _data(signal)
    if kind == EXECUTE:
        return _execute(signal, data)
    if kind == STOP:
        # Without a list everything is stopped; an empty list names nothing in particular and means the same.
        return StopSnapshot(_texts(signal, data, "data-collections") or None)
    if kind == PAUSE:
        return PauseSnapshot()
    if kind == RESUME:
        return ResumeSnapshot()
    if kind in (REWIND, SKIP):
        return _move(signal, "rewind" if kind == REWIND else "skip", data)
    if kind == LOG:
        message = data.get("message")
        if not isinstance(message, str):
            raise _unreadable(signal, "has no text 'message'", 'Send {"message": "..."}.')
        return LogMessage(message)
    return SchemaChanges()


def names(pattern: str, table: TableId) -> bool:
    """Whether a name or anchored regular expression means a table, with its database or without; case does not matter.

    What is not a valid expression is only a name.
    """
    paths = (table.full_path, table.path)
    if any(pattern.strip().casefold() == path.casefold() for path in paths):
        return True
    try:
        expression = re.compile(pattern.strip(), re.IGNORECASE)
    except re.error:
        return False
    return any(expression.fullmatch(path) for path in paths)


def chosen(pattern: str, tables: Iterable[TableId]) -> list[TableId]:
    """The tables that a name or regular expression means; one of exactly that name is meant alone."""
    matches = [table for table in tables if names(pattern, table)]
    exact = [
        table for table in matches if pattern.strip().casefold() in (table.path.casefold(), table.full_path.casefold())
    ]
    return exact or matches


def signal_data(
    type: str,
    tables: Iterable[str] = (),
    *,
    kind: str = "incremental",
    filter: str | None = None,
    message: str | None = None,
    surrogate_key: str | None = None,
    position: str | None = None,
) -> str:
    """The JSON of a signal, as `parse_signal` reads it.

    Args:
        type: one of `SENT`.
        tables: names or regular expressions.
        kind: one of `KINDS`, for execute-snapshot.
        filter: a SQL predicate for the rows of all these tables.
        message: what to log.
        surrogate_key: the column by which all these tables are cut into chunks, in place of their key.
        position: the commit after which the changes of tables go on, for rewind-changes and skip-changes.

    Raises:
        OptionError: the type is unknown, or what it needs is missing.
    """
    tables = list(tables)
    if type not in SENT:
        raise OptionError(f"There is no signal '{type}'.", remedy=did_you_mean(type, SENT))
    if kind not in KINDS:
        raise OptionError(f"There is no snapshot of type '{kind}'.", remedy=did_you_mean(kind, KINDS))
    if type != EXECUTE and (filter or surrogate_key or kind != KINDS[0]):
        raise OptionError(
            f"A {type} has no filter, no surrogate key and no type.", remedy="Only execute-snapshot has them."
        )
    if kind != KINDS[0] and (filter or surrogate_key):
        raise OptionError(
            "A blocking snapshot reads whole tables.", remedy="Use type incremental with a filter or a surrogate key."
        )
    data: dict[str, Any] = {}
    if type == EXECUTE:
        if not tables:
            raise OptionError("An execute-snapshot needs tables.", remedy="Name them: --tables dbo.a,dbo.b.")
        data = {"data-collections": tables, "type": kind}
        if filter:
            data["additional-conditions"] = [{"data-collection": table, "filter": filter} for table in tables]
        if surrogate_key:
            data["surrogate-key"] = surrogate_key
    elif type == STOP:
        data = {"type": "incremental", **({"data-collections": tables} if tables else {})}
    elif type in (REWIND, SKIP):
        if not tables or not position:
            raise OptionError(
                f"A {type} needs tables and a position.", remedy="Name them: --tables dbo.a --position LSN."
            )
        data = {"data-collections": tables, "position": position}
    elif type in (PAUSE, RESUME):
        data = {"type": "incremental"}
    elif type == LOG:
        if not message:
            raise OptionError("A log signal needs a message.", remedy="Give it: --message 'text'.")
        data = {"message": message}
    return json.dumps(data, ensure_ascii=False)


def signal_table(name: str, database: str, paths: Iterable[str]) -> str | None:
    """The path of the signal table that an option names, as the catalog writes it; None when this database has none.

    Args:
        name: `schema.table` or `database.schema.table`.
        database: the database in question.
        paths: its captured tables.
    """
    wanted = name.strip().casefold()
    return next((path for path in paths if wanted in (path.casefold(), f"{database}.{path}".casefold())), None)


def require_signal_columns(path: str, columns: Sequence[Column], definition: str) -> None:
    """The signal table has the columns of one: at least three, and texts in the second and third.

    Args:
        path: the table's.
        columns: those that are captured.
        definition: what they have to be, in the words of the server.

    Raises:
        CaptureError: it has not.
    """
    remedy = f"It needs three: {definition}, in this order."
    if len(columns) < SIGNAL_COLUMNS:
        raise CaptureError(f"The signal table '{path}' has fewer than three captured columns.", remedy=remedy)
    for column in columns[1:SIGNAL_COLUMNS]:
        if column.logical.kind not in _TEXTS:
            raise CaptureError(
                f"Column '{column.name}' of the signal table '{path}' holds no text ({column.native_type}), so that no "
                "signal would be understood.",
                remedy=remedy,
            )


def _move(signal: Signal, kind: Literal["rewind", "skip"], data: Mapping[str, Any]) -> MoveTables:
    collections, position = _texts(signal, data, "data-collections"), data.get("position")
    wanted = 'Send {"data-collections": ["schema.table"], "position": "..."}.'
    if not collections:
        raise _unreadable(signal, "has no list 'data-collections'", wanted)
    if not isinstance(position, str) or not position.strip():
        raise _unreadable(signal, "has no text 'position'", wanted)
    return MoveTables(kind, collections, position.strip())


def _execute(signal: Signal, data: Mapping[str, Any]) -> ExecuteSnapshot:
    kind = str(data.get("type") or "incremental").strip().lower()
    if kind not in KINDS:
        raise _unreadable(signal, f"asks for a snapshot of type '{kind[:32]}'", f"Known: {', '.join(KINDS)}.")
    collections = _texts(signal, data, "data-collections")
    if collections is None:
        raise _unreadable(signal, "has no list 'data-collections'", 'Send {"data-collections": ["schema.table"]}.')
    surrogate = data.get("surrogate-key")
    return ExecuteSnapshot(
        collections,
        "blocking" if kind == "blocking" else "incremental",
        _filters(signal, data),
        surrogate if isinstance(surrogate, str) and surrogate else None,
    )


def _filters(signal: Signal, data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = data.get("additional-conditions")
    if given is None:
        older = data.get("additional-condition")
        return ((".*", older),) if isinstance(older, str) and older.strip() else ()
    wanted = 'Send [{"data-collection": "schema.table", "filter": "predicate"}].'
    if not isinstance(given, list):
        raise _unreadable(signal, "has 'additional-conditions' that are no list", wanted)
    filters = []
    for part in given:
        pattern = part.get("data-collection") if isinstance(part, dict) else None
        sql = part.get("filter") if isinstance(part, dict) else None
        if not isinstance(pattern, str) or not isinstance(sql, str):
            raise _unreadable(signal, "has an additional condition without 'data-collection' or 'filter'", wanted)
        if sql.strip():
            filters.append((pattern, sql))
    return tuple(filters)


def _texts(signal: Signal, data: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    given = data.get(name)
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise _unreadable(signal, f"has '{name}' that is not a list of texts", f'Send {{"{name}": ["schema.table"]}}.')
    return tuple(item for item in given if item.strip())


def _data(signal: Signal) -> Mapping[str, Any]:
    if signal.data is None or not signal.data.strip():
        return {}
    try:
        data = json.loads(signal.data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(signal, f"has data that is not JSON ({why(error)})", _CORRECT) from error
    if not isinstance(data, dict):
        raise _unreadable(signal, "has data that is not a JSON object", _CORRECT)
    return data


def why(error: Exception) -> str:
    """Why JSON can't be read, without a word of it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, character {error.pos + 1}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__


def _unreadable(signal: Signal, what: str, remedy: str) -> FormatError:
    return FormatError(f"Signal '{signal.id.strip()}' {what} and is not followed.", remedy=remedy)
