"""The publication: which tables' changes the server sends.

It is made before the slot, because the server reads the catalog as it was at each change: a slot that is older than its
publication can't be read. Headrace alters only a publication that it made itself, which it tells by its comment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import CaptureError, first_of
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.identities import require_identities
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import PostgresError, identifier, literal

_MADE = "Made by Headrace for replication slot {slot}"
_UNFINISHED = " (being made)"
_DENIED = "42501"
VIRTUAL = "v"
OPERATIONS = ("insert", "update", "delete", "truncate")
_LETTERS = dict(zip(OPERATIONS, "cudt", strict=True))

_PUBLICATION = """
SELECT oid::bigint, puballtables, pubviaroot, coalesce(to_jsonb(p) ->> 'pubgencols', 'n') <> 'n', pubinsert, pubupdate,
    pubdelete, pubtruncate, coalesce(obj_description(oid, 'pg_publication'), '')
FROM pg_publication p WHERE pubname = %s
"""
# What pg_get_publication_tables has, which from PostgreSQL 16 on waits for transactions that truncate or alter a table.
_MEMBERS = """
WITH listed AS (
    SELECT c.oid FROM pg_class c
    WHERE {all_tables} OR c.oid IN (SELECT m.prrelid FROM pg_publication_rel m WHERE m.prpubid = {publication})
    OR EXISTS ({in_schema}))
SELECT c.oid::bigint, coalesce(r.oid, ({in_schema}), 0)::bigint, n.nspname, c.relname, {filter}, {columns}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
    SELECT m.* FROM pg_publication_rel m
    WHERE m.prpubid = {publication}
    AND (m.prrelid = c.oid OR c.relispartition AND m.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))
    ORDER BY m.prrelid = c.oid DESC LIMIT 1) AS r ON true
WHERE c.relkind IN {kinds} AND c.relpersistence = 'p' AND c.oid >= 16384 AND {published}
"""
_ANCESTORS = (
    "c.relispartition AND EXISTS (SELECT 1 FROM pg_partition_ancestors(c.oid) AS a JOIN listed ON a.relid = oid{but})"
)
_VIA_ROOT = f"c.oid IN (SELECT oid FROM listed) AND NOT ({_ANCESTORS.format(but=' AND oid <> c.oid')})"
_VIA_LEAF = f"(c.oid IN (SELECT oid FROM listed) OR {_ANCESTORS.format(but='')})"
_IN_SCHEMA = (
    "SELECT s.oid FROM pg_publication_namespace s WHERE s.pnpubid = {publication} AND s.pnnspid = c.relnamespace"
)
_FILTER = "pg_get_expr(r.prqual, r.prrelid)"
_COLUMNS = """
(SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs))::text
"""
_UNFINISHED_NAMES = """
SELECT pubname FROM pg_publication WHERE obj_description(oid, 'pg_publication') = %s
"""


@dataclass(frozen=True)
class Member:
    """A table of a publication.

    Args:
        oid: what says that it is in the publication; a table that was taken out and put in again has another one. 0
            where the publication has all tables.
        name: schema and name, as statements have them.
        filter: the condition that published rows meet; empty for all rows.
        columns: the names of the columns that are published; empty for all.
    """

    oid: int
    name: str
    filter: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublicationState:
    """What the server says of a publication.

    Args:
        name: its name.
        oid: it; one that was dropped and made again has another.
        all_tables: whether it has all tables of the database, also future ones.
        via_root: whether rows of partitions are published as rows of the partitioned table.
        generated: whether columns that the server computes are published of a table without a list of columns.
        operations: which of insert, update, delete and truncate it publishes.
        comment: what was said about it.
        members: its tables by their oid, under which their rows come.
    """

    name: str
    oid: int
    all_tables: bool = False
    via_root: bool = True
    generated: bool = False
    operations: tuple[str, ...] = OPERATIONS
    comment: str = ""
    members: Mapping[int, Member] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, name: str) -> PublicationState | None:
        """A publication as it is now; None where there is none of this name."""
        rows = connection.rows(_PUBLICATION, (name,))
        if not rows:
            return None
        oid, all_tables, via_root, generated, *published, comment = rows[0]
        newer = connection.version >= 150000
        sql = _MEMBERS.format(
            publication=oid,
            all_tables=all_tables,
            in_schema=_IN_SCHEMA.format(publication=oid) if newer else "SELECT NULL::oid WHERE false",
            filter=_FILTER if newer else "NULL",
            columns=_COLUMNS if newer else "NULL",
            kinds="('r', 'p')" if via_root else "('r')",
            published=_VIA_ROOT if via_root else _VIA_LEAF,
        )
        members = {
            table: Member(
                member,
                f"{identifier(schema)}.{identifier(relation)}",
                condition or "",
                tuple(json.loads(columns or "[]")),
            )
            for table, member, schema, relation, condition, columns in connection.rows(sql)
        }
        operations = tuple(each for each, on in zip(OPERATIONS, published, strict=True) if on)
        return cls(name, oid, all_tables, via_root, generated, operations, comment, members)

    def publishes_column(self, table: int, column: str, computed: str = "") -> bool:
        """Whether changes of a table have a column.

        Args:
            table: the table's oid.
            column: its name.
            computed: `s` where the server computes its values and stores them, `v` where it stores none.
        """
        if computed == VIRTUAL:
            return False
        member = self.members.get(table)
        listed = () if member is None else member.columns
        return column in listed if listed else not computed or self.generated

    def changes_rows(self, skipped: Collection[str]) -> bool:
        """Whether updates or deletes are read of its tables, given the operations that are not wanted."""
        return any(each in self.operations and _LETTERS[each] not in skipped for each in ("update", "delete"))

    @property
    def is_own(self) -> bool:
        return self.comment.startswith(_MADE.format(slot=""))


def ensure(connection: Connection, settings: PostgresSettings, tables: Sequence[PostgresTable]) -> None:
    """See that the publication has exactly these tables, where it is Headrace's own, or these and others.

    It is made where it is not there. Doing it twice changes nothing, and a table that is in it is not touched.

    Raises:
        CaptureError: it is not there or lacks something and Headrace may not change it; a table has no replica
            identity, so that publishing its updates would stop the application.
    """
    name = settings.publication_name
    state = PublicationState.of(connection, name)
    alters = settings.publication_autocreate == "filtered"
    if state is not None and not (alters and state.is_own):
        require_complete(state, tables, settings.skipped_operations)
        return
    if state is None:
        statement = create_statement(name, map(table_name, tables))
        if not alters:
            raise no_publication(settings, map(table_name, tables))
        require_identities(connection, [table.oid for table in tables])
        comment = _MADE.format(slot=settings.slot)
        statements = [statement, f"COMMENT ON PUBLICATION {identifier(name)} IS {literal(comment)}"]
    else:
        if not state.via_root:
            raise CaptureError(
                f"Publication '{name}' names rows of partitioned tables by their partitions now (its option "
                "publish_via_partition_root).",
                remedy=f"Run: ALTER PUBLICATION {identifier(name)} SET (publish_via_partition_root = true);",
            )
        here = [table for table in tables if table.oid in state.members]
        require_complete(state, here, settings.skipped_operations)
        added = [table for table in tables if table.oid not in state.members]
        wanted = {table.oid for table in tables}
        dropped = [f"ONLY {member.name}" for oid, member in state.members.items() if oid not in wanted]
        require_identities(connection, [table.oid for table in added])
        statements = [add_statement(name, map(table_name, added))] if added else []
        statements += [f"ALTER PUBLICATION {identifier(name)} DROP TABLE {', '.join(dropped)}"] if dropped else []
    if not statements:
        return
    try:
        connection.run("BEGIN")
        connection.run(f"SET LOCAL lock_timeout = {settings.snapshot_lock_timeout_ms}")
        for each in statements:
            connection.run(each)
        connection.run("COMMIT")
    except PostgresError as error:
        connection.run("ROLLBACK")
        if error.sqlstate != _DENIED:
            raise
        # A comment would say that Headrace may alter it.
        needed = statements[:1] if state is None else statements
        raise CaptureError(
            f"Role '{settings.user}' may not make or alter publication '{name}' ({error.message.rstrip('.')}).",
            remedy=f"Let the owner of the tables run: {'; '.join(needed)};",
        ) from error


def require_complete(state: PublicationState, tables: Sequence[PostgresTable], skipped: Collection[str] = ()) -> None:
    """See that a publication has all changes of these tables.

    Args:
        state: the publication.
        tables: they.
        skipped: the operations that are not wanted: c, u, d, t.

    Raises:
        CaptureError: it lacks one of them, or leaves out rows or operations; the first, the rest are its `others`.
    """
    alter = f"ALTER PUBLICATION {identifier(state.name)}"
    lacking = [each for each in OPERATIONS if each not in state.operations and _LETTERS[each] not in skipped]
    if lacking and tables:
        letters = ",".join(letter for each, letter in _LETTERS.items() if letter in skipped or each in lacking)
        raise CaptureError(
            f"Publication '{state.name}' publishes no {' and no '.join(lacking)} (its option publish).",
            remedy=f"Run: {alter} SET (publish = '{', '.join(OPERATIONS)}'); or, where these changes are not wanted, "
            f"set 'skipped_operations' to {letters}.",
        )
    errors = []
    absent = [table for table in tables if table.oid not in state.members]
    if absent:
        paths = ", ".join(f"'{table.id.path}'" for table in absent)
        errors.append(
            CaptureError(
                f"Publication '{state.name}' does not have table{'' if len(absent) == 1 else 's'} {paths}.",
                remedy=f"Run: {add_statement(state.name, map(table_name, absent))}; or leave the table"
                f"{' out' if len(absent) == 1 else 's out'} with 'tables_excluded'.",
            )
        )
    for table in tables:
        name, member = table_name(table), state.members.get(table.oid)
        if member is not None and member.filter:
            errors.append(
                CaptureError(
                    f"Publication '{state.name}' leaves out rows of table '{table.id.path}': it has those WHERE "
                    f"{member.filter}.",
                    remedy=f"Run: BEGIN; {alter} DROP TABLE ONLY {name}; {alter} ADD TABLE ONLY {name}; COMMIT;",
                )
            )
    if errors:
        raise first_of(errors)


def table_name(table: PostgresTable) -> str:
    return f"{identifier(table.id.schema)}.{identifier(table.id.name)}"


def create_statement(name: str, tables: Iterable[str]) -> str:
    """The statement that makes a publication as captures need it, without its semicolon.

    Args:
        name: the publication's.
        tables: those that it is to have, as `table_name` writes them.
    """
    listed = _listed(tables)
    return (
        f"CREATE PUBLICATION {identifier(name)}{listed and f' FOR TABLE {listed}'} "
        "WITH (publish_via_partition_root = true)"
    )


def add_statement(name: str, tables: Iterable[str]) -> str:
    """The statement that adds tables, as `table_name` writes them, to a publication, without its semicolon."""
    return f"ALTER PUBLICATION {identifier(name)} ADD TABLE {_listed(tables)}"


def no_publication(settings: PostgresSettings, tables: Iterable[str]) -> CaptureError:
    """The error for a publication that is not there and that Headrace is not to make.

    Args:
        settings: the source's options.
        tables: those that it is to have, as `table_name` writes them.
    """
    return CaptureError(
        f"Database '{settings.database}' has no publication '{settings.publication_name}'.",
        remedy=f"Run: {create_statement(settings.publication_name, tables)}; or set 'publication_autocreate' to "
        "filtered.",
    )


def _listed(tables: Iterable[str]) -> str:
    # A table's children of INHERITS are tables of their own.
    return ", ".join(f"ONLY {table}" for table in tables)


# A slot has no comment, so the publication's says whether a first start came as far as its first batch.


def say_slot_begins(connection: Connection, settings: PostgresSettings) -> None:
    """Note that the slot is being made, where the publication is Headrace's own."""
    state = PublicationState.of(connection, settings.publication_name)
    if state is not None and state.is_own:
        _comment(connection, state.name, _MADE.format(slot=settings.slot) + _UNFINISHED)


def slot_is_unfinished(connection: Connection, settings: PostgresSettings) -> bool:
    """Whether a start that made the slot gave no batch."""
    state = PublicationState.of(connection, settings.publication_name)
    return state is not None and state.comment == _MADE.format(slot=settings.slot) + _UNFINISHED


def say_slot_began(connection: Connection, slot: str) -> None:
    comment = _MADE.format(slot=slot)
    for (name,) in connection.rows(_UNFINISHED_NAMES, (comment + _UNFINISHED,)):
        _comment(connection, name, comment)


def _comment(connection: Connection, name: str, text: str) -> None:
    connection.run(f"COMMENT ON PUBLICATION {identifier(name)} IS {literal(text)}")
