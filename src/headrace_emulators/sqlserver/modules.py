"""CREATE FUNCTION, TRIGGER, PROCEDURE and VIEW: only those that do what the emulator's own capture does."""

from __future__ import annotations

import re

from headrace_emulators.sqlserver.errors import not_emulated
from headrace_emulators.sqlserver.instances import adopt
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.storage import SqlServerStorage

_MODULES = ("FUNCTION", "PROC", "PROCEDURE", "TRIGGER", "VIEW")
_CHANGES = re.compile(r"fn_cdc_get_(all|net)_changes_", re.IGNORECASE)


def is_module(words: str) -> bool:
    """Whether a statement with these first words makes a module."""
    listed = words.replace("CREATE OR ALTER", "CREATE").split(" ")
    return listed[0] in ("CREATE", "ALTER") and len(listed) > 1 and listed[1] in _MODULES


def create_module(storage: SqlServerStorage, statement: str) -> None:
    """Take over the modules that a catalog of capture written by hand brings along.

    The functions `cdc.fn_cdc_get_all_changes_<instance>` and `..._net_changes_...` exist for each instance anyway.
    A trigger that writes rows of change tables does what the capture job does; the capture instance of its own table is
    logged from now on instead, and `capture` writes the rows.

    Args:
        storage: in a write transaction.
        statement: the whole batch.

    Raises:
        NotSupportedError: any other module.
    """
    reader = StatementReader(statement)
    reader.next()
    reader.accept("OR", "ALTER")
    kind = reader.next().text.upper()
    _, schema, name = reader.path()
    if kind == "FUNCTION" and schema.lower() == "cdc" and _CHANGES.match(name):
        return
    if kind == "TRIGGER" and reader.accept("ON"):
        _, schema, table = reader.path()
        source = storage.catalog().find(schema, table)
        written = set(re.findall(r"\bcdc\.\[?(\w+)_CT\b", reader.rest()))
        if source is not None and source.object_id and written:
            instances = storage.sqlite.execute(
                'SELECT capture_instance FROM "cdc.change_tables" WHERE source_object_id = ?', (source.object_id,)
            ).fetchall()
            adopt(storage, [n for (n,) in instances if n in written])
            return
    raise not_emulated(f"CREATE {kind}", statement)
