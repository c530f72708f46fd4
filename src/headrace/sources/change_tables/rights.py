"""What a login may not do with captured tables and their change tables: found out by reading, as a run would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.errors import CaptureError
from headrace.options import Options
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.catalog import CatalogTable
from headrace.sources.change_tables.connection import Connection, Denied
from headrace.sources.permissions import MissingRight
from headrace.sources.snapshots.select_overrides import SelectOverrides


def table_rights(
    connection: Connection, tables: Iterable[CatalogTable], settings: Options, user: str
) -> Iterator[MissingRight]:
    """The rights that are missing to read these tables and their changes; each is asked for one row at the most."""
    statements, dialect = connection.statements, connection.dialect
    selects = SelectOverrides.of(settings)
    nowhere = lsn.to_bytes(dialect.zero)
    for table in tables:
        path = table.id.path
        select = selects.select(table.id)
        refusal = refused(connection, statements.any_row(table.newest, select))
        if refusal is not None and select is not None:
            # Which table of the statement it is, only the server knows.
            yield missing_select(refusal, f"what is read in place of {path}", "its snapshot", refusal.remedy)
        elif refusal is not None:
            yield missing_select(refusal, path, "its snapshot and its structure", dialect.grant_table(table.id, user))
        for name in (version.instance.name for version in table.versions):
            refusal = refused(connection, statements.changed_instances([name]), (nowhere, nowhere))
            if refusal is not None:
                grant = dialect.grant_changes(name, user)
                yield missing_select(refusal, f"the change table of '{name}'", f"changes of {path}", grant)


def refused(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> CaptureError | None:
    """What the server said when it refused a statement; null where it answered."""
    try:
        connection.rows(sql, parameters)
    except CaptureError as error:
        return error
    return None


def missing_select(refusal: CaptureError, what: str, purpose: str, grant: str) -> MissingRight:
    """The right to read something; a refusal that speaks of no right is told as the server said it."""
    said = "" if isinstance(refusal, Denied) else f" ({refusal.message.rstrip('.')})"
    return MissingRight(f"the right SELECT on {what}", f"{purpose}{said}", grant)
