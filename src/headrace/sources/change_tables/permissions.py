"""What a login may not do with captured tables and their change tables: found out by reading, as a run would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.errors import CaptureError
from headrace.permissions import MissingPermission
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CatalogTable
from headrace.sources.change_tables.connection import Connection, Denied
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.snapshots.select_overrides import SelectOverrides


def missing_on_tables(
    connection: Connection, tables: Iterable[CatalogTable], settings: ChangeTableSettings, user: str
) -> Iterator[MissingPermission]:
    """The permissions that are missing to read these tables and their changes; each read asks for one row at most."""
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
            yield missing_select(refusal, path, "its snapshot and its schema", dialect.grant_table(table.id, user))
        for name in (version.instance.name for version in table.versions):
            refusal = refused(connection, statements.changed_instances([name]), (nowhere, nowhere))
            if refusal is not None:
                grant = dialect.grant_changes(name, user)
                yield missing_select(refusal, f"the change table of '{name}'", f"changes of {path}", grant)


def refused(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> CaptureError | None:
    """The server's refusal of a statement; None if it answered."""
    try:
        connection.rows(sql, parameters)
    except CaptureError as error:
        return error
    return None


def missing_select(refusal: CaptureError, what: str, purpose: str, grant: str) -> MissingPermission:
    """The permission to read something; a refusal for another reason keeps the server's message."""
    reason = "" if isinstance(refusal, Denied) else f" ({refusal.message.rstrip('.')})"
    return MissingPermission.of(["SELECT"], f"on {what}", f"{purpose}{reason}", grant)
