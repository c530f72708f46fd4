"""Routes: under which name a sink gets a source table, and whether it gets it at all.

```yaml
sinks:
  - type: delta
    path: ./lake
    routes:
      - {tables: "dbo.order*", to: "sales.{table}"}
      - {tables: ["shard_*.customers"], to: crm.customers, merge: true}
    unrouted_tables: leave_out
```

The first route that matches a table decides. A route gives the table another name *for this sink*, and everything after
it works as if the source's table had that name: the folder, the database table, the topic by the rule of the format,
the messages themselves and the rows that say the table's structure.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import EVERY_TABLE, TablePattern, matching, table_patterns
from headrace.errors import OptionError, SchemaError
from headrace.options import Names
from headrace.settings import Settings, option

_PLACEHOLDERS = ("database", "schema", "table")


class RouteSettings(Settings):
    tables: tuple[TablePattern, ...] = option(
        "The source tables, by name, shell glob or regular expression after `re:`, held against `schema.table` and "
        "`database.schema.table` whatever the case.",
        kind=table_patterns,
        default=EVERY_TABLE,
        names=Names("tables", "chooses"),
    )
    to: str | None = option(
        "The table's name in this sink: `table`, `schema.table` or `database.schema.table`, in which `{database}`, "
        "`{schema}` and `{table}` stand for the source's. A name without a schema has none. By default the source's "
        "name.",
        default=None,
    )
    merge: bool = option(
        "Whether several source tables may become one. They must have the same columns, types and key, and no key in "
        "common.",
        default=False,
    )


class RoutedSinkSettings(Settings):
    """Of a sink with routes, beside its own."""

    unrouted_tables: str = option(
        "What to do with tables that no route matches: `keep` passes them on under their own names, `leave_out` "
        "keeps them from this sink.",
        default="keep",
        choices=("keep", "leave_out"),
    )


@dataclass(frozen=True)
class Route:
    """One line of a sink's routes.

    Args:
        tables: for which source tables.
        to: the template of the new name; None where the name stays.
        merge: whether several tables may have one name.

    Raises:
        OptionError: the template is none, or all of several tables would go to one name without `merge`.
    """

    tables: tuple[TablePattern, ...]
    to: str | None = None
    merge: bool = False

    def __post_init__(self) -> None:
        if self.to is None:
            if self.merge:
                raise OptionError("Option 'merge' of a route needs 'to'.", remedy="Say what the tables become.")
            return
        used = _used(self.to)
        parts = self.to.split(".")
        if used is None or len(parts) > 3 or not all(parts) or not used <= set(_PLACEHOLDERS):
            known = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
            raise OptionError(
                f"Option 'to' of a route can't be '{self.to}'.",
                remedy=f"Write table, schema.table or database.schema.table. Placeholders: {known}.",
            )
        if not used and not self.merge and (len(self.tables) > 1 or not self.tables[0].is_name):
            raise OptionError(
                f"Option 'to' of a route sends all of several tables to '{self.to}'.",
                remedy="Tell them apart by a placeholder ({table}), or say merge: true.",
            )

    @classmethod
    def of(cls, settings: RouteSettings) -> Route:
        return cls(settings.tables, settings.to, settings.merge)

    def name(self, table: TableId) -> TableId:
        """The table's new name.

        Raises:
            OptionError: it would be empty.
        """
        if self.to is None:
            return table
        values = {"database": table.database, "schema": table.schema, "table": table.name}
        # Split before it is filled in: a table's own name may hold a dot.
        filled = [part.format(**values) for part in self.to.split(".")]
        if not filled[-1]:
            raise OptionError(
                f"Option 'to' of a route ('{self.to}') gives table '{table}' no name.", remedy="Use {table} in it."
            )
        if len(filled) == 3:
            return TableId(*filled)
        return TableId(table.database, filled[0] if len(filled) == 2 else "", filled[-1])


@dataclass(frozen=True)
class Destination:
    """What a table is in a sink.

    Args:
        id: its name there.
        merge: whether other tables may have the same name.
    """

    id: TableId
    merge: bool = False


@dataclass(frozen=True)
class Routes:
    """All routes of one sink; pure.

    Args:
        routes: in the order in which they are asked.
        leave_out: whether tables that none matches are kept from the sink.
    """

    routes: tuple[Route, ...] = ()
    leave_out: bool = False

    def __post_init__(self) -> None:
        constant: dict[str, Route] = {}
        for route in self.routes:
            if route.to is None or _used(route.to):
                continue
            other = constant.setdefault(route.to.casefold(), route)
            if other is not route and not (other.merge and route.merge):
                raise OptionError(
                    f"Two routes send tables to '{route.to}'.",
                    remedy="Give one of them another name, or say merge: true in both.",
                )
        if self.leave_out and not self.routes:
            raise OptionError(
                "With unrouted_tables: leave_out and no routes the sink would get nothing.",
                remedy="Add routes: - {tables: schema.table}.",
            )

    @property
    def change_nothing(self) -> bool:
        return not self.leave_out and all(route.to is None for route in self.routes)

    def destination(self, table: TableId) -> Destination | None:
        """What a table is in the sink; None where it is left out.

        Raises:
            OptionError: its new name would be empty.
        """
        for route in self.routes:
            if matching(route.tables, table) is not None:
                return Destination(route.name(table), route.merge)
        return None if self.leave_out else Destination(table)


@dataclass
class Destinations:
    """Which source tables were seen to go where, so that two never become one by chance. Lives in the driver's process.

    Args:
        owner: the sink, for messages.
    """

    owner: str
    _seen: dict[tuple[str, ...], dict[TableId, Destination]] = field(default_factory=dict)

    def claim(self, source: TableId, destination: Destination) -> None:
        """Take note of what a table is in the sink.

        Raises:
            OptionError: another table has the name, and their routes do not both merge.
        """
        tables = self._seen.setdefault(_place(destination.id), {})
        tables[source] = destination
        for other, theirs in tables.items():
            renamed = theirs.id != other or destination.id != source
            if other == source or not renamed:
                continue
            if not (destination.merge and theirs.merge):
                first, second = sorted((other.full_path, source.full_path))
                raise OptionError(
                    f"Tables '{first}' and '{second}' would both be '{_shown(destination.id)}' in {self.owner}.",
                    remedy="Tell them apart in 'to' of their routes ({schema}_{table}), or say merge: true in both.",
                )

    def only_source(self, target: TableId) -> TableId | None:
        """The source's table that is this one in the sink; None where it is several or none that was seen."""
        tables = self._seen.get(_place(target), {})
        return next(iter(tables)) if len(tables) == 1 else None


def _place(target: TableId) -> tuple[str, ...]:
    # Without regard to case, because not every target has it.
    return tuple(part.casefold() for part in (target.database, target.schema, target.name))


def refuse_different(target: TableId, tables: Sequence[tuple[TableId, TableSchema]]) -> None:
    """Stop where tables that become one are not alike.

    Args:
        target: what they become.
        tables: each with its structure there; the last is held against the first.

    Raises:
        SchemaError: their keys, columns or types differ.
    """
    (one, first), (other, second) = tables[0], tables[-1]
    what = ""
    if set(first.key) != set(second.key):
        what = f"keys ({_listed(first.key)} and {_listed(second.key)})"
    else:
        types = [{c.name: c.logical.spark_type for c in schema.columns} for schema in (first, second)]
        differing = sorted(
            name for name in types[0].keys() | types[1].keys() if types[0].get(name) != types[1].get(name)
        )
        if differing:
            what = f"columns ('{differing[0]}')"
    if what:
        raise SchemaError(
            f"Tables '{one}' and '{other}' can't both be '{_shown(target)}': their {what} differ.",
            remedy="Route them to tables of their own, or make them alike by transforms.",
        )


def _shown(target: TableId) -> str:
    """A table's name as `to` of a route gives it."""
    return ".".join(part for part in (target.schema, target.name) if part)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _used(template: str) -> set[str] | None:
    """The placeholders of a template; None where it is none."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return None
    if any(spec or conversion for _, name, spec, conversion in parsed if name is not None):
        return None
    return {name for _, name, _, _ in parsed if name is not None}
