"""Sinks that would write the same place, and tables that a consumer could not tell apart there.

What a format calls a table (`Format.topic_for`, `Format.name_for`) is compared. Tables that a route gives one name
become one on purpose (`merge`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.pipeline.dead_letter import DeadLetters
from headrace.pipeline.target import Target

_ANY_TABLE, _OTHER_TABLE = TableId("database", "schema", "table"), TableId("database2", "schema2", "table2")
_REMEDY = (
    "Give each sink a place of its own, or routes by which each table goes to one of them (unrouted_tables: leave_out)."
)
_LETTERS_REMEDY = "Give dead letters a place of their own."

_APART_REMEDY = (
    "Use a format, a shape or a topic that names the database and the schema, or give this sink a route that does: "
    'routes: [{tables: "*", to: "{database}_{schema}_{table}"}].'
)


def refuse_shared_places(
    targets: Sequence[Target], tables: Iterable[TableId], connector: str, dead_letters: Collection[str] = ()
) -> None:
    """Stop where two sinks would write the rows of these tables to the same place, or one where dead letters go.

    Args:
        targets: the sinks.
        tables: by their names in the source.
        connector: which kind of source they are of.
        dead_letters: the places of dead letters.

    Raises:
        OptionError: they would.
    """
    if not dead_letters and not any(_meeting(targets)):
        return
    owners: dict[str, tuple[Target, TableId]] = {}
    for id in tables:
        for target in targets:
            destination = target.shaping.routes.destination(id)
            if destination is None:
                continue
            for location in _places(target, destination.id, connector):
                if location in dead_letters:
                    raise OptionError(
                        f"{_capital(target)} would write table {id.path} to {location}, where dead letters go.",
                        remedy=_LETTERS_REMEDY,
                    )
                other, first = owners.setdefault(location, (target, id))
                if other is not target:
                    both = f"table {first.path}" if first == id else f"tables {first.path} and {id.path}"
                    raise OptionError(f"{_pair(other, target)} would both write {both} to {location}.", remedy=_REMEDY)


def refuse_same_places(targets: Sequence[Target], connector: str) -> None:
    """Stop where two sinks write the same place whatever the tables are; makes no request.

    Raises:
        OptionError: they do.
    """
    owners: dict[str, Target] = {}
    for target in targets:
        whole = target.sink.places()
        # Where a table goes can only be said beforehand of a sink that has no routes.
        anything = set() if target.shaping.routes.routes else _places(target, _ANY_TABLE, connector)
        for location in anything | (whole if target.sink.is_one_place else set()):
            other = owners.setdefault(location, target)
            if other is not target:
                where = min(whole) if whole else location
                raise OptionError(f"{_pair(other, target)} write the same tables to {where}.", remedy=_REMEDY)


def refuse_dead_letters_in_a_sink(targets: Sequence[Target], dead_letters: DeadLetters, connector: str) -> None:
    """Stop where a sink writes the place of dead letters whatever the tables are; makes no request.

    Raises:
        OptionError: one does.
    """
    theirs = dead_letters.places()
    for target in targets:
        fixed = _places(target, _ANY_TABLE, connector) & _places(target, _OTHER_TABLE, connector)
        same = (target.sink.places() | fixed if target.sink.is_one_place else fixed) & theirs
        if same:
            raise OptionError(f"{_capital(target)} and dead letters both go to {min(same)}.", remedy=_LETTERS_REMEDY)


def identities(targets: Sequence[Target]) -> list[str]:
    """What tells each sink apart from those with which it shares a place (`BatchId.sink`); empty where there is none.

    It follows from what the sink gets, so that it stays when sinks change their order in the file.
    """
    return [
        hashlib.sha256(f"{target.type} {target.format_key} {target.shaping.key}".encode()).hexdigest()[:8]
        if meets
        else ""
        for target, meets in zip(targets, _meeting(targets), strict=True)
    ]


def may_meet(targets: Sequence[Target]) -> bool:
    """Whether some sinks share a folder, a database or a Kafka, so that the tables decide whether they meet."""
    return any(_meeting(targets))


def may_meet_dead_letters(targets: Sequence[Target], dead_letters: DeadLetters | None) -> bool:
    theirs = frozenset() if dead_letters is None else dead_letters.sink.places()
    return any(_within(a, b) for target in targets for a in target.sink.places() for b in theirs)


def _meeting(targets: Sequence[Target]) -> list[bool]:
    roots = [target.sink.places() for target in targets]
    return [
        any(_within(a, b) for n, theirs in enumerate(roots) if n != index for a in mine for b in theirs)
        for index, mine in enumerate(roots)
    ]


def _within(a: str, b: str) -> bool:
    a, b = a.lower(), b.lower()
    return a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/")


def _places(target: Target, id: TableId, connector: str) -> frozenset[str]:
    if target.format is None:
        return target.sink.places(id)
    topic = target.format.topic_for(id, connector)
    # Where messages go that have no topic of their own is known as well as the topic.
    return target.sink.places(id, topic or "")


def _pair(one: Target, other: Target) -> str:
    return f"{_capital(one)} and {other.label}"


def _capital(target: Target) -> str:
    return f"{target.label[:1].upper()}{target.label[1:]}"


def refuse_tables_alike(targets: Sequence[Target], tables: Iterable[TableId], connector: str) -> None:
    """Stop where the messages of two tables would have the same topic and the same name in it.

    Args:
        targets: the sinks.
        tables: by their names in the source.
        connector: which kind of source they are of.

    Raises:
        OptionError: they would.
    """
    captured = list(tables)
    for target in targets:
        format = target.format
        if format is None:
            continue
        by_name: dict[tuple[str, str], tuple[TableId, TableId]] = {}
        for table in captured:
            destination = target.shaping.routes.destination(table)
            topic = None if destination is None else format.topic_for(destination.id, connector)
            if destination is None or topic is None:
                continue
            name = format.name_for(destination.id, connector)
            first, other = by_name.setdefault((topic, name), (table, destination.id))
            if other != destination.id:
                raise OptionError(
                    f"{target.label[:1].upper()}{target.label[1:]} would write tables {first} and {table} to topic "
                    f"'{topic}', where messages name both alike.",
                    remedy=_APART_REMEDY,
                )


def refuse_databases_alike(targets: Sequence[Target], databases: Collection[str], connector: str) -> None:
    """As `refuse_tables_alike`, for tables that have the same name in several databases, whatever that is; makes no
    request.

    Raises:
        OptionError: as there.
    """
    whole = [target for target in targets if not target.shaping.routes.routes]
    refuse_tables_alike(whole, [TableId(name, "schema", "table") for name in databases], connector)
