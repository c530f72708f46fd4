"""Two tables whose messages go to the same topic under the same name can't be told apart by a consumer: a delete of
one removes the row with that key of the other.

What a format calls a table (`Format.topic_for`, `Format.name_for`) is compared. Tables that a route gives one name
become one on purpose (`merge`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.pipeline.target import Target

_REMEDY = (
    "Use a format, a shape or a topic that names the database and the schema, or give this sink a route that does: "
    'routes: [{tables: "*", to: "{database}_{schema}_{table}"}].'
)


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
                    remedy=_REMEDY,
                )


def refuse_databases_alike(targets: Sequence[Target], databases: Collection[str], connector: str) -> None:
    """As `refuse_tables_alike`, for tables that have the same name in several databases, whatever that is; makes no
    request.

    Raises:
        OptionError: as there.
    """
    whole = [target for target in targets if not target.shaping.routes.routes]
    refuse_tables_alike(whole, [TableId(name, "schema", "table") for name in databases], connector)
